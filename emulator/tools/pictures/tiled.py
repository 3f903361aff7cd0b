"""Several warps side by side: one instruction of each, as a block of a kernel tiles a product."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dtypes import Format, Place
from emulator.errors import OperandError, shown, whole
from emulator.isa.instruction import Instruction
from emulator.isa.matrix import MatrixInstruction
from emulator.layout.fragment import Fragment
from emulator.layout.lanemap import Index

#: warps along m and along n
Warps = tuple[int, int]
_MOST_WARPS = 32


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
    """An operand of a product that several warps share out, as `Fragment` has one of a warp."""

    operand: str
    fmt: Format
    place: Place
    word_bits: int
    elements: int
    registers: int
    lanes: int
    shape: tuple[int, int]
    coords: Index
    group: Index
    groups: int = 1

    @classmethod
    def of(cls, one: Fragment, warps: Warps) -> TiledFragment:
        """Lanes count on from warp to warp, and warps along m before those along n, as CuTe's
        TiledMMA has them with its usual layout of atoms.

        A is the same for all warps along n, and B for those along m: each holds its own copy.
        """
        (rows, cols), (m, n) = one.shape, warps
        # Warps whose parts of the operand are different ones, along its rows and columns.
        down, across = {"a": (m, 1), "b": (1, n)}.get(one.operand, (m, n))
        places = [(i % down * rows, j % across * cols) for j in range(n) for i in range(m)]
        coords = np.concatenate([one.coords + np.array(place) for place in places])
        same = one.operand, one.fmt, one.place, one.word_bits, one.elements, one.registers
        group = np.zeros(coords.shape[:-1], one.group.dtype)
        return cls(*same, one.lanes * m * n, (rows * down, cols * across), coords, group)
