"""``tex``, ``tld4`` and ``txq``, all lanes of a strand at once (PTX ISA 9.7.10)."""

from __future__ import annotations

import numpy as np

from dtypes import Array
from emulator.arith.scalar.types import TYPES
from emulator.machine.shared.failure import Failure
from emulator.machine.shared.textures import operands_of, read_of, results_of
from emulator.machine.vector.compute import Step, guarded
from emulator.machine.vector.operands import addresses, reader, writer
from emulator.machine.vector.strand import Strand
from emulator.ptx.program import Function, Statement


def fetch(statement: Statement, function: Function) -> Step:
    """Reads the components of a texel, of a blend or of four texels, or a texture's size."""
    handle, find = addresses(statement.operands["t"], function), read_of(statement)
    reads = [reader(item, "b32", function) for item in operands_of(statement)]
    results = tuple(results_of(statement))
    writes = [(writer(item, kind, function), TYPES[kind].dtype) for item, kind in results]

    def run(s: Strand, mask: Array | None) -> None:
        which = np.arange(len(s)) if mask is None else np.flatnonzero(mask)
        given = [np.broadcast_to(words, len(s))[which]
                 for words in (handle(s), *[read(s) for read in reads])]  # fmt: skip
        try:
            found = find(s.wave.grid.arena.textures, given[0], given[1:])
        except Failure as failure:
            assert failure.index is not None
            raise Failure(failure.kind, failure.reason, int(which[failure.index])) from None
        out = np.zeros((len(s), found.shape[1]), np.uint32)
        out[which] = found
        for i, (write, dtype) in enumerate(writes):
            write(s, out[:, i].astype(dtype), mask)

    return guarded(statement, run)
