"""What one kind of instruction can tell and `Instruction` cannot: one function per question.

Each has an answer for every instruction, made of its fragments, and better ones for the kinds that
register here.
"""

from __future__ import annotations

from functools import singledispatch
from typing import NamedTuple

from emulator.isa.conversion import Conversion, split_type
from emulator.isa.instruction import Instruction
from emulator.isa.matrix import MatrixInstruction
from emulator.isa.movement import Movement
from emulator.layout.fragment import Fragment
from emulator.warp.sparse import legal_nibbles

#: legal numbers or words, by what they choose
Choices = dict[str, list[int] | list[str]]


class Operand(NamedTuple):
    """One operand; the field names are the keys of the JSON. None: there is no such thing."""

    operand: str
    #: of its elements, "" for an address
    type: str
    #: (rows, cols), and how many matrices of it the lanes hold
    matrix: tuple[int, int] | None = None
    matrices: int | None = None
    elements: int | None = None
    registers: int | None = 1
    #: types that PTX lets the registers be declared with; empty where no table says it
    register_types: tuple[str, ...] = ()
    note: str = ""


def sizes(ins: Instruction) -> dict[str, int]:
    """m, n and k of an instruction that multiplies, nothing of any other."""
    return {letter: getattr(ins, letter) for letter in "mnk" if hasattr(ins, letter)}


# --- element types --------------------------------------------------------------------------------


@singledispatch
def element_types(ins: Instruction) -> dict[str, str]:
    """Element types by operand."""
    return {name: fragment.fmt.name for name, fragment in ins.fragments.items()}


@element_types.register
def _(ins: MatrixInstruction) -> dict[str, str]:
    types = {"d": ins.d_type, "a": ins.a_type, "b": ins.b_type, "c": ins.c_type}
    return types | ({"scale": ins.scale_type} if ins.scale_type else {})


@element_types.register
def _(ins: Movement) -> dict[str, str]:
    types = {name: fragment.fmt.name for name, fragment in ins.fragments.items()}
    return types | ({"memory": ins.source} if ins.source else {})


@element_types.register
def _(ins: Conversion) -> dict[str, str]:
    return {x.operand: x.type for x in operands(ins) if x.operand != "rbits"}


# --- one line -------------------------------------------------------------------------------------


@singledispatch
def summary(ins: Instruction) -> str:
    """What it is, and how many lanes do it together."""
    group = "warpgroup" if ins.lanes == 128 else "warp"
    given = [f"{letter} = {size}" for letter, size in sizes(ins).items()]
    return ", ".join([ins.family, *given, f"{group} of {ins.lanes} lanes"])


@summary.register
def _(ins: Movement) -> str:
    rows, cols = next(iter(ins.fragments.values())).shape
    tiles = "1 tile" if ins.count == 1 else f"{ins.count} tiles"
    where = " in memory" if "p" in ins.operands else ""
    return f"{ins.family}, {tiles} of {rows}x{cols}{where}, warp of {ins.lanes} lanes"


@summary.register
def _(ins: Conversion) -> str:
    return f"{ins.family}, {ins.source} to {ins.to}, every lane by itself"


# --- operands -------------------------------------------------------------------------------------


@singledispatch
def operands(ins: Instruction) -> list[Operand]:
    """The operands in PTX order; of those without a fragment no more is known than the name."""
    return _by_fragment(ins)


def _by_fragment(ins: Instruction) -> list[Operand]:
    found = ins.fragments
    return [_held(x, found[x]) if x in found else Operand(x, "") for x in ins.operands]


def _held(name: str, fragment: Fragment, types: tuple[str, ...] = ()) -> Operand:
    return Operand(
        name, fragment.fmt.name, fragment.shape, fragment.groups, fragment.elements,
        fragment.registers, types,
    )  # fmt: skip


@operands.register
def _(ins: MatrixInstruction) -> list[Operand]:
    out = []
    for operand in ins.signatures()[-1].operands:
        name, types = operand.name, operand.types
        if operand.kind == "descriptor":
            note, shape = "descriptor of shared memory", (ins.k, ins.n)
            out.append(Operand(name, ins.b_type, shape, 1, None, 1, types, note))
        elif name in ins.fragments:
            out.append(_held(name, ins.fragment(name), types))
            if name == "a" and len(ins.signatures()) > 1:
                out[-1] = out[-1]._replace(note="or a descriptor, as b")
    return out


@operands.register
def _(ins: Movement) -> list[Operand]:
    note = "address of a row in shared memory"
    return [x._replace(note=note) if x.operand == "p" else x for x in _by_fragment(ins)]


@operands.register
def _(ins: Conversion) -> list[Operand]:
    out = []
    for name in ins.operands:
        if name == "rbits":
            out.append(Operand(name, "b32", elements=1, note="random bits"))
            continue
        packed = ins.to if name == "d" else ins.source
        fmt, count = split_type(packed)
        note = f"packed as .{packed}" if count > 1 else ""
        out.append(Operand(name, fmt, elements=count, note=note))
    return out


# --- choices --------------------------------------------------------------------------------------


@singledispatch
def choices(ins: Instruction) -> Choices:
    """Legal values of immediates, and which lanes address what."""
    return {}


@choices.register
def _(ins: MatrixInstruction) -> Choices:
    out: Choices = {}
    if ins.is_sparse:
        out["selector"] = list(range(ins.fragment("e").groups))
        out["metadata_nibble"] = [f"0b{nibble:04b}" for nibble in sorted(legal_nibbles(ins))]
    if ins.is_block_scaled:
        for x in "ab":
            bytes_, threads = ins.legal_ids(f"scale_{x}")
            out |= {f"byte_id_{x}": list(bytes_), f"thread_id_{x}": list(threads)}
    return out


@choices.register
def _(ins: Movement) -> Choices:
    return {"address_lanes": list(range(ins.rows))} if "p" in ins.operands else {}
