"""What LLVM is given where a processor has no AVX-512: no instruction of x86, and all of it becomes
code of Arm."""

import numpy as np
import pytest
from designed import REGIMES
from kernel_operands import drawn

from emulator import Instruction, Module, execute, gemm

pytest.importorskip("llvmlite")
import llvmlite.binding as llvm

from emulator.arith.fast import fused_code, threads
from emulator.arith.fast.kernels import crew, machine_code
from emulator.warp import native

OPCODE = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
F16 = Instruction.parse(OPCODE)
F64 = Instruction.parse("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64")
LOOP = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry go(.param .u64 data) {
  .reg .b32 %r<3>; .reg .b64 %rd<3>; .reg .f32 %f<3>; .reg .f64 %d; .reg .pred %p;
  ld.param.u64 %rd1, [data]; mov.u32 %r1, %tid.x; mad.wide.u32 %rd2, %r1, 4, %rd1;
  ld.global.f32 %f1, [%rd2]; mov.u32 %r2, 0;
AGAIN: fma.rn.f32 %f1, %f1, %f1, 0f3F000000; fma.rz.ftz.f32 %f2, %f1, %f1, %f1;
  ex2.approx.ftz.f32 %f2, %f2; cvt.f64.f32 %d, %f2; cvt.rzi.s32.f64 %r1, %d;
  add.f32 %f1, %f1, %f2; add.u32 %r2, %r2, 1; setp.lt.u32 %p, %r2, 9; @%p bra AGAIN;
  st.global.f32 [%rd2], %f1; ret; }"""


def product():
    a = np.ones((128, 128), np.float16)
    gemm(a, a, instruction=OPCODE, target="sm_90a", engine="compiled")


def one_warp(ins):
    operands = drawn(ins, "sm_90a", np.random.default_rng(1), REGIMES[:1])
    execute(ins, target="sm_90a", engine="compiled", **operands)


def launch():
    Module(LOOP)["go"].launch(1, 32, [np.ones(32, np.float32)], engine="compiled")


@pytest.fixture
def texts(monkeypatch, tmp_path):
    """Every module that LLVM is given, on a processor without wide vectors."""
    monkeypatch.setenv("EMULATOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(machine_code, "vector_bytes", lambda: 32)
    monkeypatch.setattr(machine_code, "_processor", lambda: (llvm.get_host_cpu_name(), ""))
    monkeypatch.setattr(crew, "_PAUSE", {})
    loaded, found = machine_code.loaded, []
    monkeypatch.setattr(machine_code, "loaded", lambda ir, *x: found.append(ir) or loaded(ir, *x))
    kept = (
        fused_code.tiles_function, native.kernels._compiled, native.kernels.of_warp,
        threads._only_crew,
    )  # fmt: skip
    for function in kept:
        function.cache_clear()
    yield found
    for function in kept:
        function.cache_clear()


def assert_of_arm(text):
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    arm = llvm.Target.from_triple("aarch64-unknown-linux-gnu")
    assert "llvm.x86" not in text
    code = machine_code._emitted(
        text, arm.create_target_machine(cpu="neoverse-n1", opt=2), inlined=True
    )
    assert code[:4] == b"\x7fELF" and code[18:20] == (183).to_bytes(2, "little")


WORKS = [
    pytest.param(product, id="gemm"),
    pytest.param(lambda: one_warp(F16), id="mma"),
    pytest.param(lambda: one_warp(F64), id="mma of f64"),
    pytest.param(launch, id="kernel", marks=pytest.mark.slow),
]


@pytest.mark.parametrize("work", WORKS)
def test_code_of_arm(texts, work):
    work()
    assert texts
    for text in texts:
        assert_of_arm(text)


def test_an_instruction_of_x86_is_noticed():
    vector, name = "<4 x float>", "llvm.x86.sse.rcp.ps"
    with pytest.raises(AssertionError):
        assert_of_arm(f"declare {vector} @{name}({vector})")
