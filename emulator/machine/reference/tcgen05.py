"""Reference engine: statements of tcgen05 that warps execute, one warp after the other (PTX ISA
9.7.16), as `machine.shared.tcgen05` states them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from dtypes import Array
from emulator.machine.reference.fragments import Registers, Threads
from emulator.machine.reference.issuer import Issuer, by_warp, combination
from emulator.machine.reference.thread import Together
from emulator.machine.shared import tcgen05
from emulator.machine.shared.issuing import Operands
from emulator.machine.shared.pending import Pending
from emulator.machine.shared.waiting import State
from emulator.ptx.program import Function, Statement


class _Warp(NamedTuple):
    """One warp: `Warps` of `machine.shared.tcgen05`."""

    pending: Pending
    every: list[Issuer]
    threads: Threads

    def wake_pairs(self) -> None:
        statements = self.every[0].program.statements
        for thread in self.threads[0].cluster.threads:
            if thread.state is State.PAIR:
                who = Issuer(thread.warp.threads[0], [])
                if tcgen05.is_met(who, statements[thread.pc]):
                    thread.goes_on()

    def come_again(self, goes_on: Sequence[bool], state: State) -> None:
        for thread in self.threads:
            thread.stops(state, thread.pc)

    def read(self, registers: Registers) -> Array:
        return registers.read(self.threads).astype(np.uint32)[None]

    def write(self, registers: Registers, words: Array) -> None:
        registers.write(self.threads, words)

    def write_one(self, registers: Registers, lane: int, words: Array) -> None:
        registers.write(self.threads, words)


def _step(
    make: tcgen05.MakeByWarps[Registers], statement: Statement, function: Function
) -> Together:
    """The step of whole warps."""
    operands = Operands(statement, combination)
    run = make(operands, lambda operand, bound: Registers(operand, bound, function))

    def advance(who: Issuer, threads: Threads) -> None:
        who.advance()
        run(_Warp(who.pending, [who], threads))

    return by_warp(statement, operands, advance, str(statement.instruction))


TOGETHER: dict[str, Callable[[Statement, Function], Together]] = {
    name: partial(_step, make) for name, make in tcgen05.BY_WARPS.items()
}
