"""The barrier of all blocks that cooperative groups call, as a text that is linked to a program."""

import numpy as np
import pytest

from emulator import Module
from emulator.machine.system.grid_groups import GRID_GROUPS

#: each block writes its number, reads that of the block opposite, and writes it into its own place
OPPOSITE = """
.version 8.0
.target sm_90
.address_size 64
.extern .func (.param .b64 r) cudaCGGetIntrinsicHandle(.param .b32 a);
.extern .func (.param .b32 r) cudaCGSynchronize(.param .b64 a, .param .b32 b);
.visible .entry k(.param .u64 p) {
  .reg .b64 %p, %h, %own, %other;
  .reg .b32 %c, %n, %v, %t;
  .param .b64 h; .param .b32 scope, flags, r;
  ld.param.u64 %p, [p];
  mov.u32 %c, %ctaid.x; mov.u32 %n, %nctaid.x;
  mul.wide.u32 %own, %c, 4; add.u64 %own, %own, %p;
  sub.u32 %n, %n, 1; sub.u32 %n, %n, %c;
  mul.wide.u32 %other, %n, 4; add.u64 %other, %other, %p;
  add.u32 %v, %c, 100; st.global.u32 [%own], %v;
  mov.b32 %t, 1; st.param.b32 [scope], %t;
  call (h), cudaCGGetIntrinsicHandle, (scope);
  ld.param.b64 %h, [h]; st.param.b64 [h], %h; mov.b32 %t, 0; st.param.b32 [flags], %t;
  call (r), cudaCGSynchronize, (h, flags);
  ld.global.u32 %v, [%other];
  st.param.b64 [h], %h; st.param.b32 [flags], %t;
  call (r), cudaCGSynchronize, (h, flags);
  st.global.u32 [%own], %v;
  ret;
}
"""


@pytest.mark.parametrize("engine", ["reference", "vector", "compiled"])
def test_no_block_passes_before_all_have_come(engine):
    module = Module([OPPOSITE, GRID_GROUPS])
    assert module.problems == []
    for _ in range(2):
        out = np.zeros(7, np.uint32)
        module["k"].launch(7, 33, [out], engine=engine)
        assert out.tolist() == [106, 105, 104, 103, 102, 101, 100]
        assert not module.variable("arrived").any()
