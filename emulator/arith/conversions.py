"""The arithmetic of the packing cvts.

Rounding and special values as measured on an H200 (f16, bf16, tf32, e4m3, e5m2) and as the manual
says for the formats of later targets (PTX ISA 9.7.9.21).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dtypes import FORMATS, Array, Format, NumberClass, Overflow, Rounding, code_type, decode
from dtypes import convert as convert_codes
from dtypes.arrays import bit_length, round_to_codes

_F32 = FORMATS["f32"]


def convert(
    source: Format,
    target: Format,
    codes: Array,
    rounding: str,
    *,
    relu: bool = False,
    satfinite: bool = False,
    random_bits: tuple[Array, int] | None = None,
) -> Array:
    """Codes of `source` to codes of `target`.

    A NaN becomes the target's canonical NaN, or its largest number where it has no NaN. ``.relu``
    turns everything else with the sign bit set into +0. ``.satfinite`` keeps infinities and
    overflows at the largest finite number. `random_bits` are those of .rs, and how many each has.
    """
    if relu:
        number = decode(source, codes)
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
    return convert_codes(source, target, codes, chosen, overflow=overflow)


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
