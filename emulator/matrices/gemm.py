"""``gemm``: matrices of any size through one instruction, as the main loop of a kernel runs it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np

from dtypes import Array, array_from_codes, array_type, code_type
from emulator.arith import Engine
from emulator.arith.engines import choose
from emulator.arrays import accepts_tensors
from emulator.errors import OperandError, UnsupportedError, as_integer, flag, one_of, shown
from emulator.isa.instruction import Instruction
from emulator.isa.matrix import MatrixInstruction
from emulator.isa.recipe import Recipe
from emulator.matrices.misplaced import misplaced_named
from emulator.matrices.operands import (
    as_matrix_instruction,
    batches_named,
    instruction_first_or_named,
    operand_codes,
    signed,
)
from emulator.matrices.scales import ScaleLayout, scale_codes
from emulator.matrices.sparse_tiles import compressed
from emulator.matrices.tiles import Order, accumulate, part_of, tiles_of
from emulator.targets import Target

if TYPE_CHECKING:
    from emulator.layout.instruction_descriptor import InstructionDescriptor

#: distribution of the steps along k over the parts of split_k
KOrder = Literal["ascending", "sliced"]


class OperandCodes(NamedTuple):
    """Codes of the operands, as `accumulate` takes them."""

    a: Array
    b: Array
    c: Array
    nibbles: Array | None
    scale_a: Array | None
    scale_b: Array | None

    def shape(self) -> tuple[int, ...]:
        """The shape of D."""
        names = ("A", "B", "C", "nibbles", "scale_a", "scale_b")
        given = {name: x for name, x in zip(names, self, strict=True) if x is not None}
        with batches_named(**given):
            batch = np.broadcast_shapes(*(x.shape[:-2] for x in given.values()))
        return (*batch, *self.c.shape[-2:])

    def apart_from(self, out: Array) -> OperandCodes:
        """Operands that do not change where `out` is written."""
        kept = (x.copy() if x is not None and np.may_share_memory(x, out) else x for x in self)
        return OperandCodes(*kept)  # type: ignore[arg-type]

    def tile(self, order: Order, batch: tuple[slice, ...], rows: slice, columns: slice) -> Array:
        """The codes of one tile of D."""
        whole = slice(None)
        cuts = (rows, whole), (whole, columns), (rows, columns), (rows, whole), (rows, whole), (
            whole, columns,
        )  # fmt: skip
        a, b, c, *more = (
            None if x is None else part_of(x, batch, *cut)
            for x, cut in zip(self, cuts, strict=True)
        )
        assert a is not None and b is not None and c is not None
        return accumulate(order, a, b, c, *(more if any(x is not None for x in more) else ()))


@instruction_first_or_named
@accepts_tensors()
def gemm(
    a: object,
    b: object,
    c: object = None,
    *,
    instruction: Instruction | str,
    target: str | Target | Recipe,
    idesc: InstructionDescriptor | int | None = None,
    codes: bool = False,
    scale_a: object = None,
    scale_b: object = None,
    scale_layout: ScaleLayout = "matrix",
    nibbles: object = None,
    engine: Engine = "auto",
    k_promote: int | None = None,
    split_k: int = 1,
    order: KOrder = "ascending",
    out: Array | None = None,
    first_tile: int = 0,
    progress: bool | None = None,
) -> Array:
    """D = A·B + C of any size, accumulated over k in steps of the instruction's k.

    ``gemm(instruction, a, b, c)`` is the same as ``gemm(a, b, c, instruction=…)``.
    Each step's result is the accumulator of the next, as in a kernel's main loop; k is padded with
    zeros. `a` is ``(…, m, k)``, `b` ``(…, k, n)``, `c` ``(…, m, n)`` or None, as for `mma`.

    A sparse instruction takes the full A, whose chunks must satisfy the pattern, or the stored
    ``(…, m, k/2)`` with its metadata `nibbles` ``(…, m, chunks)``. A block-scaled one needs
    `scale_a` ``(…, m, k/S)`` and `scale_b` ``(…, k/S, n)`` for every S elements of k, as codes or
    as the types that libraries use: float8_e8m0fnu for ue8m0, float8_e4m3fn for ue4m3.
    ``scale_layout="128x4"`` takes both as cuBLAS and CUTLASS keep them, in tiles of 128 rows (of A,
    or columns of B) by 4 scales.

    Kernels have other orders than one chain, with partial sums in f32, each added to the total with
    one rounding to nearest:
    ``k_promote=128`` (DeepGEMM's for fp8; recorded on an H200 for ``torch._scaled_mm`` without fast
    accumulation): the chain starts from zero every `k_promote` elements, and each partial sum is
    added to a total, which starts as C.
    ``split_k=s``: the steps along k are cut in `s` runs whose lengths differ by one at most. Each
    run is a chain of its own, the first from C, the others from zero, and their sums are added to
    the first in ascending order: a split-K kernel with its sums in f32 in a workspace.
    ``order="sliced"`` with ``split_k=s``: the steps are dealt to the `s` chains in turn, as
    kernels whose warps share out each tile of k do (sliced-K); "ascending" is the order above.
    Of the last two no recording tells which kernels of libraries take which.

    A tcgen05.mma needs `idesc`, as for `mma`; of its shape k alone counts here.

    Libraries on Hopper use wgmma, for fp8 with other bits than mma has, and on B200 tcgen05; with
    ``k_promote=128`` or in one chain, as they were asked.

    A `Recipe` may stand in the place of the target; one with `promote` says `k_promote` itself.

    D is computed tile by tile. `out` takes the result, an array of D's shape and type: what an
    interrupt leaves there is right, KeyboardInterrupt says how many tiles it is, and
    ``first_tile=`` that many goes on from there. `progress` shows a bar where tqdm is
    installed; None: on a terminal, once it takes more than two seconds.

    Dask arrays are computed tile by tile on a cluster; the result is a lazy Dask array.

    Raises OperandError for arrays that do not fit together, UndefinedError for metadata that PTX
    leaves undefined, UnsupportedError for an instruction whose C and D differ in type, and for
    Dask arrays with a sparse or block-scaled one.
    """
    ins = accumulating(instruction, idesc)
    codes = flag("codes=", codes)
    progress = None if progress is None else flag("progress=", progress)
    arithmetic = ins.arithmetic(target)
    how = Order(
        arithmetic,
        ins.k,
        promotion(ins, k_promote, target),
        engine,
        ins if ins.is_sparse else None,
        *split(ins, split_k, order),
    )
    choose(engine, 0)  # a wrong name is refused before anything is computed
    if any(hasattr(x, "__dask_graph__") for x in (a, b, c)):
        from emulator.matrices.dask_gemm import gemm_of_chunks

        if out is not None or first_tile:
            raise OperandError("out= and first_tile= are for arrays in memory, not for Dask's")
        plain = not (ins.is_sparse or ins.is_block_scaled or how.split > 1)
        if not plain or any(ins.negated):
            raise UnsupportedError(
                "gemm of Dask arrays takes dense instructions without block scales, split_k= or "
                "negated matrices"
            )
        return gemm_of_chunks(a, b, c, how, codes)
    product = _product(ins, how, (a, b, c, nibbles), (scale_a, scale_b), scale_layout, codes)
    return _computed(how, product, codes, out, first_tile, progress)


def _product(
    ins: MatrixInstruction,
    order: Order,
    given: tuple[Any, Any, Any, Any],
    scales: tuple[Any, Any],
    scale_layout: ScaleLayout,
    codes: bool,
) -> OperandCodes:
    """The operands of a product, checked."""
    arithmetic, (a, b, c, nibbles) = order.arithmetic, given
    with misplaced_named(arithmetic, codes, {}, a, b, c):
        a = operand_codes("A", a, arithmetic.a, (None, None), codes)
        m, k = a.shape[-2], a.shape[-1] * (1 if nibbles is None else 2)
        b = operand_codes("B", b, arithmetic.b, (k, None), codes)
        n = b.shape[-1]
        if c is None:
            c = np.zeros((m, n), code_type(arithmetic.c.bits))
        else:
            c = operand_codes("C", c, arithmetic.c, (m, n), codes)
    a, b = signed(ins, a, b)
    if ins.is_sparse:
        a, nibbles = compressed(ins, a, nibbles)
    elif nibbles is not None:
        raise OperandError(f"{ins} is not sparse and takes no nibbles=")
    return OperandCodes(a, b, c, nibbles, *scale_codes(ins, *scales, m, n, k, scale_layout))


def _computed(
    order: Order,
    product: OperandCodes,
    codes: bool,
    out: Array | None,
    first_tile: int,
    progress: bool | None,
) -> Array:
    """D, tile by tile."""
    shape = product.shape()
    tiles = list(tiles_of(shape))
    _check_first_tile(first_tile, 0 if out is None else len(tiles))
    d = _result(shape, order, codes, out)
    if out is not None:
        # Tiles that are written must not change operands that later tiles read.
        product = product.apart_from(out)
    done = first_tile
    try:
        for batch, rows, columns in _shown(tiles[first_tile:], progress):
            d[(*batch, rows, columns)] = product.tile(order, batch, rows, columns)
            done += 1
    except KeyboardInterrupt:
        if out is None:
            raise
        raise KeyboardInterrupt(
            f"{done} of {len(tiles)} tiles are in out; gemm(…, out=out, first_tile={done}) goes on"
        ) from None
    if out is not None:
        return out
    return d if codes else array_from_codes(order.arithmetic.d, d)


def accumulating(
    instruction: Instruction | str, idesc: InstructionDescriptor | int | None = None
) -> MatrixInstruction:
    """The instruction, if its result can be its accumulator."""
    ins = as_matrix_instruction(instruction, idesc)
    if ins.c_type != ins.d_type:
        raise UnsupportedError(f"gemm takes instructions whose C and D are of one type; got {ins}")
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
    promote = as_integer(k_promote)
    if promote is None or promote <= 0 or promote % ins.k:
        raise OperandError(
            f"k_promote is a multiple of {ins.k}, the k of {ins}; got {shown(k_promote)}"
        )
    return promote


def split(ins: MatrixInstruction, split_k: int, order: KOrder) -> tuple[int, bool]:
    """`split_k`, and whether its parts are slices; checked."""
    one_of("order", order, get_args(KOrder))
    parts = as_integer(split_k)
    if parts is None or parts < 1:
        raise OperandError(f"split_k is a number of parts, 1 or more; got {shown(split_k)}")
    if parts > 1 and ins.d_type != "f32":
        raise OperandError(f"split_k= adds partial sums in f32; {ins} has {ins.d_type}")
    if order == "sliced" and parts == 1:
        raise OperandError('order="sliced" deals the steps along k to split_k= chains: give it too')
    return parts, order == "sliced"


def _check_first_tile(first_tile: object, last: int) -> None:
    """Tiles that are skipped must be there already, in the `out` of a run before."""
    first = as_integer(first_tile)
    if first is None or not 0 <= first <= last:
        raise OperandError(
            f"first_tile is an integer 0 … {last}"
            f"{'' if last else ' (others need the out= of the run that they go on with)'}; "
            f"got {shown(first_tile)}"
        )


def _result(shape: tuple[int, ...], order: Order, codes: bool, out: Array | None) -> Array:
    """The array for the codes of D: a new one, or a view of the caller's."""
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
