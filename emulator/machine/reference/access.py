"""Reference engine: statements that load, store, update memory atomically, and take room on the
stack, one thread at a time (PTX ISA 9.7.9)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from emulator.arith.scalar.rule import bind_reference
from emulator.arith.scalar.types import TYPES
from emulator.machine.reference import memory
from emulator.machine.reference.compute import ThreadStep, guarded
from emulator.machine.reference.operands import addresses, reader, writer
from emulator.machine.reference.thread import Thread
from emulator.machine.shared.operands import ordinary, space_of, word_type
from emulator.machine.shared.served import within_group
from emulator.machine.shared.surfaces import size_in
from emulator.ptx.program import Constant, Function, ParameterPlace, Statement, items_of

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
    address = addresses(statement.operands["a"])
    return _updating(statement, function, lambda thread: (address(thread),))


def _updating(
    statement: Statement, function: Function, places: Callable[[Thread], Sequence[int]]
) -> ThreadStep:
    """Updates the location at each of some addresses; each element of a vector is one by itself."""
    ins = ordinary(statement)
    type_, space = ins.types[-1], space_of(statement, statement.operands["a"])
    sources = [items_of(statement.operands[x]) for x in "bc" if x in statement.operands]
    reads = [[reader(item, type_) for item in items] for items in sources]
    count, size = len(reads[0]), TYPES[type_].size
    bound = statement.operands.get("d")
    writes = [writer(item, type_, function) for item in items_of(bound)] if bound else []
    rules = {where: bind_reference(ins, space=where) for where in ("global", "shared")}
    mask = (1 << size) - 1

    def run(thread: Thread) -> None:
        words = [[read(thread) for read in items] for items in reads]
        for at in places(thread):
            where, _ = memory.resolve(space, at)
            rule = rules["shared" if where in ("shared", "cluster") else "global"]

            def change(old: int, rule: Callable[..., int] = rule) -> int:
                parts = [old >> i * size & mask for i in range(count)]
                new = [rule(part, *given) for part, *given in zip(parts, *words, strict=True)]
                return sum(word << i * size for i, word in enumerate(new))

            old = memory.update(thread, space, at, size * count // 8, change)
            for i, write in enumerate(writes):
                write(thread, old >> i * size & mask)

    return guarded(statement, run)


# --- multimem -------------------------------------------------------------------------------------


def _of_devices(statement: Statement, count: int) -> Callable[[Thread], list[int]]:
    """The addresses in the memory of each device at which a thread accesses `count` elements."""
    address = addresses(statement.operands["a"])
    total = TYPES[ordinary(statement).types[-1]].size // 8 * count
    return lambda thread: memory.of_devices(thread, address(thread), total)


def load_reduced(statement: Statement, function: Function) -> ThreadStep:
    """multimem.ld_reduce: the words of all devices as one."""
    ins = ordinary(statement)
    items, type_ = items_of(statement.operands["d"]), ins.types[-1]
    writes = [writer(item, type_, function) for item in items]
    places, combine = _of_devices(statement, len(items)), bind_reference(ins)
    size = TYPES[type_].size
    mask = (1 << size) - 1

    def run(thread: Thread) -> None:
        total = size // 8 * len(items)
        words = [memory.load(thread, "global", at, total) for at in places(thread)]
        for i, write in enumerate(writes):
            write(thread, combine(*(word >> i * size & mask for word in words)))

    return guarded(statement, run)


def store_multicast(statement: Statement, function: Function) -> ThreadStep:
    """multimem.st: the same words to the memory of each device."""
    type_, items = ordinary(statement).types[-1], items_of(statement.operands["b"])
    reads, size = [reader(item, type_) for item in items], TYPES[type_].size // 8
    places = _of_devices(statement, len(items))

    def run(thread: Thread) -> None:
        word = sum(read(thread) << 8 * size * i for i, read in enumerate(reads))
        for at in places(thread):
            memory.store(thread, "global", at, size * len(reads), word)

    return guarded(statement, run)


def reduce_multicast(statement: Statement, function: Function) -> ThreadStep:
    """multimem.red: an atomic operation in the memory of each device."""
    places = _of_devices(statement, len(items_of(statement.operands["b"])))
    return _updating(statement, function, places)


# --- the stack ------------------------------------------------------------------------------------


def allocate_on_stack(statement: Statement, function: Function) -> ThreadStep:
    """alloca: room in local memory until the function returns."""
    type_ = ordinary(statement).types[-1]
    size = reader(statement.operands["size"], type_)
    write = writer(statement.operands["d"], type_, function)
    given = statement.operands.get("alignment")
    alignment = given.word if isinstance(given, Constant) else 8

    def run(thread: Thread) -> None:
        frame = thread.frames[-1]
        start = -(-frame.top // alignment) * alignment
        end = start + size(thread)
        memory.need_local(thread, end)
        frame.stack = end
        write(thread, start)

    return guarded(statement, run)


def save_stack(statement: Statement, function: Function) -> ThreadStep:
    write = writer(statement.operands["d"], word_type(statement.signature["d"]), function)
    return guarded(statement, lambda thread: write(thread, thread.frames[-1].top))


def restore_stack(statement: Statement, function: Function) -> ThreadStep:
    read = reader(statement.operands["a"], word_type(statement.signature["a"]))

    def run(thread: Thread) -> None:
        thread.frames[-1].stack = read(thread)

    return guarded(statement, run)
