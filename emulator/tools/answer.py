"""``Answer``: what a command prints, as lines for people and as data for ``--json``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

Style = Literal["text", "csv", "markdown"]


class Answer(NamedTuple):
    """One answer in two forms; the command line prints the one that was asked for."""

    #: for people; may be a generator, read once
    lines: Iterable[str]
    #: for --json: dicts, lists, strings and numbers
    data: object
    #: exit code: 0 right, 1 wrong
    code: int = 0


def render(header: Sequence[str], rows: Sequence[Sequence[str]], style: Style) -> list[str]:
    """A table as lines: aligned text, CSV or Markdown. Every row has as many cells as `header`."""
    if style == "csv":
        return _csv(header, rows)
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    if style == "markdown":
        rule = ["-" * max(3, width) for width in widths]
        return [f"| {' | '.join(cells)} |" for cells in (header, rule, *rows)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()
        for cells in (header, *rows)
    ]


def _csv(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    import csv
    import io

    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows((header, *rows))
    return out.getvalue().splitlines()


def runs(numbers: Sequence[int]) -> str:
    """Numbers as runs of equal steps: ``0-3, 8-11``, ``8-256 by 8``.

    >>> runs((8, 16, 24, 32, 48, 64))
    '8-32 by 8, 48, 64'
    >>> runs((0, 1, 4, 5))
    '0-1, 4-5'
    """
    parts = []
    rest = list(numbers)
    while rest:
        step = rest[1] - rest[0] if len(rest) > 1 else 1
        length = 1
        while length < len(rest) and rest[length] - rest[length - 1] == step:
            length += 1
        if length == 1 or (length == 2 and step != 1):
            parts.append(str(rest.pop(0)))
            continue
        parts.append(f"{rest[0]}-{rest[length - 1]}" + (f" by {step}" if step != 1 else ""))
        rest = rest[length:]
    return ", ".join(parts)
