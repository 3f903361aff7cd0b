"""Debugger: statements of a `Warp`, which run on its registers and its shared memory."""

from __future__ import annotations

from math import prod
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np

from dtypes import Array, code_type
from emulator.machine.arguments import Placed
from emulator.machine.reference.engine import Grid
from emulator.machine.reference.thread import Cluster
from emulator.machine.report import Report
from emulator.machine.shared.place import Index
from emulator.machine.shared.state import WarpState
from emulator.machine.turns import Turn
from emulator.machine.vector.texts import Source
from emulator.memory.arena import Arena
from emulator.ptx.statements import Text


class Initial(NamedTuple):
    """The state of a machine before its statements run."""

    #: words of all lanes by the number of the register
    words: dict[int, Array]
    #: shared memory, a row for each machine of the batch
    shared: Array


def initial_of(text: Text, state: WarpState) -> Initial:
    words = {i: state.registers[name].words.reshape(-1) for name, i in text.registers.items()}
    return Initial(words, state.shared.data.reshape(prod(state.batch), -1).copy())


class TextLaunch(Source):
    """Statements, as the debugger asks of a launch: each machine of a batch is a thread block."""

    async_order, seed, arithmetic, regions, earlier = "early", None, "auto", None, 0
    processors, cluster, reserved_shared = 1, (1, 1, 1), 0
    observe: object = None
    memory, goes_on = None, False

    def __init__(
        self, text: Text, state: WarpState, initial: Initial, step_limit: int | None = None
    ) -> None:
        super().__init__(text, state)
        self.text, self.state, self.step_limit = text, state, step_limit
        self.initial = initial
        self.program, self.function = text.program, text.function
        self.total_blocks = prod(state.batch)
        self.grid, self.block = (self.total_blocks, 1, 1), (state.lanes, 1, 1)
        self.shared_bytes = state.shared.bytes
        self.arena = Arena()
        self.printed: list[str] = []
        self.environment: dict[str, int] = {}
        bound = SimpleNamespace(source=text.source, parsed=SimpleNamespace(files=()))
        self.module = SimpleNamespace(target=state.target, _bound=bound)
        self.kernel = SimpleNamespace(name="statements", module=self.module)

    # --- what the player asks of a launch ---

    def _turns(self) -> dict[str, Turn]:
        return {}

    def _place(self, *, apart: bool) -> Placed:
        """Statements of a warp have no arguments."""
        return Placed(apart=apart)

    def _run_grids(self, engine: str, under_way: object) -> dict[str, int]:
        grid = _Grid(self)
        grid.run()
        self.started = grid.started
        return {"statements": grid.executed, "thread_statements": grid.thread_statements}

    def _finish(self, placed: Placed, counters: dict[str, int]) -> Report:
        """Gives the machine its registers and its shared memory."""
        threads = [thread for cluster in self.started for thread in cluster.threads]
        state = self.state
        for name, index in self.text.registers.items():
            words = [thread.frames[0].registers[index] for thread in threads]
            register = state.registers[name]
            state.registers.write(name, np.array(words, code_type(register.bits)))
        rows = [cluster.blocks[0].shared[: self.shared_bytes] for cluster in self.started]
        state.shared.data[...] = np.array(rows).reshape(state.shared.data.shape)
        return Report("statements", counters=counters)


class _Grid(Grid):
    """Threads that start with what the registers and the shared memory of the machine hold."""

    def __init__(self, launch: TextLaunch) -> None:
        # Statements of a warp call no function of the system.
        super().__init__(launch)  # type: ignore[arg-type]
        self._launch = launch
        self.started: list[Cluster] = []

    def _start(self, first: Index) -> Cluster:
        cluster = super()._start(first)
        (block,) = cluster.blocks
        block.shared[: self._launch.shared_bytes] = self._launch.initial.shared[block.number]
        for thread in block.threads:
            for index, words in self._launch.initial.words.items():
                thread.registers[index] = int(words[block.number * self.threads + thread.index])
        self.started.append(cluster)
        return cluster
