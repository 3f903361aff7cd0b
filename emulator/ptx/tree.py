"""The syntax tree of PTX: what a text says, before anybody asks whether it is legal.

Opcodes, types and state spaces stay the text that was written (types and spaces without their dot);
registers and symbols stay names. Every node knows `at`, the offset of its first character:
``Source.position`` makes a line and a column of it. Nodes are named tuples, because a file makes
hundreds of thousands of them; so two nodes of different types may be equal, and whoever compares
them compares their types first.

Names follow the PTX ISA, chapters 4 (syntax), 5 (state spaces, types and variables), 6 (operands),
7 (functions) and 11 (directives).
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from emulator.ptx.source import Source

# --- operands ---


class Name(NamedTuple):
    """A register, a variable, a function or a label, or ``_``, which discards a result."""

    text: str
    at: int


class Element(NamedTuple):
    """``%v.x``, ``%tid.x`` or ``%r1.b0``: a part of a register."""

    register: str
    #: without its dot
    element: str
    at: int


class Integer(NamedTuple):
    """An integer, or a constant expression of integers: -2^63 to 2^64 - 1."""

    value: int
    at: int


class Float(NamedTuple):
    """A floating-point constant: 32 bits where it was written as 0f…, else 64, decimals too."""

    bits: int
    width: int
    at: int

    @property
    def value(self) -> float:
        code, letter = ("<I", "<f") if self.width == 32 else ("<Q", "<d")
        return float(struct.unpack(letter, struct.pack(code, self.bits))[0])


class Negated(NamedTuple):
    """``!%p``: a predicate the other way round."""

    operand: Name
    at: int


class Minus(NamedTuple):
    """``-%r1``, which vmad takes."""

    operand: Name | Element
    at: int


class Vector(NamedTuple):
    """``{%r0, %r1, 0, _}``."""

    items: tuple[Name | Element | Integer | Float, ...]
    at: int


class Offset(NamedTuple):
    """``table+16``: an address that many bytes behind a variable."""

    name: str
    offset: int
    at: int


class Index(NamedTuple):
    """``table[2]``: an element of an array."""

    name: str
    subscript: int
    at: int


class Address(NamedTuple):
    """``[base+offset]``, or ``[base, coordinates…]`` of tensors, textures and surfaces.

    An address that is a number alone, ``[16]``, has no base.
    """

    base: Name | None
    offset: int
    coordinates: tuple[Name | Vector, ...]
    at: int


class Pair(NamedTuple):
    """``%p|%q``: a result and a second one, mostly a predicate."""

    first: Name | Element | Vector
    second: Name
    at: int


class Arguments(NamedTuple):
    """The parameters of a call, or what it returns, in parentheses."""

    items: tuple[Name | Element | Integer | Float, ...]
    at: int


Operand = (
    Name | Element | Integer | Float | Negated | Minus
    | Vector | Offset | Index | Address | Pair | Arguments
)  # fmt: skip

# --- variables ---


class SymbolAddress(NamedTuple):
    """The address of a variable or a function as an initial value: ``0xFF00(generic(table)+4)``.

    PTX ISA 5.4.4: `generic` makes it a generic address; `mask` picks one byte of it.
    """

    name: str
    offset: int
    generic: bool
    mask: int | None
    at: int


class Field(NamedTuple):
    """``filter_mode = nearest``, a property of a .samplerref, .texref or .surfref."""

    name: str
    value: str | int
    at: int


class Values(NamedTuple):
    """Initial values in braces, which nest as the dimensions of the variable do."""

    items: tuple[Initialiser, ...]
    at: int


#: an integer is a plain one: tables of them are long
Initialiser = int | Float | SymbolAddress | Field | Values


class Attribute(NamedTuple):
    """``.managed``, or ``.unified(1, 2)`` with its values."""

    name: str
    values: tuple[int, ...]
    at: int


class Pointer(NamedTuple):
    """``.ptr .global .align 16``: what a kernel's parameter points to."""

    space: str | None
    alignment: int | None


class DeclaredName(NamedTuple):
    """One name, or ``%r<5>``, which stands for %r0 to %r4: then `numbered` is 5."""

    text: str
    numbered: int | None
    at: int


class Variable(NamedTuple):
    """One name of a declaration in memory, or a parameter of a function."""

    name: DeclaredName
    #: "global", "const", "shared", "local", "param", "tex"; "reg" for a parameter in a register
    space: str
    #: "b8", "f32", "texref"
    type: str
    #: 2 and 4 for .v2 and .v4, else 1
    vector: int
    #: the size of each dimension, outermost first; None where it is left out, as in ``x[]``
    dimensions: tuple[int | None, ...]
    #: None where it is not written
    alignment: int | None
    #: "extern", "visible", "weak" or "common"
    linkage: str | None
    attributes: tuple[Attribute, ...]
    pointer: Pointer | None
    initialiser: Initialiser | None
    at: int


class RegisterDeclaration(NamedTuple):
    """``.reg .v4 .b32 %v, %r<5>;``."""

    type: str
    vector: int
    names: tuple[DeclaredName, ...]
    at: int


# --- statements ---


class SourceLocation(NamedTuple):
    """The place in a CUDA or Python file that an instruction was made from: PTX ISA 11.5.3, .loc.

    A `line` of 0 is none. `inlined_at` is where the function was called that was inlined there.
    """

    #: number of one of ``Module.files``
    file: int
    line: int
    column: int
    inlined_at: SourceLocation | None = None


class Guard(NamedTuple):
    """``@%p`` or ``@!%p``."""

    name: str
    negated: bool
    at: int


class Instruction(NamedTuple):
    #: with all its modifiers, as they were written
    opcode: str
    operands: tuple[Operand, ...]
    guard: Guard | None
    location: SourceLocation | None
    #: of a load behind ``.pragma "used_bytes_mask …"``: the bytes whose values matter
    used_bytes_mask: int | None
    at: int


class Label(NamedTuple):
    name: str
    at: int


class Prototype(NamedTuple):
    """``name: .callprototype (returns) _ (parameters);`` of an indirect call."""

    name: str
    returns: tuple[Variable, ...]
    parameters: tuple[Variable, ...]
    directives: tuple[Directive, ...]
    at: int


class TargetList(NamedTuple):
    """``name: .branchtargets L0, L1;`` of a brx.idx, or ``.calltargets`` of an indirect call."""

    name: str
    #: "branchtargets" or "calltargets"
    kind: str
    targets: tuple[DeclaredName, ...]
    at: int


class Pragma(NamedTuple):
    strings: tuple[str, ...]
    at: int


class Header(NamedTuple):
    """``.version``, ``.target`` and ``.address_size``; None and () where they are not written."""

    version: tuple[int, int] | None
    #: "sm_90a"
    targets: tuple[str, ...]
    #: the other words of .target: "debug", "texmode_independent"
    options: tuple[str, ...]
    address_size: int | None
    at: int


class Block(NamedTuple):
    """A block in braces: names declared in it are its own, and hide those outside."""

    items: tuple[Item, ...]
    at: int


#: nodes that give a name
Naming = RegisterDeclaration | Variable | Label | Prototype | TargetList
Item = Header | Naming | Instruction | Block | Pragma

# --- modules ---


class Directive(NamedTuple):
    """``.maxntid 128, 1, 1``: name without its dot, values."""

    name: str
    values: tuple[int | str, ...]
    at: int


class Function(NamedTuple):
    #: "entry" or "func"
    kind: str
    name: str
    linkage: str | None
    attributes: tuple[Attribute, ...]
    returns: tuple[Variable, ...]
    parameters: tuple[Variable, ...]
    directives: tuple[Directive, ...]
    #: None where it is declared only
    body: Block | None
    at: int


class Alias(NamedTuple):
    """``.alias name, of;``."""

    name: str
    of: str
    at: int


class File(NamedTuple):
    """``.file 1 "kernel.cu"``, which .loc refers to by its number."""

    number: int
    name: str
    at: int


class Module(NamedTuple):
    """A PTX file. What is in a tuple is in the order of the file."""

    source: Source
    header: Header
    files: tuple[File, ...]
    variables: tuple[Variable, ...]
    functions: tuple[Function, ...]
    aliases: tuple[Alias, ...]
