"""All engines: Protocol of a launch under way, which is `emulator.machine.launch.Launch`, or the
statements of a `Warp` under the debugger."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Protocol

from emulator.arith import Engine
from emulator.errors import EmulatorError
from emulator.machine.options import Order
from emulator.machine.shared.failure import Failure
from emulator.machine.shared.place import Index, Place
from emulator.machine.shared.special import LaunchSizes
from emulator.machine.system.device_launches import DeviceLaunches
from emulator.machine.system.heap import Heap
from emulator.memory.arena import Arena
from emulator.ptx.names import Symbol
from emulator.ptx.program import Function, Program, Statement
from emulator.ptx.regions import Regions
from emulator.targets import Target


class _Module(Protocol):
    target: Target


class RunningLaunch(LaunchSizes, Protocol):
    """One launch, whose memory and arguments are in place."""

    program: Program
    function: Function
    arena: Arena
    arithmetic: Engine
    #: blocks of the grid, threads of a block, blocks of a cluster
    grid: Index
    block: Index
    cluster: Index
    shared_bytes: int
    async_order: Order
    seed: int | None
    #: the most statements, and those that other grids of the launch have executed before
    step_limit: int | None
    earlier: int
    #: what functions of the system work on
    heap: Heap
    printed: list[str]
    launches: DeviceLaunches

    #: called by the reference engine with the threads that go next, and their pc
    observe: Callable[..., None] | None

    @property
    def module(self) -> _Module: ...
    @property
    def total_blocks(self) -> int: ...
    @property
    def regions(self) -> Regions | None:
        """Where lanes part and meet, of a kernel in which more than the program says who meets."""

    def blocks_done(self, count: int) -> None:
        """So many more thread blocks have ended."""

    def place_of(self, statement: Statement) -> Place:
        """The place of a statement in the kernel and its sources."""

    @property
    def shared_symbols(self) -> Collection[Symbol]:
        """The variables of shared memory."""

    def shared_name(self, offset: int, size: int = 0) -> str:
        """The variable of shared memory that an access leads to, for messages."""

    def failed(
        self, failure: Failure, statement: Statement, where: Iterable[tuple[Index, Index]]
    ) -> EmulatorError:
        """The error of a statement that fails for threads, each given as block and thread."""
