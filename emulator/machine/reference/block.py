"""Warps, thread blocks and clusters: which threads go next, and where they meet.

Of the threads of a warp those go first that are innermost in calls and lowest in the program, all
that are at one place together, statement by statement, each by itself: compilers lay code out so
that the lanes of a warp meet again that way. Threads that go round and round in vain give way to
others (an *epoch* later), so that a lane which waits for another lane of its own warp gets it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from emulator.machine.pending import Pending
from emulator.machine.reference.barriers import BlockBarriers, ClusterBarrier
from emulator.machine.reference.thread import State, Thread

if TYPE_CHECKING:
    from emulator.machine.reference.engine import Grid
    from emulator.machine.report import Index

WARP, WARPGROUP = 32, 128
#: backward branches after which a thread lets others go first, whatever it does
MOST_TURNS = 4096


# --- what statements are to a warp ----------------------------------------------------------------


@dataclass(frozen=True)
class Each:
    """A statement that every thread executes by itself, and goes on behind it."""

    run: Callable[[Thread], None]


@dataclass(frozen=True)
class Flow:
    """A statement that says where a thread goes on; None where it has ended or waits."""

    run: Callable[[Thread], int | None]
    #: backward branches after which it is time to look at others
    patience: int = 0


@dataclass(frozen=True)
class Together:
    """A statement that threads execute together, once all that it needs are there.

    `lanes` of a warp or warpgroup wait for each other, or those of a membermask. With 0 lanes
    nobody waits: those execute it who are there.
    """

    lanes: int
    run: Callable[[Sequence[Thread]], None]
    mask: Callable[[Thread], int] | None = None
    guard: Callable[[Thread], int] | None = None
    #: an instruction on a matrix has no lanes to spare: none may have ended
    whole: str = ""


Step = Each | Flow | Together


# --- warps ----------------------------------------------------------------------------------------


class Warp:
    """32 threads of a block."""

    def __init__(self, block: Block, number: int) -> None:
        self.block: Block = block
        self.number = number
        grid = block.grid
        last = min((number + 1) * WARP, grid.threads)
        self.threads = [Thread(self, i, grid.function) for i in range(number * WARP, last)]

    @property
    def alive(self) -> list[Thread]:
        return [thread for thread in self.threads if thread.state is not State.ENDED]

    @property
    def alive_mask(self) -> int:
        return sum(1 << thread.lane for thread in self.alive)

    def run(self) -> None:
        """Runs until no thread is ready, or those that are give way to other warps."""
        grid = self.block.grid
        while ready := [thread for thread in self.threads if thread.state is State.READY]:
            first = min(ready, key=_order)
            together = [t for t in ready if t.pc == first.pc and t.calls == first.calls]
            if len(together) > 1:
                epoch = max(thread.epoch for thread in together)
                for thread in together:
                    thread.epoch = epoch
            tired = grid.advance(together, alone=len(together) == len(ready))
            if tired:
                self._give_way(tired)
                return

    def _give_way(self, threads: list[Thread]) -> None:
        """Threads have gone round often. Who comes back with the same in all registers looks at
        memory in vain and lets the other threads of the warp go first; the others do only after
        very many turns, for they would meet again behind the loop."""
        grid = self.block.grid
        ready = [thread for thread in self.threads if thread.state is State.READY]
        later = max(thread.epoch for thread in ready) + 1
        for thread in threads:
            held = (thread.pc, thread.calls, [list(frame.registers) for frame in thread.frames])
            vain, thread.polled = held == thread.polled, held
            grid.progress += not vain
            if vain or thread.loops >= MOST_TURNS:
                thread.epoch, thread.loops = later, 0
        grid.check_limit(threads[0])

    def meet(self, pc: int, step: Together) -> None:
        """Executes a statement if all are there that its threads wait for."""
        peers = self.threads if step.lanes <= WARP else self.block.warpgroup(self.number)
        here = [t for t in peers if t.state is State.LANES and t.pc == pc]
        alive = [t for t in peers if t.state is not State.ENDED]
        while here:
            mask = None if step.mask is None else step.mask(here[0])
            missing = [t for t in alive if mask is None or mask >> t.lane & 1]
            if any(t not in here for t in missing):
                # Others may have another membermask.
                rest = [t for t in here if step.mask is not None and step.mask(t) != mask]
                here = rest
                continue
            going = here
            if step.mask is not None:
                going = [t for t in here if step.mask(t) == mask]
            here = [t for t in here if t not in going]
            self.block.grid.execute_together(pc, step, going)


def _order(thread: Thread) -> tuple[int, int, int]:
    return thread.epoch, -len(thread.calls), thread.pc


# --- blocks and clusters --------------------------------------------------------------------------


class Block:
    """A thread block: shared memory, barriers, warps."""

    def __init__(self, cluster: Cluster, index: Index, rank: int) -> None:
        grid = cluster.grid
        self.cluster, self.grid, self.index, self.rank = cluster, grid, index, rank
        self.shared = np.zeros(grid.shared_bytes, np.uint8)
        self.barriers = BlockBarriers(self)
        self.warps = [Warp(self, i) for i in range(-(-grid.threads // WARP))]

    @property
    def threads(self) -> list[Thread]:
        return [thread for warp in self.warps for thread in warp.threads]

    @property
    def linear(self) -> int:
        """Number of the block in the grid."""
        x, y, z = self.index
        return x + self.grid.size[0] * (y + self.grid.size[1] * z)

    def warpgroup(self, warp: int) -> list[Thread]:
        """The threads of the warpgroup of a warp."""
        first = warp // 4 * 4
        return [thread for each in self.warps[first : first + 4] for thread in each.threads]

    def thread_ended(self, thread: Thread) -> None:
        """What waited for a thread may be complete without it."""
        thread.state = State.ENDED
        self.grid.progress += 1
        for peer in self.warpgroup(thread.warp.number):
            if peer.state is State.LANES:
                step = self.grid.code[peer.pc]
                assert isinstance(step, Together)
                peer.warp.meet(peer.pc, step)
        self.barriers.thread_ended(thread)
        self.cluster.barrier.complete()


@dataclass(eq=False)
class Cluster:
    """Thread blocks that see each other's shared memory, and are there at the same time."""

    grid: Grid
    blocks: list[Block] = field(default_factory=list)
    #: threads that wait for phases of mbarriers in this cluster
    waiting: list[Thread] = field(default_factory=list)

    def __post_init__(self) -> None:
        launch = self.grid.launch
        lanes = self.grid.lanes_of_block * self.grid.blocks_of_cluster
        self.pending = Pending(lanes, launch.async_order, launch.seed)  # type: ignore[arg-type]
        self.barrier = ClusterBarrier(self)

    @property
    def threads(self) -> list[Thread]:
        return [thread for block in self.blocks for thread in block.threads]

    @property
    def alive(self) -> bool:
        return any(thread.state is not State.ENDED for thread in self.threads)

    def run(self) -> None:
        """Gives every warp its turn."""
        for block in self.blocks:
            for warp in block.warps:
                warp.run()
