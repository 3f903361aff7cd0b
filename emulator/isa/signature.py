"""The operands of an instruction, stated once: what stands where in a statement, and what it is.

The binder checks a statement against it, the executor fetches and stores by it, tools and tests
name operands by it. Every kind of instruction derives the signature from the row of its table.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import Literal

import numpy as np

from emulator.errors import as_integer
from emulator.layout.lanemap import WARP, WARPGROUP

#: Where an operand lives, as it is written:
#: register (bare), vector (registers in braces), predicate (a register, negated or not, or 0 or 1),
#: address ([…]), descriptor (a 64-bit matrix descriptor, one value for all lanes), immediate,
#: ids ({byte-id, thread-id} in braces), label, function, parameters ((…), of a call)
Kind = Literal[
    "register", "vector", "predicate", "address", "descriptor", "immediate", "ids",
    "label", "function", "parameters",
]  # fmt: skip
Use = Literal["read", "written", "updated"]
#: Immediates in place of a register: none; integer words that are cut to the register's size;
#: integers, which alone may make up a vector; f32 values; f32 values in hexadecimal; any that its
#: type can hold.
Constants = Literal["none", "words", "integers", "values", "hexadecimal", "any"]
#: lanes that execute an instruction together -> their number
Scope = Literal["thread", "warp", "warpgroup"]
LANES: dict[Scope, int] = {"thread": 1, "warp": WARP, "warpgroup": WARPGROUP}


@dataclass(frozen=True)
class Operand:
    """One operand position of a statement."""

    #: as PTX and `execute` call it: d, a, b, c, e, selector, descriptor_b, scale_d, …
    name: str
    kind: Kind
    #: register types that it may be declared with, the preferred one first
    types: tuple[str, ...] = ()
    #: registers of a vector
    count: int = 1
    use: Use = "read"
    constants: Constants = "none"
    #: legal immediates, where only some are
    values: tuple[int, ...] | range = ()
    #: of an address: the state space that it points into; "" for a generic address. Of what may be
    #: the name of a variable: the space that it is in; "" for any
    space: str = ""
    #: may be left out
    optional: bool = False
    #: "_" may stand in its place: the result is dropped; of a vector that is read one integer may,
    #: which is dropped
    sink: bool = False
    #: a bare register may stand in braces with others after it, which do not count
    braces: bool = False
    #: every register of a vector must be of a legal type, instead of the vector as a whole
    each: bool = False
    #: what the instruction takes it for, where that is a type of PTX: "u16", "bf16x2"; a register
    #: may be wider if one of `types` is, and an immediate is a number of this type
    type: str = ""
    #: may be written as a vector of so many registers in braces, which share its bits
    pieces: tuple[int, ...] = ()
    #: the name of a variable or function may stand for its address
    symbol: bool = False
    #: of an address: the number of coordinates in braces behind it, in its brackets
    coordinates: int = 0
    #: of a texture's handle: the first coordinate is the number of a layer
    layered: bool = False
    #: what may follow its name and a dot, as a pattern: ``%r1.b2``; the rule takes it as a modifier
    selector: str = ""
    #: written behind the operand before it and a bar: the q of ``p|q``
    paired: bool = False
    #: holds the same in all lanes that execute the instruction together
    uniform: bool = False
    #: what stands in the braces, where each has a name of its own: byte-id and thread-id of ids,
    #: the four sources of a cvt
    parts: tuple[Operand, ...] = ()
    #: `execute` takes it as an option, by its name; immediates, predicates and ids always are
    option: bool = False

    @property
    def named(self) -> tuple[Operand, ...]:
        """The parts, or the operand itself: what has a name in calls."""
        return self.parts or (self,)

    @property
    def argument(self) -> str:
        """Its name in a call: a descriptor is another argument than registers of that matrix."""
        return f"descriptor_{self.name}" if self.kind == "descriptor" else self.name

    @property
    def is_option(self) -> bool:
        return self.option or self.kind in ("immediate", "predicate", "ids")

    @property
    def memory(self) -> str:
        """The option of `execute` with the memory that the operand points into; "" without one."""
        if self.kind == "descriptor" or (self.kind == "address" and self.space in ("", "shared")):
            return "shared"
        return f"{self.space}_memory" if self.kind == "address" else ""


@dataclass(frozen=True)
class Signature:
    """The operands of an instruction in the order of PTX, and who executes it."""

    operands: tuple[Operand, ...]
    scope: Scope = "thread"

    def __getitem__(self, name: str) -> Operand:
        return next(operand for operand in self.operands if operand.name == name)

    def __contains__(self, name: object) -> bool:
        return any(operand.name == name for operand in self.operands)

    def without(self, names: Container[str]) -> Signature:
        """The signature of statements that leave operands out."""
        return Signature(tuple(x for x in self.operands if x.name not in names), self.scope)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(part.name for operand in self.operands for part in operand.named)

    @property
    def arguments(self) -> tuple[Operand, ...]:
        """The operands that `execute` takes by position: all that is read and is no option, in PTX
        order. D that is updated follows A and B, where an instruction with a C has it."""
        given = [x for x in self.operands if x.use == "read" and not x.is_option]
        given[2:2] = [x for x in self.operands if x.use == "updated"]
        return tuple(part for operand in given for part in operand.named)

    @property
    def options(self) -> tuple[str, ...]:
        """Keyword arguments of `execute`: the memories that are accessed, and operands."""
        memories = [operand.memory for operand in self.operands if operand.memory]
        operands = [operand for operand in self.operands if operand.is_option]
        names = [part.name for operand in operands for part in operand.named]
        return tuple(dict.fromkeys(memories + names))


def is_immediate(given: object, legal: tuple[int, ...] | range) -> bool:
    """True if `given` is one integer, not an array or a bool, and legal."""
    return as_integer(given) in legal and not isinstance(given, np.ndarray)
