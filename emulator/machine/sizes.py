"""Sizes of a launch: what a caller gives, a kernel's directives say and a target has room for."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from emulator.errors import OperandError, as_integer, shown, whole
from emulator.machine.shared.control import MOST_LOCAL
from emulator.machine.shared.place import Index
from emulator.ptx.module import BoundKernel
from emulator.ptx.program import Function
from emulator.targets import Target

#: limits of all targets: blocks of a grid and threads of a block along each axis; threads of a
#: block, and blocks of a cluster
BLOCKS, THREADS = (2**31 - 1, 65535, 65535), (1024, 1024, 64)
_BLOCK, _CLUSTER = 1024, 16
#: threads of a grid that are run without a limit of statements
_ALL_THREADS = 1 << 27


def along_axes(what: str, given: object, most: Index) -> Index:
    """Sizes along x, y, z; those that are not given are 1."""
    several = list(given) if isinstance(given, np.ndarray) and given.ndim == 1 else given
    values = [as_integer(given)]
    if isinstance(several, Sequence) and not isinstance(several, (str, bytes, bytearray)):
        values = [as_integer(value) for value in several]
    sizes = [value for value in values if value is not None]
    if not 1 <= len(sizes) == len(values) <= 3:
        raise OperandError(f"{what} has one to three sizes; got {shown(given)}")
    sizes += [1] * (3 - len(sizes))
    for axis, size, limit in zip("xyz", sizes, most, strict=True):
        whole(f"{what} along {axis}", size, 1, limit)
    return sizes[0], sizes[1], sizes[2]


def _directive(function: Function, name: str) -> Index | None:
    """The three sizes that a directive of a kernel gives; None without it."""
    given = function.directives.get(name)
    return (*map(int, given), 1, 1)[:3] if given else None  # type: ignore[return-value]


def check_threads(function: Function, grid: Index, block: Index, *, limited: bool) -> None:
    """Raises OperandError for blocks that the kernel does not take, and for threads that would
    take too much memory, or too much time unless it is limited."""
    threads = math.prod(block)
    total = threads * math.prod(grid)
    if threads > _BLOCK:
        raise OperandError(f"a block has at most {_BLOCK} threads; got {threads}")
    if total > _ALL_THREADS and not limited:
        raise OperandError(
            f"{_by(grid)} blocks of {threads} threads are {total:,} threads, which would take "
            f"hours; step_limit=N runs them up to N statements"
        )
    if function.local_bytes > MOST_LOCAL:
        raise OperandError(
            f"{function.name} takes {function.local_bytes:,} bytes of local memory "
            f"in each thread, which may have {MOST_LOCAL:,}"
        )
    needed, most = _directive(function, "reqntid"), _directive(function, "maxntid")
    verb, name, wanted = "", "", block
    if needed and block != needed:
        verb, name, wanted = "needs", "reqntid", needed
    elif most and threads > math.prod(most):
        verb, name, wanted = "takes at most", "maxntid", most
    if verb:
        raise OperandError(
            f"{function.name} {verb} blocks of {_by(wanted)} threads (.{name}); got {_by(block)}"
        )


def cluster_of(
    function: Function, grid: Index, given: Sequence[int] | int | None
) -> tuple[Index, bool]:
    """Blocks of a cluster, and whether the kernel or the caller says so.

    Raises OperandError where they contradict each other, the grid, or the limit.
    """
    required = _directive(function, "reqnctapercluster")
    chosen = None if given is None else along_axes("cluster", given, (_CLUSTER,) * 3)
    if required and chosen and required != chosen:
        raise OperandError(
            f"{function.name} needs clusters of {_by(required)} blocks; got {_by(chosen)}"
        )
    cluster = required or chosen or (1, 1, 1)
    if any(g % c for g, c in zip(grid, cluster, strict=True)):
        raise OperandError(
            f"a grid of {_by(grid)} is no multiple of clusters of {_by(cluster)} blocks"
        )
    if math.prod(cluster) > _CLUSTER:
        raise OperandError(f"a cluster has at most {_CLUSTER} blocks; got {_by(cluster)}")
    return cluster, bool(required or chosen)


def shared_bytes(kernel: BoundKernel, target: Target, dynamic: int) -> int:
    """Bytes of shared memory of a block, with those that the system keeps.

    Raises OperandError for more than the target has.
    """
    dynamic = whole("dynamic_shared, a number of bytes,", dynamic)
    total = kernel.dynamic_start + dynamic if dynamic else kernel.static_shared
    asked = total - target.reserved_shared
    if asked > target.shared_limit:
        raise OperandError(
            f"{kernel.function.name} takes {shown(asked)} bytes of shared memory; {target} has "
            f"{target.shared_limit} for a block"
        )
    return max(total, target.reserved_shared)


def _by(sizes: Sequence[int]) -> str:
    return " × ".join(map(str, sizes))
