"""Steps on integers and on single bits: their sums are exact, and end in 32 bits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dtypes import Array, code_type, decode_integers
from dtypes.arrays import Int64
from dtypes.codec import decode_integer
from emulator.arith.steps.step import Arithmetic, Dot, Dots, Step
from emulator.arith.trace import Counted, Tagged


@dataclass(frozen=True)
class IntegerDot(Step):
    """x = c + Σ a·b exactly, then wrapped to 32 bits or, for .satfinite, clamped once."""

    def reference(self, dot: Dot) -> None:
        pairs = zip(dot.a, dot.b, strict=True)
        _count(
            self,
            dot,
            [decode_integer(dot.a_format, p) * decode_integer(dot.b_format, q) for p, q in pairs],
        )

    def vector(self, dots: Dots) -> None:
        p, q = decode_integers(dots.a_format, dots.a), decode_integers(dots.b_format, dots.b)
        dots.x = _wrap_or_clamp(dots, np.einsum("...k,...k->...", p, q))

    @property
    def short(self) -> str:
        return "an exact integer sum"

    def sentence(self, arithmetic: Arithmetic, k: int) -> str:
        end = "clamped once to s32" if arithmetic.saturate else "wrapped to 32 bits"
        return f"x = c + sum of a*b, exact, then {end}"


@dataclass(frozen=True)
class PopcountDot(Step):
    """x = c + number of k where (a[k] op b[k]) is 1, wrapped to 32 bits."""

    def reference(self, dot: Dot) -> None:
        xor = dot.arithmetic.bit_operation == "xor"
        _count(self, dot, [p ^ q if xor else p & q for p, q in zip(dot.a, dot.b, strict=True)])

    def vector(self, dots: Dots) -> None:
        xor = dots.arithmetic.bit_operation == "xor"
        ones = dots.a ^ dots.b if xor else dots.a & dots.b
        dots.x = _wrap_or_clamp(dots, ones.sum(-1, dtype=np.int64))

    @property
    def short(self) -> str:
        return "a count of ones"

    def sentence(self, arithmetic: Arithmetic, k: int) -> str:
        operation = arithmetic.bit_operation
        return f"x = c + number of k where (a[k] {operation} b[k]) is 1, wrapped to 32 bits"


def _count(step: Step, dot: Dot, addends: Sequence[int]) -> None:
    """x = c + Σ addends in s32: wrapped, or clamped once from the exact sum (measured)."""
    fmt, c = dot.arithmetic.d, decode_integer(dot.arithmetic.d, dot.c)
    exact = c + sum(addends)
    if dot.arithmetic.saturate:
        exact = min(max(exact, -fmt.sign_mask), fmt.max_finite)
    dot.x = Tagged(fmt, exact & fmt.code_mask)
    dot.observe(Counted(step, addends, c, dot.x))


def _wrap_or_clamp(dots: Dots, total: Int64) -> Array:
    """c + total, as `_count` has it."""
    fmt = dots.arithmetic.d
    exact = decode_integers(fmt, dots.c) + total
    if dots.arithmetic.saturate:
        exact = np.clip(exact, -fmt.sign_mask, fmt.max_finite)
    return (exact & fmt.code_mask).astype(code_type(fmt.bits))
