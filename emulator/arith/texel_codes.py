"""Codes that formatted stores write: what ``sust.p`` makes of 32-bit words for a surface's format.

Found in recordings of an H200, with which they agree (tests/golden/h200_surfaces.json.gz).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dtypes import Array
from emulator.arith.texels import TexelFormat

#: bits that f32 has more behind the point than f16, and the f16 exponent of the least normal one
_MORE, _LARGEST = 13, 0x7BFF
_SIGN, _INFINITY = 0x8000, 0x7F80_0000


def codes(format_: TexelFormat, words: NDArray[np.uint32]) -> Array:
    """The codes of words: floats cut to the format, towards zero, and integers brought into its
    range. The words of integers are signed where the format is."""
    if format_.size == 4:
        return words
    if format_.kind == "float":
        return _halves(words)
    if format_.kind == "unsigned":
        return np.minimum(words, (1 << format_.bits) - 1).astype(f"u{format_.size}")
    most = (1 << format_.bits - 1) - 1
    return np.clip(words.view(np.int32), -most - 1, most).astype(f"u{format_.size}")


def _halves(words: NDArray[np.uint32]) -> NDArray[np.uint16]:
    """f32 words as f16, cut; numbers beyond f16 become its largest, a NaN keeps its upper bits,
    or the lowest one."""
    magnitude, sign = words & 0x7FFF_FFFF, words >> 16 & _SIGN
    numbers = magnitude.view(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = numbers.astype(np.float16)
        above = rounded.astype(np.float32) > numbers
    cut = np.minimum(rounded.view(np.uint16) - above.astype(np.uint16), _LARGEST)
    payload = magnitude >> _MORE & 0x3FF
    special = 0x7C00 | np.where(magnitude > _INFINITY, np.maximum(payload, 1), 0)
    return (np.where(magnitude >= _INFINITY, special, cut) | sign).astype(np.uint16)
