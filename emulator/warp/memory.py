"""Shared memory as an array of bytes, and matrices read from it through descriptors."""

from __future__ import annotations

import numpy as np

from dtypes import Array, Place, code_type, unpack
from emulator.errors import OperandError, UndefinedError
from emulator.layout.descriptor import TileShape, addresses, decode_descriptor


def check_shared(shared: object) -> Array:
    """`shared` as an array of bytes ``(…, bytes)``; raises OperandError for anything else."""
    if not isinstance(shared, np.ndarray) or shared.dtype != np.uint8 or shared.ndim < 1:
        got = f"{shared.dtype} {shared.shape}" if isinstance(shared, np.ndarray) else repr(shared)
        raise OperandError(f"shared= is shared memory, a uint8 array (…, bytes); got {got}")
    return shared


def load_tile(
    shared: Array, descriptors: Array, rows: int, k: int, where: Place, major: str, operand: str
) -> Array:
    """Codes ``(…, rows, k)`` of the matrix that descriptors ``(…)`` point to.

    Raises UndefinedError where an element lies outside `shared`.
    """
    element_bytes = max(1, where.width // 8)
    per_byte = 8 // where.width if where.width < 8 else 1
    tile = TileShape(rows, k // per_byte, element_bytes, major)
    places = addresses(decode_descriptor(descriptors), tile)
    last = int(places.max(initial=0)) + element_bytes
    if last > shared.shape[-1]:
        fault = np.argwhere(places + element_bytes > shared.shape[-1])[0]
        raise UndefinedError(
            f"operand {operand}: element (row {fault[-2]}, k {fault[-1] * per_byte}) lies at byte "
            f"{places[tuple(fault)]} of shared memory, which has {shared.shape[-1]} bytes; check "
            "the descriptor's start address, leading and stride byte offsets (LBO, SBO)"
        )
    # Elements never straddle a multiple of their own size, so memory is an array of elements.
    whole = shared.shape[-1] // element_bytes * element_bytes
    elements = np.ascontiguousarray(shared[..., :whole]).view(f"<u{element_bytes}")
    index = places // element_bytes
    batch = np.broadcast_shapes(shared.shape[:-1], index.shape[:-2])
    if index.ndim == 2 or not any(n > 1 for n in index.shape[:-2]):
        out = elements[..., index.reshape(index.shape[-2:])]
    else:
        flat = np.broadcast_to(index, (*batch, *index.shape[-2:])).reshape(*batch, -1)
        spread = np.broadcast_to(elements, (*batch, elements.shape[-1]))
        out = np.take_along_axis(spread, flat, -1).reshape(*batch, *index.shape[-2:])
    if per_byte > 1:
        out = unpack(out, Place(where.width, 0, where.width), 8)
    return out.astype(code_type(where.code_bits), copy=False)
