"""cp.async: threads copy a few bytes each (PTX ISA 9.7.9.25.3, 9.7.13.15.15)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtypes import Array
from emulator.machine.shared.failure import Failure
from emulator.machine.shared.groups import GROUPS, OnPending
from emulator.machine.shared.operands import constant, ordinary
from emulator.machine.shared.pending import POISON, Transfer
from emulator.machine.vector import memory
from emulator.machine.vector.compute import Step, guarded
from emulator.machine.vector.mbarriers import change, find_barriers
from emulator.machine.vector.memory import Who
from emulator.machine.vector.operands import addresses, first_position, reader, selected
from emulator.machine.vector.strand import Strand
from emulator.machine.vector.wave import Wave
from emulator.memory.arena import AccessError
from emulator.memory.mbarrier import Change
from emulator.ptx.program import Function, Statement

Int64 = NDArray[np.int64]


def copy(statement: Statement, function: Function) -> Step:
    """cp.async of 4, 8 or 16 bytes; what lies behind the size of the source becomes zeros."""
    target = addresses(statement.operands["dst"], function)
    source = addresses(statement.operands["src"], function)
    size = constant(statement, "size")
    given, left_out = (statement.operands.get(name) for name in ("source_size", "ignore"))
    used = reader(given, "u32", function) if given is not None else None
    ignored = reader(left_out, "pred", function) if left_out is not None else None

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
        if (wrong := sizes > size).any():
            reason = f"the source has {int(sizes[wrong][0])} bytes; {size} are copied"
            raise Failure("cp.async", reason, first_position(wrong, mask))
        try:
            _issue_copies(lanes, to, at, sizes, size)
        except AccessError as error:
            raise memory.at_positions(error, positions) from None

    return guarded(statement, run)


def _issue_copies(lanes: Who, to: Array, at: Array, sizes: Int64, size: int) -> None:
    held, places = memory.bytes_at(lanes, "shared", to, size, alignment=size, write=True)
    wave, some = lanes.wave, sizes > 0
    from_, sources = _sources(lanes.part(some), at[some], size, sizes[some])
    whole = bool((sizes == size).all())

    def perform(which: Int64) -> None:
        index = np.full(len(sizes), -1, np.int64)
        index[some] = sources
        chosen = index[which]
        if whole:
            data = memory.gather(from_, chosen, size)
        else:
            columns = np.arange(size)
            valid = columns < sizes[which][:, None]
            data = np.zeros(valid.shape, np.uint8)
            data[valid] = from_[(chosen[:, None] + columns)[valid]]
        held[places[which][:, None] + np.arange(size)] = data
        wave.grid.progress += 1

    if not wave.pending.at_once:
        held[places[:, None] + np.arange(size)] = POISON
    wave.pending.copy(lanes.lanes, perform)


def _sources(lanes: Who, at: Array, size: int, sizes: Int64) -> tuple[Any, Int64]:
    """Global memory, and the places in it where copies read: all their bytes must be there."""
    if not len(at):
        return np.zeros(0, np.uint8), np.zeros(0, np.int64)
    if (sizes == size).all():
        return memory.bytes_at(lanes, "global", at, size, alignment=size)
    arena = lanes.wave.grid.arena
    for one in np.unique(sizes).tolist():
        arena.bytes(at[sizes == one], one, False)
    return arena.bytes(at, 1, False)


def arrive_after_copies(statement: Statement, function: Function) -> Step:
    """cp.async.mbarrier.arrive: an arrival once the thread's copies are done; without .noinc it is
    one that was not counted before."""
    places = find_barriers(statement, function)
    noinc = ordinary(statement).modifiers.get("noinc")

    def run(s: Strand, mask: Array | None) -> None:
        wave = s.wave
        lanes = s.lanes if mask is None else s.lanes[mask]
        at = np.broadcast_to(places(s, mask), lanes.shape)
        if wave.watch is not None:
            wave.watch.copies_arrive(lanes, at)
        positions = memory.positions_of(mask)
        if not noinc:
            change(wave, at, Change(arrivals=-1), positions)
        if wave.pending.at_once:
            change(wave, at, Change(arrivals=1), positions)
            return
        for lane, place in zip(lanes.tolist(), at, strict=True):
            wave.pending.transfer(Transfer(lane, _arrival(wave, lane, place), int(place)))

    return guarded(statement, run)


def _arrival(wave: Wave, lane: int, place: Any) -> Callable[[], None]:
    def perform() -> None:
        wave.pending.wait_copies(np.array([lane]), None)
        change(wave, np.array([place]), Change(arrivals=1))

    return perform


def _by_group(make: Callable[[Statement], OnPending]) -> Callable[[Statement, Function], Step]:
    """Makes the steps of lanes that commit groups of copies, or wait for them."""

    def made(statement: Statement, function: Function) -> Step:
        act = make(statement)

        def run(s: Strand, mask: Array | None) -> None:
            act(s.wave.pending, s.lanes if mask is None else s.lanes[mask])

        return guarded(statement, run)

    return made


STEPS = {
    "cp.async": copy,
    "cp.async.mbarrier.arrive": arrive_after_copies,
    **{name: _by_group(make) for name, make in GROUPS.items()},
}
