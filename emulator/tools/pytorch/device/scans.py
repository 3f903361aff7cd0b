"""Cumulative sums and products as a GPU computes them.

Facts from aten/src/ATen/native/cuda/ScanUtils.cuh. A scan of all elements of a tensor in one row is
CUB's, whose order depends on which blocks end first.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from torch import Tensor

from dtypes import Array

#: logarithms of the fewest and the most threads of a row, and of the threads of a block
_FEWEST, _MOST, _BLOCK = 4, 9, 9

#: a step from two arrays to one
Step = Callable[[Array, Array], Array]


def scan(x: Tensor, axis: int, step: Step, start: float) -> Array | None:
    """The scan along an axis of a contiguous tensor, in f32; None for a scan by CUB."""
    if x.numel() == x.shape[axis]:
        return None
    values = x.float().numpy()
    if axis != x.dim() - 1:
        return _by_columns(values, axis, step, start)
    rows = values.reshape(-1, x.shape[-1])
    return _by_rows(rows, step, start).reshape(values.shape)


def _by_columns(values: Array, axis: int, step: Step, start: float) -> Array:
    """One element after the other."""
    out = np.empty_like(values)
    held = np.full(np.delete(values.shape, axis), start, np.float32)
    for here, there in zip(np.moveaxis(values, axis, 0), np.moveaxis(out, axis, 0), strict=True):
        there[:] = held = step(held, here)
    return out


def _by_rows(rows: Array, step: Step, start: float) -> Array:
    """Two elements a thread at a time: the last of a left half goes into all of the right."""
    count, size = rows.shape
    difference = (size - 1).bit_length() - (count - 1).bit_length()
    # PyTorch subtracts unsigned numbers: below -9 the quotient wraps, and the most threads run.
    threads = _MOST if _BLOCK + difference < 0 else (_BLOCK + difference) // 2
    width = 2 << min(max(threads, _FEWEST), _MOST)
    out = np.empty_like(rows)
    total = np.full(count, start, np.float32)
    for first in range(0, size, width):
        part = rows[:, first : first + width]
        held = np.full((count, width), start, np.float32)
        held[:, : part.shape[1]] = part
        held[:, 0] = step(held[:, 0], total)
        half = 1
        while half < width:
            pairs = held.reshape(count, -1, 2, half)
            pairs[:, :, 1] = step(pairs[:, :, 1], pairs[:, :, 0, -1:])
            half *= 2
        out[:, first : first + width] = held[:, : part.shape[1]]
        total = held[:, -1]
    return out
