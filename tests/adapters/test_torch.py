"""torch tensors in, torch tensors out: the same bits as with arrays. Skipped without torch."""

import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
from paths import ROOT

from emulator import (
    Instruction,
    OperandError,
    compare,
    execute,
    explain,
    explain_registers,
    gemm,
    mma,
)
from emulator.tools.explanations.explanation import Explanation

torch = pytest.importorskip("torch")

BF16 = Instruction.parse("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32")
F16 = Instruction.parse("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
STORE = Instruction.parse("stmatrix.sync.aligned.m8n8.x1.shared.b16")


def random_tensor(*shape, dtype, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize(
    ("types", "torch_type", "array_type"),
    [
        ("f32.f16.f16.f32", torch.float16, np.float16),
        ("f32.bf16.bf16.f32", torch.bfloat16, ml_dtypes.bfloat16),
        ("f16.f16.f16.f16", torch.float16, np.float16),
        ("f32.e4m3.e4m3.f32", torch.float8_e4m3fn, ml_dtypes.float8_e4m3fn),
        ("f32.e5m2.e5m2.f32", torch.float8_e5m2, ml_dtypes.float8_e5m2),
        ("s32.s8.s8.s32", torch.int8, np.int8),
        ("s32.u8.u8.s32", torch.uint8, np.uint8),
    ],
)
def test_values_of_every_type(types, torch_type, array_type):
    k = 32 if torch_type.itemsize == 1 else 16
    ins = Instruction.parse(f"mma.sync.aligned.m16n8k{k}.row.col.{types}")
    a, b = (random_tensor(*shape, dtype=torch.float32) for shape in ((3, 16, k), (k, 8)))
    a, b = ((x * 30).clamp(0, 100).to(torch_type) for x in (a, b))
    raw = [x.view(torch.uint8 if x.element_size() == 1 else torch.int16) for x in (a, b)]
    arrays = [x.numpy().view(array_type) for x in raw]
    want = mma(ins, *arrays, target="sm_90a")
    for got in (mma(ins, a, b, target="sm_90a"), mma(ins, a, b=arrays[1], target="sm_90a")):
        assert isinstance(got, torch.Tensor)
        assert str(got.dtype) == f"torch.{want.dtype}"
        assert np.array_equal(got.numpy(), want)
    assert np.array_equal(gemm(a, b, instruction=ins, target="sm_90a").numpy(), want)


def test_a_wrong_bit_would_show():
    a, b = (random_tensor(*shape, dtype=torch.bfloat16) for shape in ((16, 16), (16, 8)))
    right = mma(BF16, a, b, target="sm_90a")
    a.view(torch.int16)[0, 0] ^= 1
    assert not torch.equal(right, mma(BF16, a, b, target="sm_90a"))


def test_tensors_of_any_strides_and_with_gradients():
    a, b = (random_tensor(*shape, dtype=torch.bfloat16) for shape in ((16, 16), (8, 16)))
    want = mma(BF16, a, b.T.contiguous(), target="sm_90a")
    assert torch.equal(mma(BF16, a, b.T, target="sm_90a"), want)
    got = mma(BF16, a.requires_grad_(), b.T, target="sm_90a")
    assert torch.equal(got, want)
    assert not got.requires_grad


@pytest.mark.parametrize("word", [torch.int32, torch.uint32])
def test_registers(word):
    a, b, c, d = (BF16.fragment(x) for x in "abcd")
    codes = np.arange(2 * 256, dtype=np.uint16).reshape(2, 16, 16) + 0x3F80
    arrays = [a.scatter(codes), b.scatter(codes[0, :, :8]), c.zeros()]
    tensors = [torch.from_numpy(x.view(np.int32)).view(word) for x in arrays]
    want = execute(BF16, *arrays, target="sm_90a")
    got = execute(BF16, *tensors, target="sm_90a")
    assert got.dtype == word
    assert np.array_equal(got.view(torch.int32).numpy().view(np.uint32), want)
    assert d.gather(want).any()
    mixed = execute(BF16, tensors[0], *arrays[1:], target="sm_90a")
    assert torch.equal(mixed.view(torch.int32), got.view(torch.int32))


def test_codes():
    a, b = (random_tensor(*shape, dtype=torch.float16) for shape in ((20, 40), (40, 9)))
    values = gemm(a, b, instruction=F16, target="sm_80")
    codes = gemm(a.view(torch.int16), b.view(torch.int16), instruction=F16, target="sm_80",
                 codes=True)  # fmt: skip
    assert codes.dtype == torch.int32
    assert torch.equal(codes, values.view(torch.int32))
    unsigned = gemm(a.view(torch.uint16), b.view(torch.uint16), instruction=F16, target="sm_80",
                    codes=True)  # fmt: skip
    assert unsigned.dtype == torch.uint32


def test_descriptors_and_shared_memory():
    ins = Instruction.parse("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16")
    shared = torch.arange(4096, dtype=torch.int32).to(torch.uint8)
    descriptor = torch.tensor(0x0000_0008_0008_0000, dtype=torch.int64)
    d = torch.zeros(128, ins.fragment("d").registers, dtype=torch.int32)
    got = execute(ins, descriptor, descriptor, d, shared=shared, target="sm_90a")
    arrays = [x.numpy().view(f"u{x.element_size()}") for x in (descriptor, descriptor, d)]
    want = execute(ins, *arrays, shared=shared.numpy(), target="sm_90a")
    assert np.array_equal(got.numpy().view(np.uint32), want)


def test_stmatrix_writes_into_the_tensor():
    shared = torch.zeros(128, dtype=torch.uint8)
    addresses = torch.arange(32, dtype=torch.int32) % 8 * 16
    words = torch.arange(32, dtype=torch.int32)[:, None]
    execute(STORE, addresses, words, shared=shared, target="sm_90a")
    assert shared.view(torch.int32).tolist() == list(range(32))


def test_fragments():
    a = random_tensor(16, 16, dtype=torch.bfloat16)
    fragment = BF16.fragment("a")
    words = fragment.scatter(a.view(torch.int16))
    assert words.dtype == torch.int32
    want = fragment.scatter(a.view(torch.int16).numpy().view(np.uint16))
    assert np.array_equal(words.numpy().view(np.uint32), want)
    assert torch.equal(fragment.gather(words).view(torch.bfloat16), a)
    with pytest.raises(OperandError, match=r"unsigned integers .* got bfloat16 .*\(use \.view"):
        fragment.scatter(a)


def test_signed_arrays_are_refused_as_before():
    a, b, c = (BF16.fragment(x).zeros() for x in "abc")
    with pytest.raises(OperandError, match=r"registers must be uint32 words; got int32"):
        execute(BF16, a.view(np.int32), torch.from_numpy(b.view(np.int32)), c, target="sm_90a")


@pytest.mark.parametrize(
    ("tensor", "words"),
    [
        (torch.zeros(16, 16, dtype=torch.bfloat16, device="meta"),
         r"a= is a tensor on 'meta'; .* pass tensor\.cpu\(\)"),
        (torch.zeros(16, 16, dtype=torch.bfloat16).to_sparse(), "without plain storage"),
        (torch.zeros(16, 16, dtype=torch.float32), "A: bf16 elements come as bfloat16"),
        (torch.zeros(16, 15, dtype=torch.bfloat16), r"A must be \(…, 16, 16\)"),
    ],
)  # fmt: skip
def test_refused_tensors(tensor, words):
    with pytest.raises(OperandError, match=words):
        mma(BF16, tensor, np.zeros((16, 8), ml_dtypes.bfloat16), target="sm_90a")


def test_torch_is_never_imported():
    code = (
        "import numpy as np, sys; from emulator import gemm; "
        "gemm(np.ones((4, 4), 'f2'), np.ones((4, 4), 'f2'), target='sm_80', "
        "instruction='SM80_16x8x16_F32F16F16F32_TN'); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


@pytest.mark.parametrize("types", ["f32.bf16.bf16.f32", "f32.f16.f16.f32"])
def test_explain_and_compare(types):
    ins = Instruction.parse(f"mma.sync.aligned.m16n8k16.row.col.{types}")
    kind = torch.bfloat16 if "bf16" in types else torch.float16
    a, b = (random_tensor(*shape, dtype=kind) for shape in ((16, 16), (16, 8)))
    array_type = ml_dtypes.bfloat16 if "bf16" in types else np.float16
    arrays = [x.view(torch.int16).numpy().view(array_type) for x in (a, b)]
    place = {"row": 3, "col": 5, "target": "sm_90a"}
    made = explain(ins, a, b, **place)
    assert isinstance(made, Explanation) and made.data == explain(ins, *arrays, **place).data
    code = int(made.data["d"]["code"], 16)
    assert code == int(mma(ins, a, b, target="sm_90a").view(torch.int32)[3, 5]) & 0xFFFFFFFF
    codes = explain(ins, a.view(torch.int16), b.view(torch.int16), codes=True, **place)
    assert codes.data == made.data
    words = [ins.fragment(x).scatter(y.view("u2")) for x, y in zip("ab", arrays, strict=True)]
    tensors = [torch.from_numpy(x.view(np.int32)) for x in (*words, ins.fragment("c").zeros())]
    assert explain_registers(ins, *tensors, **place).data == made.data
    names = ["sm_80", "sm_90a"]
    assert compare(ins, a, b, targets=names).data == compare(ins, *arrays, targets=names).data
