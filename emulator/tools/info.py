"""``info``: all facts of one instruction."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from textwrap import wrap
from typing import NamedTuple

from emulator.arith.evidence import library_instruction
from emulator.arith.recipes import RECIPES
from emulator.errors import runs
from emulator.isa.instruction import Instruction
from emulator.isa.matrix import MatrixInstruction
from emulator.targets import find_target
from emulator.tools.facts import OperandFacts, choices, element_types, operands, sizes, summary
from emulator.tools.operands import Multiplication
from emulator.tools.report import WIDTH, Answer, render
from emulator.tools.wording import short_targets, steps


class Computed(NamedTuple):
    """The computation of these targets: evidence, and the steps in words and in numbers."""

    targets: list[str]
    fidelity: str
    detail: str
    steps: list[str]
    #: name and constants of each step
    constants: list[dict[str, object]]
    #: what libraries do on these targets, where they use another instruction
    libraries: str


#: arguments of `info` and what they mean
INFO_HELP = {"opcode": "", "--target": "show what it does on this target only"}


def info_command(opcode: str, target: str | None = None) -> Answer:
    """All facts of one instruction; the recipe of one target only if `target` is given.

    Raises ParseError or UnsupportedError for what is no instruction, and UnsupportedError where
    `target` lacks it.
    """
    ins = Instruction.parse(opcode)
    if target is not None:
        ins.fidelity(target)  # raises where the target lacks it
    recipes: dict[object, Computed] = {}  # targets that agree in all share one
    for name in ins.targets if target is None else [find_target(target).name]:
        fidelity, words = ins.fidelity(name), steps(ins, name)
        own = Computed(
            [], fidelity.level, fidelity.detail, words, _constants(ins, name), _libraries(ins, name)
        )
        recipes.setdefault(repr(own), own).targets.append(name)
    held = operands(ins)
    data = {
        "opcode": str(ins), "family": ins.family, **sizes(ins), "lanes": ins.lanes,
        "types": element_types(ins), **_modifiers(ins), "targets": list(ins.targets),
        "operands": [operand._asdict() for operand in held], **choices(ins),
        "recipes": [recipe._asdict() for recipe in recipes.values()],
    }  # fmt: skip
    return Answer(_lines(ins, held, list(recipes.values())), data)


def _constants(ins: Instruction, target: str) -> list[dict[str, object]]:
    """The constants of the steps on a target; nothing of an instruction without a recipe."""
    if not isinstance(ins, Multiplication):
        return []
    steps = ins.arithmetic(target).steps
    return [{"step": type(step).__name__, "fields": asdict(step)} for step in steps]


def _libraries(ins: Instruction, target: str) -> str:
    """Says that libraries use another instruction for these types, and whether its bits differ."""
    if not isinstance(ins, MatrixInstruction):
        return ""
    generation = find_target(target).generation
    name = library_instruction(generation, ins.family, ins.a_type)
    if not name:
        return ""
    pipe = name.partition(".")[0]
    theirs = [
        x
        for x in RECIPES
        if (x.pipe, x.d) == (pipe, ins.d_type)
        and generation in x.generations.split()
        and ins.a_type in x.a.split()
    ]
    same = "the same bits" if theirs and theirs[0].steps == ins.recipe(target).steps else ""
    bits = f", {same or 'other bits'}" if theirs else ""
    return f"libraries (cuBLAS, CUTLASS, DeepGEMM) use {name} here{bits}"


def _modifiers(ins: Instruction) -> dict[str, object]:
    """Modifiers of the opcode that concern the arithmetic, where it multiplies."""
    if not isinstance(ins, Multiplication):
        return {}
    arithmetic = ins.arithmetic(ins.targets[0])
    return {"modifiers": {
        "rounding": arithmetic.rounding, "satfinite": arithmetic.saturate,
        "bit_operation": arithmetic.bit_operation,
    }}  # fmt: skip


def _lines(ins: Instruction, held: list[OperandFacts], recipes: list[Computed]) -> Iterator[str]:
    yield str(ins)
    yield f"  {summary(ins)}"
    yield f"  targets: {short_targets(ins.targets)}"
    for name, legal in choices(ins).items():
        yield f"  {name.replace('_', ' ')}: {_choice(legal)}"
    yield ""
    yield from _operand_table(held)
    for recipe in recipes:
        yield ""
        yield f"{short_targets(recipe.targets)}: {recipe.fidelity} ({recipe.detail})"
        for number, step in enumerate(recipe.steps, 1):
            yield from wrap(step, WIDTH, initial_indent=f"  {number}. ", subsequent_indent="     ")
        if recipe.libraries:
            yield f"  {recipe.libraries}"


def _choice(legal: list[int] | list[str]) -> str:
    numbers = [x for x in legal if isinstance(x, int)]
    return runs(numbers) if len(numbers) > 4 else ", ".join(map(str, legal))


def _operand_table(held: list[OperandFacts]) -> list[str]:
    """One line per operand; a column that is empty in all of them is left out."""
    if not held:
        return ["no operands"]
    header = ["operand", "type", "matrix", "elements/lane", "registers/lane", "register types", ""]
    rows = []
    for x in held:
        matrix = f"{x.matrices} of " if x.matrices not in (None, 1) else ""
        matrix += "x".join(map(str, x.matrix or ()))
        numbers = ["" if n is None else str(n) for n in (x.elements, x.registers)]
        types = " ".join(f".{name}" for name in x.register_types)
        rows.append([x.operand, x.type, matrix, *numbers, types, x.note])
    columns = [column for column in zip(header, *rows, strict=True) if any(column[1:])]
    first, *rest = zip(*columns, strict=True)
    return render(first, rest)
