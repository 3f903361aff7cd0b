"""The tile that an instruction reads through a descriptor, and the larger one that is stored.

``needed_descriptor`` builds the descriptor that leads from the one to the other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from dtypes import FORMATS, Array, Format, array_type
from emulator.arrays import as_array
from emulator.errors import OperandError, one_of, shown, whole
from emulator.isa.instruction import Instruction, as_instruction
from emulator.isa.matrix import MatrixInstruction
from emulator.layout.addressing import SWIZZLES, encode_descriptor
from emulator.layout.descriptor import Descriptor, Placed
from emulator.layout.tile import IN_MEMORY, LINE_BYTES, LINES, PATTERN_LINE, WINDOW, TileShape
from emulator.memory.descriptors import store_tile
from emulator.tools.operands import as_codes

# --- what is read ---------------------------------------------------------------------------------


class ReadTile(NamedTuple):
    """The tile that an instruction reads through one descriptor."""

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
    """Returns the tile that a wgmma reads through the descriptor of its A or B.

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
    """Layout of a tile in shared memory: blocks of 8 lines, each as wide as the swizzle.

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

    def placed(self, fmt: Format | str) -> Placed:
        """The descriptor of the whole tile of elements of a type, and the bytes that it takes.

        Raises OperandError for a tile without sizes, and for what no descriptor can describe.
        """
        if self.rows is None or self.k is None:
            raise OperandError(f"the size of the stored tile is missing: rows= and k=; got {self}")
        return Descriptor.for_tile(
            self.rows,
            self.k,
            fmt,
            major=self.major,
            swizzle_bytes=self.swizzle_bytes,
            start_address=self.start_address,
            order=self.order,
        )

    def store(
        self, matrix: object, fmt: Format | str | None = None, shared: Array | None = None
    ) -> Array:
        """Writes the tile into shared memory as a tensor copy (TMA) of it does, and returns that.

        `matrix` is ``(rows, k)``, of B thus its transpose, as an array of the element type or as
        codes of `fmt`; sizes that the tile leaves out are those of the matrix. `shared` is ``uint8
        (bytes,)`` and is written in place; None: zeros that end with the tile. What a copy with the
        same swizzle writes is the same where the tile starts at a multiple of its pattern (8
        lines); elsewhere the pattern starts with the tile, as `needed_descriptor` reads it, and
        that of a copy goes on through absolute addresses. `row` and `column` do not count.

        Raises OperandError for a matrix of another size or type, and for a tile that no descriptor
        can describe; UndefinedError for one that leaves `shared`.

        >>> tile = StoredTile(swizzle_bytes=128, rows=8, k=64)
        >>> tile.store(np.arange(512, dtype="f2").reshape(8, 64))[128:144].view("f2")
        array([72., 73., 74., 75., 76., 77., 78., 79.], dtype=float16)
        """
        array = as_array(matrix, "matrix")
        if fmt is None:
            fmt = next((x for x in IN_MEMORY if array_type(FORMATS[x]) == array.dtype), None)
        name = one_of("the type of the elements (fmt=)", getattr(fmt, "name", fmt), IN_MEMORY)
        codes = as_codes("matrix", FORMATS[name], array)
        size = tuple(
            y if x is None else x for x, y in zip((self.rows, self.k), codes.shape, strict=False)
        )
        if codes.ndim != 2 or codes.shape != size:
            raise OperandError(f"matrix is (rows, k) of {self}; got {array.dtype} {array.shape}")
        tile, bytes_ = replace(self, rows=size[0], k=size[1]).placed(name)
        if shared is None:
            shared = np.zeros(self.start_address + bytes_, np.uint8)
        store_tile(shared, tile, codes, name, self.major)
        return shared

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
    if stored.swizzle_bytes and stored.start_address % PATTERN_LINE:
        raise OperandError(_wrong_start(tile, stored))
    return stored.placed(tile.type), shape


def _wrong_start(tile: ReadTile, stored: StoredTile) -> str:
    """Where the stored, swizzled tile starts, and if it can be, how to say what lies behind."""
    start, width = stored.start_address, stored.swizzle_bytes
    within = start % PATTERN_LINE
    way, step = ("column", tile.per_k) if stored.major == "k" else ("row", 1)
    inside = getattr(stored, way) + within // tile.shape.element_bytes * step
    moved = replace(stored, start_address=start - within)
    moved = replace(moved, column=inside) if way == "column" else replace(moved, row=inside)
    high, wide = tile.shape.block(width)
    larger = {"rows": max(high, tile.shape.rows), "k": max(wide, tile.shape.k) * tile.per_k}
    more = ""
    if within < width and within % LINE_BYTES == 0:
        if _is_readable(tile, moved):
            more = f", with {way}={inside} for what lies {within} bytes on"
        elif _is_readable(tile, replace(moved, rows=larger["rows"], k=larger["k"])):
            more = (
                f", with tile={larger['rows']}x{larger['k']},{way}={inside} for what lies "
                f"{within} bytes on"
            )
    return (
        f"start_address {start} is no multiple of {PATTERN_LINE}, where the stored tile starts; "
        f"nearest is {start - within:#x}{more}"
    )


def _is_readable(tile: ReadTile, stored: StoredTile) -> bool:
    try:
        needed_descriptor(tile.ins, tile.operand, stored)
    except OperandError:
        return False
    return True


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
    _check_leading(tile, stored)
    if part := _part(tile, large, shape, stored.row, stored.column):
        return Placed(part, size)
    width, per_k = stored.swizzle_bytes or LINE_BYTES, tile.per_k
    last = shape.rows - tile.shape.rows, (shape.k - tile.shape.k) * per_k
    rows = range(min(stored.row, last[0]) // LINES * LINES, 0, -LINES)
    columns = range(min(stored.column, last[1]) // per_k * per_k, 0, -per_k)
    best = (
        next((x for x in rows if _part(tile, large, shape, x, 0)), 0),
        next((x for x in columns if _part(tile, large, shape, 0, x)), 0),
    )
    raise OperandError(
        f"no descriptor reads {tile} from (row {stored.row}, column {stored.column}) on of a "
        f"stored tile of {shape.rows} × {shape.k * per_k}: it would cut blocks of 8 lines of "
        f"{width} bytes, or end behind it; nearest is {best}"
    )


def _part(
    tile: ReadTile, large: Descriptor, shape: TileShape, row: int, column: int
) -> Descriptor | None:
    """The descriptor that reads a tile from (row, column) on; None where there is none."""
    k = column // tile.per_k
    places = large.addresses(shape)[row:, k:][: tile.shape.rows, : tile.shape.k]
    if places.shape != (tile.shape.rows, tile.shape.k) or column % tile.per_k:
        return None
    if (start := int(places[0, 0])) % LINE_BYTES:
        return None
    out = replace(large, start_address=start)
    if "k" not in tile.shape.used_strides(large.swizzle_bytes):
        # As the tile alone, without what is stored beside it, has it.
        name = tile.shape.strides(large.swizzle_bytes)["k"]
        out = replace(out, **{name: getattr(out.with_blocks(tile.shape), name)})
    return out if np.array_equal(out.addresses(tile.shape), places) else None


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
