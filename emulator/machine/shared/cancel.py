"""clusterlaunchcontrol (PTX ISA 9.7.13.17): a running cluster takes over one that has not started.

The response of 16 bytes is opaque to programs; here it has the coordinates of the first thread
block in its first three words, and whether there is one in the lowest bit of the fourth.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from emulator.machine.shared.issuing import Issuer, Make, Operands, Run, in_block, same_barrier
from emulator.machine.shared.operands import ordinary
from emulator.memory.mbarrier import Change
from emulator.ptx.program import Bound, Statement, items_of

RESPONSE = 16
#: the word of a response that says whether it has a cluster
_FOUND = 3
_AXES = "xyz"


def try_cancel(operands: Operands) -> Run:
    """A thread asks for the next cluster that has not started; the answer is there at once."""
    find, barrier = operands.shared_offset("dst"), operands.barrier()
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


def queried(statement: Statement) -> Sequence[tuple[int, Bound | None]]:
    """query_cancel: which words of the response go where; a predicate says whether one is not 0."""
    if "p" in statement.operands:
        return [(_FOUND, statement.operands["p"])]
    items = items_of(statement.operands["d"])
    axis = ordinary(statement).modifiers.get("axis", "").rpartition("::")[2]
    words = [_AXES.index(axis)] if axis else range(len(items))
    return list(zip(words, items, strict=True))


EACH: dict[str, Make] = {"clusterlaunchcontrol.try_cancel": try_cancel}
