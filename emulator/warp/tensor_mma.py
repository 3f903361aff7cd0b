"""One tcgen05.mma in memory: its matrices from shared and tensor memory, D back to tensor memory.

When it takes effect is for whoever calls to say. Collectors change no values. PTX ISA 9.7.16.10.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtypes import FORMATS, Array, Place, place
from emulator.arith import Engine
from emulator.errors import OperandError
from emulator.layout.shared_descriptor import SharedMemoryDescriptor
from emulator.layout.tensor_memory import (
    LANES,
    QUARTER,
    TABLE_COLUMNS,
    Places,
    TensorAddress,
    TensorLayout,
    tensor_layout,
)
from emulator.memory.descriptors import load_indices, load_operand
from emulator.memory.space import Space
from emulator.memory.tensor_memory import TensorMemory, Words, load_codes, store_codes, words_at
from emulator.warp.call import Undefined
from emulator.warp.tensor_multiply import TensorProduct, zero_columns


class Operands(NamedTuple):
    """Operands of one tcgen05.mma; addresses are those of tensor memory."""

    d: int
    #: descriptor of shared memory, or with `a_in_tensor_memory` an address
    a: int
    b: int
    a_in_tensor_memory: bool = False
    #: false: D = A·B, without the old D
    enable: bool = True
    metadata: int | None = None
    scale_a: int | None = None
    scale_b: int | None = None
    #: words of the lanes of D that stay as they are: 4, or 8 for a pair (the even CTA first)
    disabled_lanes: Sequence[int] = ()
    #: of .ws
    zero_column_mask: int = 0
    #: tables of .decompress::lut::b
    lookup: int | None = None


@dataclass(frozen=True)
class TensorMma:
    """Settings of a tcgen05.mma from its opcode and instruction descriptor."""

    product: TensorProduct
    cta_group: int = 1
    weight_stationary: bool = False
    #: .ashift
    a_shift: bool = False
    #: .decompress::lut::b
    lookup: bool = False

    def __post_init__(self) -> None:
        if not self.lookup:
            return
        x, letter = self.product.instruction, self.layout().rows.letter
        if (x.b, x.k, x.transpose_b) != ("e4m3", 64, False) or letter not in "AD":
            major = "MN" if x.transpose_b else "K"
            raise OperandError(
                f"tcgen05.mma.decompress::lut::b with {major}-major B of {x.b}, k {x.k}, M {x.m}; "
                "legal: K-major B of e4m3, k 64, M 128 of one CTA or 256 of a pair"
            )

    def layout(self, lane: int = 0) -> TensorLayout:
        """Places of its matrices in tensor memory. Raises OperandError for an M or N that it
        lacks, and for a lane in which D cannot start."""
        return tensor_layout(
            self.product.instruction,
            self.cta_group,
            self.weight_stationary,
            self.product.scales,
            lane,
        )

    def run(
        self,
        memories: Sequence[TensorMemory],
        shared: Sequence[Space | Array],
        operands: Operands,
        *,
        engine: Engine = "auto",
        undefined: Undefined = "raise",
    ) -> tuple[str, ...]:
        """Executes it: `memories` and `shared` are those of the CTA, or of both of a pair, the even
        one first. D changes in place.

        Returns the operands of which it read words of tensor memory that nothing had written.
        Raises UndefinedError outside of memory, of an allocation, and for metadata that PTX leaves
        undefined; OperandError for descriptors and addresses that mean nothing.
        """
        if len(memories) != self.cta_group or len(shared) != self.cta_group:
            raise OperandError(f"a tcgen05.mma of {self.cta_group} CTAs takes the memory of each")
        return _Run(self, memories, shared, operands, engine, undefined).execute()

    def touched(self, memories: Sequence[TensorMemory], operands: Operands) -> Touched:
        """The words of tensor memory that it reads and writes. Raises as `run`."""
        return _Run(self, memories, (), operands).touched()

    def read_shared(self, shared: Sequence[Space], operands: Operands) -> None:
        """Reads A and B in shared memory, as executing it does. Raises as `run`."""
        run = _Run(self, (), shared, operands)
        if not operands.a_in_tensor_memory:
            run.a()
        if self.lookup:
            run.indices()
        else:
            run.b()


class Touched(NamedTuple):
    """The words of tensor memory that a tcgen05.mma reads and writes."""

    read: list[Words]
    written: list[Words]


class _Region(NamedTuple):
    """A part of D that reads one copy of what is repeated."""

    rows: NDArray[np.intp]
    columns: NDArray[np.intp]
    block: int
    cta: int
    quarter: int


@dataclass
class _Run:
    """One execution."""

    mma: TensorMma
    memories: Sequence[TensorMemory]
    shared: Sequence[Space | Array]
    operands: Operands
    engine: Engine = "auto"
    undefined: Undefined = "raise"

    def __post_init__(self) -> None:
        self.unwritten: list[str] = []

    @cached_property
    def layout(self) -> TensorLayout:
        # The lane of D's address is part of the layout, and the same for A and the metadata.
        return self.mma.layout(TensorAddress.decode(self.operands.d).lane)

    def execute(self) -> tuple[str, ...]:
        a, b = self.a(), self.b()
        nibbles, scale_a, scale_b = self._nibbles(), self._scale("a"), self._scale("b")
        places, bits = self.layout.d, self.mma.product.format_c.bits
        c = np.zeros(places.lane.shape, f"u{bits // 8}")
        if self.operands.enable:
            c = self._read("D", self.operands.d, places)
        d = np.empty_like(c)
        for region in self._regions(a, nibbles, scale_a, scale_b):
            rows, columns = region.rows, region.columns
            d[np.ix_(rows, columns)] = self.mma.product.multiply(
                a[region.block][rows],
                b[:, columns],
                c[np.ix_(rows, columns)],
                None if scale_a is None else scale_a[region.quarter % len(scale_a)][rows],
                None if scale_b is None else scale_b[region.cta, region.quarter][columns],
                None if nibbles is None else nibbles[region.block][rows],
                engine=self.engine,
                undefined=self.undefined,
            )
        store_codes(
            self.memories,
            self._column(self.operands.d),
            places,
            d,
            self._place("D"),
            "tcgen05.mma, D",
            self._written(),
        )
        return tuple(self.unwritten)

    def touched(self) -> Touched:
        given, layout = self.operands, self.layout
        places = {
            "D": (given.d if given.enable else None, "d"),
            "A": (given.a if given.a_in_tensor_memory else None, "a"),
            "metadata": (given.metadata, "metadata"),
            "scale_a": (given.scale_a, "scale_a"),
            "scale_b": (given.scale_b, "scale_b"),
            "lookup": (given.lookup, "lookup"),
        }
        read = [
            words
            for name, (address, held) in places.items()
            if address is not None
            for words in self._words(name, address, getattr(layout, held))
        ]
        return Touched(read, self._words("D", given.d, layout.d, self._written()))

    def _words(
        self, name: str, address: int, places: Places, mask: NDArray[np.bool_] | None = None
    ) -> list[Words]:
        width, what = self._place(name).width, f"tcgen05.mma, {name}"
        return words_at(self.memories, self._column(address), places, width, what, mask)

    def _place(self, name: str) -> Place:
        """The place of an operand's element in a word of tensor memory."""
        product, x = self.mma.product, self.mma.product.instruction
        if name == "D":
            return Place(32, 0, product.format_c.bits)
        if name == "A":
            return place(FORMATS[x.a], x.width("a"))
        if name == "metadata":
            return Place(4, 0, 4)
        scale = None if name == "lookup" else product.scale_type
        return Place(8, 0, FORMATS[scale].bits if scale else 8)

    def _column(self, address: int) -> int:
        """The address without its lane, which the layout has."""
        return TensorAddress(0, TensorAddress.decode(address).column).encode()

    def _read(self, name: str, address: int, places: Places) -> Array:
        start, what = self._column(address), f"tcgen05.mma, {name}"
        codes, defined = load_codes(self.memories, start, places, self._place(name), what)
        if not defined.all():
            self.unwritten.append(name)
        return codes

    # --- operands ---

    def a(self) -> Array:
        """A ``(copies, m, stored k)``."""
        x, group = self.mma.product.instruction, self.mma.cta_group
        if not self.operands.a_in_tensor_memory:
            leads = SharedMemoryDescriptor.decode(self.operands.a, self.mma.product.target)
            parts = [load_operand(s, leads, x, "a", group) for s in self.shared]
            a = np.concatenate(parts)
            return np.broadcast_to(a, (self.layout.rows.blocks, *a.shape))
        if x.transpose_a:
            raise OperandError("A in tensor memory is K-major: transpose_a must be 0")
        self._check_lane("A", self.operands.a)
        a = self._read("A", self.operands.a, self.layout.a)
        if self.mma.a_shift:
            # Each row takes the place of the one before it; the last of each CTA stays.
            own = a.reshape(a.shape[0], group, -1, a.shape[-1])
            a = np.concatenate([own[:, :, 1:], own[:, :, -1:]], 2).reshape(a.shape)
        return a

    def b(self) -> Array:
        """B ``(k, n)``, with the columns that a mask makes zero."""
        x, group = self.mma.product.instruction, self.mma.cta_group
        zero, shift = zero_columns(self.operands.zero_column_mask, x.m, x.n)
        if shift:
            # Column n of the product uses column n + shift of B, of which as many more are read.
            x = x.replace(n=x.n + -(-shift // 8) * 8)
        if self.mma.lookup:
            return self._decompressed()
        leads = SharedMemoryDescriptor.decode(self.operands.b, self.mma.product.target)
        parts = [load_operand(s, leads, x, "b", group) for s in self.shared]
        b = np.concatenate(parts).T[:, shift : shift + len(zero)]
        return np.where(zero, b.dtype.type(0), b) if zero.any() else b

    def _decompressed(self) -> Array:
        """B ``(k, n)`` of .decompress::lut::b: what the tables hold where the indices say."""
        address = self.operands.lookup
        if address is None:
            raise OperandError("tcgen05.mma.decompress::lut::b needs the address of its tables")
        self._check_lane("lookup", address)
        if self._column(address) % 2:
            raise OperandError("the tables of .decompress::lut::b start in an even column")
        tables = self._read("lookup", address, self.layout.lookup)
        parts = [
            np.take_along_axis(np.repeat(own, TABLE_COLUMNS, axis=0), indices, axis=1)
            for own, indices in zip(tables, self.indices(), strict=True)
        ]
        return np.concatenate(parts).T

    def indices(self) -> list[Array]:
        """The indices in the place of B with .decompress::lut::b, in each CTA."""
        leads = SharedMemoryDescriptor.decode(self.operands.b, self.mma.product.target)
        rows = self.mma.product.instruction.n // self.mma.cta_group
        return [load_indices(s, leads, rows) for s in self.shared]

    def _nibbles(self) -> Array | None:
        if not self.mma.product.is_sparse:
            if self.operands.metadata is not None:
                raise OperandError("a tcgen05.mma.sp with an instruction descriptor that is dense")
            return None
        if self.operands.metadata is None:
            raise OperandError("a sparse tcgen05.mma needs the address of its metadata")
        self._check_lane("metadata", self.operands.metadata)
        start = self._column(self.operands.metadata)
        if self.mma.product.instruction.has_selector and start % 2:
            raise OperandError("metadata of kinds tf32, f16 and ti16 starts in an even column")
        return self._read("metadata", self.operands.metadata, self.layout.metadata)

    def _scale(self, operand: str) -> Array | None:
        """Scales ``(4, m, v)`` of A, or ``(1, m, v)``; ``(ctas, 4, n, v)`` of B."""
        scale, address = self.mma.product.scale_type, getattr(self.operands, f"scale_{operand}")
        if scale is None:
            return None
        if address is None:
            raise OperandError("a block-scaled tcgen05.mma needs the addresses of its scales")
        self._check_lane(f"scale_{operand}", address)
        places = self.layout.scale_a if operand == "a" else self.layout.scale_b
        return self._read(f"scale_{operand}", address, places)

    def _check_lane(self, name: str, address: int) -> None:
        lane = TensorAddress.decode(address).lane
        if lane != self.layout.lane:
            raise OperandError(
                f"the address of {name} names lane {lane}, and that of D lane {self.layout.lane}: "
                "they must be the same"
            )

    def _written(self) -> NDArray[np.bool_] | None:
        """Elements of D that are written; None: all."""
        words = self.operands.disabled_lanes
        if not words:
            return None
        if len(words) != 4 * self.mma.cta_group:
            raise OperandError(
                f"disable-output-lane takes {4 * self.mma.cta_group} words; got {len(words)}"
            )
        bits = [int(word) >> bit & 1 for word in words for bit in range(32)]
        disabled = np.array(bits, np.bool_).reshape(self.mma.cta_group, LANES)
        written: NDArray[np.bool_] = ~disabled[self.layout.d.cta, self.layout.d.lane]
        return written

    # --- copies ---

    def _regions(
        self, a: Array, nibbles: Array | None, scale_a: Array | None, scale_b: Array | None
    ) -> Iterator[_Region]:
        """Parts of D that read one copy each; one part where all copies are alike."""
        d = self.layout.d
        m, n = d.lane.shape
        wide = n // self.layout.rows.blocks
        repeated = [x for x in (a, nibbles, scale_a) if x is not None]
        if all((x == x[:1]).all() for x in repeated) and _alike(scale_b, self.layout):
            yield from _whole_rows(m, n, wide, scale_b is not None and self.layout.rows.blocks > 1)
            return
        quarter = d.lane // QUARTER
        for cta in range(self.mma.cta_group):
            for q in range(4):
                own = (d.cta == cta) & (quarter == q)
                rows, columns = np.flatnonzero(own.any(1)), np.flatnonzero(own.any(0))
                if len(rows):
                    yield _Region(rows, columns, int(columns[0]) // wide, cta, q)


def _alike(scale_b: Array | None, layout: TensorLayout) -> bool:
    """True if all copies of B's scales are the same, where there are any."""
    if scale_b is None:
        return True
    there = layout.scale_b.lane >= 0
    high = np.where(there, scale_b, 0).max((0, 1))
    return bool((np.where(there, scale_b, high) == high).all())


def _whole_rows(m: int, n: int, wide: int, by_block: bool) -> Iterator[_Region]:
    """All of D, or a part for each block of columns, whose scales lie in quarters of their own."""
    if not by_block:
        yield _Region(np.arange(m), np.arange(n), 0, 0, 0)
        return
    for block in range(n // wide):
        columns = np.arange(block * wide, (block + 1) * wide)
        yield _Region(np.arange(m), columns, block, 0, block * 4 * wide // n)
