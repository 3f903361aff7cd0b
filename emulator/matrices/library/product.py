"""Products of matrices of codes in the order of a library, and their epilogues."""

from __future__ import annotations

from typing import Any

import numpy as np

from dtypes import FORMATS, Array, Format, code_type, convert
from emulator.arith import Engine, matmul
from emulator.arith.recipes import Arithmetic
from emulator.arith.steps import FmaChain
from emulator.arith.wide import add
from emulator.matrices.gemm import gemm
from emulator.matrices.library.rules import Rule
from emulator.targets import Target

#: NumPy's types of accumulators
_NUMBERS = {"f32": np.float32, "f64": np.float64, "s32": np.int32}


def multiply(
    rule: Rule, a: Array, b: Array, target: Target, part: int = 0, engine: Engine = "auto"
) -> tuple[str, Array]:
    """The type and the codes of the accumulators of A·B, codes ``(…, m, k)`` and ``(…, k, n)``.

    With `part` a kernel is split over k: every `part` elements are a chain from zero, and the sums
    are added one after the other (the last may be shorter). 0: one chain.
    """
    if rule.operands_as:
        a, b = (_rounded(FORMATS[rule.a], FORMATS[rule.operands_as], x) for x in (a, b))
    k = a.shape[-1]
    cuts = range(0, k, part) if part else [0]
    total = None
    for start in cuts:
        piece = slice(start, start + part if part else None)
        kind, sums = _chain(rule, a[..., piece], b[..., piece, :], target, engine)
        total = sums if total is None else add(FORMATS[kind], total, sums)
    assert total is not None
    return kind, total


def _rounded(fmt: Format, narrow: Format, codes: Array) -> Array:
    """Codes of `fmt` rounded to nearest even in a type with fewer fraction bits, kept as `fmt`."""
    shift = np.uint32(fmt.mantissa_bits - narrow.mantissa_bits)
    one = np.uint32(1)
    half = (one << (shift - one)) - one
    kept = (codes + half + (codes >> shift & one)) >> shift << shift
    exponents = np.uint32(fmt.code_mask & ~fmt.sign_mask & ~((1 << fmt.mantissa_bits) - 1))
    special = codes & exponents == exponents
    return np.where(special, codes, kept)


def _chain(rule: Rule, a: Array, b: Array, target: Target, engine: Engine) -> tuple[str, Array]:
    ins = rule.instruction(target)
    if ins is not None:
        sums = gemm(
            a, b, instruction=ins, target=target, codes=True, engine=engine,
            k_promote=rule.k_promote or None, progress=False,
        )  # fmt: skip
        return ins.d_type, sums
    fmt = FORMATS[rule.a]
    arithmetic = Arithmetic(fmt, fmt, fmt, fmt, (FmaChain(rule.a),))
    columns = np.swapaxes(b, -1, -2)
    zero = np.zeros((a.shape[-2], b.shape[-1]), code_type(fmt.bits))
    return rule.a, matmul(arithmetic, a, columns, zero, engine=engine)


def result_codes(kind: str, codes: Array, out: str) -> Array:
    """Accumulators rounded to nearest even in the type of the result."""
    return codes if kind == out else convert(FORMATS[kind], FORMATS[out], codes)


# --- epilogues ------------------------------------------------------------------------------------


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
