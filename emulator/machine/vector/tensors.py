"""Tensor copies, box by box (PTX ISA 9.7.9.27)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from dtypes import Array
from emulator.arith.scalar.rule import bind_vector
from emulator.machine.shared.issuing import OFFSET, SPACES, ranks_of, submit
from emulator.machine.shared.operands import ordinary
from emulator.machine.shared.pending import POISON
from emulator.machine.shared.tensor_maps import TensorCopy
from emulator.machine.vector import memory
from emulator.machine.vector.asynchronous import Int64
from emulator.machine.vector.compute import Step, guarded
from emulator.machine.vector.issuer import Issuer, of_lane, word_at
from emulator.machine.vector.mbarriers import barriers_at, by_position, change
from emulator.machine.vector.operands import Read, addresses, reader
from emulator.machine.vector.strand import WARP, Lanes, Strand
from emulator.machine.vector.wave import Wave
from emulator.memory.arena import AccessError, Arena
from emulator.memory.mbarrier import Change
from emulator.memory.tensor_copy import PERIOD, RUN, PlacedCopy, place_problem, plan
from emulator.memory.tensor_transfer import Combine, load_box, reduce_box, store_box
from emulator.memory.windows import LOCAL, SHARED, WINDOW_BITS
from emulator.ptx.program import Address, Function, Statement, items_of

_POISON = int.from_bytes(bytes([POISON]) * 8, "little")
#: windows in which an address means something else to each thread or block
_OWN = (SHARED >> WINDOW_BITS, LOCAL >> WINDOW_BITS)


class TensorIssue:
    """The operands of a tensor copy: coordinates, offsets, the map, and where it goes."""

    def __init__(self, statement: Statement, function: Function) -> None:
        self.form, operands = TensorCopy(statement), statement.operands
        self.reads: dict[str, Read] = {
            name: addresses(operands[name], function)
            for name in ("dst", "src", "map")
            if name in operands
        }
        if "mask" in operands:
            self.reads["mask"] = reader(operands["mask"], "u16", function)
        place = operands["map"]
        assert isinstance(place, Address)
        (given,) = place.coordinates
        self.coordinates = [reader(item, "b32", function) for item in items_of(given)]
        offsets = items_of(operands["offsets"]) if "offsets" in operands else ()
        self.offsets = [reader(item, "u16", function) for item in offsets]
        to = ordinary(statement).modifiers["to"]
        self.to = SPACES.get(to, to)
        self.barriers = None
        if "mbarrier" in operands:
            self.barriers = barriers_at(addresses(operands["mbarrier"], function), self.to)

    def values(self, s: Strand) -> dict[str, Array]:
        return {name: read(s) for name, read in self.reads.items()}

    def placed(
        self, s: Strand, values: dict[str, Array], at: Int64, lane: Issuer | None = None
    ) -> PlacedCopy:
        """The copies that threads at some positions issue, who go by one map; `lane`: who reads
        it."""
        first = int(at[0])
        with of_lane(first):
            who = lane or Issuer(s, first, [])
            tensor_map = self.form.map_at(who, word_at(values["map"], first))
        coordinates = _table(s, self.coordinates, at).astype(np.int32)
        made = plan(tensor_map, self.form.mode)
        assert tensor_map.address is not None
        if place_problem(made, coordinates, not self.form.loads):
            for i, start in zip(at.tolist(), coordinates, strict=True):
                with of_lane(i):
                    self.form.check(made, start)
        return made.at(tensor_map.address, coordinates, _table(s, self.offsets, at))


# --- several threads ---


def _chosen(words: Array, at: Int64) -> Array:
    """The words of threads at some positions; one may stand for all."""
    return words[at] if len(words) > 1 else np.broadcast_to(words, at.shape)


def _table(s: Strand, reads: list[Read], at: Int64) -> Int64:
    """Words ``(threads, operands)``."""
    words = [_chosen(read(s), at) for read in reads]
    return np.array(words, np.int64).reshape(len(reads), len(at)).T


def _at_once(s: Strand) -> bool:
    """True if copies take effect at their issue, and no check follows each of them."""
    return s.wave.pending.at_once and s.wave.watch is None


def _groups(s: Strand, mask: Array | None, maps: Array, together: bool) -> list[Int64]:
    """The positions of threads whose copies are done together: neighbours who go by one map."""
    at = np.arange(len(s)) if mask is None else np.flatnonzero(mask)
    maps = _chosen(maps, at)
    differs = maps[1:] != maps[:-1]
    if not together or np.isin(maps >> np.uint64(WINDOW_BITS), _OWN).any():
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
    who: memory.Who, box: PlacedCopy, at: Int64, space: str, addresses: Array, write: bool
) -> _Runs:
    """Places of the boxes of threads at some positions.

    The swizzle looks at addresses in the block.
    """
    wave, size = who.wave, box.plan.shared_bytes
    try:
        _, starts = memory.bytes_at(who, space, addresses, size, alignment=128, write=write)
    except AccessError as error:
        raise AccessError(replace(error.fault, index=int(at[error.fault.index]))) from None
    bases = (starts % wave.shared_bytes % PERIOD).tolist()
    runs = np.array([box.plan.run_addresses(base).reshape(-1) for base in bases])
    return _Runs(wave, (runs + (starts - bases)[:, None]) // RUN)


# --- loads and stores -----------------------------------------------------------------------------


class _Targets(NamedTuple):
    """Targets of loads: the thread that issued each, the row of a block, the address there, the
    mbarrier."""

    at: Int64
    rows: Int64
    addresses: Array
    barriers: Int64

    def part(self, i: int) -> _Targets:
        return _Targets(*(x[i : i + 1] for x in self))

    def who(self, s: Strand) -> memory.Who:
        return memory.Who(s.wave, s.lanes[self.at], self.rows)


def _targets(
    s: Strand, issue: TensorIssue, values: dict[str, Array], barriers: Int64, at: Int64
) -> _Targets:
    """Those of the threads at some positions, several for a multicast."""
    to = _Targets(at, s.wave.row(s)[at], _chosen(values["dst"], at), _chosen(barriers, at))
    if "mask" not in values:
        return to
    named = [_rows_of_multicast(s, i, word_at(values["mask"], i)) for i in at.tolist()]
    which = np.repeat(np.arange(len(at)), [len(x) for x in named])
    rows, words = np.array([x for y in named for x in y], np.int64), s.wave.shared_bytes // 8
    inside = to.addresses[which] & np.uint64(OFFSET)
    return _Targets(at[which], rows, inside, to.barriers[which] % words + rows * words)


def _rows_of_multicast(s: Strand, i: int, mask: int) -> list[int]:
    """The rows of the blocks that a mask of the thread at a position names."""
    who = Issuer(s, i, [])
    with of_lane(i):
        return [who.cluster[rank] for rank in ranks_of(who, mask)]


def tensor_load(statement: Statement, function: Function) -> Step:
    """cp.async.bulk.tensor from global to shared memory, of one block or of several."""
    issue = TensorIssue(statement, function)

    def run(s: Strand, mask: Array | None) -> None:
        values, arena = issue.values(s), s.wave.grid.arena
        assert issue.barriers is not None
        barriers = by_position(issue.barriers, s, mask)
        space = "shared" if "mask" in values else issue.to
        for group in _groups(s, mask, values["map"], _at_once(s)):
            box = issue.placed(s, values, group)
            to = _targets(s, issue, values, barriers, group)
            if _at_once(s):
                runs = _runs_of(to.who(s), box, to.at, space, to.addresses, True)
                which = np.searchsorted(group, to.at)
                runs.write(load_box(box, arena.read_rows).reshape(len(group), -1)[which])
                _signal(s, to.barriers, box.plan.bytes, to.at)
                continue
            lane = Issuer(s, int(group[0]), [])
            for i in range(len(to.at)):
                part = to.part(i)
                runs = _runs_of(part.who(s), box, part.at, space, part.addresses, True)
                if not s.wave.pending.at_once:
                    runs.words[runs.places] = _POISON
                submit(lane, int(part.barriers[0]), box.plan.bytes, _box_loader(box, arena, runs))

    return guarded(statement, run)


def _signal(s: Strand, barriers: Int64, size: int, at: Int64) -> None:
    """Copies are done: mbarriers hear of their bytes."""
    s.wave.grid.progress += 1
    change(s.wave, barriers, Change(transactions=-size), at)


def _box_loader(box: PlacedCopy, arena: Arena, target: _Runs) -> Callable[[], None]:
    return lambda: target.write(load_box(box, arena.read_rows))


def tensor_store(statement: Statement, function: Function) -> Step:
    """cp.async.bulk.tensor and cp.reduce.async.bulk.tensor from shared to global memory."""
    issue = TensorIssue(statement, function)

    def run(s: Strand, mask: Array | None) -> None:
        values = issue.values(s)
        together = s.wave.pending.at_once and not issue.form.reduces
        for group in _groups(s, mask, values["map"], together):
            alike = _alike(s, issue, values, group)
            if s.wave.watch is None:
                store(s, values, np.array([at[0] for at in alike]))
                continue
            for at in alike:
                store(s, values, at[:1], s.lanes[at])

    def store(s: Strand, values: dict[str, Array], at: Int64, alike: Lanes | None = None) -> None:
        wave, lane = s.wave, Issuer(s, int(at[0]), [], alike=alike)
        box = issue.placed(s, values, at, lane)
        if len(at) > 1 and not box.whole:
            # Boxes that reach beyond the tensor may overlap: the last one wins.
            for i in range(len(at)):
                store(s, values, at[i : i + 1])
            return
        addresses = _chosen(values["src"], at)
        who = memory.Who(wave, s.lanes[at] if alike is None else alike, wave.row(s)[at])
        runs = _runs_of(who, box, at, "shared", addresses, False)
        if wave.watch is not None:
            wave.watch.stored_by_copy(lane.lanes, _inside(box, runs))
        combine = None
        with of_lane(int(at[0])):
            if reduction := issue.form.reduction(box.plan.tensor_map.dtype):
                combine = bind_vector(reduction, space="global", bulk="bulk")
        perform = _box_storer(box, wave.grid.arena, runs, combine)
        submit(lane, None, box.plan.bytes, perform)

    return guarded(statement, run)


def _alike(s: Strand, issue: TensorIssue, values: dict[str, Array], at: Int64) -> list[Int64]:
    """Groups of neighbours who store the same: all lanes of a warp often do."""
    reads = issue.coordinates + issue.offsets
    words = [s.lanes[at] // WARP, _chosen(values["src"], at), *_table(s, reads, at).T]
    fresh = np.any([x[1:] != x[:-1] for x in words], axis=0)
    return np.split(at, np.flatnonzero(fresh) + 1)


def _inside(box: PlacedCopy, runs: _Runs) -> Int64:
    """Of the bytes of a box in shared memory those whose elements lie in the tensor."""
    places = RUN * runs.places[..., None] + np.arange(RUN)
    inside = np.repeat(box.element_inside, box.plan.element_bytes, axis=-1)
    out: Int64 = places.reshape(*box.row_inside.shape, -1)[..., : inside.shape[-1]][inside]
    return out


def _box_storer(
    box: PlacedCopy, arena: Arena, source: _Runs, combine: Combine | None
) -> Callable[[], None]:
    shape = (*box.row_inside.shape, box.plan.row_bytes)

    def perform() -> None:
        data = source.read().reshape(shape)
        if combine is None:
            store_box(box, data, arena.write_rows)
        else:
            reduce_box(box, data, arena.read_rows, arena.write_rows, combine)

    return perform


def transfer(statement: Statement, function: Function) -> Step:
    """A tensor copy, one way or the other."""
    loads = TensorCopy(statement).loads
    return tensor_load(statement, function) if loads else tensor_store(statement, function)


STEPS = {"cp.async.bulk.tensor": transfer, "cp.reduce.async.bulk.tensor": transfer}
