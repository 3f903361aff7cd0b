"""``dtypes.codec`` over NumPy arrays, and the door between codes and arrays of values.

Every function here says the same as its scalar twin in `codec`, for whole arrays at a time.
"""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtypes.codec import NumberClass, Overflow, Rounding, overflow_code
from dtypes.formats import FORMATS, Format
from dtypes.packing import Array, code_type

Int64 = NDArray[np.int64]


class Numbers(NamedTuple):
    """Decoded elements, field by field; see `codec.Number`."""

    number_class: NDArray[np.int8]
    sign: NDArray[np.bool_]
    exponent: Int64
    significand: Int64


def decode(fmt: Format, codes: Array) -> Numbers:
    """Codes of a floating-point format to exact numbers."""
    bits = codes.astype(np.uint64) & np.uint64(fmt.code_mask)
    word = (bits >> np.uint64(fmt.ignored_bits)).astype(np.int64)
    fraction = (1 << fmt.mantissa_bits) - 1
    top = (1 << fmt.exponent_bits) - 1
    sign = (bits & np.uint64(fmt.sign_mask)) != 0
    field, mantissa = word >> fmt.mantissa_bits & top, word & fraction

    subnormal = (field == 0) & fmt.has_zero
    exponent = np.where(subnormal, fmt.emin, field - fmt.bias)
    significand = np.where(subnormal, mantissa, mantissa | fraction + 1)
    number_class = np.where(significand == 0, NumberClass.ZERO, NumberClass.FINITE)
    if fmt.specials != "none":
        special = field == top
        if fmt.specials == "nan":
            special &= mantissa == fraction
            nan = special
        else:
            nan = special & (mantissa != 0)
        number_class = np.where(special, NumberClass.INFINITE, number_class)
        number_class = np.where(nan, NumberClass.NAN, number_class)
        exponent = np.where(special, 0, exponent)
        significand = np.where(special, 0, significand)
    return Numbers(number_class.astype(np.int8), sign, exponent, significand)


def decode_integers(fmt: Format, codes: Array) -> Int64:
    """Codes of an integer or bit format to integers."""
    values = codes.astype(np.int64) & fmt.code_mask
    negative = values & fmt.sign_mask != 0
    if fmt.magnitude_bits is not None:
        values &= fmt.max_finite
        return np.where(negative, -values, values)
    return np.where(negative, values - (1 << fmt.bits), values)


def bit_length(values: Int64) -> Int64:
    """`int.bit_length` of every element, for 0 <= element < 2**63."""
    high = values >> 32
    half = np.where(high > 0, high, values).astype(np.float64)
    return np.frexp(half)[1] + np.where(high > 0, 32, 0)


def shift_right(values: Int64, amount: Int64) -> Int64:
    """``values >> amount`` where `amount` may be negative (left) or exceed 63 (all bits leave)."""
    right = values >> np.clip(amount, 0, 63)
    return right << np.clip(-amount, 0, 63)


def round_to_codes(
    fmt: Format,
    sign: NDArray[np.bool_],
    significand: Int64,
    exponent: Int64,
    rounding: Rounding = "rn",
    *,
    overflow: Overflow = "ieee",
    precision: int | None = None,
    sticky: NDArray[np.bool_] | None = None,
) -> Array:
    """`codec.round_to_code` of every element; 0 <= significand < 2**62.

    `sticky` marks numbers of which a non-zero part below the last bit of `significand` was cut off;
    such a significand must have at least two bits more than `precision`.
    """
    precision = fmt.precision if precision is None else precision
    if sticky is not None:
        significand = significand << 1 | sticky
        exponent = exponent - 1
    top = np.maximum(bit_length(significand) - 1 + exponent, fmt.emin)
    shift = top - (precision - 1) - exponent
    kept = shift_right(significand, shift)
    rest = significand - shift_right(kept, -shift)
    half = np.int64(1) << np.clip(shift - 1, 0, 62)
    in_reach = (shift > 0) & (shift <= 63)
    over, tie = (rest > half) & in_reach, (rest == half) & in_reach
    if rounding == "rn":
        up = over | (tie & (kept & 1 == 1))
    elif rounding == "rna":
        up = over | tie
    else:
        away = {"rz": False, "rm": sign, "rp": ~sign}[rounding]
        up = (rest != 0) & away

    # Exponents that no field can hold are clipped first: their code would not fit int64 either.
    above = top - fmt.emin
    clipped = np.minimum(above, (1 << fmt.exponent_bits) - 2)
    code = (clipped << fmt.mantissa_bits) + (kept + up << fmt.precision - precision)
    if not fmt.has_zero:
        code = np.maximum(code - 1, 0)
    code <<= fmt.ignored_bits
    too_large = (code > fmt.max_finite) | (code < 0) | (above > clipped)
    if too_large.any():
        positive, negative = (overflow_code(fmt, s, rounding, overflow) for s in (0, 1))
        code = np.where(too_large, np.where(sign, negative, positive), code)
    code = np.where(significand == 0, 0, code)
    codes = code.astype(np.uint64) | np.where(sign, np.uint64(fmt.sign_mask), np.uint64(0))
    return codes.astype(code_type(fmt.bits))


def convert(
    source: Format,
    target: Format,
    codes: Array,
    rounding: Rounding = "rn",
    *,
    overflow: Overflow = "ieee",
) -> Array:
    """Codes of one floating-point format to codes of another, rounded once.

    A NaN becomes the target's canonical NaN with sign 0, or its largest number where it has no NaN
    (PTX ISA 9.7.9.21). An infinity becomes infinity; where the target has none, or `overflow` is
    "saturate", it becomes what `codec.overflow_code` says of a number too large.
    """
    is_nearest = rounding == "rn" and overflow == "ieee"
    if is_nearest and source.name == "f32" and target.name in ("f16", "bf16"):
        return _of_float32(target, codes)
    number = decode(source, codes)
    scale = number.exponent - source.mantissa_bits
    out = round_to_codes(
        target, number.sign, number.significand, scale, rounding, overflow=overflow
    ).astype(np.uint64)
    infinite = number.number_class == NumberClass.INFINITE
    if infinite.any():
        limit = target.infinity if overflow != "saturate" else target.max_finite
        if limit is None:
            limit = overflow_code(target, 0, "rn", overflow)
        sign_bit = np.where(number.sign, np.uint64(target.sign_mask), np.uint64(0))
        out = np.where(infinite, np.uint64(limit) | sign_bit, out)
    nan = target.max_finite if target.nan is None else target.nan
    out = np.where(number.number_class == NumberClass.NAN, np.uint64(nan), out)
    return out.astype(code_type(target.bits))


def _of_float32(target: Format, codes: Array) -> Array:
    """`convert` of f32 to f16 or bf16, to nearest even, as the machine does it."""
    words = codes.astype(np.uint32)
    numbers = words.view(np.float32)
    if target.name == "f16":
        with np.errstate(all="ignore"):
            out = numbers.astype(np.float16).view(np.uint16)
    else:
        odd = words >> np.uint32(16) & np.uint32(1)
        out = (words + odd + np.uint32(0x7FFF) >> np.uint32(16)).astype(np.uint16)
    return np.where(np.isnan(numbers), np.uint16(target.nan or 0), out)


def encode(
    fmt: Format, values: object, rounding: Rounding = "rn", *, overflow: Overflow = "ieee"
) -> Array:
    """Real values to codes, rounded once from float64.

    Integer formats take integers in range. Raises ValueError for values out of range, for
    negative values of an unsigned format and for zero in a format that has none.
    """
    values = np.asarray(values)
    if not fmt.is_float:
        values = values * (1 << fmt.fraction_bits) if fmt.fraction_bits else values
        whole = values.astype(np.int64)
        low, high = fmt.lowest, fmt.max_finite
        if np.any(whole != values) or np.any((whole < low) | (whole > high)):
            of = f" of 1/{1 << fmt.fraction_bits}" if fmt.fraction_bits else ""
            raise ValueError(f"{fmt.name} holds integers{of} from {low} to {high}")
        if fmt.magnitude_bits is not None:
            whole = np.where(whole < 0, fmt.sign_mask - whole, whole)
        return (whole & fmt.code_mask).astype(code_type(fmt.bits))
    floats = np.array(values, np.float64, order="C")
    if not fmt.signed and np.any(np.signbit(floats) & ~np.isnan(floats)):
        raise ValueError(f"{fmt.name} has no sign")
    if not fmt.has_zero and np.any(floats == 0):
        raise ValueError(f"{fmt.name} has no zero")
    return convert(FORMATS["f64"], fmt, floats.view(np.uint64), rounding, overflow=overflow)


def decode_values(fmt: Format, codes: Array) -> Array:
    """Codes to float64 values (floats and fixed point, exact) or int64 values (integers, bits)."""
    if not fmt.is_float:
        integers = decode_integers(fmt, codes)
        return integers / (1 << fmt.fraction_bits) if fmt.fraction_bits else integers
    number = decode(fmt, codes)
    scale = (number.exponent - fmt.mantissa_bits).astype(np.int32)
    values = np.ldexp(number.significand.astype(np.float64), scale)
    values = np.where(number.number_class == NumberClass.INFINITE, np.inf, values)
    values = np.where(number.number_class == NumberClass.NAN, np.nan, values)
    return np.where(number.sign, -values, values)


def array_type(fmt: Format) -> np.dtype[Any] | None:
    """The NumPy or ml_dtypes type of `fmt`; float32 for tf32, None for ue4m3."""
    if fmt.name == "tf32":
        return np.dtype(np.float32)
    if fmt.array_type is None:
        return None
    module, _, name = fmt.array_type.rpartition(".")
    # ml_dtypes takes a while to import and most work never meets its types.
    return np.dtype(getattr(importlib.import_module(module) if module else np, name))


def codes_from_array(fmt: Format, values: Array) -> Array:
    """The codes of an array whose type is that of the format, bit for bit.

    Raises TypeError, naming the type wanted, for an array of another type.
    """
    wanted = array_type(fmt)
    if wanted is None:
        raise TypeError(f"{fmt.name} elements have no type of NumPy or ml_dtypes")
    if values.dtype != wanted:
        raise TypeError(f"{fmt.name} elements come as {wanted}; got {values.dtype}")
    raw = np.array(values, order="C").view(f"uint{wanted.itemsize * 8}")
    return (raw & fmt.code_mask).astype(code_type(fmt.bits), copy=False)


def array_from_codes(fmt: Format, codes: Array) -> Array:
    """Codes to an array of the format's type, bit for bit; raises TypeError where it has none."""
    wanted = array_type(fmt)
    if wanted is None:
        raise TypeError(f"NumPy and ml_dtypes have no type for {fmt.name}; use codes")
    raw = codes.astype(f"uint{wanted.itemsize * 8}")
    if fmt.kind == "integer" and fmt.bits < wanted.itemsize * 8:
        # ml_dtypes keeps int4 sign-extended in its byte.
        raw = decode_integers(fmt, codes).astype(raw.dtype)
    return np.array(raw, order="C").view(wanted)
