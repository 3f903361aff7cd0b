"""Fused dot-adds of one small matrix in few NumPy calls.

What computes large matrices and batches fast (`fused`, `grouped`) is, for a single instruction,
mostly the overhead of many calls on small arrays. The arithmetic here is the same, in float64,
which holds all of it exactly and more exponents than any of the formats has; products and the
accumulator are rows of one array. Where an element is an infinity or a NaN, or a result is not
ordinary, None comes back instead of a mask.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtypes import FORMATS, Array, Format, code_type
from emulator.arith import factors, grouped
from emulator.arith.recipes import Arithmetic
from emulator.arith.steps import FusedDotAdd

Float64 = NDArray[np.float64]

#: products for which this pays
MOST_PRODUCTS = 1 << 13
#: the exponent field of a float64
_EXPONENT = np.int64(0x7FF << 52)
#: below the power of every term, and with room for its unit in float64
_NOWHERE = 2.0**-600
#: the largest power of which no sum is too large for float32
_HIGH = 2.0**100
#: bits of the widest format that has a table: 1 MiB
_TABLE_BITS = 16


class Plan(NamedTuple):
    """A recipe of fused dot-adds, settled for an instruction's k."""

    #: positions of k that each pass takes, ``(passes, positions)``
    order: NDArray[np.intp]
    widen: Format | None
    #: the passes of an instruction start from +0, and the accumulator is added to their result
    adds_c: bool
    #: neighbouring products that are one term
    group: int
    #: the result is f16, rounded to nearest even, else f32 toward zero
    half: bool
    #: minus the bits of the largest power: the bits of what scales terms to units
    to_scale: np.uint64
    #: least power that the alignment uses
    floor: float
    #: the largest power below which a result may be too small for a normal number
    low: float
    #: bits of a float64 that a result truncated to the output precision keeps
    mask: np.int64


@lru_cache(maxsize=1024)
def plan(arithmetic: Arithmetic, k: int) -> Plan | None:
    """How `matmul` and `dot_adds` compute a recipe, conversions of the accumulator before and after
    aside; None for recipes that they cannot compute."""
    made = factors.plan(arithmetic, k)
    if made is not None:
        return _planned(made.step, made.order, made.widen, made.adds_c)
    step = grouped.exact_step(arithmetic, k)
    return None if step is None else _planned(step, np.arange(k)[None])


def _planned(
    step: FusedDotAdd,
    order: NDArray[np.intp],
    widen: Format | None = None,
    adds_c: bool = False,
) -> Plan:
    result = FORMATS[step.result]
    to_scale = np.uint64((2 * 1023 + step.fraction_bits) << 52)
    floor = _NOWHERE if step.floor is None else 2.0**step.floor
    low = 2.0 ** (result.emin + step.fraction_bits)
    mask = np.int64(-1 << (53 - (step.precision or result.precision)))
    return Plan(
        order, widen, adds_c, step.group, step.result == "f16", to_scale, floor, low, mask
    )  # fmt: skip


# --- elements -------------------------------------------------------------------------------------


def numbers(fmt: Format, widen: Format | None, codes: Array) -> Float64:
    """Values of codes, and 2**exponent of each as decoded (a subnormal has the least exponent of
    the format, or of `widen`, if that is given), 0 for a zero: ``(2, …)``."""
    if fmt.bits > _TABLE_BITS:
        return _numbers(fmt, widen, codes)
    return _table(fmt, widen).take(codes, 1)


@lru_cache(maxsize=16)
def _table(fmt: Format, widen: Format | None = None) -> Float64:
    return _numbers(fmt, widen, np.arange(1 << fmt.bits).astype(code_type(fmt.bits)))


def _numbers(fmt: Format, widen: Format | None, codes: Array) -> Float64:
    found = np.empty((2, *codes.shape))
    value, power = found
    with np.errstate(invalid="ignore"):  # of NaNs
        value[...] = factors.values(fmt, codes)
    np.bitwise_and(value.view(np.int64), _EXPONENT, out=power.view(np.int64))
    np.maximum(power, 2.0 ** (widen or fmt).emin, out=power)
    power *= value != 0
    return found


# --- products -------------------------------------------------------------------------------------


def matmul(
    made: Plan, a_type: Format, a: Array, b_type: Format, b: Array, c: Array
) -> Array | None:
    """Accumulators ``(m, n)`` after all instructions of codes `a` ``(m, K)`` and `b` ``(n, K)``;
    None where one is to be computed otherwise. `c` and the result are float16 or float32."""
    starts = np.arange(0, a.shape[-1], made.order.size)
    taken = (starts[:, None] + made.order.reshape(-1)).reshape(-1)
    rows = numbers(a_type, made.widen, a.take(taken, -1).T[:, :, None])
    columns = numbers(b_type, made.widen, b.take(taken, -1).T[:, None, :])
    return dot_adds(made, rows, columns, c)


def dot_adds(
    made: Plan, a: Float64, b: Float64, c: Array, sums: Float64 | None = None
) -> Array | None:
    """Accumulators after all passes of numbers `a` and `b`, ``(2, terms, …)``, that broadcast to
    the shape of `c`; None where one is to be computed otherwise.

    `c` and the result are float16 or float32. With `sums` ``(2, terms, …)``, those of groups of
    products and of their magnitudes, `a` and `b` are the scales of the groups.
    """
    passes, width = len(made.order), made.order.shape[1] // made.group
    rows = np.empty((2, width + 1, *c.shape))
    products, (values, powers) = rows[:, :-1], rows[:, -1]
    x = c
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        for start in range(0, a.shape[1], width):
            part, first = slice(start, start + width), start // width % passes == 0
            np.multiply(a[:, part], b[:, part], out=products)
            if sums is not None:
                products[0] *= sums[0, part]
                products[1] *= sums[1, part] != 0  # products that cancel count
            if made.adds_c and first:
                c, x = x, np.zeros_like(x)
            if made.half:
                rows[:, -1] = _table(FORMATS["f16"]).take(x.view(np.uint16), 1)
            else:
                values[...] = x
                np.bitwise_and(values.view(np.int64), _EXPONENT, out=powers.view(np.int64))
            found = _sum(made, rows, x)
            if found is None:
                return None
            x = found
            if made.adds_c and start // width % passes == passes - 1:
                x = x + c
                if not np.isfinite(x).all():
                    return None
    return x


def _sum(made: Plan, rows: Float64, x: Array) -> Array | None:
    """One fused dot-add of rows of terms, the last of which is `x`; the values are changed."""
    values, powers = rows
    top = np.maximum.reduce(powers, 0, initial=made.floor)
    scale = (made.to_scale - top.view(np.uint64)).view(np.float64)
    values *= scale
    np.trunc(values, out=values)
    # From +0 on, so that −0 never is the sum.
    total = np.add.reduce(values, 0, initial=0.0)
    total /= scale
    if made.half:
        result: NDArray[Any] = total.astype(np.float16)
        result += np.float16(0)  # what is rounded to a zero is +0, too
        return result if np.isfinite(result).all() else None
    # A NaN compares as false.
    if not np.maximum.reduce(top, None) <= _HIGH:
        return None
    # Of a subnormal, accumulator or result, the exponent is another than here.
    if np.minimum.reduce(top, None) < made.low and (
        ((top < made.low) & ((x != 0) | (total != 0))).any()
    ):
        return None
    return (total.view(np.int64) & made.mask).view(np.float64).astype(np.float32)
