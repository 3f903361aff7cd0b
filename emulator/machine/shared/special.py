"""All engines: special registers, which say who a thread is and how large the grid is (PTX ISA 10).

Clocks are each engine's, which knows how many statements it has executed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from emulator.errors import UnsupportedError
from emulator.layout.lanemap import WARP
from emulator.machine.options import WARPS_OF_PROCESSOR
from emulator.machine.shared.operands import Words
from emulator.machine.shared.place import Index

_AXES = "xyzw"
#: clocks -> bits, and the lowest bit of the time that they show. It counts statements, so that it
#: rises and is the same in every run; there is one for all
CLOCKS = {
    "%clock": (32, 0), "%clock_hi": (32, 32), "%clock64": (64, 0),
    "%globaltimer": (64, 0), "%globaltimer_lo": (32, 0), "%globaltimer_hi": (32, 32),
}  # fmt: skip


class LaunchSizes(Protocol):
    """Sizes of a launch, as special registers give them."""

    #: bytes of shared memory: asked for at the launch, of a block in all, and of the system
    dynamic_shared: int
    smem_size: int
    reserved_shared: int
    #: multiprocessors
    processors: int

    @property
    def explicit_cluster(self) -> int:
        """1 if the kernel or the launch asks for clusters."""

    @property
    def environment(self) -> Mapping[str, int]:
        """Words of %envreg1 and so on, by name."""


class Readers(NamedTuple):
    """Threads that read a special register: numbers are of one, or an array with those of all."""

    #: in their blocks
    thread: Words
    #: of their blocks in the grid
    block_number: Words
    #: blocks of the grid, threads of a block, blocks of a cluster
    grid: Index
    block: Index
    cluster: Index
    launch: LaunchSizes

    @property
    def lane(self) -> Words:
        return self.thread % WARP


#: the words of a special register in the threads that read it
Value = Callable[[Readers], Words]


def value_of(name: str) -> Value:
    """The words of a special register that is no clock.

    Raises UnsupportedError for one that is not modelled.
    """
    base, _, axis = name.partition(".")
    if base in _BY_AXIS and axis and axis in _AXES:
        along, place = _BY_AXIS[base], _AXES.index(axis)
        return lambda x: along(x, place) if place < 3 else 0
    if name in _PLAIN:
        return _PLAIN[name]
    if name in _OF_LAUNCH:
        word = _OF_LAUNCH[name]
        return lambda x: word(x.launch)
    if re.fullmatch(r"%envreg\d+", name):
        return lambda x: x.launch.environment.get(name, 0)
    raise UnsupportedError(f"special register {name!r} is legal PTX, not modelled here")


def is_of_thread(name: str) -> bool:
    """True if a register depends on no more than the place of the thread in its block."""
    return name.partition(".")[0] in _OF_THREAD


def along(axis: int, number: Words, sizes: Index) -> Words:
    """The coordinate along an axis of a number that counts along x first."""
    x, y, _ = sizes
    return number % x if axis == 0 else number // x % y if axis == 1 else number // (x * y)


def _block(x: Readers, axis: int) -> Words:
    return along(axis, x.block_number, x.grid)


def _in_cluster(x: Readers, axis: int) -> Words:
    return _block(x, axis) % x.cluster[axis]


def _rank(x: Readers) -> Words:
    a, b, _ = x.cluster
    return _in_cluster(x, 0) + a * (_in_cluster(x, 1) + b * _in_cluster(x, 2))


_BY_AXIS: dict[str, Callable[[Readers, int], Words]] = {
    "%tid": lambda x, axis: along(axis, x.thread, x.block),
    "%ntid": lambda x, axis: x.block[axis],
    "%ctaid": _block,
    "%nctaid": lambda x, axis: x.grid[axis],
    "%cluster_ctaid": _in_cluster,
    "%cluster_nctaid": lambda x, axis: x.cluster[axis],
    "%clusterid": lambda x, axis: _block(x, axis) // x.cluster[axis],
    "%nclusterid": lambda x, axis: x.grid[axis] // x.cluster[axis],
}
_PLAIN: dict[str, Value] = {
    "%laneid": lambda x: x.lane,
    "%warpid": lambda x: x.thread // WARP,
    "%lanemask_eq": lambda x: 1 << x.lane,
    "%lanemask_lt": lambda x: (1 << x.lane) - 1,
    "%lanemask_le": lambda x: (2 << x.lane) - 1,
    "%lanemask_gt": lambda x: 0xFFFFFFFF & -(2 << x.lane),
    "%lanemask_ge": lambda x: 0xFFFFFFFF & -(1 << x.lane),
    "%cluster_ctarank": _rank,
    "%cluster_nctarank": lambda x: math.prod(x.cluster),
    # Blocks lie on the processors in turn.
    "%smid": lambda x: x.block_number % x.launch.processors,
}
#: of these, those that only the place of the thread in its block decides
_OF_THREAD = ("%tid", "%laneid", "%warpid", *(x for x in _PLAIN if x.startswith("%lanemask")))
_OF_LAUNCH: dict[str, Callable[[LaunchSizes], int]] = {
    "%nwarpid": lambda x: WARPS_OF_PROCESSOR,
    "%is_explicit_cluster": lambda x: int(x.explicit_cluster),
    "%nsmid": lambda x: x.processors,
    "%gridid": lambda x: 0,
    "%dynamic_smem_size": lambda x: x.dynamic_shared,
    "%total_smem_size": lambda x: x.smem_size,
    "%aggr_smem_size": lambda x: x.smem_size + x.reserved_shared,
    "%reserved_smem_offset_begin": lambda x: 0,
    "%reserved_smem_offset_end": lambda x: x.reserved_shared,
    "%reserved_smem_offset_cap": lambda x: x.reserved_shared,
    "%reserved_smem_offset_0": lambda x: 0,
    "%reserved_smem_offset_1": lambda x: 0,
}
