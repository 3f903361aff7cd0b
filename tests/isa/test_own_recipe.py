"""`Recipe`: those of targets as numbers, own constants in every engine, and what does not fit."""

import copy
import pickle
from dataclasses import replace

import numpy as np
import pytest
from bits import assert_same_codes
from designed import REGIMES, Case, operands, scales_of
from dots import FAST

import dtypes
from dtypes import FORMATS, add_format, encode
from emulator import (
    Instruction,
    OperandError,
    Recipe,
    UnsupportedError,
    compare,
    explain,
    gemm,
    mma,
)
from emulator.arith import dot, reference
from emulator.arith.recipes import RECIPES, arithmetic_for_row
from emulator.arith.steps import AddC, Clear, FmaChain, FusedDotAdd, PairSums, Widen
from emulator.targets import find_target

pytestmark = pytest.mark.sampled(5)

F16 = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
F16_F16 = "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16"
BF16 = "mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32"
TF32 = "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"
FP8 = "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32"
F64 = "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64"
S8 = "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32"
SPARSE = "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
SCALED = (
    "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X"
    ".f32.e4m3.e4m3.f32.ue8m0"
)
FP4 = (
    "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X"
    ".f32.e2m1.e2m1.f32.ue4m3"
)
WGMMA_FP8 = "wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3"


def tails(count, exponent):
    """1 + `count` products of 2^exponent, in the first element."""
    a, b, c = np.zeros((16, 16), "f2"), np.zeros((16, 8), "f2"), np.zeros((16, 8), "f4")
    a[0, :count], b[:count, 0], c[0, 0] = 2.0 ** (exponent // 2), 2.0 ** -(-exponent // 2), 1
    return a, b, c


def first(recipe, count=8, exponent=-25, opcode=F16):
    return float(mma(opcode, *tails(count, exponent), target=recipe)[0, 0])


# --- the recipes of targets -----------------------------------------------------------------------


def test_constants_of_a_target_are_numbers():
    hopper, ampere = Recipe.of(F16, "H100"), Recipe.of(F16, "A100")
    assert (hopper.sum.fraction_bits, hopper.sum.floor, hopper.sum.run) == (25, -133, 0)
    assert (ampere.sum.fraction_bits, ampere.sum.floor, ampere.sum.run) == (24, -132, 8)
    assert Recipe.of(WGMMA_FP8, "H100").sum.precision == 14


def test_printed_it_shows_every_constant():
    text = str(Recipe.of(FP8, "H100").changed(promote=128, a="e5m2"))
    for words in (
        "1. a and b to f16", "fraction_bits=25", "floor=-133", "result='f32'", "rounding='rz'",
        "run=2", "passes=2", "4. + c in f32", "f32 total every 128", "A is e5m2",
    ):  # fmt: skip
        assert words in text
    assert str(Recipe.of(F16, "A100")).startswith("recipe of sm_80\n")


@pytest.mark.parametrize("opcode", [F16, F16_F16, BF16, TF32, FP8, F64, S8, SPARSE])
@pytest.mark.parametrize("target", ["A100", "L40S", "H100", "B200", "sm_120a"])
def test_the_recipe_of_a_target_computes_what_the_target_does(opcode, target):
    ins = Instruction.parse(opcode)
    if find_target(target).name not in ins.targets:
        return
    recipe = Recipe.of(ins, target)
    rng = np.random.default_rng(7)
    case = Case("", ins.arithmetic(target), ins.k, 0)
    regime = "near" if ins.d_type != "s32" else "any"
    (a, _, _), (_, b, _) = (operands(rng, case, regime, size) for size in (ins.m, ins.n))
    if ins.is_sparse:
        a[:, 2::4], a[:, 3::4] = 0, 0
    given = {"codes": True}
    want = mma(ins, a, b.T.copy(), target=target, **given)
    assert_same_codes(mma(ins, a, b.T.copy(), target=recipe, **given), want)


def test_every_recipe_of_the_table_can_be_read_and_taken_back():
    """Made of the row's steps, and applied to the row's types, it is the row's arithmetic."""
    for row in RECIPES:
        if row.kinds:
            continue
        a = row.a.split()[0]
        stated = arithmetic_for_row(row, a, a, row.c or row.d)
        assert Recipe(row.steps).applied(stated, 256, "it") == stated


def test_evidence_of_an_own_recipe():
    ins = Instruction.parse(F16)
    assert ins.fidelity(Recipe.of(ins, "H100")).level == "your own"
    assert ins.fidelity("H100").level == "validated"


# --- own constants, by hand -----------------------------------------------------------------------


def test_fraction_bits_decide_what_is_cut():
    """Eight products of 2^-25 beside a 1: cut by 24 bits, kept by 25; 1 + 2^-22 is their sum."""
    assert first(Recipe.fused(24)) == 1
    assert first(Recipe.fused(25)) == 1 + 2.0**-22
    assert first(Recipe.of(F16, "H100").changed(fraction_bits=24)) == 1
    assert first(Recipe.fused(22), exponent=-23) == 1
    assert first(Recipe.fused(22), exponent=-22) == 1 + 2.0**-19


def test_rounding_and_precision():
    """1 + 3 * 2^-12 in 11 bits is 1 toward zero, 1 + 2^-10 to nearest and upward."""
    values = {x: first(Recipe.fused(30, rounding=x, precision=11), 3, -12) for x in ROUNDINGS}
    assert values == {"rz": 1, "rn": 1 + 2.0**-10, "rp": 1 + 2.0**-10, "rm": 1}
    assert first(Recipe.fused(30, precision=12), 3, -12) == 1 + 2.0**-11


ROUNDINGS = ("rz", "rn", "rm", "rp")


def test_the_floor():
    """Below an alignment at 2^4 with 8 bits nothing of 2^-5 is left, and all of 2^-4."""
    assert first(Recipe.fused(8, floor=4), 1, -5) == 1
    assert first(Recipe.fused(8, floor=4), 1, -4) == 1 + 2.0**-4
    assert first(Recipe.fused(8, floor=-4), 1, -5) == 1 + 2.0**-5


def test_runs_and_passes():
    """2^-25 sixteen times: each run of 8 is cut to 24 bits beside 1; alone, they add up."""
    a, b, _ = tails(16, -25)
    c = np.zeros((16, 8), "f4")
    a[0, 0], b[0, 0] = 1, 1  # the 1 is a product of the first run
    assert mma(F16, a, b, c, target=Recipe.fused(24))[0, 0] == 1
    # Of two passes dealt runs of 4, the second starts from the first one's 1.
    both = Recipe.fused(24, run=4, passes=2)
    assert mma(F16, a, b, c, target=both)[0, 0] == 1
    last = Recipe.fused(24, run=8, c_last=True)
    c[0, 0] = 1
    a[0, 0], b[0, 0] = a[0, 1], b[1, 0]
    assert mma(F16, a, b, c, target=last)[0, 0] == 1 + 2.0**-21  # C meets the finished sum


def test_result_format():
    assert first(Recipe.fused(30, result="bf16", rounding="rn"), 8, -10) == 1 + 2.0**-7
    assert first(Recipe.fused(60, result="f64"), 8, -25) == 1 + 2.0**-22
    assert mma(F16, *tails(8, -25), target=Recipe.fused(30, result="f16")).dtype == np.float32


def test_multiply_adds_one_by_one():
    """Beside a 1 each 2^-25 is rounded away; what starts at 0 adds up."""
    assert first(Recipe.fma("f32")) == 1
    assert first(Recipe.fma("f64")) == 1 + 2.0**-22
    assert first(Recipe((Widen("f32"), Clear(), FmaChain("f32"), AddC("f32")))) == 1 + 2.0**-22


def test_promotion_is_part_of_a_recipe():
    rng = np.random.default_rng(3)
    a, b = (encode(FORMATS["e4m3"], rng.standard_normal(s)) for s in ((8, 256), (256, 8)))
    options = {"instruction": WGMMA_FP8, "codes": True}
    own = Recipe.of(WGMMA_FP8, "H100").changed(promote=128)
    got = gemm(a, b, target=own, **options)
    assert_same_codes(got, gemm(a, b, target="H100", k_promote=128, **options))
    assert (got != gemm(a, b, target="H100", **options)).any()
    with pytest.raises(OperandError, match="leave k_promote= out"):
        gemm(a, b, target=own, k_promote=64, **options)
    with pytest.raises(OperandError, match="multiple of 32"):
        gemm(a, b, target=own.changed(promote=48), **options)


# --- engines --------------------------------------------------------------------------------------


def random_recipe(rng, ins):
    """Constants anywhere in and beyond the reach of the fast engines."""
    pick = rng.integers
    result = str(rng.choice(["f32", "f32", "f32", "f16", "bf16", "f64"]))
    own = {
        "fraction_bits": int(rng.choice([pick(4, 36), 25, 13, 0, 55, 70])),
        "floor": [None, -133, int(pick(-40, 12)), 120][pick(4)],
        "rounding": str(rng.choice(ROUNDINGS if pick(3) else ["rn" if result == "f16" else "rz"])),
        "precision": [None, int(pick(1, FORMATS[result].precision + 1))][pick(2)],
    }
    if ins.is_block_scaled:
        own |= {"group": int(rng.choice([1, 2, 16]))}
    else:
        own |= {"run": int(rng.choice([0, 2, 3, 4, 8])), "c_last": bool(pick(2))}
        if own["run"] and pick(2):
            own["passes"] = int(pick(1, ins.k // own["run"] + 1))
        if FORMATS[ins.a_type].bits == 8 and pick(2):
            own["widen"] = "f16"
    return Recipe.fused(**own, result=result)


def chains(ins):
    fmt = FORMATS[ins.a_type]
    for name in ("f32", "f64", "bf16", "f16"):
        if fmt.precision <= FORMATS[name].precision and (name != "f16" or fmt.exponent_bits < 8):
            yield Recipe.fma(name)
            yield Recipe((Widen(name), PairSums(name)))


def check_engines(opcode, recipes, size):
    ins = Instruction.parse(opcode)
    for number, recipe in enumerate(recipes):
        arithmetic = ins.arithmetic(recipe)
        case = Case("", arithmetic, ins.k, ins.scale_chunks)
        rng = np.random.default_rng(number)
        drawn = [
            (*operands(rng, case, regime, size), *scales_of(rng, case, regime, size))
            for regime in REGIMES
        ]
        a, b, c, *scales = (np.concatenate(parts) for parts in zip(*drawn, strict=True))
        want = reference.dot(arithmetic, a, b, c, *scales)
        for engine in FAST:
            got = dot(arithmetic, a, b, c, *scales, engine=engine)
            assert_same_codes(got, want, recipe=str(recipe), a=a, b=b, c=c)


def fused_recipes(opcode, count):
    ins, rng = Instruction.parse(opcode), np.random.default_rng(count)
    return [random_recipe(rng, ins) for _ in range(count)]


EACH = [F16, F16_F16, BF16, TF32, FP8, SCALED, FP4]


@pytest.mark.parametrize("opcode", EACH)
def test_engines_agree_on_own_recipes(opcode):
    check_engines(opcode, fused_recipes(opcode, 8), 2)


@pytest.mark.parametrize("opcode", [F16, pytest.param(FP8, marks=pytest.mark.slow), BF16])
def test_engines_agree_on_chains_in_other_formats(opcode):
    check_engines(opcode, chains(Instruction.parse(opcode)), 2)


@pytest.mark.parametrize("opcode", [F16, F16_F16, BF16, FP8])
def test_matrices_are_computed_by_the_recipe(opcode):
    """One matrix, and several at a time, of ordinary numbers, as most are."""
    ins = Instruction.parse(opcode)
    rng = np.random.default_rng(8)
    for recipe in [*fused_recipes(opcode, 6), Recipe.fused(10), Recipe.fused(13, precision=9)]:
        arithmetic = ins.arithmetic(recipe)
        for batch in ((), (3,)):
            a = encode(arithmetic.a, rng.standard_normal((*batch, ins.m, ins.k)))
            b = encode(arithmetic.b, rng.standard_normal((*batch, ins.k, ins.n)))
            c = encode(arithmetic.c, rng.standard_normal((*batch, ins.m, ins.n)))
            want = mma(ins, a, b, c, target=recipe, codes=True, engine="reference")
            for engine in ("auto", *FAST):
                got = mma(ins, a, b, c, target=recipe, codes=True, engine=engine)
                assert_same_codes(got, want, recipe=str(recipe))


@pytest.mark.slow
@pytest.mark.parametrize("opcode", EACH)
def test_engines_agree_on_many_own_recipes(opcode):
    check_engines(opcode, fused_recipes(opcode, 60), 6)


@pytest.mark.parametrize("engine", FAST)
def test_sums_too_wide_for_int64_are_exact(engine):
    """With more bits than int64 has: 2^15 * 2^15 - 2^30 + 2^-48 is 2^-48."""
    a, b = np.zeros((16, 16), "f2"), np.zeros((16, 8), "f2")
    a[0, :3], b[:3, 0] = (2.0**15, -(2.0**15), 2.0**-24), (2.0**15, 2.0**15, 2.0**-24)
    got = mma(F16, a, b, target=Recipe.fused(1000), engine=engine)
    assert got[0, 0] == 2.0**-48
    assert mma(F16, a, b, target=Recipe.fused(60), engine=engine)[0, 0] == 0


def test_a_comparison_of_engines_would_show_a_wrong_constant():
    ins = Instruction.parse(F16)
    right, wrong = (ins.arithmetic(Recipe.fused(bits, precision=14)) for bits in (13, 14))
    rng = np.random.default_rng(0)
    a, b, c = operands(rng, Case("", right, ins.k, 0), "cut", 64)
    assert (reference.dot(right, a, b, c) != dot(wrong, a, b, c, engine="vector")).any()


# --- formats of one's own -------------------------------------------------------------------------


@pytest.fixture
def e3m4():
    known = dict(FORMATS)
    yield add_format("e3m4", 3, 4)
    for name in FORMATS.keys() - known:
        del FORMATS[name]


def test_a_format_of_ones_own_is_a_row_of_the_table(e3m4):
    assert FORMATS["e3m4"] is e3m4 and (e3m4.bits, e3m4.bias, e3m4.emin) == (8, 3, -2)
    assert dtypes.decode_values(e3m4, np.array([0x30, 0x31, 0x01, 0xF0])).tolist() == [
        1, 1.0625, 2.0**-6, -np.inf,
    ]  # fmt: skip
    assert add_format("e3m4", 3, 4) is e3m4
    assert copy.deepcopy(e3m4) is e3m4 and pickle.loads(pickle.dumps(e3m4)) is e3m4


def test_operands_of_ones_own_format(e3m4):
    """17/16 * 17/16 = 289/256 in e3m4, of which e4m3 has nothing."""
    a, b = np.zeros((16, 32), "u1"), np.zeros((32, 8), "u1")
    a[0, 0] = b[0, 0] = 0x31
    recipe = Recipe.of(FP8, "B200").changed(a="e3m4", b="e3m4")
    got = mma(FP8, a, b, target=recipe, codes=True)
    assert got.view("f4")[0, 0] == 289 / 256
    why = explain(FP8, a, b, row=0, col=0, target=recipe, codes=True)
    assert why.data["products"][0]["a"] == {
        "type": "e3m4", "code": "0x31", "value": 1.0625,
        "place": {"operand": "a", "lane": 0, "register": 0, "low_bit": 0, "bits": 8},
    }  # fmt: skip
    add_format("e4m5", 4, 5)
    add_format("e6m9", 6, 9)
    ins = Instruction.parse(FP8)
    for name in ("e3m4", "e4m5", "e6m9"):
        own = Recipe.fused(25, a=name, b=name)
        arithmetic = ins.arithmetic(own)
        rng = np.random.default_rng(4)
        for regime in REGIMES:
            x, y, c = operands(rng, Case("", arithmetic, 32, 0), regime, 4)
            want = reference.dot(arithmetic, x, y, c)
            for engine in FAST:
                assert_same_codes(dot(arithmetic, x, y, c, engine=engine), want)


def test_sums_in_ones_own_format(e3m4):
    """8 products of 2^-10 beside a 1, of which e3m4 keeps 4 bits: to nearest 1, upward 17/16."""
    add_format("e8m3", 8, 3)
    assert first(Recipe.fused(20, result="e8m3", rounding="rn"), 8, -10) == 1
    assert first(Recipe.fused(20, result="e8m3", rounding="rp"), 8, -10) == 1.125


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("f16", 4, 3), "another format"),
        (("E3M4", 3, 4), "a letter, then"),
        ((3, 3, 4), "a letter, then"),
        (("x", 1, 4), "exponent_bits of a format is 2 … 11"),
        (("x", 3, 53), "mantissa_bits of a format is 0 … 52"),
        (("x", 3, True), "mantissa_bits"),
        (("x", 3, 4, True, "fnuz"), "specials is"),
        (("x", 3, 0), "no code is left for NaN"),
    ],
)
def test_formats_that_cannot_be(given, words):
    known = dict(FORMATS)
    with pytest.raises(ValueError, match=words):
        add_format(*given)
    assert known == FORMATS


# --- reports --------------------------------------------------------------------------------------


def test_compare_takes_recipes_among_targets():
    own = Recipe.of(F16, "H100").changed(fraction_bits=24, name="Hopper with 24")
    made = compare(F16, *tails(8, -25), targets=["H100", own])
    assert [x["of"][0]["target"] for x in made.data["results"]] == ["sm_90a", "Hopper with 24"]
    assert made.data["pairs"][0]["why"][0]["aspect"] == "alignment bits"
    assert "your own" in made.text() and "2 ways" in made.text()
    alone = compare(F16, *tails(8, -25), targets=own)
    assert "All 128 elements" in alone.text()


def test_explain_by_a_recipe():
    own = Recipe.of(F16, "H100").changed(result="bf16", rounding="rn")
    why = explain(F16, *tails(8, -10), row=0, col=0, target=own)
    assert why.data["d"]["value"] == 1 + 2.0**-7
    assert why.data["fidelity"]["level"] == "your own"
    assert why.data["target"] == "recipe of sm_90a, result='bf16', rounding='rn'"
    assert "Step 2 of 2: round x to nearest even in f32" in why.text()


# --- what does not fit ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Recipe.fused(-1), "fraction_bits is 0"),
        (lambda: Recipe.fused(2.5), "fraction_bits is 0"),
        (lambda: Recipe.fused("x" * 5000), "fraction_bits is 0"),
        (lambda: Recipe.fused(25, floor=0.5), "floor, where it is not None, is"),
        (lambda: Recipe.fused(25, rounding="up"), "rounding is rz, rn"),
        (lambda: Recipe.fused(25, result="tf32"), "precision=11"),
        (lambda: Recipe.fused(25, result="e4m3"), "is one with infinities"),
        (lambda: Recipe.fused(25, precision=25), "precision is 1 … 24"),
        (lambda: Recipe.fused(25, passes=2), "give run=, too"),
        (lambda: Recipe.fused(25, promote=-1), "promote is 0 … "),
        (lambda: Recipe.fused(25, a="f17"), "nearest is"),
        (lambda: Recipe.fused(25, a="s8"), "of floating point"),
        (lambda: Recipe.fma("e4m3"), "is one with infinities"),
        (lambda: Recipe(()), "one or more steps"),
        (lambda: Recipe(3), "one or more steps"),
        (lambda: Recipe((FusedDotAdd(25, None, "f32", "rz"),), name=3), "is text"),
        (lambda: Recipe((Clear(),)).sum, "one step that multiplies"),
        (lambda: Recipe.fused(25).changed(fracton_bits=3), "nearest is 'fraction_bits'"),
        (lambda: Recipe.of("cvt.rn.f16x2.f32", "H100"), "only instructions that multiply"),
        (lambda: Recipe.of(3, "H100"), "is needed"),
        (lambda: Recipe.of(WGMMA_FP8, "A100"), "not available on sm_80"),
    ],
)
def test_recipes_that_cannot_be(make, words):
    with pytest.raises((OperandError, UnsupportedError), match=words) as caught:
        make()
    assert len(str(caught.value)) < 700


@pytest.mark.parametrize(
    ("opcode", "recipe", "words"),
    [
        (S8, Recipe.fused(25), "computes integers"),
        (F16, Recipe.of(S8, "H100"), "computes floating point"),
        (F16, Recipe((FmaChain("f32"),)), "comes first"),
        (TF32, Recipe.fused(25, widen="f16"), "f16 does not hold every number of tf32"),
        (F16, Recipe.fused(25, group=2), "block-scaled"),
        (F16, Recipe.fused(25, run=8, passes=3), "k = 24 or more"),
        (SCALED, Recipe.fused(25, group=3), "multiple of it"),
        (SCALED, Recipe.fma("f32"), "has block scales"),
    ],
)
def test_recipes_that_do_not_suit_an_instruction(opcode, recipe, words):
    with pytest.raises(OperandError, match=words):
        Instruction.parse(opcode).arithmetic(recipe)


def test_a_recipe_is_a_value():
    assert Recipe.fused(25) == Recipe.fused(25) != Recipe.fused(24)
    assert len({Recipe.fused(25), Recipe.fused(25)}) == 1
    assert replace(Recipe.fused(25), name="x").name == "x"
    assert Recipe.of(F16, Recipe.fused(3)) == Recipe.fused(3)
    assert len(Recipe.fused(25, name="x" * 5000).name) == 120
