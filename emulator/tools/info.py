"""``info``: all facts of one instruction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import NamedTuple

from emulator.isa.instruction import Instruction
from emulator.isa.operands import register_types
from emulator.targets import find_target
from emulator.tools.answer import Answer, render
from emulator.tools.listing import element_types
from emulator.tools.wording import in_words, short_targets
from emulator.warp.scales import legal_ids
from emulator.warp.sparse import legal_nibbles


class Operand(NamedTuple):
    """One operand in registers; the field names are the keys of the JSON."""

    operand: str
    type: str
    #: (rows, cols), and how many matrices of it the lanes hold
    matrix: tuple[int, int]
    matrices: int
    elements: int
    registers: int
    register_types: tuple[str, ...]


class Recipe(NamedTuple):
    """What these targets compute, how we know, and the steps in words."""

    targets: list[str]
    fidelity: str
    detail: str
    steps: list[str]


def info(opcode: str, target: str | None = None) -> Answer:
    """All facts of one instruction; the recipe of one target only if `target` is given.

    Raises ParseError or UnsupportedError for what is no instruction, and UnsupportedError where
    `target` lacks it.
    """
    ins = Instruction.parse(opcode)
    names: Sequence[str] = ins.targets
    if target is not None:
        ins.recipe(target)  # raises where there is none
        names = [find_target(target).name]
    operands = [_operand(ins, name) for name in ins.operands]
    recipes = _recipes(ins, names)
    data = {
        "opcode": str(ins), "family": ins.family, "m": ins.m, "n": ins.n, "k": ins.k,
        "lanes": ins.lanes, "types": element_types(ins), "targets": list(ins.targets),
        "operands": [operand._asdict() for operand in operands], **_choices(ins),
        "recipes": [recipe._asdict() for recipe in recipes],
    }  # fmt: skip
    return Answer(_lines(ins, operands, recipes), data)


def _operand(ins: Instruction, name: str) -> Operand:
    fragment = ins.fragment(name)
    return Operand(
        name, fragment.fmt.name, fragment.shape, fragment.groups, fragment.elements,
        fragment.registers, register_types(ins, name),
    )  # fmt: skip


def _choices(ins: Instruction) -> dict[str, list[int] | list[str]]:
    """Legal values of the immediates that choose metadata and scales."""
    out: dict[str, list[int] | list[str]] = {}
    if ins.is_sparse:
        out["selector"] = list(range(ins.fragment("e").groups))
        out["metadata_nibble"] = [f"0b{nibble:04b}" for nibble in sorted(legal_nibbles(ins))]
    if ins.is_block_scaled:
        for x in "ab":
            bytes_, threads = legal_ids(ins, f"scale_{x}")
            out |= {f"byte_id_{x}": list(bytes_), f"thread_id_{x}": list(threads)}
    return out


def _recipes(ins: Instruction, targets: Sequence[str]) -> list[Recipe]:
    """Recipes with their fidelity; targets that agree in both share an entry."""
    out: list[Recipe] = []
    for target in targets:
        fidelity = ins.fidelity(target)
        steps = [in_words(step, ins) for step in ins.recipe(target).steps]
        for known in out:
            if known[1:] == (fidelity.level, fidelity.detail, steps):
                known.targets.append(target)
                break
        else:
            out.append(Recipe([target], fidelity.level, fidelity.detail, steps))
    return out


def _lines(ins: Instruction, operands: list[Operand], recipes: list[Recipe]) -> Iterator[str]:
    group = "warpgroup" if ins.is_wgmma else "warp"
    yield str(ins)
    yield f"  {ins.family}, m = {ins.m}, n = {ins.n}, k = {ins.k}, {group} of {ins.lanes} lanes"
    yield f"  targets: {short_targets(ins.targets)}"
    for name, legal in _choices(ins).items():
        yield f"  {name.replace('_', ' ')}: {', '.join(map(str, legal))}"
    yield ""
    yield from _operand_table(ins, operands)
    for recipe in recipes:
        yield ""
        yield f"{short_targets(recipe.targets)}: {recipe.fidelity} ({recipe.detail})"
        for number, step in enumerate(recipe.steps, 1):
            yield from wrap(step, 100, initial_indent=f"  {number}. ", subsequent_indent="     ")


def _operand_table(ins: Instruction, operands: list[Operand]) -> Iterator[str]:
    header = ["operand", "type", "matrix", "elements/lane", "registers/lane", "register types"]
    rows = []
    for x in operands:
        matrix = f"{x.matrices} of " if x.matrices > 1 else ""
        matrix += f"{x.matrix[0]}x{x.matrix[1]}"
        types = " ".join(f".{name}" for name in x.register_types)
        rows.append([x.operand, x.type, matrix, str(x.elements), str(x.registers), types])
    if ins.is_wgmma:
        rows.append(["b", ins.b_type, f"{ins.k}x{ins.n}", "", "", ".b64 descriptor"])
    yield from render(header, rows, "text")
    if ins.is_wgmma:
        yield "b is in shared memory; a may be there, too, through a descriptor of its own"
