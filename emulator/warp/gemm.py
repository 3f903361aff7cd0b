"""``gemm``: matrices of any size through one instruction, as the main loop of a kernel runs it."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from dtypes import FORMATS, Array, array_from_codes, array_type, code_type
from emulator.arith import Engine, matmul
from emulator.arith.recipes import Arithmetic
from emulator.arith.wide import add
from emulator.errors import OperandError, UnsupportedError
from emulator.isa.instruction import Instruction
from emulator.isa.matrix import MatrixInstruction
from emulator.targets import Target
from emulator.warp.matrix import batches_named, codes_of, multiplying

#: rows and columns of a tile of D, and the k that is decoded at a time
_TILE, _SEGMENT = 1024, 2048
#: elements of D that a piece of a batch of small matrices has at most
_BATCH = 1 << 20


class Order(NamedTuple):
    """How a kernel accumulates over k: what every tile is computed with."""

    arithmetic: Arithmetic
    #: of the instruction
    k: int
    #: positions after which a partial sum is added to the f32 total; 0: one chain
    promote: int
    engine: Engine


def gemm(
    a: Any,
    b: Any,
    c: Any = None,
    *,
    instruction: Instruction | str,
    target: str | Target,
    codes: bool = False,
    engine: Engine = "auto",
    k_promote: int | None = None,
    out: Array | None = None,
    first_tile: int = 0,
    progress: bool | None = None,
) -> Array:
    """D = A·B + C of any size, accumulated over k in steps of the instruction's k.

    Each step's result is the accumulator of the next, as in a kernel's main loop; k is padded with
    zeros. `a` is ``(…, m, k)``, `b` ``(…, k, n)``, `c` ``(…, m, n)`` or None, as for `mma`.

    ``k_promote=128`` is the other order that kernels use (DeepGEMM for fp8): the chain starts from
    zero every `k_promote` elements of k, and each partial sum is added to an f32 total, which
    starts as C, rounded to nearest.

    D is computed tile by tile. `out` takes the result, an array of D's shape and type: what an
    interrupt leaves there is right, KeyboardInterrupt says how many tiles it is, and
    ``first_tile=`` that many goes on from there. `progress` shows a bar where tqdm is
    installed; None: on a terminal, once it takes more than two seconds.

    Dask arrays are computed tile by tile on a cluster; the result is a lazy Dask array.

    Raises OperandError for arrays that do not fit together, UnsupportedError for sparse and
    block-scaled instructions and for one whose C and D differ in type.
    """
    ins = dense(instruction)
    arithmetic = ins.arithmetic(target)
    order = Order(arithmetic, ins.k, promotion(ins, k_promote), engine)
    if any(hasattr(x, "__dask_graph__") for x in (a, b, c)):
        from emulator.warp.dask_gemm import gemm_of_chunks

        if out is not None or first_tile:
            raise OperandError("out= and first_tile= are for arrays in memory, not for Dask's")
        return gemm_of_chunks(a, b, c, order, codes)
    a = codes_of("A", a, arithmetic.a, (None, None), codes)
    m, k = a.shape[-2:]
    b = codes_of("B", b, arithmetic.b, (k, None), codes)
    n = b.shape[-1]
    if c is None:
        c = np.zeros((m, n), code_type(arithmetic.c.bits))
    else:
        c = codes_of("C", c, arithmetic.c, (m, n), codes)
    with batches_named(A=a, B=b, C=c):
        shape = (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2], c.shape[:-2]), m, n)
    d = (
        np.empty(shape, code_type(arithmetic.d.bits))
        if out is None
        else _codes_in(out, shape, order, codes)
    )
    tiles = list(_tiles(shape))
    if not 0 <= first_tile <= len(tiles):
        raise OperandError(f"first_tile is 0 … {len(tiles)} for {shape}; got {first_tile}")
    done = first_tile
    try:
        for tile in _shown(tiles[first_tile:], progress):
            batch, rows, columns = tile
            d[(*batch, rows, columns)] = accumulate(
                order,
                _part(a, batch, rows, slice(None)),
                _part(b, batch, slice(None), columns),
                _part(c, batch, rows, columns),
            )
            done += 1
    except KeyboardInterrupt:
        if out is None:
            raise
        raise KeyboardInterrupt(
            f"{done} of {len(tiles)} tiles are in out; gemm(…, out=out, first_tile={done}) goes on"
        ) from None
    if out is not None:
        return out
    return d if codes else array_from_codes(arithmetic.d, d)


def dense(instruction: Instruction | str) -> MatrixInstruction:
    """The instruction, if gemm can use it."""
    ins = multiplying(
        Instruction.parse(instruction) if isinstance(instruction, str) else instruction
    )
    if ins.is_sparse or ins.is_block_scaled or ins.c_type != ins.d_type:
        raise UnsupportedError(
            f"gemm takes dense instructions without block scales whose C and D are of one type; "
            f"got {ins}"
        )
    return ins


def promotion(ins: MatrixInstruction, k_promote: int | None) -> int:
    """`k_promote`, checked; 0 for None."""
    if k_promote is None:
        return 0
    if ins.d_type != "f32":
        raise OperandError(f"k_promote= adds partial sums to an f32 total; {ins} has {ins.d_type}")
    if not isinstance(k_promote, (int, np.integer)) or k_promote <= 0 or k_promote % ins.k:
        raise OperandError(
            f"k_promote is a multiple of {ins.k}, the k of {ins}; got {k_promote!r:.80}"
        )
    return int(k_promote)


def accumulate(order: Order, a: Array, b: Array, c: Array) -> Array:
    """One tile: codes ``(…, m, k)``, ``(…, k, n)``, ``(…, m, n)`` to codes ``(…, m, n)``."""
    k = a.shape[-1]
    columns = np.swapaxes(b, -1, -2)
    span = order.promote or _SEGMENT // order.k * order.k
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


def _tiles(shape: tuple[int, ...]) -> Iterator[tuple[tuple[slice, ...], slice, slice]]:
    """(batch, rows, columns) of every tile, in the order in which they are computed."""
    *batch, m, n = shape
    if not math.prod(shape):
        return
    size = min(m, _TILE) * min(n, _TILE)
    # Small matrices go together: the last batch axis is cut, those before it are walked over.
    together = max(1, _BATCH // size)
    for outer in np.ndindex(*batch[:-1]):
        for first in range(0, batch[-1], together) if batch else [0]:
            inner = (slice(first, first + together),) if batch else ()
            for row in range(0, m, _TILE):
                for column in range(0, n, _TILE):
                    yield (
                        (*(slice(i, i + 1) for i in outer), *inner),
                        slice(row, row + _TILE),
                        slice(column, column + _TILE),
                    )


def _part(x: Array, batch: tuple[slice, ...], rows: slice, columns: slice) -> Array:
    """The part of an operand, whose batch axes may be fewer or of length 1, that a tile needs."""
    own = batch[len(batch) - (x.ndim - 2) :]
    cut = (s if size > 1 else slice(None) for s, size in zip(own, x.shape, strict=False))
    return x[(*cut, rows, columns)]


def _codes_in(out: Array, shape: tuple[int, ...], order: Order, codes: bool) -> Array:
    """The codes of the array that the caller gave for the result, as a view."""
    fmt = order.arithmetic.d
    wanted = code_type(fmt.bits) if codes else array_type(fmt)
    if not isinstance(out, np.ndarray) or out.dtype != wanted or out.shape != shape:
        got = f"{out.dtype} {out.shape}" if isinstance(out, np.ndarray) else type(out).__name__
        raise OperandError(f"out must be an array {wanted} {shape}; got {got}")
    if not out.flags.writeable:
        raise OperandError("out is not writeable")
    return out.view(code_type(fmt.bits))


def _shown(tiles: list[Any], progress: bool | None) -> Any:
    """`tiles`, with a bar where there is something to show."""
    if progress is False or (progress is None and (len(tiles) < 2 or not sys.stderr.isatty())):
        return tiles
    try:
        from tqdm import tqdm
    except ImportError:
        return tiles
    return tqdm(tiles, desc="gemm", unit="tile", delay=0 if progress else 2)
