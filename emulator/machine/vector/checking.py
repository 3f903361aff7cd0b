"""Vector engine: Protocol of the checks of a running launch, which the launch brings and the engine
calls."""

from __future__ import annotations

from typing import Any, Protocol

from emulator.machine.vector.compute import Step
from emulator.machine.vector.control import End
from emulator.machine.vector.watching import GridWatch, WaveWatch
from emulator.machine.vector.wave import Wave, WaveGrid
from emulator.ptx.program import Function, Program, Statement


class Checks(Protocol):
    """What goes around the steps of a launch, and what watches it and its waves."""

    def step(self, statement: Statement, function: Function, program: Program, step: Step) -> Step:
        """Returns the step to run in place of one."""

    def end(self, statement: Statement, function: Function, end: End) -> End:
        """Returns the end to run in place of that of a block of statements."""

    def grid(self, grid: WaveGrid) -> GridWatch:
        """The checks of a launch."""

    def wave(self, watch: Any, wave: Wave) -> WaveWatch:
        """The checks of a wave, of a launch with the checks `watch`."""
