"""The special function unit over words: `emulator.arith.special`, function by function.

The formulas are the same; ordinary operands go straight through them, and the others are put right
where there are any. Codes are u32, exponents i32, and sums i64.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from emulator.arith.scalar.words import Value, Word, Words
from emulator.arith.special import FRACTION, INFINITY, INFINITY64H, NAN, ONE, SIGN, TANH_FIRST
from emulator.arith.special_tables import EX2, LG2, RCP, RSQRT, SIN, SQRT, TANH, TANH_BITS, Table

Int64 = NDArray[np.int64]
_MAGNITUDE = SIGN - 1

# --- the interpolator -----------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _squares() -> NDArray[np.uint32]:
    """`special.square` of all numbers of 17 bits, in units of 2**19: nothing is below."""
    x = np.arange(1 << 17, dtype=np.int64)
    total = np.zeros_like(x)
    for i in range(17):
        for j in range(i, 17):
            place = 2 * i if i == j else i + j + 1
            if place >= 19:
                total += (x >> i & x >> j & 1) << place
    return (total >> 19).astype(np.uint32)


@lru_cache(maxsize=8)
def _columns(table: Table) -> tuple[Int64, Int64, Int64]:
    """The terms of all rows: that without x, the factor of x and the factor of its square."""
    c0, c1, c2 = np.array(table.rows, np.int64).T
    constant = (c0 << table.c0_shift) + table.bias
    # The argument of rcp is squared with one more bit, and the square cut by two.
    unit = 19 - 2 if table is RCP else 19
    return constant, table.c1_sign * (c1 << table.c1_shift), table.c2_sign * (c2 << unit)


#: bits that choose a row of tanh, and its first row, for each exponent
_TANH_BITS, _TANH_FIRST = np.array(TANH_BITS, np.uint32), np.array(TANH_FIRST, np.uint32)


def _interpolate(w: Words, table: Table, row: Word, x: Word) -> Word:
    """The sum of a row, in units of ``2**-table.weight``."""
    row, x = row.astype(np.int64), x.astype(np.int64)
    constant, linear, quadratic = (w.look_up(column, row) for column in _columns(table))
    square = w.look_up(_squares(), x << 1 if table is RCP else x).astype(np.int64)
    return linear * x + constant + quadratic * square


# --- codes ----------------------------------------------------------------------------------------


def _fields(x: Word) -> tuple[Word, Word, Word]:
    """The sign in its place, the exponent field and the fraction."""
    return x & SIGN, (x >> 23 & 255).view(np.int32), x & FRACTION


def _codes(w: Words, exponent: Word, fraction: Word) -> Word:
    """Results without a sign; below the normal range zeros, above it infinities."""
    out = (exponent + 127 << 23).view(np.uint32) | fraction & FRACTION
    out = w.put(exponent > 127, INFINITY, out)
    return w.put(exponent < -126, 0, out)


def _cut(w: Words, sign: Word, number: Word, weight: int) -> Word:
    """``number * 2**-weight``, cut to 24 significant bits."""
    zeros = w.leading_zeros(number | 1)
    at_top = (number << zeros.astype(np.int64)).view(np.uint64) >> 63 - 23
    exponent = 63 - weight - zeros.view(np.int32)
    out = _codes(w, exponent, at_top.astype(np.uint32))
    return sign | w.put(number == 0, 0, out)


def _fixed(w: Words, x: Word, point: int, limit: float) -> Word:
    """Magnitudes of codes, at most `limit`, cut to units of ``2**-point``; of a NaN anything."""
    magnitude = (x & _MAGNITUDE).view(np.float32)
    inside = w.put(~(magnitude < limit), limit, magnitude)
    fixed = (inside.astype(np.float64) * 2.0**point).astype(np.int64)
    return w.put(magnitude < 2.0**-126, 0, fixed)


def _taken(total: Word, shift: int) -> Word:
    """The low 32 bits of a sum cut by so many."""
    return (total >> shift).astype(np.uint32)


def _half(exponent: Word) -> tuple[Word, Word]:
    """Half of an exponent, and the bit that is left."""
    odd = exponent & 1
    return exponent - odd >> 1, odd.view(np.uint32)


# --- the units ------------------------------------------------------------------------------------


def rcp(w: Words, x: Word) -> Word:
    sign, field, f = _fields(x)
    total = _interpolate(w, RCP, f >> 16, f & 0xFFFF)
    low = total >> RCP.weight == 0
    total = w.select(low, total << 1, total)
    out = _codes(w, 127 - field - low.astype(np.int32), _taken(total, RCP.weight - 23))
    out = w.put(field == 0, INFINITY, out)
    out = w.put(field == 255, 0, out) | sign
    return w.put(x & _MAGNITUDE > INFINITY, NAN, out)


def rsqrt(w: Words, x: Word) -> Word:
    sign, field, f = _fields(x)
    exponent, odd = _half(field - 127)
    total = _interpolate(w, RSQRT, (f >> 17) + (odd << 6), f & 0x1FFFF)
    out = _codes(w, -1 - exponent, _taken(total, RSQRT.weight - 24))
    exact = (f | odd) == 0
    out = w.put(exact, lambda: _codes(w, -exponent, f), out)
    return _roots(w, x, out, lambda: sign | INFINITY, 0)


def sqrt(w: Words, x: Word) -> Word:
    sign, field, f = _fields(x)
    exponent, odd = _half(field - 127)
    total = _interpolate(w, SQRT, (f >> 17) + (odd << 6), f & 0x1FFFF)
    out = _codes(w, exponent, _taken(total, SQRT.weight - 23))
    return _roots(w, x, out, sign, INFINITY)


def _roots(
    w: Words, x: Word, out: Word, of_zero: Value | Callable[[], Value], of_infinity: int
) -> Word:
    """`out` with the results of operands that are no positive finite numbers."""
    sign, field, _ = _fields(x)
    out = w.put(field == 255, of_infinity, out)
    out = w.put(sign != 0, NAN, out)
    out = w.put(field == 0, of_zero, out)
    return w.put(x & _MAGNITUDE > INFINITY, NAN, out)


def ex2(w: Words, x: Word) -> Word:
    sign, field, _ = _fields(x)
    fixed = _fixed(w, x, 23, 128.0).astype(np.int32)
    # The complement of a negative argument; where it is whole, the negative.
    negative = x.view(np.int32) >> 31
    fixed = (fixed ^ negative) + (negative & (fixed & FRACTION == 0).astype(np.int32))
    low = fixed.view(np.uint32)
    total = _interpolate(w, EX2, low >> 17 & 63, low & 0x1FFFF)
    out = _codes(w, fixed >> 23, _taken(total, EX2.weight - 23))

    def beyond() -> Word:
        return w.select(sign == 0, np.uint32(INFINITY), np.uint32(0))

    out = w.put(field >= 127 + 7, beyond, out)
    return w.put(x & _MAGNITUDE > INFINITY, NAN, out)


def lg2(w: Words, x: Word) -> Word:
    _, field, f = _fields(x)
    total = _interpolate(w, LG2, f >> 17, f & 0x1FFFF)
    total = total + ((field - 127).astype(np.int64) << LG2.weight)
    sign = (field - 127).view(np.uint32) & SIGN
    out = _cut(w, sign, abs(total) >> 20 << 20, LG2.weight)
    out = w.put(x == ONE, 0, out)
    return _roots(w, x, out, SIGN | INFINITY, INFINITY)


def sin(w: Words, x: Word) -> Word:
    return _wave(w, x, cosine=False)


def cos(w: Words, x: Word) -> Word:
    return _wave(w, x, cosine=True)


def _wave(w: Words, x: Word, cosine: bool) -> Word:
    sign, field, _ = _fields(x)
    # From 2**24 revolutions on every number is whole.
    fixed = _fixed(w, x, 25, 2.0**24)
    quarter = (fixed >> 23).astype(np.uint32)
    turned = quarter & 1 ^ 1 if cosine else quarter & 1
    low = fixed.astype(np.uint32) ^ -turned
    negative = (quarter + 1 << 30 if cosine else quarter << 30) & SIGN
    negative = negative if cosine else negative ^ sign
    total = _interpolate(w, SIN, low >> 17 & 63, low & 0x1FFFF)
    return w.put(field == 255, NAN, _cut(w, negative, total, SIN.weight))


def tanh(w: Words, x: Word) -> Word:
    sign, field, f = _fields(x)
    place = w.minimum(w.maximum(field - 119, 0), len(TANH_BITS) - 1).view(np.uint32)
    bits = w.look_up(_TANH_BITS, place)
    row = w.look_up(_TANH_FIRST, place) + (f >> 23 - bits)
    out = _cut(w, sign, _interpolate(w, TANH, row, f >> 6 - bits & 0x1FFFF), TANH.weight)
    out = w.put(field < 119, x, out)
    out = w.put(field > 129, lambda: sign | ONE, out)
    return w.put(x & _MAGNITUDE > INFINITY, NAN, out)


# --- the units of f64 -----------------------------------------------------------------------------


def _fields64(x: Word) -> tuple[Word, Word, Word]:
    return x & SIGN, (x >> 20 & 2047).view(np.int32), x & 0xFFFFF


def rcp64h(w: Words, x: Word) -> Word:
    sign, field, f = _fields64(x)
    near = rcp(w, f << 3 | ONE)
    exponent = (near >> 23).view(np.int32) + (1023 - 127 + 1023) - field
    out = (exponent << 20).view(np.uint32) | (near & FRACTION) >> 3
    out = w.put(exponent <= 0, 0, out)
    out = w.put(field == 0, INFINITY64H, out) | sign
    return w.put((field == 2047) & (f != 0), NAN, out)


def rsq64h(w: Words, x: Word) -> Word:
    sign, field, f = _fields64(x)
    exponent, odd = _half(field - 1023)
    near = rsqrt(w, (odd << 23) + ONE | f << 3)
    exponent = (near >> 23).view(np.int32) + (1023 - 127) - exponent
    out = (exponent << 20).view(np.uint32) | (near & FRACTION) >> 3
    out = w.put(field == 2047, 0, out)
    out = w.put(sign != 0, NAN, out)
    out = w.put(field == 0, lambda: sign | INFINITY64H, out)
    return w.put((field == 2047) & (f != 0), NAN, out)
