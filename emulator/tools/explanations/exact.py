"""Codes as exact numbers, and exact numbers as short text."""

from __future__ import annotations

from fractions import Fraction

from dtypes import Format, NumberClass
from dtypes.codec import decode, decode_integer

#: of a number in a column, and of one on a line of its own: characters of an exact decimal, bits of
#: the factor of a power of two, digits where it is rounded
_SHORT, _LONG = (12, 6, 8), (28, 14, 17)


def exact_value(fmt: Format, code: int) -> Fraction | None:
    """The number that a code stands for; None for infinities and NaNs."""
    if not fmt.is_float:
        return Fraction(decode_integer(fmt, code))
    number = decode(fmt, code)
    if number.number_class > NumberClass.FINITE:
        return None
    magnitude = number.significand * power_of_two(number.exponent - fmt.mantissa_bits)
    return -magnitude if number.sign else magnitude


def power_of_two(exponent: int) -> Fraction:
    return Fraction(1 << exponent) if exponent >= 0 else Fraction(1, 1 << -exponent)


def value_text(fmt: Format, code: int, long: bool = False, most: int = 17) -> str:
    """The value of a code: exact, or after a ~ rounded; ``-0``, ``inf`` and ``nan`` by name."""
    value = exact_value(fmt, code)
    if value is None:
        number = decode(fmt, code)
        return "nan" if number.number_class == NumberClass.NAN else "-inf" if number.sign else "inf"
    if not value and fmt.is_float and decode(fmt, code).sign:
        return "-0"
    return number_text(value, long, most)


def code_text(fmt: Format, code: int) -> str:
    """``0x3c00``: all digits that the format has."""
    return f"{code:#0{2 + -(-fmt.bits // 4)}x}"


def both_text(fmt: Format, code: int, long: bool = False) -> str:
    """``0x3c00 = 1``."""
    return f"{code_text(fmt, code)} = {value_text(fmt, code, long)}"


def number_text(value: Fraction, long: bool = False, most: int = 17) -> str:
    """A binary fraction in few characters: decimal digits, ``3*2^-26``, or rounded after a ``~``.

    `most` digits where it is rounded, or fewer.

    >>> [number_text(Fraction(x)) for x in (-1.5, 2.0**-30, 3 * 2.0**-26)]
    ['-1.5', '2^-30', '3*2^-26']
    >>> number_text(Fraction(1, 3 * 2**30))
    '~3.1044086e-10'
    """
    room, factor_bits, digits = _LONG if long else _SHORT
    decimal = _decimal(value, 2 * room)
    if decimal and len(decimal) <= room:
        return decimal
    return _scaled(value, factor_bits) or f"~{_rounded(value, min(digits, most))}"


def plural(count: Fraction, unit: str, most: int = 4) -> str:
    """``1 ulp``, ``0.75 ulp``, ``2 ulps``.

    >>> [plural(Fraction(x), "ulp") for x in (-0.5, 1, 1.5)]
    ['-0.5 ulp', '1 ulp', '1.5 ulps']
    """
    return f"{number_text(count, most=most)} {unit}{'s' if abs(count) > 1 or not count else ''}"


def _decimal(value: Fraction, room: int) -> str:
    """All decimal digits of a binary fraction; "" where they are far too many, or endless."""
    places = value.denominator.bit_length() - 1
    if value.denominator != 1 << places or places > room or abs(value) >= 10**room:
        return ""
    digits = str(abs(value.numerator) * 5**places).rjust(places + 1, "0")
    whole, part = digits[: len(digits) - places], digits[len(digits) - places :]
    return f"{'-' if value < 0 else ''}{whole}{'.' if part else ''}{part}"


def _scaled(value: Fraction, factor_bits: int) -> str:
    """``3*2^-26``; "" where the odd factor has more bits, or there is none."""
    places = value.denominator.bit_length() - 1
    if value.denominator != 1 << places or not value:
        return ""
    factor, exponent = value.numerator, -places
    while factor % 2 == 0:
        factor, exponent = factor // 2, exponent + 1
    if factor.bit_length() > factor_bits:
        return ""
    sign, odd = "-" if factor < 0 else "", abs(factor)
    return f"{sign}2^{exponent}" if odd == 1 else f"{sign}{odd}*2^{exponent}"


def _rounded(value: Fraction, digits: int) -> str:
    """Like ``%g``, for magnitudes that no float holds, too."""
    try:
        near = float(value)
    except OverflowError:
        near = 0.0
    if near and abs(near) > 1e-300:
        return f"{near:.{digits}g}"
    return _scientific(value, digits)


def _scientific(value: Fraction, digits: int) -> str:
    from decimal import Context, Decimal

    context = Context(prec=digits, Emax=999999, Emin=-999999)
    quotient = context.divide(Decimal(value.numerator), Decimal(value.denominator))
    return f"{quotient.normalize(context)}".replace("E", "e").replace("e+", "e")


def top_exponent(value: Fraction) -> int:
    """The exponent of the highest bit: 2**e <= |value| < 2**(e + 1); not of zero.

    >>> [top_exponent(Fraction(x)) for x in (1, 0.75, -5)]
    [0, -1, 2]
    """
    magnitude = abs(value)
    guess = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    return guess if magnitude >= power_of_two(guess) else guess - 1


def ulp_exponent(fmt: Format, value: Fraction) -> int:
    """The exponent of one unit in the last place of `fmt` at a magnitude."""
    top = max(top_exponent(value), fmt.emin) if value else fmt.emin
    return top - fmt.mantissa_bits


def ulps_apart(fmt: Format, exact: Fraction, code: int) -> Fraction | None:
    """How far a result lies above (below: negative) the exact value, in units in the last place.

    The unit is that of the larger of the two magnitudes; 1 for integers. None for infinity and NaN.
    """
    value = exact_value(fmt, code)
    if value is None:
        return None
    if not fmt.is_float:
        return value - exact
    return (value - exact) / power_of_two(ulp_exponent(fmt, max(abs(value), abs(exact))))


def binary_text(value: Fraction, point: int, last: int, room: int = 10) -> str:
    """``+10.01|101``: bits in units of ``2**point`` down to ``2**last``, then those below.

    After the bar stand at most `room` bits, then an ellipsis.

    >>> binary_text(Fraction(37, 16), point=0, last=-2)
    '+10.01|01'
    """
    units = abs(value) / power_of_two(last)
    places = max(point - last, 0)
    digits = f"{int(units) << max(last - point, 0):0{places + 1}b}"
    whole, part = digits[: len(digits) - places], digits[len(digits) - places :]
    text = f"{'-' if value < 0 else '+'}{whole}{'.' if part else ''}{part}"
    rest, tail = units % 1, ""
    while rest and len(tail) < room:
        bit, rest = divmod(rest * 2, 1)
        tail += str(bit)
    return f"{text}|{tail}{'…' if rest else ''}" if tail else text
