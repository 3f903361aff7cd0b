"""Comparisons, selections, signs, minimum and maximum: PTX ISA 9.7.3, 9.7.4, 9.7.6 and 9.7.7."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dtypes import Array, Number, NumberClass
from emulator.arith.scalar import exact, rounded
from emulator.arith.scalar.rule import packed_rule, rule
from emulator.arith.scalar.types import ScalarType, select

_ZERO, _FINITE, _INFINITE, _NAN = NumberClass

# --- comparisons ----------------------------------------------------------------------------------

#: comparison -> its Python and NumPy operator; unsigned ones have names of their own
_ORDERS = {
    "eq": "eq", "ne": "ne", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge",
    "lo": "lt", "ls": "le", "hi": "gt", "hs": "ge",
    "equ": "eq", "neu": "ne", "ltu": "lt", "leu": "le", "gtu": "gt", "geu": "ge",
}  # fmt: skip
_ON_NUMBERS: dict[str, Callable[[Any, Any], bool]] = {
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b, "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
}  # fmt: skip
_ON_ARRAYS = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less,
    "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip
_COMBINATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "": lambda result, c: result,
    "and": lambda result, c: result & c,
    "or": lambda result, c: result | c,
    "xor": lambda result, c: result ^ c,
}


def holds(t: ScalarType, a: int, b: int, compare: str, ftz: bool) -> int:
    """9.7.6: a comparison with a NaN is false (also ne), or true if its name ends with u; num and
    nan ask whether both are numbers or any is none."""
    if not t.is_float:
        return int(_ON_NUMBERS[_ORDERS[compare]](t.number(a), t.number(b)))
    x, y = exact.read(t.format, a, ftz), exact.read(t.format, b, ftz)
    unordered = _NAN in (x.number_class, y.number_class)
    if compare in ("num", "nan"):
        return int(unordered == (compare == "nan"))
    if unordered:
        return int(compare.endswith("u"))
    return int(_ON_NUMBERS[_ORDERS[compare]](_place(t, x), _place(t, y)))


def _place(t: ScalarType, x: Number) -> tuple[int, Any]:
    """Where a number that is no NaN stands in the order of all."""
    if x.number_class == _INFINITE:
        return (-1 if x.sign else 1), 0
    return 0, exact.value(t.format, x)


def holds_array(t: ScalarType, a: Array, b: Any, compare: str, ftz: bool) -> Array:
    if not t.is_float:
        return _ON_ARRAYS[_ORDERS[compare]](a.view(t.values), b.view(t.values))
    x, y = rounded.values(t, a, ftz), rounded.values(t, b, ftz)
    if compare in ("num", "nan"):
        unordered = np.isnan(x) | np.isnan(y)
        return unordered if compare == "nan" else ~unordered
    out = _ON_ARRAYS[_ORDERS[compare]](x, y)
    if compare == "ne":
        out = out & (x == x) & (y == y)
    elif compare.endswith("u") and compare != "neu":
        out = out | (x != x) | (y != y)
    return out


@packed_rule
def setp(
    t: ScalarType, a: int, b: int, c: int = 1, *, compare: str = "", combine: str = "",
    ftz: bool = False,
) -> tuple[int, int]:  # fmt: skip
    """9.7.6.2: whether a and b compare so, combined with c, and whether they do not.

    Of a packed type the results are those of its lower and its upper elements (measured).
    """
    combination = _COMBINATIONS[combine]
    e = t.element
    if t.count > 1:
        low, high = (
            holds(e, a >> shift & e.mask, b >> shift & e.mask, compare, ftz)
            for shift in (0, e.bits)
        )
        return combination(low, c), combination(high, c)
    result = holds(e, a, b, compare, ftz)
    return combination(result, c), combination(1 - result, c)


@setp.vector
def _(
    t: ScalarType, a: Array, b: Array, c: Any = 1, *, compare: str = "", combine: str = "",
    ftz: bool = False,
) -> tuple[Array, Array]:  # fmt: skip
    combination = _COMBINATIONS[combine]
    e = t.element
    if t.count > 1:
        shift = t.dtype.type(e.bits)
        low = holds_array(e, a.astype(e.dtype), b.astype(e.dtype), compare, ftz)
        high = holds_array(
            e, (a >> shift).astype(e.dtype), (b >> shift).astype(e.dtype), compare, ftz
        )
        return combination(low, c), combination(high, c)
    result = holds_array(e, a, b, compare, ftz)
    return combination(result, c), combination(~result, c)


@packed_rule
def set_(
    d: ScalarType, t: ScalarType, a: int, b: int, c: int = 1, *, compare: str = "",
    combine: str = "", ftz: bool = False,
) -> int:  # fmt: skip
    """9.7.6.1: all ones, or 1.0 of a floating-point destination, where a and b compare so.

    Of packed elements every one is compared; an integer destination has 16 bits for each.
    """
    out, e, width = 0, t.element, d.size // t.count
    true = d.format.bias << d.format.mantissa_bits if d.is_float else (1 << width) - 1
    for i in range(t.count):
        x, y = a >> i * e.bits & e.mask, b >> i * e.bits & e.mask
        if _COMBINATIONS[combine](holds(e, x, y, compare, ftz), c):
            out |= true << i * width
    return out


@set_.vector
def _(
    d: ScalarType, t: ScalarType, a: Array, b: Array, c: Any = True, *, compare: str = "",
    combine: str = "", ftz: bool = False,
) -> Array:  # fmt: skip
    out, e, width = np.zeros((), d.dtype), t.element, d.size // t.count
    true = d.format.bias << d.format.mantissa_bits if d.is_float else (1 << width) - 1
    for i in range(t.count):
        shift = t.dtype.type(i * e.bits)
        x, y = (a >> shift).astype(e.dtype), (b >> shift).astype(e.dtype)
        result = _COMBINATIONS[combine](holds_array(e, x, y, compare, ftz), c)
        out = out | np.where(result, d.dtype.type(true << i * width), d.dtype.type(0))
    return out


# --- selections -----------------------------------------------------------------------------------


@packed_rule
def selp(t: ScalarType, a: int, b: int, c: int) -> int:
    """9.7.6.3: a where the predicate c is true, else b."""
    return a if c else b


@selp.vector
def _(t: ScalarType, a: Array, b: Array, c: Array) -> Array:
    return select(c, a, b)


@packed_rule
def slct(t: ScalarType, condition: ScalarType, a: int, b: int, c: int, *, ftz: bool = False) -> int:
    """9.7.6.4: a where c >= 0, else b. -0 counts as 0; a NaN selects b."""
    return a if holds(condition, c, 0, "ge", ftz) else b


@slct.vector
def _(
    t: ScalarType, condition: ScalarType, a: Array, b: Array, c: Array, *, ftz: bool = False
) -> Array:
    return select(holds_array(condition, c, condition.dtype.type(0), "ge", ftz), a, b)


# --- tests of numbers, signs ----------------------------------------------------------------------


@rule
def testp(t: ScalarType, a: int, *, test: str = "") -> int:
    """9.7.3.1. Zeros are normal here (measured)."""
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
        }[test]
    )


@testp.vector
def _(t: ScalarType, a: Array, *, test: str = "") -> Array:
    x = rounded.values(t, a)
    if test == "finite":
        return np.isfinite(x)
    if test == "infinite":
        return np.isinf(x)
    if test in ("number", "notanumber"):
        return np.isnan(x) == (test == "notanumber")
    subnormal = (x != 0) & (np.abs(x) < 2.0**t.format.emin)
    return subnormal if test == "subnormal" else np.isfinite(x) & ~subnormal


@rule
def copysign(t: ScalarType, a: int, b: int) -> int:
    """9.7.3.2: the sign of a and the magnitude of b, whatever they are."""
    sign = t.format.sign_mask
    return a & sign | b & ~sign


@copysign.vector
def _(t: ScalarType, a: Array, b: Array) -> Array:
    sign = t.dtype.type(t.format.sign_mask)
    return (a & sign) | (b & ~sign)


@rule
def absolute(t: ScalarType, a: int, *, ftz: bool = False) -> int:
    """9.7.3.9, abs. A NaN is canonical; of f64 it is made quiet and keeps its sign (measured)."""
    return _with_sign(t, a, ftz, lambda sign: 0)


@absolute.vector
def _(t: ScalarType, a: Array, *, ftz: bool = False) -> Array:
    a = rounded.flushed(t, a) if ftz else a
    out = a & t.dtype.type(t.format.sign_mask - 1)
    return rounded.with_nans(t, out, np.isnan(rounded.values(t, a)), a)


@rule
def neg(t: ScalarType, a: int, *, ftz: bool = False) -> int:
    """9.7.3.10. A NaN is canonical; of f64 it is made quiet and keeps its sign (measured)."""
    return _with_sign(t, a, ftz, lambda sign: 1 - sign)


@neg.vector
def _(t: ScalarType, a: Array, *, ftz: bool = False) -> Array:
    a = rounded.flushed(t, a) if ftz else a
    out = a ^ t.dtype.type(t.format.sign_mask)
    return rounded.with_nans(t, out, np.isnan(rounded.values(t, a)), a)


def _with_sign(t: ScalarType, a: int, ftz: bool, sign: Callable[[int], int]) -> int:
    x = exact.read(t.format, a, ftz)
    if x.number_class == _NAN:
        return exact.nan_of(t.format, a)
    magnitude = 0 if x.number_class == _ZERO else a & ~t.format.sign_mask
    return magnitude | exact.zero(t.format, sign(x.sign))


# --- min, max -------------------------------------------------------------------------------------


@rule
def minimum(
    t: ScalarType, a: int, b: int, c: int | None = None, *, ftz: bool = False, nan: bool = False,
    xorsign: bool = False, abs: bool = False,
) -> int:  # fmt: skip
    """9.7.3.11, min of two or three. A number wins against a NaN, unless .NaN is given; -0 is less
    than +0. .xorsign.abs compares magnitudes and gives the result the signs' exclusive or."""
    return _extreme(t, (a, b) if c is None else (a, b, c), -1, ftz, nan, xorsign, abs)


@minimum.vector
def _(
    t: ScalarType, a: Array, b: Array, c: Array | None = None, *, ftz: bool = False,
    nan: bool = False, xorsign: bool = False, abs: bool = False,
) -> Array:  # fmt: skip
    return extremes(t, (a, b) if c is None else (a, b, c), False, ftz, nan, xorsign, abs)


@rule
def maximum(
    t: ScalarType, a: int, b: int, c: int | None = None, *, ftz: bool = False, nan: bool = False,
    xorsign: bool = False, abs: bool = False,
) -> int:  # fmt: skip
    """9.7.3.12, max of two or three; as `minimum`."""
    return _extreme(t, (a, b) if c is None else (a, b, c), 1, ftz, nan, xorsign, abs)


@maximum.vector
def _(
    t: ScalarType, a: Array, b: Array, c: Array | None = None, *, ftz: bool = False,
    nan: bool = False, xorsign: bool = False, abs: bool = False,
) -> Array:  # fmt: skip
    return extremes(t, (a, b) if c is None else (a, b, c), True, ftz, nan, xorsign, abs)


def _extreme(
    t: ScalarType, codes: tuple[int, ...], direction: int, ftz: bool, nan: bool, xorsign: bool,
    abs: bool,
) -> int:  # fmt: skip
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


def extremes(
    t: ScalarType, codes: tuple[Array, ...], largest: bool, ftz: bool, nan: bool, xorsign: bool,
    abs: bool,
) -> Array:  # fmt: skip
    """The smallest or largest of several codes."""
    if len(codes) == 2 and t.bits > 16 and not (ftz or abs):
        return _extreme_pairs(t, *codes, largest, nan)
    sign_mask, kind = t.dtype.type(t.format.sign_mask), np.dtype(f"int{t.bits}")
    sign = codes[0] & sign_mask
    if xorsign:
        for code in codes[1:]:
            sign = sign ^ code & sign_mask
    if ftz:
        codes = tuple(rounded.flushed(t, code) for code in codes)
    pick = np.maximum if largest else np.minimum
    # A NaN loses against every number: it takes the far end of the order.
    lost = kind.type(np.iinfo(kind).min if largest else np.iinfo(kind).max)
    best: Array | None = None
    all_nan: Any = np.True_
    any_nan: Any = np.False_
    for code in codes:
        magnitude = (code & ~sign_mask).view(kind)
        ordinal = magnitude if abs else _ordinals(code.view(kind))
        is_nan = magnitude > kind.type(t.format.infinity or 0)
        if is_nan.any():
            ordinal = select(is_nan, lost, ordinal)
        best = ordinal if best is None else pick(best, ordinal)
        all_nan, any_nan = all_nan & is_nan, any_nan | is_nan
    assert best is not None
    if abs:
        out = best.view(t.dtype) & ~sign_mask
        out = out | sign if xorsign else out
    else:
        out = _ordinals(best).view(t.dtype)
    return rounded.with_nans(t, out, any_nan if nan else all_nan, *reversed(codes))


def _extreme_pairs(t: ScalarType, a: Array, b: Array, largest: bool, nan: bool) -> Array:
    """Two codes of f32 or f64, by NumPy's own functions, which do not order zeros."""
    x, y = a.view(t.values), b.view(t.values)
    best = (np.maximum if largest else np.minimum)(x, y)
    out, lost = best.view(t.dtype), np.isnan(best)
    if not nan and lost.any():
        # A number wins. By fmin and fmax of Arm it would not, against a signalling NaN.
        out = select(np.isnan(x), b, select(np.isnan(y), a, out))
        best = out.view(t.values)
        lost = np.isnan(best)
    zero = best == 0
    if zero.any():
        out = select(zero & (x == y), a & b if largest else a | b, out)
    return rounded.with_nans(t, out, lost, b, a)


def _ordinals(codes: Array) -> Array:
    """`_ordinal` of signed words, and back: the bits of a negative one but its sign are flipped."""
    kind = codes.dtype.type
    return codes ^ (codes >> kind(8 * codes.itemsize - 1) & kind(np.iinfo(codes.dtype).max))
