"""A lane map: which element of a matrix every lane holds, written as one literal.

A map lists *modes*, as CuTe does: the lane number is read as a mixed-radix number whose digits are
the lane modes, the first one fastest; likewise the element number within a lane. Every mode adds
``digit * stride`` to one of three coordinates:

* ROW and COL, the position in the matrix;
* GROUP, which of several matrices: the four computations of m8n8k4.f16, the sparsity selectors, the
  {byte-id, thread-id} choices of a scale.

Every map is a bijection between (lane, element) and (group, row, col); the constructor proves it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

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
