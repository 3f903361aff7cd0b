"""Aligns and adds the terms of a fused dot-add in int32, and makes the sum a float32 number.

The terms are float32 numbers; the largest exponent comes and goes as float32 has it: in place, as
the bits of a power of two. Terms become integers in units of the last bit that counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from emulator.arith.fast.kernels.elements import BIAS, MANTISSA, SIGN
from emulator.arith.fast.words import WORD as _INT32
from emulator.arith.fast.words import Value, Word, type_of

#: the first magnitude that float32 rounds to what int32 does not hold
SAFE = (1 << 31) - 128
#: the rounding that AVX-512 takes with an instruction, without exceptions
_TOWARD_ZERO = 3 | 8
#: lanes of the vectors that it rounds so
DIRECTED_LANES = 16


class LazyProduct(NamedTuple):
    """Emits the product of an element of A and one of B, or of their scales."""

    #: of the numbers
    value: Callable[[], Word]
    #: the sum of their exponents, or the product of powers of two
    exponent: Callable[[], Word]
    #: of their classes, see `elements.classes`
    special: Callable[[], Word]


class Alignment(NamedTuple):
    """The alignment of a step's terms."""

    fraction_bits: int
    #: field of the least exponent that the alignment uses
    floor: int

    @classmethod
    def of(cls, fraction_bits: int, floor: int | None) -> Alignment:
        return cls(fraction_bits, BIAS + (-BIAS if floor is None else max(floor, -BIAS)))

    @property
    def least(self) -> int:
        """The first field for which what scales terms, and the unit of the sum, are normal. Below,
        there is at most a lonely accumulator; 0: the floor is above."""
        least = self.fraction_bits + 1
        return 0 if self.floor >= least else least

    def raised(self, top: Word) -> Word:
        """The exponent to align to, of the largest that there is."""
        return top if self.least else top.maximum(self.floor << MANTISSA)

    def scale(self, top: Word) -> Word:
        """The bits of the power of two that scales terms to units."""
        return (2 * BIAS + self.fraction_bits << MANTISSA) - top

    def unit(self, top: Word) -> Word:
        """The power of two that the last bit counts."""
        return (top - (self.fraction_bits << MANTISSA)).view(np.float32)


def aligned(number: Word, scale: Word) -> Word:
    """A term in units, truncated."""
    return (number * scale).astype(np.int32)


def overflow(x: Word, y: Word, total: Word) -> Word:
    """A word whose sign says whether int32 does not hold the sum of two."""
    return (x ^ total) & (y ^ total)


def added(parts: Sequence[Word]) -> tuple[Word, Word]:
    """The sum of int32, and a word whose sign says whether int32 does not hold it."""
    total = parts[0]
    lost = total.e.constant(0, np.int32, total.lanes)
    for part in parts[1:]:
        old, total = total, total + part
        lost = lost | overflow(old, part, total)
    return total, lost


def magnitude(total: Word) -> Word:
    """The absolute value of int32; the least one stays as it is."""
    return total.maximum(0 - total)


def truncated(total: Word, exact: bool, sticky: bool, directed: bool = False) -> Word:
    """The bits of an integer as a float32 number, toward zero. `exact`: float32 has it; `sticky`:
    the last bit is set where something was cut, so that the number can be rounded later;
    `directed`: the processor rounds single instructions as they say."""
    if exact:
        return total.astype(np.float32).view(np.uint32)
    if directed:
        near = toward_zero("sitofp.round.v16f32.v16i32", total)
        word, inexact = near.view(np.uint32), near.astype(np.int32) != total
        return word | inexact.astype(np.uint32) if sticky else word
    size = magnitude(total)
    near = size.astype(np.float32)
    back = near.astype(np.int32)
    word = near.view(np.uint32) - (back > size).astype(np.uint32)
    if sticky:
        word = word | (back != size).astype(np.uint32)
    return word | (total.view(np.uint32) & SIGN)


def toward_zero(name: str, *operands: Word) -> Word:
    """16 numbers of float32 by an instruction of AVX-512, rounded toward zero."""
    e, given = operands[0].e, [x.value for x in operands]
    mode: Value = _INT32(_TOWARD_ZERO)
    type_ = type_of(np.dtype(np.float32), DIRECTED_LANES)
    return Word(e, e.function(f"llvm.x86.avx512.{name}", type_, [*given, mode]), np.float32)
