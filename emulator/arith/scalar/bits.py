"""Logic, shifts and bit fields: PTX ISA 9.7.1 and 9.7.8, as measured on an H200."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dtypes import Array
from emulator.arith.scalar.rule import rule
from emulator.arith.scalar.types import ScalarType

_ALL_ONES = 0xFFFFFFFF

# --- logic ----------------------------------------------------------------------------------------


@rule
def and_(t: ScalarType, a: int, b: int) -> int:
    """9.7.8.1."""
    return a & b


@and_.vector
def _(t: ScalarType, a: Array, b: Array) -> Array:
    return a & b


@rule
def or_(t: ScalarType, a: int, b: int) -> int:
    """9.7.8.2."""
    return a | b


@or_.vector
def _(t: ScalarType, a: Array, b: Array) -> Array:
    return a | b


@rule
def xor(t: ScalarType, a: int, b: int) -> int:
    """9.7.8.3."""
    return a ^ b


@xor.vector
def _(t: ScalarType, a: Array, b: Array) -> Array:
    return a ^ b


@rule
def not_(t: ScalarType, a: int) -> int:
    """9.7.8.4."""
    return a ^ t.mask


@not_.vector
def _(t: ScalarType, a: Array) -> Array:
    return np.invert(a)


@rule
def cnot(t: ScalarType, a: int) -> int:
    """9.7.8.5: 1 where a is 0, else 0."""
    return int(a == 0)


@cnot.vector
def _(t: ScalarType, a: Array) -> Array:
    return (a == 0).astype(t.dtype)


@rule
def lop3(t: ScalarType, a: int, b: int, c: int, table: int) -> int:
    """9.7.8.6: bit 4a + 2b + c of the table, for each bit of a, b and c."""
    out = 0
    for i in range(t.bits):
        index = (a >> i & 1) << 2 | (b >> i & 1) << 1 | c >> i & 1
        out |= (table >> index & 1) << i
    return out


@lop3.vector
def _(t: ScalarType, a: Array, b: Array, c: Array, table: int) -> Array:
    return _function_of(int(table) & 0xFF, (a, b, c))


@rule
def lop3_predicate(
    t: ScalarType, a: int, b: int, c: int, table: int, q: int, *, combine: str = ""
) -> tuple[int, int]:
    """9.7.8.6 with a predicate: p = (d != 0) or q, (d != 0) and q."""
    d = lop3.reference(t, a, b, c, table)
    return d, (d != 0) | q if combine == "or" else (d != 0) & q


@lop3_predicate.vector
def _(
    t: ScalarType, a: Array, b: Array, c: Array, table: int, q: Array, *, combine: str = ""
) -> tuple[Array, Array]:
    d = _function_of(int(table) & 0xFF, (a, b, c))
    return d, (d != 0) | q if combine == "or" else (d != 0) & q


def _function_of(table: int, words: Sequence[Array]) -> Array:
    """The bitwise function of n words that a table of 2**n bits gives.

    It is f0 where the first word is 0 and f1 where it is 1, so f0 ^ (word & (f0 ^ f1)): f0 and
    f0 ^ f1 are tables of half the size.
    """
    first, *rest = words
    if not rest:
        return [np.zeros_like(first), ~first, first, ~np.zeros_like(first)][table]
    size = 1 << len(rest)
    low, high = table & (1 << size) - 1, table >> size
    if low == high:
        return _function_of(low, rest)
    changes = _function_of(low ^ high, rest)
    return first & changes if low == 0 else _function_of(low, rest) ^ (first & changes)


# --- shifts ---------------------------------------------------------------------------------------


@rule
def shl(t: ScalarType, a: int, amount: int) -> int:
    """9.7.8.8: left by an unsigned 32-bit amount; from the width on, 0."""
    return t.word(a << min(amount, t.bits))


@shl.vector
def _(t: ScalarType, a: Array, amount: Array) -> Array:
    return np.left_shift(a, _capped(t, amount))


@rule
def shr(t: ScalarType, a: int, amount: int) -> int:
    """9.7.8.9: right by an unsigned 32-bit amount; from the width on, 0 or the sign."""
    return t.word(t.number(a) >> min(amount, t.bits))


@shr.vector
def _(t: ScalarType, a: Array, amount: Array) -> Array:
    return np.right_shift(a.view(t.values), _capped(t, amount).view(t.values)).view(t.dtype)


def _capped(t: ScalarType, amount: Array) -> Array:
    """Amounts of shifts, at most the width, of which NumPy makes what PTX says."""
    return np.minimum(amount, np.uint32(t.bits)).astype(t.dtype, copy=False)


@rule
def shf(t: ScalarType, a: int, b: int, c: int, *, direction: str = "l", mode: str = "wrap") -> int:
    """9.7.8.7: the pair b:a shifted by c & 31 (.wrap) or min(c, 32) (.clamp); left: its upper half,
    right: its lower half."""
    amount = c & 31 if mode == "wrap" else min(c, 32)
    pair = b << 32 | a
    return t.word(pair << amount >> 32) if direction == "l" else t.word(pair >> amount)


@shf.vector
def _(
    t: ScalarType, a: Array, b: Array, c: Array, *, direction: str = "l", mode: str = "wrap"
) -> Array:
    amount = c & np.uint32(31) if mode == "wrap" else np.minimum(c, np.uint32(32))
    half, amount = np.uint64(32), amount.astype(np.uint64)
    pair = b.astype(np.uint64) << half | a
    return (pair << amount >> half if direction == "l" else pair >> amount).astype(np.uint32)


# --- bytes ----------------------------------------------------------------------------------------

#: mode of prmt -> the byte of b:a that byte i of the result takes, for a selector n of two bits
_BYTES = {
    "f4e": lambda n, i: n + i,
    "b4e": lambda n, i: n - i & 7,
    "rc8": lambda n, i: n + 0 * i,
    "ecl": lambda n, i: np.maximum(n, i),
    "ecr": lambda n, i: np.minimum(n, i),
    "rc16": lambda n, i: (n & 1) * 2 + i % 2,
}


@rule
def prmt(t: ScalarType, a: int, b: int, c: int, *, mode: str = "") -> int:
    """9.7.9.7: four bytes of the pair b:a. A nibble of c selects each, and copies the byte's sign
    eight times where its top bit is set; modes derive all four from c & 3."""
    pair, out = b << 32 | a, 0
    for i in range(4):
        selector = int(_BYTES[mode](c & 3, i)) if mode else c >> 4 * i & 15
        byte = pair >> 8 * (selector & 7) & 0xFF
        if selector & 8:
            byte = 0xFF if byte & 0x80 else 0
        out |= byte << 8 * i
    return out


@prmt.vector
def _(t: ScalarType, a: Array, b: Array, c: Array, *, mode: str = "") -> Array:
    if np.ndim(c) == 0:
        return _chosen_bytes(a, b, int(c), mode)
    pair = b.astype(np.uint64) << np.uint64(32) | a
    out = np.zeros((), np.uint32)
    for i in range(4):
        selector = _BYTES[mode](c & np.uint32(3), np.uint32(i)) if mode else c >> np.uint32(4 * i)
        place = (selector & np.uint32(7)) * np.uint32(8)
        byte = (pair >> place.astype(np.uint64)).astype(np.uint32) & np.uint32(0xFF)
        signs = selector & np.uint32(8)
        if not mode and signs.any():
            byte = np.where(signs != 0, (byte >> np.uint32(7)) * np.uint32(0xFF), byte)
        out = out | byte << np.uint32(8 * i)
    return out


def _chosen_bytes(a: Array, b: Array, c: int, mode: str) -> Array:
    """prmt of one selector for all words."""
    out: Array | None = None
    for i in range(4):
        selector = int(_BYTES[mode](c & 3, i)) if mode else c >> 4 * i & 15
        word, place = (a, b)[selector >> 2 & 1], 8 * (selector & 3)
        if selector & 8 and not mode:
            byte = (word >> np.uint32(place + 7) & np.uint32(1)) * np.uint32(0xFF << 8 * i)
        else:
            shift = 8 * i - place
            moved = word << np.uint32(shift) if shift >= 0 else word >> np.uint32(-shift)
            byte = moved & np.uint32(0xFF << 8 * i)
        out = byte if out is None else out | byte
    assert out is not None
    return out


# --- fields ---------------------------------------------------------------------------------------


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
