"""The products of a sweep over sizes: shapes, operands, and what is kept of D.

The operands of all sizes are cut from the same two arrays, so that the block of D that is kept
depends on k alone, not on m and n.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable

import numpy as np
import torch

from hardware.torch_cases import tensor

SIZES = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072,
         4096)  # fmt: skip
DEPTHS = (*SIZES[3:], 6144, 8192)
FEWER = tuple(x for x in SIZES if x & x - 1 == 0)
FEWER_DEPTHS = tuple(x for x in DEPTHS if x & x - 1 == 0)
#: (n, k) of layers of language models, and rows that they are used with
LAYERS = (
    (768, 768), (2304, 768), (3072, 768), (768, 3072), (50304, 768), (1024, 1024), (4096, 1024),
    (3072, 1024), (1024, 4096), (1600, 1600), (6400, 1600), (1600, 6400), (2560, 2560),
    (4096, 4096), (6144, 4096), (11008, 4096), (4096, 11008), (14336, 4096), (4096, 14336),
    (5120, 5120), (8192, 8192), (8192, 1024), (1280, 8192),
)  # fmt: skip
ROWS = (1, 2, 3, 5, 7, 8, 10, 12, 16, 20, 32, 50, 64, 100, 128, 200, 256, 300, 384, 512, 1000, 1024,
        2048, 4096)  # fmt: skip
#: rows and columns of D that are kept: the first, and the last
FIRST, LAST = (32, 64), (16, 16)


def shapes(kind: str) -> list[tuple[str, int, int, int, int]]:
    """(layout, batch, m, n, k) of a sweep: a grid, random ones, batches, layers of models."""
    operation, name = parts_of(kind)[:2]
    if operation in ("mv", "dot"):
        return _vectors(operation)
    fp8, full = name.startswith("e4m3"), kind == "bf16"
    sizes, depths = (SIZES, DEPTHS) if full else (FEWER, FEWER_DEPTHS)
    layouts = ("nt",) if fp8 or operation == "linear" else ("nt", "nn", "tn")
    low = 16 if fp8 else 1
    found = [
        (layout, 0, m, n, k)
        for layout, m, n, k in itertools.product(layouts, sizes, sizes, depths)
        if n >= low and k >= low and operation != "baddbmm"
    ]
    random = np.random.Generator(np.random.PCG64(1))
    step = 16 if low == 16 else 8
    for _ in range(0 if operation == "baddbmm" else 2000 if full else 800):
        m, n, k = (int(step * round(2 ** random.uniform(0, 12 - np.log2(step)))) for _ in range(3))
        found.append((layouts[random.integers(len(layouts))], 0, m, n, k))
    if low == 1 and operation != "baddbmm":
        for _ in range(600):
            m, n, k = (int(2 ** random.uniform(0, 11)) for _ in range(3))
            found.append((layouts[random.integers(len(layouts))], 0, m, n, k))
    if low == 1 and operation in ("", "baddbmm"):
        for batch, m, n, k in itertools.product(
            (2, 8, 32), (1, 16, 64, 128, 512), (16, 64, 128, 512), (16, 32, 64, 128, 512, 2048)
        ):
            found += [(layout, batch, m, n, k) for layout in ("nt", "nn", "tn")]
    if operation != "baddbmm" and not fp8:
        found += [("nt", 0, m, n, k) for m, (n, k) in itertools.product(ROWS, LAYERS)]
    return found


def _vectors(operation: str) -> list[tuple[str, int, int, int, int]]:
    """Sizes of matrix times vector, and of a product of two vectors."""
    random = np.random.Generator(np.random.PCG64(1))
    sizes = (*SIZES, *(int(2 ** random.uniform(0, 12)) for _ in range(20)))
    depths = (*DEPTHS, 1, 2, 4, 16384, *(int(2 ** random.uniform(0, 13)) for _ in range(20)))
    if operation == "dot":
        return [("nt", 0, 1, 1, k) for k in (*depths, *range(3, 2000, 17))]
    return [(layout, 0, m, 1, k) for layout in ("nt", "tt") for m in sizes for k in depths]


def parts_of(kind: str) -> tuple[str, str, str]:
    """Operation, type of the operands and of the result ("" as the operands) of a sweep."""
    operation, _, types = kind.rpartition(" ")
    name, _, out = types.partition(".")
    return operation, name, out


def operands(kind: str, device: str, length: int = 1 << 26) -> tuple[torch.Tensor, ...]:
    """The arrays, flat, that A, B and an addend of a sweep are cut from."""
    base = parts_of(kind)[1].removesuffix("slow")
    return tuple(tensor(f"sweep {x} {base}", (length,), base, device) for x in "abc")


def multiply(
    kind: str, pools: tuple[torch.Tensor, ...], shape: tuple[str, int, int, int, int]
) -> Callable[[], torch.Tensor]:
    """The product, to be called, of operands that lie ready. B is cut as n × k."""
    layout, batch, m, n, k = shape
    operation, name, out = parts_of(kind)
    count = max(batch, 1)
    a = pools[0][: count * m * k].view(count, m, k)
    b = pools[1][: count * n * k].view(count, n, k).mT
    a = a.mT.contiguous().mT if layout[0] == "t" else a
    b = b.contiguous() if layout[1] == "n" else b
    if operation == "mv":
        return lambda: torch.mv(a[0], b[0, :, 0])[:, None]
    if operation == "dot":
        return lambda: torch.dot(a[0, 0], b[0, :, 0])[None, None]
    if operation == "linear":
        return lambda: torch.nn.functional.linear(a[0], b[0].t(), pools[2][:n])
    if operation:
        c = pools[2][: count * m * n].view(count, m, n)
        return lambda: torch.baddbmm(c, a, b) if batch else torch.addmm(c[0], a[0], b[0])
    if name.startswith("e4m3"):
        one, result = torch.ones((), device=a.device), torch.float32 if out else torch.bfloat16
        return lambda: torch._scaled_mm(
            a[0], b[0], one, one, out_dtype=result, use_fast_accum=name == "e4m3"
        )
    options = {"out_dtype": torch.float32} if out else {}
    if batch:
        return lambda: torch.bmm(a, b, **options)
    return lambda: torch.mm(a[0], b[0], **options)


def blocks(d: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    d = d if d.ndim == 3 else d[None]
    return d[0, : FIRST[0], : FIRST[1]], d[-1, -LAST[0] :, -LAST[1] :]


def hashed(codes: np.ndarray) -> int:
    return int.from_bytes(hashlib.sha256(codes.tobytes()).digest()[:8], "little")


def largest(m: int, n: int, k: int) -> int:
    """Elements of the largest matrix."""
    return max(m * k, n * k, m * n)
