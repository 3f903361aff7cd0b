"""Decodes and encodes elements in machine code, by the facts of the formats.

Codes are words of uint32, and bits above a code are ignored.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dtypes import FORMATS, Format
from emulator.arith.fast.words import Word, select

#: the exponent of a zero: with that of any other factor it is below all others
NOWHERE = -2048
#: float32: bits of the fraction, bias and field of the exponent, and sign
MANTISSA, BIAS = 23, 127
EXPONENT, SIGN = 0xFF << MANTISSA, 1 << 31
_INFINITY, _NAN = np.float32(np.inf), np.float32(np.nan)
_F16 = FORMATS["f16"]
_F16_INFINITY = _F16.infinity or 0
#: between the exponent fields of a number in float32 and in f16
_APART = (BIAS - _F16.bias) << MANTISSA
#: fraction bits that float32 has and f16 has not
_CUT = MANTISSA - _F16.mantissa_bits


class Parts(NamedTuple):
    """Numbers ``value * 2**(exponent - fraction_bits)``: values are signed significands."""

    value: Word
    exponent: Word
    fraction_bits: int
    #: a mask of infinities and NaNs, whose value is 0; None: the format has none
    special: Word | None


class _Fields(NamedTuple):
    negative: Word | None
    exponent: Word
    mantissa: Word
    special: Word | None
    zero: Word
    significand: Word


def _fields(fmt: Format, codes: Word) -> _Fields:
    m, ones = fmt.mantissa_bits, (1 << fmt.exponent_bits) - 1
    codes = codes >> fmt.ignored_bits
    negative = (codes & 1 << (fmt.bits - fmt.ignored_bits - 1)) != 0 if fmt.signed else None
    field, mantissa = (codes >> m) & ones, codes & (1 << m) - 1
    special = None
    if fmt.specials == "ieee":
        special = field == ones
    elif fmt.specials == "nan":
        all_ones = (1 << (fmt.exponent_bits + m)) - 1
        special = (codes & all_ones) == all_ones
    significand, least = mantissa | 1 << m, field.view(np.int32)
    if fmt.has_zero:
        significand = select(field == 0, mantissa, significand)
        least = least.maximum(1)
    if special is not None:
        significand = select(special, 0, significand)
    zero = significand == 0
    return _Fields(negative, least - fmt.bias, mantissa, special, zero, significand)


def decoded(fmt: Format, codes: Word, widened: Format | None = None) -> Parts:
    """Codes as numbers; `widened`: with the exponents that they have in that format."""
    x = _fields(fmt, codes)
    signed = x.significand.view(np.int32)
    if x.negative is not None:
        signed = select(x.negative, 0 - signed, signed)
    value, exponent, fraction = signed.astype(np.float32), x.exponent, fmt.mantissa_bits
    if widened is not None and widened is not fmt:
        # A subnormal becomes normal, as far as the wider format goes down.
        top = ((value.view(np.uint32) >> MANTISSA) & 255).view(np.int32)
        top = (top - BIAS + (exponent - fraction)).maximum(widened.emin)
        value, exponent, fraction = value * power_of_two(exponent - fraction - top), top, 0
    return Parts(value, select(x.zero, NOWHERE, exponent), fraction, x.special)


def power_of_two(exponent: Word) -> Word:
    """2**exponent of normal float32 numbers; 0 of what is smaller."""
    return ((exponent + BIAS).maximum(0) << MANTISSA).view(np.float32)


def wide_power_of_two(exponent: Word) -> Word:
    """2**exponent in float64, of int32 exponents; 0 of what is too small for a normal number."""
    field = (exponent + 1023).maximum(0)
    return (field.view(np.uint32).astype(np.uint64) << 52).view(np.float64)


def classes(fmt: Format, codes: Word) -> Word:
    """Infinities and NaNs of codes as they are in float32, other numbers as −1, 0 or 1.

    The products and sums of these tell what becomes of infinities and NaNs among finite terms.
    """
    x = _fields(fmt, codes)
    out = select(x.zero, np.float32(0), np.float32(1))
    if x.special is not None and fmt.specials == "ieee":
        out = select(x.special, select(x.mantissa == 0, _INFINITY, _NAN), out)
    elif x.special is not None:
        out = select(x.special, _NAN, out)
    return out if x.negative is None else select(x.negative, -0.0 - out, out)


# --- float32 numbers ------------------------------------------------------------------------------


def finite_number(fmt: Format, codes: Word) -> Word:
    """The bits of a narrower format's numbers in float32, where all are normal; infinities and NaNs
    mean nothing."""
    sign = (codes << (32 - fmt.bits)) & SIGN
    size = (codes & (1 << (fmt.bits - 1)) - 1) << (MANTISSA - fmt.mantissa_bits)
    subnormal = size < 1 << MANTISSA
    size = size + ((BIAS - fmt.bias) << MANTISSA)
    # With the exponent of the least normal numbers, these have one of them too much.
    small = (size + (1 << MANTISSA)).view(np.float32) - 2.0**fmt.emin
    return select(subnormal, small.view(np.uint32), size) | sign


def number(fmt: Format, codes: Word) -> Word:
    """Codes of f16 or f32 as float32 numbers; NaNs of any code."""
    if fmt.bits == 32:
        return codes.view(np.float32)
    bits, is_finite = finite_number(fmt, codes), (codes & fmt.sign_mask - 1) < _F16_INFINITY
    return select(is_finite, bits, bits | EXPONENT).view(np.float32)


def code(fmt: Format, numbers: Word) -> Word:
    """Codes of float32 numbers that the format, f16 or f32, has; NaNs as the one that the hardware
    writes."""
    assert fmt.nan is not None
    words = numbers.view(np.uint32)
    codes = words if fmt.bits == 32 else _half_code(numbers)
    return select(words & SIGN - 1 > EXPONENT, fmt.nan, codes)


def _half_code(numbers: Word) -> Word:
    """Codes of float32 numbers that f16 has."""
    words = numbers.view(np.uint32)
    size, sign = words & SIGN - 1, (words >> 16) & _F16.sign_mask
    normal = (size - _APART) >> _CUT
    is_small = size < (_F16.emin + BIAS) << MANTISSA
    units = size.view(np.float32) * 2.0 ** (_F16.mantissa_bits - _F16.emin)
    small = select(is_small, units, 0.0).astype(np.int32).view(np.uint32)
    return select(is_small, small, normal.minimum(_F16_INFINITY)) | sign


def to_half(numbers: Word, directed: bool) -> Word:
    """Float32 numbers, of which a last bit may be sticky, rounded to nearest even as f16 does; what
    is rounded to a zero is +0, too large becomes infinity. `directed`: the processor converts, for
    which others may call a function that is not there."""
    if directed:
        return numbers.astype(np.float16).astype(np.float32) + 0.0
    words = numbers.view(np.uint32)
    size = (words & SIGN - 1).view(np.float32)
    normal = words + ((1 << (_CUT - 1)) - 1) + ((words >> _CUT) & 1)
    normal = (normal & -1 << _CUT).view(np.float32)
    # The last bit of an f16 below 2**-14 is 2**-24: that of a float32 near 0.75.
    subnormal = (numbers + 0.75) - 0.75
    rounded = select(size < 2.0**_F16.emin, subnormal, normal)
    infinite = ((words & SIGN) | EXPONENT).view(np.float32)
    return select(size >= 65520.0, infinite, rounded)


def half_code(numbers: Word, directed: bool) -> Word:
    """The codes of `to_half` of finite numbers."""
    if not directed:
        return _half_code(to_half(numbers, directed))
    codes = numbers.astype(np.float16).view(np.uint16).astype(np.uint32)
    return select(codes == _F16.sign_mask, 0, codes)


# --- rounding -------------------------------------------------------------------------------------


def rounded(
    fmt: Format, value: Word, rounding: str, precision: int | None = None, signed_zero: bool = False
) -> Word:
    """Codes of float64 numbers: f32 toward zero, or f16 to nearest even.

    Too large becomes infinity; a zero is +0, but for `signed_zero`.
    """
    assert fmt.infinity is not None
    word, magnitude, cut = value.view(np.uint64), abs(value), 52 - fmt.mantissa_bits
    size, tiny = word & (1 << 63) - 1, magnitude < 2.0**fmt.emin
    # Small numbers are multiples of the least one.
    units = magnitude * 2.0 ** (fmt.mantissa_bits - fmt.emin)
    if rounding == "rn":
        odd = (size >> cut) & 1
        size = size + ((1 << (cut - 1)) - 1) + odd
        small = (units + 2.0**52).view(np.int64)
    else:
        small = select(tiny, units, 0.0).astype(np.int32).astype(np.int64)
    normal = ((size >> cut) - ((1023 - fmt.bias) << fmt.mantissa_bits)).view(np.int64)
    out = select(tiny, small, normal.minimum(fmt.infinity)).astype(np.uint32)
    lost = fmt.precision - (precision or fmt.precision)
    out = out & (fmt.code_mask >> lost << lost)
    negative = word.view(np.int64) < 0
    if not signed_zero:
        negative = negative & (out != 0)
    return select(negative, out | fmt.sign_mask, out)


def with_specials(fmt: Format, codes: Word, special: Word) -> Word:
    """`codes`, but where `special` is an infinity or a NaN, the code of that."""
    assert fmt.infinity is not None and fmt.nan is not None
    word = np.uint32
    infinity = select(special < 0.0, word(fmt.infinity | fmt.sign_mask), word(fmt.infinity))
    codes = select(abs(special) == np.inf, infinity, codes)
    return select(special != special, fmt.nan, codes)
