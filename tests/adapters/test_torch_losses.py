"""Losses and their gradients on the simulated GPU have the bits that an H200 gave."""

import gzip
import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
import torch.nn.functional as F
from optimisers import cases, values
from random_numbers import digest

from emulator import UnsupportedError
from emulator.adapters.pytorch import simulated_gpu
from emulator.tools.pytorch.device import losses

RECORDED = json.loads(
    gzip.decompress(
        (Path(__file__).parent.parent / "golden" / "h200_optimisers.json.gz").read_bytes()
    )
)["results"]
LOSSES = ("cross_entropy", "mse", "l1", "smooth_l1", "huber", "kl", "bce")
NAMES = [name for name in RECORDED if name.startswith(LOSSES)]


def test_losses_have_the_recorded_bits():
    different, unknown = [], []
    with simulated_gpu("H200") as gpu:
        calls = dict(cases())
        for name in NAMES:
            gpu.used.clear()
            if digest(calls[name]()) != RECORDED[name]:
                different.append(name)
            if "none" in gpu.used.evidence:
                unknown.append(name)
    assert (different, unknown) == ([], [])
    assert len(NAMES) == 78


def test_another_order_is_noticed(monkeypatch):
    monkeypatch.setattr(losses, "_LEAST_THREADS", 2)
    with simulated_gpu("H200"):
        made = digest(dict(cases())["cross_entropy.f32"]())
    assert made != RECORDED["cross_entropy.f32"]


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_sums_without_rounding_are_those_of_the_cpu(reduction, dtype):
    x = (torch.arange(64 * 5).reshape(64, 5) % 8 - 4).to(dtype)
    target = torch.arange(64) % 5
    weight = torch.tensor([0.5, 1, 2, 0, 0.25], dtype=dtype)

    def run(device, rows):
        held = x[rows].to(device).requires_grad_()
        loss = F.nll_loss(
            held, target[rows].to(device), weight.to(device), reduction=reduction, ignore_index=3
        )
        loss.backward(torch.full_like(loss, 2))
        return loss.detach().cpu(), held.grad.cpu()

    for rows in (slice(None), slice(1, 3), 1):
        wanted = run("cpu", rows)
        with simulated_gpu("H200") as gpu:
            made = run("cuda", rows)
            assert "none" not in gpu.used.evidence
        for one, other in zip(made, wanted, strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)


def test_edges_of_the_likelihood():
    assert [losses._threads(n) for n in (1, 735, 736, 2912, 20000)] == [32, 32, 64, 256, 1024]
    with simulated_gpu("H200"):
        x = values(1, 4, 3)
        target = torch.full((4,), -100, device="cuda")
        assert F.nll_loss(x, target).isnan()
        assert F.nll_loss(x, target, reduction="sum") == 0
        whole = F.nll_loss(x, target.fill_(2).to(torch.uint8))
        assert whole == F.nll_loss(x, target)
        zero = torch.zeros(3, device="cuda")
        assert F.nll_loss(x[0], target[0], zero).isnan()
        assert F.nll_loss(x[0], target[0], zero, ignore_index=2) == 0
        with pytest.raises(IndexError, match="out of bounds"):
            F.nll_loss(x, target.fill_(3))
        with pytest.raises((RuntimeError, ValueError), match="batch"):
            F.nll_loss(x, target[:3])


def test_edges_of_losses_of_elements():
    with simulated_gpu("H200") as gpu:
        part = torch.tensor([0.0, 1.0, 0.25, 0.5], device="cuda").requires_grad_()
        target = torch.tensor([1.0, 0.0, 0.0, 1.0], device="cuda")
        weight = torch.tensor([2.0, 1.0, 0.0, 0.0], device="cuda")
        loss = F.binary_cross_entropy(part, target, weight, reduction="sum")
        loss.backward()
        assert loss == 300 and part.grad.tolist() == pytest.approx([-2e12, 1e12, 0, 0])
        mean = F.binary_cross_entropy(part, target, weight)
        part.grad = None
        mean.backward()
        assert mean == 75 and part.grad[0].item() == pytest.approx(-5e11)
        x = torch.tensor([-3.0, -0.5, 2.0], device="cuda").requires_grad_()
        zero = torch.zeros(3, device="cuda")
        for function, loss, grad in (
            (F.smooth_l1_loss, [2.5, 0.125, 1.5], [-1, -0.5, 1]),
            (F.huber_loss, [2.5, 0.125, 1.5], [-1, -0.5, 1]),
            (F.mse_loss, [9, 0.25, 4], [-6, -1, 4]),
        ):
            x.grad = None
            made = function(x, zero, reduction="none")
            made.backward(torch.ones_like(made))
            assert (made.tolist(), x.grad.tolist()) == (loss, grad)
        assert "none" not in gpu.used.evidence
        with pytest.raises(RuntimeError, match="between 0 and 1"):
            F.binary_cross_entropy(part + 1, target)
    with simulated_gpu("H200", strict=True), pytest.raises(UnsupportedError, match="mse_loss"):
        F.mse_loss(torch.ones(3, 4, device="cuda").t(), torch.ones(4, 3, device="cuda"))
