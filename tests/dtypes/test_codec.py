"""Codes and numbers: decoding, and the values that are special; rounding is in test_rounding."""

import numpy as np
import pytest
from bits import assert_same_codes
from codes import (
    FLOATS,
    INTEGERS,
    NANS,
    OVERFLOWS,
    ROUNDINGS,
    SMALL,
    TYPED,
    cast,
    every_code,
    f32_codes,
)

from dtypes import (
    FORMATS,
    NumberClass,
    array_from_codes,
    array_type,
    code_type,
    convert,
    decode,
    decode_integers,
    decode_values,
    encode,
)
from dtypes.codec import decode as decode_one
from dtypes.codec import decode_integer

# --- the comparison itself -----------------------------------------------------------------------


def test_the_comparison_finds_one_wrong_code():
    right = np.arange(12, dtype=np.uint16).reshape(3, 4)
    assert_same_codes(right, right.copy())
    wrong = right.copy()
    wrong[1, 2] ^= 0x100
    wrong[2, 3] ^= 0x100
    with pytest.raises(AssertionError) as caught:
        assert_same_codes(wrong, right, a=right * 2)
    assert str(caught.value) == (
        "2 of 12 codes differ; first at (1, 2): got 0x106, expected 0x6\na = c"
    )
    with pytest.raises(AssertionError, match=r"got uint16 .*expected uint32"):
        assert_same_codes(right, right.astype(np.uint32))
    with pytest.raises(AssertionError, match=r"\(12,\), expected uint16 \(3, 4\)"):
        assert_same_codes(right.ravel(), right)
    with pytest.raises(AssertionError, match=r"first at \(\): got 0x1, expected 0x2"):
        assert_same_codes(np.uint8(1), np.uint8(2))


# --- decoding ------------------------------------------------------------------------------------


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", SMALL)
def test_decode_twins_on_every_code(name):
    fmt = FORMATS[name]
    got = np.stack(decode(fmt, every_code(name)), -1).astype(np.int64)
    expected = np.array([decode_one(fmt, code) for code in range(1 << fmt.bits)], np.int64)
    assert_same_codes(got, expected)


@pytest.mark.parametrize("name", ("f64", "f32", "tf32"))
def test_decode_twins_on_wide_formats(name):
    fmt = FORMATS[name]
    rng = np.random.default_rng(10)
    random = rng.integers(0, 1 << fmt.bits, 2000, np.uint64)
    edges = [0, 1, fmt.infinity - 1, fmt.infinity, fmt.infinity + 1, fmt.code_mask >> 1]
    edges = np.array([e ^ s for e in edges for s in (0, 1 << (fmt.bits - 1))], np.uint64)
    codes = np.concatenate([edges, random, random & np.uint64(fmt.infinity ^ fmt.code_mask)])
    codes = codes.astype(code_type(fmt.bits))
    got = np.stack(decode(fmt, codes), -1).astype(np.int64)
    assert_same_codes(got, np.array([decode_one(fmt, int(c)) for c in codes], np.int64))


@pytest.mark.parametrize("name", (*INTEGERS, "s32"))
def test_integer_decode_twins(name):
    fmt = FORMATS[name]
    codes = every_code(name) if fmt.bits <= 16 else np.arange(2**32, step=9973, dtype=np.uint32)
    expected = [decode_integer(fmt, int(code)) for code in codes]
    assert_same_codes(decode_integers(fmt, codes), np.array(expected, np.int64))
    assert_same_codes(encode(fmt, expected), codes)
    dtype = array_type(fmt)
    if name != "b1":
        assert array_from_codes(fmt, codes).astype(np.int64).tolist() == expected
        assert np.array(expected).astype(dtype).astype(np.int64).tolist() == expected


@pytest.mark.parametrize("name", TYPED)
def test_values_of_every_code_as_numpy_and_ml_dtypes_have_them(name):
    fmt, codes = FORMATS[name], every_code(name)
    own = decode_values(fmt, codes)
    other = cast(array_from_codes(fmt, codes), np.float64)
    assert np.array_equal(np.isnan(own), np.isnan(other))
    real = ~np.isnan(own)
    assert_same_codes(own[real].view(np.uint64), other[real].view(np.uint64))


@pytest.mark.parametrize("name", ("f64", "f32"))
def test_values_of_wide_formats_as_numpy_has_them(name):
    fmt = FORMATS[name]
    codes = np.random.default_rng(11).integers(0, 1 << fmt.bits, 20_000, np.uint64)
    codes[::4] &= np.uint64((1 << fmt.mantissa_bits) - 1)  # subnormals
    values = codes.astype(code_type(fmt.bits)).view(array_type(fmt))
    values = values[np.isfinite(values)]
    codes = values.view(code_type(fmt.bits))
    wide = values.astype(np.float64)
    assert_same_codes(decode_values(fmt, codes).view(np.uint64), wide.view(np.uint64))
    assert_same_codes(encode(fmt, wide), codes)


def test_tf32_ignores_thirteen_bits_before_it_classifies():
    fmt = FORMATS["tf32"]
    for code, expected in (
        (0x00001FFF, (NumberClass.ZERO, 0, -126, 0)),
        (0x80000001, (NumberClass.ZERO, 1, -126, 0)),
        (0x00002000, (NumberClass.FINITE, 0, -126, 1)),
        (0x3F801FFF, (NumberClass.FINITE, 0, 0, 1024)),
        (0x7F801FFF, (NumberClass.INFINITE, 0, 0, 0)),
        (0xFF800001, (NumberClass.INFINITE, 1, 0, 0)),
        (0x7F802000, (NumberClass.NAN, 0, 0, 0)),
    ):
        assert decode_one(fmt, code) == expected
        assert tuple(int(x) for x in decode(fmt, np.uint32(code))) == expected


# --- special values ------------------------------------------------------------------------------


@pytest.mark.parametrize("target", FLOATS)
@pytest.mark.parametrize("overflow", OVERFLOWS)
def test_every_nan_becomes_the_one_that_ptx_writes(target, overflow):
    words = np.array([0x7F800001, 0x7FC00000, 0x7FFFFFFF, 0xFF800001, 0xFFC12345], np.uint32)
    for rounding in ROUNDINGS:
        got = convert(FORMATS["f32"], FORMATS[target], words, rounding, overflow=overflow)
        assert got.tolist() == [NANS[target]] * 5


@pytest.mark.parametrize(
    ("target", "rounding", "overflow", "value", "expected"),
    [
        # PTX ISA 9.7.9.21, measured on an H200: rn overflows to infinity, rz to the largest
        ("f16", "rn", "ieee", 65519.99, 0x7BFF),
        ("f16", "rn", "ieee", 65520.0, 0x7C00),
        ("f16", "rz", "ieee", 1e9, 0x7BFF),
        ("f16", "rz", "ieee", -1e9, 0xFBFF),
        ("f16", "rz", "ieee", np.inf, 0x7C00),
        ("f16", "rn", "saturate", np.inf, 0x7BFF),
        ("bf16", "rn", "ieee", 3.4e38, 0x7F80),
        ("bf16", "rz", "ieee", 3.4e38, 0x7F7F),
        ("bf16", "rn", "saturate", -np.inf, 0xFF7F),
        ("f16", "rn", "ieee", -0.0, 0x8000),
        ("f16", "rn", "ieee", -(2.0**-25), 0x8000),
        ("f16", "rn", "ieee", -1.5 * 2.0**-25, 0x8001),
        ("e4m3", "rz", "ieee", 1e9, 0x7E),
        ("e4m3", "rz", "infinity", 1e9, 0x7F),
    ],
)
def test_conversions_from_f32(target, rounding, overflow, value, expected):
    got = convert(FORMATS["f32"], FORMATS[target], f32_codes(value), rounding, overflow=overflow)
    assert got.tolist() == [expected]


@pytest.mark.parametrize("target", ["f16", "bf16"])
def test_f32_is_rounded_to_nearest_as_integers_say(target):
    """By the machine's own conversion; where another overflow is asked for, by integers."""
    low = [0, 1, 0xFFF, 0x1000, 0x1001, 0x7FFF, 0x8000, 0x8001, 0xF000, 0xFFFF]
    words = (np.arange(1 << 16, dtype=np.uint32)[:, None] << 16) | np.array(low, np.uint32)
    want = convert(FORMATS["f32"], FORMATS[target], words, overflow="infinity")
    assert_same_codes(convert(FORMATS["f32"], FORMATS[target], words), want, word=words)
    assert convert(FORMATS["f32"], FORMATS[target], np.uint32(0xC000_0000)) >> 12 == 0xC


def test_tf32_conversions_in_terms_of_the_word():
    """Measured: rna adds 0x1000 to the magnitude, rn is nearest even at bit 13, rz truncates."""
    words = np.random.default_rng(40).integers(0, 1 << 32, 20_000, np.uint32)
    words = words[words & 0x7F800000 != 0x7F800000]
    words = np.append(words, [0, 0x80000000, 0xFFF, 0x1000, 0x1001, 0x3000, 0x7F7FEFFF, 0x7F7FF000])
    words, keep = words.astype(np.uint32), np.uint32(0xFFFFE000)
    f32, tf32 = FORMATS["f32"], FORMATS["tf32"]
    assert_same_codes(convert(f32, tf32, words, "rna"), words + np.uint32(0x1000) & keep)
    assert_same_codes(convert(f32, tf32, words, "rz"), words & keep)
    odd = words >> np.uint32(13) & np.uint32(1)
    assert_same_codes(convert(f32, tf32, words), words + np.uint32(0xFFF) + odd & keep)


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("s8", [0, 128], "s8 holds integers from -128 to 127"),
        ("u4", [-1], "u4 holds integers from 0 to 15"),
        ("s4", [0.5], "s4 holds integers from -8 to 7"),
        ("b1", [2], "b1 holds integers from 0 to 1"),
        ("ue4m3", [-1.0], "ue4m3 has no sign"),
        ("ue4m3", [-0.0], "ue4m3 has no sign"),
    ],
)
def test_values_that_a_format_cannot_hold_are_refused(name, values, message):
    with pytest.raises(ValueError, match=message):
        encode(FORMATS[name], values)


@pytest.mark.parametrize("value", (2.0**-127, 2.0**-128, 2.0**-129, 1e-300))
@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_ue8m0_ends_at_its_smallest_power_of_two(value, rounding):
    assert encode(FORMATS["ue8m0"], [value], rounding).tolist() == [0]
