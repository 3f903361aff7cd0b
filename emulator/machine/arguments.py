"""Arguments of a launch: arrays into memory, numbers and maps into the bytes of the parameters."""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import numpy as np

from dtypes import Array
from emulator.arrays import address_of
from emulator.errors import OperandError, hint, listing, quoted, shown
from emulator.memory.allocation import Allocation, fits
from emulator.memory.arena import Arena, bytes_view
from emulator.memory.surface import Surface
from emulator.memory.tensor_map import TensorMap
from emulator.memory.tensor_map_bits import BYTES as BYTES_OF_A_MAP
from emulator.memory.texture import Texture
from emulator.memory.untouched import copy_changed
from emulator.ptx.program import Function, Parameter

#: types of parameters -> the NumPy type of their numbers; what is missing holds bits
_NUMBERS = {
    "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64",
    "s8": "int8", "s16": "int16", "s32": "int32", "s64": "int64",
    "f16": "float16", "f32": "float32", "f64": "float64",
    "b8": "uint8", "b16": "uint16", "b32": "uint32", "b64": "uint64",
}  # fmt: skip


class HasArrays(Protocol):
    """The part of a `Memory` that arguments need; `Memory` builds on this file."""

    @property
    def arrays(self) -> list[tuple[int, Array, str]]: ...


class Copied(NamedTuple):
    """A caller's array that a launch works on a copy of: a part of an allocation, from `offset`."""

    array: Array
    allocation: Allocation
    offset: int


class Named(NamedTuple):
    """What a variable of type .texref or .surfref names, and its handle."""

    name: str
    handle: int
    given: Texture | Surface


@dataclass
class Placed:
    """Placed arguments: the bytes of all parameters, and the arrays to write back to."""

    parameters: bytes = b""
    copied: list[Copied] = field(default_factory=list)
    #: whether all arrays are copied
    apart: bool = False

    def place(
        self,
        arena: Arena,
        name: str,
        array: Array,
        address: int,
        writable: bool,
        like: Array | None = None,
    ) -> Allocation:
        """Places an array at an address: in place, or as a copy where its bytes have another
        alignment."""
        raw = bytes_view(array)
        held = raw if fits(raw, address) and not self.apart else None
        made = arena.allocate(
            name, raw.nbytes, address=address, held=held, contents=raw, writable=writable, like=like
        )
        if held is None:
            self.copied.append(Copied(array, made, 0))
        return made

    def read_again(self) -> None:
        """Copies arrays once more that may have changed."""
        for array, made, offset in self.copied:
            copy_changed(made.held[offset : offset + array.nbytes], bytes_view(array))

    def write_back(self, arena: Arena) -> None:
        """Gives the caller's arrays what the kernel has written to copies of them."""
        for array, made, offset in self.copied:
            if array.flags.writeable:
                to = bytes_view(array)
                arena.journal.note(to)
                copy_changed(to, made.held[offset : offset + array.nbytes])


def place_arguments(
    placed: Placed,
    arena: Arena,
    function: Function,
    given: Sequence[object] | Mapping[str, object],
    named: Sequence[Named] = (),
) -> None:
    """Places arrays in the arena and packs the parameters; `named` is what a module has in its own
    textures and surfaces.

    Raises OperandError for a wrong number, kind, type or size of arguments.
    """
    names = [parameter.name for parameter in function.parameters]
    values = _in_order(function, given)
    labels = _labels(given, names)
    arrays = [
        (label, array)
        for label, x in zip(labels, values, strict=True)
        if (array := _array_of(x, label)) is not None
    ]
    arrays += [(x.name, x.given.array) for x in named if isinstance(x.given, Surface)]
    addresses = _place_arrays(arena, arrays, placed)
    for each in named:
        _name(arena, each.handle, each.given, addresses)
    raw = bytearray(max((p.offset + p.bytes for p in function.parameters), default=0))
    for parameter, label, value in zip(function.parameters, labels, values, strict=True):
        if isinstance(value, (Texture, Surface)):
            value = _handle(arena, parameter, label, value, addresses)
        held = packed(parameter, label, value, addresses)
        raw[parameter.offset : parameter.offset + parameter.bytes] = held
    placed.parameters = bytes(raw)


#: the first handles of a launch, of textures and of surfaces: addresses that lead nowhere
_TEXTURES, _SURFACES = 0x7E00_0000_0000, 0x7E80_0000_0000


def _handle(
    arena: Arena,
    parameter: Parameter,
    label: str,
    given: Texture | Surface,
    addresses: dict[int, int],
) -> int:
    """The handle by which the kernel finds a texture or a surface."""
    if parameter.bytes != 8:
        raise OperandError(
            f"parameter {label} is .{parameter.type} of {parameter.bytes} bytes; a "
            f"{type(given).__name__} is passed as a handle of 8"
        )
    handle = (_TEXTURES if isinstance(given, Texture) else _SURFACES) + parameter.offset
    _name(arena, handle, given, addresses)
    return handle


def _name(arena: Arena, handle: int, given: Texture | Surface, addresses: dict[int, int]) -> None:
    """Lets kernels find a texture or a surface by its handle."""
    if isinstance(given, Texture):
        arena.textures[handle] = given
    else:
        address = addresses[address_of(given.array)]
        arena.surfaces[handle] = replace(given.texels, address=address)


def arrays_of(
    function: Function, given: Sequence[object] | Mapping[str, object], memory: HasArrays | None
) -> list[tuple[str, Array]]:
    """Names and arrays of what a launch reads and writes: arguments, also under tensor maps, and
    what a `Memory` holds. Raises OperandError as `place_arguments`."""
    values = _in_order(function, given)
    labels = _labels(given, [parameter.name for parameter in function.parameters])
    held = [(label, _array_of(value, label)) for label, value in zip(labels, values, strict=True)]
    mapped = [] if memory is None else [(name, array) for _, array, name in memory.arrays]
    return [(label, array) for label, array in held if array is not None] + mapped


def _in_order(function: Function, given: Sequence[object] | Mapping[str, object]) -> list[object]:
    names = [parameter.name for parameter in function.parameters]
    if not isinstance(given, (Sequence, Mapping)) or isinstance(given, (str, bytes)):
        raise OperandError(
            f"args is a list with an entry for each parameter, or a dict that names them; got "
            f"{type(given).__name__}"
        )
    if isinstance(given, Mapping) and set(given) == set(names):
        return [given[name] for name in names]
    if isinstance(given, Mapping) and set(given) & set(names):
        others = [str(name) for name in given if name not in names]
        if not others:
            lacking = listing((name for name in names if name not in given), 40)
            raise OperandError(f"{function.name} has parameters that args does not name: {lacking}")
        raise OperandError(
            f"{function.name} has no parameter {quoted(others[0])}; parameters are "
            f"{listing(names, 40)}{hint(others[0], names)}"
        )
    values = list(given.values()) if isinstance(given, Mapping) else list(given)
    if len(values) != len(names):
        kinds = listing((f".{p.type} {p.name}" for p in function.parameters), 40)
        raise OperandError(
            f"{function.name} takes {len(names)} arguments{f' ({kinds})' if kinds else ''}; "
            f"{len(values)} are given"
        )
    return values


def _labels(given: Sequence[object] | Mapping[str, object], names: Sequence[str]) -> list[str]:
    if isinstance(given, Mapping) and set(given) != set(names):
        return [str(name) for name in given]
    return list(names)


def _array_of(value: object, label: str) -> Array | None:
    """The array that an argument is, or that its surface or tensor map describes."""
    if isinstance(value, Surface):
        value = value.array
    if isinstance(value, TensorMap):
        value = value.array
        return None if value is None else array_of_argument(value, label)
    is_tensor = "torch" in sys.modules and isinstance(value, sys.modules["torch"].Tensor)
    if is_tensor or (isinstance(value, np.ndarray) and value.ndim):
        return array_of_argument(value, label)
    return None


def array_of_argument(value: object, label: str) -> Array:
    """An argument's array; a tensor's memory as one."""
    from emulator.arrays import array_of_tensor

    array = array_of_tensor(value, label)
    if not isinstance(array, np.ndarray) or isinstance(array, np.ma.MaskedArray):
        raise OperandError(f"{label} is an array; got {type(value).__name__}")
    if not array.flags.c_contiguous:
        raise OperandError(
            f"{label} is not C-contiguous: shape {array.shape}, strides {array.strides}; "
            "np.ascontiguousarray makes a copy that is"
        )
    if array.dtype.hasobject or not array.dtype.isnative:
        raise OperandError(f"{label} holds {array.dtype}; numbers of the machine's own are needed")
    return array


def _place_arrays(
    arena: Arena, arrays: Sequence[tuple[str, Array]], placed: Placed
) -> dict[int, int]:
    """Places arrays, each once: the address of each by its id.

    Arrays that share memory share it in the arena too: the one that spans the others, in place, or
    a copy of all.
    """
    spans: list[tuple[int, int, list[tuple[str, Array]]]] = []
    for label, array in sorted(arrays, key=lambda x: address_of(x[1])):
        first = address_of(array)
        if spans and first < spans[-1][1]:
            low, high, held = spans.pop()
            spans.append((low, max(high, first + array.nbytes), [*held, (label, array)]))
        else:
            spans.append((first, first + array.nbytes, [(label, array)]))
    addresses: dict[int, int] = {}
    for low, high, held in spans:
        name, largest = max(held, key=lambda x: x[1].nbytes)
        writable = any(array.flags.writeable for _, array in held)
        raw = bytes_view(largest)
        spans_all = raw.nbytes == high - low and raw.flags.writeable == writable
        in_place = spans_all and fits(raw, 0) and not placed.apart
        made = arena.allocate(
            name, high - low, held=raw if in_place else None, writable=writable, like=largest
        )
        for _, array in held:
            offset = address_of(array) - low
            if not in_place:
                copy_changed(made.held[offset : offset + array.nbytes], bytes_view(array))
                placed.copied.append(Copied(array, made, offset))
            addresses[address_of(array)] = made.address + offset
    return addresses


def packed(parameter: Parameter, label: str, value: object, addresses: dict[int, int]) -> bytes:
    """The bytes of one parameter."""
    if isinstance(value, TensorMap):
        return _sized(parameter, label, _map_bytes(value, label, addresses))
    if isinstance(value, (bytes, bytearray, memoryview)):
        return _sized(parameter, label, bytes(value))
    array = _array_of(value, label)
    if array is not None:
        if parameter.bytes != 8:
            raise OperandError(
                f"parameter {label} is .{parameter.type} of {parameter.bytes} bytes; an array is "
                f"passed as an address of 8{_of_a_map(parameter)}"
            )
        return addresses[address_of(array)].to_bytes(8, "little")
    return _number(parameter, label, value)


def _of_a_map(parameter: Parameter) -> str:
    is_map = parameter.bytes == BYTES_OF_A_MAP
    return "; give a TensorMap of it (in a shell tensormap:A.npy:box=64x64)" if is_map else ""


def _map_bytes(value: TensorMap, label: str, addresses: dict[int, int]) -> bytes:
    array = _array_of(value, label)
    if array is None:
        return value.encode()
    return value.with_address(addresses[address_of(array)]).encode()


def _sized(parameter: Parameter, label: str, raw: bytes) -> bytes:
    if len(raw) != parameter.bytes:
        raise OperandError(f"parameter {label} has {parameter.bytes} bytes; {len(raw)} are given")
    return raw


def _number(parameter: Parameter, label: str, value: object) -> bytes:
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if value is None and parameter.bytes == 8:
        return bytes(8)
    if isinstance(value, np.generic) and not isinstance(value, np.bool_):
        if value.dtype.itemsize != parameter.bytes or parameter.count > 1:
            raise OperandError(
                f"parameter {label} is .{parameter.type}; got {value.dtype.name} {shown(value)}"
            )
        own = _NUMBERS.get(parameter.type, "")
        floats = np.dtype(own).kind == "f" if own else False
        if floats and value.dtype.kind in "iu":
            raise OperandError(f"parameter {label} is .{parameter.type}; got {shown(value)}")
        return value.tobytes()
    if parameter.count > 1 or parameter.type not in _NUMBERS:
        raise OperandError(
            f"parameter {label} has {parameter.bytes} bytes (.{parameter.type}); give bytes of "
            f"that size, or a TensorMap; got {type(value).__name__}"
        )
    return _python_number(parameter, label, value)


def _python_number(parameter: Parameter, label: str, value: object) -> bytes:
    type_ = np.dtype(_NUMBERS[parameter.type])
    if isinstance(value, (bool, np.bool_)):
        value = int(value)
    if isinstance(value, int):
        if type_.kind == "f":
            return _rounded(parameter, label, value, type_)
        bits = 8 * parameter.bytes
        if not -(1 << bits - 1) <= value < 1 << bits:
            raise OperandError(f"parameter {label} has {bits} bits; got {shown(value)}")
        return (value & (1 << bits) - 1).to_bytes(parameter.bytes, "little")
    if isinstance(value, float):
        if type_.kind == "f" or (parameter.type in ("b32", "b64")):
            width = {4: np.float32, 8: np.float64, 2: np.float16}[parameter.bytes]
            return _rounded(parameter, label, value, np.dtype(width))
        raise OperandError(f"parameter {label} is .{parameter.type}; got the float {value!r}")
    kinds = ("an array", "a number", "bytes", "a TensorMap", "a Texture", "a Surface")
    raise OperandError(
        f"argument {label} is {listing(kinds)}; got {type(value).__name__}"
        f"{hint(type(value).__name__, ('ndarray', 'Tensor'))}"
    )


def _rounded(parameter: Parameter, label: str, value: float, type_: np.dtype[Any]) -> bytes:
    """A number as the nearest one of a floating-point type, where there is a finite one."""
    with contextlib.suppress(OverflowError), np.errstate(over="ignore"):
        rounded = np.array(float(value)).astype(type_)
        if np.isfinite(rounded) or not math.isfinite(value):
            return rounded.tobytes()
    raise OperandError(
        f"parameter {label} is .{parameter.type}, which has no number as large as {shown(value)}"
    )
