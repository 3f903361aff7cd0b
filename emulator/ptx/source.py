"""A text and its lines: where an offset stands, and an error that shows the place."""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

from emulator.errors import ParseError

#: characters of a source line that an error shows, and how many of them before its caret at most
_SHOWN = 120
_BEFORE = 80


class Position(NamedTuple):
    """A place in a text; lines and columns count from 1."""

    line: int
    column: int

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}"


#: LLVM's comments around the inline assembly of a program
_INLINE = re.compile(r"// (begin|end) inline asm\n")


#: lists of registers that are counted instead of quoted; characters of a statement that are read,
#: and that are quoted
_LIST = re.compile(r"\{([^{}]*)\}")
_MOST_NAMED, _LONGEST, _QUOTED = 8, 20_000, 200


def _counted(found: re.Match[str]) -> str:
    """A list of registers, or how many there are."""
    count = found[1].count(",") + 1
    return found[0] if count <= _MOST_NAMED else f"{{…{count} registers…}}"


class Source:
    """A text whose characters are known by their offsets.

    >>> source = Source("ret;\\n  bra  DONE;")
    >>> source.position(7)
    Position(line=2, column=3)
    >>> print(source.excerpt(7))
        bra  DONE;
        ^
    """

    def __init__(self, text: str) -> None:
        if not isinstance(text, str):
            raise ParseError(f"PTX is a string; got {type(text).__name__}")
        self.text = text

    @cached_property
    def _starts(self) -> list[int]:
        """Offset of the first character of each line."""
        return [0, *accumulate(len(line) + 1 for line in self.text.split("\n"))]

    def position(self, at: int) -> Position:
        """The line and column of the character at offset `at`."""
        line = bisect_right(self._starts, at, hi=len(self._starts) - 1)
        return Position(line, at - self._starts[line - 1] + 1)

    def excerpt(self, at: int) -> str:
        """The source line around offset `at`, and a caret under the place."""
        place = self.position(at)
        line_end = self._starts[place.line] - 1
        start = max(at - place.column + 1, at - _BEFORE)
        shown = self.text[start : min(line_end, start + _SHOWN)]
        indent = min(len(shown) - len(shown.lstrip()), at - start)
        shown, caret = shown[indent:].rstrip(), at - start - indent
        shown = "".join(c if c.isprintable() or c == "\t" else "?" for c in shown)
        pad = "".join("\t" if c == "\t" else " " for c in shown[:caret].ljust(caret))
        return f"    {shown}\n    {pad}^"

    def inline_assembly(self, at: int) -> int:
        """Start of the inline assembly around offset `at`; 0 outside."""
        before = bisect_right(self._inline, (at,)) - 1
        place, begins = self._inline[before] if before >= 0 else (0, False)
        return place if begins else 0

    @cached_property
    def _inline(self) -> list[tuple[int, bool]]:
        """The comments around inline assembly: offset, and whether it begins there."""
        return [(found.start(), found[1] == "begin") for found in _INLINE.finditer(self.text)]

    def statement(self, at: int) -> str:
        """The statement at offset `at`, on one line and not too long."""
        end = self.text.find(";", at)
        text = _LIST.sub(_counted, " ".join(self.text[at : end + 1][:_LONGEST].split()))
        return text if len(text) <= _QUOTED else f"{text[:_QUOTED].rpartition(' ')[0]} …"

    def error(self, at: int, message: str) -> ParseError:
        """An error that says where offset `at` is, and shows it."""
        return ParseError(self.located(at, message))

    def located(self, at: int, message: str) -> str:
        """A message with the place of offset `at` before it, and the source line behind it."""
        return f"{self.position(at)}: {message}\n{self.excerpt(at)}"
