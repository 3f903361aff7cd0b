"""Layer norm and RMS norm as a GPU computes them, and their gradients.

Facts from aten/src/ATen/native/cuda/layer_norm_kernel.cu.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from operator import mul
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dtypes import Array
from emulator.targets import Chip
from emulator.tools.pytorch.device.arithmetic import (
    WARP,
    fma,
    function,
    halved,
    some_rows_at_a_time,
)
from emulator.tools.pytorch.device.native import Expression, State, Steps, on_rows, take_turns
from emulator.tools.pytorch.device.reduce import tree
from emulator.tools.pytorch.device.reductions import Squares, Welford
from emulator.tools.pytorch.device.softmax import sums_of_block

_ONE = np.float32(1)
#: threads of a row where vectors are loaded, where they are not, and elements of a vector
_THREADS, _SINGLE_THREADS, _VECTOR = 128, 512, 4
#: columns that so many rows of a tile are summed in, by the least number of rows in all
_TILES = ((256, 32), (128, 16), (64, 8), (0, 1))
#: rows of a tile that one thread sums
_ROWS = 8
#: rows from which PyTorch may sum parts of them first
_MANY_ROWS = 1 << 16


class _Moments(Welford):
    """As PyTorch's layer norm has it: reciprocals in the place of quotients."""

    def take(self, state: State, values: Array) -> State:
        mean, squares, count = state
        count = count + _ONE
        delta = values - mean
        mean = fma(delta, _ONE / count, mean)
        return mean, fma(delta, values - mean, squares), count

    def join(self, left: State, right: State) -> State:
        delta = left[0] - right[0]
        count = left[2] + right[2]
        part = _ONE / count
        first, second = right[2] * part, left[2] * part
        mean = fma(first, right[0], second * left[0])
        squares = fma(delta * delta * right[2], second, right[1] + left[1])
        made = mean, squares, count
        return tuple(np.where(count > 0, x, np.float32(0)) for x in made)


def in_turns(steps: Steps, rows: Array, threads: int, vector: int) -> State:
    """The states of the threads of each row, each of which takes every `threads`-th vector."""
    state = steps.start((len(rows), threads))
    take_turns(steps, state, rows, vector)
    return state


def block(steps: Steps, state: State) -> State:
    """The state of a block: of each warp, then of the warps."""
    state = tree(steps, tuple(x.reshape(len(x), -1, WARP) for x in state))
    start = steps.start((len(state[0]), WARP))
    for whole, made in zip(start, state, strict=True):
        whole[:, : made.shape[1]] = made
    return tree(steps, start)


class Rows:
    """A tensor as rows of the elements that are normalised together."""

    def __init__(self, x: Tensor, shape: Sequence[int], *others: Tensor | None) -> None:
        self.length, self.dtype = prod(shape), x.dtype
        #: of each element of a row
        self.others = tuple(map(floats, others))
        self.values = x.float().reshape(-1, self.length).numpy()
        #: the shape of what there is one of a row
        self.single = [*x.shape[: x.dim() - len(shape)], *[1] * len(shape)]
        size = _VECTOR * x.element_size()
        present = [t for t in (x, *others) if t is not None]
        #: whether the kernels with vectors can be used
        self.vectors = not self.length % _VECTOR and not any(t.data_ptr() % size for t in present)

    def one_each(self, values: Array) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(values)).reshape(self.single)


#: normalised elements, by whether there is a weight and a bias
_FORMS: dict[tuple[bool, bool], Expression] = {
    (False, False): lambda scale, x, mean: scale * (x - mean),
    (True, False): lambda scale, x, mean, weight: weight * (scale * (x - mean)),
    (False, True): lambda scale, x, mean, bias: scale * (x - mean) + bias,
    (True, True): lambda scale, x, mean, weight, bias: fma(weight, scale * (x - mean), bias),
}


def _normalised_apart(scale: Any, x: Any, mean: Any, weight: Any, bias: Any) -> Any:
    """As the kernel without vectors has it."""
    return fma((x - mean) * scale, weight, bias)


def _weighted(scale: Any, x: Any, weight: Any) -> Any:
    return weight * (scale * x)


def floats(x: Tensor | None) -> Any:
    return None if x is None else x.float().reshape(-1).numpy()


def _same_type(x: Tensor, *others: Tensor | None) -> bool:
    return all(t is None or t.dtype == x.dtype for t in others)


def layer_norm(
    chip: Chip,
    x: Tensor,
    shape: Sequence[int],
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
) -> tuple[Tensor, ...] | None:
    """The normalised tensor, and mean and reciprocal deviation of each row."""
    if not _same_type(x, weight, bias):
        return None
    x, length = x.contiguous(), prod(shape)
    made = some_rows_at_a_time(
        x, length, lambda part: _layer_norm(chip, Rows(part, [length], weight, bias), eps)
    )
    single = [*x.shape[: x.dim() - len(shape)], *[1] * len(shape)]
    return made[0].reshape(x.shape), *(t.reshape(single) for t in made[1:])


def _layer_norm(chip: Chip, rows: Rows, eps: float) -> tuple[Tensor, ...]:
    factor, addend = rows.others
    epsilon = np.float32(eps)
    if rows.vectors:
        moments = _Moments()
        state = in_turns(moments, rows.values, _THREADS, _VECTOR)
        mean, squares, _ = tree(
            moments, tree(moments, tuple(s.reshape(len(s), -1, WARP) for s in state))
        )
        scale = function(chip.target, "rsqrt", squares / np.float32(rows.length) + epsilon)
        form = _FORMS[factor is not None, addend is not None]
        given = [t for t in (factor, addend) if t is not None]
        made = on_rows(form, scale[:, None], rows.values, mean[:, None], *given)
    else:
        steps = Welford()
        mean, squares, count = block(steps, in_turns(steps, rows.values, _SINGLE_THREADS, 1))
        scale = function(chip.target, "rsqrt", squares / count + epsilon)
        both = _ONE if factor is None else factor, np.float32(0) if addend is None else addend
        made = on_rows(_normalised_apart, scale[:, None], rows.values, mean[:, None], *both)
    out = torch.from_numpy(made).to(rows.dtype)
    return out, rows.one_each(mean), rows.one_each(scale)


def layer_norm_gradient(
    chip: Chip,
    given: Tensor,
    x: Tensor,
    shape: Sequence[int],
    mean: Tensor | None,
    scale: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    wanted: Sequence[bool],
) -> tuple[Tensor | None, ...] | None:
    """The gradients of the tensor, the weight and the bias; without a mean those of RMS norm."""
    if not _same_type(x, given, weight, bias):
        return None
    rows = Rows(x.contiguous(), shape, weight)
    loss = given.contiguous().float().reshape(-1, rows.length).numpy()
    if (wanted[1] or wanted[2]) and len(loss) > _MANY_ROWS:
        return None
    centred = rows.values if mean is None else rows.values - mean.reshape(-1, 1).numpy()
    factor = scale.reshape(-1, 1).numpy()
    made = of_weight = of_bias = None
    if wanted[0]:
        made = _of_rows(loss, centred, factor, floats(weight), mean is not None)
    if wanted[1] and weight is not None:
        of_weight = _of_columns(loss * centred, factor)
    if wanted[2] and bias is not None:
        of_bias = _of_columns(loss, None)
    return _like(made, x), _like(of_weight, weight), _like(of_bias, bias)


def rms_norm_gradient(
    chip: Chip,
    given: Tensor,
    x: Tensor,
    shape: Sequence[int],
    scale: Tensor,
    weight: Tensor | None,
    wanted: Sequence[bool],
) -> tuple[Tensor | None, ...] | None:
    """The gradients of the tensor and the weight."""
    made = layer_norm_gradient(
        chip, given, x, shape, None, scale, weight, None, (*wanted[:2], False)
    )
    return made and made[:2]


def _like(values: Array | None, x: Tensor | None) -> Tensor | None:
    if values is None or x is None:
        return None
    return torch.from_numpy(values).reshape(x.shape).to(x.dtype)


def _of_rows(loss: Array, centred: Array, scale: Array, weight: Any, is_centred: bool) -> Array:
    """The gradient of the tensor."""
    weight = _ONE if weight is None else weight
    count = np.float32(loss.shape[1])
    products = loss * weight
    second = sums_of_block(_sums(products * centred, scale))[:, None]
    made = fma(count * weight, loss, -(centred * scale * second))
    if is_centred:
        made = made - sums_of_block(_sums(products, _ONE))[:, None]
    return np.asarray(made * (_ONE / count * scale))


def _sums(left: Array, right: Any) -> Array:
    """What each thread sums: four elements at a time, each times the number of its row."""
    held = np.zeros((len(left), _THREADS), np.float32)
    step = _THREADS * _VECTOR
    for first in range(0, left.shape[1], step):
        part = left[:, first : first + step]
        for place in range(min(_VECTOR, part.shape[1])):
            values = part[:, place::_VECTOR]
            size = values.shape[1]
            held[:, :size] = fma(values, right, held[:, :size])
    return held


def _of_columns(values: Array, scale: Any) -> Array:
    """The sums of columns, of products with `scale` if there is one."""
    threads = next(threads for least, threads in _TILES if len(values) >= least)
    height = threads * _ROWS
    held = np.zeros((threads, values.shape[1]), np.float32)
    for first in range(0, len(values), height):
        for row in range(min(_ROWS, len(values) - first)):
            part = values[first + row : first + height : _ROWS]
            size = len(part)
            if scale is None:
                held[:size] += part
            else:
                held[:size] = fma(part, scale[first + row : first + height : _ROWS], held[:size])
    return halved(held.T)


def rms_norm(
    chip: Chip,
    x: Tensor,
    shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> tuple[Tensor, ...] | None:
    """The tensor divided by the root of its mean square, and the reciprocal root of each row."""
    if not _same_type(x, weight):
        return None
    x = x.contiguous()
    rows = Rows(x, shape, weight)
    factor = floats(weight)
    epsilon = np.float32(torch.finfo(torch.float32).eps if eps is None else eps)
    if not rows.vectors:
        return None
    state = in_turns(Squares(), rows.values, _THREADS, _VECTOR)
    (squares,) = tree(Squares(), tree(Squares(), tuple(s.reshape(len(s), -1, WARP) for s in state)))
    scale = function(chip.target, "rsqrt", squares / np.float32(rows.length) + epsilon)
    factors = () if factor is None else (factor,)
    made = on_rows(_weighted if factors else mul, scale[:, None], rows.values, *factors)
    return torch.from_numpy(made).reshape(x.shape).to(x.dtype), rows.one_each(scale)
