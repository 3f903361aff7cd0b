"""Optimisers, interpolation and gradients of embeddings have the bits that an H200 gave."""

import gzip
import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
from optimisers import cases, values
from random_numbers import digest

from emulator import UnsupportedError
from emulator.adapters.pytorch import simulated_gpu
from emulator.tools.pytorch.device import optimisers

RECORDED = json.loads(
    gzip.decompress(
        (Path(__file__).parent.parent / "golden" / "h200_optimisers.json.gz").read_bytes()
    )
)


@pytest.mark.slow
def test_results_have_the_recorded_bits():
    with simulated_gpu("H200"):
        calls = dict(cases())
        assert set(RECORDED["results"]) <= set(calls)
        different = [k for k, v in RECORDED["results"].items() if digest(calls[k]()) != v]
    assert different == []
    assert RECORDED["about"]["gpu"] == "NVIDIA H200" and len(RECORDED["results"]) > 40


def test_another_bit_is_noticed():
    with simulated_gpu("H200"):
        made = dict(cases())["adamw.fused.f32"]().cpu()
    assert digest(made) == RECORDED["results"]["adamw.fused.f32"]
    made.view(torch.int32)[-1] ^= 1
    assert digest(made) != RECORDED["results"]["adamw.fused.f32"]


def test_edges():
    with simulated_gpu("H200", strict=True) as gpu:
        empty = torch.empty(0, device="cuda")
        assert torch._foreach_div([empty], 3.0)[0].shape == (0,)
        whole = values(1, 5)
        for zero in (0.0, [0.0]):
            assert torch._foreach_div([whole], zero)[0].isinf().all()
        before = whole.cpu()
        torch._foreach_div_([whole], [3.0])
        assert torch.equal(whole.cpu(), before / 3)
        assert gpu.used[-1].evidence == "rule"
        param = torch.zeros(4, device="cuda", requires_grad=True)
        param.grad = torch.full((4,), float("nan"), device="cuda")
        before = param.grad.clone()
        torch.optim.AdamW([param], fused=True).step()
        assert digest(param.grad) == digest(before) and param.isnan().all()
        assert not param.detach().cpu().view(torch.int32).add(-0x7FFFFFFF).any()
        param = torch.zeros(4, device="cuda", dtype=torch.float64, requires_grad=True)
        param.grad = torch.ones_like(param)
        with pytest.raises(UnsupportedError, match="not known"):
            torch.optim.AdamW([param], fused=True).step()


def test_another_order_of_norms_is_noticed(monkeypatch):
    with simulated_gpu("H200") as gpu:
        case = dict(cases())["norms.f32"]
        assert digest(case()) == RECORDED["results"]["norms.f32"]
        assert next(x.evidence for x in gpu.used if x.operation == "_foreach_norm") == "rule"
        monkeypatch.setattr(optimisers, "_total", lambda steps, x: (
            x.float().square().reshape(-1).numpy().cumsum(dtype="f4")[-1]))  # fmt: skip
        assert digest(case()) != RECORDED["results"]["norms.f32"]


def test_edges_of_norms():
    with simulated_gpu("H200") as gpu:
        x = values(1, 4, 6)
        for ord_, wanted in ((1, 24), (2, 24**0.5)):
            made = torch._foreach_norm([torch.ones_like(x), torch.ones_like(x)], ord_)
            assert [one.item() for one in made] == pytest.approx([wanted] * 2)
        assert torch._foreach_norm([x / 0])[0].isnan() == (x == 0).any()
        assert "none" not in gpu.used.evidence
    with simulated_gpu("H200", strict=True):
        x = values(1, 4, 6)
        for refused in ([x.t()], [x, x.half()], [x[:0]]):
            with pytest.raises(UnsupportedError, match="_foreach_norm"):
                torch._foreach_norm(refused)


def test_edges_of_images():
    functional = torch.nn.functional
    with simulated_gpu("H200", strict=True) as gpu:
        image = values(1, 2, 3, 5, 4)
        for mode in ("bilinear", "bicubic"):
            same = functional.interpolate(image, size=(5, 4), mode=mode)
            assert digest(same) == digest(image)
            one = functional.interpolate(image, size=(1, 1), mode=mode, align_corners=True)
            assert digest(one) == digest(image[:, :, :1, :1])
            assert functional.interpolate(image[:, :, :1, :1], size=(3, 2), mode=mode).shape[2] == 3
        assert {x.evidence for x in gpu.used if "upsample" in x.operation} == {"recorded"}
        table = values(4, 5, 3).requires_grad_()
        none = torch.empty(0, dtype=torch.int64, device="cuda")
        functional.embedding(none, table).backward(torch.empty(0, 3, device="cuda"))
        assert not table.grad.any()
        sums = [x for x in gpu.used if x.operation == "embedding_dense_backward"]
        assert [x.evidence for x in sums] == ["rule"]
        for refused in (
            lambda: functional.interpolate(image.double(), size=(3, 3), mode="bilinear"),
            lambda: functional.interpolate(image.to(memory_format=torch.channels_last),
                                           size=(3, 3), mode="bilinear"),
            lambda: functional.embedding(torch.zeros(3073, dtype=torch.int64, device="cuda"),
                                         table).sum().backward(),
            lambda: functional.embedding(torch.zeros(3, dtype=torch.int64, device="cuda"),
                                         table, scale_grad_by_freq=True).sum().backward(),
        ):  # fmt: skip
            with pytest.raises(UnsupportedError, match="not known"):
                refused()
