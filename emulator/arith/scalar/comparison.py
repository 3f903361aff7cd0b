"""Comparisons, selections, signs, minimum and maximum: PTX ISA 9.7.3, 9.7.4, 9.7.6 and 9.7.7."""

from __future__ import annotations

import operator
from collections.abc import Callable
from fractions import Fraction
from functools import reduce
from typing import NamedTuple

from dtypes import Number, NumberClass
from emulator.arith.scalar import exact, rounded
from emulator.arith.scalar.rule import packed_rule, rule
from emulator.arith.scalar.types import ScalarType
from emulator.arith.scalar.words import Operand, Word, Words, joined

_ZERO, _FINITE, _INFINITE, _NAN = NumberClass

# --- comparisons ----------------------------------------------------------------------------------

#: comparison -> its operator; unsigned ones have names of their own
_ORDERS = {
    "eq": "eq", "ne": "ne", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge",
    "lo": "lt", "ls": "le", "hi": "gt", "hs": "ge",
    "equ": "eq", "neu": "ne", "ltu": "lt", "leu": "le", "gtu": "gt", "geu": "ge",
}  # fmt: skip
OPERATORS: dict[str, Callable[[Operand, Operand], Operand]] = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt,
    "le": operator.le, "gt": operator.gt, "ge": operator.ge,
}  # fmt: skip
#: comparison of numbers that a NaN makes true -> the one that is false then, of which it is the not
_OPPOSITES = {"equ": "ne", "neu": "eq", "ltu": "ge", "leu": "gt", "gtu": "le", "geu": "lt"}
_COMBINATIONS: dict[str, Callable[[Operand, Operand], Operand]] = {
    "": lambda result, c: result,
    "and": lambda result, c: result & c,
    "or": lambda result, c: result | c,
    "xor": lambda result, c: result ^ c,
}


class Test(NamedTuple):
    """The modifiers of comparisons: of a with b, and of the result with c."""

    compare: str = ""
    combine: str = ""
    ftz: bool = False


TEST = Test()


def holds(t: ScalarType, a: int, b: int, compare: str, ftz: bool) -> int:
    """9.7.6: a comparison with a NaN is false (also ne), or true if its name ends with u; num and
    nan ask whether both are numbers or any is none."""
    if not t.is_float:
        return int(OPERATORS[_ORDERS[compare]](t.number(a), t.number(b)))
    x, y = exact.read(t.format, a, ftz), exact.read(t.format, b, ftz)
    unordered = _NAN in (x.number_class, y.number_class)
    if compare in ("num", "nan"):
        return int(unordered == (compare == "nan"))
    if unordered:
        return int(compare.endswith("u"))
    return int(OPERATORS[_ORDERS[compare]](_place(t, x), _place(t, y)))


def _place(t: ScalarType, x: Number) -> tuple[int, Fraction]:
    """Sort key of a number that is no NaN; infinities lie outside of all others."""
    if x.number_class == _INFINITE:
        return (-1 if x.sign else 1), Fraction(0)
    return 0, exact.value(t.format, x)


def hold(w: Words, t: ScalarType, a: Word, b: Operand, compare: str, ftz: bool) -> Word:
    """`holds` of words."""
    if not t.is_float:
        return OPERATORS[_ORDERS[compare]](a.view(t.values), b.view(t.values))
    x, y = rounded.values(w, t, a, ftz), rounded.values(w, t, b, ftz)
    if compare == "num":
        return (x == x) & (y == y)
    if compare == "nan":
        return (x != x) | (y != y)
    if compare in _OPPOSITES:
        return ~_ordered(x, y, _OPPOSITES[compare])
    return _ordered(x, y, compare)


def _ordered(x: Word, y: Word, compare: str) -> Word:
    """A comparison that a NaN makes false."""
    return (x < y) | (x > y) if compare == "ne" else OPERATORS[compare](x, y)


@packed_rule
def setp(t: ScalarType, a: int, b: int, c: int = 1, *, how: Test = TEST) -> tuple[int, int]:
    """9.7.6.2: whether a and b compare so, combined with c, and whether they do not.

    Of a packed type the results are those of its lower and its upper elements (measured).
    """
    combination = _COMBINATIONS[how.combine]
    e = t.element
    if t.count > 1:
        low, high = (
            holds(e, a >> shift & e.mask, b >> shift & e.mask, how.compare, how.ftz)
            for shift in (0, e.bits)
        )
        return combination(low, c), combination(high, c)
    result = holds(e, a, b, how.compare, how.ftz)
    return combination(result, c), combination(1 - result, c)


@setp.words
def _(
    w: Words, t: ScalarType, a: Word, b: Word, c: Operand = 1, *, how: Test = TEST
) -> tuple[Word, Word]:
    combination = _COMBINATIONS[how.combine]
    if t.count == 1:
        result = hold(w, t, a, b, how.compare, how.ftz)
        return combination(result, c), combination(~result, c)
    e = t.element
    low, high = (
        hold(w, e, (a >> shift).astype(e.dtype), (b >> shift).astype(e.dtype), how.compare, how.ftz)
        for shift in (0, e.bits)
    )
    return combination(low, c), combination(high, c)


@packed_rule
def set_(d: ScalarType, t: ScalarType, a: int, b: int, c: int = 1, *, how: Test = TEST) -> int:
    """9.7.6.1: all ones, or 1.0 of a floating-point destination, where a and b compare so.

    Of packed elements every one is compared; an integer destination has 16 bits for each.
    """
    out, e, width = 0, t.element, d.size // t.count
    true = d.format.bias << d.format.mantissa_bits if d.is_float else (1 << width) - 1
    for i in range(t.count):
        x, y = a >> i * e.bits & e.mask, b >> i * e.bits & e.mask
        if _COMBINATIONS[how.combine](holds(e, x, y, how.compare, how.ftz), c):
            out |= true << i * width
    return out


@set_.words
def _(
    w: Words, d: ScalarType, t: ScalarType, a: Word, b: Word, c: Operand = True, *, how: Test = TEST
) -> Word:
    e, width = t.element, d.size // t.count
    true = d.format.bias << d.format.mantissa_bits if d.is_float else (1 << width) - 1
    parts = []
    for i in range(t.count):
        x, y = ((word >> i * e.bits).astype(e.dtype) if t.count > 1 else word for word in (a, b))
        result = _COMBINATIONS[how.combine](hold(w, e, x, y, how.compare, how.ftz), c)
        parts.append(w.select(result, d.dtype.type(true), d.dtype.type(0)))
    return joined(parts, width)


# --- selections -----------------------------------------------------------------------------------


@packed_rule
def selp(t: ScalarType, a: int, b: int, c: int) -> int:
    """9.7.6.3: a where the predicate c is true, else b."""
    return a if c else b


@selp.words
def _(w: Words, t: ScalarType, a: Word, b: Word, c: Word) -> Word:
    return w.select(c, a, b)


@packed_rule
def slct(t: ScalarType, condition: ScalarType, a: int, b: int, c: int, *, ftz: bool = False) -> int:
    """9.7.6.4: a where c >= 0, else b. -0 counts as 0; a NaN selects b."""
    return a if holds(condition, c, 0, "ge", ftz) else b


@slct.words
def _(
    w: Words, t: ScalarType, condition: ScalarType, a: Word, b: Word, c: Word, *, ftz: bool = False
) -> Word:
    number = (
        rounded.values(w, condition, c, ftz) if condition.is_float else c.view(condition.values)
    )
    return w.select(number >= 0, a, b)


# --- tests of numbers, signs ----------------------------------------------------------------------


@rule
def testp(t: ScalarType, a: int, *, test: str = "") -> int:
    """9.7.3.1. Zeros are normal here (measured); without a test, as ptxas takes it, false."""
    x = exact.read(t.format, a)
    subnormal = x.number_class == _FINITE and x.significand < 1 << t.format.mantissa_bits
    return int(
        {
            "finite": x.number_class in (_ZERO, _FINITE),
            "infinite": x.number_class == _INFINITE,
            "number": x.number_class != _NAN,
            "notanumber": x.number_class == _NAN,
            "normal": x.number_class in (_ZERO, _FINITE) and not subnormal,
            "subnormal": subnormal,
            "": False,
        }[test]
    )


@testp.words
def _(w: Words, t: ScalarType, a: Word, *, test: str = "") -> Word:
    magnitude, infinity = rounded.magnitudes(t, a), t.infinity
    least = 1 << t.format.mantissa_bits
    if not test:
        return magnitude != magnitude
    if test == "subnormal":
        return magnitude - 1 < least - 1
    if test == "normal":
        return (magnitude == 0) | (magnitude - least < infinity - least)
    compare = {"finite": "lt", "infinite": "eq", "number": "le", "notanumber": "gt"}[test]
    return OPERATORS[compare](magnitude, infinity)


@rule
def copysign(t: ScalarType, a: int, b: int) -> int:
    """9.7.3.2: the sign of a and the magnitude of b, whatever they are."""
    sign = t.format.sign_mask
    return a & sign | b & ~sign


@copysign.words
def _(w: Words, t: ScalarType, a: Word, b: Word) -> Word:
    return rounded.signs(t, a) | rounded.magnitudes(t, b)


@rule
def absolute(t: ScalarType, a: int, *, ftz: bool = False) -> int:
    """9.7.3.9, abs. A NaN is canonical; of f64 it is made quiet and keeps its sign (measured)."""
    return _with_sign(t, a, ftz, lambda sign: 0)


@absolute.words
def _(w: Words, t: ScalarType, a: Word, *, ftz: bool = False) -> Word:
    a = rounded.flushed(w, t, a) if ftz else a
    out = rounded.magnitudes(t, a)
    return rounded.with_nans(w, t, out, out > t.infinity, a)


@rule
def neg(t: ScalarType, a: int, *, ftz: bool = False) -> int:
    """9.7.3.10. A NaN is canonical; of f64 it is made quiet and keeps its sign (measured)."""
    return _with_sign(t, a, ftz, lambda sign: 1 - sign)


@neg.words
def _(w: Words, t: ScalarType, a: Word, *, ftz: bool = False) -> Word:
    a = rounded.flushed(w, t, a) if ftz else a
    return rounded.with_nans(w, t, a ^ t.format.sign_mask, rounded.are_nans(t, a), a)


def _with_sign(t: ScalarType, a: int, ftz: bool, sign: Callable[[int], int]) -> int:
    x = exact.read(t.format, a, ftz)
    if x.number_class == _NAN:
        return exact.nan_of(t.format, a)
    magnitude = 0 if x.number_class == _ZERO else a & ~t.format.sign_mask
    return magnitude | exact.zero(t.format, sign(x.sign))


# --- min, max -------------------------------------------------------------------------------------


class Extreme(NamedTuple):
    """The modifiers of min and max."""

    ftz: bool = False
    nan: bool = False
    xorsign: bool = False
    abs: bool = False


EXTREME = Extreme()


@rule
def minimum(t: ScalarType, a: int, b: int, c: int | None = None, *, how: Extreme = EXTREME) -> int:
    """9.7.3.11, min of two or three. A number wins against a NaN, unless .NaN is given; -0 is less
    than +0. .xorsign.abs compares magnitudes and gives the result the signs' exclusive or."""
    return _extreme(t, (a, b) if c is None else (a, b, c), -1, how)


@minimum.words
def _(
    w: Words, t: ScalarType, a: Word, b: Word, c: Word | None = None, *, how: Extreme = EXTREME
) -> Word:
    return extremes(w, t, (a, b) if c is None else (a, b, c), False, how)


@rule
def maximum(t: ScalarType, a: int, b: int, c: int | None = None, *, how: Extreme = EXTREME) -> int:
    """9.7.3.12, max of two or three; as `minimum`."""
    return _extreme(t, (a, b) if c is None else (a, b, c), 1, how)


@maximum.words
def _(
    w: Words, t: ScalarType, a: Word, b: Word, c: Word | None = None, *, how: Extreme = EXTREME
) -> Word:
    return extremes(w, t, (a, b) if c is None else (a, b, c), True, how)


def _extreme(t: ScalarType, codes: tuple[int, ...], direction: int, how: Extreme) -> int:
    ftz, nan, xorsign, abs = how
    fmt = t.format
    sign = 0
    for code in codes:
        sign ^= code & fmt.sign_mask if xorsign else 0
    codes = tuple(_flushed(t, code) if ftz else code for code in codes)
    numbers = [code for code in codes if not exact.is_nan(fmt, code)]
    if not numbers or (nan and len(numbers) < len(codes)):
        return exact.nan_of(fmt, *reversed(codes))
    if abs:
        return max((code & ~fmt.sign_mask for code in numbers), key=lambda m: direction * m) | sign
    return max(numbers, key=lambda code: direction * _ordinal(t, code))


def _flushed(t: ScalarType, code: int) -> int:
    x = exact.read(t.format, code, ftz=True)
    return exact.zero(t.format, x.sign) if x.number_class == _ZERO else code


def _ordinal(t: ScalarType, code: int) -> int:
    """An integer that orders codes as their numbers are ordered, -0 before +0."""
    magnitude = code & ~t.format.sign_mask
    return ~magnitude if code & t.format.sign_mask else magnitude


def extremes(w: Words, t: ScalarType, codes: tuple[Word, ...], largest: bool, how: Extreme) -> Word:
    """The smallest or largest of several codes."""
    ftz, nan, xorsign, abs = how
    if len(codes) == 2 and t.bits > 16 and not (ftz or abs):
        return _extreme_pair(w, t, *codes, largest, nan)
    sign = codes[0]
    for code in codes[1:] if xorsign else ():
        sign = sign ^ code
    if ftz:
        codes = tuple(rounded.flushed(w, t, code) for code in codes)
    pick = w.maximum if largest else w.minimum
    # A NaN loses against every number: it takes the far end of the order.
    lost = -1 << (t.bits - 1) if largest else (1 << (t.bits - 1)) - 1
    word = f"int{t.bits}"
    ordinals, nans = [], []
    for code in codes:
        magnitude = rounded.magnitudes(t, code)
        is_nan = rounded.are_nans(t, code)
        ordinal = magnitude.view(word) if abs else _ordinals(t, code.view(word))
        ordinals.append(w.put(is_nan, lost, ordinal))
        nans.append(is_nan)
    best, is_lost = reduce(pick, ordinals), reduce(operator.or_ if nan else operator.and_, nans)
    if abs:
        out = rounded.magnitudes(t, best.view(t.dtype))
        out = out | rounded.signs(t, sign) if xorsign else out
    else:
        out = _ordinals(t, best).view(t.dtype)
    return rounded.with_nans(w, t, out, is_lost, *reversed(codes))


def _extreme_pair(w: Words, t: ScalarType, a: Word, b: Word, largest: bool, nan: bool) -> Word:
    """Two codes of f32 or f64, by the extremes of numbers."""
    x, y = a.view(t.values), b.view(t.values)
    best = (w.maximum if largest else w.minimum)(x, y)
    lost = (x != x) | (y != y) if nan else best != best
    return rounded.with_nans(w, t, best.view(t.dtype), lost, b, a)


def _ordinals(t: ScalarType, codes: Word) -> Word:
    """`_ordinal` of signed words, and back: the bits of a negative one but its sign are flipped."""
    return codes ^ (codes >> t.bits - 1 & t.format.sign_mask - 1)
