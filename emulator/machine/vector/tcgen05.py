"""Vector engine: statements of tcgen05, all warps of a strand at once (PTX ISA 9.7.16), as
`machine.shared.tcgen05` states them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from dtypes import Array
from emulator.arith.scalar.rule import bind_vector
from emulator.machine.shared import tcgen05
from emulator.machine.shared.issuing import Make, Operands
from emulator.machine.shared.pending import Pending
from emulator.machine.shared.waiting import State
from emulator.machine.vector.compute import Step
from emulator.machine.vector.fragments import Registers, whole
from emulator.machine.vector.issuer import Issuer, by_lane, warps_of
from emulator.machine.vector.lanes import together, whole_or_split
from emulator.machine.vector.strand import WARP, Parked, Strand
from emulator.ptx.program import Function, Statement


def _by_thread(make: Make, statement: Statement, function: Function) -> Step:
    """A step that each thread issues by itself."""
    return by_lane(make, statement, function, _tell)


def _tell(s: Strand, mask: Array | None) -> None:
    """The checks are told which threads issue an operation."""
    if s.wave.watch is not None:
        s.wave.watch.tensor_cores.issued(s.lanes if mask is None else s.lanes[mask])


class _Warps(NamedTuple):
    """The warps of a strand: `Warps` of `machine.shared.tcgen05`."""

    pending: Pending
    every: list[Issuer]
    strand: Strand
    pc: int

    def wake_pairs(self) -> None:
        wave = self.strand.wave
        for other in [x for x in wave.waiting if x.state is State.PAIR]:
            statement = wave.grid.program.statements[other.pc]
            warps = [Issuer(other, i, ()) for i in range(0, len(other), WARP)]
            if any(tcgen05.is_met(who, statement) for who in warps):
                wave.wake(other)

    def come_again(self, goes_on: Sequence[bool], state: State) -> None:
        lacking = np.repeat(~np.array(goes_on), WARP)
        # Warps that have met look for columns, too: they come again at once.
        following = self.pc if state is State.PAIR else self.pc + 1
        self.strand.wave.hold(self.strand, lacking, state, None, self.pc, following)
        raise Parked

    def read(self, registers: Registers) -> Array:
        return registers.read(self.strand)

    def write(self, registers: Registers, words: Array) -> None:
        registers.write(self.strand, words)

    def write_one(self, registers: Registers, lane: int, words: Array) -> None:
        registers.write_lanes(self.strand, lane + np.arange(WARP)[None], words[None])


def _by_warps(
    make: tcgen05.MakeByWarps[Registers], statement: Statement, function: Function
) -> Step:
    """The step of whole warps."""
    operands = Operands(statement, bind_vector)
    run = make(operands, lambda operand, bound: Registers(operand, bound, function, WARP))
    warps = warps_of(operands, function)

    def step(s: Strand) -> None:
        together(s, statement.pc)
        whole(s, WARP, statement.instruction)
        s.wave.grid.progress += 1
        run(_Warps(s.wave.pending, warps(s), s, statement.pc))

    return whole_or_split(statement, step)


STEPS: dict[str, Callable[[Statement, Function], Step]] = {
    **{name: partial(_by_thread, make) for name, make in tcgen05.EACH.items()},
    **{name: partial(_by_warps, make) for name, make in tcgen05.BY_WARPS.items()},
}
