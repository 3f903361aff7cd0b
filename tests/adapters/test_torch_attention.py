"""Fused attention on the simulated GPU has the bits that an H200 gave."""

import pytest

pytest.importorskip("torch")

import torch
import torch.nn.functional as F
from attentions import digest, read, run

from emulator import UnsupportedError
from emulator.adapters.pytorch import simulated_gpu

RECORDED = read()["results"]
CASES = list(dict.fromkeys(name.rpartition(".")[0] for name in RECORDED))
#: queries or keys from which a test is slow
LONG = 100


def different(fits):
    """Recorded results and gradients that are not the H200's."""
    with simulated_gpu("H200"):
        return [
            f"{case}.{name}" for case in CASES if fits(max(map(int, case.split(".")[4:6])))
            for name, made in run(case).items() if digest(made) != RECORDED[f"{case}.{name}"]
        ]  # fmt: skip


@pytest.mark.parametrize("length", [33, 48, 64, 96])
def test_attention_has_the_recorded_bits(length):
    assert different(lambda n: n == length) == []


@pytest.mark.slow
@pytest.mark.parametrize("length", [128, 130, 200, 300])
def test_long_attention_has_the_recorded_bits(length):
    assert different(lambda n: n == length) == []


def test_every_length_is_tested():
    lengths = {max(map(int, case.split(".")[4:6])) for case in CASES}
    assert lengths == {33, 48, 64, 96, 128, 130, 200, 300} and len(CASES) == 112


def test_another_bit_is_noticed():
    case = "flash.f16.1.2.33.33.32.c"
    with simulated_gpu("H200"):
        made = run(case)["out"].cpu()
    assert digest(made) == RECORDED[f"{case}.out"]
    made.view(torch.int16)[0, 1, 32, 31] ^= 1
    assert digest(made) != RECORDED[f"{case}.out"]


def attended(dtype=torch.float16, width=32, **options):
    q = torch.ones(1, 2, 8, width, dtype=dtype, device="cuda")
    return F.scaled_dot_product_attention(q, q, q, **options)


@pytest.mark.parametrize(
    ("chip", "dtype", "options", "kernel", "evidence"),
    [
        ("H200", torch.float16, {}, "cuDNN", "rule"),
        ("H200", torch.float32, {"is_causal": True}, "efficient", "rule"),
        ("A100", torch.bfloat16, {}, "FlashAttention-2", "modelled"),
        ("H100", torch.float16, {}, "fused attention", "none"),
        ("H200", torch.float32, {"dropout_p": 0.5}, "fused attention", "none"),
        ("V100", torch.float16, {}, "fused attention", "none"),
    ],
)
def test_the_kernel_is_that_of_the_chip(chip, dtype, options, kernel, evidence):
    with simulated_gpu(chip) as gpu:
        attended(dtype, **options)
        (used,) = (x for x in gpu.used if x.operation == "scaled_dot_product_attention")
    assert used.evidence == evidence and kernel in used.why


def test_strict_takes_what_is_known_and_refuses_the_rest():
    with simulated_gpu("H200", strict=True):
        attended()
        with pytest.raises(UnsupportedError, match="fused attention"):
            attended(width=136)
        q = torch.ones(1, 2, 70, 32, device="cuda", requires_grad=True)
        with pytest.raises(UnsupportedError, match="gradient of fused attention"):
            F.scaled_dot_product_attention(q, q, q).backward(q.detach())
