"""Arithmetic on four packed fp8, fp6 and fp4 elements: PTX ISA 9.4, add, sub, mul and fma.

The manual gives the forms alone. Here every element is computed exactly and rounded once to
nearest, special values are those of IEEE 754, and a NaN is the canonical one of the result
(UNVERIFIED).
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtypes import Format, NumberClass, Overflow
from dtypes.arrays import decode_values
from dtypes.codec import decode, overflow_code
from emulator.arith.fast.error_free import odd_sum
from emulator.arith.scalar import exact, rounded
from emulator.arith.scalar.rule import packed_rule
from emulator.arith.scalar.types import ScalarType
from emulator.arith.scalar.words import Operand, Word, Words, joined

_INFINITE, _NAN = NumberClass.INFINITE, NumberClass.NAN


@packed_rule
def add(to: ScalarType, t: ScalarType, a: int, c: int, *, satfinite: bool = False) -> int:
    """a + c."""
    return _packed(to, satfinite, (t, a), None, (to, c))


@add.words
def _(
    w: Words, to: ScalarType, t: ScalarType, a: Word, c: Word, *, satfinite: bool = False
) -> Word:
    return _packed_words(w, to, satfinite, (t, a), None, (to, c))


@packed_rule
def sub(to: ScalarType, t: ScalarType, a: int, c: int, *, satfinite: bool = False) -> int:
    """a - c."""
    return _packed(to, satfinite, (t, a), None, (to, c), minus=True)


@sub.words
def _(
    w: Words, to: ScalarType, t: ScalarType, a: Word, c: Word, *, satfinite: bool = False
) -> Word:
    return _packed_words(w, to, satfinite, (t, a), None, (to, c), minus=True)


@packed_rule
def mul(
    to: ScalarType, t: ScalarType, u: ScalarType, a: int, b: int, *, satfinite: bool = False
) -> int:
    """a · b."""
    return _packed(to, satfinite, (t, a), (u, b), None)


@mul.words
def _(
    w: Words,
    to: ScalarType,
    t: ScalarType,
    u: ScalarType,
    a: Word,
    b: Word,
    *,
    satfinite: bool = False,
) -> Word:
    return _packed_words(w, to, satfinite, (t, a), (u, b), None)


@packed_rule
def fma(
    to: ScalarType, t: ScalarType, u: ScalarType, a: int, b: int, c: int, *, satfinite: bool = False
) -> int:
    """a · b + c, rounded once."""
    return _packed(to, satfinite, (t, a), (u, b), (to, c))


@fma.words
def _(
    w: Words,
    to: ScalarType,
    t: ScalarType,
    u: ScalarType,
    a: Word,
    b: Word,
    c: Word,
    *,
    satfinite: bool = False,
) -> Word:
    return _packed_words(w, to, satfinite, (t, a), (u, b), (to, c))


# --- exactly --------------------------------------------------------------------------------------

#: a type and a word of it
_Operand = tuple[ScalarType, Operand]


def _code(operand: _Operand, place: int) -> int:
    t, word = operand
    return int(word) >> place * t.bits & t.mask & t.format.code_mask


def _packed(
    to: ScalarType,
    satfinite: bool,
    a: _Operand,
    b: _Operand | None,
    c: _Operand | None,
    minus: bool = False,
) -> int:
    """a · b + c of every element; without b, a + c."""
    overflow: Overflow = "saturate" if satfinite else "ieee"
    out = 0
    for place in range(to.count):
        one = _factor(a, place)
        if b is not None:
            one = _product(one, _factor(b, place))
        if c is not None:
            sign, value = _factor(c, place)
            one = _sum(one, (sign ^ minus, None if value is None else -value if minus else value))
        out |= _rounded(to, one, overflow) << place * to.bits
    return out


#: sign and value of a number; an infinite one is "inf", one that is none is None
_Number = tuple[int, Any]
_NO_NUMBER: _Number = (0, None)


def _factor(operand: _Operand, place: int) -> _Number:
    fmt = operand[0].format
    number = decode(fmt, _code(operand, place))
    if number.number_class == _NAN:
        return _NO_NUMBER
    if number.number_class == _INFINITE:
        return number.sign, _Infinity(number.sign)
    return number.sign, exact.value(fmt, number)


class _Infinity:
    """A value larger than all others, or with a sign smaller."""

    def __init__(self, sign: int) -> None:
        self.sign = sign

    def __neg__(self) -> _Infinity:
        return _Infinity(1 - self.sign)


def _product(x: _Number, y: _Number) -> _Number:
    (one, a), (other, b) = x, y
    if a is None or b is None:
        return _NO_NUMBER
    sign = one ^ other
    if isinstance(a, _Infinity) or isinstance(b, _Infinity):
        zero = a == 0 or b == 0
        return _NO_NUMBER if zero else (sign, _Infinity(sign))
    return sign, a * b


def _sum(x: _Number, y: _Number) -> _Number:
    (one, a), (other, b) = x, y
    if a is None or b is None:
        return _NO_NUMBER
    if isinstance(a, _Infinity):
        opposite = isinstance(b, _Infinity) and b.sign != a.sign
        return _NO_NUMBER if opposite else x
    if isinstance(b, _Infinity):
        return y
    total = a + b
    return int(total < 0) if total else one & other, total


def _rounded(to: ScalarType, number: _Number, overflow: Overflow) -> int:
    fmt, (sign, value) = to.format, number
    assert fmt.nan is not None
    if value is None:
        return fmt.nan
    if isinstance(value, _Infinity):
        limit = fmt.max_finite if overflow == "saturate" else fmt.infinity
        code = overflow_code(fmt, 0, "rn", overflow) if limit is None else limit
    elif value == 0:
        code = 0
    else:
        code = exact.rounded(fmt, abs(Fraction(value)), "rn")
        largest = fmt.max_finite if overflow == "saturate" else fmt.code_mask
        code = min(code, largest)
    return code | (fmt.sign_mask if sign else 0)


# --- words ----------------------------------------------------------------------------------------


@cache
def _numbers(fmt: Format) -> NDArray[np.float64]:
    """The numbers of all codes."""
    return decode_values(fmt, np.arange(1 << fmt.bits, dtype=np.uint8))


def _values(w: Words, operand: _Operand, place: int) -> Word:
    t, words = operand
    codes = words >> place * t.bits & t.format.code_mask
    return w.look_up(_numbers(t.format), codes)


def _packed_words(
    w: Words,
    to: ScalarType,
    satfinite: bool,
    a: _Operand,
    b: _Operand | None,
    c: _Operand | None,
    minus: bool = False,
) -> Word:
    fmt, parts = to.format, []
    largest = fmt.max_finite if satfinite else overflow_code(fmt, 0, "rn", "ieee")
    for place in range(to.count):
        total = _values(w, a, place)
        if b is not None:
            # At most 8 bits of each factor: exact, in f32, too.
            total = total * _values(w, b, place)
        if c is not None:
            addend = _values(w, c, place)
            total = odd_sum(total, -addend if minus else addend)
        code = rounded.nearest_small(w, fmt, rounded.odd_float32(w, to, total), largest)
        code = w.put(total != total, fmt.max_finite if fmt.nan is None else fmt.nan, code)
        parts.append(code.astype(to.dtype))
    return joined(parts, to.bits)
