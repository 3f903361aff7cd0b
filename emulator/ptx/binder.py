"""Checks the operands of a statement against a signature, by ptxas's rules of kinds and types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from emulator.errors import OperandError, listing
from emulator.isa.register_types import REGISTER_BITS
from emulator.isa.signature import Operand, Signature
from emulator.ptx.registers import RegisterFile
from emulator.ptx.shared import SharedVariables
from emulator.ptx.syntax import Address, Call, Float, Integer, Name, Negated, Place, Vector
from emulator.ptx.syntax import Operand as Written

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
            raise OperandError(
                f"{where}{name!r:.100} is a variable in shared memory, not a register"
            )
        return self.registers[self.registers.known(name, where)].type


@dataclass
class Binder:
    """Takes the operands of one statement in order."""

    call: Call
    scope: Scope
    opcode: str
    _next: int = 0

    def bind(self, signatures: Sequence[Signature]) -> tuple[tuple[Operand, Written], ...]:
        """The operands of the statement with what they are: of several signatures by the one that
        the braces fit best.

        Raises OperandError, with line and column, for a wrong count, kind, type or range.
        """

        def braces(signature: Signature) -> int:
            pairs = zip(signature.operands, self.call.operands, strict=False)
            return sum((x.kind == "vector") == isinstance(y, Vector) for x, y in pairs)

        found = []
        for operand in max(signatures, key=braces).operands:
            if not operand.optional or self.peek() is not None:
                found.append((operand, self.check(operand)))
        self.end()
        return tuple(found)

    def peek(self) -> Written | None:
        """The next operand, if one is left."""
        return self.call.operands[self._next] if self._next < len(self.call.operands) else None

    def take(self, what: str) -> Written:
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

    def check(self, operand: Operand) -> Written:
        """The next operand, legal as `operand`; raises OperandError, with line and column."""
        written = self.take(operand.name)
        getattr(self, f"_{operand.kind}")(operand, written)
        return written

    def _refuse(self, written: Written, what: str, legal: str) -> NoReturn:
        raise OperandError(
            f"{written.position}: operand {what} of {self.opcode} is {legal}; "
            f"got {spelled(written):.100}"
        )

    # --- registers ---

    def _register(self, operand: Operand, written: Written) -> None:
        if isinstance(written, Name) and written.text != "_":
            self._typed(written, operand.name, operand.types)
        elif operand.braces and isinstance(written, Vector):
            if len(written.items) not in (1, 2, 4) or not isinstance(written.items[0], Name):
                self._refuse(written, operand.name, "a register, or 1, 2 or 4 in braces")
            self._items(operand, written)
        elif operand.constants == "words":
            if not isinstance(written, Integer):
                self._refuse(written, operand.name, "a single register or an integer immediate")
        elif operand.constants != "none" and isinstance(written, Float):
            self._float(operand, written, 32)
        else:
            also = " or an f32 immediate" if operand.constants != "none" else ""
            self._refuse(written, operand.name, f"a single register{also}")

    def _vector(self, operand: Operand, written: Written) -> None:
        many = f"{operand.count} register{'s' if operand.count > 1 else ''}"
        if not isinstance(written, Vector):
            self._refuse(written, operand.name, f"a vector of {many} in braces")
        if len(written.items) != operand.count:
            raise OperandError(
                f"{written.position}: operand {operand.name} of {self.opcode} takes {many}; "
                f"{len(written.items)} are given"
            )
        self._items(operand, written)

    def _items(self, operand: Operand, vector: Vector) -> None:
        """ptxas gives a vector a type: that of all its elements, or .b where they differ."""
        bits = REGISTER_BITS[operand.types[0]]
        types: list[str] = []
        for item in vector.items:
            if isinstance(item, Name) and item.text == "_":
                self._discarded(operand, item)
                continue
            type_ = self._item_type(operand, item, bits)
            if types and not _fit(types[-1], type_):
                raise OperandError(
                    f"{item.position}: {spelled(item)} is .{type_} and stands beside .{types[-1]} "
                    f"in operand {operand.name} of {self.opcode}; only .b{bits} goes with other "
                    "types"
                )
            types.append(type_)
        if not types:
            raise OperandError(
                f"{vector.position}: operand {operand.name} of {self.opcode} is all '_'; name one "
                "register at least"
            )
        named = [item for item in vector.items if isinstance(item, Name) and item.text != "_"]
        if not named:
            self._only_immediates(operand, vector, types[0])
        if operand.each or len(set(types)) == 1:
            for item in named:
                self._typed(item, operand.name, operand.types)

    def _discarded(self, operand: Operand, item: Name) -> None:
        if not operand.sink:
            why = "ptxas needs it here" if operand.use == "written" else "it is read"
            raise OperandError(
                f"{item.position}: operand {operand.name} of {self.opcode} cannot be discarded: "
                f"{why}"
            )

    def _item_type(self, operand: Operand, item: Item, bits: int) -> str:
        if isinstance(item, Name):
            type_ = self.scope.register(item.text, f"{item.position}: ")
            if REGISTER_BITS[type_] != bits:
                self._typed(item, operand.name, operand.types)
            return type_
        if operand.use != "read":
            raise OperandError(
                f"{item.position}: operand {operand.name} of {self.opcode} is written; an "
                "immediate cannot be"
            )
        if isinstance(item, Float):
            self._float(operand, item, bits)
            type_ = f"f{bits}"
            if operand.each and type_ not in operand.types:
                self._refuse(item, operand.name, "a register here")
            return type_
        whole = operand.constants in ("words", "integers") or operand.braces
        if not whole or (operand.each and f"s{bits}" not in operand.types):
            self._refuse(item, operand.name, "a register or an immediate of another kind")
        return _INTEGER

    def _float(self, operand: Operand, item: Float, bits: int) -> None:
        if operand.constants == "integers":
            self._refuse(item, operand.name, "of integers")
        if operand.constants == "values" or item.width == bits or (bits == 64 and not item.width):
            return
        # ptxas takes more: an f64, which it cuts to its low half, so that 1.0 becomes 0.
        written = "hexadecimal, as 0f and 8 digits" if bits == 32 else "of 64 bits, 0d…"
        self._refuse(item, operand.name, f"an immediate {written}")

    def _only_immediates(self, operand: Operand, vector: Vector, type_: str) -> None:
        """Without a register, an immediate has a type of its own, an integer .s64."""
        if type_ == _INTEGER:
            type_ = "s32" if operand.constants == "integers" else "s64"
        if type_ not in operand.types:
            raise OperandError(
                f"{vector.position}: operand {operand.name} of {self.opcode} holds immediates "
                f"alone, of type .{type_}; legal are {_listed(operand.types)}: use a register"
            )

    def _typed(self, item: Name, what: str, types: tuple[str, ...]) -> None:
        type_ = self.scope.register(item.text, f"{item.position}: ")
        if type_ not in types:
            raise OperandError(
                f"{item.position}: operand {what} of {self.opcode} takes registers of type "
                f"{_listed(types)}; {item.text!r:.100} is .{type_}"
            )

    # --- other operands ---

    def _immediate(self, operand: Operand, written: Written) -> None:
        self._integer(operand.name, operand, written)

    def _integer(self, what: str, operand: Operand, written: Written) -> None:
        values = operand.values
        if not isinstance(written, Integer):
            self._refuse(written, what, f"an integer immediate, {_either(values)}")
        if signed(written.value) not in values:
            self._refuse(written, what, _either(values))

    def _predicate(self, operand: Operand, written: Written) -> None:
        if isinstance(written, Integer) and written.value in (0, 1):
            return
        if not isinstance(written, Name | Negated):
            self._refuse(written, operand.name, "a predicate, or 0 or 1")
        self._typed(Name(written.text, written.position), operand.name, operand.types)

    def _descriptor(self, operand: Operand, written: Written) -> None:
        if isinstance(written, Integer):
            return
        if not isinstance(written, Name):
            self._refuse(written, operand.name, "a descriptor register of 64 bits")
        self._typed(written, operand.name, operand.types)

    def _ids(self, operand: Operand, written: Written) -> None:
        if not isinstance(written, Vector) or len(written.items) != 2:
            self._refuse(written, operand.name, "{byte-id, thread-id} in braces")
        names = ("byte-id", "thread-id")
        for item, name, part in zip(written.items, names, operand.parts, strict=True):
            what = f"{operand.name}, {name},"
            if isinstance(item, Name):
                self._typed(item, what, part.types)
            else:
                self._integer(what, part, item)

    def _address(self, operand: Operand, written: Written) -> None:
        if not isinstance(written, Address):
            self._refuse(
                written, operand.name, "an address, [register+offset] or [variable+offset]"
            )
        if written.base not in self.scope.variables:
            self._typed(Name(written.base, written.position), operand.name, operand.types)


def spelled(operand: Written) -> str:
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
