"""Exact integer dot products in machine code, by pairs of int16.

Processors multiply pairs and add the two products in one operation (pmaddwd and vpdpwssd of
x86-64), as LLVM finds by itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dtypes import Format
from emulator.arith.fast.kernels.product import Units
from emulator.arith.fast.words import Word, in_pairs

#: sums that do not wait for each other
_SUMS = 4


def pairs_of(units: Units) -> int:
    """Words of pairs that one unit makes; of a single element, that one beside a zero."""
    return max(1, units.per // 2)


def paired(fmt: Format, units: Units, words: Word, part: int) -> Word:
    """The elements with this number in the two halves of units."""
    halves = words.view(np.uint16) << 16 - units.shift - part * units.width - fmt.bits
    halves = halves.view(np.int16 if fmt.signed else np.uint16) >> 16 - fmt.bits
    return halves.view(np.uint32)


def dot(a: Sequence[Word], b: Sequence[Word]) -> Word:
    """The sum of all products of pairs."""
    sums: list[Word] = []
    for k, (p, q) in enumerate(zip(a, b, strict=True)):
        both = _multiplied(p, q)
        if k < _SUMS:
            sums.append(both)
        else:
            sums[k % _SUMS] = sums[k % _SUMS] + both
    return in_pairs(Word.__add__, sums)


def _multiplied(p: Word, q: Word) -> Word:
    x, y = (words.view(np.int16).astype(np.int32) for words in (p, q))
    products = x * y
    low, high = (range(first, products.lanes, 2) for first in (0, 1))
    return products.shuffled(products, low) + products.shuffled(products, high)


def expanded(words: Word, half: int, nibbles: Word) -> tuple[Word, Word]:
    """Units of a full A from the two bytes in one half of units of a sparse one; and bits that both
    bytes set where they have one place, without which the unit is the sum of both."""
    low = words >> 16 if half else words & 0xFFFF
    first = (low & 0xFF).shifted_left((nibbles & 3) << 3)
    second = (low >> 8).shifted_left((nibbles >> 2) << 3)
    return first | second, first & second
