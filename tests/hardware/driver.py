"""The CUDA driver API through ctypes: what loading a PTX module and running a kernel take."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p
from functools import wraps
from pathlib import Path

import numpy as np

from dtypes import Array

_LIBRARY = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
_MANAGEMENT = "nvml.dll" if sys.platform == "win32" else "libnvidia-ml.so.1"
_CAPABILITY_MAJOR, _CAPABILITY_MINOR = 75, 76
_JIT_ERROR_LOG, _JIT_ERROR_LOG_BYTES = 5, 6
_LOG_BYTES = 8192
#: the limit of a context, bytes of stack of a thread
_STACK_SIZE = 0
#: the attribute of a function, bytes of dynamic shared memory that it may be given
_MOST_DYNAMIC_SHARED = 8
#: errors that belong to one call; after any other the process must not use the GPU again
_HARMLESS = {1, 2, 200, 209, 218, 221, 222, 500, 701}


class NoGpuError(Exception):
    """There is no NVIDIA GPU, or no driver for it."""


def needs_gpu(main: Callable[..., int]) -> Callable[..., int]:
    """Decorates the `main` of a tool: without a GPU it says so, and its exit code is 4."""

    @wraps(main)
    def wrapped(*arguments: object) -> int:
        try:
            return main(*arguments)
        except NoGpuError as error:
            name = Path(main.__code__.co_filename).name
            print(f"{name} needs an NVIDIA GPU: {error}", file=sys.stderr)
            return 4

    return wrapped


class CudaError(Exception):
    """A call of the driver failed."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code

    @property
    def is_fatal(self) -> bool:
        """Whether the process has lost the GPU with it."""
        return self.code not in _HARMLESS


class Gpu:
    """The first GPU that CUDA_VISIBLE_DEVICES leaves. Raises NoGpuError where there is none."""

    def __init__(self) -> None:
        try:
            self._cuda = ctypes.CDLL(_LIBRARY)
        except OSError as error:
            raise NoGpuError(f"no NVIDIA driver here: {error}") from None
        if code := self._cuda.cuInit(0):
            raise NoGpuError(f"the NVIDIA driver finds no GPU: {self._describe(code)}")
        count = c_int()
        self._call("cuDeviceGetCount", byref(count))
        if not count.value:
            raise NoGpuError("the NVIDIA driver finds no GPU")
        self._device = c_int()
        self._call("cuDeviceGet", byref(self._device), 0)
        self._has_context = False
        self.name = self._device_name()
        self.capability = (self._attribute(_CAPABILITY_MAJOR), self._attribute(_CAPABILITY_MINOR))
        version = c_int()
        self._call("cuDriverGetVersion", byref(version))
        #: newest CUDA version of the driver, 13000 for 13.0: that of its PTX compiler
        self.cuda = version.value
        self.driver = _driver_version()

    def run(
        self, ptx: str, entry: str, cases: int, lanes: int, inputs: Sequence[Array], result: Array
    ) -> Array:
        """Runs `entry` of a module with a block of `lanes` for each case.

        The kernel takes the addresses of the result and of the inputs, in this order. Returns an
        array of the shape and type of `result`, which is also what it holds before. Raises
        CudaError, with the compiler's words where it refuses the text.
        """
        self._use_context()
        module = self._load(ptx)
        held: list[c_uint64] = []
        try:
            function = c_void_p()
            name = c_char_p(entry.encode())
            self._call("cuModuleGetFunction", byref(function), module, name)
            for array in (result, *inputs):
                held.append(self._upload(array))
            slots = (c_void_p * len(held))(*(ctypes.addressof(address) for address in held))
            grid = [c_uint(n) for n in (cases, 1, 1, lanes, 1, 1)]
            self._call("cuLaunchKernel", function, *grid, c_uint(0), None, slots, None)
            self._call("cuCtxSynchronize")
            out = np.empty(result.shape, result.dtype)
            size = c_size_t(out.nbytes)
            self._call("cuMemcpyDtoH_v2", out.ctypes.data_as(c_void_p), held[0], size)
            return out
        finally:
            # After a fatal error these fail too; that one is the error to report.
            for address in held:
                self._cuda.cuMemFree_v2(address)
            self._cuda.cuModuleUnload(module)

    def launch(
        self,
        ptx: str,
        entry: str,
        grid: int,
        block: int,
        memory: Sequence[Array],
        by_value: Callable[[Sequence[int]], Sequence[bytes]] = lambda addresses: (),
    ) -> list[Array]:
        """Runs `entry` of a module; returns what memory holds afterwards.

        The kernel takes the addresses of the arrays, then what `by_value` makes of them. Raises
        CudaError, with the compiler's words where it refuses the text.
        """

        def arguments(addresses: Sequence[int]) -> list[bytes]:
            return [*(a.to_bytes(8, "little") for a in addresses), *by_value(addresses)]

        return self.call(ptx, entry, grid, block, memory, arguments)

    def call(
        self,
        image: str | bytes,
        entry: str,
        grid: int,
        block: int,
        memory: Sequence[Array],
        arguments: Callable[[Sequence[int]], Sequence[bytes]],
        dynamic_shared: int = 0,
    ) -> list[Array]:
        """Runs `entry` of a module, PTX or machine code; returns what memory holds afterwards.

        `arguments` makes the bytes of the kernel's parameters of the addresses of the arrays.
        """
        self._use_context()
        module = self._load(image)
        held: list[c_uint64] = []
        try:
            function = c_void_p()
            self._call("cuModuleGetFunction", byref(function), module, c_char_p(entry.encode()))
            shared = c_int(dynamic_shared)
            self._call("cuFuncSetAttribute", function, _MOST_DYNAMIC_SHARED, shared)
            held.extend(self._upload(array) for array in memory)
            given = [
                ctypes.create_string_buffer(b, len(b)) for b in arguments([a.value for a in held])
            ]
            sizes = [c_uint(n) for n in (grid, 1, 1, block, 1, 1)]
            slots = (c_void_p * len(given))(*(ctypes.addressof(argument) for argument in given))
            self._call("cuLaunchKernel", function, *sizes, shared, None, slots, None)
            self._call("cuCtxSynchronize")
            out = [np.empty(array.shape, array.dtype) for array in memory]
            for array, address in zip(out, held, strict=True):
                target = array.ctypes.data_as(c_void_p)
                self._call("cuMemcpyDtoH_v2", target, address, c_size_t(array.nbytes))
            return out
        finally:
            for address in held:
                self._cuda.cuMemFree_v2(address)
            self._cuda.cuModuleUnload(module)

    def set_stack(self, size: int) -> None:
        """Gives each thread so many bytes of stack: functions that call themselves need them."""
        self._use_context()
        self._call("cuCtxSetLimit", c_uint(_STACK_SIZE), c_size_t(size))

    def _use_context(self) -> None:
        if not self._has_context:
            context = c_void_p()
            self._call("cuDevicePrimaryCtxRetain", byref(context), self._device)
            self._call("cuCtxSetCurrent", context)
            self._has_context = True

    def _load(self, image: str | bytes) -> c_void_p:
        module = c_void_p()
        log = ctypes.create_string_buffer(_LOG_BYTES)
        options = (c_int * 2)(_JIT_ERROR_LOG, _JIT_ERROR_LOG_BYTES)
        values = (c_void_p * 2)(ctypes.addressof(log), _LOG_BYTES)
        text = c_char_p(image.encode() if isinstance(image, str) else image)
        code = self._cuda.cuModuleLoadDataEx(byref(module), text, c_uint(2), options, values)
        if code:
            said = log.value.decode(errors="replace").strip()
            raise CudaError(f"cuModuleLoadDataEx: {self._describe(code)}: {said}", code)
        return module

    def _upload(self, array: Array) -> c_uint64:
        data = np.ascontiguousarray(array)
        address = c_uint64()
        self._call("cuMemAlloc_v2", byref(address), c_size_t(max(data.nbytes, 1)))
        source = data.ctypes.data_as(c_void_p)
        self._call("cuMemcpyHtoD_v2", address, source, c_size_t(data.nbytes))
        return address

    def _call(self, function: str, *arguments: object) -> None:
        if code := getattr(self._cuda, function)(*arguments):
            raise CudaError(f"{function}: {self._describe(code)}", code)

    def _describe(self, code: int) -> str:
        text = c_char_p()
        self._cuda.cuGetErrorString(c_int(code), byref(text))
        return f"error {code}, {(text.value or b'unknown').decode()}"

    def _attribute(self, which: int) -> int:
        value = c_int()
        self._call("cuDeviceGetAttribute", byref(value), which, self._device)
        return value.value

    def _device_name(self) -> str:
        name = ctypes.create_string_buffer(256)
        self._call("cuDeviceGetName", name, len(name), self._device)
        return name.value.decode()


def _driver_version() -> str:
    """The version of the kernel driver, as 580.95.05; "unknown" where nothing tells it."""
    try:
        management = ctypes.CDLL(_MANAGEMENT)
        version = ctypes.create_string_buffer(80)
        if not management.nvmlInit_v2() and not management.nvmlSystemGetDriverVersion(version, 80):
            return version.value.decode()
    except (OSError, AttributeError):
        pass
    listed = Path("/proc/driver/nvidia/version")
    words = listed.read_text().split() if listed.exists() else []
    return next((w for w in words if w[0].isdigit() and "." in w), "unknown")
