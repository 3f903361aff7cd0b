"""What tensor cores compute: recipes as data, and engines that run them.

`reference` is the specification, one dot product at a time in Python integers; `vector` computes
whole arrays with NumPy and equals it bit for bit. ``dot`` chooses between them.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from dtypes import Array
from emulator.arith import reference, vector
from emulator.arith.recipes import Arithmetic
from emulator.errors import OperandError, nearest

Engine = Literal["auto", "reference", "vector"]
ENGINES = {"reference": reference.dot, "vector": vector.dot, "auto": vector.dot}

#: products that the vector engine holds at a time: 32 MiB in an int64 array
_PRODUCTS_AT_ONCE = 1 << 22


def dot(
    arithmetic: Arithmetic,
    a: Array,
    b: Array,
    c: Array,
    scale_a: Array | None = None,
    scale_b: Array | None = None,
    *,
    engine: Engine = "auto",
) -> Array:
    """``d = c + Σ a·b`` of codes: `a`, `b` ``(…, k)``, `c` ``(…)``, scales ``(…, v)``, broadcast.

    Long batches are computed in pieces, so that memory stays bounded. Raises
    OperandError for an unknown engine, ValueError for shapes that do not broadcast.
    """
    if not isinstance(engine, str) or engine not in ENGINES:
        raise OperandError(
            f"no engine {engine!r:.80}; engines are {', '.join(ENGINES)}; "
            f"nearest is {nearest(str(engine), ENGINES)[0]!r}"
        )
    compute = ENGINES[engine]
    shape = np.broadcast_shapes(
        c.shape, *(x.shape[:-1] for x in (a, b, scale_a, scale_b) if x is not None)
    )
    c = np.broadcast_to(c, shape)
    size = int(np.prod(shape)) * a.shape[-1]
    if size <= _PRODUCTS_AT_ONCE or size == a.shape[-1]:
        return compute(arithmetic, a, b, c, scale_a, scale_b)

    # Too much for one piece: cut the first axis that can be cut.
    axis = next(i for i, n in enumerate(shape) if n > 1)
    rows = max(1, shape[axis] * _PRODUCTS_AT_ONCE // size)

    def part(x: Array, start: int, trailing: int = 1) -> Array:
        own = axis - (len(shape) - (x.ndim - trailing))
        if own < 0 or x.shape[own] == 1:
            return x  # broadcast along that axis
        return x[(slice(None),) * own + (slice(start, start + rows),)]

    out = []
    for start in range(0, shape[axis], rows):
        scales = (None if x is None else part(x, start) for x in (scale_a, scale_b))
        pieces = part(a, start), part(b, start), part(c, start, 0)
        out.append(dot(arithmetic, *pieces, *scales, engine=engine))
    return np.concatenate(out, axis)
