"""Approximate functions as LLVM instructions: the special function unit, and what is around it.

Each function has the parameters of the rule of its name in `arith.scalar.approximate`; the units
are those of `arith.special_arrays`, formula by formula, on the same tables.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from dtypes import Array
from emulator.arith.scalar.types import TYPES, ScalarType
from emulator.arith.special import FRACTION, INFINITY, NAN, ONE, SIGN, TANH_FIRST
from emulator.arith.special_arrays import columns, squares
from emulator.arith.special_tables import (
    EX2,
    LG2,
    RCP,
    RSQRT,
    SIN,
    SQRT,
    TANH,
    TANH_BITS,
    Table,
)
from emulator.machine.compiled import floating
from emulator.machine.compiled.emitter import Emitter, Value, integers, numbers

_F32 = TYPES["f32"]
_MAGNITUDE = 0x7FFFFFFF
#: codes of f32
_TINY, _HUGE = 1 << 23, 253 << 23  # 2**-126, 2**126
_QUARTER, _HALF, _2_12, _2_24 = ((127 + n) << 23 for n in (-2, -1, 12, 24))
_2_MINUS_12, _MINUS_24, _MINUS_126 = (127 - 12) << 23, 0xC1C00000, 0xC2FC0000
_TURN = 0x3E22F983

# --- the interpolator -----------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _wide_squares() -> Array:
    return squares().astype(np.uint32)


@lru_cache(maxsize=8)
def _small(numbers: tuple[int, ...]) -> Array:
    return np.array(numbers, np.uint32)


def _interpolate(e: Emitter, table: Table, row: Value, x: Value) -> Value:
    """The sum of a row, in units of ``2**-table.weight``, in 64 bits."""
    b = e.builder
    constant, linear, quadratic = (e.look_up(column, row) for column in columns(table))
    square = e.look_up(_wide_squares(), e.shift("shl", x, 1) if table is RCP else x)
    total = b.add(b.mul(linear, e.resize(x, 64)), constant)
    return b.add(total, b.mul(quadratic, e.resize(square, 64)))


# --- codes ----------------------------------------------------------------------------------------


def _bits(e: Emitter, x: Value, mask: int) -> Value:
    return e.builder.and_(x, e.like(x, mask))


def _is(e: Emitter, x: Value, verb: str, number: int) -> Value:
    return e.builder.icmp_signed(verb, x, e.like(x, number))


def _fields(e: Emitter, x: Value) -> tuple[Value, Value, Value]:
    """The sign in its place, the exponent field and the fraction."""
    return _bits(e, x, SIGN), _bits(e, e.shift("lshr", x, 23), 255), _bits(e, x, FRACTION)


def _put(e: Emitter, out: Value, where: Value, value: Any) -> Value:
    return e.select(where, e.like(out, value) if isinstance(value, int) else value, out)


def _codes(e: Emitter, sign: Value | None, exponent: Value, fraction: Value) -> Value:
    """Results; below the normal range zeros, above it infinities."""
    b = e.builder
    raised = e.shift("shl", b.add(exponent, e.word(32, 127)), 23)
    out = b.or_(raised, _bits(e, fraction, FRACTION))
    out = _put(e, out, _is(e, exponent, ">", 127), INFINITY)
    out = _put(e, out, _is(e, exponent, "<", -126), 0)
    return out if sign is None else b.or_(out, sign)


def _taken(e: Emitter, total: Value, shift: int) -> Value:
    """The low 32 bits of a sum cut by so many."""
    return e.resize(e.shift("ashr", total, shift), 32)


def _cut(e: Emitter, sign: Value, number: Value, weight: int) -> Value:
    """``number * 2**-weight`` in 64 bits, cut to 24 significant bits."""
    b = e.builder
    zeros = e.leading_zeros(b.or_(number, e.word(64, 1)))
    at_top = e.shift("lshr", b.shl(number, zeros), 63 - 23)
    exponent = b.sub(e.word(32, 63 - weight), e.resize(zeros, 32))
    out = _codes(e, sign, exponent, e.resize(at_top, 32))
    return _put(e, out, _is(e, number, "==", 0), sign)


def _fixed(e: Emitter, x: Value, point: int, limit: float) -> Value:
    """Magnitudes, at most `limit`, cut to units of ``2**-point``, in 64 bits; of a NaN anything."""
    b = e.builder
    magnitude = e.as_numbers(_bits(e, x, _MAGNITUDE))
    inside = b.fcmp_ordered("<", magnitude, e.number(32, limit))
    wide = b.fpext(e.select(inside, magnitude, e.number(32, limit)), numbers(64))
    fixed = b.fptosi(b.fmul(wide, e.number(64, 2.0**point)), integers(64))
    return _put(e, fixed, _is(e, _bits(e, x, INFINITY), "==", 0), 0)


# --- the units ------------------------------------------------------------------------------------


def _rcp(e: Emitter, x: Value) -> Value:
    b = e.builder
    sign, field, f = _fields(e, x)
    total = _interpolate(e, RCP, e.shift("lshr", f, 16), _bits(e, f, 0xFFFF))
    low = b.icmp_unsigned("==", e.shift("lshr", total, RCP.weight), e.word(64, 0))
    total = e.select(low, e.shift("shl", total, 1), total)
    exponent = b.sub(b.sub(e.word(32, 127), field), e.resize(low, 32))
    out = _codes(e, sign, exponent, _taken(e, total, RCP.weight - 23))
    out = _put(e, out, _is(e, field, "==", 0), b.or_(sign, e.word(32, INFINITY)))
    special = _put(e, sign, _is(e, f, "!=", 0), NAN)
    return _put(e, out, _is(e, field, "==", 255), special)


def _root_row(e: Emitter, field: Value, f: Value) -> tuple[Value, Value, Value]:
    """Half of the exponent, whether it is odd, and the row of a table of two octaves."""
    number = e.builder.sub(field, e.word(32, 127))
    odd = _bits(e, number, 1)
    row = e.builder.add(e.shift("lshr", f, 17), e.shift("shl", odd, 6))
    return e.shift("ashr", number, 1), odd, row


def _rsqrt(e: Emitter, x: Value) -> Value:
    b = e.builder
    sign, field, f = _fields(e, x)
    exponent, odd, row = _root_row(e, field, f)
    total = _interpolate(e, RSQRT, row, _bits(e, f, 0x1FFFF))
    out = _codes(e, None, b.not_(exponent), _taken(e, total, RSQRT.weight - 24))
    exact = b.and_(_is(e, f, "==", 0), _is(e, odd, "==", 0))
    out = e.select(exact, _codes(e, None, b.neg(exponent), f), out)
    return _roots(e, x, out, b.or_(sign, e.word(32, INFINITY)), 0)


def _sqrt(e: Emitter, x: Value) -> Value:
    sign, field, f = _fields(e, x)
    exponent, _, row = _root_row(e, field, f)
    total = _interpolate(e, SQRT, row, _bits(e, f, 0x1FFFF))
    out = _codes(e, None, exponent, _taken(e, total, SQRT.weight - 23))
    return _roots(e, x, out, sign, INFINITY)


def _roots(e: Emitter, x: Value, out: Value, of_zero: Any, of_infinity: int) -> Value:
    """`out` with the results of operands that are no positive finite numbers."""
    sign, field, f = _fields(e, x)
    infinite = _is(e, field, "==", 255)
    out = _put(e, out, infinite, of_infinity)
    out = _put(e, out, _is(e, sign, "!=", 0), NAN)
    out = _put(e, out, _is(e, field, "==", 0), of_zero)
    return _put(e, out, e.builder.and_(infinite, _is(e, f, "!=", 0)), NAN)


def _ex2(e: Emitter, x: Value) -> Value:
    b = e.builder
    sign, field, f = _fields(e, x)
    fixed = e.resize(_fixed(e, x, 23, 128.0), 32)
    negative = _is(e, sign, "!=", 0)
    # The complement of a negative argument; where it is whole, the negative.
    whole = e.resize(_is(e, _bits(e, fixed, FRACTION), "==", 0), 32)
    fixed = e.select(negative, b.add(b.not_(fixed), whole), fixed)
    row = _bits(e, e.shift("ashr", fixed, 17), 63)
    total = _interpolate(e, EX2, row, _bits(e, fixed, 0x1FFFF))
    out = _codes(e, None, e.shift("ashr", fixed, 23), _taken(e, total, EX2.weight - 23))
    beyond = e.select(negative, e.word(32, 0), e.word(32, INFINITY))
    out = _put(e, out, _is(e, field, ">=", 127 + 7), beyond)
    return _put(e, out, b.and_(_is(e, field, "==", 255), _is(e, f, "!=", 0)), NAN)


def _lg2(e: Emitter, x: Value) -> Value:
    b = e.builder
    _, field, f = _fields(e, x)
    exponent = b.sub(e.resize(field, 64), e.word(64, 127))
    total = _interpolate(e, LG2, e.shift("lshr", f, 17), _bits(e, f, 0x1FFFF))
    total = b.add(total, e.shift("shl", exponent, LG2.weight))
    size = e.select(_is(e, total, "<", 0), b.neg(total), total)
    size = e.shift("shl", e.shift("lshr", size, 20), 20)
    sign = e.select(_is(e, field, "<", 127), e.word(32, SIGN), e.word(32, 0))
    out = _cut(e, sign, size, LG2.weight)
    out = _put(e, out, b.and_(_is(e, field, "==", 127), _is(e, f, "==", 0)), 0)
    return _roots(e, x, out, SIGN | INFINITY, INFINITY)


def _wave(e: Emitter, x: Value, cosine: bool) -> Value:
    b = e.builder
    sign, field, _ = _fields(e, x)
    # From 2**24 revolutions on every number is whole.
    fixed = _fixed(e, x, 25, 2.0**24)
    quarter = e.shift("lshr", fixed, 23)
    turned = b.xor(_bits(e, quarter, 1), e.word(64, int(cosine)))
    fixed = b.xor(fixed, b.neg(turned))
    if cosine:
        half = _bits(e, e.shift("lshr", b.add(quarter, e.word(64, 1)), 1), 1)
        negative = e.shift("shl", e.resize(half, 32), 31)
    else:
        half = _bits(e, e.shift("lshr", quarter, 1), 1)
        negative = b.xor(sign, e.shift("shl", e.resize(half, 32), 31))
    low = e.resize(fixed, 32)
    total = _interpolate(e, SIN, _bits(e, e.shift("lshr", low, 17), 63), _bits(e, low, 0x1FFFF))
    return _put(e, _cut(e, negative, total, SIN.weight), _is(e, field, "==", 255), NAN)


def _tanh(e: Emitter, x: Value) -> Value:
    b = e.builder
    sign, field, f = _fields(e, x)
    place = b.sub(field, e.word(32, 119))
    place = e.call("smin", place, e.word(32, len(TANH_BITS) - 1))
    place = e.call("smax", place, e.word(32, 0))
    bits = e.look_up(_small(tuple(TANH_BITS)), place)
    row = b.add(e.look_up(_small(tuple(TANH_FIRST)), place), b.lshr(f, b.sub(e.word(32, 23), bits)))
    rest = _bits(e, b.lshr(f, b.sub(e.word(32, 6), bits)), 0x1FFFF)
    out = _cut(e, sign, _interpolate(e, TANH, row, rest), TANH.weight)
    out = _put(e, out, _is(e, field, "<", 119), x)
    out = _put(e, out, _is(e, field, ">", 129), b.or_(sign, e.word(32, ONE)))
    return _put(e, out, b.and_(_is(e, field, "==", 255), _is(e, f, "!=", 0)), NAN)


# --- what ptxas puts around them ------------------------------------------------------------------


def _times(e: Emitter, a: Value, factor: Any, ftz: bool = False) -> Value:
    factor = e.word(32, factor) if isinstance(factor, int) else factor
    return floating.mul(e, _F32, a, factor, ftz=ftz)


def _below(e: Emitter, a: Value, limit: int) -> Value:
    """abs(a) < limit, for a code of a limit."""
    return e.builder.icmp_unsigned("<", _bits(e, a, _MAGNITUDE), e.word(32, limit))


def _above(e: Emitter, a: Value, limit: int) -> Value:
    """abs(a) > limit: false for a NaN."""
    magnitude = _bits(e, a, _MAGNITUDE)
    inside = e.builder.icmp_unsigned("<=", magnitude, e.word(32, INFINITY))
    return e.builder.and_(inside, e.builder.icmp_unsigned(">", magnitude, e.word(32, limit)))


def ex2(e: Emitter, t: ScalarType, a: Value, *, ftz: bool = False) -> Value:
    if ftz:
        return _ex2(e, a)
    low = floating.holds(e, t, a, e.word(32, _MINUS_126), "lt", False)
    root = _ex2(e, e.select(low, _times(e, a, _HALF), a))
    return e.rarely(low, lambda: e.select(low, _times(e, root, root), root), root)


def _scaled(
    e: Emitter, a: Value, ftz: bool, unit: Callable[[Emitter, Value], Value],
    last: Callable[[Value], Value],
) -> Value:  # fmt: skip
    """Without .ftz a subnormal argument is scaled by 2**24, and the result corrected."""
    if ftz:
        return unit(e, a)
    tiny = _below(e, a, _TINY)
    out = unit(e, e.select(tiny, _times(e, a, _2_24), a))
    return e.rarely(tiny, lambda: e.select(tiny, last(out), out), out)


def lg2(e: Emitter, t: ScalarType, a: Value, *, ftz: bool = False) -> Value:
    less = e.word(32, _MINUS_24)
    return _scaled(e, a, ftz, _lg2, lambda y: floating.add(e, t, y, less))


def rsqrt(e: Emitter, t: ScalarType, a: Value, *, ftz: bool = False) -> Value:
    return _scaled(e, a, ftz, _rsqrt, lambda y: _times(e, y, _2_12))


def sqrt(e: Emitter, t: ScalarType, a: Value, *, ftz: bool = False) -> Value:
    return _scaled(e, a, ftz, _sqrt, lambda y: _times(e, y, _2_MINUS_12))


def sin(e: Emitter, t: ScalarType, a: Value, *, ftz: bool = False) -> Value:
    return _wave(e, _turns(e, a), cosine=False)


def cos(e: Emitter, t: ScalarType, a: Value, *, ftz: bool = False) -> Value:
    return _wave(e, _turns(e, a), cosine=True)


def _turns(e: Emitter, a: Value) -> Value:
    """The argument as revolutions, cut toward zero: the product is exact in f64."""
    b = e.builder
    x, turn = (b.fpext(e.as_numbers(word), numbers(64)) for word in (a, e.word(32, _TURN)))
    product = b.fmul(x, turn)
    near = b.fptrunc(product, numbers(32))
    back = b.fpext(near, numbers(64))
    outside = b.fcmp_ordered(">", e.call("fabs", back), e.call("fabs", product))
    words = b.sub(e.as_words(near), e.resize(outside, 32))
    return floating.with_nans(e, _F32, words, floating.is_nan(e, product))


def tanh(e: Emitter, t: ScalarType, a: Value) -> Value:
    return _tanh(e, a)


def rcp(e: Emitter, t: ScalarType, a: Value, *, ftz: bool = False) -> Value:
    if ftz:
        return _rcp(e, a)
    k = e.select(_below(e, a, _TINY), e.word(32, _2_24), e.word(32, ONE))
    k = e.select(_above(e, a, _HUGE), e.word(32, _QUARTER), k)
    return _times(e, k, _rcp(e, _times(e, a, k)))


def div(
    e: Emitter, t: ScalarType, a: Value, b: Value, *, full: bool = False, ftz: bool = False
) -> Value:
    steps = [(_above(e, b, _HUGE), _QUARTER)] if full else []
    steps += [] if ftz else [(_below(e, b, _TINY), _2_24)]
    for where, factor in steps:
        a, b = (e.rarely(where, _scaling(e, where, x, factor, ftz), x) for x in (a, b))
    return _times(e, _rcp(e, b), a, ftz)


def _scaling(e: Emitter, where: Value, x: Value, factor: int, ftz: bool) -> Callable[[], Value]:
    return lambda: e.select(where, _times(e, x, factor, ftz), x)


RULES: dict[str, Callable[..., Any]] = {
    f"approximate.{found.__name__}": found
    for found in (ex2, lg2, rsqrt, sqrt, sin, cos, tanh, rcp, div)
}
