"""Special registers: who a thread is, how large the grid is, and what time it is (PTX ISA 10)."""

from __future__ import annotations

import re
from collections.abc import Callable

from emulator.errors import UnsupportedError
from emulator.machine.reference.thread import Thread
from emulator.machine.shared.special import CLOCKS, OF_LAUNCH

Value = Callable[[Thread], int]
_AXES = "xyzw"


def special(name: str) -> Value:
    """The word of a special register, as a function of the thread.

    Raises UnsupportedError for one that is not modelled.
    """
    base, _, axis = name.partition(".")
    if base in _BY_AXIS and axis and axis in _AXES:
        triple, place = _BY_AXIS[base], _AXES.index(axis)
        return lambda thread: (*triple(thread), 0)[place]
    if name in _PLAIN:
        return _PLAIN[name]
    if name in OF_LAUNCH:
        word = OF_LAUNCH[name]
        return lambda thread: word(thread.run.launch)
    if name in CLOCKS:
        bits, low = CLOCKS[name]
        return lambda thread: thread.run.now() >> low & (1 << bits) - 1
    if re.fullmatch(r"%envreg\d+", name):
        return lambda thread: thread.run.launch.environment.get(name, 0)
    raise UnsupportedError(f"special register {name!r} is legal PTX, not modelled here")


def _in_cluster(thread: Thread) -> tuple[int, ...]:
    block = thread.block
    return tuple(i % n for i, n in zip(block.index, block.run.cluster, strict=True))


def _cluster(thread: Thread) -> tuple[int, ...]:
    block = thread.block
    return tuple(i // n for i, n in zip(block.index, block.run.cluster, strict=True))


def _clusters(thread: Thread) -> tuple[int, ...]:
    run = thread.run
    return tuple(n // m for n, m in zip(run.size, run.cluster, strict=True))


_BY_AXIS: dict[str, Callable[[Thread], tuple[int, ...]]] = {
    "%tid": lambda t: t.coordinates,
    "%ntid": lambda t: t.run.block,
    "%ctaid": lambda t: t.block.index,
    "%nctaid": lambda t: t.run.size,
    "%cluster_ctaid": _in_cluster,
    "%cluster_nctaid": lambda t: t.run.cluster,
    "%clusterid": _cluster,
    "%nclusterid": _clusters,
}


_PLAIN: dict[str, Value] = {
    "%laneid": lambda t: t.lane,
    "%warpid": lambda t: t.warp.number,
    "%lanemask_eq": lambda t: 1 << t.lane,
    "%lanemask_lt": lambda t: (1 << t.lane) - 1,
    "%lanemask_le": lambda t: (2 << t.lane) - 1,
    "%lanemask_gt": lambda t: 0xFFFFFFFF & -(2 << t.lane),
    "%lanemask_ge": lambda t: 0xFFFFFFFF & -(1 << t.lane),
    "%cluster_ctarank": lambda t: t.block.rank,
    "%cluster_nctarank": lambda t: t.run.blocks_of_cluster,
    # Blocks lie on the processors in turn.
    "%smid": lambda t: t.block.number % t.run.launch.processors,
}
