"""Matrices in shared memory that descriptors point to, as codes."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from dtypes import FORMATS, Array, Format, Place, code_type, pack, place, unpack
from emulator.arrays import as_array
from emulator.errors import OperandError, UndefinedError, as_integer, listing, shown
from emulator.layout.addressing import Fields, Int64, addresses
from emulator.layout.descriptor import Descriptor, decode_descriptor
from emulator.layout.instruction_descriptor import InstructionDescriptor
from emulator.layout.shared_descriptor import SharedMemoryDescriptor, operand_tile
from emulator.layout.tensor_memory import COPIES, copy_lanes
from emulator.layout.tile import LINE_BYTES, TileShape, first_shared
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
            held.reshape(*codes.shape[:-2], *flat, size),
            size,
        )
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
    columns = as_integer(k)
    if columns is None or columns % per_byte:
        raise OperandError(
            f"k is a multiple of {per_byte} for {where.width}-bit elements; got {shown(k)}"
        )
    tile = TileShape(rows, k // per_byte, size, major)
    if isinstance(descriptors, SharedMemoryDescriptor):
        return descriptors.addresses(tile), size
    if isinstance(descriptors, np.uint64):
        return _places_of_one(descriptors, tile, operand), size
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


@lru_cache(maxsize=128)
def _places_of_one(descriptor: np.uint64, tile: TileShape, operand: str) -> Int64:
    places = addresses(decode_descriptor(np.asarray(descriptor), operand), tile)
    places.flags.writeable = False
    return places


def _per_byte(where: Place) -> int:
    return 8 // where.width if where.width < 8 else 1


def _outside(
    error: AccessError, space: Space, tile: tuple[int, ...], where: Place, operand: str
) -> UndefinedError:
    """The error of a load or store of a tile for an element outside of memory."""
    row, column = divmod(error.fault.index[-1], tile[1])
    return UndefinedError(
        f"{f'operand {operand}: ' if operand else ''}element (row {row}, k "
        f"{column * _per_byte(where)}) lies at byte {error.fault.address} of {space.name}, which "
        f"has {space.bytes} bytes; check the descriptor's start address, leading and stride byte "
        "offsets (LBO, SBO)"
    )


# --- tcgen05 --------------------------------------------------------------------------------------


def load_operand(
    shared: Array | Space,
    descriptor: SharedMemoryDescriptor | int,
    instruction: InstructionDescriptor,
    operand: str,
    cta_group: int = 1,
) -> Array:
    """Codes ``(rows, k)`` of what one CTA's shared memory holds of operand "a" or "b" of a
    tcgen05.mma: rows of A (stored columns of a sparse one), or columns of B.

    Raises UndefinedError where an element lies outside of `shared`.
    """
    space, (descriptor, tile, fmt) = _operand(shared, descriptor, instruction, operand, cta_group)
    places = descriptor.addresses(tile)
    if fmt.bits >= 8:
        size = tile.element_bytes
        held = _load_all(space, places, size, operand)
        return held.view(f"<u{size}")[..., 0].astype(code_type(fmt.bits), copy=False)
    # Elements are packed from the lowest bit of 16 bytes on, and fill the share of them that they
    # would take without a container.
    lines = _load_all(space, _lines(places, tile), LINE_BYTES, operand)
    used = 8 * LINE_BYTES * fmt.bits // instruction.width(operand)
    bits = np.unpackbits(lines, axis=-1, bitorder="little")[..., :used]
    bits = bits.reshape(len(lines), -1, fmt.bits)
    codes = (bits << np.arange(fmt.bits, dtype=np.uint8)).sum(-1, dtype=np.uint8)
    return codes if tile.major == "k" else codes.T[: tile.rows]


def store_operand(
    shared: Array | Space,
    descriptor: SharedMemoryDescriptor | int,
    codes: Array,
    instruction: InstructionDescriptor,
    operand: str,
    cta_group: int = 1,
) -> None:
    """Writes codes ``(rows, k)`` to where a tcgen05.mma reads them; the inverse of
    `load_operand`, and raises as that."""
    space, (descriptor, tile, fmt) = _operand(shared, descriptor, instruction, operand, cta_group)
    codes, width = as_array(codes, operand), instruction.width(operand)
    shape = tile.rows, tile.k * max(8, width) // width
    if codes.shape != shape or codes.dtype.kind != "u":
        raise OperandError(
            f"operand {operand} is unsigned codes {shape}; got {codes.dtype} {codes.shape}"
        )
    places = descriptor.addresses(tile)
    if fmt.bits >= 8:
        held = np.ascontiguousarray(codes.astype(f"<u{tile.element_bytes}"))[..., None]
    else:
        places = _lines(places, tile)
        along = codes if tile.major == "k" else codes.T
        bits = along[..., None].astype(np.uint8) >> np.arange(fmt.bits, dtype=np.uint8) & 1
        bits = bits.reshape(*places.shape, -1)
        free = [(0, 0), (0, 0), (0, 8 * LINE_BYTES - bits.shape[-1])]
        held = np.packbits(np.pad(bits, free), axis=-1, bitorder="little")
    held = held.view(np.uint8)
    try:
        space.store(places.reshape(-1), held.reshape(places.size, -1), held.shape[-1])
    except AccessError as error:
        raise _outside(error, space, places.shape, Place(8, 0, 8), operand) from None


def _lines(places: Int64, tile: TileShape) -> Int64:
    """Addresses of the 16-byte units that hold elements below 8 bits: ``(rows, units)``, or of an
    MN-major tile ``(k, units)``."""
    return places[:, ::LINE_BYTES] if tile.major == "k" else places[::LINE_BYTES].T


#: bytes that hold a row of 128 indices of 3 bits, of which an instruction takes one half
_COMPRESSED = 48


def load_indices(shared: Array | Space, descriptor: SharedMemoryDescriptor, rows: int) -> Array:
    """Indices uint8 ``(rows, 64)`` into the tables of ``.decompress::lut::b``: of 48 bytes of each
    column of B the half that bit 53 of the descriptor names, 3 bits each, the lowest first.

    Raises UndefinedError where one lies outside of `shared`.
    """
    places = descriptor.addresses(TileShape(rows, _COMPRESSED, 1))[:, ::LINE_BYTES]
    held = _load_all(Space.of(shared, "shared"), places, LINE_BYTES, "b").reshape(rows, -1)
    half = np.split(held, 2, axis=1)[descriptor.second_half]
    bits = np.unpackbits(half, axis=1, bitorder="little").reshape(rows, -1, 3)
    return (bits << np.arange(3, dtype=np.uint8)).sum(-1, dtype=np.uint8)


def load_rows(shared: Array | Space, descriptor: SharedMemoryDescriptor | int, shape: str) -> Array:
    """The bytes ``(rows, 16 or 32)`` that a tcgen05.cp reads; `shape` as for `TensorMemory.copy`.

    Raises UndefinedError where one lies outside of `shared`.
    """
    copy_lanes(shape)  # may raise
    facts, space = COPIES[shape], Space.of(shared, "shared")
    if not isinstance(descriptor, SharedMemoryDescriptor):
        descriptor = SharedMemoryDescriptor.decode(descriptor)
    tile = TileShape(facts.rows, LINE_BYTES * facts.units, 1)
    places = descriptor.addresses(tile)[:, ::LINE_BYTES]
    return _load_all(space, places, LINE_BYTES, "").reshape(facts.rows, -1)


def _operand(
    shared: Array | Space,
    descriptor: SharedMemoryDescriptor | int,
    instruction: InstructionDescriptor,
    operand: str,
    cta_group: int,
) -> tuple[Space, tuple[SharedMemoryDescriptor, TileShape, Format]]:
    if not isinstance(descriptor, SharedMemoryDescriptor):
        descriptor = SharedMemoryDescriptor.decode(descriptor)
    tile = operand_tile(instruction, operand, cta_group)
    fmt = FORMATS[instruction.a if operand == "a" else instruction.b]
    return Space.of(shared, "shared"), (descriptor, tile, fmt)


def _load_all(space: Space, places: Int64, size: int, operand: str) -> Array:
    """Bytes ``(rows, n, size)`` at places ``(rows, n)``."""
    try:
        return space.load(places.reshape(-1), size, size).reshape(*places.shape, size)
    except AccessError as error:
        raise _outside(error, space, places.shape, Place(8, 0, 8), operand) from None
