"""Reference engine: runs the clusters of a launch, one after the other where they let it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product

from emulator.arith import Engine
from emulator.machine.reference import mbarriers, waiting
from emulator.machine.reference.schedule import run_cluster
from emulator.machine.reference.statements import Code
from emulator.machine.reference.thread import Block, Cluster, Run
from emulator.machine.shared.launching import RunningLaunch
from emulator.machine.shared.pending import Pending
from emulator.machine.shared.place import Index
from emulator.machine.shared.products import Products

#: matrix instructions have a reference of their own; a launch may take another
ARITHMETIC: Engine = "reference"
#: threads that are there at a time, unless those that are wait for others
_THREADS = 1 << 13
#: times that everyone may look at memory in vain before nothing will ever change; and that all who
#: wait for a phase may be let go on without it
_VAIN_TURNS, _TIME_OUTS = 4, 256


class Grid:
    """A `Launch` under way."""

    def __init__(self, launch: RunningLaunch, under_way: Run | None = None) -> None:
        self.total, self.threads = launch.total_blocks, math.prod(launch.block)
        self._run = under_way or Run(
            launch,
            launch.program,
            launch.function,
            Code(launch.program).steps(),
            launch.arena,
            launch.module.target,
            ARITHMETIC if launch.arithmetic == "auto" else launch.arithmetic,
            launch.grid,
            launch.block,
            launch.cluster,
            -(-launch.shared_bytes // 256) * 256,
            _FirstBlocks(launch.grid, launch.cluster),
        )

    @property
    def executed(self) -> int:
        """Statements, of threads that go together counted once."""
        return self._run.statements

    @property
    def thread_statements(self) -> int:
        return self._run.executed

    def run(self) -> None:
        """Runs all thread blocks; raises KernelError where one cannot go on."""
        run = self._run
        there = run.clusters
        most = max(1, _THREADS // (run.lanes_of_block * run.blocks_of_cluster))
        at = run.position
        while True:
            while at.cluster < len(there):
                run_cluster(there[at.cluster])
                at.cluster += 1
            at.cluster = 0
            there[:] = self._still_there(there)
            stuck = at.before == (run.progress, run.turns)
            coming = next(run.coming, None) if stuck or len(there) < most else None
            if coming is not None:
                there.append(self._start(coming))
                at.vain = at.time_outs = 0
            elif not there:
                return
            elif stuck and not _finish_pending(there):
                if any(cluster.waiting for cluster in there):
                    at.time_outs += 1
                else:
                    at.vain += 1
                if at.time_outs > _TIME_OUTS or at.vain > _VAIN_TURNS + at.time_outs:
                    raise waiting.deadlock(there)
                for cluster in there:
                    mbarriers.time_out(cluster)
            elif run.changes != at.changes:
                # That threads met is no change: a loop around a wait may have a barrier in it.
                at.vain, at.time_outs, at.changes = 0, 0, run.changes
            at.before = run.progress, run.turns

    def _still_there(self, clusters: list[Cluster]) -> list[Cluster]:
        """The clusters that have not ended; of the others what is under way takes effect."""
        for cluster in clusters:
            if not cluster.alive.any():
                cluster.pending.finish()
                self._run.launch.blocks_done(len(cluster.blocks))
        return [cluster for cluster in clusters if cluster.alive.any()]

    def _start(self, first: Index) -> Cluster:
        """The cluster whose first block has these coordinates."""
        run, launch = self._run, self._run.launch
        lanes = run.lanes_of_block * run.blocks_of_cluster
        order, seed = launch.async_order, launch.seed
        cluster = Cluster(run, Pending(lanes, order, seed), Products(order, seed))
        (x, y, z), (a, b, c) = first, run.cluster
        for rank, (k, j, i) in enumerate(product(range(c), range(b), range(a))):
            cluster.blocks.append(Block(cluster, (x + i, y + j, z + k), rank))
        return cluster


class _FirstBlocks:
    """The first block of each cluster, x first."""

    def __init__(self, grid: Index, cluster: Index) -> None:
        self._counts = [-(-all_ // own) for all_, own in zip(grid, cluster, strict=True)]
        self._size, self._next = cluster, 0

    def __iter__(self) -> Iterator[Index]:
        return self

    def __next__(self) -> Index:
        (x, y, z), (a, b, c), number = self._counts, self._size, self._next
        if number >= x * y * z:
            raise StopIteration
        self._next += 1
        return number % x * a, number // x % y * b, number // (x * y) * c


def _finish_pending(there: list[Cluster]) -> bool:
    """Does what was issued and nobody waits for in so many words; whether there was any."""
    done = [cluster.pending.finish() for cluster in there]
    return any(done)
