"""A launch keeps no memory that nothing reads any more."""

import gc
import weakref

import numpy as np
import pytest

from emulator import Module
from emulator.machine import launch
from emulator.machine.vector import engine

TEXT = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry sums(.param .u64 out)
{
    .reg .pred %p<3>; .reg .b32 %r<8>; .reg .b64 %rd<4>;
    mov.u32 %r1, %tid.x;  mov.u32 %r2, 0;  mov.u32 %r3, 0;
AGAIN:
    and.b32 %r4, %r1, 1;  setp.eq.u32 %p1, %r4, 0;
    @%p1 bra EVEN;
    add.u32 %r2, %r2, 3;
    bra NEXT;
EVEN:
    add.u32 %r2, %r2, %r1;
NEXT:
    add.u32 %r3, %r3, 1;  setp.lt.u32 %p2, %r3, 5;
    @%p2 bra AGAIN;
    mov.u32 %r5, %ctaid.x;  mov.u32 %r6, %ntid.x;  mad.lo.u32 %r7, %r5, %r6, %r1;
    ld.param.u64 %rd1, [out];  mul.wide.u32 %rd2, %r7, 4;  add.u64 %rd3, %rd1, %rd2;
    st.global.u32 [%rd3], %r2;
    ret;
}
"""


def sums(blocks, **options):
    out = np.zeros(blocks * 512, np.uint32)
    Module(TEXT)["sums"].launch(blocks, 512, [out], engine="vector", **options)
    return out.reshape(blocks, 512)


def test_waves_that_are_over_are_freed(monkeypatch):
    alive, start = [], engine.Grid._start

    def counting(grid, ctas):
        made = start(grid, ctas)
        alive.append(weakref.ref(made))
        return made

    monkeypatch.setattr(engine.Grid, "_start", counting)
    gc.disable()
    try:
        for check in (False, True):
            sums(3 * engine.LANES // 512, check=check)
            assert len(alive) == 3 and sum(x() is not None for x in alive) <= 1, check
            alive.clear()
    finally:
        gc.enable()


@pytest.mark.parametrize("options", [{"engine": "vector"}, {"engine": "auto"}, {"check": True}])
def test_launches_that_are_over_are_freed(monkeypatch, options):
    """Their journals, and arrays of their callers, do not wait for Python's collector."""
    alive, run = [], launch.Launch._run

    def counting(self, engine):
        alive.append(weakref.ref(self.arena))
        return run(self, engine)

    monkeypatch.setattr(launch.Launch, "_run", counting)
    gc.disable()
    try:
        Module(TEXT)["sums"].launch(2, 512, [np.zeros(1024, np.uint32)], **options)
        assert [x() for x in alive] == [None]
    finally:
        gc.enable()


def test_registers_that_are_let_go_of_were_dead():
    threads = np.arange(512)
    expected = np.where(threads % 2 == 0, 5 * threads, 15)
    for check in (False, True):
        assert (sums(2, check=check) == expected).all()
