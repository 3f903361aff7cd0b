"""``Surface``: an array whose texels kernels read and write by their coordinates.

The rules were found in recordings of an H200, with which they agree (tests/golden/
h200_surfaces.npz). An access of n bytes sees a row as whole elements of n bytes, whatever the
texels are: bytes of a row behind the last element are out of its range. A layer is a number of 16
bits, without a sign.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import gcd, prod
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dtypes import Array
from emulator.arith.texels import FORMATS, TexelFormat
from emulator.memory.texture_arrays import axes_of

Integers = NDArray[np.int64]
#: effect of an access out of range
Mode = Literal["trap", "clamp", "zero"]
#: bits of a layer's number
_LAYER_BITS = 16


@dataclass(frozen=True)
class SurfaceError(Exception):
    """An access that a surface does not allow, by one of the lanes: kind, lane and reason."""

    kind: str
    index: int
    reason: str

    def __str__(self) -> str:
        return self.reason


@dataclass(frozen=True)
class Texels:
    """Texels in memory, one row after the other."""

    dtype: str
    channels: int
    #: texels along each axis, x last; layers first
    axes: tuple[int, ...]
    is_layered: bool = False
    address: int = 0

    def __repr__(self) -> str:
        size = " x ".join(map(str, reversed(self.axes)))
        return f"Surface({self.geometry}, {self.dtype}, {size})"

    @property
    def geometry(self) -> str:
        """As opcodes name it: ``2d``, ``a2d``."""
        return f"a{len(self.axes) - 1}d" if self.is_layered else f"{len(self.axes)}d"

    @property
    def format(self) -> TexelFormat:
        return FORMATS[self.dtype]

    @property
    def texel(self) -> int:
        """Bytes of a texel."""
        return self.format.size * self.channels

    @property
    def row(self) -> int:
        """Bytes of a row."""
        return self.texel * self.axes[-1]

    @property
    def plane(self) -> int:
        """Bytes of a layer, or of a plane of three axes."""
        return self.row * prod(self.axes[1:-1])

    @property
    def size(self) -> int:
        """Bytes of all texels."""
        return self.texel * prod(self.axes)

    @cached_property
    def alignment(self) -> int:
        """The bytes that every row starts at a multiple of, a power of 2 up to 16."""
        return gcd(16, self.address, self.row)

    def places(
        self, coordinates: Sequence[Integers], size: int, mode: Mode, unit: int
    ) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
        """The addresses of accesses of `size` bytes, and which of them are in range; the others
        read zeros and write nothing.

        `coordinates` are s32, in the order of PTX: the layer first, then x, y, z; x counts `unit`
        bytes. Raises SurfaceError for accesses out of range with ``.trap``, and for an x that is no
        multiple of `size` bytes.
        """
        x, *rest = coordinates[self.is_layered :]
        elements = self.row // size
        checked = [(x * unit, elements * size, size)]
        heights = self.axes[-2::-1] if not self.is_layered else self.axes[-2:0:-1]
        checked += [(given, limit, 1) for given, limit in zip(rest, heights, strict=False)]
        if self.is_layered:
            layer = coordinates[0] & (1 << _LAYER_BITS) - 1
            checked.append((layer, self.axes[0], 1))
        inside = np.full(len(x), elements > 0)
        if mode == "clamp":
            places = [np.clip(given, 0, limit - step) for given, limit, step in checked]
        else:
            places = [given for given, _, _ in checked]
            for given, limit, _ in checked:
                inside &= (given >= 0) & (given < limit)
        if mode == "trap" and not inside.all():
            self._refuse("out of bounds", ~inside, coordinates, size)
        if (wrong := checked[0][0] % size != 0).any():
            self._refuse("misaligned", wrong, coordinates, size)
        steps = (1, self.row, self.plane) if not self.is_layered else self._layered_steps
        offsets = sum(place * step for place, step in zip(places, steps, strict=False))
        return (np.where(inside, offsets, 0) + self.address).astype(np.uint64), inside

    @property
    def _layered_steps(self) -> tuple[int, ...]:
        """Bytes from place to place along x, of two axes y, and layers."""
        return (1, self.plane) if len(self.axes) == 2 else (1, self.row, self.plane)

    def _refuse(
        self, kind: str, wrong: NDArray[np.bool_], coordinates: Sequence[Integers], size: int
    ) -> None:
        index = int(np.argmax(wrong))
        place = ", ".join(str(int(axis[index])) for axis in coordinates)
        what = f"{size} byte{'s' * (size > 1)} at ({place}) of {self!r}"
        why = {
            "out of bounds": f"are out of range; its rows have {self.row} bytes",
            "misaligned": f"are misaligned: x is a multiple of {size} bytes",
        }[kind]
        raise SurfaceError(kind, index, f"{what} {why}")


class Surface:
    """An array that a kernel reads through ``suld`` and writes through ``sust`` and ``sured``,
    passed for its 64-bit handle. The kernel writes it in place.

    `array` is C-contiguous and ``(width,)``, ``(height, width)`` or ``(depth, height, width)``;
    with `layered` its first axis counts layers (of a cube map its six faces, as CUDA does), with
    ``channels=2`` or ``4`` its last one has the channels of a texel. Its dtype is the format:
    float32, float16, or an integer of 8, 16 or 32 bits.

    Raises OperandError for what is no such array.
    """

    def __init__(
        self, array: Any, *, channels: Literal[1, 2, 4] = 1, layered: bool = False
    ) -> None:
        axes = axes_of(array, "Surface", channels, layered)
        self.array: Array = array
        self.texels = Texels(str(array.dtype), channels, axes, bool(layered))

    def __repr__(self) -> str:
        return repr(self.texels)
