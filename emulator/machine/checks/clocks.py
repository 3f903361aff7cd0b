"""Vector clocks: the accesses of other threads that come before a thread's next step.

Time is counted in events, one for each statement that a strand executes. For two threads the last
event of the one is kept that the other knows of; what happened up to then is ordered before what
the other does from now on, what happened later is not. Knowledge spreads by synchronisation alone
and never by the order in which threads happened to run.

It is kept on three levels, because nearly all of it is of the first two: what all threads of a
block know of each other (since its last barrier), what all lanes of a warp do (since the last
bar.warp.sync), and a matrix of threads by threads of a cluster for everything else, which is made
when it is first needed.

Besides plain accesses a thread has others that are complete later than they are issued. Each sort
is an *aspect*, with events of its own: see `Aspect`.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from emulator.errors import UnsupportedError
from emulator.machine.vector.strand import WARP, Lanes

if TYPE_CHECKING:
    from emulator.machine.vector.wave import Wave

Events = NDArray[np.int32]
Bools = NDArray[np.bool_]
#: elements that a matrix may have
_MOST_ELEMENTS = 1 << 28
#: a row is updated as a whole where more than one in so many of its elements is new
_FEW = 16
#: mbarriers of a cluster that there is room for at first
_BARRIERS = 16


class Aspect(IntEnum):
    """An aspect of a thread's actions that others know up to some event."""

    #: its ordinary accesses
    PLAIN = 0
    #: those that a fence.proxy.async stands behind, for the asynchronous proxy
    PROXY = 1
    #: its cp.async: complete
    COPIES = 2
    #: its bulk copies of a group: complete, or their sources read
    BULK = 3
    BULK_READ = 4
    #: its wgmma: complete
    WGMMA = 5
    #: its ordinary reads alone: they are over when their values are passed on by a shuffle
    READS = 6


_COUNT = len(Aspect)
#: what a thread knows of itself without more
_OWN = np.array([Aspect.PLAIN, Aspect.READS])


class Clocks:
    """The knowledge of all lanes of a wave."""

    def __init__(self, wave: Wave) -> None:
        self.wave = wave
        lanes, blocks = wave.lanes, len(wave.ctas)
        self.per_block = wave.lanes_per_cta
        self.per_cluster = wave.lanes_per_cta * wave.cluster_size
        #: (aspect, lane): what the lane itself, its warp, its block know; PLAIN of the lane itself
        #: is always now
        self.own = np.zeros((_COUNT, lanes), np.int32)
        self.warp = np.zeros((_COUNT, lanes), np.int32)
        self.block = np.zeros((_COUNT, lanes), np.int32)
        #: PLAIN of all lanes of the block, or of the warp, up to which a fence of the lane stands
        self.fenced_block = np.zeros(lanes, np.int32)
        self.fenced_warp = np.zeros(lanes, np.int32)
        self.full = np.zeros(blocks, np.int32)
        #: (aspect, cluster, lane of it, lane of it or mbarrier)
        self.matrix: Events | None = None
        #: aspects that it knows anything of
        self.in_matrix: Bools = np.zeros(_COUNT, np.bool_)
        self._columns: dict[tuple[int, int], int] = {}
        #: called before threads learn anything, but by a barrier of all threads of their block
        self.before_news: Callable[[], None] = lambda: None

    def warpgroup(self, lanes: Lanes) -> Lanes:
        """The first lanes of the warpgroups of lanes: four warps each, counted in the block."""
        return lanes - lanes % self.per_block % (4 * WARP)

    # --- asking ---

    def ordered(self, aspect: Aspect, lanes: Lanes, others: Lanes, events: Events) -> Bools:
        """For each access of `others`, whether it comes before what the lanes do now.

        All are lanes of the wave, ``(n,)``.
        """
        known = events <= self.block[aspect, others]
        known &= lanes // self.per_block == others // self.per_block
        left = np.flatnonzero(~known)
        if not left.size:
            return known
        mine, theirs, when = lanes[left], others[left], events[left]
        same = mine == theirs
        if aspect in (Aspect.PLAIN, Aspect.READS):
            known[left] = same
        else:
            known[left] = same & (when <= self.own[aspect, theirs])
        same_warp = mine // WARP == theirs // WARP
        known[left] |= same_warp & (when <= self.warp[aspect, theirs])
        if aspect is Aspect.WGMMA:
            # It is the warpgroup's, and known by its first lane; all its lanes wait for it.
            same_group = self.warpgroup(mine) == self.warpgroup(theirs)
            known[left] |= same_group & (when <= self.own[aspect, mine])
        if aspect is Aspect.PROXY:
            same_block = mine // self.per_block == theirs // self.per_block
            known[left] |= same_block & (when <= self.fenced_block[mine])
            known[left] |= same_warp & (when <= self.fenced_warp[mine])
        if self.matrix is not None:
            cluster, column = np.divmod(theirs, self.per_cluster)
            own, row = np.divmod(mine, self.per_cluster)
            held = self.matrix[aspect, own, row, column]
            known[left] |= (cluster == own) & (when <= held)
        return known

    def known_in_warp(self, aspect: Aspect, lanes: Lanes, first: Lanes, events: Events) -> Events:
        """For each lane which lanes of a warp of its cluster, by the first one, it knows of up to
        an event, as a mask, by more than barriers of its block and its warp."""
        if self.matrix is None:
            return np.zeros(len(lanes), np.int32)
        own, row = np.divmod(lanes, self.per_cluster)
        by_warp = self.matrix[aspect, ..., : self.per_cluster]
        by_warp = by_warp.reshape(*by_warp.shape[:-1], -1, WARP)
        return _mask(by_warp[own, row, first % self.per_cluster // WARP] >= events[:, None])

    def known_to_its_warp(self, aspect: Aspect, lanes: Lanes, events: Events) -> Events:
        """For each lane itself, and which lanes of its warp all of the warp know of up to an event,
        as a mask."""
        by_warp = self.warp[aspect].reshape(-1, WARP)[lanes // WARP]
        return _mask(by_warp >= events[:, None]) | np.int32(1) << (lanes % WARP).astype(np.int32)

    def ordered_by_barrier(self, lanes: Lanes, columns: Lanes, events: Events) -> Bools:
        """True if lanes have waited for the mbarriers that copies signal."""
        if self.matrix is None:
            return np.zeros(len(lanes), np.bool_)
        own, row = np.divmod(lanes, self.per_cluster)
        out: Bools = events <= self.matrix[Aspect.PLAIN, own, row, self.per_cluster + columns]
        return out

    def seen(self, lanes: Lanes) -> Events:
        """Up to which PLAIN event lanes of one cluster know of its lanes, and of its mbarriers:
        ``(lanes, lane of the cluster or mbarrier)``."""
        cluster, rows = int(lanes[0]) // self.per_cluster, lanes % self.per_cluster
        if self.matrix is None:
            out = np.zeros((len(lanes), self.per_cluster), np.int32)
        else:
            out = self.matrix[Aspect.PLAIN, cluster, rows].copy()
        every = np.arange(cluster * self.per_cluster, (cluster + 1) * self.per_cluster)
        held = out[:, : self.per_cluster]
        for level, size in ((self.block, self.per_block), (self.warp, WARP)):
            same = lanes[:, None] // size == every // size
            np.maximum(held, np.where(same, level[Aspect.PLAIN, every], 0), out=held)
        return out

    def common(self, aspect: Aspect, lanes: Lanes) -> Events:
        """The last event of each lane of the cluster, and of each of its mbarriers, that some lanes
        of one block all know of for certain: ``(lane of the cluster or mbarrier,)``."""
        cluster, rows = int(lanes[0]) // self.per_cluster, lanes % self.per_cluster
        out: Events = self._need_matrix()[aspect, cluster, _places(rows)].min(0)
        start = cluster * self.per_cluster
        for level, fenced, size in (
            (self.block, self.fenced_block, self.per_block),
            (self.warp, self.fenced_warp, WARP),
        ):
            first = int(lanes[0]) // size * size
            if int(lanes[-1]) < first + size:
                held = level[aspect, first : first + size]
                if aspect is Aspect.PROXY:
                    held = np.maximum(held, fenced[lanes].min())
                part = out[first - start : first - start + size]
                np.maximum(part, held, out=part)
        return out

    # --- the two regular levels ---

    def block_barrier(self, blocks: Lanes, now: int) -> None:
        """All threads of blocks have met."""
        shape, some = (len(self.full), self.per_block), _places(blocks)
        own, level = (x.reshape(_COUNT, *shape) for x in (self.own, self.block))
        for aspect in _OWN.tolist():
            own[aspect, some] = now
        for aspect in np.flatnonzero(self.own.any(1)).tolist():
            level[aspect, some] = np.maximum(level[aspect, some], own[aspect, some])
        of_block, of_warp = (x.reshape(shape) for x in (self.fenced_block, self.fenced_warp))
        if of_block.any() or of_warp.any():
            # What a lane's fence covered of its own warp is known to all now.
            best = of_block[some].max(1)
            fenced = np.maximum(of_block[some], of_warp[some])
            by_warp = fenced.reshape(len(blocks), -1, WARP).max(-1)
            level[Aspect.PROXY, some] = np.maximum(
                level[Aspect.PROXY, some], np.repeat(by_warp, WARP, axis=-1)
            )
            of_block[some] = best[:, None]
        self.full[some] = now
        if self.matrix is not None:
            for block in blocks.tolist():
                self._join(np.arange(block * self.per_block, (block + 1) * self.per_block))

    def warp_barrier(self, lanes: Lanes, whole: Bools, now: int) -> None:
        """Lanes have met those of their warp; `whole`: with all that have not ended."""
        self.before_news()
        full = lanes[whole]
        every = (np.unique(full // WARP)[:, None] * WARP + np.arange(WARP)).reshape(-1)
        self.own[_OWN[:, None], every] = now
        self.warp[:, every] = np.maximum(self.warp[:, every], self.own[:, every])
        for fenced in (self.fenced_block, self.fenced_warp):
            rows = fenced.reshape(-1, WARP)
            numbers = np.unique(full // WARP)
            rows[numbers] = rows[numbers].max(1, keepdims=True)
        if self.matrix is not None:
            for warp in np.unique(full // WARP).tolist():
                self._join(np.arange(warp * WARP, (warp + 1) * WARP))
        for warp in np.unique(lanes[~whole] // WARP).tolist():
            some = lanes[~whole & (lanes // WARP == warp)]
            self.acquire(some, self.released(some, now))

    def shuffled(self, lanes: Lanes, now: int) -> None:
        """Lanes of warps have exchanged registers: what they read before has arrived."""
        self.warp[Aspect.READS, lanes] = now

    def _join(self, lanes: Lanes) -> None:
        assert self.matrix is not None
        cluster, rows = int(lanes[0]) // self.per_cluster, lanes % self.per_cluster
        first, last = int(rows[0]), int(rows[-1]) + 1
        for aspect in np.flatnonzero(self.in_matrix).tolist():
            held = self.matrix[aspect, cluster, first:last]
            held[:] = held.max(0)

    def fence(self, lanes: Lanes, now: int) -> None:
        """fence.proxy.async of lanes: what they know of is fenced for whoever they tell."""
        self.own[Aspect.PROXY, lanes] = now
        self.fenced_block[lanes] = np.maximum(
            self.fenced_block[lanes], self.full[lanes // self.per_block]
        )
        self.fenced_warp[lanes] = np.maximum(
            self.fenced_warp[lanes], self.warp[Aspect.PLAIN, lanes]
        )
        if self.matrix is not None:
            self.in_matrix[Aspect.PROXY] |= self.in_matrix[Aspect.PLAIN]
            clusters = lanes // self.per_cluster
            for cluster in np.unique(clusters).tolist():
                rows = _places(lanes[clusters == cluster] - cluster * self.per_cluster)
                plain, proxy = (self.matrix[x, cluster] for x in (Aspect.PLAIN, Aspect.PROXY))
                proxy[rows] = np.maximum(proxy[rows], plain[rows])

    # --- everything else ---

    def released(self, lanes: Lanes, now: int) -> Events:
        """The knowledge that lanes of one cluster have together, ``(aspect, lane of the cluster or
        mbarrier)``: whoever synchronises with them learns it."""
        cluster = int(lanes[0]) // self.per_cluster
        start, rows = cluster * self.per_cluster, lanes % self.per_cluster
        held, some, out = self._need_matrix(), _places(rows), self.nothing()
        for aspect in np.flatnonzero(self.in_matrix).tolist():
            held[aspect, cluster, some].max(0, out=out[aspect])
        for block in np.unique(lanes // self.per_block).tolist():
            every = slice(block * self.per_block, (block + 1) * self.per_block)
            mine = out[:, every.start - start : every.stop - start]
            np.maximum(mine, self.block[:, every], out=mine)
            inside = lanes[lanes // self.per_block == block]
            fenced = int(self.fenced_block[inside].max())
            np.maximum(mine[Aspect.PROXY], fenced, out=mine[Aspect.PROXY])
        warps, which = np.unique(lanes // WARP, return_inverse=True)
        mine, here = out[:, : self.per_cluster].reshape(_COUNT, -1, WARP), warps - start // WARP
        by_warp = np.zeros((len(warps), 1), np.int32)
        np.maximum.at(by_warp[:, 0], which, self.fenced_warp[lanes])
        mine[:, here] = np.maximum(mine[:, here], self.warp.reshape(_COUNT, -1, WARP)[:, warps])
        mine[Aspect.PROXY, here] = np.maximum(mine[Aspect.PROXY, here], by_warp)
        self.own[_OWN[:, None], lanes] = now
        out[:, rows] = np.maximum(out[:, rows], self.own[:, lanes])
        first = self.warpgroup(lanes) % self.per_cluster
        np.maximum.at(out[Aspect.WGMMA], first, self.own[Aspect.WGMMA, lanes])
        return out

    def nothing(self) -> Events:
        """Released knowledge of nothing."""
        return np.zeros((_COUNT, self._need_matrix().shape[-1]), np.int32)

    def acquire(self, lanes: Lanes, known: Events) -> None:
        """Lanes of one cluster learn what others have released."""
        self.before_news()
        matrix = self._need_matrix()
        cluster, rows = int(lanes[0]) // self.per_cluster, _places(lanes % self.per_cluster)
        for aspect, told in enumerate(known):
            columns = np.flatnonzero(told)
            if not columns.size:
                continue
            self.in_matrix[aspect] = True
            held, news = matrix[aspect, cluster], slice(int(columns[0]), int(columns[-1]) + 1)
            if not isinstance(rows, slice):
                held[rows, news] = np.maximum(held[rows, news], told[news])
            elif len(columns) * _FEW > news.stop - news.start:
                np.maximum(held[rows, news], told[news], out=held[rows, news])
            else:
                held[rows, columns] = np.maximum(held[rows, columns], told[columns])

    def column(self, cluster: int, barrier: int) -> int:
        """The number of an mbarrier, by its place, among those of its cluster."""
        key = (cluster, barrier)
        found = self._columns.get(key)
        if found is None:
            found = sum(1 for other, _ in self._columns if other == cluster)
            self._columns[key] = found
            matrix = self._need_matrix()
            if self.per_cluster + found >= matrix.shape[-1]:
                more = np.zeros((*matrix.shape[:-1], matrix.shape[-1] - self.per_cluster), np.int32)
                self.matrix = np.concatenate([matrix, more], axis=-1)
        return found

    def _need_matrix(self) -> Events:
        if self.matrix is None:
            clusters = self.wave.lanes // self.per_cluster
            shape = (_COUNT, clusters, self.per_cluster, self.per_cluster + _BARRIERS)
            if np.prod(shape, dtype=np.int64) > _MOST_ELEMENTS * _COUNT:
                raise UnsupportedError(
                    f"clusters of {self.per_cluster} threads are too many for check=True"
                )
            self.matrix = np.zeros(shape, np.int32)
        return self.matrix


def _mask(flags: Bools) -> Events:
    """Masks of warps from the flags of their lanes ``(n, 32)``."""
    return np.packbits(flags, axis=1, bitorder="little").view(np.int32)[:, 0]


def _places(rows: Lanes) -> Lanes | slice:
    """Ascending rows as a slice, where they are neighbours: then nothing is copied."""
    first, last = int(rows[0]), int(rows[-1])
    return slice(first, last + 1) if last - first + 1 == len(rows) else rows


def wider(known: Events, other: Events) -> Events:
    """The union of two released knowledges, one of which may know of more mbarriers."""
    if known.shape[1] < other.shape[1]:
        known, other = other, known
    out = known.copy()
    part = out[:, : other.shape[1]]
    np.maximum(part, other, out=part)
    return out
