"""Vector engine: a wave whose warps run by themselves, each the group of lanes that `Convergence`
chooses.

Lanes of a group are at one statement, but may be in different calls: a group is several strands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np

from dtypes import Array
from emulator.machine.shared.convergence import Convergence, lanes_of
from emulator.machine.shared.waiting import POLLS, TURNS, State
from emulator.machine.vector.strand import WARP, Frame, Lanes, Strand
from emulator.machine.vector.wave import Block, Wave
from emulator.ptx.program import Function


class ConvergentWave(Wave):
    """A wave of a kernel in which more than the program says who runs together."""

    def __post_init__(self, memory: Array | None) -> None:
        super().__post_init__(memory)
        #: for each warp that has run, by its number
        self._convergence: dict[int, Convergence] = {}
        #: strands of the group that runs, and the number of their warp
        self._group: list[Strand] = []
        self._warp = 0
        #: how often each warp has let others go first
        self._turns: Counter[int] = Counter()

    def start(self, function: Function, initial: Callable[[Frame], None]) -> None:
        super().start(function, initial)
        self.ready = self._by_warp(self.ready)

    def pick(self) -> Strand | None:
        """One of the strands of the group that goes next."""
        if not self.ready:
            return None
        self.ready = self._by_warp(self.ready)
        warps = {_warp_of(strand) for strand in self.ready}
        self._warp = min(warps, key=lambda warp: (self._turns[warp], warp != self._warp, warp))
        mine = [strand for strand in self.ready if _warp_of(strand) == self._warp]
        if self._warp not in self._convergence:
            regions = self.grid.launch.regions
            assert regions is not None
            self._convergence[self._warp] = Convergence(regions)
        pcs, calls, later = {}, {}, 0
        epoch = min(strand.epoch for strand in mine)
        for strand in mine:
            for lane in (strand.lanes % WARP).tolist():
                pcs[lane], calls[lane] = strand.pc, len(strand.frames)
                later |= (strand.epoch > epoch) << lane
        at = {lane: pcs[lane] for lane in sorted(pcs)}
        living = self.alive[self._warp * WARP : (self._warp + 1) * WARP]
        bits = int.from_bytes(np.packbits(living, bitorder="little").tobytes(), "little")
        chosen = self._convergence[self._warp].choose(at, calls, later, bits)
        self._group = self._strands_of(chosen, mine)
        return self._group[0]

    def mates(self, strand: Strand) -> list[Strand]:
        """Those of its warp alone: lanes of other warps would be ready for nothing."""
        same, warp = super().mates(strand), _warp_of(strand)
        return [w for w in same if w.state is not State.WARP or _warp_of(w) == warp]

    def _by_warp(self, strands: list[Strand]) -> list[Strand]:
        """Strands of one warp each."""
        out: list[Strand] = []
        for strand in strands:
            warps = strand.lanes // WARP
            if warps[0] == warps[-1]:
                out.append(strand)
            else:
                out += [strand.part(warps == w, strand.pc) for w in np.unique(warps)]
        return out

    def _strands_of(self, chosen: int, strands: list[Strand]) -> list[Strand]:
        """The lanes that were chosen, those in the same calls as one strand; none is ready."""
        mask = np.zeros(WARP, np.bool_)
        mask[list(lanes_of(chosen))] = True
        places: dict[tuple[int, ...], list[Strand]] = {}
        for strand in strands:
            inside = mask[strand.lanes % WARP]
            if not inside.any():
                continue
            self.ready.remove(strand)
            if not inside.all():
                strand, other = self.divide(strand, inside, strand.pc)
                self.ready.append(other)
            places.setdefault(strand.place, []).append(strand)
        group = [self.joined(same) for same in places.values()]
        _mark(group, np.flatnonzero(mask))
        for strand in group:
            strand.epoch = max(each.epoch for each in group)
        return group

    def _advance(self, strand: Strand) -> None:
        """Runs all strands of the group to the end of their block of statements."""
        group = self._group
        while group:
            divided: list[Strand] = []
            for strand in group:
                divided += self._run_one(strand)
            group = divided
            for pc in {strand.pc for strand in group}:
                same = [strand for strand in group if strand.pc == pc]
                _mark(same, np.concatenate([strand.lanes for strand in same]) % WARP)

    def _run_one(self, strand: Strand) -> list[Strand]:
        """Runs a strand to the end of its block of statements; those go on in it into which a
        guard has divided the strand."""
        block = self.grid.blocks[strand.pc]
        following = self._run_block(strand, block)
        if self.grid.executed > self.grid.look_at:
            self.grid.check_steps(strand, block)
        if following is None:
            return self._inside(strand, block)
        turned, strand.pc = following <= strand.pc, following
        self.ready.append(strand)
        strand.loops += turned
        if turned and strand.loops % (POLLS if block.polls else TURNS) == 0:
            self._turns[self._warp] += 1
            if block.polls and strand.loops >= TURNS:
                strand.loops, strand.epoch = 0, max(s.epoch for s in self.ready) + 1
            self.grid.check_polls(strand, block)
        return []

    def _inside(self, strand: Strand, block: Block) -> list[Strand]:
        """Strands into which a guard has divided one within a block: lanes part behind it."""
        first, last = block.statements[0].pc, block.statements[-1].pc
        out = [
            child
            for child in strand.children
            if child.state is State.READY and first < child.pc <= last and child in self.ready
        ]
        for child in out:
            self.ready.remove(child)
        return out


def _mark(group: list[Strand], lanes: Lanes) -> None:
    """Tells strands which lanes of their warp run with them."""
    there = np.zeros((1, WARP), np.bool_)
    there[0, lanes] = True
    for strand in group:
        strand.marks["group"] = there


def _warp_of(strand: Strand) -> int:
    return int(strand.lanes[0]) // WARP
