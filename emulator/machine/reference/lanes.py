"""Reference engine: statements that lanes of a warp execute together (PTX ISA 9.7.9.6, 9.7.13)."""

from __future__ import annotations

from collections.abc import Sequence

from emulator.arith.scalar.rule import bind_reference
from emulator.layout.lanemap import WARP
from emulator.machine.reference.compute import operands_of
from emulator.machine.reference.operands import guard_of, reader
from emulator.machine.reference.thread import Thread, Together
from emulator.ptx.program import Function, Statement


def over_warp(statement: Statement, function: Function) -> Together:
    """shfl, vote, match, redux, elect, activemask, by the rules of `arith.scalar.lanes`."""
    rule = bind_reference(statement.instruction)  # type: ignore[arg-type]
    reads, writes = operands_of(statement, function)

    def run(threads: Sequence[Thread]) -> None:
        words = [[0] * WARP for _ in reads]
        active = [False] * WARP
        for thread in threads:
            active[thread.lane] = True
            for column, read in zip(words, reads, strict=True):
                column[thread.lane] = read(thread)
        result = rule(*words, active=active)
        columns = result if isinstance(result, tuple) else (result,)
        for thread in threads:
            for write, column in zip(writes, columns, strict=False):
                write(thread, column[thread.lane])

    if "membermask" not in statement.signature:
        return Together(0, run, guard=guard_of(statement.guard))
    return Together(WARP, run, reads[-1], guard_of(statement.guard))


def warp_barrier(statement: Statement, function: Function) -> Together:
    """bar.warp.sync: lanes of the membermask wait for each other."""
    mask = reader(statement.operands["membermask"], "u32")
    return Together(WARP, nothing, mask, guard_of(statement.guard))


def registers_of_warp(statement: Statement, function: Function) -> Together:
    """setmaxnreg: the number of registers is legal, and has no effect on values."""
    return Together(WARP, nothing, guard=guard_of(statement.guard))


def nothing(threads: Sequence[Thread]) -> None:
    """The threads have met: that was all."""


TOGETHER = {"bar.warp.sync": warp_barrier, "setmaxnreg": registers_of_warp}
