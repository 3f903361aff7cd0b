"""Records that the reference passes to an observer while it computes one dot product.

Every record names the step of the recipe that it belongs to. Numbers are Python integers and codes;
`emulator.tools.explanations.explanation` puts them into words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

from dtypes import Format, Number, NumberClass
from dtypes.codec import decode


class Tagged(NamedTuple):
    """A code together with its format."""

    fmt: Format
    code: int

    @property
    def number(self) -> Number:
        return decode(self.fmt, self.code)


class Term(NamedTuple):
    """One addend of a fused dot-add: ``±significand * 2**(exponent - fraction_bits)``."""

    number_class: NumberClass
    sign: int
    exponent: int
    significand: int
    fraction_bits: int


# --- records; `step` is one of `emulator.arith.steps`, which lies above this module ---------------


class Widened(NamedTuple):
    """All a[k] and b[k] in another format: (a, b) before and after, as codes."""

    step: Any
    formats: tuple[Format, Format]
    before: tuple[Sequence[int], Sequence[int]]
    fmt: Format
    after: tuple[Sequence[int], Sequence[int]]


class Changed(NamedTuple):
    """x replaced: put into another format, or cleared."""

    step: Any
    before: Tagged
    after: Tagged


class Summed(NamedTuple):
    """One pass of a fused dot-add.

    `terms` are those that met, x the last of them. `cut` holds each one's signed significand in
    units of ``2**unit``, truncated `step.fraction_bits` below the exponent `top`. Where special
    values decide, or every term is zero, there is no alignment: `top` is None and `cut` empty.
    """

    step: Any
    terms: Sequence[Term]
    top: int | None
    cut: Sequence[int]
    before: Tagged
    after: Tagged

    @property
    def unit(self) -> int:
        """Exponent of the last bit that is left."""
        assert self.top is not None
        return self.top - int(self.step.fraction_bits)


class Operated(NamedTuple):
    """One IEEE 754 operation on codes of one format; `k` is the first position it reads."""

    step: Any
    name: Literal["fma", "multiply", "add"]
    fmt: Format
    k: int | None
    operands: tuple[int, ...]
    result: int


class Counted(NamedTuple):
    """An integer dot product: the addends, c as an integer, and the code of the result."""

    step: Any
    addends: Sequence[int]
    c: int
    result: Tagged


Record = Widened | Changed | Summed | Operated | Counted
Observer = Callable[[Record], object]


def unobserved(record: Record) -> None:
    """The observer that looks at nothing."""
