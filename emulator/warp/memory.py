"""Shared memory as an array of bytes, and matrices in it that descriptors point to."""

from __future__ import annotations

import numpy as np

from dtypes import Array, Format, Place, code_type, pack, place, unpack
from emulator.errors import OperandError, UndefinedError
from emulator.layout.addressing import Int64, addresses
from emulator.layout.descriptor import Descriptor, decode_descriptor
from emulator.layout.tile import TileShape, first_shared


def check_shared(shared: object) -> Array:
    """`shared` as an array of bytes ``(…, bytes)``; raises OperandError for anything else."""
    if not isinstance(shared, np.ndarray) or shared.dtype != np.uint8 or shared.ndim < 1:
        got = f"{shared.dtype} {shared.shape}" if isinstance(shared, np.ndarray) else repr(shared)
        raise OperandError(f"shared= is shared memory, a uint8 array (…, bytes); got {got:.80}")
    return shared


def load_tile(
    shared: Array,
    descriptors: Array | Descriptor | int,
    rows: int,
    k: int,
    where: Place | Format,
    major: str = "k",
    operand: str = "",
) -> Array:
    """Codes ``(…, rows, k)`` of the matrix that descriptors ``(…)`` point to.

    `descriptors` is a `Descriptor`, an integer or uint64 words. Raises UndefinedError where an
    element lies outside `shared`.
    """
    where = place(where) if isinstance(where, Format) else where
    places, element_bytes = _places(shared, descriptors, rows, k, where, major, operand)
    # Elements never straddle a multiple of their own size, so memory is an array of elements.
    whole = shared.shape[-1] // element_bytes * element_bytes
    elements = np.ascontiguousarray(shared[..., :whole]).view(f"<u{element_bytes}")
    index = places // element_bytes
    tile = index.shape[-2:]
    batch = np.broadcast_shapes(shared.shape[:-1], index.shape[:-2])
    if all(n == 1 for n in index.shape[:-2]):
        out = elements[..., index.reshape(tile)].reshape(*batch, *tile)
    else:
        flat = np.broadcast_to(index, (*batch, *tile)).reshape(*batch, tile[0] * tile[1])
        spread = np.broadcast_to(elements, (*batch, elements.shape[-1]))
        out = np.take_along_axis(spread, flat, -1).reshape(*batch, *tile)
    if where.width < 8:
        out = unpack(out, Place(where.width, 0, where.width), 8)
    return out.astype(code_type(where.code_bits), copy=False)


def store_tile(
    shared: Array,
    descriptors: Array | Descriptor | int,
    codes: Array,
    where: Place | Format,
    major: str = "k",
) -> None:
    """Writes codes ``(…, rows, k)`` to where descriptors ``(…)`` point to, in place.

    The inverse of `load_tile`; every batch element has its own shared memory. Raises OperandError
    for codes that do not fit the type or the batch, and for a tile of which two elements share a
    byte, UndefinedError where one lies outside `shared`; nothing is written then.
    """
    check_shared(shared)
    where = place(where) if isinstance(where, Format) else where
    codes = np.asarray(codes)
    if codes.dtype.kind != "u" or codes.ndim < 2:
        raise OperandError(
            f"a tile is unsigned element codes (…, rows, k); got {codes.dtype} {codes.shape}"
        )
    if codes.size and int(codes.max()) >> where.code_bits:
        raise OperandError(
            f"code {int(codes.max()):#x} does not fit the {where.code_bits} bits of an element"
        )
    if not shared.flags.writeable:
        raise OperandError("shared memory is read-only; store_tile writes it in place")
    rows, k = codes.shape[-2:]
    places, element_bytes = _places(shared, descriptors, rows, k, where, major, "")
    for one in places.reshape(-1, *places.shape[-2:]):
        if overlap := first_shared(one):
            byte, first, second = overlap
            raise OperandError(
                f"the descriptor's strides place elements {first} and {second} of the tile at the "
                f"same byte {byte}; Descriptor.validate tells more"
            )
    if where.width < 8:
        codes = pack(codes, Place(where.width, 0, where.width), 8)
    size = codes.shape[-2] * codes.shape[-1] * element_bytes
    held = np.ascontiguousarray(codes.astype(f"<u{element_bytes}")).view(np.uint8)
    bytes_ = held.reshape(*codes.shape[:-2], size)
    index = (places[..., None] + np.arange(element_bytes)).reshape(*places.shape[:-2], size)
    batch = (*shared.shape[:-1], size)
    try:
        index, bytes_ = np.broadcast_to(index, batch), np.broadcast_to(bytes_, batch)
    except ValueError:
        raise OperandError(
            f"each shared memory of {shared.shape} takes one tile: codes {codes.shape} with "
            f"descriptors {places.shape[:-2]} do not fit"
        ) from None
    np.put_along_axis(shared, index, bytes_, axis=-1)


def _places(
    shared: Array,
    descriptors: Array | Descriptor | int,
    rows: int,
    k: int,
    where: Place,
    major: str,
    operand: str,
) -> tuple[Int64, int]:
    """Byte addresses of a tile's elements, or of bytes of smaller ones, and the bytes of each."""
    element_bytes = max(1, where.width // 8)
    per_byte = 8 // where.width if where.width < 8 else 1
    if k % per_byte:
        raise OperandError(f"k is a multiple of {per_byte} for {where.width}-bit elements; got {k}")
    places = addresses(
        decode_descriptor(descriptors, operand),
        TileShape(rows, k // per_byte, element_bytes, major),
    )
    if int(places.max(initial=0)) + element_bytes > shared.shape[-1]:
        fault = np.argwhere(places + element_bytes > shared.shape[-1])[0]
        raise UndefinedError(
            f"{f'operand {operand}: ' if operand else ''}element (row {fault[-2]}, k "
            f"{fault[-1] * per_byte}) lies at byte {places[tuple(fault)]} of shared memory, which "
            f"has {shared.shape[-1]} bytes; check the descriptor's start address, leading and "
            "stride byte offsets (LBO, SBO)"
        )
    return places, element_bytes
