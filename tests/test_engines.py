"""Engines: each equals the reference bit for bit on every recipe, and both equal hand-made results.

Boundary codes first, then exponents designed around the alignment cut, the floor, the overflow and
the rounding ties, then random codes. The hand-made results follow the H200 measurements and, where
a line names another generation, the published models.
"""

from dataclasses import replace
from fractions import Fraction
from itertools import permutations, product
from typing import NamedTuple

import numpy as np
import pytest
from bits import assert_same_codes

import emulator.arith as arith
from dtypes import FORMATS, code_type, convert, encode
from emulator.arith import dot, reference
from emulator.arith.recipes import RECIPES, Arithmetic, arithmetic_for_row, find_recipe
from emulator.arith.steps import FusedDotAdd
from emulator.arith.wide import fused_multiply_add
from emulator.errors import OperandError

#: engines that must equal "reference"
FAST = ("vector",)
#: operand types that an instruction may mix
FAMILIES = ({"e4m3", "e5m2", "e3m2", "e2m3", "e2m1"}, {"s8", "u8"}, {"s4", "u4"})
#: k of the longest instruction, by the bits of an element of A; f64 and f16 chains are shorter
LENGTHS = {64: 8, 32: 8, 16: 16, 8: 32, 6: 32, 4: 64, 1: 256}
TOPS = ("rn", "rz", "rm", "rp")


class Case(NamedTuple):
    name: str
    arithmetic: Arithmetic
    #: products of one dot
    k: int
    #: scales of one dot, 0 for none
    v: int


def variants(row, a, b):
    """The arithmetics of one row and pair of types, with the modifiers that its forms take."""
    c_types = ("f32", "f16") if row.pipe == "quad" and row.d == "f32" else (row.d,)
    for c in c_types:
        plain = arithmetic_for_row(row, a, b, c)
        if a == "f64":
            yield from ((f"-{how}", replace(plain, rounding=how), 0) for how in TOPS)
        elif a == "b1":
            yield from ((f"-{op}", replace(plain, bit_operation=op), 0) for op in ("and", "xor"))
        elif row.d == "s32":
            yield from ((f"-sat{on:d}", replace(plain, saturate=on), 0) for on in (False, True))
        elif row.kinds == "mxf8f6f4":
            yield "-1X", arithmetic_for_row(row, a, b, c, "ue8m0"), 1
        elif row.kinds:
            yield "-2X", arithmetic_for_row(row, a, b, c, "ue8m0"), 2
            yield "-4X", arithmetic_for_row(row, a, b, c, "ue4m3"), 4
        else:
            yield f"-c.{c}", plain, 0


def every_case():
    for row in RECIPES:
        types = row.a.split()
        for a, b in product(types, types):
            if a != b and not any({a, b} <= family for family in FAMILIES):
                continue
            for suffix, arithmetic, v in variants(row, a, b):
                k = 4 if row.pipe == "quad" else LENGTHS[FORMATS[a].bits]
                if row.d != "s32" and FORMATS[a].bits == 4 and not row.kinds.startswith("mxf4"):
                    k = 32  # in bytes
                where = f"{row.pipe}-{row.generations.replace(' ', '+')}"
                name = f"{where}-{row.kinds.split(' ')[0]}-{a}.{b}.{row.d}{suffix}"
                yield Case(name.replace("--", "-"), arithmetic, k, v)


CASES = tuple(every_case())
FLOAT_CASES = tuple(case for case in CASES if case.arithmetic.a.is_float)
each_case = pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
each_fast = pytest.mark.parametrize("engine", FAST)


def check(case, engine, a, b, c, scales=()):
    got = dot(case.arithmetic, a, b, c, *scales, engine=engine)
    expected = reference.dot(case.arithmetic, a, b, c, *scales)
    assert_same_codes(got, expected, a=a, b=b, c=c)


# --- operands -------------------------------------------------------------------------------------


def boundary(fmt):
    """Zeros, ends of the subnormals and normals, one, infinities, NaNs, and one step off each."""
    top = fmt.code_mask >> fmt.signed
    if fmt.kind == "bits":
        codes = [0, 1]
    elif not fmt.is_float:
        codes = [0, 1, 2, top - 1, top, top >> 1]
    else:
        low = fmt.ignored_bits
        one, normal = fmt.bias << fmt.mantissa_bits, 1 << fmt.mantissa_bits
        near = [0, 1, 2, normal - 1, normal, normal + 1, one - 1, one, one + 1, one + normal // 2]
        near += [(fmt.max_finite >> low) - 1, fmt.max_finite >> low]
        codes = [code << low for code in near] + [fmt.max_finite]
        if fmt.infinity is not None:
            codes += [fmt.infinity, fmt.infinity + (1 << low), fmt.infinity | top >> 3, top]
        if fmt.specials == "nan":
            codes += [top]
        if low:
            codes += [(1 << low) - 1, fmt.infinity + 1, (one << low) + 1]
    codes = np.array(codes, np.uint64)
    if fmt.signed:
        codes = np.append(codes, codes | np.uint64(fmt.sign_mask))
    return np.unique(codes).astype(code_type(fmt.bits))


def any_bits(rng, fmt, shape):
    return rng.integers(0, fmt.code_mask, shape, np.uint64, endpoint=True).astype(
        code_type(fmt.bits)
    )


def of_exponent(rng, fmt, exponent, mantissa="any"):
    """Finite codes of numbers with these exponents, subnormals too, or the nearest there are."""
    highest = (1 << fmt.exponent_bits) - (2 if fmt.specials == "ieee" else 1)
    field = np.minimum(np.asarray(exponent) + fmt.bias, highest)
    ones = (1 << fmt.mantissa_bits) - 1
    fraction = rng.integers(0, ones, field.shape, endpoint=True)
    plain = rng.integers(0, 4, field.shape)
    fraction = np.where(plain == 0, 0, np.where(plain == 1, ones, fraction))
    mantissa = np.broadcast_to(mantissa, field.shape)
    fraction = np.where(mantissa == "zero", 0, np.where(mantissa == "ones", ones, fraction))
    subnormal = (ones + 1 | fraction) >> np.clip(1 - field, 0, fmt.precision)
    code = np.where(field > 0, field << fmt.mantissa_bits | fraction, subnormal)
    code = np.minimum(code, fmt.max_finite >> fmt.ignored_bits) << fmt.ignored_bits
    if fmt.ignored_bits:
        code |= rng.integers(0, 1 << fmt.ignored_bits, field.shape)
    sign = rng.integers(0, 2, field.shape).astype(np.uint64) * np.uint64(fmt.sign_mask)
    return (code.astype(np.uint64) | sign).astype(code_type(fmt.bits))


def limits(fmt):
    """The exponents of the least subnormal and of the largest number."""
    return fmt.emin - fmt.mantissa_bits, fmt.bias


def split(rng, case, target):
    """Exponents of a and b that add up to `target` where the formats can."""
    (a_low, a_high), (b_low, b_high) = limits(case.arithmetic.a), limits(case.arithmetic.b)
    low = np.clip(target - b_high, a_low, a_high)
    high = np.maximum(np.clip(target - b_low, a_low, a_high), low)
    first = rng.integers(low, high, endpoint=True)
    return first, target - first


REGIMES = ("near", "cut", "floor", "wide", "cancel", "carry", "overflow", "tie", "boundary", "any")


def window(case):
    """Fraction bits, floor and bits of the result around which operands are designed."""
    step = next((s for s in case.arithmetic.steps if isinstance(s, FusedDotAdd)), None)
    d = case.arithmetic.d
    if step is None:
        return d.precision, d.emin - 7, d.precision
    floor = d.emin - 7 if step.floor is None else step.floor
    return step.fraction_bits, floor, step.precision or d.precision


def operands(rng, case, regime, n):
    """`n` dot products (a, b, c) of one regime."""
    fmt_a, fmt_b, fmt_c = case.arithmetic.a, case.arithmetic.b, case.arithmetic.c
    shape = (n, case.k)
    if regime == "any":
        return any_bits(rng, fmt_a, shape), any_bits(rng, fmt_b, shape), any_bits(rng, fmt_c, n)
    if regime == "boundary":
        a, b = (np.where(rng.integers(0, 4, shape) > 0, 0, rng.choice(boundary(f), shape))
                for f in (fmt_a, fmt_b))  # fmt: skip
        return a.astype(code_type(fmt_a.bits)), b.astype(code_type(fmt_b.bits)), rng.choice(
            boundary(fmt_c), n
        )  # fmt: skip

    def steps(low, high):
        return rng.integers(low, high, shape, endpoint=True)

    fraction_bits, floor, bits = window(case)
    (a_low, a_high), (b_low, b_high) = limits(fmt_a), limits(fmt_b)
    base = rng.integers(max(a_low + b_low, -20), min(a_high + b_high, 20), (n, 1), endpoint=True)
    c_exponent = base[:, 0] + rng.integers(-3, 4, n)
    mantissa = "any"
    first_is_a_power = np.where(np.arange(case.k) == 0, "zero", "any")
    if regime in ("near", "cancel"):
        target = base + steps(-3, 3)
    elif regime == "cut":
        target = base - fraction_bits + steps(-3, 3)
        target[:, rng.integers(0, case.k)] = base[:, 0]
        edges = np.array([0, *(s * (fraction_bits + i) for s in (1, -1) for i in (-1, 0, 1))])
        c_exponent = base[:, 0] + rng.choice(edges, n)
    elif regime == "floor":
        # A few least steps of the result, and tails about the last bit that the floor keeps.
        target = floor - fraction_bits + steps(-2, 0)
        target[:, 0] = case.arithmetic.d.emin - bits + rng.integers(0, 4, n)
        c_exponent = np.full(n, -5000)
        mantissa = first_is_a_power
    elif regime == "wide":
        target = steps(a_low + b_low - 3, a_high + b_high)
        c_exponent = rng.integers(fmt_c.emin - 3, fmt_c.bias, n, endpoint=True)
    elif regime == "carry":
        target, mantissa = base + steps(-1, 1), "ones"
    elif regime == "overflow":
        target = case.arithmetic.d.bias + steps(-2, 1) - rng.integers(0, 26, (n, 1))
        c_exponent = np.full(n, fmt_c.bias)
    else:
        # Half of the last bit of c, and tails that break the tie or are cut.
        c_exponent = np.maximum(base[:, 0], case.arithmetic.d.emin)
        target = c_exponent[:, None] - bits - steps(1, max(fraction_bits - bits, 0) + 2)
        target[:, 0] = c_exponent - bits
        mantissa = first_is_a_power
    a_exponent, b_exponent = split(rng, case, target)
    a, b = (
        of_exponent(rng, fmt, exponent, mantissa)
        for fmt, exponent in ((fmt_a, a_exponent), (fmt_b, b_exponent))
    )
    c = of_exponent(rng, fmt_c, c_exponent)
    if regime == "floor":  # zeros of both signs, least subnormals
        c = c & c.dtype.type(fmt_c.sign_mask | 1)
    if regime == "cancel":
        half = case.k // 2
        a[:, half:], b[:, half:] = a[:, :half] ^ a.dtype.type(fmt_a.sign_mask), b[:, :half]
        order = rng.permuted(np.tile(np.arange(case.k), (n, 1)), axis=1)
        a, b = np.take_along_axis(a, order, 1), np.take_along_axis(b, order, 1)
        c = np.where(rng.integers(0, 2, n), c, rng.choice(boundary(fmt_c), n)).astype(c.dtype)
    # Some dots have few products: a sum of many tails says little about the fate of one.
    used = np.where(rng.integers(0, 2, (n, 1)), case.k, rng.integers(1, 4, (n, 1)))
    return np.where(np.arange(case.k) < used, a, 0).astype(a.dtype), b, c


def scales_of(rng, case, regime, n):
    if not case.v:
        return ()
    fmt, shape = case.arithmetic.scale, (n, case.v)
    if regime == "any":
        return any_bits(rng, fmt, shape), any_bits(rng, fmt, shape)
    if regime == "boundary":
        return rng.choice(boundary(fmt), shape), rng.choice(boundary(fmt), shape)
    middle = fmt.bias << fmt.mantissa_bits
    reach = 20 if regime in ("cut", "wide") else 5
    return tuple(
        (middle + rng.integers(-reach, reach, shape)).astype(code_type(fmt.bits)) for _ in "ab"
    )


def check_regimes(case, engine, n, seed):
    rng = np.random.default_rng(seed)
    regimes = REGIMES if case.arithmetic.a.is_float else ("any", "any", "boundary")
    drawn = [(*operands(rng, case, r, n), *scales_of(rng, case, r, n)) for r in regimes]
    a, b, c, *scales = (np.concatenate(parts) for parts in zip(*drawn, strict=True))
    check(case, engine, a, b, c, scales)


@each_fast
@each_case
def test_boundary_codes(case, engine):
    """Every pair of boundary codes in the first product; boundary codes or zeros in the others."""
    rng = np.random.default_rng(100)
    fmt_a, fmt_b, fmt_c = case.arithmetic.a, case.arithmetic.b, case.arithmetic.c
    pairs = np.array(list(product(boundary(fmt_a), boundary(fmt_b))))
    k = case.k if case.v > 1 else 4
    a, b = (
        np.where(rng.integers(0, 4, (len(pairs), k)), 0, rng.choice(boundary(f), (len(pairs), k)))
        for f in (fmt_a, fmt_b)
    )
    a[:, 0], b[:, 0] = pairs.T
    c = rng.choice(boundary(fmt_c), len(pairs))
    scales = scales_of(rng, case, "boundary", len(pairs))
    check(case, engine, a.astype(code_type(fmt_a.bits)), b.astype(code_type(fmt_b.bits)), c, scales)


@each_fast
@each_case
def test_designed_and_random_operands(case, engine):
    check_regimes(case, engine, 16, seed=101)


@pytest.mark.slow
@each_fast
@each_case
def test_designed_and_random_operands_at_length(case, engine):
    check_regimes(case, engine, 320, seed=102)


@pytest.mark.parametrize(
    ("where", "fields"),
    [
        # Products of f16 never come near the floor of f32, nor those of e4m3 near any.
        ("mma hopper f16 f32", {"fraction_bits": (24, 26), "rounding": ("rn",)}),
        ("mma hopper bf16 f32", {"fraction_bits": (24, 26), "floor": (-134, -132)}),
        ("mma hopper tf32 f32", {"fraction_bits": (24, 26), "floor": (-134, -132, None)}),
        ("mma hopper f16 f16", {"fraction_bits": (24, 26), "floor": (-22, -20), "run": (8,)}),
        ("mma hopper f16 f16", {"rounding": ("rz",), "precision": (10,)}),
        ("wgmma hopper e4m3 f32", {"fraction_bits": (12, 14), "precision": (13, 15, None)}),
    ],
)
def test_the_operands_would_show_a_wrong_recipe(where, fields):
    """The planted error: a recipe that is a bit off must not pass for the right one."""
    arithmetic = by_hand(where)
    case, rng = Case("", arithmetic, 16, 0), np.random.default_rng(103)
    drawn = [operands(rng, case, regime, 300) for regime in REGIMES]
    given = [np.concatenate(parts) for parts in zip(*drawn, strict=True)]
    right = dot(arithmetic, *given)
    (step,) = arithmetic.steps
    for field, values in fields.items():
        for value in values:
            planted = replace(arithmetic, steps=(replace(step, **{field: value}),))
            with pytest.raises(AssertionError, match="codes differ"):
                assert_same_codes(dot(planted, *given), right)


# --- results by hand ------------------------------------------------------------------------------

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
    ("quad turing f16 f32", ONE, [of(-24)] * 4, 0x3F800002),
    ("quad turing f16 f32", ONE, [of(-25)] * 4, 0x3F800000),
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


def codes_of(fmt, values):
    """Integers of a float format are codes, all other numbers are values."""
    if not fmt.is_float:
        return encode(fmt, values)
    given = [v if isinstance(v, int) else int(encode(fmt, [v])[0]) for v in values]
    return np.array(given, code_type(fmt.bits))


def by_hand(where, b=None):
    pipe, generation, a, d = where.split()
    row = find_recipe(pipe, generation, a, d, None)
    return arithmetic_for_row(row, a, b or a, d)


def one_dot(arithmetic, c, pairs, k, engine, scales=()):
    pairs = [*pairs, *[(0, 0)] * (k - len(pairs))]
    a = codes_of(arithmetic.a, [p for p, _ in pairs])[None]
    b = codes_of(arithmetic.b, [q for _, q in pairs])[None]
    c = np.array([c], code_type(arithmetic.c.bits))
    return f"{dot(arithmetic, a, b, c, *scales, engine=engine)[0]:#x}"


each_engine = pytest.mark.parametrize("engine", ("reference", *FAST))


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
]  # fmt: skip


@each_engine
@pytest.mark.parametrize(("where", "c", "pairs", "scale_a", "scale_b", "d"), SCALED)
def test_scaled_results_by_hand(where, c, pairs, scale_a, scale_b, d, engine):
    kind, a, scale = where.split()
    row = find_recipe("mma", "rtx_blackwell", a, "f32", kind)
    arithmetic = arithmetic_for_row(row, a, a, "f32", scale)
    scales = [np.array([x], np.uint8) for x in (scale_a, scale_b)]
    k = 32 if kind == "mxf8f6f4" else 64
    assert one_dot(arithmetic, c, pairs, k, engine, scales) == f"{d:#x}"


# --- shapes: broadcasting, pieces, engines --------------------------------------------------------

SHAPES = [
    # leading axes of a, b and c
    ((6,), (6,), (6,)),
    ((6, 1), (1, 4), (6, 4)),
    ((6, 1), (4,), (1, 1)),
    ((1, 3), (5, 1), (3,)),
    ((3,), (5, 1), ()),
    ((1,), (7, 2, 1), (2, 3)),
    ((0,), (1,), ()),
    ((), (), ()),
]
WHERE = ("mma hopper f16 f32", "mma hopper e4m3 f16", "quad hopper f16 f16", "mma hopper f64 f64",
         "mma hopper s8 s32", "mma hopper b1 s32")  # fmt: skip


@each_fast
@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_leading_axes_broadcast(where, shapes, engine):
    arithmetic = replace(by_hand(where), bit_operation="xor" if " b1 " in where else None)
    rng, (a, b, c) = np.random.default_rng(105), shapes
    a, b = any_bits(rng, arithmetic.a, (*a, 4)), any_bits(rng, arithmetic.b, (*b, 4))
    c = any_bits(rng, arithmetic.c, c)
    got = np.asarray(dot(arithmetic, a, b, c, engine=engine))
    assert got.shape == np.broadcast_shapes(*shapes)
    assert_same_codes(got, reference.dot(arithmetic, a, b, c))


@pytest.mark.parametrize("limit", (1, 7, 40, 1000))
@pytest.mark.parametrize("shapes", [s for s in SHAPES if s != ((), (), ())], ids=str)
def test_pieces_change_nothing(shapes, limit, monkeypatch):
    """Nor does a piece hold more products than the limit and one row over."""
    row = find_recipe("mma", "rtx_blackwell", "e4m3", "f32", "mxf8f6f4")
    arithmetic = arithmetic_for_row(row, "e4m3", "e5m2", "f32", "ue8m0")
    rng, (a, b, c) = np.random.default_rng(106), shapes
    scales = [(np.uint8(120) + rng.integers(0, 9, (*x, 2), np.uint8)) for x in (a, b)]
    a, b = any_bits(rng, arithmetic.a, (*a, 8)), any_bits(rng, arithmetic.b, (*b, 8))
    c = any_bits(rng, arithmetic.c, c)
    whole = dot(arithmetic, a, b, c, *scales)
    sizes = []

    def spy(*given):
        d = arith.vector.dot(*given)
        sizes.append((d.size * 8, d.size * 8 // max(len(d), 1)))
        return d

    monkeypatch.setattr(arith, "_PRODUCTS_AT_ONCE", limit)
    monkeypatch.setitem(arith.ENGINES, "auto", spy)
    assert_same_codes(dot(arithmetic, a, b, c, *scales), whole)
    assert all(size <= limit + row for size, row in sizes)


@each_engine
@pytest.mark.parametrize("limit", (1 << 22, 64))
def test_scales_may_have_a_batch_of_their_own(engine, limit, monkeypatch):
    row = find_recipe("mma", "rtx_blackwell", "e2m1", "f32", "mxf4")
    arithmetic = arithmetic_for_row(row, "e2m1", "e2m1", "f32", "ue8m0")
    a, c = np.full((1, 64), 2, np.uint8), np.zeros(2, np.uint32)
    scale_a = np.array([[127, 127], [128, 128], [127, 255]], np.uint8)[:, None]
    scale_b = np.full((1, 2), 127, np.uint8)
    monkeypatch.setattr(arith, "_PRODUCTS_AT_ONCE", limit)
    d = dot(arithmetic, a, a, c, scale_a, scale_b, engine=engine)
    assert_same_codes(d, np.repeat(np.uint32([[0x42800000], [0x43000000], [0x7FFFFFFF]]), 2, 1))


def test_an_unknown_engine_is_refused():
    zero = np.zeros((1, 4), np.uint16)
    with pytest.raises(OperandError, match=r"no engine 'vektor'.*nearest is 'vector'"):
        dot(by_hand("quad hopper f16 f16"), zero, zero, zero[:, 0], engine="vektor")


# --- the parts: fused multiply-add, conversion ----------------------------------------------------


def check_fma(fmt, a, b, c, rounding="rn", nan_order=()):
    got = fused_multiply_add(fmt, a, b, c, rounding, nan_order)
    rows = zip(a.tolist(), b.tolist(), c.tolist(), strict=True)
    expected = [reference.fma(fmt, *row, rounding, nan_order) for row in rows]
    assert_same_codes(got, np.array(expected, got.dtype), a=a, b=b, c=c)


@pytest.mark.parametrize("name", ("f64", "f32"))
@pytest.mark.parametrize("rounding", TOPS)
def test_fma_at_boundary_codes(name, rounding):
    fmt = FORMATS[name]
    codes = boundary(fmt)
    chosen = codes[np.random.default_rng(107).permutation(len(codes))[:22]]
    a, b, c = (x.ravel() for x in np.meshgrid(chosen, chosen, codes))
    check_fma(fmt, a, b, c, rounding, ("b", "x", "a") if name == "f64" else ())


@pytest.mark.parametrize("order", [(), *permutations(("a", "b", "x"))], ids=str)
def test_fma_chooses_between_nans(order):
    fmt = FORMATS["f64"]
    nans = np.array([0x7FF0_0000_0000_0001, 0xFFF0_0000_0000_0002, 0x7FF8_0000_0000_0004])
    codes = np.append(nans, [0, 0x3FF0 << 48, 0x7FF0 << 48]).astype(np.uint64)
    check_fma(fmt, *(x.ravel() for x in np.meshgrid(codes, codes, codes)), nan_order=order)


def fma_operands(fmt, rng, count):
    """Products and addends whose distance runs through every overlap, and beyond."""
    reach = 2 * fmt.precision + 20
    centre = rng.choice([0, fmt.emin, fmt.emin - fmt.precision, fmt.bias], count)
    target = centre + rng.integers(-6, 7, count)
    a_exponent = rng.integers(-fmt.bias // 2, fmt.bias // 2, count)
    a = of_exponent(rng, fmt, a_exponent)
    b = of_exponent(rng, fmt, target - a_exponent)
    near = rng.integers(0, 2, count) * rng.integers(-reach, reach, count, endpoint=True)
    c = of_exponent(rng, fmt, target + near)
    return a, b, np.where(rng.integers(0, 50, count) == 0, 0, c).astype(a.dtype)


def check_random_fma(name, rounding, count, seed):
    rng = np.random.default_rng(seed)
    check_fma(FORMATS[name], *fma_operands(FORMATS[name], rng, count), rounding)


@pytest.mark.parametrize("name", ("f64", "f32"))
@pytest.mark.parametrize("rounding", TOPS)
def test_random_fma(name, rounding):
    check_random_fma(name, rounding, 3000, 108)


@pytest.mark.slow
@pytest.mark.parametrize("name", ("f64", "f32"))
@pytest.mark.parametrize("rounding", TOPS)
def test_random_fma_at_length(name, rounding):
    check_random_fma(name, rounding, 60_000, 109)


def test_f64_fma_as_python_fractions_round_it():
    """An opinion from outside: Fraction to float is rounded to nearest even by Python."""
    fmt, rng = FORMATS["f64"], np.random.default_rng(110)
    operands_ = fma_operands(fmt, rng, 3000)
    got = fused_multiply_add(fmt, *operands_).view(np.float64)
    for a, b, c, d in zip(*(x.view(np.float64).tolist() for x in operands_), got, strict=True):
        exact = Fraction(a) * Fraction(b) + Fraction(c)
        try:
            assert float(exact) == d
        except OverflowError:
            assert d == (np.inf if exact > 0 else -np.inf)


@pytest.mark.parametrize("sign", (0, 1))
def test_fma_that_rounds_up_to_twice_the_overflow_bound(sign):
    """(2 - 2^-52)·2^512 · 2^512 + 2^971 rounds to 2^1025."""
    a, b, c = np.array([(2 - 2.0**-52) * 2.0**512, 2.0**512, 2.0**971])[:, None] * [[1], [1], [1]]
    a, c = (a, c) if not sign else (-a, -c)
    check_fma(FORMATS["f64"], a.view(np.uint64), b.view(np.uint64), c.view(np.uint64))


@pytest.mark.parametrize("source", ("bf16", "f16", "e5m2", "e4m3", "e3m2", "e2m3", "e2m1", "ue4m3"))
@pytest.mark.parametrize("target", ("f64", "f32", "tf32", "bf16", "f16", "e5m2"))
def test_conversion_twins(source, target):
    fmt, other = FORMATS[source], FORMATS[target]
    codes = np.arange(0, 1 << fmt.bits, 1 if fmt.bits < 16 else 13, code_type(fmt.bits))
    expected = [reference.convert(fmt, other, code) for code in codes.tolist()]
    assert_same_codes(convert(fmt, other, codes), np.array(expected, code_type(other.bits)))
