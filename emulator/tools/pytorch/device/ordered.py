"""Operators whose kernels join many elements: reductions, softmax, scans, norms and losses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dtypes import Array
from emulator.targets import Chip
from emulator.tools.pytorch.composites import tensors_in
from emulator.tools.pytorch.device import (
    arithmetic,
    channels,
    differences,
    losses,
    norms,
    reductions,
)
from emulator.tools.pytorch.device.arithmetic import rounded
from emulator.tools.pytorch.device.distances import distances
from emulator.tools.pytorch.device.family import Answer, Request, on_chip
from emulator.tools.pytorch.device.pointwise import WHY, canonical, kernel_of
from emulator.tools.pytorch.device.scans import scan
from emulator.tools.pytorch.device.softmax import softmax, softmax_gradient

#: names of an operand that takes the result
_RESULTS = ("out", "grad_input")
#: types of indices, which may be behind the first operand
_INDICES = (torch.int64, torch.uint8)


def _softmax(logarithm: bool) -> Callable[..., Any]:
    def run(chip: Chip, x: Tensor, dim: int, widens: bool) -> Tensor:
        out = torch.float32 if widens else x.dtype
        # Only f16 has a kernel with results in f32.
        x = x.float() if widens and x.dtype == torch.bfloat16 else x
        x = x.contiguous().reshape(x.shape or (1,))
        return softmax(chip.target, x, dim % x.dim(), logarithm, out)

    return run


def _softmax_gradient(logarithm: bool) -> Callable[..., Any]:
    def run(chip: Chip, given: Tensor, y: Tensor, dim: int, dtype: torch.dtype) -> Tensor:
        y = y.contiguous().reshape(y.shape or (1,))
        given = given.reshape(y.shape)
        return softmax_gradient(chip.target, given, y, dim % y.dim(), logarithm, dtype)

    return run


def _scan(ufunc: np.ufunc, start: float) -> Callable[..., Any]:
    def run(chip: Chip, x: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor | None:
        x = x.to(dtype or x.dtype).contiguous()
        if x.dtype not in reductions.TYPES or not x.dim():
            return None

        def step(left: Array, right: Array) -> Array:
            return rounded(ufunc(left, right), x.dtype)

        made = scan(x, dim % x.dim(), step, start)
        return None if made is None else torch.from_numpy(made).to(x.dtype)

    return run


def _log_cumulative_sum(chip: Chip, x: Tensor, dim: int) -> Tensor | None:
    if not x.dim():
        return None

    def step(left: Array, right: Array) -> Array:
        return rounded(arithmetic.function(chip.target, "log_of_sum", left, right), x.dtype)

    made = scan(x.contiguous(), dim % x.dim(), step, -np.inf)
    return None if made is None else torch.from_numpy(made).to(x.dtype)


#: operators of aten, with the arguments of their schema behind the chip
OPERATORS: dict[str, Callable[..., Any]] = {
    "sum": reductions.sum_, "mean": reductions.mean, "prod": reductions.product,
    "var": reductions.variance, "std": reductions.deviation,
    "var_mean": reductions.variance_and_mean, "linalg_vector_norm": reductions.vector_norm,
    "_softmax": _softmax(False), "_log_softmax": _softmax(True),
    "_softmax_backward_data": _softmax_gradient(False),
    "_log_softmax_backward_data": _softmax_gradient(True),
    "native_layer_norm": norms.layer_norm,
    "native_group_norm": channels.group_norm, "native_batch_norm": channels.batch_norm,
    "native_batch_norm_backward": channels.batch_norm_gradient,
    "native_layer_norm_backward": norms.layer_norm_gradient, "_fused_rms_norm": norms.rms_norm,
    "_fused_rms_norm_backward": norms.rms_norm_gradient,
    "nll_loss_forward": losses.nll_loss, "nll_loss_backward": losses.nll_loss_gradient,
    **differences.OPERATORS,
    "_logcumsumexp": _log_cumulative_sum, "_cdist_forward": distances,
    "cumsum": _scan(np.add, 0), "cumprod": _scan(np.multiply, 1),
}  # fmt: skip


def ordered(chip: Chip, request: Request) -> Answer | None:
    """The answer of one of these operators; an operand that takes the result takes it, as in
    PyTorch."""
    run = OPERATORS.get(request.name) or OPERATORS.get(request.base)
    if run is None or kernel_of(chip.target.name, "exp") is None:
        return None
    options = dict(request.kwargs)
    given = [options.pop(key) for key in _RESULTS if key in options]
    out = request.args[0] if request.name.endswith("_") else given[0] if given else None
    tensors = tensors_in(request.args, options)
    if not tensors or tensors[0].dtype not in reductions.TYPES:
        return None
    if not all(_is_covered(x) for x in tensors):
        return None
    with np.errstate(all="ignore"):
        made = run(chip, *request.args, **options)
    if made is None or (out is not None and out.dtype != made.dtype):
        return None
    for result in tensors_in(made):
        canonical(result)
    result = made if out is None else out.resize_(made.shape).copy_(made)
    # Recordings show other sizes.
    return Answer(result, WHY, on_chip(chip, "rule"))


def _is_covered(x: Tensor) -> bool:
    plain = x.layout == torch.strided and not x.is_nested
    return plain and x.dtype in (*reductions.TYPES, *_INDICES) and 0 < x.numel() < 2**29
