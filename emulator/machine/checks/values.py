"""Values of the operands of statements: which are NaN or infinite, and how people write them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from dtypes import Array, Format
from emulator.arith.scalar.types import TYPES, ScalarType
from emulator.isa.conversion import Conversion
from emulator.isa.matrix import MatrixInstruction
from emulator.isa.signature import Operand
from emulator.isa.wmma import WmmaMultiply
from emulator.machine.shared.operands import word_type
from emulator.machine.vector.operands import Read, reader
from emulator.machine.vector.strand import Strand
from emulator.ptx.program import Bound, Function, Statement, Vector, items_of


class Value(NamedTuple):
    """An operand, or an item of a vector: its name, its type, how it is read."""

    name: str
    type: str
    read: Read


def values_of(statement: Statement, function: Function, *, written: bool) -> list[Value]:
    """The register operands that a statement writes, or those that it reads, with their types."""
    return [
        Value(name, type_, reader(item, type_, function))
        for name, type_, item in typed_items(statement, written)
    ]


def typed_items(statement: Statement, written: bool) -> Iterator[tuple[str, str, Bound]]:
    """Names, types and items of the register operands that a statement writes, or reads."""
    for operand in statement.signature.operands:
        bound = statement.operands.get(operand.name)
        if (
            bound is None
            or operand.kind not in ("register", "vector", "predicate")
            or (operand.use == "read") == written
        ):
            continue
        type_, items = _type_of(statement, operand), items_of(bound)
        if isinstance(bound, Vector) and operand.kind != "vector":  # {…} shares the bits of a word
            type_ = f"b{TYPES[type_].size // len(items)}"
        for i, item in enumerate(items):
            if item is not None:
                name = f"{operand.name}[{i}]" if len(items) > 1 else operand.name
                yield name, type_, item


def _type_of(statement: Statement, operand: Operand) -> str:
    """The type that the opcode names for an operand, or that of its register."""
    ins, word = statement.instruction, word_type(operand)
    if isinstance(ins, Conversion):
        named = str(ins).split(".")[-1 if operand.use == "read" else -2]
    elif isinstance(ins, (MatrixInstruction, WmmaMultiply)) and operand.name in ins.fragments:
        fragment = ins.fragments[operand.name]
        count = fragment.elements // fragment.registers
        named = fragment.fmt.name + (f"x{count}" if count > 1 else "")
    else:
        return word
    return named if named in TYPES and TYPES[named].size == TYPES[word].size else word


# --- NaN and infinity -----------------------------------------------------------------------------


def specials(fmt: Format, codes: Array) -> tuple[Array, Array]:
    """Masks of the codes of a format that are NaN, and that are infinite."""
    none = np.zeros(codes.shape, np.bool_)
    if not fmt.is_float or fmt.nan is None:
        return none, none
    magnitude: Array = codes & codes.dtype.type(fmt.code_mask ^ fmt.sign_mask)
    if fmt.infinity is None:
        return np.isin(magnitude, fmt.nan & ~fmt.sign_mask), none
    # Bits that the format ignores, such as the low ones of tf32, tell nothing.
    magnitude = magnitude >> fmt.ignored_bits
    infinity = fmt.infinity >> fmt.ignored_bits
    finite: Array = magnitude < infinity
    infinite: Array = np.isin(magnitude, infinity)
    return ~(finite | infinite), infinite


def specials_of_words(words: Array, type_: str) -> tuple[Array, Array]:
    """For each lane whether any element of its word is NaN, and whether any is infinite."""
    kind = TYPES[type_]
    nan, infinite = specials(kind.format, elements(words, kind))
    return np.asarray(nan.any(-1)), np.asarray(infinite.any(-1))


def elements(words: Array, kind: ScalarType) -> Array:
    """Words as ``(lanes, elements)`` codes."""
    if kind.bits < 8:
        parts = [words >> words.dtype.type(i * kind.bits) for i in range(kind.count)]
        return np.stack(parts, -1) & words.dtype.type(kind.mask)
    return np.ascontiguousarray(words)[:, None].view(f"uint{kind.bits}")


def is_float(type_: str) -> bool:
    """True if values of a type can be NaN or infinite."""
    return type_ in TYPES and TYPES[type_].is_float


# --- in words -------------------------------------------------------------------------------------


def shown(words: Array, type_: str, lane: int) -> str:
    """The value of one lane: ``1.5``, ``(1.5, inf)`` of two in a word, a number, a predicate."""
    one = words[lane if len(words) > 1 else 0]
    kind = TYPES[type_]
    if kind.kind == "predicate":
        return str(bool(one))
    if kind.size == 128:
        return f"0x{int(one[1]):016x}{int(one[0]):016x}"
    if not kind.is_float:
        return str(kind.number(int(one))) if kind.kind != "bits" else f"{int(one):#x}"
    values = [_float(int(code), kind.format) for code in elements(np.array([one]), kind)[0]]
    return values[0] if kind.count == 1 else f"({', '.join(values)})"


def _float(code: int, fmt: Format) -> str:
    if fmt.name in ("f16", "f32", "f64"):
        value = np.array(code, f"uint{fmt.bits}").view(f"float{fmt.bits}")[()]
        return str(value)
    if fmt.name == "bf16":
        return str(np.array(code << 16, np.uint32).view(np.float32)[()])
    return f"{code:#x}"


def read_all(s: Strand, values: list[Value]) -> list[Array]:
    return [value.read(s) for value in values]
