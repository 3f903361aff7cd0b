"""A parsed statement to a step that runs on a machine; ``check_statement`` stops before it runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from emulator.errors import EmulatorError, OperandError, UnsupportedError, quoted
from emulator.isa.instruction import Instruction, unknown_opcode
from emulator.isa.kinds import kinds_of
from emulator.isa.ordinary.instruction import OrdinaryInstruction
from emulator.ptx import instructions
from emulator.ptx.binder import Scope
from emulator.ptx.mov import bind_mov
from emulator.ptx.registers import RegisterFile
from emulator.ptx.shared import SharedVariables
from emulator.ptx.state import State
from emulator.ptx.synchronise import bind_synchronisation, is_synchronisation
from emulator.ptx.syntax import Call, Declaration, Position, SharedDeclaration, parse
from emulator.targets import Target, find_target

_WARPGROUP_LANES = 128


class Step(Protocol):
    """A statement with operands that fit it."""

    def run(self, state: State) -> None: ...


def check_statement(text: str, target: str | Target) -> None:
    """Raises what ``Warp.run`` or ``Warpgroup.run`` would raise before it executes `text`.

    `text` holds declarations and statements, as in a PTX file. What it checks is what an assembler
    checks: opcodes, targets, and kinds, counts, types and ranges of operands. Raises ParseError,
    UnsupportedError or OperandError, with line and column.

    >>> check_statement(".reg .f32 %f; mov.f32 %f, 1.5;", "sm_80")
    """
    chosen = find_target(target)
    scope = Scope(RegisterFile(0, ()), SharedVariables())
    for statement in parse(text):
        if isinstance(statement, Call):
            with placed(statement.position):
                bind(statement, scope, chosen, _WARPGROUP_LANES)
        else:
            declare(statement, scope)


def declare(
    statement: Declaration | SharedDeclaration, scope: Scope, limit: int | None = None
) -> None:
    """Adds the names of a declaration; `limit` is the size of shared memory, if it has one.

    Raises OperandError for a type that does not exist and a name that is taken.
    """
    where = f"{statement.position}: "
    if isinstance(statement, Declaration):
        taken = [name for name in statement.names if name in scope.variables]
    else:
        taken = [x.name for x in statement.variables if x.name in scope.registers]
    if taken:
        raise OperandError(f"{where}{taken[0]!r:.100} is declared already")
    if isinstance(statement, Declaration):
        scope.registers.declare(statement.type, statement.names, where)
    else:
        scope.variables.declare(statement, limit)


def bind(call: Call, scope: Scope, target: Target, lanes: int) -> Step:
    """The step that a statement takes on a machine of `lanes` lanes.

    Raises ParseError, UnsupportedError or OperandError where the statement is not legal.
    """
    if call.opcode.startswith("mov."):
        return bind_mov(call, scope)
    if is_synchronisation(call.opcode):
        return bind_synchronisation(call, scope, lanes)
    if not kinds_of(call.opcode):
        raise unknown_opcode(call.opcode)
    ins = Instruction.parse(call.opcode)
    if isinstance(ins, OrdinaryInstruction):
        raise UnsupportedError(
            f"{quoted(str(ins))} is legal PTX, not modelled here: a Warp runs matrix instructions, "
            "their moves and conversions, and mov; a kernel of a Module runs all"
        )
    if ins.lanes > lanes:
        raise UnsupportedError(
            f"{ins} runs on {ins.lanes} lanes, a Warpgroup; this is a Warp of {lanes}"
        )
    return instructions.bind(ins, call, scope, target)


@contextmanager
def placed(position: Position) -> Iterator[None]:
    """Errors say where their statement stands, if they do not yet."""
    try:
        yield
    except EmulatorError as error:
        if not str(error).startswith("line "):
            error.args = (f"{position}: {error}",)
        raise
