"""Lane-unique operands: D tells every element from every other; and which swaps inputs hide."""

import re

import numpy as np
import pytest
from sweeps import swept

from emulator import TARGETS, Instruction, OperandError, UnsupportedError, execute
from emulator.isa.matrix import MatrixInstruction
from emulator.isa.wmma import WmmaMultiply
from emulator.testing import Inputs, all_forms, check_swaps, lane_unique, unnoticed_swaps

pytestmark = pytest.mark.sampled(2)

F16 = Instruction.parse("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
SPARSE = Instruction.parse("mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32")
NVFP4 = Instruction.parse(
    "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X"
    ".f32.e2m1.e2m1.f32.ue4m3"
)
WGMMA = Instruction.parse("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16")
#: an opcode of every way in which operands are picked out, and the operands that it has
SOME = {
    F16: "a b c",
    NVFP4: "a b c scale_a scale_b",
    SPARSE: "a b c nibbles",
    WGMMA: "a b c",
    Instruction.parse("mma.sync.aligned.m8n8k4.col.row.f32.f16.f16.f16"): "a b c",
    Instruction.parse("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64"): "a b c",
    Instruction.parse("mma.sync.aligned.m16n8k32.row.col.f16.e4m3.e5m2.f16"): "a b c",
    Instruction.parse("mma.sync.aligned.m8n8k32.row.col.s32.s4.u4.s32"): "a b c",
    Instruction.parse("mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.xor.popc"): "a b c",
    Instruction.parse("mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.and.popc"): "a b c",
    Instruction.parse("mma.sp.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"): "a b c nibbles",
    Instruction.parse("mma.sp.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32"): "a b c nibbles",
    Instruction.parse("wgmma.mma_async.sp.sync.aligned.m64n8k64.f32.e4m3.e4m3"): "a b c nibbles",
    Instruction.parse("wmma.mma.sync.aligned.row.col.m16n16k16.f16.f32"): "a b c",
}


def each_generation(ins):
    return {TARGETS[name].generation: name for name in ins.targets}.values()


def multiplications():
    for ins in all_forms(n=[8, 24, 256]):
        if isinstance(ins, MatrixInstruction | WmmaMultiply):
            yield ins


@pytest.mark.parametrize("ins", SOME, ids=str)
def test_d_shows_where_every_element_lies(ins):
    inputs = lane_unique(ins)
    results = [inputs.run(target) for target in each_generation(ins)]
    # Exact means: the same on every generation.
    assert all(np.array_equal(results[0], other) for other in results)
    found = inputs.found(results[0])
    assert " ".join(found) == SOME[ins]
    for numbers in found.values():
        assert numbers.reshape(-1).tolist() == list(range(1, numbers.size + 1))
    assert inputs.misplaced(results[0]) == []
    inputs.check(results[0])


@pytest.mark.slow
@swept(multiplications())
def test_d_shows_it_for_all_forms(ins):
    inputs = lane_unique(ins)
    for target in each_generation(ins):
        assert inputs.misplaced(inputs.run(target)) == []


@pytest.mark.parametrize("ins", SOME, ids=str)
def test_no_two_elements_of_an_operand_are_alike_in_all_cases(ins):
    inputs = lane_unique(ins)
    for operand, codes in inputs.matrices.items():
        mine = [i for i, case in enumerate(inputs.cases) if case.operand == operand]
        columns = codes[mine].reshape(len(mine), -1)
        assert len(np.unique(columns, axis=1).T) == columns.shape[1]


def test_how_many_cases_there_are():
    """256 elements of A in two blocks of 8 columns, 128 of B and of C at once: f16 has enough."""
    cases = lane_unique(F16).cases
    assert [case.operand for case in cases] == ["a", "a", "b", "c"]
    # 15 numbers of e2m1: 1024 elements have 3 digits, and 64 columns are 8 blocks.
    assert len(lane_unique(NVFP4, "a").cases) == 3 * 8
    assert {case.operand for case in lane_unique(NVFP4, "a").cases} == {"a"}


def test_elements_are_numbered_in_order_where_the_type_allows():
    a = lane_unique(F16).matrices["a"][0].view(np.float16)
    assert a[:2].tolist() == [list(range(1, 17)), list(range(17, 33))]
    d = F16.fragment("d").gather(lane_unique(F16).run("sm_80")).view(np.float32)
    assert d[0, 0].tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
    assert d[1, 0].tolist() == [9, 10, 11, 12, 13, 14, 15, 16]


# --- planted faults -------------------------------------------------------------------------------


def test_swapped_registers_are_named():
    inputs = lane_unique(F16)
    a, b, c = inputs.registers
    d = execute(F16, a[..., [2, 1, 0, 3]], b, c, target="sm_80")
    lines = inputs.misplaced(d)
    # Rows 0 to 7 of A; and rows 0 to 7 of B, which those of A pick out.
    assert len([line for line in lines if line.startswith("the element at A")]) == 8 * 16
    assert len(lines) == 8 * 16 + 8 * 8
    assert lines[0] == (
        "the element at A[0][0] (lane 0, register 0, bits 0…15) is what belongs to A[0][8] "
        "(lane 0, register 2, bits 0…15)"
    )
    with pytest.raises(AssertionError, match=r"^192 elements are misplaced\n"):
        inputs.check(d)


@pytest.mark.parametrize(
    ("ins", "operand", "words"),
    [
        (F16, 1, r"the element at B\[0\]\[0\] .* is what belongs to B\[8\]\[0\] .*register 1"),
        (F16, 2, r"the element at C\[0\]\[0\] .* is what belongs to C\[8\]\[0\] .*register 2"),
        (WGMMA, 0, r"the element at A\[0\]\[0\] .* is what belongs to A\[8\]\[0\] .*register 1"),
    ],
    ids=["b", "c", "a of wgmma"],
)
def test_swapped_registers_of_every_operand(ins, operand, words):
    inputs = lane_unique(ins)
    registers = list(inputs.registers)
    half = registers[operand].shape[-1] // 2
    order = np.arange(2 * half) ^ (1 if ins.is_wgmma or half == 1 else 2)
    registers[operand] = registers[operand][..., order]
    d = execute(ins, *registers, target="sm_90a", **inputs.options)
    assert any(re.search(words, line) for line in inputs.misplaced(d))


def test_metadata_of_another_lane_is_seen():
    inputs = lane_unique(SPARSE, "nibbles")
    a, b, c, e = inputs.registers
    lanes = np.arange(32)
    d = execute(SPARSE, a, b, c, e[:, lanes ^ 4], target="sm_80", **inputs.options)
    assert inputs.misplaced(d)[0].startswith(
        "the element at nibbles[0][0] (lane 0, register 0, bit"
    )
    assert "belongs to nibbles[1][0] (lane 4, register 0, bits 0…3)" in inputs.misplaced(d)[0]


def test_a_wrong_scale_byte_is_seen():
    ins = Instruction.parse(
        "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X"
        ".f32.e4m3.e4m3.f32.ue8m0"
    )
    inputs = lane_unique(ins)
    d = execute(ins, *inputs.registers, target="sm_120a", byte_id_a=1, **inputs.options)
    assert any("the element at scale_a[0][0]" in line for line in inputs.misplaced(d))


def test_what_is_no_element_is_said():
    inputs = lane_unique(F16, "a")
    d = inputs.run("sm_80").copy()
    d[0, 0, 0] = 0x7FC00000
    assert inputs.misplaced(d) == [
        "the element at A[0][0] (lane 0, register 0, bits 0…15) is none of the elements"
    ]


def test_wrong_calls():
    with pytest.raises(OperandError, match=r"an instruction that multiplies .* got 'cvt"):
        lane_unique(Instruction.parse("cvt.rn.f16x2.f32"))
    with pytest.raises(OperandError, match=r"an operand of mma.* is a, b, c, nibbles; got 'e'"):
        lane_unique(SPARSE, "e")
    with pytest.raises(OperandError, match=r"D of all 4 cases is needed.* got uint32 \(32, 4\)"):
        lane_unique(F16).misplaced(lane_unique(F16).run("sm_80")[0])
    with pytest.raises(OperandError, match="selector 2 is out of range"):
        lane_unique(SPARSE, selector=2).run("sm_80")
    with pytest.raises(UnsupportedError, match="not available on sm_75"):
        lane_unique(F16).run("sm_75")


# --- inputs ---------------------------------------------------------------------------------------


def test_inputs_of_numbers():
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((16, 16)).astype("f2"), rng.standard_normal((16, 8)).astype("f2")
    inputs = Inputs.of(F16, a, b)
    registers = [F16.fragment(x).scatter(y.view("u2")) for x, y in (("a", a), ("b", b))]
    assert np.array_equal(
        inputs.run("sm_80"), execute(F16, *registers, F16.fragment("c").zeros(), target="sm_80")
    )


def test_inputs_of_a_whole_sparse_matrix():
    a, b = np.zeros((16, 32), "f2"), np.arange(256, dtype="f2").reshape(32, 8)
    a[:, 3::4] = 1
    d = SPARSE.fragment("d").gather(Inputs.of(SPARSE, a, b, selector=1).run("sm_80"))
    assert np.array_equal(d.view("f4"), a.astype("f4") @ b.astype("f4"))


def test_inputs_that_do_not_fit():
    a, b = np.zeros((16, 16), "f2"), np.zeros((16, 8), "f2")
    with pytest.raises(OperandError, match=r"a\[0, 0\] is 0\.1.*, which f16 does not hold exactly"):
        Inputs.of(F16, a.astype("f4") + np.float32(0.1), b)
    with pytest.raises(OperandError, match=r"b of mma.* is \(…, 16, 8\); got \(8, 16\)"):
        Inputs.of(F16, a, b.T)
    with pytest.raises(OperandError, match=r"an operand of mma.* is 'a', 'b' or 'c'; got"):
        Inputs.of(F16, a, b, scale_a=a)
    with pytest.raises(OperandError, match=r"scale_a of mma.* got nothing"):
        Inputs.of(NVFP4, np.zeros((16, 64), "u1"), np.zeros((64, 8), "u1"))
    with pytest.raises(OperandError, match="a: 0x10 is no code of e2m1"):
        Inputs.of(NVFP4, np.full((16, 64), 16, "u1"), np.zeros((64, 8), "u1"))


def test_repr_shows_what_is_not_as_usual():
    a, b = np.ones((16, 16), "f2"), np.zeros((16, 8), "f2")
    a[3, 4] = 2
    assert repr(Inputs.of(F16, a, b)).splitlines() == [
        "Inputs of mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
        "  a f16 (16, 16): 0x3c00 = 1.0 but [3, 4] 0x4000 = 2.0",
        "  b f16 (16, 8): 0x0000 = 0.0",
        "  c f32 (16, 8): 0x00000000 = 0.0",
    ]


# --- swaps ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("ins", [F16, SPARSE], ids=str)
def test_lane_unique_inputs_show_every_swap(ins):
    check_swaps(lane_unique(ins), "sm_80", lanes="near")


@pytest.mark.slow
@pytest.mark.parametrize("ins", SOME, ids=str)
def test_lane_unique_inputs_show_every_swap_of_all(ins):
    if isinstance(ins, WmmaMultiply):
        pytest.skip("its fragment of A holds every element twice")
    check_swaps(lane_unique(ins), ins.targets[0])


def test_uniform_inputs_hide_all_swaps():
    inputs = Inputs.of(F16, np.ones((16, 16), "f2"), np.ones((16, 8), "f2"))
    swaps = unnoticed_swaps(inputs, "sm_80")
    # Pairs of 4, 2 and 4 registers, and of 32 lanes those that differ in one of 5 bits.
    assert len(swaps) == 6 + 1 + 6 + 3 * 16 * 5
    with pytest.raises(AssertionError) as caught:
        check_swaps(inputs, "sm_80", lanes="none")
    assert str(caught.value).splitlines()[0] == "your inputs cannot tell a[0] from a[1]"
    assert "your inputs cannot tell b[0] from b[1]" in str(caught.value)
    assert str(caught.value).splitlines()[-2:] == [
        "… and 1 more", "lane_unique(ins) makes inputs that can",
    ]  # fmt: skip


def test_one_hidden_swap_is_found():
    """The planted fault: registers 1 and 3 of A alike, which are rows g + 8, columns 2t and + 8."""
    rng = np.random.default_rng(2)
    a = rng.permutation(256).reshape(16, 16).astype("f2")
    b = rng.permutation(128).reshape(16, 8).astype("f2")
    c = rng.permutation(128).reshape(16, 8).astype("f4")
    assert unnoticed_swaps(Inputs.of(F16, a, b, c), "sm_80") == []
    a[8:, 8:] = a[8:, :8]
    (swap,) = unnoticed_swaps(Inputs.of(F16, a, b, c), "sm_80")
    assert str(swap) == "a[1] from a[3]"
    a[:, :8] = a[:, 8:] = np.arange(8)
    a[4] = a[5]
    lanes = {str(x) for x in unnoticed_swaps(Inputs.of(F16, a, b, c), "sm_80") if x.what == "lane"}
    assert "lane 16 from lane 20 in a" in lanes
    assert "lane 16 from lane 17 in a" not in lanes


def test_a_tolerance_hides_swaps():
    inputs = lane_unique(F16)
    swaps = unnoticed_swaps(inputs, "sm_80", lanes="none", same=lambda x, y: x.shape == y.shape)
    assert len(swaps) == 13


def test_a_function_of_the_callers_may_compute_d():
    """A kernel that reads a[0] only: no other register matters to it, nor b and c."""
    inputs, calls = lane_unique(F16), []

    def run(a, b, c):
        calls.append(1)
        return a[..., :1]

    swaps = unnoticed_swaps(inputs, run=run, lanes="none")
    assert [str(x) for x in swaps if x.operand == "a"] == [
        "a[1] from a[2]", "a[1] from a[3]", "a[2] from a[3]",
    ]  # fmt: skip
    assert len(swaps) == 3 + 1 + 6
    assert len(calls) == 1 + 13


def test_lanes_of_metadata_that_nothing_reads_are_left_out():
    """m16n8k32 of f16: selector 0 reads lanes 0 and 1 of every group of four (9.7.14.6.2.1)."""
    a = np.zeros((16, 32), "f2")
    a[:, ::4] = 1
    inputs = Inputs.of(SPARSE, a, np.ones((32, 8), "f2"))
    lanes = {(x.first, x.second) for x in unnoticed_swaps(inputs, "sm_80") if x.operand == "e"}
    assert (0, 1) in lanes
    assert (2, 3) not in lanes


@pytest.mark.parametrize(
    ("inputs", "options", "words"),
    [
        ((1, 2), {}, r"Inputs are needed, such as lane_unique\(ins\); got \(1, 2\)"),
        (lane_unique(F16), {}, "check_swaps needs target=, or run="),
        (lane_unique(F16), {"target": "sm_80", "lanes": "some"}, "lanes= is 'near', 'all' or 'n"),
    ],
)
def test_wrong_calls_of_check_swaps(inputs, options, words):
    with pytest.raises(OperandError, match=words):
        check_swaps(inputs, **options)


def test_opcodes_as_text():
    unique = lane_unique(str(F16))
    unique.check(unique.run("sm_80"))
    check_swaps(str(F16), "sm_80", lanes="none")
    tolerant = {"same": lambda d, other: True, "lanes": "none"}
    assert unnoticed_swaps(str(F16), "sm_80", **tolerant) == unnoticed_swaps(
        unique, "sm_80", **tolerant
    )
    ones = Inputs.of(str(F16), np.ones((16, 16), "f2"), np.ones((16, 8), "f2"))
    assert ones.ins == F16
