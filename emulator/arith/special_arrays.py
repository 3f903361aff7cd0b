"""The special function unit on arrays of codes: `emulator.arith.special`, function by function.

The formulas are the same; ordinary operands go straight through them, and the others are put right
where there are any.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtypes import Array
from dtypes.arrays import bit_length
from emulator.arith.special import (
    FRACTION,
    INFINITY,
    INFINITY64H,
    NAN,
    ONE,
    SIGN,
    TANH_FIRST,
    half,
)
from emulator.arith.special_tables import (
    EX2,
    LG2,
    RCP,
    RSQRT,
    SIN,
    SQRT,
    TANH,
    TANH_BITS,
    Table,
)

Int64 = NDArray[np.int64]

# --- the interpolator -----------------------------------------------------------------------------


@lru_cache(maxsize=1)
def squares() -> NDArray[np.uint16]:
    """`special.square` of all numbers of 17 bits, in units of 2**19: nothing is below."""
    x = np.arange(1 << 17, dtype=np.int64)
    total = np.zeros_like(x)
    for i in range(17):
        for j in range(i, 17):
            place = 2 * i if i == j else i + j + 1
            if place >= 19:
                total += (x >> i & x >> j & 1) << place
    return (total >> 19).astype(np.uint16)


@lru_cache(maxsize=8)
def columns(table: Table) -> tuple[Int64, Int64, Int64]:
    """The terms of all rows: that without x, the factor of x and the factor of its square."""
    c0, c1, c2 = np.array(table.rows, np.int64).T
    constant = (c0 << table.c0_shift) + table.bias
    # The argument of rcp is squared with one more bit, and the square cut by two.
    unit = 19 - 2 if table is RCP else 19
    return constant, table.c1_sign * (c1 << table.c1_shift), table.c2_sign * (c2 << unit)


def _interpolate(table: Table, row: Int64, x: Int64) -> Int64:
    """The sum of a row, in units of ``2**-table.weight``."""
    constant, linear, quadratic = columns(table)
    total = linear.take(row)
    total *= x
    total += constant.take(row)
    total += quadratic.take(row) * squares().take(2 * x if table is RCP else x)
    return total


# --- codes ----------------------------------------------------------------------------------------


def _fields(x: Array) -> tuple[Int64, Int64, Int64]:
    """Sign, exponent field and fraction."""
    codes = np.asarray(x).astype(np.int64)
    return codes >> 31, codes >> 23 & 255, codes & FRACTION


def _codes(sign: Any, exponent: Int64, fraction: Int64) -> Int64:
    """Results; below the normal range zeros, above it infinities."""
    out = exponent + 127 << 23 | fraction & FRACTION
    out = _put(out, exponent > 127, INFINITY)
    out = _put(out, exponent < -126, 0)
    return out | np.asarray(sign, np.int64) << 31


def _put(out: Int64, where: Array, value: Any) -> Int64:
    """`out` with other values in some places."""
    return np.where(where, value, out) if where.any() else out


def _cut(sign: Any, number: Int64, weight: int) -> Int64:
    """``number * 2**-weight``, cut to 24 significant bits."""
    top = bit_length(number | 1) - 1
    fraction = np.where(
        top > 23, number >> np.maximum(top - 23, 0), number << np.maximum(23 - top, 0)
    )
    return _put(_codes(sign, top - weight, fraction), number == 0, np.asarray(sign, np.int64) << 31)


def _fixed(x: Array, point: int, limit: float) -> Int64:
    """Magnitudes of codes, at most `limit`, cut to units of ``2**-point``; of a NaN anything."""
    magnitude = np.abs(np.asarray(x, np.uint32).view(np.float32)).astype(np.float64)
    subnormal = magnitude < 2.0**-126
    fixed = (np.fmin(magnitude, limit) * 2.0**point).astype(np.int64)
    return _put(fixed, subnormal, 0)


def _words(codes: Int64) -> Array:
    return codes.astype(np.uint32)


# --- the units ------------------------------------------------------------------------------------


def rcp(x: Array) -> Array:
    sign, field, f = _fields(x)
    total = _interpolate(RCP, f >> 16, f & 0xFFFF)
    low = total >> RCP.weight == 0
    out = _codes(sign, 127 - field - low, total << low.astype(np.int64) >> RCP.weight - 23)
    out = _put(out, field == 0, sign << 31 | INFINITY)
    return _words(_put(out, field == 255, np.where(f > 0, NAN, sign << 31)))


def rsqrt(x: Array) -> Array:
    sign, field, f = _fields(x)
    exponent, odd = half(field - 127)
    total = _interpolate(RSQRT, (f >> 17) + 64 * odd, f & 0x1FFFF)
    out = _codes(0, -1 - exponent, total >> RSQRT.weight - 24)
    out = _put(out, (f == 0) & (odd == 0), _codes(0, -exponent, f))
    return _roots(sign, field, f, out, sign << 31 | INFINITY, 0)


def sqrt(x: Array) -> Array:
    sign, field, f = _fields(x)
    exponent, odd = half(field - 127)
    total = _interpolate(SQRT, (f >> 17) + 64 * odd, f & 0x1FFFF)
    return _roots(
        sign, field, f, _codes(0, exponent, total >> SQRT.weight - 23), sign << 31, INFINITY
    )


def _roots(
    sign: Int64, field: Int64, f: Int64, out: Int64, of_zero: Any, of_infinity: int
) -> Array:
    """`out` with the results of operands that are no positive finite numbers."""
    out = _put(out, field == 255, of_infinity)
    out = _put(out, sign == 1, NAN)
    out = _put(out, field == 0, of_zero)
    return _words(_put(out, (field == 255) & (f > 0), NAN))


def ex2(x: Array) -> Array:
    sign, field, f = _fields(x)
    fixed = _fixed(x, 23, 128.0)
    # The complement of a negative argument; where it is whole, the negative.
    fixed = (fixed ^ -sign) + (sign & (fixed & FRACTION == 0))
    total = _interpolate(EX2, fixed >> 17 & 63, fixed & 0x1FFFF)
    out = _codes(0, fixed >> 23, total >> EX2.weight - 23)
    out = _put(out, field >= 127 + 7, np.where(sign == 1, 0, INFINITY))
    return _words(_put(out, (field == 255) & (f > 0), NAN))


def lg2(x: Array) -> Array:
    sign, field, f = _fields(x)
    total = _interpolate(LG2, f >> 17, f & 0x1FFFF) + (field - 127 << LG2.weight)
    out = _cut(field < 127, np.abs(total) >> 20 << 20, LG2.weight)
    out = _put(out, (field == 127) & (f == 0), 0)
    return _roots(sign, field, f, out, SIGN | INFINITY, INFINITY)


def sin(x: Array) -> Array:
    return _waves(x, cosine=False)


def cos(x: Array) -> Array:
    return _waves(x, cosine=True)


def _waves(x: Array, cosine: bool) -> Array:
    sign, field, _ = _fields(x)
    # From 2**24 revolutions on every number is whole.
    fixed = _fixed(x, 25, 2.0**24)
    quarter = fixed >> 23
    fixed = fixed ^ -((quarter & 1) ^ cosine)
    negative = quarter + 1 >> 1 & 1 if cosine else sign ^ quarter >> 1 & 1
    out = _cut(negative, _interpolate(SIN, fixed >> 17 & 63, fixed & 0x1FFFF), SIN.weight)
    return _words(_put(out, field == 255, NAN))


def tanh(x: Array) -> Array:
    sign, field, f = _fields(x)
    place = np.clip(field - 119, 0, len(TANH_BITS) - 1)
    bits = np.array(TANH_BITS).take(place)
    row = np.array(TANH_FIRST).take(place) + (f >> 23 - bits)
    out = _cut(sign, _interpolate(TANH, row, f >> 6 - bits & 0x1FFFF), TANH.weight)
    out = _put(out, field < 119, np.asarray(x))
    out = _put(out, field > 129, sign << 31 | ONE)
    return _words(_put(out, (field == 255) & (f > 0), NAN))


def rcp64h(x: Array) -> Array:
    codes = np.asarray(x).astype(np.int64)
    sign, field, f = codes >> 31, codes >> 20 & 2047, codes & 0xFFFFF
    near = rcp(ONE | f << 3).astype(np.int64)
    exponent = (near >> 23) - 127 - (field - 1023) + 1023
    out = np.where(exponent > 0, exponent << 20 | (near & FRACTION) >> 3, 0)
    out = np.where(field == 0, INFINITY64H, np.where(field == 2047, 0, out)) | sign << 31
    return _words(np.where((field == 2047) & (f > 0), NAN, out))


def rsq64h(x: Array) -> Array:
    codes = np.asarray(x).astype(np.int64)
    sign, field, f = codes >> 31, codes >> 20 & 2047, codes & 0xFFFFF
    exponent, odd = half(field - 1023)
    near = rsqrt(ONE + (odd << 23) | f << 3).astype(np.int64)
    out = (near >> 23) - 127 - exponent + 1023 << 20 | (near & FRACTION) >> 3
    out = np.where(field == 2047, 0, out)
    out = np.where(field == 0, sign << 31 | INFINITY64H, np.where(sign == 1, NAN, out))
    return _words(np.where((field == 2047) & (f > 0), NAN, out))
