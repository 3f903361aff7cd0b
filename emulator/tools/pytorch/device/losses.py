"""The negative log likelihood as a GPU computes it, and its gradient.

Facts from aten/src/ATen/native/cuda/Loss.cu.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from dtypes import Array
from emulator.targets import Chip
from emulator.tools.pytorch.device.arithmetic import fma, halved, rounded

_NONE, _MEAN = 0, 1
#: threads of the one block, at least and at most, and rows for each where there are many
_LEAST_THREADS, _MOST_THREADS, _ROWS = 32, 1024, 16


class _Samples(NamedTuple):
    """Of each sample: whether it counts, its class, and the weight of that."""

    counted: Array
    classes: Array
    weights: Array


def _samples(
    x: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int
) -> _Samples | None:
    """The samples; None for operands that the kernels do not take."""
    if target.shape != x.shape[:-1] or target.dtype.is_floating_point:
        return None
    if weight is not None and (weight.dtype != x.dtype or weight.shape != x.shape[-1:]):
        return None
    classes = target.reshape(-1).long().numpy()
    counted = classes != ignore_index
    known = np.where(counted, classes, 0)
    if (known < 0).any() or (known >= x.shape[-1]).any():
        return None
    weights = np.ones(x.shape[-1], np.float32) if weight is None else weight.float().numpy()
    return _Samples(counted, known, weights[known])


def _tensor(values: Array | np.float32, x: Tensor) -> Tensor:
    return torch.from_numpy(np.asarray(values, np.float32)).to(x.dtype)


def nll_loss(
    chip: Chip, x: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignore_index: int
) -> tuple[Tensor, Tensor] | None:
    """The loss, and the sum of the weights."""
    samples = _samples(x, target, weight, ignore_index)
    if samples is None:
        return None
    counted, classes, weights = samples
    rows = x.reshape(-1, x.shape[-1]).float().numpy()
    values = rows[np.arange(len(rows)), classes]
    zero = np.float32(0)
    if x.dim() == 1 or reduction == _NONE:
        losses = np.where(counted, -weights * values, zero)
        if x.dim() == 2:
            return _tensor(losses, x), _tensor(zero, x)
        if reduction == _MEAN:  # of one sample, which needs no quotient
            losses = np.where(counted, np.where(weights != 0, -values, np.float32(np.nan)), zero)
        return _tensor(losses[0], x), _tensor(weights[0] * counted[0], x)
    loss, total = _sums(values, samples, x.dtype)
    return _tensor(loss / total if reduction == _MEAN else loss, x), _tensor(total, x)


def _sums(values: Array, samples: _Samples, dtype: torch.dtype) -> tuple[Array, Array]:
    """The sums of losses and weights: of each thread, which are then added in halves."""
    threads = _threads(len(values))
    loss, total = np.zeros((2, threads), np.float32)
    for first in range(0, len(values), threads):
        part = np.s_[first : first + threads]
        here = np.flatnonzero(samples.counted[part])
        each, weights = values[part][here], samples.weights[part][here]
        if dtype == torch.float32:
            loss[here] = fma(-each, weights, loss[here])
        else:
            loss[here] -= rounded(each * weights, dtype)
        total[here] += weights
    return halved(loss), halved(total)


def _threads(rows: int) -> int:
    """The power of two whose logarithm is nearest to that of a share of the rows."""
    share = max(rows // _ROWS, 1)
    return min(max(1 << round(float(np.log2(share))), _LEAST_THREADS), _MOST_THREADS)


def nll_loss_gradient(
    chip: Chip,
    given: Tensor,
    x: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: int,
    ignore_index: int,
    total_weight: Tensor,
) -> Tensor | None:
    """The gradient of the loss, which is 0 but for the class of each sample."""
    samples = _samples(x, target, weight, ignore_index)
    shape = target.shape if reduction == _NONE else ()
    alike = given.dtype == total_weight.dtype == x.dtype and total_weight.numel() == 1
    if samples is None or not alike or given.shape != shape:
        return None
    counted, classes, weights = samples
    grad = given.float().reshape(-1).numpy()
    if reduction == _MEAN:
        grad = rounded(grad / total_weight.float().reshape(-1).numpy(), x.dtype)
    made = np.zeros((len(classes), x.shape[-1]), np.float32)
    made[counted, classes[counted]] = (-grad * weights)[counted]
    return _tensor(made, x).reshape(x.shape)
