"""The reference engine: runs the clusters of a launch, one after the other where they let it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product
from typing import Any

from emulator.arith import Engine
from emulator.machine.reference import mbarriers, waiting
from emulator.machine.reference.schedule import run_cluster
from emulator.machine.reference.statements import Code
from emulator.machine.reference.thread import Block, Cluster, Run
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

    def __init__(self, launch: Any) -> None:
        self.total, self.threads = launch.total_blocks, math.prod(launch.block)
        self._run = Run(
            launch, launch.program, launch.function, Code(launch.program).steps(), launch.arena,
            launch.module.target,
            ARITHMETIC if launch.arithmetic == "auto" else launch.arithmetic,
            launch.grid, launch.block, launch.cluster, -(-launch.shared_bytes // 256) * 256,
            _first_blocks(launch.grid, launch.cluster),
        )  # fmt: skip

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
        vain = time_outs = changes = 0
        while True:
            before = run.progress, run.turns
            for cluster in there:
                run_cluster(cluster)
            there[:] = self._still_there(there)
            stuck = before == (run.progress, run.turns)
            coming = next(run.coming, None) if stuck or len(there) < most else None
            if coming is not None:
                there.append(self._start(coming))
                vain = time_outs = 0
            elif not there:
                return
            elif stuck and not _finish_pending(there):
                if any(cluster.waiting for cluster in there):
                    time_outs += 1
                else:
                    vain += 1
                if time_outs > _TIME_OUTS or vain > _VAIN_TURNS + time_outs:
                    raise waiting.deadlock(there)
                for cluster in there:
                    mbarriers.time_out(cluster)
            elif run.changes != changes:
                # That threads met is no change: a loop around a wait may have a barrier in it.
                vain, time_outs, changes = 0, 0, run.changes

    def _still_there(self, clusters: list[Cluster]) -> list[Cluster]:
        """The clusters that have not ended; of the others what is under way takes effect."""
        for cluster in clusters:
            if not cluster.alive:
                cluster.pending.finish()
                self._run.launch.blocks_done(len(cluster.blocks))
        return [cluster for cluster in clusters if cluster.alive]

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


def _first_blocks(grid: Index, cluster: Index) -> Iterator[Index]:
    """The first block of each cluster, x first."""
    (x, y, z), (a, b, c) = grid, cluster
    for k, j, i in product(range(0, z, c), range(0, y, b), range(0, x, a)):
        yield i, j, k


def _finish_pending(there: list[Cluster]) -> bool:
    """Does what was issued and nobody waits for in so many words; whether there was any."""
    done = [cluster.pending.finish() for cluster in there]
    return any(done)
