"""Recordings of what the threads of one block compute, statement by statement, so that two launches
can be compared in step; and which thread stores what stands at an address."""

from __future__ import annotations

from typing import NamedTuple
from zlib import crc32

import numpy as np

from dtypes import Array
from emulator.arith.scalar.types import TYPES
from emulator.machine.checks.values import Value, read_all, values_of
from emulator.machine.shared.operands import space_of
from emulator.machine.shared.place import Index
from emulator.machine.vector.operands import active, addresses, selected
from emulator.machine.vector.strand import Strand
from emulator.machine.vector.watching import StepOrEnd
from emulator.ptx.program import Address, Function, Program, Statement, items_of

Step = StepOrEnd
#: results that a trace keeps; a launch with more is compared as far as these go
MOST_RESULTS = 1 << 22


class Stop(Exception):
    """Raised out of a launch that has shown what it was run for."""


class Trace:
    """The results of a block, in order: a number for each, of its statement and its bits.

    Where it is given another trace it raises Stop at the first result that the other has not.
    """

    def __init__(self, program: Program, block: int | None, other: Trace | None = None) -> None:
        #: the statements of the text, which ptxas may have replaced
        self.program = program
        self.block, self.other = block, other
        self.results: list[int] = []

    def watch(self, step: Step, statement: Statement, function: Function) -> Step:
        statement = self.program.statements[statement.pc]
        written = values_of(statement, function, written=True)
        return self._recorded(step, statement, written) if written else step

    def _recorded(self, step: Step, statement: Statement, written: list[Value]) -> Step:
        def run(s: Strand) -> int | None:
            mask = lanes_of_block(s, self.block)
            result = step(s)
            if mask is not None:
                self._add(statement.pc << 32 | _digest(s, written, mask))
            return result

        return run

    def _add(self, number: int) -> None:
        index = len(self.results)
        if index < MOST_RESULTS:
            self.results.append(number)
        if self.other is not None and self.other.results[index : index + 1] != [number]:
            raise Stop


def _digest(s: Strand, written: list[Value], mask: Array) -> int:
    out = 0
    for words in read_all(s, written):
        out = crc32(s.spread(words)[mask].tobytes(), out)
    return out


def lanes_of_block(s: Strand, block: int | None) -> Array | None:
    """The lanes of a strand that belong to a block, by its number in the grid; None for none of
    them. Without a block all do."""
    key = f"of block {block}"
    if key not in s.marks:
        mask = np.ones(len(s), np.bool_) if block is None else s.wave.ctas[s.wave.row(s)] == block
        s.marks[key] = mask if mask.any() else None
    found: Array | None = s.marks[key]
    return found


class Result(NamedTuple):
    """One statement of a trace: what it read and wrote, in the lanes of the block."""

    statement: Statement
    read: list[Value]
    before: list[Array]
    written: list[Value]
    after: list[Array]
    #: block and thread of each lane
    threads: list[tuple[Index, Index]]


class Probe(Trace):
    """Runs a launch as far as one result of its trace, and shows it."""

    def __init__(self, program: Program, block: int | None, index: int) -> None:
        super().__init__(program, block)
        self._index, self._count = index, 0
        self.result: Result | None = None

    def watch(self, step: Step, statement: Statement, function: Function) -> Step:
        statement = self.program.statements[statement.pc]
        written = values_of(statement, function, written=True)
        if not written:
            return step
        read = values_of(statement, function, written=False)

        def run(s: Strand) -> int | None:
            mask = lanes_of_block(s, self.block)
            wanted = mask is not None and self._count == self._index
            before = _of_block(s, read, mask) if wanted else []
            answer = step(s)
            if mask is not None:
                self._count += 1
            if wanted:
                after = _of_block(s, written, mask)
                threads = [s.wave.coordinates(int(lane)) for lane in s.lanes[mask]]
                self.result = Result(statement, read, before, written, after, threads)
                raise Stop
            return answer

        return run


def _of_block(s: Strand, values: list[Value], mask: Array | None) -> list[Array]:
    return [s.spread(words)[mask] for words in read_all(s, values)]


class Writer:
    """Finds the last thread that stored to an address of global memory."""

    def __init__(self, name: str, offset: int) -> None:
        self._name, self._offset = name, offset
        #: number of its block, block and thread, and the statement; None: no store of a thread
        self.found: tuple[int, Index, Index, Statement] | None = None

    def watch(self, step: Step, statement: Statement, function: Function) -> Step:
        place = statement.operands.get("a")
        opcode = str(statement.instruction)
        later = "asynchronous" in statement.effects or "size" in statement.operands
        if "writes" not in statement.effects or later or not isinstance(place, Address):
            return step
        if space_of(statement, place) not in ("", "global"):
            return step
        find, guard = addresses(place, function), active(statement.guard)
        type_ = TYPES[opcode.rpartition(".")[2]]
        size = type_.size // 8 * len(items_of(statement.operands.get("b")))

        def run(s: Strand) -> int | None:
            mask = guard(s)
            if mask is not False:
                self._look(s, None if mask is None else np.asarray(mask), find(s), size, statement)
            return step(s)

        return run

    def _look(
        self, s: Strand, mask: Array | None, given: Array, size: int, statement: Statement
    ) -> None:
        wanted = self._address(s)
        lanes = s.lanes if mask is None else s.lanes[mask]
        at = np.broadcast_to(selected(given, mask), lanes.shape).astype(np.int64)
        hits = np.flatnonzero((at <= wanted) & (wanted < at + size))
        if hits.size:
            lane = int(lanes[hits[-1]])
            number = int(s.wave.ctas[lane // s.wave.lanes_per_cta])
            self.found = (number, *s.wave.coordinates(lane), statement)

    def _address(self, s: Strand) -> int:
        named = (x for x in s.wave.grid.arena if x.name == self._name)
        return next((x.address + self._offset for x in named if self._offset < x.size), -1)
