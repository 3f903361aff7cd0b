"""Convolutions on the simulated device: which kernel runs, and the gradient of the bias.

Where every channel has filters of its own, PyTorch runs kernels of its own, whose arithmetic is in
`kernels/depthwise.cu`; else the library multiplies. Facts from aten/src/ATen/native:
Convolution.cpp, which says when which runs, and cuda/DepthwiseConv2d.cu.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from emulator.machine.module import Kernel
from emulator.matrices.library.convolution import Shape, output_size
from emulator.targets import Chip
from emulator.tools.pytorch.convolutions import pair
from emulator.tools.pytorch.device.arithmetic import WARP
from emulator.tools.pytorch.device.family import COMPUTED, FLOATS, Answer, Request, on_chip
from emulator.tools.pytorch.device.kernel import find_kernel, launch
from emulator.tools.pytorch.device.pointwise import canonical
from emulator.tools.pytorch.device.reductions import sum_
from emulator.tools.pytorch.device.softmax import sums_of_block
from emulator.tools.pytorch.mode import Products

_WHY = "PyTorch's kernel for channels by themselves, in its order"
_WHY_BIAS = "PyTorch's sum, in its order"
_THREADS = 128
#: threads at most of a block that makes an element of the filter's gradient
_MOST_THREADS = 256
#: channels from which cuDNN may take a convolution of f16 without dilation, and square filters
_CUDNN_CHANNELS, _CUDNN_FILTERS = 32, (1, 3, 5)


class Convolutions:
    """Runs convolutions of a chip; `multiply` those of the library, which it lists."""

    def __init__(
        self, chip: Chip, products: Products, multiply: Callable[[Request], Answer | None]
    ) -> None:
        self.chip, self._products, self._multiply = chip, products, multiply

    def __call__(self, request: Request) -> Answer | None:
        if request.base == "convolution":
            return self._alone(request) or self._multiply(request)
        if request.base != "convolution_backward":
            return None
        given = request.given
        g, wanted = given["grad_output"], given["output_mask"]
        rest = Request(
            request.function, list((given | {"output_mask": [*wanted[:2], False]}).values()), {}
        )
        answer = self._alone(rest) or self._multiply(rest)
        if answer is None or not wanted[2]:
            return answer
        return answer._replace(result=(*answer.result[:2], self._bias_gradient(g)))

    def _bias_gradient(self, g: Tensor) -> Tensor:
        """A sum over the gradient of the output as it lies in memory."""
        axes = [0, *range(2, g.dim())]
        name = "convolution, gradient of the bias"
        if g.dtype not in FLOATS:
            self._products.note_unknown(name, [g], "the GPU has an order of its own")
            return g.sum(axes)
        evidence = on_chip(self.chip, "rule")
        self._products.note_unknown(name, [g], _WHY_BIAS, evidence, COMPUTED)
        return sum_(self.chip, g, axes)

    def _alone(self, request: Request) -> Answer | None:
        """The answer where channels are by themselves; None for any other convolution."""
        given = request.given
        conv = _own_convolution(given)
        if conv is None or self._kernel("output") is None:
            return None
        if request.base == "convolution":
            made: Any = _like(given["input"], self._output(conv, given["bias"]))
        else:
            g, (wants_input, wants_filter, _) = given["grad_output"], given["output_mask"]
            g = g.reshape(*g.shape[:2], *conv.made)
            made = (
                _like(given["input"], self._input_gradient(conv, g)) if wants_input else None,
                _like(given["weight"], self._filter_gradient(conv, g)) if wants_filter else None,
                None,
            )
        return Answer(made, _WHY, on_chip(self.chip, "rule"))

    def _kernel(self, name: str) -> Kernel | None:
        return find_kernel(self.chip.target.name, "depthwise", name)

    def _launch(
        self, name: str, tensors: Sequence[Tensor], shape: Sequence[int], *rest: object
    ) -> Tensor:
        """What a kernel writes into a new tensor, in f32."""
        made = torch.empty(tuple(shape))
        wide = [x.float().contiguous() for x in tensors]
        launch(self._kernel(name), -(-made.numel() // _THREADS), _THREADS, [*wide, made, *rest])
        return made

    def _output(self, conv: _Convolution, bias: Tensor | None) -> Tensor:
        tensors = conv.x, conv.w, conv.w.new_zeros(1) if bias is None else bias
        shape = len(conv.x), len(conv.w), *conv.made
        return self._launch("output", tensors, shape, conv.sizes, int(bias is not None))

    def _input_gradient(self, conv: _Convolution, g: Tensor) -> Tensor:
        return self._launch("input_gradient", (g, conv.w), conv.x.shape, conv.sizes)

    def _filter_gradient(self, conv: _Convolution, g: Tensor) -> Tensor:
        threads = min(len(conv.x) * WARP, _MOST_THREADS)
        shape, warps = (conv.w.numel(), threads), threads // WARP
        parts = self._launch("filter_gradient", (g, conv.x), shape, conv.sizes, warps)
        return torch.from_numpy(sums_of_block(parts.numpy()))


def _like(given: Tensor, made: Tensor) -> Tensor:
    """A result with the axes and the type of what was given."""
    if given.dim() == 3 and made.dim() == 4:
        made = made.squeeze(2)
    shape = made.shape if made.dim() == given.dim() else given.shape
    return canonical(made.reshape(shape).to(given.dtype))


class _Convolution(NamedTuple):
    """A convolution: its input and its filter, of two axes, its settings, and the size of the
    output's images."""

    x: Tensor
    w: Tensor
    shape: Shape
    made: tuple[int, int]

    @property
    def sizes(self) -> bytes:
        """What depthwise.cu calls Sizes."""
        x, w, shape = self.x.shape, self.w.shape, self.shape
        multiplier = w[0] // shape.groups
        settings = *shape.stride, *shape.padding, *shape.dilation
        sizes = x[0], w[0], multiplier, *x[2:], *w[2:], *self.made, *settings
        return np.array(sizes, np.int32).tobytes()


def _own_convolution(given: dict[str, Any]) -> _Convolution | None:
    """The convolution that PyTorch computes by kernels of its own; None for any other."""
    x, w, groups, dilation = (given[name] for name in ("input", "weight", "groups", "dilation"))
    if given["transposed"] or x.dim() not in (3, 4) or x.dtype not in FLOATS or not x.numel():
        return None
    if not x.shape[1] == groups > 1 or len(w) % groups:
        return None
    if x.dim() == 4 and not (x.is_contiguous() and w.is_contiguous()):
        return None
    rows, columns = (1, *w.shape[2:])[-2:]
    # cuDNN takes some of one axis, and some with these filters.
    fits = x.dim() == 3 or (rows == columns and rows in _CUDNN_FILTERS)
    if x.dtype == torch.float16 and groups >= _CUDNN_CHANNELS and math.prod(dilation) == 1 and fits:
        return None
    axes = x.dim() - 2
    stride, padding = pair(given["stride"], axes, 1), pair(given["padding"], axes, 0)
    shape = Shape(stride, padding, pair(dilation, axes, 1), groups)
    if axes == 1:
        x, w = x.unsqueeze(2), w.unsqueeze(2)
    return _Convolution(x, w, shape, output_size(tuple(x.shape), tuple(w.shape), shape))
