"""The 64-bit matrix descriptor of wgmma: fields, and the byte address of every element.

``Descriptor`` is one descriptor as a kernel writer thinks of it: built for a tile, looked through,
checked. ``decode_descriptor`` and ``addresses`` do the same for arrays of descriptors.

PTX ISA 9.7.15.5.1 (field layout); the address formulas were measured on an H200 with random
starts, strides and base offsets. Addresses are bytes of the shared window.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtypes import Array, Format
from emulator.errors import OperandError
from emulator.layout.tile import LINE_BYTES, LINES, CoreMatrix, TileShape, first_shared

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
#: addresses have 18 bits, of which a descriptor holds the upper 14
WINDOW = 1 << 18
#: what the manual assumes of an LBO that is not used
_UNUSED_LBO = (0, 16)
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


def decode_descriptor(descriptors: Array) -> Fields:
    """The fields of 64-bit descriptors; bits that belong to no field have no effect."""
    words = np.asarray(descriptors)
    if words.dtype != np.uint64:
        raise OperandError(f"a matrix descriptor is a uint64 word; got {words.dtype}")
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
    codes = {0: 0, **{units * 16: code for code, units in SWIZZLE_UNITS.items() if units > 1}}
    if not isinstance(swizzle_bytes, (int, np.integer)) or swizzle_bytes not in codes:
        raise OperandError(f"swizzle_bytes is one of {sorted(codes)}; got {swizzle_bytes!r:.80}")
    values = {
        "start_address": start_address,
        "leading_byte_offset": leading_byte_offset,
        "stride_byte_offset": stride_byte_offset,
        "base_offset": base_offset,
        "swizzle": codes[swizzle_bytes],
    }
    word = 0
    for name, value in values.items():
        low, width = FIELDS[name]
        unit = 16 if name in _IN_16_BYTES else 1
        if (
            not isinstance(value, (int, np.integer))
            or value % unit
            or not 0 <= value // unit < 1 << width
        ):
            raise OperandError(
                f"{name} must be a multiple of {unit} from 0 to {((1 << width) - 1) * unit}; "
                f"got {value!r:.80}"
            )
        word |= int(value) // unit << low
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
                leading = _UNUSED_LBO[1]
        else:
            high, wide = -(-rows // width), -(-tile.k // LINES)
            leading, stride = block, high * block
            if not swizzle_bytes:
                leading, stride = stride, leading
        base = start_address >> 7 & block // 128 - 1
        out = cls(start_address, leading, stride, base, swizzle_bytes)
        problems = out.validate(tile)
        if swizzle_bytes and start_address % 128:
            problems.append(
                f"start_address {start_address} is no multiple of 128, where the lines of a "
                "swizzled tile start (steps along k inside of a tile: `stepped`)"
            )
        if problems:
            raise OperandError(f"no descriptor for {tile}: {'; '.join(problems)}")
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
        return [
            *self._shape_problems(tile),
            *self._pattern_problems(),
            *self._stride_problems(tile),
            *self._memory_problems(tile, memory_bytes),
        ]

    def _shape_problems(self, tile: TileShape) -> list[str]:
        out = []
        if tile.rows % 8:
            out.append(f"{tile.rows} rows: wgmma reads a multiple of 8 rows")
        if tile.major == "mn" and tile.element_bytes != 2:
            out.append(
                f"an MN-major tile of {8 * tile.element_bytes}-bit elements: only 16-bit types can "
                "be transposed, others are K-major"
            )
        unit = LINE_BYTES // tile.element_bytes if tile.major == "k" else LINES
        if tile.k % unit:
            out.append(f"{tile.k} columns: a core matrix holds {unit} of them")
        return out

    def _pattern_problems(self) -> list[str]:
        line = self.start_address >> 7
        if not self.swizzle_bytes:
            return ["base_offset counts only with a swizzle"] if self.base_offset else []
        lines = self.swizzle_bytes // LINE_BYTES
        if (line - self.base_offset) % lines == 0:
            return []
        return [
            f"the {self.swizzle_bytes}-byte swizzle repeats every {128 * lines} bytes of absolute "
            f"addresses; start_address {self.start_address} lies {128 * (line % lines)} bytes into "
            f"it, which needs base_offset {line % lines}; it is {self.base_offset}"
        ]

    def _stride_problems(self, tile: TileShape) -> list[str]:
        out = []
        width = self.swizzle_bytes // tile.element_bytes
        unused = tile.major == "k" and self.swizzle_bytes and tile.k <= width
        if unused and self.leading_byte_offset not in _UNUSED_LBO:
            out.append(
                f"leading_byte_offset {self.leading_byte_offset} is ignored: {tile.k} columns are "
                f"within the {width} of one {self.swizzle_bytes}-byte swizzle width"
            )
        if shared := first_shared(self.addresses(tile)):
            place, (row, k), (other_row, other_k) = shared
            out.append(
                f"elements (row {row}, k {k}) and (row {other_row}, k {other_k}) share byte "
                f"{place}: leading_byte_offset {self.leading_byte_offset} or stride_byte_offset "
                f"{self.stride_byte_offset} is too small for {tile.rows} × {tile.k} elements of "
                f"{tile.element_bytes} bytes"
            )
        return out

    def _memory_problems(self, tile: TileShape, memory_bytes: int) -> list[str]:
        places = self.addresses(tile)
        end = int(places.max()) + tile.element_bytes
        size = min(memory_bytes, WINDOW)
        if end <= size:
            return []
        row, k = (int(i) for i in np.argwhere(places + tile.element_bytes > size)[0])
        what = "the 18-bit window" if size == WINDOW else "shared memory"
        return [
            f"the tile ends at byte {end} and {what} at {size}; element (row {row}, k {k}) is the "
            "first outside"
        ]
