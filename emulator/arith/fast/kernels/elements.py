"""Codes of elements as numbers in machine code, and sums as codes: by the facts of the formats."""

from __future__ import annotations

from typing import NamedTuple

from dtypes import FORMATS, Format
from emulator.arith.fast.kernels.emitter import F32, F64, I32, I64, Emitter, Value

#: the exponent of a zero: with that of any other factor it is below all others
NOWHERE = -2048
_INFINITY, _NAN = float("inf"), float("nan")


class Parts(NamedTuple):
    """Numbers ``value * 2**(exponent - fraction_bits)``: values are signed significands."""

    value: Value
    exponent: Value
    fraction_bits: int
    #: a mask of infinities and NaNs, whose value is 0; None: the format has none
    special: Value | None


class _Fields(NamedTuple):
    negative: Value | None
    exponent: Value
    mantissa: Value
    special: Value | None
    zero: Value
    significand: Value


def _fields(e: Emitter, fmt: Format, codes: Value) -> _Fields:
    """The fields of codes in int32; bits above a code are ignored."""
    b, m = e.b, fmt.mantissa_bits
    if fmt.ignored_bits:
        codes = b.lshr(codes, e.like(codes, fmt.ignored_bits))
    bits = fmt.bits - fmt.ignored_bits
    negative = None
    if fmt.signed:
        sign = b.and_(codes, e.like(codes, 1 << (bits - 1)))
        negative = b.icmp_unsigned("!=", sign, e.like(codes, 0))
    ones = (1 << fmt.exponent_bits) - 1
    field = b.and_(b.lshr(codes, e.like(codes, m)), e.like(codes, ones))
    mantissa = b.and_(codes, e.like(codes, (1 << m) - 1))
    special = None
    if fmt.specials == "ieee":
        special = b.icmp_unsigned("==", field, e.like(codes, ones))
    elif fmt.specials == "nan":
        magnitude = b.and_(codes, e.like(codes, (1 << (fmt.exponent_bits + m)) - 1))
        special = b.icmp_unsigned(
            "==", magnitude, e.like(codes, (1 << (fmt.exponent_bits + m)) - 1)
        )
    significand, least = b.or_(mantissa, e.like(codes, 1 << m)), field
    if fmt.has_zero:
        subnormal = b.icmp_unsigned("==", field, e.like(codes, 0))
        significand = e.select(subnormal, mantissa, significand)
        least = e.larger(field, e.like(codes, 1))
    if special is not None:
        significand = e.select(special, e.like(codes, 0), significand)
    zero = b.icmp_unsigned("==", significand, e.like(codes, 0))
    return _Fields(
        negative, b.sub(least, e.like(codes, fmt.bias)), mantissa, special, zero, significand
    )


def decoded(e: Emitter, fmt: Format, codes: Value, widened: Format | None = None) -> Parts:
    """Codes in int32 as numbers; `widened`: with the exponents that they have in that format."""
    b, x = e.b, _fields(e, fmt, codes)
    signed = x.significand
    if x.negative is not None:
        signed = e.select(x.negative, b.sub(e.like(codes, 0), x.significand), x.significand)
    value, exponent, fraction = e.converted(F32, signed, "sitofp"), x.exponent, fmt.mantissa_bits
    if widened is not None and widened is not fmt:
        # A subnormal becomes normal, as far as the wider format goes down.
        word = e.converted(I32, value, "bitcast")
        top = b.and_(b.lshr(word, e.like(word, 23)), e.like(word, 255))
        top = b.add(b.sub(top, e.like(top, 127)), b.sub(exponent, e.like(top, fraction)))
        top = e.larger(top, e.like(top, widened.emin))
        shift = b.sub(b.sub(exponent, e.like(top, fraction)), top)
        value, exponent, fraction = b.fmul(value, power_of_two(e, shift)), top, 0
    exponent = e.select(x.zero, e.like(exponent, NOWHERE), exponent)
    return Parts(value, exponent, fraction, x.special)


def power_of_two(e: Emitter, exponent: Value) -> Value:
    """2**exponent of normal float32 numbers; 0 of what is smaller."""
    field = e.larger(e.b.add(exponent, e.like(exponent, 127)), e.like(exponent, 0))
    return e.converted(F32, e.b.shl(field, e.like(field, 23)), "bitcast")


def wide_power_of_two(e: Emitter, exponent: Value) -> Value:
    """2**exponent in float64, of int32 exponents; 0 of what is too small for a normal number."""
    field = e.larger(e.b.add(exponent, e.like(exponent, 1023)), e.like(exponent, 0))
    wide = e.converted(I64, field, "zext")
    return e.converted(F64, e.b.shl(wide, e.like(wide, 52)), "bitcast")


def classes(e: Emitter, fmt: Format, codes: Value) -> Value:
    """Infinities and NaNs of codes as they are in float32, other numbers as −1, 0 or 1.

    The products and sums of these tell what becomes of infinities and NaNs among finite terms.
    """
    x = _fields(e, fmt, codes)
    one = e.like(e.converted(F32, codes, "bitcast"), 1.0)
    zero, infinity = (e.like(one, value) for value in (0.0, _INFINITY))
    out = e.select(x.zero, zero, one)
    if x.special is not None:
        nan = e.like(one, _NAN)
        if fmt.specials == "ieee":
            whole = e.b.icmp_unsigned("==", x.mantissa, e.like(codes, 0))
            nan = e.select(whole, infinity, nan)
        out = e.select(x.special, nan, out)
    if x.negative is not None:
        out = e.select(x.negative, e.b.fsub(e.like(one, -0.0), out), out)
    return out


def number(e: Emitter, fmt: Format, codes: Value) -> Value:
    """Codes of f16 or f32 as float32 numbers; NaNs of any code."""
    if fmt is FORMATS["f32"]:
        return e.converted(F32, codes, "bitcast")
    assert fmt.emin - fmt.mantissa_bits > -126, "or a subnormal had no place among normal numbers"
    parts, b = decoded(e, fmt, codes), e.b
    shift = b.sub(parts.exponent, e.like(parts.exponent, parts.fraction_bits))
    size = b.fmul(parts.value, power_of_two(e, shift))
    # The sign of a zero is lost in the significand.
    negative = _fields(e, fmt, codes).negative
    assert negative is not None
    size = e.intrinsic("llvm.fabs", size)
    size = e.select(negative, b.fsub(e.like(size, -0.0), size), size)
    return size if parts.special is None else e.select(parts.special, classes(e, fmt, codes), size)


# --- rounding -------------------------------------------------------------------------------------


def rounded(
    e: Emitter, fmt: Format, value: Value, rounding: str, precision: int | None = None,
    *, signed_zero: bool = False,
) -> Value:  # fmt: skip
    """Codes in int32 of float64 numbers: f32 toward zero, or f16 to nearest even.

    Too large becomes infinity; a zero is +0, but for `signed_zero`.
    """
    b = e.b
    word = e.converted(I64, value, "bitcast")
    size = b.and_(word, e.like(word, (1 << 63) - 1))
    magnitude = e.intrinsic("llvm.fabs", value)
    tiny = b.fcmp_ordered("<", magnitude, e.like(magnitude, 2.0**fmt.emin))
    # Small numbers are multiples of the least one.
    units = b.fmul(magnitude, e.like(magnitude, 2.0 ** (fmt.mantissa_bits - fmt.emin)))
    cut = 52 - fmt.mantissa_bits
    if rounding == "rn":
        odd = b.and_(b.lshr(size, e.like(size, cut)), e.like(size, 1))
        size = b.add(b.add(size, e.like(size, (1 << (cut - 1)) - 1)), odd)
        small = e.converted(I64, b.fadd(units, e.like(units, 2.0**52)), "bitcast")
    else:
        whole = e.select(tiny, units, e.like(units, 0.0))
        small = e.converted(I64, e.converted(I32, whole, "fptosi"), "sext")
    normal = b.sub(
        b.lshr(size, e.like(size, cut)), e.like(size, (1023 - fmt.bias) << fmt.mantissa_bits)
    )
    assert fmt.infinity is not None
    normal = e.smaller(normal, e.like(normal, fmt.infinity))
    code = e.converted(I32, e.select(tiny, small, normal), "trunc")
    kept = fmt.code_mask >> (fmt.precision - (precision or fmt.precision))
    kept <<= fmt.precision - (precision or fmt.precision)
    code = b.and_(code, e.like(code, kept & fmt.code_mask))
    negative = b.icmp_signed("<", word, e.like(word, 0))
    if not signed_zero:
        negative = b.and_(negative, b.icmp_unsigned("!=", code, e.like(code, 0)))
    return e.select(negative, b.or_(code, e.like(code, fmt.sign_mask)), code)


def with_specials(e: Emitter, fmt: Format, codes: Value, special: Value) -> Value:
    """`codes`, but where `special` is an infinity or a NaN, the code of that."""
    b = e.b
    assert fmt.infinity is not None and fmt.nan is not None
    infinity, nan = e.like(codes, fmt.infinity), e.like(codes, fmt.nan)
    negative = b.fcmp_ordered("<", special, e.like(special, 0.0))
    signed = e.select(negative, b.or_(infinity, e.like(codes, fmt.sign_mask)), infinity)
    is_infinite = b.fcmp_ordered(
        "==", e.intrinsic("llvm.fabs", special), e.like(special, _INFINITY)
    )
    codes = e.select(is_infinite, signed, codes)
    return e.select(b.fcmp_unordered("uno", special, special), nan, codes)
