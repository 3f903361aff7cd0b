"""Virtual memory: reserved addresses, physical memory, and mappings of one to the other."""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
from dataclasses import dataclass

from emulator.adapters.cuda.calls import (
    DRIVER,
    Code,
    CudaError,
    driver,
    handles,
    present,
    put,
    refuse_if,
)
from emulator.adapters.cuda.driver.devices import space
from emulator.adapters.cuda.shared import map_at

#: CUmemAllocationHandleType of a file descriptor
FILE_DESCRIPTOR = 1
#: as on an H100
_GRANULARITY = 2 << 20
#: bytes of a CUmemAllocationProp
_PROPERTIES = 32
_NONE, _SHARED_FIXED, _PRIVATE_FIXED = 0, mmap.MAP_SHARED | 0x10, mmap.MAP_PRIVATE | 0x30


class Physical:
    """Physical memory: a file in memory, which lives while it is mapped."""

    def __init__(self, size: int, properties: bytes, file: int | None = None) -> None:
        self.size, self.properties = size, properties
        if file is None:
            file = os.memfd_create("emulator")
            os.ftruncate(file, size)
        self.file = file
        space().used += size

    def __del__(self) -> None:
        os.close(self.file)
        space().used -= self.size


@dataclass
class Reservation:
    """Addresses of a program: bytes, and what is mapped, by address."""

    size: int
    mapped: dict[int, Physical]


_reserved: dict[int, Reservation] = {}


def _around(address: int, size: int) -> Reservation:
    """The reservation that has these addresses; raises CudaError where none has."""
    for start, found in _reserved.items():
        if start <= address and address + size <= start + found.size:
            return found
    raise CudaError(Code.INVALID_VALUE)


def _whole(*sizes: int) -> None:
    refuse_if(any(size % _GRANULARITY for size in sizes))


def check_shareable(kind: int) -> None:
    """Raises CudaError for a kind of handle that is not modelled."""
    refuse_if(kind != FILE_DESCRIPTOR, Code.NOT_SUPPORTED)


def imported(shared: int, kind: int) -> int:
    """A file of another process, opened. Raises CudaError where there is none."""
    check_shareable(kind)
    try:
        return os.dup(shared)
    except OSError:
        raise CudaError(Code.INVALID_VALUE) from None


@driver("cuMemAddressReserve")
def reserve(out: int, size: int, alignment: int, wanted: int, flags: int) -> None:
    _whole(size, alignment)
    refuse_if(not size)
    # Room for an aligned start; what is left over costs addresses, no memory.
    step = max(alignment, _GRANULARITY)
    at = -(-map_at(0, size + step, _NONE, mmap.MAP_PRIVATE | 0x20, -1, 0) // step) * step
    _reserved[at] = Reservation(size, {})
    put(out, "Q", at)


@driver("cuMemAddressFree")
def free_addresses(address: int, size: int) -> None:
    found = present(_reserved.get(address))
    refuse_if(found.size != size or found.mapped)
    del _reserved[address]


@driver("cuMemCreate")
def create(out: int, size: int, properties: int, flags: int) -> None:
    _whole(size)
    refuse_if(not size or not properties)
    refuse_if(space().used + size > space().total, Code.OUT_OF_MEMORY)
    put(out, "Q", handles.add(Physical(size, ctypes.string_at(properties, _PROPERTIES))))


@driver("cuMemExportToShareableHandle")
def export(out: int, handle: int, kind: int, flags: int) -> None:
    check_shareable(kind)
    put(out, "i", os.dup(handles.find(handle, Physical).file))


@driver("cuMemImportFromShareableHandle")
def import_from(out: int, shared: int, kind: int) -> None:
    file = imported(shared, kind)
    # What was exported is memory of this device.
    properties = struct.pack("<IIII", 1, kind, 1, 0).ljust(_PROPERTIES, b"\0")
    put(out, "Q", handles.add(Physical(os.fstat(file).st_size, properties, file)))


@driver("cuMemRetainAllocationHandle")
def retain(out: int, address: int) -> None:
    mapped = _around(address, 1).mapped.items()
    found = present(next((x for at, x in mapped if at <= address < at + x.size), None))
    put(out, "Q", handles.add(found))


@driver("cuMemMap")
def map_memory(address: int, size: int, offset: int, handle: int, flags: int) -> None:
    found, physical = _around(address, size), handles.find(handle, Physical)
    _whole(address, size, offset)
    taken = any(address < at + x.size and at < address + size for at, x in found.mapped.items())
    refuse_if(taken or offset + size > physical.size)
    writable = mmap.PROT_READ | mmap.PROT_WRITE
    map_at(address, size, writable, _SHARED_FIXED, physical.file, offset)
    found.mapped[address] = physical


@driver("cuMemSetAccess")
def set_access(address: int, size: int, descriptions: int, count: int) -> None:
    found = _around(address, size)
    inside = sum(x.size for at, x in found.mapped.items() if address <= at < address + size)
    refuse_if(inside < size)
    if space().find(address) is None:
        space().map(address, size)


@driver("cuMemUnmap")
def unmap(address: int, size: int) -> None:
    found = _around(address, size)
    for at in [at for at in found.mapped if address <= at < address + size]:
        if space().find(at) is not None:
            space().release(at, "mapped")
        del found.mapped[at]
    map_at(address, size, _NONE, _PRIVATE_FIXED, -1, 0)


DRIVER |= {
    "cuMemGetAllocationGranularity": lambda out, properties, which: put(out, "Q", _GRANULARITY),
    "cuMemRelease": lambda handle: handles.end(handle, Physical),
    "cuMemGetAllocationPropertiesFromHandle": lambda out, handle: put(
        out, f"{_PROPERTIES}s", handles.find(handle, Physical).properties
    ),
}
