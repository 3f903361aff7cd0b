"""Fused dot-adds of ordinary numbers in machine code, in float32 and int32 alone.

An element is ordinary if it is finite and its exponent so near 0 that every product, and every
scale that aligns one, is a normal float32 number. Where anything else is met, `sums` has to compute
all of it again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from dtypes import FORMATS, Format
from emulator.arith.arrangement import Arrangement
from emulator.arith.fast.kernels.emitter import F32, I32, Emitter, Value, in_pairs
from emulator.arith.fast.kernels.product import Product
from emulator.arith.steps import FusedDotAdd

#: exponents of ordinary elements, and of accumulators
ELEMENTS, ACCUMULATORS = (-50, 62), (-126, 127)
#: Exponents of ordinary scales, with a margin: the units of zeros, times two scales, would overflow
#: from 19 on (see `dot_add`), powers of two of products from 49 on.
SCALES = (-15, 15)
_BIAS, _MANTISSA = 127, 23
_EXPONENT = 0xFF << _MANTISSA
_SIGN = 1 << 31
#: from here on int32 does not hold a sum, or float32 rounds it to what int32 does not hold
_SAFE = (1 << 31) - 128


class Factor(NamedTuple):
    """Codes as float32 numbers, 2 to the power of their exponents (0 of a zero), and a mask of
    those that are not ordinary, which mean nothing; None: the format has none."""

    number: Value
    power: Value
    odd: Value | None


class Term(NamedTuple):
    """The products of the numbers and of the powers of two of one position of k."""

    number: Callable[[], Value]
    power: Callable[[], Value]


def suits(product: Product, found: Arrangement) -> bool:
    """Whether a recipe computes ordinary numbers so."""
    core = found.core
    if not isinstance(core, FusedDotAdd) or core.group > 1:
        return False
    one_scale = product.scales == 1 and product.arithmetic.scale is FORMATS["ue8m0"]
    if product.scales and (not one_scale or found.widen is not None):
        return False
    return 2 * ELEMENTS[0] + _BIAS > core.fraction_bits


def factor(
    e: Emitter, fmt: Format, codes: Value, widened: Format | None, exponents: tuple[int, int]
) -> Factor:
    """Codes in int32; bits above them are ignored. `widened`: with the exponents that the numbers
    have in that format."""
    if fmt.emin == 1 - _BIAS:
        return _wide_factor(e, fmt, codes, exponents)
    b = e.b
    sign = b.and_(b.shl(codes, e.like(codes, 32 - fmt.bits)), e.like(codes, _SIGN))
    codes = b.and_(codes, e.like(codes, (1 << (fmt.bits - 1)) - 1))
    zero = b.icmp_unsigned("==", codes, e.like(codes, 0))
    size = b.shl(codes, e.like(codes, _MANTISSA - fmt.mantissa_bits))
    odd = None
    if fmt.specials != "none":
        least = fmt.code_mask >> 1 if fmt.infinity is None else fmt.infinity
        odd = b.icmp_unsigned(">=", codes, e.like(codes, least))
    subnormal = b.icmp_unsigned("<", size, e.like(size, 1 << _MANTISSA))
    size = b.add(size, e.like(size, (_BIAS - fmt.bias) << _MANTISSA))
    # With the exponent of the least normal numbers, these have one of them too much.
    small = e.converted(F32, b.add(size, e.like(size, 1 << _MANTISSA)), "bitcast")
    small = b.fsub(small, e.like(small, 2.0**fmt.emin))
    size = e.select(subnormal, e.converted(I32, small, "bitcast"), size)
    power = b.and_(size, e.like(size, _EXPONENT))
    power = e.larger(power, e.like(power, ((widened or fmt).emin + _BIAS) << _MANTISSA))
    power = e.select(zero, e.like(power, 0), power)
    number = b.or_(size, sign)
    return Factor(e.converted(F32, number, "bitcast"), e.converted(F32, power, "bitcast"), odd)


def _wide_factor(e: Emitter, fmt: Format, codes: Value, exponents: tuple[int, int]) -> Factor:
    """`factor` of formats that have the exponents of float32: codes are the upper bits of one."""
    b, (first, last) = e.b, exponents
    word = b.shl(codes, e.like(codes, 32 - fmt.bits)) if fmt.bits < 32 else codes
    if fmt.ignored_bits:
        word = b.and_(word, e.like(word, -1 << fmt.ignored_bits))
    power = b.and_(word, e.like(word, _EXPONENT))
    above = b.sub(power, e.like(power, (first + _BIAS) << _MANTISSA))
    odd = b.icmp_unsigned(">=", above, e.like(above, (last - first + 1) << _MANTISSA))
    size = b.and_(word, e.like(word, _SIGN - 1))
    odd = b.and_(odd, b.icmp_unsigned("!=", size, e.like(size, 0)))
    return Factor(e.converted(F32, word, "bitcast"), e.converted(F32, power, "bitcast"), odd)


def scale(e: Emitter, codes: Value) -> tuple[Value, Value]:
    """Codes of ue8m0 as float32 numbers, and a mask of those that are not ordinary."""
    b, (first, last) = e.b, SCALES
    above = b.sub(codes, e.like(codes, first + _BIAS))
    return _power(e, codes), b.icmp_unsigned(">", above, e.like(codes, last - first))


def dot_add(
    e: Emitter, step: FusedDotAdd, formats: Sequence[Format], fmt: Format,
    terms: Sequence[Term], scaled: Value | None, x: Value,
) -> tuple[Value, Value]:  # fmt: skip
    """One fused dot-add: codes of the accumulator in `fmt` to those of the result, and a mask of
    those that mean nothing. `formats` are those of A and B, `scaled` is a power of two that all
    products have to be multiplied by."""
    b, fraction = e.b, step.fraction_bits
    own = factor(e, fmt, x, None, ACCUMULATORS)
    assert own.odd is not None
    odd = own.odd
    powers = [e.converted(I32, term.power(), "bitcast") for term in terms]
    top = in_pairs(e.larger, powers)
    if scaled is not None:
        top = e.converted(I32, b.fmul(e.converted(F32, top, "bitcast"), scaled), "bitcast")
    top = e.larger(top, e.converted(I32, own.power, "bitcast"))
    top = b.lshr(top, e.like(top, _MANTISSA))
    # Below, the scale or the unit of the sum would not be normal: that is a lonely accumulator.
    least, floor = fraction + 1, _BIAS + (-_BIAS if step.floor is None else step.floor)
    if floor < least:
        below = b.sub(top, e.like(top, 1))
        odd = b.or_(odd, b.icmp_unsigned("<", below, e.like(top, least - 1)))
    top = e.larger(top, e.like(top, max(floor, least)))
    units = _power(e, b.sub(e.like(top, 2 * _BIAS + fraction), top))
    of_products = units
    if scaled is not None:
        # Zeros are below the least product that is none: their units must not overflow, for what
        # the NaN would be as an integer is undefined.
        lowest = _BIAS + 2 * SCALES[0] + sum(fmt.emin for fmt in formats)
        highest = e.like(top, 2 * _BIAS + fraction - lowest)
        field = e.smaller(b.sub(e.like(top, 2 * _BIAS + fraction), top), highest)
        of_products = b.fmul(_power(e, field), scaled)

    def cut(number: Value, units: Value) -> Value:
        return e.converted(I32, b.fmul(number, units), "fptosi")

    largest = math.prod(2 - 2.0**-x.mantissa_bits for x in formats) * 2.0**fraction
    bound = len(terms) * largest + 2.0 ** (fraction + 1)
    addends = [cut(term.number(), of_products) for term in terms]
    together = int(_SAFE // largest)
    parts = [in_pairs(b.add, addends[i : i + together]) for i in range(0, len(addends), together)]
    total, lost = _added(e, [*parts, cut(own.number, units)])
    number, size = _truncated(e, total, bound, step.rounding == "rn")
    if bound >= _SAFE:
        lost = b.or_(lost, b.add(size, e.like(size, 128)))
        odd = b.or_(odd, b.icmp_signed("<", lost, e.like(lost, 0)))
    result = FORMATS[step.result]
    if step.precision is not None:
        number = b.and_(number, e.like(number, -1 << (_MANTISSA + 1 - step.precision)))
    unit = _power(e, b.sub(top, e.like(top, fraction)))
    value = b.fmul(e.converted(F32, number, "bitcast"), unit)
    code = e.converted(I32, value, "bitcast")
    return (code if result is FORMATS["f32"] else _to_half(e, code)), odd


def _power(e: Emitter, field: Value) -> Value:
    """The float32 number with this exponent field and no fraction."""
    return e.converted(F32, e.b.shl(field, e.like(field, _MANTISSA)), "bitcast")


def _added(e: Emitter, parts: Sequence[Value]) -> tuple[Value, Value]:
    """The sum of int32, and a word whose sign says whether int32 does not hold it."""
    b, total = e.b, parts[0]
    lost = e.like(total, 0)
    for part in parts[1:]:
        new = b.add(total, part)
        lost = b.or_(lost, b.and_(b.xor(total, new), b.xor(part, new)))
        total = new
    return total, lost


def _truncated(e: Emitter, total: Value, bound: float, sticky: bool) -> tuple[Value, Value]:
    """An integer as the bits of a float32 number, toward zero, and its magnitude; `sticky`: the
    last bit is set where something was cut, so that the number can be rounded later."""
    b = e.b
    size = e.larger(total, b.sub(e.like(total, 0), total))
    if bound < 1 << (_MANTISSA + 1):
        return e.converted(I32, e.converted(F32, total, "sitofp"), "bitcast"), size
    near = e.converted(F32, size, "sitofp")
    back = e.converted(I32, near, "fptosi")
    word = e.converted(I32, near, "bitcast")
    above = b.icmp_signed(">", back, size)
    word = e.select(above, b.sub(word, e.like(word, 1)), word)
    if sticky:
        inexact = b.icmp_unsigned("!=", back, size)
        word = e.select(inexact, b.or_(word, e.like(word, 1)), word)
    return b.or_(word, b.and_(total, e.like(total, _SIGN))), size


def _to_half(e: Emitter, word: Value) -> Value:
    """Float32 numbers, of which a last bit may be sticky, to codes of f16, to nearest even; a zero
    is +0."""
    b, f16 = e.b, FORMATS["f16"]
    assert f16.infinity is not None
    size = b.and_(word, e.like(word, _SIGN - 1))
    cut = _MANTISSA - f16.mantissa_bits
    even = b.and_(b.lshr(size, e.like(size, cut)), e.like(size, 1))
    normal = b.lshr(b.add(b.add(size, e.like(size, (1 << (cut - 1)) - 1)), even), e.like(size, cut))
    normal = b.sub(normal, e.like(normal, (_BIAS - f16.bias) << f16.mantissa_bits))
    normal = e.smaller(normal, e.like(normal, f16.infinity))
    # The last bit of a subnormal is that of numbers from this one on.
    magnitude = e.converted(F32, size, "bitcast")
    one = 2.0 ** (f16.emin - f16.mantissa_bits + _MANTISSA)
    small = e.converted(I32, b.fadd(magnitude, e.like(magnitude, one)), "bitcast")
    small = b.and_(small, e.like(small, (1 << _MANTISSA) - 1))
    tiny = b.fcmp_ordered("<", magnitude, e.like(magnitude, 2.0**f16.emin))
    code = e.select(tiny, small, normal)
    sign = b.and_(b.lshr(word, e.like(word, 16)), e.like(word, f16.sign_mask))
    return e.select(b.icmp_unsigned("!=", code, e.like(code, 0)), b.or_(code, sign), code)
