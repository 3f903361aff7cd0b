"""Fused dot-adds of one small matrix in few NumPy calls.

What computes large matrices and batches fast (`fused`) is, for a single instruction, mostly the
overhead of many calls on small arrays. The arithmetic here is the same; a table for each format
takes codes to numbers, and all elements of D lie along one axis. Where an element is not ordinary
(see `factors`), or its result is not, None comes back instead of a mask.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from dtypes import Array, Format, code_type
from emulator.arith import factors, fused
from emulator.arith.factors import EXPONENT, Float32, Plan

#: products for which this pays
MOST_PRODUCTS = 1 << 13
#: largest exponents that the alignment can work with, as numbers
_LOW, _HIGH = np.float32(fused.LOW.view(np.float32)), np.float32(fused.HIGH.view(np.float32))
#: bits of the widest format that has tables: two of 256 KiB
_TABLE_BITS = 16


class Numbers(NamedTuple):
    """Elements, or products of two; the power of one that is not ordinary is infinite."""

    value: Float32
    #: 2**exponent, see `factors.Factor`
    power: Float32


def numbers(fmt: Format, widen: Format | None, codes: Array) -> Numbers:
    """Codes of a format as numbers, which are aligned as those of `widen`, if that is given."""
    if fmt.bits > _TABLE_BITS:
        return _numbers(fmt, widen, codes)
    value, power = _table(fmt, widen)
    return Numbers(value.take(codes), power.take(codes))


@lru_cache(maxsize=16)
def _table(fmt: Format, widen: Format | None) -> Numbers:
    return _numbers(fmt, widen, np.arange(1 << fmt.bits).astype(code_type(fmt.bits)))


def _numbers(fmt: Format, widen: Format | None, codes: Array) -> Numbers:
    value = factors.values(fmt, codes)
    power = factors.powers(widen or fmt, value)
    special = ~((power >= factors.LEAST) & (power <= factors.LARGEST) | (value == 0))
    power[special] = np.inf
    return Numbers(value, power)


def matmul(
    made: Plan, a_type: Format, a: Array, b_type: Format, b: Array, c: Float32
) -> Float32 | None:
    """Accumulators ``(m, n)`` after all passes of codes `a` ``(m, K)`` and `b` ``(n, K)``; None
    where one is to be computed otherwise."""
    if not made.in_order:
        starts = np.arange(0, a.shape[-1], made.order.size)
        taken = (starts[:, None] + made.order.reshape(-1)).reshape(-1)
        a, b = a.take(taken, -1), b.take(taken, -1)
    rows = numbers(a_type, made.widen, a.T[:, :, None])
    columns = numbers(b_type, made.widen, b.T[:, None, :])
    width = made.order.shape[1]

    def products(i: int) -> Numbers:
        part = slice(i * width, (i + 1) * width)
        value, power = (x[part] * y[part] for x, y in zip(rows, columns, strict=True))
        return Numbers(value.reshape(width, -1), power.reshape(width, -1))

    d = dot_adds(made, a.shape[-1] // width, products, c.reshape(-1))
    return None if d is None else d.reshape(c.shape)


def dot_adds(
    made: Plan, passes: int, products: Callable[[int], Numbers], c: Float32
) -> Float32 | None:
    """Accumulators ``(elements,)`` after all passes, each of products ``(k, elements)``; None where
    one is to be computed otherwise."""
    per_instruction = len(made.order)
    total = x = c
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        for i in range(passes):
            if made.adds_c and i % per_instruction == 0:
                x = np.zeros_like(c)
            found = _pass(made, products(i), x)
            if found is None:
                return None
            x = found
            if made.adds_c and (i + 1) % per_instruction == 0:
                total, odd = fused.add_rounded(made.numbers.half, total, x)
                if odd.any():
                    return None
                x = total
    return x


def _pass(made: Plan, products: Numbers, x: Float32) -> Float32 | None:
    """One fused dot-add, as `fused` has it; the products are changed."""
    constants = made.numbers
    terms, powers = products
    if constants.half:
        exponent = factors.powers(made.result, x)
    else:
        exponent = (x.view(np.int32) & EXPONENT).view(np.float32)
    top = np.maximum(np.maximum.reduce(powers, 0), exponent)
    if constants.floor:
        top = np.maximum(top, constants.floor.view(np.float32))
    # A NaN, of an infinite power and one of 0, compares as false.
    if not np.maximum.reduce(top) <= _HIGH:
        return None
    if np.minimum.reduce(top) < _LOW and ((top < _LOW) & (top + abs(x) != 0)).any():
        return None
    scale = (constants.to_scale - top.view(np.int32)).view(np.float32)
    terms *= scale
    cut = terms.astype(np.int32)
    total = (x * scale).astype(np.int32).astype(np.float64)
    unit, run = _unit(int(constants.to_unit))
    for start in range(0, len(cut), run):
        total += np.add.reduce(cut[start : start + run], 0, dtype=np.int32)
    total *= top * unit
    if constants.half:
        rounded = fused.round_to_half(total)
        return rounded if np.abs(rounded).max() <= np.float32(65504) else None
    return (total.view(np.int64) & constants.mask).view(np.float64).astype(np.float32)


@lru_cache(maxsize=64)
def _unit(to_unit: int) -> tuple[np.float32, int]:
    """The unit of the sums as a share of the largest exponent, and how many terms an int32 holds:
    each is less than four times the largest exponent."""
    share = np.int64(to_unit + (127 << 52)).view(np.float64)
    return np.float32(share), int(2**29 * share)
