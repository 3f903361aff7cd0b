"""All engines: operands of statements, their state spaces, types and constants."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from dtypes import Array
from emulator.isa.ordinary.instruction import OrdinaryInstruction
from emulator.isa.register_types import REGISTER_BITS
from emulator.isa.signature import Operand
from emulator.memory.arena import AccessError
from emulator.memory.windows import SHARED, WINDOW_BITS
from emulator.ptx.program import Address, Bound, Constant, Register, Statement, items_of

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


def word_of(bound: Bound | None) -> int:
    """The word of an immediate operand."""
    assert isinstance(bound, Constant)
    return bound.word


def constant(statement: Statement, name: str) -> int:
    """The word of an immediate operand of a statement."""
    return word_of(statement.operands[name])


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


#: an engine's reader and writer of one operand
R = TypeVar("R")
W = TypeVar("W")


def bound_to(
    statement: Statement,
    carry: int | None,
    reader: Callable[[Bound | None, str], R],
    writer: Callable[[Bound | None, str], W],
    number: Callable[[int], R],
) -> tuple[list[R], list[W]]:
    """The `sources` and `destinations` of a statement as an engine reads and writes them, and the
    function's carry behind them; `number` makes the reader of an immediate operand."""
    reads = [
        reader(bound, type_) if type_ else number(word_of(bound))
        for bound, type_ in sources(statement)
    ]
    writes = [writer(bound, type_) for bound, type_ in destinations(statement)]
    if carry is not None and getattr(statement.instruction, "reads_carry", False):
        reads.append(reader(Register(carry), "pred"))
    if carry is not None and getattr(statement.instruction, "writes_carry", False):
        writes.append(writer(Register(carry), "pred"))
    return reads, writes


def _items(operand: Operand, bound: Bound | None) -> tuple[Bound | None, ...]:
    """The registers of a vector; others in braces share the bits of one word."""
    return items_of(bound) if operand.kind == "vector" else (bound,)


def signed(bound: Bound) -> int:
    """The number of an immediate operand, which is a word of 64 bits."""
    word = word_of(bound)
    return word - (1 << 64) if word >> 63 else word


def word_type(operand: Operand) -> str:
    """The type of an operand's words: what the instruction takes it for, or its register's."""
    if operand.type or not operand.types:
        return operand.type or "b32"
    first = operand.types[0]
    return first if first == "pred" else f"b{REGISTER_BITS[first]}"


def to_shared(address: int) -> int:
    """The address in shared memory of a generic address, which must lead there."""
    if address >> WINDOW_BITS != SHARED >> WINDOW_BITS:
        raise AccessError.not_shared(0, address)
    return address & (1 << WINDOW_BITS) - 1
