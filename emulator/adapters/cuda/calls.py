"""Shared parts of driver and runtime functions: arguments, errors, handles, memory."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import cache, lru_cache
from typing import Any, TypeVar

from emulator.adapters.cuda.tables import Implementation

T = TypeVar("T")
#: what is there of libcuda.so.1 and of libcudart.so, by symbol
DRIVER: dict[str, Implementation] = {}
RUNTIME: dict[str, Implementation] = {}


class Code(IntEnum):
    """What calls return where they fail: a CUresult, and the cudaError_t of that number."""

    INVALID_VALUE, OUT_OF_MEMORY, NOT_INITIALIZED = 1, 2, 3
    INVALID_SYMBOL, INVALID_DEVICE_FUNCTION = 13, 98  # of the runtime alone
    INVALID_DEVICE, INVALID_IMAGE, INVALID_CONTEXT = 101, 200, 201
    NO_BINARY, INVALID_PTX, INVALID_FILE = 209, 218, 301
    INVALID_HANDLE, ILLEGAL_STATE, NOT_FOUND, NOT_READY = 400, 401, 500, 600
    ALREADY_REGISTERED, LAUNCH_FAILED, COOPERATIVE_LAUNCH_TOO_LARGE = 712, 719, 720
    NOT_SUPPORTED, CAPTURE_UNSUPPORTED, CAPTURE_INVALIDATED = 801, 900, 901
    CAPTURE_MERGE, CAPTURE_UNMATCHED, CAPTURE_UNJOINED, CAPTURED_EVENT = 902, 903, 904, 907
    GRAPH_UPDATE_FAILED, UNKNOWN = 910, 999


class CudaError(Exception):
    """A call ends with this error code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def refuse_if(wrong: object, code: int = Code.INVALID_VALUE) -> None:
    """Ends the call with an error code where something is wrong."""
    if wrong:
        raise CudaError(code)


def present(found: T | None, code: int = Code.INVALID_VALUE) -> T:
    """What was found; ends the call with an error code where it is None."""
    if found is None:
        raise CudaError(code)
    return found


def driver(*names: str) -> Callable[[Implementation], Implementation]:
    """Registers a function under its symbols in libcuda.so.1."""
    return lambda function: _register(DRIVER, names, function)


def runtime(*names: str) -> Callable[[Implementation], Implementation]:
    """Registers a function under its symbols in libcudart.so."""
    return lambda function: _register(RUNTIME, names, function)


def _register(
    known: dict[str, Implementation], names: Sequence[str], function: Implementation
) -> Implementation:
    known.update(dict.fromkeys(names, function))
    return function


@lru_cache(maxsize=256)
def _layout(form: str) -> struct.Struct:
    return struct.Struct("=" + form)


def put(address: int, form: str, *values: Any) -> None:
    """Writes values where a caller wants them; nothing at a null pointer."""
    if address:
        layout = _layout(form)
        ctypes.memmove(address, layout.pack(*values), layout.size)


def get(address: int, form: str) -> tuple[Any, ...]:
    """Reads values that a caller points to; raises CudaError for a null pointer."""
    refuse_if(not address)
    layout = _layout(form)
    return layout.unpack(ctypes.string_at(address, layout.size))


def text_at(address: int) -> str:
    """A string in C."""
    refuse_if(not address)
    return ctypes.string_at(address).decode("utf-8", "replace")


def put_text(address: int, room: int, text: str) -> None:
    """Writes a string in C of at most `room` bytes."""
    if address and room > 0:
        raw = text.encode()[: room - 1] + b"\0"
        ctypes.memmove(address, raw, len(raw))


@cache
def _kept(text: str) -> Any:
    return ctypes.create_string_buffer(text.encode())


def lasting(text: str) -> int:
    """The address of a string in C that lives as long as the process."""
    return ctypes.addressof(_kept(text))


class Handles:
    """Objects by the numbers that programs know them by."""

    def __init__(self) -> None:
        self._objects: dict[int, Any] = {}
        self._next = 0x10000

    def add(self, made: Any) -> int:
        """A new handle."""
        self._next += 64
        self._objects[self._next] = made
        return self._next

    def handle_of(self, made: object) -> int:
        """The handle of an object that has one."""
        return next((h for h, held in self._objects.items() if held is made), 0)

    def of_kind(self, kind: type[T]) -> list[T]:
        """All objects of a kind that have a handle."""
        return [held for held in self._objects.values() if isinstance(held, kind)]

    def find(self, handle: int, kind: type[T]) -> T:
        """The object of a handle; raises CudaError for one that is not of the kind."""
        found = self._objects.get(handle)
        if not isinstance(found, kind):
            raise CudaError(Code.INVALID_HANDLE)
        return found

    def end(self, handle: int, kind: type[T]) -> None:
        self.take(handle, kind)

    def take(self, handle: int, kind: type[T]) -> T:
        """Removes a handle and returns its object."""
        found = self.find(handle, kind)
        del self._objects[handle]
        return found


handles = Handles()
#: functions of the program's own, each with its argument, that are called when this call is over
after_call: list[tuple[int, int]] = []


class Process:
    """What calls need to know of this process."""

    def __init__(self) -> None:
        self.is_initialized = False
        #: this is the fork of a process that used the driver: then no call works, as on a GPU
        self.is_forked = False

    def initialize(self) -> None:
        """Lets functions of the driver work; a fork of the process may call none of them."""
        if not self.is_initialized:
            self.is_initialized = True
            os.register_at_fork(after_in_child=self._forked)

    def _forked(self) -> None:
        self.is_forked = True


process = Process()
