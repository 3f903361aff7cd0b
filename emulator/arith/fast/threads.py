"""Shares work among threads: machine code runs without the lock of the interpreter."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import lru_cache, reduce
from itertools import pairwise
from operator import or_
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from dtypes import Array
from emulator.arrays import address_of

if TYPE_CHECKING:
    from emulator.arith.fast.kernels.crew import Crew

#: multiply-adds below which a second thread costs more than it brings
_WORTH_A_THREAD = 1 << 19
#: bytes to copy, too
_BYTES_WORTH_A_THREAD = 1 << 19
#: parts of the work of each thread, so that none waits long for the last
_PARTS, _MANY_PARTS = 4, 16
#: for machine code: the largest part is one of so many of the work of a thread, the smallest too
_LARGEST, _SMALLEST = 4, 64

_thread = threading.local()


def processors() -> int:
    """Processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@lru_cache(maxsize=1)
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(processors(), "emulator")


@lru_cache(maxsize=1)
def _only_crew() -> Crew | None:
    from emulator.arith.fast.kernels.crew import crew_of

    return crew_of(processors() - 1)


#: one of several threads of Python that want the crew at once makes it
_crew_lock = threading.Lock()


def _crew() -> Crew | None:
    with _crew_lock:
        return _only_crew()


def _forget_threads() -> None:
    """A forked child inherits the pool and the crew, but none of their threads; and the lock, which
    one of these may hold."""
    global _crew_lock
    _crew_lock = threading.Lock()
    _pool.cache_clear()
    _only_crew.cache_clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)


def in_threads(
    piece: Callable[[Any], None], parts: Iterable[Any], threads: int | None = None
) -> None:
    """``piece(part)`` for all `parts`, in so many threads (None: all), of which this is one; what
    they call uses no more threads."""
    left, most = deque(parts), processors()
    most = min(len(left), most if threads is None else min(threads, most))
    if most <= 1 or getattr(_thread, "is_worker", False):
        for part in left:
            piece(part)
        return
    others: list[Future[None]] = []
    try:
        for _ in range(1, most):
            others.append(_pool().submit(_work, piece, left))
        _work(piece, left)
    finally:
        _thread.is_worker = False
        # Who has begun still writes to memory of the caller, who may be interrupted: no part is
        # left to them but the one that they compute.
        left.clear()
        begun = [x for x in others if not x.cancel()]
        _wait_for(begun)
    for other in begun:
        other.result()


def _wait_for(begun: Sequence[Future[None]]) -> None:
    """Waits until all are done; an interrupt meanwhile is raised then."""
    try:
        wait(begun)
    except BaseException:
        _wait_for(begun)
        raise


def _work(piece: Callable[[Any], None], left: deque[Any]) -> None:
    """Takes what is left, one part after the other; a failure leaves nothing to others."""
    _thread.is_worker = True
    try:
        while left:
            try:
                part = left.popleft()
            except IndexError:  # another was quicker
                return
            piece(part)
    finally:
        left.clear()


def in_parts(
    piece: Callable[[int, int], int], count: int, threads: int, parts: int = _PARTS
) -> int:
    """``piece(first, last)`` for all of `count` in so many threads; the bits that any returns."""
    threads = min(threads, count, processors())
    if threads <= 1:
        return piece(0, count)
    parts = min(count, threads * parts)
    found: list[int] = []
    cuts = [i * count // parts for i in range(parts + 1)]
    in_threads(lambda part: found.append(piece(*part)), pairwise(cuts), threads)
    return reduce(or_, found, 0)


def cuts_of(count: int, threads: int) -> Array:
    """Where the parts of `count` start in so many threads, and where the last ends: large parts
    first, as they may take unequal times, and none waits long for the last."""
    return _cuts_of(count, min(threads, count, processors()))


@lru_cache(maxsize=64)
def _cuts_of(count: int, threads: int) -> Array:
    cuts, least = [0], max(1, count // (threads * _SMALLEST))
    while threads > 1 and (left := count - cuts[-1]) > least:
        cuts.append(cuts[-1] + max(least, left // (threads * _LARGEST)))
    out = np.array([*cuts, count])
    out.flags.writeable = False
    return out


def in_native_parts(
    function: Callable[..., int], cuts: Array, threads: int, *given: int, more: bool = False
) -> list[int]:
    """The results of ``function(first, end, *given)``, machine code of words of 8 bytes, between
    the neighbours of `cuts`, in so many threads; `more`: threads are asked for more soon."""
    from emulator.arith.fast.kernels import crew, machine_code

    threads = min(threads, len(cuts) - 1, processors())
    if threads > 1 and not getattr(_thread, "is_worker", False):
        others = _crew()
        part = crew.with_arguments(len(given))
        words = np.array([machine_code.address_of_function(function), *given], np.int64)
        if others is not None:
            code = machine_code.address_of_function(part)
            found = others.run(code, cuts, address_of(words), threads, more)
            if found is not None:
                return cast("list[int]", found.tolist())
    ends = cuts.tolist()
    return [function(first, end, *given) or 0 for first, end in pairwise(ends)]


def copy_bytes(to: Array, source: Array) -> Array:
    """Copies bytes to an array of as many, which it returns, in several threads where they are many
    and machine code has threads that wait."""
    if _are_worth_threads(to):
        from emulator.arith.fast.kernels import crew

        _on_bytes(crew.of_bytes()[0], to, address_of(source))
    else:
        to[:] = source
    return to


def clear_bytes(to: Array) -> None:
    """Zeros in an array of bytes, in several threads as `copy_bytes`."""
    if _are_worth_threads(to):
        from emulator.arith.fast.kernels import crew

        _on_bytes(crew.of_bytes()[1], to)
    else:
        to.fill(0)


def _are_worth_threads(held: Array) -> bool:
    return len(held) > _BYTES_WORTH_A_THREAD and _only_crew.cache_info().currsize > 0


def _on_bytes(function: Callable[..., int], to: Array, *given: int) -> None:
    threads = 1 + len(to) // _BYTES_WORTH_A_THREAD
    in_native_parts(function, cuts_of(len(to), threads), threads, address_of(to), *given, more=True)


def run_in_threads(tasks: Callable[..., None], count: int, work: int, *arguments: Any) -> None:
    """``tasks(first, last, *arguments)`` for all of `count`, in threads if it is worth it."""

    threads = 1 + work // _WORTH_A_THREAD
    compute = getattr(tasks, "compute", None)
    if compute is not None:
        words = (address_of(x) if isinstance(x, np.ndarray) else int(x) for x in arguments)
        in_native_parts(compute, cuts_of(count, threads), threads, *words)
        return

    def piece(first: int, last: int) -> int:
        tasks(first, last, *arguments)
        return 0

    in_parts(piece, count, threads, _MANY_PARTS)
