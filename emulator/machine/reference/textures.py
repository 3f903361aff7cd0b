"""``tex``, one thread after the other (PTX ISA 9.7.10.3)."""

from __future__ import annotations

import numpy as np

from emulator.machine.reference.compute import Run, guarded
from emulator.machine.reference.operands import addresses, reader, writer
from emulator.machine.reference.thread import Thread
from emulator.machine.shared.operands import ordinary
from emulator.machine.shared.textures import coordinates_of, fetch_of
from emulator.ptx.program import Function, Statement, items_of


def fetch(statement: Statement, function: Function) -> Run:
    """Reads the four components of a texel, or of a blend of several."""
    handle, find = addresses(statement.operands["t"]), fetch_of(statement)
    reads = [reader(item, "b32") for item in coordinates_of(statement)]
    kind = ordinary(statement).types[0]
    writes = [writer(item, kind, function) for item in items_of(statement.operands.get("d"))]

    def run(thread: Thread) -> None:
        words = [np.array([read(thread)], np.uint32) for read in reads]
        handles = np.array([handle(thread)], np.uint64)
        found = find(thread.run.arena.textures, handles, words)[0]
        for write, word in zip(writes, found.tolist(), strict=False):
            write(thread, word)

    return guarded(statement, run)
