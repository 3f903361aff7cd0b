"""Matrices as SVG: every cell coloured and labelled by the lane, or the memory, that holds it.

A ``Grid`` says what is drawn, ``grids`` makes it of fragments and tiles. Colours, sizes and fonts
are here only. The SVG needs no style sheet, script or font: any viewer shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from itertools import groupby
from typing import Literal, NamedTuple

from emulator.layout.lanemap import Index

#: Colour of owner x: hue (x / 4) mod 8, tint x mod 4: of a lane, its groupID and threadID_in_group.
#: Neighbouring hues and tints stay apart in the three kinds of colour blindness, and black text on
#: all of them has a contrast of 6 and more; a test computes both.
HUES = ("e69f00", "20a8e0", "707070", "3060d0", "e05030", "b850b0", "c8b800", "009e73")
TINTS = (0.66, 0.48, 0.31, 0.15)
INK = "#111"
#: colours of shared memory, which holds no lane: by the 16-byte unit of a 128-byte line, light
#: enough for black text; odd lines are drawn paler
MEMORY = ("f8df72", "c8dc58", "98d089", "6cc0a4", "5cb8c8", "6ba6d8", "b4b6f0", "e3bfe8")
_PALE = 0.5

#: pixels: text of a label and of its second line; axis numbers left and above; room of a caption
FONT, SMALL, LEFT, ABOVE, CAPTION = 12, 9, 28, 16, 22
FAMILY = "ui-monospace,SFMono-Regular,Menlo,Consolas,DejaVu Sans Mono,monospace"
#: a grid that would be larger is drawn with fewer labels
_WIDEST, _TALLEST = 1300, 1300
#: width of one colour of a legend
_SWATCH = 30
_CHARACTER = 0.61  # of the font size, in the widest of the usual monospace fonts
_GAP = 24

#: (first row, first column, rows, columns)
Box = tuple[int, int, int, int]
Size = tuple[int, int]


@dataclass(frozen=True)
class Layer:
    """One way to label a grid: a box of neighbours with the same key has one label."""

    #: (rows, cols)
    keys: Index
    #: lines of the label, by the first cell of the box
    text: Callable[[int, int], tuple[str, ...]]

    @cached_property
    def labels(self) -> set[tuple[Size, tuple[int, ...]]]:
        """The labels that take different room: (rows, cols) of the box, lengths of the lines."""
        return {
            ((tall, wide), (*map(len, self.text(row, col)),))
            for row, col, tall, wide in boxes(self.keys)
        }


@dataclass(frozen=True)
class Grid:
    """A matrix to draw: as an ``svg`` of its own, or by ``drawing`` as a part of one."""

    caption: str
    #: (rows, cols): what a cell is coloured by
    owners: Index
    #: finest first; the first one that fits is drawn
    layers: tuple[Layer, ...]
    #: text of a cell's tooltip
    hint: Callable[[int, int], str]
    #: sort of the owners: lanes, or units of shared memory
    palette: Literal["lanes", "memory"] = "lanes"
    #: meaning of the colours: owners with their labels, after the words that say it
    legend: tuple[str, tuple[tuple[int, str], ...]] = ("", ())
    #: blocks to outline with a thin line, and with a thick one
    blocks: tuple[Box, ...] = ()
    frames: tuple[Box, ...] = ()

    @property
    def shape(self) -> Size:
        rows, cols = self.owners.shape
        return rows, cols

    def colour(self, owner: int) -> str:
        return memory_colour(owner) if self.palette == "memory" else colour(owner)


def colour(owner: int) -> str:
    """The colour of a lane, as ``#rrggbb``; lanes of the four warps of a warpgroup share them."""
    hue, weight = HUES[owner // 4 % len(HUES)], TINTS[owner % len(TINTS)]
    parts = (int(hue[i : i + 2], 16) for i in (0, 2, 4))
    return "#" + "".join(f"{round(255 + (x - 255) * weight):02x}" for x in parts)


def memory_colour(owner: int) -> str:
    """The colour of unit ``owner // 2`` of a line of shared memory, pale where `owner` is odd."""
    hue, weight = MEMORY[owner // 2 % len(MEMORY)], _PALE if owner % 2 else 1
    parts = (int(hue[i : i + 2], 16) for i in (0, 2, 4))
    return "#" + "".join(f"{round(255 + (x - 255) * weight):02x}" for x in parts)


def boxes(keys: Index) -> Iterator[Box]:
    """Splits a grid into rectangles of equal keys, widest first, row by row."""
    rows, cols = keys.shape
    table = keys.tolist()
    taken = [bytearray(cols) for _ in range(rows)]
    for row, line in enumerate(table):
        for col, key in enumerate(line):
            if taken[row][col]:
                continue
            right = col + 1
            while right < cols and line[right] == key and not taken[row][right]:
                right += 1
            below, same = row + 1, [key] * (right - col)
            while below < rows and table[below][col:right] == same:
                below += 1
            for y in range(row, below):
                taken[y][col:right] = b"\1" * (right - col)
            yield row, col, below - row, right - col


# --- sizes ----------------------------------------------------------------------------------------


def _text_width(text: str, size: int) -> float:
    return len(text) * size * _CHARACTER


def _label_size(lengths: Sequence[int], least: bool = False) -> Size:
    """Pixels that a label with lines of these lengths takes; the least that may be read, or such
    that it looks well."""
    width = max(x * (SMALL if i else FONT) for i, x in enumerate(lengths)) * _CHARACTER
    if least:
        return round(width) + 2, FONT + (SMALL if len(lengths) > 1 else 0)
    return round(width) + 8, FONT + 6 + (SMALL if len(lengths) > 1 else 0)


def cell_size(grid: Grid) -> Size:
    """(width, height) of a cell that its finest labels need, within a picture of bounded size.

    Where even the coarsest labels need more, the least that they can be read in.
    """
    rows, cols = grid.shape
    for layer, least in (*((x, False) for x in grid.layers), (grid.layers[-1], True)):
        width, height = (max(5, min(8, most)) for most in (_WIDEST // cols, _TALLEST // rows))
        for (tall, wide), (needs_x, needs_y) in _needs(layer, least).items():
            if tall > 4 and wide == 1 and needs_x > needs_y:  # written upward
                needs_x, needs_y = needs_y, needs_x
            width, height = max(width, -(-needs_x // wide)), max(height, -(-needs_y // tall))
        if cols * width <= _WIDEST and rows * height <= _TALLEST:
            break
    return width, height


def _needs(layer: Layer, least: bool = False) -> dict[Size, Size]:
    """(rows, cols) of the boxes -> the largest size of a label in one of them."""
    needs: dict[Size, Size] = {}
    for box, lengths in layer.labels:
        now, size = needs.get(box, (0, 0)), _label_size(lengths, least)
        needs[box] = max(now[0], size[0]), max(now[1], size[1])
    return needs


def _fits(layer: Layer, width: int, height: int) -> bool:
    """Labels of two lines are never written upward."""
    return all(
        (x <= wide * width and y <= tall * height)
        or (y == FONT and x <= tall * height and y <= wide * width)
        for (tall, wide), (x, y) in _needs(layer, least=True).items()
    )


# --- drawing --------------------------------------------------------------------------------------


def extent(grid: Grid, cell: Size) -> Size:
    """(width, height) of a drawing with its axis numbers, without caption."""
    rows, cols = grid.shape
    return LEFT + cols * cell[0] + 1, ABOVE + rows * cell[1] + 1


def drawing(grid: Grid, cell: Size, hover: bool = True) -> str:
    """The content of an SVG element; `hover` gives each cell a title that browsers show."""
    layer = next((x for x in grid.layers if _fits(x, *cell)), None)
    return "".join(
        [
            _numbers(grid, cell),
            f'<g transform="translate({LEFT},{ABOVE})">',
            *_cells(grid, layer, cell),
            _inner_lines(grid, cell),
            _outlines(grid.blocks, cell, 0.75),
            _outlines(grid.frames, cell, 2),
            _hover(grid, cell) if hover else "",
            "</g>",
        ]
    )


def _numbers(grid: Grid, cell: Size) -> str:
    (rows, cols), (width, height) = grid.shape, cell
    every = next(n for n in (1, 8, 16, 32, 64) if n * width >= _text_width(str(cols), SMALL) + 4)
    across = "".join(
        f'<text x="{LEFT + (col + 0.5) * width:g}" y="{ABOVE - 4}">{col}</text>'
        for col in range(0, cols, every)
    )
    step = next(n for n in (1, 8, 16) if n * height >= SMALL)
    down = "".join(
        f'<text x="{LEFT - 4}" y="{ABOVE + (row + 0.5) * height + SMALL * 0.35:g}">{row}</text>'
        for row in range(0, rows, step)
    )
    start = f'<g class="axis" fill="#555" font-size="{SMALL}"'
    return f'{start}>{across}</g>{start} text-anchor="end">{down}</g>'


def _cells(grid: Grid, layer: Layer | None, cell: Size) -> Iterator[str]:
    """One group for each owner: its boxes as one path, and their labels."""
    (width, height), owners = cell, grid.owners
    found = boxes((layer or grid.layers[-1]).keys)
    by_owner = sorted(((int(owners[box[:2]]), box) for box in found), key=lambda pair: pair[0])
    for owner, group in groupby(by_owner, key=lambda pair: pair[0]):
        path, second = [], []
        labels: dict[Size, list[str]] = {}
        for _, (row, col, tall, wide) in group:
            x, y, across, down = col * width, row * height, wide * width, tall * height
            path.append(f"M{x} {y}h{across}v{down}h{-across}z")
            if layer:
                lines = _label(layer.text(row, col), x, y, across, down)
                labels.setdefault((tall, wide), []).append(lines[0])
                second.extend(lines[1:])
        small = f'<g font-size="{SMALL}">{"".join(second)}</g>' if second else ""
        yield (
            f'<g class="owner" data-owner="{owner}" fill="{grid.colour(owner)}">'
            f'<path stroke="#fff" d="{"".join(path)}"/>'
            f'<g fill="{INK}">{"".join(_sized(*x) for x in labels.items())}{small}</g></g>'
        )


def _sized(size: Size, labels: Sequence[str]) -> str:
    """Labels of boxes of (rows, cols); a script hides one of several cells where some are lit."""
    together = "".join(labels)
    return together if size == (1, 1) else f'<g data-box="{size[0]} {size[1]}">{together}</g>'


def _label(lines: tuple[str, ...], x: int, y: int, width: int, height: int) -> list[str]:
    """The lines of a label in the middle of a box; a single one that is too wide goes upward."""
    middle, centre = x + width // 2, y + height // 2
    first = centre + round(FONT * 0.35)
    if len(lines) > 1:
        places = (first - SMALL // 2, centre + FONT // 2 + round(SMALL * 0.35))
        return [
            f'<text x="{middle}" y="{place}">{escape(line)}</text>'
            for place, line in zip(places, lines, strict=True)
        ]
    turned = _label_size([*map(len, lines)], least=True)[0] > width
    place = f'transform="rotate(-90,{middle},{centre})" ' if turned else ""
    return [f'<text {place}x="{middle}" y="{first}">{escape(lines[0])}</text>']


def _inner_lines(grid: Grid, cell: Size) -> str:
    """Faint lines between all cells: a box of one label still shows its elements."""
    (rows, cols), (width, height) = grid.shape, cell
    lines = [f"M0 {y * height}h{cols * width}" for y in range(1, rows)]
    lines += [f"M{x * width} 0v{rows * height}" for x in range(1, cols)]
    return f'<path stroke="#fff" stroke-width="0.5" opacity="0.7" d="{"".join(lines)}"/>'


def _outlines(found: Iterable[Box], cell: Size, thickness: float) -> str:
    width, height = cell
    path = "".join(
        f"M{col * width} {row * height}h{wide * width}v{tall * height}h{-wide * width}z"
        for row, col, tall, wide in found
    )
    style = f'class="outline" fill="none" stroke="#333" stroke-width="{thickness}"'
    return f'<path {style} d="{path}"/>' if path else ""


def _hover(grid: Grid, cell: Size) -> str:
    (rows, cols), (width, height) = grid.shape, cell
    shape = f"h{width}v{height}h{-width}z"
    places = "".join(
        f'<path d="M{col * width} {row * height}{shape}"><title>{escape(grid.hint(row, col))}'
        "</title></path>"
        for row in range(rows)
        for col in range(cols)
    )
    return f'<g class="hover" fill="none" pointer-events="all">{places}</g>'


# --- a document -----------------------------------------------------------------------------------


class PlacedGrid(NamedTuple):
    """A grid, the size of its cells, and the corner of its caption in the picture."""

    grid: Grid
    cell: Size
    x: int = 0
    y: int = 0


def side_by_side(grids: Iterable[Grid]) -> list[PlacedGrid]:
    """The grids in lines as wide as a page."""
    out: list[PlacedGrid] = []
    x = y = bottom = 0
    for grid in grids:
        cell = cell_size(grid)
        width, height = with_caption(grid, cell)
        if x and x + width > _WIDEST:
            x, y = 0, bottom + _GAP
        out.append(PlacedGrid(grid, cell, x, y))
        x, bottom = x + width + _GAP, max(bottom, y + height)
    return out


def with_caption(grid: Grid, cell: Size) -> Size:
    """(width, height) of a drawing with its axis numbers, caption and legend."""
    width, height = extent(grid, cell)
    words, colours = grid.legend
    wide = LEFT + round(_text_width(words, FONT)) + len(colours) * _SWATCH + 8 if words else 0
    wide = max(wide, LEFT + round(_text_width(grid.caption, FONT)))
    return max(width, wide), CAPTION + height + (CAPTION if words else 0)


def document(placed: Sequence[PlacedGrid], title: str, description: str = "") -> str:
    """A whole SVG file; `title` is written above the grids."""
    margin, heading = 12, 24 if title else 0
    sizes = [with_caption(x.grid, x.cell) for x in placed]
    width = max(x.x + size[0] for x, size in zip(placed, sizes, strict=True))
    width = max(width, round(_text_width(title, FONT))) + 2 * margin
    height = max(x.y + size[1] for x, size in zip(placed, sizes, strict=True)) + 2 * margin
    parts = [_line(title, margin, margin + FONT, "bold")] if title else []
    for x in placed:
        top = margin + heading + x.y
        parts.append(_line(x.grid.caption, margin + x.x + LEFT, top + FONT))
        if x.grid.legend[0]:
            top += CAPTION
            parts.append(_legend(x.grid, margin + x.x + LEFT, top))
        content = drawing(x.grid, x.cell)
        parts.append(f'<g transform="translate({margin + x.x},{top + CAPTION})">{content}</g>')
    size = width, height + heading
    name = title or placed[0].grid.caption
    return svg(size, name, parts, description, ' text-anchor="middle"')


def svg(
    size: Size, title: str, parts: Iterable[str], description: str = "", attributes: str = ""
) -> str:
    """A whole SVG file of (width, height) on white; `attributes` of its root, each with a space."""
    width, height = size
    described = f"<desc>{escape(description)}</desc>" if description else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img" font-size="{FONT}" font-family="{FAMILY}"'
        f"{attributes}><title>{escape(title)}</title>{described}"
        f'<rect width="100%" height="100%" fill="#fff"/>{"".join(parts)}</svg>'
    )


def _legend(grid: Grid, x: int, y: int) -> str:
    """The colours of a grid with what they mean, in one line."""
    words, colours = grid.legend
    start = x + round(_text_width(words, FONT)) + 8
    swatches = "".join(
        f'<rect x="{start + i * _SWATCH}" y="{y}" width="{_SWATCH - 2}" height="15" '
        f'fill="{grid.colour(owner)}"/><text x="{start + (i + 0.5) * _SWATCH - 1:g}" '
        f'y="{y + FONT}" font-size="{SMALL}" fill="{INK}">{escape(label)}</text>'
        for i, (owner, label) in enumerate(colours)
    )
    return _line(words, x, y + FONT) + swatches


def _line(text: str, x: int, y: int, weight: str = "normal") -> str:
    place = f'x="{x}" y="{y}" text-anchor="start" font-weight="{weight}" fill="{INK}"'
    return f"<text {place}>{escape(text)}</text>"
