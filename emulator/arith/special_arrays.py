"""The special function unit on arrays of codes: `emulator.arith.special`, function by function."""

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


@lru_cache(maxsize=1)
def _squares() -> Int64:
    """`square` of all numbers of 17 bits."""
    x = np.arange(1 << 17, dtype=np.int64)
    total = np.zeros_like(x)
    for i in range(17):
        for j in range(i, 17):
            place = 2 * i if i == j else i + j + 1
            if place >= 19:
                total += (x >> i & x >> j & 1) << place
    return total


@lru_cache(maxsize=8)
def _columns(table: Table) -> tuple[Int64, Int64, Int64]:
    """The terms of all rows: that without x, the factor of x and the factor of its square."""
    c0, c1, c2 = np.array(table.rows, np.int64).T
    constant = (c0 << table.c0_shift) + table.bias
    return constant, table.c1_sign * (c1 << table.c1_shift), table.c2_sign * c2


def _interpolate(table: Table, row: Int64, x: Int64) -> Int64:
    constant, linear, quadratic = _columns(table)
    squared = _squares()[2 * x] >> 2 if table is RCP else _squares()[x]
    return constant[row] + linear[row] * x + quadratic[row] * squared


# --- codes ---


def _fields(x: Array) -> tuple[Int64, Int64, Int64]:
    codes = np.asarray(x).astype(np.int64)
    return codes >> 31, codes >> 23 & 255, codes & FRACTION


def _codes(sign: Any, exponent: Int64, fraction: Int64) -> Int64:
    normal = exponent + 127 << 23 | fraction & FRACTION
    magnitude = np.where(exponent > 127, INFINITY, np.where(exponent < -126, 0, normal))
    return magnitude | np.asarray(sign, np.int64) << 31


def _cut(sign: Any, number: Int64, weight: int) -> Int64:
    top = bit_length(np.maximum(number, 1)) - 1
    fraction = np.where(
        top > 23, number >> np.maximum(top - 23, 0), number << np.maximum(23 - top, 0)
    )
    out = _codes(sign, top - weight, fraction)
    return np.where(number == 0, np.asarray(sign, np.int64) << 31, out)


def _fixed(exponent: Int64, fraction: Int64, point: int) -> Int64:
    """The magnitude of codes cut to units of ``2**-point``, modulo 2**53; of subnormal ones 0."""
    shift = point - 23 + exponent - 127
    significand = fraction | 1 << 23
    out = np.where(
        shift >= 0, significand << np.clip(shift, 0, 30), significand >> np.clip(-shift, 0, 40)
    )
    return np.where((exponent == 0) | (shift > 30), 0, out)


# --- the units ------------------------------------------------------------------------------


def rcp(x: Array) -> Array:
    sign, field, f = _fields(x)
    total = _interpolate(RCP, f >> 16, f & 0xFFFF)
    low = total >> 56 == 0
    out = _codes(sign, 127 - field - low, np.where(low, total << 1, total) >> 33)
    out = np.where(field == 0, sign << 31 | INFINITY, out)
    return _words(np.where(field == 255, np.where(f > 0, NAN, sign << 31), out))


def rsqrt(x: Array) -> Array:
    sign, field, f = _fields(x)
    exponent, odd = half(field - 127)
    total = _interpolate(RSQRT, (f >> 17) + 64 * odd, f & 0x1FFFF)
    out = _codes(0, -1 - exponent, total >> 33)
    out = np.where((f == 0) & (odd == 0), _codes(0, -exponent, f), out)
    return _roots(sign, field, f, out, sign << 31 | INFINITY, 0)


def sqrt(x: Array) -> Array:
    sign, field, f = _fields(x)
    exponent, odd = half(field - 127)
    total = _interpolate(SQRT, (f >> 17) + 64 * odd, f & 0x1FFFF)
    return _roots(sign, field, f, _codes(0, exponent, total >> 35), sign << 31, INFINITY)


def _roots(
    sign: Int64, field: Int64, f: Int64, out: Int64, of_zero: Any, of_infinity: int
) -> Array:
    """`out` with the results of operands that are no positive finite numbers."""
    out = np.where(field == 255, of_infinity, out)
    out = np.where(sign == 1, NAN, out)
    out = np.where(field == 0, of_zero, out)
    return _words(np.where((field == 255) & (f > 0), NAN, out))


def ex2(x: Array) -> Array:
    sign, field, f = _fields(x)
    magnitude = _fixed(np.minimum(field, 134), f, 23)
    whole, rest = magnitude >> 23, magnitude & FRACTION
    whole = np.where(sign == 1, -whole - (rest > 0), whole)
    rest = np.where((sign == 1) & (rest > 0), ~rest & FRACTION, rest)
    out = _codes(0, whole, _interpolate(EX2, rest >> 17, rest & 0x1FFFF) >> 34)
    out = np.where(field >= 134, np.where(sign == 1, 0, INFINITY), out)
    return _words(np.where((field == 255) & (f > 0), NAN, out))


def lg2(x: Array) -> Array:
    sign, field, f = _fields(x)
    total = _interpolate(LG2, f >> 17, f & 0x1FFFF) + (field - 127 << 56)
    out = _cut(field < 127, np.abs(total) >> 20 << 20, 56)
    out = np.where((field == 127) & (f == 0), 0, out)
    return _roots(sign, field, f, out, SIGN | INFINITY, INFINITY)


def sin(x: Array) -> Array:
    return _waves(x, cosine=False)


def cos(x: Array) -> Array:
    return _waves(x, cosine=True)


def _waves(x: Array, cosine: bool) -> Array:
    sign, field, f = _fields(x)
    magnitude = _fixed(field, f, 25)
    quarter, rest = magnitude >> 23 & 3, magnitude & FRACTION
    rest = np.where((quarter & 1) != cosine, ~rest & FRACTION, rest)
    negative = quarter + 1 >> 1 & 1 if cosine else sign ^ quarter >> 1
    out = _cut(negative, _interpolate(SIN, rest >> 17, rest & 0x1FFFF), 56)
    return _words(np.where(field == 255, NAN, out))


def tanh(x: Array) -> Array:
    sign, field, f = _fields(x)
    place = np.clip(field - 119, 0, len(TANH_BITS) - 1)
    bits = np.array(TANH_BITS)[place]
    row = np.array(TANH_FIRST)[place] + (f >> 23 - bits)
    out = _cut(sign, _interpolate(TANH, row, f >> 6 - bits & 0x1FFFF), 57)
    out = np.where(field < 119, np.asarray(x), out)
    out = np.where(field > 129, sign << 31 | ONE, out)
    return _words(np.where((field == 255) & (f > 0), NAN, out))


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


def _words(codes: Int64) -> Array:
    return codes.astype(np.uint32)
