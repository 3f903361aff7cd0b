"""Versions, errors, entry points, the one device, and contexts."""

from __future__ import annotations

import ctypes
import os
import threading
from functools import cache
from typing import Any

from emulator.adapters.cuda.calls import (
    DRIVER,
    Code,
    CudaError,
    driver,
    handles,
    lasting,
    process,
    put,
    put_text,
    refuse_if,
    text_at,
)
from emulator.adapters.cuda.chips import attributes, board, target
from emulator.adapters.cuda.native import library_folder
from emulator.adapters.cuda.settings import settings
from emulator.adapters.cuda.space import Space
from emulator.adapters.cuda.tables import errors, symbol_for

#: the version of CUDA whose driver this is
VERSION = 13050


class Context:
    """A context; all of them share the device's memory."""

    def __init__(self) -> None:
        #: CUlimit -> value: stack, printf buffer, heap
        self.limits = {0: 1024, 1: 1 << 20, 2: 8 << 20, 3: 2, 4: 2048}


class _Thread(threading.local):
    def __init__(self) -> None:
        self.contexts: list[int] = []


class _Device:
    """State of the device."""

    def __init__(self) -> None:
        self.primary, self.users = 0, 0
        #: the error that a kernel left; it stays unless the settings say otherwise
        self.failed = 0
        self.thread = _Thread()

    @property
    def context(self) -> int:
        """The thread's current context; 0 for none."""
        held = self.thread.contexts
        return held[-1] if held else 0

    def push(self, handle: int) -> None:
        """Makes a context the thread's current one. Raises CudaError for no context."""
        handles.find(handle, Context)
        self.thread.contexts.append(handle)

    def reset(self) -> None:
        """Forgets the error that a kernel left."""
        self.failed = 0

    def primary_context(self) -> int:
        if not self.primary:
            self.primary = handles.add(Context())
        return self.primary


device = _Device()


@cache
def space() -> Space:
    """The device's memory."""
    return Space(board()[1] << 30)


def check_error() -> None:
    """Raises the error that a kernel left."""
    if device.failed:
        code = device.failed
        if settings().recover:
            device.failed = 0
        raise CudaError(code)


def check_device(number: int) -> None:
    """Raises CudaError for a device that is not there."""
    refuse_if(number != 0, Code.INVALID_DEVICE)


@driver("cuInit")
def initialise(flags: int) -> None:
    process.initialize()


@driver("cuDeviceSetMemPool", "cuCtxSetCacheConfig", "cuCtxSetSharedMemConfig",
        "cuCtxResetPersistingL2Cache",
        "cuCtxSetFlags", "cuDevicePrimaryCtxSetFlags_v2", "cuFuncSetCacheConfig", "cuFuncLoad",
        "cuFuncSetSharedMemConfig", "cuKernelSetCacheConfig",
        "cuPointerSetAttribute",
        "cuStreamAttachMemAsync", "cuMemPoolSetAttribute", "cuMemPoolTrimTo", "cuMemPoolSetAccess",
        "cuStreamCopyAttributes", "cuStreamSetAttribute", "cuFlushGPUDirectRDMAWrites",
        "cuThreadExchangeStreamCaptureMode", "cuProfilerStart", "cuProfilerStop")  # fmt: skip
def accepted(*_: Any) -> None:
    """A hint or a switch that changes no result."""


def _error_text(code: int, out: int, kind: str) -> int:
    found = errors().get(code)
    is_known = found is not None and found.driver != "-"
    put(out, "Q", lasting(getattr(found, kind)) if is_known else 0)
    return 0 if is_known else Code.INVALID_VALUE


@cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(str(library_folder() / "libcuda.so.1"))


@driver("cuGetProcAddress_v2")
def procedure(symbol: int, out: int, version: int, flags: int, status: int = 0) -> int:
    name = text_at(symbol)
    found = symbol_for(name, version)
    put(status, "i", 0 if found else 1)
    if found is None:
        put(out, "Q", 0)
        return Code.NOT_FOUND
    put(out, "Q", ctypes.cast(getattr(_library(), found), ctypes.c_void_p).value)
    return 0


@driver("cuGetExportTable")
def export_table(out: int, identity: int) -> int:
    _tell_of_a_static_runtime()
    return Code.NOT_FOUND


@cache
def _tell_of_a_static_runtime() -> None:
    message = (
        "emulator: this program's CUDA runtime is linked statically and asks the driver for "
        "undocumented tables; build it with `nvcc -cudart shared`"
    )
    settings().write(missing="cuGetExportTable", reason=message)
    os.write(2, (message + "\n").encode())


@driver("cuDeviceGet")
def device_get(out: int, number: int) -> None:
    check_device(number)
    put(out, "i", 0)


@driver("cuDeviceGetName")
def device_name(out: int, room: int, number: int) -> None:
    check_device(number)
    put_text(out, room, f"NVIDIA {settings().chip.name} (emulated)")


@driver("cuDeviceGetAttribute")
def device_attribute(out: int, attribute: int, number: int) -> None:
    check_device(number)
    put(out, "i", attributes().get(attribute, 0))


@driver("cuDeviceComputeCapability")
def device_capability(major: int, minor: int, number: int) -> None:
    put(major, "i", target().number // 10)
    put(minor, "i", target().number % 10)


@driver("cuDeviceGetUuid", "cuDeviceGetUuid_v2")
def device_uuid(out: int, number: int) -> None:
    put(out, "16s", f"emulated {target().name}".encode())


# --- contexts -------------------------------------------------------------------------------------


@driver("cuDevicePrimaryCtxRetain")
def primary_retain(out: int, number: int) -> None:
    check_device(number)
    device.users += 1
    put(out, "Q", device.primary_context())


@driver("cuDevicePrimaryCtxRelease_v2")
def primary_release(number: int) -> None:
    refuse_if(not device.users, Code.INVALID_CONTEXT)
    device.users -= 1


@driver("cuDevicePrimaryCtxGetState")
def primary_state(number: int, flags: int, active: int) -> None:
    put(flags, "I", 0)
    put(active, "i", int(device.users > 0))


@driver("cuCtxCreate_v4")
def context_create(out: int, parameters: int, flags: int, number: int) -> None:
    check_device(number)
    handle = handles.add(Context())
    device.thread.contexts.append(handle)
    put(out, "Q", handle)


@driver("cuCtxDestroy_v2")
def context_destroy(handle: int) -> None:
    handles.take(handle, Context)
    if device.context == handle:
        device.thread.contexts.pop()


@driver("cuCtxSetCurrent")
def context_set(handle: int) -> None:
    held = device.thread.contexts
    if held:
        held.pop()
    if handle:
        device.push(handle)


@driver("cuCtxPopCurrent_v2")
def context_pop(out: int) -> None:
    refuse_if(not device.thread.contexts, Code.INVALID_CONTEXT)
    put(out, "Q", device.thread.contexts.pop())


@driver("cuCtxGetDevice", "cuCtxGetDevice_v2")
def context_device(out: int, handle: int = 0) -> None:
    put(out, "i", 0)
    refuse_if(not (device.context or handle), Code.INVALID_CONTEXT)


def _current() -> Context:
    return handles.find(device.context or device.primary_context(), Context)


def priority_range(least: int, greatest: int) -> None:
    put(least, "i", 0)
    put(greatest, "i", -5)


DRIVER |= {
    "cuDriverGetVersion": lambda out: put(out, "i", VERSION),
    "cuGetErrorName": lambda code, out: _error_text(code, out, "driver"),
    "cuGetErrorString": lambda code, out: _error_text(code, out, "said"),
    "cuDeviceGetCount": lambda out: put(out, "i", 1),
    "cuDeviceTotalMem_v2": lambda out, number: put(out, "Q", space().total),
    "cuDeviceGetPCIBusId": lambda out, room, number: put_text(out, room, "0000:01:00.0"),
    "cuDeviceGetByPCIBusId": lambda out, text: put(out, "i", 0),
    # There is one device, and it is no peer of its own.
    "cuDeviceCanAccessPeer": lambda out, one, other: put(out, "i", 0),
    "cuDeviceGetP2PAttribute": lambda *_: Code.INVALID_DEVICE,
    "cuCtxEnablePeerAccess": lambda *_: Code.INVALID_DEVICE,
    "cuCtxDisablePeerAccess": lambda *_: Code.INVALID_DEVICE,
    "cuDevicePrimaryCtxReset_v2": lambda number: device.reset(),
    "cuCtxGetCurrent": lambda out: put(out, "Q", device.context),
    "cuCtxPushCurrent_v2": lambda handle: device.push(handle),
    "cuCtxGetFlags": lambda out: put(out, "I", 0),
    "cuCtxGetId": lambda handle, out: put(out, "Q", handle or device.context),
    "cuCtxGetApiVersion": lambda handle, out: put(out, "I", 3020),
    "cuCtxSynchronize": lambda: check_error(),
    "cuCtxSynchronize_v2": lambda handle: check_error(),
    "cuCtxGetStreamPriorityRange": priority_range,
    "cuCtxGetLimit": lambda out, limit: put(out, "Q", _current().limits.get(limit, 0)),
    "cuCtxSetLimit": lambda limit, value: _current().limits.update({limit: value}),
    "cuCtxGetCacheConfig": lambda out: put(out, "i", 0),
    "cuCtxGetSharedMemConfig": lambda out: put(out, "i", 0),
    "cuModuleGetLoadingMode": lambda out: put(out, "i", 2),
}
