"""Batch norms and maxima that an H200 computed: operands of each case, and what comes out."""

import gzip
import json
from pathlib import Path

import torch.nn.functional as F
from attentions import TYPES, _normal

RECORDED = Path(__file__).resolve().parent.parent / "golden" / "h200_layers.json.gz"


def run(case):
    """Results and gradients of "norm.f32.SHAPE" or "pool.TYPE.SHAPE/SIZE.STRIDE.PADDING" on the
    device "cuda"."""
    sizes, _, options = case.partition("/")
    name, kind, *shape = sizes.split(".")
    more = map(int, options.split(".") if options else ())
    return _RUNS[name](case, kind, tuple(map(int, shape)), *more)


def _norm(case, kind, shape):
    leaves = [
        _normal(f"{name}{case}", *size).to(TYPES[kind]).cuda().requires_grad_()
        for name, size in (("x", shape), ("w", shape[1:2]), ("b", shape[1:2]))
    ]
    mean, variance = (_normal(f"{name}{case}", shape[1]).abs().cuda() for name in "mv")
    out = F.batch_norm(leaves[0], mean, variance, *leaves[1:], training=True)
    out.backward(_normal(f"g{case}", *shape).to(TYPES[kind]).cuda())
    grads = {f"d{name}": x.grad for name, x in zip("xwb", leaves, strict=True)}
    return {"out": out.detach(), "mean": mean, "variance": variance, **grads}


def _pool(case, kind, shape, size, stride, padding):
    x = _normal(f"x{case}", *shape).to(TYPES[kind]).cuda().requires_grad_()
    out = F.max_pool2d(x, size, stride, padding)
    out.backward(_normal(f"g{case}", *out.shape).to(TYPES[kind]).cuda())
    return {"out": out.detach(), "dx": x.grad}


_RUNS = {"norm": _norm, "pool": _pool}


def read():
    return json.loads(gzip.decompress(RECORDED.read_bytes()))
