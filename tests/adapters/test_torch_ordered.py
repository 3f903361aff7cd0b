"""Reductions, softmax, scans and norms on the simulated GPU have the bits that an H200 gave."""

from fractions import Fraction

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from ordered import TYPES, cases, digest, raw, read

from emulator import UnsupportedError
from emulator.adapters.pytorch import simulated_gpu
from emulator.tools.pytorch.device import softmax
from emulator.tools.pytorch.device.arithmetic import fma

RECORDED, ABOUT = read()
#: what is left to the CPU, and listed so
UNKNOWN = ("logcumsumexp", "group_norm.gradient", "group_norm.plain.gradient", "batch_norm",
           "rms_norm")  # fmt: skip


def different(type_, part):
    """Operators that claim the H200's bits and have others; and those that claim none."""
    found, unknown = [], []
    with simulated_gpu("H200") as gpu:
        for name, call in cases(type_):
            key = f"{type_}.{name}"
            if key not in RECORDED or not part(key):
                continue
            gpu.used.clear()
            try:
                made = digest(call())
            except RuntimeError as error:
                assert "expected scalar type" in str(error)
                unknown.append(name)
                continue
            if "none" in gpu.used.evidence:
                unknown.append(name)
            elif made != RECORDED[key]:
                found.append(name)
    return found, unknown


@pytest.mark.parametrize("type_", TYPES)
def test_some_operators_have_the_recorded_bits(type_):
    found, _ = different(type_, lambda key: int(RECORDED[key], 16) % 40 == 0)
    assert found == []


@pytest.mark.slow
@pytest.mark.parametrize("type_", TYPES)
def test_all_operators_have_the_recorded_bits(type_):
    found, unknown = different(type_, lambda key: True)
    assert found == []
    assert {name for name in unknown if not name.startswith(UNKNOWN)} == set()
    assert len(unknown) < 75


def test_provenance():
    assert ABOUT["gpu"] == "NVIDIA H200" and len(RECORDED) == 1501


def run(key):
    type_, _, name = key.partition(".")
    with simulated_gpu("H200"):
        return digest(next(call for case, call in cases(type_) if case == name)())


def test_another_order_is_noticed(monkeypatch):
    key = "f32.softmax.(3, 1026).-1"
    assert run(key) == RECORDED[key]
    monkeypatch.setattr(softmax, "_ROW_OF_WARP", 1024)
    assert run(key) != RECORDED[key]


def test_another_bit_is_noticed():
    with simulated_gpu("H200"):
        made = torch.arange(8.0, device="cuda").cumsum(0).cpu()
    before = digest(made)
    made.view(torch.int32)[7] ^= 1
    assert digest(made) != before and len(raw(made)) == 32


def nearest(number):
    """The f32 that is nearest to a fraction, ties to even."""
    guess = np.float32(float(number))
    around = [np.nextafter(guess, np.float32(side)) for side in (-np.inf, np.inf)]
    return min([guess, *around], key=lambda x: (
        abs(Fraction(float(x)) - number), int(x.view(np.int32)) & 1))  # fmt: skip


def test_fma_rounds_once():
    words = np.random.default_rng(5).integers(0, 1 << 32, (3, 2000), dtype=np.uint64)
    a, b, c = (words & 0x7FFFFF | 0x3F800000).astype(np.uint32).view(np.float32)
    # Sums near a tie between two numbers of f32, in f64 too, and results without a leading one.
    c = np.ldexp(c, (words[2] >> 24 & 127).astype(int) - 40)
    c[::3] = np.ldexp(np.float32(1), 24) + np.round(c[::3] % 8) * 2
    a[::5] = np.ldexp(a[::5], -80)
    b[::5] = np.ldexp(b[::5], -66)
    c[::5] = np.ldexp(c[::5], -150)
    made = fma(a, b, c)
    for x, y, z, result in zip(a, b, c, made, strict=True):
        exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
        assert result == nearest(exact), (x, y, z)


def test_evidence_and_strict():
    with simulated_gpu("H200") as gpu:
        x = torch.ones(4, 3, device="cuda")
        gpu.used.clear()
        x.softmax(-1)
        assert (gpu.used[-1].evidence, gpu.used[-1].order) == ("rule", "computed as on the GPU")
    with simulated_gpu("A100") as gpu:
        torch.ones(4, 3, device="cuda").sum(-1)
        assert gpu.used[-1].evidence == "modelled"
    with simulated_gpu("H200", strict=True):
        x = torch.ones(4, 3, device="cuda")
        x.cumsum(-1)
        with pytest.raises(UnsupportedError, match="cumsum"):
            x[0].cumsum(0)  # CUB's, whose order depends on which blocks end first
        with pytest.raises(UnsupportedError, match="logcumsumexp"):
            x[0].logcumsumexp(0)


def test_shapes_and_places():
    x = torch.linspace(-3, 3, 24).reshape(2, 3, 4)
    with simulated_gpu("H200"):
        a = x.to("cuda")
        assert a.sum((0, 2), keepdim=True).shape == (1, 3, 1)
        assert a.sum().shape == () and a.new_ones(()).sum().item() == 1
        assert a.half().sum(dtype=torch.float32).dtype == torch.float32
        out = torch.empty(2, 3, device="cuda")
        assert torch.sum(a, -1, out=out) is out and torch.equal(out, a.sum(-1))
        b = a.clone()
        assert b.cumsum_(1) is b and torch.equal(b, a.cumsum(1))
        assert torch.equal(a[:0].sum(-1).cpu(), torch.zeros(0, 3))
        assert a.transpose(0, 2).softmax(0).shape == (4, 3, 2)
        assert torch.equal(a.long().sum(0).cpu(), x.long().sum(0))
        assert torch.equal(a.double().sum(0).cpu(), x.double().sum(0))


def test_a_norm_without_evidence_has_gradients():
    x = torch.linspace(-1, 2, 12, dtype=torch.float64).reshape(3, 4)
    weight = torch.linspace(0.5, 1, 4, dtype=torch.float64)

    def gradients(*operands):
        held = [each.clone().requires_grad_() for each in operands]
        torch.nn.functional.rms_norm(held[0], (4,), held[1]).sum().backward()
        return [each.grad.cpu() for each in held]

    wanted = gradients(x, weight)
    with simulated_gpu("H200"):
        made = gradients(x.to("cuda"), weight.to("cuda"))
    for one, other in zip(made, wanted, strict=True):
        torch.testing.assert_close(one, other)
