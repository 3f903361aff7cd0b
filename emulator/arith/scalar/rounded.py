"""What the rules of floating-point instructions share on arrays: exact sums and products, rounding.

NumPy rounds to nearest, in f32 and f64. Everything else comes from numbers that say exactly how a
result lies to its neighbours: for f32, f16 and bf16 a float64 *rounded to odd* (cut, its last bit
set where something was lost), which still rounds rightly to 25 bits or fewer in any direction
(Boldo and Melquiond, 2008); for f64 the nearest number and the sign of what it lacks. The CPU's
rounding mode is never touched.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtypes import Array, Rounding
from dtypes.arrays import round_to_codes
from emulator.arith.scalar.types import TYPES, ScalarType, select

Float64 = NDArray[np.float64]
Bool = NDArray[np.bool_]
_F64 = TYPES["f64"]

# --- words and values -----------------------------------------------------------------------------


def flushed(t: ScalarType, words: Array) -> Array:
    """.ftz of operands: subnormal numbers become zeros of their sign."""
    least = 1 << t.format.mantissa_bits
    magnitude = words & t.dtype.type(t.format.sign_mask - 1)
    # One less than the magnitude of a zero is the largest word.
    subnormal = magnitude - t.dtype.type(1) < t.dtype.type(least - 1)
    return select(subnormal, signs(t, words), words) if subnormal.any() else words


def values(t: ScalarType, words: Array, ftz: bool = False) -> Array:
    """The numbers of codes: float32 for f32, f16 and bf16, float64 for f64."""
    if ftz:
        words = flushed(t, words)
    if t.bits > 16:
        return words.view(t.values)
    wide = words.astype(np.uint32)
    if t.name == "bf16":
        return (wide << np.uint32(16)).view(np.float32)
    # The fraction and exponent of f16 are those of a float32 that is 2**112 times smaller.
    magnitude = wide & np.uint32(0x7FFF)
    floats = (magnitude << np.uint32(13)).view(np.float32) * np.float32(2.0**112)
    bits = floats.view(np.uint32) | (wide ^ magnitude) << np.uint32(16)
    special = magnitude >= np.uint32(0x7C00)
    if special.any():
        bits = bits | special * np.uint32(0x7F800000)
    return bits.view(np.float32)


def nearest(t: ScalarType, numbers: Array) -> Array:
    """Codes of numbers rounded to nearest; of NaNs any code."""
    if t.bits > 16:
        return numbers.astype(t.values, copy=False).view(t.dtype)
    floats = np.atleast_1d(numbers)
    if floats.dtype == np.float64:
        floats = _odd_float32(t, floats)
    codes = _nearest_bf16(floats) if t.name == "bf16" else _nearest_f16(floats)
    return codes.reshape(np.shape(numbers))


def _odd_float32(t: ScalarType, numbers: Float64) -> NDArray[np.float32]:
    """Nearest float32, or the odd one of two neighbours where rounding it once more could err."""
    near = numbers.astype(np.float32)
    bits, doubtful = near.view(np.uint32), half_way(t, near)
    if doubtful.any():
        numbers, exact = numbers[doubtful], near[doubtful].astype(np.float64)
        outward, inward = np.abs(numbers) > np.abs(exact), np.abs(numbers) < np.abs(exact)
        bits[doubtful] += outward.astype(np.uint32) - inward
    return near


def half_way(t: ScalarType, floats: NDArray[np.float32]) -> Bool:
    """Where float32 numbers may lie half way between two of f16 or bf16."""
    bits = floats.view(np.uint32)
    if t.name == "bf16":
        return bits & np.uint32(0xFFFF) == np.uint32(0x8000)
    return bits & np.uint32(0xFFF) == 0  # also between subnormal ones


def _nearest_bf16(floats: NDArray[np.float32]) -> Array:
    """The upper half of float32, rounded."""
    bits = floats.view(np.uint32)
    last = bits >> np.uint32(16) & np.uint32(1)
    return (bits + (last + np.uint32(0x7FFF)) >> np.uint32(16)).astype(np.uint16)


def _nearest_f16(floats: NDArray[np.float32]) -> Array:
    """float32 with 13 bits less, rounded, and 112 taken from its exponent."""
    bits = floats.view(np.uint32)
    magnitude = bits & np.uint32(0x7FFFFFFF)
    last = magnitude >> np.uint32(13) & np.uint32(1)
    codes = magnitude + (last + np.uint32(0xFFF - (112 << 23) & 0xFFFFFFFF)) >> np.uint32(13)
    codes = np.minimum(codes, np.uint32(0x7C00))
    small = magnitude < np.uint32(113 << 23)
    if small.any():
        codes[small] = np.abs(floats[small]).astype(np.float16).view(np.uint16)
    return (codes | (bits ^ magnitude) >> np.uint32(16)).astype(np.uint16)


def narrowed(t: ScalarType, numbers: Float64, rounding: str, ftz: bool = False) -> Array:
    """Codes of f32, f16 or bf16 of float64 numbers that are exact or rounded to odd.

    With .ftz a result is flushed where it is tiny after rounding as if the exponent had no limit.
    """
    words = nearest(t, numbers)
    if rounding != "rn":
        back = values(t, words).astype(np.float64)
        words = stepped(t, words, numbers > back, numbers < back, rounding)
    if ftz:
        words = without_tiny(t, words, numbers, rounding)
    return words


def without_tiny(t: ScalarType, words: Array, numbers: Array, rounding: str) -> Array:
    """.ftz of results: codes of numbers that are tiny become zeros of their sign."""
    if not (np.abs(numbers) < 2.0**t.format.emin).any():
        return words
    return select(is_tiny(t, numbers, rounding), signs(t, words), words)


def is_tiny(t: ScalarType, numbers: Float64, rounding: str) -> Bool:
    """Whether numbers, rounded to the precision of a type, lie below its smallest normal number."""
    smallest = 2.0**t.format.emin
    magnitude = np.abs(numbers)
    last = 2.0 ** -(t.format.precision + 1)  # half of the last place just below `smallest`
    if rounding == "rn":
        return magnitude < smallest * (1 - last)
    away: Any = {"rz": np.False_, "rm": numbers < 0, "rp": numbers > 0}[rounding]
    return (magnitude < smallest) & ~(away & (magnitude > smallest * (1 - 2 * last)))


def stepped(t: ScalarType, words: Array, above: Bool, below: Bool, rounding: str) -> Array:
    """Codes rounded to nearest, corrected to another rounding.

    `above` and `below` tell where the exact number is larger and smaller than the code's.
    """
    negative = (words & t.dtype.type(t.format.sign_mask)) != 0
    if rounding == "rz":
        inward, outward = np.where(negative, above, below), np.False_
    elif rounding == "rm":
        inward, outward = below & ~negative, below & negative
    else:
        inward, outward = above & negative, above & ~negative
    return (words + outward - inward).astype(t.dtype)


def signs(t: ScalarType, words: Array) -> Array:
    """The sign bits."""
    return words & t.dtype.type(t.format.sign_mask)


# --- NaNs and modifiers of results ----------------------------------------------------------------


def with_nans(t: ScalarType, words: Array, nan: Bool, *operands: Array) -> Array:
    """`words` with the NaN that the instruction returns where `nan` is set.

    Operands come in the order of their precedence, for f64, which passes a NaN on; see
    `exact.nan_of`.
    """
    if not nan.any():
        return words
    out: Any = t.dtype.type(t.format.nan or 0)
    if t is _F64:
        quiet = t.dtype.type(1 << (t.format.mantissa_bits - 1))
        for operand in reversed(operands):
            out = np.where(np.isnan(operand.view(np.float64)), operand | quiet, out)
    return select(nan, out, words)


def finished(t: ScalarType, words: Array, nan: Bool, sat: bool, relu: bool = False) -> Array:
    """`with_nans` for the formats with one NaN, then .sat or .relu."""
    if sat:
        one = t.dtype.type(t.format.bias << t.format.mantissa_bits)
        negative = (words & t.dtype.type(t.format.sign_mask)) != 0
        return select(negative | nan, t.dtype.type(0), np.minimum(words, one))
    if relu:
        negative = (words & t.dtype.type(t.format.sign_mask)) != 0
        words = select(negative, t.dtype.type(0), words)
    return with_nans(t, words, nan)


# --- directed roundings of f64 --------------------------------------------------------------------


def plain(numbers: Float64) -> Bool:
    """Finite numbers other than zero."""
    return np.isfinite(numbers) & (numbers != 0)


def directed(
    words: Array, near: Float64, rest: Float64, exponent: Array, rounding: Rounding, ordinary: Bool
) -> Array:
    """f64 codes of ``near * 2**exponent`` and a little more or less, as the sign of `rest` says.

    `near` is the nearest number to the exact one; what is not `ordinary` keeps its code in `words`.
    """
    significand, up = np.frexp(np.abs(near))
    whole = np.ldexp(np.where(ordinary, significand, 0.5), 53).astype(np.int64)
    outward = np.sign(rest) * np.sign(near)
    # Two more bits say on which side of `near` the exact number lies.
    bits = 4 * whole + np.where(ordinary, outward, 0).astype(np.int64)
    scale = (up + exponent).astype(np.int64) - 55
    codes = round_to_codes(_F64.format, np.signbit(near), bits, scale, rounding)
    return np.where(ordinary, codes, words)
