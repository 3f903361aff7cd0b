"""The compiled engine: the vector engine, of which runs of statements are native functions.

Whatever has no LLVM instructions stays a step of the vector engine, as do barriers, waits and all
that lanes of different warps do together.
"""

from __future__ import annotations

from collections import defaultdict
from time import thread_time
from typing import TYPE_CHECKING, Any

from emulator.machine.compiled import DONE
from emulator.machine.vector import engine
from emulator.machine.vector.strand import Parked, Strand
from emulator.machine.vector.wave import Block, Wave
from emulator.targets import Target

if TYPE_CHECKING:
    from emulator.machine.launch import Launch

#: seconds that a block runs as steps before it is looked at
_COLD = 0.02


class Blocks(engine.Blocks):
    """Blocks of statements with segments, which are compiled before they run."""

    at_once = True
    #: that of the module
    target: Target

    def _make(self, first: int) -> Block:
        return self._with_segments(super()._make(first))

    def _with_segments(self, block: Block) -> Block:
        # LLVM takes a while to load.
        from emulator.machine.compiled.blocks import with_segments

        program = self._program
        function = program.function_at(block.statements[0].pc)
        return with_segments(block, program, function, self.target, at_once=self.at_once)

    def took(self, block: Block, seconds: float) -> None:
        """A block without segments ran for so long."""


class LazyBlocks(Blocks):
    """Blocks of statements that get segments once they have run for a while."""

    at_once = False

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._seconds: defaultdict[int, float] = defaultdict(float)

    def _make(self, first: int) -> Block:
        return engine.Blocks._make(self, first)

    def took(self, block: Block, seconds: float) -> None:
        first = block.statements[0].pc
        self._seconds[first] += seconds
        if self._seconds[first] > _COLD:
            self[first] = self._with_segments(block)


class CompiledWave(Wave):
    """A wave whose blocks may have segments."""

    def _run_block(self, strand: Strand, block: Block) -> int | None:
        if not block.counts:
            start = thread_time()
            try:
                return super()._run_block(strand, block)
            finally:
                self.grid.blocks.took(block, thread_time() - start)
        done, marks = 0, strand.marks
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
            self.grid.count(strand, done)


class Grid(engine.Grid):
    """A launch whose segments are compiled before they run."""

    wave_class = CompiledWave
    blocks_class = Blocks

    def __init__(self, launch: Launch) -> None:
        super().__init__(launch)
        assert isinstance(self.blocks, Blocks)
        self.blocks.target = self.target


class LazyGrid(Grid):
    """A launch whose segments are compiled once they have run long enough."""

    blocks_class = LazyBlocks
