"""Steps of f32 arithmetic as a GPU takes them, on NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dtypes import Array
from emulator.layout.lanemap import WARP as WARP
from emulator.targets import Target
from emulator.tools.pytorch.device.native import on_rows
from emulator.tools.pytorch.device.pointwise import run_kernel

#: threads of a warp
#: elements from which machine code is faster than NumPy, and that stay in the cache
_MANY, _TOGETHER = 1 << 12, 1 << 20
_SMALLEST = float(np.finfo(np.float32).smallest_normal)


def fma(a: Any, b: Any, c: Any) -> Any:
    """``a * b + c`` with one rounding, of arrays, numbers or words of LLVM."""
    shape = () if hasattr(a, "fma") else np.broadcast_shapes(*map(np.shape, (a, b, c)))
    if prod(shape) < _MANY:
        return _fused(a, b, c)
    flat = (
        x if np.size(x) == 1 else np.ascontiguousarray(np.broadcast_to(x, shape)).reshape(-1)
        for x in (a, b, c)
    )
    return on_rows(_fused, *flat).reshape(shape)


def _fused(a: Any, b: Any, c: Any) -> Any:
    """The same at once: of arrays, the product is exact in f64, and the sum nearly so."""
    if hasattr(a, "fma"):
        return a.fma(b, c)
    product = np.multiply(a, b, dtype=np.float64)
    total = product + c
    codes = np.asarray(total).view(np.int64)
    doubtful = (codes & 0x1FFFFFFF == 0x10000000) | (np.abs(total) < _SMALLEST)
    if not doubtful.any():
        return total.astype(np.float32)
    # Rounding twice errs only where the sum in f64 was rounded onto a tie: make it odd instead.
    shown = total - product
    rest = (product - (total - shown)) + (np.asarray(c, np.float64) - shown)
    odd = doubtful & np.isfinite(total) & (rest != 0) & (codes & 1 == 0) & (total != 0)
    codes = codes + np.where(odd, np.where((rest > 0) == (total > 0), 1, -1), 0)
    return codes.view(np.float64).astype(np.float32)


def function(target: Target, name: str, *operands: Array) -> Array:
    """A function of CUDA's library, by its kernel among the pointwise ones."""
    shape = np.broadcast_shapes(*(x.shape for x in operands))
    out = np.empty(shape, np.float32)
    if out.size:
        given = [np.ascontiguousarray(np.broadcast_to(x, shape)) for x in operands]
        run_kernel(target.name, name, given, out)
    return out


def rounded(values: Array, dtype: torch.dtype) -> Array:
    """Values of f32 rounded to a type."""
    if dtype == torch.float32:
        return values
    return torch.from_numpy(values).to(dtype).float().numpy()


def halved(values: Array) -> Array:
    """The sum along the last axis: its first half is added to the second, again and again."""
    while (half := values.shape[-1] // 2) > 0:
        values = values[..., :half] + values[..., half:]
    return np.asarray(values[..., 0])


def rows_of(x: Tensor, axis: int) -> tuple[Array, torch.Size]:
    """The values of a tensor with an axis last, as rows in f32; and the shape in that order."""
    moved = x.movedim(axis, -1)
    return moved.float().reshape(-1, x.shape[axis]).numpy(), moved.shape


def from_rows(values: Array, shape: torch.Size, axis: int) -> Tensor:
    """The contiguous tensor of rows."""
    return torch.from_numpy(values).reshape(shape).movedim(-1, axis).contiguous()


def some_rows_at_a_time(
    x: Tensor, count: int, compute: Callable[[Tensor], tuple[Tensor, ...]]
) -> tuple[Tensor, ...]:
    """Computes on the rows of `count` elements of a contiguous tensor, as many at a time as stay in
    the cache. The tensors that `compute` returns have one row, or one element, for each of its."""
    rows = x.reshape(-1, count)
    together = max(_TOGETHER // count, 1)
    made = [compute(rows[i : i + together]) for i in range(0, len(rows), together)]
    return tuple(map(torch.cat, zip(*made, strict=True))) if len(made) > 1 else made[0]
