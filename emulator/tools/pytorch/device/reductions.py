"""Reductions as a GPU computes them: PyTorch's arithmetic, in the order of `reduce`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dtypes import Array
from emulator.targets import Chip
from emulator.tools.pytorch.device.arithmetic import fma
from emulator.tools.pytorch.device.native import State, Steps
from emulator.tools.pytorch.device.reduce import reduce

_ZERO, _ONE = np.float32(0), np.float32(1)


class Sum:
    """A sum; subclasses change what is added."""

    def start(self, shape: tuple[int, ...]) -> State:
        return (np.zeros(shape, np.float32),)

    def take(self, state: State, values: Array) -> State:
        return (state[0] + values,)

    def join(self, left: State, right: State) -> State:
        return (left[0] + right[0],)


class Product(Sum):
    def start(self, shape: tuple[int, ...]) -> State:
        return (np.ones(shape, np.float32),)

    def take(self, state: State, values: Array) -> State:
        return (state[0] * values,)

    def join(self, left: State, right: State) -> State:
        return (left[0] * right[0],)


class Magnitudes(Sum):
    def take(self, state: State, values: Array) -> State:
        return (state[0] + abs(values),)


class Squares(Sum):
    def take(self, state: State, values: Array) -> State:
        return (fma(values, values, state[0]),)


class Welford:
    """Mean, sum of squared differences from it, and count."""

    def start(self, shape: tuple[int, ...]) -> State:
        return tuple(np.zeros(shape, np.float32) for _ in range(3))

    def take(self, state: State, values: Array) -> State:
        mean, squares, count = state
        count = count + _ONE
        delta = values - mean
        mean = mean + delta / count
        return mean, fma(delta, values - mean, squares), count

    def join(self, left: State, right: State) -> State:
        delta = right[0] - left[0]
        count = left[2] + right[2]
        part = right[2] / count
        mean = fma(delta, part, left[0])
        squares = fma(delta * delta * left[2], part, left[1] + right[1])
        empty = left[2] == 0, right[2] == 0
        made = zip((mean, squares, count), left, right, strict=True)
        return tuple(np.where(empty[0], b, np.where(empty[1], a, x)) for x, a, b in made)


#: an axis, several, or all
Axes = int | Sequence[int] | None
#: types that are computed in f32
TYPES = (torch.float32, torch.float16, torch.bfloat16)


def _axes(x: Tensor, axes: Axes) -> list[int]:
    given = [] if axes is None else [axes] if isinstance(axes, int) else list(axes)
    return sorted({axis % x.dim() for axis in given}) if given else list(range(x.dim()))


def _state(
    chip: Chip, x: Tensor, axes: list[int], steps: Steps, lists: int = 4, vector: int = 4
) -> State:
    return reduce(x, axes, steps, lists, vector, chip.board.processors)


def _result(values: Array, x: Tensor, axes: list[int], keep: bool, dtype: torch.dtype) -> Tensor:
    made = torch.from_numpy(np.asarray(values)).to(dtype)
    shape = [1 if axis in axes else size for axis, size in enumerate(x.shape)]
    return made.reshape(shape) if keep else made


def _prepared(x: Tensor, dtype: torch.dtype | None) -> tuple[Tensor, torch.dtype]:
    """The elements in the type that the kernel reads, and the type of the result.

    A kernel reads f16 and bf16 where the result is f32; PyTorch converts all other pairs first.
    """
    out = dtype or x.dtype
    return (x if out in (x.dtype, torch.float32) else x.to(out)), out


def _reduction(
    steps: Steps,
    wide: bool = False,
    end: Callable[[Array, int], Array] = lambda total, count: total,
) -> Callable[..., Tensor]:
    """The operator of a reduction to one number, which `end` makes of a total and the number of
    elements. `wide`: it loads as many bytes at once of f16 and bf16 as of f32."""

    def run(
        chip: Chip,
        x: Tensor,
        dim: Axes = None,
        keepdim: bool = False,
        dtype: torch.dtype | None = None,
    ) -> Tensor:
        x, out = _prepared(x, dtype)
        axes = _axes(x, dim)
        vector = 4 if x.dtype == torch.float32 or not wide else 8
        (total,) = _state(chip, x, axes, steps, vector=vector)
        return _result(end(total, x.numel()), x, axes, keepdim, out)

    return run


def _mean(total: Array, count: int) -> Array:
    return total * (np.float32(total.size) / np.float32(count))


sum_ = _reduction(Sum(), wide=True)
mean = _reduction(Sum(), wide=True, end=_mean)
product = _reduction(Product())
_NORMS = {
    1: _reduction(Magnitudes()),
    2: _reduction(Squares(), end=lambda total, count: np.sqrt(total)),
}


def vector_norm(
    chip: Chip, x: Tensor, ord: float = 2, *how: object, **named: object
) -> Tensor | None:
    return _NORMS[int(ord)](chip, x, *how, **named) if ord in _NORMS else None


def variance_and_mean(
    chip: Chip,
    x: Tensor,
    dim: Axes = None,
    correction: float | None = None,
    keepdim: bool = False,
    *,
    root: bool = False,
) -> tuple[Tensor, Tensor]:
    axes = _axes(x, dim)
    middle, squares, count = _state(chip, x, axes, Welford(), 2, 2)
    less = np.float32(1 if correction is None else correction)
    made = squares / np.where(count > less, count - less, _ZERO)
    made = np.sqrt(made) if root else made
    return (_result(made, x, axes, keepdim, x.dtype), _result(middle, x, axes, keepdim, x.dtype))


def variance(chip: Chip, x: Tensor, *how: Any, **named: Any) -> Tensor:
    return variance_and_mean(chip, x, *how, **named)[0]


def deviation(chip: Chip, x: Tensor, *how: Any, **named: Any) -> Tensor:
    return variance_and_mean(chip, x, *how, **named, root=True)[0]
