"""Losses of each element, their sums and means, and their gradients, as a GPU computes them.

Facts from aten/src/ATen/native: cuda/BinaryMiscOpsKernels.cu, cuda/PointwiseOpsKernel.cu,
cuda/Loss.cu and Loss.cpp. Most kernels round to the type of the tensors after every step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dtypes import Array
from emulator.targets import Chip
from emulator.tools.pytorch.device import reductions
from emulator.tools.pytorch.device.arithmetic import fma, function, rounded

_NONE, _MEAN = 0, 1
_HALF, _ONE = np.float32(0.5), np.float32(1)
#: what a logarithm is at least, and a denominator
_LEAST_LOGARITHM, _LEAST_DENOMINATOR = np.float32(-100), np.float32(1e-12)

#: rounds to the type of the tensors
Round = Callable[[Any], Array]


def _fits(x: Tensor, *others: Tensor | None) -> bool:
    """Whether tensors are of one type and shape, in the order in which sums go through them."""
    every = [x, *(t for t in others if t is not None)]
    return all(t.dtype == x.dtype and t.shape == x.shape and t.is_contiguous() for t in every)


def _values(x: Tensor) -> Array:
    return x.float().numpy()


def _rounds(x: Tensor) -> Round:
    return lambda values: rounded(np.asarray(values), x.dtype)


def _reduced(chip: Chip, losses: Array, x: Tensor, reduction: int) -> Tensor:
    made = torch.from_numpy(losses).to(x.dtype)
    if reduction == _NONE:
        return made
    return (reductions.mean if reduction == _MEAN else reductions.sum_)(chip, made)


def _loss(rule: Callable[..., Array]) -> Callable[..., Any]:
    """The operator of a loss of differences; `rule` has their sizes and the loss's number."""

    def run(
        chip: Chip, x: Tensor, y: Tensor, reduction: int = _MEAN, number: float = 1
    ) -> Tensor | None:
        if not _fits(x, y):
            return None
        to = _rounds(x)
        made = rule(to, np.abs(to(_values(x) - _values(y))), to(np.float32(number)))
        return _reduced(chip, made, x, reduction)

    return run


def _gradient(rule: Callable[..., Array], factor: float = 1) -> Callable[..., Any]:
    """The operator of the gradient; `rule` has the loss's too, and what a mean multiplies by."""

    def run(
        chip: Chip, given: Tensor, x: Tensor, y: Tensor, reduction: int, number: float = 1
    ) -> Tensor | None:
        if not _fits(x, y) or given.dtype != x.dtype:
            return None
        to = _rounds(x)
        scale = to(np.float32(factor / x.numel() if reduction == _MEAN else factor))
        loss = _values(given.expand(x.shape))
        made = rule(to, to(_values(x) - _values(y)), to(np.float32(number)), loss, scale)
        return torch.from_numpy(made).to(x.dtype)

    return run


def _square(_: Round, size: Array, number: Array) -> Array:
    return size * size


def _smooth(_: Round, size: Array, beta: Array) -> Array:
    return np.where(size < beta, _HALF * size * size / beta, size - _HALF * beta)


def _huber(_: Round, size: Array, delta: Array) -> Array:
    return np.where(size < delta, _HALF * size * size, delta * (size - _HALF * delta))


def _square_gradient(to: Round, x: Array, number: Array, loss: Array, scale: Array) -> Array:
    return to(scale * x) * loss


def _smooth_gradient(to: Round, x: Array, beta: Array, loss: Array, scale: Array) -> Array:
    far, near = scale * loss, to(to(scale * x) * loss) / beta
    return np.where(x < -beta, -far, np.where(x > beta, far, near))


def _huber_gradient(to: Round, x: Array, delta: Array, loss: Array, scale: Array) -> Array:
    far, near = to(scale * loss) * delta, to(scale * x) * loss
    return np.where(x < -delta, -far, np.where(x > delta, far, near))


def _cross_entropy(
    chip: Chip, x: Tensor, y: Tensor, weight: Tensor | None = None, reduction: int = _MEAN
) -> Tensor | None:
    """The binary cross entropy; None where PyTorch raises."""
    if not _fits(x, y, weight) or any(((t < 0) | (t > 1)).any() for t in (x, y)):
        return None
    to, target = _rounds(x), _values(y)
    of_one, of_zero = (
        np.where(part < _LEAST_LOGARITHM, _LEAST_LOGARITHM, part)
        for part in (
            to(function(chip.target, name, values))
            for name, values in (("log", _values(x)), ("log1p", -_values(x)))
        )
    )
    first = to(target - _ONE)
    if x.dtype == torch.float32:
        made = fma(first, of_zero, -(target * of_one))
    else:
        made = to(to(first * of_zero) - to(target * of_one))
    return _reduced(chip, made if weight is None else made * _values(weight), x, reduction)


def _cross_entropy_gradient(
    chip: Chip,
    given: Tensor,
    x: Tensor,
    y: Tensor,
    weight: Tensor | None = None,
    reduction: int = _MEAN,
) -> Tensor | None:
    if not _fits(x, y, weight) or given.dtype != x.dtype:
        return None
    to, values = _rounds(x), _values(x)
    below = np.fmax(to(to(_ONE - values) * values), to(_LEAST_DENOMINATOR))
    made = to(to(_values(given.expand(x.shape)) * to(values - _values(y))) / below)
    if weight is not None:
        made = to(made * _values(weight))
    if reduction == _MEAN:
        made = made * np.float32(1 / x.numel())
    return torch.from_numpy(made).to(x.dtype)


#: operators of aten, with the arguments of their schema behind the chip
OPERATORS: dict[str, Callable[..., Any]] = {
    "mse_loss": _loss(_square), "mse_loss_backward": _gradient(_square_gradient, 2),
    "smooth_l1_loss": _loss(_smooth), "smooth_l1_loss_backward": _gradient(_smooth_gradient),
    "huber_loss": _loss(_huber), "huber_loss_backward": _gradient(_huber_gradient),
    "binary_cross_entropy": _cross_entropy,
    "binary_cross_entropy_backward": _cross_entropy_gradient,
}  # fmt: skip
