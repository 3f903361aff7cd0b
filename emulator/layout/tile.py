"""``TileShape``: the part of a matrix that an instruction reads from shared memory at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtypes import FORMATS, Format
from emulator.errors import OperandError, listing

#: element types that wgmma reads through a descriptor
IN_MEMORY = ("f16", "bf16", "tf32", "e4m3", "e5m2", "s8", "u8", "b1")
#: rows (K-major) or columns (MN-major) of a core matrix, and the bytes of each of its lines
LINES, LINE_BYTES = 8, 16
#: largest number of rows or columns: each would fill the 18 bits of an address
_LIMIT = 1 << 18


@dataclass(frozen=True)
class TileShape:
    """What an instruction reads through a descriptor: `rows` of the M or N dimension × `k`.

    K counts bytes for b1, each holding 8 elements. ``major`` is the dimension that is contiguous
    in memory: "k", or "mn" for a transposed 16-bit matrix.
    """

    rows: int
    k: int
    element_bytes: int
    major: str = "k"

    def __post_init__(self) -> None:
        sizes = (self.rows, self.k)
        if not all(isinstance(x, (int, np.integer)) and 1 <= x <= _LIMIT for x in sizes):
            raise OperandError(f"a tile has rows and columns from 1 to 2**18; got {sizes!r:.80}")
        if self.element_bytes not in (1, 2, 4) or self.major not in ("k", "mn"):
            raise OperandError(
                "a tile has elements of 1, 2 or 4 bytes and is major in 'k' or 'mn'; "
                f"got {self.element_bytes!r:.80}, {self.major!r:.80}"
            )

    @classmethod
    def of(cls, rows: int, k: int, fmt: Format | str, major: str = "k") -> TileShape:
        """The tile of `rows` × `k` elements of a type that wgmma reads from memory.

        >>> TileShape.of(64, 256, "b1")
        TileShape(rows=64, k=32, element_bytes=1, major='k')
        """
        name = fmt.name if isinstance(fmt, Format) else fmt
        if name not in IN_MEMORY:
            raise OperandError(
                f"wgmma reads {listing(IN_MEMORY, 20)} from shared memory; got {name!r:.80}"
            )
        bits = FORMATS[name].bits
        per_byte = 8 // bits if bits < 8 else 1
        if not isinstance(k, (int, np.integer)) or k % per_byte:
            raise OperandError(f"k of {name} is a multiple of {per_byte}; got {k!r:.80}")
        return cls(rows, int(k) // per_byte, max(1, bits // 8), major)


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
