"""Fused dot-adds of ordinary numbers in floating point, for whole matrices.

What `reference.fused_dot_add` says in integers, said in operations that NumPy is quick at: a
product times a power of two, cut to an integer, is the aligned term. A mask comes back with the
result; where it is set the operands were not ordinary (see `factors`) or the result is not (too
small to align in float32, infinite, NaN), the number beside it means nothing, and `vector` must be
asked instead.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dtypes import FORMATS, Array
from dtypes.arrays import Int64
from emulator.arith.factors import EXPONENT, Bool, Factor, Float32, Plan
from emulator.arith.steps import FusedDotAdd

#: largest exponents that the alignment can work with, as float32 words: 2**-80 to 2**100
LOW, HIGH = np.int32((127 - 80) << 23), np.int32((127 + 100) << 23)
#: aligned terms that are summed in int32
RUN = 8
#: products held at a time: a few arrays of them fit a cache
_PRODUCTS = 1 << 16


class Constants(NamedTuple):
    """What a step's parameters are to the bits of float32 and float64."""

    #: minus the exponent word of the largest term: the float32 word of what scales terms by
    to_scale: np.int32
    #: plus the exponent field, in place for a float64: the word of the unit of the sum
    to_unit: np.int64
    #: least exponent word of the largest term; 0: below all that is ordinary
    floor: np.int32
    #: exponent word that a subnormal accumulator counts with
    least: np.int32
    #: bits of a float64 that a result cut to the output precision keeps
    mask: np.int64
    #: the result is f16, rounded to nearest even
    half: bool


def constants(step: FusedDotAdd) -> Constants:
    fmt = FORMATS[step.result]
    precision = step.precision or fmt.precision
    half = step.result == "f16"
    floor = -127 if step.floor is None else max(step.floor, -127)
    return Constants(
        np.uint32((127 + 127 + step.fraction_bits) << 23).view(np.int32),
        np.int64(1023 - 127 - step.fraction_bits) << np.int64(52),
        np.int32((floor + 127) << 23),
        np.int32((fmt.emin + 127) << 23 if half else 0),
        np.int64(-1 << (53 - precision)),
        half,
    )


def chain(made: Plan, a: Factor, b: Factor, c: Float32) -> tuple[Float32, Bool]:
    """Accumulators ``(…, m, n)`` after all passes of `a` ``(…, m)`` and `b` ``(…, n)``, and a mask
    of those that are to be computed otherwise."""
    count, width = a.value.shape[-2:]
    batch = np.broadcast_shapes(a.value.shape[:-3], b.value.shape[:-3], c.shape[:-2])
    m, n = c.shape[-2:]
    c = np.broadcast_to(c, (*batch, m, n))
    # Rows at a time; the products of a batch are cut by the caller.
    rows = max(1, _PRODUCTS // max(1, c[..., 0, :].size * width))
    # k comes first, so that maxima and sums run over contiguous rows of products
    b_value, b_power = (np.ascontiguousarray(np.moveaxis(x, (-2, -1), (0, 1))) for x in b[:2])
    x, bad = np.empty_like(c), np.empty(c.shape, np.bool_)
    numbers = constants(made.step)
    per_instruction = len(made.order)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        for start in range(0, m, rows):
            part = slice(start, start + rows)
            value, power = (np.moveaxis(y[..., part, :, :], (-2, -1), (0, 1)) for y in a[:2])
            total = result = c[..., part, :]
            wrong = np.zeros(total.shape, np.bool_)
            for i in range(count):
                if made.adds_c and i % per_instruction == 0:
                    result = np.zeros_like(total)
                result, odd = _pass(
                    numbers,
                    value[i, ..., None], power[i, ..., None],
                    b_value[i][..., None, :], b_power[i][..., None, :], result,
                )  # fmt: skip
                wrong |= odd
                if made.adds_c and (i + 1) % per_instruction == 0:
                    total, odd = _add(numbers.half, total, result)
                    wrong |= odd
                    result = total
            x[..., part, :], bad[..., part, :] = result, wrong
    return x, bad


def _pass(
    numbers: Constants,
    a_value: Float32, a_power: Float32, b_value: Float32, b_power: Float32, x: Float32,
) -> tuple[Float32, Bool]:  # fmt: skip
    """One fused dot-add of operands ``(k, …, m, 1)`` and ``(k, …, 1, n)``."""
    top = (a_power * b_power).max(0).view(np.int32)
    exponent = np.maximum(x.view(np.int32) & EXPONENT, numbers.least)
    top = np.maximum(np.maximum(top, np.where(x == 0, np.int32(0), exponent)), numbers.floor)
    bad = (top > HIGH) | ((top < LOW) & ((top != 0) | (x != 0)))
    scale = (numbers.to_scale - top).view(np.float32)
    terms = a_value * b_value
    terms *= scale
    cut = terms.astype(np.int32)
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


def _add(half: bool, c: Float32, x: Float32) -> tuple[Float32, Bool]:
    """c + x, rounded to nearest in the format of the result."""
    if half:
        out = round_to_half(c.astype(np.float64) + x)
        return out, ~(np.abs(out) <= np.float32(65504))
    out = c + x
    field = out.view(np.int32) & EXPONENT
    return out, (field == EXPONENT) | ((field == 0) & (out != 0))
