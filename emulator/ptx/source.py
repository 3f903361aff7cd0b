"""A text and its lines: where an offset stands, and an error that shows the place."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable
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


#: the line before each of several texts that are one program; PTX reads it as a comment
_MARKER = re.compile(r'^# 1 "([^"\n]*)" linked\n', re.MULTILINE)


class Part(NamedTuple):
    """One of several texts that are one program: its name, and where it stands."""

    label: str
    start: int
    end: int


def joined(texts: Iterable[tuple[str, str]]) -> str:
    """Several texts, each with a label such as the name of its file, as one.

    >>> print(joined([("a.ptx", ".version 8.0"), ("b.ptx", ".version 8.1")]))
    # 1 "a.ptx" linked
    .version 8.0
    # 1 "b.ptx" linked
    .version 8.1
    <BLANKLINE>
    """
    out = []
    for label, text in texts:
        body = text.rstrip("\0").rstrip("\n") + "\n"
        name = re.sub(r'["\n]', "'", label)
        out.append(body if _MARKER.match(body) else f'# 1 "{name}" linked\n{body}')
    return "".join(out)


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

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """The texts that `joined` made this one of; of any other text itself, without a label."""
        found = list(_MARKER.finditer(self.text)) if _MARKER.match(self.text) else []
        ends = [*(match.start() for match in found[1:]), len(self.text)]
        parts = tuple(Part(m[1], m.end(), end) for m, end in zip(found, ends, strict=False))
        return parts or (Part("", 0, len(self.text)),)

    def part(self, at: int) -> Part:
        """The text that the character at offset `at` stands in."""
        return self.parts[max(0, bisect_right([part.start for part in self.parts], at) - 1)]

    def file_line(self, at: int) -> str:
        """``b.ptx:12`` where several texts are one; "" in any other text."""
        part = self.part(at)
        line = self.position(at).line - self.position(part.start).line + 1
        return f"{part.label}:{line}" if part.label else ""

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
        file = self.file_line(at)
        where = f"{self.position(at)} ({file})" if file else f"{self.position(at)}"
        return f"{where}: {message}\n{self.excerpt(at)}"
