"""Reference engine: statements that say where a thread goes on, branches, calls, returns, ends."""

from __future__ import annotations

from collections.abc import Callable

from emulator.machine.reference import schedule
from emulator.machine.reference.issuer import Issuer
from emulator.machine.reference.operands import guard_of, reader
from emulator.machine.reference.thread import Next, Thread
from emulator.machine.shared import control
from emulator.machine.shared.control import FlowContext
from emulator.machine.system.externals import EXTERNALS
from emulator.machine.system.host import Host
from emulator.ptx.program import Call, Register, Statement


def under_guard(statement: Statement, run: Next) -> Next:
    """`run` where the guard holds; else the next statement."""
    holds, following = guard_of(statement.guard), statement.pc + 1
    if holds is None:
        return run
    return lambda thread: run(thread) if holds(thread) else following


def branch(place: FlowContext) -> Next:
    (target,) = place.statement.targets
    return lambda thread: target


def indexed_branch(place: FlowContext) -> Next:
    choose = control.indexed_branch(place, reader)
    return lambda thread: int(choose(thread))


def end(place: FlowContext) -> Next:
    """exit: the thread ends."""
    return schedule.end


def leave(place: FlowContext) -> Next:
    """ret: back to the caller; a kernel's thread ends."""
    if place.function.is_kernel:
        return end(place)
    return lambda thread: control.leave(thread, place.program)


def call(place: FlowContext) -> Next:
    """A call of a function of the module, or through a pointer."""
    passed, following = place.statement.call, place.following
    assert passed is not None
    if passed.function in EXTERNALS:
        return _external(place, passed)
    if passed.function is not None:
        callee = place.program.functions[passed.function]
        return lambda thread: control.enter(thread, callee, passed, following)
    assert passed.register is not None
    pointer = reader(Register(passed.register), "u64")

    def run(thread: Thread) -> int:
        callee = control.callee_at(pointer(thread), passed, place)
        return control.enter(thread, callee, passed, following)

    return run


def _external(place: FlowContext, passed: Call) -> Next:
    """A call of a function that the system supplies."""
    function = EXTERNALS[passed.function or ""]
    arguments = [bound.index for bound in passed.arguments if isinstance(bound, Register)]

    def run(thread: Thread) -> int:
        given = [thread.registers[index] for index in arguments]
        value = function(Host(Issuer(thread, [])), given)
        for index in passed.results:
            thread.registers[index] = value
        return place.following

    return run


#: first word of an opcode -> where threads go on
FLOWS: dict[str, Callable[[FlowContext], Next]] = {
    "bra": branch,
    "brx": indexed_branch,
    "ret": leave,
    "exit": end,
    "call": call,
    "trap": control.trap,
    "brkpt": control.trap,
}
