"""Operators of PyTorch on the simulated GPU have the bits of an H100, which are an H200's."""

import pytest

pytest.importorskip("torch")

import torch
from attentions import digest
from torch_on_h100 import FAMILIES, read

from emulator.adapters.pytorch import simulated_gpu

RECORDED = read()["results"]


def different(family):
    """Recorded results that are not the GPU's, and how many were compared.

    Of convolutions that cuDNN computes, which are listed as "none", only the bias is.
    """
    found, count = [], 0
    with simulated_gpu("H200") as gpu:
        for case, run in FAMILIES[family]():
            gpu.used.clear()
            made = run()
            unknown = any(x.evidence == "none" for x in gpu.used)
            for name, result in made.items():
                recorded = RECORDED.get(f"{case}.{name}")
                if recorded and (name == "db" or not unknown):
                    count += 1
                    found += [f"{case}.{name}"] if digest(result) != recorded else []
    return found, count


@pytest.mark.parametrize(
    ("family", "count"),
    [
        pytest.param("attention", 528, marks=pytest.mark.slow),
        pytest.param("depthwise", 123, marks=pytest.mark.slow),
        ("bias", 14),
        ("softmax", 56),
        ("threshold", 54),
    ],
)
def test_the_bits_are_those_of_the_gpu(family, count):
    assert different(family) == ([], count)


def test_another_bit_is_noticed(monkeypatch):
    name = next(name for name in RECORDED if name.startswith("th/"))
    monkeypatch.setitem(RECORDED, name, "0" * 24)
    assert different("threshold")[0] == [name]


def test_operators_in_place_and_with_out():
    with simulated_gpu("H200"):
        x = torch.tensor([0.1, 0.2], dtype=torch.bfloat16, device="cuda")
        torch.nn.functional.threshold_(y := x.clone(), 0.1, 0.3)
        out = torch.empty(0, dtype=torch.bfloat16, device="cuda")
        torch.ops.aten.threshold.out(x, 0.1, 0.3, out=out)
        assert y.tolist() == out.tolist() == [0.30078125, 0.2001953125]
