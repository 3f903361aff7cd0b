"""``Texture``: an array with the way in which ``tex`` reads it, as an argument of a launch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from dtypes import Array
from emulator.arith import texels
from emulator.errors import OperandError, UnsupportedError, listing, shown
from emulator.layout.texture_axes import Address, Places, addressed, between, nearest

Words = NDArray[np.uint32]
#: the axes of a geometry that coordinates are for, the fastest first
_AXES = {"1d": "x", "2d": "xy", "3d": "xyz", "a1d": "x", "a2d": "xy"}


@dataclass(frozen=True)
class TextureError(Exception):
    """A fetch that the texture does not allow: what was asked for, and what it is."""

    reason: str

    def __str__(self) -> str:
        return self.reason


class Texture:
    """An array that a kernel reads through ``tex``, passed for its 64-bit handle.

    `array` is ``(width,)``, ``(height, width)`` or ``(depth, height, width)``; with `layered` its
    first axis counts layers, with ``channels=2`` or ``4`` its last one has the channels of a texel.
    Its dtype is the format: float32, float16, or an integer of 8, 16 or 32 bits. The texture holds
    a copy: changes of the array come too late.

    `address` says what coordinates outside lead to: zeros behind a "border". `filter` is "point" or
    "linear". With `unit_coordinates` they go from 0 to 1, and "wrap" and "mirror" work; without, as
    on a GPU, these two are "clamp". `unit_values` reads integers of 8 and 16 bits as f32 from 0 or
    -1 to 1.

    With `linear_memory` the array lies in linear memory, as ``tex1Dfetch`` reads it: one axis, s32
    coordinates, zeros outside. Otherwise a texture of one axis takes f32 coordinates alone: for
    an array in one axis an H200 answers s32 ones with 0.

    Raises OperandError for what is no such array or option, UnsupportedError for what nobody has
    settled on a GPU: linear filters of float16 and float32 in three axes.
    """

    def __init__(
        self,
        array: Any,
        *,
        channels: Literal[1, 2, 4] = 1,
        layered: bool = False,
        address: Address = "clamp",
        filter: Literal["point", "linear"] = "point",
        unit_coordinates: bool = False,
        unit_values: bool = False,
        linear_memory: bool = False,
    ) -> None:
        self._held, self.geometry = _texels(array, channels, layered)
        self._format = texels.FORMATS[str(np.asarray(array).dtype)]
        for name, given, legal in (
            ("address", address, get_args(Address)), ("filter", filter, ("point", "linear")),
        ):  # fmt: skip
            if given not in legal:
                raise OperandError(f"{name} is {listing(legal)}; got {shown(given)}")
        self.address, self.linear = address, filter == "linear"
        self.unit_coordinates, self.unit_values = unit_coordinates, unit_values
        self.linear_memory = linear_memory
        self._check()

    def __repr__(self) -> str:
        size = " x ".join(map(str, reversed(self._held.shape[:-1])))
        return f"Texture({self.geometry}, {self._format.dtype}, {size})"

    def _check(self) -> None:
        """Refuses combinations that a GPU refuses, and those whose bits nobody knows."""
        whole, small = self._format.kind != "float", self._format.bits <= 16
        if self.linear_memory and (self.geometry != "1d" or self.linear or self.unit_coordinates):
            raise OperandError(
                "linear_memory= is for one axis, with filter='point' and without unit_coordinates="
            )
        if self.unit_values and not (whole and small):
            raise OperandError(
                "unit_values= is for integers of 8 or 16 bits; the array holds "
                f"{self._format.dtype}"
            )
        if self.linear and whole and not self.unit_values:
            raise OperandError(
                "filter='linear' blends floats, or integers with unit_values=True; the array "
                f"holds {self._format.dtype}"
            )
        if self.linear and self.geometry == "3d" and not whole:
            raise UnsupportedError("linear filters of floats in three axes are not modelled here")

    @property
    def _sizes(self) -> tuple[int, ...]:
        """Texels along the axes that coordinates are for, x first."""
        return tuple(reversed(self._held.shape[:3]))[: len(_AXES[self.geometry])]

    def fetch(
        self, geometry: str, integers: bool, coordinates: Sequence[Array], kind: str
    ) -> Words:
        """The four components ``uint32 (lanes, 4)`` at coordinates ``uint32 (lanes,)`` each: f32,
        or s32 where they are `integers`; the layer comes first. Integers count texels, and lead to
        zeros outside. `kind`: what the instruction
        takes texels for, f32, u32 or s32. Channels that the texture has not are 0.

        Raises TextureError for an instruction of another geometry, kind or sort of coordinates than
        the texture.
        """
        if geometry != self.geometry:
            raise TextureError(f"tex.{geometry} reads {self!r}")
        if kind not in self._kinds:
            raise TextureError(f"an instruction of type .{kind} reads {self!r}, whose texels are "
                               f"{listing(f'.{x}' for x in self._kinds)}")  # fmt: skip
        if self.geometry == "1d" and integers != self.linear_memory:
            given, legal = ("s32", "f32") if integers else ("f32", "s32")
            raise TextureError(
                f"tex.1d with coordinates of type .{given} reads {self!r}, which takes those of "
                f".{legal}: on an H200 coordinates of .s32 read linear memory "
                "(Texture(..., linear_memory=True)) and give 0 for an array"
            )
        layer = None
        if self.geometry.startswith("a"):
            number, *coordinates = coordinates
            layer = addressed(number.astype(np.int64), self._held.shape[0],
                              "border" if integers else "clamp")  # fmt: skip
        out = np.zeros((len(coordinates[0]), 4), np.uint32)
        if integers or not self.linear:
            codes = self._gather(self._points(coordinates, integers), layer)
            convert = texels.normalised if self.unit_values else texels.element
            out[:, : codes.shape[1]] = convert(self._format, codes)
            return out
        axes = [between(words, size, self.address, self.unit_coordinates)
                for words, size in zip(coordinates, self._sizes, strict=True)]  # fmt: skip
        if self.geometry in ("1d", "a1d") and self.address == "border":
            # A GPU reads a row between the border and the array.
            lanes = len(out)
            axes.append(Places(*(np.full(lanes, n) for n in (-1, 0, texels.ONE // 2))))
        corners = [
            [axis.high if up else axis.low for axis, up in zip(axes, ups[::-1], strict=True)]
            for ups in product((False, True), repeat=len(axes))
        ]
        around = [self._gather(corner, layer) for corner in corners]
        codes, fractions = np.stack(around, axis=1), [axis.fraction for axis in axes]
        for channel in range(codes.shape[2]):
            out[:, channel] = texels.blend(self._format, codes[:, :, channel], fractions)
        return out

    @property
    def _kinds(self) -> tuple[str, ...]:
        if self._format.kind == "float" or self.unit_values:
            return ("f32",)
        return ("u32" if self._format.kind == "unsigned" else "s32",)

    def _points(self, coordinates: Sequence[Array], integers: bool) -> list[NDArray[np.int64]]:
        if integers:
            return [addressed(words.astype(np.uint32).astype(np.int64), size, "border")
                    for words, size in zip(coordinates, self._sizes, strict=True)]  # fmt: skip
        return [nearest(words, size, self.address, self.unit_coordinates)
                for words, size in zip(coordinates, self._sizes, strict=True)]  # fmt: skip

    def _gather(
        self, places: Sequence[NDArray[np.int64]], layer: NDArray[np.int64] | None
    ) -> Array:
        """Codes ``(lanes, channels)`` at places along x, y, z; zeros at the border, -1."""
        index = [*places, *[np.zeros_like(places[0])] * (3 - len(places))]
        if layer is not None:
            index[2] = layer
        outside = np.logical_or.reduce([axis < 0 for axis in index])
        x, y, z = (np.maximum(axis, 0) for axis in index)
        codes: Array = self._held[z, y, x]
        return np.where(outside[:, None], codes.dtype.type(0), codes)


def _texels(array: Any, channels: int, layered: bool) -> tuple[Array, str]:
    """Codes ``(depth or layers, height, width, channels)``, and the geometry."""
    held = array if isinstance(array, np.ndarray) else None
    if held is None or str(held.dtype) not in texels.FORMATS:
        legal = listing(texels.FORMATS)
        got = held.dtype if held is not None else type(array).__name__
        raise OperandError(f"a Texture takes a NumPy array of {legal}; got {got}")
    if channels not in (1, 2, 4):
        raise OperandError(f"a texel has 1, 2 or 4 channels; got {shown(channels)}")
    axes = held.shape if channels == 1 else held.shape[:-1]
    rank = len(axes) - layered
    if 0 in held.shape or rank not in ((1, 2) if layered else (1, 2, 3)) or (
        channels > 1 and held.shape[-1] != channels
    ):  # fmt: skip
        what = "layers, then one or two axes" if layered else "one to three axes"
        last = f", then {channels} channels" if channels > 1 else ""
        raise OperandError(f"a Texture has {what}{last}, none empty; the array is {held.shape}")
    geometry = f"a{rank}d" if layered else f"{rank}d"
    full = (axes[0], *(1,) * (2 - rank), *axes[1:]) if layered else (*(1,) * (3 - rank), *axes)
    codes = np.array(held, order="C").view(f"u{held.itemsize}")
    return codes.reshape(*full, channels), geometry
