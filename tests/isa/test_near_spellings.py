"""Statements near to those of the manual, with the verdict of the ptxas of CUDA 13.5."""

import pytest
from assembler import file_of, find_ptxas, refusals
from spellings import NEWEST, declarations

from emulator import EmulatorError, Module

PTXAS = find_ptxas()
FOUR = "{%f32_1, %f32_2, %f32_3, %f32_4}"
SPARSE = f"m16n8k16.row.col.f32.f16.f16.f32 {FOUR}, {{%b32_1, %b32_2}}, {{%b32_3, %b32_4}}, {FOUR},"
TEXEL = "[%b64_1, {%f32_1}]"
EIGHT = ", ".join(f"%b32_{i}" for i in range(8))
SPREAD = "spdecompress.b8.b4.sp::1:8.x4"
BYTES = "mbarrier::complete_tx::bytes"
#: (statement, target, PTX version, ptxas takes it)
ASKED = (
    (f"mma.sync.aligned.{SPARSE} %b32_5, 0;", "sm_90", NEWEST, False),
    (f"mma.sp.sync.aligned.{SPARSE} {{%b32_5, %b32_6}}, 0;", "sm_90", NEWEST, True),
    ("min.f32 %f32_1, %f32_2, %f32_3, %f32_4;", "sm_100", (8, 8), True),
    ("min.f32 %f32_1, %f32_2, %f32_3, %f32_4;", "sm_100", (8, 7), False),
    ("rcp.rm.ftz.f64 %f64_1, %f64_2;", "sm_75", (6, 3), True),
    ("sqrt.rm.ftz.f64 %f64_1, %f64_2;", "sm_75", NEWEST, False),
    ("sin.approx.ftz.2pi.f32 %f32_1, %f32_2;", "sm_75", NEWEST, True),
    ("sin.approx.2pi.f32 %f32_1, %f32_2;", "sm_75", NEWEST, False),
    ("fence.alias.sync_restrict::read.release.sys;", "sm_90", NEWEST, True),
    ("setp.le.or.bf16 %pred_1, %b16_2, %b16_3, %pred_4;", "sm_90", NEWEST, True),
    ("setp.le.or.bf16 %pred_1, %b16_2, %b16_3, 1;", "sm_90", NEWEST, False),
    ("setp.le.or.f16 %pred_1, %b16_2, %b16_3, 1;", "sm_90", NEWEST, True),
    ("bar.sync 1, 0;", "sm_90", NEWEST, True),
    ("bar.sync 1, -32;", "sm_90", NEWEST, True),
    ("bar.sync 1, -5;", "sm_90", NEWEST, False),
    ("bar.arrive 1, 0;", "sm_90", NEWEST, False),
    ("isspacep.global %pred_1, %b64_1;", "sm_90", NEWEST, True),
    ("isspacep.global %pred_1, %b128_1;", "sm_90", NEWEST, False),
    ("ld.global.u8 %b128_1, [%b64_1];", "sm_90", (8, 3), True),
    ("ld.global.u8 %b128_1, [%b64_1];", "sm_90", (8, 2), False),
    (f"atom.global.add.v4.f32 _, [%b64_5], {FOUR};", "sm_90", NEWEST, True),
    ("ld.global.v2.u32 _, [%b64_1];", "sm_90", NEWEST, False),
    ("mov.b32 %b32_1, {%f32_2};", "sm_90", NEWEST, True),
    ("mov.b32 %b32_1, {%b16_1, %b16_2, %b16_3};", "sm_90", NEWEST, False),
    ("ld.param::func.u32 %u32_1, [%b64_1];", "sm_90", NEWEST, False),
    ("ld.param::func.u32 %u32_1, [pp];", "sm_90", NEWEST, False),
    ("ld.u32 %u32_1, [pp];", "sm_90", NEWEST, False),
    ("prefetch.param.tensormap [pp];", "sm_90", NEWEST, True),
    ("prefetch.tensormap [pp];", "sm_90", NEWEST, False),
    ("fence.proxy.tensormap::generic.acquire.gpu [pp], 128;", "sm_90", NEWEST, True),
    ("prefetch.tensormap [%u16_1];", "sm_90", NEWEST, False),
    ("prefetch.L1 [%u16_1];", "sm_90", NEWEST, True),
    ("multimem.red.global.add.u32 [%b32_1], %u32_1;", "sm_90", NEWEST, False),
    (f"st.async.{BYTES}.b32 [%b64_1], %b32_1, [%u16_1];", "sm_90", NEWEST, False),
    (f"st.async.shared::cluster.{BYTES}.b32 [%b64_1], %b32_1, [%u16_1];", "sm_90", NEWEST, True),
    ("mbarrier.arrive.b64 %u64_1, [%b64_2], {%u32_1};", "sm_90", NEWEST, True),
    ("cp.async.ca.shared.global [%b64_1], [%b64_2], 4, 3;", "sm_90", NEWEST, True),
    ("cp.async.ca.shared.global [%b64_1], [%b64_2], 4, 8;", "sm_90", NEWEST, False),
    ("suld.b.1d.b32.trap %b32_1, [%b64_1, {%b32_1, %f32_2}];", "sm_90", NEWEST, True),
    ("suld.b.2d.b32.trap %b32_1, [%b64_1, {%b32_1, %b32_2, %b32_3}];", "sm_90", NEWEST, False),
    (f"tex.1d.v4.f32.f32 {FOUR}, [%b64_1, {{%f32_1}}], {{%s32_1, %s32_2}};", "sm_90", NEWEST, True),
    (f"tex.level.1d.v4.f32.f32 {FOUR}, [%b64_1, {{%f32_1}}], {{%f32_5}};", "sm_90", NEWEST, True),
    (f"tex.grad.1d.v4.f32.f32 {FOUR}, {TEXEL}, {{%u32_5}}, {{%f32_5}};", "sm_90", NEWEST, False),
    (f"tex.grad.1d.v4.f32.f32 {FOUR}, {TEXEL}, %f32_5, {{%f32_5}};", "sm_90", NEWEST, False),
    (f"tex.1d.v4.f32.f32 {FOUR}|%pred_1, [%b64_1, {{%f32_1}}];", "sm_80", (7, 1), True),
    (f"tex.1d.v4.f32.f32 {FOUR}|%pred_1, [%b64_1, {{%f32_1}}];", "sm_80", (7, 0), False),
    ("vadd4.u32.u32.s32.add %u32_1, %u32_2, %u32_3, %f16x2_4;", "sm_90", NEWEST, True),
    ("vadd4.u32.u32.u32.add %u32_1, %u32_2, %u32_3, %f16x2_4;", "sm_90", NEWEST, False),
    ("cvt.rn.satfinite.e2m1x2.bf16x2 %b8_1, %f32_2;", "sm_100a", NEWEST, True),
    ("cvt.rn.satfinite.e4m3x2.bf16x2 %b16_1, %f32_2;", "sm_100a", NEWEST, False),
    ("tcgen05.shift.cta_group::1.down [%f16x2_1];", "sm_100a", NEWEST, True),
    ("tcgen05.ld.sync.aligned.32x32b.x1.b32 %b32_1, [%b32_4];", "sm_100a", NEWEST, False),
    ("tcgen05.st.sync.aligned.32x32b.x1.b32 [%b32_4], {3};", "sm_100a", NEWEST, False),
    ("tcgen05.ld.red.sync.aligned.32x32b.x2.min.u32 {%f32_1, %f32_2}, %s32_3, [%b32_4];", "sm_107a",
     NEWEST, True),
    ("add.e4m3x4.e4m3x4 %b32_3, {%b32_1, %b32_2}, %b32_2;", "sm_100a", NEWEST, True),
    (f"{SPREAD} {{{EIGHT}}}, {{%b32_9}}, {{1}};", "sm_107a", NEWEST, False),
    (f"{SPREAD} {{{EIGHT}}}, {{%b32_9}}, {{%b32_8}};", "sm_107a", NEWEST, True),
)  # fmt: skip


def is_taken(statement, target, version):
    try:
        return not Module(file_of([written(statement)], target, version)).problems
    except EmulatorError:
        return False


def written(statement):
    return f"{declarations(statement)} {statement}"


@pytest.mark.parametrize(("statement", "target", "version", "taken"), ASKED)
def test_the_verdict_is_that_of_ptxas(statement, target, version, taken):
    assert is_taken(statement, target, version) == taken


@pytest.mark.slow
@pytest.mark.skipif(not PTXAS or "cu13" not in PTXAS, reason="ptxas 13.5 is not here")
def test_ptxas_says_so():
    for statement, target, version, taken in ASKED:
        refused = refusals(PTXAS, [written(statement)], target, version)
        assert (not refused) == taken, (statement, refused)
