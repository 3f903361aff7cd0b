"""Elements of a product that are made from words nobody wrote: a row of A or a column of B
spoils a row or a column of D, and no more.

So tiles that are filled in part are no mistake as long as the rest of the product is not used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emulator.isa.matrix import MatrixInstruction
from emulator.isa.movement import Movement
from emulator.machine.vector.lanes import has_whole_warps
from emulator.machine.vector.strand import WARP, Strand
from emulator.ptx.program import Function, Statement, registers_of

Shadows = NDArray[np.int32]


@dataclass(frozen=True)
class MatrixShadow:
    """The registers of an operand, and which row or column each of its elements belongs to."""

    #: indexes of the registers' shadows
    shadows: tuple[int, ...]
    #: ``(lanes, elements)``, and how many elements a register holds
    along: NDArray[np.int64]
    per_register: int
    #: rows, or columns
    size: int

    @classmethod
    def of(
        cls, statement: Statement, name: str, count: int, axis: int, size: int
    ) -> MatrixShadow | None:
        bound = statement.operands.get(name)
        indexes = tuple(i + count for i in registers_of(bound))
        ins: Any = statement.instruction
        if len(indexes) < 2 and statement.signature[name].kind == "descriptor":
            return None
        coords = ins.fragment(name).coords
        return cls(indexes, coords[..., axis], coords.shape[1] // len(indexes), size)

    def spoilt(self, s: Strand) -> Shadows | None:
        """For each warp or warpgroup its rows or columns ``(n, size)``; None: all are whole."""
        held = _registers(s, self.shadows)
        if not held.any():
            return None
        lanes = self.along.shape[0]
        each = np.repeat(held, self.per_register, axis=-1).reshape(-1, *self.along.shape)
        out = np.zeros((len(s) // lanes, self.size), np.int32)
        which = np.broadcast_to(np.arange(len(out))[:, None, None], each.shape)
        np.minimum.at(out, (which, np.broadcast_to(self.along, each.shape)), each)
        return out


def _registers(s: Strand, indexes: tuple[int, ...]) -> Shadows:
    """Shadows ``(lanes, registers)``."""
    out = np.empty((len(s), len(indexes)), np.int32)
    for i, index in enumerate(indexes):
        out[:, i] = s.read(index)
    return out


class ProductShadow:
    """The operands of one multiplication statement."""

    def __init__(self, statement: Statement, function: Function) -> None:
        ins = statement.instruction
        assert isinstance(ins, MatrixInstruction)
        count = len(function.registers) // 2
        self.lanes = ins.lanes
        self.a = MatrixShadow.of(statement, "a", count, 0, ins.m)
        self.b = MatrixShadow.of(statement, "b", count, 1, ins.n)
        coords = ins.fragment("d").coords
        self.rows, self.columns = coords[..., 0], coords[..., 1]
        self.d = tuple(i + count for i in registers_of(statement.operands["d"]))
        self.per_register = coords.shape[1] // len(self.d)
        addend = statement.operands.get("c")
        self.addends = tuple(i + count for i in registers_of(addend)) if addend else self.d
        others = [x for x in ("e", "scale_a", "scale_b") if x in statement.operands]
        self.others = tuple(i + count for x in others for i in registers_of(statement.operands[x]))

    def result(self, s: Strand, adds: bool) -> list[Shadows] | None:
        """Shadows of the registers of D; None: all hold values."""
        spoilt = [None if x is None else x.spoilt(s) for x in (self.a, self.b)]
        other = _registers(s, self.others).min(-1) if self.others else np.zeros(1, np.int32)
        before = None
        if adds and any(s.read(i).any() for i in self.addends):
            before = _registers(s, self.addends)
        if all(x is None for x in spoilt) and before is None and not other.any():
            return None
        return self.spread(s, spoilt[0], spoilt[1], before, other)

    def with_shared(self, s: Strand, missing: dict[int, list[NDArray[np.bool_]]]) -> None:
        """Adds what tiles in shared memory spoil: by the first lanes of warpgroups, the rows of A,
        if it lies there, and the columns of B that nobody wrote."""
        groups = len(s) // self.lanes
        tables: list[Shadows | None] = [None, None]
        for number, first in enumerate(s.lanes[:: self.lanes].tolist()):
            tiles = missing.get(first, [])
            for axis, tile in zip((1,) if len(tiles) == 1 else (0, 1), tiles, strict=False):
                if tile.any():
                    held = tables[axis]
                    if held is None:
                        held = tables[axis] = np.zeros((groups, len(tile)), np.int32)
                    held[number] = np.where(tile, -s.wave.watch.now, 0)
        if tables[0] is None and tables[1] is None:
            return
        for target, shadow in zip(
            self.d, self.spread(s, tables[0], tables[1], _registers(s, self.d)), strict=True
        ):
            s.write(target, shadow)

    def spread(
        self,
        s: Strand,
        rows: Shadows | None,
        columns: Shadows | None,
        before: Shadows | None,
        other: Shadows | None = None,
    ) -> list[Shadows]:
        """Shadows of D of those of rows of A and columns of B, and of what is added to."""
        groups = len(s) // self.lanes
        each = np.zeros((groups, *self.rows.shape), np.int32)
        for along, spoilt in ((self.rows, rows), (self.columns, columns)):
            if spoilt is not None:
                np.minimum(each, spoilt[:, along], out=each)
        held = each.reshape(len(s), len(self.d), self.per_register).min(-1)
        if before is not None and before.shape == held.shape:
            held = np.minimum(held, before)
        if other is not None and other.any():
            held = np.minimum(held, np.broadcast_to(other, (len(s),))[:, None])
        return list(np.ascontiguousarray(held.T))


# --- ldmatrix, stmatrix ---------------------------------------------------------------------------


def rows_of_registers(s: Strand, indexes: tuple[int, ...], trans: bool) -> NDArray[np.bool_]:
    """Flags of the spoilt rows that stmatrix stores, for the lanes that address them. Of part of a
    warp nothing is said: it waits for the others, or cannot go on."""
    out = np.zeros(len(s), np.bool_)
    if not has_whole_warps(s):
        return out
    held = _registers(s, indexes).reshape(-1, WARP, len(indexes)) < 0
    lanes, rows = np.arange(WARP), out.reshape(-1, WARP // 8, 8)
    for row in range(8):
        # A lane holds two neighbours of a row, or where the tile is transposed, of a column.
        mine = lanes % 4 == row // 2 if trans else lanes // 4 == row
        rows[:, : len(indexes), row] = held[:, mine].any(1)
    return out


def registers_of_rows(ins: Movement, missing: NDArray[np.bool_]) -> list[NDArray[np.bool_]]:
    """For each register of ldmatrix the lanes that hold something of rows that nobody wrote."""
    tiles = missing.reshape(-1, ins.count, ins.form.rows)
    registers = ins.count * ins.form.rows // 8
    if ins.form.type != "b16":
        spoilt = np.repeat(tiles.any(-1), registers // ins.count, axis=1)
        return [np.repeat(spoilt[:, i], WARP) for i in range(registers)]
    lanes = np.arange(WARP)
    first, second = (2 * (lanes % 4), 2 * (lanes % 4) + 1) if ins.trans else (lanes // 4,) * 2
    held = tiles[..., first] | tiles[..., second]  # (warps, tiles, 32)
    return [held[:, i].reshape(-1) for i in range(ins.count)]
