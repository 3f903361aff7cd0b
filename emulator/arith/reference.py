"""The specification: one dot product at a time, in plain Python integers. Slow and obvious.

What each step of a recipe does is the `reference` of its class in `steps`. `dot_one` tells an
observer what it does, in the records of `trace`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dtypes import Array, code_type
from emulator.arith.steps import Arithmetic
from emulator.arith.steps.step import Dot
from emulator.arith.trace import Observer, Tagged, unobserved


def dot(
    arithmetic: Arithmetic,
    a: Array,
    b: Array,
    c: Array,
    scale_a: Array | None = None,
    scale_b: Array | None = None,
) -> Array:
    """``d = c + Σ a·b`` of codes; `a` and `b` are ``(…, k)``, `c` is ``(…)``, all broadcast.

    Scales are ``(…, v)`` codes, one for every k / v neighbouring positions.
    """
    operands = (x for x in (a, b, scale_a, scale_b) if x is not None)
    shape = np.broadcast_shapes(c.shape, *(x.shape[:-1] for x in operands))

    def rows(codes: Array | None) -> list[list[int]]:
        if codes is None:
            return [[]] * int(np.prod(shape))
        spread: list[list[int]] = (
            np.broadcast_to(codes, (*shape, codes.shape[-1])).reshape(-1, codes.shape[-1]).tolist()
        )
        return spread

    columns = zip(
        rows(a),
        rows(b),
        rows(scale_a),
        rows(scale_b),
        rows(np.broadcast_to(c, shape)[..., None]),
        strict=True,
    )
    results = [dot_one(arithmetic, p, q, u, v, start) for p, q, u, v, (start,) in columns]
    return np.array(results, code_type(arithmetic.d.bits)).reshape(shape)


def dot_one(
    arithmetic: Arithmetic,
    a: Sequence[int],
    b: Sequence[int],
    scale_a: Sequence[int],
    scale_b: Sequence[int],
    c: int,
    observe: Observer = unobserved,
) -> int:
    """One dot product: runs the steps of the recipe, and tells `observe` about each."""
    state = Dot(
        arithmetic,
        arithmetic.a,
        arithmetic.b,
        a,
        b,
        scale_a,
        scale_b,
        c,
        Tagged(arithmetic.c, c),
        observe,
    )
    for step in arithmetic.steps:
        step.reference(state)
    return state.x.code
