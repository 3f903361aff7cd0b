"""Video instructions: PTX ISA 9.7.18. Selectors of operands are modifiers of the rules.

Since sm_50 these are sequences that ptxas writes, and the scalar ones follow neither the manual nor
one idea. Their rules here were read off those sequences (ptxas 13.0, sm_90a) and give what an H200
returned in all recorded forms; forms with a secondary operation and a selector at once were not
recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from emulator.arith.scalar.comparison import OPERATORS
from emulator.arith.scalar.rule import rule
from emulator.arith.scalar.types import ScalarType
from emulator.arith.scalar.words import Operand, Word, Words

_ALL = 0xFFFFFFFF


class Video(NamedTuple):
    """The modifiers of a video instruction, of which each has some."""

    #: the opcode, what vset compares for, and .clamp or .wrap of a shift
    name: str = ""
    compare: str = ""
    mode: str = ""
    sat: bool = False
    #: of vmad: one more, and the shift to the right
    po: bool = False
    scale: str = ""
    #: the parts of words that d, a and b are, and the operation of the result with c
    dsel: str = ""
    asel: str = ""
    bsel: str = ""
    operation: str = ""


PLAIN = Video()

# --- one result -----------------------------------------------------------------------------------


@rule
def arithmetic(
    to: ScalarType,
    ta: ScalarType,
    tb: ScalarType,
    a: int,
    b: int,
    c: int = 0,
    *,
    how: Video = PLAIN,
) -> int:
    """vadd, vsub, vabsdiff, vmin and vmax of two parts of words.

    A sum or difference wraps where it is not .sat, to 32 bits that are signed; .sat of .u32 makes a
    negative result 0 and lets sums and differences wrap then. What .sat does for a part of d: a
    result that does not fit, also a negative one, becomes the part's largest number.
    """
    exact = _RESULTS[how.name](_part(ta, a, how.asel), _part(tb, b, how.bsel))
    if how.dsel:
        return _merge(how.dsel, _fitting(to, exact, how.dsel) if how.sat else exact, c)
    if how.sat:
        exact = to.clamp(exact) if to.signed else max(exact, 0)
    wraps = how.name in ("vadd", "vsub") and not (how.sat and to.signed)
    result = _signed(exact, 32) if wraps else exact
    return _with_c(to, result, c, how)


@arithmetic.words
def _(
    w: Words,
    to: ScalarType,
    ta: ScalarType,
    tb: ScalarType,
    a: Word,
    b: Word,
    c: Operand = 0,
    *,
    how: Video = PLAIN,
) -> Word:
    exact = _WORD_RESULTS[how.name](w, _parts(ta, a, how.asel), _parts(tb, b, how.bsel))
    if how.dsel:
        top = _top(to, how.dsel)
        exact = w.select((exact < 0) | (exact > top), top, exact) if how.sat else exact
        return _merged(how.dsel, exact, c)
    if how.sat:
        exact = _clamped(w, to, exact) if to.signed else w.maximum(exact, 0)
    if how.name in ("vadd", "vsub") and not (how.sat and to.signed):
        exact = _low_signed(exact)
    return _words_with_c(w, to, exact, c, how)


_RESULTS: dict[str, Callable[[int, int], int]] = {
    "vadd": lambda x, y: x + y,
    "vsub": lambda x, y: x - y,
    "vabsdiff": lambda x, y: abs(x - y),
    "vmin": min,
    "vmax": max,
}
_WORD_RESULTS: dict[str, Callable[[Words, Word, Word], Word]] = {
    "vadd": lambda w, x, y: x + y,
    "vsub": lambda w, x, y: x - y,
    "vabsdiff": lambda w, x, y: abs(x - y),
    "vmin": lambda w, x, y: w.minimum(x, y),
    "vmax": lambda w, x, y: w.maximum(x, y),
    "vavrg": lambda w, x, y: _averages(w, x + y),
}


@rule
def shift(
    to: ScalarType,
    ta: ScalarType,
    tb: ScalarType,
    a: int,
    b: int,
    c: int = 0,
    *,
    how: Video = PLAIN,
) -> int:
    """vshl and vshr by at most 32 bits (.clamp) or modulo 32 (.wrap); .sat looks at 34 bits, and
    makes 32 bits that are signed."""
    amount = _part(tb, b, how.bsel)
    amount = min(amount, 32) if how.mode == "clamp" else amount & 31
    x = _part(ta, a, how.asel)
    result = _signed(x << amount, 64) if how.name == "vshl" else x >> amount
    if how.sat:
        result = _signed(to.clamp(_signed(result, 34)), 32)
    return _with_c(to, result, c, how)


@shift.words
def _(
    w: Words,
    to: ScalarType,
    ta: ScalarType,
    tb: ScalarType,
    a: Word,
    b: Word,
    c: Operand = 0,
    *,
    how: Video = PLAIN,
) -> Word:
    amount = _parts(tb, b, how.bsel)
    amount = w.minimum(amount, 32) if how.mode == "clamp" else amount & 31
    x = _parts(ta, a, how.asel)
    result = x << amount if how.name == "vshl" else x >> amount
    if how.sat:
        result = _low_signed(_clamped(w, to, result << 30 >> 30))
    return _words_with_c(w, to, result, c, how)


@rule
def multiply(
    to: ScalarType, ta: ScalarType, tb: ScalarType, a: int, b: int, c: int, *, how: Video = PLAIN
) -> int:
    """vmad: a·b + c, one more with .po, shifted right by .shr7 or .shr15.

    Whole words are signed whatever their types say. .sat clamps to 32 bits that are signed if a
    factor is, and then shifts signed words before it.
    """
    x, y = (
        _signed(w, 32) if not s else _part(t, w, s)
        for t, w, s in ((ta, a, how.asel), (tb, b, how.bsel))
    )
    total = x * y + _signed(c, 32) + how.po
    shift = int(how.scale.removeprefix("shr") or 0)
    if how.sat:
        to = ta if ta.signed else tb
    if not to.signed and shift:
        total &= (1 << 64) - 1
    total >>= shift
    return (to.clamp(total) if how.sat else total) & _ALL


@multiply.words
def _(
    w: Words,
    to: ScalarType,
    ta: ScalarType,
    tb: ScalarType,
    a: Word,
    b: Word,
    c: Word,
    *,
    how: Video = PLAIN,
) -> Word:
    x, y = (
        _parts(t, word, s) if s else word.view(np.int32).astype(np.int64)
        for t, word, s in ((ta, a, how.asel), (tb, b, how.bsel))
    )
    total = x * y + c.view(np.int32).astype(np.int64)
    total = total + 1 if how.po else total
    if how.sat:
        to = ta if ta.signed else tb
    if how.scale:
        kind = np.dtype(np.int64 if to.signed else np.uint64)
        total = (total.view(kind) >> int(how.scale.removeprefix("shr"))).view(np.int64)
    return (_clamped(w, to, total) if how.sat else total).astype(np.uint32)


@rule
def compare(
    ta: ScalarType, tb: ScalarType, a: int, b: int, c: int = 0, *, how: Video = PLAIN
) -> int:
    """vset: 1 where two parts of words compare so, else 0."""
    result = int(OPERATORS[how.compare](_part(ta, a, how.asel), _part(tb, b, how.bsel)))
    return _with_c(ta, result, c, how)


@compare.words
def _(
    w: Words,
    ta: ScalarType,
    tb: ScalarType,
    a: Word,
    b: Word,
    c: Operand = 0,
    *,
    how: Video = PLAIN,
) -> Word:
    result = OPERATORS[how.compare](_parts(ta, a, how.asel), _parts(tb, b, how.bsel)).astype(
        np.int64
    )
    return _words_with_c(w, ta, result, c, how)


# --- two or four results --------------------------------------------------------------------------


@rule
def lanes(
    to: ScalarType, ta: ScalarType, tb: ScalarType, a: int, b: int, c: int, *, how: Video = PLAIN
) -> int:
    """vadd2, vadd4 and the like: two halves or four bytes at once; .sat clamps each.

    What the mask of d leaves out is taken from c; with .add the results, not wrapped, and c are
    added up. vavrg rounds a half away from zero (measured).
    """
    pairs = zip(*_lanes_of(ta, tb, a, b, how), strict=True)
    exact = [_LANE_RESULTS[how.name[:-1]](x, y) for x, y in pairs]
    return _assemble(to, exact, c, how)


@lanes.words
def _(
    w: Words,
    to: ScalarType,
    ta: ScalarType,
    tb: ScalarType,
    a: Word,
    b: Word,
    c: Word,
    *,
    how: Video = PLAIN,
) -> Word:
    pairs = zip(*_word_lanes_of(ta, tb, a, b, how), strict=True)
    exact = [_WORD_RESULTS[how.name[:-1]](w, x, y) for x, y in pairs]
    return _assembled(w, to, exact, c, how)


@rule
def compare_lanes(
    ta: ScalarType, tb: ScalarType, a: int, b: int, c: int, *, how: Video = PLAIN
) -> int:
    """vset2 and vset4: 1 for each half or byte that compares so; else as `lanes`."""
    pairs = zip(*_lanes_of(ta, tb, a, b, how), strict=True)
    exact = [int(OPERATORS[how.compare](x, y)) for x, y in pairs]
    return _assemble(ta, exact, c, how)


@compare_lanes.words
def _(
    w: Words, ta: ScalarType, tb: ScalarType, a: Word, b: Word, c: Word, *, how: Video = PLAIN
) -> Word:
    pairs = zip(*_word_lanes_of(ta, tb, a, b, how), strict=True)
    exact = [OPERATORS[how.compare](x, y).astype(np.int64) for x, y in pairs]
    return _assembled(w, ta, exact, c, how)


def _average(x: int, y: int) -> int:
    total = x + y
    return (total + 1) // 2 if total >= 0 else -((1 - total) // 2)


def _averages(w: Words, total: Word) -> Word:
    half = abs(total) + 1 >> 1
    return w.select(total < 0, -half, half)


_LANE_RESULTS: dict[str, Callable[[int, int], int]] = {**_RESULTS, "vavrg": _average}


# --- parts of words -------------------------------------------------------------------------------


def _signed(number: int, bits: int) -> int:
    """The low bits of an integer as a signed number."""
    low = number & (1 << bits) - 1
    return low - (1 << bits) if low >> (bits - 1) else low


def _low_signed(numbers: Word) -> Word:
    return numbers.astype(np.int32).astype(np.int64)


def _span(selector: str) -> tuple[int, int]:
    """First bit and width of a part: ``b2`` is byte 2, ``h1`` the upper half, "" all."""
    width = {"": 32, "b": 8, "h": 16}[selector[:1]]
    return width * int(selector[1:] or 0), width


def _part(t: ScalarType, word: int, selector: str) -> int:
    first, width = _span(selector)
    part = word >> first & (1 << width) - 1
    return _signed(part, width) if t.signed else part


def _parts(t: ScalarType, words: Word, selector: str) -> Word:
    first, width = _span(selector)
    return _field(t, words.astype(np.uint64), first, width)


def _field(t: ScalarType, words: Word, first: int, width: int) -> Word:
    """Bits of words of 64 as numbers."""
    kind = np.dtype(np.int64 if t.signed else np.uint64)
    at_top = (words << 64 - first - width).view(kind)
    return (at_top >> 64 - width).view(np.int64)


def _clamped(w: Words, to: ScalarType, numbers: Word) -> Word:
    return w.minimum(w.maximum(numbers, to.smallest), to.largest)


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


def _merged(selector: str, results: Word, c: Word) -> Word:
    first, width = _span(selector)
    mask = (1 << width) - 1 << first
    return c & (mask ^ _ALL) | (results << first).astype(np.uint32) & mask


def _with_c(to: ScalarType, result: int, c: int, how: Video) -> int:
    """c with the result as a part, or the result combined with c: compared as 64 bits, signed or
    not as the type is."""
    if how.dsel:
        return _merge(how.dsel, result, c)
    if how.operation in ("min", "max"):
        other = to.number(c)
        order = (lambda v: v) if to.signed else (lambda v: v & (1 << 64) - 1)
        pick = min if how.operation == "min" else max
        result = pick(other, result, key=order)
    elif how.operation == "add":
        result += c
    return result & _ALL


def _words_with_c(w: Words, to: ScalarType, results: Word, c: Operand, how: Video) -> Word:
    if how.dsel:
        return _merged(how.dsel, results, c)
    if how.operation in ("min", "max"):
        kind = np.dtype(np.int64 if to.signed else np.uint64)
        pick = w.minimum if how.operation == "min" else w.maximum
        results = pick(c.view(to.values).astype(np.int64).view(kind), results.view(kind))
    elif how.operation == "add":
        results = results + c.astype(np.int64)
    return results.astype(np.uint32)


def _lanes_of(
    ta: ScalarType, tb: ScalarType, a: int, b: int, how: Video
) -> tuple[list[int], list[int]]:
    """The parts that each result is made of, the lowest first; selectors name them in the pair
    b:a, the highest first, and without them both words are taken in order."""
    width, pair = 32 // _count(how), b << 32 | a
    first, second = (
        [
            _signed(pair >> p * width, width) if t.signed else pair >> p * width & (1 << width) - 1
            for p in which
        ]
        for t, which in zip((ta, tb), _places(how), strict=True)
    )
    return first, second


def _word_lanes_of(
    ta: ScalarType, tb: ScalarType, a: Word, b: Word, how: Video
) -> tuple[list[Word], list[Word]]:
    width, pair = 32 // _count(how), b.astype(np.uint64) << 32 | a.astype(np.uint64)
    first, second = (
        [_field(t, pair, width * p, width) for p in which]
        for t, which in zip((ta, tb), _places(how), strict=True)
    )
    return first, second


def _count(how: Video) -> int:
    """The number of results, with which the opcode ends."""
    return int(how.name[-1])


def _places(how: Video) -> tuple[list[int], list[int]]:
    """The places of the parts of a and of b in their pair."""
    count = _count(how)
    first, second = (
        [int(x) for x in reversed(selector[1:])] or list(range(start, start + count))
        for selector, start in ((how.asel, 0), (how.bsel, count))
    )
    return first, second


def _kept(how: Video) -> list[int]:
    """The results that a mask such as ``b31`` keeps."""
    return [int(x) for x in how.dsel[1:]] or list(range(_count(how)))


def _clamp_lane(to: ScalarType, width: int) -> tuple[int, int]:
    low = -(1 << width - 1) if to.signed else 0
    return low, low + (1 << width) - 1


def _assemble(to: ScalarType, exact: list[int], c: int, how: Video) -> int:
    """Results put into a word, or added up; with .sat clamped to the type."""
    width = 32 // _count(how)
    if how.sat:
        low, high = _clamp_lane(to, width)
        exact = [min(max(x, low), high) for x in exact]
    if how.operation == "add":
        return c + sum(exact[i] for i in _kept(how)) & _ALL
    out = c
    for i in _kept(how):
        field = (1 << width) - 1 << i * width
        out = out & ~field | exact[i] << i * width & field
    return out & _ALL


def _assembled(w: Words, to: ScalarType, exact: list[Word], c: Word, how: Video) -> Word:
    width = 32 // _count(how)
    if how.sat:
        low, high = _clamp_lane(to, width)
        exact = [w.minimum(w.maximum(x, low), high) for x in exact]
    out = c
    for i in _kept(how):
        part = exact[i].astype(np.uint32)
        if how.operation == "add":
            out = out + part
        else:
            field = (1 << width) - 1 << i * width
            out = out & (field ^ _ALL) | part << i * width & field
    return out
