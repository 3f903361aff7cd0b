"""Fused dot-adds in NumPy, in floating point: what `steps.fused_dot_add` says in integers.

Products are exact in float64, which also has more exponents than any of the formats, and often in
float32. A term times a power of two, truncated to an integer, is the aligned term; sums of those
are exact; one rounding ends it. The largest exponent of many products comes from one product of
matrices: each element has a weight, 2**(digit * exponent), and the exponent of a sum of products of
weights is, in digits, that of the largest product.

Marks come back with results: where an element is an infinity or a NaN, or a result is not finite,
or float32 is too small for it, the number means nothing, and `vector` must be asked instead.

The arithmetic stands in four other places, each for a reason. `steps.fused_dot_add` has it twice:
in integers, the specification, and over int64 arrays, for all recipes and all operands, several
times slower than this. In machine code `kernels.sums` computes any operands, and two texts compute
ordinary ones, with the steps that `kernels.alignment` has: `kernels.ordinary` for registers of
warps, where the largest exponent is a maximum of products of powers of two, and `fused_code` for
tiles of large matrices, where it is found in lanes of 8 bits, 64 at a time. Both add in int32,
which NumPy is slow at.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtypes import FORMATS, Array, Format, code_type, decode_values
from emulator.arith.arrangement import largest_product
from emulator.arith.fast import factors
from emulator.arith.fast.factors import Bool, Side
from emulator.arith.recipes import Arithmetic
from emulator.arith.steps import FusedDotAdd

Float64 = NDArray[np.float64]

#: terms held at a time: a few arrays of them fit a cache
_TERMS = 1 << 17
#: terms as which a group counts, whose scales are held, too
_GROUP = 4
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


class FloatPlan(NamedTuple):
    """A recipe of fused dot-adds, settled for an instruction's k."""

    #: the format of the accumulator between steps
    result: Format
    #: formats that the accumulator is converted to before, and the result after
    before: Format | None
    after: Format | None
    #: positions of k that each pass takes, ``(passes, positions)``
    order: NDArray[np.intp]
    #: the passes take k as it comes
    in_order: bool
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
    exponent: np.uint32 | np.uint64
    #: minus the bits of the largest power: the bits of what scales terms to units
    to_scale: np.uint32 | np.uint64
    #: bits that a result truncated to the output precision keeps
    mask: np.uint32 | np.uint64
    #: least power that the alignment uses
    floor: float
    #: the largest power below which a result may be too small for a normal number of f32
    low: float
    #: of such a result, its least power and its unit
    least: float
    unit: float


@lru_cache(maxsize=1024)
def plan(arithmetic: Arithmetic, k: int) -> FloatPlan | None:
    """The plan by which a recipe is computed here; None for recipes that floats cannot compute."""
    step = exact_in_groups(arithmetic, k)
    if step is not None:
        return _planned(step, np.arange(k)[None], arithmetic.scale)
    fused = factors.plan(arithmetic, k)
    if fused is None and arithmetic.c is FORMATS["f16"] and len(arithmetic.steps) == 1:
        # A step takes any accumulator, but it is the exponents of f16 that its terms have.
        fused = factors.plan(replace(arithmetic, c=arithmetic.d), k)
    if fused is None:
        return None
    formats, scale = [fused.widen or x for x in (arithmetic.a, arithmetic.b)], arithmetic.scale
    fits = scale is None and _fits_float32(fused.step, fused.order.shape[1], formats)
    found = _planned(fused.step, fused.order, scale, in_float32=fits)
    # Weights that are too small for normal numbers belong to products below the floor.
    least = sum(fmt.emin for fmt in formats)
    if scale is None and fused.step.floor is not None:
        least = max(least, fused.step.floor)
    if found.digit * least <= -_BIAS:
        return None
    return found._replace(
        widen=fused.widen, adds_c=fused.adds_c, before=fused.before, after=fused.after
    )


def _planned(
    step: FusedDotAdd, order: NDArray[np.intp], scale: Format | None, *, in_float32: bool = False
) -> FloatPlan:
    result = FORMATS[step.result]
    digit = order.shape[1].bit_length()
    floor = _NOWHERE if step.floor is None else 2.0**step.floor
    low = 0.0 if step.result == "f16" else 2.0 ** (result.emin + step.fraction_bits)
    bits, mantissa, bias = 64, _MANTISSA, _BIAS
    if in_float32:
        bits, mantissa, bias = 32, 23, 127
        floor, low = max(floor, _SMALL), low and max(low, 2 * _SMALL)
    word = np.uint32 if in_float32 else np.uint64
    cut = mantissa + 1 - (step.precision or result.precision)
    return FloatPlan(
        result,
        before=None,
        after=None,
        order=order,
        in_order=bool((order.ravel() == np.arange(order.size)).all()),
        widen=None,
        adds_c=False,
        group=step.group,
        half=step.result == "f16",
        digit=digit,
        powers=_powers(digit, 0.0 if scale else floor, f"f{bits // 8}"),
        exponent=word((2 * bias + 1) << mantissa),
        to_scale=word((2 * bias + step.fraction_bits) << mantissa),
        mask=word((1 << bits) - (1 << max(cut, 0))),
        floor=floor,
        low=low,
        least=2.0**result.emin,
        unit=2.0 ** (result.emin + 1 - (step.precision or result.precision)),
    )


@lru_cache(maxsize=256)
def exact_in_groups(arithmetic: Arithmetic, k: int) -> FusedDotAdd | None:
    """The only step of a recipe whose products are first added in groups (fp4 with scales), if
    float64 holds all that it adds: groups in units of their least product, in any order, and
    truncated terms in units of the alignment. None for other recipes."""
    step, scale, (a, b) = arithmetic.steps[0], arithmetic.scale, (arithmetic.a, arithmetic.b)
    if scale is None or len(arithmetic.steps) > 1 or not isinstance(step, FusedDotAdd):
        return None
    if arithmetic.c_shift or k % step.group or len(step.blocks(k)) > 1:
        return None
    if not 1 < step.group <= 64:
        return None
    f32 = arithmetic.c.name == step.result == "f32" and step.rounding == "rz"
    finite = a.specials == b.specials == "none" and scale.infinity is None and scale.bits <= 8
    if not f32 or not finite:
        return None
    # A significand, of the two scales or of the accumulator, is below 2. Scales of 8 bits add fewer
    # bits to those of a group than float64 has left.
    units = step.group * _largest(a) / _least(a) * _largest(b) / _least(b)
    total = (k * _largest(a) * _largest(b) * 4 + 2) * 2.0**step.fraction_bits
    return step if units <= 2**24 and total <= 2**53 else None


def _largest(fmt: Format) -> float:
    return float(decode_values(fmt, np.array([fmt.max_finite]))[0])


def _least(fmt: Format) -> float:
    return 2.0 ** (fmt.emin - fmt.mantissa_bits)


def _fits_float32(step: FusedDotAdd, width: int, formats: Sequence[Format]) -> bool:
    """True if float32 holds all sums of `width` products, and every product that is not zero."""
    largest = width * largest_product(formats) + 2
    return largest * 2**step.fraction_bits <= 1 << 24 and all(fmt.bias < 32 for fmt in formats)


# --- elements -------------------------------------------------------------------------------------


class WeightedNumbers(NamedTuple):
    """Values of codes, and 2**(digit * exponent) of each as decoded, 0 of a zero: a subnormal has
    the least exponent of its format, or of the one that it is widened to."""

    value: Array
    weight: Float64


def numbers(plan: FloatPlan, fmt: Format, of_all: Float64 | None, codes: Array) -> WeightedNumbers:
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
    """`FloatPlan.powers`; of a sum that is too small for a normal number, the floor."""
    with np.errstate(over="ignore"):
        found = np.ldexp(1.0, _EXPONENTS // digit)
        found[0], found[-1] = 0, np.nan
        return np.maximum(found, floor).astype(type_)


# --- sums -----------------------------------------------------------------------------------------


def unwarned() -> np.errstate:
    """The context for everything below, where operands often show only in the result that they are
    not ordinary."""
    return np.errstate(over="ignore", under="ignore", invalid="ignore")


def products(
    plan: FloatPlan, rows: WeightedNumbers, columns: WeightedNumbers
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


def in_groups(
    plan: FloatPlan, sums: Array, live: Array, value: Array, power: Array, shape: tuple[int, ...]
) -> tuple[Array, Array]:
    """The terms ``(passes, groups + 1, *shape)`` that `chain` takes, and their largest powers: of
    sums of groups ``(passes, groups, …)``, marks of those that have a product that is not zero, and
    the products of scales and of their powers."""
    terms = np.empty((len(sums), sums.shape[1] + 1, *shape))
    np.multiply(sums, value, out=terms[:, :-1])
    # Products that cancel count.
    return terms, np.maximum.reduce(live * power, 1, initial=plan.floor)


def largest(plan: FloatPlan, a: Float64, b: Float64) -> Array:
    """2**exponent of the largest products, from the weights of matrices ``(…, m, terms)`` and
    ``(…, terms, n)``; NaN of what is infinite or none, or too large."""
    return plan.powers.take(np.matmul(a, b).view(np.int64) >> _MANTISSA)


def chain(
    plan: FloatPlan, passes: Iterable[tuple[Array, Array]], c: Array
) -> tuple[Array, Bool | None]:
    """Accumulators after all passes, and where they are to be computed otherwise; None: nowhere.

    Each pass has its terms ``(products + 1, …)``, with room for the accumulator, and 2**exponent
    ``(…)`` of the largest of them or the floor; both are changed. `c` and the result are float16 or
    float32.
    """
    count, x = len(plan.order), c
    odd: Bool | None = None
    for i, (values, top) in enumerate(passes):
        if plan.adds_c and i % count == 0:
            c, x = x, np.zeros_like(x)
        x, small = _sum(plan, values, top, x)
        if small is not None:
            odd = small if odd is None else odd | small
        if plan.adds_c and i % count == count - 1:
            x = x + c
    finite = np.isfinite(x)
    if not np.logical_and.reduce(finite, None):
        odd = ~finite if odd is None else odd | ~finite
    return x, odd


def _sum(plan: FloatPlan, values: Array, top: Array, x: Array) -> tuple[Array, Bool | None]:
    """One fused dot-add of the terms and `x`, which becomes the last of them; where it does not
    hold, though it may be finite."""
    word, own = plan.mask.dtype, values[-1]
    own[...] = x
    if x.dtype == np.float16:
        power = _powers_of_f16().take(x.view(np.uint16))
    else:
        power = (own.view(word) & plan.exponent).view(own.dtype)
    np.maximum(top, power, out=top, casting="same_kind")
    is_small, odd = not np.minimum.reduce(top, None) >= plan.low, None
    is_exact = word == np.uint64 and not plan.half
    if is_small and is_exact:
        # An accumulator that is subnormal in its format has the least exponent there.
        np.maximum(top, (x != 0) * plan.least, out=top)
    scale = (plan.to_scale - top.view(word)).view(own.dtype)
    values *= scale
    np.trunc(values, out=values)
    # From +0 on, so that −0 never is the sum.
    total = np.add.reduce(values, 0, initial=0.0)
    total /= scale
    if is_small:
        # Where the largest is a NaN, the sum says nothing.
        odd = np.isnan(top)
        if is_exact:
            total = np.trunc(total / plan.unit) * plan.unit + 0.0
        else:
            odd |= (top < plan.low) & ((x != 0) | (total != 0))
        odd = odd if odd.any() else None
    if plan.half:
        codes = total.astype(np.float16).view(np.uint16)
        codes *= codes != _MINUS_ZERO  # what is rounded to a zero is +0, too
        return codes.view(np.float16), odd
    return (total.view(word) & plan.mask).view(own.dtype).astype(np.float32, copy=False), odd


# --- matrices -------------------------------------------------------------------------------------


class _Matrix(NamedTuple):
    """One side of the products, by passes; a chunk is what has one scale, or a group."""

    #: ``(passes, chunks, t, rows, terms)``
    value: Array
    #: their weights; of groups ``(passes, chunks, t, rows)``, a bit for each that is not zero
    weight: Array
    #: scales ``(passes, chunks, t, rows)``; of single products, the values have them already
    scale: WeightedNumbers | None


def matmul(
    plan: FloatPlan, left: Side, right: Side, scale: Format | None, c: Array
) -> tuple[Array, Bool]:
    """Accumulators ``(t, m, n)`` after all instructions, and where they are to be computed
    otherwise. Codes of sides are ``(t, rows, K)``, a batch axis of length 1 is shared; `c` and the
    result are float16 or float32."""
    with unwarned():
        a, b = (_matrix(plan, *side, scale) for side in (left, right))
        batch, (m, n) = max(len(left[1]), len(right[1]), len(c)), c.shape[-2:]
        if a.scale is not None and b.scale is not None:
            batch = max(batch, a.scale.value.shape[2], b.scale.value.shape[2])
        if len(c) < batch:
            c = np.broadcast_to(c, (batch, m, n))
        # The columns of products lie beside each other.
        columns = np.ascontiguousarray(b.value.transpose(0, 1, 4, 2, 3))
        rows = max(1, _TERMS // (batch * n * _terms(plan)))
        if rows >= m:
            d, odd = chain(plan, _passes(plan, a, b, columns, c.shape), c)
            return d, np.zeros((1, 1, 1), np.bool_) if odd is None else odd
        d, bad = np.empty(c.shape, f"f{plan.result.bits // 8}"), np.zeros(c.shape, np.bool_)
        for start in range(0, m, rows):
            part = slice(start, start + rows)
            scales = a.scale and WeightedNumbers(*(x[..., part] for x in a.scale))
            cut = _Matrix(a.value[:, :, :, part], a.weight[:, :, :, part], scales)
            x = c[:, part]
            d[:, part], odd = chain(plan, _passes(plan, cut, b, columns, x.shape), x)
            if odd is not None:
                bad[:, part] = odd
    return d, bad


def _terms(plan: FloatPlan) -> int:
    """Terms as which those of a pass count."""
    width = plan.order.shape[1]
    return width if plan.group == 1 else width // plan.group * _GROUP


def _passes(
    plan: FloatPlan, a: _Matrix, b: _Matrix, columns: Array, shape: tuple[int, ...]
) -> Iterator[tuple[Array, Array]]:
    """The passes that `chain` takes, as many at once as there is room for."""
    passes, chunks, _, _, width = a.value.shape
    at_once = min(passes, max(1, _TERMS // (_terms(plan) * math.prod(shape))))
    room = np.empty((at_once, chunks * width + 1, *shape), plan.powers.dtype)
    for start in range(0, passes, at_once):
        part = slice(start, start + at_once)
        if a.scale is not None and b.scale is not None:
            value, power = (
                x[part, ..., None] * y[part, ..., None, :]
                for x, y in zip(a.scale, b.scale, strict=True)
            )
        if plan.group > 1:
            sums = np.matmul(a.value[part], b.value[part].swapaxes(-1, -2))
            live = (a.weight[part, ..., None] & b.weight[part, ..., None, :]) != 0
            terms, top = in_groups(plan, sums, live, value, power, shape)
        else:
            rows = a.value[part].transpose(0, 1, 4, 2, 3)[..., None]
            terms = room[: passes - start]
            products = terms[:, :-1].reshape(-1, chunks, width, *shape)
            np.multiply(rows, columns[part, ..., None, :], out=products)
            tops = largest(plan, a.weight[part], b.weight[part].swapaxes(-1, -2))
            top = tops[:, 0]
            if a.scale is not None:
                top = np.maximum.reduce(tops * power, 1, initial=plan.floor)
        if top.shape[1:] != shape:
            top = np.array(np.broadcast_to(top, (len(top), *shape)))
        yield from zip(terms, top, strict=True)


def _matrix(
    plan: FloatPlan, fmt: Format, codes: Array, scales: Array | None, scale: Format | None
) -> _Matrix:
    """Codes ``(t, rows, instructions * k)`` and scales ``(t, rows, V)``."""
    (*lead, total), (_, width) = codes.shape, plan.order.shape
    k, count, by = plan.order.size, 1, None
    if scales is not None:
        assert scale is not None and width == k
        count = k // plan.group if plan.group > 1 else scales.shape[-1] * k // total
        chunk = np.arange(0, total, k // count) * scales.shape[-1] // total
        found = numbers(plan, scale, table(scale), scales.take(chunk, -1))
        by = WeightedNumbers(
            *(
                np.ascontiguousarray(x.reshape(*x.shape[:2], -1, count).transpose(2, 3, 0, 1))
                for x in found
            )
        )
    if not plan.in_order:
        order = plan.order
        if total > k:
            order = np.arange(0, total, k)[:, None, None] + order
        codes = codes.take(order.ravel(), -1)
    codes = codes.reshape(*lead, -1, count, width // count).transpose(2, 3, 0, 1, 4)
    if plan.group > 1:
        value = _values(fmt).take(codes)
        return _Matrix(value, _bits(value != 0), by)
    value, weight = numbers(plan, fmt, table(fmt, plan.widen, plan.digit), codes)
    if by is not None:
        value = value * by.value[..., None]
    return _Matrix(value, weight, by)


@lru_cache(maxsize=64)
def _values(fmt: Format) -> NDArray[np.float32]:
    """The values of all codes of a format of groups."""
    found = table(fmt)
    assert found is not None
    return found[0].astype(np.float32)


def _bits(flags: Bool) -> Array:
    """A word for each group of flags ``(…, group)``, a bit for each of them."""
    bytes_ = np.packbits(flags, -1, "little")
    return bytes_.view(f"u{bytes_.shape[-1]}")[..., 0]
