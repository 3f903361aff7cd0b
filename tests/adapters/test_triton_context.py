"""Entering and leaving `tensor_core_dot`, what it refuses, and tl.dot_scaled."""

import numpy as np
import pytest
from triton_kernels import MMA, TORCH, WGMMA, matmul, operands, spelled, tl, torch, triton

from emulator import Instruction, OperandError, UnsupportedError, mma
from emulator.adapters.triton_interpreter import tensor_core_dot

# --- tl.dot_scaled ---


@triton.jit
def scaled_kernel(
    a_ptr, b_ptr, sa_ptr, sb_ptr, c_ptr, M: tl.constexpr, N: tl.constexpr, KA: tl.constexpr,
    KS: tl.constexpr, FORMAT: tl.constexpr,
):  # fmt: skip
    m, n, k, s = tl.arange(0, M), tl.arange(0, N), tl.arange(0, KA), tl.arange(0, KS)
    a = tl.load(a_ptr + m[:, None] * KA + k[None, :])
    b = tl.load(b_ptr + k[:, None] * N + n[None, :])
    sa = tl.load(sa_ptr + m[:, None] * KS + s[None, :])
    sb = tl.load(sb_ptr + n[:, None] * KS + s[None, :])
    acc = tl.zeros((M, N), dtype=tl.float32)
    acc = tl.dot_scaled(a, sa, FORMAT, b, sb, FORMAT, acc)
    tl.store(c_ptr + m[:, None] * N + n[None, :], acc)


SCALED = (
    "mma.sync.aligned.m16n8k{k}.row.col.kind::{kind}.block_scale.scale_vec::{v}X"
    ".f32.{a}.{a}.f32.{s}"
)


@pytest.mark.parametrize(
    ("fmt", "k", "kind", "v", "scale"),
    [
        ("e4m3", 32, "mxf8f6f4", 1, "ue8m0"),
        ("e5m2", 32, "mxf8f6f4", 1, "ue8m0"),
        ("e2m1", 64, "mxf4nvf4", 2, "ue8m0"),
        ("e2m1", 64, "mxf4nvf4", 4, "ue4m3"),
    ],
)
def test_dot_scaled(fmt, k, kind, v, scale):
    opcode = SCALED.format(k=k, kind=kind, v=v, a=fmt, s=scale)
    ins = Instruction.parse(opcode)
    rng = np.random.default_rng(1)
    limit = 16 if fmt == "e2m1" else 0x78
    a, b = (rng.integers(0, limit, s).astype(np.uint8) for s in ((32, 128), (128, 16)))
    chunks = 128 // k * v
    low, high = (120, 134) if scale == "ue8m0" else (0x20, 0x50)
    sa, sb = (rng.integers(low, high, s).astype(np.uint8) for s in ((32, chunks), (16, chunks)))
    want = np.zeros((32, 16), np.uint32)
    for i in (0, 16):
        for j in (0, 8):
            for step in range(128 // k):
                part, scales = slice(step * k, step * k + k), slice(step * v, step * v + v)
                want[i : i + 16, j : j + 8] = mma(
                    ins, a[i : i + 16, part], b[part, j : j + 8], want[i : i + 16, j : j + 8],
                    scale_a=sa[i : i + 16, scales], scale_b=sb[j : j + 8, scales].T,
                    target="sm_120a", codes=True,
                )  # fmt: skip
    if fmt == "e2m1":
        a, b = a[:, ::2] | a[:, 1::2] << 4, b[::2] | b[1::2] << 4
    tensors = [torch.from_numpy(np.ascontiguousarray(x)) for x in (a, b, sa, sb)]
    if scale == "ue4m3":
        tensors[2:] = [x.view(torch.float8_e4m3fn) for x in tensors[2:]]
    if fmt != "e2m1":
        tensors[:2] = [x.view(TORCH[fmt]) for x in tensors[:2]]
    c = torch.zeros(32, 16)
    with tensor_core_dot("sm_120a") as used:
        scaled_kernel[(1,)](*tensors, c, 32, 16, a.shape[1], chunks, fmt)
    assert used == {opcode: 1}
    assert np.array_equal(c.numpy().view(np.uint32), want)
    with tensor_core_dot("sm_90a"), pytest.raises(UnsupportedError, match="converts and scales"):
        scaled_kernel[(1,)](*tensors, c, 32, 16, a.shape[1], chunks, fmt)


# --- entering and leaving ---


def state():
    interpreter = pytest.importorskip("triton.runtime.interpreter")
    builder = interpreter.InterpreterBuilder
    names = ("create_dot", "create_dot_scaled", "create_fadd", "create_add")
    return (
        [vars(builder)[name] for name in names],
        vars(interpreter.TritonSemantic)["dot"],
        interpreter.interpreter_builder.options,
    )


def test_everything_is_restored():
    before = state()
    a, b = operands("f16")
    with tensor_core_dot("sm_80") as outer:
        inside = state()
        with tensor_core_dot("sm_90a") as inner:
            matmul(a, b)
        assert state() == inside
        matmul(a, b)
    assert state() == before != inside
    assert len(outer) == len(inner) == 1
    assert list(outer) != list(inner)
    with pytest.raises(KeyError), tensor_core_dot("sm_80"):
        raise KeyError
    assert state() == before


@pytest.mark.parametrize(
    ("target", "kind", "options", "words"),
    [
        ("sm_100a", "s8", {}, r"tcgen05\.mma.*instruction="),
        ("sm_80", "e4m3", {}, "does not compile this tl.dot of e4m3 × e4m3 into f32.*for sm_80"),
        ("sm_70", "f16", {}, "starts at sm_75"),
        ("sm_75", "s8", {}, "does not compile"),
        ("sm_80", "f16", {"instruction": spelled(MMA, "bf16", "f32", 16)}, "other types"),
        ("sm_80", "f16", {"instruction": spelled(MMA, "f16", "f16", 16)}, "other types"),
        ("sm_80", "f16", {"instruction": spelled(WGMMA, "f16", "f32", 16)}, "not available"),
    ],
)
def test_refused_dots(target, kind, options, words):
    a, b = operands(kind)
    before = state()
    with pytest.raises(UnsupportedError, match=words), tensor_core_dot(target, **options):
        matmul(a, b, "s32" if kind == "s8" else "f32")
    assert state() == before


def test_refused_contexts(monkeypatch):
    with pytest.raises(UnsupportedError, match="no target"), tensor_core_dot("sm_91"):
        pass
    for count in (0, 3, 4.0, True):
        with pytest.raises(OperandError, match="a power of two as in Triton; got"):
            tensor_core_dot("H100", num_warps=count).__enter__()
    interpreter = pytest.importorskip("triton.runtime.interpreter")
    with monkeypatch.context() as patch:
        patch.setattr(interpreter.InterpreterBuilder, "create_dot", lambda self, a, b, d: None)
        with pytest.raises(UnsupportedError, match=r"Triton [\d.]+ is not one that this module"):
            tensor_core_dot("H100").__enter__()
    with monkeypatch.context() as patch:
        patch.delenv("TRITON_INTERPRET")
        with pytest.raises(UnsupportedError, match="set TRITON_INTERPRET=1 before"):
            tensor_core_dot("H100").__enter__()
