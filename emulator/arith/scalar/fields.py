"""Bit fields, counts and searches of bits: PTX ISA 9.7.1, as measured on an H200."""

from __future__ import annotations

import numpy as np

from dtypes import Array
from emulator.arith.scalar.rule import rule
from emulator.arith.scalar.types import ScalarType

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


@bfe.vector
def _(t: ScalarType, a: Array, position: Array, length: Array) -> Array:
    kind = np.dtype(np.int64 if t.signed else np.uint64)
    numbers = np.right_shift(a.view(t.values).astype(kind), _places(t, position).astype(kind))
    above = (np.uint64(64) - np.minimum(_places(t, length), np.uint64(64))).astype(kind)
    return np.right_shift(np.left_shift(numbers, above), above).astype(t.values).view(t.dtype)


@rule
def bfi(t: ScalarType, a: int, b: int, position: int, length: int) -> int:
    """9.7.1.20: b with its `length` bits from `position` on replaced by the low bits of a."""
    position, length = _place(t, position), _place(t, length)
    field = t.word((1 << length) - 1 << position)
    return b & ~field | a << position & field


@bfi.vector
def _(t: ScalarType, a: Array, b: Array, position: Array, length: Array) -> Array:
    place = _places(t, position)
    one = np.uint64(1)
    field = np.left_shift(np.left_shift(one, _places(t, length)) - one, place)
    bits = np.left_shift(a.astype(np.uint64), place)
    return ((b & ~field) | (bits & field)).astype(t.dtype)


def _place(t: ScalarType, number: int) -> int:
    """A position or length: its low 8 bits in a 32-bit form, all of it in a 64-bit form
    (measured), where whatever exceeds the width has the same effect."""
    return min(number & 0xFF if t.bits == 32 else number, 64)


def _places(t: ScalarType, numbers: Array) -> Array:
    return (numbers & np.uint32(0xFF) if t.bits == 32 else numbers).astype(np.uint64)


@rule
def szext(t: ScalarType, a: int, width: int, *, mode: str = "clamp") -> int:
    """9.7.1.18: the low bits of a, extended by their top bit if signed; a width of 0 gives 0."""
    width = min(width, 32) if mode == "clamp" else width & 31
    return bfe.reference(t, a, 0, width)


@szext.vector
def _(t: ScalarType, a: Array, width: Array, *, mode: str = "clamp") -> Array:
    width = np.minimum(width, np.uint32(32)) if mode == "clamp" else width & np.uint32(31)
    above = (np.uint32(32) - width).view(t.values)
    return np.right_shift(np.left_shift(a.view(t.values), above), above).view(t.dtype)


@rule
def bmsk(t: ScalarType, position: int, width: int, *, mode: str = "clamp") -> int:
    """9.7.1.21: ones from `position` on; .clamp caps both at 32, .wrap takes both modulo 32."""
    if mode == "clamp":
        position, width = min(position, 32), min(width, 32)
    else:
        position, width = position & 31, width & 31
    return t.word((1 << width) - 1 << position)


@bmsk.vector
def _(t: ScalarType, position: Array, width: Array, *, mode: str = "clamp") -> Array:
    if mode == "clamp":
        position = np.minimum(position, np.uint32(32))
        width = np.minimum(width, np.uint32(32))
    else:
        position, width = position & np.uint32(31), width & np.uint32(31)
    one = np.uint32(1)
    return np.left_shift(np.left_shift(one, width) - one, position)


# --- counts and searches --------------------------------------------------------------------------


@rule
def popc(t: ScalarType, a: int) -> int:
    """9.7.1.15: the number of ones."""
    return a.bit_count()


@popc.vector
def _(t: ScalarType, a: Array) -> Array:
    return np.bitwise_count(a).astype(np.uint32)


@rule
def clz(t: ScalarType, a: int) -> int:
    """9.7.1.16: the number of zeros above the highest one."""
    return t.bits - a.bit_length()


@clz.vector
def _(t: ScalarType, a: Array) -> Array:
    return np.uint32(t.bits) - _lengths(t, a)


@rule
def brev(t: ScalarType, a: int) -> int:
    """9.7.1.24: the bits in reverse order."""
    return int(f"{a:0{t.bits}b}"[::-1], 2)


@brev.vector
def _(t: ScalarType, a: Array) -> Array:
    words = np.ascontiguousarray(a)
    return _REVERSED[words.view(np.uint8)].view(t.dtype).byteswap().reshape(np.shape(a))


_REVERSED = np.array([int(f"{byte:08b}"[::-1], 2) for byte in range(256)], np.uint8)


@rule
def bfind(t: ScalarType, a: int, *, shiftamt: bool = False) -> int:
    """9.7.1.17: the position of the highest bit that is not the sign, or with .shiftamt how far it
    is from the top; FFFFFFFF where there is none."""
    number = t.number(a)
    length = (~number if number < 0 else number).bit_length()
    if length == 0:
        return _ALL_ONES
    return t.bits - length if shiftamt else length - 1


@bfind.vector
def _(t: ScalarType, a: Array, *, shiftamt: bool = False) -> Array:
    if t.signed:
        a = np.where(a.view(t.values) < 0, ~a, a)
    length = _lengths(t, a)
    out = np.uint32(t.bits) - length if shiftamt else length - np.uint32(1)
    return np.where(length == 0, np.uint32(_ALL_ONES), out)


def _lengths(t: ScalarType, words: Array) -> Array:
    """`int.bit_length` of every word."""
    smeared = words
    for distance in (1, 2, 4, 8, 16, 32)[: t.bits.bit_length() - 1]:
        smeared = smeared | smeared >> t.dtype.type(distance)
    return np.bitwise_count(smeared).astype(np.uint32)


@rule
def fns(t: ScalarType, mask: int, base: int, offset: int) -> int:
    """9.7.1.25: the place of the offset-th one from bit `base` on, upward, or downward where the
    offset is negative; FFFFFFFF where there is none. An offset of 0 asks for bit `base` itself."""
    wanted = offset - (1 << 32) if offset >> 31 else offset
    if base > 31:
        return _ALL_ONES
    if wanted == 0:
        return base if mask >> base & 1 else _ALL_ONES
    places = range(base, 32) if wanted > 0 else range(base, -1, -1)
    ones = [place for place in places if mask >> place & 1]
    return ones[abs(wanted) - 1] if abs(wanted) <= len(ones) else _ALL_ONES


@fns.vector
def _(t: ScalarType, mask: Array, base: Array, offset: Array) -> Array:
    mask, base, wanted = np.broadcast_arrays(mask, base, offset.view(np.int32))
    wanted = wanted.astype(np.int64)
    step, left = np.where(wanted < 0, -1, 1), np.maximum(np.abs(wanted), 1)
    only = wanted == 0
    place = np.where(base > 31, -1, base.astype(np.int64))
    step = np.where(base > 31, 0, step)
    out = np.full(mask.shape, _ALL_ONES, np.uint32)
    for _distance in range(32):
        inside = (place >= 0) & (place < 32)
        one = inside & ((mask >> (place & 31).astype(np.uint32) & np.uint32(1)) != 0)
        left = left - one
        out = np.where(one & (left == 0), place.astype(np.uint32), out)
        place = np.where(only, -1, place + step)
    return out
