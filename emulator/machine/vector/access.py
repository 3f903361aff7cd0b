"""Vector engine: statements that load, store and update memory atomically, all lanes of a strand at
once (PTX ISA 9.7.9)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import numpy as np

from dtypes import Array
from emulator.arith.scalar.atomic_series import Series
from emulator.arith.scalar.rule import bind_arrays
from emulator.arith.scalar.types import TYPES
from emulator.machine.shared.operands import ordinary, space_of
from emulator.machine.vector import bases, memory
from emulator.machine.vector.atomics import Update, update
from emulator.machine.vector.compute import Step, guarded
from emulator.machine.vector.operands import Read, Write, addresses, reader, selected, writer
from emulator.machine.vector.strand import Strand
from emulator.ptx.program import Function, ParameterPlace, Statement, Vector, items_of, registers_of

W = TypeVar("W", Read, Write)

# --- ld, ldu, st ----------------------------------------------------------------------------------


def load(statement: Statement, function: Function) -> Step:
    ins = ordinary(statement)
    bound, place, type_ = statement.operands.get("d"), statement.operands["a"], ins.types[-1]
    items = bound.items if isinstance(bound, Vector) else (bound,)
    writes = [writer(item, type_, function) for item in items]
    if isinstance(place, ParameterPlace):
        return _move(statement, _parts(place, type_, len(items), reader, function), writes)
    kind = TYPES[type_]
    size = kind.size // 8 * len(items)
    space, find = space_of(statement, place), addresses(place, function)
    access = bases.access_of(place, space, kind.size // 8, len(items))

    def run(s: Strand, mask: Array | None) -> None:
        if access and mask is None and (parts := bases.load(s, access)) is not None:
            for write, part in zip(writes, parts, strict=True):
                write(s, part, None)
            return
        positions = memory.positions_of(mask)
        words = memory.load(s, space, selected(find(s), mask), size, positions)
        for write, part in zip(writes, taken_apart(words, type_, len(items)), strict=True):
            write(s, part if mask is None else among_all(s, part, mask), mask)

    return guarded(statement, run)


def taken_apart(words: Array, type_: str, count: int) -> list[Array]:
    """The elements of accesses, each of all lanes."""
    kind = TYPES[type_]
    if count == 1:
        return [words]
    if kind.size == 128:
        return [words]
    held = np.ascontiguousarray(words).reshape(len(words), -1).view(kind.dtype)
    return list(np.ascontiguousarray(held.T))


def among_all(s: Strand, words: Array, mask: Array) -> Array:
    """Words of the lanes of a mask at their places among all lanes."""
    out = np.zeros((len(s), *words.shape[1:]), words.dtype)
    out[mask] = words
    return out


def store(statement: Statement, function: Function) -> Step:
    ins = ordinary(statement)
    bound, place, type_ = statement.operands["b"], statement.operands["a"], ins.types[-1]
    items = bound.items if isinstance(bound, Vector) else (bound,)
    reads = [reader(item, type_, function) for item in items]
    if isinstance(place, ParameterPlace):
        return _move(statement, reads, _parts(place, type_, len(items), writer, function))
    space, find = space_of(statement, place), addresses(place, function)
    access = bases.access_of(place, space, TYPES[type_].size // 8, len(items))

    def run(s: Strand, mask: Array | None) -> None:
        parts = [read(s) for read in reads]
        if access and mask is None and bases.store(s, access, parts):
            return
        words = together(parts)
        positions = memory.positions_of(mask)
        memory.store(s, space, selected(find(s), mask), selected(words, mask), positions)

    return guarded(statement, run)


def together(words: list[Array]) -> Array:
    """Neighbouring words as one access: ``(lanes,)``, or ``(lanes, words of 8 bytes)``."""
    if len(words) == 1:
        return words[0]
    held = np.stack(np.broadcast_arrays(*words), axis=-1)
    size = held.itemsize * held.shape[1]
    return held.view(f"u{size}")[:, 0] if size <= 8 else held.view(np.uint64)


def _parts(
    place: ParameterPlace, type_: str, count: int, make: Callable[..., W], function: Function
) -> list[W]:
    """Readers or writers of neighbouring elements of a parameter of a call."""
    size = TYPES[type_].size // 8
    return [
        make(replace(place, offset=place.offset + i * size), type_, function) for i in range(count)
    ]


def _move(statement: Statement, reads: list[Read], writes: list[Write]) -> Step:
    def run(s: Strand, mask: Array | None) -> None:
        for read, write in zip(reads, writes, strict=True):
            write(s, read(s), mask)

    return guarded(statement, run)


# --- atom, red ------------------------------------------------------------------------------------


def atomic(statement: Statement, function: Function) -> Step:
    ins = ordinary(statement)
    place, type_ = statement.operands["a"], ins.types[-1]
    space, find = space_of(statement, place), addresses(place, function)
    bound = statement.operands.get("d")
    count = len(items_of(statement.operands["b"]))
    sources = [items_of(statement.operands[x]) for x in "bc" if x in statement.operands]
    reads = [[reader(item, type_, function) for item in items] for items in sources]
    writes = [writer(item, type_, function) for item in items_of(bound)] if bound else []
    series = Series(TYPES[type_], ins.modifiers["operation"])
    operations = {
        where: Update(bind_arrays(ins, space=where), series, count, True)
        for where in ("global", "shared")
    }

    results = sum(1 << register for register in set(registers_of(bound)))

    def run(s: Strand, mask: Array | None) -> None:
        positions = memory.positions_of(mask)
        where = find(s)
        words = tuple(together([read(s) for read in items]) for items in reads)
        is_read = _is_read(s, statement, results)
        operation = operations[memory.space_at(space, where)]._replace(wanted=is_read)
        old = update(
            s,
            space,
            selected(where, mask),
            tuple(selected(x, mask) for x in words),
            operation,
            positions,
        )
        if not is_read:
            return
        for write, part in zip(writes, taken_apart(old, type_, count), strict=False):
            write(s, part if mask is None else among_all(s, part, mask), mask)

    return guarded(statement, run)


def _is_read(s: Strand, statement: Statement, results: int) -> bool:
    """True if anybody may look at the results of a statement, registers as a set of bits: compilers
    write atom, and ptxas makes red of it, where nobody does."""
    grid = s.wave.grid
    if not grid.sends or grid.program.statements[statement.pc] is not statement:
        return results != 0
    return grid.program.liveness.at(statement.pc + 1) & results != 0
