"""Sums and products of float64 numbers with exactly what their rounding lost, and from them the
fused multiply-add (Boldo and Melquiond, 2008) and chains of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from dtypes import Array, Rounding
from emulator.arith.rounding_modes import rounded

if TYPE_CHECKING:
    from emulator.arith.scalar.words import Word

#: arrays, or other words of floating-point numbers
Numbers = TypeVar("Numbers", "Array", "Word")
Float64 = NDArray[np.float64]
Bool = NDArray[np.bool_]

#: magnitudes between which the error terms of `fused` neither over- nor underflow
_SMALL, _LARGE = 2.0**-960, 2.0**990
#: a rounded sum times these lies on either side of the exact one
_AROUND = np.array([1 + 2.0**-51, 1 - 2.0**-51])


def two_sum(a: Numbers, b: Numbers) -> tuple[Numbers, Numbers]:
    """The nearest sum and what it lacks (Knuth); exact where nothing overflows."""
    total = a + b
    b_part = total - a
    return total, (a - (total - b_part)) + (b - b_part)


def two_product(a: Numbers, b: Numbers) -> tuple[Numbers, Numbers]:
    """The nearest product and what it lacks (Dekker); exact where nothing over- or underflows."""
    product = a * b
    a_high, b_high = _upper_half(a), _upper_half(b)
    a_low, b_low = a - a_high, b - b_high
    rest = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    return product, rest


def _upper_half(a: Numbers) -> Numbers:
    """The upper 26 bits of the significand (Veltkamp)."""
    shifted = a * 134217729.0  # 2**27 + 1
    return shifted - (shifted - a)


def odd_sum(a: Numbers, b: Numbers) -> Numbers:
    """a + b rounded to odd: of an inexact sum, that of the two neighbours whose last bit is 1.

    Of float32 or float64 numbers.
    """
    total, rest = two_sum(a, b)
    word = f"i{a.dtype.itemsize}"
    bits, lacks = total.view(word), rest.view(word)
    outward = (bits ^ lacks) >> 8 * a.dtype.itemsize - 1 | 1  # 1 where both have one sign, else -1
    # The rest of a sum that overflows is a NaN, which is not greater.
    odd = bits + outward * ((abs(rest) > 0).astype(word) & ~bits)
    return odd.view(a.dtype)


def fused(x: Float64, y: Float64, z: Float64, rounding: Rounding = "rn") -> tuple[Float64, Bool]:
    """x·y + z rounded once, and where it is that: of numbers of moderate size."""
    if rounding == "rm":  # by the negative, since toward +∞ what cancels is +0, as to nearest
        total, in_reach = fused(-x, y, -z, "rp")
        return -total, in_reach
    product, rest = two_product(x, y)
    in_reach = (_inside(product) | (x == 0) | (y == 0)) & (_inside(z) | (z == 0))
    in_reach &= (np.abs(x) < _LARGE) & (np.abs(y) < _LARGE)
    # x·y + z is a sum of three numbers, of which the two small ones are added to odd and the large
    # one last.
    low, lower = two_sum(z, rest)
    high, middle = two_sum(product, low)
    small = odd_sum(lower, middle)
    total = high + small
    if rounding != "rn":
        lacks = np.sign(two_sum(high, small)[1])
        up = rounding == "rp"
        beyond = lacks > 0 if up else lacks == -np.sign(total)
        total = np.where(beyond, np.nextafter(total, np.inf if up else 0), total)
    # A zero is exact, and then so is the product: IEEE signs their sum.
    return np.where(total == 0, product + z, total), in_reach


def fused_chain(a: Float64, b: Float64, c: Float64, rounding: Rounding = "rn") -> Float64 | None:
    """`fused` of all `a` and `b` ``(k, …)`` in turn, which broadcast to `c` ``(…)``, in few calls.

    None where a number is not of moderate size, or what a sum lacks may decide how it is rounded,
    and where the machine cannot be told to round so.
    """
    if rounding == "rm":  # by the negative, since toward +∞ what cancels is +0, as to nearest
        found = fused_chain(-a, b, -c, "rp")
        return None if found is None else -found
    subtract = rounded(np.subtract, rounding)
    if subtract is None:
        return None
    product, rest = two_product(a, b)
    # Each product beside the sum that it is added to; the last sum has none.
    held = np.empty((len(product) + 1, 2, *c.shape))
    held[:-1, 0], held[-1, 0], held[0, 1] = product, c, c
    totals, excess = np.empty((2, len(product), *c.shape))
    parts = np.empty_like(held[0])
    p_part, x_part = parts
    steps = zip(held[:-1], product, held[:-1, 1], rest, totals, excess, held[1:, 1], strict=True)
    for both, p, x, lacks, total, over, y in steps:
        # x·y + z is the total less its excess, which is rounded here and never −0: it is that of
        # `two_sum`, whose four subtractions are the other way round.
        np.add(p, x, total)
        np.subtract(total, p, x_part)
        np.subtract(total, x_part, p_part)
        parts -= both
        np.add(p_part, x_part, over)
        over -= lacks
        subtract(total, over, y)
    # If on both sides of the excess the last rounding gives one number, it gives that for all
    # between. Of an exact product the excess is exact.
    around = np.multiply.outer(_AROUND, excess)
    subtract(totals, around, around)
    certain = around[0] == around[1]
    if not np.logical_and.reduce(certain, None) and not (certain | (rest == 0)).all():
        return None
    magnitude = np.abs(held)
    if not np.maximum.reduce(magnitude, None) < _LARGE:
        return None  # or a NaN, of an infinity or of what overflowed
    if not np.minimum.reduce(magnitude, None) > _SMALL:
        small = (magnitude <= _SMALL) & (magnitude != 0)
        if small.any() or ((product == 0) & (a != 0) & (b != 0)).any():
            return None
    return held[-1, 1]


def _inside(numbers: Float64) -> Bool:
    magnitude = np.abs(numbers)
    return (magnitude > _SMALL) & (magnitude < _LARGE)


# --- chains of f16, whose products float32 holds --------------------------------------------------


def fma_chain(a: Array, b: Array, c: Array) -> Array | None:
    """`FmaChain` of f16 in f32 from +0, to which `c` is added: of float16 ``(k, …)`` that broadcast
    to `c`; None where a result is infinite or a NaN."""
    d = np.zeros(c.shape, np.float32)
    # No fma rounds anything but its sum.
    for product in a.astype(np.float32) * b:
        d += product
    d += c
    return d if np.isfinite(d).all() else None


def pair_sums(a: Array, b: Array, c: Array) -> Array | None:
    """`PairSums` of f16 in f32, and f16 of that; otherwise as `fma_chain`."""
    products, x = a.astype(np.float32) * b, c.astype(np.float32)
    for pair in products[::2] + products[1::2]:
        x += pair
    d = x.astype(np.float16)
    return d if np.isfinite(d).all() else None
