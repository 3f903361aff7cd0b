"""mma and wmma.mma within native functions: calls of the kernels of `emulator.warp.native`.

Sparse and scaled ones, and those whose operands may hold bits that are not legal, are steps of the
vector engine: a kernel that meets such an operand gives up.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from llvmlite import ir

from emulator.arith.fast.kernels.machine_code import address_of_function
from emulator.arith.fast.words import LONG, POINTER, WORD, Value
from emulator.isa.matrix import MatrixInstruction
from emulator.isa.wmma import WmmaMultiply
from emulator.machine.compiled.function import NativeFunction
from emulator.machine.compiled.warp_emitter import WarpEmitter, integers
from emulator.machine.shared.operands import word_type
from emulator.ptx.program import Statement, items_of
from emulator.targets import Target
from emulator.warp.native import product_of, warp_function
from emulator.warp.operands import Setting

_FUNCTION = ir.FunctionType(WORD, [POINTER, POINTER])


def fits(statement: Statement, target: Target) -> bool:
    """True if a statement multiplies matrices, and a kernel never gives up on its operands."""
    ins = statement.instruction
    if statement.guard is not None or not isinstance(ins, (MatrixInstruction, WmmaMultiply)):
        return False
    if isinstance(ins, MatrixInstruction) and (
        ins.is_wgmma or ins.is_sparse or ins.is_block_scaled
    ):
        return False
    product = product_of(ins, target, Setting())
    return product is not None and not (product.a.padding or product.b.padding)


def emit(t: NativeFunction, statement: Statement) -> None:
    ins = statement.instruction
    assert isinstance(ins, (MatrixInstruction, WmmaMultiply))
    kernel = warp_function(ins, t.target)
    assert kernel is not None
    given, places = [], []
    for name, start in kernel.offsets.items():
        type_ = word_type(statement.signature[name])
        for number, item in enumerate(items_of(statement.operands[name])):
            words = t.read(item, type_)
            given.append(words)
            places.append(start + number * ins.lanes * words.type.element.width // 8)
    items, bits = items_of(statement.operands["d"]), ins.fragment("d").word_bits
    starts = [number * ins.lanes * bits // 8 for number in range(len(items))]
    address = t.pointer("kernel", kernel.compute, address_of_function(kernel.compute))
    rooms = (t.memory.room("registers", kernel.size), t.memory.room("d", kernel.result_size))
    results = (integers(bits),) * len(items)
    make = partial(_call_kernel, places, starts, bits)
    made = t.e.fragment(f"{ins}", results, make, address, *rooms, *given)
    type_ = word_type(statement.signature["d"])
    for item, words in zip(items, made, strict=True):
        t.write(item, type_, words, None)


def _call_kernel(
    places: Sequence[int],
    starts: Sequence[int],
    bits: int,
    e: WarpEmitter,
    address: Value,
    registers: Value,
    d: Value,
    *given: Value,
) -> tuple[Value, ...]:
    """Calls a kernel with operands at places of `registers`; the results from `starts` of `d`."""
    b, byte = e.builder, ir.IntType(8)
    for place, words in zip(places, given, strict=True):
        at = b.gep(registers, [LONG(place)], source_etype=byte)
        b.store(words, at, align=words.type.element.width // 8)
    b.call(b.inttoptr(address, _FUNCTION.as_pointer()), [registers, d])
    return tuple(
        b.load(b.gep(d, [LONG(start)], source_etype=byte), typ=integers(bits), align=bits // 8)
        for start in starts
    )
