"""``Texture``: an array with the way in which ``tex`` reads it, as an argument of a launch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from dtypes import Array
from emulator.arith import texels
from emulator.errors import OperandError, flag, listing, shown
from emulator.layout.texture_axes import Address, Axis, Places, addressed, numbers
from emulator.layout.texture_cubes import across, on_face
from emulator.memory.texture_arrays import mipmaps_of, texels_of
from emulator.memory.texture_slopes import differences, level_of, level_on_cube, moved

Words = NDArray[np.uint32]
Integers = NDArray[np.int64]
Filter = Literal["point", "linear"]
Colour = tuple[float, float, float, float]
#: the axes of a geometry that coordinates are for, the fastest first
_AXES = {"1d": "x", "2d": "xy", "3d": "xyz", "a1d": "x", "a2d": "xy", "cube": "xy", "acube": "xy"}
_COMPONENTS = "rgba"
#: the end of geometries of several samples in a texel
_SAMPLED = "ms"
#: the order in which ``tld4`` writes four texels, of those whose x changes fastest
_GATHERED = [2, 3, 1, 0]
#: channels of a texel -> those of sRGB that hold light
_LIGHTS = {1: 1, 2: 1, 4: 3}
#: the level that a fetch without one asks for, before the bias of the texture
_FIRST_LEVEL = -32
#: the largest bias of levels, either way
_MOST_BIAS = 15.0
#: bits of an offset; of the four texels of ``tld4`` it has more
_OFFSET_BITS, _FAR_OFFSET_BITS = 4, 6


@dataclass(frozen=True)
class TextureError(Exception):
    """A fetch that the texture does not allow: what was asked for, and what it is."""

    reason: str

    def __str__(self) -> str:
        return self.reason


class Fetch(NamedTuple):
    """What an instruction asks of a texture."""

    geometry: str
    #: coordinates are integers, which count texels and lead to zeros outside
    integers: bool
    #: what the instruction takes texels for: u32, s32, f32, f16 or f16x2
    kind: str
    #: of ``tld4``: the component of four texels
    component: str = ""


class _Lanes(NamedTuple):
    """The operands of lanes, an array each."""

    #: f32 words; of a cube, places on a face
    coordinates: Sequence[Array]
    layer: Integers | None
    offsets: Sequence[Integers]

    def of(self, mask: Array) -> _Lanes:
        layer = None if self.layer is None else self.layer[mask]
        return _Lanes([x[mask] for x in self.coordinates], layer, [x[mask] for x in self.offsets])


class Texture:
    """An array that a kernel reads through ``tex``, passed for its 64-bit handle.

    `array` is ``(width,)``, ``(height, width)`` or ``(depth, height, width)``; with `layered` its
    first axis counts layers, with ``channels=2`` or ``4`` its last one has the channels of a texel.
    With `cube` it is ``(6, width, width)``, the faces +x, -x, +y, -y, +z and -z, and with `layered`
    cubes come first. Its dtype is the format: float32, float16, or an integer of 8, 16 or 32 bits.
    `mipmaps` are the further levels, each half as large as the one before. The texture holds
    copies: changes of the arrays come too late.

    `address`, one for all axes or one for each, x first, says what coordinates outside lead to:
    behind a "border" to the four channels of the colour `border`, whose f32 bits integers take.
    `filter` is "point" or "linear". With `unit_coordinates` they go from 0 to 1, and "wrap" and
    "mirror" work; without, as on a GPU, these two are "clamp". `unit_values` reads integers of 8
    and 16 bits as f32 from 0 or -1 to 1, and `srgb` the first three channels of uint8, or the first
    of two, as linear light. The linear filter of a `seamless` cube goes on at the next face, where
    that of others follows `address`. `level_filter` says what lies between two levels, `level_bias`
    is added to a level, and `level_clamp` has the least and the most.

    With `linear_memory` the array lies in linear memory, as ``tex1Dfetch`` reads it: one axis, s32
    coordinates, zeros outside. Otherwise a texture of one axis takes f32 coordinates alone: for
    an array in one axis an H200 answers s32 ones with 0.

    Raises OperandError for what is no such array or option.
    """

    def __init__(
        self,
        array: object,
        *,
        channels: Literal[1, 2, 4] = 1,
        layered: bool = False,
        cube: bool = False,
        mipmaps: Sequence[object] = (),
        address: Address | Sequence[Address] = "clamp",
        border: Colour = (0.0, 0.0, 0.0, 0.0),
        filter: Filter = "point",
        unit_coordinates: bool = False,
        unit_values: bool = False,
        level_filter: Filter = "point",
        level_bias: float = 0.0,
        level_clamp: tuple[float, float] = (0.0, 99.0),
        srgb: bool = False,
        seamless: bool = False,
        linear_memory: bool = False,
    ) -> None:
        layered, cube = flag("layered", layered), flag("cube", cube)
        held, self.geometry = texels_of(array, channels, layered, cube)
        self._format = texels.FORMATS[str(np.asarray(array).dtype)]
        axes = len(_AXES[self.geometry])
        self._addresses = (address,) * axes if isinstance(address, str) else tuple(address)
        if len(self._addresses) != axes:
            raise OperandError(
                f"address is one for all axes or one for each of {axes}; got {shown(address)}"
            )
        for name, given, legal in (
            *(("address", x, get_args(Address)) for x in self._addresses),
            ("filter", filter, get_args(Filter)),
            ("level_filter", level_filter, get_args(Filter)),
        ):
            if given not in legal:
                raise OperandError(f"{name} is {listing(legal)}; got {shown(given)}")
        self._levels = (held, *mipmaps_of(held, mipmaps, self._format, self.geometry))
        self.linear = filter == "linear"
        self.unit_coordinates, self.unit_values = unit_coordinates or cube, unit_values
        self.seamless = seamless and cube
        self.srgb, self._lights = srgb, _LIGHTS[channels] if srgb else 0
        self.linear_levels, self.linear_memory = level_filter == "linear", linear_memory
        self._check()
        (bias,) = _numbers("level_bias", [level_bias], 1)
        self._bias = int(min(max(bias, -_MOST_BIAS), _MOST_BIAS) * texels.ONE)
        last = (len(self._levels) - 1) * texels.ONE
        low, high = (
            int(min(max(0, x * texels.ONE), last)) for x in _numbers("level_clamp", level_clamp, 2)
        )
        self._clamp = low, max(low, high)
        codes = [
            texels.border_code(self._format, x, unit_values, channel < self._lights)
            for channel, x in enumerate(_numbers("border", border, 4, nan=True))
        ]
        self._border = np.array(codes[:channels], held.dtype)

    def __repr__(self) -> str:
        size = " x ".join(map(str, reversed(self._levels[0].shape[:-1])))
        more = f", {len(self._levels)} levels" if len(self._levels) > 1 else ""
        return f"Texture({self.geometry}, {self._format.dtype}, {size}{more})"

    def _check(self) -> None:
        """Refuses combinations that a GPU refuses."""
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
        if (self.linear or self.linear_levels) and whole and not self.unit_values:
            name = "filter" if self.linear else "level_filter"
            raise OperandError(
                f"{name}='linear' blends floats, or integers with unit_values=True; the array "
                f"holds {self._format.dtype}"
            )
        if self.srgb and not (self._format.dtype == "uint8" and self.unit_values):
            raise OperandError(
                f"srgb= is for uint8 with unit_values=True; the array holds {self._format.dtype}"
            )
        if len(self._levels) > 1 and not self.unit_coordinates:
            raise OperandError("mipmaps= needs unit_coordinates=True, as on a GPU")

    def query(self, level: int) -> tuple[int, int, int]:
        """Width, height and depth of a level, all 0 where there is none: for the first axis that
        is not there the number of layers."""
        if not 0 <= level < len(self._levels):
            return 0, 0, 0
        deep, height, width, _ = self._levels[level].shape
        layers = deep // 6 if "cube" in self.geometry else deep
        given = {"3d": (height, deep), "1d": (1, 0), "a1d": (layers, 0), "a2d": (height, layers),
                 "acube": (height, layers)}  # fmt: skip
        return (width, *given.get(self.geometry, (height, 0)))

    # --- fetches ---

    def fetch(
        self,
        asked: Fetch,
        coordinates: Sequence[Array],
        level: Array | None = None,
        offsets: Sequence[Array] = (),
        slopes: Sequence[Array] = (),
    ) -> Words:
        """The four components ``uint32 (lanes, 4)`` at coordinates ``uint32 (lanes,)`` each, f32 or
        s32; the layer comes first. `level` has words of the same type, `offsets` s32. `slopes` are
        f32: the derivatives along x, one for each axis, then those along y. Channels that the
        texture has not are 0.

        Raises TextureError for an instruction of another geometry, kind or sort of coordinates than
        the texture.
        """
        self._check_asked(asked)
        if asked.geometry.endswith(_SAMPLED):
            return self._sample(asked, coordinates, offsets)
        layer = None
        if self.geometry.startswith("a"):
            number, *coordinates = coordinates
            count = len(self._levels[0]) // (6 if "cube" in self.geometry else 1)
            layer = addressed(
                number.astype(np.int64), count, "border" if asked.integers else "clamp"
            )
        bits = _FAR_OFFSET_BITS if asked.component else _OFFSET_BITS
        near = [_signed(words, bits) for words in offsets]
        places = self._places_of(asked, level, coordinates, slopes)
        if "cube" in self.geometry:
            face, *coordinates = on_face(texels.quotients(coordinates))
            layer = face if layer is None else 6 * layer + face
        lanes = _Lanes(coordinates, layer, near or [np.zeros_like(coordinates[0], np.int64)] * 3)
        if asked.integers:
            out = self._whole(lanes, level)
        else:
            out = self._by_level(asked, lanes, places)
        return texels.halves(out) if asked.kind.startswith("f16") else out

    def _sample(
        self, asked: Fetch, coordinates: Sequence[Array], offsets: Sequence[Array]
    ) -> Words:
        """What instructions for several samples in a texel read: sample 0, which is the texel;
        others are zeros."""
        plain = asked._replace(geometry=asked.geometry.removesuffix(_SAMPLED))
        number, *rest = coordinates
        return np.where((number == 0)[:, None], self.fetch(plain, rest, None, offsets), 0)

    def _check_asked(self, asked: Fetch) -> None:
        geometry, kind = asked.geometry, asked.kind
        if geometry.removesuffix(_SAMPLED) != self.geometry:
            raise TextureError(f"tex.{geometry} reads {self!r}")
        if kind not in self._kinds:
            raise TextureError(
                f"an instruction of type .{kind} reads {self!r}, whose texels are "
                f"{listing(f'.{x}' for x in self._kinds)}"
            )
        if self.geometry == "1d" and asked.integers != self.linear_memory:
            given, legal = ("s32", "f32") if asked.integers else ("f32", "s32")
            raise TextureError(
                f"tex.1d with coordinates of type .{given} reads {self!r}, which takes those of "
                f".{legal}: on an H200 coordinates of .s32 read linear memory "
                "(Texture(..., linear_memory=True)) and give 0 for an array"
            )

    @property
    def _kinds(self) -> tuple[str, ...]:
        if self._format.kind == "float" or self.unit_values:
            return ("f32", "f16", "f16x2")
        return ("u32" if self._format.kind == "unsigned" else "s32",)

    def _whole(self, lanes: _Lanes, level: Array | None) -> Words:
        """Texels by their numbers: outside there are zeros, or with a level the last texels."""
        out = np.zeros((len(lanes.coordinates[0]), 4), np.uint32)
        numbers_ = np.zeros(len(out), np.int64) if level is None else _signed(level, 32)
        outside: Address = "border" if level is None else "clamp"
        for k in range(len(self._levels)):
            mask = numbers_ == k
            here = lanes.of(mask)
            places = [
                addressed(_signed(words, 32) + offset, axis.size, outside)
                for words, axis, offset in zip(
                    here.coordinates, self._axes(k), here.offsets, strict=False
                )
            ]
            codes = self._gather(k, places, here.layer, np.zeros_like(self._border))
            out[mask, : codes.shape[1]] = self._elements(codes)
        return out

    def _places_of(
        self,
        asked: Fetch,
        level: Array | None,
        coordinates: Sequence[Array],
        slopes: Sequence[Array],
    ) -> Integers | int:
        """The levels of lanes that ask for one, in 1/256."""
        given: Integers | int = _FIRST_LEVEL * texels.ONE
        if slopes:
            given = self._led_to(coordinates, slopes)
        elif level is not None and not asked.component:
            given = np.trunc(np.clip(numbers(level), -1e6, 1e6) * texels.ONE).astype(np.int64)
        low, high = self._clamp
        place = given + self._bias
        place = min(max(place, low), high) if isinstance(place, int) else np.clip(place, low, high)
        return place if self.linear_levels else place + texels.ONE // 2 & -texels.ONE

    def _led_to(self, coordinates: Sequence[Array], slopes: Sequence[Array]) -> Integers:
        """The levels that derivatives lead to. In three axes and on cubes a function of the driver
        adds them to coordinates, and samples there."""
        sizes = [axis.size for axis in self._axes(0)]
        if "cube" in self.geometry:
            start = texels.quotients(coordinates)
            x, y = (texels.quotients(moved(coordinates, d)) for d in (slopes[:3], slopes[3:]))
            return level_on_cube(start, x, y, sizes[0])
        if self.geometry == "3d":
            slopes = differences(coordinates, slopes)
        return level_of(slopes, sizes)

    def _by_level(self, asked: Fetch, lanes: _Lanes, places: Integers | int) -> Words:
        """Texels of the levels that lanes ask for."""
        count = len(lanes.coordinates[0])
        if isinstance(places, int):
            k, rest = divmod(places, texels.ONE)
            return self._of_level(asked, k, lanes, np.full(count, rest))
        first, share = places >> texels.WEIGHT_BITS, places & texels.ONE - 1
        out = np.zeros((count, 4), np.uint32)
        for k in np.unique(first).tolist():
            mask = first == k
            out[mask] = self._of_level(asked, k, lanes.of(mask), share[mask])
        return out

    def _of_level(self, asked: Fetch, k: int, lanes: _Lanes, share: Integers) -> Words:
        """Texels of a level, and of the next one as far as lanes have a share of it."""
        if asked.component:
            return self._four(k, lanes, asked.component)
        if self.linear or self.linear_levels:
            return self._blended(k, lanes, share)
        codes = self._gather(k, self._nearest(k, lanes), lanes.layer, self._border)
        out = np.zeros((len(share), 4), np.uint32)
        out[:, : codes.shape[1]] = self._elements(codes)
        return out

    def _four(self, k: int, lanes: _Lanes, component: str) -> Words:
        """One component of the four texels that the linear filter reads. On a seamless cube all go
        through the filter, and at a corner, where one is missing, it is the mean of the others."""
        channel = _COMPONENTS.index(component)
        out = np.zeros((len(lanes.coordinates[0]), 4), np.uint32)
        if channel < len(self._border):
            codes, missing = self._corners(k, lanes, self._between(k, lanes, apart=True))
            held = codes[..., channel]
            out = self._values(held, channel)
            if self.seamless:
                for i in range(4):
                    one = np.zeros_like(missing, np.int64)
                    one[:, i] = texels.ONE
                    weights = texels.shared(one, missing)[:, None, None]
                    out[:, i] = self._mean(held[:, None, None], weights, channel, weights != 0)
            out = out[:, _GATHERED]
        return out

    def _blended(self, k: int, lanes: _Lanes, share: Integers) -> Words:
        """Weighted sums of the texels of a level and of the next one, whose share is given."""
        given = [self._around(k, lanes, texels.ONE - share)]
        if share.any():
            given.append(self._around(k + 1, lanes, share))
        codes, weights, read = (np.stack(x, axis=1) for x in zip(*given, strict=True))
        out = np.zeros((len(share), 4), np.uint32)
        for channel in range(codes.shape[-1]):
            out[:, channel] = self._mean(codes[..., channel], weights, channel, read)
        return out

    def _mean(self, codes: Array, weights: Integers, channel: int, read: Array) -> Words:
        """Weighted sums of a channel's texels ``(lanes, levels, layers, texels)``."""
        if channel < self._lights:
            return texels.blend_light(codes, weights)
        if self._kinds[0] != "f32":
            return texels.blend_integers(self._format, codes, weights)
        return texels.blend(self._format, codes, weights, read)

    def _around(self, k: int, lanes: _Lanes, share: Integers) -> tuple[Array, Integers, Array]:
        """Codes ``(lanes, layers, texels, channels)`` around places of a level, the weights of the
        texels, and whether each is read at all."""
        if not self.linear:
            codes = self._gather(k, self._nearest(k, lanes), lanes.layer, self._border)
            return codes[:, None, None], share[:, None, None], (share != 0)[:, None, None]
        axes = self._between(k, lanes)
        if self.geometry in ("1d", "a1d") and self._addresses[0] == "border":
            # A GPU reads a row between the border and the array.
            axes.append(Places(*(np.full(len(share), n) for n in (-1, 0, texels.ONE // 2))))
        codes, missing = self._corners(k, lanes, axes)
        fractions = [axis.fraction for axis in axes]
        read = texels.is_read(fractions) & (share != 0)[:, None] & ~missing
        weights = texels.weights(fractions, share)
        if self.seamless:
            weights = texels.shared(weights, missing)
        layers = len(share), -1, min(4, missing.shape[1])
        codes = codes.reshape(*layers, len(self._border))
        return codes, weights.reshape(layers), read.reshape(layers)

    def _corners(self, k: int, lanes: _Lanes, axes: Sequence[Places]) -> tuple[Array, Array]:
        """Codes ``(lanes, texels, channels)`` around places of a level, x changing fastest, and
        whether each is missing: beyond two edges of a seamless cube there is none."""
        corners = [
            [axis.high if up else axis.low for axis, up in zip(axes, ups[::-1], strict=True)]
            for ups in product((False, True), repeat=len(axes))
        ]
        codes = np.stack([self._gather(k, x, lanes.layer, self._border) for x in corners], axis=1)
        missing = np.zeros(codes.shape[:2], bool)
        if self.seamless:
            size = self._levels[k].shape[1]
            outside = [[(x < 0) | (x >= size) for x in corner] for corner in corners]
            missing = np.stack([s & t for s, t in outside], axis=1)
        return codes, missing

    # --- places ---

    def _axes(self, k: int) -> list[Axis]:
        """The axes of a level that coordinates are for, x first."""
        sizes = tuple(reversed(self._levels[k].shape[:3]))[: len(_AXES[self.geometry])]
        return [
            Axis(size, address, self.unit_coordinates)
            for size, address in zip(sizes, self._addresses, strict=True)
        ]

    def _nearest(self, k: int, lanes: _Lanes) -> list[Integers]:
        given = zip(self._axes(k), lanes.coordinates, lanes.offsets, strict=False)
        if "cube" in self.geometry:
            return [axis.nearest_on_face(place, self.seamless) for axis, place, _ in given]
        return [axis.nearest(words, offset) for axis, words, offset in given]

    def _between(self, k: int, lanes: _Lanes, apart: bool = False) -> list[Places]:
        given = zip(self._axes(k), lanes.coordinates, lanes.offsets, strict=False)
        if "cube" in self.geometry:
            return [axis.between_on_face(place, self.seamless, apart) for axis, place, _ in given]
        return [axis.between(words, offset, apart) for axis, words, offset in given]

    def _gather(
        self, k: int, places: Sequence[Integers], layer: Integers | None, border: Array
    ) -> Array:
        """Codes ``(lanes, channels)`` at places along x, y, z; `border` at -1."""
        if self.seamless and layer is not None:
            size = self._levels[k].shape[1]
            face, *places = across(layer % 6, places[0], places[1], size)
            layer, places = layer - layer % 6 + face, [np.clip(x, 0, size - 1) for x in places]
        index = [*places, *[np.zeros_like(places[0])] * (3 - len(places))]
        if layer is not None:
            index[2] = layer
        outside = np.logical_or.reduce([axis < 0 for axis in index])
        x, y, z = (np.maximum(axis, 0) for axis in index)
        codes: Array = self._levels[k][z, y, x]
        return np.where(outside[:, None], border, codes)

    def _elements(self, codes: Array) -> Words:
        """The components of codes ``(lanes, channels)``."""
        channels = range(codes.shape[1])
        return np.stack([self._values(codes[:, c], c) for c in channels], axis=1)

    def _values(self, codes: Array, channel: int) -> Words:
        if channel < self._lights:
            return texels.linear_light(codes)
        convert = texels.normalised if self.unit_values else texels.element
        return convert(self._format, codes)


def _numbers(what: str, given: Sequence[float], count: int, nan: bool = False) -> Sequence[float]:
    """`given`, if it is so many numbers, NaN among them or not; OperandError for anything else."""
    try:
        fits = len(given) == count and all(nan or x == x for x in map(float, given))
    except (TypeError, ValueError):
        fits = False
    if not fits:
        raise OperandError(f"{what} is {count} number{'s' * (count > 1)}; got {shown(given)}")
    return given


def _signed(words: Array, bits: int) -> Integers:
    """The low bits of words as integers with a sign."""
    held = words.astype(np.int64) & (1 << bits) - 1
    return held - ((held >> bits - 1) << bits)
