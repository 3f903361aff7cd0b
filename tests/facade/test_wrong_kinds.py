"""Arguments of the wrong kind: every public function answers or raises an EmulatorError, whatever
it is given, soon and in few words."""

import math
from functools import partial
from types import MappingProxyType

import ml_dtypes
import numpy as np
import pytest

from emulator import (
    EmulatorError,
    Instruction,
    Recipe,
    Warp,
    compare,
    compress,
    execute,
    explain,
    find_faults,
    gemm,
    mma,
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
from emulator.tools.pictures.panels import Memory

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
    "Memory": (lambda **x: Page(WGMMA, memory=Memory(**x)), {
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
}  # fmt: skip


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_what_is_right_is_taken(call):
    function, right = call
    function(**right)


@pytest.mark.parametrize("name", CALLS)
def test_a_wrong_argument_is_refused_in_few_words(name):
    function, right = CALLS[name]
    refused = 0
    for argument in right:
        for what, wrong in WRONG.items():
            try:
                function(**right | {argument: wrong})
            except EmulatorError as error:
                refused += 1
                assert len(str(error)) < 2000, (argument, what)
            except AssertionError:
                # What a comparison finds unlike is no mistake of the caller's.
                assert name == "find_differences", (argument, what)
            except Exception as error:
                error.add_note(f"{name}({argument}={what})")
                raise
    assert refused > 10 * len(right)
