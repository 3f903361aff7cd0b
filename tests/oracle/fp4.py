"""Matrices of fp4 with block scales and with dots at the edges; for the tests of `fused`.

What decides the cut, 35 bits below the largest exponent, are the scales and the accumulator.
"""

import numpy as np
import pytest
from bits import assert_same_codes
from designed import Case, any_bits, boundary
from edges import chain, for_each_instruction

from dtypes import FORMATS
from emulator.arith import matmul
from emulator.arith.recipes import arithmetic_for_row, find_recipe


def fp4(kind, scale, v):
    row = find_recipe("mma", "rtx_blackwell", "e2m1", "f32", kind)
    return Case(f"{v}X.{scale}", arithmetic_for_row(row, "e2m1", "e2m1", "f32", scale), 64, v)


TWO, FOUR = fp4("mxf4", "ue8m0", 2), fp4("mxf4nvf4", "ue4m3", 4)
CASES = (TWO, FOUR)
each_case = pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
#: codes of f32: zeros, ends of the subnormals and normals, infinities, NaNs
F32 = boundary(FORMATS["f32"])
#: e2m1 codes
HALF, ONE, THREE_HALVES, SIX, MINUS_ONE, MINUS_HALF = 1, 2, 3, 7, 10, 9
NANS = {"ue8m0": 0xFF, "ue4m3": 0x7F}
#: least and largest codes, ends of the subnormals, NaNs
EXTREMES = {"ue8m0": (0, 1, 2, 126, 127, 128, 253, 254, 255),
            "ue4m3": (0, 1, 2, 6, 7, 8, 9, 15, 16, 56, 112, 119, 125, 126, 127)}  # fmt: skip

REGIMES = ("near", "cut", "cut c", "cancel", "cancel c", "zeros", "magnitudes", "small", "large",
           "extremes", "nan", "any")  # fmt: skip


def f32(rng, exponent):
    """Codes of f32 with these exponents, either sign, and few, all or some of the bits."""
    field = np.clip(np.asarray(exponent) + 127, 0, 254)
    kind = rng.integers(0, 3, field.shape)
    mantissa = rng.integers(0, 1 << 23, field.shape)
    mantissa = np.where(kind == 0, 0, np.where(kind == 1, 0x7FFFFF, mantissa))
    sign = rng.integers(0, 2, field.shape) << 31
    return (sign | field << 23 | mantissa).astype(np.uint32)


def scale_codes(rng, case, exponent):
    """Scales with these exponents, or the nearest there are."""
    fmt = case.arithmetic.scale
    if fmt.name == "ue8m0":
        return np.clip(exponent + 127, 0, 254).astype(np.uint8)
    field = np.clip(exponent + 7, 0, 15)
    return np.minimum(field << 3 | rng.integers(0, 8, field.shape), 0x7E).astype(np.uint8)


def matrices(rng, case, regime, shape):
    """Codes a ``(t, m, K)``, b ``(t, n, K)``, c ``(t, m, n)`` and scales; shape is (t, m, n, K)."""
    t, m, n, total = shape
    a, b = (rng.integers(0, 16, (t, rows, total), np.uint8) for rows in (m, n))
    # Some rows have few elements: a sum of many tails says little about the fate of one.
    few = rng.integers(0, 12, a.shape) > rng.choice([0, 3, 10], (t, m, 1))
    a = np.where(few, a & 8, a).astype(np.uint8)
    base = rng.integers(-4, 5, (t, 1, 1))
    wide = case.arithmetic.scale.name == "ue8m0"
    row, column = (rng.integers(-1, 2, (t, rows, case.v)) for rows in (m, n))
    chunk = rng.integers(-3, 4, (t, 1, case.v))
    c_exponent = base + rng.integers(-4, 9, (t, m, n))
    if regime in ("cut", "cancel"):
        # One chunk decides, the others are at and about the last bit that is kept.
        chunk = rng.integers(-39 if wide else -16, -30 if wide else -8, (t, 1, case.v))
        chunk[:, 0, rng.integers(0, case.v)] = 0
        c_exponent = base + rng.choice([-40, -37, -36, -35, -34, -33, 0, 5], (t, m, n))
    elif regime == "cut c":
        c_exponent = base + 35 + rng.integers(-4, 12, (t, m, n))
    elif regime == "small":
        base, c_exponent = rng.integers(-165, -120, (t, 1, 1)), rng.integers(-127, -110, (t, m, n))
    elif regime == "large":
        base, c_exponent = rng.integers(110, 127, (t, 1, 1)), rng.integers(115, 128, (t, m, n))
    elif regime == "magnitudes":
        c_exponent = rng.integers(-127, 128, (t, m, n))
    half = (base + chunk) // 2
    scale_a = scale_codes(rng, case, row + half)
    scale_b = scale_codes(rng, case, column + base + chunk - half)
    c = f32(rng, c_exponent)
    if regime == "cancel":
        # The second group of a chunk or the next chunk takes away the first.
        if not wide:
            scale_a[..., 1::2], scale_b[..., 1::2] = scale_a[..., ::2], scale_b[..., ::2]
        for start in range(0, total, 32):
            a[..., start + 16 : start + 32] = a[..., start : start + 16] ^ 8
            b[..., start + 16 : start + 32] = b[..., start : start + 16]
        a[:, ::2, rng.integers(0, total)] ^= 1
    if regime == "cancel c":
        # All but the tails of the sum, which are far apart.
        zero = np.zeros_like(c)
        first = a[..., :64], b[..., :64]
        c = chain(case, 64, *first, zero, scale_a, scale_b) ^ np.uint32(1 << 31)
        c += rng.integers(0, 2, c.shape, np.uint32)
    elif regime == "zeros":
        a[:, ::2], b[:, ::3] = a[:, ::2] & 8, b[:, ::3] & 8
        c = np.where(rng.integers(0, 3, c.shape), c & np.uint32(1 << 31), c)
    elif regime == "extremes":
        c = np.where(rng.integers(0, 2, c.shape), rng.choice(F32, c.shape), c)
        name = case.arithmetic.scale.name
        codes = [x for x in EXTREMES[name] if x != NANS[name]]
        scale_a, scale_b = (rng.choice(codes, x.shape).astype(np.uint8) for x in (scale_a, scale_b))
    elif regime == "nan":
        nan = NANS[case.arithmetic.scale.name]
        for x in (scale_a, scale_b):
            x[rng.integers(0, 8, x.shape) == 0] = nan
        a[:, 0] &= 8
    elif regime == "any":
        c = any_bits(rng, FORMATS["f32"], c.shape)
        scale_a, scale_b = (any_bits(rng, case.arithmetic.scale, x.shape)
                            for x in (scale_a, scale_b))  # fmt: skip
    return a, b, c.astype(np.uint32), scale_a, scale_b


def drawn(case, seed, shape, count=2, regimes=REGIMES):
    """All regimes, one after the other along the batch axis."""
    rng = np.random.default_rng(seed)
    parts = [matrices(rng, case, regime, (*shape, 64 * count)) for regime in regimes]
    return [np.concatenate(x) for x in zip(*parts, strict=True)]


def check(case, engine, operands, want=None):
    want = chain(case, 64, *operands) if want is None else want
    given = for_each_instruction(operands, 64)
    got = matmul(case.arithmetic, *given, k=64, engine=engine)
    assert_same_codes(got, want, c=operands[2])
