"""``compare``: who differs, where first, at which step, and why; causes are planted one by one."""

import json
from dataclasses import replace

import numpy as np
import pytest
from codes import f32_codes
from commands import answer, refusal
from dots import by_hand, codes_of

from dtypes import FORMATS, encode
from emulator import Instruction, OperandError, UnsupportedError, gemm, mma
from emulator.arith.steps import AddC, Clear, FmaChain, FusedDotAdd
from emulator.tools.explanations.cause import Dot, find_cause, parting
from emulator.tools.explanations.comparison import compare
from emulator.tools.explanations.feeds import Asked, from_matrices
from emulator.tools.explanations.inputs import generate

F16 = Instruction.parse("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
F16_K8 = Instruction.parse("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32")
FP8 = Instruction.parse("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32")
WGMMA = Instruction.parse("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16")
GENERATIONS = ("sm_80", "sm_89", "sm_90a", "sm_100a")


def tails():
    """D[2][3] is 1 + 8 * 2^-25, all other elements are 0."""
    a, b = np.zeros((16, 16), np.float16), np.zeros((16, 8), np.float16)
    c = np.zeros((16, 8), np.float32)
    a[2, :8], b[:8, 3], c[2, 3] = 2.0**-13, 2.0**-12, 1
    return a, b, c


def lines_of(report):
    return [" ".join(line.split()) for line in report.text().splitlines()]


def test_one_bit_of_alignment():
    """Ampere's 24 fraction bits lose what Hopper's and Blackwell's 25 keep."""
    made = compare(F16, *tails(), targets=GENERATIONS)
    lines = lines_of(made)
    assert [x["of"][0]["target"] for x in made.data["results"]] == ["sm_80", "sm_90a"]
    assert any(x.startswith("R2 sm_90a, sm_100a ") for x in lines)
    assert "Elements that differ: 1 of 128" in lines
    assert "D[2][3] 0x3f800000 = 1 0x3f800002 = ~1.0000002" in lines
    (pair,) = made.data["pairs"]
    assert pair["results"] == ["R1", "R2"] and pair["differing"] == 1
    assert pair["first"] == {"row": 2, "col": 3, "codes": ["0x3f800000", "0x3f800002"]}
    assert pair["why"] == [
        {
            "aspect": "alignment bits",
            "words": "R1: terms are cut 24 bits below the largest exponent; R2: terms are cut 25 "
            "bits below the largest exponent",
        }
    ]
    assert made.differs and max(map(len, made.text().splitlines())) <= 100
    assert "by up to 2 ulps;" in made.text()
    json.dumps(made.data, allow_nan=False)
    assert "<td>D[2][3]</td>" in made.html() and made._repr_html_() in made.html()


def test_fp8_by_hand():
    """256 + 1 + 2^-6: 13 fraction bits on Ada, the f16 tensor core on Hopper."""
    a = np.zeros((16, 32))
    a[0, :3] = [256, 1, 0.015625]
    given = encode(FORMATS["e4m3"], a), encode(FORMATS["e4m3"], np.ones((32, 8)))
    made = compare(FP8, *given, targets=["sm_89", "H100"], codes=True)
    assert [made.data["differing"][0]["results"][x]["value"] for x in ("R1", "R2")] == [
        257.0,
        257.015625,
    ]
    (pair,) = made.data["pairs"]
    assert pair["first"]["row"] == 0 and pair["differing"] == 8
    assert "alignment bits" in [x["aspect"] for x in pair["why"]]
    assert any("they round at different places: R1 first after k = 0-15" in x
               for x in lines_of(made))  # fmt: skip


def test_all_alike():
    ins = Instruction.parse("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32")
    given = generate(ins, 3, "any")
    made = compare(ins, given["A"], given["B"], given["C"], codes=True)
    assert not made.differs and made.data["pairs"] == []
    assert len(made.data["results"][0]["of"]) == len(ins.targets)
    assert "All 128 elements of D are the same, bit for bit." in lines_of(made)


def test_targets_without_the_instruction():
    made = compare(F16, *tails(), targets=["sm_70", "sm_75", "sm_80"])
    assert "Not available: sm_70, sm_75" in lines_of(made)
    assert [x["target"] for x in made.data["not_available"]] == ["sm_70", "sm_75"]
    with pytest.raises(UnsupportedError, match=r"none of sm_70, sm_75 has mma.* targets are sm_80"):
        compare(F16, *tails(), targets=["V100", "sm_75"])
    with pytest.raises(UnsupportedError, match="no target 'sm_81'"):
        compare(F16, *tails(), targets=["sm_80", "sm_81"])


def test_counts_are_those_of_mma():
    given = generate(FP8, 5)
    matrices = given["A"], given["B"], given["C"]
    made = compare(FP8, *matrices, codes=True)
    shown = {x["of"][0]["target"]: x["name"] for x in made.data["results"]}
    codes = {name: mma(FP8, *matrices, target=t, codes=True) for t, name in shown.items()}
    assert len(codes) == 3
    for pair in made.data["pairs"]:
        wrong = codes[pair["results"][0]] != codes[pair["results"][1]]
        assert pair["differing"] == wrong.sum()
        row, col = (int(i) for i in np.argwhere(wrong)[0])
        assert (pair["first"]["row"], pair["first"]["col"]) == (row, col)
        assert pair["first"]["codes"] == [f"{codes[x][row, col]:#010x}" for x in pair["results"]]
    assert len(made.data["differing"]) == np.any(
        [x != codes["R1"] for x in codes.values()], axis=0
    ).sum()  # fmt: skip


def test_two_instructions_chain_over_k():
    given = generate(F16, 1)
    matrices = given["A"], given["B"], given["C"]
    made = compare([F16, F16_K8], *matrices, targets="H100", codes=True)
    first, second = made.data["results"]
    assert first["of"] == [{"opcode": str(F16), "target": "sm_90a"}]
    assert second["of"] == [{"opcode": str(F16_K8), "target": "sm_90a"}]
    one = mma(F16, *matrices, target="H100", codes=True)
    two = gemm(*matrices, instruction=F16_K8, target="H100", codes=True)
    (pair,) = made.data["pairs"]
    assert pair["differing"] == (one != two).sum() > 0
    assert [x["aspect"] for x in pair["why"]] == ["k of the instruction"]
    # Two k8 on Hopper are what Ampere's k16 does, with one fraction bit more.
    same = compare([F16, WGMMA], *matrices, targets="H100", codes=True)
    assert not same.differs


def test_larger_matrices_are_tiled():
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((20, 40)), rng.standard_normal((40, 12))
    made = compare(F16, a.astype("f2"), b.astype("f2"), targets=["sm_80", "sm_90a"])
    assert made.data["elements"] == 240 and made.differs


def test_integers_that_clamp_and_wrap():
    ins = [
        Instruction.parse(f"mma.sync.aligned.m16n8k16.row.col{x}.s32.s8.s8.s32")
        for x in ("", ".satfinite")
    ]
    a, b = np.full((16, 16), 127, np.int8), np.full((16, 8), 127, np.int8)
    c = np.full((16, 8), 0x7FFFFFFF, np.int32)
    made = compare(ins, a, b, c, targets="sm_80")
    (pair,) = made.data["pairs"]
    assert pair["why"][0]["words"] == "R1: wrapped to 32 bits; R2: clamped to s32 (.satfinite)"
    assert made.data["differing"][0]["results"]["R2"]["value"] == 2147483647


def test_sparse_and_scaled():
    sparse = Instruction.parse("mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32")
    scaled = Instruction.parse(
        "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e4m3.e4m3"
        ".f32.ue8m0"
    )
    for ins, targets in ((sparse, GENERATIONS), (scaled, None)):
        given = generate(ins, 0)
        a, b, c = (given.pop(x) for x in "ABC")
        made = compare(ins, a, b, c, targets=targets, codes=True, **given)
        assert made.differs == (ins is sparse)


def test_mistakes():
    a, b, c = tails()
    half = Instruction.parse("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16")
    with pytest.raises(OperandError, match="the same types of D, A, B and C"):
        compare([F16, half], a, b, c)
    with pytest.raises(OperandError, match="got none"):
        compare([], a, b)
    with pytest.raises(OperandError, match="limit= is 0 or more; got -1"):
        compare(F16, a, b, limit=-1)
    with pytest.raises(OperandError, match="names none"):
        compare(F16, a, b, targets=[])
    with pytest.raises(OperandError, match="one matrix A, B and C each"):
        compare(F16, np.stack([a, a]), b)
    with pytest.raises(OperandError, match="f16 elements come as"):
        compare(F16, a.astype("f4"), b)


def test_opcodes_as_text():
    by_name = compare(str(F16), *tails(), targets=["sm_80", "sm_90a"])
    assert by_name.data == compare(F16, *tails(), targets=["sm_80", "sm_90a"]).data
    assert compare([str(F16), F16_K8], *tails(), targets="sm_80").data["opcodes"][0] == str(F16)


def test_two_names_of_one_target():
    made = compare(F16, *tails(), targets=["H100", "H200", "sm_80", "sm_80"])
    lines = lines_of(made)
    assert "H100 and H200 are one target, sm_90a" in lines
    assert not any("sm_80 and" in x for x in lines)
    assert "the same operands on 2 targets" in made.title
    assert compare(F16, *tails(), targets="H100").title.endswith("the same operands on 1 target")


# --- causes ---------------------------------------------------------------------------------------


def one(arithmetic, c, pairs, k=8, name="A"):
    pairs = [*pairs, *[(0, 0)] * (k - len(pairs))]
    a, b = (codes_of(fmt, [x[i] for x in pairs]).tolist()
            for i, fmt in enumerate((arithmetic.a, arithmetic.b)))  # fmt: skip
    return Dot(name, arithmetic, tuple(a), tuple(b), c, k)


BASE = replace(by_hand("mma hopper bf16 f32"))
ONE = 0x3F800000
#: a change of the recipe, c, products that show it, and the name of the cause
PLANTED = [
    ({"fraction_bits": 24}, ONE, [(2.0**-13, 2.0**-12)] * 8, "alignment bits"),
    ({"floor": -132}, 0, [(2.0**-74, 2.0**-74), (2.0**-79, -(2.0**-79))], "exponent floor"),
    ({"run": 4}, ONE, [(2.0**-12, 2.0**-12)] + [(0, 0)] * 3 + [(2.0**-12, 2.0**-12)],
     "order of k"),
    ({"rounding": "rn"}, ONE, [(1.5 * 2.0**-12, 2.0**-12)], "rounding of the result"),
    ({"precision": 14}, ONE, [(2.0**-10, 2.0**-10)], "rounding of the result"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "c", "pairs", "cause"), PLANTED)
def test_each_cause_is_found(change, c, pairs, cause):
    """The planted difference, among others that do not show in these operands."""
    (step,) = BASE.steps
    assert isinstance(step, FusedDotAdd)
    other = replace(BASE, steps=(replace(step, **change),))
    p, q = one(BASE, c, pairs), one(other, c, pairs, name="B")
    assert p.run()[0] != q.run()[0]
    assert [x.name for x in find_cause(p, q)] == [cause]
    if cause != "exponent floor":
        also = replace(BASE, steps=(replace(step, floor=None, **change),))
        assert [x.name for x in find_cause(p, one(also, c, pairs, name="B"))] == [cause]


def test_two_causes_that_only_work_together():
    """1 + 2^-24 + 2^-25: both nearest rounding and a tail to break the tie, or nothing changes."""
    (step,) = BASE.steps
    first = replace(BASE, steps=(replace(step, fraction_bits=24),))
    second = replace(BASE, steps=(replace(step, rounding="rn"),))
    pairs = [(2.0**-12, 2.0**-12), (2.0**-13, 2.0**-12)]
    p, q = one(first, ONE, pairs), one(second, ONE, pairs, name="B")
    assert [hex(x.run()[0]) for x in (p, q)] == ["0x3f800000", "0x3f800001"]
    assert [x.name for x in find_cause(p, q)] == ["rounding of the result", "alignment bits"]


def test_other_steps_are_a_cause():
    later = replace(BASE, steps=(Clear(), *BASE.steps, AddC("f32")))
    pairs = [(2.0**-12, 1.5 * 2.0**-12)]
    p, q = one(BASE, ONE, pairs), one(later, ONE, pairs, name="B")
    assert [hex(x.run()[0]) for x in (p, q)] == ["0x3f800000", "0x3f800001"]
    (cause,) = find_cause(p, q)
    assert cause.words == (
        "A: a fused sum, toward zero to f32; B: x = 0, then a fused sum, toward zero to "
        "f32, then + c in f32"
    )
    f64 = by_hand("mma hopper f64 f64")
    first, second = (replace(f64, steps=(FmaChain("f64", order),)) for order in (("a",), ("b",)))
    nan = [(0x7FF8000000000001, 0x7FF8000000000002)]
    p, q = one(first, 0, nan, 1), one(second, 0, nan, 1, "B")
    assert [x.name for x in find_cause(p, q)] == ["steps"]
    up = replace(f64, rounding="rp")
    p, q = one(f64, 0, [(1.1, 1.1)], 1), one(up, 0, [(1.1, 1.1)], 1, "B")
    assert [x.words for x in find_cause(p, q)] == ["A: .rn; B: .rp"]


def test_where_they_part():
    (step,) = BASE.steps
    other = replace(BASE, steps=(replace(step, fraction_bits=24),))
    pairs = [(2.0**-13, 2.0**-12)] * 8
    said = parting(one(BASE, ONE, pairs), one(other, ONE, pairs, name="B"))
    assert said == [
        "after all k: x = 0x3f800002 = 1.0000002384185791015625 (f32) in A",
        "after all k: x = 0x3f800000 = 1 (f32) in B",
        *(f"k {k}: A cuts nothing; B cuts 1 bit, 2^-25" for k in range(3)),
        "and so of 5 terms more",
        "sums before rounding: 1.0000002384185791015625, 1",
    ]
    chained = one(BASE, ONE, pairs * 2, 16)
    said = parting(chained, replace(chained, name="B", k=8))
    assert said[0].startswith("they round at different places: A first after all k")
    assert said[1].startswith("B first after k = 0-7, x = 0x3f800002")


def test_a_chain_of_dots_is_a_chain_of_instructions():
    given = generate(F16, 2)
    feed = from_matrices(F16, tuple(given[x] for x in "ABC"), Asked(1, 1, "sm_80"), codes=True)
    a, b = (tuple(x.code.code for x in side) for side in (feed.a, feed.b))
    dot = Dot("", F16_K8.arithmetic("sm_80"), a, b, feed.c.code.code, 8)
    want = gemm(given["A"], given["B"], given["C"], instruction=F16_K8, target="sm_80", codes=True)
    assert dot.run()[0] == want[1, 1]


# --- the command ----------------------------------------------------------------------------------


def test_command(capsys, tmp_path):
    given = ("compare", str(F16), "--targets", "sm_80,sm_89,sm_90a,sm_100a")
    lines = answer(capsys, *given, "--seed", "1", "--limit", "3")
    assert lines[0] == f"{F16}: the same operands on 4 targets"
    data = answer(capsys, *given, "--seed", "1", "--json")
    assert len(data["results"]) == 2 and len(data["differing"]) > 10
    assert f"  … and {len(data['differing']) - 3} more" in lines
    a, b, c = tails()
    np.savez(tmp_path / "in.npz", A=a, B=b, C=c)
    data = answer(capsys, *given, "--input", tmp_path / "in.npz", "--json")
    assert [x["row"] for x in data["differing"]] == [2]
    page = tmp_path / "page.html"
    assert answer(capsys, *given, "-o", page) == [f"wrote {page}"]
    assert page.read_text().startswith("<!DOCTYPE html>")


def test_exit_code(capsys):
    from emulator.__main__ import main

    alike = ["compare", str(F16), "--targets", "sm_90a,sm_100a", "--same"]
    apart = ["compare", str(F16), "--targets", "sm_80,sm_90a", "--same"]
    assert main(alike) == 0
    assert main(apart) == 1
    assert main(apart[:-1]) == 0
    capsys.readouterr()


def test_one_dot_product_in_text(capsys):
    a, b = (",".join([code] * 8) for code in ("0x0800", "0x0c00"))
    data = answer(capsys, "compare", str(F16), "--targets", "sm_80,sm_90a", "--a", a, "--b", b,
                  "--c", hex(f32_codes(1)[0]), "--json")  # fmt: skip
    assert [(x["row"], x["col"]) for x in data["differing"]] == [(0, 0)]


def test_mistakes_on_the_command_line(capsys):
    assert "none of sm_70 has" in refusal(capsys, "compare", str(F16), "--targets", "sm_70")
    assert "names none" in refusal(capsys, "compare", str(F16), "--targets", ",")
    assert "the same types" in refusal(capsys, "compare", str(F16), str(FP8))
    assert "multiplies" in refusal(capsys, "compare", "movmatrix.sync.aligned.m8n8.trans.b16")


def test_an_option_is_not_guessed(capsys):
    from emulator.__main__ import main

    with pytest.raises(SystemExit, match="2"):
        main(["compare", str(F16), "--target", "H100"])
    error = capsys.readouterr().err
    assert error.startswith("usage: python -m emulator compare ")
    assert "unrecognized arguments: --target H100; nearest is --targets" in error
