"""Tables of the CUDA interfaces: functions with the kinds of their arguments, and error codes.

Each argument is a letter: ``p`` a pointer or handle, ``z`` 64 bits, ``i`` and ``u`` 32 bits, ``h``
16 and ``b`` 8 bits, ``f`` a float, ``d`` a dim3, and a digit a structure of that many 64-bit words,
passed by value.
"""

from __future__ import annotations

import struct
from functools import cache
from pathlib import Path
from typing import NamedTuple

#: letter -> the type in C
C_TYPES = {
    "p": "uint64_t", "z": "uint64_t", "i": "int32_t", "u": "uint32_t", "h": "uint16_t",
    "b": "uint8_t", "f": "float", "d": "Dim3", "1": "Words1", "3": "Words3", "4": "Words4",
    "8": "Words8",
}  # fmt: skip
#: letter -> how `struct` reads the argument from the 64-bit words that a trampoline hands over
_FORMATS = {
    "p": "Q", "z": "Q", "i": "i4x", "u": "I4x", "h": "H6x", "b": "B7x", "f": "f4x", "d": "III4x",
    "1": "Q", "3": "QQQ", "4": "QQQQ", "8": "64s",
}  # fmt: skip
_HERE = Path(__file__).parent


class Function(NamedTuple):
    """One exported function."""

    name: str
    #: the first CUDA version that has it; 0 for the runtime
    version: int
    kinds: str
    #: the function that does the same, where it has another name
    meaning: str = ""

    @property
    def layout(self) -> struct.Struct:
        """The words of its arguments."""
        return struct.Struct("<" + "".join(_FORMATS[kind] for kind in self.kinds))


def _rows(name: str, splits: int = -1) -> list[list[str]]:
    lines = (_HERE / name).read_text().splitlines()
    return [line.split(maxsplit=splits) for line in lines if not line.startswith("#")]


@cache
def driver_functions() -> tuple[Function, ...]:
    """The functions of libcuda.so.1, in the order of their trampolines."""
    return tuple(
        Function(name, int(version), kinds.strip("-"))
        for name, version, kinds in _rows("driver.txt")
    )


@cache
def runtime_functions() -> tuple[Function, ...]:
    """The functions of libcudart.so.13, in the order of their trampolines."""
    return tuple(Function(name, 0, kinds.strip("-")) for name, kinds in _rows("runtime.txt"))


@cache
def runtime12_functions() -> tuple[Function, ...]:
    """The functions of libcudart.so.12, in the order of their trampolines."""
    other = [Function(n, 0, kinds.strip("-"), same) for n, kinds, same in _rows("runtime12.txt")]
    names = {function.name for function in other}
    return (*(f for f in runtime_functions() if f.name not in names), *other)


@cache
def nvml_functions() -> tuple[Function, ...]:
    """The functions of libnvidia-ml.so.1, in the order of their trampolines."""
    return tuple(Function(name, 0, kinds.strip("-")) for name, kinds in _rows("nvml.txt"))


class ErrorTexts(NamedTuple):
    """Names of an error in cuda.h and in cuda_runtime_api.h, "-" where one has no such code, and
    its description."""

    driver: str
    runtime: str
    said: str = "an error that CUDA 13.0 does not have"


@cache
def errors() -> dict[int, ErrorTexts]:
    """The errors by their codes."""
    rows = _rows("errors.txt", 3)
    return {int(code): ErrorTexts(*texts) for code, *texts in rows}


@cache
def symbols_of(name: str) -> tuple[Function, ...]:
    """The versions of a driver function, oldest first, by the name without a suffix."""
    return tuple(
        f
        for f in driver_functions()
        if f.name == name or (f.name.rpartition("_v")[0] == name and f.name[-1].isdigit())
    )


def symbol_for(name: str, version: int) -> str | None:
    """The symbol that ``cuGetProcAddress`` finds for a program built for a CUDA version."""
    fitting = [f for f in symbols_of(name) if f.version <= version]
    exact = [f.name for f in driver_functions() if f.name == name and "_v" in name]
    if exact:
        return exact[0]
    return max(fitting, key=lambda f: (f.version, f.name)).name if fitting else None
