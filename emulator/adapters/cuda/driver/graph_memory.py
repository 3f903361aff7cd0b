"""Memory that nodes of graphs allocate and free."""

from __future__ import annotations

import ctypes
import struct
from dataclasses import dataclass

from dtypes import Array
from emulator.adapters.cuda.calls import Code, CudaError, driver, get, present, put, refuse_if
from emulator.adapters.cuda.driver.devices import check_device, space
from emulator.adapters.cuda.driver.nodes import Kind, Work
from emulator.adapters.cuda.space import Kind as MemoryKind

#: bytes of a CUmemPoolProps
POOL_BYTES = 88
#: of a CUDA_MEM_ALLOC_NODE_PARAMS, where behind a CUmemPoolProps the size and the address are
_SIZE, _ADDRESS = 104, 112
#: CUmemAllocationType of managed memory, CUmemLocationType of the device
_MANAGED, _ON_DEVICE = 2, 1


def kind_of_pool(pool: bytes) -> MemoryKind:
    """The kind of memory that a CUmemPoolProps asks for."""
    allocation, _, location, _ = struct.unpack_from("<IIII", pool)
    if allocation == _MANAGED:
        return "managed"
    return "device" if location == _ON_DEVICE else "host"


@dataclass(eq=False)
class Block:
    """Memory that nodes of graphs allocate and free, always at the same address."""

    array: Array
    #: the CUmemPoolProps that it is of
    pool: bytes
    #: the stream whose launch has allocated it; None: it is not allocated
    stream: int | None = None

    @property
    def address(self) -> int:
        return int(self.array.ctypes.data)

    @property
    def size(self) -> int:
        return self.array.nbytes

    def begin(self) -> None:
        """Allocates it. Raises CudaError where it is allocated already."""
        refuse_if(self.stream is not None)
        space().place(self.array, kind_of_pool(self.pool))
        self.stream = graph_memory.stream
        graph_memory.take(self.size)

    def end(self) -> None:
        """Frees it. Raises CudaError where it is not allocated."""
        if self.stream is None:
            raise CudaError(Code.INVALID_VALUE)
        space().release(self.address, kind_of_pool(self.pool))
        free_bytes = graph_memory.free_bytes
        free_bytes[self.stream] = free_bytes.get(self.stream, 0) + self.size
        self.stream = None


class GraphMemory:
    """The memory of graphs: what one launch frees stays for the next one in the same stream."""

    def __init__(self) -> None:
        self.blocks: dict[int, Block] = {}
        #: of each stream
        self.free_bytes: dict[int, int] = {}
        #: the stream of the launch under way; bytes taken from the device, and at most so far
        self.stream = self.held = self.most = 0

    def block(self, size: int, pool: bytes) -> Block:
        """New memory for an allocation node."""
        made = Block(space().new(size), pool)
        self.blocks[made.address] = made
        return made

    def find(self, address: int) -> Block:
        """The memory at an address; CudaError where no node allocates it."""
        return present(self.blocks.get(address))

    def take(self, size: int) -> None:
        """Counts bytes that are allocated: free ones first."""
        reused = min(size, self.free_bytes.get(self.stream, 0))
        self.free_bytes[self.stream] = self.free_bytes.get(self.stream, 0) - reused
        self.held += size - reused
        self.most = max(self.most, self.held)

    def trim(self) -> None:
        """Gives free bytes back."""
        self.held -= sum(self.free_bytes.values())
        self.free_bytes.clear()


graph_memory = GraphMemory()


class Allocate(Work):
    kind = Kind.MEM_ALLOC

    def __init__(self, block: Block) -> None:
        self.block = block

    @classmethod
    def read(cls, at: int) -> Allocate:
        """The allocation that a CUDA_MEM_ALLOC_NODE_PARAMS asks for; it is told the address."""
        (size,) = get(at + _SIZE, "Q")
        made = cls(graph_memory.block(size, ctypes.string_at(at, POOL_BYTES)))
        put(at + _ADDRESS, "Q", made.block.address)
        return made

    def run(self) -> None:
        self.block.begin()

    def write(self, at: int) -> None:
        ctypes.memmove(at, self.block.pool, POOL_BYTES)
        put(at + POOL_BYTES, "QQQQ", 0, 0, self.block.size, self.block.address)


class Free(Work):
    """Frees what a node has allocated."""

    kind = Kind.MEM_FREE

    def __init__(self, address: int) -> None:
        self.block = graph_memory.find(address)

    def run(self) -> None:
        self.block.end()

    def write(self, at: int) -> None:
        put(at, "Q", self.block.address)


@driver("cuDeviceGetGraphMemAttribute")
def memory_attribute(number: int, which: int, out: int) -> None:
    check_device(number)
    refuse_if(which > 3)
    put(out, "Q", graph_memory.most if which in (1, 3) else graph_memory.held)


@driver("cuDeviceSetGraphMemAttribute")
def set_memory_attribute(number: int, which: int, value: int) -> None:
    check_device(number)
    # The high-water marks alone can be set, to 0.
    refuse_if(which not in (1, 3) or get(value, "Q")[0])
    graph_memory.most = graph_memory.held


@driver("cuDeviceGraphMemTrim")
def memory_trim(number: int) -> None:
    check_device(number)
    graph_memory.trim()
