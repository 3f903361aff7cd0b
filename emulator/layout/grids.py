"""Grids for pictures: a fragment, a tile in shared memory, the rows that lanes address.

Labels of a fragment are ``lane:register`` and below it the bits, where an element has not all of
them; of memory the address of the first of 16 bytes that lie together.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Protocol

import numpy as np

from dtypes import Format, Place
from emulator.layout.descriptor import Descriptor
from emulator.layout.lanemap import WARP, Index
from emulator.layout.picture import Box, Grid, Layer, boxes, document, side_by_side
from emulator.layout.tile import LINE_BYTES, LINES, TileShape

#: shared memory: bytes of a bank, banks, bytes of all banks
_BANK_BYTES, _BANKS, LINE_OF_BANKS = 4, 32, 128


class Fragment(Protocol):
    """The parts of a fragment that a picture needs; a fragment draws itself in notebooks by this
    module: see `layout.fragment`, where these are described."""

    @property
    def operand(self) -> str: ...
    @property
    def fmt(self) -> Format: ...
    @property
    def place(self) -> Place: ...
    @property
    def word_bits(self) -> int: ...
    @property
    def groups(self) -> int: ...
    @property
    def shape(self) -> tuple[int, int]: ...
    @property
    def lanes(self) -> int: ...
    @property
    def elements(self) -> int: ...
    @property
    def registers(self) -> int: ...
    @property
    def coords(self) -> Index: ...
    @property
    def group(self) -> Index: ...


def fragment_svg(fragment: Fragment, title: str = "") -> str:
    """A picture of all matrices of a fragment, as SVG."""
    how = "Each cell is labelled lane:register, then the bits of the register that hold it."
    return document(side_by_side(fragment_grids(fragment)), title, how)


# --- registers ------------------------------------------------------------------------------------


def slots_of(fragment: Fragment) -> Index:
    """``(groups, rows, cols, copies)``: lane * elements + element, for every place of an element.

    Fragments of wmma may hold an element several times; the first copy is that of lowest number.
    """
    groups, (rows, cols) = fragment.groups, fragment.shape
    lanes, elements = fragment.lanes, fragment.elements
    place = (fragment.group * rows + fragment.coords[..., 0]) * cols + fragment.coords[..., 1]
    # A stable sort by the place keeps the elements of one place in ascending order of their slots.
    order = np.argsort(place.reshape(-1), kind="stable")
    return order.reshape(groups, rows, cols, lanes * elements // (groups * rows * cols))


def fragment_grids(fragment: Fragment, names: Sequence[str] = ()) -> list[Grid]:
    """One grid for each matrix that the lanes hold."""
    named = names or [f"group {i}" for i in range(fragment.groups)]
    single = fragment.groups == 1
    slots = slots_of(fragment)
    return [
        _register_grid(fragment, slots[i], "" if single else name) for i, name in enumerate(named)
    ]


def _register_grid(fragment: Fragment, slots: Index, name: str) -> Grid:
    where, word_bits = fragment.place, fragment.word_bits
    per_word, operand = word_bits // where.width, fragment.operand
    lanes, elements = np.divmod(slots[..., 0], fragment.elements)
    registers, parts = np.divmod(elements, per_word)
    lane, register = lanes.tolist(), registers.tolist()
    low = (parts * where.width + where.shift).tolist()
    copies = (slots % fragment.elements // per_word).tolist()
    holders = (slots // fragment.elements).tolist()
    part = where.code_bits < word_bits

    def bits(row: int, col: int) -> str:
        high = low[row][col] + where.code_bits - 1
        return f"{high}:{low[row][col]}" if where.code_bits > 1 else str(high)

    def short(row: int, col: int) -> tuple[str, ...]:
        return (f"{lane[row][col]}:{register[row][col]}",)

    def full(row: int, col: int) -> tuple[str, ...]:
        return (*short(row, col), bits(row, col)) if part else short(row, col)

    def hint(row: int, col: int) -> str:
        # Copies are in several registers of a lane, or in lanes of several warps.
        held = " and ".join(map(str, dict.fromkeys(copies[row][col])))
        own = list(dict.fromkeys(holders[row][col]))
        who = f"lane{'s' if own[1:] else ''} {' and '.join(map(str, own))}"
        what = f"{operand}[{row}][{col}]: {who}, register {held}, "
        return (f"{name}, " if name else "") + what + f"bits {bits(row, col)}"

    rows, cols = fragment.shape
    cells = np.arange(rows * cols).reshape(rows, cols)
    words = lanes * fragment.registers + registers
    coarse = Layer(lanes, lambda row, col: (str(lane[row][col]),))
    layers = (Layer(cells, full), Layer(words, short), coarse)
    caption = f"{operand}: {rows} × {cols} {fragment.fmt.name}" + (f", {name}" if name else "")
    blocks, frames = _sweeps(lanes), _warps(lanes)
    return Grid(caption, lanes, layers, hint, blocks=blocks, frames=frames)


def _sweeps(lanes: Index) -> tuple[Box, ...]:
    """The blocks in which every lane holds one run of elements, as manuals draw fragments.

    () where they are no rectangles 8 high or 8 wide that fill the matrix.
    """
    rows, cols = lanes.shape
    _, _, tall, wide = next(boxes(lanes))
    warp = np.unique(lanes[lanes < WARP])
    size = tall * wide * len(warp)
    for height, width in ((LINES, size // LINES), (size // LINES, LINES)):
        if not height * width or rows % height or cols % width:
            continue
        held, counts = np.unique(lanes[:height, :width], return_counts=True)
        if np.array_equal(held, warp) and (counts == tall * wide).all():
            corners = product(range(0, rows, height), range(0, cols, width))
            return tuple((row, col, height, width) for row, col in corners)
    return ()


def _warps(lanes: Index) -> tuple[Box, ...]:
    """The rectangles that the warps hold, where there are several warps."""
    warps = lanes // WARP
    if not warps.any():
        return ()
    out = []
    for warp in np.unique(warps).tolist():
        rows, cols = np.nonzero(warps == warp)
        box = int(rows.min()), int(cols.min()), int(np.ptp(rows)) + 1, int(np.ptp(cols)) + 1
        if box[2] * box[3] == len(rows):
            out.append(box)
    return tuple(out)


# --- shared memory --------------------------------------------------------------------------------


#: byte in a line of 128, pale in odd lines
_MEMORY_LEGEND = (
    "byte of a 128-byte line (odd lines paler)",
    tuple((2 * unit, str(unit * LINE_BYTES)) for unit in range(LINE_OF_BANKS // LINE_BYTES)),
)


def tile_places(descriptor: Descriptor, tile: TileShape, bits: int, transposed: bool) -> Index:
    """(rows, cols): the bit address of every element of a tile, or of its transpose."""
    places: Index = descriptor.addresses(tile) * 8
    if bits < 8:
        places = (places[..., None] + np.arange(0, 8, bits)).reshape(len(places), -1)
    return places.T if transposed else places


def tile_grid(
    operand: str, descriptor: Descriptor, tile: TileShape, bits: int, transposed: bool = False
) -> Grid:
    """A tile as a descriptor reads it, its core matrices outlined; B of wgmma is `transposed`.

    Colours are those of the 16-byte units of a 128-byte line, paler in odd lines: what shares a
    colour, pale or not, shares its banks.
    """
    places = tile_places(descriptor, tile, bits, transposed)
    address, inside = places // 8, places % 8
    units = address // LINE_BYTES
    owners = units % (LINE_OF_BANKS // LINE_BYTES) * 2 + address // LINE_OF_BANKS % 2
    first = address.tolist()

    def text(row: int, col: int) -> tuple[str, ...]:
        return (str(first[row][col]),)

    def hint(row: int, col: int) -> str:
        byte, size = first[row][col], tile.element_bytes
        part = f", bit {inside[row, col]}" if bits < 8 else ""
        span = f"byte {byte}" if size == 1 else f"bytes {byte}-{byte + size - 1}"
        return (
            f"{operand}[{row}][{col}]: {span} ({byte:#x}){part}, "
            f"bank {byte // _BANK_BYTES % _BANKS}"
        )

    layers = (Layer(units, text),)
    per_byte = max(1, 8 // bits)
    cores = []
    for core in descriptor.core_matrices(tile):
        height, width = len(core.rows), len(core.columns) * per_byte
        box = (core.rows[0], core.columns[0] * per_byte, height, width)
        cores.append((box[1], box[0], width, height) if transposed else box)
    size = descriptor.swizzle_bytes
    swizzle = f"{size}-byte swizzle" if size else "no swizzle"
    rows, cols = places.shape
    caption = f"{operand}: {rows} × {cols} in shared memory, {tile.major.upper()}-major, {swizzle}"
    return Grid(caption, owners, layers, hint, "memory", _MEMORY_LEGEND, tuple(cores))


def row_grid(operand: str, number: int, rows: int, cols: int, bits: int) -> Grid:
    """The rows of one tile of ldmatrix or stmatrix, each at the address of one lane."""
    lanes = number * rows + np.broadcast_to(np.arange(rows)[:, None], (rows, cols))
    lane = lanes[:, 0].tolist()

    def short(row: int, col: int) -> tuple[str, ...]:
        return (f"{operand}{lane[row]}",)

    def full(row: int, col: int) -> tuple[str, ...]:
        return (f"{operand}{lane[row]}", f"+{col * bits // 8}")

    def hint(row: int, col: int) -> str:
        low = col * bits
        last = (low + bits - 1) // 8
        span = f"byte {low // 8}" if last == low // 8 else f"bytes {low // 8}-{last}"
        part = f" (bits {low + bits - 1}:{low} of the row)" if bits % 8 else ""
        return f"row {row}, element {col}: {span} after the address of lane {lane[row]}{part}"

    cells = np.arange(rows * cols).reshape(rows, cols)
    layers = (Layer(cells, full), Layer(lanes, short))
    return Grid(f"{operand}: rows in shared memory, tile {number}", lanes, layers, hint)
