"""Vector engine: the barrier of a cluster (PTX ISA 9.7.13.4), over all clusters of a wave.

A thread arrives, does other things, and waits; the phase is over when all threads of all blocks of
the cluster that have not ended have arrived.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from emulator.machine.shared.barriers import arrives_twice, waits_early
from emulator.machine.shared.waiting import State
from emulator.machine.vector.strand import Lanes, Parked, Strand

if TYPE_CHECKING:
    from emulator.machine.vector.wave import Wave


class Clusters:
    """The barriers of the clusters of a wave."""

    def __init__(self, wave: Wave) -> None:
        self.wave = wave
        blocks = len(wave.ctas)
        self.size = math.prod(wave.grid.cluster)
        self.phase = np.zeros(blocks // self.size, np.int64)

    @cached_property
    def arrived(self) -> Lanes:
        """Of each lane the phase that it has arrived in; -1: it has not."""
        return np.full(len(self.wave.thread), -1, np.int64)

    def of_lanes(self, lanes: Lanes) -> Lanes:
        """The cluster of each lane."""
        return lanes // (self.wave.lanes_per_cta * self.size)

    def arrive(self, s: Strand) -> None:
        clusters = self.of_lanes(s.lanes)
        again = self.arrived[s.lanes] >= 0
        if again.any():
            raise arrives_twice(int(np.argmax(again)))
        self.arrived[s.lanes] = self.phase[clusters]
        if self.wave.watch is not None:
            self.wave.watch.cluster_arrive(s.lanes)
        self._complete(np.unique(clusters))

    def wait(self, s: Strand, pc: int) -> None:
        """Goes on once the phase that the lanes arrived in is over; raises Parked where not yet."""
        phases = self.arrived[s.lanes]
        if (phases < 0).any():
            raise waits_early(int(np.argmax(phases < 0)))
        done = self.phase[self.of_lanes(s.lanes)] > phases
        if done.all():
            self._passed(s)
            return
        if going := self.wave.hold(s, ~done, State.CLUSTER, None, pc, pc):
            self._passed(going)
        raise Parked

    def _passed(self, s: Strand) -> None:
        """The phase that lanes arrived in is over, and they know it."""
        self.arrived[s.lanes] = -1
        if self.wave.watch is not None:
            self.wave.watch.sync.wait_at_cluster(s.lanes)

    def lanes_ended(self, lanes: Lanes) -> None:
        """Threads that have ended are not waited for."""
        self._complete(np.unique(self.of_lanes(lanes)))

    def _complete(self, clusters: Lanes) -> None:
        wave = self.wave
        per_cluster = wave.lanes_per_cta * self.size
        arrived = (self.arrived >= 0) & (self.arrived == np.repeat(self.phase, per_cluster))
        missing = (wave.alive & ~arrived).reshape(-1, per_cluster).any(1)
        some = arrived.reshape(-1, per_cluster).any(1)
        done = clusters[~missing[clusters] & some[clusters]]
        if not done.size:
            return
        self.phase[done] += 1
        if wave.watch is not None:
            wave.watch.sync.cluster_phase_over(done)
        wave.grid.progress += 1
        wave.grid.meetings += 1
        for strand in list(wave.waiting):
            if strand.state is State.CLUSTER:
                self._release(strand)

    def _release(self, strand: Strand) -> None:
        wave = self.wave
        free = self.phase[self.of_lanes(strand.lanes)] > self.arrived[strand.lanes]
        if going := wave.free(strand, free):
            self._passed(going)
            wave.wake(going)
