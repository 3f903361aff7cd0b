"""All engines: places in a kernel and in its sources, and names of blocks and threads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from emulator.errors import whole

Index = tuple[int, int, int]


@dataclass(frozen=True)
class Place:
    """Place of a statement in a kernel and in its sources."""

    kernel: str
    #: line and column of the PTX text, and the statement
    line: int
    column: int
    statement: str
    #: "kernel.cu:12", and behind it where it was inlined; empty where the file does not say
    source: tuple[str, ...] = ()

    def __str__(self) -> str:
        source = f" ({', inlined at '.join(self.source)})" if self.source else ""
        return f"{self.kernel}, PTX line {self.line}{source}: {self.statement}"


def shown(index: Index) -> str:
    """``(1, 0, 0)``."""
    return f"({', '.join(map(str, index))})"


def number_of(what: str, given: object, sizes: Index) -> int:
    """The number of a block of a grid, or of a thread of a block, given by that or by its
    coordinates. Raises OperandError for none."""
    if not isinstance(given, Sequence) or isinstance(given, str) or not 1 <= len(given) <= 3:
        return whole(
            f"the {what}, of {shown(sizes)}, by its number", given, 0, math.prod(sizes) - 1
        )
    number, step = 0, 1
    for axis, place, size in zip("xyz", given, sizes, strict=False):
        number += step * whole(f"the {what} along {axis}", place, 0, size - 1)
        step *= size
    return number


def spans(numbers: NDArray[np.int64]) -> str:
    """Ascending numbers as ``0-2, 5``."""
    cuts = np.flatnonzero(np.diff(numbers) != 1) + 1
    parts = [part.tolist() for part in np.split(numbers, cuts)]
    return ", ".join(f"{p[0]}-{p[-1]}" if len(p) > 1 else str(p[0]) for p in parts)
