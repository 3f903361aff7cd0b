"""Operands of PTX statements to what ``execute`` takes, with ptxas's rules for types and counts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dtypes import FORMATS, Array, code_type, encode
from emulator.errors import OperandError, UnsupportedError
from emulator.isa.matrix import MatrixInstruction
from emulator.isa.operands import ANY_64, DESCRIPTOR, INTEGER, PREDICATE, SCALE_ID, register_types
from emulator.ptx.registers import RegisterFile
from emulator.ptx.syntax import Address, Call, Float, Integer, Name, Operand, Position, Vector


@dataclass
class Bound:
    """One matrix instruction, ready to execute."""

    instruction: MatrixInstruction
    operands: list[Any]
    options: dict[str, Any]
    #: names of the destination registers; "_" discards
    destination: tuple[str, ...]
    #: registers that the matrix operands are read from, for the ordering rules
    reads: tuple[str, ...] = ()


@dataclass
class Binder:
    """Takes the operands of one statement in order."""

    call: Call
    registers: RegisterFile
    opcode: str
    reads: list[str] = field(default_factory=list)
    _next: int = 0

    def take(self, what: str) -> Operand:
        """The next operand, or OperandError saying which one is missing."""
        if self._next >= len(self.call.operands):
            raise OperandError(
                f"{self.call.position}: {self.opcode} lacks operand {what} "
                f"({len(self.call.operands)} are given)"
            )
        self._next += 1
        return self.call.operands[self._next - 1]

    def end(self) -> None:
        """OperandError where operands are left."""
        if self._next < len(self.call.operands):
            extra = self.call.operands[self._next]
            raise OperandError(
                f"{extra.position}: {self.opcode} takes {self._next} operands here; "
                f"{len(self.call.operands)} are given"
            )

    def vector(self, what: str, count: int, types: tuple[str, ...]) -> Array:
        """A braced vector of `count` registers or immediates: words ``(…, lanes, count)``."""
        items = self._vector_items(what, count)
        return np.stack([self._word(item, what, types) for item in items], axis=-1)

    def destination(self, what: str, count: int, types: tuple[str, ...]) -> tuple[str, ...]:
        """A braced vector of registers to write; ``_`` discards an element."""
        names = []
        for item in self._vector_items(what, count):
            if not isinstance(item, Name):
                raise OperandError(f"{item.position}: {what} is written; an immediate cannot be")
            if item.text != "_":
                self._check_type(item, what, types)
            names.append(item.text)
        return tuple(names)

    def _vector_items(self, what: str, count: int) -> tuple[Name | Integer | Float, ...]:
        operand = self.take(what)
        if not isinstance(operand, Vector):
            raise OperandError(
                f"{operand.position}: operand {what} is a vector of {count} registers in braces"
            )
        if len(operand.items) != count:
            raise OperandError(
                f"{operand.position}: operand {what} of {self.opcode} takes {count} registers; "
                f"{len(operand.items)} are given"
            )
        return operand.items

    def scalar(self, what: str, types: tuple[str, ...]) -> Array:
        """One bare register: words ``(…, lanes)``."""
        operand = self.take(what)
        if not isinstance(operand, Name):
            raise OperandError(f"{operand.position}: operand {what} is a single register")
        return self._word(operand, what, types)

    def immediate(self, what: str) -> int:
        """An integer immediate."""
        operand = self.take(what)
        if not isinstance(operand, Integer):
            raise OperandError(f"{operand.position}: operand {what} must be an integer immediate")
        return operand.value

    def predicate(self, what: str) -> Array | bool:
        """A predicate register, or an immediate 0 or 1."""
        operand = self.take(what)
        if isinstance(operand, Integer) and operand.value in (0, 1):
            return bool(operand.value)
        if not isinstance(operand, Name):
            raise OperandError(f"{operand.position}: operand {what} is a predicate, or 0 or 1")
        return self._uniform(self._word(operand, what, PREDICATE), operand.position, what) != 0

    def descriptor(self, what: str) -> Array:
        """A matrix descriptor: a 64-bit register that holds the same in all lanes."""
        operand = self.take(what)
        if not isinstance(operand, Name):
            raise OperandError(f"{operand.position}: operand {what} is a descriptor register")
        return self._uniform(self._word(operand, what, DESCRIPTOR), operand.position, what)

    def scale_ids(self, what: str) -> tuple[int, int]:
        """{byte-id, thread-id}: immediates, or 16-bit registers that hold the same in all lanes."""
        values = []
        for item in self._vector_items(what, 2):
            if isinstance(item, Integer):
                values.append(item.value)
            else:
                word = self._uniform(self._word(item, what, SCALE_ID), item.position, what)
                if word.ndim and (word != word.flat[0]).any():
                    raise UnsupportedError(f"{item.position}: {what} differs over the batch")
                values.append(int(word.flat[0]))
        return values[0], values[1]

    def is_vector(self) -> bool:
        """Whether the next operand is a braced vector."""
        return self._next < len(self.call.operands) and isinstance(
            self.call.operands[self._next], Vector
        )

    def _uniform(self, words: Array, position: Position, what: str) -> Array:
        if (words != words[..., :1]).any():
            raise OperandError(f"{position}: operand {what} must hold the same in all lanes")
        return words[..., 0]

    def _check_type(self, item: Name, what: str, types: tuple[str, ...]) -> None:
        name = self.registers.known(item.text, f"{item.position}: ")
        type_ = self.registers[name].type
        if type_ not in types:
            raise OperandError(
                f"{item.position}: operand {what} of {self.opcode} takes registers of type "
                f"{', '.join('.' + t for t in types)}; {item.text!r} is .{type_}"
            )

    def _word(self, item: Name | Integer | Float, what: str, types: tuple[str, ...]) -> Array:
        if isinstance(item, Name):
            self._check_type(item, what, types)
            self.reads.append(item.text)
            return self.registers[item.text].words
        bits = 64 if types in (ANY_64, DESCRIPTOR) else 32
        return np.full(
            self.registers.shape, self._constant(item, what, types, bits), code_type(bits)
        )

    def _constant(self, item: Integer | Float, what: str, types: tuple[str, ...], bits: int) -> int:
        single, integer = types == ("b32", "f32"), types == INTEGER
        if isinstance(item, Integer) and not single:
            return item.value & (1 << bits) - 1
        if isinstance(item, Float) and item.width == bits and not integer:
            return item.bits
        if isinstance(item, Float) and not item.width and (single or types == ANY_64):
            return int(encode(FORMATS[f"f{bits}"], item.value))
        raise OperandError(
            f"{item.position}: operand {what} of {self.opcode} does not take this immediate; "
            f"use a register of type {', '.join('.' + t for t in types)}"
        )


def bind(ins: MatrixInstruction, call: Call, registers: RegisterFile) -> Bound:
    """The operands of a matrix instruction statement.

    Raises OperandError, with line and column, for a wrong count, kind or type of operand.
    """
    binder = Binder(call, registers, str(ins))
    for operand in call.operands:
        if isinstance(operand, Address):
            raise OperandError(f"{operand.position}: {ins} takes no address operand")
    options: dict[str, Any] = {}

    def vector(what: str) -> Array:
        return binder.vector(what, ins.fragment(what).registers, register_types(ins, what))

    fragment = ins.fragment("d")
    destination = binder.destination("d", fragment.registers, register_types(ins, "d"))
    if ins.is_wgmma:
        from_registers = binder.is_vector()
        a = vector("a") if from_registers else binder.descriptor("a")
        b = binder.descriptor("b")
        if "_" in destination:
            raise OperandError(f"{call.position}: the accumulator of wgmma cannot be discarded")
        accumulator = np.stack([registers[name].words for name in destination], axis=-1)
        operands = [a, b, accumulator]
        reads = tuple(binder.reads) if from_registers else ()
    else:
        operands = [vector(what) for what in "abc"]
        reads = ()
    if ins.is_sparse:
        operands.append(binder.scalar("e", register_types(ins, "e")))
        options["selector"] = binder.immediate("selector")
    if ins.is_wgmma:
        options["scale_d"] = binder.predicate("scale-d")
        if ins.fragment("a").fmt.is_float:
            options["imm_scale_a"] = binder.immediate("imm-scale-a")
            options["imm_scale_b"] = binder.immediate("imm-scale-b")
            if ins.fragment("a").fmt.bits == 16:
                if not from_registers:
                    options["imm_trans_a"] = binder.immediate("imm-trans-a")
                options["imm_trans_b"] = binder.immediate("imm-trans-b")
    if ins.is_block_scaled:
        for x in "ab":
            options[f"scale_{x}"] = binder.scalar(f"scale_{x}", register_types(ins, f"scale_{x}"))
            ids = binder.scale_ids(f"ids_{x}")
            options[f"byte_id_{x}"], options[f"thread_id_{x}"] = ids
    binder.end()
    return Bound(ins, operands, options, destination, reads or tuple(binder.reads))
