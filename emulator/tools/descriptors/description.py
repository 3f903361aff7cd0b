"""Description of a 64-bit wgmma matrix descriptor: fields, mistakes, the bytes that it reads.

`layout.descriptor` says what is wrong with it, `difference` what parts it from another.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from emulator.isa.instruction import Instruction
from emulator.layout.addressing import FIELDS, Int64
from emulator.layout.descriptor import Descriptor, Finding, both_bases
from emulator.layout.tile import LINE_BYTES, LINES, PATTERN_LINE, WINDOW, CoreMatrix, block_bytes
from emulator.report import Report
from emulator.tools.descriptors.tiles import ReadTile, read_tile
from emulator.tools.report import render

WORD_BITS = 64
#: (highest bit, lowest bit, value) of the constant in descriptors of tcgen05, PTX ISA 9.7.16.4.1
_TCGEN05 = (48, 46, 1)
#: rows of a table of blocks that are shown where they do not follow one rule
_SHOWN = 16


class FieldValue(NamedTuple):
    """One field of a word; unused bits are fields named ``unused``."""

    name: str
    high: int
    low: int
    raw: int
    #: bytes of addresses, offsets and the swizzle; else as `raw`
    value: int
    meaning: str


@dataclass(frozen=True, repr=False)
class DescribedWord(Report):
    """A word: its fields, and what is wrong with it."""

    word: int
    fields: tuple[FieldValue, ...]
    findings: tuple[Finding, ...]

    @property
    def is_legal(self) -> bool:
        """Whether no finding is an error."""
        return all(finding.level != "error" for finding in self.findings)

    @property
    def code(self) -> int:  # type: ignore[override]
        return int(not self.is_legal)

    @property
    def hex(self) -> str:
        return as_hex(self.word)

    @property
    def data(self) -> dict[str, object]:
        return {
            "word": self.hex,
            "fields": [field._asdict() for field in self.fields],
            "findings": [finding._asdict() for finding in self.findings],
            "legal": self.is_legal,
        }

    def details(self) -> Iterator[str]:
        """A table of the fields, then the findings."""
        rows = [
            [
                f"{x.high}:{x.low}" if x.high > x.low else str(x.low),
                x.name,
                f"{x.raw:#x}",
                x.meaning,
            ]
            for x in self.fields
            if x.name != "unused" or x.raw
        ]
        yield ""
        yield from render(["bits", "field", "raw", "meaning"], rows)
        yield ""
        for finding in self.findings:
            yield f"{finding.level}: {finding.message}"
            yield f"  legal: {finding.legal}"


@dataclass(frozen=True, repr=False)
class Description(DescribedWord):
    """Result of `describe_descriptor`; the last two are empty without an instruction."""

    descriptor: Descriptor
    tile: ReadTile | None = None
    #: row by row
    core_matrices: tuple[CoreMatrix, ...] = ()

    @property
    def title(self) -> str:
        return f"matrix descriptor {self.hex}"

    def lines(self) -> Iterator[str]:
        yield from self.head()
        yield from self.matrices()

    def head(self, alone: bool = True) -> Iterator[str]:
        """The fields, and what is wrong; not `alone`: more is said of it elsewhere."""
        yield self.hex
        if self.tile:
            yield f"{self.tile.ins}, {self.tile}"
        yield from self.details()
        if alone and not self.findings:
            known = "no fault can be seen without an instruction: give an opcode, --operand and "
            yield "nothing is wrong with it" if self.tile else f"{known}--major"

    def matrices(self) -> Iterator[str]:
        """Core matrix (i, j) by its bytes; of a swizzled tile first the lines of one block."""
        if not self.tile:
            return
        firsts = _firsts(self)
        units = (self.descriptor.swizzle_bytes or LINE_BYTES) // LINE_BYTES
        high, wide = (1, units) if self.tile.shape.major == "k" else (units, 1)
        if units > 1:
            yield from _lines_of_a_block(self, self.tile, firsts[:high, :wide])
        yield from _blocks(self, firsts, high, wide)

    @property
    def data(self) -> dict[str, object]:
        if (tile := self.tile) is None:
            return super().data
        wide, per_k = _firsts(self).shape[1], tile.per_k
        return super().data | {
            "opcode": str(tile.ins),
            "operand": tile.operand,
            "major": tile.shape.major,
            "rows": tile.shape.rows,
            "columns": tile.k,
            "core_matrices": [
                {
                    "i": place // wide,
                    "j": place % wide,
                    "rows": [matrix.rows[0], matrix.rows[-1]],
                    "columns": [matrix.columns[0] * per_k, (matrix.columns[-1] + 1) * per_k - 1],
                    "lines": [[line[0], line[-1]] for line in matrix.lines],
                }
                for place, matrix in enumerate(self.core_matrices)
            ],
        }


def as_hex(word: int) -> str:
    return f"{word:#018x}"


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
    tile = None if ins is None else read_tile(ins, operand, major)
    found = descriptor.findings(tile.shape if tile else None, shared_size)
    fields = tuple(_fields(int(word), descriptor, tile))
    told = tuple(sorted((*_unused_bits(int(word)), *found), key=lambda x: x.level))
    matrices = tuple(descriptor.core_matrices(tile.shape)) if tile else ()
    return Description(int(word), fields, told, descriptor, tile, matrices)


# --- fields ---------------------------------------------------------------------------------------


def unused_bits(word: int) -> list[tuple[int, int, int]]:
    """(highest, lowest bit, value) of each stretch that belongs to no field, upwards."""
    out, low = [], 0
    for first, width in (*sorted(FIELDS.values()), (WORD_BITS, 0)):
        if first > low:
            out.append((first - 1, low, word >> low & (1 << first - low) - 1))
        low = first + width
    return out


def _unused_bits(word: int) -> Iterator[Finding]:
    held = [(high, low, value) for high, low, value in unused_bits(word) if value]
    if held:
        clean = word - sum(value << low for _, low, value in held)
        texts = ", ".join(f"bits {high}:{low} hold {value:#b}" for high, low, value in held)
        mark = "; this is the mark of tcgen05 descriptors, which are laid out differently"
        yield Finding(
            "warning",
            "unused",
            f"{texts}: no field of a wgmma descriptor (an H200 ignores them)"
            f"{mark if _TCGEN05 in held else ''}",
            f"unused bits are 0: {as_hex(clean)}",
        )


def _fields(word: int, descriptor: Descriptor, tile: ReadTile | None) -> Iterator[FieldValue]:
    places = [(low, low + width - 1, name) for name, (low, width) in FIELDS.items()]
    places += [(low, high, "unused") for high, low, _ in unused_bits(word)]
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
        return f"byte {both_bases(descriptor.start_address)} of shared memory"
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
    rows, k = tile.shape.block(width)
    way = next(w for w, field in tile.shape.strides(width).items() if field == name)
    what = f"{k * tile.per_k} columns" if way == "k" else f"{rows} rows"
    if way not in tile.shape.used_strides(width):
        return f"{value} bytes, not used: this tile lies within {what}"
    return f"{value} bytes to the next {what}"


# --- core matrices --------------------------------------------------------------------------------


def _firsts(found: Description) -> Int64:
    """The first byte of every line of the core matrices ``(i, j, line)``."""
    wide = len({matrix.columns.start for matrix in found.core_matrices})
    firsts = [[line.start for line in matrix.lines] for matrix in found.core_matrices]
    return np.array(firsts).reshape(-1, wide, LINES)


def span(first: int, count: int) -> str:
    return f"{first}-{first + count - 1}" if count > 1 else str(first)


def _labels(found: Description) -> tuple[list[str], list[str]]:
    """Rows and columns (in elements) of the core matrices, by i and by j."""
    per_k = found.tile.per_k if found.tile else 1
    rows = {m.rows.start: span(m.rows.start, len(m.rows)) for m in found.core_matrices}
    columns = {
        m.columns.start: span(m.columns.start * per_k, len(m.columns) * per_k)
        for m in found.core_matrices
    }
    return list(rows.values()), list(columns.values())


def _lines_of_a_block(found: Description, tile: ReadTile, firsts: Int64) -> Iterator[str]:
    """Places of the 16 bytes of every line of the first core matrices."""
    rows, columns = _labels(found)
    if tile.shape.major == "k":
        header = ["row", *columns[: firsts.shape[1]]]
        header[1] = f"k {header[1]}"
        which, cells = f"(0,{span(0, firsts.shape[1])})", firsts[0].T
        named = [str(line) for line in range(LINES)]
    else:
        header = ["k", *rows[: firsts.shape[0]]]
        header[1] = f"rows {header[1]}"
        which, cells = f"({span(0, firsts.shape[0])},0)", firsts[:, 0].T
        named = [span(line * tile.per_k, tile.per_k) for line in range(LINES)]
    yield ""
    yield f"where the 16 bytes of each line of core matrices {which} start:"
    body = [[name, *(f"{x:#x}" for x in line)] for name, line in zip(named, cells, strict=True)]
    yield from render(header, body)


def _blocks(found: Description, firsts: Int64, high: int, wide: int) -> Iterator[str]:
    """The bytes of the blocks within which a swizzle permutes; without one, of core matrices."""
    rows, columns = _labels(found)
    down, across = range(0, firsts.shape[0], high), range(0, firsts.shape[1], wide)
    if len(down) * len(across) == 1 and high * wide > 1:
        return
    parts = [[firsts[i : i + high, j : j + wide] for j in across] for i in down]
    body, marked = [], False
    for i, line in zip(down, parts, strict=True):
        cells = []
        for part in line:
            other = not np.array_equal(part - part.min(), parts[0][0] - parts[0][0].min())
            marked |= other
            cells.append(f"{part.min():#x}-{part.max() + LINE_BYTES - 1:#x}{'*' if other else ''}")
        count = min(high, firsts.shape[0] - i)
        body.append([span(i, count), _ends(rows[i : i + high]), *cells])
    header = ["i", "rows"]
    for j in across:
        count = min(wide, firsts.shape[1] - j)
        header.append(f"j={span(j, count)}, k {_ends(columns[j : j + wide])}")
    blocks = ", a swizzled block at a time, first to last" if high * wide > 1 else ""
    yield ""
    yield f"bytes of core matrices (i,j){blocks}:"
    lines = render(header, body)
    steps = {
        tuple(int((b - a).flat[0]) for a, b in zip(x, y, strict=True)) for x, y in pairwise(parts)
    }
    if len(body) > 4 and len(steps) == 1 and not marked:
        (step,) = steps
        yield from lines[:3]
        yield f"…  each {' and '.join(dict.fromkeys(f'{x:#x}' for x in step))} further"
        yield lines[-1]
    else:
        yield from lines[: 1 + _SHOWN]
        if len(body) > _SHOWN:
            yield f"…  {len(body) - _SHOWN} more, see --json"
    if marked:
        yield "* permuted otherwise than the first"


def _ends(labels: list[str]) -> str:
    return f"{labels[0].split('-')[0]}-{labels[-1].split('-')[-1]}"
