"""The specification of tensor copies: one element at a time, in plain Python integers.

`tensor_copy` computes the same for whole boxes, and equals it by test; both equal recordings of an
H200.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from emulator.memory.tensor_copy import plan
from emulator.memory.tensor_map import TensorMap


class Element(NamedTuple):
    """One element of a box."""

    #: None for an element outside of the tensor
    global_address: int | None
    shared_address: int
    #: whether it lies behind the tensor, and a store takes it all the same
    behind: bool = False


def elements(
    tensor_map: TensorMap,
    mode: str,
    coordinates: Sequence[int],
    offsets: Sequence[int] = (),
    shared_address: int = 0,
    *,
    stores: bool = False,
) -> Iterator[Element]:
    """All elements of one copy in the order of the box, rows of dimension 0 first.

    A store takes those for inside that share 16 bytes with one inside.
    """
    m, size = tensor_map, tensor_map.element_type.bytes
    plan(m, mode)  # refuses what is not modelled
    assert m.address is not None
    dims, strides, start = m.dims, (size, *m.strides), tuple(coordinates)
    row_elements = m.row_bytes // size
    pitch = m.row_bytes if m.swizzle == "none" else max(m.row_bytes, _width(m.swizzle))
    if m.interleave != "none":
        # A slice of channels is a row, and one dimension more.
        pitch = {"16B": 16, "32B": 32}[m.interleave]
        row_elements = pitch // size
        dims, strides, start = (row_elements, *dims), (size, pitch, *m.strides), (0, *start)
    for row, place in enumerate(rows(m, mode, coordinates, offsets)):
        for i in range(row_elements):
            tested = i - i % (16 // size) if stores else i
            position = (start[0] + tested, *place)
            inside = all(0 <= x < n for x, n in zip(position, dims, strict=True))
            steps = zip((start[0] + i, *place), strides, strict=True)
            where = m.address + sum(x * stride for x, stride in steps)
            shared = swizzled_byte(shared_address + row * pitch + i * size, m.swizzle)
            behind = inside and start[0] + i >= dims[0]
            yield Element(where if inside else None, shared, behind)


def rows(
    m: TensorMap, mode: str, coordinates: Sequence[int], offsets: Sequence[int]
) -> Iterator[tuple[int, ...]]:
    """The positions of the rows of one copy in all dimensions but the one of a row."""
    sliced = m.interleave != "none"
    if mode == "tile" and sliced:
        box = (*m.box[:-2], 1, m.box[-1])
        yield from _box(coordinates, box, m.element_strides)
    elif mode == "tile":
        yield from _box(coordinates[1:], m.box[1:], m.element_strides[1:])
    elif mode in ("tile::gather4", "tile::scatter4"):
        yield from ((row,) for row in coordinates[1:])
    else:
        yield from _pixels(m, coordinates, offsets, 0 if sliced else 1)


def _box(
    start: Sequence[int], sizes: Sequence[int], steps: Sequence[int]
) -> Iterator[tuple[int, ...]]:
    if not start:
        yield ()
        return
    for outer in _box(start[1:], sizes[1:], steps[1:]):
        for i in range(0, sizes[0], steps[0]):
            yield (start[0] + i, *outer)


def _pixels(
    m: TensorMap, coordinates: Sequence[int], offsets: Sequence[int], first: int
) -> Iterator[tuple[int, ...]]:
    """Pixels walk through the dimensions from `first` on that have corners, then the images."""
    position = list(coordinates[first:])
    dims, steps = m.dims[first:], m.element_strides[first:]
    for _ in range(m.pixels):
        shift = (*offsets, *(0,) * (len(position) - len(offsets)))
        yield tuple(x + y for x, y in zip(position, shift, strict=True))
        for k, (low, high) in enumerate(zip(m.lower, m.upper, strict=True)):
            position[k] += steps[k]
            if position[k] <= dims[k] - 1 + high:
                break
            position[k] = low
        else:
            position[-1] += steps[-1]


def _width(swizzle: str) -> int:
    return {"none": 16, "32B": 32, "64B": 64, "128B": 128}[swizzle]


def swizzled_byte(address: int, swizzle: str) -> int:
    """Place of a byte of shared memory under a swizzle: its 16-byte unit trades places."""
    width = _width(swizzle)
    line, within = address // 128, address % width
    unit = within // 16 ^ line % (width // 16)
    return address - within + unit * 16 + within % 16


# --- what a load makes of an element ---


def load_code(dtype: str, code: int) -> int:
    """The element that arrives in shared memory for one of global memory.

    tf32: to the nearest, ties to even, and one NaN for all; nothing is flushed, also where the
    type is called ftz.
    """
    if not dtype.startswith("tfloat32"):
        return code
    magnitude = code % 0x80000000
    if magnitude > 0x7F800000:
        return 0x7FFFE000
    if magnitude == 0x7F800000:
        return code
    low, kept = code % 0x2000, code // 0x2000
    up = low > 0x1000 or (low == 0x1000 and kept % 2 == 1)
    return (kept + up) * 0x2000
