"""Vector engine: wgmma of the warpgroups of a strand, as `machine.shared.wgmma` asks for it; all of
them go to `emulator.warp` as one batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property, partial
from typing import TypeVar, cast

import numpy as np

from dtypes import Array
from emulator.isa.matrix import MatrixInstruction
from emulator.machine.shared import wgmma
from emulator.machine.shared.products import Indexes, Terms
from emulator.machine.vector import kernels
from emulator.machine.vector.compute import Step
from emulator.machine.vector.fragments import Fetch, Registers, whole
from emulator.machine.vector.lanes import together_in_groups, whole_or_split
from emulator.machine.vector.strand import WARPGROUP, Lanes, Strand
from emulator.machine.vector.watching import WaveWatch
from emulator.machine.vector.wave import Wave
from emulator.memory.space import Space
from emulator.ptx.program import Function, Statement
from emulator.warp import multiply
from emulator.warp.call import Call

T = TypeVar("T")


class _Warpgroups:
    """The warpgroups of a strand: `Warpgroups` of `machine.shared.wgmma`. They are known by the
    numbers of their first lanes in the wave."""

    def __init__(self, s: Strand) -> None:
        wave = s.wave
        self.strand, self.wave, self.depth = s, wave, len(s.frames)
        self.pending, self.products = wave.pending, wave.products

    @cached_property
    def numbers(self) -> list[int]:
        return self.wave.warpgroups_in_grid(self.strand.lanes)

    @cached_property
    def home(self) -> Lanes:
        return self.strand.lanes[::WARPGROUP]

    def check(self, terms: Terms) -> None:
        watch = self.wave.watch
        for call in _calls(self.wave, self.home, terms, watch):
            multiply.check(call) if watch is None else multiply.run(call)

    def multiply(self, terms: Terms, home: Lanes, *, heard: bool = False) -> Array:
        return _sums(_calls(self.wave, home, terms, self.wave.watch if heard else None))

    def write(self, registers: Registers, words: Array) -> None:
        registers.write(self.strand, words)

    def fill(self, registers: Registers, word: int) -> None:
        registers.fill(self.strand, np.array([word], np.uint32))

    def some_of(self, home: Lanes, which: Indexes) -> Lanes:
        return home[which]

    def read_of(self, registers: Registers, home: Lanes, depth: int) -> Array:
        return registers.read_lanes(self._caller(depth), home[:, None] + np.arange(WARPGROUP))

    def write_of(self, registers: Registers, home: Lanes, depth: int, words: Array) -> None:
        lanes = home[:, None] + np.arange(WARPGROUP)
        registers.write_lanes(self._caller(depth), lanes, words)

    def _caller(self, depth: int) -> Strand:
        """The lanes in a call that they are in, maybe not in the innermost."""
        s = self.strand
        return s if len(s.frames) == depth else Strand(s.wave, s.lanes, s.frames[:depth], s.pc)


def multiplication(statement: Statement, function: Function) -> Step:
    """wgmma.mma_async."""
    ins = statement.instruction
    assert isinstance(ins, MatrixInstruction)
    fetch = Fetch(statement, function, WARPGROUP)
    vectors = fetch.vectors.get("a"), fetch.result
    by_kernel = kernels.multiplication(ins, fetch)

    def step(s: Strand) -> None:
        together_in_groups(s, statement.pc)
        whole(s, WARPGROUP, ins)
        if not (s.wave.pending.at_once and by_kernel(s)):
            wgmma.multiplication(_Warpgroups(s), Terms(ins, *fetch(s)), *vectors)

    return step


# --- shared memory --------------------------------------------------------------------------------


def _calls(
    wave: Wave, first: Lanes, terms: Terms, watch: WaveWatch | None = None
) -> Iterator[Call]:
    """Several warpgroups, each on the shared memory of its block; `first` are their first lanes.

    `watch` hears what is read of it.
    """
    grid, shared = wave.grid, wave.shared[:, : wave.shared_limit]
    rows = first // wave.lanes_per_cta
    blocks, starts, counts = np.unique(rows, return_index=True, return_counts=True)
    if (counts == counts[0]).all() and blocks[-1] - blocks[0] + 1 == len(blocks):
        parts = [(slice(None), (len(blocks), int(counts[0])))]
        spaces = [shared[blocks[0] : blocks[-1] + 1, None]]
    else:
        parts = [
            (slice(int(a), int(a + n)), (1, int(n))) for a, n in zip(starts, counts, strict=True)
        ]
        spaces = [shared[block : block + 1, None] for block in blocks]
    for (part, shape), memory in zip(parts, spaces, strict=True):
        mine = {name: _part(x, part, shape) for name, x in terms.operands.items()}
        chosen = {name: _part(x, part, shape) for name, x in terms.options.items()}
        chosen["shared"] = (
            Space("shared memory", memory)
            if watch is None
            else watch.space(memory, first[part].reshape(shape))
        )
        yield Call(terms.instruction, mine, chosen, grid.target, grid.arithmetic, grid.undefined)


def _sums(calls: Iterable[Call]) -> Array:
    """The registers ``(warpgroups, 128, registers)`` of all of them."""
    out = [multiply.run(call) for call in calls]
    flat = [d.reshape(-1, *d.shape[-2:]) for d in out]
    return flat[0] if len(flat) == 1 else np.concatenate(flat)


def _part(x: T, part: slice, shape: tuple[int, int]) -> T:
    """The warpgroups of some blocks as ``(blocks, warpgroups, …)``."""
    if not isinstance(x, np.ndarray) or x.ndim == 0:
        return x
    if len(x) == 1:
        return cast(T, x[0]) if x.ndim == 1 else x
    return cast(T, x[part].reshape(*shape, *x.shape[1:]))


# --- fence, commit, wait --------------------------------------------------------------------------


def _in_order(
    make: Callable[[Statement], wgmma.OnProducts], statement: Statement, function: Function
) -> Step:
    """The step of warpgroups that commit their products, or wait for them."""
    act = make(statement)

    def step(s: Strand) -> None:
        together_in_groups(s, statement.pc)
        wgmma.in_order(_Warpgroups(s), act)

    return whole_or_split(statement, step)


STEPS = {name: partial(_in_order, make) for name, make in wgmma.ORDER.items()}
