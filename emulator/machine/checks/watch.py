"""Events of the vector engine for the checks: each access and each synchronisation.

There is one `GridWatch` for a launch and one `Watch` for each wave; a wave without checks has
none. The rules themselves are in the other files of this folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dtypes import Array
from emulator.machine.checks import registers
from emulator.machine.checks.access_watch import BARRIER
from emulator.machine.checks.async_watch import AsyncWatch
from emulator.machine.checks.clocks import Aspect, Events, wider
from emulator.machine.checks.finding import Party
from emulator.machine.checks.kinds import MISCOMPILATION
from emulator.machine.checks.miscompilations import PTXAS, Miscompilation, When
from emulator.machine.checks.reporter import GridWatch
from emulator.machine.checks.tensor_cores import TensorCoreChecks
from emulator.machine.checks.wgmma import WgmmaChecks
from emulator.machine.vector.strand import WARP, Frame, Lanes, Strand
from emulator.machine.vector.wave import Wave
from emulator.memory.mbarrier import Barrier
from emulator.ptx.program import Bound


class Missed(NamedTuple):
    """Lanes that execute a statement while others wait for them at another."""

    lanes: Lanes
    pc: int
    mask: int
    other: int
    earlier: Party


class Watch(AsyncWatch):
    """The checks of a wave."""

    def __init__(self, all_: GridWatch, wave: Wave) -> None:
        super().__init__(all_, wave)
        self.wgmma_checks = WgmmaChecks(self)
        self.tensor_cores = TensorCoreChecks(self)
        self.shared.tensor_core_reads = self.tensor_cores.conflicts
        #: of warps, how often they have executed setmaxnreg, and where the last one did
        self.counted, self.setting = np.zeros(wave.lanes // WARP, np.int64), 0
        #: of blocks, what their threads knew when they ended
        self.farewell: dict[int, Events] = {}
        #: of warps, by the pc of a statement that waits for lanes: its membermask, and who is there
        self.expecting: dict[int, dict[int, tuple[int, int]]] = {}
        #: by warp and pc of a statement that waits for lanes: they have gone elsewhere
        self.missed: dict[tuple[int, int], Missed] = {}
        #: warps of which only some lanes have returned from an inner call of a recursion
        self.parted = np.zeros(wave.lanes // WARP, np.bool_)

    # --- calls ---

    def entered(self, s: Strand, frame: Frame, arguments: tuple[Bound, ...]) -> None:
        registers.entered(s, frame, arguments)
        # What a call is given has arrived.
        self.tensor_cores.arriving.clear()

    def returned(self, s: Strand, frame: Frame, results: tuple[int, ...]) -> None:
        registers.returned(s, frame, results)
        if frame.function.name in self.all.grid.program.recursive and not self.wave.is_whole(s):
            self.parted[s.lanes // WARP] = True

    def written(self, s: Strand, results: tuple[int, ...]) -> None:
        """A function of the system has returned."""
        function = s.frames[-1].function
        for index in results:
            shadow = index + registers.count_of(function)
            s.write(shadow, np.zeros_like(function.registers[shadow].zero))

    # --- what ptxas compiles wrongly ---

    def miscompiled(
        self, rows: Sequence[Miscompilation], s: Strand, mask: Array | bool | None
    ) -> None:
        """Lanes execute a statement of these rows; `mask`: those whose guard holds."""
        generation = self.all.grid.launch.module.target.generation
        runs = np.broadcast_to(True if mask is None else mask, (len(s),))
        for row in rows:
            if row.when is When.PARTED:
                lanes = s.lanes[runs & self.parted[s.lanes // WARP]]
                self.parted[lanes // WARP] = False
            else:
                lanes = s.lanes[~runs if row.when is When.GUARD else runs]
            if lanes.size and (not row.generations or generation in row.generations):
                self.report(MISCOMPILATION, lanes, f"ptxas {PTXAS} is known to {row.effect}")

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
                    "shuffle",
                    s.lanes[mine],
                    f"lanes of one warp name different membermasks: {names}",
                )

    def masks_elsewhere(self, s: Strand, masks: Array) -> None:
        """Some lanes of warps are here: are they waited for at another statement?"""
        pc, lanes = self.statement.pc, s.lanes
        for warp in np.unique(lanes // WARP).tolist():
            mine = lanes // WARP == warp
            here = int((1 << (lanes[mine] % WARP)).sum())
            named = int(np.bitwise_or.reduce(masks[mine]))
            waiting = self.expecting.setdefault(warp, {})
            for other, (mask, there) in waiting.items():
                if other == pc or not mask & ~there & here:
                    continue
                block, thread = self.wave.coordinates(warp * WARP)
                earlier = Party(self.place(other), block, (thread,), "waits for all it names")
                missed = Missed(lanes[mine], pc, mask, other, earlier)
                if named & there:
                    self._miss(missed)
                else:
                    # They do not wait for who waits for them, and may well come there later.
                    self.missed[warp, other] = missed
            mask, there = waiting.get(pc, (0, 0))
            waiting[pc] = mask | named, there | here
            alive = int(self.wave.alive_bits(np.array([warp]))[0])
            if waiting[pc][0] & ~waiting[pc][1] & alive == 0:
                self._met(warp, pc)

    def masks_met(self, s: Strand) -> None:
        """All lanes of warps are here."""
        if self.expecting:
            for warp in np.unique(s.lanes // WARP).tolist():
                self._met(warp, self.statement.pc)

    def _met(self, warp: int, pc: int) -> None:
        self.expecting.get(warp, {}).pop(pc, None)
        self.missed.pop((warp, pc), None)

    def _miss(self, missed: Missed) -> None:
        self.report(
            "shuffle",
            missed.lanes,
            f"lanes that a membermask {missed.mask:#010x} names elsewhere are here",
            missed.earlier,
            missed.other,
            pc=missed.pc,
        )

    # --- ends ---

    def ended(self, lanes: Lanes) -> None:
        """Lanes end: what they have issued must be over, and who waits for them waits in vain."""
        for key, missed in list(self.missed.items()):
            if np.isin(missed.lanes, lanes).any():
                self._miss(self.missed.pop(key))
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
                "left open",
                lanes[open_],
                "the thread ends before its bulk copies have read shared memory",
                earlier,
                pc,
            )

    def finish(self) -> None:
        """All threads of the wave have ended: what is left in its mbarriers?"""
        words = self.wave.shared.reshape(-1).view(np.uint64)
        for place in np.flatnonzero(self.barriers == BARRIER).tolist():
            held = Barrier.decode(int(words[place]))
            if held.transactions:
                row, offset = divmod(8 * place, self.wave.shared_bytes)
                name = self.all.grid.launch.shared_name(offset, 8)
                lane = np.array([row * self.clocks.per_block])
                what = "are expected that never came" if held.transactions > 0 else "too many came"
                self.report(
                    "left open",
                    lane,
                    f"mbarrier {name}: {abs(held.transactions)} bytes {what}",
                    None,
                    offset,
                )
        self._check_visits()
        self.tensor_cores.finish()
        self.all.memory.knowledge.forget(set(self.wave.ctas.tolist()), self.clocks.per_block)
        self._check_registers_of_warps()
        # Its parts refer to each other: without this they would wait for Python's collector.
        vars(self.shared).clear()
        vars(self).clear()

    def _check_visits(self) -> None:
        """Every access to another block's shared memory comes before that block's end."""
        clocks = self.clocks
        for (row, lane), (event, place) in self.visits.items():
            known = self.farewell.get(row)
            if known is not None and event <= known[Aspect.PLAIN, lane % clocks.per_cluster]:
                continue
            block, _ = self.wave.coordinates(row * clocks.per_block)
            self.report(
                "peer has ended",
                np.array([lane]),
                f"{self.name_of(self.wave.shared, place)} of block {block} is accessed, and "
                "nothing keeps that block from ending before",
                pc=self.all.pcs[event],
            )

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
                    "setmaxnreg",
                    np.array([lane]),
                    f"warps {first} to {first + 3}, a warpgroup, execute setmaxnreg "
                    f"{counts[uneven[0]].tolist()} times",
                    pc=self.setting,
                    count=len(uneven),
                )

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

    def cluster_arrive(self, lanes: Lanes) -> None:
        self.sync.arrive_at_cluster(lanes, relaxed="relaxed" in self.words)
