"""The pictures that explain an instruction, arranged as the product that it computes.

A ``Panel`` is one picture in one area: A is left of D, B above it, metadata and scales beside A and
B. Panels of one area are alternatives: the matrices that a sparsity selector chooses between, or
registers and shared memory. The computations of m8n8k4 and the tiles of ldmatrix are sections.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from dtypes import FORMATS, Array
from emulator.errors import OperandError, one_of
from emulator.isa.instruction import Instruction
from emulator.isa.matrix import MatrixInstruction
from emulator.isa.movement import ROW_BYTES, Movement
from emulator.isa.wmma import WmmaMultiply
from emulator.layout.addressing import encode_descriptor
from emulator.layout.descriptor import Descriptor
from emulator.layout.fragment import Fragment
from emulator.layout.grids import (
    LINE_OF_BANKS,
    fragment_grids,
    row_grid,
    slots_of,
    tile_grid,
    tile_places,
)
from emulator.layout.picture import Grid, PlacedGrid, Size, cell_size, side_by_side, with_caption
from emulator.tools.descriptors.tiles import ReadTile, read_tile
from emulator.tools.lookup import group_names
from emulator.tools.pictures.tiled import TiledFragment, Warps

#: name of an area -> its axes; left to right and top to bottom of what stands before D
AXES = {
    "e": ("m", "k"), "scale_a": ("m", "k"), "a": ("m", "k"), "scale_b": ("k", "n"), "b": ("k", "n"),
    "d": ("m", "n"),
}  # fmt: skip
LEFT_AREAS, TOP_AREAS = ("e", "scale_a", "a"), ("scale_b", "b")
#: axes along which cells are of one size in all panels: rows stand beside each other, columns below
_TALL, _WIDE = ("m", "row"), ("n", "element")
_GAP = 24
#: name of an operand in registers -> it, of one warp or of several
FragmentOf = Callable[[str], Fragment | TiledFragment]
#: bytes between the first and the last of a tile that a page has room for
_FARTHEST = 1 << 16


class SharedMemory(NamedTuple):
    """Layout of wgmma tiles in shared memory: see `Descriptor.for_tile`.

    The start may also be a step along k inside of a swizzled tile. A and B may have a major of
    their own, and a descriptor, whose word then says everything else.
    """

    swizzle_bytes: int = 128
    major: str = "k"
    start_address: int = 0
    major_a: str | None = None
    major_b: str | None = None
    descriptor_a: int | None = None
    descriptor_b: int | None = None


@dataclass(frozen=True)
class Panel:
    """One picture, and what the script of a page must know of it."""

    #: the operand, as in a[3][2]
    name: str
    area: str
    #: what its rows and columns count; panels that share one are highlighted together
    axes: tuple[str, str]
    #: tells the alternatives of an area apart
    label: str
    grid: Grid
    #: where each cell is; arrays are little-endian uint16 in base64
    data: dict[str, object]
    #: number of the matrix, where the operand has several
    group: int = 0
    #: rows and columns that take part in a product together
    grain: Size = (1, 1)
    #: other operands of which this picture holds as well
    also: tuple[str, ...] = ()


class Section(NamedTuple):
    """Panels that belong to one product; the title tells several sections apart."""

    title: str
    panels: list[Panel]

    def alternatives(self, area: str) -> list[Panel]:
        return [panel for panel in self.panels if panel.area == area]

    def cell_sizes(self) -> list[Size]:
        """The size of each panel's cells: rows of A and D, columns of B and D are of one size."""
        wished = [cell_size(panel.grid) for panel in self.panels]
        axes = [panel.axes for panel in self.panels]

        def largest(axis: int, names: tuple[str, ...]) -> int:
            sizes = zip(wished, axes, strict=True)
            return max((size[1 - axis] for size, found in sizes if found[axis] in names), default=0)

        height, width = largest(0, _TALL), largest(1, _WIDE)
        return [
            (width if x in _WIDE else w, height if y in _TALL else h)
            for (w, h), (y, x) in zip(wished, axes, strict=True)
        ]


# --- what an instruction has ----------------------------------------------------------------------


def sections(ins: Instruction, memory: SharedMemory, warps: Warps = (1, 1)) -> list[Section]:
    """The pictures of an instruction, or of several warps side by side; raises OperandError where
    there is nothing to draw."""
    if warps != (1, 1):
        return [Section("", _operands(ins, lambda x: TiledFragment.of(ins.fragment(x), warps)))]
    if isinstance(ins, MatrixInstruction):
        return _product(ins, memory)
    if isinstance(ins, WmmaMultiply):
        return [Section("", _operands(ins, ins.fragment))]
    panels = []
    for name, fragment in ins.fragments.items():
        left = isinstance(ins, Movement) and name != "d"
        panels += _held(ins, fragment, "a" if left else "d")
    if not panels:
        raise OperandError(
            f"there is nothing to draw of {ins}: every lane works by itself (`info` shows how)"
        )
    if not isinstance(ins, Movement):
        return [Section("", panels)]
    if "p" in ins.operands:
        panels = _rows(ins) + panels if ins.operands[0] == "p" else panels + _rows(ins)
    # All of them show a tile as it lies in memory: the same places are the same elements.
    return _by_group([replace(panel, axes=("row", "element")) for panel in panels], "tile")


def _product(ins: MatrixInstruction, memory: SharedMemory) -> list[Section]:
    panels = []
    for name in ("e", "scale_a", "a", "scale_b", "b"):
        if name in ins.fragments:
            panels += _held(ins, ins.fragment(name), name)
    if ins.is_wgmma:
        panels += [_tile(ins, "a", memory), _tile(ins, "b", memory)]
    panels += _accumulators(ins, ins.fragment)
    if ins.is_sparse:
        grains = {"a": (1, ins.chunk // 2), "b": (ins.chunk, 1)}
        panels = [replace(x, grain=grains.get(x.area, x.grain)) for x in panels]
    several = ins.fragment("d").groups > 1
    return _by_group(panels, "computation") if several else [Section("", panels)]


def _operands(ins: Instruction, fragment: FragmentOf) -> list[Panel]:
    """A, B and the accumulators, in registers."""
    held = [panel for name in "ab" for panel in _held(ins, fragment(name), name)]
    return held + _accumulators(ins, fragment)


def _by_group(panels: list[Panel], what: str) -> list[Section]:
    """A section for each matrix: what only meets those of its own number."""
    groups = range(max(panel.group for panel in panels) + 1)
    return [
        Section(f"{what} {i}" if len(groups) > 1 else "", [x for x in panels if x.group == i])
        for i in groups
    ]


def only(found: list[Section], operand: str) -> list[Section]:
    """The panels of one operand; raises OperandError where there are none."""
    names = dict.fromkeys(n for x in found for p in x.panels for n in (p.name, *p.also))
    one_of("an operand to draw", operand, names)
    return [Section(x.title, [p for p in x.panels if operand in (p.name, *p.also)]) for x in found]


# --- panels ---------------------------------------------------------------------------------------


def _held(ins: Instruction, fragment: Fragment | TiledFragment, area: str) -> list[Panel]:
    """An operand in registers: one panel for each of its matrices."""
    several = fragment.groups > 1
    names: list[str] = []
    if several and isinstance(fragment, Fragment):
        names = [group_names(ins, fragment)(i) for i in range(fragment.groups)]
    slots, where = slots_of(fragment), fragment.place
    panels = []
    for i, grid in enumerate(fragment_grids(fragment, names)):
        data: dict[str, object] = {
            "kind": "registers", "places": _encoded(slots[i]), "copies": slots.shape[-1],
            "elements": fragment.elements, "width": where.width, "shift": where.shift,
            "bits": where.code_bits, "word": fragment.word_bits, "registers": fragment.registers,
        }  # fmt: skip
        label = names[i] if several else "registers"
        panels.append(Panel(fragment.operand, area, AXES[area], label, grid, data, i))
    return panels


def _accumulators(ins: Instruction, fragment: FragmentOf) -> list[Panel]:
    """D, and C where its registers are others."""
    c, d = (_held(ins, fragment(name), "d") for name in "cd")
    if [x.data for x in c] != [x.data for x in d]:
        return [replace(x, label=f"{x.name}: {fragment(x.name).fmt.name}") for x in d + c]
    grids = (replace(x.grid, caption=x.grid.caption + ", and c likewise") for x in d)
    return [replace(x, also=("c",), grid=grid) for x, grid in zip(d, grids, strict=True)]


def _tile(ins: MatrixInstruction, operand: str, memory: SharedMemory) -> Panel:
    """A or B of wgmma in shared memory, in the canonical layout."""
    own = memory.major_a if operand == "a" else memory.major_b
    major = memory.major if own is None else own
    word = memory.descriptor_a if operand == "a" else memory.descriptor_b
    read = read_tile(ins, operand, major)
    tile, bits = read.shape, FORMATS[read.type].bits
    if word is None:
        descriptor = _canonical(read, memory._replace(major=major))
    else:
        descriptor = Descriptor.decode(word)
    grid = tile_grid(operand, descriptor, tile, bits, transposed=operand == "b")
    places = tile_places(descriptor, tile, bits, operand == "b") // 8
    if (spread := int(np.ptp(places))) >= _FARTHEST:
        raise OperandError(
            f"descriptor of {operand}: the tile lies over {spread:,} bytes; {_FARTHEST:,} can be "
            "drawn (`descriptor` shows what is wrong with one)"
        )
    data: dict[str, object] = {
        "kind": "memory", "places": _encoded(places - places.min()), "start": int(places.min()),
        "bits": bits, "copies": 1,
    }  # fmt: skip
    return Panel(operand, operand, AXES[operand], "shared memory", grid, data)


def _canonical(read: ReadTile, memory: SharedMemory) -> Descriptor:
    """The descriptor of a tile in the canonical layout."""
    # A kernel steps along k inside of the lines of a swizzle: the tile then starts where they do.
    step = 0
    encode_descriptor(memory.start_address, swizzle_bytes=memory.swizzle_bytes)  # may raise
    if memory.swizzle_bytes and memory.major == "k":
        step = memory.start_address % LINE_OF_BANKS
        step = step if step + read.shape.line_bytes <= memory.swizzle_bytes else 0
    made = Descriptor.for_tile(
        read.shape.rows,
        read.k,
        read.type,
        major=memory.major,
        swizzle_bytes=memory.swizzle_bytes,
        start_address=memory.start_address - step,
    )
    return made.descriptor.stepped(step)


def _rows(ins: Movement) -> list[Panel]:
    """The rows that lanes address, tile by tile."""
    _, cols = next(iter(ins.fragments.values())).shape
    size = {"b16": 16, "b8": 8}.get(ins.form.type) or int(ins.source[1])
    assert cols * size <= ROW_BYTES * 8
    return [
        Panel(
            "p",
            "a" if "reads" in ins.effects else "d",
            ("", ""),
            "rows in memory",
            row_grid("p", i, ins.form.rows, cols, size),
            {"kind": "rows", "first": i * ins.form.rows, "bits": size},
            i,
        )
        for i in range(ins.count)
    ]


def _encoded(places: Array) -> str:
    assert int(places.max()) < 1 << 16
    return b64encode(np.ascontiguousarray(places.astype("<u2")).tobytes()).decode()


# --- a still picture ------------------------------------------------------------------------------


def are_four_tiles(found: Sequence[Section]) -> bool:
    """Whether sections are the tiles of ldmatrix.x4 and its like, which stand as they do in an A of
    16 rows: the second one below the first, the others beside them."""
    return len(found) == 4 and found[0].title.startswith("tile")


def arranged(found: Sequence[Section]) -> list[PlacedGrid]:
    """The first alternative of every area, as a product; sections below each other, and four tiles
    two by two."""
    if not are_four_tiles(found):
        return _below_each_other(found)
    left, right = (_below_each_other(found[i : i + 2]) for i in (0, 2))
    width = max(x.x + with_caption(x.grid, x.cell)[0] for x in left) + _GAP
    return [*left, *(x._replace(x=x.x + width) for x in right)]


def _below_each_other(found: Sequence[Section]) -> list[PlacedGrid]:
    out: list[PlacedGrid] = []
    y = 0
    for section in found:
        sizes = dict(zip(map(id, section.panels), section.cell_sizes(), strict=True))
        first = {x.area: x for x in reversed(section.panels)}
        left = [first[x] for x in LEFT_AREAS if x in first]
        top = [first[x] for x in TOP_AREAS if x in first]
        extents = {id(x): with_caption(x.grid, sizes[id(x)]) for x in first.values()}
        below = y + sum(extents[id(x)][1] + _GAP for x in top)
        x = 0
        for panel in left:
            out.append(PlacedGrid(panel.grid, sizes[id(panel)], x, below))
            x += extents[id(panel)][0] + _GAP
        for panel in top:
            out.append(PlacedGrid(panel.grid, sizes[id(panel)], x, y))
            y += extents[id(panel)][1] + _GAP
        if "d" in first:
            out.append(PlacedGrid(first["d"].grid, sizes[id(first["d"])], x, below))
        y = below + max((extents[id(z)][1] for z in first.values() if z not in top), default=0)
        y += _GAP
    return out


def in_a_row(found: Sequence[Section]) -> list[PlacedGrid]:
    """All alternatives side by side: what there is to see of one operand."""
    return side_by_side(panel.grid for section in found for panel in section.panels)
