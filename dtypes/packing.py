"""Element codes <-> register words.

Element i of a register sits at bits ``[width*i, width*(i+1))``, the first element in the lowest
bits (PTX ISA 9.7.14.5). `width` is that of the element's place: the element's own bits, or an 8-bit
container for the 4- and 6-bit floats of ``kind::f8f6f4``.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtypes.formats import Format

#: an array of codes or words, of whatever unsigned type holds them
Array = NDArray[Any]


class Place(NamedTuple):
    """The place of one element in a register: `width` bits; its code starts at bit `shift`."""

    width: int
    shift: int
    code_bits: int

    @property
    def padding(self) -> int:
        """The bits of the place that the code does not use; PTX asks for zeros there."""
        return ((1 << self.width) - 1) & ~(((1 << self.code_bits) - 1) << self.shift)


def place(fmt: Format, container: int | None = None) -> Place:
    """The place of an element of `fmt`, packed tightly or inside a `container` of that many bits.

    >>> from dtypes import FORMATS
    >>> place(FORMATS["e2m1"], container=8)
    Place(width=8, shift=2, code_bits=4)
    """
    if container is None or container == fmt.bits:
        return Place(fmt.bits, 0, fmt.bits)
    return Place(container, fmt.container_shift, fmt.bits)


@lru_cache(maxsize=8)
def word_type(word_bits: int) -> np.dtype[np.unsignedinteger]:
    return np.dtype(f"uint{word_bits}")


@lru_cache(maxsize=64)
def code_type(bits: int) -> np.dtype[np.unsignedinteger]:
    """The smallest unsigned NumPy type that holds a code of `bits` bits."""
    return np.dtype(f"uint{next(w for w in (8, 16, 32, 64) if bits <= w)}")


def pack(codes: Array, where: Place, word_bits: int = 32) -> Array:
    """Codes ``(…, n)`` to words ``(…, n * width / word_bits)``, lowest bits first.

    Raises ValueError where n elements do not fill whole words.
    """
    width, shift, _ = where
    per_word, left = word_bits // width, codes.shape[-1] * width % word_bits
    if left:
        raise ValueError(
            f"{codes.shape[-1]} elements of {width} bits do not fill {word_bits}-bit words"
        )
    dtype = word_type(word_bits)
    if _fills_bytes(where):
        return np.ascontiguousarray(codes, word_type(width)).view(dtype)
    lanes = codes.astype(dtype).reshape(*codes.shape[:-1], codes.shape[-1] // per_word, per_word)
    shifts = np.arange(shift, word_bits, width, dtype=dtype)
    return np.bitwise_or.reduce(lanes << shifts, axis=-1)


def unpack(words: Array, where: Place, word_bits: int = 32) -> Array:
    """Words ``(…, n)`` to codes ``(…, n * word_bits / width)``; the inverse of `pack`."""
    width, shift, code_bits = where
    dtype = word_type(word_bits)
    if _fills_bytes(where):
        return np.ascontiguousarray(words, dtype).view(word_type(width))
    shifts = np.arange(shift, word_bits, width, dtype=dtype)
    codes = words.astype(dtype, copy=False)[..., None] >> shifts & dtype.type((1 << code_bits) - 1)
    return codes.reshape(*words.shape[:-1], words.shape[-1] * len(shifts)).astype(
        code_type(code_bits), copy=False
    )


def _fills_bytes(where: Place) -> bool:
    """Memory already has the elements of a word in order, one after the other."""
    whole = where.width == where.code_bits and where.width in (8, 16, 32, 64)
    return whole and sys.byteorder == "little"


def padding_is_zero(words: Array, where: Place) -> bool:
    """False if any 32-bit word has a bit set that no element uses."""
    padding = _word_padding(where)
    return not padding or not (words & padding).any()


@lru_cache(maxsize=64)
def _word_padding(where: Place) -> np.uint32:
    """The bits of a 32-bit word that no element uses."""
    return np.uint32(sum(where.padding << s for s in range(0, 32, where.width)))
