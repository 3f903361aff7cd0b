"""A chart of lines with logarithmic axes, as SVG that needs no style sheet, script or font."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape
from typing import NamedTuple

from emulator.layout.picture import FONT, HUES, INK, SMALL, svg

#: pixels: the drawing area, and room left, above, right (for the names of lines) and below it
_WIDTH, _HEIGHT, _LEFT, _ABOVE, _BELOW = 640, 360, 64, 56, 48
_CHARACTER, _NAME_GAP = 0.61, 15


class Line(NamedTuple):
    name: str
    #: (x, y), in ascending x; y of 0 stands on the axis, an infinite one is left out
    points: Sequence[tuple[float, float]]
    #: number of its colour; None: that of its place among the lines
    hue: int | None = None
    #: x of the points that are 0, which stand on the axis
    zeros: Sequence[float] = ()


class _Axes(NamedTuple):
    left: float
    right: float
    low: int
    high: int

    def x(self, value: float) -> float:
        part = (math.log2(value) - self.left) / ((self.right - self.left) or 1)
        return _LEFT + _WIDTH * part

    def y(self, value: float) -> float:
        return _ABOVE + _HEIGHT * (self.high - math.log10(value)) / (self.high - self.low)


def line_chart(lines: Sequence[Line], title: str, x_label: str, y_label: str) -> str:
    """A whole SVG file: x by powers of two, y by powers of ten; negative y count by their size.

    Every line ends in its name, and has a marker of its own where colours do not tell.
    """
    shown = [
        Line(
            x.name,
            [(u, abs(v)) for u, v in x.points if v and math.isfinite(v)],
            x.hue,
            [u for u, v in x.points if not v],
        )
        for x in lines
    ]
    points = [point for line in shown for point in line.points]
    every = [u for line in lines for u, _ in line.points]
    axes = _Axes(
        math.log2(min(every)),
        math.log2(max(every)),
        math.floor(math.log10(min((v for _, v in points), default=0.1))),
        math.ceil(math.log10(max((v for _, v in points), default=1)) + 1e-9),
    )
    if axes.low >= axes.high:
        axes = axes._replace(high=axes.low + 1)
    names = max((len(x.name) for x in lines), default=0)
    right = _LEFT + _WIDTH
    width = max(
        right + round((names + 10) * FONT * _CHARACTER) + 34,
        round(len(title) * FONT * _CHARACTER) + 24,
    )
    height = _ABOVE + _HEIGHT + _BELOW
    parts = [
        f'<text x="12" y="20" font-weight="bold" fill="{INK}">{escape(title)}</text>',
        f'<text x="12" y="38" fill="#444">{escape(y_label)}</text>',
        *_grid(axes, every),
        f'<text x="{_LEFT + _WIDTH / 2:g}" y="{height - 10}" text-anchor="middle" '
        f'fill="#444">{escape(x_label)}</text>',
    ]
    for i, (line, y) in enumerate(zip(shown, _name_places(shown, axes), strict=True)):
        covers = any(line.points == other.points for other in shown[:i])
        parts.extend(_drawn(line, i, axes, y, covers))
    return svg((width, height), title, parts)


def _grid(axes: _Axes, xs: Sequence[float]) -> Iterator[str]:
    """Faint lines with their numbers at every k of the study and every power of ten."""
    top, bottom, right = _ABOVE, _ABOVE + _HEIGHT, _LEFT + _WIDTH
    step = max(1, math.ceil((axes.high - axes.low) / 12))
    for power in range(axes.low, axes.high + 1, step):
        y = axes.y(10.0**power)
        yield f'<path stroke="#ddd" d="M{_LEFT} {y:g}H{right}"/>'
        yield (
            f'<text x="{_LEFT - 6}" y="{y + 4:g}" text-anchor="end" fill="#444">10'
            f'<tspan dy="-4" font-size="{SMALL}">{power}</tspan></text>'
        )
    last = -math.inf
    for x in sorted(set(xs)):
        place, text = axes.x(x), f"{x:g}" if x < 1e6 else f"{x:.0f}"
        yield f'<path stroke="#eee" d="M{place:g} {top}V{bottom}"/>'
        if place - last > len(text) * FONT * _CHARACTER + 6:
            yield (
                f'<text x="{place:g}" y="{bottom + 18}" text-anchor="middle" fill="#444">'
                f"{text}</text>"
            )
            last = place
    yield f'<path fill="none" stroke="#888" d="M{_LEFT} {top}V{bottom}H{right}"/>'


def _name_places(lines: Sequence[Line], axes: _Axes) -> list[float]:
    """Places the name of each line at its end, pushed apart so that none covers another."""
    bottom = _ABOVE + _HEIGHT
    ends = [axes.y(x.points[-1][1]) if x.points else bottom for x in lines]
    out, last = [0.0] * len(ends), -math.inf
    for i in sorted(range(len(ends)), key=lambda i: ends[i]):
        out[i] = last = max(ends[i], last + _NAME_GAP)
    # What was pushed below the axes moves up again, and what stands above it.
    limit = float(bottom)
    for i in sorted(range(len(ends)), key=lambda i: -out[i]):
        out[i] = min(out[i], limit)
        limit = out[i] - _NAME_GAP
    return out


def _drawn(line: Line, number: int, axes: _Axes, name_y: float, covers: bool) -> Iterator[str]:
    """One line with its name; dashed where it would cover another one."""
    hue = number if line.hue is None else line.hue
    colour, right = f"#{HUES[hue % len(HUES)]}", _LEFT + _WIDTH
    places = [(axes.x(u), axes.y(v)) for u, v in line.points]
    yield f'<g class="line" stroke="{colour}" fill="none">'
    if places:
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
        dashes = ' stroke-dasharray="8 8"' if covers else ""
        yield f'<path stroke-width="2" stroke-linejoin="round"{dashes} d="M{path}"/>'
    for (u, v), (x, y) in zip(line.points, places, strict=True):
        yield (
            f'<path fill="{colour}" d="{_marker(number, x, y)}"><title>{escape(line.name)}: '
            f"k = {u:g}, {v:.3g}</title></path>"
        )
    for u in line.zeros:
        yield (
            f'<path class="zero" fill="#fff" d="{_marker(number, axes.x(u), _ABOVE + _HEIGHT)}">'
            f"<title>{escape(line.name)}: k = {u:g}, 0: exact</title></path>"
        )
    end = places[-1] if places else (right, name_y)
    yield f'<path stroke="#bbb" d="M{end[0] + 5:.1f} {end[1]:.1f}L{right + 12} {name_y:.1f}"/></g>'
    note = "" if places else " (0: exact)"
    yield (
        f'<path fill="{colour}" d="{_marker(number, right + 18, name_y)}"/>'
        f'<text x="{right + 26}" y="{name_y + 4:.1f}" fill="{INK}">{escape(line.name)}{note}</text>'
    )


def _marker(number: int, x: float, y: float) -> str:
    """A circle, square, triangle or diamond of about seven pixels."""
    shapes = (
        f"M{x - 3.5:.1f} {y:.1f}a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0z",
        f"M{x - 3:.1f} {y - 3:.1f}h6v6h-6z",
        f"M{x:.1f} {y - 4:.1f}l4 7h-8z",
        f"M{x:.1f} {y - 4.5:.1f}l4.5 4.5l-4.5 4.5l-4.5 -4.5z",
    )
    return shapes[number % len(shapes)]
