"""torch.compile on a GPU that is not there: inductor's Triton kernels run with its bits."""

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")
if triton.knobs.runtime.interpret:
    # Triton decides once for a process, when it is imported; test_triton.py needs the interpreter.
    pytest.skip("Triton interprets in this process", allow_module_level=True)

import triton.language as tl  # noqa: E402

from emulator.adapters.pytorch import simulated_gpu  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*TRITON_DEFAULT_FP_FUSION"),
    pytest.mark.filterwarnings("ignore:.*fp fusion"),
    pytest.mark.filterwarnings("ignore:.*TensorFloat32"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


@triton.jit
def doubled(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, i < n) * 2, i < n)


def test_a_kernel_takes_tensors_of_the_device_alone():
    with simulated_gpu("H100") as gpu:
        x, out = torch.arange(100.0, device="cuda"), torch.zeros(100, device="cuda")
        doubled[(4,)](x, out, 100, BLOCK=32)
        assert torch.equal(out, 2 * x) and gpu.driver.report.counters["blocks"] == 4
        with pytest.raises(ValueError, match=r"Pointer argument.*\(cpu tensor\?\)"):
            doubled[(4,)](x.cpu(), out, 100, BLOCK=32)
        elapsed = triton.testing.do_bench(lambda: doubled[(4,)](x, out, 100, BLOCK=32), rep=1)
        assert elapsed > 0
    with simulated_gpu("A100"):
        doubled[(4,)](x.cpu().cuda(), torch.zeros(100, device="cuda"), 100, BLOCK=32)


def fresh(function):
    torch._dynamo.reset()
    return torch.compile(function)


def softmax(x):
    return torch.softmax(x * 2 + 1, -1)


@pytest.mark.slow
def test_a_function_runs_as_a_kernel():
    with simulated_gpu("H100") as gpu:
        x = torch.randn(32, 64, device="cuda")
        gpu.used.clear()
        y = fresh(softmax)(x)
        assert y.is_cuda and "softmax" in gpu.driver.report.kernel
        assert not any("softmax" in product.operation for product in gpu.used)
        torch.testing.assert_close(y, softmax(x))


@pytest.mark.slow
def test_a_model_learns():
    with simulated_gpu("H200") as gpu:
        torch.manual_seed(0)
        model = torch.nn.Sequential(
            torch.nn.Linear(64, 128), torch.nn.LayerNorm(128), torch.nn.GELU(),
            torch.nn.Linear(128, 32),
        ).cuda()  # fmt: skip
        x = torch.randn(32, 64, device="cuda")
        wanted = model(x)
        wanted.square().sum().backward()
        gradients = [p.grad.clone() for p in model.parameters()]
        model.zero_grad()
        y = fresh(model)(x)
        y.square().sum().backward()
        torch.testing.assert_close(y, wanted)
        for parameter, gradient in zip(model.parameters(), gradients, strict=True):
            torch.testing.assert_close(parameter.grad, gradient)
        assert {"mm", "addmm"} <= {product.operation for product in gpu.used if product.layout}


@pytest.mark.slow
def test_another_gpu_compiles_anew():
    seen = {}
    for name in ("A100", "H100"):
        with simulated_gpu(name) as gpu:
            fresh(softmax)(torch.randn(4, 64, device="cuda"))
            seen[name] = gpu.driver.report.text_of_module.partition(".target ")[2][:5]
    assert seen == {"A100": "sm_80", "H100": "sm_90"}


@pytest.mark.slow
def test_what_is_not_compiled_runs_as_without():
    def loop(x):
        for _ in range(2):
            x = x @ x
            torch._dynamo.graph_break()
        return x

    with simulated_gpu("H100") as gpu:
        x = torch.linspace(-1, 1, 256, device="cuda").reshape(16, 16).half()
        wanted = loop(x)
        gpu.used.clear()
        assert torch.equal(fresh(loop)(x), wanted)
        assert [product.operation for product in gpu.used if product.layout] == ["mm", "mm"]
