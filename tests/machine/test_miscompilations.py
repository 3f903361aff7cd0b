"""Warnings where ptxas is known to compile a statement to something else than PTX says."""

import numpy as np
import pytest
from machine_code import MISSING, disassembled
from paths import GOLDEN, ROOT

from emulator import Module
from emulator.machine.checks.miscompilations import ROWS
from emulator.testing import assert_clean

TEXT = """
.version 8.7
.target TARGET
.address_size 64
.visible .entry k(.param .u64 o)
{
    .reg .b32 %a<4>, %b<4>, %c<8>, %r0;  .reg .b64 %o, %x;
    .reg .f32 %f<8>;  .reg .pred %p, %q;  .reg .b16 %h<2>;
    ld.param.u64 %o, [o];
    mov.u32 %r0, %tid.x;
    setp.lt.u32 %p, %r0, LIMIT;
    ld.global.v4.u32 {%a0, %a1, %a2, %a3}, [%o];
    ld.global.v4.u32 {%b0, %b1, %b2, %b3}, [%o];
    ld.global.v4.u32 {%c0, %c1, %c2, %c3}, [%o];
    ld.global.v4.f32 {%f0, %f1, %f2, %f3}, [%o];
    mov.b64 %x, {%a0, %a1};
    STATEMENT
    ret;
}
"""
FP8 = "mma.sync.aligned.SHAPE.row.col.f32.e4m3.e5m2.f32 {D}, {A}, {B}, {%f0, %f1, %f2, %f3};"
LONG = FP8.replace("SHAPE", "m16n8k32").replace("A", "%a0, %a1, %a2, %a3").replace("B", "%b0, %b1")
SHORT = FP8.replace("SHAPE", "m16n8k16").replace("{A}", "{%a0, %a1}").replace("{B}", "{%b0}")
INT4 = "mma.sync.aligned.m8n8k32.row.col.s32.s4.s4.s32 {%c0, %c1}, {%a0}, {%b0}, {%c0, %c1};"
BITS = (
    "mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.OP.popc {%c0, %c1}, {%a0}, {%b0}, {%c0, %c1};"
)
#: two pairs of fp8, the statement that changes a source of the first, and where ptxas looks again
PAIRS = "cvt.rn.satfinite.e4m3x2.f32 %h0, %f0, %f1; cvt.rn.satfinite.e4m3x2.f32 %h1, %f2, %f3;"
CHANGE = "@%p add.f32 %f1, %f2, %f1;"
PACK = "mov.b32 %c0, {%h0, %h1};"


def launched(statement, target="sm_90a", limit=16, **options):
    text = TEXT.replace("STATEMENT", statement).replace("TARGET", target)
    kernel = Module(text.replace("LIMIT", str(limit)))["k"]
    return kernel, kernel.launch(1, 32, [np.zeros(64, "u4")], check=True, **options)


def warned(statement, target="sm_90a", limit=16):
    _, report = launched(statement, target, limit)
    assert not report.findings and report.code == 0
    return [(x.kind, x.count) for x in report.warnings]


CASES = [
    (0, "@%p vadd4.u32.u32.u32.add %c0, %a0, %b0, %c1;", 16),
    (0, "@!%p vsub4.u32.u32.u32.add %c0, %a0, %b0, %c1;", 16),
    (1, "@%p testp.finite.f32 %q, %f0;", 16),
    (2, "@%p set.lt.f32.f32 %f4, %f0, %f1;", 16),
    (2, "@%p set.lt.and.f32.s64 %f4, %x, %x, %p;", 16),
    (3, LONG.replace("D", "%f1, %f0, %f3, %f2"), 32),
    (3, SHORT.replace("D", "%f4, %f0, %f5, %f6"), 32),
    (4, INT4, 32),
    (5, BITS.replace("OP", "xor"), 32),
    (7, PAIRS + CHANGE + PACK, 16),
    (7, PAIRS + PACK + CHANGE + "mul.bf16x2 %c1, %c0, %c2;", 16),
    (7, PAIRS + CHANGE + "mov.b64 %x, {%h0, %h1, %h1, %h0};", 16),
    (7, PAIRS + CHANGE.replace("%f1", "%f0") + PACK, 16),
    (7, PAIRS.replace("e4m3", "e5m2") + CHANGE + PACK, 16),
]


@pytest.mark.parametrize("row, statement, count", CASES)
def test_a_known_miscompilation_is_a_warning(row, statement, count):
    _, report = launched(statement)
    (warning,) = report.warnings
    assert not report.findings and report.code == 0
    assert warning.kind == "known miscompilation" and warning.count == count
    assert ROWS[row].effect in warning.reason and "ptxas 13.5 is known to" in warning.reason


#: the row that is about functions that call themselves
RECURSIVE = 6


def test_every_row_has_a_case():
    assert {*(row for row, _, _ in CASES), RECURSIVE} == set(range(len(ROWS)))


@pytest.mark.parametrize("statement", [
    "vadd4.u32.u32.u32.add %c0, %a0, %b0, %c1;", "@%p vadd4.u32.u32.u32 %c0, %a0, %b0, %c1;",
    "@%p vadd4.u32.s32.u32.add %c0, %a0, %b0, %c1;",
    "@%p vadd2.u32.u32.u32.add %c0, %a0, %b0, %c1;",
    "testp.finite.f32 %q, %f0;", "@%p set.lt.u32.f32 %c0, %f0, %f1;",
    "set.lt.f32.f32 %f4, %f0, %f1;",
    LONG.replace("D", "%f0, %f1, %f2, %f3"), LONG.replace("D", "%f4, %f5, %f6, %f7"),
    PAIRS + PACK + CHANGE, PAIRS + CHANGE.replace("@%p ", "") + PACK, CHANGE + PAIRS + PACK,
    PAIRS + CHANGE.replace("%f1,", "%f4,") + PACK, PAIRS + CHANGE + "mov.b32 %c0, {%h1, %h0};",
    PAIRS + PACK + CHANGE + "add.u32 %c1, %c0, %c2;", PAIRS + CHANGE + "cvt.u32.u16 %c1, %h0;",
    PAIRS + CHANGE.replace("add.f32 %f1, %f2, %f1", "mov.f32 %f1, %f2") + PACK,
    PAIRS + CHANGE.replace("%f1", "%f3") + PACK,
    BITS.replace("OP", "and"), INT4.replace("k32", "k16").replace("s4", "s8"),
])  # fmt: skip
def test_its_right_relatives_are_not(statement):
    assert not warned(statement)


def test_a_guard_that_holds_everywhere_does_no_harm():
    assert not warned("@%p testp.finite.f32 %q, %f0;", limit=32)
    assert warned("@%p testp.finite.f32 %q, %f0;", limit=0) == [("known miscompilation", 32)]


@pytest.mark.parametrize("statement", [LONG.replace("D", "%f1, %f0, %f3, %f2"), INT4])
def test_other_generations_have_instructions_of_their_own(statement):
    assert not warned(statement, "sm_89")


def test_warnings_are_shown_and_fail_a_test_that_asks_for_it():
    kernel, report = launched(INT4)
    assert "warning: known miscompilation: ptxas 13.5 is known to" in str(report)
    assert report.data["warnings"][0]["line"] == 17
    assert "<h3>Warnings</h3>" in report.html()
    given = [np.zeros(64, "u4")]
    assert_clean(kernel, 1, 32, given)
    with pytest.raises(AssertionError, match="known miscompilation"):
        assert_clean(kernel, 1, 32, given, warnings=True)


def test_the_guide_has_the_table():
    page = (ROOT / "emulator" / "guide" / "miscompilations.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| ")][1:]
    assert rows == [row.line() for row in ROWS]


RECURSION = """
.version 8.7
.target sm_90a
.address_size 64
.func (.param .b32 sum) f(.param .b32 n)
{
    .reg .b32 %n, %s;  .reg .pred %last;  .param .b32 inner, given;
    ld.param.u32 %n, [n];
    mov.u32 %s, 7;
    setp.eq.u32 %last, %n, 0;
    @%last bra END;
    sub.u32 %s, %n, 1;
    st.param.b32 [given], %s;
    call (inner), f, (given);
    ld.param.u32 %s, [inner];
    mad.lo.u32 %s, %s, 3, %n;
END:
    st.param.b32 [sum], %s;
    ret;
}
.visible .entry k(.param .u64 o, .param .u32 depths, .param .u32 all)
{
    .reg .b32 %n, %s, %all;  .reg .b64 %o;  .reg .pred %p;  .param .b32 sum, n;
    ld.param.u64 %o, [o];
    ld.param.u32 %all, [all];
    mov.u32 %s, %tid.x;
    mad.wide.u32 %o, %s, 4, %o;
    ld.param.u32 %n, [depths];
    and.b32 %n, %n, %s;
    st.param.b32 [n], %n;
    call (sum), f, (n);
    ld.param.u32 %s, [sum];
    STATEMENT
    st.global.u32 [%o], %s;
    ret;
}
"""


@pytest.mark.parametrize("statement, depths, count", [
    ("bar.warp.sync -1;", 3, 32), ("shfl.sync.bfly.b32 %s, %s, 1, 31, -1;", 3, 32),
    ("vote.sync.any.pred %p, %p, 0xffffffff;", 1, 32),
    ("bar.warp.sync %all;", 3, 0), ("bar.warp.sync -1;", 0, 0), ("bar.sync 0;", 3, 0),
])  # fmt: skip
def test_lanes_that_come_back_from_different_depths(statement, depths, count):
    kernel = Module(RECURSION.replace("STATEMENT", statement + statement))["k"]
    report = kernel.launch(1, 32, [np.zeros(32, "u4"), depths, 0xFFFFFFFF], check=True)
    assert sum(x.count for x in report.warnings) == count and len(report.warnings) == bool(count)
    assert all(ROWS[RECURSIVE].effect in x.reason for x in report.warnings)


@pytest.mark.slow
@pytest.mark.skipif(bool(MISSING), reason=f"without {MISSING}")
def test_no_wait_is_left_behind_a_recursion(tmp_path):
    """`test_convergence` has what an H200 showed behind this recursion: lanes come in parts."""
    text = bytes(np.load(GOLDEN / "convergence" / "recursion.npz")["ptx"]).decode()
    waits = text.replace("activemask", "bar.warp.sync -1; activemask")
    code, waiting, plain = (
        disassembled(x, "sm_90a", tmp_path, options)["u_lin"]
        for x, options in ((text, ()), (waits, ()), (waits, ("-O0",)))
    )
    without = [[x.split()[0] for x in lines if x[0] != "."] for lines in (code, waiting)]
    without[1].remove("NOP")
    assert without[0] == without[1]
    assert any("WARPSYNC" in line for line in plain)
