"""Batch norm of f32 in training as cuDNN computes it, and its gradients.

The kernels are closed; experiments with sums showed their order. A block of 512 threads has a
channel, and a thread every 512th of its elements, over all images.
"""

from __future__ import annotations

import numpy as np

from dtypes import Array
from emulator.targets import Target
from emulator.tools.pytorch.device.arithmetic import WARP, fma, function, halved

_ONE = np.float32(1)
_THREADS = 512
#: elements of a channel up to which these kernels were seen to run
LARGEST = 12544


def moments(target: Target, values: Array, eps: float) -> tuple[Array, Array, Array]:
    """Mean, variance and reciprocal deviation of each channel of ``(channels, elements)``."""
    part = _ONE / np.float32(values.shape[1])
    mean = _of_block(_threads(values)) * part
    centred = values - mean[:, None]
    variance = _of_block(_threads(centred, centred)) * part
    return mean, variance, function(target, "rsqrt", variance + np.float32(eps))


def normalised(values: Array, mean: Array, scale: Array, weight: Array, bias: Array) -> Array:
    """The normalised values, ``(channels, elements)``."""
    factor = scale * weight
    return fma(values, factor[:, None], (bias - mean * factor)[:, None])


def moved(
    means: tuple[Array, Array], variances: tuple[Array, Array], count: int, part: np.float32
) -> tuple[Array, Array]:
    """Running mean and variance, each of a pair of that and the batch's, moved a part of the way.

    `count` is the number of elements of a channel.
    """
    (old_mean, mean), (old_variance, variance) = means, variances
    unbiased = np.float32(count / max(count - 1, 1))
    return (
        fma(_ONE - part, old_mean, mean * part),
        fma(variance * part, unbiased, (_ONE - part) * old_variance),
    )


def gradients(
    given: Array, values: Array, mean: Array, scale: Array, weight: Array
) -> tuple[Array, Array, Array]:
    """The gradients of the values, the weight and the bias."""
    part, factor = _ONE / np.float32(values.shape[1]), scale * weight
    centred = values - mean[:, None]
    of_bias = _by_neighbours(_threads(given))
    of_weight = _by_neighbours(_threads(given, centred)) * scale
    slope, addend = factor * (of_weight * scale * part), factor * (of_bias * part)
    made = fma(centred, -slope[:, None], fma(given, factor[:, None], -addend[:, None]))
    return made, of_weight, of_bias


def _threads(values: Array, factors: Array | None = None) -> Array:
    """The sum of each thread of each channel, of values or of their products with factors."""
    room = [(0, 0), (0, -values.shape[1] % _THREADS)]
    left, right = (
        None if x is None else np.pad(x, room).reshape(len(x), -1, _THREADS)
        for x in (values, factors)
    )
    assert left is not None
    sums = np.zeros((len(values), _THREADS), np.float32)
    for turn in range(left.shape[1]):
        here = left[:, turn]
        sums = sums + here if right is None else fma(here, right[:, turn], sums)
    return sums


def _of_block(sums: Array) -> Array:
    """The sum over the threads of warps, then over the warps."""
    return halved(halved(sums.reshape(len(sums), -1, WARP)))


def _by_neighbours(sums: Array) -> Array:
    """The sum over the threads, of neighbours first."""
    while sums.shape[1] > 1:
        sums = sums[:, ::2] + sums[:, 1::2]
    return sums[:, 0]
