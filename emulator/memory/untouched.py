"""Arrays of zeros that take memory where something is written, as the pages of a system do.

Reading such an array shows zeros and takes none; so to copy is to compare first.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dtypes import Array
from emulator.arith.fast.scratch import LINE, at_line
from emulator.errors import OperandError

#: words of 8 bytes that are compared and copied at a time
_PIECE = 1 << 17
#: bytes that are copied at once
_LITTLE = 1 << 12


def zeros(size: int) -> Array:
    """Bytes of 0, from the start of a line on; raises OperandError where the system has no room for
    them."""
    try:
        return at_line(np.zeros(size + LINE, np.uint8))[:size]
    except MemoryError:
        raise OperandError(f"there is no memory for {size:,} bytes") from None


def copy_changed(to: Array, source: Array) -> None:
    """Copies the bytes of `source`, but for pieces in which `to`, of the same length, has them."""
    whole = len(source) // 8 * 8 if len(source) > _LITTLE else 0
    to[whole:] = source[whole:]
    words, given = to[:whole].view(np.uint64), source[:whole].view(np.uint64)
    for first in range(0, len(given), _PIECE):
        piece = slice(first, first + _PIECE)
        if (words[piece] != given[piece]).any():
            words[piece] = given[piece]


def grown(held: Any, count: int) -> Any:
    """An array with `count` elements along its last axis, zeros behind those that it had."""
    out = np.zeros((*held.shape[:-1], count), held.dtype)
    have = held.shape[-1]
    if have:
        for to, source in zip(out.reshape(-1, count), held.reshape(-1, have), strict=True):
            copy_changed(to[:have].view(np.uint8), source.view(np.uint8))
    return out
