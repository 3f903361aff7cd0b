"""Lanes that store to one place: the one that an H200 let win, in each engine.

The recording is of 120 patterns of places and active lanes, of which every third is kept here, on
an H200 (driver 580, CUDA 13.0, 2026-11-22); six launches each gave the same bytes. Stores to global
memory had the winners of those to shared memory, .v2.u32 those of .u64.
"""

from pathlib import Path

import numpy as np
import pytest

from emulator import Module
from emulator.machine.shared import served

GOLDEN = Path(__file__).parent.parent / "golden" / "memory" / "h200_store_order.npz"
STORES = {1: "u8", 2: "u16", 4: "u32", 8: "v2.u32", 16: "v4.u32"}
KERNEL = """.version 8.5
.target sm_90a
.address_size 64
.visible .entry go(.param .u64 slots, .param .u64 active, .param .u64 out) {{
  .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p<2>; .shared .align 16 .b8 room[512];
  ld.param.u64 %rd1, [slots]; ld.param.u64 %rd2, [active]; ld.param.u64 %rd3, [out];
  mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mad.lo.u32 %r3, %r2, 32, %r1;
  cvt.u64.u32 %rd4, %r3; add.u64 %rd1, %rd1, %rd4; add.u64 %rd2, %rd2, %rd4;
  ld.global.u8 %r4, [%rd1]; ld.global.u8 %r5, [%rd2]; setp.ne.u32 %p1, %r5, 0;
  mul.lo.u32 %r4, %r4, {size}; mad.lo.u32 %r6, %r2, 512, %r4; cvt.u64.u32 %rd5, %r6;
  add.u64 %rd5, %rd3, %rd5; mov.u32 %r7, room; add.u32 %r7, %r7, %r4; mov.u32 %r8, -1;
  {fill} bar.warp.sync -1;
  @%p1 st.{space}.{type} [{place}], {words}; bar.warp.sync -1;
  {copy} ret; }}
"""


def launched(size, space, engine, slots, active):
    shared = space == "shared"
    words = {8: "{%r1, %r1}", 16: "{%r1, %r1, %r1, %r1}"}.get(size, "%r1")
    copied = "mov.u32 %r6, room; mad.lo.u32 %r6, %r1, 16, %r6; " + (
        "mul.lo.u32 %r3, %r3, 16; cvt.u64.u32 %rd6, %r3; add.u64 %rd6, %rd3, %rd6;"
        "ld.shared.v4.u32 {%r1, %r2, %r4, %r5}, [%r6];"
        "st.global.v4.u32 [%rd6], {%r1, %r2, %r4, %r5};"
    )
    fill = (
        "mov.u32 %r6, room; mad.lo.u32 %r6, %r1, 16, %r6;"
        "st.shared.v4.u32 [%r6], {%r8, %r8, %r8, %r8};"
    )
    text = KERNEL.format(
        size=size, space=space, type=STORES[size], words=words,
        place="%r7" if shared else "%rd5",
        fill=fill if shared else "", copy=copied if shared else "",
    )  # fmt: skip
    out = np.full((len(slots), 512), 255, np.uint8)
    Module(text)["go"].launch(len(slots), 32, [slots, active, out], engine=engine)
    return out[:, : 32 * size].reshape(len(slots), 32, size)


def winners(out):
    return np.where((out == 255).all(2), -1, out[:, :, 0].astype(np.int8))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("engine", ["vector", "compiled", "reference"])
@pytest.mark.parametrize("space", ["shared", "global"])
@pytest.mark.parametrize("size", STORES)
def test_the_winner_is_that_of_the_h200(size, space, engine):
    with np.load(GOLDEN) as held:
        slots, active, expected = held["slots"], held["active"], held[f"winners_{size}"]
    if engine == "compiled":
        pytest.importorskip("llvmlite")
    if engine == "reference":
        slots, active, expected = (x[::6] for x in (slots, active, expected))
    found = winners(launched(size, space, engine, slots.copy(), active.astype(np.uint8)))
    assert found.tolist() == expected.tolist()


@pytest.mark.parametrize("wrong", [{1: 0}, {8: 31}, {16: 15}])
def test_another_order_is_noticed(wrong, monkeypatch):
    ((size, bits),) = wrong.items()
    with np.load(GOLDEN) as held:
        slots, active, expected = held["slots"], held["active"], held[f"winners_{size}"]
    monkeypatch.setattr(
        "emulator.machine.vector.memory.storing_order",
        lambda lanes, _: np.argsort(lanes ^ bits, kind="stable"),
    )
    found = winners(launched(size, "shared", "vector", slots.copy(), active.astype(np.uint8)))
    assert found.tolist() != expected.tolist()


def test_parts_of_warps_have_the_order_of_whole_ones():
    for size in STORES:
        lanes = np.arange(32, 160)
        whole = lanes[served.storing_order(lanes, size)]
        some = lanes[lanes % 5 != 0]
        assert some[served.storing_order(some, size)].tolist() == [x for x in whole if x % 5]
