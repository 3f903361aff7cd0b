"""Kernels that compute each element by itself: their arithmetic alone gives what they give."""

import numpy as np
import pytest

from emulator import Module

pytest.importorskip("llvmlite")

from emulator.machine.compiled.elementwise import elementwise

TEXT = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry {name}(.param .u64 as, .param .u64 out, .param .u32 count, .param .f32 p)
{{
  .reg .pred %p<4>; .reg .f32 %f<9>; .reg .b32 %r<9>; .reg .b64 %rd<9>;
  ld.param.u64 %rd1, [as];
  ld.param.u64 %rd2, [out];
  ld.param.u32 %r1, [count];
  ld.param.f32 %f4, [p];
  mov.u32 %r2, %tid.x;
  setp.ge.u32 %p1, %r2, %r1;
  @%p1 bra DONE;
  cvta.to.global.u64 %rd3, %rd1;
LOOP:
  mul.wide.u32 %rd4, %r2, 4;
  add.s64 %rd5, %rd3, %rd4;
  ld.global.f32 %f1, [%rd5];
  {body}
  add.s64 %rd6, %rd2, %rd4;
  st.global.f32 [%rd6], %f2;
  add.s32 %r2, %r2, 32;
  setp.lt.u32 %p2, %r2, %r1;
  @%p2 bra LOOP;
DONE:
  ret;
}}
"""
BODIES = {
    "straight": "mul.f32 %f3, %f1, %f4; add.f32 %f3, %f3, %f1; ex2.approx.f32 %f2, %f3;",
    "guarded": "neg.f32 %f2, %f1; setp.gt.f32 %p3, %f1, %f4; @%p3 mul.f32 %f2, %f1, %f4;",
    "branches": """
        mov.f32 %f2, %f1;
        setp.gt.f32 %p3, %f1, %f4;
        @%p3 bra LARGE;
        sqrt.rn.f32 %f2, %f1;
        setp.lt.f32 %p3, %f1, 0f00000000;
        @!%p3 bra MET;
        add.f32 %f2, %f1, %f4;
        bra.uni MET;
      LARGE:
        div.rn.f32 %f2, %f4, %f1;
      MET:
        add.f32 %f2, %f2, %f4;""",
}


def kernel(name):
    module = Module(TEXT.format(name=name, body=BODIES[name]))
    made = module[name]
    program = made.rewritten[0]
    return made, elementwise(program, program.functions[name], module.target)


@pytest.mark.parametrize("count", [1, 31, 32, 1000])
@pytest.mark.parametrize("name", BODIES)
def test_the_arithmetic_alone_gives_what_the_kernel_gives(name, count):
    made, native = kernel(name)
    words = np.random.default_rng(3).integers(0, 1 << 32, count, np.uint64).astype(np.uint32)
    words[: count // 2] = (words[: count // 2] & 0x80FFFFFF) | 0x3F000000
    wanted, out = np.zeros(count, np.float32), np.zeros(count, np.uint32)
    given = words.view(np.float32)
    made.launch(1, 32, [given, wanted, count, np.float32(0.7)], engine="vector")
    native.run([words, None, None, np.array([0.7], np.float32).view(np.uint32)], out)
    assert np.array_equal(out, wanted.view(np.uint32))
    native.run([words, None, None, np.array([0.8], np.float32).view(np.uint32)], out)
    assert count == 1 or not np.array_equal(out, wanted.view(np.uint32))


@pytest.mark.parametrize("body", [
    "mov.f32 %f2, %f1; AGAIN: add.f32 %f2, %f2, %f4; setp.lt.f32 %p3, %f2, %f4; @%p3 bra AGAIN;",
    "st.global.f32 [%rd5], %f1; mov.f32 %f2, %f1;", "mov.u32 %r3, %laneid; mov.b32 %f2, %r3;",
    "ld.shared.f32 %f2, [%r1];",
])  # fmt: skip
def test_kernels_of_other_forms_are_left_to_the_engines(body):
    module = Module(TEXT.format(name="other", body=body))
    program = module["other"].rewritten[0]
    assert elementwise(program, program.functions["other"], module.target) is None
