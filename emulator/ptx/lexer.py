"""PTX text to tokens, one at a time, and the error where a token is not what it should be.

PTX ISA, chapter 4: source format, comments, identifiers and constants. A word is an identifier
with what follows it behind dots, so that ``add.s32``, ``kind::f16`` as a modifier and ``%tid.x``
are one token each. What PTX does not know becomes a token too, which no rule of the grammar takes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NoReturn, TypeVar

from emulator.errors import ParseError, quoted
from emulator.ptx.source import Source

Item = TypeVar("Item")

#: how deep blocks, parentheses and braces may nest: no recursion over a tree ends at Python's limit
NESTING = 40

_TOKEN = re.compile(
    r"""\s*(?:
    (?P<word>      (?!WARP_SZ(?![\w$]))(?:[A-Za-z]|[_$%](?=[\w$]))[\w$]*
                   (?:\.\w+(?:::\w+(?::\d+)?)*)* | _ )
  | (?P<comment>   //[^\n]* | /\*[\s\S]*?\*/ | \#[ \t]*\d+[ \t]*"[^"\n]*"[^\n]* )
  | (?P<mark>      <<|>>|<=|>=|==|!=|&&|\|\||[{}()\[\]<>,;:@+\-*%&|^!~?=]|/(?!\*) )
  | (?P<hexfloat>  (?:0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16})(?![\w$]) )
  | (?P<float>     (?:(?:\d+\.\d*|\.\d+)(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)(?![\w$]) )
  | (?P<integer>   WARP_SZ(?![\w$]) | (?:0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)U?(?![\w$.]) )
  | (?P<directive> \.[A-Za-z_][\w$]*(?:::\w+)* )
  | (?P<string>    "[^"]*" )
  | (?P<malformed> \d[\w$.]* )
  | (?P<end>       \x00*\Z )
  | (?P<unknown>   . )
    )""",
    re.VERBOSE | re.ASCII,
)
#: the kind of a token by the number of its group
_KINDS = ("", *_TOKEN.groupindex)
_COMMENT = _TOKEN.groupindex["comment"]
_PROPER = frozenset(_KINDS) - {"comment", "end"}
#: how many characters before an error are searched for the token before it
_LOOK_BACK = 2000


class Lexer:
    """The current token of a text: its `kind`, its `text` and the offset `at` of its start."""

    __slots__ = ("_end", "_next", "at", "kind", "source", "text")

    def __init__(self, source: Source, start: int = 0, end: int | None = None) -> None:
        self.source = source
        self._end = len(source.text) if end is None else end
        self.resume(start)

    def resume(self, at: int) -> None:
        """Makes the first token at or behind offset `at` the current one."""
        self._next = _TOKEN.finditer(self.source.text, at, self._end).__next__
        self.advance()

    def skip(self, pattern: re.Pattern[str]) -> None:
        """Passes what `pattern` matches from the current token on."""
        match = pattern.match(self.source.text, self.at)
        self.resume(match.end() if match else self.at)

    def advance(self) -> None:
        """Goes to the next token. The end of the text is one, and the last."""
        match = self._next()
        group = match.lastindex or 0
        while group == _COMMENT:
            match = self._next()
            group = match.lastindex or 0
        self.kind = _KINDS[group]
        self.text = match[group]
        self.at = match.start(group)

    def following(self) -> str:
        """The kind of the token behind the current one."""
        rest = _TOKEN.finditer(self.source.text, self.at + len(self.text), self._end)
        return next(_KINDS[m.lastindex or 0] for m in rest if m.lastindex != _COMMENT)

    def accept(self, text: str) -> bool:
        """Skips the current token if it is `text`; True if it was."""
        found = self.text == text
        if found:
            self.advance()
        return found

    def expect(self, text: str) -> None:
        """Passes `text`; raises ParseError where something else stands."""
        if self.text != text:
            self.fail(repr(text), ends=text == ";")
        self.advance()

    def take(self, kind: str, expected: str) -> str:
        """Passes a token of a kind and returns its text; raises ParseError for another kind."""
        text = self.text
        if self.kind != kind:
            self.fail(expected)
        self.advance()
        return text

    def listed(self, item: Callable[[Lexer], Item]) -> tuple[Item, ...]:
        """Parses one item, or several with commas between them."""
        found = [item(self)]
        while self.accept(","):
            found.append(item(self))
        return tuple(found)

    def listed_until(self, closing: str, item: Callable[[Lexer], Item]) -> tuple[Item, ...]:
        """Parses items, which may be none, and the parenthesis or brace that closes them."""
        found = () if self.text == closing else self.listed(item)
        if self.text != closing:
            self.fail(f"',' or '{closing}'")
        self.advance()
        return found

    def while_kind(self, kind: str) -> Iterator[str]:
        """Passes the tokens of a kind, and gives their texts."""
        while self.kind == kind:
            yield self.text
            self.advance()

    def name(self, expected: str) -> str:
        """Passes an identifier; raises ParseError for ``_`` and for a word with dots."""
        text = self.text
        if self.kind != "word" or "." in text or text == "_":
            self.fail(expected)
        self.advance()
        return text

    def error(self, at: int, message: str) -> ParseError:
        """An error at offset `at`."""
        return self.source.error(at, message)

    def fail(self, expected: str, ends: bool = False) -> NoReturn:
        """Raises ParseError: something else was expected in place of the current token.

        Where what is missing `ends` a statement, the place is behind the token before.
        """
        at = self._end_before() if ends else self.at
        raise self.error(at, f"expected {expected}, found {self._found()}")

    def _end_before(self) -> int:
        """The end of the token before, where that stands on an earlier line; else this one."""
        text = self.source.text
        start = 0
        if self.at > _LOOK_BACK:  # from a line on, lest the search starts in the midst of a comment
            start = text.find("\n", self.at - _LOOK_BACK, self.at) + 1 or self.at
        ends = [m.end() for m in _TOKEN.finditer(text, start, self.at) if m.lastgroup in _PROPER]
        return ends[-1] if ends and "\n" in text[ends[-1] : self.at] else self.at

    def _found(self) -> str:
        """The current token, for a message."""
        if self.kind == "end":
            return "the end of the text"
        if self.kind == "malformed":
            return f"{quoted(self.text, 40)}, which is no number"
        if self.kind == "unknown" and self.text == "/":
            return "a comment that is not closed"
        if self.kind == "unknown" and self.text == '"':
            return "a string that is not closed"
        if self.kind == "unknown":
            return f"{self.text!r}, which PTX does not use here"
        return quoted(self.text, 40)
