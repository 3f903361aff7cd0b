"""``execute``: one instruction on the registers of a warp or warpgroup, or of a batch of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from dtypes import Array
from emulator.arith import Engine
from emulator.arith.engines import check_engine
from emulator.arrays import accepts_tensors
from emulator.errors import OperandError, UnsupportedError, listing, quoted
from emulator.isa.conversion import Conversion
from emulator.isa.instruction import Instruction
from emulator.isa.matrix import MatrixInstruction
from emulator.isa.movement import Movement
from emulator.isa.wmma import WmmaMultiply, WmmaTransfer
from emulator.targets import Target, find_target
from emulator.warp import move, pack, wmma
from emulator.warp.memory import check_shared
from emulator.warp.multiply import Undefined, check_undefined, multiply
from emulator.warp.opcode import as_instruction


@accepts_tensors(words=True)
def execute(
    ins: Instruction | str,
    *operands: Any,
    target: str | Target,
    engine: Engine = "auto",
    undefined: Undefined = "raise",
    **options: Any,
) -> Array:
    """Executes `ins`, an Instruction or its opcode, as `target` does; registers in, registers out.

    Nothing is changed in place, except shared memory by stmatrix and wmma.store. Operands, in PTX
    order after d; leading axes are a batch and broadcast:

    * mma: ``a, b, c``, words ``(…, 32, registers)``, uint32 or uint64 for f64;
    * mma.sp: ``a, b, c, e`` with e ``uint32 (…, 32)`` or ``(…, 32, 1)``, and ``selector=``;
    * block scaling: ``scale_a=``, ``scale_b=`` ``uint32 (…, 32)``, and ``byte_id_a=``,
      ``thread_id_a=``, ``byte_id_b=``, ``thread_id_b=``;
    * wgmma: ``a, b_descriptor, d`` and for wgmma.sp ``e``, where a is registers ``(…, 128, 4)`` or
      descriptors ``uint64 (…)``; ``shared=`` memory ``uint8 (…, bytes)``, ``scale_d=`` a bool or
      an array over the batch, ``imm_scale_a=`` and ``imm_scale_b=`` 1 or -1, ``imm_trans_a=`` and
      ``imm_trans_b=`` 0 or 1;
    * ldmatrix: ``addresses (…, 32)`` and ``shared=``; stmatrix: ``addresses, registers`` and
      ``shared=``, which it writes; movmatrix: ``registers``;
    * wmma.mma: ``a, b, c``; wmma.load: ``address`` and wmma.store: ``address, registers``, with
      ``shared=`` and ``stride=`` in elements; an address is one integer for each warp;
    * cvt: the sources in PTX order, unsigned words of any one shape; the result is words.

    ``undefined="hardware"`` computes what an H200 does with metadata that PTX leaves undefined.

    Raises UnsupportedError where the target lacks the instruction, OperandError for operands of a
    wrong count, shape, type or range, UndefinedError for what PTX leaves undefined.
    """
    ins = as_instruction(ins)
    check_undefined(undefined)
    check_engine(engine)
    chosen = find_target(target)
    if chosen.name not in ins.targets:
        raise UnsupportedError(
            f"{ins} is not available on {chosen}; its targets are {listing(ins.targets, 30)}"
        )
    if isinstance(ins, MatrixInstruction):
        return multiply(ins, operands, options, chosen, engine, undefined)
    if isinstance(ins, Movement):
        return _move(ins, operands, options)
    if isinstance(ins, WmmaMultiply):
        _check(ins, operands, ("a", "b", "c"), options, ())
        a, b, c = operands
        return wmma.multiply(ins, a, b, c, chosen, engine)
    if isinstance(ins, WmmaTransfer):
        return _transfer(ins, operands, options)
    assert isinstance(ins, Conversion)
    _check(ins, operands, ins.operands[1:], options, ())
    return pack.convert(ins, *operands)


def _move(ins: Movement, operands: tuple[Any, ...], options: dict[str, Any]) -> Array:
    if ins.family == "movmatrix":
        _check(ins, operands, ("registers",), options, ())
        return move.transpose(ins, operands[0])
    names = ("addresses", "registers")[: 1 + (ins.family == "stmatrix")]
    _check(ins, operands, names, options, ("shared",))
    shared = check_shared(options.get("shared"))
    if ins.family == "ldmatrix":
        return move.load(ins, operands[0], shared)
    move.store(ins, operands[0], operands[1], shared)
    return np.zeros((*shared.shape[:-1], ins.lanes, 0), np.uint32)


def _transfer(ins: WmmaTransfer, operands: tuple[Any, ...], options: dict[str, Any]) -> Array:
    names = ("address", "registers")[: 1 + (ins.verb == "store")]
    _check(ins, operands, names, options, ("shared", "stride"))
    shared, stride = check_shared(options.get("shared")), options.get("stride")
    if ins.verb == "load":
        return wmma.load(ins, operands[0], shared, stride)
    wmma.store(ins, operands[0], operands[1], shared, stride)
    return np.zeros((*shared.shape[:-1], ins.lanes, 0), np.uint32)


def _check(
    ins: Instruction,
    operands: tuple[Any, ...],
    names: tuple[str, ...],
    options: dict[str, Any],
    legal: tuple[str, ...],
) -> None:
    if len(operands) != len(names):
        raise OperandError(
            f"{ins} takes {len(names)} operands ({', '.join(names)}); got {len(operands)}"
        )
    for name in options:
        if name not in legal:
            raise OperandError(
                f"{ins} takes no {quoted(name)}; its options are {', '.join(legal) or 'none'}"
            )
