"""Fused multiply-add, rounded once: PTX ISA 9.7.3, 9.7.4 and 9.7.5.

The product of f32, f16 and bf16 is exact in f64, and a sum with it that is rounded to odd rounds
rightly after one more step.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dtypes import NumberClass, Rounding
from emulator.arith.fast.error_free import odd_sum, two_product, two_sum
from emulator.arith.scalar import exact, rounded
from emulator.arith.scalar.conversion import floats
from emulator.arith.scalar.floating import flushed_product, saturated, widened, zero_downward
from emulator.arith.scalar.rule import rule
from emulator.arith.scalar.types import TYPES, ScalarType
from emulator.arith.scalar.words import Word, Words

_F16, _F32, _F64 = (TYPES[name] for name in ("f16", "f32", "f64"))
_ZERO, _INFINITE, _NAN = NumberClass.ZERO, NumberClass.INFINITE, NumberClass.NAN


class Fused(NamedTuple):
    """The modifiers of a fused multiply-add."""

    rounding: Rounding = "rn"
    ftz: bool = False
    sat: bool = False
    relu: bool = False


NEAREST = Fused()


@rule
def fma(t: ScalarType, a: int, b: int, c: int, *, how: Fused = NEAREST) -> int:
    """9.7.3.6: a times b plus c, rounded once; also mad of f32 and f64.

    .relu makes negative results and -0 +0. An exact sum of 0 is signed as that of `add`.
    """
    out = _fused(t, a, b, c, how)
    return exact.rectified(t.format, out) if how.relu else saturated(t, out, how.sat)


@fma.words
def _(w: Words, t: ScalarType, a: Word, b: Word, c: Word, *, how: Fused = NEAREST) -> Word:
    x, y, z = (rounded.values(w, t, words, how.ftz) for words in (a, b, c))
    if t is _F64 and how.rounding != "rn":
        words, nan = _directed64(w, x, y, z, how.rounding)
        return rounded.with_nans(w, t, words, nan, b, c, a)
    if t is _F64:
        total = w.fused(x, y, z)
        return rounded.with_nans(w, t, total.view(t.dtype), total != total, b, c, a)
    return _fused_of(w, t, x, y, z, how)


@rule
def fma_to_nearest(t: ScalarType, a: int, b: int, c: int, *, how: Fused = NEAREST) -> int:
    """fma.rz, .rm and .rp of bf16x2, which 9.7.4.4 does not have: ptxas 13.0 takes them for .rn."""
    return fma.reference(t, a, b, c, how=Fused(relu=how.relu))


@fma_to_nearest.words
def _(w: Words, t: ScalarType, a: Word, b: Word, c: Word, *, how: Fused = NEAREST) -> Word:
    return fma.text(w, t, a, b, c, how=Fused(relu=how.relu))


@rule
def fma_of_half(t: ScalarType, a: int, b: int, c: int, *, how: Fused = NEAREST) -> int:
    """fma.rz, .rm and .rp of bf16, which 9.7.4.4 does not have: ptxas 13.0 takes them, and makes
    an fma of f32 with that rounding from f16 operands, which is rounded to f16; without .relu."""
    x, y, z = (widened(_F32, _F16, code) for code in (a, b, c))
    return floats.reference(_F16, _F32, _fused(_F32, x, y, z, how))


@fma_of_half.words
def _(w: Words, t: ScalarType, a: Word, b: Word, c: Word, *, how: Fused = NEAREST) -> Word:
    x, y, z = (rounded.values(w, _F16, words) for words in (a, b, c))
    total = _fused_of(w, _F32, x, y, z, how._replace(relu=False))
    return floats.text(w, _F16, _F32, total)


#: factors that fma.oob takes for out of bounds, of f16 and bf16 alike
OUT_OF_BOUNDS = (0x7FF7, 0xFFF7)


@rule
def fma_oob(t: ScalarType, a: int, b: int, c: int, *, relu: bool = False) -> int:
    """9.7.4.4, fma.oob: `fma`, but +0 where a or b is a NaN that marks out-of-bounds elements.

    The manual does not publish the two codes; an H200 showed them, with every code as a, b and c.
    The result is +0 even if c is a NaN; as c the codes mean nothing.
    """
    if a in OUT_OF_BOUNDS or b in OUT_OF_BOUNDS:
        return 0
    return fma.reference(t, a, b, c, how=Fused(relu=relu))


@fma_oob.words
def _(w: Words, t: ScalarType, a: Word, b: Word, c: Word, *, relu: bool = False) -> Word:
    low, high = OUT_OF_BOUNDS
    outside = (a == low) | (a == high) | (b == low) | (b == high)
    inside = fma.text(w, t, a, b, c, how=Fused(relu=relu))
    return w.select(outside, t.dtype.type(0), inside)


@rule
def fma_mixed(
    t: ScalarType, narrow: ScalarType, a: int, b: int, c: int, *, how: Fused = NEAREST
) -> int:
    """9.7.5.3: a and b f16 or bf16, widened exactly; c f32."""
    x, y = widened(t, narrow, a), widened(t, narrow, b)
    return saturated(t, _fused(t, x, y, c, how), how.sat)


@fma_mixed.words
def _(
    w: Words, t: ScalarType, narrow: ScalarType, a: Word, b: Word, c: Word, *, how: Fused = NEAREST
) -> Word:
    x, y = rounded.values(w, narrow, a), rounded.values(w, narrow, b)
    return _fused_of(w, t, x, y, rounded.values(w, t, c), how)


def _fused(t: ScalarType, a: int, b: int, c: int, how: Fused) -> int:
    fmt = t.format
    x, y, z = (exact.read(fmt, code, how.ftz) for code in (a, b, c))
    classes, sign = {x.number_class, y.number_class}, x.sign ^ y.sign
    if _NAN in classes or z.number_class == _NAN:
        return exact.nan_of(fmt, b, c, a)
    if classes == {_ZERO, _INFINITE}:
        return exact.nan_of(fmt)
    if _INFINITE in classes:
        opposite = z.number_class == _INFINITE and z.sign != sign
        return exact.nan_of(fmt) if opposite else exact.infinity(fmt, sign)
    if z.number_class == _INFINITE:
        return c
    total = exact.value(fmt, x) * exact.value(fmt, y) + exact.value(fmt, z)
    if total == 0:
        return exact.zero(fmt, sign if sign == z.sign else how.rounding == "rm")
    return exact.rounded(fmt, total, how.rounding, how.ftz)


def _fused_of(w: Words, t: ScalarType, x: Word, y: Word, z: Word, how: Fused) -> Word:
    """Codes of x·y + z of f32 numbers."""
    rounding, ftz, sat, relu = how
    if rounding == "rn" and t.bits == 32:
        total = w.fused(x, y, z)
        words = total.view(t.dtype)
        words = flushed_product(w, t, words, _odd_fused, x, y, z) if ftz else words
    elif rounding == "rn" and not ftz:
        total = _fused16(w, t, x, y, z)
        words = rounded.nearest(w, t, total)
    else:
        total = _odd_fused(x, y, z)
        words = rounded.narrowed(w, t, total, rounding, ftz)
        if rounding == "rm":
            words = w.put(total == 0, lambda: zero_downward(w, t, x * y, z), words)
    return rounded.finished(w, t, words, total != total, sat, relu)


def _odd_fused(x: Word, y: Word, z: Word) -> Word:
    """x·y + z rounded to odd; the product is exact in f64."""
    return odd_sum(x.astype(np.float64) * y.astype(np.float64), z.astype(np.float64))


def _fused16(w: Words, t: ScalarType, x: Word, y: Word, z: Word) -> Word:
    """x·y + z of f16 or bf16 as an f32 that still rounds rightly to them. The product has at most
    22 bits, so that f32 rounds but once; it errs where the sum may be half way between two codes,
    or where a product of bf16 over- or underflows."""
    product = x * y
    total = product + z
    doubtful = rounded.half_way(t, total)
    if t.name == "f16":
        return w.mend(doubtful, total, odd_sum, product, z)
    size = abs(product)
    doubtful = doubtful | (size < 2.0**-100) | (size > 2.0**120)

    def odd(x: Word, y: Word, z: Word) -> Word:
        return rounded.odd_float32(w, t, _odd_fused(x, y, z))

    return w.mend(doubtful, total, odd, x, y, z)


#: products and addends whose exponents differ by more only decide how the other one is rounded
_FAR = 200


def _directed64(w: Words, x: Word, y: Word, z: Word, rounding: Rounding) -> tuple[Word, Word]:
    """Codes of x·y + z of f64 numbers, and where it is no number.

    Significands are multiplied without an error and z is scaled to their product, so that nothing
    over- or underflows; as in `error_free.fused` the two small ones of three numbers are added to
    odd.
    """
    (mx, ex), (my, ey), (mz, ez) = (rounded.split(w, number) for number in (x, y, z))
    product, rest = two_product(mx, my)
    apart = w.select(z == 0, 0, ez - ex - ey)
    near = w.minimum(w.maximum(apart, -_FAR), _FAR)
    addend = mz * (near + 1023 << 52).view(np.float64)
    low, lower = two_sum(w.select(z == 0, 0.0, addend), rest)
    high, middle = two_sum(product, low)
    total, lacks = two_sum(high, odd_sum(lower, middle))
    exponent = w.select(apart > _FAR, ez - _FAR, ex + ey)
    words = rounded.directed(w, total, lacks, exponent, rounding)
    words = w.put(total == 0, 0, words)
    # Zeros, infinities and NaNs: of an infinite addend the product is any finite number.
    factors = rounded.plain(x) & rounded.plain(y)
    ordinary = factors & (abs(z) < float("inf"))
    other = w.select(factors, 0.0, x * y) + z
    words = w.select(ordinary, words, other.view(np.uint64))
    if rounding == "rm":
        zero = w.select(ordinary, total, other) == 0
        words = w.put(zero, lambda: zero_downward(w, _F64, x * y, z), words)
    return words, ~ordinary & (other != other)
