"""Reference engine: mbarriers, words in shared memory and the threads that wait for their phases
(PTX ISA 9.7.13.15). The statements that change them are in `machine.shared.mbarriers`."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dtypes import Array
from emulator.machine.reference import memory
from emulator.machine.reference.control import Next, StatementContext
from emulator.machine.reference.operands import Read, Write, addresses, reader, writer
from emulator.machine.reference.thread import Cluster, Thread
from emulator.machine.shared.failure import Failure
from emulator.machine.shared.mbarriers import SIZE, PhaseTest
from emulator.machine.shared.operands import space_of, to_shared
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
    ledger[place] = mbarrier.noted(ledger[place], after.parity != held.parity, by.transactions)
    wake(thread.cluster)
    return word


def ledger_of(thread: Thread, barrier: int) -> tuple[list[int], int]:
    """The ledger of the block that has a barrier, and its place there."""
    rank, place = divmod(barrier, thread.run.shared_bytes // SIZE)
    return thread.cluster.blocks[rank].ledger, place


def initialise(thread: Thread, barrier: int, count: int) -> None:
    """Makes a barrier that expects a count of arrivals."""
    _put(thread, barrier, Barrier.init(count).encode())
    ledger, place = ledger_of(thread, barrier)
    ledger[place] = 0


def _put(thread: Thread, barrier: int, word: int) -> None:
    """Writes the word of a barrier."""
    words, place = words_of(thread, barrier)
    words[place] = word
    thread.run.progress += 1
    thread.run.changes += 1


# --- waiting --------------------------------------------------------------------------------------


class PhaseWait(NamedTuple):
    """The phase that a thread waits for."""

    barrier: int
    #: a parity, or a token
    given: int
    test: PhaseTest
    write: Write

    def over(self, thread: Thread) -> bool:
        words, place = words_of(thread, self.barrier)
        return bool(self.test.is_over(int(words[place]), self.given))


def _wait_of(place: StatementContext) -> Callable[[Thread], PhaseWait]:
    statement = place.statement
    barrier, test = barrier_of(statement), PhaseTest(statement)
    read = reader(test.given, test.type)
    write = writer(statement.operands["p"], "pred", place.function)
    return lambda thread: PhaseWait(barrier(thread), read(thread), test, write)


def test_wait(place: StatementContext) -> Next:
    """test_wait: whether the phase is over now."""
    find = _wait_of(place)

    def run(thread: Thread) -> int:
        wait = find(thread)
        wait.write(thread, int(wait.over(thread)))
        return place.following

    return run


def try_wait(place: StatementContext) -> Next:
    """try_wait: goes on once the phase is over, or when nothing else can happen."""
    find = _wait_of(place)

    def run(thread: Thread) -> int | None:
        wait = find(thread)
        cluster = thread.cluster
        cluster.pending.before_wait(np.array([wait.barrier]))
        if wait.over(thread):
            wait.write(thread, 1)
            return place.following
        thread.stops(State.MBARRIER, place.following, wait)
        cluster.waiting.append(thread)
        return None

    return run


def wake(cluster: Cluster) -> None:
    """Lets threads go on whose phase is over."""
    for thread in list(cluster.waiting):
        if thread.wait.over(thread):
            _release(cluster, thread, True)


def time_out(cluster: Cluster) -> None:
    """Lets all that wait for a phase go on without it, as try_wait may."""
    for thread in list(cluster.waiting):
        _release(cluster, thread, False)


def _release(cluster: Cluster, thread: Thread, result: bool) -> None:
    cluster.waiting.remove(thread)
    thread.wait.write(thread, int(result))
    thread.state, thread.wait = State.READY, None
    thread.run.progress += result


FLOWS = {"mbarrier.test_wait": test_wait, "mbarrier.try_wait": try_wait}
