"""``arange`` as a GPU computes it: the start and so many steps, in f32, rounded once."""

from __future__ import annotations

import numpy as np
import torch

from emulator.targets import Chip
from emulator.tools.pytorch.device.arithmetic import fma
from emulator.tools.pytorch.device.family import FLOATS, Answer, Request, call_on_cpu, on_chip

_WHY = "PyTorch's kernel for it"


def ranges(chip: Chip, request: Request) -> Answer | None:
    out = request.kwargs.get("out")
    if request.base != "arange" or out is None or out.dtype not in FLOATS:
        return None
    made = call_on_cpu(request.function, request.args, request.kwargs)
    given = request.given
    start, step = (
        np.float32(given.get(name) or other) for name, other in (("start", 0), ("step", 1))
    )
    numbers = np.arange(made.numel()).astype(np.float32)
    made.copy_(torch.from_numpy(np.asarray(fma(numbers, step, start))))
    return Answer(made, _WHY, on_chip(chip, "recorded"))
