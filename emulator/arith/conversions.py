"""The arithmetic of the packing cvts.

Rounding and special values as measured on an H200 (f16, bf16, tf32, e4m3, e5m2) and as the manual
says for the formats of later targets (PTX ISA 9.7.9.21).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dtypes import FORMATS, Array, Format, NumberClass, Overflow, Rounding, code_type, decode
from dtypes import convert as convert_codes
from dtypes.arrays import Numbers, bit_length, decode_integers, round_to_codes
from dtypes.codec import overflow_code

_F32 = FORMATS["f32"]


def convert(
    source: Format,
    target: Format,
    codes: Array,
    rounding: str,
    *,
    relu: bool = False,
    satfinite: bool = False,
    pzo: bool = False,
    random_bits: tuple[Array, int] | None = None,
    exponents: Array | None = None,
    flush: bool = False,
) -> Array:
    """Codes of `source` to codes of `target`.

    A NaN becomes the target's canonical NaN, or its largest number where it has no NaN. ``.relu``
    turns everything else with the sign bit set into +0. ``.satfinite`` keeps infinities and
    overflows at the largest finite number, ``.pzo`` makes a result of -0 one of +0. `random_bits`
    are those of .rs, and how many each has. `exponents` are those of powers of two that the values
    are multiplied by before they are rounded, `NO_EXPONENT` of a scale that is no number; `flush`
    takes subnormal values for zeros.
    """
    if relu:
        number = _decoded(source, codes)
        negative = number.sign & (number.number_class != NumberClass.NAN)
        codes = np.where(negative, 0, codes).astype(codes.dtype)
    if rounding == "rna":
        return _tf32_nearest_away(codes, satfinite)
    if target.name == "ue8m0":
        return _to_ue8m0(source, codes, rounding, satfinite)
    overflow: Overflow = "saturate" if satfinite else "ieee"
    if random_bits is not None:
        return _stochastic(source, target, codes, *random_bits, overflow)
    chosen: Any = rounding
    if (
        exponents is None
        and not source.fraction_bits
        and not target.fraction_bits
        and target.signed
    ):
        out = convert_codes(source, target, codes, chosen, overflow=overflow)
    else:
        out = _scaled(source, target, codes, chosen, overflow, exponents, flush)
    return np.where(out == target.sign_mask, 0, out).astype(out.dtype) if pzo else out


#: exponent of a block scale that is a NaN
NO_EXPONENT = 1 << 12


def _decoded(source: Format, codes: Array) -> Numbers:
    """The numbers of a floating-point or fixed-point format."""
    if not source.fraction_bits:
        return decode(source, codes)
    values = decode_integers(source, codes)
    kind = np.where(values == 0, NumberClass.ZERO, NumberClass.FINITE).astype(np.int8)
    exponent = np.full(values.shape, source.mantissa_bits - source.fraction_bits, np.int64)
    return Numbers(kind, values < 0, exponent, np.abs(values))


def _scaled(
    source: Format,
    target: Format,
    codes: Array,
    rounding: Rounding,
    overflow: Overflow,
    exponents: Array | None,
    flush: bool,
) -> Array:
    """Numbers times powers of two, rounded once. A format without a sign takes magnitudes."""
    number = _decoded(source, codes)
    power = np.int64(0) if exponents is None else exponents.astype(np.int64)
    significand = number.significand
    if flush:
        subnormal = (number.exponent == source.emin) & (significand < 1 << source.mantissa_bits)
        significand = np.where(subnormal, 0, significand)
    unit = number.exponent - source.mantissa_bits + np.where(power == NO_EXPONENT, 0, power)
    sign = number.sign & target.signed
    infinite = number.number_class == NumberClass.INFINITE
    if target.fraction_bits:
        # An infinity is larger than every number of the format.
        significand = np.where(infinite, 1, significand)
        out = _to_fixed(target, sign, significand, np.where(infinite, 32, unit), rounding)
    else:
        out = round_to_codes(target, sign, significand, unit, rounding, overflow=overflow)
        limit = target.infinity if overflow != "saturate" else target.max_finite
        if limit is None:
            limit = overflow_code(target, 0, "rn", overflow)
        out = np.where(infinite, np.where(sign, target.sign_mask, 0) | limit, out)
    nan = target.max_finite if target.nan is None else target.nan
    is_nan = (number.number_class == NumberClass.NAN) | (power == NO_EXPONENT)
    return np.where(is_nan, nan, out).astype(code_type(target.bits))


def _to_fixed(
    target: Format, sign: Array, significand: Array, unit: Array, rounding: Rounding
) -> Array:
    """Magnitudes in units of the last place, rounded (rn, rz), and cut at the ends of the range."""
    shift = -target.fraction_bits - unit
    wide, right = significand << np.clip(-shift, 0, 32), np.clip(shift, 0, 62)
    kept = wide >> right
    if rounding == "rn":
        rest, half = wide - (kept << right), np.int64(1) << np.maximum(right - 1, 0)
        kept = kept + ((right > 0) & ((rest > half) | ((rest == half) & (kept & 1 == 1))))
    kept = np.minimum(kept, np.where(sign, target.sign_mask, target.max_finite))
    return np.where(sign, -kept, kept) & target.code_mask


def _tf32_nearest_away(codes: Array, satfinite: bool) -> Array:
    """cvt.rna.tf32.f32: an integer operation on the word, also for NaN payloads (measured).

    Half of the last kept bit is added to the magnitude. Words with exponent 255 are only cut; with
    .satfinite they then lose one unit of the last kept bit, and an overflow stays finite.
    """
    tf32 = FORMATS["tf32"]
    assert _F32.infinity is not None
    word = codes.astype(np.int64)
    magnitude = word & _F32.sign_mask - 1
    unit = 1 << tf32.ignored_bits
    rounded = magnitude + unit // 2 & -unit
    special = magnitude & -unit
    if satfinite:
        rounded = np.minimum(rounded, tf32.max_finite)
        special = special - unit
    out = np.where(magnitude >= _F32.infinity, special, rounded)
    return (out | word & _F32.sign_mask).astype(code_type(tf32.bits))


def _to_ue8m0(source: Format, codes: Array, rounding: str, satfinite: bool) -> Array:
    """The power of two at or above (rp) or below (rz) the magnitude; the sign is dropped.

    A magnitude below 2^-127 becomes 2^-127; without .satfinite one above 2^127 becomes a NaN, as
    infinity does. No recording; NVIDIA's host code in cuda_fp8.hpp does the same.
    """
    fmt = FORMATS["ue8m0"]
    assert fmt.nan is not None
    number = decode(source, codes)
    mode: Rounding = "rp" if rounding == "rp" else "rz"
    unit = number.exponent - source.mantissa_bits
    positive = np.zeros(number.sign.shape, np.bool_)
    overflow: Overflow = "saturate" if satfinite else "infinity"
    out = round_to_codes(fmt, positive, number.significand, unit, mode, overflow=overflow)
    infinite = number.number_class == NumberClass.INFINITE
    out = np.where(infinite, fmt.max_finite if satfinite else fmt.nan, out)
    out = np.where(number.number_class == NumberClass.NAN, fmt.nan, out)
    return out.astype(code_type(fmt.bits))


def _stochastic(
    source: Format, target: Format, codes: Array, random: Array, width: int, overflow: Overflow
) -> Array:
    """Rounds the magnitude up where the random bits carry out of the bits that are cut off.

    The `width` random bits are aligned with the highest bits cut off: a fraction r / 2**width of
    one unit in the last place is added, and the sum is cut.
    """
    number = decode(source, codes)
    unit = number.exponent - source.mantissa_bits
    top = np.maximum(bit_length(number.significand) - 1 + unit, target.emin)
    cut = np.maximum(top - (target.precision - 1) - unit, 0)
    # Where more bits are cut the number is less than the smallest step that could carry.
    most = source.precision + width - 1
    step = np.where(cut <= most, random.astype(np.int64) << np.minimum(cut, most), 0)
    sum_ = np.where(number.significand == 0, 0, (number.significand << width) + step)
    limit: Overflow = "infinity" if overflow == "ieee" else overflow
    out = round_to_codes(target, number.sign, sum_, unit - width, "rz", overflow=limit)
    special = convert_codes(source, target, codes, "rz", overflow=overflow)
    return np.where(number.number_class <= NumberClass.FINITE, out, special)
