"""Steps that change a format, or put c elsewhere than into the sum of products."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dtypes import FORMATS, code_type
from dtypes import convert as convert_codes
from emulator.arith import ieee
from emulator.arith.fast import wide
from emulator.arith.ieee import in_format
from emulator.arith.steps.step import ROUNDED, Arithmetic, Dot, Dots, Step
from emulator.arith.trace import Changed, Operated, Tagged, Widened


@dataclass(frozen=True)
class Widen(Step):
    """Converts a and b exactly to a wider format (fp8 to f16 before an f16 tensor core)."""

    to: str

    def reference(self, dot: Dot) -> None:
        fmt, formats, before = FORMATS[self.to], (dot.a_format, dot.b_format), (dot.a, dot.b)
        dot.a, dot.b = (
            [ieee.convert(source, fmt, code) for code in codes]
            for source, codes in zip(formats, before, strict=True)
        )
        dot.a_format = dot.b_format = fmt
        dot.observe(Widened(self, formats, before, fmt, (dot.a, dot.b)))

    def vector(self, dots: Dots) -> None:
        fmt = FORMATS[self.to]
        dots.a = convert_codes(dots.a_format, fmt, dots.a)
        dots.b = convert_codes(dots.b_format, fmt, dots.b)
        dots.a_format = dots.b_format = fmt

    @property
    def short(self) -> str:
        return f"a and b to {self.to}"

    def sentence(self, arithmetic: Arithmetic, k: int) -> str:
        return f"convert a and b to {self.to}, exactly"


@dataclass(frozen=True)
class Clear(Step):
    """x = +0; c waits for `AddC`."""

    def reference(self, dot: Dot) -> None:
        before, dot.x = dot.x, Tagged(dot.arithmetic.d, 0)
        dot.observe(Changed(self, before, dot.x))

    def vector(self, dots: Dots) -> None:
        dots.x_format = dots.arithmetic.d
        dots.x = np.zeros(dots.c.shape, code_type(dots.x_format.bits))

    @property
    def short(self) -> str:
        return "x = 0"

    def sentence(self, arithmetic: Arithmetic, k: int) -> str:
        return "x = +0; c is added later"


@dataclass(frozen=True)
class AddC(Step):
    """x = x + c, rounded to nearest in `fmt`."""

    fmt: str

    def reference(self, dot: Dot) -> None:
        fmt = FORMATS[self.fmt]
        x = in_format(dot.x, fmt).code
        addend = in_format(Tagged(dot.arithmetic.c, dot.c), fmt).code
        dot.x = Tagged(fmt, ieee.add(fmt, x, addend))
        dot.observe(Operated(self, "add", fmt, None, (x, addend), dot.x.code))

    def vector(self, dots: Dots) -> None:
        into_format(dots, self.fmt)
        fmt = dots.x_format
        c = dots.c if dots.arithmetic.c is fmt else convert_codes(dots.arithmetic.c, fmt, dots.c)
        dots.x = wide.add(fmt, dots.x, c)

    @property
    def short(self) -> str:
        return f"+ c in {self.fmt}"

    def sentence(self, arithmetic: Arithmetic, k: int) -> str:
        return f"x = x + c, rounded {ROUNDED['rn']} in {self.fmt}"


@dataclass(frozen=True)
class Convert(Step):
    """Puts x into format `to`: rounded to nearest even where that is narrower, else exactly."""

    to: str

    def reference(self, dot: Dot) -> None:
        before, dot.x = dot.x, in_format(dot.x, FORMATS[self.to])
        dot.observe(Changed(self, before, dot.x))

    def vector(self, dots: Dots) -> None:
        into_format(dots, self.to)

    @property
    def short(self) -> str:
        return f"x to {self.to}"

    def sentence(self, arithmetic: Arithmetic, k: int) -> str:
        return f"round x {ROUNDED['rn']} in {self.to}"


def into_format(dots: Dots, name: str) -> None:
    """`ieee.in_format` of every x."""
    fmt = FORMATS[name]
    if dots.x_format is not fmt:
        dots.x_format, dots.x = fmt, convert_codes(dots.x_format, fmt, dots.x)
