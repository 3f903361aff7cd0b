"""An interpreted Triton kernel for the tests; without Triton or torch its importers are skipped."""

import os

import pytest

torch = pytest.importorskip("torch")
os.environ["TRITON_INTERPRET"] = "1"  # @triton.jit looks at it
triton = pytest.importorskip("triton")
tl = pytest.importorskip("triton.language")

MMA = "mma.sync.aligned.m16n8k{k}.row.col{more}.{d}.{a}.{a}.{d}"
WGMMA = "wgmma.mma_async.sync.aligned.m64n64k{k}.{d}.{a}.{a}"
TORCH = {
    "f16": torch.float16, "bf16": torch.bfloat16, "tf32": torch.float32, "f64": torch.float64,
    "e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2, "s8": torch.int8,
}  # fmt: skip
RESULT = {"f32": (torch.float32, tl.float32), "f16": (torch.float16, tl.float16),
          "s32": (torch.int32, tl.int32), "f64": (torch.float64, tl.float64)}  # fmt: skip


@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, N, K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    PRECISION: tl.constexpr, IMPRECISE: tl.constexpr, OUT: tl.constexpr, ADD: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    ks = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=OUT)
    for k in range(0, K, BK):
        a = tl.load(a_ptr + rows[:, None] * K + k + ks[None, :])
        b = tl.load(b_ptr + (k + ks)[:, None] * N + columns[None, :])
        if ADD:
            acc += tl.dot(a, b, input_precision=PRECISION, max_num_imprecise_acc=IMPRECISE,
                          out_dtype=OUT)  # fmt: skip
        else:
            acc = tl.dot(a, b, acc, input_precision=PRECISION, max_num_imprecise_acc=IMPRECISE,
                         out_dtype=OUT)  # fmt: skip
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], acc)


def matmul(a, b, d="f32", *, block=(64, 64, 64), precision=None, imprecise=None, add=False):
    (m, k), n = a.shape, b.shape[1]
    c = torch.zeros(m, n, dtype=RESULT[d][0])
    bm, bn, bk = block
    matmul_kernel[(m // bm, n // bn)](
        a, b, c, n, k, bm, bn, bk, precision, imprecise, RESULT[d][1], add
    )
    return c


def operands(kind, m=64, n=64, k=128, seed=0):
    generator = torch.Generator().manual_seed(seed)
    a, b = (torch.randn(*s, generator=generator, dtype=torch.float64) for s in ((m, k), (k, n)))
    if kind == "s8":
        return (a * 40).to(torch.int8), (b * 40).to(torch.int8)
    return a.to(TORCH[kind]), b.to(TORCH[kind])


def same(x, y):
    """Equal element for element, zeros and NaNs by their bits."""
    integer = {2: torch.int16, 4: torch.int32, 8: torch.int64}[x.element_size()]
    return x.dtype == y.dtype and torch.equal(x.view(integer), y.view(integer))


def spelled(template, a, d, k, more=""):
    return template.format(a=a, d=d, k=k, more=more)
