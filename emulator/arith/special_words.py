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
#: the least normal number
_NORMAL = 1 << 23

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


def _codes(w: Words, field: Word, fraction: Word) -> Word:
    """Results without a sign, of exponent fields up to 254; below the normal range zeros."""
    return w.put(field < 1, 0, (field << 23).view(np.uint32) | fraction & FRACTION)


def _cut(w: Words, sign: Word, number: Word, weight: int) -> Word:
    """``number * 2**-weight``, cut to 24 significant bits: 0, or in the normal range."""
    zeros = w.leading_zeros(number | 1)
    at_top = (number << zeros.astype(np.int64)).view(np.uint64) >> 63 - 23
    out = (63 - weight + 127 << 23) - (zeros << 23) | at_top.astype(np.uint32) & FRACTION
    return sign | w.put(number == 0, 0, out)


def _fixed(w: Words, x: Word, point: int, limit: float) -> Word:
    """Magnitudes of codes, at most `limit`, as f32 numbers of units of ``2**-point``; of a NaN
    anything."""
    magnitude = (x & _MAGNITUDE).view(np.float32)
    return w.put(~(magnitude < limit), limit, magnitude) * 2.0**point


def _taken(total: Word, shift: int) -> Word:
    """The low 32 bits of a sum cut by so many."""
    return (total >> shift).astype(np.uint32)


# --- the units ------------------------------------------------------------------------------------


def rcp(w: Words, x: Word) -> Word:
    sign, field, f = _fields(x)
    total = _interpolate(w, RCP, f >> 16, f & 0xFFFF)
    low = total >> RCP.weight == 0
    total = total << low.astype(np.int64)
    out = sign | _codes(w, 254 - field - low.astype(np.int32), _taken(total, RCP.weight - 23))

    def other() -> Word:
        known = w.select(field == 0, np.uint32(INFINITY), np.uint32(0)) | sign
        return w.select(x & _MAGNITUDE > INFINITY, np.uint32(NAN), known)

    return w.put((x & _MAGNITUDE) - _NORMAL >= INFINITY - _NORMAL, other, out)


def rsqrt(w: Words, x: Word) -> Word:
    total = _interpolate(w, RSQRT, _row_of_root(x), x & 0x1FFFF)
    field = (190 << 23) - _half(x)
    out = field | _taken(total, RSQRT.weight - 24) & FRACTION
    # Of an even power of two it is one, with the next exponent.
    out = w.put(x & (1 << 24) - 1 == 1 << 23, lambda: field + (1 << 23), out)
    return _roots(w, x, out, lambda: x & SIGN | INFINITY, 0)


def sqrt(w: Words, x: Word) -> Word:
    total = _interpolate(w, SQRT, _row_of_root(x), x & 0x1FFFF)
    out = (63 << 23) + _half(x) | _taken(total, SQRT.weight - 23) & FRACTION
    return _roots(w, x, out, lambda: x & SIGN, INFINITY)


def _row_of_root(x: Word) -> Word:
    """64 if the exponent is odd, which the last bit of its field is not then, and the upper bits of
    the fraction."""
    return x >> 17 & 127 ^ 64


def _half(x: Word) -> Word:
    """Half of the exponent, cut downward, and 64 more, in the place of exponent fields."""
    return x + (1 << 23) >> 1 & 255 << 23


def _roots(w: Words, x: Word, out: Word, of_zero: Callable[[], Value], of_infinity: int) -> Word:
    """`out` with the results of operands that are no positive normal numbers."""

    def other() -> Word:
        known = w.select(x == INFINITY, np.uint32(of_infinity), np.uint32(NAN))
        return w.select(x & INFINITY == 0, of_zero(), known)

    return w.put(x - _NORMAL >= INFINITY - _NORMAL, other, out)


def ex2(w: Words, x: Word) -> Word:
    fixed = _fixed(w, x, 23, 128.0).astype(np.int32)
    # The complement of a negative argument; where it is whole, the negative.
    negative = x.view(np.int32) >> 31
    fixed = (fixed ^ negative) + (negative & (fixed & FRACTION == 0).astype(np.int32))
    low = fixed.view(np.uint32)
    total = _interpolate(w, EX2, low >> 17 & 63, low & 0x1FFFF)
    out = _codes(w, (fixed >> 23) + 127, _taken(total, EX2.weight - 23))

    def beyond() -> Word:
        known = w.select(x & SIGN == 0, np.uint32(INFINITY), np.uint32(0))
        return w.select(x & _MAGNITUDE > INFINITY, np.uint32(NAN), known)

    return w.put(x & _MAGNITUDE >= 127 + 7 << 23, beyond, out)


def lg2(w: Words, x: Word) -> Word:
    _, field, f = _fields(x)
    total = _interpolate(w, LG2, f >> 17, f & 0x1FFFF)
    total = total + ((field - 127).astype(np.int64) << LG2.weight)
    sign = (field - 127).view(np.uint32) & SIGN
    out = _cut(w, sign, abs(total) >> 20 << 20, LG2.weight)
    out = w.put(x == ONE, 0, out)
    return _roots(w, x, out, lambda: np.uint32(SIGN | INFINITY), INFINITY)


def sin(w: Words, x: Word) -> Word:
    return _wave(w, x, cosine=False)


def cos(w: Words, x: Word) -> Word:
    return _wave(w, x, cosine=True)


def _wave(w: Words, x: Word, cosine: bool) -> Word:
    sign, field, _ = _fields(x)
    # From 2**24 revolutions on every number is whole.
    fixed = _fixed(w, x, 25, 2.0**24).astype(np.int64)
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
    odd = field - 1023 & 1
    exponent = field - 1023 - odd >> 1
    near = rsqrt(w, (odd.view(np.uint32) << 23) + ONE | f << 3)
    exponent = (near >> 23).view(np.int32) + (1023 - 127) - exponent
    out = (exponent << 20).view(np.uint32) | (near & FRACTION) >> 3
    out = w.put(field == 2047, 0, out)
    out = w.put(sign != 0, NAN, out)
    out = w.put(field == 0, lambda: sign | INFINITY64H, out)
    return w.put((field == 2047) & (f != 0), NAN, out)
