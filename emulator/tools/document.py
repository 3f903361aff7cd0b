"""Self-contained HTML pages: one file with its style, its script and its data."""

from __future__ import annotations

import json
from html import escape
from importlib.resources import files


def document(title: str, body: str, package: str, name: str, data: object, style: str = "") -> str:
    """A page with ``NAME.css`` and ``NAME.js`` of a package; `data` is JSON under the id "facts".

    The page loads nothing, which its content security policy enforces.
    """
    own = files(package)
    sheets = files("emulator.tools").joinpath("document.css"), own.joinpath(f"{name}.css")
    text = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    return "\n".join(
        [
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
            "style-src 'unsafe-inline'; script-src 'unsafe-inline'\">",
            f"<title>{escape(title)}</title>",
            f"<style>\n{''.join(x.read_text('utf-8') for x in sheets)}{style}</style>",
            f"</head>\n<body>\n{body}",
            f'<script type="application/json" id="facts">{text}</script>',
            f"<script>\n{own.joinpath(f'{name}.js').read_text('utf-8')}</script>\n</body>\n</html>\n",
        ]
    )
