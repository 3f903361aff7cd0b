"""A thread: where it is, what its registers hold, and what it waits for.

A register holds the integer of its bits, a predicate 0 or 1, a variable in .param its bytes.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from emulator.machine.reference.block import Warp
    from emulator.machine.report import Index
    from emulator.ptx.program import Function


class State(Enum):
    """What a thread does."""

    READY = "ready"
    LANES = "waits for threads that execute the statement with it"
    BARRIER = "waits at a barrier"
    CLUSTER = "waits at the barrier of its cluster"
    MBARRIER = "waits for a phase of an mbarrier"
    ENDED = "ended"


class Frame:
    """One call of a function."""

    __slots__ = ("function", "local", "registers", "return_pc", "stack")

    def __init__(self, function: Function, local: int = 0, return_pc: int = -1) -> None:
        self.function = function
        #: what a register holds before anything is written to it: zeros
        self.registers: list[Any] = [
            bytes(info.zero.shape[1]) if info.type == "bytes" else 0 for info in function.registers
        ]
        #: where the call's local memory starts, and the end of what alloca has taken; 0: nothing
        self.local, self.stack = local, 0
        self.return_pc = return_pc

    @property
    def top(self) -> int:
        """First byte of local memory that the call does not take."""
        return max(self.stack, self.local + self.function.local_bytes)


class Thread:
    """One thread of a block; `index` counts the threads of its block."""

    __slots__ = (
        "calls", "epoch", "frames", "index", "lane", "local", "loops", "pc", "polled", "registers",
        "state", "wait", "warp",
    )  # fmt: skip

    def __init__(self, warp: Warp, index: int, function: Function) -> None:
        self.warp = warp
        self.index, self.lane = index, index % 32
        self.pc = function.first
        self.frames = [Frame(function)]
        self.registers = self.frames[-1].registers
        #: where its calls return to, the innermost last
        self.calls: tuple[int, ...] = ()
        self.local = bytearray(function.local_bytes)
        self.state = State.READY
        #: what it waits for, for whoever lets it go on
        self.wait: Any = None
        #: threads of an earlier epoch go first
        self.epoch = 0
        #: backward branches since it last gave way to others, and what it held then
        self.loops = 0
        self.polled: Any = None

    @property
    def coordinates(self) -> Index:
        """%tid"""
        x, y, _ = self.warp.block.grid.block
        return self.index % x, self.index // x % y, self.index // (x * y)

    @property
    def number(self) -> int:
        """Counts the threads of the cluster."""
        block = self.warp.block
        return block.rank * block.grid.lanes_of_block + self.index

    def enter(self, frame: Frame) -> None:
        """Calls a function."""
        self.frames.append(frame)
        self.registers = frame.registers
        self.calls = (*self.calls, frame.return_pc)

    def leave(self) -> Frame:
        """Returns from a function; the frame that was left."""
        left = self.frames.pop()
        self.registers = self.frames[-1].registers
        self.calls = self.calls[:-1]
        return left

    def stops(self, state: State, pc: int, wait: Any = None) -> None:
        """The thread waits; `pc` is where it goes on."""
        self.state, self.pc, self.wait = state, pc, wait

    def goes_on(self) -> None:
        self.state, self.wait = State.READY, None
        self.warp.block.grid.progress += 1
