"""Vector engine: texts of statements on the registers and the shared memory of a machine, all in
one wave.

Each machine of a batch is a thread block of one warp or warpgroup. A register of the machine that
the text names is one of the function's registers: it is put there when the text starts, and taken
from there when all lanes have ended.
"""

from __future__ import annotations

from collections.abc import Collection
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dtypes import Array
from emulator.errors import EmulatorError, OperandError, UndefinedError, UnsupportedError
from emulator.machine.report import KernelError
from emulator.machine.shared.failure import Failure
from emulator.machine.shared.place import Place
from emulator.machine.vector.blocks import Blocks
from emulator.machine.vector.compute import Step
from emulator.machine.vector.control import End
from emulator.machine.vector.defined import Defined
from emulator.machine.vector.engine import Grid
from emulator.machine.vector.strand import Frame, Strand, joined
from emulator.machine.vector.wave import Wave
from emulator.memory.arena import AccessError
from emulator.memory.space import Space
from emulator.ptx.names import Symbol, place_name
from emulator.ptx.statements import Text, at_place

if TYPE_CHECKING:
    from emulator.machine.shared.registers import Register
    from emulator.machine.shared.state import WarpState
    from emulator.ptx.program import Function, Statement

#: rows of shared memory are multiples of the largest access
_ROW = 32
#: kinds of failures that are mistakes in operands, and those that end a kernel
_OPERANDS = ("operand",)
_ENDS = ("trap", "deadlock", "endless loop", "step limit", "stack overflow", "target")


class TextGrid(Grid):
    """A text on its machine: runs as often as it is asked to."""

    only_shared = True
    #: a warp alone is slow
    most_in_vain = 1 << 18

    def __init__(self, text: Text, state: WarpState) -> None:
        self.text, self.state = text, state
        self.launch = Source(text, state)  # type: ignore[assignment]
        self.program, self.function = text.program, text.function
        self._machines = prod(state.batch)
        self.size, self.block, self.cluster = (self._machines, 1, 1), (state.lanes, 1, 1), (1, 1, 1)
        self.explicit_cluster = 0
        self.threads = state.lanes
        self.reserved_shared = self.dynamic_shared = 0
        self.target, self.arithmetic, self.undefined = state.target, state.engine, state.undefined
        self.processors, self.environment = 1, {}
        self.blocks = _TextBlocks(self)
        self._limit_steps(None)
        self.executed = self.thread_statements = self.progress = self.meetings = 0
        self.specials: dict[tuple[str, int], Array] = {}
        self._resumes = self._changes = self.polled = 0
        self.has_others = False
        self.total = self._last = self._machines
        self._started = 0
        self.watch = self.schedule = None
        self._may_cancel = False
        self._left: list[Frame] = []
        self._wave: Wave | None = None
        self._has_barriers = any("barrier" in x.effects for x in text.program.statements)
        self._registers = [(i, state.registers[name]) for name, i in text.registers.items()]
        #: facts about the lanes of the whole wave, the same in every run
        self._marks: dict[str, Any] = {}

    @property
    def arena(self) -> Any:  # type: ignore[override]
        raise UnsupportedError(
            "a warp has shared memory alone; `execute` takes global_memory=, and a kernel of a "
            "Module has all memory"
        )

    def run_text(self, step_limit: int | None) -> None:
        """Runs the text, and writes the registers and the shared memory of the machine.

        Raises UndefinedError, OperandError or UnsupportedError, with the place in the text, and
        KernelError where a text with branches or barriers cannot go on.
        """
        state = self.state
        self.undefined, self.arithmetic = state.undefined, state.engine
        self._limit_steps(step_limit)
        self.executed = self.thread_statements = self.progress = self._started = self.polled = 0
        self._before = {i: _loaded(x) for i, x in self._registers if x.written}
        self._left = []
        memory = _Memory(state.shared, self._machines)
        self._memory = memory
        self.shared_bytes, self.shared_limit = memory.rows.shape[1], state.shared.bytes
        self.smem_size = self.shared_bytes
        self.run()
        frame = self._final()
        for index, register in self._registers:
            if not frame.was_written(index):
                continue
            words = frame.read(index)
            if words is not self._before.get(index):
                state.registers.write(register.name, words.astype(register.code, copy=False))
        memory.write_back()

    def _next_blocks(self) -> NDArray[np.int64]:
        self._started = self.total
        return np.arange(self._machines)

    def _start(self, ctas: NDArray[np.int64]) -> Wave:
        memory, wave = self._memory, self._wave
        sizes = self.shared_bytes, self.shared_limit
        if wave is None or (wave.shared_bytes, wave.shared_limit) != sizes:
            wave, self._marks = Wave(self, ctas, memory.rows), {}
            self._wave = wave
        else:
            wave.renew()
        wave.shared, wave.journal, wave.left = memory.rows, memory.journal, self._left
        if self._has_barriers:
            wave.renew_barriers()
        if self.function.local_bytes or wave.local_bytes:
            wave.local, wave.local_bytes = np.zeros((wave.lanes, 0), np.uint8), 0
            self.need_local(wave, self.function.local_bytes)
        wave.start(self.function, self._load)
        for name in ("whole", "whole blocks"):  # which lanes end is another thing every time
            self._marks.pop(name, None)
        wave.ready[0].marks = self._marks
        return wave

    def _load(self, frame: Frame) -> None:
        for index, words in self._before.items():
            frame.registers[index] = words

    def _final(self) -> Frame:
        """The registers of all lanes, wherever in the text these have ended."""
        if len(self._left) == 1:
            return self._left[0]
        lanes = np.concatenate([frame.lanes for frame in self._left])
        order = np.argsort(lanes, kind="stable")
        return joined(self._left, lanes[order], order, self.program.kept)

    def placed(self, error: Exception, strand: Strand, statement: Statement) -> Exception:
        """The error with the place in the text."""
        if isinstance(error, Failure) and error.kind in _ENDS:
            lanes = strand.lanes.tolist()
            if error.index is not None:
                lanes = lanes[error.index : error.index + 1]
            place = self.launch.place_of(statement)
            return KernelError.at(error, place, map(strand.wave.coordinates, lanes))
        if isinstance(error, Failure):
            kind = OperandError if error.kind in _OPERANDS else UndefinedError
            error = kind(error.reason)
        elif isinstance(error, AccessError):
            error = UndefinedError(error.fault.reason)
        if isinstance(error, KernelError) or not isinstance(error, EmulatorError):
            return error
        return at_place(error, self.text.source, statement.at)


class _TextBlocks(Blocks):
    """Steps that look first at what they read and write."""

    def __init__(self, grid: TextGrid) -> None:
        super().__init__(grid.program)
        own = {index: name for name, index in grid.text.registers.items()}
        self._defined = Defined(grid.state, grid.text, own)

    def _step(self, statement: Statement, function: Function) -> Step:
        return self._defined.step(statement, function, super()._step(statement, function))

    def _end(self, statement: Statement, function: Function) -> End:
        return self._defined.end(statement, super()._end(statement, function))


class Source:
    """The part of a launch that a grid needs, for statements outside of any launch."""

    def __init__(self, text: Text, state: WarpState) -> None:
        self._text, self._state = text, state

    def place_of(self, statement: Statement) -> Place:
        source = self._text.source
        position = source.position(statement.at)
        return Place("statements", position.line, position.column, source.statement(statement.at))

    @property
    def shared_symbols(self) -> Collection[Symbol]:
        return self._state.declared.symbols()

    def shared_name(self, offset: int, size: int = 0) -> str:
        return place_name(self.shared_symbols, offset, size)

    def blocks_done(self, count: int) -> None:
        """Nobody is told."""


# --- registers and memory -------------------------------------------------------------------------


def _loaded(register: Register) -> Array:
    """A register's words as the engine has them."""
    return register.held.view(np.bool_) if register.type == "pred" else register.held


class _Memory:
    """Shared memory as rows that the engine can address: the machine's own bytes, or a copy."""

    def __init__(self, shared: Space, count: int) -> None:
        self._shared, size = shared, shared.bytes
        data = shared.data
        self._is_own = data.flags.c_contiguous and size % _ROW == 0
        if self._is_own:
            self.rows, self.journal = data.reshape(count, size), shared
            return
        self.rows = np.zeros((count, -(-size // _ROW) * _ROW), np.uint8)
        self.rows[:, :size] = data.reshape(count, size)
        self.rows.flags.writeable = data.flags.writeable
        self.journal = Space(shared.name, self.rows)
        self.journal.replaced = []

    def write_back(self) -> None:
        """Copies the bytes written to a copy back to the machine's."""
        if self._is_own or not self.journal.replaced:
            return
        shared = self._shared
        shared.keep(np.zeros(1, np.int64), shared.data.size)
        shared.data[...] = self.rows[:, : shared.bytes].reshape(shared.data.shape)
