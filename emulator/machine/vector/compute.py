"""Vector engine: statements that compute on registers, by the rules of `emulator.arith.scalar`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dtypes import Array
from emulator.arith.scalar.rule import bind_arrays
from emulator.machine.shared import operands
from emulator.machine.vector.operands import Read, Write, active, reader, writer
from emulator.machine.vector.strand import Strand
from emulator.ptx.program import Bound, Constant, Function, Register, Statement

Step = Callable[[Strand], None]


def step(statement: Statement, function: Function) -> Step:
    """Computes the destinations of a statement from its sources, in all lanes or those of its
    guard."""
    ins = statement.instruction
    compute = bind_arrays(ins, **statement.selectors)  # type: ignore[arg-type]
    reads, writes = sources(statement, function), destinations(statement, function)
    if getattr(ins, "reads_carry", False):
        reads.append(reader(Register(_carry(function)), "pred", function))
    if getattr(ins, "writes_carry", False):
        writes.append(writer(Register(_carry(function)), "pred", function))
    return guarded(statement, _computation(compute, reads, writes))


def sources(statement: Statement, function: Function) -> list[Read]:
    """Readers of the operands that are read, in order; the items of a vector one by one."""
    return [_source(bound, type_, function) for bound, type_ in operands.sources(statement)]


def _source(bound: Bound | None, type_: str, function: Function) -> Read:
    if type_:
        return reader(bound, type_, function)
    assert isinstance(bound, Constant)
    word = bound.word
    return lambda s: word  # type: ignore[return-value]


def destinations(statement: Statement, function: Function) -> list[Write]:
    return [writer(bound, type_, function) for bound, type_ in operands.destinations(statement)]


def _carry(function: Function) -> int:
    assert function.carry is not None
    return function.carry


Masked = Callable[[Strand, Array | None], None]


def _computation(compute: Callable[..., Any], reads: list[Read], writes: list[Write]) -> Masked:
    if len(writes) > 1:

        def run(s: Strand, mask: Array | None) -> None:
            for write, words in zip(writes, compute(*[read(s) for read in reads]), strict=True):
                write(s, words, mask)

        return run
    (write,) = writes
    if len(reads) == 1:
        (read,) = reads
        return lambda s, mask: write(s, first_of(compute(read(s))), mask)
    if len(reads) == 2:
        one, two = reads
        return lambda s, mask: write(s, first_of(compute(one(s), two(s))), mask)
    return lambda s, mask: write(s, first_of(compute(*[read(s) for read in reads])), mask)


def first_of(result: Array | tuple[Array, ...]) -> Array:
    """The first of several results: the others were left out."""
    return result[0] if isinstance(result, tuple) else result


def guarded(statement: Statement, run: Masked) -> Step:
    """`run` in the lanes where the statement's guard holds."""
    if statement.guard is None:
        return lambda s: run(s, None)
    find = active(statement.guard)

    def guarded(s: Strand) -> None:
        mask = find(s)
        if mask is not False:
            assert mask is None or not isinstance(mask, bool)
            run(s, mask)

    return guarded
