"""Reference engine: statements that load, store and update memory atomically, one thread at a time
(PTX ISA 9.7.9)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from emulator.arith.scalar.rule import bind_reference
from emulator.arith.scalar.types import TYPES
from emulator.machine.reference import memory
from emulator.machine.reference.compute import ThreadStep, guarded
from emulator.machine.reference.operands import addresses, reader, writer
from emulator.machine.reference.thread import Thread
from emulator.machine.shared.operands import ordinary, space_of
from emulator.machine.shared.served import within_group
from emulator.machine.shared.surfaces import size_in
from emulator.ptx.program import Function, ParameterPlace, Statement, items_of

# --- ld, ldu, st ----------------------------------------------------------------------------------


def load(statement: Statement, function: Function) -> ThreadStep:
    type_, place = ordinary(statement).types[-1], statement.operands["a"]
    items = items_of(statement.operands.get("d"))
    writes = [writer(item, type_, function) for item in items]
    size = TYPES[type_].size // 8
    if isinstance(place, ParameterPlace):
        parts = [_part(place, i * size) for i in range(len(items))]
        reads = [reader(part, type_) for part in parts]

        def move(thread: Thread) -> None:
            for read, write in zip(reads, writes, strict=True):
                write(thread, read(thread))

        return guarded(statement, move)
    space, address = space_of(statement, place), addresses(place)
    total, mask = size * len(items), (1 << 8 * size) - 1

    def run(thread: Thread) -> None:
        word = memory.load(thread, space, address(thread), total)
        for i, write in enumerate(writes):
            write(thread, word >> 8 * size * i & mask)

    return guarded(statement, run)


def store(statement: Statement, function: Function) -> ThreadStep:
    type_, place = ordinary(statement).types[-1], statement.operands["a"]
    reads = [reader(item, type_) for item in items_of(statement.operands["b"])]
    size = TYPES[type_].size // 8
    if isinstance(place, ParameterPlace):
        parts = [_part(place, i * size) for i in range(len(reads))]
        writes = [writer(part, type_, function) for part in parts]

        def move(thread: Thread) -> None:
            for read, write in zip(reads, writes, strict=True):
                write(thread, read(thread))

        return guarded(statement, move)
    space, address = space_of(statement, place), addresses(place)

    def run(thread: Thread) -> None:
        word = sum(read(thread) << 8 * size * i for i, read in enumerate(reads))
        memory.store(thread, space, address(thread), size * len(reads), word)

    return guarded(statement, run)


def storing_order(statement: Statement) -> Callable[[Thread], int]:
    """The key by which threads that execute a store are sorted."""
    size = TYPES[ordinary(statement).types[-1]].size // 8
    bits = within_group(size * len(items_of(statement.operands["b"])))
    return lambda thread: thread.lane ^ bits


def storing_order_on_surface(statement: Statement) -> Callable[[Thread], int]:
    """The same of ``sust``."""
    handle, size_of = addresses(statement.operands["s"]), size_in(statement)

    def key(thread: Thread) -> int:
        texels = thread.run.arena.surfaces.get(handle(thread))
        return thread.lane ^ (within_group(size_of(texels)) if texels else 0)

    return key


def _part(place: ParameterPlace, offset: int) -> ParameterPlace:
    """The place so many bytes further in a parameter of a call."""
    return replace(place, offset=place.offset + offset)


# --- atom, red ------------------------------------------------------------------------------------


def atomic(statement: Statement, function: Function) -> ThreadStep:
    """Updates a location; each element of a vector is one by itself."""
    ins, address = ordinary(statement), addresses(statement.operands["a"])
    type_, space = ins.types[-1], space_of(statement, statement.operands["a"])
    sources = [items_of(statement.operands[x]) for x in "bc" if x in statement.operands]
    reads = [[reader(item, type_) for item in items] for items in sources]
    count, size = len(reads[0]), TYPES[type_].size
    bound = statement.operands.get("d")
    writes = [writer(item, type_, function) for item in items_of(bound)] if bound else []
    rules = {where: bind_reference(ins, space=where) for where in ("global", "shared")}
    mask = (1 << size) - 1

    def run(thread: Thread) -> None:
        at, words = address(thread), [[read(thread) for read in items] for items in reads]
        where, _ = memory.resolve(space, at)
        rule = rules["shared" if where in ("shared", "cluster") else "global"]
        change = memory.by_elements(rule, size, words)
        old = memory.update(thread, space, at, size * count // 8, change)
        for i, write in enumerate(writes):
            write(thread, old >> i * size & mask)

    return guarded(statement, run)
