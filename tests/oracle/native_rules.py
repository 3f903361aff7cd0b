"""The machine code of one instruction that only computes, on 32 lanes of words."""

import ctypes

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir

from emulator.arith.fast.kernels import machine_code
from emulator.arith.fast.words import LONG, POINTER
from emulator.arith.scalar import TYPES
from emulator.machine.compiled import rules
from emulator.machine.compiled.warp_emitter import WIDTH, WarpEmitter, integers
from emulator.machine.shared.operands import word_type

_engines = []


def _start():
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple()
    machine = target.create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten()
    )
    return llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)


def bind_native(ins):
    """The instruction as a function of lists of words, or None where it has no machine code."""
    emit = rules.find(ins, {})
    if emit is None:
        return None
    operands = ins.signature().operands
    sources = [x for x in operands if x.use == "read"]

    def run(*columns):
        immediates = {
            i: column[0] for i, column in enumerate(columns)
            if i < len(sources) and sources[i].kind == "immediate"
        }  # fmt: skip
        names = [word_type(x) for x in sources] + ["pred"] * getattr(ins, "reads_carry", False)
        dtypes = [TYPES[name].dtype for name in names]
        address, count, kinds = _compiled(emit, dtypes, immediates)
        length = len(columns[0])
        padded = -(-length // WIDTH) * WIDTH
        words = (np.array(c, np.uint64).astype(d) for c, d in zip(columns, dtypes, strict=True))
        given = [np.resize(x, padded) for x in words]
        out = [np.zeros(padded, kind) for kind in kinds]
        call = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (len(given) + count))(address)
        for first in range(0, padded, WIDTH):
            call(*(x[first:].ctypes.data for x in (*given, *out)))
        return [x[:length].tolist() for x in out]

    return run


def _compiled(emit, dtypes, immediates):
    module = ir.Module("rule")
    function = ir.Function(
        module, ir.FunctionType(ir.VoidType(), [POINTER] * (len(dtypes) + 2)), "go"
    )
    b = ir.IRBuilder(function.append_basic_block())
    e = WarpEmitter(module, b, lambda builder, table: LONG(int(table.ctypes.data)))
    words = []
    for i, dtype in enumerate(dtypes):
        if i in immediates:
            words.append(immediates[i])
            continue
        word = b.load(function.args[i], typ=integers(8 * dtype.itemsize), align=1)
        words.append(b.icmp_unsigned("!=", word, e.word(8, 0)) if dtype.kind == "b" else word)
    results = emit(e, *words)
    results = results if isinstance(results, tuple) else (results,)
    kinds = []
    for place, result in zip(function.args[len(dtypes) :], results, strict=False):
        kinds.append(np.dtype(f"u{max(result.type.element.width, 8) // 8}"))
        b.store(e.resize(result, 8 * kinds[-1].itemsize), place, align=1)
    b.ret_void()
    _engines[:] = _engines or [_start()]
    machine_code.link(str(module))
    parsed = llvm.parse_assembly(str(module))
    parsed.verify()
    _engines[0].add_module(parsed)
    _engines[0].finalize_object()
    address = _engines[0].get_function_address("go")
    _engines[0].remove_module(parsed)
    _kept.append(parsed)
    return address, len(kinds), kinds


_kept = []
