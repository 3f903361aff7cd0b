"""Reductions, softmax, scans and norms that an H200 ran: their inputs, and digests of results."""

import gzip
import hashlib
import json
from functools import cache
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

RECORDED = Path(__file__).resolve().parent.parent / "golden" / "h200_ordered.json.gz"
TYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
_DEVICE = "cuda"


@cache
def _numbers(label, shape):
    seed = hashlib.blake2b(f"{label}{shape}".encode(), digest_size=16).digest()
    words = np.random.PCG64(int.from_bytes(seed, "little")).random_raw(int(np.prod(shape)))
    parts = [((words >> np.uint64(s)) & np.uint64(0xFFFF)).astype(float) for s in (0, 16, 32, 48)]
    values = ((sum(parts) - 131070.0) / 37837.0).reshape(shape)
    return torch.from_numpy(values).to(torch.float32)


def drawn(label, shape, type_):
    """Nearly normal numbers by a hash: sums of four numbers of 16 bits, rounded once."""
    return _numbers(label, shape).to(TYPES[type_]).to(_DEVICE)


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
        for name, method in (("softmax", F.softmax), ("log_softmax", F.log_softmax)):

            def run(x, method=method, axis=axis):
                return method(x, axis)

            operands = [("softmax", shape, type_)]
            yield f"{name}.{shape}.{axis}", run, operands
            yield f"{name}.gradient.{shape}.{axis}", _gradients_of(run), operands


def _gradients_of(function):
    return lambda *operands: _gradients(function, *operands)


def _of_rows(shape, type_):
    n = shape[1:]
    x, weight, bias = (("norm", shape, type_), ("weight", n, type_), ("bias", n, type_))
    yield "layer_norm", lambda x, w, b: F.layer_norm(x, n, w, b), [x, weight, bias]
    yield "layer_norm.plain", lambda x: F.layer_norm(x, n), [x]
    yield "layer_norm.weight", lambda x, w: F.layer_norm(x, n, w), [x, weight]
    yield "rms_norm", lambda x, w: F.rms_norm(x, n, w, 1e-6), [x, weight]
    yield "rms_norm.plain", lambda x: F.rms_norm(x, n), [x]


def _of_channels(shape, groups, type_):
    n = shape[1:2]
    x, weight, bias = (("channels", shape, type_), ("weight", n, type_), ("bias", n, type_))

    def evaluated(x, weight=None, bias=None):
        return F.batch_norm(x, *_statistics(n), weight, bias)

    yield "group_norm", lambda x, w, b: F.group_norm(x, groups, w, b), [x, weight, bias]
    yield "group_norm.plain", lambda x: F.group_norm(x, groups), [x]
    yield (
        "batch_norm", lambda x, w, b: F.batch_norm(x, None, None, w, b, True), [x, weight, bias]
    )  # fmt: skip
    yield "batch_norm.plain", lambda x: F.batch_norm(x, None, None, training=True), [x]
    yield "batch_norm.eval", evaluated, [x, weight, bias]
    yield "batch_norm.eval.plain", evaluated, [x]


def _statistics(shape):
    return drawn("mean", shape, "f32"), drawn("var", shape, "f32").abs() + 0.1


def _running(x):
    mean, var = _statistics(tuple(x.shape[1:2]))
    return F.batch_norm(x, mean, var, training=True, momentum=0.3), mean, var


def _calls(type_):
    """Name, function and operands' labels, shapes and types."""
    for layout, (shape, view, axes) in _LAYOUTS.items():
        operands = [("reduced", shape, type_)]
        for name, function in _REDUCTIONS.items():
            yield f"{name}.{layout}", lambda x, f=function, v=view, a=axes: f(v(x), a), operands
        if len(axes) == 1:
            yield f"prod.{layout}", lambda x, v=view, a=axes: (1 + v(x) / 16).prod(a[0]), operands
    yield from _softmaxes(type_)
    for shape, axis in _SCANS:
        operands, end = [("scanned", shape, type_)], f"{shape}.{axis}"
        yield f"cumsum.{end}", lambda x, a=axis: x.cumsum(a), operands
        yield f"cumprod.{end}", lambda x, a=axis: (1 + x / 64).cumprod(a), operands
        yield f"logcumsumexp.{end}", lambda x, a=axis: x.logcumsumexp(a), operands
    norms = [(shape, _of_rows(shape, type_)) for shape in _ROWS]
    norms += [(shape, _of_channels(shape, groups, type_)) for shape, groups in _CHANNELS]
    for shape, each in norms:
        for name, function, operands in each:
            yield f"{name}.{shape}", function, operands
            yield f"{name}.gradient.{shape}", _gradients_of(function), operands
    for shape, _ in _CHANNELS:
        yield f"batch_norm.running.{shape}", _running, [("channels", shape, type_)]


def cases(type_):
    """Name and call of each operator, on operands of a type."""
    for name, function, operands in _calls(type_):
        yield name, lambda f=function, o=operands: f(*(drawn(*x) for x in o))


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
