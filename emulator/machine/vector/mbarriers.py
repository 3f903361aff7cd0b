"""Statements of mbarriers (PTX ISA 9.7.13.15): words in shared memory, and who waits for them.

A wait that is not over blocks; whoever changes a barrier looks after those that wait for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dtypes import Array
from emulator.machine.shared.failure import Failure
from emulator.machine.shared.operands import space_of
from emulator.machine.vector import memory
from emulator.machine.vector.compute import Step, guarded
from emulator.machine.vector.lanes import whole_or_split
from emulator.machine.vector.operands import (
    Write,
    addresses,
    first_position,
    reader,
    selected,
    writer,
)
from emulator.machine.vector.strand import Parked, State, Strand
from emulator.memory import mbarrier
from emulator.memory.mbarrier import MAX_COUNT, Change
from emulator.ptx.program import Function, Statement

if TYPE_CHECKING:
    from emulator.machine.vector.wave import Wave

Places = NDArray[np.int64]
#: places of barriers, for the lanes of a mask
Find = Callable[[Strand, Array | None], Places]


def find_barriers(statement: Statement, function: Function) -> Find:
    """The barriers that a statement names; see `barriers_at`."""
    bound = statement.operands["mbarrier"]
    return barriers_at(addresses(bound, function), space_of(statement, bound))


def barriers_at(find: Callable[[Strand], Array], space: str) -> Find:
    """The barriers at addresses: the numbers of their words in the shared memory of the wave.

    `space` is "cluster" where addresses have the rank of a block, and "" for generic ones. Raises
    AccessError for what cannot be a barrier.
    """

    def places(s: Strand, mask: Array | None) -> Places:
        given, positions = selected(find(s), mask), memory.positions_of(mask)
        if space == "":
            return memory.shared_places(s, "cluster", memory.to_shared(s.wave, given), 8, positions)
        return memory.shared_places(s, space, given, 8, positions)

    return places


def words_of(wave: Wave) -> Array:
    """Shared memory of a wave as 64-bit words."""
    return wave.shared.reshape(-1).view(np.uint64)


def by_position(find: Find, s: Strand, mask: Array | None) -> Places:
    """What `find` gives for the lanes of a mask, at their positions in the strand, or one for all.

    Other lanes need not hold an address of a barrier.
    """
    at = find(s, mask)
    if mask is None or len(at) == 1:
        return at
    out = np.zeros(len(s), at.dtype)
    out[mask] = at
    return out


def change(
    wave: Wave, places: Places, operation: Change, positions: memory.Positions = None
) -> Array:
    """One operation for each place, in order; what was there before each. Wakes who may go on.

    `positions` are those of the lanes in their strand, for messages.
    """
    words = words_of(wave)
    unique, which = np.unique(places, return_inverse=True)
    after, tokens, flags = mbarrier.advance_lanes(words[unique], which, operation)
    if flags.any():
        index = int(np.argmax(flags != 0))
        text = mbarrier.undefined_text(int(flags[index]), int(tokens[index]))
        raise Failure("mbarrier", text, index if positions is None else int(positions[index]))
    if wave.watch is not None:
        even = [mbarrier.parity_over(x, np.uint64(0)) for x in (words[unique], after)]
        wave.watch.sync.phases_over(unique[even[0] != even[1]])
    words[unique] = after
    wave.grid.progress += 1
    wake(wave)
    return tokens


# --- init, arrive, expect_tx, … -------------------------------------------------------------------


def initialise(statement: Statement, function: Function) -> Step:
    places = find_barriers(statement, function)
    count = reader(statement.operands["count"], "u32", function)

    def run(s: Strand, mask: Array | None) -> None:
        at, counts = places(s, mask), selected(count(s), mask)
        wrong = (counts == 0) | (counts > MAX_COUNT)
        if wrong.any():
            reason = f"a count is 1 … {MAX_COUNT}; got {int(counts[wrong][0])}"
            raise Failure("mbarrier", reason, first_position(wrong, mask))
        if s.wave.watch is not None:
            s.wave.watch.mbarrier_init(s.lanes if mask is None else s.lanes[mask], at)
        words_of(s.wave)[at] = mbarrier.init_words(np.broadcast_to(counts, at.shape))
        s.wave.grid.progress += 1

    return guarded(statement, run)


def _operation(
    statement: Statement, function: Function
) -> Callable[[Strand, Array | None], Change]:
    """What an arrival, expect_tx or complete_tx adds up to."""
    words = str(statement.instruction).split(".")
    drop, complete = "arrive_drop" in words, "noComplete" not in words
    arrives = drop or "arrive" in words

    def value(name: str) -> Callable[[Strand, Array | None], Any] | None:
        bound = statement.operands.get(name)
        if bound is None:
            return None
        read = reader(bound, "u32", function)
        return lambda s, mask: selected(read(s), mask).astype(np.int64)

    count, bytes_ = value("count"), value("bytes")

    def make(s: Strand, mask: Array | None) -> Change:
        arrivals: Any = 0
        if arrives:
            arrivals = 1 if count is None else count(s, mask)
            if (none := np.equal(arrivals, 0)).any():
                reason = "a count of arrivals is not 0"
                raise Failure("mbarrier", reason, first_position(none, mask))
        moved: Any = 0 if bytes_ is None else bytes_(s, mask)
        if "complete_tx" in words:
            moved = -moved
        return Change(arrivals, arrivals if drop else 0, moved, complete)

    return make


def arrive(statement: Statement, function: Function) -> Step:
    """arrive, arrive_drop, expect_tx, complete_tx, and arrivals that expect bytes."""
    places, make = find_barriers(statement, function), _operation(statement, function)
    bound, expects = statement.operands.get("d"), "bytes" in statement.operands
    write = writer(bound, "b64", function) if bound is not None else None

    def run(s: Strand, mask: Array | None) -> None:
        at = places(s, mask)
        lanes = len(s) if mask is None else int(mask.sum())
        if s.wave.watch is not None:
            s.wave.watch.mbarrier_used(s.lanes if mask is None else s.lanes[mask], at)
        positions = memory.positions_of(mask)
        tokens = change(s.wave, np.broadcast_to(at, (lanes,)), make(s, mask), positions)
        if write is not None:
            _put(s, write, mbarrier.token(tokens, expects), mask)

    return guarded(statement, run)


def _put(s: Strand, write: Write, words: Array, mask: Array | None) -> None:
    if mask is not None:
        whole = np.zeros(len(s), words.dtype)
        whole[mask] = words
        words = whole
    write(s, words, mask)


def pending_count(statement: Statement, function: Function) -> Step:
    read = reader(statement.operands["state"], "b64", function)
    write = writer(statement.operands["d"], "u32", function)

    def run(s: Strand, mask: Array | None) -> None:
        write(s, mbarrier.pending_count(read(s)).astype(np.uint32), mask)

    return guarded(statement, run)


def invalidate(statement: Statement, function: Function) -> Step:
    places = find_barriers(statement, function)

    def run(s: Strand, mask: Array | None) -> None:
        at = places(s, mask)
        if s.wave.watch is not None:
            s.wave.watch.mbarrier_inval(s.lanes if mask is None else s.lanes[mask], at)

    return guarded(statement, run)


# --- waiting --------------------------------------------------------------------------------------


@dataclass(eq=False)
class PhaseWait:
    """What a strand waits for: at each place the phase of a parity, or of a token."""

    places: Places
    #: tokens or parities ``(lanes,)``
    given: Array
    by_parity: bool
    write: Write

    def over(self, wave: Wave) -> Array:
        """For each lane whether its phase is over."""
        words = words_of(wave)[self.places]
        if self.by_parity:
            done: Array = mbarrier.parity_over(words, self.given.astype(np.uint64))
            return done
        done = mbarrier.phase_over(words, self.given)
        return done

    def part(self, mask: Array) -> PhaseWait:
        def cut(x: Array) -> Array:
            return x[mask] if len(x) > 1 else x

        return PhaseWait(cut(self.places), cut(self.given), self.by_parity, self.write)


def _wait_of(statement: Statement, function: Function) -> Callable[[Strand], PhaseWait]:
    places = find_barriers(statement, function)
    by_parity = "parity" in statement.signature
    bound = statement.operands["parity" if by_parity else "state"]
    given = reader(bound, "u32" if by_parity else "b64", function)
    write = writer(statement.operands["p"], "pred", function)
    return lambda s: PhaseWait(places(s, None), given(s), by_parity, write)


def test(statement: Statement, function: Function) -> Step:
    """test_wait: whether the phase is over now."""
    find = _wait_of(statement, function)

    def step(s: Strand) -> None:
        wait = find(s)
        done = wait.over(s.wave)
        _saw(s, wait, done)
        wait.write(s, done, None)

    return whole_or_split(statement, step)


def try_wait(statement: Statement, function: Function) -> Step:
    """try_wait: goes on once the phase is over, or when nothing else can happen."""
    find, pc = _wait_of(statement, function), statement.pc + 1

    def step(s: Strand) -> None:
        wait, wave = find(s), s.wave
        wave.pending.before_wait(wait.places)
        done = wait.over(wave)
        _saw(s, wait, done)
        if done.all():
            wait.write(s, np.ones(1, np.bool_), None)
            return
        # Whoever comes too early must not be told from others by the counts.
        wave.executed += 1
        wave.grid.count(1, len(s))
        if done.any():
            done = s.spread(done)
            going, staying = wave.divide(s, done, pc)
            wait.write(going, np.ones(1, np.bool_), None)
            wave.ready.append(going)
            s, wait = staying, wait.part(~done)
        wave.park(s, State.MBARRIER, wait, pc)
        raise Parked

    return whole_or_split(statement, step)


def _saw(s: Strand, wait: PhaseWait, done: Array) -> None:
    """Lanes look at mbarriers, and see those whose phase is over."""
    watch = s.wave.watch
    if watch is None:
        return
    watch.mbarrier_used(s.lanes, wait.places, arrives=False)
    seen = np.broadcast_to(done, (len(s),))
    watch.sync.waited(s.lanes[seen], np.broadcast_to(wait.places, (len(s),))[seen])


def wake(wave: Wave) -> None:
    """Lets strands go on whose phase is over."""
    for strand in list(wave.waiting):
        if strand.state is State.MBARRIER:
            _release(strand, strand.wait.over(wave), True)


def time_out(wave: Wave) -> bool:
    """Lets all that wait for a phase go on without it, as try_wait may; False if nobody does."""
    found = [strand for strand in wave.waiting if strand.state is State.MBARRIER]
    for strand in found:
        _release(strand, np.ones(1, np.bool_), False)
    return bool(found)


def _release(strand: Strand, free: Array, result: bool) -> None:
    if not free.any():
        return
    wave, wait = strand.wave, strand.wait
    if not free.all():
        wave.waiting.remove(strand)
        free = strand.spread(free)
        going, staying = wave.divide(strand, free, strand.pc)
        wave.park(staying, State.MBARRIER, wait.part(~free), strand.pc)
        wave.park(going, State.MBARRIER, wait.part(free), strand.pc)
        strand = going
    if result and wave.watch is not None:
        wave.watch.sync.waited(strand.lanes, strand.wait.places)
    wait.write(strand, np.full(1, result), None)
    wave.wake(strand)


STEPS = {
    "mbarrier.init": initialise,
    "mbarrier.inval": invalidate,
    "mbarrier.arrive": arrive,
    "mbarrier.arrive_drop": arrive,
    "mbarrier.expect_tx": arrive,
    "mbarrier.complete_tx": arrive,
    "mbarrier.pending_count": pending_count,
    "mbarrier.test_wait": test,
    "mbarrier.try_wait": try_wait,
}
