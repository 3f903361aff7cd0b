"""Memory that programs allocate: device pointers are addresses of this process's own memory."""

from __future__ import annotations

import bisect
import ctypes
import mmap
from dataclasses import dataclass
from typing import Literal

import numpy as np

from dtypes import Array
from emulator.adapters.cuda.calls import INVALID_VALUE, OUT_OF_MEMORY, CudaError
from emulator.machine.arguments import Memory

Kind = Literal["device", "managed", "host", "registered", "variable"]


@dataclass(eq=False)
class Buffer:
    """Bytes at an address that programs know."""

    address: int
    array: Array
    kind: Kind
    #: the mapping that holds the bytes; None: somebody else does
    mapping: mmap.mmap | None = None
    name: str = ""
    #: the module of a variable
    owner: object = None

    @property
    def size(self) -> int:
        return self.array.nbytes


class Space:
    """The memory of the GPU, with the host's memory that it may use."""

    def __init__(self, total: int) -> None:
        self.total, self.used = total, 0
        self._starts: list[int] = []
        self._buffers: dict[int, Buffer] = {}

    def allocate(self, size: int, kind: Kind) -> int:
        """The address of new bytes, which are zero."""
        if size <= 0:
            raise CudaError(INVALID_VALUE)
        if self.used + size > self.total:
            raise CudaError(OUT_OF_MEMORY)
        try:
            mapping = mmap.mmap(-1, size)
        except (OSError, OverflowError, ValueError):
            raise CudaError(OUT_OF_MEMORY) from None
        array = np.frombuffer(mapping, np.uint8)
        self.used += size
        return self._add(Buffer(array.ctypes.data, array, kind, mapping))

    def register(self, address: int, size: int) -> None:
        """Lets kernels use memory of the program's own."""
        if not address or size <= 0 or self.find(address) is not None:
            raise CudaError(712 if address and size > 0 else INVALID_VALUE)
        self._add(Buffer(address, _view(address, size), "registered"))

    def add_variable(self, address: int, array: Array, name: str, owner: object) -> None:
        """Adds a variable of a module."""
        if array.nbytes:
            self._add(Buffer(address, array, "variable", None, name, owner))

    def _add(self, buffer: Buffer) -> int:
        bisect.insort(self._starts, buffer.address)
        self._buffers[buffer.address] = buffer
        return buffer.address

    def release(self, address: int, *kinds: Kind) -> None:
        """Frees what starts at an address; raises CudaError where nothing of the kinds does."""
        buffer = self._buffers.get(address)
        if buffer is None or buffer.kind not in kinds:
            raise CudaError(INVALID_VALUE)
        del self._buffers[address]
        self._starts.remove(address)
        if buffer.mapping is not None:
            self.used -= buffer.size

    def find(self, address: int) -> Buffer | None:
        """The buffer that holds an address."""
        at = bisect.bisect_right(self._starts, address) - 1
        if at < 0:
            return None
        buffer = self._buffers[self._starts[at]]
        return buffer if address < buffer.address + buffer.size else None

    def host(self, address: int, size: int, *, device: bool = False) -> int:
        """The address in this process of bytes that a program names; with `device` they must be
        the GPU's. Raises CudaError where they reach beyond a buffer."""
        buffer = self.find(address)
        if buffer is None:
            if device and size:
                raise CudaError(INVALID_VALUE)
            return address
        offset = address - buffer.address
        if offset + size > buffer.size:
            raise CudaError(INVALID_VALUE)
        return buffer.array.ctypes.data + offset if buffer.kind == "variable" else address

    def bytes_at(self, address: int, size: int) -> Array:
        """Bytes of the GPU, to be written."""
        return _view(self.host(address, size, device=True), size)

    def memory_for(self, module: object) -> Memory:
        """Memory that a launch can reach, apart from the variables of its own module."""
        made = Memory()
        made.arrays = [
            (b.address, b.array, b.name or f"the memory at {b.address:#x}")
            for b in self._buffers.values() if b.owner is not module or module is None
        ]  # fmt: skip
        return made

    def forget(self, module: object) -> None:
        """Removes the variables of a module."""
        for buffer in [b for b in self._buffers.values() if b.owner is module]:
            self.release(buffer.address, "variable")


def _view(address: int, size: int) -> Array:
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))
