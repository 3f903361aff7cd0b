"""Vector engine: runs of statements that only compute, each as one function of NumPy's calls.

A statement by itself reads registers, computes, and writes registers. In a run registers are
variables: a number keeps its type from one statement to the next, two statements compute the same
thing once, and only registers that are read behind the run are written. A block gets its runs once
it has been executed often.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any, cast

from dtypes import Array
from emulator.arith.scalar.rule import Operation, bind_words
from emulator.arith.scalar.traced import Tape, TracedWord, Untraceable
from emulator.machine.vector.alike import with_rows
from emulator.machine.vector.blocks import Blocks
from emulator.machine.vector.compute import Step, operands_of
from emulator.machine.vector.statements import computes
from emulator.machine.vector.strand import Strand, indexes_of
from emulator.machine.vector.wave import Block
from emulator.ptx.program import Constant, Function, Inverted, Program, Register, Statement, Target

#: times that a block runs before: writing a run down takes as long as a hundred of them
_OFTEN = 128
#: statements of a run: Python takes memory to compile a long function
_LONGEST = 256
#: operands that are registers or the same in all lanes
_PLAIN = (Register, Constant, Inverted)


class _Run:
    """Statements that follow each other, written down. Their readers and writers take it for a
    strand, whose registers are words that write down what is done with them."""

    def __init__(self, function: Function) -> None:
        self._function, self._tape = function, Tape()
        self._given: dict[int, Any] = {}
        self.frames, self.registers = [self], dict[int, Any]()
        self.count = 0

    def read(self, index: int) -> Any:
        """A register: what a statement before has written, or what it was before the run."""
        if index not in self.registers:
            kind = self._function.registers[index].zero
            if kind.ndim > 1:
                raise Untraceable
            self.registers[index] = self._tape.given(kind.dtype, f"read({index})")
            self._given[index] = self.registers[index]
        return self.registers[index]

    def add(self, statement: Statement) -> bool:
        """Writes a statement down; False, and nothing has happened, where that cannot be done."""
        plain = all(isinstance(x, _PLAIN) for x in statement.operands.values())
        if not plain or self.count == _LONGEST:
            return False
        before = dict(self.registers), dict(self._given)
        done = self._tape.attempt(lambda: self._compute(statement))
        if not done:
            self.registers, self._given = before
        self.count += done
        return done

    def _compute(self, statement: Statement) -> None:
        tape, here = self._tape, cast(Strand, self)
        reads, writes = operands_of(statement, self._function)
        taken: list[Any] = [read(here) for read in reads]
        words = [x if isinstance(x, (int, TracedWord)) else tape.known(x) for x in taken]
        operation = cast(Operation, statement.instruction)
        rule = bind_words(operation, tape.words, **statement.selectors)
        results: Any = rule(*words)
        results = results if isinstance(results, tuple) else (results,)
        for write, word in zip(writes, results, strict=False):
            if not isinstance(word, TracedWord):
                raise Untraceable
            write(here, cast(Array, word), None)

    def step(self, live: int | None) -> Step:
        """The step of all of them; `live` are the registers read behind them, None: any."""
        alive = indexes_of(live) if live is not None else self.registers
        written = {
            index: word
            for index, word in self.registers.items()
            if word is not self._given.get(index) and index in alive
        }
        refer = self._tape.refer
        lines = ["registers = s.frames[-1].registers"]
        for index, word in written.items():
            held = refer(word.like) if word.is_constant else word.name
            lines.append(f"registers[{index}] = {held}")
        words = [word for word in written.values() if not word.is_constant]
        return cast(Step, self._tape.function("s", words, "; ".join(lines), "read = s.read"))


class RunBlocks(Blocks):
    """Blocks of statements whose runs are one step each once they have run often."""

    def _make(self, first: int) -> Block:
        block = super()._make(first)
        if self._checks is not None or self._watchers or not any(map(_computes, block.statements)):
            return block
        left = _OFTEN

        def counted(s: Strand) -> int | None:
            nonlocal left
            left -= 1
            if left <= 0:
                self[first] = with_runs(block, self._program, self._reads_late)
            return block.end(s)

        return replace(with_rows(block, self._program), end=counted)

    @cached_property
    def _reads_late(self) -> bool:
        """True if statements may read registers after the last one that names them."""
        return any(x.instruction.scope == "warpgroup" for x in self._program.statements)


def with_runs(block: Block, program: Program, reads_late: bool) -> Block:
    """A block whose runs are one step each."""
    function, first = program.function_at(block.statements[0].pc), block.statements[0].pc
    steps: list[Step] = []
    counts: list[int] = []
    run, runs = _Run(function), 0

    def finish() -> None:
        nonlocal run, runs
        if run.count:
            following = first + sum(counts) + run.count
            live = None if reads_late else program.liveness.at(following)
            steps.append(run.step(live))
            counts.append(run.count)
            runs += 1
            run = _Run(function)

    for statement, step in zip(block.statements, block.steps, strict=False):
        if _computes(statement):
            if run.add(statement):
                continue
            finish()
            if run.add(statement):
                continue
        finish()
        steps.append(step)
        counts.append(1)
    finish()
    only_computes = len(steps) == runs and all(map(_branches, block.statements[sum(counts) :]))
    return replace(block, steps=tuple(steps), counts=tuple(counts), only_computes=only_computes)


def _branches(statement: Statement) -> bool:
    """True if a statement only says where lanes go on, and that for all of its guard alike."""
    bounds = statement.operands.values()
    return len(statement.targets) == 1 and all(isinstance(x, Target) for x in bounds)


def _computes(statement: Statement) -> bool:
    """True if all lanes execute a statement that only computes."""
    unconditional = statement.guard is None and not statement.expansion
    return unconditional and computes(statement.instruction)
