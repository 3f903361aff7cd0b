"""``TileShape``: the part of a matrix that an instruction reads from shared memory at once.

A tile consists of blocks of 8 lines, each as wide as the swizzle (16 bytes without one); a block
consists of core matrices of 8 lines of 16 bytes. PTX ISA 9.7.15.5.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtypes import FORMATS, Format
from emulator.errors import OperandError, one_of, whole

#: element types that wgmma reads through a descriptor
IN_MEMORY = ("f16", "bf16", "tf32", "e4m3", "e5m2", "s8", "u8", "b1")
#: rows (K-major) or columns (MN-major) of a core matrix, and the bytes of each of its lines
LINES, LINE_BYTES = 8, 16
#: the swizzle permutes 16-byte units by address bits from this one on: lines of 128 bytes
PATTERN_LINE = LINES * LINE_BYTES
#: bytes that an address of 18 bits reaches
WINDOW = 1 << 18
#: the two strides of a descriptor
STRIDES = ("leading_byte_offset", "stride_byte_offset")


@dataclass(frozen=True)
class TileShape:
    """A tile that an instruction reads through a descriptor: `rows` of M or N × `k`.

    K counts bytes for b1, each holding 8 elements. ``major`` is the dimension that is contiguous
    in memory: "k", or "mn" for a transposed 16-bit matrix. Raises OperandError for any other shape,
    and for one of more bytes than shared addresses reach.
    """

    rows: int
    k: int
    element_bytes: int
    major: str = "k"

    def __post_init__(self) -> None:
        sizes = {"rows": WINDOW, "k": WINDOW, "element_bytes": 4}
        for name, most in sizes.items():
            size = whole(f"{name} of a TileShape", getattr(self, name), 1, most)
            object.__setattr__(self, name, size)
        if self.element_bytes == 3:
            raise OperandError("element_bytes of a TileShape is 1, 2 or 4; got 3")
        one_of("major of a tile", self.major, ("k", "mn"))
        if self.size > WINDOW:
            raise OperandError(
                f"a tile of {self.rows} × {self.k} elements of {self.element_bytes} bytes takes "
                f"more than the {WINDOW} bytes of shared addresses"
            )

    @classmethod
    def of(cls, rows: int, k: int, fmt: Format | str, major: str = "k") -> TileShape:
        """The tile of `rows` × `k` elements of a type that wgmma reads from memory.

        >>> TileShape.of(64, 256, "b1")
        TileShape(rows=64, k=32, element_bytes=1, major='k')
        """
        name = one_of("a type that wgmma reads from memory", getattr(fmt, "name", fmt), IN_MEMORY)
        bits = FORMATS[name].bits
        per_byte = 8 // bits if bits < 8 else 1
        if (k := whole("k", k, 1)) % per_byte:
            raise OperandError(f"k of {name} is a multiple of {per_byte}; got {k}")
        return cls(rows, k // per_byte, max(1, bits // 8), major)

    @property
    def size(self) -> int:
        """Bytes of all elements."""
        return self.rows * self.k * self.element_bytes

    @property
    def line_bytes(self) -> int:
        """Bytes that lie together: of a row (K-major) or a column (MN-major)."""
        return self.element_bytes * (self.k if self.major == "k" else self.rows)

    def block(self, swizzle_bytes: int) -> tuple[int, int]:
        """Rows and columns of a block of 8 lines."""
        width = (swizzle_bytes or LINE_BYTES) // self.element_bytes
        return (LINES, width) if self.major == "k" else (width, LINES)

    def blocks(self, swizzle_bytes: int) -> tuple[int, int]:
        """Number of blocks along the rows and along k."""
        rows, k = self.block(swizzle_bytes)
        return -(-self.rows // rows), -(-self.k // k)

    def strides(self, swizzle_bytes: int) -> dict[str, str]:
        """The field, LBO or SBO, that leads to the next block along "rows" and along "k"."""
        leading, stride = STRIDES
        if self.major == "mn" and swizzle_bytes:
            return {"rows": leading, "k": stride}
        return {"k": leading, "rows": stride}

    def used_strides(self, swizzle_bytes: int) -> dict[str, str]:
        """The `strides` in use: those along which the tile has more than one block."""
        high, wide = self.blocks(swizzle_bytes)
        several = {"rows": high > 1, "k": wide > 1}
        return {way: name for way, name in self.strides(swizzle_bytes).items() if several[way]}


def block_bytes(swizzle_bytes: int) -> int:
    """Bytes of a block of 8 lines; a swizzle repeats after so many bytes of addresses."""
    return LINES * (swizzle_bytes or LINE_BYTES)


class CoreMatrix(NamedTuple):
    """8 lines of 16 bytes: a line is part of a row in a K-major tile, of a column otherwise."""

    rows: range
    columns: range
    #: the bytes of each line
    lines: tuple[range, ...]


def first_shared(places: NDArray[np.int64]) -> tuple[int, tuple[int, int], tuple[int, int]] | None:
    """A byte that two elements of ``(rows, k)`` addresses share, and the two; None if none do.

    Elements lie on multiples of their size, so those that share a byte have one address.
    """
    flat = places.reshape(-1)
    order = np.argsort(flat, kind="stable")
    again = np.flatnonzero(flat[order[1:]] == flat[order[:-1]])
    if not again.size:
        return None
    first, second = (divmod(int(order[again[0] + i]), places.shape[1]) for i in (0, 1))
    return int(flat[order[again[0]]]), first, second
