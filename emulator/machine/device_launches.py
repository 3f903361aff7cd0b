"""Launches that kernels ask for: the functions of CUDA's device runtime (dynamic parallelism).

A grid that a thread launches runs once the thread's own grid has ended; then those that it launched
itself, before the next. Nothing can wait for a grid that it launched, and each stream keeps its
order, so that this is one of the orders that streams allow; what goes to ``cudaStreamTailLaunch``
comes last (CUDA C++ programming guide, "CUDA dynamic parallelism"; names and types:
cuda_device_runtime_api.h of CUDA 13.0). A launch that the device refuses ends nothing: it does not
happen, and the thread is told an error if it asks for one, as on an H200.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from emulator.errors import OperandError
from emulator.machine.failure import Failure
from emulator.machine.place import Index
from emulator.memory.arena import AccessError

if TYPE_CHECKING:
    from emulator.machine.externals import Host
    from emulator.memory.arena import Allocation, Arena

#: grids that are within each other when the next launch fails (measured on an H200)
MOST_NESTED = 2048
#: grids and copies that may wait to run
MOST_WAITING = 1 << 16
#: dynamic and static shared memory of a grid that a kernel launches (measured on an H200)
MOST_SHARED = 48 << 10
#: what runs when all else that the grid launched has ended
_TAIL_STREAMS = (0x3, 0x0100_0000_0000_0000)
#: the first handle of a stream that a kernel makes
_STREAMS = 0x1000
#: cudaError_t -> what cudaGetErrorString says of it
_SUCCESS, _NO_MEMORY, _CONFIGURATION, _PENDING = 0, 2, 9, 69
ERROR_TEXTS = {
    _SUCCESS: "no error",
    _NO_MEMORY: "out of memory",
    _CONFIGURATION: "invalid configuration argument",
    _PENDING: "launch failed because launch would exceed cudaLimitDevRuntimePendingLaunchCount",
}


class GridRequest(NamedTuple):
    """A grid that a thread may launch: its buffer holds so many bytes of parameters."""

    kernel: str
    grid: Index
    block: Index
    shared: int
    buffer: Allocation
    parameter_bytes: int


class Copy(NamedTuple):
    """A copy within global memory that a thread has asked for; of a memset `value` is the byte."""

    to: int
    size: int
    source: int | None
    value: int = 0

    def carry_out(self, arena: Arena) -> None:
        """Copies; raises Failure where it would leave an allocation."""
        if not self.size:
            return
        try:
            to = np.array([self.to], np.uint64)
            arena.locate_bytes(to, min(self.size, 1 << 40), write=True)
            if self.source is None:
                row = np.full((1, self.size), self.value, np.uint8)
            else:
                row = arena.read_rows(np.array([self.source]), self.size)
            arena.write_rows(to.view(np.int64), row)
        except AccessError as error:
            raise Failure(error.fault.kind, f"a copy that a kernel asked for: {error}") from None


class Parent(Protocol):
    """The launch whose threads launch others."""

    arena: Arena

    def kernel_at(self, address: int) -> tuple[str, int] | None:
        """The kernel at an address: its name, and the bytes of its parameters."""

    def launch_of(self, request: GridRequest) -> Any:
        """The launch; raises OperandError for one that cannot be."""


class DeviceLaunches:
    """What the threads of one grid have asked for, in order."""

    def __init__(self, parent: Parent, depth: int = 1) -> None:
        self._parent = parent
        #: grids that are within each other here
        self.depth = depth
        self._buffers: dict[int, GridRequest] = {}
        self._asked: list[Any] = []
        self._last: list[Any] = []
        self._streams = 0
        #: the last error of each thread
        self._errors: dict[Any, int] = {}
        self._texts: dict[int, int] = {}

    def take(self) -> Iterator[Any]:
        """Launches and copies to carry out now that the grid has ended, in order."""
        yield from self._asked
        yield from self._last

    def buffer(self, address: int, grid: Index, block: Index, shared: int) -> int:
        """Memory for the parameters of the kernel at an address; its address."""
        found = self._parent.kernel_at(address)
        if found is None:
            raise Failure("launch", f"no kernel of this module is at address {address:#x}")
        name, size = found
        self._check_room()
        made = self._parent.arena.allocate(f"parameters of a launch of {name}", max(1, size))
        self._buffers[made.address] = GridRequest(name, grid, block, shared, made, size)
        return made.address

    def launch(self, buffer: int, stream: int) -> int:
        """Takes a launch whose parameters stand in a buffer; what error that is."""
        request = self._buffers.pop(buffer, None)
        if request is None:
            raise Failure("launch", f"{buffer:#x} is no buffer of parameters, or was launched")
        if self.depth >= MOST_NESTED:
            return _PENDING
        try:
            self.add(self._parent.launch_of(request), stream)
        except OperandError:
            return _CONFIGURATION
        return _SUCCESS

    def add(self, work: Any, stream: int) -> None:
        self._check_room()
        (self._last if stream in _TAIL_STREAMS else self._asked).append(work)

    def _check_room(self) -> None:
        if len(self._asked) + len(self._last) + len(self._buffers) >= MOST_WAITING:
            raise Failure("launch", f"more than {MOST_WAITING} launches of one grid wait")

    def stream(self) -> int:
        """The handle of a new stream."""
        self._streams += 1
        return _STREAMS + self._streams

    # --- errors ---

    def told(self, thread: Any, error: int) -> int:
        """The error, which is the thread's last one if it is any."""
        if error:
            self._errors[thread] = error
        return error

    def last_error(self, thread: Any, *, forget: bool) -> int:
        found = self._errors.get(thread, _SUCCESS)
        if forget:
            self._errors.pop(thread, None)
        return found

    def text(self, error: int) -> int:
        """The address of what an error is called."""
        if error not in self._texts:
            raw = ERROR_TEXTS.get(error, "unrecognized error code").encode() + b"\0"
            made = self._parent.arena.allocate(
                f"text of error {error}", len(raw), contents=np.frombuffer(raw, np.uint8)
            )
            self._texts[error] = made.address
        return self._texts[error]


# --- the functions --------------------------------------------------------------------------------


def _sizes(argument: int) -> Index:
    """The three words of a dim3."""
    x, y, z = ((argument >> 32 * i) & 0xFFFF_FFFF for i in range(3))
    return x, y, z


def parameter_buffer(host: Host, arguments: Sequence[int]) -> int:
    """(kernel, grid, block, bytes of dynamic shared memory) -> a buffer for its parameters."""
    kernel, grid, block, shared = arguments
    return host.launches.buffer(kernel, _sizes(grid), _sizes(block), shared)


def launch_device(host: Host, arguments: Sequence[int]) -> int:
    """(buffer, stream)"""
    return host.launches.told(host.thread_id, host.launches.launch(*arguments))


def stream_create(host: Host, arguments: Sequence[int]) -> int:
    """(where its handle goes, flags)"""
    host.write(arguments[0], host.launches.stream().to_bytes(8, "little"))
    return _SUCCESS


def stream_destroy(host: Host, arguments: Sequence[int]) -> int:
    """(stream): what was launched into it runs all the same."""
    return _SUCCESS


def allocate(host: Host, arguments: Sequence[int]) -> int:
    """(where the address goes, bytes)"""
    address = host.heap.allocate(arguments[1])
    host.write(arguments[0], address.to_bytes(8, "little"))
    return host.launches.told(host.thread_id, _SUCCESS if address else _NO_MEMORY)


def release(host: Host, arguments: Sequence[int]) -> int:
    """(address)"""
    if arguments[0]:
        host.heap.free(arguments[0])
    return _SUCCESS


def copy(host: Host, arguments: Sequence[int]) -> int:
    """(to, from, bytes, kind, stream)"""
    to, source, size, _, stream = arguments
    host.launches.add(Copy(to, size, source), stream)
    return _SUCCESS


def fill(host: Host, arguments: Sequence[int]) -> int:
    """(to, byte, bytes, stream)"""
    to, value, size, stream = arguments
    host.launches.add(Copy(to, size, None, value & 0xFF), stream)
    return _SUCCESS


def get_last_error(host: Host, arguments: Sequence[int]) -> int:
    return host.launches.last_error(host.thread_id, forget=True)


def peek_at_last_error(host: Host, arguments: Sequence[int]) -> int:
    return host.launches.last_error(host.thread_id, forget=False)


def error_string(host: Host, arguments: Sequence[int]) -> int:
    """(error) -> the address of a text"""
    return host.launches.text(arguments[0])


DEVICE_RUNTIME: dict[str, Callable[[Host, Sequence[int]], int]] = {
    "__cudaCDP2GetParameterBufferV2": parameter_buffer,
    "__cudaCDP2LaunchDeviceV2": launch_device,
    "__cudaCDP2LaunchDeviceV2_ptsz": launch_device,
    "__cudaCDP2StreamCreateWithFlags": stream_create,
    "__cudaCDP2StreamDestroy": stream_destroy,
    "__cudaCDP2Malloc": allocate,
    "__cudaCDP2Free": release,
    "__cudaCDP2MemcpyAsync": copy,
    "__cudaCDP2MemcpyAsync_ptsz": copy,
    "__cudaCDP2MemsetAsync": fill,
    "__cudaCDP2MemsetAsync_ptsz": fill,
    "__cudaCDP2GetLastError": get_last_error,
    "__cudaCDP2PeekAtLastError": peek_at_last_error,
    "__cudaCDP2GetErrorString": error_string,
}
