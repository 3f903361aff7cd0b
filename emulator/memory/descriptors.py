"""Matrices in shared memory that descriptors point to, as codes."""

from __future__ import annotations

import numpy as np

from dtypes import FORMATS, Array, Format, Place, code_type, pack, place, unpack
from emulator.arrays import as_array
from emulator.errors import OperandError, UndefinedError, listing, shown
from emulator.layout.addressing import Fields, Int64, addresses
from emulator.layout.descriptor import Descriptor, decode_descriptor
from emulator.layout.tile import TileShape, first_shared
from emulator.memory.space import AccessError, Space


def load_tile(
    shared: Array | Space,
    descriptors: Array | Descriptor | int,
    rows: int,
    k: int,
    where: Place | Format | str,
    major: str = "k",
    operand: str = "",
) -> Array:
    """Codes ``(…, rows, k)`` of the matrix that descriptors ``(…)`` point to.

    `shared` is ``uint8 (…, bytes)``, `descriptors` a `Descriptor`, an integer or uint64 words,
    `where` the format of the elements or its name; `operand` names the matrix in messages. Raises
    OperandError for arguments of another kind, UndefinedError where an element lies outside of
    `shared`.
    """
    where = _place_of(where)
    space = Space.of(shared, "shared")
    places, size = tile_places(descriptors, rows, k, where, major, operand)
    tile = places.shape[-2:]
    # Elements never straddle a multiple of their own size.
    try:
        held = space.load(places.reshape(*places.shape[:-2], tile[0] * tile[1]), size, size)
    except AccessError as error:
        raise _outside(error, space, tile, where, operand) from None
    codes = held.view(f"<u{size}").reshape(*held.shape[:-2], *tile)
    if where.width < 8:
        codes = unpack(codes, Place(where.width, 0, where.width), 8)
    return codes.astype(code_type(where.code_bits), copy=False)


def store_tile(
    shared: Array | Space,
    descriptors: Array | Descriptor | int,
    codes: Array,
    where: Place | Format | str,
    major: str = "k",
) -> None:
    """Writes codes ``(…, rows, k)`` to where descriptors ``(…)`` point to, in place.

    The inverse of `load_tile`; every batch element has its own shared memory. Raises OperandError
    for codes that do not fit the type or the batch, and for a tile of which two elements share a
    byte, UndefinedError where one lies outside of `shared`; nothing is written then.
    """
    space = Space.of(shared, "shared")
    space.check_writable()
    where = _place_of(where)
    codes = as_array(codes, "codes")
    if codes.dtype.kind != "u" or codes.ndim < 2:
        raise OperandError(
            f"a tile is unsigned element codes (…, rows, k); got {codes.dtype} {codes.shape}"
        )
    if codes.size and int(codes.max()) >> where.code_bits:
        raise OperandError(
            f"code {int(codes.max()):#x} does not fit the {where.code_bits} bits of an element"
        )
    rows, k = codes.shape[-2:]
    places, size = tile_places(descriptors, rows, k, where, major)
    tile = places.shape[-2:]
    for one in places.reshape(-1, *tile):
        if overlap := first_shared(one):
            byte, first, second = overlap
            raise OperandError(
                f"the descriptor's strides place elements {first} and {second} of the tile at the "
                f"same byte {byte}; Descriptor.validate tells more"
            )
    batches = codes.shape[:-2], places.shape[:-2]
    if where.width < 8:
        codes = pack(codes, Place(where.width, 0, where.width), 8)
    held = np.ascontiguousarray(codes.astype(f"<u{size}")).view(np.uint8)
    flat = (tile[0] * tile[1],)
    try:
        space.store(
            places.reshape(*places.shape[:-2], *flat),
            held.reshape(*codes.shape[:-2], *flat, size), size,
        )  # fmt: skip
    except AccessError as error:
        raise _outside(error, space, tile, where, "") from None
    except OperandError:
        raise OperandError(
            f"each shared memory of {space.data.shape} takes one tile: codes {batches[0]} with "
            f"descriptors {batches[1]} do not fit"
        ) from None


def _place_of(where: Place | Format | str) -> Place:
    if isinstance(where, str) and where in FORMATS:
        where = FORMATS[where]
    if isinstance(where, Format):
        return place(where)
    if not isinstance(where, Place):
        raise OperandError(
            f"elements are of a Format, or the name of one: {listing(FORMATS, 20)}; "
            f"got {shown(where)}"
        )
    return where


def tile_places(
    descriptors: Array | Descriptor | int,
    rows: int,
    k: int,
    where: Place,
    major: str,
    operand: str = "",
) -> tuple[Int64, int]:
    """Byte addresses of a tile's elements, or of bytes of smaller ones, and the bytes of each.

    Arguments, and what is raised for them, as of `load_tile`.
    """
    size = max(1, where.width // 8)
    per_byte = _per_byte(where)
    if not isinstance(k, (int, np.integer)) or k % per_byte:
        raise OperandError(
            f"k is a multiple of {per_byte} for {where.width}-bit elements; got {shown(k)}"
        )
    tile = TileShape(rows, k // per_byte, size, major)
    fields = decode_descriptor(descriptors, operand)
    if fields.start_address.size < 2:
        return addresses(fields, tile), size
    # Those of a batch are mostly alike: each is led to its elements once.
    shape = fields.start_address.shape
    different, which = np.unique(
        np.stack(fields, -1).reshape(-1, len(fields)), axis=0, return_inverse=True
    )
    places = addresses(Fields(*different.T), tile)
    return places[which.reshape(shape)], size


def _per_byte(where: Place) -> int:
    return 8 // where.width if where.width < 8 else 1


def _outside(
    error: AccessError, space: Space, tile: tuple[int, ...], where: Place, operand: str
) -> UndefinedError:
    """What a load or store of a tile raises for an element outside of memory."""
    row, column = divmod(error.fault.index[-1], tile[1])
    return UndefinedError(
        f"{f'operand {operand}: ' if operand else ''}element (row {row}, k "
        f"{column * _per_byte(where)}) lies at byte {error.fault.address} of {space.name}, which "
        f"has {space.bytes} bytes; check the descriptor's start address, leading and stride byte "
        "offsets (LBO, SBO)"
    )
