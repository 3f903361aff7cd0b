"""All engines: operands of statements, their state spaces, types and constants."""

from __future__ import annotations

from collections.abc import Iterator

from dtypes import Array
from emulator.isa.ordinary.instruction import OrdinaryInstruction
from emulator.isa.register_types import REGISTER_BITS
from emulator.isa.signature import Operand
from emulator.memory.arena import AccessError, Fault
from emulator.memory.windows import SHARED, WINDOW_BITS
from emulator.ptx.program import Address, Bound, Constant, Statement, items_of

#: words of the threads that execute a statement: the integer of one thread, or an array with an
#: entry for each lane or one for all
Words = int | Array


def ordinary(statement: Statement) -> OrdinaryInstruction:
    """The instruction of a statement that is a row of the tables of ordinary instructions."""
    ins = statement.instruction
    assert isinstance(ins, OrdinaryInstruction)
    return ins


def space_of(statement: Statement, bound: Bound) -> str:
    """The state space that a statement names, or its variable lies in; "" for a generic address."""
    own = bound.space if isinstance(bound, Address) else ""
    named = ordinary(statement).modifiers.get("space", "") or own
    return "cluster" if named == "shared::cluster" else named.partition("::")[0]


def constant(statement: Statement, name: str) -> int:
    """The word of an immediate operand."""
    bound = statement.operands[name]
    assert isinstance(bound, Constant)
    return bound.word


def sources(statement: Statement) -> Iterator[tuple[Bound | None, str]]:
    """The operands that are read, in order, with the types of their words; each item of a vector on
    its own. The type of an immediate operand, a Constant, is ""."""
    for operand in statement.signature.operands:
        bound = statement.operands.get(operand.name)
        if operand.use == "written" or bound is None:
            continue
        type_ = "" if operand.kind == "immediate" else word_type(operand)
        for item in _items(operand, bound):
            yield item, type_


def destinations(statement: Statement) -> Iterator[tuple[Bound | None, str]]:
    """The operands that are written, as `sources`; None for the sink ``_``."""
    for operand in statement.signature.operands:
        bound = statement.operands.get(operand.name)
        if operand.use == "read" or (bound is None and operand.paired):
            continue
        for item in _items(operand, bound):
            yield item, word_type(operand)


def _items(operand: Operand, bound: Bound | None) -> tuple[Bound | None, ...]:
    """The registers of a vector; others in braces share the bits of one word."""
    return items_of(bound) if operand.kind == "vector" else (bound,)


def signed(bound: Bound) -> int:
    """The number of an immediate operand, which is a word of 64 bits."""
    assert isinstance(bound, Constant)
    return bound.word - (1 << 64) if bound.word >> 63 else bound.word


def word_type(operand: Operand) -> str:
    """The type of an operand's words: what the instruction takes it for, or its register's."""
    if operand.type or not operand.types:
        return operand.type or "b32"
    first = operand.types[0]
    return first if first == "pred" else f"b{REGISTER_BITS[first]}"


def to_shared(address: int) -> int:
    """The address in shared memory of a generic address, which must lead there."""
    if address >> WINDOW_BITS != SHARED >> WINDOW_BITS:
        reason = f"the generic address {address:#x} does not lead into shared memory"
        raise AccessError(Fault(0, address, "address space", reason))
    return address & (1 << WINDOW_BITS) - 1
