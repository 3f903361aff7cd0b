"""A program: statements whose operands fit them, bound once and run as often as one likes.

Names are gone: a register is an index into the registers of its function, a label or a function is
the number of a statement, a variable is an address. Statements of all functions of a module stand
one after the other, so that their number, the pc, names a place in all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from dtypes import Array
from emulator.isa.instruction import Instruction
from emulator.isa.register_types import REGISTER_BITS
from emulator.isa.signature import Signature
from emulator.ptx.tree import SourceLocation

# --- operands -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Register:
    """A register of the function."""

    index: int


@dataclass(frozen=True, slots=True)
class Constant:
    """An immediate, or the address of a variable: the word of it, of the operand's size."""

    word: int


@dataclass(frozen=True, slots=True)
class SpecialRegister:
    """%tid.x, %laneid, …"""

    name: str


@dataclass(frozen=True, slots=True)
class LocalAddress:
    """The place of a variable in the local memory of the running call."""

    offset: int


@dataclass(frozen=True, slots=True)
class SharedAddress:
    """The address of a variable in shared memory: its offset, below the rank of the own block."""

    offset: int


@dataclass(frozen=True, slots=True)
class Address:
    """``[base + offset]``; `space` is where a variable's name led to, else the opcode's."""

    base: Register | Constant | LocalAddress | SharedAddress
    offset: int
    space: str
    #: of a tensor or a texture
    coordinates: tuple[Bound, ...] = ()
    #: the variable that was named
    variable: str = ""

    @property
    def place(self) -> Constant | LocalAddress | SharedAddress | None:
        """The operand whose word is the address; None where a register has a part in it."""
        base, offset = self.base, self.offset
        if isinstance(base, Register):
            return None
        if isinstance(base, Constant):
            return Constant(base.word + offset)
        return replace(base, offset=base.offset + offset)


@dataclass(frozen=True, slots=True)
class ParameterPlace:
    """Bytes of a parameter variable of a call, which a register of bytes holds."""

    index: int
    offset: int


@dataclass(frozen=True, slots=True)
class Vector:
    """Registers in braces; None for what is dropped."""

    items: tuple[Bound | None, ...]


@dataclass(frozen=True, slots=True)
class Inverted:
    """``!%p``."""

    index: int


@dataclass(frozen=True, slots=True)
class Target:
    """A label, or a function, by the number of its first statement."""

    pc: int


@dataclass(frozen=True, slots=True)
class Targets:
    """Targets of a brx.idx, or of an indirect call."""

    pcs: tuple[int, ...]


Bound = (
    Register
    | Constant
    | SpecialRegister
    | LocalAddress
    | SharedAddress
    | Address
    | ParameterPlace
    | Vector
    | Inverted
    | Target
    | Targets
)


@dataclass(frozen=True, slots=True)
class Guard:
    """The predicate of a statement: it runs in lanes where the register is true, or is not."""

    index: int
    negated: bool


@dataclass(frozen=True, slots=True)
class Call:
    """Callee and arguments of a call; the callee is a place, or a register with an address."""

    #: None: `register` has the address
    function: str | None
    register: int | None
    arguments: tuple[Bound, ...]
    #: registers of the caller that take what is returned
    results: tuple[int, ...]

    def misfit(self, caller: Function, callee: Function) -> str:
        """The reason why the callee cannot be called like this; "" if it can. As ptxas judges
        direct calls, after `passing` has put everything where the callee takes it."""
        if callee.is_kernel:
            return f"{callee.name} is a kernel, which no call names"
        results = tuple(map(Register, self.results))
        for what, given, formal in (
            ("parameter", self.arguments, callee.parameter_registers),
            ("result", results, callee.result_registers),
        ):
            if len(given) != len(formal):
                many = f"{len(formal)} {what}{'s' * (len(formal) != 1)}"
                verb = "takes" if what == "parameter" else "returns"
                return f"{callee.name} {verb} {many}; {len(given)} are given"
            for bound, index in zip(given, formal, strict=True):
                wanted = callee.registers[index]
                if not isinstance(bound, Register):
                    return f"{what} {wanted.name} of {callee.name} is no register or variable"
                held = caller.registers[bound.index]
                if held.passed != wanted.passed:
                    return (
                        f"{what} {wanted.name} of {callee.name} is {wanted.passed}; {held.name} is "
                        f"{held.passed}"
                    )
        return ""


@dataclass(frozen=True, slots=True, eq=False)
class Statement:
    """One instruction with operands that fit it; operands that were left out are not there."""

    pc: int
    instruction: Instruction
    signature: Signature
    operands: dict[str, Bound]
    guard: Guard | None
    #: offset in the text, for messages
    at: int
    location: SourceLocation | None = None
    #: bytes of a load that are used at all
    used_bytes: int | None = None
    call: Call | None = None
    #: targets of branches
    targets: tuple[int, ...] = ()
    #: parts of registers that operands name, as the rule takes them: asel -> "b2"
    selectors: dict[str, str] = field(default_factory=dict)
    #: what runs in its place, one after the other, where ptxas makes something else of it
    expansion: tuple[Statement, ...] = ()

    @property
    def name(self) -> str:
        """The first word of the opcode."""
        return str(self.instruction).partition(".")[0]

    @property
    def effects(self) -> frozenset[str]:
        """Its effects, see `isa.instruction.EFFECTS`."""
        return self.instruction.effects

    def bound(self, use: str) -> Iterator[Bound]:
        """The operands of a use, in order: "read", "written"; "updated" ones are both."""
        for operand in self.signature.operands:
            if operand.name in self.operands and operand.use in (use, "updated"):
                yield self.operands[operand.name]


# --- functions ------------------------------------------------------------------------------------


class RegisterInfo(NamedTuple):
    """A register as it was declared, and the word that it holds before anything is written."""

    name: str
    type: str
    zero: Array

    @classmethod
    def of(cls, name: str, type_: str) -> RegisterInfo:
        return cls(name, type_, zero_of(type_))

    @classmethod
    def bytes(cls, name: str, size: int) -> RegisterInfo:
        """The bytes of a parameter variable."""
        return cls(name, "bytes", np.zeros((1, size), np.uint8))

    @property
    def bits(self) -> int:
        return 8 * self.zero.nbytes if self.type == "bytes" else REGISTER_BITS[self.type]

    @property
    def passed(self) -> str:
        """The kind and size that an argument of a call has, and the parameter that takes it."""
        if self.type == "bytes":
            return f"a .param of {self.zero.nbytes} byte{'s' * (self.zero.nbytes != 1)}"
        return "a predicate" if self.type == "pred" else f"a register of {self.bits} bits"


def zero_of(type_: str) -> Array:
    if type_ == "pred":
        return np.zeros(1, np.bool_)
    bits = REGISTER_BITS[type_]
    return np.zeros((1, 2), np.uint64) if bits == 128 else np.zeros(1, f"uint{bits}")


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter: where it starts among the bytes of all, how many it has."""

    name: str
    #: "u64", "f32"; "b8" of an array of bytes
    type: str
    offset: int
    bytes: int
    alignment: int
    #: elements of an array, 1 of a scalar
    count: int = 1


@dataclass(eq=False)
class Function:
    """A kernel or a device function."""

    name: str
    is_kernel: bool
    registers: list[RegisterInfo] = field(default_factory=list)
    parameters: tuple[Parameter, ...] = ()
    #: registers of bytes that hold what is passed, and what is returned
    parameter_registers: tuple[int, ...] = ()
    result_registers: tuple[int, ...] = ()
    #: pcs of the first statement, and behind the last one
    first: int = 0
    end: int = 0
    #: bytes of local memory that a call takes
    local_bytes: int = 0
    #: directives such as reqntid, by name
    directives: dict[str, tuple[int | str, ...]] = field(default_factory=dict)
    #: the register of the carry flag, if any statement uses it
    carry: int | None = None


@dataclass(eq=False)
class Program:
    """Statements of all functions of a module that are bound."""

    statements: list[Statement] = field(default_factory=list)
    functions: dict[str, Function] = field(default_factory=dict)
    #: functions by the address that a pointer to them holds
    addresses: dict[int, str] = field(default_factory=dict)
    #: pcs that a branch or a call can lead to
    leaders: set[int] = field(default_factory=set)
    #: registers, as bits, that somebody looks at when threads have ended
    kept: int = 0

    def function_at(self, pc: int) -> Function:
        return next(f for f in self.functions.values() if f.first <= pc < f.end)

    @cached_property
    def effects(self) -> frozenset[str]:
        """The effects of all statements."""
        return frozenset().union(*(statement.effects for statement in self.statements))

    def called(self, statements: Iterable[Statement]) -> set[str]:
        """The functions that some statements may call."""
        out: set[str] = set()
        for call in (statement.call for statement in statements):
            if call is not None and call.register is not None:
                # Any function whose address can be taken may be meant.
                out.update(self.addresses.values())
            elif call is not None and call.function in self.functions:
                out.add(call.function)
        return out

    @cached_property
    def calls(self) -> dict[str, set[str]]:
        """The functions that each function may call."""
        return {
            name: self.called(self.statements[function.first : function.end])
            for name, function in self.functions.items()
        }

    def reached(self, start: Iterable[str]) -> set[str]:
        """Some functions, and all that they may call."""
        found = set(start)
        todo = list(found)
        while todo:
            new = self.calls.get(todo.pop(), set()) - found
            found |= new
            todo += new
        return found

    @cached_property
    def recursive(self) -> frozenset[str]:
        """The functions that may call themselves."""
        return frozenset(x for x, called in self.calls.items() if x in self.reached(called))

    @cached_property
    def carries(self) -> dict[int, int]:
        """pc -> the register of the carry flag, in functions that use it."""
        return {
            pc: function.carry
            for function in self.functions.values()
            if function.carry is not None
            for pc in range(function.first, function.end)
        }

    @cached_property
    def results(self) -> dict[int, int]:
        """pc -> the registers, as bits, that a function returns from there."""
        return {
            pc: sum(1 << i for i in function.result_registers)
            for function in self.functions.values()
            if function.result_registers
            for pc in range(function.first, function.end)
        }

    @cached_property
    def liveness(self) -> Liveness:
        return Liveness(self.statements, self.kept, self.carries, self.results)


# --- liveness -------------------------------------------------------------------------------------


def registers_of(bound: Bound | None) -> Iterator[int]:
    """The registers that an operand names."""
    if isinstance(bound, (Register, Inverted, ParameterPlace)):
        yield bound.index
    elif isinstance(bound, Address):
        yield from registers_of(bound.base)
        for item in bound.coordinates:
            yield from registers_of(item)
    elif isinstance(bound, Vector):
        for element in bound.items:
            yield from registers_of(element)


def items_of(bound: Bound | None) -> tuple[Bound | None, ...]:
    """The items of a vector, or the operand alone."""
    return bound.items if isinstance(bound, Vector) else (bound,)


class Liveness:
    """Registers that may still be read from each place on, as sets of bits."""

    def __init__(
        self,
        statements: Sequence[Statement],
        kept: int = 0,
        carries: Mapping[int, int] | None = None,
        results: Mapping[int, int] | None = None,
    ) -> None:
        self._statements, self._kept = statements, kept
        #: pc -> the register of the carry flag, and those that a function returns
        self._carries, self._results = carries or {}, results or {}
        self._before: list[int] = [0] * (len(statements) + 1)
        self._solve()

    def at(self, pc: int) -> int:
        """Bit i is set where register i may be read from statement `pc` on."""
        return self._before[pc]

    def _solve(self) -> None:
        facts = [
            reads_and_kills(x, self._kept | self._results.get(x.pc, 0), self._carries.get(x.pc))
            for x in self._statements
        ]
        before, changed = self._before, True
        while changed:
            changed = False
            for statement, (reads, kills) in zip(
                reversed(self._statements), reversed(facts), strict=True
            ):
                after = 0
                for following in successors(statement):
                    after |= before[following]
                live = reads | after & ~kills
                if live != before[statement.pc]:
                    before[statement.pc] = live
                    changed = True


def reads_and_kills(
    statement: Statement, kept: int = 0, carry: int | None = None
) -> tuple[int, int]:
    """Registers that a statement reads, and those that it writes whatever happens; `kept` are read
    where threads end, or a function returns."""
    reads = kept if "leaves" in statement.effects else 0
    kills = 0
    if statement.expansion:
        for part in statement.expansion:
            more, also = reads_and_kills(part, carry=carry)
            reads |= more & ~kills
            kills |= also
        return reads, kills
    if carry is not None and getattr(statement.instruction, "reads_carry", False):
        reads |= 1 << carry
    if carry is not None and getattr(statement.instruction, "writes_carry", False):
        kills |= 1 << carry
    for operand in statement.signature.operands:
        bound = statement.operands.get(operand.name)
        bits = sum(1 << i for i in set(registers_of(bound)))
        if operand.use == "written" and not isinstance(bound, Address):
            # A part of a parameter's bytes leaves the rest.
            kills |= 0 if isinstance(bound, ParameterPlace) else bits
            reads |= bits if isinstance(bound, ParameterPlace) else 0
        else:
            reads |= bits
    if statement.call is not None:
        for bound in statement.call.arguments:
            reads |= sum(1 << i for i in registers_of(bound))
        reads |= 1 << statement.call.register if statement.call.register is not None else 0
    if statement.guard is not None:
        reads |= 1 << statement.guard.index
        kills = 0
    return reads, kills


def successors(statement: Statement) -> tuple[int, ...]:
    """The pcs that may follow a statement in its function."""
    falls = "ends" not in statement.effects or statement.guard is not None
    return (*statement.targets, *((statement.pc + 1,) if falls else ()))
