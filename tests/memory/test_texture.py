"""Texture fetches against digests of an H200's (tests/golden/h200_textures.jsonl.gz).

Each family has one texture and its coordinates: a sweep, then random ones, then those with one axis
of any bits (NaN, infinities, subnormal, huge). Both come from a hash, so that a recording is 8
bytes for 4,096 fetches of four words.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hardware.texture_cases import hashed

from emulator.arith import texels
from emulator.errors import OperandError
from emulator.memory.texture import Fetch, Texture, TextureError

GOLDEN = Path(__file__).parent.parent / "golden" / "h200_textures.jsonl.gz"
#: textures whose axes have different address modes
MODES = GOLDEN.parent / "h200_texture_modes.npz"
FAMILIES = [json.loads(line) for line in gzip.decompress(GOLDEN.read_bytes()).splitlines()[1:]]
DTYPES = {"u": "uint", "s": "int", "f": "float"}
ADDRESSES = ("wrap", "clamp", "mirror", "border")
BLOCK = 4096
u32 = np.uint32


def coordinates(family: dict[str, Any], i: Any) -> list[Any]:
    """The words of fetches `i`, one array for each coordinate."""
    out, quarter, count = [], family["n"] // 4, len(family["args"])
    with np.errstate(invalid="ignore", over="ignore"):
        for a, (kind, low, span, step, factor, modulus, offset, wild) in enumerate(family["args"]):
            h = hashed(i, a, family["seed"])
            swept = (i * u32(factor) % u32(modulus)).astype(np.int32) + np.int32(offset)
            other = hashed(h, 77, 1)
            if kind == 2:
                sweep = swept.view(u32)
                random = (np.int32(low) + (h % u32(int(span))).astype(np.int32)).view(u32)
                small = (other.view(np.int32) >> 20).view(u32)
            else:
                sweep = (swept.astype(np.float32) * np.float32(step)).view(u32)
                unit = (h >> u32(8)).astype(np.float32) * np.float32(2**-24)
                random = (unit * np.float32(span) + np.float32(low)).view(u32)
                exponent = (u32(117) + (other >> u32(23)) % u32(30)) << u32(23)
                small = other & u32(0x807FFFFF) | exponent
            words = np.where(i < quarter, sweep, random)
            if wild:
                any_bits = np.where(h & 1, other, small)
                chosen = (i >= 3 * quarter) & (i % u32(count) == a)
                words = np.where(chosen, any_bits, words)
            out.append(words)
    return out


def texel_codes(family: dict[str, Any], place: Any, channel: int) -> Any:
    """The recorder's texels ``uint32``, before they are cut to their size."""
    width, height = family["w"], max(1, family["h"])
    h, bits = hashed(place, 1000 + channel, family["seed"]), int(family["fmt"][1:])
    floats = {"f32": (23, 118), "f16": (10, 8)}
    top, sign = u32(1 << bits - 1), u32((1 << bits - 1) - 1)
    if family["data"] in (1, 5):  # finite numbers; or edges of the format between them
        code = h
        if family["fmt"] in floats:
            fraction, first = floats[family["fmt"]]
            part = top | u32((1 << fraction) - 1)
            exponent = u32(first) + (h >> u32(fraction) & u32(15))
            code = h & part | exponent << u32(fraction)
            infinity = u32((1 << bits - 1) - (1 << fraction))
            edges = [infinity, infinity | top, h & part, top, u32(0)]
        else:
            edges = [top, top + u32(1), sign]
        if family["data"] == 5:
            for k, edge in enumerate(edges):
                code = np.where(h >> u32(20) & u32(7) == k, edge, code)
        return code
    if family["data"] == 2:
        return h
    if family["data"] == 0:
        number = (place + u32(100 * channel)).astype(np.float32)
    else:
        x, y, z = place % width & 1, place // width % height & 1, place // width // height & 1
        number = [z * (1 - x) * (1 - y), x, x * y, x * y * z][channel].astype(np.float32)
    if family["fmt"] == "f32":
        return number.view(u32)
    if family["fmt"] == "f16":
        return number.astype(np.float16).view(np.uint16)
    largest = (1 << bits - (family["fmt"][0] == "s")) - 1
    return number.astype(u32) * u32(largest if family["data"] == 3 else 1)


def texture_of(family: dict[str, Any]) -> Texture:
    """The texture of a family."""
    sizes = [family[axis] for axis in "dhw" if family[axis]]
    if family["d"] and not family["h"] and not family["layered"]:
        raise AssertionError(family["name"])
    channels, kind = family["nch"], family["fmt"]
    place = np.arange(np.prod(sizes), dtype=u32)
    codes = np.stack([texel_codes(family, place, c) for c in range(channels)], axis=-1)
    array = codes.astype(f"u{int(kind[1:]) // 8}").view(DTYPES[kind[0]] + kind[1:])
    return Texture(
        array.reshape(*sizes, *[channels] * (channels > 1)),
        channels=channels,
        layered=bool(family["layered"]),
        address=ADDRESSES[family["addr"]],
        filter="linear" if family["filter"] else "point",
        unit_coordinates=bool(family["norm"]),
        unit_values=bool(family["nread"]),
        linear_memory=family["name"].startswith("linear"),
    )


def digests(first: int, words: Any) -> list[str]:
    """A digest of each block of fetches ``(n, 4)``, as the recorder makes it."""
    place = np.arange(4 * first, 4 * first + words.size, dtype=np.uint64)
    z = words.reshape(-1).astype(np.uint64) + place * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ z >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ z >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    z = (z ^ z >> np.uint64(31)).reshape(-1, 4 * BLOCK)
    return [f"{int(x):016x}" for x in z.sum(axis=1, dtype=np.uint64)]


def wrong_blocks(family: dict[str, Any], blocks: Any) -> list[int]:
    """The blocks of a family whose fetches differ from the H200's."""
    texture, integers = texture_of(family), family["args"][-1][0] == 2
    kind = {"u": "u32", "s": "s32", "f": "f32"}[family["fmt"][0]]
    kind = "f32" if family["nread"] else kind
    wrong = []
    for block in blocks:
        i = np.arange(block * BLOCK, (block + 1) * BLOCK, dtype=u32)
        asked = Fetch(texture.geometry, integers, kind)
        found = texture.fetch(asked, coordinates(family, i))
        if digests(block * BLOCK, found) != [family["digests"][block]]:
            wrong.append(block)
    return wrong


def sample(family: dict[str, Any]) -> list[int]:
    """A block of the sweep, one of random coordinates, and one of any bits."""
    count = len(family["digests"])
    return [0, count // 2, count - 1]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("family", FAMILIES[::6], ids=lambda family: family["name"])
def test_fetches_are_the_recorded_ones(family: dict[str, Any]) -> None:
    assert wrong_blocks(family, sample(family)) == []


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family["name"])
def test_all_fetches_are_the_recorded_ones(family: dict[str, Any]) -> None:
    assert wrong_blocks(family, range(len(family["digests"]))) == []


def test_recordings_notice_a_changed_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cutting texels one bit earlier is seen."""
    family = next(x for x in FAMILIES if x["name"] == "2d.f32.data1")
    monkeypatch.setattr(texels, "_GUARD_BITS", 3)
    assert wrong_blocks(family, [len(family["digests"]) // 2])


@pytest.mark.parametrize(
    ("array", "options", "error", "said"),
    [
        ([1.0], {}, OperandError, "takes a NumPy array of"),
        (np.zeros(4, np.float64), {}, OperandError, "got float64"),
        (np.zeros((2, 2, 2, 2), np.float32), {}, OperandError, "one to three axes"),
        (np.zeros((2, 3), np.float32), {"channels": 4}, OperandError, "then 4 channels"),
        (np.zeros(4, np.float32), {"channels": 3}, OperandError, "1, 2 or 4 channels"),
        (np.zeros(4, np.float32), {"address": "repeat"}, OperandError, "address is wrap, mirror"),
        (np.zeros(4, np.int32), {"filter": "linear"}, OperandError, "blends floats"),
        (np.zeros(4, np.float32), {"unit_values": True}, OperandError, "8 or 16 bits"),
        (np.zeros((2, 2), np.float32), {"linear_memory": True}, OperandError, "for one axis"),
        (np.zeros(4, np.float32), {"border": (1.0,)}, OperandError, "border is 4 numbers"),
        (np.zeros(4, np.float32), {"level_clamp": 5}, OperandError, "level_clamp is 2 numbers"),
        (np.zeros(4, np.float32), {"level_bias": np.nan}, OperandError, "is 1 number; got"),
        (np.zeros(4, np.float32), {"layered": "x"}, OperandError, "layered is True or False"),
    ],
)
def test_wrong_textures_are_refused(array: Any, options: Any, error: Any, said: str) -> None:
    with pytest.raises(error, match=said):
        Texture(array, **options)


def test_fetch_of_another_type_is_refused() -> None:
    texture = Texture(np.zeros((2, 2), np.uint8))
    with pytest.raises(TextureError, match=r"type \.f32 reads Texture\(2d, uint8, 2 x 2 x 1\)"):
        texture.fetch(Fetch("2d", False, "f32"), [np.zeros(1, u32)] * 2)


@pytest.mark.parametrize(
    ("integers", "said"), [(True, r"of type \.s32"), (False, r"of type \.f32")]
)
def test_linear_memory_takes_s32_and_an_array_in_one_axis_f32(integers: bool, said: str) -> None:
    texture = Texture(np.ones(4, np.float32), linear_memory=not integers)
    with pytest.raises(TextureError, match=said):
        texture.fetch(Fetch("1d", integers, "f32"), [np.zeros(1, u32)])
    found = texture.fetch(Fetch("1d", not integers, "f32"), [np.zeros(1, u32)])
    assert found[0, 0] == 0x3F800000


def different_modes(change=lambda modes: modes):
    """How many recorded fetches of textures whose axes have different modes differ."""
    with np.load(MODES) as file:
        texels_of, differing = {2: file["plane"], 3: file["volume"]}, 0
        for (axes, *modes, unit, linear), at, words in zip(
            file["rows"].tolist(), file["at"], file["words"], strict=True
        ):
            texture = Texture(
                texels_of[axes],
                address=change([ADDRESSES[mode] for mode in modes[:axes]]),
                border=(0.25, 0.5, 0.75, 1),
                unit_coordinates=bool(unit),
                filter="linear" if linear else "point",
            )
            place = [np.ascontiguousarray(x).view(u32) for x in at.T[:axes]]
            found = texture.fetch(Fetch(f"{axes}d", False, "f32"), place)
            differing += int((found[:, 0] != words).sum())
    return differing


def test_each_axis_has_its_mode():
    assert different_modes() == 0


def test_modes_of_other_axes_are_noticed():
    assert different_modes(lambda modes: modes[::-1]) > 100


@pytest.mark.parametrize("address", [["wrap"], ["wrap"] * 3, ["wrap", "no"], []])
def test_there_is_one_mode_or_one_for_each_axis(address):
    with pytest.raises(OperandError, match="address is"):
        Texture(np.zeros((2, 2), np.float32), address=address)
