"""Shared parts of floating-point rules over words: reading, rounding, NaNs.

Numbers are rounded to nearest, in f32 and f64. Everything else comes from numbers that say exactly
how a result lies to its neighbours: for f32, f16 and bf16 an f64 *rounded to odd* (cut, its last
bit set where something was lost), which still rounds rightly to 25 bits or fewer in any direction
(Boldo and Melquiond, 2008); for f64 the nearest number and the sign of what it lacks. The CPU's
rounding mode is never touched.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dtypes import Format, Rounding
from emulator.arith.scalar.types import TYPES, ScalarType
from emulator.arith.scalar.words import Word, Words

_F64 = TYPES["f64"]
_ALL = 0xFFFFFFFF


class Rounded(NamedTuple):
    """The modifiers of what is rounded once."""

    rounding: Rounding = "rn"
    ftz: bool = False
    sat: bool = False


NEAREST = Rounded()

# --- words and values -----------------------------------------------------------------------------


def signs(t: ScalarType, words: Word) -> Word:
    """The sign bits."""
    return words & t.format.sign_mask


def magnitudes(t: ScalarType, words: Word) -> Word:
    """All bits but the signs."""
    return words & t.format.sign_mask - 1


def are_nans(t: ScalarType, words: Word) -> Word:
    """Mask of the words that are NaNs."""
    return magnitudes(t, words) > (t.format.infinity or t.format.max_finite)


def flushed(w: Words, t: ScalarType, words: Word) -> Word:
    """.ftz of operands: subnormal numbers become zeros of their sign."""
    return w.put(words & t.infinity == 0, lambda: signs(t, words), words)


def values(w: Words, t: ScalarType, words: Word, ftz: bool = False) -> Word:
    """The numbers of codes: f32 for f32, f16 and bf16, f64 for f64."""
    if ftz:
        words = flushed(w, t, words)
    if t.bits > 16:
        return words.view(t.values)
    wide = words.astype(np.uint32)
    if t.name == "bf16":
        return (wide << 16).view(np.float32)
    # The fraction and exponent of f16 are those of an f32 that is 2**112 times smaller.
    magnitude = wide & 0x7FFF
    bits = ((magnitude << 13).view(np.float32) * 2.0**112).view(np.uint32)
    bits = w.put(magnitude >= 0x7C00, lambda: bits | 0x7F800000, bits)
    return (bits | (wide ^ magnitude) << 16).view(np.float32)


def nearest(w: Words, t: ScalarType, numbers: Word) -> Word:
    """Codes of f32 or f64 numbers rounded to nearest; of NaNs any code."""
    if t.bits > 16:
        return numbers.astype(t.values, copy=False).view(t.dtype)
    floats = odd_float32(w, t, numbers) if numbers.dtype == np.float64 else numbers
    if t.name == "bf16":
        return _nearest_bf16(floats)
    return nearest_small(w, t.format, floats, t.infinity).astype(t.dtype)


def odd_float32(w: Words, t: ScalarType, numbers: Word) -> Word:
    """Nearest f32, or the odd one of two neighbours where rounding it once more could err."""

    def odd(near: Word, numbers: Word) -> Word:
        size, held = abs(numbers), abs(near.astype(np.float64))
        outward, inward = (x.astype(np.uint32) for x in (size > held, size < held))
        return (near.view(np.uint32) + outward - inward).view(np.float32)

    near = numbers.astype(np.float32)
    return w.mend(half_way(t, near), near, odd, near, numbers)


def half_way(t: ScalarType, floats: Word) -> Word:
    """Mask of f32 numbers that may lie half way between two numbers of f16 or bf16."""
    bits = floats.view(np.uint32)
    if t.name == "bf16":
        return bits & 0xFFFF == 0x8000
    return bits & 0xFFF == 0  # also between subnormal ones


def _nearest_bf16(floats: Word) -> Word:
    """The upper half of f32, rounded."""
    bits = floats.view(np.uint32)
    return (bits + ((bits >> 16 & 1) + 0x7FFF) >> 16).astype(np.uint16)


def nearest_small(w: Words, fmt: Format, floats: Word, largest: int) -> Word:
    """Codes of f32 numbers in a format of fewer bits and a smaller range of exponents, as u32: f32
    with fewer fraction bits, rounded, and with another bias; magnitudes are at most `largest`."""
    bits = floats.view(np.uint32)
    magnitude = bits & 0x7FFFFFFF
    cut, bias = 23 - fmt.mantissa_bits, 127 - fmt.bias
    rebased = magnitude + ((magnitude >> cut & 1) + ((1 << cut - 1) - 1 - (bias << 23) & _ALL))
    codes = w.minimum(rebased >> cut, largest)

    def subnormal() -> Word:
        """Next to `unit` an f32 has the unit of subnormal numbers, and is rounded to it."""
        unit = fmt.emin + cut
        return (magnitude.view(np.float32) + 2.0**unit).view(np.uint32) - (127 + unit << 23)

    codes = w.put(magnitude < bias + 1 << 23, subnormal, codes)
    return codes | (bits ^ magnitude) >> 32 - fmt.bits


def narrowed(w: Words, t: ScalarType, numbers: Word, rounding: str, ftz: bool = False) -> Word:
    """Codes of f32, f16 or bf16 of f64 numbers that are exact or rounded to odd.

    With .ftz a result is flushed where it is tiny after rounding as if the exponent had no limit.
    """
    words = nearest(w, t, numbers)
    if rounding == "rz":
        outside = abs(values(w, t, words).astype(np.float64)) > abs(numbers)
        words = words - outside.astype(t.dtype)
    elif rounding != "rn":
        back = values(w, t, words).astype(np.float64)
        words = stepped(w, t, words, numbers > back, numbers < back, rounding)
    return without_tiny(w, t, words, numbers, rounding) if ftz else words


def without_tiny(w: Words, t: ScalarType, words: Word, numbers: Word, rounding: str) -> Word:
    """.ftz of results: codes of numbers that are tiny become zeros of their sign."""
    return w.put(is_tiny(t, numbers, rounding), lambda: signs(t, words), words)


def is_tiny(t: ScalarType, numbers: Word, rounding: str) -> Word:
    """True where numbers, rounded to the precision of a type, are below its least normal number."""
    smallest = 2.0**t.format.emin
    magnitude = abs(numbers)
    last = 2.0 ** -(t.format.precision + 1)  # half of the last place just below `smallest`
    if rounding == "rn":
        return magnitude < smallest * (1 - last)
    if rounding == "rz":
        return magnitude < smallest
    away = numbers < 0 if rounding == "rm" else numbers > 0
    return (magnitude < smallest) & ~(away & (magnitude > smallest * (1 - 2 * last)))


def stepped(w: Words, t: ScalarType, words: Word, above: Word, below: Word, rounding: str) -> Word:
    """Codes rounded to nearest, corrected to another rounding.

    `above` and `below` tell where the exact number is larger and smaller than the code's.
    """
    negative = signs(t, words) != 0
    if rounding == "rz":
        return words - w.select(negative, above, below).astype(t.dtype)
    if rounding == "rm":
        inward, outward = below & ~negative, below & negative
    else:
        inward, outward = above & negative, above & ~negative
    return words + outward.astype(t.dtype) - inward.astype(t.dtype)


# --- NaNs and modifiers of results ----------------------------------------------------------------


def with_nans(w: Words, t: ScalarType, words: Word, nan: Word, *operands: Word) -> Word:
    """`words` with the NaN that the instruction returns where `nan` is set.

    Operands come in the order of their precedence, for f64, which passes a NaN on; see
    `exact.nan_of`.
    """
    if t is not _F64 or not operands:
        return w.put(nan, t.nan, words)

    def passed(*operands: Word) -> Word:
        out = t.dtype.type(t.nan)
        for operand in reversed(operands):
            quiet = operand | 1 << t.format.mantissa_bits - 1
            out = w.select(are_nans(t, operand), quiet, out)
        return out

    return w.mend(nan, words, passed, *operands)


def finished(
    w: Words, t: ScalarType, words: Word, nan: Word, sat: bool, relu: bool = False
) -> Word:
    """`with_nans` for the formats with one NaN, then .sat or .relu."""
    if sat:
        one = t.format.bias << t.format.mantissa_bits
        return w.select((signs(t, words) != 0) | nan, 0, w.minimum(words, one))
    if relu:
        words = w.select(signs(t, words) != 0, 0, words)
    return with_nans(w, t, words, nan)


# --- directed roundings of f64 --------------------------------------------------------------------


def plain(numbers: Word) -> Word:
    """Finite numbers other than zero."""
    return (abs(numbers) < float("inf")) & (numbers != 0)


def split(w: Words, numbers: Word) -> tuple[Word, Word]:
    """Significands from 1 to 2 with their signs, and exponents as i64, of `plain` numbers."""
    subnormal = abs(numbers) < 2.0**_F64.format.emin
    scaled = w.put(subnormal, lambda: numbers * 2.0**54, numbers)
    bits = scaled.view(np.int64)
    exponent = (bits >> 52 & 2047) - 1023
    exponent = w.put(subnormal, lambda: exponent - 54, exponent)
    return (bits & ~(2047 << 52) | 1023 << 52).view(np.float64), exponent


def directed(w: Words, near: Word, rest: Word, exponent: Word, rounding: Rounding) -> Word:
    """f64 codes of ``near * 2**exponent`` and a little more or less, as the sign of `rest` says;
    `near` is the nearest number to the exact one."""
    bits, negative = abs(near).view(np.int64), near < 0
    scale, whole = (bits >> 52) - 1023 + exponent, bits & (1 << 52) - 1 | 1 << 52
    # A subnormal number has fewer bits; of those that are cut off it is above or below, too.
    shift = w.minimum(w.maximum(-1022 - scale, 0), 63)
    kept = whole >> shift
    lost = kept << shift != whole
    outward = lost | w.select(negative, rest < 0, rest > 0)
    inward = ~lost & w.select(negative, rest > 0, rest < 0)
    codes = ((w.maximum(scale, -1022) + 1022 << 52) + kept).view(np.uint64)
    # Every number lies inward of infinity.
    beyond = scale > 1023
    codes, outward = w.put(beyond, _F64.infinity, codes), outward & ~beyond
    codes, inward = codes | signs(_F64, near.view(np.uint64)), inward | beyond
    above, below = w.select(negative, inward, outward), w.select(negative, outward, inward)
    return stepped(w, _F64, codes, above, below, rounding)
