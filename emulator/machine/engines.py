"""The engines that run a grid, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from emulator.machine.launch import Launch


def run_grid(launch: Launch, engine: str) -> int:
    """Runs all blocks of a launch; statements executed."""
    from emulator.machine.vector.engine import Grid

    grid = Grid(launch)
    grid.run()
    return grid.executed
