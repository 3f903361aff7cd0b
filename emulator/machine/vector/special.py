"""Special registers: who a lane is, how large the grid is, and what time it is (PTX ISA 10)."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from dtypes import Array
from emulator.errors import UnsupportedError
from emulator.machine.shared.special import CLOCKS, OF_LAUNCH

if TYPE_CHECKING:
    from emulator.machine.vector.strand import Strand
    from emulator.machine.vector.wave import Wave

_AXES = "xyzw"


def special(strand: Strand, name: str) -> Array:
    """The words of a special register: ``(lanes,)``, or ``(1,)`` where all lanes hold the same."""
    if name in CLOCKS:
        bits, low = CLOCKS[name]
        return np.array([strand.wave.grid.now() >> low & (1 << bits) - 1], f"uint{bits}")
    found: Array | None = strand.marks.get(name)
    if found is None:
        wave: Wave = strand.wave
        if name not in wave.specials:
            wave.specials[name] = _value(wave, name)
        words = wave.specials[name]
        # Lanes are ascending: so many are all.
        found = words if len(words) in (1, len(strand)) else words[strand.lanes]
        if len(found) > 1 and found[0] == found[-1] and (found == found[0]).all():
            found = found[:1]
        strand.marks[name] = found
    return found


def _value(wave: Wave, name: str) -> Array:
    """The words of all lanes of a wave."""
    base, _, axis = name.partition(".")
    if base in _BY_AXIS and axis in _AXES:
        if axis == "w":
            return np.zeros(1, np.uint32)
        return _BY_AXIS[base](wave, _AXES.index(axis)).astype(np.uint32, copy=False)
    if name in _PLAIN:
        return np.atleast_1d(_PLAIN[name](wave)).astype(np.uint32)
    if name in OF_LAUNCH:
        return np.array([OF_LAUNCH[name](wave.grid)], np.uint32)
    if re.fullmatch(r"%envreg\d+", name):
        return np.array([wave.grid.environment.get(name, 0)], np.uint32)
    raise UnsupportedError(f"special register {name!r} is legal PTX, not modelled here")


def _thread(wave: Wave, axis: int) -> Array:
    return _threads(axis, wave.lanes_per_cta, wave.grid.block, len(wave.ctas))


@lru_cache(maxsize=4)
def _threads(axis: int, lanes: int, block: tuple[int, int, int], blocks: int) -> Array:
    """Coordinates of threads, which waves of one size share."""
    if block[axis] == 1:
        return np.zeros(1, np.uint32)
    out = np.tile(_along(axis, np.arange(lanes), block), blocks)
    out.flags.writeable = False
    return out


def ctas_along(wave: Wave, axis: int) -> Array:
    """The coordinate of each block of a wave along an axis."""
    return _along(axis, wave.ctas, wave.grid.size)


def _cta(wave: Wave, axis: int) -> Array:
    return np.repeat(ctas_along(wave, axis), wave.lanes_per_cta)


def _along(axis: int, linear: Array, sizes: tuple[int, int, int]) -> Array:
    """Coordinates along an axis, of linear numbers."""
    x, y, _ = sizes
    return (linear % x, linear // x % y, linear // (x * y))[axis].astype(np.uint32)


def _in_cluster(wave: Wave, axis: int) -> Array:
    return _cta(wave, axis) % np.uint32(wave.grid.cluster[axis])


def _rank(wave: Wave) -> Array:
    x, y, _ = wave.grid.cluster
    return _in_cluster(wave, 0) + x * (_in_cluster(wave, 1) + y * _in_cluster(wave, 2))


def _sizes(which: Callable[[Wave], tuple[int, ...]]) -> Callable[[Wave, int], Array]:
    return lambda wave, axis: np.array([which(wave)[axis]])


def _laneid(wave: Wave) -> Array:
    return np.arange(len(wave.thread)) % 32


def _lanes_below(wave: Wave) -> Array:
    return (np.uint64(1) << _laneid(wave).astype(np.uint64)) - np.uint64(1)


_BY_AXIS: dict[str, Callable[[Wave, int], Array]] = {
    "%tid": _thread,
    "%ntid": _sizes(lambda w: w.grid.block),
    "%ctaid": _cta,
    "%nctaid": _sizes(lambda w: w.grid.size),
    "%cluster_ctaid": _in_cluster,
    "%cluster_nctaid": _sizes(lambda w: w.grid.cluster),
    "%clusterid": lambda wave, axis: _cta(wave, axis) // np.uint32(wave.grid.cluster[axis]),
    "%nclusterid": _sizes(
        lambda w: tuple(g // c for g, c in zip(w.grid.size, w.grid.cluster, strict=True))
    ),
}

_PLAIN: dict[str, Callable[[Wave], Array | int]] = {
    "%laneid": _laneid,
    "%warpid": lambda w: w.thread // 32,
    "%lanemask_eq": lambda w: _lanes_below(w) + np.uint64(1),
    "%lanemask_lt": _lanes_below,
    "%lanemask_le": lambda w: 2 * _lanes_below(w) + np.uint64(1),
    "%lanemask_gt": lambda w: ~(2 * _lanes_below(w) + np.uint64(1)) & np.uint64(0xFFFFFFFF),
    "%lanemask_ge": lambda w: ~_lanes_below(w) & np.uint64(0xFFFFFFFF),
    "%cluster_ctarank": _rank,
    "%cluster_nctarank": lambda w: math.prod(w.grid.cluster),
    # Blocks lie on the processors in turn.
    "%smid": lambda w: np.repeat(w.ctas, w.lanes_per_cta) % w.grid.processors,
}
