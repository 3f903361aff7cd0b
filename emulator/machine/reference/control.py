"""Reference engine: statements that say where a thread goes on, branches, calls, returns, ends."""

from __future__ import annotations

from collections.abc import Callable

from emulator.machine.reference import memory, schedule
from emulator.machine.reference.issuer import Issuer
from emulator.machine.reference.operands import guard_of, reader
from emulator.machine.reference.thread import Frame, Next, StatementContext, Thread
from emulator.machine.shared.calls import callee_at, check_depth
from emulator.machine.shared.failure import Failure
from emulator.machine.system.externals import EXTERNALS
from emulator.machine.system.host import Host
from emulator.ptx.program import Call, Function, Register, Statement, Targets


def under_guard(statement: Statement, run: Next) -> Next:
    """`run` where the guard holds; else the next statement."""
    holds, following = guard_of(statement.guard), statement.pc + 1
    if holds is None:
        return run
    return lambda thread: run(thread) if holds(thread) else following


def branch(place: StatementContext) -> Next:
    (target,) = place.statement.targets
    return lambda thread: target


def indexed_branch(place: StatementContext) -> Next:
    """brx.idx: a thread goes to the target that its index picks."""
    operands = place.statement.operands
    index, targets = reader(operands["index"], "u32"), operands["targets"]
    assert isinstance(targets, Targets)

    def choose(thread: Thread) -> int:
        word = index(thread)
        if word >= len(targets.pcs):
            raise Failure("target", f"the index {word} is past the {len(targets.pcs)} targets")
        return targets.pcs[word]

    return choose


def end(place: StatementContext) -> Next:
    """exit: the thread ends."""

    def run(thread: Thread) -> None:
        schedule.end(thread)

    return run


def leave(place: StatementContext) -> Next:
    """ret: back to the caller; a kernel's thread ends."""
    if place.function.is_kernel:
        return end(place)
    results = place.function.result_registers

    def run(thread: Thread) -> int:
        thread.cluster.products.forget([thread.warpgroup_in_grid], len(thread.frames))
        frame = thread.leave()
        call = place.program.statements[frame.return_pc - 1].call
        assert call is not None
        for index, own in zip(call.results, results, strict=True):
            thread.registers[index] = frame.registers[own]
        return frame.return_pc

    return run


def call(place: StatementContext) -> Next:
    """A call of a function of the module, or through a pointer."""
    passed = place.statement.call
    assert passed is not None
    if passed.function in EXTERNALS:
        return _external(place, passed)
    if passed.function is not None:
        callee = place.program.functions[passed.function]
        return lambda thread: _enter(thread, callee, passed, place)
    assert passed.register is not None
    pointer = reader(Register(passed.register), "u64")

    def run(thread: Thread) -> int:
        callee = callee_at(place.program, pointer(thread), passed, place.function)
        return _enter(thread, callee, passed, place)

    return run


def _enter(thread: Thread, callee: Function, passed: Call, place: StatementContext) -> int:
    check_depth(len(thread.frames))
    local = -(-thread.frames[-1].top // 16) * 16
    frame = Frame(callee, local, place.following)
    memory.need_local(thread, local + callee.local_bytes)
    arguments = [bound.index for bound in passed.arguments if isinstance(bound, Register)]
    for index, given in zip(callee.parameter_registers, arguments, strict=True):
        frame.registers[index] = thread.registers[given]
    thread.enter(frame)
    return callee.first


def _external(place: StatementContext, passed: Call) -> Next:
    """A call of a function that the system supplies."""
    function = EXTERNALS[passed.function or ""]
    arguments = [bound.index for bound in passed.arguments if isinstance(bound, Register)]

    def run(thread: Thread) -> int:
        given = [_integer(thread.registers[index]) for index in arguments]
        value = function(Host(Issuer(thread, [])), given)
        for index in passed.results:
            held = thread.registers[index]
            in_bytes = isinstance(held, bytes)
            thread.registers[index] = value.to_bytes(len(held), "little") if in_bytes else value
        return place.following

    return run


def _integer(held: int | bytes) -> int:
    """A register's word, or the bytes of a parameter."""
    return held if isinstance(held, int) else int.from_bytes(held, "little")


def trap(place: StatementContext) -> Next:
    """trap: the grid ends with an error; brkpt, which a debugger would catch, too."""
    name = place.statement.name

    def run(thread: Thread) -> None:
        raise Failure("trap", f"{name} was executed")

    return run


#: first word of an opcode -> where threads go on
FLOWS: dict[str, Callable[[StatementContext], Next]] = {
    "bra": branch,
    "brx": indexed_branch,
    "ret": leave,
    "exit": end,
    "call": call,
    "trap": trap,
    "brkpt": trap,
}
