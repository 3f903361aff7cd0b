"""PyTorch's convolutions of one and two axes, and their gradients, as those of cuDNN."""

from __future__ import annotations

import math
from typing import Any

import torch

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
from emulator.tools.pytorch.used import UsedProduct


class _Case:
    """Settings that a convolution shares with its gradients."""

    def __init__(
        self,
        computer: Computer,
        x: Any,
        w: Any,
        stride: Any,
        padding: Any,
        dilation: Any,
        groups: int,
    ) -> None:
        self.computer, self.axes = computer, x.ndim - 2
        last = torch.channels_last
        self.last = self.axes == 2 and any(
            t.is_contiguous(memory_format=last) and not t.is_contiguous() for t in (x, w)
        )
        self.x, self.w = self.flat(x), self.flat(w)
        self.shape = Shape(
            _pair(stride, self.axes, 1),
            _pair(padding, self.axes, 0),
            _pair(dilation, self.axes, 1),
            groups,
        )
        self.kind = FORMAT_NAMES[x.dtype]
        self.out = self.kind
        if self.kind == "f32" and torch.backends.cudnn.allow_tf32:
            self.kind = "tf32"
        rule = self.rule = _rule(self.kind)
        if self.kind == "tf32" and not rule.runs_on(computer.target):
            self.kind, self.rule = "f32", _rule("f32")

    def flat(self, x: Any) -> Any:
        """With two axes: the height of one with a single axis is 1."""
        return x if x.ndim == 4 else x.unsqueeze(2)

    def compute(self, what: What, one: Any, other: Any) -> Any:
        """The output or a gradient, which is listed."""
        x, w = tuple(self.x.shape), tuple(self.w.shape)
        if what == "output":
            size = output_size(x, w, self.shape)
        else:
            size = (x if what == "input" else w)[2:4]
        way = self._choose(what, x, w)
        codes = convolve(
            what,
            codes_of(one),
            codes_of(other),
            self.shape,
            size,
            way,
            self.rule,
            self.computer.target,
            self.out,
            self.computer.engine,
            self.computer.recipe,
        )
        made = tensor_of(codes, self.out)
        if self.axes == 1:
            return made.squeeze(2)
        return made.contiguous(memory_format=torch.channels_last) if self.last else made

    def _choose(self, what: What, x: Any, w: Any) -> Way:
        computer, rule = self.computer, self.rule
        way = choose_way(what, self.kind, self.last, x, w, self.shape)
        choice = computer.on_chip(way.choice, rule)
        ins = None if choice.order.fma else rule.instruction(computer.target, choice.order.k)
        if computer.recipe is not None and ins is not None:
            choice = choice.at_most("rule", f"{computer.recipe.name} in the order of an H200")
        images, outputs, taps = x[0], w[0], w[2] * w[3]
        pixels = images * math.prod(output_size(x, w, self.shape))
        m, n, k = {
            "output": (pixels, outputs, w[1] * taps),
            "input": (images * x[2] * x[3], x[1], outputs * taps // self.shape.groups),
            "filter": (outputs, w[1] * taps, pixels),
        }[what]
        name = "convolution" if what == "output" else f"convolution, gradient of the {what}"
        layout = "nhwc" if self.last else "nchw"
        order = f"{way} of {ins or 'fused multiply-adds'}"
        computer.note(
            UsedProduct(
                name,
                f"{self.kind} {self.kind} {self.out}",
                0,
                m,
                n,
                k,
                layout,
                order,
                choice.evidence,
                choice.why,
            )
        )
        return way


def _pair(given: Any, axes: int, least: int) -> tuple[int, int]:
    """A setting for both axes; `given`: one for all, or one for each."""
    settings = (least,) * (2 - axes) + tuple(given) * (axes if len(given) == 1 else 1)
    return int(settings[0]), int(settings[1])


def _rule(kind: str) -> Rule:
    rule = find_rule("f32", "f32", kind) if kind == "tf32" else find_rule(kind, kind)
    assert rule is not None
    return rule


def _is_covered(x: Any, transposed: bool) -> bool:
    kinds = ("f16", "bf16", "f32", "f64")
    return x.ndim in (3, 4) and not transposed and FORMAT_NAMES.get(x.dtype) in kinds


def convolution(
    computer: Computer,
    x: Any,
    w: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> Any:
    if not _is_covered(x, transposed):
        return None
    case = _Case(computer, x, w, stride, padding, dilation, groups)
    y = case.compute("output", case.x, case.w)
    # PyTorch adds a bias to the result of the library, which has been rounded.
    return y if bias is None else y + bias.reshape(-1, *[1] * case.axes)


def convolution_backward(
    computer: Computer,
    g: Any,
    x: Any,
    w: Any,
    bias_sizes: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
    output_mask: Any,
) -> Any:
    if not _is_covered(x, transposed):
        return None
    case = _Case(computer, x, w, stride, padding, dilation, groups)
    g = case.flat(g)
    return (
        case.compute("input", g, case.w) if output_mask[0] else None,
        case.compute("filter", g, case.x) if output_mask[1] else None,
        g.sum((0, 2, 3)) if output_mask[2] else None,
    )
