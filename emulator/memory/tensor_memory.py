"""``TensorMemory``: the tensor memory of one CTA, its allocations, and what moves data in and out.

It knows neither threads nor instructions: callers give addresses, warps by their place in the
warpgroup, and arrays of registers. PTX ISA 9.7.16.2 (addresses, allocation), 9.7.16.8 (ld, st, cp,
shift). Where an allocation lies the manual leaves open: here it is the lowest free run of columns
that is aligned to its size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtypes import Array, Place, code_type
from emulator.errors import OperandError, UndefinedError, listing, runs, whole
from emulator.layout.tensor_memory import (
    COLUMNS,
    COPIES,
    LANES,
    QUARTER,
    Int64,
    Places,
    TensorAddress,
    copy_lanes,
    transfer_places,
)

#: columns in which memory is allocated, and that one tcgen05.shift moves
GRANULE, SHIFTED = 32, 8
#: columns that an allocation can have
SIZES = (32, 64, 128, 256, 512)
#: bits of a column
WORD = 32
#: words that a tcgen05.ld finds where a pending operation has yet to write: NaN in every format
POISON = np.uint32(0xFFFF_FFFF)

Bool = NDArray[np.bool_]


class Allocation(NamedTuple):
    """Columns that are allocated, all lanes of each."""

    column: int
    columns: int
    exclusive: bool = False

    @property
    def address(self) -> int:
        return TensorAddress(0, self.column).encode()

    def __str__(self) -> str:
        return f"columns {self.column}-{self.column + self.columns - 1}"


class Loaded(NamedTuple):
    """Words that were read, and whether each was ever written; of one shape."""

    words: Array
    defined: Bool


class Words(NamedTuple):
    """Words of the tensor memory of one CTA, by lanes and columns of one shape."""

    memory: TensorMemory
    lanes: Int64
    columns: Int64


class TensorMemory:
    """128 lanes × `columns` words of one CTA.

    `words` are uint32 ``(128, columns)``; `defined` says of each whether it was written since its
    column was allocated.
    """

    def __init__(self, columns: int = COLUMNS) -> None:
        if whole("columns of tensor memory", columns, GRANULE, 1 << 16) % GRANULE:
            raise OperandError(f"columns of tensor memory are a multiple of 32; got {columns}")
        self.words = np.zeros((LANES, columns), np.uint32)
        self.defined = np.zeros((LANES, columns), np.bool_)
        #: of each word, how many operations under way have yet to write it
        self.under_way = np.zeros((LANES, columns), np.int16)
        self.allocations: list[Allocation] = []
        #: no more may be allocated
        self.relinquished = False
        #: columns of the latest allocation: the next one may not be larger
        self._latest: int | None = None

    @property
    def columns(self) -> int:
        return self.words.shape[1]

    # --- allocation ---

    def allocate(self, columns: int, exclusive: bool = False) -> int | None:
        """The address of that many columns; None where there is no room, so that the warp waits.

        Raises UndefinedError for a number of columns that PTX lacks, for more than the allocation
        before, and after the right to allocate was relinquished.
        """
        step = range(GRANULE, self.columns + 1, GRANULE)
        legal = list(step) if exclusive else [x for x in SIZES if x <= self.columns]
        if columns not in legal:
            raise UndefinedError(
                f"tcgen05.alloc of {columns} columns; legal: "
                f"{'a multiple of 32 up to ' + str(self.columns) if exclusive else listing(legal)}"
            )
        if self.relinquished:
            raise UndefinedError(
                "tcgen05.alloc after tcgen05.relinquish_alloc_permit of the same CTA"
            )
        if self._latest is not None and columns > self._latest:
            raise UndefinedError(
                f"tcgen05.alloc of {columns} columns after one of {self._latest}: the sizes of a "
                "CTA's allocations must not grow"
            )
        if any(exclusive or own.exclusive for own in self.allocations):
            return None
        taken = np.zeros(self.columns, np.bool_)
        for own in self.allocations:
            taken[own.column : own.column + own.columns] = True
        unit = GRANULE if exclusive else columns
        for first in range(0, self.columns - columns + 1, unit):
            part = slice(first, first + columns)
            if not taken[part].any():
                self.allocations.append(Allocation(first, columns, exclusive))
                self.defined[:, part] = False
                self._latest = columns
                return self.allocations[-1].address
        return None

    def deallocate(self, address: int, columns: int, exclusive: bool = False) -> None:
        """Gives an allocation back. Raises UndefinedError where there is none like it."""
        found = Allocation(TensorAddress.decode(address).column, columns, exclusive)
        if found not in self.allocations or address != found.address:
            raise UndefinedError(
                f"tcgen05.dealloc of {columns} columns at {TensorAddress.decode(address)}"
                f"{' (.exclusive)' if exclusive else ''}: allocated are {self._listed()}"
            )
        self.allocations.remove(found)

    def relinquish(self) -> None:
        """No more is allocated from now on."""
        self.relinquished = True

    def _listed(self) -> str:
        return listing(self.allocations) or "no columns"

    def check(self, lanes: Array, columns: Array, what: str) -> None:
        """Raises UndefinedError where a lane or a column is none, or a column not allocated."""
        if lanes.size == 0:
            return
        if int(lanes.max()) >= LANES or int(lanes.min()) < 0:
            wrong = int(lanes[(lanes >= LANES) | (lanes < 0)][0])
            raise UndefinedError(f"{what} reaches lane {wrong} of tensor memory; lanes are 0-127")
        live = np.zeros(self.columns, np.bool_)
        for own in self.allocations:
            live[own.column : own.column + own.columns] = True
        inside = int(columns.min()) >= 0 and int(columns.max()) < self.columns
        if inside and live.take(columns).all():
            return
        wrong_columns = [
            x for x in np.unique(columns).tolist() if not (0 <= x < self.columns and live[x])
        ]
        raise UndefinedError(
            f"{what} reaches columns {runs(wrong_columns)} of tensor memory; allocated are "
            f"{self._listed()}"
        )

    def held(self, lanes: Array, columns: Array) -> Loaded:
        """Words, and whether each was written; what is under way counts as written."""
        written = self.defined[lanes, columns] | (self.under_way[lanes, columns] > 0)
        return Loaded(self.words[lanes, columns], written)

    # --- ld and st ---

    def load(
        self, address: int, shape: str, num: int, warp: int, *, packed: bool = False, split: int = 0
    ) -> Loaded:
        """tcgen05.ld of the warp that is `warp` % 4 in its warpgroup: registers ``(32, n)``.

        `packed` is ``.pack::16b``, `split` the immHalfSplitoff of 16x32bx2. Raises UndefinedError
        for lanes that the warp does not reach and columns that are not allocated, OperandError for
        a shape that PTX lacks.
        """
        where = self.reached(address, shape, num, warp, packed=packed, split=split)
        lanes, columns = where.lanes, where.columns
        words, defined = self.held(lanes, columns)
        words = np.where(self.under_way[lanes, columns] > 0, POISON, words)
        if packed:
            low = words & np.uint32(0xFFFF)
            words = low[..., 0] | low[..., 1] << np.uint32(16)
            defined = defined[..., 0] & defined[..., 1]
        return Loaded(words, defined)

    def store(
        self,
        address: int,
        shape: str,
        num: int,
        warp: int,
        registers: Array,
        *,
        unpacked: bool = False,
        split: int = 0,
    ) -> None:
        """tcgen05.st of registers uint32 ``(32, n)``; `unpacked` is ``.unpack::16b``, which clears
        the upper halves of the words (modelled). Raises as `load`."""
        _, lanes, columns = self.reached(
            address, shape, num, warp, packed=unpacked, split=split, name="tcgen05.st"
        )
        words = np.asarray(registers, np.uint32)
        if words.shape != lanes.shape[:2]:
            raise OperandError(
                f"tcgen05.st.{shape}.x{num} stores registers uint32 {lanes.shape[:2]}; got "
                f"{words.shape}"
            )
        if unpacked:
            words = np.stack([words & np.uint32(0xFFFF), words >> np.uint32(16)], -1)
        self.words[lanes, columns] = words
        self.defined[lanes, columns] = True

    def reached(
        self,
        address: int,
        shape: str,
        num: int,
        warp: int,
        *,
        packed: bool = False,
        split: int = 0,
        name: str = "tcgen05.ld",
    ) -> Words:
        """The words ``(32, n)``, of packed ones ``(32, n, 2)``, that a ld or st moves. Raises as
        `load`."""
        rows, columns = transfer_places(shape, num, packed=packed, split=split)
        start, quarter = TensorAddress.decode(address), warp % 4
        legal = (
            [quarter * QUARTER] if shape == "32x32b" else [quarter * QUARTER + x for x in (0, 16)]
        )
        if start.lane not in legal:
            raise UndefinedError(
                f"{name}.{shape} of a warp that is {quarter} in its warpgroup (%warpid % 4) at "
                f"{start}: it reaches lanes {quarter * QUARTER}-{quarter * QUARTER + 31}, and the "
                f"address names lane {' or '.join(map(str, legal))}"
            )
        lanes, columns = rows + start.lane, columns + start.column
        self.check(lanes, columns, f"{name}.{shape}.x{num} at {start}")
        return Words(self, lanes, columns)

    # --- cp and shift ---

    def copy(self, address: int, shape: str, rows: Array) -> None:
        """tcgen05.cp of bytes uint8 ``(rows, 16 or 32)``; `shape` with its multicast, such as
        "32x128b.warpx4". Raises as `load`."""
        words = np.ascontiguousarray(rows, np.uint8).view("<u4")
        _, lanes, columns = self.copied(address, shape)
        self.words[lanes, columns] = words
        self.defined[lanes, columns] = True

    def copied(self, address: int, shape: str) -> Words:
        """The words that a cp writes. Raises as `load`."""
        start, lanes = TensorAddress.decode(address), copy_lanes(shape)
        lanes, columns = start.lane + lanes, start.column + np.arange(4 * COPIES[shape].units)
        self.check(lanes, columns, f"tcgen05.cp.{shape} at {start}")
        return Words(self, lanes[..., None], columns)

    def shift(self, address: int) -> None:
        """tcgen05.shift.down: of 8 columns, each of 31 lanes receives the words of the next one
        (modelled: the manual shows the direction in a picture). Raises as `load`."""
        source, target = self.shifted(address)
        for held in (self.words, self.defined):
            held[target.lanes, target.columns] = held[source.lanes, source.columns]

    def shifted(self, address: int) -> tuple[Words, Words]:
        """The words that a shift reads, and those that it writes. Raises as `shift`."""
        start = TensorAddress.decode(address)
        if start.lane % QUARTER:
            raise UndefinedError(
                f"tcgen05.shift at {start}: the lane is a multiple of 32; nearest is "
                f"{start.lane // QUARTER * QUARTER}"
            )
        lanes = start.lane + np.arange(QUARTER)
        columns = start.column + np.arange(SHIFTED)
        self.check(lanes, columns, f"tcgen05.shift at {start}")
        return Words(self, lanes[1:, None], columns), Words(self, lanes[:-1, None], columns)


# --- what cp decompresses ---


#: source format of a tcgen05.cp -> bits of an element, and the lowest bit of its byte (modelled as
#: the containers of kind::f8f6f4; the manual shows them in pictures)
_PACKED = {"b4x16_p64": (4, 2), "b6x16_p32": (6, 0)}


def expanded(rows: Array, packed: str) -> Array:
    """Bytes ``(…, n)`` of a tcgen05.cp.b8x16: of every 16, the 16 elements that the first 8
    (b4x16_p64) or 12 (b6x16_p32) hold become a byte each.

    Raises OperandError for another format.
    """
    if packed not in _PACKED:
        raise OperandError(f"tcgen05.cp.b8x16 expands {listing(_PACKED)}; got {packed!r}")
    width, low = _PACKED[packed]
    units = np.ascontiguousarray(rows, np.uint8).reshape(*rows.shape[:-1], -1, 16)
    bits = np.unpackbits(units, axis=-1, bitorder="little")[..., : 16 * width]
    elements = bits.reshape(*units.shape, width) << np.arange(low, low + width, dtype=np.uint8)
    return elements.sum(-1, dtype=np.uint8).reshape(rows.shape)


# --- matrices -------------------------------------------------------------------------------------


def load_codes(
    memories: Sequence[TensorMemory], address: int, places: Places, where: Place, what: str
) -> Loaded:
    """Codes of the elements at places relative to an address, in the shape of `places`.

    `memories` are those of the CTA, or of both of a pair, the even one first; `where` is how an
    element lies from its bit on. Places without a lane (-1) hold 0. Raises UndefinedError, naming
    `what`, outside of what is allocated.
    """
    codes = np.zeros(places.lane.shape, np.uint64)
    defined = np.ones(places.lane.shape, np.bool_)
    for part, half in _halves(places, where.width):
        for own, (lanes, columns, memory) in _of_each(memories, address, part, what):
            words, written = memory.held(lanes, columns)
            codes[own] |= words.astype(np.uint64) << np.uint64(half)
            defined[own] &= written
    codes = codes >> (places.bit + where.shift).astype(np.uint64)
    codes &= np.uint64((1 << where.code_bits) - 1)
    return Loaded(codes.astype(code_type(where.code_bits)), defined)


def store_codes(
    memories: Sequence[TensorMemory],
    address: int,
    places: Places,
    codes: Array,
    where: Place,
    what: str,
    mask: Bool | None = None,
) -> None:
    """Writes codes to places relative to an address; the inverse of `load_codes`.

    Elements where `mask` is False stay as they are; the bits of their place that a code leaves free
    become 0. Raises as `load_codes`.
    """
    shift = places.bit.astype(np.uint64)
    spread = np.broadcast_to(codes, places.lane.shape).astype(np.uint64)
    spread <<= shift + np.uint64(where.shift)
    fields = np.uint64((1 << where.width) - 1) << shift
    for part, half in _halves(places, where.width):
        words, field = ((x >> np.uint64(half)).astype(np.uint32) for x in (spread, fields))
        for own, (lanes, columns, memory) in _of_each(memories, address, part, what):
            chosen = slice(None) if mask is None else np.broadcast_to(mask, own.shape)[own]
            at = lanes[chosen], columns[chosen]
            if where.width == 32:
                memory.words[at] = words[own][chosen]
            else:
                np.bitwise_and.at(memory.words, at, ~field[own][chosen])
                np.bitwise_or.at(memory.words, at, words[own][chosen])
            memory.defined[at] = True


def _halves(places: Places, width: int) -> Iterator[tuple[Places, int]]:
    """The words that hold elements, and how many bits of theirs stand before them: those that they
    start in, and those that elements go on in (packed fp6)."""
    yield places, 0
    beyond = places.bit + width > WORD
    if beyond.any():
        lane = np.where(beyond, places.lane, -1)
        yield places._replace(lane=lane, column=places.column + 1), WORD


def words_at(
    memories: Sequence[TensorMemory],
    address: int,
    places: Places,
    width: int,
    what: str,
    mask: Bool | None = None,
) -> list[Words]:
    """The words of places relative to an address that are `width` bits wide, or of those of a
    mask, in each CTA. Raises as `load_codes`."""
    out = []
    for part, _ in _halves(places, width):
        for own, (lanes, columns, memory) in _of_each(memories, address, part, what):
            chosen = slice(None) if mask is None else np.broadcast_to(mask, own.shape)[own]
            out.append(Words(memory, lanes[chosen], columns[chosen]))
    return out


def _of_each(
    memories: Sequence[TensorMemory], address: int, places: Places, what: str
) -> list[tuple[Bool, tuple[Int64, Int64, TensorMemory]]]:
    """For each CTA which places are its own, and their lanes and columns, checked."""
    start, out = TensorAddress.decode(address), []
    for cta, memory in enumerate(memories):
        own = (places.cta == cta) & (places.lane >= 0)
        lanes, columns = places.lane[own], places.column[own] + start.column
        memory.check(lanes, columns, f"{what} at {start}")
        out.append((own, (lanes, columns, memory)))
    return out
