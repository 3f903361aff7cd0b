"""What stands where in a statement: the operand positions of an instruction, as data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from emulator.errors import UnsupportedError
from emulator.isa.conversion import Conversion, split_type
from emulator.isa.instruction import Instruction
from emulator.isa.matrix import MatrixInstruction
from emulator.isa.movement import Movement
from emulator.isa.operands import (
    DESCRIPTOR,
    PREDICATE,
    SCALE_ID,
    is_called,
    register_types,
)
from emulator.isa.wmma import Wmma, WmmaMultiply
from emulator.targets import Target
from emulator.warp.scales import legal_ids

#: Immediates in place of registers: none; words, where an integer is cut to the register's size;
#: words, and integers alone may make up the vector; f32 values; f32 values in hexadecimal.
Constants = Literal["none", "words", "integers", "values", "hexadecimal"]


@dataclass(frozen=True)
class Slot:
    """One operand position."""

    name: str


@dataclass(frozen=True)
class Registers(Slot):
    """`count` registers of legal types: in braces, or bare where `count` is 0."""

    types: tuple[str, ...]
    count: int = 0
    #: result, accumulator that is read and written, or source
    use: Literal["read", "written", "updated"] = "read"
    constants: Constants = "none"
    #: a bare register may stand in braces with others after it, which do not count
    braces: bool = False
    #: every register must be of a legal type, instead of the vector as a whole, and none be "_"
    each: bool = False


@dataclass(frozen=True)
class Immediate(Slot):
    values: tuple[int, ...] | range


@dataclass(frozen=True)
class Predicate(Slot):
    """A predicate register, negated or not, or 0 or 1."""

    types: tuple[str, ...] = PREDICATE


@dataclass(frozen=True)
class Descriptor(Slot):
    """A matrix descriptor: one value for the whole warpgroup."""

    types: tuple[str, ...] = DESCRIPTOR


@dataclass(frozen=True)
class Ids(Slot):
    """{byte-id, thread-id}: immediates, or registers that hold the same in all lanes."""

    values: tuple[range, range]
    types: tuple[str, ...] = SCALE_ID


@dataclass(frozen=True)
class Memory(Slot):
    """``[address]`` in shared memory."""

    types: tuple[str, ...]


def slots(
    ins: Instruction, target: Target, *, a_in_registers: bool = False, has_stride: bool = False
) -> tuple[Slot, ...]:
    """The operand positions of `ins` in order.

    `a_in_registers` chooses between the two forms of wgmma, `has_stride` between those of wmma.load
    and wmma.store. Raises UnsupportedError for a kind of
    instruction that has no statement here.
    """
    if isinstance(ins, MatrixInstruction):
        chosen = _wgmma(ins, target, a_in_registers) if ins.is_wgmma else _mma(ins, target)
    elif isinstance(ins, Movement):
        chosen = _movement(ins, target)
    elif isinstance(ins, Conversion):
        chosen = _conversion(ins, target)
    elif isinstance(ins, Wmma):
        chosen = _wmma(ins, has_stride)
    else:
        raise UnsupportedError(f"{ins.family} does not run as a statement yet; execute takes it")
    return tuple(chosen)


def _bare(name: str, types: tuple[str, ...], braces: bool = False) -> Registers:
    """A source without braces. ptxas takes a hexadecimal f32 wherever it takes .f32 registers."""
    return Registers(
        name, types, constants="hexadecimal" if "f32" in types else "none", braces=braces
    )


def _mma(ins: MatrixInstruction, target: Target) -> Iterator[Slot]:
    called = is_called(ins, target)
    for name in "dabc":
        constants: Constants = "none" if name == "d" else "words"
        if name == "c" and ins.c_type == "s32":
            constants = "integers"
        yield Registers(
            name, register_types(ins, name, target), ins.fragment(name).registers,
            "written" if name == "d" else "read", constants, each=called and name in "cd",
        )  # fmt: skip
    yield from _sparse(ins, target)
    for x in "ab" if ins.is_block_scaled else "":
        yield _bare(f"scale_{x}", register_types(ins, f"scale_{x}", target), braces=True)
        yield Ids(f"ids_{x}", legal_ids(ins, f"scale_{x}"))


def _sparse(ins: MatrixInstruction, target: Target) -> Iterator[Slot]:
    if ins.is_sparse:
        yield _bare("e", register_types(ins, "e", target))
        yield Immediate("selector", range(ins.fragment("e").groups))


def _wgmma(ins: MatrixInstruction, target: Target, a_in_registers: bool) -> Iterator[Slot]:
    a = ins.fragment("a")
    yield Registers("d", register_types(ins, "d", target), ins.fragment("d").registers, "updated")
    if a_in_registers:
        yield Registers("a", register_types(ins, "a", target), a.registers, constants="words")
    else:
        yield Descriptor("a")
    yield Descriptor("b")
    yield from _sparse(ins, target)
    yield Predicate("scale_d")
    if a.fmt.is_float:
        yield Immediate("imm_scale_a", (1, -1))
        yield Immediate("imm_scale_b", (1, -1))
    if a.fmt.is_float and a.fmt.bits == 16:
        if not a_in_registers:
            yield Immediate("imm_trans_a", (0, 1))
        yield Immediate("imm_trans_b", (0, 1))


def _movement(ins: Movement, target: Target) -> Iterator[Slot]:
    for name in ins.operands:
        types = register_types(ins, name, target)
        use: Literal["read", "written"] = "written" if name == "d" else "read"
        if name == "p":
            yield Memory(name, types)
        elif ins.family == "movmatrix":
            yield Registers(name, types, 0, use) if name == "d" else _bare(name, types)
        else:
            constants: Constants = "none" if name == "d" else "words"
            yield Registers(name, types, ins.fragment(name).registers, use, constants)


def _wmma(ins: Wmma, has_stride: bool) -> Iterator[Slot]:
    for name in ins.operands:
        types = ins.register_types(name)
        if name == "p":
            yield Memory(name, types)
        elif name == "stride":
            if has_stride:
                yield Registers(name, types, constants="words")
        else:
            written = name == "d" or ins.family == "wmma.load"
            constants: Constants = "none" if written or name in "ab" else "words"
            each = "f64" in types and not isinstance(ins, WmmaMultiply)
            yield Registers(
                name, types, ins.fragment(name).registers, "written" if written else "read",
                constants, each=each,
            )  # fmt: skip


def _conversion(ins: Conversion, target: Target) -> Iterator[Slot]:
    types = {name: register_types(ins, name, target) for name in ins.operands}
    yield Registers("d", types["d"], 0, "written")
    sources = [name for name in ins.operands if name not in ("d", "rbits")]
    # ptxas turns a decimal into an f32 for every conversion of f32 but that to tf32.
    decimals = ins.source == "f32" and ins.to != "tf32"
    constants: Constants = "values" if decimals else _bare("a", types["a"]).constants
    if split_type(ins.to)[1] == 4:
        yield Registers("".join(sources), types["a"], len(sources), constants=constants)
    else:
        for name in sources:
            yield Registers(name, types[name], 0, constants=constants)
    if ins.takes_random_bits:
        yield Registers("rbits", types["rbits"])
