"""The engines that run a grid, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from emulator.machine.options import EngineName

if TYPE_CHECKING:
    from emulator.machine.launch import Launch


def problem(instruction: object) -> str:
    """Why no engine can run an instruction; "" if one can."""
    from emulator.machine.vector import statements

    return statements.problem(instruction)


def run_grid(launch: Launch, engine: EngineName) -> dict[str, int]:
    """Runs all blocks of a launch; what was counted."""
    if engine == "reference":
        from emulator.machine.reference.engine import Grid as ReferenceGrid

        return _counted(ReferenceGrid(launch))
    from emulator.machine.vector.engine import Grid

    return _counted(Grid(launch))


class _Grid(Protocol):
    """A launch under way, as both engines have it."""

    #: thread blocks of the grid, and threads of each
    total: int
    threads: int

    @property
    def executed(self) -> int:
        """Statements of threads that execute them together."""

    @property
    def thread_statements(self) -> int: ...

    def run(self) -> None: ...


def _counted(grid: _Grid) -> dict[str, int]:
    grid.run()
    return {
        "blocks": grid.total,
        "threads": grid.total * grid.threads,
        "statements": grid.executed,
        "thread_statements": grid.thread_statements,
    }
