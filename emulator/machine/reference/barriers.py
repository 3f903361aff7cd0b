"""Barriers of a thread block, 16 of them, and that of a cluster (PTX ISA 9.7.13.1, 9.7.13.4)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from emulator.machine.failure import Failure
from emulator.machine.reference.thread import State, Thread

if TYPE_CHECKING:
    from emulator.machine.reference.block import Block, Cluster

BARRIERS, WARP = 16, 32


class Votes(NamedTuple):
    """What threads said at a bar.red."""

    given: int = 0
    true: int = 0


#: takes what a bar.red gave its thread
Finish = Callable[[Thread, Votes], None]


@dataclass
class Barrier:
    """One barrier; `arrived` counts whole warps, 32 threads each however many they have."""

    arrived: int = 0
    #: threads that are expected; 0: all of the block that have not ended
    expected: int = 0
    votes: Votes = field(default_factory=Votes)


class BlockBarriers:
    """The barriers of a block.

    A warp has arrived once all its threads that have not ended have. A barrier without a number of
    threads does not wait for warps that have ended.
    """

    def __init__(self, block: Block) -> None:
        self.block = block
        self.barriers = [Barrier() for _ in range(BARRIERS)]
        #: (barrier, warp) -> lanes that have arrived, of warps that are not complete
        self.partly: dict[tuple[int, int], int] = {}

    def arrive(self, thread: Thread, number: int, threads: int, vote: int | None) -> None:
        """A thread arrives; one that waits has been stopped before, its wait the number and what
        to do when it goes on."""
        if not 0 <= number < BARRIERS:
            raise Failure("barrier", f"there are barriers 0 to 15; got {number}")
        if threads % WARP:
            raise Failure("barrier", f"a barrier counts threads in whole warps; got {threads}")
        barrier = self.barriers[number]
        if barrier.arrived and barrier.expected != threads:
            raise Failure(
                "barrier",
                f"barrier {number} is for {threads or 'all'} threads here, and for "
                f"{barrier.expected or 'all'} where others have arrived",
            )
        barrier.expected = threads
        if vote is not None:
            barrier.votes = Votes(barrier.votes.given + 1, barrier.votes.true + vote)
        key = number, thread.warp.number
        self.partly[key] = self.partly.get(key, 0) | 1 << thread.lane
        self._count(*key)

    def thread_ended(self, thread: Thread) -> None:
        """Nobody waits for a thread any more."""
        warp = thread.warp.number
        for number, barrier in enumerate(self.barriers):
            if (number, warp) in self.partly:
                self._count(number, warp)
            elif barrier.arrived:
                self._complete(number)

    def _count(self, number: int, warp: int) -> None:
        """Counts a warp all of whose threads have arrived."""
        if self.partly[number, warp] == self.block.warps[warp].alive_mask:
            del self.partly[number, warp]
            self.barriers[number].arrived += WARP
            self._complete(number)

    def _complete(self, number: int) -> None:
        """Lets go on who waits at a barrier that all have reached."""
        barrier = self.barriers[number]
        wanted = barrier.expected or WARP * sum(bool(w.alive) for w in self.block.warps)
        if barrier.arrived < wanted:
            return
        if barrier.arrived > wanted:
            raise Failure(
                "barrier",
                f"{barrier.arrived} threads arrived at barrier {number}, which is for {wanted}",
            )
        self.barriers[number] = Barrier()
        for thread in self.block.threads:
            if thread.state is State.BARRIER and thread.wait[0] == number:
                finish: Finish | None = thread.wait[1]
                thread.goes_on()
                if finish is not None:
                    finish(thread, barrier.votes)


class ClusterBarrier:
    """The barrier of a cluster: a phase is over when all threads that have not ended arrived."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.phase = 0
        #: the phase that threads which have not waited since arrived in
        self.arrived: dict[Thread, int] = {}

    def arrive(self, thread: Thread) -> None:
        if thread in self.arrived:
            raise Failure(
                "cluster barrier", "barrier.cluster.arrive twice without a wait between them"
            )
        self.arrived[thread] = self.phase
        self.complete()

    def wait(self, thread: Thread, pc: int) -> int | None:
        """Where the thread goes on; None where it waits."""
        if thread not in self.arrived:
            raise Failure("cluster barrier", "barrier.cluster.wait without an arrive before it")
        if self.arrived[thread] == self.phase:
            thread.stops(State.CLUSTER, pc)
            return None
        del self.arrived[thread]
        return pc

    def complete(self) -> None:
        """Ends the phase if all have arrived."""
        if self.phase not in self.arrived.values():
            return
        alive = [t for t in self.cluster.threads if t.state is not State.ENDED]
        if any(self.arrived.get(thread) != self.phase for thread in alive):
            return
        self.phase += 1
        for thread in alive:
            if thread.state is State.CLUSTER:
                del self.arrived[thread]
                thread.goes_on()
