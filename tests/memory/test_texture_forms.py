"""Texture fetches of every form against digests of an H200's and an H100's.

texture_record.py in tests/hardware has recorded them, of the families of texture_cases.py:
h200_texture_forms.jsonl.gz, and what came later, h100_texture_levels.jsonl.gz. For the families of
the first file the H100's digests were the H200's.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hardware.texture_cases import BLOCK, Family, coordinates, texel_codes

from emulator.arith import texels
from emulator.errors import OperandError
from emulator.memory import texture_slopes
from emulator.memory.texture import Fetch, Texture

GOLDEN = Path(__file__).parent.parent / "golden"


def recorded(name: str) -> list[dict[str, Any]]:
    """The lines of a recording, each with its seed."""
    head, *lines = map(json.loads, gzip.decompress((GOLDEN / name).read_bytes()).splitlines())
    return [line | {"seed": head["seed"]} for line in lines]


LINES = recorded("h200_texture_forms.jsonl.gz") + recorded("h100_texture_levels.jsonl.gz")
RECORDED = [line for line in LINES if "digests" in line]
ANSWERED = [line for line in LINES if "answers" in line]
FIELDS = Family.__dataclass_fields__


def family_of(line: dict[str, Any]) -> Family:
    return Family(**{name: line[name] for name in line if name in FIELDS})


def texture_of(family: Family, seed: int) -> Texture:
    """The texture of a family."""
    arrays = []
    for level in range(max(1, family.levels)):
        codes = texel_codes(family, level, seed).view(family.format)
        deep, height, width, channels = codes.shape
        shapes = {
            "1d": (width,), "2d": (height, width), "a1d": (deep, width), "cube": codes.shape[:3],
            "acube": (deep // 6, 6, height, width),
        }  # fmt: skip
        shape = shapes.get(family.geometry.removesuffix("ms"), codes.shape[:3])
        arrays.append(codes.reshape(*shape, *[channels] * (channels > 1)))
    return Texture(
        arrays[0],
        channels=family.channels,
        layered=family.layered,
        cube="cube" in family.geometry,
        mipmaps=arrays[1:],
        address=family.address,
        border=tuple(family.border),
        filter="linear" if family.linear else "point",
        unit_coordinates=family.unit_coordinates,
        unit_values=family.unit_values,
        level_filter="linear" if family.linear_levels else "point",
        level_bias=family.bias,
        level_clamp=tuple(family.clamp),
        srgb=family.srgb,
        seamless=family.seamless,
    )


def fetched(family: Family, texture: Texture, i: Any, seed: int) -> Any:
    """What fetches `i` write, uint32 ``(n, 5)``: components, and whether they are resident."""
    words = coordinates(family, i, seed)
    count = family.coordinates
    given, rest = words[:count], words[count:]
    level = rest.pop(0) if "level" in family.words else None
    count = 2 * family.axes * ("grad" in family.words)
    slopes, offsets = rest[:count], rest[count:][: family.axes * family.offsets]
    kind = next(x for x in family.words if x in ("f32", "u32", "s32", "f16", "f16x2"))
    component = family.words[1] if family.words[0] == "tld4" else ""
    asked = Fetch(family.geometry, family.integers, kind, component)
    out = np.zeros((len(i), 5), np.uint32)
    out[:, :4] = texture.fetch(asked, given, level, offsets, slopes)
    if kind == "f16x2":
        out[:, :2], out[:, 2:] = out[:, :4:2] | out[:, 1:4:2] << np.uint32(16), 0
    out[:, 4] = family.resident
    return out


def wrong_blocks(line: dict[str, Any], blocks: Any) -> list[int]:
    """The blocks of a family whose fetches differ from the H200's."""
    family = family_of(line)
    texture, wrong = texture_of(family, line["seed"]), []
    for block in blocks:
        i = np.arange(block * BLOCK, (block + 1) * BLOCK, dtype=np.uint32)
        found = fetched(family, texture, i, line["seed"]).tobytes()
        if hashlib.blake2b(found, digest_size=6).hexdigest() != line["digests"][block]:
            wrong.append(block)
    return wrong


@pytest.mark.sampled(3)
@pytest.mark.parametrize("line", RECORDED[::9], ids=lambda line: line["name"])
def test_fetches_are_the_recorded_ones(line: dict[str, Any]) -> None:
    assert wrong_blocks(line, [0, len(line["digests"]) - 1]) == []


@pytest.mark.slow
@pytest.mark.parametrize("line", RECORDED, ids=lambda line: line["name"])
def test_all_fetches_are_the_recorded_ones(line: dict[str, Any]) -> None:
    assert wrong_blocks(line, range(len(line["digests"]))) == []


@pytest.mark.parametrize(
    ("name", "module", "constant", "value"),
    [
        ("share.255.float32", texels, "_EXPONENT_STEP", 8),
        ("srgb.4.True", texels, "_LIGHT_BITS", 9),
        ("border.steps3.uint16", texels, "_GUARD_BITS", 2),
        ("grad.3000x5", texture_slopes, "_FOR_DROPPED", 4),
        ("grad.2d", texture_slopes, "_PLAIN", texture_slopes._DIAGONAL),
    ],
)
def test_recordings_notice_a_changed_rule(
    name: str, module: Any, constant: str, value: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = next(x for x in RECORDED if x["name"] == name)
    assert wrong_blocks(line, [0]) == []
    monkeypatch.setattr(module, constant, value)
    assert wrong_blocks(line, [0]) == [0]


@pytest.mark.parametrize("line", ANSWERED, ids=lambda line: line["name"])
def test_sizes_are_the_recorded_ones(line: dict[str, Any]) -> None:
    texture, answers = texture_of(family_of(line), line["seed"]), line["answers"]
    for i, name in enumerate(("width", "height", "depth")):
        assert texture.query(0)[i] == answers[name]
        levels = (0, 1, 2, 3, 4, 17, 0xFFFFFFFF, 100)
        assert [texture.query(k)[i] for k in levels] == answers[f"level.{name}"]
    assert not any(answers[x] for x in ("texref", "samplerref", "surfref"))


FLAT, CUBE = np.zeros((4, 4), np.float32), np.zeros((6, 4, 4), np.uint8)
UNIT = {"unit_coordinates": True}


@pytest.mark.parametrize(
    ("array", "options", "error", "said"),
    [
        (CUBE[:5], {"cube": True}, OperandError, "a cube has 6 square faces"),
        (FLAT, {"mipmaps": [FLAT], **UNIT}, OperandError, "level 1 has 1 x 2 x 2 x 1 float32"),
        (FLAT, {"mipmaps": [FLAT[:2, :2]]}, OperandError, "mipmaps= needs unit_coordinates=True"),
        (CUBE, {"level_filter": "linear"}, OperandError, "level_filter='linear' blends floats"),
        (FLAT, {"srgb": True}, OperandError, "srgb= is for uint8"),
    ],
)
def test_wrong_textures_are_refused(array: Any, options: Any, error: Any, said: str) -> None:
    with pytest.raises(error, match=said):
        Texture(array, **options)
