"""Interpolation of images, and gradients of embeddings and maxima in windows, as on a GPU.

`kernels/interpolation.cu` holds the arithmetic of the first; the others are a matter of order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from emulator.targets import Chip
from emulator.tools.pytorch.device.family import FLOATS, Answer, Request, on_chip
from emulator.tools.pytorch.device.kernel import find_kernel, launch
from emulator.tools.pytorch.device.pointwise import canonical

_WHY = "PyTorch's kernel for it, in its order"
_THREADS = 128
#: rows of indices that a block of the gradient of embeddings takes at a time, and the number of
#: indices from which PyTorch sorts them, in no order that can be told
_ROWS, _SORTED = 32, 3073
#: mode and padding of samples of a grid whose coordinates PyTorch's kernel fuses with what is
#: computed of them where corners are aligned, which is not known exactly: bilinear, and zeros
_FUSED = 0, 0
_aten = torch.ops.aten


def images(chip: Chip, request: Request) -> Answer | None:
    """The answer of one of these operators."""
    rule = _RULES.get(request.function)
    if rule is None or request.args[0].dtype not in FLOATS:
        return None
    if find_kernel(chip.target.name, "interpolation", "bilinear") is None:
        return None
    made = rule(chip, *request.args, **request.kwargs)
    # Recordings of sums show other sizes.
    evidence = on_chip(chip, "rule" if request.function in _SUMS else "recorded")
    return None if made is None else Answer(made, _WHY, evidence)


def _scale(given: int, made: int, corners: bool, factor: float | None) -> np.float32:
    """Pixels of the image for each pixel of the result."""
    if corners:
        return np.float32(given - 1) / np.float32(made - 1) if made > 1 else np.float32(0)
    return np.float32(1 / factor) if factor else np.float32(given) / np.float32(made)


def _launched(
    chip: Chip, kernel: str, tensors: Sequence[Tensor], made: Tensor, args: Sequence[object]
) -> Tensor:
    """What a kernel writes into `made`, in the type of the first tensor."""
    found = find_kernel(chip.target.name, "interpolation", kernel)
    wide = [x.float().contiguous() for x in tensors]
    launch(found, -(-made.numel() // _THREADS), _THREADS, [*wide, made, *args])
    return canonical(made.to(tensors[0].dtype))


def _interpolated(kernel: str) -> Callable[..., Tensor | None]:
    def rule(
        chip: Chip,
        image: Tensor,
        size: Sequence[int],
        corners: bool,
        factor_y: float | None = None,
        factor_x: float | None = None,
    ) -> Tensor | None:
        if not image.is_contiguous() and image.is_contiguous(memory_format=torch.channels_last):
            return None
        if min(size) < 1 or not image.numel():
            return None
        if list(image.shape[2:]) == list(size):
            return image.clone(memory_format=torch.contiguous_format)
        count, channels, height, width = image.shape
        rows, columns = size
        scales = _scale(height, rows, corners, factor_y), _scale(width, columns, corners, factor_x)
        made = torch.empty(*image.shape[:2], *size)
        args = count * channels, height, width, rows, columns, *scales, int(corners)
        return _launched(chip, kernel, [image], made, args)

    return rule


def _grid_sample(
    chip: Chip, image: Tensor, grid: Tensor, mode: int, padding: int, corners: bool
) -> Tensor | None:
    if grid.dtype != image.dtype or not image.numel() or not grid.numel():
        return None
    if corners and (mode, padding) == _FUSED:
        return None
    count, channels, height, width = image.shape
    rows, columns = grid.shape[1:3]
    made = torch.empty(count, channels, rows, columns)
    sizes = channels, height, width, rows, columns
    args = made.numel(), *sizes, mode, padding, int(corners)
    return _launched(chip, "grid_sample", [image, grid], made, args)


def _embedding_gradient(
    chip: Chip, gradient: Tensor, indices: Tensor, count: int, padding: int, by_frequency: bool
) -> Tensor | None:
    """Sums the rows of each index: those of 32 indices at a time, and these sums in order."""
    if indices.numel() >= _SORTED or by_frequency:
        return None
    rows = gradient.reshape(indices.numel(), gradient.shape[-1])
    places = indices.reshape(-1)
    out = torch.zeros(count, rows.shape[1], dtype=gradient.dtype)
    for start in range(0, len(places), _ROWS):
        held, wide = places[start : start + _ROWS].tolist(), rows[start : start + _ROWS].float()
        sums: dict[int, Any] = {}
        for place, row in zip(held, wide, strict=True):
            if place != padding:
                sums[place] = sums[place] + row if place in sums else row
        for place, row in sums.items():
            out[place] += row.to(out.dtype)
    return canonical(out)


def _pooling_gradient(
    chip: Chip,
    gradient: Tensor,
    image: Tensor,
    size: object,
    stride: object,
    padding: object,
    dilation: object,
    ceiling: bool,
    indices: Tensor,
) -> Tensor | None:
    """Sums in f32, for each pixel, the gradients of the windows that chose it, row by row."""
    if not image.is_contiguous():
        return None
    sums = np.zeros((image[..., 0, 0].numel(), image.shape[-2:].numel()), np.float32)
    chosen = indices.reshape(len(sums), -1).numpy()
    wide = gradient.float().reshape(len(sums), -1).numpy()
    np.add.at(sums, (np.arange(len(sums))[:, None], chosen), wide)
    return canonical(torch.from_numpy(sums).view(image.shape).to(image.dtype))


_RULES: dict[Any, Callable[..., Tensor | None]] = {
    _aten.upsample_bilinear2d.default: _interpolated("bilinear"),
    _aten.upsample_bicubic2d.default: _interpolated("bicubic"),
    _aten.grid_sampler_2d.default: _grid_sample,
    _aten.embedding_dense_backward.default: _embedding_gradient,
    _aten.max_pool2d_with_indices_backward.default: _pooling_gradient,
}
#: operators whose order of additions depends on sizes
_SUMS = (_aten.embedding_dense_backward.default, _aten.max_pool2d_with_indices_backward.default)
