"""Checks of asynchronous operations: copies, tensor maps, wgmma, and mbarriers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dtypes import Array
from emulator.machine.checks.access_watch import BARRIER, AccessWatch
from emulator.machine.checks.accesses import Conflict, Sort
from emulator.machine.checks.clocks import Aspect, Bools, Events
from emulator.machine.checks.finding import Party
from emulator.machine.checks.reporter import GridWatch
from emulator.machine.checks.wgmma import WatchedSpace
from emulator.machine.vector.strand import WARP, Lanes
from emulator.machine.vector.wave import Wave
from emulator.memory.shadow import granules

Places = NDArray[np.int64]
_DONE = {"read": "read", "write": "written"}


class AsyncWatch(AccessWatch):
    """Accesses that are complete later than their statement, and what tells that they are."""

    def __init__(self, all_: GridWatch, wave: Wave) -> None:
        super().__init__(all_, wave)
        #: of warps of the grid, the event of the last fence for tensor maps
        self.map_fences: dict[int, int] = {}
        #: of a wgmma, by the first lanes of warpgroups: elements of its tiles that nobody wrote
        self.spoilt: dict[int, list[Bools]] = {}
        #: places in shared memory of copies that are yet to be told their mbarrier
        self._awaiting: list[Places] = []

    # --- accesses of whole warps and of asynchronous operations ---

    def rows(self, lanes: Lanes, places: Places, size: int, *, write: bool) -> None:
        """ldmatrix and stmatrix: rows in shared memory, each at the address of one lane."""
        self.access_shared(lanes, places, size, "write" if write else "read", None)

    def touched(self, lanes: Lanes, held: Array, places: Places, size: int, write: bool) -> None:
        """Bytes that a copy, or a load or store of a matrix, finds in memory."""
        memory, places = self.memory_of(held), places + self._origin(held)
        signals = "mbarrier::complete_tx::bytes" in self.words  # st.async and red.async, too
        if "copies" not in self.statement.effects and not signals:
            every = np.broadcast_to(places, lanes.shape)
            use = "write" if write else "read"
            if memory == "shared":
                self.access_shared(lanes, every, size, use, None)
            elif memory == "global":
                self.access_global(lanes, every, size, use, None)
            return
        if memory == "global":
            self._of_copy_global(lanes, places, size, write)
        elif memory == "shared":
            self._of_copy(lanes, places, size, write)

    def _of_copy_global(self, lanes: Lanes, places: Places, size: int, write: bool) -> None:
        every = np.broadcast_to(places, lanes.shape)
        # A reduction is relaxed, element by element (PTX ISA 9.7.9.25.4.2).
        use = "atomic" if "reduces" in self.statement.effects else "write" if write else "read"
        self.access_global(lanes, every, size, use, None)

    def _of_copy(self, lanes: Lanes, places: Places, size: int, write: bool) -> None:
        """An asynchronous copy reads or writes shared memory for its lanes."""
        shared, granule = self.shared, self.shared.shadow.granule
        at = granules(np.broadcast_to(places, lanes.shape), size, granule)
        flat, who = at.reshape(-1), np.repeat(lanes, at.shape[1])
        bulk = "bulk" in self.words
        use = "write" if write else "read"
        if write and self.wave.cluster_size > 1 and "copies" not in self.statement.effects:
            self._check_peers(lanes, np.broadcast_to(places, lanes.shape))
        if bulk and len(places) == 1:
            conflicts, asking, asked = shared.conflicts_of_tile(lanes, at[0])
        else:
            conflicts = shared.conflicts_with_writes(who, flat, proxy=bulk)
            asking, asked = who, flat
        if write and "reduces" in self.statement.effects:
            conflicts = [x for x in map(self._without_reductions, conflicts) if x.which.size]
        self._of_proxy(conflicts, asking, asked * granule, at.shape[1], use)
        if not write:
            if "bulk_group" in self.words:
                shared.note_bulk_read(flat, who, self.now)
                self.bulk.issue(lanes, self.now)
            return
        conflicts = shared.conflicts_with_reads(who, flat)
        self.conflicts(conflicts, who, flat * granule, use, None, at.shape[1])
        self.check_barriers(who, flat)
        if bulk or "mbarrier::complete_tx::bytes" in self.words:
            self._awaiting.append(flat)
        else:
            shared.note_write(flat, who, self.now, Sort.COPY)
            shared.shadow.define(flat, None)
            self.copies.issue(lanes, self.now)

    def _without_reductions(self, conflict: Conflict) -> Conflict:
        """The part of a conflict with other operations: asynchronous reductions are relaxed."""
        if conflict.sort != Sort.BARRIER:
            return conflict
        return self.without(lambda x: "reduces" in x.effects, conflict)

    def _of_proxy(
        self,
        conflicts: Sequence[Conflict],
        who: Lanes,
        places: Places,
        count: int,
        use: str = "read",
    ) -> None:
        """Conflicts of reads by the asynchronous proxy: those that a fence alone would mend are
        told apart."""
        for conflict in conflicts:
            which, events, others = conflict.which, conflict.events, conflict.others
            if conflict.sort == Sort.BARRIER:
                self.conflicts([conflict], who, places, use, None, count)
                continue
            aspect = Aspect.COPIES if conflict.sort == Sort.COPY else Aspect.PLAIN
            plain = self.clocks.ordered(aspect, who[which], others, events)
            if not plain.all():
                rest = Conflict(
                    "write", which[~plain], events[~plain], others[~plain], conflict.sort
                )
                self.conflicts([rest], who, places, use, None, count)
            unfenced = plain & ~self._by_either_proxy(events)
            if not unfenced.any():
                continue
            first = int(np.argmax(unfenced))
            pc, other = self.all.pcs[int(events[first])], others[first : first + 1]
            name = self.name_of(self.wave.shared, int(places[which[first]]))
            earlier = Party(self.place(pc), *self.who(other), "wrote it")
            lanes = np.unique(who[which[unfenced]])
            self.report(
                "missing proxy fence",
                lanes,
                f"{name} was written by the generic proxy and is {_DONE[use]} by the asynchronous "
                "one; no fence.proxy.async stands between them",
                earlier,
                pc,
            )

    def _by_either_proxy(self, events: Events) -> Bools:
        """Flags of the writes by operations that may be the asynchronous proxy's.

        PTX does not say by which proxy the address of tensor memory is written: Triton's kernels
        let TMA write over it without a fence.
        """
        statements, pcs = self.all.grid.program.statements, self.all.pcs
        effects = (statements[pcs[x]].effects for x in events.tolist())
        return np.array(["allocates" in each for each in effects], np.bool_)

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
        return WatchedSpace(self.wgmma_reads, held, lanes)

    def wgmma_reads(self, addresses: Places, lanes: Lanes) -> None:
        """Elements that the wgmma of warpgroups, by their first lanes, read, each in the shared
        memory of its block."""
        shared, per_block = self.shared, self.clocks.per_block
        row, granule = shared.shadow.row, shared.shadow.granule
        mark = np.zeros(row, np.bool_)
        mark[addresses // granule] = True
        tile, blocks = np.flatnonzero(mark), lanes // per_block
        for block in dict.fromkeys(blocks.tolist()):
            flat, readers = tile + block * row, lanes[blocks == block]
            # Each of the four warps must know of what is read.
            warps = (readers[:, None] + WARP * np.arange(4)).reshape(-1)
            conflicts, who, every = shared.conflicts_of_tile(warps, flat)
            self._of_proxy(conflicts, who, every * granule, 1)
            spoilt = np.zeros(0, np.bool_)
            if shared.shadow.unwritten(flat).any():
                spoilt = shared.shadow.unwritten(addresses // granule + block * row)
            for lane in readers.tolist():
                shared.note_wgmma(flat, lane, self.now)
                self.spoilt.setdefault(lane, []).append(spoilt)

    def tensor_core_reads(self, block: int, addresses: Places, lane: int) -> Places:
        """Bytes in the shared memory of a block that a tcgen05 of one thread reads; the granules
        that they lie in."""
        shared = self.shared
        row, granule = shared.shadow.row, shared.shadow.granule
        flat = np.unique(addresses // granule) + block * row
        who = np.full(len(flat), lane)
        self._of_proxy(shared.conflicts_with_writes(who, flat, proxy=True), who, flat * granule, 1)
        return flat

    def stored_by_copy(self, lanes: Lanes, places: Places) -> None:
        """Bytes of shared memory that a bulk copy stores to global memory."""
        shadow = self.shared.shadow
        at = places.reshape(-1) // shadow.granule
        missing = shadow.unwritten(at)
        if missing.any():
            place = int(at[missing].min()) * shadow.granule
            self.report(
                "uninitialised memory",
                lanes,
                f"{self.name_of(self.wave.shared, place)}, which nothing has written, is stored to "
                "global memory",
            )

    # --- tensor maps ---

    def map_used(self, lanes: Lanes, held: Array, place: int) -> None:
        """A tensor copy reads the map at a place of global memory."""
        if self.memory_of(held) != "global":
            return
        memory, place = self.all.memory, place + self._origin(held)
        at = np.unique(np.arange(place, place + 128) // memory.shadow.granule)
        edited = memory.shadow.written[at]
        last = int(edited.max())
        warp = int(memory.threads(self.wave, lanes[:1])[0]) // WARP
        if last and self.map_fences.get(warp, 0) < last:
            pc = self.all.pcs[last]
            writer = int(memory.shadow.writer[at[int(np.argmax(edited))]])
            earlier = Party(self.place(pc), *self.thread(writer), "changed it")
            self.report(
                "tensor map",
                lanes,
                f"the tensor map {self.name_of(None, place)} was changed, and no fence of its "
                "proxy stands before the copy that uses it",
                earlier,
                pc,
            )

    def tensor_map_fence(self, lanes: Lanes) -> None:
        threads = self.all.memory.threads(self.wave, lanes)
        for warp in np.unique(threads // WARP).tolist():
            self.map_fences[warp] = self.now

    # --- mbarriers ---

    def mbarrier_init(self, lanes: Lanes, places: Places) -> None:
        """mbarrier.init: a write of its 8 bytes."""
        self.access_shared(lanes, np.broadcast_to(places, lanes.shape) * 8, 8, "write", None)
        self.barriers[places], self.any_barriers = BARRIER, True

    def mbarrier_inval(self, lanes: Lanes, places: Places) -> None:
        """mbarrier.inval: its 8 bytes may be written again, by who knows of that."""
        self.barriers[places] = 0
        self.access_shared(lanes, np.broadcast_to(places, lanes.shape) * 8, 8, "write", None)

    def mbarrier_used(self, lanes: Lanes, places: Places, *, arrives: bool = True) -> None:
        places = np.broadcast_to(places, lanes.shape)
        self._use_of_barrier(lanes, places)
        if arrives:
            self.sync.tell_mbarrier(lanes, places)

    def copies_arrive(self, lanes: Lanes, places: Places) -> None:
        """cp.async.mbarrier.arrive."""
        self._use_of_barrier(lanes, places)
        self.sync.tell_copies(lanes, places)

    def _use_of_barrier(self, lanes: Lanes, places: Places) -> None:
        """A thread uses mbarriers: they are initialised, and it knows that."""
        unknown = np.asarray(self.barriers[places] == 0)
        if unknown.any():
            index = int(np.argmax(unknown))
            name = self.name_of(self.wave.shared, int(places[index]) * 8, 8)
            self.report(
                "mbarrier",
                lanes[unknown],
                f"{name} is used as an mbarrier, and no mbarrier.init has made it one",
            )
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
                "mbarrier",
                wrong,
                f"mbarrier {name} is used, and nothing says that its mbarrier.init comes before",
                earlier,
                pc,
            )
