"""Which addresses statements take, as ptxas of CUDA 13.5 says (7,182 statements were asked, each
in a file of its own; `.address_size 64`): widths of registers, numbers, names of variables."""

import pytest

from emulator import EmulatorError, Module

WIDTHS = "b8 b16 b32 b64"
NAMES = "16 pp gv cv sv lv"
TEXT = """.version 8.7
.target sm_90a
.address_size 64
.global .align 128 .b8 gv[256]; .const .align 16 .b8 cv[64];
.entry k(.param .align 64 .b8 pp[128]) {{
  .reg .b8 %b8; .reg .b16 %b16; .reg .b32 %b32; .reg .b64 %b64; .reg .pred %p; .reg .b32 %r;
  .shared .align 16 .b8 sv[64]; .local .align 16 .b8 lv[64];
  {};
  ret;
}}"""


def takes(statement):
    try:
        return not Module(TEXT.format(statement)).problems
    except EmulatorError:
        return False


@pytest.mark.parametrize(
    ("statement", "widths", "names"),
    [
        ("ld.u32 %r, [@]", "b8 b16 b64", "gv sv lv"),
        ("st.global.u32 [@], %r", "b8 b16 b64", "gv"),
        ("ld.shared.u32 %r, [@]", WIDTHS, "sv"),
        ("ld.local.u32 %r, [@]", WIDTHS, "16 lv"),
        ("ld.const.u32 %r, [@]", WIDTHS, "cv"),
        ("ld.param.u32 %r, [@]", WIDTHS, "pp"),
        ("st.param.u32 [@], %r", WIDTHS, ""),
        ("red.global.add.u32 [@], %r", "b8 b16 b64", "gv"),
        ("atom.shared.add.u32 %r, [@], %r", WIDTHS, "sv"),
        ("mbarrier.inval.b64 [@]", "b8 b16 b64", "sv"),
        ("mbarrier.inval.shared.b64 [@]", WIDTHS, "sv"),
        ("cp.async.mbarrier.arrive.b64 [@]", "b32 b64", "gv sv lv"),
        ("cp.async.mbarrier.arrive.shared.b64 [@]", WIDTHS, "sv"),
        ("cp.async.cg.shared.global [@], [%b64], 16", WIDTHS, "sv"),
        ("cp.async.cg.shared.global [sv], [@], 16", WIDTHS, "gv"),
        ("cp.async.bulk.prefetch.tensor.1d.L2.global [@, {%r}]", WIDTHS, "gv"),
        ("createpolicy.range.L2::evict_last.b64 %b64, [@], %r, %r", "b32 b64", "gv sv lv"),
        ("ldmatrix.sync.aligned.m8n8.x1.b16 {%r}, [@]", "b32 b64", "gv sv lv"),
        ("prefetchu.L1 [@]", "b8 b16 b64", "gv"),
    ],
)
def test_addresses(statement, widths, names):
    given = [*(f"%{width}" for width in WIDTHS.split()), *NAMES.split()]
    legal = [*(f"%{width}" for width in widths.split()), *names.split()]
    assert [x for x in given if takes(statement.replace("@", x))] == legal


@pytest.mark.parametrize(
    ("statement", "names"),
    [
        ("cvta.global.u64 %b64, @", "gv"),
        ("cvta.shared::cta.u64 %b64, @", "sv"),
        ("cvta.param.u64 %b64, @", "pp"),
        ("cvta.to.global.u64 %b64, @", ""),
        ("mapa.u64 %b64, @, %r", "sv"),
        ("getctarank.u32 %r, @", "sv"),
        ("mov.u64 %b64, @", "pp gv cv sv lv"),
        ("mov.u32 %r, @", "pp cv sv lv"),
    ],
)
def test_names_as_values(statement, names):
    given = ["pp", "gv", "cv", "sv", "lv"]
    assert [x for x in given if takes(statement.replace("@", x))] == names.split()
