"""The engines that run a grid, by name; each is imported when it is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Protocol

from emulator.machine.options import EngineName

#: engine -> the module that has its ``Grid``. They build on `launch`, which calls this module.
_GRIDS: dict[EngineName, str] = {
    "auto": "emulator.machine.vector.engine",
    "vector": "emulator.machine.vector.engine",
    "reference": "emulator.machine.reference.engine",
}


def problem(instruction: object) -> str:
    """Why no engine can run an instruction; "" if one can."""
    from emulator.machine.vector import statements

    return statements.problem(instruction)


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


def run_grid(launch: Any, engine: EngineName) -> dict[str, int]:
    """Runs all blocks of a `Launch`; what was counted."""
    grid: _Grid = import_module(_GRIDS[engine]).Grid(launch)
    grid.run()
    return {
        "blocks": grid.total,
        "threads": grid.total * grid.threads,
        "statements": grid.executed,
        "thread_statements": grid.thread_statements,
    }
