"""The process in which a program runs: calls of the shared libraries come in here."""

from __future__ import annotations

import atexit
import ctypes
import threading
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from emulator.adapters.cuda.calls import Code, CudaError, after_call, process
from emulator.adapters.cuda.settings import settings
from emulator.adapters.cuda.tables import (
    Function,
    Implementation,
    functions_of,
    runtime12_functions,
)

_TARGET = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int, ctypes.c_void_p)
#: functions of the driver that need no cuInit, as on an H200 (asked 2026-11-28); some others see a
#: null pointer or a handle that is none first there, and return 1, 201 or 400 instead of 3
_ANYTIME = (
    "cuInit", "cuDriverGetVersion", "cuGetErrorName", "cuGetErrorString", "cuGetProcAddress",
    "cuGetProcAddress_v2", "cuGetExportTable",
)  # fmt: skip
#: one call at a time
_lock = threading.RLock()
#: what must live as long as C may call it
_kept: list[Any] = []


def attach(library: str, slot: int, end_calls: int, call_later: int) -> None:
    """Lets the trampolines of a library call this process's Python.

    `slot` is the address of their function pointer, `end_calls` that of the function that switches
    them off, which happens before Python ends, and `call_later` that of the function that keeps a
    call for later.
    """

    from emulator.adapters.cuda.driver import DRIVER

    if library == "libcuda.so.1":
        target = _target(functions_of("driver"), DRIVER, lambda code: code, call_later, True)
    elif library == "libnvidia-ml.so.1":
        from emulator.adapters.cuda.nvml import NVML, code_of

        target = _target(functions_of("nvml"), NVML, code_of, call_later)
    else:
        from emulator.adapters.cuda.runtime import RUNTIME, remember

        functions = runtime12_functions() if library.endswith("12") else functions_of("runtime")
        process.initialize()
        # Functions of the driver are here for what only libcudart.so.12 has.
        target = _target(functions, {**DRIVER, **RUNTIME}, remember, call_later)
    end = ctypes.CFUNCTYPE(None)(end_calls)
    _kept.append((target, end))
    atexit.register(end)
    ctypes.c_void_p.from_address(slot).value = ctypes.cast(target, ctypes.c_void_p).value


def _target(
    functions: Sequence[Function],
    known: dict[str, Implementation],
    remember: Callable[[int], int],
    call_later: int,
    after_init: bool = False,
) -> Any:
    """The function that all trampolines of a library call; `after_init`: most want cuInit first."""
    rows = [(f.found(known), f.layout.unpack, f.layout.size, f.name) for f in functions]
    waits = [after_init and f.name not in _ANYTIME for f in functions]
    text = ctypes.string_at
    later = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(call_later)

    def called(index: int, words: int) -> int:
        function, unpack, size, name = rows[index]
        if process.is_forked or (waits[index] and not process.is_initialized):
            return remember(Code.NOT_INITIALIZED)
        if function is None:
            settings().missing(name)
            return remember(Code.NOT_SUPPORTED)
        try:
            with _lock:
                return function(*unpack(text(words, size))) or 0
        except CudaError as error:
            return remember(error.code)
        except Exception:
            traceback.print_exc()
            return remember(Code.UNKNOWN)
        finally:
            while after_call:
                later(*after_call.pop())

    return _TARGET(called)
