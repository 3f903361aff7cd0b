"""Declared register types that an operand takes: measured on ptxas of CUDA 13.0, form by form.

PTX checks the declared type of a register against the operand. For matrix instructions ptxas is
stricter for some forms than for others, with no rule behind it; the rows below say what it takes.
On some targets ptxas replaces an instruction by a call of a function; its parameters have types of
their own, and those are the rows that name targets. What ptxas takes by mistake (a predicate where
any 32 bits go) is left out.
"""

from __future__ import annotations

from typing import NamedTuple

from emulator.isa.signature import Constants
from emulator.targets import having

#: register type -> bits
REGISTER_BITS = {
    "pred": 1,
    "b8": 8, "u8": 8, "s8": 8,
    "b16": 16, "u16": 16, "s16": 16, "f16": 16,
    "b32": 32, "u32": 32, "s32": 32, "f32": 32, "f16x2": 32,
    "b64": 64, "u64": 64, "s64": 64, "f64": 64,
    "b128": 128,
}  # fmt: skip

BITS = ("b32",)
HALF = ("b32", "f16x2")
SINGLE = ("b32", "f32")
INTEGER = ("b32", "s32", "u32")
ANY_32 = ("b32", "f16x2", "f32", "s32", "u32")
DOUBLE = ("b64", "f64")
ANY_64 = ("b64", "f64", "s64", "u64")
DESCRIPTOR = ("b64", "s64", "u64")
SCALE_ID = ("b16", "s16", "u16")
PREDICATE = ("pred",)
#: a register narrower than an address is zero-extended, a wider one cut
WIDE_ADDRESS = ("b32", "u32", "s32", "b64", "u64", "s64")
ADDRESS = (*WIDE_ADDRESS, "b16", "u16", "s16", "b8", "u8", "s8")

_ACCUMULATOR = {"f16": HALF, "f32": SINGLE, "s32": INTEGER, "f64": ANY_64}


class _Row(NamedTuple):
    """The first row that matches decides; "" and () match everything."""

    operands: str
    families: str
    a: str
    shape: str
    takes: tuple[str, ...]
    targets: tuple[str, ...] = ()


_100 = having("sm_100")
_FP8_BY_CALL = having("mma.called")

#: (families, types of A, shapes, targets) of what becomes a call of a function
_CALLED = (
    ("mma mma.sp", "e4m3 e5m2", "m16n8k16 m16n8k32 m16n8k64", _FP8_BY_CALL),
    ("mma", "f64", "m16n8k4 m16n8k8 m16n8k16", _100),
)

_ROWS = (
    _Row("a b", "", "f64", "", ANY_64),
    _Row("a b", "wgmma wgmma.sp", "f16 bf16 tf32 e4m3 e5m2", "", HALF),
    _Row("a b", "mma mma.sp", "f16", "", HALF),
    _Row("a b", "mma", "bf16 tf32", "", BITS),
    _Row("b", "mma", "s8 u8", "m8n8k16", ANY_32, _100),
    _Row("a b", "mma", "s8 u8", "m8n8k16", INTEGER),
    _Row("d", "mma", "f64", "m16n8k4 m16n8k8 m16n8k16", DOUBLE, _100),
    _Row("e", "mma.sp", "e4m3 e5m2", "m16n8k64", ("b32", "f16x2", "s32", "u32"), _FP8_BY_CALL),
    _Row("a b e scale_a scale_b", "", "", "", ANY_32),
)


class Matrices(NamedTuple):
    """The facts of an mma or wgmma that the rows look at."""

    family: str
    shape: str
    #: element type of A
    a: str
    #: has block scales
    scaled: bool


def matrix_types(of: Matrices, operand: str, type_: str, target: str = "") -> tuple[str, ...]:
    """The register types of an operand of mma or wgmma whose elements are of `type_`.

    With the name of a target, what its assembler takes; without, what most of them take.
    """
    if operand in ("a", "b") and of.scaled:
        return BITS
    for row in _ROWS:
        if (
            operand in row.operands.split()
            and (not row.families or of.family in row.families.split())
            and (not row.a or of.a in row.a.split())
            and (not row.shape or of.shape in row.shape.split())
            and (not row.targets or target in row.targets)
        ):
            return row.takes
    if of.family == "mma.sp" and type_ == "f32" and of.a in ("f16", "bf16", "tf32"):
        return ANY_32
    return _ACCUMULATOR[type_]


def is_called(of: Matrices, target: str) -> bool:
    """True if ptxas makes the instruction a call of a function that has registers of fixed types.

    Then each register of an accumulator must be of a legal type by itself, and none can be
    discarded. Elsewhere it is the vector as a whole that has a type.
    """
    return any(
        of.family in families.split()
        and of.a in types.split()
        and of.shape in shapes.split()
        and target in targets
        for families, types, shapes, targets in _CALLED
    )


def hexadecimal(types: tuple[str, ...]) -> Constants:
    """Immediates in place of a single register: ptxas takes a hexadecimal f32 wherever it takes
    .f32 registers."""
    return "hexadecimal" if "f32" in types else "none"
