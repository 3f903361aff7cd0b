"""``tex``, ``tld4`` and ``txq``, one thread after the other (PTX ISA 9.7.10)."""

from __future__ import annotations

import numpy as np

from emulator.machine.reference.compute import Run, guarded
from emulator.machine.reference.operands import addresses, reader, writer
from emulator.machine.reference.thread import Thread
from emulator.machine.shared.textures import operands_of, read_of, results_of
from emulator.ptx.program import Function, Statement


def fetch(statement: Statement, function: Function) -> Run:
    """Reads the components of a texel, of a blend or of four texels, or a texture's size."""
    handle, find = addresses(statement.operands["t"]), read_of(statement)
    reads = [reader(item, "b32") for item in operands_of(statement)]
    writes = [writer(item, kind, function) for item, kind in results_of(statement)]

    def run(thread: Thread) -> None:
        words = [np.array([read(thread)], np.uint32) for read in reads]
        handles = np.array([handle(thread)], np.uint64)
        found = find(thread.run.arena.textures, handles, words)[0]
        for write, word in zip(writes, found.tolist(), strict=False):
            write(thread, word)

    return guarded(statement, run)
