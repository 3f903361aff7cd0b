"""Codes as exact numbers, and exact numbers as short text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import groupby
from typing import NamedTuple

from dtypes import Format, NumberClass
from dtypes.codec import decode, decode_integer
from emulator.errors import runs

#: of a number in a column, and of one on a line of its own: characters of an exact decimal, bits of
#: the factor of a power of two, digits where it is rounded
_SHORT, _LONG = (12, 6, 8), (28, 14, 17)
#: zeros in a row that become one line
_FEWEST = 3


class ShownCode(NamedTuple):
    """The code of one element, in every form in which it is shown."""

    fmt: Format
    code: int

    @property
    def value(self) -> Fraction | None:
        """The number that it stands for; None for infinities and NaNs."""
        if not self.fmt.is_float:
            return Fraction(decode_integer(self.fmt, self.code))
        number = decode(self.fmt, self.code)
        if number.number_class > NumberClass.FINITE:
            return None
        units = -number.significand if number.sign else number.significand
        exponent = number.exponent - self.fmt.mantissa_bits
        return Fraction(units << exponent) if exponent >= 0 else Fraction(units, 1 << -exponent)

    @property
    def number_class(self) -> NumberClass:
        return decode(self.fmt, self.code).number_class

    @property
    def hex(self) -> str:
        """``0x3c00``: all digits that the format has."""
        return f"{self.code:#0{2 + -(-self.fmt.bits // 4)}x}"

    def text(self, long: bool = False, most: int = 17) -> str:
        """The value: exact, or after a ~ rounded; ``-0``, ``inf`` and ``nan`` by name."""
        value = self.value
        if self.fmt.is_float and not value:
            number = decode(self.fmt, self.code)
            if number.number_class == NumberClass.NAN:
                return "nan"
            return ("-" if number.sign else "") + ("inf" if value is None else "0")
        assert value is not None
        return number_text(value, long, most)

    def both(self, long: bool = False) -> str:
        """``0x3c00 = 1``."""
        return f"{self.hex} = {self.text(long)}"

    def typed(self) -> str:
        """``0x3f800000 = 1 (f32)``."""
        return f"{self.both(True)} ({self.fmt.name})"

    @property
    def data(self) -> dict[str, object]:
        """``{"type": "f16", "code": "0x3c00", "value": 1.0}``; inf and nan are strings."""
        value = self.value
        number: object = self.text()
        if value is not None:
            number = float(value) if self.fmt.is_float else int(value)
        return {"type": self.fmt.name, "code": self.hex, "value": number}


def power_of_two(exponent: int) -> Fraction:
    return Fraction(1 << exponent) if exponent >= 0 else Fraction(1, 1 << -exponent)


def number_data(value: Fraction | None) -> dict[str, object] | None:
    """``{"fraction": "3/4", "value": 0.75}``; value is None where no float is near."""
    if value is None:
        return None
    try:
        near: float | None = float(value)
    except OverflowError:
        near = None
    return {"fraction": str(value), "value": near, "text": number_text(value, True)}


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
    twos = (value.numerator & -value.numerator).bit_length() - 1
    odd, exponent = abs(value.numerator) >> twos, twos - places
    if odd.bit_length() > factor_bits:
        return ""
    return f"{'-' if value < 0 else ''}{'' if odd == 1 else f'{odd}*'}2^{exponent}"


def _rounded(value: Fraction, digits: int) -> str:
    """Like ``%g``, for magnitudes that no float holds, too."""
    try:
        near = float(value)
    except OverflowError:
        near = 0.0
    if near and abs(near) > 1e-300:
        return f"{near:.{digits}g}"
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


def ulp(fmt: Format, *values: Fraction) -> Fraction:
    """One unit in the last place of `fmt` at the largest of some magnitudes; 1 of integers."""
    if not fmt.is_float:
        return Fraction(1)
    value = max(map(abs, values))
    top = max(top_exponent(value), fmt.emin) if value else fmt.emin
    return power_of_two(top - fmt.mantissa_bits)


def ulps_apart(exact: Fraction, code: ShownCode) -> Fraction | None:
    """Distance of a result above (below: negative) the exact value, in units in the last place of
    the larger of the two magnitudes. None for infinity and NaN."""
    value = code.value
    return None if value is None else (value - exact) / ulp(code.fmt, value, exact)


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


# --- places along k -------------------------------------------------------------------------------


def without_zeros(codes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """(first, how many): each place by itself, but three or more zeros in a row together.

    >>> list(without_zeros([7, 0, 0, 0, 5, 0]))
    [(0, 1), (1, 3), (4, 1), (5, 1)]
    """
    start = 0
    for live, group in groupby(codes, bool):
        count = len(list(group))
        if not live and count >= _FEWEST:
            yield start, count
        else:
            yield from ((i, 1) for i in range(start, start + count))
        start += count


def k_text(ks: Sequence[int | str], room: int = 200) -> str:
    """``5``, ``2-15``; the first and the last where they are not numbers, or there is no room.

    >>> k_text(["halves 3, 2", 2, 4])
    'halves 3, 2 … 4'
    """
    numbers = [k for k in ks if isinstance(k, int)]
    if len(numbers) == len(ks) and len(text := runs(numbers)) <= room:
        return text
    return str(ks[0]) if len(ks) == 1 else f"{ks[0]} … {ks[-1]}"
