"""Accesses to global memory that conflict, within a block and between blocks.

Blocks learn of each other through memory alone: a thread *releases* what it knows when it writes a
place with release semantics, or after a fence, atomically or as a flag; who reads that place so,
*acquires* it (PTX ISA 8.8). Of the reader no fence is demanded: a missing one is found by nobody,
but kernels that are right by other means often have none.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from emulator.machine.checks.accesses import Conflict, Places, Sort, answers, questions
from emulator.machine.checks.clocks import Aspect, Bools, Clocks, Events
from emulator.machine.vector.strand import WARP, Lanes
from emulator.memory.shadow import GlobalShadow, index_of

if TYPE_CHECKING:
    from emulator.machine.vector.wave import Wave


class Deeds(NamedTuple):
    """Knowledge of another block: all that it did up to an event, and what one warp of it did
    up to a later one."""

    floor: int
    warp: int
    warp_floor: int

    def joined(self, other: Deeds) -> Deeds:
        later = max(self, other, key=lambda x: x.warp_floor)
        return Deeds(max(self.floor, other.floor), later.warp, later.warp_floor)

    def cover(self, warp: int, event: int) -> bool:
        """True if it is known what a warp of the block did at an event."""
        return event <= self.floor or (warp == self.warp and event <= self.warp_floor)


@dataclass
class Flag:
    """A place in memory that threads have released knowledge through."""

    #: by block, what it did before it wrote the place
    deeds: dict[int, Deeds] = field(default_factory=dict)
    #: other places whose knowledge was passed on through this one, with the event of that
    links: dict[int, int] = field(default_factory=dict)


#: places that were read as flags, with the event of the last time
Read = dict[int, int]


@dataclass
class GridKnowledge:
    """Knowledge of other blocks by threads, warps and blocks of a grid; nearly always none.

    Knowledge stays at the places that it was released through, and who reads one keeps the place
    and the event alone: a counter that every block of a large grid increments costs each a step.
    """

    #: by ("thread" | "warp" | "block", its number in the grid)
    held: dict[tuple[str, int], Read] = field(default_factory=dict)
    #: by place in the arena
    released: dict[int, Flag] = field(default_factory=dict)
    #: of threads, the event of their last fence for the whole GPU, and what their block knew then
    fences: dict[int, tuple[int, int]] = field(default_factory=dict)
    #: of blocks, the last fence of any thread before its last barrier
    block_fences: dict[int, int] = field(default_factory=dict)

    def of(self, block: int, warp: int, thread: int) -> Read:
        """Flags read by a thread, by its warp, and by its block."""
        out: Read = {}
        for key in (("block", block), ("warp", warp), ("thread", thread)):
            if key in self.held:
                _join(out, self.held[key])
        return out

    def learn(self, key: tuple[str, int], read: Read) -> None:
        _join(self.held.setdefault(key, {}), read)

    def knows(self, read: Read, block: int, warp: int, event: int) -> bool:
        """True if a reader of these flags knows what a warp of a block did at an event."""
        left, seen = list(read.items()), set(read)
        while left:
            place, when = left.pop()
            flag = self.released.get(place)
            if flag is None or event > when:
                continue
            deeds = flag.deeds.get(block)
            if deeds is not None and deeds.cover(warp, event):
                return True
            fresh = [
                (other, min(at, when)) for other, at in flag.links.items() if other not in seen
            ]
            seen.update(other for other, _ in fresh)
            left += fresh
        return False

    def forget(self, blocks: set[int], per_block: int) -> None:
        """Blocks have ended: what their threads knew is of no more use."""
        threads = {"thread": 1, "warp": WARP, "block": per_block}
        for key in [k for k in self.held if k[1] * threads[k[0]] // per_block in blocks]:
            del self.held[key]
        for thread in [x for x in self.fences if x // per_block in blocks]:
            del self.fences[thread]
        for block in blocks & self.block_fences.keys():
            del self.block_fences[block]

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


def _join(read: Read, more: Read) -> None:
    for place, event in more.items():
        read[place] = max(event, read.get(place, 0))


class Touch(NamedTuple):
    """Accesses of one statement to granules of global memory: by lanes, and their numbers in the
    grid."""

    at: Places
    lanes: Lanes
    threads: Lanes
    #: `at` as an index, and the pages where it lies
    where: Places | slice
    pages: slice

    @classmethod
    def of(cls, at: Places, lanes: Lanes, threads: Lanes, count: int) -> Touch:
        """Accesses to `count` granules by each lane."""
        if count != 1:
            lanes, threads = np.repeat(lanes, count), np.repeat(threads, count)
        return cls(at, lanes, threads, index_of(at), GlobalShadow.pages(at))


class GlobalAccesses:
    """History of accesses to the global memory of a launch."""

    def __init__(self, size: int, granule: int, per_block: int) -> None:
        self.shadow = GlobalShadow(size, granule)
        self.knowledge = GridKnowledge()
        self.per_block = per_block

    def threads(self, wave: Wave, lanes: Lanes) -> Lanes:
        """Numbers in the grid, of 32 for each warp, of lanes of a wave."""
        out: Lanes = wave.ctas[lanes // self.per_block] * self.per_block + lanes % self.per_block
        return out

    # --- asking ---

    def conflicts_with_writes(
        self, clocks: Clocks, touch: Touch, *, atomic: bool
    ) -> list[Conflict]:
        shadow, (_, lanes, threads, at, pages) = self.shadow, touch
        if not shadow.pages_written[pages].any():
            return []
        events = shadow.written[at]
        if not events.any():
            return []
        writers, sorts = shadow.writer[at].astype(np.int64), shadow.sort[at]
        suspect = (events > 0) & ((writers != threads) | (sorts > Sort.ATOMIC))
        if atomic:
            suspect &= (sorts != Sort.ATOMIC) & (sorts != Sort.BULK_ATOMIC)
        out = []
        for aspect, chosen in (
            (Aspect.PLAIN, sorts <= Sort.ATOMIC),
            (Aspect.BULK, sorts > Sort.ATOMIC),
        ):
            which = np.flatnonzero(suspect & chosen)
            if not which.size:
                continue
            others = threads[which], writers[which], events[which]
            wrong = which[~self._ordered(clocks, aspect, lanes[which], *others)]
            if wrong.size:
                sort = Sort.PLAIN if aspect is Aspect.PLAIN else Sort.BULK
                out.append(Conflict("write", wrong, events[wrong], writers[wrong], sort))
        return out

    def conflicts_with_reads(self, clocks: Clocks, touch: Touch) -> list[Conflict]:
        shadow, (_, lanes, threads, at, pages) = self.shadow, touch
        out: list[Conflict] = []
        if not shadow.pages_read[pages].any():
            return out
        for read, reader in zip(shadow.read, shadow.reader, strict=True):
            events = read[at]
            if not events.any():
                continue
            readers = reader[at].astype(np.int64)
            which = np.flatnonzero((events > 0) & (readers != threads))
            if not which.size:
                continue
            others = threads[which], readers[which], events[which]
            wrong = which[~self._ordered(clocks, Aspect.PLAIN, lanes[which], *others)]
            if wrong.size:
                out.append(Conflict("read", wrong, events[wrong], readers[wrong], Sort.PLAIN))
        return out

    def _ordered(
        self,
        clocks: Clocks,
        aspect: Aspect,
        lanes: Lanes,
        threads: Lanes,
        others: Lanes,
        events: Events,
    ) -> Bools:
        """For each access of `others`, threads of the grid, whether it comes before."""
        wave, per_block = clocks.wave, self.per_block
        rows = wave.rows_by_cta(others // per_block)
        here = (rows >= 0) & (rows // wave.cluster_size == lanes // clocks.per_cluster)
        known = np.zeros(len(lanes), np.bool_)
        if here.any():
            there = rows[here] * per_block + others[here] % per_block
            known[here] = clocks.ordered(aspect, lanes[here], there, events[here])
        if self.knowledge.held and not known.all():
            # What a thread knows alone is told apart, else warps know of warps.
            left = np.flatnonzero(~known)
            alone = [number for sort, number in self.knowledge.held if sort == "thread"]
            who = np.where(np.isin(threads[left], alone), threads[left], ~(threads[left] // WARP))
            first = questions(who, others[left] // WARP, events[left])
            told = [
                self._told(int(threads[i]), int(others[i]), int(events[i]))
                for i in left[first].tolist()
            ]
            known[left] = answers(np.array(told), first, len(left))
        return known

    def _told(self, thread: int, other: int, event: int) -> bool:
        per_block = self.per_block
        read = self.knowledge.of(thread // per_block, thread // WARP, thread)
        return self.knowledge.knows(read, other // per_block, other // WARP, event)

    def heard_of(self, wave: Wave, lane: int, row: int) -> bool:
        """True if a lane has read a flag that another block of its wave wrote."""
        thread = int(self.threads(wave, np.array([lane]))[0])
        read = self.knowledge.of(thread // self.per_block, thread // WARP, thread)
        return self.knowledge.knows(read, int(wave.ctas[row]), -1, 0)

    # --- telling ---

    def note_write(self, touch: Touch, event: int, sort: int) -> None:
        shadow, index = self.shadow, touch.where
        shadow.pages_written[touch.pages] = True
        shadow.written[index] = event
        shadow.writer[index] = touch.threads
        shadow.sort[index] = sort

    def note_read(self, touch: Touch, event: int) -> None:
        shadow, (_, _, threads, index, pages) = self.shadow, touch
        (read, earlier), (reader, before) = shadow.read, shadow.reader
        if shadow.pages_read[pages].any():
            last, who = read[index], reader[index]
            moved = (last > 0) & (who // self.per_block != threads // self.per_block)
            if moved.any():
                place = touch.at[moved]
                earlier[place], before[place] = last[moved], who[moved]
        shadow.pages_read[pages] = True
        read[index] = event
        reader[index] = threads

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
        if not event and not floor and not mine:
            return
        flag = knowledge.released.setdefault(place, Flag())
        deeds, before = Deeds(floor, warp, event), flag.deeds.get(block)
        flag.deeds[block] = deeds if before is None else before.joined(deeds)
        _join(flag.links, {other: at for other, at in mine.items() if other != place})

    def acquire(self, clocks: Clocks, lane: int, place: int, now: int) -> None:
        """A thread reads a place as a flag."""
        if place in self.knowledge.released:
            thread = int(self.threads(clocks.wave, np.array([lane]))[0])
            self.knowledge.learn(("thread", thread), {place: now})
