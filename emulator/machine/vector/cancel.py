"""clusterlaunchcontrol (PTX ISA 9.7.13.17): a running cluster takes over one that has not started.

The response of 16 bytes is opaque to programs; here it has the coordinates of the first thread
block in its first three words, and whether there is one in the lowest bit of the fourth.
"""

from __future__ import annotations

import numpy as np

from dtypes import Array
from emulator.isa.ordinary.instruction import OrdinaryInstruction
from emulator.machine.vector import memory
from emulator.machine.vector.access import space_of
from emulator.machine.vector.compute import Step, guarded
from emulator.machine.vector.mbarriers import by_position, change, find_barriers
from emulator.machine.vector.memory import Who
from emulator.machine.vector.operands import addresses, reader, writer
from emulator.machine.vector.strand import Strand
from emulator.machine.vector.wave import Wave
from emulator.memory.mbarrier import Operation
from emulator.memory.windows import RANK_BITS
from emulator.ptx.program import Function, Statement, items_of

RESPONSE = 16
_OFFSET = (1 << RANK_BITS) - 1


def try_cancel(statement: Statement, function: Function) -> Step:
    """Each lane asks for the next cluster that has not started; the answer is there at once."""
    place = statement.operands["dst"]
    find, space = addresses(place, function), space_of(statement, place)
    barriers = find_barriers(statement, function)
    to_all = "multicast::cluster::all" in str(statement.instruction)

    def run(s: Strand, mask: Array | None) -> None:
        wave, at, signals = s.wave, find(s), by_position(barriers, s, mask)
        rows = wave.row(s)
        for i in range(len(s)) if mask is None else np.flatnonzero(mask).tolist():
            address = int(at[i if len(at) > 1 else 0])
            inside = address
            if space == "":
                inside = int(memory.to_shared(wave, np.array([address], np.uint64))[0])
            signal = int(signals[i if len(signals) > 1 else 0])
            _answer(wave, int(s.lanes[i]), int(rows[i]), inside & _OFFSET, signal, to_all)

    return guarded(statement, run)


def _answer(wave: Wave, lane: int, row: int, offset: int, signal: int, to_all: bool) -> None:
    response = np.zeros(4, np.uint32)
    found = wave.grid.cancel()
    if found is not None:
        response[:] = *found, 1
    words, size = wave.shared_bytes // 8, wave.cluster_size
    first = row // size * size
    for peer in range(first, first + size) if to_all else (row,):
        who = Who(wave, np.array([lane]), np.array([peer]))
        held, start = memory.bytes_at(
            who, "shared", np.array([offset], np.uint64), RESPONSE, alignment=RESPONSE, write=True
        )
        held[int(start[0]) : int(start[0]) + RESPONSE] = response.view(np.uint8)
        barrier = signal % words + peer * words if to_all else signal
        if wave.watch is not None:
            wave.watch.issued(lane, barrier)
        change(wave, np.array([barrier]), Operation(transactions=-RESPONSE))


def query_cancel(statement: Statement, function: Function) -> Step:
    """Whether a cluster was taken over, or the coordinates of its first thread block."""
    ins = statement.instruction
    assert isinstance(ins, OrdinaryInstruction)
    read = reader(statement.operands["a"], "b128", function)
    if "is_canceled" in str(ins):
        canceled = writer(statement.operands["p"], "pred", function)
        columns = [(3, canceled)]
    else:
        items = items_of(statement.operands["d"])
        axis = str(ins).partition("get_first_ctaid")[2].removeprefix("::")[:1]
        places = range(4) if len(items) > 1 else ["xyz".index(axis)]
        columns = [
            (place, writer(item, "b32", function))
            for place, item in zip(places, items, strict=True)
            if item is not None
        ]

    def run(s: Strand, mask: Array | None) -> None:
        words = np.ascontiguousarray(read(s)).view(np.uint32)
        for column, write in columns:
            found = words[:, column]
            write(s, found != 0 if "is_canceled" in str(ins) else found, mask)

    return guarded(statement, run)


STEPS = {
    "clusterlaunchcontrol.try_cancel": try_cancel,
    "clusterlaunchcontrol.query_cancel": query_cancel,
}
