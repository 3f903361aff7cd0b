"""Exact sums of products of integers in machine code, two at a time: as pairs of int16.

Processors multiply pairs and add the two products in one operation (pmaddwd and vpdpwssd of
x86-64), as LLVM finds by itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from dtypes import Format
from emulator.arith.fast.kernels.emitter import I16, I32, Emitter, Value, in_pairs
from emulator.arith.fast.kernels.product import Units

#: sums that do not wait for each other
_SUMS = 4


def pairs_of(units: Units) -> int:
    """Words of pairs that one unit makes; of a single element, that one beside a zero."""
    return max(1, units.per // 2)


def paired(e: Emitter, fmt: Format, units: Units, words: Value, part: int) -> Value:
    """The elements with this number in the two halves of units."""
    halves = _halves(e, words)
    up = 16 - units.shift - part * units.width - fmt.bits
    halves = e.b.shl(halves, e.like(halves, up)) if up else halves
    down = e.b.ashr if fmt.signed else e.b.lshr
    return e.b.bitcast(down(halves, e.like(halves, 16 - fmt.bits)), words.type)


def dot(e: Emitter, a: Sequence[Value], b: Sequence[Value]) -> Value:
    """The sum of all products of pairs."""
    sums: list[Value] = []
    for k, (p, q) in enumerate(zip(a, b, strict=True)):
        both = _multiplied(e, p, q)
        if k < _SUMS:
            sums.append(both)
        else:
            sums[k % _SUMS] = e.b.add(sums[k % _SUMS], both)
    return in_pairs(e.b.add, sums)


def _multiplied(e: Emitter, p: Value, q: Value) -> Value:
    x, y = (e.converted(I32, _halves(e, words), "sext") for words in (p, q))
    products = e.b.mul(x, y)
    low, high = (list(range(first, products.type.count, 2)) for first in (0, 1))
    return e.b.add(e.shuffled(products, products, low), e.shuffled(products, products, high))


def _halves(e: Emitter, words: Value) -> Value:
    return e.b.bitcast(words, ir.VectorType(I16, 2 * words.type.count))


def expanded(e: Emitter, words: Value, half: int, nibbles: Value) -> tuple[Value, Value]:
    """Units of a full A from the two bytes in one half of units of a sparse one; and bits that both
    bytes set where they have one place, without which the unit is the sum of both."""
    b = e.b
    low = b.lshr(words, e.like(words, 16)) if half else b.and_(words, e.like(words, 0xFFFF))
    bytes_ = b.and_(low, e.like(low, 0xFF)), b.lshr(low, e.like(low, 8))
    places = b.and_(nibbles, e.like(nibbles, 3)), b.lshr(nibbles, e.like(nibbles, 2))
    first, second = (
        b.shl(byte, b.shl(place, e.like(place, 3)))
        for byte, place in zip(bytes_, places, strict=True)
    )
    return b.or_(first, second), b.and_(first, second)
