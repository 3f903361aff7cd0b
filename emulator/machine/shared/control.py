"""All engines: statements that say where threads go on, branches, calls and returns (PTX ISA
9.7.12); how deep calls may be, and how much local memory threads may have."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeVar

import numpy as np

from emulator.machine.shared.failure import Failure
from emulator.machine.shared.issuing import require
from emulator.machine.shared.operands import Words
from emulator.ptx.program import Bound, Call, Function, Program, Register, Statement, Targets

#: calls within calls, and bytes of local memory of a thread
MOST_CALLS, MOST_LOCAL = 2048, 512 << 10


class CallFrame(ABC):
    """One call of a function, as far as the engines have it alike."""

    __slots__ = ("function", "local", "return_pc", "stack")

    def __init__(self, function: Function, local: int, return_pc: int) -> None:
        self.function = function
        #: where the call's local memory starts
        self.local = local
        #: the end of what alloca has taken, of all threads or of each; 0: nothing
        self.stack: Words = 0
        self.return_pc = return_pc

    @property
    def top(self) -> Words:
        """First byte of local memory that the call does not take, of all threads or of each."""
        least, end = self.local + self.function.local_bytes, self.stack
        return max(end, least) if isinstance(end, int) else np.maximum(end, least)

    @abstractmethod
    def take(self: F, index: int, other: F, given: int) -> None:
        """Puts into a register what a register of another call holds."""


F = TypeVar("F", bound=CallFrame)
#: an engine's threads
C = TypeVar("C")


class Caller(Protocol[F]):
    """Threads that execute a statement of control, one or all lanes of a strand."""

    #: the calls that they are in, the innermost last
    frames: list[F]

    def begin(self, callee: Function, local: int, return_pc: int) -> F:
        """A call, not yet entered."""

    def enter(self, frame: F, call: Call) -> None:
        """Goes into a call."""

    def leave(self, call: Call) -> F:
        """Goes back to the caller; the frame that was left. What wgmma has yet to write to its
        registers is lost."""

    def need_local(self, size: int) -> None:
        """Makes room for so many bytes of local memory in each thread."""


class FlowContext(NamedTuple):
    """A statement, and what it is part of."""

    statement: Statement
    function: Function
    program: Program

    @property
    def following(self) -> int:
        return self.statement.pc + 1


#: an engine's reader of the words of an operand
Reader = Callable[[Bound, str], Callable[[C], Words]]


def too_much(size: int) -> str:
    """Why a thread cannot have so many bytes of local memory."""
    return f"a thread needs {size:,} bytes of local memory, and may have {MOST_LOCAL:,}"


def check_local(size: int, index: int | None = None) -> None:
    """Raises Failure where a thread needs more local memory than it may have."""
    if size > MOST_LOCAL:
        raise Failure("stack overflow", too_much(size), index)


def indexed_branch(place: FlowContext, read: Reader[C]) -> Callable[[C], Words]:
    """brx.idx: the pc that the index of each thread picks."""
    index, targets = (place.statement.operands[name] for name in ("index", "targets"))
    assert isinstance(targets, Targets)
    find, pcs, end = read(index, "u32"), np.array(targets.pcs), f"the {len(targets.pcs)} targets"

    def choose(who: C) -> Words:
        words = find(who)
        require(words < len(pcs), "target", lambda x: f"the index {x} is past {end}", words)
        return pcs[words]

    return choose


def enter(who: Caller[F], callee: Function, call: Call, following: int) -> int:
    """A call: its parameters are given, and it goes on at the callee's first statement."""
    if len(who.frames) > MOST_CALLS:
        raise Failure("stack overflow", f"more than {MOST_CALLS} calls within calls", 0)
    caller = who.frames[-1]
    # Calls of all threads start at one place.
    top = caller.top
    most = top if isinstance(top, int) else int(top.max())
    frame = who.begin(callee, -(-most // 16) * 16, following)
    who.need_local(frame.local + callee.local_bytes)
    given = [bound.index for bound in call.arguments if isinstance(bound, Register)]
    for index, passed in zip(callee.parameter_registers, given, strict=True):
        frame.take(index, caller, passed)
    who.enter(frame, call)
    return callee.first


def leave(who: Caller[F], program: Program) -> int:
    """ret of a function: the caller takes the results, and goes on behind its call."""
    following = who.frames[-1].return_pc
    call = program.statements[following - 1].call
    assert call is not None
    left = who.leave(call)
    for index, own in zip(call.results, left.function.result_registers, strict=True):
        who.frames[-1].take(index, left, own)
    return following


def callee_at(address: int, call: Call, place: FlowContext, index: int = 0) -> Function:
    """The function at the address that a thread calls, as `mov` of its name gives it; `index`:
    the thread.

    Raises Failure where none is there, or one that does not take what the call passes.
    """
    name = place.program.addresses.get(address)
    if name is None:
        raise Failure("target", f"no function is at address {address:#x}", index)
    callee = place.program.functions[name]
    if why := call.misfit(place.function, callee):
        raise Failure("target", why, index)
    return callee


def trap(place: FlowContext) -> Callable[[object], None]:
    """trap: the grid ends with an error; brkpt, which a debugger would catch, too."""
    reason = f"{place.statement.name} was executed"

    def run(who: object) -> None:
        raise Failure("trap", reason, 0)

    return run
