"""Group norm and batch norm as a GPU computes them, and batch norm's gradients.

Facts from aten/src/ATen/native/cuda: group_norm_kernel.cu, Normalization.cu and Normalization.cuh.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
import torch
from torch import Tensor

from dtypes import Array
from emulator.targets import Chip
from emulator.tools.pytorch.device import cudnn_norms
from emulator.tools.pytorch.device.arithmetic import WARP, fma, function, rounded
from emulator.tools.pytorch.device.norms import block, floats, in_turns
from emulator.tools.pytorch.device.reductions import Welford

_ONE, _ZERO = np.float32(1), np.float32(0)
#: threads of a block
_THREADS = 512


def group_norm(
    chip: Chip,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    count: int,
    channels: int,
    inner: int,
    groups: int,
    eps: float,
) -> tuple[Tensor, ...] | None:
    """The normalised tensor, and mean and reciprocal deviation of each group."""
    if not x.is_contiguous() or any(t is not None and t.dtype != x.dtype for t in (weight, bias)):
        return None
    values = x.float().numpy()
    length = channels // groups * inner
    steps = Welford()
    threads = WARP if length < _THREADS else _THREADS
    state = in_turns(steps, values.reshape(-1, length), threads, 1)
    mean, squares, number = block(steps, state)
    epsilon = rounded(np.full(1, eps, np.float32), x.dtype)
    scale = function(chip.target, "rsqrt", squares / number + epsilon)
    # The kernels that follow read both in the type of the tensor.
    mean, scale = (rounded(s, x.dtype) for s in (mean, scale))
    shape = count, groups, channels // groups, inner
    values = values.reshape(shape)
    middle, each = (s.reshape(count, groups, 1, 1) for s in (mean, scale))
    factor, addend = (
        None if t is None else floats(t).reshape(1, groups, -1, 1) for t in (weight, bias)
    )
    if inner > 1 and (factor is not None or addend is not None):
        each = each if factor is None else each * factor
        made = fma(each, values, (_ZERO if addend is None else addend) - each * middle)
    else:
        made = (values - middle) * each
        if addend is not None:
            made = made + addend if factor is None else fma(made, factor, addend)
        elif factor is not None:
            made = made * factor
    out = torch.from_numpy(made).reshape(x.shape).to(x.dtype)
    moments = (torch.from_numpy(s).reshape(count, groups).to(x.dtype) for s in (mean, scale))
    return (out, *moments)


def _threads(inner: int) -> tuple[int, int]:
    """The threads of a block: along the elements of a channel, and over the batch."""
    width = next((size for size in (32, 64, 128, 256) if inner <= size), _THREADS)
    return width, _THREADS // width


def _of_threads(values: Array) -> list[Array]:
    """What the threads of a channel take at each turn, as ``(channels, rows, columns)``."""
    width, height = _threads(values.shape[2])
    return [
        values[first : first + height, :, at : at + width].transpose(1, 0, 2)
        for first in range(0, len(values), height)
        for at in range(0, values.shape[2], width)
    ]


def _merged(mean: Array, squares: Array, count: Array) -> tuple[Array, Array, Array]:
    """The moments of a warp: each lane joins those of the lane whose number differs in a bit."""
    lanes = np.arange(WARP)
    for bit in range(5):
        other = lanes ^ (1 << bit)
        its_mean, its_count = mean[..., other], count[..., other]
        factor = (1 / np.maximum(1, (count + its_count).astype(np.float64))).astype(np.float32)
        delta = mean - its_mean
        product = delta * delta * count * its_count
        squares = squares + fma(product, factor, squares[..., other])
        mean = fma(count, mean, its_count * its_mean) * factor
        count = count + its_count
    return mean, squares, count


def _moments(values: Array) -> tuple[Array, Array]:
    """Mean and variance of each channel of ``(batch, channels, elements)``."""
    width, height = _threads(values.shape[2])
    shape = values.shape[1], height, width
    mean, squares, count = (np.zeros(shape, np.float32) for _ in range(3))
    for part in _of_threads(values):
        here = np.s_[:, : part.shape[1], : part.shape[2]]
        count[here] += _ONE
        delta = part - mean[here]
        mean[here] += delta / count[here]
        squares[here] = fma(delta, part - mean[here], squares[here])
    state = tuple(x.reshape(len(x), -1, WARP) for x in (mean, squares, count))
    warps = np.zeros((3, values.shape[1], WARP), np.float32)
    for whole, made in zip(warps, _merged(*state), strict=True):
        whole[:, : made.shape[1]] = made[:, :, 0]
    mean, squares, count = (x[:, 0] for x in _merged(*warps))
    return mean, squares / np.float32(len(values) * values.shape[2])


def _is_cudnn(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> bool:
    """Whether PyTorch leaves a batch norm to cuDNN."""
    wide = weight is not None and bias is not None and weight.dtype == torch.float32
    types = torch.float32, torch.float16
    return wide and x.dim() > 2 and x.dtype in types and torch.backends.cudnn.enabled


def _is_known(x: Tensor) -> bool:
    """True if the order of cuDNN's batch norm is known."""
    return x.dtype == torch.float32 and x[:, 0].numel() <= cudnn_norms.LARGEST


def _has_rows(x: Tensor) -> bool:
    """Whether the elements of a channel lie together; PyTorch has other kernels else."""
    return x.dim() > 1 and x.is_contiguous() and x.stride(1) != 1


def batch_norm(
    chip: Chip,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, ...] | None:
    """The normalised tensor, and mean and reciprocal deviation of each channel."""
    cudnn = training and _is_cudnn(x, weight, bias)
    if (cudnn and not _is_known(x)) or not _has_rows(x):
        return None
    values = x.float().numpy().reshape(*x.shape[:2], -1)
    if cudnn:
        flat = _by_channel(values)
        mean, variance, scale = cudnn_norms.moments(chip.target, flat, eps)
        if running_mean is not None and running_var is not None:
            pairs = (floats(running_mean), mean), (floats(running_var), variance)
            moved = cudnn_norms.moved(*pairs, flat.shape[1], np.float32(momentum))
            for running, statistic in zip((running_mean, running_var), moved, strict=True):
                running.copy_(torch.from_numpy(statistic))
        made = cudnn_norms.normalised(flat, mean, scale, floats(weight), floats(bias))
        return _by_image(made, x), torch.from_numpy(mean), torch.from_numpy(scale)
    if training:
        mean, variance = _moments(values)
        count = values[:, 0].size
        _update(running_mean, mean, momentum)
        _update(running_var, variance * np.float32(count / max(count - 1, 1)), momentum)
    else:
        mean, variance = floats(running_mean), floats(running_var)
    scale = function(chip.target, "rsqrt", variance + np.float32(eps))
    factor = _ONE if weight is None else floats(weight)[:, None]
    addend = _ZERO if bias is None else floats(bias)[:, None]
    made = fma(factor * (values - mean[:, None]), scale[:, None], addend)
    out = torch.from_numpy(made).reshape(x.shape).to(x.dtype)
    return out, torch.from_numpy(mean.copy()), torch.from_numpy(scale)


def _by_channel(values: Array) -> Array:
    """``(channels, elements)`` of values ``(batch, channels, elements)``."""
    return values.swapaxes(0, 1).reshape(values.shape[1], -1)


def _by_image(values: Array, like: Tensor) -> Tensor:
    """A tensor of values ``(channels, elements)``."""
    split = values.reshape(len(values), len(like), -1).swapaxes(0, 1)
    return torch.from_numpy(np.ascontiguousarray(split)).view(like.shape)


def _update(running: Tensor | None, made: Array, momentum: float) -> None:
    """Moves a running statistic towards that of the batch."""
    if running is not None:
        part = np.float32(momentum)
        running.copy_(torch.from_numpy(fma(made, part, (_ONE - part) * floats(running))))


def batch_norm_gradient(
    chip: Chip,
    given: Tensor,
    x: Tensor,
    weight: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    save_mean: Tensor | None,
    save_scale: Tensor | None,
    training: bool,
    eps: float,
    wanted: Sequence[bool],
) -> tuple[Tensor | None, ...] | None:
    """The gradients of the tensor, the weight and the bias."""
    cudnn = _is_cudnn(x, weight, weight)
    if not wanted[0] or (cudnn and not (training and _is_known(x))) or not _has_rows(x):
        return None
    shape = *x.shape[:2], prod(x.shape[2:])
    loss, values = (t.float().reshape(shape).numpy() for t in (given, x))
    if cudnn:
        made, *sums = cudnn_norms.gradients(
            _by_channel(loss),
            _by_channel(values),
            *(floats(t) for t in (save_mean, save_scale, weight)),
        )
        pairs = zip(sums, wanted[1:], strict=True)
        return _by_image(made, x), *(torch.from_numpy(s) if wish else None for s, wish in pairs)
    factor = None if weight is None else floats(weight)[:, None]
    if not training:
        if wanted[1] or wanted[2]:
            return None
        scale = function(chip.target, "rsqrt", floats(running_var) + np.float32(eps))[:, None]
        made = (loss if factor is None else loss * factor) * scale
        return torch.from_numpy(made).reshape(x.shape).to(x.dtype), None, None
    mean, scale = (floats(t)[:, None] for t in (save_mean, save_scale))
    centred = values - mean
    first, second = _gradient_sums(loss, centred, x.dtype)
    part = _ONE / np.float32(shape[0] * shape[2])
    made = fma(-centred, second * part * scale * scale, loss) - first * part
    made = made * (scale if factor is None else scale * factor)
    of_x = torch.from_numpy(made).reshape(x.shape).to(x.dtype)
    of_weight = of_bias = None
    if weight is not None:
        of_weight, of_bias = (
            torch.from_numpy(sums[:, 0].copy()).to(weight.dtype) if wish else None
            for sums, wish in ((second * scale, wanted[1]), (first, wanted[2]))
        )
    return of_x, of_weight, of_bias


def _gradient_sums(loss: Array, centred: Array, dtype: torch.dtype) -> tuple[Array, Array]:
    """The sums over each channel of a gradient, and of its products with other elements.

    PyTorch's pair of sums rounds to the tensor's type as it is made, also by a shuffle of a warp.
    """
    width, height = _threads(loss.shape[2])
    sums = np.zeros((2, loss.shape[1], height, width), np.float32)
    for left, right in zip(_of_threads(loss), _of_threads(centred), strict=True):
        here = np.s_[:, : left.shape[1], : left.shape[2]]
        sums[0][here] += left
        if dtype == torch.float32:
            sums[1][here] = fma(left, right, sums[1][here])
        else:
            sums[1][here] += rounded(left * right, dtype)
    lanes = _shuffled(sums.reshape(2, loss.shape[1], -1, WARP), dtype)
    warps = np.zeros((2, loss.shape[1], WARP), np.float32)
    warps[..., : lanes.shape[2]] = lanes
    first, second = _shuffled(warps, dtype)[..., None]
    return first, second


def _shuffled(values: Array, dtype: torch.dtype) -> Array:
    """The sum along the last axis, in halves, the second of which is rounded to a type."""
    while (half := values.shape[-1] // 2) > 0:
        right = np.ascontiguousarray(values[..., half:])
        values = values[..., :half] + rounded(right, dtype)
    return np.asarray(values[..., 0])
