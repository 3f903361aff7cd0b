"""The engines that run a grid, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from emulator.machine.launch import Launch


def problem(instruction: object) -> str:
    """Why no engine can run an instruction; "" if one can."""
    from emulator.machine.vector import statements

    return statements.problem(instruction)


def run_grid(launch: Launch, engine: str) -> dict[str, int]:
    """Runs all blocks of a launch; what was counted."""
    from emulator.machine.vector.engine import Grid

    grid = Grid(launch)
    grid.run()
    return {
        "blocks": grid.total,
        "threads": grid.total * grid.threads,
        "statements": grid.executed,
        "thread_statements": grid.thread_statements,
    }
