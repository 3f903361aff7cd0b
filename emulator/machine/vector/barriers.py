"""Vector engine: barriers of a thread block, 16 of them (PTX ISA 9.7.13.1), over all blocks of a
wave.

A warp counts once all its lanes that have not ended have arrived; it counts as 32 threads however
many these are. A barrier without a number of threads is for all warps of the block, and warps that
have ended are not waited for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from dtypes import Array
from emulator.machine.shared.barriers import (
    BARRIERS,
    is_wrong,
    other_count,
    too_many,
    wrong_barrier,
)
from emulator.machine.vector.strand import WARP, Lanes, Parked, State, Strand

if TYPE_CHECKING:
    from emulator.machine.vector.wave import Wave


@dataclass(eq=False)
class Waiting:
    """The condition that a strand waits for at a barrier."""

    barrier: int
    #: called with the strand, and with what the barrier computed for each lane, when it goes on
    finish: Callable[[Strand, Array], None] | None


def check_barrier(numbers: Array, threads: Array) -> None:
    """Raises Failure for a barrier that lanes name which is none, or counts no whole warps."""
    wrong = np.atleast_1d(is_wrong(numbers, threads))
    if wrong.any():
        first = int(np.argmax(wrong))
        number, count = (int(x[min(first, len(x) - 1)]) for x in (numbers, threads))
        raise wrong_barrier(number, count, first)


class Barriers:
    """The barriers of the blocks of a wave; arrays are ``(blocks, 16)``."""

    def __init__(self, wave: Wave) -> None:
        self.wave = wave
        #: anybody has arrived since the wave started
        self._used = False

    @cached_property
    def arrived(self) -> Lanes:
        """Threads that have arrived, in whole warps."""
        return np.zeros((len(self.wave.ctas), BARRIERS), np.int64)

    @cached_property
    def expected(self) -> Lanes:
        """Threads that are expected; 0: all."""
        return np.zeros_like(self.arrived)

    @cached_property
    def partly(self) -> Array:
        """Lanes of warps that have arrived in part."""
        return np.zeros((len(self.wave.thread) // WARP, BARRIERS), np.uint32)

    @cached_property
    def votes(self) -> Array:
        """Of bar.red: lanes that have voted, and those that voted true."""
        return np.zeros((len(self.wave.ctas), BARRIERS, 2), np.int64)

    @property
    def is_idle(self) -> bool:
        """True if nobody has arrived anywhere: most waves of native code need not look."""
        return not (self._used and (self.arrived.any() or self.partly.any()))

    # --- arriving ---

    def arrive(
        self,
        s: Strand,
        barrier: int,
        threads: int,
        pc: int,
        *,
        waits: bool = True,
        vote: Array | None = None,
        finish: Callable[[Strand, Array], None] | None = None,
    ) -> None:
        """All lanes of a strand arrive; with `waits` the strand goes on at `pc` once it may.

        Raises Parked where it waits.
        """
        self._check(s, barrier, threads)
        wave = self.wave
        rows = wave.row(s)
        if vote is not None:
            np.add.at(self.votes[:, barrier, 0], rows, 1)
            np.add.at(self.votes[:, barrier, 1], rows, vote.astype(np.int64))
        if wave.watch is not None:
            wave.watch.sync.arrive(s, barrier, waits=waits, pc=pc - 1)
        blocks = self._count(s, barrier)
        self.expected[blocks, barrier] = threads
        if waits:
            wave.park(s, State.BARRIER, Waiting(barrier, finish), pc)
        self._complete(blocks, barrier)
        if waits:
            # Where the barrier is complete already, the strand has been woken.
            raise Parked

    def _check(self, s: Strand, barrier: int, threads: int) -> None:
        blocks = np.unique(self.wave.row(s))
        open_ = (self.arrived[blocks, barrier] > 0) & (self.expected[blocks, barrier] != threads)
        if open_.any():
            other = int(self.expected[blocks, barrier][open_][0])
            first = int(np.argmax(np.isin(self.wave.row(s), blocks[open_])))
            raise other_count(barrier, threads, other, first)

    def _count(self, s: Strand, barrier: int) -> Lanes:
        """Counts the warps whose lanes are all there; the blocks that they belong to."""
        self._used, wave = True, self.wave
        warps = wave.warps_of(s)
        bits = self.partly[warps.numbers, barrier] | warps.bits
        whole = bits == wave.alive_bits(warps.numbers)
        self.partly[warps.numbers, barrier] = np.where(whole, 0, bits)
        blocks = warps.numbers // wave.warps_per_cta
        np.add.at(self.arrived, (blocks[whole], barrier), WARP)
        return np.unique(blocks)

    def lanes_ended(self, lanes: Lanes) -> None:
        """Lanes ended: what waited for them may be complete."""
        wave = self.wave
        warps = np.unique(lanes // WARP)
        for barrier in range(BARRIERS):
            held = self.partly[warps, barrier]
            whole = (held != 0) & (held == self.wave.alive_bits(warps))
            if whole.any():
                self.partly[warps[whole], barrier] = 0
                np.add.at(self.arrived, (warps[whole] // wave.warps_per_cta, barrier), WARP)
        blocks = np.unique(warps // wave.warps_per_cta)
        for barrier in np.flatnonzero(self.arrived[blocks].any(0)).tolist():
            self._complete(blocks, barrier)

    # --- going on ---

    def _complete(self, blocks: Lanes, barrier: int) -> None:
        """Lets go on whoever waits at a barrier that all have reached."""
        wanted = self.expected[blocks, barrier]
        wanted = np.where(wanted > 0, wanted, self._all(blocks))
        reached = self.arrived[blocks, barrier]
        done = blocks[(reached >= wanted) & (reached > 0)]
        if not done.size:
            return
        if (reached > wanted).any():
            raise too_many(barrier, int(reached.max()), int(wanted[reached > wanted][0]))
        if self.wave.watch is not None:
            self.wave.watch.sync.complete(done, barrier)
        votes = self.votes[:, barrier].copy()
        self.wave.grid.progress += 1
        self.wave.grid.meetings += 1
        self.arrived[done, barrier] = 0
        self.votes[done, barrier] = 0
        for strand in list(self.wave.waiting):
            if strand.state is State.BARRIER and strand.wait.barrier == barrier:
                self._release(strand, done, votes)

    def _all(self, blocks: Lanes) -> Lanes:
        """Threads of the warps that have not ended, 32 for each."""
        wave = self.wave
        alive = wave.alive.reshape(len(wave.ctas), wave.warps_per_cta, WARP)[blocks].any(-1)
        return alive.sum(-1) * WARP

    def _release(self, strand: Strand, done: Lanes, votes: Array) -> None:
        wave = self.wave
        wait: Waiting = strand.wait
        going = wave.free(strand, np.isin(wave.row(strand), done))
        if going is None:
            return
        if wait.finish is not None:
            wait.finish(going, votes[wave.row(going)])
        wave.wake(going)
