"""Quotients and roots, and sums, products and fused ones of f32 in every rounding, as LLVM
instructions.

A number of f32 is computed in f64, exactly or so that it is rounded rightly from there, as in
`arith.scalar.rounded`. f64 is rounded to nearest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from emulator.arith.scalar.types import TYPES, ScalarType
from emulator.machine.compiled.emitter import Emitter, Value, numbers
from emulator.machine.compiled.floating import (
    as_double,
    finished,
    is_nan,
    odd_sum,
    signs,
    values,
    with_nans,
)

_F64 = TYPES["f64"]


# --- from f64 to f32 ------------------------------------------------------------------------------


def _narrowed(e: Emitter, t: ScalarType, total: Value, rounding: str, ftz: bool) -> Value:
    """Codes of f32 of doubles that are exact or rounded to odd."""
    b = e.builder
    near = b.fptrunc(total, numbers(32))
    words = e.as_words(near)
    if rounding != "rn":
        back = as_double(e, near)
        above, below = (b.fcmp_ordered(verb, total, back) for verb in (">", "<"))
        words = _stepped(e, words, above, below, rounding)
    if not ftz:
        return words
    tiny, held = _is_tiny(e, t, total, rounding), words
    return e.rarely(tiny, lambda: e.select(tiny, signs(e, t, held), held), held)


def _stepped(e: Emitter, words: Value, above: Value, below: Value, rounding: str) -> Value:
    """Codes rounded to nearest, corrected where the exact number is above or below the code's."""
    b = e.builder
    negative = b.icmp_signed("<", words, e.like(words, 0))
    positive = b.not_(negative)
    nobody = e.word(1, 0)
    outward, inward = {
        "rz": lambda: (nobody, e.select(negative, above, below)),
        "rm": lambda: (b.and_(below, negative), b.and_(below, positive)),
        "rp": lambda: (b.and_(above, positive), b.and_(above, negative)),
    }[rounding]()
    return b.sub(b.add(words, e.resize(outward, 32)), e.resize(inward, 32))


def _is_tiny(e: Emitter, t: ScalarType, total: Value, rounding: str) -> Value:
    """Whether numbers, rounded as if the exponent had no limit, lie below the normal ones."""
    b, smallest = e.builder, 2.0**t.format.emin
    half = 2.0 ** -(t.format.precision + 1)  # of the last place just below `smallest`
    size = e.call("fabs", total)
    if rounding == "rn":
        return b.fcmp_ordered("<", size, e.number(64, smallest * (1 - half)))
    tiny = b.fcmp_ordered("<", size, e.number(64, smallest))
    if rounding == "rz":
        return tiny
    away = b.fcmp_ordered("<" if rounding == "rm" else ">", total, e.number(64, 0.0))
    close = b.fcmp_ordered(">", size, e.number(64, smallest * (1 - 2 * half)))
    return b.and_(tiny, b.not_(b.and_(away, close)))


# --- sums, products, fused ones of f32 ------------------------------------------------------------


def add(
    e: Emitter, t: ScalarType, a: Value, b: Value, *, rounding: str, ftz: bool = False,
    sat: bool = False,
) -> Value:  # fmt: skip
    x, y = (as_double(e, values(e, t, word, ftz)) for word in (a, b))
    return _sum(e, t, x, y, rounding, ftz, sat)


def sub(
    e: Emitter, t: ScalarType, a: Value, b: Value, *, rounding: str, ftz: bool = False,
    sat: bool = False,
) -> Value:  # fmt: skip
    x, y = (as_double(e, values(e, t, word, ftz)) for word in (a, b))
    return _sum(e, t, x, e.builder.fneg(y), rounding, ftz, sat)


def mul(
    e: Emitter, t: ScalarType, a: Value, b: Value, *, rounding: str, ftz: bool = False,
    sat: bool = False,
) -> Value:  # fmt: skip
    x, y = (as_double(e, values(e, t, word, ftz)) for word in (a, b))
    product = e.builder.fmul(x, y)
    return finished(e, t, _narrowed(e, t, product, rounding, ftz), is_nan(e, product), sat)


def fma(
    e: Emitter, t: ScalarType, a: Value, b: Value, c: Value, *, rounding: str, ftz: bool = False,
    sat: bool = False,
) -> Value:  # fmt: skip
    x, y, z = (as_double(e, values(e, t, word, ftz)) for word in (a, b, c))
    return _sum(e, t, e.builder.fmul(x, y), z, rounding, ftz, sat)


def _sum(
    e: Emitter, t: ScalarType, x: Value, y: Value, rounding: str, ftz: bool, sat: bool
) -> Value:
    b, total = e.builder, odd_sum(e, 64, x, y)
    words = _narrowed(e, t, total, rounding, ftz)
    if rounding == "rm":
        # What cancels is -0, unless both are +0.
        zero = b.fcmp_ordered("==", total, e.number(64, 0.0))
        either = b.or_(e.as_words(x), e.as_words(y))
        sign = e.resize(e.shift("shl", e.shift("lshr", either, 63), 31), 32)
        words = e.select(zero, sign, words)
    return finished(e, t, words, is_nan(e, total), sat)


# --- quotients and roots --------------------------------------------------------------------------


def div(
    e: Emitter, t: ScalarType, a: Value, b: Value, *, rounding: str = "rn", ftz: bool = False
) -> Value:
    x, y = (_wide(e, t, word, ftz) for word in (a, b))
    return _rounded(e, t, e.builder.fdiv(x, y), rounding, ftz, a, b)


def rcp(e: Emitter, t: ScalarType, a: Value, *, rounding: str = "rn", ftz: bool = False) -> Value:
    quotient = e.builder.fdiv(e.number(64, 1.0), _wide(e, t, a, ftz))
    return _rounded(e, t, quotient, rounding, ftz, a)


def sqrt(e: Emitter, t: ScalarType, a: Value, *, rounding: str = "rn", ftz: bool = False) -> Value:
    return _rounded(e, t, e.call("sqrt", _wide(e, t, a, ftz)), rounding, ftz, a)


def _wide(e: Emitter, t: ScalarType, word: Value, ftz: bool) -> Value:
    held = values(e, t, word, ftz)
    return held if t is _F64 else as_double(e, held)


def _rounded(
    e: Emitter, t: ScalarType, number: Value, rounding: str, ftz: bool, *operands: Value
) -> Value:
    """The code of a quotient or root in f64. Of f32 numbers it is never so near to a number of 25
    bits that rounding it again could err, unless it is that number."""
    if t is _F64:
        return with_nans(e, t, e.as_words(number), is_nan(e, number), *operands)
    return finished(e, t, _narrowed(e, t, number, rounding, ftz), is_nan(e, number), False)


#: rules that are here alone; those of `floating` have the forms of f32 that round elsewhere
RULES: dict[str, Callable[..., Any]] = {
    "quotients.div": div, "quotients.rcp": rcp, "quotients.sqrt": sqrt,
}  # fmt: skip
DIRECTED: dict[str, Callable[..., Any]] = RULES | {
    "floating.add": add, "floating.sub": sub, "floating.mul": mul, "fused.fma": fma,
}  # fmt: skip
