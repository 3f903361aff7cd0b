"""Memory and events of one process in another: handles, and pools that are exported."""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass

from emulator.adapters.cuda.calls import (
    Code,
    CudaError,
    driver,
    get,
    handles,
    present,
    put,
    refuse_if,
)
from emulator.adapters.cuda.driver.devices import space
from emulator.adapters.cuda.driver.memory import Pool
from emulator.adapters.cuda.driver.streams import INTERPROCESS, WITHOUT_TIMES, Event
from emulator.adapters.cuda.driver.virtual import check_shareable, imported
from emulator.adapters.cuda.shared import mapped, opened

#: the 64 bytes of a handle: what it is of, process, file, offset and bytes
_HANDLE = struct.Struct("<4sIIQQ")
_MEMORY, _EVENT = b"mem.", b"ev.."


@dataclass
class _Opened:
    """Memory of another process that was opened, and how often."""

    address: int
    count: int


_opened: dict[bytes, _Opened] = {}


@driver("cuIpcGetMemHandle")
def memory_handle(out: int, address: int) -> None:
    found = present(space().find(address))
    refuse_if(found.kind != "device")
    at = _HANDLE.pack(
        _MEMORY, os.getpid(), space().file.file, space().offset(found.address), found.size
    )
    put(out, "64s", at)


@driver("cuIpcOpenMemHandle", "cuIpcOpenMemHandle_v2")
def open_memory(out: int, handle: bytes, flags: int) -> None:
    kind, process, file, offset, size = _HANDLE.unpack_from(handle)
    refuse_if(kind != _MEMORY or not size)
    refuse_if(process == os.getpid(), Code.INVALID_CONTEXT)
    if handle not in _opened:
        taken = opened(process, file)
        try:
            array = mapped(taken, offset, size)
        finally:
            os.close(taken)
        _opened[handle] = _Opened(space().import_(array, offset), 0)
    _opened[handle].count += 1
    put(out, "Q", _opened[handle].address)


@driver("cuIpcCloseMemHandle")
def close_memory(address: int) -> None:
    for handle, found in _opened.items():
        if found.address == address:
            found.count -= 1
            if not found.count:
                del _opened[handle]
                space().release(address, "imported")
            return
    raise CudaError(Code.INVALID_VALUE)


@driver("cuIpcGetEventHandle")
def event_handle(out: int, event: int) -> None:
    refuse_if(not handles.find(event, Event).flags & INTERPROCESS, Code.INVALID_HANDLE)
    put(out, "64s", _HANDLE.pack(_EVENT, os.getpid(), event, 0, 0))


@driver("cuIpcOpenEventHandle")
def open_event(out: int, handle: bytes) -> None:
    # What the event waits for has happened when the other process's call has returned.
    kind, process, *_ = _HANDLE.unpack_from(handle)
    refuse_if(kind != _EVENT)
    refuse_if(process == os.getpid(), Code.INVALID_CONTEXT)
    put(out, "Q", handles.add(Event(INTERPROCESS | WITHOUT_TIMES)))


# --- pools ----------------------------------------------------------------------------------------


@dataclass(eq=False)
class ImportedPool(Pool):
    """A pool of another process: its file."""

    file: int

    def __del__(self) -> None:
        os.close(self.file)


@driver("cuMemPoolExportToShareableHandle")
def export_pool(out: int, pool: int, kind: int, flags: int) -> None:
    found = handles.find(pool, Pool)
    check_shareable(kind)
    refuse_if(not found.is_shared or isinstance(found, ImportedPool))
    put(out, "i", os.dup(space().file.file))


@driver("cuMemPoolImportFromShareableHandle")
def import_pool(out: int, shared: int, kind: int, flags: int) -> None:
    file = imported(shared, kind)
    put(out, "Q", handles.add(ImportedPool(struct.pack("<IIII", 1, kind, 1, 0), file)))


@driver("cuMemPoolExportPointer")
def export_pointer(out: int, address: int) -> None:
    found = present(space().find(address))
    put(out, "64s", struct.pack("<QQ", space().offset(found.address), found.size))


@driver("cuMemPoolImportPointer")
def import_pointer(out: int, pool: int, data: int) -> None:
    offset, size = get(data, "QQ")
    found = handles.find(pool, ImportedPool)
    refuse_if(not size)
    put(out, "Q", space().import_(mapped(found.file, offset, size), offset))
