"""Batches of small products in machine code, beside each other in lanes: equal to `vector`."""

import sys

import numpy as np
import pytest
from bits import assert_same_codes

from dtypes import FORMATS, code_type
from emulator import Instruction
from emulator.arith import matmul

pytestmark = pytest.mark.sampled(10)

pytest.importorskip("llvmlite")
tiles = pytest.importorskip("emulator.arith.fast.fused_tiles")

M = "mma.sync.aligned."
CASES = (
    (M + "m16n8k16.row.col.f32.f16.f16.f32", "sm_90a"),
    (M + "m16n8k16.row.col.f32.bf16.bf16.f32", "sm_80"),
    (M + "m16n8k16.row.col.f16.f16.f16.f16", "sm_80"),
    (M + "m16n8k8.row.col.f16.f16.f16.f16", "sm_75"),
    (M + "m16n8k4.row.col.f32.tf32.tf32.f32", "sm_90a"),
    (M + "m16n8k32.row.col.f32.e4m3.e5m2.f32", "sm_90a"),
    (M + "m16n8k32.row.col.f16.e4m3.e4m3.f16", "sm_90a"),
    (M + "m16n8k32.row.col.f32.e5m2.e4m3.f32", "sm_89"),
    (M + "m8n8k4.row.col.f32.f16.f16.f32", "sm_70"),
    (
        M + "m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e4m3.e2m1.f32.ue8m0",
        "sm_120a",
    ),
)


def operands(ins, count, specials, seed):
    """Codes of all kinds; without `specials` those whose exponents are near each other."""
    rng = np.random.default_rng(seed)

    def codes(name, shape):
        fmt = FORMATS[name]
        out = rng.integers(0, fmt.code_mask, shape, np.uint64, endpoint=True)
        if fmt.exponent_bits > 4:
            near = rng.integers(fmt.bias - 3, fmt.bias + 3, shape).astype(np.uint64)
            keep = np.uint64(fmt.sign_mask | ((1 << fmt.mantissa_bits) - 1))
            calm = out & keep | near << np.uint64(fmt.mantissa_bits)
            out = np.where(rng.random(shape) < specials, out, calm)
        return out.astype(code_type(fmt.bits))

    arrays = [
        codes(ins.a_type, (count, ins.m, ins.k)),
        codes(ins.b_type, (count, ins.n, ins.k)),
        codes(ins.c_type, (count, ins.m, ins.n)),
    ]
    if ins.is_block_scaled:
        for rows in (ins.m, ins.n):
            scales = rng.integers(117, 137, (count, rows, ins.scale_chunks))
            scales[rng.random(scales.shape) < specials] = 255
            arrays.append(scales.astype(np.uint8))
    return arrays


@pytest.mark.parametrize(("opcode", "target"), CASES)
@pytest.mark.parametrize("specials", [0, 0.002, 0.3])
@pytest.mark.parametrize("count", [tiles.TOGETHER // 2, tiles.TOGETHER + 3])
def test_lanes_are_vector(opcode, target, specials, count):
    ins = Instruction.parse(opcode)
    arrays = operands(ins, count, specials, count)
    arithmetic = ins.arithmetic(target)
    want = matmul(arithmetic, *arrays, engine="vector")
    assert_same_codes(matmul(arithmetic, *arrays, engine="compiled"), want)


def test_shared_operands_and_chains():
    """One B for all of the batch, and several instructions along k."""
    for opcode, target in CASES[:6]:
        ins = Instruction.parse(opcode)
        a, b, c = operands(ins, tiles.TOGETHER, 0.001, 1)
        arithmetic = ins.arithmetic(target)
        long = np.concatenate([a, a[::-1]], -1), np.concatenate([b, b[::-1]], -1)
        for x, y in ((a, b[:1]), (a[:1], b), long):
            want, got = (
                matmul(arithmetic, x, y, c, k=ins.k, engine=engine)
                for engine in ("vector", "compiled")
            )
            assert_same_codes(got, want)


def test_they_are_computed_in_lanes(monkeypatch):
    ins = Instruction.parse(CASES[0][0])
    arrays = operands(ins, tiles.TOGETHER, 0, 2)
    monkeypatch.setattr(tiles, "chain", None)
    matmul(ins.arithmetic("sm_90a"), *arrays, engine="compiled")


@pytest.mark.parametrize("name", ["LEAST", "LARGEST"])
def test_marks_of_decoding_are_needed(name):
    """Numbers beyond the range of ordinary ones: only their marks make the result right."""
    ins = Instruction.parse(CASES[1][0])
    arrays = operands(ins, tiles.TOGETHER, 0, 3)
    exponent = 2 if name == "LEAST" else 250
    arrays[0][5, 2, 3] = exponent << 7 | 5
    arrays[1][5, :, 3] = (exponent << 7 | 9) if name == "LEAST" else 4 << 7
    arithmetic = ins.arithmetic("sm_80")
    p, q = ((arithmetic.a, x, None) for x in arrays[:2])
    from emulator.arith.fast.factors import plan

    _, bad = tiles.chain_of_batch(plan(arithmetic, ins.k), p, q, None, arrays[2])
    assert bad[5, 2].all()
    assert not bad[4].any()
    want = matmul(arithmetic, *arrays, engine="vector")
    assert_same_codes(matmul(arithmetic, *arrays, engine="compiled"), want)


@pytest.mark.parametrize("plant", ["specials", "kind", "marks"])
def test_the_comparison_would_show(plant, monkeypatch):
    ins = Instruction.parse(CASES[7][0])
    arithmetic = ins.arithmetic("sm_89")
    arrays = operands(ins, 2 * tiles.TOGETHER, 0.01, 4)
    want = matmul(arithmetic, *arrays, engine="vector")
    monkeypatch.setattr(sys.modules["emulator.arith.matmul"], "_MOSTLY_ORDINARY", 0)
    monkeypatch.setattr(sys.modules["emulator.arith.matmul"], "_RARE", 1)
    assert_same_codes(matmul(arithmetic, *arrays, engine="compiled"), want)
    right, kind = tiles.chain_of_batch, tiles._kind

    def unmarked(*given):
        x, bad = right(*given)
        return x, np.zeros_like(bad)

    if plant == "specials":
        monkeypatch.setattr(tiles, "_with_specials", lambda *_: None)
    elif plant == "kind":
        monkeypatch.setattr(tiles, "_kind", lambda *x: kind(*x)._replace(fraction_bits=12))
    else:
        # Numbers too large, which e5m2 does not have.
        ins = Instruction.parse(CASES[1][0])
        arithmetic = ins.arithmetic("sm_80")
        arrays = operands(ins, tiles.TOGETHER, 0.2, 4)
        want = matmul(arithmetic, *arrays, engine="vector")
        monkeypatch.setattr(tiles, "chain_of_batch", unmarked)
    with pytest.raises(AssertionError, match="codes differ"):
        assert_same_codes(matmul(arithmetic, *arrays, engine="compiled"), want)
