"""The fault finder on tcgen05.mma: D of kernels with a planted mistake."""

import ml_dtypes
import numpy as np
import pytest
from commands import answer, refusal

from emulator import InstructionDescriptor, OperandError, find_faults, gemm, mma
from emulator.isa.tensor_matrix import settle
from emulator.targets import find_target
from emulator.tools.faults.tensor import MISTAKES, _problem

pytestmark = pytest.mark.sampled(3)

F16 = "tcgen05.mma.cta_group::1.kind::f16"
B200 = "sm_100a"
RNG = np.random.default_rng(11)


def numbers(*shape):
    return RNG.normal(size=shape).astype(np.float16)


A, B, C = numbers(64, 32), numbers(32, 64), numbers(64, 64).astype(np.float32)
M64 = InstructionDescriptor("f16", "f16", "f16", m=64, n=64)
OTHER, BF16 = M64.replace(a="bf16"), ml_dtypes.bfloat16
RIGHT = gemm(F16, A, B, C, idesc=M64, target=B200)


def found(d, idesc=M64, opcode=F16, a=A, b=B, c=C, **more):
    return find_faults(opcode, a, b, c, d=d, idesc=idesc, target=B200, **more)


def test_a_right_result_is_right():
    assert found(RIGHT).verdict == "right"


def test_rows_of_m_64_read_from_lanes_in_order():
    """The question "my tcgen05.ld reads the wrong rows": lanes 16-31 of each quarter are unused."""
    d = RIGHT.copy()
    d[16:32] = 7.0  # whatever the unused lanes hold
    d[32:48], d[48:] = RIGHT[16:32], 9.0
    report = found(d)
    assert report[0].exact and report[0].mistake == "rows of D in other lanes"
    assert "layout F, lies in lanes 0-15, 32-47, 64-79, 96-111" in report.text()


def test_a_warp_that_reads_the_first_quarter():
    x = InstructionDescriptor("f16", "f16", "f16", m=128, n=16)
    a, b = numbers(128, 16), numbers(16, 16)
    d = np.tile(mma(F16, a, b, idesc=x, target=B200)[:32], (4, 1))
    report = found(d, x, a=a, b=b, c=None)
    assert report[0].exact and report[0].mistake == "lane of the warp left out"


def test_registers_of_16x256b():
    d = np.empty_like(RIGHT)
    for r in range(64):
        for col in range(64):
            g, b0, b1 = r % 8, r // 8 % 2, col % 2
            d[r, col] = RIGHT[r // 16 * 16 + g + 8 * b1, col - b1 + b0]
    assert found(d)[0].mistake == "registers of 16x256b not regrouped"


def test_an_f16_accumulator_taken_as_packed():
    x = M64.replace(d="f16")
    right = gemm(F16, A, B, idesc=x, target=B200)
    d = np.zeros_like(right)
    d[:, ::2] = right[:, :32]
    report = found(d, x, c=None)
    assert report[0].mistake == "f16 accumulator taken as packed"
    assert "pack::16b" in report.text()


@pytest.mark.parametrize(
    ("make", "mistake", "operand"),
    [
        (lambda: gemm(F16, -A, B, C, idesc=M64, target=B200), "wrong sign", "a"),
        (lambda: gemm(F16, A, B, idesc=M64, target=B200), "accumulator", "c"),
        (
            lambda: mma(F16, A[:, 16:], B[16:], C * 0, idesc=M64, target=B200), "accumulator", "c",
        ),
        (
            lambda: gemm(F16, np.tile(A[:, :16], 2), np.tile(B[:16], (2, 1)), C, idesc=M64,
                         target=B200),
            "loop over k", "",
        ),
        (lambda: gemm(F16, A.view(BF16), B, C, idesc=OTHER, target=B200), "wrong type", "a"),
    ],
)  # fmt: skip
def test_mistakes_of_the_main_loop(make, mistake, operand):
    report = found(make())
    assert (report[0].mistake, report[0].operand) == (mistake, operand)
    assert report[0].exact


def test_a_whole_warp_issues():
    d = RIGHT * 0
    for step in (0, 16):
        for _ in range(32):
            part = A[:, step : step + 16], B[step : step + 16]
            d = mma(F16, *part, d, idesc=M64, target=B200)
    assert found(d, c=None)[0].mistake == "issued by a whole warp"


@pytest.mark.slow
def test_scales():
    opcode = "tcgen05.mma.cta_group::1.kind::mxf4.block_scale.block32"
    x = InstructionDescriptor("mxf4", m=128, n=128)
    a, b = (RNG.integers(0, 16, shape, np.uint8) for shape in ((128, 128), (128, 128)))
    u, v = (RNG.integers(120, 130, shape, np.uint8) for shape in ((128, 4), (4, 128)))
    given = {"a": a, "b": b, "c": None, "scale_a": u, "scale_b": v}

    def product(scale_a, scale_b):
        return gemm(opcode, a, b, idesc=x, target=B200, codes=True, scale_a=scale_a,
                    scale_b=scale_b)  # fmt: skip

    assert found(product(u, v), x, opcode, **given).verdict == "right"
    report = found(product(v.T.copy(), u.T.copy()), x, opcode, **given)
    assert report[0].mistake == "scales exchanged" and report[0].exact
    d = product(u, v)
    d[32:] = 5
    assert found(d, x, opcode, **given)[0].mistake == "scales not in all quarters"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["wrong swizzle", "LBO and SBO exchanged", "wrong start address",
                                  "wrong major"])  # fmt: skip
def test_mistakes_in_memory_are_told_apart(name):
    """Kernels of the finder itself with these mistakes are named by it."""
    ins = settle(F16, M64)
    problem = _problem(ins, find_target(B200), {"a": A, "b": B, "c": C})
    (mistake,) = [x for x in MISTAKES if x.name == name]
    ways = list(mistake.ways(problem))
    assert ways
    shown = 0
    for way in ways:
        try:
            seen = problem.run(way.plan)
        except ValueError:
            continue
        if (seen.codes.view(np.float32) == RIGHT).all():
            continue
        report = found(seen.codes.view(np.float32), limit=20)
        assert any(x.exact and x.mistake == name for x in report)
        shown += 1
    assert shown


@pytest.mark.slow
def test_sparse_and_pairs():
    opcode = "tcgen05.mma.sp.cta_group::2.kind::f16"
    x = InstructionDescriptor("f16", "f16", "f16", m=256, n=32, sparse=True)
    a, b = numbers(256, 64), numbers(64, 32)
    a[:, 1::4] = a[:, 2::4] = 0
    d = gemm(opcode, a, b, idesc=x, target=B200)
    assert found(d, x, opcode, a, b, None).verdict == "right"
    assert found(-d, x, opcode, a, b, None)[0].mistake == "wrong sign"


def test_nothing_known():
    d = RIGHT.copy()
    d[3, 5] += 1
    report = found(d)
    assert report.verdict == "none" and "rows 3" in report.text() and "columns 5" in report.text()


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"d": None}, "takes the matrices and d="),
        ({"d": RIGHT[:3]}, r"d is D \(64, 64\)"),
        ({"d": RIGHT, "a": A[:, :20]}, "K a multiple of 16"),
        ({"d": RIGHT, "b": None}, "b= is needed"),
        ({"d": RIGHT, "idesc": None}, "needs idesc="),
    ],
)
def test_what_cannot_be_searched(how, message):
    with pytest.raises(OperandError, match=message):
        found(**how)


# --- the command ----------------------------------------------------------------------------------


def test_the_command_takes_the_instruction_descriptor(tmp_path, capsys):
    d = RIGHT.copy()
    d[16:32], d[32:48], d[48:] = 7.0, RIGHT[16:32], 9.0
    np.savez(tmp_path / "d.npz", A=A, B=B, C=C, D=d)
    given = ("--target", B200, "--input", tmp_path / "d.npz")
    lines = answer(capsys, "fault", F16, *given, "--idesc", hex(M64.encode()))
    assert any("rows of D in other lanes" in line for line in lines)
    assert "needs idesc=" in refusal(capsys, "fault", F16, *given)
    assert "--idesc, a word such as" in refusal(capsys, "fault", F16, *given, "--idesc", "wide")
    other = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
    assert "goes with a tcgen05.mma" in refusal(capsys, "fault", other, *given, "--idesc", "0x10")
