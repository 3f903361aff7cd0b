"""Integer arithmetic: PTX ISA 9.7.1, as measured on an H200."""

from __future__ import annotations

import numpy as np

from emulator.arith.scalar.rule import rule
from emulator.arith.scalar.types import ScalarType
from emulator.arith.scalar.words import Word, Words

# --- sums -----------------------------------------------------------------------------------------


@rule
def add(t: ScalarType, a: int, b: int, *, sat: bool = False) -> int:
    """9.7.1.1: a + b, which wraps; .sat clamps it to the range of the type."""
    total = t.number(a) + t.number(b)
    return t.word(t.clamp(total) if sat else total)


@add.words
def _(w: Words, t: ScalarType, a: Word, b: Word, *, sat: bool = False) -> Word:
    return _clamped_sum(w, t, a, b) if sat else a + b


@rule
def sub(t: ScalarType, a: int, b: int, *, sat: bool = False) -> int:
    """9.7.1.2: a - b, which wraps; .sat clamps it to the range of the type."""
    total = t.number(a) - t.number(b)
    return t.word(t.clamp(total) if sat else total)


@sub.words
def _(w: Words, t: ScalarType, a: Word, b: Word, *, sat: bool = False) -> Word:
    return clamped(w, t, wide(t, a) - wide(t, b)) if sat else a - b


@rule
def neg(t: ScalarType, a: int) -> int:
    """9.7.1.12: -a, which wraps."""
    return t.word(-a)


@neg.words
def _(w: Words, t: ScalarType, a: Word) -> Word:
    return -a


@rule
def absolute(t: ScalarType, a: int) -> int:
    """9.7.1.11, abs: the most negative number stays itself."""
    return t.word(abs(t.number(a)))


@absolute.words
def _(w: Words, t: ScalarType, a: Word) -> Word:
    return magnitude(t, a)


@rule
def sad(t: ScalarType, a: int, b: int, c: int) -> int:
    """9.7.1.7: c + |a - b|, which wraps."""
    return t.word(c + abs(t.number(a) - t.number(b)))


@sad.words
def _(w: Words, t: ScalarType, a: Word, b: Word, c: Word) -> Word:
    return c + w.select(a.view(t.values) < b.view(t.values), b - a, a - b)


@rule
def minimum(t: ScalarType, a: int, b: int, *, relu: bool = False) -> int:
    """9.7.1.13, min; .relu makes a negative result 0."""
    out = min(t.number(a), t.number(b))
    return t.word(max(out, 0) if relu else out)


@minimum.words
def _(w: Words, t: ScalarType, a: Word, b: Word, *, relu: bool = False) -> Word:
    out = w.minimum(a.view(t.values), b.view(t.values))
    return (w.maximum(out, 0) if relu else out).view(t.dtype)


@rule
def maximum(t: ScalarType, a: int, b: int, *, relu: bool = False) -> int:
    """9.7.1.14, max; .relu makes a negative result 0."""
    out = max(t.number(a), t.number(b))
    return t.word(max(out, 0) if relu else out)


@maximum.words
def _(w: Words, t: ScalarType, a: Word, b: Word, *, relu: bool = False) -> Word:
    out = w.maximum(a.view(t.values), b.view(t.values))
    return (w.maximum(out, 0) if relu else out).view(t.dtype)


# --- products -------------------------------------------------------------------------------------


@rule
def mul(t: ScalarType, a: int, b: int, *, mode: str = "lo") -> int:
    """9.7.1.3: the lower or upper half of the product, or with .wide all of it."""
    product = t.number(a) * t.number(b)
    if mode == "wide":
        return product & (1 << 2 * t.bits) - 1
    return t.word(product >> t.bits if mode == "hi" else product)


@mul.words
def _(w: Words, t: ScalarType, a: Word, b: Word, *, mode: str = "lo") -> Word:
    return widened(t, a) * widened(t, b) if mode == "wide" else product_half(w, t, a, b, mode)


@rule
def mad(t: ScalarType, a: int, b: int, c: int, *, mode: str = "lo", sat: bool = False) -> int:
    """9.7.1.4: `mul`, plus c; mad.hi.sat.s32 clamps the sum. With .wide c is wide, too."""
    product = t.number(a) * t.number(b)
    if mode == "wide":
        return product + c & (1 << 2 * t.bits) - 1
    total = (product >> t.bits if mode == "hi" else product) + t.number(c)
    return t.word(t.clamp(total) if sat else total)


@mad.words
def _(
    w: Words, t: ScalarType, a: Word, b: Word, c: Word, *, mode: str = "lo", sat: bool = False
) -> Word:
    if mode == "wide":
        return widened(t, a) * widened(t, b) + c
    product = product_half(w, t, a, b, mode)
    return _clamped_sum(w, t, product, c) if sat else product + c


@rule
def clmad(t: ScalarType, a: int, b: int, c: int, *, mode: str = "lo") -> int:
    """The lower or upper half of the carry-less product, that of polynomials over GF(2), xor c."""
    product = 0
    for i in range(t.bits):
        product ^= (b << i) * (a >> i & 1)
    return t.word(product >> t.bits if mode == "hi" else product) ^ c


@clmad.long_words
def _(w: Words, t: ScalarType, a: Word, b: Word, c: Word, *, mode: str = "lo") -> Word:
    out = c
    for i in range(mode == "hi", t.bits):
        part = b >> t.bits - i if mode == "hi" else b << i
        out = out ^ part & -(a >> i & 1)
    return out


@rule
def mul24(t: ScalarType, a: int, b: int, *, mode: str = "lo") -> int:
    """9.7.1.5: bits 31..0 (.lo) or 47..16 (.hi) of the product of the low 24 bits."""
    return t.word(_number24(t, a) * _number24(t, b) >> (16 if mode == "hi" else 0))


@mul24.words
def _(w: Words, t: ScalarType, a: Word, b: Word, *, mode: str = "lo") -> Word:
    return _product24(t, a, b, mode).astype(t.dtype)


@rule
def mad24(t: ScalarType, a: int, b: int, c: int, *, mode: str = "lo", sat: bool = False) -> int:
    """9.7.1.6: `mul24`, plus c; mad24.hi.sat.s32 clamps the sum."""
    total = t.number(_number24(t, a) * _number24(t, b) >> (16 if mode == "hi" else 0))
    total += t.number(c)
    return t.word(t.clamp(total) if sat else total)


@mad24.words
def _(
    w: Words, t: ScalarType, a: Word, b: Word, c: Word, *, mode: str = "lo", sat: bool = False
) -> Word:
    product = _product24(t, a, b, mode).astype(t.dtype)
    return _clamped_sum(w, t, product, c) if sat else product + c


def _number24(t: ScalarType, a: int) -> int:
    low = a & 0xFFFFFF
    return low - (1 << 24) if t.signed and low >> 23 else low


def _product24(t: ScalarType, a: Word, b: Word, mode: str) -> Word:
    x, y = (((word << 8).view(t.values) >> 8).astype(np.int64) for word in (a, b))
    return x * y >> 16 if mode == "hi" else x * y


# --- quotients ------------------------------------------------------------------------------------


@rule
def div(t: ScalarType, a: int, b: int) -> int:
    """9.7.1.8: the quotient cut toward zero. Measured: all ones where b is 0."""
    x, y = t.number(a), t.number(b)
    if y == 0:
        return t.mask
    quotient = abs(x) // abs(y)
    return t.word(-quotient if (x < 0) != (y < 0) else quotient)


@div.long_words
def _(w: Words, t: ScalarType, a: Word, b: Word) -> Word:
    quotient = magnitude(t, a) // magnitude(t, b)
    if t.signed:
        quotient = w.select((a ^ b).view(t.values) < 0, -quotient, quotient)
    return w.select(b == 0, t.mask, quotient)


@rule
def rem(t: ScalarType, a: int, b: int) -> int:
    """9.7.1.9: the remainder, with the sign of a. Measured: all ones where b is 0."""
    x, y = t.number(a), t.number(b)
    if y == 0:
        return t.mask
    remainder = abs(x) % abs(y)
    return t.word(-remainder if x < 0 else remainder)


@rem.long_words
def _(w: Words, t: ScalarType, a: Word, b: Word) -> Word:
    remainder = magnitude(t, a) % magnitude(t, b)
    if t.signed:
        remainder = w.select(a.view(t.values) < 0, -remainder, remainder)
    return w.select(b == 0, t.mask, remainder)


# --- dot products ---------------------------------------------------------------------------------


@rule
def dp4a(ta: ScalarType, tb: ScalarType, a: int, b: int, c: int) -> int:
    """9.7.1.22: c plus the products of the four bytes of a and of b, which wraps."""
    total = c
    for i in range(4):
        total += _part(ta, a, i, 8) * _part(tb, b, i, 8)
    return total & 0xFFFFFFFF


@dp4a.words
def _(w: Words, ta: ScalarType, tb: ScalarType, a: Word, b: Word, c: Word) -> Word:
    total = c
    for i in range(4):
        total = total + _parts(ta, a, i, 8) * _parts(tb, b, i, 8)
    return total


@rule
def dp2a(ta: ScalarType, tb: ScalarType, a: int, b: int, c: int, *, mode: str = "lo") -> int:
    """9.7.1.23: c plus the products of the halves of a and the lower or upper two bytes of b."""
    total, first = c, 2 if mode == "hi" else 0
    for i in range(2):
        total += _part(ta, a, i, 16) * _part(tb, b, first + i, 8)
    return total & 0xFFFFFFFF


@dp2a.words
def _(
    w: Words, ta: ScalarType, tb: ScalarType, a: Word, b: Word, c: Word, *, mode: str = "lo"
) -> Word:
    total, first = c, 2 if mode == "hi" else 0
    for i in range(2):
        total = total + _parts(ta, a, i, 16) * _parts(tb, b, first + i, 8)
    return total


def _part(t: ScalarType, word: int, i: int, bits: int) -> int:
    """Part i of a word as a number, signed as the type is."""
    part = word >> bits * i & (1 << bits) - 1
    return part - (1 << bits) if t.signed and part >> (bits - 1) else part


def _parts(t: ScalarType, words: Word, i: int, bits: int) -> Word:
    """`_part` of every word, modulo 2**32."""
    at_top = words << 32 - bits * (i + 1)
    return (at_top.view(t.values) >> 32 - bits).view(np.uint32)


# --- what the rules share -------------------------------------------------------------------------


def product_half(w: Words, t: ScalarType, a: Word, b: Word, mode: str) -> Word:
    """The lower or upper half of every product."""
    if mode == "lo":
        return a * b
    if t.bits < 64:
        return (widened(t, a) * widened(t, b) >> t.bits).astype(t.dtype)
    high = w.high_product(a, b)
    if t.signed:
        # A negative factor counts 2**64 too much as an unsigned one.
        x, y = a.view(np.int64), b.view(np.int64)
        high = high - (a & (y >> 63).view(np.uint64)) - (b & (x >> 63).view(np.uint64))
    return high


def widened(t: ScalarType, words: Word) -> Word:
    """Numbers of a type of at most 32 bits as words of twice its bits."""
    bits = 2 * t.bits
    return words.view(t.values).astype(f"{'int' if t.signed else 'uint'}{bits}").view(f"uint{bits}")


def wide(t: ScalarType, words: Word) -> Word:
    """Numbers of a type of at most 32 bits as int64."""
    return words.view(t.values).astype(np.int64)


def _clamped_sum(w: Words, t: ScalarType, a: Word, b: Word) -> Word:
    return clamped(w, t, wide(t, a) + wide(t, b))


def clamped(w: Words, t: ScalarType, numbers: Word) -> Word:
    """Words of the nearest numbers of the type."""
    inside = w.minimum(w.maximum(numbers, t.smallest), t.largest)
    return inside.astype(t.values).view(t.dtype)


def magnitude(t: ScalarType, words: Word) -> Word:
    """Absolute values as unsigned words."""
    return abs(words.view(t.values)).view(t.dtype) if t.signed else words
