"""Triton kernels that Triton compiles without a GPU, and that run here."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")
if triton.knobs.runtime.interpret:
    # Triton decides once for a process, when it is imported; test_triton.py needs the interpreter.
    pytest.skip("Triton interprets in this process", allow_module_level=True)

import triton.language as tl  # noqa: E402

from emulator import KernelError, OperandError  # noqa: E402
from emulator.adapters.triton import on  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*TRITON_DEFAULT_FP_FUSION"),
    pytest.mark.filterwarnings("ignore:.*fp fusion"),
]


@triton.jit
def saxpy(x, y, out, n, a, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    tl.store(out + i, a * tl.load(x + i, mask=inside) + tl.load(y + i, mask=inside), mask=inside)


@triton.jit
def product(a, b, c, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows, columns, k = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        left = tl.load(a + rows[:, None] * K + (start + k)[None, :])
        right = tl.load(b + (start + k)[:, None] * BN + columns[None, :])
        acc = tl.dot(left, right, acc)
    tl.store(c + rows[:, None] * BN + columns[None, :], acc)


@triton.jit
def every_second(x, out, stride, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i * stride))


@triton.jit
def row_sums(descriptor, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    tile = descriptor.load([0, 0])
    tl.store(out + tl.arange(0, ROWS), tl.sum(tile, 1))


def fused(a, x, y):
    """a * x + y, rounded once; the product of two f32 is exact in f64, and so is this sum."""
    return (np.float64(a) * x.astype(np.float64) + y.astype(np.float64)).astype(np.float32)


@pytest.mark.parametrize("target", ["A100", "H100", "sm_120"])
def test_tensors_and_arrays(target):
    rng = np.random.default_rng(1)
    x, y = rng.integers(-9999, 9999, (2, 1000)).astype("f4") / 64
    out = np.zeros(1000, "f4")
    report = on(target, saxpy)[lambda meta: (triton.cdiv(1000, meta["BLOCK"]),)](
        torch.from_numpy(x), y, out, 1000, 2.5, BLOCK=256
    )
    assert report.counters["blocks"] == 4
    assert (out.view("u4") == fused(2.5, x, y).view("u4")).all()


def test_products_have_the_bits_of_the_tensor_cores():
    from emulator import gemm

    rng = np.random.default_rng(2)
    a, b = (rng.standard_normal(shape).astype("f2") for shape in ((64, 128), (128, 64)))
    c = np.zeros((64, 64), "f4")
    on("A100", product)[(1,)](a, b, c, 128, BM=64, BN=64, BK=32)
    instruction = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
    want = gemm(a, b, np.zeros((64, 64), "f4"), instruction=instruction, target="sm_80")
    assert (c.view("u4") == want.view("u4")).all()


def test_a_view_reaches_the_memory_that_it_is_a_part_of():
    whole = torch.arange(64.0)
    out = torch.zeros(16)
    on("H100", every_second)[(1,)](whole[8:], out, 3, BLOCK=16)
    assert torch.equal(out, whole[8 : 8 + 48 : 3])


def test_a_hosts_tensor_descriptor():
    from triton.tools.tensor_descriptor import TensorDescriptor

    x = torch.arange(32 * 64, dtype=torch.float32).reshape(32, 64) % 37
    out = torch.zeros(32)
    descriptor = TensorDescriptor(x, [32, 64], [64, 1], [32, 64])
    on("H100", row_sums)[(1,)](descriptor, out, ROWS=32, COLUMNS=64)
    assert torch.equal(out, x.sum(1))


@triton.jit
def copied(x, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    out.store([0, 0], x.load([0, 0]))


_NAMES = ("int8", "uint16", "int16", "uint32", "int32", "int64", "float16", "bfloat16", "float32")


@pytest.mark.parametrize(("name", "rounds"), [*((x, False) for x in _NAMES), ("float32", True)])
def test_a_descriptor_keeps_every_bit_unless_it_is_told_to_round(name, rounds):
    """float32 and tf32 have one code, and a bit of the map tells them apart."""
    from triton.tools.tensor_descriptor import TensorDescriptor

    dtype = getattr(torch, name)
    raw = np.random.default_rng(0).integers(0, 1 << 7, (16, 16 * dtype.itemsize), np.uint8)
    x = torch.from_numpy(raw).view(dtype)
    out = torch.zeros_like(x)
    source = TensorDescriptor(x, [16, 16], [16, 1], [16, 16], round_f32_to_tf32=rounds)
    target = TensorDescriptor(out, [16, 16], [16, 1], [16, 16])
    on("H100", copied)[(1,)](source, target, ROWS=16, COLUMNS=16)
    assert np.array_equal(out.view(torch.uint8).numpy(), raw) != rounds
    low = out.view(torch.uint8).numpy().reshape(16, 16, dtype.itemsize)[..., 0]
    assert low.any() != rounds


def test_a_mistake_has_its_line_of_python():
    x, out = torch.zeros(1000), torch.zeros(1000)
    with pytest.raises(KernelError) as caught:
        on("H100", saxpy)[(5,)](x, x, out, 1200, 1.0, BLOCK=256)
    assert caught.value.kind == "out of bounds" and "x" in caught.value.reason
    assert caught.value.source.startswith("test_triton_on.py:")


def test_what_is_no_kernel_or_no_tensor():
    with pytest.raises(OperandError, match=r"a @triton.jit function"):
        on("H100", len)
    with pytest.raises(OperandError, match=r"device|CPU"):
        on("H100", every_second)[(1,)](torch.zeros(9, device="meta"), torch.zeros(9), 1, BLOCK=8)
