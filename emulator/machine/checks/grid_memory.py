"""Accesses to global memory that conflict, within a block and between blocks.

Blocks learn of each other through memory alone: a thread *releases* what it knows when it writes a
place with release semantics, or after a fence, atomically or as a flag; who reads that place so,
*acquires* it (PTX ISA 8.8). Of the reader no fence is demanded: a missing one is found by nobody,
but kernels that are right by other means often have none.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from emulator.machine.checks.accesses import Conflict, Places, Sort
from emulator.machine.checks.clocks import Aspect, Bools, Clocks, Events
from emulator.machine.vector.strand import WARP, Lanes
from emulator.memory.shadow import GlobalShadow

if TYPE_CHECKING:
    from emulator.machine.vector.wave import Wave


@dataclass
class Known:
    """What is known of other blocks: all that they did up to an event, and of one warp of each
    what it did up to a later one."""

    floor: Events
    warp: NDArray[np.int64]
    warp_floor: Events

    @classmethod
    def nothing(cls, blocks: int) -> Known:
        return cls(
            np.zeros(blocks, np.int32), np.full(blocks, -1, np.int64), np.zeros(blocks, np.int32)
        )

    def joined(self, other: Known) -> Known:
        later = other.warp_floor > self.warp_floor
        return Known(
            np.maximum(self.floor, other.floor),
            np.where(later, other.warp, self.warp),
            np.maximum(self.warp_floor, other.warp_floor),
        )


@dataclass
class GridKnowledge:
    """What threads, warps and blocks of a grid know of other blocks; nearly always nothing."""

    blocks: int
    #: by ("thread" | "warp" | "block", its number in the grid)
    held: dict[tuple[str, int], Known] = field(default_factory=dict)
    #: what was released at a place in the arena
    released: dict[int, Known] = field(default_factory=dict)
    #: of threads, the event of their last fence for the whole GPU, and what their block knew then
    fences: dict[int, tuple[int, int]] = field(default_factory=dict)
    #: of blocks, the last fence of any thread before its last barrier
    block_fences: dict[int, int] = field(default_factory=dict)

    def of(self, block: int, warp: int, thread: int) -> Known | None:
        """What a thread knows: by itself, by its warp, by its block."""
        out: Known | None = None
        for key in (("block", block), ("warp", warp), ("thread", thread)):
            found = self.held.get(key)
            if found is not None:
                out = found if out is None else out.joined(found)
        return out

    def learn(self, key: tuple[str, int], known: Known) -> None:
        have = self.held.get(key)
        self.held[key] = known if have is None else have.joined(known)

    def gather(self, block: int, first: int, last: int, first_warp: int, last_warp: int) -> None:
        """A barrier of a block: all learn what any of its threads and warps knew."""
        if not self.held and not self.fences:
            return
        for sort, low, high in (("thread", first, last), ("warp", first_warp, last_warp)):
            for key in [k for k in self.held if k[0] == sort and low <= k[1] < high]:
                self.learn(("block", block), self.held.pop(key))
        fenced = [event for thread, (event, _) in self.fences.items() if first <= thread < last]
        if fenced:
            self.block_fences[block] = max(fenced)


class GlobalAccesses:
    """What happened to the global memory of a launch."""

    def __init__(self, size: int, granule: int, blocks: int, per_block: int) -> None:
        self.shadow = GlobalShadow(size, granule)
        self.knowledge = GridKnowledge(blocks)
        self.per_block = per_block

    def threads(self, wave: Wave, lanes: Lanes) -> Lanes:
        """Numbers in the grid, of 32 for each warp, of lanes of a wave."""
        out: Lanes = wave.ctas[lanes // self.per_block] * self.per_block + lanes % self.per_block
        return out

    # --- asking ---

    def conflicts_with_writes(
        self, clocks: Clocks, lanes: Lanes, threads: Lanes, at: Places, *, atomic: bool
    ) -> list[Conflict]:
        shadow = self.shadow
        events, writers = shadow.written[at], shadow.writer[at].astype(np.int64)
        suspect = (events > 0) & (writers != threads)
        if atomic:
            suspect &= shadow.sort[at] != Sort.ATOMIC
        which = np.flatnonzero(suspect)
        if not which.size:
            return []
        known = self._ordered(clocks, lanes[which], threads[which], writers[which], events[which])
        wrong = which[~known]
        if not wrong.size:
            return []
        return [Conflict("write", wrong, events[wrong], writers[wrong], Sort.PLAIN)]

    def conflicts_with_reads(
        self, clocks: Clocks, lanes: Lanes, threads: Lanes, at: Places
    ) -> list[Conflict]:
        out = []
        every = self.shadow.reader[:, at].astype(np.int64)
        for events, readers in zip(self.shadow.read[:, at], every, strict=True):
            which = np.flatnonzero((events > 0) & (readers != threads))
            if not which.size:
                continue
            known = self._ordered(
                clocks, lanes[which], threads[which], readers[which], events[which]
            )
            wrong = which[~known]
            if wrong.size:
                out.append(Conflict("read", wrong, events[wrong], readers[wrong], Sort.PLAIN))
        return out

    def _ordered(
        self, clocks: Clocks, lanes: Lanes, threads: Lanes, others: Lanes, events: Events
    ) -> Bools:
        """For each access of `others`, threads of the grid, whether it comes before."""
        wave, per_block = clocks.wave, self.per_block
        rows = wave.rows_by_cta(others // per_block)
        here = (rows >= 0) & (rows // wave.cluster_size == lanes // clocks.per_cluster)
        known = np.zeros(len(lanes), np.bool_)
        if here.any():
            there = rows[here] * per_block + others[here] % per_block
            known[here] = clocks.ordered(Aspect.PLAIN, lanes[here], there, events[here])
        if self.knowledge.held and not known.all():
            for i in np.flatnonzero(~known).tolist():
                known[i] = self._told(int(threads[i]), int(others[i]), int(events[i]))
        return known

    def _told(self, thread: int, other: int, event: int) -> bool:
        per_block = self.per_block
        found = self.knowledge.of(thread // per_block, thread // WARP, thread)
        if found is None:
            return False
        block = other // per_block
        if event <= found.floor[block]:
            return True
        return bool(found.warp[block] == other // WARP and event <= found.warp_floor[block])

    # --- telling ---

    def note_write(self, at: Places, threads: Lanes, event: int, sort: Sort) -> None:
        shadow = self.shadow
        shadow.written[at] = event
        shadow.writer[at] = threads
        shadow.sort[at] = sort

    def note_read(self, at: Places, threads: Lanes, event: int) -> None:
        shadow = self.shadow
        last, who = shadow.read[0, at], shadow.reader[0, at]
        moved = (last > 0) & (who // self.per_block != threads // self.per_block)
        if moved.any():
            place = at[moved]
            shadow.read[1, place], shadow.reader[1, place] = last[moved], who[moved]
        shadow.read[0, at] = event
        shadow.reader[0, at] = threads

    # --- synchronisation through memory ---

    def fence(self, clocks: Clocks, lanes: Lanes, now: int) -> None:
        """A fence for the whole GPU."""
        threads = self.threads(clocks.wave, lanes)
        full = clocks.full[lanes // self.per_block]
        for thread, floor in zip(threads.tolist(), full.tolist(), strict=True):
            self.knowledge.fences[thread] = now, floor

    def release(self, clocks: Clocks, lane: int, place: int, now: int, *, whole: bool) -> None:
        """A thread writes a place as a flag; `whole`: with release semantics of its own."""
        knowledge = self.knowledge
        thread = int(self.threads(clocks.wave, np.array([lane]))[0])
        block, warp = thread // self.per_block, thread // WARP
        fence = (now, int(clocks.full[lane // self.per_block])) if whole else None
        event, floor = fence or knowledge.fences.get(thread, (0, 0))
        floor = max(floor, knowledge.block_fences.get(block, 0))
        if clocks.matrix is not None:
            # What the thread learnt through mbarriers and the like is part of it.
            floor = max(floor, event)
        mine = knowledge.of(block, warp, thread)
        before = knowledge.released.get(place)
        if not event and not floor and mine is None and before is None:
            return
        told = Known.nothing(knowledge.blocks)
        told.floor[block], told.warp[block], told.warp_floor[block] = floor, warp, event
        for other in (mine, before):
            if other is not None:
                told = told.joined(other)
        knowledge.released[place] = told

    def acquire(self, clocks: Clocks, lane: int, place: int) -> None:
        """A thread reads a place as a flag."""
        found = self.knowledge.released.get(place)
        if found is not None:
            thread = int(self.threads(clocks.wave, np.array([lane]))[0])
            self.knowledge.learn(("thread", thread), found)
