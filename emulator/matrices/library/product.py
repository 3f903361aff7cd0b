"""Products of matrices of codes in the order of a library, and their epilogues."""

from __future__ import annotations

from functools import partial, reduce
from typing import Any, NamedTuple

import numpy as np

from dtypes import FORMATS, Array, Format, code_type, convert
from emulator.arith import Engine, matmul
from emulator.arith.fast.wide import fused_multiply_add
from emulator.arith.recipes import Arithmetic
from emulator.arith.steps import FmaChain
from emulator.isa.recipe import Recipe
from emulator.matrices.gemm import gemm
from emulator.matrices.library.rules import Order, Rule, Sums
from emulator.targets import Target

ONE_CHAIN = Order()
_FMA = Rule("f32", "f32")
#: NumPy's types of accumulators
_NUMBERS = {"f32": np.float32, "f64": np.float64, "s32": np.int32}


def multiply(
    rule: Rule,
    a: Array,
    b: Array,
    target: Target,
    order: Order = ONE_CHAIN,
    out: str = "f32",
    engine: Engine = "auto",
    recipe: Recipe | None = None,
) -> tuple[str, Array]:
    """The type and the codes of the accumulators of A·B, codes ``(…, m, k)`` and ``(…, k, n)``.

    `out`, the type of the result, matters for orders whose parts are rounded to it; `recipe` stands
    for the arithmetic of the target's floating-point instructions. Raises UnsupportedError where
    the target has no instruction for the types, OperandError for a recipe that does not suit it.
    """
    if order.fma and rule.a != "f64":
        a, b = (_widened(name, "f32", x) for name, x in ((rule.a, a), (rule.b, b)))
        rule = _FMA
    if rule.operands_as:
        a, b = (_rounded(FORMATS[rule.a], FORMATS[rule.operands_as], x) for x in (a, b))
    how = _How(rule, target, out, engine, recipe)
    return how.kind, _sum(how, a, b, order)


class _How(NamedTuple):
    """Settings that all parts of a product share."""

    rule: Rule
    target: Target
    out: str
    engine: Engine
    recipe: Recipe | None

    @property
    def kind(self) -> str:
        """The type of the accumulators."""
        return "s32" if self.rule.a == "s8" else "f32" if self.rule.opcodes else self.rule.a


def _sum(how: _How, a: Array, b: Array, order: Order) -> Array:
    """The accumulators of A·B in an order."""
    parts = _parts(order, a.shape[-1])
    if len(parts) == 1 and order.within is None:
        return _part(how, a, b, order)
    sums = _sums(how, a, b, parts, order)
    if order.narrow:
        fmt, narrow = FORMATS[how.kind], result_codes(how.kind, sums, how.out)
        sums = convert(FORMATS[how.out], fmt, narrow)
    return _total(how.kind, sums, order.sums)


def _sums(how: _How, a: Array, b: Array, parts: list[Array], order: Order) -> Array:
    """The accumulators of every part, on a first axis."""

    def sum_of(a: Array, b: Array) -> Array:
        if order.within is not None:
            return _sum(how, a, b, order.within)
        return _part(how, a, b, order)

    if how.rule.opcodes:
        return np.stack([sum_of(a[..., x], b[..., x, :]) for x in parts])
    # All parts at once, at their places in one array. Where one is shorter, -0 · 0 is added, which
    # changes no number.
    places = np.full((len(parts), max(map(len, parts))), a.shape[-1])
    for row, part in zip(places, parts, strict=True):
        row[: len(part)] = part
    fmt = FORMATS[how.rule.a]
    a = np.concatenate([a, np.full((*a.shape[:-1], 1), fmt.sign_mask, a.dtype)], -1)
    b = np.concatenate([b, np.zeros((*b.shape[:-2], 1, b.shape[-1]), b.dtype)], -2)
    return sum_of(np.moveaxis(a[..., places], -2, 0), np.moveaxis(b[..., places, :], -3, 0))


def _parts(order: Order, k: int) -> list[Array]:
    """The positions along k of each part."""
    positions = np.arange(k)
    if order.shares > 1:
        turns = positions // order.tile % order.shares
        return [turn for x in range(order.shares) if (turn := positions[turns == x]).size]
    size = order.part or max(k, 1)
    return [positions[start : start + size] for start in range(0, max(k, 1), size)]


def _total(kind: str, sums: Array, how: Sums) -> Array:
    """The sum of sums on the first axis."""
    if how == "by halves":
        while len(sums) > 1:
            half = 1 << (len(sums) - 1).bit_length() - 1
            upper = sums[half:]
            sums = np.concatenate(
                [summed(kind, sums[: len(upper)], upper), sums[len(upper) : half]]
            )
        return sums[0]
    if how == "by fours":
        fours = [_total(kind, sums[i::4], "in turn") for i in range(min(4, len(sums)))]
        return _total(kind, np.stack(fours), "in turn")
    return reduce(partial(summed, kind), sums)


def _part(how: _How, a: Array, b: Array, order: Order) -> Array:
    """The accumulators of one chain."""
    short = a.shape[-1] % order.tile if order.tile and order.shares == 1 else 0
    if not short:
        return _chain(how, a, b, None, order)
    first = _chain(how, a[..., :short], b[..., :short, :], None, order)
    if short == a.shape[-1]:
        return first
    return _chain(how, a[..., short:], b[..., short:, :], first, order)


def _rounded(fmt: Format, narrow: Format, codes: Array) -> Array:
    """Codes of `fmt` rounded to nearest even in a type with fewer fraction bits, kept as `fmt`."""
    shift = np.uint32(fmt.mantissa_bits - narrow.mantissa_bits)
    one = np.uint32(1)
    half = (one << (shift - one)) - one
    kept = (codes + half + (codes >> shift & one)) >> shift << shift
    exponents = np.uint32(fmt.code_mask & ~fmt.sign_mask & ~((1 << fmt.mantissa_bits) - 1))
    special = codes & exponents == exponents
    return np.where(special, codes, kept)


def _chain(how: _How, a: Array, b: Array, c: Array | None, order: Order) -> Array:
    rule = how.rule
    ins = rule.instruction(how.target, order.k)
    if ins is not None:
        own = how.recipe if ins.d_type != "s32" else None
        promote = rule.promotion(how.target) if own is None or not own.promote else None
        return gemm(
            a,
            b,
            c,
            instruction=ins,
            target=own or how.target,
            codes=True,
            engine=how.engine,
            k_promote=promote,
            progress=False,
        )
    if order.rounded:
        # Every element is a sum of its own, of products times 1.
        products = _times(rule.a, a[..., :, None, :], np.swapaxes(b, -1, -2)[..., None, :, :])
        one = np.asarray(1, _NUMBERS[rule.a]).view(a.dtype)
        ones = np.broadcast_to(one, (a.shape[-1], 1))
        return _chain(how, products, ones, None, order._replace(rounded=False))[..., 0]
    fmt = FORMATS[rule.a]
    arithmetic = Arithmetic(fmt, fmt, fmt, fmt, (FmaChain(rule.a),))
    columns = np.swapaxes(b, -1, -2)
    start = np.zeros((a.shape[-2], b.shape[-1]), code_type(fmt.bits)) if c is None else c
    return matmul(arithmetic, a, columns, start, engine=how.engine)


def result_codes(kind: str, codes: Array, out: str) -> Array:
    """Accumulators rounded to nearest even in the type of the result."""
    return codes if kind == out else convert(FORMATS[kind], FORMATS[out], codes)


# --- with an addend -------------------------------------------------------------------------------


def multiply_add(
    rule: Rule,
    a: Array,
    b: Array,
    c: Array,
    target: Target,
    order: Order = ONE_CHAIN,
    out: str = "f32",
    *,
    alpha: float = 1,
    beta: float = 1,
    engine: Engine = "auto",
    recipe: Recipe | None = None,
) -> Array:
    """Codes of alpha·A·B + beta·C in the type `out`, which C has, too; as `multiply`."""
    if beta == 0:
        kind, codes = multiply(rule, a, b, target, order, out, engine, recipe)
        return result_codes(kind, scaled(kind, codes, alpha), out)
    if order.addend == "first":
        total = c
        part = order.within or order._replace(part=0, shares=1, addend="sum")
        for x in _parts(order, a.shape[-1]):
            kind, sums = multiply(rule, a[..., x], b[..., x, :], target, part, out, engine, recipe)
            total = result_codes(kind, summed(kind, sums, _widened(out, kind, total)), out)
        return total
    kind, codes = multiply(rule, a, b, target, order, out, engine, recipe)
    return with_addend(kind, codes, c, order, out, alpha, beta)


def with_addend(
    kind: str, codes: Array, c: Array, order: Order, out: str, alpha: float = 1, beta: float = 1
) -> Array:
    """Codes of alpha times accumulators plus beta·C in the type `out`.

    One of the two products is rounded, the other goes into a fused multiply-add: that of beta where
    a kernel of its own sums parts, else that of alpha.
    """
    c = _widened(out, kind, c)
    if order.addend == "rounded":
        codes = _widened(out, kind, result_codes(kind, scaled(kind, codes, alpha), out))
        return result_codes(kind, summed(kind, codes, scaled(kind, c, beta)), out)
    if order.part:
        total = _fused(kind, beta, c, scaled(kind, codes, alpha))
    else:
        total = _fused(kind, alpha, codes, scaled(kind, c, beta))
    return result_codes(kind, total, out)


def _fused(kind: str, factor: float, codes: Array, addend: Array) -> Array:
    """factor·codes + addend, rounded once."""
    if factor == 1:
        return summed(kind, codes, addend)
    fmt = FORMATS[kind]
    number = np.asarray(factor, _NUMBERS[kind]).view(code_type(fmt.bits))
    return fused_multiply_add(fmt, number, codes, addend)


def _widened(source: str, kind: str, codes: Array) -> Array:
    return codes if source == kind else convert(FORMATS[source], FORMATS[kind], codes)


def scaled(kind: str, codes: Array, factor: Any) -> Array:
    """Accumulators times a number, rounded in their type."""
    if kind == "s32" or (np.ndim(factor) == 0 and factor == 1):
        return codes
    numbers = _NUMBERS[kind]
    with np.errstate(all="ignore"):
        return _codes(kind, codes.view(numbers) * np.asarray(factor, numbers))


def _times(kind: str, a: Array, b: Array) -> Array:
    """Products of codes, rounded."""
    with np.errstate(all="ignore"):
        return _codes(kind, a.view(_NUMBERS[kind]) * b.view(_NUMBERS[kind]))


def summed(kind: str, codes: Array, addend: Array) -> Array:
    """Accumulators plus an addend of their type, rounded."""
    numbers = _NUMBERS[kind]
    with np.errstate(all="ignore"):
        return _codes(kind, codes.view(numbers) + addend.view(numbers))


def _codes(kind: str, values: Array) -> Array:
    """Codes of results of the GPU's arithmetic, whose NaN is always the same."""
    fmt = FORMATS[kind]
    codes = values.view(code_type(fmt.bits))
    return np.where(np.isnan(values), codes.dtype.type(fmt.nan or 0), codes)
