"""Vector engine: a wave is thread blocks that run together; it picks which strands may go on.

Of the strands that can run, the one goes first that is innermost in calls and lowest in the
program: compilers lay code out so that the lanes of a warp meet again that way. A strand that goes
round and round while others wait gives way to them (an *epoch* later), so that a lane which waits
for another lane of its own warp gets it. Where activemask shows a recursion, `convergent` has
another order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import InitVar, dataclass, field
from functools import cached_property, lru_cache, reduce
from itertools import repeat
from operator import or_
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from dtypes import Array
from emulator.arith import Engine
from emulator.machine.options import Order
from emulator.machine.shared.arrivals import BlockBarriers, ClusterBarriers, Warps, bits_of
from emulator.machine.shared.launching import RunningLaunch
from emulator.machine.shared.pending import Pending
from emulator.machine.shared.place import Index
from emulator.machine.shared.products import WARPGROUPS, Products
from emulator.machine.shared.special import LaunchSizes
from emulator.machine.shared.tensor_order import Pairs
from emulator.machine.shared.waiting import FOR_OTHERS, POLLS, TURNS, BarrierWait, State
from emulator.machine.vector.schedule import Schedule
from emulator.machine.vector.strand import WARP, WARPGROUP, Frame, Lanes, Parked, Strand, merged
from emulator.machine.vector.watching import GridWatch, StepOrEnd, WaveWatch
from emulator.memory.arena import Arena
from emulator.memory.untouched import zeros
from emulator.memory.windows import RANK_BITS, WINDOW_BITS
from emulator.targets import Target
from emulator.warp.call import Undefined

if TYPE_CHECKING:
    from emulator.memory.space import Space
    from emulator.memory.tensor_memory import TensorMemory
    from emulator.ptx.program import Function, Program, Statement

#: statements without an effect after which a wave lets others run
_PATIENCE = 1 << 15
#: lanes of a strand whose registers are worth a look
_MANY = 1 << 8
#: ancestors of a strand, without other children, before it leaves them
_GENERATIONS = 16

Bits = NDArray[np.uint32]


@dataclass(frozen=True)
class Block:
    """Statements that follow each other, as functions of a strand."""

    statements: tuple[Statement, ...]
    steps: tuple[Callable[[Strand], None], ...]
    #: executes the last statement; returns the pc where the strand goes on, None where it does not
    end: Callable[[Strand], int | None]
    #: looks at memory that other strands may change
    polls: bool
    #: statements that each step executes; (): one each
    counts: tuple[int, ...] = ()
    #: it does nothing but compute and branch: lanes that are gone may do so, too
    only_computes: bool = False


class WaveGrid(LaunchSizes, Protocol):
    """The launch that waves are part of: `emulator.machine.vector.engine.Grid`."""

    program: Program
    function: Function
    target: Target
    #: the engine of matrix instructions, and what becomes of undefined results
    arithmetic: Engine
    undefined: Undefined
    #: blocks of the grid, threads of a block, blocks of a cluster
    size: Index
    block: Index
    cluster: Index
    #: thread blocks of the grid, and threads of a block
    total: int
    threads: int
    #: bytes of a row of shared memory, and those that may be accessed
    shared_bytes: int
    shared_limit: int
    only_shared: bool
    async_order: Order
    seed: int | None
    #: the order of a seed; None: ascending
    schedule: Schedule | None
    sends: bool
    has_others: bool
    #: statements; those after which `check_steps` is called; those in which all polled in vain
    executed: int
    look_at: int
    polled: int
    #: changes whenever something happens that another thread may wait for; how often that was no
    #: more than a barrier
    progress: int
    meetings: int
    #: words of special registers that waves of so many lanes share
    specials: dict[tuple[str, int], Array]

    @property
    def launch(self) -> RunningLaunch: ...
    @property
    def arena(self) -> Arena: ...
    @property
    def changes(self) -> int: ...
    @property
    def blocks(self) -> Mapping[int, Block]: ...

    def watch_of(self, wave: Wave) -> WaveWatch | None:
        """Makes the checks of a wave; None: off."""

    def now(self) -> int: ...
    def count(self, statements: int, lanes: int) -> None: ...
    def cancel(self) -> tuple[int, int, int] | None: ...
    def need_local(self, wave: Wave, size: int) -> None: ...
    def check_steps(self, strand: Strand, block: Block) -> None: ...
    def check_polls(self, strand: Strand, block: Block) -> None: ...
    def placed(self, error: Exception, strand: Strand, statement: Statement) -> Exception: ...


@dataclass(eq=False)
class Wave:
    """Thread blocks that run together."""

    #: the launch that it is part of
    grid: WaveGrid
    #: linear numbers of the blocks
    ctas: Lanes
    #: bytes of shared memory, a row for each block; None: zeros
    memory: InitVar[Array | None] = None
    ready: list[Strand] = field(default_factory=list)
    waiting: list[Strand] = field(default_factory=list)
    #: undo journal of shared memory; None: no rollback
    journal: Space | None = None
    #: registers of lanes that have ended; None: nobody looks at them
    left: list[Frame] | None = None

    def __post_init__(self, memory: Array | None) -> None:
        grid = self.grid
        self.warps_per_cta = -(-grid.threads // WARP)
        self.lanes_per_cta: int = self.warps_per_cta * WARP
        #: lanes of all blocks, and whether each has not ended
        self.lanes = len(self.ctas) * self.lanes_per_cta
        self._started, self.alive, self._bits = self._numbers()
        #: changes whenever lanes end
        self.version = 0
        #: bytes of a row of shared memory, and those that may be accessed
        self.shared_bytes, self.shared_limit = grid.shared_bytes, grid.shared_limit
        self.shared = self._shared_memory() if memory is None else memory
        self.local = np.zeros((self.lanes, 0), np.uint8)
        #: bytes of it that threads may use: there may be room for more
        self.local_bytes = 0
        self.cluster_size = math.prod(grid.cluster)
        #: the bits of an address in shared memory that are its offset: in a grid the rank of the
        #: block stands above
        bits = WINDOW_BITS if grid.only_shared else RANK_BITS
        self.offset_bits = np.uint64((1 << bits) - 1)
        self.executed = 0
        #: statements executed since anything happened that others may wait for
        self.vain = 0
        #: the grid's changes when this wave ran last
        self._changes = 0
        #: where the strand that ran last lets others go first; None: it ended otherwise
        self._gave_way: Block | None = None
        #: asynchronous operations under way
        self.pending = Pending(self.lanes, grid.async_order, grid.seed)
        self.products = Products(grid.async_order, grid.seed)
        #: tensor memory of the blocks that have used it, by their rows
        self.tensor: dict[int, TensorMemory] = {}
        #: warps of pairs of blocks that wait for each other
        self.pairs = Pairs()
        self.specials: dict[str, Array] = {}
        self._rows: Lanes | None = None
        self.renew_barriers()
        #: the checks; None: off
        self.watch = grid.watch_of(self)

    @cached_property
    def ledger(self) -> NDArray[np.uint64]:
        """Of each word of shared memory the history of an mbarrier there (`memory.mbarrier`)."""
        return np.zeros(self.shared.size // 8, np.uint64)

    @cached_property
    def warpgroup(self) -> Lanes:
        """For each lane the number of its warpgroup in the wave; blocks start with a new one."""
        row, thread = np.divmod(np.arange(self.lanes), self.lanes_per_cta)
        groups = row * -(-self.lanes_per_cta // WARPGROUP) + thread // WARPGROUP
        return cast(Lanes, groups)

    # --- start and end ---

    def renew(self) -> None:
        """Nothing has happened yet: the same blocks may run once more."""
        _, self.alive, self._bits = self._numbers()
        self.version = self.executed = self.vain = 0
        self.ready, self.waiting = [], []
        self.tensor, self.pairs = {}, Pairs()

    def _numbers(self) -> tuple[Lanes, Array, Bits | None]:
        return _numbered(self.lanes_per_cta, self.grid.threads, len(self.ctas))

    def _shared_memory(self) -> Array:
        """A row of zeros for each block."""
        rows = len(self.ctas), self.shared_bytes
        return zeros(math.prod(rows)).reshape(rows)

    def renew_barriers(self) -> None:
        """Nobody has arrived at a barrier yet."""
        self.barriers, self.clusters = BlockBarriers(self), ClusterBarriers(self)

    def release(self) -> None:
        """Cuts the references in a circle: else its memory would wait for Python's collector."""
        self.watch, self.specials = None, {}
        self.barriers = self.clusters = None  # type: ignore[assignment]

    def start(self, function: Function, initial: Callable[[Frame], None]) -> None:
        """All threads at the first statement of a kernel."""
        frame = Frame(function, self._started)
        initial(frame)
        self.ready.append(Strand(self, self._started, [frame], function.first))

    def end(self, strand: Strand, gone: Array | None, following: int) -> None:
        """Lanes of a strand end, all or those of a mask; the others go on at `following`."""
        lanes = strand.lanes if gone is None else strand.lanes[gone]
        if self.left is not None:
            frame = strand.frames[0]
            self.left.append(frame if gone is None else Frame(frame.function, lanes, frame))
        if self.watch is not None:
            self.watch.ended(lanes)
        if len(lanes) == len(self.alive):
            self.alive = np.broadcast_to(np.False_, self.alive.shape)
        else:
            if not self.alive.flags.writeable:  # those of all waves
                self.alive = self.alive.copy()
            self.alive[lanes] = False
        self._bits = None
        self.version += 1
        self.grid.progress += 1
        if gone is None:
            strand.finish()
        else:
            self.ready.append(strand.part(~gone, following))
        if not self.waiting:
            return
        groups = np.unique(self.warpgroup[lanes])
        for other in list(self.waiting):
            if other.state not in FOR_OTHERS:
                continue
            if np.isin(self.warpgroup[other.lanes], groups).any():
                self.wake(other)
        self.barriers.lanes_ended(lanes)
        self.clusters.lanes_ended(lanes)

    # --- strands ---

    def split(self, strand: Strand, taken: Array, target: int, following: int) -> int | None:
        """Lanes of a mask go on at `target`, the others at `following`. Returns where all do, if
        the others are gone."""
        others = ~taken
        if strand.gone is not None:
            taken, others = taken & ~strand.gone, others & ~strand.gone
            if not (taken.any() and others.any()):
                return target if taken.any() else following
        if self.grid.sends:
            for mask, pc, other in ((taken, target, following), (others, following, target)):
                sibling = strand.sibling_at(pc)
                if sibling is not None:
                    live = [self._live(strand, at) for at in (pc, other)]
                    strand.send(mask, sibling, *live)
                    strand.pc = other
                    self.ready.append(strand)
                    return None
        if strand.gone is not None:
            taken = taken[~strand.gone]
            self._settle(strand, target, following)
        self._forget(strand, target, following)
        strand = self.new_root(strand, target, following)
        self.ready.append(strand.part(taken, target))
        self.ready.append(strand.part(~taken, following))
        return None

    def _settle(self, strand: Strand, *pcs: int) -> None:
        """Makes a strand that goes on at one of some places as small as it is."""
        if strand.gone is not None:
            strand.settle(self._live_at(strand, pcs))

    def _live_at(self, strand: Strand, pcs: Iterable[int]) -> list[int]:
        """For each frame of a strand the registers that may be read from any of some places on."""
        alive = zip(*(self._live(strand, pc) for pc in pcs), strict=True)
        return [reduce(or_, bits) for bits in alive]

    def new_root(self, strand: Strand, *pcs: int) -> Strand:
        """A strand whose lanes go on at some places; on registers of its own where it is the only
        one left of many ancestors. They would be kept for it, one more for each lock that a thread
        gets while the others go round."""
        above, generations = strand.parent, 0
        while above is not None and len(above.children) == 1:
            above, generations = above.parent, generations + 1
        if generations < _GENERATIONS:
            return strand
        return merged([strand], self._live_at(strand, pcs))

    def divide(self, strand: Strand, part: Array, pc: int) -> tuple[Strand, Strand]:
        """Two strands at one place: the lanes of a mask, and the others. Neither is ready."""
        return strand.part(part, pc), strand.part(~part, pc)

    def park(self, strand: Strand, state: State, wait: object, pc: int) -> None:
        """A strand waits; `pc` is where it goes on."""
        strand.state, strand.wait, strand.pc = state, wait, pc
        self.waiting.append(strand)

    def hold(
        self, strand: Strand, lacking: Array, state: State, wait: object, pc: int, following: int
    ) -> Strand | None:
        """The lanes of a mask wait, to go on at `pc`; the others, if any, are ready at
        `following`, as the strand that is returned."""
        going = None
        if not lacking.all():
            strand, going = self.divide(strand, strand.spread(lacking), pc)
            going.pc = following
            self.ready.append(going)
        self.park(strand, state, wait, pc)
        return going

    def free(
        self, strand: Strand, mask: Array, part: Callable[[Array], object] | None = None
    ) -> Strand | None:
        """Of a strand that waits the lanes of a mask, as one that waits by itself; None: there are
        no such lanes. `part` gives what the lanes of a mask wait for, where that differs."""
        if not mask.any():
            return None
        if mask.all():
            return strand
        self.waiting.remove(strand)
        mask, state, wait = strand.spread(mask), strand.state, strand.wait
        going, staying = self.divide(strand, mask, strand.pc)
        self.park(staying, state, part(~mask) if part else wait, strand.pc)
        self.park(going, state, part(mask) if part else wait, strand.pc)
        return going

    def mates(self, strand: Strand) -> list[Strand]:
        """The strands that wait as one does and where it does, it too."""
        place = strand.place
        return [w for w in self.waiting if w.state is strand.state and w.place == place]

    def wake(self, strand: Strand) -> None:
        """A strand that waited goes on."""
        self.waiting.remove(strand)
        strand.state, strand.wait = State.READY, None
        self.ready.append(strand)

    def pass_barrier(self, rows: Lanes, number: int, votes: Array) -> None:
        """Lets strands go on that wait at a barrier of blocks."""
        self.grid.progress += 1
        self.grid.meetings += 1
        for strand in list(self.waiting):
            wait = strand.wait
            if not isinstance(wait, BarrierWait) or wait.number != number:
                continue
            going = self.free(strand, np.isin(self.row(strand), rows))
            if going is not None:
                if wait.finish is not None:
                    wait.finish(going, *votes[self.row(going)].T)
                self.wake(going)

    def pass_cluster(self) -> None:
        """Lets strands go on that wait at the barriers of clusters, as far as they may."""
        self.grid.progress += 1
        self.grid.meetings += 1
        for strand in list(self.waiting):
            if strand.state is not State.CLUSTER:
                continue
            if going := self.free(strand, ~self.clusters.lacking(strand.lanes)):
                self.clusters.passed(going.lanes)
                self.wake(going)

    def pick(self) -> Strand | None:
        """The strand that goes next, merged with all others that are at its place."""
        if not self.ready:
            return None
        schedule = self.grid.schedule
        first = schedule.pick(self.ready) if schedule else min(self.ready, key=order)
        if len(self.ready) > 1:
            place = first.place
            same = [s for s in self.ready if s.pc == first.pc and s.place == place]
            if len(same) > 1:
                same = [s for s in same if s.stacks == first.stacks]
            for strand in same:
                strand.start()
            if len(same) > 1:
                for strand in same:
                    self._settle(strand, strand.pc)
                first = self._merge(same)
        first.start()
        self.ready.remove(first)
        return schedule.part(first) if schedule else first

    def _merge(self, strands: list[Strand]) -> Strand:
        """One strand of several that are ready at one place."""
        for strand in strands:
            self.ready.remove(strand)
        out = self.joined(strands)
        self.ready.append(out)
        return out

    def joined(self, strands: list[Strand]) -> Strand:
        """One strand of several at one place: their parent where they are all its children."""
        for strand in strands:
            strand.state = State.READY
        left = {id(s): s for s in strands}
        parents = {id(s.parent): s.parent for s in strands if s.parent}
        while parents and len(left) > 1:
            _, parent = parents.popitem()
            children = parent.children
            if all(id(child) in left for child in children) and parent.rejoin():
                for child in children:
                    del left[id(child)]
                left[id(parent)] = parent
                if parent.parent:
                    parents[id(parent.parent)] = parent.parent
        strands = list(left.values())
        if len(strands) == 1:
            return strands[0]
        return merged(strands, self._live(strands[0], strands[0].pc))

    def _live(self, strand: Strand, pc: int) -> list[int]:
        """For each frame of a strand that goes on at `pc` the registers that may still be read."""
        pcs = [frame.return_pc for frame in strand.frames[1:]] + [pc]
        return [self._live_in(depth, pc) for depth, pc in enumerate(pcs, 1)]

    def _live_in(self, depth: int, pc: int) -> int:
        """The same for the frame at a depth, counted from 1, which goes on at `pc`."""
        live = self.grid.program.liveness.at(pc)
        for product in self.products:
            # A wgmma reads registers after the last statement that names them.
            if product.depth == depth:
                live |= product.sources
        return live

    @property
    def is_over(self) -> bool:
        return not self.ready and not self.waiting

    def run(self) -> None:
        """Runs until no strand is ready, or those that are may wait for threads of other waves."""
        with np.errstate(all="ignore"):  # once, not for each statement
            self._run()

    def _run(self) -> None:
        grid = self.grid
        if grid.changes != self._changes:  # by other waves
            self.vain = 0
        seen, start, polls = grid.progress, self.executed, 0
        while (strand := self.pick()) is not None:
            before, self._gave_way = self.executed, None
            self._advance(strand)
            if grid.progress != seen:
                seen, start, polls = grid.progress, self.executed, 0
                self.vain = grid.polled = 0
                continue
            self.vain += self.executed - before
            if self._gave_way is not None:
                polls, grid.polled = polls + 1, grid.polled + self.executed - before
                if not self._gave_way.polls:
                    polls = grid.polled = 0
            all_poll = polls > len(self.ready) and grid.has_others
            if all_poll or self.executed - start > _PATIENCE:
                break
        self._changes = grid.changes

    def _advance(self, strand: Strand) -> None:
        """Runs a strand until another one should go first."""
        blocks, others = self.grid.blocks, min(map(order, self.ready), default=None)
        schedule = self.grid.schedule
        left = schedule.turns() if schedule else 0
        while True:
            block = blocks[strand.pc]
            if strand.gone is not None and not block.only_computes:
                self._settle(strand, strand.pc)
            following = self._run_block(strand, block)
            if self.grid.executed > self.grid.look_at:
                self.grid.check_steps(strand, block)
            if following is None:
                return
            if following <= strand.pc:
                strand.loops += 1
                strand.polls += block.polls
                self._forget(strand, following)
                if strand.loops >= TURNS or strand.polls >= POLLS:
                    strand.loops = strand.polls = 0
                    strand.pc = following
                    self._give_way(strand, block)
                    return
            strand.pc = following
            if schedule:
                left -= 1
                if left <= 0:
                    self.ready.append(strand)
                    return
            elif others is not None and order(strand) >= others:
                self.ready.append(strand)
                return

    def _forget(self, strand: Strand, *pcs: int) -> None:
        """Lets go of registers that nothing reads any more where lanes go on: there may be
        thousands."""
        if len(strand) < _MANY or self.left is not None:
            return
        frames = strand.frames
        for depth in range(len(frames), 0, -1):
            frame = frames[depth - 1]
            frame.keep(reduce(or_, (self._live_in(depth, pc) for pc in pcs)))
            if frame.callers_forgot:
                break
            frame.callers_forgot, pcs = True, (frame.return_pc,)

    def _run_block(self, strand: Strand, block: Block) -> int | None:
        done, lanes = 0, strand.count
        try:
            for step, count in zip(block.steps, block.counts or repeat(1), strict=False):
                step(strand)
                done += count
            following = block.end(strand)
            # A block may end with a statement, or where another one starts.
            done = len(block.statements)
            return following
        except Parked:
            return None
        except Exception as error:
            raise self.grid.placed(error, strand, block.statements[done]) from error
        finally:
            self.count(done, lanes)

    def count(self, statements: int, lanes: int) -> None:
        """So many statements have been executed, by so many lanes each."""
        self.executed += statements
        self.grid.count(statements, lanes)

    def _give_way(self, strand: Strand, block: Block) -> None:
        self.ready.append(strand)
        self._gave_way = block
        if len(self.ready) > 1:
            strand.epoch = max(s.epoch for s in self.ready) + 1
        self.grid.check_polls(strand, block)

    # --- lanes ---

    def warps_of(self, strand: Strand) -> Warps:
        """The warps that a strand's lanes belong to."""
        found: Warps | None = strand.marks.get("warps")
        if found is None and len(strand) == self.lanes:
            found = strand.marks["warps"] = _every_warp(len(strand) // WARP)
        if found is None:
            found = strand.marks["warps"] = Warps.of(strand.lanes)
        return found

    def alive_bits(self, warps: Lanes) -> Bits:
        """For each warp the lanes that have not ended."""
        if self._bits is None:
            self._bits = bits_of(self.alive)
        return self._bits if len(warps) == len(self._bits) else self._bits[warps]

    def is_whole(self, strand: Strand) -> bool:
        """True if a strand has all lanes of its warps that have not ended."""
        known = strand.marks.get("whole")
        if known is None or known[0] != self.version:
            warps = self.warps_of(strand)
            whole = bool((warps.bits == self.alive_bits(warps.numbers)).all())
            known = strand.marks["whole"] = (self.version, whole)
        return bool(known[1])

    def has_whole_blocks(self, strand: Strand) -> bool:
        """True if a strand has all lanes of its blocks that have not ended."""
        known = strand.marks.get("whole blocks")
        if known is None or known[0] != self.version:
            rows = np.zeros(len(self.ctas), np.bool_)
            rows[self.row(strand)] = True
            lanes = np.count_nonzero(self.alive.reshape(len(rows), -1)[rows])
            known = strand.marks["whole blocks"] = (self.version, lanes == len(strand))
        return bool(known[1])

    def warpgroups_in_grid(self, lanes: Lanes) -> list[int]:
        """Numbers in the grid of the warpgroups that lanes belong to, one after the other."""
        row, thread = np.divmod(lanes, self.lanes_per_cta)
        numbers = self.ctas[row] * WARPGROUPS + thread // WARPGROUP
        return list(dict.fromkeys(numbers.tolist()))

    @property
    def launch(self) -> RunningLaunch:
        return self.grid.launch

    def row(self, strand: Strand) -> Lanes:
        """For each lane the number of its thread block in the wave."""
        found: Lanes | None = strand.marks.get("row")
        if found is None:
            found = strand.marks["row"] = strand.lanes // self.lanes_per_cta
        return found

    def rows_by_cta(self, ctas: Lanes) -> Lanes:
        """Rows of the wave in which blocks of the grid are; -1 for blocks that are not in it."""
        if self._rows is None:
            self._rows = np.full(self.grid.total, -1, np.int64)
            self._rows[self.ctas] = np.arange(len(self.ctas))
        return self._rows[ctas]

    def coordinates(self, lane: int) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
        """Block and thread of a lane, for messages."""
        grid = self.grid
        row, thread = divmod(lane, self.lanes_per_cta)
        return _unravel(int(self.ctas[row]), grid.size), _unravel(thread, grid.block)


class Checks(NamedTuple):
    """The checks of a launch: what goes around its steps and ends, and what watches it and its
    waves."""

    step: Callable[
        [Statement, Function, Program, Callable[[Strand], None]], Callable[[Strand], None]
    ]
    end: Callable[[Statement, Function, StepOrEnd], StepOrEnd]
    grid: Callable[[WaveGrid], GridWatch]
    #: takes what `grid` has made
    wave: Callable[[Any, Wave], WaveWatch]


def _numbered(lanes: int, threads: int, blocks: int) -> tuple[Lanes, Array, Bits | None]:
    """Of so many blocks the lanes that have a thread, a mask of them and its bits by warp: waves
    share them."""
    # Waves of a launch mostly have as many blocks as the first, or fewer.
    started, alive, bits = _numbered_of(lanes, threads, (blocks - 1).bit_length())
    every = blocks * lanes
    return started[: blocks * threads], alive[:every], bits[: every // WARP]


@lru_cache(maxsize=2)
def _numbered_of(lanes: int, threads: int, blocks: int) -> tuple[Lanes, Array, Bits]:
    """The same of a power of two of blocks."""
    alive = np.tile(np.arange(lanes) < threads, 1 << blocks)
    started = np.arange(len(alive)) if threads == lanes else np.flatnonzero(alive)
    bits = bits_of(alive)
    for shared in (started, alive, bits):
        shared.flags.writeable = False
    return started, alive, bits


@lru_cache(maxsize=2)
def _every_warp(count: int) -> Warps:
    """So many warps with all their lanes."""
    numbers = np.arange(count)
    every = Warps(numbers, numbers * WARP, np.full(count, 0xFFFFFFFF, np.uint32))
    for shared in every:
        shared.flags.writeable = False
    return every


def order(strand: Strand) -> tuple[int, int, int]:
    """Of strands that are ready the least goes first."""
    return strand.epoch, -len(strand.frames), strand.pc


def _unravel(index: int, sizes: Iterable[int]) -> tuple[int, int, int]:
    x, y, _ = sizes
    return index % x, index // x % y, index // (x * y)
