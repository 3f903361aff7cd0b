"""Operators with numbers, masks and 0-dimensional tensors, and others, have the bits that an H200
gave."""

import pytest

pytest.importorskip("torch")

import torch
from numbers_of_torch import (
    TYPES,
    digest,
    distances,
    others,
    read,
    unclaimed,
    with_numbers,
    with_tensors,
)

from emulator import EmulatorError
from emulator.adapters.pytorch import simulated_gpu

RECORDED, ABOUT = read()


@pytest.mark.slow
@pytest.mark.parametrize("type_", TYPES)
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


def test_what_has_no_rule_is_refused():
    with simulated_gpu("H200", strict=True):
        for _, call in unclaimed():
            with pytest.raises(EmulatorError, match="is not known"):
                call()


def test_every_recording_is_compared_or_refused():
    with simulated_gpu("H200"):
        made = [make(type_) for make in (with_numbers, with_tensors, others) for type_ in TYPES]
        names = {name for calls in (*made, distances(), unclaimed()) for name, _ in calls}
    assert names == set(RECORDED)


def test_numbers_of_the_device_are_rounded_and_those_of_the_cpu_are_not():
    with simulated_gpu("H200"):
        x = torch.full((1,), 3.0, dtype=torch.float16, device="cuda")
        number = torch.tensor(1 + 2.0**-11 + 2.0**-13, dtype=torch.float64)
        assert (x * number).item() == (x * number.item()).item() == 3 + 2.0**-9
        assert (x * number.cuda()).item() == 3 + 2.0**-8


def test_provenance():
    assert ABOUT["gpu"] == "NVIDIA H200" and ABOUT["torch"].startswith("2.11")
