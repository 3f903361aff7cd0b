"""Accesses to memory that conflict: two threads, one place, at least one writes, and nothing says
which comes first (PTX ISA 8.6 to 8.10)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtypes import Array
from emulator.machine.checks.clocks import Aspect, Bools, Clocks, Events
from emulator.machine.vector.strand import WARP, Lanes
from emulator.memory.shadow import SharedShadow, index_of

Places = NDArray[np.int64]
#: recent reads that are kept, and statements of them that a write is compared with one by one
_MOST_RECENT, _FEW = 1 << 19, 8


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


class Reads(NamedTuple):
    """Ordinary reads of one statement."""

    at: Places
    lanes: Lanes
    event: int


#: of lanes of a warp, the bits of masks
_BIT = (np.uint32(1) << np.arange(WARP, dtype=np.uint32)).view(np.int32)
#: columns of readers besides those of warps: bulk copies, other blocks, and their number
_BULK, _REMOTE, _MORE = 0, 1, 2


class SharedAccesses:
    """History of accesses to the shared memory of a wave's blocks.

    Nearly all reads are over before anybody writes: they are kept as they came until their blocks
    have met, and only a write that may conflict with one of them enters them into the shadow.
    """

    def __init__(self, clocks: Clocks, shared_bytes: int, granule: int) -> None:
        wave = clocks.wave
        self.clocks, self.warps = clocks, wave.warps_per_cta
        self.groups = -(-self.warps // 4)
        self.shadow = SharedShadow(
            len(wave.ctas), shared_bytes, granule, self.warps + self.groups + _MORE
        )
        #: reads that the shadow does not know of yet, and their number
        self._recent: list[Reads] = []
        self._kept = 0
        #: of each granule the lane that writes it now, -1: none; made when it is first needed
        self._writing = np.zeros(0, np.int64)
        #: the lanes that were asked about last, and the rows of their blocks
        self._located: tuple[Lanes, slice] = np.zeros(0, np.int64), slice(0)
        # Which of two reads the shadow keeps depends on what the later reader knew.
        clocks.before_news = self._enter_recent
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
        shadow, full, floor = self.shadow, self.clocks.full, 0
        apart = not (proxy or shadow.any_copies) and self.clocks.wave.cluster_size == 1
        if apart:
            # Blocks have met since: nearly always that is all there is to ask.
            blocks = self._blocks(lanes)
            if (shadow.last_write[blocks] <= full[blocks]).all():
                return []
            floor = int(full[blocks].min())
        events = shadow.written[index_of(at)]
        which = np.flatnonzero(events > floor)
        if not which.size:
            return []
        place, lanes, events = at[which], lanes[which], events[which]
        sorts, writers = shadow.sort[place], shadow.writer[place]
        if not proxy:
            mine = lanes // self.clocks.per_block
            suspect = events > full[mine]
            if not (apart or suspect.all()):
                suspect |= (sorts > Sort.ATOMIC) | (writers // self.clocks.per_block != mine)
            if not suspect.all():
                which, lanes, events = which[suspect], lanes[suspect], events[suspect]
                sorts, writers = sorts[suspect], writers[suspect]
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
        index = index_of(at)
        events, sorts, writers = shadow.written[index], shadow.sort[index], shadow.writer[index]
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
        not asked for."""
        first = questions(lanes, writers, events, sorts)
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
            wrong = np.flatnonzero(answers(~asked, first, len(which)))
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
        for aspect, columns in self._aspects(self._columns_read(lanes, at)):
            which, column, when = self._reads_since(columns, lanes, at)
            if not which.size:
                continue
            others = shadow.reader[column, at[which]].astype(np.int64)
            item, askers = np.arange(len(which)), lanes[which]
            if column[0] < self.warps:
                first = at[which] // shadow.row * clocks.per_block + column * WARP
                others &= ~self._known_of_warps(aspect, askers, first, when)
                if not others.any():
                    continue
                item, others = _lanes_of(others, first)
            askers, events = askers[item], when[item]
            once = questions(askers, others, events)
            ordered = clocks.ordered(aspect, askers[once], others[once], events[once])
            if ordered.all():
                continue
            wrong = np.flatnonzero(answers(~ordered, once, len(item)))
            # Of several lanes the first that is not known is named.
            found, first = np.unique(item[wrong], return_index=True)
            order = np.argsort(which[found], kind="stable")
            found, who = found[order], others[wrong][first][order]
            out.append(Conflict("read", which[found], when[found], who, Sort.PLAIN))
        return out

    def _reads_since(self, columns: Lanes, lanes: Lanes, at: Places) -> tuple[Lanes, Lanes, Events]:
        """Reads of columns that lanes may not know of, column by column: positions in `at`, columns
        and events."""
        shadow, clocks, index = self.shadow, self.clocks, index_of(at)
        found = [(lanes[:0], lanes[:0], np.zeros(0, np.int32))]
        for column in columns.tolist():
            when = shadow.read[column][index]
            which = np.flatnonzero(when)
            if column < self.warps and which.size:
                # Only what warps read is known to all of a block that has met.
                blocks, mine = at[which] // shadow.row, lanes[which] // clocks.per_block
                unknown = (blocks != mine) | (when[which] > clocks.full[mine])
                which, blocks = which[unknown], blocks[unknown]
                alone = shadow.reader[column][at[which]] == _BIT[lanes[which] % WARP]
                alone &= lanes[which] // WARP == blocks * self.warps + column
                which = which[~alone]
            if which.size:
                found.append((which, np.full(len(which), column), when[which]))
        which, column, when = map(np.concatenate, zip(*found, strict=True))
        return which, column, when

    def _known_of_warps(self, aspect: Aspect, lanes: Lanes, first: Lanes, events: Events) -> Events:
        """For each of lanes which of a warp, by its first lane, it knows of up to an event, as a
        mask, by more than barriers of its block."""
        once, clocks = questions(lanes, first, events), self.clocks
        asked = lanes[once], first[once], events[once]
        own = clocks.known_to_its_warp(aspect, asked[0], asked[2])
        known = np.where(asked[0] // WARP * WARP == asked[1], own, 0)
        return answers(known | clocks.known_in_warp(aspect, *asked), once, len(lanes))

    def _columns_read(self, lanes: Lanes, at: Places) -> Lanes:
        """The columns of reads that writes of `lanes` to granules may conflict with."""
        columns = self._columns_since(lanes)
        if self._recent and (columns.size or not self._are_own(lanes, at)):
            self._enter_recent()
            columns = self._columns_since(lanes)
        return columns

    def _columns_since(self, lanes: Lanes) -> Lanes:
        """The columns with reads of which not all threads of the lanes' blocks know."""
        last, blocks = self.shadow.last_read, self._blocks(lanes)
        if self.clocks.wave.cluster_size > 1:
            return np.flatnonzero(last.any(1))
        newer = last[:, blocks] > 0
        newer[: self.warps] &= last[: self.warps, blocks] > self.clocks.full[blocks]
        return np.flatnonzero(newer.any(1))

    def _are_own(self, lanes: Lanes, at: Places) -> bool:
        """True if each granule that lanes write was read by its writer alone, recently."""
        self._recent = [x for x in self._recent if not self._have_met_since(x)]
        self._kept = sum(len(x.at) for x in self._recent)
        if len(self._recent) > _FEW:
            return False
        if not self._writing.size:
            self._writing = np.full(len(self.shadow.written), -1)
        writing = self._writing
        writing[at] = lanes
        own = not self._recent or bool((writing[at] == lanes).all())
        for reads in self._recent:
            writer = writing[reads.at]
            own = own and not ((writer != reads.lanes) & (writer >= 0)).any()
        writing[at] = -1
        return own

    def _have_met_since(self, reads: Reads) -> bool:
        return bool((self.clocks.full[self._blocks(reads.lanes)] >= reads.event).all())

    def _blocks(self, lanes: Lanes) -> slice:
        """The rows of blocks from the first to the last one that lanes are of."""
        if lanes is not self._located[0]:
            per_block, some = self.clocks.per_block, slice(0)
            if lanes.size:
                some = slice(int(lanes.min()) // per_block, int(lanes.max()) // per_block + 1)
            self._located = lanes, some
        return self._located[1]

    def _aspects(self, columns: Lanes) -> Iterator[tuple[Aspect, Lanes]]:
        """Columns of reads that are known in the same way."""
        behind = self.warps + self.groups
        for aspect, first, last in (
            (Aspect.READS, 0, self.warps),
            (Aspect.READS, behind + _REMOTE, behind + _REMOTE + 1),
            (Aspect.WGMMA, self.warps, behind),
            (Aspect.BULK_READ, behind + _BULK, behind + _BULK + 1),
        ):
            some = columns[(columns >= first) & (columns < last)] if columns.size else columns
            if some.size:
                yield aspect, some

    # --- telling ---

    def note_write(self, at: Places, writers: Lanes, event: int, sort: int = Sort.PLAIN) -> None:
        shadow, index = self.shadow, index_of(at)
        shadow.written[index] = event
        shadow.writer[index] = writers
        if sort != Sort.PLAIN or shadow.any_sorts:
            shadow.any_sorts = True
            shadow.sort[index] = sort
        if sort > Sort.ATOMIC:
            shadow.any_copies = True
        else:
            shadow.last_write[self._blocks(writers)] = event

    def note_read(self, at: Places, lanes: Lanes, event: int) -> None:
        """Ordinary reads of lanes."""
        if self.clocks.wave.cluster_size > 1:
            remote = at // self.shadow.row != lanes // self.clocks.per_block
            if remote.any():
                self._note(at[remote], self.groups + _REMOTE, lanes[remote], event)
                at, lanes = at[~remote], lanes[~remote]
            self._note_of_warps(at, lanes, event)
            return
        self._recent.append(Reads(at, lanes, event))
        self._kept += len(at)
        if self._kept > _MOST_RECENT:
            self._enter_recent()

    def _enter_recent(self) -> None:
        recent, self._recent, self._kept = self._recent, [], 0
        for reads in recent:
            if not self._have_met_since(reads):
                self._note_of_warps(*reads)

    def note_wgmma(self, at: Places, lane: int, event: int) -> None:
        self._note(at, lane % self.clocks.per_block // (4 * WARP), lane, event)

    def note_bulk_read(self, at: Places, lanes: Lanes, event: int) -> None:
        self._note(at, self.groups + _BULK, lanes, event)

    def _note(self, at: Places, column: int, lanes: Lanes | int, event: int) -> None:
        """Reads of one of the columns behind those of warps."""
        column, index = column + self.warps, index_of(at)
        self.shadow.last_read[column] = event
        self.shadow.read[column][index] = event
        self.shadow.reader[column][index] = lanes

    def _note_of_warps(self, at: Places, lanes: Lanes, event: int) -> None:
        clocks, shadow = self.clocks, self.shadow
        warps = lanes // WARP
        blocks = warps // self.warps
        column = warps - blocks * self.warps
        shadow.last_read[column, blocks] = event
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


def questions(*asked: Array) -> Lanes:
    """The places where arrays of one length differ from the place before: neighbours who ask the
    same are one question."""
    fresh = np.ones(len(asked[0]), np.bool_)
    fresh[1:] = False
    for words in asked:
        fresh[1:] |= words[1:] != words[:-1]
    return np.flatnonzero(fresh)


def answers(given: Array, first: Lanes, count: int) -> Array:
    """The answers to `questions` at each of `count` places."""
    out: Array = np.repeat(given, np.diff(first, append=count))
    return out


def _lanes_of(bits: Lanes, first: Lanes) -> tuple[Lanes, Lanes]:
    """The lanes that masks of warps name, whose first lanes are given: for each the position of its
    mask, and its number."""
    item, lane = np.nonzero(bits[:, None] >> np.arange(WARP) & 1)
    return item, first[item] + lane
