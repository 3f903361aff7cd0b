"""The arrangement of a recipe around its one step that multiplies, for the fast engines."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from dtypes import FORMATS, Format
from emulator.arith.steps import (
    AddC,
    Arithmetic,
    Clear,
    Convert,
    FusedDotAdd,
    IntegerDot,
    Step,
    Widen,
)


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


def largest_product(formats: Iterable[Format]) -> float:
    """The largest product of significands, each from 1 to 2, of these formats."""
    return math.prod(2 - 2.0**-fmt.mantissa_bits for fmt in formats)


@lru_cache(maxsize=1024)
def fits_int64(arithmetic: Arithmetic, k: int) -> bool:
    """True if all fused sums of a recipe of `k` products fit the integers of `vector`."""
    factors = (arithmetic.a, arithmetic.b)
    for step in arithmetic.steps:
        if isinstance(step, Widen):
            factors = (FORMATS[step.to],) * 2
        elif isinstance(step, FusedDotAdd) and step.sum_bits(*factors, arithmetic.scale, k) > 62:
            return False
    return True


@lru_cache(maxsize=256)
def with_gaps(arithmetic: Arithmetic, together: int) -> Arithmetic | None:
    """The recipe for twice the positions of k, half of which hold zeros: of every `together`
    neighbours, 2 × `together` are made, in any order and with zeros anywhere among them.

    For finite operands it gives the same codes, because a fused dot-add does not see zeros and adds
    the terms of a pass in any order. None for recipes of which that is not known, or whose passes
    take neighbours apart.
    """
    found = arrangement(arithmetic.steps)
    if found is None or not isinstance(found.core, (FusedDotAdd, IntegerDot)):
        return None
    core = found.core
    if isinstance(core, IntegerDot):
        return arithmetic
    if core.run % together or (core.group > 1 and core.group % together):
        return None
    wide = replace(core, run=2 * core.run, group=2 * core.group if core.group > 1 else 1)
    steps = tuple(wide if step is core else step for step in arithmetic.steps)
    return replace(arithmetic, steps=steps)
