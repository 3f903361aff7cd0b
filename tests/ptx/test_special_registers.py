"""Where a register that PTX predefines may stand, and the types that it is read as."""

import itertools
import shutil
import subprocess

import numpy as np
import pytest

from emulator import Module

PTXAS = shutil.which("ptxas")
REGISTERS = {"b16": "h", "u16": "h", "s16": "h", "b32": "r", "u32": "r", "s32": "r", "f32": "f"}
REGISTERS |= {"b64": "d", "u64": "d", "s64": "d", "f64": "g", "pred": "p"}
HALVES, WORDS, PAIRS = (tuple(f"{x}{bits}" for x in "bus") for bits in (16, 32, 64))
#: as ptxas 13.0 has them
READ_AS = {
    "%laneid": WORDS, "%warpid": WORDS, "%clock": WORDS, "%clock_hi": WORDS, "%smid": WORDS,
    "%lanemask_lt": WORDS, "%globaltimer_lo": WORDS, "%cluster_ctarank": WORDS, "%pm0": WORDS,
    "%cluster_ctaid.x": WORDS, "%clusterid.y": WORDS, "%dynamic_smem_size": WORDS,
    "%envreg3": WORDS, "%reserved_smem_offset_end": WORDS, "%nsmid": WORDS,
    "%tid.x": HALVES + WORDS, "%ntid.y": HALVES + WORDS, "%nctaid.w": HALVES + WORDS,
    "%clock64": PAIRS, "%globaltimer": PAIRS, "%pm0_64": PAIRS, "%current_graph_exec": PAIRS,
    "%gridid": HALVES + WORDS + PAIRS, "%is_explicit_cluster": ("pred",), "%tid": (),
    "%tid.a": HALVES + WORDS, "%clusterid.g": WORDS,
}  # fmt: skip
#: other statements, and whether they are legal
STATEMENTS = {
    "add.u32 r, %tid.x, 1;": False,
    "setp.eq.u32 p, %tid.x, 0;": False,
    "st.global.u32 [d], %tid.x;": False,
    "cvt.rn.f32.u32 f, %tid.x;": False,
    "cvt.rn.f32.u64 f, %clock64;": False,
    "selp.u32 r, 1, 0, %is_explicit_cluster;": False,
    "cvt.u64.u32 d, %tid.x;": True,
    "cvt.u64.u16 d, %laneid;": True,
    "cvt.u32.u64 r, %clock64;": True,
    "mov.b64 d, {%laneid, %smid};": True,
    "mov.b32 {h, h}, %tid.x;": True,
    "add.u32 r, WARP_SZ, r;": True,
    "@%is_explicit_cluster bra L; L:": True,
    "@!%is_explicit_cluster mov.u32 r, 1;": True,
    "mov.v4.u32 {r, r, r, r}, %tid;": True,
    "mov.v4.s32 {r, _, r, _}, %clusterid;": True,
    "mov.v4.b16 {h, h, h, h}, %nctaid;": True,
    "mov.v4.b32 {f, f, f, f}, %tid;": True,
    "mov.b128 q, %tid;": True,
    "mov.v4.u32 v, %ntid;": True,
    "mov.v4.u32 v, v;": True,
    "mov.v4.u32 v, {r, r, %tid.x, %laneid};": True,
    "mov.v2.u64 {d, d}, {d, 7};": True,
    "mov.v2.f32 {f, _}, {1.0, f};": True,
    "mov.v2.f64 {g, g}, {g, g};": True,
}
#: statements of which the message is another one
REFUSED = (
    "mov.v4.u16 {h, h, h, h}, %clusterid;", "mov.v2.u32 {r, r}, %tid;", "mov.b64 d, %tid;",
    "mov.v4.u64 {d, d, d, d}, {d, d, d, d};", "mov.v4.u32 {_, _, _, _}, %tid;",
    "mov.v2.pred {p, p}, {p, p};", "mov.v4.u16 {r, r, r, r}, %tid;", "mov.b128 {d, d}, %tid;",
    "@%laneid mov.u32 r, 1;", "mov.v2.u16 {h, h}, {h, %laneid};",
)  # fmt: skip


def text(statement):
    return f""".version 8.4
    .target sm_90
    .address_size 64
    .visible .entry k() {{
        .reg .pred p; .reg .b16 h; .reg .b32 r; .reg .b64 d; .reg .f32 f; .reg .f64 g;
        .reg .v4 .u32 v; .reg .b128 q;
        {statement}
        ret;
    }}"""


CASES = (
    {
        f"mov.{type_} {REGISTERS[type_]}, {name};": type_ in types
        for (name, types), type_ in itertools.product(READ_AS.items(), REGISTERS)
    }
    | STATEMENTS
    | dict.fromkeys(REFUSED, False)
)


@pytest.mark.parametrize("name", READ_AS)
def test_types_that_mov_reads(name):
    for statement in (x for x in CASES if f" {name};" in x):
        assert (not Module(text(statement)).problems) == CASES[statement], statement


@pytest.mark.parametrize("statement", STATEMENTS)
def test_other_statements(statement):
    problems = Module(text(statement)).problems
    assert (not problems) == STATEMENTS[statement]
    if problems:
        assert "takes no special register: mov %" in problems[0].reason


@pytest.mark.parametrize("statement", REFUSED)
def test_refused(statement):
    assert Module(text(statement)).problems


@pytest.mark.parametrize("engine", ["reference", "vector", "compiled"])
def test_vectors_of_special_registers(engine):
    words = np.zeros((6, 8), np.uint32)
    module = Module(""".version 9.0
    .target sm_90
    .address_size 64
    .visible .entry k(.param .u64 out) {
        .reg .b32 r<5>; .reg .b64 d; .reg .b128 q; .reg .v2 .u32 v; .reg .v4 .u16 h;
        ld.param.u64 d, [out];
        mov.v4.u32 {r0, r1, r2, r3}, %tid;
        mad.lo.u32 r4, r1, 3, r0;
        mad.wide.u32 d, r4, 32, d;
        mov.v2.u32 v, {r1, r0};
        mov.v2.u32 v, {v.y, v.x};
        mov.v4.u16 h, %ntid;
        mov.b128 q, %nctaid;
        st.global.b128 [d], q;
        @%is_explicit_cluster mov.b128 q, %tid;
        st.global.v4.u16 [d+16], h;
        @!%is_explicit_cluster mov.v2.u32 v, {%tid.a, 7};
        st.global.v2.u32 [d+24], v;
        ret;
    }""")
    module["k"].launch(1, (3, 2), [words], engine=engine)
    expected = [[1, 1, 1, 0, 2 << 16 | 3, 1, 0, 7]] * 6
    np.testing.assert_array_equal(words, expected)
    module["k"].launch(1, (3, 2), [words], engine=engine, cluster=1)
    np.testing.assert_array_equal(words[:, 6:], [[x, y] for y in range(2) for x in range(3)])


@pytest.mark.slow
@pytest.mark.skipif(not PTXAS, reason="ptxas is not on this machine")
def test_ptxas_says_so(tmp_path):
    path = tmp_path / "k.ptx"
    for statement, legal in CASES.items():
        path.write_text(text(statement))
        done = subprocess.run(
            [PTXAS, "-arch=sm_90", "-o", tmp_path / "k.cubin", path], capture_output=True
        )
        assert (done.returncode == 0) == legal, statement
