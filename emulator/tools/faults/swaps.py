"""Two rows, two columns or two lanes in each other's place.

There are too many pairs to try: what is wrong (`Kernel.suspects`) tells which may be exchanged.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from emulator.errors import OperandError
from emulator.tools.faults.kernel import RecordedKernel, Variant
from emulator.tools.faults.registers import Ways, each_operand, exchanged, of_lanes

#: more wrong rows (columns), and more lanes that hold something wrong, are no exchange of two
_MOST_LINES, _MOST_LANES = 4, 16
_LINES = ("row", "column")


def exchanged_lines(kernel: RecordedKernel) -> Iterator[Variant]:
    """Two rows of A, two columns of B, or two of either of D."""
    if kernel.ins.form.pipe == "quad":  # four matrices at once
        return
    for name, axis in (("a", 0), ("b", 1), ("d", 0), ("d", 1)):
        for pair in combinations(_wrong_lines(kernel, name, axis), 2):
            text = f"{_LINES[axis]}s {pair[0]} and {pair[1]} of {name.upper()} exchanged"
            with suppress(OperandError):  # a tile of which two elements share a byte
                yield Variant(name, text, _with_lines(kernel, name, axis, pair))


def _wrong_lines(kernel: RecordedKernel, name: str, axis: int) -> list[int]:
    if kernel.suspects is None:
        return [0, 1]
    mask = kernel.suspects.get(name, kernel.suspects.get("d"))
    if mask is None:
        return []  # another operand is looked at
    lines = np.flatnonzero(mask.any(1 - axis))
    return [int(x) for x in lines] if len(lines) <= _MOST_LINES else []


def _with_lines(
    kernel: RecordedKernel, name: str, axis: int, pair: tuple[int, int]
) -> RecordedKernel:
    order = exchanged((kernel.ins.m, kernel.ins.n)[axis], pair)
    if name == "d":
        d = kernel.ins.fragment("d")
        return kernel.changing(
            "d", lambda words: d.scatter(np.take(d.gather(words), order, axis - 2))
        )
    changed = kernel.holding(name, np.take(kernel.matrix(name), order, axis))
    if name == "a" and "e" in kernel.words:  # a row of a sparse A takes its metadata along
        changed = changed.holding("e", np.take(kernel.matrix("e"), order, 0))
    return changed


@each_operand
def exchanged_lanes(kernel: RecordedKernel, name: str, count: int) -> Ways:
    """All registers of an operand in two lanes."""
    for pair in _pairs_of_lanes(kernel, name):
        text = f"{name}: lanes {pair[0]} and {pair[1]} exchanged"
        yield text, of_lanes(exchanged(kernel.ins.lanes, pair))


def _pairs_of_lanes(kernel: RecordedKernel, name: str) -> list[tuple[int, int]]:
    """Pairs that together hold, or lead to, all that is wrong."""
    if kernel.suspects is None:
        return [(0, 1)]
    mask = kernel.suspects.get(name, kernel.suspects.get("d"))
    if mask is None:
        return []
    fragment, of_b = kernel.ins.fragment(name), name in ("b", "scale_b")
    if name in ("c", "d") or (name in ("a", "b") and name in kernel.suspects):
        # Element by element; those of all steps along k at once.
        tiles = 1 if name in ("c", "d") else kernel.steps
        wrong = np.any(np.split(mask, tiles, -2 if of_b else -1), 0).reshape(-1)
        places = fragment.lane_map.flat
    elif kernel.ins.form.pipe == "quad":
        return []
    else:
        # A row of A makes a row of D, whichever element of it is wrong.
        wrong = mask.any(0 if of_b else 1)
        places = fragment.coords[..., 1 if of_b else 0]
    held: NDArray[np.bool_] = np.zeros((fragment.lanes, len(wrong)), np.bool_)
    np.put_along_axis(held, places, True, 1)
    lanes = np.flatnonzero((held & wrong).any(1))
    if len(lanes) > _MOST_LANES:
        return []
    return [
        (int(i), int(j))
        for i, j in combinations(lanes, 2)
        if not (wrong & ~(held[i] | held[j])).any()
    ]
