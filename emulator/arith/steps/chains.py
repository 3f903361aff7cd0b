"""Steps that are chains of IEEE 754 operations: f64, and m8n8k4 on the FP32 pipe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dtypes import FORMATS
from emulator.arith import ieee
from emulator.arith.fast import wide
from emulator.arith.ieee import in_format
from emulator.arith.steps.formats import into_format
from emulator.arith.steps.step import ROUNDED, Arithmetic, Dot, Dots, Step
from emulator.arith.trace import Changed, Operated, Tagged

Operand = Literal["a", "b", "x"]


@dataclass(frozen=True)
class FmaChain(Step):
    """x = fma(a[k], b[k], x) for ascending k, each step rounded in `fmt`."""

    fmt: str
    #: the operand whose NaN survives, quieted, the first that is one; empty: the canonical NaN
    nan_order: tuple[Operand, ...] = ()

    def reference(self, dot: Dot) -> None:
        fmt, rounding = FORMATS[self.fmt], dot.arithmetic.rounding
        before, dot.x = dot.x, in_format(dot.x, fmt)
        dot.observe(Changed(self, before, dot.x))
        for k, (p, q) in enumerate(zip(dot.a, dot.b, strict=True)):
            code = ieee.fma(fmt, p, q, dot.x.code, rounding, self.nan_order)
            dot.observe(Operated(self, "fma", fmt, k, (p, q, dot.x.code), code))
            dot.x = Tagged(fmt, code)

    def vector(self, dots: Dots) -> None:
        into_format(dots, self.fmt)
        for k in range(dots.a.shape[-1]):
            dots.x = wide.fused_multiply_add(
                dots.x_format,
                dots.a[..., k],
                dots.b[..., k],
                dots.x,
                dots.arithmetic.rounding,
                self.nan_order,
            )

    @property
    def short(self) -> str:
        return "fused multiply-adds one by one"

    def sentence(self, arithmetic: Arithmetic, k: int) -> str:
        order = " before ".join(self.nan_order)
        nan = f"; of several NaNs that of {order}" if order else ""
        return (
            f"x = fma(a[k], b[k], x) for ascending k, each rounded {ROUNDED[arithmetic.rounding]} "
            f"to {self.fmt}{nan}"
        )


@dataclass(frozen=True)
class PairSums(Step):
    """x = x + fma(a[k+1], b[k+1], a[k]·b[k]) for k = 0, 2, …, each operation rounded in `fmt`."""

    fmt: str

    def reference(self, dot: Dot) -> None:
        fmt, a, b = FORMATS[self.fmt], dot.a, dot.b
        before, dot.x = dot.x, in_format(dot.x, fmt)
        dot.observe(Changed(self, before, dot.x))
        for k in range(0, len(a), 2):
            first = ieee.multiply(fmt, a[k], b[k])
            dot.observe(Operated(self, "multiply", fmt, k, (a[k], b[k]), first))
            pair = ieee.fma(fmt, a[k + 1], b[k + 1], first)
            dot.observe(Operated(self, "fma", fmt, k + 1, (a[k + 1], b[k + 1], first), pair))
            code = ieee.add(fmt, dot.x.code, pair)
            dot.observe(Operated(self, "add", fmt, k, (dot.x.code, pair), code))
            dot.x = Tagged(fmt, code)

    def vector(self, dots: Dots) -> None:
        into_format(dots, self.fmt)
        fmt, a, b = dots.x_format, dots.a, dots.b
        for k in range(0, a.shape[-1], 2):
            first = wide.multiply(fmt, a[..., k], b[..., k])
            pair = wide.fused_multiply_add(fmt, a[..., k + 1], b[..., k + 1], first)
            dots.x = wide.add(fmt, dots.x, pair)

    @property
    def short(self) -> str:
        return "sums of pairs of products"

    def sentence(self, arithmetic: Arithmetic, k: int) -> str:
        return (
            "x = x + fma(a[k+1], b[k+1], a[k]*b[k]) for k = 0, 2, ..., each operation rounded "
            f"{ROUNDED['rn']} in {self.fmt}"
        )
