"""Reference engine: mbarriers, words in shared memory and the threads that wait for their phases
(PTX ISA 9.7.13.15). The statements that change them are in `machine.shared.mbarriers`."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dtypes import Array
from emulator.machine.reference import memory
from emulator.machine.reference.operands import Read, addresses
from emulator.machine.reference.thread import Cluster, Thread
from emulator.machine.shared.failure import Failure
from emulator.machine.shared.operands import space_of, to_shared
from emulator.machine.shared.phases import SIZE, PhaseWait
from emulator.machine.shared.waiting import State
from emulator.memory import mbarrier
from emulator.memory.mbarrier import Barrier, Change
from emulator.memory.windows import RANK_BITS
from emulator.ptx.program import Statement


def barrier_of(statement: Statement) -> Read:
    """The barrier that a statement names; see `barrier_at`."""
    bound = statement.operands["mbarrier"]
    return barrier_at(addresses(bound), space_of(statement, bound))


def barrier_at(find: Read, space: str) -> Read:
    """The barrier at an address: the number of its word among those of the cluster.

    `space` is "cluster" where the address has the rank of a block, and "" for a generic one. Raises
    AccessError for what cannot be a barrier.
    """

    def barrier(thread: Thread) -> int:
        given = find(thread)
        if space == "":
            given = to_shared(given)
        elif space != "cluster":
            given = thread.block.rank << RANK_BITS | given & (1 << RANK_BITS) - 1
        memory.find(thread, "cluster", given, SIZE, SIZE, write=True, update=True)
        rank, inside = given >> RANK_BITS, given & (1 << RANK_BITS) - 1
        return (rank * thread.run.shared_bytes + inside) // SIZE

    return barrier


def words_of(thread: Thread, barrier: int) -> tuple[Array, int]:
    """The words of the block that has a barrier, and its place there."""
    rank, place = divmod(barrier, thread.run.shared_bytes // SIZE)
    return thread.cluster.blocks[rank].shared.view(np.uint64), place


def change(thread: Thread, barrier: int, by: Change) -> int:
    """Changes a barrier; the word before that. Who waits for the barrier may go on."""
    words, place = words_of(thread, barrier)
    word = int(words[place])
    held = Barrier.decode(word)
    if undefined := held.undefined(by):
        raise Failure("mbarrier", mbarrier.undefined_text(undefined, word))
    after = held.after(by)
    _put(thread, barrier, after.encode())
    ledger, place = ledger_of(thread, barrier)
    ledger[place] = mbarrier.noted(ledger[place], after.parity != held.parity, by.integers[2])
    wake(thread.cluster)
    return word


def ledger_of(thread: Thread, barrier: int) -> tuple[list[int], int]:
    """The ledger of the block that has a barrier, and its place there."""
    rank, place = divmod(barrier, thread.run.shared_bytes // SIZE)
    return thread.cluster.blocks[rank].ledger, place


def initialise(thread: Thread, barrier: int, made: Barrier) -> None:
    """Puts a new barrier at its place."""
    _put(thread, barrier, made.encode())
    ledger, place = ledger_of(thread, barrier)
    ledger[place] = 0


def _put(thread: Thread, barrier: int, word: int) -> None:
    """Writes the word of a barrier."""
    words, place = words_of(thread, barrier)
    words[place] = word
    thread.run.progress += 1
    thread.run.changes += 1


# --- waiting --------------------------------------------------------------------------------------


class Waiting(NamedTuple):
    """The phase that a thread waits for, and what is told when it goes on: whether that is over."""

    phase: PhaseWait
    finish: Callable[[Thread, bool], None]

    def over(self, thread: Thread) -> bool:
        words, place = words_of(thread, self.barrier)
        return bool(self.phase.is_over(int(words[place])))

    @property
    def barrier(self) -> int:
        return int(self.phase.barriers)


def wait(thread: Thread, phase: PhaseWait, finish: Callable[[Thread, bool], None]) -> None:
    """A thread stops, to go on behind its statement."""
    thread.stops(State.MBARRIER, thread.pc + 1, Waiting(phase, finish))
    thread.cluster.waiting.append(thread)


def waiting_of(thread: Thread) -> Waiting:
    """The wait of a thread that waits for a phase."""
    assert isinstance(thread.wait, Waiting)
    return thread.wait


def wake(cluster: Cluster) -> None:
    """Lets threads go on whose phase is over."""
    for thread in list(cluster.waiting):
        if waiting_of(thread).over(thread):
            _release(cluster, thread, True)


def time_out(cluster: Cluster) -> None:
    """Lets all that wait for a phase go on without it, as try_wait may."""
    for thread in list(cluster.waiting):
        _release(cluster, thread, False)


def _release(cluster: Cluster, thread: Thread, result: bool) -> None:
    cluster.waiting.remove(thread)
    waiting_of(thread).finish(thread, result)
    thread.state, thread.wait = State.READY, None
    thread.run.progress += result
