"""The format table against spec facts written out here a second time (PTX ISA 5.2.3, OCP MX)."""

from dataclasses import FrozenInstanceError
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from dtypes import (
    FORMATS,
    Format,
    NumberClass,
    array_type,
    codes_from_array,
    convert,
    decode_integers,
    encode,
)
from dtypes.codec import decode, decode_integer

TWO = Fraction(2)

# bits, exponent and mantissa bits, bias, emin, largest finite code, NaN that PTX writes, +infinity
FLOATS = {
    "f64": (64, 11, 52, 1023, -1022, 0x7FEF_FFFF_FFFF_FFFF, 0xFFF8 << 48, 0x7FF0 << 48),
    "f32": (32, 8, 23, 127, -126, 0x7F7F_FFFF, 0x7FFF_FFFF, 0x7F80_0000),
    "tf32": (32, 8, 10, 127, -126, 0x7F7F_E000, 0x7FFF_E000, 0x7F80_0000),
    "bf16": (16, 8, 7, 127, -126, 0x7F7F, 0x7FFF, 0x7F80),
    "f16": (16, 5, 10, 15, -14, 0x7BFF, 0x7FFF, 0x7C00),
    "e5m2": (8, 5, 2, 15, -14, 0x7B, 0x7F, 0x7C),
    "e4m3": (8, 4, 3, 7, -6, 0x7E, 0x7F, None),
    "e3m2": (6, 3, 2, 3, -2, 0x1F, None, None),
    "e2m3": (6, 2, 3, 1, 0, 0x1F, None, None),
    "e2m1": (4, 2, 1, 1, 0, 0x7, None, None),
    "ue8m0": (8, 8, 0, 127, -127, 0xFE, 0xFF, None),
    "ue4m3": (7, 4, 3, 7, -6, 0x7E, 0x7F, None),
    "ue5m3": (8, 5, 3, 15, -14, 0xFE, 0xFF, None),
}

# code and value of the largest finite, smallest normal and smallest subnormal number
LIMITS = [
    ("f64", 0x7FEF_FFFF_FFFF_FFFF, (2 - TWO**-52) * TWO**1023),
    ("f64", 0x0010_0000_0000_0000, TWO**-1022),
    ("f64", 1, TWO**-1074),
    ("f32", 0x7F7F_FFFF, (2 - TWO**-23) * TWO**127),
    ("f32", 0x0080_0000, TWO**-126),
    ("f32", 1, TWO**-149),
    ("tf32", 0x7F7F_E000, (2 - TWO**-10) * TWO**127),
    ("tf32", 0x0080_0000, TWO**-126),
    ("tf32", 0x2000, TWO**-136),
    ("bf16", 0x7F7F, 255 * TWO**120),
    ("bf16", 0x0080, TWO**-126),
    ("bf16", 1, TWO**-133),
    ("f16", 0x7BFF, Fraction(65504)),
    ("f16", 0x0400, TWO**-14),
    ("f16", 1, TWO**-24),
    ("e5m2", 0x7B, Fraction(57344)),
    ("e5m2", 0x04, TWO**-14),
    ("e5m2", 1, TWO**-16),
    ("e4m3", 0x7E, Fraction(448)),
    ("e4m3", 0x08, TWO**-6),
    ("e4m3", 1, TWO**-9),
    ("e3m2", 0x1F, Fraction(28)),
    ("e3m2", 0x04, TWO**-2),
    ("e3m2", 1, TWO**-4),
    ("e2m3", 0x1F, Fraction(15, 2)),
    ("e2m3", 0x08, TWO**0),
    ("e2m3", 1, TWO**-3),
    ("e2m1", 0x7, Fraction(6)),
    ("e2m1", 0x2, TWO**0),
    ("e2m1", 1, TWO**-1),
    ("ue8m0", 0xFE, TWO**127),
    ("ue8m0", 0x7F, TWO**0),
    ("ue8m0", 0x00, TWO**-127),
    ("ue4m3", 0x7E, Fraction(448)),
    ("ue4m3", 0x08, TWO**-6),
    ("ue4m3", 1, TWO**-9),
    ("ue5m3", 0xFE, Fraction(114688)),
    ("ue5m3", 0x08, TWO**-14),
    ("ue5m3", 1, TWO**-17),
]

# the non-negative half, in the order of the codes
VALUES = {
    "e2m1": [0, 0.5, 1, 1.5, 2, 3, 4, 6],
    "e2m3": [
        *(0, 0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875),
        *(1, 1.125, 1.25, 1.375, 1.5, 1.625, 1.75, 1.875),
        *(2, 2.25, 2.5, 2.75, 3, 3.25, 3.5, 3.75),
        *(4, 4.5, 5, 5.5, 6, 6.5, 7, 7.5),
    ],
    "e3m2": [
        *(0, 0.0625, 0.125, 0.1875, 0.25, 0.3125, 0.375, 0.4375),
        *(0.5, 0.625, 0.75, 0.875, 1, 1.25, 1.5, 1.75),
        *(2, 2.5, 3, 3.5, 4, 5, 6, 7),
        *(8, 10, 12, 14, 16, 20, 24, 28),
    ],
}

# bits, signed, smallest and largest value
INTEGERS = {
    "s32": (32, True, -(2**31), 2**31 - 1),
    "s8": (8, True, -128, 127),
    "u8": (8, False, 0, 255),
    "s4": (4, True, -8, 7),
    "u4": (4, False, 0, 15),
    "b8": (8, False, 0, 255),
    "b16": (16, False, 0, 65535),
    "b1": (1, False, 0, 1),
    "s2f6": (8, True, -128, 127),
    "s1z4m11": (16, True, -2047, 2047),
}


def value(name, code):
    fmt = FORMATS[name]
    number = decode(fmt, code)
    assert number.number_class in (NumberClass.ZERO, NumberClass.FINITE)
    magnitude = number.significand * TWO ** (number.exponent - fmt.mantissa_bits)
    return -magnitude if number.sign else magnitude


def test_the_table_holds_these_formats_and_no_other():
    assert set(FORMATS) == {*FLOATS, *INTEGERS}
    assert all(FORMATS[name].name == name for name in FORMATS)


@pytest.mark.parametrize("name", FLOATS)
def test_facts_of_float_formats(name):
    fmt = FORMATS[name]
    derived = (fmt.bits, fmt.exponent_bits, fmt.mantissa_bits, fmt.bias, fmt.emin)
    assert (*derived, fmt.max_finite, fmt.nan, fmt.infinity) == FLOATS[name]
    assert fmt.is_float
    assert fmt.precision == FLOATS[name][2] + 1


@pytest.mark.parametrize(
    ("name", "code", "expected"), LIMITS, ids=[f"{name}-{code:x}" for name, code, _ in LIMITS]
)
def test_limits(name, code, expected):
    assert value(name, code) == expected


@pytest.mark.parametrize("name", VALUES)
def test_every_value_of_the_smallest_formats(name):
    half = len(VALUES[name])
    assert [value(name, code) for code in range(half)] == VALUES[name]
    assert [value(name, half | code) for code in range(half)] == [-v for v in VALUES[name]]


@pytest.mark.parametrize(
    ("name", "nans", "infinities"),
    [
        ("bf16", 2 * 127, 2),
        ("f16", 2 * 1023, 2),
        ("e5m2", 6, 2),
        ("e4m3", 2, 0),
        ("e3m2", 0, 0),
        ("e2m3", 0, 0),
        ("e2m1", 0, 0),
        ("ue8m0", 1, 0),
        ("ue4m3", 1, 0),
    ],
)
def test_number_of_nans_and_infinities(name, nans, infinities):
    classes = [decode(FORMATS[name], code).number_class for code in range(1 << FORMATS[name].bits)]
    assert classes.count(NumberClass.NAN) == nans
    assert classes.count(NumberClass.INFINITE) == infinities
    zeros = {"ue8m0": 0, "ue4m3": 1}.get(name, 2)
    assert classes.count(NumberClass.ZERO) == zeros


@pytest.mark.parametrize("name", INTEGERS)
def test_facts_of_integer_formats(name):
    bits, signed, low, high = INTEGERS[name]
    fmt = FORMATS[name]
    assert (fmt.bits, fmt.signed, fmt.is_float) == (bits, signed, False)
    assert (fmt.nan, fmt.infinity) == (None, None)
    assert decode_integer(fmt, fmt.max_finite) == high
    lowest = 0x87FF if name == "s1z4m11" else 1 << (bits - 1) if signed else 0
    assert decode_integer(fmt, lowest) == low == fmt.lowest
    if name != "s1z4m11":
        assert decode_integer(fmt, (1 << bits) - 1) == (-1 if signed else high)


def test_a_sign_and_a_magnitude():
    fmt = FORMATS["s1z4m11"]
    codes = np.array([0, 1, 0x7FF, 0x8000, 0x8001, 0x87FF], np.uint16)
    values = [0, 1, 2047, 0, -1, -2047]
    assert [decode_integer(fmt, int(code)) for code in codes] == values
    assert decode_integers(fmt, codes).tolist() == values
    assert encode(fmt, values).tolist() == [0, 1, 0x7FF, 0, 0x8001, 0x87FF]
    assert fmt.unused_mask == 0x7800 and FORMATS["s8"].unused_mask == 0
    with pytest.raises(ValueError, match="holds integers from -2047 to 2047"):
        encode(fmt, [2048])


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("f64", np.float64),
        ("f32", np.float32),
        ("tf32", np.float32),
        ("bf16", ml_dtypes.bfloat16),
        ("f16", np.float16),
        ("e5m2", ml_dtypes.float8_e5m2),
        ("e4m3", ml_dtypes.float8_e4m3fn),
        ("e3m2", ml_dtypes.float6_e3m2fn),
        ("e2m3", ml_dtypes.float6_e2m3fn),
        ("e2m1", ml_dtypes.float4_e2m1fn),
        ("ue8m0", ml_dtypes.float8_e8m0fnu),
        ("ue4m3", None),
        ("s32", np.int32),
        ("s8", np.int8),
        ("u8", np.uint8),
        ("s4", ml_dtypes.int4),
        ("u4", ml_dtypes.uint4),
    ],
)
def test_array_types(name, expected):
    assert array_type(FORMATS[name]) == (None if expected is None else np.dtype(expected))


@pytest.mark.parametrize("name", [n for n in FLOATS if n not in ("tf32", "ue4m3", "ue5m3")])
def test_ml_dtypes_agrees_on_the_limits(name):
    info = ml_dtypes.finfo(array_type(FORMATS[name]))
    codes = [code for n, code, _ in LIMITS if n == name]
    assert float(info.max) == value(name, codes[0])
    if name != "ue8m0":  # no subnormals
        assert float(info.smallest_normal) == value(name, codes[1])
        assert float(info.smallest_subnormal) == value(name, codes[2])


def test_a_row_whose_bits_do_not_add_up_is_refused():
    with pytest.raises(ValueError, match="x: 9 bits are described, the code has 8"):
        Format("x", "float", 8, exponent_bits=4, mantissa_bits=4)


def test_rows_are_frozen_and_print_as_looked_up():
    with pytest.raises(FrozenInstanceError):
        FORMATS["f16"].bits = 17
    assert repr(FORMATS["f16"]) == "FORMATS['f16']"


# --- where ml_dtypes 0.6.0 and PTX differ --------------------------------------------------------


def cast(values, dtype):
    """The other library's conversion; what it warns of is no concern here."""
    with np.errstate(all="ignore"):
        return np.asarray(values).astype(dtype)


@pytest.mark.parametrize(
    ("name", "dtype", "value", "theirs", "ieee", "saturated"),
    [
        # cvt…satfinite is the only fp8 conversion of PTX: finite overflow and infinity saturate
        ("e4m3", ml_dtypes.float8_e4m3fn, 500.0, 0x7F, 0x7F, 0x7E),
        ("e4m3", ml_dtypes.float8_e4m3fn, -500.0, 0xFF, 0xFF, 0xFE),
        ("e4m3", ml_dtypes.float8_e4m3fn, np.inf, 0x7F, 0x7F, 0x7E),
        ("e4m3", ml_dtypes.float8_e4m3fn, 464.0, 0x7E, 0x7E, 0x7E),
        ("e5m2", ml_dtypes.float8_e5m2, 1e9, 0x7C, 0x7C, 0x7B),
        ("e5m2", ml_dtypes.float8_e5m2, -np.inf, 0xFC, 0xFC, 0xFB),
        # these saturate in both
        ("e3m2", ml_dtypes.float6_e3m2fn, np.inf, 0x1F, 0x1F, 0x1F),
        ("e2m3", ml_dtypes.float6_e2m3fn, -1e9, 0x3F, 0x3F, 0x3F),
        ("e2m1", ml_dtypes.float4_e2m1fn, -np.inf, 0xF, 0xF, 0xF),
        # ml_dtypes keeps the sign of a NaN; PTX drops it
        ("e4m3", ml_dtypes.float8_e4m3fn, -np.nan, 0xFF, 0x7F, 0x7F),
        # NaN to fp6 and fp4: −0 in ml_dtypes, the largest number in PTX
        ("e3m2", ml_dtypes.float6_e3m2fn, np.nan, 0x20, 0x1F, 0x1F),
        ("e2m3", ml_dtypes.float6_e2m3fn, np.nan, 0x20, 0x1F, 0x1F),
        ("e2m1", ml_dtypes.float4_e2m1fn, np.nan, 0x8, 0x7, 0x7),
    ],
)
def test_overflow_and_nan_where_ml_dtypes_differs(name, dtype, value, theirs, ieee, saturated):
    fmt, word = FORMATS[name], np.array([value], np.float32).view(np.uint32)
    assert codes_from_array(fmt, cast(word.view(np.float32), dtype)).tolist() == [theirs]
    assert convert(FORMATS["f32"], fmt, word).tolist() == [ieee]
    assert convert(FORMATS["f32"], fmt, word, overflow="saturate").tolist() == [saturated]


@pytest.mark.parametrize(
    ("name", "dtype", "value", "theirs", "ours"),
    [
        # just above a midpoint, by less than float32 sees: ml_dtypes rounds twice
        ("bf16", ml_dtypes.bfloat16, 1 + 2.0**-8 + 2.0**-40, 0x3F80, 0x3F81),
        ("bf16", ml_dtypes.bfloat16, (0.5 + 2.0**-30) * 2.0**-133, 0, 1),
        ("e4m3", ml_dtypes.float8_e4m3fn, 1 + 2.0**-4 + 2.0**-40, 0x38, 0x39),
        ("e5m2", ml_dtypes.float8_e5m2, 1 + 2.0**-3 + 2.0**-40, 0x3C, 0x3D),
        ("e2m1", ml_dtypes.float4_e2m1fn, 2.5 + 2.0**-40, 0x4, 0x5),
        # NumPy rounds once
        ("f16", np.float16, 1 + 2.0**-11 + 2.0**-40, 0x3C01, 0x3C01),
    ],
)
def test_float64_is_rounded_once(name, dtype, value, theirs, ours):
    fmt = FORMATS[name]
    assert codes_from_array(fmt, cast(np.array([value]), dtype)).tolist() == [theirs]
    assert encode(fmt, [value]).tolist() == [ours]


@pytest.mark.parametrize("value", (0.0, -0.0, -2.0))
def test_ue8m0_has_no_zero_and_no_minus(value):
    other = cast(np.array([value], np.float32), ml_dtypes.float8_e8m0fnu)
    assert other.view(np.uint8).tolist() == [0xFF]
    with pytest.raises(ValueError, match=r"ue8m0 has no (zero|sign)"):
        encode(FORMATS["ue8m0"], [1.0, value])
