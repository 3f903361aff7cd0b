"""Distances between rows as a GPU computes them, where it does not multiply matrices.

Facts from aten/src/ATen/native/cuda/DistanceKernel.cu: a block sums for each pair.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from dtypes import Array
from emulator.targets import Chip
from emulator.tools.pytorch.device.arithmetic import function
from emulator.tools.pytorch.device.native import Steps, take_turns
from emulator.tools.pytorch.device.reductions import Squares, Sum
from emulator.tools.pytorch.device.softmax import sums_of_block

_THREADS = 256
#: rows from which PyTorch multiplies matrices, and the mode in which it never does
_MANY, _NEVER = 26, 2


def distances(chip: Chip, left: Tensor, right: Tensor, p: float, mode: int | None) -> Tensor | None:
    """The distances between all pairs of rows; None where PyTorch multiplies matrices."""
    rows, others, size = left.shape[-2], right.shape[-2], left.shape[-1]
    if left.dtype != torch.float32 or left.shape[:-2] != right.shape[:-2] or not size:
        return None
    if p == 2 and mode != _NEVER and (mode or max(rows, others) >= _MANY):
        return None
    pairs = (left[..., :, None, :] - right[..., None, :, :]).abs().reshape(-1, size).numpy()
    return torch.from_numpy(_norms(chip, pairs, p)).reshape(*left.shape[:-1], others)


def _norms(chip: Chip, values: Array, p: float) -> Array:
    if math.isinf(p):
        return np.asarray(values.max(1))
    if p == 0:
        return np.asarray((values != 0).sum(1), np.float32)
    if p == 2:
        return np.sqrt(_sums(Squares(), values))
    if p == 1:
        return _sums(Sum(), values)
    power = np.full(1, p, np.float32)
    sums = _sums(Sum(), function(chip.target, "pow", values, power))
    return function(chip.target, "pow", sums, 1 / power)


def _sums(steps: Steps, values: Array) -> Array:
    state = steps.start((len(values), _THREADS))
    take_turns(steps, state, values)
    return sums_of_block(state[0])
