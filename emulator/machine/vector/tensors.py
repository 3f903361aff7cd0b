"""Statements of tensor copies, box by box, and of tensor maps (PTX ISA 9.7.9.27)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from dtypes import Array
from emulator.arith.scalar.rule import bind_vector
from emulator.isa.ordinary.instruction import OrdinaryInstruction
from emulator.machine.shared.failure import Failure
from emulator.machine.shared.pending import POISON
from emulator.machine.vector import memory
from emulator.machine.vector.access import space_of
from emulator.machine.vector.asynchronous import Int64, constant, words_of
from emulator.machine.vector.bulk import (
    Issue,
    Lane,
    each_lane,
    place_of,
    rows_of_multicast,
    submit,
    word_at,
)
from emulator.machine.vector.compute import Step, guarded
from emulator.machine.vector.lanes import together, whole_or_split
from emulator.machine.vector.mbarriers import by_position, change
from emulator.machine.vector.operands import Read, addresses, reader
from emulator.machine.vector.strand import Strand
from emulator.machine.vector.wave import Wave
from emulator.memory.arena import AccessError, Arena
from emulator.memory.mbarrier import Operation
from emulator.memory.tensor_copy import PERIOD, RUN, Copy, place_problem, plan
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
from emulator.memory.windows import LOCAL, RANK_BITS, SHARED, WINDOW_BITS
from emulator.ptx.program import Address, Function, Statement, Vector

MAP_BYTES = 128
_OF_MAP = np.arange(MAP_BYTES)
_POISON = int.from_bytes(bytes([POISON]) * 8, "little")
#: windows in which an address means something else to each thread or block
_OWN = (SHARED >> WINDOW_BITS, LOCAL >> WINDOW_BITS)


@lru_cache(maxsize=256)
def _decoded(raw: bytes) -> TensorMap:
    return TensorMap.decode(raw)


class TensorIssue(Issue):
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

    def map_of(self, lane: Lane, address: int, i: int) -> TensorMap:
        """The map at an address, as it is now."""
        place = place_of(lane, self.map_space, address, MAP_BYTES, 64, False, i)
        if lane.wave.watch is not None:
            lane.wave.watch.map_used(lane.lane, place.memory(), place.start)
        found = _decoded(place.read(_OF_MAP).tobytes())
        rank = found.rank
        if rank != self.dims:
            raise Failure("tensor map", f"a map of {rank} dimensions in a {self.dims}d copy", i)
        return found

    def placed(self, s: Strand, values: dict[str, Array], at: Int64) -> Copy:
        """The copies that threads at some positions issue, who go by one map."""
        first = int(at[0])
        tensor_map = self.map_of(_lane(s, first), word_at(values["map"], first), first)
        coordinates = _table(s, self.coordinates, at).astype(np.int32)
        made = plan(tensor_map, self.mode)
        assert tensor_map.address is not None
        if place_problem(made, coordinates, not self.loads):
            for i, start in zip(at.tolist(), coordinates, strict=True):
                if problem := place_problem(made, start, not self.loads):
                    raise Failure("tensor copy", problem, i)
        return made.at(tensor_map.address, coordinates, _table(s, self.offsets, at))

    @property
    def loads(self) -> bool:
        return self.to != "global"


# --- several threads ---


def _lane(s: Strand, i: int) -> Lane:
    return Lane(s.wave, int(s.lanes[i]), int(s.wave.row(s)[i]))


def _chosen(words: Array, at: Int64) -> Array:
    """The words of threads at some positions; one may stand for all."""
    return words[at] if len(words) > 1 else np.broadcast_to(words, at.shape)


def _table(s: Strand, reads: list[Read], at: Int64) -> Int64:
    """Words ``(threads, operands)``."""
    words = [_chosen(read(s), at) for read in reads]
    return np.array(words, np.int64).reshape(len(reads), len(at)).T


def _at_once(s: Strand) -> bool:
    """Whether copies take effect at their issue, and nobody wants to hear of each of them."""
    return s.wave.pending.at_once and s.wave.watch is None


def _groups(s: Strand, mask: Array | None, maps: Array) -> list[Int64]:
    """The positions of threads whose copies are done together: neighbours who go by one map."""
    at = np.arange(len(s)) if mask is None else np.flatnonzero(mask)
    maps = _chosen(maps, at)
    differs = maps[1:] != maps[:-1]
    if not _at_once(s) or np.isin(maps >> np.uint64(WINDOW_BITS), _OWN).any():
        differs[:] = True
    return np.split(at, np.flatnonzero(differs) + 1)


class _Runs(NamedTuple):
    """Boxes in shared memory of a wave, by 16 bytes."""

    wave: Wave
    #: ``(boxes, runs)``: their places
    places: Int64

    @property
    def words(self) -> Array:
        """All of them, the halves of each beside each other."""
        return memory.words_of(self.wave.shared, RUN)

    def read(self) -> Array:
        """Bytes ``(boxes, bytes)``."""
        found = self.words[self.places]
        return found.reshape(len(self.places), -1).view(np.uint8)

    def write(self, boxes: Array) -> None:
        self.words[self.places] = boxes.view(np.uint64).reshape(*self.places.shape, 2)


def _runs_of(
    s: Strand, box: Copy, at: Int64, rows: Int64, space: str, addresses: Array, write: bool
) -> _Runs:
    """Where the boxes of threads at some positions lie; `rows`: of the blocks that those belong to.

    The swizzle looks at addresses in the block.
    """
    who, size = memory.Who(s.wave, s.lanes[at], rows), box.plan.shared_bytes
    try:
        _, starts = memory.bytes_at(who, space, addresses, size, alignment=128, write=write)
    except AccessError as error:
        raise AccessError(replace(error.fault, index=int(at[error.fault.index]))) from None
    bases = (starts % s.wave.shared_bytes % PERIOD).tolist()
    runs = np.array([box.plan.run_addresses(base).reshape(-1) for base in bases])
    return _Runs(s.wave, (runs + (starts - bases)[:, None]) // RUN)


# --- loads and stores -----------------------------------------------------------------------------


class _Targets(NamedTuple):
    """Where loads go: the thread that issued each, the row of a block, the address there, the
    mbarrier."""

    at: Int64
    rows: Int64
    addresses: Array
    barriers: Int64

    def part(self, i: int) -> _Targets:
        return _Targets(*(x[i : i + 1] for x in self))


def _targets(
    s: Strand, issue: TensorIssue, values: dict[str, Array], barriers: Int64, at: Int64
) -> _Targets:
    """Those of the threads at some positions, several for a multicast."""
    to = _Targets(at, s.wave.row(s)[at], _chosen(values["dst"], at), _chosen(barriers, at))
    if "mask" not in values:
        return to
    named = [rows_of_multicast(_lane(s, i), word_at(values["mask"], i), i) for i in at.tolist()]
    which = np.repeat(np.arange(len(at)), [len(x) for x in named])
    rows, words = np.array([x for y in named for x in y], np.int64), s.wave.shared_bytes // 8
    inside = to.addresses[which] & np.uint64((1 << RANK_BITS) - 1)
    return _Targets(at[which], rows, inside, to.barriers[which] % words + rows * words)


def tensor_load(statement: Statement, function: Function) -> Step:
    """cp.async.bulk.tensor from global to shared memory, of one block or of several."""
    issue = TensorIssue(statement, function)

    def run(s: Strand, mask: Array | None) -> None:
        values, arena = issue.values(s), s.wave.grid.arena
        assert issue.barriers is not None
        barriers = by_position(issue.barriers, s, mask)
        space = "shared" if "mask" in values else issue.to
        for group in _groups(s, mask, values["map"]):
            box = issue.placed(s, values, group)
            to = _targets(s, issue, values, barriers, group)
            if _at_once(s):
                runs = _runs_of(s, box, to.at, to.rows, space, to.addresses, True)
                which = np.searchsorted(group, to.at)
                runs.write(load_box(box, arena.read_rows).reshape(len(group), -1)[which])
                _signal(s, to.barriers, box.plan.bytes, to.at)
                continue
            lane = _lane(s, int(group[0]))
            for i in range(len(to.at)):
                at, rows, addresses, signal = to.part(i)
                runs = _runs_of(s, box, at, rows, space, addresses, True)
                if not s.wave.pending.at_once:
                    runs.words[runs.places] = _POISON
                submit(lane, int(signal[0]), box.plan.bytes, _box_loader(box, arena, runs))

    return guarded(statement, run)


def _signal(s: Strand, barriers: Int64, size: int, at: Int64) -> None:
    """Copies are done: mbarriers hear of their bytes."""
    s.wave.grid.progress += 1
    change(s.wave, barriers, Operation(transactions=-size), at)


def _box_loader(box: Copy, arena: Arena, target: _Runs) -> Callable[[], None]:
    return lambda: target.write(load_box(box, arena.read_rows))


def tensor_store(statement: Statement, function: Function) -> Step:
    """cp.async.bulk.tensor and cp.reduce.async.bulk.tensor from shared to global memory."""
    issue, ins = TensorIssue(statement, function), statement.instruction
    assert isinstance(ins, OrdinaryInstruction)
    operation = ins.modifiers.get("operation", "")

    def run(s: Strand, mask: Array | None) -> None:
        values = issue.values(s)
        for at in _groups(s, mask, values["map"]):
            if _at_once(s) and not operation:
                store(s, values, _without_repetition(s, issue, values, at))
                continue
            for i in range(len(at)):
                store(s, values, at[i : i + 1])

    def store(s: Strand, values: dict[str, Array], at: Int64) -> None:
        box, wave = issue.placed(s, values, at), s.wave
        if len(at) > 1 and not box.whole:
            # Boxes that reach beyond the tensor may overlap: the last one wins.
            for i in range(len(at)):
                store(s, values, at[i : i + 1])
            return
        addresses, lane = _chosen(values["src"], at), _lane(s, int(at[0]))
        runs = _runs_of(s, box, at, wave.row(s)[at], "shared", addresses, False)
        if wave.watch is not None:
            wave.watch.stored_by_copy(lane.lane, _inside(box, runs))
        combine = _combine(operation, box.plan.tensor_map.dtype) if operation else None
        perform = _box_storer(box, wave.grid.arena, runs, combine)
        submit(lane, None, box.plan.bytes, perform)

    return guarded(statement, run)


def _without_repetition(
    s: Strand, issue: TensorIssue, values: dict[str, Array], at: Int64
) -> Int64:
    """The first of neighbours who store the same: all lanes of a warp often do."""
    reads = issue.coordinates + issue.offsets
    words = [s.wave.row(s)[at], _chosen(values["src"], at), *_table(s, reads, at).T]
    fresh = np.any([x[1:] != x[:-1] for x in words], axis=0)
    return at[np.r_[True, fresh]]


def _inside(box: Copy, runs: _Runs) -> Int64:
    """Of the bytes of a box in shared memory those whose elements lie in the tensor."""
    places = RUN * runs.places[..., None] + np.arange(RUN)
    inside = np.repeat(box.element_inside, box.plan.element_bytes, axis=-1)
    out: Int64 = places.reshape(*box.row_inside.shape, -1)[..., : inside.shape[-1]][inside]
    return out


def _box_storer(
    box: Copy, arena: Arena, source: _Runs, combine: Combine | None
) -> Callable[[], None]:
    shape = (*box.row_inside.shape, box.plan.row_bytes)

    def perform() -> None:
        data = source.read().reshape(shape)
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


def transfer(statement: Statement, function: Function) -> Step:
    stores = "bulk_group" in words_of(statement)
    return tensor_store(statement, function) if stores else tensor_load(statement, function)


# --- editing of tensor maps -----------------------------------------------------------------------


def replace_in_map(statement: Statement, function: Function) -> Step:
    """tensormap.replace: a field of the 128 bytes at an address."""
    ins = statement.instruction
    assert isinstance(ins, OrdinaryInstruction)
    field, type_ = ins.modifiers["field"], ins.types[-1]
    find = addresses(statement.operands["map"], function)
    space = space_of(statement, statement.operands["map"])
    value = reader(statement.operands["value"], type_, function)
    ordinal = constant(statement, "ordinal") if "ordinal" in statement.operands else None

    def run(s: Strand, mask: Array | None) -> None:
        where, values = find(s), value(s)
        for i, lane in each_lane(s, mask):
            place = place_of(lane, space, word_at(where, i), MAP_BYTES, MAP_BYTES, True, i)
            raw = place.read(_OF_MAP).tobytes()
            edited = replace_field(raw, field, word_at(values, i), ordinal)
            place.write(_OF_MAP, np.frombuffer(edited, np.uint8))
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
        for i, lane in each_lane(s, None):
            if lane.lane // 32 in seen:
                continue
            seen.add(lane.lane // 32)
            given = place_of(lane, "shared", word_at(at, i), MAP_BYTES, MAP_BYTES, False, i)
            place = place_of(lane, "global", word_at(to, i), MAP_BYTES, MAP_BYTES, True, i)
            place.write(_OF_MAP, given.read(_OF_MAP))
            s.wave.grid.progress += 1

    return whole_or_split(statement, step)


STEPS = {
    "cp.async.bulk.tensor": transfer,
    "cp.reduce.async.bulk.tensor": tensor_store,
    "tensormap.replace": replace_in_map,
    "tensormap.cp_fenceproxy": copy_map,
}
