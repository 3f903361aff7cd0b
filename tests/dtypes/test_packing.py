"""Codes to register words and back (PTX ISA 9.7.14.5: the first element in the lowest bits)."""

import numpy as np
import pytest
from bits import assert_same_codes

from dtypes import (
    FORMATS,
    array_from_codes,
    array_type,
    code_type,
    codes_from_array,
    pack,
    padding_is_zero,
    place,
    unpack,
)

# format, container, word bits -> bits of a place, lowest bit of the code in it, elements per word
PLACES = {
    ("f64", None, 64): (64, 0, 1),
    ("f32", None, 32): (32, 0, 1),
    ("tf32", None, 32): (32, 0, 1),
    ("s32", None, 32): (32, 0, 1),
    ("f16", None, 32): (16, 0, 2),
    ("bf16", None, 32): (16, 0, 2),
    ("e4m3", None, 32): (8, 0, 4),
    ("e5m2", None, 32): (8, 0, 4),
    ("e4m3", 8, 32): (8, 0, 4),
    ("s8", None, 32): (8, 0, 4),
    ("u8", None, 32): (8, 0, 4),
    ("ue8m0", None, 32): (8, 0, 4),
    ("ue4m3", 8, 32): (8, 0, 4),
    ("e3m2", 8, 32): (8, 0, 4),
    ("e2m3", 8, 32): (8, 0, 4),
    ("e2m1", 8, 32): (8, 2, 4),
    ("e2m1", None, 32): (4, 0, 8),
    ("s4", None, 32): (4, 0, 8),
    ("u4", None, 32): (4, 0, 8),
    ("b1", None, 32): (1, 0, 32),
    # shared memory: one byte per element, two or eight in it
    ("e4m3", None, 8): (8, 0, 1),
    ("e2m1", None, 8): (4, 0, 2),
    ("b1", None, 8): (1, 0, 8),
    ("f16", None, 16): (16, 0, 1),
}
IDS = [f"{name}-in-{container or 'its-bits'}-of-{word}" for name, container, word in PLACES]

# format, container, codes, word: by hand
WORDS = [
    ("f16", None, [0x3C00, 0xBC01], 0xBC01_3C00),
    ("tf32", None, [0x3F80_1FFF], 0x3F80_1FFF),
    ("e4m3", None, [0x01, 0x23, 0x45, 0xFF], 0xFF45_2301),
    ("s8", None, [0x80, 0x7F, 0x00, 0xFF], 0xFF00_7F80),
    ("s4", None, [1, 2, 3, 4, 5, 6, 7, 8], 0x8765_4321),
    ("e2m1", None, [0xF, 0, 0, 0, 0, 0, 0, 7], 0x7000_000F),
    # bits 5:2 of each byte
    ("e2m1", 8, [0xF, 0x1, 0x8, 0x7], 0x1C20_043C),
    # bits 5:0 of each byte
    ("e3m2", 8, [0x3F, 0x01, 0x20, 0x1F], 0x1F20_013F),
    ("e2m3", 8, [0x3F, 0x01, 0x20, 0x1F], 0x1F20_013F),
    # bits 6:0
    ("ue4m3", 8, [0x7F, 0x38, 0x00, 0x01], 0x0100_387F),
    ("b1", None, [1, 0, 1, *[0] * 28, 1], 0x8000_0005),
]


@pytest.mark.parametrize("given", PLACES, ids=IDS)
def test_places(given):
    name, container, word_bits = given
    width, shift, per_word = PLACES[given]
    where = place(FORMATS[name], container)
    assert (where.width, where.shift, where.code_bits) == (width, shift, FORMATS[name].bits)
    assert word_bits // where.width == per_word


@pytest.mark.parametrize(("name", "container", "codes", "word"), WORDS)
def test_words_by_hand(name, container, codes, word):
    where = place(FORMATS[name], container)
    codes = np.array(codes, code_type(FORMATS[name].bits))
    words = np.array([word], np.uint32)
    assert_same_codes(pack(codes, where), words)
    assert_same_codes(unpack(words, where), codes)


@pytest.mark.parametrize("given", PLACES, ids=IDS)
def test_codes_survive_a_round_trip(given):
    """Every code up to 16 bits, in every position; random codes beyond."""
    name, container, word_bits = given
    fmt, where = FORMATS[name], place(FORMATS[name], container)
    if fmt.bits <= 16:
        codes = np.arange(1 << fmt.bits)
    else:
        codes = np.random.default_rng(1).integers(0, 1 << fmt.bits, 1000, np.uint64)
    per_word = PLACES[given][2]
    rows = np.stack([np.roll(codes, i) for i in range(per_word)], -1)
    rows = rows.astype(code_type(fmt.bits))
    words = pack(rows, where, word_bits)
    assert words.shape == (len(codes), 1)
    assert words.dtype == np.dtype(f"uint{word_bits}")
    assert_same_codes(unpack(words, where, word_bits), rows)


@pytest.mark.parametrize("given", PLACES, ids=IDS)
def test_words_survive_but_for_their_padding(given):
    name, container, word_bits = given
    where = place(FORMATS[name], container)
    rng = np.random.default_rng(2)
    words = rng.integers(0, 1 << word_bits, (5, 3, 4), np.uint64).astype(f"uint{word_bits}")
    codes = unpack(words, where, word_bits)
    assert codes.shape == (5, 3, 4 * word_bits // where.width)
    assert codes.dtype == code_type(FORMATS[name].bits)
    used = {("e2m1", 8): 0x3C3C3C3C, ("ue4m3", 8): 0x7F7F7F7F}.get((name, container))
    if name in ("e3m2", "e2m3"):
        used = 0x3F3F3F3F
    expected = words if used is None else words & words.dtype.type(used)
    assert_same_codes(pack(codes, where, word_bits), expected)


def test_elements_go_lowest_bits_first_across_words():
    codes = np.arange(12, dtype=np.uint8).reshape(1, 12)
    words = pack(codes, place(FORMATS["u8"]))
    assert_same_codes(words, np.array([[0x03020100, 0x07060504, 0x0B0A0908]], np.uint32))


def test_operands_are_left_alone():
    codes = np.arange(8, dtype=np.uint8)
    words = pack(codes, place(FORMATS["e2m1"]))
    before = words.copy()
    unpack(words, place(FORMATS["e2m1"]))
    assert_same_codes(codes, np.arange(8, dtype=np.uint8))
    assert_same_codes(words, before)


@pytest.mark.parametrize(
    ("name", "container", "padding"),
    [
        ("e2m1", 8, 0b1100_0011),
        ("e3m2", 8, 0b1100_0000),
        ("e2m3", 8, 0b1100_0000),
        ("ue4m3", 8, 0b1000_0000),
        ("e4m3", 8, 0),
        ("e2m1", None, 0),
        ("f16", None, 0),
        ("f64", None, 0),
    ],
)
def test_padding(name, container, padding):
    where = place(FORMATS[name], container)
    assert where.padding == padding
    if where.width != 8:
        return
    for bit in range(32):
        words = np.zeros((2, 3), np.uint32)
        assert padding_is_zero(words, where)
        words[1, 1] = 1 << bit
        assert padding_is_zero(words, where) == (not padding >> bit % 8 & 1)


def test_elements_that_do_not_fill_words_are_refused():
    with pytest.raises(ValueError, match="3 elements of 8 bits do not fill 32-bit words"):
        pack(np.zeros((2, 3), np.uint8), place(FORMATS["e4m3"]))


@pytest.mark.parametrize(
    ("bits", "expected"),
    [(1, "uint8"), (8, "uint8"), (9, "uint16"), (16, "uint16"), (17, "uint32"), (64, "uint64")],
)
def test_the_smallest_type_that_holds_a_code(bits, expected):
    assert code_type(bits) == np.dtype(expected)


# --- arrays in and out ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", [name for name in FORMATS if name not in ("ue4m3", "ue5m3", "s2f6", "s1z4m11")]
)
def test_codes_survive_as_arrays_bit_for_bit(name):
    fmt = FORMATS[name]
    if fmt.bits <= 16:
        codes = np.arange(1 << fmt.bits)
    else:
        codes = np.random.default_rng(50).integers(0, 1 << fmt.bits, 1000, np.uint64)
    codes = codes.astype(code_type(fmt.bits))
    values = array_from_codes(fmt, codes)
    assert values.dtype == array_type(fmt)
    assert_same_codes(codes_from_array(fmt, values), codes)


def test_arrays_of_another_type_are_refused():
    with pytest.raises(TypeError, match="f16 elements come as float16; got float32"):
        codes_from_array(FORMATS["f16"], np.zeros(3, np.float32))
    with pytest.raises(TypeError, match="ue4m3"):
        codes_from_array(FORMATS["ue4m3"], np.zeros(3, np.uint8))
    with pytest.raises(TypeError, match="no type for ue4m3"):
        array_from_codes(FORMATS["ue4m3"], np.zeros(3, np.uint8))
