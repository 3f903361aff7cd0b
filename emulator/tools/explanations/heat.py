"""A map of two results: which elements differ, and up to which bit, as SVG."""

from __future__ import annotations

from html import escape
from itertools import pairwise

import numpy as np

from dtypes import Array
from emulator.layout.picture import FONT, SMALL, svg

#: shades of 1, 2, 3 … differing bits, from light to dark; black text is read on the first four
_SHADES = ("fde4c3", "fbc98b", "f6a55c", "ea7f3f", "d3592a", "ae3a1e", "812415", "4f120d")
_SAME = "#eef0f2"
#: pixels: of the whole map and of an element, room of numbers, and of the legend
_MOST, _CELL, _LEFT, _ABOVE, _LEGEND = 512, 20, 40, 20, 34


def bit_heights(p: Array, q: Array) -> Array:
    """Of each element the number of low bits up to the highest one in which two codes differ."""
    apart = (p ^ q).astype(np.uint64)
    out = np.zeros(apart.shape, np.int64)
    while apart.any():
        out += apart != 0
        apart >>= np.uint64(1)
    return out


def heat_map(heights: Array, title: str) -> str:
    """A picture of `bit_heights` ``(rows, columns)``; where there are more than pixels, the largest
    of neighbours is shown."""
    step = max(1, -(-max(heights.shape) // _MOST))
    shown = _largest_of(heights, step)
    rows, columns = shown.shape
    cell = max(1, min(_CELL, _MOST // max(rows, columns)))
    shades = _shades(heights)
    width = max(_LEFT + columns * cell + 8, 12 + len(title) * 8, _LEFT + len(shades) * 64 + 80)
    height = _ABOVE + FONT + rows * cell + 8 + _LEGEND
    top = _ABOVE + FONT
    parts = [
        f'<text x="4" y="{FONT}" font-weight="bold" fill="#111">{escape(title)}</text>',
        f'<rect x="{_LEFT}" y="{top}" width="{columns * cell}" height="{rows * cell}" '
        f'fill="{_SAME}"/>',
    ]
    for (low, high), shade in shades.items():
        where = np.argwhere((shown >= low) & (shown <= high)).tolist()
        path = "".join(
            f"M{_LEFT + c * cell} {top + r * cell}h{cell}v{cell}h-{cell}z" for r, c in where
        )
        parts.append(f'<path fill="#{shade}" d="{path}"/>' if path else "")
    parts += [_numbers(rows, columns, cell, step), _legend(shades, top + rows * cell + 18)]
    return svg((width, height), title, parts, attributes=' class="heat"')


def _largest_of(heights: Array, step: int) -> Array:
    """The largest of each square of `step` by `step` elements."""
    missing = [(0, -n % step) for n in heights.shape]
    padded = np.pad(heights, missing)
    rows, columns = (n // step for n in padded.shape)
    out: Array = padded.reshape(rows, step, columns, step).max((1, 3))
    return out


def _shades(heights: Array) -> dict[tuple[int, int], str]:
    """(fewest, most bits) -> shade, from the least to the largest there is."""
    most = int(heights.max(initial=0))
    count = min(len(_SHADES), most)
    edges = [1 + i * most // count for i in range(count + 1)] if count else []
    return {
        (low, high - 1): _SHADES[i * len(_SHADES) // count]
        for i, (low, high) in enumerate(pairwise(edges))
    }


def _numbers(rows: int, columns: int, cell: int, step: int) -> str:
    """Numbers of rows and columns, as many as there is room for."""
    every = max(1, -(-28 // cell))
    every = 1 << (every - 1).bit_length()
    top = _ABOVE + FONT
    across = "".join(
        f'<text x="{_LEFT + (i + 0.5) * cell:g}" y="{top - 4}" text-anchor="middle">{i * step}'
        "</text>"
        for i in range(0, columns, every)
    )
    down = "".join(
        f'<text x="{_LEFT - 5}" y="{top + (i + 0.5) * cell + 3:g}" text-anchor="end">{i * step}'
        "</text>"
        for i in range(0, rows, every)
    )
    return f'<g fill="#555" font-size="{SMALL}">{across}{down}</g>'


def _legend(shades: dict[tuple[int, int], str], y: int) -> str:
    parts = [(_SAME, "same")]
    parts += [(f"#{shade}", f"{a}" if a == b else f"{a}-{b}") for (a, b), shade in shades.items()]
    swatches = "".join(
        f'<rect x="{_LEFT + i * 64}" y="{y - 10}" width="12" height="12" fill="{colour}"/>'
        f'<text x="{_LEFT + i * 64 + 16}" y="{y}">{label}</text>'
        for i, (colour, label) in enumerate(parts)
    )
    words = f'<text x="{_LEFT}" y="{y + 14}">low bits up to the highest that differs</text>'
    return f'<g fill="#444" font-size="{SMALL + 1}">{swatches}{words}</g>'
