"""Multiplications of whole kernels by machine code: the H200's bytes, whatever was small enough for
the other engines before."""

from dataclasses import replace

import numpy as np
import pytest
from kernel_recordings import KERNELS, REAL, differing_bytes

from emulator import Module
from emulator.arith import engines
from emulator.machine.vector import kernels

pytest.importorskip("llvmlite")

#: the others are slow
QUICK = "tri_mm_bf16"
MULTIPLYING = [
    x for x in (*KERNELS, *REAL) if any(y in x.stem for y in ("mm", "cutlass", "attention"))
]


@pytest.fixture
def computed(monkeypatch):
    """What kernels were asked for and did."""
    out = []
    multiply = kernels._multiply
    monkeypatch.setattr(engines, "_WORTH_A_KERNEL", 0)
    monkeypatch.setattr(kernels, "_multiply", lambda *x: out.append(multiply(*x)) or out[-1])
    return out


@pytest.mark.parametrize(
    "path",
    [pytest.param(x, marks=() if x.stem == QUICK else pytest.mark.slow) for x in MULTIPLYING],
    ids=lambda path: path.stem,
)
def test_every_byte_is_the_h200s(path, computed):
    assert not any(differing_bytes(path))
    assert computed and all(computed)


def test_a_wrong_product_is_noticed(monkeypatch, computed):
    """As where terms are cut two bits higher."""
    native = pytest.importorskip("emulator.warp.native")
    product_of = native.product_of

    def changed(*given):
        product = product_of(*given)
        (step,) = product.arithmetic.steps
        steps = (replace(step, fraction_bits=step.fraction_bits - 2),)
        return product._replace(arithmetic=replace(product.arithmetic, steps=steps))

    monkeypatch.setattr(native, "product_of", changed)
    (path,) = [x for x in MULTIPLYING if x.stem == QUICK]
    assert any(differing_bytes(path))


def test_sums_that_were_exchanged(computed):
    """The words of an accumulator are rows of one array, but not in their order any more."""
    d = "{%f0, %f1, %f2, %f3}"
    product = "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32"
    text = f""".version 8.5\n.target sm_90a\n.address_size 64
    .visible .entry go(.param .u64 a, .param .u64 o) {{
    .reg .b32 %r<6>; .reg .b64 %rd<4>; .reg .f32 %f<9>; ld.param.u64 %rd1, [a];
    mov.u32 %r0, %tid.x; mul.wide.u32 %rd3, %r0, 16; add.u64 %rd1, %rd1, %rd3;
    ld.param.u64 %rd2, [o]; add.u64 %rd2, %rd2, %rd3;
    ld.global.v4.b32 {{%r1, %r2, %r3, %r4}}, [%rd1]; mov.f32 %f8, 0f00000000;
    {product} {d}, {{%r1, %r2}}, {{%r3}}, {{%f8, %f8, %f8, %f8}};
    mov.f32 %f4, %f0; mov.f32 %f0, %f3; mov.f32 %f3, %f4;
    {product} {d}, {{%r1, %r3}}, {{%r4}}, {d};
    {product} {d}, {{%r3, %r2}}, {{%r4}}, {d};
    st.global.v4.f32 [%rd2], {d}; ret; }}"""
    given = np.random.default_rng(1).normal(size=64 * 8).astype(np.float16)
    held = []
    for engine in ("reference", "vector"):
        out = np.zeros(64 * 4, np.float32)
        Module(text)["go"].launch(1, 64, [given, out], engine=engine)
        held.append(out.tobytes())
    assert held[0] == held[1] and len(computed) == 3 and all(computed)
