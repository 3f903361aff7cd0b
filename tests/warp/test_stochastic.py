"""cvt.rs: which random values round up, and how many (PTX ISA 9.7.9.21).

A result is rounded away from zero where adding the random bits to the bits that are cut off carries
out of them. No recording; the manual draws where each element's random bits lie.
"""

from bisect import bisect_right
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from bits import assert_same_codes

from emulator import Instruction, execute

pytestmark = pytest.mark.sampled(5)

#: type -> (numpy type, random bits of one element)
TYPES = {
    "f16": (np.float16, 13),
    "bf16": (ml_dtypes.bfloat16, 16),
    "e5m2": (ml_dtypes.float8_e5m2, 16),
    "e4m3": (ml_dtypes.float8_e4m3fn, 16),
    "e3m2": (ml_dtypes.float6_e3m2fn, 16),
    "e2m3": (ml_dtypes.float6_e2m3fn, 16),
    "e2m1": (ml_dtypes.float4_e2m1fn, 8),
}
BITS = {"f16": 16, "bf16": 16, "e5m2": 8, "e4m3": 8, "e3m2": 6, "e2m3": 6, "e2m1": 4}


def finite_values(type_):
    """Values of the codes with sign 0, ascending from code 0."""
    codes = np.arange(1 << (BITS[type_] - 1), dtype=f"uint{max(8, BITS[type_])}")
    with np.errstate(invalid="ignore"):
        values = codes.view(TYPES[type_][0]).astype(np.float64)
    return values[np.isfinite(values)].tolist()


TABLES = {type_: finite_values(type_) for type_ in TYPES}


def words(value, count):
    return np.full(count, np.float32(value).view(np.uint32))


def run(opcode, *operands):
    return execute(Instruction.parse(opcode), *operands, target="sm_100a")


def rounded(type_, value, random_bits, modifiers=""):
    """The lowest element of the result for `value` and every one of some random words."""
    zero, x = (words(v, len(random_bits)) for v in (0, value))
    if type_ in ("f16", "bf16"):
        got = run(f"cvt.rs{modifiers}.{type_}x2.f32", zero, x, random_bits)
    else:
        got = run(f"cvt.rs{modifiers}.satfinite.{type_}x4.f32", zero, zero, zero, x, random_bits)
    width = 4 if type_ == "e2m1" else 8 if BITS[type_] < 9 else 16
    assert not (got >> width).any()
    return got.astype(np.uint32)


def random_words(type_, r):
    """Words with random bits `r` for the lowest element; bits that are not its own are set."""
    width = TYPES[type_][1]
    r = np.asarray(r, np.uint32)
    if type_ == "e2m1":
        return r | r << 8 | r << 16 | r << 24
    return r | np.uint32(0xFFFFFFFF >> width << width)


def all_random(type_):
    return random_words(type_, np.arange(1 << TYPES[type_][1]))


def check_exact(type_, value, step=257):
    """Of 2**n random values, exactly the highest floor(f * 2**n) round up a fraction f.

    Looks at every random value with ``step=1``, else at some and at those around the threshold.
    """
    table, count = TABLES[type_], 1 << TYPES[type_][1]
    size = abs(float(np.float32(value)))
    low = bisect_right(table, size) - 1
    below, above = Fraction(table[low]), Fraction(table[low + 1])
    up = int((Fraction(size) - below) / (above - below) * count)
    threshold = count - up
    near = np.clip(np.arange(threshold - 2, threshold + 2), 0, count - 1)
    r = np.union1d(np.arange(0, count, step), near)
    sign = np.uint32(1 << (BITS[type_] - 1) if value < 0 else 0)
    want = np.where(r >= threshold, low + 1, low).astype(np.uint32) | sign
    assert_same_codes(rounded(type_, value, random_words(type_, r)), want)


#: fractions of the step between two neighbours, none finer than what f32 holds there
FRACTIONS = (0, 2**-13, 0.125, 0.5, 0.625, 1 - 2**-13)


@pytest.mark.parametrize("fraction", FRACTIONS)
@pytest.mark.parametrize("type_", TYPES)
def test_the_right_number_of_random_values_rounds_up(type_, fraction):
    table = TABLES[type_]
    subnormal, normal, top = 1, len(table) // 2 + 1, len(table) - 2
    if type_ in ("f16", "bf16"):
        top -= len(table) // 8  # near the overflow see below
    for code in (0, subnormal, normal, top):
        value = table[code] + fraction * (table[code + 1] - table[code])
        check_exact(type_, value, step=1 if code == normal else 257)
        check_exact(type_, -value if value else 0.0)


def test_fractions_finer_than_the_random_bits_never_round_up():
    for type_ in ("f16", "e2m1"):
        table, width = TABLES[type_], TYPES[type_][1]
        check_exact(type_, table[9 if type_ == "f16" else 3] * (1 + 2.0**-20))
        check_exact(type_, table[1] * 2.0 ** (-width - 1))
        check_exact(type_, 2.0**-149)
    check_exact("bf16", 2.0**-149)


@pytest.mark.parametrize("type_", ["e5m2", "e4m3", "e3m2", "e2m3"])
def test_tiny_numbers_round_up_for_the_last_random_value_only(type_):
    check_exact(type_, TABLES[type_][1] * 2.0**-15)
    check_exact(type_, TABLES[type_][1] * 2.0**-17)


@pytest.mark.parametrize("type_", ["e5m2", "e4m3", "e3m2", "e2m3"])
def test_tiny_numbers_of_39_cut_bits(type_):
    check_exact(type_, TABLES[type_][1] * 2.0**-16)


def test_the_count_can_be_wrong():
    with pytest.raises(AssertionError, match="codes differ"):
        assert_same_codes(
            rounded("f16", 1 + 2**-11, all_random("f16")), np.full(1 << 13, 0x3C00, np.uint32)
        )


# --- specials ---


@pytest.mark.parametrize(
    ("type_", "nan", "infinity", "largest"),
    [
        ("f16", 0x7FFF, 0x7C00, 0x7BFF),
        ("bf16", 0x7FFF, 0x7F80, 0x7F7F),
        ("e5m2", 0x7F, 0x7B, 0x7B),
        ("e4m3", 0x7F, 0x7E, 0x7E),
        ("e3m2", 0x1F, 0x1F, 0x1F),
        ("e2m3", 0x1F, 0x1F, 0x1F),
        ("e2m1", 0x7, 0x7, 0x7),
    ],
)
def test_specials(type_, nan, infinity, largest):
    random_bits = np.array([0, 0x01020304, 0xFFFFFFFF], np.uint32)
    sign = 1 << (BITS[type_] - 1)
    for value, want in (
        (np.nan, nan), (np.inf, infinity), (-np.inf, infinity | sign), (0.0, 0), (-0.0, sign),
    ):  # fmt: skip
        assert rounded(type_, value, random_bits).tolist() == [want] * 3
    for value, want in ((-1.5, 0), (-0.0, 0), (-np.inf, 0), (np.nan, nan), (np.inf, infinity)):
        assert rounded(type_, value, random_bits, ".relu").tolist() == [want] * 3
    if type_ in ("f16", "bf16"):
        for value, want in ((np.inf, largest), (-np.inf, largest | sign), (np.nan, nan),
                            (3.4028235e38, largest)):  # fmt: skip
            assert rounded(type_, value, random_bits, ".satfinite").tolist() == [want] * 3
    else:
        beyond = TABLES[type_][-1] * 1.03125
        assert rounded(type_, beyond, random_bits).tolist() == [largest] * 3
        assert rounded(type_, -1e30, random_bits).tolist() == [largest | sign] * 3


@pytest.mark.parametrize("value", [65510.0, 65519.0, 65520.0, 65535.0])
def test_overflow_needs_a_carry(value):
    """Above the largest f16 a carry gives infinity, no carry the largest number."""
    up = int((value - 65504) / 32 * 8192)
    want = np.full(8192, 0x7BFF, np.uint32)
    want[len(want) - up :] = 0x7C00
    assert_same_codes(rounded("f16", value, all_random("f16")), want)


def test_beyond_the_next_power_of_two_there_is_no_choice():
    assert (rounded("f16", 65536.0, all_random("f16")) == 0x7C00).all()
    assert (rounded("f16", 65536.0, all_random("f16"), ".satfinite") == 0x7BFF).all()


# --- where the random bits of each element lie ---


def elements_up(opcode, bits):
    """Which elements of the result, highest first, one random bit rounds up.

    Every source lies just below the next number, so that any random bit at work carries.
    """
    ins = Instruction.parse(opcode)
    count = ins.sources
    width = {2: 16, 4: 8}[count] if "e2m1" not in opcode else 4
    below = np.float32(2) - np.float32(2**-23)
    sources = [words(below, len(bits)) for _ in range(count)]
    low = run(opcode, *sources, np.zeros(len(bits), np.uint32)).astype(np.uint32)
    got = run(opcode, *sources, bits).astype(np.uint32)
    out = []
    for i in reversed(range(count)):
        mask = np.uint32((1 << width) - 1)
        out.append(((got >> width * i & mask) != (low >> width * i & mask)).tolist())
    return [list(x) for x in zip(*out, strict=True)]


EVERY_BIT = np.uint32(1) << np.arange(32, dtype=np.uint32)


@pytest.mark.parametrize("relu", ["", ".relu"])
def test_place_of_random_bits_f16(relu):
    up = elements_up(f"cvt.rs{relu}.f16x2.f32", EVERY_BIT)
    assert up == [[16 <= bit < 29, bit < 13] for bit in range(32)]


def test_place_of_random_bits_bf16():
    up = elements_up("cvt.rs.bf16x2.f32", EVERY_BIT)
    assert up == [[bit >= 16, bit < 16] for bit in range(32)]


@pytest.mark.parametrize("type_", ["e5m2", "e4m3", "e3m2", "e2m3"])
def test_place_of_random_bits_of_four(type_):
    up = elements_up(f"cvt.rs.satfinite.{type_}x4.f32", EVERY_BIT)
    assert up == [[bit >= 16] * 2 + [bit < 16] * 2 for bit in range(32)]


def test_place_of_random_bits_e2m1():
    """Upper bytes of both halves for a and b, lower bytes for e and f."""
    up = elements_up("cvt.rs.satfinite.e2m1x4.f32", EVERY_BIT)
    assert up == [[bit // 8 == byte for byte in (3, 1, 2, 0)] for bit in range(32)]
