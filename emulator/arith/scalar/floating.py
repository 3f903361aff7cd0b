"""Sums and products of two floating-point numbers: PTX ISA 9.7.3, 9.7.4 and 9.7.5.

Every operation is rounded once. NaNs, .ftz and .sat as measured on an H200 (`exact`, `rounded`);
operands of `nan_of` and `with_nans` stand in the order in which f64 passes their NaNs on.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np

from dtypes import NumberClass, Rounding
from emulator.arith.fast.error_free import odd_sum, two_product, two_sum
from emulator.arith.scalar import exact, rounded
from emulator.arith.scalar.rounded import NEAREST, Rounded
from emulator.arith.scalar.rule import rule
from emulator.arith.scalar.types import TYPES, ScalarType
from emulator.arith.scalar.words import Word, Words

_F64 = TYPES["f64"]
_ZERO, _INFINITE, _NAN = NumberClass.ZERO, NumberClass.INFINITE, NumberClass.NAN

# --- add, sub -------------------------------------------------------------------------------------


@rule
def add(t: ScalarType, a: int, b: int, *, how: Rounded = NEAREST) -> int:
    """9.7.3.3: a + b. An exact sum of 0 is +0, toward -infinity -0; zeros of one sign keep it."""
    return _sum(t, a, b, how)


@add.words
def _(w: Words, t: ScalarType, a: Word, b: Word, *, how: Rounded = NEAREST) -> Word:
    x, y = (rounded.values(w, t, words, how.ftz) for words in (a, b))
    return _sum_of(w, t, x, y, how, (b, a))


@rule
def sub(t: ScalarType, a: int, b: int, *, how: Rounded = NEAREST) -> int:
    """9.7.3.4: a - b, the sum of a and the negative of b. A NaN keeps its sign."""
    negative = b if exact.is_nan(t.format, b) else b ^ t.format.sign_mask
    return _sum(t, a, negative, how)


@sub.words
def _(w: Words, t: ScalarType, a: Word, b: Word, *, how: Rounded = NEAREST) -> Word:
    x, y = (rounded.values(w, t, words, how.ftz) for words in (a, b))
    return _sum_of(w, t, x, -y, how, (b, a), total=x - y)


@rule
def add_mixed(t: ScalarType, narrow: ScalarType, a: int, c: int, *, how: Rounded = NEAREST) -> int:
    """9.7.5.1: a f16 or bf16, widened exactly, plus c f32."""
    return _sum(t, widened(t, narrow, a), c, how)


@add_mixed.words
def _(
    w: Words, t: ScalarType, narrow: ScalarType, a: Word, c: Word, *, how: Rounded = NEAREST
) -> Word:
    x, y = rounded.values(w, narrow, a), rounded.values(w, t, c)
    return _sum_of(w, t, x, y, how)


@rule
def sub_mixed(t: ScalarType, narrow: ScalarType, a: int, c: int, *, how: Rounded = NEAREST) -> int:
    """9.7.5.2: a f16 or bf16, widened exactly, minus c f32."""
    return sub.reference(t, widened(t, narrow, a), c, how=how)


@sub_mixed.words
def _(
    w: Words, t: ScalarType, narrow: ScalarType, a: Word, c: Word, *, how: Rounded = NEAREST
) -> Word:
    x, y = rounded.values(w, narrow, a), rounded.values(w, t, c)
    return _sum_of(w, t, x, -y, how, total=x - y)


def _sum(t: ScalarType, a: int, b: int, how: Rounded) -> int:
    return saturated(t, _unbounded_sum(t, a, b, how), how.sat)


def _unbounded_sum(t: ScalarType, a: int, b: int, how: Rounded) -> int:
    fmt = t.format
    x, y = exact.read(fmt, a, how.ftz), exact.read(fmt, b, how.ftz)
    classes = (x.number_class, y.number_class)
    if _NAN in classes:
        return exact.nan_of(fmt, b, a)
    if classes == (_INFINITE, _INFINITE) and x.sign != y.sign:
        return exact.nan_of(fmt)
    if _INFINITE in classes:
        return a if x.number_class == _INFINITE else b
    total = exact.value(fmt, x) + exact.value(fmt, y)
    if total == 0:
        return exact.zero(fmt, x.sign if x.sign == y.sign else how.rounding == "rm")
    return exact.rounded(fmt, total, how.rounding, how.ftz)


def _sum_of(
    w: Words,
    t: ScalarType,
    x: Word,
    y: Word,
    how: Rounded,
    nans: tuple[Word, ...] = (),
    total: Word | None = None,
) -> Word:
    """Codes of x + y; `total` is the nearest sum, where that is known already."""
    rounding, ftz, sat = how
    if rounding == "rn":
        total = x + y if total is None else total
        words = rounded.nearest(w, t, total)
        # A sum below the normal range is exact, so that its code tells whether it is tiny.
        words = rounded.flushed(w, t, words) if ftz else words
    elif t is _F64:
        words, total = _directed_sum(w, x, y, rounding)
    else:
        total = odd_sum(x.astype(np.float64), y.astype(np.float64))
        words = rounded.narrowed(w, t, total, rounding, ftz)
    if rounding == "rm":
        words = w.put(total == 0, lambda: zero_downward(w, t, x, y), words)
    nan = total != total
    if t is _F64:
        return rounded.with_nans(w, t, words, nan, *nans)
    return rounded.finished(w, t, words, nan, sat)


def zero_downward(w: Words, t: ScalarType, x: Word, y: Word) -> Word:
    """The exact sum 0 of two numbers rounded toward -infinity: -0, unless both are +0."""
    either = (x.view(f"i{x.dtype.itemsize}") < 0) | (y.view(f"i{y.dtype.itemsize}") < 0)
    return w.select(either, t.dtype.type(t.format.sign_mask), t.dtype.type(0))


def _directed_sum(w: Words, x: Word, y: Word, rounding: Rounding) -> tuple[Word, Word]:
    total, rest = two_sum(x, y)
    # A finite sum that overflowed lies below the infinity that it was rounded to.
    infinity = float("inf")
    overflow = (abs(total) == infinity) & (abs(x) < infinity) & (abs(y) < infinity)
    rest = w.put(overflow, lambda: -total, rest)
    words = total.view(_F64.dtype)
    return rounded.stepped(w, _F64, words, rest > 0, rest < 0, rounding), total


# --- mul ------------------------------------------------------------------------------------------


@rule
def mul(t: ScalarType, a: int, b: int, *, how: Rounded = NEAREST, exponent: str = "") -> int:
    """9.7.3.5: a times b; times 2^exponent before it is rounded, where ptxas puts a factor of f32
    into the multiplication (FMUL.D4 to FMUL.M8; subnormal results of those are not measured)."""
    return saturated(t, _product(t, a, b, how, int(exponent or 0)), how.sat)


@mul.words
def _(
    w: Words, t: ScalarType, a: Word, b: Word, *, how: Rounded = NEAREST, exponent: str = ""
) -> Word:
    rounding, ftz, sat = how
    x, y = (rounded.values(w, t, words, how.ftz) for words in (a, b))
    if t is _F64:
        product = x * y
        words = product.view(t.dtype)
        if rounding != "rn":
            (mx, ex), (my, ey) = rounded.split(w, x), rounded.split(w, y)
            exact = rounded.directed(w, *two_product(mx, my), ex + ey, rounding)
            words = w.select(rounded.plain(x) & rounded.plain(y), exact, words)
        return rounded.with_nans(w, t, words, product != product, b, a)
    if rounding == "rn" and not exponent:
        # The f32 product of f16 or bf16 is exact, or long enough to be rounded again.
        product = x * y
        words = rounded.nearest(w, t, product)
        words = flushed_product(w, t, words, _wide_product, x, y) if ftz else words
    else:
        product = _wide_product(x, y)
        product = product * 2.0 ** int(exponent) if exponent else product
        words = rounded.narrowed(w, t, product, rounding, ftz)
    return rounded.finished(w, t, words, product != product, sat)


def _wide_product(x: Word, y: Word) -> Word:
    return x.astype(np.float64) * y.astype(np.float64)


def flushed_product(
    w: Words, t: ScalarType, words: Word, exact: Callable[..., Word], *numbers: Word
) -> Word:
    """.ftz of results rounded to nearest. By ``exact(*numbers)``, in f64, where the code cannot
    tell: the smallest normal number may have been rounded to."""
    words = rounded.flushed(w, t, words)
    edge = rounded.magnitudes(t, words) == 1 << t.format.mantissa_bits

    def decided(words: Word, *numbers: Word) -> Word:
        return rounded.without_tiny(w, t, words, exact(*numbers), "rn")

    return w.mend(edge, words, decided, words, *numbers)


def _product(t: ScalarType, a: int, b: int, how: Rounded, exponent: int) -> int:
    fmt = t.format
    x, y = exact.read(fmt, a, how.ftz), exact.read(fmt, b, how.ftz)
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
    return exact.rounded(fmt, product, how.rounding, how.ftz)


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
