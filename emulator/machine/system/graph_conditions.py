"""The function with which kernels set the condition of a graph's conditional nodes: as a PTX text
that is linked to programs that name it."""

from __future__ import annotations

#: the handle of a condition is the address of its value
GRAPH_CONDITIONS = """\
.version 6.0
.target sm_70
.address_size 64

.visible .func cudaGraphSetConditional(.param .b64 handle, .param .b32 value)
{
  .reg .b32 %value;
  .reg .b64 %handle;
  ld.param.u64 %handle, [handle];
  ld.param.u32 %value, [value];
  st.global.u32 [%handle], %value;
  ret;
}
"""
