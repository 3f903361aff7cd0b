"""Arithmetic of extended precision, with the carry flag CC.CF: PTX ISA 9.7.2.

One flag serves all. Measured on an H200: a subtraction is the sum with the complement, so that the
flag is set where there is no borrow, and subc subtracts one more where it is clear.
"""

from __future__ import annotations

from emulator.arith.scalar.integer import product_half
from emulator.arith.scalar.rule import rule
from emulator.arith.scalar.types import ScalarType
from emulator.arith.scalar.words import Word, Words

#: a result, or a result and the carry flag
Result = int | tuple[int, int]
Results = Word | tuple[Word, Word]


@rule
def addc(t: ScalarType, a: int, b: int, carry: int, *, cc: bool = False) -> Result:
    """9.7.2.2, addc: a + b + CF; .cc writes the carry out of the top bit."""
    return _with_carry(t, a + b + carry, cc)


@addc.words
def _(w: Words, t: ScalarType, a: Word, b: Word, carry: Word, *, cc: bool = False) -> Results:
    return _sum_of(a, b, carry, cc)


@rule
def add_cc(t: ScalarType, a: int, b: int) -> Result:
    """9.7.2.1, add.cc: a + b, and the carry out of the top bit."""
    return _with_carry(t, a + b, True)


@add_cc.words
def _(w: Words, t: ScalarType, a: Word, b: Word) -> Results:
    total = a + b
    return total, total < a


@rule
def subc(t: ScalarType, a: int, b: int, carry: int, *, cc: bool = False) -> Result:
    """9.7.2.4, subc: a - b - (1 - CF); .cc writes 1 where there is no borrow."""
    return _with_carry(t, a + (b ^ t.mask) + carry, cc)


@subc.words
def _(w: Words, t: ScalarType, a: Word, b: Word, carry: Word, *, cc: bool = False) -> Results:
    return _sum_of(a, ~b, carry, cc)


@rule
def sub_cc(t: ScalarType, a: int, b: int) -> Result:
    """9.7.2.3, sub.cc: a - b, and 1 where there is no borrow."""
    return _with_carry(t, a + (b ^ t.mask) + 1, True)


@sub_cc.words
def _(w: Words, t: ScalarType, a: Word, b: Word) -> Results:
    return a - b, a >= b


@rule
def mad_cc(t: ScalarType, a: int, b: int, c: int, *, mode: str = "lo") -> Result:
    """9.7.2.5, mad.cc: a half of a·b, plus c, and the carry of that sum."""
    return _with_carry(t, _half_of_product(t, a, b, mode) + c, True)


@mad_cc.words
def _(w: Words, t: ScalarType, a: Word, b: Word, c: Word, *, mode: str = "lo") -> Results:
    total = product_half(w, t, a, b, mode) + c
    return total, total < c


@rule
def madc(
    t: ScalarType, a: int, b: int, c: int, carry: int, *, mode: str = "lo", cc: bool = False
) -> Result:
    """9.7.2.6, madc: a half of a·b, plus c, plus CF; .cc writes the carry of that sum."""
    return _with_carry(t, _half_of_product(t, a, b, mode) + c + carry, cc)


@madc.words
def _(
    w: Words,
    t: ScalarType,
    a: Word,
    b: Word,
    c: Word,
    carry: Word,
    *,
    mode: str = "lo",
    cc: bool = False,
) -> Results:
    return _sum_of(product_half(w, t, a, b, mode), c, carry, cc)


# --- what the rules share -------------------------------------------------------------------------


def _with_carry(t: ScalarType, total: int, cc: bool) -> Result:
    """The low bits of a sum of words, and with `cc` what left them at the top."""
    return (t.word(total), total >> t.bits) if cc else t.word(total)


def _sum_of(a: Word, b: Word, carry: Word, cc: bool) -> Results:
    """a + b + carry, and with `cc` the carry out."""
    first = a + b
    total = first + carry.astype(first.dtype)
    return (total, (first < a) | (total < first)) if cc else total


def _half_of_product(t: ScalarType, a: int, b: int, mode: str) -> int:
    product = t.number(a) * t.number(b)
    return t.word(product >> t.bits if mode == "hi" else product)
