"""Variables of a module: where they lie, and the bytes that they start with (PTX ISA 5.1, 5.4)."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

from dtypes import FORMATS, Array, encode
from emulator.errors import OperandError, UnsupportedError, hint
from emulator.memory.allocation import zeros_at
from emulator.ptx import tree
from emulator.ptx.binding import BindError
from emulator.ptx.names import Symbol

#: type of a variable -> bytes of an element
ELEMENT_BYTES = {
    "b8": 1, "u8": 1, "s8": 1, "b16": 2, "u16": 2, "s16": 2, "f16": 2, "bf16": 2,
    "b32": 4, "u32": 4, "s32": 4, "f32": 4, "f16x2": 4, "bf16x2": 4,
    "b64": 8, "u64": 8, "s64": 8, "f64": 8, "b128": 16,
}  # fmt: skip


#: types of variables that are handles, and the state space that statements name them in
OPAQUE = {"texref": "texture", "samplerref": "sampler", "surfref": "surface"}


class Extent(NamedTuple):
    """The size of a variable; an array without a size takes none."""

    element_bytes: int
    bytes: int
    alignment: int


def extent(variable: tree.Variable) -> Extent:
    """Raises UnsupportedError for textures, samplers and surfaces, OperandError for other types
    that are none."""
    if variable.type in OPAQUE:
        raise UnsupportedError(f".{variable.type} is legal PTX, not modelled here")
    size = ELEMENT_BYTES.get(variable.type)
    if size is None:
        known = [f".{name}" for name in ELEMENT_BYTES]
        near = hint(f".{variable.type}", known)
        raise OperandError(f"a variable cannot be .{variable.type:.80}{near}")
    size *= variable.vector
    count = prod(d or 0 for d in variable.dimensions)
    if variable.dimensions and not variable.dimensions[0] and variable.initialiser is not None:
        count = _given(variable)
    alignment = variable.alignment or size
    return Extent(size, size * count, alignment)


def is_incomplete(variable: tree.Variable) -> bool:
    """True if an array does not say how many elements it has: ``x[]``, or ``x[0]``, which ptxas
    treats alike."""
    return bool(variable.dimensions) and not variable.dimensions[0] and not _given(variable)


def check_complete(variable: tree.Variable) -> None:
    """Raises BindError for an array without elements, unless it is declared as .extern."""
    name = variable.name.text
    if 0 in variable.dimensions[1:]:
        raise BindError(f"{name!r} is an array of arrays that have no elements", variable.name.at)
    if is_incomplete(variable) and variable.linkage != "extern":
        raise BindError(
            f"{name!r} has no elements: legal are a number from 1 on, initial values, .extern, and "
            "x[] as the last parameter of a .func",
            variable.name.at,
        )


def _given(variable: tree.Variable) -> int:
    """Elements of ``x[]`` that its initial values make."""
    values = variable.initialiser
    if values is None:
        return 0
    outer = len(values.items) if isinstance(values, tree.Values) else 1
    return outer * prod(d or 1 for d in variable.dimensions[1:])


@dataclass(frozen=True)
class Placement:
    """Variables of one space, one after the other."""

    symbols: dict[str, Symbol]
    #: first byte behind the last one
    end: int


def place(variables: Iterable[tree.Variable], start: int, space: str, gap: int = 0) -> Placement:
    """Places variables from `start` on in the order of declaration, each at its alignment."""
    symbols: dict[str, Symbol] = {}
    end = start
    for variable in variables:
        room = extent(variable)
        address = -(-end // room.alignment) * room.alignment
        name = variable.name.text
        symbols[name] = Symbol(name, space, address, room.element_bytes, room.bytes)
        end = address + room.bytes + gap
    return Placement(symbols, end)


def initial_bytes(
    variable: tree.Variable, symbols: Mapping[str, Symbol], functions: Mapping[str, int]
) -> Array:
    """The bytes that a variable starts with; zeros behind the values that are given."""
    room = extent(variable)
    out = zeros_at(symbols[variable.name.text].place, room.bytes)
    if variable.initialiser is None:
        return out
    size = room.element_bytes // variable.vector
    sizes = [d or 0 for d in variable.dimensions]
    if sizes and sizes[0] == 0:
        sizes[0] = room.bytes // room.element_bytes // max(1, prod(sizes[1:]))
    if variable.vector > 1:
        sizes.append(variable.vector)
    writer = _Writer(variable.type, size, symbols, functions, out.data, variable.name.at)
    writer.write(variable.initialiser, sizes, 0)
    return out


@dataclass(frozen=True)
class _Writer:
    type: str
    size: int
    symbols: Mapping[str, Symbol]
    functions: Mapping[str, int]
    out: memoryview
    #: where the variable stands in the text
    at: int

    def write(self, value: tree.Initialiser, sizes: list[int], place: int) -> None:
        """Values of an array of `sizes` whose first element has the number `place`."""
        if isinstance(value, tree.Values):
            inner = prod(sizes[1:])
            step = inner if len(sizes) > 1 else 1
            for i, item in enumerate(value.items):
                nested = isinstance(item, tree.Values)
                self.write(item, sizes[1:] if nested else [], place + i * (step if nested else 1))
            return
        raw = self._bytes(value)
        start = place * self.size
        if start + len(raw) > len(self.out):
            raise BindError("more values than the variable has elements:", self.at)
        self.out[start : start + len(raw)] = raw

    def _bytes(self, value: tree.Initialiser) -> bytes:
        if isinstance(value, tree.SymbolAddress):
            return self._address(value)
        if isinstance(value, int):
            return (value & (1 << 8 * self.size) - 1).to_bytes(self.size, "little")
        if not isinstance(value, tree.Float):
            raise BindError("no value of a variable:", value.at)
        if value.width == 8 * self.size:
            return value.bits.to_bytes(self.size, "little")
        if self.type in ("f32", "f16", "bf16"):
            word = int(encode(FORMATS[self.type], value.value))
            return word.to_bytes(self.size, "little")
        return struct.pack("<d", value.value)[: self.size]

    def _address(self, value: tree.SymbolAddress) -> bytes:
        if value.name in self.functions:
            address = self.functions[value.name]
        elif value.name in self.symbols:
            address = self.symbols[value.name].place
        else:
            raise BindError(f"{value.name!r} is not declared", value.at)
        address += value.offset
        if value.mask is not None:
            shift = (value.mask & -value.mask).bit_length() - 1
            address = (address & value.mask) >> shift
        return (address & (1 << 8 * self.size) - 1).to_bytes(self.size, "little")
