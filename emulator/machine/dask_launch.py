"""Launches over a Dask cluster: independent thread blocks in chunks, on workers (extra ``dask``).

Each worker runs some clusters of the grid on a copy of global memory and says which bytes differ
afterwards; what all of them say is merged. That is right where no block sees what another one does:
a kernel that could is refused, and so is a launch in which two chunks leave different values in one
byte. A byte that is written with the value that it had cannot be told from one that is not written.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dtypes import Array
from emulator.errors import OperandError, UnsupportedError
from emulator.machine.engines import run_grid
from emulator.machine.options import Contract, EngineName
from emulator.machine.report import KernelError
from emulator.machine.system.device_runtime import DEVICE_RUNTIME
from emulator.memory.arena import Arena
from emulator.ptx.program import SpecialRegister, Statement

if TYPE_CHECKING:
    from emulator.machine.launch import Launch

#: chunks for each thread of the cluster, so that none waits long for the last
_CHUNKS = 4
#: attempts to run a chunk, as workers may be lost
_ATTEMPTS = 4
#: qualifiers of loads that read a flag of another block
_FLAGS = {"acquire", "relaxed", "volatile", "mmio"}
#: counted over all blocks, or the way to the barrier of a cooperative grid
_WHOLE_GRID = ("%clock", "%globaltimer", "%envreg")
_HEAP = ("malloc", "free")


class _Shared(NamedTuple):
    """The data that all chunks of a launch need: it goes to each worker once."""

    text: str
    target: str
    variables_at: int
    kernel: str
    contract: Contract
    #: options of `Launch` by name
    options: dict[str, Any]
    arena: Arena
    engine: EngineName


class _Chunk(NamedTuple):
    """Results of some blocks: places of bytes that changed and their values, texts, counters."""

    places: Array
    values: Array
    printed: list[str]
    counters: dict[str, int]
    #: the arguments of a KernelError
    error: tuple[Any, ...] | None


def run_on(launch: Launch, engine: EngineName) -> dict[str, int]:
    """Runs a launch whose memory is in place on the workers of its client; what was counted.

    Raises UnsupportedError for a launch whose blocks are not independent, OperandError for what is
    no client, KernelError as the first chunk that cannot go on does.
    """
    client: Any = launch.client
    check_independent(client, launch, engine)
    cluster = math.prod(launch.cluster)
    threads = max(1, sum(client.nthreads().values()))
    count = min(launch.total_blocks // cluster, threads * _CHUNKS)
    cuts = [i * (launch.total_blocks // cluster) // count * cluster for i in range(count + 1)]
    done: dict[int, _Chunk] = {}
    for i, chunk in _computed(client, _shared(launch, engine), cuts):
        done[i] = chunk
        launch.blocks_done(cuts[i + 1] - cuts[i])
    counters: dict[str, int] = {}
    chunks = [done[i] for i in range(count)]
    for chunk in chunks:
        if chunk.error is not None:
            raise KernelError(*chunk.error)
        launch.printed += chunk.printed
        for name, value in chunk.counters.items():
            counters[name] = counters.get(name, 0) + value
    _merge(launch.arena, chunks)
    blocks = launch.total_blocks
    return counters | {"blocks": blocks, "threads": blocks * math.prod(launch.block)}


# --- what is refused ------------------------------------------------------------------------------


def check_independent(client: Any, launch: Launch, engine: EngineName) -> None:
    """Raises UnsupportedError for what needs all blocks in one process."""
    if not (hasattr(client, "submit") and hasattr(client, "scatter")):
        raise OperandError(
            f"dask= is a distributed.Client; got {type(client).__name__}: "
            "from distributed import Client; Client() starts workers on this machine"
        )
    options = {
        "check=True": launch.check,
        "counters=True and stop_at=": bool(launch.watchers),
        "seed=": launch.seed is not None,
        "engine='reference'": engine == "reference",
    }
    for name, given in options.items():
        if given:
            raise UnsupportedError(f"{name} needs all blocks in one process: leave dask= out")
    for statement in launch.program.statements:
        if why := _why_together(statement):
            place = launch.place_of(statement)
            raise UnsupportedError(
                f"{launch.function.name} cannot run in chunks, its blocks may see each other: {why}"
                f"\n  at {place}"
            )


def _why_together(statement: Statement) -> str:
    """The reason why a statement needs the blocks of a grid beside each other; "" where it does
    not."""
    words = str(statement.instruction).replace("::", ".").split(".")
    own = "shared" in words or "cta" in words
    if statement.effects & {"exchanges", "reduces"} and not own:
        return f"{statement.instruction} changes memory that other blocks may read"
    if "reads" in statement.effects and _FLAGS & set(words) and not own:
        return f"{statement.instruction} reads what another block may have written"
    if statement.call is not None and statement.call.function in _HEAP:
        return f"{statement.call.function} hands out memory to all blocks in turn"
    if statement.call is not None and statement.call.function in DEVICE_RUNTIME:
        return f"{statement.call.function} belongs to launches within the kernel"
    for operand in statement.operands.values():
        if isinstance(operand, SpecialRegister) and operand.name.startswith(_WHOLE_GRID):
            return f"{operand.name} is one for the whole grid"
    return ""


# --- chunks ---------------------------------------------------------------------------------------


def _shared(launch: Launch, engine: EngineName) -> _Shared:
    kernel = launch.kernel
    options = {
        name: getattr(launch, name)
        for name in (
            "grid",
            "block",
            "dynamic_shared",
            "given_cluster",
            "step_limit",
            "environment",
            "async_order",
            "arithmetic",
        )
    }
    module = kernel.module
    return _Shared(
        module.text,
        module.target.name,
        module._bound.variables_at,
        kernel.name,
        kernel.contract,
        options,
        launch.arena,
        engine,
    )


def _computed(client: Any, shared: _Shared, cuts: Sequence[int]) -> Iterator[tuple[int, _Chunk]]:
    """The chunks with their numbers, as they are done; a lost worker's are computed again."""
    from distributed import as_completed

    missing = set(range(len(cuts) - 1))
    for _ in range(_ATTEMPTS):
        # What lies at workers that are lost must be sent anew.
        given = client.scatter(shared, broadcast=True, hash=False)
        futures = {
            client.submit(run_chunk, given, cuts[i], cuts[i + 1], pure=False): i for i in missing
        }
        for future in as_completed(list(futures)):
            if future.status == "finished":
                missing.remove(futures[future])
                yield futures[future], future.result()
            elif future.status == "error" and not _is_lost(future.exception()):
                future.result()  # raises
        if not missing:
            return
    raise UnsupportedError(
        f"workers were lost {_ATTEMPTS} times: {len(missing)} of {len(cuts) - 1} chunks are missing"
    )


def _is_lost(error: BaseException) -> bool:
    """True if an error says that a worker is gone, or the data it held."""
    return type(error).__module__.startswith("distributed") or isinstance(error, OSError)


def run_chunk(shared: _Shared, first: int, last: int) -> _Chunk:
    """On a worker: the blocks `first` … `last` of a grid, counted cluster by cluster."""
    from emulator.machine.launch import Launch

    module = _module(shared.text, shared.target, shared.variables_at)
    kernel = module._kernel(shared.kernel, shared.contract)
    # A worker may run several chunks of one launch, each from the same memory.
    arena = shared.arena.copy()
    before = arena.contents()
    launch = Launch(
        kernel, given=(), memory=None, arena=arena, part=(first, last), **shared.options
    )
    try:
        counters = run_grid(launch, shared.engine)
    except KernelError as error:
        told = error.kind, error.reason, error.place, error.block, error.threads
        return _Chunk(np.zeros(0, np.int64), np.zeros(0, np.uint8), [], {}, told)
    after = arena.contents()
    places = np.flatnonzero(after != before)
    return _Chunk(places, after[places], launch.printed, counters, None)


@lru_cache(maxsize=16)
def _module(text: str, target: str, variables_at: int) -> Any:
    from emulator.machine.memory import Memory
    from emulator.machine.module import Module

    return Module(text, target, memory=Memory(variables_at))


def _merge(arena: Arena, chunks: Sequence[_Chunk]) -> None:
    """Writes into the arena what the chunks have written."""
    contents = arena.contents()
    written = np.zeros(len(contents), np.bool_)
    for chunk in chunks:
        again = chunk.places[written[chunk.places]]
        if len(again):
            other = chunk.values[written[chunk.places]] != contents[again]
            if other.any():
                where = arena.name_at(int(again[other][0]))
                raise UnsupportedError(
                    f"two chunks of blocks leave different values in one byte of {where}: "
                    "leave dask= out"
                )
        contents[chunk.places] = chunk.values
        written[chunk.places] = True
    places = np.flatnonzero(written)
    arena.write(places, contents[places])
