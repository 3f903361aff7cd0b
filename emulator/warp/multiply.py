"""Executes mma, mma.sp and wgmma in five stages: unpack and gather the operands into matrices of
codes, select what a sparse A meets, compute the dot products, scatter and pack the result."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from dtypes import Array, padding_is_zero
from emulator.arith import Engine, matmul
from emulator.errors import OperandError, UndefinedError
from emulator.isa.matrix import MatrixInstruction
from emulator.layout.descriptor import as_words
from emulator.layout.fragment import Fragment
from emulator.memory.descriptors import load_tile
from emulator.memory.space import Space
from emulator.targets import Target
from emulator.warp.immediates import is_immediate
from emulator.warp.scales import gather_scales
from emulator.warp.sparse import (
    check_metadata,
    check_selector,
    gather_metadata,
    matmul_selected,
    select,
)

Undefined = Literal["raise", "hardware"]

#: optional operands of execute, by the instructions that take them
_OPTIONS = {
    "sparse": ("selector",),
    "block scale": (
        "scale_a", "scale_b", "byte_id_a", "thread_id_a", "byte_id_b", "thread_id_b",
    ),
    "wgmma": (
        "shared", "scale_d", "imm_scale_a", "imm_scale_b", "imm_trans_a", "imm_trans_b",
    ),
}  # fmt: skip


def multiply(
    ins: MatrixInstruction,
    operands: tuple[Any, ...],
    options: dict[str, Any],
    target: Target,
    engine: Engine,
    undefined: Undefined,
) -> Array:
    """The registers of D; see `execute` for the operands, options and errors."""
    _check_options(ins, options)
    arithmetic = ins.arithmetic(target)
    names = ["a", "b_descriptor" if ins.is_wgmma else "b", "d" if ins.is_wgmma else "c"]
    names += ["e"] if ins.is_sparse else []
    if len(operands) != len(names):
        raise OperandError(
            f"{ins} takes {len(names)} operands ({', '.join(names)}); got {len(operands)}"
        )
    try:
        if ins.is_wgmma:
            memory = {name: value for name, value in options.items() if name != "selector"}
            a, b, c, sign_b = _wgmma_operands(ins, *operands[:3], **memory)
        else:
            a, b, c = (_gather(ins.fragment(x), y) for x, y in zip("abc", operands, strict=False))
            sign_b = 0
        scales = _scales(ins, options) if ins.is_block_scaled else ()
        if ins.is_sparse:
            selector = options.get("selector", 0)
            columns = _select(ins, a, b, operands[3], selector, undefined)
        else:
            columns = np.swapaxes(b, -1, -2)
        # imm-scale-b acts on the selected operand: it shows where a tf32 nibble mixes two words.
        if sign_b:
            columns = columns ^ columns.dtype.type(sign_b)
        compute = matmul_selected if ins.is_sparse else matmul
        d = compute(arithmetic, a, columns, c, *scales, engine=engine)
    except (OperandError, UndefinedError):
        raise
    except ValueError as error:
        # Everything else was checked: only batch axes are left that can fail to broadcast.
        given = dict(zip(names, operands, strict=True)) | options
        shapes = ", ".join(f"{n} {np.shape(x)}" for n, x in given.items() if np.ndim(x))
        raise OperandError(f"the batch axes do not broadcast: {shapes}") from error
    return ins.fragment("d").scatter(d)


def check_undefined(given: object) -> None:
    """OperandError where `undefined=` is neither "raise" nor "hardware"."""
    if not isinstance(given, str) or given not in ("raise", "hardware"):
        raise OperandError(f"undefined= is 'raise' or 'hardware'; got {given!r:.80}")


def _check_options(ins: MatrixInstruction, options: dict[str, Any]) -> None:
    takes = {"sparse": ins.is_sparse, "block scale": ins.is_block_scaled, "wgmma": ins.is_wgmma}
    legal = [name for what, yes in takes.items() if yes for name in _OPTIONS[what]]
    for name in options:
        if name not in legal:
            raise OperandError(
                f"{ins} takes no {name}=; its options are {', '.join(legal) or 'none'}"
            )


def _gather(fragment: Fragment, registers: Array) -> Array:
    if not fragment.place.padding:
        return fragment.gather(registers)
    words = fragment.check_registers(registers)
    if not padding_is_zero(words, fragment.place):
        _, low, bits = fragment.place
        raise UndefinedError(
            f"operand {fragment.operand}: bits that hold no part of an element are set; "
            f"{fragment.fmt.name} uses bits {low}…{low + bits - 1} of each byte, the rest must be 0"
        )
    return fragment.gather(words)


def _select(
    ins: MatrixInstruction, a: Array, b: Array, e: Array, selector: int, undefined: Undefined
) -> Array:
    chosen = check_selector(ins, selector)
    nibbles = gather_metadata(ins, e, chosen)
    if undefined == "raise":
        check_metadata(ins, nibbles, a, chosen)
    return select(ins, nibbles, b)


def _scales(ins: MatrixInstruction, options: dict[str, Any]) -> tuple[Array, Array]:
    """scale_a ``(…, m, v)`` and scale_b ``(…, n, v)``, as `matmul` takes them."""
    out = []
    for operand in ("scale_a", "scale_b"):
        x = operand[-1]
        if options.get(operand) is None:
            raise OperandError(f"{ins} needs {operand}=, one uint32 word of scales per lane")
        out.append(gather_scales(
            ins, operand, options[operand], options.get(f"byte_id_{x}", 0),
            options.get(f"thread_id_{x}", 0),
        ))  # fmt: skip
    return out[0], np.swapaxes(out[1], -1, -2)


def _wgmma_operands(
    ins: MatrixInstruction,
    a: Array,
    b_descriptor: Array,
    d: Array,
    shared: Any = None,
    scale_d: Any = True,
    imm_scale_a: int = 1,
    imm_scale_b: int = 1,
    imm_trans_a: int = 0,
    imm_trans_b: int = 0,
) -> tuple[Array, Array, Array, int]:
    """A ``(…, 64, stored k)``, B ``(…, k, n)``, the accumulator, and the sign bit to flip in B."""
    memory = Space.of(shared, "shared")
    a, b_descriptor = as_words(a), as_words(b_descriptor)
    from_registers = np.ndim(a) > 0 and np.asarray(a).dtype != np.uint64
    _check_immediates(ins, imm_scale_a, imm_scale_b, imm_trans_a, imm_trans_b, from_registers)
    c = ins.fragment("d").gather(d)
    if from_registers:
        a = _gather(ins.fragment("a"), a)
    else:
        major = "mn" if imm_trans_a else "k"
        a = load_tile(memory, a, ins.m, ins.stored_k, ins.a_place, major, "a")
    major = "mn" if imm_trans_b else "k"
    b = load_tile(memory, b_descriptor, ins.n, ins.k, ins.b_place, major, "b")
    sign = ins.fragment("a").fmt.sign_mask
    if imm_scale_a == -1:
        a = a ^ a.dtype.type(sign)
    keep = np.asarray(scale_d)
    if keep.dtype != np.bool_ and not np.isin(keep, (0, 1)).all():
        raise OperandError(f"scale_d is true or false, or an array of them; got {scale_d!r:.80}")
    # scale-d = 0: the accumulator is not read; a zero takes no part in any sum.
    c = np.where(keep.astype(np.bool_)[..., None, None], c, c.dtype.type(0))
    return a, np.swapaxes(b, -1, -2), c, sign if imm_scale_b == -1 else 0


def _check_immediates(
    ins: MatrixInstruction,
    scale_a: int,
    scale_b: int,
    trans_a: int,
    trans_b: int,
    from_registers: bool,
) -> None:
    fmt = ins.fragment("a").fmt
    signs = (1, -1) if fmt.is_float else (1,)
    majors = (0, 1) if fmt.bits == 16 else (0,)
    for name, given, legal in (
        ("imm_scale_a", scale_a, signs),
        ("imm_scale_b", scale_b, signs),
        ("imm_trans_a", trans_a, (0,) if from_registers else majors),
        ("imm_trans_b", trans_b, majors),
    ):
        if not is_immediate(given, legal):
            why = " with A from registers" if from_registers and name == "imm_trans_a" else ""
            raise OperandError(
                f"{name} of {ins}{why} is {' or '.join(map(str, legal))}; got {given!r:.80}"
            )
