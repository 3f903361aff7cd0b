"""Sums and products of two floating-point numbers: PTX ISA 9.7.3, 9.7.4 and 9.7.5.

Every operation is rounded once. NaNs, .ftz and .sat as measured on an H200 (`exact`, `rounded`);
operands of `nan_of` and `with_nans` stand in the order in which f64 passes their NaNs on.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from dtypes import Array, NumberClass, Rounding
from emulator.arith.error_free import odd_sum, two_product, two_sum
from emulator.arith.scalar import exact, rounded
from emulator.arith.scalar.rounded import Float64
from emulator.arith.scalar.rule import rule
from emulator.arith.scalar.types import TYPES, ScalarType

_F64 = TYPES["f64"]
_ZERO, _INFINITE, _NAN = NumberClass.ZERO, NumberClass.INFINITE, NumberClass.NAN

# --- add, sub -------------------------------------------------------------------------------------


@rule
def add(
    t: ScalarType,
    a: int,
    b: int,
    *,
    rounding: Rounding = "rn",
    ftz: bool = False,
    sat: bool = False,
) -> int:
    """9.7.3.3: a + b. An exact sum of 0 is +0, toward -infinity -0; zeros of one sign keep it."""
    return saturated(t, _sum(t, a, b, rounding, ftz), sat)


@add.vector
def _(
    t: ScalarType,
    a: Array,
    b: Array,
    *,
    rounding: Rounding = "rn",
    ftz: bool = False,
    sat: bool = False,
) -> Array:
    x, y = rounded.values(t, a, ftz), rounded.values(t, b, ftz)
    return _sum_of(t, x, y, rounding, ftz, sat, (b, a))


@rule
def sub(
    t: ScalarType,
    a: int,
    b: int,
    *,
    rounding: Rounding = "rn",
    ftz: bool = False,
    sat: bool = False,
) -> int:
    """9.7.3.4: a - b, the sum of a and the negative of b. A NaN keeps its sign."""
    negative = b if exact.is_nan(t.format, b) else b ^ t.format.sign_mask
    return saturated(t, _sum(t, a, negative, rounding, ftz), sat)


@sub.vector
def _(
    t: ScalarType,
    a: Array,
    b: Array,
    *,
    rounding: Rounding = "rn",
    ftz: bool = False,
    sat: bool = False,
) -> Array:
    x, y = rounded.values(t, a, ftz), rounded.values(t, b, ftz)
    return _sum_of(t, x, -y, rounding, ftz, sat, (b, a))


@rule
def add_mixed(
    t: ScalarType, narrow: ScalarType, a: int, c: int, *, rounding: Rounding = "rn",
    sat: bool = False,
) -> int:  # fmt: skip
    """9.7.5.1: a f16 or bf16, widened exactly, plus c f32."""
    return saturated(t, _sum(t, widened(t, narrow, a), c, rounding, False), sat)


@add_mixed.vector
def _(
    t: ScalarType, narrow: ScalarType, a: Array, c: Array, *, rounding: Rounding = "rn",
    sat: bool = False,
) -> Array:  # fmt: skip
    x, y = rounded.values(narrow, a), rounded.values(t, c)
    return _sum_of(t, x, y, rounding, False, sat, ())


@rule
def sub_mixed(
    t: ScalarType, narrow: ScalarType, a: int, c: int, *, rounding: Rounding = "rn",
    sat: bool = False,
) -> int:  # fmt: skip
    """9.7.5.2: a f16 or bf16, widened exactly, minus c f32."""
    return sub.reference(t, widened(t, narrow, a), c, rounding=rounding, sat=sat)


@sub_mixed.vector
def _(
    t: ScalarType, narrow: ScalarType, a: Array, c: Array, *, rounding: Rounding = "rn",
    sat: bool = False,
) -> Array:  # fmt: skip
    x, y = rounded.values(narrow, a), rounded.values(t, c)
    return _sum_of(t, x, -y, rounding, False, sat, ())


def _sum(t: ScalarType, a: int, b: int, rounding: Rounding, ftz: bool) -> int:
    fmt = t.format
    x, y = exact.read(fmt, a, ftz), exact.read(fmt, b, ftz)
    classes = (x.number_class, y.number_class)
    if _NAN in classes:
        return exact.nan_of(fmt, b, a)
    if classes == (_INFINITE, _INFINITE) and x.sign != y.sign:
        return exact.nan_of(fmt)
    if _INFINITE in classes:
        return a if x.number_class == _INFINITE else b
    total = exact.value(fmt, x) + exact.value(fmt, y)
    if total == 0:
        return exact.zero(fmt, x.sign if x.sign == y.sign else rounding == "rm")
    return exact.rounded(fmt, total, rounding, ftz)


def _sum_of(
    t: ScalarType, x: Array, y: Array, rounding: Rounding, ftz: bool, sat: bool,
    nans: tuple[Array, ...],
) -> Array:  # fmt: skip
    """Codes of x + y, for float arrays."""
    if rounding == "rn":
        total = x + y
        words = rounded.nearest(t, total)
        if ftz:
            words = rounded.without_tiny(t, words, total, "rn")
    elif t is _F64:
        words, total = _directed_sum(x, y, rounding)
    else:
        total = odd_sum(x.astype(np.float64), y.astype(np.float64))
        words = rounded.narrowed(t, total, rounding, ftz)
    if rounding == "rm":
        minus = t.dtype.type(t.format.sign_mask)
        sign = np.where(np.signbit(x) | np.signbit(y), minus, t.dtype.type(0))
        words = np.where(total == 0, sign, words)
    nan = np.isnan(total)
    if t is _F64:
        return rounded.with_nans(t, words, nan, *nans)
    return rounded.finished(t, words, nan, sat)


def _directed_sum(x: Float64, y: Float64, rounding: Rounding) -> tuple[Array, Float64]:
    total, rest = two_sum(x, y)
    # A finite sum that overflowed lies below the infinity that it was rounded to.
    overflow = np.isinf(total) & np.isfinite(x) & np.isfinite(y)
    rest = np.where(overflow, -total, rest)
    words = rounded.nearest(_F64, total)
    return rounded.stepped(_F64, words, rest > 0, rest < 0, rounding), total


# --- mul ------------------------------------------------------------------------------------------


@rule
def mul(
    t: ScalarType,
    a: int,
    b: int,
    *,
    rounding: Rounding = "rn",
    ftz: bool = False,
    sat: bool = False,
    exponent: str = "",
) -> int:
    """9.7.3.5: a times b; times 2^exponent before it is rounded, where ptxas puts a factor of f32
    into the multiplication (FMUL.D4 to FMUL.M8; subnormal results of those are not measured)."""
    return saturated(t, _product(t, a, b, rounding, ftz, int(exponent or 0)), sat)


@mul.vector
def _(
    t: ScalarType,
    a: Array,
    b: Array,
    *,
    rounding: Rounding = "rn",
    ftz: bool = False,
    sat: bool = False,
    exponent: str = "",
) -> Array:
    x, y = rounded.values(t, a, ftz), rounded.values(t, b, ftz)
    product: Array
    if exponent:
        product = x.astype(np.float64) * y * 2.0 ** int(exponent)
        words = rounded.narrowed(t, product, rounding, ftz)
        return rounded.finished(t, words, np.isnan(product), sat)
    if t is _F64:
        return _product64(x, y, rounding, b, a)
    if rounding == "rn":
        # The float32 product of f16 or bf16 is exact, or long enough to be rounded again.
        product = x * y
        words = rounded.nearest(t, product)
        if ftz and (np.abs(product) <= 2.0**t.format.emin).any():
            words = rounded.without_tiny(t, words, x.astype(np.float64) * y, rounding)
    else:
        product = x.astype(np.float64) * y
        words = rounded.narrowed(t, product, rounding, ftz)
    return rounded.finished(t, words, np.isnan(product), sat)


def _product(t: ScalarType, a: int, b: int, rounding: Rounding, ftz: bool, exponent: int) -> int:
    fmt = t.format
    x, y = exact.read(fmt, a, ftz), exact.read(fmt, b, ftz)
    classes, sign = {x.number_class, y.number_class}, x.sign ^ y.sign
    if _NAN in classes:
        return exact.nan_of(fmt, b, a)
    if classes == {_ZERO, _INFINITE}:
        return exact.nan_of(fmt)
    if _INFINITE in classes:
        return exact.infinity(fmt, sign)
    if _ZERO in classes:
        return exact.zero(fmt, sign)
    product = exact.value(fmt, x) * exact.value(fmt, y) * Fraction(2) ** exponent
    return exact.rounded(fmt, product, rounding, ftz)


def _product64(x: Float64, y: Float64, rounding: Rounding, b: Array, a: Array) -> Array:
    product = x * y
    words = rounded.nearest(_F64, product)
    if rounding != "rn":
        (mx, ex), (my, ey) = np.frexp(x), np.frexp(y)
        near, rest = two_product(mx, my)
        words = rounded.directed(
            words, near, rest, ex + ey, rounding, rounded.plain(x) & rounded.plain(y)
        )
    return rounded.with_nans(_F64, words, np.isnan(product), b, a)


# --- what the rules share -------------------------------------------------------------------------


def saturated(t: ScalarType, code: int, sat: bool) -> int:
    return exact.saturated(t.format, code) if sat else code


def widened(t: ScalarType, narrow: ScalarType, code: int) -> int:
    """The code in a wider format; a NaN is only a NaN."""
    number = exact.read(narrow.format, code)
    if number.number_class == _NAN:
        return exact.nan_of(t.format)
    if number.number_class == _INFINITE:
        return exact.infinity(t.format, number.sign)
    if number.number_class == _ZERO:
        return exact.zero(t.format, number.sign)
    return exact.rounded(t.format, Fraction(exact.value(narrow.format, number)), "rn")
