"""Declarations of registers and variables, and initial values: PTX ISA, chapter 5."""

from __future__ import annotations

import re
from sys import intern

from emulator.errors import quoted
from emulator.ptx.constants import constant, integer, literal
from emulator.ptx.lexer import NESTING, Lexer
from emulator.ptx.tree import (
    Attribute,
    DeclaredName,
    Field,
    Initialiser,
    Integer,
    Pointer,
    RegisterDeclaration,
    SymbolAddress,
    Values,
    Variable,
)

#: directives that begin a declaration, with the space that they name
SPACES = {
    f".{name}": name for name in ("reg", "global", "const", "shared", "local", "param", "tex")
}
#: directives that say how other modules see a name
LINKAGES = {f".{name}": name for name in ("extern", "visible", "weak", "common")}
#: most names that one range such as %r<5> declares
_MOST_NAMES = 1 << 20
_VECTOR = re.compile(r"\.v\d+")
#: decimal integers, or what may turn out not to be
_TABLE = re.compile(r"\{([-\d,\s]+)\}", re.ASCII)
_OCTAL = re.compile(r"\b0\d", re.ASCII)


class Prefix:
    """The words before the names of a declaration: space, alignment, attributes, type."""

    def __init__(self, lexer: Lexer, linkage: str | None = None) -> None:
        self.at = lexer.at
        self.linkage = linkage
        self.space = ""
        self.alignment: int | None = None
        self.attributes: tuple[Attribute, ...] = ()
        self.vector = 1
        self.type = ""
        while lexer.kind == "directive" and not self.type:
            self._word(lexer)
        if not self.space:
            lexer.fail("a state space such as .global")
        if not self.type:
            lexer.fail("a type such as .b32")

    def _word(self, lexer: Lexer) -> None:
        text = lexer.text
        if text == ".align":
            self.alignment = alignment(lexer)
        elif text == ".attribute":
            self.attributes += attributes(lexer)
        elif text in SPACES and not self.space:
            self.space = SPACES[text]
            lexer.advance()
        elif text in SPACES or text in LINKAGES:
            lexer.fail("a type such as .b32")
        elif _VECTOR.fullmatch(text):
            if text not in (".v2", ".v4"):
                lexer.fail("'.v2', '.v4' or a type")
            self.vector = int(text[2:])
            lexer.advance()
        else:
            self.type = intern(text[1:])
            lexer.advance()

    def variable(
        self,
        name: DeclaredName,
        dimensions: tuple[int | None, ...],
        *,
        pointer: Pointer | None = None,
        value: Initialiser | None = None,
    ) -> Variable:
        """A variable or parameter that is declared with these words."""
        facts = self.space, self.type, self.vector, dimensions, self.alignment, self.linkage
        return Variable(name, *facts, self.attributes, pointer, value, name.at)


def declaration(
    lexer: Lexer, linkage: str | None = None
) -> tuple[Variable, ...] | tuple[RegisterDeclaration]:
    """A declaration with its semicolon: a node for each variable, or one for all registers."""
    prefix = Prefix(lexer, linkage)
    if prefix.space == "reg":
        names = lexer.listed(_declared_name)
        _end(lexer)
        return (RegisterDeclaration(prefix.type, prefix.vector, names, prefix.at),)
    found = lexer.listed(lambda x: _variable(x, prefix))
    _end(lexer)
    return found


def _end(lexer: Lexer) -> None:
    if lexer.text != ";":
        lexer.fail("',' or ';'", ends=True)
    lexer.advance()


def _variable(lexer: Lexer, prefix: Prefix) -> Variable:
    name = _declared_name(lexer)
    sizes = dimensions(lexer) if name.numbered is None else ()
    value = initialiser(lexer) if lexer.accept("=") else None
    return prefix.variable(name, sizes, value=value)


def _declared_name(lexer: Lexer) -> DeclaredName:
    """A name, or a range of names such as ``%r<5>``."""
    at = lexer.at
    name = intern(lexer.name("a name"))
    return DeclaredName(name, numbered(lexer), at)


def numbered(lexer: Lexer) -> int | None:
    """5 of ``<5>``; None where no range stands."""
    if lexer.text != "<":
        return None
    lexer.advance()
    at = lexer.at
    count = literal(lexer, "a number of names")
    if count > _MOST_NAMES:
        raise lexer.error(at, f"a range of {count} names; at most {_MOST_NAMES} are read")
    lexer.expect(">")
    return count


def alignment(lexer: Lexer) -> int:
    """8 of ``.align 8``; raises ParseError for what is no power of two."""
    lexer.expect(".align")
    at = lexer.at
    value = literal(lexer, "a power of two")
    if value < 1 or value & value - 1:
        raise lexer.error(at, f".align takes a power of two; got {value}")
    return value


def attributes(lexer: Lexer) -> tuple[Attribute, ...]:
    """``.attribute(.managed, .unified(1, 2))``."""
    lexer.expect(".attribute")
    lexer.expect("(")
    found = lexer.listed(_attribute)
    lexer.expect(")")
    return found


def _attribute(lexer: Lexer) -> Attribute:
    at = lexer.at
    name = lexer.take("directive", "an attribute such as .managed")[1:]
    values: tuple[int, ...] = ()
    if lexer.accept("("):
        values = lexer.listed(lambda x: literal(x, "an integer"))
        lexer.expect(")")
    return Attribute(name, values, at)


def dimensions(lexer: Lexer) -> tuple[int | None, ...]:
    """``[2][3]`` as (2, 3); the first may be empty."""
    sizes: list[int | None] = []
    while lexer.accept("["):
        at = lexer.at
        if lexer.text == "]" and not sizes:
            sizes.append(None)
        else:
            size = integer(lexer, "a number of elements")
            if size < 0:
                raise lexer.error(at, f"an array of {size} elements")
            sizes.append(size)
        lexer.expect("]")
    return tuple(sizes)


def initialiser(lexer: Lexer, depth: int = 0) -> Initialiser:
    """The value of a variable behind ``=``, without the semicolon."""
    at = lexer.at
    if lexer.text == "{":
        if depth > NESTING:
            raise lexer.error(at, f"values nest more than {NESTING} levels deep")
        return _values(lexer, depth)
    if lexer.kind == "word":
        return _symbol(lexer, None, at)
    if lexer.kind == "string":
        raise lexer.error(at, "a string is no initial value: write its bytes as {104, 105, 0}")
    value = constant(lexer)
    if not isinstance(value, Integer):
        return value
    if lexer.accept("("):
        symbol = _symbol(lexer, value.value, at)
        lexer.expect(")")
        return symbol
    return value.value


def _values(lexer: Lexer, depth: int) -> Values:
    at = lexer.at
    integers = _decimal_integers(lexer)
    if integers:
        return Values(integers, at)
    lexer.expect("{")
    return Values(lexer.listed_until("}", lambda x: initialiser(x, depth + 1)), at)


def _decimal_integers(lexer: Lexer) -> tuple[int, ...]:
    """All values of a table of decimal integers at once; () where this one is none.

    Tables of a hundred thousand bytes are common, so this comes before the grammar.
    """
    match = _TABLE.match(lexer.source.text, lexer.at)
    if match is None or _OCTAL.search(match[1]):
        return ()
    try:
        found = tuple(map(int, match[1].split(",")))
    except ValueError:
        return ()
    if min(found) <= -(1 << 63) or max(found) >= 1 << 64:
        return ()
    lexer.resume(match.end())
    return found


def _symbol(lexer: Lexer, mask: int | None, at: int) -> SymbolAddress | Field:
    """``table+4``, ``generic(table)+4``, or ``filter_mode = nearest``."""
    name = intern(lexer.name("the name of a variable or a function"))
    generic = name == "generic" and lexer.accept("(")
    if generic:
        name = intern(lexer.name("the name of a variable"))
        lexer.expect(")")
    elif lexer.text == "=" and mask is None:
        lexer.advance()
        if lexer.kind == "word":
            return Field(name, lexer.name("a value"), at)
        return Field(name, integer(lexer, "a value"), at)
    if lexer.text == "-":
        raise lexer.error(lexer.at, f"write a negative offset as {quoted(name, 40)[1:-1]}+-offset")
    offset = integer(lexer, "an offset in bytes") if lexer.accept("+") else 0
    return SymbolAddress(name, offset, generic, mask, at)
