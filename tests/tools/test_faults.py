"""The fault finder on an m16n8k16: faults planted by hand, what it says of right kernels,
garbage, near misses and inputs that tell nothing."""

import numpy as np
import pytest
from planted import (
    DENSE,
    LANE,
    G,
    T,
    best,
    c_registers,
    col_of_a,
    dense_matrices,
    packed,
    row_of_a,
    text,
)

from emulator import Warp, gemm, mma
from emulator.tools.faults.finder import find_faults

pytestmark = pytest.mark.sampled(3)


@pytest.fixture(scope="module")
def dense():
    return dense_matrices()


def run_dense(matrices, *edits, row=None, col=None, undefined_c=None):
    """The kernel on a warp; `row`, `col`: which 16 bytes of A each lane points ldmatrix to."""
    a, b, c = matrices
    warp = Warp(target="sm_80")
    head, tail = text("fault_dense", *edits)
    warp.run(head)
    warp.shared[:512] = a.view(np.uint8).reshape(-1)
    warp.shared[512:768] = b.view(np.uint8).reshape(-1)
    row = LANE % 16 if row is None else row
    col = LANE // 16 * 8 if col is None else col
    warp["%pa"] = ((row * 16 + col) * 2).astype("u4")
    warp["%pb"] = (512 + LANE % 16 * 16).astype("u4")
    c = c if undefined_c is None else undefined_c
    for i in range(4):
        warp.words[f"%c{i}"] = c_registers(c)[i]
    warp.run(tail)
    d = np.zeros((16, 8), "f4")
    for i in range(4):
        d[G + i // 2 * 8, T * 2 + i % 2] = warp[f"%d{i}"].view("f4")
    return d, warp


def test_right_kernel_has_no_fault(dense):
    d, warp = run_dense(dense)
    assert np.array_equal(d, mma(DENSE, *dense, target="sm_80"))
    report = find_faults(DENSE, *dense, target="sm_80", d=d, registers_a=warp.read("%a", 4))
    assert report.verdict == "right" and not report.faults
    assert report.operands == {"a": True}


DENSE_FAULTS = {
    "a2 twice, as CUTLASS had it": (
        {"edits": [("%a2, %a3}, {%b0", "%a2, %a2}, {%b0")]},
        ("register used twice", "a", "a2 stands where a3 belongs"),
    ),
    "quadrants of A in the order of B's": (
        {"row": LANE % 8 + LANE // 16 * 8, "col": LANE // 8 % 2 * 8},
        ("registers exchanged", "a", "a1 and a2 exchanged"),
    ),
    "B without .trans": (
        {"edits": [(".x2.trans.", ".x2.")]},
        ("ldmatrix .trans", "b", "b: every register transposed as an 8 × 8 matrix"),
    ),
    "bf16 in the opcode": (
        {"edits": [("f32.f16.f16.f32", "f32.bf16.bf16.f32")]},
        ("wrong type or modifier", "", "type of A bf16 instead of f16"),
    ),
    "the result in another order": (
        {"edits": [("{%d0, %d1, %d2, %d3}", "{%d0, %d2, %d1, %d3}")]},
        ("registers exchanged", "d", "d1 and d2 exchanged"),
    ),
    "C forgotten": (
        {"edits": [("{%c0, %c1, %c2, %c3}", "{0f00000000, 0f00000000, 0f00000000, 0f00000000}")]},
        ("accumulator", "c", "C is zero"),
    ),
    "b0 among the registers of A": (
        {"edits": [("{%a0, %a1, %a2, %a3}, {%b", "{%a0, %b1, %a2, %a3}, {%b")]},
        ("register of the other operand", "a", "b1 stands where a1 belongs"),
    ),
}


@pytest.mark.parametrize("planted", DENSE_FAULTS)
def test_faults_of_m16n8k16(dense, planted):
    change, (mistake, operand, detail) = DENSE_FAULTS[planted]
    change = dict(change)
    d, _ = run_dense(dense, *change.pop("edits", ()), **change)
    fault = best(find_faults(DENSE, *dense, target="sm_80", d=d))
    assert (fault.mistake, fault.operand) == (mistake, operand)
    assert detail in fault.detail


FORMULAS = {
    "right": (row_of_a, col_of_a, None),
    "g, t of lane % 8": (
        lambda i: LANE % 8 + i // 2 % 2 * 8, lambda i: LANE // 8 * 2 + i % 2 + i // 4 * 8,
        ("lanes permuted", "lane % 8 and lane / 8"),
    ),
    "t not doubled": (
        row_of_a, lambda i: T + i % 2 + i // 4 * 8,
        ("wrong index formula", "column + lane % 4 where column + lane % 4 * 2 belongs"),
    ),
    "pairs down a column": (
        lambda i: G + i // 2 % 2 * 8 + i % 2, lambda i: T * 2 + i // 4 * 8,
        ("wrong index formula", "row + element % 2 where column + element % 2 belongs"),
    ),
    "the fragment of 8-bit types": (
        lambda i: G + i // 4 * 8, lambda i: T * 4 + i % 4,
        ("fragment of another type or shape", "in the lanes of a s8 fragment"),
    ),
    "high half first": (
        row_of_a, lambda i: T * 2 + 1 - i % 2 + i // 4 * 8,
        ("order within a register", "the two halves of every register exchanged"),
    ),
    "transposed": (
        lambda i: T * 2 + i % 2 + i // 4 * 8, row_of_a,
        ("operand transposed", "A transposed"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("planted", FORMULAS)
def test_index_formulas_of_a(dense, planted):
    row, col, named = FORMULAS[planted]
    a = dense[0]
    row_in = [row(i) % 16 for i in range(8)]  # a lane that leaves the matrix wraps to the next row
    words = packed(a, lambda i: row_in[i], col)
    report = find_faults(DENSE, *dense, target="sm_80", registers_a=words)
    if named is None:
        assert report.verdict == "right"
        return
    fault = best(report)
    assert fault.mistake == named[0] and named[1] in fault.detail
    # The same fault from what came out alone.
    report = find_faults(DENSE, *dense, target="sm_80", d=execute_dense(dense, words))
    assert best(report).mistake == named[0] and named[1] in report[0].detail
    assert "different mistakes" not in str(report)


def execute_dense(matrices, words):
    _, warp = run_dense(matrices)
    warp.write("%a", words)
    warp.run(text("fault_dense")[1].split("[%pb];")[1])
    d = np.zeros((16, 8), "f4")
    for i in range(4):
        d[G + i // 2 * 8, T * 2 + i % 2] = warp[f"%d{i}"].view("f4")
    return d


def test_registers_and_the_result_that_they_should_give(dense):
    _, warp = run_dense(dense)
    good = mma(DENSE, *dense, target="sm_80")
    a, b, c = (warp.read(x, n) for x, n in (("%a", 4), ("%b", 2), ("%c", 4)))
    report = find_faults(DENSE, target="sm_80", registers_a=a[:, [0, 2, 1, 3]], registers_b=b,
                         registers_c=c, expected=good)  # fmt: skip
    assert best(report).detail == "a1 and a2 exchanged"
    assert report[0].direction == "repair" and "repaired by" in str(report)


def test_two_faults_at_once(dense):
    d, _ = run_dense(
        dense, ("{%a0, %a1, %a2, %a3}, {%b0, %b1}", "{%a0, %a2, %a1, %a3}, {%b1, %b0}")
    )
    assert find_faults(DENSE, *dense, target="sm_80", d=d).verdict != "found"
    fault = best(find_faults(DENSE, *dense, target="sm_80", d=d, pairs=True))
    assert fault.detail == "a1 and a2 exchanged, and b0 and b1 exchanged"


def test_garbage_is_explained_by_nothing(dense):
    rng = np.random.default_rng(2)
    d = rng.standard_normal((16, 8)).astype("f4")
    report = find_faults(DENSE, *dense, target="sm_80", d=d)
    assert report.verdict == "none" and not report.faults
    assert f"none of {report.tried} ways of making" in str(report)
    assert report.tried > 300
    a = rng.integers(0, 1 << 32, (32, 4), np.uint32)
    assert find_faults(DENSE, *dense, target="sm_80", registers_a=a).verdict == "none"


def test_a_near_match_says_how_much_it_explains(dense):
    d, _ = run_dense(dense, ("%a2, %a3}, {%b0", "%a3, %a2}, {%b0"))
    d[3, 4] += 1
    report = find_faults(DENSE, *dense, target="sm_80", d=d)
    assert report.verdict == "near"
    assert report[0].detail == "a2 and a3 exchanged"
    assert (report[0].equal, report[0].total) == (127, 128)
    assert "explains 127 of 128" in str(report) and "1 of 128 still differ" in str(report)


def test_constant_inputs_tell_nothing():
    ones = np.ones((16, 16), "f2"), np.ones((16, 8), "f2"), np.zeros((16, 8), "f4")
    report = find_faults(DENSE, *ones, target="sm_80", d=np.full((16, 8), 16, "f4"))
    assert report.verdict == "right"
    assert report.untold > report.tried / 2
    assert "the inputs do not tell" in str(report) and "another value" in str(report)
    # One register missing: any of the four.
    report = find_faults(DENSE, *ones, target="sm_80", d=np.full((16, 8), 8, "f4"))
    assert len(report.exact) > 1
    assert "different mistakes give the same D" in str(report)


def test_random_inputs_tell(dense):
    report = find_faults(DENSE, *dense, target="sm_80", d=mma(DENSE, *dense, target="sm_80"))
    assert report.untold * 20 < report.tried
    assert "do not tell" not in str(report)


def test_a_sum_in_another_order_is_called_rounding(dense):
    a, b, c = dense
    d = (a.astype("f8") @ b.astype("f8") + c).astype("f4")
    assert (d != mma(DENSE, *dense, target="sm_80")).sum() > 10
    report = find_faults(DENSE, *dense, target="sm_80", d=d)
    assert report.verdict == "none" and "that is rounding" in str(report)
    assert "that is rounding" not in str(find_faults(DENSE, *dense, target="sm_80", d=d[::-1]))


def test_the_bits_of_another_generation():
    rng = np.random.default_rng(8)
    a, b = rng.standard_normal((16, 64)).astype("f2"), rng.standard_normal((64, 8)).astype("f2")
    d = gemm(a, b, instruction=DENSE, target="A100")
    fault = best(find_faults(DENSE, a, b, target="H100", d=d))
    assert fault.detail == "computed as ampere (sm_80) does, not sm_90a"
    d = gemm(a[:, :48], b[:48], instruction=DENSE, target="H100")
    assert (
        "last step along k is left out" in best(find_faults(DENSE, a, b, target="H100", d=d)).detail
    )
