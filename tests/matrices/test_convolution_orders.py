"""Convolutions as products: the operands against sums by hand, and orders along them."""

import itertools

import numpy as np
import pytest

from dtypes import FORMATS, encode
from emulator.matrices.library import Order, find_rule
from emulator.matrices.library.convolution import (
    Shape,
    Walk,
    Way,
    along_one_axis,
    choose_way,
    convolve,
    filter_operands,
    forward_operands,
    input_operands,
    output_size,
)
from emulator.matrices.library.recorded import Choice
from emulator.targets import find_target

CASES = [
    ((2, 6, 9, 11), (8, 6, 3, 2), Shape()),
    ((2, 6, 5, 6), (4, 3, 3, 3), Shape((2, 1), (1, 2), groups=2)),
    ((1, 4, 12, 10), (4, 1, 3, 3), Shape(padding=(2, 2), dilation=(2, 2), groups=4)),
    ((3, 5, 7, 7), (6, 5, 5, 1), Shape((3, 2), (4, 0))),
]
WALKS = (Walk(), Walk(1), Walk(2, whole=True), Walk(2, whole=True, backwards=True))


def by_hand(x, w, shape):
    """Every (image, output, group's channel, row, column of D, input row, column, tap row, column)
    that meet."""
    height, width = output_size(x.shape, w.shape, shape)
    for p, q, r, s in itertools.product(*map(range, (height, width, *w.shape[2:]))):
        i, j = (
            at * shape.stride[a] + tap * shape.dilation[a] - shape.padding[a]
            for a, (at, tap) in enumerate(((p, r), (q, s)))
        )
        if 0 <= i < x.shape[2] and 0 <= j < x.shape[3]:
            yield p, q, r, s, i, j


def sums(x, w, g, shape):
    """The output, and the gradients of the input and of the filter."""
    y, dx, dw = np.zeros(g.shape), np.zeros(x.shape), np.zeros(w.shape)
    outputs, channels = w.shape[0] // shape.groups, w.shape[1]
    for p, q, r, s, i, j in by_hand(x, w, shape):
        for group in range(shape.groups):
            o = slice(group * outputs, (group + 1) * outputs)
            c = slice(group * channels, (group + 1) * channels)
            y[:, o, p, q] += x[:, c, i, j] @ w[o, :, r, s].T
            dx[:, c, i, j] += g[:, o, p, q] @ w[o, :, r, s]
            dw[o, :, r, s] += g[:, o, p, q].T @ x[:, c, i, j]
    return y, dx, dw


@pytest.mark.parametrize(("x", "w", "shape"), CASES)
def test_operands_against_sums_by_hand(x, w, shape):
    rng = np.random.default_rng(0)
    size = output_size(x, w, shape)
    x, w, g = (rng.integers(-9, 10, s).astype(float) for s in (x, w, (x[0], w[0], *size)))
    y, dx, dw = sums(x, w, g, shape)
    for walk in WALKS:
        for want, operands in (
            (y, forward_operands(x, w, shape)),
            (dx, input_operands(g, w, x.shape[2:], shape)),
        ):
            a, b = along_one_axis(*operands, walk, 4)
            images = (a @ b).reshape(shape.groups, len(x), *want.shape[2:], -1)
            assert np.array_equal(images.transpose(1, 0, 4, 2, 3).reshape(want.shape), want)
    a, b = along_one_axis(*filter_operands(g, x, w.shape[2:], shape), Walk(), 4)
    assert np.array_equal((a @ b).reshape(w.shape), dw)


def test_walks_by_hand():
    """Three channels with two taps: channel · 2 + tap, and zeros that fill up."""
    a = np.arange(1, 7).reshape(1, 1, 3, 2)
    b = a.reshape(1, 3, 2, 1)
    for walk, want in (
        (Walk(), [1, 3, 5, 2, 4, 6]),
        (Walk(1), [1, 2, 3, 4, 5, 6]),
        (Walk(2), [1, 3, 2, 4, 5, 6]),
        (Walk(2, whole=True), [1, 3, 2, 4, 5, 0, 6, 0]),
        (Walk(whole=True, backwards=True), [2, 4, 6, 0, 1, 3, 5, 0]),
    ):
        left, right = along_one_axis(a, b, walk, 2)
        assert left.ravel().tolist() == right.ravel().tolist() == want


def test_an_interleaved_walk_by_hand():
    """Of 16 channels those of every second four are first, at each tap."""
    a = np.arange(32).reshape(1, 1, 16, 2)
    b = a.reshape(1, 16, 2, 1)
    left, right = along_one_axis(a, b, Walk(32, whole=True, interleaved=True), 16)
    channels = [0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7, 12, 13, 14, 15]
    assert left.ravel().tolist() == [2 * x + tap for tap in (0, 1) for x in channels]
    assert right.ravel().tolist() == left.ravel().tolist()


def codes(shape, kind, seed):
    return encode(FORMATS[kind], np.random.default_rng(seed).standard_normal(shape))


def test_a_convolution_is_a_product_in_its_order():
    """Images one at a time or all at once, and an order whose bits are others."""
    x, w, shape = codes((3, 40, 6, 6), "f16", 1), codes((8, 40, 3, 3), "f16", 2), Shape()
    rule, h200 = find_rule("f16", "f16"), find_target("H200")

    def run(walk, order=None):
        way = Way(walk, Choice(order or Order(), "none", ""))
        return convolve("output", x, w, shape, (4, 4), way, rule, h200, "f32")

    d = run(Walk(32, whole=True))
    assert d.shape == (3, 8, 4, 4)
    want = [convolve("output", x[i : i + 1], w, shape, (4, 4),
                     Way(Walk(32, whole=True), Choice(Order(), "none", "")), rule, h200, "f32")
            for i in range(3)]  # fmt: skip
    assert np.array_equal(d, np.concatenate(want))
    others = [run(Walk(64, whole=True)), run(Walk()), run(Walk(32, True, True)),
              run(Walk(), Order(fma=True))]  # fmt: skip
    assert all((other != d).any() for other in others)


def test_truncated_operands():
    """What is below tf32's last bit does not count, though rounding would count it."""
    x, w = np.full((1, 1, 1, 1), 0x3F801FFF, "u4"), np.full((1, 1, 1, 1), 0x3F800000, "u4")
    rule, h200 = find_rule("f32", "f32", "tf32"), find_target("H200")
    found = [
        convolve("output", x, w, Shape(), (1, 1), Way(Walk(truncated=cut),
                 Choice(Order(), "none", "")), rule, h200, "f32")[0, 0, 0, 0]
        for cut in (True, False)
    ]  # fmt: skip
    assert found == [0x3F800000, 0x3F802000]


def test_what_is_known():
    shape = Shape(padding=(2, 2))
    known = choose_way("output", "f16", False, (2, 128, 12, 12), (8, 128, 5, 5), shape)
    assert known.choice.evidence == "recorded" and known.walk.whole
    assert "taps of 64" in str(known) and "whole instructions" in str(known)
    other = choose_way("output", "f16", False, (2, 128, 13, 12), (8, 128, 5, 5), shape)
    assert other.choice.evidence == "none"
    single = choose_way("output", "bf16", True, (9, 48, 99, 98), (64, 48, 1, 1), Shape())
    assert single.choice.evidence == "rule"
