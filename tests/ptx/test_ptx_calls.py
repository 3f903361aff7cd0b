"""Calls whose arguments do not fit, and accesses to their parameters: problems of the kernel, where
ptxas 13.0 refuses the text too, unless a comment says otherwise."""

import numpy as np
import pytest

from emulator import KernelError, Module

TEXT = """.version 8.3
.target sm_90
.address_size 64
.func ({formal} r) f({formal} a) {{ .reg .b32 %r<3>; .reg .b64 %d<3>; {inside} ret; }}
.visible .entry k(.param .u64 out)
{{
    .reg .b16 %h<3>; .reg .b32 %r<5>; .reg .b64 %d<3>; .reg .pred %p;
    .param .align 8 .b8 p[8]; .param .align 8 .b8 q[8]; .param .b32 word;
    ld.param.u64 %d0, [out];
    mov.u32 %r1, 7;
    {around}
    st.global.u32 [%d0], %r1;
    ret;
}}
"""
BYTES, WORD, REGISTER = ".param .align 8 .b8 x[8]", ".param .b32", ".reg .b32"


def module(inside="", around="", formal=BYTES):
    text = TEXT.format(formal=formal, inside=inside, around=around)
    return Module(text.replace("x[8] r", "r[8]").replace("x[8] a", "a[8]"))


def reasons(*given, **named):
    return [problem.reason for problem in module(*given, **named).problems]


#: ptxas takes all of these, and which bytes they touch is undefined
@pytest.mark.parametrize("access", ["[X+8]", "[X+5]", "[X+-4]", "[X+100]"])
def test_beyond_a_parameter(access):
    for name in "arqp":
        place, call = access.replace("X", name), "call (q), f, (p);"
        line = f"ld.param.b32 %r1, {place};" if name in "aq" else f"st.param.b32 {place}, %r1;"
        (reason,) = reasons(line, call) if name in "ar" else reasons("", line)
        assert "takes bytes" in reason and f"of {name}, a .param of 8 bytes" in reason


@pytest.mark.parametrize(
    "line",
    ["ld.param.b64 %d1, [q+4];", "ld.param.v4.b32 {%r1, %r2, %r3, %r4}, [q];",
     "st.param.v2.b64 [p], {%d1, %d2};", "st.param.v2.b32 [p+4], {%r1, %r2};"],
)  # fmt: skip
def test_wide_accesses_beyond_a_parameter(line):
    (reason,) = reasons(around=line)
    assert "which has" not in reason and "takes bytes" in reason


@pytest.mark.parametrize(
    "line",
    ["ld.global.b32 %r1, [p];", "ld.b32 %r1, [p];", "st.b32 [p], %r1;", "red.add.u32 [p], 1;",
     "ld.const.b32 %r1, [p];", "atom.global.add.u32 %r1, [p], 1;", "prefetch.L1 [p];",
     "ld.param::entry.b32 %r1, [p];", "ldu.global.b32 %r1, [p];"],
)  # fmt: skip
def test_a_parameter_of_a_call_is_in_no_other_space(line):
    (reason,) = reasons(around=line)
    assert "'p' is in .param::func" in reason


@pytest.mark.parametrize(
    ("formal", "around", "said"),
    [
        (WORD, "call (word), f, (p);", "parameter a of f is a .param of 4 bytes; p is a .param of"),
        (WORD, "call (q), f, (word);", "result r of f is a .param of 4 bytes; q is a .param of 8"),
        (WORD, "call (word), f, (%h1);", "a .param of 4 bytes; %h1 is a register of 16 bits"),
        (REGISTER, "call (%r1), f, (%d1);", "a register of 32 bits; %d1 is a register of 64 bits"),
        (REGISTER, "call (%r1), f, (%p);", "a register of 32 bits; %p is a predicate"),
        (WORD, "call f, (word);", "f returns 1 result; 0 are given"),
        (WORD, "call (word, word), f, (word);", "f returns 1 result; 2 are given"),
        (WORD, "call (word), f;", "f takes 1 parameter; 0 are given"),
        (WORD, "call (word), k, (word);", "k is a kernel"),
        # ptxas takes this, for bits that are not known here
        (WORD, "call (word), f, (1.5);", "parameter a of f is no register or variable"),
    ],
)  # fmt: skip
def test_arguments_that_do_not_fit(formal, around, said):
    (reason,) = reasons(around=around, formal=formal)
    assert said in reason


@pytest.mark.parametrize("given", ["5", "%r1", "word"])
@pytest.mark.parametrize("formal", [WORD, REGISTER])
@pytest.mark.parametrize("returned", ["%r1", "word"])
def test_constants_registers_and_variables_of_one_size_fit(formal, given, returned):
    assert not reasons(around=f"call ({returned}), f, ({given});", formal=formal)


@pytest.mark.parametrize("engine", ["reference", "vector", "compiled"])
def test_through_a_pointer_the_launch_ends(engine):
    around = "p0: .callprototype (.param .b32 _) _ (.param .b32 _); mov.u64 %d1, f;"
    right, wrong = (f"{around} call (word), %d1, ({x}), p0;" for x in ("word", "p"))
    for text, said in ((right, ""), (wrong, "parameter a of f is a .param of 4 bytes; p is a")):
        kernel, out = module(around=text, formal=WORD)["k"], np.zeros(1, np.uint32)
        if not said:
            kernel.launch(1, 1, [out], engine=engine)
            continue
        with pytest.raises(KernelError, match=said):
            kernel.launch(1, 1, [out], engine=engine)


def test_what_fits_runs():
    inside = "ld.param.b32 %r1, [a+4]; add.u32 %r1, %r1, 1; st.param.b32 [r], %r1;"
    around = "st.param.b32 [p+4], %r1; call (q), f, (p); ld.param.b32 %r1, [q];"
    for engine in ("reference", "vector", "compiled"):
        out = np.zeros(1, np.uint32)
        module(inside, around)["k"].launch(1, 1, [out], engine=engine)
        assert out[0] == 8
