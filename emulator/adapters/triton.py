"""Triton kernels, compiled by Triton for a GPU that need not be there, and run here bit for bit.

Inside ``with gpu("H100"):`` each launch ``kernel[grid](…)`` of the process runs here: Triton
specialises and compiles as it does for the GPU, and the PTX that it writes runs on CPU tensors.
``on("H100", kernel)[grid](…)`` is one such launch, takes NumPy arrays as well, and returns its
report. Nothing of Triton is replaced but its driver and how an autotuned kernel picks.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from emulator.adapters.triton_arguments import Memories, Signature
from emulator.adapters.triton_tuning import Choice, Tuning
from emulator.errors import OperandError, UnsupportedError, quoted, shown
from emulator.machine.module import Kernel, Module
from emulator.machine.report import KernelError, Report
from emulator.targets import Board, Target, find_chip, find_target

_STREAM = 0


@contextmanager
def gpu(target: str | Target, *, autotune: Choice = "first", **options: Any) -> Iterator[Driver]:
    """Gives Triton a GPU until the context ends: every ``kernel[grid](…)`` runs here.

    `autotune` says which configuration of an autotuned kernel runs: "first", the first that fits
    the GPU; "all agree", the first, after all of them have run on the same bytes and have left the
    same bytes; or the settings of one, such as ``{"BLOCK": 64, "num_warps": 8}``. `options` are
    those of `Kernel.launch`, such as ``check=True``. The driver that the context gives has the
    report of the last launch as `report`.

    Raises UnsupportedError for a target that Triton does not compile for, and where the
    configurations do not agree.
    """
    chosen = find_target(target)
    with ExitStack() as stack:
        yield enter_driver(stack, Driver(target, options, Tuning(autotune), f"emulated {chosen}"))


def install(
    target: str | Target, *, device: str = "cpu", autotune: Choice = "first", **options: Any
) -> Driver:
    """Gives Triton a GPU for the rest of the process, as device 0 and as the one to find.

    `device` is the kind of device that tensors are on: "cuda" where something gives PyTorch one.
    `autotune` and `options` are those of `gpu`.
    """
    driver = Driver(target, options, Tuning(autotune), 0, device)
    enter_driver(ExitStack(), driver)
    return driver


def on(target: str | Target, kernel: Any, **options: Any) -> OnTarget:
    """A Triton kernel as it runs on a GPU: ``on("H100", kernel)[grid](*args, **constants)``.

    `kernel` is a ``@triton.jit`` function, also under ``@triton.heuristics`` or
    ``@triton.autotune``. `options` are those of `gpu`, and go to every launch.

    Raises OperandError for what is no Triton kernel, UnsupportedError for a target that Triton does
    not compile for.
    """
    find_target(target)
    if type(kernel).__name__ == "InterpretedFunction":
        raise OperandError(
            "Triton interprets this kernel (TRITON_INTERPRET=1); without that it is compiled"
        )
    if not hasattr(kernel, "run") or not hasattr(kernel, "__getitem__"):
        raise OperandError(f"a Triton kernel is a @triton.jit function; got {shown(kernel)}")
    return OnTarget(target, kernel, options)


class OnTarget(NamedTuple):
    """A kernel for a target; ``self[grid](…)`` compiles and runs it, and returns the `Report`."""

    target: str | Target
    kernel: Any
    options: Mapping[str, Any]

    def __getitem__(self, grid: Any) -> Any:
        blocks = (grid,) if isinstance(grid, (int, np.integer)) else grid

        def launch(*args: Any, **kwargs: Any) -> Report:
            tensors = [_tensor(value) for value in args]
            named = {name: _tensor(value) for name, value in kwargs.items()}
            with gpu(self.target, **self.options) as driver:
                self.kernel[blocks](*tensors, **named)
            if driver.report is None:
                raise UnsupportedError(f"{quoted(str(self.kernel))} did not launch a kernel")
            return driver.report

        return launch


def _tensor(value: Any) -> Any:
    """NumPy and ml_dtypes arrays as tensors, which Triton reads; the memory is the same."""
    if not isinstance(value, np.ndarray):
        return value
    import torch

    if value.dtype.kind in "biufc":
        return torch.from_numpy(value)
    known = getattr(torch, str(value.dtype), None)
    if known is None:
        raise OperandError(f"Triton has no type for arrays of {value.dtype}")
    return torch.from_numpy(value.view(f"u{value.itemsize}")).view(known)


# --- what Triton asks of a driver -----------------------------------------------------------------


def _nothing(*_: object) -> None:
    """What Triton asks for, and needs no work here."""


class Driver:
    """A driver of Triton for a GPU that is not there."""

    def __init__(
        self,
        gpu: str | Target,
        options: Mapping[str, Any],
        tuning: Tuning,
        name: str | int,
        device: str = "cpu",
    ) -> None:
        from triton.backends.compiler import GPUTarget

        target = find_target(gpu)
        self.options, self.tuning, self.device = options, tuning, device
        self.target = GPUTarget("cuda", target.number, 32)
        self.utils = _Utilities(target, find_chip(gpu).board)
        self.memories = Memories()
        #: of the last launch
        self.report: Report | None = None
        #: called after each launch, with its kernel, grid, block, seconds, findings and error
        self.launched: Callable[..., None] | None = None
        # Triton keeps what it compiled by device: a name of its own keeps a context's apart.
        self._name = name

    def note(
        self, row: Mapping[str, Any], started: float, findings: Sequence[Any], **more: str
    ) -> None:
        """Tells who wants to know of a launch that began at a time of `perf_counter`."""
        if self.launched is not None:
            seconds = round(perf_counter() - started, 6)
            self.launched(**row, seconds=seconds, findings=[str(x) for x in findings], **more)

    @staticmethod
    def is_active() -> bool:
        return True

    def launcher_cls(self, source: Any, metadata: Any) -> Any:
        self.tuning.replace_inductor()
        return _Launcher(source, metadata)

    def get_current_target(self) -> Any:
        return self.target

    def get_current_device(self) -> str | int:
        return self._name

    def get_current_stream(self, device: Any) -> int:
        return _STREAM

    def get_device_capability(self, device: Any = 0) -> tuple[int, int]:
        return self.utils.get_device_capability(device)

    def get_active_torch_device(self) -> Any:
        import torch

        return torch.device("cuda", 0) if self.device == "cuda" else torch.device("cpu")

    def get_device_interface(self) -> Any:
        import torch

        return torch.cuda

    def get_benchmarker(self) -> Any:
        """Finds everything equally fast: nothing here has the speed of the GPU."""
        return lambda call, *, quantiles=None, **options: [1.0] * len(quantiles or [1])

    def get_empty_cache_for_benchmark(self) -> Any:
        import torch

        return torch.empty(0, dtype=torch.int, device=self.get_active_torch_device())

    set_current_device = clear_cache = _nothing

    def map_python_to_cpp_type(self, name: str) -> str:
        from triton.backends.nvidia.driver import ty_to_cpp

        return str(ty_to_cpp(name))

    def assemble_tensormap_to_arg(self, tensormaps_info: Any, args: Any) -> Any:
        return args


@dataclass(frozen=True)
class _Utilities:
    target: Target
    board: Board

    def get_device_properties(self, device: Any) -> dict[str, int]:
        limit, board = self.target.shared_limit, self.board
        return {"max_shared_mem": limit, "multiprocessor_count": board.processors, "warpSize": 32,
                "max_num_regs": 65536, "sm_clock_rate": board.clock_khz,
                "mem_clock_rate": 2619000, "mem_bus_width": board.memory_bus}  # fmt: skip

    def get_device_capability(self, device: Any = 0) -> tuple[int, int]:
        major, minor = divmod(self.target.number, 10)
        return major, minor

    def load_binary(self, name: str, *rest: Any) -> tuple[Any, ...]:
        """Module, function, registers, spilled registers, most threads; the launcher has all."""
        return name, name, 0, 0, 1024

    def cuOccupancyMaxActiveClusters(self, *given: Any) -> int:
        """Clusters of 16, of a block on each multiprocessor."""
        return self.board.processors // 16

    unload_module = set_printf_fifo_size = _nothing


class _Ended:
    """The default driver after a context: compiled kernels that die later ask it to unload them.

    For anything else it looks for a real GPU, as Triton does where there is no default.
    """

    def __init__(self, path: tuple[str, ...] = ()) -> None:
        self._path = path

    @property
    def utils(self) -> _Ended:
        return _Ended(("utils",))

    unload_module = _nothing

    def __getattr__(self, name: str) -> Any:
        from triton.runtime.driver import _create_driver

        return attrgetter(".".join((*self._path, name)))(_create_driver())


def enter_driver(stack: ExitStack, driver: Driver) -> Driver:
    """Makes a driver the active one until the stack closes."""
    from triton.backends import backends
    from triton.backends.driver import DriverBase
    from triton.runtime.driver import driver as config

    DriverBase.register(Driver)

    # Asking for the active driver where there is no GPU raises.
    before = {"_active": config._active, "_default": config._default or _Ended()}
    stack.callback(vars(config).update, before)
    config._default = config._active = driver
    # Who looks for a GPU asks the class of each backend's driver, and makes one.
    made = {"__new__": lambda cls: driver, "__init__": lambda self: None}
    nvidia = backends["nvidia"]
    stack.callback(backends.update, nvidia=nvidia)
    backends["nvidia"] = replace(nvidia, driver=type("Driver", (Driver,), made))
    driver.tuning.enter(stack)
    return driver


# --- launches -------------------------------------------------------------------------------------


class _Launcher:
    """A compiled kernel as Triton launches it; its PTX is bound once, at the first launch."""

    def __init__(self, source: Any, metadata: Any) -> None:
        self._source, self._metadata, self._text = source, metadata, _ptx(source, metadata)
        self._kernel: Kernel | None = None
        self._signatures: dict[str, Signature] = {}

    def __call__(self, x: int, y: int, z: int, *rest: Any) -> None:
        """`rest`: stream, function, packed metadata, those of the launch with its two hooks, and
        the arguments."""
        from triton.runtime.driver import driver as config

        driver = config.active
        if not isinstance(driver, Driver):
            raise OperandError("the context that gave Triton this GPU has ended")
        (launch_metadata, enter, leave), given = rest[3:6], rest[6:]
        if enter is not None:
            enter(launch_metadata)
        # Triton counts the blocks of a cluster as one.
        grid = (int(x) * self._metadata.num_ctas, int(y), int(z))
        if all(grid):
            self._launch(driver, grid, given)
        if leave is not None:
            leave(launch_metadata)

    def _launch(self, driver: Driver, grid: tuple[int, int, int], given: tuple[Any, ...]) -> None:
        metadata = self._metadata
        if self._kernel is None:
            self._kernel = Module(self._text)[metadata.name]
        if driver.device not in self._signatures:
            self._signatures[driver.device] = Signature(self._source, metadata, driver.device)
        arguments, spans = self._signatures[driver.device].arguments(given)
        blocks = grid[0] * grid[1] * grid[2]
        for size in (metadata.global_scratch_size, getattr(metadata, "profile_scratch_size", 0)):
            if len(arguments) < len(self._kernel.parameters):
                arguments.append(np.zeros(blocks * size, np.uint8) if size else 0)
        started = perf_counter()
        row = {"kernel": metadata.name, "grid": grid, "block": [metadata.num_warps * 32, 1, 1]}
        try:
            driver.report = report = self._kernel.launch(
                grid,
                metadata.num_warps * 32,
                arguments,
                dynamic_shared=metadata.shared,
                memory=driver.memories.of(spans),
                **driver.options,
            )
        except KernelError as error:
            driver.note(row, started, error.findings, error=str(error))
            raise
        driver.note(row, started, report.findings)
        if report.printed:
            sys.stdout.write("".join(report.printed))
            sys.stdout.flush()


def _ptx(source: Any, metadata: Any) -> str:
    """The PTX of a compiled kernel, which Triton's cache has beside its binary."""
    from triton.runtime.cache import get_cache_manager

    name = source.name[:150]
    group = get_cache_manager(metadata.hash).get_group(f"{name}.json") or {}
    path = group.get(f"{name}.ptx")
    if path is None:
        raise UnsupportedError(
            f"{metadata.name}: Triton's cache has no PTX of this kernel; leave "
            "TRITON_STORE_BINARY_ONLY out"
        )
    return Path(path).read_text()
