"""What is wrong with a wgmma matrix descriptor, for the tile that an instruction reads through it.

Each check yields `Finding`s; ``descriptors`` has the questions that people ask.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np

from emulator.errors import OperandError, quoted, runs
from emulator.isa.instruction import Instruction
from emulator.isa.matrix import MatrixInstruction
from emulator.layout.addressing import FIELDS, SWIZZLE_UNITS, WINDOW, Int64
from emulator.layout.descriptor import Descriptor
from emulator.layout.tile import LINE_BYTES, LINES, TileShape, first_shared
from emulator.layout.validation import (
    PATTERN_LINE,
    STRIDES,
    behind_pattern,
    block_bytes,
    block_shape,
    past_line,
    uneven_strides,
    unused_leading,
    used_strides,
    with_field,
)

WORD_BITS = 64
#: (highest bit, lowest bit, value) of the constant in descriptors of tcgen05, PTX ISA 9.7.16.4.1
_TCGEN05 = (48, 46, 1)


class ReadTile(NamedTuple):
    """What an instruction reads through one descriptor."""

    ins: MatrixInstruction
    #: "a" or "b"
    operand: str
    #: k counts bytes of b1
    shape: TileShape
    #: elements in one k of `shape`: 8 for b1, else 1
    per_k: int

    def __str__(self) -> str:
        rows = {"a": "m", "b": "n"}[self.operand]
        kind = getattr(self.ins, f"{self.operand}_type")
        stored = " stored" if self.operand == "a" and self.ins.is_sparse else ""
        return (
            f"operand {self.operand}: {self.shape.rows} rows ({rows}) × "
            f"{self.shape.k * self.per_k}{stored} columns (k) of {kind}, "
            f"{self.shape.major.upper()}-major"
        )


class Finding(NamedTuple):
    """Something wrong with a descriptor: an error reads wrong bytes, a warning may."""

    level: Literal["error", "warning"]
    field: str
    message: str
    #: what is legal, and the nearest of it
    legal: str


def read_tile(ins: Instruction | str, operand: str = "b", major: str = "k") -> ReadTile:
    """What a wgmma reads through the descriptor of its A or B; raises as describe_descriptor."""
    ins = Instruction.parse(ins) if isinstance(ins, str) else ins
    if not isinstance(ins, MatrixInstruction) or not ins.is_wgmma:
        raise OperandError(f"only wgmma reads its matrices through descriptors; got {ins}")
    if operand not in ("a", "b"):
        raise OperandError(
            f"operand {quoted(str(operand))} is not read through a descriptor; a and b are"
        )
    if major not in ("k", "mn"):
        raise OperandError(
            f"a tile is major in k (imm-trans 0) or mn (imm-trans 1); got {major!r:.80}"
        )
    rows, k, kind = (
        (ins.m, ins.stored_k, ins.a_type) if operand == "a" else (ins.n, ins.k, ins.b_type)
    )
    shape = TileShape.of(rows, k, kind, major)
    return ReadTile(ins, operand, shape, k // shape.k)


def check_start(tile: ReadTile, start: int, width: int) -> None:
    """OperandError where a stored, swizzled tile does not start with a line of 128 bytes."""
    if not width or not isinstance(start, (int, np.integer)) or start % PATTERN_LINE == 0:
        return
    best, within = start - start % PATTERN_LINE, start % PATTERN_LINE
    way, step = ("column", tile.per_k) if tile.shape.major == "k" else ("row", 1)
    step *= within // tile.shape.element_bytes
    raise OperandError(
        f"start_address {start} is no multiple of {PATTERN_LINE}, where the stored tile starts; "
        f"nearest is {best:#x}"
        + (
            f", with {way}={step} for what lies {within} bytes on"
            if within < width and within % LINE_BYTES == 0
            else ""
        )
    )


# --- what the strides lead to ---------------------------------------------------------------------


def units(descriptor: Descriptor, shape: TileShape) -> Int64:
    """Addresses of the first bytes of the 16-byte units ``(rows, k)`` that a tile consists of."""
    step = LINE_BYTES // shape.element_bytes
    places = descriptor.addresses(shape)
    return places[:, ::step] if shape.major == "k" else places[::step]


def unused_bits() -> list[tuple[int, int]]:
    """(highest, lowest) bit of each stretch that belongs to no field, upwards."""
    out, low = [], 0
    for first, width in sorted(FIELDS.values()):
        if first > low:
            out.append((first - 1, low))
        low = first + width
    return out + ([(WORD_BITS - 1, low)] if low < WORD_BITS else [])


def at(address: int) -> str:
    """An address in both bases."""
    return f"{address:#x} ({address})"


# --- what is wrong --------------------------------------------------------------------------------


def find_faults(
    word: int, descriptor: Descriptor, tile: ReadTile | None, shared_size: int
) -> tuple[Finding, ...]:
    """Everything that is wrong, errors first; a warning about a field in error is left out."""
    found = [*_unused_bits(word), *_base_offset(descriptor), *_pattern(descriptor, tile)]
    if tile is not None:
        found += [*_major(tile), *_strides(descriptor, tile)]
        found += _memory(descriptor, tile, shared_size)
    errors = [finding for finding in found if finding.level == "error"]
    fields = {finding.field for finding in errors}
    return (*errors, *(x for x in found if x.level == "warning" and x.field not in fields))


def _unused_bits(word: int) -> Iterator[Finding]:
    clean = word
    texts, hint = [], ""
    for high, low in unused_bits():
        held = word >> low & (1 << high - low + 1) - 1
        clean &= ~(held << low)
        if held:
            texts.append(f"bits {high}:{low} hold {held:#b}")
        if (high, low, held) == _TCGEN05:
            hint = "; this is the mark of tcgen05 descriptors, which are laid out differently"
    if texts:
        yield Finding(
            "warning", "unused",
            f"{', '.join(texts)}: no field of a wgmma descriptor (an H200 ignores them){hint}",
            f"unused bits are 0: {clean:#018x}",
        )  # fmt: skip


def _base_offset(descriptor: Descriptor) -> Iterator[Finding]:
    if descriptor.base_offset and not descriptor.swizzle_bytes:
        yield Finding(
            "warning", "base_offset",
            f"base_offset {descriptor.base_offset} has no effect without a swizzle",
            "base_offset 0, or one of the swizzles "
            f"{runs([LINE_BYTES * w for w in sorted(SWIZZLE_UNITS.values())][1:])}",
        )  # fmt: skip


def _major(tile: ReadTile) -> Iterator[Finding]:
    if tile.shape.major == "mn" and tile.shape.element_bytes != 2:
        kind = getattr(tile.ins, f"{tile.operand}_type")
        yield Finding(
            "error", "major",
            f"{kind} cannot be MN-major: imm-trans is for 16-bit types",
            "K-major (imm-trans 0, --major k), the tile stored with k contiguous",
        )  # fmt: skip


def _pattern(descriptor: Descriptor, tile: ReadTile | None = None) -> Iterator[Finding]:
    """Where the tile starts in its line of a swizzle, and its line in the pattern."""
    width, start = descriptor.swizzle_bytes, descriptor.start_address
    if not width:
        return
    if tile is not None and (past := past_line(descriptor, tile.shape)):
        within, reads = past
        best = start - within + min(within, width - reads) // reads * reads
        yield Finding(
            "error", "start_address",
            f"start_address {at(start)} lies {within} bytes into a line of {width}, of which "
            f"the tile reads {reads}: the last {within + reads - width} are those of another "
            "line",
            f"a tile starts with a line, or a multiple of {reads} bytes into it: nearest is "
            f"{at(best)}",
        )  # fmt: skip
    pattern, into = block_bytes(width), behind_pattern(descriptor)
    if into % PATTERN_LINE:
        yield Finding(
            "warning", "start_address",
            f"start_address {at(start)} lies in the middle of the 128 bytes that the swizzle "
            "counts as one: right only for data that was swizzled by absolute addresses",
            f"a tile starts at a multiple of 128: nearest is {at(start - start % PATTERN_LINE)}",
        )  # fmt: skip
        return
    wanted = into // PATTERN_LINE
    if (wanted - descriptor.base_offset) % (pattern // PATTERN_LINE):
        yield Finding(
            "warning", "base_offset",
            f"start_address {at(start)} lies {into} bytes behind a multiple of {pattern}, after "
            f"which the {width}-byte swizzle repeats, and base_offset is {descriptor.base_offset}",
            f"base_offset {wanted} where the pattern of the data starts with the tile"
            + (" (0 where it was swizzled by absolute addresses)" if wanted else ""),
        )  # fmt: skip


def _strides(descriptor: Descriptor, tile: ReadTile) -> Iterator[Finding]:
    shape, width = tile.shape, descriptor.swizzle_bytes
    used = used_strides(shape, width)
    pattern = block_bytes(width)
    leading = descriptor.leading_byte_offset
    if unused_leading(descriptor, shape):
        yield Finding(
            "warning", "leading_byte_offset",
            f"leading_byte_offset {leading} has no effect: {shape.k * shape.element_bytes} bytes "
            f"of k are within one {width}-byte line",
            f"{LINE_BYTES} (raw 1), which the manual assumes here, or 0",
        )  # fmt: skip
    for name in uneven_strides(descriptor, shape):
        value = getattr(descriptor, name)
        below = value // pattern * pattern
        best = below if below and value - below <= pattern // 2 else below + pattern
        yield Finding(
            "warning", name,
            f"{name} {value} is no multiple of {pattern}, after which the {width}-byte swizzle "
            "repeats: one block of 8 lines is permuted otherwise than the next",
            f"a multiple of {pattern}: nearest is {best}",
        )  # fmt: skip
    if shared := first_shared(units(descriptor, shape)):
        byte, *pair = shared
        first, second = sorted(
            (r // LINES, c) if shape.major == "k" else (r, c // LINES) for r, c in pair
        )
        names = " and ".join(f"{name} {getattr(descriptor, name)}" for name in used.values())
        name, legal = _apart(descriptor, shape)
        yield Finding(
            "error", name,
            f"core matrices {first} and {second} both read byte {byte:#x}: {names} "
            f"{'does' if len(used) == 1 else 'do'} not keep the blocks of {pattern} bytes apart",
            legal,
        )  # fmt: skip


def _apart(descriptor: Descriptor, shape: TileShape) -> tuple[str, str]:
    """The stride whose smallest change keeps all blocks apart, and what it has to be."""
    size, found = block_bytes(descriptor.swizzle_bytes), []
    used = used_strides(shape, descriptor.swizzle_bytes)
    rows, k = block_shape(shape, descriptor.swizzle_bytes)
    high, wide = -(-shape.rows // rows), -(-shape.k // k)
    for name in used.values():
        for stride in range(size, size * (high * wide + 1), size):
            changed = with_field(descriptor, name, stride)
            if first_shared(units(changed, shape)) is None:
                found.append((abs(stride - getattr(descriptor, name)), name, stride))
    if found:
        _, name, stride = min(found)
        return name, f"a stride of at least {size}: nearest is {name} {stride}"
    return used["rows"], (
        f"strides of at least {size}, one of them large enough to step over all blocks of the "
        f"other: nearest is {used['rows']} {size} with {used['k']} {high * size}"
    )


def _memory(descriptor: Descriptor, tile: ReadTile, shared_size: int) -> Iterator[Finding]:
    places = units(descriptor, tile.shape)
    end, size = int(places.max()) + LINE_BYTES, min(shared_size, WINDOW)
    if end <= size:
        return
    step = max(PATTERN_LINE, block_bytes(descriptor.swizzle_bytes))
    best = (size - end + descriptor.start_address) // step * step
    what = "the 18 bits of shared addresses end" if size == WINDOW else "shared memory ends"
    if best >= 0:
        field, legal = "start_address", f"start_address at most {at(best)}"
    else:
        used = used_strides(tile.shape, descriptor.swizzle_bytes).values()
        field = max(used, key=lambda name: getattr(descriptor, name), default=STRIDES[1])
        span = end - descriptor.start_address
        legal = f"smaller strides: with these the tile spans {span} bytes"
        if span == places.size * LINE_BYTES:
            legal = f"at least {span} bytes of shared memory: the tile fills them without gaps"
    yield Finding(
        "error", field, f"the tile ends at byte {at(end)}, and {what} at {at(size)}", legal
    )
