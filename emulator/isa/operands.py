"""Which declared register types an operand takes: measured on ptxas of CUDA 13.0, form by form.

PTX checks the declared type of a register against the operand. For matrix instructions ptxas is
stricter for some forms than for others, with no rule behind it; the rows below say what it takes.
On some targets ptxas replaces an instruction by a call of a function; its parameters have types of
their own, and those are the rows that name targets. What ptxas takes by mistake (a predicate where
any 32 bits go) is left out.
"""

from __future__ import annotations

from typing import NamedTuple

from emulator.isa.conversion import Conversion, split_type
from emulator.isa.instruction import Instruction
from emulator.isa.matrix import MatrixInstruction
from emulator.isa.movement import Movement
from emulator.targets import Target, find_target, select

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
DOUBLE = ("b64", "f64")
ANY_64 = ("b64", "f64", "s64", "u64")
DESCRIPTOR = ("b64", "s64", "u64")
SCALE_ID = ("b16", "s16", "u16")
PREDICATE = ("pred",)
#: a register narrower than an address is zero-extended, a wider one cut
ADDRESS = ("b32", "u32", "s32", "b64", "u64", "s64", "b16", "u16", "s16", "b8", "u8", "s8")

_ACCUMULATOR = {"f16": HALF, "f32": SINGLE, "s32": INTEGER, "f64": ANY_64}


class _Row(NamedTuple):
    """The first row that matches decides; "" and () match everything."""

    operands: str
    families: str
    a: str
    shape: str
    takes: tuple[str, ...]
    targets: tuple[str, ...] = ()


_100 = select(since=100)
_FP8_BY_CALL = tuple(t for t in select(since=90) if t not in select(since=120))

#: (types of A, shapes, targets) of what becomes a call of a function
_CALLED = (
    ("e4m3 e5m2", "m16n8k16 m16n8k32 m16n8k64", _FP8_BY_CALL),
    ("f64", "m16n8k4 m16n8k8 m16n8k16", _100),
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


def register_types(
    ins: Instruction, operand: str, target: str | Target | None = None
) -> tuple[str, ...]:
    """The register types that an operand may be declared with, by its name in ``ins.operands``.

    With a `target`, what that target's assembler takes; without, what most of them take. Empty
    where it is not known.
    """
    name = "" if target is None else find_target(target).name
    if isinstance(ins, MatrixInstruction):
        return _matrix_types(ins, operand, name)
    if isinstance(ins, Movement):
        return ADDRESS if operand == "p" else ANY_32
    return _conversion_types(ins, operand) if isinstance(ins, Conversion) else ()


def _matrix_types(ins: MatrixInstruction, operand: str, target: str) -> tuple[str, ...]:
    if operand in ("a", "b") and ins.is_block_scaled:
        return BITS
    for row in _ROWS:
        if (
            operand in row.operands.split()
            and (not row.families or ins.form.family in row.families.split())
            and (not row.a or ins.a_type in row.a.split())
            and (not row.shape or ins.shape in row.shape.split())
            and (not row.targets or target in row.targets)
        ):
            return row.takes
    type_ = ins.d_type if operand == "d" else ins.c_type
    if ins.form.family == "mma.sp" and type_ == "f32" and ins.a_type in ("f16", "bf16", "tf32"):
        return ANY_32
    return _ACCUMULATOR[type_]


def is_called(ins: Instruction, target: str | Target) -> bool:
    """Whether ptxas makes the instruction a call of a function that has registers of fixed types.

    Then each register of an accumulator must be of a legal type by itself, and none can be
    discarded. Elsewhere it is the vector as a whole that has a type.
    """
    if not isinstance(ins, MatrixInstruction) or ins.is_wgmma:
        return False
    name = find_target(target).name
    return any(ins.a_type in types.split() and ins.shape in shapes.split() and name in targets
               for types, shapes, targets in _CALLED)  # fmt: skip


# --- cvt ------------------------------------------------------------------------------------------

#: destination or packed source of cvt -> what its register may be; a wider one is zero-extended
_PACKED = {
    "f16": ("b16", "f16", "b32", "b64"), "bf16": ("b16",), "tf32": BITS,
    "f16x2": HALF, "bf16x2": BITS,
    "e4m3x2": ("b16",), "e5m2x2": ("b16",), "e2m3x2": ("b16",), "e3m2x2": ("b16",),
    "e2m1x2": ("b8",), "ue8m0x2": ("b16",),
    "e4m3x4": BITS, "e5m2x4": BITS, "e2m3x4": BITS, "e3m2x4": BITS, "e2m1x4": ("b16",),
}  # fmt: skip
#: f32 sources of a conversion to f16 may be wider than they are: the low half counts
_WIDE_SINGLE = (*SINGLE, "b64")


def _conversion_types(ins: Conversion, operand: str) -> tuple[str, ...]:
    element = split_type(ins.to)[0]
    if operand == "rbits":
        return BITS
    if operand != "d" and ins.source == "f32":
        return _WIDE_SINGLE if element == "f16" else SINGLE
    type_ = ins.to if operand == "d" else ins.source
    # ue8m0 is younger than the rule that bf16x2 registers are .b32.
    if type_ == "bf16x2" and "ue8m0x2" in (ins.to, ins.source):
        return ANY_32
    if operand == "d" and type_ == "f16x2" and ins.source == "f32":
        return (*HALF, "b64")
    return _PACKED[type_]
