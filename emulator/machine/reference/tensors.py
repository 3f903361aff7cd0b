"""Statements of tensor copies, element by element, and of tensor maps (PTX ISA 9.7.9.27)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

from emulator.arith.scalar.rule import bind_reference
from emulator.machine.reference import memory
from emulator.machine.reference.access import ordinary, space_of
from emulator.machine.reference.asynchronous import Issue, constant, poison, submit, words_of
from emulator.machine.reference.compute import Run, guarded
from emulator.machine.reference.operands import addresses, guard_of, reader
from emulator.machine.reference.thread import WARP, Thread, Together
from emulator.machine.shared.failure import Failure
from emulator.memory.arena import AccessError
from emulator.memory.tensor_copy import place_problem, plan
from emulator.memory.tensor_copy_reference import Element, elements, load_code
from emulator.memory.tensor_map import TensorMap
from emulator.memory.tensor_map_bits import replace_field
from emulator.memory.tensor_transfer import OUTSIDE_NAN, REDUCED, reduction_problem
from emulator.memory.windows import RANK_BITS
from emulator.ptx.program import Address, Function, Statement, Vector, items_of

MAP_BYTES = 128
#: what boxes in shared memory must be aligned to
_ALIGNMENT = 128


@lru_cache(maxsize=256)
def _decoded(raw: bytes) -> TensorMap:
    return TensorMap.decode(raw)


class Box(NamedTuple):
    """What one thread wants copied."""

    tensor_map: TensorMap
    mode: str
    coordinates: list[int]
    offsets: list[int]

    @property
    def bytes(self) -> int:
        """Bytes in shared memory, those outside of the tensor included."""
        return plan(self.tensor_map, self.mode).bytes

    @property
    def room(self) -> int:
        """Bytes of shared memory from its first to its last."""
        return plan(self.tensor_map, self.mode).shared_bytes

    def elements(self, address: int, stores: bool = False) -> Sequence[Element]:
        """Where its elements lie, with the box at an address of shared memory."""
        where = self.coordinates, self.offsets, address
        return list(elements(self.tensor_map, self.mode, *where, stores=stores))


class TensorIssue(Issue):
    """A tensor copy: coordinates, offsets, and the map that it goes by."""

    def __init__(self, statement: Statement) -> None:
        super().__init__(statement)
        place, modifiers = statement.operands["map"], ordinary(statement).modifiers
        assert isinstance(place, Address)
        self.map_address = addresses(place)
        self.map_space = "param" if place.space.startswith("param") else ""
        (given,) = place.coordinates
        assert isinstance(given, Vector)
        self.coordinates = [reader(item, "b32") for item in given.items]
        offsets = statement.operands.get("offsets")
        self.offsets = [reader(x, "u16") for x in items_of(offsets)] if offsets else []
        self.mode = modifiers.get("mode", "") or "tile"
        self.dims = int(modifiers["dim"][0])

    def box(self, thread: Thread) -> Box:
        """The copy that a thread issues, by the map as it is now."""
        raw = memory.find(thread, self.map_space, self.map_address(thread), MAP_BYTES, 64)
        found = _decoded(bytes(raw))
        if found.rank != self.dims:
            raise Failure("tensor map", f"a map of {found.rank} dimensions in a {self.dims}d copy")
        coordinates = [_signed(read(thread)) for read in self.coordinates]
        made = plan(found, self.mode)
        if problem := place_problem(made, coordinates, self.to == "global"):
            raise Failure("tensor copy", problem)
        offsets = [read(thread) for read in self.offsets]
        return Box(found, made.mode, coordinates, offsets)


def _signed(word: int) -> int:
    return word - (1 << 32) if word >> 31 else word


def load(statement: Statement, function: Function) -> Run:
    """cp.async.bulk.tensor from global to shared memory, of one block or of several."""
    issue = TensorIssue(statement)

    def run(thread: Thread) -> None:
        box = issue.box(thread)
        for space, address, barrier in issue.targets(thread, box.room, _ALIGNMENT):
            rank = address >> RANK_BITS << RANK_BITS
            size = box.tensor_map.element_type.bytes
            for element in box.elements(address - rank):
                where = element.shared_address + rank
                poison(thread, memory.find(thread, space, where, size, 1, write=True))
            submit(thread, barrier, box.bytes, _box_loader(thread, box, space, address))

    return guarded(statement, run)


def _box_loader(thread: Thread, box: Box, space: str, address: int) -> Callable[[], None]:
    def perform() -> None:
        m = box.tensor_map
        size, outside = m.element_type.bytes, bytes(m.element_type.bytes)
        if m.fill == "nan":
            outside = OUTSIDE_NAN.to_bytes(2, "little") * (size // 2)
        rank = address >> RANK_BITS << RANK_BITS
        for element in box.elements(address - rank):
            data = outside
            if element.global_address is not None:
                raw = memory.find(thread, "global", element.global_address, size, 1)
                code = load_code(m.dtype, int.from_bytes(raw, "little"))
                data = code.to_bytes(size, "little")
            where = element.shared_address + rank
            place = memory.find(thread, space, where, size, 1, write=True)
            memory.put(thread, place, data)

    return perform


class _Reduction(NamedTuple):
    """A reduction as the rules want to know it."""

    rule: str
    types: tuple[str, ...]
    modifiers: dict[str, str]


def store(statement: Statement, function: Function) -> Run:
    """cp.async.bulk.tensor and cp.reduce.async.bulk.tensor from shared to global memory."""
    issue = TensorIssue(statement)
    assert issue.origin is not None
    origin = issue.origin
    operation = ordinary(statement).modifiers.get("operation", "")

    def run(thread: Thread) -> None:
        box, address = issue.box(thread), origin(thread)
        memory.find(thread, "shared", address, box.room, _ALIGNMENT)
        if operation and (problem := reduction_problem(operation, box.tensor_map.dtype)):
            raise Failure("tensor copy", problem)
        submit(thread, None, box.bytes, _box_storer(thread, box, address, operation))

    return guarded(statement, run)


def _box_storer(thread: Thread, box: Box, address: int, operation: str) -> Callable[[], None]:
    def perform() -> None:
        m = box.tensor_map
        size, combine = m.element_type.bytes, None
        if operation:
            types = (REDUCED[operation][m.dtype],)
            described = _Reduction("atomic.update", types, {"operation": operation})
            combine = bind_reference(described, space="global", bulk="bulk")
        inside = address & (1 << RANK_BITS) - 1
        for element in box.elements(inside, stores=True):
            if element.global_address is None:
                continue
            held = memory.find(thread, "shared", element.shared_address, size, 1)
            try:
                place = memory.find(thread, "global", element.global_address, size, 1, write=True)
            except AccessError:
                if element.behind:
                    continue  # Memory ends there: nothing shows what lies behind.
                raise
            data = bytes(held)
            if combine is not None:
                old, given = (int.from_bytes(x, "little") for x in (place, data))
                data = combine(old, given).to_bytes(size, "little")
            memory.put(thread, place, data)

    return perform


def transfer(statement: Statement, function: Function) -> Run:
    stores = "bulk_group" in words_of(statement)
    return store(statement, function) if stores else load(statement, function)


# --- editing of tensor maps -----------------------------------------------------------------------


def replace(statement: Statement, function: Function) -> Run:
    """tensormap.replace: a field of the 128 bytes at an address."""
    ins, operands = ordinary(statement), statement.operands
    field, address = ins.modifiers["field"], addresses(operands["map"])
    space = space_of(statement, operands["map"])
    value = reader(operands["value"], ins.types[-1])
    ordinal = constant(statement, "ordinal") if "ordinal" in operands else None

    def run(thread: Thread) -> None:
        place = memory.find(thread, space, address(thread), MAP_BYTES, MAP_BYTES, write=True)
        memory.put(thread, place, replace_field(bytes(place), field, value(thread), ordinal))

    return guarded(statement, run)


def copy_map(statement: Statement, function: Function) -> Together:
    """tensormap.cp_fenceproxy: 128 bytes from shared to global memory, by a whole warp."""
    target, source = (addresses(statement.operands[name]) for name in ("dst", "src"))

    def run(threads: Sequence[Thread]) -> None:
        first = threads[0]
        held = memory.find(first, "shared", source(first), MAP_BYTES, MAP_BYTES)
        place = memory.find(first, "global", target(first), MAP_BYTES, MAP_BYTES, write=True)
        memory.put(first, place, bytes(held))

    return Together(WARP, run, guard=guard_of(statement.guard))


EACH = {
    "cp.async.bulk.tensor": transfer,
    "cp.reduce.async.bulk.tensor": store,
    "tensormap.replace": replace,
}
TOGETHER = {"tensormap.cp_fenceproxy": copy_map}
