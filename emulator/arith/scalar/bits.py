"""Logic, shifts and selections of bytes: PTX ISA 9.7.8 and 9.7.9.7, as measured on an H200."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dtypes import Array
from emulator.arith.scalar.rule import rule
from emulator.arith.scalar.types import ScalarType

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
