"""Vector engine: the blocks of statements of a program, made when they are first met."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from emulator.machine.shared.control import FlowContext
from emulator.machine.vector import control
from emulator.machine.vector.compute import Step
from emulator.machine.vector.statements import step_of
from emulator.machine.vector.watching import StepOrEnd, Watcher
from emulator.machine.vector.wave import Block, Checks

if TYPE_CHECKING:
    from emulator.ptx.program import Function, Program, Statement


class Blocks(dict[int, Block]):
    """Blocks of statements by their first pc, made when they are first met."""

    def __init__(
        self, program: Program, *, checks: Checks | None = None, watchers: Sequence[Watcher] = ()
    ) -> None:
        super().__init__()
        self._program, self._checks, self._watchers = program, checks, watchers

    def __missing__(self, pc: int) -> Block:
        block = self[pc] = self._make(pc)
        return block

    def _make(self, first: int) -> Block:
        program, function = self._program, self._program.function_at(first)
        steps: list[Step] = []
        statements: list[Statement] = []
        polls = False
        for pc in range(first, function.end):
            statement = program.statements[pc]
            if statements and pc in program.leaders:
                end = control.fall_through(pc)
                break
            statements.append(statement)
            polls |= "polls" in statement.effects
            if "jumps" in statement.effects:
                end = self._end(statement, function)
                break
            steps.append(self._step(statement, function))
        else:
            raise AssertionError("a function ends with a statement that nothing follows")
        return Block(tuple(statements), tuple(steps), end, polls)

    def _step(self, statement: Statement, function: Function) -> Step:
        step = step_of(statement, function)
        if self._checks is not None:
            step = self._checks.step(statement, function, self._program, step)
        return cast(Step, self._watched(step, statement, function))

    def _end(self, statement: Statement, function: Function) -> control.End:
        end = control.ENDS[statement.name](FlowContext(statement, function, self._program))
        if self._checks is not None:
            end = self._checks.end(statement, function, end)
        return self._watched(end, statement, function)

    def _watched(self, step: StepOrEnd, statement: Statement, function: Function) -> StepOrEnd:
        for watch in self._watchers:
            step = watch(step, statement, function)
        return step
