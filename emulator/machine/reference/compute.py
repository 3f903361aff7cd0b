"""Reference engine: statements that compute on registers, by the rules of `emulator.arith.scalar`
on integers, each thread by itself or lanes of a warp together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from emulator.arith.scalar.rule import bind_reference
from emulator.layout.lanemap import WARP
from emulator.machine.reference.operands import Read, Write, guard_of, reader, writer
from emulator.machine.reference.thread import Thread, Together
from emulator.machine.shared.operands import bound_to
from emulator.ptx.program import Function, Statement

#: the step of one thread
ThreadStep = Callable[[Thread], None]


def compute(statement: Statement, function: Function) -> ThreadStep:
    """Computes the destinations of a statement from its sources."""
    ins = statement.instruction
    rule = bind_reference(ins, **statement.selectors)  # type: ignore[arg-type]
    reads, writes = operands_of(statement, function)

    def run(thread: Thread) -> None:
        put(thread, writes, rule(*[read(thread) for read in reads]))

    return guarded(statement, run)


def put(thread: Thread, writes: list[Write], result: object) -> None:
    """Writes one result, or several; what is left over was not asked for."""
    words = result if isinstance(result, tuple) else (result,)
    for write, word in zip(writes, words, strict=False):
        write(thread, int(word))


def operands_of(statement: Statement, function: Function) -> tuple[list[Read], list[Write]]:
    """Readers and writers of the operands, in order; the items of a vector one by one."""
    write = partial(writer, function=function)
    return bound_to(statement, function.carry, reader, write, lambda word: lambda thread: word)


def guarded(statement: Statement, run: ThreadStep) -> ThreadStep:
    """`run` where the statement's guard holds."""
    holds = guard_of(statement.guard)
    if holds is None:
        return run

    def guarded(thread: Thread) -> None:
        if holds(thread):
            run(thread)

    return guarded


# --- lanes of a warp together (PTX ISA 9.7.9.6, 9.7.13) ------------------------------------------


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
