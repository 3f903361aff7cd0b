"""Lane maps: which element of a matrix every lane holds, each written as one literal.

A map lists *modes*, as CuTe does: the lane number is read as a mixed-radix number whose digits are
the lane modes, the first one fastest; likewise the element number within a lane. Every mode adds
``digit * stride`` to one of three coordinates:

* ROW and COL, the position in the matrix;
* GROUP, which of several matrices: the four computations of m8n8k4.f16, the sparsity selectors, the
  {byte-id, thread-id} choices of a scale.

Every map is a bijection between (lane, element) and (group, row, col); the constructor proves it.

The table has one literal for each fragment family (PTX ISA 9.7.14.5, 9.7.14.6, 9.7.15.5). With
``g = lane >> 2``, ``t = lane & 3`` and E elements per register, the element number splits into
(element in register, register bit 0, higher register bits). What the manual spells out shape by
shape are these few maps with other extents.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
from numpy.typing import NDArray

from emulator.errors import UnsupportedError, listing, quoted

#: lanes of a warp, and of a warpgroup
WARP, WARPGROUP = 32, 128
GROUP, ROW, COL = 0, 1, 2
#: (extent, axis, stride)
Mode = tuple[int, int, int]
Index = NDArray[np.intp]


def digits(modes: tuple[Mode, ...], axis: int) -> Index:
    """Contribution of `modes` to one axis, for every value of their mixed-radix number."""
    out = np.zeros(1, np.intp)
    for extent, mode_axis, stride in modes:
        step = stride if mode_axis == axis else 0
        out = (np.arange(extent)[:, None] * step + out).reshape(-1)
    return out


@dataclass(frozen=True)
class LaneMap:
    """(lane, element) -> (group, row, col)."""

    lane_modes: tuple[Mode, ...]
    element_modes: tuple[Mode, ...]

    def __post_init__(self) -> None:
        assert len(set(self.flat.reshape(-1).tolist())) == self.flat.size == np.prod(self.shape)

    @cached_property
    def coordinates(self) -> Index:
        """``(lanes, elements, 3)``: group, row, col."""
        axes = (GROUP, ROW, COL)
        lanes = np.stack([digits(self.lane_modes, axis) for axis in axes], -1)
        elements = np.stack([digits(self.element_modes, axis) for axis in axes], -1)
        out: Index = lanes[:, None] + elements[None]
        out.flags.writeable = False
        return out

    @cached_property
    def shape(self) -> tuple[int, int, int]:
        """(groups, rows, cols)."""
        groups, rows, cols = (int(top) + 1 for top in self.coordinates.max(axis=(0, 1)))
        return groups, rows, cols

    @cached_property
    def flat(self) -> Index:
        """``(lanes, elements)``: the flat index ``(group * rows + row) * cols + col``."""
        _, rows, cols = self.shape
        group, row, col = np.moveaxis(self.coordinates, -1, 0)
        out: Index = (group * rows + row) * cols + col
        out.flags.writeable = False
        return out

    @cached_property
    def inverse(self) -> Index:
        """``(groups, rows, cols)``: the flat index ``lane * elements + element``."""
        out = np.empty(self.flat.size, np.intp)
        out[self.flat.reshape(-1)] = np.arange(self.flat.size)
        out.flags.writeable = False
        return out.reshape(self.shape)


# --- the table ------------------------------------------------------------------------------------

#: an extent that takes what is left of the matrix
REST = 0
T, G = 4, 8  # lanes of a group; groups of a warp
WARPS: Mode = (4, ROW, 16)  # a warpgroup: each warp holds 16 rows more

_Literal = tuple[tuple[Mode, ...], tuple[Mode, ...]]

#: name -> e -> (lane modes, element modes). `e`: elements per register for multiplicands, chunks of
#: a row for metadata (they need none), scales of a row or column for scales.
FRAGMENTS: dict[str, Callable[[int], _Literal]] = {
    # Multiplicands of mma, 9.7.14.5.2 … 9.7.14.5.13
    "a8": lambda e: (((T, COL, e), (G, ROW, 1)), ((e, COL, 1),)),
    "a16": lambda e: (((T, COL, e), (G, ROW, 1)), ((e, COL, 1), (2, ROW, 8), (REST, COL, 4 * e))),
    "b8": lambda e: (((T, ROW, e), (G, COL, 1)), ((e, ROW, 1), (REST, ROW, 4 * e))),
    # Accumulators
    "c8": lambda _: (((T, COL, 2), (G, ROW, 1)), ((2, COL, 1),)),
    "c16": lambda _: (((T, COL, 2), (G, ROW, 1)), ((2, COL, 1), (2, ROW, 8))),
    # m8n8k4 with f16, 9.7.14.5.1: four computations, each on a low and a high group of four lanes
    "a.quad.row": lambda _: (((4, ROW, 1), (4, GROUP, 1), (2, ROW, 4)), ((4, COL, 1),)),
    "a.quad.col": lambda _: (((4, COL, 1), (4, GROUP, 1), (2, ROW, 4)), ((4, ROW, 1),)),
    "b.quad.row": lambda _: (((4, ROW, 1), (4, GROUP, 1), (2, COL, 4)), ((4, COL, 1),)),
    "b.quad.col": lambda _: (((4, COL, 1), (4, GROUP, 1), (2, COL, 4)), ((4, ROW, 1),)),
    "c.quad.f16": lambda _: (((4, ROW, 1), (4, GROUP, 1), (2, ROW, 4)), ((8, COL, 1),)),
    "c.quad.f32": lambda _: (
        ((2, ROW, 1), (2, COL, 2), (4, GROUP, 1), (2, ROW, 4)),
        ((2, COL, 1), (2, ROW, 2), (2, COL, 4)),
    ),
    # wgmma, 9.7.15.5.1.1
    "a64": lambda e: (
        ((T, COL, e), (G, ROW, 1), WARPS),
        ((e, COL, 1), (2, ROW, 8), (REST, COL, 4 * e)),
    ),
    "d64": lambda _: (
        ((T, COL, 2), (G, ROW, 1), WARPS),
        ((2, COL, 1), (2, ROW, 8), (REST, COL, 8)),
    ),
    # Sparsity metadata, 9.7.14.6.2: nibble n of a lane describes chunk COL of row ROW for the
    # selector GROUP. The manual draws these maps; they were measured on an H200.
    "e.s1": lambda _: (((4, GROUP, 1), (G, ROW, 1)), ((4, COL, 1), (2, ROW, 8))),
    "e.s2": lambda _: (((2, COL, 4), (2, GROUP, 1), (G, ROW, 1)), ((4, COL, 1), (2, ROW, 8))),
    "e.s3": lambda _: (((2, ROW, 8), (2, GROUP, 1), (G, ROW, 1)), ((8, COL, 1),)),
    "e.s4": lambda _: (((2, ROW, 8), (2, COL, 8), (G, ROW, 1)), ((8, COL, 1),)),
    "e64.s2": lambda _: (
        ((2, COL, 4), (2, GROUP, 1), (G, ROW, 1), WARPS),
        ((4, COL, 1), (2, ROW, 8)),
    ),
    "e64.s4": lambda _: (((2, ROW, 8), (2, COL, 8), (G, ROW, 1), WARPS), ((8, COL, 1),)),
    # ldmatrix, stmatrix and movmatrix, 9.7.14.5.15-17: ROW and COL are a row in memory and an
    # element of it, GROUP is the tile, `e` their number. Only m8n8 was compared with hardware.
    "move.m8n8": lambda e: (((T, COL, 2), (G, ROW, 1)), ((2, COL, 1), (e, GROUP, 1))),
    "move.m8n8.trans": lambda e: (((T, ROW, 2), (G, COL, 1)), ((2, ROW, 1), (e, GROUP, 1))),
    "move.m16n16.trans": lambda e: (
        ((T, ROW, 4), (G, COL, 1)),
        ((4, ROW, 1), (2, COL, 8), (e, GROUP, 1)),
    ),
    "move.m8n16": lambda e: (((T, COL, 4), (G, ROW, 1)), ((4, COL, 1), (e, GROUP, 1))),
    "move.m16n8.trans": lambda e: (
        ((T, ROW, 2), (G, COL, 1)),
        ((2, ROW, 1), (2, COL, 8), (e, GROUP, 1)),
    ),
    # Block scales, 9.7.14.3: byte b of a lane; GROUP = byte-id / e * (number of thread-ids) +
    # thread-id. The split of a lane pair into rows g and g + 8 for thread-id 1 is UNVERIFIED.
    "scale_a": lambda e: (
        ((2, ROW, 8), (2, GROUP, 1), (G, ROW, 1)),
        ((e, COL, 1), (4 // e, GROUP, 2)),
    ),
    "scale_b": lambda e: (((4, GROUP, 1), (G, COL, 1)), ((e, ROW, 1), (4 // e, GROUP, 4))),
}


@cache
def lane_map(name: str, e: int = 1, size: int = 0) -> LaneMap:
    """The map `name` for `e` (see FRAGMENTS) and a matrix of `size` elements.

    `size` is needed where the literal leaves an extent to be derived. Raises UnsupportedError for
    a map that the table lacks, as for a new shape.
    """
    if name not in FRAGMENTS:
        raise UnsupportedError(
            f"no lane map {quoted(name)}: which lane holds what is not known; maps are "
            f"{listing(FRAGMENTS)}"
        )
    lanes, elements = FRAGMENTS[name](e)
    fixed = 1
    for extent, _, _ in lanes + elements:
        fixed *= extent or 1
    rest = size // fixed if size else 1
    return LaneMap(lanes, tuple((x or rest, axis, step) for x, axis, step in elements))
