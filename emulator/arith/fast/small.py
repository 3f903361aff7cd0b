"""Fused dot-adds of one small matrix in few NumPy calls.

What computes large matrices and batches fast (`fused`, `grouped`) is, for a single instruction,
mostly the overhead of many calls on small arrays. The arithmetic here is the same, in float64,
which holds all of it exactly and more exponents than any of the formats has, or in float32 where
that does; products and the accumulator are rows of one array. Where an element is an infinity or a
NaN, or a result is not ordinary, None comes back instead of a mask.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtypes import FORMATS, Array, Format, code_type
from emulator.arith.fast import factors, grouped
from emulator.arith.recipes import Arithmetic
from emulator.arith.steps import FusedDotAdd

Float64 = NDArray[np.float64]

#: products for which this pays
MOST_PRODUCTS = 1 << 13
#: where the exponent field of a float64 begins, and what its values stand for
_MANTISSA, _BIAS = 52, 1023
_EXPONENTS = np.arange(1 << 11) - _BIAS
#: below the power of every term, and with room for its unit in float64
_NOWHERE = 2.0**-600
#: the same in float32, where an accumulator may be too small for that
_SMALL = 2.0**-100
_MINUS_ZERO = np.uint16(1 << 15)
#: bits of the widest format that has a table: 1 MiB
_TABLE_BITS = 16


class SmallPlan(NamedTuple):
    """A recipe of fused dot-adds, settled for an instruction's k."""

    #: positions of k that each pass takes, ``(passes, positions)``
    order: NDArray[np.intp]
    widen: Format | None
    #: the passes of an instruction start from +0, and the accumulator is added to their result
    adds_c: bool
    #: neighbouring products that are one term
    group: int
    #: the result is f16, rounded to nearest even, else f32 toward zero
    half: bool
    #: bits of a digit: weights, 2**(digit * exponent), are so far apart that the sum of those of a
    #: pass has the exponent, in digits, of the largest
    digit: int
    #: by the exponent field of that sum, 2**exponent of the largest product, which is the floor at
    #: least where products have no scales; of the type that the terms have
    powers: Array
    #: the words of floats of that type: all bits of the exponent
    exponent: np.unsignedinteger[Any]
    #: minus the bits of the largest power: the bits of what scales terms to units
    to_scale: np.unsignedinteger[Any]
    #: bits that a result truncated to the output precision keeps
    mask: np.unsignedinteger[Any]
    #: least power that the alignment uses
    floor: float
    #: the largest power below which a result may be too small for a normal number of f32
    low: float


@lru_cache(maxsize=1024)
def plan(arithmetic: Arithmetic, k: int) -> SmallPlan | None:
    """The plan by which `matmul` and `chain` compute a recipe, conversions of the accumulator
    before and after aside; None for recipes that they cannot compute."""
    fused = factors.plan(arithmetic, k)
    if fused is None and arithmetic.c is FORMATS["f16"] and len(arithmetic.steps) == 1:
        # A step takes any accumulator, but it is the exponents of f16 that its terms have.
        fused = factors.plan(replace(arithmetic, c=arithmetic.d), k)
    if fused is not None:
        formats, scale = [fused.widen or x for x in (arithmetic.a, arithmetic.b)], arithmetic.scale
        fits = scale is None and _fits_float32(fused.step, fused.order.shape[1], formats)
        found = _planned(fused.step, fused.order, scale, fused.widen, fused.adds_c, in_float32=fits)
        # Weights that are too small for normal numbers belong to products below the floor.
        least = sum(fmt.emin for fmt in formats)
        if scale is None and fused.step.floor is not None:
            least = max(least, fused.step.floor)
        return found if found.digit * least > -_BIAS else None
    step = grouped.exact_step(arithmetic, k)
    return None if step is None else _planned(step, np.arange(k)[None], arithmetic.scale)


def _planned(
    step: FusedDotAdd,
    order: NDArray[np.intp],
    scale: Format | None,
    widen: Format | None = None,
    adds_c: bool = False,
    *,
    in_float32: bool = False,
) -> SmallPlan:
    result = FORMATS[step.result]
    digit = order.shape[1].bit_length()
    floor = _NOWHERE if step.floor is None else 2.0**step.floor
    low = 0.0 if step.result == "f16" else 2.0 ** (result.emin + step.fraction_bits)
    bits, mantissa, bias = 64, _MANTISSA, _BIAS
    if in_float32:
        bits, mantissa, bias = 32, 23, 127
        floor, low = max(floor, _SMALL), low and max(low, 2 * _SMALL)
    word = np.dtype(f"u{bits // 8}").type
    cut = mantissa + 1 - (step.precision or result.precision)
    return SmallPlan(
        order,
        widen,
        adds_c,
        group=step.group,
        half=step.result == "f16",
        digit=digit,
        powers=_powers(digit, 0.0 if scale else floor, f"f{bits // 8}"),
        exponent=word((2 * bias + 1) << mantissa),
        to_scale=word((2 * bias + step.fraction_bits) << mantissa),
        mask=word((1 << bits) - (1 << max(cut, 0))),
        floor=floor,
        low=low,
    )


def _fits_float32(step: FusedDotAdd, width: int, formats: Sequence[Format]) -> bool:
    """True if float32 holds all sums of `width` products, and every product that is not zero."""
    largest = width * math.prod(2 - 2.0**-fmt.mantissa_bits for fmt in formats) + 2
    return largest * 2**step.fraction_bits <= 1 << 24 and all(fmt.bias < 32 for fmt in formats)


# --- elements -------------------------------------------------------------------------------------


class WeightedNumbers(NamedTuple):
    """Values of codes, and 2**(digit * exponent) of each as decoded, 0 of a zero: a subnormal has
    the least exponent of its format, or of the one that it is widened to."""

    value: Array
    weight: Float64


def numbers(plan: SmallPlan, fmt: Format, of_all: Float64 | None, codes: Array) -> WeightedNumbers:
    """Those of codes, as the terms of a plan are, from a `table` where there is one."""
    if of_all is None:
        return WeightedNumbers(*_numbers(fmt, plan.widen, plan.digit, codes))
    value, weight = of_all.take(codes, 1)
    return WeightedNumbers(value.astype(plan.powers.dtype, copy=False), weight)


@lru_cache(maxsize=64)
def table(fmt: Format, widen: Format | None = None, digit: int = 1) -> Float64 | None:
    """``(2, codes)``: the numbers of all codes, where these are few enough; with one bit to a
    digit, weights are powers."""
    if fmt.bits > _TABLE_BITS:
        return None
    codes = np.arange(1 << fmt.bits).astype(code_type(fmt.bits))
    return np.stack(_numbers(fmt, widen, digit, codes))


@lru_cache(maxsize=1)
def _powers_of_f16() -> Float64:
    found = table(FORMATS["f16"])
    assert found is not None
    return found[1]


def _numbers(
    fmt: Format, widen: Format | None, digit: int, codes: Array
) -> tuple[Float64, Float64]:
    with np.errstate(invalid="ignore"):  # of NaNs
        value = factors.values(fmt, codes).astype(np.float64)
    fields = value.view(np.int64) >> _MANTISSA & (len(_EXPONENTS) - 1)
    return value, _weights(widen or fmt, digit).take(fields)


@lru_cache(maxsize=64)
def _weights(fmt: Format, digit: int) -> Float64:
    """By the exponent field of a float64, 0 of a zero."""
    with np.errstate(over="ignore"):  # of exponents that no format has
        found = np.ldexp(1.0, digit * np.maximum(_EXPONENTS, fmt.emin))
    found[0], found[-1] = 0, np.nan
    return found


@lru_cache(maxsize=64)
def _powers(digit: int, floor: float, type_: str) -> Array:
    """`SmallPlan.powers`; of a sum that is too small for a normal number, the floor."""
    with np.errstate(over="ignore"):
        found = np.ldexp(1.0, _EXPONENTS // digit)
        found[0], found[-1] = 0, np.nan
        return np.maximum(found, floor).astype(type_)


# --- sums -----------------------------------------------------------------------------------------


def matmul(
    plan: SmallPlan, a_type: Format, a: Array, b_type: Format, b: Array, c: Array
) -> Array | None:
    """Accumulators ``(m, n)`` after all instructions of codes `a` ``(m, K)`` and `b` ``(n, K)``;
    None where one is to be computed otherwise. `c` and the result are float16 or float32."""
    starts = np.arange(0, a.shape[-1], plan.order.size)
    k = (starts[:, None, None] + plan.order).reshape(-1, plan.order.shape[1])
    in_a, in_b = (table(fmt, plan.widen, plan.digit) for fmt in (a_type, b_type))
    rows = numbers(plan, a_type, in_a, a.T[k][:, :, None, :, None])
    columns = numbers(plan, b_type, in_b, b.T[k][:, :, None, None])
    with unwarned():
        d = chain(plan, *products(plan, rows, columns), c[None])
    return None if d is None else d[0]


def unwarned() -> np.errstate:
    """The context for everything below, where operands often show only in the result that they are
    not ordinary."""
    return np.errstate(over="ignore", under="ignore", invalid="ignore")


def products(
    plan: SmallPlan, rows: WeightedNumbers, columns: WeightedNumbers
) -> tuple[Array, Array]:
    """The products that `chain` takes, of all numbers of rows ``(passes, terms, groups, m, 1)``
    with those of columns ``(passes, terms, groups, 1, n)``."""
    of_rows = rows.weight[..., 0].transpose(0, 2, 3, 1)
    tops = largest(plan, of_rows, columns.weight[..., 0, :].swapaxes(1, 2))
    return multiplied(tops, rows.value, columns.value), tops


def multiplied(tops: Array, a: Array, b: Array) -> Array:
    """The terms that `chain` takes, of numbers ``(passes, terms, …)`` that broadcast."""
    terms = np.empty((len(tops), b.shape[1] + 1, *tops.shape[1:]), a.dtype)
    np.multiply(a, b, out=terms[:, :-1])
    return terms


def of_groups(
    plan: SmallPlan, sums: Array, a: WeightedNumbers, b: WeightedNumbers, c: Array
) -> Array | None:
    """`chain` of terms that are sums ``(2, groups, m, n)`` of products and of their magnitudes
    times scales ``(groups, m, 1)`` and ``(groups, 1, n)``."""
    terms = np.empty((1, len(sums[0]) + 1, *c.shape))
    np.multiply(a.value * b.value, sums[0], out=terms[0, :-1])
    powers = a.weight * b.weight
    powers *= sums[1] != 0  # products that cancel count
    tops = np.maximum.reduce(powers, 0, keepdims=True, initial=plan.floor)
    return chain(plan, terms, tops, c)


def largest(plan: SmallPlan, a: Float64, b: Float64) -> Array:
    """2**exponent of the largest products, from the weights of matrices ``(…, m, terms)`` and
    ``(…, terms, n)``; NaN of what is infinite or none, or too large."""
    return plan.powers.take(np.matmul(a, b).view(np.int64) >> _MANTISSA)


def chain(plan: SmallPlan, terms: Array, tops: Array, c: Array) -> Array | None:
    """Accumulators after all passes; None where one is to be computed otherwise.

    `terms` ``(passes, products + 1, …)`` are the products, and room for the accumulator, `tops`
    ``(passes, …)`` 2**exponent of the largest of them or the floor; both are changed. `c` and the
    result are float16 or float32.
    """
    passes, x = len(plan.order), c
    for i, (values, top) in enumerate(zip(terms, tops, strict=True)):
        if plan.adds_c and i % passes == 0:
            c, x = x, np.zeros_like(x)
        found = _sum(plan, values, top, x)
        if found is None:
            return None
        x = found
        if plan.adds_c and i % passes == passes - 1:
            x = x + c
    return x if _is_finite(x) else None


def _sum(plan: SmallPlan, values: Array, top: Array, x: Array) -> Array | None:
    """One fused dot-add of the terms and `x`, which becomes the last of them."""
    word, own = plan.mask.dtype, values[-1]
    own[...] = x
    if x.dtype == np.float16:
        power = _powers_of_f16().take(x.view(np.uint16))
    else:
        power = (own.view(word) & plan.exponent).view(own.dtype)
    np.maximum(top, power, out=top, casting="same_kind")
    scale = (plan.to_scale - top.view(word)).view(own.dtype)
    values *= scale
    np.trunc(values, out=values)
    # From +0 on, so that −0 never is the sum.
    total = np.add.reduce(values, 0, initial=0.0)
    total /= scale
    # Of a subnormal, accumulator or result, the exponent is another than here; where the largest
    # is a NaN, the sum says nothing.
    if not np.minimum.reduce(top, None) >= plan.low and (
        (np.isnan(top) | (top < plan.low) & ((x != 0) | (total != 0))).any()
    ):
        return None
    if plan.half:
        codes = total.astype(np.float16).view(np.uint16)
        codes *= codes != _MINUS_ZERO  # what is rounded to a zero is +0, too
        return codes.view(np.float16)
    return (total.view(word) & plan.mask).view(own.dtype).astype(np.float32, copy=False)


# --- operations of IEEE 754, one by one -----------------------------------------------------------


def fma_chain(a: Array, b: Array, c: Array) -> Array | None:
    """`FmaChain` of f16 in f32 from +0, to which `c` is added: of float16 ``(k, …)`` that broadcast
    to `c`; None where a result is infinite or a NaN."""
    d = np.zeros(c.shape, np.float32)
    # float32 holds all products of two float16: no fma rounds anything but its sum.
    for product in a.astype(np.float32) * b:
        d += product
    d += c
    return d if _is_finite(d) else None


def pair_sums(a: Array, b: Array, c: Array) -> Array | None:
    """`PairSums` of f16 in f32, and f16 of that; otherwise as `fma_chain`."""
    products, x = a.astype(np.float32) * b, c.astype(np.float32)
    for pair in products[::2] + products[1::2]:
        x += pair
    d = x.astype(np.float16)
    return d if _is_finite(d) else None


def _is_finite(numbers: Array) -> bool:
    return bool(np.logical_and.reduce(np.isfinite(numbers), None))
