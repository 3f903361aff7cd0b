"""Protocols of watchers and checks around the steps of the vector engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from emulator.machine.vector.compute import Step
    from emulator.machine.vector.control import End
    from emulator.machine.vector.wave import Wave
    from emulator.ptx.program import Function, Program, Statement

#: puts something around a step or an end, which it calls
Watcher = Callable[[Any, "Statement", "Function"], Any]


class Checks(Protocol):
    """Checks of a running launch; the launch brings them, the engine calls them."""

    def step(self, statement: Statement, function: Function, program: Program, step: Step) -> Step:
        """Returns the step to run in place of one."""

    def end(self, statement: Statement, function: Function, end: End) -> End:
        """Returns the end to run in place of that of a block of statements."""

    def grid(self, grid: Any) -> Any:
        """The checks of a launch, with their `findings` and `warnings`."""

    def wave(self, watch: Any, wave: Wave) -> Any:
        """The checks of a wave, which its steps tell what happens."""
