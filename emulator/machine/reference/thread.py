"""Reference engine: parts of a launch under way, threads, warps, blocks and clusters, and what they
hold.

A register holds the integer of its bits, a predicate 0 or 1, and a variable in .param that of its
bytes. Other modules say what happens to all this: `schedule` who goes next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dtypes import Array
from emulator.arith import Engine
from emulator.layout.lanemap import WARP, WARPGROUP
from emulator.machine.shared.arrivals import Bits, BlockBarriers, ClusterBarriers, Lanes, bits_of
from emulator.machine.shared.control import CallFrame, check_local
from emulator.machine.shared.convergence import Convergence
from emulator.machine.shared.launching import RunningLaunch
from emulator.machine.shared.pending import Pending
from emulator.machine.shared.place import Index
from emulator.machine.shared.products import WARPGROUPS, Products
from emulator.machine.shared.tensor_order import Pairs
from emulator.machine.shared.waiting import BarrierWait, State
from emulator.memory.arena import Arena
from emulator.memory.tensor_memory import TensorMemory
from emulator.ptx.program import Call, Function, Program
from emulator.targets import Target

# --- threads --------------------------------------------------------------------------------------


class Frame(CallFrame):
    """One call of a function."""

    __slots__ = ("registers",)

    def __init__(self, function: Function, local: int = 0, return_pc: int = -1) -> None:
        super().__init__(function, local, return_pc)
        #: the value of a register before the first write: zeros
        self.registers = [0] * len(function.registers)

    def take(self, index: int, other: Frame, given: int) -> None:
        self.registers[index] = other.registers[given]


class Thread:
    """One thread of a block; `index` counts the threads of its block."""

    __slots__ = (
        "calls", "epoch", "frames", "index", "lane", "local", "loops", "pc", "polled", "registers",
        "state", "wait", "warp",
    )  # fmt: skip

    def __init__(self, warp: Warp, index: int) -> None:
        function = warp.block.run.function
        self.warp: Warp = warp
        self.index: int = index
        self.lane: int = index % WARP
        self.pc = function.first
        self.frames = [Frame(function)]
        self.registers = self.frames[-1].registers
        #: where its calls return to, the innermost last
        self.calls: tuple[int, ...] = ()
        self.local = bytearray(function.local_bytes)
        self.state = State.READY
        #: the condition that it waits for
        self.wait: object = None
        #: threads of an earlier epoch go first
        self.epoch = 0
        #: backward branches since it last gave way to others, and what it held at the last look
        self.loops = 0
        self.polled: object = None

    @property
    def block(self) -> Block:
        return self.warp.block

    @property
    def cluster(self) -> Cluster:
        return self.warp.block.cluster

    @property
    def run(self) -> Run:
        return self.warp.block.run

    @property
    def coordinates(self) -> Index:
        """%tid"""
        x, y, _ = self.run.block
        return self.index % x, self.index // x % y, self.index // (x * y)

    @property
    def number(self) -> int:
        """Counts the threads of the cluster."""
        return self.block.rank * self.run.lanes_of_block + self.index

    @property
    def warpgroup_in_grid(self) -> int:
        return self.block.number * WARPGROUPS + self.index // WARPGROUP

    # --- calls: a `Caller` of `machine.shared.control` ---

    def begin(self, callee: Function, local: int, return_pc: int) -> Frame:
        return Frame(callee, local, return_pc)

    def enter(self, frame: Frame, call: Call) -> None:
        self.frames.append(frame)
        self.registers = frame.registers
        self.calls = (*self.calls, frame.return_pc)

    def leave(self, call: Call) -> Frame:
        self.cluster.products.forget([self.warpgroup_in_grid], len(self.frames))
        left = self.frames.pop()
        self.registers = self.frames[-1].registers
        self.calls = self.calls[:-1]
        return left

    def need_local(self, size: int) -> None:
        """Room for so many bytes of local memory. A view of it must not be held meanwhile."""
        check_local(size)
        if size > len(self.local):
            self.local = self.local + bytes(size - len(self.local))

    def stops(self, state: State, pc: int, wait: object = None) -> None:
        """The thread waits; `pc` is where it goes on."""
        self.state, self.pc, self.wait = state, pc, wait

    def goes_on(self) -> None:
        self.state, self.wait = State.READY, None
        self.run.progress += 1
        self.run.resumed += 1


class Warp:
    """32 threads of a block."""

    def __init__(self, block: Block, number: int) -> None:
        self.block, self.number = block, number
        last = min((number + 1) * WARP, block.run.threads)
        self.threads = [Thread(self, i) for i in range(number * WARP, last)]
        #: statements executed since anything happened that others may wait for
        self.vain = 0
        regions = block.run.launch.regions
        #: says which threads run together, where functions call themselves and show it
        self.convergence = None if regions is None else Convergence(regions)


# --- blocks and clusters --------------------------------------------------------------------------


class Block:
    """A thread block: shared memory, barriers, warps. `index` is %ctaid, `rank` that of mapa."""

    def __init__(self, cluster: Cluster, index: Index, rank: int) -> None:
        run = cluster.run
        self.cluster, self.run, self.index, self.rank = cluster, run, index, rank
        self.shared = np.zeros(run.shared_bytes, np.uint8)
        #: of each word of it, the history of an mbarrier there (`memory.mbarrier`)
        self.ledger = [0] * (run.shared_bytes // 8)
        #: its tensor memory, once something has used it
        self.tensor: TensorMemory | None = None
        self.warps: list[Warp] = [Warp(self, i) for i in range(-(-run.threads // WARP))]

    @property
    def threads(self) -> list[Thread]:
        return [thread for warp in self.warps for thread in warp.threads]

    @property
    def number(self) -> int:
        """Counts the blocks of the grid."""
        x, y, z = self.index
        return x + self.run.size[0] * (y + self.run.size[1] * z)

    def warpgroup(self, warp: int) -> list[Thread]:
        """The threads of the warpgroup of a warp."""
        first = warp // 4 * 4
        return [thread for each in self.warps[first : first + 4] for thread in each.threads]


@dataclass(eq=False)
class Cluster:
    """Thread blocks that see each other's shared memory, and are there at the same time."""

    run: Run
    pending: Pending
    products: Products
    blocks: list[Block] = field(default_factory=list)
    #: warps of pairs of blocks that wait for each other
    pairs: Pairs = field(default_factory=Pairs)
    #: threads that wait for phases of mbarriers in this cluster
    waiting: list[Thread] = field(default_factory=list)
    #: the checks: this engine has none
    watch: None = None

    def __post_init__(self) -> None:
        self.lanes_per_cta, self.cluster_size = self.run.lanes_of_block, self.run.blocks_of_cluster
        lanes = np.arange(self.lanes_per_cta * self.cluster_size)
        #: threads that have not ended, by their numbers
        self.alive: NDArray[np.bool_] = lanes % self.lanes_per_cta < self.run.threads
        self.barriers, self.clusters = BlockBarriers(self), ClusterBarriers(self)

    def alive_bits(self, warps: Lanes) -> Bits:
        """For each warp the lanes that have not ended."""
        return bits_of(self.alive)[warps]

    def pass_barrier(self, rows: Lanes, number: int, votes: Array) -> None:
        """Lets threads go on that wait at a barrier of blocks."""
        for row in rows.tolist():
            for thread in self.blocks[row].threads:
                wait = thread.wait
                if isinstance(wait, BarrierWait) and wait.number == number:
                    thread.goes_on()
                    if wait.finish is not None:
                        wait.finish(thread, *votes[row].tolist())

    def pass_cluster(self) -> None:
        """Lets threads go on that wait at the barrier of the cluster."""
        for thread in self.threads:
            if thread.state is State.CLUSTER:
                self.clusters.passed(np.array([thread.number]))
                thread.goes_on()

    @property
    def threads(self) -> list[Thread]:
        return [thread for block in self.blocks for thread in block.threads]

    @property
    def launch(self) -> RunningLaunch:
        return self.run.launch

    @property
    def shared_bytes(self) -> int:
        return self.run.shared_bytes

    def coordinates(self, lane: int) -> tuple[Index, Index]:
        """Block and thread of a number, for messages."""
        row, inside = divmod(lane, self.lanes_per_cta)
        return self.blocks[row].index, self.blocks[row].threads[inside].coordinates


# --- statements -----------------------------------------------------------------------------------


#: the pc where a thread goes on; None where it has ended or waits
Next = Callable[[Thread], int | None]


@dataclass(frozen=True)
class Each:
    """A statement that every thread executes by itself, and goes on behind it."""

    run: Callable[[Thread], None]
    #: of a store: what threads are sorted by, for the last one at a place to win
    order: Callable[[Thread], int] | None = None


@dataclass(frozen=True)
class Flow:
    """A statement that says where a thread goes on."""

    run: Next
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


# --- the launch -----------------------------------------------------------------------------------


Touched = Callable[[Thread, memoryview, int, int, Sequence[str]], None]


@dataclass(eq=False)
class Position:
    """Where the schedule stands between two statements, for a launch that goes on from there."""

    #: number of the cluster, of those that are there, and of the warp in it, whose turn it is
    cluster: int = 0
    warp: int = 0
    #: progress, statements and resumed threads when the warp's turn began, or last had an effect
    began: tuple[int, int, int] | None = None
    #: progress and turns when the first cluster's turn began
    before: tuple[int, int] = (0, 0)
    #: see `engine.Grid.run`
    vain: int = 0
    time_outs: int = 0
    changes: int = 0


@dataclass(eq=False)
class Run:
    """A launch under way: what all its threads share."""

    #: the `Launch`, which also says where errors happened
    launch: RunningLaunch
    program: Program
    function: Function
    #: the steps of the statements, by their pc
    code: Sequence[Step]
    arena: Arena
    target: Target
    #: the engine of matrix instructions
    arithmetic: Engine
    #: blocks of the grid, threads of a block, blocks of a cluster
    size: Index
    block: Index
    cluster: Index
    shared_bytes: int
    #: the clusters that have not started, by the coordinates of their first block
    coming: Iterator[Index]
    #: statements executed, those of threads that go together counted once, and those of each
    #: thread
    statements: int = 0
    executed: int = 0
    #: things done that others may wait for, and turns of loops that were not in vain
    progress: int = 0
    turns: int = 0
    #: number of times that a waiting thread was resumed
    resumed: int = 0
    #: number of writes to memory and of threads that have ended
    changes: int = 0
    #: the clusters that have started and not ended
    clusters: list[Cluster] = field(default_factory=list)
    position: Position = field(default_factory=Position)
    #: called between statements, where `position` says all that is needed to go on
    between: Callable[[], None] | None = None

    def __post_init__(self) -> None:
        #: called with the threads that go next, and their pc, before each statement
        self.observe: Callable[[Sequence[Thread], int], None] | None = self.launch.observe
        #: who is told of accesses to memory: the thread, the memory, start and size in bytes there,
        #: and the uses, "read" and "written"
        self.touched: dict[object, Touched] = {}
        self.threads = int(np.prod(self.block))
        self.lanes_of_block = -(-self.threads // WARP) * WARP
        self.blocks_of_cluster = int(np.prod(self.cluster))

    def now(self) -> int:
        """The time, in statements executed."""
        self.executed += 1
        return self.executed
