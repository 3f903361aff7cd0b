"""Conversions between types: cvt and cvt.pack (PTX ISA 9.7.9.21 and 9.7.9.22), and mov.

Special values as measured on an H200.
"""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import NamedTuple

import numpy as np

from dtypes import Array, NumberClass, Rounding
from emulator.arith.scalar import exact, rounded
from emulator.arith.scalar.rounded import NEAREST, Rounded
from emulator.arith.scalar.rule import packed_rule, rule
from emulator.arith.scalar.types import TYPES, ScalarType
from emulator.arith.scalar.words import Value, Word, Words, joined

_ZERO, _FINITE, _INFINITE, _NAN = NumberClass
_F32, _F64 = TYPES["f32"], TYPES["f64"]


class ToIntegral(NamedTuple):
    """The modifiers of roundings to integers."""

    integer_rounding: str = "rni"
    ftz: bool = False
    sat: bool = False


TO_INTEGRAL = ToIntegral()

# --- integers -------------------------------------------------------------------------------------


@rule
def integers(to: ScalarType, t: ScalarType, a: int, *, sat: bool = False) -> int:
    """Integer to integer: the low bits, extended by the source's sign; .sat clamps."""
    number = t.number(a)
    return to.word(to.clamp(number) if sat else number)


@integers.words
def _(w: Words, to: ScalarType, t: ScalarType, a: Word, *, sat: bool = False) -> Word:
    numbers = a.view(t.values)
    if sat:
        # Both ends of the narrower range fit the source's type: each type can hold the clamped.
        low, high = max(to.smallest, t.smallest), min(to.largest, t.largest)
        numbers = w.maximum(numbers, low) if low > t.smallest else numbers
        numbers = w.minimum(numbers, high) if high < t.largest else numbers
    return numbers.astype(to.values).view(to.dtype)


@rule
def integer_to_float(to: ScalarType, t: ScalarType, a: int, *, how: Rounded = NEAREST) -> int:
    """Integer to floating point, rounded once; .ftz has nothing to flush."""
    number = t.number(a)
    code = exact.rounded(to.format, Fraction(number), how.rounding) if number else 0
    return exact.saturated(to.format, code) if how.sat else code


@integer_to_float.words
def _(w: Words, to: ScalarType, t: ScalarType, a: Word, *, how: Rounded = NEAREST) -> Word:
    numbers = a.view(t.values)
    if how.rounding == "rn" and to.bits > 16:
        words = numbers.astype(to.values).view(to.dtype)
    else:
        words = _directed_integers(w, to, t, numbers, how.rounding)
    return rounded.finished(w, to, words, a != a, how.sat) if how.sat else words


def _directed_integers(
    w: Words, to: ScalarType, t: ScalarType, numbers: Word, rounding: Rounding
) -> Word:
    """Codes of integers by the f64 nearest to them."""
    near = numbers.astype(np.float64)
    if to is _F64:
        words = near.view(np.uint64)
        return rounded.stepped(w, to, words, *_against(w, numbers, near), rounding)
    wide = _made_odd(w, numbers, near) if t.bits == 64 else near
    return rounded.narrowed(w, to, wide, rounding)


def _made_odd(w: Words, numbers: Word, near: Word) -> Word:
    """64-bit integers as f64: cut to 53 bits and made odd where something was lost, a number still
    rounds rightly."""
    above, below = _against(w, numbers, near)
    bits = near.view(np.uint64)
    outward = w.select(near > 0, above, below)
    moved = w.select(outward, bits + 1, bits - 1)
    return w.select((above | below) & (bits & 1 == 0), moved, bits).view(np.float64)


def _against(w: Words, numbers: Word, near: Word) -> tuple[Word, Word]:
    """Masks of 64-bit integers that lie above, and below, the f64 nearest to them."""
    # The nearest of a number close to the top is the power of two that the type just lacks.
    at_limit = near >= (2.0**63 if numbers.dtype.kind == "i" else 2.0**64)
    back = w.select(at_limit, 0.0, near).astype(numbers.dtype)
    return (numbers > back) & ~at_limit, (numbers < back) | at_limit


@rule
def float_to_integer(
    to: ScalarType, t: ScalarType, a: int, *, how: ToIntegral = TO_INTEGRAL
) -> int:
    """Floating point to integer: rounded, then clamped to the range of the type, .sat or not.

    Measured: a NaN gives 0, but where the source is f64 or the result has 64 bits a one in the
    highest bit of the result's type.
    """
    x = exact.read(t.format, a, how.ftz)
    if x.number_class == _NAN:
        return 1 << (to.bits - 1) if t.bits == 64 or to.bits == 64 else 0
    if x.number_class == _INFINITE:
        return to.word(to.smallest if x.sign else to.largest)
    return to.word(to.clamp(_integer(exact.value(t.format, x), how.integer_rounding)))


@float_to_integer.words
def _(w: Words, to: ScalarType, t: ScalarType, a: Word, *, how: ToIntegral = TO_INTEGRAL) -> Word:
    x = rounded.values(w, t, a, how.ftz)
    out = w.to_integers(w.integral(x, how.integer_rounding), to.values).view(to.dtype)
    return w.put(x != x, 1 << (to.bits - 1), out) if t.bits == 64 or to.bits == 64 else out


def _integer(number: Fraction, rounding: str) -> int:
    """The integer that a rounding to integers gives: rni to nearest, ties to even."""
    if rounding == "rni":
        return round(number)
    if rounding == "rzi":
        return int(number)
    return number.__floor__() if rounding == "rmi" else number.__ceil__()


# --- floating point -------------------------------------------------------------------------------


@rule
def float_to_integral(
    to: ScalarType, t: ScalarType, a: int, *, how: ToIntegral = TO_INTEGRAL
) -> int:
    """Floating point to an integral number of the same type; a zero keeps the number's sign."""
    fmt = t.format
    x = exact.read(fmt, a, how.ftz)
    if x.number_class == _NAN:
        code = exact.nan_of(fmt, a)
    elif x.number_class == _INFINITE:
        code = a
    else:
        number = _integer(exact.value(fmt, x), how.integer_rounding)
        code = exact.rounded(fmt, Fraction(number), "rn") if number else exact.zero(fmt, x.sign)
    return exact.saturated(fmt, code) if how.sat else code


@float_to_integral.words
def _(w: Words, to: ScalarType, t: ScalarType, a: Word, *, how: ToIntegral = TO_INTEGRAL) -> Word:
    x = rounded.values(w, t, a, how.ftz)
    words = rounded.nearest(w, t, w.integral(x, how.integer_rounding))
    if t is _F64 and not how.sat:
        return rounded.with_nans(w, t, words, x != x, a)
    return rounded.finished(w, t, words, x != x, how.sat)


@rule
def move(to: ScalarType, t: ScalarType, a: int, *, ftz: bool = False, sat: bool = False) -> int:
    """cvt between equal types. Measured: f32 and f64 keep the bits of a NaN; with .ftz, and in f16
    and bf16 always, it is canonical."""
    fmt = t.format
    x = exact.read(fmt, a, ftz)
    if x.number_class == _NAN:
        code = exact.nan_of(fmt) if ftz or t.bits == 16 else a
    else:
        code = exact.zero(fmt, x.sign) if x.number_class == _ZERO else a
    return exact.saturated(fmt, code) if sat else code


@move.words
def _(
    w: Words, to: ScalarType, t: ScalarType, a: Word, *, ftz: bool = False, sat: bool = False
) -> Word:
    if not (ftz or sat or t.bits == 16):
        return a
    words = rounded.flushed(w, t, a) if ftz else a
    return rounded.finished(w, t, words, rounded.are_nans(t, a), sat)


@rule
def floats(to: ScalarType, t: ScalarType, a: int, *, how: Rounded = NEAREST) -> int:
    """Floating point to another floating-point type, rounded once.

    Measured: conversions from and to f64 keep the sign and the top payload bits of a NaN and make
    it quiet, but for cvt.ftz.f64.f32; bf16 to f32 is a shift; every other NaN is canonical. .ftz
    is about numbers of f32's exponents: it does nothing from f32 to f16, nor to operands of f16.
    """
    source, target = t.format, to.format
    rounding, ftz, sat = how
    x = exact.read(source, a, ftz and _is_flushed(to, t))
    if x.number_class == _NAN:
        code = _converted_nan(to, t, a, ftz)
    elif x.number_class == _INFINITE:
        code = exact.infinity(target, x.sign)
    elif x.number_class == _ZERO:
        code = exact.zero(target, x.sign)
    else:
        code = exact.rounded(target, exact.value(source, x), rounding, ftz and to is _F32)
    return exact.saturated(target, code) if sat else code


@floats.words
def _(w: Words, to: ScalarType, t: ScalarType, a: Word, *, how: Rounded = NEAREST) -> Word:
    rounding, ftz, sat = how
    if (t.name, to.name) == ("bf16", "f32") and not (ftz or sat):
        return a.astype(to.dtype) << 16
    x = rounded.values(w, t, a, ftz and _is_flushed(to, t))
    if to is _F64:
        words = x.astype(np.float64).view(np.uint64)
    elif rounding == "rn" and not ftz:
        words = rounded.nearest(w, to, x)
    else:
        wide = x.astype(np.float64, copy=False)
        words = rounded.narrowed(w, to, wide, rounding, ftz and to is _F32)
    if sat:
        return rounded.finished(w, to, words, x != x, sat)
    return w.put(x != x, lambda: _converted_nans(to, t, a, ftz), words)


def _is_flushed(to: ScalarType, t: ScalarType) -> bool:
    """True if .ftz reads subnormal operands as zeros."""
    return t.name in ("f32", "bf16") and to.name != "f16"


def _converted_nan(to: ScalarType, t: ScalarType, a: int, ftz: bool) -> int:
    source, target = t.format, to.format
    if (t.name, to.name) == ("bf16", "f32"):
        return exact.nan_of(target) if ftz else a << 16
    if _F64 not in (t, to):
        return exact.nan_of(target)
    if ftz and t is _F32:
        a = exact.nan_of(source)
    quiet = a | 1 << (source.mantissa_bits - 1)
    payload = quiet & (1 << source.mantissa_bits) - 1
    shift = target.mantissa_bits - source.mantissa_bits
    payload = payload << shift if shift >= 0 else payload >> -shift
    return exact.infinity(target, a & source.sign_mask) | payload


def _converted_nans(to: ScalarType, t: ScalarType, a: Word, ftz: bool) -> Value:
    source, target = t.format, to.format
    if (t.name, to.name) == ("bf16", "f32") and not ftz:
        return a.astype(to.dtype) << 16
    if _F64 not in (t, to):
        return to.nan
    if ftz and t is _F32:
        return _converted_nan(to, t, 0, ftz)
    wide = a.astype(np.uint64)
    payload = wide & (1 << source.mantissa_bits) - 1 | 1 << (source.mantissa_bits - 1)
    shift = target.mantissa_bits - source.mantissa_bits
    payload = payload << shift if shift >= 0 else payload >> -shift
    sign = wide >> t.bits - 1 << to.bits - 1
    return (payload | sign | (target.infinity or 0)).astype(to.dtype)


# --- cvt.pack -------------------------------------------------------------------------------------


@rule
def pack(to: ScalarType, t: ScalarType, a: int, b: int) -> int:
    """cvt.pack to 16 bits: both clamped to the type, b in the lower half and a in the upper."""
    return to.word(to.clamp(t.number(a))) << to.bits | to.word(to.clamp(t.number(b)))


@pack.words
def _(w: Words, to: ScalarType, t: ScalarType, a: Word, b: Word) -> Word:
    upper, lower = (
        w.minimum(w.maximum(x.view(t.values), to.smallest), to.largest).view(np.uint32) & to.mask
        for x in (a, b)
    )
    return upper << to.bits | lower


@rule
def pack_onto(to: ScalarType, t: ScalarType, rest: ScalarType, a: int, b: int, c: int) -> int:
    """cvt.pack to fewer bits: `pack`, and above both the low bits of c."""
    return rest.word(c << 2 * to.bits) | pack.reference(to, t, a, b)


@pack_onto.words
def _(w: Words, to: ScalarType, t: ScalarType, rest: ScalarType, a: Word, b: Word, c: Word) -> Word:
    return c << 2 * to.bits | pack.text(w, to, t, a, b)


# --- mov ------------------------------------------------------------------------------------------


@packed_rule
def mov(t: ScalarType, *sources: int, parts: str = "") -> int | tuple[int, ...]:
    """9.7.9.3: all bits, also those of a signalling NaN.

    Several sources are the registers of a vector, the first one in the lowest bits; with `parts`
    the destination is a vector of so many registers.
    """
    width, word = t.size // len(sources), 0
    for i, source in enumerate(sources):
        word |= (source & (1 << width) - 1) << i * width
    if not parts:
        return word
    width = t.size // int(parts)
    return tuple(word >> i * width & (1 << width) - 1 for i in range(int(parts)))


@mov.words
def _(w: Words, t: ScalarType, *sources: Word, parts: str = "") -> Word | tuple[Word, ...]:
    if t.size == 128:
        return w.by_arrays(partial(_mov128, parts=parts), *sources)
    words = [source.astype(t.dtype, copy=False) for source in sources]
    word = words[0] if len(words) == 1 else joined(words, t.size // len(words))
    if not parts:
        return word
    width = t.size // int(parts)
    return tuple((word >> i * width).astype(f"uint{width}") for i in range(int(parts)))


def _mov128(*sources: Array, parts: str) -> Array | tuple[Array, ...]:
    """Words of 128 bits are arrays ``uint64 (…, 2)``, the lower half first."""
    if len(sources) == 1:
        word = sources[0]
    else:
        kind = np.dtype(f"uint{128 // len(sources)}")
        word = np.stack(np.broadcast_arrays(*(s.astype(kind) for s in sources)), axis=-1)
    if not parts:
        return word.view(np.uint64)
    pieces = np.ascontiguousarray(word).view(f"uint{128 // int(parts)}")
    return tuple(pieces[..., i] for i in range(int(parts)))


@packed_rule
def movs(t: ScalarType, *sources: int) -> tuple[int, ...]:
    """9.7.9.3 of vectors: each register into that of the same place."""
    return sources


@movs.words
def _(w: Words, t: ScalarType, *sources: Word) -> tuple[Word, ...]:
    return sources
