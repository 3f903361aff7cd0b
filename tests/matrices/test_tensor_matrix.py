"""tcgen05.mma on matrices: mma, gemm, explain and compare with an instruction descriptor."""

import numpy as np
import pytest
from bits import assert_same_codes

from emulator import (
    EmulatorError,
    Instruction,
    InstructionDescriptor,
    OperandError,
    ParseError,
    UnsupportedError,
    compare,
    explain,
    gemm,
    mma,
)
from emulator.__main__ import main
from emulator.isa.tensor_matrix import settle
from emulator.targets import find_target
from emulator.warp.tensor_multiply import TensorProduct

pytestmark = pytest.mark.sampled(2)

F16 = "tcgen05.mma.cta_group::1.kind::f16"
NVF4 = "tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.block16"
B200 = "sm_100a"


def numbers(*shape, seed=0, dtype=np.float16):
    """Small whole numbers: sums of their products are exact, on tensor cores as in float64."""
    return np.rint(4 * np.random.default_rng(seed).normal(size=shape)).astype(dtype)


def test_mma_is_the_product_of_tensor_cores():
    x = InstructionDescriptor("f16", "f16", "f16", n=64)
    a, b, c = numbers(128, 16), numbers(16, 64, seed=1), numbers(128, 64, dtype=np.float32)
    got = mma(F16, a, b, c, idesc=x, target=B200)
    assert got.dtype == np.float32
    assert np.array_equal(got, a.astype(float) @ b + c)
    product = TensorProduct(x, find_target(B200))
    codes = a.view(np.uint16), b.view(np.uint16), c.view(np.uint32)
    assert_same_codes(got.view(np.uint32), product.multiply(*codes))
    by_word = mma(F16, *codes, idesc=x.encode(), target="B200", codes=True)
    assert_same_codes(by_word, got.view(np.uint32))


@pytest.mark.parametrize("negated", [{"negate_a": True}, {"negate_b": True}])
def test_negated_matrices(negated):
    x = InstructionDescriptor("f16", "f16", "f16", n=8)
    a, b = numbers(128, 16), numbers(16, 8, seed=1)
    plain, other = (mma(F16, a, b, idesc=y, target=B200) for y in (x, x.replace(**negated)))
    assert (plain == -other).all()
    long, wide = numbers(100, 70), numbers(70, 20, seed=1)
    plain, other = (gemm(F16, long, wide, idesc=y, target=B200) for y in (x, x.replace(**negated)))
    assert (plain == -other).all()
    text = explain(F16, a, b, idesc=x.replace(**negated), row=3, col=5, target=B200).text()
    assert f"negates {'A' if 'negate_a' in negated else 'B'}" in text


def test_gemm_chains_instructions():
    x = InstructionDescriptor("f16", "f16", "f16", n=64)
    a, b = numbers(128, 40), numbers(40, 64, seed=1)
    chained = np.zeros((128, 64), np.float32)
    for k in range(0, 48, 16):
        part = np.zeros((128, 16), np.float16), np.zeros((16, 64), np.float16)
        part[0][:, : len(a[0, k : k + 16])] = a[:, k : k + 16]
        part[1][: len(b[k : k + 16])] = b[k : k + 16]
        chained = mma(F16, *part, chained, idesc=x, target=B200)
    got = gemm(F16, a, b, idesc=x, target=B200)
    assert_same_codes(got.view(np.uint32), chained.view(np.uint32))
    assert_same_codes(gemm(a, b, instruction=F16, idesc=x, target=B200), got)


@pytest.mark.parametrize("k", [64, 96])
def test_block_scales(k):
    x = InstructionDescriptor("mxf4nvf4", n=16, k=k)
    rng = np.random.default_rng(3)
    a, b = rng.integers(0, 16, (128, k), np.uint8), rng.integers(0, 16, (k, 16), np.uint8)
    u, v = rng.integers(40, 70, (128, k // 16), np.uint8), rng.integers(40, 70, (k // 16, 16),
                                                                        np.uint8)  # fmt: skip
    got = mma(NVF4, a, b, idesc=x, target="sm_103a", codes=True, scale_a=u, scale_b=v)
    c = np.zeros((128, 16), np.uint32)
    product = TensorProduct(x, find_target("sm_103a"), "block16")
    assert_same_codes(got, product.multiply(a, b, c, u, v.T))
    text = explain(NVF4, a, b, idesc=x, row=70, col=9, target="sm_103a", codes=True,
                   scale_a=u, scale_b=v).text()  # fmt: skip
    assert "lane 6 column 2" in text  # of the scales of row 70
    with pytest.raises(OperandError, match=r"scale_a must be \(…, 128, "):
        mma(NVF4, a, b, idesc=x, target="sm_103a", codes=True, scale_a=u[:, 1:], scale_b=v)


def test_sparse_a():
    opcode = "tcgen05.mma.sp.cta_group::1.kind::f16"
    x = InstructionDescriptor("f16", "f16", "f16", n=16, sparse=True)
    a, b = numbers(128, 32), numbers(32, 16, seed=1)
    a[:, 0::4] = a[:, 3::4] = 0
    got = mma(opcode, a, b, idesc=x, target=B200)
    assert np.array_equal(got, a.astype(float) @ b)
    text = explain(opcode, a, b, idesc=x, row=9, col=3, target=B200).text()
    assert "lane 1 column 0" in text  # metadata of row 9
    whole = gemm(opcode, np.tile(a, 2), np.tile(b, (2, 1)), idesc=x, target=B200)
    assert np.array_equal(whole, 2 * a.astype(float) @ b)


def test_explain_names_places_of_tensor_memory():
    x = InstructionDescriptor("f16", "f16", "f16", m=64, n=64)
    found = explain(F16, numbers(64, 16), numbers(16, 64), idesc=x, row=37, col=9, target=B200)
    assert "lane 69 column 9" in found.text()
    assert "modelled" in found.text() and f"{F16} (idesc 0x04100010)" in found.text()
    assert found.data["d"]["place"] == {"cta": 0, "lane": 69, "column": 9, "low_bit": 0}


def test_compare_with_hopper():
    x = InstructionDescriptor("f8f6f4", "e4m3", "e4m3", m=128, n=8)
    rng = np.random.default_rng(4)
    a, b = rng.integers(0, 0x7E, (128, 32), np.uint8), rng.integers(0, 0x7E, (32, 8), np.uint8)
    tensor = "tcgen05.mma.cta_group::1.kind::f8f6f4"
    wgmma = "wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3"
    found = compare([tensor, wgmma], a, b, idesc=x, targets=["sm_100a", "sm_90a"], codes=True)
    assert found.differs
    assert "cut 25 bits" in found.text() and "cut 13" in found.text()


WORD = "0x8020490"


def test_commands(capsys):
    assert main(["explain", F16, "--idesc", WORD, "--target", "B200", "--row", "2"]) == 0
    assert "lane 2 column 0" in capsys.readouterr().out
    assert main(["compare", F16, "--idesc", WORD, "--targets", "sm_100a,sm_103a"]) == 0
    assert "sm_100a" in capsys.readouterr().out
    assert main(["explain", F16, "--idesc", "x", "--target", "B200"]) == 2
    assert "--idesc, a word such as 0x8400490, is a whole number" in capsys.readouterr().err
    assert main(["explain", F16, "--target", "B200"]) == 2
    assert "needs idesc=" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("opcode", "descriptor", "error", "message"),
    [
        (F16, None, OperandError, "needs idesc=, an InstructionDescriptor"),
        ("mma.sync", InstructionDescriptor(), ParseError, "idesc= goes with a tcgen05.mma"),
        (f"{F16}.foo", InstructionDescriptor(), EmulatorError, r"foo"),
        (F16.replace("f16", "f32"), InstructionDescriptor(), EmulatorError, "nearest"),
        ("tcgen05.mma.kind::f16", InstructionDescriptor(), EmulatorError, "nearest"),
        (
            F16.replace("f16", "f8f6f4.decompress::lut::b"), InstructionDescriptor(),
            UnsupportedError, "is for kernels: the product of matrices",
        ),
        (F16, InstructionDescriptor("tf32"), OperandError, "the descriptor is of tf32"),
        (F16, 0x0C00_0490 | 1 << 6, OperandError, "bits 6 are set"),
        (F16, InstructionDescriptor(m=256), OperandError, "m 64, 128: nearest is 128"),
        (F16, InstructionDescriptor(sparse=True), OperandError, "has no .sp; sparse of the desc"),
        (f"{F16}.block_scale", InstructionDescriptor(), EmulatorError, "nearest"),
        (f"{F16}.block16", InstructionDescriptor(), EmulatorError, "nearest"),
        (
            NVF4.removesuffix(".block16"), InstructionDescriptor("mxf4nvf4"), EmulatorError,
            "nearest",
        ),
        (NVF4.replace("16", "32"), InstructionDescriptor("mxf4nvf4"), OperandError, "ue4m3 go"),
        (
            "tcgen05.mma.ws.cta_group::2.kind::f16", InstructionDescriptor(), EmulatorError,
            "nearest",
        ),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(opcode, descriptor, error, message):
    with pytest.raises(error, match=message):
        settle(opcode, descriptor)


def test_targets():
    assert settle(F16, InstructionDescriptor()).targets[:2] == ("sm_100a", "sm_100f")
    i8 = settle("tcgen05.mma.cta_group::1.kind::i8", InstructionDescriptor("i8", "s8", "s8"))
    assert i8.targets == ("sm_100a", "sm_110a")
    assert i8.fidelity("sm_100a").level == "exact"
    k96 = settle(NVF4, InstructionDescriptor("mxf4nvf4", k=96))
    assert "sm_100a" not in k96.targets and "sm_103a" in k96.targets
    a, b = numbers(128, 16), numbers(16, 8)
    with pytest.raises(UnsupportedError, match="is not available on sm_90a"):
        mma(F16, a, b, idesc=InstructionDescriptor("f16", "f16", "f16", n=8), target="H100")


def test_an_instruction_without_a_descriptor():
    ins = Instruction.parse(F16)
    a, b = numbers(128, 16), numbers(16, 8)
    x = InstructionDescriptor("f16", "f16", "f16", n=8)
    got = mma(ins, a, b, idesc=x, target=B200)
    assert (got == mma(F16, a, b, idesc=x, target=B200)).all()
    with pytest.raises(OperandError, match="which needs idesc=, an InstructionDescriptor"):
        mma(ins, a, b, target=B200)
    for wrong in (True, "0x8", 1.5, 1 << 32, [3]):
        with pytest.raises(OperandError, match="32 bits"):
            mma(F16, a, b, idesc=wrong, target=B200)


def test_it_has_no_fragments():
    x = settle(F16, InstructionDescriptor(n=8))
    with pytest.raises(OperandError, match="has no fragment 'd': its matrices lie in shared"):
        x.fragment("d")
    with pytest.raises(OperandError, match="is for matrices"):
        x.signatures()
    assert x.shape == "m128n8k16" and settle(x, None) is x
