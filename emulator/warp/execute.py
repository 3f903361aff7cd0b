"""``execute``: one instruction on the registers of a warp or warpgroup, for a whole batch of them.

Five stages: unpack and gather the operands into matrices of codes, select what a sparse A meets,
compute the dot products, scatter and pack the result.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from dtypes import Array, padding_is_zero
from emulator.arith import Engine, dot
from emulator.errors import OperandError, UndefinedError
from emulator.isa.instruction import Instruction
from emulator.layout.fragment import Fragment
from emulator.targets import Target
from emulator.warp.memory import check_shared, load_tile
from emulator.warp.scales import gather_scales
from emulator.warp.sparse import check_metadata, check_selector, select

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


def execute(
    ins: Instruction,
    *operands: Any,
    target: str | Target,
    engine: Engine = "auto",
    undefined: Undefined = "raise",
    **options: Any,
) -> Array:
    """Executes `ins` as `target` does; registers in, registers out, nothing changed in place.

    Operands, in PTX order after d; leading axes are a batch and broadcast:

    * mma: ``a, b, c``, words ``(…, 32, registers)``, uint32 or uint64 for f64;
    * mma.sp: ``a, b, c, e`` with e ``uint32 (…, 32)``, and ``selector=``;
    * block scaling: ``scale_a=``, ``scale_b=`` ``uint32 (…, 32)``, and ``byte_id_a=``,
      ``thread_id_a=``, ``byte_id_b=``, ``thread_id_b=``;
    * wgmma: ``a, b_descriptor, d`` and for wgmma.sp ``e``, where a is registers ``(…, 128, 4)`` or
      descriptors ``uint64 (…)``; ``shared=`` memory ``uint8 (…, bytes)``, ``scale_d=`` a bool or
      an array over the batch, ``imm_scale_a=`` and ``imm_scale_b=`` 1 or -1, ``imm_trans_a=`` and
      ``imm_trans_b=`` 0 or 1.

    ``undefined="hardware"`` computes what an H200 does with metadata that PTX leaves undefined.

    Raises UnsupportedError where the target lacks the instruction, OperandError for operands of a
    wrong count, shape, type or range, UndefinedError for what PTX leaves undefined.
    """
    if not isinstance(ins, Instruction):
        raise OperandError(f"execute takes an Instruction (Instruction.parse); got {ins!r}")
    _check_options(ins, options)
    if undefined not in ("raise", "hardware"):
        raise OperandError(f"undefined= is 'raise' or 'hardware'; got {undefined!r}")
    arithmetic = ins.arithmetic(target)
    names = ["a", "b_descriptor" if ins.is_wgmma else "b", "d" if ins.is_wgmma else "c"]
    names += ["e"] if ins.is_sparse else []
    if len(operands) != len(names):
        raise OperandError(
            f"{ins} takes {len(names)} operands ({', '.join(names)}); got {len(operands)}"
        )
    if ins.is_wgmma:
        memory = {name: value for name, value in options.items() if name != "selector"}
        a, b, c = _wgmma_operands(ins, *operands[:3], **memory)
    else:
        a, b, c = (_gather(ins.fragment(x), y) for x, y in zip("abc", operands, strict=False))
    scales: dict[str, Array] = {}
    if ins.is_block_scaled:
        scales = _scales(ins, options)

    by_row = a[..., :, None, :]
    if ins.is_sparse:
        by_column = _select(ins, a, b, operands[3], options.get("selector", 0), undefined)
    else:
        by_column = np.swapaxes(b, -1, -2)[..., None, :, :]
    try:
        d = dot(arithmetic, by_row, by_column, c, **scales, engine=engine)
    except ValueError as error:
        if isinstance(error, (OperandError, UndefinedError)):
            raise
        shapes = ", ".join(f"{n} {np.shape(x)}" for n, x in zip(names, operands, strict=True))
        raise OperandError(f"the batch axes do not broadcast: {shapes}") from None
    return ins.fragment("d").scatter(d)


def _check_options(ins: Instruction, options: dict[str, Any]) -> None:
    takes = {"sparse": ins.is_sparse, "block scale": ins.is_block_scaled, "wgmma": ins.is_wgmma}
    legal = [name for what, yes in takes.items() if yes for name in _OPTIONS[what]]
    for name in options:
        if name not in legal:
            raise OperandError(
                f"{ins} takes no {name}=; its options are {', '.join(legal) or 'none'}"
            )


def _gather(fragment: Fragment, registers: Array) -> Array:
    words = fragment.check_registers(registers)
    if not padding_is_zero(words, fragment.place):
        _, low, bits = fragment.place
        raise UndefinedError(
            f"operand {fragment.operand}: bits that hold no part of an element are set; "
            f"{fragment.fmt.name} uses bits {low}…{low + bits - 1} of each byte, the rest must be 0"
        )
    return fragment.gather(words)


def _select(
    ins: Instruction, a: Array, b: Array, e: Array, selector: int, undefined: Undefined
) -> Array:
    chosen = check_selector(ins, selector)
    fragment = ins.fragment("e")
    words = np.asarray(e)
    if words.dtype != np.uint32 or words.shape[-1:] != (fragment.lanes,):
        raise OperandError(
            f"e is one metadata word per lane, uint32 (…, {fragment.lanes}); "
            f"got {words.dtype} {words.shape}"
        )
    nibbles = fragment.gather(words[..., None])
    if fragment.groups > 1:
        nibbles = nibbles[..., chosen, :, :]
    if undefined == "raise":
        check_metadata(ins, *_same_batch(nibbles, a), chosen)
    return select(ins, nibbles, b)


def _same_batch(nibbles: Array, a: Array) -> tuple[Array, Array]:
    batch = np.broadcast_shapes(nibbles.shape[:-2], a.shape[:-2])
    return (
        np.broadcast_to(nibbles, (*batch, *nibbles.shape[-2:])),
        np.broadcast_to(a, (*batch, *a.shape[-2:])),
    )


def _scales(ins: Instruction, options: dict[str, Any]) -> dict[str, Array]:
    """scale_a ``(…, m, 1, v)`` and scale_b ``(…, 1, n, v)``, as `dot` takes them."""
    out = {}
    for operand in ("scale_a", "scale_b"):
        x = operand[-1]
        if options.get(operand) is None:
            raise OperandError(f"{ins} needs {operand}=, one uint32 word of scales per lane")
        out[operand] = gather_scales(
            ins, operand, options[operand], options.get(f"byte_id_{x}", 0),
            options.get(f"thread_id_{x}", 0),
        )  # fmt: skip
    return {
        "scale_a": out["scale_a"][..., :, None, :],
        "scale_b": np.swapaxes(out["scale_b"], -1, -2)[..., None, :, :],
    }


def _wgmma_operands(
    ins: Instruction,
    a: Array,
    b_descriptor: Array,
    d: Array,
    shared: Any = None,
    scale_d: Any = True,
    imm_scale_a: int = 1,
    imm_scale_b: int = 1,
    imm_trans_a: int = 0,
    imm_trans_b: int = 0,
) -> tuple[Array, Array, Array]:
    """A ``(…, 64, stored k)``, B ``(…, k, n)`` and the accumulator of a wgmma, as codes."""
    memory = check_shared(shared)
    a, b_descriptor = np.asarray(a), np.asarray(b_descriptor)
    from_registers = a.dtype != np.uint64
    _check_immediates(ins, imm_scale_a, imm_scale_b, imm_trans_a, imm_trans_b, from_registers)
    c = ins.fragment("d").gather(d)
    if from_registers:
        a = _gather(ins.fragment("a"), a)
    else:
        major = "mn" if imm_trans_a else "k"
        a = load_tile(memory, a, ins.m, ins.stored_k, ins.a_place, major, "a")
    major = "mn" if imm_trans_b else "k"
    b = load_tile(memory, b_descriptor, ins.n, ins.k, ins.b_place, major, "b")
    b = np.swapaxes(b, -1, -2)
    for codes, sign in ((a, imm_scale_a), (b, imm_scale_b)):
        if sign == -1:
            fmt = ins.fragment("a").fmt
            codes ^= codes.dtype.type(fmt.sign_mask)  # load_tile and gather return fresh arrays
    # scale-d = 0: the accumulator is not read; a zero takes no part in any sum.
    keep = np.asarray(scale_d)
    if keep.dtype != np.bool_ and not np.isin(keep, (0, 1)).all():
        raise OperandError(f"scale_d is true or false, or an array of them; got {scale_d!r}")
    return a, b, np.where(keep.astype(np.bool_)[..., None, None], c, c.dtype.type(0))


def _check_immediates(
    ins: Instruction, scale_a: int, scale_b: int, trans_a: int, trans_b: int, from_registers: bool
) -> None:
    fmt = ins.fragment("a").fmt
    for name, given in (("imm_scale_a", scale_a), ("imm_scale_b", scale_b)):
        legal = (1, -1) if fmt.is_float else (1,)
        if given not in legal:
            raise OperandError(f"{name} of {ins} is {' or '.join(map(str, legal))}; got {given!r}")
    for name, given, fixed in (
        ("imm_trans_a", trans_a, from_registers), ("imm_trans_b", trans_b, False),
    ):  # fmt: skip
        legal = (0, 1) if fmt.bits == 16 and not fixed else (0,)
        if given not in legal:
            why = " with A from registers" if fixed else ""
            raise OperandError(
                f"{name} of {ins}{why} is {' or '.join(map(str, legal))}; got {given!r}"
            )
