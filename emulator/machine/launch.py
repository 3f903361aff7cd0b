"""``Module`` and its kernels: PTX text, and launches of what it holds."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dtypes import Array
from emulator.arith import Engine
from emulator.errors import OperandError, UnsupportedError, hint, listing, quoted
from emulator.machine.arguments import Memory, Placed, place_arguments
from emulator.machine.checks.finding import Finding
from emulator.machine.device_launches import (
    MOST_GRIDS,
    MOST_SHARED,
    Copy,
    DeviceLaunches,
    GridRequest,
)
from emulator.machine.externals import EXTERNALS
from emulator.machine.failure import Failure
from emulator.machine.host import Heap
from emulator.machine.options import Contract, EngineName, Order, Special, check_word
from emulator.machine.place import Index, Place
from emulator.machine.report import KernelError, Report
from emulator.memory.arena import Arena
from emulator.memory.windows import PARAMETERS
from emulator.ptx.module import BoundKernel, BoundModule, Problem, bind_kernel
from emulator.ptx.names import place_name
from emulator.ptx.parser import parse_module
from emulator.ptx.program import Parameter, Program, Statement
from emulator.ptx.rewriting import Contracted, Rewritten, contracted
from emulator.targets import Target, find_target, runs_on

if TYPE_CHECKING:
    from emulator.ptx.regions import Regions

#: the newest version of PTX
_NEWEST = (9, 5)
#: bytes of local memory that a thread may have, and of the variables of a module
_LOCAL, _VARIABLES = 512 << 10, 1 << 33
#: bytes of the memory through which a cooperative grid synchronises
_WORKSPACE = 256
#: threads of a grid that are run without a limit of statements
_ALL_THREADS = 1 << 27
#: limits of all targets: threads of a block, and along each axis; blocks along each axis
_THREADS, _BLOCK, _GRID = 1024, (1024, 1024, 64), (2**31 - 1, 65535, 65535)


class Module:
    """A PTX file: its kernels, bound for a target.

    `source` is the text, or the path of a file. `target` is the chip that is simulated; None takes
    the one that the file names.

    Raises ParseError for a text that is not PTX, UnsupportedError for a target that cannot run it.
    What cannot be bound is listed in `problems`; kernels that need none of it can run.
    """

    def __init__(self, source: str | os.PathLike[str], target: str | None = None) -> None:
        text, self.path = _text(source)
        short = len(text) <= _KEPT_LENGTH and (target is None or isinstance(target, str))
        self._bound = (_bound_once if short else _bound)(text, target)
        self.target = self._bound.target
        self._kernels: dict[tuple[str, Contract], Kernel] = {}
        #: bytes of the variables of .global, which keep their values from launch to launch
        self._variables: dict[str, Array] = {}

    def __repr__(self) -> str:
        return f"<Module of {len(self.kernels)} kernels, {self.target}>"

    @property
    def text(self) -> str:
        """The PTX."""
        return self._bound.source.text

    @property
    def kernels(self) -> tuple[str, ...]:
        """Names of the kernels, in the order of the file."""
        return self._bound.kernels

    def __iter__(self) -> Iterator[str]:
        return iter(self.kernels)

    def __len__(self) -> int:
        return len(self.kernels)

    def __contains__(self, name: object) -> bool:
        return name in self.kernels

    def __getitem__(self, name: str) -> Kernel:
        """A kernel by its name, or by a part of it that no other kernel's name has."""
        if name not in self.kernels:
            alike = [x for x in self.kernels if isinstance(name, str) and name in x]
            if len(alike) != 1:
                near = hint(str(name), self.kernels)
                raise OperandError(
                    f"no kernel {quoted(str(name))}; kernels are {listing(self.kernels)}{near}"
                )
            (name,) = alike
        return self._kernel(name)

    def _kernel(self, name: str, contract: Contract = "ptxas") -> Kernel:
        key = (name, contract)
        if key not in self._kernels:
            bound = bind_kernel(self._bound, name) if contract == "ptxas" else self[name].bound
            self._kernels[key] = Kernel(self, bound, contract)
        return self._kernels[key]

    @property
    def problems(self) -> list[Problem]:
        """Statements that cannot run: line, column, opcode and reason; empty if all can."""
        found = {p: None for name in self.kernels for p in self._kernel(name).problems}
        return sorted(found)

    def variable(self, name: str) -> Array:
        """The bytes of a variable of .global or .const, as the last launch left them."""
        self._load_variables()
        if name not in self._variables:
            raise OperandError(
                f"no variable {quoted(name)}; there are {listing(self._variables) or 'none'}"
            )
        return self._variables[name]

    def variables(self) -> dict[str, Array]:
        """The bytes of all variables of .global and .const by name, as the last launch left
        them."""
        self._load_variables()
        return dict(self._variables)

    def _load_variables(self) -> None:
        total = sum(self._bound.variable_sizes)
        if total > _VARIABLES:
            raise OperandError(f"the variables of the module have {total:,} bytes together")
        if not self._variables:
            for name, _, contents, _ in self._bound.contents():
                self._variables[name] = np.frombuffer(contents, np.uint8).copy()


def _text(source: str | os.PathLike[str]) -> tuple[str, Path | None]:
    """PTX as text: what is one line without a ``;`` or a newline names a file."""
    if isinstance(source, os.PathLike) or (
        isinstance(source, str)
        and "\n" not in source
        and ";" not in source
        and len(source) < 4096
        and source.strip().endswith(".ptx")
    ):
        path = Path(source)
        try:
            raw = path.read_bytes()
        except (OSError, ValueError) as error:  # ValueError: a name with a null character
            why = error.strerror if isinstance(error, OSError) else error
            raise OperandError(f"{quoted(str(path))} cannot be read: {why}") from None
        return raw.decode("utf-8", "replace"), path
    if not isinstance(source, str):
        raise OperandError(f"a module is PTX text or a path; got {type(source).__name__}")
    return source, None


def _check_version(version: tuple[int, int] | None) -> None:
    if version is not None and version > _NEWEST:
        raise UnsupportedError(
            f"the file is PTX {version[0]}.{version[1]}; the newest known here is "
            f"{_NEWEST[0]}.{_NEWEST[1]}"
        )


def _target(named: Sequence[str], given: str | None) -> Target:
    """The target to run on: the file's own, or the one that is asked for if it can run the file."""
    own = find_target(named[0].replace("compute_", "sm_"))
    if given is None:
        return own
    chosen = find_target(given)
    if not runs_on(own, chosen):
        raise UnsupportedError(
            f"the file is for {own}, which {chosen} cannot run"
            + (": features of that target alone are used" if own.specific else "")
        )
    return chosen


def _bound(text: str, target: str | None) -> BoundModule:
    parsed = parse_module(text)
    _check_version(parsed.header.version)
    chosen = _target(parsed.header.targets, target)
    return BoundModule(parsed, chosen, chosen.reserved_shared, tuple(EXTERNALS))


#: tests make a module of the same short text again and again
_bound_once = lru_cache(maxsize=16)(_bound)
_KEPT_LENGTH = 1 << 15


class Kernel:
    """A kernel of a module. Raises nothing until it is launched."""

    def __init__(self, module: Module, bound: BoundKernel, contract: Contract = "ptxas") -> None:
        self.module = module
        self.bound = bound
        self.contract = contract
        #: steps of the blocks of statements, by whether they are checked
        self._blocks: dict[Any, Any] = {}
        self._problems: list[Problem] | None = None

    def __repr__(self) -> str:
        parameters = ", ".join(f".{p.type} {p.name}" for p in self.parameters)
        return f"<Kernel {self.name}({parameters})>"

    @property
    def name(self) -> str:
        return self.bound.function.name

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """name, type, bytes, alignment of each parameter."""
        return self.bound.function.parameters

    @property
    def problems(self) -> list[Problem]:
        """Statements that cannot run: line, column, opcode and reason."""
        if self._problems is None:
            from emulator.machine.engines import problem

            found = list(self.bound.problems)
            for statement in self.bound.program.statements:
                if reason := problem(statement.instruction):
                    at = self.module._bound.source.position(statement.at)
                    name = str(statement.instruction)
                    found.append(Problem(at.line, at.column, name, reason, self.name))
            self._problems = found
        return self._problems

    @property
    def contracted(self) -> list[Contracted]:
        """What ptxas contracts in the kernel and its functions, in the order of the text: each has
        line, column, opcode, multiplication (its line) and kind, and is a sentence as ``str()``.

        Raises UnsupportedError for a kernel with `problems`.
        """
        self._check_problems()
        statements, source = self.bound.program.statements, self.module._bound.source
        out = []
        for pc, multiplication, kind, half in self.rewritten[1]:
            line, column = source.position(statements[pc].at)[:2]
            factor = 0
            if multiplication is not None:
                factor = source.position(statements[multiplication].at).line
            opcode = str(statements[pc].instruction)
            out.append(Contracted(line, column, opcode, factor, kind, half))
        return sorted(out)

    @cached_property
    def rewritten(self) -> tuple[Program, list[Rewritten]]:
        """The program that runs, and where it is another than the text.

        A file for debuggers (``.target …, debug``) ptxas takes with -g alone, and so with -O0.
        """
        if "debug" in self.module._bound.parsed.header.options:
            return self.bound.program, []
        fmad = self.contract == "ptxas"
        return contracted(self.bound.program, self.module.target, fmad=fmad)

    @cached_property
    def checked(self) -> Program:
        """The program that runs with checks."""
        from emulator.machine.checks.registers import shadowed

        return shadowed(self.rewritten[0])

    def _check_problems(self) -> None:
        if self.problems:
            first = self.problems[0]
            more = len(self.problems) - 1
            raise UnsupportedError(
                f"{self.name} cannot run: {first}" + (f" (and {more} more)" if more else "")
            )

    def launch(
        self,
        grid: Sequence[int] | int,
        block: Sequence[int] | int,
        args: Sequence[Any] | Mapping[str, Any] = (),
        dynamic_shared: int = 0,
        cluster: Sequence[int] | int | None = None,
        check: bool = False,
        engine: EngineName = "auto",
        contract: Contract = "ptxas",
        async_order: Order = "early",
        seed: int | None = None,
        step_limit: int | None = None,
        memory: Memory | None = None,
        progress: Callable[[int, int], None] | None = None,
        counters: bool = False,
        stop_at: Special | None = None,
        dask: Any = None,
    ) -> Report:
        """Runs the kernel; arrays among `args` hold afterwards what it has written.

        `grid` counts thread blocks, `block` threads, each along x, y, z. `args` has one entry for
        each parameter, or names them: an array (NumPy, ml_dtypes, CPU tensor), whose address is
        passed; a number, which takes the parameter's type; a `TensorMap`; or bytes of its size.

        Raises OperandError for arguments that do not fit, UnsupportedError for a kernel with
        `problems`, KernelError where the kernel cannot go on. Then no array has changed.

        `contract` says which additions take products unrounded: those that ptxas contracts with its
        default options, or "none", as with its option -fmad=false.

        `seed` picks another legal order of thread blocks, of warps, of the sides of branches, and
        of lanes that come to one place; the same seed gives the same order. `async_order` says when
        asynchronous copies, wgmma and tcgen05 take effect: "early", at their issue; "late", at the
        wait that covers them; "random", in between, at moments drawn by `seed`.

        With `check` the report has `findings`: races, words that nothing wrote, waits and fences
        that are missing. With `counters` it has `counts`: what was counted at each statement.
        `stop_at` ends the launch with a KernelError where a statement makes a NaN of operands that
        are none ("nan"), an infinity of finite operands ("inf"), or either ("any"). The vector
        engine alone does all three.

        `engine`: "auto" compiles statements that run long enough, where llvmlite is installed;
        "compiled" all that it can, at once; "vector" none; "reference" is the specification. All
        give the same bytes and the same errors.

        `dask`, a ``distributed.Client``, runs chunks of the grid on its workers, with the same
        bytes. UnsupportedError where blocks could see each other (atomic operations on global
        memory, flags, cooperative grids, clocks), and where two chunks leave different values in
        one byte.
        """
        check_word("engine", engine, EngineName)
        if check and engine == "reference":
            raise UnsupportedError("the reference engine has no checks: engine='vector' has them")
        if not isinstance(counters, (bool, np.bool_)):
            raise OperandError(f"counters is True or False; got {counters!r:.80}")
        if stop_at is not None:
            check_word("stop_at", stop_at, Special)
        launch = self.prepare(
            grid, block, args, dynamic_shared, cluster, check=check, contract=contract,
            async_order=async_order, seed=seed, step_limit=step_limit, memory=memory,
            progress=progress,
        )  # fmt: skip
        if stop_at is not None:
            from emulator.machine.checks.nonfinite import watcher

            launch.watchers += (watcher(stop_at),)
        if dask is not None:
            if counters:
                raise UnsupportedError("counters=True needs all blocks in one process")
            launch.client = dask
        return _counted(launch, engine) if counters else launch.run(engine)

    def prepare(
        self,
        grid: Sequence[int] | int,
        block: Sequence[int] | int,
        args: Sequence[Any] | Mapping[str, Any] = (),
        dynamic_shared: int = 0,
        cluster: Sequence[int] | int | None = None,
        *,
        check: bool = False,
        contract: Contract = "ptxas",
        async_order: Order = "early",
        seed: int | None = None,
        step_limit: int | None = None,
        memory: Memory | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> Launch:
        """A launch that has yet to `run`, once; tools put `watchers` around its steps. Arguments
        and errors are those of `launch`."""
        self._check_problems()
        _check_options(check, step_limit, seed, memory, progress)
        check_word("contract", contract, Contract)
        check_word("async_order", async_order, Order)
        return Launch(
            self.module._kernel(self.name, contract),
            _sizes("grid", grid, _GRID), _sizes("block", block, _BLOCK), args,
            dynamic_shared, cluster, memory, step_limit,
            progress=progress, async_order=async_order, seed=seed, check=bool(check),
        )  # fmt: skip


def _counted(launch: Launch, engine: EngineName) -> Report:
    """Runs a launch and counts."""
    from emulator.machine.checks.counting import Counting

    counting = Counting()
    launch.watchers += (counting.watch,)
    report = launch.run(engine)
    report.counts = counting.counts(launch.place_of)
    report.counters |= report.counts.totals
    return report


def _check_options(check: Any, step_limit: Any, seed: Any, memory: Any, progress: Any) -> None:
    """Raises OperandError for options of wrong kinds, UnsupportedError for what is not there."""
    if not isinstance(check, (bool, np.bool_)):
        raise OperandError(f"check is True or False; got {check!r:.80}")
    for name, value in (("step_limit", step_limit), ("seed", seed)):
        if value is not None and (
            isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 0
        ):
            raise OperandError(f"{name} is a number from 0 on, or None; got {value!r:.80}")
    if memory is not None and not isinstance(memory, Memory):
        raise OperandError(f"memory is a Memory; got {type(memory).__name__}")
    if progress is not None and not callable(progress):
        raise OperandError(f"progress is called with two numbers; got {type(progress).__name__}")


def _sizes(what: str, given: Any, most: Index) -> Index:
    """Sizes along x, y, z; those that are not given are 1."""
    single = isinstance(given, (int, np.integer)) or not isinstance(given, (Sequence, np.ndarray))
    values = (given,) if single else tuple(given)
    if not 1 <= len(values) <= 3 or any(
        not isinstance(v, (int, np.integer)) or isinstance(v, bool) for v in values
    ):
        raise OperandError(f"{what} has one to three sizes; got {given!r:.80}")
    sizes = tuple(int(v) for v in values) + (1,) * (3 - len(values))
    for axis, size, limit in zip("xyz", sizes, most, strict=True):
        if not 1 <= size <= limit:
            raise OperandError(f"{what} along {axis} is 1 … {limit}; got {size}")
    return sizes  # type: ignore[return-value]


@dataclass(eq=False)
class Launch:
    """One launch: sizes, memory and arguments, checked."""

    kernel: Kernel
    grid: Index
    block: Index
    given: Sequence[Any] | Mapping[str, Any]
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
    watchers: tuple[Callable[..., Any], ...] = ()
    #: what a thread has asked for, if the launch is a thread's
    request: GridRequest | None = None
    #: the thread blocks that run, from the first to before the last; None: all
    part: tuple[int, int] | None = None
    #: of Dask, whose workers run them
    client: Any = None

    def __post_init__(self) -> None:
        self.done_blocks = 0
        #: what the checks have found so far
        self.found: Iterable[Finding] = ()
        self.heap = Heap(self.arena)
        #: what its threads launch themselves
        self.launches = DeviceLaunches(self)
        self.module = self.kernel.module
        self.program = self.kernel.checked if self.check else self.kernel.rewritten[0]
        self.function = self.program.functions[self.kernel.name]
        self.reserved_shared = self.module.target.reserved_shared
        directives = self.function.directives
        threads = math.prod(self.block)
        if threads > _THREADS:
            raise OperandError(f"a block has at most {_THREADS} threads; got {threads}")
        if self.step_limit is None and threads * self.total_blocks > _ALL_THREADS:
            raise OperandError(
                f"{_by(self.grid)} blocks of {threads} threads are {threads * self.total_blocks:,} "
                f"threads, which would take hours; step_limit=N runs them up to N statements"
            )
        if self.function.local_bytes > _LOCAL:
            raise OperandError(
                f"{self.function.name} takes {self.function.local_bytes:,} bytes of local memory "
                f"in each thread, which may have {_LOCAL:,}"
            )
        self._check_block(directives)
        self.cluster, self.explicit_cluster = self._cluster(directives)
        self.shared_bytes = self._shared()
        #: shared memory that the kernel asks for, in the units of 128 bytes that a block gets
        self.smem_size = -(-(self.shared_bytes - self.reserved_shared) // 128) * 128

    def _check_block(self, directives: Mapping[str, tuple[Any, ...]]) -> None:
        for name in ("reqntid", "maxntid"):
            if name not in directives:
                continue
            sizes = (*map(int, directives[name]), 1, 1)[:3]
            wrong = (
                self.block != sizes
                if name == "reqntid"
                else math.prod(self.block) > math.prod(sizes)
            )
            if wrong:
                verb = "needs" if name == "reqntid" else "takes at most"
                raise OperandError(
                    f"{self.function.name} {verb} blocks of {_by(sizes)} threads (.{name}); "
                    f"got {_by(self.block)}"
                )

    def _cluster(self, directives: Mapping[str, tuple[Any, ...]]) -> tuple[Index, bool]:
        own = directives.get("reqnctapercluster")
        required = (*map(int, own), 1, 1)[:3] if own else None
        given = self.given_cluster
        chosen = None if given is None else _sizes("cluster", given, (16, 16, 16))
        if required and chosen and required != chosen:
            raise OperandError(
                f"{self.function.name} needs clusters of {_by(required)} blocks; got {_by(chosen)}"
            )
        cluster = required or chosen or (1, 1, 1)
        if any(g % c for g, c in zip(self.grid, cluster, strict=True)):
            raise OperandError(
                f"a grid of {_by(self.grid)} is no multiple of clusters of {_by(cluster)} blocks"
            )
        if math.prod(cluster) > 16:
            raise OperandError(f"a cluster has at most 16 blocks; got {_by(cluster)}")
        return cluster, bool(required or chosen)  # type: ignore[return-value]

    def _shared(self) -> int:
        dynamic, limit = self.dynamic_shared, self.module.target.shared_limit
        if not isinstance(dynamic, (int, np.integer)) or dynamic < 0:
            raise OperandError(f"dynamic_shared is a number of bytes; got {dynamic!r:.80}")
        total = self.kernel.bound.dynamic_start + int(dynamic)
        if dynamic == 0:
            total = self.kernel.bound.static_shared
        if total - self.reserved_shared > limit:
            raise OperandError(
                f"{self.function.name} takes {total - self.reserved_shared} bytes of shared "
                f"memory; {self.module.target} has {limit} for a block"
            )
        return max(total, self.reserved_shared)

    @cached_property
    def regions(self) -> Regions | None:
        """Where lanes part and meet, of a kernel in which more than the program says who meets."""
        if self.seed is not None or "activemask" not in self.program.names:
            return None
        from emulator.ptx.regions import regions_of

        return regions_of(self.program, self.function)

    # --- running ---

    def run(self, engine: EngineName) -> Report:
        if self.watchers and engine == "reference":
            raise UnsupportedError(
                "counters and stop_at are the vector engine's; leave engine='reference' out"
            )
        if self.seed is not None and engine == "reference" and self.async_order != "random":
            raise UnsupportedError("seed: engine='reference' has one order of warps alone")
        placed = self._place()
        try:
            counters = self._run_grids(engine)
        except Failure as failure:  # of the whole launch: no statement is to blame
            raise KernelError(failure.kind, failure.reason) from None
        except KernelError as error:
            error.findings = list(self.found)
            raise
        placed.write_back(self.arena)
        for name, allocation in self._variables.items():
            self.module._variables[name][:] = self.arena.bytes_of(allocation)
        return Report(
            self.function.name, findings=list(self.found), counters=counters, printed=self.printed,
            files={name.rpartition("/")[2]: name for name in self._files().values()},
            text_of_module=self.module.text,
        )  # fmt: skip

    def _run_grids(self, engine: EngineName) -> dict[str, int]:
        """Runs the grid, and then what its threads have launched; what was counted in all."""
        from emulator.machine.engines import run_grid

        counters = run_grid(self, engine)
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
            reason = f"{statements:,} statements were executed; step_limit={self.step_limit:,}"
            raise Failure("step limit", reason)

    def _run_launched(self, launch: Launch, engine: EngineName) -> dict[str, int]:
        """Runs the grid that a thread has asked for; what was counted."""
        from emulator.machine.engines import run_grid

        request = launch.request
        assert request is not None
        parameters = self.arena.bytes_of(request.buffer)[: request.parameter_bytes].copy()
        self.arena.remove(request.buffer)
        launch._place_parameters(parameters)
        self.heap.earlier = set(self.heap.live)
        try:
            return run_grid(launch, engine)
        finally:
            self.found = [*self.found, *launch.found]

    def launch_of(self, request: GridRequest) -> Launch:
        """The launch that a thread of this one asks for; raises OperandError for one that the
        device refuses."""
        launch = Launch(
            self.module._kernel(request.kernel, self.kernel.contract),
            _sizes("grid", request.grid, _GRID), _sizes("block", request.block, _BLOCK), (),
            request.shared, None, None, self.step_limit, self.arena, self.printed,
            self.environment, async_order=self.async_order, seed=self.seed, check=self.check,
            arithmetic=self.arithmetic, watchers=self.watchers, request=request,
        )  # fmt: skip
        if launch.shared_bytes - launch.reserved_shared > MOST_SHARED:
            raise OperandError(f"a kernel launches grids with {MOST_SHARED} bytes of shared memory")
        launch.heap = self.heap
        launch.launches = DeviceLaunches(launch, self.launches.depth + 1)
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

    def _place(self) -> Placed:
        """Puts variables, arrays and parameters into memory."""
        self.module._load_variables()
        held = self.module._variables
        self._variables = {}
        for name, address, _, writable in self.module._bound.contents():
            if len(held[name]):
                self._variables[name] = self.arena.allocate(
                    name, len(held[name]), address=address, contents=held[name], writable=writable
                )
        # Where the blocks of a cooperative grid meet; every launch is one here.
        workspace = self.arena.allocate("workspace of the grid", _WORKSPACE).address
        self.environment = {"%envreg1": workspace >> 32, "%envreg2": workspace & 0xFFFFFFFF}
        placed = place_arguments(self.arena, self.function, self.given, self.memory)
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

    def blocks(self, kind: Any, make: Callable[..., Any]) -> Any:
        """The kernel's blocks of statements of a kind, which launches share unless someone
        watches."""
        kernel = self.kernel
        if self.watchers:
            return make(self.program, watchers=self.watchers)
        if (kind, self.check) not in kernel._blocks:
            kernel._blocks[kind, self.check] = make(self.program)
        return kernel._blocks[kind, self.check]

    # --- errors ---

    def error(
        self, kind: str, reason: str, statement: Statement, wave: Any, lanes: Array
    ) -> KernelError:
        """A KernelError that says which statement, which block and which threads."""
        found = [wave.coordinates(int(lane)) for lane in lanes[:1024]]
        block = found[0][0] if found else None
        threads = [thread for cta, thread in found if cta == block]
        return KernelError(kind, reason, self.place_of(statement), block, threads)

    def shared_name(self, offset: int, size: int = 1) -> str:
        """The variable of shared memory that an access of `size` bytes leads to, for messages."""
        return place_name(self.kernel.bound.shared_symbols.values(), offset, size)

    def place_of(self, statement: Statement) -> Place:
        source = self.module._bound.source
        position = source.position(statement.at)
        return Place(
            self.function.name, position.line, position.column,
            source.statement(statement.at), self._source_lines(statement),
        )  # fmt: skip

    def _source_lines(self, statement: Statement) -> tuple[str, ...]:
        files, out = self._files(), []
        location = statement.location
        while location is not None:
            name = files.get(location.file, f"file {location.file}").rpartition("/")[2]
            out.append(f"{name}:{location.line}")
            location = location.inlined_at
        return tuple(out)

    def _files(self) -> dict[int, str]:
        """The source files that the PTX names, by their numbers."""
        return {file.number: file.name for file in self.module._bound.parsed.files}

    @cached_property
    def total_blocks(self) -> int:
        return math.prod(self.grid)


def _by(sizes: Sequence[int]) -> str:
    return " × ".join(map(str, sizes))
