"""Every statement as a step: which function executes which instruction."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dtypes import Array
from emulator.arith.scalar.types import TYPES, cut, extend
from emulator.errors import UnsupportedError
from emulator.isa.ordinary.instruction import OrdinaryInstruction
from emulator.machine.vector import compute, lanes, matrix, memory
from emulator.machine.vector.compute import Step, guarded
from emulator.machine.vector.operands import addresses, reader, selected, writer
from emulator.machine.vector.strand import Strand
from emulator.machine.vector.wave import Parked
from emulator.ptx.program import Address, Constant, Function, Register, Statement, Vector

#: opcodes that look at memory which others may change: a loop around them may be a wait
POLLING = ("atom", "nanosleep", "mbarrier", "ld")


def step_of(statement: Statement, function: Function) -> Step:
    """The function that executes a statement."""
    ins = statement.instruction
    make = _STEPS.get(statement.name)
    if make is None:
        if type(ins) in matrix.STEPS:
            return _split_by_guard(statement, matrix.STEPS[type(ins)](statement, function))
        if getattr(ins, "rule", "") and ins.scope == "thread":
            return compute.step(statement, function)
        if getattr(ins, "rule", ""):
            return _split_by_guard(statement, lanes.step(statement, function))
        raise UnsupportedError(f"{ins} is legal PTX, not modelled here")
    return make(statement, function)


def _split_by_guard(statement: Statement, run: Step) -> Step:
    """`run` for whole strands: where the guard divides one, both parts go on by themselves."""

    def under(s: Strand, mask: Array | None) -> None:
        if mask is None:
            run(s)
            return
        s.wave.split(s, mask, statement.pc, statement.pc + 1)
        raise Parked

    return guarded(statement, under)


# --- loads and stores -----------------------------------------------------------------------------


def _space(statement: Statement, bound: object) -> str:
    ins = statement.instruction
    assert isinstance(ins, OrdinaryInstruction)
    named = ins.modifiers.get("space", "").partition("::")[0]
    return named or (bound.space if isinstance(bound, Address) else "")


def _load(statement: Statement, function: Function) -> Step:
    bound, place = statement.operands.get("d"), statement.operands["a"]
    ins = statement.instruction
    assert isinstance(ins, OrdinaryInstruction)
    type_ = ins.types[-1]
    items = bound.items if isinstance(bound, Vector) else (bound,)
    writes = [writer(item, type_, function) for item in items]
    if not isinstance(place, Address):
        return _load_parameter(statement, function, type_, writes)
    size = TYPES[type_].size // 8 * len(items)
    space, find = _space(statement, place), addresses(place, function)
    if TYPES[type_].size == 128:
        return guarded(statement, lambda s, mask: None)

    def load(s: Strand, mask: Array | None) -> None:
        positions = memory.positions_of(mask)
        words = memory.load(s, space, selected(find(s), mask), size, positions)
        if len(items) > 1 or size > 8:
            words = np.ascontiguousarray(words).reshape(len(words), -1).view(TYPES[type_].dtype)
        else:
            words = words[:, None]
        for i, write in enumerate(writes):
            part = np.ascontiguousarray(words[:, i])
            write(s, part if mask is None else _spread(s, part, mask), mask)

    return guarded(statement, load)


def _spread(s: Strand, words: Array, mask: Array) -> Array:
    """Words of the lanes of a mask at their places among all lanes."""
    out = np.zeros((len(s), *words.shape[1:]), words.dtype)
    out[mask] = words
    return out


def _load_parameter(
    statement: Statement, function: Function, type_: str, writes: list[compute.Write]
) -> Step:
    place = statement.operands["a"]
    size = TYPES[type_].size // 8
    reads = [
        reader(place._replace(offset=place.offset + i * size), type_, function)
        for i in range(len(writes))
    ]

    def load(s: Strand, mask: Array | None) -> None:
        for read, write in zip(reads, writes, strict=True):
            write(s, read(s), mask)

    return guarded(statement, load)


def _store(statement: Statement, function: Function) -> Step:
    ins = statement.instruction
    assert isinstance(ins, OrdinaryInstruction)
    type_ = ins.types[-1]
    bound, place = statement.operands["b"], statement.operands["a"]
    items = bound.items if isinstance(bound, Vector) else (bound,)
    reads = [reader(item, type_, function) for item in items]
    if not isinstance(place, Address):
        return _store_parameter(statement, function, type_, reads)
    space, find = _space(statement, place), addresses(place, function)

    def store(s: Strand, mask: Array | None) -> None:
        words = _vector([read(s) for read in reads])
        positions = memory.positions_of(mask)
        memory.store(s, space, selected(find(s), mask), selected(words, mask), positions)

    return guarded(statement, store)


def _vector(words: list[Array]) -> Array:
    """Neighbouring words as one access: ``(lanes,)``, or ``(lanes, words of 8 bytes)``."""
    if len(words) == 1:
        return words[0]
    held = np.ascontiguousarray(np.stack(np.broadcast_arrays(*words), axis=-1))
    size = held.itemsize * held.shape[1]
    return held.view(f"u{size}")[:, 0] if size <= 8 else held.view(np.uint64)


def _store_parameter(
    statement: Statement, function: Function, type_: str, reads: list[compute.Read]
) -> Step:
    place = statement.operands["a"]
    size = TYPES[type_].size // 8
    writes = [
        writer(place._replace(offset=place.offset + i * size), type_, function)
        for i in range(len(reads))
    ]

    def store(s: Strand, mask: Array | None) -> None:
        for read, write in zip(reads, writes, strict=True):
            write(s, read(s), mask)

    return guarded(statement, store)


def _barrier(statement: Statement, function: Function) -> Step:
    number = reader(statement.operands["a"], "u32", function)
    threads = (
        reader(statement.operands["b"], "u32", function) if "b" in statement.operands else None
    )

    def arrive(s: Strand) -> None:
        count = int(threads(s)[0]) if threads else 0
        s.wave.grid.barriers_of(s.wave).arrive(s, int(number(s)[0]), count, statement.pc + 1)

    return _split_by_guard(statement, arrive)


_STEPS: dict[str, Callable[[Statement, Function], Step]] = {
    "ld": _load,
    "st": _store,
    "bar": _barrier,
    "barrier": _barrier,
}

__all__ = ["POLLING", "Constant", "Register", "cut", "extend", "step_of"]
