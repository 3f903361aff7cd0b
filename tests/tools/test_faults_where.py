"""The fault finder on exchanged rows, columns, lanes and steps along k, and what it says of a wrong
result that nothing explains."""

import numpy as np
import pytest
from planted import DENSE, best, dense_matrices, packed
from test_faults_wgmma import WGMMA

from emulator import Instruction, OperandError, compress, execute, gemm, mma
from emulator.tools.faults.finder import find_faults

pytestmark = pytest.mark.sampled(6)


@pytest.fixture(scope="module")
def dense():
    return dense_matrices()


def exchanged(array, i, j, axis=0):
    order = np.arange(array.shape[axis])
    order[[i, j]] = j, i
    return np.take(array, order, axis)


def product(a, b, c):
    return mma(DENSE, a, b, c, target="sm_80")


@pytest.mark.parametrize(
    ("make", "detail"),
    [
        (lambda a, b, c: product(exchanged(a, 3, 11), b, c), "rows 3 and 11 of A exchanged"),
        (lambda a, b, c: product(a, exchanged(b, 2, 5, 1), c), "columns 2 and 5 of B exchanged"),
        (lambda a, b, c: exchanged(product(a, b, c), 0, 9), "rows 0 and 9 of D exchanged"),
    ],
)
def test_two_rows_or_columns_exchanged(dense, make, detail):
    fault = best(find_faults(DENSE, *dense, target="sm_80", d=make(*dense)))
    assert (fault.mistake, fault.detail) == ("rows or columns exchanged", detail)


def test_a_row_exchanged_in_what_was_passed(dense):
    words = packed(exchanged(dense[0], 6, 7))
    fault = best(find_faults(DENSE, *dense, target="sm_80", registers_a=words))
    assert fault.detail == "rows 6 and 7 of A exchanged"


@pytest.mark.parametrize("pair", [(3, 17), (8, 9), (30, 31)])
@pytest.mark.parametrize("name", ["a", "b", "c", "d"])
def test_two_lanes_exchanged(dense, name, pair):
    words = {x: DENSE.fragment(x).scatter(y.view(f"u{y.itemsize}"))
             for x, y in zip("abc", dense, strict=True)}  # fmt: skip
    if name in words:
        words[name] = exchanged(words[name], *pair)
    d = execute(DENSE, *words.values(), target="sm_80")
    d = exchanged(d, *pair) if name == "d" else d
    fault = best(find_faults(DENSE, *dense, target="sm_80", d=d))
    assert fault.detail == f"{name}: lanes {pair[0]} and {pair[1]} exchanged"
    if name != "d":
        report = find_faults(DENSE, *dense, target="sm_80", **{f"registers_{name}": words[name]})
        assert best(report).detail == fault.detail


@pytest.mark.parametrize(
    ("steps", "detail"),
    [((0, 2, 3), "step 1 along k, of 0 to 3, is left out"),
     ((0, 1, 2, 2, 3), "step 2 along k, of 0 to 3, is done twice")],
)  # fmt: skip
def test_a_middle_step_along_k(steps, detail):
    rng = np.random.default_rng(8)
    a, b = rng.standard_normal((16, 64)).astype("f2"), rng.standard_normal((64, 8)).astype("f2")
    k = np.concatenate([np.arange(16) + 16 * x for x in steps])
    d = gemm(a[:, k], b[k], instruction=DENSE, target="H100")
    assert best(find_faults(DENSE, a, b, target="H100", d=d)).detail == detail


def in_rows(d):
    d[[3, 11]] = np.arange(16).reshape(2, 8) ** 2


def in_lanes(d):
    d[3, 1::2] = 5


def scattered(d):
    d[0, 0] = d[1, 1] = d[2, 3] = 5
    d[0, 0] += 1


def scaled(d):
    d[1:] *= -4


def flipped(d):
    d[:, 1:] *= -1


def blank(d):
    d *= 0


def nan(d):
    d[:8] = np.nan


def rounded(d):
    d[:, 2:4] = np.nextafter(d[:, 2:4], np.float32(np.inf))


def moved(d):
    d[:] = np.random.default_rng(3).permuted(d.reshape(-1)).reshape(16, 8)


WHERE = {
    in_rows: ("wrong: rows 3 and 11, every column; that is lanes 12-15, every register",
              "D(3, 0) is 0, not"),
    in_lanes: ("wrong: row 3, odd columns; that is lanes 12-15, register 1",
               "every wrong element is 5"),
    scattered: ("wrong: in lanes 0, 4, 9, registers 0-1 (3 of 6 elements there)", "is 6, not"),
    scaled: ("wrong: rows 1-15, every column", "every wrong element is -2^2 times what is right"),
    flipped: ("wrong: every row, columns 1-7", "every wrong element has the other sign"),
    blank: ("wrong: every element", "is zero, with the sign of the right one"),
    nan: ("wrong: rows 0-7, every column; that is every lane, registers 0-1",
          "every wrong element is NaN", "D(0, 0) is NaN (0x7fc00000), not"),
    rounded: ("wrong: every row, columns 2-3", "every wrong element is 1 ulp off"),
    moved: ("every wrong element is a right one of another place",),
}  # fmt: skip


@pytest.mark.parametrize("damage", WHERE, ids=lambda x: x.__name__)
def test_where_and_how_an_unexplained_result_is_wrong(dense, damage):
    d = product(*dense)
    damage(d)
    report = find_faults(DENSE, *dense, target="sm_80", d=d)
    assert report.verdict != "found"
    for words in WHERE[damage]:
        assert any(words in line for line in report.where), str(report)
        assert words in str(report)
    assert report.data["where"] == list(report.where)


def test_an_explained_result_needs_no_place_unless_d_is_misplaced(dense):
    d = product(dense[0][::-1], *dense[1:])
    d[0, 0] += 1
    assert find_faults(DENSE, *dense, target="sm_80", d=d).where
    d = product(exchanged(dense[0], 0, 1), dense[1], dense[2])
    report = find_faults(DENSE, *dense, target="sm_80", d=d)
    assert report.verdict == "found" and not report.where
    d = exchanged(product(*dense), 0, 1)
    report = find_faults(DENSE, *dense, target="sm_80", d=d)
    assert report.verdict == "found"
    assert any(x.startswith("D(0, 0) holds the bits of D(1, 0): ") for x in report.where)


def test_one_element_that_holds_the_bits_of_another(dense):
    d = product(*dense)
    d[0, 3] = d[0, 6]
    report = find_faults(DENSE, *dense, target="sm_80", d=d)
    assert report.verdict == "none"
    assert any(x.startswith("D(0, 3) holds the bits of D(0, 6): ") for x in report.where)
    # A zero, and what several elements are, belong to no one.
    d[0, 3] = 0
    report = find_faults(DENSE, *dense, target="sm_80", d=d)
    assert any(x.startswith("D(0, 3) is 0, not ") for x in report.where)


def test_pairs_are_mentioned_where_they_were_not_tried(dense):
    d = np.random.default_rng(2).standard_normal((16, 8)).astype("f4")
    assert "pairs=True (--pairs)" in str(find_faults(DENSE, *dense, target="sm_80", d=d))
    right = product(*dense)
    assert "--pairs" not in str(find_faults(DENSE, *dense, target="sm_80", d=right))


def test_a_constant_c_forgotten_is_named_once(dense):
    a, b, _ = dense
    report = find_faults(DENSE, a, b, np.ones((16, 8), "f4"), target="sm_80",
                         d=mma(DENSE, a, b, target="sm_80"))  # fmt: skip
    assert [x.detail for x in report.exact] == ["C is zero: A·B alone came out"]
    assert any("halves" in x for x in report[0].same_as)


def test_advice_is_about_the_operand(dense):
    a, b, c = dense
    square = np.ascontiguousarray(a.T)
    fault = best(find_faults(DENSE, *dense, target="sm_80",
                             d=product(square, b, c)))  # fmt: skip
    assert "A transposed" in fault.detail
    assert "an A in column-major" in fault.explanation and "a B" not in fault.explanation


def test_an_opcode_will_do(dense):
    d = product(*dense)
    assert find_faults(str(DENSE), *dense, target="sm_80", d=d).verdict == "right"
    with pytest.raises(OperandError, match="its opcode"):
        find_faults(5, *dense, target="sm_80", d=d)


def test_tensors_of_torch():
    torch = pytest.importorskip("torch")
    ins = Instruction.parse("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32")
    seeded = torch.Generator().manual_seed(0)
    a, b = (torch.randn(*x, generator=seeded).to(torch.bfloat16) for x in ((16, 16), (16, 8)))
    d = mma(ins, a, b, target="sm_90a")
    assert find_faults(ins, a, b, target="sm_90a", d=d).verdict == "right"
    swapped = mma(ins, a[[1, 0, *range(2, 16)]].contiguous(), b, target="sm_90a")
    details = [x.detail for x in find_faults(ins, a, b, target="sm_90a", d=swapped)]
    assert "rows 0 and 1 of A exchanged" in details


@pytest.mark.slow
def test_columns_and_rows_of_wgmma():
    rng = np.random.default_rng(4)
    ins = Instruction.parse(str(WGMMA).replace("n16k", "n128k"))
    a, b = rng.standard_normal((64, 32)).astype("f2"), rng.standard_normal((32, 128)).astype("f2")
    for arrays, detail in (
        ((a, exchanged(b, 90, 101, 1)), "columns 90 and 101 of B exchanged"),
        ((exchanged(a, 0, 63), b), "rows 0 and 63 of A exchanged"),
    ):
        d = gemm(*arrays, instruction=ins, target="H100")
        details = [x.detail for x in find_faults(ins, a, b, target="H100", d=d).exact]
        assert detail in details


def test_a_row_of_a_sparse_matrix_takes_its_metadata_along():
    rng = np.random.default_rng(5)
    ins = Instruction.parse("mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32")
    a = np.zeros((16, 8, 4), "f2")
    for row, group in np.ndindex(16, 8):
        a[row, group, rng.choice(4, 2, replace=False)] = rng.standard_normal(2)
    a, b = a.reshape(16, 32), rng.standard_normal((32, 8)).astype("f2")
    c = rng.standard_normal((16, 8)).astype("f4")
    other = exchanged(a, 2, 12)
    stored, words = compress(ins, other.view("u2"))
    registers = [ins.fragment(x).scatter(y) for x, y in zip(
        "abc", (stored, b.view("u2"), c.view("u4")), strict=True)]  # fmt: skip
    d = ins.fragment("d").gather(execute(ins, *registers, words, target="sm_80")).view("f4")
    assert np.array_equal(d.view("u4"), mma(ins, other, b, c, target="sm_80").view("u4"))
    assert best(find_faults(ins, a, b, c, target="sm_80", d=d)).detail == (
        "rows 2 and 12 of A exchanged"
    )
