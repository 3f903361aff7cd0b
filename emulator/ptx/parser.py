"""PTX modules, and statements without a function around them, as syntax trees.

Text only: no table of instructions is asked, so what parses need not be legal. What the grammar of
ptxas 13.5 refuses is refused, with two exceptions: comments may hold any character, and expressions
may stand for the size of an array, as the manual says.
"""

from __future__ import annotations

import re
from sys import intern

from emulator.errors import hint, quoted
from emulator.ptx.body import Body
from emulator.ptx.constants import literal
from emulator.ptx.declarations import LINKAGES, SPACES, attributes, declaration
from emulator.ptx.lexer import Lexer
from emulator.ptx.signatures import directives, parameters, pragma_strings
from emulator.ptx.source import Source
from emulator.ptx.tree import (
    Alias,
    Block,
    File,
    Function,
    Header,
    Module,
    RegisterDeclaration,
    Variable,
)

_VERSION = re.compile(r"\d{1,4}\.\d{1,4}", re.ASCII)
_TARGET = re.compile(r"(sm|compute)_\d{1,4}[a-z]?", re.ASCII)
#: tokens that matter in the body of a .section: its end, and texts that may hide it
_SECTION = re.compile(r"""[{}] | //[^\n]* | /\*[\s\S]*?\*/ | /\* | "[^"]*" | " """, re.VERBOSE)
_FUNCTIONS = (".entry", ".func")
_DIRECTIVES = (
    *_FUNCTIONS, *LINKAGES, *SPACES, ".align", ".attribute", ".alias", ".pragma", ".file",
    ".section",
)  # fmt: skip


def parse_texts(text: str) -> tuple[Module, ...]:
    """The syntax trees of the texts that `joined` made one of; of any other PTX file the only one.

    Raises ParseError with line, column and source line for a text that is not PTX: PTX ISA,
    chapters 4 to 7 and 11. Opcodes, types and names are not judged.

    >>> (module,) = parse_texts(".version 8.0 .target sm_90 .entry k { ret; }")
    >>> module.functions[0].body.items[0].opcode
    'ret'
    """
    source = Source(text)
    lexers = (Lexer(source, part.start, part.end) for part in source.parts)
    return tuple(_ModuleParser(lexer).module() for lexer in lexers)


def parse_statements(text: str) -> Block:
    """The syntax tree of statements as they stand in a function, without braces around them.

    The lines that open a file, ``.version``, ``.target`` and ``.address_size``, may stand at the
    top; then a Header is the first item. Raises ParseError as ``parse_texts`` does.

    >>> [item.opcode for item in parse_statements("bar.sync 0; ret;").items]
    ['bar.sync', 'ret']
    """
    lexer = Lexer(Source(text))
    header = _header(lexer)
    block = Body(lexer).straight_line()
    written = header.version or header.targets or header.address_size
    return Block((header, *block.items), 0) if written else block


def _header(lexer: Lexer) -> Header:
    """The directives at the top of a file, in their order; each may be left out here."""
    at = lexer.at
    version, address_size = None, None
    names: list[str] = []
    if lexer.accept(".version"):
        if not _VERSION.fullmatch(lexer.text):
            lexer.fail("a number such as 8.0")
        major, _, minor = lexer.text.partition(".")
        version = int(major), int(minor)
        lexer.advance()
    while lexer.accept(".target"):
        names += lexer.listed(lambda x: intern(x.name("a name such as sm_90a")))
    if lexer.accept(".address_size"):
        if lexer.text not in ("32", "64"):
            lexer.fail("32 or 64")
        address_size = int(lexer.text)
        lexer.advance()
    targets = tuple(name for name in names if _TARGET.fullmatch(name))
    options = tuple(name for name in names if name not in targets)
    return Header(version, targets, options, address_size, at)


class _ModuleParser:
    """Reads a file from top to bottom and keeps what it finds, by kind."""

    def __init__(self, lexer: Lexer) -> None:
        self._lexer = lexer
        self._files: list[File] = []
        self._variables: list[Variable] = []
        self._functions: list[Function] = []
        self._aliases: list[Alias] = []

    def module(self) -> Module:
        lexer = self._lexer
        if lexer.text != ".version":
            lexer.fail("'.version', with which a PTX file begins")
        header = _header(lexer)
        if not header.targets:
            lexer.fail("'.target' with a name such as sm_90a")
        while lexer.kind != "end":
            self._item()
        return Module(
            lexer.source,
            header,
            tuple(self._files),
            tuple(self._variables),
            tuple(self._functions),
            tuple(self._aliases),
        )

    def _item(self) -> None:
        lexer = self._lexer
        at = lexer.at
        linkage = None
        if lexer.text in LINKAGES:
            linkage = LINKAGES[lexer.text]
            lexer.advance()
        text = lexer.text
        if text in _FUNCTIONS:
            self._functions.append(self._function(linkage, at))
        elif text in SPACES or text in (".align", ".attribute"):
            self._declaration(linkage)
        elif linkage is not None:
            lexer.fail("a variable, '.entry' or '.func'")
        elif text == ".pragma":
            pragma_strings(lexer)
        elif text == ".file":
            self._file()
        elif text == ".section":
            self._section()
        elif text == ".alias":
            self._alias()
        elif lexer.kind == "directive":
            raise lexer.error(
                at, f"no directive {quoted(text, 40)} outside of functions{hint(text, _DIRECTIVES)}"
            )
        else:
            lexer.fail("a directive such as '.entry' or '.global'")

    def _declaration(self, linkage: str | None) -> None:
        lexer = self._lexer
        at = lexer.at
        for node in declaration(lexer, linkage):
            if isinstance(node, RegisterDeclaration):
                raise lexer.error(at, "registers are declared in functions only")
            self._variables.append(node)

    def _function(self, linkage: str | None, at: int) -> Function:
        """From ``.entry`` or ``.func`` to the end of the body, or to the semicolon in its place."""
        lexer = self._lexer
        kind = lexer.text[1:]
        lexer.advance()
        attributed = attributes(lexer) if lexer.text == ".attribute" else ()
        returns = parameters(lexer) if kind == "func" else ()
        name = intern(lexer.name("the name of the function"))
        bare = lexer.text != "("
        taken = parameters(lexer)
        asked = directives(lexer, kind)
        body = None
        if lexer.text == "{":
            body = Body(lexer).block()
        elif not lexer.accept(";"):
            missing = "'(', " if bare and not asked else ""
            lexer.fail(f"{missing}'{{', ';' or a directive")
        return Function(kind, name, linkage, attributed, returns, taken, asked, body, at)

    def _file(self) -> None:
        """``.file 1 "kernel.cu", 1700000000, 4096``: time and size, which nothing needs, go."""
        lexer = self._lexer
        at = lexer.at
        lexer.advance()
        number = literal(lexer, "the number of a file")
        name = lexer.take("string", "the name of a file in quotes")[1:-1]
        if lexer.accept(","):
            literal(lexer, "a time")
            lexer.expect(",")
            literal(lexer, "a size")
        self._files.append(File(number, name, at))

    def _section(self) -> None:
        """Passes ``.section .debug_info { … }``, which is for debuggers."""
        lexer = self._lexer
        at = lexer.at
        lexer.advance()
        lexer.take("directive", "the name of a section")
        if lexer.text != "{":
            lexer.fail("'{'")
        for match in _SECTION.finditer(lexer.source.text, lexer.at + 1):
            if match[0] == "}":
                return lexer.resume(match.end())
            if match[0] in ("{", "/*", '"'):
                break
        raise lexer.error(at, "this section is not closed by '}'")

    def _alias(self) -> None:
        lexer = self._lexer
        at = lexer.at
        lexer.advance()
        name = intern(lexer.name("the name of a function"))
        lexer.expect(",")
        of = intern(lexer.name("the name of a function"))
        lexer.expect(";")
        self._aliases.append(Alias(name, of, at))
