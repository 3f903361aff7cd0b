"""What `reference` tells an observer about one dot product while it computes it: plain records.

Every record names the step of the recipe that it belongs to. Numbers are Python integers and codes;
`emulator.tools.explanations.explanation` puts them into words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from emulator.arith.steps import FusedDotAdd, Step

if TYPE_CHECKING:
    from dtypes import Format
    from emulator.arith.reference import Tagged, Term


class Widened(NamedTuple):
    """All a[k] and b[k] in another format: (a, b) before and after, as codes."""

    step: Step
    formats: tuple[Format, Format]
    before: tuple[Sequence[int], Sequence[int]]
    fmt: Format
    after: tuple[Sequence[int], Sequence[int]]


class Changed(NamedTuple):
    """x replaced: put into another format, or cleared."""

    step: Step
    before: Tagged
    after: Tagged


class Summed(NamedTuple):
    """One pass of a fused dot-add.

    `terms` are those that met, x the last of them. `cut` holds each one's signed significand in
    units of ``2**unit``, after the cut `step.fraction_bits` below the exponent `top`. Where special
    values decide, or every term is zero, there is no alignment: `top` is None and `cut` empty.
    """

    step: FusedDotAdd
    terms: Sequence[Term]
    top: int | None
    cut: Sequence[int]
    before: Tagged
    after: Tagged

    @property
    def unit(self) -> int:
        """Exponent of the last bit that the cut leaves."""
        assert self.top is not None
        return self.top - self.step.fraction_bits


class Operated(NamedTuple):
    """One IEEE 754 operation on codes of one format; `k` is the first position it reads."""

    step: Step
    name: Literal["fma", "multiply", "add"]
    fmt: Format
    k: int | None
    operands: tuple[int, ...]
    result: int


class Counted(NamedTuple):
    """An integer dot product: the addends, c as an integer, and the code of the result."""

    step: Step
    addends: Sequence[int]
    c: int
    result: Tagged


Record = Widened | Changed | Summed | Operated | Counted
Observer = Callable[[Record], object]


def unobserved(record: Record) -> None:
    """The observer that looks at nothing."""
