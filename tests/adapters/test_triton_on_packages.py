"""Packages of Triton kernels, unmodified, under ``exec``; `.ci/run` installs them."""

import subprocess
import sys
from importlib.util import find_spec

import pytest

pytestmark = pytest.mark.slow

LIGER = """
import torch
from liger_kernel.transformers import LigerCrossEntropyLoss, LigerRMSNorm
x = torch.randn(6, 96, device="cuda", requires_grad=True)
weight, target = torch.rand(96, device="cuda"), torch.randint(0, 96, (6,), device="cuda")
loss = LigerCrossEntropyLoss(weight=weight)(x * 1, target)
loss.backward()
y = x.detach().cpu().double().requires_grad_()
want = torch.nn.functional.cross_entropy(y, target.cpu(), weight.cpu().double())
want.backward()
torch.testing.assert_close(loss.cpu().double(), want, rtol=1e-6, atol=1e-6)
torch.testing.assert_close(x.grad.cpu().double(), y.grad, rtol=1e-5, atol=1e-6)
norm = LigerRMSNorm(96).cuda()(x).cpu().double()
torch.testing.assert_close(norm, torch.nn.functional.rms_norm(y, (96,), eps=1e-6),
                           rtol=1e-5, atol=1e-5)
"""

FLA = """
import torch
from fla.ops.gla import chunk_gla, fused_recurrent_gla
q, k, v = (torch.randn(1, 32, 2, 16, device="cuda") for _ in range(3))
g = torch.nn.functional.logsigmoid(torch.randn(1, 32, 2, 16, device="cuda"))
state, want = torch.zeros(1, 2, 16, 16, dtype=torch.float64), []
for t in range(32):
    a, b, c, d = (x[:, t].cpu().double() for x in (q, k, v, g))
    state = state * d.exp()[..., None] + b[..., None] * c[..., None, :]
    want.append((a[..., None] * state).sum(-2) / 4)
want = torch.stack(want, 1)
for function, bound in ((fused_recurrent_gla, 1e-5), (chunk_gla, 5e-3)):
    found = function(q, k, v, g)[0].cpu().double()
    torch.testing.assert_close(found, want, rtol=bound, atol=bound)
"""

GEMS = """
import flag_gems, torch
from torch.nn.functional import layer_norm
x = torch.randn(9, 65)
on_gpu = x.cuda()
# Its pointwise operators want block pointers, which Triton 3.9 has no longer.
calls = [lambda x: x.sum(1), lambda x: torch.softmax(x, 1), lambda x: layer_norm(x, (65,)),
         lambda x: x.amax(1), lambda x: x.cumsum(1)]
gems = {key for key in torch.library._impls if key.startswith("aten/") and key.endswith("/CUDA")}
with flag_gems.use_gems():
    assert torch.library._impls - gems, "the package registered nothing"
    found = [call(on_gpu) for call in calls]
for call, values in zip(calls, found, strict=True):
    torch.testing.assert_close(values.cpu().double(), call(x.double()), rtol=1e-5, atol=1e-5)
"""


@pytest.mark.parametrize(
    ("package", "script"), [("liger_kernel", LIGER), ("fla", FLA), ("flag_gems", GEMS)]
)
def test_a_package_computes_what_it_says(package, script, tmp_path, monkeypatch):
    for name in ("torch", "triton", package):
        if find_spec(name) is None:
            pytest.skip(f"{name} is not installed")
    monkeypatch.setenv("GEMS_VENDOR", "nvidia")  # it would ask nvidia-smi
    path, log = tmp_path / "script.py", tmp_path / "log"
    path.write_text(script)
    command = [sys.executable, "-m", "emulator", "exec", "--gpu", "H100", "--log", str(log), "--"]
    ran = subprocess.run(
        [*command, sys.executable, str(path)], capture_output=True, text=True, timeout=900
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert '"kernel"' in log.read_text()
