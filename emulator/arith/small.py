"""Fused dot-adds of one small matrix in few NumPy calls.

What computes large matrices and batches fast (`fused`, `grouped`) is, for a single instruction,
mostly the overhead of many calls on small arrays. The arithmetic here is the same, in float64,
which holds all of it exactly and more exponents than any of the formats has; products and the
accumulator are rows of one array. Where an element is an infinity or a NaN, or a result is not
ordinary, None comes back instead of a mask.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtypes import FORMATS, Array, Format, code_type
from emulator.arith import error_free, factors, grouped
from emulator.arith.recipes import Arithmetic
from emulator.arith.steps import FusedDotAdd

Float64 = NDArray[np.float64]

#: products for which this pays
MOST_PRODUCTS = 1 << 13
#: the exponent field of a float64, and where it begins
_EXPONENT, _MANTISSA, _BIAS = np.int64(0x7FF << 52), 52, 1023
#: what that stands for
_EXPONENTS = np.arange(1 << 11) - _BIAS
#: below the power of every term, and with room for its unit in float64
_NOWHERE = 2.0**-600
#: bits of the widest format that has a table: 1 MiB
_TABLE_BITS = 16


class Plan(NamedTuple):
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
    #: least where products have no scales
    powers: Float64
    #: minus the bits of the largest power: the bits of what scales terms to units
    to_scale: np.uint64
    #: least power that the alignment uses
    floor: float
    #: the largest power below which a result may be too small for a normal number
    low: float
    #: bits of a float64 that a result truncated to the output precision keeps
    mask: np.int64


@lru_cache(maxsize=1024)
def plan(arithmetic: Arithmetic, k: int) -> Plan | None:
    """How `matmul` and `chain` compute a recipe, conversions of the accumulator before and after
    aside; None for recipes that they cannot compute."""
    made = factors.plan(arithmetic, k)
    if made is None and arithmetic.c is FORMATS["f16"] and len(arithmetic.steps) == 1:
        # A step takes any accumulator, but it is the exponents of f16 that its terms have.
        made = factors.plan(replace(arithmetic, c=arithmetic.d), k)
    if made is not None:
        found = _planned(made.step, made.order, arithmetic.scale, made.widen, made.adds_c)
        least = sum((made.widen or x).emin for x in (arithmetic.a, arithmetic.b))
        if arithmetic.scale is None and made.step.floor is not None:
            least = max(least, made.step.floor)
        return found if found.digit * least > -_BIAS else None
    step = grouped.exact_step(arithmetic, k)
    return None if step is None else _planned(step, np.arange(k)[None], arithmetic.scale)


def _planned(
    step: FusedDotAdd,
    order: NDArray[np.intp],
    scale: Format | None,
    widen: Format | None = None,
    adds_c: bool = False,
) -> Plan:
    result = FORMATS[step.result]
    digit = order.shape[1].bit_length()
    floor = _NOWHERE if step.floor is None else 2.0**step.floor
    return Plan(
        order, widen, adds_c, step.group, step.result == "f16",
        digit, _powers(digit, 0.0 if scale else floor),
        to_scale=np.uint64((2 * _BIAS + step.fraction_bits) << _MANTISSA),
        floor=floor,
        low=2.0 ** (result.emin + step.fraction_bits),
        mask=np.int64(-1 << (53 - (step.precision or result.precision))),
    )  # fmt: skip


# --- elements -------------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def _powers(digit: int, floor: float) -> Float64:
    """`Plan.powers`; of a sum that is too small for a normal number, the floor."""
    found = np.ldexp(1.0, _EXPONENTS // digit)
    found[0], found[-1] = 0, np.nan
    return np.maximum(found, floor)


@lru_cache(maxsize=64)
def _weights(fmt: Format, digit: int) -> Float64:
    """By the exponent field of a float64, 0 of a zero."""
    with np.errstate(over="ignore"):  # of exponents that no format has
        found = np.ldexp(1.0, digit * np.maximum(_EXPONENTS, fmt.emin))
    found[0], found[-1] = 0, np.nan
    return found


def numbers(fmt: Format, widen: Format | None, digit: int, codes: Array) -> Float64:
    """Values of codes, and 2**(digit * exponent) of each as decoded (a subnormal has the least
    exponent of the format, or of `widen`, if that is given), 0 for a zero: ``(2, …)``."""
    if fmt.bits > _TABLE_BITS:
        return _numbers(fmt, widen, digit, codes)
    return _table(fmt, widen, digit).take(codes, 1)


@lru_cache(maxsize=16)
def _table(fmt: Format, widen: Format | None, digit: int) -> Float64:
    return _numbers(fmt, widen, digit, np.arange(1 << fmt.bits).astype(code_type(fmt.bits)))


def _numbers(fmt: Format, widen: Format | None, digit: int, codes: Array) -> Float64:
    found = np.empty((2, *codes.shape))
    with np.errstate(invalid="ignore"):  # of NaNs
        found[0] = factors.values(fmt, codes)
    field = (found[0].view(np.int64) & _EXPONENT) >> _MANTISSA
    found[1] = _weights(widen or fmt, digit).take(field)
    return found


# --- sums -----------------------------------------------------------------------------------------


def matmul(
    made: Plan, a_type: Format, a: Array, b_type: Format, b: Array, c: Array
) -> Array | None:
    """Accumulators ``(m, n)`` after all instructions of codes `a` ``(m, K)`` and `b` ``(n, K)``;
    None where one is to be computed otherwise. `c` and the result are float16 or float32."""
    starts = np.arange(0, a.shape[-1], made.order.size)
    taken = (starts[:, None] + made.order.reshape(-1)).reshape(-1)
    rows = numbers(a_type, made.widen, made.digit, a.take(taken, -1).T[:, None, :, None])
    columns = numbers(b_type, made.widen, made.digit, b.take(taken, -1).T[:, None, None, :])
    with unwarned():
        d = chain(made, *products(made, rows, columns), c[None])
    return None if d is None else d[0]


def unwarned() -> np.errstate:
    """What all below is to be called in: much of what is not ordinary shows only in the result."""
    return np.errstate(over="ignore", under="ignore", invalid="ignore")


def products(made: Plan, rows: Float64, columns: Float64) -> tuple[Float64, Float64]:
    """What `chain` takes, of all numbers of rows ``(2, terms, groups, m, 1)`` with those of columns
    ``(2, terms, groups, 1, n)``."""
    width = made.order.shape[1]
    rows = rows.reshape(2, -1, width, *rows.shape[2:])
    columns = columns.reshape(2, -1, width, *columns.shape[2:])
    of_rows = rows[1, ..., 0].transpose(0, 2, 3, 1)
    tops = largest(made, of_rows, columns[1, ..., 0, :].swapaxes(1, 2))
    terms = np.empty((len(tops), width + 1, *tops.shape[1:]))
    np.multiply(rows[0], columns[0], out=terms[:, :-1])
    return terms, tops


def with_rows(a: Float64, b: Float64) -> Float64:
    """The terms that `chain` takes, of numbers ``(passes, …, m)`` of A that meet rows of B
    ``(passes, …, m, n)`` of their own."""
    b = b.reshape(len(b), -1, *b.shape[-2:])
    terms = np.empty((len(b), b.shape[1] + 1, *b.shape[2:]))
    np.multiply(a.reshape(*b.shape[:3], 1), b, out=terms[:, :-1])
    return terms


def of_groups(made: Plan, sums: Float64, a: Float64, b: Float64, c: Array) -> Array | None:
    """`chain` of terms that are sums ``(2, groups, m, n)`` of products and of their magnitudes
    times scales ``(2, groups, m, 1)`` and ``(2, groups, 1, n)``."""
    terms = np.empty((1, len(sums[0]) + 1, *c.shape))
    scales = a * b
    np.multiply(scales[0], sums[0], out=terms[0, :-1])
    scales[1] *= sums[1] != 0  # products that cancel count
    tops = np.maximum.reduce(scales[1], 0, keepdims=True, initial=made.floor)
    return chain(made, terms, tops, c)


def largest(made: Plan, a: Float64, b: Float64) -> Float64:
    """2**exponent of the largest products, from the weights of matrices ``(…, m, terms)`` and
    ``(…, terms, n)``; NaN of what is infinite or none, or too large."""
    return made.powers.take(np.matmul(a, b).view(np.int64) >> _MANTISSA)


def chain(made: Plan, terms: Float64, tops: Float64, c: Array) -> Array | None:
    """Accumulators after all passes; None where one is to be computed otherwise.

    `terms` ``(passes, products + 1, …)`` are the products, and room for the accumulator, `tops`
    ``(passes, …)`` 2**exponent of the largest of them or the floor; both are changed. `c` and the
    result are float16 or float32.
    """
    passes, x = len(made.order), c
    for i, (values, top) in enumerate(zip(terms, tops, strict=True)):
        if made.adds_c and i % passes == 0:
            c, x = x, np.zeros_like(x)
        found = _sum(made, values, top, x)
        if found is None:
            return None
        x = found
        if made.adds_c and i % passes == passes - 1:
            x = x + c
    return x if _is_finite(x) else None


def _sum(made: Plan, values: Float64, top: Float64, x: Array) -> Array | None:
    """One fused dot-add of the terms and `x`, which becomes the last of them."""
    if x.dtype == np.float16:
        values[-1], own = _table(FORMATS["f16"], None, 1).take(x.view(np.uint16), 1)
    else:
        values[-1] = x
        own = (values[-1].view(np.int64) & _EXPONENT).view(np.float64)
    np.maximum(top, own, out=top)
    scale = (made.to_scale - top.view(np.uint64)).view(np.float64)
    values *= scale
    np.trunc(values, out=values)
    # From +0 on, so that −0 never is the sum.
    total = np.add.reduce(values, 0, initial=0.0)
    total /= scale
    if made.half:
        result: NDArray[Any] = total.astype(np.float16)
        result += np.float16(0)  # what is rounded to a zero is +0, too
        return result
    # Of a subnormal, accumulator or result, the exponent is another than here.
    if np.minimum.reduce(top, None) < made.low and (
        ((top < made.low) & ((x != 0) | (total != 0))).any()
    ):
        return None
    return (total.view(np.int64) & made.mask).view(np.float64).astype(np.float32)


# --- operations of IEEE 754, one by one -----------------------------------------------------------

#: the bits that a float64 has more than a float32, and what they are in the middle between two
_MORE, _MIDDLE = np.int64((1 << 29) - 1), np.int64(1 << 28)


def fma_chain(a: Array, b: Array, c: Array) -> Array | None:
    """`FmaChain` of f16 in f32 from +0, to which `c` is added: of numbers ``(k, …)`` that broadcast
    to `c`; None where a result is infinite, a NaN or to be computed otherwise."""
    products = a.astype(np.float64) * b
    sums, x = np.empty_like(products), np.zeros((len(a) + 1, *c.shape), np.float32)
    for i, product in enumerate(products):
        np.add(product, x[i], out=sums[i])
        x[i + 1] = sums[i]
    d = x[-1] + c
    return d if _are_nearest(sums, products, x[:-1]) and _is_finite(d) else None


def pair_sums(a: Array, b: Array, c: Array) -> Array | None:
    """`PairSums` of f16 in f32, and f16 of that; otherwise as `fma_chain`."""
    products, x = a.astype(np.float64) * b, c.astype(np.float32)
    sums = products[::2] + products[1::2]
    for pair in sums.astype(np.float32):
        x += pair
    d = x.astype(np.float16)
    return d if _are_nearest(sums, products[::2], products[1::2]) and _is_finite(d) else None


def _are_nearest(sums: Float64, x: Array, y: Array) -> bool:
    """Whether the float32 nearest to `sums`, rounded, is that of `x` + `y`: it may be another only
    where the rounded one is the middle between two."""
    middle = (sums.view(np.int64) & _MORE) == _MIDDLE
    if not np.logical_or.reduce(middle, None):
        return True
    return not (middle & (error_free.two_sum(x, y)[1] != 0)).any()


def _is_finite(numbers: Array) -> bool:
    return bool(np.logical_and.reduce(np.isfinite(numbers), None))
