"""Reference engine: statements that compute on registers, by the rules of `emulator.arith.scalar`
on integers."""

from __future__ import annotations

from collections.abc import Callable

from emulator.arith.scalar.rule import bind_reference
from emulator.machine.reference.operands import Read, Write, guard_of, reader, writer
from emulator.machine.reference.thread import Thread
from emulator.machine.shared import operands
from emulator.ptx.program import Bound, Constant, Function, Register, Statement

#: the step of one thread
ThreadStep = Callable[[Thread], None]


def compute(statement: Statement, function: Function) -> ThreadStep:
    """Computes the destinations of a statement from its sources."""
    ins = statement.instruction
    rule = bind_reference(ins, **statement.selectors)  # type: ignore[arg-type]
    reads, writes = sources(statement), destinations(statement, function)
    carry = Register(function.carry) if function.carry is not None else None
    if getattr(ins, "reads_carry", False):
        reads.append(reader(carry, "pred"))
    if getattr(ins, "writes_carry", False):
        writes.append(writer(carry, "pred", function))

    def run(thread: Thread) -> None:
        put(thread, writes, rule(*[read(thread) for read in reads]))

    return guarded(statement, run)


def put(thread: Thread, writes: list[Write], result: object) -> None:
    """Writes one result, or several; what is left over was not asked for."""
    words = result if isinstance(result, tuple) else (result,)
    for write, word in zip(writes, words, strict=False):
        write(thread, int(word))


def sources(statement: Statement) -> list[Read]:
    """Readers of the operands that are read, in order; the items of a vector one by one."""
    return [_source(bound, type_) for bound, type_ in operands.sources(statement)]


def _source(bound: Bound | None, type_: str) -> Read:
    if type_:
        return reader(bound, type_)
    assert isinstance(bound, Constant)
    word = bound.word
    return lambda thread: word


def destinations(statement: Statement, function: Function) -> list[Write]:
    """Writers of the operands that are written, in order."""
    return [writer(bound, type_, function) for bound, type_ in operands.destinations(statement)]


def guarded(statement: Statement, run: ThreadStep) -> ThreadStep:
    """`run` where the statement's guard holds."""
    holds = guard_of(statement.guard)
    if holds is None:
        return run

    def guarded(thread: Thread) -> None:
        if holds(thread):
            run(thread)

    return guarded
