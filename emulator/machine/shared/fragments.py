"""All engines: operands of a multiplication of matrices, by kind, and rows of tiles in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import numpy as np

from dtypes import Array
from emulator.isa.movement import ROW_BYTES, Movement
from emulator.isa.signature import Operand
from emulator.layout.lanemap import WARP
from emulator.machine.shared.operands import signed, word_type
from emulator.memory.arena import AccessError, Fault
from emulator.ptx.program import Bound, Statement, Vector

#: an engine's reader of one word, and of the registers of a vector
R = TypeVar("R")
V = TypeVar("V")

#: words of which each lane has its own; all lanes share the others
BY_LANE = ("e", "scale_a", "scale_b")
#: single words that `warp` takes as operands; it takes the others as options
OPERANDS = ("a", "b", "e")


class MatrixOperands(Generic[R, V]):
    """Vectors, single words and constants by name; and the vector of the result."""

    def __init__(
        self,
        statement: Statement,
        reader: Callable[[Bound | None, str], R],
        registers: Callable[[Operand, Bound], V],
    ) -> None:
        self.vectors: dict[str, V] = {}
        self.singles: dict[str, R] = {}
        self.constants: dict[str, int] = {}
        #: byte-ids and thread-ids, which a statement names for each scale
        self.ids: tuple[str, ...] = ()
        for operand in statement.signature.operands:
            bound = statement.operands.get(operand.name)
            if bound is None:
                continue
            if operand.kind == "vector":
                self.vectors[operand.name] = registers(operand, bound)
            elif operand.kind == "immediate":
                self.constants[operand.name] = signed(bound)
            elif operand.kind == "ids":
                assert isinstance(bound, Vector)
                for part, item in zip(operand.parts, bound.items, strict=True):
                    self.ids += (part.name,)
                    self.singles[part.name] = reader(item, "b16")
            else:
                self.singles[operand.name] = reader(bound, word_type(operand))
        self.result_name = next(o.name for o in statement.signature.operands if o.use != "read")
        self.result = self.vectors[self.result_name]
        self.updates = statement.signature[self.result_name].use == "updated"

    @property
    def read_vectors(self) -> dict[str, V]:
        """The vectors that are read."""
        skipped = "" if self.updates else self.result_name
        return {name: vector for name, vector in self.vectors.items() if name != skipped}


def check_rows(ins: Movement, offsets: Array, size: int) -> None:
    """AccessError, with the lane, for a row that leaves shared memory of so many bytes or is
    misaligned; its offset is one of ``(warps, rows)``."""
    last, bits = size - ROW_BYTES, int(np.bitwise_or.reduce(offsets, axis=None))
    if int(offsets.max()) <= last and bits % ROW_BYTES == 0:
        return
    warp, row = np.argwhere((offsets > last) | (offsets % ROW_BYTES != 0))[0].tolist()
    address = int(offsets[warp, row])
    what, kind = f"is no multiple of {ROW_BYTES}", "misaligned"
    if address > last:
        what, kind = f"leaves shared memory, which has {size} bytes", "out of bounds"
    reason = f"{ins.family}: the address of lane {row}, {address:#x}, {what}"
    raise AccessError(Fault(warp * WARP + row, address, kind, reason))
