"""PyTorch's convolutions of one and two axes, and their gradients, as those of cuDNN."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from emulator.matrices.library.convolution import (
    Shape,
    Way,
    What,
    choose_way,
    convolve,
    output_size,
)
from emulator.matrices.library.rules import Rule, find_rule
from emulator.tools.pytorch.operations import FORMAT_NAMES, Computer, codes_of, tensor_of


class _Case:
    """Settings that a convolution shares with its gradients."""

    def __init__(self, computer: Computer, x: Tensor, w: Tensor, shape: Shape) -> None:
        self.computer, self.axes, self.shape = computer, x.ndim - 2, shape
        last = torch.channels_last
        self.last = self.axes == 2 and any(
            t.is_contiguous(memory_format=last) and not t.is_contiguous() for t in (x, w)
        )
        self.x, self.w = self.flat(x), self.flat(w)
        self.kind = FORMAT_NAMES[x.dtype]
        self.out = self.kind
        if self.kind == "f32" and torch.backends.cudnn.allow_tf32:
            self.kind = "tf32"
        rule = self.rule = _rule(self.kind)
        if self.kind == "tf32" and not rule.runs_on(computer.target):
            self.kind, self.rule = "f32", _rule("f32")

    def flat(self, x: Tensor) -> Tensor:
        """With two axes: the height of one with a single axis is 1."""
        return x if x.ndim == 4 else x.unsqueeze(2)

    def compute(self, what: What, one: Tensor, other: Tensor) -> Tensor:
        """The output or a gradient, which is listed."""
        x, w = tuple(self.x.shape), tuple(self.w.shape)
        if what == "output":
            size = output_size(x, w, self.shape)
        else:
            size = (x if what == "input" else w)[2:4]
        way = self._choose(what, x, w)
        how = self.rule, self.computer.target, self.out, self.computer.engine, self.computer.recipe
        codes = convolve(what, codes_of(one), codes_of(other), self.shape, size, way, *how)
        made = tensor_of(codes, self.out)
        if self.axes == 1:
            return made.squeeze(2)
        return made.contiguous(memory_format=torch.channels_last) if self.last else made

    def _choose(self, what: What, x: Tensor, w: Tensor) -> Way:
        way = choose_way(what, self.kind, self.last, x, w, self.shape)
        images, outputs, taps = x[0], w[0], w[2] * w[3]
        pixels = images * math.prod(output_size(x, w, self.shape))
        size = {
            "output": (0, pixels, outputs, w[1] * taps),
            "input": (0, images * x[2] * x[3], x[1], outputs * taps // self.shape.groups),
            "filter": (0, outputs, w[1] * taps, pixels),
        }[what]
        name = "convolution" if what == "output" else f"convolution, gradient of the {what}"
        types, layout = f"{self.kind} {self.kind} {self.out}", "nhwc" if self.last else "nchw"
        self.computer.tell(name, types, size, layout, self.rule, way.choice, way)
        return way


def pair(given: Sequence[int], axes: int, least: int) -> tuple[int, int]:
    """A setting for both axes; `given`: one for all, or one for each."""
    settings = (least,) * (2 - axes) + tuple(given) * (axes if len(given) == 1 else 1)
    return int(settings[0]), int(settings[1])


def _rule(kind: str) -> Rule:
    rule = find_rule("f32", "f32", kind) if kind == "tf32" else find_rule(kind, kind)
    assert rule is not None
    return rule


def _case(
    computer: Computer,
    x: Tensor,
    w: Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> _Case | None:
    """A convolution with PyTorch's settings; None for one that is not covered."""
    kinds = ("f16", "bf16", "f32", "f64")
    if x.ndim not in (3, 4) or transposed or FORMAT_NAMES.get(x.dtype) not in kinds:
        return None
    axes = x.ndim - 2
    shape = Shape(pair(stride, axes, 1), pair(padding, axes, 0), pair(dilation, axes, 1), groups)
    return _Case(computer, x, w, shape)


def convolution(
    computer: Computer, x: Tensor, w: Tensor, bias: Tensor | None, *settings: Any
) -> Tensor | None:
    case = _case(computer, x, w, *settings)
    if case is None:
        return None
    y = case.compute("output", case.x, case.w)
    # PyTorch adds a bias to the result of the library, which has been rounded.
    return y if bias is None else y + bias.reshape(-1, *[1] * case.axes)


def convolution_backward(
    computer: Computer, g: Tensor, x: Tensor, w: Tensor, bias_sizes: object, *settings: Any
) -> tuple[Tensor | None, ...] | None:
    *given, wanted = settings
    case = _case(computer, x, w, *given)
    if case is None:
        return None
    g = case.flat(g)
    return (
        case.compute("input", g, case.w) if wanted[0] else None,
        case.compute("filter", g, case.x) if wanted[1] else None,
        g.sum((0, 2, 3)) if wanted[2] else None,
    )
