"""Layouts of tcgen05's matrices in tensor memory, and shapes that its ld, st and cp move.

Tensor memory has 128 lanes of 512 columns of 32 bits, for each CTA. PTX ISA 9.7.16.2 and 9.7.16.10;
what its pictures show is taken from CuTe's layouts. Coordinates are relative to the address of an
operand; `lane` is the half of every quarter that a matrix of 64 rows takes, 0 or 16.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from emulator.errors import OperandError, UnsupportedError, listing, runs, whole
from emulator.layout.instruction_descriptor import InstructionDescriptor

LANES, COLUMNS = 128, 512
#: columns of B that share a table of .decompress::lut::b
TABLE_COLUMNS = 8
#: lanes that one warp of a warpgroup reaches with ld and st
QUARTER = 32

Int64 = NDArray[np.int64]


class Places(NamedTuple):
    """Places of elements, arrays of one shape: the CTA of a pair (0: the even one), lane, column,
    and the lowest bit in the 32-bit word."""

    cta: Int64
    lane: Int64
    column: Int64
    bit: Int64

    @property
    def columns(self) -> int:
        """Columns that they span, from the first."""
        return int(self.column.max()) + 1


class Rows(NamedTuple):
    """Map from the rows of D to lanes: one of the layouts A to G of the manual."""

    letter: str
    m: int
    cta_group: int
    weight_stationary: bool
    #: for sparse instructions, for dense ones, or (None) for both
    sparse: bool | None
    #: blocks of columns of D that lie below each other in the lanes
    blocks: int = 1
    #: 16 rows take the low or the high half of each quarter of the lanes
    halves: bool = False


ROWS: tuple[Rows, ...] = (
    Rows("A", 256, 2, False, None),
    Rows("B", 128, 2, False, False, blocks=2),
    Rows("C", 128, 2, False, True, halves=True),
    Rows("D", 128, 1, False, None),
    Rows("D", 128, 1, True, None),
    Rows("E", 64, 1, True, None, blocks=2),
    Rows("F", 64, 1, False, None, halves=True),
    Rows("G", 32, 1, True, None, blocks=4),
)


@dataclass(frozen=True)
class TensorLayout:
    """The layout of the matrices of one tcgen05.mma in tensor memory.

    Raises OperandError for a shape that no tcgen05.mma of the ``.cta_group`` (``.ws``) has.
    """

    instruction: InstructionDescriptor
    cta_group: int = 1
    weight_stationary: bool = False
    #: scales that a row of A and a column of B have; 0: none
    scales: int = 0
    #: 0 or 16: the half of the quarters that layouts C and F take
    lane: int = 0

    def __post_init__(self) -> None:
        found = self.instruction.findings(self.cta_group, weight_stationary=self.weight_stationary)
        errors = [x for x in found if x.level == "error"]
        if errors:
            raise OperandError("; ".join(f"{x.message}; legal: {x.legal}" for x in errors))
        if self.lane not in ((0, 16) if self.rows.halves else (0,)):
            legal = "0 or 16" if self.rows.halves else "0"
            raise OperandError(
                f"an address in lane {whole('lane', self.lane)}: layout {self.rows.letter}, of "
                f"M = {self.instruction.m}, starts in lane {legal}"
            )

    @property
    def rows(self) -> Rows:
        """The layout of D, which those of A and of the metadata follow."""
        x = self.instruction
        for row in ROWS:
            if (row.m, row.cta_group, row.weight_stationary) == (
                x.m,
                self.cta_group,
                self.weight_stationary,
            ) and row.sparse in (None, x.sparse):
                return row
        raise AssertionError("the instruction descriptor was checked")

    @property
    def rows_per_cta(self) -> int:
        return self.instruction.m // self.cta_group

    def _lane_of(self, row: Int64) -> Int64:
        """The lane of a row of one CTA, in the first block of columns."""
        if not self.rows.halves:
            return row
        return row // 16 * QUARTER + row % 16 + self.lane

    @cached_property
    def d(self) -> Places:
        """D ``(m, n)``; an f16 takes the low half of a word of its own."""
        x, blocks = self.instruction, self.rows.blocks
        m, n = np.ogrid[: x.m, : x.n]
        wide = x.n // blocks
        lane = self._lane_of(m % self.rows_per_cta) + LANES // blocks * (n // wide)
        return _places(m // self.rows_per_cta, lane, n % wide, 0)

    @cached_property
    def a(self) -> Places:
        """A ``(copies, m, stored k)``: a copy for each block of columns of D, which reads it."""
        x, blocks = self.instruction, self.rows.blocks
        width = x.width("a")
        copy, m, k = np.ogrid[:blocks, : x.m, : x.k // (2 if x.sparse else 1)]
        lane = self._lane_of(m % self.rows_per_cta) + LANES // blocks * copy
        return _places(m // self.rows_per_cta, lane, k * width // 32, k * width % 32)

    @cached_property
    def metadata(self) -> Places:
        """Nibbles ``(copies, m, chunks)`` of a sparse A."""
        x, blocks = self.instruction, self.rows.blocks
        copy, m, chunk = np.ogrid[:blocks, : x.m, : x.k // x.chunk]
        row = m % self.rows_per_cta
        start = LANES // blocks * copy
        if not x.has_selector:
            lane = self._lane_of(row) + start
            return _places(m // self.rows_per_cta, lane, chunk // 8, 4 * (chunk % 8))
        # Two lanes share the words of two rows: each has 4 chunks of both.
        group = row // 16 * (QUARTER if self.rows.halves else 16)
        lane = group + row % 8 + 8 * (chunk // 4) + self.lane + start
        bit = 16 * (row // 8 % 2) + 4 * (chunk % 4)
        return _places(m // self.rows_per_cta, lane, np.asarray(x.selector), bit)

    @cached_property
    def scale_a(self) -> Places:
        """Scales of A ``(4, m, scales)``: a copy for each quarter of the lanes; or, with
        `scale_a_rows`, ``(1, m, scales)``: those of each row in a lane of its own.

        Raises UnsupportedError for the latter where a CTA has fewer than 128 rows.
        """
        x, lanes = self.instruction, QUARTER
        if x.scale_a_rows:
            lanes = LANES
            if self.rows_per_cta < LANES:
                raise UnsupportedError(
                    f"scales of A in 128 lanes with M = {x.m} of a pair: no source says which "
                    "lanes hold those of 64 rows"
                )
        quarter, m, block = np.ogrid[: LANES // lanes, : x.m, : self.scales]
        row = m % self.rows_per_cta
        column, bit = _scale(row, block, self.rows_per_cta, x.scale_a_id, lanes)
        return _places(m // self.rows_per_cta, row % lanes + QUARTER * quarter, column, bit)

    @cached_property
    def scale_b(self) -> Places:
        """Scales of B ``(ctas, 4, n, scales)``: a copy for each CTA and quarter of the lanes.

        A quarter has those of the columns of D that lie in it; of others the places are -1.
        """
        x = self.instruction
        cta, quarter, n, block = np.ogrid[: self.cta_group, :4, : x.n, : self.scales]
        wide = x.n // self.rows.blocks
        column, bit = _scale(n % wide, block, wide, x.scale_b_id)
        own = n // wide == quarter * self.rows.blocks // 4
        lane = np.where(own, n % wide % QUARTER + QUARTER * quarter, -1)
        return _places(cta, lane, column, bit)

    @property
    def lookup(self) -> Places:
        """Tables of ``.decompress::lut::b`` ``(ctas, n / 8 of a CTA, 8)``, bytes: each belongs to 8
        columns of B, and lies in two columns of a lane."""
        cta, table, entry = np.ogrid[
            : self.cta_group, : self.instruction.n // self.cta_group // TABLE_COLUMNS, :8
        ]
        return _places(cta, table, entry // 4, entry % 4 * 8)


def _scale(
    row: Int64, block: Int64, rows: int, first_byte: int, lanes: int = QUARTER
) -> tuple[Int64, Int64]:
    """Column and bit of a scale; the bytes behind the fourth go on behind all rows."""
    byte = first_byte + block
    group = LANES // lanes * -(-rows // LANES)
    return row // lanes + byte // 4 * group, byte % 4 * 8


@lru_cache(maxsize=64)
def tensor_layout(
    instruction: InstructionDescriptor,
    cta_group: int = 1,
    weight_stationary: bool = False,
    scales: int = 0,
    lane: int = 0,
) -> TensorLayout:
    """`TensorLayout`, made once: a kernel asks for the same one again and again."""
    return TensorLayout(instruction, cta_group, weight_stationary, scales, lane)


def _places(cta: Int64, lane: Int64, column: Int64, bit: Int64 | int) -> Places:
    arrays = np.broadcast_arrays(cta, lane, column, bit)
    return Places(*(np.asarray(x, np.int64) for x in arrays))


# --- ld and st ------------------------------------------------------------------------------------


class Transfer(NamedTuple):
    """The words that one shape of tcgen05.ld and st moves."""

    #: lanes of tensor memory, and registers of a thread for .x1
    lanes: int
    registers: int
    #: the largest .num
    most: int


TRANSFERS: dict[str, Transfer] = {
    "32x32b": Transfer(32, 1, 128),
    "16x64b": Transfer(16, 1, 128),
    "16x128b": Transfer(16, 2, 64),
    "16x256b": Transfer(16, 4, 32),
    "16x32bx2": Transfer(16, 1, 128),
}


@lru_cache(maxsize=256)
def transfer_places(
    shape: str, num: int, *, packed: bool = False, split: int = 0
) -> tuple[Int64, Int64]:
    """Lanes and columns, relative to the address, of register q of lane L: ``(32, registers)``.

    `packed` (``.pack::16b``, ``.unpack::16b``): ``(32, registers, 2)``, the columns of the low and
    of the high half of the register. `split` is the offset of 16x32bx2, in columns.

    Raises OperandError for a shape or number that PTX lacks.
    """
    if shape not in TRANSFERS:
        raise OperandError(f"shapes of tcgen05.ld are {listing(TRANSFERS)}; got {shape!r}")
    facts = TRANSFERS[shape]
    legal = [1 << i for i in range(8) if 1 << i <= facts.most]
    if num not in legal:
        raise OperandError(f".num of .{shape} is one of {listing(legal)}; got {num}")
    lane, q = np.ogrid[:32, : num * facts.registers]
    group, thread = lane >> 2, lane & 3
    split = 0 if shape != "16x32bx2" else split
    row, column = {
        "32x32b": (lane, q),
        "16x64b": (group + 8 * (lane & 1), (lane >> 1 & 1) + 2 * q),
        "16x128b": (group + 8 * (q & 1), thread + 4 * (q >> 1)),
        "16x256b": (group + 8 * (q >> 1 & 1), 2 * thread + (q & 1) + 8 * (q >> 2)),
        "16x32bx2": (lane & 15, q),
    }[shape]
    row, column = np.broadcast_arrays(row, column)
    if packed:
        row, column = row[..., None] + np.zeros(2, np.int64), 2 * column[..., None] + np.arange(2)
    if split:
        column = column + split * (lane >> 4)[(...,) + (None,) * packed]
    return row.astype(np.int64), column.astype(np.int64)


# --- cp -------------------------------------------------------------------------------------------


class CopyShape(NamedTuple):
    """One shape of tcgen05.cp: rows of 16-byte units, and the lanes that each row is copied to."""

    rows: int
    units: int
    #: rows that lie in neighbouring lanes
    run: int
    #: lanes between one run and the next
    step: int
    #: first lanes of the copies
    starts: tuple[int, ...] = (0,)


COPIES: dict[str, CopyShape] = {
    "128x256b": CopyShape(128, 2, 128, 0),
    "128x128b": CopyShape(128, 1, 128, 0),
    "4x256b": CopyShape(4, 2, 1, 32),
    "64x128b.warpx2::02_13": CopyShape(64, 1, 64, 0, (0, 64)),
    "64x128b.warpx2::01_23": CopyShape(64, 1, 32, 64, (0, 32)),
    "32x128b.warpx4": CopyShape(32, 1, 32, 0, (0, 32, 64, 96)),
}


def copy_lanes(shape: str) -> Int64:
    """Lanes ``(copies, rows)`` that the rows of a tcgen05.cp go to, relative to the address.

    Raises OperandError for a shape that PTX lacks.
    """
    if shape not in COPIES:
        raise OperandError(f"shapes of tcgen05.cp are {listing(COPIES)}; got {shape!r}")
    facts = COPIES[shape]
    row = np.arange(facts.rows)
    lanes = row % facts.run + row // facts.run * facts.step
    return np.asarray(np.array(facts.starts)[:, None] + lanes, np.int64)


# --- addresses ------------------------------------------------------------------------------------


class TensorAddress(NamedTuple):
    """A 32-bit address of tensor memory: bits 31:16 lane, 15:0 column."""

    lane: int
    column: int

    @classmethod
    def decode(cls, word: int) -> TensorAddress:
        return cls(word >> 16 & 0xFFFF, word & 0xFFFF)

    def encode(self) -> int:
        return self.lane << 16 | self.column

    def __str__(self) -> str:
        return f"lane {self.lane}, column {self.column}"


def shown_places(places: Places) -> str:
    """The lanes and columns of places, as ``lanes 0-127, columns 0-63``, for messages."""
    lanes, columns = np.unique(places.lane), np.unique(places.column)
    return f"lanes {runs(lanes.tolist())}, columns {runs(columns.tolist())}"
