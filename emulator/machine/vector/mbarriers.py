"""Vector engine: mbarriers of a wave, words in shared memory and the strands that wait for their
phases (PTX ISA 9.7.13.15). The statements that change them are in `machine.shared.mbarriers`.

A wait that is not over blocks; whoever changes a barrier looks after those that wait for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtypes import Array
from emulator.machine.shared.failure import Failure
from emulator.machine.shared.phases import PhaseWait
from emulator.machine.shared.waiting import State
from emulator.machine.vector import memory
from emulator.machine.vector.operands import selected
from emulator.machine.vector.strand import Parked, Strand
from emulator.memory import mbarrier
from emulator.memory.arena import AccessError
from emulator.memory.mbarrier import Change

if TYPE_CHECKING:
    from emulator.machine.vector.wave import Wave

Places = NDArray[np.int64]
#: places of barriers, for the lanes of a mask
Find = Callable[[Strand, Array | None], Places]


def barriers_at(find: Callable[[Strand], Array], space: str) -> Find:
    """The barriers at addresses: the numbers of their words in the shared memory of the wave.

    `space` is "cluster" where addresses have the rank of a block, and "" for generic ones. Raises
    AccessError for what cannot be a barrier.
    """

    def places(s: Strand, mask: Array | None) -> Places:
        given, positions = selected(find(s), mask), memory.positions_of(mask)
        if space == "":
            try:
                given = memory.to_shared(s.wave, given)
            except AccessError as error:
                raise memory.at_positions(error, positions) from None
        return memory.shared_places(s, space or "cluster", given, 8, positions)

    return places


def words_of(wave: Wave) -> Array:
    """Shared memory of a wave as 64-bit words."""
    return wave.shared.reshape(-1).view(np.uint64)


def by_position(find: Find, s: Strand, mask: Array | None) -> Places:
    """Results of `find` for the lanes of a mask, at their positions in the strand, or one for all.

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
    ledger = wave.ledger[unique]
    after, tokens, flags = mbarrier.advance_lanes(words[unique], which, operation, ledger)
    if flags.any():
        index = int(np.argmax(flags != 0))
        text = mbarrier.undefined_text(int(flags[index]), int(tokens[index]))
        raise Failure("mbarrier", text, index if positions is None else int(positions[index]))
    if wave.watch is not None:
        even = [mbarrier.parity_over(x, 0) for x in (words[unique], after)]
        wave.watch.sync.phases_over(unique[even[0] != even[1]])
    words[unique], wave.ledger[unique] = after, ledger
    wave.grid.progress += 1
    wake(wave)
    return tokens


# --- waiting --------------------------------------------------------------------------------------


class Waiting(NamedTuple):
    """The phases that a strand waits for, and what is told when lanes go on: whether they are
    over."""

    phases: PhaseWait
    finish: Callable[[Strand, bool], None]

    def over(self, wave: Wave) -> Array:
        """For each lane whether its phase is over."""
        return np.asarray(self.phases.is_over(words_of(wave)[self.places]))

    @property
    def places(self) -> Places:
        return np.atleast_1d(self.phases.barriers)

    def part(self, mask: Array) -> Waiting:
        """The same of the lanes of a mask."""
        return Waiting(self.phases.part(mask), self.finish)


def wait(
    s: Strand, phases: PhaseWait, over: Array, pc: int, finish: Callable[[Strand, bool], None]
) -> None:
    """The lanes whose phase is over go on, the others wait, to go on at `pc`: then Parked is
    raised."""
    if over.all():
        finish(s, True)
        return
    # Whoever comes too early must not be told from others by the counts.
    wave = s.wave
    wave.executed += 1
    wave.grid.count(1, len(s))
    lacking = s.spread(~over)
    waiting = Waiting(phases.part(lacking), finish)
    if going := wave.hold(s, lacking, State.MBARRIER, waiting, pc, pc):
        finish(going, True)
    raise Parked


def waiting_of(strand: Strand) -> Waiting:
    """The wait of a strand that waits for phases."""
    assert isinstance(strand.wait, Waiting)
    return strand.wait


def wake(wave: Wave) -> None:
    """Lets strands go on whose phase is over."""
    for strand in list(wave.waiting):
        if strand.state is State.MBARRIER:
            _release(strand, waiting_of(strand).over(wave), True)


def time_out(wave: Wave) -> bool:
    """Lets all that wait for a phase go on without it, as try_wait may; False if nobody does."""
    found = [strand for strand in wave.waiting if strand.state is State.MBARRIER]
    for strand in found:
        _release(strand, np.ones(1, np.bool_), False)
    return bool(found)


def _release(strand: Strand, free: Array, result: bool) -> None:
    wave, wait = strand.wave, waiting_of(strand)
    going = wave.free(strand, free, wait.part)
    if going is None:
        return
    if result and wave.watch is not None:
        wave.watch.sync.waited(going.lanes, waiting_of(going).places)
    wait.finish(going, result)
    wave.wake(going)
