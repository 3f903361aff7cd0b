"""Layouts of a matrix's rows in shared memory, read off the bytes and off addresses.

A layout is a start, a stride of the rows and a permutation of the 16-byte units of a row (swizzle).
What is not of this form, such as blocks of 8 lines, is not found.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from dtypes import Array, Place, pack
from emulator.layout.addressing import Int64
from emulator.layout.tile import LINE_BYTES

#: how many places that hold the same 16 bytes are looked at
_MOST = 16
#: bits, shift and relative of a `RowLayout`
Swizzle = tuple[int, int, bool]
#: none, those of TMA, and others that kernels compute
_SWIZZLES: tuple[Swizzle, ...] = ((0, 3, False), *(
    (bits, shift, relative) for bits, shift in
    ((3, 3), (2, 3), (1, 3), (2, 2), (1, 2), (1, 1), (3, 4), (2, 4), (1, 4))
    for relative in (False, True)
))  # fmt: skip


class RowLayout(NamedTuple):
    """Byte ``16 * u`` of row r lies at ``start + r * stride + 16 * u``, swizzled."""

    start: int
    #: bytes from a row to the next
    stride: int
    #: address bits from 4 on that a swizzle flips, by as many bits from ``4 + shift`` on
    bits: int = 0
    shift: int = 3
    #: whether the bits that flip are those of the distance from the start, not of the address
    relative: bool = False

    def swizzled(self, address: Any) -> Any:
        """The place of a byte without the swizzle to that with it, and back."""
        base = self.start if self.relative else 0
        offset = address - base
        return base + (offset ^ (offset >> (4 + self.shift) & (1 << self.bits) - 1) << 4)

    def addresses(self, row: Any, byte: Any) -> Any:
        return self.swizzled(self.start + row * self.stride + byte)

    @property
    def how(self) -> str:
        """The swizzle, in words."""
        if not self.bits:
            return "no swizzle"
        name = f"{LINE_BYTES << self.bits}-byte swizzle"
        if self.shift != 3:
            name = f"swizzle Swizzle<{self.bits}, 4, {self.shift}>"
        return f"the {name}{' counted from its start' if self.relative else ''}"

    @property
    def swizzle(self) -> Swizzle:
        return self.bits, self.shift, self.relative


def row_bytes(codes: Array, place: Place) -> Array:
    """The bytes of each row of a matrix as it lies in memory: ``(rows, bytes)``."""
    return pack(np.ascontiguousarray(codes), place, 32).astype("<u4").view(np.uint8)


def find_layout(shared: Array, rows: Array, likely: Iterable[Swizzle] = ()) -> RowLayout | None:
    """The layout in which ``(rows, bytes)`` lie in shared memory; None where they do not.

    Of several it is one with a `likely` swizzle, or without any. Rows of less than 16 bytes, and
    single rows, have none.
    """
    count, width = rows.shape
    if width % LINE_BYTES or count < 2:
        return None
    units = rows.reshape(count, width // LINE_BYTES, LINE_BYTES)
    firsts, seconds = (places_of(shared, units[row, 0]) for row in (0, 1))
    row = np.arange(count)[:, None]
    byte = np.arange(0, width, LINE_BYTES)
    within = np.arange(LINE_BYTES)
    for swizzle in dict.fromkeys((*likely, *_SWIZZLES)):
        for first, second in product(firsts, seconds):
            layout = _through(first, second, swizzle)
            places = layout.addresses(row, byte)
            if layout.stride <= 0 or places.min() < 0 or places.max() + LINE_BYTES > shared.size:
                continue
            if np.array_equal(shared[places[..., None] + within], units):
                return layout
    return None


def _through(first: int, second: int, swizzle: Swizzle) -> RowLayout:
    """The layout whose rows 0 and 1 start at two addresses."""
    layout = RowLayout(first, 0, *swizzle)
    start = int(layout.swizzled(first))
    return layout._replace(start=start, stride=int(layout.swizzled(second)) - start)


def places_of(shared: Array, held: Array) -> list[int]:
    """The first few places of some bytes in shared memory."""
    memory, wanted = shared.tobytes(), held.tobytes()
    out: list[int] = []
    at = memory.find(wanted)
    while at >= 0 and len(out) < _MOST:
        out.append(at)
        at = memory.find(wanted, at + 1)
    return out


def fit_layouts(
    addresses: Int64, row: Int64, byte: Int64
) -> dict[Swizzle, tuple[RowLayout, Int64]]:
    """The layouts by which ``(steps, n)`` addresses may have been computed, and how far each step
    along k is from where it should be, in bytes.

    ``(steps, n)`` rows and bytes say what belongs at the addresses; the first two of a step are
    those of rows 0 and 1 at one byte.
    """
    first, second = int(addresses[0, 0]), int(addresses[0, 1])
    out = {}
    for swizzle in _SWIZZLES:
        layout = _through(first, second, swizzle)
        plain = layout.swizzled(addresses)
        apart = plain - (layout.start + row * layout.stride + byte)
        if (apart == apart[:, :1]).all():
            out[swizzle] = layout, apart[:, 0]
    return out
