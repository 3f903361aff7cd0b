"""``mma``: the arithmetic of an instruction on matrices instead of lane registers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from dtypes import FORMATS, Array, Format, array_from_codes, code_type, codes_from_array
from emulator.arith import Engine, matmul
from emulator.errors import EmulatorError, OperandError
from emulator.isa.instruction import Instruction
from emulator.isa.matrix import MatrixInstruction
from emulator.targets import Target
from emulator.warp.arrays import accepts_tensors
from emulator.warp.sparse import check_metadata, matmul_selected, metadata, select


@accepts_tensors()
def mma(
    ins: Instruction,
    a: Any,
    b: Any,
    c: Any = None,
    *,
    target: str | Target,
    codes: bool = False,
    scale_a: Any = None,
    scale_b: Any = None,
    nibbles: Any = None,
    engine: Engine = "auto",
) -> Array:
    """D = A·B + C with the arithmetic of `ins` on `target`; a leading batch broadcasts.

    `a` is ``(…, m, k)``, `b` ``(…, k, n)``, `c` ``(…, m, n)`` (None: zeros), as NumPy or ml_dtypes
    arrays of the operand's type (tf32 as float32), or with ``codes=True`` as unsigned element codes
    (tf32 as its 32-bit word). The result is of the same kind. m8n8k4.f16 computes one of its four
    computations per matrix given.

    A sparse instruction takes the full A, whose chunks must satisfy the pattern, or the compressed
    ``(…, m, k/2)`` with its metadata `nibbles` ``(…, m, chunks)``. Block scales are codes:
    `scale_a` ``(…, m, v)`` and `scale_b` ``(…, v, n)``.

    Raises OperandError for arrays of another shape or type, UnsupportedError where the target
    lacks the instruction, UndefinedError for metadata that PTX leaves undefined.
    """
    ins = multiplying(ins)
    arithmetic = ins.arithmetic(target)
    stored = ins.stored_k if nibbles is not None else ins.k
    a = codes_of("A", a, arithmetic.a, (ins.m, stored), codes)
    b = codes_of("B", b, arithmetic.b, (ins.k, ins.n), codes)
    if c is None:
        c = np.zeros((ins.m, ins.n), code_type(arithmetic.c.bits))
    else:
        c = codes_of("C", c, arithmetic.c, (ins.m, ins.n), codes)
    scales = _scales(ins, scale_a, scale_b)
    if nibbles is not None:
        if not ins.is_sparse:
            raise OperandError(f"{ins} is not sparse and takes no nibbles=")
        nibbles = np.asarray(nibbles)
        _check_shape("nibbles", nibbles, (ins.m, ins.k // ins.chunk))
    elif ins.is_sparse:
        a, nibbles = metadata(ins, a)
    with batches_named(A=a, B=b, C=c, nibbles=nibbles, scale_a=scale_a, scale_b=scale_b):
        if ins.is_sparse:
            check_metadata(ins, nibbles, a, 0)
            d = matmul_selected(arithmetic, a, select(ins, nibbles, b), c, *scales, engine=engine)
        else:
            d = matmul(arithmetic, a, np.swapaxes(b, -1, -2), c, *scales, engine=engine)
    return d if codes else array_from_codes(arithmetic.d, d)


@contextmanager
def batches_named(**operands: Any) -> Iterator[None]:
    """Says which shapes they are when batch axes do not broadcast."""
    try:
        yield
    except EmulatorError:
        raise
    except ValueError as error:
        # All else was checked before: only the batch axes are left that can fail.
        shapes = ", ".join(f"{n} {np.shape(x)}" for n, x in operands.items() if x is not None)
        raise OperandError(f"the batch axes do not broadcast: {shapes}") from error


def multiplying(ins: object) -> MatrixInstruction:
    if not isinstance(ins, MatrixInstruction):
        raise OperandError(
            f"an Instruction that multiplies is needed (Instruction.parse); got {ins!r:.80}"
        )
    return ins


def codes_of(
    name: str, values: Any, fmt: Format, shape: tuple[int | None, ...], codes: bool
) -> Array:
    array = np.asarray(values)
    _check_shape(name, array, shape)
    if not codes:
        try:
            return codes_from_array(fmt, array)
        except TypeError as error:
            raise OperandError(
                f"{name}: {error}; cast it with .astype, or pass element codes with codes=True"
            ) from None
    if array.dtype.kind != "u":
        raise OperandError(f"{name}: element codes are unsigned integers; got {array.dtype}")
    if array.size and int(array.max()) > fmt.code_mask:
        raise OperandError(
            f"{name}: code {int(array.max()):#x} does not fit the {fmt.bits} bits of {fmt.name}"
        )
    return array.astype(code_type(fmt.bits), copy=False)


def _check_shape(name: str, array: Array, shape: tuple[int | None, ...]) -> None:
    got = array.shape[-len(shape) :]
    fits = len(got) == len(shape) and all(
        w is None or g == w for g, w in zip(got, shape, strict=True)
    )
    if not fits:
        want = ", ".join("any" if w is None else str(w) for w in shape)
        raise OperandError(f"{name} must be (…, {want}); got {array.shape}")


def _scales(
    ins: MatrixInstruction, scale_a: Any, scale_b: Any
) -> tuple[Array | None, Array | None]:
    if not ins.is_block_scaled:
        if scale_a is not None or scale_b is not None:
            raise OperandError(f"{ins} has no block scales")
        return None, None
    fmt, v = FORMATS[ins.scale_type], ins.scale_chunks
    if scale_a is None or scale_b is None:
        raise OperandError(f"{ins} needs scale_a= and scale_b=, codes of {fmt.name}")
    a = codes_of("scale_a", scale_a, fmt, (ins.m, v), True)
    b = codes_of("scale_b", scale_b, fmt, (v, ins.n), True)
    return a, np.swapaxes(b, -1, -2)
