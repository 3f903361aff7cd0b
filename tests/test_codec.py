"""Codes and numbers: scalar twin against array twin against rules written out here, bit for bit."""

from itertools import product

import numpy as np
import pytest
from bits import assert_same_codes

from dtypes import (
    FORMATS,
    NumberClass,
    array_from_codes,
    array_type,
    code_type,
    codes_from_array,
    convert,
    decode,
    decode_integers,
    decode_values,
    encode,
    round_to_codes,
)
from dtypes.codec import decode as decode_one
from dtypes.codec import decode_integer, round_to_code

SMALL = ("bf16", "f16", "e5m2", "e4m3", "e3m2", "e2m3", "e2m1", "ue8m0", "ue4m3")
FLOATS = ("f64", "f32", "tf32", *SMALL)
INTEGERS = ("s8", "u8", "s4", "u4", "b1")
#: formats for which NumPy or ml_dtypes has a type
TYPED = tuple(name for name in SMALL if name != "ue4m3")
ROUNDINGS = ("rn", "rna", "rz", "rm", "rp")
OVERFLOWS = ("ieee", "infinity", "saturate")
#: largest finite code, and what a number too large becomes where rounding goes away from zero
LIMITS = {
    "bf16": (0x7F7F, 0x7F80), "f16": (0x7BFF, 0x7C00), "e5m2": (0x7B, 0x7C),
    "e4m3": (0x7E, 0x7F), "e3m2": (0x1F, 0x1F), "e2m3": (0x1F, 0x1F), "e2m1": (7, 7),
    "ue8m0": (0xFE, 0xFF), "ue4m3": (0x7E, 0x7F),
}  # fmt: skip
NANS = {
    "f64": 0xFFF8 << 48, "f32": 0x7FFFFFFF, "tf32": 0x7FFFE000, "bf16": 0x7FFF, "f16": 0x7FFF,
    "e5m2": 0x7F, "e4m3": 0x7F, "e3m2": 0x1F, "e2m3": 0x1F, "e2m1": 7, "ue8m0": 0xFF,
    "ue4m3": 0x7F,
}  # fmt: skip


def every_code(name):
    return np.arange(1 << FORMATS[name].bits, dtype=code_type(FORMATS[name].bits))


def f32_codes(*values):
    return np.array(values, np.float32).view(np.uint32)


def cast(values, dtype):
    """The other library's conversion; what it warns of is no concern here."""
    with np.errstate(all="ignore"):
        return values.astype(dtype)


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


# --- rounding: every representable number, every midpoint, one step either side ------------------


def neighbours(name):
    """Values ≥ 0 with the code at or below each and where it lies on the way to the next code.

    The place is 0 exact, 1 below the midpoint, 2 the midpoint, 3 above it. The last code is one
    above the largest finite: there the numbers too large begin.
    """
    fmt = FORMATS[name]
    exact = decode_values(fmt, np.arange(LIMITS[name][0] + 1, dtype=code_type(fmt.bits)))
    step = exact[-1] if name == "ue8m0" else exact[-1] - exact[-2]
    bounds = np.append(exact, exact[-1] + step)
    assert np.all(np.diff(bounds) > 0)
    low, high = bounds[:-1], bounds[1:]
    middle = low + (high - low) / 2
    points = (
        (low, 0), (np.nextafter(low, high), 1), (np.nextafter(middle, low), 1), (middle, 2),
        (np.nextafter(middle, high), 3), (np.nextafter(high, low), 3),
    )  # fmt: skip
    values = np.concatenate([x for x, _ in points])
    lower = np.tile(np.arange(len(low)), len(points))
    where = np.repeat([place for _, place in points], len(low))
    beyond = bounds[-1] * np.array([1.0, 1.5, 2.0, 2.0**40])
    return (
        np.append(values, beyond),
        np.append(lower, [len(low)] * 4),
        np.append(where, [0] * 4),
    )


def rounded(name, lower, where, sign, rounding, overflow):
    """The codes that `neighbours` must round to, from the words of IEEE 754 and PTX."""
    odd = np.ones_like(lower) if name == "ue8m0" else lower % 2  # a power of two is 1.0·2^e: odd
    away = {"rm": sign, "rp": not sign}.get(rounding, False)
    up = {
        "rn": (where == 3) | ((where == 2) & (odd == 1)),
        "rna": where >= 2,
    }.get(rounding, (where > 0) & away)
    code = lower + up
    largest, too_large = LIMITS[name]
    directed_down = rounding in ("rz", "rm", "rp") and not away
    if overflow == "saturate" or (overflow == "ieee" and directed_down):
        too_large = largest
    code = np.where(code > largest, too_large, code)
    fmt = FORMATS[name]
    return (code | sign << (fmt.bits - 1)).astype(code_type(fmt.bits))


def signs(name):
    return (0,) if name[0] == "u" else (0, 1)


@pytest.mark.parametrize("name", SMALL)
def test_encode_at_every_neighbourhood(name):
    values, lower, where = neighbours(name)
    for sign, rounding, overflow in product(signs(name), ROUNDINGS, OVERFLOWS):
        got = encode(FORMATS[name], -values if sign else values, rounding, overflow=overflow)
        expected = rounded(name, lower, where, sign, rounding, overflow)
        assert_same_codes(got, expected, lower=lower, where=where)


def check_scalar_twin(name, chosen, overflows):
    fmt, f64 = FORMATS[name], FORMATS["f64"]
    values, lower, where = (x[chosen] for x in neighbours(name))
    numbers = [decode_one(f64, int(word)) for word in values.view(np.uint64)]
    for sign, rounding, overflow in product(signs(name), ROUNDINGS, overflows):
        got = [
            round_to_code(fmt, sign, n.significand, n.exponent - 52, rounding, overflow=overflow)
            for n in numbers
        ]
        expected = rounded(name, lower, where, sign, rounding, overflow)
        assert_same_codes(np.array(got, expected.dtype), expected, lower=lower, where=where)


@pytest.mark.parametrize("name", SMALL)
def test_round_to_code_at_neighbourhoods(name):
    count = len(neighbours(name)[0])
    stride = 1 if count < 2000 else 97
    check_scalar_twin(name, np.r_[0 : count - 20 : stride, count - 20 : count], OVERFLOWS)


@pytest.mark.slow
@pytest.mark.parametrize("name", ("bf16", "f16"))
def test_round_to_code_at_every_neighbourhood(name):
    check_scalar_twin(name, slice(None), ("ieee",))


@pytest.mark.parametrize("name", ("e3m2", "e5m2", "f16", "bf16", "f32", "tf32", "f64"))
def test_every_finite_code_survives_a_round_trip(name):
    fmt = FORMATS[name]
    codes = np.random.default_rng(12).integers(0, 1 << fmt.bits, 3000, np.uint64)
    if fmt.bits <= 16:
        codes = every_code(name)
    codes = codes.astype(code_type(fmt.bits)) >> fmt.ignored_bits << fmt.ignored_bits
    number = decode(fmt, codes)
    finite = number.number_class <= NumberClass.FINITE
    codes, unit = codes[finite], (number.exponent - fmt.mantissa_bits)[finite]
    sign, significand = number.sign[finite], number.significand[finite]
    triples = zip(sign.tolist(), significand.tolist(), unit.tolist(), strict=True)
    for rounding in ROUNDINGS:
        assert_same_codes(round_to_codes(fmt, sign, significand, unit, rounding), codes)
    one_by_one = [round_to_code(fmt, *triple) for triple in triples]
    assert_same_codes(np.array(one_by_one, codes.dtype), codes)


@pytest.mark.parametrize("name", SMALL)
def test_values_survive_a_round_trip_and_nan_becomes_the_one_that_ptx_writes(name):
    fmt, codes = FORMATS[name], every_code(name)
    number_class = decode(fmt, codes).number_class
    expected = np.where(number_class == NumberClass.NAN, NANS[name], codes).astype(codes.dtype)
    assert_same_codes(encode(fmt, decode_values(fmt, codes)), expected)


# --- rounding: random numbers, in every regime ---------------------------------------------------


def random_numbers(fmt, rng, count):
    """Signs, significands below 2**62 and exponents, near all that a format can do."""
    length = rng.integers(1, 63, count)
    significand = rng.integers(1 << 61, 1 << 62, count) >> 62 - length
    # all ones, a single one, and patterns at or next to a midpoint
    kind = rng.integers(0, 6, count)
    one = np.int64(1)
    significand = np.where(kind == 0, (one << length) - 1, significand)
    significand = np.where(kind == 1, one << length - 1, significand)
    cut = np.maximum(length - fmt.precision - rng.integers(0, 2, count), 1)
    tie = significand >> cut << cut | one << cut - 1
    significand = np.where(kind == 2, tie, significand)
    significand = np.where(kind == 3, tie + rng.integers(-1, 2, count), significand)
    significand = np.minimum(significand, (one << 62) - 1)
    emax = fmt.bias + 1
    top = rng.choice(
        [
            rng.integers(fmt.emin - fmt.precision - 4, fmt.emin + 4, count),
            rng.integers(emax - 3, emax + 4, count),
            rng.integers(-2, 3, count),
            rng.integers(-5000, 5000, count),
        ]
    )
    sign = rng.integers(0, 2 if fmt.signed else 1, count).astype(bool)
    return sign, significand, top - length + 1


def check_round_to_codes(name, count, seed):
    fmt, rng = FORMATS[name], np.random.default_rng(seed)
    for rounding, overflow in product(ROUNDINGS, OVERFLOWS):
        for precision in (None, 14) if name == "f32" else (None,):
            for _ in range(4):  # one regime of exponents each
                numbers = random_numbers(fmt, rng, count)
                how = {"overflow": overflow, "precision": precision}
                got = round_to_codes(fmt, *numbers, rounding, **how)
                rows = zip(*(x.tolist() for x in numbers), strict=True)
                expected = [round_to_code(fmt, *row, rounding, **how) for row in rows]
                sign, significand, exponent = numbers
                assert_same_codes(
                    got, np.array(expected, got.dtype), significand=significand, exponent=exponent
                )
                assert got.dtype == code_type(fmt.bits), (sign, rounding, how)


@pytest.mark.parametrize("name", FLOATS)
def test_round_to_codes_as_its_twin(name):
    check_round_to_codes(name, 40, seed=20)


@pytest.mark.slow
@pytest.mark.parametrize("name", FLOATS)
def test_round_to_codes_as_its_twin_at_length(name):
    check_round_to_codes(name, 2000, seed=21)


@pytest.mark.parametrize("name", ("f64", "f32", "f16"))
def test_a_sticky_bit_is_a_little_more_than_the_significand(name):
    fmt, rng = FORMATS[name], np.random.default_rng(22)
    for rounding, _ in product(ROUNDINGS, range(8)):
        sign, significand, exponent = random_numbers(fmt, rng, 60)
        # The promise to keep: two bits more than the format has.
        significand = np.maximum(significand, 1)
        short = np.maximum(fmt.precision + 2 - np.frexp(significand.astype(float))[1], 0)
        significand, exponent = significand << short, exponent - short
        sticky = rng.integers(0, 2, 60).astype(bool)
        got = round_to_codes(fmt, sign, significand, exponent, rounding, sticky=sticky)
        rows = zip(*(x.tolist() for x in (sign, significand, exponent, sticky)), strict=True)
        expected = [round_to_code(fmt, s, m << 90 | t, e - 90, rounding) for s, m, e, t in rows]
        assert_same_codes(
            got, np.array(expected, got.dtype), significand=significand, exponent=exponent
        )


@pytest.mark.parametrize("sign", (0, 1))
def test_a_number_that_rounds_up_to_twice_the_overflow_bound_overflows(sign):
    """2**1025 less half a step: the code of f64 must not grow into the sign bit."""
    fmt = FORMATS["f64"]
    number = (np.array([bool(sign)]), np.array([(1 << 54) - 1]), np.array([1025 - 54]))
    expected = 0x7FF0 << 48 | sign << 63
    assert round_to_code(fmt, sign, (1 << 54) - 1, 1025 - 54) == expected
    assert_same_codes(round_to_codes(fmt, *number), np.array([expected], np.uint64))


# --- against NumPy and ml_dtypes -----------------------------------------------------------------


@pytest.mark.parametrize("name", TYPED)
def test_nearest_even_as_numpy_and_ml_dtypes_round_float32(name):
    """They agree on every number; NaN, and zero and minus in ue8m0, are told apart in test_formats.

    In ue8m0 ml_dtypes rounds a subnormal float32 just under 1.5·2**-127 up: compare normal ones.
    """
    fmt = FORMATS[name]
    near = cast(neighbours(name)[0], np.float32)
    near = np.concatenate([near, np.nextafter(near, np.float32(0), dtype=np.float32)])
    words = np.random.default_rng(30).integers(0, 1 << 32, 50_000, np.uint32)
    values = np.concatenate([near, -near, words.view(np.float32)])
    values = values[~np.isnan(values)]
    if name == "ue8m0":
        values = values[values >= 2.0**-126]
    expected = codes_from_array(fmt, cast(values, array_type(fmt)))
    got = convert(FORMATS["f32"], fmt, values.view(np.uint32))
    assert_same_codes(got, expected, value=values.view(np.uint32))


@pytest.mark.parametrize("target", ("f32", "f16"))
def test_nearest_even_as_numpy_rounds_float64(target):
    fmt, rng = FORMATS[target], np.random.default_rng(31)
    fields = rng.integers(1023 - 160, 1023 + 135, 50_000, np.uint64) << np.uint64(52)
    words = rng.integers(0, 1 << 64, 50_000, np.uint64) & np.uint64(0x800F_FFFF_FFFF_FFFF) | fields
    words[::3] &= np.uint64(0xFFFF_FFFF_F000_0000)  # ties and short tails
    expected = cast(words.view(np.float64), array_type(fmt)).view(code_type(fmt.bits))
    assert_same_codes(convert(FORMATS["f64"], fmt, words), expected, word=words)


@pytest.mark.parametrize("source", ("bf16", "f16", "e5m2", "e4m3", "e3m2", "e2m3", "e2m1"))
def test_widening_is_exact(source):
    codes = every_code(source)
    values = decode_values(FORMATS[source], codes)
    real = ~np.isnan(values)
    wide = convert(FORMATS[source], FORMATS["f32"], codes)
    assert_same_codes(wide[real], values[real].astype(np.float32).view(np.uint32))
    assert np.all(wide[~real] == 0x7FFFFFFF)


def test_e5m2_is_the_upper_half_of_f16():
    codes = every_code("e5m2")
    real = ~np.isnan(decode_values(FORMATS["e5m2"], codes))
    wide = convert(FORMATS["e5m2"], FORMATS["f16"], codes)
    assert_same_codes(wide[real], codes[real].astype(np.uint16) << 8)
    assert set(wide[~real].tolist()) == {0x7FFF}


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
