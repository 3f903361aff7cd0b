"""The specification of tensor copies: one element at a time, in plain Python integers.

`tensor_copy` computes the same for whole boxes, and equals it by test. The conversions of loads are
published, not measured here: f32 to tf32 goes to the nearest, ties to even, and leaves infinities
and NaNs alone (Triton's interpreter, compared with an RTX PRO 6000); ftz is what its name says.
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


def elements(
    tensor_map: TensorMap,
    mode: str,
    coordinates: Sequence[int],
    offsets: Sequence[int] = (),
    shared_address: int = 0,
) -> Iterator[Element]:
    """All elements of one copy in the order of the box, rows of dimension 0 first."""
    m, size = tensor_map, tensor_map.element_type.bytes
    plan(m, mode)  # refuses what is not modelled
    assert m.address is not None
    row_elements = m.row_bytes // size
    for row, place in enumerate(rows(m, mode, coordinates, offsets)):
        for i in range(row_elements):
            position = (coordinates[0] + i, *place)
            inside = all(0 <= x < n for x, n in zip(position, m.dims, strict=True))
            steps = zip(position, (size, *m.strides), strict=True)
            where = m.address + sum(x * stride for x, stride in steps)
            unswizzled = shared_address + (row * row_elements + i) * size
            yield Element(where if inside else None, swizzled_byte(unswizzled, m.swizzle))


def rows(
    m: TensorMap, mode: str, coordinates: Sequence[int], offsets: Sequence[int]
) -> Iterator[tuple[int, ...]]:
    """The positions of the rows of one copy in the dimensions from 1 on."""
    if mode == "tile":
        yield from _box(coordinates[1:], m.box[1:], m.element_strides[1:])
    elif mode in ("tile::gather4", "tile::scatter4"):
        yield from ((row,) for row in coordinates[1:])
    else:
        yield from _pixels(m, coordinates, offsets)


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
    m: TensorMap, coordinates: Sequence[int], offsets: Sequence[int]
) -> Iterator[tuple[int, ...]]:
    position, spatial = list(coordinates[1:]), m.rank - 2
    for _ in range(m.pixels):
        shift = (*offsets, *(0,) * (m.rank - 1 - len(offsets)))
        yield tuple(x + y for x, y in zip(position, shift, strict=True))
        for k in range(spatial):
            position[k] += m.element_strides[k + 1]
            if position[k] <= m.dims[k + 1] - 1 + m.upper[k]:
                break
            position[k] = m.lower[k]
        else:
            position[-1] += 1


def swizzled_byte(address: int, swizzle: str) -> int:
    """Where a byte of shared memory lies under a swizzle: its 16-byte unit trades places."""
    width = {"none": 16, "32B": 32, "64B": 64, "128B": 128}[swizzle]
    line, within = address // 128, address % width
    unit = within // 16 ^ line % (width // 16)
    return address - within + unit * 16 + within % 16


# --- what a load makes of an element ---


def load_code(dtype: str, code: int) -> int:
    """The element that arrives in shared memory for one of global memory."""
    exponent, flush = code & 0x7F800000, dtype.endswith("_ftz")
    if flush and exponent == 0:
        return code & 0x80000000
    if dtype.startswith("tfloat32") and exponent != 0x7F800000:
        low, kept = code % 0x2000, code // 0x2000
        up = low > 0x1000 or (low == 0x1000 and kept % 2 == 1)
        return (kept + up) * 0x2000
    return code
