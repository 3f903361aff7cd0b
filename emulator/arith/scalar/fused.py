"""Fused multiply-add, rounded once: PTX ISA 9.7.3, 9.7.4 and 9.7.5.

The product of f32, f16 and bf16 is exact in float64, and what is added to it rounds rightly after
one more step; for f64 see `fused_multiply_add`.
"""

from __future__ import annotations

import numpy as np

from dtypes import Array, NumberClass, Rounding
from emulator.arith.error_free import odd_sum
from emulator.arith.scalar import exact, rounded
from emulator.arith.scalar.floating import saturated, widened
from emulator.arith.scalar.rounded import Float64
from emulator.arith.scalar.rule import rule
from emulator.arith.scalar.types import TYPES, ScalarType
from emulator.arith.wide import fused_multiply_add

_F16, _F64 = TYPES["f16"], TYPES["f64"]
_ZERO, _INFINITE, _NAN = NumberClass.ZERO, NumberClass.INFINITE, NumberClass.NAN


@rule
def fma(
    t: ScalarType,
    a: int,
    b: int,
    c: int,
    *,
    rounding: Rounding = "rn",
    ftz: bool = False,
    sat: bool = False,
    relu: bool = False,
) -> int:
    """9.7.3.6: a times b plus c, rounded once; also mad of f32 and f64.

    .relu makes negative results and -0 +0. An exact sum of 0 is signed as that of `add`.
    """
    out = _fused(t, a, b, c, rounding, ftz)
    return exact.rectified(t.format, out) if relu else saturated(t, out, sat)


@fma.vector
def _(
    t: ScalarType,
    a: Array,
    b: Array,
    c: Array,
    *,
    rounding: Rounding = "rn",
    ftz: bool = False,
    sat: bool = False,
    relu: bool = False,
) -> Array:
    if t is _F64:
        # The addend is called x there.
        return fused_multiply_add(t.format, a, b, c, rounding, nan_order=("b", "x", "a"))
    x, y, z = (rounded.values(t, words, ftz) for words in (a, b, c))
    return _fused_of(t, x, y, z, rounding, ftz, sat, relu)


@rule
def fma_to_nearest(
    t: ScalarType, a: int, b: int, c: int, *, rounding: Rounding = "rn", relu: bool = False
) -> int:
    """fma.rz, .rm and .rp of bf16x2, which 9.7.4.4 does not have: ptxas 13.0 takes them for .rn."""
    return fma.reference(t, a, b, c, relu=relu)


@fma_to_nearest.vector
def _(
    t: ScalarType, a: Array, b: Array, c: Array, *, rounding: Rounding = "rn", relu: bool = False
) -> Array:
    assert fma.array is not None
    return fma.array(t, a, b, c, relu=relu)


@rule
def fma_of_half(
    t: ScalarType, a: int, b: int, c: int, *, rounding: Rounding = "rn", relu: bool = False
) -> int:
    """fma.rz, .rm and .rp of bf16, which 9.7.4.4 does not have: ptxas 13.0 takes them, and an H200
    then computes with f16, to nearest, without .relu."""
    return fma.reference(_F16, a, b, c)


@fma_of_half.vector
def _(
    t: ScalarType, a: Array, b: Array, c: Array, *, rounding: Rounding = "rn", relu: bool = False
) -> Array:
    assert fma.array is not None
    return fma.array(_F16, a, b, c)


@rule
def fma_oob(t: ScalarType, a: int, b: int, c: int, *, relu: bool = False) -> int:
    """9.7.4.4, fma.oob: `fma`, of which an operand that a tensor copy filled as out of bounds makes
    0. Which NaN marks such an operand is not published and was not recorded: here none does."""
    return fma.reference(t, a, b, c, relu=relu)


@fma_oob.vector
def _(t: ScalarType, a: Array, b: Array, c: Array, *, relu: bool = False) -> Array:
    assert fma.array is not None
    return fma.array(t, a, b, c, relu=relu)


@rule
def fma_mixed(
    t: ScalarType, narrow: ScalarType, a: int, b: int, c: int, *, rounding: Rounding = "rn",
    sat: bool = False,
) -> int:  # fmt: skip
    """9.7.5.3: a and b f16 or bf16, widened exactly; c f32."""
    x, y = widened(t, narrow, a), widened(t, narrow, b)
    return saturated(t, _fused(t, x, y, c, rounding, False), sat)


@fma_mixed.vector
def _(
    t: ScalarType, narrow: ScalarType, a: Array, b: Array, c: Array, *, rounding: Rounding = "rn",
    sat: bool = False,
) -> Array:  # fmt: skip
    x, y, z = rounded.values(narrow, a), rounded.values(narrow, b), rounded.values(t, c)
    return _fused_of(t, x, y, z, rounding, False, sat, False)


def _fused(t: ScalarType, a: int, b: int, c: int, rounding: Rounding, ftz: bool) -> int:
    fmt = t.format
    x, y, z = (exact.read(fmt, code, ftz) for code in (a, b, c))
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
        return exact.zero(fmt, sign if sign == z.sign else rounding == "rm")
    return exact.rounded(fmt, total, rounding, ftz)


def _fused_of(
    t: ScalarType, x: Array, y: Array, z: Array, rounding: Rounding, ftz: bool, sat: bool,
    relu: bool,
) -> Array:  # fmt: skip
    """Codes of x·y + z of float32 arrays; the product is exact in float64."""
    if t.bits == 16 and rounding == "rn" and not ftz:
        words, total = _fused16(t, x, y, z)
        return rounded.finished(t, words, np.isnan(total), sat, relu)
    product = x.astype(np.float64) * y.astype(np.float64)
    total = _sum_to_round(t, product, z.astype(np.float64), rounding)
    words = rounded.narrowed(t, total, rounding, ftz)
    if rounding == "rm":
        sign = np.where(np.signbit(product) | np.signbit(z), t.format.sign_mask, 0)
        words = np.where(total == 0, sign.astype(t.dtype), words)
    return rounded.finished(t, words, np.isnan(total), sat, relu)


def _fused16(t: ScalarType, x: Array, y: Array, z: Array) -> tuple[Array, Array]:
    """Codes of f16 or bf16 of x·y + z, and its float32. The product has at most 22 bits, so that
    float32 rounds but once; it errs where the sum may be half way between two codes, or where a
    product of bf16 over- or underflows."""
    product = x * y
    total = np.atleast_1d(product + z)
    words = rounded.nearest(t, total)
    doubtful = rounded.half_way(t, total)
    if t.name == "bf16":
        size = np.abs(product)
        doubtful |= (size < 2.0**-100) | (size > 2.0**120)
    if doubtful.any():
        far = [np.broadcast_to(a, total.shape)[doubtful].astype(np.float64) for a in (x, y, z)]
        sums = odd_sum(far[0] * far[1], far[2])
        words[doubtful] = rounded.nearest(t, sums)
        with np.errstate(over="ignore"):
            total[doubtful] = sums
    return words, total


def _sum_to_round(t: ScalarType, a: Float64, b: Float64, rounding: Rounding) -> Float64:
    """a + b so that it can be rounded to a type: to odd, or to nearest as float64 where that can
    make no difference, because the sum is not half way between two numbers of the type."""
    if rounding != "rn":
        return odd_sum(a, b)
    total = np.atleast_1d(a + b)
    cut = 52 - t.format.mantissa_bits
    half_way = total.view(np.uint64) & np.uint64((1 << cut) - 1) == np.uint64(1 << cut - 1)
    doubtful = half_way | (np.abs(total) < 2.0**t.format.emin)
    if doubtful.any():
        a, b = np.broadcast_arrays(a, b)
        total[doubtful] = odd_sum(*(np.atleast_1d(x)[doubtful] for x in (a, b)))
    return total.reshape(np.broadcast_shapes(a.shape, b.shape))
