"""Recipes: dot products whose results are stated by hand, on every engine.

They follow the H200 measurements and, where a line names another generation, the published models.
"""

from dataclasses import replace

import numpy as np
import pytest
from designed import REGIMES, Case, operands
from dots import by_hand, each_engine, one_dot

from emulator.arith import dot
from emulator.arith.recipes import arithmetic_for_row, find_recipe

pytestmark = pytest.mark.sampled(12)

Z = (0.0, 0.0)
INF, NAN = np.inf, np.nan
ONE = 0x3F800000  # f32
MINUS_ZERO = 0x80000000


def of(exponent, sign=1):
    """Two factors of the product ±2**exponent."""
    return (sign * 2.0 ** (exponent // 2), 2.0 ** (exponent - exponent // 2))


def words(text_a, text_b):
    """Products given by their codes."""
    return [(int(p, 16), int(q, 16)) for p, q in zip(text_a.split(), text_b.split(), strict=True)]


# pipe, generation and types of a and d; c; products, the rest of k zero; d
BY_HAND = [
    # The cut: 1 + 8·2^-25 keeps every term with 25 fraction bits, 1 + 8·2^-26 none.
    ("mma hopper f16 f32", ONE, [of(-25)] * 8, 0x3F800002),
    ("mma hopper f16 f32", ONE, [of(-26)] * 8, 0x3F800000),
    ("mma blackwell bf16 f32", ONE, [of(-25)] * 8, 0x3F800002),
    ("mma blackwell bf16 f32", ONE, [of(-26)] * 8, 0x3F800000),
    ("mma ampere f16 f32", ONE, [of(-24)] * 8, 0x3F800004),
    ("mma ampere f16 f32", ONE, [of(-25)] * 8, 0x3F800000),
    ("quad turing f16 f32", ONE, [of(-23)] * 4, 0x3F800004),
    ("quad turing f16 f32", ONE, [of(-24)] * 4, 0x3F800000),
    ("quad volta f16 f32", ONE, [of(-23)] * 4, 0x3F800004),
    ("quad volta f16 f32", ONE, [of(-24)] * 4, 0x3F800000),
    ("wgmma hopper e4m3 f32", ONE, [of(-13)] * 8, 0x3F802000),
    ("wgmma hopper e4m3 f32", ONE, [of(-14)] * 8, 0x3F800000),
    ("mma ada e4m3 f32", ONE, [of(-13)] * 8, 0x3F802000),
    ("mma ada e4m3 f32", ONE, [of(-14)] * 8, 0x3F800000),
    # Toward zero, whatever the sign of the tail.
    ("mma hopper f16 f32", ONE, [(1.5 * 2.0**-12, 2.0**-12)], 0x3F800000),
    ("mma hopper f16 f32", ONE, [of(-25, -1)], 0x3F7FFFFF),
    ("mma hopper f16 f32", 0xBF800000, [(1.5 * 2.0**-12, -(2.0**-12))], 0xBF800000),
    # 1.5·1.5 counts with exponent 0, although it is 2.25.
    ("mma hopper f16 f32", 0, [(1.5, 1.5), *[of(-25)] * 8], 0x40100001),
    # The subnormal 2^-24 counts with exponent -14, so the product with 2^15 with 1.
    ("mma hopper f16 f32", 0, [(2.0**-24, 2.0**15), *[of(-25)] * 8], 0x3B000000),
    # Zero products take no part in the common exponent.
    ("mma hopper bf16 f32", 0, [(2.0**100, 0.0), of(-40)], 0x2B800000),
    ("mma hopper bf16 f32", MINUS_ZERO, [of(-148), of(-158, -1)], 0x00000001),
    # The floor of f32 on Hopper is -133, 25 bits: the last bit kept is 2^-158; on Ampere 2^-156.
    ("mma hopper bf16 f32", 0, [of(-148), of(-158, -1)], 0x00000001),
    ("mma hopper bf16 f32", 0, [of(-148), of(-159, -1)], 0x00000002),
    ("mma ampere bf16 f32", 0, [of(-148), of(-156, -1)], 0x00000001),
    ("mma ampere bf16 f32", 0, [of(-148), of(-157, -1)], 0x00000002),
    # Recorded on an H200.
    ("mma hopper bf16 f32", 0, words(
        "9AE9 9A26 1CC6 19FF 9B31 9AE0 9AB5 99F5", "1B6D 192E 9C35 9B66 9B30 1C88 9A04 1BC6",
    ), 0x80000271),
    ("mma hopper bf16 f32", MINUS_ZERO, words(
        "99B8 9A2B 97A0 99FA 9A21 17D6 9827 98D3", "98F5 180F 9864 17FD 1A4C 17CA 1832 1860",
    ), 0x80000001),
    ("mma hopper tf32 f32", MINUS_ZERO, words(
        "1A13ACD5 9780A3E3 9A533DFA 19372090 992994B2 9AD24BF8 19A0CA95 99818E3F",
        "18C81295 97455E99 181F9F0F 1A8E7D2C 18C9B123 1A645E1D 186C3F24 9A741106",
    ), 0x80000001),
    # f16 results: the last bit kept is 2^-46 on Hopper (recorded), 2^-44 on Ampere, 2^-42 on Volta.
    ("mma hopper f16 f16", 0, [of(-25), of(-46)], 0x0001),
    ("mma hopper f16 f16", 0, [of(-25), of(-47)], 0x0000),
    ("mma ampere f16 f16", 0, [of(-25), of(-44)], 0x0001),
    ("mma ampere f16 f16", 0, [of(-25), of(-45)], 0x0000),
    ("quad volta f16 f16", 0, [of(-25), of(-42)], 0x0001),
    ("quad volta f16 f16", 0, [of(-25), of(-43)], 0x0000),
    ("wgmma hopper f16 f16", 0, [of(-25), (3 * 2.0**-24, 2.0**-24)], 0x0000),
    ("wgmma hopper f16 f16", 0, [of(-25, -1), of(-48, -1)], 0x0000),
    # f16 results are rounded to nearest even; a tail inside the window breaks the tie.
    ("mma hopper f16 f16", 0x3C00, [of(-11)], 0x3C00),
    ("mma hopper f16 f16", 0x3C01, [of(-11)], 0x3C02),
    ("mma hopper f16 f16", 0x3C00, [of(-11), of(-25)], 0x3C01),
    ("mma hopper f16 f16", 0x3C00, [of(-11), of(-26)], 0x3C00),
    # Overflow is infinity, although f32 truncates; f16 from 65520 on.
    ("mma hopper bf16 f32", 0x7F7FFFFF, [of(103)], 0x7F7FFFFF),
    ("mma hopper bf16 f32", 0x7F7FFFFF, [of(104)], 0x7F800000),
    ("mma hopper bf16 f32", 0, [of(128, -1)], 0xFF800000),
    ("mma hopper f16 f16", 0x7BFF, [(3.998046875, 4.0)], 0x7BFF),
    ("mma hopper f16 f16", 0x7BFF, [(4.0, 4.0)], 0x7C00),
    ("mma hopper f16 f16", 0xFBFF, [(4.0, -4.0)], 0xFC00),
    # A zero result is +0: all zeros minus, cancellation, negative underflow.
    ("mma hopper f16 f32", MINUS_ZERO, [(-0.0, 1.0)] * 16, 0),
    ("mma hopper f16 f16", 0x8000, [(-0.0, 1.0)] * 16, 0),
    ("mma hopper f16 f32", 0xBF800000, [(1.0, 1.0)], 0),
    ("mma hopper bf16 f32", 0, [of(-150, -1)], 0),
    ("mma hopper bf16 f32", 0, [of(-149, -1)], 0x80000001),
    ("mma hopper f16 f16", 0, [of(-25, -1)], 0),
    ("mma hopper f16 f16", 0, [of(-24, -1)], 0x8001),
    # NaN before infinity; every NaN is the one with all bits set.
    ("mma hopper f16 f32", 0, [(NAN, 0.0)], 0x7FFFFFFF),
    ("mma hopper f16 f32", 0, [(INF, 0.0)], 0x7FFFFFFF),
    ("mma hopper f16 f32", 0, [(INF, 1.0), (1.0, -INF)], 0x7FFFFFFF),
    ("mma hopper f16 f32", 0xFF800000, [(INF, 1.0)], 0x7FFFFFFF),
    ("mma hopper f16 f32", 0xFFC12345, [(INF, 1.0)], 0x7FFFFFFF),
    ("mma hopper f16 f32", 0xFF800000, [(65504.0, 65504.0)], 0xFF800000),
    ("mma hopper f16 f16", 0, [(NAN, 1.0), (INF, 1.0)], 0x7FFF),
    ("mma hopper f16 f16", 0x7C00, [(-INF, -2.0)], 0x7C00),
    ("wgmma hopper e5m2 f32", 0, [(-INF, 1.0)], 0xFF800000),
    ("wgmma hopper e4m3 f32", 0, [(0x7F, 0)], 0x7FFFFFFF),
    # tf32 loses its low 13 bits before it is classified: infinity, not NaN; zero, not subnormal.
    ("mma hopper tf32 f32", 0, words("7F801FFF", "3F801FFF"), 0x7F800000),
    ("mma hopper tf32 f32", 0, words("00001FFF", "7F000000"), 0),
    # Ampere takes k = 16 in two passes of 8, Hopper in one.
    ("mma ampere f16 f32", ONE, [of(-24), *[Z] * 7, of(-24)], 0x3F800000),
    ("mma ampere f16 f32", ONE, [of(-24), *[Z] * 6, of(-24)], 0x3F800001),
    ("mma hopper f16 f32", ONE, [of(-24), *[Z] * 7, of(-24)], 0x3F800001),
    # tf32 in two passes of 4; fp8 on Ada in two of 16, where the second sees only 1 - 1 = 0.
    ("mma ampere tf32 f32", ONE, [of(-24), *[Z] * 3, of(-24)], 0x3F800000),
    ("mma ada e4m3 f32", ONE, [(-1.0, 1.0), *[Z] * 15, of(-14)], 0x38800000),
    ("wgmma hopper e4m3 f32", ONE, [(-1.0, 1.0), *[Z] * 15, of(-14)], 0),
    # f32 written with 14 bits: c alone is cut, subnormals too.
    ("wgmma hopper e4m3 f32", 0x3F8007FF, [], 0x3F800400),
    ("wgmma hopper e4m3 f32", 0xBF8003FF, [], 0xBF800000),
    ("wgmma hopper e5m2 f32", 0x00000401, [], 0x00000400),
    ("wgmma hopper e5m2 f32", 0x800003FF, [], 0),
    # fp8 on Hopper's mma: two f16 passes without c, then an addition that rounds to nearest.
    ("mma hopper e5m2 f32", ONE, [(1.5 * 2.0**-12, 2.0**-12)], 0x3F800001),
    ("mma rtx_blackwell e5m2 f32", ONE, [(1.5 * 2.0**-12, 2.0**-12)], 0x3F800000),
    ("mma hopper e4m3 f32", MINUS_ZERO, [(-0.0, 1.0)], 0),
    ("mma hopper e4m3 f32", 0, [(0xFF, 0)], 0x7FFFFFFF),
    # f16 overflows between the passes, which take k mod 4 in {0, 1} and in {2, 3}.
    ("mma hopper e5m2 f16", 0, [(57344.0, 2.0), Z, (-57344.0, 2.0)], 0x7C00),
    ("mma hopper e5m2 f16", 0, [(-57344.0, 2.0), Z, Z, (57344.0, 2.0)], 0xFC00),
    ("mma hopper e5m2 f16", 0, [(57344.0, 2.0), (-57344.0, 2.0)], 0),
    ("mma hopper e5m2 f16", 0, [(57344.0, 2.0), *[Z] * 3, (-57344.0, 2.0)], 0),
    ("wgmma hopper e5m2 f16", 0, [(57344.0, 2.0), Z, (-57344.0, 2.0)], 0),
    # m8n8k4 from Ampere on: an f32 chain then + c, or two pairs added to c; f16 may give -0.
    ("quad hopper f16 f32", MINUS_ZERO, [(-0.0, 1.0)] * 4, 0),
    ("quad hopper f16 f16", 0x8000, [(-0.0, 1.0)] * 4, 0x8000),
    ("quad volta f16 f16", 0x8000, [(-0.0, 1.0)] * 4, 0),
    ("quad hopper f16 f32", ONE, [(1.5 * 2.0**-12, 2.0**-12)], 0x3F800001),
    ("quad turing f16 f32", ONE, [(1.5 * 2.0**-12, 2.0**-12)], 0x3F800000),
    ("quad hopper f16 f32", 0x3A800000, [of(30), of(30, -1)], 0x3A800000),
    ("quad hopper f16 f16", 0x1400, [of(30), of(30, -1)], 0x1400),
    ("quad hopper f16 f32", 0, [of(30), of(-20), of(30, -1)], 0),
    ("quad hopper f16 f16", 0x1400, [of(30), Z, of(30, -1)], 0),
    ("quad volta f16 f32", 0x3A800000, [of(30), of(30, -1)], 0),
    # f64: on a NaN B's survives before the accumulator's before A's, quieted; invalid is FFF8….
    ("mma hopper f64 f64", 0x7FF0_0000_0000_0003, words("FFF0000000000001", "7FF0000000000002"),
     0x7FF8_0000_0000_0002),
    ("mma hopper f64 f64", 0x7FF0_0000_0000_0003, words("FFF0000000000001", "3FF0000000000000"),
     0x7FF8_0000_0000_0003),
    ("mma hopper f64 f64", 0, words("FFF0000000000001", "3FF0000000000000"),
     0xFFF8_0000_0000_0001),
    ("mma hopper f64 f64", 0, [(INF, 0.0)], 0xFFF8_0000_0000_0000),
    ("mma hopper f64 f64", 0x7FF0 << 48, [(-INF, 1.0)], 0xFFF8_0000_0000_0000),
    ("mma hopper f64 f64", 0xBFF0 << 48, [(1.0, 1.0)], 0),
    # integers
    ("mma hopper s8 s32", 0x7FFFFFFF, [(1, 1)], 0x80000000),
    ("mma hopper s8 s32", 0x80000000, [(-1, 1)], 0x7FFFFFFF),
    ("mma hopper s8 s32", 0, [(-128, -128)] * 32, 32 << 14),
    ("mma hopper u8 s32", 0xFFFFFFFF, [(255, 255)] * 32, 32 * 65025 - 1),
    ("mma hopper s4 s32", 0, [(-8, 7)] * 64, 2**32 - 64 * 56),
    ("mma turing u4 s32", 0, [(15, 15)] * 64, 64 * 225),
    ("wgmma hopper u8 s32", 0, [(200, 200)], 40000),
]  # fmt: skip


@each_engine
@pytest.mark.parametrize(
    ("where", "c", "pairs", "d"), BY_HAND, ids=[f"{i}-{x[0]}" for i, x in enumerate(BY_HAND)]
)
def test_results_by_hand(where, c, pairs, d, engine):
    k = 4 if where.startswith("quad") else max(len(pairs), 16)
    assert one_dot(by_hand(where), c, pairs, k, engine) == f"{d:#x}"


@each_engine
@pytest.mark.parametrize(
    ("pair", "c", "pairs", "wrapped", "clamped"),
    [
        ("s8.s8", 0x7FFFFFFF, [(1, 1)], 0x80000000, 0x7FFFFFFF),
        ("s8.u8", 0x80000000, [(-128, 255)], 0x7FFF8080, 0x80000000),
        ("u8.s8", 0x80000001, [(255, -1), (1, 127)], 0x7FFFFF81, 0x80000000),
        # clamped once, from the exact sum: nothing is lost on the way
        ("s8.s8", 0x7FFFFFF0, [(127, 127), (-127, 127)], 0x7FFFFFF0, 0x7FFFFFF0),
        ("s4.u4", 0x7FFFFFF0, [(7, 15), (-8, 15)], 0x7FFFFFE1, 0x7FFFFFE1),
    ],
)
def test_integer_edges(pair, c, pairs, wrapped, clamped, engine):
    a, b = pair.split(".")
    arithmetic = by_hand(f"mma hopper {a} s32", b)
    for saturate, expected in ((False, wrapped), (True, clamped)):
        got = one_dot(replace(arithmetic, saturate=saturate), c, pairs, 32, engine)
        assert got == f"{expected:#x}"


@each_engine
@pytest.mark.parametrize(
    ("operation", "c", "expected"),
    [("and", 10, 74), ("xor", 10, 106), ("xor", 0x7FFFFFFF, 0x8000005F), ("and", 0xFFFFFFFF, 63)],
)
def test_popcounts(operation, c, expected, engine):
    """64 times 1,1 and 96 times 1,0 or 0,1; the count wraps."""
    arithmetic = replace(by_hand("mma hopper b1 s32"), bit_operation=operation)
    pairs = [(1, 1)] * 64 + [(1, 0)] * 60 + [(0, 1)] * 36
    assert one_dot(arithmetic, c, pairs, 256, engine) == f"{expected:#x}"


@each_engine
@pytest.mark.parametrize(
    ("rounding", "third", "cancelled", "overflow"),
    [
        ("rn", 0x3FF0000000000000, 0, 0x7FF0000000000000),
        ("rz", 0x3FF0000000000000, 0, 0x7FEFFFFFFFFFFFFF),
        ("rm", 0x3FF0000000000000, 1 << 63, 0x7FEFFFFFFFFFFFFF),
        ("rp", 0x3FF0000000000001, 0, 0x7FF0000000000000),
    ],
)
def test_f64_rounds_every_step_as_the_modifier_says(rounding, third, cancelled, overflow, engine):
    arithmetic = replace(by_hand("mma hopper f64 f64"), rounding=rounding)
    assert one_dot(arithmetic, 0x3FF0 << 48, [of(-54)], 1, engine) == f"{third:#x}"
    assert one_dot(arithmetic, 0xBFF0 << 48, [(1.0, 1.0)], 1, engine) == f"{cancelled:#x}"
    assert one_dot(arithmetic, 0, [of(1024)], 1, engine) == f"{overflow:#x}"


@pytest.mark.parametrize("where", ("wgmma hopper", "mma ada"))
@pytest.mark.parametrize("a", ("e4m3", "e5m2"))
def test_fp8_results_have_ten_zero_bits(where, a):
    arithmetic = by_hand(f"{where} {a} f32")
    drawn = [
        operands(np.random.default_rng(104), Case("", arithmetic, 32, 0), regime, 500)
        for regime in REGIMES
    ]
    d = dot(arithmetic, *(np.concatenate(parts) for parts in zip(*drawn, strict=True)))
    assert np.all((d & 0x3FF == 0) | (d == 0x7FFFFFFF))
    assert np.any(d & 0x400)


# --- block scales ---------------------------------------------------------------------------------

ONES, MINUS, HALF = [(1.0, 1.0)], [(1.0, -1.0)], [(0.5, 0.5)]
BLANK = [(0.0, 0.0)]
# kind and types, c, products, scales of A, scales of B, d
SCALED = [
    ("mxf8f6f4 e4m3 ue8m0", 0, ONES * 32, [0x80], [0x7F], 0x42800000),
    ("mxf8f6f4 e2m1 ue8m0", ONE, ONES * 32, [0x7E], [0x7E], 0x41100000),
    ("mxf8f6f4 e4m3 ue8m0", 0, ONES * 32, [0xFF], [0x7F], 0x7FFFFFFF),
    ("mxf8f6f4 e4m3 ue8m0", 0, BLANK * 32, [0x7F], [0xFF], 0x7FFFFFFF),
    ("mxf8f6f4 e5m2 ue8m0", 0, [(INF, 1.0)], [0x00], [0x00], 0x7F800000),
    ("mxf8f6f4 e4m3 ue8m0", 0, ONES * 32, [0xFE], [0x7F], 0x7F800000),
    # 25 fraction bits below the scaled products
    ("mxf8f6f4 e4m3 ue8m0", ONE, ONES * 8, [0x7F - 12], [0x7F - 13], 0x3F800002),
    ("mxf8f6f4 e4m3 ue8m0", ONE, ONES * 8, [0x7F - 13], [0x7F - 13], 0x3F800000),
    ("mxf4 e2m1 ue8m0", 0, ONES * 64, [0x7F, 0x80], [0x7F, 0x7F], 0x42C00000),
    ("mxf4 e2m1 ue8m0", 0, ONES * 64, [0x7F, 0xFF], [0x7F, 0x7F], 0x7FFFFFFF),
    ("mxf4 e2m1 ue8m0", 0x7FC00000, ONES * 64, [0x7F, 0x7F], [0x7F, 0x7F], 0x7FFFFFFF),
    # 16 - 16 + 2^-35: the last bit kept; 2^-36 is cut
    ("mxf4 e2m1 ue8m0", 0, ONES * 16 + MINUS * 16 + HALF, [0x7F, 0x7F - 16], [0x7F, 0x7F - 17],
     0x2E000000),
    ("mxf4 e2m1 ue8m0", 0, ONES * 16 + MINUS * 16 + HALF, [0x7F, 0x7F - 16], [0x7F, 0x7F - 18], 0),
    ("mxf4nvf4 e2m1 ue4m3", 0, ONES * 16, [0x3C, 0x38, 0x38, 0x38], [0x3C, 0x38, 0x38, 0x38],
     0x42100000),
    ("mxf4nvf4 e2m1 ue4m3", 0, ONES * 64, [0x00, 0x38, 0x38, 0x38], [0x38] * 4, 0x42400000),
    ("mxf4nvf4 e2m1 ue4m3", 0, ONES * 16, [0x01, 0x38, 0x38, 0x38], [0x38] * 4, 0x3D000000),
    ("mxf4nvf4 e2m1 ue4m3", 0, ONES * 16, [0x38] * 4, [0x38, 0x38, 0x38, 0x7F], 0x7FFFFFFF),
    ("mxf4nvf4 e2m1 ue4m3", 0x80000000, MINUS * 64, [0x00] * 4, [0x38] * 4, 0),
    # What `probes` has for instructions without scales: 1 - 1 beside c, and where two products make
    # no term of their own; 2 + 3/2 and 2 + 1 steps, in c and toward zero.
    ("mxf8f6f4 e4m3 ue8m0", 2.0**-25, ONES + MINUS, [0x7F], [0x7F], 0x33000000),
    ("mxf8f6f4 e4m3 ue8m0", 2.0**-26, ONES + MINUS, [0x7F], [0x7F], 0),
    ("mxf8f6f4 e5m2 ue8m0", 2.0**-25, ONES + MINUS + BLANK * 30, [0x7F], [0x7F], 0x33000000),
    ("mxf8f6f4 e5m2 ue8m0", 0, [of(10), of(10, -1), of(-16)], [0x7F], [0x7F], 0),
    ("mxf8f6f4 e5m2 ue8m0", 0, [of(10), of(10, -1), *BLANK * 29, of(-16)], [0x7F], [0x7F], 0),
    ("mxf8f6f4 e2m1 ue8m0", 3 * 2.0**-23, ONES * 2, [0x7F], [0x7F], 0x40000001),
    ("mxf8f6f4 e2m1 ue8m0", 2.0**-22, ONES * 2, [0x7F], [0x7F], 0x40000001),
    # The floor, -133: 2^-148 less 2^-158, which is kept, or less 2^-159.
    ("mxf8f6f4 e5m2 ue8m0", 0, [of(0), of(-10, -1)], [0x7F - 74], [0x7F - 74], 0x00000001),
    ("mxf8f6f4 e5m2 ue8m0", 0, [of(0), of(-11, -1)], [0x7F - 74], [0x7F - 74], 0x00000002),
    ("mxf4 e2m1 ue8m0", 2.0**-35, ONES * 16 + MINUS * 16, [0x7F] * 2, [0x7F] * 2, 0x2E000000),
    ("mxf4 e2m1 ue8m0", 2.0**-36, ONES * 16 + MINUS * 16, [0x7F] * 2, [0x7F] * 2, 0),
    ("mxf4 e2m1 ue8m0", 3 * 2.0**-23, ONES * 2, [0x7F] * 2, [0x7F] * 2, 0x40000001),
    ("mxf4 e2m1 ue8m0", 2.0**-22, ONES * 2, [0x7F] * 2, [0x7F] * 2, 0x40000001),
    # Two quarters of 2^-34, eight positions apart: neither would be kept alone beside 16 - 16.
    ("mxf4 e2m1 ue8m0", 0, [*ONES * 16, *MINUS * 16, *HALF, *BLANK * 7, *HALF],
     [0x7F, 0x7F - 17], [0x7F, 0x7F - 17], 0x2E000000),
    # The floor, -139: 2^-146 less 2^-174, which is kept, or less 2^-175.
    ("mxf4 e2m1 ue8m0", 0, [*ONES * 16, *BLANK * 16, (0.5, -0.5)],
     [0x7F - 75, 0x7F - 86], [0x7F - 75, 0x7F - 86], 0x00000007),
    ("mxf4 e2m1 ue8m0", 0, [*ONES * 16, *BLANK * 16, (0.5, -0.5)],
     [0x7F - 75, 0x7F - 87], [0x7F - 75, 0x7F - 86], 0x00000008),
    # 8 - 8 in one group counts, as nothing, with the exponent of its scales; a group of zeros and
    # one with a scale of zero do not.
    ("mxf4 e2m1 ue8m0", 0, [*ONES * 8, *MINUS * 8, *BLANK * 16, *HALF],
     [0x7F, 0x7F - 16], [0x7F, 0x7F - 17], 0x2E000000),
    ("mxf4 e2m1 ue8m0", 0, [*ONES * 8, *MINUS * 8, *BLANK * 16, *HALF],
     [0x7F, 0x7F - 17], [0x7F, 0x7F - 17], 0),
    ("mxf4 e2m1 ue8m0", 0, [*BLANK * 32, *HALF], [0x7F, 0x7F - 17], [0x7F, 0x7F - 17], 0x2D800000),
    ("mxf4nvf4 e2m1 ue4m3", 2.0**-44, [*ONES * 8, *MINUS * 8], [0x38] * 4, [0x38] * 4, 0),
    ("mxf4nvf4 e2m1 ue4m3", 2.0**-44, ONES * 16, [0x00, *[0x38] * 3], [0x38] * 4, 0x29800000),
]  # fmt: skip


@each_engine
@pytest.mark.parametrize(("where", "c", "pairs", "scale_a", "scale_b", "d"), SCALED)
def test_scaled_results_by_hand(where, c, pairs, scale_a, scale_b, d, engine):
    assert scaled(where, c, pairs, scale_a, scale_b, engine) == f"{d:#x}"


def scaled(where, c, pairs, scale_a, scale_b, engine):
    """The code of D of one line of SCALED."""
    kind, a, scale = where.split()
    row = find_recipe("mma", "rtx_blackwell", a, "f32", kind)
    arithmetic = arithmetic_for_row(row, a, a, "f32", scale)
    scales = [np.array([x], np.uint8) for x in (scale_a, scale_b)]
    k = 32 if kind == "mxf8f6f4" else 64
    return one_dot(arithmetic, c, pairs, k, engine, scales)
