"""Statements of tensor copies, box by box, and of tensor maps (PTX ISA 9.7.9.27)."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from dtypes import Array
from emulator.arith.scalar.rule import bind_vector
from emulator.isa.ordinary.instruction import OrdinaryInstruction
from emulator.machine.failure import Failure
from emulator.machine.vector.access import space_of
from emulator.machine.vector.asynchronous import Int64, constant, words_of
from emulator.machine.vector.bulk import (
    Issue,
    Lane,
    Place,
    each_lane,
    place_of,
    poison,
    submit,
    targets_of,
    word_at,
)
from emulator.machine.vector.compute import Step, guarded
from emulator.machine.vector.lanes import together, whole_or_split
from emulator.machine.vector.operands import Read, addresses, reader
from emulator.machine.vector.strand import Strand
from emulator.machine.vector.wave import Wave
from emulator.memory.arena import Arena
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
from emulator.ptx.program import Address, Function, Statement, Vector

MAP_BYTES = 128
_OF_MAP = np.arange(MAP_BYTES)


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

    def placed(self, s: Strand, lane: Lane, values: dict[str, Array], i: int) -> Copy:
        """The copy that a thread issues."""
        tensor_map = self.map_of(lane, word_at(values["map"], i), i)
        coordinates = [_signed32(word_at(read(s), i)) for read in self.coordinates]
        offsets = [word_at(read(s), i) for read in self.offsets]
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
    issue = TensorIssue(statement, function)

    def run(s: Strand, mask: Array | None) -> None:
        values = issue.values(s)
        assert issue.barriers is not None
        barriers = issue.barriers(s, None)
        for i, lane in each_lane(s, mask):
            box = issue.placed(s, lane, values, i)
            size, arena = box.plan.bytes, lane.wave.grid.arena
            room = box.plan.shared_bytes
            for target, barrier in targets_of(lane, issue, values, barriers, room, 128, i):
                runs = _runs(lane.wave, box, target)
                poison(lane, target, runs)
                submit(lane, barrier, size, _box_loader(box, arena, target, runs))

    return guarded(statement, run)


def _box_loader(box: Copy, arena: Arena, target: Place, runs: Int64) -> Callable[[], None]:
    return lambda: target.write(runs, load_box(box, arena.read_rows).reshape(-1, 16))


def _runs(wave: Wave, box: Copy, place: Place) -> Int64:
    """Bytes ``(runs, 16)`` of a box, counted from its place; the swizzle looks at addresses in the
    block."""
    inside = place.start % wave.shared_bytes
    out: Int64 = box.plan.run_addresses(inside).reshape(-1, 1) - inside + np.arange(16)
    return out


def tensor_store(statement: Statement, function: Function) -> Step:
    """cp.async.bulk.tensor and cp.reduce.async.bulk.tensor from shared to global memory."""
    issue, ins = TensorIssue(statement, function), statement.instruction
    assert isinstance(ins, OrdinaryInstruction)
    operation = ins.modifiers.get("operation", "")

    def run(s: Strand, mask: Array | None) -> None:
        values = issue.values(s)
        for i, lane in each_lane(s, mask):
            box = issue.placed(s, lane, values, i)
            room, arena = box.plan.shared_bytes, lane.wave.grid.arena
            source = place_of(lane, "shared", word_at(values["src"], i), room, 128, False, i)
            runs = _runs(lane.wave, box, source)
            if lane.wave.watch is not None:
                lane.wave.watch.stored_by_copy(lane.lane, _inside(box, source.start + runs))
            combine = _combine(operation, box.plan.tensor_map.dtype) if operation else None
            perform = _box_storer(box, arena, source, runs, combine)
            submit(lane, None, box.plan.bytes, perform)

    return guarded(statement, run)


def _inside(box: Copy, places: Int64) -> Int64:
    """Of the bytes of a box in shared memory those whose elements lie in the tensor."""
    inside = np.repeat(box.element_inside, box.plan.element_bytes, axis=-1)
    out: Int64 = places.reshape(*box.row_inside.shape, -1)[..., : inside.shape[-1]][inside]
    return out


def _box_storer(
    box: Copy, arena: Arena, source: Place, runs: Int64, combine: Combine | None
) -> Callable[[], None]:
    shape = (*box.row_inside.shape, box.plan.row_bytes)

    def perform() -> None:
        data = source.read(runs).reshape(shape)
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
