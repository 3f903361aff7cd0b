"""What is wrong with reading a tile through a wgmma matrix descriptor: the facts, and in words.

A tile consists of blocks of 8 lines, each as wide as the swizzle; PTX ISA 9.7.15.5.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from emulator.layout.addressing import WINDOW, addresses, decode_words, encode_descriptor
from emulator.layout.tile import LINE_BYTES, LINES, TileShape, first_shared

if TYPE_CHECKING:
    from emulator.layout.descriptor import Descriptor

STRIDES = ("leading_byte_offset", "stride_byte_offset")
#: the swizzle permutes 16-byte units by address bits from this one on: lines of 128 bytes
PATTERN_LINE = LINES * LINE_BYTES

# --- blocks of 8 lines ----------------------------------------------------------------------------


def with_field(descriptor: Descriptor, name: str, value: int) -> Descriptor:
    """The descriptor with another value of one field."""
    return replace(descriptor, **{name: value})


def line_bytes(swizzle_bytes: int) -> int:
    """Bytes of a line of a block: the width of the swizzle, 16 without one."""
    return swizzle_bytes or LINE_BYTES


def block_bytes(swizzle_bytes: int) -> int:
    """Bytes of a block of 8 lines; a swizzle repeats after so many bytes of addresses."""
    return LINES * line_bytes(swizzle_bytes)


def block_shape(shape: TileShape, swizzle_bytes: int) -> tuple[int, int]:
    """Rows and columns of a block of 8 lines; k counts bytes of b1."""
    width = line_bytes(swizzle_bytes) // shape.element_bytes
    return (LINES, width) if shape.major == "k" else (width, LINES)


def stride_of(shape: TileShape, swizzle_bytes: int) -> dict[str, str]:
    """Which of LBO and SBO leads to the next block along "rows" and along "k"."""
    rows, k = block_shape(shape, swizzle_bytes)
    four = replace(shape, rows=2 * rows, k=2 * k)
    out = {}
    for name in STRIDES:
        far = encode_descriptor(0, swizzle_bytes=swizzle_bytes, **{name: WINDOW // 2})
        places = addresses(decode_words(np.asarray(far)), four)
        out["rows" if places[rows, 0] else "k"] = name
    return out


def used_strides(shape: TileShape, swizzle_bytes: int) -> dict[str, str]:
    """Those of `stride_of` that a tile needs, because it has more than one block that way."""
    rows, k = block_shape(shape, swizzle_bytes)
    several = {"rows": shape.rows > rows, "k": shape.k > k}
    return {way: name for way, name in stride_of(shape, swizzle_bytes).items() if several[way]}


# --- facts ----------------------------------------------------------------------------------------


def past_line(descriptor: Descriptor, shape: TileShape) -> tuple[int, int] | None:
    """How far into a line of the swizzle a tile starts and how many bytes of the line it reads,
    where it runs into the next line."""
    width = descriptor.swizzle_bytes
    if not width:
        return None
    within = descriptor.start_address % width
    reads = min(width, shape.element_bytes * (shape.k if shape.major == "k" else shape.rows))
    return (within, reads) if within + reads > width else None


def behind_pattern(descriptor: Descriptor) -> int:
    """Bytes from where the swizzle last repeated to the line that a tile starts in.

    A multiple of 128, unless the line starts in the middle of the 128 bytes that count as one.
    """
    width, start = descriptor.swizzle_bytes, descriptor.start_address
    return start % block_bytes(width) - start % width if width else 0


def unused_leading(descriptor: Descriptor, shape: TileShape) -> bool:
    """Whether LBO has no effect, and no value that the manual gives it then."""
    width = descriptor.swizzle_bytes
    unused = width and shape.major == "k" and "k" not in used_strides(shape, width)
    return bool(unused) and descriptor.leading_byte_offset not in (0, LINE_BYTES)


def uneven_strides(descriptor: Descriptor, shape: TileShape) -> list[str]:
    """Used strides with which one block is permuted otherwise than the next."""
    width = descriptor.swizzle_bytes
    names = used_strides(shape, width).values() if width else ()
    return [name for name in names if getattr(descriptor, name) % block_bytes(width)]


# --- in words -------------------------------------------------------------------------------------


def problems(descriptor: Descriptor, tile: TileShape, memory_bytes: int) -> list[str]:
    """See `Descriptor.validate`."""
    return [
        *_shape_problems(tile),
        *_start_problems(descriptor, tile),
        *_stride_problems(descriptor, tile),
        *_memory_problems(descriptor, tile, memory_bytes),
    ]


def _shape_problems(tile: TileShape) -> Iterator[str]:
    if tile.rows % 8:
        yield f"{tile.rows} rows: wgmma reads a multiple of 8 rows"
    if tile.major == "mn" and tile.element_bytes != 2:
        yield (
            f"an MN-major tile of {8 * tile.element_bytes}-bit elements: only 16-bit types can "
            "be transposed, others are K-major"
        )
    unit = LINE_BYTES // tile.element_bytes if tile.major == "k" else LINES
    if tile.k % unit:
        yield f"{tile.k} columns: a core matrix holds {unit} of them"


def _start_problems(descriptor: Descriptor, tile: TileShape) -> Iterator[str]:
    start, width = descriptor.start_address, descriptor.swizzle_bytes
    if not width:
        if descriptor.base_offset:
            yield "base_offset counts only with a swizzle"
        return
    if past := past_line(descriptor, tile):
        within, reads = past
        yield (
            f"start_address {start} lies {within} bytes into a line of {width}, of which the tile "
            f"reads {reads}: the last {within + reads - width} are those of another line"
        )
    pattern, behind = block_bytes(width), behind_pattern(descriptor)
    if behind % PATTERN_LINE:
        yield (
            f"start_address {start} lies in the middle of the {PATTERN_LINE} bytes that the "
            "swizzle counts as one"
        )
        return
    wanted = behind // PATTERN_LINE
    if (wanted - descriptor.base_offset) % (pattern // PATTERN_LINE):
        yield (
            f"the {width}-byte swizzle repeats every {pattern} bytes of absolute addresses; "
            f"start_address {start} lies {behind} bytes into it, which needs base_offset {wanted}; "
            f"it is {descriptor.base_offset}"
        )


def _stride_problems(descriptor: Descriptor, tile: TileShape) -> Iterator[str]:
    width = descriptor.swizzle_bytes
    if unused_leading(descriptor, tile):
        yield (
            f"leading_byte_offset {descriptor.leading_byte_offset} is ignored: {tile.k} columns "
            f"are within the {width // tile.element_bytes} of one {width}-byte swizzle width"
        )
    for name in uneven_strides(descriptor, tile):
        yield (
            f"{name} {getattr(descriptor, name)} is no multiple of {block_bytes(width)}, after "
            f"which the {width}-byte swizzle repeats: one block of 8 lines is permuted otherwise "
            "than the next"
        )
    if shared := first_shared(descriptor.addresses(tile)):
        place, (row, k), (other_row, other_k) = shared
        yield (
            f"elements (row {row}, k {k}) and (row {other_row}, k {other_k}) share byte "
            f"{place}: leading_byte_offset {descriptor.leading_byte_offset} or stride_byte_offset "
            f"{descriptor.stride_byte_offset} is too small for {tile.rows} × {tile.k} elements of "
            f"{tile.element_bytes} bytes"
        )


def _memory_problems(descriptor: Descriptor, tile: TileShape, memory_bytes: int) -> Iterator[str]:
    places = descriptor.addresses(tile)
    end = int(places.max()) + tile.element_bytes
    size = min(memory_bytes, WINDOW)
    if end <= size:
        return
    row, k = (int(i) for i in np.argwhere(places + tile.element_bytes > size)[0])
    what = "the 18-bit window" if size == WINDOW else "shared memory"
    yield (
        f"the tile ends at byte {end} and {what} at {size}; element (row {row}, k {k}) is the "
        "first outside"
    )
