"""Statements of bulk copies and reductions, and of stores that signal an mbarrier (PTX ISA
9.7.9.25.4, 9.7.9.12, 9.7.13.7). Each thread issues its own; tensor copies have a module of their
own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dtypes import Array
from emulator.arith.scalar.rule import bind_vector
from emulator.arith.scalar.types import TYPES
from emulator.isa.instruction import Instruction
from emulator.isa.ordinary.instruction import OrdinaryInstruction
from emulator.machine.shared.failure import Failure
from emulator.machine.shared.pending import POISON, Transfer
from emulator.machine.vector import memory
from emulator.machine.vector.access import space_of
from emulator.machine.vector.asynchronous import Int64, constant, for_lanes, words_of
from emulator.machine.vector.compute import Step, guarded
from emulator.machine.vector.mbarriers import by_position, change, find_barriers
from emulator.machine.vector.memory import Who
from emulator.machine.vector.operands import Read, addresses, reader
from emulator.machine.vector.strand import Strand
from emulator.machine.vector.wave import Wave
from emulator.memory.arena import AccessError
from emulator.memory.mbarrier import Operation
from emulator.memory.windows import RANK_BITS
from emulator.ptx.program import Function, Statement, items_of

_SPACES = {"shared": "shared", "shared::cta": "shared", "shared::cluster": "cluster"}

# --- what every bulk copy has ---------------------------------------------------------------------


class Lane(NamedTuple):
    """One thread that issues a copy: its number in the wave, its position in the strand."""

    wave: Wave
    lane: int
    row: int

    @property
    def who(self) -> Who:
        return Who(self.wave, np.array([self.lane]), np.array([self.row]))


def each_lane(s: Strand, mask: Array | None) -> Iterator[tuple[int, Lane]]:
    """The lanes that issue, by their position in the strand."""
    rows = s.wave.row(s)
    for i in range(len(s)) if mask is None else np.flatnonzero(mask).tolist():
        yield i, Lane(s.wave, int(s.lanes[i]), int(rows[i]))


def word_at(words: Array, i: int) -> int:
    return int(words[i if len(words) > 1 else 0])


class Issue:
    """What every bulk copy has: reads of its operands, the mbarrier or group that it belongs to."""

    def __init__(self, statement: Statement, function: Function) -> None:
        self.ins: Instruction = statement.instruction
        assert isinstance(self.ins, OrdinaryInstruction)
        self.words = words_of(statement)
        operands = statement.operands
        self.reads: dict[str, Read] = {}
        for name, type_ in (("size", "u32"), ("mask", "u16")):
            if name in operands:
                self.reads[name] = reader(operands[name], type_, function)
        for name in ("dst", "src", "map"):
            if name in operands:
                self.reads[name] = addresses(operands[name], function)
        modifiers = self.ins.modifiers
        self.to = _SPACES.get(modifiers.get("to", ""), modifiers.get("to", ""))
        self.barriers = None
        if "mbarrier" in operands:
            self.barriers = find_barriers(statement, function, self.to)
        self.source = _SPACES.get(modifiers.get("from", ""), modifiers.get("from", ""))

    def values(self, s: Strand) -> dict[str, Array]:
        return {name: read(s) for name, read in self.reads.items()}


class Place(NamedTuple):
    """Bytes that a thread accesses, found anew at every look: the arena moves when it grows."""

    memory: Callable[[], Array]
    start: int

    def read(self, inside: Int64) -> Array:
        out: Array = self.memory()[self.start + inside]
        return out

    def write(self, inside: Int64, data: Array | int) -> None:
        self.memory()[self.start + inside] = data


def place_of(
    lane: Lane, space: str, address: int, size: int, alignment: int, write: bool, i: int
) -> Place:
    """Where an access of `size` bytes leads; AccessError, with the thread `i`, where it may not."""
    given, arena = np.array([address], np.uint64), lane.wave.grid.arena
    try:
        held, (start,) = memory.bytes_at(
            lane.who, space, given, size, alignment=alignment, write=write
        )
    except AccessError as error:
        raise AccessError(replace(error.fault, index=i)) from None
    if held is arena.view(1):
        return Place(partial(arena.view, 1), int(start))
    return Place(lambda: held, int(start))


def targets_of(
    lane: Lane,
    issue: Issue,
    values: dict[str, Array],
    barriers: Int64 | None,
    size: int,
    alignment: int,
    i: int,
) -> Iterator[tuple[Place, int | None]]:
    """Where a copy goes, with the mbarrier that each place signals: several for a multicast."""
    address = word_at(values["dst"], i)
    barrier = None if barriers is None else word_at(barriers, i)
    if "mask" not in values:
        yield place_of(lane, issue.to, address, size, alignment, True, i), barrier
        return
    inside, words = address & (1 << RANK_BITS) - 1, lane.wave.shared_bytes // 8
    for row in rows_of_multicast(lane, word_at(values["mask"], i), i):
        place = place_of(lane._replace(row=row), "shared", inside, size, alignment, True, i)
        assert barrier is not None
        yield place, barrier % words + row * words


def rows_of_multicast(lane: Lane, ranks: int, i: int) -> list[int]:
    """The rows of the blocks of a cluster that a mask names."""
    size = lane.wave.cluster_size
    if ranks >> size:
        raise Failure("multicast", f"mask {ranks:#x} in a cluster of {size}", i)
    own = lane.row // size * size
    return [own + rank for rank in range(size) if ranks >> rank & 1]


def submit(lane: Lane, barrier: int | None, size: int, perform: Callable[[], None]) -> None:
    """Issues an operation on `size` bytes, which an mbarrier or the thread's group waits for."""
    wave = lane.wave
    if wave.watch is not None:
        wave.watch.issued(lane.lane, barrier)

    def whole() -> None:
        perform()
        wave.grid.progress += 1
        if barrier is not None:
            change(wave, np.array([barrier]), Operation(transactions=-size))

    wave.pending.transfer(Transfer(lane.lane, whole, barrier))


def poison(lane: Lane, place: Place, inside: Int64) -> None:
    """What stands where a copy will write, until it does."""
    if not lane.wave.pending.at_once:
        place.write(inside, POISON)


# --- bulk copies ----------------------------------------------------------------------------------


def bulk_copy(statement: Statement, function: Function) -> Step:
    """cp.async.bulk between global memory, shared memory, and that of the cluster."""
    issue = Issue(statement, function)
    given = statement.operands.get("byte_mask")
    chosen = reader(given, "u16", function) if given is not None else None

    def run(s: Strand, mask: Array | None) -> None:
        values = issue.values(s)
        barriers = None if issue.barriers is None else by_position(issue.barriers, s, mask)
        masks = np.array([0xFFFF], np.uint16) if chosen is None else chosen(s)
        for i, lane in each_lane(s, mask):
            size = word_at(values["size"], i)
            if size % 16:
                raise Failure("bulk copy", f"{size} bytes: a multiple of 16 is copied", i)
            # Of every 16 bytes those are copied whose bit is set.
            every = np.arange(size)
            columns = every[word_at(masks, i) >> every % 16 & 1 == 1]
            at = word_at(values["src"], i)
            source = place_of(lane, issue.source, at, size, 16, False, i)
            for target, barrier in targets_of(lane, issue, values, barriers, size, 16, i):
                if barrier is not None:
                    poison(lane, target, columns)
                if lane.wave.watch is not None and issue.to == "global":
                    lane.wave.watch.stored_by_copy(lane.lane, source.start + columns)
                submit(lane, barrier, size, _movement(source, target, columns))

    return guarded(statement, run)


def _movement(source: Place, target: Place, inside: Int64) -> Callable[[], None]:
    return lambda: target.write(inside, source.read(inside))


def bulk_reduce(statement: Statement, function: Function) -> Step:
    """cp.reduce.async.bulk: combines memory with what lies in shared memory, element by element."""
    issue, ins = Issue(statement, function), statement.instruction
    assert isinstance(ins, OrdinaryInstruction)
    dtype = TYPES[ins.types[-1]].dtype
    rule = bind_vector(ins, space="global" if issue.to == "global" else "shared", bulk="bulk")

    def run(s: Strand, mask: Array | None) -> None:
        values = issue.values(s)
        barriers = None if issue.barriers is None else by_position(issue.barriers, s, mask)
        for i, lane in each_lane(s, mask):
            size = word_at(values["size"], i)
            if size % 16:
                raise Failure("bulk reduction", f"{size} bytes: a multiple of 16 is combined", i)
            at = word_at(values["src"], i)
            source = place_of(lane, issue.source, at, size, 16, False, i)
            inside = np.arange(size)
            for target, barrier in targets_of(lane, issue, values, barriers, size, 16, i):
                data = partial(source.read, inside)
                submit(lane, barrier, size, _combination(data, target, inside, dtype, rule))

    return guarded(statement, run)


def _combination(
    data: Callable[[], Array],
    target: Place,
    inside: Int64,
    dtype: np.dtype[Any],
    rule: Callable[..., Any],
) -> Callable[[], None]:
    """Combines elements with the bytes of others."""

    def perform() -> None:
        new = rule(target.read(inside).view(dtype), data().view(dtype))
        target.write(inside, np.ascontiguousarray(new).view(np.uint8))

    return perform


def commit_bulk(statement: Statement, function: Function) -> Step:
    return for_lanes(statement, lambda s, lanes: s.wave.pending.commit_bulk(lanes))


def wait_bulk(statement: Statement, function: Function) -> Step:
    newest = constant(statement, "n")
    return for_lanes(statement, lambda s, lanes: s.wave.pending.wait_bulk(lanes, newest))


# --- stores and reductions that signal an mbarrier ------------------------------------------------


def store_and_signal(statement: Statement, function: Function) -> Step:
    """st.async and red.async to shared memory of the cluster."""
    ins = statement.instruction
    assert isinstance(ins, OrdinaryInstruction)
    type_ = ins.types[-1]
    reads = [reader(item, type_, function) for item in items_of(statement.operands["b"])]
    find = addresses(statement.operands["a"], function)
    space = space_of(statement, statement.operands["a"])
    signals = "mbarrier" in statement.operands
    barriers = find_barriers(statement, function, "cluster") if signals else None
    size = TYPES[type_].size // 8 * len(reads)
    operation = ins.modifiers.get("operation", "")
    rule = bind_vector(ins, space="shared") if operation else None
    inside = np.arange(size)

    def run(s: Strand, mask: Array | None) -> None:
        where = find(s)
        words = np.stack([s.spread(read(s)) for read in reads], axis=-1)  # (lanes, elements)
        at = None if barriers is None else by_position(barriers, s, mask)
        for i, lane in each_lane(s, mask):
            target = place_of(lane, space, word_at(where, i), size, size, True, i)
            barrier = None if at is None else word_at(at, i)
            data = np.ascontiguousarray(words[i]).view(np.uint8)
            if rule is None:
                if barrier is not None:
                    poison(lane, target, inside)
                submit(lane, barrier, size, partial(target.write, inside, data))
            else:
                dtype = TYPES[type_].dtype
                perform = _combination(data.view, target, inside, dtype, rule)
                submit(lane, barrier, size, perform)

    return guarded(statement, run)


def clear(statement: Statement, function: Function) -> Step:
    """st.bulk: zeros in shared memory."""
    find = addresses(statement.operands["a"], function)
    space = space_of(statement, statement.operands["a"])
    count = reader(statement.operands["size"], "u64", function)

    def run(s: Strand, mask: Array | None) -> None:
        where, sizes = find(s), count(s)
        for i, lane in each_lane(s, mask):
            size = word_at(sizes, i)
            if size % 8:
                raise Failure("st.bulk", f"{size} bytes: a multiple of 8 is set", i)
            place = place_of(lane, space, word_at(where, i), size, 8, True, i)
            place.write(np.arange(size), 0)
            s.wave.grid.progress += 1

    return guarded(statement, run)


STEPS = {
    "cp.async.bulk": bulk_copy,
    "cp.async.bulk.commit_group": commit_bulk,
    "cp.async.bulk.wait_group": wait_bulk,
    "cp.reduce.async.bulk": bulk_reduce,
    "st.async": store_and_signal,
    "st.bulk": clear,
    "red.async": store_and_signal,
}
