"""Shared parts of the references of floating-point rules: reading, rounding, NaNs, modifiers.

Codes and results are Python integers; values are exact fractions. Source of the special cases:
measured on an H200.
"""

from __future__ import annotations

from fractions import Fraction

from dtypes import FORMATS, Format, Number, NumberClass, Rounding
from dtypes.codec import decode, round_to_code

_F64 = FORMATS["f64"]


def read(fmt: Format, code: int, ftz: bool = False) -> Number:
    """The number of a code; with .ftz a subnormal one is a zero of the same sign."""
    number = decode(fmt, code)
    if (
        ftz
        and number.number_class == NumberClass.FINITE
        and not number.significand >> (fmt.mantissa_bits)
    ):
        return Number(NumberClass.ZERO, number.sign, fmt.emin, 0)
    return number


def is_nan(fmt: Format, code: int) -> bool:
    return decode(fmt, code).number_class == NumberClass.NAN


def value(fmt: Format, number: Number) -> Fraction:
    """The exact value of a finite number."""
    significand = -number.significand if number.sign else number.significand
    shift = number.exponent - fmt.mantissa_bits
    return Fraction(significand << max(shift, 0), 1 << max(-shift, 0))


def nan_of(fmt: Format, *codes: int) -> int:
    """The NaN that an operation returns, for its operands in the order of their precedence.

    f64 passes the first NaN among them on, its sign kept and made quiet; the other formats return
    their one canonical NaN. Where no operand is NaN it is the one that f64 makes, FFF8….
    """
    assert fmt.nan is not None
    if fmt is _F64:
        for code in codes:
            if is_nan(fmt, code):
                return code | 1 << (fmt.mantissa_bits - 1)
    return fmt.nan


def infinity(fmt: Format, sign: int) -> int:
    assert fmt.infinity is not None
    return fmt.infinity | (fmt.sign_mask if sign else 0)


def zero(fmt: Format, sign: int) -> int:
    return fmt.sign_mask if sign else 0


def rounded(fmt: Format, exact: Fraction, rounding: Rounding, ftz: bool = False) -> int:
    """The code of a number other than 0, rounded once."""
    sign, magnitude = int(exact < 0), abs(exact)
    # Enough bits of the quotient for any rounding, and one that tells whether more would follow.
    over, under = magnitude.numerator, magnitude.denominator
    shift = fmt.precision + 3 - over.bit_length() + under.bit_length()
    quotient, rest = divmod(over << max(shift, 0), under << max(-shift, 0))
    return rounded_bits(fmt, sign, quotient << 1 | (rest != 0), -shift - 1, rounding, ftz)


def rounded_bits(
    fmt: Format, sign: int, significand: int, exponent: int, rounding: Rounding, ftz: bool
) -> int:
    """The code of ``significand * 2**exponent``, rounded once.

    .ftz is decided on the result rounded as if the exponent had no lower limit (measured): what
    rounds up to the smallest normal number is kept.
    """
    if ftz:
        wide = decode(
            _F64,
            round_to_code(_F64, sign, significand, exponent, rounding, precision=fmt.precision),
        )
        if wide.exponent < fmt.emin:
            return zero(fmt, sign)
    return round_to_code(fmt, sign, significand, exponent, rounding)


def saturated(fmt: Format, code: int) -> int:
    """.sat: the result clamped to [0, 1]; NaN, negative numbers and -0 become +0."""
    one = fmt.bias << fmt.mantissa_bits
    return 0 if is_nan(fmt, code) or code & fmt.sign_mask else min(code, one)


def rectified(fmt: Format, code: int) -> int:
    """.relu: negative numbers and -0 become +0; a NaN stays."""
    return 0 if code & fmt.sign_mask and not is_nan(fmt, code) else code
