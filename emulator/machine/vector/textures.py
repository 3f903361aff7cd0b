"""``tex``, ``tld4`` and ``txq``, all lanes of a strand at once (PTX ISA 9.7.10)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from dtypes import Array
from emulator.arith.scalar.types import TYPES
from emulator.machine.shared.failure import Failure
from emulator.machine.shared.textures import operands_of, read_of, results_of
from emulator.machine.vector.compute import Step, guarded
from emulator.machine.vector.operands import addresses, reader, writer
from emulator.machine.vector.strand import Strand
from emulator.ptx.program import Function, Statement


def lanes_of(
    s: Strand, mask: Array | None, reads: Sequence[Callable[[Strand], Array]]
) -> tuple[Array, list[Array]]:
    """The positions of active lanes, and operands of these lanes."""
    which = np.arange(len(s)) if mask is None else np.flatnonzero(mask)
    return which, [np.broadcast_to(read(s), len(s))[which] for read in reads]


@contextmanager
def failing_at(which: Array) -> Iterator[None]:
    """Counts the lane of a Failure among all of a strand instead of among `which`."""
    try:
        yield
    except Failure as failure:
        assert failure.index is not None
        raise Failure(failure.kind, failure.reason, int(which[failure.index])) from None


def fetch(statement: Statement, function: Function) -> Step:
    """Reads the components of a texel, of a blend or of four texels, or a texture's size."""
    handle, find = addresses(statement.operands["t"], function), read_of(statement)
    reads = [reader(item, "b32", function) for item in operands_of(statement)]
    results = tuple(results_of(statement))
    writes = [(writer(item, kind, function), TYPES[kind].dtype) for item, kind in results]

    def run(s: Strand, mask: Array | None) -> None:
        which, (handles, *given) = lanes_of(s, mask, (handle, *reads))
        with failing_at(which):
            found = find(s.wave.grid.arena.textures, handles, given)
        out = np.zeros((len(s), found.shape[1]), np.uint32)
        out[which] = found
        for i, (write, dtype) in enumerate(writes):
            write(s, out[:, i].astype(dtype), mask)

    return guarded(statement, run)
