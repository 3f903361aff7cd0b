"""stop_at: the first NaN or infinity that a statement makes, and none that it was given."""

import numpy as np
import pytest

from dtypes import FORMATS
from emulator import KernelError, Module, OperandError, UnsupportedError
from emulator.machine.checks.values import specials, specials_of_words

HEAD = ".version 8.0\n.target sm_90\n.address_size 64\n"


def kernel(body):
    return Module(f"""{HEAD}.visible .entry k(.param .u64 x)
{{
    .reg .pred %p; .reg .b32 %r<20>; .reg .b64 %rd<4>; .reg .f32 %f<8>; .reg .f64 %d<4>;
    .reg .b16 %h<4>;
    ld.param.u64 %rd0, [x]; mov.u32 %r0, %tid.x; mul.wide.u32 %rd1, %r0, 4;
    add.u64 %rd1, %rd0, %rd1; ld.global.f32 %f0, [%rd1];
{body}
    ret;
}}""")["k"]


def stopped(body, values, stop_at):
    """The error of a launch on one value for each thread; None where it ends."""
    x = np.array(values, "f4")
    try:
        kernel(body).launch(1, len(x), [x], stop_at=stop_at)
    except KernelError as error:
        return error
    return None


@pytest.mark.parametrize(
    "body, values, kind, thread, said",
    [
        ("add.f32 %f1, %f0, %f0;", [1, 3e38], "inf", 1, "d is inf, made of a = 3e+38, b = 3e+38"),
        ("rcp.approx.f32 %f1, %f0;", [1, 2, 0], "inf", 2, "d is inf, made of a = 0.0"),
        ("sqrt.rn.f32 %f1, %f0;", [4, -4], "nan", 1, "d is nan, made of a = -4.0"),
        ("sub.f32 %f1, %f0, %f0;", [1, np.inf], "nan", 1, "made of a = inf, b = inf"),
        ("fma.rn.f32 %f1, %f0, 0f7F800000, %f0;", [1, 0], "nan", 1, "b = inf, c = 0.0"),
        ("cvt.rn.f16.f32 %h0, %f0;", [1, 65520], "inf", 1, "d is inf, made of a = 65520.0"),
        ("cvt.rn.f16x2.f32 %r1, %f0, 0f00000000;", [1, 7e4], "inf", 1, "d is (0.0, inf)"),
        ("cvt.rn.bf16x2.f32 %r1, %f0, %f0;", [1, 3.4e38], "inf", 1, "d is (inf, inf)"),
        ("cvt.f64.f32 %d0, %f0; div.rn.f64 %d0, 0d3FF0000000000000, %d0;", [0], "inf", 0, "d is"),
        ("mov.b32 %r1, 0x7BFF7BFF; add.f16x2 %r2, %r1, %r1;", [0], "inf", 0, "(inf, inf), made of"),
        ("lg2.approx.f32 %f1, %f0;", [1, 0], "inf", 1, "d is -inf"),
        # in place, and under a guard
        ("mul.f32 %f0, %f0, %f0;", [1, 1e30], "inf", 1, "d is inf, made of a = 1e+30"),
        ("setp.gt.f32 %p, %f0, 0f3F800000; @%p rcp.approx.f32 %f0, 0f00000000;", [1, 2], "inf", 1,
         "d is inf"),
    ],
)  # fmt: skip
def test_what_makes_it_is_named(body, values, kind, thread, said):
    other = "nan" if kind == "inf" else "inf"
    for stop_at in (kind, "any"):
        error = stopped(body, values, stop_at)
        assert error is not None and error.kind == {"nan": "NaN", "inf": "infinity"}[kind]
        assert said in str(error) and error.threads[0] == (thread, 0, 0)
        assert error.place.statement == body.split(";")[-2].strip().removeprefix("@%p ") + ";"
    assert stopped(body, values, other) is None


@pytest.mark.parametrize(
    "body, values",
    [
        ("add.f32 %f1, %f0, %f0;", [np.inf, np.nan, 1e38]),  # given, passed on
        ("mov.f32 %f1, 0f7F800000; neg.f32 %f1, %f1;", [1]),  # a constant
        ("min.f32 %f1, %f0, 0f7F800000;", [1, np.nan]),
        ("setp.lt.f32 %p, %f0, 0f3F800000; selp.f32 %f1, 0f7FC00000, %f0, %p;", [0, 1]),
        ("setp.gt.f32 %p, %f0, 0f40000000; @%p mul.f32 %f0, %f0, 0f7F000000;", [1, 1.5]),
        ("mov.b32 %r1, 0x7F000000; add.u32 %r1, %r1, 0x00800000;", [1]),  # integers
        ("ex2.approx.f32 %f1, 0fFF800000;", [1]),
    ],
)
def test_what_was_given_is_not_made(body, values):
    assert stopped(body, values, "any") is None


MMA = """
    cvt.rn.f16x2.f32 %r1, %f0, %f0;
    mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1, %f2, %f3, %f4},
        {%r1, %r1, %r1, %r1}, {%r1, %r1}, {%f0, %f0, %f0, %f0};"""


def test_matrices():
    assert stopped(MMA, [1] * 64, "any") is None
    values = np.ones(64)
    values[40] = np.inf  # A, B and C of warp 1
    assert stopped(MMA, values, "inf") is None
    # An infinity times zero, and infinities of both signs, are NaN.
    values[41] = -np.inf
    error = stopped(MMA, values, "nan")
    assert error.kind == "NaN" and error.threads[0] == (32, 0, 0)
    values[41] = np.nan
    assert stopped(MMA, values, "any") is None
    body = MMA.replace("cvt.rn.f16x2", "cvt.rn.bf16x2").replace(
        ".f16.f16.f32 {", ".bf16.bf16.f32 {"
    )
    assert stopped(body, [1e18] * 32, "any") is None
    assert stopped(body, [1e20] * 32, "inf").kind == "infinity"


def test_arrays_are_left_alone():
    x = np.array([0, 1], "f4")
    found = kernel("st.global.f32 [%rd1], 0f40000000; rcp.approx.f32 %f0, %f0;")
    with pytest.raises(KernelError, match="infinity"):
        found.launch(1, 2, [x], stop_at="inf")
    assert x.tolist() == [0, 1]
    found.launch(1, 2, [x])
    assert x.tolist() == [2, 2]


@pytest.mark.parametrize("name", [name for name, fmt in FORMATS.items() if fmt.is_float])
def test_codes_of_formats(name):
    """Codes of each format by its own facts; what it ignores tells nothing."""
    fmt = FORMATS[name]
    dtype = f"uint{max(8, 1 << (fmt.bits - 1).bit_length())}"
    finite = np.array([0, 1, fmt.max_finite, fmt.max_finite | fmt.sign_mask], dtype)
    nan, infinite = specials(fmt, finite)
    assert not nan.any() and not infinite.any()
    if fmt.nan is not None:
        nan, infinite = specials(fmt, np.array([fmt.nan, fmt.nan | fmt.sign_mask], dtype))
        assert nan.all() and not infinite.any()
    if fmt.infinity is not None:
        codes = np.array([fmt.infinity, fmt.infinity | fmt.sign_mask], dtype)
        nan, infinite = specials(fmt, codes)
        assert infinite.all() and not nan.any()


def test_elements_of_words():
    nan, infinite = specials_of_words(np.array([0x7C003C00, 0x3C007E00], np.uint32), "f16x2")
    assert nan.tolist() == [False, True] and infinite.tolist() == [True, False]


def test_mistakes_of_callers():
    x = np.zeros(1, "f4")
    with pytest.raises(OperandError, match="stop_at is one of nan, inf, any; got 'NaN'"):
        kernel("").launch(1, 1, [x], stop_at="NaN")
    with pytest.raises(UnsupportedError, match="the vector engine's"):
        kernel("").launch(1, 1, [x], stop_at="nan", engine="reference")


@pytest.mark.parametrize("line", ["mov.b64 {_, %r1}, %rd0;", "mov.b64 {%r1, _}, %rd0;"])
def test_a_word_of_which_half_is_dropped(line):
    assert stopped(f"{line} add.f32 %f1, %f0, %f0;", [1], "any") is None
    assert stopped(f"{line} add.f32 %f1, %f0, %f0;", [3e38], "any") is not None
