"""Checks the operands of a statement against its slots, with ptxas's rules for kinds and types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from emulator.errors import OperandError, listing
from emulator.isa.operands import REGISTER_BITS
from emulator.ptx.registers import RegisterFile
from emulator.ptx.shared import SharedVariables
from emulator.ptx.slots import (
    Descriptor,
    Ids,
    Immediate,
    Memory,
    Predicate,
    Registers,
    Slot,
)
from emulator.ptx.syntax import (
    Address,
    Call,
    Float,
    Integer,
    Name,
    Negated,
    Operand,
    Place,
    Vector,
)

Item = Name | Integer | Float
#: the type of an integer immediate beside registers: like .s32, but not the same
_INTEGER = "integer"


@dataclass(frozen=True)
class Scope:
    """The names that a statement can use."""

    registers: RegisterFile
    variables: SharedVariables

    def register(self, name: str, where: str) -> str:
        """The type of register `name`; raises OperandError where it is none."""
        if name in self.variables:
            raise OperandError(f"{where}{name!r} is a variable in shared memory, not a register")
        return self.registers[self.registers.known(name, where)].type


@dataclass
class Binder:
    """Takes the operands of one statement in order."""

    call: Call
    scope: Scope
    opcode: str
    _next: int = 0

    def peek(self) -> Operand | None:
        """The next operand, if one is left."""
        return self.call.operands[self._next] if self._next < len(self.call.operands) else None

    def take(self, what: str) -> Operand:
        """The next operand, or OperandError saying which one is missing."""
        operand = self.peek()
        if operand is None:
            raise OperandError(
                f"{self.call.position}: {self.opcode} lacks operand {what} "
                f"({len(self.call.operands)} are given)"
            )
        self._next += 1
        return operand

    def end(self) -> None:
        """OperandError where operands are left."""
        extra = self.peek()
        if extra is not None:
            raise OperandError(
                f"{extra.position}: {self.opcode} takes {self._next} operands here; "
                f"{len(self.call.operands)} are given"
            )

    def check(self, slot: Slot) -> Operand:
        """The next operand, legal for `slot`; raises OperandError, with line and column."""
        operand = self.take(slot.name)
        if isinstance(slot, Registers):
            self._registers(slot, operand)
        elif isinstance(slot, Immediate):
            self._immediate(slot.name, slot.values, operand)
        elif isinstance(slot, Predicate):
            self._predicate(slot, operand)
        elif isinstance(slot, Descriptor):
            self._descriptor(slot, operand)
        elif isinstance(slot, Ids):
            self._ids(slot, operand)
        else:
            assert isinstance(slot, Memory)
            self._memory(slot, operand)
        return operand

    def _refuse(self, operand: Operand, slot: str, legal: str) -> NoReturn:
        raise OperandError(
            f"{operand.position}: operand {slot} of {self.opcode} is {legal}; "
            f"got {spelled(operand)}"
        )

    # --- registers ---

    def _registers(self, slot: Registers, operand: Operand) -> None:
        if slot.count:
            many = f"{slot.count} register{'s' if slot.count > 1 else ''}"
            if not isinstance(operand, Vector):
                self._refuse(operand, slot.name, f"a vector of {many} in braces")
            if len(operand.items) != slot.count:
                raise OperandError(
                    f"{operand.position}: operand {slot.name} of {self.opcode} takes {many}; "
                    f"{len(operand.items)} are given"
                )
            self._vector(slot, operand)
        elif isinstance(operand, Name) and operand.text != "_":
            self._typed(operand, slot.name, slot.types)
        elif slot.braces and isinstance(operand, Vector):
            if len(operand.items) not in (1, 2, 4) or not isinstance(operand.items[0], Name):
                self._refuse(operand, slot.name, "a register, or 1, 2 or 4 in braces")
            self._vector(slot, operand)
        elif slot.constants == "words":
            if not isinstance(operand, Integer):
                self._refuse(operand, slot.name, "a single register or an integer immediate")
        elif slot.constants != "none" and isinstance(operand, Float):
            self._float(slot, operand, 32)
        else:
            also = " or an f32 immediate" if slot.constants != "none" else ""
            self._refuse(operand, slot.name, f"a single register{also}")

    def _vector(self, slot: Registers, vector: Vector) -> None:
        """ptxas gives a vector a type: that of all its elements, or .b where they differ."""
        bits = REGISTER_BITS[slot.types[0]]
        types: list[str] = []
        for item in vector.items:
            if isinstance(item, Name) and item.text == "_":
                self._discarded(slot, item)
                continue
            type_ = self._item_type(slot, item, bits)
            if types and not _fit(types[-1], type_):
                raise OperandError(
                    f"{item.position}: {spelled(item)} is .{type_} and stands beside .{types[-1]} "
                    f"in operand {slot.name} of {self.opcode}; only .b{bits} goes with other types"
                )
            types.append(type_)
        if not types:
            raise OperandError(
                f"{vector.position}: operand {slot.name} of {self.opcode} is all '_'; name one "
                "register at least"
            )
        named = [item for item in vector.items if isinstance(item, Name) and item.text != "_"]
        if not named:
            self._only_immediates(slot, vector, types[0])
        if slot.each or len(set(types)) == 1:
            for item in named:
                self._typed(item, slot.name, slot.types)

    def _discarded(self, slot: Registers, item: Name) -> None:
        if slot.use != "written" or slot.each:
            why = "ptxas needs it here" if slot.use == "written" else "it is read"
            raise OperandError(
                f"{item.position}: operand {slot.name} of {self.opcode} cannot be discarded: {why}"
            )

    def _item_type(self, slot: Registers, item: Item, bits: int) -> str:
        if isinstance(item, Name):
            type_ = self.scope.register(item.text, f"{item.position}: ")
            if REGISTER_BITS[type_] != bits:
                self._typed(item, slot.name, slot.types)
            return type_
        if slot.use != "read":
            raise OperandError(
                f"{item.position}: operand {slot.name} of {self.opcode} is written; an immediate "
                "cannot be"
            )
        if isinstance(item, Float):
            self._float(slot, item, bits)
            type_ = f"f{bits}"
            if slot.each and type_ not in slot.types:
                self._refuse(item, slot.name, "a register here")
            return type_
        whole = slot.constants in ("words", "integers") or slot.braces
        if not whole or (slot.each and f"s{bits}" not in slot.types):
            self._refuse(item, slot.name, "a register or an immediate of another kind")
        return _INTEGER

    def _float(self, slot: Registers, item: Float, bits: int) -> None:
        if slot.constants == "integers":
            self._refuse(item, slot.name, "of integers")
        if slot.constants == "values" or item.width == bits or (bits == 64 and not item.width):
            return
        # ptxas takes more: an f64, which it cuts to its low half, so that 1.0 becomes 0.
        written = "hexadecimal, as 0f and 8 digits" if bits == 32 else "of 64 bits, 0d…"
        self._refuse(item, slot.name, f"an immediate {written}")

    def _only_immediates(self, slot: Registers, vector: Vector, type_: str) -> None:
        """Without a register, an immediate has a type of its own, an integer .s64."""
        if type_ == _INTEGER:
            type_ = "s32" if slot.constants == "integers" else "s64"
        if type_ not in slot.types:
            raise OperandError(
                f"{vector.position}: operand {slot.name} of {self.opcode} holds immediates alone, "
                f"of type .{type_}; legal are {_listed(slot.types)}: use a register"
            )

    def _typed(self, item: Name, what: str, types: tuple[str, ...]) -> None:
        type_ = self.scope.register(item.text, f"{item.position}: ")
        if type_ not in types:
            raise OperandError(
                f"{item.position}: operand {what} of {self.opcode} takes registers of type "
                f"{_listed(types)}; {item.text!r} is .{type_}"
            )

    # --- other operands ---

    def _immediate(self, what: str, values: tuple[int, ...] | range, operand: Operand) -> None:
        if not isinstance(operand, Integer):
            self._refuse(operand, what, f"an integer immediate, {_either(values)}")
        if signed(operand.value) not in values:
            self._refuse(operand, what, _either(values))

    def _predicate(self, slot: Predicate, operand: Operand) -> None:
        if isinstance(operand, Integer) and operand.value in (0, 1):
            return
        if not isinstance(operand, Name | Negated):
            self._refuse(operand, slot.name, "a predicate, or 0 or 1")
        self._typed(Name(operand.text, operand.position), slot.name, slot.types)

    def _descriptor(self, slot: Descriptor, operand: Operand) -> None:
        if isinstance(operand, Integer):
            return
        if not isinstance(operand, Name):
            self._refuse(operand, slot.name, "a descriptor register of 64 bits")
        self._typed(operand, slot.name, slot.types)

    def _ids(self, slot: Ids, operand: Operand) -> None:
        if not isinstance(operand, Vector) or len(operand.items) != 2:
            self._refuse(operand, slot.name, "{byte-id, thread-id} in braces")
        names = ("byte-id", "thread-id")
        for item, name, values in zip(operand.items, names, slot.values, strict=True):
            if isinstance(item, Name):
                self._typed(item, f"{slot.name}, {name},", slot.types)
            else:
                self._immediate(f"{slot.name}, {name},", values, item)

    def _memory(self, slot: Memory, operand: Operand) -> None:
        if not isinstance(operand, Address):
            self._refuse(operand, slot.name, "an address, [register+offset] or [variable+offset]")
        if operand.base not in self.scope.variables:
            self._typed(Name(operand.base, operand.position), slot.name, slot.types)


def spelled(operand: Operand) -> str:
    """An operand as it was written, for a message."""
    if isinstance(operand, Vector):
        return "{" + ", ".join(spelled(item) for item in operand.items) + "}"
    if isinstance(operand, Address):
        return f"[{operand.base}{f'+{operand.offset}' if operand.offset else ''}]"
    if isinstance(operand, Place):
        return f"{operand.base}[{operand.index}]" if operand.index else operand.base
    if isinstance(operand, Negated):
        return f"!{operand.text}"
    return repr(operand.text) if isinstance(operand, Name) else str(operand.value)


def signed(value: int) -> int:
    """An integer immediate, of 64 bits, as ptxas reads it where a sign matters."""
    return value - (1 << 64) if value >= 1 << 63 else value


def _fit(one: str, other: str) -> bool:
    """Whether two types may stand beside each other in a vector: ptxas looks at neighbours."""
    return one == other or "b" in one + other or {one[0], other[0]} <= {"u", "s", "i"}


def _listed(types: tuple[str, ...]) -> str:
    return ", ".join("." + t for t in types)


def _either(values: tuple[int, ...] | range) -> str:
    return f"one of {listing(values)}" if len(values) > 2 else " or ".join(map(str, values))
