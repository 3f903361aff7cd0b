"""Statements that copy asynchronously: cp.async, bulk and tensor copies, reductions, stores that
signal an mbarrier (PTX ISA 9.7.9.25 to 9.7.9.28, 9.7.13.14)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtypes import Array
from emulator.arith.scalar.rule import bind_vector
from emulator.arith.scalar.types import TYPES
from emulator.isa.instruction import Instruction
from emulator.isa.ordinary.instruction import OrdinaryInstruction
from emulator.machine.failure import Failure
from emulator.machine.pending import POISON, Transfer
from emulator.machine.vector import memory
from emulator.machine.vector.access import space_of
from emulator.machine.vector.compute import Step, guarded
from emulator.machine.vector.lanes import together, whole_or_split
from emulator.machine.vector.mbarriers import change, find_barriers
from emulator.machine.vector.memory import Who
from emulator.machine.vector.operands import Read, addresses, reader, selected
from emulator.machine.vector.strand import Strand
from emulator.machine.vector.wave import Wave
from emulator.memory.arena import AccessError, Arena
from emulator.memory.mbarrier import Operation
from emulator.memory.tensor_copy import Copy, place_problem, plan
from emulator.memory.tensor_map import TensorMap
from emulator.memory.tensor_map_bits import replace_field
from emulator.memory.tensor_transfer import (
    REDUCED,
    Combine,
    load_box,
    reduce_box,
    reduction_problem,
    store_box,
)
from emulator.memory.windows import RANK_BITS
from emulator.ptx.program import Address, Constant, Function, Statement, Vector

Int64 = NDArray[np.int64]
MAP_BYTES = 128
_SPACES = {"shared": "shared", "shared::cta": "shared", "shared::cluster": "cluster"}


def _words(statement: Statement) -> set[str]:
    return set(str(statement.instruction).split("."))


# --- cp.async -------------------------------------------------------------------------------------


def copy(statement: Statement, function: Function) -> Step:
    """cp.async of 4, 8 or 16 bytes; what lies behind the size of the source becomes zeros."""
    target = addresses(statement.operands["dst"], function)
    source = addresses(statement.operands["src"], function)
    size = _constant(statement, "size")
    given = statement.operands.get("source_size")
    ignored = (
        reader(statement.operands["ignore"], "pred", function)
        if ("ignore" in statement.operands)
        else None
    )
    used = reader(given, "u32", function) if given is not None else None

    def run(s: Strand, mask: Array | None) -> None:
        positions = memory.positions_of(mask)
        lanes = memory.who(s, positions)
        count = len(lanes.lanes)
        to = np.broadcast_to(selected(target(s), mask), (count,))
        at = np.broadcast_to(selected(source(s), mask), (count,))
        sizes = np.full(count, size, np.int64)
        if used is not None:
            sizes[:] = selected(used(s), mask)
        if ignored is not None:
            sizes[selected(ignored(s), mask) if len(ignored(s)) > 1 else ignored(s)[0]] = 0
        _check_size(sizes, size)
        _issue_copies(lanes, to, at, sizes, size)

    return guarded(statement, run)


def _check_size(sizes: Int64, size: int) -> None:
    if (sizes > size).any():
        raise Failure("cp.async", f"the source has {int(sizes.max())} bytes; {size} are copied")


def _issue_copies(lanes: Who, to: Array, at: Array, sizes: Int64, size: int) -> None:
    held, places = memory.bytes_at(lanes, "shared", to, size, alignment=size, write=True)
    wave, some = lanes.wave, sizes > 0
    _, sources = _source(lanes.part(some), at[some], size, sizes[some])
    whole = bool((sizes == size).all())

    def perform(which: Int64) -> None:
        from_ = wave.grid.arena.view(1)
        index = np.full(len(sizes), -1, np.int64)
        index[some] = sources
        chosen = index[which]
        if whole:
            data = memory.gather(from_, chosen, size)
        else:
            columns = np.arange(size)
            valid = columns < sizes[which][:, None]
            data = np.where(valid, from_[np.where(valid, chosen[:, None] + columns, 0)], 0)
        held[places[which][:, None] + np.arange(size)] = data
        wave.grid.progress += 1

    if not wave.pending.at_once:
        held[places[:, None] + np.arange(size)] = POISON
    wave.pending.copy(lanes.lanes, perform)


def _source(lanes: Who, at: Array, size: int, sizes: Int64) -> tuple[Array, Int64]:
    """Where copies read: all their bytes must be there."""
    if not len(at):
        return np.zeros(0, np.uint8), np.zeros(0, np.int64)
    if (sizes == size).all():
        return memory.bytes_at(lanes, "global", at, size, alignment=size)
    arena = lanes.wave.grid.arena
    for one in np.unique(sizes).tolist():
        arena.locate_bytes(at[sizes == one], one)
    return arena.view(1), arena.locate_bytes(at, 1)


def commit_copies(statement: Statement, function: Function) -> Step:
    return _for_lanes(statement, lambda s, lanes: s.wave.pending.commit_copies(lanes))


def wait_copies(statement: Statement, function: Function) -> Step:
    newest = None if "wait_all" in _words(statement) else _constant(statement, "n")
    return _for_lanes(statement, lambda s, lanes: s.wave.pending.wait_copies(lanes, newest))


def _for_lanes(statement: Statement, run: Callable[[Strand, Int64], None]) -> Step:
    return guarded(statement, lambda s, mask: run(s, s.lanes if mask is None else s.lanes[mask]))


def _constant(statement: Statement, name: str) -> int:
    bound = statement.operands[name]
    assert isinstance(bound, Constant)
    return bound.word


def arrive_after_copies(statement: Statement, function: Function) -> Step:
    """cp.async.mbarrier.arrive: an arrival once the thread's copies are done; without .noinc it is
    one that was not counted before."""
    places = find_barriers(statement, function)
    noinc = "noinc" in _words(statement)

    def run(s: Strand, mask: Array | None) -> None:
        wave = s.wave
        lanes = s.lanes if mask is None else s.lanes[mask]
        at = np.broadcast_to(places(s, mask), lanes.shape)
        if not noinc:
            change(wave, at, Operation(arrivals=-1))
        if wave.pending.at_once:
            change(wave, at, Operation(arrivals=1))
            return
        for lane, place in zip(lanes.tolist(), at, strict=True):
            wave.pending.transfer(Transfer(lane, _arrival(wave, lane, place), int(place)))

    return guarded(statement, run)


def _arrival(wave: Wave, lane: int, place: Any) -> Callable[[], None]:
    def perform() -> None:
        wave.pending.wait_copies(np.array([lane]), None)
        change(wave, np.array([place]), Operation(arrivals=1))

    return perform


# --- bulk copies ----------------------------------------------------------------------------------


class _Lane(NamedTuple):
    """One thread that issues a copy: its number in the wave, its position in the strand."""

    wave: Wave
    lane: int
    row: int

    @property
    def who(self) -> Who:
        return Who(self.wave, np.array([self.lane]), np.array([self.row]))


def _each(s: Strand, mask: Array | None) -> Iterator[tuple[int, _Lane]]:
    """The lanes that issue, by their position in the strand."""
    rows = s.wave.row(s)
    for i in range(len(s)) if mask is None else np.flatnonzero(mask).tolist():
        yield i, _Lane(s.wave, int(s.lanes[i]), int(rows[i]))


def _at(words: Array, i: int) -> int:
    return int(words[i if len(words) > 1 else 0])


class _Issue:
    """What every bulk copy has: reads of its operands, the mbarrier or group that it belongs to."""

    def __init__(self, statement: Statement, function: Function) -> None:
        self.ins: Instruction = statement.instruction
        assert isinstance(self.ins, OrdinaryInstruction)
        self.words = _words(statement)
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


def bulk_copy(statement: Statement, function: Function) -> Step:
    """cp.async.bulk between global memory, shared memory, and that of the cluster."""
    issue = _Issue(statement, function)
    given = statement.operands.get("byte_mask")
    chosen = reader(given, "u16", function) if given is not None else None

    def run(s: Strand, mask: Array | None) -> None:
        values = issue.values(s)
        barriers = None if issue.barriers is None else issue.barriers(s, None)
        masks = np.array([0xFFFF], np.uint16) if chosen is None else chosen(s)
        for i, lane in _each(s, mask):
            size = _at(values["size"], i)
            if size % 16:
                raise Failure("bulk copy", f"{size} bytes: a multiple of 16 is copied", i)
            # Of every 16 bytes those are copied whose bit is set.
            every = np.arange(size)
            columns = every[_at(masks, i) >> every % 16 & 1 == 1]
            source, start = _bytes(lane, issue.source, _at(values["src"], i), size, 16, False, i)
            for target, place, barrier in _targets(lane, issue, values, barriers, size, 16, i):
                data = partial(source.take, start + columns)
                _submit(lane, target, place + columns, barrier, size, data)

    return guarded(statement, run)


def _bytes(
    lane: _Lane, space: str, address: int, size: int, alignment: int, write: bool, i: int
) -> tuple[Array, int]:
    """Memory as bytes, and the place of an address of one thread."""
    given = np.array([address], np.uint64)
    try:
        held, places = memory.bytes_at(
            lane.who, space, given, size, alignment=alignment, write=write
        )
    except AccessError as error:
        raise AccessError(replace(error.fault, index=i)) from None
    return held, int(places[0])


def _targets(
    lane: _Lane,
    issue: _Issue,
    values: dict[str, Array],
    barriers: Int64 | None,
    size: int,
    alignment: int,
    i: int,
) -> Iterator[tuple[Array, int, int | None]]:
    """Where a copy goes, with the mbarrier that each place signals: several for a multicast."""
    address = _at(values["dst"], i)
    barrier = None if barriers is None else int(barriers[i if len(barriers) > 1 else 0])
    if "mask" not in values:
        held, place = _bytes(lane, issue.to, address, size, alignment, True, i)
        yield held, place, barrier
        return
    wave, ranks = lane.wave, _at(values["mask"], i)
    if ranks >> wave.cluster_size:
        raise Failure("multicast", f"mask {ranks:#x} in a cluster of {wave.cluster_size}", i)
    own = lane.row // wave.cluster_size * wave.cluster_size
    inside = address & (1 << RANK_BITS) - 1
    words = wave.shared_bytes // 8
    for rank in range(wave.cluster_size):
        if ranks >> rank & 1:
            peer = lane._replace(row=own + rank)
            held, place = _bytes(peer, "shared", inside, size, alignment, True, i)
            assert barrier is not None
            yield held, place, barrier % words + (own + rank) * words


def _submit(
    lane: _Lane,
    target: Array,
    places: Int64,
    barrier: int | None,
    size: int,
    data: Callable[[], Array],
) -> None:
    """Issues a copy of `size` bytes to places; `data` is read when it takes effect."""
    wave = lane.wave
    if wave.watch is not None:
        wave.watch.issued(lane.lane, barrier)

    def perform() -> None:
        target[places] = data()
        wave.grid.progress += 1
        if barrier is not None:
            change(wave, np.array([barrier]), Operation(transactions=-size))

    if not wave.pending.at_once and barrier is not None:
        target[places] = POISON
    wave.pending.transfer(Transfer(lane.lane, perform, barrier))


def bulk_reduce(statement: Statement, function: Function) -> Step:
    """cp.reduce.async.bulk: combines memory with what lies in shared memory, element by element."""
    issue, ins = _Issue(statement, function), statement.instruction
    assert isinstance(ins, OrdinaryInstruction)
    dtype = TYPES[ins.types[-1]].dtype
    rule = bind_vector(ins, space="global" if issue.to == "global" else "shared", bulk="bulk")

    def run(s: Strand, mask: Array | None) -> None:
        values = issue.values(s)
        barriers = None if issue.barriers is None else issue.barriers(s, None)
        for i, lane in _each(s, mask):
            size = _at(values["size"], i)
            if size % 16:
                raise Failure("bulk reduction", f"{size} bytes: a multiple of 16 is combined", i)
            source, start = _bytes(lane, issue.source, _at(values["src"], i), size, 16, False, i)
            for target, place, barrier in _targets(lane, issue, values, barriers, size, 16, i):
                perform = _combination(
                    lane.wave, source, start, target, place, size, dtype, rule, barrier
                )
                lane.wave.pending.transfer(Transfer(lane.lane, perform, barrier))

    return guarded(statement, run)


def _combination(
    wave: Wave,
    source: Array,
    start: int,
    target: Array,
    place: int,
    size: int,
    dtype: np.dtype[Any],
    rule: Callable[..., Any],
    barrier: int | None,
) -> Callable[[], None]:
    def perform() -> None:
        old = target[place : place + size].copy().view(dtype)
        new = np.ascontiguousarray(rule(old, source[start : start + size].copy().view(dtype)))
        target[place : place + size] = new.view(np.uint8)
        wave.grid.progress += 1
        if barrier is not None:
            change(wave, np.array([barrier]), Operation(transactions=-size))

    return perform


def commit_bulk(statement: Statement, function: Function) -> Step:
    return _for_lanes(statement, lambda s, lanes: s.wave.pending.commit_bulk(lanes))


def wait_bulk(statement: Statement, function: Function) -> Step:
    newest = _constant(statement, "n")
    return _for_lanes(statement, lambda s, lanes: s.wave.pending.wait_bulk(lanes, newest))


# --- tensor copies --------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def _decoded(raw: bytes) -> TensorMap:
    return TensorMap.decode(raw)


class _TensorIssue(_Issue):
    """A tensor copy: coordinates, offsets, and the map that it goes by."""

    def __init__(self, statement: Statement, function: Function) -> None:
        super().__init__(statement, function)
        place = statement.operands["map"]
        assert isinstance(place, Address) and isinstance(self.ins, OrdinaryInstruction)
        self.map_space = "param" if place.space.startswith("param") else ""
        (given,) = place.coordinates
        assert isinstance(given, Vector)
        self.coordinates = [reader(item, "b32", function) for item in given.items]
        self.offsets = self._offsets(statement, function)
        mode = self.ins.modifiers.get("mode", "")
        self.mode = mode or "tile"
        self.dims = int(self.ins.modifiers["dim"][0])

    def _offsets(self, statement: Statement, function: Function) -> list[Read]:
        given = statement.operands.get("offsets")
        if given is None:
            return []
        items = given.items if isinstance(given, Vector) else (given,)
        return [reader(item, "u16", function) for item in items]

    def map_of(self, lane: _Lane, address: int, i: int) -> TensorMap:
        """The map at an address, as it is now."""
        held, place = _bytes(lane, self.map_space, address, MAP_BYTES, 64, False, i)
        found = _decoded(held[place : place + MAP_BYTES].tobytes())
        rank = found.rank
        if rank != self.dims:
            raise Failure("tensor map", f"a map of {rank} dimensions in a {self.dims}d copy", i)
        return found

    def placed(self, s: Strand, lane: _Lane, values: dict[str, Array], i: int) -> Copy:
        """The copy that a thread issues."""
        tensor_map = self.map_of(lane, _at(values["map"], i), i)
        coordinates = [_signed32(_at(read(s), i)) for read in self.coordinates]
        offsets = [_at(read(s), i) for read in self.offsets]
        made = plan(tensor_map, self.mode)
        assert tensor_map.address is not None
        if problem := place_problem(made, coordinates, not self.loads):
            raise Failure("tensor copy", problem, i)
        return made.at(tensor_map.address, coordinates, offsets)

    @property
    def loads(self) -> bool:
        return self.to != "global"


def _signed32(word: int) -> int:
    return word - (1 << 32) if word >> 31 else word


def tensor_load(statement: Statement, function: Function) -> Step:
    """cp.async.bulk.tensor from global to shared memory, of one block or of several."""
    issue = _TensorIssue(statement, function)

    def run(s: Strand, mask: Array | None) -> None:
        values = issue.values(s)
        assert issue.barriers is not None
        barriers = issue.barriers(s, None)
        for i, lane in _each(s, mask):
            box = issue.placed(s, lane, values, i)
            size, arena = box.plan.bytes, lane.wave.grid.arena
            room = box.plan.shared_bytes
            for target, place, barrier in _targets(lane, issue, values, barriers, room, 128, i):
                runs = _runs(lane.wave, box, place)
                _submit(lane, target, runs, barrier, size, partial(_rows_of_box, box, arena))

    return guarded(statement, run)


def _rows_of_box(box: Copy, arena: Arena) -> Array:
    return load_box(box, arena.read_rows).reshape(-1, 16)


def _runs(wave: Wave, box: Copy, place: int) -> Int64:
    """Places ``(runs, 16)`` of the bytes of a box; the swizzle looks at addresses in the block."""
    row, inside = divmod(place, wave.shared_bytes)
    runs = box.plan.run_addresses(inside).reshape(-1, 1) + row * wave.shared_bytes
    out: Int64 = runs + np.arange(16)
    return out


def tensor_store(statement: Statement, function: Function) -> Step:
    """cp.async.bulk.tensor and cp.reduce.async.bulk.tensor from shared to global memory."""
    issue, ins = _TensorIssue(statement, function), statement.instruction
    assert isinstance(ins, OrdinaryInstruction)
    operation = ins.modifiers.get("operation", "")

    def run(s: Strand, mask: Array | None) -> None:
        values = issue.values(s)
        for i, lane in _each(s, mask):
            box = issue.placed(s, lane, values, i)
            room, arena = box.plan.shared_bytes, lane.wave.grid.arena
            held, place = _bytes(lane, "shared", _at(values["src"], i), room, 128, False, i)
            runs = _runs(lane.wave, box, place)
            combine = _combine(operation, box.plan.tensor_map.dtype) if operation else None
            perform = _box_to_memory(lane.wave, box, held, runs, combine, arena)
            lane.wave.pending.transfer(Transfer(lane.lane, perform))

    return guarded(statement, run)


def _box_to_memory(
    wave: Wave, box: Copy, held: Array, runs: Int64, combine: Combine | None, arena: Arena
) -> Callable[[], None]:
    shape = (*box.row_inside.shape, box.plan.row_bytes)

    def perform() -> None:
        data = held[runs].reshape(shape)
        wave.grid.progress += 1
        if combine is None:
            store_box(box, data, arena.write_rows)
        else:
            reduce_box(box, data, arena.read_rows, arena.write_rows, combine)

    return perform


class _Reduction(NamedTuple):
    """A reduction as the rules want to know it."""

    rule: str
    types: tuple[str, ...]
    modifiers: dict[str, str]


@lru_cache(maxsize=64)
def _combine(operation: str, dtype: str) -> Callable[..., Any]:
    if problem := reduction_problem(operation, dtype):
        raise Failure("tensor copy", problem)
    types = (REDUCED[operation][dtype],)
    described = _Reduction("atomic.update", types, {"operation": operation})
    return bind_vector(described, space="global", bulk="bulk")


# --- stores and reductions that signal an mbarrier ------------------------------------------------


def store_and_signal(statement: Statement, function: Function) -> Step:
    """st.async and red.async to shared memory of the cluster."""
    ins = statement.instruction
    assert isinstance(ins, OrdinaryInstruction)
    bound, type_ = statement.operands["b"], ins.types[-1]
    items = bound.items if isinstance(bound, Vector) else (bound,)
    reads = [reader(item, type_, function) for item in items]
    find = addresses(statement.operands["a"], function)
    space = space_of(statement, statement.operands["a"])
    signals = "mbarrier" in statement.operands
    barriers = find_barriers(statement, function, "cluster") if signals else None
    size = TYPES[type_].size // 8 * len(items)
    operation = ins.modifiers.get("operation", "")
    rule = bind_vector(ins, space="shared") if operation else None

    def run(s: Strand, mask: Array | None) -> None:
        where = find(s)
        words = np.stack([s.spread(read(s)) for read in reads], axis=-1)  # (lanes, elements)
        at = None if barriers is None else barriers(s, None)
        for i, lane in _each(s, mask):
            held, place = _bytes(lane, space, _at(where, i), size, size, True, i)
            barrier = None if at is None else int(at[i if len(at) > 1 else 0])
            data = np.ascontiguousarray(words[i]).view(np.uint8)
            if rule is None:
                _submit(lane, held, place + np.arange(size), barrier, size, data.view)
                continue
            perform = _combination(
                lane.wave, data, 0, held, place, size, TYPES[type_].dtype, rule, barrier
            )
            lane.wave.pending.transfer(Transfer(lane.lane, perform, barrier))

    return guarded(statement, run)


def clear(statement: Statement, function: Function) -> Step:
    """st.bulk: zeros in shared memory."""
    find = addresses(statement.operands["a"], function)
    space = space_of(statement, statement.operands["a"])
    count = reader(statement.operands["size"], "u64", function)

    def run(s: Strand, mask: Array | None) -> None:
        where, sizes = find(s), count(s)
        for i, lane in _each(s, mask):
            size = _at(sizes, i)
            if size % 8:
                raise Failure("st.bulk", f"{size} bytes: a multiple of 8 is set", i)
            held, place = _bytes(lane, space, _at(where, i), size, 8, True, i)
            held[place : place + size] = 0
            s.wave.grid.progress += 1

    return guarded(statement, run)


# --- editing of tensor maps -----------------------------------------------------------------------


def replace_in_map(statement: Statement, function: Function) -> Step:
    """tensormap.replace: a field of the 128 bytes at an address."""
    ins = statement.instruction
    assert isinstance(ins, OrdinaryInstruction)
    field, type_ = ins.modifiers["field"], ins.types[-1]
    find = addresses(statement.operands["map"], function)
    space = space_of(statement, statement.operands["map"])
    value = reader(statement.operands["value"], type_, function)
    ordinal = _constant(statement, "ordinal") if "ordinal" in statement.operands else None

    def run(s: Strand, mask: Array | None) -> None:
        where, values = find(s), value(s)
        for i, lane in _each(s, mask):
            held, place = _bytes(lane, space, _at(where, i), MAP_BYTES, MAP_BYTES, True, i)
            raw = held[place : place + MAP_BYTES].tobytes()
            edited = replace_field(raw, field, _at(values, i), ordinal)
            held[place : place + MAP_BYTES] = np.frombuffer(edited, np.uint8)
            lane.wave.grid.progress += 1

    return guarded(statement, run)


def copy_map(statement: Statement, function: Function) -> Step:
    """tensormap.cp_fenceproxy: 128 bytes from shared to global memory, by a whole warp."""
    target = addresses(statement.operands["dst"], function)
    source = addresses(statement.operands["src"], function)

    def step(s: Strand) -> None:
        together(s, statement.pc)
        to, at = target(s), source(s)
        seen: set[int] = set()
        for i, lane in _each(s, None):
            if lane.lane // 32 in seen:
                continue
            seen.add(lane.lane // 32)
            held, place = _bytes(lane, "shared", _at(at, i), MAP_BYTES, MAP_BYTES, False, i)
            out, start = _bytes(lane, "global", _at(to, i), MAP_BYTES, MAP_BYTES, True, i)
            out[start : start + MAP_BYTES] = held[place : place + MAP_BYTES]
            s.wave.grid.progress += 1

    return whole_or_split(statement, step)


STEPS = {
    "cp.async": copy,
    "cp.async.commit_group": commit_copies,
    "cp.async.wait_group": wait_copies,
    "cp.async.wait_all": wait_copies,
    "cp.async.mbarrier.arrive": arrive_after_copies,
    "cp.async.bulk": bulk_copy,
    "cp.async.bulk.commit_group": commit_bulk,
    "cp.async.bulk.wait_group": wait_bulk,
    "cp.reduce.async.bulk": bulk_reduce,
    "cp.async.bulk.tensor": lambda s, f: (
        tensor_store(s, f) if "bulk_group" in _words(s) else tensor_load(s, f)
    ),
    "cp.reduce.async.bulk.tensor": tensor_store,
    "st.async": store_and_signal,
    "st.bulk": clear,
    "red.async": store_and_signal,
    "tensormap.replace": replace_in_map,
    "tensormap.cp_fenceproxy": copy_map,
}
