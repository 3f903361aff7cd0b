"""Statements that move, convert and multiply through memory do what `execute` does."""

import numpy as np
import pytest

from emulator import Instruction, OperandError, UndefinedError, Warp, Warpgroup, execute

RNG = np.random.default_rng(0)


def warp(bytes_=2048):
    machine = Warp("sm_90a", shared_bytes=bytes_)
    machine.shared[:] = RNG.integers(0, 256, bytes_, np.uint8)
    return machine


def test_ldmatrix_with_an_offset():
    machine = warp()
    machine.run(".reg .b32 %d<4>, %p;")
    machine["%p"] = 16 * np.arange(32, dtype=np.uint32)
    machine.run("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%d0,%d1,%d2,%d3}, [%p+32];")
    ins = Instruction.parse("ldmatrix.sync.aligned.m8n8.x4.shared.b16")
    want = execute(ins, 16 * np.arange(32) + 32, shared=machine.shared, target="sm_90a")
    assert np.array_equal(machine.read("%d", 4), want)


def test_stmatrix_writes_shared_memory_and_undoes_it_on_an_error():
    machine = warp()
    machine.run(".reg .b32 %r<2>, %p;")
    machine["%p"] = 16 * np.arange(32, dtype=np.uint32)
    machine.write("%r", RNG.integers(0, 1 << 32, (32, 2), np.uint32))
    before = machine.shared.copy()
    text = "stmatrix.sync.aligned.m8n8.x2.shared.b16 [%p], {%r0, %r1};"
    with pytest.raises(OperandError):
        machine.run(text + "mov.b32 %r9, 1;")
    assert np.array_equal(machine.shared, before)
    machine.run(text)
    want = before.copy()
    ins = Instruction.parse("stmatrix.sync.aligned.m8n8.x2.shared.b16")
    execute(ins, 16 * np.arange(32), machine.read("%r", 2), shared=want, target="sm_90a")
    assert np.array_equal(machine.shared, want) and not np.array_equal(want, before)


def test_misaligned_row_address():
    machine = warp()
    machine.run(".reg .b32 %d, %p; mov.b32 %p, 8;")
    with pytest.raises(UndefinedError, match=r"line 1.*no multiple of 16"):
        machine.run("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%d}, [%p];")


def test_movmatrix_on_every_warp_of_a_group():
    group = Warpgroup("sm_90a")
    group.run(".reg .b32 d, a;")
    group["a"] = RNG.integers(0, 1 << 32, 128, np.uint32)
    group.run("movmatrix.sync.aligned.m8n8.trans.b16 d, a;")
    ins = Instruction.parse("movmatrix.sync.aligned.m8n8.trans.b16")
    want = execute(ins, group["a"].reshape(4, 32, 1), target="sm_90a").reshape(128)
    assert np.array_equal(group["d"], want)


def test_cvt_packs_first_source_high():
    machine = warp()
    machine.run(
        ".reg .b32 d; .reg .b16 h; .reg .f32 x, y; mov.f32 x, 1.0; mov.f32 y, -2.0;"
        "cvt.rn.f16x2.f32 d, x, y; cvt.rn.satfinite.e4m3x2.f32 h, x, y;"
    )
    assert (machine["d"] == 0x3C00C000).all() and (machine["h"] == 0x38C0).all()


def test_wmma_from_memory_to_memory():
    machine = warp(4096)
    a, b = (RNG.integers(-8, 8, (16, 16)).astype(np.float16) for _ in "ab")
    machine.shared[:512], machine.shared[512:1024] = a.view("u1").ravel(), b.view("u1").ravel()
    a_list, b_list, d_list = (",".join(f"%{x}{i}" for i in range(8)) for x in "abd")
    machine.run(
        ".reg .b32 %a<8>, %b<8>, p, s; .reg .f32 %d<8>; mov.u32 p, 0; mov.u32 s, 16;"
        f"wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 {{{a_list}}}, [p], s;"
        f"wmma.load.b.sync.aligned.row.m16n16k16.shared.f16 {{{b_list}}}, [p+512];"
        f"{''.join(f'mov.f32 %d{i}, 0.0;' for i in range(8))}"
        "wmma.mma.sync.aligned.row.row.m16n16k16.f32.f32"
        f" {{{d_list}}}, {{{a_list}}}, {{{b_list}}}, {{{d_list}}};"
        f"wmma.store.d.sync.aligned.col.m16n16k16.shared.f32 [p+1024], {{{d_list}}}, 16;"
    )
    d = machine.shared[1024:2048].copy().view(np.float32).reshape(16, 16).T
    assert np.array_equal(d, a.astype(np.float32) @ b.astype(np.float32))
    machine["p"] = np.arange(32, dtype=np.uint32)
    with pytest.raises(OperandError, match="same in all lanes"):
        machine.run(f"wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 {{{a_list}}}, [p];")


def test_shared_variables():
    machine = warp()
    machine.run(
        ".shared .align 16 .b8 tile[512]; .reg .b32 %d, %p; mov.u32 %p, tile;"
        "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%d}, [%p];"
    )
    assert machine["%d"].any()
