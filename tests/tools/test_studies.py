"""Error studies: exact products, measures by hand, orders, files; probes against the table."""

import csv
import io
import xml.etree.ElementTree as ET
from fractions import Fraction

import numpy as np
import pytest
from bits import assert_same_codes
from commands import answer, refusal
from designed import boundary

from dtypes import FORMATS, NumberClass, decode, encode
from dtypes.codec import decode as decode_one
from emulator import (
    EmulatorError,
    Instruction,
    InstructionDescriptor,
    OperandError,
    Recipe,
    UnsupportedError,
    error_study,
    gemm,
    probe,
)
from emulator.arith.fast.wide import add
from emulator.arith.steps import Convert, FusedDotAdd
from emulator.tools.studies import exact
from emulator.tools.studies.chart import Line, line_chart
from emulator.tools.studies.command import lengths
from emulator.tools.studies.error import DISTRIBUTIONS, MEASURES, _as_operands, _Operands, _ordered

pytestmark = pytest.mark.sampled(4)

F16 = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
F16_F16 = "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16"
FP8 = "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32"
E2M1 = "mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e2m1.e2m1.f32"
TF32 = "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"
F64 = "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64"
S8 = "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32"
SPARSE = "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
WGMMA_FP8 = "wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3"
NVFP4 = (
    "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32"
    ".ue4m3"
)
MXFP8 = (
    "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e4m3.e4m3.f32"
    ".ue8m0"
)
TCGEN05 = "tcgen05.mma.cta_group::1.kind::f16"
DESCRIPTOR = InstructionDescriptor(kind="f16", a="bf16", b="bf16", d="f32", m=128, n=256)
SLOW = pytest.mark.slow
QUAD = "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32"


# --- exact products -------------------------------------------------------------------------------


def fraction(fmt, code):
    number = decode_one(fmt, int(code))
    size = Fraction(2) ** (number.exponent - fmt.mantissa_bits) * number.significand
    return -size if number.sign else size


@pytest.mark.parametrize("name", ["e4m3", "e5m2", "e2m1", "f16", "bf16", "tf32", "f64"])
def test_products_in_integers_are_those_of_fractions(name):
    fmt, rng = FORMATS[name], np.random.default_rng(5)
    codes = boundary(fmt)
    codes = codes[decode(fmt, codes).number_class < NumberClass.INFINITE]
    a, b = rng.choice(codes, (3, 17)), rng.choice(codes, (17, 2))
    got = exact.product(exact.as_whole("A", fmt, a), exact.as_whole("B", fmt, b))
    for i in range(3):
        for j in range(2):
            want = sum(
                fraction(fmt, x) * fraction(fmt, y) for x, y in zip(a[i], b[:, j], strict=True)
            )
            assert Fraction(int(got.integers[i, j])) * Fraction(2) ** got.unit == want


def test_ratios_are_rounded_once():
    x = exact.Whole(np.array([1, 0, 3, 0], object), -5)
    y = exact.Whole(np.array([3, 7, 0, 0], object), 0)
    assert exact.ratios(x, y).tolist() == [1 / 96, 0, np.inf, 0]
    huge = exact.Whole(np.array([1 << 3000], object), -3000)
    assert exact.ratios(huge, exact.Whole(np.array([3], object), 0)).tolist() == [1 / 3]


def test_infinities_have_no_error():
    with pytest.raises(OperandError, match="infinities or NaNs"):
        exact.as_whole("A", FORMATS["f16"], np.array([0x7C00], "u2"))


# --- the study ------------------------------------------------------------------------------------


def constant(value):
    def draw(rng, shape):
        return np.full(shape, value)

    return draw


def row(opcode=F16, **options):
    (found,) = error_study(opcode, **{"rows": 4, "columns": 4, "k": 64} | options).rows
    return found


def test_measures_by_hand():
    """64 times 1/4 · 1/4 (1 is 2^-4 · 16), cut to 3 bits: 1, 2, 2, 2, … of 4: half is lost."""
    short = Recipe.fused(30, precision=1)
    found = row(targets=short, distributions=constant(0.25))
    # Chain of 16 products at a time: 1, 2, then 3 is cut to 2, and again.
    assert found["max_relative"] == found["rms"] == found["max_scaled"] == 0.5
    assert found["bias"] == -0.5 and found["not_finite"] == 0
    upward = row(targets=Recipe.fused(30, precision=1, rounding="rp"), distributions=constant(0.25))
    assert upward["bias"] == 1 and upward["rms"] == 1  # 1, 2, 4 (of 3), 8 (of 5)


def test_measures_against_fractions():
    """Every measure from its definition, on random operands."""
    study = error_study(WGMMA_FP8, targets="H100", k=96, rows=3, columns=5, seed=11)
    fmt, rng = FORMATS["e4m3"], np.random.default_rng(11)
    a = encode(fmt, rng.standard_normal((3, 96)))
    b = encode(fmt, rng.standard_normal((96, 5)))
    d = gemm(a, b, instruction=WGMMA_FP8, target="H100", codes=True)
    off, size, terms = [], [], []
    for i in range(3):
        for j in range(5):
            products = [
                fraction(fmt, x) * fraction(fmt, y) for x, y in zip(a[i], b[:, j], strict=True)
            ]
            size.append(sum(products))
            off.append(fraction(FORMATS["f32"], d[i, j]) - size[-1])
            terms.append(sum(map(abs, products)))
    assert any(off)
    want = {
        "rms": float(sum(x * x for x in off) / sum(x * x for x in size)) ** 0.5,
        "max_relative": float(max(abs(x / y) for x, y in zip(off, size, strict=True))),
        "max_scaled": float(max(abs(x) / y for x, y in zip(off, terms, strict=True))),
        "bias": float(
            sum(x if y > 0 else -x for x, y in zip(off, size, strict=True)) / sum(map(abs, size))
        ),
    }
    (found,) = study.rows
    assert {name: found[name] for name in MEASURES} == pytest.approx(want, rel=1e-12)


def test_nothing_is_off_where_nothing_is_cut():
    found = row(F64, targets=Recipe.fused(200, result="f64"), distributions="positive", k=4)
    assert found["rms"] < 2.0**-52
    assert row(targets=Recipe.fused(25), distributions=constant(1.0))["rms"] == 0


def test_fewer_bits_are_farther_off():
    errors = [row(targets=Recipe.fused(bits))["rms"] for bits in (24, 20, 16)]
    assert 0 < errors[0] < errors[1] < errors[2]


def test_one_cell_for_each_target_distribution_order_and_k():
    study = error_study(
        F16, targets=["A100", "H100", Recipe.fma()], k=(32, 64), rows=2, columns=2,
        distributions=["normal", "positive"], orders=["chain", "split:2"],
    )  # fmt: skip
    keys = [(x["distribution"], x["order"], x["target"], x["k"]) for x in study.rows]
    assert len(keys) == len(set(keys)) == 3 * 2 * 2 * 2
    assert keys[:2] == [("normal", "chain", "sm_80", 32), ("normal", "chain", "sm_80", 64)]


def test_targets_with_the_same_arithmetic_are_computed_once():
    names = {x["target"] for x in error_study(F16, k=16, rows=1, columns=1).rows}
    assert names == {"sm_80", "sm_90"}
    study = error_study(WGMMA_FP8, targets=["H100", "B200"], k=32, rows=1, columns=1)
    assert "not available on sm_100a" in study.text()


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_distributions_are_of_the_seed(name):
    same, other = (row(distributions=name, targets="H100", seed=s) for s in (1, 2))
    assert same == row(distributions=name, targets="H100", seed=1) != other


def test_orders():
    rng = np.random.default_rng(2)
    ins, fmt = Instruction.parse(WGMMA_FP8), FORMATS["e4m3"]
    a, b = (encode(fmt, rng.uniform(0, 1, s)) for s in ((2, 256), (256, 2)))

    def run(x, y, **more):
        return gemm(x, y, instruction=ins, target="H100", codes=True, **more)

    operands = _Operands(a, b, {}, (exact.Whole(a, 0),) * 2)
    made = {order: _ordered(ins, "H100", operands, order)
            for order in ("chain", "reversed", "promote:64", "split:2", "sliced:2")}  # fmt: skip
    assert_same_codes(made["chain"], run(a, b))
    assert_same_codes(made["reversed"], run(a[:, ::-1].copy(), b[::-1].copy()))
    assert_same_codes(made["promote:64"], run(a, b, k_promote=64))
    halves = run(a[:, :128], b[:128]), run(a[:, 128:], b[128:])
    assert_same_codes(made["split:2"], add(FORMATS["f32"], *halves))
    assert_same_codes(made["sliced:2"], run(a, b, split_k=2, order="sliced"))
    assert len({x.tobytes() for x in made.values()}) == 5


def numbers(ins, k, kind="normal"):
    rng = np.random.default_rng(3)
    return [DISTRIBUTIONS[kind](rng, shape) for shape in ((3, k), (k, 2))]


@pytest.mark.parametrize(("opcode", "k"), [(NVFP4, 100), (MXFP8, 64)])
def test_block_scaled_operands(opcode, k):
    """What is exact is codes times scales; no number is above the largest of the type, and half
    the scale, ue8m0's next, would leave one there."""
    ins = Instruction.parse(opcode)
    fmt, scale = FORMATS[ins.a_type], FORMATS[ins.scale_type]
    a, b = numbers(ins, k, "wide")
    made = _as_operands(ins, (fmt, fmt), a, b)
    block, largest = ins.k // ins.scale_chunks, fraction(fmt, fmt.max_finite)
    for i in range(3):
        for j in range(k):
            factor = fraction(scale, made.scales["scale_a"][i, j // block])
            found = fraction(fmt, made.a[i, j]) * factor
            assert found == fraction_of(made.exact[0], i, j)
            assert abs(a[i, j]) <= largest * factor
        for start in range(0, k, block):
            factor = fraction(scale, made.scales["scale_a"][i, start // block])
            most = abs(a[i, start : start + block]).max()
            assert scale.name != "ue8m0" or most > largest * factor / 2
    assert made.b.shape == (k, 2) and made.scales["scale_b"].shape == (-(-k // block), 2)


def fraction_of(x, i, j):
    return Fraction(2) ** x.unit * x.integers[i, j]


@pytest.mark.parametrize("k", [32, 50])
def test_sparse_operands_keep_the_largest(k):
    ins = Instruction.parse(SPARSE)
    a, b = numbers(ins, k)
    made = _as_operands(ins, (FORMATS["f16"],) * 2, a, b)
    for row, kept in zip(a, made.a, strict=True):
        for start in range(0, k, 4):
            chunk = abs(row[start : start + 4])
            least = np.sort(chunk)[-2] if len(chunk) > 1 else 0
            assert np.array_equal(kept[start : start + 4] != 0, chunk >= least)


@pytest.mark.parametrize(
    ("opcode", "target", "idesc"),
    [(SPARSE, "H100", None), (MXFP8, "sm_120a", None), (TCGEN05, "sm_100a", DESCRIPTOR)],
)
def test_studies_of_every_kind_of_instruction(opcode, target, idesc):
    """The error is that of f32 with as many bits or more, and grows where a recipe keeps fewer."""
    own = Recipe.of(opcode, target, idesc=idesc)
    wide, narrow = (own.changed(fraction_bits=x, name=str(x)) for x in (200, 12))
    study = error_study(
        opcode, idesc=idesc, targets=[target, wide, narrow], k=96, rows=4, columns=4,
    )  # fmt: skip
    rms = {x["target"]: x["rms"] for x in study.rows}
    first, _, last = (rms[x] for x in (study.rows[0]["target"], "200", "12"))
    assert max(first, rms["200"]) < 1e-6 < last < 1e-2


def test_overflows_are_counted():
    found = row(F16_F16, targets="H100", distributions=constant(64.0), k=256)
    assert found["not_finite"] == 16 and found["rms"] == np.inf
    study = error_study(F16_F16, targets="H100", distributions=constant(64.0), k=(8, 256), rows=1)
    assert "32 results were infinities" in study.text()
    ET.fromstring(study.svg())


# --- what it writes -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def study():
    return error_study(
        F16, targets=["A100", "H100", "B200"], k=(16, 64, 256), rows=4, columns=4,
        orders=("chain", "reversed"),
    )  # fmt: skip


def test_text(study):
    lines = study.text().splitlines()
    assert lines[0] == f"Error of {F16} against the exact result"
    assert any(line.startswith("k    sm_80, chain  sm_80, reversed") for line in lines) or any(
        line.startswith("k    sm_80, chain  sm_90a, chain") for line in lines
    )
    assert max(map(len, lines)) <= 110


def test_csv(study):
    rows = list(csv.DictReader(io.StringIO(study.csv())))
    assert len(rows) == len(study.rows) == 18
    assert [float(x["rms"]) for x in rows] == [x["rms"] for x in study.rows]


def test_the_picture_holds_every_line_and_point(study):
    root = ET.fromstring(study.svg())
    space = "{http://www.w3.org/2000/svg}"
    lines = root.findall(f"{space}g[@class='line']")
    assert len(lines) == 6
    assert all(len(x.findall(f"{space}path/{space}title")) == 3 for x in lines)
    texts = [x.text for x in root.findall(f"{space}text")]
    assert "sm_90a, reversed" in texts and "256" in texts
    # B200 computes as the H100 does: its line is dashed, or it would hide the other one.
    assert study.svg().count("stroke-dasharray") == 2
    assert study.svg() in study.html()


def test_a_chart_of_nothing_but_zeros():
    ET.fromstring(line_chart([Line("x", [(16, 0.0), (32, 0.0)])], "t", "k", "e"))
    ET.fromstring(line_chart([Line("x", [(16, 1e-3)]), Line("<&>", [(16, 1e-3)])], "t", "k", "e"))


def test_names_do_not_cover_each_other():
    made = line_chart(
        [Line(f"n{i}", [(1, 1), (2, 1e-9 * (1 + i))]) for i in range(8)], "t", "k", ""
    )
    places = [float(x.get("y")) for x in ET.fromstring(made) if (x.text or "").startswith("n")]
    assert len(places) == 8 and min(np.diff(sorted(places))) >= 12


def test_the_command(capsys, tmp_path):
    made = answer(capsys, "error", F16, "--targets", "A100,H100", "--k", "16..64", "--rows", "2",
                  "--columns", "2", "--json")  # fmt: skip
    assert made["opcode"] == F16 and [x["k"] for x in made["rows"]] == [16, 32, 64] * 2
    for kind, words in (("svg", "<svg"), ("html", "<!DOCTYPE"), ("csv", "target,"), ("txt", "Err")):
        file = tmp_path / f"x.{kind}"
        answer(capsys, "error", F16, "--k", "16", "--rows", "1", "-o", str(file), "--json")
        assert file.read_text(encoding="utf-8").startswith(words)


def test_lengths():
    assert lengths("16..100,7") == [16, 32, 64, 7]
    for wrong in ("x", "0", "9..3", "1...3", "1" * 50):
        with pytest.raises(OperandError, match="--k"):
            lengths(wrong)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"instruction": S8}, "adds integers"),
        ({"instruction": SPARSE, "orders": "reversed"}, "order of dense sums"),
        ({"instruction": TCGEN05}, "needs idesc="),
        ({"idesc": DESCRIPTOR}, "goes with a tcgen05.mma"),
        ({"k": 0}, "k is 1"),
        ({"k": ()}, "k names no length"),
        ({"k": 1 << 30}, "k is 1"),
        ({"distributions": "gauss"}, "a distribution is"),
        ({"distributions": ()}, "names none"),
        ({"distributions": lambda rng, shape: np.zeros(3)}, "must give numbers"),
        ({"distributions": constant(np.inf)}, "infinities or NaNs"),
        ({"orders": "chian"}, "nearest is 'chain'"),
        ({"orders": "split:2", "instruction": F16_F16}, "adds partial sums in f32"),
        ({"orders": "promote:24"}, "multiple of 16"),
        ({"orders": ()}, "names none"),
        ({"targets": "V100"}, "is not on sm_70"),
        ({"targets": ()}, "is not on no target"),
        ({"targets": [Recipe.fused(3), Recipe.fused(3, floor=2)]}, "the same name"),
        ({"rows": 1000, "columns": 1000}, "at most"),
        ({"seed": -1}, "seed is 0"),
        ({"measure": "max"}, "measure is"),
    ],
)
def test_studies_that_cannot_be(given, words):
    with pytest.raises(EmulatorError, match=words) as caught:
        error_study(**{"instruction": F16, "k": 64, "rows": 2, "columns": 2, "targets": "H100"}
                    | given)  # fmt: skip
    assert len(str(caught.value)) < 600


def test_the_command_refuses(capsys):
    assert "no target" in refusal(capsys, "error", F16, "--targets", "H1000")
    assert "--k is lengths" in refusal(capsys, "error", F16, "--k", "many")


# --- probes ---------------------------------------------------------------------------------------


def stated(recipe, k):
    """What the table says, in the words of a probe; of one fused sum without an A of its own."""
    step = recipe.sum
    assert isinstance(step, FusedDotAdd)
    last = any(type(x).__name__ == "AddC" for x in recipe.steps)
    own = step.precision or FORMATS[step.result].precision
    return {
        "passes": step.blocks(k), "fraction_bits": step.fraction_bits,
        "accumulator": "last" if last else "first",
        "precision": FORMATS[step.result].precision if last else min(own, step.fraction_bits + 1),
        "rounding": "rn" if last else step.rounding,
    }  # fmt: skip


def check_probe(opcode, target):
    ins = Instruction.parse(opcode)
    found = probe(ins, target=target).data
    want = stated(Recipe.of(ins, target), ins.k)
    assert {name: found[name] for name in want} == want
    assert found["fraction_bits_are"] == "exact"


@pytest.mark.parametrize(
    ("opcode", "target"),
    [
        (F16, "A100"), (F16, "H100"), (F16_F16, "A100"), (F16_F16, "H100"), (TF32, "A100"),
        (TF32, "B200"), pytest.param(FP8, "L40S", marks=SLOW), (FP8, "H100"),
        pytest.param(FP8, "sm_120a", marks=SLOW), pytest.param(WGMMA_FP8, "H100", marks=SLOW),
        (QUAD, "V100"), (QUAD.replace(".f32.f16.f16.f32", ".f16.f16.f16.f16"), "V100"),
        (QUAD, "sm_75"),
    ],
)  # fmt: skip
def test_a_probe_finds_what_the_table_says(opcode, target):
    check_probe(opcode, target)


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(i, marks=SLOW) for i in range(2, 20))])
def test_a_probe_finds_constants_that_it_was_not_made_for(seed):
    rng = np.random.default_rng(seed)
    bits = int(rng.integers(10, 35))
    own = Recipe.fused(
        bits, precision=int(rng.integers(4, min(25, bits + 1))), run=int(rng.choice([0, 3, 4, 8])),
        rounding=str(rng.choice(["rz", "rn", "rp", "rm"])),
    )  # fmt: skip
    check_probe(F16, own)


def test_a_probe_of_multiply_adds_one_by_one():
    for opcode, target in ((F64, "H100"), (QUAD, "H100"), (F16, Recipe.fma("f32"))):
        found = probe(opcode, target=target).data
        assert found["passes"] == [[i] for i in range(Instruction.parse(opcode).k)]
        assert found["fraction_bits"] is None and found["rounding"] == "rn"
    assert probe(f"{F64}.rp", target="H100").data["rounding"] == "rp"


@pytest.mark.slow
def test_a_probe_says_what_it_cannot_see():
    """Products of e2m1 span 2^-2 to 2^4: none of them is ever cut."""
    found = probe(E2M1, target="sm_120a")
    assert found.data["passes"] is None and found.data["fraction_bits"] == 25
    assert "not seen" in found.text()
    far = probe(F16_F16, target=Recipe.fused(60, result="f32")).data
    assert far["fraction_bits_are"] == "at least"


@pytest.mark.parametrize(
    ("opcode", "target", "idesc", "k"),
    [
        (SPARSE, "H100", None, 32),
        (MXFP8, "sm_120a", None, 32),
        (TCGEN05, "sm_100a", DESCRIPTOR, 16),
    ],
)
def test_probes_of_every_kind_of_instruction(opcode, target, idesc, k):
    step = Recipe.of(opcode, target, idesc=idesc).sum
    found = probe(opcode, target=target, idesc=idesc).data
    assert found["fraction_bits"] == step.fraction_bits and found["precision"] == 24
    kept = [i for i in range(k) if opcode != SPARSE or i % 4 < 2]
    assert found["passes"] == [kept]


def test_the_published_experiment_on_the_accumulator():
    """SageAttention2 (arXiv:2411.10958): of an f32 accumulator beside zero fp8 products Hopper
    returns 13 fraction bits, the low 10 truncated."""
    words = np.random.default_rng(0).integers(1 << 23, 0x7F00_0000, (64, 64), np.uint32)
    zeros = np.zeros((64, 32), "u1"), np.zeros((32, 64), "u1")
    d = gemm(*zeros, words, instruction=WGMMA_FP8, target="H100", codes=True)
    assert_same_codes(d, words & np.uint32(0xFFFF_FC00))


@pytest.mark.parametrize("opcode", [S8, TCGEN05, "cvt.rn.f16x2.f32"])
def test_probes_that_cannot_be(opcode):
    with pytest.raises(EmulatorError):
        probe(opcode, target="H100")


def test_the_commands_take_a_descriptor(capsys):
    word = hex(DESCRIPTOR.encode())
    made = answer(capsys, "probe", TCGEN05, "--idesc", word, "--target", "B200", "--json")
    assert made["fraction_bits"] == 25
    given = ("--idesc", word, "--targets", "B200", "--k", "16", "--rows", "1", "--columns", "1")
    assert word[2:] in "\n".join(answer(capsys, "error", TCGEN05, *given))


def test_the_probe_command(capsys):
    made = answer(capsys, "probe", WGMMA_FP8, "--target", "H100", "--json")
    assert (made["fraction_bits"], made["precision"]) == (13, 14)


# --- several instructions -------------------------------------------------------------------------

BF16 = "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"


def test_several_instructions_are_compared_on_the_targets_that_have_them():
    options = {"k": (64, 128), "rows": 4, "columns": 4, "targets": ["L40S", "H100"]}
    study = error_study([F16, WGMMA_FP8], **options)
    alone = [error_study(F16, **options), error_study(WGMMA_FP8, **options | {"targets": "H100"})]
    assert study.rows == [{"opcode": x.opcode} | row for x in alone for row in x.rows]
    assert list(study._series("rms")) == [
        "mma.m16n8k16.f32.f16.f16.f32, sm_89", "mma.m16n8k16.f32.f16.f16.f32, sm_90a",
        "wgmma.m64n64k32.f32.e4m3.e4m3, sm_90a",
    ]  # fmt: skip
    assert study.data["not_available"] == ["sm_89 (wgmma.m64n64k32.f32.e4m3.e4m3)"]
    assert "opcode,target" in study.csv()
    later = error_study([WGMMA_FP8, F16], **options | {"targets": "L40S"})
    assert {x["opcode"] for x in later.rows} == {F16}
    with pytest.raises(UnsupportedError, match="is not on sm_70"):
        error_study([WGMMA_FP8, BF16], **options | {"targets": "V100"})
    with pytest.raises(OperandError, match="got none"):
        error_study([])


def test_a_target_has_one_colour_in_every_chart():
    def colours(study):
        root = ET.fromstring(study.svg())
        space = "{http://www.w3.org/2000/svg}"
        return [x.get("stroke") for x in root.findall(f"{space}g[@class='line']")]

    options = {"k": (16, 64), "rows": 2, "columns": 2}
    one = colours(error_study(F16, targets="H100", **options))
    both = colours(error_study([F16, BF16], targets=["A100", "H100"], **options))
    assert both[1] == both[3] == one[0] and both[0] == both[2] != one[0]


def test_exact_points_stand_on_the_axis():
    made = line_chart([Line("x", [(16, 0.0), (32, 1e-3)]), Line("y", [(16, 1e-4)])], "t", "k", "e")
    space = "{http://www.w3.org/2000/svg}"
    paths = [x for x in ET.fromstring(made).iter(f"{space}path") if x.get("class") == "zero"]
    assert [x.find(f"{space}title").text for x in paths] == ["x: k = 16, 0: exact"]


def test_a_title_names_the_only_target():
    study = error_study(F16, targets="H100", k=(16, 32), rows=2, columns=2)
    assert study.title == f"Error of {F16} on sm_90a against the exact result"
    assert "the products of a sum" in study.svg()


def test_tables_for_pages_and_papers(capsys):
    study = error_study(F16, targets=["A100", "H100"], k=(16, 32), rows=2, columns=2)
    said, _, table = study.table().partition("\n\n")
    first, rule, *rows = table.splitlines()
    assert first == "| k | sm_80 | sm_90a |" and set(rule) <= set("|- ") and len(rows) == 2
    assert "root mean square of the error" in said and "4 dot products" in said
    latex = study.table("latex").splitlines()
    assert [f"% {line}" for line in said.splitlines()] == latex[: said.count("\n") + 1]
    latex = [line for line in latex if not line.startswith("% ")]
    assert latex[0] == r"\begin{tabular}{lrr}" and latex[-1] == r"\end{tabular}"
    assert latex[2] == r"k & sm\_80 & sm\_90a \\" and len(latex) == 8
    words = ["error", F16, BF16, "--targets", "H100", "--k", "16", "--rows", "2"]
    assert r"\begin{tabular}{lrr}" in answer(capsys, *words, "--table", "latex")


def test_the_instruction_of_libraries_is_named_where_it_is_another():
    fp8 = "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32"
    text = str(error_study(fp8, targets=["L40S", "H100"], k=32, rows=1, columns=1))
    assert "libraries multiply e4m3 on sm_90a with wgmma.mma_async" in text
    assert "on sm_89" not in text
    assert "libraries" not in str(error_study(WGMMA_FP8, targets="H100", k=32, rows=1, columns=1))


def test_a_recipe_says_what_cuts_its_bits_again():
    recipe = Recipe.of(WGMMA_FP8, "H100")
    assert "keeps" not in str(recipe)
    wide = "fraction_bits=30 aligns 31 bits of the largest term; "
    assert wide + "precision=14 keeps 14 of them" in str(recipe.changed(fraction_bits=30))
    free = recipe.changed(fraction_bits=30, precision=None)
    assert wide + "its result, f32, keeps 24 of them" in str(free)
    assert "keeps" not in str(recipe.changed(fraction_bits=23, precision=None))
    last = Recipe.fused(22, result="f32", c_last=True)
    assert "keeps" not in str(last)
    assert "step 3 keeps 11" in str(Recipe((*last.steps[:2], Convert("f16"))))
