"""Fused dot-adds whose products are first added in groups (fp4 with scales), in NumPy.

What `scaled` and `fused_dot_add` of the step say in integers, and nothing here is rounded
before the result is: the sum of a group is a small integer times a power of two, so a matrix
product of float32, in any order of additions; the scales add a few bits, and a power of two within
2**±254; the unit of the alignment is a power of two; in units, the truncated terms and their sum
are integers below 2**53. `exact_step` says which recipes are so. A mask comes back with the result:
where it is set (a scale is a NaN; the accumulator before or after is infinite, a NaN, or after is
too small for a normal number), the code beside it means nothing, and `vector` must be asked.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtypes import FORMATS, Array, Format, code_type, decode, decode_values
from emulator.arith.fast.factors import Bool, Float32
from emulator.arith.recipes import Arithmetic
from emulator.arith.steps import FusedDotAdd

Float64 = NDArray[np.float64]

#: terms held at a time: a few arrays of them fit a cache
_TERMS = 1 << 14
#: the exponent field of a float64
_EXPONENT = np.int64(0x7FF << 52)
#: below the power of every term, and with room for its unit in float64
_NOWHERE = 2.0**-600


class GroupedSide(NamedTuple):
    """One side of the products."""

    #: ``(instructions, groups, t, rows, group)``
    value: Float32
    #: of each group, ``(instructions, groups, t, rows)``
    scale: Float64
    #: 2**exponent of the scale, that of subnormals as decoded; 0 of a zero
    power: Float64
    #: a bit for each element that is not zero
    nonzero: Array


@lru_cache(maxsize=256)
def exact_step(arithmetic: Arithmetic, k: int) -> FusedDotAdd | None:
    """The only step of a recipe that `chain` computes; None for other recipes."""
    step, scale, (a, b) = arithmetic.steps[0], arithmetic.scale, (arithmetic.a, arithmetic.b)
    if len(arithmetic.steps) > 1 or not isinstance(step, FusedDotAdd) or scale is None:
        return None
    if arithmetic.c_shift or k % step.group or len(step.blocks(k)) > 1:
        return None
    if not 1 < step.group <= 64:
        return None
    f32 = arithmetic.c.name == step.result == "f32" and step.rounding == "rz"
    finite = a.specials == b.specials == "none" and scale.infinity is None and scale.bits <= 8
    if not f32 or not finite:
        return None
    # A group in units of its least product; and terms and accumulator in units of the alignment,
    # where a significand, of the two scales or of the accumulator, is below 2.
    group = step.group * _largest(a) / _least(a) * _largest(b) / _least(b)
    total = (k * _largest(a) * _largest(b) * 4 + 2) * 2.0**step.fraction_bits
    return step if group <= 2**24 and total <= 2**53 else None


def _largest(fmt: Format) -> float:
    return float(decode_values(fmt, np.array([fmt.max_finite]))[0])


def _least(fmt: Format) -> float:
    return 2.0 ** (fmt.emin - fmt.mantissa_bits)


def chain(
    arithmetic: Arithmetic, a: Array, b: Array, c: Array, scale_a: Array, scale_b: Array, k: int
) -> tuple[Array, Bool]:
    """Codes ``(t, m, n)`` after all instructions, and where they are to be computed otherwise.

    For recipes that `exact_step` returns the step of. Operands as for `matmul`, with one batch
    axis, of length 1 where it is shared.
    """
    step, scale = exact_step(arithmetic, k), arithmetic.scale
    assert step is not None and scale is not None
    batch, (m, n) = max(len(z) for z in (a, b, c, scale_a, scale_b)), c.shape[-2:]
    out, bad = np.empty((batch, m, n), np.float32), np.empty((batch, m, n), np.bool_)
    x = np.broadcast_to(c.view(np.float32), out.shape)
    per_row = n * k // step.group
    size, rows = max(1, _TERMS // (m * per_row)), max(1, _TERMS // per_row)
    with np.errstate(all="ignore"):  # of bad elements
        for start in range(0, batch, size):
            piece = slice(start, start + size)
            u, v, w, y = (z if len(z) == 1 else z[piece] for z in (a, b, scale_a, scale_b))
            p = _side(step, k, arithmetic.a, u, scale, w)
            q = _side(step, k, arithmetic.b, v, scale, y)
            for row in range(0, m, rows):
                cut = slice(row, row + rows)
                part = GroupedSide(p.value[..., cut, :], *(z[..., cut] for z in p[1:]))
                out[piece, cut], bad[piece, cut] = _tile(step, part, q, x[piece, cut])
    return out.view(np.uint32), bad


@lru_cache(maxsize=16)
def _tables(fmt: Format) -> tuple[Float64, Float64]:
    """The value of each code, and 2**exponent, or 0 of a zero."""
    codes = np.arange(1 << fmt.bits)
    value = decode_values(fmt, codes)
    return value, np.ldexp(1.0, decode(fmt, codes).exponent) * (value != 0)


def _side(
    step: FusedDotAdd, k: int, fmt: Format, codes: Array, by: Format, scales: Array
) -> GroupedSide:
    """Codes ``(t, rows, instructions * k)`` and scales ``(t, rows, V)`` of format `by`."""
    groups, total = k // step.group, codes.shape[-1]
    chunk = np.arange(0, total, step.group) * scales.shape[-1] // total
    scales = scales[..., chunk].reshape(*scales.shape[:-1], -1, groups).transpose(2, 3, 0, 1)
    scale, power = (table.take(scales) for table in _tables(by))
    value = _tables(fmt)[0].astype(np.float32).take(codes)
    value = value.reshape(*codes.shape[:-1], -1, groups, step.group).transpose(2, 3, 0, 1, 4)
    word = code_type(step.group)
    bits = np.left_shift(1, np.arange(step.group, dtype=word), dtype=word)
    return GroupedSide(value, scale, power, ((value != 0) * bits).sum(-1, dtype=word))


def _tile(step: FusedDotAdd, a: GroupedSide, b: GroupedSide, c: Float32) -> tuple[Float64, Bool]:
    """Accumulators ``(t, m, n)`` after all instructions, and a mask."""
    fmt = FORMATS[step.result]
    mask = np.int64(-1 << (53 - (step.precision or fmt.precision)))
    lowest = _NOWHERE if step.floor is None else 2.0**step.floor
    x, bad = c.astype(np.float64), np.zeros(c.shape, np.bool_)
    for p, q in zip(zip(*a, strict=True), zip(*b, strict=True), strict=True):
        scale, power = (
            u[..., :, None] * v[..., None, :] for u, v in zip(p[1:3], q[1:3], strict=True)
        )
        live = p[3][..., :, None] & q[3][..., None, :] != 0
        scale = np.broadcast_to(scale, (len(scale), *c.shape))
        terms = (p[0] @ q[0].swapaxes(-1, -2)) * scale
        # A group of zeros, a scale of zero and a zero accumulator have no part in the largest
        # exponent; products that cancel have.
        top = (power * live).max(0)
        own = np.maximum((x.view(np.int64) & _EXPONENT).view(np.float64), 2.0**fmt.emin)
        top = np.maximum(np.maximum(top, own * (x != 0)), lowest)
        unit = top * 2.0**-step.fraction_bits
        in_units = 1 / unit
        terms *= in_units
        np.trunc(terms, out=terms)
        # From +0 on, so that −0 never is the sum.
        total = (terms.sum(0, initial=0.0) + np.trunc(x * in_units)) * unit
        # In this range, truncating a float64 to the precision of the result rounds it toward zero.
        # A NaN, of a scale or the accumulator, has come through all this and is in no range.
        size = np.abs(total)
        bad |= ~((size == 0) | (size >= 2.0**fmt.emin) & (size < 2.0 ** (fmt.bias + 1)))
        x = (total.view(np.int64) & mask).view(np.float64)
    return x, bad
