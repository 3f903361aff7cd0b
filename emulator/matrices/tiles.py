"""Tiles of a matrix product: where they lie, and how one is accumulated over k."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from dtypes import FORMATS, Array
from emulator.arith import Engine, matmul
from emulator.arith.recipes import Arithmetic
from emulator.arith.wide import add

#: rows and columns of a tile of D, and the k that is decoded at a time
TILE, SEGMENT = 1024, 2048
#: elements of D that a piece of a batch of small matrices has at most
BATCH = 1 << 20


class Order(NamedTuple):
    """How a kernel accumulates over k: what every tile is computed with."""

    arithmetic: Arithmetic
    #: of the instruction
    k: int
    #: positions after which a partial sum is added to the f32 total; 0: one chain
    promote: int
    engine: Engine


def accumulate(order: Order, a: Array, b: Array, c: Array) -> Array:
    """One tile: codes ``(…, m, k)``, ``(…, k, n)``, ``(…, m, n)`` to codes ``(…, m, n)``."""
    k = a.shape[-1]
    columns = np.swapaxes(b, -1, -2)
    span = order.promote or SEGMENT // order.k * order.k
    x = np.broadcast_to(
        c, (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2], c.shape[:-2]), *c.shape[-2:])
    )
    for start in range(0, k, span):
        part = slice(start, start + span)
        pieces = _padded(a[..., part], order.k), _padded(columns[..., part], order.k)
        partial = np.zeros(c.shape, c.dtype) if order.promote else x
        partial = matmul(order.arithmetic, *pieces, partial, k=order.k, engine=order.engine)
        x = add(FORMATS["f32"], x, partial) if order.promote else partial
    return x


def _padded(x: Array, k: int) -> Array:
    missing = -x.shape[-1] % k
    if not missing:
        return x
    return np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, missing)])


def tiles_of(shape: tuple[int, ...]) -> Iterator[tuple[tuple[slice, ...], slice, slice]]:
    """(batch, rows, columns) of every tile, in the order in which they are computed."""
    *batch, m, n = shape
    if not math.prod(shape):
        return
    size = min(m, TILE) * min(n, TILE)
    # Small matrices go together: the last batch axis is cut, those before it are walked over.
    together = max(1, BATCH // size)
    for outer in np.ndindex(*batch[:-1]):
        for first in range(0, batch[-1], together) if batch else [0]:
            inner = (slice(first, first + together),) if batch else ()
            for row in range(0, m, TILE):
                for column in range(0, n, TILE):
                    yield (
                        (*(slice(i, i + 1) for i in outer), *inner),
                        slice(row, row + TILE),
                        slice(column, column + TILE),
                    )


def part_of(x: Array, batch: tuple[slice, ...], rows: slice, columns: slice) -> Array:
    """The part of an operand, whose batch axes may be fewer or of length 1, that a tile needs."""
    own = batch[len(batch) - (x.ndim - 2) :]
    cut = (s if size > 1 else slice(None) for s, size in zip(own, x.shape, strict=False))
    return x[(*cut, rows, columns)]
