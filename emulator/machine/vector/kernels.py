"""Vector engine: multiplications by kernels of machine code, from the arrays that registers are to
others.

All warps of a strand are one batch; nothing is copied into the order of a matrix. What no kernel
computes is left to the step that asks here first.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from dtypes import Array
from emulator.arith.engines import by_kernels, kernels_wanted, may_use_kernels
from emulator.isa.matrix import MatrixInstruction
from emulator.isa.wmma import WmmaMultiply
from emulator.machine.vector.fragments import Fetch
from emulator.machine.vector.strand import WARPGROUP, Strand
from emulator.memory.descriptors import tile_places
from emulator.memory.space import Space
from emulator.warp.operands import Setting

#: multiply-adds that would be done in the time that a statement takes besides, without a kernel
_STATEMENT = 1 << 15
#: whether a statement was executed; False: nothing has happened
Attempt = Callable[[Strand], bool]


def multiplication(ins: MatrixInstruction | WmmaMultiply, fetch: Fetch) -> Attempt:
    """Executes a multiplication, if a kernel does it and makes no exception."""
    lanes, setting = fetch.lanes, setting_of(fetch)
    what = ins, setting

    def attempt(s: Strand) -> bool:
        grid, count = s.wave.grid, len(s) // lanes
        if not may_use_kernels(grid.arithmetic):
            return False
        work = math.prod((count, ins.m, ins.n, ins.k)) + _STATEMENT
        if not kernels_wanted(grid.arithmetic, (grid.target, *what), work, ins.d_type):
            return False
        done = by_kernels(grid.arithmetic, lambda: _multiply(s, ins, fetch, setting, count))
        return done is not None

    # Ids of scales may differ from warp to warp.
    return (lambda s: False) if fetch.ids else attempt


def setting_of(fetch: Fetch) -> Setting:
    """The setting of a statement."""
    if fetch.lanes != WARPGROUP:
        return Setting()
    signs = fetch.constants
    flip_a, flip_b = (signs.get(f"imm_scale_{x}", 1) == -1 for x in "ab")
    major_a, major_b = ("mn" if signs.get(f"imm_trans_{x}", 0) else "k" for x in "ab")
    return Setting(flip_a, flip_b, major_a, major_b, a_in_memory="a" not in fetch.vectors)


def _multiply(
    s: Strand, ins: MatrixInstruction | WmmaMultiply, fetch: Fetch, setting: Setting, count: int
) -> bool | None:
    from emulator.arith.fast.kernels.product import METADATA, MIXED, PADDING
    from emulator.warp import native

    wave, registers = s.wave, {}
    for name, vector in fetch.read_vectors.items():
        registers["c" if fetch.updates and name == "d" else name] = vector.columns(s)
    words, options = fetch.words(s)
    keep: Array | None = options.get("scale_d")
    shared, rows = None, None
    if fetch.lanes == WARPGROUP:
        shared = Space("shared memory", wave.shared[:, : wave.shared_limit])
        rows = s.lanes[:: fetch.lanes] // wave.lanes_per_cta
        words = {
            name: np.broadcast_to(x, count) if name in "ab" else x for name, x in words.items()
        }
    found = native.run_lanes(
        ins,
        wave.grid.target,
        setting,
        registers,
        count,
        words=words,
        shared=shared,
        rows=rows,
        keep=keep,
        selector=fetch.constants.get("selector", 0),
    )
    if found is None or found[1] & (PADDING | MIXED):
        return None
    if found[1] & METADATA and wave.grid.undefined == "raise":
        return None
    if wave.watch is not None and rows is not None:
        _tell(s, ins, setting, words)
    fetch.result.write_columns(s, found[0])
    return True


def _tell(
    s: Strand, ins: MatrixInstruction | WmmaMultiply, setting: Setting, words: dict[str, Array]
) -> None:
    """Tells the checks which elements of shared memory a wgmma has read."""
    assert isinstance(ins, MatrixInstruction)
    operands = {"b": (ins.n, ins.k, ins.b_place, setting.major_b)}
    if setting.a_in_memory:
        operands = {"a": (ins.m, ins.stored_k, ins.a_place, setting.major_a), **operands}
    lanes = s.lanes[::WARPGROUP]
    for name, (rows, k, where, major) in operands.items():
        for word in dict.fromkeys(words[name]):
            tile, _ = tile_places(word, rows, k, where, major, name)
            s.wave.watch.wgmma_reads(tile.reshape(-1), lanes[words[name] == word])
