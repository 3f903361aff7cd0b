"""The order of PyTorch's reductions: how its one kernel for them spreads elements over threads.

Facts from aten/src/ATen/native/cuda/Reduce.cuh and ATen/TensorIterator.cpp. Every thread keeps
several accumulators; the results of threads are joined in a tree within a block, then over blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from torch import Tensor

from dtypes import Array
from emulator.tools.pytorch.device.arithmetic import WARP
from emulator.tools.pytorch.device.native import State, Steps, take_turns

_MOST_THREADS = 512
_THREADS_OF_PROCESSOR = 2048
#: values that a thread should reduce before more threads share the work, and the most it should
_FEW_VALUES, _MANY_VALUES = 16, 256


class Axis(NamedTuple):
    """An axis of the elements, or several that lie one behind the other."""

    size: int
    #: in elements
    stride: int


class Threads(NamedTuple):
    """The threads that reduce the elements of one result."""

    width: int
    height: int
    blocks: int
    #: elements that a thread loads at once, each into an accumulator of its own; 0: one
    vector: int
    #: whether the threads of a row of the block work on the same result
    along_row: bool

    @property
    def total(self) -> int:
        return self.width * self.height * self.blocks


def _swaps(lower: tuple[int, int, int], upper: tuple[int, int, int]) -> int:
    """1 where the upper of two axes comes first, -1 where the lower does; 0: either may.

    An axis is its stride in the result, which is 0 if it is reduced, its stride, and its size.
    """
    if (lower[0] == 0) != (upper[0] == 0):
        return 1 if upper[0] == 0 else -1
    for one, other in zip(lower[:2], upper[:2], strict=True):
        if one and other and one != other:
            return -1 if one < other else 1
        if one and other and lower[2] > upper[2]:
            return 1
    return 0


def sorted_axes(tensor: Tensor, axes: Sequence[int]) -> tuple[list[int], list[int]]:
    """The axes to reduce and the others, without those of length 1, the fastest first."""
    step, facts = 1, {}
    for axis in reversed(range(tensor.dim())):
        size = tensor.shape[axis]
        reduced = axis in axes
        facts[axis] = (0 if reduced else step, tensor.stride(axis), size)
        step *= 1 if reduced else size
    order = [axis for axis in facts if tensor.shape[axis] != 1]
    for last in range(1, len(order)):
        here = last
        for before in reversed(range(last)):
            swap = _swaps(facts[order[before]], facts[order[here]])
            if swap > 0:
                order[before], order[here] = order[here], order[before]
                here = before
            elif swap < 0:
                break
    return [x for x in order if x in axes], [x for x in order if x not in axes]


def _merged(tensor: Tensor, axes: list[int]) -> list[Axis]:
    """Axes, with those that lie one behind the other made one."""
    out: list[Axis] = []
    for axis in axes:
        size, stride = tensor.shape[axis], tensor.stride(axis)
        if out and out[-1].size * out[-1].stride == stride:
            out[-1] = Axis(out[-1].size * size, out[-1].stride)
        else:
            out.append(Axis(size, stride))
    return out


def _power(number: int) -> int:
    """The greatest power of two that is not above a number, and at least 1."""
    return 1 << max(number.bit_length() - 1, 0)


def _results_of_vector(tensor: Tensor, reduced: list[Axis], kept: list[Axis]) -> int:
    """How many results a thread computes at once."""
    out = 4
    first = tensor.data_ptr() // tensor.element_size()
    others = [axis.stride for axis in (*reduced, *kept[1:])]
    for number in (first, kept[0].size, *others):
        while number % out:
            out //= 2
    return out


def threads_of(
    tensor: Tensor, reduced: list[Axis], kept: list[Axis], vector: int, processors: int
) -> Threads:
    """The threads of one result.

    `vector` is how many elements a load along the elements takes at most.
    """
    inputs = int(np.prod([axis.size for axis in reduced], dtype=np.int64))
    outputs = int(np.prod([axis.size for axis in kept], dtype=np.int64))
    along_row = not kept or (bool(reduced) and reduced[0].stride < kept[0].stride)
    along, across = (inputs, outputs) if along_row else (outputs, inputs)
    fastest = (reduced if along_row else kept)[0].stride if reduced or kept else 1
    loads, results = 0, 1
    if fastest == 1 and along_row and along >= 128 and len(reduced) == 1:
        loads, along = vector, along // vector
    elif fastest == 1 and not along_row:
        results = _results_of_vector(tensor, reduced, kept)
        along //= results
    most = _MOST_THREADS // results
    columns = _power(along) if along < most else most
    rows = _power(across) if across < most else most
    width = min(columns, WARP)
    height = min(rows, most // width)
    width = min(columns, most // height)
    step = width if along_row else 1
    across_rows = -(-inputs // step) >= min(height * _FEW_VALUES, _MANY_VALUES)
    step *= height if across_rows else 1
    results_of_block = (1 if along_row else width) * (1 if across_rows else height)
    grid = -(-(outputs // results) // results_of_block)
    target = processors * (_THREADS_OF_PROCESSOR // (width * height))
    each, blocks = -(-inputs // step), 1
    if across_rows and each >= _MANY_VALUES and grid <= target:
        blocks = max(min(-(-target // grid), -(-each // _FEW_VALUES)), -(-each // _MANY_VALUES))
    return Threads(
        width if along_row else 1, height if across_rows else 1, blocks, loads, along_row
    )


def reduce(
    tensor: Tensor, axes: Sequence[int], steps: Steps, lists: int, vector: int, processors: int
) -> State:
    """The states of all results, in the shape of the axes that stay.

    `lists`: how many accumulators a thread has where it does not load vectors.
    """
    fast, others = sorted_axes(tensor, axes)
    reduced, kept = _merged(tensor, fast), _merged(tensor, others)
    threads = threads_of(tensor, reduced, kept, vector, processors)
    stay = [axis for axis in range(tensor.dim()) if axis not in axes]
    alone = [axis for axis in axes if axis not in fast]
    rows = tensor.permute([*stay, *alone, *reversed(fast)])
    shape = rows.shape[: len(stay)]
    count = int(np.prod(shape, dtype=np.int64))
    values = rows.reshape(count, -1).float().numpy()
    if not threads.vector:
        state = _by_elements(steps, values, threads, lists)
        return tuple(x.reshape(shape) for x in _joined(steps, state, threads))
    out = [np.empty(count, np.float32) for _ in steps.start((1,))]
    shifts = _shifts(rows, len(stay), threads.vector)
    for shift in np.unique(shifts):
        chosen = shifts == shift
        part = values if chosen.all() else values[chosen]
        state = _by_vectors(steps, part, threads, int(shift))
        for whole, made in zip(out, _joined(steps, state, threads), strict=True):
            whole[chosen] = made
    return tuple(x.reshape(shape) for x in out)


def _shifts(rows: Tensor, axes: int, vector: int) -> Array:
    """How many elements each row begins behind a whole vector."""
    place = np.array(rows.data_ptr() // rows.element_size())
    for size, stride in zip(rows.shape[:axes], rows.stride()[:axes], strict=True):
        place = place[..., None] + np.arange(size) * stride
    return np.asarray(place.reshape(-1) % vector)


def take(steps: Steps, state: State, values: Array, first: int = 0, step: int = 1) -> None:
    """One more element for each of the accumulators `first`, ``first + step`` and so on."""
    here = np.s_[:, first : first + values.shape[1] * step : step]
    made = steps.take(tuple(x[here] for x in state), values)
    for held, new in zip(state, made, strict=True):
        held[here] = new


def _by_elements(steps: Steps, values: Array, threads: Threads, lists: int) -> State:
    """Each thread takes every n-th element of n threads, with its accumulators in turn."""
    state = steps.start((values.shape[0], lists * threads.total))
    take_turns(steps, state, values)
    return _join_lists(steps, tuple(x.reshape(-1, lists, threads.total) for x in state), 1)


def _by_vectors(steps: Steps, values: Array, threads: Threads, shift: int) -> State:
    """Each of n threads takes every n-th vector; the first ones take what is before and behind."""
    length = threads.vector
    state = steps.start((values.shape[0], threads.total * length))
    if shift:
        head = length - shift
        take(steps, state, values[:, :head], shift * length, length)
        values = values[:, head:]
    whole = values.shape[1] - values.shape[1] % length
    take_turns(steps, state, values[:, :whole])
    if whole < values.shape[1]:
        take(steps, state, values[:, whole:], 0, length)
    return _join_lists(steps, tuple(x.reshape(-1, threads.total, length) for x in state), 2)


def _join_lists(steps: Steps, lists: State, axis: int) -> State:
    """Joins the accumulators of each thread, one after the other."""
    first, *others = (
        tuple(np.take(x, i, axis) for x in lists) for i in range(lists[0].shape[axis])
    )
    state = first
    for other in others:
        state = steps.join(state, other)
    return state


def tree(steps: Steps, state: State, axis: int = -1) -> State:
    """Joins the first half of an axis with the second, again and again."""
    state = tuple(np.moveaxis(x, axis, -1) for x in state)
    while (half := state[0].shape[-1] // 2) > 0:
        left, right = tuple(x[..., :half] for x in state), tuple(x[..., half:] for x in state)
        state = steps.join(left, right)
    return tuple(x[..., 0] for x in state)


def _joined(steps: Steps, state: State, threads: Threads) -> State:
    """The state of each result, from those of its threads."""
    shape = -1, threads.blocks, threads.height, threads.width
    state = tuple(x.reshape(shape) for x in state)
    state = tree(steps, tree(steps, state, 3), 2)
    if threads.blocks == 1:
        return tuple(x[:, 0] for x in state)
    count = threads.height * threads.width
    out = steps.start((state[0].shape[0], count))
    for first in range(0, threads.blocks, count):
        part = tuple(x[:, first : first + count] for x in state)
        size = part[0].shape[1]
        for held, made in zip(out, steps.join(tuple(x[:, :size] for x in out), part), strict=True):
            held[:, :size] = made
    out = tuple(x.reshape(-1, threads.height, threads.width) for x in out)
    return tree(steps, tree(steps, out, 1), 1)
