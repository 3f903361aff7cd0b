"""``gemm``: matrices of any size through one instruction, as the main loop of a kernel runs it."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from dtypes import Array, array_from_codes, array_type, code_type
from emulator.arith import Engine
from emulator.arith.engines import choose
from emulator.arrays import accepts_tensors
from emulator.errors import OperandError, UnsupportedError, flag, shown
from emulator.isa.instruction import Instruction
from emulator.isa.matrix import MatrixInstruction
from emulator.isa.recipe import Recipe
from emulator.matrices.operands import (
    as_matrix_instruction,
    batches_named,
    instruction_first_or_named,
    operand_codes,
)
from emulator.matrices.tiles import Order, accumulate, part_of, tiles_of
from emulator.targets import Target


@instruction_first_or_named
@accepts_tensors()
def gemm(
    a: Any,
    b: Any,
    c: Any = None,
    *,
    instruction: Instruction | str,
    target: str | Target | Recipe,
    codes: bool = False,
    engine: Engine = "auto",
    k_promote: int | None = None,
    out: Array | None = None,
    first_tile: int = 0,
    progress: bool | None = None,
) -> Array:
    """D = A·B + C of any size, accumulated over k in steps of the instruction's k.

    ``gemm(instruction, a, b, c)`` is the same as ``gemm(a, b, c, instruction=…)``.
    Each step's result is the accumulator of the next, as in a kernel's main loop; k is padded with
    zeros. `a` is ``(…, m, k)``, `b` ``(…, k, n)``, `c` ``(…, m, n)`` or None, as for `mma`.

    ``k_promote=128`` is the other order that kernels use (DeepGEMM for fp8): the chain starts from
    zero every `k_promote` elements of k, and each partial sum is added to an f32 total, which
    starts as C, rounded to nearest.

    Libraries on Hopper use wgmma, for fp8 with other bits than mma has, and on B200 tcgen05; with
    ``k_promote=128`` or in one chain, as they were asked.

    A `Recipe` may stand in the place of the target; one with `promote` says `k_promote` itself.

    D is computed tile by tile. `out` takes the result, an array of D's shape and type: what an
    interrupt leaves there is right, KeyboardInterrupt says how many tiles it is, and
    ``first_tile=`` that many goes on from there. `progress` shows a bar where tqdm is
    installed; None: on a terminal, once it takes more than two seconds.

    Dask arrays are computed tile by tile on a cluster; the result is a lazy Dask array.

    Raises OperandError for arrays that do not fit together, UnsupportedError for sparse and
    block-scaled instructions and for one whose C and D differ in type.
    """
    ins = dense(instruction)
    codes = flag("codes=", codes)
    progress = None if progress is None else flag("progress=", progress)
    arithmetic = ins.arithmetic(target)
    order = Order(arithmetic, ins.k, promotion(ins, k_promote, target), engine)
    choose(engine, 0)  # a wrong name is refused before anything is computed
    if any(hasattr(x, "__dask_graph__") for x in (a, b, c)):
        from emulator.matrices.dask_gemm import gemm_of_chunks

        if out is not None or first_tile:
            raise OperandError("out= and first_tile= are for arrays in memory, not for Dask's")
        return gemm_of_chunks(a, b, c, order, codes)
    a = operand_codes("A", a, arithmetic.a, (None, None), codes)
    m, k = a.shape[-2:]
    b = operand_codes("B", b, arithmetic.b, (k, None), codes)
    n = b.shape[-1]
    if c is None:
        c = np.zeros((m, n), code_type(arithmetic.c.bits))
    else:
        c = operand_codes("C", c, arithmetic.c, (m, n), codes)
    with batches_named(A=a, B=b, C=c):
        shape = (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2], c.shape[:-2]), m, n)
    tiles = list(tiles_of(shape))
    _check_first_tile(first_tile, 0 if out is None else len(tiles))
    d = _result(shape, order, codes, out)
    if out is not None:
        # Tiles that are written must not change operands that later tiles read.
        a, b, c = (x.copy() if np.may_share_memory(x, out) else x for x in (a, b, c))
    done = first_tile
    try:
        for tile in _shown(tiles[first_tile:], progress):
            batch, rows, columns = tile
            d[(*batch, rows, columns)] = accumulate(
                order,
                part_of(a, batch, rows, slice(None)),
                part_of(b, batch, slice(None), columns),
                part_of(c, batch, rows, columns),
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
    ins = as_matrix_instruction(instruction)
    if ins.is_sparse or ins.is_block_scaled or ins.c_type != ins.d_type:
        raise UnsupportedError(
            f"gemm takes dense instructions without block scales whose C and D are of one type; "
            f"got {ins}"
        )
    return ins


def promotion(ins: MatrixInstruction, k_promote: int | None, target: object = None) -> int:
    """`k_promote`, checked, or what a recipe in the place of the target says; 0 for none."""
    if isinstance(target, Recipe) and target.promote:
        if k_promote is not None:
            raise OperandError(
                f"the recipe {target.name!r} has promote={target.promote}: leave k_promote= out"
            )
        k_promote = target.promote
    if k_promote is None:
        return 0
    if ins.d_type != "f32":
        raise OperandError(f"k_promote= adds partial sums to an f32 total; {ins} has {ins.d_type}")
    if not isinstance(k_promote, (int, np.integer)) or k_promote <= 0 or k_promote % ins.k:
        raise OperandError(
            f"k_promote is a multiple of {ins.k}, the k of {ins}; got {shown(k_promote)}"
        )
    return int(k_promote)


def _check_first_tile(first_tile: object, last: int) -> None:
    """Tiles that are skipped must be there already, in the `out` of a run before."""
    if not isinstance(first_tile, (int, np.integer)) or not 0 <= first_tile <= last:
        raise OperandError(
            f"first_tile is an integer 0 … {last}"
            f"{'' if last else ' (others need the out= of the run that they go on with)'}; "
            f"got {shown(first_tile)}"
        )


def _result(shape: tuple[int, ...], order: Order, codes: bool, out: Array | None) -> Array:
    """Where the codes of D go: a new array, or a view of the one that the caller gave."""
    fmt = order.arithmetic.d
    if out is None:
        return np.empty(shape, code_type(fmt.bits))
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
