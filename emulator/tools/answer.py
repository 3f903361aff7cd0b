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
