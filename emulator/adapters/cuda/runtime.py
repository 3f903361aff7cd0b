"""The CUDA runtime, for programs built with ``nvcc -cudart shared``, on the driver."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from emulator.adapters.cuda.calls import (
    DRIVER,
    INVALID_VALUE,
    RUNTIME,
    CudaError,
    get,
    handles,
    lasting,
    put,
    runtime,
    text_at,
)
from emulator.adapters.cuda.chips import attributes
from emulator.adapters.cuda.driver import (
    devices,
    graphs,
    instances,
    launches,
    memory,
    modules,
    streams,
)
from emulator.adapters.cuda.driver.devices import check_error, device, space
from emulator.adapters.cuda.driver.modules import Function, Loaded
from emulator.adapters.cuda.driver.nodes import Kind, Work
from emulator.adapters.cuda.runtime_textures import box_at
from emulator.adapters.cuda.tables import errors, functions_of, others

Dim3 = tuple[int, int, int]
__all__ = ["RUNTIME", "remember"]

_INVALID_FUNCTION, _INVALID_SYMBOL, _NOT_READY = 98, 13, 600
_NO_DEVICE = 101
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
        self.configurations: list[tuple[Dim3, Dim3, int, int]] = []


_thread = _Thread()
#: address of a kernel's stub, or of a variable, in the program -> its image and name
_kernels: dict[int, tuple[_Image, str]] = {}
_variables: dict[int, tuple[_Image, str]] = {}
_functions: dict[int, Function] = {}


def remember(code: int) -> int:
    """Keeps the error for ``cudaGetLastError``."""
    if code not in (0, _NOT_READY):
        _thread.error = code
    return code


# --- registration ---------------------------------------------------------------------------------


@runtime("__cudaRegisterFatBinary")
def register_image(wrapper: int) -> int:
    return handles.add(_Image(wrapper))


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


@runtime("__cudaRegisterFunction")
def register_kernel(handle: int, host: int, _: int, name: int, *__: int) -> None:
    _kernels[host] = (handles.find(handle, _Image), text_at(name))


@runtime("__cudaRegisterVar")
def register_variable(handle: int, host: int, _: int, name: int, *__: int) -> None:
    _variables[host] = (handles.find(handle, _Image), text_at(name))


@runtime("__cudaRegisterManagedVar")
def register_managed(handle: int, host: int, _: int, name: int, *__: int) -> None:
    handles.find(handle, _Image).managed.append((host, text_at(name)))


def kernel_of(host: int) -> Function:
    """The kernel of a stub, or of a kernel's handle."""
    if host not in _functions:
        if host not in _kernels:
            raise CudaError(_INVALID_FUNCTION)
        image, name = _kernels[host]
        _functions[host] = handles.find(image.load().function(name), Function)
    return _functions[host]


def _symbol(host: int) -> tuple[int, int]:
    """Address and size of a variable on the device."""
    if host not in _variables:
        raise CudaError(_INVALID_SYMBOL)
    image, name = _variables[host]
    place = image.load().places.get(name)
    if place is None:
        raise CudaError(_INVALID_SYMBOL)
    return place


# --- errors and devices ---------------------------------------------------------------------------


@runtime("cudaGetLastError")
def last_error() -> int:
    code, _thread.error = _thread.error, 0
    return code


@runtime("cudaPeekAtLastError")
def peek_error() -> int:
    return _thread.error


@runtime("cudaGetErrorName")
def error_name(code: int) -> int:
    return lasting(errors()[code].runtime if code in errors() else _UNKNOWN_CODE)


@runtime("cudaGetErrorString")
def error_string(code: int) -> int:
    return lasting(errors()[code].said if code in errors() else _UNKNOWN_CODE)


@runtime("cudaGetDevice")
def get_device(out: int) -> None:
    put(out, "i", 0)


@runtime("cudaSetDevice", "cudaInitDevice")
def set_device(number: int, *_: int) -> None:
    if number:
        raise CudaError(_NO_DEVICE)
    if not device.context:
        devices.context_set(device.primary_context())


@runtime("cudaChooseDevice")
def choose_device(out: int, properties: int) -> None:
    put(out, "i", 0)


@runtime("cudaDeviceReset")
def reset() -> None:
    device.failed = 0


@runtime("cudaGetDeviceFlags")
def device_flags(out: int) -> None:
    put(out, "I", 8)


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


@runtime("cudaGetDeviceProperties")
def properties(out: int, number: int) -> None:
    _write_properties(out, number, _PROPERTIES, _FIELDS)


@runtime("cudaGetDeviceProperties_v2")
def properties_12(out: int, number: int) -> None:
    moved = tuple(
        (offset + next(by for start, by in _FURTHER_ON if offset >= start), form, attribute)
        for offset, form, attribute in _FIELDS
    )
    _write_properties(out, number, _PROPERTIES_12, _FIELDS_12 + moved)


def _write_properties(
    out: int, number: int, size: int, fields: Iterable[tuple[int, str, int]]
) -> None:
    devices.check_device(number)
    ctypes.memset(out, 0, size)
    devices.device_name(out, 256, number)
    devices.device_uuid(out + 256, number)
    put(out + 288, "Q", space().total)
    for offset, form, attribute in fields:
        put(out + offset, form, attributes().get(attribute, 0))


# --- launches -------------------------------------------------------------------------------------


@runtime("__cudaPushCallConfiguration")
def push(gx: int, gy: int, gz: int, bx: int, by: int, bz: int, shared: int, stream: int) -> int:
    _thread.configurations.append(((gx, gy, gz), (bx, by, bz), shared, stream))
    return 0


@runtime("__cudaPopCallConfiguration")
def pop(grid: int, block: int, shared: int, stream: int) -> int:
    if not _thread.configurations:
        return 52  # launch without a configuration
    sizes, threads, given, where = _thread.configurations.pop()
    put(grid, "III", *sizes)
    put(block, "III", *threads)
    put(shared, "Q", given)
    put(stream, "Q", where)
    return 0


@runtime("__cudaGetKernel")
def get_kernel(out: int, host: int) -> None:
    kernel_of(host)
    put(out, "Q", host)


@runtime("cudaLaunchKernel", "__cudaLaunchKernel", "__cudaLaunchKernel_ptsz")
def launch_kernel(
    host: int,
    gx: int,
    gy: int,
    gz: int,
    bx: int,
    by: int,
    bz: int,
    pointers: int,
    shared: int,
    stream: int,
) -> None:
    found = kernel_of(host)
    raw = launches.arguments(found, pointers)
    _launched(lambda: launches.launch(found, (gx, gy, gz), (bx, by, bz), shared, stream, raw))


def _launched(launch: Callable[[], None]) -> None:
    """Launches; sizes that cannot be have a code of their own in the runtime."""
    try:
        launch()
    except CudaError as error:
        raise CudaError(9 if error.code == INVALID_VALUE else error.code) from None


@runtime("cudaLaunchCooperativeKernel")
def launch_cooperative(
    host: int,
    gx: int,
    gy: int,
    gz: int,
    bx: int,
    by: int,
    bz: int,
    pointers: int,
    shared: int,
    stream: int,
) -> None:
    if not launches.fits_at_once(kernel_of(host), (gx, gy, gz), (bx, by, bz), shared):
        raise CudaError(720)
    launch_kernel(host, gx, gy, gz, bx, by, bz, pointers, shared, stream)


@runtime("cudaLaunchKernelExC")
def launch_with(configuration: int, host: int, pointers: int) -> None:
    gx, gy, gz, bx, by, bz, shared, stream, attached, count = get(configuration, "6IQQQI4x")
    found = kernel_of(host)
    cluster = launches.cluster_shape(attached, count)
    raw = launches.arguments(found, pointers)
    _launched(
        lambda: launches.launch(found, (gx, gy, gz), (bx, by, bz), shared, stream, raw, cluster)
    )


@runtime("cudaFuncSetAttribute")
def set_function_attribute(host: int, which: int, value: int) -> None:
    modules.set_function_attribute(handle_of(host), which, value)


def handle_of(host: int) -> int:
    """The driver's handle of a kernel."""
    found = kernel_of(host)
    return found.loaded.function(found.name)


@runtime("cudaFuncGetAttributes")
def function_attributes(out: int, host: int) -> None:
    found = kernel_of(host)
    shared, constant, local, threads, registers, ptx, binary, cache, dynamic = (
        found.attribute(which) for which in (1, 2, 3, 0, 4, 5, 6, 7, 8)
    )
    put(out, "QQQ7i", shared, constant, local, threads, registers, ptx, binary, cache, dynamic, -1)


@runtime("cudaFuncGetName")
def function_name(out: int, host: int) -> None:
    put(out, "Q", lasting(kernel_of(host).name))


@runtime("cudaOccupancyMaxActiveBlocksPerMultiprocessor",
         "cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags")  # fmt: skip
def most_blocks(out: int, host: int, threads: int, dynamic: int, flags: int = 0) -> None:
    put(out, "i", launches.resident_blocks(kernel_of(host), threads, dynamic))


@runtime("cudaOccupancyAvailableDynamicSMemPerBlock")
def available_shared(out: int, host: int, blocks: int, threads: int) -> None:
    launches.available_shared(out, handle_of(host), blocks, threads)


@runtime("cudaOccupancyMaxPotentialClusterSize", "cudaOccupancyMaxActiveClusters")
def clusters(out: int, host: int, configuration: int) -> None:
    put(out, "i", 8)


# --- memory ---------------------------------------------------------------------------------------


@runtime("cudaMalloc")
def allocate(out: int, size: int) -> None:
    put(out, "Q", space().allocate(size, "device") if size else 0)


@runtime("cudaFree")
def free(address: int) -> None:
    check_error()
    memory.free(address)


@runtime("cudaMallocManaged")
def allocate_managed(out: int, size: int, flags: int) -> None:
    put(out, "Q", space().allocate(size, "managed"))


@runtime("cudaMallocHost", "cudaHostAlloc")
def allocate_host(out: int, size: int, flags: int = 0) -> None:
    put(out, "Q", space().allocate(size, "host") if size else 0)


@runtime("cudaMallocPitch")
def allocate_pitch(out: int, pitch: int, width: int, height: int) -> None:
    memory.allocate_pitch(out, pitch, width, height, 4)


@runtime("cudaMalloc3D")
def allocate_3d(out: int, width: int, height: int, depth: int) -> None:
    memory.allocate_pitch(out, out + 8, width, height * depth, 4)
    put(out + 16, "QQ", width, height)


def _line(to: int, source: int, size: int, kind: int) -> memory.Box:
    # Kind 0 host to host, 1 to the device, 2 from it, 3 on it, 4 as the addresses say.
    return memory.Box(to, 0, 0, source, 0, 0, size, 1, 1, kind in (1, 3), kind in (2, 3))


def _copy(to: int, source: int, size: int, kind: int, stream: int = 0) -> None:
    memory.submit_copy(_line(to, source, size, kind), stream)


@runtime("cudaMemcpy", "cudaMemcpyAsync")
def copy(to: int, source: int, size: int, kind: int, stream: int = 0) -> None:
    _copy(to, source, size, kind, stream)


@runtime("cudaMemcpyPeer", "cudaMemcpyPeerAsync")
def copy_peer(to: int, one: int, source: int, other: int, size: int, stream: int = 0) -> None:
    _copy(to, source, size, 4, stream)


@runtime("cudaMemcpy2D", "cudaMemcpy2DAsync")
def copy_2d(
    to: int,
    to_pitch: int,
    source: int,
    pitch: int,
    width: int,
    height: int,
    kind: int,
    stream: int = 0,
) -> None:
    box = memory.Box(
        to,
        to_pitch,
        0,
        source,
        pitch,
        0,
        width,
        height,
        to_device=kind in (1, 3),
        from_device=kind in (2, 3),
    )
    memory.submit_copy(box, stream)


@runtime("cudaMemcpy3D", "cudaMemcpy3DAsync")
def copy_3d(what: int, stream: int = 0) -> None:
    memory.submit_copy(box_at(what), stream)


@runtime("cudaMemset", "cudaMemsetAsync")
def fill(to: int, value: int, size: int, stream: int = 0) -> None:
    memory.fill_line(np.uint8, to, value & 255, size, stream)


@runtime("cudaMemset2D", "cudaMemset2DAsync")
def fill_2d(to: int, pitch: int, value: int, width: int, height: int, stream: int = 0) -> None:
    memory.fill(np.uint8, to, pitch, value & 255, width, height, stream)


@runtime("cudaMemset3D", "cudaMemset3DAsync")
def fill_3d(
    to: int,
    pitch: int,
    _: int,
    rows: int,
    value: int,
    width: int,
    height: int,
    depth: int,
    stream: int = 0,
) -> None:
    for k in range(depth):
        fill_2d(to + k * rows * pitch, pitch, value, width, height, stream)


@runtime("cudaMemcpyToSymbol", "cudaMemcpyToSymbolAsync")
def copy_to_symbol(
    symbol: int, source: int, size: int, offset: int, kind: int, stream: int = 0
) -> None:
    _copy(_symbol(symbol)[0] + offset, source, size, kind, stream)


@runtime("cudaMemcpyFromSymbol", "cudaMemcpyFromSymbolAsync")
def copy_from_symbol(
    to: int, symbol: int, size: int, offset: int, kind: int, stream: int = 0
) -> None:
    _copy(to, _symbol(symbol)[0] + offset, size, kind, stream)


@runtime("cudaGetSymbolAddress")
def symbol_address(out: int, symbol: int) -> None:
    put(out, "Q", _symbol(symbol)[0])


@runtime("cudaGetSymbolSize")
def symbol_size(out: int, symbol: int) -> None:
    put(out, "Q", _symbol(symbol)[1])


@runtime("cudaPointerGetAttributes")
def pointer_attributes(out: int, address: int) -> None:
    found = space().find(address)
    kinds = {"device": 2, "mapped": 2, "variable": 2, "managed": 3, "host": 1, "registered": 1}
    if found is None:
        put(out, "iiQQ", 0, -2, 0, 0)
        return
    host = 0 if kinds[found.kind] == 2 else address
    put(out, "iiQQ", kinds[found.kind], 0, address, host)


# --- streams and events ---------------------------------------------------------------------------


@runtime("cudaStreamCreate")
def create_stream(out: int) -> None:
    streams.create(out, 0)


@runtime("cudaEventCreate")
def create_event(out: int) -> None:
    streams.event_create(out, 0)


# --- graphs ---------------------------------------------------------------------------------------


def _launch_at(what: int) -> Work:
    return graphs.launch_of(kernel_of(get(what, "Q")[0]), what)


#: how the parameters of a node are read
_READERS = {**graphs.READERS, Kind.KERNEL: _launch_at, Kind.MEMCPY: box_at}
graphs.structure_functions(runtime, "cuda", _READERS)
instances.structure_functions(runtime, "cuda", _READERS)


@runtime("cudaGraphAddNode")
def graph_add(out: int, graph: int, needs: int, data: int, count: int, what: int) -> None:
    graphs.add(out, graph, needs, count, graphs.work_at(what, _READERS))


@runtime("cudaGraphNodeSetParams")
def graph_set(node: int, what: int) -> None:
    work = graphs.work_at(what, _READERS)
    graphs.node_of_kind(node, work.kind).work = work


@runtime("cudaGraphExecNodeSetParams")
def graph_set_in_instance(instance: int, node: int, what: int) -> None:
    found = handles.find(instance, instances.GraphInstance)
    found.set(node, graphs.work_at(what, _READERS))


@runtime("cudaGraphConditionalHandleCreate")
def graph_condition(out: int, graph: int, default: int, flags: int) -> None:
    graphs.create_condition(out, graph, 0, default, flags)


@runtime("cudaGraphAddMemcpyNode1D")
def graph_add_line(
    out: int, graph: int, needs: int, count: int, to: int, source: int, size: int, kind: int
) -> None:
    graphs.add(out, graph, needs, count, _line(to, source, size, kind))


@runtime("cudaGraphExecMemcpyNodeSetParams1D")
def graph_set_line(instance: int, node: int, to: int, source: int, size: int, kind: int) -> None:
    found = handles.find(instance, instances.GraphInstance)
    found.set(node, _line(to, source, size, kind))


RUNTIME |= others(functions_of("runtime"), DRIVER)
