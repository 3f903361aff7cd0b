"""Rounding: scalar twin against array twin against rules written out here, bit for bit."""

from itertools import product

import numpy as np
import pytest
from bits import assert_same_codes
from codes import FLOATS, LIMITS, NANS, OVERFLOWS, ROUNDINGS, SMALL, TYPED, cast, every_code

from dtypes import (
    FORMATS,
    NumberClass,
    array_type,
    code_type,
    codes_from_array,
    convert,
    decode,
    decode_values,
    encode,
    round_to_codes,
)
from dtypes.codec import decode as decode_one
from dtypes.codec import round_to_code

pytestmark = pytest.mark.sampled(6)

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
    return (np.append(values, beyond), np.append(lower, [len(low)] * 4), np.append(where, [0] * 4))


def rounded(name, lower, where, sign, rounding, overflow):
    """The codes that `neighbours` must round to, from the words of IEEE 754 and PTX."""
    odd = np.ones_like(lower) if name == "ue8m0" else lower % 2  # a power of two is 1.0·2^e: odd
    away = {"rm": sign, "rp": not sign}.get(rounding, False)
    up = {"rn": (where == 3) | ((where == 2) & (odd == 1)), "rna": where >= 2}.get(
        rounding, (where > 0) & away
    )
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
