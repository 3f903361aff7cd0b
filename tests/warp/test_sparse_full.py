"""Sparse A written out with zeros: equal to the selection row by row, also where a zero would meet
an infinity or a NaN that the hardware does not read, and where an element of B is used twice."""

import numpy as np
import pytest
from bits import assert_same_codes

from dtypes import FORMATS, code_type
from emulator import Instruction, mma
from emulator.arith.arrangement import with_gaps
from emulator.arith.steps import FmaChain, FusedDotAdd
from emulator.warp import sparse
from emulator.warp.sparse import EQUAL, legal_nibbles

pytestmark = pytest.mark.sampled(5)

SP = "mma.sp::ordered_metadata.sync.aligned."
CASES = (
    (SP + "m16n8k32.row.col.f32.f16.f16.f32", "sm_90a"),
    (SP + "m16n8k32.row.col.f32.f16.f16.f32", "sm_80"),
    (SP + "m16n8k32.row.col.f16.f16.f16.f16", "sm_80"),
    (SP + "m16n8k16.row.col.f32.tf32.tf32.f32", "sm_80"),
    (SP + "m16n8k16.row.col.f32.tf32.tf32.f32", "sm_90a"),
    (SP + "m16n8k64.row.col.f32.e4m3.e5m2.f32", "sm_90a"),
    (SP + "m16n8k64.row.col.f32.e4m3.e4m3.f32", "sm_89"),
    (SP + "m16n8k64.row.col.s32.s8.u8.s32", "sm_90a"),
    (SP + "m16n8k64.row.col.satfinite.s32.s8.s8.s32", "sm_90a"),
    (SP + "m16n8k128.row.col.s32.s4.u4.s32", "sm_80"),
    ("wgmma.mma_async.sp.sync.aligned.m64n8k64.f32.e4m3.e4m3", "sm_90a"),
    ("wgmma.mma_async.sp.sync.aligned.m64n8k32.f16.f16.f16", "sm_90a"),
    (
        SP + "m16n8k128.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3",
        "sm_120a",
    ),
    (
        SP + "m16n8k64.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e4m3.e4m3.f32.ue8m0",
        "sm_120a",
    ),
)
BATCH = 40


def random_codes(rng, fmt, shape, specials):
    """Codes with small exponents, of which a few are any code at all where `specials`."""
    out = rng.integers(0, fmt.code_mask, shape, np.uint64, endpoint=True)
    if fmt.is_float and fmt.bits > 8:
        wild = rng.random(shape) < (0.003 if specials else 0)
        exponent = rng.integers(fmt.bias - 4, fmt.bias + 4, shape).astype(np.uint64)
        sign = out & np.uint64(fmt.sign_mask)
        mantissa = out & np.uint64((1 << fmt.mantissa_bits) - 1)
        out = np.where(wild, out, sign | mantissa | exponent << np.uint64(fmt.mantissa_bits))
        out[rng.random(shape) < (0.002 if specials else 0)] = fmt.infinity or 0
    return out.astype(code_type(fmt.bits))


def operands(ins, rng, specials, nibbles):
    stored, k = ins.stored_k, ins.k
    a = random_codes(rng, FORMATS[ins.a_type], (BATCH, ins.m, stored), specials)
    b = random_codes(rng, FORMATS[ins.b_type], (BATCH, k, ins.n), specials)
    c = random_codes(rng, FORMATS[ins.c_type], (BATCH, ins.m, ins.n), False)
    a[rng.random(a.shape) < 0.1] = 0
    picked = rng.choice(np.array(nibbles, np.uint8), (BATCH, ins.m, k // ins.chunk))
    options = {"nibbles": picked, "codes": True, "undefined": "hardware"}
    if ins.is_block_scaled:
        options["scale_a"] = rng.integers(0x30, 0x40, (BATCH, ins.m, ins.scale_chunks), np.uint8)
        options["scale_b"] = rng.integers(0x30, 0x40, (BATCH, ins.scale_chunks, ins.n), np.uint8)
    return (a, b, c), options


@pytest.mark.parametrize(("opcode", "target"), CASES)
@pytest.mark.parametrize("specials", [False, True])
def test_written_out_is_what_the_selection_gives(opcode, target, specials, monkeypatch):
    ins, rng = Instruction.parse(opcode), np.random.default_rng(7)
    arrays, options = operands(ins, rng, specials, legal_nibbles(ins))
    options["target"] = target
    got = mma(ins, *arrays, engine="vector", **options)
    with monkeypatch.context() as patch:
        patch.setattr(sparse, "_matmul_full", lambda *given: None)
        want = mma(ins, *arrays, engine="vector", **options)
    assert_same_codes(got, want)
    few = slice(0, 2)
    options |= {x: options[x][few] for x in ("nibbles", "scale_a", "scale_b") if x in options}
    some = [x[few] for x in arrays]
    assert_same_codes(got[few], mma(ins, *some, engine="reference", **options))


@pytest.mark.parametrize(("opcode", "target"), CASES)
def test_undefined_nibbles_are_selected(opcode, target, monkeypatch):
    """Equal indices and halves of two words, in some rows only."""
    ins, rng = Instruction.parse(opcode), np.random.default_rng(8)
    arrays, options = operands(ins, rng, False, legal_nibbles(ins))
    nibbles = options["nibbles"]
    nibbles[:, 3, 1] = rng.choice(np.array(EQUAL, np.uint8), BATCH)
    arrays[0][: BATCH // 2, 3] = 0
    got = mma(ins, *arrays, target=target, engine="vector", **options)
    monkeypatch.setattr(sparse, "_matmul_full", lambda *given: None)
    assert_same_codes(got, mma(ins, *arrays, target=target, engine="vector", **options))


def test_most_of_it_is_computed_at_once(monkeypatch):
    """Not a test of speed: that the way row by row is not taken at all."""
    ins, rng = Instruction.parse(CASES[0][0]), np.random.default_rng(9)
    arrays, options = operands(ins, rng, False, legal_nibbles(ins))
    arrays[1][5, 7, 3] = FORMATS["f16"].infinity
    monkeypatch.setattr(sparse, "_matmul_each_row", None)
    mma(ins, *arrays, target="sm_90a", engine="vector", **options)


def test_passes_keep_their_elements():
    for opcode, target in CASES:
        ins = Instruction.parse(opcode)
        together = ins.stored_k * ins.chunk // ins.k
        arithmetic = ins.arithmetic(target)
        wide = with_gaps(arithmetic, together)
        core, spread = (
            [x for x in row.steps if isinstance(x, FusedDotAdd)] for row in (arithmetic, wide)
        )
        for one, two in zip(core, spread, strict=True):
            halves = [sorted({i // 2 // together for i in x}) for x in two.blocks(ins.k)]
            assert halves == [sorted({i // together for i in x}) for x in one.blocks(ins.stored_k)]


def test_recipes_that_see_zeros_are_not_written_out():
    f64 = Instruction.parse("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64").arithmetic("sm_90")
    assert isinstance(f64.steps[0], FmaChain)
    assert with_gaps(f64, 2) is None
    ampere = Instruction.parse(CASES[1][0]).arithmetic("sm_80")
    assert with_gaps(ampere, 3) is None
