"""Parameters, results and directives of a function: PTX ISA, chapter 7 and 11.4."""

from __future__ import annotations

from sys import intern
from typing import NamedTuple

from emulator.errors import hint, quoted
from emulator.ptx.constants import literal
from emulator.ptx.declarations import SPACES, Prefix, alignment, dimensions
from emulator.ptx.lexer import Lexer
from emulator.ptx.tree import DeclaredName, Directive, Pointer, Variable


class _Rule(NamedTuple):
    """The place of a directive, and the most values that it takes: none, or from one on."""

    #: a prototype takes what a func does
    kinds: tuple[str, ...]
    most: int


_ENTRY, _FUNC, _BOTH = ("entry",), ("func",), ("entry", "func")
_DIRECTIVES = {
    **dict.fromkeys((".maxntid", ".reqntid", ".reqnctapercluster"), _Rule(_ENTRY, 3)),
    **dict.fromkeys((".minnctapersm", ".maxnctapersm", ".maxnreg"), _Rule(_ENTRY, 1)),
    **dict.fromkeys((".maxclusterrank", ".minperctamemory"), _Rule(_ENTRY, 1)),
    **dict.fromkeys((".explicitcluster", ".blocksareclusters"), _Rule(_ENTRY, 0)),
    **dict.fromkeys((".local_maxnreg", ".language"), _Rule(_BOTH, 1)),
    **dict.fromkeys((".abi_preserve", ".abi_preserve_control"), _Rule(_FUNC, 1)),
    ".noreturn": _Rule(_FUNC, 0),
}


def parameters(lexer: Lexer) -> tuple[Variable, ...]:
    """``(.param .u64 a, .param .align 8 .b8 b[16])``; empty where no parenthesis stands."""
    return lexer.listed_until(")", _parameter) if lexer.accept("(") else ()


def _parameter(lexer: Lexer) -> Variable:
    if lexer.text not in (".param", ".reg"):
        lexer.fail("'.param' or '.reg'")
    prefix = Prefix(lexer)
    pointer = None
    if lexer.accept(".ptr"):
        space = SPACES.get(lexer.text)
        if space is not None:
            lexer.advance()
        pointer = Pointer(space, alignment(lexer) if lexer.text == ".align" else None)
    elif lexer.text == ".align":
        prefix.alignment = alignment(lexer)
    name = DeclaredName(intern(lexer.text), None, lexer.at)
    if not lexer.accept("_"):
        lexer.name("the name of a parameter, or '_'")
    sizes = dimensions(lexer)
    if len(sizes) > 1:
        raise lexer.error(name.at, "a parameter has one dimension at most")
    return prefix.variable(name, sizes, pointer=pointer)


def directives(lexer: Lexer, kind: str) -> tuple[Directive, ...]:
    """The directives before the body of a function of a `kind`, "entry" or "func"."""
    found = []
    while lexer.kind == "directive":
        if lexer.text == ".pragma" and kind == "entry":
            at = lexer.at
            found.append(Directive("pragma", pragma_strings(lexer), at))
        else:
            found.append(_directive(lexer, kind))
    return tuple(found)


def _directive(lexer: Lexer, kind: str) -> Directive:
    text, at = lexer.text, lexer.at
    rule = _DIRECTIVES.get(text)
    if rule is None:
        legal = [name for name, rule in _DIRECTIVES.items() if kind in rule.kinds]
        raise lexer.error(at, f".{kind} takes no directive {quoted(text, 40)}{hint(text, legal)}")
    if kind not in rule.kinds:
        raise lexer.error(at, f"{text} is for .{rule.kinds[0]}, not for .{kind}")
    lexer.advance()
    values: list[int | str] = []
    while len(values) < rule.most and (not values or lexer.accept(",")):
        if text == ".language" and lexer.kind == "string":
            values.append(lexer.text[1:-1])
            lexer.advance()
        else:
            values.append(literal(lexer, "an integer"))
    return Directive(text[1:], tuple(values), at)


def pragma_strings(lexer: Lexer) -> tuple[str, ...]:
    """The strings of ``.pragma "a", "b";``."""
    lexer.expect(".pragma")
    strings = lexer.listed(lambda x: x.take("string", "a string")[1:-1])
    lexer.expect(";")
    return strings
