"""Reference engine: operands of statements as functions of a thread, what is read, what is written,
and where."""

from __future__ import annotations

from collections.abc import Callable

from emulator.arith.scalar.types import TYPES, ScalarType
from emulator.isa.register_types import REGISTER_BITS
from emulator.machine.reference.thread import Thread
from emulator.machine.shared.special import CLOCKS, Readers, value_of
from emulator.memory.windows import RANK_BITS
from emulator.ptx.program import (
    Address,
    Bound,
    Constant,
    Function,
    Guard,
    Inverted,
    LocalAddress,
    ParameterPlace,
    Register,
    SharedAddress,
    SpecialRegister,
    Vector,
)

#: of 64-bit addresses
_MASK = (1 << 64) - 1

Read = Callable[[Thread], int]
Write = Callable[[Thread, int], None]


# --- reading --------------------------------------------------------------------------------------


def reader(bound: Bound | None, type_: str) -> Read:
    """The word of a source operand that the instruction takes for a type: the low bits of it."""
    kind = TYPES[type_]
    mask = (1 << kind.size) - 1
    if isinstance(bound, Register):
        index = bound.index
        return lambda thread: thread.registers[index] & mask
    if isinstance(bound, Inverted):
        index = bound.index
        return lambda thread: 1 - thread.registers[index]
    if isinstance(bound, Constant):
        word = bound.word & mask
        return lambda thread: word
    if isinstance(bound, SpecialRegister):
        value = special(bound.name)
        return lambda thread: value(thread) & mask
    if isinstance(bound, LocalAddress):
        offset = bound.offset
        return lambda thread: thread.frames[-1].local + offset & mask
    if isinstance(bound, SharedAddress):
        offset = bound.offset
        return lambda thread: shared_rank(thread) + offset & mask
    if isinstance(bound, ParameterPlace):
        index, shift = bound.index, 8 * bound.offset
        return lambda thread: thread.registers[index] >> shift & mask
    if isinstance(bound, Vector):
        size = kind.size // len(bound.items)
        parts = [reader(item, f"b{size}") for item in bound.items]
        return lambda thread: sum(part(thread) << i * size for i, part in enumerate(parts))
    raise AssertionError(f"no operand is read from {bound!r}")


def shared_rank(thread: Thread) -> int:
    """The field of the own block's rank in addresses of shared memory."""
    return thread.block.rank << RANK_BITS


def addresses(bound: Bound) -> Read:
    """The address of a memory operand."""
    assert isinstance(bound, Address), bound
    base, offset = bound.base, bound.offset
    if not isinstance(base, Register):
        return reader(bound.place, "u64")
    index = base.index

    def address(thread: Thread) -> int:
        # Sums wrap around as the register does.
        bits = REGISTER_BITS[thread.frames[-1].function.registers[index].type]
        return thread.registers[index] + offset & (1 << bits) - 1

    return address if offset else lambda thread: thread.registers[index]


def guard_of(guard: Guard | None) -> Read | None:
    """True if a thread executes a statement."""
    if guard is None:
        return None
    index, wanted = guard.index, int(not guard.negated)
    return lambda thread: thread.registers[index] == wanted


# --- special registers (PTX ISA 10) --------------------------------------------------------------


def special(name: str) -> Callable[[Thread], int]:
    """The word of a special register, as a function of the thread.

    Raises UnsupportedError for one that is not modelled.
    """
    if name in CLOCKS:
        bits, low = CLOCKS[name]
        return lambda thread: thread.run.now() >> low & (1 << bits) - 1
    value = value_of(name)
    return lambda thread: int(value(_reader(thread)))


def _reader(thread: Thread) -> Readers:
    run, number = thread.run, thread.block.number
    return Readers(thread.index, number, run.size, run.block, run.cluster, run.launch)


# --- writing --------------------------------------------------------------------------------------


def writer(bound: Bound | None, type_: str, function: Function) -> Write:
    """Puts a word of a type into a register: into a wider one with its sign, or with zeros."""
    kind = TYPES[type_]
    if bound is None:
        return lambda thread, word: None
    if isinstance(bound, ParameterPlace):
        return _parameter_writer(bound, kind)
    if isinstance(bound, Vector):
        return _parts_writer(bound, kind, function)
    assert isinstance(bound, Register), bound
    index = bound.index
    bits = REGISTER_BITS[function.registers[index].type]
    if kind.signed and kind.size < bits:
        mask = (1 << bits) - 1

        def extend(thread: Thread, word: int) -> None:
            thread.registers[index] = kind.number(word) & mask

        return extend

    def write(thread: Thread, word: int) -> None:
        thread.registers[index] = word

    return write


def _parts_writer(bound: Vector, kind: ScalarType, function: Function) -> Write:
    """Takes a word apart into registers, the lowest bits into the first."""
    bits = kind.size // len(bound.items)
    mask = (1 << bits) - 1
    writes = [writer(item, f"b{bits}", function) for item in bound.items]

    def write(thread: Thread, word: int) -> None:
        for i, part in enumerate(writes):
            part(thread, word >> i * bits & mask)

    return write


def _parameter_writer(bound: ParameterPlace, kind: ScalarType) -> Write:
    index, shift = bound.index, 8 * bound.offset
    others = ~((1 << kind.size) - 1 << shift)

    def write(thread: Thread, word: int) -> None:
        thread.registers[index] = thread.registers[index] & others | word << shift

    return write
