"""Special registers: who a thread is, how large the grid is, and what time it is (PTX ISA 10)."""

from __future__ import annotations

import re
from collections.abc import Callable

from emulator.errors import UnsupportedError
from emulator.machine.options import WARPS_OF_PROCESSOR
from emulator.machine.reference.thread import Thread

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


def _time(shift: int) -> Value:
    """One clock for all: what it counts is statements, so that it rises and is the same in every
    run."""
    return lambda thread: thread.run.now() >> shift


_PLAIN: dict[str, Value] = {
    "%clock": _time(0),
    "%clock_hi": _time(32),
    "%clock64": _time(0),
    "%globaltimer": _time(0),
    "%globaltimer_lo": _time(0),
    "%globaltimer_hi": _time(32),
    "%laneid": lambda t: t.lane,
    "%warpid": lambda t: t.warp.number,
    "%nwarpid": lambda t: WARPS_OF_PROCESSOR,
    "%lanemask_eq": lambda t: 1 << t.lane,
    "%lanemask_lt": lambda t: (1 << t.lane) - 1,
    "%lanemask_le": lambda t: (2 << t.lane) - 1,
    "%lanemask_gt": lambda t: 0xFFFFFFFF & -(2 << t.lane),
    "%lanemask_ge": lambda t: 0xFFFFFFFF & -(1 << t.lane),
    "%cluster_ctarank": lambda t: t.block.rank,
    "%cluster_nctarank": lambda t: t.run.blocks_of_cluster,
    "%is_explicit_cluster": lambda t: int(t.run.launch.explicit_cluster),
    # Blocks lie on the processors in turn.
    "%smid": lambda t: t.block.number % t.run.launch.processors,
    "%nsmid": lambda t: t.run.launch.processors,
    "%gridid": lambda t: 0,
    "%dynamic_smem_size": lambda t: t.run.launch.dynamic_shared,
    "%total_smem_size": lambda t: t.run.launch.smem_size,
    "%aggr_smem_size": lambda t: t.run.launch.smem_size + t.run.launch.reserved_shared,
    "%reserved_smem_offset_begin": lambda t: 0,
    "%reserved_smem_offset_end": lambda t: t.run.launch.reserved_shared,
    "%reserved_smem_offset_cap": lambda t: t.run.launch.reserved_shared,
    "%reserved_smem_offset_0": lambda t: 0,
    "%reserved_smem_offset_1": lambda t: 0,
}
