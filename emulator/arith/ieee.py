"""IEEE 754 operations on codes, in plain Python integers; `wide` has the same over arrays."""

from __future__ import annotations

from collections.abc import Sequence

from dtypes import Format, NumberClass, Rounding
from dtypes.codec import decode, round_to_code
from emulator.arith.trace import Tagged

_NAN, _INFINITE, _ZERO = NumberClass.NAN, NumberClass.INFINITE, NumberClass.ZERO


def fma(
    fmt: Format, a: int, b: int, c: int, rounding: Rounding = "rn", nan_order: Sequence[str] = ()
) -> int:
    """The fused multiply-add ``a·b + c`` of codes of one format, rounded once.

    A NaN operand gives the canonical NaN, or with `nan_order` the first NaN in that order with its
    quiet bit set (measured for f64). Invalid operations give the format's canonical NaN.
    """
    p, q, r = decode(fmt, a), decode(fmt, b), decode(fmt, c)
    assert fmt.nan is not None and fmt.infinity is not None
    by_name = {"a": (a, p), "b": (b, q), "x": (c, r)}
    for name in nan_order:
        code, number = by_name[name]
        if number.number_class == _NAN:
            return code | 1 << (fmt.mantissa_bits - 1)
    sign, factors = p.sign ^ q.sign, {p.number_class, q.number_class}
    if _NAN in {*factors, r.number_class} or {_INFINITE, _ZERO} <= factors:
        return fmt.nan
    if _INFINITE in factors:
        if r.number_class == _INFINITE and r.sign != sign:
            return fmt.nan
        return fmt.infinity | (fmt.sign_mask if sign else 0)
    if r.number_class == _INFINITE:
        return c

    unit_pq, unit_r = (
        p.exponent + q.exponent - 2 * fmt.mantissa_bits,
        r.exponent - fmt.mantissa_bits,
    )
    unit = min(unit_pq, unit_r)
    product = p.significand * q.significand << unit_pq - unit
    addend = r.significand << unit_r - unit
    total = (-product if sign else product) + (-addend if r.sign else addend)
    if total == 0:
        # Zeros of one sign keep it; an exact cancellation gives +0, and −0 only toward −∞.
        negative = bool(sign) if sign == r.sign else rounding == "rm"
        return fmt.sign_mask if negative else 0
    return round_to_code(fmt, int(total < 0), abs(total), unit, rounding)


def multiply(fmt: Format, a: int, b: int) -> int:
    """a·b rounded to nearest: adding −0 changes nothing, not even the sign of a zero."""
    return fma(fmt, a, b, fmt.sign_mask)


def add(fmt: Format, a: int, b: int) -> int:
    """a + b rounded to nearest."""
    one = fmt.bias << fmt.mantissa_bits
    return fma(fmt, one, a, b)


def convert(source: Format, target: Format, code: int) -> int:
    """Rounds to nearest even in another format that has infinity and NaN."""
    number = decode(source, code)
    sign_bit = target.sign_mask if number.sign else 0
    assert target.nan is not None and target.infinity is not None
    if number.number_class == _NAN:
        return target.nan
    if number.number_class == _INFINITE:
        return target.infinity | sign_bit
    unit = number.exponent - source.mantissa_bits
    return round_to_code(target, number.sign, number.significand, unit)


def in_format(x: Tagged, fmt: Format) -> Tagged:
    """`x` rounded to nearest in `fmt`; as it is where it has that format, NaN payloads included."""
    return x if x.fmt is fmt else Tagged(fmt, convert(x.fmt, fmt, x.code))
