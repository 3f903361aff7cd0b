"""``Module`` and its kernels: PTX text, bound for a target and ready to be launched."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtypes import Array
from emulator.errors import OperandError, UnsupportedError, hint, listing, quoted, shown
from emulator.machine.arguments import Named, arrays_of
from emulator.machine.compiling import SUFFIXES, compile_cuda, contract_of
from emulator.machine.launch import Launch
from emulator.machine.mangling import find_mangled
from emulator.machine.memory import Memory
from emulator.machine.options import (
    Contract,
    EngineName,
    Order,
    Special,
    check_options,
    check_word,
    number_or_none,
    switch,
)
from emulator.machine.report import KernelError, Report
from emulator.machine.sizes import BLOCKS, THREADS, along_axes
from emulator.machine.system.externals import EXTERNALS
from emulator.machine.turns import Turn
from emulator.memory.surface import Surface
from emulator.memory.texture import Texture
from emulator.memory.windows import VARIABLES
from emulator.ptx.linking import link
from emulator.ptx.module import BoundKernel, BoundModule, Problem, bind_kernel
from emulator.ptx.parser import parse_texts
from emulator.ptx.program import Parameter, Program
from emulator.ptx.rewriting import Contracted, Rewritten, contracted
from emulator.ptx.source import joined
from emulator.reading import read_bytes
from emulator.targets import Target, check_made_for, find_target, is_before_tensor_cores

if TYPE_CHECKING:
    from emulator.machine.debugger.debugger import Debugger

#: the newest version of PTX
_NEWEST = (9, 5)
#: bytes that the variables of a module may have
_VARIABLES = 1 << 33


class Module:
    """A PTX file: its kernels, bound for a target.

    `source` is the text, or the path of a file; a list of them is linked to one program, and
    `text` then holds all of them. `target` is the chip that is simulated; None takes the one that
    the file names, which must not be older than sm_70. A `memory` holds the variables at addresses
    that no other module of it has, until `unload`: for launches with this Memory.

    Raises ParseError for a text that is not PTX, UnsupportedError for a target that cannot run it.
    What cannot be bound or linked is listed in `problems`; kernels that need none of it can run.
    """

    def __init__(
        self,
        source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        target: str | None = None,
        *,
        memory: Memory | None = None,
    ) -> None:
        check_options(memory, None)
        text, self.path = _text(source)
        variables_at = VARIABLES if memory is None else memory.variables_at
        short = len(text) <= _KEPT_LENGTH and (target is None or isinstance(target, str))
        self._bound = (_bound_once if short else _bound)(text, target, variables_at)
        self.target = self._bound.target
        self._kernels: dict[tuple[str, Contract], Kernel] = {}
        #: the compiler that wrote the PTX, and what its flags mean for launches; see `from_cuda`
        self.compiler = ""
        self.contract: Contract = "ptxas"
        #: bytes of the variables of .global, which keep their values from launch to launch
        self._variables: dict[str, Array] = {}
        self._references: dict[str, Texture | Surface] = {}
        self._turn, self._loading = Turn(), Turn()
        self._memory = memory
        if memory is not None:
            held = self.variables()
            places = self._bound.places()
            memory.load([(at, held[name], name, w) for name, at, w in places], self._bound.end)

    @classmethod
    def from_cuda(
        cls, source: str | os.PathLike[str], target: str = "sm_90a", options: Sequence[str] = ()
    ) -> Module:
        """Compiles CUDA C++, the text or the path of a file, with nvcc or NVRTC.

        `options` go to the compiler, as ``("-DTILE=64", "-Iinclude")``. Launches contract as ptxas
        does with them: ``-fmad=false``, ``-G`` and ``-Xptxas -O0`` set `Module.contract`, the
        `contract` of launches that name none. `Module.compiler` names the compiler.

        Raises OperandError for a source that cannot be read or compiled, with the compiler's
        messages, UnsupportedError where no compiler is installed.
        """
        compiled = compile_cuda(source, target, options)
        module = cls(compiled.text, target)
        module.compiler, module.contract = compiled.compiler, contract_of(options)
        return module

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
        return isinstance(name, str) and name in self.kernels

    def __getitem__(self, name: str) -> Kernel:
        """A kernel by its name, by a part of it that no other kernel's name has, or as C++ writes
        it: ``"k<32>"``."""
        if name not in self:
            known = isinstance(name, str)
            alike = [x for x in self.kernels if known and name in x]
            if known and len(alike) != 1:
                alike = find_mangled(name, self.kernels)
            if len(alike) != 1:
                near = hint(name, self.kernels) if known else ""
                raise OperandError(
                    f"no kernel {shown(name)}; kernels are {listing(self.kernels)}{near}"
                )
            (name,) = alike
        return self._kernel(name, self.contract)

    def _kernel(self, name: str, contract: Contract = "ptxas") -> Kernel:
        key = (name, contract)
        if key not in self._kernels:
            bound = self._bind(name) if contract == "ptxas" else self._kernel(name).bound
            self._kernels[key] = Kernel(self, bound, contract)
        return self._kernels[key]

    def _bind(self, name: str) -> BoundKernel:
        """A kernel, whose parameters have the names of the source where the PTX says them."""
        bound, names = bind_kernel(self._bound, name), self._names_of_source
        if names.keys().isdisjoint(x.name for x in bound.function.parameters):
            return bound
        named = [replace(x, name=names.get(x.name) or x.name) for x in bound.function.parameters]
        return replace(bound, function=replace(bound.function, parameters=tuple(named)))

    @cached_property
    def _names_of_source(self) -> dict[str, str]:
        if "debug" not in self._bound.parsed.header.options:
            return {}
        from emulator.ptx.debug_information import parameter_names

        return dict(parameter_names(self.text))

    @property
    def problems(self) -> list[Problem]:
        """Statements that cannot run, and declarations that ptxas refuses: line, column, opcode and
        reason; empty if there are none."""
        of_kernels = {p for name in self.kernels for p in self._kernel(name).problems}
        return sorted({*self._bound.problems.values(), *of_kernels})

    @property
    def link_problems(self) -> list[Problem]:
        """Those of `problems` that are of declarations, as ptxas and nvlink refuse them; of one
        text, and of several that are linked."""
        return sorted(self._bound.problems.values())

    def variable(self, name: str) -> Array:
        """The bytes of a variable of .global or .const, as the last launch left them."""
        self._load_variables()
        if not isinstance(name, str) or name not in self._variables:
            raise OperandError(
                f"no variable {shown(name)}; there are {listing(self._variables) or 'none'}"
            )
        return self._variables[name]

    def variables(self) -> dict[str, Array]:
        """The bytes of all variables of .global and .const by name, as the last launch left
        them."""
        self._load_variables()
        return dict(self._variables)

    def bind(self, name: str, given: Texture | Surface) -> None:
        """Names a `Texture` by a variable of type .texref, or a `Surface` by one of .surfref, for
        the launches that follow. Raises OperandError where there is no such variable."""
        kinds = {"texref": Texture, "surfref": Surface}
        known = {n: t for n, (t, _) in self.reference_handles.items() if t in kinds}
        if not isinstance(name, str) or name not in known:
            raise OperandError(
                f"no .texref or .surfref {shown(name)}; there are {listing(known) or 'none'}"
            )
        kind = kinds[known[name]]
        if not isinstance(given, kind):
            raise OperandError(
                f"{name} is a .{known[name]}, which names a {kind.__name__}; got "
                f"{type(given).__name__}"
            )
        self._references[name] = given

    @property
    def reference_handles(self) -> dict[str, tuple[str, int]]:
        """Types and handles of the variables of type .texref, .samplerref and .surfref."""
        return self._bound.references

    def references(self) -> list[Named]:
        """What `bind` has named, with the handles."""
        handles = self.reference_handles
        return [Named(name, handles[name][1], given) for name, given in self._references.items()]

    def unload(self) -> None:
        """Takes the variables out of the Memory that the module was made with."""
        memory, self._memory = self._memory, None
        for name, address, _ in self._bound.places():
            if memory is not None and len(self._variables[name]):
                memory.free(address)

    def _load_variables(self) -> None:
        total = sum(self._bound.variable_sizes)
        if total > _VARIABLES:
            raise OperandError(
                f"the variables of the module have {total:,} bytes together, more than "
                f"{_VARIABLES:,}"
            )
        with self._loading.lock:
            if not self._variables:
                self._variables = self._bound.initial_bytes()


def _text(
    source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
) -> tuple[str, Path | None]:
    """PTX as text: what is one line without a ``;`` or a newline names a file."""
    if isinstance(source, (list, tuple)) and source:
        found = [_text(each) for each in source]
        if len(found) == 1:
            return found[0]
        named = enumerate(found, 1)
        return joined((path.name if path else f"text {i}", text) for i, (text, path) in named), None
    if isinstance(source, os.PathLike) or (
        isinstance(source, str)
        and "\n" not in source
        and ";" not in source
        and len(source) < 4096
        and source.strip().endswith((".ptx", *SUFFIXES))
    ):
        path = Path(source)
        if path.suffix in SUFFIXES:
            raise OperandError(
                f"{quoted(str(path))} is CUDA C++: Module.from_cuda compiles it, and launches it "
                "with the flags that you give"
            )
        return read_bytes(path).decode("utf-8", "replace"), path
    if not isinstance(source, str):
        raise OperandError(
            f"a module is PTX text or a path, or a list of them; got {shown(source)}"
        )
    return source, None


def _check_version(version: tuple[int, int] | None) -> None:
    if version is not None and version > _NEWEST:
        raise UnsupportedError(
            f"the file is PTX {version[0]}.{version[1]}; the newest known here is "
            f"{_NEWEST[0]}.{_NEWEST[1]}"
        )


def _target(named: Sequence[str], given: str | None) -> Target:
    """The target to run on: the file's own, or the one that is asked for if it can run the file."""
    own = named[0]
    if given is not None:
        chosen = find_target(given)
        check_made_for(own, chosen)
        return chosen
    if is_before_tensor_cores(own):
        raise UnsupportedError(
            f"the text is made for {own} (.target), which is older than what is simulated here; it "
            "runs on all of that: name a chip, such as target='sm_70' or 'H100'"
        )
    return find_target(own)


def _bound(text: str, target: str | None, variables_at: int) -> BoundModule:
    parsed = parse_texts(text)
    headers = tuple(module.header for module in parsed)
    for header in headers:
        _check_version(header.version)
    chosen = _target_of_all([header.targets for header in headers], target)
    supplied = tuple(EXTERNALS)
    settings = chosen, chosen.reserved_shared, supplied, variables_at
    if not parsed[0].source.parts[0].label:
        return BoundModule(parsed[0], *settings)
    module, conflicts = link(parsed, supplied)
    return BoundModule(module, *settings, conflicts, headers)


def _target_of_all(named: Sequence[Sequence[str]], given: str | None) -> Target:
    """The target of several texts: the first of their own that all of them can run on."""
    refused: UnsupportedError | None = None
    for own in named:
        try:
            chosen = _target(own, given)
            for other in named:
                check_made_for(other[0], chosen)
            return chosen
        except UnsupportedError as error:
            refused = refused or error
    assert refused is not None
    raise refused


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
        self._blocks: dict[tuple[type, bool], object] = {}
        self._problems: list[Problem] | None = None

    def __getstate__(self) -> dict[str, object]:
        # Steps and machine code belong to this process; a copy makes its own.
        return self.__dict__ | {"_blocks": {}}

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
                    name, bound = str(statement.instruction), self.module._bound
                    found.append(bound.problem(statement.at, name, reason, self.name))
            self._problems = found
        return self._problems

    @property
    def contracted(self) -> list[Contracted]:
        """The contractions that ptxas makes in the kernel and its functions, in the order of the
        text: each has line, column, opcode, multiplication (its line) and kind, and is a sentence
        as ``str()``.

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
        if self.contract == "O0" or "debug" in self.module._bound.parsed.header.options:
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
        args: Sequence[object] | Mapping[str, object] = (),
        dynamic_shared: int = 0,
        cluster: Sequence[int] | int | None = None,
        check: bool = False,
        engine: EngineName = "auto",
        contract: Contract | None = None,
        async_order: Order = "early",
        seed: int | None = None,
        step_limit: int | None = None,
        memory: Memory | None = None,
        progress: Callable[[int, int], None] | None = None,
        counters: bool = False,
        stop_at: Special | None = None,
        dask: object = None,
    ) -> Report:
        """Runs the kernel; arrays among `args` hold afterwards what it has written.

        `grid` counts thread blocks, `block` threads, each along x, y, z. `args` has one entry for
        each parameter, or names them: an array (NumPy, ml_dtypes, CPU tensor), whose address is
        passed; a number, which takes the parameter's type; a `TensorMap`, `Texture` or
        `Surface`; or bytes of its size.

        Raises OperandError for arguments that do not fit, UnsupportedError for a kernel with
        `problems`, KernelError where the kernel cannot go on. Then no array has changed, and
        `error.state` is the launch under the debugger, stopped there.

        `contract` says which additions take products unrounded: those that ptxas contracts with its
        default options, or "none", as with its option -fmad=false. With "O0" each statement is
        computed as it stands, as by ptxas -O0: "none" still rewrites approximate divisions. None
        takes the module's: "ptxas", unless `from_cuda` was given other flags.

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
        _check_watching(engine, check, counters, stop_at, dask)
        size = grid, block, args, dynamic_shared, cluster
        options: dict[str, Any] = {
            "contract": contract, "async_order": async_order, "seed": seed,
            "step_limit": step_limit, "memory": memory,
        }  # fmt: skip
        launch = self.prepare(*size, check=check, progress=progress, **options)
        launch.client = dask
        try:
            return _watched(launch, engine, counters, stop_at)
        except KernelError as error:
            from emulator.machine.debugger.failed import Failed

            debug = partial(self.debug, *size, **options)
            arrays = dict(arrays_of(self.bound.function, args, memory))
            error.failed = Failed(error, debug, arrays | self.module.variables()).state
            raise

    def prepare(
        self,
        grid: Sequence[int] | int,
        block: Sequence[int] | int,
        args: Sequence[object] | Mapping[str, object] = (),
        dynamic_shared: int = 0,
        cluster: Sequence[int] | int | None = None,
        *,
        check: bool = False,
        contract: Contract | None = None,
        async_order: Order = "early",
        seed: int | None = None,
        step_limit: int | None = None,
        memory: Memory | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> Launch:
        """A launch that has yet to `run`, once; tools put `watchers` around its steps. Arguments
        and errors are those of `launch`."""
        self._check_problems()
        check_options(memory, progress)
        contract = self.module.contract if contract is None else contract
        check_word("contract", contract, Contract)
        check_word("async_order", async_order, Order)
        return Launch(
            self.module._kernel(self.name, contract),
            along_axes("grid", grid, BLOCKS),
            along_axes("block", block, THREADS),
            args,
            dynamic_shared,
            cluster,
            memory,
            number_or_none("step_limit", step_limit),
            progress=progress,
            async_order=async_order,
            seed=number_or_none("seed", seed),
            check=switch("check", check),
        )

    def debug(
        self,
        grid: Sequence[int] | int,
        block: Sequence[int] | int,
        args: Sequence[object] | Mapping[str, object] = (),
        dynamic_shared: int = 0,
        cluster: Sequence[int] | int | None = None,
        *,
        contract: Contract | None = None,
        async_order: Order = "early",
        seed: int | None = None,
        step_limit: int | None = None,
        memory: Memory | None = None,
        source: str | os.PathLike[str] | None = None,
    ) -> Debugger:
        """A launch under the debugger, stopped before its first statement.

        Arguments and errors are those of `launch`; `source` is a folder with the source files that
        the PTX names.
        """
        from emulator.machine.debugger.debugger import Debugger

        prepare = partial(
            self.prepare,
            grid,
            block,
            args,
            dynamic_shared,
            cluster,
            contract=contract,
            async_order=async_order,
            seed=seed,
            step_limit=step_limit,
            memory=memory,
        )
        return Debugger(prepare, None if source is None else Path(source))


def _check_watching(
    engine: str, check: bool, counters: bool, stop_at: str | None, dask: object
) -> None:
    """Raises OperandError for options of `Kernel.launch` that are none, and UnsupportedError for
    those that do not go together."""
    check_word("engine", engine, EngineName)
    if switch("check", check) and engine == "reference":
        raise UnsupportedError("the reference engine has no checks: engine='vector' has them")
    if switch("counters", counters) and dask is not None:
        raise UnsupportedError("counters=True needs all blocks in one process: leave dask= out")
    if stop_at is not None:
        check_word("stop_at", stop_at, Special)


def _watched(launch: Launch, engine: EngineName, counters: bool, stop_at: Special | None) -> Report:
    """Runs a launch, stops where a statement makes what `stop_at` says, and counts."""
    if stop_at is not None:
        from emulator.machine.checks.nonfinite import watcher

        launch.watchers += (watcher(stop_at),)
    if not counters:
        return launch.run(engine)
    from emulator.machine.checks.counting import Counting

    counting = Counting()
    launch.watchers += (counting.watch,)
    report = launch.run(engine)
    report.counts = counting.counts(launch.place_of)
    report.counters |= report.counts.totals
    return report
