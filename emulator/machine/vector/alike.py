"""Vector engine: neighbours that do the same to different registers, computed in one call.

Compilers unroll loops over the elements that a thread has, so that eight additions, say, follow
each other. On few lanes a call of NumPy takes the same time for one of them and for all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from dtypes import Array
from emulator.isa.ordinary.instruction import OrdinaryInstruction
from emulator.isa.register_types import REGISTER_BITS
from emulator.machine.shared.operands import destinations, sources
from emulator.machine.vector.compute import Step, operands_of, rule_of_step
from emulator.machine.vector.operands import Read
from emulator.machine.vector.statements import computes
from emulator.machine.vector.strand import Strand
from emulator.machine.vector.wave import Block
from emulator.ptx.program import Constant, Function, Program, Register, Statement

#: neighbours that are worth it, and the most that compute together
_FEWEST, _MOST = 3, 16
#: lanes of a strand times neighbours, above which all the time goes into the arithmetic
_WORDS = 1 << 14


def with_rows(block: Block, program: Program) -> Block:
    """A block in which the first of some neighbours computes what all of them do."""
    function, steps = program.function_at(block.statements[0].pc), list(block.steps)
    for first, last in _groups(block.statements[: len(steps)], function):
        group = slice(first, last)
        steps[group] = _together(block.statements[group], steps[group], function)
    return replace(block, steps=tuple(steps))


def _groups(statements: Sequence[Statement], function: Function) -> Iterator[tuple[int, int]]:
    """The first of each group, and the one behind its last."""
    first, written = 0, set[int]()
    for number, statement in enumerate(statements):
        registers = _registers(statement, function)
        begins = registers is None or not written.isdisjoint(registers)
        begins = begins or not _is_alike(statements[first], statement) or number - first >= _MOST
        if begins:
            if written and number - first >= _FEWEST:
                yield first, number
            # A statement that is none of these is in no group, nor does it start one.
            first, written = number + (registers is None), set()
        if registers is not None:
            written.add(registers[0])
    if written and len(statements) - first >= _FEWEST:
        yield first, len(statements)


def _is_alike(one: Statement, other: Statement) -> bool:
    return one.instruction == other.instruction and one.selectors == other.selectors


def _registers(statement: Statement, function: Function) -> list[int] | None:
    """The register that a statement writes, and those that it reads; None where all lanes do not
    compute one word of at most 64 bits of registers and constants."""
    if statement.guard is not None or statement.expansion or not computes(statement.instruction):
        return None
    given, results = [*sources(statement)], [x for x, _ in destinations(statement)]
    plain = all(type_ and isinstance(x, (Register, Constant)) for x, type_ in given)
    if not plain or len(results) != 1 or not isinstance(results[0], Register):
        return None
    ins = statement.instruction
    if isinstance(ins, OrdinaryInstruction) and (ins.reads_carry or ins.writes_carry):
        return None
    registers = [results[0].index, *(x.index for x, _ in given if isinstance(x, Register))]
    known = (function.registers[index].type for index in registers)
    if len(registers) == 1 or any(REGISTER_BITS[type_] > 64 for type_ in known):
        return None
    return registers


def _together(
    statements: Sequence[Statement], steps: Sequence[Step], function: Function
) -> list[Step]:
    """The steps of a group: that of the first statement, and of the others, for which nothing is
    left. On many lanes the first goes through all of them."""
    rule = rule_of_step(statements[0])
    reads, writes = zip(*(operands_of(x, function) for x in statements), strict=True)
    columns: list[tuple[Read, ...]] = [*zip(*reads, strict=True)]
    most = _WORDS // len(statements)

    def run(s: Strand) -> None:
        if len(s) > most:
            for step in steps:
                step(s)
            return
        words = [_rows([read(s) for read in column]) for column in columns]
        for (write,), result in zip(writes, rule(*words), strict=True):
            write(s, result, None)

    return [run, *[_nothing] * (len(statements) - 1)]


def _rows(words: Sequence[Array]) -> Array:
    """Words of several registers ``(registers, lanes)``; one column where each is the same in all
    lanes."""
    lanes = max(map(len, words))
    out = np.empty((len(words), lanes), words[0].dtype)
    for row, x in zip(out, words, strict=True):
        row[:] = x
    return out


def _nothing(s: Strand) -> None:
    """The step of a statement that is done already."""
