"""Contraction: values of a function body, their types and modifiers, and which of them are
products and sums."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from emulator.isa.instruction import effects_of
from emulator.ptx.contraction.rewrites import Rewrite
from emulator.ptx.dataflow import Dataflow, Statement, Value


class _Type(NamedTuple):
    """Facts of a type that the rules use."""

    #: codes of one, of two and of the sign; 0 where ptxas does not look for such factors
    one: int = 0
    two: int = 0
    sign: int = 0
    #: whether a product that an addition will not take is seen before another addition takes it
    foresees: bool = False
    #: whether ``neg`` is a modifier of operands
    neg: bool = True


HALF = "f32half"
#: the types that ptxas contracts; the last is an element of f32x2 where the chip adds them singly
TYPES = {
    "f32": _Type(0x3F800000, 0x40000000, 1 << 31, True),
    "f64": _Type(0x3FF << 52, 1 << 62, 1 << 63, True),
    "f16": _Type(0x3C00, 0x4000, 1 << 15, True),
    "bf16": _Type(0x3F80, 0x4000, 1 << 15, True),
    "f16x2": _Type(),
    "bf16x2": _Type(neg=False),
    "f32x2": _Type(),
    HALF: _Type(0x3F800000, 0x40000000, 1 << 31),
}
#: takes an f32x2 apart for its arithmetic
TAKE = "take.f32x2"


def stands_alone(statement: Statement) -> bool:
    """True if ptxas gives a statement basic blocks of its own.

    Measured between a multiplication and an addition, over the 800 opcodes of 260 real PTX files
    and 200 more, each with a guard and without.
    """
    return _splits(statement.opcode, statement.guard is not None)


@lru_cache(maxsize=4096)
def _splits(opcode: str, guarded: bool) -> bool:
    effects = effects_of(opcode)
    if "ends" in effects:
        return False
    # Under a guard what only writes registers becomes a selection, and all else a branch around it.
    return "splits" in effects or (guarded and "pure" not in effects)


def type_of(value: Value) -> str:
    return value.opcode.rpartition(".")[2]


def scalar_type(value: Value) -> str:
    """The type, and f32 for half an f32x2."""
    return "f32" if type_of(value) == HALF else type_of(value)


def modifiers_of(value: Value) -> set[str]:
    return set(value.opcode.split(".")[1:-1])


def is_flushed(value: Value) -> bool:
    """True if .ftz has flushed a value already."""
    return "ftz" in modifiers_of(value)


def is_product(value: Value) -> bool:
    if value.head == "mul":
        return type_of(value) in TYPES and modifiers_of(value) <= {"ftz"}
    if value.head == "div":
        return type_of(value) == "f32" and bool(modifiers_of(value) & {"approx", "full"})
    return value.opcode == "rcp.approx.f32"


def is_sum(value: Value) -> bool:
    return (
        value.head in ("add", "sub")
        and type_of(value) in TYPES
        and modifiers_of(value) <= {"ftz", "sat"}
    )


def same(one: Value, other: Value) -> bool:
    return one.resolve() == other.resolve()


class Body:
    """The values of one function, and what the rules have found of them so far."""

    def __init__(self, statements: Sequence[Statement], entry: bool) -> None:
        self.statements = statements
        self.constant_spaces = ("ld.const", "ld.param") if entry else ("ld.const",)
        self.flow = Dataflow(statements, stands_alone)
        self.values = self.flow.values
        self.found: dict[int, Rewrite] = {}
        #: statements that take a value, and copies of products by who takes them apart
        self.readers: defaultdict[Value, list[Value]] = defaultdict(list)
        for value in self.values:
            for argument in value.arguments:
                self.readers[argument].append(value)
        self.copies: dict[tuple[Value, Value], Value] = {}

    def is_constant(self, value: Value) -> bool:
        """True if a value is an immediate, or lies in constant memory at a constant address."""
        if value.opcode == "constant":
            return True
        return value.opcode.startswith(self.constant_spaces) and not value.arguments
