"""Quotients and roots as IEEE 754 rounds them: div, rcp, sqrt (PTX ISA 9.7.3)."""

from __future__ import annotations

from math import isqrt

import numpy as np

from dtypes import NumberClass, Rounding
from emulator.arith.fast.error_free import two_product
from emulator.arith.scalar import exact, rounded
from emulator.arith.scalar.rule import rule
from emulator.arith.scalar.types import TYPES, ScalarType
from emulator.arith.scalar.words import Word, Words

_F64 = TYPES["f64"]
_ZERO, _INFINITE, _NAN = NumberClass.ZERO, NumberClass.INFINITE, NumberClass.NAN


@rule
def div(t: ScalarType, a: int, b: int, *, rounding: Rounding = "rn", ftz: bool = False) -> int:
    """9.7.3.8, div with a rounding: the quotient as IEEE 754 has it."""
    fmt = t.format
    x, y = exact.read(fmt, a, ftz), exact.read(fmt, b, ftz)
    classes, sign = (x.number_class, y.number_class), x.sign ^ y.sign
    if _NAN in classes:
        return exact.nan_of(fmt, a, b)
    if classes in ((_ZERO, _ZERO), (_INFINITE, _INFINITE)):
        return exact.nan_of(fmt)
    if x.number_class == _INFINITE or y.number_class == _ZERO:
        return exact.infinity(fmt, sign)
    if x.number_class == _ZERO or y.number_class == _INFINITE:
        return exact.zero(fmt, sign)
    return exact.rounded(fmt, exact.value(fmt, x) / exact.value(fmt, y), rounding, ftz)


@div.words
def _(
    w: Words, t: ScalarType, a: Word, b: Word, *, rounding: Rounding = "rn", ftz: bool = False
) -> Word:
    x, y = rounded.values(w, t, a, ftz), rounded.values(w, t, b, ftz)
    return _quotient_of(w, t, x, y, rounding, ftz, (a, b))


@rule
def rcp(t: ScalarType, a: int, *, rounding: Rounding = "rn", ftz: bool = False) -> int:
    """9.7.3.13, rcp with a rounding: 1 / a."""
    one = t.format.bias << t.format.mantissa_bits
    return div.reference(t, one, a, rounding=rounding, ftz=ftz)


@rcp.words
def _(w: Words, t: ScalarType, a: Word, *, rounding: Rounding = "rn", ftz: bool = False) -> Word:
    x = rounded.values(w, t, a, ftz)
    return _quotient_of(w, t, t.values.type(1), x, rounding, ftz, (a,))


@rule
def sqrt(t: ScalarType, a: int, *, rounding: Rounding = "rn", ftz: bool = False) -> int:
    """9.7.3.15, sqrt with a rounding: the root as IEEE 754 has it; of -0 it is -0."""
    fmt = t.format
    x = exact.read(fmt, a, ftz)
    if x.number_class == _NAN:
        return exact.nan_of(fmt, a)
    if x.number_class == _ZERO:
        return exact.zero(fmt, x.sign)
    if x.sign:
        return exact.nan_of(fmt)
    if x.number_class == _INFINITE:
        return a
    exponent = x.exponent - fmt.mantissa_bits
    more = 2 * fmt.precision + (exponent & 1)  # an even exponent, and bits enough to round
    radicand = x.significand << more
    root = isqrt(radicand)
    bits = root << 1 | (root * root != radicand)
    return exact.rounded_bits(fmt, 0, bits, (exponent - more) // 2 - 1, rounding, ftz)


@sqrt.words
def _(w: Words, t: ScalarType, a: Word, *, rounding: Rounding = "rn", ftz: bool = False) -> Word:
    x = rounded.values(w, t, a, ftz)
    root = w.sqrt(x.astype(np.float64, copy=False))
    nan = root != root
    if t is not _F64:
        return rounded.finished(w, t, rounded.narrowed(w, t, root, rounding, ftz), nan, False)
    words = root.view(t.dtype)
    if rounding != "rn":
        words = w.select(rounded.plain(x) & (x > 0), _directed_root(w, x, rounding), words)
    return rounded.with_nans(w, t, words, nan, a)


def _quotient_of(
    w: Words, t: ScalarType, x: Word, y: Word, rounding: Rounding, ftz: bool, nans: tuple[Word, ...]
) -> Word:
    """Codes of x / y. The f64 quotient of f32 numbers is never so near to a number of 25 bits that
    rounding it again could err, unless it is that number."""
    quotient = x.astype(np.float64, copy=False) / y.astype(np.float64, copy=False)
    nan = quotient != quotient
    if t is not _F64:
        words = rounded.narrowed(w, t, quotient, rounding, ftz)
        return rounded.finished(w, t, words, nan, False)
    words = quotient.view(t.dtype)
    if rounding != "rn":
        exact = _directed_quotient(w, x, y, rounding)
        words = w.select(rounded.plain(x) & rounded.plain(y), exact, words)
    return rounded.with_nans(w, t, words, nan, *nans)


# --- f64 in other roundings than to nearest -------------------------------------------------------


def _directed_root(w: Words, x: Word, rounding: Rounding) -> Word:
    significand, exponent = rounded.split(w, x)
    odd = exponent & 1
    significand = w.select(odd == 0, significand, significand * 2.0)
    near = w.sqrt(significand)
    square, lacks = two_product(near, near)
    rest = (significand - square) - lacks
    return rounded.directed(w, near, rest, exponent - odd >> 1, rounding)


def _directed_quotient(w: Words, x: Word, y: Word, rounding: Rounding) -> Word:
    (mx, ex), (my, ey) = rounded.split(w, x), rounded.split(w, y)
    near = mx / my
    product, lacks = two_product(near, my)
    rest = (mx - product) - lacks
    # The quotient lacks the remainder divided by y: its sign is theirs together.
    return rounded.directed(w, near, w.select(my < 0, -rest, rest), ex - ey, rounding)
