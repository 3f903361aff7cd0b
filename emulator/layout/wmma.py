"""The fragments of wmma. PTX leaves their layout open (9.7.14.4.1), so this one is our own.

Element i of lane L is element ``(i * 32 + L) mod (rows * cols)`` of the matrix in row-major order,
whatever the target and the layout in memory. Hardware has other maps, one for each generation: a
program may rely on none, only on lanes treating their elements alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from dtypes import Array, Format, place
from emulator.layout.fragment import Fragment, Location
from emulator.layout.lanemap import COL, ROW, WARP, Index, LaneMap


def wmma_fragment(operand: str, fmt: Format, rows: int, cols: int, copies: int = 1) -> Fragment:
    """The fragment of a matrix of `fmt` that the lanes hold `copies` times."""
    lane_map = _map(rows, cols)
    where, word_bits = place(fmt), max(32, fmt.bits)
    if copies == 1:
        return Fragment(operand, fmt, where, lane_map, word_bits)
    return ReplicatedFragment(operand, fmt, where, lane_map, word_bits, copies)


@lru_cache(maxsize=64)
def _map(rows: int, cols: int) -> LaneMap:
    wide = min(cols, WARP)
    tall = WARP // wide  # rows that one element of all lanes covers
    return LaneMap(
        ((wide, COL, 1), (tall, ROW, 1)), ((cols // wide, COL, WARP), (rows // tall, ROW, tall))
    )


@dataclass(frozen=True)
class ReplicatedFragment(Fragment):
    """A fragment with more places than its matrix has elements: it holds the matrix `copies` times.

    `lane_map` is that of the first copy; the registers of the others follow. `gather` and `lane`
    look at the first copy alone, and copies that differ are no error: hardware does not compare
    its own copies either. `scatter` fills all of them.
    """

    copies: int = 1

    @cached_property
    def _first(self) -> Fragment:
        return Fragment(self.operand, self.fmt, self.place, self.lane_map, self.word_bits)

    @cached_property
    def elements(self) -> int:
        return self._first.elements * self.copies

    @property
    def coords(self) -> Index:
        return np.tile(self._first.coords, (1, self.copies, 1))

    @property
    def group(self) -> Index:
        return np.tile(self._first.group, (1, self.copies))

    def gather(self, registers: Array) -> Array:
        words = self.check_registers(registers)
        return self._first.gather(words[..., : self._first.registers])

    def scatter(self, codes: Array) -> Array:
        words = self._first.scatter(codes)
        return np.concatenate([words] * self.copies, axis=-1)

    def lane(self, row: int, col: int, group: int = 0) -> Location:
        return self._first.lane(row, col, group)
