"""Statements of wgmma: products of warpgroups on shared memory, and the waits for them.

What they compute is `emulator.warp`'s; all warpgroups of a strand go there as one batch. They take
effect at their issue, or later, as `emulator.machine.shared.products` has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from dtypes import Array
from emulator.isa.matrix import MatrixInstruction
from emulator.machine.shared.products import ORDER, Due, OnProducts, PendingProduct, poison
from emulator.machine.vector import kernels
from emulator.machine.vector.compute import Step
from emulator.machine.vector.fragments import Fetch, Registers, whole
from emulator.machine.vector.lanes import together_in_groups, whole_or_split
from emulator.machine.vector.strand import WARPGROUP, Lanes, Strand
from emulator.machine.vector.wave import Wave
from emulator.memory.space import Space
from emulator.ptx.program import Function, Statement
from emulator.warp import multiply
from emulator.warp.call import Call

# --- wgmma.mma_async ------------------------------------------------------------------------------


@dataclass(eq=False)
class _Issued(PendingProduct):
    """Products of warpgroups that came to a statement together."""

    instruction: MatrixInstruction
    #: A, where it lies in registers
    a: Registers | None
    result: Registers
    #: the first lane of each warpgroup in the wave
    first: Lanes

    @property
    def sources(self) -> int:
        """A set of bits: the registers that it reads when it takes effect."""
        return 0 if self.a is None else sum(1 << i for i in set(self.a.indexes) if i >= 0)


def multiplication(statement: Statement, function: Function) -> Step:
    ins = statement.instruction
    assert isinstance(ins, MatrixInstruction)
    fetch = Fetch(statement, function, WARPGROUP)
    pattern = np.array([poison(ins)], np.uint32)
    by_kernel = kernels.multiplication(ins, fetch)

    def step(s: Strand) -> None:
        together_in_groups(s, statement.pc)
        whole(s, WARPGROUP, ins)
        if s.wave.pending.at_once and by_kernel(s):
            return
        operands, options = fetch(s)
        wave, first = s.wave, s.lanes[::WARPGROUP]
        if wave.pending.at_once:
            fetch.result.write(s, _sums(_calls(wave, first, ins, operands, options, wave.watch)))
            return
        for call in _calls(wave, first, ins, operands, options, wave.watch):
            multiply.check(call) if wave.watch is None else multiply.run(call)
        a = fetch.vectors.get("a")
        if a is not None:
            del operands["a"]
        wave.products.issue(
            _Issued(
                wave.warpgroups_in_grid(first),
                len(s.frames),
                fetch.result.indexes,
                operands.pop("d"),
                operands,
                options,
                ins,
                a,
                fetch.result,
                first,
            )
        )
        fetch.result.fill(s, pattern)
        _by_chance(s)

    return step


def _finish(s: Strand, due: Iterable[Due]) -> None:
    """Computes what takes effect now; `s` has all lanes of its warpgroups that have not ended."""
    for product, which in due:
        caller = s
        if len(s.frames) > product.depth:
            caller = Strand(s.wave, s.lanes, s.frames[: product.depth], s.pc)
        lanes = product.first[which, None] + np.arange(WARPGROUP)
        operands = {name: _chosen(x, which) for name, x in product.operands.items()}
        options = {name: _chosen(x, which) for name, x in product.options.items()}
        operands["d"] = product.accumulator[which]
        if product.a is not None:
            operands["a"] = product.a.read_lanes(caller, lanes)
        ins, wave = product.instruction, s.wave
        sums = _sums(_calls(wave, lanes[:, 0], ins, operands, options))
        last = wave.products.hand_on(Due(product, which), sums)
        product.result.write_lanes(caller, lanes[last], sums[last])


def _chosen(x: Any, which: Array) -> Any:
    """An operand of some of the warpgroups; what all share stays."""
    return x[which] if isinstance(x, np.ndarray) and x.ndim and len(x) > 1 else x


def _by_chance(s: Strand) -> None:
    _finish(s, s.wave.products.by_chance(s.wave.warpgroups_in_grid(s.lanes)))


# --- shared memory --------------------------------------------------------------------------------


def _calls(
    wave: Wave,
    first: Lanes,
    ins: MatrixInstruction,
    operands: dict[str, Any],
    options: dict[str, Any],
    watch: Any = None,
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
        mine = {name: _part(x, part, shape) for name, x in operands.items()}
        chosen = {name: _part(x, part, shape) for name, x in options.items()}
        chosen["shared"] = (
            Space("shared memory", memory)
            if watch is None
            else watch.space(memory, first[part].reshape(shape))
        )
        yield Call(ins, mine, chosen, grid.target, grid.arithmetic, grid.undefined)


def _sums(calls: Iterable[Call]) -> Array:
    """The registers ``(warpgroups, 128, registers)`` of all of them."""
    out = [multiply.run(call) for call in calls]
    flat = [d.reshape(-1, *d.shape[-2:]) for d in out]
    return flat[0] if len(flat) == 1 else np.concatenate(flat)


def _part(x: Any, part: slice, shape: tuple[int, int]) -> Any:
    """The warpgroups of some blocks as ``(blocks, warpgroups, …)``."""
    if not isinstance(x, np.ndarray) or x.ndim == 0 or len(x) == 1:
        return x[0] if isinstance(x, np.ndarray) and x.ndim == 1 else x
    held = x[part]
    return held.reshape(*shape, *held.shape[1:])


# --- fence, commit, wait --------------------------------------------------------------------------


def _in_order(
    make: Callable[[Statement], OnProducts], statement: Statement, function: Function
) -> Step:
    """The step of warpgroups that commit their products, or wait for them."""
    act = make(statement)

    def step(s: Strand) -> None:
        together_in_groups(s, statement.pc)
        if not s.wave.pending.at_once:
            _finish(s, act(s.wave.products, s.wave.warpgroups_in_grid(s.lanes)))
            _by_chance(s)

    return whole_or_split(statement, step)


STEPS = {name: partial(_in_order, make) for name, make in ORDER.items()}
