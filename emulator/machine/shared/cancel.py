"""All engines: clusterlaunchcontrol, by which a running cluster takes over one that has not started
(PTX ISA 9.7.13.17).

The response of 16 bytes is opaque to programs; here it has the coordinates of the first thread
block in its first three words, and whether there is one in the lowest bit of the fourth.
"""

from __future__ import annotations

import numpy as np

from emulator.machine.shared.issuing import (
    Executor,
    Issuer,
    LaneOperands,
    Make,
    MakeAtOnce,
    Operands,
    Run,
    RunAtOnce,
    in_block,
    same_barrier,
    shared_offset,
)
from emulator.machine.shared.operands import Words
from emulator.memory.mbarrier import Change
from emulator.ptx.program import items_of

RESPONSE = 16
#: the word of a response that says whether it has a cluster
_FOUND = 3
_AXES = "xyz"


def try_cancel(operands: Operands) -> Run:
    """A thread asks for the next cluster that has not started; the answer is there at once."""
    find, barrier = shared_offset(operands, "dst"), operands.barrier()
    to_all = bool(operands.modifier("multicast"))

    def run(who: Issuer) -> None:
        offset, signal = find(who), barrier(who)
        first = who.take_cluster()
        words = (0, 0, 0, 0) if first is None else (*first, 1)
        own = who.cluster.index(who.row)
        for rank in range(len(who.cluster)) if to_all else (own,):
            place = in_block(who, offset, rank, RESPONSE, RESPONSE)
            place.bytes[:] = np.array(words, np.uint32).view(np.uint8)
            signalled = same_barrier(who, signal, rank) if to_all else signal
            if who.watch is not None:
                who.watch.issued(who.lane, signalled)
            who.advance()
            who.change(signalled, Change(transactions=-RESPONSE))

    return run


def query_cancel(operands: LaneOperands) -> RunAtOnce:
    """The value: 1 if a cluster was cancelled, or a coordinate of its first thread block."""
    read, given = operands.word("a", "b128"), operands.statement.operands
    if is_flag := "p" in operands:
        writes = [(_FOUND, operands.result(given["p"], "pred"))]
    else:
        items, axis = items_of(given["d"]), operands.modifier("axis").rpartition("::")[2]
        words = [_AXES.index(axis)] if axis else range(len(items))
        writes = [(i, operands.result(x, "b32")) for i, x in zip(words, items, strict=True)]

    def run(who: Executor) -> None:
        response = read(who)
        for place, write in writes:
            found = _word_of(response, place)
            write(who, found != 0 if is_flag else found)

    return run


def _word_of(response: Words, place: int) -> Words:
    """One of the four words of a response, which lanes hold as two of 64 bits each."""
    if isinstance(response, int):
        return response >> 32 * place & 0xFFFF_FFFF
    return np.ascontiguousarray(response).view(np.uint32)[:, place]


EACH: dict[str, Make] = {"clusterlaunchcontrol.try_cancel": try_cancel}
AT_ONCE: dict[str, MakeAtOnce] = {"clusterlaunchcontrol.query_cancel": query_cancel}
