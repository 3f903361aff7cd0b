"""tcgen05.ld.red and .spcompress, and what cp expands."""

import numpy as np
import pytest

from emulator import OperandError
from emulator.memory.tensor_memory import expanded
from emulator.warp.tensor_load import compressed, reduced

INF, NAN = np.float32(np.inf), np.float32(np.nan)


def words(*values):
    return np.array([values], np.float32).view(np.uint32)


@pytest.mark.parametrize(
    ("values", "how", "want"),
    [
        ((1, -3, 2), ("max",), 2),
        ((1, -3, 2), ("min",), -3),
        ((-0.0, 0.0), ("max",), 0.0),
        ((0.0, -0.0), ("min",), -0.0),
        ((1, NAN, 2), ("max",), 2),
        ((-INF, 5), ("min",), -INF),
    ],
)
def test_extremes_of_floats(values, how, want):
    got = reduced(words(*values), *how, "f32")
    assert got[0] == np.float32(want).view(np.uint32)


def test_modifiers():
    assert reduced(words(1, -3, 2), "max", "f32", absolute=True)[0] == np.float32(3).view("u4")
    assert reduced(words(1, -3, 2), "min", "f32", absolute=True)[0] == np.float32(1).view("u4")
    assert reduced(words(1, NAN, 2), "max", "f32", nan=True)[0] == 0x7FFF_FFFF
    assert reduced(words(NAN, NAN), "max", "f32")[0] == 0x7FFF_FFFF


def test_extremes_of_integers():
    given = np.array([[1, 0xFFFF_FFFF, 7], [3, 2, 0x8000_0000]], np.uint32)
    assert reduced(given, "max", "u32").tolist() == [0xFFFF_FFFF, 0x8000_0000]
    assert reduced(given, "max", "s32").tolist() == [7, 3]
    assert reduced(given, "min", "s32").tolist() == [0xFFFF_FFFF, 0x8000_0000]
    assert reduced(given, "min", "u32").tolist() == [1, 2]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: reduced(words(1), "max", "f32"), "x2 or more; got 1"),
        (lambda: reduced(words(1, 2), "sum", "f32"), "'min' or 'max'"),
        (lambda: reduced(words(1, 2), "max", "f16"), "'f32', 'u32' or 's32'"),
        (lambda: reduced(words(1, 2), "max", "u32", nan=True), "neither .abs nor .NaN"),
        (lambda: compressed(words(1, 2), "max"), "a multiple of 4"),
        (lambda: expanded(np.zeros((1, 16), np.uint8), "b5x16"), "b4x16_p64, b6x16_p32"),
    ],
)
def test_what_is_refused(call, message):
    with pytest.raises(OperandError, match=message):
        call()


@pytest.mark.parametrize(
    ("values", "how", "absolute", "kept"),
    [
        ((1, 4, 3, 2), "max", False, (1, 2)),
        ((1, 4, 3, 2), "min", False, (0, 3)),
        ((-5, 4, 3, 2), "max", False, (1, 2)),
        ((-5, 4, 3, 2), "max", True, (0, 1)),
        ((-5, 4, 3, 2), "min", True, (2, 3)),
        ((1, NAN, 3, 2), "min", False, (0, 1)),
        ((0.0, -0.0, -0.0, 0.0), "max", False, (0, 3)),
        ((2, 2, 2, 2), "max", False, (0, 1)),
    ],
)
def test_two_of_four_are_kept(values, how, absolute, kept):
    given = np.tile(words(*values), (32, 1))
    metadata, data = compressed(given, how, absolute=absolute)
    assert data.tolist() == given[:, list(kept)].tolist()
    assert metadata.tolist() == [[kept[0] | kept[1] << 2]] * 32


def test_positions_fill_words_from_the_lowest_bit():
    rng = np.random.default_rng(8)
    given = rng.integers(0, 1 << 32, (32, 64), np.uint32)
    metadata, data = compressed(given, "max")
    assert metadata.shape == (32, 2) and data.shape == (32, 32)
    for lane in (0, 31):
        for i in range(32):
            position = int(metadata[lane, i // 16]) >> 2 * (i % 16) & 3
            assert data[lane, i] == given[lane, i // 2 * 4 + position]


@pytest.mark.parametrize(("packed", "width", "low"), [("b4x16_p64", 4, 2), ("b6x16_p32", 6, 0)])
def test_what_cp_expands(packed, width, low):
    rows = np.random.default_rng(9).integers(0, 256, (4, 32), np.uint8)
    got = expanded(rows, packed)
    for row in range(4):
        for byte in range(32):
            unit = int.from_bytes(rows[row, byte // 16 * 16 :][:16].tobytes(), "little")
            element = unit >> byte % 16 * width & (1 << width) - 1
            assert got[row, byte] == element << low
