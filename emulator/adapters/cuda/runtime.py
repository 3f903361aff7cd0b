"""The CUDA runtime, for programs built with ``nvcc -cudart shared``, on the driver."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from emulator.adapters.cuda.calls import (
    DRIVER,
    RUNTIME,
    Code,
    CudaError,
    get,
    handles,
    lasting,
    present,
    put,
    refuse_if,
    runtime,
    text_at,
)
from emulator.adapters.cuda.chips import attributes
from emulator.adapters.cuda.driver import devices, graphs, instances, launches, memory, modules
from emulator.adapters.cuda.driver.devices import check_error, device, space
from emulator.adapters.cuda.driver.modules import Function, Loaded
from emulator.adapters.cuda.driver.nodes import Kind, Work
from emulator.adapters.cuda.runtime_textures import box_at, ends_of
from emulator.adapters.cuda.space import Kind as MemoryKind
from emulator.adapters.cuda.tables import errors, functions_of, others

__all__ = ["RUNTIME", "remember"]

_UNKNOWN_CODE = "unrecognized error code"


@dataclass
class _Image:
    """A fat binary that the program registered; loaded when it is first needed."""

    address: int
    loaded: Loaded | None = None
    #: where the program wants the address of a variable that is ``__managed__``, and its name
    managed: list[tuple[int, str]] = field(default_factory=list)

    def load(self) -> Loaded:
        if self.loaded is None:
            self.loaded = Loaded(modules.program_at(self.address))
        return self.loaded


class _Thread(threading.local):
    """State of the runtime for each thread."""

    def __init__(self) -> None:
        self.error = 0
        #: sizes of grid and block, shared memory, stream
        self.configurations: list[tuple[int, ...]] = []


_thread = _Thread()
#: address of a kernel's stub, or of a variable, in the program -> its image and name
_kernels: dict[int, tuple[_Image, str]] = {}
_variables: dict[int, tuple[_Image, str]] = {}
_functions: dict[int, Function] = {}


def remember(code: int) -> int:
    """Keeps the error for ``cudaGetLastError``."""
    if code not in (0, Code.NOT_READY):
        _thread.error = code
    return code


# --- registration ---------------------------------------------------------------------------------


@runtime("__cudaRegisterFatBinaryEnd", "__cudaUnregisterFatBinary", "__cudaRegisterHostVar",
         "cudaSetDeviceFlags", "cudaProfilerStart", "cudaProfilerStop", "cudaFuncSetCacheConfig",
         "cudaStreamAttachMemAsync",
         "cudaDeviceSetCacheConfig", "cudaDeviceSetSharedMemConfig", "cudaMemPoolSetAttribute",
         "cudaMemPoolTrimTo", "cudaMemPoolSetAccess", "cudaStreamSetAttribute",
         "cudaFuncSetSharedMemConfig", "cudaCtxResetPersistingL2Cache",
         "cudaThreadExchangeStreamCaptureMode", "cudaDeviceSetMemPool")  # fmt: skip
def accepted(*_: Any) -> None:
    """A hint, or something that needs no work here."""


@runtime("__cudaInitModule")
def init_module(handle: int) -> int:
    """Called before the program first uses a variable that is ``__managed__``: tells it where the
    variables are, which kernels reach there, too."""
    image = handles.find(handle, _Image)
    for host, name in image.managed:
        address, size = image.load().places[name]
        shared = space().share(address, size)
        put(host, "Q", shared)
        _variables[shared] = image, name
    image.managed.clear()
    return 1


def _register(
    known: dict[int, tuple[_Image, str]], handle: int, host: int, _: int, name: int, *__: int
) -> None:
    known[host] = handles.find(handle, _Image), text_at(name)


def kernel_of(host: int) -> Function:
    """The kernel of a stub, or of a kernel's handle."""
    if host not in _functions:
        image, name = present(_kernels.get(host), Code.INVALID_DEVICE_FUNCTION)
        _functions[host] = handles.find(image.load().function(name), Function)
    return _functions[host]


def _symbol(host: int) -> tuple[int, int]:
    """Address and size of a variable on the device."""
    image, name = present(_variables.get(host), Code.INVALID_SYMBOL)
    return present(image.load().places.get(name), Code.INVALID_SYMBOL)


# --- errors and devices ---------------------------------------------------------------------------


@runtime("cudaGetLastError")
def last_error() -> int:
    code, _thread.error = _thread.error, 0
    return code


def _error_text(code: int, which: str) -> int:
    return lasting(getattr(errors()[code], which) if code in errors() else _UNKNOWN_CODE)


@runtime("cudaSetDevice", "cudaInitDevice")
def set_device(number: int, *_: int) -> None:
    refuse_if(number, Code.INVALID_DEVICE)
    if not device.context:
        devices.context_set(device.primary_context())


#: bytes of cudaDeviceProp in CUDA 13
_PROPERTIES = 1008
#: fields of cudaDeviceProp: offset, form, and the CUdevice_attribute with the value
_FIELDS = (
    (296, "Q", 8), (304, "i", 12), (308, "i", 10), (312, "Q", 11), (320, "i", 1), (324, "i", 2),
    (328, "i", 3), (332, "i", 4), (336, "i", 5), (340, "i", 6), (344, "i", 7), (352, "Q", 9),
    (360, "i", 75), (364, "i", 76), (368, "Q", 14), (376, "Q", 51), (384, "i", 16), (388, "i", 18),
    (392, "i", 19), (396, "i", 21), (400, "i", 77), (404, "i", 22), (408, "i", 23), (412, "i", 73),
    (416, "i", 74), (420, "i", 70), (424, "i", 71), (428, "i", 72), (432, "i", 45), (436, "i", 46),
    (440, "i", 24), (444, "i", 25), (448, "i", 26), (452, "i", 47), (456, "i", 48), (460, "i", 49),
    (464, "i", 52), (468, "i", 42), (472, "i", 43), (476, "i", 27), (480, "i", 28), (484, "i", 29),
    (488, "i", 53), (492, "i", 54), (496, "i", 55), (500, "i", 56), (504, "i", 57), (508, "i", 58),
    (512, "i", 59), (516, "i", 60), (520, "i", 61), (524, "i", 62), (528, "i", 63), (532, "i", 64),
    (536, "i", 65), (540, "i", 66), (544, "i", 67), (548, "i", 68), (552, "Q", 30), (560, "i", 31),
    (564, "i", 32), (568, "i", 33), (572, "i", 34), (576, "i", 50),
    (584, "i", 40), (588, "i", 41), (592, "i", 37), (596, "i", 38), (600, "i", 108),
    (604, "i", 39), (608, "i", 78), (612, "i", 79), (616, "i", 80), (624, "Q", 81),
    (632, "i", 82), (636, "i", 83), (648, "i", 86), (652, "i", 88), (656, "i", 89),
    (660, "i", 90), (664, "i", 91), (668, "i", 95), (672, "Q", 97), (688, "i", 106),
    (696, "Q", 111), (704, "i", 99), (720, "i", 115), (748, "i", 120), (752, "i", 129),
)  # fmt: skip


#: the same in CUDA 12: bytes, the fields that CUDA 13 lacks, and how much further on the others
#: are, from an offset in CUDA 13 on
_PROPERTIES_12 = 1032
_FIELDS_12 = (
    (348, "i", 13), (384, "i", 15), (392, "i", 17), (404, "i", 20), (608, "i", 36), (668, "i", 87),
    (692, "i", 96),
)  # fmt: skip
_FURTHER_ON = (
    (672, 24), (652, 20), (624, 16), (592, 20), (404, 16), (396, 12), (388, 8), (384, 4), (0, 0),
)  # fmt: skip


@runtime("cudaGetDeviceProperties_v2")
def properties_12(out: int, number: int) -> None:
    moved = tuple(
        (offset + next(by for start, by in _FURTHER_ON if offset >= start), form, attribute)
        for offset, form, attribute in _FIELDS
    )
    _write_properties(_PROPERTIES_12, _FIELDS_12 + moved, out, number)


def _write_properties(
    size: int, fields: Iterable[tuple[int, str, int]], out: int, number: int
) -> None:
    devices.check_device(number)
    ctypes.memset(out, 0, size)
    devices.device_name(out, 256, number)
    devices.device_uuid(out + 256, number)
    put(out + 288, "Q", space().total)
    for offset, form, attribute in fields:
        put(out + offset, form, attributes().get(attribute, 0))


# --- launches -------------------------------------------------------------------------------------


@runtime("__cudaPopCallConfiguration")
def pop(grid: int, block: int, shared: int, stream: int) -> int:
    if not _thread.configurations:
        return 52  # launch without a configuration
    *sizes, given, where = _thread.configurations.pop()
    put(grid, "III", *sizes[:3])
    put(block, "III", *sizes[3:])
    put(shared, "Q", given)
    put(stream, "Q", where)
    return 0


def _launching(function: Callable[..., None]) -> Callable[..., None]:
    """A launch for which sizes that cannot be have a code of their own, as in the runtime."""

    def launch(*given: int) -> None:
        try:
            function(*given)
        except CudaError as error:
            raise CudaError(9 if error.code == Code.INVALID_VALUE else error.code) from None

    return launch


@runtime("cudaLaunchKernel", "__cudaLaunchKernel", "__cudaLaunchKernel_ptsz")
@_launching
def launch_kernel(host: int, *words: int) -> None:
    *sizes, pointers, shared, stream = words
    found = kernel_of(host)
    launches.launch(found, sizes, shared, stream, launches.arguments(found, pointers))


@runtime("cudaLaunchCooperativeKernel")
def launch_cooperative(host: int, *words: int) -> None:
    launches.check_cooperative(kernel_of(host), words[:6], words[7])
    launch_kernel(host, *words)


runtime("cudaLaunchKernelExC")(
    _launching(partial(launches.launch_configured, "6IQQQI4x", kernel_of))
)


@runtime("cudaFuncGetAttributes")
def function_attributes(out: int, host: int) -> None:
    found = kernel_of(host)
    shared, constant, local, threads, registers, ptx, binary, cache, dynamic = (
        found.attribute(which) for which in (1, 2, 3, 0, 4, 5, 6, 7, 8)
    )
    put(out, "QQQ7i", shared, constant, local, threads, registers, ptx, binary, cache, dynamic, -1)


# --- memory ---------------------------------------------------------------------------------------


def _line(to: int, source: int, size: int, kind: int) -> memory.Box:
    return memory.Box(to, 0, 0, source, 0, 0, size, 1, 1, *ends_of(kind))


def _copy_2d(to: int, to_pitch: int, source: int, pitch: int, *rest: int) -> None:
    width, height, kind, *stream = rest
    box = memory.Box(to, to_pitch, 0, source, pitch, 0, width, height, 1, *ends_of(kind))
    memory.submit_copy(box, *stream)


def _copy_to_symbol(symbol: int, source: int, size: int, offset: int, *rest: int) -> None:
    kind, *stream = rest
    memory.submit_copy(_line(_symbol(symbol)[0] + offset, source, size, kind), *stream)


def _copy_from_symbol(to: int, symbol: int, size: int, offset: int, *rest: int) -> None:
    kind, *stream = rest
    memory.submit_copy(_line(to, _symbol(symbol)[0] + offset, size, kind), *stream)


def _fill_2d(to: int, pitch: int, value: int, *rest: int) -> None:
    memory.fill(np.uint8, to, pitch, value & 255, *rest)


def _fill_3d(to: int, pitch: int, _: int, rows: int, value: int, *rest: int) -> None:
    width, height, depth, *stream = rest
    for k in range(depth):
        _fill_2d(to + k * rows * pitch, pitch, value, width, height, *stream)


def _allocated(size: int, kind: MemoryKind) -> int:
    return space().allocate(size, kind) if size else 0


@runtime("cudaFree")
def free(address: int) -> None:
    check_error()
    memory.free(address)


@runtime("cudaMalloc3D")
def allocate_3d(out: int, width: int, height: int, depth: int) -> None:
    memory.allocate_pitch(out, out + 8, width, height * depth)
    put(out + 16, "QQ", width, height)


@runtime("cudaPointerGetAttributes")
def pointer_attributes(out: int, address: int) -> None:
    found = space().find(address)
    kinds = {"device": 2, "mapped": 2, "variable": 2, "managed": 3, "host": 1, "registered": 1}
    if found is None:
        put(out, "iiQQ", 0, -2, 0, 0)
        return
    host = 0 if kinds[found.kind] == 2 else address
    put(out, "iiQQ", kinds[found.kind], 0, address, host)


# --- graphs ---------------------------------------------------------------------------------------


def _launch_at(what: int) -> Work:
    return graphs.launch_of(kernel_of(get(what, "Q")[0]), what)


#: how the parameters of a node are read
_READERS = {**graphs.READERS, Kind.KERNEL: _launch_at, Kind.MEMCPY: box_at}
graphs.structure_functions(runtime, "cuda", _READERS)
instances.structure_functions(runtime, "cuda", _READERS)


# --- functions of one line ------------------------------------------------------------------------

RUNTIME |= {
    **launches.occupancy_functions("cuda", kernel_of),
    **others(functions_of("runtime"), DRIVER),
    "__cudaRegisterFatBinary": lambda wrapper: handles.add(_Image(wrapper)),
    "__cudaRegisterFunction": partial(_register, _kernels),
    "__cudaRegisterVar": partial(_register, _variables),
    "__cudaRegisterManagedVar": lambda handle, host, _, name, *__: handles.find(
        handle, _Image
    ).managed.append((host, text_at(name))),
    "__cudaGetKernel": lambda out, host: put(out, "Q", kernel_of(host) and host),
    "__cudaPushCallConfiguration": lambda *given: _thread.configurations.append(given),
    "cudaPeekAtLastError": lambda: _thread.error,
    "cudaGetErrorName": lambda code: _error_text(code, "runtime"),
    "cudaGetErrorString": lambda code: _error_text(code, "said"),
    "cudaGetDevice": lambda out: put(out, "i", 0),
    "cudaChooseDevice": lambda out, properties: put(out, "i", 0),
    "cudaGetDeviceProperties": partial(_write_properties, _PROPERTIES, _FIELDS),
    "cudaDeviceReset": device.reset,
    "cudaGetDeviceFlags": lambda out: put(out, "I", 8),
    "cudaFuncSetAttribute": lambda host, which, value: kernel_of(host).set_attribute(which, value),
    "cudaFuncGetName": lambda out, host: put(out, "Q", lasting(kernel_of(host).name)),
    "cudaMalloc": lambda out, size: put(out, "Q", _allocated(size, "device")),
    "cudaMallocHost": lambda out, size: put(out, "Q", _allocated(size, "host")),
    "cudaHostAlloc": lambda out, size, flags: put(out, "Q", _allocated(size, "host")),
    "cudaGetSymbolAddress": lambda out, symbol: put(out, "Q", _symbol(symbol)[0]),
    "cudaGetSymbolSize": lambda out, symbol: put(out, "Q", _symbol(symbol)[1]),
    "cudaGraphAddMemcpyNode1D": partial(graphs.add_made, _line),
    "cudaGraphExecMemcpyNodeSetParams1D": partial(instances.set_made, _line),
}
for _name, _function in {
    "cudaMemcpy": lambda *line: memory.submit_copy(_line(*line[:4]), *line[4:]),
    "cudaMemcpy2D": _copy_2d,
    "cudaMemcpy3D": lambda what, *stream: memory.submit_copy(box_at(what), *stream),
    "cudaMemcpyToSymbol": _copy_to_symbol,
    "cudaMemcpyFromSymbol": _copy_from_symbol,
    "cudaMemset": lambda to, value, *rest: memory.fill_line(np.uint8, to, value & 255, *rest),
    "cudaMemset2D": _fill_2d,
    "cudaMemset3D": _fill_3d,
}.items():
    runtime(_name, f"{_name}Async")(_function)
