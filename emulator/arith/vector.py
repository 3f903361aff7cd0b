"""The recipes over NumPy arrays: many dot products at once, equal to `reference` bit for bit.

Operands are decoded once, before they are broadcast against each other, so that a matrix product
decodes every row and column once although each takes part in many dot products.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtypes import (
    FORMATS,
    Array,
    Format,
    NumberClass,
    code_type,
    convert,
    decode,
    decode_integers,
    round_to_codes,
)
from dtypes.arrays import Int64
from emulator.arith.recipes import Arithmetic
from emulator.arith.steps import (
    AddC,
    Clear,
    FmaChain,
    FusedDotAdd,
    IntegerDot,
    Narrow,
    PairSums,
    PopcountDot,
    Widen,
)
from emulator.arith.wide import add, fused_multiply_add, multiply

Bool = NDArray[np.bool_]

#: The exponent of a zero: far below any other, so that it never decides an alignment.
NOWHERE = -(1 << 20)


class Terms(NamedTuple):
    """Addends ``significand * 2**(exponent - fraction_bits)``, significand signed, and specials."""

    exponent: Int64
    significand: Int64
    fraction_bits: int
    nan: Bool
    #: infinite terms of each sign
    positive: Bool
    negative: Bool


def dot(
    arithmetic: Arithmetic,
    a: Array,
    b: Array,
    c: Array,
    scale_a: Array | None = None,
    scale_b: Array | None = None,
) -> Array:
    """``d = c + Σ a·b`` of codes; the same operands as `reference.dot`."""
    a_format, b_format = arithmetic.a, arithmetic.b
    operands = (x for x in (a, b, scale_a, scale_b) if x is not None)
    shape = np.broadcast_shapes(c.shape, *(x.shape[:-1] for x in operands))
    if not shape:
        # NumPy warns of overflow in arithmetic on scalars, and never in that on arrays.
        return dot(arithmetic, a[None], b, c[None], scale_a, scale_b)[0]
    c = np.broadcast_to(c, shape)
    x_format, x = arithmetic.c, c
    for step in arithmetic.steps:
        if isinstance(step, Widen):
            wide = FORMATS[step.to]
            a, b = convert(a_format, wide, a), convert(b_format, wide, b)
            a_format = b_format = wide
        elif isinstance(step, Clear):
            x_format = FORMATS[step.to]
            x = np.zeros(shape, code_type(x_format.bits))
        elif isinstance(step, FusedDotAdd):
            for block in step.blocks(a.shape[-1]):
                terms = products(a_format, b_format, a[..., block], b[..., block])
                if arithmetic.scale is not None:
                    assert scale_a is not None and scale_b is not None
                    chunk = [i * scale_a.shape[-1] // a.shape[-1] for i in block[:: step.group]]
                    scales = products(
                        arithmetic.scale, arithmetic.scale, scale_a[..., chunk], scale_b[..., chunk]
                    )
                    terms = scaled(terms, scales, step.group)
                x = fused_dot_add(step, terms, as_terms(x_format, x))
                x_format = FORMATS[step.result]
        elif isinstance(step, FmaChain):
            x, x_format = in_format(x_format, x, step.fmt), FORMATS[step.fmt]
            for i in range(a.shape[-1]):
                x = fused_multiply_add(
                    x_format, a[..., i], b[..., i], x, arithmetic.rounding, step.nan_order
                )
        elif isinstance(step, PairSums):
            x, x_format = in_format(x_format, x, step.fmt), FORMATS[step.fmt]
            for i in range(0, a.shape[-1], 2):
                first = multiply(x_format, a[..., i], b[..., i])
                pair = fused_multiply_add(x_format, a[..., i + 1], b[..., i + 1], first)
                x = add(x_format, x, pair)
        elif isinstance(step, AddC):
            x, x_format = in_format(x_format, x, step.fmt), FORMATS[step.fmt]
            x = add(x_format, x, in_format(arithmetic.c, c, step.fmt))
        elif isinstance(step, Narrow):
            x, x_format = in_format(x_format, x, step.to), FORMATS[step.to]
        elif isinstance(step, IntegerDot):
            p, q = decode_integers(a_format, a), decode_integers(b_format, b)
            x = accumulate(arithmetic, c, np.einsum("...k,...k->...", p, q))
        elif isinstance(step, PopcountDot):
            ones = a ^ b if arithmetic.bit_operation == "xor" else a & b
            x = accumulate(arithmetic, c, ones.sum(-1, dtype=np.int64))
        else:
            raise AssertionError(f"no meaning for {step}")
    return x


def in_format(source: Format, codes: Array, name: str) -> Array:
    target = FORMATS[name]
    return codes if source is target else convert(source, target, codes)


def accumulate(arithmetic: Arithmetic, c: Array, total: Int64) -> Array:
    """c + total in s32: wrapped, or clamped once from the exact sum."""
    fmt = arithmetic.d
    exact = decode_integers(fmt, c) + total
    if arithmetic.saturate:
        exact = np.clip(exact, -fmt.sign_mask, fmt.max_finite)
    return (exact & fmt.code_mask).astype(code_type(fmt.bits))


def as_terms(fmt: Format, codes: Array) -> Terms:
    """Numbers as terms of a sum."""
    number = decode(fmt, codes)
    infinite = number.number_class == NumberClass.INFINITE
    return Terms(
        np.where(number.significand == 0, NOWHERE, number.exponent),
        np.where(number.sign, -number.significand, number.significand),
        fmt.mantissa_bits,
        number.number_class == NumberClass.NAN,
        infinite & ~number.sign,
        infinite & number.sign,
    )


def products(fmt_a: Format, fmt_b: Format, a: Array, b: Array) -> Terms:
    """a·b position by position, broadcast; not normalised."""
    p, q = as_terms(fmt_a, a), as_terms(fmt_b, b)
    exponent, significand = p.exponent + q.exponent, p.significand * q.significand
    bits = p.fraction_bits + q.fraction_bits
    if not any(x.any() for t in (p, q) for x in t[3:]):
        none = np.zeros(exponent.shape, np.bool_)
        return Terms(exponent, significand, bits, none, none, none)

    p_number, q_number = decode(fmt_a, a), decode(fmt_b, b)
    p_infinite, q_infinite = p.positive | p.negative, q.positive | q.negative
    p_zero = p_number.number_class == NumberClass.ZERO
    q_zero = q_number.number_class == NumberClass.ZERO
    nan = p.nan | q.nan | (p_infinite & q_zero) | (p_zero & q_infinite)
    infinite = (p_infinite | q_infinite) & ~nan
    sign = p_number.sign ^ q_number.sign
    return Terms(exponent, significand, bits, nan, infinite & ~sign, infinite & sign)


def scaled(terms: Terms, scales: Terms, group: int) -> Terms:
    """`terms` times `scales`; `group` neighbours first become one exact term."""
    if group > 1:
        count = terms.significand.shape[-1] // group

        def split(x: Array) -> Array:
            return x.reshape(*x.shape[:-1], count, group)

        # fp4 products are fixed-point numbers: the sum keeps the unit of the smallest exponent.
        exponent, significand = split(terms.exponent), split(terms.significand)
        live = significand != 0
        lowest = int(np.min(exponent, where=live, initial=0))
        summed = np.where(live, significand << np.where(live, exponent - lowest, 0), 0).sum(-1)
        terms = Terms(
            np.zeros(summed.shape, np.int64),
            summed,
            terms.fraction_bits - lowest,
            *(np.any(split(flags), axis=-1) for flags in terms[3:]),
        )
    significand = terms.significand * scales.significand
    return Terms(
        np.where(significand == 0, NOWHERE, terms.exponent + scales.exponent),
        significand,
        terms.fraction_bits + scales.fraction_bits,
        # A scale has no infinity; zero times infinity is a NaN.
        terms.nan | scales.nan | ((terms.positive | terms.negative) & (scales.significand == 0)),
        terms.positive & ~scales.nan,
        terms.negative & ~scales.nan,
    )


def aligned(terms: Terms, top: Int64, fraction_bits: int) -> Int64:
    """Signed significands in units of ``2**(top - fraction_bits)``, cut toward zero."""
    shift = terms.exponent - top + (fraction_bits - terms.fraction_bits)
    magnitude = np.abs(terms.significand)
    cut = magnitude << np.clip(shift, 0, 63) >> np.clip(-shift, 0, 63)
    return np.where(terms.significand < 0, -cut, cut)


def fused_dot_add(step: FusedDotAdd, terms: Terms, x: Terms) -> Array:
    """`reference.fused_dot_add` for arrays: terms ``(…, k)``, x ``(…)``."""
    fmt = FORMATS[step.result]
    top = np.maximum(terms.exponent.max(-1), x.exponent)
    # All terms zero: any finite exponent gives the same +0.
    top = np.maximum(top, NOWHERE // 2 if step.floor is None else step.floor)
    total = aligned(terms, top[..., None], step.fraction_bits).sum(-1)
    total = total + aligned(x, top, step.fraction_bits)
    codes = round_to_codes(
        fmt,
        total < 0,
        np.abs(total),
        top - step.fraction_bits,
        step.rounding,
        overflow="infinity",
        precision=step.precision,
    )
    codes = np.where(codes == fmt.sign_mask, 0, codes).astype(codes.dtype)
    return _specials(fmt, codes, terms, x)


def _specials(fmt: Format, codes: Array, terms: Terms, x: Terms) -> Array:
    if not any(flags.any() for t in (terms, x) for flags in t[3:]):
        return codes
    assert fmt.infinity is not None and fmt.nan is not None
    positive = terms.positive.any(-1) | x.positive
    negative = terms.negative.any(-1) | x.negative
    nan = terms.nan.any(-1) | x.nan | (positive & negative)
    codes = np.where(positive, fmt.infinity, codes)
    codes = np.where(negative, fmt.infinity | fmt.sign_mask, codes)
    return np.where(nan, fmt.nan, codes).astype(code_type(fmt.bits))
