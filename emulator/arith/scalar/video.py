"""Video instructions: PTX ISA 9.7.18. Selectors of operands are modifiers of the rules.

Since sm_50 these are sequences that ptxas writes, and the scalar ones follow neither the manual nor
one idea. Their rules here were read off those sequences (ptxas 13.0, sm_90a) and give what an H200
returned in all recorded forms; forms with a secondary operation and a selector at once were not
recorded.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dtypes import Array
from emulator.arith.scalar.rule import rule
from emulator.arith.scalar.types import ScalarType

_ALL = 0xFFFFFFFF

# --- one result -----------------------------------------------------------------------------------


@rule
def arithmetic(
    to: ScalarType, ta: ScalarType, tb: ScalarType, a: int, b: int, c: int = 0, *, name: str = "",
    sat: bool = False, operation: str = "", dsel: str = "", asel: str = "", bsel: str = "",
) -> int:  # fmt: skip
    """vadd, vsub, vabsdiff, vmin and vmax of two parts of words.

    A sum or difference wraps where it is not .sat, to 32 bits that are signed; .sat of .u32 makes a
    negative result 0 and lets sums and differences wrap then. What .sat does for a part of d: a
    result that does not fit, also a negative one, becomes the part's largest number.
    """
    exact = _RESULTS[name](_part(ta, a, asel), _part(tb, b, bsel))
    if dsel:
        return _merge(dsel, _fitting(to, exact, dsel) if sat else exact, c)
    if sat:
        exact = to.clamp(exact) if to.signed else max(exact, 0)
    wraps = name in ("vadd", "vsub") and not (sat and to.signed)
    result = _signed(exact, 32) if wraps else exact
    return _secondary(to, result, c, operation)


@arithmetic.vector
def _(
    to: ScalarType, ta: ScalarType, tb: ScalarType, a: Array, b: Array, c: Any = 0, *,
    name: str = "", sat: bool = False, operation: str = "", dsel: str = "", asel: str = "",
    bsel: str = "",
) -> Array:  # fmt: skip
    exact = _ARRAY_RESULTS[name](_parts(ta, a, asel), _parts(tb, b, bsel))
    if dsel:
        top = _top(to, dsel)
        return _merged(dsel, np.where((exact < 0) | (exact > top), top, exact) if sat else exact, c)
    if sat:
        exact = np.clip(exact, to.smallest, to.largest) if to.signed else np.maximum(exact, 0)
    if name in ("vadd", "vsub") and not (sat and to.signed):
        exact = _low_signed(exact)
    return _secondaries(to, exact, c, operation)


_RESULTS: dict[str, Any] = {
    "vadd": lambda x, y: x + y,
    "vsub": lambda x, y: x - y,
    "vabsdiff": lambda x, y: abs(x - y),
    "vmin": min,
    "vmax": max,
}
_ARRAY_RESULTS: dict[str, Any] = {
    **_RESULTS,
    "vmin": np.minimum,
    "vmax": np.maximum,
}


@rule
def shift(
    to: ScalarType, ta: ScalarType, tb: ScalarType, a: int, b: int, c: int = 0, *, name: str = "",
    mode: str = "", sat: bool = False, operation: str = "", dsel: str = "", asel: str = "",
    bsel: str = "",
) -> int:  # fmt: skip
    """vshl and vshr by at most 32 bits (.clamp) or modulo 32 (.wrap); .sat looks at 34 bits, and
    makes 32 bits that are signed."""
    amount = _part(tb, b, bsel)
    amount = min(amount, 32) if mode == "clamp" else amount & 31
    x = _part(ta, a, asel)
    result = _signed(x << amount, 64) if name == "vshl" else x >> amount
    if sat:
        result = _signed(to.clamp(_signed(result, 34)), 32)
    return _merge(dsel, result, c) if dsel else _secondary(to, result, c, operation)


@shift.vector
def _(
    to: ScalarType, ta: ScalarType, tb: ScalarType, a: Array, b: Array, c: Any = 0, *,
    name: str = "", mode: str = "", sat: bool = False, operation: str = "", dsel: str = "",
    asel: str = "", bsel: str = "",
) -> Array:  # fmt: skip
    amount = _parts(tb, b, bsel)
    amount = np.minimum(amount, 32) if mode == "clamp" else amount & 31
    x = _parts(ta, a, asel)
    result = x << amount if name == "vshl" else x >> amount
    if sat:
        result = result << np.int64(30) >> np.int64(30)
        result = _low_signed(np.clip(result, to.smallest, to.largest))
    return _merged(dsel, result, c) if dsel else _secondaries(to, result, c, operation)


@rule
def multiply(
    to: ScalarType, ta: ScalarType, tb: ScalarType, a: int, b: int, c: int, *, po: bool = False,
    sat: bool = False, scale: str = "", asel: str = "", bsel: str = "",
) -> int:  # fmt: skip
    """vmad: a·b + c, one more with .po, shifted right by .shr7 or .shr15.

    Whole words are signed whatever their types say. Of unsigned factors .sat clamps to 32 unsigned
    bits; they, or an unsigned result, are shifted as 64 unsigned bits before it.
    """
    x, y = (
        _signed(w, 32) if not s else _part(t, w, s) for t, w, s in ((ta, a, asel), (tb, b, bsel))
    )
    total = x * y + _signed(c, 32) + po
    shift = int(scale.removeprefix("shr") or 0)
    if sat and not ta.signed and not tb.signed:
        to = ta
    if not to.signed and shift:
        total &= (1 << 64) - 1
    total >>= shift
    return (to.clamp(total) if sat else total) & _ALL


@multiply.vector
def _(
    to: ScalarType, ta: ScalarType, tb: ScalarType, a: Array, b: Array, c: Array, *,
    po: bool = False, sat: bool = False, scale: str = "", asel: str = "", bsel: str = "",
) -> Array:  # fmt: skip
    x, y = (
        w.view(np.int32).astype(np.int64) if not s else _parts(t, w, s)
        for t, w, s in ((ta, a, asel), (tb, b, bsel))
    )
    total = x * y + c.view(np.int32) + np.int64(po)
    shift = int(scale.removeprefix("shr") or 0)
    if sat and not ta.signed and not tb.signed:
        to = ta
    if shift and not to.signed:
        total = (total.view(np.uint64) >> np.uint64(shift)).view(np.int64)
    else:
        total = total >> np.int64(shift)
    total = np.clip(total, to.smallest, to.largest) if sat else total
    return total.astype(np.uint32)


@rule
def compare(
    ta: ScalarType, tb: ScalarType, a: int, b: int, c: int = 0, *, compare: str = "",
    operation: str = "", dsel: str = "", asel: str = "", bsel: str = "",
) -> int:  # fmt: skip
    """vset: 1 where two parts of words compare so, else 0."""
    result = int(_COMPARISONS[compare](_part(ta, a, asel), _part(tb, b, bsel)))
    return _merge(dsel, result, c) if dsel else _secondary(ta, result, c, operation)


@compare.vector
def _(
    ta: ScalarType, tb: ScalarType, a: Array, b: Array, c: Any = 0, *, compare: str = "",
    operation: str = "", dsel: str = "", asel: str = "", bsel: str = "",
) -> Array:  # fmt: skip
    result = _COMPARISONS[compare](_parts(ta, a, asel), _parts(tb, b, bsel)).astype(np.int64)
    return _merged(dsel, result, c) if dsel else _secondaries(ta, result, c, operation)


_COMPARISONS: dict[str, Any] = {
    "eq": lambda x, y: x == y, "ne": lambda x, y: x != y, "lt": lambda x, y: x < y,
    "le": lambda x, y: x <= y, "gt": lambda x, y: x > y, "ge": lambda x, y: x >= y,
}  # fmt: skip


# --- two or four results --------------------------------------------------------------------------


@rule
def lanes(
    to: ScalarType, ta: ScalarType, tb: ScalarType, a: int, b: int, c: int, *, name: str = "",
    sat: bool = False, operation: str = "", dsel: str = "", asel: str = "", bsel: str = "",
) -> int:  # fmt: skip
    """vadd2, vadd4 and the like: two halves or four bytes at once; .sat clamps each.

    What the mask of d leaves out is taken from c; with .add the results, not wrapped, and c are
    added up. vavrg rounds a half away from zero (measured).
    """
    count = int(name[-1])
    pairs = zip(*_lanes_of(count, ta, tb, a, b, asel, bsel), strict=True)
    exact = [_LANE_RESULTS[name[:-1]](x, y) for x, y in pairs]
    return _assemble(count, to if sat else None, exact, c, operation, dsel)


@lanes.vector
def _(
    to: ScalarType, ta: ScalarType, tb: ScalarType, a: Array, b: Array, c: Array, *,
    name: str = "", sat: bool = False, operation: str = "", dsel: str = "", asel: str = "",
    bsel: str = "",
) -> Array:  # fmt: skip
    count = int(name[-1])
    pairs = zip(*_array_lanes_of(count, ta, tb, a, b, asel, bsel), strict=True)
    exact = [_ARRAY_LANE_RESULTS[name[:-1]](x, y) for x, y in pairs]
    return _assembled(count, to if sat else None, exact, c, operation, dsel)


@rule
def compare_lanes(
    ta: ScalarType, tb: ScalarType, a: int, b: int, c: int, *, name: str = "", compare: str = "",
    operation: str = "", dsel: str = "", asel: str = "", bsel: str = "",
) -> int:  # fmt: skip
    """vset2 and vset4: 1 for each half or byte that compares so; else as `lanes`."""
    count, test = int(name[-1]), _COMPARISONS[compare]
    pairs = zip(*_lanes_of(count, ta, tb, a, b, asel, bsel), strict=True)
    exact = [int(test(x, y)) for x, y in pairs]
    return _assemble(count, None, exact, c, operation, dsel)


@compare_lanes.vector
def _(
    ta: ScalarType, tb: ScalarType, a: Array, b: Array, c: Array, *, name: str = "",
    compare: str = "", operation: str = "", dsel: str = "", asel: str = "", bsel: str = "",
) -> Array:  # fmt: skip
    count, test = int(name[-1]), _COMPARISONS[compare]
    pairs = zip(*_array_lanes_of(count, ta, tb, a, b, asel, bsel), strict=True)
    exact = [test(x, y).astype(np.int64) for x, y in pairs]
    return _assembled(count, None, exact, c, operation, dsel)


def _average(x: int, y: int) -> int:
    total = x + y
    return (total + 1) // 2 if total >= 0 else -((1 - total) // 2)


def _averages(x: Array, y: Array) -> Array:
    total = x + y
    return np.sign(total) * (np.abs(total) + 1 >> 1)


_LANE_RESULTS: dict[str, Any] = {**_RESULTS, "vavrg": _average}
_ARRAY_LANE_RESULTS: dict[str, Any] = {**_ARRAY_RESULTS, "vavrg": _averages}


# --- parts of words -------------------------------------------------------------------------------


def _signed(number: int, bits: int) -> int:
    """The low bits of an integer as a signed number."""
    low = number & (1 << bits) - 1
    return low - (1 << bits) if low >> (bits - 1) else low


def _low_signed(numbers: Array) -> Array:
    return numbers.astype(np.int32).astype(np.int64)


def _span(selector: str) -> tuple[int, int]:
    """First bit and width of a part: ``b2`` is byte 2, ``h1`` the upper half, "" all."""
    width = {"": 32, "b": 8, "h": 16}[selector[:1]]
    return width * int(selector[1:] or 0), width


def _part(t: ScalarType, word: int, selector: str) -> int:
    first, width = _span(selector)
    part = word >> first & (1 << width) - 1
    return _signed(part, width) if t.signed else part


def _parts(t: ScalarType, words: Array, selector: str) -> Array:
    first, width = _span(selector)
    at_top = np.asarray(words).astype(np.uint64) << np.uint64(64 - first - width)
    kind = np.int64 if t.signed else np.uint64
    return (at_top.view(kind) >> kind(64 - width)).astype(np.int64)


def _top(to: ScalarType, selector: str) -> int:
    """The largest number of a part."""
    return (1 << _span(selector)[1] - to.signed) - 1


def _fitting(to: ScalarType, exact: int, selector: str) -> int:
    top = _top(to, selector)
    return exact if 0 <= exact <= top else top


def _merge(selector: str, result: int, c: int) -> int:
    """c with one of its parts replaced."""
    first, width = _span(selector)
    mask = (1 << width) - 1 << first
    return c & ~mask & _ALL | result << first & mask


def _merged(selector: str, results: Array, c: Array) -> Array:
    first, width = _span(selector)
    mask = np.uint32((1 << width) - 1 << first)
    return c & ~mask | (results << np.int64(first)).astype(np.uint32) & mask


def _secondary(to: ScalarType, result: int, c: int, operation: str) -> int:
    """The result combined with c: compared as 64 bits, signed or not as the type is."""
    if operation in ("min", "max"):
        other = to.number(c)
        order = (lambda v: v) if to.signed else (lambda v: v & (1 << 64) - 1)
        pick = min if operation == "min" else max
        result = pick(other, result, key=order)
    elif operation == "add":
        result += c
    return result & _ALL


def _secondaries(to: ScalarType, results: Array, c: Any, operation: str) -> Array:
    if operation in ("min", "max"):
        kind = np.int64 if to.signed else np.uint64
        other = c.view(to.values).astype(np.int64)
        less = results.view(kind) < other.view(kind)
        results = np.where(less == (operation == "min"), results, other)
    elif operation == "add":
        results = results + c
    return results.astype(np.uint32)


def _lanes_of(
    count: int, ta: ScalarType, tb: ScalarType, a: int, b: int, asel: str, bsel: str
) -> tuple[list[int], list[int]]:
    """The parts that each result is made of, the lowest first; selectors name them in the pair
    b:a, the highest first, and without them both words are taken in order."""
    width, pair = 32 // count, b << 32 | a
    places = _places(count, asel, 0), _places(count, bsel, count)
    first, second = (
        [
            _signed(pair >> p * width, width) if t.signed else pair >> p * width & (1 << width) - 1
            for p in which
        ]
        for t, which in zip((ta, tb), places, strict=True)
    )
    return first, second


def _places(count: int, selector: str, first: int) -> list[int]:
    return [int(x) for x in reversed(selector[1:])] or list(range(first, first + count))


def _array_lanes_of(
    count: int, ta: ScalarType, tb: ScalarType, a: Array, b: Array, asel: str, bsel: str
) -> tuple[list[Array], list[Array]]:
    width, pair = 32 // count, b.astype(np.uint64) << np.uint64(32) | a
    places = _places(count, asel, 0), _places(count, bsel, count)
    out = []
    for t, which in zip((ta, tb), places, strict=True):
        kind = np.int64 if t.signed else np.uint64
        at_top = [pair << np.uint64(64 - width * (p + 1)) for p in which]
        out.append([(x.view(kind) >> kind(64 - width)).astype(np.int64) for x in at_top])
    return out[0], out[1]


def _masked(count: int, mask: str) -> list[int]:
    """The results that a mask such as ``b31`` keeps."""
    return [int(x) for x in mask[1:]] or list(range(count))


def _clamp_lane(to: ScalarType, width: int) -> tuple[int, int]:
    low = -(1 << width - 1) if to.signed else 0
    return low, low + (1 << width) - 1


def _assemble(
    count: int, to: ScalarType | None, exact: list[int], c: int, operation: str, mask: str
) -> int:
    """Results put into a word, or added up; clamped where a type is given."""
    width, kept = 32 // count, _masked(count, mask)
    if to is not None:
        low, high = _clamp_lane(to, width)
        exact = [min(max(x, low), high) for x in exact]
    if operation == "add":
        return c + sum(exact[i] for i in kept) & _ALL
    out = c
    for i in kept:
        field = (1 << width) - 1 << i * width
        out = out & ~field | exact[i] << i * width & field
    return out & _ALL


def _assembled(
    count: int, to: ScalarType | None, exact: list[Array], c: Array, operation: str, mask: str
) -> Array:
    width, kept = 32 // count, _masked(count, mask)
    if to is not None:
        exact = [np.clip(x, *_clamp_lane(to, width)) for x in exact]
    if operation == "add":
        return (sum((exact[i] for i in kept), np.int64(0)) + c).astype(np.uint32)
    out = c.astype(np.int64)
    for i in kept:
        field = (1 << width) - 1 << i * width
        out = out & ~np.int64(field) | exact[i] << np.int64(i * width) & np.int64(field)
    return out.astype(np.uint32)
