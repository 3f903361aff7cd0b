"""The table of legal forms of mma and wgmma. What is not written here is refused.

One row covers all type pairs, layouts and sizes that share a row of the manual's tables
(PTX ISA 9.7.14.5, 9.7.14.6, 9.7.15). Legality, targets and versions were compared with ptxas of
CUDA 13.0 and 13.5.
Element, register and selector counts are not written: they follow from the shape and the types.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from emulator.isa.instruction import Form
from emulator.isa.signature import Scope
from emulator.targets import having

if TYPE_CHECKING:
    from emulator.arith.recipes import Pipe

Family = Literal["mma", "mma.sp", "wgmma", "wgmma.sp", "tcgen05.mma", "tcgen05.mma.sp"]

FP8 = "e4m3 e5m2"
FP6_FP4 = "e3m2 e2m3 e2m1"
SMALL_FLOATS = f"{FP8} {FP6_FP4}"
INT8, INT4 = "s8 u8", "s4 u4"
ALL_LAYOUTS = "row.row row.col col.row col.col"


@dataclass(frozen=True)
class MatrixForm(Form):
    """One row. Fields with several alternatives separate them by spaces."""

    family: Family
    #: "m16n8k16"; a wgmma shape leaves N out: "m64k16"
    shape: str
    #: types of A, and of B where they are chosen independently ("" means: the same as A)
    a: str
    b: str
    #: accumulators, "D.C"
    dc: str
    targets: tuple[str, ...]
    #: values of N where the shape leaves it out
    n: tuple[int, ...] = ()
    layouts: str = "row.col"
    satfinite: bool = False
    #: takes .rn .rz .rm .rp
    rounding: bool = False
    #: "xor", "and": written with .popc
    bit_operation: str = ""
    kind: str = ""
    #: block scales, "scale_vec.stype"; the first is meant when .scale_vec is left out
    scales: str = ""
    scale_vec_optional: bool = True
    #: which metadata map a sparse form uses; see layout.lanemap
    metadata: str = ""
    #: mma.sp exists as ::ordered_metadata only
    ordered_only: bool = False
    pipe: Pipe = "mma"
    scope: Scope = "warp"
    #: what A and B may be, see `isa.signature`: registers in braces, a descriptor of shared memory
    a_kinds: str = "vector"
    b_kind: Literal["vector", "descriptor"] = "vector"
    #: D is the accumulator too, and there is no C
    updates_d: bool = False
    #: operands after the matrices: predicates and immediates
    immediates: str = ""
    #: the PTX version that introduced the row; parts of it came later, see `LATER`
    version: str = "6.4"

    def __post_init__(self) -> None:
        assert bool(self.metadata) == self.family.endswith(".sp")
        assert bool(self.n) == ("n" not in self.shape)
        assert self.targets

    @property
    def container(self) -> int | None:
        """Bits of the place of a multiplicand where they are not its own."""
        return 8 if self.kind in ("f8f6f4", "mxf8f6f4") else None

    def accepts_types(self, d: str, a: str, b: str, c: str) -> bool:
        pair = b in self.b.split() if self.b else b == a
        return a in self.a.split() and pair and f"{d}.{c}" in self.dc.split()


_75, _80, _89, _90 = (having(f"sm_{n}") for n in (75, 80, 89, 90))
_FP8_KIND, _FP4 = having("mma.fp8_kind"), having("mma.fp4")
_WGMMA = having("wgmma")
# ptxas takes sparse mxf4 on the exact targets only, not on the family targets 120f and 121f.
_SPARSE_FP4 = having("mma.sp.fp4")

_EVERY_8 = tuple(range(8, 257, 8))
#: integer and b1 wgmma: multiples of 8 up to 32, then of 16
_INTEGER_N = (8, 16, 24, *range(32, 257, 16))


def _mma(
    shapes: str, a: str, b: str, dc: str, targets: tuple[str, ...], **more: object
) -> list[MatrixForm]:
    return [
        MatrixForm("mma", shape, a, b, dc, targets, **more)  # type: ignore[arg-type]
        for shape in shapes.split()
    ]


def _sparse(
    shape: str, metadata: str, a: str, b: str, dc: str, targets: tuple[str, ...], **more: object
) -> list[MatrixForm]:
    more = {"version": "7.1", **more}
    return [MatrixForm("mma.sp", shape, a, b, dc, targets, metadata=metadata, **more)]  # type: ignore[arg-type]


def _wgmma(
    k: int,
    metadata: str,
    n: tuple[int, ...],
    a: str,
    b: str,
    dc: str,
    immediates: str,
    **more: object,
) -> list[MatrixForm]:
    """The dense form and, where A may be sparse, the sparse one of twice the k."""
    rows: dict[Family, tuple[str, str, str]] = {"wgmma": (f"m64k{k}", "", "8.0")}
    if metadata:
        rows["wgmma.sp"] = f"m64k{2 * k}", metadata, "8.2"
    return [
        MatrixForm(
            family,
            shape,
            a,
            b,
            dc,
            _WGMMA,
            n=n,
            metadata=held,
            pipe="wgmma",
            scope="warpgroup",
            a_kinds="descriptor vector",
            b_kind="descriptor",
            updates_d=True,
            immediates=immediates,
            version=version,
            **more,  # type: ignore[arg-type]
        )
        for family, (shape, held, version) in rows.items()
    ]


_F16_OR_F32 = "f16.f16 f32.f32"
_MX8 = {"kind": "mxf8f6f4", "scales": "1X.ue8m0", "version": "8.7"}
_MX4 = {"kind": "mxf4", "scales": "2X.ue8m0", "version": "8.7"}
_NV4 = {
    "kind": "mxf4nvf4",
    "scales": "2X.ue8m0 4X.ue4m3 4X.ue8m0",
    "scale_vec_optional": False,
    "version": "8.7",
}
_ORDERED = {"ordered_only": True}
# 16-bit types can be transposed in shared memory; A in registers has no imm_trans_a.
_SCALE_D = "scale_d"
_SIGNS = "scale_d imm_scale_a imm_scale_b"
_SIGNS_AND_MAJORS = f"{_SIGNS} imm_trans_a imm_trans_b"

FORMS: tuple[MatrixForm, ...] = (
    # --- mma.sync, dense (9.7.14.5) ---
    *_mma("m8n8k4", "f16", "", "f16.f16 f32.f16 f32.f32", having("sm_70"),
          layouts=ALL_LAYOUTS, pipe="quad"),
    *_mma("m8n8k4", "f64", "", "f64.f64", _80, rounding=True, version="7.0"),
    *_mma("m16n8k4 m16n8k8 m16n8k16", "f64", "", "f64.f64", _90, rounding=True, version="7.8"),
    *_mma("m16n8k8", "f16", "", _F16_OR_F32, _75, version="6.5"),
    *_mma("m16n8k16", "f16", "", _F16_OR_F32, _80, version="7.0"),
    *_mma("m16n8k8 m16n8k16", "bf16", "", "f32.f32", _80, version="7.0"),
    *_mma("m16n8k4 m16n8k8", "tf32", "", "f32.f32", _80, version="7.0"),
    *_mma("m16n8k16", FP8, FP8, _F16_OR_F32, _89, version="8.7"),
    *_mma("m16n8k32", FP8, FP8, _F16_OR_F32, _89, version="8.4"),
    *_mma("m8n8k16", INT8, INT8, "s32.s32", _75, satfinite=True, version="6.5"),
    *_mma("m16n8k16 m16n8k32", INT8, INT8, "s32.s32", _80, satfinite=True, version="7.0"),
    *_mma("m8n8k32", INT4, INT4, "s32.s32", _75, satfinite=True, version="6.5"),
    *_mma("m16n8k32 m16n8k64", INT4, INT4, "s32.s32", _80, satfinite=True, version="7.0"),
    *_mma("m8n8k128", "b1", "", "s32.s32", _75, bit_operation="xor", version="7.0"),
    *_mma("m16n8k128 m16n8k256", "b1", "", "s32.s32", _80, bit_operation="xor", version="7.0"),
    *_mma("m8n8k128 m16n8k128 m16n8k256", "b1", "", "s32.s32", _80, bit_operation="and",
          version="7.1"),
    # With a kind. Two fp8 operands need less of the target than a pair with fp6 or fp4: the first
    # row that takes the types counts.
    *_mma("m16n8k16", FP8, FP8, _F16_OR_F32, _FP8_KIND, kind="f8f6f4", version="8.7"),
    *_mma("m16n8k32", FP8, FP8, _F16_OR_F32, _FP8_KIND, kind="f8f6f4", version="8.6"),
    *_mma("m16n8k32", SMALL_FLOATS, SMALL_FLOATS, _F16_OR_F32, _FP4, kind="f8f6f4",
          version="8.7"),
    *_mma("m16n8k32", SMALL_FLOATS, SMALL_FLOATS, "f32.f32", _FP4, **_MX8),
    *_mma("m16n8k64", "e2m1", "", "f32.f32", _FP4, **_MX4),
    *_mma("m16n8k64", "e2m1", "", "f32.f32", _FP4, **_NV4),
    # --- mma.sp, mma.sp::ordered_metadata (9.7.14.6) ---
    *_sparse("m16n8k16", "s1", "f16", "", _F16_OR_F32, _80),
    *_sparse("m16n8k32", "s2", "f16", "", _F16_OR_F32, _80),
    *_sparse("m16n8k16", "s1", "bf16", "", "f32.f32", _80),
    *_sparse("m16n8k32", "s2", "bf16", "", "f32.f32", _80),
    *_sparse("m16n8k8", "s1", "tf32", "", "f32.f32", _80),
    *_sparse("m16n8k16", "s2", "tf32", "", "f32.f32", _80),
    *_sparse("m16n8k32", "s3", INT8, INT8, "s32.s32", _80, satfinite=True),
    *_sparse("m16n8k64", "s4", INT8, INT8, "s32.s32", _80, satfinite=True),
    *_sparse("m16n8k64", "s3", INT4, INT4, "s32.s32", _80, satfinite=True),
    *_sparse("m16n8k128", "s4", INT4, INT4, "s32.s32", _80, satfinite=True),
    *_sparse("m16n8k64", "s4", FP8, FP8, "f32.f32", _89, version="8.4"),
    *_sparse("m16n8k64", "s4", FP8, FP8, "f16.f16", _FP4, **_ORDERED, version="8.7"),
    *_sparse("m16n8k64", "s4", FP8, FP8, "f32.f32", _FP8_KIND, kind="f8f6f4", **_ORDERED,
             version="8.6"),
    *_sparse("m16n8k64", "s4", SMALL_FLOATS, SMALL_FLOATS, _F16_OR_F32, _FP4,
             kind="f8f6f4", **_ORDERED, version="8.7"),
    *_sparse("m16n8k64", "s4", SMALL_FLOATS, SMALL_FLOATS, "f32.f32", _FP4,
             **_MX8, **_ORDERED),
    *_sparse("m16n8k128", "s4", "e2m1", "", "f32.f32", _SPARSE_FP4, **_MX4, **_ORDERED),
    *_sparse("m16n8k128", "s4", "e2m1", "", "f32.f32", _SPARSE_FP4, **_NV4, **_ORDERED),
    # --- wgmma.mma_async, dense and sparse (9.7.15.5, 9.7.15.6) ---
    *_wgmma(16, "s2", _EVERY_8, "f16", "", _F16_OR_F32, _SIGNS_AND_MAJORS),
    *_wgmma(16, "s2", _EVERY_8, "bf16", "", "f32.f32", _SIGNS_AND_MAJORS),
    *_wgmma(8, "s2", _EVERY_8, "tf32", "", "f32.f32", _SIGNS),
    *_wgmma(32, "s4", _EVERY_8, FP8, FP8, _F16_OR_F32, _SIGNS),
    *_wgmma(32, "s4", _INTEGER_N, INT8, INT8, "s32.s32", _SCALE_D, satfinite=True),
    *_wgmma(256, "", _INTEGER_N, "b1", "", "s32.s32", _SCALE_D, bit_operation="and"),
)  # fmt: skip


class Later(NamedTuple):
    """Instructions of a row that came later than the row; "" stands for all."""

    version: str
    family: str = ""
    a: str = ""
    b: str = ""
    d: str = ""
    scale: str = ""
    ordered_metadata: bool = False


LATER: tuple[Later, ...] = (
    Later("8.4", "wgmma wgmma.sp", "s8", "u8"),
    Later("8.4", "wgmma wgmma.sp", "u8", "s8"),
    Later("8.5", "mma.sp", ordered_metadata=True),
    Later("8.7", "mma", FP8, FP8, "f16"),
    Later("9.1", scale="4X.ue8m0"),
)
