"""System around a kernel: launches that kernels ask for (dynamic parallelism), what waits to run,
and in which order.

A grid that a thread launches runs once the thread's own grid has ended; then those that it launched
itself, before the next. Nothing can wait for a grid that it launched, and each stream keeps its
order, so that this is one of the orders that streams allow; what goes to ``cudaStreamTailLaunch``
comes last (CUDA C++ programming guide, "CUDA dynamic parallelism"; names and types:
cuda_device_runtime_api.h of CUDA 13.0). A launch that the device refuses ends nothing: it does not
happen, and the thread is told an error if it asks for one, as on an H200.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from weakref import ref

import numpy as np

from emulator.errors import OperandError
from emulator.machine.shared.failure import Failure
from emulator.machine.shared.place import Index
from emulator.memory.arena import AccessError

if TYPE_CHECKING:
    from emulator.memory.allocation import Allocation
    from emulator.memory.arena import Arena

#: grids that are within each other when the next launch fails (measured on an H200)
MOST_NESTED = 2048
#: grids and copies that may wait to run
MOST_WAITING = 1 << 16
#: grids that are run without a limit of statements
MOST_GRIDS = 1 << 16
#: dynamic and static shared memory of a grid that a kernel launches (measured on an H200)
MOST_SHARED = 48 << 10
#: streams of launches that run when all others of the grid have ended
_TAIL_STREAMS = (0x3, 0x0100_0000_0000_0000)
#: the first handle of a stream that a kernel makes
_STREAMS = 0x1000
#: cudaError_t -> what cudaGetErrorString says of it
SUCCESS, NO_MEMORY, CONFIGURATION, PENDING = 0, 2, 9, 69
ERROR_TEXTS = {
    SUCCESS: "no error",
    NO_MEMORY: "out of memory",
    CONFIGURATION: "invalid configuration argument",
    PENDING: "launch failed because launch would exceed cudaLimitDevRuntimePendingLaunchCount",
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
            arena.bytes(to, min(self.size, 1 << 40), True)
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

    def launch_of(self, request: GridRequest) -> object:
        """The launch; raises OperandError for one that cannot be."""


class DeviceLaunches:
    """The launches that the threads of one grid ask for, in order."""

    def __init__(self, parent: Parent, depth: int = 1) -> None:
        # The launch holds this, and neither is to wait for Python's collector.
        self._reference = ref(parent)
        #: grids that are within each other here
        self.depth = depth
        self._buffers: dict[int, GridRequest] = {}
        self._asked: list[object] = []
        self._last: list[object] = []
        self._streams = 0
        #: the last error of each thread
        self._errors: dict[Hashable, int] = {}
        self._texts: dict[int, int] = {}

    @property
    def _parent(self) -> Parent:
        parent = self._reference()
        assert parent is not None, "a launch outlives what its threads ask for"
        return parent

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
            return PENDING
        try:
            self.add(self._parent.launch_of(request), stream)
        except OperandError:
            return CONFIGURATION
        return SUCCESS

    def add(self, work: object, stream: int) -> None:
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

    def told(self, thread: Hashable, error: int) -> int:
        """The error, which is the thread's last one if it is any."""
        if error:
            self._errors[thread] = error
        return error

    def last_error(self, thread: Hashable, *, forget: bool) -> int:
        found = self._errors.get(thread, SUCCESS)
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
