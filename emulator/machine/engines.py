"""The engines that run a grid, by name; each is imported when it is asked for."""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Protocol

from emulator.arith.engines import say_slow
from emulator.errors import UnsupportedError
from emulator.machine.options import EngineName
from emulator.machine.shared.launching import RunningLaunch

if TYPE_CHECKING:
    from emulator.machine.vector.watching import Watcher

#: engine -> the module and the name of its ``Grid``. They build on `launch`, which calls this
#: module. "auto" compiles what has run long enough for that to pay, "compiled" all at once.
_GRIDS: dict[EngineName, tuple[str, str]] = {
    "auto": ("emulator.machine.compiled.engine", "LazyGrid"),
    "compiled": ("emulator.machine.compiled.engine", "Grid"),
    "vector": ("emulator.machine.vector.engine", "Grid"),
    "reference": ("emulator.machine.reference.engine", "Grid"),
}


#: statements of threads after which a launch without machine code says that it is slow
_HEAVY = 1 << 26
#: runs a launch in parts, each of them a `Launch` of its own
_WORKERS = "emulator.machine.dask_launch"


def problem(instruction: object) -> str:
    """The reason why no engine can run an instruction; "" if one can."""
    from emulator.machine.vector import statements

    return statements.problem(instruction)


class GridLaunch(RunningLaunch, Protocol):
    """A `Launch`, as far as the choice of an engine goes; `Launch` builds on this file."""

    #: looks for mistakes; what is put around the steps of the vector engine
    check: bool
    watchers: tuple[Watcher, ...]
    #: of Dask, whose workers run the blocks
    client: object


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


def run_grid(launch: GridLaunch, engine: EngineName, under_way: object = None) -> dict[str, int]:
    """Runs all blocks of a `Launch`, here or on the workers of its client, or goes on with a run of
    the reference engine; what was counted."""
    if launch.client is not None:
        counters: dict[str, int] = import_module(_WORKERS).run_on(launch, engine)
        return counters
    module, name = _GRIDS[_chosen(launch, engine)]
    made = getattr(import_module(module), name)
    grid: _Grid = made(launch) if under_way is None else made(launch, under_way)
    grid.run()
    if engine == "auto" and grid.thread_statements >= _HEAVY and not _has_llvm():
        say_slow()
    return {
        "blocks": grid.total,
        "threads": grid.total * grid.threads,
        "statements": grid.executed,
        "thread_statements": grid.thread_statements,
    }


def _chosen(launch: GridLaunch, engine: EngineName) -> EngineName:
    """The engine that runs a launch. Raises UnsupportedError for the compiled one where it cannot:
    whoever looks at every statement needs steps of the vector engine."""
    reason = ""
    if launch.check or launch.watchers:
        reason = "check, counters and stop_at are the vector engine's; leave engine out"
    elif launch.seed is not None:
        reason = "seed: engine='compiled' has one order of warps and lanes; leave engine out"
    elif launch.regions is not None:
        reason = "engine='compiled' has no recursion that activemask shows; leave engine out"
    elif not _has_llvm():
        reason = (
            "engine='compiled' needs llvmlite: pip install llvmlite, or this package with "
            "its extra `fast`; 'vector' gives the same bits"
        )
    if engine == "compiled" and reason:
        raise UnsupportedError(reason)
    return "vector" if engine == "auto" and reason else engine


@lru_cache(maxsize=1)
def _has_llvm() -> bool:
    return find_spec("llvmlite") is not None
