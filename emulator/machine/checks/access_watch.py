"""Checks of the threads' accesses to shared, local and global memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from dtypes import Array
from emulator.isa.tcgen05 import Tcgen05
from emulator.machine.checks.accesses import Conflict, SharedAccesses, Sort
from emulator.machine.checks.clocks import Aspect, Bools
from emulator.machine.checks.finding import Party
from emulator.machine.checks.grid_memory import Touch
from emulator.machine.checks.kinds import IN_A_CLUSTER, IN_ONE_STATEMENT
from emulator.machine.checks.reporter import GridWatch, Reporter
from emulator.machine.checks.synchronisation import Synchronisation
from emulator.machine.shared.place import shown
from emulator.machine.shared.products import is_wgmma
from emulator.machine.vector.strand import WARP, Lanes, Strand
from emulator.machine.vector.watching import Which
from emulator.machine.vector.wave import Wave
from emulator.memory.shadow import granules, index_of, regrouped
from emulator.ptx.program import Statement

Places = NDArray[np.int64]
#: words of shared memory: an mbarrier, and one that something else was written over
BARRIER, OVERWRITTEN = 1, 2
#: words of an opcode by which a load or store takes part in synchronisation
_STRONG = frozenset({"relaxed", "acquire", "release", "acq_rel", "mmio"})
#: atomic operations that give a word a value, or some of its bits: a barrier of cooperative groups
#: has one bit for each warp in a word, and each warp clears its own by an `and`
_SETS = frozenset({"exch", "and"})
_RELEASES = frozenset({"release", "acq_rel"})


def _is_volatile(statement: Statement) -> bool:
    return "volatile" in str(statement.instruction).split(".")


class AccessWatch(Reporter):
    """Loads, stores and atomic operations, each of which is told when it happens."""

    def __init__(self, all_: GridWatch, wave: Wave) -> None:
        super().__init__(all_, wave)
        self.sync = Synchronisation(self)
        self.shared = SharedAccesses(self.clocks, wave.shared_bytes, all_.granules["shared"])
        self.local_written: Bools = np.zeros((wave.lanes, 0), np.bool_)
        #: of lanes, the event of their last access to shared memory that was no flag
        self.accessed = np.zeros(wave.lanes, np.int32)
        #: words of shared memory that are mbarriers, as `BARRIER` or `OVERWRITTEN`
        self.barriers = np.zeros(wave.shared.size // 8, np.int8)
        self.any_barriers = False
        #: of lanes, where the shared memory of their block starts, and their numbers in the grid
        self._row_starts = np.arange(wave.lanes) // self.clocks.per_block * wave.shared_bytes
        self._indexed: tuple[Lanes, Lanes | slice] = np.zeros(0, np.int64), slice(0)
        self._threads = all_.memory.threads(wave, np.arange(wave.lanes))
        #: blocks with lanes of other blocks that know that they have started
        self.started: set[tuple[int, int]] = set()
        #: by block and lane of another block: its last access to the block's shared memory
        self.visits: dict[tuple[int, int], tuple[int, int]] = {}

    def loaded(self, s: Strand, view: Array, places: Places, size: int, which: Which) -> None:
        self._access(s.lanes if which is None else s.lanes[which], view, places, size, "read")

    def updated(self, s: Strand, view: Array, places: Places, size: int, which: Which) -> None:
        self._access(s.lanes if which is None else s.lanes[which], view, places, size, "atomic")

    def store(self, lanes: Lanes, view: Array, places: Places, words: Array) -> None:
        """Performs a store, and looks at it: what does not change memory conflicts with nothing."""
        size = view.itemsize * (view.shape[1] if view.ndim > 1 else 1)
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
        apart = lanes[winner] // self.clocks.per_block != lanes[index] // self.clocks.per_block
        kind = "race between blocks" if apart and self.memory_of(view) == "global" else "race"
        name = self.name_of(view, int(places[index]) * size + self._origin(view), size)
        self.report(
            kind,
            lanes[index : index + 1],
            f"threads write different values to {name} in one statement",
            Party(self.place(), *self.who(lanes[winner : winner + 1])),
            self.statement.pc,
            advice=IN_ONE_STATEMENT,
            count=int(lost.sum()),
        )

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
            self._local(lanes, places, size, use)
        elif memory == "shared":
            self.access_shared(lanes, places, size, use, changed)
        else:
            places += self.all.grid.arena.origin
            self.access_global(lanes, places, size, use, changed)

    def _origin(self, view: Array) -> int:
        """Where the first byte of global memory is counted that an access looks at."""
        return self.all.grid.arena.origin if self.memory_of(view) == "global" else 0

    def _local(self, lanes: Lanes, places: Places, size: int, use: str) -> None:
        width = self.wave.local.shape[1]
        if self.local_written.shape[1] != width:
            grown = np.zeros(self.wave.local.shape, np.bool_)
            grown[:, : self.local_written.shape[1]] = self.local_written
            self.local_written = grown
        flat = self.local_written.reshape(-1)
        every = places[:, None] + np.arange(size)
        if use == "read":
            self._missing(lanes, ~flat[every])
        else:
            undefined = self._stored(lanes, size)
            flat[every] = True if undefined is None else ~undefined

    def _missing(self, lanes: Lanes, missing: Bools) -> None:
        """Pieces that lanes read, and whether nothing wrote them."""
        if missing.any():
            self.unwritten.append((lanes, missing))

    def _stored(self, lanes: Lanes, pieces: int) -> Bools | None:
        """Flags ``(lanes, pieces)`` of the stored pieces that hold values nobody wrote."""
        if self.storing is None:
            return None
        every, items = self.storing
        return regrouped(items[np.searchsorted(every, lanes)], pieces)

    def access_shared(
        self, lanes: Lanes, places: Places, size: int, use: str, changed: Bools | None
    ) -> None:
        shared, now = self.shared, self.now
        every = granules(places, size, shared.shadow.granule)
        at = self._used(every, shared.shadow.granule)
        count = at.shape[1]
        flat, who = at.reshape(-1), lanes if count == 1 else np.repeat(lanes, count)
        strong = use == "atomic" or not _STRONG.isdisjoint(self.words)
        volatile = "volatile" in self.words
        strong |= volatile and use == "write" and self._follow_a_fence(lanes)
        hears = volatile and use == "read"
        if self.wave.cluster_size > 1:
            self._check_peers(lanes, places)
        if self.statement.pc in self.all.extents:
            self._check_variable(lanes, places, size, use)
        conflicts = shared.conflicts_with_writes(who, flat, atomic=strong or hears)
        missing = None if use == "write" else shared.shadow.unwritten(every)
        if missing is not None:
            self._missing(lanes, missing)
        if use != "read":
            reads = shared.conflicts_with_reads(who, flat)
            conflicts += (
                [self.without(_is_volatile, x) for x in reads] if volatile and strong else reads
            )
        if conflicts:
            self.conflicts(conflicts, who, flat * shared.shadow.granule, use, changed, count)
        if use != "read" and self.any_barriers:
            self.check_barriers(who, flat)
        if strong or hears:
            self.sync.flag(lanes, places, use, whole=not _RELEASES.isdisjoint(self.words))
        if not strong:
            self.accessed[self._index_of(lanes)] = now
        if use == "read":
            if not strong:
                shared.note_read(flat, who, now)
        else:
            shared.note_write(flat, who, now, Sort.ATOMIC if strong else Sort.PLAIN)
            shared.shadow.define(flat, self._undefined(lanes, every.shape[1], missing))

    def _index_of(self, lanes: Lanes) -> Lanes | slice:
        """Lanes as an index; most statements have those of the one before."""
        if lanes is not self._indexed[0]:
            self._indexed = lanes, index_of(lanes)
        return self._indexed[1]

    def check_barriers(self, who: Lanes, at: Places) -> None:
        """Reports ordinary writes to granules in which mbarriers lie."""
        granule = self.shared.shadow.granule
        words = at * granule // 8
        lost = self.barriers[words] == BARRIER
        if not lost.any():
            return
        first = int(np.argmax(lost))
        event = int(self.shared.shadow.written[at[first]])
        writer = self.shared.shadow.writer[at[first : first + 1]].astype(np.int64)
        earlier = Party(self.place(self.all.pcs[event]), *self.who(writer), "initialised it")
        name = self.name_of(self.wave.shared, int(words[first]) * 8, 8)
        lanes = np.unique(who[lost])
        self.report(
            "mbarrier",
            lanes,
            f"mbarrier {name} is overwritten, and no mbarrier.inval comes before",
            earlier,
        )
        self.barriers[words[lost]] = OVERWRITTEN

    def _follow_a_fence(self, lanes: Lanes) -> bool:
        """True if lanes have accessed no shared memory since a fence. A volatile store is then a
        flag; a warp's sum in volatile words has none, for each of its steps reads first."""
        return bool((self.fences[lanes] > self.accessed[lanes]).all())

    def without(self, excluded: Callable[[Statement], bool], conflict: Conflict) -> Conflict:
        """The part of a conflict with statements that are not excluded."""
        statements, pcs = self.all.grid.program.statements, self.all.pcs
        keep = np.flatnonzero([not excluded(statements[pcs[x]]) for x in conflict.events.tolist()])
        return conflict._replace(
            which=conflict.which[keep], events=conflict.events[keep], others=conflict.others[keep]
        )

    def _used(self, at: Places, granule: int) -> Places:
        """The granules whose bytes a load uses: others it may read while somebody writes them."""
        mask = self.statement.used_bytes
        if mask is None:
            return at
        each = (1 << granule) - 1
        return at[:, [i for i in range(at.shape[1]) if mask >> i * granule & each]]

    def _undefined(self, lanes: Lanes, pieces: int, missing: Bools | None) -> Bools | None:
        """The granules that hold values nobody wrote behind a store, or behind an atomic operation
        on some that did before, `missing`."""
        out = self._stored(lanes, pieces)
        if missing is not None and _SETS.isdisjoint(self.words):
            # What is computed from nothing is nothing.
            out = missing if out is None else missing | out
        return None if out is None else out.reshape(-1)

    def _check_variable(self, lanes: Lanes, places: Places, size: int, use: str) -> None:
        """Accesses stay within the variable whose address they were computed from."""
        extent = self.all.extents[self.statement.pc]
        if self.wave.cluster_size == 1:
            inside = places - self._row_starts[self._index_of(lanes)]
        else:
            inside = places % self.wave.shared_bytes
        if not inside.size or (inside.min() >= extent.first and inside.max() + size <= extent.last):
            return
        wrong = (inside < extent.first) | (inside + size > extent.last)
        if wrong.any():
            index = int(np.argmax(wrong))
            launch = self.all.grid.launch
            verb = "read" if use == "read" else "written"
            self.report(
                "another variable",
                lanes[wrong],
                f"{self.name_of(self.wave.shared, int(inside[index]))} is {verb} through an "
                f"address of {launch.shared_name(extent.first)}",
            )

    def _check_started(self, row: int, lanes: Lanes) -> None:
        """Lanes access shared memory of another block: one of them knows of something that a
        thread of it did, or of its arrival at a barrier of the cluster."""
        fresh = lanes[[(row, lane) not in self.started for lane in lanes.tolist()]]
        if not fresh.size:
            return
        first = row * self.clocks.per_block
        known = self.clocks.seen(fresh)[:, first % self.clocks.per_cluster :]
        told = [self.all.memory.heard_of(self.wave, lane, row) for lane in fresh.tolist()]
        unknown = ~(known[:, : self.clocks.per_block].any(1) | np.array(told))
        self.started.update((row, lane) for lane in fresh[~unknown].tolist())
        if unknown.any():
            block, _ = self.wave.coordinates(first)
            self.report(
                "peer has not started",
                fresh[unknown],
                f"shared memory of block {shown(block)} is accessed, and nothing says that this "
                "block has started",
            )

    def _check_peers(self, lanes: Lanes, places: Places) -> None:
        """Shared memory of another block of the cluster is accessed: that block must have started,
        and must not end before."""
        rows, own = places // self.wave.shared_bytes, lanes // self.clocks.per_block
        far = rows != own
        if not far.any():
            return
        for row in np.unique(rows[far]).tolist():
            self._check_started(row, lanes[far & (rows == row)])
        for row, lane, place in zip(
            rows[far].tolist(), lanes[far].tolist(), places[far].tolist(), strict=True
        ):
            self.visits[row, lane] = self.now, place

    def access_global(
        self, lanes: Lanes, places: Places, size: int, use: str, changed: Bools | None
    ) -> None:
        memory, now, clocks = self.all.memory, self.now, self.clocks
        memory.shadow.need(self.all.grid.arena.used)
        granule = memory.shadow.granule
        every = granules(places, size, granule)
        at = self._used(every, granule)
        count = at.shape[1]
        threads = self._threads[self._index_of(lanes)]
        touch = Touch.of(at.reshape(-1), lanes, threads, count)
        strong = use == "atomic" or "volatile" in self.words or not _STRONG.isdisjoint(self.words)
        if strong and "cta" not in self.words:
            self._synchronise(lanes, places, use)
        conflicts = memory.conflicts_with_writes(clocks, touch, atomic=strong)
        if use != "write":
            self._fresh(lanes, places, every)
        if use == "read" and not strong:
            self._check_read_only(lanes, at)
        if use != "read":
            if self.publishing is not None:
                self.publishing(lanes)
            if not strong:
                conflicts += memory.conflicts_with_reads(clocks, touch)
            sort = Sort.ATOMIC if strong else Sort.PLAIN
            if "bulk_group" in self.words:
                sort = Sort.BULK_ATOMIC if strong else Sort.BULK
            memory.note_write(touch, now, sort)
        elif not strong:
            memory.note_read(touch, now)
        if conflicts:
            places = touch.at * granule
            self.conflicts(conflicts, touch.lanes, places, use, changed, count, everywhere=True)

    def _fresh(self, lanes: Lanes, places: Places, at: Places) -> None:
        """Reads of memory that malloc gave to this grid and nothing has written; what the host has
        given is written, and so is what grids before this one have left."""
        held = sorted((x.start, x.start + x.size) for x in self.all.grid.launch.heap.own)
        if not held:
            return
        starts, ends = np.array(held).T
        which = np.searchsorted(starts, places, "right") - 1
        inside = (which >= 0) & (places < ends[which])
        self._missing(lanes, inside[:, None] & (self.all.memory.shadow.written[at] == 0))

    def _check_read_only(self, lanes: Lanes, at: Places) -> None:
        if "nc" not in self.words:
            return
        written = self.all.memory.shadow.written[at] > 0
        wrong = written.any(1)
        if wrong.any():
            index = int(np.argmax(wrong))
            place = int(at[index, int(np.argmax(written[index]))]) * self.all.granules["global"]
            self.report(
                "read-only load",
                lanes[wrong],
                f"{self.name_of(None, place)} is read by a load for read-only data, and the grid "
                "has written it",
            )

    def _synchronise(self, lanes: Lanes, places: Places, use: str) -> None:
        """Global memory as a flag."""
        memory = self.all.memory
        knowledge = memory.knowledge
        writes, reads = use != "read", use != "write"
        whole = not _RELEASES.isdisjoint(self.words)
        if not (knowledge.released or knowledge.fences or knowledge.held or whole):
            return
        for lane, place in zip(lanes.tolist(), places.tolist(), strict=True):
            if reads:
                memory.acquire(self.clocks, lane, place, self.now)
            if writes:
                memory.release(self.clocks, lane, place, self.now, whole=whole)

    def conflicts(
        self,
        conflicts: Sequence[Conflict],
        who: Lanes,
        places: Places,
        use: str,
        changed: Bools | None,
        count: int,
        everywhere: bool = False,
    ) -> None:
        for conflict in conflicts:
            which, events, others = conflict.which, conflict.events, conflict.others
            if changed is not None and conflict.before == "write" and conflict.sort <= Sort.ATOMIC:
                # To write what is there already is harmless.
                keep = changed[which // count]
                which, events, others = which[keep], events[keep], others[keep]
            if not which.size:
                continue
            self._conflict(conflict, which, events, others, who, places, use, everywhere)

    def _conflict(
        self,
        conflict: Conflict,
        which: Lanes,
        events: Array,
        others: Lanes,
        who: Lanes,
        places: Places,
        use: str,
        everywhere: bool,
    ) -> None:
        first = int(which[0])
        event, other = int(events[0]), int(others[0])
        pc = self.all.pcs[event]
        view = None if everywhere else self.wave.shared
        name = self.name_of(view, int(places[first]))
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
        reason += self._uncovered(conflict, self._lane_of(other) if everywhere else other, event)
        far = other // self.clocks.per_block != int(who[first]) // self.clocks.per_block
        advice = IN_A_CLUSTER if far and not everywhere and kind == "race" else ""
        self.report(kind, lanes, reason, earlier, pc, advice=advice)

    def _lane_of(self, thread: int) -> int:
        """The lane of the wave that a number in the grid stands for; -1: it is in another wave."""
        block, inside = divmod(thread, self.clocks.per_block)
        row = int(self.wave.rows_by_cta(np.array(block)))
        return -1 if row < 0 else row * self.clocks.per_block + inside

    def _uncovered(self, conflict: Conflict, lane: int, event: int) -> str:
        """The operations that a wait left pending, if the conflict is with one of a group; `lane`
        -1: of another wave, or an mbarrier's."""
        if lane < 0:
            return ""
        if conflict.sort == Sort.COPY:
            return self.left_under_way(self.copies, Aspect.COPIES, lane, event)
        if conflict.before == "read" and self._is_async(conflict):
            name = self.all.grid.program.statements[self.all.pcs[event]].name
            groups = {"cp": (self.bulk, Aspect.BULK_READ), "wgmma": (self.wgmma, Aspect.WGMMA)}
            if name in groups:
                return self.left_under_way(*groups[name], lane, event)
        return ""

    def _words_of(
        self, conflict: Conflict, everywhere: bool, other: int, lane: int, verb: str, name: str
    ) -> tuple[str, str]:
        if conflict.before == "read" and self._is_async(conflict):
            return (
                "overwritten too early",
                f"{verb} {name}, which an asynchronous operation may still read",
            )
        done = "wrote" if conflict.before == "write" else "read"
        block = self.wave.ctas[lane // self.clocks.per_block]
        if everywhere and other // self.all.memory.per_block != block:
            return (
                "race between blocks",
                f"{verb} {name}, which a thread of another block {done}; nothing orders them",
            )
        if conflict.sort > Sort.ATOMIC:
            kind = "read before wait" if verb == "reads" else "overwritten too early"
            return kind, f"{verb} {name}, which a copy under way writes"
        if not everywhere and other // WARP == lane // WARP:
            return (
                "race",
                f"{verb} {name}, which another lane of the warp {done}; without bar.warp.sync "
                "nothing orders them",
            )
        return "race", f"{verb} {name}, which another thread {done}; nothing orders them"

    def _is_async(self, conflict: Conflict) -> bool:
        pc = self.all.pcs[int(conflict.events[0])]
        if pc < 0:
            return False
        statement = self.all.grid.program.statements[pc]
        copies = "copies" in statement.effects and "cancels" not in statement.effects
        return copies or is_wgmma(statement) or isinstance(statement.instruction, Tcgen05)
