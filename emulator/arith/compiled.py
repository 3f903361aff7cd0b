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
from typing import Any, NamedTuple

import numpy as np
from numba import config, get_num_threads, njit
from numba.core import types
from numba.extending import intrinsic, overload

from dtypes import FORMATS, Array, Format, code_type, convert
from emulator.arith.arrangement import arrangement
from emulator.arith.engines import say
from emulator.arith.factors import (
    EXPONENT,
    LARGEST,
    LEAST,
    Bool,
    Constants,
    Float32,
    Plan,
    Side,
    least_power,
    powers,
    values,
)
from emulator.arith.fused import HIGH, LOW, RUN
from emulator.arith.recipes import Arithmetic
from emulator.arith.steps import FmaChain, PairSums

#: products of a batch that lie beside each other, and columns that are too few to do so
LANES, _FEW_COLUMNS = 128, 32
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


def run_in_threads(tasks: Callable[..., None], count: int, work: int, *arguments: Any) -> None:
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
            t = _larger(
                _larger(_of(p0, j) * q0[j], _of(p1, j) * q1[j]),
                _larger(_of(p2, j) * q2[j], _of(p3, j) * q3[j]),
            )
            u = _larger(
                _larger(_of(p4, j) * q4[j], _of(p5, j) * q5[j]),
                _larger(_of(p6, j) * q6[j], _of(p7, j) * q7[j]),
            )
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
            q = np.int32(np.int32(_of(a0, j) * b0[j] * s) + np.int32(_of(a1, j) * b1[j] * s))
            q = np.int32(q + np.int32(_of(a2, j) * b2[j] * s))
            q = np.int32(q + np.int32(_of(a3, j) * b3[j] * s))
            q = np.int32(q + np.int32(_of(a4, j) * b4[j] * s))
            q = np.int32(q + np.int32(_of(a5, j) * b5[j] * s))
            q = np.int32(q + np.int32(_of(a6, j) * b6[j] * s))
            q = np.int32(q + np.int32(_of(a7, j) * b7[j] * s))
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


def _of(x: Any, lane: int) -> Any:
    """What a lane has of `x`: all lanes have a number in common."""
    raise NotImplementedError


@overload(_of, inline="always", strict=False)
def _lane_of(x: Any, lane: Any) -> Any:
    if isinstance(x, types.Array):
        return lambda x, lane: x[lane]
    return lambda x, lane: x


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


# --- batches of small products --------------------------------------------------------------------


class Bits(NamedTuple):
    """How a format is decoded to float32: by a table, or as its upper bits but for f16."""

    table: Float32
    shift: np.uint32
    #: the bits of a float32 word that count
    mask: np.uint32
    half: bool
    #: exponent word of a subnormal
    least: np.int32


@lru_cache(maxsize=16)
def _bits(fmt: Format, widened: Format) -> Bits:
    table = np.zeros(0, np.float32)
    if fmt.bits <= 8:
        table = values(fmt, np.arange(1 << fmt.bits, dtype=np.uint8))
    mask = np.uint32(0xFFFFFFFF >> fmt.ignored_bits << fmt.ignored_bits)
    shift = np.uint32(max(0, 32 - fmt.bits))
    return Bits(table, shift, mask, fmt.name == "f16", least_power(widened))


def suits_lanes(batch: int, m: int, n: int) -> bool:
    """Whether the products of a batch are to lie beside each other instead of their columns."""
    return batch >= LANES // 2 and min(m, n) < _FEW_COLUMNS


def fused_lanes(
    made: Plan, a: Side, b: Side, scale: Format | None, c: Float32
) -> tuple[Float32, Bool]:
    """`fused.chain` of a batch of small products, from the codes of both sides."""
    batch, (m, n) = max(len(x) for x in (*a[1:], *b[1:], c) if x is not None), c.shape[-2:]
    blocks = -(-batch // LANES)
    (p, p_power, p_odd), (q, q_power, q_odd) = (_side_in_lanes(made, *x, scale) for x in (a, b))
    x = np.broadcast_to(c, (batch, m, n))
    if missing := blocks * LANES - batch:
        x = np.concatenate([x, np.zeros((missing, m, n), np.float32)])
    # Sums are added to in place: never in an array of the caller's.
    x = np.array(x.reshape(blocks, LANES, m, n).transpose(0, 2, 3, 1), order="C")
    bad = p_odd[:, :, None] | q_odd[:, None]
    bad = np.array(np.broadcast_to(bad, x.shape))
    period = len(made.order) if made.adds_c else 0
    work = x.size * p[0, 0, ..., 0].size
    run_in_threads(lane_tasks, blocks, work, p, p_power, q, q_power, x, bad, made.numbers, period)
    odd = (bad != 0).transpose(0, 3, 1, 2).reshape(-1, m, n)
    return x.transpose(0, 3, 1, 2).reshape(-1, m, n)[:batch], odd[:batch]


def _side_in_lanes(
    made: Plan, fmt: Format, codes: Array, scales: Array | None, scale: Format | None
) -> tuple[Float32, Float32, Array]:
    """Values and powers ``(blocks, rows, passes, k, lanes)``, and ``(blocks, rows, lanes)`` that
    are not 0 where a row has an element that is not ordinary; see `factors.factor`."""
    count, rows, length = codes.shape
    per_instruction, width = made.order.shape
    shape = (-(-count // LANES), rows, length // width, width + -width % RUN, LANES)
    value, power = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
    odd = np.zeros((*shape[:2], LANES), np.int32)
    by = by_power = np.zeros((1, 1, 0), np.float32)
    if scales is not None:
        assert scale is not None
        by = values(scale, scales)
        by_power = powers(scale, by)
    first = np.arange(length // width)[:, None] // per_instruction * made.order.size
    order = np.tile(made.order, (length // made.order.size, 1)) + first
    work = codes.size * 4
    run_in_threads(
        decode_tasks, len(value), work, np.ascontiguousarray(codes), order, by, by_power,
        value, power, odd, _bits(fmt, made.widen or fmt),
    )  # fmt: skip
    return value, power, odd


@_machine_code
def decode_tasks(
    first: int, last: int,
    codes: Array, order: Array, by: Array, by_power: Array, value: Array, power: Array, odd: Array,
    bits: Bits,
) -> None:  # fmt: skip
    """Blocks `first` … `last` of what `_side_in_lanes` gives."""
    table, shift, mask, half, least = bits
    rows, (passes, width), lanes = codes.shape[1], order.shape, value.shape[4]
    words = np.empty(lanes, np.uint32)
    numbers, exponents = words.view(np.float32), words.view(np.int32)
    for task in range(first, last):
        start, end = task * lanes, len(codes) - 1
        for row in range(rows):
            wrong = odd[task, row]
            for p in range(passes):
                for k in range(width):
                    place = order[p, k]
                    out, out_power = value[task, row, p, k], power[task, row, p, k]
                    if len(table):
                        for j in range(lanes):
                            numbers[j] = table[codes[min(start + j, end), row, place]]
                    else:
                        for j in range(lanes):
                            words[j] = codes[min(start + j, end), row, place]
                        if half:
                            for j in range(lanes):
                                code = words[j]
                                wrong[j] |= np.int32((code & 0x7C00) == 0x7C00)
                                words[j] = (code & 0x7FFF) << 13
                                out_power[j] = 1 - 2 * np.float32(code >> 15)
                            for j in range(lanes):
                                numbers[j] *= np.float32(2.0**112) * out_power[j]
                        else:
                            for j in range(lanes):
                                words[j] = (words[j] << shift) & mask
                    out[:] = numbers
                    for j in range(lanes):
                        e = np.int32(exponents[j] & EXPONENT)
                        exponents[j] = e if e > least else least
                    for j in range(lanes):
                        out_power[j] = numbers[j] if out[j] != 0 else np.float32(0)
                    if by.shape[2]:
                        chunk = place * by.shape[2] // codes.shape[2]
                        for j in range(lanes):
                            t = min(start + j, len(by) - 1)
                            out[j] *= by[t, row, chunk]
                            out_power[j] *= by_power[t, row, chunk]
                    for j in range(lanes):
                        within = (out_power[j] >= LEAST) & (out_power[j] <= LARGEST)
                        wrong[j] |= np.int32(not (within | (out[j] == 0)))


@_machine_code
def lane_tasks(
    first: int, last: int,
    a_value: Array, a_power: Array, b_value: Array, b_power: Array, x: Array, bad: Array,
    numbers: Constants, period: int,
) -> None:  # fmt: skip
    """Blocks `first` … `last` of products that lie beside each other: all arrays end with lanes.

    a is ``(t, m, passes, k, lanes)``, b ``(t, n, passes, k, lanes)``, x ``(t, m, n, lanes)``.
    """
    m, n, lanes = x.shape[1:]
    passes = a_value.shape[2]
    partial, sums = np.empty(lanes, np.float32), np.empty(lanes, np.float64)
    top, scale = np.empty(lanes, np.float32), np.empty(lanes, np.float32)
    for task in range(first, last):
        ta, tb = min(task, len(a_value) - 1), min(task, len(b_value) - 1)
        for i in range(m):
            for j in range(n):
                total, odd = x[task, i, j], bad[task, i, j]
                for p in range(passes):
                    if period and p % period == 0:
                        partial[:] = 0
                    _fused_pass(
                        numbers, a_value[ta, i, p], a_power[ta, i, p],
                        b_value[tb, j, p], b_power[tb, j, p],
                        partial if period else total, odd, top, scale, sums,
                    )  # fmt: skip
                    if period and (p + 1) % period == 0:
                        _add(numbers, total, partial, odd)


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
    run_in_threads(
        chain_tasks, batch * m, x.size * a.shape[-1], p, q, x, k if found.adds_c else 0, pairs
    )
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
