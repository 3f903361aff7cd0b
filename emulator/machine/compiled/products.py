"""mma and wmma.mma within native functions: calls of the kernels of `emulator.warp.native`.

Sparse and scaled ones, and those whose operands may hold bits that are not legal, are steps of the
vector engine: a kernel that meets such an operand gives up.
"""

from __future__ import annotations

from llvmlite import ir

from emulator.arith.fast.kernels.machine_code import address_of_function
from emulator.arith.fast.words import LONG, POINTER, WORD
from emulator.isa.matrix import MatrixInstruction
from emulator.isa.wmma import WmmaMultiply
from emulator.machine.compiled.function import NativeFunction
from emulator.machine.compiled.warp_emitter import integers
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
    ins, b = statement.instruction, t.b
    assert isinstance(ins, (MatrixInstruction, WmmaMultiply))
    kernel = warp_function(ins, t.target)
    assert kernel is not None
    registers, d = (
        t.memory.room(x, size)
        for x, size in (("registers", kernel.size), ("d", kernel.result_size))
    )
    for name, start in kernel.offsets.items():
        place, type_ = start, word_type(statement.signature[name])
        for item in items_of(statement.operands[name]):
            words = t.read(item, type_)
            size = words.type.element.width // 8
            at = b.gep(registers, [LONG(place)], source_etype=ir.IntType(8))
            b.store(words, at, align=size)
            place += ins.lanes * size
    address = t.pointer("kernel", kernel.compute, address_of_function(kernel.compute))
    function = b.inttoptr(address, _FUNCTION.as_pointer())
    b.call(function, [registers, d])
    type_, place = word_type(statement.signature["d"]), 0
    for item in items_of(statement.operands["d"]):
        bits = ins.fragment("d").word_bits
        at = b.gep(d, [LONG(place)], source_etype=ir.IntType(8))
        t.write(item, type_, b.load(at, typ=integers(bits), align=bits // 8), None)
        place += ins.lanes * bits // 8
