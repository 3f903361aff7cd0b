"""The fields of wgmma's matrix descriptors, and the byte address of every element.

PTX ISA 9.7.15.5.1 (field layout); the address formulas were measured on an H200 with random
starts, strides and base offsets. Addresses are bytes of the shared window.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtypes import Array
from emulator.errors import OperandError, as_integer, shown
from emulator.layout.tile import LINE_BYTES, TileShape

Int64 = NDArray[np.int64]

#: name -> (lowest bit, width). Addresses and offsets are stored divided by 16.
FIELDS = {
    "start_address": (0, 14),
    "leading_byte_offset": (16, 14),
    "stride_byte_offset": (32, 14),
    "base_offset": (49, 3),
    "swizzle": (62, 2),
}
#: code of the swizzle field -> width of the swizzle in 16-byte units
SWIZZLE_UNITS = {0: 1, 3: 2, 2: 4, 1: 8}
#: swizzle in bytes, 0 for none -> code of the field
SWIZZLES = {LINE_BYTES * units if units > 1 else 0: code for code, units in SWIZZLE_UNITS.items()}
_IN_16_BYTES = ("start_address", "leading_byte_offset", "stride_byte_offset")


class Fields(NamedTuple):
    """Decoded descriptors; the first three in bytes, all arrays of one shape."""

    start_address: Int64
    leading_byte_offset: Int64
    stride_byte_offset: Int64
    base_offset: Int64
    swizzle: Int64

    @property
    def units(self) -> Int64:
        """16-byte units that the swizzle permutes: 1 (none), 2, 4 or 8."""
        table = np.array([SWIZZLE_UNITS[code] for code in range(4)])
        return table[self.swizzle]


def decode_words(words: Array) -> Fields:
    """The fields of descriptors, uint64 ``(…)``; bits that belong to no field have no effect."""
    values = {}
    for name, (low, width) in FIELDS.items():
        value = (words >> np.uint64(low) & np.uint64((1 << width) - 1)).astype(np.int64)
        values[name] = value << 4 if name in _IN_16_BYTES else value
    return Fields(**values)


def encode_descriptor(
    start_address: int,
    leading_byte_offset: int = 0,
    stride_byte_offset: int = 0,
    base_offset: int = 0,
    swizzle_bytes: int = 0,
) -> np.uint64:
    """A descriptor from byte addresses; `swizzle_bytes` is 0, 32, 64 or 128.

    Raises OperandError for an address or offset that is no multiple of 16 or does not fit.
    """
    width = as_integer(swizzle_bytes)
    if width not in SWIZZLES:
        raise OperandError(
            f"swizzle_bytes is one of {sorted(SWIZZLES)}; got {shown(swizzle_bytes)}"
        )
    values = {
        "start_address": start_address,
        "leading_byte_offset": leading_byte_offset,
        "stride_byte_offset": stride_byte_offset,
        "base_offset": base_offset,
        "swizzle": SWIZZLES[width],
    }
    word = 0
    for name, given in values.items():
        low, bits = FIELDS[name]
        unit = 16 if name in _IN_16_BYTES else 1
        value = as_integer(given)
        if value is None or value % unit or not 0 <= value // unit < 1 << bits:
            raise OperandError(
                f"{name} must be a multiple of {unit} from 0 to {((1 << bits) - 1) * unit}; "
                f"got {shown(given)}"
            )
        word |= value // unit << low
    return np.uint64(word)


def addresses(fields: Fields, tile: TileShape) -> Int64:
    """``(…, rows, k)``: the byte address of every element of a tile, for descriptors ``(…)``.

    Rows and columns fall into 16-byte units of T elements; a swizzle of W units permutes the units
    of 8 lines by the *absolute* address bits [9:7], less the base offset. LBO counts in K-major
    swizzled tiles only where k exceeds one swizzle width.
    """
    t, size = 16 // tile.element_bytes, tile.element_bytes
    row = np.arange(tile.rows, dtype=np.int64)[:, None]
    k = np.arange(tile.k, dtype=np.int64)[None, :]
    start, lbo, sbo, base, _ = (x[..., None, None] for x in fields)
    w = fields.units[..., None, None]
    plain = w == 1
    if tile.major == "k":
        line, block, unit, within = row % 8, row // 8, k // t, k % t
        leading = np.where(plain, unit, unit // w) * lbo
        offset = line * 16 * w + block * sbo + leading + unit % w * 16 + within * size
    else:
        line, block, unit, within = k % 8, k // 8, row // t, row % t
        rows_on = np.where(plain, unit * sbo, unit // w * lbo)
        k_on = np.where(plain, block * lbo, block * sbo)
        offset = line * 16 * w + rows_on + k_on + unit % w * 16 + within * size
    address = start + offset
    return address ^ (((address >> 7) - base & w - 1) << 4)
