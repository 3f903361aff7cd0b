"""Arguments of a tensor map, from an array or an address and sizes to plain integers.

CPU tensors have become arrays before (`emulator.arrays`).
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from emulator.errors import OperandError, UnsupportedError, hint, listing, quoted, shown
from emulator.memory.tensor_map_bits import (
    ELEMENT_TYPES,
    FILLS,
    INTERLEAVES,
    L2_PROMOTIONS,
    SWIZZLES,
)

Ints = tuple[int, ...]
#: types of arrays that the driver has no name for -> the type that copies the same bits
_SAME_BITS = {"int8": "uint8", "bool": "uint8", "int16": "uint16"}
#: element types that only sm_100 and later have; which bytes the driver writes is not known
_NEWER_DTYPES = ("16U4_ALIGN8B", "16U4_ALIGN16B", "16U6_ALIGN16B")
#: swizzles that only later targets have; the same holds of them
_NEWER_SWIZZLES = ("96B", "128B_ATOM_32B", "128B_ATOM_32B_FLIP_8B", "128B_ATOM_64B")
#: option -> its names, and those that are legal but not modelled
CHOICES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "interleave": (INTERLEAVES, ()),
    "swizzle": (SWIZZLES, _NEWER_SWIZZLES),
    "l2_promotion": (L2_PROMOTIONS, ()),
    "fill": (FILLS, ()),
}


class Backing:
    """The array that a map describes; equal to itself alone, whatever its elements."""

    def __init__(self, array: object) -> None:
        self.array = array

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Backing) and self.array is other.array

    def __hash__(self) -> int:
        return id(self.array)


class Tensor(NamedTuple):
    """The tensor of a map: its elements, its place, its sizes; innermost dimension first."""

    dtype: str
    address: int | None
    dims: Ints
    #: bytes, without that of dimension 0
    strides: Ints
    backing: Backing | None


def integer(what: str, value: Any) -> int:
    """`value` as an int of at most 64 bits; raises OperandError for what is none."""
    try:
        out = operator.index(value)
    except TypeError:
        raise OperandError(f"{what} must be an integer; got {shown(value)}") from None
    if out.bit_length() > 64:
        raise OperandError(f"{what} must fit 64 bits; got a number of {out.bit_length()} bits")
    return out


def integers(what: str, values: Any, count: int | None, default: int | None = None) -> Ints:
    """`count` integers, or so many times `default` for None; raises OperandError otherwise.

    Where `count` is None it may be any number of them.
    """
    if values is None and default is not None and count is not None:
        return (default,) * count
    array = isinstance(values, np.ndarray) and values.ndim == 1
    if not array and (isinstance(values, (str, bytes)) or not isinstance(values, Sequence)):
        raise OperandError(f"{what} must be a sequence of integers; got {shown(values)}")
    if count is not None and len(values) != count:
        raise OperandError(
            f"{what} must have {count} entries, innermost dimension first; got {len(values)}"
        )
    return tuple(integer(what, value) for value in values)


def check_dtype(dtype: str) -> None:
    """Raises OperandError for a name that is no element type, UnsupportedError for a newer one."""
    if not isinstance(dtype, str):
        raise OperandError(f"dtype must be a name such as 'float16'; got {shown(dtype)}")
    if dtype in ELEMENT_TYPES:
        return
    if dtype in _NEWER_DTYPES:
        raise UnsupportedError(f"tensor maps of {dtype} (sm_100 and later) are not modelled here")
    raise OperandError(
        f"no dtype {quoted(dtype)} in a tensor map{hint(dtype, ELEMENT_TYPES)}; "
        f"dtypes are {listing(ELEMENT_TYPES, 16)}"
    )


def check_choice(option: str, given: object) -> None:
    """Raises OperandError for a name that an option lacks, UnsupportedError for a newer one."""
    legal, newer = CHOICES[option]
    if isinstance(given, str) and given in newer:
        raise UnsupportedError(
            f"{option} {given!r} of tensor maps (sm_100 and later) is not modelled here"
        )
    if not isinstance(given, str) or given not in legal:
        name = given if isinstance(given, str) else ""
        raise OperandError(
            f"{option} is one of {listing(map(repr, legal))}; got {shown(given)}{hint(name, legal)}"
        )


def tensor_of(given: object, dtype: str | None, dims: object, strides: object) -> Tensor:
    """The tensor that an array or address and the arguments beside it describe.

    Raises OperandError where they do not, or where the array's elements are no dtype of a map.
    """
    if dtype is not None:
        check_dtype(dtype)
    if isinstance(given, np.ndarray):
        return _tensor_of_array(given, dtype, dims, strides)
    if not hasattr(given, "__index__"):
        raise OperandError(
            f"a tensor map needs an array, a CPU tensor or an address; got {type(given).__name__}"
        )
    address = integer("address", given)
    missing = [n for n, x in (("dtype", dtype), ("dims", dims)) if x is None]
    if dtype is None or dims is None:
        raise OperandError(f"a tensor map of an address needs {' and '.join(missing)}")
    sizes = integers("dims", dims, None)
    return Tensor(dtype, address, sizes, _strides(strides, sizes, dtype), None)


def _tensor_of_array(array: Any, dtype: str | None, dims: Any, strides: Any) -> Tensor:
    name = array.dtype.name
    if dtype is None:
        dtype = "uint8" if name.startswith("float8_") else _SAME_BITS.get(name, name)
        if dtype not in ELEMENT_TYPES:
            raise OperandError(
                f"no dtype of a tensor map has the bits of {name}; name one of "
                f"{listing(ELEMENT_TYPES, 16)} with dtype="
            )
    size, backing = ELEMENT_TYPES[dtype].bytes, Backing(array)
    if dims is not None:
        sizes = integers("dims", dims, None)
        return Tensor(dtype, None, sizes, _strides(strides, sizes, dtype), backing)
    if array.itemsize != size:
        raise OperandError(
            f"the array's elements ({name}) have {array.itemsize} bytes, those of {dtype} {size}: "
            "give dims and strides"
        )
    if array.ndim == 0:
        raise OperandError("a tensor map needs an array with at least one dimension")
    sizes = tuple(reversed(array.shape))
    if strides is not None:
        return Tensor(dtype, None, sizes, _strides(strides, sizes, dtype), backing)
    steps = tuple(reversed(array.strides))
    if steps[0] != size and sizes[0] != 1:
        raise OperandError(
            f"the last axis of the array must be contiguous: its stride is {steps[0]} bytes, "
            f"its elements have {size}"
        )
    return Tensor(dtype, None, sizes, steps[1:], backing)


def _strides(given: object, dims: Ints, dtype: str) -> Ints:
    """The strides given, or those of a tensor without gaps."""
    if given is not None:
        return integers("strides", given, max(len(dims) - 1, 0))
    steps, step = [], ELEMENT_TYPES[dtype].bytes
    for size in dims[:-1]:
        step *= size
        steps.append(step)
    return tuple(steps)
