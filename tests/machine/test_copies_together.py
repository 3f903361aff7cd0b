"""Tensor copies that many threads issue at one statement: what each of them does by itself."""

import numpy as np
import pytest

from emulator import KernelError, Module, TensorMap
from emulator.machine.vector import tensors

#: each warp loads a box and each lane stores it, at coordinates of their own
TEXT = """.version 8.5
.target sm_90a
.address_size 64
.visible .entry go(.param .align 64 .b8 m0[128], .param .align 64 .b8 m1[128],
    .param .align 64 .b8 w[128], .param .u64 from, .param .u64 to)
{
  .reg .pred %p<4>; .reg .b32 %r<20>; .reg .b64 %rd<20>;
  .shared .align 128 .b8 room[256]; .shared .align 8 .b8 full[16];
  mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x;
  shr.u32 %r3, %r0, 5; and.b32 %r4, %r0, 31; mad.lo.u32 %r5, %r1, %r2, %r0;
  mov.u32 %r6, full; mad.lo.u32 %r6, %r3, 8, %r6; mov.u32 %r7, room; mad.lo.u32 %r7, %r3, 128, %r7;
  ld.param.u64 %rd1, [from]; ld.param.u64 %rd2, [to];
  mul.wide.u32 %rd3, %r5, 8; add.u64 %rd1, %rd1, %rd3; add.u64 %rd2, %rd2, %rd3;
  ld.global.v2.u32 {%r8, %r9}, [%rd1]; ld.global.v2.u32 {%r10, %r11}, [%rd2];
  setp.eq.u32 %p1, %r4, 3; setp.eq.u32 %p2, %r3, 0;
  mov.u64 %rd4, m0; mov.u64 %rd5, m1; selp.b64 %rd4, %rd4, %rd5, %p2;
  cvta.param.u64 %rd6, w; cvta.param.u64 %rd4, %rd4;
  @%p1 mbarrier.init.shared.b64 [%r6], 1;
  bar.sync 0;
  @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r6], 32;
  @%p1 cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes
    [%r7], [%rd4, {%r8, %r9}], [%r6];
WAIT: mbarrier.try_wait.parity.shared.b64 %p3, [%r6], 0; @!%p3 bra WAIT;
  cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd6, {%r10, %r11}], [%r7];
  cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; ret;
}
"""
GRID, BLOCK, ROWS, COLUMNS = 5, 64, 16, 8


def ended(start, to, wide=COLUMNS, engine="vector"):
    """What a launch leaves, or says."""
    given = [np.arange(ROWS * COLUMNS, dtype=np.int32).reshape(ROWS, COLUMNS) + i for i in (0, 999)]
    out = np.full((ROWS, COLUMNS), -1, np.int32)
    maps = [TensorMap.tiled(x, box=(4, 2)) for x in given]
    maps.append(TensorMap.tiled(out, dims=(wide, ROWS), strides=(4 * COLUMNS,), box=(4, 2)))
    try:
        Module(TEXT)["go"].launch(GRID, BLOCK, [*maps, start, to], engine=engine)
    except KernelError as error:
        return error.kind, error.line, error.block, error.threads, str(error).splitlines()[0]
    return out.tobytes()


def coordinates(seed, lanes):
    """``(threads, 2)``, the same for so many lanes beside each other."""
    rng = np.random.default_rng(seed)
    found = np.stack([rng.choice([0, 4], 320), rng.integers(0, ROWS, 320)], -1)
    return np.repeat(found[::lanes], lanes, axis=0).astype(np.int32)


@pytest.mark.parametrize("wide", [COLUMNS, COLUMNS - 1])
@pytest.mark.parametrize("lanes", [32, 8, 1])
def test_the_last_store_wins(lanes, wide, monkeypatch):
    start, to = coordinates(1, 1), coordinates(2, lanes)
    start[::3, 1] -= 1  # partly outside
    found = ended(start, to, wide)
    monkeypatch.setattr(tensors, "_at_once", lambda s: False)
    assert isinstance(found, bytes) and found == ended(start, to, wide)


def test_the_thread_that_must_not_copy():
    start, to = coordinates(1, 1), coordinates(2, 32)
    to[77, 1] = -2
    found = ended(start, to)
    assert found == ended(start, to, engine="reference")
    assert found[2:4] == ((1, 0, 0), ((13, 0, 0),))
    start[2 * BLOCK + 35, 0] = 3
    assert ended(start, to)[2:4] == ((2, 0, 0), ((35, 0, 0),))


def test_what_is_done_once_is_noticed(monkeypatch):
    """Stores of different boxes are no repetition."""
    start, to = coordinates(1, 1), coordinates(2, 1)
    expected = ended(start, to)
    monkeypatch.setattr(tensors, "_alike", lambda s, issue, values, at: [at])
    assert ended(start, to) != expected
