"""Reference engine: barriers of a thread block, and that of a cluster (PTX ISA 9.7.13.1, 9.7.13.4).

A warp has arrived at a barrier once all its threads that have not ended have. A barrier without a
number of threads does not wait for warps that have ended. A phase of the barrier of a cluster is
over when all its threads that have not ended arrived.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from emulator.machine.reference.thread import WARP, Barrier, Block, Cluster, Thread, Votes
from emulator.machine.shared.barriers import (
    arrives_twice,
    is_wrong,
    other_count,
    too_many,
    waits_early,
    wrong_barrier,
)
from emulator.machine.shared.waiting import State


class Waiting(NamedTuple):
    """The barrier that a thread waits at, and what is told the votes when it goes on."""

    number: int
    finish: Callable[[Thread, Votes], None] | None


def arrive(thread: Thread, number: int, threads: int, vote: int | None) -> None:
    """A thread arrives at a barrier of its block; one that waits has been stopped before."""
    if is_wrong(number, threads):
        raise wrong_barrier(number, threads)
    barrier, warp = thread.block.barriers[number], thread.warp.number
    if barrier.arrived and barrier.expected != threads:
        raise other_count(number, threads, barrier.expected)
    barrier.expected = threads
    if vote is not None:
        barrier.votes = Votes(barrier.votes.given + 1, barrier.votes.true + vote)
    barrier.partly[warp] = barrier.partly.get(warp, 0) | 1 << thread.lane
    _count(thread.block, number, warp)


def thread_ended(thread: Thread) -> None:
    """Nobody waits for a thread any more."""
    warp = thread.warp.number
    for number, barrier in enumerate(thread.block.barriers):
        if warp in barrier.partly:
            _count(thread.block, number, warp)
        elif barrier.arrived:
            _complete(thread.block, number)
    _complete_cluster(thread.cluster)


def _count(block: Block, number: int, warp: int) -> None:
    """Counts a warp all of whose threads have arrived."""
    barrier = block.barriers[number]
    if barrier.partly[warp] == block.warps[warp].alive_mask:
        del barrier.partly[warp]
        barrier.arrived += WARP
        _complete(block, number)


def _complete(block: Block, number: int) -> None:
    """Lets go on who waits at a barrier that all have reached."""
    barrier = block.barriers[number]
    wanted = barrier.expected or WARP * sum(bool(warp.alive) for warp in block.warps)
    if barrier.arrived < wanted:
        return
    if barrier.arrived > wanted:
        raise too_many(number, barrier.arrived, wanted)
    block.barriers[number] = Barrier()
    for thread in block.threads:
        held = thread.wait
        if isinstance(held, Waiting) and held.number == number:
            thread.goes_on()
            if held.finish is not None:
                held.finish(thread, barrier.votes)


# --- clusters -------------------------------------------------------------------------------------


def arrive_in_cluster(thread: Thread) -> None:
    cluster = thread.cluster
    if thread in cluster.arrived:
        raise arrives_twice()
    cluster.arrived[thread] = cluster.phase
    _complete_cluster(cluster)


def wait_in_cluster(thread: Thread) -> None:
    """A thread that has arrived stops, unless the phase is over."""
    cluster = thread.cluster
    if thread not in cluster.arrived:
        raise waits_early()
    if cluster.arrived[thread] == cluster.phase:
        thread.stops(State.CLUSTER, thread.pc + 1)
    else:
        del cluster.arrived[thread]


def _complete_cluster(cluster: Cluster) -> None:
    """Ends the phase if all have arrived."""
    if cluster.phase not in cluster.arrived.values():
        return
    alive = [thread for thread in cluster.threads if thread.state is not State.ENDED]
    if any(cluster.arrived.get(thread) != cluster.phase for thread in alive):
        return
    cluster.phase += 1
    for thread in alive:
        if thread.state is State.CLUSTER:
            del cluster.arrived[thread]
            thread.goes_on()
