"""Which declared register types an operand takes: measured on ptxas of CUDA 13.0, form by form.

PTX checks the declared type of a register against the operand. For matrix instructions ptxas is
stricter for some forms than for others, with no rule behind it; the rows below say what it takes.
Exceptions on single targets (the metadata of fp8 mma.sp refuses .f32 on sm_90a) are left out.
"""

from __future__ import annotations

from typing import NamedTuple

from emulator.isa.matrix import MatrixInstruction

#: register type -> bits
REGISTER_BITS = {
    "pred": 1,
    "b8": 8, "u8": 8, "s8": 8,
    "b16": 16, "u16": 16, "s16": 16, "f16": 16,
    "b32": 32, "u32": 32, "s32": 32, "f32": 32, "f16x2": 32,
    "b64": 64, "u64": 64, "s64": 64, "f64": 64,
}  # fmt: skip

BITS = ("b32",)
HALF = ("b32", "f16x2")
SINGLE = ("b32", "f32")
INTEGER = ("b32", "s32", "u32")
ANY_32 = ("b32", "f16x2", "f32", "s32", "u32")
ANY_64 = ("b64", "f64", "s64", "u64")
DESCRIPTOR = ("b64", "s64", "u64")
SCALE_ID = ("b16", "u16")
PREDICATE = ("pred",)

_ACCUMULATOR = {"f16": HALF, "f32": SINGLE, "s32": INTEGER, "f64": ANY_64}


class _Row(NamedTuple):
    """The first row whose family and type of A match decides; "" matches every one."""

    families: str
    a: str
    shape: str
    takes: tuple[str, ...]


_MULTIPLICANDS = (
    _Row("", "f64", "", ANY_64),
    _Row("wgmma wgmma.sp", "f16 bf16 tf32 e4m3 e5m2", "", HALF),
    _Row("mma mma.sp", "f16", "", HALF),
    _Row("mma", "bf16 tf32", "", BITS),
    _Row("mma", "s8 u8", "m8n8k16", INTEGER),
    _Row("", "", "", ANY_32),
)


def register_types(ins: MatrixInstruction, operand: str) -> tuple[str, ...]:
    """The register types that operand d, a, b, c, e, scale_a or scale_b may be declared with."""
    if operand in ("c", "d"):
        type_ = ins.d_type if operand == "d" else ins.c_type
        if ins.form.family == "mma.sp" and type_ == "f32" and ins.a_type in ("f16", "bf16", "tf32"):
            return ANY_32
        return _ACCUMULATOR[type_]
    if operand in ("a", "b"):
        if ins.is_block_scaled:
            return BITS
        for row in _MULTIPLICANDS:
            if (
                (not row.families or ins.form.family in row.families.split())
                and (not row.a or ins.a_type in row.a.split())
                and row.shape in ("", ins.shape)
            ):
                return row.takes
    return ANY_32
