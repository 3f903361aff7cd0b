"""The steps that recipes are made of: what the hardware does to one dot product, as plain data.

A recipe is a tuple of steps. They act on a state: the operands a[k] and b[k], the accumulator
operand c, and a running value x that starts as c. The last x is the result. `reference` says in
plain integers what each step means; every other engine must agree with it bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Operand = Literal["a", "b", "x"]


@dataclass(frozen=True)
class Widen:
    """Converts a and b exactly to a wider format (fp8 to f16 before an f16 tensor core)."""

    to: str


@dataclass(frozen=True)
class Clear:
    """x = +0; c waits for `AddC`."""

    to: str


@dataclass(frozen=True)
class FusedDotAdd:
    """x = round(Σ a·b + x): every term is cut at one common bit position, then summed exactly.

    The position is `fraction_bits` below the largest exponent among the non-zero terms, that
    exponent taken as at least `floor`. Cut bits are dropped (toward zero on the magnitude). The sum
    is rounded once to `result`: toward zero for f32, to nearest even for f16. See
    `reference.fused_dot_add` for specials and signs of zero.
    """

    fraction_bits: int
    #: least exponent that the alignment uses; None: no floor
    floor: int | None
    result: str
    rounding: Literal["rz", "rn"]
    #: significand bits kept of the result; None: all that the format has
    precision: int | None = None
    #: k positions go in runs of this many to the passes in turn; 0: one pass over all
    run: int = 0
    #: number of passes that runs are dealt to; 0: a pass of its own for every run
    passes: int = 0
    #: this many neighbouring products are first added exactly, as one term (fp4 with scales)
    group: int = 1

    def blocks(self, k: int) -> list[list[int]]:
        """The k positions of each pass, in the order in which the passes chain.

        >>> FusedDotAdd(25, -133, "f32", "rz", run=2, passes=2).blocks(8)
        [[0, 1, 4, 5], [2, 3, 6, 7]]
        """
        run = self.run or k
        passes = self.passes or max(1, -(-k // run))
        return [[i for i in range(k) if i // run % passes == p] for p in range(passes)]


@dataclass(frozen=True)
class FmaChain:
    """x = fma(a[k], b[k], x) for ascending k, each step rounded in `fmt`."""

    fmt: str
    #: the operand whose NaN survives, quieted, the first that is one; empty: the canonical NaN
    nan_order: tuple[Operand, ...] = ()


@dataclass(frozen=True)
class PairSums:
    """x = x + fma(a[k+1], b[k+1], a[k]·b[k]) for k = 0, 2, …, each operation rounded in `fmt`."""

    fmt: str


@dataclass(frozen=True)
class AddC:
    """x = x + c, rounded to nearest in `fmt`."""

    fmt: str


@dataclass(frozen=True)
class Narrow:
    """Rounds x to nearest in format `to`."""

    to: str


@dataclass(frozen=True)
class IntegerDot:
    """x = c + Σ a·b exactly, then wrapped to 32 bits or, for .satfinite, clamped once."""


@dataclass(frozen=True)
class PopcountDot:
    """x = c + number of k where (a[k] op b[k]) is 1, wrapped to 32 bits."""


Step = Widen | Clear | FusedDotAdd | FmaChain | PairSums | AddC | Narrow | IntegerDot | PopcountDot
