"""Sparse A of any size: what is given, checked and compressed, and a chain of instructions of it.

A chain is computed with A written out in full, zeros where it stores nothing: all rows share one B
then, as in a dense product. What that is wrong for, columns of B with an infinity or a NaN that a
written-out zero would meet, goes through `matmul_compressed`, one instruction after the other.
"""

from __future__ import annotations

import numpy as np

from dtypes import Array
from emulator.arith import Engine, matmul
from emulator.arith.arrangement import with_gaps
from emulator.arith.fast.factors import is_special
from emulator.arith.recipes import Arithmetic
from emulator.arrays import as_array
from emulator.errors import OperandError
from emulator.isa.matrix import MatrixInstruction
from emulator.matrices.operands import check_shape
from emulator.warp.sparse import Compressed, check_metadata, matmul_compressed, metadata, spread_out

#: a nibble that every sparse type defines: for what is padded
_PADDING = 0b0100


def compressed(ins: MatrixInstruction, a: Array, given: object | None) -> tuple[Array, Array]:
    """Codes of A and nibbles ``(…, m, chunks)`` of whole instructions along k.

    `a` is the full ``(…, m, k)`` without nibbles, else the stored ``(…, m, k / 2)``. Raises
    OperandError for a full A that does not satisfy the pattern and for nibbles of another shape,
    UndefinedError for nibbles that PTX does not define.
    """
    if given is None:
        missing = -a.shape[-1] % ins.k
        return metadata(ins, np.pad(a, [(0, 0)] * (a.ndim - 1) + [(0, missing)]))
    nibbles, slots = as_array(given, "nibbles"), ins.stored_k * ins.chunk // ins.k
    if nibbles.dtype.kind not in "ui":
        raise OperandError(f"nibbles are integers; got {nibbles.dtype} {nibbles.shape}")
    if a.shape[-1] % slots:
        raise OperandError(
            f"A stores {slots} elements for each nibble; got {a.shape[-1]} columns, which are no "
            "whole chunks"
        )
    check_shape("nibbles", nibbles, (a.shape[-2], a.shape[-1] // slots))
    check_metadata(ins, nibbles, a)
    missing = -nibbles.shape[-1] % (ins.k // ins.chunk)
    axes = [(0, 0)] * (nibbles.ndim - 1)
    nibbles = np.pad(nibbles, [*axes, (0, missing)], constant_values=_PADDING)
    a = np.pad(a, [(0, 0)] * (a.ndim - 1) + [(0, missing * slots)])
    return a, nibbles.astype(np.uint8, copy=False)


def matmul_sparse(
    ins: MatrixInstruction, arithmetic: Arithmetic, x: Compressed, engine: Engine = "auto"
) -> Array:
    """`matmul` of a compressed A and B by columns ``(…, n, k)``."""
    written_out = with_gaps(arithmetic, ins.stored_k * ins.chunk // ins.k)
    if written_out is None or engine == "reference":
        return _one_by_one(ins, arithmetic, x, engine)
    full = spread_out(ins, x.a, x.nibbles)
    d = matmul(written_out, full, *x[2:], k=ins.k, engine=engine)
    fmt = arithmetic.b
    if not fmt.is_float or fmt.specials == "none":
        return d
    special = is_special(fmt, x.b)
    columns = np.nonzero(special.any((*range(x.b.ndim - 2), -1)))[0]
    if len(columns):
        by = x.scale_b if x.scale_b is None else x.scale_b[..., columns, :]
        some = x._replace(b=x.b[..., columns, :], c=x.c[..., columns], scale_b=by)
        d[..., columns] = _one_by_one(ins, arithmetic, some, engine)
    return d


def _one_by_one(
    ins: MatrixInstruction, arithmetic: Arithmetic, given: Compressed, engine: Engine
) -> Array:
    """One instruction after the other, on tiles of its m rows."""
    c, count, m = given.c, given.b.shape[-1] // ins.k, given.a.shape[-2]

    def tiles(x: Array) -> Array:
        """Rows to tiles of m rows, instructions along k first: ``(count, …, tiles, m, each)``."""
        x = np.pad(x, [(0, 0)] * (x.ndim - 2) + [(0, -m % ins.m), (0, 0)], mode="edge")
        x = x.reshape(*x.shape[:-2], -1, ins.m, count, x.shape[-1] // count)
        return np.moveaxis(x, -2, 0)

    def columns(x: Array) -> Array:
        x = x.reshape(*x.shape[:-1], count, x.shape[-1] // count)
        return np.moveaxis(x, -2, 0)[..., None, :, :]

    p, e, q = tiles(given.a), tiles(given.nibbles), columns(given.b).swapaxes(-1, -2)
    u = None if given.scale_a is None else tiles(given.scale_a)
    v = None if given.scale_b is None else columns(given.scale_b)
    pad = [(0, 0)] * (c.ndim - 2) + [(0, -m % ins.m), (0, 0)]
    x = np.pad(c, pad).reshape(*c.shape[:-2], -1, ins.m, c.shape[-1])
    for i in range(count):
        scales = (None if y is None else y[i] for y in (u, v))
        one = Compressed(p[i], e[i], q[i], x, *scales)
        x = matmul_compressed(ins, arithmetic, one, engine=engine)
    return x.reshape(*x.shape[:-3], -1, x.shape[-1])[..., :m, :]
