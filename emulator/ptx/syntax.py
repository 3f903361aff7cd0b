"""PTX text to statements: a lexer and a parser for straight-line code.

What it reads: comments, ``.reg`` and ``.shared`` declarations, and instructions with registers,
vectors, immediates and addresses as operands. Of the lines that open a PTX file, ``.version`` and
``.address_size`` are skipped, and `target_of` reads ``.target``. Every statement and operand knows
its line and column.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn

from emulator.errors import ParseError


@dataclass(frozen=True)
class Position:
    line: int
    column: int

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}"


@dataclass(frozen=True)
class Name:
    """A register or a variable, or ``_``, which discards a result."""

    text: str
    position: Position


@dataclass(frozen=True)
class Integer:
    value: int
    position: Position


@dataclass(frozen=True)
class Float:
    """A floating-point immediate: bits where written as 0f… or 0d…, else a decimal value."""

    value: float
    #: width of a hexadecimal literal, 0 for a decimal one
    width: int
    bits: int
    position: Position


@dataclass(frozen=True)
class Vector:
    items: tuple[Name | Integer | Float, ...]
    position: Position


@dataclass(frozen=True)
class Address:
    """``[base+offset]``: memory at a register or a variable."""

    base: str
    offset: int
    position: Position


@dataclass(frozen=True)
class Place:
    """``tile+16`` or ``tile[2]``: an address in a variable, in bytes and in elements."""

    base: str
    offset: int
    index: int
    position: Position


@dataclass(frozen=True)
class Negated:
    """``!p``: a predicate the other way round."""

    text: str
    position: Position


Operand = Name | Integer | Float | Vector | Address | Place | Negated


@dataclass(frozen=True)
class Declaration:
    """``.reg .b32 %a<4>, x;`` with the names spelled out."""

    type: str
    names: tuple[str, ...]
    position: Position


@dataclass(frozen=True)
class Variable:
    """One name of a ``.shared`` declaration, and how many elements it has."""

    name: str
    count: int
    position: Position


@dataclass(frozen=True)
class SharedDeclaration:
    """``.shared .align 16 .b8 tile[1024], x;``; an alignment of 0 is not written."""

    type: str
    alignment: int
    variables: tuple[Variable, ...]
    position: Position


@dataclass(frozen=True)
class Call:
    """An instruction statement."""

    opcode: str
    operands: tuple[Operand, ...]
    position: Position


Statement = Declaration | SharedDeclaration | Call

_TOKEN = re.compile(
    r"""
    (?P<space>   \s+ | //[^\n]* | /\*.*?\*/ )
  | (?P<hexfloat> 0[fF][0-9a-fA-F]{8}(?![0-9a-zA-Z_]) | 0[dD][0-9a-fA-F]{16}(?![0-9a-zA-Z_]) )
  | (?P<float>   -?\d+\.\d*(?:[eE][+-]?\d+)? | -?\d+[eE][+-]?\d+ )
  | (?P<integer> -?(?:0[xX][0-9a-fA-F]+ | 0[bB][01]+ | \d+)U?(?![0-9a-zA-Z_]) )
  | (?P<word>    \.?[A-Za-z_%$][\w$%]*(?:(?:\.|::)[\w$]+)* )
  | (?P<mark>    [{}()\[\]<>,;+@:!] )
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)

#: registers that one declaration may have: a kernel of ptxas's largest inputs has a tenth of them
MOST_REGISTERS = 1 << 17

#: what opens a PTX file -> what follows it, and that in words
_HEADER = {
    ".version": (re.compile(r"\d+\.\d+"), "a number such as 8.0"),
    ".target": (re.compile(r"[A-Za-z_]\w*"), "a name such as sm_90a"),
    ".address_size": (re.compile(r"32|64"), "32 or 64"),
}
#: words that stand at the start of a function, and of assembly in C++
_AROUND = (".entry", ".func", ".visible", ".extern", ".weak", ".common", "asm", "__asm__")


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    position: Position


def _tokens(text: str) -> Iterator[_Token]:
    at, line, line_start = 0, 1, 0
    while at < len(text):
        position = Position(line, at - line_start + 1)
        match = _TOKEN.match(text, at)
        if match is None:
            # What stands before it may be the better error: the parser tells.
            yield _Token("unknown", text[at], position)
            return
        if match.lastgroup != "space":
            yield _Token(str(match.lastgroup), match.group(), position)
        newlines = match.group().count("\n")
        if newlines:
            line += newlines
            line_start = at + match.group().rindex("\n") + 1
        at = match.end()
    yield _Token("end", "end of text", Position(line, at - line_start + 1))


def parse(text: str) -> list[Statement]:
    """The statements of `text`; raises ParseError with line and column."""
    return list(_Parser(text).statements())


def target_of(text: str) -> tuple[str, Position] | None:
    """The target that the ``.target`` line of `text` names, and where; None without such a line.

    Raises ParseError for a line that is not one.
    """
    if isinstance(text, str) and ".target" not in text:
        return None
    parser = _Parser(text)
    parser.header()
    return parser.target


class _Parser:
    def __init__(self, text: str) -> None:
        if not isinstance(text, str):
            raise ParseError(f"PTX is a string; got {type(text).__name__}")
        self._rest = list(_tokens(text))[::-1]
        #: what the .target line names, and where
        self.target: tuple[str, Position] | None = None

    def _fail(self, wanted: str) -> NoReturn:
        found = self._rest[-1]
        if found.kind == "unknown":
            raise ParseError(f"{found.position}: {found.text!r:.100} starts no PTX token")
        raise ParseError(f"{found.position}: expected {wanted}, found {found.text!r:.100}")

    def _is(self, mark: str) -> bool:
        return self._rest[-1].kind == "mark" and self._rest[-1].text == mark

    def _accept(self, mark: str) -> bool:
        found = self._is(mark)
        if found:
            self._rest.pop()
        return found

    def _expect(self, mark: str) -> None:
        if not self._accept(mark):
            self._fail(repr(mark))

    def _take(self, kind: str, wanted: str) -> _Token:
        if self._rest[-1].kind != kind:
            self._fail(wanted)
        return self._rest.pop()

    def header(self) -> None:
        """Passes what opens a PTX file; which target runs it, the caller says."""
        while self._rest[-1].text in _HEADER:
            name = self._rest.pop().text
            pattern, wanted = _HEADER[name]
            while True:
                if not pattern.fullmatch(self._rest[-1].text):
                    self._fail(wanted)
                found = self._rest.pop()
                if name == ".target" and self.target is None:
                    self.target = found.text, found.position
                if name != ".target" or not self._accept(","):
                    break

    def _straight_line(self) -> None:
        """ParseError for what stands around the statements of a kernel."""
        found = self._rest[-1]
        if found.text in _AROUND or found.text in ("{", "}", "(", ")", '"'):
            raise ParseError(
                f"{found.position}: {found.text!r:.100} is not read here: only straight-line "
                "statements are; give what stands between the braces of a kernel or in the quotes "
                "of an asm"
            )

    def statements(self) -> Iterator[Statement]:
        self.header()
        while self._rest[-1].kind != "end":
            if self._accept(";"):
                continue
            self._straight_line()
            start = self._rest[-1]
            if self._is("@"):
                raise ParseError(
                    f"{start.position}: predicated statements are not supported: all lanes execute "
                    "a matrix instruction"
                )
            word = self._take("word", "a declaration or an instruction")
            if word.text == ".reg":
                yield self._declaration(word)
            elif word.text == ".shared":
                yield self._shared(word)
            elif word.text in _HEADER:
                raise ParseError(
                    f"{word.position}: {word.text!r:.100} stands at the top of a file, before all "
                    "else"
                )
            elif word.text.startswith("."):
                raise ParseError(
                    f"{word.position}: directive {word.text!r:.100} is not supported; .reg and "
                    ".shared are"
                )
            elif self._is(":"):
                raise ParseError(f"{word.position}: labels and branches are not supported")
            else:
                operands = self._operands()
                self._expect(";")
                yield Call(word.text, operands, word.position)

    def _declaration(self, start: _Token) -> Declaration:
        type_ = self._take("word", "a register type such as .b32")
        if not type_.text.startswith("."):
            raise ParseError(
                f"{type_.position}: a register type starts with a dot: {type_.text!r:.100}"
            )
        names: list[str] = []
        while True:
            name = self._take("word", "a register name").text
            if self._accept("<"):
                number = self._take("integer", "a number of registers")
                count = _integer(number)
                if not 0 <= len(names) + count <= MOST_REGISTERS or count < 0:
                    raise ParseError(
                        f"{number.position}: a number of registers is 0 … {MOST_REGISTERS:,}; got "
                        f"{count}"
                    )
                names += [f"{name}{i}" for i in range(count)]
                self._expect(">")
            else:
                names.append(name)
            if not self._accept(","):
                break
        self._expect(";")
        return Declaration(type_.text[1:], tuple(names), start.position)

    def _shared(self, start: _Token) -> SharedDeclaration:
        alignment = 0
        type_ = self._take("word", "a type such as .b8, or .align")
        if type_.text == ".align":
            alignment = _integer(self._take("integer", "a power of two"))
            if alignment < 1 or alignment & alignment - 1:
                raise ParseError(f"{type_.position}: .align takes a power of two; got {alignment}")
            type_ = self._take("word", "a type such as .b8")
        if not type_.text.startswith("."):
            raise ParseError(f"{type_.position}: a type starts with a dot: {type_.text!r:.100}")
        variables = []
        while True:
            name = self._take("word", "the name of a variable")
            count = 1
            while self._accept("["):
                count *= _integer(self._take("integer", "a number of elements"))
                self._expect("]")
            if count < 1:
                raise ParseError(
                    f"{name.position}: variable {name.text!r:.100} has {count} elements"
                )
            variables.append(Variable(name.text, count, name.position))
            if not self._accept(","):
                break
        self._expect(";")
        return SharedDeclaration(type_.text[1:], alignment, tuple(variables), start.position)

    def _operands(self) -> tuple[Operand, ...]:
        out: list[Operand] = []
        if not self._is(";"):
            out.append(self._operand())
            while self._accept(","):
                out.append(self._operand())
        return tuple(out)

    def _operand(self) -> Operand:
        position = self._rest[-1].position
        if self._accept("{"):
            items = [self._scalar()]
            while self._accept(","):
                items.append(self._scalar())
            self._expect("}")
            return Vector(tuple(items), position)
        if self._accept("["):
            base = self._take("word", "a register or a variable in shared memory").text
            offset = self._offset() if self._accept("+") else 0
            if self._rest[-1].kind == "integer" and self._rest[-1].text.startswith("-"):
                raise ParseError(
                    f"{self._rest[-1].position}: write a negative offset as "
                    f"[{base}+{self._rest[-1].text}]"
                )
            self._expect("]")
            return Address(base, offset, position)
        if self._accept("!"):
            return Negated(self._take("word", "a predicate").text, position)
        operand = self._scalar()
        if isinstance(operand, Name) and self._accept("+"):
            return Place(operand.text, self._offset(), 0, position)
        if isinstance(operand, Name) and self._accept("["):
            index = _integer(self._take("integer", "an index"))
            self._expect("]")
            return Place(operand.text, 0, index, position)
        return operand

    def _offset(self) -> int:
        return _integer(self._take("integer", "an offset in bytes"))

    def _scalar(self) -> Name | Integer | Float:
        token = self._rest[-1]
        if token.kind == "word":
            self._rest.pop()
            return Name(token.text, token.position)
        if token.kind == "integer":
            self._rest.pop()
            return Integer(_integer(token), token.position)
        if token.kind == "float":
            self._rest.pop()
            return Float(float(token.text), 0, 0, token.position)
        if token.kind == "hexfloat":
            self._rest.pop()
            bits, width = int(token.text[2:], 16), 4 * (len(token.text) - 2)
            packed = bits.to_bytes(width // 8, "little")
            value = struct.unpack("<f" if width == 32 else "<d", packed)[0]
            return Float(value, width, bits, token.position)
        self._fail("a register, an immediate, '{' or '['")


def _integer(token: _Token) -> int:
    text = token.text.rstrip("U")
    digits = text.lstrip("-")
    if len(digits) > 70:
        raise ParseError(f"{token.position}: {text:.40}… does not fit 64 bits")
    if digits.isdigit() and digits[0] == "0":  # PTX writes octal as C does
        if digits.strip("01234567"):
            raise ParseError(f"{token.position}: {text!r:.100} is octal, and octal has no 8 or 9")
        value = int(digits, 8)
    else:
        value = int(digits, 0)
    value = -value if text.startswith("-") else value
    if not -(1 << 63) <= value < 1 << 64:
        raise ParseError(f"{token.position}: {text!r:.100} does not fit 64 bits")
    return value
