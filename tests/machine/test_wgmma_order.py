"""When a wgmma takes effect: at its issue, at the wait for its group, or in between."""

import numpy as np
import pytest
from kernel_recordings import KERNELS, REAL, differing_bytes

from emulator import KernelError, Module
from emulator.machine.reference import engine as reference_engine
from emulator.machine.shared.products import POISON_FLOAT, POISON_INTEGER, PendingProduct, Products

pytestmark = pytest.mark.sampled(16)

ENGINES = ("vector", "reference")
#: orders, with seeds of which each has other moments
ORDERS = [("late", None), ("random", 0), ("random", 1)]
#: types of D, A and B -> the instruction for 64 x 8, 32 bytes along k, and registers of D
MULTIPLY = {
    "f32": ("m64n8k16.f32.f16.f16", 4),
    "f16": ("m64n8k16.f16.f16.f16", 2),
    "s32": ("m64n8k32.s32.s8.s8", 4),
}
#: 4 KiB of shared memory hold small numbers of any type, the tile of B behind that of A; %x<4> are
#: registers of A, %a and %b descriptors, %t the thread, %at and %out its 32
#: bytes there and of `out`
TEXT = """.version 9.1
.target sm_90a
.address_size 64
{functions}
.visible .entry go(.param .u64 out)
{{
    .reg .pred %p<9>; .reg .b32 %t, %at, %r<40>, %x<4>, %d<4>, %e<4>; .reg .b64 %a, %b, %out;
    .shared .align 1024 .b8 room[4096];
    mov.u32 %t, %tid.x; mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ntid.x;
    mad.lo.u32 %r2, %r0, %r1, %t; ld.param.u64 %out, [out];
    mad.wide.u32 %out, %r2, 32, %out;
    and.b32 %r3, %t, 127; mov.u32 %at, room; mad.lo.u32 %at, %r3, 32, %at;
    and.b32 %r4, %t, 3; mad.lo.u32 %x0, %r4, 0x02000200, 0x34003400;
    add.u32 %r5, %r0, %t; and.b32 %r5, %r5, 5; mad.lo.u32 %x1, %r5, 0x02000200, 0x2c003400;
    add.u32 %x2, %x0, 0x00010000; mov.u32 %x3, %x1;
    st.shared.v4.b32 [%at], {{%x0, %x1, %x2, %x3}};
    st.shared.v4.b32 [%at+16], {{%x1, %x0, %x0, %x2}};
    mov.u32 %r6, room; shr.u32 %r6, %r6, 4; cvt.u64.u32 %a, %r6;
    or.b64 %a, %a, 0x0000001000080000; add.u64 %b, %a, 128;
    mov.b32 %d0, 0; mov.b32 %d1, 0; mov.b32 %d2, 0; mov.b32 %d3, 0;
    mov.b32 %e0, 0; mov.b32 %e1, 0; mov.b32 %e2, 0; mov.b32 %e3, 0;
    fence.proxy.async; bar.sync 0; wgmma.fence.sync.aligned;
    {body}
    st.global.v4.b32 [%out], {{%d0, %d1, %d2, %d3}};
    st.global.v4.b32 [%out+16], {{%e0, %e1, %e2, %e3}};
    ret;
}}
"""
COMMIT = "wgmma.commit_group.sync.aligned;"


def wait(groups=0):
    return f"wgmma.wait_group.sync.aligned {groups};"


def multiply(types="f32", a="%a", d="%d", scale_d=1):
    """wgmma.mma_async with A in shared memory, or in registers."""
    words, count = MULTIPLY[types]
    if a == "registers":
        a = "{%x0, %x1, %x2, %x3}"
    sums = ", ".join(f"{d}{i}" for i in range(count))
    scales = "" if types == "s32" else ", 1, 1" + (", 0" if a[0] == "{" else ", 0, 0")
    return f"wgmma.mma_async.sync.aligned.{words} {{{sums}}}, {a}, %b, {scale_d}{scales};"


def launch(body, engine="vector", order="early", seed=None, grid=2, block=128, functions=""):
    """The words ``(threads, 8)`` of both accumulators."""
    out = np.zeros((grid * block, 8), np.uint32)
    kernel = Module(TEXT.format(body=body, functions=functions))["go"]
    kernel.launch(grid, block, [out], engine=engine, async_order=order, seed=seed)
    return out


def both(body, order="early", seed=None, **shape):
    """The same words by both engines."""
    vector, reference = (launch(body, engine, order, seed, **shape) for engine in ENGINES)
    assert (vector == reference).all()
    return vector


@pytest.fixture(autouse=True)
def fast_arithmetic(monkeypatch):
    """Both engines multiply by the same arithmetic: only the moments matter here."""
    monkeypatch.setattr(reference_engine, "ARITHMETIC", "auto")


# --- kernels that wait ----------------------------------------------------------------------------


@pytest.mark.parametrize("order, seed", ORDERS)
@pytest.mark.parametrize("a", ["%a", "registers"])
@pytest.mark.parametrize("types", MULTIPLY)
def test_who_waits_gets_the_sums(types, a, order, seed):
    body = multiply(types, a) + COMMIT + wait()
    early = both(body)
    assert early[:, 0].all() and len(np.unique(early[:, 0])) > 3
    assert (both(body, order, seed) == early).all()


@pytest.mark.parametrize("order, seed", ORDERS)
@pytest.mark.parametrize("types", MULTIPLY)
def test_sums_are_handed_on(types, order, seed):
    """Those that add to the same registers need no wait in between, also in other groups."""
    one, other = multiply(types), multiply(types, "registers")
    body = one + other + COMMIT + one + multiply(types, d="%e") + COMMIT + other + COMMIT + wait()
    early = both(body)
    assert (early != both(one + COMMIT + wait())).any()
    assert (both(body, order, seed) == early).all()


def test_without_handing_on_sums_are_wrong(monkeypatch):
    body = multiply() + multiply() + COMMIT + wait()
    early = both(body)
    monkeypatch.setattr(Products, "hand_on", lambda self, due, sums: np.ones(len(sums), np.bool_))
    assert (launch(body, order="late") != early).any()


@pytest.mark.parametrize("order, seed", ORDERS)
def test_an_accumulator_that_is_not_read(order, seed):
    body = multiply() + multiply(scale_d=0) + COMMIT + wait()
    assert (both(body, order, seed) == both(multiply() + COMMIT + wait())).all()


@pytest.mark.parametrize("order, seed", ORDERS)
@pytest.mark.parametrize("block", [160, 256, 288])
def test_blocks_with_more_warps(block, order, seed):
    """Some blocks have warps behind the last whole warpgroup, which leave or copy."""
    body = f"setp.ge.u32 %p1, %t, {block // 128 * 128}; @%p1 bra DONE;"
    body += multiply(a="registers") + multiply() + COMMIT + wait() + "DONE:"
    early = launch(body, grid=3, block=block)
    assert early.reshape(3, block, 8)[:, : block // 128 * 128, 0].all()
    assert (both(body, order, seed, grid=3, block=block) == early).all()


@pytest.mark.parametrize("block", [160, 256, 288])
def test_checks_know_the_warpgroups_of_such_blocks(block):
    body = f"setp.ge.u32 %p1, %t, {block // 128 * 128}; @%p1 bra DONE;"
    body += multiply(a="registers") + multiply() + COMMIT + "WAIT DONE:"
    for text, kinds in ((wait(), set()), ("", {"wgmma in flight"})):
        kernel = Module(TEXT.format(functions="", body=body.replace("WAIT", text)))["go"]
        out = np.zeros(3 * block * 8, np.uint32)
        report = kernel.launch(3, block, [out], check=True)
        assert {finding.kind for finding in report.findings} == kinds


@pytest.mark.parametrize("order, seed", ORDERS)
def test_warpgroups_that_part(order, seed):
    """Each has its own groups, also where they go different ways and meet again."""
    body = multiply() + COMMIT + "setp.ge.u32 %p1, %t, 128; @%p1 bra OTHER;"
    body += multiply(d="%e") + COMMIT + wait() + "bra DONE; OTHER:" + wait()
    body += multiply(a="registers", d="%e") + COMMIT + multiply() + COMMIT + wait() + "DONE:"
    assert (both(body, order, seed, block=256) == launch(body, block=256)).all()


#: warps 0 to 2 meet at MEET in two parts, without warp 3: no statement names A after that
PARTS = """setp.lt.u32 %p1, %t, 64; @%p1 bra MEET; setp.ge.u32 %p2, %t, 96; @%p2 bra SLOW;
add.u32 %r9, %t, 0;
MEET: add.u32 %r9, %t, 1; bra ALL;
SLOW: add.u32 %r9, %t, 2;
ALL:"""


def test_registers_of_a_last_until_they_are_read(monkeypatch):
    body = multiply(a="registers") + COMMIT + PARTS + wait()
    early = both(body)
    assert (both(body, "late") == early).all()
    monkeypatch.setattr(PendingProduct, "sources", 0)
    assert (launch(body, order="late") != early).any()


CALLED = ".func later() { " + wait() + " ret; }"
LOST = """.func lost()
{{ .reg .b32 %x<4>, %d<4>; .reg .b64 %b; mov.b32 %x0, 0x3c003c00; mov.b64 %b, 0x0000001000080040;
    mov.b32 %x1, %x0; mov.b32 %x2, %x0; mov.b32 %x3, %x0;
    mov.b32 %d0, 0; mov.b32 %d1, 0; mov.b32 %d2, 0; mov.b32 %d3, 0;
    {multiply} {commit} ret; }}
"""


@pytest.mark.parametrize("order, seed", ORDERS)
def test_a_function_that_waits(order, seed):
    body = multiply(a="registers") + COMMIT + "call later;"
    assert (both(body, order, seed, functions=CALLED) == both(body, functions=CALLED)).all()


@pytest.mark.parametrize("order, seed", ORDERS)
def test_registers_of_a_call_that_has_ended(order, seed):
    lost = LOST.format(multiply=multiply(a="registers"), commit=COMMIT)
    body = "call lost; call lost;" + multiply() + COMMIT + wait()
    assert (both(body, order, seed, functions=lost) == both(body, functions=lost)).all()


# --- kernels that do not --------------------------------------------------------------------------


@pytest.mark.parametrize("missing", ["wait", "commit"])
@pytest.mark.parametrize("types", MULTIPLY)
def test_who_does_not_wait_gets_a_pattern(types, missing):
    body = multiply(types) + (COMMIT if missing == "wait" else wait())
    assert (both(body) == both(multiply(types) + COMMIT + wait())).all()
    late, count = both(body, "late"), MULTIPLY[types][1]
    assert (late[:, :count] == (POISON_INTEGER if types == "s32" else POISON_FLOAT)).all()
    assert not late[:, count:].any()


def test_the_patterns():
    assert np.isnan(np.array([POISON_FLOAT], np.uint32).view(np.float16)).all()
    assert np.isnan(np.array([POISON_FLOAT], np.uint32).view(np.float32)).all()
    assert POISON_INTEGER == 0xDEADBEEF


def test_the_newest_groups_are_not_waited_for():
    body = multiply() + COMMIT + multiply(d="%e", a="registers") + COMMIT + wait(1)
    early, late = both(body), both(body, "late")
    assert (late[:, :4] == early[:, :4]).all() and (late[:, 4:] == POISON_FLOAT).all()


def changed(change, then=""):
    """Operands change between the issue and the wait."""
    return multiply(a="registers") + multiply(d="%e") + COMMIT + change + then + wait()


CHANGES = {
    "shared memory": "st.shared.v4.b32 [%at], {%t, %t, %x0, %x1}; fence.proxy.async; bar.sync 0;",
    "registers of A": "xor.b32 %x0, %x0, 0x80008000;",
}


@pytest.mark.parametrize("change", CHANGES)
def test_operands_are_read_late(change):
    """The sums are those of what is there when they are computed."""
    after = CHANGES[change] + multiply(a="registers") + multiply(d="%e") + COMMIT + wait()
    body = changed(CHANGES[change])
    late = both(body, "late")
    assert (late == both(after)).all() and (late != both(body)).any()


def test_descriptors_are_read_at_issue():
    body = changed("add.u64 %a, %a, 64; mov.b64 %b, 0;")
    assert (both(body, "late") == both(body)).all()


@pytest.mark.parametrize("change", CHANGES)
def test_moments_are_drawn_by_the_seed(change):
    body = changed(CHANGES[change])
    found = [both(body, "random", seed, grid=1) for seed in range(8)]
    assert (found[3] == launch(body, order="random", seed=3, grid=1)).all()
    assert len({x.tobytes() for x in found}) > 1


@pytest.mark.parametrize("order", ["early", "late", "random"])
@pytest.mark.parametrize("engine", ENGINES)
def test_a_tile_outside_of_shared_memory(engine, order):
    """It is refused at the wgmma, in every order, whoever waits."""
    body = "mov.b64 %a, 0x00003fff00010100;" + multiply()
    with pytest.raises(KernelError, match="shared") as caught:
        launch(body, engine, order)
    assert "wgmma.mma_async" in str(caught.value)


# --- recordings -----------------------------------------------------------------------------------

RECORDED = [x for x in [*KERNELS, *REAL] if x.stem in ("tri_mm_bf16", "triton_attention")]


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
@pytest.mark.parametrize("order, seed", ORDERS[:2])
def test_recorded_kernels(path, order, seed):
    assert not any(differing_bytes(path, async_order=order, seed=seed))


@pytest.mark.parametrize("path", RECORDED[:1], ids=lambda path: path.stem)
def test_a_recorded_kernel_that_forgets_to_wait(path, tmp_path):
    held = dict(np.load(path))
    text = bytes(held["ptx"]).decode()
    without = text.replace("wgmma.wait_group.sync.aligned 0;", "")
    assert without != text
    held["ptx"] = np.frombuffer(without.encode(), np.uint8)
    np.savez(tmp_path / path.name, **held)
    assert not any(differing_bytes(tmp_path / path.name))
    assert any(differing_bytes(tmp_path / path.name, async_order="late"))
