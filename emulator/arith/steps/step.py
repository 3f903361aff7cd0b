"""The base class of the steps of a recipe, and the values that they act on.

A step is a frozen dataclass: its fields are the constants that generations disagree on, its methods
the meaning, the same in plain integers, over arrays and in words. The meaning in integers is the
specification; tests hold the others to it.

Steps act on a state: the operands a[k] and b[k], the accumulator operand c, and a running value x
that starts as c. The last x is the result.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from dtypes import Array, Format, Rounding
from emulator.arith.trace import Observer, Tagged
from emulator.errors import shown

#: rounding modes in words
ROUNDED = {
    "rz": "toward zero", "rn": "to nearest even",
    "rm": "toward minus infinity", "rp": "toward plus infinity",
}  # fmt: skip


@dataclass(frozen=True)
class Step(ABC):
    """One step of a recipe. A subclass that lacks one of these cannot stand in a recipe."""

    @abstractmethod
    def reference(self, dot: Dot) -> None:
        """The step on one dot product, in plain integers; tells `dot.observe` what it does."""

    @abstractmethod
    def vector(self, dots: Dots) -> None:
        """The step on many dot products at once."""

    @property
    @abstractmethod
    def short(self) -> str:
        """The step in a few words, for a line that names several."""

    @abstractmethod
    def sentence(self, arithmetic: Arithmetic, k: int) -> str:
        """Describes the step as part of `arithmetic`, applied to an instruction's `k` products."""


def brief(steps: Sequence[Step]) -> str:
    """Steps as one line: ``a and b to f16, then x = 0, then …``."""
    return ", then ".join(step.short for step in steps)


def check_steps(steps: object) -> None:
    """Raises TypeError for anything but one or more steps."""
    if not isinstance(steps, tuple) or not steps:
        raise TypeError(f"a recipe is a tuple of one or more steps; got {shown(steps)}")
    for step in steps:
        if not isinstance(step, Step):
            raise TypeError(f"{shown(step)} is no step of a recipe")


@dataclass(frozen=True)
class Arithmetic:
    """All that an engine needs to know to compute one instruction's dot products."""

    a: Format
    b: Format
    c: Format
    d: Format
    steps: tuple[Step, ...]
    scale: Format | None = None
    #: the rounding modifier of f64 instructions
    rounding: Rounding = "rn"
    #: .satfinite of integer instructions
    saturate: bool = False
    #: of b1 instructions
    bit_operation: Literal["xor", "and"] | None = None
    #: scale-input-d of tcgen05.mma: c counts 2**-c_shift as much, its exponent lowered exactly
    c_shift: int = 0

    def __post_init__(self) -> None:
        check_steps(self.steps)

    def __hash__(self) -> int:
        # Without the steps, whose hash takes longer than what the caches of recipes save.
        return hash((self.a, self.b, self.c, self.d, self.scale, self.rounding))


@dataclass
class Dot:
    """One dot product on its way through a recipe; all numbers are codes."""

    arithmetic: Arithmetic
    a_format: Format
    b_format: Format
    a: Sequence[int]
    b: Sequence[int]
    #: one for every k / v neighbouring products; empty without block scaling
    scale_a: Sequence[int]
    scale_b: Sequence[int]
    c: int
    x: Tagged
    observe: Observer


@dataclass
class Dots:
    """Many of them: a, b ``(…, k)``, scales ``(…, v)``, c and x ``(…)``; all but x broadcast."""

    arithmetic: Arithmetic
    a_format: Format
    b_format: Format
    a: Array
    b: Array
    scale_a: Array | None
    scale_b: Array | None
    c: Array
    x_format: Format
    x: Array
