"""Memory: device, managed and pinned, pools, copies and fills."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from emulator.adapters.cuda.calls import (
    INVALID_VALUE,
    NOT_SUPPORTED,
    CudaError,
    driver,
    get,
    handles,
    put,
)
from emulator.adapters.cuda.driver.devices import check_device, check_error, device, space
from emulator.adapters.cuda.driver.streams import submit

#: CUmemorytype: where a rectangle of a copy lies
_HOST, _DEVICE, _ARRAY, _UNIFIED = 1, 2, 3, 4
_PITCH = 512


class Pool:
    """A memory pool."""


@driver("cuMemAlloc_v2")
def allocate(out: int, size: int) -> None:
    put(out, "Q", space().allocate(size, "device"))


@driver("cuMemAllocAsync")
def allocate_in_stream(out: int, size: int, stream: int) -> None:
    if size:
        allocate(out, size)
    else:  # which cuMemAlloc refuses
        put(out, "Q", 0)


@driver("cuMemAllocFromPoolAsync")
def allocate_from_pool(out: int, size: int, pool: int, stream: int) -> None:
    handles.find(pool, Pool)
    allocate_in_stream(out, size, stream)


@driver("cuMemAllocPitch_v2")
def allocate_pitch(out: int, pitch: int, width: int, height: int, element: int) -> None:
    row = -(-width // _PITCH) * _PITCH
    put(pitch, "Q", row)
    allocate(out, row * height)


@driver("cuMemAllocManaged")
def allocate_managed(out: int, size: int, flags: int) -> None:
    put(out, "Q", space().allocate(size, "managed"))


@driver("cuMemHostAlloc")
def allocate_host(out: int, size: int, flags: int) -> None:
    put(out, "Q", space().allocate(size, "host"))


@driver("cuMemAllocHost_v2")
def allocate_host_old(out: int, size: int) -> None:
    allocate_host(out, size, 0)


@driver("cuMemFree_v2")
def free(address: int) -> None:
    if address:
        space().release(address, "device", "managed")


@driver("cuMemFreeAsync")
def free_in_stream(address: int, stream: int) -> None:
    free(address)


@driver("cuMemFreeHost")
def free_host(address: int) -> None:
    if address:
        space().release(address, "host")


@driver("cuMemHostRegister_v2")
def register(address: int, size: int, flags: int) -> None:
    space().register(address, size)


@driver("cuMemHostUnregister")
def unregister(address: int) -> None:
    space().release(address, "registered")


@driver("cuMemHostGetDevicePointer_v2")
def host_pointer(out: int, address: int, flags: int) -> None:
    if space().find(address) is None:
        raise CudaError(INVALID_VALUE)
    put(out, "Q", address)


@driver("cuMemHostGetFlags")
def host_flags(out: int, address: int) -> None:
    put(out, "I", 2)


@driver("cuMemGetInfo_v2")
def memory_info(free_bytes: int, total: int) -> None:
    put(free_bytes, "Q", space().total - space().used)
    put(total, "Q", space().total)


@driver("cuMemGetAddressRange_v2")
def address_range(base: int, size: int, address: int) -> None:
    found = space().find(address)
    if found is None:
        raise CudaError(INVALID_VALUE)
    put(base, "Q", found.address)
    put(size, "Q", found.size)


def _attribute(attribute: int, address: int) -> tuple[str, int]:
    """The form and value of a CUpointer_attribute; raises CudaError for memory not known."""
    found = space().find(address)
    if found is None:
        raise CudaError(INVALID_VALUE)
    on_host = found.kind in ("host", "registered")
    reachable = on_host or found.kind == "managed"
    if attribute == 4 and not reachable:
        raise CudaError(INVALID_VALUE)
    values = {
        1: ("Q", device.primary_context()), 2: ("I", _HOST if on_host else _DEVICE),
        3: ("Q", address), 4: ("Q", address), 7: ("Q", found.address),
        8: ("I", int(found.kind == "managed")), 9: ("i", 0), 11: ("Q", found.address),
        12: ("Q", found.size), 13: ("I", 1), 6: ("I", 0), 10: ("I", 0), 14: ("I", 0), 15: ("I", 3),
        16: ("I", 0), 17: ("Q", 0), 18: ("Q", 0), 19: ("Q", 0), 20: ("I", 0), 21: ("I", 0),
    }  # fmt: skip
    if attribute not in values:
        raise CudaError(INVALID_VALUE)
    return values[attribute]


@driver("cuPointerGetAttribute")
def pointer_attribute(out: int, attribute: int, address: int) -> None:
    put(out, *_attribute(attribute, address))


@driver("cuPointerGetAttributes")
def pointer_attributes(count: int, which: int, outs: int, address: int) -> None:
    # Where one is not known it is null, and no error.
    for attribute, out in zip(get(which, f"{count}I"), get(outs, f"{count}Q"), strict=True):
        try:
            put(out, *_attribute(attribute, address))
        except CudaError:
            wide = attribute in (1, 3, 4, 7, 11, 12, 17, 18, 19)
            put(out, "q" if wide else "i", -2 if attribute == 9 else 0)


# --- copies and fills -----------------------------------------------------------------------------


def copy(
    to: int,
    source: int,
    size: int,
    stream: int = 0,
    *,
    to_device: bool = False,
    from_device: bool = False,
) -> None:
    """Copies bytes between the host and the device, whichever the addresses are of."""
    check_error()

    def move() -> None:
        target = space().host(to, size, device=to_device)
        ctypes.memmove(target, space().host(source, size, device=from_device), size)

    if size:
        submit(stream, move)


@driver("cuMemcpyHtoD_v2", "cuMemcpyHtoDAsync_v2")
def copy_to_device(to: int, source: int, size: int, stream: int = 0) -> None:
    copy(to, source, size, stream, to_device=True)


@driver("cuMemcpyDtoH_v2", "cuMemcpyDtoHAsync_v2")
def copy_to_host(to: int, source: int, size: int, stream: int = 0) -> None:
    copy(to, source, size, stream, from_device=True)


@driver("cuMemcpyDtoD_v2", "cuMemcpyDtoDAsync_v2")
def copy_on_device(to: int, source: int, size: int, stream: int = 0) -> None:
    copy(to, source, size, stream, to_device=True, from_device=True)


@driver("cuMemcpy", "cuMemcpyAsync")
def copy_any(to: int, source: int, size: int, stream: int = 0) -> None:
    copy(to, source, size, stream)


@driver("cuMemcpyPeer", "cuMemcpyPeerAsync")
def copy_peer(to: int, one: int, source: int, other: int, size: int, stream: int = 0) -> None:
    copy(to, source, size, stream)


def copy_rows(
    to: int, to_pitch: int, source: int, pitch: int, width: int, height: int, stream: int = 0
) -> None:
    """Copies a rectangle of bytes."""
    for row in range(height):
        copy(to + row * to_pitch, source + row * pitch, width, stream)


def _base(kind: int, host: int, on_device: int) -> int:
    if kind == _ARRAY:
        raise CudaError(NOT_SUPPORTED)
    return host if kind == _HOST else on_device


@driver("cuMemcpy2D_v2", "cuMemcpy2DUnaligned_v2", "cuMemcpy2DAsync_v2")
def copy_2d(what: int, stream: int = 0) -> None:
    (x, y, kind, host, on_device, _, pitch,
     to_x, to_y, to_kind, to_host, to_device, _, to_pitch, width, height) = get(
        what, "QQI4xQQQQQQI4xQQQQQQ")  # fmt: skip
    source = _base(kind, host, on_device) + y * pitch + x
    to = _base(to_kind, to_host, to_device) + to_y * to_pitch + to_x
    copy_rows(to, to_pitch, source, pitch, width, height, stream)


@driver("cuMemcpy3D_v2", "cuMemcpy3DAsync_v2")
def copy_3d(what: int, stream: int = 0) -> None:
    (x, y, z, _, kind, host, on_device, _, _, pitch, rows,
     to_x, to_y, to_z, _, to_kind, to_host, to_device, _, _, to_pitch, to_rows,
     width, height, depth) = get(what, "QQQQI4xQQQQQQQQQQI4xQQQQQQQQQ")  # fmt: skip
    source = _base(kind, host, on_device) + y * pitch + x
    to = _base(to_kind, to_host, to_device) + to_y * to_pitch + to_x
    for k in range(depth):
        copy_rows(to + (to_z + k) * to_pitch * to_rows, to_pitch,
                  source + (z + k) * pitch * rows, pitch, width, height, stream)  # fmt: skip


def fill(to: int, value: int, count: int, dtype: Any, stream: int = 0) -> None:
    """Writes one value again and again."""
    check_error()
    size = count * np.dtype(dtype).itemsize
    if to % np.dtype(dtype).itemsize:
        raise CudaError(INVALID_VALUE)

    def write() -> None:
        space().bytes_at(to, size).view(dtype)[:] = value

    if count:
        submit(stream, write)


@driver("cuMemsetD8_v2", "cuMemsetD8Async")
def fill_8(to: int, value: int, count: int, stream: int = 0) -> None:
    fill(to, value, count, np.uint8, stream)


@driver("cuMemsetD16_v2", "cuMemsetD16Async")
def fill_16(to: int, value: int, count: int, stream: int = 0) -> None:
    fill(to, value, count, np.uint16, stream)


@driver("cuMemsetD32_v2", "cuMemsetD32Async")
def fill_32(to: int, value: int, count: int, stream: int = 0) -> None:
    fill(to, value, count, np.uint32, stream)


def _fill_rows(to: int, pitch: int, value: int, width: int, height: int, dtype: Any,
               stream: int) -> None:  # fmt: skip
    for row in range(height):
        fill(to + row * pitch, value, width, dtype, stream)


@driver("cuMemsetD2D8_v2", "cuMemsetD2D8Async")
def fill_rows_8(to: int, pitch: int, value: int, width: int, height: int, stream: int = 0) -> None:
    _fill_rows(to, pitch, value, width, height, np.uint8, stream)


@driver("cuMemsetD2D16_v2", "cuMemsetD2D16Async")
def fill_rows_16(to: int, pitch: int, value: int, width: int, height: int, stream: int = 0) -> None:
    _fill_rows(to, pitch, value, width, height, np.uint16, stream)


@driver("cuMemsetD2D32_v2", "cuMemsetD2D32Async")
def fill_rows_32(to: int, pitch: int, value: int, width: int, height: int, stream: int = 0) -> None:
    _fill_rows(to, pitch, value, width, height, np.uint32, stream)


# --- pools ----------------------------------------------------------------------------------------

_default_pool = handles.add(Pool())


@driver("cuDeviceGetDefaultMemPool", "cuDeviceGetMemPool")
def device_pool(out: int, number: int) -> None:
    check_device(number)
    put(out, "Q", _default_pool)


@driver("cuMemGetDefaultMemPool", "cuMemGetMemPool")
def default_pool(out: int, location: int, kind: int) -> None:
    put(out, "Q", _default_pool)


@driver("cuMemPoolCreate")
def pool_create(out: int, properties: int) -> None:
    put(out, "Q", handles.add(Pool()))


@driver("cuMemPoolDestroy")
def pool_destroy(pool: int) -> None:
    handles.take(pool, Pool)


@driver("cuMemPoolGetAttribute")
def pool_attribute(pool: int, attribute: int, out: int) -> None:
    # Those from 4 on are sizes of 64 bits; switches come before.
    handles.find(pool, Pool)
    put(out, *(("Q", 0) if attribute >= 4 else ("i", 1)))


@driver("cuMemPoolGetAccess")
def pool_access(out: int, pool: int, location: int) -> None:
    put(out, "I", 3)
