"""``Descriptor``: one 64-bit matrix descriptor of wgmma as a kernel writer thinks of it: built for
a tile, looked through, checked. `addressing` has the fields and addresses of arrays of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from dtypes import Array, Format
from emulator.errors import OperandError
from emulator.layout.addressing import (
    WINDOW,
    Fields,
    Int64,
    addresses,
    decode_words,
    encode_descriptor,
)
from emulator.layout.tile import LINE_BYTES, LINES, CoreMatrix, TileShape
from emulator.layout.validation import problems


def as_words(given: Any) -> Any:
    """A `Descriptor`, an integer below 2**64 or a list of them as uint64; all else as it is."""
    if isinstance(given, Descriptor):
        return given.encode()
    if isinstance(given, (int, np.integer)) and not isinstance(given, bool):
        return np.uint64(given) if 0 <= given < 1 << 64 else given
    if isinstance(given, (list, tuple)) and given:
        words = [as_words(one) for one in given]
        if all(isinstance(word, np.uint64) for word in words):
            return np.array(words)
    return given


def decode_descriptor(descriptors: Array | Descriptor | int, operand: str = "") -> Fields:
    """The fields of 64-bit descriptors; bits that belong to no field have no effect.

    Raises OperandError, with the name of the operand, for what `as_words` makes no uint64 of.
    """
    words = as_words(descriptors)
    if not isinstance(words, (np.ndarray, np.uint64)) or words.dtype != np.uint64:
        got = f"{words.dtype} {words.shape}" if isinstance(words, np.ndarray) else repr(words)
        raise OperandError(
            f"{f'operand {operand}: ' if operand else ''}a matrix descriptor is a 64-bit word: a "
            f"Descriptor, an integer from 0 to 2**64 - 1 or a uint64 array of them; got {got:.80}"
        )
    return decode_words(np.asarray(words))


class Placed(NamedTuple):
    """A descriptor, and the bytes of its tile from the start address on, gaps included."""

    descriptor: Descriptor
    size: int


@dataclass(frozen=True)
class Descriptor:
    """A matrix descriptor; addresses and offsets in bytes, multiples of 16 below 2**18.

    Raises OperandError for fields that do not fit the 64-bit word.
    """

    start_address: int
    #: LBO: K-major to the next 16 bytes of k (no swizzle) or swizzle width of k; MN-major to the
    #: next 8 columns (no swizzle) or swizzle width of rows
    leading_byte_offset: int = 0
    #: SBO: K-major to the next 8 rows; MN-major to the next 16 bytes of rows (no swizzle) or to the
    #: next 8 columns
    stride_byte_offset: int = 0
    #: 0 … 7: 128-byte lines between the start of the swizzle pattern and a multiple of its size
    base_offset: int = 0
    #: 0, 32, 64 or 128
    swizzle_bytes: int = 0

    def __post_init__(self) -> None:
        self.encode()

    def encode(self) -> np.uint64:
        """The 64-bit word."""
        return encode_descriptor(
            self.start_address, self.leading_byte_offset, self.stride_byte_offset,
            self.base_offset, self.swizzle_bytes,
        )  # fmt: skip

    @classmethod
    def decode(cls, word: int | np.uint64) -> Descriptor:
        """The descriptor that a 64-bit word holds; bits that belong to no field are dropped.

        Raises OperandError for anything but one integer below 2**64.
        """
        whole = isinstance(word, (int, np.integer)) and not isinstance(word, bool)
        if not whole or not 0 <= int(word) < 1 << 64:
            raise OperandError(f"a matrix descriptor is one 64-bit word; got {word!r:.80}")
        fields = decode_descriptor(np.asarray(word, np.uint64))
        start, leading, stride, base, _ = (int(field) for field in fields)
        units = int(fields.units)
        return cls(start, leading, stride, base, units * LINE_BYTES if units > 1 else 0)

    @classmethod
    def for_tile(
        cls,
        rows: int,
        k: int,
        fmt: Format | str,
        *,
        major: str = "k",
        swizzle_bytes: int = 128,
        start_address: int = 0,
    ) -> Placed:
        """The canonical layout of `rows` × `k` elements: blocks of 8 lines, rows before columns.

        Blocks are as wide as the swizzle, and fill memory without gaps where the tile fills whole
        blocks. A swizzled tile that does not start on a multiple of its pattern (8 lines) gets the
        base offset that this needs. Raises OperandError for a tile that wgmma cannot read.

        >>> Descriptor.for_tile(64, 64, "f16", swizzle_bytes=128, start_address=1024)
        Placed(descriptor=Descriptor(start_address=1024, leading_byte_offset=16, \
stride_byte_offset=1024, base_offset=0, swizzle_bytes=128), size=8192)
        """
        encode_descriptor(start_address, swizzle_bytes=swizzle_bytes)  # may raise
        tile = TileShape.of(rows, k, fmt, major)
        line_bytes = swizzle_bytes or LINE_BYTES
        block, width = LINES * line_bytes, line_bytes // tile.element_bytes
        if major == "k":
            high, wide = -(-rows // LINES), -(-tile.k // width)
            leading, stride = high * block, block
            if swizzle_bytes and wide == 1:
                leading = LINE_BYTES  # what the manual assumes of an LBO that is not used
        else:
            high, wide = -(-rows // width), -(-tile.k // LINES)
            leading, stride = block, high * block
            if not swizzle_bytes:
                leading, stride = stride, leading
        base = start_address >> 7 & block // 128 - 1
        out = cls(start_address, leading, stride, base, swizzle_bytes)
        found = out.validate(tile)
        if swizzle_bytes and start_address % 128:
            found.append(
                f"start_address {start_address} is no multiple of 128, where the lines of a "
                "swizzled tile start (steps along k inside of a tile: `stepped`)"
            )
        if found:
            raise OperandError(f"no descriptor for {tile}: {'; '.join(found)}")
        return Placed(out, high * wide * block)

    def stepped(self, offset: int) -> Descriptor:
        """The descriptor `offset` bytes further, as a kernel steps along k inside of a tile."""
        return replace(self, start_address=self.start_address + offset)

    # --- where it leads ---

    def addresses(self, tile: TileShape) -> Int64:
        """``(rows, k)``: address of the first byte of every element; k counts bytes of b1."""
        return addresses(decode_descriptor(np.asarray(self.encode())), tile)

    def address(self, row: int, k: int, tile: TileShape) -> range:
        """The bytes of element (row, k) of a tile; k counts bytes of b1.

        Raises OperandError outside of the tile.
        """
        for what, index, size in (("row", row, tile.rows), ("k", k, tile.k)):
            if not isinstance(index, (int, np.integer)) or not 0 <= index < size:
                raise OperandError(f"{what} is 0 … {size - 1} in {tile}; got {index!r:.80}")
        first = int(self.addresses(tile)[row, k])
        return range(first, first + tile.element_bytes)

    def core_matrices(self, tile: TileShape) -> list[CoreMatrix]:
        """The core matrices of a tile, row by row, and the bytes that each reads."""
        unit = LINE_BYTES // tile.element_bytes
        height, width = (LINES, unit) if tile.major == "k" else (unit, LINES)
        places, out = self.addresses(tile), []
        for row in range(0, tile.rows, height):
            for column in range(0, tile.k, width):
                part = places[row : row + height, column : column + width]
                firsts = part.min(axis=1 if tile.major == "k" else 0)
                held = part.shape[1 if tile.major == "k" else 0] * tile.element_bytes
                lines = tuple(range(int(x), int(x) + held) for x in firsts)
                out.append(
                    CoreMatrix(
                        range(row, row + part.shape[0]),
                        range(column, column + part.shape[1]),
                        lines,
                    )
                )
        return out

    # --- what is wrong with it ---

    def validate(self, tile: TileShape, memory_bytes: int = WINDOW) -> list[str]:
        """What is wrong with reading `tile` through this descriptor, in plain words; [] if nothing.

        `memory_bytes` is the size of shared memory, at most the 18-bit window.
        """
        return problems(self, tile, memory_bytes)
