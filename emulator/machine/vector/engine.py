"""The vector engine: runs the thread blocks of a grid in waves, each block of statements as steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from emulator.errors import EmulatorError
from emulator.machine.failure import Failure
from emulator.machine.pending import Pending
from emulator.machine.report import KernelError
from emulator.machine.vector import control, waiting
from emulator.machine.vector.barriers import Barriers
from emulator.machine.vector.clusters import Clusters
from emulator.machine.vector.statements import POLLING, step_of
from emulator.machine.vector.strand import Frame, Strand
from emulator.machine.vector.wave import Block, Wave
from emulator.memory.arena import AccessError

if TYPE_CHECKING:
    from emulator.machine.launch import Launch
    from emulator.memory.arena import Arena
    from emulator.ptx.program import Program, Statement

#: lanes that run together: their registers fit a cache, and calls of NumPy cost little for each
LANES = 1 << 14
#: bytes of shared and local memory of all blocks that run together
_MEMORY = 1 << 28
#: times that every wave in turn may look at memory in vain before nothing will ever change
_VAIN_TURNS = 4


class Blocks(dict[int, Block]):
    """Blocks of statements by their first pc, made when they are first met."""

    def __init__(self, program: Program) -> None:
        super().__init__()
        self._program = program

    def __missing__(self, pc: int) -> Block:
        block = self[pc] = self._make(pc)
        return block

    def _make(self, first: int) -> Block:
        program, function = self._program, self._program.function_at(first)
        steps: list[Callable[[Strand], None]] = []
        statements: list[Statement] = []
        polls = False
        for pc in range(first, function.end):
            statement = program.statements[pc]
            if statements and pc in program.leaders:
                end = control.fall_through(pc)
                break
            statements.append(statement)
            polls |= statement.name in POLLING
            if statement.name in control.ENDS:
                end = control.ENDS[statement.name](statement, function, program)
                break
            steps.append(step_of(statement, function))
        else:
            end = control.past_the_end(function)
            statements.append(program.statements[function.end - 1])
        return Block(tuple(statements), tuple(steps), end, polls)


class Grid:
    """A launch under way: its thread blocks, its memory, its waves."""

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.program: Program = launch.program
        self.function = launch.function
        self.size, self.block, self.cluster = launch.grid, launch.block, launch.cluster
        self.explicit_cluster = int(launch.explicit_cluster)
        self.threads = int(np.prod(self.block))
        self.arena: Arena = launch.arena
        self.reserved_shared = launch.reserved_shared
        self.dynamic_shared = launch.dynamic_shared
        self.shared_bytes = -(-launch.shared_bytes // 256) * 256
        self.target, self.arithmetic = launch.module.target, launch.arithmetic
        self.processors = launch.processors
        self.environment = launch.environment
        self.blocks = launch.blocks(Blocks)
        self.step_limit = launch.step_limit
        self.executed = 0
        self.writes = 0

    # --- running ---

    def run(self) -> None:
        """Runs all thread blocks; raises KernelError where one cannot go on."""
        left = iter(self._chunks())
        waves: list[Wave] = []
        vain = 0
        while True:
            progress = self.executed_usefully
            for wave in list(waves):
                wave.run()
                if not wave.ready:
                    if wave.waiting:
                        waiting.resolve(wave)
                        continue
                    waves.remove(wave)
            ready = any(wave.ready for wave in waves)
            chunk = next(left, None)
            if chunk is not None:
                waves.append(self._start(chunk))
                vain = 0
            elif not waves:
                return
            elif not ready or self.executed_usefully == progress:
                vain += 1
                if vain > _VAIN_TURNS:
                    raise waiting.deadlock(waves)
            else:
                vain = 0

    @property
    def executed_usefully(self) -> int:
        """Changes whenever anything happened that another thread may wait for."""
        return self.writes

    def _chunks(self) -> Iterator[NDArray[np.int64]]:
        """Numbers of the thread blocks that run together, those of a cluster side by side."""
        total, cluster = int(np.prod(self.size)), int(np.prod(self.cluster))
        memory = self.shared_bytes + self.function.local_bytes * self.threads
        lanes = -(-self.threads // 32) * 32
        count = max(1, min(LANES // lanes, _MEMORY // max(1, memory)))
        count = max(cluster, count // cluster * cluster)
        for first in range(0, total, count):
            places = np.arange(first, min(total, first + count))
            yield places if cluster == 1 else self._by_cluster(places)

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
        wave = Wave(self, ctas)
        wave.barriers, wave.clusters = Barriers(wave), Clusters(wave)
        wave.pending = Pending(len(wave.thread), self.launch.async_order, self.launch.seed)
        self.need_local(wave, self.function.local_bytes)
        wave.start(self.function, lambda frame: None)
        return wave

    def need_local(self, wave: Wave, size: int) -> None:
        """Room for so many bytes of local memory in each thread."""
        have = wave.local.shape[1]
        if size > have:
            size = -(-max(size, 2 * have) // 64) * 64
            if size * len(wave.thread) > 16 * _MEMORY:
                raise Failure("stack overflow", f"threads need {size} bytes of local memory each")
            grown = np.zeros((len(wave.thread), size), np.uint8)
            grown[:, :have] = wave.local
            wave.local = grown

    # --- what strands tell ---

    def now(self) -> int:
        """The time, in statements executed."""
        self.executed += 1
        return self.executed

    def count(self, strand: Strand, statements: int) -> None:
        self.executed += statements

    def turn_ended(self, wave: Wave, strand: Strand, polls: bool) -> None:
        """A strand went round often enough for others to go first."""
        if self.step_limit is not None and self.executed > self.step_limit:
            raise Failure(
                "step limit",
                f"the limit of {self.step_limit:,} executed statements is reached",
            )

    # --- errors ---

    def placed(self, error: Exception, strand: Strand, statement: Statement) -> Exception:
        """The error with the place where it happened; what is no failure of the kernel, as it is."""
        if isinstance(error, AccessError):
            fault = error.fault
            kind, reason, index = fault.kind, fault.reason, fault.index
        elif isinstance(error, Failure):
            kind, reason, index = error.kind, error.reason, error.index
        elif isinstance(error, EmulatorError) and not isinstance(error, KernelError):
            kind, reason, index = type(error).__name__.removesuffix("Error"), str(error), None
        else:
            return error
        lanes = strand.lanes if index is None else strand.lanes[index : index + 1]
        return self.launch.error(kind, reason, statement, strand.wave, lanes)


@dataclass(frozen=True)
class Ran:
    """What a run leaves behind besides memory."""

    statements: int


def frames_of(strand: Strand) -> list[Frame]:
    return strand.frames
