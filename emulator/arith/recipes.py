"""The steps that each instruction family takes on each generation: the lowering, as data.

Sources. "measured": captures on an H200 (tests/golden and the project's capture tool). "published":
the recorded dot products of Khattak and Mikaitis (arXiv:2512.07004). "MMA-Sim": the model of Xie et
al. (arXiv:2511.10909) as of version 2.1.1; tests/golden has results of it. "lowering": what ptxas
of CUDA 13.0 emits; a target whose assembler turns an instruction into a sequence of others computes
what that sequence computes.

A row that is not here does not exist: the instruction is then unsupported on that generation.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from dtypes import FORMATS
from emulator.arith.steps import (
    AddC,
    Arithmetic,
    Clear,
    Convert,
    FmaChain,
    FusedDotAdd,
    IntegerDot,
    PairSums,
    PopcountDot,
    Step,
    Widen,
    check_steps,
)
from emulator.targets import TARGETS

__all__ = [
    "RECIPES", "Arithmetic", "Pipe", "Row", "arithmetic_for_row", "find_recipe", "with_recipe",
]  # fmt: skip

#: The datapath: mma and mma.sp share one, wgmma and tcgen05.mma have their own, m8n8k4.f16 ("quad")
#: is a case apart. wmma is mma by another name; "wmma" rows say where its lowering differs.
Pipe = Literal["mma", "quad", "wgmma", "tcgen05", "wmma"]


@dataclass(frozen=True)
class Row:
    """One recipe: on these generations, for these types of A and of D, take these steps."""

    pipe: Pipe
    generations: str
    #: types of A (those of B are alike), and of D
    a: str
    d: str
    steps: tuple[Step, ...]
    source: str
    #: value of .kind, where the recipe is for block-scaled forms only
    kinds: str = ""
    #: types of C, where the recipe is for some only
    c: str = ""

    def __post_init__(self) -> None:
        check_steps(self.steps)


def _f32(fraction_bits: int, floor: int | None, **more: int) -> FusedDotAdd:
    return FusedDotAdd(fraction_bits, floor, "f32", "rz", **more)


def _f16(fraction_bits: int, floor: int | None, **more: int) -> FusedDotAdd:
    return FusedDotAdd(fraction_bits, floor, "f16", "rn", **more)


#: the fp8 datapath of Ada and of Hopper's wgmma keeps 13 fraction bits and writes f32 with as many
_F32_14 = {"precision": 14}
#: of wmma: an f16 C that is converted first, and a result that is converted last
_C_TO_F32, _D_TO_F16 = Convert("f32"), Convert("f16")
_WMMA = "steps of mma, chained as the code of ptxas chains them"
_FP32_PIPE = "the FP32 instructions that ptxas emits, as measured on Hopper"
_ANY = "volta turing ampere ada hopper blackwell rtx_blackwell"
_FROM_AMPERE = "ampere ada hopper blackwell rtx_blackwell"
_FROM_HOPPER = "hopper blackwell rtx_blackwell"
_BYTES = "e4m3 e5m2"
_SMALL = "e4m3 e5m2 e3m2 e2m3 e2m1"

#: fp8 on an f16 tensor core: the low halves of the registers, then the high halves, then + c
_FP8_AS_F16 = {"run": 2, "passes": 2}
_FP8_LOWERED_F32 = (Widen("f16"), Clear(), _f32(25, -133, **_FP8_AS_F16), AddC("f32"))
_FP8_LOWERED_F16 = (Widen("f16"), Clear(), _f16(25, -21, **_FP8_AS_F16), AddC("f16"))

RECIPES: tuple[Row, ...] = (
    # f16, bf16, tf32 on tensor cores
    Row("mma", "turing", "f16", "f32", (_f32(24, -132),), "MMA-Sim"),
    Row("mma", "turing", "f16", "f16", (_f16(24, -20),), "MMA-Sim"),
    Row("mma", "ampere ada", "f16 bf16", "f32", (_f32(24, -132, run=8),), "published, MMA-Sim"),
    Row("mma", "ampere ada", "tf32", "f32", (_f32(24, -132, run=4),), "published, MMA-Sim"),
    Row("mma", "ampere ada", "f16", "f16", (_f16(24, -20, run=8),), "published, MMA-Sim"),
    Row("mma", "hopper", "f16 bf16 tf32", "f32", (_f32(25, -133),), "measured"),
    Row("mma", "hopper", "f16", "f16", (_f16(25, -21),), "measured"),
    Row(
        "mma", "blackwell rtx_blackwell", "f16 bf16 tf32", "f32", (_f32(25, -133),),
        "published (B200), MMA-Sim",
    ),
    Row(
        "mma", "blackwell rtx_blackwell", "f16", "f16", (_f16(25, -21),),
        "published (B200), MMA-Sim",
    ),
    # fp8, fp6, fp4 on mma
    Row("mma", "ada", _BYTES, "f32", (_f32(13, -132, run=16, **_F32_14),), "published, MMA-Sim"),
    Row("mma", "ada", _BYTES, "f16", (_f16(13, -20, run=16),), "published, MMA-Sim"),
    Row("mma", "hopper", _BYTES, "f32", _FP8_LOWERED_F32, "measured"),
    Row("mma", "hopper", _BYTES, "f16", _FP8_LOWERED_F16, "measured"),
    Row("mma", "blackwell", _BYTES, "f32", _FP8_LOWERED_F32, "published (B200), lowering"),
    Row("mma", "blackwell", _BYTES, "f16", _FP8_LOWERED_F16, "published (B200), lowering"),
    Row("mma", "rtx_blackwell", _SMALL, "f32", (_f32(25, -133),), "MMA-Sim"),
    Row("mma", "rtx_blackwell", _SMALL, "f16", (_f16(25, -21),), "MMA-Sim"),
    Row("mma", "rtx_blackwell", _SMALL, "f32", (_f32(25, -133),), "MMA-Sim", kinds="mxf8f6f4"),
    Row(
        "mma", "rtx_blackwell", "e2m1", "f32", (_f32(35, -139, group=16),), "MMA-Sim",
        kinds="mxf4 mxf4nvf4",
    ),
    # wgmma
    Row("wgmma", "hopper", "f16 bf16 tf32", "f32", (_f32(25, -133),), "measured"),
    Row("wgmma", "hopper", "f16", "f16", (_f16(25, -21),), "measured"),
    Row("wgmma", "hopper", _BYTES, "f32", (_f32(13, -133, **_F32_14),), "measured"),
    Row("wgmma", "hopper", _BYTES, "f16", (_f16(13, -21),), "measured"),
    # tcgen05.mma, dense and sparse. MMA-Sim has neither K = 96 nor sparse matrices, which are taken
    # to be the same, and no integers, whose sum is exact as on Hopper.
    Row("tcgen05", "blackwell", "f16 bf16 tf32", "f32", (_f32(25, -133),), "MMA-Sim"),
    Row("tcgen05", "blackwell", "f16", "f16", (_f16(25, -21),), "MMA-Sim"),
    Row("tcgen05", "blackwell", _SMALL, "f32", (_f32(25, -133),), "MMA-Sim"),
    Row("tcgen05", "blackwell", _SMALL, "f16", (_f16(25, -21),), "MMA-Sim"),
    Row("tcgen05", "blackwell", _SMALL, "f32", (_f32(25, -133),), "MMA-Sim", kinds="mxf8f6f4"),
    Row(
        "tcgen05", "blackwell", "e2m1", "f32", (_f32(35, -139, group=16),), "MMA-Sim",
        kinds="mxf4 mxf4nvf4",
    ),
    # m8n8k4 with f16: tensor cores up to Turing, the FP32 pipe ever after
    Row("quad", "volta", "f16", "f32", (_f32(23, None),), "published, MMA-Sim"),
    Row("quad", "volta", "f16", "f16", (_f16(23, -19),), "published, MMA-Sim"),
    Row("quad", "turing", "f16", "f32", (_f32(23, None),), "MMA-Sim"),
    Row("quad", "turing", "f16", "f16", (_f16(23, -19),), "MMA-Sim"),
    Row(
        "quad", _FROM_AMPERE, "f16", "f32",
        (Widen("f32"), Clear(), FmaChain("f32"), AddC("f32")), _FP32_PIPE,
    ),
    Row(
        "quad", _FROM_AMPERE, "f16", "f16",
        (Widen("f32"), PairSums("f32"), Convert("f16")), _FP32_PIPE,
    ),
    # wmma, by the code that ptxas makes of it: one HMMA after the other along k, of k4 on Volta, of
    # k8 on Turing, and of k4 for tf32 everywhere. For an f32 D an f16 C is converted first (not on
    # Volta, whose HMMA takes it), and an f16 D with an f32 C is computed in f32 and converted last.
    Row("wmma", "volta", "f16", "f16", (_f32(23, None, run=4), _D_TO_F16), _WMMA, c="f32"),
    Row("wmma", "volta", "f16", "f16", (_f16(23, -19, run=4),), _WMMA),
    Row("wmma", "volta", "f16", "f32", (_f32(23, None, run=4),), _WMMA),
    Row("wmma", "turing", "f16", "f16", (_f32(24, -132, run=8), _D_TO_F16), _WMMA, c="f32"),
    Row("wmma", "turing", "f16", "f16", (_f16(24, -20, run=8),), _WMMA),
    Row("wmma", "turing", "f16", "f32", (_C_TO_F32, _f32(24, -132, run=8)), _WMMA),
    Row("wmma", "ampere ada", "f16", "f16", (_f32(24, -132, run=8), _D_TO_F16), _WMMA, c="f32"),
    Row("wmma", "ampere ada", "f16", "f32", (_C_TO_F32, _f32(24, -132, run=8)), _WMMA, c="f16"),
    Row("wmma", _FROM_HOPPER, "f16", "f16", (_f32(25, -133), _D_TO_F16), _WMMA, c="f32"),
    Row("wmma", _FROM_HOPPER, "f16", "f32", (_C_TO_F32, _f32(25, -133)), _WMMA, c="f16"),
    Row("wmma", _FROM_HOPPER, "tf32", "f32", (_f32(25, -133, run=4),), _WMMA),
    # f64: a fused multiply-add chain; on a NaN, B's survives before the accumulator's before A's
    Row(
        "mma", _FROM_AMPERE, "f64", "f64", (FmaChain("f64", nan_order=("b", "x", "a")),),
        "a chain of f64 fused multiply-adds, as measured on Hopper",
    ),
    # integers
    Row("mma", _ANY, "s8 u8 s4 u4", "s32", (IntegerDot(),), "exact"),
    Row("mma", _ANY, "b1", "s32", (PopcountDot(),), "exact"),
    Row("wgmma", "hopper", "s8 u8", "s32", (IntegerDot(),), "exact"),
    Row("tcgen05", "blackwell", "s8 u8 s1z4m11", "s32", (IntegerDot(),), "exact"),
    Row("wgmma", "hopper", "b1", "s32", (PopcountDot(),), "exact"),
)  # fmt: skip


def find_recipe(
    pipe: Pipe, generation: str, a: str, d: str, kind: str | None, c: str = ""
) -> Row | None:
    """The row for operands of type `a` and results of type `d`; None where there is none.

    `kind` is that of a block-scaled instruction, else None. `c` matters for wmma alone, where an
    accumulator may differ in type from the result; what wmma has no row for is as mma has it.
    """
    for row in RECIPES:
        if (
            row.pipe == pipe
            and generation in row.generations.split()
            and a in row.a.split()
            and row.d == d
            and (kind in row.kinds.split() if kind else not row.kinds)
            and (not row.c or c in row.c.split())
        ):
            return row
    return find_recipe("mma", generation, a, d, kind) if pipe == "wmma" else None


@lru_cache(maxsize=1024)
def with_recipe(
    targets: tuple[str, ...], pipe: Pipe, a: str, d: str, kind: str | None = None, c: str = ""
) -> tuple[str, ...]:
    """Filters `targets` by whether `find_recipe` finds a recipe on them."""
    return tuple(
        name for name in targets if find_recipe(pipe, TARGETS[name].generation, a, d, kind, c)
    )


def arithmetic_for_row(row: Row, a: str, b: str, c: str, scale: str | None = None) -> Arithmetic:
    """The arithmetic of a row for given operand types, with no modifiers."""
    return Arithmetic(
        FORMATS[a],
        FORMATS[b],
        FORMATS[c],
        FORMATS[row.d],
        row.steps,
        FORMATS[scale] if scale else None,
    )
