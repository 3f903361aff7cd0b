"""``gemm`` over Dask arrays: a task for each tile of D and each chunk of k (the extra ``dask``).

The chunks of k of one tile form a chain, the result of one the accumulator of the next, as the
instructions of a kernel do: whichever worker computes them, and however often, the bits stay the
same.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dtypes import Array, Format, array_from_codes, array_type, code_type
from emulator.errors import OperandError
from emulator.matrices.operands import operand_codes
from emulator.matrices.tiles import Order, accumulate


def gemm_of_chunks(a: Any, b: Any, c: Any, order: Order, codes: bool) -> Any:
    """D as a lazy Dask array, chunked as the rows of `a` and the columns of `b`.

    Operands are two-dimensional; those that are no Dask arrays become one chunk. k stays in the
    chunks of `a` where they end between instructions (and between partial sums that are promoted),
    else it becomes one chunk.

    Raises OperandError for operands that do not fit together or have other than two axes.
    """
    import dask.array
    from dask import delayed

    fmt = order.arithmetic
    types = [_type(x, codes) for x in (fmt.a, fmt.b, fmt.c, fmt.d)]
    given = {"A": a, "B": b} if c is None else {"A": a, "B": b, "C": c}
    arrays = []
    for (name, x), wanted in zip(given.items(), types, strict=False):
        x = dask.array.asarray(x)
        if x.ndim != 2 or x.dtype != wanted:
            raise OperandError(
                f"{name}: gemm takes two-dimensional Dask arrays of {wanted}; got {x.dtype} "
                f"{x.shape}"
            )
        arrays.append(x)
    a, b = arrays[:2]
    (m, k), n = a.shape, b.shape[1]
    if b.shape[0] != k or (c is not None and arrays[2].shape != (m, n)):
        shapes = ", ".join(f"{name} {x.shape}" for name, x in zip(given, arrays, strict=True))
        raise OperandError(f"A is (m, k), B is (k, n), C is (m, n); got {shapes}")
    span = order.promote or order.k
    if any(size % span for size in a.chunks[1][:-1]):
        a = a.rechunk({1: -1})
    b = b.rechunk({0: a.chunks[1]})
    rows, columns = a.chunks[0], b.chunks[1]
    step = delayed(_step, pure=True)
    if c is not None:
        c = arrays[2].rechunk((rows, columns)).to_delayed()
    a_parts, b_parts = a.to_delayed(), b.to_delayed()
    tiles: list[list[Any]] = []
    for i, height in enumerate(rows):
        tiles.append([])
        for j, width in enumerate(columns):
            x = delayed(_zeros)(height, width, types[2]) if c is None else c[i, j]
            for a_part, b_part in zip(a_parts[i], b_parts[:, j], strict=True):
                x = step(order, codes, a_part, b_part, x)
            tiles[-1].append(dask.array.from_delayed(x, (height, width), types[3]))
    return dask.array.block(tiles)


def _type(fmt: Format, codes: bool) -> np.dtype[Any]:
    wanted = code_type(fmt.bits) if codes else array_type(fmt)
    assert wanted is not None  # of operands that gemm takes, only scales have no type
    return wanted


def _zeros(m: int, n: int, dtype: np.dtype[Any]) -> Array:
    return np.zeros((m, n), dtype)


def _step(order: Order, codes: bool, a: Array, b: Array, c: Array) -> Array:
    """The accumulators of one tile after one chunk of k."""
    fmt = order.arithmetic
    operands = (("A", a, fmt.a), ("B", b, fmt.b), ("C", c, fmt.c))
    d = accumulate(order, *(operand_codes(*x, (None, None), codes) for x in operands))
    return d if codes else array_from_codes(fmt.d, d)
