"""Several warps side by side: one instruction of each, as a block of a kernel tiles a product."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dtypes import Format, Place
from emulator.errors import OperandError, shown, whole
from emulator.isa.instruction import Instruction
from emulator.isa.matrix import MatrixInstruction
from emulator.layout.fragment import Fragment
from emulator.layout.lanemap import Index

#: warps along m and along n
Warps = tuple[int, int]
_MOST_WARPS, _WARP = 32, 32


def check_warps(ins: Instruction, given: object) -> Warps:
    """Warps along m and n; raises OperandError for what is none, and for an instruction that is not
    a dense mma with one matrix of each operand."""
    if not isinstance(given, tuple) or len(given) != 2:
        raise OperandError(f"warps are a pair, along m and along n; got {shown(given)}")
    m, n = (whole(f"warps along {x}", y, 1) for x, y in zip("mn", given, strict=True))
    if m * n > _MOST_WARPS:
        raise OperandError(f"a block has at most {_MOST_WARPS} warps; got {m} x {n}")
    dense = isinstance(ins, MatrixInstruction) and not (
        ins.is_wgmma or ins.is_sparse or ins.is_block_scaled or ins.fragment("d").groups > 1
    )
    if (m, n) != (1, 1) and not dense:
        raise OperandError(f"warps side by side are drawn of dense mma alone; got {ins}")
    return m, n


@dataclass(frozen=True)
class TiledFragment:
    """An operand of a product that several warps share out: lanes count on from warp to warp, and
    warps along m before those along n, as CuTe's TiledMMA has them with its usual layout of atoms.

    A is the same for all warps along n, and B for those along m: each holds its own copy.
    """

    one: Fragment
    warps: Warps

    @property
    def operand(self) -> str:
        return self.one.operand

    @property
    def fmt(self) -> Format:
        return self.one.fmt

    @property
    def place(self) -> Place:
        return self.one.place

    @property
    def word_bits(self) -> int:
        return self.one.word_bits

    @property
    def elements(self) -> int:
        return self.one.elements

    @property
    def registers(self) -> int:
        return self.one.registers

    @property
    def groups(self) -> int:
        return 1

    @property
    def lanes(self) -> int:
        return self.one.lanes * self.warps[0] * self.warps[1]

    @property
    def _spread(self) -> Warps:
        """Warps whose parts of the operand are different ones, along its rows and columns."""
        m, n = self.warps
        return {"a": (m, 1), "b": (1, n)}.get(self.operand, (m, n))

    @property
    def shape(self) -> tuple[int, int]:
        (rows, cols), (down, across) = self.one.shape, self._spread
        return rows * down, cols * across

    @cached_property
    def coords(self) -> Index:
        (rows, cols), (down, across), (m, n) = self.one.shape, self._spread, self.warps
        places = [(i % down * rows, j % across * cols) for j in range(n) for i in range(m)]
        return np.concatenate([self.one.coords + np.array(place) for place in places])

    @cached_property
    def group(self) -> Index:
        return np.zeros(self.coords.shape[:-1], self.one.group.dtype)
