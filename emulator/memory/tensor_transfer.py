"""The bytes of tensor copies: read, filled in, converted, written, combined.

Memory is what the caller makes of it: ``read(addresses, size)`` returns ``(n, size)`` bytes,
``write(addresses, rows)`` takes them. Of every row only what lies inside of the tensor is touched.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from dtypes import Array
from emulator.errors import listing
from emulator.memory.arena import AccessError
from emulator.memory.tensor_copy import Int64, PlacedCopy

Bytes = NDArray[np.uint8]
Read = Callable[[Int64, int], Bytes]
Write = Callable[[Int64, Bytes], None]
#: the elements in memory and those of the box, as unsigned integers, to the new ones in memory
Combine = Callable[[Array, Array], Array]

#: what a load with fill "nan" puts where there is no tensor, in every 16 bits of an element of
#: whatever type: a NaN for all of them. Measured on an H200.
OUTSIDE_NAN = 0x7FF7


#: result of a load that rounds a NaN to tf32; measured on an H200
TF32_NAN = 0x7FFFE000


_WORDS = {"uint32": "u32", "int32": "s32", "uint64": "u64"}
_HALVES = {"float16": "f16", "bfloat16": "bf16"}
_FLOATS = {
    **_HALVES, "float32": "f32", "float32_ftz": "f32", "tfloat32": "f32", "tfloat32_ftz": "f32",
    "float64": "f64",
}  # fmt: skip
_ORDERED = {**_WORDS, "int64": "s64", **_HALVES}
#: operation of a reduction -> element types of tensor maps that have it, and the types of PTX;
#: an H200 answers all others with "illegal instruction"
REDUCED = {
    "add": {**_WORDS, **_FLOATS}, "min": _ORDERED, "max": _ORDERED, "inc": {"uint32": "u32"},
    "dec": {"uint32": "u32"}, "and": _WORDS, "or": _WORDS, "xor": _WORDS,
}  # fmt: skip


def reduction_problem(operation: str, dtype: str) -> str:
    """The reason why a tensor of a type has no such reduction; "" where it has it."""
    types = REDUCED[operation]
    return "" if dtype in types else f"no reduction {operation} of {dtype}; it has {listing(types)}"


def load_box(copy: PlacedCopy, read: Read) -> Bytes:
    """``(…, rows, row_bytes)``: what a load puts into shared memory, before the swizzle."""
    m, plan = copy.plan.tensor_map, copy.plan
    shape = (*copy.row_inside.shape, plan.row_bytes)
    if copy.whole:
        return load_conversion(m.dtype, read(copy.row_address.ravel(), shape[-1])).reshape(shape)
    if m.fill == "nan":
        halves = np.full((*shape[:-1], shape[-1] // 2), OUTSIDE_NAN, np.uint16)
        box = halves.view(np.uint8)
    else:
        box = np.zeros(shape, np.uint8)
    for mask, addresses, span in copy.pieces():
        box[mask, span] = load_conversion(m.dtype, read(addresses, span.stop - span.start))
    return box


def store_box(copy: PlacedCopy, box: Bytes, write: Write) -> None:
    """Writes a box ``(…, rows, row_bytes)``, taken out of its swizzle, to the tensor."""
    for mask, addresses, span in copy.pieces():
        write(addresses, box[mask, span])
    for mask, addresses, span in copy.behind.pieces():
        _where_there(write, addresses, box[mask, span])


def reduce_box(copy: PlacedCopy, box: Bytes, read: Read, write: Write, combine: Combine) -> None:
    """Combines a box with the tensor; where its rows overlap in memory, one after the other."""
    kind = f"u{copy.plan.element_bytes}"

    def update(addresses: Int64, data: Bytes) -> None:
        codes = np.ascontiguousarray(data).view(kind)
        memory = np.ascontiguousarray(read(addresses, data.shape[-1])).view(kind)
        write(addresses, np.ascontiguousarray(combine(memory, codes)).view(np.uint8))

    for mask, addresses, span in copy.pieces():
        data = box[mask, span]
        if (np.diff(np.sort(addresses)) < data.shape[-1]).any():
            for i in range(len(addresses)):
                update(addresses[i : i + 1], data[i : i + 1])
        else:
            update(addresses, data)
    for mask, addresses, span in copy.behind.pieces():
        _where_there(update, addresses, box[mask, span])


def _where_there(change: Write, addresses: Int64, rows: Bytes) -> None:
    """Changes bytes behind a tensor, unless memory ends there: nothing shows what lies behind."""
    try:
        change(addresses, rows)
    except AccessError:
        for i in range(len(addresses)):
            with suppress(AccessError):
                change(addresses[i : i + 1], rows[i : i + 1])


def load_conversion(dtype: str, data: Bytes) -> Bytes:
    """Bytes of elements as a load delivers them: f32 rounded to tf32 where so named.

    To the nearest, ties to even; every NaN becomes one, and subnormal numbers stay. That
    float32_ftz flushes nothing, and tfloat32_ftz nothing either, was measured on an H200.
    """
    if not dtype.startswith("tfloat32"):
        return data
    codes = np.ascontiguousarray(data).view(np.uint32)
    to_even = np.uint32(0x0FFF) + (codes >> np.uint32(13) & np.uint32(1))
    rounded = codes + to_even & np.uint32(0xFFFFE000)
    magnitude = codes & np.uint32(0x7FFFFFFF)
    rounded = np.where(magnitude == 0x7F800000, codes, rounded)
    return np.where(magnitude > 0x7F800000, np.uint32(TF32_NAN), rounded).view(np.uint8)
