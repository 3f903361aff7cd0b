"""Memory that programs allocate: device pointers are addresses of this process's own memory."""

from __future__ import annotations

from typing import Literal, NamedTuple

from dtypes import Array
from emulator.adapters.cuda.calls import Code, CudaError, present, refuse_if
from emulator.adapters.cuda.shared import SharedFile, view
from emulator.errors import OperandError
from emulator.machine.memory import Memory
from emulator.memory.arena import ADDRESS_BITS

Kind = Literal["device", "managed", "host", "registered", "mapped", "imported", "variable"]
_ADDRESSES = 1 << ADDRESS_BITS


class Buffer(NamedTuple):
    """Bytes at an address that programs know."""

    address: int
    size: int
    kind: Kind


class Space:
    """The memory of the GPU, with the host's memory that it may use."""

    def __init__(self, total: int) -> None:
        self.total, self.used = total, 0
        #: what kernels see
        self.memory = Memory()
        self.file = SharedFile()
        self._kinds: dict[int, Kind] = {}
        self._offsets: dict[int, int] = {}
        #: what is kept with a buffer until it is freed, by address
        self.notes: dict[int, object] = {}
        #: buffers of the device that nothing refers to any more: they are freed when the next one
        #: is made, as Python may find this out while a launch runs
        self.forgotten: list[int] = []

    def allocate(self, size: int, kind: Kind) -> int:
        """The address of new bytes, which are zero."""
        return self.place(self.new(size), kind)

    def new(self, size: int) -> Array:
        """New bytes, which are zero, and which programs cannot reach yet."""
        refuse_if(size <= 0)
        while self.forgotten:
            self.release(self.forgotten.pop(), "device")
        refuse_if(self.used + size > self.total, Code.OUT_OF_MEMORY)
        array, offset = self.file.new(size)
        self._offsets[int(array.ctypes.data)] = offset
        return array

    def offset(self, address: int) -> int:
        """Where the buffer at an address lies in its file; CudaError where none does."""
        refuse_if(address not in self._offsets or address not in self._kinds)
        return self._offsets[address]

    def import_(self, array: Array, offset: int) -> int:
        """Lets programs reach bytes of another process's file; their address."""
        address = self._add(array, "imported")
        self._offsets[address] = offset
        return address

    def place(self, array: Array, kind: Kind) -> int:
        """Lets programs reach bytes; their address."""
        refuse_if(self.used + array.nbytes > self.total, Code.OUT_OF_MEMORY)
        self.used += array.nbytes
        return self._add(array, kind)

    def register(self, address: int, size: int) -> None:
        """Lets kernels use memory of the program's own."""
        refuse_if(not address or size <= 0)
        try:
            self._add(view(address, size), "registered")
        except OperandError:
            raise CudaError(Code.ALREADY_REGISTERED) from None

    def map(self, address: int, size: int) -> None:
        """Lets kernels use virtual memory, which was counted when it was made."""
        self._add(view(address, size), "mapped")

    def share(self, address: int, size: int) -> int:
        """Lets the program use a variable, too; the address at which kernels and program have
        it."""
        return self._add(self.memory.view(address, size), "managed")

    def _add(self, array: Array, kind: Kind) -> int:
        address = int(array.ctypes.data)
        self.memory.map(address, array, f"the memory at {address:#x}")
        self._kinds[address] = kind
        return address

    def release(self, address: int, *kinds: Kind) -> None:
        """Frees what starts at an address; raises CudaError where nothing of the kinds does."""
        buffer = present(self.find(address))
        refuse_if(buffer.address != address or buffer.kind not in kinds)
        self.memory.free(address)
        self.notes.pop(address, None)
        if self._kinds.pop(address) not in ("registered", "mapped", "imported"):
            self.used -= buffer.size

    def find(self, address: int) -> Buffer | None:
        """The buffer that holds an address."""
        found = self.memory.find(address) if 0 <= address < _ADDRESSES else None
        if found is None:
            return None
        return Buffer(found.address, found.size, self._kinds.get(found.address, "variable"))

    def host(self, address: int, size: int, *, device: bool = False) -> int:
        """The address in this process of bytes that a program names; with `device` they must be
        the GPU's. Raises CudaError at a null pointer and where they reach beyond a buffer."""
        buffer = self.find(address)
        if buffer is None:
            refuse_if(size and (device or not address))
            return address
        refuse_if(address + size > buffer.address + buffer.size)
        return int(self.memory.view(address, size).ctypes.data)

    def bytes_at(self, address: int, size: int) -> Array:
        """Bytes of the GPU, to be written."""
        return view(self.host(address, size, device=True), size)
