"""All engines: tensor copies and tensor maps (PTX ISA 9.7.9.27), words of opcodes, checks, edits of
maps. An engine moves the elements of a box."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from emulator.machine.shared.failure import Failure
from emulator.machine.shared.issuing import Issue, Issuer, Make, Operands, Run
from emulator.machine.shared.operands import ordinary
from emulator.memory.tensor_copy import BoxPlan, place_problem, plan
from emulator.memory.tensor_map import TensorMap
from emulator.memory.tensor_map_bits import replace_field
from emulator.memory.tensor_transfer import REDUCED, reduction_problem
from emulator.ptx.program import Address, Statement

MAP_BYTES = 128
#: what maps that copies read, and boxes in shared memory, must be aligned to
_MAP_ALIGNMENT, BOX_ALIGNMENT = 64, 128


class Reduction(NamedTuple):
    """The description of a reduction that `arith.scalar` takes."""

    rule: str
    types: tuple[str, ...]
    modifiers: dict[str, str]


class TensorCopy:
    """The words of an opcode of tensor copies."""

    def __init__(self, statement: Statement) -> None:
        modifiers, place = ordinary(statement).modifiers, statement.operands["map"]
        assert isinstance(place, Address)
        self._map_space = "param" if place.space.startswith("param") else ""
        self.mode = modifiers.get("mode", "") or "tile"
        self.dims = int(modifiers["dim"][0])
        #: whether it goes to shared memory
        self.loads = modifiers["to"] != "global"
        self._operation = modifiers.get("operation", "")
        self.reduces = bool(self._operation)

    def map_at(self, who: Issuer, address: int) -> TensorMap:
        """The map at an address, as it is now. Raises Failure for one of another rank."""
        place = who.find(self._map_space, address, MAP_BYTES, _MAP_ALIGNMENT)
        if who.watch is not None:
            who.watch.map_used(who.lanes, place.memory(), place.start)
        found = _decoded(place.bytes.tobytes())
        if found.rank != self.dims:
            raise Failure("tensor map", f"a map of {found.rank} dimensions in a {self.dims}d copy")
        return found

    def check(self, box: BoxPlan, coordinates: Sequence[int]) -> None:
        """Raises Failure where a box may not start at coordinates."""
        if problem := place_problem(box, coordinates, not self.loads):
            raise Failure("tensor copy", problem)

    def reduction(self, dtype: str) -> Reduction | None:
        """The rule that combines elements; None: they are stored. Failure for a type without it."""
        if not self.reduces:
            return None
        if problem := reduction_problem(self._operation, dtype):
            raise Failure("tensor copy", problem)
        types = (REDUCED[self._operation][dtype],)
        return Reduction("atomic.update", types, {"operation": self._operation})


@lru_cache(maxsize=256)
def _decoded(raw: bytes) -> TensorMap:
    return TensorMap.decode(raw)


class Box(NamedTuple):
    """The copy that one thread issues."""

    tensor_map: TensorMap
    plan: BoxPlan
    coordinates: list[int]
    offsets: list[int]


class TensorIssue(Issue):
    """A tensor copy of one thread: its map, coordinates, offsets, and where it goes."""

    def __init__(self, operands: Operands) -> None:
        super().__init__(operands)
        self.form = TensorCopy(operands.statement)
        self.map = operands.address("map")
        self.coordinates = operands.coordinates("map")
        self.offsets = operands.words("offsets", "u16")

    def box(self, who: Issuer) -> Box:
        """The copy that a thread issues, by the map as it is now."""
        found = self.form.map_at(who, self.map(who))
        made = plan(found, self.form.mode)
        coordinates = [_signed(read(who)) for read in self.coordinates]
        self.form.check(made, coordinates)
        return Box(found, made, coordinates, [read(who) for read in self.offsets])


def _signed(word: int) -> int:
    return word - (1 << 32) if word >> 31 else word


# --- editing of tensor maps -----------------------------------------------------------------------


def replace(operands: Operands) -> Run:
    """tensormap.replace: a field of the 128 bytes at an address."""
    field, address = operands.modifier("field"), operands.address("map")
    space, value = operands.space("map"), operands.word("value", operands.ins.types[-1])
    ordinal = operands.constant("ordinal") if "ordinal" in operands else None

    def run(who: Issuer) -> None:
        place = who.find(space, address(who), MAP_BYTES, MAP_BYTES, write=True)
        edited = replace_field(place.bytes.tobytes(), field, value(who), ordinal)
        place.bytes[:] = np.frombuffer(edited, np.uint8)
        who.advance()

    return run


def copy_map(operands: Operands) -> Run:
    """tensormap.cp_fenceproxy: 128 bytes from shared to global memory, by a whole warp."""
    target, source = operands.address("dst"), operands.address("src")

    def run(who: Issuer) -> None:
        held = who.find("shared", source(who), MAP_BYTES, MAP_BYTES)
        place = who.find("global", target(who), MAP_BYTES, MAP_BYTES, write=True)
        place.bytes[:] = held.bytes
        who.advance()

    return run


EACH: dict[str, Make] = {"tensormap.replace": replace}
BY_WARP: dict[str, Make] = {"tensormap.cp_fenceproxy": copy_map}
