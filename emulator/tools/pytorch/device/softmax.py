"""Softmax as a GPU computes it, and its gradient: sums over a warp, a block, or along an axis.

Facts from aten/src/ATen/native/cuda: SoftMax.cu, PersistentSoftmax.cuh and block_reduce.cuh.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from operator import sub, truediv

import numpy as np
import torch
from torch import Tensor

from dtypes import Array
from emulator.targets import Target
from emulator.tools.pytorch.device.arithmetic import (
    WARP,
    fma,
    from_rows,
    function,
    halved,
    rows_of,
    some_rows_at_a_time,
)
from emulator.tools.pytorch.device.native import on_rows, take_turns
from emulator.tools.pytorch.device.reductions import Sum

#: the longest rows that a warp keeps in registers: forwards, also from f16 to f32, and backwards
_ROW_OF_WARP, _WIDENED_ROW_OF_WARP, _GRADIENT_OF_WARP = 2048, 1024, 1024
_MOST_THREADS = 1024
#: the longest row that a block keeps in registers
_ROW_OF_BLOCK = 9 * _MOST_THREADS
#: bytes of a load, and of the shared memory that a block has without asking for more
_LOAD, _SHARED = 16, 48 << 10

#: the sum of ``(rows, n)`` values along the rows
Sums = Callable[[Array], Array]


def sums_of_warp(values: Array) -> Array:
    """Each lane adds every 32nd element; then lanes are added in halves."""
    count = values.shape[1]
    lanes = min(1 << (count - 1).bit_length(), WARP)
    return halved(in_turns(values, lanes))


def sums_of_rows(count: int, bytes_: int, address: int, widens: bool) -> Sums:
    """The sums of rows of `count` elements of so many bytes, the first at an address.

    `widens`: the result is of a wider type, for which blocks keep no rows in registers.
    """
    if count <= (_WIDENED_ROW_OF_WARP if widens else _ROW_OF_WARP):
        return sums_of_warp
    if count <= _ROW_OF_BLOCK and not widens:
        return lambda values: sums_of_block(in_turns(values, _MOST_THREADS))
    return partial(_sums_in_vectors, _MOST_THREADS, bytes_, address, sums_of_block)


def gradient_sums_of_rows(count: int, bytes_: int, address: int) -> Sums:
    """As `sums_of_rows`, for the gradient."""
    if count <= _GRADIENT_OF_WARP:
        return sums_of_warp
    most = min(count // (_LOAD // bytes_), _MOST_THREADS) // 2
    threads = max(1 << (most - 1).bit_length(), WARP)
    return partial(_sums_in_vectors, threads, bytes_, address, _sums_one_by_one)


def _sums_in_vectors(
    threads: int, bytes_: int, address: int, otherwise: Sums, values: Array
) -> Array:
    """The sums of a block whose threads load vectors; `otherwise`: without shared memory."""
    count, vector = values.shape[1], _LOAD // bytes_
    shared = (_SHARED - threads // WARP * 4) // bytes_
    if count < shared and not address % _LOAD and not count % vector:
        return sums_of_block(in_turns(values, threads, vector))
    return otherwise(_by_vectors(values, threads, vector, address // bytes_))


def _sums_one_by_one(values: Array) -> Array:
    """The sum over the threads of a block: over each warp one by one, then over the warps."""
    warps = in_turns(values.reshape(-1, WARP), 1).reshape(len(values), -1)
    return in_turns(warps, 1)[:, 0]


def sums_of_columns(count: int, inner: int) -> Sums:
    """The sums along an axis of `count` elements that has `inner` elements behind it."""
    columns, threads = min(inner, _MOST_THREADS), 1
    if columns <= 64 <= count:
        while columns * threads <= _MOST_THREADS and threads <= count:
            threads *= 2
        threads //= 2
    return lambda values: halved(in_turns(values, threads))


def sums_of_block(values: Array) -> Array:
    """The sum over the threads of a block: over each warp in halves, then over the warps."""
    warps = halved(values.reshape(len(values), -1, WARP))
    rest = np.zeros((len(values), WARP - warps.shape[1]), np.float32)
    return halved(np.concatenate([warps, rest], 1))


def in_turns(values: Array, threads: int, vector: int = 1, held: Array | None = None) -> Array:
    """What each thread adds up; it takes every `threads`-th vector of a row."""
    if held is None:
        held = np.zeros((len(values), threads), np.float32)
    take_turns(Sum(), (held,), values, vector)
    return held


def _by_vectors(values: Array, threads: int, vector: int, place: int) -> Array:
    """As `in_turns`, with single elements before the first vector and behind the last turn.

    `place`: how many elements are before the first in memory.
    """
    out = np.zeros((len(values), threads), np.float32)
    shifts = (place + values.shape[1] * np.arange(len(values))) % vector
    for shift in np.unique(shifts):
        rows = shifts == shift
        part, held = values[rows], out[rows]
        if shift:
            held[:, shift:] += part[:, : threads - shift]
            part = part[:, threads - shift :]
        whole = part.shape[1] - part.shape[1] % (vector * threads)
        held = in_turns(part[:, :whole], threads, vector, held)
        out[rows] = in_turns(part[:, whole:], threads, 1, held)
    return out


def sums_along(x: Tensor, axis: int, out: torch.dtype) -> Sums:
    """The sums along an axis of a contiguous tensor, for a softmax of a type."""
    count, inner = x.shape[axis], prod(x.shape[axis + 1 :])
    if inner > 1:
        return sums_of_columns(count, inner)
    return sums_of_rows(count, x.element_size(), x.data_ptr(), widens=out != x.dtype)


def gradient_sums_along(given: Tensor, axis: int) -> Sums:
    """As `sums_along`, for the gradient."""
    count, inner = given.shape[axis], prod(given.shape[axis + 1 :])
    if inner > 1:
        return sums_of_columns(count, inner)
    return gradient_sums_of_rows(count, given.element_size(), given.data_ptr())


def softmax(target: Target, x: Tensor, axis: int, logarithm: bool, out: torch.dtype) -> Tensor:
    """The softmax along an axis, or its logarithm."""
    if axis == x.dim() - 1 and x.dim() > 1:
        compute = partial(_softmax, target, axis=1, logarithm=logarithm, out=out)
        (made,) = some_rows_at_a_time(x, x.shape[axis], lambda rows: (compute(rows),))
        return made.reshape(x.shape)
    return _softmax(target, x, axis, logarithm, out)


def _softmax(target: Target, x: Tensor, axis: int, logarithm: bool, out: torch.dtype) -> Tensor:
    values, shape = rows_of(x, axis)
    shifted = on_rows(sub, values, values.max(1, keepdims=True))
    powers = function(target, "exp", shifted)
    sums = sums_along(x, axis, out)(powers)[:, None]
    made = (
        on_rows(sub, shifted, function(target, "log", sums))
        if logarithm
        else on_rows(truediv, powers, sums)
    )
    return from_rows(made, shape, axis).to(out)


def softmax_gradient(
    target: Target, given: Tensor, y: Tensor, axis: int, logarithm: bool, out: torch.dtype
) -> Tensor:
    """The gradient of a softmax `y` along an axis, or of its logarithm."""
    if not logarithm:
        given = given * y
    given = given.contiguous()
    values, shape = rows_of(given, axis)
    factors, _ = rows_of(y, axis)
    sums = gradient_sums_along(given, axis)(values)[:, None]
    if logarithm:
        factors = function(target, "exp", factors)
    return from_rows(fma(-factors, sums, values), shape, axis).to(out)
