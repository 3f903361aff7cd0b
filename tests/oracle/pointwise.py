"""Pointwise operators of PyTorch that an H200 ran: their inputs, and digests of what came out."""

import gzip
import hashlib
import json
import math
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

RECORDED = Path(__file__).resolve().parent.parent / "golden" / "h200_pointwise.json.gz"
COUNT = 4096
TYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "f64": torch.float64}
_UNARY = """abs acos acosh asin asinh atan atanh ceil cos cosh deg2rad digamma erf erfc erfinv exp
    exp2 expm1 floor frac lgamma log log10 log1p log2 logit neg rad2deg reciprocal round rsqrt
    sigmoid sign sin sinc sinh sqrt square tan tanh trunc i0 nan_to_num isfinite signbit"""
_SPECIAL = "ndtri log_ndtr entr i1 expit"
#: activations; the gradients of the first GRADIENTS were recorded too
ACTIVATIONS = {
    "gelu": F.gelu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "silu": F.silu,
    "softplus": F.softplus, "mish": F.mish, "elu": F.elu, "selu": F.selu,
    "celu": lambda x: F.celu(x, 0.7), "hardswish": F.hardswish, "hardsigmoid": F.hardsigmoid,
    "hardtanh": F.hardtanh, "leaky": lambda x: F.leaky_relu(x, 0.013),
    "logsigmoid": F.logsigmoid, "relu6": F.relu6, "softsign": F.softsign,
    "tanhshrink": F.tanhshrink, "threshold": lambda x: F.threshold(x, 0.1, 0.3),
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
    "new_gelu": lambda x: 0.5 * x * (1.0 + torch.tanh(
        math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0)))),
    "pow2": lambda x: x**2, "pow3": lambda x: x**3, "pow_half": lambda x: x**0.5,
    "pow_neg": lambda x: x**-1.5, "pow_base": lambda x: 1.7**x, "muls": lambda x: x * 0.3,
    "adds": lambda x: x + 0.1, "divs": lambda x: x / 3.0, "rsubs": lambda x: 1.1 - x,
    "clamp": lambda x: x.clamp(-0.7, 1.3), "hardtanh_by": lambda x: F.hardtanh(x, -0.33, 0.77),
} | {
    f"round_to_{n}": lambda x, n=n: torch.round(x, decimals=n) for n in (-40, -2, 0, 2, 3, 5, 40)
}  # fmt: skip
GRADIENTS = 20
_PAIRS = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div,
    "floor_div": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "trunc_div": lambda a, b: torch.div(a, b, rounding_mode="trunc"), "fmod": torch.fmod,
    "remainder": torch.remainder, "pow": torch.pow, "atan2": torch.atan2, "hypot": torch.hypot,
    "maximum": torch.maximum, "fmin": torch.fmin, "copysign": torch.copysign,
    "logaddexp": torch.logaddexp, "xlogy": torch.xlogy,
    "add_alpha": lambda a, b: torch.add(a, b, alpha=0.3),
    "lerp": lambda a, b: torch.lerp(a, b, 0.37), "nextafter": torch.nextafter,
}  # fmt: skip
_TRIPLES = {
    "addcmul": lambda a, b, c: torch.addcmul(a, b, c, value=0.7),
    "addcdiv": lambda a, b, c: torch.addcdiv(a, b, c, value=0.7), "lerp_t": torch.lerp,
    "fma_like": lambda a, b, c: a * b + c,
}  # fmt: skip
#: words of f32 that functions change their ways at
_EDGES = np.array([
    0, 0x80000000, 0x7F800000, 0xFF800000, 0x7FC00000, 1, 0x807FFFFF, 0x00800000, 0x3F800000,
    0xBF800000, 0x3F000000, 0xBF000000, 0x42B17218, 0xC2B17218, 0x42AE8000, 0xC2CFF1B5, 0x40490FDB,
    0x3FC90FDB, 0x47800000, 0x4F000000, 0x7F7FFFFF, 0x33800000, 0x34000000, 0x3EAAAAAB, 0x40400000,
    0xC0400000,
], np.uint32)  # fmt: skip


def operand(type_, number):
    """The recordings' operand 0, 1 or 2: of all magnitudes, edges and any bits, by a hash."""
    label = hashlib.blake2b(f"pw{type_}{number}".encode(), digest_size=16).digest()
    words = np.random.PCG64(int.from_bytes(label, "little")).random_raw(2 * COUNT)
    low, high = words[:COUNT], words[COUNT:]
    parts = [((low >> np.uint64(s)) & np.uint64(0xFFFF)).astype(float) for s in (0, 16, 32, 48)]
    normal = ((sum(parts) - 131070.0) / 37837.0).astype(np.float32)
    powers = ((high >> np.uint64(8)) % np.uint64(16)).astype(np.float32)
    kind = high % np.uint64(8)
    out = np.where(kind < 4, normal, normal * np.float32(2) ** powers / np.float32(256))
    out = np.where(kind == 7, (low >> np.uint64(7)).astype(np.uint32).view(np.float32), out)
    edges = _EDGES[(high >> np.uint64(20)) % np.uint64(len(_EDGES))].view(np.float32)
    out = np.where((high >> np.uint64(30)) % np.uint64(16) == 0, edges, out)
    out = np.where(np.isnan(out), np.float32("nan"), out)
    return torch.from_numpy(out).to(TYPES[type_])


def _gradient(function, x, y):
    x = x.clone().requires_grad_()
    function(x).backward(y)
    return x.grad


def cases(type_, device="cuda"):
    """Name and call of each operator, on operands of a type."""
    x, y, z = (operand(type_, i).to(device) for i in range(3))
    special = {f"special.{name}": getattr(torch.special, name) for name in _SPECIAL.split()}
    one = {name: getattr(torch, name) for name in _UNARY.split()} | special | ACTIVATIONS
    out = {name: lambda f=f: f(x) for name, f in one.items()}
    out |= {name: lambda f=f: f(x, y) for name, f in _PAIRS.items()}
    out |= {name: lambda f=f: f(x, y, z) for name, f in _TRIPLES.items()}
    out |= {f"to.{to}": lambda to=to: x.to(TYPES[to]) for to in TYPES}
    out["to.float8_e5m2"] = lambda: x.to(torch.float8_e5m2)
    first = list(ACTIVATIONS.items())[:GRADIENTS]
    return out | {f"grad.{name}": lambda f=f: _gradient(f, x, y) for name, f in first}


def digest(result, count):
    """A digest of the first `count` bytes of a result."""
    raw = result.detach().cpu().contiguous().view(torch.uint8).numpy().reshape(-1)[:count]
    return hashlib.blake2b(raw.tobytes(), digest_size=8).hexdigest()


def read(path=RECORDED):
    """Bytes that were kept, and their digest, by type and operator; and where they come from."""
    held = json.loads(gzip.decompress(path.read_bytes()))
    return held["results"], held["about"]
