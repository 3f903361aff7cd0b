"""The grid: runs the clusters of a launch, and says where a thread could not go on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from emulator.arith import Engine
from emulator.errors import EmulatorError
from emulator.machine.failure import Failure
from emulator.machine.reference import mbarriers
from emulator.machine.reference.block import Block, Cluster, Each, Flow, Together
from emulator.machine.reference.statements import Code
from emulator.machine.reference.thread import State, Thread
from emulator.machine.report import Index, KernelError
from emulator.memory.arena import AccessError

if TYPE_CHECKING:
    from emulator.machine.launch import Launch
    from emulator.ptx.program import Statement

#: threads that are there at a time, unless those that are wait for others
_THREADS = 1 << 13
#: times that everyone may look at memory in vain before nothing will ever change
_VAIN_TURNS = 4


class Grid:
    """A launch under way."""

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.program, self.function = launch.program, launch.function
        self.size, self.block, self.cluster = launch.grid, launch.block, launch.cluster
        self.threads = int(np.prod(self.block))
        self.lanes_of_block = -(-self.threads // 32) * 32
        self.blocks_of_cluster = int(np.prod(self.cluster))
        self.shared_bytes = -(-launch.shared_bytes // 256) * 256
        self.arena, self.target = launch.arena, launch.module.target
        #: matrix instructions have a reference of their own; a launch may take another
        self.arithmetic: Engine = "reference" if launch.arithmetic == "auto" else launch.arithmetic
        self.code = Code(self.program)
        #: statements of threads executed, and things done that others may wait for
        self.executed = self.progress = 0

    # --- running ---

    def run(self) -> None:
        """Runs all thread blocks; raises KernelError where one cannot go on."""
        left = self._clusters()
        there: list[Cluster] = []
        most = max(1, _THREADS // (self.lanes_of_block * self.blocks_of_cluster))
        vain = 0
        while True:
            before = self.progress
            for cluster in there:
                cluster.run()
            there = [cluster for cluster in there if cluster.alive]
            stuck = self.progress == before
            coming = next(left, None) if stuck or len(there) < most else None
            if coming is not None:
                there.append(coming)
                vain = 0
            elif not there:
                return
            elif stuck and not self._finish_pending(there):
                vain += 1
                if vain > _VAIN_TURNS:
                    raise self._deadlock(there)
                for cluster in there:
                    mbarriers.time_out(cluster)
            else:
                vain = 0

    def _clusters(self) -> Iterator[Cluster]:
        """Clusters in the order of their blocks, x first."""
        counts = [n // m for n, m in zip(self.size, self.cluster, strict=True)]
        for z, y, x in product(*(range(n) for n in counts[::-1])):
            cluster = Cluster(self)
            inside = product(*(range(n) for n in self.cluster[::-1]))
            for rank, (k, j, i) in enumerate(inside):
                a, b, c = self.cluster
                cluster.blocks.append(Block(cluster, (x * a + i, y * b + j, z * c + k), rank))
            yield cluster

    def _finish_pending(self, there: list[Cluster]) -> bool:
        """Does what was issued and nobody waits for in so many words; whether there was any."""
        done = [cluster.pending.finish() for cluster in there]
        return any(done)

    def advance(self, threads: list[Thread], alone: bool) -> list[Thread]:
        """Executes statements of threads at one place, until they part, wait, or others go first;
        those that have gone round often enough to give way."""
        pc, code, leaders = threads[0].pc, self.code, self.program.leaders
        thread = threads[0]
        try:
            while True:
                step = code[pc]
                self.executed += len(threads)
                if isinstance(step, Each):
                    run = step.run
                    for thread in threads:
                        run(thread)
                    pc += 1
                    if alone or pc not in leaders:
                        continue
                    _go(threads, pc)
                    return []
                if isinstance(step, Together):
                    self._gather(pc, step, threads)
                    return []
                for thread in threads:
                    following = step.run(thread)
                    if following is not None:
                        thread.pc = following
                first = threads[0].pc
                if any(t.state is not State.READY or t.pc != first for t in threads):
                    return _tired(step, threads, pc)
                if first <= pc or not alone:
                    return _tired(step, threads, pc)
                pc = first
        except Exception as error:
            raise self.placed(error, [thread], self.program.statements[pc]) from error

    def _gather(self, pc: int, step: Together, threads: list[Thread]) -> None:
        """Threads come to a statement that they execute together."""
        here = threads
        if step.guard is not None:
            here = [thread for thread in threads if step.guard(thread)]
            _go([thread for thread in threads if not step.guard(thread)], pc + 1)
        if not here:
            return
        if not step.lanes:
            self.execute_together(pc, step, here)
            return
        for thread in here:
            if step.mask is not None and not (mask := step.mask(thread)) >> thread.lane & 1:
                reason = f"the lane is not in its own membermask {mask:#010x}"
                failure = Failure("membermask", reason)
                raise self.placed(failure, [thread], self.program.statements[pc])
            thread.stops(State.LANES, pc)
        here[0].warp.meet(pc, step)

    def execute_together(self, pc: int, step: Together, threads: Sequence[Thread]) -> None:
        """Executes a statement whose threads are all there."""
        statement = self.program.statements[pc]
        try:
            if step.whole and len(threads) < step.lanes:
                reason = f"{step.whole} needs all {step.lanes} lanes; some have ended"
                raise Failure("lanes missing", reason)
            step.run(threads)
        except Exception as error:
            raise self.placed(error, threads, statement) from error
        _go(threads, pc + 1)
        self.progress += 1

    def now(self) -> int:
        """The time, in statements executed."""
        self.executed += 1
        return self.executed

    def check_limit(self, thread: Thread) -> None:
        limit = self.launch.step_limit
        if limit is not None and self.executed > limit:
            failure = Failure(
                "step limit", f"the limit of {limit:,} executed statements is reached"
            )
            raise self.placed(failure, [thread], self.program.statements[thread.pc])

    # --- errors ---

    def placed(
        self, error: Exception, threads: Sequence[Thread], statement: Statement
    ) -> Exception:
        """The error with the place where it happened; what is no failure of a kernel stays."""
        if isinstance(error, AccessError):
            fault = error.fault
            kind, reason = fault.kind, fault.reason
            index: int | None = fault.index
        elif isinstance(error, Failure):
            kind, reason, index = error.kind, error.reason, error.index
        elif isinstance(error, EmulatorError) and not isinstance(error, KernelError):
            kind, reason, index = type(error).__name__.removesuffix("Error"), str(error), None
        else:
            return error
        chosen = threads if index is None else threads[index : index + 1]
        found = _Coordinates(chosen)
        return self.launch.error(kind, reason, statement, found, np.arange(len(chosen)))

    def _deadlock(self, there: list[Cluster]) -> KernelError:
        """Nothing can go on: who waits where, and for what."""
        found: dict[tuple[Index, int, str], int] = {}
        for cluster in there:
            for thread in cluster.threads:
                if thread.state is not State.ENDED:
                    key = thread.warp.block.index, thread.pc, thread.state.value
                    found[key] = found.get(key, 0) + 1
        lines = [
            f"{count} threads of block {block} at line {self._line(pc)}: {why}"
            for (block, pc, why), count in list(found.items())[:20]
        ]
        return KernelError("deadlock", "no thread can go on:\n  " + "\n  ".join(lines))

    def _line(self, pc: int) -> Any:
        return self.launch.place_of(self.program.statements[pc]).line


@dataclass(frozen=True)
class _Coordinates:
    """Threads, as messages ask for them."""

    threads: Sequence[Thread]

    def coordinates(self, index: int) -> tuple[Index, Index]:
        thread = self.threads[index]
        return thread.warp.block.index, thread.coordinates


def _go(threads: Sequence[Thread], pc: int) -> None:
    for thread in threads:
        thread.pc, thread.state = pc, State.READY


def _tired(step: Flow, threads: list[Thread], pc: int) -> list[Thread]:
    """Those of the threads that went back so often that others may go first."""
    out = []
    for thread in threads:
        if thread.state is State.READY and thread.pc <= pc:
            thread.loops += 1
            if thread.loops % step.patience == 0:
                out.append(thread)
    return out
