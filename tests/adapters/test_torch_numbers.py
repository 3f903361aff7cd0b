"""Operators with numbers, masks and 0-dimensional tensors, and others, have the bits that an H200
gave."""

import pytest

pytest.importorskip("torch")

import torch
from numbers_of_torch import digest, distances, others, read, with_numbers, with_tensors

from emulator.adapters.pytorch import simulated_gpu

RECORDED, ABOUT = read()


@pytest.mark.slow
@pytest.mark.parametrize("type_", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("make", [with_numbers, with_tensors, others])
def test_operators_have_the_recorded_bits(make, type_):
    with simulated_gpu("H200", strict=True):
        assert [name for name, call in make(type_) if digest(call()) != RECORDED[name]] == []


def test_some_operators_have_the_recorded_bits():
    with simulated_gpu("H200", strict=True):
        calls = [*with_numbers("f16"), *with_tensors("bf16")][::9]
        assert [name for name, call in calls if digest(call()) != RECORDED[name]] == []


def test_distances_have_the_recorded_bits():
    with simulated_gpu("H200", strict=True):
        assert [name for name, call in distances() if digest(call()) != RECORDED[name]] == []


def test_numbers_of_the_device_are_rounded_and_those_of_the_cpu_are_not():
    with simulated_gpu("H200"):
        x = torch.full((1,), 3.0, dtype=torch.float16, device="cuda")
        number = torch.tensor(1 + 2.0**-11 + 2.0**-13, dtype=torch.float64)
        assert (x * number).item() == (x * number.item()).item() == 3 + 2.0**-9
        assert (x * number.cuda()).item() == 3 + 2.0**-8


def test_provenance():
    assert ABOUT["gpu"] == "NVIDIA H200" and ABOUT["torch"].startswith("2.11")
