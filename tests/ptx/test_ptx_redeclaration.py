"""Declarations that are not whole or do not fit one another: judged as ptxas 13.0 judges them."""

import shutil
import subprocess

import numpy as np
import pytest

from emulator import Module, UnsupportedError

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
KERNEL = "\n.visible .entry k(.param .u64 p){ ret; }\n"
#: a line is a file without its head and kernel k; what ptxas 13.0 takes with -arch=sm_80
LEGAL = """
.extern .global .u32 x; .visible .global .u32 x;
.extern .global .u32 x[4]; .visible .global .u32 x[4];
.extern .global .u32 x[]; .visible .global .u32 x[8];
.extern .global .u32 x[4]; .visible .global .u32 x[] = {1,2,3,4};
.extern .global .align 8 .u32 x; .visible .global .u32 x;
.extern .global .u32 x; .visible .global .align 8 .u32 x;
.extern .global .align 8 .u32 x; .visible .global .align 4 .u32 x;
.extern .global .u32 x; .visible .const .u32 x;
.extern .global .u32 x; .visible .shared .u32 x;
.extern .global .u32 x; .extern .global .u32 x;
.visible .global .u32 x; .extern .global .u32 x;
.global .u32 x; .extern .global .u32 x;
.extern .global .u32 x; .weak .global .u32 x;
.extern .global .u32 x; .common .global .u32 x;
.extern .shared .u32 x[]; .extern .shared .u32 x[];
.extern .shared .align 16 .b8 x[]; .extern .shared .align 4 .b8 x[];
.extern .global .u32 x; .extern .const .u32 x;
.func f(); .func f(){ ret; }
.visible .func f(); .func f(){ ret; }
.visible .func f(); .visible .func f(){ ret; }
.weak .func f(); .weak .func f(){ ret; }
.weak .func f(); .func f(){ ret; }
.func f(.param .u32 a); .func f(.param .u32 b){ ret; }
.func f(.reg .u32 a); .func f(.reg .u32 a){ ret; }
.func f(.param .b8 a[4]); .func f(.param .b8 a[4]){ ret; }
.func f(.param .align 4 .u32 a); .func f(.param .u32 a){ ret; }
.func (.param .u32 r) f(); .func (.param .u32 q) f(){ ret; }
.extern .func f(); .extern .func f();
.entry f(); .entry f(){ ret; }
.entry f(.param .u32 a); .entry f(.param .u32 a){ ret; }
.extern .func f(.param .u32 a, .param .u32 a);
.visible .func f(.param .b8 x[0]){ ret; }
.func f(.param .u32 a,.param .b8 x[]){ .reg .b32 %r; ld.param.u32 %r,[x+4]; ret; }
.func f(.param .u64 x[0]){ ret; }
.extern .global .u32 x[0]; .visible .global .u32 x[8];
.extern .global .u32 x[][4]; .visible .global .u32 x[8][4];
.extern .shared .u32 x[]; .extern .shared .u32 x[4];
.extern .shared .u32 x;
.extern .shared .b8 x[0][4];
.global .b8 x[0] = {1,2};
.global .b8 x[] = {1};
.visible .entry f(); .entry f(){ ret; }
.global .u32 x; .visible .entry f(){ .reg .u32 x; ret; }
.global .u32 x; .visible .entry f(.param .u32 x){ ret; }
.visible .entry f(){ .shared .u32 x; ret; } .visible .entry g(){ .shared .u64 x; ret; }
.func f(.reg .pred p); .func f(.reg .pred p){ ret; }
.func (.reg .pred p) f(){ ret; }
.func f(.param .u32 a){ ret; } .func g(.param .u32 b); .alias g, f;
.func f(){ ret; } .visible .func g(); .alias g, f;
.func f(){ ret; } .weak .func g(); .alias g, f;
.func f(){ ret; } .func g(); .func h(); .alias g, f; .alias h, g;
.func f(); .func g(); .alias g, f; .func f(){ ret; }
.visible .entry f(.param .u32 _){ ret; }
.visible .entry f(.param .u32 a){ { .reg .b32 a; .local .b64 b; } .reg .b32 b; ret; }
.visible .entry f(.param .u32 a1){ .reg .b32 a<1>, a; .local .b32 %tid; ret; }
""".strip().splitlines()
#: what it refuses
REFUSED = """
.extern .global .u32 x; .global .u32 x;
.extern .global .u32 x; .visible .global .s32 x;
.extern .global .u32 x; .visible .global .b32 x;
.extern .global .u32 x; .visible .global .f32 x;
.extern .global .u32 x; .visible .global .u64 x;
.extern .global .u32 x; .visible .global .u32 x[4];
.extern .global .u32 x[4]; .visible .global .u32 x[8];
.extern .global .u32 x[][2]; .visible .global .u32 x[8];
.extern .global .u32 x[4][2]; .visible .global .u32 x[8];
.extern .global .u32 x[5]; .visible .global .u32 x[] = {1,2,3,4};
.extern .global .b8 x[16]; .visible .global .u32 x[4];
.extern .global .v2 .u32 x; .visible .global .u32 x[2];
.extern .global .u32 x; .extern .global .u64 x;
.visible .global .u32 x; .visible .global .u32 x;
.visible .global .u32 x; .extern .global .u64 x;
.weak .global .u32 x; .weak .global .u32 x;
.weak .global .u32 x; .visible .global .u32 x;
.common .global .u32 x; .common .global .u32 x;
.common .global .u32 x; .visible .global .u32 x;
.global .u32 x; .global .u32 x;
.global .u32 x = 1; .global .u32 x;
.shared .u32 x; .shared .u32 x;
.extern .shared .u32 x[]; .extern .shared .u64 x[];
.extern .shared .u32 x[]; .shared .u32 x[4];
.global .u32 x; .shared .u32 x;
.global .u32 x; .func x(){ ret; }
.extern .global .u32 x; .func x(){ ret; }
.extern .func x; .global .u32 x;
.global .u32 k;
.const .u32 x; .const .u32 x;
.extern .const .u32 x; .const .u32 x;
.extern .const .u32 x[]; .const .u32 x[3];
.extern .const .u32 x; .const .s32 x;
.extern .func f(); .func f(){ ret; }
.extern .func f(); .visible .func f(){ ret; }
.extern .func f; .func f(){ ret; }
.func f(); .visible .func f(){ ret; }
.weak .func f(); .visible .func f(){ ret; }
.func f(.param .u32 a); .func f(.param .s32 b){ ret; }
.func f(.param .u32 a); .func f(.param .b32 b){ ret; }
.func f(.param .u32 a); .func f(.param .f32 b){ ret; }
.func f(.param .u32 a); .func f(.param .u64 b){ ret; }
.func f(.param .u32 a); .func f(){ ret; }
.func f(.param .u32 a); .func f(.param .u32 a,.param .u32 b){ ret; }
.func f; .func f(.param .u32 a){ ret; }
.func f(); .func f(.param .u32 a){ ret; }
.func f(.param .u32 a); .func f(.reg .u32 a){ ret; }
.func f(.reg .u32 a); .func f(.reg .s32 a){ ret; }
.func f(.reg .u32 a); .func f(.reg .b32 a){ ret; }
.func f(.reg .u32 a); .func f(.reg .u64 a){ ret; }
.func f(.param .b8 a[4]); .func f(.param .b8 a[8]){ ret; }
.func f(.param .b8 a[4]); .func f(.param .u32 a){ ret; }
.func f(.param .b8 a[]); .func f(.param .b8 a[8]){ ret; }
.func f(.param .align 8 .b8 a[8]); .func f(.param .b8 a[8]){ ret; }
.func f(.param .b8 a[8]); .func f(.param .align 8 .b8 a[8]){ ret; }
.func f(.param .align 8 .b8 a[8]); .func f(.param .align 4 .b8 a[8]){ ret; }
.func f(.param .align 8 .u32 a); .func f(.param .u32 a){ ret; }
.func (.param .u32 r) f(); .func (.param .s32 q) f(){ ret; }
.func (.param .u32 r) f(); .func (.param .u64 q) f(){ ret; }
.func (.param .u32 r) f(); .func f(){ ret; }
.func f(); .func (.param .u32 r) f(){ ret; }
.func f(){ ret; } .func f(){ ret; }
.func f(){ ret; } .func f();
.func f(){ ret; } .extern .func f();
.func f(){ ret; } .func f(.param .u32 a);
.extern .func f(.param .u32 a); .extern .func f(.param .u64 a);
.extern .func f(.param .u32 a); .extern .func f(.param .u32 a, .param .u32 b);
.func f() .noreturn; .func f(){ ret; }
.func f(); .func f() .noreturn { ret; }
.weak .func f(){ ret; } .weak .func f(){ ret; }
.weak .func f(){ ret; } .visible .func f(){ ret; }
.entry f(.param .u32 a); .entry f(.param .s32 a){ ret; }
.entry f(.param .u32 a); .entry f(.param .u64 a){ ret; }
.entry f(.param .u32 a); .entry f(){ ret; }
.extern .entry f(.param .u32 a); .entry f(.param .u32 a){ ret; }
.entry f(){ ret; } .entry f(){ ret; }
.entry f(){ ret; } .func f(){ ret; }
.func f(); .entry f(){ ret; }
.entry f(); .func f(){ ret; }
.func f(.param .u32 a, .param .u32 a){ ret; }
.func (.param .u32 a) f(.param .u32 a){ ret; }
.entry f(.param .u32 a, .param .u32 a){ ret; }
.func f(.param .f32 a); .func f(.param .b32 b){ ret; }
.func f(.param .f16 a); .func f(.param .b16 b){ ret; }
.func f(.param .b8 a[4]); .func f(.param .u8 a[4]){ ret; }
.func f(.param .b8 a); .func f(.param .u32 a){ ret; }
.func f(.param .b8 a[8]); .func f(.param .b64 a){ ret; }
.func f(.param .b8 a[8]); .func f(.param .b32 a[2]){ ret; }
.func f(.param .align 8 .b8 a[8]); .func f(.param .b64 a){ ret; }
.func f(.param .u32 a[1]); .func f(.param .u32 a){ ret; }
.func f(.param .u32 a); .func f(.param .u64 a);
.visible .func f(.param .b8 x[0], .param .u32 y){ ret; }
.func f(.param .b8 x[0], .param .u32 y);
.func f(.reg .u32 x[0]){ ret; }
.func f(.reg .u32 x[4]){ ret; }
.extern .global .u32 x[]; .visible .global .u32 x;
.extern .func f(); .extern .func f(){ ret; }
.extern .func f(){ ret; }
.extern .global .u32 x[]; .extern .global .u32 x[4]; .visible .global .u32 x[8];
.extern .shared .b8 x[4][0];
.global .b8 x[0] = {};
.global .b8 x[0];
.global .b8 x[][4];
.global .b8 x[4][0];
.const .b8 x[0];
.shared .b8 x[0];
.visible .entry f(){ .shared .b8 x[0]; ret; }
.visible .entry f(){ .local .b8 x[0]; ret; }
.visible .entry f(){ .local .b8 x[4][0]; ret; }
.visible .entry f(){ .param .b8 x[0]; ret; }
.visible .entry f(){ .param .b8 x[]; ret; }
.visible .entry f(.param .b8 x[0]){ ret; }
.visible .entry f(.param .b8 x[]){ ret; }
.visible .entry f(.param .u64 p, .param .b8 x[0]){ ret; }
.visible .entry f(.param .b8 x[0], .param .u64 p){ ret; }
.func (.param .b8 x[0]) f(){ ret; }
.entry f(); .visible .entry f(){ ret; }
.extern .global .u32 x; .visible .global .u32 x; .visible .global .u32 x;
.func f(){ ret; } .global .u32 f;
.func f(); .extern .global .u32 f;
.func f(.param .u32 a){ ret; } .func g(.param .f32 a); .alias g, f;
.func f(.param .u32 a){ ret; } .func g(.param .u64 a); .alias g, f;
.func f(.param .u32 a){ ret; } .func g(); .alias g, f;
.func f(.param .u32 a){ ret; } .func g(.reg .u32 a); .alias g, f;
.func (.param .u32 a) f(){ ret; } .func g(); .alias g, f;
.func g(); .alias g, f; .func f(){ ret; }
.func f(){ ret; } .alias g, f;
.func f(){ ret; } .func g(){ ret; } .alias g, f;
.func f(){ ret; } .func g(); .alias g, f; .alias g, f;
.func f(){ ret; } .alias f, f;
.extern .func f(); .func g(); .alias g, f;
.weak .func f(){ ret; } .func g(); .alias g, f;
.visible .entry f(){ ret; } .func g(); .alias g, f;
.global .u32 f; .func g(); .alias g, f;
.func f(.param .u32 _){ ret; }
.extern .func f(.param .u32 _);
.func (.param .u32 _) f(){ ret; }
.func f(.reg .u32 _){ ret; }
.visible .entry f(.param .u32 a){ .reg .b32 a; ret; }
.visible .entry f(.param .u32 a1){ .reg .b32 a<2>; ret; }
.visible .entry f(.param .u32 a){ .local .b32 a; ret; }
.visible .entry f(.param .u32 a){ .shared .b32 a; ret; }
.visible .entry f(.param .u32 a){ .param .b32 a; ret; }
.visible .entry f(.param .u32 a){ a: ret; }
.visible .entry f(){ .reg .b32 a; .local .b32 a; ret; }
.visible .entry f(){ .reg .b32 a<2>; .local .b32 a1; ret; }
.visible .entry f(){ .local .b32 a; .shared .b32 a; ret; }
.visible .entry f(){ .param .b32 a; .param .b32 a; ret; }
""".strip().splitlines()


def problems(line):
    return Module(HEAD + line + KERNEL).problems


@pytest.mark.parametrize("line", LEGAL)
def test_what_fits_has_no_problem(line):
    assert not problems(line)


@pytest.mark.parametrize("line", REFUSED)
def test_what_does_not_fit_is_a_problem_of_its_line(line):
    found = problems(line)
    assert found and found[0].line == (5 if " k;" in line else 4) and found[0].function


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("ptxas"), reason="ptxas is not installed")
def test_ptxas_of_this_machine_agrees(tmp_path):
    file = tmp_path / "x.ptx"
    for line in (*LEGAL, *REFUSED):
        file.write_text(HEAD + line + KERNEL)
        command = ["ptxas", "-arch", "sm_80", str(file), "-o", str(tmp_path / "x.cubin")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode == 0) == (line in LEGAL), (line, done.stderr)


NAMED = {
    "a function of other parameters": (
        ".func f(.param .b32 x);\n.func f(.param .b64 x){ .reg .b64 %r; ld.param.b64 %r, [x]; }",
        ".param .b32 q; call f, (q);",
        r"line 5, column 1: 'f' takes .param .b64 as parameter 1 here and .param .b32 where it was "
        r"declared \(line 4\)",
    ),
    "a variable of another type": (
        ".extern .global .u32 x;\n.visible .global .u64 x[2];",
        "ld.global.u32 %r, [x];",
        r"line 5, column 23: 'x' is .u64\[2\] here and was declared as .u32 \(line 4\)",
    ),
    "a name defined twice": (
        ".global .u32 x;\n.global .u32 x;",
        "ld.global.u32 %r, [x];",
        r"line 5, column 14: 'x' is defined already \(line 4\)",
    ),
    "an array without elements": (
        ".global .b8 x[0];",
        "ld.global.u32 %r, [x];",
        r"line 4, column 13: 'x' has no elements: legal are a number from 1 on, initial values, ",
    ),
    "a function that takes any bytes": (
        ".func f(.param .b8 x[0]){ ret; }",
        "call f, ();",
        "line 4, column 1: 'f' takes bytes of any number: legal PTX, not modelled here",
    ),
    "a type that is none": (
        ".global .foo x;",
        "ld.global.u32 %r, [x];",
        "line 4, column 14: a variable cannot be .foo",
    ),
}


@pytest.mark.parametrize(("declared", "used", "words"), NAMED.values(), ids=NAMED)
def test_a_kernel_that_needs_it_cannot_run(declared, used, words):
    other = "\n.visible .entry other(.param .u64 p){ .reg .b32 %r; " + used + " ret; }"
    module = Module(HEAD + declared + KERNEL + other)
    for engine in ("reference", "vector"):
        with pytest.raises(UnsupportedError, match=f"other cannot run: {words}"):
            module["other"].launch(1, 1, [np.zeros(4)], engine=engine)
        module["k"].launch(1, 1, [0], engine=engine)


#: what takes or returns a value, what a call passes for it, and whether ptxas 13.0 takes it
PASSED = [
    (".param .b32", ".param .b64", False), (".param .b32", ".param .u32", True),
    (".param .b32", ".param .f32", True), (".param .b64", ".param .b32", False),
    (".param .b16", ".param .b32", False), (".param .b8", ".param .b16", False),
    (".param .b8", ".reg .b16", False), (".param .b8", ".reg .b32", False),
    (".param .b32", ".reg .b64", False), (".param .b32", ".reg .b32", True),
    (".param .b64", ".reg .b32", False), (".param .b32", ".reg .b16", False),
    (".reg .b64", ".reg .b32", False), (".reg .b64", ".reg .f64", True),
    (".reg .b32", ".reg .b16", False), (".reg .b32", ".param .b32", True),
    (".reg .b16", ".param .b8", False),
    (".reg .pred", ".reg .b32", False), (".param .align 4 .b8 ", ".reg .b32", False),
]  # fmt: skip


@pytest.mark.parametrize("returned", [False, True])
@pytest.mark.parametrize(("taken", "passed", "legal"), PASSED)
def test_a_call_passes_what_a_function_takes(taken, passed, legal, returned):
    """What did not fit was a ValueError of NumPy at the launch."""
    x = "x[4]" if "align" in taken else "x"
    function = f".func ({taken} {x}) f()" if returned else f".func f({taken} {x})"
    call = "call (q), f, ();" if returned else "call f, (q);"
    text = f"{function}{{ ret; }}\n.visible .entry k(){{ {passed} q; {call} ret; }}"
    found = Module(HEAD + text).problems
    assert [problem.line for problem in found] == ([] if legal else [5])
    assert legal or " x of f is " in found[0].reason


def test_a_call_takes_as_many_results_as_a_function_returns():
    text = ".func (.param .b32 r) f(){ ret; }\n.visible .entry k(){ call f, (); ret; }"
    (problem,) = Module(HEAD + text).problems
    assert problem.reason == "f returns 1 result; 0 are given"


@pytest.mark.parametrize("engine", ["reference", "vector"])
def test_a_function_is_called_by_its_alias(engine):
    """This was a KeyError: by name, through a pointer, and through a pointer of a table."""
    text = (
        HEAD
        + """
    .func (.param .b32 y) f(.param .b32 x)
    { .reg .b32 %r; ld.param.b32 %r, [x]; add.u32 %r, %r, 5; st.param.b32 [y], %r; ret; }
    .func (.param .b32 y) g(.param .b32 x);
    .func (.param .b32 y) h(.param .b32 x);
    .alias g, f;
    .alias h, g;
    .global .u64 table = h;
    .visible .entry k(.param .u64 o)
    {
        .reg .b32 %r<3>; .reg .b64 %o, %p; .param .b32 a, b;
        P: .callprototype (.param .b32 _) _ (.param .b32 _);
        ld.param.u64 %o, [o];
        st.param.b32 [a], 1; call (b), h, (a); ld.param.b32 %r0, [b]; st.global.b32 [%o], %r0;
        mov.u64 %p, g; st.param.b32 [a], 2; call (b), %p, (a), P;
        ld.param.b32 %r0, [b]; st.global.b32 [%o+4], %r0;
        ld.global.u64 %p, [table]; st.param.b32 [a], 3; call (b), %p, (a), P;
        ld.param.b32 %r0, [b]; st.global.b32 [%o+8], %r0;
        ret;
    }
    """
    )
    out = np.zeros(3, "u4")
    Module(text)["k"].launch(1, 1, [out], engine=engine)
    assert out.tolist() == [6, 7, 8]


@pytest.mark.parametrize(("taken", "passed", "legal"), [
    (".param .b32", "5", True), (".param .b32", "-5", True), (".param .f32", "5", False),
    (".param .f32", "1.5", True), (".param .f64", "1.5", True), (".reg .f32", "5", False),
    (".reg .b64", "5", True), (".param .b8", "5", True), (".reg .pred", "1", False),
    (".param .b64", "place", False), (".reg .b64", "place", False),
])  # fmt: skip
def test_a_call_passes_constants(taken, passed, legal):
    """As ptxas 13.0 judges them."""
    text = f".global .b32 place; .func f({taken} x){{ ret; }} .visible .entry k(){{ call f, "
    assert legal == (not Module(f"{HEAD}{text}({passed}); ret; }}").problems)


@pytest.mark.parametrize("engine", ["reference", "vector", "compiled"])
def test_what_lies_elsewhere_is_moved(engine):
    text = (
        HEAD
        + """
    .func (.param .b32 y, .reg .b32 z) f(.param .b32 a, .param .f32 b, .reg .b64 c, .reg .b32 d)
    {
        .reg .b32 %a, %d;
        ld.param.b32 %a, [a]; ld.param.b32 %d, [b]; add.u32 %a, %a, %d; st.param.b32 [y], %a;
        cvt.u32.u64 z, c; add.u32 z, z, d; ret;
    }
    .visible .entry k(.param .u64 o)
    {
        .reg .b32 %r<4>; .reg .b64 %o; .reg .pred %p; .param .b32 d, z;
        ld.param.u64 %o, [o]; mov.u32 %r0, %tid.x; mad.wide.u32 %o, %r0, 8, %o;
        add.u32 %r1, %r0, 100; st.param.b32 [d], %r1; st.param.b32 [z], 9; mov.u32 %r2, 8;
        setp.lt.u32 %p, %r0, 2;
        @%p call (%r2, z), f, (%r0, 0f00000007, -3, d);
        ld.param.b32 %r3, [z]; st.global.v2.b32 [%o], {%r2, %r3}; ret;
    }
    """
    )
    out = np.zeros((3, 2), "u4")
    Module(text)["k"].launch(1, 3, [out], engine=engine)
    assert out.tolist() == [[7, 97], [8, 98], [8, 9]]
