"""The tile that an instruction reads through a descriptor, and the larger one that is stored.

``needed_descriptor`` builds the descriptor that leads from the one to the other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from emulator.errors import OperandError, listing, one_of, quoted, shown, whole
from emulator.isa.instruction import Instruction, as_instruction
from emulator.isa.matrix import MatrixInstruction
from emulator.layout.addressing import SWIZZLES, encode_descriptor
from emulator.layout.descriptor import Descriptor, Placed
from emulator.layout.tile import LINE_BYTES, PATTERN_LINE, WINDOW, TileShape

# --- as people write them in a shell --------------------------------------------------------------


def whole_number(what: str, text: str) -> int:
    """The number in decimal, 0x or 0b; raises OperandError for any other text."""
    try:
        return int(text, 0)
    except ValueError:
        raise OperandError(f"{what} is a whole number; got {quoted(text, 80)}") from None


def swizzle_width(text: str, what: str = "swizzle") -> int:
    """Bytes of ``none``, ``128B`` or ``128``; raises OperandError for what is no swizzle."""
    plain = text.lower().removesuffix("b")
    width = 0 if plain in ("none", "0") else whole_number(f"{what} (none, 32B, 64B, 128B)", plain)
    if width not in SWIZZLES:
        names = {x: f"{x}B" if x else "none" for x in sorted(SWIZZLES)}
        raise OperandError(
            f"{what} is {listing(names.values())}, in bytes whatever its code; got "
            f"{quoted(text, 80)}; nearest is {names[min(names, key=lambda x: abs(x - width))]}"
        )
    return width


# --- what is read ---------------------------------------------------------------------------------


class ReadTile(NamedTuple):
    """What an instruction reads through one descriptor."""

    ins: MatrixInstruction
    #: "a" or "b"
    operand: str
    #: k counts bytes of b1
    shape: TileShape

    @property
    def type(self) -> str:
        return self.ins.a_type if self.operand == "a" else self.ins.b_type

    @property
    def k(self) -> int:
        """Columns, as the instruction counts them."""
        return self.ins.stored_k if self.operand == "a" else self.ins.k

    @property
    def per_k(self) -> int:
        """Elements in one k of `shape`: 8 for b1, else 1."""
        return self.k // self.shape.k

    def __str__(self) -> str:
        rows = {"a": "m", "b": "n"}[self.operand]
        stored = " stored" if self.operand == "a" and self.ins.is_sparse else ""
        return (
            f"operand {self.operand}: {self.shape.rows} rows ({rows}) × {self.k}{stored} columns "
            f"(k) of {self.type}, {self.shape.major.upper()}-major"
        )


def read_tile(ins: Instruction | str, operand: str = "b", major: str = "k") -> ReadTile:
    """What a wgmma reads through the descriptor of its A or B.

    `major` is "mn" where imm-trans is 1. Raises an EmulatorError for what is no wgmma or operand.
    """
    ins = as_instruction(ins)
    if not isinstance(ins, MatrixInstruction) or not ins.is_wgmma:
        raise OperandError(f"only wgmma reads its matrices through descriptors; got {ins}")
    one_of("an operand that is read through a descriptor", operand, ("a", "b"))
    one_of("major of a tile (imm-trans 0 or 1)", major, ("k", "mn"))
    if operand == "a":
        return ReadTile(ins, operand, TileShape.of(ins.m, ins.stored_k, ins.a_type, major))
    return ReadTile(ins, operand, TileShape.of(ins.n, ins.k, ins.b_type, major))


# --- what is stored -------------------------------------------------------------------------------


@dataclass(frozen=True)
class StoredTile:
    """How a tile lies in shared memory: blocks of 8 lines, each as wide as the swizzle.

    It may be larger than what one instruction reads, which then starts at (`row`, `column`).
    Raises OperandError for what is no size, place or order.
    """

    swizzle_bytes: int = 128
    major: str = "k"
    #: of the whole tile
    start_address: int = 0
    #: size of the whole tile in elements; None: what the instruction reads
    rows: int | None = None
    k: int | None = None
    #: "rows": behind a block lies that of the next rows, "columns": that of the next columns
    order: str = "rows"
    row: int = 0
    column: int = 0
    #: bytes between two lines, where known: only the width of the swizzle can be described
    leading_bytes: int | None = None

    def __post_init__(self) -> None:
        encode_descriptor(0, swizzle_bytes=self.swizzle_bytes)  # may raise
        one_of("major of a stored tile (imm-trans 0 or 1)", self.major, ("k", "mn"))
        one_of("the order of the blocks", self.order, ("rows", "columns"))
        for name in ("start_address", "rows", "k", "row", "column", "leading_bytes"):
            value, least = getattr(self, name), 1 if name in ("rows", "k") else 0
            if value is not None or name in ("start_address", "row", "column"):
                object.__setattr__(self, name, whole(name, value, least, WINDOW))

    def __str__(self) -> str:
        how = f"{self.swizzle_bytes}-byte swizzle" if self.swizzle_bytes else "no swizzle"
        inside = self.row or self.column
        place = f" read from (row {self.row}, column {self.column}) on," if inside else ""
        return (
            f"a tile of {self.rows} × {self.k} stored from {self.start_address:#x} on,{place} "
            f"{how}, {self.major.upper()}-major, blocks of the next {self.order} first"
        )

    def sized(self, tile: ReadTile) -> StoredTile:
        """With the size of what is read where none is given."""
        rows = tile.shape.rows if self.rows is None else self.rows
        return replace(self, rows=rows, k=tile.k if self.k is None else self.k)


def placed_tile(tile: ReadTile, stored: StoredTile) -> tuple[Placed, TileShape]:
    """The descriptor of the whole stored tile, the bytes that it takes, and its shape.

    Raises OperandError for what no descriptor can describe.
    """
    stored = stored.sized(tile)
    rows, k = stored.rows, stored.k
    assert rows is not None and k is not None
    shape = TileShape.of(rows, k, tile.type, stored.major)
    if shape.rows < tile.shape.rows or shape.k < tile.shape.k:
        raise OperandError(f"a stored tile of {rows} rows × {k} columns is smaller than {tile}")
    if stored.swizzle_bytes:
        _check_start(tile, stored.start_address, stored.swizzle_bytes)
    placed = Descriptor.for_tile(
        rows, k, tile.type, major=stored.major, swizzle_bytes=stored.swizzle_bytes,
        start_address=stored.start_address, order=stored.order,
    )  # fmt: skip
    return placed, shape


def _check_start(tile: ReadTile, start: int, width: int) -> None:
    """A stored, swizzled tile starts with a line of 128 bytes."""
    within = start % PATTERN_LINE
    if not within:
        return
    way, step = ("column", tile.per_k) if tile.shape.major == "k" else ("row", 1)
    step *= within // tile.shape.element_bytes
    inside = within < width and within % LINE_BYTES == 0
    raise OperandError(
        f"start_address {start} is no multiple of {PATTERN_LINE}, where the stored tile starts; "
        f"nearest is {start - within:#x}"
        + (f", with {way}={step} for what lies {within} bytes on" if inside else "")
    )


def needed_descriptor(
    ins: Instruction | str, operand: str = "b", stored: StoredTile | None = None
) -> Placed:
    """The descriptor with which `ins` reads a tile (stored=StoredTile(...)), and the bytes of the
    whole tile.

    Raises an EmulatorError for what no descriptor can describe, and for what is no wgmma or
    operand.

    >>> mma = "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16"
    >>> tile = StoredTile(swizzle_bytes=128, start_address=1024, rows=64, k=64, column=16)
    >>> needed_descriptor(mma, "b", tile)
    Placed(descriptor=Descriptor(start_address=1056, leading_byte_offset=16, \
stride_byte_offset=1024, base_offset=0, swizzle_bytes=128), size=8192)
    """
    stored = StoredTile() if stored is None else stored
    if not isinstance(stored, StoredTile):
        raise OperandError(f"a StoredTile is needed; got {shown(stored)}")
    tile = read_tile(ins, operand, stored.major)
    (large, size), shape = placed_tile(tile, stored)
    width, per_k = stored.swizzle_bytes, tile.per_k
    _check_leading(tile, stored)
    row, column = stored.row, stored.column
    for what, first, reads, all_ in (
        ("row", row, tile.shape.rows, shape.rows), ("column", column, tile.k, shape.k * per_k)
    ):  # fmt: skip
        if first > all_ - reads:
            raise OperandError(
                f"{tile} starts at {what} 0 … {all_ - reads} of a stored tile that has {all_}; "
                f"got {first}"
            )
    k = column // per_k
    places = large.addresses(shape)[row:, k:][: tile.shape.rows, : tile.shape.k]
    start = int(places[0, 0])
    if start % LINE_BYTES == 0 and column % per_k == 0:
        out = replace(large, start_address=start)
        if "k" not in tile.shape.used_strides(width):
            # As the tile alone, without what is stored beside it, has it.
            name = tile.shape.strides(width)["k"]
            out = replace(out, **{name: getattr(out.with_blocks(tile.shape), name)})
        if np.array_equal(out.addresses(tile.shape), places):
            return Placed(out, size)
    steps = [min(x, y) for x, y in zip(tile.shape.block(width), (tile.shape.rows, tile.shape.k),
                                       strict=True)]  # fmt: skip
    best = (row // steps[0] * steps[0], k // steps[1] * steps[1] * per_k)
    raise OperandError(
        f"no descriptor reads {tile} from (row {row}, column {column}) of the stored tile on: it "
        f"cuts blocks of 8 lines of {width or LINE_BYTES} bytes; legal are rows in steps of "
        f"{steps[0]} and columns in steps of {steps[1] * per_k}; nearest is {best}"
    )


def _check_leading(tile: ReadTile, stored: StoredTile) -> None:
    width, given = stored.swizzle_bytes or LINE_BYTES, stored.leading_bytes
    if given is None or given == width:
        return
    best = min((x or LINE_BYTES for x in SWIZZLES), key=lambda x: abs(x - given))
    how = f"the {width}-byte swizzle" if stored.swizzle_bytes else "no swizzle"
    raise OperandError(
        f"with {how} the lines of a block are {width} bytes "
        f"({width // tile.shape.element_bytes * tile.per_k} elements) apart, and no field of a "
        f"descriptor changes that; got {given} bytes; wider lines are stored as several blocks "
        f"side by side, each {width} bytes wide; nearest is {best} bytes, "
        f"{f'the {best}-byte swizzle' if best > LINE_BYTES else 'no swizzle'}"
    )
