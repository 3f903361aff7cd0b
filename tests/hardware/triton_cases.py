"""Triton kernels that multiply matrices with ``tl.dot``, and their random operands.

Whether they are compiled or interpreted is decided by TRITON_INTERPRET when this file is imported.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from types import SimpleNamespace
from zlib import crc32

import numpy as np
import torch
import triton
import triton.language as tl

from dtypes import Array
from emulator.adapters.triton_lowering import DEFAULT_IMPRECISE
from emulator.targets import find_target
from hardware.operands import REGIMES, matrices

#: sizes of the product; every block below divides them
M, N, K = 128, 128, 256
#: how a kernel accumulates, as the kernel's HOW counts them
STYLES = ("acc = dot(a, b, acc)", "acc += dot(a, b)", "acc = acc / 2 + dot(a, b)")
FP8 = ("e4m3", "e5m2")
TORCH = {
    "f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64,
    "e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2, "s8": torch.int8, "s32": torch.int32,
}  # fmt: skip
RESULT = {"f16": tl.float16, "f32": tl.float32, "f64": tl.float64, "s32": tl.int32}


@triton.jit
def kernel(
    a_ptr, b_ptr, c_ptr, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    PRECISION: tl.constexpr, IMPRECISE: tl.constexpr, OUT: tl.constexpr, HOW: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    ks = tl.arange(0, BK)
    c_at = c_ptr + rows[:, None] * N + columns[None, :]
    acc = tl.load(c_at)
    for k in range(0, K, BK):
        a = tl.load(a_ptr + rows[:, None] * K + k + ks[None, :])
        b = tl.load(b_ptr + (k + ks)[:, None] * N + columns[None, :])
        if HOW == 0:
            acc = tl.dot(a, b, acc, input_precision=PRECISION, max_num_imprecise_acc=IMPRECISE,
                         out_dtype=OUT)  # fmt: skip
        else:
            if HOW == 2:
                acc = acc * 0.5
            acc += tl.dot(a, b, input_precision=PRECISION, max_num_imprecise_acc=IMPRECISE,
                          out_dtype=OUT)  # fmt: skip
    tl.store(c_at, acc)


@dataclass(frozen=True)
class Case:
    """A kernel: its types, its tile (m, n, k), and what else decides about its instruction."""

    a: str
    b: str
    d: str
    tile: tuple[int, int, int]
    warps: int
    style: int = 0
    precision: str | None = None
    imprecise: int | None = None

    @property
    def options(self) -> str:
        named = (("input_precision", self.precision), ("max_num_imprecise_acc", self.imprecise))
        return ", ".join(f"{name}={value}" for name, value in named if value is not None)

    @property
    def name(self) -> str:
        tile = "×".join(map(str, self.tile))
        what = f"{self.a} × {self.b} into {self.d}, {tile}, {self.warps} warps, "
        return what + STYLES[self.style] + (self.options and f", {self.options}")

    def adds_itself(self, target: str) -> bool:
        """Whether the kernel adds a finished dot: of fp8 where its accumulation is bounded.

        The interpreter does such an addition with NumPy, which makes NaNs of other codes.
        """
        default = DEFAULT_IMPRECISE.get(find_target(target).generation, 0)
        bound = default if self.imprecise is None else self.imprecise
        return self.style > 0 and self.a in FP8 and bound > 0


def cases() -> Iterator[Case]:
    """Every instruction that Triton takes on Hopper, by several tiles, and all that alters it."""
    tiles = (((64, 64, 64), 4), ((128, 128, 32), 8), ((32, 64, 64), 4), ((64, 64, 32), 2),
             ((16, 16, 32), 1))  # fmt: skip
    for t, (tile, warps), style in product(("f16", "bf16", "f32", *FP8, "s8"), tiles, (0, 1)):
        yield Case(t, t, "s32" if t == "s8" else "f32", tile, warps, style)
    for m, style in product((64, 32), (0, 1)):
        for t in ("f16", *FP8):
            yield Case(t, t, "f16", (m, 64, 64), 4, style)
        for precision in ("ieee", "tf32x3"):
            yield Case("f32", "f32", "f32", (m, 64, 32), 4, style, precision)
        for a, b in (FP8, FP8[::-1]):
            yield Case(a, b, "f32", (m, 64, 64), 4, style)
    for t, imprecise, style in product(FP8, (0, 32, 64, 96, 128), (0, 1)):
        yield Case(t, t, "f32", (64, 64, 128), 4, style, imprecise=imprecise)
    for t in ("f16", "bf16", "f32"):
        yield Case(t, t, "f32", (64, 64, 64), 4, 2)
    yield Case("f64", "f64", "f64", (32, 32, 32), 4)


def operands(case: Case, regime: str, seed: int) -> list[torch.Tensor]:
    """A, B and C; they depend on the types, the regime and the seed alone."""
    rng = np.random.default_rng([seed, crc32(f"{case.a} {case.b} {case.d} {regime}".encode())])
    # `matrices` asks for what instructions of the mma family have.
    like_mma = SimpleNamespace(
        m=M, n=N, k=K, stored_k=K, is_wgmma=True, is_sparse=False,
        a_type=case.a, b_type=case.b, c_type=case.d,
    )  # fmt: skip
    drawn = matrices(like_mma, rng, regime, 1)  # type: ignore[arg-type]
    return [
        torch.from_numpy(codes[0].view(f"i{codes.itemsize}")).view(TORCH[t])
        for codes, t in zip(drawn, (case.a, case.b, case.d), strict=True)
    ]


def run(case: Case, seed: int, device: str) -> Array:
    """Results ``(regimes, m, n)`` of a case."""
    out = []
    for regime in REGIMES:
        a, b, c = (x.to(device) for x in operands(case, regime, seed))
        bm, bn, _ = case.tile
        kernel[(M // bm, N // bn)](
            a, b, c, N, K, *case.tile, case.precision, case.imprecise, RESULT[case.d], case.style,
            num_warps=case.warps,
        )  # fmt: skip
        out.append(c.cpu().numpy())
    return np.stack(out)
