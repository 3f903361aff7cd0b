"""The statements of a function, or of a text without one: PTX ISA 4.3, chapters 9 and 11."""

from __future__ import annotations

import re
from sys import intern
from typing import NoReturn

from emulator.errors import hint, quoted
from emulator.ptx.constants import literal
from emulator.ptx.declarations import LINKAGES, SPACES, declaration, numbered
from emulator.ptx.lexer import NESTING, Lexer
from emulator.ptx.operands import operands
from emulator.ptx.signatures import directives, parameters, pragma_strings
from emulator.ptx.tree import (
    Block,
    DeclaredName,
    Guard,
    Instruction,
    Item,
    Label,
    Pragma,
    Prototype,
    SourceLocation,
    TargetList,
)

#: directives that begin a declaration in a function; .tex and linkage are for modules
_DECLARING = (*(space for space in SPACES if space != ".tex"), ".align", ".attribute")
_LISTS = (".branchtargets", ".calltargets")
_STATEMENTS = (*_DECLARING, ".pragma", ".loc")
#: directives that belong outside of a body
_AROUND = (".entry", ".func", *LINKAGES)
_ASM = ("asm", "__asm__", "__asm")
#: calls that a location keeps: no recursion over them ends at Python's limit
_MOST_INLINED = 200
_USED_BYTES = re.compile(r"\s*used_bytes_mask(?:\s+(\S+))?\s*", re.ASCII)
_MASK = re.compile(r"0[xX][0-9a-fA-F]{1,32}|\d{1,39}", re.ASCII)
_SEMICOLONS = re.compile(r"[;\s]+", re.ASCII)


class Body:
    """Reads statements, and knows what one says about those behind it: .loc and .pragma."""

    def __init__(self, lexer: Lexer) -> None:
        self._lexer = lexer
        self._location: SourceLocation | None = None
        #: file, line and column -> what the last .loc of this place said, and its depth
        self._places: dict[tuple[int, int, int], tuple[SourceLocation, int]] = {}
        self._used_bytes: int | None = None
        #: where the inline assembly begins that the last .loc stands in; 0: in none
        self._inline = 0

    def block(self) -> Block:
        """A block with its braces; raises ParseError."""
        at = self._lexer.at
        self._lexer.expect("{")
        block = self._block(at, "}")
        self._lexer.expect("}")
        return block

    def straight_line(self) -> Block:
        """The rest of the text, which no brace closes; raises ParseError.

        Semicolons that end no statement are passed, which ptxas refuses: people who put
        statements together write them.
        """
        return self._block(self._lexer.at, "")

    def _block(self, at: int, closing: str) -> Block:
        """Statements up to `closing`, which is not passed. Blocks in blocks take no recursion."""
        lexer = self._lexer
        items: list[Item] = []
        outer: list[tuple[int, list[Item]]] = []
        while True:
            text = lexer.text
            if lexer.kind == "word" or text == "@":
                items.append(self._statement())
            elif lexer.kind == "directive":
                items += self._directive()
            elif text == "{":
                if len(outer) == NESTING:
                    raise lexer.error(lexer.at, f"blocks nest more than {NESTING} levels deep")
                outer.append((at, items))
                at, items = lexer.at, []
                lexer.advance()
            elif text == closing and not outer:
                return Block(tuple(items), at)
            elif text == "}" and outer:
                block = Block(tuple(items), at)
                at, items = outer.pop()
                items.append(block)
                lexer.advance()
            elif text == ";" and not closing:
                lexer.skip(_SEMICOLONS)
            elif lexer.kind == "end":
                brace = lexer.source.position(at)
                lexer.fail(f"a statement, or '}}' for the '{{' of {brace}")
            else:
                lexer.fail("a statement or '}'" if closing or outer else "a statement")

    def _statement(self) -> Instruction | Label | Prototype | TargetList:
        """An instruction with its guard, or a label and what it may name."""
        lexer = self._lexer
        guard = self._guard() if lexer.text == "@" else None
        text, at = lexer.text, lexer.at
        if lexer.kind != "word":
            lexer.fail("an instruction")
        lexer.advance()
        if lexer.text == ":":
            if guard is not None:
                raise lexer.error(guard.at, "a label stands before the predicate, not behind it")
            return self._labelled(text, at)
        if lexer.kind == "directive":
            text += "".join(lexer.while_kind("directive"))
        if text in _ASM:
            raise lexer.error(at, f"{text!r} is C++: give what stands in its quotes")
        opcode = intern(text)
        found = operands(lexer, opcode)
        lexer.advance()
        used = None
        if self._used_bytes is not None and opcode.partition(".")[0] == "ld":
            used, self._used_bytes = self._used_bytes, None
        return Instruction(opcode, found, guard, self._location, used, at)

    def _guard(self) -> Guard:
        lexer = self._lexer
        at = lexer.at
        lexer.expect("@")
        negated = lexer.accept("!")
        return Guard(intern(lexer.name("a predicate")), negated, at)

    def _labelled(self, name: str, at: int) -> Label | Prototype | TargetList:
        lexer = self._lexer
        if "." in name or name == "_":
            raise lexer.error(at, f"{quoted(name, 40)} is no label")
        name = intern(name)
        lexer.expect(":")
        if lexer.accept(".callprototype"):
            returns = parameters(lexer)
            lexer.expect("_")
            node = Prototype(name, returns, parameters(lexer), directives(lexer, "func"), at)
            lexer.expect(";")
            return node
        if lexer.text in _LISTS:
            return self._target_list(name, at)
        return Label(name, at)

    def _target_list(self, name: str, at: int) -> TargetList:
        lexer = self._lexer
        kind = lexer.text[1:]
        lexer.advance()
        targets: list[DeclaredName] = []
        while not targets or lexer.accept(","):
            target = lexer.at
            text = intern(lexer.name("a label" if kind == "branchtargets" else "a function"))
            targets.append(DeclaredName(text, numbered(lexer), target))
        lexer.expect(";")
        return TargetList(name, kind, tuple(targets), at)

    def _directive(self) -> tuple[Item, ...]:
        text = self._lexer.text
        if text == ".loc":
            self._loc()
            return ()
        if text in _DECLARING:
            return declaration(self._lexer)
        if text == ".pragma":
            return self._pragma()
        self._refused(text)

    def _refused(self, text: str) -> NoReturn:
        lexer = self._lexer
        if text in (".callprototype", *_LISTS):
            raise lexer.error(lexer.at, f"a label names a {text}, as in 'name: {text} …;'")
        if text in _AROUND:
            raise lexer.error(
                lexer.at,
                f"{text!r} stands outside of functions; here the statements of one are read",
            )
        known = hint(text, _STATEMENTS)
        raise lexer.error(lexer.at, f"no directive {quoted(text, 40)} among statements{known}")

    def _pragma(self) -> tuple[Pragma, ...]:
        """A pragma is a node, but for used_bytes_mask, which the next load carries."""
        at = self._lexer.at
        others = []
        for string in pragma_strings(self._lexer):
            match = _USED_BYTES.fullmatch(string)
            if match is None:
                others.append(string)
                continue
            mask = match[1] or ""
            if not _MASK.fullmatch(mask):
                raise self._lexer.error(
                    at, f"used_bytes_mask takes a number such as 0xff; got {quoted(mask, 40)}"
                )
            self._used_bytes = int(mask, 16 if mask[:2].lower() == "0x" else 10)
        return (Pragma(tuple(others), at),) if others else ()

    def _loc(self) -> None:
        """``.loc 1 20 5, function_name label+8, inlined_at 1 30 9``; no semicolon ends it."""
        lexer = self._lexer
        at = lexer.at
        lexer.advance()
        place = self._place()
        location, depth = SourceLocation(*place), 0
        if lexer.accept(","):
            lexer.expect("function_name")
            lexer.name("a label")
            if lexer.accept("+"):
                literal(lexer, "an offset")
            lexer.expect(",")
            lexer.expect("inlined_at")
            caller = self._place()
            outer, depth = self._places.get(caller, (None, 0))
            if outer is None or depth == _MOST_INLINED:
                outer, depth = SourceLocation(*caller), 0
            location, depth = SourceLocation(*place, outer), depth + 1
        self._places[place] = location, depth
        # LLVM counts lines on inside inline assembly: only the first .loc there is of the source.
        inline = lexer.source.inline_assembly(at)
        if not inline or inline != self._inline:
            self._location = location
        self._inline = inline

    def _place(self) -> tuple[int, int, int]:
        """File, line and column."""
        lexer = self._lexer
        file = literal(lexer, "the number of a file")
        line = literal(lexer, "a line")
        return file, line, literal(lexer, "a column")
