"""Operands of dot products, designed around what an engine can get wrong; for the tests of engines.

Boundary codes, exponents around the alignment cut, the floor, the overflow and the rounding ties,
and random codes.
"""

from typing import NamedTuple

import numpy as np

from dtypes import code_type
from emulator.arith.recipes import Arithmetic
from emulator.arith.steps import FusedDotAdd


class Case(NamedTuple):
    name: str
    arithmetic: Arithmetic
    #: products of one dot
    k: int
    #: scales of one dot, 0 for none
    v: int


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
