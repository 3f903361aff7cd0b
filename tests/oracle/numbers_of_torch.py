"""Operators of PyTorch with numbers, masks and 0-dimensional tensors, and others, as an H200 ran
them: their inputs, and digests of what came out."""

import gzip
import hashlib
import json
import math
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

RECORDED = Path(__file__).resolve().parent.parent / "golden" / "h200_numbers.json.gz"
TYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
COUNT = 1024
_EDGES = np.array([
    0, 0x80000000, 0x7F800000, 0xFF800000, 0x7FC00000, 1, 0x807FFFFF, 0x00800000, 0x3F800000,
    0xBF800000, 0x3F000000, 0xBF000000, 0x42B17218, 0xC2B17218, 0x40490FDB, 0x47800000, 0x4F000000,
    0x7F7FFFFF, 0x33800000, 0x3EAAAAAB, 0x40400000, 0xC0400000,
], np.uint32).view(np.float32)  # fmt: skip


def _words(tag, count):
    digest = hashlib.blake2b(tag.encode(), digest_size=16).digest()
    return np.random.PCG64(int.from_bytes(digest, "little")).random_raw(count)


def _normal(tag, *shape):
    words = _words(tag, math.prod(shape))
    parts = [((words >> np.uint64(s)) & np.uint64(0xFFFF)).astype(float) for s in (0, 16, 32, 48)]
    return ((sum(parts) - 131070.0) / 37837.0).reshape(shape)


def normal(tag, *shape, scale=1.0, type_="f32"):
    values = (_normal(tag, *shape) * scale).astype(np.float32)
    return torch.from_numpy(values).to(TYPES[type_]).to("cuda")


def spread(tag, count, type_):
    """Values of all magnitudes, edges among them."""
    normals, words = _normal(tag, count), _words(tag + "k", count)
    powers = 2.0 ** (((words >> np.uint64(8)) % np.uint64(24)).astype(float) - 12)
    out = np.where(words % np.uint64(8) < 4, normals, normals * powers).astype(np.float32)
    at_edge = (words >> np.uint64(30)) % np.uint64(16) == 0
    edges = _EDGES[((words >> np.uint64(40)) % np.uint64(len(_EDGES))).astype(int)]
    out[at_edge] = edges[at_edge]
    return torch.from_numpy(out).to(TYPES[type_]).to("cuda")


def _integers(tag, most, count):
    return torch.from_numpy((_words(tag, count) % np.uint64(most)).astype(np.int64)).to("cuda")


_PAIRS = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div, "pow": torch.pow,
    "atan2": torch.atan2, "fmod": torch.fmod, "remainder": torch.remainder,
    "floor": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"), "maximum": torch.maximum,
    "alpha": lambda a, b: torch.add(a, b, alpha=0.7), "xlogy": torch.xlogy,
}  # fmt: skip
#: of a tensor, a mask, integers and another tensor
_MASKS = {
    "mulb": lambda x, b, i, y: x * b, "addb": lambda x, b, i, y: x + b,
    "subi": lambda x, b, i, y: x - i, "muli": lambda x, b, i, y: x * i,
    "divi": lambda x, b, i, y: x / i, "idivx": lambda x, b, i, y: i / x,
    "powi": lambda x, b, i, y: torch.pow(x, i), "where": lambda x, b, i, y: torch.where(b, x, y),
    "wheres": lambda x, b, i, y: torch.where(b, x, 0.1),
    "fill": lambda x, b, i, y: x.masked_fill(b, 0.1), "isub": lambda x, b, i, y: 1.1 - x * b,
    "idiv": lambda x, b, i, y: i / 3, "idivi": lambda x, b, i, y: i / (i + 1),
    "isqrt": lambda x, b, i, y: torch.sqrt(i), "iexp": lambda x, b, i, y: torch.exp(i),
    "isig": lambda x, b, i, y: torch.sigmoid(i),
    "mixed": lambda x, b, i, y: torch.atan2(x, y.float()),
    "clampt": lambda x, b, i, y: torch.clamp(x, y, y.abs()),
}  # fmt: skip


def with_numbers(type_):
    """Names and calls of operators with a number."""
    x = spread("nx" + type_, COUNT, type_)
    for p in (-0.5, -1, -2, 0, 1, 2, 3, 0.5, -1.5, 4, -3, 0.25, 1e-3, 1.7):
        yield f"pow.{type_}.{p}", lambda p=p: x**p
        yield f"pow_.{type_}.{p}", lambda p=p: x.clone().pow_(p)
    for p in (2.0, 0.5, 1.0, 10.0):
        yield f"rpow.{type_}.{p}", lambda p=p: p**x
    for d in (3.0, -3.0, 0.7, 1e-3, 0.0, math.inf, 1e30, 7):
        for mode in ("trunc", "floor"):
            yield f"div_{mode}.{type_}.{d}", lambda d=d, m=mode: torch.div(x, d, rounding_mode=m)
        yield f"floordiv.{type_}.{d}", lambda d=d: x // d
        yield f"remainder.{type_}.{d}", lambda d=d: torch.remainder(x, d)
        yield f"fmod.{type_}.{d}", lambda d=d: torch.fmod(x, d)
        yield f"div.{type_}.{d}", lambda d=d: x / d
        yield f"rdiv.{type_}.{d}", lambda d=d: d / x


def with_tensors(type_):
    """Names and calls of operators with 0-dimensional tensors of both devices, and with masks."""
    x, y = spread("nx" + type_, COUNT, type_), spread("ny" + type_, COUNT, type_)
    lone = {"64": torch.tensor(0.3, dtype=torch.float64), "32": torch.tensor(0.3)}
    others = {f"g{k}": v.to("cuda") for k, v in lone.items()} | {
        f"c{k}": v for k, v in lone.items()
    }
    others |= {"gsame": torch.tensor(0.3, dtype=TYPES[type_], device="cuda"),
               "gint": torch.tensor(3, device="cuda")}  # fmt: skip
    for place, z in others.items():
        for name, call in _PAIRS.items():
            yield f"zero.{type_}.{place}.{name}", lambda f=call, z=z: f(x, z)
            yield f"zero.{type_}.{place}.r{name}", lambda f=call, z=z: f(z, x)
    yield f"zero.{type_}.gsame.lerp", lambda: torch.lerp(x, y, others["gsame"])
    if type_ == "f32":
        yield "zero.f32.g32.lerp", lambda: torch.lerp(x, y, others["g32"])
    yield f"addcmul.{type_}", lambda: torch.addcmul(x, y, x, value=-0.37)
    yield f"addcmul1.{type_}", lambda: torch.addcmul(x, y, x)
    yield f"addcdiv1.{type_}", lambda: torch.addcdiv(x, y, x)
    for name, call in _MASKS.items():
        given = x, x > 0, _integers("ni", 7, COUNT), y
        yield f"mask.{type_}.{name}", lambda f=call, g=given: f(*g)


#: rows as long as a vocabulary
_LONG = ((1, 50257), (96, 50257))


def _rows(type_, shape):
    """Rows, and a weight and a bias of their length."""
    return (
        normal(f"big{type_}{shape}", *shape, type_=type_),
        *(normal(f"{tag}{shape}", *shape[1:], type_=type_) for tag in ("bw", "bb")),
    )


def _image(type_):
    """An image, and where it is sampled."""
    grid = normal(f"gg{type_}", 2, 11, 13, 2, scale=0.7).to(TYPES[type_])
    return normal(f"gi{type_}", 2, 3, 19, 23, type_=type_), grid


def others(type_):
    """Names and calls of ranges, scans, samples of a grid, distances, and norms of other sizes."""
    dtype = TYPES[type_]
    for a in ((0, 1, 0.1), (5, -3, -0.37), (0, 1000, 1), (1e6, 1e6 + 100, 0.3), (-3, 300, 2.7)):
        yield f"arange.{type_}.{a}", lambda a=a: torch.arange(*a, dtype=dtype, device="cuda")
    for s in ((5, 7), (33, 1000), (64, 64), (2, 3, 77), (3, 5000), (700, 40)):
        x = normal(f"lc{type_}{s}", *s, type_=type_, scale=3)
        for d in (0, -1):
            yield f"logcumsumexp.{type_}.{s}.{d}", lambda x=x, d=d: torch.logcumsumexp(x, d)
    edges = spread("lce" + type_, 1200, type_).reshape(40, 30)
    yield f"logcumsumexp.{type_}.edges", lambda: torch.logcumsumexp(edges, -1)
    image, grid = _image(type_)
    for mode in ("bilinear", "nearest", "bicubic"):
        for padding in ("zeros", "border", "reflection"):
            for corners in (False, True):
                if (mode, padding, corners) != ("bilinear", "zeros", True):
                    words = mode, padding, corners
                    name = f"grid.{type_}.{mode}.{padding}.{corners}"
                    yield name, lambda w=words: F.grid_sample(image, grid, *w)
    for s in ((33, 1000), (64, 768), (100, 2048), (64, 5000), *_LONG):
        x, w, b = _rows(type_, s)
        yield f"softmax.{type_}.{s}", lambda x=x: x.softmax(-1)
        yield f"ln.{type_}.{s}", lambda x=x, w=w, b=b: F.layer_norm(x, [w.numel()], w, b)
        if s not in _LONG:
            yield f"rms.{type_}.{s}", lambda x=x, w=w: F.rms_norm(x, [w.numel()], w, 1e-6)


def _points(a, b, k):
    return normal(f"cx{a, b, k}", a, k), normal(f"cy{a, b, k}", b, k)


#: the first three are so many that the distances of p = 2 are products of matrices
_POINTS = ((33, 20, 64), (100, 40, 33), (64, 64, 128), (20, 20, 64), (5, 7, 3), (24, 9, 100),
           (3, 4, 1000))  # fmt: skip


def distances():
    """Names and calls of distances that multiply no matrices."""
    for sizes in _POINTS:
        x, y = _points(*sizes)
        for p in (1.0, 2.0, 3.0, math.inf, 0.0):
            if p != 2 or max(sizes[:2]) < 26:
                yield f"cdist.{sizes}.{p}", lambda x=x, y=y, p=p: torch.cdist(x, y, p)
        given = x, y, 2.0, "donot_use_mm_for_euclid_dist"
        yield f"cdist.{sizes}.nomm", lambda g=given: torch.cdist(*g)


def unclaimed():
    """Names and calls of what was recorded and has no rule."""
    for type_, dtype in TYPES.items():
        for a in ((0, 1, 1000), (-3, 7, 77), (1, 1e5, 333), (-1, 1, 2)):
            if type_ != "f16" or a[1] < 1e5:  # more than f16 has
                name = f"linspace.{type_}.{a}"
                yield name, lambda a=a, t=dtype: torch.linspace(*a, dtype=t, device="cuda")
        for s in _LONG:
            x, w, _ = _rows(type_, s)
            yield f"rms.{type_}.{s}", lambda x=x, w=w: F.rms_norm(x, [w.numel()], w, 1e-6)
        words = *_image(type_), "bilinear", "zeros", True
        yield f"grid.{type_}.bilinear.zeros.True", lambda w=words: F.grid_sample(*w)
    for sizes in _POINTS[:3]:
        x, y = _points(*sizes)
        yield f"cdist.{sizes}.2.0", lambda x=x, y=y: torch.cdist(x, y, 2.0)


def digest(result):
    """The digest of a result."""
    made = result.cpu().contiguous()
    made = made if made.dim() else made.reshape(1)
    return hashlib.sha256(made.view(torch.uint8).numpy().tobytes()).hexdigest()[:12]


def read():
    """The digests by name, and what they were recorded with."""
    made = json.loads(gzip.decompress(RECORDED.read_bytes()))
    return made["digests"], made["about"]
