"""How a recipe is arranged around the one step that multiplies: what fast engines ask first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dtypes import FORMATS, Format
from emulator.arith.steps import AddC, Clear, Convert, Step, Widen


class Arrangement(NamedTuple):
    """The step that multiplies, and what stands around it."""

    core: Step
    #: the format that a and b are widened to first
    widen: Format | None
    #: the formats that x is converted to before the core, and at the end
    before: Format | None
    after: Format | None
    #: the core starts from +0, and c is added to its result in this format
    adds_c: Format | None


def arrangement(steps: Sequence[Step]) -> Arrangement | None:
    """The arrangement of a recipe; None for one that is not arranged so."""
    left = list(steps)
    widen = before = after = adds_c = None
    if isinstance(left[0], Widen):
        widen = FORMATS[left[0].to]
        del left[0]
    if left and isinstance(left[0], Convert):
        before = FORMATS[left[0].to]
        del left[0]
    if left and isinstance(left[-1], Convert):
        after = FORMATS[left[-1].to]
        del left[-1]
    if len(left) > 1 and isinstance(left[0], Clear) and isinstance(left[-1], AddC):
        adds_c = FORMATS[left[-1].fmt]
        left = left[1:-1]
    if len(left) != 1:
        return None
    return Arrangement(left[0], widen, before, after, adds_c)
