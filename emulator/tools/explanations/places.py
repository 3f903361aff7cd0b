"""Where the elements of an operand are held: in lane registers or in shared memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from emulator.layout.descriptor import Descriptor
from emulator.layout.fragment import Fragment
from emulator.layout.tile import TileShape


class Place(NamedTuple):
    """Where an element is held: in words, and the same as numbers."""

    text: str
    data: dict[str, int | str]


#: (row, col) of an element to its place; None where nothing says it
Where = Callable[[int, int], Place | None]


def in_registers(fragment: Fragment, group: int = 0) -> Where:
    """Places in lane registers; what is not one of several matrices has one group."""
    group = group if fragment.groups > 1 else 0
    numbered = fragment.registers > 1 or fragment.operand in "abcd"

    def where(row: int, col: int) -> Place:
        lane, register, low, bits = fragment.lane(row, col, group)
        text = f"lane {lane} {fragment.operand}{register if numbered else ''}"
        if bits != fragment.word_bits:
            text += f"[{low + bits - 1}:{low}]" if bits > 1 else f"[{low}]"
        numbers = {"lane": lane, "register": register, "low_bit": low, "bits": bits}
        return Place(text, {"operand": fragment.operand, **numbers})

    return where


def in_memory(descriptor: Descriptor, tile: TileShape, width: int, transposed: bool) -> Where:
    """Places in shared memory; `transposed`: asked for as (k, column) of B."""

    def where(row: int, col: int) -> Place:
        line, k = (col, row) if transposed else (row, col)
        per_byte = 8 // width if width < 8 else 1
        bytes_ = descriptor.address(line, k // per_byte, tile)
        low = k % per_byte * width
        last = f"-{bytes_[-1]}" if len(bytes_) > 1 else f" bit {low}" if per_byte > 1 else ""
        return Place(
            f"byte{'s' if len(bytes_) > 1 else ''} {bytes_[0]}{last}",
            {"byte": bytes_[0], "bytes": len(bytes_), "low_bit": low},
        )

    return where
