"""Multiplications of whole kernels by machine code: the H200's bytes, whatever was small enough for
the other engines before."""

from dataclasses import replace

import pytest
from kernel_recordings import KERNELS, REAL, differing_bytes

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
