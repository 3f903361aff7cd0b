"""The recipes over NumPy arrays: many dot products at once, equal to `reference` bit for bit."""

from __future__ import annotations

import numpy as np

from dtypes import Array
from emulator.arith import reference
from emulator.arith.arrangement import fits_int64
from emulator.arith.steps import Arithmetic
from emulator.arith.steps.step import Dots


def dot(
    arithmetic: Arithmetic,
    a: Array,
    b: Array,
    c: Array,
    scale_a: Array | None = None,
    scale_b: Array | None = None,
) -> Array:
    """``d = c + Σ a·b`` of codes; the same operands as `reference.dot`.

    Operands stay as they are until a step broadcasts them against each other, so that a matrix
    product decodes every row and column once although each takes part in many dot products. Sums
    that could be too large for int64, of recipes that no hardware has, are left to `reference`.
    """
    if not fits_int64(arithmetic, a.shape[-1]):
        return reference.dot(arithmetic, a, b, c, scale_a, scale_b)
    operands = (x for x in (a, b, scale_a, scale_b) if x is not None)
    shape = np.broadcast_shapes(c.shape, *(x.shape[:-1] for x in operands))
    if not shape:
        # NumPy warns of overflow in arithmetic on scalars, and never in that on arrays.
        return dot(arithmetic, a[None], b, c[None], scale_a, scale_b)[0]
    c = np.broadcast_to(c, shape)
    state = Dots(arithmetic, arithmetic.a, arithmetic.b, a, b, scale_a, scale_b, c, arithmetic.c, c)
    for step in arithmetic.steps:
        step.vector(state)
    return state.x
