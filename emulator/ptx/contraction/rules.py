"""Contraction: all rules, in the order in which ptxas applies them."""

from __future__ import annotations

from collections.abc import Sequence

from emulator.ptx.contraction.approximations import find_inverses, find_known, find_reciprocals
from emulator.ptx.contraction.choices import find_copies, find_saturations, find_selections
from emulator.ptx.contraction.fusion import find_fusions
from emulator.ptx.contraction.halves import joined, take_apart
from emulator.ptx.contraction.rewrites import Rewrite
from emulator.ptx.contraction.values import Body
from emulator.ptx.dataflow import Statement
from emulator.ptx.folding import find_conversions
from emulator.targets import Target


def contract(
    statements: Sequence[Statement], target: Target, *, entry: bool = True, fmad: bool = True
) -> dict[int, Rewrite]:
    """The contractions that ptxas makes in a function body, by the index of the statement.

    `entry` says whether the function is a kernel: then its parameters lie in constant memory.
    `fmad` is ptxas' option of this name; without it no product is fused, scaled or copied.
    """
    parts, origins = take_apart(statements, "f32x2" not in target.features)
    body = Body(parts, entry)
    find_copies(body)
    find_known(body)
    find_inverses(body)
    find_reciprocals(body)
    find_saturations(body)
    body.found |= find_conversions(body.values)
    find_selections(body)
    if fmad:
        find_fusions(body)
    return joined(body.found, origins)
