"""Vector engine: operands of matrix instructions, registers of whole warps and warpgroups, what
lanes share."""

from __future__ import annotations

from operator import is_
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dtypes import Array
from emulator.isa.instruction import Instruction
from emulator.isa.signature import Operand
from emulator.machine.shared.failure import Failure
from emulator.machine.shared.fragments import BY_LANE, OPERANDS, MatrixOperands
from emulator.machine.shared.operands import word_type
from emulator.machine.vector.operands import Read, reader, writer
from emulator.machine.vector.strand import Lanes, Strand
from emulator.ptx.program import Bound, Function, Register, Statement, Vector

#: results that a strand remembers: kernels alternate between a few accumulators
_BLOCKS = 8
#: words of what is no register
_NONE = np.zeros(1, np.uint32)


def is_whole(s: Strand, lanes: int) -> bool:
    """True if a strand has all lanes of its warps or warpgroups."""
    known: dict[int, bool] = s.marks.setdefault("aligned", {})
    if lanes not in known:
        known[lanes] = len(s) % lanes == 0 and _aligned(s, lanes)
    return known[lanes]


def whole(s: Strand, lanes: int, ins: Instruction) -> None:
    """All lanes must be there: an instruction on a matrix has no lanes to spare."""
    if not is_whole(s, lanes):
        _, firsts, counts = np.unique(s.lanes // lanes, return_index=True, return_counts=True)
        reason = f"{ins} needs all {lanes} lanes; some have ended"
        first = int(firsts[np.argmax(counts < lanes)])
        raise Failure("lanes missing", reason, first, concerns=lanes)


def _aligned(s: Strand, lanes: int) -> bool:
    first, last = s.lanes[::lanes], s.lanes[lanes - 1 :: lanes]
    started = first % s.wave.lanes_per_cta % lanes == 0
    return bool((started & (last - first == lanes - 1)).all())


# --- registers ------------------------------------------------------------------------------------


class Registers:
    """A vector operand: words ``(warps, lanes, registers)`` of a strand."""

    def __init__(self, operand: Operand, bound: Bound, function: Function, lanes: int) -> None:
        items = bound.items if isinstance(bound, Vector) else (bound,)
        type_ = word_type(operand)
        self.lanes = lanes
        self.count = len(items)
        #: numbers of the registers, -1 of what is none
        self.indexes = tuple(x.index if isinstance(x, Register) else -1 for x in items)
        self.reads = [None if x is None else reader(x, type_, function) for x in items]
        self.writes = [writer(x, type_, function) for x in items] if operand.use != "read" else []

    def read(self, s: Strand) -> Array:
        first = next(read for read in self.reads if read is not None)(s)
        out = np.empty((len(s), self.count), first.dtype)
        for i, read in enumerate(self.reads):
            out[:, i] = 0 if read is None else read(s)
        return out.reshape(-1, self.lanes, self.count)

    def columns(self, s: Strand) -> Array:
        """The words of the registers as rows ``(registers, lanes)``; of those that were written
        together no copy."""
        words = [_NONE if read is None else read(s) for read in self.reads]
        block, rows = s.marks.get("blocks", {}).get(id(words[0]), (None, ()))
        if len(rows) == len(words) and all(map(is_, rows, words)):
            return cast(Array, block)
        out = np.empty((len(words), len(s)), next(x for x in words if x is not _NONE).dtype)
        for row, held in zip(out, words, strict=True):
            row[:] = held
        return out

    def write_columns(self, s: Strand, block: Array) -> None:
        """Makes rows of an array ``(registers, lanes)`` the words of each register."""
        rows = list(block)
        known = s.marks.setdefault("blocks", {})
        known[id(rows[0])] = block, rows
        if len(known) > _BLOCKS:
            del known[next(iter(known))]
        for write, row in zip(self.writes, rows, strict=True):
            write(s, row, None)

    def write(self, s: Strand, words: Array) -> None:
        columns = np.ascontiguousarray(words.reshape(len(s), self.count).T)
        for write, column in zip(self.writes, columns, strict=True):
            write(s, column, None)

    def fill(self, s: Strand, word: Array) -> None:
        """The same word in all registers."""
        for write in self.writes:
            write(s, word, None)

    def read_lanes(self, s: Strand, lanes: Lanes) -> Array:
        """Words ``(warps, lanes, registers)`` of some lanes; zeros of those that have ended."""
        at, there = _positions(s, lanes)
        if lanes.size == len(s) and there.all():
            return self.read(s)
        columns = [np.zeros(1, np.uint32) if read is None else read(s) for read in self.reads]
        words = np.stack([s.spread(column)[at] for column in columns], axis=-1)
        return np.where(there[..., None], words, 0).astype(words.dtype)

    def write_lanes(self, s: Strand, lanes: Lanes, words: Array) -> None:
        """Puts words into the registers of some lanes, as far as these have not ended."""
        at, there = _positions(s, lanes)
        if not lanes.size:
            return
        if lanes.size == len(s) and there.all():
            self.write(s, words)
            return
        mask = np.zeros(len(s), np.bool_)
        mask[at[there]] = True
        column = np.zeros(len(s), words.dtype)
        for i, write in enumerate(self.writes):
            column[at[there]] = words[there, i]
            write(s, column, mask)


def _positions(s: Strand, lanes: Lanes) -> tuple[Lanes, NDArray[np.bool_]]:
    """Positions of lanes in a strand, and flags of those that are in it."""
    at = np.minimum(np.searchsorted(s.lanes, lanes), len(s) - 1)
    return at, s.lanes[at] == lanes


def one_for_all(words: Array, lanes: int, what: str) -> Array:
    """The word that all lanes of each warp or warpgroup hold: ``(warps,)``, or ``(1,)``."""
    if len(words) == 1:
        return words
    each = words.reshape(-1, lanes)
    if (wrong := (each != each[:, :1]).any(-1)).any():
        reason = f"operand {what} must hold the same in all lanes"
        raise Failure("operand", reason, int(np.argmax(wrong)) * lanes, concerns=lanes)
    return each[:, 0]


class Fetch(MatrixOperands[Read, Registers]):
    """The operands of a multiplication by name, as `warp` takes them."""

    def __init__(self, statement: Statement, function: Function, lanes: int) -> None:
        self.lanes = lanes
        super().__init__(
            statement,
            lambda bound, type_: reader(bound, type_, function),
            lambda x, bound: Registers(x, bound, function, lanes),
        )

    def __call__(self, s: Strand) -> tuple[dict[str, Array], dict[str, Any]]:
        """Operands and options."""
        operands = {name: vector.read(s) for name, vector in self.read_vectors.items()}
        words, options = self.words(s)
        return operands | words, self.constants | options

    def words(self, s: Strand) -> tuple[dict[str, Array], dict[str, Any]]:
        """The operands and options that are one register, or one word for all lanes."""
        operands: dict[str, Array] = {}
        options: dict[str, Any] = {}
        for name, read in self.singles.items():
            words = read(s)
            if name in BY_LANE:
                words = s.spread(words).reshape(-1, self.lanes)
            else:
                words = one_for_all(words, self.lanes, name)
            (operands if name in OPERANDS else options)[name] = words
        return operands, options
