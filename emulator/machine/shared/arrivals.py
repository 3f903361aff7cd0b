"""All engines: who has arrived at the barriers of blocks that run together, and at those of their
clusters (PTX ISA 9.7.13.1, 9.7.13.4).

A warp has arrived once all its lanes that have not ended have; it counts as 32 threads however many
these are. A barrier without a number of threads is for all warps of the block, and warps that have
ended are not waited for. The phase of the barrier of a cluster is over when all threads of all its
blocks that have not ended have arrived.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from dtypes import Array
from emulator.layout.lanemap import WARP
from emulator.machine.shared.failure import Failure
from emulator.machine.shared.issuing import Arrival

#: barriers of a block
BARRIERS = 16

Lanes = NDArray[np.int64]
Bits = NDArray[np.uint32]
#: lets lanes of a mask, None: all, wait at the barrier of a number, if they do
Stop = Callable[[Array | None, int], None]


class Warps(NamedTuple):
    """The warps that lanes belong to."""

    #: numbers of the warps, ascending, and where the lanes of each start among the lanes
    numbers: Lanes
    starts: Lanes
    #: bit i is set where lane i of the warp is one of them
    bits: Bits

    @classmethod
    def of(cls, lanes: Lanes) -> Warps:
        warp = lanes // WARP
        starts = np.flatnonzero(np.diff(warp, prepend=-1))
        bits = np.bitwise_or.reduceat(np.uint32(1) << (lanes % WARP).astype(np.uint32), starts)
        return cls(warp[starts], starts, bits)


def bits_of(lanes: Array) -> Bits:
    """A mask of lanes, 32 bits for each warp."""
    return np.packbits(lanes, bitorder="little").view(np.uint32)


class MeetingWatch(Protocol):
    """Checks of barriers and mbarriers: who has seen what of whom."""

    @property
    def arrived(self) -> Mapping[int, Collection[int]]:
        """Of an mbarrier, by its place: the lanes that have arrived in its phase."""

    def last_arrival(self, place: int) -> str: ...
    def arrive(self, lanes: Lanes, barrier: int, *, waits: bool, pc: int) -> None: ...
    def complete(self, rows: Lanes, barrier: int) -> None: ...
    def wait_at_cluster(self, lanes: Lanes) -> None: ...
    def cluster_phase_over(self, clusters: Lanes) -> None: ...


class ArrivalWatch(Protocol):
    """Checks of barriers, where a launch brings some."""

    @property
    def sync(self) -> MeetingWatch: ...
    def cluster_arrive(self, lanes: Lanes) -> None: ...


class Residents(Protocol):
    """Thread blocks that run together, a wave or a cluster. Their lanes are numbered block after
    block, each block in whole warps."""

    lanes_per_cta: int
    cluster_size: int
    #: lanes that have not ended
    alive: NDArray[np.bool_]

    @property
    def watch(self) -> ArrivalWatch | None: ...

    def alive_bits(self, warps: Lanes) -> Bits:
        """For each warp the lanes that have not ended."""

    def pass_barrier(self, rows: Lanes, number: int, votes: Array) -> None:
        """Lets those go on who wait at a barrier of blocks. `votes`: of each block how many have
        voted, and how many of them true."""

    def pass_cluster(self) -> None:
        """Lets those go on who wait at the barriers of clusters, as far as they may."""


class BlockBarriers:
    """The barriers of the blocks; arrays are ``(blocks, 16)``."""

    def __init__(self, here: Residents) -> None:
        self._here = here
        self._warps = here.lanes_per_cta // WARP
        self._blocks = len(here.alive) // here.lanes_per_cta
        #: anybody has ever arrived
        self._used = False

    @cached_property
    def arrived(self) -> Lanes:
        """Threads that have arrived, in whole warps."""
        return np.zeros((self._blocks, BARRIERS), np.int64)

    @cached_property
    def expected(self) -> Lanes:
        """Threads that are expected; 0: all."""
        return np.zeros_like(self.arrived)

    @cached_property
    def partly(self) -> Bits:
        """Lanes of warps that have arrived in part."""
        return np.zeros((self._blocks * self._warps, BARRIERS), np.uint32)

    @cached_property
    def _votes(self) -> Lanes:
        """Of bar.red: lanes that have voted, and those that voted true."""
        return np.zeros((self._blocks, BARRIERS, 2), np.int64)

    @property
    def is_idle(self) -> bool:
        """True if nobody has arrived anywhere: most waves of native code need not look."""
        return not (self._used and (self.arrived.any() or self.partly.any()))

    def arrive(self, lanes: Lanes, warps: Warps, arrival: Arrival, pc: int, stop: Stop) -> None:
        """Lanes, ascending, arrive by the statement at `pc`, each at a barrier of its own; `warps`
        are theirs. Raises Failure where they cannot."""
        self._used = True
        numbers, threads = np.atleast_1d(arrival.number), np.atleast_1d(arrival.threads)
        _check_barrier(numbers, threads)
        keys = numbers + (threads << 8)
        if self._here.watch is None and self._too_many(lanes, numbers, threads):
            # Warp by warp, as on a GPU: those that come when the barrier is complete arrive at its
            # next phase. Which warps these are is chance, and a mistake that checks report.
            keys = keys + (lanes // WARP % self._warps << 40)
        for key in np.unique(keys).tolist():
            number, mask = key & 255, keys == key
            some, count = None if mask.all() else mask, key >> 8 & 0xFFFFFFFF
            rows = self._arrive(lanes, warps, arrival, pc, number, count, some)
            stop(some, number)
            self._complete(rows, number)

    def _too_many(self, lanes: Lanes, numbers: Array, threads: Array) -> bool:
        """True if more lanes of a block may arrive together than a barrier still waits for."""
        if not threads.any():
            return False
        rows = lanes // self._here.lanes_per_cta
        here = self.arrived[rows, numbers] + np.bincount(rows)[rows]
        return bool((here > np.where(threads > 0, threads, len(lanes))).any())

    def _arrive(
        self,
        lanes: Lanes,
        warps: Warps,
        arrival: Arrival,
        pc: int,
        number: int,
        threads: int,
        mask: Array | None,
    ) -> Lanes:
        """The lanes of a mask, or all, arrive at one barrier; their blocks."""
        which = slice(None) if mask is None else np.flatnonzero(mask)
        mine, rows = lanes[which], lanes // self._here.lanes_per_cta
        if mask is not None:
            warps = Warps.of(mine)
        blocks = np.unique(warps.numbers // self._warps)
        others = self.expected[blocks, number]
        if (wrong := (self.arrived[blocks, number] > 0) & (others != threads)).any():
            here = np.isin(rows, blocks[wrong])
            first = int(np.argmax(here if mask is None else here & mask))
            reason = (
                f"barrier {number} is for {threads or 'all'} threads here, and for "
                f"{others[wrong][0] or 'all'} where others have arrived"
            )
            raise Failure("barrier", reason, first)
        if arrival.vote is not None:
            true = np.broadcast_to(arrival.vote, lanes.shape)[which].astype(np.int64)
            np.add.at(self._votes[:, number], rows[which], np.stack([np.ones_like(true), true], 1))
        if self._here.watch is not None:
            self._here.watch.sync.arrive(mine, number, waits=arrival.waits, pc=pc)
        self._count(warps.numbers, warps.bits | self.partly[warps.numbers, number], number)
        self.expected[blocks, number] = threads
        return blocks

    def _count(self, warps: Lanes, bits: Bits, number: int | slice) -> None:
        """Counts the warps of which all lanes that have not ended have arrived."""
        whole = (bits != 0) & (self._here.alive_bits(warps) == bits.T).T
        self.partly[warps, number] = np.where(whole, 0, bits)
        np.add.at(self.arrived[:, number], warps // self._warps, WARP * whole)

    def lanes_ended(self, lanes: Lanes) -> None:
        """Lanes have ended: what waited for them may be complete."""
        if self.is_idle:
            return
        warps = np.unique(lanes // WARP)
        self._count(warps, self.partly[warps], slice(None))
        blocks = np.unique(warps // self._warps)
        for number in np.flatnonzero(self.arrived[blocks].any(0)).tolist():
            self._complete(blocks, number)

    def alive(self, blocks: Lanes) -> Lanes:
        """Threads of the warps of blocks that have not ended, 32 for each."""
        every = self._here.alive.reshape(self._blocks, self._warps, WARP)
        return np.asarray(every[blocks].any(-1).sum(-1) * WARP)

    def _complete(self, blocks: Lanes, number: int) -> None:
        """Lets go on whoever waits at a barrier that all have reached."""
        wanted, reached = self.expected[blocks, number], self.arrived[blocks, number]
        wanted = np.where(wanted > 0, wanted, self.alive(blocks))
        done = blocks[(reached >= wanted) & (reached > 0)]
        if not done.size:
            return
        if (reached > wanted).any():
            count, most = reached.max(), wanted[reached > wanted][0]
            reason = f"{count} threads arrived at barrier {number}, which is for {most}"
            raise Failure("barrier", reason)
        if self._here.watch is not None:
            self._here.watch.sync.complete(done, number)
        votes = self._votes[:, number].copy()
        self.arrived[done, number] = 0
        self._votes[done, number] = 0
        self._here.pass_barrier(done, number, votes)


def _check_barrier(numbers: Array, threads: Array) -> None:
    """Raises Failure for a barrier that lanes name which is none, or counts no whole warps."""
    wrong = np.atleast_1d((numbers >= BARRIERS) | (threads % WARP != 0))
    if wrong.any():
        first = int(np.argmax(wrong))
        number, count = (int(x[min(first, len(x) - 1)]) for x in (numbers, threads))
        reason = f"a barrier counts threads in whole warps; got {count}"
        if number >= BARRIERS:
            reason = f"there are barriers 0 to {BARRIERS - 1}; got {number}"
        raise Failure("barrier", reason, first)


class ClusterBarriers:
    """The barriers of the clusters. A thread arrives, does other things, and waits."""

    def __init__(self, here: Residents) -> None:
        self._here, self._lanes = here, here.lanes_per_cta * here.cluster_size
        self._used = False
        self._phase = np.zeros(len(here.alive) // self._lanes, np.int64)

    @cached_property
    def arrived(self) -> Lanes:
        """Of each lane the phase that it has arrived in; -1: it has not."""
        return np.full(len(self._here.alive), -1, np.int64)

    def of_lanes(self, lanes: Lanes) -> Lanes:
        """The cluster of each lane."""
        return lanes // self._lanes

    def arrive(self, lanes: Lanes) -> None:
        """Lanes arrive; raises Failure for one that has not waited since it did so last."""
        self._used, again = True, self.arrived[lanes] >= 0
        if again.any():
            reason = "barrier.cluster.arrive twice without a wait between them"
            raise Failure("cluster barrier", reason, int(np.argmax(again)))
        clusters = self.of_lanes(lanes)
        self.arrived[lanes] = self._phase[clusters]
        if self._here.watch is not None:
            self._here.watch.cluster_arrive(lanes)
        self._complete(np.unique(clusters))

    def lacking(self, lanes: Lanes) -> Array:
        """True where the phase that a lane has arrived in is not over. Raises Failure for lanes
        that have not arrived."""
        early = self.arrived[lanes] < 0
        if early.any():
            reason = "barrier.cluster.wait without an arrive before it"
            raise Failure("cluster barrier", reason, int(np.argmax(early)))
        return np.asarray(self._phase[self.of_lanes(lanes)] <= self.arrived[lanes])

    def passed(self, lanes: Lanes) -> None:
        """Lanes know that the phase in which they have arrived is over."""
        self.arrived[lanes] = -1
        if self._here.watch is not None:
            self._here.watch.sync.wait_at_cluster(lanes)

    def lanes_ended(self, lanes: Lanes) -> None:
        """Threads that have ended are not waited for."""
        if self._used:
            self._complete(np.unique(self.of_lanes(lanes)))

    def _complete(self, clusters: Lanes) -> None:
        """Ends the phase of clusters in which all have arrived."""
        arrived = (self.arrived >= 0) & (self.arrived == np.repeat(self._phase, self._lanes))
        missing = (self._here.alive & ~arrived).reshape(-1, self._lanes).any(1)
        some = arrived.reshape(-1, self._lanes).any(1)
        done = clusters[~missing[clusters] & some[clusters]]
        if done.size:
            self._phase[done] += 1
            if self._here.watch is not None:
                self._here.watch.sync.cluster_phase_over(done)
            self._here.pass_cluster()
