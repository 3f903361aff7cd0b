"""Vector engine: statements that compute on registers, by the rules of `emulator.arith.scalar`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from dtypes import Array
from emulator.arith.scalar.rule import bind_arrays
from emulator.machine.shared.operands import bound_to
from emulator.machine.vector.operands import Read, Write, active, reader, writer
from emulator.machine.vector.strand import Strand
from emulator.ptx.program import Function, Statement

Step = Callable[[Strand], None]


def step(statement: Statement, function: Function) -> Step:
    """Computes the destinations of a statement from its sources, in all lanes or those of its
    guard."""
    ins = statement.instruction
    compute = bind_arrays(ins, **statement.selectors)  # type: ignore[arg-type]
    return guarded(statement, _computation(compute, *operands_of(statement, function)))


def operands_of(statement: Statement, function: Function) -> tuple[list[Read], list[Write]]:
    """Readers and writers of the operands, in order; the items of a vector one by one."""
    read, write = partial(reader, function=function), partial(writer, function=function)
    return bound_to(statement, function.carry, read, write, _number)


def _number(word: int) -> Read:
    """Rules take an immediate operand as an integer."""
    return lambda s: word  # type: ignore[return-value]


Masked = Callable[[Strand, Array | None], None]


def _computation(
    compute: Callable[..., Array | tuple[Array, ...]], reads: list[Read], writes: list[Write]
) -> Masked:
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
