"""``suld``, ``sust``, ``sured`` and ``suq``, one thread after the other (PTX ISA 9.7.11)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from emulator.arith.scalar.rule import bind_reference
from emulator.arith.scalar.types import TYPES
from emulator.machine.reference import memory
from emulator.machine.reference.compute import Run, guarded
from emulator.machine.reference.operands import addresses, reader, writer
from emulator.machine.reference.thread import Thread
from emulator.machine.shared.handles import named
from emulator.machine.shared.operands import ordinary
from emulator.machine.shared.served import within_group
from emulator.machine.shared.surfaces import (
    Part,
    check_aligned,
    coordinates_of,
    parts_of,
    query_of,
    raw_of,
    size_in,
    update_of,
)
from emulator.ptx.program import Function, Statement, items_of


def _part_of(statement: Statement) -> Callable[[Thread], Part]:
    """The access of a thread."""
    handle, find = addresses(statement.operands["s"]), parts_of(statement)
    reads = [reader(item, "b32") for item in coordinates_of(statement)]

    def part(thread: Thread) -> Part:
        words = [np.array([read(thread)], np.uint32) for read in reads]
        handles = np.array([handle(thread)], np.uint64)
        return next(find(thread.run.arena.surfaces, handles, words))

    return part


def _pieces(part: Part) -> Iterator[tuple[slice, int]]:
    """The pieces of an access in range, each with its address."""
    return ((piece, int(at[0])) for piece, at in part.pieces() if len(at))


def load(statement: Statement, function: Function) -> Run:
    """Reads elements of a surface, zeros where it has none."""
    type_, part_of = ordinary(statement).types[-1], _part_of(statement)
    writes = [writer(x, type_, function) for x in items_of(statement.operands.get("d"))]
    size = TYPES[type_].size

    def run(thread: Thread) -> None:
        part, word = part_of(thread), 0
        for piece, at in _pieces(part):
            word |= memory.load(thread, "global", at, part.piece) << 8 * piece.start
        for i, write in enumerate(writes):
            write(thread, word >> i * size & (1 << size) - 1)

    return guarded(statement, run)


def store(statement: Statement, function: Function) -> Run:
    """Writes elements of a surface, or a texel in its format."""
    type_, part_of, raw = ordinary(statement).types[-1], _part_of(statement), raw_of(statement)
    reads = [reader(x, type_) for x in items_of(statement.operands["b"])]

    def run(thread: Thread) -> None:
        part = part_of(thread)
        words = [np.array([read(thread)], TYPES[type_].dtype) for read in reads]
        data = raw(part.texels, words)[0].tobytes()
        for piece, at in _pieces(part):
            memory.store(thread, "global", at, part.piece, int.from_bytes(data[piece], "little"))

    return guarded(statement, run)


def storing_order(statement: Statement) -> Callable[[Thread], int]:
    """The key by which threads that execute a store are sorted, as those of ``st``."""
    handle, size_of = addresses(statement.operands["s"]), size_in(statement)

    def key(thread: Thread) -> int:
        texels = thread.run.arena.surfaces.get(handle(thread))
        return thread.lane ^ (within_group(size_of(texels)) if texels else 0)

    return key


def reduce(statement: Statement, function: Function) -> Run:
    """Combines an element of a surface with an operand."""
    part_of = _part_of(statement)
    read = reader(statement.operands["b"], ordinary(statement).types[-1])

    def run(thread: Thread) -> None:
        part = part_of(thread)
        check_aligned(part)
        rule = bind_reference(update_of(statement, part.texels), space="global")
        for _, at in _pieces(part):
            memory.update(thread, "global", at, part.size, partial(_swapped, rule, read(thread)))

    return guarded(statement, run)


def _swapped(rule: Callable[..., int], word: int, old: int) -> int:
    return rule(old, word)


def query(statement: Statement, function: Function) -> Run:
    """The size of a surface along an axis."""
    handle, ask = addresses(statement.operands["s"]), query_of(statement)
    write = writer(statement.operands["d"], "b32", function)

    def run(thread: Thread) -> None:
        write(thread, ask(named(thread.run.arena.surfaces, "surface", handle(thread), 0)))

    return guarded(statement, run)


EACH = {"suld": load, "sust": store, "sured": reduce, "suq": query}
