"""Interpreted Triton kernels with tensor-core bits. Skipped without Triton and torch.

What Triton compiles each dot to is stated here as read off its PTX; `test_orders_*` state the order
along k that its kernels were seen to have on an H200.
"""

import numpy as np
import pytest
from triton_kernels import MMA, WGMMA, matmul, operands, same, spelled, torch

from dtypes import FORMATS, convert
from emulator import Instruction, InstructionDescriptor, gemm
from emulator.adapters.triton_interpreter import tensor_core_dot


def test_same_can_fail():
    x = torch.tensor([0.0, 1.0])
    assert same(x, x.clone())
    assert not same(x, torch.tensor([-0.0, 1.0]))
    assert not same(x, torch.tensor([0.0, 1.0000001]))
    assert not same(x, x.double())


# --- which instruction, and that its bits come out ---


SATFINITE = ".satfinite"
CHOICES = [
    ("sm_80", "f16", "f32", spelled(MMA, "f16", "f32", 16)),
    ("sm_80", "f16", "f16", spelled(MMA, "f16", "f16", 16)),
    ("sm_80", "bf16", "f32", spelled(MMA, "bf16", "f32", 16)),
    ("sm_80", "tf32", "f32", spelled(MMA, "tf32", "f32", 8)),
    ("sm_80", "s8", "s32", spelled(MMA, "s8", "s32", 32, SATFINITE)),
    ("sm_80", "f64", "f64", "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64"),
    ("sm_89", "e4m3", "f32", spelled(MMA, "e4m3", "f32", 32)),
    ("sm_89", "e5m2", "f16", spelled(MMA, "e5m2", "f16", 32)),
    ("sm_90a", "f16", "f32", spelled(WGMMA, "f16", "f32", 16)),
    ("sm_90a", "f16", "f16", spelled(WGMMA, "f16", "f16", 16)),
    ("H100", "bf16", "f32", spelled(WGMMA, "bf16", "f32", 16)),
    ("sm_90a", "tf32", "f32", spelled(WGMMA, "tf32", "f32", 8)),
    ("sm_90a", "e4m3", "f32", spelled(WGMMA, "e4m3", "f32", 32)),
    ("sm_90a", "e5m2", "f16", spelled(WGMMA, "e5m2", "f16", 32)),
    ("sm_90a", "s8", "s32", spelled(WGMMA, "s8", "s32", 32)),
    ("sm_120a", "bf16", "f32", spelled(MMA, "bf16", "f32", 16)),
    ("sm_120a", "e4m3", "f32", spelled(MMA, "e4m3", "f32", 32)),
]


@pytest.mark.parametrize(("target", "kind", "d", "opcode"), CHOICES)
def test_bits_of_the_instruction(target, kind, d, opcode):
    a, b = operands(kind)
    want = gemm(a, b, instruction=opcode, target=target)
    with tensor_core_dot(target) as used:
        assert same(matmul(a, b, d), want)
    assert used == {opcode: 2}


@pytest.mark.parametrize(("target", "like"), [("sm_90", "sm_90a"), ("sm_100", "sm_100a")])
def test_a_compiler_picks_by_the_chip(target, like):
    """Triton compiles for sm_90a wherever the number is 90."""
    a, b = operands("f16")
    found = []
    for name in (target, like):
        with tensor_core_dot(name) as used:
            found.append((matmul(a, b), list(used)))
    assert same(found[0][0], found[1][0]) and found[0][1] == found[1][1]


@pytest.mark.parametrize(
    ("kind", "d", "words", "n"),
    [("f16", "f32", "f16", 64), ("f16", "f16", "f16", 64), ("bf16", "f32", "f16", 64),
     ("tf32", "f32", "tf32", 64), ("e4m3", "f32", "f8f6f4", 64)],
)  # fmt: skip
def test_bits_of_tcgen05(kind, d, words, n):
    a, b = operands(kind)
    opcode = f"tcgen05.mma.cta_group::1.kind::{words}"
    idesc = InstructionDescriptor(words, kind, kind, d, 64, n)
    want = gemm(a, b, instruction=opcode, idesc=idesc, target="sm_100a")
    with tensor_core_dot("sm_100a") as used:
        assert same(matmul(a, b, d), want)
    assert used == {f"{opcode} (idesc {idesc.encode():#010x})": 2}


def test_the_plain_interpreter_has_other_bits():
    a, b = operands("f16")
    with tensor_core_dot("sm_80"):
        inside = matmul(a, b)
    assert not same(matmul(a, b), inside)
    opcode = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
    assert same(inside, gemm(a, b, instruction=opcode, target="sm_80"))
    a, b = operands("e4m3")
    results = []
    for target in ("sm_89", "sm_90a"):
        with tensor_core_dot(target):
            results.append(matmul(a, b, block=(32, 64, 64)))
    assert not same(*results)


@pytest.mark.parametrize(
    ("target", "block", "num_warps", "name"),
    [
        ("sm_90a", (32, 64, 64), 4, "mma"),
        ("sm_90a", (64, 64, 64), 2, "mma"),
        ("sm_90a", (64, 64, 64), 8, "wgmma"),
        ("sm_90a", (64, 8, 64), 4, "wgmma"),
        ("sm_100a", (32, 64, 64), 4, "mma"),
        ("sm_100a", (64, 64, 64), 16, "mma"),
        ("sm_100a", (64, 64, 64), 2, "mma"),
    ],
)
def test_tiles_and_warps_decide(target, block, num_warps, name):
    a, b = operands("f16")
    with tensor_core_dot(target, num_warps=num_warps) as used:
        got = matmul(a, b, block=block)
    (opcode,) = used
    assert opcode.partition(".")[0] == name
    assert same(got, gemm(a, b, instruction=opcode, target=target))


# --- orders along k ---


@pytest.mark.parametrize("target", ["sm_90a", "sm_100a"])
def test_orders_fp8_widened_to_f16(target):
    """A lane's four fp8 become two registers of f16: one instruction takes the first of both."""
    a, b = operands("e5m2")
    order = [s + k for s in range(0, 128, 32) for half in (0, 2) for k in range(32)
             if k % 4 in (half, half + 1)]  # fmt: skip
    f16 = spelled(MMA, "f16", "f32", 16)
    in_order, shuffled = (
        gemm(a[:, o].half(), b[o].half(), instruction=f16, target=target)
        for o in (list(range(128)), order)
    )
    assert not same(in_order, shuffled)
    with tensor_core_dot(target) as used:
        assert same(matmul(a, b, block=(32, 64, 64)), shuffled)
    assert list(used) == [f16]


@pytest.mark.parametrize("kind", ["f16", "tf32", "s8"])
def test_orders_addition_is_fused(kind):
    a, b = operands(kind)
    d = "s32" if kind == "s8" else "f32"
    with tensor_core_dot("sm_80"):
        assert same(matmul(a, b, d, add=True), matmul(a, b, d))


def test_orders_hopper_fp8_addition_is_not_fused():
    a, b = operands("e4m3")
    fp8 = spelled(WGMMA, "e4m3", "f32", 32)
    halves = [gemm(a[:, s], b[s], instruction=fp8, target="sm_90a") for s in
              (slice(0, 64), slice(64, 128))]  # fmt: skip
    with tensor_core_dot("sm_90a"):
        added, chained = matmul(a, b, add=True), matmul(a, b)
    assert same(added, halves[0] + halves[1])
    assert not same(added, chained)


@pytest.mark.parametrize(("imprecise", "every"), [(32, 32), (40, 64), (64, 64), (128, 128)])
def test_orders_partial_sums_on_hopper(imprecise, every):
    a, b = operands("e4m3")
    fp8 = spelled(WGMMA, "e4m3", "f32", 32)
    want = torch.zeros(64, 64)
    for k in range(0, 128, every):
        want += gemm(a[:, k : k + every], b[k : k + every], instruction=fp8, target="sm_90a")
    with tensor_core_dot("sm_90a"):
        got = matmul(a, b, block=(64, 64, 128), imprecise=imprecise)
    assert same(got, want)


def test_orders_exact_accumulation_on_hopper_is_f16():
    a, b = operands("e4m3")
    with tensor_core_dot("sm_90a") as used:
        matmul(a, b, imprecise=0)
    assert list(used) == [spelled(MMA, "f16", "f32", 16)]


# --- input_precision ---


def test_ieee_is_a_chain_of_fmas():
    a, b = torch.zeros(32, 32), torch.ones(32, 32)
    a[0, :4] = torch.tensor([2.0**24, 1, 1, -(2.0**24)])  # each 1 is lost, ties to even
    a[1, :2] = torch.tensor([-1, 1 + 2.0**-12])
    b[1, 1] = 1 + 2.0**-12  # the product's 2⁻²⁴ survives in an FMA
    with tensor_core_dot("sm_90a") as used:
        got = matmul(a, b, block=(32, 32, 32), precision="ieee")
    assert used == {"fma.rn.f32": 1}
    assert got[0, 0] == 0
    assert got[1, 1] == 2.0**-11 + 2.0**-24


@pytest.mark.parametrize(("target", "template"), [("sm_80", MMA), ("sm_90a", WGMMA)])
def test_tf32x3(target, template):
    a, b = operands("tf32", k=64)
    tf32 = spelled(template, "tf32", "f32", 8)

    def split(x):
        words = x.numpy().view(np.uint32)
        big = convert(FORMATS["f32"], FORMATS["tf32"], words, "rna").view(np.float32)
        return big, x.numpy() - big

    (a_big, a_rest), (b_big, b_rest) = split(a), split(b)
    x = None
    for left, right in ((a_rest, b_big), (a_big, b_rest), (a_big, b_big)):
        x = gemm(left, right, x, instruction=tf32, target=target)
    with tensor_core_dot(target) as used:
        got, rough = matmul(a, b, precision="tf32x3"), matmul(a, b, precision="tf32")
    assert list(used) == [tf32]
    assert same(got, torch.from_numpy(x))
    exact = a.double() @ b.double()
    assert (got - exact).abs().max() < (rough - exact).abs().max() / 100


def test_tf32x3_of_infinities():
    a, b = torch.ones(64, 64), torch.ones(64, 64)
    a[0, 0] = float("inf")
    with tensor_core_dot("sm_80"):
        got = matmul(a, b, precision="tf32x3")
    assert got[0, 0] == float("inf")
    assert got[1, 1] == 64


def test_before_ampere_there_are_only_fmas():
    a, b = operands("f16")
    with tensor_core_dot("sm_75") as used:
        halves = matmul(a, b)
    with tensor_core_dot("sm_90a"):
        singles = matmul(a.float(), b.float(), precision="ieee")
    assert used == {"fma.rn.f32": 2}
    assert same(halves, singles)


# --- instruction= ---


def test_another_instruction():
    a, b = operands("e4m3")
    slow = "mma.sync.aligned.m16n8k16.row.col.f32.e4m3.e4m3.f32"
    want = gemm(a, b, instruction=slow, target="sm_90a")
    for choice in (slow, Instruction.parse(slow), lambda call: slow if call.m == 64 else None):
        with tensor_core_dot("sm_90a", instruction=choice) as used:
            assert same(matmul(a, b), want)
        assert used == {slow: 2}
    with tensor_core_dot("sm_90a", instruction=lambda call: None) as used:
        matmul(a, b)
    assert list(used) == [spelled(WGMMA, "e4m3", "f32", 32)]


def test_an_instruction_of_wider_operands():
    a, b = operands("e4m3")
    want = gemm(a.half(), b.half(), instruction="SM80_16x8x16_F32F16F16F32_TN", target="sm_100a")
    with tensor_core_dot("sm_100a", instruction="SM80_16x8x16_F32F16F16F32_TN"):
        assert same(matmul(a, b), want)
