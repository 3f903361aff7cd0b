"""``Descriptor``: one 64-bit matrix descriptor of wgmma as a kernel writer thinks of it: built for
a tile, looked through, checked. `addressing` has the fields and addresses of arrays of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

import numpy as np

from dtypes import Array, Format
from emulator.errors import OperandError, as_integer, needed, one_of, runs, shown, whole
from emulator.layout.addressing import (
    SWIZZLES,
    Fields,
    Int64,
    addresses,
    decode_words,
    encode_descriptor,
)
from emulator.layout.tile import (
    LINE_BYTES,
    LINES,
    PATTERN_LINE,
    STRIDES,
    WINDOW,
    CoreMatrix,
    TileShape,
    block_bytes,
    first_shared,
)

D = TypeVar("D", bound="Descriptor")

#: strides tried for one that keeps blocks apart: the blocks of an instruction's largest tile
_TRIED = 64


def as_words(given: object) -> Any:
    """A `Descriptor`, an integer below 2**64 or a list of them as uint64; all else as it is."""
    if isinstance(given, (np.uint64, np.ndarray)):
        return given
    if isinstance(given, Descriptor):
        return given.encode()
    word = as_integer(given)
    if word is not None:
        return np.uint64(word) if 0 <= word < 1 << 64 else given
    if isinstance(given, (list, tuple)) and given:
        words = [as_words(one) for one in given]
        if all(isinstance(word, np.uint64) for word in words):
            return np.array(words)
    return given


def decode_descriptor(descriptors: Array | Descriptor | int, operand: str = "") -> Fields:
    """The fields of 64-bit descriptors; bits that belong to no field have no effect.

    Raises OperandError, with the name of the operand, for what `as_words` makes no uint64 of.
    """
    words = as_words(descriptors)
    if not isinstance(words, (np.ndarray, np.uint64)) or words.dtype != np.uint64:
        got = f"{words.dtype} {words.shape}" if isinstance(words, np.ndarray) else shown(words)
        raise OperandError(
            f"{f'operand {operand}: ' if operand else ''}a matrix descriptor is a 64-bit word: a "
            f"Descriptor, an integer from 0 to 2**64 - 1 or a uint64 array of them; got {got}"
        )
    return decode_words(np.asarray(words))


class Placed(NamedTuple):
    """A descriptor, and the bytes of its tile from the start address on, gaps included."""

    descriptor: Descriptor
    size: int


class Finding(NamedTuple):
    """Something wrong with a descriptor: an error reads wrong bytes, a warning may."""

    level: Literal["error", "warning"]
    field: str
    message: str
    #: legal values, and the nearest of them
    legal: str


mistake, warning = partial(Finding, "error"), partial(Finding, "warning")


@dataclass(frozen=True)
class Descriptor:
    """A matrix descriptor; addresses and offsets in bytes, multiples of 16 below 2**18.

    Raises OperandError for fields that do not fit the 64-bit word.
    """

    #: instruction that reads through these words, and element sizes that it takes MN-major
    reader: ClassVar[str] = "wgmma"
    transposable_bytes: ClassVar[tuple[int, ...]] = (2,)

    start_address: int
    #: LBO: K-major to the next 16 bytes of k (no swizzle) or swizzle width of k; MN-major to the
    #: next 8 columns (no swizzle) or swizzle width of rows
    leading_byte_offset: int = 0
    #: SBO: K-major to the next 8 rows; MN-major to the next 16 bytes of rows (no swizzle) or to the
    #: next 8 columns
    stride_byte_offset: int = 0
    #: 0 … 7: 128-byte lines between the start of the swizzle pattern and a multiple of its size
    base_offset: int = 0
    #: 0, 32, 64 or 128
    swizzle_bytes: int = 0

    def __post_init__(self) -> None:
        self.encode()  # may raise
        for name, value in list(vars(self).items()):
            object.__setattr__(self, name, int(value))

    def encode(self) -> np.uint64:
        """The 64-bit word."""
        return encode_descriptor(
            self.start_address,
            self.leading_byte_offset,
            self.stride_byte_offset,
            self.base_offset,
            self.swizzle_bytes,
        )

    @classmethod
    def decode(cls, word: int | np.uint64) -> Descriptor:
        """The descriptor that a 64-bit word holds; bits that belong to no field are dropped.

        Raises OperandError for anything but one integer below 2**64.
        """
        word = whole("a matrix descriptor of 64 bits", word, 0, (1 << 64) - 1)
        fields = decode_descriptor(np.asarray(word, np.uint64))
        start, leading, stride, base, _ = (int(field) for field in fields)
        units = int(fields.units)
        return cls(start, leading, stride, base, units * LINE_BYTES if units > 1 else 0)

    @classmethod
    def for_tile(
        cls,
        rows: int,
        k: int,
        fmt: Format | str,
        *,
        major: str = "k",
        swizzle_bytes: int = 128,
        start_address: int = 0,
        order: str = "rows",
    ) -> Placed:
        """The canonical layout of `rows` × `k` elements, in blocks of 8 lines as wide as the
        swizzle: behind a block lies that of the next rows, or with `order` "columns" of the next
        columns.

        Blocks fill memory without gaps where the tile fills whole blocks. A swizzled tile that does
        not start on a multiple of its pattern (8 lines) gets the base offset that this needs.
        Raises OperandError for a tile that wgmma cannot read.

        >>> Descriptor.for_tile(64, 64, "f16", swizzle_bytes=128, start_address=1024)
        Placed(descriptor=Descriptor(start_address=1024, leading_byte_offset=16, \
stride_byte_offset=1024, base_offset=0, swizzle_bytes=128), size=8192)
        """
        encode_descriptor(start_address, swizzle_bytes=swizzle_bytes)  # may raise
        tile = TileShape.of(rows, k, fmt, major)
        base = int(start_address) >> 7 & block_bytes(swizzle_bytes) // PATTERN_LINE - 1
        out = cls(start_address, 0, 0, base, swizzle_bytes).with_blocks(tile, order)
        found = out.validate(tile)
        if swizzle_bytes and start_address % PATTERN_LINE:
            found.append(
                f"start_address {start_address} is no multiple of {PATTERN_LINE}, where the lines "
                "of a swizzled tile start (steps along k inside of a tile: `stepped`)"
            )
        if found:
            raise OperandError(f"no descriptor for {tile}: {'; '.join(found)}")
        high, wide = tile.blocks(swizzle_bytes)
        return Placed(out, high * wide * block_bytes(swizzle_bytes))

    def with_blocks(self: D, tile: TileShape, order: str = "rows") -> D:
        """With the strides of the canonical layout of a tile; see `for_tile`."""
        one_of("the order of blocks", order, ("rows", "columns"))
        (high, wide) = needed(TileShape, tile).blocks(self.swizzle_bytes)
        size = block_bytes(self.swizzle_bytes)
        names = tile.strides(self.swizzle_bytes)
        if order == "columns" and high > 1 and wide > 1:
            return replace(self, **{names["rows"]: wide * size, names["k"]: size})
        if self.swizzle_bytes and tile.major == "k" and wide == 1:
            # What the manual assumes of an LBO that is not used.
            return replace(self, **{names["rows"]: size, names["k"]: LINE_BYTES})
        return replace(self, **{names["rows"]: size, names["k"]: high * size})

    def stepped(self, offset: int) -> Descriptor:
        """The descriptor `offset` bytes further, as a kernel steps along k inside of a tile."""
        offset = whole("a step in bytes", offset, -WINDOW, WINDOW)
        return replace(self, start_address=self.start_address + offset)

    # --- where it leads ---

    def addresses(self, tile: TileShape) -> Int64:
        """``(rows, k)``: address of the first byte of every element; k counts bytes of b1."""
        return addresses(decode_descriptor(np.asarray(self.encode())), needed(TileShape, tile))

    def address(self, row: int, k: int, tile: TileShape) -> range:
        """The bytes of element (row, k) of a tile; k counts bytes of b1.

        Raises OperandError outside of the tile.
        """
        places = self.addresses(tile)
        row, k = whole("row", row, 0, tile.rows - 1), whole("k", k, 0, tile.k - 1)
        first = int(places[row, k])
        return range(first, first + tile.element_bytes)

    def core_matrices(self, tile: TileShape) -> list[CoreMatrix]:
        """The core matrices of a tile, row by row, and the bytes that each reads."""
        places, out = self.addresses(tile), []
        unit, by_rows = LINE_BYTES // tile.element_bytes, tile.major == "k"
        height, width = (LINES, unit) if by_rows else (unit, LINES)
        for row in range(0, tile.rows, height):
            for column in range(0, tile.k, width):
                part = places[row : row + height, column : column + width]
                held = part.shape[by_rows] * tile.element_bytes
                lines = tuple(range(x, x + held) for x in part.min(int(by_rows)).tolist())
                rows = range(row, row + part.shape[0])
                out.append(CoreMatrix(rows, range(column, column + part.shape[1]), lines))
        return out

    # --- what is wrong with it ---

    def findings(
        self, tile: TileShape | None = None, memory_bytes: int = WINDOW
    ) -> tuple[Finding, ...]:
        """Lists mistakes of reading `tile` (None: any) through this descriptor, errors first.

        `memory_bytes` is the size of shared memory, at most the 18-bit window. A warning about a
        field in error is left out.
        """
        memory_bytes = whole("the size of shared memory", memory_bytes, 1)
        if tile is not None:
            self.addresses(tile)  # may raise
        found = list(_pattern(self, tile))
        if tile:
            found += [
                *_shape(self, tile),
                *_strides(self, tile),
                *_memory(self, tile, memory_bytes),
            ]
        wrong = {x.field for x in found if x.level == "error"}
        kept = [x for x in found if x.level == "error" or x.field not in wrong]
        return tuple(sorted(kept, key=lambda x: x.level))

    def validate(self, tile: TileShape, memory_bytes: int = WINDOW) -> list[str]:
        """`findings` in plain words; [] if nothing is wrong."""
        return [f"{x.message}; legal: {x.legal}" for x in self.findings(tile, memory_bytes)]


def both_bases(address: int) -> str:
    return f"{address:#x} ({address})"


def _pattern(descriptor: Descriptor, tile: TileShape | None) -> Iterator[Finding]:
    """Checks where the tile starts in its line of a swizzle, and its line in the pattern."""
    width, start = descriptor.swizzle_bytes, descriptor.start_address
    if not width:
        if descriptor.base_offset:
            yield warning(
                "base_offset",
                f"base_offset {descriptor.base_offset} has no effect without a swizzle",
                f"base_offset 0, or one of the swizzles {runs(sorted(SWIZZLES)[1:])}",
            )
        return
    within = start % width
    if tile is not None and within + (reads := min(width, tile.line_bytes)) > width:
        best = start - within + min(within, width - reads) // reads * reads
        yield mistake(
            "start_address",
            f"start_address {both_bases(start)} lies {within} bytes into a line of {width}, of "
            f"which the tile reads {reads}: the last {within + reads - width} are those of another "
            "line",
            f"a tile starts with a line, or a multiple of {reads} bytes into it: nearest is "
            f"{both_bases(best)}",
        )
    pattern = block_bytes(width)
    into = start % pattern - within
    if into % PATTERN_LINE:
        yield warning(
            "start_address",
            f"start_address {both_bases(start)} lies in the middle of the {PATTERN_LINE} bytes "
            "that the swizzle counts as one: right only for data that was swizzled by absolute "
            "addresses",
            f"a tile starts at a multiple of {PATTERN_LINE}: nearest is "
            f"{both_bases(start - start % PATTERN_LINE)}",
        )
        return
    wanted = into // PATTERN_LINE
    if (wanted - descriptor.base_offset) % (pattern // PATTERN_LINE):
        yield warning(
            "base_offset",
            f"start_address {both_bases(start)} lies {into} bytes behind a multiple of {pattern}, "
            f"after which the {width}-byte swizzle repeats, and base_offset is "
            f"{descriptor.base_offset}",
            f"base_offset {wanted} where the pattern of the data starts with the tile"
            + (" (0 where it was swizzled by absolute addresses)" if wanted else ""),
        )


def _shape(descriptor: Descriptor, tile: TileShape) -> Iterator[Finding]:
    """Finds shapes that the instruction never reads, whatever the fields."""
    if tile.rows % LINES:
        yield mistake(
            "tile",
            f"{tile.rows} rows: {descriptor.reader} reads a multiple of {LINES} rows",
            f"nearest is {-(-tile.rows // LINES) * LINES} rows",
        )
    if tile.major == "mn" and tile.element_bytes not in descriptor.transposable_bytes:
        yield mistake(
            "major",
            f"an MN-major tile of {8 * tile.element_bytes}-bit elements: only 16-bit types can be "
            "transposed (imm-trans)",
            "K-major (imm-trans 0, --major k), the tile stored with k contiguous",
        )
    unit = LINE_BYTES // tile.element_bytes if tile.major == "k" else LINES
    if tile.k % unit:
        yield mistake(
            "tile",
            f"{tile.k} columns: a core matrix holds {unit} of them",
            f"nearest is {-(-tile.k // unit) * unit} columns",
        )


def _strides(descriptor: Descriptor, tile: TileShape) -> Iterator[Finding]:
    width, leading = descriptor.swizzle_bytes, descriptor.leading_byte_offset
    used, pattern = tile.used_strides(width), block_bytes(width)
    if width and tile.major == "k" and "k" not in used and leading not in (0, LINE_BYTES):
        yield warning(
            "leading_byte_offset",
            f"leading_byte_offset {leading} has no effect: {tile.line_bytes} bytes of k are within "
            f"one {width}-byte line",
            f"{LINE_BYTES} (raw 1), which the manual assumes here, or 0",
        )
    for name in used.values() if width else ():
        value = getattr(descriptor, name)
        if value % pattern:
            below = value // pattern * pattern
            best = below if below and value - below <= pattern // 2 else below + pattern
            yield warning(
                name,
                f"{name} {value} is no multiple of {pattern}, after which the {width}-byte swizzle "
                "repeats: one block of 8 lines is permuted otherwise than the next",
                f"a multiple of {pattern}: nearest is {best}",
            )
    if shared := first_shared(_units(descriptor, tile)):
        byte, *pair = shared
        first, second = sorted(
            (r // LINES, c) if tile.major == "k" else (r, c // LINES) for r, c in pair
        )
        names = " and ".join(f"{name} {getattr(descriptor, name)}" for name in used.values())
        name, legal = _apart(descriptor, tile)
        yield mistake(
            name,
            f"core matrices {first} and {second} both read byte {byte:#x}: {names} "
            f"{'does' if len(used) == 1 else 'do'} not keep the blocks of {pattern} bytes apart",
            legal,
        )


def _units(descriptor: Descriptor, tile: TileShape) -> Int64:
    """Addresses of the first bytes of the 16-byte units ``(rows, k)`` that a tile consists of."""
    step, places = LINE_BYTES // tile.element_bytes, descriptor.addresses(tile)
    return places[:, ::step] if tile.major == "k" else places[::step]


def _apart(descriptor: Descriptor, tile: TileShape) -> tuple[str, str]:
    """The stride whose smallest change keeps all blocks apart, and what it has to be."""
    size, used = block_bytes(descriptor.swizzle_bytes), tile.used_strides(descriptor.swizzle_bytes)
    counts = dict(zip(("rows", "k"), tile.blocks(descriptor.swizzle_bytes), strict=True))
    found = []
    for way, name in used.items():
        (other,) = {"rows", "k"} - {way}
        beside = getattr(descriptor, used[other]) if other in used else 0
        # One that steps over all blocks of the other way, and a bounded number of smaller ones.
        over = -(-((counts[other] - 1) * beside + size) // size)
        for blocks in {over, *range(1, min(counts["rows"] * counts["k"], _TRIED) + 1)}:
            changed = replace(descriptor, **{name: min(blocks * size, WINDOW - LINE_BYTES)})
            if first_shared(_units(changed, tile)) is None:
                stride = getattr(changed, name)
                found.append((abs(stride - getattr(descriptor, name)), name, stride))
    if found:
        _, name, stride = min(found)
        return name, f"a stride of at least {size}: nearest is {name} {stride}"
    return used["rows"], (
        f"strides of at least {size}, one of them large enough to step over all blocks of the "
        f"other: nearest is {used['rows']} {size} with {used['k']} {counts['rows'] * size}"
    )


def _memory(descriptor: Descriptor, tile: TileShape, memory_bytes: int) -> Iterator[Finding]:
    places, start = descriptor.addresses(tile), descriptor.start_address
    end, size = int(places.max()) + tile.element_bytes, min(memory_bytes, WINDOW)
    if end <= size:
        return
    step = max(PATTERN_LINE, block_bytes(descriptor.swizzle_bytes))
    best = (size - end + start) // step * step
    if best >= 0:
        field, legal = "start_address", f"start_address at most {both_bases(best)}"
    else:
        used = tile.used_strides(descriptor.swizzle_bytes).values()
        field = max(used, key=lambda name: getattr(descriptor, name), default=STRIDES[1])
        legal = f"smaller strides: with these the tile spans {end - start} bytes"
        if end - start == tile.size:
            legal = f"at least {tile.size} bytes of shared memory: the tile fills them without gaps"
    what = "the 18 bits of shared addresses end" if size == WINDOW else "shared memory ends"
    row, k = (int(i) for i in np.argwhere(places + tile.element_bytes > size)[0])
    yield mistake(
        field,
        f"the tile ends at byte {both_bases(end)}, and {what} at {both_bases(size)}: element "
        f"(row {row}, k {k}) is the first outside",
        legal,
    )
