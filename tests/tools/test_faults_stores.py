"""The fault finder on what a kernel does with a right D: stores by wrong indices, epilogues.

The right stores follow the manual's text: row groupID (+ 8), column threadID_in_group * 2 (+ 1).
"""

import numpy as np
import pytest
from planted import DENSE, LANE, G, T, best, dense_matrices

from emulator import Instruction, gemm, mma
from emulator.tools.faults.finder import find_faults

pytestmark = pytest.mark.sampled(8)

HALF = Instruction.parse("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16")
INTEGER = Instruction.parse("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32")
WGMMA = Instruction.parse("wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16")


@pytest.fixture(scope="module")
def dense():
    return dense_matrices()


def right(matrices):
    return mma(DENSE, *matrices, target="sm_80")


def row(i):
    return G + i // 2 * 8


def column(i):
    return T * 2 + i % 2


def stored(d, row=row, column=column, before=0.0, stride=8):
    """What lies in the place of D after every lane has stored its four elements, one by one."""
    memory = np.full(4096, before, d.dtype)
    for i in range(4):
        value = d[G + i // 2 * 8, T * 2 + i % 2]
        at = np.broadcast_to(row(i), 32) * stride + column(i)
        memory[at] = value
    return memory[:128].reshape(16, 8)


STORES = {
    "right": ({}, None),
    "lost + 8": ({"row": lambda i: G}, "row without (element / 2) where row + (element / 2) * 8"),
    "lost * 2": ({"column": lambda i: T + i % 2},
                 "column + lane % 4 where column + lane % 4 * 2 belongs"),
    "lost + 1": ({"column": lambda i: T * 2}, "column without element % 2"),
    "+ 4 for + 8": ({"row": lambda i: G + i // 2 * 4}, "row + (element / 2) * 4 where"),
    "lane % 8 for lane / 4": (
        {"row": lambda i: LANE % 8 + i // 2 * 8, "column": lambda i: LANE // 8 * 2 + i % 2},
        "lane / 4 and lane % 4 (groupID",
    ),
    "groupID and threadID": ({"row": lambda i: T + i // 2 * 8, "column": lambda i: G * 2 + i % 2},
                             "lane % 4 and lane / 4 (threadID_in_group, groupID) exchanged"),
    "rows of 16": ({"stride": 16}, "rows stored 16 elements apart instead of 8"),
    "rows of 12": ({"stride": 12}, "rows stored 12 elements apart instead of 8"),
    "i and i + 1 on top of each other": (
        {"row": lambda i: G + i % 2 * 8, "column": lambda i: T * 2 + i // 2}, "d1 and d2 exchanged",
    ),
}  # fmt: skip


@pytest.mark.parametrize("before", [0.0, -1.0])
@pytest.mark.parametrize("planted", STORES)
def test_stores_by_a_wrong_index(dense, planted, before):
    change, detail = STORES[planted]
    d = stored(right(dense), **change, before=before)
    report = find_faults(DENSE, *dense, target="sm_80", d=d)
    if detail is None:
        assert report.verdict == "right" and not report.faults and not report.where
        return
    fault = best(report)
    said = (fault.detail, *fault.same_as)
    assert fault.operand == "d" and any(detail in x for x in said), str(report)
    assert len(report.faults) == 1, str(report)


def test_a_row_too_long_goes_on_in_the_next(dense):
    d = stored(right(dense), column=lambda i: T * 2 + i % 2 + i // 2 * 8, row=lambda i: G)
    fault = best(find_faults(DENSE, *dense, target="sm_80", d=d))
    assert fault.detail == "D: row + (element / 2) where row + (element / 2) * 8 belongs"
    assert any("what leaves a row goes on in the next" in x for x in fault.same_as)


def test_d_transposed(dense):
    d = np.zeros((16, 8), "f4")
    d.T[...] = right(dense).reshape(8, 16)
    assert best(find_faults(DENSE, *dense, target="sm_80", d=d)).mistake == "operand transposed"


def test_what_was_there_before_must_be_of_one_value_or_c(dense):
    """A wrong store explains no holes that hold anything."""
    change = {"row": lambda i: G}
    d = stored(right(dense), **change)
    d[8:] = dense[2][8:]
    assert best(find_faults(DENSE, *dense, target="sm_80", d=d)).mistake == "store of D"
    d[8:] = np.random.default_rng(0).standard_normal((8, 8))
    assert find_faults(DENSE, *dense, target="sm_80", d=d).verdict != "found"


@pytest.mark.slow
def test_a_wgmma_stored_by_a_wrong_index():
    rng = np.random.default_rng(6)
    a, b = rng.standard_normal((64, 32)).astype("f2"), rng.standard_normal((32, 16)).astype("f2")
    d = gemm(a, b, instruction=WGMMA, target="H100")
    assert find_faults(WGMMA, a, b, target="H100", d=d).verdict == "right"
    # Every warp stores its 16 rows as the first does.
    out = np.zeros_like(d)
    for warp in range(4):
        out[:16] = d[16 * warp : 16 * warp + 16]
    fault = best(find_faults(WGMMA, a, b, target="H100", d=out))
    assert "row without (lane / 32)" in fault.detail


EPILOGUES = {
    "negated": (lambda d: -d, "D with the other sign"),
    "ReLU": (lambda d: np.maximum(d, 0), "negative elements of D are 0 (ReLU)"),
    "scaled by 1/8": (lambda d: d / 8, "D times 0.125"),
    "scaled by 1/3": (lambda d: d * np.float32(1 / 3), "D times 0.333333343"),
    "scaled by 1/sqrt(96)": (lambda d: d * np.float32(96**-0.5), "D times 0.102062076"),
    "scaled by 1.7": (lambda d: d * np.float32(1.7), "D times 1.70000005"),
    "scaled by -2": (lambda d: d * -2, "D times -2"),
    "through f16": (lambda d: d.astype("f2").astype("f4"), "D rounded to f16 on the way"),
}


@pytest.mark.parametrize("planted", EPILOGUES)
def test_what_is_done_to_d(dense, planted):
    make, detail = EPILOGUES[planted]
    report = find_faults(DENSE, *dense, target="sm_80", d=make(right(dense)))
    fault = best(report)
    assert (fault.mistake, fault.operand, fault.detail) == ("what is done to D", "d", detail)
    assert len(report.faults) == 1


def test_what_is_done_to_other_types():
    rng = np.random.default_rng(2)
    a, b = rng.integers(-99, 99, (16, 32)).astype("i1"), rng.integers(-9, 9, (32, 8)).astype("i1")
    d = mma(INTEGER, a, b, target="sm_80")
    relu = np.maximum(d, 0), "negative elements of D are 0 (ReLU)"
    for made, detail in ((d * 3, "D times 3"), relu, (-d, "D with the other sign")):
        assert best(find_faults(INTEGER, a, b, target="sm_80", d=made)).detail.startswith(detail)
    a, b = rng.standard_normal((16, 16)).astype("f2"), rng.standard_normal((16, 8)).astype("f2")
    c = rng.standard_normal((16, 8)).astype("f2")
    d = mma(HALF, a, b, c, target="sm_80")
    assert find_faults(HALF, a, b, c, target="sm_80", d=d).verdict == "right"
    fault = best(find_faults(HALF, a, b, c, target="sm_80", d=np.maximum(d, 0)))
    assert fault.detail == "negative elements of D are 0 (ReLU)"
    fault = best(find_faults(HALF, a, b, c, target="sm_80", d=d * np.float16(0.25)))
    assert fault.detail == "D times 0.25"


def test_a_scale_of_a_and_b_alone_is_not_one_of_d(dense):
    """alpha * A * B + C is no multiple of D."""
    a, b, c = dense
    d = mma(DENSE, a * np.float16(0.5), b, c, target="sm_80")
    assert find_faults(DENSE, a, b, c, target="sm_80", d=d).verdict != "found"


def test_nothing_is_done_to_a_zero_or_infinite_d():
    a, b = np.zeros((16, 16), "f2"), np.zeros((16, 8), "f2")
    d = np.full((16, 8), np.inf, "f4")
    assert find_faults(DENSE, a, b, target="sm_80", d=d).verdict in ("none", "near")
