"""Vector engine: table of the functions that execute statements."""

from __future__ import annotations

from collections.abc import Callable

from emulator.errors import UnsupportedError
from emulator.isa.conversion import Conversion
from emulator.isa.instruction import Instruction
from emulator.isa.ordinary.instruction import OrdinaryInstruction
from emulator.machine.shared import statements
from emulator.machine.vector import (
    access,
    compute,
    executor,
    issuer,
    lanes,
    matrix,
    tcgen05,
    tensors,
    wgmma,
)
from emulator.machine.vector.compute import Step
from emulator.machine.vector.lanes import whole_or_split
from emulator.machine.vector.strand import Strand
from emulator.ptx.program import Function, Statement

Make = Callable[[Statement, Function], Step]

#: first words of an opcode -> what makes its step; the longest that fits counts
STEPS: dict[str, Make] = {
    "ld": access.load,
    "ldu": access.load,
    "st": access.store,
    "atom": access.atomic,
    "red": access.atomic,
    **lanes.STEPS,
    **tensors.STEPS,
    **executor.at_once(statements.AT_ONCE),
    **executor.waiting({**statements.WAITING, **statements.MEETING}),
    **issuer.each(statements.EACH),
    **issuer.by_warps(statements.BY_WARP),
    **wgmma.STEPS,
    **tcgen05.STEPS,
}


def step_of(statement: Statement, function: Function) -> Step:
    """The function that executes a statement."""
    if statement.expansion:
        return _in_turn([step_of(part, function) for part in statement.expansion])
    ins = statement.instruction
    if "hint" in ins.effects:
        return lambda s: None
    if make := matrix.STEPS.get(type(ins)):
        return whole_or_split(statement, make(statement, function))
    if isinstance(ins, OrdinaryInstruction) and (found := maker_of(str(ins))):
        return found(statement, function)
    if computes(ins):
        return compute.step(statement, function)
    if rule_of(ins):
        return whole_or_split(statement, lanes.step(statement, function))
    raise UnsupportedError(_missing(ins))


def problem(instruction: object) -> str:
    """The reason why a statement cannot run; "" if it can."""
    return "" if runs(instruction) else _missing(instruction)


def _missing(instruction: object) -> str:
    reason = instruction.form.unmodelled if isinstance(instruction, Instruction) else ""
    return f"{str(instruction)!r} is legal PTX, not modelled here{': ' * bool(reason)}{reason}"


def computes(instruction: Instruction) -> bool:
    """True if each lane computes by itself, by the rule of an instruction."""
    if isinstance(instruction, OrdinaryInstruction) and maker_of(str(instruction)):
        return False
    return instruction.scope == "thread" and rule_of(instruction) != ""


def rule_of(instruction: object) -> str:
    """The rule of an instruction's values in `arith.scalar`; "" where it has none."""
    if isinstance(instruction, (OrdinaryInstruction, Conversion)):
        return instruction.rule
    return ""


def _in_turn(steps: list[Step]) -> Step:
    def run(strand: Strand) -> None:
        for step in steps:
            step(strand)

    return run


def runs(instruction: object) -> bool:
    """True if there is a step for an instruction."""
    if isinstance(instruction, Instruction) and instruction.form.unmodelled:
        return False
    if type(instruction) in matrix.STEPS or rule_of(instruction):
        return True
    if isinstance(instruction, Instruction) and instruction.effects & {"hint", "jumps"}:
        return True
    return maker_of(str(instruction)) is not None


def maker_of(opcode: str) -> Make | None:
    """Finds the maker of an opcode's own step."""
    return statements.longest(STEPS, opcode)
