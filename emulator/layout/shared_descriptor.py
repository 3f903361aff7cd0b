"""``SharedMemoryDescriptor``: the 64-bit word through which tcgen05.mma and cp read shared memory.

PTX ISA 9.7.16.4.1 (shared memory descriptor); the addresses are those of CuTe's layouts. It is
wgmma's `Descriptor` with other places for the fields, a swizzle more, and a constant in bits 48:46.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar, NamedTuple

import numpy as np

from emulator.errors import OperandError, as_integer, flag, listing, needed, one_of, shown, whole
from emulator.layout.addressing import SWIZZLES, Fields, Int64, addresses
from emulator.layout.descriptor import Descriptor, Finding, Placed, both_bases, mistake
from emulator.layout.instruction_descriptor import InstructionDescriptor
from emulator.layout.tile import (
    LINE_BYTES,
    LINES,
    PATTERN_LINE,
    WINDOW,
    TileShape,
    block_bytes,
    first_shared,
)
from emulator.targets import Target, find_target

#: name -> (lowest bit, width). Addresses and offsets are stored divided by 16; the first two have a
#: bit less before sm_107 (`Target.descriptor_bits`).
FIELDS = {
    "start_address": (0, 15),
    "leading_byte_offset": (16, 15),
    "stride_byte_offset": (32, 14),
    "constant": (46, 3),
    "base_offset": (49, 3),
    "leading_is_address": (52, 1),
    "second_half": (53, 1),
    "swizzle": (61, 3),
}
_FLAGS = ("leading_is_address", "second_half")
_IN_16_BYTES = ("start_address", "leading_byte_offset", "stride_byte_offset")
_ADDRESSES = _IN_16_BYTES[:2]
#: of the field `constant`: what tells these words from those of wgmma
CONSTANT = 0b001
#: bytes of the atoms of the swizzle for MN-major 32-bit elements, and lines of its blocks
_WIDE_ATOM, _WIDE_LINES = 32, 4
#: code of the field `swizzle` -> bytes of a line, and of the atoms that are permuted in it
SWIZZLE_CODES = {0: (0, 16), 6: (32, 16), 4: (64, 16), 2: (128, 16), 1: (128, 32)}


def fields_of(target: str | Target | None = None) -> dict[str, tuple[int, int]]:
    """`FIELDS` as a target reads them; None: as any before sm_107 does."""
    bits = 14 if target is None else find_target(target).descriptor_bits
    return FIELDS | {name: (FIELDS[name][0], bits) for name in _ADDRESSES}


class SwizzleMode(NamedTuple):
    """The meaning of a code of the field `swizzle`."""

    swizzle_bytes: int
    atom_bytes: int

    def __str__(self) -> str:
        if not self.swizzle_bytes:
            return "no swizzle"
        atoms = f" with {self.atom_bytes}-byte atoms" if self.atom_bytes != LINE_BYTES else ""
        return f"{self.swizzle_bytes}-byte swizzle{atoms}"


def _code(swizzle_bytes: int, atom_bytes: int) -> int:
    given = as_integer(swizzle_bytes), as_integer(atom_bytes)
    for code, mode in SWIZZLE_CODES.items():
        if mode == given:
            return code
    legal = ", ".join(str(SwizzleMode(*mode)) for mode in SWIZZLE_CODES.values())
    raise OperandError(
        f"swizzle_bytes {shown(swizzle_bytes)} with atom_bytes {shown(atom_bytes)} is no swizzle "
        f"of tcgen05; there are {legal}"
    )


@dataclass(frozen=True)
class SharedMemoryDescriptor(Descriptor):
    """A descriptor of shared memory for tcgen05; addresses and offsets in bytes, multiples of 16
    below 2**18, on sm_107 start and LBO below 2**19. LBO and SBO mean what they mean in a wgmma
    `Descriptor`.

    Raises OperandError for fields that do not fit the 64-bit word.
    """

    reader: ClassVar[str] = "tcgen05"
    transposable_bytes: ClassVar[tuple[int, ...]] = (1, 2, 4)

    #: 16, or 32 for the 128-byte swizzle of MN-major 32-bit elements
    atom_bytes: int = LINE_BYTES
    #: LBO is the address of the line that goes on where a row of 48 bytes leaves its 128 bytes
    #: (K = 96 of fp4, sm_103a and later)
    leading_is_address: bool = False
    #: of ``.decompress::lut::b`` (sm_107a): the second 24 of 48 bytes
    second_half: bool = False

    def __post_init__(self) -> None:
        for name in _FLAGS:
            object.__setattr__(self, name, flag(name, getattr(self, name)))
        self.encode()  # may raise
        if self.leading_is_address and (
            self.swizzle_bytes != 128 or self.atom_bytes != LINE_BYTES or self.base_offset
        ):
            raise OperandError(
                "an LBO that is an address goes with the 128-byte swizzle of 16-byte atoms and "
                "base_offset 0"
            )
        for name, value in list(vars(self).items()):
            object.__setattr__(self, name, bool(value) if name in _FLAGS else int(value))

    def encode(self) -> np.uint64:
        """The 64-bit word."""
        codes = {"constant": CONSTANT, "swizzle": _code(self.swizzle_bytes, self.atom_bytes)}
        codes |= {name: int(getattr(self, name)) for name in _FLAGS}
        word = 0
        for name, (low, width) in FIELDS.items():
            unit = 16 if name in _IN_16_BYTES else 1
            most = ((1 << width) - 1) * unit
            value = codes[name] if name in codes else whole(name, getattr(self, name), 0, most)
            if value % unit:
                raise OperandError(f"{name} is a multiple of {unit}; got {value}")
            word |= value // unit << low
        return np.uint64(word)

    @classmethod
    def decode(
        cls, word: int | np.uint64, target: str | Target | None = None
    ) -> SharedMemoryDescriptor:
        """The descriptor that a 64-bit word holds; `target` None: to any before sm_107.

        Raises OperandError for anything but one integer below 2**64, and for a word whose constant
        or swizzle is not one of tcgen05, such as a word of wgmma.
        """
        word = whole("a shared-memory descriptor of 64 bits", word, 0, (1 << 64) - 1)
        codes = {}
        for name, (low, width) in fields_of(target).items():
            code = word >> low & (1 << width) - 1
            codes[name] = code * (16 if name in _IN_16_BYTES else 1)
        if (constant := codes.pop("constant")) != CONSTANT:
            raise OperandError(
                f"shared-memory descriptor {word:#018x}: bits 48:46 are 0b{constant:03b}, and "
                "tcgen05 needs 0b001 there (0b000 in descriptors of wgmma, which are others)"
            )
        if (swizzle := codes.pop("swizzle")) not in SWIZZLE_CODES:
            modes = {code: SwizzleMode(*mode) for code, mode in SWIZZLE_CODES.items()}
            legal = listing(f"{code} {mode}" for code, mode in sorted(modes.items()))
            raise OperandError(
                f"shared-memory descriptor {word:#018x}: swizzle code {swizzle} in bits 63:61 "
                f"means nothing; codes are {legal}"
            )
        swizzle_bytes, atom_bytes = SWIZZLE_CODES[swizzle]
        flags = {name: bool(codes.pop(name)) for name in _FLAGS}
        return cls(
            codes["start_address"],
            codes["leading_byte_offset"],
            codes["stride_byte_offset"],
            codes["base_offset"],
            swizzle_bytes,
            atom_bytes,
            **flags,
        )

    @classmethod
    def for_operand(
        cls,
        instruction: InstructionDescriptor,
        operand: str,
        *,
        cta_group: int = 1,
        swizzle_bytes: int = 128,
        start_address: int = 0,
        order: str = "rows",
    ) -> Placed:
        """The canonical layout of operand "a" or "b" of a tcgen05.mma in the shared memory of one
        CTA; see `Descriptor.for_tile`. 32-bit MN-major matrices take the swizzle with 32-byte
        atoms, the only one that they have.

        Raises OperandError for a tile that tcgen05 cannot read.
        """
        tile = operand_tile(instruction, operand, cta_group)
        one_of("the order of blocks", order, ("rows", "columns"))
        if _needs_wide_atoms(tile):
            out = cls(start_address, swizzle_bytes=swizzle_bytes, atom_bytes=_WIDE_ATOM)
            out = _wide_blocks(out, tile, order)
        else:
            plain = cls(start_address, swizzle_bytes=swizzle_bytes)
            base = plain.start_address >> 7 & block_bytes(swizzle_bytes) // PATTERN_LINE - 1
            out = replace(plain, base_offset=base).with_blocks(tile, order)
        found = [x for x in out.findings(tile) if x.level == "error"]
        if found:
            reasons = "; ".join(f"{x.message}; legal: {x.legal}" for x in found)
            raise OperandError(f"no descriptor for {tile}: {reasons}")
        first = out.addresses(tile)
        size = int(first.max()) + tile.element_bytes - out.start_address
        return Placed(out, -(-size // block_bytes(swizzle_bytes)) * block_bytes(swizzle_bytes))

    # --- where it leads ---

    def addresses(self, tile: TileShape) -> Int64:
        """``(rows, k)``: address of the first byte of every element, read-only."""
        return _addresses(self, needed(TileShape, tile))

    # --- what is wrong with it ---

    def findings(
        self, tile: TileShape | None = None, memory_bytes: int = WINDOW
    ) -> tuple[Finding, ...]:
        """Lists mistakes of reading `tile` (None: any) through this descriptor, errors first."""
        if tile is None or (needed(TileShape, tile) and self.atom_bytes == LINE_BYTES):
            return (*_unsuited(self, tile), *super().findings(tile, memory_bytes))
        wrong = tuple(_unsuited(self, tile))
        return wrong or tuple(_of_wide_atoms(self, tile, memory_bytes))


def operand_tile(instruction: InstructionDescriptor, operand: str, cta_group: int = 1) -> TileShape:
    """The part of operand "a" or "b" that one CTA's shared memory holds.

    Elements that are packed without gaps count as bytes: two of fp4, and four of fp6 three. All
    others below 8 bits are counted as bytes themselves, 16 of them in the first 8 or 12 bytes of
    16.
    """
    one_of("the operand of a tcgen05.mma in shared memory", operand, ("a", "b"))
    needed(InstructionDescriptor, instruction)
    whole("cta_group", cta_group, 1, 2)
    is_a = operand == "a"
    rows = (instruction.m if is_a else instruction.n) // cta_group
    k = instruction.k // 2 if is_a and instruction.sparse else instruction.k
    width = instruction.width(operand)
    transposed = instruction.transpose_a if is_a else instruction.transpose_b
    return TileShape(rows, k * width // max(width, 8), max(1, width // 8), ("k", "mn")[transposed])


@lru_cache(maxsize=256)
def _addresses(descriptor: SharedMemoryDescriptor, tile: TileShape) -> Int64:
    if descriptor.atom_bytes == _WIDE_ATOM:
        if not _needs_wide_atoms(tile):
            raise OperandError(
                "where the swizzle with 32-byte atoms leads is known of MN-major 32-bit elements "
                f"alone; got {tile}"
            )
        places = _wide_atoms(descriptor, tile)
    elif descriptor.leading_is_address:
        places = _continued(descriptor, tile)
    else:
        places = addresses(_fields(descriptor), tile)
    places.flags.writeable = False
    return places


def _fields(descriptor: SharedMemoryDescriptor) -> Fields:
    """As `addressing` has them, with its codes for the swizzle."""
    values = [getattr(descriptor, name) for name in Fields._fields[:-1]]
    codes = (*values, SWIZZLES[descriptor.swizzle_bytes])
    return Fields(*(np.asarray(code, np.int64) for code in codes))


def _wide_atoms(descriptor: SharedMemoryDescriptor, tile: TileShape) -> Int64:
    """The 128-byte swizzle with 32-byte atoms: blocks of 4 lines of 128 bytes, whose 32-byte atoms
    are permuted by address bits 8:7 (CuTe's Swizzle<2,5,2>)."""
    t, size = LINE_BYTES // tile.element_bytes, tile.element_bytes
    row = np.arange(tile.rows, dtype=np.int64)[:, None]
    k = np.arange(tile.k, dtype=np.int64)[None, :]
    within = row % t * size + row // t % 8 * 16 + row // (8 * t) * descriptor.leading_byte_offset
    line = k % _WIDE_LINES * PATTERN_LINE + k // _WIDE_LINES * descriptor.stride_byte_offset
    address = descriptor.start_address + within + line
    return address ^ ((address >> 7 & 3) << 5)


def _continued(descriptor: SharedMemoryDescriptor, tile: TileShape) -> Int64:
    """K-major rows of which the bytes behind a 128-byte line go on at the address in LBO."""
    row = np.arange(tile.rows, dtype=np.int64)[:, None]
    column = np.arange(tile.k, dtype=np.int64)[None, :] * tile.element_bytes
    into = descriptor.start_address % PATTERN_LINE + column
    start = np.where(
        into < PATTERN_LINE,
        descriptor.start_address + column,
        descriptor.leading_byte_offset + into - PATTERN_LINE,
    )
    address = start + row % LINES * PATTERN_LINE + row // LINES * descriptor.stride_byte_offset
    return address ^ ((address >> 7 & 7) << 4)


def _wide_blocks(
    descriptor: SharedMemoryDescriptor, tile: TileShape, order: str
) -> SharedMemoryDescriptor:
    """With the strides of blocks of 4 lines that fill memory without gaps."""
    high, wide = -(-tile.rows * tile.element_bytes // PATTERN_LINE), -(-tile.k // _WIDE_LINES)
    next_rows, next_k = (1, high) if order == "rows" else (wide, 1)
    return replace(
        descriptor,
        leading_byte_offset=next_rows * _WIDE_LINES * PATTERN_LINE,
        stride_byte_offset=next_k * _WIDE_LINES * PATTERN_LINE,
    )


def _unsuited(descriptor: SharedMemoryDescriptor, tile: TileShape | None) -> Iterator[Finding]:
    """Finds matrices that cannot have the swizzle with 32-byte atoms."""
    wide, needs = descriptor.atom_bytes > LINE_BYTES, tile is not None and _needs_wide_atoms(tile)
    if tile is None or wide == needs:
        return
    if wide:
        yield mistake(
            "swizzle",
            "the swizzle with 32-byte atoms (code 1) is for MN-major 32-bit elements alone",
            "code 2, the 128-byte swizzle",
        )
    else:
        yield mistake(
            "swizzle",
            "an MN-major tile of 32-bit elements has the swizzle with 32-byte atoms alone",
            "code 1 (swizzle_bytes 128, atom_bytes 32), or K-major",
        )


def _of_wide_atoms(
    descriptor: SharedMemoryDescriptor, tile: TileShape, memory_bytes: int
) -> Iterator[Finding]:
    """Lists mistakes of reading MN-major 32-bit elements."""
    if shared := first_shared(descriptor.addresses(tile)):
        byte, first, second = shared
        good = _wide_blocks(descriptor, tile, "rows")
        yield mistake(
            "leading_byte_offset",
            f"elements {first} and {second} both read byte {byte:#x}: leading_byte_offset "
            f"{descriptor.leading_byte_offset} and stride_byte_offset "
            f"{descriptor.stride_byte_offset} do not keep blocks of 512 bytes apart",
            f"leading_byte_offset {good.leading_byte_offset} with stride_byte_offset "
            f"{good.stride_byte_offset}, or strides of at least 512 the other way round",
        )
    end = int(descriptor.addresses(tile).max()) + tile.element_bytes
    if end > memory_bytes:
        yield mistake(
            "start_address",
            f"the tile ends at byte {both_bases(end)}, and shared memory at "
            f"{both_bases(memory_bytes)}",
            "a smaller start address, or smaller strides",
        )


def _needs_wide_atoms(tile: TileShape) -> bool:
    return (tile.major, tile.element_bytes) == ("mn", 4)
