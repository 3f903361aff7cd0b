"""Random operands that reach the corners of an instruction's arithmetic.

Every case has a regime: what its elements have in common. A regime says how exponents are drawn, so
that alignment, rounding, overflow, subnormals and specials all occur often. Matrices are codes
``(cases, [groups,] rows, cols)``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dtypes import FORMATS, Array, Format, code_type
from emulator import Instruction

REGIMES = (
    "normal", "window", "wide", "bits", "cancel", "special", "subnormal", "overflow", "tiny",
    "ties", "zeros", "rare special",
)  # fmt: skip

#: exponents that "window" spreads products and the accumulator over: about twice the bits that a
#: tensor core keeps
WINDOW = 14

Rng = np.random.Generator


class Matrices(NamedTuple):
    """Codes of A (stored form), B and C."""

    a: Array
    b: Array
    c: Array


def emax(fmt: Format) -> int:
    """Exponent of the largest finite number."""
    return (1 << fmt.exponent_bits) - 1 - fmt.bias - (fmt.specials == "ieee")


def floats(
    fmt: Format, rng: Rng, shape: tuple[int, ...], low: int, high: int, coarse: bool = False
) -> Array:
    """Codes with exponents from `low` to `high`, cut to what the format has, subnormals included.

    `coarse` leaves all but the two highest fraction bits zero.
    """
    bits = fmt.mantissa_bits
    least = fmt.emin - bits if fmt.has_zero else fmt.emin
    low, high = (min(max(e, least), emax(fmt)) for e in (low, high))
    exponent = rng.integers(low, high + 1, shape)
    fraction = rng.integers(0, 1 << bits, shape, dtype=np.uint64)
    if coarse and bits > 2:
        fraction &= np.uint64(3 << (bits - 2))
    below = np.maximum(fmt.emin - exponent, 0).astype(np.uint64)
    field = (np.maximum(exponent, fmt.emin) + fmt.bias).astype(np.uint64)
    normal = field << np.uint64(bits) | fraction
    subnormal = (fraction | np.uint64(1 << bits)) >> below
    code = np.where(below > 0, subnormal, normal)
    if fmt.specials == "nan":
        code = np.where(code == np.uint64(fmt.nan or 0), np.uint64(fmt.max_finite), code)
    return _finish(fmt, rng, code << np.uint64(fmt.ignored_bits))


def _finish(fmt: Format, rng: Rng, code: Array) -> Array:
    """`code` with a random sign and random ignored bits."""
    if fmt.signed:
        code = code | rng.integers(0, 2, code.shape, dtype=np.uint64) << np.uint64(fmt.bits - 1)
    if fmt.ignored_bits:
        code = code | rng.integers(0, 1 << fmt.ignored_bits, code.shape, dtype=np.uint64)
    return code.astype(code_type(fmt.bits))


def any_bits(fmt: Format, rng: Rng, shape: tuple[int, ...]) -> Array:
    words = rng.integers(0, fmt.code_mask, shape, dtype=np.uint64, endpoint=True)
    return words.astype(code_type(fmt.bits))


def _specials(fmt: Format) -> list[int]:
    """Zero, the least and the largest magnitudes, infinity and NaNs, without sign."""
    shift = fmt.ignored_bits
    least_normal = 1 << (fmt.mantissa_bits + shift)
    found = [0, 1 << shift, least_normal - (1 << shift), least_normal, fmt.max_finite]
    if fmt.infinity is not None:
        found += [fmt.infinity, fmt.infinity, fmt.infinity | 1 << shift]
    return found + ([fmt.nan] if fmt.nan is not None else [])


def sprinkle(fmt: Format, rng: Rng, codes: Array, share: float) -> Array:
    """Replaces a share of `codes` by special ones."""
    chosen = rng.choice(np.array(_specials(fmt), np.uint64), codes.shape)
    return np.where(rng.random(codes.shape) < share, _finish(fmt, rng, chosen), codes)


def matrices(ins: Instruction, rng: Rng, regime: str, cases: int) -> Matrices:
    """A, B and C of `cases` cases of one regime."""
    groups = () if ins.is_wgmma or ins.fragment("a").groups == 1 else (ins.fragment("a").groups,)
    lead = (cases, *groups)
    shapes = ((*lead, ins.m, ins.stored_k), (*lead, ins.k, ins.n), (*lead, ins.m, ins.n))
    a_fmt, b_fmt, c_fmt = (FORMATS[t] for t in (ins.a_type, ins.b_type, ins.c_type))
    if not a_fmt.is_float:
        a, b = (_integers(f, rng, s, regime) for f, s in ((a_fmt, shapes[0]), (b_fmt, shapes[1])))
        return Matrices(a, b, _accumulators(rng, shapes[2], regime))
    a = _multiplicand(a_fmt, c_fmt, rng, shapes[0], regime)
    b = _multiplicand(b_fmt, c_fmt, rng, shapes[1], regime)
    c = _addend(c_fmt, rng, shapes[2], regime)
    if regime == "cancel":
        a, b = _cancelling(a_fmt, rng, a, b, ins.is_sparse)
    return Matrices(a, b, c)


def _multiplicand(
    fmt: Format, result: Format, rng: Rng, shape: tuple[int, ...], regime: str
) -> Array:
    low, high = fmt.emin - fmt.mantissa_bits, emax(fmt)
    half = 2 if fmt.exponent_bits >= 8 else 1  # so that not every product overflows
    if regime == "bits":
        return any_bits(fmt, rng, shape)
    if regime == "wide":
        return floats(fmt, rng, shape, low // half, high // half)
    if regime in ("window", "ties", "cancel"):
        return floats(fmt, rng, shape, -WINDOW // 2, WINDOW // 2, coarse=regime == "ties")
    if regime == "overflow":
        # Sums near the largest result, mostly of one sign; or the largest elements there are.
        top = min(high, emax(result) // 2 - 1)
        codes = floats(fmt, rng, shape, top - 3, top)
        positive = codes & codes.dtype.type(fmt.code_mask & ~fmt.sign_mask)
        return np.where(rng.random(shape) < 0.9, positive, codes)
    if regime == "tiny":
        # Products near the least result, or near the least product where that is larger.
        least = max((result.emin - result.mantissa_bits) // 2 - 3, low)
        return floats(fmt, rng, shape, least, least + 9)
    if regime == "subnormal":
        few = floats(fmt, rng, shape, -2, high if half == 1 else 100)
        return np.where(rng.random(shape) < 0.7, floats(fmt, rng, shape, low, fmt.emin), few)
    codes = floats(fmt, rng, shape, -2, 2)
    if regime == "special":
        return sprinkle(fmt, rng, codes, 0.05)
    if regime == "rare special":
        return sprinkle(fmt, rng, codes, 0.005)
    if regime == "zeros":
        zero = _finish(fmt, rng, np.zeros(shape, np.uint64))
        return np.where(rng.random(shape) < 0.8, zero, codes)
    return codes


def _addend(fmt: Format, rng: Rng, shape: tuple[int, ...], regime: str) -> Array:
    least, high = fmt.emin - fmt.mantissa_bits, emax(fmt)
    zero = _finish(fmt, rng, np.zeros(shape, np.uint64))
    if regime == "bits":
        return any_bits(fmt, rng, shape)
    if regime in ("window", "ties"):
        return floats(fmt, rng, shape, -WINDOW - 10, WINDOW + 10, coarse=regime == "ties")
    if regime == "wide":
        return floats(fmt, rng, shape, least, high)
    if regime == "overflow":
        return floats(fmt, rng, shape, high - 3, high)
    if regime in ("tiny", "subnormal"):
        tiny = floats(fmt, rng, shape, least, fmt.emin + 2)
        return np.where(rng.random(shape) < 0.3, zero, tiny)
    if regime in ("special", "rare special"):
        return sprinkle(fmt, rng, floats(fmt, rng, shape, -3, 5), 0.1)
    if regime in ("zeros", "cancel"):
        small = floats(fmt, rng, shape, -30, 0)
        return np.where(rng.random(shape) < 0.5, zero, small)
    return floats(fmt, rng, shape, -3, 6)


def _cancelling(fmt: Format, rng: Rng, a: Array, b: Array, sparse: bool) -> tuple[Array, Array]:
    """Pairs of products that are each other's negative, in random places of k.

    Some of A then change in their lowest bit, which leaves a small rest. Of a sparse A all columns
    of B are constant, so that any selection meets the same factor.
    """
    k = a.shape[-1]
    half = k // 2
    order = rng.permutation(k)
    a, b = a.copy(), b.copy()
    a[..., order[half : 2 * half]] = a[..., order[:half]] ^ a.dtype.type(fmt.sign_mask)
    if sparse:
        b[:] = b[..., :1, :]
    else:
        b[..., order[half : 2 * half], :] = b[..., order[:half], :]
    last_bit = a.dtype.type(1 << fmt.ignored_bits)
    return np.where(rng.random(a.shape) < 0.5 / k, a ^ last_bit, a), b


def _integers(fmt: Format, rng: Rng, shape: tuple[int, ...], regime: str) -> Array:
    codes = any_bits(fmt, rng, shape)
    if regime in ("overflow", "wide"):
        # All ones is -1 or the largest, and what lies beside the sign bit is the most extreme.
        top = fmt.code_mask >> 1
        extremes = np.array([top, (top + 1) & fmt.code_mask, fmt.code_mask], codes.dtype)
        return np.where(rng.random(shape) < 0.9, rng.choice(extremes, shape), codes)
    if regime in ("zeros", "subnormal"):
        return np.where(rng.random(shape) < 0.8, codes.dtype.type(0), codes)
    return codes


def _accumulators(rng: Rng, shape: tuple[int, ...], regime: str) -> Array:
    if regime in ("overflow", "special", "wide"):
        near = rng.integers(-70000, 70000, shape)
        edge = np.where(rng.random(shape) < 0.5, 2**31 - 1, -(2**31))
        return (edge + near & 0xFFFFFFFF).astype(np.uint32)
    if regime in ("normal", "zeros", "cancel"):
        return (rng.integers(-1000, 1000, shape) & 0xFFFFFFFF).astype(np.uint32)
    return rng.integers(0, 2**32, shape, dtype=np.uint32)


def scales(fmt: Format, rng: Rng, shape: tuple[int, ...], regime: str) -> Array:
    """Codes of block scales."""
    if regime in ("bits", "special"):
        return any_bits(fmt, rng, shape)
    spread = 60 if regime in ("wide", "overflow", "tiny") else 3
    return floats(fmt, rng, shape, -spread, spread)
