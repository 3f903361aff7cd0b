"""``mma``: the arithmetic of an instruction on matrices instead of lane registers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dtypes import FORMATS, Array, array_from_codes, array_type, code_type
from emulator.arith import Engine, matmul
from emulator.arrays import accepts_tensors, as_array
from emulator.errors import OperandError, flag
from emulator.isa.instruction import Instruction
from emulator.isa.matrix import MatrixInstruction
from emulator.isa.recipe import Recipe
from emulator.matrices.misplaced import misplaced_named
from emulator.matrices.operands import (
    as_matrix_instruction,
    batches_named,
    check_shape,
    instruction_first_or_named,
    operand_codes,
    signed,
)
from emulator.targets import Target
from emulator.warp.call import Undefined, check_undefined
from emulator.warp.sparse import Compressed, check_metadata, matmul_compressed, metadata

if TYPE_CHECKING:
    from emulator.layout.instruction_descriptor import InstructionDescriptor


@instruction_first_or_named
@accepts_tensors()
def mma(
    instruction: Instruction | str,
    a: Any,
    b: Any,
    c: Any = None,
    *,
    target: str | Target | Recipe,
    idesc: InstructionDescriptor | int | None = None,
    codes: bool = False,
    scale_a: Any = None,
    scale_b: Any = None,
    nibbles: Any = None,
    engine: Engine = "auto",
    undefined: Undefined = "raise",
) -> Array:
    """D = A·B + C with the arithmetic of an instruction, or its opcode, on `target`, or by a
    `Recipe` in its place; a leading batch broadcasts. ``mma(a, b, c, instruction=…)`` is the same.

    `a` is ``(…, m, k)``, `b` ``(…, k, n)``, `c` ``(…, m, n)`` (None: zeros), as NumPy or ml_dtypes
    arrays of the operand's type (tf32 as float32), or with ``codes=True`` as unsigned element codes
    (tf32 as its 32-bit word). The result is of the same kind. m8n8k4.f16 computes one of its four
    computations per matrix given.

    A sparse instruction takes the full A, whose chunks must satisfy the pattern, or the compressed
    ``(…, m, k/2)`` with its metadata `nibbles` ``(…, m, chunks)``; ``undefined="hardware"``
    computes what an H200 does with nibbles that PTX leaves undefined. Block scales are codes, or of
    their ml_dtypes type: `scale_a` ``(…, m, v)`` and `scale_b` ``(…, v, n)``.

    A tcgen05.mma needs `idesc`, its InstructionDescriptor or the word of one, which says types and
    shape; a pair of CTAs computes one product.

    Raises OperandError for arrays of another shape or type, UnsupportedError where the target
    lacks the instruction, UndefinedError for metadata that PTX leaves undefined.
    """
    ins = as_matrix_instruction(instruction, idesc)
    check_undefined(undefined)
    codes = flag("codes=", codes)
    arithmetic = ins.arithmetic(target)
    stored = ins.stored_k if nibbles is not None else ins.k
    if ins.is_sparse and nibbles is None:
        _check_full(ins, a)
    sizes = {"m": ins.m, "n": ins.n, "k": ins.k}
    with misplaced_named(arithmetic, codes, sizes, a, b, c):
        a = operand_codes("A", a, arithmetic.a, (ins.m, stored), codes)
        b = operand_codes("B", b, arithmetic.b, (ins.k, ins.n), codes)
        if c is None:
            c = np.zeros((ins.m, ins.n), code_type(arithmetic.c.bits))
        else:
            c = operand_codes("C", c, arithmetic.c, (ins.m, ins.n), codes)
    a, b = signed(ins, a, b)
    scales = _scales(ins, scale_a, scale_b)
    if nibbles is not None:
        if not ins.is_sparse:
            raise OperandError(f"{ins} is not sparse and takes no nibbles=")
        nibbles = _check_nibbles(ins, nibbles)
    elif ins.is_sparse:
        a, nibbles = metadata(ins, a)
    with batches_named(A=a, B=b, C=c, nibbles=nibbles, scale_a=scale_a, scale_b=scale_b):
        if ins.is_sparse:
            if undefined == "raise":
                check_metadata(ins, nibbles, a, 0)
            d = matmul_compressed(
                ins, arithmetic, Compressed(a, nibbles, b, c, *scales), engine=engine
            )
        else:
            d = matmul(arithmetic, a, np.swapaxes(b, -1, -2), c, *scales, engine=engine)
    return d if codes else array_from_codes(arithmetic.d, d)


def _check_full(ins: MatrixInstruction, a: Any) -> None:
    """A sparse A without nibbles is the full one."""
    if np.shape(as_array(a, "A"))[-2:] == (ins.m, ins.stored_k):
        raise OperandError(
            f"A must be (…, {ins.m}, {ins.k}), or compressed (…, {ins.m}, {ins.stored_k}) with "
            f"nibbles= (…, {ins.m}, {ins.k // ins.chunk}); got {np.shape(a)}"
        )


def _check_nibbles(ins: MatrixInstruction, given: object) -> Array:
    """Metadata nibbles ``(…, m, chunks)``, or OperandError."""
    want, nibbles = (ins.m, ins.k // ins.chunk), as_array(given, "nibbles")
    if nibbles.dtype.kind not in "ui":
        raise OperandError(f"nibbles are integers; got {nibbles.dtype} {nibbles.shape}")
    if nibbles.shape[-1:] == (ins.lanes,) or nibbles.shape[-2:] == (ins.lanes, 1):
        words = "e" if nibbles.shape[-1] == 1 else "e[..., None]"
        groups = ins.fragment("e").groups
        raise OperandError(
            f"nibbles must be (…, {want[0]}, {want[1]}); got {nibbles.shape}: of metadata words e, "
            f'ins.fragment("e").gather({words}){"[..., selector, :, :]" if groups > 1 else ""} '
            "are the nibbles"
        )
    check_shape("nibbles", nibbles, want)
    if nibbles.size and not 0 <= int(nibbles.min()) <= int(nibbles.max()) <= 15:
        wrong = nibbles[(nibbles < 0) | (nibbles > 15)][0]
        raise OperandError(f"a nibble has 4 bits; got {int(wrong)}")
    return nibbles.astype(np.uint8, copy=False)


def _scales(
    ins: MatrixInstruction, scale_a: object, scale_b: object
) -> tuple[Array | None, Array | None]:
    if not ins.is_block_scaled:
        if scale_a is not None or scale_b is not None:
            raise OperandError(f"{ins} has no block scales")
        return None, None
    fmt, v = FORMATS[ins.scale_type], ins.scale_chunks
    if scale_a is None or scale_b is None:
        raise OperandError(f"{ins} needs scale_a= and scale_b=, codes of {fmt.name}")
    scales = []
    for name, given, shape in (("scale_a", scale_a, (ins.m, v)), ("scale_b", scale_b, (v, ins.n))):
        array = as_array(given, name)
        typed = array.dtype.kind != "u" and array.dtype == array_type(fmt)
        scales.append(operand_codes(name, array, fmt, shape, codes=not typed))
    return scales[0], np.swapaxes(scales[1], -1, -2)
