"""System around a kernel: grid-wide barriers of cooperative groups, which NVIDIA's library
cudadevrt holds, as a PTX text that is linked to programs that name them."""

from __future__ import annotations

#: the handle of a grid is the address of its counter. Each barrier adds 2^31 to it: every block
#: adds 1, and block 0 the rest; a block waits until the top bit is another than it was
GRID_GROUPS = """\
.version 6.0
.target sm_70
.address_size 64

.global .u32 arrived;

.visible .func (.param .b64 result) cudaCGGetIntrinsicHandle(.param .b32 scope)
{
  .reg .b64 %handle;
  mov.u64 %handle, arrived;
  st.param.b64 [result], %handle;
  ret;
}

.visible .func (.param .b32 result) cudaCGSynchronize(.param .b64 handle, .param .b32 flags)
{
  .reg .pred %p;
  .reg .b32 %x, %y, %z, %blocks, %before, %now;
  .reg .b64 %counter;
  bar.sync 0;
  mov.u32 %x, %tid.x;
  mov.u32 %y, %tid.y;
  mov.u32 %z, %tid.z;
  or.b32 %x, %x, %y;
  or.b32 %x, %x, %z;
  setp.ne.u32 %p, %x, 0;
  @%p bra DONE;
  mov.u32 %x, %nctaid.x;
  mov.u32 %y, %nctaid.y;
  mov.u32 %z, %nctaid.z;
  mul.lo.u32 %blocks, %x, %y;
  mul.lo.u32 %blocks, %blocks, %z;
  mov.u32 %x, %ctaid.x;
  mov.u32 %y, %ctaid.y;
  mov.u32 %z, %ctaid.z;
  or.b32 %x, %x, %y;
  or.b32 %x, %x, %z;
  setp.eq.u32 %p, %x, 0;
  sub.u32 %blocks, 0x80000001, %blocks;
  selp.b32 %x, %blocks, 1, %p;
  ld.param.u64 %counter, [handle];
  fence.acq_rel.gpu;
  atom.add.relaxed.gpu.u32 %before, [%counter], %x;
WAIT:
  ld.acquire.gpu.u32 %now, [%counter];
  xor.b32 %now, %now, %before;
  setp.ge.s32 %p, %now, 0;
  @%p bra WAIT;
DONE:
  bar.sync 0;
  mov.b32 %x, 0;
  st.param.b32 [result], %x;
  ret;
}
"""
