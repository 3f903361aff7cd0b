"""Statements of PTX 9.2 and 9.3, by what they do to memory, on every engine."""

import numpy as np
import pytest

from emulator import KernelError, Memory, Module

ENGINES = ("reference", "vector", "compiled")
HEAD = """.version 9.3
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 given, .param .u64 out) {
  .reg .pred %p<4>; .reg .b8 %s; .reg .b32 %r<9>; .reg .b64 %d<9>;
  .shared .align 128 .b8 room[128]; .shared .align 8 .b64 bar;
  ld.param.u64 %d0, [given]; ld.param.u64 %d1, [out]; mov.u32 %r0, %tid.x;
"""


def launch(body, given, engine, threads=1, **options):
    out = np.zeros(64, np.uint32)
    Module(f"{HEAD}{body}\n ret; }}")["k"].launch(
        1, threads, [given, out], engine=engine, **options
    )
    return out


BARRIER = """
  mbarrier.init.layout::%s.shared::cta.b64 [bar], 2;
  mbarrier.check_layout.layout::v0.shared::cta.b64 %%p0, [bar];
  mbarrier.check_layout.layout::v1.b64 %%p1, [%%d2];
  selp.u32 %%r1, 1, 0, %%p0; selp.u32 %%r2, 1, 0, %%p1;
  mbarrier.arrive.expect_tx.shared.b64 %%d3, [bar], 16;
  mbarrier.test_wait.phase_type::primary.shared.b64 %%p0|%%p1, %%s, [bar], %%d3;
  selp.u32 %%r3, 1, 0, %%p0;
  mbarrier.complete_tx.shared.b64 [bar], 16;
  mbarrier.arrive.shared.b64 _, [bar];
  mbarrier.try_wait.parity.phase_type::primary.acquire.cta.shared.b64 %%p0|%%p2, %%s, [bar], 0;
  mbarrier.test_wait.parity.phase_type::conditional.shared.b64 %%p1, [bar], 0;
  selp.u32 %%r4, 1, 0, %%p0; selp.u32 %%r5, 1, 0, %%p1; selp.u32 %%r6, 1, 0, %%p2;
  cvt.u32.u8 %%r7, %%s; ld.shared.u64 %%d4, [bar];
  st.global.v4.u32 [%%d1], {%%r1, %%r2, %%r3, %%r4}; st.global.v2.u32 [%%d1+16], {%%r5, %%r6};
  st.global.u32 [%%d1+24], %%r7; st.global.u64 [%%d1+32], %%d4; st.global.u64 [%%d1+40], %%d3;
"""


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("layout", [0, 1])
def test_layouts_and_phases_of_an_mbarrier(layout, engine):
    body = "mov.u64 %d2, bar; cvta.shared.u64 %d2, %d2;" + BARRIER % f"v{layout}"
    out = launch(body, np.zeros(1, np.uint32), engine)
    # Not over, then over in both kinds of phase, without a report.
    assert out[:7].tolist() == [1 - layout, layout, 0, 1, 1, 0, 0]
    words = out[8:12].view(np.uint64).tolist()
    # Parity 1, two arrivals pending and expected; the token is the word before the first arrival.
    fields = (-2 & 0xFFFFF) << 43 | (-2 & 0xFFFFF) << 1 | layout
    assert words == [1 << 63 | fields, fields]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_barrier_of_layout_1_expects_511_at_most(engine):
    body = "mov.u32 %r1, {}; mbarrier.init.layout::v1.shared.b64 [bar], %r1;"
    launch(body.format(511), np.zeros(1, np.uint32), engine)
    with pytest.raises(KernelError, match="a count is 1 … 511; got 512"):
        launch(body.format(512), np.zeros(1, np.uint32), engine)


COPY = """
  mov.u64 %d2, 0x7777777777777777; st.shared.v2.u64 [room], {{%d2, %d2}};
  st.shared.v2.u64 [room+16], {{%d2, %d2}};
  mbarrier.init.shared.b64 [bar], 1; mbarrier.arrive.expect_tx.shared.b64 _, [bar], 32;
  add.u64 %d0, %d0, {};
  cp.async.bulk{}.shared::cta.global.mbarrier::complete_tx::bytes{} [room], [%d0], 32{}, [bar];
WAIT: mbarrier.try_wait.parity.shared.b64 %p0, [bar], 0; @!%p0 bra WAIT;
  ld.shared.v4.u32 {{%r1, %r2, %r3, %r4}}, [room]; st.global.v4.u32 [%d1], {{%r1, %r2, %r3, %r4}};
  ld.shared.v4.u32 {{%r1, %r2, %r3, %r4}}, [room+16];
  st.global.v4.u32 [%d1+16], {{%r1, %r2, %r3, %r4}};
"""
BYTES = np.arange(48, dtype=np.uint8)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("order", ["", ".weak", ".relaxed.gpu"])
def test_orders_of_a_bulk_copy(order, engine):
    type_ = ".b128" * ("relaxed" in order)
    out = launch(COPY.format(0, order, type_, ""), BYTES.copy(), engine)
    assert out[:8].view(np.uint8).tolist() == list(range(32))


@pytest.mark.parametrize("engine", ENGINES)
def test_bytes_outside_of_an_array_are_ignored(engine):
    """The copy starts 16 bytes before the end of the array, and takes its first 13 and no more."""
    given = BYTES[:45].copy()
    out = launch(COPY.format(16, "", ".ignore_oob", ", 2, 3"), given, engine)
    found = out[:8].view(np.uint8)
    assert found[2:29].tolist() == list(range(18, 45))
    with pytest.raises(KernelError, match="out of bounds"):
        launch(COPY.format(16, "", ".ignore_oob", ", 2, 2"), given, engine)
    with pytest.raises(KernelError, match="no multiple of 16"):
        launch(COPY.format(8, "", ".ignore_oob", ", 2, 3"), given, engine)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("space", ["shared::cluster", "shared::cta", "weak.shared"])
def test_sixteen_bytes_are_stored_and_signalled(space, engine):
    body = """
  mbarrier.init.shared.b64 [bar], 1; mbarrier.arrive.expect_tx.shared.b64 _, [bar], 16;
  .reg .b128 %q; ld.global.v2.u64 {%d2, %d3}, [%d0]; mov.b128 %q, {%d2, %d3};
  st.async.SPACE.mbarrier::complete_tx::bytes.b128 [room], %q, [bar];
WAIT: mbarrier.try_wait.parity.shared.b64 %p0, [bar], 0; @!%p0 bra WAIT;
  ld.shared.v4.u32 {%r1, %r2, %r3, %r4}, [room]; st.global.v4.u32 [%d1], {%r1, %r2, %r3, %r4};
"""
    out = launch(body.replace("SPACE", space), BYTES.copy(), engine)
    assert out[:4].view(np.uint8).tolist() == list(range(16))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("order", ["early", "late"])
def test_multicast_stores_and_sums(order, engine):
    """Each of 40 threads stores 8 bytes to all devices, and adds to a word that they share."""
    body = """
  mul.wide.u32 %d2, %r0, 8; add.u64 %d2, %d0, %d2; cvt.u64.u32 %d3, %r0; add.u64 %d3, %d3, 7;
  multimem.st.async.release.gpu.global.b64 [%d2], %d3;
  multimem.red.async.release.sys.add.u32 [%d0+320], %r0;
  multimem.red.async.release.gpu.global.add.u64 [%d0+328], 3;
  ld.mmio.acquire.sys.global.u32 %r1, [%d1]; st.mmio.release.sys.global.u32 [%d1], %r1;
  fence.proxy.generic::fabric.alias.release.sys; fence.proxy.alias.acquire.sys;
"""
    body = body.replace("fence.proxy.alias.acquire.sys;", "")
    held = [np.full(64, 1000 * i, np.uint64) for i in range(3)]
    memory = Memory()
    group = memory.multicast([x.view(np.uint8) for x in held])
    launch(body, group, engine, 40, memory=memory, async_order=order)
    for i, words in enumerate(held):
        assert words[:40].tolist() == list(range(7, 47))
        assert words[40] == 1000 * i + sum(range(40)) and words[41] == 1000 * i + 120
        assert (words[42:] == 1000 * i).all()
