"""Bit fields, counts and searches of bits: PTX ISA 9.7.1, as measured on an H200."""

from __future__ import annotations

import numpy as np

from emulator.arith.scalar.rule import rule
from emulator.arith.scalar.types import ScalarType
from emulator.arith.scalar.words import Operand, Word, Words

_ALL_ONES = 0xFFFFFFFF

# --- fields --------------------------------------------------------------------------------------


@rule
def bfe(t: ScalarType, a: int, position: int, length: int) -> int:
    """9.7.1.19: `length` bits from `position` on, extended by the field's top bit if signed.

    Measured: bits past the word are copies of its sign; a length of 0 gives 0.
    """
    position, length = _place(t, position), _place(t, length)
    if length == 0:
        return 0
    field = t.number(a) >> position & (1 << length) - 1
    if t.signed and field >> (length - 1):
        field -= 1 << length
    return t.word(field)


@bfe.words
def _(w: Words, t: ScalarType, a: Word, position: Word, length: Word) -> Word:
    kind = np.dtype(np.int64 if t.signed else np.uint64)
    numbers = a.view(t.values).astype(kind) >> _places(t, position).view(kind)
    above = (64 - w.minimum(_places(t, length), 64)).view(kind)
    return (numbers << above >> above).astype(t.values).view(t.dtype)


@rule
def bfi(t: ScalarType, a: int, b: int, position: int, length: int) -> int:
    """9.7.1.20: b with its `length` bits from `position` on replaced by the low bits of a."""
    position, length = _place(t, position), _place(t, length)
    field = t.word((1 << length) - 1 << position)
    return b & ~field | a << position & field


@bfi.words
def _(w: Words, t: ScalarType, a: Word, b: Word, position: Word, length: Word) -> Word:
    place = _places(t, position)
    field = (np.uint64(1) << _places(t, length)) - np.uint64(1) << place
    bits = a.astype(np.uint64) << place
    return ((b.astype(np.uint64) & ~field) | (bits & field)).astype(t.dtype)


def _place(t: ScalarType, number: int) -> int:
    """A position or length: its low 8 bits in a 32-bit form, all of it in a 64-bit form
    (measured), where whatever exceeds the width has the same effect."""
    return min(number & 0xFF if t.bits == 32 else number, 64)


def _places(t: ScalarType, numbers: Word) -> Word:
    return (numbers & 0xFF if t.bits == 32 else numbers).astype(np.uint64)


@rule
def szext(t: ScalarType, a: int, width: int, *, mode: str = "clamp") -> int:
    """9.7.1.18: the low bits of a, extended by their top bit if signed; a width of 0 gives 0."""
    width = min(width, 32) if mode == "clamp" else width & 31
    return bfe.reference(t, a, 0, width)


@szext.words
def _(w: Words, t: ScalarType, a: Word, width: Word, *, mode: str = "clamp") -> Word:
    width = w.minimum(width, 32) if mode == "clamp" else width & 31
    above = (32 - width).view(t.values)
    return (a.view(t.values) << above >> above).view(t.dtype)


@rule
def bmsk(t: ScalarType, position: int, width: int, *, mode: str = "clamp") -> int:
    """9.7.1.21: ones from `position` on; .clamp caps both at 32, .wrap takes both modulo 32."""
    if mode == "clamp":
        position, width = min(position, 32), min(width, 32)
    else:
        position, width = position & 31, width & 31
    return t.word((1 << width) - 1 << position)


@bmsk.words
def _(w: Words, t: ScalarType, position: Word, width: Word, *, mode: str = "clamp") -> Word:
    if mode == "clamp":
        position, width = w.minimum(position, 32), w.minimum(width, 32)
    else:
        position, width = position & 31, width & 31
    return (np.uint32(1) << width) - np.uint32(1) << position


# --- counts and searches --------------------------------------------------------------------------


@rule
def popc(t: ScalarType, a: int) -> int:
    """9.7.1.15: the number of ones."""
    return a.bit_count()


@popc.words
def _(w: Words, t: ScalarType, a: Word) -> Word:
    return w.count_ones(a)


@rule
def clz(t: ScalarType, a: int) -> int:
    """9.7.1.16: the number of zeros above the highest one."""
    return t.bits - a.bit_length()


@clz.words
def _(w: Words, t: ScalarType, a: Word) -> Word:
    return w.leading_zeros(a)


@rule
def brev(t: ScalarType, a: int) -> int:
    """9.7.1.24: the bits in reverse order."""
    return int(f"{a:0{t.bits}b}"[::-1], 2)


@brev.words
def _(w: Words, t: ScalarType, a: Word) -> Word:
    return w.reverse_bits(a)


@rule
def bfind(t: ScalarType, a: int, *, shiftamt: bool = False) -> int:
    """9.7.1.17: the position of the highest bit that is not the sign, or with .shiftamt how far it
    is from the top; FFFFFFFF where there is none."""
    number = t.number(a)
    length = (~number if number < 0 else number).bit_length()
    if length == 0:
        return _ALL_ONES
    return t.bits - length if shiftamt else length - 1


@bfind.words
def _(w: Words, t: ScalarType, a: Word, *, shiftamt: bool = False) -> Word:
    if t.signed:
        a = a ^ (a.view(t.values) >> t.bits - 1).view(t.dtype)
    zeros = w.leading_zeros(a)
    out = zeros if shiftamt else t.bits - 1 - zeros
    return w.put(a == 0, _ALL_ONES, out)


#: the offset whose magnitude is no s32
_LOWEST = 1 << 31


@rule
def fns(t: ScalarType, mask: int, base: int, offset: int) -> int:
    """9.7.1.25: the place of the offset-th one from bit `base` on, upward, or downward where the
    offset is negative; FFFFFFFF where there is none. An offset of 0 asks for bit `base` itself.
    Measured: that of -2**31, whose magnitude is no s32, gives 0."""
    if offset == _LOWEST:
        return 0
    wanted = offset - (1 << 32) if offset >> 31 else offset
    if base > 31:
        return _ALL_ONES
    if wanted == 0:
        return base if mask >> base & 1 else _ALL_ONES
    places = range(base, 32) if wanted > 0 else range(base, -1, -1)
    ones = [place for place in places if mask >> place & 1]
    return ones[abs(wanted) - 1] if abs(wanted) <= len(ones) else _ALL_ONES


@fns.long_words
def _(w: Words, t: ScalarType, mask: Word, base: Word, offset: Word) -> Word:
    # Downward is upward in the bits in reverse order.
    down = offset.view(np.int32) < 0
    wanted, last = abs(offset.view(np.int32)).view(np.uint32), w.select(down, 31 - base, base)
    left = w.select(down, w.reverse_bits(mask), mask) >> w.minimum(last, 32)
    left = w.select(base > 31, 0, w.select(wanted == 0, left & 1, left))
    wanted = w.maximum(wanted, 1)
    # The smallest number of low bits that has so many ones, by halving.
    place: Operand = np.uint32(0)
    rest = wanted
    for width in (16, 8, 4, 2, 1):
        ones = w.count_ones(left >> place & (1 << width) - 1)
        beyond = rest > ones
        place, rest = w.select(beyond, place + width, place), w.select(beyond, rest - ones, rest)
    found = w.select(down, base - place, base + place)
    found = w.select(w.count_ones(left) < wanted, _ALL_ONES, found)
    return w.select(offset == _LOWEST, 0, found)
