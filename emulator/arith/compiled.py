"""The fast paths of `matmul` as machine code, by Numba (the extra ``fast``).

The arithmetic of `fused_tasks` is that of `fused.chain`, lane for lane; read that first. What is
done here for speed: a tile of accumulators stays in the cache while k runs, nothing of size
m × n × k exists, the innermost loops run over neighbouring columns and are free of branches and
calls, so that LLVM makes vector instructions of them. Code is kept on disk between runs.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable, Sequence
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
from emulator.arith.factors import EXPONENT, Bool, Constants, Factor, Float32, Plan
from emulator.arith.fused import HIGH, LOW, RUN
from emulator.arith.recipes import Arithmetic
from emulator.arith.steps import FmaChain, PairSums

#: columns of a block of B, and rows of a tile of accumulators: both fit the first cache
_COLUMNS, _ROWS = 256, 32
#: multiply-adds below which a second thread costs more than it brings
_WORTH_A_THREAD = 1 << 19

assert RUN == 8, "fused_tasks is written out for eight terms at a time"

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


def in_threads(piece: Callable[[int], None], starts: Sequence[int]) -> None:
    """``piece(start)`` for all `starts`; what they call uses no more threads.

    Plain threads, since NumPy and the functions below release the lock of the interpreter: Numba's
    own parallel loops must not be entered from two threads at once, which users may do.
    """
    for done in [_pool().submit(_alone, piece, start) for start in starts]:
        done.result()


def _alone(piece: Callable[[int], None], start: int) -> None:
    _thread.is_worker = True
    piece(start)


def _run(tasks: Callable[..., None], count: int, work: int, *arguments: Any) -> None:
    """``tasks(first, last, *arguments)`` for all of `count`, in threads if it is worth it."""
    threads = min(get_num_threads(), count, 1 + work // _WORTH_A_THREAD)
    if threads == 1 or getattr(_thread, "is_worker", False):
        tasks(0, count, *arguments)
        return
    # Several parts for each thread, so that none waits long for the last.
    parts = min(count, threads * 4)
    cuts = [i * count // parts for i in range(parts + 1)]
    for done in [_pool().submit(tasks, *part, *arguments) for part in pairwise(cuts)]:
        done.result()


# --- fused dot-adds -------------------------------------------------------------------------------


def fused_chain(made: Plan, a: Factor, b: Factor, c: Float32) -> tuple[Float32, Bool]:
    """`fused.chain` of operands with one batch axis, of length 1 where it is shared."""
    batch = max(len(a.value), len(b.value), len(c))
    m, n = c.shape[-2:]
    blocks = -(-n // _COLUMNS)
    lanes = -(-n // blocks)
    b_value, b_power = (_in_blocks(x, blocks, lanes) for x in b[:2])
    x = np.array(np.broadcast_to(c, (batch, m, n)))
    bad = np.zeros(x.shape, np.int32)
    period = len(made.order) if made.adds_c else 0
    tiles = batch * blocks * -(-m // _ROWS)
    work = batch * m * n * a.value[0, 0].size
    _run(
        fused_tasks, tiles, work, a.value, a.power, b_value, b_power, x, bad,
        made.numbers, period,
    )  # fmt: skip
    return x, bad != 0


def _in_blocks(x: Float32, blocks: int, lanes: int) -> Float32:
    """``(t, n, passes, k)`` to ``(t, blocks, passes, k, lanes)``: neighbouring columns together."""
    batch, n, passes, k = x.shape
    if blocks * lanes > n:
        x = np.pad(x, [(0, 0), (0, blocks * lanes - n), (0, 0), (0, 0)])
    return np.ascontiguousarray(x.reshape(batch, blocks, lanes, passes, k).transpose(0, 1, 3, 4, 2))


@_machine_code
def fused_tasks(
    first: int, last: int,
    a_value: Array, a_power: Array, b_value: Array, b_power: Array, x: Array, bad: Array,
    numbers: Constants, period: int,
) -> None:  # fmt: skip
    """Tiles `first` … `last` of the accumulators x ``(t, m, n)``, through all passes."""
    m, n = x.shape[1:]
    blocks, passes, lanes = b_value.shape[1], b_value.shape[2], b_value.shape[4]
    tiles = -(-m // _ROWS)
    total, partial = np.empty((_ROWS, lanes), np.float32), np.empty((_ROWS, lanes), np.float32)
    odd = np.empty((_ROWS, lanes), np.int32)
    top, scale = np.empty(lanes, np.float32), np.empty(lanes, np.float32)
    sums = np.empty(lanes, np.float64)
    for task in range(first, last):
        t, block, row = task // (tiles * blocks), task // tiles % blocks, task % tiles * _ROWS
        ta, tb = min(t, len(a_value) - 1), min(t, len(b_value) - 1)
        rows, column = min(_ROWS, m - row), block * lanes
        width = min(lanes, n - column)
        total[:] = 0
        odd[:] = 0
        total[:rows, :width] = x[t, row : row + rows, column : column + width]
        for p in range(passes):
            if period and p % period == 0:
                partial[:] = 0
            for i in range(rows):
                _fused_pass(
                    numbers, a_value[ta, row + i, p], a_power[ta, row + i, p],
                    b_value[tb, block, p], b_power[tb, block, p],
                    partial[i] if period else total[i], odd[i], top, scale, sums,
                )  # fmt: skip
                if period and (p + 1) % period == 0:
                    _add(numbers, total[i], partial[i], odd[i])
        x[t, row : row + rows, column : column + width] = total[:rows, :width]
        bad[t, row : row + rows, column : column + width] = odd[:rows, :width]


@_machine_code
def _fused_pass(
    numbers: Constants,
    a: Array, a_power: Array, b: Array, b_power: Array, x: Array, bad: Array,
    top: Array, scale: Array, sums: Array,
) -> None:  # fmt: skip
    """One fused dot-add of a row ``(k,)`` with all columns ``(k, lanes)``; k is a multiple of 8.

    NumPy's operations on int32 scalars widen to int64 here, hence the many conversions: LLVM drops
    them again.
    """
    lanes = len(x)
    to_scale, to_unit, floor, least, mask, half = numbers
    words, x_words, scale_words = top.view(np.int32), x.view(np.int32), scale.view(np.int32)
    sum_words = sums.view(np.int64)
    for j in range(lanes):
        e = x_words[j] & EXPONENT
        e = e if e > least else least
        words[j] = e if x[j] != 0 else np.int32(0)
    for k in range(0, len(a), 8):
        p0, p1, p2, p3 = a_power[k], a_power[k + 1], a_power[k + 2], a_power[k + 3]
        p4, p5, p6, p7 = a_power[k + 4], a_power[k + 5], a_power[k + 6], a_power[k + 7]
        q0, q1, q2, q3 = b_power[k], b_power[k + 1], b_power[k + 2], b_power[k + 3]
        q4, q5, q6, q7 = b_power[k + 4], b_power[k + 5], b_power[k + 6], b_power[k + 7]
        for j in range(lanes):
            t = _larger(_larger(p0 * q0[j], p1 * q1[j]), _larger(p2 * q2[j], p3 * q3[j]))
            u = _larger(_larger(p4 * q4[j], p5 * q5[j]), _larger(p6 * q6[j], p7 * q7[j]))
            top[j] = _larger(top[j], _larger(t, u))
    for j in range(lanes):
        e = words[j]
        e = e if e > floor else floor
        something = np.int32(e != 0) | np.int32(x[j] != 0)
        bad[j] |= np.int32(e > HIGH) | (np.int32(e < LOW) & something)
        words[j] = e
        scale_words[j] = np.int32(to_scale - e)
    for j in range(lanes):
        sums[j] = np.float64(np.int32(x[j] * scale[j]))
    for k in range(0, len(a), 8):
        a0, a1, a2, a3, a4, a5, a6, a7 = (
            a[k], a[k + 1], a[k + 2], a[k + 3], a[k + 4], a[k + 5], a[k + 6], a[k + 7],
        )  # fmt: skip
        b0, b1, b2, b3 = b[k], b[k + 1], b[k + 2], b[k + 3]
        b4, b5, b6, b7 = b[k + 4], b[k + 5], b[k + 6], b[k + 7]
        for j in range(lanes):
            s = scale[j]
            q = np.int32(np.int32(a0 * b0[j] * s) + np.int32(a1 * b1[j] * s))
            q = np.int32(q + np.int32(a2 * b2[j] * s))
            q = np.int32(q + np.int32(a3 * b3[j] * s))
            q = np.int32(q + np.int32(a4 * b4[j] * s))
            q = np.int32(q + np.int32(a5 * b5[j] * s))
            q = np.int32(q + np.int32(a6 * b6[j] * s))
            q = np.int32(q + np.int32(a7 * b7[j] * s))
            sums[j] += np.float64(q)
    for j in range(lanes):
        sums[j] *= np.int64((np.int64(words[j]) << 29) + to_unit).view(np.float64)
    if half:
        for j in range(lanes):
            x[j] = _half(sums[j], sum_words[j])
            bad[j] |= np.int32(abs(x[j]) > np.float32(65504))
    else:
        for j in range(lanes):
            sum_words[j] &= mask
        for j in range(lanes):
            x[j] = np.float32(sums[j])


@njit(inline="always")
def _larger(a: float, b: float) -> float:
    return a if a > b else b


@njit(inline="always")
def _half(value: Any, word: Any) -> Any:
    """`fused.round_to_half` of one number and its word."""
    normal = np.int64((word + ((1 << 41) - 1) + ((word >> 42) & 1)) & np.int64(-1 << 42))
    subnormal = (value + 1.5 * 2.0**28) - 1.5 * 2.0**28
    return np.float32(subnormal if abs(value) < 2.0**-14 else normal.view(np.float64))


@_machine_code
def _add(numbers: Constants, c: Array, x: Array, bad: Array) -> None:
    """c += x, as `fused._add`."""
    if numbers.half:
        for j in range(len(c)):
            out = np.float64(c[j]) + np.float64(x[j])
            c[j] = _half(out, np.float64(out).view(np.int64))
            bad[j] |= np.int32(not abs(c[j]) <= np.float32(65504))
    else:
        words = c.view(np.int32)
        for j in range(len(c)):
            c[j] += x[j]
        for j in range(len(c)):
            field = words[j] & EXPONENT
            bad[j] |= np.int32(field == EXPONENT) | (np.int32(field == 0) & np.int32(c[j] != 0))


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
    one_format = found.before is None and found.widen in (None, fmt) and found.adds_c in (None, fmt)
    if not one_format or arithmetic.rounding != "rn" or (after and a.shape[-1] > k):
        return None
    if found.widen:
        a, b = convert(arithmetic.a, fmt, a), convert(arithmetic.b, fmt, b)
    if arithmetic.c is not fmt:
        c = convert(arithmetic.c, fmt, c)
    batch, (m, n) = max(len(a), len(b), len(c)), c.shape[-2:]
    x = np.array(np.broadcast_to(c, (batch, m, n))).view(f"f{fmt.bits // 8}")
    p, q = (y.view(x.dtype) for y in (np.ascontiguousarray(a), np.swapaxes(b, -1, -2).copy()))
    pairs = isinstance(step, PairSums)
    _run(chain_tasks, batch * m, x.size * a.shape[-1], p, q, x, k if found.adds_c else 0, pairs)
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
    _run(popcount_tasks, batch * m, x.size * p.shape[-1] * 8, p, q, x, both)
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
