"""Convolutions and their gradients as products, in the orders in which cuDNN walks along a sum.

A sum runs over channels and taps: over the places of the filter, and at each over the channels of
the input (those of the output for the gradient of the input). The gradient of the filter sums over
the pixels of all images, which stand for channels here, with one tap.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from dtypes import FORMATS, Array
from emulator.arith import Engine
from emulator.isa.recipe import Recipe
from emulator.matrices.library.product import multiply, result_codes
from emulator.matrices.library.recorded import Choice
from emulator.matrices.library.rules import Order, Rule, order_of
from emulator.targets import Target

#: the output of a convolution; the gradients of its input and of its filter
What = Literal["output", "input", "filter"]
KINDS = ("f16", "bf16", "tf32", "f32", "f64")
WHATS: tuple[What, ...] = ("output", "input", "filter")
#: codes of one operand that are multiplied at once
_AT_ONCE = 1 << 25


class Walk(NamedTuple):
    """The order of channels and taps along a sum."""

    #: channels that all taps are gone through with before the next channels, 0: all channels
    block: int = 0
    #: the channels of a block at each tap are filled up to whole instructions
    whole: bool = False
    #: the last tap first
    backwards: bool = False
    #: f32 is truncated to tf32, not rounded
    truncated: bool = False
    #: of a block's channels an instruction takes every second four
    interleaved: bool = False

    def __str__(self) -> str:
        words = ["all taps of a channel" if self.block == 1 else "all channels of a tap"]
        if self.block > 1:
            words = [f"taps of {self.block} channels"]
        words += ["in whole instructions"] * self.whole + ["the last first"] * self.backwards
        words += ["every second four of them at once"] * self.interleaved
        return ", ".join([*words, *["truncated to tf32"] * self.truncated])


class Shape(NamedTuple):
    """Sizes that a convolution of two axes shares with its gradients."""

    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1


class Way(NamedTuple):
    """The algorithm of a convolution, and its evidence."""

    walk: Walk
    choice: Choice

    def __str__(self) -> str:
        return f"{self.choice.order} along {self.walk}"


def choose_way(
    what: What, kind: str, channels_last: bool, x: tuple[int, ...], w: tuple[int, ...], shape: Shape
) -> Way:
    """The way in which cuDNN computes a convolution, as far as recordings tell.

    `kind`: the type of the operands, or tf32; `x` and `w`: the sizes of the input and the filter.
    """
    key = convolution_key(what, kind, channels_last, x, w, shape)
    places, ways = _table()
    place = places.get(key)
    if place is not None and place >= 0:
        walk, order = ways[place]
        return Way(walk, Choice(order, "recorded", ""))
    walk = Walk(1) if kind in ("f32", "f64") else Walk(32, whole=True)
    if what == "filter":
        walk = Walk()
    if place is not None:
        return Way(walk, Choice(Order(), "none", "recorded, and no known order gives the bits"))
    channels = w[1] if what == "output" else w[0] // shape.groups
    alone = w[2:] == (1, 1) and shape.groups == 1 and channels % 16 == 0
    if kind in ("f16", "bf16") and what != "filter" and alone:
        return Way(walk, Choice(Order(), "rule", "recorded filters of one tap have this order"))
    return Way(walk, Choice(Order(), "none", "this convolution was not recorded"))


def convolution_key(
    what: What, kind: str, channels_last: bool, x: tuple[int, ...], w: tuple[int, ...], shape: Shape
) -> tuple[int, ...]:
    """A row of the table, less what it says."""
    where = (WHATS.index(what), KINDS.index(kind), int(channels_last))
    return (*where, *x, *w, *shape.stride, *shape.padding, *shape.dilation, shape.groups)


@lru_cache(maxsize=1)
def _table() -> tuple[dict[tuple[int, ...], int], tuple[tuple[Walk, Order], ...]]:
    with np.load(Path(__file__).with_name("h200_convolutions.npz")) as file:
        rows, ways = file["rows"].tolist(), json.loads(bytes(file["ways"]))
    known = tuple((Walk(*walk), order_of(order)) for walk, order in ways)
    return {tuple(row[:-1]): row[-1] for row in rows}, known


def convolve(
    what: What,
    one: Array,
    other: Array,
    shape: Shape,
    size: tuple[int, int],
    way: Way,
    rule: Rule,
    target: Target,
    out: str,
    engine: Engine = "auto",
    recipe: Recipe | None = None,
) -> Array:
    """Codes in the type `out` of a convolution or a gradient of it.

    Operands: "output": the input and the filter; "input": the gradient of the output and the
    filter; "filter": the gradient of the output and the input; `size`: height and width of the
    result. Raises what `multiply` does.
    """
    order, walk = way.choice.order, way.walk
    ins = None if order.fma else rule.instruction(target, order.k)

    def product(a: Array, b: Array) -> Array:
        a, b = along_one_axis(a, b, walk, 1 if ins is None else ins.k)
        if walk.truncated:
            cut = np.uint32(FORMATS["f32"].code_mask >> 13 << 13)
            a, b = a & cut, b & cut
        kind, codes = multiply(rule, a, b, target, order, out, engine, recipe)
        return result_codes(kind, codes, out)

    if what == "filter":
        d = product(*filter_operands(one, other, size, shape))
        return d.reshape(one.shape[1], -1, *size)
    images = []
    for part in _parts(one, other.shape, size):
        if what == "output":
            operands = forward_operands(part, other, shape)
        else:
            operands = input_operands(part, other, size, shape)
        d = product(*operands).reshape(shape.groups, len(part), *size, -1)
        images.append(d.transpose(1, 0, 4, 2, 3).reshape(len(part), -1, *size))
    return np.concatenate(images)


def _parts(one: Array, filters: tuple[int, ...], size: tuple[int, int]) -> Iterator[Array]:
    """Some images at a time."""
    codes = one.shape[1] * filters[2] * filters[3] * size[0] * size[1]
    step = max(_AT_ONCE // max(codes, 1), 1)
    for start in range(0, len(one), step):
        yield one[start : start + step]


def forward_operands(x: Array, w: Array, shape: Shape) -> tuple[Array, Array]:
    """A ``(groups, pixels, channels, taps)`` and B ``(groups, channels, taps, outputs)`` of codes.

    `x` ``(images, channels, height, width)``, `w` ``(outputs, channels / groups, rows, columns)``.
    """
    return _by_group(_met(x, w.shape[2:], shape), shape.groups), _filters(w, shape.groups)


def input_operands(g: Array, w: Array, size: tuple[int, int], shape: Shape) -> tuple[Array, Array]:
    """The operands whose product is the gradient of the input, `size` its height and width.

    `g` ``(images, outputs, height, width)`` is the gradient of the output.
    """
    places = []
    for axis in (0, 1):
        steps = shape.padding[axis] - shape.dilation[axis] * np.arange(w.shape[2 + axis])
        at = np.arange(size[axis])[:, None] + steps
        places.append(np.where(at % shape.stride[axis], -1, at // shape.stride[axis]))
    groups, (outputs, channels) = shape.groups, w.shape[:2]
    turned = w.reshape(groups, outputs // groups, channels, -1).transpose(0, 1, 3, 2)
    return _by_group(_taken(g, places), groups), turned


def filter_operands(g: Array, x: Array, size: tuple[int, int], shape: Shape) -> tuple[Array, Array]:
    """The operands whose product ``(groups, outputs, channels · taps)`` is the filter's gradient,
    `size` its rows and columns."""
    groups, outputs = shape.groups, g.shape[1]
    rows = g.swapaxes(0, 1).reshape(groups, outputs // groups, -1, 1)
    met = _met(x, size, shape).transpose(1, 4, 5, 0, 2, 3)
    columns = met.reshape(groups, -1, rows.shape[2]).swapaxes(1, 2)
    return rows, columns[:, :, None]


def output_size(x: tuple[int, ...], w: tuple[int, ...], shape: Shape) -> tuple[int, int]:
    """Height and width of the output."""

    def size(axis: int) -> int:
        reach = shape.dilation[axis] * (w[2 + axis] - 1) + 1
        return (x[2 + axis] + 2 * shape.padding[axis] - reach) // shape.stride[axis] + 1

    return size(0), size(1)


def _met(x: Array, size: tuple[int, ...], shape: Shape) -> Array:
    """``(images, channels, height, width, rows, columns)``: what the filter meets at each pixel of
    the output."""
    counts = output_size(x.shape, (0, 0, *size), shape)
    return _taken(
        x,
        [
            shape.stride[i] * np.arange(counts[i])[:, None]
            + shape.dilation[i] * np.arange(size[i])
            - shape.padding[i]
            for i in (0, 1)
        ],
    )


def _taken(x: Array, places: list[Array]) -> Array:
    """Pixels at ``(height, rows)`` and ``(width, columns)``, 0 where none is."""
    x = np.pad(x, [(0, 0), (0, 0), (0, 1), (0, 1)])
    rows, columns = (
        np.where((at < 0) | (at >= size - 1), size - 1, at)
        for at, size in zip(places, x.shape[2:], strict=True)
    )
    return x[:, :, rows[:, None, :, None], columns[None, :, None, :]]


def along_one_axis(a: Array, b: Array, walk: Walk, k: int) -> tuple[Array, Array]:
    """The operands as matrices ``(groups, m, K)`` and ``(groups, K, n)``, K in the order of a walk.

    `k`: that of the instruction.
    """
    channels, taps = a.shape[2:]
    order = np.arange(taps)[:: -1 if walk.backwards else 1, None]
    places = []
    for start in range(0, channels, walk.block or channels):
        block = np.arange(start, min(start + (walk.block or channels), channels))
        if walk.interleaved:
            block = block[np.argsort(block // 4 % 2, kind="stable")]
        at = block * taps + order
        more = -len(block) % k if walk.whole else 0
        places.append(np.pad(at, [(0, 0), (0, more)], constant_values=channels * taps).reshape(-1))
    taken = np.concatenate(places)
    a = np.pad(a.reshape(*a.shape[:2], -1), [(0, 0), (0, 0), (0, 1)])
    b = np.pad(b.reshape(len(b), -1, b.shape[-1]), [(0, 0), (0, 1), (0, 0)])
    return a[..., taken], b[:, taken]


def _by_group(found: Array, groups: int) -> Array:
    """``(groups, pixels, channels, taps)``."""
    images, channels, height, width, rows, columns = found.shape
    split = found.reshape(images, groups, channels // groups, height, width, rows, columns)
    pixels = images * height * width
    return split.transpose(1, 0, 3, 4, 2, 5, 6).reshape(groups, pixels, -1, rows * columns)


def _filters(w: Array, groups: int) -> Array:
    """``(groups, channels, taps, outputs)``."""
    split = w.reshape(groups, w.shape[0] // groups, w.shape[1], -1)
    return split.transpose(0, 2, 3, 1)
