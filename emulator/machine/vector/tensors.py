"""Vector engine: tensor copies, box by box (PTX ISA 9.7.9.27)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, cast

import numpy as np

from dtypes import Array
from emulator.arith.scalar.rule import bind_vector
from emulator.machine.shared.issuing import OFFSET, Operands, ranks_of, submit
from emulator.machine.shared.pending import POISON
from emulator.machine.shared.tensor_maps import TensorIssue
from emulator.machine.vector import memory
from emulator.machine.vector.compute import Step, guarded
from emulator.machine.vector.issuer import Issuer, of_lane, readers
from emulator.machine.vector.mbarriers import change
from emulator.machine.vector.memory import Places
from emulator.machine.vector.strand import WARP, Lanes, Strand
from emulator.machine.vector.wave import Wave
from emulator.memory.arena import AccessError, Arena
from emulator.memory.mbarrier import Change
from emulator.memory.tensor_copy import PERIOD, RUN, PlacedCopy, place_problem, plan
from emulator.memory.tensor_transfer import Combine, load_box, reduce_box, store_box
from emulator.memory.windows import LOCAL, SHARED, WINDOW_BITS
from emulator.ptx.program import Function, Statement

_POISON = int.from_bytes(bytes([POISON]) * 8, "little")
#: windows in which an address means something else to each thread or block
_OWN = (SHARED >> WINDOW_BITS, LOCAL >> WINDOW_BITS)


class _Copies:
    """The tensor copies that lanes of a strand issue, with the words of their operands."""

    def __init__(self, s: Strand, issue: TensorIssue, words: list[Array]) -> None:
        self.strand, self.issue, self._words = s, issue, words

    def word(self, place: int) -> Any:
        return self._words[place]

    def of(self, read: Callable[[_Copies], int] | None, at: Places) -> Array:
        """The words of an operand in lanes at some positions."""
        assert read is not None
        words = cast(Array, read(self))
        return words[at] if len(words) > 1 else np.broadcast_to(words, at.shape)

    def table(self, reads: Sequence[Callable[[_Copies], int]], at: Places) -> Places:
        """Words ``(lanes, operands)``."""
        words = [self.of(read, at) for read in reads]
        return np.array(words, np.int64).reshape(len(reads), len(at)).T

    def groups(self, mask: Array | None, together: bool) -> list[Places]:
        """The positions of lanes whose copies are done together: neighbours who go by one map."""
        at = np.arange(len(self.strand)) if mask is None else np.flatnonzero(mask)
        maps = self.of(self.issue.map, at)
        differs = maps[1:] != maps[:-1]
        if not together or np.isin(maps >> np.uint64(WINDOW_BITS), _OWN).any():
            differs[:] = True
        return np.split(at, np.flatnonzero(differs) + 1)

    def placed(self, at: Places, lane: Issuer | None = None) -> PlacedCopy:
        """The copies of lanes at some positions, who go by one map; `lane`: who reads it."""
        form, first = self.issue.form, int(at[0])
        with of_lane(first):
            who = lane or Issuer(self.strand, first, [])
            tensor_map = form.map_at(who, int(self.of(self.issue.map, at)[0]))
        coordinates = self.table(self.issue.coordinates, at).astype(np.int32)
        made = plan(tensor_map, form.mode)
        assert tensor_map.address is not None
        if place_problem(made, coordinates, not form.loads):
            for i, start in zip(at.tolist(), coordinates, strict=True):
                with of_lane(i):
                    form.check(made, start)
        return made.at(tensor_map.address, coordinates, self.table(self.issue.offsets, at))


def _at_once(s: Strand) -> bool:
    """True if copies take effect at their issue, and no check follows each of them."""
    return s.wave.pending.at_once and s.wave.watch is None


class _Runs(NamedTuple):
    """Boxes in shared memory of a wave, by 16 bytes."""

    wave: Wave
    #: ``(boxes, runs)``: their places
    places: Places

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
    who: memory.Who, box: PlacedCopy, at: Places, space: str, addresses: Array, write: bool
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

    at: Places
    rows: Places
    addresses: Array
    barriers: Places

    def part(self, i: int) -> _Targets:
        return _Targets(*(x[i : i + 1] for x in self))

    def who(self, s: Strand) -> memory.Who:
        return memory.Who(s.wave, s.lanes[self.at], self.rows)


def _targets(copies: _Copies, at: Places) -> _Targets:
    """Those of the threads at some positions, several for a multicast."""
    s, issue = copies.strand, copies.issue
    barriers = copies.of(issue.barrier, at)
    to = _Targets(at, s.wave.row(s)[at], copies.of(issue.target, at), barriers)
    if issue.mask is None:
        return to
    masks = copies.of(issue.mask, at).tolist()
    named = [_rows_of_multicast(s, i, mask) for i, mask in zip(at.tolist(), masks, strict=True)]
    which = np.repeat(np.arange(len(at)), [len(x) for x in named])
    rows, words = np.array([x for y in named for x in y], np.int64), s.wave.shared_bytes // 8
    inside = to.addresses[which] & np.uint64(OFFSET)
    return _Targets(at[which], rows, inside, to.barriers[which] % words + rows * words)


def _rows_of_multicast(s: Strand, i: int, mask: int) -> list[int]:
    """The rows of the blocks that a mask of the thread at a position names."""
    who = Issuer(s, i, [])
    with of_lane(i):
        return [who.cluster[rank] for rank in ranks_of(who, mask)]


def _load(copies: _Copies, mask: Array | None) -> None:
    """cp.async.bulk.tensor from global to shared memory, of one block or of several."""
    s, issue = copies.strand, copies.issue
    arena, space = s.wave.grid.arena, issue.to if issue.mask is None else "shared"
    for group in copies.groups(mask, _at_once(s)):
        box, to = copies.placed(group), _targets(copies, group)
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


def _signal(s: Strand, barriers: Places, size: int, at: Places) -> None:
    """Copies are done: mbarriers hear of their bytes."""
    s.wave.grid.progress += 1
    change(s.wave, barriers, Change(transactions=-size), at)


def _box_loader(box: PlacedCopy, arena: Arena, target: _Runs) -> Callable[[], None]:
    return lambda: target.write(load_box(box, arena.read_rows))


def _store(copies: _Copies, mask: Array | None) -> None:
    """cp.async.bulk.tensor and cp.reduce.async.bulk.tensor from shared to global memory."""
    wave = copies.strand.wave
    for group in copies.groups(mask, wave.pending.at_once and not copies.issue.form.reduces):
        alike = _alike(copies, group)
        if wave.watch is None:
            _store_some(copies, np.array([at[0] for at in alike]))
            continue
        for at in alike:
            _store_some(copies, at[:1], copies.strand.lanes[at])


def _store_some(copies: _Copies, at: Places, alike: Lanes | None = None) -> None:
    s, form, wave = copies.strand, copies.issue.form, copies.strand.wave
    lane = Issuer(s, int(at[0]), [], alike=alike)
    box = copies.placed(at, lane)
    if len(at) > 1 and not box.whole:
        # Boxes that reach beyond the tensor may overlap: the last one wins.
        for i in range(len(at)):
            _store_some(copies, at[i : i + 1])
        return
    who = memory.Who(wave, s.lanes[at] if alike is None else alike, wave.row(s)[at])
    runs = _runs_of(who, box, at, "shared", copies.of(copies.issue.origin, at), False)
    if wave.watch is not None:
        wave.watch.stored_by_copy(lane.lanes, _inside(box, runs))
    combine = None
    with of_lane(int(at[0])):
        if reduction := form.reduction(box.plan.tensor_map.dtype):
            combine = bind_vector(reduction, space="global", bulk="bulk")
    submit(lane, None, box.plan.bytes, _box_storer(box, wave.grid.arena, runs, combine))


def _alike(copies: _Copies, at: Places) -> list[Places]:
    """Groups of neighbours who store the same: all lanes of a warp often do."""
    issue = copies.issue
    words = [copies.strand.lanes[at] // WARP, copies.of(issue.origin, at)]
    words += [*copies.table(issue.coordinates + issue.offsets, at).T]
    fresh = np.any([x[1:] != x[:-1] for x in words], axis=0)
    return np.split(at, np.flatnonzero(fresh) + 1)


def _inside(box: PlacedCopy, runs: _Runs) -> Places:
    """Of the bytes of a box in shared memory those whose elements lie in the tensor."""
    places = RUN * runs.places[..., None] + np.arange(RUN)
    inside = np.repeat(box.element_inside, box.plan.element_bytes, axis=-1)
    out: Places = places.reshape(*box.row_inside.shape, -1)[..., : inside.shape[-1]][inside]
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
    operands = Operands(statement, bind_vector)
    issue = TensorIssue(operands)
    reads, run = readers(operands, function), _load if issue.form.loads else _store

    def under(s: Strand, mask: Array | None) -> None:
        run(_Copies(s, issue, [read(s, mask) for read in reads]), mask)

    return guarded(statement, under)


STEPS = {"cp.async.bulk.tensor": transfer, "cp.reduce.async.bulk.tensor": transfer}
