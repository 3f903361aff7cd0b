"""Reductions, softmax, scans and norms of PyTorch that a GPU ran: inputs, and digests of results."""

import gzip
import hashlib
import json
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

RECORDED = Path(__file__).resolve().parent.parent / "golden" / "h200_ordered.json.gz"
TYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
_DEVICE = "cuda"


def drawn(label, shape, type_):
    """Nearly normal numbers by a hash: sums of four numbers of 16 bits, rounded once."""
    seed = hashlib.blake2b(f"{label}{shape}".encode(), digest_size=16).digest()
    words = np.random.PCG64(int.from_bytes(seed, "little")).random_raw(int(np.prod(shape)))
    parts = [((words >> np.uint64(s)) & np.uint64(0xFFFF)).astype(float) for s in (0, 16, 32, 48)]
    values = ((sum(parts) - 131070.0) / 37837.0).reshape(shape)
    return torch.from_numpy(values).to(torch.float32).to(TYPES[type_]).to(_DEVICE)


#: name -> (shape, view of it, axes)
_LAYOUTS = {
    "row": ((7, 129), lambda x: x, (-1,)),
    "odd rows": ((3, 1027), lambda x: x, (-1,)),
    "long rows": ((2, 100001), lambda x: x, (-1,)),
    "column": ((130, 513), lambda x: x, (0,)),
    "few columns": ((4096, 3), lambda x: x, (0,)),
    "many rows": ((5000, 40), lambda x: x, (-1,)),
    "even columns": ((700, 128), lambda x: x, (0,)),
    "deep columns": ((20000, 8), lambda x: x, (0,)),
    "behind the first": ((100002,), lambda x: x[1:], (0,)),
    "part of rows": ((9, 300), lambda x: x[:, 3:], (-1,)),
    "every second": ((9, 600), lambda x: x[:, ::2], (-1,)),
    "turned": ((300, 70), lambda x: x.t(), (-1,)),
    "outer and third": ((3, 5, 17, 33), lambda x: x, (0, 2)),
    "second and last": ((3, 5, 17, 33), lambda x: x, (1, 3)),
    "middle": ((6, 50, 64), lambda x: x, (1,)),
    "turned twice": ((12, 40, 32), lambda x: x.permute(2, 0, 1), (0, 2)),
    "expanded": ((1, 40), lambda x: x.expand(60, 40), (0,)),
    "expanded rows": ((40, 1), lambda x: x.expand(40, 60), (0, 1)),
    "all": ((64, 77, 65), lambda x: x, (0, 1, 2)),
    "one": ((33, 1), lambda x: x, (-1,)),
}
_REDUCTIONS = {
    "sum": lambda x, axes: x.sum(axes), "mean": lambda x, axes: x.mean(axes, keepdim=True),
    "sum32": lambda x, axes: x.sum(axes, dtype=torch.float32),
    "var": lambda x, axes: x.var(axes), "std": lambda x, axes: x.std(axes, correction=0),
    "norm": lambda x, axes: torch.linalg.vector_norm(x, dim=axes),
    "norm1": lambda x, axes: torch.linalg.vector_norm(x, 1, dim=axes),
    "logsumexp": lambda x, axes: x.logsumexp(axes),
    "var_mean": lambda x, axes: torch.var_mean(x, axes),
}  # fmt: skip
_SOFTMAXES = [
    ((3, 1), -1), ((5, 2), -1), ((9, 31), -1), ((4, 33), -1), ((6, 129), -1), ((3, 1023), -1),
    ((3, 1026), -1), ((2, 2047), -1), ((2, 2048), -1), ((3, 2049), -1), ((3, 2056), -1),
    ((2, 4097), -1), ((2, 9216), -1), ((3, 9217), -1), ((2, 9224), -1), ((2, 12289), -1),
    ((2, 24000), -1), ((3, 65, 40), 1), ((2, 100, 7), 1), ((5, 2000, 3), 1), ((2, 64, 2000), 1),
    ((2, 63, 5), 1), ((90, 11), 0),
]  # fmt: skip
_SCANS = [((3, 17), -1), ((40, 1000), -1), ((2, 3000), -1), ((500, 30), -1), ((500, 30), 0),
          ((4, 60, 9), 1), ((3000, 2), -1), ((2, 70000), -1)]  # fmt: skip
_ROWS = [(5, 12), (70, 36), (130, 260), (300, 64), (6, 10), (9, 130), (4, 1001), (65, 8), (2, 6000)]
_CHANNELS = [((2, 32, 8, 8), 8), ((3, 12, 50), 3), ((4, 6, 1), 2), ((2, 8, 700), 4),
             ((5, 16, 3, 3), 4), ((70, 4, 9), 2), ((2, 20, 600), 1), ((140, 6, 2), 3)]  # fmt: skip


def _gradients(function, *operands):
    """The gradients of a function's operands, of a result of drawn size."""
    held = [x.clone().requires_grad_() for x in operands]
    made = function(*held)
    name = next(name for name, dtype in TYPES.items() if dtype == made.dtype)
    made.backward(drawn("gradient", tuple(made.shape), name))
    return [x.grad for x in held]


def _softmaxes(type_):
    for shape, axis in _SOFTMAXES:
        x = drawn("softmax", shape, type_)
        for name in ("softmax", "log_softmax"):
            method = getattr(F, name)
            yield f"{name}.{shape}.{axis}", lambda m=method, x=x, a=axis: m(x, a)
            yield f"{name}.gradient.{shape}.{axis}", lambda m=method, x=x, a=axis: _gradients(
                lambda x: m(x, a), x)  # fmt: skip


def _norms(type_):
    for shape in _ROWS:
        x, width = drawn("norm", shape, type_), shape[1:]
        weight, bias = drawn("weight", width, type_), drawn("bias", width, type_)
        layer = {
            "layer_norm": (lambda x, w, b, n=width: F.layer_norm(x, n, w, b), x, weight, bias),
            "layer_norm.plain": (lambda x, n=width: F.layer_norm(x, n), x),
            "layer_norm.weight": (lambda x, w, n=width: F.layer_norm(x, n, w), x, weight),
            "rms_norm": (lambda x, w, n=width: F.rms_norm(x, n, w, 1e-6), x, weight),
            "rms_norm.plain": (lambda x, n=width: F.rms_norm(x, n), x),
        }
        for name, (function, *operands) in layer.items():
            yield f"{name}.{shape}", lambda f=function, o=operands: f(*o)
            yield f"{name}.gradient.{shape}", lambda f=function, o=operands: _gradients(f, *o)
    for shape, groups in _CHANNELS:
        x = drawn("channels", shape, type_)
        weight, bias = (drawn(label, shape[1:2], type_) for label in ("weight", "bias"))
        mean = drawn("mean", shape[1:2], "f32")
        var = drawn("var", shape[1:2], "f32").abs() + 0.1
        functions = {
            "group_norm": (lambda x, w, b, g=groups: F.group_norm(x, g, w, b), x, weight, bias),
            "group_norm.plain": (lambda x, g=groups: F.group_norm(x, g), x),
            "batch_norm": (lambda x, w, b: F.batch_norm(x, None, None, w, b, True), x, weight, bias),
            "batch_norm.plain": (lambda x: F.batch_norm(x, None, None, training=True), x),
            "batch_norm.eval": (
                lambda x, w, b, m=mean, v=var: F.batch_norm(x, m, v, w, b), x, weight, bias),
            "batch_norm.eval.plain": (lambda x, m=mean, v=var: F.batch_norm(x, m, v), x),
        }  # fmt: skip
        for name, (function, *operands) in functions.items():
            yield f"{name}.{shape}", lambda f=function, o=operands: f(*o)
            yield f"{name}.gradient.{shape}", lambda f=function, o=operands: _gradients(f, *o)

        def running(x=x, m=mean, v=var):
            m, v = m.clone(), v.clone()
            return F.batch_norm(x, m, v, training=True, momentum=0.3), m, v

        yield f"batch_norm.running.{shape}", running


def cases(type_):
    """Name and call of each operator, on operands of a type."""
    for layout, (shape, view, axes) in _LAYOUTS.items():
        x = view(drawn("reduced", shape, type_))
        for name, function in _REDUCTIONS.items():
            yield f"{name}.{layout}", lambda f=function, x=x, a=axes: f(x, a)
        if len(axes) == 1:
            factors = 1 + x / 16
            yield f"prod.{layout}", lambda x=factors, a=axes[0]: x.prod(a)
    yield from _softmaxes(type_)
    for shape, axis in _SCANS:
        x = drawn("scanned", shape, type_)
        yield f"cumsum.{shape}.{axis}", lambda x=x, a=axis: x.cumsum(a)
        yield f"cumprod.{shape}.{axis}", lambda x=x, a=axis: (1 + x / 64).cumprod(a)
        yield f"logcumsumexp.{shape}.{axis}", lambda x=x, a=axis: x.logcumsumexp(a)
    yield from _norms(type_)


def raw(made):
    """The bytes of a result, or of several."""
    parts = made if isinstance(made, tuple | list) else [made]
    tensors = [x.detach().cpu().contiguous().reshape(-1) for x in parts]
    return b"".join(x.view(torch.uint8).numpy().tobytes() for x in tensors)


def digest(made):
    """A digest of the bytes of a result."""
    return hashlib.blake2b(raw(made), digest_size=8).hexdigest()


def read(path=RECORDED):
    """Digests by type and operator, and where they come from."""
    held = json.loads(gzip.decompress(path.read_bytes()))
    return held["results"], held["about"]
