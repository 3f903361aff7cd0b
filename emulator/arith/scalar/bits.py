"""Logic, shifts and selections of bytes: PTX ISA 9.7.8 and 9.7.9.7, as measured on an H200."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import cache, reduce

import numpy as np
from numpy.typing import NDArray

from emulator.arith.scalar.rule import rule
from emulator.arith.scalar.types import ScalarType
from emulator.arith.scalar.words import Word, Words, joined

# --- logic ----------------------------------------------------------------------------------------


@rule
def and_(t: ScalarType, a: int, b: int) -> int:
    """9.7.8.1."""
    return a & b


@and_.words
def _(w: Words, t: ScalarType, a: Word, b: Word) -> Word:
    return a & b


@rule
def or_(t: ScalarType, a: int, b: int) -> int:
    """9.7.8.2."""
    return a | b


@or_.words
def _(w: Words, t: ScalarType, a: Word, b: Word) -> Word:
    return a | b


@rule
def xor(t: ScalarType, a: int, b: int) -> int:
    """9.7.8.3."""
    return a ^ b


@xor.words
def _(w: Words, t: ScalarType, a: Word, b: Word) -> Word:
    return a ^ b


@rule
def not_(t: ScalarType, a: int) -> int:
    """9.7.8.4."""
    return a ^ t.mask


@not_.words
def _(w: Words, t: ScalarType, a: Word) -> Word:
    return ~a


@rule
def cnot(t: ScalarType, a: int) -> int:
    """9.7.8.5: 1 where a is 0, else 0."""
    return int(a == 0)


@cnot.words
def _(w: Words, t: ScalarType, a: Word) -> Word:
    return (a == 0).astype(t.dtype)


@rule
def lop3(t: ScalarType, a: int, b: int, c: int, table: int) -> int:
    """9.7.8.6: bit 4a + 2b + c of the table, for each bit of a, b and c."""
    out = 0
    for i in range(t.bits):
        index = (a >> i & 1) << 2 | (b >> i & 1) << 1 | c >> i & 1
        out |= (table >> index & 1) << i
    return out


@lop3.words
def _(w: Words, t: ScalarType, a: Word, b: Word, c: Word, table: int) -> Word:
    return _function_of(w, int(table) & 0xFF, (a, b, c))


@rule
def lop3_predicate(
    t: ScalarType, a: int, b: int, c: int, table: int, q: int, *, combine: str = ""
) -> tuple[int, int]:
    """9.7.8.6 with a predicate: p = (d != 0) or q, (d != 0) and q."""
    d = lop3.reference(t, a, b, c, table)
    return d, (d != 0) | q if combine == "or" else (d != 0) & q


@lop3_predicate.words
def _(
    w: Words, t: ScalarType, a: Word, b: Word, c: Word, table: int, q: Word, *, combine: str = ""
) -> tuple[Word, Word]:
    d = _function_of(w, int(table) & 0xFF, (a, b, c))
    return d, (d != 0) | q if combine == "or" else (d != 0) & q


def _function_of(w: Words, table: int, words: Sequence[Word]) -> Word:
    """The bitwise function of n words that a table of 2**n bits gives.

    It is f0 where the first word is 0 and f1 where it is 1, so f0 ^ (word & (f0 ^ f1)): f0 and
    f0 ^ f1 are tables of half the size.
    """
    first, *rest = words
    if not rest:
        return (first ^ first, ~first, first, first | ~first)[table]
    size = 1 << len(rest)
    low, high = table & (1 << size) - 1, table >> size
    if low == high:
        return _function_of(w, low, rest)
    changes = _function_of(w, low ^ high, rest)
    return first & changes if low == 0 else _function_of(w, low, rest) ^ (first & changes)


# --- shifts ---------------------------------------------------------------------------------------


@rule
def shl(t: ScalarType, a: int, amount: int) -> int:
    """9.7.8.8: left by an unsigned 32-bit amount; from the width on, 0."""
    return t.word(a << min(amount, t.bits))


@shl.words
def _(w: Words, t: ScalarType, a: Word, amount: Word) -> Word:
    return a << _capped(w, t, amount)


@rule
def shr(t: ScalarType, a: int, amount: int) -> int:
    """9.7.8.9: right by an unsigned 32-bit amount; from the width on, 0 or the sign."""
    return t.word(t.number(a) >> min(amount, t.bits))


@shr.words
def _(w: Words, t: ScalarType, a: Word, amount: Word) -> Word:
    return (a.view(t.values) >> _capped(w, t, amount).view(t.values)).view(t.dtype)


def _capped(w: Words, t: ScalarType, amount: Word) -> Word:
    """Amounts of shifts as words of the type; from the width on, all have the same effect."""
    return w.minimum(amount, t.bits).astype(t.dtype, copy=False)


@rule
def shf(t: ScalarType, a: int, b: int, c: int, *, direction: str = "l", mode: str = "wrap") -> int:
    """9.7.8.7: the pair b:a shifted by c & 31 (.wrap) or min(c, 32) (.clamp); left: its upper half,
    right: its lower half."""
    amount = c & 31 if mode == "wrap" else min(c, 32)
    pair = b << 32 | a
    return t.word(pair << amount >> 32) if direction == "l" else t.word(pair >> amount)


@shf.words
def _(
    w: Words, t: ScalarType, a: Word, b: Word, c: Word, *, direction: str = "l", mode: str = "wrap"
) -> Word:
    amount = (c & 31 if mode == "wrap" else w.minimum(c, 32)).astype(np.uint64)
    pair = _pair(a, b)
    return (pair << amount >> 32 if direction == "l" else pair >> amount).astype(np.uint32)


def _pair(a: Word, b: Word) -> Word:
    """b:a, in 64 bits."""
    return b.astype(np.uint64) << 32 | a.astype(np.uint64)


# --- bytes ----------------------------------------------------------------------------------------

#: mode of prmt -> the byte of b:a that byte i of the result takes, for a selector n of two bits
_BYTES: dict[str, Callable[[int, int], int]] = {
    "f4e": lambda n, i: n + i,
    "b4e": lambda n, i: n - i & 7,
    "rc8": lambda n, i: n,
    "ecl": max,
    "ecr": min,
    "rc16": lambda n, i: (n & 1) * 2 + i % 2,
}


@rule
def prmt(t: ScalarType, a: int, b: int, c: int, *, mode: str = "") -> int:
    """9.7.9.7: four bytes of the pair b:a. A nibble of c selects each, and copies the byte's sign
    eight times where its top bit is set; modes derive all four from c & 3."""
    pair, out = b << 32 | a, 0
    for i in range(4):
        selector = _BYTES[mode](c & 3, i) if mode else c >> 4 * i & 15
        byte = pair >> 8 * (selector & 7) & 0xFF
        if selector & 8:
            byte = 0xFF if byte & 0x80 else 0
        out |= byte << 8 * i
    return out


@prmt.words
def _(w: Words, t: ScalarType, a: Word, b: Word, c: Word, *, mode: str = "") -> Word:
    if mode:
        c = w.look_up(_selectors(mode), c & 3)
    known = w.constant(c)
    if known is not None:
        return reduce(operator.or_, (_chosen_byte(a, b, known >> 4 * i & 15, i) for i in range(4)))
    pair, parts = _pair(a, b), []
    for i in range(4):
        selector = c >> 4 * i
        place = (selector & 7) << 3
        byte = (pair >> place.astype(np.uint64)).astype(np.uint32) & 0xFF
        if not mode:
            byte = w.put((selector & 8) != 0, (byte >> 7) * 0xFF, byte)
        parts.append(byte)
    return joined(parts, 8)


@cache
def _selectors(mode: str) -> NDArray[np.uint32]:
    """Selectors of a mode, indexed by c & 3, as nibbles."""
    bytes_ = [[_BYTES[mode](n, i) & 7 for i in range(4)] for n in range(4)]
    return np.array([sum(x << 4 * i for i, x in enumerate(row)) for row in bytes_], np.uint32)


def _chosen_byte(a: Word, b: Word, selector: int, i: int) -> Word:
    """The byte of the pair b:a that one selector chooses for all words, in place i."""
    word, place, mask = (a, b)[selector >> 2 & 1], 8 * (selector & 3), 0xFF << 8 * i
    if selector & 8:
        return (word >> place + 7 & 1) * mask
    shift = 8 * i - place
    if shift:
        word = word << shift if shift > 0 else word >> -shift
    return word & mask


#: kind of handle -> the bit that ptxas gives a handle of such a variable, and that istypep looks
#: at; an H200's texture objects have none of them
HANDLE_BITS = {"texref": 61, "samplerref": 62, "surfref": 63}


@rule
def istypep(a: int, *, kind: str = "") -> int:
    """9.7.10.6: whether a handle is that of an opaque variable, by one of its bits."""
    return a >> HANDLE_BITS[kind] & 1


@istypep.words
def _(w: Words, a: Word, *, kind: str = "") -> Word:
    return (a >> HANDLE_BITS[kind] & 1) != 0
