"""``mov``: registers, immediates, addresses of variables, and packing and unpacking."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dtypes import FORMATS, Array, code_type, encode
from emulator.errors import OperandError, UnsupportedError, listing
from emulator.isa.register_types import REGISTER_BITS
from emulator.ptx.binder import Scope, spelled
from emulator.ptx.state import State
from emulator.ptx.syntax import Call, Float, Integer, Name, Operand, Place, Vector

#: mov types; a .b type takes every register of its size, a typed one its own kind and .b
_TYPES = {
    "b16": ("b16", "u16", "s16", "f16"),
    "b32": ("b32", "u32", "s32", "f32", "f16x2"),
    "b64": ("b64", "u64", "s64", "f64"),
    "u16": ("b16", "u16", "s16"), "s16": ("b16", "u16", "s16"),
    "u32": ("b32", "u32", "s32", "f16x2"), "s32": ("b32", "u32", "s32", "f16x2"),
    "u64": ("b64", "u64", "s64"), "s64": ("b64", "u64", "s64"),
    "f32": ("b32", "f32"), "f64": ("b64", "f64"), "pred": ("pred",),
}  # fmt: skip
#: what the parts of a packed word may be, by their bits
_PARTS = {8: ("b8", "u8", "s8"), 16: _TYPES["b16"], 32: _TYPES["b32"]}
#: registers that PTX predefines and a lane can read here
_SPECIAL = ("%laneid", "%tid.x", "%warpid")


@dataclass(frozen=True)
class MovStep:
    """One mov with operands that fit it."""

    type: str
    target: Name | Vector
    source: Operand
    where: str

    @property
    def bits(self) -> int:
        return REGISTER_BITS[self.type]

    def run(self, state: State) -> None:
        """Moves the words of all lanes."""
        words = self._source(state)
        if isinstance(self.target, Name):
            state.write(self.target.text, words, self.where)
            return
        part = self.bits // len(self.target.items)
        for i, item in enumerate(self.target.items):
            assert isinstance(item, Name)
            piece = words >> words.dtype.type(i * part) & words.dtype.type((1 << part) - 1)
            if item.text != "_":
                state.write(item.text, piece, self.where)

    def _source(self, state: State) -> Array:
        word, shape = code_type(self.bits), state.registers.shape
        source = self.source
        if isinstance(source, Name) and source.text in _SPECIAL:
            lane = np.arange(state.lanes)
            value = {"%laneid": lane % 32, "%tid.x": lane, "%warpid": lane // 32}[source.text]
            return np.broadcast_to(value.astype(word), shape).copy()
        if isinstance(source, Name | Place) and source_variable(source) in state.variables:
            variable = state.variables[source_variable(source)]
            address = variable.address
            if isinstance(source, Place):
                address += source.offset + source.index * variable.element_bytes
            return np.full(shape, address & (1 << self.bits) - 1, word)
        if isinstance(source, Name):
            return state.read(source.text, self.where)
        if isinstance(source, Vector):
            part = self.bits // len(source.items)
            out = np.zeros(shape, word)
            for i, item in enumerate(source.items):
                if isinstance(item, Name):
                    piece = state.read(item.text, self.where).astype(word)
                else:
                    assert isinstance(item, Integer)
                    piece = np.full(shape, item.value & (1 << part) - 1, word)
                out |= piece << word.type(i * part)
            return out
        return np.full(shape, constant(source, self.type), word)


def bind_mov(call: Call, scope: Scope) -> MovStep:
    """A mov, checked.

    Raises UnsupportedError for a type that mov does not have, OperandError, with line and column,
    for operands that it does not take.
    """
    type_ = call.opcode.removeprefix("mov.")
    if type_ not in _TYPES:
        raise UnsupportedError(
            f"no {call.opcode!r:.100}; mov takes {listing('.' + t for t in _TYPES)}"
        )
    if len(call.operands) != 2:
        raise OperandError(f"mov takes 2 operands; {len(call.operands)} are given")
    target, source = call.operands
    if isinstance(target, Vector) and isinstance(source, Vector):
        raise OperandError(f"{source.position}: mov packs or unpacks one vector, not two")
    if isinstance(target, Vector):
        _check_parts(target, type_, scope, written=True)
    elif isinstance(target, Name):
        _check_type(target, _TYPES[type_], call.opcode, scope)
    else:
        raise OperandError(f"{target.position}: mov writes a register; got {spelled(target)}")
    _check_source(source, type_, scope)
    return MovStep(type_, target, source, f"{call.position}: ")


def _check_source(source: Operand, type_: str, scope: Scope) -> None:
    bits, opcode = REGISTER_BITS[type_], f"mov.{type_}"
    if isinstance(source, Name) and source.text in _SPECIAL:
        if bits != 32:
            raise OperandError(f"{source.position}: {source.text} has 32 bits")
    elif isinstance(source, Vector):
        _check_parts(source, type_, scope, written=False)
    elif isinstance(source, Name | Place) and source_variable(source) in scope.variables:
        if type_[0] not in "bus":
            raise OperandError(
                f"{source.position}: {opcode} takes no address; {spelled(source)} is one"
            )
    elif isinstance(source, Place):
        raise OperandError(
            f"{source.position}: {source.base!r:.100} is no variable in shared memory; declared "
            f"are {listing(scope.variables) or 'none'}"
        )
    elif isinstance(source, Name):
        _check_type(source, _TYPES[type_], opcode, scope)
    else:
        constant(source, type_)


def source_variable(source: Name | Place) -> str:
    """The name that may be a variable's."""
    return source.base if isinstance(source, Place) else source.text


def constant(source: Operand, type_: str) -> int:
    """The word of an immediate; raises OperandError where `type_` takes no such one."""
    bits = REGISTER_BITS[type_]
    if isinstance(source, Integer) and type_[0] != "f":
        return int(source.value != 0) if type_ == "pred" else source.value & (1 << bits) - 1
    if isinstance(source, Float):
        if source.width == bits and type_[0] in "fb":
            return source.bits
        if not source.width and type_ in ("f32", "f64"):
            return int(encode(FORMATS[type_], source.value))
    raise OperandError(f"{source.position}: mov.{type_} does not take {spelled(source)}")


def _check_parts(vector: Vector, type_: str, scope: Scope, *, written: bool) -> None:
    """ptxas splits .b16, .b32 and .b64 into 2 or 4 parts of 8 bits or more."""
    part, left = divmod(REGISTER_BITS[type_], len(vector.items))
    if left or part not in _PARTS or len(vector.items) not in (2, 4) or type_[0] != "b":
        raise OperandError(
            f"{vector.position}: mov.b16, .b32 and .b64 hold 2 or 4 parts of 8, 16 or 32 bits; "
            f"got mov.{type_} with {len(vector.items)}"
        )
    names = [item for item in vector.items if isinstance(item, Name)]
    if written and len(names) < len(vector.items):
        raise OperandError(f"{vector.position}: a vector that mov writes holds registers alone")
    for item in vector.items:
        if isinstance(item, Float):
            raise OperandError(f"{item.position}: a part of mov.{type_} is an integer")
    if written and all(item.text == "_" for item in names):
        raise OperandError(f"{vector.position}: a vector of '_' alone moves nothing")
    for item in names:
        if item.text != "_" or not written:
            _check_type(item, _PARTS[part], f"mov.{type_} with {len(vector.items)} parts", scope)


def _check_type(item: Name, types: tuple[str, ...], opcode: str, scope: Scope) -> None:
    type_ = scope.register(item.text, f"{item.position}: ")
    if type_ not in types:
        raise OperandError(
            f"{item.position}: {opcode} takes registers of type "
            f"{', '.join('.' + t for t in types)}; {item.text!r:.100} is .{type_}"
        )
