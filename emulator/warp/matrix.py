"""``mma``: the arithmetic of an instruction on matrices instead of lane registers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from dtypes import (
    FORMATS,
    Array,
    Format,
    array_from_codes,
    array_type,
    code_type,
    codes_from_array,
)
from emulator.arith import Engine, matmul
from emulator.arrays import accepts_tensors
from emulator.errors import EmulatorError, OperandError
from emulator.isa.instruction import Instruction
from emulator.isa.matrix import MatrixInstruction
from emulator.targets import Target
from emulator.warp.multiply import Undefined, check_undefined
from emulator.warp.opcode import as_instruction
from emulator.warp.sparse import check_metadata, matmul_selected, metadata, select

#: names of the axes, for messages where a size may be any
_AXES = {"A": ("m", "k"), "B": ("k", "n"), "C": ("m", "n")}


@accepts_tensors()
def mma(
    ins: Instruction | str,
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
    undefined: Undefined = "raise",
) -> Array:
    """D = A·B + C with the arithmetic of `ins`, or an opcode, on `target`; a leading batch
    broadcasts.

    `a` is ``(…, m, k)``, `b` ``(…, k, n)``, `c` ``(…, m, n)`` (None: zeros), as NumPy or ml_dtypes
    arrays of the operand's type (tf32 as float32), or with ``codes=True`` as unsigned element codes
    (tf32 as its 32-bit word). The result is of the same kind. m8n8k4.f16 computes one of its four
    computations per matrix given.

    A sparse instruction takes the full A, whose chunks must satisfy the pattern, or the compressed
    ``(…, m, k/2)`` with its metadata `nibbles` ``(…, m, chunks)``; ``undefined="hardware"``
    computes what an H200 does with nibbles that PTX leaves undefined. Block scales are codes, or of
    their ml_dtypes type: `scale_a` ``(…, m, v)`` and `scale_b` ``(…, v, n)``.

    Raises OperandError for arrays of another shape or type, UnsupportedError where the target
    lacks the instruction, UndefinedError for metadata that PTX leaves undefined.
    """
    ins = multiplying(ins)
    check_undefined(undefined)
    arithmetic = ins.arithmetic(target)
    stored = ins.stored_k if nibbles is not None else ins.k
    if ins.is_sparse and nibbles is None:
        _check_full(ins, a)
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
        nibbles = _array("nibbles", nibbles)
        _check_nibbles(ins, nibbles)
    elif ins.is_sparse:
        a, nibbles = metadata(ins, a)
    with batches_named(A=a, B=b, C=c, nibbles=nibbles, scale_a=scale_a, scale_b=scale_b):
        if ins.is_sparse:
            if undefined == "raise":
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
    """An instruction that multiplies, or its opcode; raises OperandError for anything else."""
    ins = as_instruction(ins, "an Instruction that multiplies")
    if not isinstance(ins, MatrixInstruction):
        raise OperandError(f"an instruction that multiplies is needed: mma or wgmma; got {ins}")
    return ins


def codes_of(
    name: str, values: Any, fmt: Format, shape: tuple[int | None, ...], codes: bool
) -> Array:
    """Codes of an operand: `values` are codes, or of the format's type.

    A size of the shape that is None may be any. Raises OperandError for arrays of another shape or
    type, and for codes that have too many bits.
    """
    array = _array(name, values)
    _check_shape(name, array, shape)
    if not codes:
        try:
            return codes_from_array(fmt, array)
        except TypeError as error:
            raise OperandError(f"{name}: {error}; {_advice(name, values, fmt)}") from None
    if array.dtype.kind != "u":
        raise OperandError(f"{name}: element codes are unsigned integers; got {array.dtype}")
    if array.size and int(array.max()) > fmt.code_mask:
        raise OperandError(
            f"{name}: code {int(array.max()):#x} does not fit the {fmt.bits} bits of {fmt.name}"
        )
    return array.astype(code_type(fmt.bits), copy=False)


def _array(name: str, values: Any) -> Array:
    try:
        return np.asarray(values)
    except ValueError:
        raise OperandError(f"{name}: the rows of the list are not of one length") from None


def _advice(name: str, values: Any, fmt: Format) -> str:
    """How to make an operand of the type that it must have."""
    codes = "element codes as unsigned integers with codes=True"
    type_ = array_type(fmt)
    if type_ is None:
        return f"pass {codes}"
    if fmt.bits == 1:
        return "pass 0 and 1 as uint8 with codes=True"
    wanted = f"{'np' if type_.type.__module__ == 'numpy' else 'ml_dtypes'}.{type_.name}"
    if not isinstance(values, np.ndarray):
        return f"np.array({name}, {wanted}) makes one"
    return f"cast it with .astype({wanted}), or pass {codes}"


def _check_full(ins: MatrixInstruction, a: Any) -> None:
    """A sparse A without nibbles is the full one."""
    if np.shape(_array("A", a))[-2:] == (ins.m, ins.stored_k):
        raise OperandError(
            f"A must be (…, {ins.m}, {ins.k}), or compressed (…, {ins.m}, {ins.stored_k}) with "
            f"nibbles= (…, {ins.m}, {ins.k // ins.chunk}); got {np.shape(a)}"
        )


def _check_nibbles(ins: MatrixInstruction, nibbles: Array) -> None:
    want = (ins.m, ins.k // ins.chunk)
    if nibbles.shape[-1:] == (ins.lanes,) or nibbles.shape[-2:] == (ins.lanes, 1):
        words = "e" if nibbles.shape[-1] == 1 else "e[..., None]"
        groups = ins.fragment("e").groups
        raise OperandError(
            f"nibbles must be (…, {want[0]}, {want[1]}); got {nibbles.shape}: of metadata words e, "
            f'ins.fragment("e").gather({words}){"[..., selector, :, :]" if groups > 1 else ""} '
            "are the nibbles"
        )
    _check_shape("nibbles", nibbles, want)


def _check_shape(name: str, array: Array, shape: tuple[int | None, ...]) -> None:
    got = array.shape[-len(shape) :]
    fits = len(got) == len(shape) and all(
        w is None or g == w for g, w in zip(got, shape, strict=True)
    )
    if not fits:
        names = _AXES.get(name, ("any",) * len(shape))
        want = ", ".join(n if w is None else str(w) for n, w in zip(names, shape, strict=True))
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
    scales = []
    for name, given, shape in (("scale_a", scale_a, (ins.m, v)), ("scale_b", scale_b, (v, ins.n))):
        array = _array(name, given)
        typed = array.dtype.kind != "u" and array.dtype == array_type(fmt)
        scales.append(codes_of(name, array, fmt, shape, codes=not typed))
    return scales[0], np.swapaxes(scales[1], -1, -2)
