"""Tensor memory as pictures: which elements each word holds, and which registers tcgen05.ld fills.

Rows are lanes, columns are columns of tensor memory. The colours tell the quarters apart that the
four warps of a warpgroup reach; what holds nothing is grey.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from emulator.layout.lanemap import Index
from emulator.layout.picture import Grid, Layer
from emulator.layout.tensor_memory import LANES, QUARTER, Int64, Places, TensorLayout

#: owners, as `picture.colour` takes them: of each quarter, and of words that hold nothing
_QUARTERS, _EMPTY = (0, 4, 12, 16), 11
#: operands that have a picture, and what their rows and columns count
MATRICES = {
    "d": ("m", "n"), "a": ("m", "k"), "e": ("m", "chunk"), "scale_a": ("m", "block"),
    "scale_b": ("n", "block"),
}  # fmt: skip

Text = Callable[[int, int], tuple[str, ...]]


def places_of(layout: TensorLayout, operand: str) -> Places:
    """The places of a matrix of `MATRICES`."""
    found: Places = getattr(layout, "metadata" if operand == "e" else operand)
    return found


def matrix_grids(layout: TensorLayout, operand: str, bits: int) -> list[Grid]:
    """The words that hold a matrix, for each CTA: the elements of each, and their bits."""
    places = places_of(layout, operand)
    return [_matrix_grid(places, operand, cta, bits, layout) for cta in range(layout.cta_group)]


def _matrix_grid(places: Places, operand: str, cta: int, bits: int, layout: TensorLayout) -> Grid:
    rows, columns = MATRICES[operand]
    index = np.argwhere((places.cta == cta) & (places.lane >= 0))
    flat = tuple(index.T)
    held: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
    for lane, column, bit, element in zip(
        places.lane[flat].tolist(),
        places.column[flat].tolist(),
        places.bit[flat].tolist(),
        index[:, -2:].tolist(),
        strict=True,
    ):
        held.setdefault((lane, column), []).append((bit, element[0], element[1]))
    owners = np.full((LANES, places.columns), _EMPTY)
    for lane, column in held:
        owners[lane, column] = _QUARTERS[lane // QUARTER]

    def elements(lane: int, column: int) -> list[tuple[int, int, int]]:
        return sorted(held.get((lane, column), []))

    def fine(lane: int, column: int) -> tuple[str, ...]:
        found = elements(lane, column)
        if not found:
            return ("",)
        seconds = sorted({x[2] for x in found})
        span = f"{seconds[0]}-{seconds[-1]}" if len(seconds) > 1 else str(seconds[0])
        return (f"{found[0][1]},{span}",)

    def coarse(lane: int, column: int) -> tuple[str, ...]:
        found = elements(lane, column)
        return (f"{rows} {found[0][1]}" if found else "",)

    def hint(lane: int, column: int) -> str:
        texts = [
            f"{operand}[{row}][{col}] in bits {low + bits - 1}:{low}"
            for low, row, col in elements(lane, column)
        ]
        return f"lane {lane}, column {column}: {', '.join(texts) or 'nothing'}"

    whose = f", CTA {cta} of the pair" if layout.cta_group == 2 else ""
    letter = layout.rows.letter
    caption = f"{operand}: {rows},{columns} by lane and column, layout {letter}{whose}"
    return _grid(caption, owners, fine, coarse, hint)


def transfer_grid(lanes: Int64, columns: Int64, name: str) -> Grid:
    """The words of one quarter that a tcgen05.ld or st moves, as `transfer_places` has them,
    labelled lane:register."""
    packed = lanes.ndim == 3
    held: dict[tuple[int, int], tuple[int, int, str]] = {}
    for lane, register in np.ndindex(*lanes.shape[:2]):
        where = zip(np.ravel(lanes[lane, register]), np.ravel(columns[lane, register]), strict=True)
        for half, place in enumerate(where):
            part = ("low half of ", "high half of ")[half] if packed else ""
            held[int(place[0]), int(place[1])] = (lane, register, part)
    owners = np.full((int(lanes.max()) + 1, int(columns.max()) + 1), _EMPTY)
    for (row, column), (lane, _, _) in held.items():
        owners[row, column] = lane

    def fine(row: int, column: int) -> tuple[str, ...]:
        found = held.get((row, column))
        return (f"{found[0]}:{found[1]}",) if found else ("",)

    def coarse(row: int, column: int) -> tuple[str, ...]:
        found = held.get((row, column))
        return (str(found[0]) if found else "",)

    def hint(row: int, column: int) -> str:
        found = held.get((row, column))
        what = f"{found[2]}register {found[1]} of lane {found[0]}" if found else "not moved"
        return f"lane {row} and column {column} from the address: {what}"

    caption = f"{name}: lane:register, from the address on"
    return _grid(caption, owners, fine, coarse, hint)


def _grid(
    caption: str, owners: Index, fine: Text, coarse: Text, hint: Callable[[int, int], str]
) -> Grid:
    """Labels of single words; where there is no room for them, of what stands beside each other."""
    rows, columns = owners.shape
    cells = np.arange(rows * columns).reshape(rows, columns)
    texts = [[coarse(row, column)[0] for column in range(columns)] for row in range(rows)]
    names = {text: i for i, text in enumerate(dict.fromkeys(x for line in texts for x in line))}
    keys = np.array([[names[text] for text in line] for line in texts])
    return Grid(caption, owners, (Layer(cells, fine), Layer(keys, coarse)), hint)
