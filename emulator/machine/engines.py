"""The engines that run a grid, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emulator.machine.options import EngineName

if TYPE_CHECKING:
    from emulator.machine.launch import Launch


def problem(instruction: object) -> str:
    """Why no engine can run an instruction; "" if one can."""
    from emulator.machine.vector import statements

    return statements.problem(instruction)


def run_grid(launch: Launch, engine: EngineName) -> int:
    """Runs all blocks of a launch; statements executed, of strands or, in the reference, threads."""
    if engine == "reference":
        from emulator.machine.reference.engine import Grid as Reference

        reference = Reference(launch)
        reference.run()
        return reference.executed
    from emulator.machine.vector.engine import Grid

    grid = Grid(launch)
    grid.run()
    return grid.executed
