"""Reference engine: table of the functions that execute statements."""

from __future__ import annotations

from collections.abc import Callable

from emulator.errors import UnsupportedError
from emulator.isa.ordinary.instruction import OrdinaryInstruction
from emulator.machine.reference import (
    access,
    compute,
    control,
    issuer,
    lanes,
    matrix,
    meeting,
    tcgen05,
    tensors,
    wgmma,
)
from emulator.machine.reference.compute import ThreadStep
from emulator.machine.reference.thread import Each, Flow, Step, Thread, Together
from emulator.machine.shared import statements
from emulator.machine.shared import tcgen05 as shared_tcgen05
from emulator.machine.shared.control import FlowContext
from emulator.machine.shared.waiting import POLLS, TURNS
from emulator.ptx.program import Function, Program, Statement

#: first words of an opcode -> what each thread does; the longest that fits counts
EACH: dict[str, Callable[[Statement, Function], ThreadStep]] = {
    "ld": access.load,
    "ldu": access.load,
    "st": access.store,
    "atom": access.atomic,
    "red": access.atomic,
    **issuer.each(tensors.EACH),
    **issuer.each(statements.AT_ONCE),
    **issuer.each(statements.EACH),
    **issuer.each(shared_tcgen05.EACH),
}
#: stores -> the order in which threads store
ORDERS = {
    "st": access.storing_order,
    "multimem.st": access.storing_order,
    "sust": access.storing_order_on_surface,
}
#: the same of those that say where a thread goes on, and of those that threads execute together
FLOWS = {**control.FLOWS, **issuer.waiting(statements.WAITING)}
TOGETHER: dict[str, Callable[[Statement, Function], Together]] = {
    **lanes.TOGETHER,
    **issuer.together(statements.BY_WARP),
    **meeting.meeting(statements.MEETING),
    **wgmma.TOGETHER,
    **tcgen05.TOGETHER,
}
_WORDS = {words: words for words in (*EACH, *FLOWS, *TOGETHER)}


class Code:
    """Makes the steps of a program's statements."""

    def __init__(self, program: Program) -> None:
        self._program = program

    def steps(self) -> list[Step]:
        """The steps by their pc. Raises UnsupportedError for what is not modelled."""
        functions = sorted(self._program.functions.values(), key=lambda f: f.first)
        return [self._step(pc, f) for f in functions for pc in range(f.first, f.end)]

    def _step(self, pc: int, function: Function) -> Step:
        return self._step_of(self._program.statements[pc], function)

    def _step_of(self, statement: Statement, function: Function) -> Step:
        if statement.expansion:
            return Each(_in_turn([self._step_of(x, function) for x in statement.expansion]))
        if find := matrix.TOGETHER.get(type(statement.instruction)):
            return find(statement, function)
        ins = statement.instruction
        if "hint" in ins.effects:
            return Each(lambda thread: None)
        if isinstance(ins, OrdinaryInstruction):
            words = statements.longest(_WORDS, str(ins))
            if words in FLOWS:
                place = FlowContext(statement, function, self._program)
                run = control.under_guard(statement, FLOWS[words](place))
                return Flow(run, self._patience(statement.pc))
            if words in TOGETHER:
                return TOGETHER[words](statement, function)
            if words in EACH:
                order = ORDERS.get(words)
                return Each(EACH[words](statement, function), order and order(statement))
        if getattr(ins, "rule", "") and ins.scope == "thread":
            return Each(compute.compute(statement, function))
        if getattr(ins, "rule", ""):
            return lanes.over_warp(statement, function)
        raise UnsupportedError(f"{ins} is legal PTX, not modelled here")

    def _patience(self, pc: int) -> int:
        """Backward branches until a thread gives way: what stands before them decides."""
        code, leaders = self._program.statements, self._program.leaders
        first = pc
        while first not in leaders and first > 0 and code[first - 1].name not in FLOWS:
            first -= 1
        polls = any("polls" in code[i].effects for i in range(first, pc))
        return POLLS if polls else TURNS


def _in_turn(steps: list[Step]) -> ThreadStep:
    """Runs several statements in place of one, where each thread acts by itself."""
    runs = [step.run for step in steps if isinstance(step, Each)]
    assert len(runs) == len(steps)

    def run(thread: Thread) -> None:
        for each in runs:
            each(thread)

    return run
