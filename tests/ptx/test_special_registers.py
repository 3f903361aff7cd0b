"""Where a register that PTX predefines may stand, and the types that it is read as."""

import itertools
import shutil
import subprocess

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
}  # fmt: skip
#: other statements, and whether they are legal
STATEMENTS = {
    "add.u32 r, %tid.x, 1;": False, "setp.eq.u32 p, %tid.x, 0;": False,
    "st.global.u32 [d], %tid.x;": False, "cvt.rn.f32.u32 f, %tid.x;": False,
    "cvt.rn.f32.u64 f, %clock64;": False, "selp.u32 r, 1, 0, %is_explicit_cluster;": False,
    "cvt.u64.u32 d, %tid.x;": True, "cvt.u64.u16 d, %laneid;": True,
    "cvt.u32.u64 r, %clock64;": True, "mov.b64 d, {%laneid, %smid};": True,
    "mov.b32 {h, h}, %tid.x;": True, "add.u32 r, WARP_SZ, r;": True,
}  # fmt: skip


def text(statement):
    return f""".version 8.4
    .target sm_90
    .address_size 64
    .visible .entry k() {{
        .reg .pred p; .reg .b16 h; .reg .b32 r; .reg .b64 d; .reg .f32 f; .reg .f64 g;
        {statement}
        ret;
    }}"""


CASES = {
    f"mov.{type_} {REGISTERS[type_]}, {name};": type_ in types
    for (name, types), type_ in itertools.product(READ_AS.items(), REGISTERS)
} | STATEMENTS


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
