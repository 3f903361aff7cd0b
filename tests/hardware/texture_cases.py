"""Families of texture fetches: the texture, the instruction, and coordinates from a hash.

The recorder (texture_record.py) and the test that replays its digests draw the same from a family
and a seed. The words of fetches come in quarters: points of a lattice and their neighbours; words
of which half are special; random words; and random words of which one has any bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint32]
u32 = np.uint32

#: fetches of a digest
BLOCK = 4096
#: axes of a geometry, and whether a layer leads
_AXES = {"1d": 1, "2d": 2, "3d": 3, "cube": 3, "2dms": 2}
_SPECIAL = np.array(
    [0, -0.0, 1, -1, 0.5, -0.5, 0.25, 0.75, 1.5, 2, -2, 3, 8, 0.999999940395, 1.00000011921, 1e-3,
     -1e-3, 2**-126, 2**-127, -(2**-140), 2**-149, 2**-24, 255 / 256, 511 / 512, 1 / 3, 1e30, -1e30,
     2**24, 2**31, np.inf, -np.inf, np.nan], np.float32
).view(u32)  # fmt: skip


@dataclass(frozen=True)
class Family:
    """One texture and one instruction; fields as `Texture` names them."""

    name: str
    opcode: str
    #: width, height, depth in texels, 0 where there is no such axis
    size: tuple[int, int, int]
    format: str = "float32"
    channels: int = 4
    #: layers, or cubes
    layers: int = 0
    levels: int = 0
    address: str = "wrap"
    linear: bool = True
    linear_levels: bool = False
    unit_coordinates: bool = True
    unit_values: bool = False
    srgb: bool = False
    seamless: bool = False
    #: whether the driver may blend two texels for four where that is near
    trilinear_optimized: bool = True
    bias: float = 0.0
    clamp: tuple[float, float] = (0.0, 99.0)
    border: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)
    #: what texels hold; see `texel_codes`
    data: str = "near"
    offsets: bool = False
    compare: bool = False
    resident: bool = False
    #: the range of derivatives as powers of two
    slopes: tuple[int, int] = (-14, 3)
    #: a flag that arrays for depth have
    depth_flag: bool = False
    fetches: int = 1 << 16
    #: fetches of each quarter that the recorder keeps as they are
    raw: int = 1024

    @property
    def words(self) -> list[str]:
        return self.opcode.split(".")

    @property
    def geometry(self) -> str:
        return next(w for w in self.words if w.lstrip("a") in _AXES)

    @property
    def axes(self) -> int:
        return _AXES[self.geometry.lstrip("a")]

    @property
    def layered(self) -> bool:
        return self.geometry[0] == "a"

    @property
    def sampled(self) -> bool:
        """A coordinate is the number of a sample."""
        return self.geometry.endswith("ms")

    @property
    def coordinates(self) -> int:
        return self.axes + self.layered + self.sampled

    @property
    def integers(self) -> bool:
        return self.words[-1] == "s32"

    def record(self) -> dict[str, Any]:
        """Its fields that differ from the defaults."""
        plain = asdict(replace(Family("", "", (0, 0, 0))))
        return {k: v for k, v in asdict(self).items() if v != plain[k]}


def hashed(i: Any, a: int, seed: int) -> Any:
    """Pseudo-random words ``uint32`` of places `i`, for a purpose `a`."""
    x = np.asarray(i, u32) * u32(0x9E3779B1)
    x = x + u32(a * 0x85EBCA77 & 0xFFFFFFFF) + u32(seed * 0xC2B2AE3D & 0xFFFFFFFF)
    x = (x ^ x >> u32(16)) * u32(0x7FEB352D)
    x = (x ^ x >> u32(15)) * u32(0x846CA68B)
    return x ^ x >> u32(16)


# --- coordinates ----------------------------------------------------------------------------------


def arguments(family: Family) -> list[tuple[str, float, float, float]]:
    """For each word of a fetch: f (a float), i (an integer) or s (a slope), its least value, span,
    and the step of its lattice."""
    out: list[tuple[str, float, float, float]] = []
    if family.layered:
        out.append(("i", -2, max(family.layers, 1) + 4, 1))
    if family.sampled:
        out.append(("i", -1, 4, 1))
    for size in family.size[: 2 if "cube" in family.geometry else family.axes]:
        if "cube" in family.geometry:
            out.append(("f", -1, 2, 1 / 64))
        elif family.integers:
            out.append(("i", -3, size + 6, 1))
        elif family.unit_coordinates:
            out.append(("f", -1.5, 4, 1 / (512 * size)))
        else:
            out.append(("f", -2, size + 4, 1 / 512))
    if "cube" in family.geometry:
        out.append(out[-1])
    if "level" in family.words:
        last = max(family.levels, 1)
        out.append(("i", -2, last + 4, 1) if family.integers else ("f", -2, last + 3, 1 / 512))
    if "grad" in family.words:
        low, high = family.slopes
        out += [("s", low, high - low, 64)] * (2 * family.axes)
    if family.offsets:
        out += [("i", -10, 20, 1)] * family.axes
    if family.compare:
        out.append(("f", -0.5, 2, 1 / 256))
    return out


def coordinates(family: Family, i: Any, seed: int) -> list[Words]:
    """The words of fetches `i`, one array for each."""
    given = arguments(family)
    out, quarter = [], family.fetches // 4
    with np.errstate(invalid="ignore", over="ignore"):
        for a, (kind, low, span, step) in enumerate(given):
            h, other = hashed(i, a, seed), hashed(i, a + 32, seed)
            if kind == "i":
                words = (np.int32(low) + (h % u32(int(span))).astype(np.int32)).view(u32)
                wild = np.where(other & 1, other, words ^ (other & u32(0xFF00)))
                out.append(np.where(_is_wild(i, quarter, a, len(given)), wild, words))
                continue
            if kind == "s":
                lattice, random = _slopes(h, other, int(low), int(span))
            else:
                steps = h % u32(round(span / step))
                near = np.float32(low) + (steps.astype(np.float64) * step).astype(np.float32)
                lattice = near.astype(np.float32).view(u32) + other % u32(3) - u32(1)
                unit = (h >> u32(8)).astype(np.float32) * np.float32(2**-24)
                random = (unit * np.float32(span) + np.float32(low)).view(u32)
            special = np.where(other >> u32(9) & u32(1), _SPECIAL[other % u32(32)], lattice)
            words = np.where(i < quarter, lattice, np.where(i < 2 * quarter, special, random))
            exponent = (u32(117) + (other >> u32(23)) % u32(30)) << u32(23)
            any_bits = np.where(h & 1, other, other & u32(0x807FFFFF) | exponent)
            out.append(np.where(_is_wild(i, quarter, a, len(given)), any_bits, words))
    return out


def _is_wild(i: Any, quarter: int, a: int, count: int) -> Any:
    return (i >= 3 * quarter) & (i % u32(count) == a)


def _slopes(h: Any, other: Any, low: int, span: int) -> tuple[Words, Words]:
    """Derivatives: powers of two times few bits, some of them 0; and any within these powers."""
    exponent = (u32(127 + low) + (other >> u32(8)) % u32(span)) << u32(23)
    sign = (other & u32(1)) << u32(31)
    coarse = np.where(h >> u32(29) == 0, 0, sign | exponent | (h & u32(15)) << u32(19))
    return coarse.astype(u32), sign | exponent | h & u32(0x7FFFFF)


# --- texels ---------------------------------------------------------------------------------------

_FRACTIONS = {"float32": 23, "float16": 10}


def shape_of(family: Family, level: int) -> tuple[int, int, int]:
    """Layers (six for each cube) or depth, height and width of a level."""
    width, height, depth = (max(1, n >> level) if n else 1 for n in family.size)
    if "cube" in family.geometry:
        depth = 6 * max(1, family.layers)
    elif family.layered:
        depth = family.layers
    return depth, height, width


def texel_codes(family: Family, level: int, seed: int) -> NDArray[Any]:
    """The codes ``(depth or layers, height, width, channels)`` of a level.

    data: "near" finite numbers of like size, of integers any; "any" any bits; "lod" the number of
    the level; "place" x and 4,096 times z, then y; "index" the number of the texel.
    """
    z, y, x = np.indices(shape_of(family, level), u32)
    _, height, width = shape_of(family, level)
    place = (z * u32(height) + y) * u32(width) + x + u32(level << 24)
    bits = 8 * np.dtype(family.format).itemsize
    out = []
    for channel in range(family.channels):
        h = hashed(place, 1000 + channel, seed)
        if family.data == "lod":
            code = np.full(place.shape, level, np.dtype(family.format))
        elif family.data == "place":
            code = (y if channel & 1 else x + u32(4096) * z).astype(family.format)
        elif family.data == "index":
            code = place + u32(channel << 20)
        elif family.format in _FRACTIONS and family.data == "near":
            fraction = _FRACTIONS[family.format]
            first = 118 if bits == 32 else 8
            part = u32(1 << bits - 1) | u32((1 << fraction) - 1)
            code = h & part | u32(first) + (h >> u32(fraction) & u32(15)) << u32(fraction)
        else:
            code = h
            if bits == 32:  # of small integers, of floats from 2**-63 to 2**64, of any
                code = np.where(h & 3, h, h & u32(0xBFFFFFFF))
        out.append(code.view(f"u{bits // 8}") if code.dtype == np.dtype(family.format)
                   else code.astype(f"u{bits // 8}"))  # fmt: skip
    return np.stack(out, axis=-1)


# --- families -------------------------------------------------------------------------------------


def families() -> Iterator[Family]:
    """All that is recorded."""
    yield from _borders()
    yield from _offsets()
    yield from _halves()
    yield from _levels()
    yield from _gradients()
    yield from _cubes()
    yield from _volumes()
    yield from _srgb()
    yield from _gathers()
    yield from _compares()
    yield from _samples()


_STEPS = (0.1, 0.9, 0.49999, 0.50001, 0.33333, 0.7, -0.3, -0.5, 0.5, 0.00391, 0.0019, 0.75, 1e-5,
          0.999999, 0.12345, -0.9)  # fmt: skip
_COLOUR = (0.25, -1.5, 3.0, 1e-3)


def _read(format_: str, unit_values: bool) -> str:
    """The type of texels of a format."""
    if unit_values or format_.startswith("f"):
        return "f32"
    return "u32" if format_.startswith("u") else "s32"


def _borders() -> Iterator[Family]:
    for format_, unit in (
        ("float32", False), ("float16", False), ("uint8", True), ("int8", True), ("uint16", True),
        ("int16", True), ("uint8", False), ("int8", False), ("uint16", False), ("int16", False),
        ("uint32", False), ("int32", False),
    ):  # fmt: skip
        kind = _read(format_, unit)
        for linear in (False, True):
            if linear and kind != "f32":
                continue
            for colour in (_COLOUR, (300.7, -2.0, 0.5, 2.5e9)):
                yield Family(
                    f"border.{format_}.{kind}.{linear}.{colour[0]}", f"tex.2d.v4.{kind}.f32",
                    (16, 16, 0), format_, address="border", linear=linear, unit_values=unit,
                    border=colour, raw=512 if linear else 128, fetches=1 << 14,
                )  # fmt: skip
    for opcode, size in (("tex.1d", (16, 0, 0)), ("tex.3d", (8, 8, 8)), ("tex.a2d", (8, 8, 0))):
        layers = 3 * ("a" in opcode)
        yield Family(f"border.{opcode}", f"{opcode}.v4.f32.f32", size, layers=layers,
                     address="border", border=_COLOUR, raw=512)  # fmt: skip
    yield Family("border.texels", "tex.2d.v4.f32.f32", (16, 16, 0), unit_coordinates=False,
                 address="border", border=_COLOUR, raw=256)  # fmt: skip
    yield Family("border.alone", "tex.2d.v4.f32.f32", (16, 16, 0), channels=1, address="border",
                 border=_COLOUR, resident=True, raw=256)  # fmt: skip
    yield Family("border.pair", "tex.2d.v4.f32.f32", (16, 16, 0), "uint8", channels=2, raw=256,
                 unit_values=True, address="border", border=_COLOUR, resident=True)  # fmt: skip
    for k in range(4):
        colour = tuple(_STEPS[4 * k : 4 * k + 4])
        for format_ in ("uint8", "uint16", "int8", "int16", "float16"):
            yield Family(f"border.steps{k}.{format_}", "tex.2d.v4.f32.f32", (8, 8, 0), format_,
                         unit_values=format_ != "float16", linear=False, address="border",
                         border=colour, raw=32, fetches=1 << 12)  # fmt: skip
    yield Family("border.integers", "tex.2d.v4.f32.s32", (16, 16, 0), unit_coordinates=False,
                 linear=False, address="border", border=_COLOUR, raw=256)  # fmt: skip
    yield Family("border.srgb", "tex.2d.v4.f32.f32", (16, 16, 0), "uint8", unit_values=True,
                 srgb=True, address="border", border=_COLOUR, raw=256)  # fmt: skip


def _offsets() -> Iterator[Family]:
    for address in ("wrap", "clamp", "mirror", "border"):
        for linear in (False, True):
            yield Family(f"offset.2d.{address}.{linear}", "tex.2d.v4.f32.f32", (16, 32, 0),
                         address=address, linear=linear, offsets=True, raw=512)  # fmt: skip
    for name, size, layers in (
        ("tex.1d", (16, 0, 0), 0), ("tex.3d", (8, 8, 8), 0), ("tex.a1d", (16, 0, 0), 3),
        ("tex.a2d", (8, 8, 0), 3), ("tex.level.2d", (32, 32, 0), 0),
    ):  # fmt: skip
        yield Family(f"offset.{name}", f"{name}.v4.f32.f32", size, layers=layers,
                     levels=4 * ("level" in name), offsets=True, linear="3d" not in name,
                     raw=512)  # fmt: skip
    yield Family("offset.texels", "tex.2d.v4.f32.f32", (16, 16, 0), unit_coordinates=False,
                 offsets=True, raw=256)  # fmt: skip
    yield Family("offset.integers", "tex.2d.v4.f32.s32", (16, 16, 0), unit_coordinates=False,
                 linear=False, offsets=True, raw=256)  # fmt: skip


def _halves() -> Iterator[Family]:
    for format_, unit in (("float32", False), ("float16", False), ("uint8", True), ("int8", True),
                          ("uint16", True), ("int16", True)):  # fmt: skip
        for result in ("v4.f16", "v2.f16x2"):
            for linear in (False, True):
                yield Family(
                    f"half.{format_}.{result}.{linear}", f"tex.2d.{result}.f32", (16, 16, 0),
                    format_, unit_values=unit, linear=linear, data="any" if not linear else "near",
                    raw=768 if result == "v4.f16" else 64, fetches=1 << 14,
                )  # fmt: skip


def _levels() -> Iterator[Family]:
    lod = Family("lod", "tex.level.2d.v4.f32.f32", (1024, 512, 0), levels=11, channels=1,
                 data="lod", raw=4096)  # fmt: skip
    for linear_levels in (False, True):
        for linear in (False, True):
            for optimized in (True, False):
                name = f"lod.{linear}.{linear_levels}.{optimized}"
                yield replace(lod, name=name, linear=linear, linear_levels=linear_levels,
                              trilinear_optimized=optimized)  # fmt: skip
    blend = replace(lod, linear_levels=True)
    for bias in (0.5, -1.25, 3.3, 1e-3, 100.0):
        yield replace(blend, name=f"lod.bias{bias}", bias=bias)
    for clamp in ((1.0, 3.0), (0.5, 2.3), (2.77, 2.78), (-2.0, 1.001), (3.0, 20.0)):
        yield replace(blend, name=f"lod.clamp{clamp}", clamp=clamp)
    yield replace(blend, name="lod.both", clamp=(0.6, 3.4), bias=-0.7)
    yield replace(blend, name="lod.few", levels=3, raw=1024)
    yield replace(blend, name="lod.none", opcode="tex.2d.v4.f32.f32", bias=2.5, raw=64)
    yield replace(blend, name="lod.base", opcode="tex.base.2d.v4.f32.f32", bias=2.5, raw=64)
    yield replace(blend, name="lod.plain", levels=0, data="near", bias=2.5, raw=64)
    yield replace(blend, name="lod.integers", opcode="tex.level.2d.v4.f32.s32", size=(32, 32, 0),
                  levels=6, unit_coordinates=True, data="near", raw=512)  # fmt: skip
    yield replace(blend, name="lod.plain.integers", opcode="tex.level.2d.v4.f32.s32", data="near",
                  size=(32, 32, 0), levels=0, unit_coordinates=False, linear=False)  # fmt: skip
    for format_, unit in (("float32", False), ("float16", False), ("uint8", True), ("int8", True),
                          ("uint16", True), ("int16", True)):  # fmt: skip
        for linear in (False, True):
            yield replace(blend, name=f"mip.{format_}.{linear}", format=format_, unit_values=unit,
                          size=(32, 16, 0), levels=6, data="near", linear=linear)  # fmt: skip
    yield replace(blend, name="mip.point", size=(32, 16, 0), levels=6, data="near",
                  linear_levels=False)  # fmt: skip
    yield replace(blend, name="mip.any", size=(32, 16, 0), levels=6, data="any", channels=2)
    yield replace(blend, name="mip.unoptimized", size=(32, 16, 0), levels=6, data="near",
                  trilinear_optimized=False)  # fmt: skip
    yield replace(blend, name="mip.uint8.raw", opcode="tex.level.2d.v4.u32.f32", format="uint8",
                  size=(32, 16, 0), levels=6, data="near", linear=False,
                  linear_levels=False)  # fmt: skip
    yield from _shares(replace(blend, opcode="tex.level.1d.v4.f32.f32", size=(4096, 0, 0),
                               levels=2, data="near", linear=False, fetches=1 << 17))  # fmt: skip
    for bias in (-100.0, 15.5, -15.3, 14.99):
        yield replace(blend, name=f"lod.bias{bias}", bias=bias, raw=2048)
    for geometry, size, layers in (
        ("1d", (64, 0, 0), 0), ("3d", (16, 8, 4), 0), ("a1d", (64, 0, 0), 3),
        ("a2d", (32, 16, 0), 3), ("cube", (32, 32, 0), 0), ("acube", (16, 16, 0), 2),
    ):  # fmt: skip
        for format_ in ("float32", "uint16"):
            yield replace(blend, name=f"mip.{geometry}.{format_}", size=size, layers=layers,
                          opcode=f"tex.level.{geometry}.v4.f32.f32", format=format_, levels=5,
                          unit_values=format_ == "uint16", data="near", raw=1024)  # fmt: skip


def _shares(family: Family) -> Iterator[Family]:
    """Blends of one texel of each of two levels, by fixed shares."""
    for share in (1, 3, 64, 85, 128, 200, 255):
        for format_ in ("float32", "float16"):
            yield replace(family, name=f"share.{share}.{format_}", clamp=(share / 256, share / 256),
                          format=format_, raw=4096)  # fmt: skip


def _gradients() -> Iterator[Family]:
    grad = Family("grad", "tex.grad.2d.v4.f32.f32", (1024, 1024, 0), levels=11, channels=1,
                  data="lod", linear_levels=True, raw=1 << 14)  # fmt: skip
    yield replace(grad, name="grad.2d")
    yield replace(grad, name="grad.2d.wide", size=(1024, 256, 0))
    yield replace(grad, name="grad.2d.odd", size=(1000, 300, 0), levels=10, raw=1 << 13)
    yield replace(grad, name="grad.1d", opcode="tex.grad.1d.v4.f32.f32", size=(1024, 0, 0))
    yield replace(grad, name="grad.3d", opcode="tex.grad.3d.v4.f32.f32", size=(256, 256, 256),
                  levels=9)  # fmt: skip
    yield replace(grad, name="grad.cube", opcode="tex.grad.cube.v4.f32.f32", size=(512, 512, 0),
                  levels=10)  # fmt: skip
    yield replace(grad, name="grad.a2d", opcode="tex.grad.a2d.v4.f32.f32", size=(256, 256, 0),
                  layers=2, levels=9, raw=4096)  # fmt: skip
    yield replace(grad, name="grad.point", linear_levels=False, raw=4096)
    yield replace(grad, name="grad.near", data="near", size=(64, 64, 0), levels=7, raw=1024)
    yield replace(grad, name="grad.flat", data="near", size=(64, 32, 0), levels=0, raw=64)
    yield replace(grad, name="grad.bias", bias=-0.7, clamp=(0.6, 5.3), raw=2048)
    for width, height, levels in ((3000, 5, 12), (513, 4000, 12), (100, 60, 7), (3, 7, 3)):
        yield replace(grad, name=f"grad.{width}x{height}", size=(width, height, 0), levels=levels,
                      raw=64)  # fmt: skip
    for width in (1000, 8191, 12345):
        yield replace(grad, name=f"grad.1d.{width}", opcode="tex.grad.1d.v4.f32.f32",
                      size=(width, 0, 0), levels=10, raw=64)  # fmt: skip
    yield replace(grad, name="grad.a1d", opcode="tex.grad.a1d.v4.f32.f32", size=(1000, 0, 0),
                  layers=3, levels=10, raw=64)  # fmt: skip
    yield replace(grad, name="grad.offset", size=(100, 60, 0), levels=7, data="near", offsets=True,
                  raw=64)  # fmt: skip


def _cubes() -> Iterator[Family]:
    cube = Family("cube", "tex.cube.v4.f32.f32", (1024, 1024, 0), channels=2, data="place",
                  address="clamp", raw=1 << 13)  # fmt: skip
    yield replace(cube, name="cube.place")
    yield replace(cube, name="cube.place.seamless", seamless=True)
    yield replace(cube, name="cube.place.point", linear=False)
    small = replace(cube, size=(8, 8, 0), raw=2048)
    for seamless in (False, True):
        for address in ("clamp", "wrap", "border", "mirror"):
            yield replace(small, name=f"cube.{address}.{seamless}", address=address,
                          seamless=seamless, border=_COLOUR)  # fmt: skip
    for format_ in ("float32", "uint8", "float16", "uint16"):
        for seamless in (False, True):
            yield replace(small, name=f"cube.{format_}.{seamless}", format=format_, data="near",
                          channels=4, unit_values=format_[0] == "u", seamless=seamless,
                          raw=1024)  # fmt: skip
    yield replace(small, name="cube.corners", data="near", channels=1, size=(2, 2, 0),
                  seamless=True, raw=4096)  # fmt: skip
    yield replace(small, name="cube.one", data="near", channels=1, size=(1, 1, 0), seamless=True)
    yield replace(small, name="cube.uint8", data="near", channels=4, format="uint8", linear=False,
                  opcode="tex.cube.v4.u32.f32", raw=256)  # fmt: skip
    for seamless in (False, True):
        yield replace(small, name=f"acube.{seamless}", opcode="tex.acube.v4.f32.f32", layers=3,
                      seamless=seamless)  # fmt: skip
        for size in (5, 37, 1000):
            for linear in (False, True):
                yield replace(small, name=f"cube.{size}.{seamless}.{linear}", data="near", raw=64,
                              size=(size, size, 0), seamless=seamless, linear=linear)  # fmt: skip


def _volumes() -> Iterator[Family]:
    for format_ in ("float32", "float16"):
        for data in ("near", "any"):
            for address in ("wrap", "clamp", "border"):
                yield Family(f"3d.{format_}.{data}.{address}", "tex.3d.v4.f32.f32", (8, 4, 8),
                             format_, channels=2, address=address, data=data, border=_COLOUR,
                             raw=4096 if address == "wrap" else 512, fetches=1 << 17)  # fmt: skip
            yield Family(f"3d.{format_}.{data}.levels", "tex.level.3d.v4.f32.f32", (16, 8, 16),
                         format_, channels=2, data=data, levels=4, linear_levels=True, raw=64,
                         fetches=1 << 17)  # fmt: skip


def _srgb() -> Iterator[Family]:
    srgb = Family("srgb", "tex.2d.v4.f32.f32", (16, 16, 0), "uint8", unit_values=True, srgb=True)
    for channels in (1, 2, 4):
        for linear in (False, True):
            yield replace(srgb, name=f"srgb.{channels}.{linear}", channels=channels, linear=linear,
                          raw=4096 if linear else 1024)  # fmt: skip
    yield replace(srgb, name="srgb.mip", opcode="tex.level.2d.v4.f32.f32", levels=5,
                  linear_levels=True)  # fmt: skip
    table = replace(srgb, opcode="tex.1d.v4.f32.f32", size=(256, 0, 0), data="index", channels=1)
    yield replace(table, name="srgb.table", linear=False, raw=4096)
    yield replace(table, name="srgb.neighbours", raw=4096)
    yield replace(srgb, name="srgb.3d", opcode="tex.3d.v4.f32.f32", size=(4, 4, 4))
    yield replace(srgb, name="srgb.half", opcode="tex.2d.v4.f16.f32")
    for geometry, size in (("1d", (64, 0, 0)), ("3d", (16, 16, 8)), ("cube", (16, 16, 0))):
        for linear in (False, True):
            yield replace(srgb, name=f"srgb.mip.{geometry}.{linear}", size=size, linear=linear,
                          opcode=f"tex.level.{geometry}.v4.f32.f32", levels=4, linear_levels=True,
                          seamless=True, raw=64)  # fmt: skip
    for k in range(4):
        yield replace(srgb, name=f"srgb.border{k}", address="border", raw=64, fetches=1 << 13,
                      border=tuple(abs(x) for x in _STEPS[4 * k : 4 * k + 4]))  # fmt: skip


def _gathers() -> Iterator[Family]:
    base = Family("tld4", "tld4.r.2d.v4.f32.f32", (16, 8, 0), address="wrap", linear=False)
    for component in "rgba":
        yield replace(base, name=f"tld4.{component}", opcode=f"tld4.{component}.2d.v4.f32.f32")
    for address in ("clamp", "mirror", "border"):
        for linear in (False, True):
            yield replace(base, name=f"tld4.{address}.{linear}", address=address, linear=linear,
                          border=_COLOUR, opcode="tld4.g.2d.v4.f32.f32")  # fmt: skip
    for address in ("wrap", "clamp"):
        yield replace(base, name=f"tld4.offset.{address}", address=address, offsets=True)
    yield replace(base, name="tld4.texels", unit_coordinates=False)
    yield replace(base, name="tld4.alone", channels=1, opcode="tld4.b.2d.v4.f32.f32")
    yield replace(base, name="tld4.alone.a", channels=2, opcode="tld4.a.2d.v4.f32.f32")
    for format_, unit in (("float16", False), ("uint8", False), ("int16", False), ("uint8", True),
                          ("int16", True), ("uint32", False)):  # fmt: skip
        kind = _read(format_, unit)
        yield replace(base, name=f"tld4.{format_}.{unit}", opcode=f"tld4.g.2d.v4.{kind}.f32",
                      format=format_, unit_values=unit, address="border",
                      border=_COLOUR)  # fmt: skip
    yield replace(base, name="tld4.srgb", format="uint8", unit_values=True, srgb=True)
    yield replace(base, name="tld4.a2d", opcode="tld4.g.a2d.v4.f32.f32", layers=3)
    yield replace(base, name="tld4.mip", levels=4, linear_levels=True)
    for seamless in (False, True):
        yield replace(base, name=f"tld4.cube.{seamless}", opcode="tld4.g.cube.v4.f32.f32",
                      size=(8, 8, 0), seamless=seamless, raw=2048)  # fmt: skip
    for format_, unit in (("uint8", False), ("int8", False), ("uint8", True), ("int8", True),
                          ("uint16", False), ("int16", False), ("int16", True), ("uint32", False),
                          ("int32", False), ("float16", False), ("float32", False)):  # fmt: skip
        yield replace(base, name=f"tld4.corners.{format_}.{unit}", format=format_, data="any",
                      opcode=f"tld4.b.cube.v4.{_read(format_, unit)}.f32", unit_values=unit,
                      size=(3, 3, 0), seamless=True, raw=64)  # fmt: skip
    yield replace(base, name="tld4.corners.srgb", format="uint8", unit_values=True, srgb=True,
                  opcode="tld4.b.cube.v4.f32.f32", size=(3, 3, 0), seamless=True,
                  raw=64)  # fmt: skip
    yield replace(base, name="tld4.acube", opcode="tld4.g.acube.v4.f32.f32", size=(8, 8, 0),
                  layers=2)  # fmt: skip


def _compares() -> Iterator[Family]:
    base = Family("compare", "tex.2d.v4.f32.f32", (16, 16, 0), channels=1, compare=True, raw=256,
                  fetches=1 << 14)  # fmt: skip
    yield replace(base, name="compare.2d")
    yield replace(base, name="compare.point", linear=False)
    yield replace(base, name="compare.depth", depth_flag=True)
    yield replace(base, name="compare.uint16", format="uint16", unit_values=True)
    yield replace(base, name="compare.tld4", opcode="tld4.r.2d.v4.f32.f32")
    yield replace(base, name="resident", compare=False, resident=True, address="border")


def _samples() -> Iterator[Family]:
    """Instructions for textures of several samples, of textures that have one."""
    base = Family("samples", "tex.2dms.v4.f32.s32", (16, 8, 0), linear=False,
                  unit_coordinates=False, raw=64, fetches=1 << 14)  # fmt: skip
    yield replace(base, name="samples.2d")
    yield replace(base, name="samples.base", opcode="tex.base.2dms.v4.f32.s32")
    yield replace(base, name="samples.offset", offsets=True)
    yield replace(base, name="samples.uint8", opcode="tex.2dms.v4.u32.s32", format="uint8")
    yield replace(base, name="samples.unit", unit_coordinates=True, linear=True)
    yield replace(base, name="samples.levels", unit_coordinates=True, levels=3)
    yield replace(base, name="samples.a2d", opcode="tex.a2dms.v4.f32.s32", layers=3)
