"""Products of matrices of codes in the order of a library, and their epilogues."""

from __future__ import annotations

from typing import Any

import numpy as np

from dtypes import FORMATS, Array, Format, code_type, convert
from emulator.arith import Engine, matmul
from emulator.arith.recipes import Arithmetic
from emulator.arith.steps import FmaChain
from emulator.arith.wide import add, fused_multiply_add
from emulator.isa.recipe import Recipe
from emulator.matrices.gemm import gemm
from emulator.matrices.library.rules import Order, Rule
from emulator.targets import Target

ONE_CHAIN = Order()
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
    if order.fma:
        rule = Rule(rule.a, rule.b)
    if rule.operands_as:
        a, b = (_rounded(FORMATS[rule.a], FORMATS[rule.operands_as], x) for x in (a, b))
    total = None
    for where in _parts(order, a.shape[-1]):
        kind, sums = _part(rule, a[..., where], b[..., where, :], target, order, engine, recipe)
        if order.narrow:
            sums = convert(FORMATS[out], FORMATS[kind], result_codes(kind, sums, out))
        total = sums if total is None else add(FORMATS[kind], total, sums)
    assert total is not None
    return kind, total


def _parts(order: Order, k: int) -> list[Any]:
    """The positions along k of each part."""
    if order.shares > 1:
        turns = np.arange(k) // order.tile % order.shares
        return [turn for x in range(order.shares) if (turn := np.flatnonzero(turns == x)).size]
    size = order.part or max(k, 1)
    return [slice(start, start + size) for start in range(0, max(k, 1), size)]


def _part(
    rule: Rule, a: Array, b: Array, target: Target, order: Order, engine: Engine,
    recipe: Recipe | None,
) -> tuple[str, Array]:  # fmt: skip
    """The accumulators of one part."""

    def chain(a: Array, b: Array, c: Array | None) -> tuple[str, Array]:
        return _chain(rule, a, b, c, target, order.k, engine, recipe)

    short = a.shape[-1] % order.tile if order.tile and order.shares == 1 else 0
    if not short:
        return chain(a, b, None)
    kind, first = chain(a[..., :short], b[..., :short, :], None)
    if short == a.shape[-1]:
        return kind, first
    return chain(a[..., short:], b[..., short:, :], first)


def _rounded(fmt: Format, narrow: Format, codes: Array) -> Array:
    """Codes of `fmt` rounded to nearest even in a type with fewer fraction bits, kept as `fmt`."""
    shift = np.uint32(fmt.mantissa_bits - narrow.mantissa_bits)
    one = np.uint32(1)
    half = (one << (shift - one)) - one
    kept = (codes + half + (codes >> shift & one)) >> shift << shift
    exponents = np.uint32(fmt.code_mask & ~fmt.sign_mask & ~((1 << fmt.mantissa_bits) - 1))
    special = codes & exponents == exponents
    return np.where(special, codes, kept)


def _chain(
    rule: Rule, a: Array, b: Array, c: Array | None, target: Target, k: int, engine: Engine,
    recipe: Recipe | None,
) -> tuple[str, Array]:  # fmt: skip
    ins = rule.instruction(target, k)
    if ins is not None:
        own = recipe if ins.d_type != "s32" else None
        promote = rule.promotion(target) if own is None or not own.promote else None
        sums = gemm(
            a, b, c, instruction=ins, target=own or target, codes=True, engine=engine,
            k_promote=promote, progress=False,
        )  # fmt: skip
        return ins.d_type, sums
    fmt = FORMATS[rule.a]
    arithmetic = Arithmetic(fmt, fmt, fmt, fmt, (FmaChain(rule.a),))
    columns = np.swapaxes(b, -1, -2)
    start = np.zeros((a.shape[-2], b.shape[-1]), code_type(fmt.bits)) if c is None else c
    return rule.a, matmul(arithmetic, a, columns, start, engine=engine)


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
        for where in _parts(order, a.shape[-1]):
            part = order._replace(part=0, shares=1)
            kind, sums = _part(rule, a[..., where], b[..., where, :], target, part, engine, recipe)
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
