"""What ptxas contracts, run: codes of every kind of rewritten statement, and where none may be."""

import itertools

import numpy as np
import pytest
from bits import assert_same_codes
from straight import cases, kernel, run
from words import boundary_words

from emulator import Instruction, Module, OperandError, UnsupportedError
from emulator.arith.scalar import TYPES, bind_reference, bind_vector

pytestmark = pytest.mark.sampled(10)

FLOATS = ("f32", "f64", "f16", "bf16", "f16x2", "bf16x2")


def rule(opcode, *sources, **options):
    """Words of an ordinary instruction, by its rule."""
    return bind_vector(Instruction.parse(opcode), **options)(*sources)


def flipped(type_, words):
    """The other sign, of every element; a NaN of f64 keeps its own."""
    t = TYPES[type_]
    mask = sum(t.format.sign_mask << shift for shift in range(0, t.size, t.bits))
    out = words ^ t.dtype.type(mask)
    return np.where(np.isnan(words.view(np.float64)), words, out) if type_ == "f64" else out


# --- fused additions ------------------------------------------------------------------------------

#: statements after ``t = a * b``: which of the product and of c change their sign
SUMS = {
    "add.{} d, t, c;": (False, False),
    "add.{} d, c, t;": (False, False),
    "sub.{} d, t, c;": (False, True),
    "sub.{} d, c, t;": (True, False),
    "neg.{} u, t; add.{} d, u, c;": (True, False),
    "neg.{} u, t; sub.{} d, c, u;": (False, False),
    "mov.b{bits} u, t; add.{} d, u, c;": (False, False),
}


@pytest.mark.parametrize("type_", FLOATS)
@pytest.mark.parametrize("sum_", SUMS)
def test_a_sum_takes_its_product_unrounded(type_, sum_):
    if type_ == "bf16x2" and "neg" in sum_:
        pytest.skip("ptxas takes neg.bf16x2 for an instruction of its own: next test")
    a, b, c = cases(type_)
    bits = TYPES[type_].size
    body = f"mul.{type_} t, a, b; " + sum_.replace("{bits}", str(bits)).replace("{}", type_)
    product, addend = SUMS[sum_]
    fused = rule(
        f"fma.rn.{type_}", flipped(type_, a) if product else a, b,
        flipped(type_, c) if addend else c,
    )  # fmt: skip
    assert_same_codes(run(type_, body, (a, b, c)), fused, a=a, b=b, c=c)
    apart = rule(f"mul.rn.{type_}", a, b)
    if "neg" in sum_:
        apart = rule(f"neg.{type_}", apart)
    last = sum_.split(";")[-2].split()
    sides = (apart, c) if last[2] in ("t,", "u,") else (c, apart)
    rounded = rule(last[0].replace("{}", f"rn.{type_}"), *sides)
    found = run(type_, body, (a, b, c), "none")
    if type_ == "f64":
        # which of two NaNs is returned is a test of its own
        nan = np.isnan(rounded.view(np.float64))
        assert np.isnan(found[nan].view(np.float64)).all()
        found[nan] = rounded[nan]
    assert_same_codes(found, rounded, a=a, b=b, c=c)
    assert (fused != rounded).sum() > 30


@pytest.mark.parametrize(
    "statements",
    [
        "mul.rn.f32 t, a, b; add.f32 d, t, c;",
        "mul.f32 t, a, b; add.rn.f32 d, t, c;",
        "mul.sat.f32 t, a, b; add.f32 d, t, c;",
        "mul.ftz.f32 t, a, b; add.f32 d, t, c;",
        "mul.f32 t, a, b; add.ftz.f32 d, t, c;",
        "mul.f32 t, a, b; add.f32 d, t, t;",
        "mul.f32 t, a, b; add.f32 d, t, c; st.global.f32 [r0], t;",
        "mul.f32 t, a, b; max.f32 u, t, a; add.f32 d, t, u;",
        "mul.f32 t, a, b; bar.sync 0; setp.gt.f32 p, a, b; @p bra L; add.f32 d, t, c; L:",
        "setp.gt.f32 p, a, b; mov.f32 t, c; @p mul.f32 t, a, b; add.f32 d, t, c;",
    ],
)
def test_what_is_not_fused(statements):
    sources = cases("f32")
    assert not kernel("f32", statements).contracted
    together = [run("f32", statements, sources, contract) for contract in ("ptxas", "none")]
    assert_same_codes(*together)


def test_modifiers_of_the_sum_are_those_of_the_fused_one():
    a, b, c = cases("f32")
    sat = run("f32", "mul.f32 t, a, b; sub.sat.f32 d, c, t;", (a, b, c))
    assert_same_codes(sat, rule("fma.rn.sat.f32", flipped("f32", a), b, c))
    ftz = run("f32", "mul.ftz.f32 t, a, b; add.ftz.f32 d, c, t;", (a, b, c))
    assert_same_codes(ftz, rule("fma.rn.ftz.f32", a, b, c))
    assert (ftz != rule("fma.rn.f32", a, b, c)).any()


def test_a_square_is_fused_behind_abs():
    a, b, c = cases("f32")
    for sign in ("", "neg.f32 t, t; "):
        body = f"mul.f32 t, a, a; {sign}abs.f32 u, t; mov.f32 a, b; sub.f32 d, c, u;"
        expected = rule("fma.rn.f32", flipped("f32", a), a, c)
        assert_same_codes(run("f32", body, (a, b, c)), expected)
    for other in ("mul.f32 t, a, b; abs.f32 u, t; ", "mul.f32 t, a, a; abs.ftz.f32 u, t; "):
        assert not kernel("f32", other + "add.f32 d, u, c;").contracted


def test_several_sums_of_one_product():
    a, b, c = cases("f32")
    body = "mul.f32 t, a, b; add.f32 u, t, c; sub.f32 v, t, a; mul.rn.f32 d, u, v;"
    first = rule("fma.rn.f32", a, b, c)
    second = rule("fma.rn.f32", a, b, flipped("f32", a))
    assert_same_codes(run("f32", body, (a, b, c)), rule("mul.rn.f32", first, second))


def test_a_sum_of_two_products_takes_the_one_with_a_single_use():
    a, b, c = cases("f32")
    body = "mul.f32 t, a, b; mul.f32 u, b, c; add.f32 d, t, u;"
    second = rule("mul.f32", b, c)
    assert_same_codes(run("f32", body, (a, b, c)), rule("fma.rn.f32", a, b, second))
    body += " add.f32 v, t, a; st.global.f32 [r0], v;"
    product = rule("mul.f32", a, b)
    assert_same_codes(run("f32", body, (a, b, c)), rule("fma.rn.f32", b, c, product))


# --- factors that are overwritten -----------------------------------------------------------------

OVERWRITTEN = {
    "between": "mul.f32 t, a, b; mov.f32 a, 0f3F000000; mov.f32 b, a; add.f32 d, t, c;",
    "by the product": "mul.f32 a, a, b; add.f32 d, a, c;",
    "by the sum": "mul.f32 d, a, b; add.f32 d, d, c;",
    "by a load": "mul.f32 t, a, b; ld.global.f32 a, [r1]; ld.global.f32 b, [r1]; add.f32 d, t, c;",
    "by a pair": "mul.f32 t, a, b; mov.b64 {a, b}, r1; add.f32 d, t, c;",
}


@pytest.mark.parametrize("how", OVERWRITTEN)
def test_factors_are_those_of_the_multiplication(how):
    a, b, c = cases("f32")
    assert_same_codes(run("f32", OVERWRITTEN[how], (a, b, c)), rule("fma.rn.f32", a, b, c))


def test_a_guarded_sum_is_fused_where_it_runs():
    a, b, c = cases("f32")
    body = "setp.lt.f32 p, a, c; mul.f32 t, a, b; mov.f32 a, 0f00000000; @{}p add.f32 d, t, c;"
    holds = rule("setp.lt.f32", a, c)[0]
    fused = rule("fma.rn.f32", a, b, c)
    assert_same_codes(run("f32", body.format(""), (a, b, c)), np.where(holds, fused, a))
    assert_same_codes(run("f32", body.format("!"), (a, b, c)), np.where(holds, a, fused))


def test_a_guard_may_overwrite_a_factor():
    a, b, c = cases("f32")
    body = (
        "setp.lt.f32 p, a, c; mul.f32 t, a, b; @p mov.f32 a, c; @!p mov.f32 b, c; add.f32 d, t, c;"
    )
    assert_same_codes(run("f32", body, (a, b, c)), rule("fma.rn.f32", a, b, c))


#: 3 in f32
THREE = 0x40400000


def test_a_product_with_a_constant_is_fused_behind_a_branch():
    """And takes the factor of before the branch, which some lanes overwrite on their way."""
    a, b, c = cases("f32")
    body = """mul.f32 t, a, 0f40400000; setp.lt.f32 p, b, c; @p bra ELSE; mov.f32 a, c; bra DONE;
        ELSE: mov.f32 a, 0f3F800000; DONE: add.f32 d, t, b;"""
    assert_same_codes(run("f32", body, (a, b, c)), rule("fma.rn.f32", a, np.uint32(THREE), b))


@pytest.mark.parametrize(
    ("body", "factor"),
    [  # what ptxas 13.0 and 13.5 multiply by; None: they convert in front of the branch
        ("cvt.rn.bf16.f32 h, 0f40533333; cvt.f32.bf16 mine, h;", 0x40530000),
        ("cvt.rn.f16.f32 h, 0fC0533333; cvt.f32.f16 mine, h;", 0xC0534000),
        ("mov.b16 h, 0xC100; cvt.f32.f16 mine, h;", 0xC0200000),
        ("cvt.rn.f32.u8 mine, 0x1F9;", 0x43790000),
        ("mov.b16 h, -7; cvt.rn.f32.s16 mine, h;", 0xC0E00000),
        ("cvt.rn.f32.u32 mine, 0xFFFFFFF9;", 0x4F800000),
        ("cvt.rn.f32.s32 mine, -7;", 0xC0E00000),
        ("cvt.rn.f32.s64 mine, -7;", None),
        ("cvt.rz.bf16.f32 h, 0f40533333; cvt.f32.bf16 mine, h;", None),
    ],
)  # fmt: skip
def test_a_product_with_a_converted_constant(body, factor):
    a, b, c = cases("f32")
    body = f""".reg .b16 h; .reg .f32 mine; {body} mul.f32 t, a, mine;
        setp.lt.f32 p, b, c; @p bra ELSE; mov.f32 a, c; bra DONE;
        ELSE: mov.f32 a, 0f3F800000; DONE: add.f32 d, t, b;"""
    contract = "ptxas" if factor else "none"
    made = run("f32", body, (a, b, c))
    assert_same_codes(made, run("f32", body, (a, b, c), contract))
    if factor:
        assert_same_codes(made, rule("fma.rn.f32", a, np.uint32(factor), b))


def test_a_product_with_a_constant_is_fused_in_a_loop():
    """Lanes go round differently often, and each round overwrites the factor."""
    a, b, c = cases("f32")
    body = """mov.f32 d, c; mul.f32 t, a, 0f40400000; and.b32 n, i, 3;
        LOOP: mov.f32 a, b; add.f32 d, t, d; sub.u32 n, n, 1; setp.ge.s32 p, n, 0; @p bra LOOP;"""
    expected = c
    rounds = np.arange(len(a)) % 4 + 1
    for turn in range(4):
        more = rule("fma.rn.f32", a, np.uint32(THREE), expected)
        expected = np.where(rounds > turn, more, expected)
    assert_same_codes(run("f32", body, (a, b, c)), expected)
    with pytest.raises(AssertionError):
        assert_same_codes(run("f32", body, (a, b, c), "none"), expected)


def test_a_product_of_every_round_is_that_rounds():
    """The factors change from round to round, behind the multiplication."""
    a, b, c = cases("f32")
    body = """mov.f32 d, c; mov.u32 n, 2;
        LOOP: mul.f32 t, a, b; mov.f32 u, a; mov.f32 a, b; mov.f32 b, u; neg.f32 b, b;
        add.f32 d, d, t; sub.u32 n, n, 1; setp.ge.s32 p, n, 0; @p bra LOOP;"""
    one, two, expected = a, b, c
    for _ in range(3):
        expected = rule("fma.rn.f32", one, two, expected)
        one, two = two, rule("neg.f32", one)
    assert_same_codes(run("f32", body, (a, b, c)), expected)


def test_device_functions_are_contracted_by_themselves():
    before = """.func (.reg .f32 r) fused(.reg .f32 x, .reg .f32 y, .reg .f32 z)
        { .reg .f32 t; mul.f32 t, x, y; mov.f32 x, 0f00000000; add.f32 r, t, z; ret; }"""
    a, b, c = cases("f32")
    body = "call (d), fused, (a, b, c);"
    assert_same_codes(run("f32", body, (a, b, c), before=before), rule("fma.rn.f32", a, b, c))
    (found,) = kernel("f32", body, before=before).contracted
    assert found.opcode == "add.f32" and found.line == found.multiplication


# --- quotients ------------------------------------------------------------------------------------


@pytest.mark.parametrize("opcode", ["div.full.f32", "div.full.ftz.f32", "div.approx.f32"])
def test_the_last_product_of_a_quotient_is_fused(opcode):
    a, b, c = cases("f32")
    ftz = ".ftz" * ("ftz" in opcode)
    body = f"{opcode} t, a, b; mov.f32 a, c; add{ftz}.f32 d, t, c;"
    reciprocal, scaled = rule(opcode, a, b, factors="factors")
    expected = rule(f"fma.rn{ftz}.f32", reciprocal, scaled, c)
    assert_same_codes(run("f32", body, (a, b, c)), expected, a=a, b=b, c=c)
    apart = rule(f"add{ftz}.f32", rule(opcode, a, b), c)
    assert_same_codes(run("f32", body, (a, b, c), "none"), apart)
    assert (apart != expected).any()


def test_the_last_product_of_a_reciprocal_is_fused():
    a, b, c = cases("f32")
    body = "rcp.approx.f32 t, a; sub.f32 d, c, t;"
    scale, reciprocal = rule("rcp.approx.f32", a, factors="factors")
    expected = rule("fma.rn.f32", flipped("f32", scale), reciprocal, c)
    assert_same_codes(run("f32", body, (a, b, c)), expected)


@pytest.mark.parametrize(
    ("divisor", "exponent"),
    [(0x40400000, 0), (0x7F000001, -2), (0x00000003, 24), (0x80400000, 24), (0xC0A00000, 0)],
)
@pytest.mark.parametrize("contract", ["ptxas", "none"])
def test_a_constant_divisor_becomes_a_factor(divisor, exponent, contract):
    """Whatever is contracted: 1/y rounded to nearest, of y and x scaled as the division does it."""
    a, b, c = cases("f32")
    value = np.array([divisor], np.uint32).view(np.float32).astype(np.float64) * 2.0**exponent
    factor = (1 / value).astype(np.float32).view(np.uint32)
    numerator = rule("mul.rn.f32", a, np.float32(2.0**exponent).view(np.uint32))
    body = f"div.full.f32 d, a, 0f{divisor:08X};"
    assert_same_codes(
        run("f32", body, (a, b, c), contract), rule("mul.rn.f32", numerator, factor), a=a
    )
    (found,) = kernel("f32", body).contracted
    assert found.kind == "reciprocal"


@pytest.mark.parametrize(("divisor", "exponent"), [(0x40400000, 0), (0x00000003, 24)])
def test_a_constant_divisor_is_fused(divisor, exponent):
    a, b, c = cases("f32")
    value = np.array([divisor], np.uint32).view(np.float32).astype(np.float64) * 2.0**exponent
    factor = (1 / value).astype(np.float32).view(np.uint32)
    numerator = rule("mul.rn.f32", a, np.float32(2.0**exponent).view(np.uint32))
    body = f"div.full.f32 t, a, 0f{divisor:08X}; mov.f32 a, c; add.f32 d, t, c;"
    expected = rule("fma.rn.f32", numerator, factor, c)
    assert_same_codes(run("f32", body, (a, b, c)), expected, a=a)


# --- copies and scaled products -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statements", "expected"),
    [
        ("mul.f32 d, a, 0f3F800000;", "mov.f32"),
        ("mul.f32 d, 0f3F800000, a;", "mov.f32"),
        ("mul.f32 d, a, 0fBF800000;", "neg.f32"),
        ("mul.f32 t, a, 0f40000000; sub.f32 d, t, a;", "mov.f32"),
        ("mul.f32 t, a, 0f40000000; sub.f32 d, a, t;", "neg.f32"),
        ("mul.f64 d, a, 0d3FF0000000000000;", "mov.f64"),
        ("mul.f64 d, a, 0dBFF0000000000000;", "neg.f64"),
    ],
)
def test_what_becomes_a_copy(statements, expected):
    type_ = expected[-3:]
    sources = cases(type_)
    found = run(type_, statements, sources)
    assert_same_codes(found, rule(expected, sources[0]))
    if expected.startswith("mov"):
        # infinities that would cancel, and payloads of NaN
        assert (found != run(type_, statements, sources, "none")).any()


def test_a_flush_remains_of_a_multiplication_by_one():
    a, b, c = cases("f32")
    body = "mul.ftz.f32 d, a, 0f3F800000;"
    assert_same_codes(run("f32", body, (a, b, c)), rule("mul.ftz.f32", a, np.uint32(0x3F800000)))


@pytest.mark.parametrize(
    ("factor", "exponent"),
    [(0x3E800000, -2), (0x3F000000, -1), (0x40000000, 1), (0x40800000, 2), (0x41000000, 3)],
)
@pytest.mark.parametrize("modifier", ["", ".ftz", ".sat"])
def test_a_power_of_two_scales_a_product_before_it_is_rounded(factor, exponent, modifier):
    a, b, c = cases("f32")
    first = modifier.replace(".sat", "")
    body = f"mul{first}.f32 t, a, b; mov.f32 a, c; mul{modifier}.f32 d, t, 0f{factor:08X};"
    found = run("f32", body, (a, b, c))
    expected = rule(f"mul{modifier}.f32", a, b, exponent=str(exponent))
    assert_same_codes(found, expected, a=a, b=b)
    apart = run("f32", body, (a, b, c), "none")
    twice = rule(f"mul{modifier}.f32", rule(f"mul{first}.f32", a, b), np.uint32(factor))
    assert_same_codes(apart, twice)
    if modifier == "":
        with np.errstate(all="ignore"):
            x, y = (words.view(np.float32).astype(np.float64) for words in (a, b))
            once = (x * y * 2.0**exponent).astype(np.float32)
        exact = np.where(np.isnan(once), np.uint32(0x7FFFFFFF), once.view(np.uint32))
        assert_same_codes(found, exact)
        assert (found != apart).any()


def test_a_product_is_scaled_with_the_flush_of_the_second_multiplication():
    a, b, c = cases("f32")
    for first, second in (("", ".ftz"), (".ftz", "")):
        body = f"mul{first}.f32 t, a, b; mul{second}.f32 d, t, 0f40000000;"
        expected = rule(f"mul{second}.f32", a, b, exponent="1")
        assert_same_codes(run("f32", body, (a, b, c)), expected)


def scaled_differences(opcode):
    """Words where the two statements of the rule of a scaled product differ."""
    ins = Instruction.parse(opcode)
    words = boundary_words("f32")[::2]
    pairs = np.array(list(itertools.product(words, words)), np.uint32).T
    out = 0
    for exponent in ("-2", "-1", "1", "2", "3"):
        array = bind_vector(ins, exponent=exponent)(*pairs)
        one = bind_reference(ins, exponent=exponent)
        out += sum(one(a, b) != d for a, b, d in zip(*pairs.tolist(), array.tolist(), strict=True))
    return out


@pytest.mark.parametrize("opcode", ["mul.f32", "mul.ftz.f32", "mul.sat.f32", "mul.ftz.sat.f32"])
def test_both_statements_of_a_scaled_product(opcode):
    assert scaled_differences(opcode) == 0


def test_a_scaled_product_that_is_rounded_twice_is_noticed(monkeypatch):
    from emulator.arith.scalar import rounded

    def twice(w, t, product, rounding, ftz):
        return rounded.nearest(w, t, np.float16(product).astype(np.float64))

    monkeypatch.setattr(rounded, "narrowed", twice)
    assert scaled_differences("mul.f32")


@pytest.mark.parametrize("contract", ["ptxas", "none"])
@pytest.mark.parametrize("type_", ["f32", "f16"])
def test_a_clamp_is_a_saturation(type_, contract):
    """So a NaN gives 0, where min(NaN, 1) is 1; and a zero is positive."""
    sources = cases(type_)
    one, zero, minus = ("0f3F800000", "0f00000000", "0f80000000") if type_ == "f32" else "uvt"
    ready = "" if type_ == "f32" else "mov.b16 u, 0x3C00; mov.b16 v, 0; mov.b16 t, 0x8000; "
    expected = rule(f"add.sat.{type_}", sources[0], np.zeros(1, sources[0].dtype))
    for low in (zero, minus):
        for body in (
            f"min.{type_} b, a, {one}; max.{type_} d, b, {low};",
            f"min.{type_} a, {one}, a; max.{type_} d, {low}, a;",
            f"max.{type_} b, a, {low}; mov.b{TYPES[type_].bits} a, c; min.{type_} d, {one}, b;",
        ):
            assert_same_codes(run(type_, ready + body, sources, contract), expected)
            (found,) = kernel(type_, ready + body).contracted
            assert found.kind == "saturated"
    word = 0x3F800000 if type_ == "f32" else 0x3C00
    apart = rule(f"min.{type_}", sources[0], np.array([word], sources[0].dtype))
    apart = rule(f"max.{type_}", apart, np.zeros(1, sources[0].dtype))
    assert (apart != expected).any()


EX2, RCP = "ex2.approx.ftz.f32", "rcp.approx.ftz.f32"


@pytest.mark.parametrize("contract", ["ptxas", "none"])
@pytest.mark.parametrize(
    ("body", "functions"),
    [
        (f"{EX2} t, a; {RCP} d, t;", (EX2, "neg.f32")),
        (f"{EX2} t, a; mov.b32 b, t; mov.f32 a, c; {RCP} d, b;", (EX2, "neg.f32")),
        (f"{RCP} a, a; {RCP} d, a;", ("mov.b32",)),
        (f"{RCP} t, a; {RCP} d, t; max.f32 b, t, c;", ("mov.b32",)),
        (f"{EX2} t, a; {RCP} t, t; {RCP} d, t;", (EX2,)),
        # What stays as it is: other uses, a change of sign, one that does not flush.
        (f"{EX2} t, a; {RCP} d, t; st.local.f32 [mine], t;", (RCP, EX2)),
        (f"{EX2} t, a; neg.f32 t, t; {RCP} d, t;", (RCP, "neg.f32", EX2)),
        (f"{RCP} t, a; neg.ftz.f32 t, t; {RCP} d, t;", (RCP, "neg.ftz.f32", RCP)),
        (f"ex2.approx.f32 t, a; {RCP} d, t;", (RCP, "ex2.approx.f32")),
        (f"{EX2} t, a; rcp.approx.f32 d, t;", ("rcp.approx.f32", EX2)),
    ],
)
def test_reciprocals_of_reciprocals_and_of_powers(body, functions, contract):
    """An H200 gives 0x42d86931 for a power of which the reciprocal would be 0x42d86932."""
    a, b, c = cases("f32")
    expected = a
    for opcode in reversed(functions):
        expected = expected if opcode == "mov.b32" else rule(opcode, expected)
    ready = ".local .align 4 .b8 mine[4]; " if "local" in body else ""
    assert_same_codes(run("f32", ready + body, (a, b, c), contract), expected)


DIV = "div.approx.ftz.f32"


@pytest.mark.parametrize(
    ("body", "functions"),
    [
        (f"{EX2} t, a; {DIV} d, c, t;", (EX2, "neg.f32")),
        (f"{EX2} t, a; mov.b32 b, t; mov.f32 a, c; {DIV} d, a, b;", (EX2, "neg.f32")),
        (f"{RCP} t, a; {DIV} d, c, t;", ()),
        (f"{RCP} t, a; {DIV} d, c, t; {DIV} b, b, t;", ()),
        # What stays as it is: two divisions by one power, the power as numerator, other divisions.
        (f"{EX2} t, a; {DIV} d, c, t; {DIV} b, b, t; st.local.f32 [mine], b;", (RCP, EX2)),
        (f"{EX2} t, a; {DIV} d, c, t; st.local.f32 [mine], t;", (RCP, EX2)),
        (f"{RCP} t, a; neg.ftz.f32 t, t; {DIV} d, c, t;", (RCP, "neg.ftz.f32", RCP)),
        (f"lg2.approx.ftz.f32 t, a; {DIV} d, c, t;", (RCP, "lg2.approx.ftz.f32")),
    ],
)
@pytest.mark.parametrize("added", [False, True])
def test_divisions_by_reciprocals_and_by_powers(body, functions, added):
    """Read off ptxas 13.0: FMUL and FFMA of what takes the reciprocal's place."""
    a, b, c = cases("f32")
    factor = a
    for opcode in reversed(functions):
        factor = rule(opcode, factor)
    ready = ".local .align 4 .b8 mine[4]; " if "local" in body else ""
    if not added:
        expected = rule("mul.ftz.f32", c, factor)
        for contract in ("ptxas", "none"):
            assert_same_codes(run("f32", ready + body, (a, b, c), contract), expected)
    elif "b," not in body:
        expected = rule("fma.rn.ftz.f32", c, factor, b)
        assert_same_codes(run("f32", f"{ready}{body} add.ftz.f32 d, d, b;", (a, b, c)), expected)


@pytest.mark.parametrize("inner", ["", ".ftz"])
@pytest.mark.parametrize("outer", ["", ".ftz"])
def test_a_clamp_of_a_clamp_is_one_saturation(inner, outer):
    a, b, c = cases("f32")
    body = f"""min.f32 t, a, 0f3F800000; max{inner}.f32 t, t, 0f00000000; mov.f32 a, c;
        min{outer}.f32 d, t, 0f3F800000;"""
    expected = rule(f"add{outer or inner}.sat.f32", a, np.zeros(1, np.uint32))
    assert_same_codes(run("f32", body, (a, b, c)), expected)


@pytest.mark.parametrize(
    "body",
    [
        "min.NaN.f32 b, a, 0f3F800000; max.NaN.f32 d, b, 0f00000000;",
        "min.f32 b, a, 0f40000000; max.f32 d, b, 0f00000000;",
        "min.f32 b, a, 0f3F800000; neg.f32 b, b; max.f32 d, b, 0f00000000;",
        "min.f32 b, a, 0f3F800000; min.f32 d, b, 0f3F800000;",
    ],
)
def test_what_is_no_saturation(body):
    assert not kernel("f32", body).contracted


# --- f32x2 ----------------------------------------------------------------------------------------


def halves(words):
    return (words & np.uint64(0xFFFFFFFF)).astype(np.uint32), (words >> np.uint64(32)).astype(
        np.uint32
    )


def packed(low, high):
    return low.astype(np.uint64) | high.astype(np.uint64) << np.uint64(32)


@pytest.mark.parametrize("target", ["sm_100a", "sm_120a"])
@pytest.mark.parametrize("sub", [False, True])
def test_f32x2_is_fused_in_both_halves(target, sub):
    a, b, c = cases("f32x2")
    body = f"mul.f32x2 t, a, b; mov.b64 a, c; {'sub' if sub else 'add'}.f32x2 d, c, t;"
    one = [flipped("f32", x) if sub else x for x in halves(a)]
    low, high = (
        rule("fma.rn.f32", x, y, z) for x, y, z in zip(one, halves(b), halves(c), strict=True)
    )
    assert_same_codes(run("f32x2", body, (a, b, c), target=target), packed(low, high))
    assert {found.half for found in kernel("f32x2", body, target).contracted} == {""}


def test_halves_of_f32x2_become_different_things():
    """Where the chip has no f32x2: here only the low half of the product is added alone."""
    a, b, c = cases("f32x2")
    body = """mul.f32x2 t, a, b; mov.b64 {f0, f1}, t; mov.b64 {f2, f3}, c;
        add.f32 f0, f0, f2; max.f32 f1, f1, f3; mov.b64 d, {f0, f1};"""
    (a0, a1), (b0, b1), (c0, c1) = halves(a), halves(b), halves(c)
    expected = packed(rule("fma.rn.f32", a0, b0, c0), rule("max.f32", rule("mul.f32", a1, b1), c1))
    assert_same_codes(run("f32x2", body, (a, b, c), target="sm_120a"), expected)
    body = """mul.f32x2 t, a, b; mov.b64 {f0, f1}, t; st.global.f32 [r0], f1; add.f32x2 d, c, t;"""
    expected = packed(rule("fma.rn.f32", a0, b0, c0), rule("add.f32", rule("mul.f32", a1, b1), c1))
    assert_same_codes(run("f32x2", body, (a, b, c), target="sm_120a"), expected)
    (found,) = kernel("f32x2", body, "sm_120a").contracted
    assert found.half == "low" and "(low half)" in str(found)


def test_a_half_of_f32x2_that_is_multiplied_by_one_is_copied():
    a, b, c = cases("f32x2")
    body = """mov.f32 f0, 0f3F800000; mov.f32 f1, 0fC0000000; mov.b64 t, {f0, f1};
        mul.f32x2 d, a, t;"""
    (a0, a1) = halves(a)
    expected = packed(a0, rule("mul.f32", a1, np.uint32(0xC0000000)))
    assert_same_codes(run("f32x2", body, (a, b, c), target="sm_120a"), expected)


# --- NaNs of f64 ----------------------------------------------------------------------------------


def test_the_operand_of_f64_that_was_defined_first_comes_first():
    """Of two NaNs the second operand's is returned: that of b, which is loaded after a."""
    words = [0x7FF8000000000001, 0xFFF8000000000002, 0x7FF0000000000003]
    a = np.array(words, np.uint64)
    b, c = np.roll(a, 1), np.roll(a, 2)
    quiet = np.uint64(1 << 51)
    for body in (
        "add.f64 d, a, b;", "add.f64 d, b, a;", "mul.f64 d, a, b;", "mul.f64 d, b, a;",
        "sub.f64 d, a, b;", "sub.f64 d, b, a;", "fma.rn.f64 d, a, b, c;", "fma.rn.f64 d, b, a, c;",
        "mul.f64 t, a, b; add.f64 d, t, c;", "mul.f64 t, b, a; add.f64 d, c, t;",
    ):  # fmt: skip
        for contract in ("ptxas", "none"):
            assert_same_codes(run("f64", body, (a, b, c), contract), b | quiet)


@pytest.mark.parametrize(
    "before, wins",
    {
        "add.f64 u, b, b; neg.f64 t, a;": "b",
        "add.f64 u, b, b; abs.f64 t, a;": "b",
        "add.f64 t, a, a; add.f64 u, b, b;": "b",
        "mov.f64 t, a; @p bra L; add.f64 t, a, a; L: add.f64 u, b, b;": "a",
        "mov.f64 t, a; mov.f64 u, b; @p bra L; add.f64 u, b, b; add.f64 t, a, a; L:": "a",
        "add.f64 t, a, a; @p add.f64 t, a, a; add.f64 u, b, b;": "a",
        "selp.f64 t, a, a, p; add.f64 u, b, b;": "a",
        "selp.f64 t, a, a, p; add.f64 u, b, b; min.f64 v, t, t;": "b",
        "or.b64 t, a, 0; add.f64 u, b, b;": "a",
        "div.rn.f64 t, a, 0d3FF0000000000000; add.f64 u, b, b;": "a",
        "rcp.approx.ftz.f64 t, a; add.f64 u, b, b;": "b",
    }.items(),
)
def test_which_of_two_values_ptxas_has_first(before, wins):
    """As machine code of ptxas 13.0 has them: the second one's NaN is returned."""
    a, b = (np.array([word], np.uint64) for word in (0x7FF8000000000001, 0x7FF8000000000002))
    expected = {"a": a, "b": b}[wins]
    for last in ("mul.f64 d, t, u;", "mul.f64 d, u, t;", "add.f64 d, t, u;"):
        found = run("f64", f"setp.ne.u32 p, i, 0; {before} {last}", (a, b, a))
        assert_same_codes(found, expected)


def test_exchanged_operands_of_a_subtraction_keep_its_sign():
    a, b, c = cases("f64")
    ordinary = np.isfinite(a.view(np.float64)) & np.isfinite(b.view(np.float64))
    found = run("f64", "sub.f64 d, b, a;", (a, b, c), "none")
    assert_same_codes(found[ordinary], rule("sub.f64", b, a)[ordinary])


# --- what is said about it ------------------------------------------------------------------------

TEXT = """.version 8.8
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 p)
{
    .reg .f32 %f<8>; .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [p];
    ld.global.f32 %f1, [%rd1];
    mul.f32 %f2, %f1, %f1;
    add.f32 %f3, %f2, %f1;
    mul.f32 %f4, %f3, 0f3F800000;
    mul.f32 %f5, %f4, %f1;
    mul.f32 %f6, %f5, 0f40000000;
    div.full.f32 %f7, %f6, 0f40400000;
    st.global.f32 [%rd1], %f7;
    ret;
}
"""


def test_contracted_says_what_and_where():
    found = Module(TEXT)["k"].contracted
    assert [str(one) for one in found] == [
        "line 10, column 5: add.f32 takes the product of line 9 unrounded",
        "line 11, column 5: mul.f32 returns an operand, or its negative, unchanged",
        "line 13, column 5: mul.f32 scales the product of line 12 before it is rounded",
        "line 14, column 5: div.full.f32 multiplies by the reciprocal of its divisor, "
        "rounded to nearest",
    ]
    assert found[0][:5] == (10, 5, "add.f32", 9, "fused")


def test_contract_is_one_of_three():
    words = np.zeros(1, np.uint32)
    for wrong in ("ptx", "fast", True, 1, ["ptxas"]):
        with pytest.raises(OperandError, match="contract is one of ptxas, none, O0; got "):
            Module(TEXT)["k"].launch(1, 1, [words], contract=wrong)


def test_a_kernel_with_problems_says_so():
    text = TEXT.replace("ret;", "frobnicate.b32 %f1, %f2; ret;")
    with pytest.raises(UnsupportedError, match="cannot run"):
        _ = Module(text)["k"].contracted


def test_launches_of_both_kinds_do_not_meet():
    """One kernel, launched in turn: neither sees the other's statements."""
    a, b, c = cases("f32", most=20)
    held = kernel("f32", "mul.f32 a, a, b; add.f32 d, a, c;")
    count = held.bound.program.functions["kernel"].registers
    before, seen = len(count), []
    for contract in ("ptxas", "none", "ptxas", "none"):
        out = np.zeros(128, np.uint32)
        arrays = [np.resize(words, 128) for words in (a, b, c)]
        held.launch(1, 128, [*arrays, out], contract=contract)
        seen.append(out.tobytes())
    assert seen[:2] == seen[2:] and seen[0] != seen[1]
    assert len(held.bound.program.functions["kernel"].registers) == before


# --- constants ------------------------------------------------------------------------------------


@pytest.mark.parametrize("opcode", ["div.approx.f32", "div.full.f32"])
@pytest.mark.parametrize(("one", "sign"), [("0f3F800000", 0), ("0fBF800000", 1 << 31)])
def test_the_reciprocal_of_a_constant_is_no_copy_of_it(opcode, one, sign):
    """1 / 0.7 times x, as a Triton kernel scales by what is left after a dropout."""
    a, b, c = cases("f32")
    body = f"{opcode} t, {one}, 0f3F333333; mul.f32 d, t, a;"
    expected = rule("mul.rn.f32", np.full_like(a, 0x3FB6DB6E | sign), a)
    assert_same_codes(run("f32", body, (a, b, c)), expected, a=a)


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        ("mul.f32 t, 0f40400000, 0f3F333333;", 0x40066666),
        ("div.full.f32 t, 0f40400000, 0f3F333333;", 0x40892492),
        ("rcp.approx.f32 t, 0f3F333333;", 0x3FB6DB6E),
    ],
)
def test_a_product_of_constants_is_rounded(statement, code):
    a, b, c = cases("f32")
    expected = rule("add.rn.f32", np.full_like(a, code), a)
    assert_same_codes(run("f32", f"{statement} add.f32 d, t, a;", (a, b, c)), expected, a=a)


@pytest.mark.parametrize("contract", ["ptxas", "none"])
@pytest.mark.parametrize(
    ("statement", "code"),
    [  # read off the machine code of ptxas 13.0; the chip's own are one or more units away
        ("ex2.approx.f32 d, 0f4043B00B;", 0x41053735),
        ("ex2.approx.ftz.f32 d, 0f4076DA99;", 0x4167DB6B),
        ("lg2.approx.f32 d, 0f3FDD98D2;", 0x3F4AB307),
        ("sqrt.approx.f32 d, 0f403C70CC;", 0x3FDBA34C),
        ("rsqrt.approx.ftz.f32 d, 0f40422066;", 0x3F12FD6A),
        ("rcp.approx.f32 d, 0fBF3B0D96;", 0xBFAF2E24),
        ("sin.approx.f32 d, 0f401B73DD;", 0x3F2761EE),
        ("cos.approx.f32 d, 0fC009D238;", 0xBF0CDCF4),
    ],
)
def test_functions_of_constants_are_rounded_to_nearest(statement, code, contract):
    a, b, c = cases("f32")
    assert (run("f32", statement, (a, b, c), contract) == code).all()
    (found,) = kernel("f32", statement).contracted
    assert found.kind == "known"


def test_functions_of_other_constants_stay_the_chips():
    for constant in ("0f00000003", "0f7F800000", "0f7FFFFFFF", "0f80000000", "0f43800000"):
        assert kernel("f32", f"ex2.approx.f32 d, {constant};").contracted == []
    assert kernel("f32", "tanh.approx.f32 d, 0f3F000000;").contracted == []


def test_nothing_is_contracted_for_a_debugger():
    text = TEXT.replace(".target sm_90a", ".target sm_90a, debug")
    assert text != TEXT and Module(text)["k"].contracted == []


@pytest.mark.parametrize(
    ("type_", "body"),
    [
        ("f16", "mul.f16 t, a, b; add.f16 d, t, c;"),
        ("f32", "div.approx.f32 d, a, 0f3FECE141;"),
        ("f64", "add.f64 d, b, a;"),
    ],
)
def test_ptxas_without_optimisation_rewrites_nothing(type_, body):
    chosen = kernel(type_, body)
    as_text, optimised = (chosen.module._kernel(chosen.name, x) for x in ("O0", "ptxas"))
    assert as_text.rewritten == (chosen.bound.program, [])
    assert optimised.rewritten[0].statements != chosen.bound.program.statements


def test_quotients_without_optimisation_are_the_chips():
    a, b, c = cases("f32")
    unoptimised, unfused = (
        run("f32", "div.approx.f32 d, a, 0f3FECE141;", (a, b, c), x) for x in ("O0", "none")
    )
    quotients = rule("div.approx.f32", a, np.full_like(a, 0x3FECE141))
    assert_same_codes(unoptimised, quotients, a=a)
    assert (unfused != quotients).any()


@pytest.mark.parametrize("contract", ["ptxas", "none"])
@pytest.mark.parametrize(
    ("type_", "first", "second", "at_once"),
    [
        ("f16", "cvt.rmi.s64.f16", "cvt.sat.s32.s64", "cvt.rmi.s32.f16"),
        ("bf16", "cvt.rpi.u64.bf16", "cvt.sat.u32.u64", "cvt.rpi.u32.bf16"),
        ("f32", "cvt.rni.sat.s64.f32", "cvt.sat.s32.s64", "cvt.rni.s32.f32"),
        ("f32", "cvt.rzi.ftz.u64.f32", "cvt.sat.u32.u64", "cvt.rzi.ftz.u32.f32"),
    ],
)
def test_integers_saturated_to_32_bits_are_converted_at_once(
    type_, first, second, at_once, contract
):
    sources, bits = cases(type_), TYPES[type_].bits
    body = f"{first} r0, a; mov.b{bits} a, b; {second} n, r0; " + (
        "mov.b32 d, n;" if bits == 32 else "cvt.u16.u32 d, n;"
    )
    expected = rule(at_once, sources[0])
    assert (rule(second, rule(first, sources[0])) != expected).any()
    expected = expected.view(np.uint32).astype(sources[0].dtype)
    assert_same_codes(run(type_, body, sources, contract), expected, a=sources[0])
    (found,) = kernel(type_, body).contracted
    assert found.kind == "converted"


@pytest.mark.parametrize(
    ("type_", "body", "kinds"),
    [
        ("f16", "cvt.rmi.s64.f16 r0, a; @p cvt.sat.s32.s64 n, r0;", ["converted"]),
        ("f16", "@p cvt.rmi.s64.f16 r0, a; cvt.sat.s32.s64 n, r0;", []),
        ("f16", "cvt.rmi.s64.f16 r0, a; cvt.sat.u32.s64 n, r0;", []),
        ("f16", "cvt.rmi.u64.f16 r0, a; cvt.sat.s32.s64 n, r0;", []),
        ("f16", "cvt.rmi.s64.f16 r0, a; cvt.u32.s64 n, r0;", []),
        ("f16", "cvt.rmi.s64.f16 r0, a; cvt.sat.s16.s64 d, r0;", []),
        ("f64", "cvt.rmi.s64.f64 r0, a; cvt.sat.s32.s64 n, r0;", []),
    ],
)
def test_which_conversions_are_one(type_, body, kinds):
    found = kernel(type_, f"setp.ne.u32 p, i, n; {body}").contracted
    assert [x.kind for x in found] == kinds


ABS, NEG = (np.bitwise_and, 0x7FFFFFFF), (np.bitwise_xor, 0x80000000)


@pytest.mark.parametrize("contract", ["ptxas", "none"])
@pytest.mark.parametrize(
    ("body", "signs", "otherwise"),
    [
        ("@p abs.f32 d, a;", [ABS], "a"),
        ("@!p neg.f32 b, a; mov.b32 d, b;", [NEG], "b"),
        ("abs.f32 t, a; neg.f32 t, t; selp.f32 d, b, t, p;", [ABS, NEG], "b"),
        ("neg.f32 t, a; mov.b32 a, c; selp.f32 d, t, b, p;", [NEG], "b"),
        ("abs.f32 t, a; selp.s32 n, -1, 1, p; slct.f32.s32 d, b, t, n;", [ABS], "b"),
        ("abs.f32 t, a; @p neg.f32 d, t;", [ABS, NEG], "a"),
    ],
)
def test_what_is_selected_with_another_sign_keeps_its_payload(body, signs, otherwise, contract):
    a, b, c = cases("f32")
    signed = a
    for operation, mask in signs:
        signed = operation(signed, np.uint32(mask))
    chosen = c.view(np.int32) > 0
    if "b, t, p" in body or "!p" in body:
        chosen = ~chosen
    expected = np.where(chosen, signed, {"a": a, "b": b}[otherwise])
    body = f"mov.b32 n, c; setp.gt.s32 p, n, 0; {body}"
    assert_same_codes(run("f32", body, (a, b, c), contract), expected, a=a, b=b, c=c)
    assert [x.kind for x in kernel("f32", body).contracted] == ["selected"]


@pytest.mark.parametrize(
    "body",
    [
        "abs.f32 d, a;", "@p abs.ftz.f32 d, a;", "abs.f32 t, a; selp.b32 d, t, b, p;",
        "@p bra L; neg.f32 d, a; L:", "neg.ftz.f32 t, a; selp.f32 d, t, b, p;",
    ],
)  # fmt: skip
def test_other_signs_are_operations(body):
    assert kernel("f32", f"setp.ne.u32 p, i, n; {body}").contracted == []


@pytest.mark.parametrize("contract", ["ptxas", "none"])
@pytest.mark.parametrize("body", ["min.{} d, a, a;", "mov.b{bits} t, a; max.{} d, t, a;"])
@pytest.mark.parametrize("type_", ["f16", "f32", "f64"])
def test_an_extreme_of_one_operand_is_a_copy(type_, body, contract):
    """Of a NaN, its payload included."""
    sources, body = cases(type_), body.format(type_, bits=TYPES[type_].bits)
    assert_same_codes(run(type_, body, sources, contract), sources[0])
    assert [x.kind for x in kernel(type_, body).contracted] == ["copied"]


def test_extremes_between_products_and_sums():
    sources = cases("f32")
    body = "mul.f32 t, a, b; max.f32 u, t, t; add.f32 d, u, c;"
    assert_same_codes(run("f32", body, sources), rule("fma.rn.f32", *sources))
    apart = [x.kind for x in kernel("f32", body.replace("u, t, t", "u, t, c")).contracted]
    assert apart == []


@pytest.mark.parametrize("opcode", ["min.ftz.f32", "max.NaN.f16", "min.bf16", "max.f16x2"])
def test_extremes_that_stay(opcode):
    type_ = opcode.rpartition(".")[2]
    assert kernel(type_, f"{opcode} d, a, a;").contracted == []


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ("neg.f32 t, a; slct.ftz.f32.f32 d, t, b, 0f00000000;", 0x7FA12345),
        ("abs.f32 t, a; slct.f32.f32 d, b, t, 0fBF800000;", 0x7FA12345),
        ("neg.f32 t, a; selp.f32 d, t, t, p;", 0x7FFFFFFF),
    ],
)
def test_which_selections_keep_a_payload(body, word):
    """As an H200 does; ptxas takes the selection of a value and itself for that value."""
    a = np.array([0xFFA12345], np.uint32)
    found = run("f32", f"setp.eq.u32 p, i, i; {body}", (a, a ^ a, a))
    assert_same_codes(found, np.array([word], np.uint32))


def test_a_guarded_minimum_of_a_value_and_itself_moves_it():
    a, b, c = cases("f16", most=100)
    body = "setp.eq.u32 p, i, i; @p min.f16 d, a, a;"
    assert_same_codes(run("f16", body, (a, b, c)), a)
    (found,) = kernel("f16", body).contracted
    assert found.kind == "copied"


def test_of_two_nans_min_and_max_return_that_of_the_younger_operand():
    """By ptxas 13.5 in 130 random blocks, and on an H200; -O0 keeps the order of the text."""
    a, b = (np.array([word], np.uint64) for word in (0x7FF8000000000001, 0x7FF8000000000002))
    for body in ("min.f64 d, a, b;", "min.f64 d, b, a;", "max.f64 d, b, a;"):
        assert_same_codes(run("f64", body, (a, b, a)), b)
    assert_same_codes(run("f64", "min.f64 d, b, a;", (a, b, a), "O0"), a)
