"""Coordinates of textures: which texels of an axis a coordinate leads to, and how far between them.

Found in recordings of an H200, with which all of it agrees (tests/golden/h200_textures.jsonl.gz). A
coordinate in texels becomes a number with 8 bits of fraction, rounded to nearest, ties up; the
linear filter lies half a texel lower. A coordinate from 0 to 1 is cut to 21 bits of fraction first,
to 22 on an axis of more than 8,192 texels, to 23 on one of more than 65,536, and multiplied by the
size. An offset counts texels. Where clamping makes both texels of the linear filter one, there is
no fraction.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtypes import Array

Integers = NDArray[np.int64]
Address = Literal["wrap", "mirror", "clamp", "border"]

_BITS = 8
_ONE = 1 << _BITS
#: bits of fraction of places on the face of a cube
PLACE_BITS = 31
#: coordinates in texels beyond it lead to the last texel, or to the border
_FAR = 2.0**30


class Places(NamedTuple):
    """Places on one axis: the texel, the one above it, and the fraction between them in 1/256; what
    leads outside of a texture with a border is -1."""

    low: Integers
    high: Integers
    fraction: Integers


class Axis(NamedTuple):
    """One axis of a texture, and how coordinates lead into it."""

    size: int
    address: Address
    #: coordinates go from 0 to 1; else to `size`, and wrapping and mirroring are clamping
    unit: bool

    def nearest(self, words: Array, offset: Integers | int = 0) -> Integers:
        """The texels ``(lanes,)`` that the point filter reads for f32 coordinates, -1 for the
        border."""
        if not self.unit:
            index = np.floor(numbers(words)).astype(np.int64) + offset
            return addressed(index, self.size, self._plain)
        cut, mirrored = _cut(words, self._unit_bits, self.address)
        return self._turned(self._texel(cut) + offset, mirrored)

    def between(self, words: Array, offset: Integers | int = 0, apart: bool = False) -> Places:
        """The texels that the linear filter reads for f32 coordinates. `apart`: clamping leaves two
        texels in the array two."""
        mirrored = np.zeros(len(words), bool)
        if self.unit:
            cut, mirrored = _cut(words, self._unit_bits, self.address)
            place = self._place(cut)
        else:
            place = np.floor(numbers(words) * _ONE + 0.5).astype(np.int64)
        return self._around(place + offset * _ONE, mirrored, apart)

    def nearest_on_face(self, given: Integers, seamless: bool) -> Integers:
        """`nearest` for places on the face of a cube, in 2**-PLACE_BITS of its edge. The end of the
        edge belongs to the last texel of a `seamless` cube."""
        index = self._texel(given >> PLACE_BITS - self._unit_bits)
        if seamless:
            return np.minimum(index, self.size - 1)
        return self._turned(index, np.zeros(len(given), bool))

    def between_on_face(self, given: Integers, seamless: bool, apart: bool = False) -> Places:
        """`between` for places on the face of a cube; beyond its edges texels of a `seamless` cube
        have numbers outside of the axis."""
        place = self._place(given >> PLACE_BITS - self._unit_bits)
        if not seamless:
            return self._around(place, np.zeros(len(given), bool), apart)
        first = place - _ONE // 2 >> _BITS
        return Places(first, first + 1, place - _ONE // 2 & _ONE - 1)

    def _texel(self, cut: Integers) -> Integers:
        return cut * self.size >> self._unit_bits

    def _place(self, cut: Integers) -> Integers:
        """Where a coordinate from 0 to 1 leads, in 1/256 texel."""
        less = self._unit_bits - _BITS
        return cut * self.size + (1 << less - 1) >> less

    def _around(self, place: Integers, mirrored: Array, apart: bool) -> Places:
        """The texels that the linear filter reads at places in 1/256 texel."""
        place = place - _ONE // 2
        address = self.address if self.unit else self._plain
        if address == "clamp" and not apart:
            place = np.clip(place, 0, (self.size - 1) * _ONE)
        first = place >> _BITS
        low, high = self._turned(first, mirrored), self._turned(first + 1, mirrored)
        return Places(low, high, place & _ONE - 1)

    def _turned(self, index: Integers, mirrored: Array) -> Integers:
        address = self.address if self.unit else self._plain
        if address != "mirror":
            return addressed(index, self.size, address)
        period = 2 * self.size
        index = np.where(mirrored, index + self.size, index) % period
        return np.minimum(index, period - 1 - index)

    @property
    def _plain(self) -> Address:
        return "border" if self.address == "border" else "clamp"

    @property
    def _unit_bits(self) -> int:
        """Bits of fraction that coordinates from 0 to 1 keep."""
        return 21 + (self.size > 1 << 13) + (self.size > 1 << 16)


def addressed(index: Integers, size: int, address: Address) -> Integers:
    """Numbers of texels brought into an axis, -1 for the border."""
    if address == "wrap":
        return index % size
    if address == "border":
        return np.where((index < 0) | (index >= size), -1, index)
    return np.clip(index, 0, size - 1)


def numbers(words: Array) -> NDArray[np.float64]:
    """f32 words as numbers; 0 of a NaN and of subnormal numbers."""
    with np.errstate(invalid="ignore"):
        held = words.astype(np.uint32).view(np.float32).astype(np.float64)
    held = np.where(np.abs(held) >= 2.0**-126, held, 0.0)
    return np.clip(held, -_FAR, _FAR)


def _cut(words: Array, bits: int, address: Address) -> tuple[Integers, NDArray[np.bool_]]:
    """Coordinates from 0 to 1 with so many bits of fraction, brought into this range where they
    wrap, and which of them are mirrored."""
    given = numbers(words)
    if address in ("wrap", "mirror"):
        # What is as large as the limit is even and has no fraction.
        given = np.where(np.abs(given) == _FAR, 0.0, given)
    else:
        given = np.clip(given, -8.0, 8.0)
    fixed = np.floor(given * 2.0**bits).astype(np.int64)
    if address not in ("wrap", "mirror"):
        return fixed, np.zeros(len(fixed), bool)
    odd = (fixed >> bits & 1 == 1) & (address == "mirror")
    return fixed & (1 << bits) - 1, odd
