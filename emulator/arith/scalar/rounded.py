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
from emulator.arith.scalar.types import TYPES, ScalarType

Float64 = NDArray[np.float64]
Bool = NDArray[np.bool_]
_F64 = TYPES["f64"]

# --- words and values -----------------------------------------------------------------------------


def flushed(t: ScalarType, words: Array) -> Array:
    """.ftz of operands: subnormal numbers become zeros of their sign."""
    normal = words & t.dtype.type(t.format.infinity or 0)
    return np.where(normal != 0, words, words & t.dtype.type(t.format.sign_mask))


def values(t: ScalarType, words: Array, ftz: bool = False) -> Array:
    """The numbers of codes: float32 for f32, f16 and bf16, float64 for f64."""
    if ftz:
        words = flushed(t, words)
    if t.name == "bf16":
        return (words.astype(np.uint32) << np.uint32(16)).view(np.float32)
    floats = words.view(t.values)
    return floats.astype(np.float32) if t.name == "f16" else floats


def nearest(t: ScalarType, numbers: Array) -> Array:
    """Codes of numbers rounded to nearest; of NaNs any code."""
    if t.name == "bf16":
        return _nearest_bf16(numbers)
    return numbers.astype(t.values, copy=False).view(t.dtype)


def _nearest_bf16(numbers: Array) -> Array:
    """The upper half of float32, rounded; of float64 through a float32 rounded to odd."""
    if numbers.dtype == np.float64:
        near = np.atleast_1d(numbers.astype(np.float32))
        bits = near.view(np.uint32)
        exact = near.astype(np.float64)
        even_inexact = (exact != numbers) & (bits & 1 == 0) & (numbers == numbers)
        outward = np.abs(numbers) > np.abs(exact)
        bits = bits + np.where(even_inexact, np.where(outward, 1, -1), 0).astype(np.uint32)
        bits = bits.reshape(np.shape(numbers))
    else:
        bits = numbers.view(np.uint32)
    last = bits >> np.uint32(16) & np.uint32(1)
    return (bits + (last + np.uint32(0x7FFF)) >> np.uint32(16)).astype(np.uint16)


def narrowed(t: ScalarType, numbers: Float64, rounding: str, ftz: bool = False) -> Array:
    """Codes of f32, f16 or bf16 of float64 numbers that are exact or rounded to odd.

    With .ftz a result is flushed where it is tiny after rounding as if the exponent had no limit.
    """
    words = nearest(t, numbers)
    if rounding != "rn":
        back = values(t, words).astype(np.float64)
        words = stepped(t, words, numbers > back, numbers < back, rounding)
    if ftz:
        words = np.where(is_tiny(t, numbers, rounding), signs(t, words), words)
    return words


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
    return np.where(nan, out, words)


def finished(t: ScalarType, words: Array, nan: Bool, sat: bool, relu: bool = False) -> Array:
    """`with_nans` for the formats with one NaN, then .sat or .relu."""
    if sat:
        one = t.dtype.type(t.format.bias << t.format.mantissa_bits)
        negative = (words & t.dtype.type(t.format.sign_mask)) != 0
        return np.where(negative | nan, t.dtype.type(0), np.minimum(words, one))
    if relu:
        negative = (words & t.dtype.type(t.format.sign_mask)) != 0
        words = np.where(negative, t.dtype.type(0), words)
    return with_nans(t, words, nan)


# --- exact sums and products ----------------------------------------------------------------------


def two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """The nearest sum and what it lacks (Knuth); exact where nothing overflows."""
    total = a + b
    b_part = total - a
    return total, (a - (total - b_part)) + (b - b_part)


def two_product(a: Float64, b: Float64) -> tuple[Float64, Float64]:
    """The nearest product and what it lacks (Dekker); exact where nothing over- or underflows."""
    product = a * b
    a_high, b_high = _upper_half(a), _upper_half(b)
    a_low, b_low = a - a_high, b - b_high
    rest = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    return product, rest


def _upper_half(a: Float64) -> Float64:
    """The upper 26 bits of the significand (Veltkamp)."""
    shifted = a * 134217729.0  # 2**27 + 1
    return shifted - (shifted - a)


def odd_sum(a: Float64, b: Float64) -> Float64:
    """a + b rounded to odd."""
    total, rest = two_sum(a, b)
    bits = np.atleast_1d(total).view(np.int64)
    rest = np.atleast_1d(rest)
    even = (rest != 0) & (bits & 1 == 0) & np.isfinite(rest)
    outward = (rest > 0) == (np.atleast_1d(total) > 0)
    odd = bits + np.where(even, np.where(outward, 1, -1), 0)
    return odd.view(np.float64).reshape(np.shape(total))


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
