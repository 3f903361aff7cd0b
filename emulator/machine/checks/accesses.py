"""Accesses to memory that conflict: two threads, one place, at least one writes, and nothing says
which comes first (PTX ISA 8.6 to 8.10)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtypes import Array
from emulator.machine.checks.clocks import Aspect, Bools, Clocks, Events
from emulator.machine.vector.strand import WARP, Lanes
from emulator.memory.shadow import SharedShadow

Places = NDArray[np.int64]


class Sort:
    """Kind of a write; with BARRIER the writer is an mbarrier, by its column.

    Plain integers: NumPy compares an array with a member of an enum in seven times the time.
    """

    PLAIN = 0
    ATOMIC = 1
    #: cp.async of the lane
    COPY = 2
    #: a copy that signals an mbarrier
    BARRIER = 3
    #: a bulk copy or a bulk reduction of the lane, to global memory
    BULK = 4
    BULK_ATOMIC = 5


class Conflict(NamedTuple):
    """Accesses of now that conflict with one of before: which ones, and with whom."""

    #: "write" or "read": what was there before
    before: str
    #: positions among the accesses given
    which: Lanes
    #: for each the event and the lane of the other access; of a barrier's copy lane -1
    events: Events
    others: Lanes
    sort: int


#: of lanes of a warp, the bits of masks
_BIT = (np.uint32(1) << np.arange(WARP, dtype=np.uint32)).view(np.int32)
#: columns of readers besides those of warps: bulk copies, other blocks, and their number
_BULK, _REMOTE, _MORE = 0, 1, 2


class SharedAccesses:
    """History of accesses to the shared memory of a wave's blocks."""

    def __init__(self, clocks: Clocks, shared_bytes: int, granule: int) -> None:
        wave = clocks.wave
        self.clocks, self.warps = clocks, wave.warps_per_cta
        self.groups = -(-self.warps // 4)
        self.shadow = SharedShadow(
            len(wave.ctas), shared_bytes, granule, self.warps + self.groups + _MORE
        )
        #: finds reads by tcgen05 that conflict with writes
        self.tensor_core_reads: Callable[[Lanes, Places], Iterable[Conflict]] = lambda *_: ()

    @staticmethod
    def columns(warps: int) -> int:
        return warps + -(-warps // 4) + _MORE

    # --- asking ---

    def conflicts_with_writes(
        self, lanes: Lanes, at: Places, *, proxy: bool = False, atomic: bool = False
    ) -> list[Conflict]:
        """Writes of others that do not come before accesses of `lanes` to granules `at`.

        `proxy`: the accesses are made by the asynchronous proxy, on behalf of the lanes.
        """
        shadow, per_block = self.shadow, self.clocks.per_block
        events, sorts = shadow.written[at], shadow.sort[at]
        suspect = events > 0
        if not proxy:
            # Blocks have met since: nearly always that is all there is to ask.
            suspect = events > self.clocks.full[lanes // per_block]
            if shadow.any_copies or self.clocks.wave.cluster_size > 1:
                suspect |= (events > 0) & (sorts > Sort.ATOMIC)
                suspect |= (events > 0) & (shadow.writer[at] // per_block != lanes // per_block)
        which = np.flatnonzero(suspect)
        if not which.size:
            return []
        events, sorts, writers = events[which], sorts[which], shadow.writer[at[which]]
        lanes = lanes[which]
        keep = np.ones(len(which), np.bool_)
        if not proxy:
            keep = (writers != lanes) | (sorts > Sort.ATOMIC)
        if atomic:
            keep &= sorts != Sort.ATOMIC
        who = writers.astype(np.int64)
        return self._conflicts(which, lanes, who, events, np.where(keep, sorts, -1), proxy)

    def conflicts_of_tile(self, lanes: Lanes, at: Places) -> tuple[list[Conflict], Lanes, Places]:
        """`conflicts_with_writes` of the asynchronous proxy, on behalf of each lane, at all of the
        granules, and these accesses one by one."""
        if self._is_known(lanes, at):
            return [], lanes[:0], at[:0]
        who, where = np.repeat(lanes, len(at)), np.tile(at, len(lanes))
        return self.conflicts_with_writes(who, where, proxy=True), who, where

    def _is_known(self, lanes: Lanes, at: Places) -> bool:
        """True if all of the lanes certainly know of the writes to granules, and fenced them."""
        shadow, clocks = self.shadow, self.clocks
        events, sorts, writers = shadow.written[at], shadow.sort[at], shadow.writer[at]
        by_copy = sorts == Sort.BARRIER
        if by_copy.all():
            told = clocks.common(Aspect.PLAIN, lanes)
            return bool((events <= told[clocks.per_cluster + writers]).all())
        if ((sorts > Sort.ATOMIC) & ~by_copy).any():
            return False
        inside = writers - int(lanes[0]) // clocks.per_cluster * clocks.per_cluster
        if (~by_copy & (events > 0) & ((inside < 0) | (inside >= clocks.per_cluster))).any():
            return False
        if by_copy.any():
            told = clocks.common(Aspect.PLAIN, lanes)
            if (events[by_copy] > told[clocks.per_cluster + writers[by_copy]]).any():
                return False
        plain = ~by_copy & (events > 0)
        if not plain.any():
            return True
        return bool((events[plain] <= clocks.common(Aspect.PROXY, lanes)[inside[plain]]).all())

    def _conflicts(
        self, which: Lanes, lanes: Lanes, writers: Array, events: Events, sorts: Array, proxy: bool
    ) -> list[Conflict]:
        """Those of the writes of each sort that do not come before the lanes' accesses; sort -1:
        not asked for. Neighbours who ask the same are one question."""
        fresh = np.ones(len(which), np.bool_)
        fresh[1:] = (lanes[1:] != lanes[:-1]) | (events[1:] != events[:-1])
        fresh[1:] |= (writers[1:] != writers[:-1]) | (sorts[1:] != sorts[:-1])
        first = np.flatnonzero(fresh)
        counts = np.diff(first, append=len(which))
        out = []
        for sort in np.unique(sorts[first]).tolist():
            if sort < 0:
                continue
            mine = first[sorts[first] == sort]
            ordered = self._ordered(lanes[mine], writers[mine], events[mine], sort, proxy)
            if ordered.all():
                continue
            asked = np.ones(len(first), np.bool_)
            asked[sorts[first] == sort] = ordered
            wrong = np.flatnonzero(np.repeat(~asked, counts))
            others = writers[wrong] if sort != Sort.BARRIER else np.full(len(wrong), -1)
            out.append(Conflict("write", which[wrong], events[wrong], others, sort))
        return out

    def _ordered(
        self, lanes: Lanes, writers: Lanes, events: Events, sort: int, proxy: bool
    ) -> Bools:
        clocks = self.clocks
        if sort == Sort.BARRIER:
            return clocks.ordered_by_barrier(lanes, writers, events)
        if sort == Sort.COPY:
            done = clocks.ordered(Aspect.COPIES, lanes, writers, events)
            return done & clocks.ordered(Aspect.PROXY, lanes, writers, events) if proxy else done
        return clocks.ordered(Aspect.PROXY if proxy else Aspect.PLAIN, lanes, writers, events)

    def conflicts_with_reads(self, lanes: Lanes, at: Places) -> list[Conflict]:
        """Reads of others that do not come before writes of `lanes` to granules `at`."""
        shadow, clocks = self.shadow, self.clocks
        out = list(self.tensor_core_reads(lanes, at))
        blocks, mine = at // shadow.row, lanes // clocks.per_block
        used = np.flatnonzero(shadow.used)[:, None]
        # Only what warps read is known to all of a block that has met.
        floor = np.where((blocks == mine) & (used < self.warps), clocks.full[mine], 0)
        which, columns = np.nonzero((shadow.read[used, at] > floor).T)
        if not which.size:
            return out
        columns = used[columns, 0]
        when = shadow.read[columns, at[which]]
        readers = shadow.reader[columns, at[which]].astype(np.int64)
        for aspect, chosen in self._aspects(columns):
            mine = np.flatnonzero(chosen)
            if not mine.size:
                continue
            others = readers[mine]
            if columns[mine[0]] < self.warps:
                first = blocks[which[mine]] * clocks.per_block + columns[mine] * WARP
                askers = lanes[which[mine]]
                known = clocks.known_to_its_warp(aspect, askers, when[mine])
                others &= ~np.where(askers // WARP * WARP == first, known, 0)
                others &= ~clocks.known_in_warp(aspect, askers, first, when[mine])
                if not others.any():
                    continue
                item, others = _lanes_of(others, first)
                mine = mine[item]
            ordered = clocks.ordered(aspect, lanes[which[mine]], others, when[mine])
            wrong = mine[~ordered]
            if wrong.size:
                # Of several lanes the first that is not known is named.
                wrong, first = np.unique(wrong, return_index=True)
                who = others[~ordered][first]
                out.append(Conflict("read", which[wrong], when[wrong], who, Sort.PLAIN))
        return out

    def _aspects(self, columns: Lanes) -> list[tuple[Aspect, Bools]]:
        behind = columns - self.warps
        return [
            (Aspect.READS, behind < 0),
            (Aspect.READS, behind == self.groups + _REMOTE),
            (Aspect.WGMMA, (behind >= 0) & (behind < self.groups)),
            (Aspect.BULK_READ, behind == self.groups + _BULK),
        ]

    # --- telling ---

    def note_write(self, at: Places, writers: Lanes, event: int, sort: int = Sort.PLAIN) -> None:
        shadow = self.shadow
        shadow.written[at] = event
        shadow.writer[at] = writers
        shadow.sort[at] = sort
        shadow.any_copies |= sort > Sort.ATOMIC

    def note_read(self, at: Places, lanes: Lanes, event: int) -> None:
        """Ordinary reads of lanes."""
        if self.clocks.wave.cluster_size > 1:
            remote = at // self.shadow.row != lanes // self.clocks.per_block
            if remote.any():
                self._note(at[remote], self.groups + _REMOTE, lanes[remote], event)
                at, lanes = at[~remote], lanes[~remote]
        self._note_of_warps(at, lanes, event)

    def note_wgmma(self, at: Places, lane: int, event: int) -> None:
        self._note(at, lane % self.clocks.per_block // (4 * WARP), lane, event)

    def note_bulk_read(self, at: Places, lanes: Lanes, event: int) -> None:
        self._note(at, self.groups + _BULK, lanes, event)

    def _note(self, at: Places, column: int, lanes: Lanes | int, event: int) -> None:
        """Reads of one of the columns behind those of warps."""
        column += self.warps
        self.shadow.used[column] = True
        self.shadow.read[column, at] = event
        self.shadow.reader[column, at] = lanes

    def _note_of_warps(self, at: Places, lanes: Lanes, event: int) -> None:
        clocks, shadow = self.clocks, self.shadow
        warps = lanes // WARP
        blocks = warps // self.warps
        column = warps - blocks * self.warps
        shadow.used[column] = True
        # One index is faster than two.
        place = column * shadow.read.shape[1] + at
        read, reader = shadow.read.reshape(-1), shadow.reader.reshape(-1)
        before = read[place]
        bits = _BIT[lanes - warps * WARP]
        # A read that the lane does not know of stays: then there are several readers.
        stays = np.flatnonzero(before > clocks.full[blocks])
        stays = stays[before[stays] > clocks.warp[Aspect.PLAIN, lanes[stays]]]
        if stays.size:
            first = warps[stays] * WARP
            known = clocks.known_in_warp(Aspect.READS, lanes[stays], first, before[stays])
            bits[stays] |= reader[place[stays]] & ~known
        read[place], reader[place] = event, bits
        others = np.flatnonzero(reader[place] != bits)
        if others.size:
            np.bitwise_or.at(reader, place[others], bits[others])


def _lanes_of(bits: Lanes, first: Lanes) -> tuple[Lanes, Lanes]:
    """The lanes that masks of warps name, whose first lanes are given: for each the position of its
    mask, and its number."""
    item, lane = np.nonzero(bits[:, None] >> np.arange(WARP) & 1)
    return item, first[item] + lane
