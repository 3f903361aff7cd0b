"""The engines that run a grid, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emulator.errors import OperandError, nearest

if TYPE_CHECKING:
    from emulator.machine.launch import Launch

#: "auto" is the fastest that runs everything; the others give the same bits
ENGINES = ("auto", "vector", "reference")


def run_grid(launch: Launch, engine: str) -> int:
    """Runs all blocks of a launch; statements executed.

    Raises OperandError for an engine that does not exist.
    """
    if engine not in ENGINES:
        raise OperandError(
            f"no engine {engine!r:.80}; engines are {', '.join(ENGINES)}; "
            f"nearest is {nearest(str(engine), ENGINES)[0]!r}"
        )
    if engine == "reference":
        from emulator.machine.reference import engine as chosen
    else:
        from emulator.machine.vector import engine as chosen  # type: ignore[no-redef]
    grid = chosen.Grid(launch)
    grid.run()
    return grid.executed
