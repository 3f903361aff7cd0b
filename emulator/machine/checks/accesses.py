"""Accesses to memory that conflict: two threads, one place, at least one writes, and nothing says
which comes first (PTX ISA 8.6 to 8.10)."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emulator.machine.checks.clocks import Aspect, Bools, Clocks, Events
from emulator.machine.vector.strand import WARP, Lanes
from emulator.memory.shadow import SharedShadow

Places = NDArray[np.int64]


class Sort(IntEnum):
    """Kind of a write; with BARRIER the writer is an mbarrier, by its column."""

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
        #: the record of reads by tcgen05, see `TensorCoreChecks`
        self.tensor_cores: Any = None

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
        shadow = self.shadow
        events = shadow.written[at]
        writers, sorts = shadow.writer[at], shadow.sort[at]
        suspect = events > 0
        plain_own = (writers == lanes) & (sorts <= Sort.ATOMIC)
        if not proxy:
            suspect &= ~plain_own
        if atomic:
            suspect &= sorts != Sort.ATOMIC
        which = np.flatnonzero(suspect)
        if which.size:
            floor = self.clocks.full[lanes[which] // self.clocks.per_block]
            near = writers[which] // self.clocks.per_block == lanes[which] // self.clocks.per_block
            near &= sorts[which] <= Sort.ATOMIC
            if not proxy:
                which = which[~near | (events[which] > floor)]
        out = []
        for sort in np.unique(sorts[which]).tolist():
            mine = which[sorts[which] == sort]
            ordered = self._ordered(lanes[mine], writers[mine], events[mine], sort, proxy)
            wrong = mine[~ordered]
            if wrong.size:
                others = writers[wrong] if sort != Sort.BARRIER else np.full(len(wrong), -1)
                out.append(Conflict("write", wrong, events[wrong], others, sort))
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
        events = shadow.read[at]  # (n, columns)
        floor = clocks.full[lanes // clocks.per_block]
        blocks = at // shadow.row
        near = blocks == lanes // clocks.per_block
        suspect = events > np.where(near, floor, 0)[:, None]
        suspect[:, self.warps :] = events[:, self.warps :] > 0
        out = [] if self.tensor_cores is None else list(self.tensor_cores.conflicts(lanes, at))
        if not suspect.any():
            return out
        which, columns = np.nonzero(suspect)
        when, readers = events[which, columns], shadow.reader[at[which], columns].astype(np.int64)
        for aspect, chosen in self._aspects(columns):
            mine = np.flatnonzero(chosen)
            if not mine.size:
                continue
            others = readers[mine]
            if columns[mine[0]] < self.warps:
                first = blocks[which[mine]] * clocks.per_block + columns[mine] * WARP
                item, others = _lanes_of(others, first)
                mine = mine[item]
            ordered = clocks.ordered(aspect, lanes[which[mine]], others, when[mine])
            wrong = mine[~ordered]
            if wrong.size:
                # Of several lanes the first that is not known is named.
                wrong, first = np.unique(wrong, return_index=True)
                found = which[wrong], when[wrong], others[~ordered][first]
                out.append(Conflict("read", *found, Sort.PLAIN))
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

    def note_write(self, at: Places, writers: Lanes, event: int, sort: Sort = Sort.PLAIN) -> None:
        shadow = self.shadow
        shadow.written[at] = event
        shadow.writer[at] = writers
        shadow.sort[at] = sort

    def note_read(self, at: Places, lanes: Lanes, event: int) -> None:
        """Ordinary reads of lanes."""
        block = lanes // self.clocks.per_block
        warp = (lanes % self.clocks.per_block) // WARP
        columns = np.where(at // self.shadow.row == block, warp, self.warps + self.groups + _REMOTE)
        self._note(at, columns, lanes, event)

    def note_wgmma(self, at: Places, lanes: Lanes, event: int) -> None:
        group = (lanes % self.clocks.per_block) // (4 * WARP)
        self._note(at, self.warps + group, lanes, event)

    def note_bulk_read(self, at: Places, lane: int, event: int) -> None:
        column = np.full(len(at), self.warps + self.groups + _BULK)
        self._note(at, column, np.full(len(at), lane), event)

    def _note(self, at: Places, columns: Lanes, lanes: Lanes, event: int) -> None:
        shadow = self.shadow
        by_warp = columns < self.warps
        before = shadow.read[at, columns]
        bits = (np.uint32(1) << (lanes % WARP).astype(np.uint32)).view(np.int32)
        bits = np.where(by_warp, bits, lanes).astype(np.int32)
        clocks = self.clocks
        full = clocks.full[lanes // clocks.per_block]
        floor = np.maximum(clocks.warp[Aspect.PLAIN, lanes], full)
        # A read that the lane does not know of stays: then there are several readers.
        stays = np.flatnonzero(by_warp & (before > floor))
        if stays.size:
            known = clocks.known_in_warp(Aspect.READS, lanes[stays], before[stays])
            bits[stays] |= shadow.reader[at[stays], columns[stays]] & ~known
        shadow.read[at, columns] = event
        shadow.reader[at, columns] = bits
        others = np.flatnonzero(by_warp & (shadow.reader[at, columns] != bits))
        if others.size:
            np.bitwise_or.at(shadow.reader, (at[others], columns[others]), bits[others])


def _lanes_of(bits: Lanes, first: Lanes) -> tuple[Lanes, Lanes]:
    """The lanes that masks of warps name, whose first lanes are given: for each the position of its
    mask, and its number."""
    item, lane = np.nonzero(bits[:, None] >> np.arange(WARP) & 1)
    return item, first[item] + lane
