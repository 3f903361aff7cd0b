"""Modules and libraries, their functions and variables, and linking."""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from emulator.adapters.cuda import fatbin
from emulator.adapters.cuda.calls import (
    DRIVER,
    Code,
    CudaError,
    driver,
    get,
    handles,
    lasting,
    present,
    put,
    put_text,
    refuse_if,
    text_at,
)
from emulator.adapters.cuda.chips import target
from emulator.adapters.cuda.driver.devices import device, space
from emulator.adapters.cuda.settings import settings
from emulator.errors import EmulatorError, ParseError, UnsupportedError
from emulator.machine.module import Kernel, Module
from emulator.machine.system.graph_conditions import GRAPH_CONDITIONS
from emulator.machine.system.grid_groups import GRID_GROUPS
from emulator.ptx.source import joined

_ELF = b"\x7fELF"
_ARCHIVE = b"!<arch>"
#: CUfunction_attribute of the dynamic shared memory that a program asks for
MOST_DYNAMIC = 8
#: CUjitInputType
_LTO_INPUT = 5
#: CUjit_option of the buffer for errors, and of its size
_INFO_LOG, _INFO_LOG_BYTES, _ERROR_LOG, _ERROR_LOG_BYTES = 3, 4, 5, 6
#: version of the wrapper of a fat binary that was linked of others
_LINKED = 2
#: how LLVM's bitcode begins, and NVIDIA's LTO-IR in a file of its own
_LTO = (b"BC\xc0\xde", b"\xed\x43\x4e\x7f")
#: how the names of functions begin that programs call without defining them -> their PTX
_LIBRARY = {"cudaCG": GRID_GROUPS, "cudaGraphSetConditional": GRAPH_CONDITIONS}


class Loaded:
    """A module or library: its PTX, functions and the places of its variables."""

    def __init__(self, text: str) -> None:
        try:
            program = _with_library(text)
            self.module = Module(program, target().name, memory=space().memory)
        except EmulatorError as error:
            complain("the module cannot be loaded", error)
            raise CudaError(
                Code.INVALID_PTX if isinstance(error, ParseError) else Code.NO_BINARY
            ) from None
        self.functions: dict[str, int] = {}
        #: handles of its texture references that the program has asked for
        self.references: dict[str, int] = {}
        variables = self.module.variables()
        #: address and bytes of each variable
        self.places = {
            name: (address, variables[name].nbytes)
            for name, address, _ in self.module._bound.places()
        }

    def function(self, name: str) -> int:
        refuse_if(name not in self.module.kernels, Code.NOT_FOUND)
        if name not in self.functions:
            self.functions[name] = handles.add(Function(self, name))
        return self.functions[name]


class Function:
    """A kernel of a loaded module."""

    def __init__(self, loaded: Loaded, name: str) -> None:
        self.loaded, self.name = loaded, name
        self.kernel: Kernel = loaded.module[name]
        self.set: dict[int, int] = {MOST_DYNAMIC: 48 << 10}

    @property
    def static_shared(self) -> int:
        """Bytes of shared memory that the kernel declares."""
        return max(0, self.kernel.bound.static_shared - target().reserved_shared)

    def attribute(self, which: int) -> int:
        """A CUfunction_attribute."""
        function = self.kernel.bound.function
        if which == 0:
            most = function.directives.get("maxntid") or function.directives.get("reqntid")
            return math.prod(int(x) for x in most) if most else 1024
        if which == 2:
            variables = self.loaded.module._bound.variables
            return sum(
                size
                for name, (_, size) in self.loaded.places.items()
                if variables[name].space == "const"
            )
        values = {
            1: self.static_shared, 3: function.local_bytes, 4: 32,
            5: target().number, 6: target().number,
        }  # fmt: skip
        return values.get(which, self.set.get(which, 0))

    def set_attribute(self, which: int, value: int) -> None:
        """Sets one. Raises CudaError for more shared memory than the GPU has."""
        if which == MOST_DYNAMIC and not 0 <= value <= target().shared_limit - self.static_shared:
            raise CudaError(Code.INVALID_VALUE)
        self.set[which] = value


class Linking:
    """Inputs of ``cuLink*``, and where messages about them go."""

    def __init__(self, log: int = 0, room: int = 0) -> None:
        #: each with its name
        self.texts: list[tuple[str, str]] = []
        self.result: Any = None
        self.log, self.room = log, room

    def complain(self, what: str, error: Exception, reason: str = "") -> None:
        """Says it in the program's own log, too; there the `reason` alone, if there is one."""
        complain(what, error)
        put_text(self.log, self.room, f"error   : {reason or f'{what}: {error}'}")


_loaded = partial(handles.find, kind=Loaded)
_linking = partial(handles.find, kind=Linking)
#: the kernel of a handle; CudaError where it is none of one
function_of = partial(handles.find, kind=Function)


def complain(what: str, error: Exception) -> None:
    """Says on the standard error and in the log what an error code alone would not."""
    import os

    settings().write(refused=what, reason=str(error))
    os.write(2, f"emulator: {what}: {error}\n".encode())


@contextmanager
def _told() -> Iterator[None]:
    """Says why an image cannot be loaded, and raises the CudaError for it."""
    try:
        yield
    except EmulatorError as error:
        complain("the image cannot be loaded", error)
        raise CudaError(
            Code.NO_BINARY if isinstance(error, fatbin.NoPtx) else Code.INVALID_IMAGE
        ) from None


def ptx_of(image: bytes) -> str:
    """The PTX of an image; raises CudaError where it has none for the GPU."""
    with _told():
        if image[:4] == struct.pack("<I", fatbin.MAGIC):
            return fatbin.newest(image, target().number)
        if image[:4] == _ELF:
            raise fatbin.NoPtx(
                "the image is machine code (a cubin); PTX is needed: compile to PTX instead, or "
                "embed it with nvcc -gencode arch=compute_90,code=compute_90"
            )
    return image.rstrip(b"\0").decode("utf-8", "replace")


def image_at(address: int) -> bytes:
    """The bytes of an image whose length only its content tells."""
    (magic,) = get(address, "I")
    if magic == fatbin.WRAPPER:
        return image_at(get(address, "IIQ")[2])
    if magic == fatbin.MAGIC:
        return ctypes.string_at(address, fatbin.size_of(ctypes.string_at(address, 16)))
    start = ctypes.string_at(address, 4)
    return start if start == _ELF else ctypes.string_at(address)


def _with_library(text: str) -> str:
    """A program with the functions of NVIDIA's library cudadevrt that it calls."""
    added = [more for name, more in _LIBRARY.items() if name in text]
    return (
        joined([("the program", text), *(("cudadevrt", more) for more in added)]) if added else text
    )


def program_at(wrapper: int) -> str:
    """The PTX of the fat binary that a program registers.

    A program of ``nvcc -rdc=true`` registers its linked machine code, and beside it the fat
    binaries that were linked (crt/link.stub), whose PTX is linked here.
    """
    _, version, _, linked = get(wrapper, "IIQQ")
    if version != _LINKED or not linked:
        return ptx_of(image_at(wrapper))
    texts: list[tuple[str, str]] = []
    # NVIDIA's library cudadevrt is among them, as machine code: its functions are here already.
    while image := get(linked, "Q")[0]:
        with _told():
            found = fatbin.newest_or_none(image_at(image), target().number)
        texts += [(f"file {len(texts) + 1}", found)] if found else []
        linked += 8
    return joined(texts) if texts else ptx_of(image_at(wrapper))


def _file(path: int) -> bytes:
    try:
        return Path(text_at(path)).read_bytes()
    except OSError:
        raise CudaError(Code.INVALID_FILE) from None


def _load(out: int, image: bytes) -> None:
    put(out, "Q", handles.add(Loaded(ptx_of(image))))


def _load_with(out: int, image: int, count: int, options: int, values: int) -> None:
    _options(count, options, values)
    _load(out, image_at(image))


def _known(out: int, handle: int, kind: type[object]) -> None:
    """Hands a handle of a kind on."""
    handles.find(handle, kind)
    put(out, "Q", handle)


def _options(count: int, options: int, values: int) -> dict[int, int]:
    """Options of a compilation: those with 32 bits have them in the place of a pointer. The logs
    that a program wants are empty, until there is something to say."""
    if not count:
        return {}
    given = dict(zip(get(options, f"{count}I"), get(values, f"{count}Q"), strict=True))
    for log, room in ((_INFO_LOG, _INFO_LOG_BYTES), (_ERROR_LOG, _ERROR_LOG_BYTES)):
        put_text(given.get(log, 0), given.get(room, 0) & 0xFFFFFFFF, "")
    return given


@driver("cuModuleUnload", "cuLibraryUnload")
def unload(module: int) -> None:
    loaded = handles.take(module, Loaded)
    for name, handle in loaded.references.items():
        del space().memory.textures[loaded.module.reference_handles[name][1]]
        handles.end(handle, object)
    for handle in loaded.functions.values():
        handles.end(handle, Function)
    loaded.module.unload()


@driver("cuModuleGetGlobal_v2", "cuLibraryGetGlobal", "cuLibraryGetManaged")
def get_variable(out: int, size: int, module: int, name: int) -> None:
    place = present(_loaded(module).places.get(text_at(name)), Code.NOT_FOUND)
    put(out, "Q", place[0])
    put(size, "Q", place[1])


@driver("cuLibraryEnumerateKernels", "cuModuleEnumerateFunctions")
def enumerate_functions(out: int, count: int, module: int) -> None:
    loaded = _loaded(module)
    for i, name in enumerate(loaded.module.kernels[:count]):
        put(out + 8 * i, "Q", loaded.function(name))


@driver("cuFuncGetParamInfo", "cuKernelGetParamInfo")
def parameter_info(function: int, index: int, offset: int, size: int) -> None:
    parameters = function_of(function).kernel.parameters
    refuse_if(not device.context, Code.INVALID_CONTEXT)
    refuse_if(index >= len(parameters))
    put(offset, "Q", parameters[index].offset)
    put(size, "Q", parameters[index].bytes)


# --- linking --------------------------------------------------------------------------------------


@driver("cuLinkCreate_v2")
def link_create(count: int, options: int, values: int, out: int) -> None:
    given = _options(count, options, values)
    log, room = given.get(_ERROR_LOG, 0), given.get(_ERROR_LOG_BYTES, 0)
    put(out, "Q", handles.add(Linking(log, room & 0xFFFFFFFF)))


def _add_input(linking: Linking, kind: int, data: bytes, name: str) -> int:
    if data.startswith(_ARCHIVE):
        # Libraries such as cudadevrt hold machine code of functions that are here in other forms.
        return 0
    if kind == _LTO_INPUT or data.startswith(_LTO):
        reason = "it is LTO-IR, from which a GPU's driver makes machine code; compile to PTX"
    elif data.startswith(_ELF):
        reason = "it is machine code; compile to PTX"
    else:
        text = ptx_of(data)
        linking.texts.append((name or f"text {len(linking.texts) + 1}", text))
        return 0
    linking.complain(f"{name or 'the input'} cannot be linked", UnsupportedError(reason))
    return Code.NOT_SUPPORTED


@driver("cuLinkComplete")
def link_complete(state: int, out: int, size: int) -> None:
    linking = _linking(state)
    if not linking.texts:
        linking.complain("nothing is linked", UnsupportedError("no PTX was given"))
        raise CudaError(Code.INVALID_IMAGE)
    text = joined(linking.texts)
    try:
        faults = Module(_with_library(text), target().name).link_problems
    except EmulatorError as error:
        linking.complain("the program cannot be linked", error)
        raise CudaError(
            Code.INVALID_PTX if isinstance(error, ParseError) else Code.NO_BINARY
        ) from None
    if faults:
        said = UnsupportedError(str(faults[0]))
        linking.complain("the program cannot be linked", said, faults[0].reason)
        raise CudaError(Code.INVALID_IMAGE)
    linking.result = ctypes.create_string_buffer(text.encode())
    put(out, "Q", ctypes.addressof(linking.result))
    put(size, "Q", len(linking.result))


DRIVER |= {
    "cuModuleLoad": lambda out, path: _load(out, _file(path)),
    "cuModuleLoadData": lambda out, image: _load(out, image_at(image)),
    "cuModuleLoadDataEx": _load_with,
    "cuModuleGetFunction": lambda out, module, name: put(
        out, "Q", _loaded(module).function(text_at(name))
    ),
    "cuModuleGetFunctionCount": lambda out, module: put(
        out, "I", len(_loaded(module).module.kernels)
    ),
    "cuLibraryGetModule": lambda out, library: _known(out, library, Loaded),
    "cuKernelGetFunction": lambda out, kernel: _known(out, kernel, Function),
    "cuFuncGetModule": lambda out, function: put(
        out, "Q", handles.handle_of(function_of(function).loaded)
    ),
    "cuFuncGetName": lambda out, function: put(out, "Q", lasting(function_of(function).name)),
    "cuFuncGetAttribute": lambda out, which, function: put(
        out, "i", function_of(function).attribute(which)
    ),
    "cuFuncSetAttribute": lambda function, which, value: function_of(function).set_attribute(
        which, value
    ),
    "cuFuncIsLoaded": lambda out, function: put(out, "I", 1),
    "cuFuncGetParamCount": lambda function, out: put(
        out, "Q", len(function_of(function).kernel.parameters)
    ),
    "cuLinkAddData_v2": lambda state, kind, data, size, name, *_: _add_input(
        _linking(state), kind, ctypes.string_at(data, size), text_at(name) if name else ""
    ),
    "cuLinkAddFile_v2": lambda state, kind, path, *_: _add_input(
        _linking(state), kind, _file(path), Path(text_at(path)).name
    ),
    "cuLinkDestroy": lambda state: handles.end(state, Linking),
}
