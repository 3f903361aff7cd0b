"""Tables of the CUDA interfaces: functions with the kinds of their arguments, and error codes.

Each argument is a letter: ``p`` a pointer or handle, ``z`` 64 bits, ``i`` and ``u`` 32 bits, ``h``
16 and ``b`` 8 bits, ``f`` a float, ``d`` a dim3, and a digit a structure of that many 64-bit words,
passed by value. A function may be another one by another name, or with other arguments:
``other(201-)`` takes arguments 2, 0 and 1 of it, and 0.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping, Sequence
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


Implementation = Callable[..., "int | None"]


class Function(NamedTuple):
    """One exported function."""

    name: str
    kinds: str
    #: the first CUDA version that has it; 0 for the runtime
    version: int = 0
    #: the function that does the same, where it has another name
    meaning: str = ""
    #: numbers of the arguments that it takes, where it takes others
    places: str = ""

    def found(self, known: Mapping[str, Implementation]) -> Implementation | None:
        """What does it, among functions by their names; None where nothing does."""
        function = known.get(self.meaning or self.name)
        if function is None or not self.places:
            return function
        chosen = [None if x == "-" else int(x) for x in self.places]
        return lambda *given: function(*(0 if i is None else given[i] for i in chosen))

    @property
    def layout(self) -> struct.Struct:
        """The words of its arguments."""
        return struct.Struct("<" + "".join(_FORMATS[kind] for kind in self.kinds))


def others(
    functions: Sequence[Function], known: Mapping[str, Implementation]
) -> dict[str, Implementation]:
    """By name, the functions that known ones do by another name."""
    return {x.name: found for x in functions if x.meaning and (found := x.found(known))}


def _rows(name: str, splits: int = -1) -> list[list[str]]:
    lines = (_HERE / name).read_text().splitlines()
    return [line.split(maxsplit=splits) for line in lines if not line.startswith("#")]


@cache
def functions_of(table: str) -> tuple[Function, ...]:
    """The functions of a table in the order of their trampolines: driver (libcuda.so.1), runtime
    (libcudart.so.13), runtime12 (what libcudart.so.12 has otherwise), nvml (libnvidia-ml.so.1)."""
    made = []
    for name, *row in _rows(f"{table}.txt"):
        version = int(row.pop(0)) if table == "driver" else 0
        meaning, _, places = (row[1] if row[1:] else "").partition("(")
        made.append(Function(name, row[0].strip("-"), version, meaning, places.rstrip(")")))
    return tuple(made)


@cache
def runtime12_functions() -> tuple[Function, ...]:
    """The functions of libcudart.so.12, in the order of their trampolines."""
    other = functions_of("runtime12")
    names = {function.name for function in other}
    return (*(f for f in functions_of("runtime") if f.name not in names), *other)


class ErrorTexts(NamedTuple):
    """Names of an error in cuda.h and in cuda_runtime_api.h, "-" where one has no such code, and
    its description."""

    driver: str
    runtime: str
    said: str = "an error that CUDA 13.0 does not have"


@cache
def errors() -> dict[int, ErrorTexts]:
    rows = _rows("errors.txt", 3)
    return {int(code): ErrorTexts(*texts) for code, *texts in rows}


def symbol_for(name: str, version: int) -> str | None:
    """The symbol that ``cuGetProcAddress`` finds for a program built for a CUDA version."""
    known = [f for f in functions_of("driver") if f.name.startswith(name)]
    if "_v" in name and any(f.name == name for f in known):
        return name
    versions = [f for f in known if re.fullmatch(r"(_v\d+)?", f.name[len(name) :])]
    fitting = [(f.version, f.name) for f in versions if f.version <= version]
    return max(fitting)[1] if fitting else None
