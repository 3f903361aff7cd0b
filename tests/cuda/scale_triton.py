"""y = a * x by a Triton kernel, compiled for an H100 and run without one, as README starts it."""

import torch
import triton
import triton.language as tl

from emulator.adapters.triton import on


@triton.jit
def scale(x, y, n, a, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, a * tl.load(x + i, mask=i < n), mask=i < n)


x, y = torch.arange(1000.0), torch.zeros(1000)
report = on("H100", scale)[(triton.cdiv(1000, 256),)](x, y, 1000, 2.5, BLOCK=256)
assert torch.equal(y, 2.5 * x)
print(report)
