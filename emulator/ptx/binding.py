"""Operands of one instruction, checked against its signature and bound to what their names mean."""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NoReturn, TypeVar, cast

from dtypes import FORMATS, encode
from emulator.arith.scalar.types import TYPES
from emulator.errors import OperandError, hint, listing, near_name
from emulator.isa.instruction import effects_of
from emulator.isa.register_types import REGISTER_BITS
from emulator.isa.signature import Constants, Operand, Signature
from emulator.memory.windows import WINDOW_BITS
from emulator.ptx import tree
from emulator.ptx.names import ELEMENTS, Scope, Symbol, special_elements, special_types
from emulator.ptx.program import (
    Address,
    Bound,
    Constant,
    Inverted,
    LocalAddress,
    ParameterPlace,
    Register,
    SharedAddress,
    SpecialRegister,
    Target,
    Targets,
    Vector,
)

#: state spaces of handles
_HANDLES = ("texture", "surface", "sampler")
_MASK = (1 << 64) - 1
#: the type of an integer immediate beside registers: like .s32, but not the same
_INTEGER = "integer"
#: `Operand.constants` -> what may stand in place of a register, and that in words
_LEGAL_CONSTANTS: dict[Constants, tuple[type, ...]] = {
    "none": (), "words": (tree.Integer,), "integers": (tree.Integer,), "values": (tree.Float,),
    "hexadecimal": (tree.Float,), "any": (tree.Integer, tree.Float),
}  # fmt: skip
_CONSTANTS_IN_WORDS: dict[Constants, str] = {
    "none": "", "words": " or an integer", "integers": " or an integer",
    "values": " or an f32 immediate", "hexadecimal": " or an f32 immediate in hexadecimal",
    "any": " or an immediate",
}  # fmt: skip


#: state space -> the address of a variable that only a launch has
_PLACES: dict[str, type[LocalAddress | SharedAddress]] = {
    "local": LocalAddress, "shared": SharedAddress,
}  # fmt: skip
#: state spaces whose variables have generic addresses by their names
_GENERIC = ("global", "shared", "local")
#: registers of coordinates and offsets that are integers
_INTEGERS = ("b32", "u32", "s32")
#: registers of places in a logical endpoint
_PLACES_TYPES = ("b64", "u64", "s64")


_Item = TypeVar("_Item", bound=tree.Operand)


@dataclass(eq=False)
class Binder:
    """Binds the operands of one statement; raises OperandError, with the place as `at`."""

    scope: Scope
    opcode: str
    functions: Mapping[str, int]
    #: parts of registers that were named, see `Statement`
    selectors: dict[str, str] = field(default_factory=dict)

    def bind(self, signature: Signature, given: tuple[tree.Operand, ...]) -> dict[str, Bound]:
        """The operands by name; those left out are not there."""
        left = list(_flat(given))
        out: dict[str, Bound] = {}
        needed = sum(not operand.optional for operand in signature.operands)
        for operand in signature.operands:
            if not self._is_next(operand, left, needed):
                if operand.optional:
                    continue
                raise OperandError(
                    f"{self.opcode} lacks operand {operand.name}; it takes "
                    f"{listing(signature.names)} ({len(given)} are given)"
                )
            needed -= not operand.optional
            item = left.pop(0)[0]
            bound = self.operand(operand, item)
            if bound is not None:
                out[operand.name] = bound
            elif operand.kind == "vector" and operand.use == "read":
                break  # behind a number for offsets nothing counts
            if isinstance(bound, ParameterPlace):
                self._check_inside(bound, signature, item)
        packed = [x for x in signature.operands if x.pieces and x.name in out]
        if all(isinstance(out[x.name], Vector) for x in packed) and len(packed) > 1:
            raise OperandError(f"{self.opcode} packs or unpacks one vector, not two")
        if {"ignore", "source_size"} <= out.keys():
            raise OperandError(f"{self.opcode} takes a predicate or a size of the source, not both")
        size, used = out.get("size"), out.get("source_size")
        if isinstance(size, Constant) and isinstance(used, Constant) and used.word > size.word:
            what = (
                f"{self.opcode} copies {size.word} bytes: at most so many of them come from memory"
            )
            raise OperandError(f"{what}; got {used.word}")
        absent = {x.name for x in signature.operands if x.optional} - out.keys()
        if absent and "dsel" in self.selectors:
            raise OperandError(f"{self.opcode} lacks operand c: it has what a part of d leaves out")
        if left:
            names = listing(signature.names)
            self.refuse(left[0][0], f"{self.opcode} takes {names}; one operand too many is")
        return out

    def _check_inside(
        self, place: ParameterPlace, signature: Signature, given: tree.Operand
    ) -> None:
        """Raises BindError for bytes that a parameter of a call does not have. ptxas takes them,
        and what they are is undefined."""
        held = self.scope.function.registers[place.index]
        size = sum(TYPES[x.type].size // 8 * x.count for x in signature.operands if x.type)
        if not 0 <= place.offset <= held.zero.nbytes - size:
            last = place.offset + size - 1
            what = (
                f"{self.opcode} takes bytes {place.offset} … {last} of {held.name}, {held.passed}:"
            )
            self.refuse(given, what)

    def _is_next(
        self, operand: Operand, left: list[tuple[tree.Operand, bool]], needed: int
    ) -> bool:
        """True if the next operand given is this one, which is not left out."""
        if not left or left[0][1] != operand.paired:
            return False
        return not operand.optional or (len(left) > needed and self._may_be(operand, left[0][0]))

    def _may_be(self, operand: Operand, given: tree.Operand) -> bool:
        """True if a given operand can be one that may be left out."""
        if operand.kind == "address":
            return isinstance(given, tree.Address)
        if operand.kind == "vector":
            return isinstance(given, tree.Vector) or self._is_dropped(operand, given)
        if operand.braces and isinstance(given, tree.Vector):
            return True
        if operand.kind == "predicate":
            named = given.operand if isinstance(given, tree.Negated) else given
            register = self._register(named) if isinstance(named, tree.Name) else None
            return register is not None and self._type(register) == "pred"
        return not isinstance(given, (tree.Address, tree.Vector))

    def _is_dropped(self, operand: Operand, given: tree.Operand) -> bool:
        """True if an integer stands in place of a vector, which drops it."""
        if not operand.sink or isinstance(given, tree.Integer):
            return operand.sink
        register = self._register(given) if isinstance(given, (tree.Name, tree.Element)) else None
        is_integer = register is not None and self._type(register) in _INTEGERS
        return operand.sink_register and is_integer

    def operand(self, operand: Operand, given: tree.Operand) -> Bound | None:
        """One operand; None for a result that is dropped."""
        if isinstance(given, tree.Name) and given.text == "_":
            if operand.sink and (operand.kind != "vector" or operand.type):
                return None
            self.unfit(operand, given, "cannot be dropped; got")
        if operand.name == "_":
            self.refuse(given, f"the result of {self.opcode} is dropped: '_' stands there; got")
        if operand.kind == "vector":
            if operand.sink and operand.use == "read" and not isinstance(given, tree.Vector):
                return None
            return self._vector(operand, given)
        if operand.kind == "address":
            return self.address(operand, given)
        if operand.kind == "label":
            return self._label(operand, given)
        if operand.kind == "immediate":
            return self._immediate(operand, given)
        if operand.kind == "ids":
            return self._ids(operand, given)
        if operand.selector and isinstance(given, tree.Element):
            return self._selected(operand, given)
        if operand.braces and isinstance(given, tree.Vector):
            return self._first_in_braces(operand, given)
        return self.scalar(operand, given)

    # --- registers and values ---

    def scalar(self, operand: Operand, given: tree.Operand) -> Bound:
        """A register, or an immediate or an address in its place."""
        if isinstance(given, (tree.Name, tree.Element)):
            return self._named(operand, given)
        if isinstance(given, tree.Negated):
            if operand.kind != "predicate":
                self.unfit(operand, given, "is not negated by '!'")
            bound = self._named(operand, given.operand)
            return Inverted(bound.index) if isinstance(bound, Register) else bound
        if isinstance(given, tree.Vector) and operand.pieces:
            return self._pieces(operand, given)
        if operand.use != "read":
            self.unfit(operand, given, "is written; got")
        if isinstance(given, tree.Offset | tree.Index):
            return self._variable(operand, given)
        if isinstance(given, (tree.Integer, tree.Float)):
            return self._constant(operand, given)
        self.unfit(operand, given, "is a single register; got")

    def _named(self, operand: Operand, given: tree.Name | tree.Element) -> Bound:
        name, register = _spelled_name(given), self._register(given)
        if register is not None:
            self._check_type(operand, register, given)
            return register
        if operand.use == "read":
            if isinstance(given, tree.Name):
                if name == "WARP_SZ":
                    return Constant(32)
                if name in self.functions and not operand.space:
                    return Constant(self.functions[name])
                symbol = self.scope.symbol(name)
                if symbol is not None and operand.symbol:
                    return self._variable(operand, self._whole(operand, symbol, given))
            if (parts := special_elements(name)) and operand.type == "b128" and self._moves:
                return Vector(tuple(map(SpecialRegister, parts)))
            if (legal := special_types(name)) is not None:
                self._check_special(operand, name, legal, given)
                if isinstance(given, tree.Element):
                    name = special_elements(given.register)[ELEMENTS[given.element]]
                return SpecialRegister(name)
        self._undeclared(given, name)

    def _whole(self, operand: Operand, symbol: Symbol, given: tree.Name) -> tree.Offset:
        """The start of a variable, which is given by its name alone."""
        type_ = TYPES.get(operand.type)
        if symbol.space == "global" and type_ is not None and type_.size < 64:
            what = f"the address of {given.text!r:.100}, in .global memory, has 64 bits"
            raise BindError(f"{what}; {self.opcode} takes {type_.size}", given.at)
        return tree.Offset(given.text, 0, given.at)

    @property
    def _moves(self) -> bool:
        return "moves" in effects_of(self.opcode)

    def _check_special(
        self, operand: Operand, name: str, legal: tuple[str, ...], given: tree.Operand
    ) -> None:
        """Raises BindError where ptxas does not take a register that PTX predefines."""
        if "special" not in effects_of(self.opcode):
            raise BindError(
                f"{self.opcode} takes no special register: mov {name} to another one first",
                given.at,
            )
        if self._moves and operand.type not in legal:
            read = listing(f".{t}" for t in legal)
            what = f"read as {read}" if legal else f"a vector: {name}.x, .y, .z"
            raise BindError(f"{name} is {what}; {self.opcode} does not fit", given.at)

    def _register(self, given: tree.Name | tree.Element) -> Register | None:
        """The register of that name, or an element of a vector register."""
        register = self.scope.register(_spelled_name(given))
        if register is None and isinstance(given, tree.Element):
            parts = self.scope.vector(given.register)
            if parts is not None and given.element in ELEMENTS:
                place = ELEMENTS[given.element]
                register = Register(parts[place]) if place < len(parts) else None
        return register

    def _type(self, register: Register) -> str:
        return self.scope.function.registers[register.index].type

    def _check_type(self, operand: Operand, register: Register, given: tree.Operand) -> None:
        held = self._type(register)
        if operand.types and held not in operand.types:
            types = listing(f".{t}" for t in operand.types)
            raise BindError(
                f"operand {operand.name} of {self.opcode} takes registers of type {types}; "
                f"{spelled(given)} is .{held}",
                given.at,
            )

    def _variable(self, operand: Operand, given: tree.Offset | tree.Index) -> Bound:
        """The address of a variable, as a value."""
        symbol = self.scope.symbol(given.name)
        if symbol is None:
            if isinstance(given, tree.Offset) and given.name in self.functions:
                return Constant(self.functions[given.name] + given.offset)
            self._undeclared(given, given.name)
        if operand.space and not operand.space.startswith(symbol.space):
            what = f"{self.opcode} takes a variable in .{operand.space}; {given.name!r:.100} is in"
            raise BindError(f"{what} .{symbol.space}", given.at)
        type_ = TYPES.get(operand.type or _bits_of(operand))
        part = operand.kind == "vector" and not operand.symbol
        if part or type_ is None or type_.kind not in ("unsigned", "signed", "bits"):
            what = f"operand {operand.name} of {self.opcode} takes no address"
            raise BindError(f"{what}; {given.name!r:.100} is a variable", given.at)
        if isinstance(given, tree.Offset):
            offset = given.offset
        else:
            offset = given.subscript * symbol.element_bytes
        if symbol.space in _PLACES:
            return _PLACES[symbol.space](symbol.place + offset)
        if symbol.space == "param::func":
            self.refuse(given, "the address of a parameter of a function cannot be taken:")
        bits = TYPES[operand.type].size if operand.type in TYPES else 64
        if symbol.space == "param":
            bits = min(bits, WINDOW_BITS)
        return Constant(symbol.place + offset & (1 << bits) - 1)

    def _constant(self, operand: Operand, given: tree.Integer | tree.Float) -> Constant:
        if operand.kind == "predicate":
            # Of the matrix instructions alone ptxas wants 0 or 1.
            is_register = bool(operand.type) and operand.constants == "none"
            is_bit = bool(operand.type) or given.value in (0, 1)
            if isinstance(given, tree.Integer) and is_bit and not is_register:
                return Constant(int(given.value != 0))
            also = "" if is_register else ", or 0 or 1"
            self.unfit(operand, given, f"is a predicate{also}; got")
        if operand.kind == "descriptor" and isinstance(given, tree.Integer):
            return Constant(given.value & _MASK)
        type_ = TYPES.get(operand.type or _bits_of(operand))
        legal = _LEGAL_CONSTANTS[operand.constants]
        if type_ is None or not isinstance(given, legal):
            also = _CONSTANTS_IN_WORDS[operand.constants]
            self.unfit(operand, given, f"is a single register{also}; got")
        if isinstance(given, tree.Float):
            return Constant(self._float(operand, given))
        if type_.is_float:
            self.unfit(operand, given, f"is of .{type_.name}; got")
        if operand.values and given.value & _MASK not in operand.values:
            self.unfit(operand, given, f"is {_either(operand.values)}, or a register; got")
        return Constant(given.value & (1 << type_.size) - 1)

    def _float(self, operand: Operand, given: tree.Float) -> int:
        type_ = TYPES[operand.type or _bits_of(operand)]
        if type_.kind not in ("float", "bits") or type_.size not in (32, 64):
            self.unfit(operand, given, f"is of .{type_.name}; got")
        if given.width == type_.size:
            return given.bits
        if operand.constants != "values" and (type_.kind == "bits" or not operand.type):
            # Of an f64 ptxas would take the low half, so that 1.0 becomes 0.
            digits = "0f and 8 digits" if type_.size == 32 else "0d and 16 digits"
            text = f"has {type_.size} bits, written hexadecimal as {digits}; got"
            self.unfit(operand, given, text)
        if type_.size == 32:
            return int(encode(FORMATS["f32"], given.value))
        (word,) = struct.unpack("<Q", struct.pack("<d", given.value))
        return int(word)

    def _immediate(self, operand: Operand, given: tree.Operand) -> Constant:
        if not isinstance(given, tree.Integer):
            legal = f", {_either(operand.values)}" if operand.values else ""
            self.unfit(operand, given, f"is an integer immediate{legal}; got")
        value = given.value - (1 << 64) if given.value >> 63 else given.value
        if operand.values and value not in operand.values and given.value not in operand.values:
            self.unfit(operand, tree.Integer(value, given.at), f"is {_either(operand.values)}; got")
        return Constant(given.value & _MASK)

    def _vector(self, operand: Operand, given: tree.Operand) -> Vector:
        items: tuple[tree.Operand, ...]
        if not operand.type:
            return self._fragment(operand, given)
        if isinstance(given, tree.Vector):
            items = given.items
        elif isinstance(given, tree.Name) and (parts := self.scope.vector(given.text)):
            if len(parts) == operand.count:
                return Vector(tuple(map(Register, parts)))
            items = (given,)
        elif isinstance(given, tree.Name) and len(special_elements(given.text)) == operand.count:
            items = tuple(tree.Element(given.text, letter, given.at) for letter in "xyzw")
        else:
            many = f"{operand.count} register{'s' if operand.count > 1 else ''} in braces"
            self.unfit(operand, given, f"is {many}; got")
        if operand.sink and operand.use == "read":
            items = _counted(items, operand.count)
        if len(items) != operand.count:
            text = f"takes {operand.count} registers; {len(items)} are given:"
            self.unfit(operand, given, text)
        if all(_is_dropped(item) for item in items):
            self.unfit(operand, given, "is all '_':")
        return Vector(tuple(self._item(operand, item) for item in items))

    # --- registers of a matrix ---

    def _fragment(self, operand: Operand, given: tree.Operand) -> Vector:
        """The registers of a matrix. ptxas gives the vector a type: that of all its elements, or
        .b where they differ; measured, form by form, with `isa.register_types`."""
        many = f"{operand.count} register{'s' if operand.count > 1 else ''}"
        if not isinstance(given, tree.Vector):
            self.unfit(operand, given, f"is a vector of {many} in braces; got")
        if len(given.items) != operand.count:
            self.unfit(operand, given, f"takes {many}; {len(given.items)} are given:")
        return Vector(tuple(self._elements(operand, given.items, given)))

    def _elements(
        self, operand: Operand, items: Sequence[tree.Operand], given: tree.Operand
    ) -> list[Bound | None]:
        """The items of a vector, each beside those that it may stand beside."""
        out: list[Bound | None] = []
        types: list[str] = []
        for item in items:
            bound = self._element(operand, item)
            out.append(bound)
            if bound is None:
                continue
            type_ = self._element_type(operand, item, bound)
            if types and not _fit(types[-1], type_):
                raise BindError(
                    f"{spelled(item)} is .{type_} and stands beside .{types[-1]} in operand "
                    f"{operand.name} of {self.opcode}; only .b{REGISTER_BITS[operand.types[0]]} "
                    "goes with other types",
                    item.at,
                )
            types.append(type_)
        if not types:
            self.unfit(operand, given, "is all '_', where one register at least is needed:")
        registers = [
            (item, bound)
            for item, bound in zip(items, out, strict=True)
            if isinstance(bound, Register)
        ]
        if not registers:
            type_ = types[0]
            if type_ == _INTEGER:
                type_ = "s32" if operand.constants == "integers" else "s64"
            if type_ not in operand.types:
                legal = listing(f".{t}" for t in operand.types)
                text = f"holds immediates alone, of type .{type_}; legal are {legal}:"
                self.unfit(operand, given, text)
        if operand.each or len(set(types)) == 1:
            for item, register in registers:
                self._check_type(operand, register, item)
        return out

    def _element(self, operand: Operand, item: tree.Operand) -> Bound | None:
        """One item of a vector; what its type is beside the others is not asked yet."""
        if isinstance(item, tree.Name) and item.text == "_":
            if not operand.sink:
                why = "ptxas needs it here" if operand.use == "written" else "it is read"
                self.unfit(operand, item, f"cannot be discarded, {why}:")
            return None
        if isinstance(item, (tree.Name, tree.Element)):
            bound = self._register(item)
            if bound is None:
                self._undeclared(item, _spelled_name(item))
            held = self.scope.function.registers[bound.index].type
            if REGISTER_BITS[held] != REGISTER_BITS[operand.types[0]]:
                self._check_type(operand, bound, item)
            return bound
        if operand.use != "read":
            self.unfit(operand, item, "is written; an immediate cannot be:")
        if operand.constants == "integers" and isinstance(item, tree.Float):
            self.unfit(operand, item, "is of integers; got")
        assert isinstance(item, (tree.Integer, tree.Float))
        if operand.constants in ("words", "integers") or operand.braces:
            # Beside registers, floats stand where integers do.
            return self._constant(replace(operand, constants="any"), item)
        return self._constant(operand, item)

    def _element_type(self, operand: Operand, item: tree.Operand, bound: Bound) -> str:
        """The type that an item has in its vector."""
        bits = REGISTER_BITS[operand.types[0]]
        if isinstance(bound, Register):
            return self.scope.function.registers[bound.index].type
        type_ = f"f{bits}" if isinstance(item, tree.Float) else f"s{bits}"
        if operand.each and type_ not in operand.types:
            self.unfit(operand, item, "is a register here; got")
        return type_ if isinstance(item, tree.Float) else _INTEGER

    def _first_in_braces(self, operand: Operand, given: tree.Vector) -> Bound:
        """A register in braces, where those behind it do not count: of scales."""
        if len(given.items) not in (1, 2, 4) or not isinstance(given.items[0], tree.Name):
            self.unfit(operand, given, "is a register, or 1, 2 or 4 in braces; got")
        first = self._elements(operand, given.items, given)[0]
        assert first is not None
        return first

    # --- registers that share a word ---

    def _pieces(self, operand: Operand, given: tree.Vector) -> Vector:
        """Registers in braces that share the bits of one operand, the first one the lowest."""
        count = len(given.items)
        if operand.use == "written" and all(_is_dropped(item) for item in given.items):
            self.unfit(operand, given, "is all '_', which moves nothing:")
        size = TYPES[operand.type].size if operand.type else 0
        types = tuple(t for t, bits in REGISTER_BITS.items() if bits == size // count)
        if count not in operand.pieces or (count > 1 and not types):
            *most, last = (str(n) for n in operand.pieces if n == 1 or size // n >= 8)
            legal = " or ".join([", ".join(most), last] if most else [last])
            self.unfit(operand, given, f"has {legal} parts; got")
        if count == 1:
            return Vector((self._item(operand, given.items[0]),))
        part = replace(
            operand,
            type=f"b{size // count}",
            types=types,
            kind="vector",
            constants="words",
            symbol=False,
        )
        return Vector(tuple(self._item(part, item) for item in given.items))

    def _item(self, operand: Operand, item: tree.Operand) -> Bound | None:
        if isinstance(item, tree.Name) and item.text == "_":
            if operand.use != "written":
                self.unfit(operand, item, "is read; got")
            return None
        return self.scalar(operand, item)

    # --- addresses and labels ---

    def address(self, operand: Operand, given: tree.Operand) -> Address | ParameterPlace:
        """``[…]``, or a vector of coordinates behind a tensor map's address."""
        if not isinstance(given, tree.Address):
            text = "is an address, [register+offset] or [variable+offset]; got"
            self.unfit(operand, given, text)
        coordinates = self._coordinates(operand, given)
        if given.base is None and operand.space in ("tensor", "texture", "surface"):
            what = f"the address of {self.opcode}, operand {operand.name}, is a register; got"
            self.refuse(given, what)
        name = given.base.text if given.base else ""
        register = self.scope.register(name)
        if operand.space == "param::func" and (register or given.base is None):
            what = f"{self.opcode} takes a parameter of a function that is called, by its name; got"
            self.refuse(given, what)
        if given.base is None:
            if not self._may_be_number(operand.space):
                where = f".{operand.space}" if operand.space else "generic"
                what = (
                    f"{self.opcode} takes no number for an address in {where} memory; mov it to a"
                )
                self.refuse(given, f"{what} register first; got")
            return Address(Constant(given.offset & _MASK), 0, operand.space, coordinates)
        if register is not None:
            held = self.scope.function.registers[register.index].type
            if held not in operand.types:
                legal = listing(f".{t}" for t in operand.types)
                what = f"the address of {self.opcode}, operand {operand.name}, is a register of"
                self.refuse(given, f"{what} type {legal}; {name!r} is .{held}:")
            if REGISTER_BITS[held] < 64 and not -(1 << 31) <= given.offset < 1 << 32:
                what = f"the offset of operand {operand.name} of {self.opcode} has 32 bits"
                self.refuse(given, f"{what}; got")
            return Address(register, given.offset, operand.space, coordinates)
        symbol = self.scope.symbol(name)
        if symbol is None:
            if name in self.functions:
                base = Constant(self.functions[name])
                return Address(base, given.offset, operand.space, coordinates)
            self._undeclared(given, name)
        if (wanted := self._space_for(operand, symbol)) is not None:
            self.refuse(
                given,
                f"{self.opcode} takes an address in .{wanted}; {name!r} is in .{symbol.space}:",
            )
        if symbol.space == "param::func":
            return ParameterPlace(symbol.place, given.offset)
        place = _PLACES.get(symbol.space, Constant)(symbol.place)
        return Address(place, given.offset, operand.space or symbol.space, coordinates, name)

    def _may_be_number(self, space: str) -> bool:
        """True if an address in a state space may be a number: ptxas takes one in .local alone."""
        shared = space.startswith("shared") and any(x.shared_numbers for x in self.scope.around())
        return shared or space == "local"

    def _space_for(self, operand: Operand, symbol: Symbol) -> str | None:
        """The state space that ptxas wants for an address, where a variable is in another one; None
        where the variable will do."""
        space, held = operand.space, symbol.space
        if not space:
            effects = effects_of(self.opcode)
            if "orders" in effects:
                fits = held not in (*_HANDLES, "param::func")
            elif "mbarrier" in effects:
                return None if held == "shared" else "shared"
            else:
                fits = held == "global" if operand.coordinates else held in _GENERIC
            return None if fits else "global"
        alike = space.startswith(held) or held.startswith(space)
        handle = held in _HANDLES and space != held
        passed = space == "param::func" and held != space
        if held == "param" and "writes" in effects_of(self.opcode):
            return "param::func"
        return space if not alike or handle or passed else None

    def _coordinates(self, operand: Operand, given: tree.Address) -> tuple[Bound, ...]:
        """The coordinates behind the base of an address: one for each axis of the tensor."""
        if operand.space == "texture" and operand.coordinates:
            return self._texture_coordinates(operand, given)
        needed = operand.coordinates
        if operand.space == "endpoint":
            return self._places(operand, given)
        sets = [x.items if isinstance(x, tree.Vector) else (x,) for x in given.coordinates]
        if operand.space == "surface":
            sets = [_counted(items, needed) for items in sets]
        if [len(items) for items in sets] != ([needed] if needed else []):
            many = f"{needed} coordinates in braces" if needed else "no coordinates"
            what = f"the address of {self.opcode}, operand {operand.name}, takes {many}"
            self.refuse(given, f"{what}; got")
        if operand.space != "surface":
            # As of matrices, it is the vector as a whole that has a type.
            whole = Operand("coordinates", "vector", _INTEGERS, constants="integers")
            return tuple(Vector(tuple(self._elements(whole, items, given))) for items in sets)
        out = tuple(Vector(tuple(map(self._coordinate, items))) for items in sets)
        for item, bound in zip(sum(sets, ()), sum((x.items for x in out), ()), strict=True):
            if isinstance(bound, Register):
                self._check_type(replace(operand, types=_INTEGERS), bound, item)
        return out

    def _places(self, operand: Operand, given: tree.Address) -> tuple[Bound, ...]:
        """The places in a logical endpoint behind its number, each in a register."""
        count, place = operand.coordinates, replace(operand, kind="register", types=_PLACES_TYPES)
        if len(given.coordinates) != count or given.base is None or given.offset:
            what = f"{self.opcode} takes an endpoint and {count} place{'s' * (count > 1)} in it"
            self.refuse(given, f"{what}, all of them in registers; got")
        return tuple(self.scalar(place, item) for item in given.coordinates)

    def _texture_coordinates(self, operand: Operand, given: tree.Address) -> tuple[Bound, ...]:
        """The coordinates behind a texture's handle, and that of a sampler where one is given."""
        samplers, needed = given.coordinates[:-1], operand.coordinates
        items: tuple[tree.Operand, ...] = ()
        if given.coordinates:
            last = given.coordinates[-1]
            items = last.items if isinstance(last, tree.Vector) else (last,)
        items = _counted(items, needed)
        if len(items) != needed or len(samplers) > 1:
            what = f"the address of {self.opcode}, operand {operand.name}, takes a texture, or a "
            what += f"texture and a sampler, and {needed} coordinates in braces"
            self.refuse(given, f"{what}; got")
        first: list[Bound] = []
        if operand.layered:
            layer = Operand("layer", "register", _INTEGERS, type="u32", constants="words")
            first.append(self.scalar(layer, items[0]))
        floats = operand.type == "f32"
        types, constants = (("f32", *_INTEGERS), "values") if floats else (_INTEGERS, "integers")
        rest = Operand("coordinates", "vector", types, constants=cast("Constants", constants))
        vector = Vector((*first, *self._elements(rest, items[len(first) :], given)))
        handle = replace(operand, kind="register", type="b64", coordinates=0, space="", symbol=True)
        return (*(self.scalar(handle, sampler) for sampler in samplers), vector)

    def _coordinate(self, item: tree.Operand) -> Bound:
        if isinstance(item, tree.Integer):
            return Constant(item.value & _MASK)
        if not isinstance(item, (tree.Name, tree.Element)):
            self.refuse(item, f"a coordinate of {self.opcode} is an integer; got")
        register = self._register(item)
        if register is None:
            self._undeclared(item, _spelled_name(item))
        return register

    def _ids(self, operand: Operand, given: tree.Operand) -> Vector:
        """{byte-id, thread-id}, each an immediate or a register."""
        if not isinstance(given, tree.Vector) or len(given.items) != len(operand.parts):
            names = ", ".join(part.name for part in operand.parts)
            self.unfit(operand, given, f"is {{{names}}}; got")
        out: list[Bound | None] = []
        for part, item in zip(operand.parts, given.items, strict=True):
            if isinstance(item, tree.Integer):
                out.append(self._immediate(part, item))
            else:
                out.append(self.scalar(part, item))
        return Vector(tuple(out))

    def _selected(self, operand: Operand, given: tree.Element) -> Bound:
        """A register, a part of which is meant: ``%r1.b2``."""
        if not re.fullmatch(operand.selector, given.element):
            self.unfit(operand, given, "has no such part:")
        self.selectors[f"{operand.name}sel"] = given.element
        return self.scalar(operand, tree.Name(given.register, given.at))

    def _label(self, operand: Operand, given: tree.Operand) -> Target | Targets:
        if not isinstance(given, tree.Name):
            self.unfit(operand, given, "is a label; got")
        pc = self.scope.label(given.text)
        if pc is not None:
            return Target(pc)
        found = self.scope.target_list(given.text)
        if found is not None:
            return Targets(tuple(self._label_of(name) for name in found.targets))
        labels = [x for scope in self.scope.around() for x in (*scope.labels, *scope.lists)]
        self.refuse(given, f"no label {given.text!r}{hint(given.text, labels)}:")

    def _label_of(self, name: tree.DeclaredName) -> int:
        pc = self.scope.label(name.text)
        if pc is None:
            raise OperandError(f"no label {name.text!r} in a list of targets")
        return pc

    # --- errors ---

    def refuse(self, given: tree.Operand, message: str) -> NoReturn:
        raise BindError(f"{message} {spelled(given)}", given.at)

    def unfit(self, operand: Operand, given: tree.Operand, text: str) -> NoReturn:
        """Refuses what stands for an operand; `text` says what that is or takes."""
        self.refuse(given, f"operand {operand.name} of {self.opcode} {text}")

    def _undeclared(self, given: tree.Operand, name: str) -> NoReturn:
        symbol = self.scope.symbol(name)
        if symbol is not None:
            space = symbol.space.partition("::")[0]
            what = f"{name!r:.100} is a variable in .{space} memory, not a register"
            raise BindError(f"{what}: mov its address to one first", given.at)
        known = self.scope.known()
        if isinstance(given, (tree.Offset, tree.Index)):
            known = [x for scope in self.scope.around() for x in scope.symbols]
        raise BindError(
            f"{name!r:.100} is not declared; declared are {listing(known) or 'none'}"
            f"{near_name(name, known)}",
            given.at,
        )


def choose(signatures: tuple[Signature, ...], given: tuple[tree.Operand, ...]) -> Signature:
    """Of the ways to write an instruction the one that is meant: by what stands in braces and in
    brackets, and by the number of operands."""

    def likeness(signature: Signature) -> tuple[int, int]:
        shapes = [
            (operand.kind == "vector") == isinstance(x, tree.Vector)
            and (operand.kind == "address") == isinstance(x, tree.Address)
            for operand, x in zip(signature.operands, given, strict=False)
        ]
        return [*shapes, False].index(False), -abs(len(signature.operands) - len(given))

    return signatures[0] if len(signatures) == 1 else max(signatures, key=likeness)


class BindError(OperandError):
    """An operand that does not fit, and where it stands in the text."""

    def __init__(self, message: str, at: int) -> None:
        super().__init__(message)
        self.at = at


def _bits_of(operand: Operand) -> str:
    """The type of bits that an operand's registers have."""
    return f"b{REGISTER_BITS[operand.types[0]]}" if operand.types else ""


def _flat(given: tuple[tree.Operand, ...]) -> list[tuple[tree.Operand, bool]]:
    """Operands one by one, and whether each stands behind a bar: ``d|p`` are two."""
    out: list[tuple[tree.Operand, bool]] = []
    for operand in given:
        if isinstance(operand, tree.Pair):
            out += [(operand.first, False), (operand.second, True)]
        else:
            out.append((operand, False))
    return out


#: values that a message lists; of more it has the ends
_LISTED = 1024


def _either(values: tuple[int, ...] | range) -> str:
    if isinstance(values, range) and values[-1] >> 32:
        return f"{values[0]} or more in steps of {values.step}"
    if isinstance(values, range) and len(values) > (12 if values.step == 1 else _LISTED):
        steps = "" if values.step == 1 else f" in steps of {values.step}"
        return f"{values[0]} … {values[-1]}{steps}"
    return f"one of {listing(values)}" if len(values) > 2 else " or ".join(map(str, values))


def _counted(items: tuple[_Item, ...], needed: int) -> tuple[_Item, ...]:
    """The coordinates or offsets that count: ptxas drops those that a geometry does not have."""
    return items[:needed] if len(items) in (2, 4) else items


def _is_dropped(given: tree.Operand) -> bool:
    return isinstance(given, tree.Name) and given.text == "_"


def _fit(one: str, other: str) -> bool:
    """True if two types may be neighbours in a vector, which is what ptxas compares."""
    return one == other or "b" in one + other or {one[0], other[0]} <= {"u", "s", "i"}


def _spelled_name(given: tree.Name | tree.Element) -> str:
    return given.text if isinstance(given, tree.Name) else f"{given.register}.{given.element}"


def spelled(given: tree.Operand) -> str:
    """An operand as it was written, for a message."""
    if isinstance(given, (tree.Name, tree.Element)):
        return repr(_spelled_name(given))
    if isinstance(given, tree.Integer):
        return str(given.value)
    if isinstance(given, tree.Float):
        return repr(given.value)
    if isinstance(given, tree.Vector):
        return f"{{{', '.join(spelled(x).strip(chr(39)) for x in given.items)}}}"
    if isinstance(given, tree.Address):
        base = given.base.text if given.base else ""
        offset = f"{given.offset:+}" if given.offset or not base else ""
        return f"[{base}{offset}]"
    if isinstance(given, tree.Negated):
        return f"!{spelled(given.operand)}"
    if isinstance(given, tree.Offset):
        return f"{given.name}+{given.offset}"
    if isinstance(given, tree.Index):
        return f"{given.name}[{given.subscript}]"
    return type(given).__name__.lower()
