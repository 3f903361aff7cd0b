"""Pointwise operators on the simulated GPU have the bits that an H200 gave."""

import pytest

pytest.importorskip("torch")

import torch
from pointwise import cases, digest, operand, read

from emulator import UnsupportedError
from emulator.adapters.pytorch import simulated_gpu
from emulator.tools.pytorch.device.kernel import KERNELS
from emulator.tools.pytorch.device.pointwise import OPERANDS

RECORDED, ABOUT = read()


def different(type_):
    """Operators whose results are not the H200's."""
    found = []
    with simulated_gpu("H200"):
        for name, call in cases(type_).items():
            count, wanted = RECORDED.get(f"{type_}.{name}", (0, ""))
            if count and digest(call(), count) != wanted:
                found.append(name)
    return found


@pytest.mark.parametrize("type_", ["f32", "f16", "bf16"])
def test_operators_have_the_recorded_bits(type_):
    assert different(type_) == []


def test_another_bit_is_noticed():
    count, wanted = RECORDED["f16.gelu"]
    with simulated_gpu("H200"):
        made = torch.nn.functional.gelu(operand("f16", 0).to("cuda")).cpu()
    assert digest(made, count) == wanted
    made.view(torch.int16)[count // 2 - 1] ^= 1
    assert digest(made, count) != wanted


@pytest.mark.parametrize("decimals", [309, -400])
def test_powers_that_no_float_holds_are_infinite(decimals):
    with simulated_gpu("H200"):
        made = torch.round(torch.ones(2, device="cuda"), decimals=decimals).cpu()
    assert made.isnan().all()


def test_provenance():
    assert ABOUT["gpu"] == "NVIDIA H200" and len(RECORDED) == 400


def test_every_row_has_a_kernel_and_every_kernel_a_row():
    named = {
        line.partition("op_")[2].rstrip("(")
        for line in (KERNELS / "pointwise.ptx").read_text().splitlines()
        if ".entry" in line
    }
    assert set(OPERANDS) <= named
    assert {x for x in named if x not in OPERANDS} == {
        "copy", "cube", "div_floor_by", "div_trunc", "div_trunc_by", "gelu_tanh",
        "gelu_backward_tanh", "inverse_square", "log_of_sum", "one", "sigmoid_backward_rounded",
        "tanh_backward_rounded",
    }  # fmt: skip


def test_shapes_types_and_places():
    x = torch.linspace(-3, 3, 12).reshape(3, 4)
    with simulated_gpu("H200") as gpu:
        a = x.to("cuda")
        wanted = torch.exp(a).cpu()
        assert torch.equal(torch.exp(a.t()).cpu(), wanted.t())
        assert torch.exp(a.t()).stride() == (1, 4)
        assert torch.equal(torch.exp(a[:, ::2]).cpu(), wanted[:, ::2])
        assert torch.exp(a[:0]).shape == (0, 4) and torch.exp(a[0, 0]).shape == ()
        held = a.clone()
        assert held.exp_() is held and torch.equal(held.cpu(), wanted)
        out = torch.empty(3, 4, device="cuda")
        assert torch.exp(a, out=out) is out and torch.equal(out.cpu(), wanted)
        rows = torch.pow(a.abs(), torch.tensor([1.5, 2.5, 0.5, 3.5], device="cuda"))
        each = [torch.pow(a[:, i].abs(), torch.full((3,), p, device="cuda"))
                for i, p in enumerate((1.5, 2.5, 0.5, 3.5))]  # fmt: skip
        assert torch.equal(rows.cpu(), torch.stack(each, 1).cpu())
        mixed = torch.atan2(a, a.half())
        assert mixed.dtype == torch.float32
        half = a.half()
        half.mul_(a)
        assert torch.equal(half.cpu(), (x.half().float() * x).half())
        gpu.used.clear()
        torch.exp(a)
        (used,) = gpu.used
        assert (used.evidence, used.order) == ("recorded", "computed as on the GPU")


def test_many_elements_of_16_bits():
    x = torch.linspace(-3, 3, 70000)
    with simulated_gpu("H200"):
        a = x.half().to("cuda")
        gelu, few = torch.nn.functional.gelu, a[69000:]
        assert torch.equal(gelu(a)[69000:].cpu(), gelu(few).cpu())
        assert torch.equal((a**0.7)[69000:].cpu(), (few**0.7).cpu())
        first = torch.atan2(a, a[:1])
        assert torch.equal(first[69000:].cpu(), torch.atan2(few, a[:1]).cpu())
        assert torch.equal((a.view(700, 100).t() * 3).cpu(), (a * 3).cpu().view(700, 100).t())


def test_conversions_to_e4m3_overflow_to_nan():
    x = torch.tensor([448.0, 464, 464.03125, 1e6, torch.inf])
    with simulated_gpu("H200"):
        codes = torch.cat([x, -x]).cuda().to(torch.float8_e4m3fn).view(torch.uint8).cpu()
    assert codes.tolist() == [0x7E, 0x7E, 0x7F, 0x7F, 0x7F, 0xFE, 0xFE, 0xFF, 0xFF, 0xFF]


def test_evidence_is_of_the_recorded_chip():
    with simulated_gpu("A100") as gpu:
        torch.exp(torch.ones(3, device="cuda"))
        assert gpu.used[-1].evidence == "modelled"
    with simulated_gpu("V100") as gpu, torch.no_grad():
        torch.exp(torch.ones(3, device="cuda"))
        assert gpu.used[-1].evidence == "none"


def test_strict_takes_what_is_recorded():
    with simulated_gpu("H200", strict=True):
        a = torch.linspace(-3, 3, 12).to("cuda")
        torch.nn.functional.gelu(a)
        with pytest.raises(UnsupportedError, match="erfcx"):
            torch.special.erfcx(a)
