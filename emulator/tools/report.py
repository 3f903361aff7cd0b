"""``Report``: sections of sentences and tables, as text for a terminal, as HTML and as data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from textwrap import wrap
from typing import Any

from emulator.tools.answer import render

WIDTH = 100

_STYLE = """
.emulator-report { font: 14px/1.45 system-ui, sans-serif; max-width: 75em; }
.emulator-report table { border-collapse: collapse; margin: .4em 0 1em; }
.emulator-report th, .emulator-report td { padding: .1em .7em .1em 0; text-align: left;
  font: 12.5px/1.5 ui-monospace, monospace; white-space: pre; vertical-align: top; }
.emulator-report th { border-bottom: 1px solid #8888; font-weight: 600; }
.emulator-report tbody tr:hover { background: #8882; }
.emulator-report .wide { overflow-x: auto; }
.emulator-report .cut { color: #c22; text-decoration: line-through; }
"""


@dataclass(frozen=True)
class Table:
    """Rows of cells; in HTML a bit pattern ``kept|cut`` shows the cut bits struck out."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]


Block = str | Table


def in_width(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[Table]:
    """One table, or several with some of the columns each where lines would be too long."""
    widths = [max(map(len, column)) + 2 for column in zip(header, *rows, strict=True)]
    tables, start = [], 1
    while start < len(header):
        end = start + 1
        while end < len(header) and widths[0] + sum(widths[start : end + 1]) <= WIDTH - 2:
            end += 1
        pick = [0, *range(start, end)]
        tables.append(Table([header[i] for i in pick], [[row[i] for i in pick] for row in rows]))
        start = end
    return tables


@dataclass(frozen=True)
class Section:
    """A heading and what stands under it: sentences and tables in turn."""

    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True, repr=False)
class Report:
    """An answer in three forms: `text()` for a terminal, `html()` for a browser, `data` for JSON.

    In a notebook it shows itself.
    """

    title: str
    sections: Sequence[Section]
    #: dicts, lists, strings, numbers and None
    data: dict[str, Any]

    def text(self) -> str:
        """Lines of at most 100 columns, without a newline at the end."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield from wrap(self.title, WIDTH)
        for section in self.sections:
            yield ""
            yield from wrap(section.title, WIDTH)
            for block in section.blocks:
                yield from _block_lines(block)

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.title}>"

    def html(self) -> str:
        """One self-contained page."""
        return (
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
            f"<title>{escape(self.title)}</title>"
            "<style>:root { color-scheme: light dark; }</style></head>\n"
            f"<body>\n{self._repr_html_()}\n</body></html>\n"
        )

    def _repr_html_(self) -> str:
        parts = [f"<h2>{escape(self.title)}</h2>"]
        for section in self.sections:
            parts.append(f"<h3>{escape(section.title)}</h3>")
            parts += [_block_html(block) for block in section.blocks]
        body = "\n".join(parts)
        return f'<div class="emulator-report"><style>{_STYLE}</style>\n{body}\n</div>'


def _block_lines(block: Block) -> list[str]:
    if isinstance(block, str):
        return wrap(block, WIDTH, initial_indent="  ", subsequent_indent="    ")
    header, rows = block.header, block.rows
    if not any(header):
        header, rows = rows[0], rows[1:]
    return [f"  {line}".rstrip() for line in render(header, rows, "text")]


def _block_html(block: Block) -> str:
    if isinstance(block, str):
        return f"<p>{escape(block)}</p>"
    head = "".join(f"<th>{escape(cell)}</th>" for cell in block.header)
    head = f"<thead><tr>{head}</tr></thead>" if any(block.header) else ""
    rows = "\n".join(
        f"<tr>{''.join(f'<td>{_cell_html(cell)}</td>' for cell in row)}</tr>" for row in block.rows
    )
    return f'<div class="wide"><table>{head}<tbody>\n{rows}\n</tbody></table></div>'


def _cell_html(cell: str) -> str:
    kept, bar, cut = cell.partition("|")
    if not bar:
        return escape(cell)
    return f'{escape(kept)}<span class="cut" title="cut off">{escape(cut)}</span>'
