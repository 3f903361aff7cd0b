"""Batch norms, gradients of maxima, and attention of further kinds have the bits of an H200."""

import pytest

pytest.importorskip("torch")

import attentions
import torch
from attentions import digest
from layers import read, run

from emulator import UnsupportedError
from emulator.adapters.pytorch import simulated_gpu

RECORDED = read()
RESULTS, ATTENTIONS = RECORDED["results"], RECORDED["attention"]


def cases(results):
    return list(dict.fromkeys(name.rpartition(".")[0] for name in results))


def wrong_layers(name):
    with simulated_gpu("H200", strict=True):
        return [
            f"{case}.{key}" for case in cases(RESULTS) if case.startswith(name)
            for key, made in run(case).items() if digest(made) != RESULTS[f"{case}.{key}"]
        ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", ["norm", "pool"])
def test_layers_have_the_recorded_bits(name):
    assert wrong_layers(name) == []


@pytest.mark.parametrize("name", ["norm.f32.2.32.16.16", "pool.f16.1.3"])
def test_some_layers_have_the_recorded_bits(name):
    assert wrong_layers(name) == []


def wrong_attentions(kernel):
    with simulated_gpu("H200", strict=True):
        return [
            name for case in cases(ATTENTIONS) if case.startswith(kernel)
            for key, made in attentions.run(case, gradients=f"{case}.dq" in ATTENTIONS).items()
            if (name := f"{case}.{key}") in ATTENTIONS and digest(made) != ATTENTIONS[name]
        ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["efficient", "cudnn"])
def test_attentions_have_the_recorded_bits(kernel):
    """Gradients of one block of keys; and cuDNN's kernel for a single query."""
    assert wrong_attentions(kernel) == []


@pytest.mark.parametrize(
    "kernel", ["efficient.f32.2.4.33", "efficient.bf16.1.1.33.33.80", "cudnn.f16.1.4.1.77"]
)
def test_some_attentions_have_the_recorded_bits(kernel):
    assert wrong_attentions(kernel) == []


def test_another_bit_is_noticed():
    case = "norm.f32.3.12.50"
    with simulated_gpu("H200"):
        made = run(case)["dx"].cpu()
    assert digest(made) == RESULTS[f"{case}.dx"]
    made.view(torch.int32)[2, 11, 49] ^= 1
    assert digest(made) != RESULTS[f"{case}.dx"]


def test_what_was_not_seen_is_refused():
    """Channels of more elements have another kernel, and so has f16."""
    with simulated_gpu("H200", strict=True):
        for shape, kind in (((2, 3, 80, 80), torch.float32), ((2, 3, 8, 8), torch.float16)):
            x = torch.ones(shape, dtype=kind, device="cuda")
            with pytest.raises(UnsupportedError, match="native_batch_norm"):
                torch.nn.BatchNorm2d(3, device="cuda")(x)
