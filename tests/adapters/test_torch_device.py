"""PyTorch's device "cuda" on a GPU that is not there."""

import copy
import io
import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from emulator import UnsupportedError  # noqa: E402
from emulator.adapters.pytorch import simulated_gpu, tensor_core_matmul  # noqa: E402
from emulator.tools.pytorch.exact import EXACT, INTEGERS, ROUNDED  # noqa: E402

functional = torch.nn.functional


@pytest.fixture
def gpu():
    with simulated_gpu("H200") as entered:
        yield entered


def bits(x):
    return x.detach().cpu().contiguous().view(torch.uint8).numpy()


def same(a, b):
    return a.shape == b.shape and a.dtype == b.dtype and np.array_equal(bits(a), bits(b))


# --- where a tensor is ----------------------------------------------------------------------------


def test_a_tensor_knows_where_it_is(gpu):
    x = torch.arange(6.0)
    for on in (x.cuda(), x.to("cuda"), x.to("cuda:0"), torch.arange(6.0, device="cuda")):
        assert on.is_cuda and not on.is_cpu
        assert on.device == torch.device("cuda", 0) and on.get_device() == 0
        assert type(on) is torch.Tensor
        assert same(on, x)
        assert on.to("cuda") is on and on.cuda() is on
        assert (on[2:] + 1).is_cuda and on[2:]._base is on
    assert not x.is_cuda and not (x + 1).is_cuda
    with torch.device("cuda"):
        assert torch.ones(2).is_cuda
    assert not torch.ones(2).is_cuda


def test_views_share_memory(gpu):
    x = torch.zeros(4, 4, device="cuda")
    x.view(16)[5] = 1
    x.t()[2].add_(2)
    x[0].unsqueeze(0).expand(2, 4)
    x.unfold(0, 2, 1)[0, 0, 0] = 7
    torch.ones(2, 4, device="cuda", out=x[2:])
    want = torch.zeros(4, 4)
    want.view(16)[5] = 1
    want.t()[2].add_(2)
    want[0, 0] = 7
    want[2:] = 1
    assert same(x, want)


def test_results_in_tensors_that_are_given(gpu):
    x, out = torch.arange(3.0, device="cuda"), torch.empty(0, device="cuda")
    assert torch.add(x, 1, out=out) is out
    assert out.tolist() == [1, 2, 3]
    x.resize_(2)
    assert x.tolist() == [0, 1]
    x.resize_(5)
    assert x[:2].tolist() == [0, 1]
    x.set_(out)
    assert x.data_ptr() == out.data_ptr()


def test_devices_do_not_mix(gpu):
    on, off = torch.ones(3, 3, device="cuda"), torch.ones(3, 3)
    for mixed in (
        lambda: on + off, lambda: off + on, lambda: on @ off, lambda: torch.cat([on, off]),
        lambda: functional.layer_norm(on, [3], off[0]), lambda: functional.linear(off, on),
        lambda: torch.where(on > 0, on, off),
    ):  # fmt: skip
        with pytest.raises(RuntimeError, match="same device"):
            mixed()
    with pytest.raises(TypeError, match="to host memory first"):
        on.numpy()
    # What a GPU takes from the host: numbers, indices, copies.
    assert (on * torch.tensor(2.0)).is_cuda
    assert on[torch.tensor([0, 2])].shape == (2, 3)
    assert same(off.copy_(on * 3), torch.full((3, 3), 3.0))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "make",
    [
        lambda x: x.to_sparse(),
        lambda x: x.to_sparse_csr(),
        lambda x: x.cpu().to_sparse().cuda(),
        lambda x: torch.sparse_coo_tensor([[0], [1]], [2.0], (2, 2), device="cuda"),
        lambda x: torch.empty(2, 2, layout=torch.sparse_coo, device="cuda"),
        lambda x: torch.sparse_csr_tensor([0, 1, 1], [1], [2.0], (2, 2), device="cuda").sum(),
        lambda x: torch.nested.nested_tensor([x[0], x[1, :1]]).unbind(),
        lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.quint8),
        lambda x: x.to_mkldnn(),
    ],
)
def test_only_strided_tensors_are_on_the_device(gpu, make):
    x = torch.ones(2, 2, device="cuda")
    with pytest.raises(UnsupportedError, match=r"not strided .* with \.cpu\(\)"):
        make(x)
    assert torch.equal(torch.sparse.mm(x.cpu().to_sparse(), x.cpu()), torch.full((2, 2), 2.0))


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.int8, torch.bfloat16, torch.float8_e4m3fn, torch.complex64]
)
def test_every_type_moves_there_and_back(gpu, dtype):
    raw = torch.arange(64, dtype=torch.uint8)
    x = (raw % 2).view(dtype) if dtype == torch.bool else raw.view(dtype)
    assert same(x.cuda().cpu(), x)
    assert same(x.cuda()[1::2].clone(), x[1::2].clone())
    if dtype.is_complex:
        assert same(x.cuda().conj().resolve_conj(), x.conj().resolve_conj())


def test_saved_and_copied(gpu):
    layer = torch.nn.Linear(4, 4).cuda()
    assert next(copy.deepcopy(layer).parameters()).is_cuda
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    for where in (None, "cpu"):
        file.seek(0)
        loaded = torch.load(file, map_location=where)["weight"]
        assert loaded.is_cuda != (where == "cpu") and same(loaded, layer.weight)


def test_memory_is_given_back(gpu):
    before = torch.cuda.memory_allocated()
    x = torch.empty(1 << 20, dtype=torch.uint8, device="cuda")
    view = x[5:]
    assert torch.cuda.memory_allocated() - before == 1 << 20
    del x
    assert torch.cuda.memory_allocated() - before == 1 << 20
    del view
    assert torch.cuda.memory_allocated() == before
    assert torch.cuda.max_memory_allocated() >= before + (1 << 20)
    with pytest.raises(torch.OutOfMemoryError, match="total capacity of 141"):
        torch.empty(1 << 40, dtype=torch.uint8, device="cuda")


# --- what torch.cuda says -------------------------------------------------------------------------


def test_torch_cuda_answers(gpu):
    cuda = torch.cuda
    assert cuda.is_available() and cuda.device_count() == 1 and cuda.current_device() == 0
    assert cuda.get_device_capability() == (9, 0) and cuda.get_device_name() == "NVIDIA H200"
    assert cuda.get_device_properties(0).multi_processor_count == 132
    assert cuda.is_bf16_supported() and cuda.mem_get_info()[1] == 141 << 30
    assert torch.accelerator.current_accelerator().type == "cuda"
    start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
    start.record()
    with cuda.stream(cuda.Stream()), cuda.device(0):
        x = torch.ones(2, device="cuda") + 1
    cuda.current_stream().wait_stream(cuda.default_stream())
    end.record()
    cuda.synchronize()
    assert start.elapsed_time(end) >= 0 and x.tolist() == [2, 2]
    assert x.pin_memory().cuda(non_blocking=True) is x
    x.record_stream(cuda.current_stream())


@pytest.mark.parametrize(
    ("name", "processors", "gib"), [("A100", 108, 40), ("H100", 132, 80), ("T4", 40, 16)]
)
def test_each_chip_has_its_own_sizes(name, processors, gib):
    with simulated_gpu(name):
        properties = torch.cuda.get_device_properties(0)
    assert (properties.multi_processor_count, properties.total_memory) == (processors, gib << 30)


def test_random_numbers_of_the_device_are_its_own(gpu):
    torch.manual_seed(3)
    on, off = torch.rand(4, device="cuda"), torch.rand(4)
    torch.manual_seed(3)
    assert same(torch.rand(4), off)
    torch.cuda.manual_seed(3)
    state = torch.cuda.get_rng_state()
    assert same(torch.rand(4, device="cuda"), on)
    torch.cuda.set_rng_state(state)
    assert same(torch.rand(4, device="cuda"), on)
    generator = torch.Generator("cuda").manual_seed(3)
    assert generator.device.type == "cuda"
    assert same(torch.rand(4, device="cuda", generator=generator), on)
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    functional.dropout(torch.ones(64, device="cuda"))
    assert same(torch.random.get_rng_state(), before)


# --- what is computed -----------------------------------------------------------------------------


def test_products_have_the_bits_of_the_library(gpu):
    torch.manual_seed(0)
    x, w = torch.randn(64, 256).half(), torch.randn(128, 256).half()
    y = functional.linear(x.cuda(), w.cuda())
    with tensor_core_matmul("H200") as used:
        want = functional.linear(x, w)
    assert same(y, want)
    assert not same(want, functional.linear(x, w)), "the test cannot see the difference"
    (product,) = [x for x in gpu.used if x.layout]
    assert product == used[0] and product.evidence == "recorded"
    assert gpu.used.chip == "H200"


def test_a_model_learns(gpu):
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.Flatten(),
        torch.nn.Linear(144, 16), torch.nn.LayerNorm(16), torch.nn.Dropout(0.1),
    ).to("cuda")  # fmt: skip
    adam = torch.optim.AdamW(model.parameters())
    x = torch.randn(2, 3, 8, 8, device="cuda")
    for _ in range(2):
        loss = model(x).square().mean()
        adam.zero_grad()
        loss.backward()
        adam.step()
    assert loss.is_cuda and all(p.grad.is_cuda for p in model.parameters())
    names = {product.operation for product in gpu.used}
    assert {"addmm", "native_layer_norm", "native_dropout"} <= names
    assert any("convolution" in name for name in names)


def test_gradients_that_only_pick_values_are_those_of_the_cpu(gpu):
    x = torch.linspace(-1, 1, 12).reshape(3, 4)
    found = []
    for leaf in (x.clone().requires_grad_(), x.cuda().requires_grad_()):
        torch.relu(leaf.flip(0)).t()[1:].repeat(2, 1).amax(0).sum().backward()
        found.append(leaf.grad)
    assert found[1].is_cuda and same(*found)


@pytest.mark.parametrize("softmax", [functional.softmax, functional.log_softmax])
def test_softmax_from_16_bits_to_32(gpu, softmax):
    x = torch.linspace(-2, 2, 12).reshape(3, 4).half()
    weights = torch.linspace(0, 1, 12).reshape(3, 4)
    on, off = x.cuda().requires_grad_(), x.float().requires_grad_()
    y, want = softmax(on, -1, dtype=torch.float32), softmax(off, -1)
    torch.testing.assert_close(y.cpu(), want)
    (y * weights.cuda()).sum().backward()
    (want * weights).sum().backward()
    torch.testing.assert_close(on.grad.cpu(), off.grad.half())


def test_attention_and_autocast(gpu):
    q = torch.randn(1, 2, 8, 16, device="cuda", requires_grad=True)
    functional.scaled_dot_product_attention(q, q, q, is_causal=True).sum().backward()
    assert q.grad.is_cuda
    known = {p.operation: p.evidence for p in gpu.used}
    assert known["scaled_dot_product_attention"] == "rule"
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert (q @ q.mT).dtype == torch.bfloat16
    with torch.inference_mode():
        assert functional.scaled_dot_product_attention(q, q, q).is_cuda


def test_the_list_says_what_is_the_gpus(gpu):
    x = torch.tensor([3.0, 1.0], device="cuda")
    evidence = {}
    for name, run in {
        "add": lambda: x + x, "exp": x.exp, "gt": lambda: x > 2, "sum": x.sum,
        "erfcx": lambda: torch.special.erfcx(x),
        "cat": lambda: torch.cat([x, x]), "randn": lambda: torch.randn(2, device="cuda"),
    }.items():  # fmt: skip
        gpu.used.clear()
        run()
        evidence[name] = gpu.used[-1].evidence
    assert evidence == {
        "add": "rule", "exp": "recorded", "gt": "rule", "sum": "rule", "erfcx": "none",
        "cat": "rule", "randn": "recorded",
    }  # fmt: skip
    gpu.used.clear()
    (x.int() + x.int()).sum()
    assert gpu.used.evidence == {"rule": len(gpu.used)}
    assert "none" not in str(gpu.used)


def test_the_table_of_exact_operators_names_operators():
    names = " ".join([*EXACT.values(), ROUNDED, INTEGERS]).split()
    assert len(names) == len(set(names))
    for name in names:
        assert hasattr(torch.ops.aten, name) or hasattr(torch.ops.aten, name + "_"), name


def test_evidence_of_arithmetic(gpu):
    x = torch.ones(3, device="cuda")
    for run, evidence in (
        (lambda: x.sub(x, alpha=1), "rule"), (lambda: x.sub(x, alpha=3), "recorded"),
        (lambda: x.div(x), "rule"), (lambda: x.div(x, rounding_mode="floor"), "recorded"),
        (lambda: x.int().sub(x.int(), alpha=3), "rule"), (lambda: x.double().div(3), "rule"),
        (lambda: x.mul(x.to(torch.complex64)), "none"),
    ):  # fmt: skip
        run()
        assert gpu.used[-1].evidence == evidence, gpu.used[-1]


def test_strict_raises_at_the_first_operator_that_is_not_the_gpus():
    with simulated_gpu("H200", strict=True) as gpu:
        x = torch.ones(64, 64, device="cuda").half()
        (x @ x + 1).relu()
        with pytest.raises(UnsupportedError, match="strict=True: special_erfcx"):
            torch.special.erfcx(x)
        assert gpu.used[-1].operation == "special_erfcx"


# --- how it begins and ends -----------------------------------------------------------------------


def attributes():
    owners = (
        torch, torch.cuda, torch._C, torch.version, torch.Tensor, torch.UntypedStorage,
        torch.backends.cuda, torch._C._CudaStreamBase, torch._C._CudaEventBase,
        torch._C._dynamo.guards,
    )  # fmt: skip
    return {(owner, name): value for owner in owners for name, value in vars(owner).items()}


def test_everything_is_as_before_when_it_ends():
    with simulated_gpu("H100"):
        torch.ones(1, device="cuda")  # imports what PyTorch imports at first use
    before = attributes()
    with pytest.raises(ZeroDivisionError), simulated_gpu("H100"):
        x = torch.ones(3, device="cuda")
        assert attributes().keys() - before.keys()
        raise ZeroDivisionError
    after = attributes()
    assert after.keys() == before.keys()
    assert not [key for key in before if after[key] is not before[key]]
    assert not torch.cuda.is_available() and torch.accelerator.current_accelerator() is None
    for attempt in (lambda: torch.ones(2).cuda(), lambda: x + 1):
        with pytest.raises((AssertionError, NotImplementedError)):
            attempt()
    leaf = torch.ones(3, requires_grad=True)
    (leaf * 2).sum().backward()
    assert leaf.grad.tolist() == [2, 2, 2]


def test_there_is_one_gpu(gpu):
    with pytest.raises(UnsupportedError, match="already"), simulated_gpu("H100"):
        pass
    assert torch.ones(1, device="cuda").is_cuda


def test_a_build_for_a_gpu_is_refused(monkeypatch):
    """Such a build has CUDA's own functions, which a simulated GPU brings, too."""
    monkeypatch.setattr(torch._C, "_has_cuda", True)
    monkeypatch.setattr(torch._C, "_cuda_getDeviceCount", int, raising=False)
    with (
        pytest.raises(UnsupportedError, match=r"built for a GPU.*whl/cpu"), simulated_gpu("H100"),
    ):  # fmt: skip
        pass


def test_a_process_that_computed_a_gradient_too_early():
    script = (
        "import torch; torch.ones(1, requires_grad=True).sum().backward()\n"
        "from emulator.adapters.pytorch import simulated_gpu\n"
        "with simulated_gpu('H100'): pass"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120
    )
    assert "before the first backward()" in ran.stderr


def test_for_a_whole_process():
    script = (
        "from emulator.adapters.pytorch import install\n"
        "gpu = install('A100')\n"
        "import torch\n"
        "x = torch.randn(8, 8, device='cuda', requires_grad=True)\n"
        "(x @ x).sum().backward()\n"
        "print(torch.cuda.get_device_name(), x.grad.device, gpu.used.chip)\n"
        "print(gpu.driver is None or gpu.driver.get_current_device())"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120
    )
    assert (ran.returncode, ran.stdout) == (0, "NVIDIA A100 cuda:0 A100\n0\n"), ran.stderr


@pytest.mark.filterwarnings("ignore:Warning only once")
def test_a_package_registers_kernels_of_its_own():
    with simulated_gpu("H100"):
        x = torch.ones(4, device="cuda")
        own = torch.library.Library("aten", "IMPL")
        own.impl("neg", lambda x: x + 41, "CUDA", allow_override=False)
        assert torch.neg(x).tolist() == [42] * 4
        own._destroy()
        assert torch.neg(x).tolist() == [-1] * 4


def test_a_package_asks_for_pytorchs_own_copy():
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.CompositeExplicitAutograd)
    with simulated_gpu("H100"):
        x = torch.zeros(4, device="cuda")
        torch.ops.aten.copy_.default.redispatch(keys, x, torch.arange(4.0))
        assert x.tolist() == [0, 1, 2, 3]
