"""Codes <-> exact numbers in Python integers, and the one rounding function.

This module is the definition; ``dtypes.arrays`` states the same over NumPy arrays and equals it by
test on every code of every format up to 16 bits.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Literal, NamedTuple

from dtypes.formats import Format

#: rn nearest, ties to even · rna nearest, ties away from zero · rz toward zero · rm toward −∞ ·
#: rp toward +∞
Rounding = Literal["rn", "rna", "rz", "rm", "rp"]
#: What becomes of a magnitude above the largest finite one. "ieee": infinity or the largest finite
#: number, as the rounding mode says; "infinity": always infinity; "saturate": the largest finite.
Overflow = Literal["ieee", "infinity", "saturate"]


class NumberClass(IntEnum):
    ZERO = 0
    FINITE = 1
    INFINITE = 2
    NAN = 3


class Number(NamedTuple):
    """A decoded element: ``(-1)**sign * significand * 2**(exponent - mantissa_bits)``.

    A subnormal keeps its small significand and the format's ``emin``: it is not normalised, because
    the hardware's alignment sees that exponent. Zero, infinity and NaN have significand 0.
    """

    number_class: NumberClass
    sign: int
    exponent: int
    significand: int


def decode(fmt: Format, code: int) -> Number:
    """The exact number that `code` of a floating-point format stands for."""
    code = (code & fmt.code_mask) >> fmt.ignored_bits
    sign = code >> (fmt.exponent_bits + fmt.mantissa_bits) if fmt.signed else 0
    field = code >> fmt.mantissa_bits & ((1 << fmt.exponent_bits) - 1)
    mantissa = code & ((1 << fmt.mantissa_bits) - 1)
    all_ones = field == (1 << fmt.exponent_bits) - 1

    if fmt.specials == "ieee" and all_ones:
        return Number(NumberClass.NAN if mantissa else NumberClass.INFINITE, sign, 0, 0)
    if fmt.specials == "nan" and all_ones and mantissa == (1 << fmt.mantissa_bits) - 1:
        return Number(NumberClass.NAN, sign, 0, 0)
    if field == 0 and fmt.has_zero:
        kind = NumberClass.FINITE if mantissa else NumberClass.ZERO
        return Number(kind, sign, fmt.emin, mantissa)
    return Number(NumberClass.FINITE, sign, field - fmt.bias, mantissa | 1 << fmt.mantissa_bits)


def decode_integer(fmt: Format, code: int) -> int:
    """The integer that `code` of an integer or bit format stands for."""
    code &= fmt.code_mask
    if fmt.magnitude_bits is not None:
        magnitude = code & fmt.max_finite
        return -magnitude if code & fmt.sign_mask else magnitude
    return code - (1 << fmt.bits) if code & fmt.sign_mask else code


def round_to_code(
    fmt: Format,
    sign: int,
    significand: int,
    exponent: int,
    rounding: Rounding = "rn",
    *,
    overflow: Overflow = "ieee",
    precision: int | None = None,
) -> int:
    """Rounds ``(-1)**sign * significand * 2**exponent`` once and returns its code.

    `precision` (significand bits) may be smaller than the format's: the fp8 tensor core writes f32
    words with 14. Below ``emin`` the spacing is that of `emin`. A zero result keeps `sign`.
    An overflow in a format without infinity gives NaN, or the largest number where it has no NaN.
    """
    precision = fmt.precision if precision is None else precision
    sign_bit = fmt.sign_mask if sign else 0
    if significand == 0:
        return sign_bit
    top = max(significand.bit_length() - 1 + exponent, fmt.emin)
    shift = top - (precision - 1) - exponent
    kept = significand >> shift if shift > 0 else significand << -shift
    if shift > 0:
        rest, half = significand & ((1 << shift) - 1), 1 << (shift - 1)
        kept += {
            "rn": rest > half or (rest == half and kept & 1 == 1),
            "rna": rest >= half,
            "rz": False,
            "rm": bool(sign and rest),
            "rp": bool(not sign and rest),
        }[rounding]

    # The implicit one of a normal number carries into the exponent field, as does a round-up.
    code = (top - fmt.emin << fmt.mantissa_bits) + (kept << fmt.precision - precision)
    if not fmt.has_zero:
        code = max(code - 1, 0)
    code <<= fmt.ignored_bits
    if code > fmt.max_finite:
        code = overflow_code(fmt, sign, rounding, overflow)
    return sign_bit | code


def overflow_code(fmt: Format, sign: int, rounding: Rounding, overflow: Overflow) -> int:
    """Magnitude code of a finite number too large for `fmt`."""
    toward_zero = {"rz": True, "rm": not sign, "rp": bool(sign)}.get(rounding, False)
    if overflow == "saturate" or (overflow == "ieee" and toward_zero):
        return fmt.max_finite
    if fmt.infinity is not None:
        return fmt.infinity
    return fmt.max_finite if fmt.nan is None else fmt.nan
