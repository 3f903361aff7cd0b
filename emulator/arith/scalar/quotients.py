"""Quotients and roots as IEEE 754 rounds them: div, rcp, sqrt (PTX ISA 9.7.3)."""

from __future__ import annotations

from math import isqrt

import numpy as np

from dtypes import Array, NumberClass, Rounding
from emulator.arith.error_free import two_product
from emulator.arith.scalar import exact, rounded
from emulator.arith.scalar.rule import rule
from emulator.arith.scalar.types import TYPES, ScalarType

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


@div.vector
def _(t: ScalarType, a: Array, b: Array, *, rounding: Rounding = "rn", ftz: bool = False) -> Array:
    x, y = rounded.values(t, a, ftz), rounded.values(t, b, ftz)
    return _quotient_of(t, x, y, rounding, ftz, (a, b))


@rule
def rcp(t: ScalarType, a: int, *, rounding: Rounding = "rn", ftz: bool = False) -> int:
    """9.7.3.13, rcp with a rounding: 1 / a."""
    one = t.format.bias << t.format.mantissa_bits
    return div.reference(t, one, a, rounding=rounding, ftz=ftz)


@rcp.vector
def _(t: ScalarType, a: Array, *, rounding: Rounding = "rn", ftz: bool = False) -> Array:
    x = rounded.values(t, a, ftz)
    return _quotient_of(t, np.ones_like(x), x, rounding, ftz, (a,))


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


@sqrt.vector
def _(t: ScalarType, a: Array, *, rounding: Rounding = "rn", ftz: bool = False) -> Array:
    x = rounded.values(t, a, ftz)
    if t is not _F64:
        root = np.sqrt(x.astype(np.float64))
        return rounded.finished(t, rounded.narrowed(t, root, rounding, ftz), np.isnan(root), False)
    root = np.sqrt(x)
    words = rounded.nearest(t, root)
    if rounding != "rn":
        significand, exponent = np.frexp(x)
        odd = exponent & 1
        significand, exponent = np.ldexp(significand, -odd), (exponent + odd) // 2
        near = np.sqrt(significand)
        square, lacks = two_product(near, near)
        rest = (significand - square) - lacks
        words = rounded.directed(words, near, rest, exponent, rounding, rounded.plain(x) & (x > 0))
    return rounded.with_nans(t, words, np.isnan(root), a)


def _quotient_of(
    t: ScalarType, x: Array, y: Array, rounding: Rounding, ftz: bool, nans: tuple[Array, ...]
) -> Array:
    """Codes of x / y. The float64 quotient of float32 numbers is never so near to a number of 25
    bits that rounding it again could err, unless it is that number."""
    if t is not _F64:
        quotient = x.astype(np.float64) / y
        words = rounded.narrowed(t, quotient, rounding, ftz)
        return rounded.finished(t, words, np.isnan(quotient), False)
    quotient = x / y
    words = rounded.nearest(t, quotient)
    if rounding != "rn":
        (mx, ex), (my, ey) = np.frexp(x), np.frexp(y)
        near = mx / my
        product, lacks = two_product(near, my)
        # The quotient lacks the remainder divided by y: its sign is theirs together.
        rest = ((mx - product) - lacks) * np.sign(my)
        words = rounded.directed(
            words, near, rest, ex - ey, rounding, rounded.plain(x) & rounded.plain(y)
        )
    return rounded.with_nans(t, words, np.isnan(quotient), *nans)
