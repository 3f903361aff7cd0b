"""Statements of mbarriers (PTX ISA 9.7.13.15): words in shared memory, and who waits for them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from emulator.machine.reference import memory
from emulator.machine.reference.access import space_of
from emulator.machine.reference.compute import Run, guarded
from emulator.machine.reference.control import Next, Place
from emulator.machine.reference.operands import Read, Write, addresses, reader, writer
from emulator.machine.reference.thread import Cluster, State, Thread
from emulator.machine.shared.failure import Failure
from emulator.memory import mbarrier
from emulator.memory.mbarrier import MAX_COUNT, Barrier, Operation
from emulator.memory.windows import RANK_BITS
from emulator.ptx.program import Function, Statement

SIZE = 8


def barrier_of(statement: Statement, space: str | None = None) -> Read:
    """The address of a barrier in shared memory of the cluster, with the rank of its block.

    `space` is "cluster" where the barrier is that of the block that an asynchronous copy goes to.
    """
    bound = statement.operands["mbarrier"]
    find = addresses(bound)
    if space is None:
        space = space_of(statement, bound)

    def address(thread: Thread) -> int:
        given = find(thread)
        if space == "":
            return memory.to_shared(given)
        if space == "cluster":
            return given
        return thread.block.rank << RANK_BITS | given & (1 << RANK_BITS) - 1

    return address


def change(thread: Thread, address: int, operation: Operation) -> int:
    """One operation on a barrier; the word before it. Who waits for the barrier may go on."""
    place = memory.find(thread, "cluster", address, SIZE, SIZE, write=True)
    word = int.from_bytes(place, "little")
    held = Barrier.decode(word)
    if undefined := held.undefined(operation):
        raise Failure("mbarrier", mbarrier.undefined_text(undefined, word))
    memory.put(thread, place, held.after(operation).encode().to_bytes(SIZE, "little"))
    wake(thread.cluster)
    return word


# --- init, arrive, expect_tx, … -------------------------------------------------------------------


def initialise(statement: Statement, function: Function) -> Run:
    address, count = barrier_of(statement), reader(statement.operands["count"], "u32")

    def run(thread: Thread) -> None:
        given = count(thread)
        if not 1 <= given <= MAX_COUNT:
            raise Failure("mbarrier", f"a count is 1 … {MAX_COUNT}; got {given}")
        memory.store(thread, "cluster", address(thread), SIZE, Barrier.init(given).encode())

    return guarded(statement, run)


def arrive(statement: Statement, function: Function) -> Run:
    """arrive, arrive_drop, expect_tx, complete_tx, and arrivals that expect bytes."""
    words, operands = str(statement.instruction).split("."), statement.operands
    address = barrier_of(statement)
    drops, completes = "arrive_drop" in words, "noComplete" not in words
    arrives = drops or "arrive" in words
    count = reader(operands["count"], "u32") if "count" in operands else None
    moved = reader(operands["bytes"], "u32") if "bytes" in operands else None
    sign = -1 if "complete_tx" in words else 1
    bound = operands.get("d")
    write = writer(bound, "b64", function) if bound is not None else None

    def run(thread: Thread) -> None:
        arrivals = 0 if not arrives else 1 if count is None else count(thread)
        if arrives and not arrivals:
            raise Failure("mbarrier", "a count of arrivals is not 0")
        transactions = 0 if moved is None else sign * moved(thread)
        operation = Operation(arrivals, arrivals if drops else 0, transactions, completes)
        word = change(thread, address(thread), operation)
        if write is not None:
            write(thread, mbarrier.token(word, moved is not None))

    return guarded(statement, run)


def pending_count(statement: Statement, function: Function) -> Run:
    read = reader(statement.operands["state"], "b64")
    write = writer(statement.operands["d"], "u32", function)
    return guarded(statement, lambda thread: write(thread, mbarrier.pending_count(read(thread))))


def invalidate(statement: Statement, function: Function) -> Run:
    """mbarrier.inval: the barrier must be there; its word stays."""
    address = barrier_of(statement)

    def run(thread: Thread) -> None:
        memory.find(thread, "cluster", address(thread), SIZE, SIZE, write=True)

    return guarded(statement, run)


# --- waiting --------------------------------------------------------------------------------------


class PhaseWait(NamedTuple):
    """What a thread waits for: the phase of a parity, or of a token, of a barrier."""

    address: int
    given: int
    by_parity: bool
    write: Write

    def over(self, thread: Thread) -> bool:
        word = memory.load(thread, "cluster", self.address, SIZE)
        over = mbarrier.parity_over if self.by_parity else mbarrier.phase_over
        return bool(over(word, self.given))

    def key(self, thread: Thread) -> int:
        return key_of(thread, self.address)


def key_of(thread: Thread, address: int) -> int:
    """Number of the barrier's word among those of the cluster, as `Pending` counts them."""
    rank, inside = address >> RANK_BITS, address & (1 << RANK_BITS) - 1
    return (rank * thread.run.shared_bytes + inside) // SIZE


def _wait_of(place: Place) -> tuple[Read, Read, bool, Write]:
    statement = place.statement
    by_parity = "parity" in statement.signature
    given = statement.operands["parity" if by_parity else "state"]
    read = reader(given, "u32" if by_parity else "b64")
    write = writer(statement.operands["p"], "pred", place.function)
    return barrier_of(statement), read, by_parity, write


def test_wait(place: Place) -> Next:
    """test_wait: whether the phase is over now."""
    address, given, by_parity, write = _wait_of(place)

    def run(thread: Thread) -> int:
        wait = PhaseWait(address(thread), given(thread), by_parity, write)
        write(thread, int(wait.over(thread)))
        return place.following

    return run


def try_wait(place: Place) -> Next:
    """try_wait: goes on once the phase is over, or when nothing else can happen."""
    address, given, by_parity, write = _wait_of(place)

    def run(thread: Thread) -> int | None:
        wait = PhaseWait(address(thread), given(thread), by_parity, write)
        cluster = thread.cluster
        cluster.pending.before_wait(np.array([wait.key(thread)]))
        if wait.over(thread):
            write(thread, 1)
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


EACH = {
    "mbarrier.init": initialise,
    "mbarrier.inval": invalidate,
    "mbarrier.arrive": arrive,
    "mbarrier.arrive_drop": arrive,
    "mbarrier.expect_tx": arrive,
    "mbarrier.complete_tx": arrive,
    "mbarrier.pending_count": pending_count,
}
FLOWS = {"mbarrier.test_wait": test_wait, "mbarrier.try_wait": try_wait}
