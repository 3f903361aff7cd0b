"""The reports of the tools: lines, or sections of sentences and tables; tables as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Any, Literal

from emulator.report import Report

Style = Literal["text", "csv", "markdown", "latex"]
#: what LaTeX takes for its own
_LATEX = str.maketrans({c: f"\\{c}" for c in "_%&#${}"})

WIDTH = 100


@dataclass(frozen=True, repr=False)
class Answer(Report):
    """Lines as they are, the first of which is the title, and the same as data."""

    shown: Iterable[str]
    data: Any
    code: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "shown", tuple(self.shown))

    @property
    def title(self) -> str:
        return next(iter(self.shown), "")

    def lines(self) -> Iterator[str]:
        return iter(self.shown)


def together(reports: Sequence[Report]) -> Answer:
    """Several reports as one, with an empty line between them; the highest of their codes."""
    lines = [line for one in reports for line in ("", *one.lines())][1:]
    data = [one.data for one in reports]
    return Answer(lines, data[0] if len(data) == 1 else data, max(one.code for one in reports))


# --- sections of sentences and tables -------------------------------------------------------------


@dataclass(frozen=True)
class Table:
    """Rows of cells; in HTML a bit pattern ``kept|cut`` shows the cut bits struck out."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]


Block = str | Table


@dataclass(frozen=True)
class Section:
    """A heading and what stands under it: sentences and tables in turn."""

    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True, repr=False)
class Document(Report):
    """A report made of sections; lines have at most 100 columns."""

    title: str
    sections: Sequence[Section]
    data: dict[str, Any]

    def lines(self) -> Iterator[str]:
        yield from wrap(self.title, WIDTH)
        for section in self.sections:
            yield ""
            yield from wrap(section.title, WIDTH)
            for block in section.blocks:
                if isinstance(block, str):
                    yield from wrap(block, WIDTH, initial_indent="  ", subsequent_indent="    ")
                    continue
                header, rows = block.header, block.rows
                if not any(header):
                    header, rows = rows[0], rows[1:]
                yield from (f"  {line}".rstrip() for line in render(header, rows))

    def _body(self) -> str:
        from html import escape

        parts = [f"<h2>{escape(self.title)}</h2>"]
        for section in self.sections:
            parts.append(f"<h3>{escape(section.title)}</h3>")
            for block in section.blocks:
                parts.append(
                    f"<p>{escape(block)}</p>" if isinstance(block, str) else _table_html(block)
                )
        return "\n".join(parts)


def _table_html(table: Table) -> str:
    from html import escape

    def cell(text: str) -> str:
        kept, bar, cut = text.partition("|")
        return escape(kept) + (
            f'<span class="cut" title="cut off">{escape(cut)}</span>' if bar else ""
        )

    head = "".join(f"<th>{escape(name)}</th>" for name in table.header)
    head = f"<thead><tr>{head}</tr></thead>" if any(table.header) else ""
    rows = "\n".join(
        f"<tr>{''.join(f'<td>{cell(text)}</td>' for text in row)}</tr>" for row in table.rows
    )
    return f'<div class="wide"><table>{head}<tbody>\n{rows}\n</tbody></table></div>'


# --- tables as text -------------------------------------------------------------------------------


def render(
    header: Sequence[str], rows: Sequence[Sequence[str]], style: Style = "text"
) -> list[str]:
    """A table as lines: aligned text, CSV, Markdown or a LaTeX tabular. Every row has as many cells
    as `header`."""
    if style == "csv":
        import csv
        import io

        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerows((header, *rows))
        return out.getvalue().splitlines()
    if style == "latex":
        head, *body = [
            " & ".join(cell.translate(_LATEX) for cell in row) + r" \\" for row in (header, *rows)
        ]
        begin, end = rf"\begin{{tabular}}{{l{'r' * (len(header) - 1)}}}", r"\end{tabular}"
        return [begin, r"\hline", head, r"\hline", *body, r"\hline", end]
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    if style == "markdown":
        rule = ["-" * max(3, width) for width in widths]
        return [f"| {' | '.join(cells)} |" for cells in (header, rule, *rows)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()
        for cells in (header, *rows)
    ]


def in_width(
    header: Sequence[str], rows: Sequence[Sequence[str]], room: int = WIDTH - 2
) -> list[Table]:
    """One table, or several with the first column and some of the others where lines would be
    longer than `room`."""
    widths = [max(map(len, column)) + 2 for column in zip(header, *rows, strict=True)]
    tables, start = [], 1
    while start < len(header):
        end = start + 1
        while end < len(header) and widths[0] + sum(widths[start : end + 1]) - 2 <= room:
            end += 1
        pick = [0, *range(start, end)]
        tables.append(Table([header[i] for i in pick], [[row[i] for i in pick] for row in rows]))
        start = end
    return tables
