"""Facts that depend on the kind of an instruction: one function per question.

Each answers for every instruction, from its fragments, and says more of the kinds that it knows.
"""

from __future__ import annotations

from typing import NamedTuple

from emulator.isa import signature
from emulator.isa.conversion import Conversion, split_type
from emulator.isa.instruction import Instruction
from emulator.isa.matrix import MatrixInstruction
from emulator.isa.movement import Movement
from emulator.isa.ordinary.instruction import OrdinaryInstruction
from emulator.layout.fragment import Fragment
from emulator.warp.sparse import legal_nibbles

#: legal numbers or words, by what they choose
Choices = dict[str, list[int] | list[str]]


class OperandFacts(NamedTuple):
    """One operand; the field names are the keys of the JSON. None: there is no such thing."""

    operand: str
    #: element type; "" for an address
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


def element_types(ins: Instruction) -> dict[str, str]:
    if isinstance(ins, MatrixInstruction):
        types = {"d": ins.d_type, "a": ins.a_type, "b": ins.b_type, "c": ins.c_type}
        return types | ({"scale": ins.scale_type} if ins.scale_type else {})
    if isinstance(ins, Conversion):
        return {x.operand: x.type for x in operands(ins) if x.operand != "rbits"}
    types = {name: fragment.fmt.name for name, fragment in ins.fragments.items()}
    return types | ({"memory": ins.source} if isinstance(ins, Movement) and ins.source else {})


def summary(ins: Instruction) -> str:
    """One sentence: kind of the instruction, and the lanes that execute it together."""
    if isinstance(ins, Conversion):
        return f"{ins.family}, {ins.source} to {ins.to}, every lane by itself"
    if ins.lanes == 1:
        return f"{ins.family}, every thread by itself"
    group = f"{'warpgroup' if ins.lanes == 128 else 'warp'} of {ins.lanes} lanes"
    if isinstance(ins, Movement):
        rows, cols = next(iter(ins.fragments.values())).shape
        tiles = "1 tile" if ins.count == 1 else f"{ins.count} tiles"
        where = " in memory" if "p" in ins.operands else ""
        return f"{ins.family}, {tiles} of {rows}x{cols}{where}, {group}"
    given = [f"{letter} = {size}" for letter, size in sizes(ins).items()]
    return ", ".join([ins.family, *given, group])


def operands(ins: Instruction) -> list[OperandFacts]:
    """The operands in PTX order; one without a fragment has only a name."""
    if isinstance(ins, Conversion):
        return [_converted(ins, name) for name in ins.operands]
    if isinstance(ins, MatrixInstruction):
        return _of_matrices(ins)
    if isinstance(ins, OrdinaryInstruction):
        return [_ordinary(x) for x in ins.signatures()[0].operands]
    note = "address of a row in shared memory" if isinstance(ins, Movement) else ""
    held = ins.fragments
    return [
        _held(name, held[name]) if name in held else OperandFacts(name, "", note=note)
        for name in ins.operands
    ]


def _ordinary(x: signature.Operand) -> OperandFacts:
    """An operand of the table; the registers of an address are those that hold it."""
    what = {"address": "address", "immediate": "immediate"}.get(x.kind, "")
    if x.kind == "address" and x.space:
        what += f" in {x.space} memory"
    note = ", ".join(filter(None, (what, "may be left out" if x.optional else "")))
    count = None if x.kind == "immediate" else x.count
    return OperandFacts(x.name, "", registers=count, register_types=x.types, note=note)


def _of_matrices(ins: MatrixInstruction) -> list[OperandFacts]:
    """Matrices, not immediates: `choices` has those."""
    out = []
    for operand in ins.signatures()[-1].operands:
        name, types = operand.name, operand.types
        if operand.kind == "descriptor":
            note, shape = "descriptor of shared memory", (ins.k, ins.n)
            out.append(OperandFacts(name, ins.b_type, shape, 1, None, 1, types, note))
        elif name in ins.fragments:
            note = "or a descriptor, as b" if name == "a" and len(ins.signatures()) > 1 else ""
            out.append(_held(name, ins.fragment(name), types)._replace(note=note))
    return out


def _held(name: str, x: Fragment, types: tuple[str, ...] = ()) -> OperandFacts:
    return OperandFacts(name, x.fmt.name, x.shape, x.groups, x.elements, x.registers, types)


def _converted(ins: Conversion, name: str) -> OperandFacts:
    if name == "rbits":
        return OperandFacts(name, "b32", elements=1, note="random bits")
    if name == "scale":
        count = int(ins.scaled.split("::")[1][1:])
        return OperandFacts(name, "ue8m0", elements=count, note="block scale")
    packed = ins.to if name == "d" else ins.source
    fmt, count = split_type(packed)
    return OperandFacts(name, fmt, elements=count, note=f"packed as .{packed}" if count > 1 else "")


def choices(ins: Instruction) -> Choices:
    """Legal values of immediates, and which lanes address what."""
    if isinstance(ins, Movement):
        return {"address_lanes": list(range(ins.rows))} if "p" in ins.operands else {}
    out: Choices = {}
    if isinstance(ins, MatrixInstruction) and ins.is_sparse:
        out["selector"] = list(range(ins.fragment("e").groups))
        out["metadata_nibble"] = [f"0b{nibble:04b}" for nibble in sorted(legal_nibbles(ins))]
    if isinstance(ins, MatrixInstruction) and ins.is_block_scaled:
        for x in "ab":
            bytes_, threads = ins.legal_ids(f"scale_{x}")
            out |= {f"byte_id_{x}": list(bytes_), f"thread_id_{x}": list(threads)}
    return out
