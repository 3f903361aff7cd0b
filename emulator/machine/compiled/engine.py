"""The compiled engine: the vector engine, of which whole kernels, loops and runs of statements are
native functions.

Whatever has no LLVM instructions stays a step of the vector engine, as do waits and all else that
lanes of different warps do together; but for barriers of whole blocks, wgmma and waits for
mbarriers within loops, as long as nobody comes too early.
"""

from __future__ import annotations

import math
from collections import defaultdict
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dtypes import Array
from emulator.arith.fast.scratch import Scratch
from emulator.machine.compiled import DONE, FOR_STEPS, refused
from emulator.machine.compiled.budget import CLOCK
from emulator.machine.vector import blocks, engine
from emulator.machine.vector.alike import with_rows
from emulator.machine.vector.strand import WARP, Parked, Strand
from emulator.machine.vector.wave import Block, Wave, order
from emulator.targets import Target

if TYPE_CHECKING:
    from emulator.machine.compiled.loop import Ended, Loop
    from emulator.machine.compiled.loops import Part
    from emulator.machine.launch import Launch

_NO_LIMIT = 1 << 62
#: seconds that a block runs as steps before it is looked at, and statements for which it is as long
#: again: looking at one takes 0.5 ms
_COLD, _STATEMENTS = 0.02, 40
#: lanes that run together where the kernel is a native function, which its threads share, and bytes
#: of their registers, if the launch has not more memory itself
_NATIVE_LANES, _NATIVE_BYTES = 3 << 19, 1 << 24


class Blocks(blocks.Blocks):
    """Blocks of statements with segments, which are compiled before they run."""

    at_once = True
    #: that of the module
    target: Target

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        #: the loops of functions that were looked at, by the pcs of their parts
        self.loops: dict[int, Loop] = {}
        self._searched: set[str] = set()

    def _make(self, first: int) -> Block:
        self.find_loops(first)
        return self._with_segments(super()._make(first))

    def _with_segments(self, block: Block) -> Block:
        # LLVM takes a while to load.
        from emulator.machine.compiled.blocks import with_segments

        program = self._program
        function = program.function_at(block.statements[0].pc)
        return with_segments(block, program, function, self.target, at_once=self.at_once)

    def find_loops(self, pc: int) -> None:
        """Fills in the loops of the function at a place."""
        from emulator.machine.compiled.loop import loops_by_pc

        function = self._program.function_at(pc)
        if function.name not in self._searched:
            at_once = self.at_once
            self.loops |= loops_by_pc(self._program, function, self.target, at_once=at_once)
            self._searched.add(function.name)

    def plain(self, pc: int) -> Block:
        """A block as the vector engine has it."""
        return super()._make(pc)

    def took(self, block: Block, seconds: float) -> None:
        """A block without segments ran for so long."""


class LazyBlocks(Blocks):
    """Blocks of statements that get segments once they have run for a while."""

    at_once = False

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._seconds: defaultdict[int, float] = defaultdict(float)

    def _make(self, first: int) -> Block:
        return with_rows(self.plain(first), self._program)

    def took(self, block: Block, seconds: float) -> None:
        first = block.statements[0].pc
        if first not in self._seconds:
            self._seconds[first] = 0.0  # The first time makes what the next ones have.
            return
        loop = self.loops.get(first)
        if loop is not None and not loop.gives_up and loop.took(seconds):
            return
        self._seconds[first] += seconds
        if self._seconds[first] <= _COLD * (1 + len(block.statements) / _STATEMENTS):
            return
        self.find_loops(first)
        loop = self.loops.get(first)
        run = 0.0 if loop is None else sum(self._seconds[part.pc] for part in loop.parts)
        if loop is None or loop.gives_up or not loop.took(run):
            self[first] = self._with_segments(self.plain(first))


class CompiledWave(Wave):
    """A wave whose blocks may have segments."""

    grid: Grid
    #: shared memory of waves that are over
    _kept: ClassVar[Scratch] = Scratch()

    def _shared_memory(self) -> Array:
        """A row for each block, of any contents until somebody looks at it."""
        self._is_clear, rows = False, (len(self.ctas), self.shared_bytes)
        return self._kept.take(math.prod(rows)).reshape(rows)

    @property
    def shared(self) -> Array:
        if not self._is_clear:
            self._held.fill(0)
            self._is_clear = True
        return self._held

    @shared.setter
    def shared(self, rows: Array) -> None:
        self._held = rows

    def is_clear(self, warps: int) -> bool:
        """False if a function that so many warps call next is to clear shared memory, each thread
        the rows of its blocks: from then on it is. Blocks of a cluster look at each other's."""
        was = self._is_clear
        if warps * WARP == self.lanes and self.cluster_size == 1:
            self._is_clear = True
            return was
        return self.shared is not None

    def is_new(self, warps: int) -> bool:
        """Whether so many warps are all, and none has executed anything; none sees the memory of
        others in its cluster."""
        return warps * WARP == self.lanes and self.cluster_size == 1 and not self.executed

    @property
    def has_shared(self) -> bool:
        """Whether blocks have shared memory, but for what is the system's."""
        return self.shared_limit > self.grid.reserved_shared

    def begin_again(self) -> None:
        """What its threads stored in memory of their own is gone: they start once more."""
        self._is_clear = False
        self.local.fill(0)

    def release(self) -> None:
        super().release()
        self._kept.give_back(self._held)

    def _run_block(self, strand: Strand, block: Block) -> int | None:
        loop = self.grid.blocks.loops.get(strand.pc)
        for_steps = strand.marks.pop(FOR_STEPS, -1) == strand.pc
        if loop is not None and not for_steps and loop.can_run(strand):
            limit = self._limit(strand)
            if limit > strand.pc:
                left = self._statements_left()
                ended = loop(strand, limit, left, beside=bool(self.ready))
                if ended.went:
                    return self._after_loop(strand, ended)
        return self._run_steps(strand, block)

    def _statements_left(self) -> int:
        """Statements that may still be executed."""
        grid = self.grid
        return _NO_LIMIT if grid.step_limit is None else max(0, grid.look_at - grid.executed)

    def _limit(self, strand: Strand) -> int:
        """The first pc where other strands go first."""
        first = min(map(order, self.ready), default=None)
        if first is None or first[:2] != order(strand)[:2]:
            return _NO_LIMIT
        return first[2]

    def _after_loop(self, strand: Strand, ended: Ended) -> int | None:
        """Next statement of a strand whose lanes have left a loop."""
        grid = self.grid
        self.executed += ended.statements
        grid.executed += ended.statements
        grid.thread_statements += ended.thread_statements
        if ended.failed is not None:
            raise self._failure(strand, *ended.failed)
        if len(ended.pcs) == 1:
            pc = int(ended.pcs[0])
            if pc in ended.for_steps:
                strand.marks[FOR_STEPS] = pc
            if pc not in ended.tired:
                return pc
            strand.pc, strand.loops, strand.polls = pc, 0, 0
            self._give_way(strand, grid.blocks[ended.tired[pc]])
            return None
        pcs = np.flatnonzero(np.bincount(ended.pcs)).tolist()
        strand = self.new_root(strand, *pcs)
        children = {pc: strand.part(ended.pcs == pc, pc) for pc in pcs}
        for pc in ended.for_steps & set(pcs):
            children[pc].marks[FOR_STEPS] = pc
        self.ready += [child for pc, child in children.items() if pc not in ended.tired]
        for pc, part in ended.tired.items():
            self._give_way(children[pc], grid.blocks[part])
        return None

    def _failure(
        self, strand: Strand, lanes: NDArray[np.bool_], part: Part, number: int
    ) -> Exception:
        """The error of the vector engine where lanes must not execute a statement: its steps run
        once more, on registers as they were.

        Memory may have changed since; where all goes well then, only the statement is known.
        """
        from emulator.machine.compiled.warpgroups import orders

        failed = strand.part(lanes, part.pc)
        block = self.grid.blocks.plain(part.pc)
        for step, statement in zip(block.steps, block.statements, strict=False):
            if orders(statement):
                continue  # other warps are there no more
            try:
                step(failed)
            except Exception as error:
                placed: Exception = self.grid.placed(error, failed, statement)
                return placed
        return self.grid.placed(refused(), failed, block.statements[number])

    def _run_steps(self, strand: Strand, block: Block) -> int | None:
        """Runs the statements of a block as steps or segments."""
        if not block.counts:
            start = perf_counter()
            try:
                return super()._run_block(strand, block)
            finally:
                self.grid.blocks.took(block, perf_counter() - start)
        done, lanes, marks = 0, len(strand), strand.marks
        try:
            for step, count in zip(block.steps, block.counts, strict=True):
                marks[DONE] = 0
                step(strand)
                done += count
            marks[DONE] = 0
            following = block.end(strand)
            done = len(block.statements)
            return following
        except Parked:
            done += marks[DONE]
            return None
        except Exception as error:
            done += marks[DONE]
            raise self.grid.placed(error, strand, block.statements[done]) from error
        finally:
            self.executed += done
            self.grid.count(done, lanes)


class Grid(engine.Grid):
    """A launch whose segments are compiled before they run."""

    wave_class = CompiledWave
    blocks_class = Blocks
    blocks: Blocks

    def __init__(self, launch: Launch) -> None:
        super().__init__(launch)
        self.blocks.target = self.target

    def lanes_together(self) -> int:
        loop = self.blocks.loops.get(self.function.first)
        is_native = self.launch.regions is None and loop is not None and loop.is_native
        if not is_native:
            return super().lanes_together()
        assert loop is not None
        most = _NATIVE_BYTES + self.arena.used
        lanes = min(_NATIVE_LANES, most // loop.bytes_of_lane)
        # All waves are as large: as few as there can be, and no more memory than they need.
        warps, left = -(-self.threads // WARP), self._last - self._started
        block = warps * WARP
        waves = -(-left // min(max(1, lanes // block), loop.most_blocks(warps)))
        return -(-left // waves) * block


class LazyGrid(Grid):
    """A launch whose segments are compiled once they have run long enough."""

    blocks_class = LazyBlocks

    def __init__(self, launch: Launch) -> None:
        super().__init__(launch)
        CLOCK.start()
