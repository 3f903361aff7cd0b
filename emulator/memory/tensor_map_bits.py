"""The 128 bytes of a tensor map: where each field lies, and ``tensormap.replace``, which edits one.

The bytes are opaque by contract. The fields were read off 5,800 maps that driver 580 encoded for an
H200; what ``tensormap.replace`` does to them is what ptxas 13.5 compiles it to, for it is no
instruction of the hardware but loads, shifts and stores. PTX ISA 9.7.9.28.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from emulator.errors import OperandError, hint, listing, quoted

BYTES = 128


class Field(NamedTuple):
    """Bits of a map, counted from bit 0 of byte 0; a field of several has one for each ordinal."""

    low: int
    width: int
    ordinals: int = 1


FIELDS = {
    # The lower 4 bits are 0 in every map whose address is aligned as it must be.
    "global_address": Field(0, 64),
    "im2col": Field(64, 1),
    "rank": Field(68, 3),  # less 1
    "elemtype": Field(71, 4),
    "interleave_layout": Field(75, 2),
    "swizzle_mode": Field(77, 2),
    "fill_mode": Field(79, 1),
    "round_to_tf32": Field(80, 1),
    "l2_promotion": Field(81, 2),
    "swizzle_atomicity": Field(83, 2),
    "swizzle_96B": Field(86, 1),
    # Strides of the dimensions from 1 on, in 16 bytes: 32 bits, and 4 more elsewhere.
    "global_stride": Field(96, 32, 4),
    "global_stride_high": Field(224, 4, 4),
    "global_dim": Field(256, 32, 5),  # less 1
    "element_stride": Field(416, 3, 5),  # less 1
    "box_dim": Field(440, 8, 5),  # less 1
    # What an im2col map has in place of a box; the corners of the spatial dimensions share 16 bits.
    "channels": Field(440, 8),  # less 1
    "lower_corner": Field(448, 16),
    "upper_corner": Field(464, 16),
    "pixels": Field(480, 10),  # less 1
    # What the driver notes for itself: no copy reads it, and tensormap.replace leaves it alone.
    "box_bytes": Field(512, 32),
    "not_swizzled": Field(580, 1),
    "swizzled": Field(584, 1, 3),
}


class ElementType(NamedTuple):
    """Encoding of a map's element type, with derived sizes."""

    code: int
    bytes: int
    is_float: bool = False
    round_to_tf32: bool = False


#: the driver's names, in the order of CUtensorMapDataType
ELEMENT_TYPES = {
    "uint8": ElementType(0, 1),
    "uint16": ElementType(1, 2),
    "uint32": ElementType(2, 4),
    "int32": ElementType(3, 4),
    "uint64": ElementType(4, 8),
    "int64": ElementType(5, 8),
    "float16": ElementType(6, 2, is_float=True),
    "float32": ElementType(7, 4, is_float=True),
    "float64": ElementType(9, 8, is_float=True),
    "bfloat16": ElementType(10, 2, is_float=True),
    "float32_ftz": ElementType(8, 4, is_float=True),
    "tfloat32": ElementType(7, 4, is_float=True, round_to_tf32=True),
    "tfloat32_ftz": ElementType(8, 4, is_float=True, round_to_tf32=True),
}


def element_dtype(code: int, round_to_tf32: bool) -> str:
    """The name of an element type; "" where no map has this code with this rounding."""
    kind = code, round_to_tf32
    names = (n for n, t in ELEMENT_TYPES.items() if (t.code, t.round_to_tf32) == kind)
    return next(names, "")


#: codes of the types of 4 and 6 bits that sm_100 and later have
NEWER_ELEMTYPES = {11: "b4x16", 12: "b4x16_p64", 13: "b6x16_p32"}
#: names in the order of their codes
INTERLEAVES = ("none", "16B", "32B")
SWIZZLES = ("none", "32B", "64B", "128B")
SWIZZLE_ATOMS = ("16B", "32B", "32B_FLIP_8B", "64B")
L2_PROMOTIONS = ("none", "64B", "128B", "256B")
FILLS = ("zeros", "nan")
#: rank of an im2col map -> bits of each coordinate of a corner
CORNER_BITS = {3: 16, 4: 8, 5: 5}


def get(word: int, name: str, ordinal: int = 0) -> int:
    """One field of a map that is given as an integer, its first byte lowest."""
    low, width, _ = FIELDS[name]
    return word >> low + width * ordinal & (1 << width) - 1


def put(word: int, name: str, value: int, ordinal: int = 0) -> int:
    """The map with another value of one field, of which as many bits count as the field has."""
    low, width, _ = FIELDS[name]
    mask = (1 << width) - 1
    low += width * ordinal
    return word & ~(mask << low) | (value & mask) << low


def get_stride(word: int, ordinal: int) -> int:
    """The stride of dimension `ordinal` + 1, in bytes."""
    high, low = (get(word, name, ordinal) for name in ("global_stride_high", "global_stride"))
    return high << 36 | low << 4


def put_stride(word: int, ordinal: int, stride: int) -> int:
    """The map with another stride of dimension `ordinal` + 1, in bytes."""
    word = put(word, "global_stride", stride >> 4, ordinal)
    return put(word, "global_stride_high", stride >> 36, ordinal)


def get_corners(word: int, name: str, rank: int) -> tuple[int, ...]:
    """The lower or upper corner of an im2col map in the spatial dimensions of a tensor."""
    packed, bits = get(word, name), CORNER_BITS[rank]
    corners = (packed >> bits * i & (1 << bits) - 1 for i in range(rank - 2))
    return tuple(corner - (corner >> bits - 1 << bits) for corner in corners)


def put_corners(word: int, name: str, corners: Sequence[int]) -> int:
    """The map with another lower or upper corner."""
    bits = CORNER_BITS[len(corners) + 2]
    packed = (corner % (1 << bits) << bits * i for i, corner in enumerate(corners))
    return put(word, name, sum(packed))


def as_word(data: bytes) -> int:
    """The map as an integer; raises OperandError unless it is 128 bytes."""
    if len(data) != BYTES:
        raise OperandError(f"a tensor map has {BYTES} bytes; got {len(data)}")
    return int.from_bytes(data, "little")


# --- tensormap.replace ---

#: fields whose new value is a register: bits of the value, and ordinals (0: the field has none)
_VALUE_FIELDS = {
    "global_address": (64, 0),
    "rank": (32, 0),
    "box_dim": (32, 5),
    "global_dim": (32, 5),
    # There is no fifth stride; ptxas takes the ordinal all the same.
    "global_stride": (64, 5),
    "element_stride": (32, 5),
}
#: fields whose new value is an immediate, and how many values it has
_CHOICE_FIELDS = {
    "elemtype": 16,
    "interleave_layout": 3,
    "swizzle_mode": 5,
    "swizzle_atomicity": 4,
    "fill_mode": 2,
}
#: immediate of elemtype -> code, where the two differ, and whether it asks for rounding to tf32
_ELEMTYPE_CODES = {11: (7, True), 12: (8, True), 13: (11, False), 14: (12, False), 15: (13, False)}
#: immediate of swizzle_mode that stands for 96 bytes (sm_103a)
_SWIZZLE_96B = 4
#: fields that hold one less than the value
_LESS_ONE = ("box_dim", "global_dim", "element_stride")


def replace_field(data: bytes, field: str, value: int, ordinal: int | None = None) -> bytes:
    """The 128 bytes after ``tensormap.replace.tile.FIELD``.

    `value` is the operand as it stands in the instruction: rank less 1, sizes and element strides
    as they are, strides in bytes, Table "new_val" for the rest. Nothing but the field changes; so
    an elemtype without tf32 keeps the tf32 bit of the one before, as on hardware. Raises
    OperandError for a field, ordinal or immediate that the assembler refuses.
    """
    word = as_word(data)
    if field in _CHOICE_FIELDS:
        if ordinal is not None:
            raise OperandError(f"tensormap.replace of {field} takes no ordinal; got {ordinal}")
        if not 0 <= value < _CHOICE_FIELDS[field]:
            raise OperandError(
                f"tensormap.replace: {field} is 0 to {_CHOICE_FIELDS[field] - 1}; got {value}"
            )
        return _replace_choice(word, field, value).to_bytes(BYTES, "little")
    if field not in _VALUE_FIELDS:
        legal = [*_VALUE_FIELDS, *_CHOICE_FIELDS]
        raise OperandError(
            f"tensormap.replace knows no field {quoted(field)}{hint(field, legal)}; "
            f"fields are {listing(legal)}"
        )
    bits, ordinals = _VALUE_FIELDS[field]
    if (ordinal is None) == (ordinals > 0) or not 0 <= (ordinal or 0) < max(ordinals, 1):
        legal_ordinal = f"an ordinal from 0 to {ordinals - 1}" if ordinals else "no ordinal"
        raise OperandError(f"tensormap.replace of {field} takes {legal_ordinal}; got {ordinal}")
    value &= (1 << bits) - 1
    index = ordinal or 0
    if field == "global_stride":
        word = put_stride(word, index, value)
    else:
        word = put(word, field, value - (field in _LESS_ONE), index)
    return word.to_bytes(BYTES, "little")


def _replace_choice(word: int, field: str, value: int) -> int:
    if field == "elemtype":
        code, rounds = _ELEMTYPE_CODES.get(value, (value, False))
        word = put(word, "elemtype", code)
        return put(word, "round_to_tf32", 1) if rounds else word
    if field == "swizzle_mode":
        wide = value == _SWIZZLE_96B
        return put(put(word, "swizzle_mode", 0 if wide else value), "swizzle_96B", wide)
    return put(word, field, value)
