"""What the vector engine tells the checks: each access and each synchronisation, as it happens.

There is one `GridWatch` for a launch and one `Watch` for each wave; a wave without checks has
none. The rules themselves are in the other files of this folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtypes import Array
from emulator.machine.checks import registers
from emulator.machine.checks.accesses import Conflict, SharedAccesses, Sort
from emulator.machine.checks.clocks import Aspect, Bools, Events, wider
from emulator.machine.checks.finding import Party
from emulator.machine.checks.reporter import GridWatch, Reporter
from emulator.machine.checks.synchronisation import Synchronisation
from emulator.machine.checks.wgmma import WatchedSpace, WgmmaChecks
from emulator.machine.vector.strand import WARP, Frame, Lanes, Strand
from emulator.machine.vector.wave import Wave
from emulator.memory.mbarrier import Barrier
from emulator.memory.shadow import granules
from emulator.ptx.program import Bound

Places = NDArray[np.int64]
#: words of an opcode by which a load or store takes part in synchronisation
_STRONG = frozenset({"relaxed", "acquire", "release", "acq_rel", "mmio"})
_DONE = {"read": "read", "write": "written"}
#: words of asynchronous copies' opcodes
_ASYNC = ("cp",)


class Watch(Reporter):
    """The checks of a wave."""

    def __init__(self, all_: GridWatch, wave: Wave) -> None:
        super().__init__(all_, wave)
        self.shared = SharedAccesses(self.clocks, wave.shared_bytes, all_.granules["shared"])
        self.sync = Synchronisation(self)
        self.wgmma_checks = WgmmaChecks(self)
        #: places of mbarriers that are initialised, as numbers of 8-byte words
        self.barriers: set[int] = set()
        lanes = len(wave.thread)
        #: of warps, how often they have executed setmaxnreg, and where the last one did
        self.counted, self.setting = np.zeros(lanes // WARP, np.int64), 0
        #: of a wgmma, by the first lanes of warpgroups: elements of its tiles that nobody wrote
        self.spoilt: dict[int, list[Bools]] = {}
        #: by block and lane of another block: its last access to the block's shared memory
        self.visits: dict[tuple[int, int], tuple[int, int]] = {}
        #: of blocks, what their threads knew when they ended
        self.farewell: dict[int, Events] = {}
        #: of warps, by the pc of a statement that waits for lanes: its membermask, and who is there
        self.expecting: dict[int, dict[int, tuple[int, int]]] = {}
        #: of warps of the grid, the event of the last fence for tensor maps
        self.map_fences: dict[int, int] = {}
        self.local_written = np.zeros((lanes, 0), np.bool_)
        #: places in shared memory of copies that are yet to be told their mbarrier
        self._awaiting: list[Places] = []

    # --- accesses of threads ---

    def loaded(self, s: Strand, view: Array, places: Places, size: int, which: Any) -> None:
        self._access(s.lanes if which is None else s.lanes[which], view, places, size, "read")

    def updated(self, s: Strand, view: Array, places: Places, size: int, which: Any) -> None:
        self._access(s.lanes if which is None else s.lanes[which], view, places, size, "atomic")

    def store(self, s: Strand, view: Array, places: Places, words: Array, which: Any) -> None:
        """Performs a store, and looks at it: what does not change memory conflicts with nothing."""
        size = view.itemsize * (view.shape[1] if view.ndim > 1 else 1)
        lanes = s.lanes if which is None else s.lanes[which]
        every = np.broadcast_to(places, lanes.shape)
        words = np.broadcast_to(words, (len(lanes), *words.shape[1:]))
        changed = view[every] != words
        view[every] = words
        lost = view[every] != words
        if view.ndim > 1:
            changed, lost = changed.any(1), lost.any(1)
        self._access(lanes, view, every, size, "write", changed)
        if lost.any():
            self._lost(lanes, view, every, size, lost)

    def _lost(self, lanes: Lanes, view: Array, places: Places, size: int, lost: Bools) -> None:
        """Lanes of one statement wrote different words to one place."""
        if self.memory_of(view) == "local":
            return
        index = int(np.argmax(lost))
        winner = int(np.flatnonzero((places == places[index]) & ~lost)[-1])
        name = self.name_of(view, int(places[index]) * size, size)
        self.report(
            "race", lanes[index : index + 1], int(lost.sum()),
            f"threads write different values to {name} in one statement",
            Party(self.place(), *self.who(lanes[winner : winner + 1])),
            self.statement.pc,
        )  # fmt: skip

    def _access(
        self,
        lanes: Lanes,
        view: Array,
        places: Places,
        size: int,
        use: str,
        changed: Bools | None = None,
    ) -> None:
        places = np.broadcast_to(places, lanes.shape) * size
        memory = self.memory_of(view)
        if memory == "local":
            self._local(places, size, use)
        elif memory == "shared":
            self._shared(lanes, places, size, use, changed)
        else:
            self._global(lanes, places, size, use, changed)

    def _local(self, places: Places, size: int, use: str) -> None:
        width = self.wave.local.shape[1]
        if self.local_written.shape[1] != width:
            grown = np.zeros(self.wave.local.shape, np.bool_)
            grown[:, : self.local_written.shape[1]] = self.local_written
            self.local_written = grown
        flat = self.local_written.reshape(-1)
        every = places[:, None] + np.arange(size)
        if use == "read":
            missing: Bools = ~flat[every].all(1)
            self.unwritten = missing if missing.any() else None
        else:
            flat[every] = True

    def _shared(
        self, lanes: Lanes, places: Places, size: int, use: str, changed: Bools | None
    ) -> None:
        shared, now = self.shared, self.now
        at = granules(places, size, shared.shadow.granule)
        count = at.shape[1]
        flat, who = at.reshape(-1), np.repeat(lanes, count)
        strong = use == "atomic" or not _STRONG.isdisjoint(self.words)
        if self.wave.cluster_size > 1:
            self._check_peers(lanes, places)
        if self.statement.pc in self.all.extents:
            self._check_variable(lanes, places, size, use)
        conflicts = shared.conflicts_with_writes(who, flat, atomic=strong)
        if use == "read":
            missing: Any = shared.shadow.unwritten(at).any(1)
            self.unwritten = missing if missing.any() else None
        else:
            conflicts += shared.conflicts_with_reads(who, flat)
        self._conflicts(conflicts, who, flat * shared.shadow.granule, size, use, changed, count)
        if use == "read":
            shared.note_read(flat, who, now)
        else:
            shared.note_write(flat, who, now, Sort.ATOMIC if strong else Sort.PLAIN)
            undefined = self.storing
            if undefined is not None and len(undefined) == len(lanes):
                shared.shadow.define(flat, np.repeat(undefined, count))
            else:
                shared.shadow.define(flat, None)

    def _check_variable(self, lanes: Lanes, places: Places, size: int, use: str) -> None:
        """Accesses stay within the variable whose address they were computed from."""
        extent = self.all.extents[self.statement.pc]
        inside = places % self.wave.shared_bytes
        wrong = (inside < extent.first) | (inside + size > extent.last)
        if wrong.any():
            index = int(np.argmax(wrong))
            launch = self.all.grid.launch
            verb = "read" if use == "read" else "written"
            self.report(
                "another variable", lanes[wrong], int(wrong.sum()),
                f"{launch.shared_name(int(inside[index]), size)} is {verb} through an address of "
                f"{launch.shared_name(extent.first)}",
            )  # fmt: skip

    def _check_peers(self, lanes: Lanes, places: Places) -> None:
        """Shared memory of another block of the cluster is accessed: that block must not end
        before."""
        rows, own = places // self.wave.shared_bytes, lanes // self.clocks.per_block
        far = rows != own
        if not far.any():
            return
        for row, lane, place in zip(
            rows[far].tolist(), lanes[far].tolist(), places[far].tolist(), strict=True
        ):
            self.visits[row, lane] = self.now, place

    def _global(
        self, lanes: Lanes, places: Places, size: int, use: str, changed: Bools | None
    ) -> None:
        memory, now, clocks = self.all.memory, self.now, self.clocks
        memory.shadow.need(len(self.all.grid.arena.view(1)))
        granule = memory.shadow.granule
        at = granules(places, size, granule)
        count = at.shape[1]
        flat, who = at.reshape(-1), np.repeat(lanes, count)
        threads = memory.threads(self.wave, who)
        strong = use == "atomic" or "volatile" in self.words or not _STRONG.isdisjoint(self.words)
        if strong and "cta" not in self.words:
            self._synchronise(lanes, places, use)
        conflicts = memory.conflicts_with_writes(clocks, who, threads, flat, atomic=strong)
        if use == "read" and not strong:
            self._check_read_only(lanes, at, threads.reshape(at.shape))
        if use != "read":
            if not strong:
                conflicts += memory.conflicts_with_reads(clocks, who, threads, flat)
            memory.note_write(flat, threads, now, Sort.ATOMIC if strong else Sort.PLAIN)
        elif not strong:
            memory.note_read(flat, threads, now)
        self._conflicts(conflicts, who, flat * granule, size, use, changed, count, everywhere=True)

    def _check_read_only(self, lanes: Lanes, at: Places, threads: Lanes) -> None:
        if "nc" not in self.words:
            return
        written = self.all.memory.shadow.written[at] > 0
        wrong = written.any(1)
        if wrong.any():
            index = int(np.argmax(wrong))
            place = int(at[index, int(np.argmax(written[index]))]) * self.all.granules["global"]
            self.report(
                "read-only load", lanes[wrong], int(wrong.sum()),
                f"{self.name_of(None, place)} is read by a load for read-only data, and the grid "
                "has written it",
            )  # fmt: skip

    def _synchronise(self, lanes: Lanes, places: Places, use: str) -> None:
        """Global memory as a flag."""
        memory = self.all.memory
        knowledge = memory.knowledge
        writes, reads = use != "read", use != "write"
        whole = not self.words.isdisjoint({"release", "acq_rel"})
        if not (knowledge.released or knowledge.fences or knowledge.held or whole):
            return
        for lane, place in zip(lanes.tolist(), places.tolist(), strict=True):
            if reads:
                memory.acquire(self.clocks, lane, place)
            if writes:
                memory.release(self.clocks, lane, place, self.now, whole=whole)

    def _conflicts(
        self,
        conflicts: Sequence[Conflict],
        who: Lanes,
        places: Places,
        size: int,
        use: str,
        changed: Bools | None,
        count: int,
        everywhere: bool = False,
    ) -> None:
        for conflict in conflicts:
            which, events, others = conflict.which, conflict.events, conflict.others
            if changed is not None and conflict.before == "write":
                # To write what is there already is harmless.
                keep = changed[which // count]
                which, events, others = which[keep], events[keep], others[keep]
            if not which.size:
                continue
            element = size if size <= 8 else 4
            self._conflict(conflict, which, events, others, who, places, element, use, everywhere)

    def _conflict(
        self,
        conflict: Conflict,
        which: Lanes,
        events: Array,
        others: Lanes,
        who: Lanes,
        places: Places,
        size: int,
        use: str,
        everywhere: bool,
    ) -> None:
        first = int(which[0])
        event, other = int(events[0]), int(others[0])
        pc = self.all.pcs[event]
        view = None if everywhere else self.wave.shared
        name = self.name_of(view, int(places[first]), size)
        verb = {"read": "reads", "write": "writes", "atomic": "updates"}[use]
        kind, reason = self._words_of(conflict, everywhere, other, int(who[first]), verb, name)
        earlier = None
        if pc >= 0 and other >= 0:
            block, threads = self.thread(other) if everywhere else self.who(np.array([other]))
            done = "wrote it" if conflict.before == "write" else "read it"
            earlier = Party(self.place(pc), block, threads, done)
        elif pc >= 0:
            earlier = Party(self.place(pc), self.who(who[first : first + 1])[0], (), "wrote it")
        lanes = np.unique(who[which])
        self.report(kind, lanes, len(lanes), reason, earlier, pc)

    def _words_of(
        self, conflict: Conflict, everywhere: bool, other: int, lane: int, verb: str, name: str
    ) -> tuple[str, str]:
        if conflict.before == "read" and self._is_async(conflict):
            return (
                "overwritten too early",
                f"{verb} {name}, which an asynchronous operation may still read",
            )
        if conflict.sort in (Sort.COPY, Sort.BARRIER):
            kind = "read before wait" if verb == "reads" else "overwritten too early"
            return kind, f"{verb} {name}, which a copy under way writes"
        done = "wrote" if conflict.before == "write" else "read"
        if everywhere:
            block = self.wave.ctas[lane // self.clocks.per_block]
            if other // self.all.memory.per_block != block:
                return (
                    "race between blocks",
                    f"{verb} {name}, which a thread of another block {done}; nothing orders them",
                )
        elif other // WARP == lane // WARP:
            return (
                "race",
                f"{verb} {name}, which another lane of the warp {done}; without bar.warp.sync "
                "nothing orders them",
            )
        return "race", f"{verb} {name}, which another thread {done}; nothing orders them"

    def _is_async(self, conflict: Conflict) -> bool:
        pc = self.all.pcs[int(conflict.events[0])]
        name = self.all.grid.program.statements[pc].name if pc >= 0 else ""
        return name in ("cp", "wgmma")

    # --- accesses of whole warps and of asynchronous operations ---

    def rows(self, lanes: Lanes, places: Places, size: int, *, write: bool) -> None:
        """ldmatrix and stmatrix: rows in shared memory, each at the address of one lane."""
        self._shared(lanes, places, size, "write" if write else "read", None)

    def touched(self, lanes: Lanes, held: Array, places: Places, size: int, write: bool) -> None:
        """Bytes that a copy, or a load or store of a matrix, finds in memory."""
        memory = self.memory_of(held)
        if self.statement.name not in _ASYNC:
            every = np.broadcast_to(places, lanes.shape)
            use = "write" if write else "read"
            if memory == "shared":
                self._shared(lanes, every, size, use, None)
            elif memory == "global":
                self._global(lanes, every, size, use, None)
            return
        if memory == "global":
            self._of_copy_global(lanes, places, size, write)
        elif memory == "shared":
            self._of_copy(lanes, places, size, write)

    def _of_copy_global(self, lanes: Lanes, places: Places, size: int, write: bool) -> None:
        every = np.broadcast_to(places, lanes.shape)
        self._global(lanes, every, size, "write" if write else "read", None)

    def _of_copy(self, lanes: Lanes, places: Places, size: int, write: bool) -> None:
        """An asynchronous copy reads or writes shared memory for its lanes."""
        shared, granule = self.shared, self.shared.shadow.granule
        at = granules(np.broadcast_to(places, lanes.shape), size, granule)
        flat, who = at.reshape(-1), np.repeat(lanes, at.shape[1])
        bulk = "bulk" in self.words
        use = "write" if write else "read"
        if not write:
            conflicts = shared.conflicts_with_writes(who, flat, proxy=bulk)
            self._of_proxy(conflicts, who, flat * granule, size, at.shape[1])
            if "bulk_group" in self.words:
                for lane in np.unique(lanes).tolist():
                    shared.note_bulk_read(flat[who == lane], lane, self.now)
                self.bulk.issue(lanes, self.now)
            return
        self._of_proxy(
            shared.conflicts_with_writes(who, flat, proxy=bulk), who, flat * granule, size,
            at.shape[1], "write",
        )  # fmt: skip
        conflicts = shared.conflicts_with_reads(who, flat)
        self._conflicts(conflicts, who, flat * granule, size, use, None, at.shape[1])
        if bulk or "mbarrier::complete_tx::bytes" in self.words:
            self._awaiting.append(flat)
        else:
            shared.note_write(flat, who, self.now, Sort.COPY)
            shared.shadow.define(flat, None)
            self.copies.issue(lanes, self.now)

    def _of_proxy(
        self,
        conflicts: Sequence[Conflict],
        who: Lanes,
        places: Places,
        size: int,
        count: int,
        use: str = "read",
    ) -> None:
        """Conflicts of reads by the asynchronous proxy: those that a fence alone would mend are
        told apart."""
        for conflict in conflicts:
            which, events, others = conflict.which, conflict.events, conflict.others
            if conflict.sort == Sort.BARRIER:
                self._conflicts([conflict], who, places, size, use, None, count)
                continue
            aspect = Aspect.COPIES if conflict.sort == Sort.COPY else Aspect.PLAIN
            plain = self.clocks.ordered(aspect, who[which], others, events)
            if not plain.all():
                rest = Conflict(
                    "write", which[~plain], events[~plain], others[~plain], conflict.sort
                )
                self._conflicts([rest], who, places, size, use, None, count)
            if not plain.any():
                continue
            first = int(np.argmax(plain))
            pc, other = self.all.pcs[int(events[first])], others[first : first + 1]
            name = self.name_of(self.wave.shared, int(places[which[first]]))
            earlier = Party(self.place(pc), *self.who(other), "wrote it")
            lanes = np.unique(who[which[plain]])
            self.report(
                "missing proxy fence", lanes, len(lanes),
                f"{name} was written by the generic proxy and is {_DONE[use]} by the asynchronous "
                "one; no fence.proxy.async stands between them", earlier, pc,
            )  # fmt: skip

    def issued(self, lane: int, barrier: int | None) -> None:
        """The copy whose places were told is issued, and signals an mbarrier."""
        awaiting, self._awaiting = self._awaiting, []
        if barrier is None:
            return
        self._use_of_barrier(np.array([lane]), np.array([barrier]))
        column = self.sync.tell_copy(barrier)
        for flat in awaiting:
            self.shared.note_write(flat, np.full(len(flat), column), self.now, Sort.BARRIER)
            self.shared.shadow.define(flat, None)

    def space(self, held: Array, lanes: Lanes) -> WatchedSpace:
        """Shared memory of blocks for the wgmma of warpgroups, by their first lanes."""
        return WatchedSpace(
            self.wgmma_reads, held, int(lanes.flat[0]) // self.clocks.per_block, lanes
        )

    def wgmma_reads(self, block: int, addresses: Places, lane: int) -> None:
        """Elements in the shared memory of a block that a wgmma of a warpgroup reads."""
        shared = self.shared
        row, granule = shared.shadow.row, shared.shadow.granule
        mark = np.zeros(row, np.bool_)
        mark[addresses // granule] = True
        flat = np.flatnonzero(mark) + block * row
        who = np.full(len(flat), lane)
        # Each of the four warps must know of what is read.
        warps, every = np.repeat(lane + WARP * np.arange(4), len(flat)), np.tile(flat, 4)
        self._of_proxy(
            shared.conflicts_with_writes(warps, every, proxy=True), warps, every * granule, granule,
            1,
        )  # fmt: skip
        shared.note_wgmma(flat, who, self.now)
        missing = shared.shadow.unwritten(flat)
        if missing.any():
            every_place = addresses // granule + block * row
            self.spoilt.setdefault(lane, []).append(shared.shadow.unwritten(every_place))
        else:
            self.spoilt.setdefault(lane, []).append(np.zeros(0, np.bool_))

    def stored_by_copy(self, lane: int, places: Places) -> None:
        """Bytes of shared memory that a bulk copy stores to global memory."""
        shared = self.shared
        at = np.unique(places // shared.shadow.granule)
        missing = shared.shadow.unwritten(at)
        if missing.any():
            place = int(at[int(np.argmax(missing))]) * shared.shadow.granule
            self.report(
                "uninitialised memory", np.array([lane]), 1,
                f"{self.name_of(self.wave.shared, place)}, which nothing has written, is stored to "
                "global memory",
            )  # fmt: skip

    def cluster_arrive(self, lanes: Lanes) -> None:
        self.sync.arrive_at_cluster(lanes, relaxed="relaxed" in self.words)

    # --- calls ---

    def entered(self, s: Strand, frame: Frame, arguments: tuple[Bound, ...]) -> None:
        registers.entered(s, frame, arguments)

    def returned(self, s: Strand, frame: Frame, results: tuple[int, ...]) -> None:
        registers.returned(s, frame, results)

    def written(self, s: Strand, results: tuple[int, ...]) -> None:
        """A function of the system has returned."""
        count = registers.count_of(s.frames[-1].function)
        registers.put(s, tuple(i + count for i in results), registers.CLEAN, None)

    # --- membermasks ---

    def masks_disagree(self, s: Strand, masks: Array) -> None:
        """Lanes of one warp name different masks, which have lanes in common."""
        warps = s.lanes // WARP
        first = masks[np.searchsorted(warps, warps)]
        for warp in np.unique(warps[masks != first]).tolist():
            mine = np.flatnonzero(warps == warp)
            different = np.unique(masks[mine]).tolist()
            common = [a & b for i, a in enumerate(different) for b in different[:i]]
            if any(common):
                names = ", ".join(f"{mask:#010x}" for mask in different[:3])
                self.report(
                    "shuffle", s.lanes[mine], len(mine),
                    f"lanes of one warp name different membermasks: {names}",
                )  # fmt: skip

    def masks_elsewhere(self, s: Strand, masks: Array) -> None:
        """Some lanes of warps are here: are they waited for at another statement?"""
        pc, lanes = self.statement.pc, s.lanes
        for warp in np.unique(lanes // WARP).tolist():
            mine = lanes // WARP == warp
            here = int((1 << (lanes[mine] % WARP)).sum())
            waiting = self.expecting.setdefault(warp, {})
            for other, (mask, there) in waiting.items():
                if other != pc and mask & ~there & here:
                    block, thread = self.wave.coordinates(warp * WARP)
                    earlier = Party(self.place(other), block, (thread,), "waits for all it names")
                    self.report(
                        "shuffle", lanes[mine], int(mine.sum()),
                        f"lanes that a membermask {mask:#010x} names elsewhere are here", earlier,
                        other,
                    )  # fmt: skip
            mask, there = waiting.get(pc, (0, 0))
            waiting[pc] = mask | int(np.bitwise_or.reduce(masks[mine])), there | here
            if waiting[pc][0] & ~waiting[pc][1] == 0:
                del waiting[pc]

    # --- mbarriers ---

    def mbarrier_init(self, lanes: Lanes, places: Places) -> None:
        """mbarrier.init: a write of its 8 bytes."""
        self._shared(lanes, np.broadcast_to(places, lanes.shape) * 8, 8, "write", None)
        self.barriers.update(np.unique(places).tolist())

    def mbarrier_inval(self, places: Places) -> None:
        self.barriers.difference_update(np.unique(places).tolist())

    def mbarrier_used(self, lanes: Lanes, places: Places, *, arrives: bool = True) -> None:
        places = np.broadcast_to(places, lanes.shape)
        self._use_of_barrier(lanes, places)
        if arrives:
            self.sync.tell_mbarrier(lanes, places)

    def _use_of_barrier(self, lanes: Lanes, places: Places) -> None:
        """A thread uses mbarriers: they are initialised, and it knows that."""
        unknown = np.array([place not in self.barriers for place in places.tolist()])
        if unknown.any():
            index = int(np.argmax(unknown))
            name = self.name_of(self.wave.shared, int(places[index]) * 8, 8)
            self.report(
                "mbarrier", lanes[unknown], int(unknown.sum()),
                f"{name} is used as an mbarrier, and no mbarrier.init has made it one",
            )  # fmt: skip
            return
        shadow = self.shared.shadow
        at = granules(places * 8, 8, shadow.granule)[:, 0]
        for conflict in self.shared.conflicts_with_writes(lanes, at, atomic=True):
            first = int(conflict.which[0])
            pc = self.all.pcs[int(conflict.events[0])]
            name = self.name_of(self.wave.shared, int(places[first]) * 8, 8)
            earlier = Party(self.place(pc), *self.who(conflict.others[:1]), "initialised it")
            wrong = lanes[conflict.which]
            self.report(
                "mbarrier", wrong, len(wrong),
                f"mbarrier {name} is used, and nothing says that its mbarrier.init comes before",
                earlier, pc,
            )  # fmt: skip

    # --- ends ---

    def ended(self, lanes: Lanes) -> None:
        """Lanes end: what they have issued must be over."""
        if self.all.has_peers:
            for row in np.unique(lanes // self.clocks.per_block).tolist():
                mine = lanes[lanes // self.clocks.per_block == row]
                told, have = self.clocks.released(mine, self.now), self.farewell.get(row)
                self.farewell[row] = told if have is None else wider(have, told)
        open_ = self.bulk.issued[lanes] > self.clocks.own[Aspect.BULK_READ, lanes]
        if open_.any():
            pc = self.all.pcs[int(self.bulk.issued[lanes[open_][0]])]
            earlier = Party(self.place(pc), *self.who(lanes[open_][:1]), "issued one")
            self.report(
                "left open", lanes[open_], int(open_.sum()),
                "the thread ends before its bulk copies have read shared memory", earlier, pc,
            )  # fmt: skip

    def finish(self) -> None:
        """All threads of the wave have ended: what is left in its mbarriers?"""
        words = self.wave.shared.reshape(-1).view(np.uint64)
        for place in sorted(self.barriers):
            held = Barrier.decode(int(words[place]))
            if held.transactions:
                row, offset = divmod(8 * place, self.wave.shared_bytes)
                name = self.all.grid.launch.shared_name(offset, 8)
                lane = np.array([row * self.clocks.per_block])
                what = "are expected that never came" if held.transactions > 0 else "too many came"
                self.report(
                    "left open", lane, 1,
                    f"mbarrier {name}: {abs(held.transactions)} bytes {what}", None, offset,
                )  # fmt: skip
        self._check_visits()
        self._check_registers_of_warps()

    def _check_visits(self) -> None:
        """Every access to another block's shared memory comes before that block's end."""
        clocks = self.clocks
        for (row, lane), (event, place) in self.visits.items():
            known = self.farewell.get(row)
            if known is not None and event <= known[Aspect.PLAIN, lane % clocks.per_cluster]:
                continue
            block, _ = self.wave.coordinates(row * clocks.per_block)
            self.report(
                "peer has ended", np.array([lane]), 1,
                f"{self.name_of(self.wave.shared, place)} of block {block} is accessed, and "
                "nothing keeps that block from ending before", pc=self.all.pcs[event],
            )  # fmt: skip

    def set_registers(self, lanes: Lanes) -> None:
        self.counted[np.unique(lanes // WARP)] += 1
        self.setting = self.statement.pc

    def _check_registers_of_warps(self) -> None:
        per_block = self.wave.warps_per_cta
        for first in range(0, per_block - per_block % 4, 4):
            counts = self.counted.reshape(-1, per_block)[:, first : first + 4]
            uneven = np.flatnonzero((counts != counts[:, :1]).any(1))
            if uneven.size:
                lane = (int(uneven[0]) * per_block + first) * WARP
                self.report(
                    "setmaxnreg", np.array([lane]), len(uneven),
                    f"warps {first} to {first + 3}, a warpgroup, execute setmaxnreg "
                    f"{counts[uneven[0]].tolist()} times", pc=self.setting,
                )  # fmt: skip

    def map_used(self, lane: int, held: Array, place: int) -> None:
        """A tensor copy reads the map at a place of global memory."""
        if self.memory_of(held) != "global":
            return
        memory = self.all.memory
        at = np.unique(np.arange(place, place + 128) // memory.shadow.granule)
        edited = memory.shadow.written[at]
        last = int(edited.max())
        warp = int(memory.threads(self.wave, np.array([lane]))[0]) // WARP
        if last and self.map_fences.get(warp, 0) < last:
            pc = self.all.pcs[last]
            writer = int(memory.shadow.writer[at[int(np.argmax(edited))]])
            earlier = Party(self.place(pc), *self.thread(writer), "changed it")
            self.report(
                "tensor map", np.array([lane]), 1,
                f"the tensor map {self.name_of(None, place)} was changed, and no fence of its "
                "proxy stands before the copy that uses it", earlier, pc,
            )  # fmt: skip

    def tensor_map_fence(self, lanes: Lanes) -> None:
        threads = self.all.memory.threads(self.wave, lanes)
        for warp in np.unique(threads // WARP).tolist():
            self.map_fences[warp] = self.now

    # --- synchronisation of blocks and of the grid ---

    def gather_warps(self, lanes: Lanes) -> None:
        """A barrier of warps: what a lane knows of other blocks, its warp knows."""
        knowledge = self.all.memory.knowledge
        if not knowledge.held:
            return
        threads = self.all.memory.threads(self.wave, lanes)
        for thread in threads.tolist():
            known = knowledge.held.get(("thread", thread))
            if known is not None:
                knowledge.learn(("warp", thread // WARP), known)
