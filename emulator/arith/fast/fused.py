"""Fused dot-adds of whole matrices in NumPy, where products are normal float32 numbers.

What `steps.fused_dot_add` says in integers, said in operations that NumPy has fast loops for: a
product times a power of two, truncated to an integer, is the aligned term. A mask comes back with
the result; where it is set the operands were not ordinary (see `factors`) or the result is not (too
small to align in float32, infinite, NaN), the number beside it means nothing, and `vector` must be
asked instead.
"""

from __future__ import annotations

import numpy as np

from dtypes import Array
from dtypes.arrays import Int64
from emulator.arith.fast.factors import EXPONENT, Bool, Constants, Factor, Float32, FusedPlan

#: largest exponents that the alignment can work with, as float32 words: 2**-80 to 2**100
LOW, HIGH = np.int32((127 - 80) << 23), np.int32((127 + 100) << 23)
#: aligned terms that are summed in int32
RUN = 8
#: products held at a time: a few arrays of them fit a cache
_PRODUCTS = 1 << 16


def chain(plan: FusedPlan, a: Factor, b: Factor, c: Float32) -> tuple[Float32, Bool]:
    """Accumulators ``(t, m, n)`` after all passes of `a` ``(t, m, …)`` and `b` ``(t, n, …)``, and a
    mask of those that are to be computed otherwise. A batch axis of length 1 is shared."""
    batch = max(len(a.value), len(b.value), len(c))
    m, n = c.shape[-2:]
    _, _, count, width = a.value.shape
    x, bad = np.empty((batch, m, n), np.float32), np.empty((batch, m, n), np.bool_)
    c = np.broadcast_to(c, x.shape)
    # k comes first, so that maxima and sums run over contiguous rows of products
    b_value, b_power = (y.transpose(2, 3, 0, 1).copy()[..., None, :] for y in b[:2])
    per_instruction = len(plan.order)
    rows = max(1, _PRODUCTS // (batch * n * width))
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        for start in range(0, m, rows):
            part = slice(start, start + rows)
            value, power = (y[:, part].transpose(2, 3, 0, 1)[..., None] for y in a[:2])
            total = result = c[:, part]
            wrong = np.zeros(total.shape, np.bool_)
            for i in range(count):
                if plan.adds_c and i % per_instruction == 0:
                    result = np.zeros_like(total)
                sides = Factor(value[i], power[i]), Factor(b_value[i], b_power[i])
                result, odd = _pass(plan.numbers, *sides, result)
                wrong |= odd
                if plan.adds_c and (i + 1) % per_instruction == 0:
                    total, odd = add_rounded(plan.numbers.half, total, result)
                    wrong |= odd
                    result = total
            x[:, part], bad[:, part] = result, wrong
    return x, bad


def _pass(numbers: Constants, a: Factor, b: Factor, x: Float32) -> tuple[Float32, Bool]:
    """One fused dot-add of operands ``(k, …, m, 1)`` and ``(k, …, 1, n)``."""
    top = (a.power * b.power).max(0).view(np.int32)
    exponent = np.maximum(x.view(np.int32) & EXPONENT, numbers.least)
    top = np.maximum(np.maximum(top, np.where(x == 0, np.int32(0), exponent)), numbers.floor)
    bad = (top > HIGH) | ((top < LOW) & ((top != 0) | (x != 0)))
    scale = (numbers.to_scale - top).view(np.float32)
    cut = (a.value * b.value * scale).astype(np.int32)
    total = (x * scale).astype(np.int32).astype(np.float64)
    for start in range(0, len(cut), RUN):
        total += cut[start : start + RUN].sum(0, dtype=np.int32)
    total *= ((top.astype(np.int64) << 29) + numbers.to_unit).view(np.float64)
    if numbers.half:
        rounded = round_to_half(total)
        return rounded, bad | (np.abs(rounded) > np.float32(65504))
    return (total.view(np.int64) & numbers.mask).view(np.float64).astype(np.float32), bad


def round_to_half(values: Array) -> Float32:
    """float64 numbers rounded to nearest even as f16 does, overflow aside; a zero becomes +0."""
    bits: Int64 = values.view(np.int64)
    normal = (bits + ((1 << 41) - 1) + (bits >> 42 & 1)) & np.int64(-1 << 42)
    # Below 2**-14 the last bit of an f16 is 2**-24: that of a float64 near 2**28.
    subnormal = (values + 1.5 * 2.0**28) - 1.5 * 2.0**28
    small = np.abs(values) < 2.0**-14
    return np.where(small, subnormal, normal.view(np.float64)).astype(np.float32)


def add_rounded(half: bool, c: Float32, x: Float32) -> tuple[Float32, Bool]:
    """c + x, rounded to nearest in the format of the result."""
    if half:
        out = round_to_half(c.astype(np.float64) + x)
        return out, ~(np.abs(out) <= np.float32(65504))
    out = c + x
    field = out.view(np.int32) & EXPONENT
    return out, (field == EXPONENT) | ((field == 0) & (out != 0))
