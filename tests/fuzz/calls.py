"""Wrong calls over the whole public interface: right ones with one or two arguments replaced."""

import copy
import math
import sys
from contextlib import nullcontext
from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import partial
from pathlib import Path
from types import MappingProxyType

import ml_dtypes
import numpy as np

from emulator import (
    EmulatorError,
    Instruction,
    InstructionDescriptor,
    Memory,
    Module,
    Recipe,
    SharedMemoryDescriptor,
    TensorMap,
    Warp,
    Warpgroup,
    check_order,
    compare,
    compare_launches,
    compress,
    decompress,
    error_study,
    execute,
    explain,
    explain_registers,
    find_faults,
    gemm,
    load_tile,
    mma,
    probe,
    store_tile,
    testing,
)
from emulator.layout.descriptor import Descriptor
from emulator.layout.tile import TileShape
from emulator.tools.descriptors.description import describe_descriptor
from emulator.tools.descriptors.difference import diff_descriptors
from emulator.tools.descriptors.tiles import StoredTile, needed_descriptor
from emulator.tools.explanations.inputs import generate
from emulator.tools.listing import find_instructions
from emulator.tools.pictures.page import Page
from emulator.tools.pictures.panels import SharedMemory as Panel
from fuzz.guard import attempt, main, unchanged

F16 = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
WGMMA = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"
SPARSE = "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
SCALED = (
    "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X"
    ".f32.e4m3.e4m3.f32.ue8m0"
)
A, B, C = np.ones((16, 16), "f2"), np.ones((16, 8), "f2"), np.ones((16, 8), "f4")
TILE = TileShape(8, 16, 2)
FRAGMENT = Instruction.parse(F16).fragment("a")
UNIQUE = testing.lane_unique(F16, "c")


def nested(depth):
    out = []
    for _ in range(depth):
        out = [out]
    return out


KERNEL = """.version 8.0
.target sm_80
.address_size 64
.global .b32 g;
.visible .entry k(.param .u64 out, .param .f32 x, .param .u32 n, .param .f64 y, .param .f16 h,
                  .param .u8 b, .param .align 4 .b8 s[8])
{
    .reg .b32 %r<3>; .reg .b64 %d<3>; .reg .f32 %f<2>;
    ld.param.u64 %d0, [out]; mov.u32 %r0, %tid.x; mul.wide.u32 %d1, %r0, 4;
    add.s64 %d2, %d0, %d1; ld.param.f32 %f0, [x]; st.global.f32 [%d2], %f0; ret;
}
"""


class Mute:
    """An object that cannot be shown."""

    def __repr__(self):
        raise RuntimeError("no text")

    __str__ = __repr__


def frozen(array):
    array.flags.writeable = False
    return array


def of_arguments(**given):
    """A launch with arguments in order."""
    return MODULE["k"].launch(1, 32, list(given.values()))


MODULE = Module(KERNEL)
X = np.zeros(64, "f4")
RIGHT_ARGS = {"out": X, "x": 1.5, "n": 3, "y": 0.5, "h": 1.0, "b": 7, "s": bytes(8)}
LAUNCH = {"grid": 1, "block": 32, "args": list(RIGHT_ARGS.values()), "dynamic_shared": 0,
          "cluster": None}  # fmt: skip
OPTIONS = {"contract": "ptxas", "async_order": "early", "seed": None, "step_limit": 1000,
           "memory": None, "progress": None}  # fmt: skip
TILED = {"dtype": None, "box": (8, 8), "element_strides": None, "interleave": "none",
         "swizzle": "none", "l2_promotion": "none", "fill": "zeros"}  # fmt: skip
RAW = {"array_or_address": 1 << 20, "dtype": "float16", "dims": (16, 16), "strides": (32,),
       "box": (8, 8)}  # fmt: skip
IM2COL = {"array_or_address": np.zeros((2, 8, 8, 16), "f2"), "lower": (0, 0), "upper": (0, 0),
          "channels": 16, "pixels": 8, "element_strides": None}  # fmt: skip
IDESC = {"kind": "f16", "a": "f16", "b": "f16", "d": "f32", "m": 128, "n": 64,
         "transpose_a": False, "negate_a": False, "sparse": False, "saturate": False,
         "scale": None, "k": 0, "selector": 0, "scale_a_id": 0, "max_shift": 0,
         "sparsity_version": 0, "scale_a_rows": False}  # fmt: skip
SMALL = InstructionDescriptor("f16", "f16", "f16", "f32", 128, 64)
TCGEN = "tcgen05.mma.cta_group::1.kind::f16"


#: by name, for huge ones have no text that a test could be called by
WRONG = {
    "None": None, "-1": -1, "0": 0, "2**70": 2**70, "huge": 10**5000, "1.5": 1.5, "nan": math.nan,
    "True": True, "empty": "", "long": "x" * 5000, "f16": "f16", "target": "H100", "opcode": F16,
    "other opcode": WGMMA, "cvt": "cvt.rn.f16x2.f32", "bytes": b"abc", "[]": [], "ragged": [1, [2]],
    "deep": nested(100), "{}": {}, "object": object(), "type": type, "set": {1}, "tuple": (1, 2),
    "mapping": MappingProxyType({"a": 1}), "function": len, "np.uint64": np.uint64(3),
    "bfloat16": ml_dtypes.bfloat16(1), "0-d": np.array(None), "no elements": np.zeros(0),
    "16 x 16": A, "16 x 8": B, "big-endian": A.astype(">f2"), "registers": np.zeros((32, 4), "u4"),
    "32 axes": np.zeros((1,) * 32), "words": np.array(["x"]), "complex": np.zeros((16, 16), "c8"),
    "dates": np.zeros((16, 16), "M8[s]"), "masked": np.ma.masked_array([1, 2], [0, 1]),
    "batch": np.zeros((3, 16, 16), "f2"), "instruction": Instruction.parse(F16),
    "1e39": 1e39, "inf": math.inf, "-huge": -(10**5000), "1": 1, "32": 32, "2**31": 2**31,
    "2**63": 2**63, "2**64": 2**64, "0-d number": np.array(3), "0-d float": np.array(1e39),
    "0-d flag": np.array(True), "flags": np.array([True, False]), "numbers": np.array([1, 2]),
    "one": np.array([1]), "timedelta": timedelta(1), "date": date(2024, 1, 1),
    "timedelta64": np.timedelta64(1, "s"), "Fraction": Fraction(1, 3), "Decimal": Decimal("1e400"),
    "complex number": 1 + 2j, "path": Path("missing.ptx"), "np.str_": np.str_("k"),
    "np.bool_": np.True_, "np.float32": np.float32("nan"), "range": range(3), "module": math,
    "error": ValueError("x"), "mute": Mute(), "list of huge": [10**5000], "bytearray": bytearray(8),
    "None in it": [None], "dict of huge": {10**5000: 10**5000}, "iterator": iter([1, 2]),
    "surrogate": "\udc80", "null": "\0", "digits": "9" * 5000, "f4 big-endian": np.zeros(8, ">f4"),
    "strided": np.zeros((8, 8), "u4")[:, ::2], "frozen": frozen(np.zeros(8, "u4")),
}  # fmt: skip


def of_a_register(how, type_):
    """A function that sets a register of a type."""

    def function(given):
        warp = Warp("sm_90a")
        warp.declare(type_, "r0")
        if how == "[]":
            warp["r0"] = given
        elif how == "words":
            warp.words["r0"] = given
        else:
            warp.write("r", given)

    return function


def of_four():
    """A warp with four registers."""
    warp = Warp("H100")
    warp.declare("b32", *(f"r{i}" for i in range(4)))
    warp.run("; ".join(f"mov.b32 r{i}, 0" for i in range(4)) + ";")
    return warp


#: function -> arguments that are right, each of which is put wrong in turn
CALLS = {
    "mma": (mma, {
        "instruction": F16, "a": A, "b": B, "c": C, "target": "H100", "codes": False,
        "engine": "auto", "undefined": "raise", "scale_a": None, "nibbles": None}),
    "mma, sparse": (mma, {
        "instruction": SPARSE, "a": np.zeros((16, 16), "f2"), "b": np.zeros((32, 8), "f2"),
        "nibbles": np.full((16, 8), 4), "target": "H100"}),
    "gemm": (gemm, {
        "instruction": F16, "a": A, "b": B, "c": C, "target": "H100", "codes": False,
        "engine": "auto", "k_promote": None, "out": None, "first_tile": 0}),
    "execute": (lambda ins, a, b, c, **x: execute(ins, a, b, c, **x), {
        "ins": F16, "a": np.zeros((32, 4), "u4"), "b": np.zeros((32, 2), "u4"),
        "c": np.zeros((32, 4), "u4"), "target": "H100", "engine": "auto", "undefined": "raise"}),
    "parse": (Instruction.parse, {"text": F16}),
    "fidelity": (Instruction.parse(F16).fidelity, {"target": "H100"}),
    "fragment": (Instruction.parse(F16).fragment, {"operand": "a"}),
    "gather": (lambda x: FRAGMENT.gather(x), {"x": FRAGMENT.zeros()}),
    "scatter": (lambda x: FRAGMENT.scatter(x), {"x": np.zeros((16, 16), "u2")}),
    "lane": (FRAGMENT.lane, {"row": 0, "col": 0, "group": 0}),
    "element": (FRAGMENT.element, {"lane": 0, "register": 0}),
    "zeros": (lambda size: FRAGMENT.zeros(size), {"size": 2}),
    "Warp": (Warp, {
        "target": "H100", "shared_bytes": 64, "batch": (), "engine": "auto", "undefined": "raise"}),
    "declare": (lambda type_, name: Warp("H100").declare(type_, name), {
        "type_": "b32", "name": "r"}),
    "run": (lambda text: Warp("H100").run(text), {"text": ""}),
    "compress": (compress, {"ins": SPARSE, "a": np.zeros((16, 32), "u2")}),
    **{f"{how} of .{x}": (of_a_register(how, x), {"given": given}) for how, x, given in (
        ("[]", "b32", 1), ("[]", "f32", 1.5), ("[]", "pred", True), ("[]", "f16x2", 1),
        ("[]", "f64", 1.5), ("words", "f32", 1), ("words", "b64", 1), ("words", "pred", 1),
        ("write", "b32", np.zeros((32, 1), "u4")))},
    "explain": (explain, {
        "ins": F16, "a": A, "b": B, "c": C, "row": 0, "col": 0, "target": "H100", "scale_a": None,
        "nibbles": None, "computation": 0, "batch": ()}),
    "explain, scaled": (partial(explain, codes=True), {
        "ins": SCALED, "a": np.ones((16, 32), "u1"), "b": np.ones((32, 8), "u1"),
        "row": 0, "col": 0, "target": "sm_120a", "scale_a": np.full((16, 1), 127, "u1"),
        "scale_b": np.full((1, 8), 127, "u1")}),
    "compare": (compare, {
        "instructions": F16, "a": A, "b": B, "c": C, "targets": None, "limit": 3, "scale_a": None,
        "nibbles": None}),
    "generate": (partial(generate, Instruction.parse(F16)), {"seed": 0, "kind": "wide"}),
    "find_faults": (find_faults, {
        "ins": F16, "a": A, "b": B, "c": C, "target": "H100", "d": C * 17, "expected": None,
        "limit": 2, "registers_a": None, "registers_b": None, "registers_c": None}),
    "find_faults, wgmma": (find_faults, {
        "ins": WGMMA, "a": np.ones((64, 16), "f2"), "b": B, "target": "H100",
        "d": np.full((64, 8), 16, "f4"), "shared": None, "descriptor_a": None, "scale_d": None,
        "descriptor_b": None, "imm_trans_b": None, "imm_scale_a": None, "swizzle_bytes": None}),
    "find_faults, sparse": (find_faults, {
        "ins": SPARSE, "a": np.zeros((16, 32), "f2"), "b": np.ones((32, 8), "f2"),
        "target": "H100", "d": C * 0, "e": None, "selector": None}),
    "Recipe": (Recipe, {"steps": Recipe.fused(25).steps, "name": "x", "promote": 0, "a": ""}),
    "Recipe.of": (Recipe.of, {"instruction": F16, "target": "H100"}),
    "Recipe.fused": (lambda **x: mma(F16, A, B, C, target=Recipe.fused(**x)), {
        "fraction_bits": 25, "floor": None, "result": "f32", "rounding": "rz", "precision": None,
        "run": 0, "passes": 0, "group": 1, "widen": ""}),
    "Recipe.fma": (Recipe.fma, {"fmt": "f32", "promote": 0}),
    "changed": (Recipe.fused(25).changed, {"fraction_bits": 3, "steps": ()}),
    "TileShape": (TileShape, {"rows": 8, "k": 16, "element_bytes": 2, "major": "k"}),
    "TileShape.of": (TileShape.of, {"rows": 8, "k": 16, "fmt": "f16", "major": "k"}),
    "Descriptor": (Descriptor, {
        "start_address": 0, "leading_byte_offset": 16, "stride_byte_offset": 16, "base_offset": 0,
        "swizzle_bytes": 0}),
    "Descriptor.decode": (Descriptor.decode, {"word": 3}),
    "Descriptor.for_tile": (Descriptor.for_tile, {
        "rows": 8, "k": 16, "fmt": "f16", "major": "k", "swizzle_bytes": 32, "start_address": 0,
        "order": "rows"}),
    "Descriptor.findings": (Descriptor(0).findings, {"tile": TILE, "memory_bytes": 4096}),
    "Descriptor.address": (Descriptor(0).address, {"row": 0, "k": 0, "tile": TILE}),
    "Descriptor.core_matrices": (Descriptor(0).core_matrices, {"tile": TILE}),
    "Descriptor.stepped": (Descriptor(0).stepped, {"offset": 16}),
    "describe_descriptor": (describe_descriptor, {
        "word": 3, "ins": WGMMA, "operand": "b", "major": "k", "shared_size": 4096}),
    "diff_descriptors": (diff_descriptors, {
        "word": 3, "ins": WGMMA, "operand": "b", "stored": StoredTile(0)}),
    "StoredTile": (lambda **x: needed_descriptor(WGMMA, "b", StoredTile(**x)), {
        "swizzle_bytes": 0, "major": "k", "start_address": 0, "rows": None, "k": None,
        "order": "rows", "row": 0, "column": 0, "leading_bytes": None}),
    "Page": (Page, {"instruction": F16, "operand": "a", "target": "H100", "warps": (2, 2)}),
    "Panel": (lambda **x: Page(WGMMA, memory=Panel(**x)), {
        "swizzle_bytes": 128, "major": "k", "start_address": 0}),
    "find_instructions": (find_instructions, {"target": "H100", "type_": "f16", "family": "mma"}),
    "all_forms": (testing.all_forms, {
        "target": "H100", "family": "mma", "type": "f16", "n": "sample"}),
    "lane_unique": (testing.lane_unique, {"ins": F16, "operand": "a"}),
    "misplaced": (UNIQUE.misplaced, {"d": UNIQUE.run("H100")}),
    "Inputs": (lambda target, engine, **x: testing.Inputs.of(**x).run(target, engine), {
        "ins": F16, "a": A, "b": B, "c": C, "target": "H100", "engine": "auto"}),
    "unnoticed_swaps": (testing.unnoticed_swaps, {
        "inputs": F16, "target": "H100", "lanes": "none"}),
    "codes": (testing.codes, {"fmt": "f16"}),
    "matrices": (testing.matrices, {"ins": F16, "operand": "a"}),
    "operands": (testing.operands, {"ins": F16, "target": "H100"}),
    "find_differences": (testing.find_differences, {
        "actual": A, "expected": A, "fmt": None, "fragment": None, "nan": "any",
        "signed_zero": "equal"}),
    "Module": (Module, {"source": KERNEL, "target": "H100"}),
    "module[]": (lambda name: MODULE[name], {"name": "k"}),
    "in module": (lambda name: name in MODULE, {"name": "k"}),
    "variable": (lambda name: MODULE.variable(name), {"name": "g"}),
    "launch": (lambda **x: MODULE["k"].launch(**x), {
        **LAUNCH, "check": False, "engine": "auto", **OPTIONS, "counters": False, "stop_at": None,
        "dask": None}),
    "prepare": (lambda **x: MODULE["k"].prepare(**x), {**LAUNCH, "check": False, **OPTIONS}),
    "arguments": (of_arguments, RIGHT_ARGS),
    "arguments by name": (lambda **x: MODULE["k"].launch(1, 32, x), RIGHT_ARGS),
    "check_order": (partial(check_order, MODULE["k"]), {
        "grid": 1, "block": 32, "args": list(RIGHT_ARGS.values()), "seeds": 1,
        "contract": "ptxas", "step_limit": 1000}),
    "check_order of": (check_order, {
        "kernel": MODULE["k"], "grid": 1, "block": 32, "args": RIGHT_ARGS, "seeds": [1]}),
    "compare_launches": (compare_launches, {
        "kernel": MODULE["k"], "grid": 1, "block": 32, "args": RIGHT_ARGS,
        "targets": ("A100", "H100"), "contracts": None}),
    "assert_clean": (testing.assert_clean, {
        "kernel": MODULE["k"], "grid": 1, "block": 32, "args": RIGHT_ARGS}),
    "Memory.map": (lambda **x: Memory().map(**x), {
        "address": 1 << 20, "array": np.zeros(8, "f4"), "name": "x"}),
    "TensorMap.tiled": (TensorMap.tiled, {"array_or_address": np.zeros((16, 16), "f2"), **TILED}),
    "TensorMap.tiled, raw": (TensorMap.tiled, RAW),
    "TensorMap.im2col": (TensorMap.im2col, IM2COL),
    "TensorMap.decode": (TensorMap.decode, {"data": TensorMap.tiled(**RAW).encode()}),
    "with_address": (TensorMap.tiled(**RAW).with_address, {"address": 1 << 21}),
    "InstructionDescriptor": (lambda **x: InstructionDescriptor(**x).encode(), IDESC),
    "InstructionDescriptor.decode": (InstructionDescriptor.decode, {
        "word": SMALL.encode(), "kind": "f16"}),
    "InstructionDescriptor.findings": (SMALL.findings, {
        "cta_group": 1, "weight_stationary": False, "target": "B200"}),
    "InstructionDescriptor.validate": (SMALL.validate, {
        "cta_group": 1, "weight_stationary": False, "target": "B200"}),
    "InstructionDescriptor.replace": (SMALL.replace, {"m": 64, "n": 32, "a": "bf16"}),
    "InstructionDescriptor.width": (SMALL.width, {"operand": "a"}),
    "SharedMemoryDescriptor": (lambda **x: SharedMemoryDescriptor(**x).encode(), {
        "start_address": 0, "leading_byte_offset": 16, "stride_byte_offset": 16, "base_offset": 0,
        "swizzle_bytes": 0, "atom_bytes": 16, "leading_is_address": False, "second_half": False}),
    "SharedMemoryDescriptor.decode": (SharedMemoryDescriptor.decode, {
        "word": 1 << 46, "target": "B200"}),
    "SharedMemoryDescriptor.for_operand": (SharedMemoryDescriptor.for_operand, {
        "instruction": SMALL, "operand": "a", "cta_group": 1, "swizzle_bytes": 128,
        "start_address": 0, "order": "rows"}),
    "SharedMemoryDescriptor.findings": (SharedMemoryDescriptor(0).findings, {
        "tile": TILE, "memory_bytes": 4096}),
    "SharedMemoryDescriptor.addresses": (SharedMemoryDescriptor(0).addresses, {"tile": TILE}),
    "decompress": (decompress, {
        "ins": SPARSE, "a": np.zeros((16, 16), "u2"), "e": np.full(32, 0x44444444, "u4"),
        "selector": 0}),
    "probe": (probe, {"instruction": F16, "target": "H100"}),
    "error_study": (error_study, {
        "instruction": F16, "targets": "H100", "k": 16, "distributions": "normal",
        "orders": "chain", "rows": 2, "columns": 2, "seed": 0, "measure": "rms"}),
    "explain_registers": (lambda ins, a, b, c, **x: explain_registers(ins, a, b, c, **x), {
        "ins": F16, "a": np.zeros((32, 4), "u4"), "b": np.zeros((32, 2), "u4"),
        "c": np.zeros((32, 4), "u4"), "row": 0, "col": 0, "target": "H100", "computation": 0,
        "batch": ()}),
    "load_tile": (load_tile, {
        "shared": np.zeros(4096, "u1"), "descriptors": Descriptor(0, 16, 16), "rows": 8, "k": 16,
        "where": "f16", "major": "k"}),
    "store_tile": (store_tile, {
        "shared": np.zeros(4096, "u1"), "descriptors": Descriptor(0, 128, 256),
        "codes": np.zeros((8, 16), "u2"), "where": "f16", "major": "k"}),
    "Warpgroup": (Warpgroup, {
        "target": "H100", "shared_bytes": 64, "batch": (), "engine": "auto", "undefined": "raise"}),
    "bind": (lambda text: Warp("H100").bind(text), {"text": ""}),
    "run, limited": (lambda **x: Warp("H100").run(**x), {"program": "", "step_limit": 5}),
    "read": (lambda prefix, count: of_four().read(prefix, count), {"prefix": "r", "count": 2}),
    "warp[]": (lambda name: of_four()[name], {"name": "r0"}),
    "check_target": (Instruction.parse(F16).check_target, {"target": "H100"}),
    "signature": (Instruction.parse(F16).signature, {"target": "H100"}),
    "signatures": (Instruction.parse(TCGEN).signatures, {"target": "B200"}),
    "with_blocks": (Descriptor(0).with_blocks, {"tile": TILE, "order": "rows"}),
    "Descriptor.validate": (Descriptor(0).validate, {"tile": TILE, "memory_bytes": 4096}),
    "mma, tcgen05": (mma, {
        "instruction": TCGEN, "a": np.ones((128, 16), "f2"), "b": np.ones((16, 64), "f2"),
        "target": "B200", "idesc": SMALL}),
    "gemm, more": (gemm, {
        "instruction": F16, "a": A, "b": B, "target": "H100", "split_k": 1, "order": "ascending",
        "progress": None, "scale_layout": "matrix"}),
    "assert_bits_equal": (testing.assert_bits_equal, {
        "actual": A, "expected": A, "fmt": None, "fragment": None, "nan": "payload",
        "signed_zero": "differ", "name": ""}),
}  # fmt: skip
#: what says that things are unlike raises AssertionError, as tests do
COMPARISONS = ("find_differences", "assert_bits_equal", "assert_clean")
#: what is no name is not in a module
NEVER_REFUSED = ("in module",)
#: functions of the caller's, whose own errors go on to the caller
CALLED_BACK = ("progress", "distributions")
#: what writes into the array that it is given
WRITERS = {"store_tile": ("shared",), "gemm": ("out",)}


def called(name, replaced):
    """One call with other arguments: its answer or its EmulatorError; no array has changed."""
    function, right = CALLS[name]
    given = right | replaced
    held = [x for key, x in given.items() if key not in WRITERS.get(name, ())]
    legal = (AssertionError,) if name in COMPARISONS else ()
    if any(callable(x) for key, x in replaced.items() if key in CALLED_BACK):
        legal += (TypeError,)
    launches = name in ("launch", "arguments", "arguments by name") or "kernel" in right
    with nullcontext() if launches else unchanged(*held):
        return attempt(lambda: function(**given), *legal)


def case(rng):
    """One wrong call: answered, or refused."""
    name = rng.choice(list(CALLS))
    arguments = list(CALLS[name][1])
    count = min(len(arguments), rng.choice((1, 1, 2)))
    replaced = {key: rng.choice(list(WRONG)) for key in rng.sample(arguments, count)}
    try:
        answer = called(name, {key: copied(WRONG[what]) for key, what in replaced.items()})
    except BaseException as error:
        error.add_note(f"{name}({', '.join(f'{x}={y}' for x, y in replaced.items())})")
        raise
    return "refused" if isinstance(answer, EmulatorError) else "answered"


def copied(value):
    """An array of its own for each call, and an iterator that nobody has used."""
    if isinstance(value, np.ndarray) and value.flags.writeable:
        return value.copy()
    return copy.copy(value) if type(value).__name__ == "list_iterator" else value


if __name__ == "__main__":
    sys.exit(main(case))
