"""``Report``: what calls answer with, as text for a terminal, as a page and as data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

_CSS = """
.emulator-report { font: 14px/1.45 system-ui, sans-serif; max-width: 75em; }
.emulator-report table { border-collapse: collapse; margin: .4em 0 1em; }
.emulator-report th, .emulator-report td { padding: .1em .7em .1em 0; text-align: left;
  font: 12.5px/1.5 ui-monospace, monospace; white-space: pre; vertical-align: top; }
.emulator-report th { border-bottom: 1px solid #8888; font-weight: 600; }
.emulator-report tbody tr:hover { background: #8882; }
.emulator-report .wide { overflow-x: auto; }
.emulator-report .cut { color: #c22; text-decoration: line-through; }
"""


class Report:
    """An answer: `text()` for a terminal, `html()` for a browser, `data` for JSON.

    ``str()`` is the text; in a notebook a report shows itself. A subclass has a title, data and
    lines, and may have a page that shows more than its lines.
    """

    #: exit code of the command that it answers: 0 right, 1 wrong
    code: int = 0
    if TYPE_CHECKING:  # attributes or properties, as suits the subclass

        @property
        def title(self) -> str: ...
        @property
        def data(self) -> Any: ...

    def lines(self) -> Iterator[str]:
        """The text, line by line."""
        raise NotImplementedError

    def text(self) -> str:
        """Lines for people, without a newline at the end."""
        return "\n".join(self.lines())

    def html(self) -> str:
        """One self-contained page."""
        from html import escape

        return (
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>{escape(self.title)}</title>"
            "<style>:root { color-scheme: light dark; }</style></head>\n"
            f"<body>\n{self._repr_html_()}\n</body></html>\n"
        )

    def _repr_html_(self) -> str:
        return f'<div class="emulator-report"><style>{_CSS}</style>\n{self._body()}\n</div>'

    def _body(self) -> str:
        from html import escape

        return f"<pre>{escape(self.text())}</pre>"

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.title}>"
