"""Products in front of a loop and additions inside: which ones ptxas fuses.

What is expected was read off the machine code of ptxas 13.0 and 13.5 for sm_90a.
"""

import pytest

from emulator import Module

_TEXT = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 in, .param .u64 out, .param .u32 count) {{
.reg .b32 i, n, m; .reg .f32 a, b, c, t, u, d; .reg .b64 from, to; .reg .pred p, q, more;
ld.param.u64 from, [in]; ld.param.u64 to, [out]; ld.param.u32 n, [count];
ld.global.f32 a, [from]; ld.global.f32 b, [from+4]; ld.global.f32 c, [from+8];
mov.u32 i, 0; mov.f32 d, 0f00000000; mov.f32 u, 0f00000000; setp.gt.u32 q, n, 5;
{}
st.global.f32 [to], d; st.global.f32 [to+4], u; ret; }}
"""
STORE = "st.volatile.global.u32 [to+16], n;"
#: ends of loops: until memory says so; counters with an end that ptxas does not know, and knows
UNTIL = "ld.volatile.global.u32 m, [from+64]; setp.ne.u32 more, m, 0; @more bra L;"
COUNTED = "add.u32 i, i, 1; setp.lt.u32 more, i, n; @more bra L;"
FIXED = "add.u32 i, i, 1; setp.lt.u32 more, i, 101; @more bra L;"
IF = "setp.eq.u32 p, m, 7; @p bra S; {} red.global.add.u32 [to+20], m; S:"


@pytest.mark.parametrize(
    ("body", "fused"),
    [
        (f"mul.f32 t, a, b; L: add.f32 d, t, c; {UNTIL}", 1),
        (f"mul.f32 t, a, b; L: @q add.f32 d, t, c; {UNTIL}", 1),
        (f"mul.f32 t, a, b; L: add.f32 u, t, c; max.f32 d, d, u; {UNTIL}", 1),
        (f"mul.f32 t, a, b; L: add.f32 d, t, c; {STORE} {COUNTED}", 0),
        (f"mul.f32 t, a, b; L: add.f32 d, t, c; {STORE} {FIXED}", 1),
        (f"mul.f32 t, a, b; L: add.f32 d, t, c; {STORE} {COUNTED.replace('@more', '@!more')}", 1),
        (f"mul.f32 t, a, b; L: add.f32 d, t, c; {STORE} {COUNTED.replace('bra', 'bra.uni')}", 1),
        ("mul.f32 t, a, b; L: add.f32 d, t, c; shr.u32 n, n, 1; setp.ne.u32 more, n, 0; "
         "@more bra L;", 1),
        (f"mul.f32 t, a, b; L: add.f32 d, t, c; {STORE} setp.lt.u32 more, i, n; "
         "add.u32 i, i, 1; @more bra L;", 1),
        (f"mul.f32 t, a, b; L: add.f32 d, t, c; {STORE} sub.u32 n, n, 1; setp.ne.u32 more, n, 0; "
         "@more bra L;", 0),
        (f"mul.f32 t, a, b; L: add.f32 d, t, c; ld.volatile.global.u32 n, [from+64]; {COUNTED}", 1),
        (f"mul.f32 t, a, b; L: ld.volatile.global.u32 m, [from+64]; {IF.format('add.f32 d, t, c;')}"
         f" {UNTIL}", 1),
        (f"mul.f32 t, a, b; L: add.f32 d, t, c; ld.volatile.global.u32 m, [from+64]; "
         f"setp.eq.u32 p, m, 9; @p bra E; {COUNTED} E:", 1),
        # Nested loops, and values that are moved for the sake of another.
        (f"mul.f32 t, a, b; M: add.f32 u, u, c; L: add.f32 d, t, c; {UNTIL} "
         f"{UNTIL.replace('L;', 'M;')}", 1),
        (f"mul.f32 t, a, b; L: max.f32 u, a, c; add.f32 d, t, u; {UNTIL}", 1),
        (f"L: mul.f32 t, a, b; ld.volatile.global.u32 m, [from+64]; {IF.format('')} "
         f"add.f32 d, t, c; {UNTIL}", 1),
        # Another use, a test in front of the loop, something that changes, an addition behind it.
        (f"mul.f32 t, a, b; mov.f32 u, t; L: add.f32 d, t, c; {UNTIL}", 0),
        (f"mul.f32 t, a, b; L: add.f32 d, t, c; add.f32 u, u, t; {UNTIL}", 0),
        (f"mul.f32 t, a, b; L: ld.volatile.global.u32 m, [from+64]; setp.eq.u32 p, m, 0; @p bra E; "
         f"add.f32 d, t, c; {STORE} bra L; E:", 0),
        (f"mul.f32 t, a, b; @q bra E; L: add.f32 d, t, c; {UNTIL} E:", 0),
        (f"mul.f32 t, a, b; L: ld.volatile.global.f32 u, [from+32]; add.f32 d, t, u; {UNTIL}", 0),
        (f"mul.f32 t, a, b; L: {UNTIL} add.f32 d, t, c;", 0),
        (f"L: mul.f32 t, a, b; {UNTIL} add.f32 d, t, c;", 0),
        # In one block of the loop they are fused before anything is moved.
        (f"L: mul.f32 t, a, b; add.f32 d, t, c; add.f32 u, u, t; {UNTIL}", 2),
    ],
)  # fmt: skip
def test_loops(body, fused):
    kernel = Module(_TEXT.format(body))["k"]
    assert not kernel.problems
    assert len(kernel.contracted) == fused, kernel.contracted


def test_a_function_without_loops_moves_nothing():
    kernel = Module(_TEXT.format("mul.f32 t, a, b; @q bra E; add.f32 d, t, c; E:"))["k"]
    assert not kernel.contracted
