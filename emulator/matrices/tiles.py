"""Tiles of a matrix product: where they lie, and how one is accumulated over k."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from dtypes import FORMATS, Array
from emulator.arith import Engine, matmul
from emulator.arith.fast.wide import add
from emulator.arith.recipes import Arithmetic
from emulator.isa.matrix import MatrixInstruction
from emulator.matrices.sparse_tiles import matmul_sparse
from emulator.warp.sparse import Compressed

#: rows and columns of a tile of D, and the k that is decoded at a time
TILE, SEGMENT = 1024, 2048
#: elements of D that a piece of a batch of small matrices has at most
BATCH = 1 << 20


class Order(NamedTuple):
    """The way in which a kernel accumulates over k, the same for every tile."""

    arithmetic: Arithmetic
    #: of the instruction
    k: int
    #: positions after which a partial sum is added to the f32 total; 0: one chain
    promote: int
    engine: Engine
    #: the instruction, where it is sparse: A is compressed, and comes with its nibbles
    sparse: MatrixInstruction | None = None
    #: parts of k that are chains of their own, their sums added in f32
    split: int = 1
    #: the instructions along k are dealt to the parts in turn; else each has neighbouring ones
    sliced: bool = False


class Steps(NamedTuple):
    """Operands cut into the instructions along k: ``(…, rows, instructions, positions)``; B by
    columns."""

    a: Array
    b: Array
    nibbles: Array | None
    scale_a: Array | None
    scale_b: Array | None

    def part(self, which: slice) -> Steps:
        """The steps of some instructions."""
        return Steps(*(None if x is None else x[..., which, :] for x in self))  # type: ignore[arg-type]


def accumulate(
    order: Order,
    a: Array,
    b: Array,
    c: Array,
    nibbles: Array | None = None,
    scale_a: Array | None = None,
    scale_b: Array | None = None,
) -> Array:
    """One tile: codes ``(…, m, k)``, ``(…, k, n)``, ``(…, m, n)`` to codes ``(…, m, n)``.

    Scales are ``(…, m, v)`` and ``(…, v, n)`` for all of k. A of a sparse instruction is the
    compressed ``(…, m, k / 2)``, with `nibbles` ``(…, m, chunks)``.
    """

    batch = np.broadcast_shapes(
        *(x.shape[:-2] for x in (a, b, c, nibbles, scale_a, scale_b) if x is not None)
    )
    x = np.broadcast_to(c, (*batch, *c.shape[-2:]))
    count = -(-b.shape[-2] // order.k)
    if not count:
        return x

    def cut(x: Array | None) -> Array | None:
        return None if x is None else x.reshape(*x.shape[:-1], count, x.shape[-1] // count)

    stored = order.k // 2 if order.sparse else order.k
    steps = Steps(
        cut(_padded(a, count * stored)),  # type: ignore[arg-type]
        cut(_padded(np.swapaxes(b, -1, -2), count * order.k)),  # type: ignore[arg-type]
        cut(nibbles),
        cut(scale_a),
        cut(None if scale_b is None else np.swapaxes(scale_b, -1, -2)),
    )
    parts = min(order.split, count)
    for i in range(parts):
        if order.sliced:
            which = slice(i, None, parts)
        else:
            which = slice(i * count // parts, (i + 1) * count // parts)
        partial = _chain(order, steps.part(which), np.zeros_like(x) if i else x)
        x = add(FORMATS["f32"], x, partial) if i else partial
    return x


def _chain(order: Order, steps: Steps, c: Array) -> Array:
    """The accumulators after some instructions along k."""
    x, span = c, max(1, (order.promote or SEGMENT) // order.k)
    for start in range(0, steps.a.shape[-2], span):
        part = steps.part(slice(start, start + span))
        a, b, nibbles, *scales = (
            None if y is None else y.reshape(*y.shape[:-2], y.shape[-2] * y.shape[-1]) for y in part
        )
        assert a is not None and b is not None
        partial = np.zeros(c.shape, c.dtype) if order.promote else x
        if order.sparse is None:
            partial = matmul(
                order.arithmetic, a, b, partial, *scales, k=order.k, engine=order.engine
            )
        else:
            assert nibbles is not None
            ins = order.sparse
            operands = Compressed(a, nibbles, b, partial, *scales)
            partial = matmul_sparse(ins, order.arithmetic, operands, order.engine)
        x = add(FORMATS["f32"], x, partial) if order.promote else partial
    return x


def _padded(x: Array, k: int) -> Array:
    missing = k - x.shape[-1]
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
