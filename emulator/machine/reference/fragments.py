"""Reference engine: operands of matrix instructions, registers of one warp or warpgroup, what its
lanes share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dtypes import Array
from emulator.arith.scalar.types import TYPES
from emulator.isa.signature import Operand
from emulator.machine.reference.operands import Read, reader, writer
from emulator.machine.reference.thread import Thread
from emulator.machine.shared.failure import Failure
from emulator.machine.shared.fragments import BY_LANE, OPERANDS, MatrixOperands
from emulator.machine.shared.operands import word_type
from emulator.ptx.program import Bound, Function, Register, Statement, items_of

Threads = Sequence[Thread]


class Registers:
    """A vector operand: words ``(lanes, registers)`` of threads."""

    def __init__(self, operand: Operand, bound: Bound, function: Function) -> None:
        items = items_of(bound)
        type_ = word_type(operand)
        self.dtype = TYPES[type_].dtype
        self.reads = [None if x is None else reader(x, type_) for x in items]
        #: numbers of the registers, -1 of what is none
        self.indexes = tuple(x.index if isinstance(x, Register) else -1 for x in items)
        self.writes = [writer(x, type_, function) for x in items] if operand.use != "read" else []

    def read(self, threads: Threads) -> Array:
        words = [[0 if read is None else read(thread) for read in self.reads] for thread in threads]
        return np.array(words, self.dtype).reshape(len(threads), len(self.reads))

    def write(self, threads: Threads, words: Array) -> None:
        rows = words.reshape(len(threads), len(self.writes)).tolist()
        for thread, row in zip(threads, rows, strict=True):
            for write, word in zip(self.writes, row, strict=True):
                write(thread, word)


def same(threads: Threads, read: Read, what: str) -> int:
    """The word that all lanes hold."""
    words = {read(thread) for thread in threads}
    if len(words) > 1:
        raise Failure("operand", f"operand {what} must hold the same in all lanes")
    return words.pop()


class Fetch(MatrixOperands[Read, Registers]):
    """The operands of a multiplication by name, as `warp` takes them."""

    def __init__(self, statement: Statement, function: Function) -> None:
        super().__init__(statement, reader, lambda x, bound: Registers(x, bound, function))

    def __call__(self, threads: Threads) -> tuple[dict[str, Array], dict[str, Any]]:
        """Operands and options."""
        operands: dict[str, Array] = {
            name: vector.read(threads) for name, vector in self.read_vectors.items()
        }
        options: dict[str, Any] = dict(self.constants)
        for name, read in self.singles.items():
            if name in BY_LANE:
                words: Any = np.array([read(thread) for thread in threads], np.uint32)
            else:
                shared = same(threads, read, name)
                words = np.uint64(shared) if name in OPERANDS else shared
            (operands if name in OPERANDS else options)[name] = words
        if "scale_d" in options:
            options["scale_d"] = bool(options["scale_d"])
        return operands, options
