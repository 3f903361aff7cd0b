"""Attention of many widths, convolutions of channels by themselves, gradients of biases, wide
softmaxes and thresholds that an H100 computed: operands of each case, and what comes out.

An H100 gave the bits of an H200 in all 1,568 results of the same operators that both computed.
"""

import gzip
import json
from pathlib import Path

import torch
import torch.nn.functional as F
from attentions import TYPES, _normal
from attentions import run as attention

RECORDED = Path(__file__).resolve().parent.parent / "golden" / "h100_torch.json.gz"
#: images, channels, filters of each, height, width, rows and columns of filters, stride, padding,
#: dilation, with a bias or not, axes
_DEPTHWISE = (
    (2, 48, 1, 1, 21, 1, 4, 1, 3, 1, 1, 1), (1, 16, 1, 1, 40, 1, 7, 2, 3, 1, 1, 1),
    (3, 33, 2, 1, 17, 1, 3, 1, 1, 2, 0, 1), (2, 8, 1, 9, 11, 3, 3, 1, 1, 1, 1, 2),
    (1, 32, 1, 14, 14, 3, 3, 2, 1, 1, 0, 2), (4, 40, 1, 7, 9, 5, 5, 1, 2, 1, 1, 2),
    (2, 6, 3, 12, 10, 3, 3, 1, 1, 2, 1, 2), (9, 24, 1, 8, 8, 7, 7, 1, 3, 1, 1, 2),
    (2, 64, 1, 28, 28, 3, 3, 1, 1, 1, 0, 2), (12, 4, 2, 6, 5, 2, 3, 1, 0, 1, 1, 2),
    (1, 96, 1, 56, 56, 7, 7, 1, 3, 1, 1, 2), (3, 10, 1, 5, 6, 1, 1, 1, 0, 1, 1, 2),
)  # fmt: skip
#: images, channels, outputs, height, width, size of the filter, stride, how things lie
_BIASES = (
    (2, 3, 96, 64, 64, 8, 8, "perm"), (2, 3, 96, 64, 64, 8, 8, ""), (1, 4, 32, 32, 32, 3, 1, ""),
    (5, 8, 40, 9, 7, 3, 1, ""), (2, 8, 64, 28, 28, 3, 1, ""), (16, 16, 16, 14, 14, 1, 1, "perm"),
    (3, 8, 24, 10, 10, 3, 1, "last"),
)  # fmt: skip
_ROWS = (
    (5, 700), (5, 1024), (5, 1025), (3, 1032), (3, 2048), (3, 3001), (4, 4096), (2, 8192),
    (2, 9216), (2, 9217), (2, 24000), (2, 24576), (2, 30000), (2, 50257),
)  # fmt: skip
_LIMITS = (
    (0.1, 0.3), (-0.7, 2.3), (1 / 3, -1 / 7), (0, 1), (1e-3, 1e3), (float("inf"), 1.5),
    (float("nan"), 0.2), (0.1, 1e-9), (0.2, float("nan")),
)  # fmt: skip
_WIDTHS = (8, 16, 24, 40, 48, 56, 72, 80, 96, 112, 128)


def attentions():
    for kernel in ("cudnn", "flash", "efficient"):
        for kind in ("f16", "bf16"):
            for width in _WIDTHS:
                for sizes in (f"33.48.{width}.f", f"64.64.{width}.c"):
                    case = f"{kernel}.{kind}.1.2.{sizes}"
                    yield case, lambda case=case: attention(case, True)


def _depthwise(kind, case):
    images, channels, filters, height, width, rows, columns, *settings, bias, axes = case
    tag = "dw" + "_".join(map(str, (kind, *case)))
    x = _normal("x" + tag, images, channels, height, width).to(TYPES[kind]).cuda()
    w = _normal("w" + tag, channels * filters, 1, rows, columns).to(TYPES[kind]).cuda()
    b = _normal("b" + tag, channels * filters).to(TYPES[kind]).cuda() if bias else None
    if axes == 1:
        x, w = x[:, :, 0], w[:, :, 0]
    leaves = {"x": x, "w": w} | ({} if b is None else {"b": b})
    for leaf in leaves.values():
        leaf.requires_grad_()
    y = (F.conv1d if axes == 1 else F.conv2d)(x, w, b, *settings, channels)
    y.backward(_normal("g" + tag, *y.shape).to(TYPES[kind]).cuda())
    return {"y": y.detach()} | {f"d{name}": leaf.grad for name, leaf in leaves.items()}


def depthwise():
    for kind in ("f32", "bf16", "f16"):
        for case in _DEPTHWISE:
            name = f"dw/{'_'.join(map(str, (kind, *case)))}"
            yield name, lambda kind=kind, case=case: _depthwise(kind, case)


def _bias(kind, i):
    images, channels, outputs, height, width, size, stride, lies = _BIASES[i]
    x = _normal(f"cbx{i}", images, channels, height, width).to(TYPES[kind]).cuda()
    w = _normal(f"cbw{i}", outputs, channels, size, size).to(TYPES[kind]).cuda()
    b = _normal(f"cbb{i}", outputs).to(TYPES[kind]).cuda().requires_grad_()
    if lies == "last":
        x = x.to(memory_format=torch.channels_last)
    y = F.conv2d(x, w, b, stride)
    g = _normal(f"cbg{i}", *y.shape).to(TYPES[kind]).cuda()
    y.backward(g.to(memory_format=torch.channels_last) if lies else g)
    return {"db": b.grad}


def biases():
    for i in range(len(_BIASES)):
        for kind in ("f32", "f16"):
            yield f"cb/{i}.{kind}", lambda kind=kind, i=i: _bias(kind, i)


def _widened(name, rows, count):
    x = _normal(f"sm{rows}x{count}", rows, count).half().cuda().requires_grad_()
    y = getattr(torch, name)(x, -1, dtype=torch.float32)
    y.backward(_normal(f"sg{rows}x{count}", rows, count).cuda())
    return {"y": y.detach(), "dx": x.grad}


def softmaxes():
    for rows, count in _ROWS:
        for name in ("softmax", "log_softmax"):
            case = name, rows, count
            yield f"sm/{name}.f16.{rows}.{count}", lambda case=case: _widened(*case)


def _limited(kind, limit, value):
    """Of all codes of a type of 16 bits."""
    codes = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16)
    x = _normal("thr", 1 << 16) if kind == "f32" else codes.view(TYPES[kind])
    x = x.cuda().requires_grad_()
    y = F.threshold(x, limit, value)
    y.backward(_normal("thg", 1 << 16).to(TYPES[kind]).cuda())
    return {"y": y.detach(), "dx": x.grad}


def thresholds():
    for kind in ("f16", "bf16", "f32"):
        for limit, value in _LIMITS:
            case = kind, limit, value
            yield f"th/{kind}.{limit}.{value}", lambda case=case: _limited(*case)


FAMILIES = {
    "attention": attentions, "depthwise": depthwise, "bias": biases, "softmax": softmaxes,
    "threshold": thresholds,
}  # fmt: skip


def read():
    return json.loads(gzip.decompress(RECORDED.read_bytes()))
