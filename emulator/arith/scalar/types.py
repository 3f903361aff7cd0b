"""The types that ordinary instructions name: ``s32``, ``f16x2``, ``pred`` (PTX ISA 5.2).

A *word* is the unsigned integer of an operand's bits, as a register holds it; of a predicate it is
0 or 1. Arrays of words are ``uint8`` … ``uint64``, of predicates ``bool``. A word of an 8-bit type
has 8 bits although its register is wider: the machine extends what it stores and cuts what it
reads (`extend` and `cut`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from dtypes import FORMATS, Array, Format

TypeKind = Literal["unsigned", "signed", "bits", "float", "predicate"]

_KINDS: dict[str, TypeKind] = {"u": "unsigned", "s": "signed", "b": "bits", "f": "float"}


@dataclass(frozen=True)
class ScalarType:
    """One type; a packed one, such as f16x2, is `count` elements of `bits` bits."""

    name: str
    kind: TypeKind
    #: bits of one element
    bits: int
    count: int = 1

    @property
    def size(self) -> int:
        """Bits of the whole word."""
        return self.bits * self.count

    @cached_property
    def mask(self) -> int:
        """All bits of an element."""
        return (1 << self.bits) - 1

    @property
    def signed(self) -> bool:
        return self.kind == "signed"

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @cached_property
    def format(self) -> Format:
        """The format of a floating-point or fixed-point element."""
        return FORMATS[self.element.name.removesuffix("p4")]

    @cached_property
    def infinity(self) -> int:
        """The code of +infinity, of a floating-point type that has one."""
        assert self.format.infinity is not None, self.name
        return self.format.infinity

    @cached_property
    def nan(self) -> int:
        """The code that PTX writes for a NaN, of a floating-point type that has one."""
        assert self.format.nan is not None, self.name
        return self.format.nan

    @cached_property
    def element(self) -> ScalarType:
        """The type of one element of a packed type; itself for any other."""
        return self if self.count == 1 else TYPES[self.name.rpartition("x")[0]]

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy type of arrays of words."""
        return np.dtype(np.bool_ if self.kind == "predicate" else f"uint{self.size}")

    @cached_property
    def values(self) -> np.dtype[Any]:
        """The NumPy type whose numbers the words of an integer, f16, f32 or f64 stand for."""
        if self.is_float:
            return np.dtype(f"float{self.bits}")
        return np.dtype(f"{'int' if self.signed else 'uint'}{self.bits}")

    @property
    def smallest(self) -> int:
        """The smallest number of an integer type."""
        return -(1 << (self.bits - 1)) if self.signed else 0

    @property
    def largest(self) -> int:
        """The largest number of an integer type."""
        return self.mask >> self.signed

    def number(self, word: int) -> int:
        """The integer that a word of an integer type stands for; higher bits are not read."""
        word &= self.mask
        return word - (1 << self.bits) if self.signed and word >> (self.bits - 1) else word

    def word(self, number: int) -> int:
        """The low bits of an integer."""
        return number & self.mask

    def clamp(self, number: int) -> int:
        """The nearest number of an integer type."""
        return min(max(number, self.smallest), self.largest)


def _type(name: str) -> ScalarType:
    if name == "pred":
        return ScalarType(name, "predicate", 1)
    base, _, count = name.partition("x")
    padded = base == "e2m1p4"
    if padded or (base in FORMATS and (FORMATS[base].is_float or FORMATS[base].fraction_bits)):
        # Elements of 6 and 7 bits lie in bytes, and those of 4 bits that are called so.
        if padded:
            return ScalarType(name, "float", 8, int(count or 1))
        bits = FORMATS[base].bits
        return ScalarType(name, "float", bits if bits < 5 else -(-bits // 8) * 8, int(count or 1))
    return ScalarType(name, _KINDS[base[0]], int(base[1:]), int(count or 1))


_NAMES = """
    pred b2 b4 u2 s2 u4 s4 u8 u16 u32 u64 s8 s16 s32 s64 b8 b16 b32 b64 b128 f16 bf16 f32 f64
    u16x2 s16x2 f16x2 bf16x2 f32x2 tf32 e4m3 e5m2 e3m2 e2m3 e2m1 ue8m0
    e4m3x2 e5m2x2 e3m2x2 e2m3x2 e2m1x2 ue8m0x2 e4m3x4 e5m2x4 e3m2x4 e2m3x4 e2m1x4
    e2m1p4 e2m1p4x4 ue8m0x4 ue5m3 ue5m3x2 s2f6 s2f6x2 u8x4 s8x4"""
TYPES: dict[str, ScalarType] = {name: _type(name) for name in _NAMES.split()}


def extend(type_: ScalarType, words: Array, bits: int) -> Array:
    """Words in a register of `bits` bits: signed types carry their sign up, others zeros."""
    if type_.size >= bits or type_.kind == "predicate":
        return words
    if type_.signed:
        return words.view(type_.values).astype(f"int{bits}").view(f"uint{bits}")
    return words.astype(f"uint{bits}")


def cut(type_: ScalarType, words: Array) -> Array:
    """The low bits of registers as words of the type."""
    return words.astype(type_.dtype, copy=False)
