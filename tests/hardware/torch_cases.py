"""Matrix products and layers of PyTorch, on operands that any machine can draw again.

A case is a dict of plain values; ``run(case, device)`` computes it with torch, on a GPU or, under
`emulator.adapters.pytorch.tensor_core_matmul`, on the CPU. Operands come from raw PCG64 streams
that the case and the operand's name seed, so that a recording needs to hold none.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np
import torch

Case = dict[str, Any]

TYPES = {
    "f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "tf32": torch.float32,
    "f64": torch.float64, "e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2, "s8": torch.int8,
    "s32": torch.int32,
}  # fmt: skip
#: exponent bits, fraction bits
FIELDS = {
    "f16": (5, 10), "bf16": (8, 7), "f32": (8, 23), "tf32": (8, 23), "f64": (11, 52),
    "e4m3": (4, 3), "e5m2": (5, 2),
}  # fmt: skip


def draw(tag: str, shape: tuple[int, ...], kind: str) -> np.ndarray:
    """Codes of `kind`: random signs and fractions, exponents -6 to 1; of s8 all codes."""
    seed = int.from_bytes(hashlib.sha256(tag.encode()).digest()[:16], "little")
    raw = np.random.PCG64(seed).random_raw(int(np.prod(shape)))
    if kind == "s8":
        return (raw >> np.uint64(56)).astype(np.uint8).reshape(shape)
    exponent_bits, fraction_bits = FIELDS[kind]
    bits = 1 + exponent_bits + fraction_bits
    lowest = np.uint64((1 << exponent_bits - 1) - 1 - 6)
    exponent = lowest + (raw >> np.uint64(56) & np.uint64(7))
    codes = raw >> np.uint64(63) << np.uint64(bits - 1) | exponent << np.uint64(fraction_bits)
    codes |= raw & np.uint64((1 << fraction_bits) - 1)
    return codes.astype(f"u{bits // 8}").reshape(shape)


def tensor(tag: str, shape: tuple[int, ...], kind: str, device: str = "cpu") -> torch.Tensor:
    codes = draw(tag, shape, kind)
    return torch.from_numpy(codes.view(f"i{codes.itemsize}")).view(TYPES[kind]).to(device)


def codes_of(x: torch.Tensor) -> np.ndarray:
    """The codes of a tensor, as unsigned integers of its shape."""
    size = x.element_size()
    signed = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[size]
    return x.detach().cpu().contiguous().view(signed).numpy().view(f"u{size}")


def digest(x: torch.Tensor) -> str:
    return hashlib.sha256(codes_of(x).tobytes()).hexdigest()[:24]


@contextmanager
def precision(kind: str) -> Iterator[None]:
    """The flags that choose between f32 and tf32."""
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32
    matmul.allow_tf32 = cudnn.allow_tf32 = kind == "tf32"
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32 = before


# --- what a case computes -------------------------------------------------------------------------


def run(case: Case, device: str = "cpu") -> dict[str, torch.Tensor]:
    """The results of a case, by name."""
    with precision(case["dtype"]):
        found = _OPERATIONS[case["op"]](case, _Operands(case, device))
    return found if isinstance(found, dict) else {"d": found}


class _Operands:
    """Draws the operands of a case."""

    def __init__(self, case: Case, device: str) -> None:
        self.case, self.device = case, device
        self.tag = json.dumps(case, sort_keys=True)

    def __call__(self, name: str, *shape: int, kind: str = "", layout: str = "n") -> torch.Tensor:
        """Layout "t": the last two axes lie in memory the other way round."""
        made = tensor(self.tag + name, shape, kind or self.case["dtype"], self.device)
        return made.mT.contiguous().mT if layout == "t" else made

    def pair(self) -> tuple[torch.Tensor, torch.Tensor]:
        case = self.case
        batch, (m, n, k), layout = case.get("batch", ()), case["mnk"], case.get("layout", "nt")
        b_kind = case.get("b", case["dtype"])
        a = self("a", *batch, m, k, layout=layout[0])
        return a, self("b", *batch, k, n, layout=layout[1], kind=b_kind)


def _options(case: Case) -> dict[str, Any]:
    return {"out_dtype": TYPES[case["out"]]} if "out" in case else {}


def _mm(case: Case, x: _Operands) -> torch.Tensor:
    a, b = x.pair()
    return torch.bmm(a, b, **_options(case)) if a.ndim == 3 else torch.mm(a, b, **_options(case))


def _matmul(case: Case, x: _Operands) -> torch.Tensor:
    return torch.matmul(x("a", *case["shapes"][0]), x("b", *case["shapes"][1]))


def _einsum(case: Case, x: _Operands) -> torch.Tensor:
    return torch.einsum(case["equation"], x("a", *case["shapes"][0]), x("b", *case["shapes"][1]))


def _add(case: Case, x: _Operands) -> torch.Tensor:
    a, b = x.pair()
    c = x("c", *case["c"])
    add = torch.baddbmm if a.ndim == 3 else torch.addmm
    return add(c, a, b, beta=case["beta"], alpha=case["alpha"])


def _vector(case: Case, x: _Operands) -> torch.Tensor:
    m, _, k = case["mnk"]
    if m == 1:
        return torch.dot(x("a", k), x("b", k))
    return torch.mv(x("a", m, k, layout=case.get("layout", "n")), x("b", k))


def _linear(case: Case, x: _Operands) -> dict[str, torch.Tensor]:
    *batch, (m, n, k) = *case.get("batch", ()), case["mnk"]
    y_in, w = x("x", *batch, m, k).requires_grad_(), x("w", n, k).requires_grad_()
    bias = x("bias", n) if case["bias"] else None
    y = torch.nn.functional.linear(y_in, w, bias)
    y.backward(x("g", *batch, m, n))
    return {"y": y, "dx": y_in.grad, "dw": w.grad}


def _scaled(case: Case, x: _Operands) -> torch.Tensor:
    a, b = x.pair()
    (m, n, _), out = case["mnk"], TYPES[case["out"]]
    if case["scales"] == "rows":
        scales = x("ra", m, 1, kind="f32").abs(), x("rb", 1, n, kind="f32").abs()
    else:
        scales = tuple(torch.tensor(s, device=x.device) for s in case["scales"])
    bias = x("bias", n, kind=case["bias"]) if "bias" in case else None
    return torch._scaled_mm(a, b, *scales, bias=bias, out_dtype=out, use_fast_accum=case["fast"])


def _int_mm(case: Case, x: _Operands) -> torch.Tensor:
    return torch._int_mm(*x.pair())


def _conv(case: Case, x: _Operands) -> dict[str, torch.Tensor]:
    y_in, w = x("x", *case["x"]), x("w", *case["w"])
    if case.get("channels_last"):
        y_in, w = (t.to(memory_format=torch.channels_last) for t in (y_in, w))
    y_in.requires_grad_(), w.requires_grad_()
    bias = x("bias", case["w"][0]) if case.get("bias") else None
    convolve = getattr(torch.nn.functional, f"conv{len(case['x']) - 2}d")
    y = convolve(y_in, w, bias, **case.get("options", {}))
    g = x("g", *y.shape)
    if case.get("channels_last"):
        g = g.to(memory_format=torch.channels_last)
    y.backward(g)
    return {"y": y, "dx": y_in.grad, "dw": w.grad}


def _attention(case: Case, x: _Operands) -> torch.Tensor:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    q, k, v = (x(name, *case["shape"]) for name in "qkv")
    with sdpa_kernel(SDPBackend.MATH):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v)


def _mlp(case: Case, x: _Operands) -> torch.Tensor:
    sizes = case["sizes"]
    y = x("x", case["rows"], sizes[0])
    for i, (k, n) in enumerate(pairwise(sizes)):
        w = x(f"w{i}", n, k) * 2.0**-4
        y = torch.nn.functional.linear(y, w, x(f"b{i}", n))
        y = torch.relu(y) if i + 2 < len(sizes) else y
    return y


_OPERATIONS = {
    "mm": _mm, "matmul": _matmul, "einsum": _einsum, "add": _add, "vector": _vector,
    "linear": _linear, "scaled": _scaled, "int_mm": _int_mm, "conv": _conv,
    "attention": _attention, "mlp": _mlp,
}  # fmt: skip


# --- the cases that are recorded ------------------------------------------------------------------


def cases() -> list[Case]:
    """Every case, each with its `category`, in one order."""
    return [
        {"category": category} | case for category, made in _CATEGORIES.items() for case in made()
    ]


_LAYOUTS = ("nt", "nn", "tn", "tt")
_ALIGNED = (
    (64, 64, 64), (128, 128, 128), (96, 200, 264), (128, 256, 512), (256, 128, 1000),
    (40, 72, 88), (512, 512, 128), (1024, 256, 64), (200, 1000, 48), (256, 1024, 1024),
)  # fmt: skip
_BATCHES = (
    (2, (64, 64, 64)), (6, (64, 96, 128)), (12, (128, 128, 64)), (16, (8, 64, 512)),
    (3, (33, 17, 65)), (4, (256, 256, 256)),
)  # fmt: skip
_LARGE_K = ((64, 64, 4096), (32, 128, 8192), (128, 128, 2048), (16, 1024, 4096), (8, 256, 16384))
_SMALL_M = tuple((m, n, k) for m in (2, 4, 8, 16, 24) for n, k in ((256, 512), (1024, 1024)))
_UNALIGNED = ((333, 257, 999), (63, 65, 67), (127, 255, 31), (17, 33, 1001), (100, 100, 102))
_SCALARS = ((0.3, 1.0), (1.0, 0.7), (0.3, 0.7), (-1.7, 2.9), (2.0, 0.5), (0.0, 1.3), (1.1, 0.0))


def _products(sizes: Any, kinds: str, layouts: Any = ("nt", "nn")) -> Iterator[Case]:
    for kind in kinds.split():
        for mnk in sizes:
            for layout in layouts:
                yield {"op": "mm", "dtype": kind, "mnk": mnk, "layout": layout}
                if kind in ("f16", "bf16"):
                    yield {"op": "mm", "dtype": kind, "mnk": mnk, "layout": layout, "out": "f32"}


def _aligned() -> Iterator[Case]:
    yield from _products(_ALIGNED, "f16 bf16 tf32 f32 f64", _LAYOUTS)


def _batched() -> Iterator[Case]:
    for kind in ["f16", "bf16", "tf32", "f32", "f64"]:
        for batch, mnk in _BATCHES:
            for layout in ("nt", "nn", "tn"):
                yield {"op": "mm", "dtype": kind, "batch": [batch], "mnk": mnk, "layout": layout}
    for kind in ("f16", "bf16", "tf32"):
        yield {"op": "matmul", "dtype": kind, "shapes": [[2, 3, 64, 32], [2, 3, 32, 48]]}
        yield {"op": "matmul", "dtype": kind, "shapes": [[5, 64, 32], [32, 48]]}
        yield {"op": "matmul", "dtype": kind, "shapes": [[64, 32], [5, 32, 48]]}
        yield {"op": "einsum", "dtype": kind, "equation": "bhqd,bhkd->bhqk",
               "shapes": [[2, 4, 64, 32], [2, 4, 48, 32]]}  # fmt: skip
        yield {"op": "einsum", "dtype": kind, "equation": "bqhd,bkhd->bhqk",
               "shapes": [[2, 64, 4, 32], [2, 48, 4, 32]]}  # fmt: skip
        yield {"op": "einsum", "dtype": kind, "equation": "ij,kj->ik",
               "shapes": [[64, 128], [96, 128]]}  # fmt: skip


def _with_addend() -> Iterator[Case]:
    for kind in ["f16", "bf16", "tf32", "f32", "f64"]:
        for mnk in ((64, 128, 256), (256, 256, 64)):
            m, n, _ = mnk
            for alpha, beta in _SCALARS:
                for batch in ([], [4]):
                    yield {"op": "add", "dtype": kind, "batch": batch, "mnk": mnk, "layout": "nn",
                           "c": [*batch, m, n], "alpha": alpha, "beta": beta}  # fmt: skip
            for alpha, beta in ((1.0, 1.0), (0.3, 0.7), (1.0, 0.7)):
                for c in ([n], [1, n], [m, 1]):
                    yield {"op": "add", "dtype": kind, "mnk": mnk, "layout": "nt", "c": c,
                           "alpha": alpha, "beta": beta}  # fmt: skip
            yield {"op": "add", "dtype": kind, "batch": [4], "mnk": mnk, "layout": "nt",
                   "c": [n], "alpha": 0.3, "beta": 0.7}  # fmt: skip


def _long() -> Iterator[Case]:
    yield from _products(_LARGE_K, "f16 bf16 tf32 f32 f64")


def _few_rows() -> Iterator[Case]:
    yield from _products(_SMALL_M, "bf16 tf32 f32 f64", ("nt",))


def _odd() -> Iterator[Case]:
    yield from _products(_UNALIGNED, "f16 bf16 tf32 f32 f64")


def _vectors() -> Iterator[Case]:
    for kind in ["f16", "bf16", "tf32", "f32", "f64"]:
        for mnk in ((1, 1024, 1024), (1, 256, 4096), (1024, 1, 1024), (64, 1, 256), (1, 100, 100)):
            for layout in ("nt", "nn"):
                yield {"op": "mm", "dtype": kind, "mnk": mnk, "layout": layout}
        for mnk in ((1, 1, 1000), (1, 1, 4096), (256, 1, 512), (100, 1, 333)):
            yield {"op": "vector", "dtype": kind, "mnk": mnk}


def _fp8() -> Iterator[Case]:
    for mnk in ((64, 64, 64), (128, 256, 512), (16, 1024, 1024), (96, 208, 272), (256, 64, 4096),
                (48, 80, 112)):  # fmt: skip
        for fast in (True, False):
            for kind, b in (("e4m3", "e4m3"), ("e4m3", "e5m2"), ("e5m2", "e4m3")):
                for out in ("bf16", "f32", "f16"):
                    yield {"op": "scaled", "dtype": kind, "b": b, "mnk": mnk, "out": out,
                           "fast": fast, "scales": [0.37, 1.9]}  # fmt: skip
            yield {"op": "scaled", "dtype": "e4m3", "mnk": mnk, "out": "bf16", "fast": fast,
                   "scales": "rows"}  # fmt: skip
            yield {"op": "scaled", "dtype": "e4m3", "mnk": mnk, "out": "bf16", "fast": fast,
                   "scales": [0.37, 1.9], "bias": "bf16"}  # fmt: skip


def _integers() -> Iterator[Case]:
    for mnk in ((64, 64, 64), (128, 256, 512), (100, 72, 160), (32, 1024, 4096), (256, 8, 8)):
        for layout in ("nt", "nn"):
            yield {"op": "int_mm", "dtype": "s8", "mnk": mnk, "layout": layout}


def _layers() -> Iterator[Case]:
    for kind in ["f16", "bf16", "tf32", "f32", "f64"]:
        for mnk in ((64, 128, 256), (96, 200, 264), (128, 512, 256), (256, 64, 1024)):
            for bias in (True, False):
                yield {"op": "linear", "dtype": kind, "mnk": mnk, "bias": bias}
        yield {"op": "linear", "dtype": kind, "batch": [4], "mnk": (32, 128, 64), "bias": True}
        yield {"op": "linear", "dtype": kind, "batch": [4], "mnk": (32, 128, 64), "bias": False}
        yield {"op": "mlp", "dtype": kind, "rows": 128, "sizes": [128, 256, 256, 64]}


def _convolutions() -> Iterator[Case]:
    for kind in ["f16", "bf16", "tf32", "f32", "f64"]:
        for last in (False, True):
            for x, w, options in (
                ([2, 16, 16, 16], [32, 16, 3, 3], {"padding": 1}),
                ([2, 16, 16, 16], [32, 16, 1, 1], {}),
                ([2, 8, 17, 17], [16, 8, 3, 3], {"stride": 2}),
                ([4, 64, 8, 8], [64, 64, 3, 3], {"padding": 1}),
                ([1, 3, 32, 32], [16, 3, 7, 7], {"stride": 2, "padding": 3}),
                ([2, 64, 8, 8], [128, 64, 1, 1], {}),
                ([2, 16, 16, 16], [16, 4, 3, 3], {"groups": 4}),
            ):
                yield {"op": "conv", "dtype": kind, "x": x, "w": w, "options": options,
                       "channels_last": last}  # fmt: skip
        yield {"op": "conv", "dtype": kind, "x": [2, 32, 64], "w": [64, 32, 5],
               "options": {"padding": 2}}  # fmt: skip
        yield {"op": "conv", "dtype": kind, "x": [2, 16, 16, 16], "w": [32, 16, 16, 16],
               "options": {"stride": 16}}  # fmt: skip


def _attentions() -> Iterator[Case]:
    for kind in ["f16", "bf16", "tf32"]:
        for shape in ([2, 4, 64, 32], [1, 8, 128, 64]):
            yield {"op": "attention", "dtype": kind, "shape": shape}


_CATEGORIES = {
    "aligned": _aligned, "batched": _batched, "addend": _with_addend, "long": _long,
    "few rows": _few_rows, "unaligned": _odd, "vectors": _vectors, "fp8": _fp8,
    "int8": _integers, "layers": _layers, "convolution": _convolutions,
    "attention": _attentions,
}  # fmt: skip
