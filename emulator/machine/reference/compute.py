"""Reference engine: statements that compute on registers, by the rules of `emulator.arith.scalar`
on integers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from emulator.arith.scalar.rule import bind_reference
from emulator.machine.reference.operands import Read, Write, guard_of, reader, writer
from emulator.machine.reference.thread import Thread
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
