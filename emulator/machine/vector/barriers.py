"""Vector engine: barriers of a thread block, 16 of them (PTX ISA 9.7.13.1), over all blocks of a
wave.

A warp counts once all its lanes that have not ended have arrived; it counts as 32 threads however
many these are. A barrier without a number of threads is for all warps of the block, and warps that
have ended are not waited for.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dtypes import Array
from emulator.machine.shared.barriers import (
    BARRIERS,
    is_wrong,
    other_count,
    too_many,
    wrong_barrier,
)
from emulator.machine.shared.failure import Failure
from emulator.machine.shared.issuing import Arrival, Executor, Finish, Words
from emulator.machine.shared.waiting import State
from emulator.machine.vector.strand import WARP, Lanes, Parked, Strand

if TYPE_CHECKING:
    from emulator.machine.vector.wave import Wave


#: the lanes of a strand that go on behind a statement, as the statement knows them
After = Callable[[Strand], Executor]


class Waiting(NamedTuple):
    """The barrier that a strand waits at, and what is told the votes when it goes on."""

    barrier: int
    finish: Finish | None
    after: After


def waits_at(strand: Strand) -> int | None:
    """The barrier that a strand waits at; None: at none."""
    return strand.wait.barrier if isinstance(strand.wait, Waiting) else None


def check_barrier(numbers: Array, threads: Array) -> None:
    """Raises Failure for a barrier that lanes name which is none, or counts no whole warps."""
    wrong = np.atleast_1d(is_wrong(numbers, threads))
    if wrong.any():
        first = int(np.argmax(wrong))
        number, count = (int(x[min(first, len(x) - 1)]) for x in (numbers, threads))
        raise wrong_barrier(number, count, first)


def _of_all(s: Strand, words: Words) -> Array:
    """Words of all lanes of a strand."""
    return s.spread(np.atleast_1d(words))


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

    def arrive(self, s: Strand, arrival: Arrival, pc: int, after: After) -> None:
        """The lanes of a strand arrive, each at a barrier of its own; those that wait go on at
        `pc`. Raises Parked where some wait."""
        numbers, threads = np.atleast_1d(arrival.number), np.atleast_1d(arrival.threads)
        check_barrier(numbers, threads)
        keys = numbers + (threads << 8)
        if self._too_many(s, numbers, threads):
            # Warp by warp: those that come when the barrier is complete arrive at its next phase.
            keys = keys + ((s.lanes // WARP % self.wave.warps_per_cta) << 40)
        if len(keys) == 1 or (keys == keys[0]).all():
            self._arrive(s, int(numbers[0]), int(threads[0]), arrival, pc, after)
            return
        for key in np.unique(keys).tolist():
            mask = keys == key
            part, vote = s.part(mask, pc), arrival.vote
            mine = arrival if vote is None else arrival._replace(vote=_of_all(s, vote)[mask])
            try:
                self._arrive(part, key & 255, key >> 8 & 0xFFFFFFFF, mine, pc, after)
            except Parked:
                continue
            except Failure as error:
                raise Failure(error.kind, error.reason, int(np.argmax(mask))) from None
            s.wave.ready.append(part)
        raise Parked

    def _too_many(self, s: Strand, numbers: Array, threads: Array) -> bool:
        """True if more lanes of a block may arrive together than a barrier still waits for."""
        if not threads.any():
            return False
        rows = self.wave.row(s)
        here = self.arrived[rows, numbers] + np.bincount(rows)[rows]
        return bool((here > np.where(threads > 0, threads, len(s))).any())

    def _arrive(
        self, s: Strand, barrier: int, threads: int, arrival: Arrival, pc: int, after: After
    ) -> None:
        """All lanes of a strand arrive at one barrier."""
        self._check(s, barrier, threads)
        wave = self.wave
        rows = wave.row(s)
        if arrival.vote is not None:
            vote = _of_all(s, arrival.vote).astype(np.int64)
            np.add.at(self.votes[:, barrier, 0], rows, 1)
            np.add.at(self.votes[:, barrier, 1], rows, vote)
        if wave.watch is not None:
            wave.watch.sync.arrive(s, barrier, waits=arrival.waits, pc=pc - 1)
        blocks = self._count(s, barrier)
        self.expected[blocks, barrier] = threads
        if arrival.waits:
            wave.park(s, State.BARRIER, Waiting(barrier, arrival.finish, after), pc)
        self._complete(blocks, barrier)
        if arrival.waits:
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
            if isinstance(strand.wait, Waiting) and strand.wait.barrier == barrier:
                self._release(strand, strand.wait, done, votes)

    def _all(self, blocks: Lanes) -> Lanes:
        """Threads of the warps that have not ended, 32 for each."""
        wave = self.wave
        alive = wave.alive.reshape(len(wave.ctas), wave.warps_per_cta, WARP)[blocks].any(-1)
        return alive.sum(-1) * WARP

    def _release(self, strand: Strand, wait: Waiting, done: Lanes, votes: Array) -> None:
        wave = self.wave
        going = wave.free(strand, np.isin(wave.row(strand), done))
        if going is None:
            return
        if wait.finish is not None:
            voted, true = votes[wave.row(going)].T
            wait.finish(wait.after(going), voted, true)
        wave.wake(going)
