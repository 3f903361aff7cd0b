"""``tex``, all lanes of a strand at once (PTX ISA 9.7.10.3)."""

from __future__ import annotations

import numpy as np

from dtypes import Array
from emulator.machine.shared.failure import Failure
from emulator.machine.shared.operands import ordinary
from emulator.machine.shared.textures import coordinates_of, fetch_of
from emulator.machine.vector.compute import Step, guarded
from emulator.machine.vector.operands import addresses, reader, writer
from emulator.machine.vector.strand import Strand
from emulator.ptx.program import Function, Statement, items_of


def fetch(statement: Statement, function: Function) -> Step:
    """Reads the four components of a texel, or of a blend of several."""
    handle, find = addresses(statement.operands["t"], function), fetch_of(statement)
    reads = [reader(item, "b32", function) for item in coordinates_of(statement)]
    kind = ordinary(statement).types[0]
    writes = [writer(item, kind, function) for item in items_of(statement.operands.get("d"))]

    def run(s: Strand, mask: Array | None) -> None:
        which = np.arange(len(s)) if mask is None else np.flatnonzero(mask)
        given = [np.broadcast_to(words, len(s))[which]
                 for words in (handle(s), *[read(s) for read in reads])]  # fmt: skip
        try:
            found = find(s.wave.grid.arena.textures, given[0], given[1:])
        except Failure as failure:
            assert failure.index is not None
            raise Failure(failure.kind, failure.reason, int(which[failure.index])) from None
        out = np.zeros((len(s), 4), np.uint32)
        out[which] = found
        for i, write in enumerate(writes):
            write(s, np.ascontiguousarray(out[:, i]), mask)

    return guarded(statement, run)
