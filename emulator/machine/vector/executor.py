"""Vector engine: all lanes of a strand that execute a statement, as the statements of
`machine.shared` ask for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, cast

import numpy as np

from dtypes import Array
from emulator.arith.scalar.atomic_series import Series
from emulator.arith.scalar.rule import bind_arrays, bind_vector
from emulator.arith.scalar.types import TYPES
from emulator.isa.ordinary.instruction import OrdinaryInstruction
from emulator.machine.shared.arrivals import BARRIERS
from emulator.machine.shared.failure import Failure
from emulator.machine.shared.issuing import Arrival, LaneOperands, MakeAtOnce, Places
from emulator.machine.shared.issuing import Write as SharedWrite
from emulator.machine.shared.operands import Words
from emulator.machine.shared.pending import POISON
from emulator.machine.shared.phases import PhaseWait
from emulator.machine.shared.waiting import BarrierWait, State
from emulator.machine.vector import mbarriers, memory
from emulator.machine.vector.atomics import Update, update
from emulator.machine.vector.compute import Masked, Step, guarded
from emulator.machine.vector.issuer import readers
from emulator.machine.vector.lanes import whole_or_split
from emulator.machine.vector.memory import Positions, Who
from emulator.machine.vector.operands import Write, selected, writer
from emulator.machine.vector.strand import Parked, Strand
from emulator.memory.arena import AccessError, Arena
from emulator.memory.mbarrier import Change, init_words
from emulator.memory.multicast import OfDevices
from emulator.memory.windows import RANK_BITS
from emulator.ptx.program import Function, Statement


class Executor:
    """The lanes of a mask, or all of a strand, with words and writers of the operands that their
    statement asks for: an `Executor` of `machine.shared.issuing`."""

    def __init__(
        self,
        strand: Strand,
        mask: Array | None,
        words: Sequence[Array],
        writes: Sequence[tuple[Write, np.dtype[Any]]],
        pc: int,
    ) -> None:
        self.strand, self.mask, self.wave, self.pc = strand, mask, strand.wave, pc
        self.words, self.writes = words, writes
        self.pending, self.watch = self.wave.pending, self.wave.watch
        self.cluster_size = self.wave.cluster_size

    @property
    def arena(self) -> Arena:
        return self.wave.grid.arena

    @cached_property
    def positions(self) -> Positions:
        """Where the lanes stand in their strand; None: they are all of it."""
        return memory.positions_of(self.mask)

    @cached_property
    def lanes(self) -> Places:
        return self.strand.lanes if self.positions is None else self.strand.lanes[self.positions]

    @property
    def ranks(self) -> Array:
        return selected(memory.shared_rank(self.strand) >> RANK_BITS, self.mask)

    def word(self, place: int) -> Array:
        return self.words[place]

    def write(self, place: int, words: Words) -> None:
        write, dtype = self.writes[place]
        words = np.ascontiguousarray(words, dtype)
        if self.mask is not None and len(words) > 1:
            whole = np.zeros(len(self.strand), dtype)
            whole[self.positions] = words
            words = whole
        write(self.strand, words, self.mask)

    def spread(self, words: Words, dtype: type[np.unsignedinteger]) -> Array:
        return np.broadcast_to(np.asarray(words, dtype), self.lanes.shape)

    # --- memory ---

    def _which(self, which: Places) -> Places:
        """Positions in the strand of some of the lanes."""
        return which if self.positions is None else self.positions[which]

    def load(self, space: str, addresses: Array, size: int, which: Places) -> Array:
        words = memory.load(self.strand, space, addresses, size, self._which(which))
        return np.ascontiguousarray(words).view(np.uint8).reshape(len(addresses), size)

    def store(self, space: str, addresses: Array, raw: Array, which: Places, size: int) -> None:
        which = self._which(which)
        memory.store(self.strand, space, addresses, _words_of(raw), which, size)

    def update(self, addresses: Array, ins: OrdinaryInstruction, raw: Array, which: Places) -> None:
        type_ = TYPES[ins.types[-1]]
        series, count = Series(type_, ins.modifiers["operation"]), raw.shape[1] * 8 // type_.size
        operation = Update(bind_arrays(ins, space="global"), series, count, False)
        words = (_words_of(raw),)
        update(self.strand, "global", addresses, words, operation, self._which(which))

    def of_devices(self, addresses: Array, size: int) -> Iterator[OfDevices]:
        try:
            yield from self.arena.of_devices(addresses, size)
        except AccessError as error:
            raise memory.at_positions(error, self.positions) from None

    def copy(self, to: Words, source: Words, sizes: Words, size: int) -> None:
        try:
            self._copy(
                self.spread(to, np.uint64),
                self.spread(source, np.uint64),
                np.broadcast_to(sizes, self.lanes.shape),
                size,
            )
        except AccessError as error:
            raise memory.at_positions(error, self.positions) from None

    def _copy(self, to: Array, source: Array, sizes: Places, size: int) -> None:
        lanes, wave = memory.who(self.strand, self.positions), self.wave
        held, places = memory.bytes_at(lanes, "shared", to, size, alignment=size, write=True)
        some = sizes > 0
        from_, sources = _sources(lanes.part(some), source[some], size, sizes[some])
        whole = bool((sizes == size).all())

        def perform(which: Places) -> None:
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

    # --- the stack ---

    @property
    def stack_top(self) -> Words:
        top = self.strand.frames[-1].top
        return top if isinstance(top, int) else selected(top, self.mask)

    def set_stack(self, end: Words) -> None:
        frame = self.strand.frames[-1]
        ends = np.asarray(end, np.int64)
        if ends.size == 1 and self.mask is None:
            frame.stack = int(ends.reshape(-1)[0])
            return
        held = np.array(np.broadcast_to(frame.stack, len(self.strand)), np.int64)
        held[self.positions if self.positions is not None else ...] = ends
        frame.stack = held

    def need_local(self, size: int) -> None:
        self.strand.need_local(size)

    # --- mbarriers ---

    def change_barriers(self, barriers: Words, by: Change) -> Array:
        one = isinstance(barriers, int)
        at = np.array([barriers]) if one else np.broadcast_to(barriers, self.lanes.shape)
        return mbarriers.change(self.wave, at, by)

    def barrier_words(self, barriers: Words) -> Array:
        words: Array = mbarriers.words_of(self.wave)[barriers]
        return words

    # --- waiting, of whole strands ---

    def _after(self, strand: Strand) -> Executor:
        """Lanes of the strand that go on behind the statement."""
        return Executor(strand, None, (), self.writes, self.pc)

    def wait_for(self, wait: PhaseWait, over: Words, write: SharedWrite) -> None:
        def finish(strand: Strand, done: Words) -> None:
            write(self._after(strand), done)

        mbarriers.wait(self.strand, wait, np.asarray(over), self.pc + 1, finish)

    def arrive(self, arrival: Arrival) -> None:
        s, wave, finish = self.strand, self.wave, arrival.finish
        if arrival.waits and finish is None and _passes(s, arrival):
            wave.grid.progress += 1
            wave.grid.meetings += 1
            wave.count(-1, len(s))  # statements behind which lanes wait are not counted
            return

        def goes_on(going: Strand, voted: Words, true: Words) -> None:
            assert finish is not None
            finish(self._after(going), voted, true)

        def stop(mask: Array | None, number: int) -> None:
            part = s if mask is None else s.part(mask, self.pc + 1)
            if arrival.waits:
                wait = BarrierWait(number, goes_on if finish else None)
                wave.park(part, State.BARRIER, wait, self.pc + 1)
            elif part is not s:
                wave.ready.append(part)

        wave.barriers.arrive(s.lanes, wave.warps_of(s), arrival, self.pc, stop)
        if arrival.waits or s.state is State.SPLIT:
            # Where the barrier is complete already, the strand has been woken.
            raise Parked

    def arrive_in_cluster(self) -> None:
        self.wave.clusters.arrive(self.strand.lanes)

    def wait_in_cluster(self) -> None:
        s, wave, following = self.strand, self.wave, self.pc + 1
        lacking = wave.clusters.lacking(s.lanes)
        if not lacking.any():
            wave.clusters.passed(s.lanes)
            return
        if going := wave.hold(s, lacking, State.CLUSTER, None, following, following):
            wave.clusters.passed(going.lanes)
        raise Parked

    def put_barriers(self, barriers: Words, counts: Words, layout: int) -> None:
        wave, each = self.wave, np.broadcast_to(counts, np.shape(barriers))
        mbarriers.words_of(wave)[barriers] = init_words(each, layout)
        wave.ledger[barriers] = 0
        wave.grid.progress += 1


def _passes(s: Strand, arrival: Arrival) -> bool:
    """True if a barrier of whole blocks is complete as soon as a strand arrives, and lets nobody
    else go on: then nothing has to be counted."""
    wave, number = s.wave, np.asarray(arrival.number)
    if wave.ready or wave.watch is not None or wave.grid.schedule is not None:
        return False
    if np.any(arrival.threads) or number.size > 1 or not number.item() < BARRIERS:
        return False
    return bool(wave.barriers.is_idle) and wave.has_whole_blocks(s)


def _words_of(raw: Array) -> Array:
    """Bytes ``(n, size)`` as words ``(n,)``, or ``(n, words of 8 bytes)``."""
    words = np.ascontiguousarray(raw).view(f"u{min(raw.shape[1], 8)}")
    return words if raw.shape[1] > 8 else words[:, 0]


def _sources(lanes: Who, at: Array, size: int, sizes: Places) -> tuple[Array, Places]:
    """Global memory, and the places in it where copies read: all their bytes must be there."""
    if not len(at):
        return np.zeros(0, np.uint8), np.zeros(0, np.int64)
    if (sizes == size).all():
        return memory.bytes_at(lanes, "global", at, size, alignment=size)
    arena = lanes.wave.grid.arena
    for one in np.unique(sizes).tolist():
        arena.bytes(at[sizes == one], one, False)
    held, places = arena.bytes(at, 1, False)
    return cast(Array, held), places


#: a statement that all engines share, of an `Executor` or a `Meeting`
_Make = Callable[[LaneOperands], Callable[[Executor], None]]


def _masked(make: _Make, statement: Statement, function: Function) -> Masked:
    """A statement that all engines share, for the lanes of a mask."""
    operands, pc = LaneOperands(statement, bind_vector), statement.pc
    run = make(operands)
    reads = readers(operands, function)
    writes = [
        (writer(bound, type_, function), TYPES[type_].dtype) for bound, type_ in operands.results
    ]

    def under(s: Strand, mask: Array | None) -> None:
        words = [selected(read(s, mask), mask) for read in reads]
        try:
            run(Executor(s, mask, words, writes, pc))
        except Failure as failure:
            if failure.index is None or mask is None:
                raise
            index = int(np.flatnonzero(mask)[failure.index])
            raise Failure(failure.kind, failure.reason, index) from None

    return under


def _at_once(make: MakeAtOnce, statement: Statement, function: Function) -> Step:
    return guarded(statement, _masked(make, statement, function))


def _may_wait(make: _Make, statement: Statement, function: Function) -> Step:
    run = _masked(make, statement, function)
    return whole_or_split(statement, lambda s: run(s, None))


def at_once(makes: Mapping[str, MakeAtOnce]) -> dict[str, Callable[[Statement, Function], Step]]:
    """The steps of all lanes for a table of statements."""
    return {name: partial(_at_once, make) for name, make in makes.items()}


def waiting(makes: Mapping[str, _Make]) -> dict[str, Callable[[Statement, Function], Step]]:
    """The same of statements behind which lanes may wait."""
    return {name: partial(_may_wait, make) for name, make in makes.items()}
