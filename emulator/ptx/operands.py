"""Operands of instructions: PTX ISA, chapter 6.

What is read is the notation. Whether an instruction takes an operand of this kind is not asked, but
notations that no instruction takes, such as a vector in a vector, are refused as ptxas does.
"""

from __future__ import annotations

from sys import intern

from emulator.errors import quoted
from emulator.ptx.constants import constant, integer
from emulator.ptx.lexer import Lexer
from emulator.ptx.tree import (
    Address,
    Arguments,
    Element,
    Float,
    Index,
    Integer,
    Minus,
    Name,
    Negated,
    Offset,
    Operand,
    Pair,
    Vector,
)

_CONSTANTS = ("integer", "float", "hexfloat")


def operands(lexer: Lexer, opcode: str) -> tuple[Operand, ...]:
    """The operands of an instruction, up to its semicolon, which is not passed."""
    if opcode == "call" or opcode.startswith("call."):
        return _call(lexer)
    if lexer.text == ";":
        return ()
    first = _operand(lexer)
    found = [_pair(lexer, first) if lexer.text == "|" else first]
    while lexer.text == ",":
        lexer.advance()
        found.append(_operand(lexer))
    if lexer.text != ";":
        lexer.fail("',' or ';'", ends=True)
    return tuple(found)


def _operand(lexer: Lexer) -> Operand:
    text, at = lexer.text, lexer.at
    if lexer.kind == "word":
        name = _name(lexer)
        if lexer.text in (",", ";"):
            return name
        return _behind_name(lexer, name)
    if text == "[":
        return _address(lexer)
    if text == "{":
        return _vector(lexer)
    if text == "!" and lexer.following() == "word":
        lexer.advance()
        predicate = lexer.at
        return Negated(Name(intern(lexer.name("a predicate")), predicate), at)
    if text == "-" and lexer.following() == "word":
        lexer.advance()
        return Minus(_name(lexer), at)
    if lexer.kind in _CONSTANTS or text in ("-", "+", "!", "~", "("):
        return constant(lexer)
    lexer.fail("an operand")


def _name(lexer: Lexer) -> Name | Element:
    """A name, or an element of a register; a dot may stand apart from the register."""
    text, at = lexer.text, lexer.at
    if lexer.kind != "word":
        lexer.fail("a name")
    lexer.advance()
    if lexer.kind == "directive":
        text += lexer.text
        lexer.advance()
    if "." not in text:
        return Name(intern(text), at)
    register, _, element = text.partition(".")
    if "." in element or "::" in element or element[0].isdigit():
        raise lexer.error(at, f"{quoted(text, 40)} is no register and no element of one")
    return Element(intern(register), intern(element), at)


def _behind_name(lexer: Lexer, name: Name | Element) -> Operand:
    """The operand that `name` begins, where no comma or semicolon follows it."""
    if not isinstance(name, Name):
        return name
    if lexer.accept("+"):
        return Offset(name.text, integer(lexer, "an offset in bytes"), name.at)
    if lexer.text == "-":
        raise _negative_offset(lexer, name.text, "", "")
    if lexer.accept("["):
        index = integer(lexer, "an index")
        lexer.expect("]")
        return Index(name.text, index, name.at)
    return name


def _negative_offset(lexer: Lexer, base: str, left: str, right: str) -> Exception:
    """The error for ``base-8``, which PTX writes otherwise."""
    at = lexer.at
    lexer.advance()
    offset = lexer.text if lexer.kind == "integer" else "offset"
    return lexer.error(
        at, f"write a negative offset as {left}{quoted(base, 40)[1:-1]}+-{offset[:40]}{right}"
    )


def _pair(lexer: Lexer, first: Operand) -> Pair:
    """The second result behind ``|``; only the first operand of an instruction has one."""
    if not isinstance(first, (Name, Element, Vector)):
        lexer.fail("',' or ';'")
    lexer.advance()
    second = Name(intern(lexer.text), lexer.at)
    if not lexer.accept("_"):
        lexer.name("a predicate or '_'")
    return Pair(first, second, first.at)


def _item(lexer: Lexer) -> Name | Element | Integer | Float:
    """Parses an item of a vector, or of the parentheses of a call."""
    if lexer.kind == "word":
        return _name(lexer)
    if lexer.kind in _CONSTANTS or lexer.text in ("-", "+", "!", "~", "("):
        return constant(lexer)
    lexer.fail("a register or a constant")


def _vector(lexer: Lexer) -> Vector:
    at = lexer.at
    lexer.expect("{")
    if lexer.text == "}":
        _item(lexer)  # a vector has one, or several
    return Vector(lexer.listed_until("}", _item), at)


def _address(lexer: Lexer) -> Address:
    at = lexer.at
    lexer.expect("[")
    if lexer.kind != "word":
        offset = integer(lexer, "a register, a variable or an integer")
        lexer.expect("]")
        return Address(None, offset, (), at)
    base = Name(intern(lexer.text), lexer.at)
    lexer.name("a register or a variable")
    offset, coordinates = 0, []
    if lexer.text == "+":
        lexer.advance()
        offset = integer(lexer, "an offset in bytes")
    elif lexer.text == "-":
        raise _negative_offset(lexer, base.text, "[", "]")
    else:
        while lexer.accept(","):
            coordinates.append(_coordinates(lexer))
    if lexer.text != "]":
        lexer.fail("']'" if coordinates else "'+' or ']'")
    lexer.advance()
    return Address(base, offset, tuple(coordinates), at)


def _coordinates(lexer: Lexer) -> Name | Vector:
    if lexer.text == "{":
        return _vector(lexer)
    at = lexer.at
    return Name(intern(lexer.name("coordinates in braces, or a register")), at)


def _call(lexer: Lexer) -> tuple[Operand, ...]:
    """``(results), function, (arguments), prototype``: all but the function may be left out."""
    found: list[Operand] = []
    if lexer.text == "(":
        found.append(_arguments(lexer))
        lexer.expect(",")
    at = lexer.at
    found.append(Name(intern(lexer.name("a function or a register")), at))
    if lexer.accept(","):
        if lexer.text == "(":
            found.append(_arguments(lexer))
        if not isinstance(found[-1], Arguments) or lexer.accept(","):
            at = lexer.at
            found.append(Name(intern(lexer.name("a prototype or a list of functions")), at))
    if lexer.text != ";":
        lexer.fail("',' or ';'" if isinstance(found[-1], Arguments) else "';'", ends=True)
    return tuple(found)


def _arguments(lexer: Lexer) -> Arguments:
    at = lexer.at
    lexer.expect("(")
    return Arguments(lexer.listed_until(")", _item), at)
