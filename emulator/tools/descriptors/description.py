"""What a 64-bit wgmma matrix descriptor says, what is wrong with it, and which bytes it leads to.

``describe_descriptor`` answers for one word, ``needed_descriptor`` builds the one that a stored
tile needs, ``diff_descriptors`` names what parts the two. Fields, swizzles and addresses are those
of ``emulator.layout.descriptor``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from emulator.errors import OperandError, nearest
from emulator.isa.instruction import Instruction
from emulator.layout.addressing import FIELDS, SWIZZLE_UNITS, WINDOW
from emulator.layout.descriptor import Descriptor, Placed
from emulator.layout.tile import LINE_BYTES, LINES, CoreMatrix, TileShape
from emulator.layout.validation import (
    PATTERN_LINE,
    block_bytes,
    block_shape,
    line_bytes,
    stride_of,
    used_strides,
    with_field,
)
from emulator.tools.descriptors.checks import (
    Finding,
    ReadTile,
    at,
    check_start,
    find_faults,
    read_tile,
    unused_bits,
)
from emulator.tools.descriptors.mistakes import Fault, likely_faults


class FieldValue(NamedTuple):
    """One field of a word; unused bits are fields named ``unused``."""

    name: str
    high: int
    low: int
    raw: int
    #: bytes of addresses, offsets and the swizzle; else as `raw`
    value: int
    meaning: str


class Description(NamedTuple):
    """What `describe_descriptor` found; the last two are empty without an instruction."""

    word: int
    descriptor: Descriptor
    fields: tuple[FieldValue, ...]
    findings: tuple[Finding, ...]
    tile: ReadTile | None = None
    #: row by row
    core_matrices: tuple[CoreMatrix, ...] = ()

    @property
    def is_legal(self) -> bool:
        """Whether no finding is an error."""
        return all(finding.level != "error" for finding in self.findings)


def describe_descriptor(
    word: int,
    ins: Instruction | str | None = None,
    operand: str = "b",
    *,
    major: str = "k",
    shared_size: int = WINDOW,
) -> Description:
    """The fields of a descriptor and what is wrong with it, as the A or B of a wgmma.

    `major` is "mn" where imm-trans is 1; `shared_size` is the shared memory in bytes. Without an
    instruction only what is wrong for every tile is found. Raises an EmulatorError for a word of
    more than 64 bits and for what is no wgmma, operand or size.

    >>> found = describe_descriptor(0x40000040_00010040)
    >>> [(x.name, x.value) for x in found.fields if x.name != "unused"]
    [('start_address', 1024), ('leading_byte_offset', 16), ('stride_byte_offset', 1024), \
('base_offset', 0), ('swizzle', 128)]
    """
    descriptor = Descriptor.decode(word)
    if not isinstance(shared_size, int) or isinstance(shared_size, bool) or shared_size < 1:
        raise OperandError(f"the shared memory has at least 1 byte; got {shared_size!r:.80}")
    tile = None if ins is None else read_tile(ins, operand, major)
    return Description(
        int(word),
        descriptor,
        tuple(_fields(int(word), descriptor, tile)),
        find_faults(int(word), descriptor, tile, shared_size),
        tile,
        tuple(descriptor.core_matrices(tile.shape)) if tile else (),
    )


# --- fields ---------------------------------------------------------------------------------------


def _fields(word: int, descriptor: Descriptor, tile: ReadTile | None) -> Iterator[FieldValue]:
    places = [(low, low + width - 1, name) for name, (low, width) in FIELDS.items()]
    places += [(low, high, "unused") for high, low in unused_bits()]
    for low, high, name in sorted(places):
        raw = word >> low & (1 << high - low + 1) - 1
        if name == "unused":
            yield FieldValue(name, high, low, raw, raw, "no effect, but must be 0" if raw else "")
            continue
        value = descriptor.swizzle_bytes if name == "swizzle" else getattr(descriptor, name)
        yield FieldValue(name, high, low, raw, value, _meaning(name, descriptor, tile))


def _meaning(name: str, descriptor: Descriptor, tile: ReadTile | None) -> str:
    width = descriptor.swizzle_bytes
    pattern = block_bytes(width)
    if name == "start_address":
        return f"byte {at(descriptor.start_address)} of shared memory"
    if name == "swizzle":
        if not width:
            return "none: every 8 lines of 16 bytes are 128 bytes in one piece"
        return (
            f"{width} bytes: of each {pattern} bytes ({LINES} lines of {width}) the 16-byte units "
            "are permuted"
        )
    if name == "base_offset":
        if not width:
            return "no effect without a swizzle"
        lines = descriptor.base_offset % (pattern // PATTERN_LINE)
        behind = f"{PATTERN_LINE * lines} bytes behind " if lines else "at "
        return f"the swizzle pattern starts {behind}a multiple of {pattern}"
    value = getattr(descriptor, name)
    if tile is None:
        return f"{value} bytes"
    way = next(w for w, field in stride_of(tile.shape, width).items() if field == name)
    size = block_shape(tile.shape, width)[way == "k"] * (tile.per_k if way == "k" else 1)
    what = f"{size} {'columns' if way == 'k' else 'rows'}"
    if way not in used_strides(tile.shape, width):
        return f"{value} bytes, not used: this tile lies within {what}"
    return f"{value} bytes to the next {what}"


# --- the descriptor that a tile needs ------------------------------------------------------------


@dataclass(frozen=True)
class StoredTile:
    """How a tile lies in shared memory: blocks of 8 lines, each as wide as the swizzle.

    It may be larger than what one instruction reads, which then starts at (`row`, `column`).
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

    def __str__(self) -> str:
        how = f"{self.swizzle_bytes}-byte swizzle" if self.swizzle_bytes else "no swizzle"
        place = f" read from (row {self.row}, column {self.column}) on," if (
            self.row or self.column) else ""  # fmt: skip
        return (
            f"a tile of {self.rows} × {self.k} stored from {self.start_address:#x} on,{place} "
            f"{how}, {self.major.upper()}-major, blocks of the next {self.order} first"
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
    tile = read_tile(ins, operand, stored.major)
    (whole, size), shape = _whole(tile, stored)
    _check_leading(tile, stored)
    row, column = stored.row, stored.column
    for what, first, reads, all_ in (
        ("row", row, tile.shape.rows, shape.rows),
        ("column", column, tile.shape.k * tile.per_k, shape.k * tile.per_k),
    ):
        last = all_ - reads
        if not isinstance(first, (int, np.integer)) or not 0 <= first <= last:
            raise OperandError(
                f"{tile} starts at {what} 0 … {last} of a stored tile that has {all_}; "
                f"got {first!r:.80}"
            )
    k = column // tile.per_k
    places = whole.addresses(shape)[row:, k:][: tile.shape.rows, : tile.shape.k]
    start = int(places[0, 0])
    if start % LINE_BYTES == 0 and column % tile.per_k == 0:
        out = replace(whole, start_address=start)
        if "k" not in used_strides(tile.shape, stored.swizzle_bytes):
            out = _unused_stride(out, tile, stored)
        if np.array_equal(out.addresses(tile.shape), places):
            return Placed(out, size)
    steps = [min(x, y) for x, y in zip(block_shape(tile.shape, stored.swizzle_bytes),
                                      (tile.shape.rows, tile.shape.k), strict=True)]  # fmt: skip
    best = (row // steps[0] * steps[0], k // steps[1] * steps[1] * tile.per_k)
    raise OperandError(
        f"no descriptor reads {tile} from (row {row}, column {column}) of the stored tile on: it "
        f"cuts blocks of 8 lines of {line_bytes(stored.swizzle_bytes)} bytes; legal are rows in "
        f"steps of {steps[0]} and columns in steps of {steps[1] * tile.per_k}; nearest is {best}"
    )


def _whole(tile: ReadTile, stored: StoredTile) -> tuple[Placed, TileShape]:
    """The descriptor of the whole stored tile, the bytes that it takes, and its shape."""
    rows = tile.shape.rows if stored.rows is None else stored.rows
    k = tile.shape.k * tile.per_k if stored.k is None else stored.k
    kind = getattr(tile.ins, f"{tile.operand}_type")
    shape = TileShape.of(rows, k, kind, stored.major)
    if shape.rows * shape.k * shape.element_bytes > WINDOW:
        raise OperandError(
            f"a stored tile of {rows} × {k} elements of {kind} takes more than the {WINDOW} bytes "
            "of shared addresses"
        )
    if shape.rows < tile.shape.rows or shape.k < tile.shape.k:
        raise OperandError(f"a stored tile of {rows} rows × {k} columns is smaller than {tile}")
    check_start(tile, stored.start_address, stored.swizzle_bytes)
    if stored.order not in ("rows", "columns"):
        raise OperandError(
            f"the order of the blocks is rows or columns; got {stored.order!r:.80}; nearest is "
            f"{nearest(str(stored.order), ('rows', 'columns'))[0]!r}"
        )
    placed = Descriptor.for_tile(
        rows, k, kind, major=stored.major, swizzle_bytes=stored.swizzle_bytes,
        start_address=stored.start_address,
    )  # fmt: skip
    used = used_strides(shape, stored.swizzle_bytes)
    if stored.order == "columns" and len(used) == 2:
        block = block_bytes(stored.swizzle_bytes)
        wide = -(-shape.k // block_shape(shape, stored.swizzle_bytes)[1])
        turned = with_field(placed.descriptor, used["k"], block)
        placed = placed._replace(descriptor=with_field(turned, used["rows"], wide * block))
    return placed, shape


def _unused_stride(out: Descriptor, tile: ReadTile, stored: StoredTile) -> Descriptor:
    """With the stride along k as the tile alone, without what is stored beside it, has it."""
    kind = getattr(tile.ins, f"{tile.operand}_type")
    alone = Descriptor.for_tile(
        tile.shape.rows, tile.shape.k * tile.per_k, kind, major=stored.major,
        swizzle_bytes=stored.swizzle_bytes,
    ).descriptor  # fmt: skip
    name = stride_of(tile.shape, stored.swizzle_bytes)["k"]
    return with_field(out, name, getattr(alone, name))


def _check_leading(tile: ReadTile, stored: StoredTile) -> None:
    width, given = line_bytes(stored.swizzle_bytes), stored.leading_bytes
    if given is None or given == width:
        return
    size = tile.shape.element_bytes
    others = [LINE_BYTES * w for w in SWIZZLE_UNITS.values()]
    best = min(others, key=lambda x: abs(x - given))
    how = f"the {width}-byte swizzle" if stored.swizzle_bytes else "no swizzle"
    raise OperandError(
        f"with {how} the lines of a block are {width} bytes ({width // size * tile.per_k} "
        f"elements) apart, and no field of a descriptor changes that; got {given} bytes; wider "
        f"lines are stored as several blocks side by side, each {width} bytes wide; nearest is "
        f"{best} bytes, {f'the {best}-byte swizzle' if best > LINE_BYTES else 'no swizzle'}"
    )


# --- difference -----------------------------------------------------------------------------------


class Difference(NamedTuple):
    """How a descriptor parts from the one that is needed."""

    word: int
    #: with its size filled in
    stored: StoredTile
    needed: Placed
    #: field -> (what the word has, what is needed), in bytes; only those that differ
    fields: dict[str, tuple[int, int]]
    #: usual mistakes that make the one of the other
    faults: tuple[Fault, ...]
    #: (row, column) of what the instruction reads from wrong bytes; of b1 every 8th column
    wrong: tuple[tuple[int, int], ...]
    #: wrong and right address of the first of them
    first: tuple[int, int] | None

    @property
    def is_same(self) -> bool:
        """Whether the same bytes are read, whatever the fields say."""
        return not self.wrong


def diff_descriptors(
    word: int, ins: Instruction | str, operand: str = "b", stored: StoredTile | None = None
) -> Difference:
    """A descriptor beside the one that `needed_descriptor` builds, and the likely mistakes.

    >>> mma = "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16"
    >>> found = diff_descriptors(0x00000040_00080000, mma, "b", StoredTile(swizzle_bytes=0))
    >>> found.faults[0].mistakes[0]
    'LBO and SBO are exchanged'
    """
    stored = StoredTile() if stored is None else stored
    needed = needed_descriptor(ins, operand, stored)
    tile = read_tile(ins, operand, stored.major)
    given = Descriptor.decode(word)
    fields = {
        name: (getattr(given, key), getattr(needed.descriptor, key))
        for name in FIELDS
        for key in ["swizzle_bytes" if name == "swizzle" else name]
        if getattr(given, key) != getattr(needed.descriptor, key)
    }
    have, want = given.addresses(tile.shape), needed.descriptor.addresses(tile.shape)
    wrong = [(int(r), int(k) * tile.per_k) for r, k in np.argwhere(have != want)]
    first = None
    if wrong:
        row, k = wrong[0][0], wrong[0][1] // tile.per_k
        first = (int(have[row, k]), int(want[row, k]))
    shape = _whole(tile, stored)[1]
    stored = replace(stored, rows=shape.rows, k=shape.k * tile.per_k)
    faults = likely_faults(
        int(word), needed.descriptor, tile, _other_layouts(tile, stored),
        _larger_tiles(given, tile, stored), _place_in(tile, stored, given.start_address),
    )  # fmt: skip
    return Difference(int(word), stored, needed, fields, faults, tuple(wrong), first)


def _other_layouts(tile: ReadTile, stored: StoredTile) -> dict[str, Descriptor]:
    """Descriptors of tiles that are easily taken for this one."""
    others = {
        f"as for {f'the {width}-byte swizzle' if width else 'a tile without a swizzle'}":
            replace(stored, swizzle_bytes=width)
        for width in (LINE_BYTES * w if w > 1 else 0 for w in SWIZZLE_UNITS.values())
        if width != stored.swizzle_bytes
    }  # fmt: skip
    other = "mn" if stored.major == "k" else "k"
    others[f"as for {'an MN' if other == 'mn' else 'a K'}-major tile"] = replace(
        stored, major=other
    )
    order = "columns" if stored.order == "rows" else "rows"
    others[f"as for blocks stored {order} first"] = replace(stored, order=order)
    others["as for a tile of the instruction's own size, and the stored one is larger"] = replace(
        stored, rows=None, k=None
    )
    out = {}
    for text, layout in others.items():
        whole_start = replace(layout, leading_bytes=None, row=0, column=0)
        try:
            out[text] = needed_descriptor(tile.ins, tile.operand, whole_start).descriptor
        except OperandError:
            continue  # no such tile of this type and size: nobody took it for this one
    return out


def _larger_tiles(given: Descriptor, tile: ReadTile, stored: StoredTile) -> Iterator[str]:
    """Other sizes of the stored tile with which the strides of a descriptor are right."""
    width = stored.swizzle_bytes
    block, steps = block_bytes(width), stride_of(tile.shape, width)
    used = used_strides(tile.shape, width)
    high, wide = block_shape(tile.shape, width)
    rows, k = (getattr(given, steps[way]) for way in ("rows", "k"))
    if "k" in used and ("rows" not in used or rows == block) and k and k % block == 0:
        yield f"{k // block * high}x{stored.k},order=rows"
    if "rows" in used and ("k" not in used or k == block) and rows and rows % block == 0:
        yield f"{stored.rows}x{rows // block * wide * tile.per_k},order=columns"


def _place_in(tile: ReadTile, stored: StoredTile, address: int) -> tuple[int, int] | None:
    """(row, column) of the element of the stored tile that starts at an address."""
    (whole, _), shape = _whole(tile, stored)
    found = np.argwhere(whole.addresses(shape) == address)
    return (int(found[0][0]), int(found[0][1]) * tile.per_k) if len(found) else None
