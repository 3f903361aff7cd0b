"""One launch of a kernel: its memory and arguments, the grids that it runs, and what it reports."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeVar

import numpy as np

from dtypes import Array
from emulator.arith import Engine
from emulator.errors import OperandError, UnsupportedError
from emulator.machine.arguments import Named, Placed, place_arguments
from emulator.machine.checks.finding import Finding
from emulator.machine.memory import Memory
from emulator.machine.options import Contract, EngineName, Order
from emulator.machine.report import KernelError, Report
from emulator.machine.shared.failure import Failure, over_limit
from emulator.machine.shared.place import Index, Place
from emulator.machine.sizes import (
    BLOCKS,
    THREADS,
    along_axes,
    check_threads,
    cluster_of,
    shared_bytes,
)
from emulator.machine.system.device_launches import (
    MOST_GRIDS,
    MOST_SHARED,
    Copy,
    DeviceLaunches,
    GridRequest,
)
from emulator.machine.system.heap import Heap
from emulator.machine.turns import Turn, launching, taken
from emulator.memory.arena import Arena
from emulator.memory.windows import PARAMETERS
from emulator.ptx.module import BoundKernel, BoundModule
from emulator.ptx.names import Symbol, place_name, short_name
from emulator.ptx.program import Parameter, Program, Statement
from emulator.ptx.rewriting import Rewritten
from emulator.ptx.source import Part
from emulator.targets import Target

if TYPE_CHECKING:
    from emulator.machine.vector.watching import Watcher
    from emulator.machine.vector.wave import Checks
    from emulator.ptx.regions import Regions

#: blocks of statements, as an engine has them
B = TypeVar("B")
#: bytes of the memory through which a cooperative grid synchronises
_WORKSPACE = 256


class LaunchedModule(Protocol):
    """The part of a `Module` that a launch needs; `Module` builds on this file."""

    target: Target
    _bound: BoundModule
    _turn: Turn

    @property
    def text(self) -> str: ...

    def variables(self) -> dict[str, Array]: ...

    def references(self) -> list[Named]: ...

    def _kernel(self, name: str, contract: Contract = "ptxas") -> LaunchedKernel: ...


class LaunchedKernel(Protocol):
    """The part of a `Kernel` that a launch needs; `Kernel` builds on this file."""

    bound: BoundKernel
    contract: Contract
    _blocks: dict[tuple[type, bool], object]

    @property
    def module(self) -> LaunchedModule: ...

    @property
    def name(self) -> str: ...

    @property
    def parameters(self) -> tuple[Parameter, ...]: ...

    @property
    def rewritten(self) -> tuple[Program, list[Rewritten]]: ...

    @property
    def checked(self) -> Program: ...


@dataclass(eq=False)
class Launch:
    """One launch: sizes, memory and arguments, checked."""

    kernel: LaunchedKernel
    grid: Index
    block: Index
    given: Sequence[object] | Mapping[str, object]
    dynamic_shared: int
    given_cluster: Sequence[int] | int | None
    memory: Memory | None
    step_limit: int | None
    arena: Arena = field(default_factory=Arena)
    printed: list[str] = field(default_factory=list)
    environment: dict[str, int] = field(default_factory=dict)
    processors: int = 132
    #: called with the blocks that are done, and with all
    progress: Callable[[int, int], None] | None = None
    async_order: Order = "early"
    seed: int | None = None
    #: looks for mistakes
    check: bool = False
    #: the engine of `emulator.arith` for matrix instructions
    arithmetic: Engine = "auto"
    #: each is called with a step, its statement and its function when the vector engine makes the
    #: step, and returns what runs in its place
    watchers: tuple[Watcher, ...] = ()
    #: called by the reference engine with the threads that go next, and their pc, before each
    #: statement
    observe: Callable[..., None] | None = None
    #: if the launch is a thread's: the launch that this belongs to, and what it has asked for
    parent: Launch | None = None
    request: GridRequest | None = None
    #: statements that other grids of the launch have executed before
    earlier: int = 0
    #: the thread blocks that run, from the first to before the last; None: all
    part: tuple[int, int] | None = None
    #: of Dask, whose workers run them
    client: object = None

    #: a run of it may go on from a snapshot
    goes_on: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self.done_blocks = 0
        #: findings of the checks so far
        self.found: Iterable[Finding] = ()
        #: where they know that ptxas compiles a statement wrongly
        self.warned: Iterable[Finding] = ()
        self.heap: Heap = Heap(self.arena) if self.parent is None else self.parent.heap
        #: launches by its own threads
        depth = 1 if self.parent is None else self.parent.launches.depth + 1
        self.launches: DeviceLaunches = DeviceLaunches(self, depth)
        self.module = self.kernel.module
        self.program = self.kernel.checked if self.check else self.kernel.rewritten[0]
        self.function = self.program.functions[self.kernel.name]
        self.reserved_shared = self.module.target.reserved_shared
        limited = self.step_limit is not None
        check_threads(self.function, self.grid, self.block, limited=limited)
        self.cluster, self.explicit_cluster = cluster_of(
            self.function, self.grid, self.given_cluster
        )
        self.shared_bytes = shared_bytes(self.kernel.bound, self.module.target, self.dynamic_shared)
        #: shared memory that the kernel asks for, in the units of 128 bytes that a block gets
        self.smem_size = -(-(self.shared_bytes - self.reserved_shared) // 128) * 128

    @cached_property
    def regions(self) -> Regions | None:
        """The regions in which lanes part and meet, of a kernel in which more than the program says
        who meets."""
        if self.seed is not None or "active" not in self.program.effects:
            return None
        from emulator.ptx.regions import regions_of

        return regions_of(self.program, self.function)

    @cached_property
    def checks(self) -> Checks | None:
        """The checks for mistakes; None unless the caller asks for them."""
        if not self.check:
            return None
        from emulator.machine.checks.reporter import GridWatch
        from emulator.machine.checks.steps import checked, checked_end
        from emulator.machine.checks.watch import Watch
        from emulator.machine.vector.wave import Checks

        return Checks(checked, checked_end, GridWatch, Watch)

    # --- running ---

    def run(self, engine: EngineName) -> Report:
        if self.watchers and engine == "reference":
            raise UnsupportedError(
                "counters and stop_at are the vector engine's; leave engine='reference' out"
            )
        if self.seed is not None and engine == "reference" and self.async_order != "random":
            raise UnsupportedError("seed: engine='reference' has one order of warps alone")
        try:
            with taken(self._turns()), launching():
                return self._run(engine)
        except Failure as failure:  # of the whole launch: no statement is to blame
            raise KernelError(failure.kind, failure.reason) from None

    def _turns(self) -> dict[str, Turn]:
        """Turns for the data that other launches may write too, those of modules first."""
        out = {}
        if any(writable for _, _, writable in self.module._bound.places()):
            out["the Module, which has variables in .global,"] = self.module._turn
        if self.memory is not None:
            out["the Memory"] = self.memory._turn
        return out

    def _run(self, engine: EngineName) -> Report:
        try:
            report = self._finish(self._place(), self._run_grids(engine))
        except BaseException as error:
            try:
                self.arena.roll_back()
            finally:
                self.arena.roll_back()  # the rest of it, where it was interrupted
            self.arena.check()
            if isinstance(error, KernelError):
                error.findings = list(self.found)
            raise
        self.arena.journal.forget()
        return report

    def _finish(self, placed: Placed, counters: dict[str, int]) -> Report:
        """Gives copied arrays what the launch has written, keeps its heap, and reports."""
        self.arena.check()
        placed.write_back(self.arena)
        if self.memory is not None:
            self.memory.take_over(self.heap)
        return Report(
            self.function.name,
            findings=list(self.found),
            warnings=list(self.warned),
            counters=counters,
            printed=self.printed,
            files={x.name.rpartition("/")[2]: x.name for x in self.module._bound.parsed.files},
            text_of_module=self.module.text,
        )

    def _run_grids(self, engine: EngineName, under_way: object = None) -> dict[str, int]:
        """Runs the grid, and then what its threads have launched; what was counted in all.

        `under_way`: goes on with this run of the reference engine.
        """
        from emulator.machine.engines import run_grid

        counters = run_grid(self, engine, under_way)
        # Launches within launches: what a grid asked for comes before what follows it.
        asked, ran = [self.launches.take()], 0
        while asked:
            self._check_grids(ran, counters["statements"])
            work = next(asked[-1], None)
            if work is None:
                asked.pop()
            elif isinstance(work, Copy):
                work.carry_out(self.arena)
            else:
                work.earlier = counters["statements"]
                for name, count in self._run_launched(work, engine).items():
                    counters[name] += count
                asked.append(work.launches.take())
                ran += 1
        return counters

    def _check_grids(self, ran: int, statements: int) -> None:
        """Raises Failure where grids launch others without end."""
        if self.step_limit is None and ran > MOST_GRIDS:
            reason = f"grids launched more than {MOST_GRIDS:,} others; step_limit=N runs more"
            raise Failure("endless loop", reason)
        if self.step_limit is not None and statements > self.step_limit:
            raise over_limit(statements, self.step_limit)

    def _run_launched(self, launch: Launch, engine: EngineName) -> dict[str, int]:
        """Runs the grid that a thread has asked for; what was counted."""
        from emulator.machine.engines import run_grid

        request = launch.request
        assert request is not None
        parameters = request.buffer.held[: request.parameter_bytes].copy()
        self.arena.remove(request.buffer)
        launch._place_parameters(parameters)
        self.heap.earlier = set(self.heap.live)
        try:
            return run_grid(launch, engine)
        finally:
            self.found = [*self.found, *launch.found]
            self.warned = [*self.warned, *launch.warned]

    def launch_of(self, request: GridRequest) -> Launch:
        """The launch that a thread of this one asks for; raises OperandError for one that the
        device refuses."""
        launch = Launch(
            self.module._kernel(request.kernel, self.kernel.contract),
            along_axes("grid", request.grid, BLOCKS),
            along_axes("block", request.block, THREADS),
            (),
            request.shared,
            None,
            None,
            self.step_limit,
            self.arena,
            self.printed,
            self.environment,
            async_order=self.async_order,
            seed=self.seed,
            check=self.check,
            arithmetic=self.arithmetic,
            watchers=self.watchers,
            observe=self.observe,
            parent=self,
            request=request,
        )
        if launch.shared_bytes - launch.reserved_shared > MOST_SHARED:
            raise OperandError(f"a kernel launches grids with {MOST_SHARED} bytes of shared memory")
        return launch

    def kernel_at(self, address: int) -> tuple[str, int] | None:
        """The kernel of the module at an address, as `mov` of its name gives it, and the bytes of
        its parameters."""
        bound = self.module._bound
        name = next((name for name, at in bound.addresses.items() if at == address), "")
        if name not in bound.kernels:
            return None
        parameters = self.module._kernel(name).parameters
        return name, max((p.offset + p.bytes for p in parameters), default=0)

    def _place(self, *, apart: bool = False) -> Placed:
        """Puts variables, arrays and parameters into memory; `apart`: copies of them."""
        placed, variables = Placed(apart=apart), self.module.variables()
        if self.memory is not None:
            self.memory.lend(self.arena, self.heap, placed)
        for name, address, writable in self.module._bound.places():
            held, known = variables[name], self.arena.find(address)
            # A Memory has the variables of its own modules already.
            if len(held) and (known is None or not np.shares_memory(known.held, held)):
                placed.place(self.arena, name, held, address, writable)
        # Where the blocks of a cooperative grid meet; every launch is one here.
        workspace = self.arena.allocate("workspace of the grid", _WORKSPACE).address
        self.environment |= {"%envreg1": workspace >> 32, "%envreg2": workspace & 0xFFFFFFFF}
        function = self.kernel.bound.function
        place_arguments(placed, self.arena, function, self.given, self.module.references())
        self._place_parameters(np.frombuffer(placed.parameters, np.uint8))
        return placed

    def _place_parameters(self, raw: Array) -> None:
        """Puts the parameters into memory, in the place of those of a grid before."""
        before = self.arena.find(PARAMETERS)
        if before is not None:
            self.arena.remove(before)
        if len(raw):
            self.arena.allocate(
                "parameters", len(raw), address=PARAMETERS, contents=raw, writable=False
            )

    def blocks_done(self, count: int) -> None:
        """So many more thread blocks have ended."""
        self.done_blocks += count
        if self.progress is not None:
            self.progress(self.done_blocks, self.total_blocks)

    def blocks(self, kind: type[B], make: Callable[..., B]) -> B:
        """The kernel's blocks of statements of a kind, which launches share unless someone
        watches."""
        kernel = self.kernel
        if self.watchers:
            return make(self.program, watchers=self.watchers)
        held = kernel._blocks.get((kind, self.check))
        if not isinstance(held, kind):
            held = kernel._blocks[kind, self.check] = make(self.program)
        return held

    # --- errors ---

    @property
    def shared_symbols(self) -> Collection[Symbol]:
        """The variables of shared memory."""
        return self.kernel.bound.shared_symbols.values()

    def shared_name(self, offset: int, size: int = 0) -> str:
        """The variable of shared memory that an access leads to, for messages; `size`: the bytes of
        an element of the access, 0 where it names none."""
        return place_name(self.shared_symbols, offset, size)

    def failed(
        self, failure: Failure, statement: Statement, where: Iterable[tuple[Index, Index]]
    ) -> KernelError:
        """The error of a statement that fails for threads, each given as block and thread."""
        if failure.kind == "out of bounds" and "shared memory" in failure.reason:
            failure.reason += self._without_dynamic()
        return KernelError.at(failure, self.place_of(statement), where)

    def _without_dynamic(self) -> str:
        """The advice for a kernel with dynamic shared memory that was launched without any."""
        symbols = () if self.dynamic_shared else self.shared_symbols
        unsized = [short_name(symbol.name) for symbol in symbols if symbol.bytes is None]
        if not unsized:
            return ""
        return f"; {unsized[0]} is dynamic shared memory, of which dynamic_shared= gives no bytes"

    def place_of(self, statement: Statement) -> Place:
        source = self.module._bound.source
        position = source.position(statement.at)
        return Place(
            self.function.name,
            position.line,
            position.column,
            source.statement(statement.at),
            self._source_lines(statement),
        )

    def _source_lines(self, statement: Statement) -> tuple[str, ...]:
        source, out = self.module._bound.source, []
        files = self._files(source.part(statement.at))
        location = statement.location
        if location is None and (file := source.file_line(statement.at)):
            return (file,)
        while location is not None:
            name = files.get(location.file, f"file {location.file}").rpartition("/")[2]
            out.append(f"{name}:{location.line}")
            location = location.inlined_at
        return tuple(out)

    def _files(self, part: Part) -> dict[int, str]:
        """The source files that a text of the program names, by their numbers."""
        files = self.module._bound.parsed.files
        return {file.number: file.name for file in files if part.start <= file.at < part.end}

    @cached_property
    def total_blocks(self) -> int:
        return math.prod(self.grid)
