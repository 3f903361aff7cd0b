"""Chains of multiply-adds and counts of bits as machine code, by Numba (the extra ``fast``), and
threads for all compiled code of `matmul`.

The innermost loops run over neighbouring columns and are free of branches and calls, so that LLVM
makes vector instructions of them. Code is kept on disk between runs. Fused dot-adds have code of
their own, in `fused_code`.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numba import config, get_num_threads, njit
from numba.core import types
from numba.extending import intrinsic

from dtypes import FORMATS, Array, code_type, convert
from emulator.arith.arrangement import arrangement
from emulator.arith.engines import say
from emulator.arith.factors import Bool
from emulator.arith.recipes import Arithmetic
from emulator.arith.rounding_modes import rounded
from emulator.arith.steps import FmaChain, PairSums

#: multiply-adds below which a second thread costs more than it brings
_WORTH_A_THREAD = 1 << 19
#: parts of the work of each thread
_PARTS = 16

# Whatever is wrong with Numba here must show while this module is imported, not later.
if config.DISABLE_JIT:  # type: ignore[attr-defined]
    raise RuntimeError("NUMBA_DISABLE_JIT is set")
get_num_threads()


def _keeps_code() -> bool:
    """Whether Numba has a folder for compiled code; says it on standard error if not."""
    try:
        folder = Path(str(njit(cache=True)(_keeps_code).stats.cache_path))
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except (OSError, RuntimeError) as error:  # a RuntimeError is Numba's own
        say(
            f"compiled code cannot be kept on disk ({str(error).splitlines()[0]:.300}): every "
            "process compiles it anew, which takes seconds; NUMBA_CACHE_DIR can name a folder"
        )
        return False


_machine_code = njit(nogil=True, cache=_keeps_code(), error_model="numpy")


# --- threads --------------------------------------------------------------------------------------


_thread = threading.local()


@lru_cache(maxsize=1)
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(get_num_threads(), "emulator")


if hasattr(os, "register_at_fork"):
    # A forked child inherits the pool, but none of its threads.
    os.register_at_fork(after_in_child=_pool.cache_clear)


def in_threads(
    piece: Callable[[Any], None], parts: Iterable[Any], threads: int | None = None
) -> None:
    """``piece(part)`` for all `parts`, in so many threads (None: all), of which this is one; what
    they call uses no more threads.

    Plain threads, since NumPy and the functions below release the lock of the interpreter: Numba's
    own parallel loops must not be entered from two threads at once, which users may do.
    """
    left, most = deque(parts), get_num_threads()
    most = min(len(left), most if threads is None else min(threads, most))
    if most <= 1 or getattr(_thread, "is_worker", False):
        for part in left:
            piece(part)
        return
    others = [_pool().submit(_work, piece, left) for _ in range(1, most)]
    try:
        _work(piece, left)
    finally:
        _thread.is_worker = False
        for other in others:
            if not other.cancel():
                other.result()


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


def run_in_threads(tasks: Callable[..., None], count: int, work: int, *arguments: Any) -> None:
    """``tasks(first, last, *arguments)`` for all of `count`, in threads if it is worth it."""
    threads = min(get_num_threads(), count, 1 + work // _WORTH_A_THREAD)
    # Many parts for each thread, so that none waits long for the last.
    parts = min(count, threads * _PARTS) if threads > 1 else 1
    cuts = [i * count // parts for i in range(parts + 1)]
    in_threads(lambda part: tasks(*part, *arguments), pairwise(cuts), threads)


# --- chains of fused multiply-adds ----------------------------------------------------------------


@intrinsic
def fma(context: Any, a: Any, b: Any, c: Any) -> Any:
    """a·b + c of one floating-point type, rounded once."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fma(*arguments)

    return (a(a, a, a), generate) if isinstance(a, types.Float) and a == b == c else None


def float_chain(
    arithmetic: Arithmetic, a: Array, b: Array, c: Array, k: int
) -> tuple[Array, Bool] | None:
    """Codes after a recipe of multiply-add chains, and where they are NaNs, whose code `vector`
    must say. None for a recipe of another kind or a rounding that the machine has not.

    Operands as for `matmul`, with one batch axis.
    """
    found = arrangement(arithmetic.steps)
    if found is None or not isinstance(found.core, (FmaChain, PairSums)):
        return None
    step, fmt, after = found.core, FORMATS[found.core.fmt], found.after
    if fmt.name not in ("f32", "f64"):
        return None
    one_format = found.before is None and found.widen in (None, fmt) and found.adds_c in (None, fmt)
    if not one_format or (after and a.shape[-1] > k):
        return None
    tasks = rounded(chain_tasks, arithmetic.rounding)
    if tasks is None:
        return None
    if found.widen:
        a, b = convert(arithmetic.a, fmt, a), convert(arithmetic.b, fmt, b)
    if arithmetic.c is not fmt:
        c = convert(arithmetic.c, fmt, c)
    batch, (m, n) = max(len(a), len(b), len(c)), c.shape[-2:]
    x = np.array(np.broadcast_to(c, (batch, m, n))).view(f"f{fmt.bits // 8}")
    p, q = (y.view(x.dtype) for y in (np.ascontiguousarray(a), np.swapaxes(b, -1, -2).copy()))
    pairs = isinstance(step, PairSums)
    run_in_threads(tasks, batch * m, x.size * a.shape[-1], p, q, x, k if found.adds_c else 0, pairs)
    codes, bad = x.view(code_type(fmt.bits)), np.isnan(x)
    return (convert(fmt, after, codes) if after else codes), bad


@_machine_code
def chain_tasks(
    first: int, last: int, a: Array, b: Array, x: Array, period: int, pairs: bool
) -> None:
    """Rows `first` … `last` of x ``(t, m, n)``; b is ``(t, k, n)``."""
    m, n = x.shape[1:]
    partial = np.empty(n, x.dtype)
    for task in range(first, last):
        t, i = task // m, task % m
        row, columns = a[min(t, len(a) - 1), i], b[min(t, len(b) - 1)]
        total = x[t, i]
        if pairs:
            for k in range(0, len(row), 2):
                p, q = columns[k], columns[k + 1]
                for j in range(n):
                    total[j] += fma(row[k + 1], q[j], row[k] * p[j])  # type: ignore[call-arg]
            continue
        for k in range(len(row)):
            q = columns[k]
            if period and k % period == 0:
                partial[:] = 0
            y = partial if period else total
            for j in range(n):
                y[j] = fma(row[k], q[j], y[j])  # type: ignore[call-arg]
            if period and (k + 1) % period == 0:
                for j in range(n):
                    total[j] += partial[j]


# --- bits -----------------------------------------------------------------------------------------


@intrinsic
def popcount(context: Any, word: Any) -> Any:
    """The number of ones in a word."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(*arguments)

    return (word(word), generate) if isinstance(word, types.Integer) else None


def popcount_dot(p: Array, q: Array, c: Array, both: bool) -> Array:
    """c ``(t, m, n)`` plus the ones of ``p and q`` or of ``p xor q``, words ``(t, m, w)`` and
    ``(t, n, w)``."""
    x = np.array(np.broadcast_to(c, (max(len(p), len(q), len(c)), *c.shape[-2:])))
    q = np.swapaxes(q, -1, -2).copy()
    batch, m, _ = x.shape
    run_in_threads(popcount_tasks, batch * m, x.size * p.shape[-1] * 8, p, q, x, both)
    return x


@_machine_code
def popcount_tasks(first: int, last: int, p: Array, q: Array, x: Array, both: bool) -> None:
    m, n = x.shape[1:]
    for task in range(first, last):
        t, i = task // m, task % m
        row, columns, out = p[min(t, len(p) - 1), i], q[min(t, len(q) - 1)], x[t, i]
        for w in range(len(row)):
            word, others = row[w], columns[w]
            for j in range(n):
                ones = word & others[j] if both else word ^ others[j]
                out[j] = np.uint32(out[j] + popcount(ones))  # type: ignore[call-arg]
