"""Launches and occupancy."""

from __future__ import annotations

import ctypes
import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import Any, ClassVar

from emulator.adapters.cuda.calls import DRIVER, Code, CudaError, driver, get, put, refuse_if
from emulator.adapters.cuda.chips import attributes, processor, target
from emulator.adapters.cuda.driver.devices import check_error, device, space
from emulator.adapters.cuda.driver.modules import MOST_DYNAMIC, Function, complain, function_of
from emulator.adapters.cuda.driver.nodes import Kind, Work
from emulator.adapters.cuda.driver.streams import submit
from emulator.adapters.cuda.settings import settings
from emulator.adapters.cuda.tables import Implementation
from emulator.errors import OperandError, UnsupportedError
from emulator.machine.report import KernelError, Report

Sizes = Sequence[int]
#: the kernel of a handle, or of what stands for one
Find = Callable[[int], Function]
#: kind of a KernelError -> the code that a GPU gives; any other is a failed launch
_CODES = {
    "out of bounds": 700, "use after free": 700, "read-only": 700, "misaligned": 716, "trap": 719,
    "assertion": 710, "step limit": 702,
}  # fmt: skip
#: CUlaunchAttributeID of the shape of a cluster
_CLUSTER = 4
_libc = ctypes.CDLL(None)


def launch(
    function: Function,
    sizes: Sequence[int],
    shared: int,
    stream: int,
    raw: Sequence[bytes],
    cluster: Sizes | None = None,
) -> None:
    """Runs a kernel in a stream, or captures it; `sizes` are those of the grid and of a block."""
    check_error()
    submit(stream, Launch(function, sizes[:3], sizes[3:], shared, raw, cluster))


@dataclass
class Launch(Work):
    """A launch of a kernel. Raises CudaError for sizes that cannot be."""

    kind: ClassVar[Kind] = Kind.KERNEL
    function: Function
    grid: Sizes
    block: Sizes
    shared: int
    raw: Sequence[bytes]
    cluster: Sizes | None = None

    def __post_init__(self) -> None:
        function, limit = self.function, attributes()
        threads = math.prod(self.block)
        fits = all(0 < n <= limit[2 + i] for i, n in enumerate(self.block)) and all(
            0 < n <= limit[5 + i] for i, n in enumerate(self.grid)
        )
        most = function.set[MOST_DYNAMIC]
        refuse_if(not fits or not 0 < threads <= function.attribute(0) or self.shared > most)

    @cached_property
    def _pointers(self) -> tuple[Any, ...]:
        """A list of pointers to the parameters, and what they point to."""
        held = [ctypes.create_string_buffer(one, len(one)) for one in self.raw]
        places = (ctypes.addressof(one) for one in held)
        return (ctypes.c_uint64 * max(1, len(held)))(*places), held

    def write(self, at: int) -> None:
        handle = self.function.loaded.function(self.function.name)
        pointers = ctypes.addressof(self._pointers[0])
        put(at, "Q7I4xQQ", handle, *self.grid, *self.block, self.shared, pointers, 0)
        put(at + 56, "QQ", handle, 0)

    def run(self) -> None:
        given, function = settings(), self.function
        row: dict[str, object] = {
            "kernel": function.name, "grid": self.grid, "block": self.block
        }  # fmt: skip
        started = time.perf_counter()
        try:
            report = function.kernel.launch(
                self.grid,
                self.block,
                self.raw,
                self.shared,
                self.cluster,
                check=given.check,
                memory=space().memory,
                step_limit=given.step_limit,
                progress=_shown_progress(function.name) if _on_terminal() else None,
            )
        except KernelError as error:
            device.failed = _CODES.get(error.kind, Code.LAUNCH_FAILED)
            row["findings"] = [str(finding) for finding in error.findings]
            given.write(**row, seconds=_since(started), error=str(error))
            _say(f"emulator: kernel {function.name}: {error}\n", 2)
            return
        except UnsupportedError as error:
            complain(f"kernel {function.name} cannot run", error)
            raise CudaError(Code.NOT_SUPPORTED) from None
        except OperandError as error:
            complain(f"kernel {function.name} cannot be launched", error)
            raise CudaError(Code.INVALID_VALUE) from None
        except MemoryError:
            raise CudaError(Code.OUT_OF_MEMORY) from None
        _report(report, row, started)


@cache
def _on_terminal() -> bool:
    return os.isatty(2)


def _shown_progress(name: str) -> Callable[[int, int], None]:
    """Shows on the terminal how far a launch is that takes longer than a second."""
    started, shown = time.perf_counter(), False

    def show(done: int, total: int) -> None:
        nonlocal shown
        if done < total and time.perf_counter() - started > 1:
            shown = True
            os.write(2, f"\r{name[:40]}: {done:,} of {total:,} blocks\033[K".encode())
        elif shown:
            os.write(2, b"\r\033[K")

    return show


def _report(report: Report, row: dict[str, object], started: float) -> None:
    given = settings()
    if given.log:
        findings = [str(finding) for finding in report.findings]
        given.write(**row, seconds=_since(started), findings=findings)
    if report.printed:
        _say("".join(report.printed), 1)


def _since(started: float) -> float:
    return round(time.perf_counter() - started, 6)


def _say(text: str, stream: int) -> None:
    """Writes to a stream of the process, behind what the program has written so far."""
    for held in (sys.stdout, sys.stderr):
        if held is not None:
            held.flush()
    _libc.fflush(None)
    data = text.encode()
    while data:
        data = data[os.write(stream, data) :]


def arguments(function: Function, pointers: int, extra: int = 0) -> list[bytes]:
    """The bytes of each parameter, from a list of pointers or from one buffer."""
    parameters = function.kernel.parameters
    if not parameters:
        return []
    if pointers:
        places = get(pointers, f"{len(parameters)}Q")
        return [ctypes.string_at(at, p.bytes) for at, p in zip(places, parameters, strict=True)]
    refuse_if(not extra)
    buffer = size = 0
    while (key := get(extra, "Q")[0]) != 0:
        (value,) = get(extra + 8, "Q")
        if key == 1:
            buffer = value
        elif key == 2:
            (size,) = get(value, "Q")
        extra += 16
    refuse_if(not buffer or size < max(p.offset + p.bytes for p in parameters))
    return [ctypes.string_at(buffer + p.offset, p.bytes) for p in parameters]


@driver("cuLaunchKernel")
def launch_kernel(function: int, *words: int) -> None:
    *sizes, shared, stream, pointers, extra = words
    found = function_of(function)
    launch(found, sizes, shared, stream, arguments(found, pointers, extra))


@driver("cuLaunchCooperativeKernel")
def launch_cooperative(function: int, *words: int) -> None:
    check_cooperative(function_of(function), words[:6], words[6])
    launch_kernel(function, *words, 0)


def check_cooperative(function: Function, sizes: Sequence[int], shared: int) -> None:
    """Raises CudaError where not all blocks of a grid are on the GPU together."""
    per = resident_blocks(function, math.prod(sizes[3:]), shared)
    refuse_if(math.prod(sizes[:3]) > per * attributes()[16], Code.COOPERATIVE_LAUNCH_TOO_LARGE)


def cluster_shape(attached: int, count: int) -> Sizes | None:
    """The shape of a cluster among the attributes of a launch."""
    for i in range(count):
        # An attribute is 8 bytes of its kind and 64 of its value.
        kind, x, y, z = get(attached + 72 * i, "I4x3I")
        if kind == _CLUSTER:
            return x, y, z
    return None


def launch_configured(
    form: str, find: Find, configuration: int, function: int, pointers: int, extra: int = 0
) -> None:
    """Launches as a structure of a form says: the sizes, then shared memory, stream, attributes."""
    *sizes, shared, stream, attached, count = get(configuration, form)
    found, cluster = find(function), cluster_shape(attached, count)
    launch(found, sizes, shared, stream, arguments(found, pointers, extra), cluster)


driver("cuLaunchKernelEx")(partial(launch_configured, "7I4xQQI4x", function_of))


# --- occupancy ------------------------------------------------------------------------------------


def resident_blocks(function: Function, threads: int, dynamic: int) -> int:
    """Blocks that a multiprocessor holds together, if a thread has 32 registers."""
    if not 0 < threads <= 1024:
        return 0
    one, warps = processor(), -(-threads // 32)
    shared = function.static_shared + dynamic + target().reserved_shared
    by_shared = (one.shared_kib << 10) // shared if shared else one.blocks
    by_registers = 65536 // (warps * 32 * 32)
    return min(one.threads // (warps * 32), one.blocks, by_shared, by_registers)


@driver("cuOccupancyMaxPotentialBlockSize", "cuOccupancyMaxPotentialBlockSizeWithFlags")
def best_block(
    grid: int, block: int, function: int, size_of: int, dynamic: int, limit: int, flags: int = 0
) -> None:
    found = function_of(function)
    shared = ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_int)(size_of) if size_of else None
    most = min(limit or 1024, found.attribute(0))
    best = (0, 0, 0)
    for threads in range(32, most + 1, 32):
        per = resident_blocks(found, threads, shared(threads) if shared else dynamic)
        best = max(best, (per * threads, threads, per))
    put(grid, "i", best[2] * attributes()[16])
    put(block, "i", best[1])


def occupancy_functions(prefix: str, find: Find) -> dict[str, Implementation]:
    """The functions by which one interface tells of occupancy."""

    def blocks(out: int, function: int, threads: int, dynamic: int, flags: int = 0) -> None:
        put(out, "i", resident_blocks(find(function), threads, dynamic))

    def available(out: int, function: int, count: int, threads: int) -> None:
        found = find(function)
        share = (processor().shared_kib << 10) // max(1, count) - target().reserved_shared
        most = min(target().shared_limit, found.static_shared + found.set[MOST_DYNAMIC])
        put(out, "Q", max(0, min(share, most) - found.static_shared))

    def clusters(out: int, function: int, configuration: int) -> None:
        put(out, "i", 8)

    rows: dict[str, Implementation] = {
        "MaxActiveBlocksPerMultiprocessor": blocks,
        "MaxActiveBlocksPerMultiprocessorWithFlags": blocks,
        "AvailableDynamicSMemPerBlock": available,
        "MaxPotentialClusterSize": clusters, "MaxActiveClusters": clusters,
    }  # fmt: skip
    return {f"{prefix}Occupancy{name}": function for name, function in rows.items()}


DRIVER |= occupancy_functions("cu", function_of)
