"""Vector engine: runs thread blocks of a grid in waves, blocks of statements as steps."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dtypes import Array
from emulator.machine.options import Order
from emulator.machine.report import failure_of
from emulator.machine.shared.control import MOST_LOCAL, check_local
from emulator.machine.shared.failure import (
    VAIN_POLLS,
    VAIN_STATEMENTS,
    Failure,
    in_vain,
    over_limit,
    polls_in_vain,
)
from emulator.machine.vector import waiting
from emulator.machine.vector.blocks import Blocks
from emulator.machine.vector.runs import RunBlocks
from emulator.machine.vector.schedule import Schedule
from emulator.machine.vector.strand import WARP, Strand
from emulator.machine.vector.watching import GridWatch, WaveWatch
from emulator.machine.vector.wave import Block, Checks, Wave
from emulator.warp.call import Undefined

if TYPE_CHECKING:
    from emulator.machine.launch import Launch
    from emulator.memory.arena import Arena
    from emulator.ptx.program import Program, Statement

#: lanes that run together: their registers fit a cache, and calls of NumPy cost little for each
LANES = 1 << 14
#: registers of all of them, of kernels that have thousands
_REGISTERS = 1 << 25
#: the same of waves whose warps run one by one: each step looks at all of them
_LANES_BY_WARP = 1 << 8
#: bytes of shared and local memory of all blocks that run together
_MEMORY = 1 << 28
#: bytes of local memory of all threads that run together, whose calls may need more than that
_LOCAL_OF_ALL = 1 << 32
#: times that all who wait may be let go on, as try_wait may, before nothing will ever change
_VAIN_TURNS = 256
#: reads of a clock with no effect between them, after which each skips a 16th of the time they took
_IDLE_READS = 256
#: statements after which a launch without a limit is looked at once more
_LOOK = 1 << 16


class Grid:
    """A launch under way: its thread blocks, its memory, its waves."""

    #: the checks; None: off
    checks: Checks | None = None
    #: handling of matrix instructions whose result PTX leaves undefined
    undefined: Undefined = "hardware"
    #: there is no global memory: an address in no window is one in shared memory
    only_shared = False
    #: when asynchronous operations take effect, and by which seed
    async_order: Order = "early"
    seed: int | None = None
    #: statements that may be executed without any effect on memory or on other threads
    most_in_vain = VAIN_STATEMENTS
    #: lanes go over from a strand to another part of the same one: not where strands have an order
    #: of their own, nor where counters look for those that part, or each lane's registers are kept
    sends = False
    #: reads of a clock since anything had an effect, the time of the first of them, `progress`
    #: then, and what the clock has skipped
    _idle_reads, _idle_since, _at_read, _skipped = 0, 0, -1, 0
    #: classes that run blocks of statements, and make them
    wave_class: type[Wave] = Wave
    blocks_class: type[Blocks] = RunBlocks

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.program: Program = launch.program
        self.function = launch.function
        self.size, self.block, self.cluster = launch.grid, launch.block, launch.cluster
        self.explicit_cluster = int(launch.explicit_cluster)
        self.threads = math.prod(self.block)
        self.arena: Arena = launch.arena
        self.reserved_shared = launch.reserved_shared
        self.dynamic_shared, self.smem_size = launch.dynamic_shared, launch.smem_size
        self.shared_bytes = self.shared_limit = -(-launch.shared_bytes // 256) * 256
        self.target, self.arithmetic = launch.module.target, launch.arithmetic
        self.processors = launch.processors
        self.environment = launch.environment
        self.checks = launch.checks
        self.async_order, self.seed = launch.async_order, launch.seed
        self.blocks = launch.blocks(
            self.blocks_class, partial(self.blocks_class, checks=self.checks)
        )
        self._limit_steps(launch.step_limit, launch.earlier)
        #: statements, and how often threads executed one
        self.executed = self.thread_statements = 0
        self.total = math.prod(self.size)
        #: how many have started, and how many are to
        self._started, self._last = launch.part or (0, self.total)
        #: the order of a seed; None: ascending
        self.schedule: Schedule | None = None
        if launch.seed is not None:
            clusters = self.total // math.prod(self.cluster)
            self.schedule = Schedule(launch.seed, clusters)
        ordered = self.schedule is not None or launch.regions is not None
        self.sends = not (ordered or launch.watchers)
        #: blocks that run may take over others, if these have not started
        self._may_cancel = "cancels" in self.program.effects
        #: changes whenever something happens that another thread may wait for; how often that was
        #: no more than a barrier
        self.progress = self.meetings = 0
        self.specials: dict[tuple[str, int], Array] = {}
        #: statements executed since then, if all who could go on looked at memory in vain
        self.polled = 0
        #: a wave that only looks at memory may wait for another one
        self.has_others = False
        self._resumes = self._changes = 0
        self.watch: GridWatch | None = None
        if self.checks is not None:
            self.watch = self.checks.grid(self)
            launch.found, launch.warned = self.watch.findings, self.watch.warnings

    # --- running ---

    def run(self) -> None:
        """Runs all thread blocks; raises KernelError where one cannot go on."""
        waves: list[Wave] = []
        before, turns = -1, 0
        while True:
            self.has_others = len(waves) > 1 or self._started < self._last
            for wave in list(waves):
                wave.run()
                if wave.is_over:
                    wave.pending.finish()
                    if wave.watch is not None:
                        wave.watch.finish()
                    waves.remove(wave)
                    self.launch.blocks_done(len(wave.ctas))
                    wave.release()
            if self._started < self._last:
                waves.append(self._start(self._next_blocks()))
                self.progress, self.polled = self.progress + 1, 0
            elif not waves:
                # It refers to the grid: without this both would wait for Python's collector.
                self.watch = None
                return
            elif self.progress != before:
                before, turns = self.progress, 0
            else:
                turns += 1
                ready = any(wave.ready for wave in waves)
                if turns > _VAIN_TURNS and not ready:
                    raise waiting.deadlock(waves)
                if self._resumed_in_vain():
                    raise waiting.deadlock(waves)
                resumed = [wave for wave in waves if waiting.resume(wave)]
                if not resumed and not ready:
                    raise waiting.deadlock(waves)
                self._resumes += bool(resumed)

    def _resumed_in_vain(self) -> bool:
        """Whether waits were given up again and again, and nothing changed but that threads met: a
        loop around a wait that will never be over, with a barrier in it."""
        if self.changes != self._changes:
            self._resumes, self._changes = 0, self.changes
        return self._resumes > _VAIN_TURNS

    @property
    def changes(self) -> int:
        """Changes whenever something happens that a thread in a loop may wait for: more than that
        threads met."""
        return self.progress - self.meetings

    def _limit_steps(self, limit: int | None, earlier: int = 0) -> None:
        """Says how many statements may be executed, with those that other grids did before."""
        self.step_limit, self._earlier = limit, earlier
        #: the number of statements at which `check_steps` is called
        self.look_at = _LOOK if limit is None else limit - earlier

    def check_steps(self, strand: Strand, block: Block) -> None:
        """Raises KernelError where more statements than `look_at` are too many."""
        if self.step_limit is None:
            self.look_at = self.executed + _LOOK
            self._check_vain(strand, block)
        else:
            failure = over_limit(self._earlier + self.executed, self.step_limit)
            raise self.placed(failure, strand, block.statements[-1])

    def check_polls(self, strand: Strand, block: Block) -> None:
        """Raises KernelError where a strand goes round in vain, and has done so often."""
        if self.step_limit is not None:
            return
        if self.polled > VAIN_POLLS and block.polls:
            raise self.placed(polls_in_vain(), strand, block.statements[-1])
        self._check_vain(strand, block)

    def _check_vain(self, strand: Strand, block: Block) -> None:
        vain = strand.wave.vain
        if vain > self.most_in_vain:
            raise self.placed(in_vain(vain), strand, block.statements[-1])

    def _next_blocks(self) -> NDArray[np.int64]:
        """Numbers of the thread blocks that run together, those of a cluster side by side."""
        cluster = math.prod(self.cluster)
        memory = self.shared_bytes + self.function.local_bytes * self.threads
        if self.watch is not None:
            memory += self.watch.bytes_of_block(self.shared_bytes)
        lanes = -(-self.threads // WARP) * WARP
        count = max(1, min(self.lanes_together() // lanes, _MEMORY // max(1, memory)))
        if self._may_cancel:
            count = min(count, self.processors)
        if self.schedule:
            count = self.schedule.together(count)
        count = max(cluster, count // cluster * cluster)
        first, self._started = self._started, min(self._last, self._started + count)
        return self._blocks_at(np.arange(first, self._started))

    def lanes_together(self) -> int:
        """How many lanes are to run together."""
        if self.launch.regions is not None:
            return _LANES_BY_WARP
        return min(LANES, _REGISTERS // max(1, len(self.function.registers)))

    def cancel(self) -> tuple[int, int, int] | None:
        """Takes the next cluster out that has not started: the first of its thread blocks."""
        if self._started >= self._last:
            return None
        first = self._started
        self._started += math.prod(self.cluster)
        self.launch.blocks_done(self._started - first)
        block = int(self._blocks_at(np.array([first]))[0])
        x, y, _ = self.size
        return block % x, block // x % y, block // (x * y)

    def _blocks_at(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Numbers of the blocks that start at these places in the order."""
        cluster = math.prod(self.cluster)
        if self.schedule:
            places = self.schedule.blocks(places, cluster)
        return places if cluster == 1 else self._by_cluster(places)

    def _by_cluster(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Linear numbers of blocks that are counted cluster by cluster."""
        sizes, blocks = np.array(self.size), np.array(self.cluster)
        cluster, rank = np.divmod(places, int(blocks.prod()))
        clusters = sizes // blocks
        at = np.stack(np.unravel_index(cluster, clusters[::-1])[::-1])
        inside = np.stack(np.unravel_index(rank, blocks[::-1])[::-1])
        x, y, z = at * blocks[:, None] + inside
        out: NDArray[np.int64] = x + sizes[0] * (y + sizes[1] * z)
        return out

    def _start(self, ctas: NDArray[np.int64]) -> Wave:
        wave = self._new_wave(ctas)
        self.need_local(wave, self.function.local_bytes)
        wave.start(self.function, lambda frame: None)
        return wave

    def _new_wave(self, ctas: NDArray[np.int64]) -> Wave:
        if self.launch.regions is None:
            return self.wave_class(self, ctas)
        from emulator.machine.vector.convergent import ConvergentWave

        return ConvergentWave(self, ctas)

    def watch_of(self, wave: Wave) -> WaveWatch | None:
        """The checks of a wave; None: off."""
        return None if self.checks is None else self.checks.wave(self.watch, wave)

    def need_local(self, wave: Wave, size: int) -> None:
        """Room for so many bytes of local memory in each thread."""
        have, threads = wave.local.shape[1], wave.lanes
        if size > have:
            check_local(size, 0)
            most = min(MOST_LOCAL, _LOCAL_OF_ALL // threads // 64 * 64)
            if size > most:
                reason = (
                    f"{threads:,} threads run together and need {size:,} bytes of local memory "
                    f"each; there is room for {most:,}"
                )
                raise Failure("stack overflow", reason, 0)
            grown = np.zeros((threads, min(-(-max(size, 2 * have) // 64) * 64, most)), np.uint8)
            grown[:, :have] = wave.local
            wave.local = grown
        wave.local_bytes = max(wave.local_bytes, size)

    # --- what strands tell ---

    def now(self) -> int:
        """The time, in statements executed; it runs faster for a loop that only waits for time."""
        self.executed += 1
        time = self.executed + self._skipped
        if self.progress != self._at_read:
            self._at_read, self._idle_since, self._idle_reads = self.progress, time, 0
        self._idle_reads += 1
        if self._idle_reads > _IDLE_READS:
            self._skipped += (time - self._idle_since) // 16
        return time

    def count(self, statements: int, lanes: int) -> None:
        self.executed += statements
        self.thread_statements += statements * lanes

    # --- errors ---

    def placed(self, error: Exception, strand: Strand, statement: Statement) -> Exception:
        """The error with the place where it happened; what the kernel did not cause, as it is.

        It names the first lane that the statement fails in, or all lanes of the first warp that it
        fails for as a whole.
        """
        failure = failure_of(error)
        if failure is None:
            return error
        lanes = strand.staying
        groups = lanes // (WARP if failure.index is None else failure.concerns)
        named = lanes[groups == groups[failure.index or 0]].tolist()
        return self.launch.failed(failure, statement, map(strand.wave.coordinates, named))
