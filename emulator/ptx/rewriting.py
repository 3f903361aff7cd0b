"""A program as ptxas contracts it: what `contraction` finds, put into the bound statements.

A rewritten statement keeps its place, its guard and its destination; what runs in its place is its
`expansion`, ordinary statements of the tables. A fused addition takes the factors that the
multiplication had, and those may be overwritten before the addition runs: then the multiplication
keeps them in registers of the function that the text does not have.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from emulator.isa.instruction import Instruction
from emulator.isa.signature import Signature
from emulator.ptx import dataflow
from emulator.ptx.contraction.exchange import exchanged
from emulator.ptx.contraction.rewrites import (
    Elements,
    Fusion,
    Identity,
    Inverse,
    Known,
    Reciprocal,
    Rewrite,
    Saturation,
    Scaling,
    Selection,
)
from emulator.ptx.contraction.rules import contract
from emulator.ptx.folding import Conversion, may_fold
from emulator.ptx.program import (
    Bound,
    Constant,
    Function,
    LocalAddress,
    Program,
    Register,
    RegisterInfo,
    SharedAddress,
    SpecialRegister,
    Statement,
    Vector,
    registers_of,
)
from emulator.targets import Target

#: floating-point type -> bits of its words, mask of their sign bits
_WORDS = {
    "f16": (16, 1 << 15), "bf16": (16, 1 << 15), "f32": (32, 1 << 31), "f64": (64, 1 << 63),
    "f16x2": (32, 0x80008000), "bf16x2": (32, 0x80008000), "f32x2": (64, 1 << 63 | 1 << 31),
}  # fmt: skip
_HALVES = ("low", "high")
#: operations that change the sign of an f32 and keep the payload of a NaN
_SIGNS = {"abs": ("and.b32", (1 << 31) - 1), "neg": ("xor.b32", 1 << 31)}
#: statements that ptxas may change whatever else there is: first word -> types
_CONCERNED = {
    **dict.fromkeys(["mul", "div", "rcp"], frozenset(_WORDS)),
    **dict.fromkeys(["ex2", "lg2", "sqrt", "rsqrt", "sin", "cos"], frozenset(["f32"])),
    **dict.fromkeys(["add", "sub", "mad", "fma"], frozenset(["f64"])),
    **dict.fromkeys(["min", "max"], frozenset(["f16", "f32", "f64"])),
    **dict.fromkeys(["abs", "neg", "selp"], frozenset(["f32"])),
    "slct": frozenset(["f32", "s32"]),
}


class Contracted(NamedTuple):
    """A statement that ptxas contracts, as ``str()`` says in a sentence."""

    line: int
    column: int
    #: of the statement, as the file has it
    opcode: str
    #: line of the multiplication, or of what else it takes over; 0 for none
    multiplication: int
    #: "fused", "scaled" by a power of two, "copied", "reciprocal" of a constant, "known" function
    #: of one, "saturated", "converted" at once, "selected" with its sign, "inverse" of
    #: a function
    kind: str
    #: of f32x2, of which the halves become different things: "low" or "high"
    half: str = ""

    def __str__(self) -> str:
        what = {
            "fused": f"takes the product of line {self.multiplication} unrounded",
            "scaled": f"scales the product of line {self.multiplication} before it is rounded",
            "copied": "returns an operand, or its negative, unchanged",
            "reciprocal": "multiplies by the reciprocal of its divisor, rounded to nearest",
            "known": "is a function of a constant, rounded to nearest",
            "inverse": f"undoes line {self.multiplication}",
            "converted": f"is, with line {self.multiplication}, one conversion",
            "selected": "selects operands with their signs: a NaN keeps its payload",
            "saturated": f"is, with line {self.multiplication}, a saturation: NaN gives 0",
        }[self.kind]
        half = f" ({self.half} half)" if self.half else ""
        return f"line {self.line}, column {self.column}: {self.opcode}{half} {what}"


class Rewritten(NamedTuple):
    """A statement that was rewritten, by its number, and that of its multiplication."""

    pc: int
    multiplication: int | None
    kind: str
    half: str = ""


def contracted(program: Program, target: Target, *, fmad: bool) -> tuple[Program, list[Rewritten]]:
    """The program that runs, and what was changed in it; without `fmad` only what ptxas does even
    then: approximate functions of constants, saturations, and operands of f64 exchanged."""
    out = Program(
        list(program.statements), dict(program.functions), program.addresses, program.leaders
    )
    places: list[Rewritten] = []
    for name, function in program.functions.items():
        body = program.statements[function.first : function.end]
        if any(map(_is_concerned, body)):
            made = _Rewriter(program, function, target, fmad)
            out.statements[function.first : function.end] = made.statements
            out.functions[name] = made.function
            places += made.places
    return out, places


def _is_concerned(statement: Statement) -> bool:
    opcode = str(statement.instruction)
    return opcode.rpartition(".")[2] in _CONCERNED.get(statement.name, ()) or may_fold(opcode)


# --- what the rules see ---


def flow_of(statement: Statement, function: Function, leaders: set[int]) -> dataflow.Statement:
    """A bound statement as far as the flow of its values is concerned."""
    written: list[dataflow.Source] = []
    read: list[dataflow.Source] = []
    for operand in statement.signature.operands:
        bound = statement.operands.get(operand.name)
        if bound is not None:
            if operand.use != "read":
                written += _names(bound)
            if operand.use != "written":
                read += _names(bound)
    instruction = statement.instruction
    if getattr(instruction, "reads_carry", False):
        read.append(f"r{function.carry}")
    if getattr(instruction, "writes_carry", False):
        written.append(f"r{function.carry}")
    if statement.call is not None:
        written += [f"r{index}" for index in statement.call.results]
        read += [name for bound in statement.call.arguments for name in _names(bound)]
        read += [f"r{statement.call.register}"] * (statement.call.register is not None)
    if "returns" in statement.effects:
        read += [f"r{index}" for index in function.result_registers]
    guard = statement.guard
    return dataflow.Statement(
        str(instruction) if statement.call is None else "call",
        tuple(map(str, written)),
        tuple(read),
        None if guard is None else (f"r{guard.index}", guard.negated),
        (str(statement.pc),) if statement.pc in leaders else (),
        tuple(map(str, statement.targets)),
    )


def _names(bound: Bound | None) -> Iterator[dataflow.Source]:
    """An operand's registers by name, and immediates; `_` for what is dropped."""
    if isinstance(bound, Vector):
        for item in bound.items:
            yield from _names(item)
    elif isinstance(bound, Constant):
        yield bound.word
    elif isinstance(bound, SpecialRegister):
        yield f"%{bound.name}"
    elif isinstance(bound, (LocalAddress, SharedAddress)):
        yield f"{type(bound).__name__} {bound.offset}"
    elif bound is None:
        yield "_"
    else:
        yield from (f"r{index}" for index in registers_of(bound))


def _written(statement: Statement) -> set[int]:
    """The registers that a statement may write."""
    found = {
        i for use in ("written", "updated") for b in statement.bound(use) for i in registers_of(b)
    }
    if statement.call is not None:
        found.update(statement.call.results)
    return found


# --- rewriting ---


class _Rewriter:
    """One function's statements, rewritten."""

    def __init__(self, program: Program, function: Function, target: Target, fmad: bool) -> None:
        self.first, self.leaders, self.target = function.first, program.leaders, target
        self.source = program.statements[function.first : function.end]
        self.function = replace(function, registers=list(function.registers))
        self.places: list[Rewritten] = []
        #: statements that run before a multiplication, and in place of a statement
        self.before: defaultdict[int, list[Statement]] = defaultdict(list)
        self.bodies: dict[int, list[Statement]] = {}
        self.kept: dict[tuple[int, int], Bound] = {}
        self.quotients: dict[int, tuple[Bound, Bound]] = {}
        flow = [flow_of(s, function, program.leaders) for s in self.source]
        self.found = contract(flow, target, entry=function.is_kernel, fmad=fmad)
        self.exchanged = exchanged(flow)
        for index in sorted(self.exchanged - self.found.keys()):
            self._exchange(index)
        for index, rewrite in self.found.items():
            self._rewrite(index, rewrite)
        self.statements = [self._finished(index) for index in range(len(self.source))]

    def _finished(self, index: int) -> Statement:
        statement = self.source[index]
        if index not in self.before and index not in self.bodies:
            return statement
        body = self.bodies.get(index, [statement])
        if not self.before[index] and len(body) == 1 and not body[0].selectors:
            # One statement in place of one: nothing is to be expanded.
            return body[0]
        return replace(statement, expansion=(*self.before[index], *body))

    def _rewrite(self, index: int, rewrite: Rewrite) -> None:
        statement = self.source[index]
        code = _Code(self, statement)
        type_ = str(statement.instruction).rpartition(".")[2]
        operands = [statement.operands[name] for name in ("a", "b") if name in statement.operands]
        if type_ == "f32x2" and not (isinstance(rewrite, Fusion) and "f32x2" in rewrite.opcode):
            self._rewrite_halves(code, rewrite, operands)
        else:
            self._note(index, rewrite)
            code.put(rewrite, type_, statement.operands["d"], operands)
        self.bodies[index] = code.statements

    def _rewrite_halves(self, code: _Code, rewrite: Rewrite, operands: list[Bound]) -> None:
        """The halves one by one: what becomes of a half, or of both alike."""
        halves = rewrite.halves if isinstance(rewrite, Elements) else (rewrite, rewrite)
        results = (self.new("f32"), self.new("f32"))
        for element, half in enumerate(halves):
            if not isinstance(rewrite, Elements):
                assert isinstance(half, (Scaling, Identity))
                half = replace(half, element=element) if isinstance(half, Scaling) else half
            parts = [code.half(bound, element) for bound in operands]
            if half is None:
                opcode = str(code.statement.instruction).removesuffix("x2")
                code.add(opcode, results[element], *parts)
            else:
                self._note(code.index, half, _HALVES[element])
                code.put(half, "f32", results[element], parts)
        code.add("mov.b64", code.statement.operands["d"], Vector(results))

    def _note(self, index: int, rewrite: Rewrite, half: str = "") -> None:
        kinds = {
            Fusion: "fused", Scaling: "scaled", Identity: "copied", Reciprocal: "reciprocal",
            Known: "known", Saturation: "saturated", Conversion: "converted",
            Selection: "selected", Inverse: "inverse",
        }  # fmt: skip
        multiplication = getattr(rewrite, "multiplication", getattr(rewrite, "inner", None))
        pc = None if multiplication is None else self.first + multiplication
        self.places.append(Rewritten(self.first + index, pc, kinds[type(rewrite)], half))

    def _exchange(self, index: int) -> None:
        """The first two operands of a sum or product of f64 in the other order."""
        statement = self.source[index]
        a, b = statement.operands["a"], statement.operands["b"]
        if statement.name != "sub":
            self.bodies[index] = [
                replace(statement, operands={**statement.operands, "a": b, "b": a})
            ]
            return
        code = _Code(self, statement)
        opcode = str(statement.instruction).replace("sub", "add", 1)
        code.add(opcode, statement.operands["d"], code.negated(b, "f64"), a)
        self.bodies[index] = code.statements

    # --- factors ---

    def factors(
        self, index: int, user: int, element: int | None, code: _Code
    ) -> tuple[Bound, Bound]:
        """The factors of the multiplication `index`, for the statement `user` that fuses it."""
        statement = self.source[index]
        if statement.name != "mul":
            return self._factors_of_quotient(index, user)
        one, two = (self.keep(index, user, name) for name in ("a", "b"))
        if index in self.exchanged:
            one, two = two, one
        if element is not None:
            return code.half(one, element), code.half(two, element)
        return one, two

    def _factors_of_quotient(self, index: int, user: int) -> tuple[Bound, Bound]:
        """The last two factors of an approximate division or reciprocal."""
        rewrite = self.found.get(index)
        if isinstance(rewrite, Reciprocal) and not rewrite.exponent:
            return self.keep(index, user, "a"), Constant(rewrite.bits)
        if index not in self.quotients:
            code = _Code(self, self.source[index])
            if isinstance(rewrite, Reciprocal):
                numerator = code.scaled(self.source[index].operands["a"], rewrite.exponent)
                self.quotients[index] = numerator, Constant(rewrite.bits)
            elif isinstance(rewrite, Inverse):
                numerator = code.keep(self.source[index].operands["a"], "f32")
                self.quotients[index] = numerator, code.inverse(rewrite.inner)
            else:
                self.quotients[index] = code.quotient()
            self.before[index] += code.statements
        return self.quotients[index]

    def keep(self, index: int, user: int, name: str) -> Bound:
        """A source of the statement `index`, or the register that keeps it for `user`."""
        statement = self.source[index]
        bound = statement.operands[name]
        if not isinstance(bound, Register) or self._is_unchanged(bound.index, index, user):
            return bound
        key = index, bound.index
        if key not in self.kept:
            code = _Code(self, statement)
            self.kept[key] = code.keep(bound, str(statement.instruction).rpartition(".")[2])
            self.before[index] += code.statements
        return self.kept[key]

    def _is_unchanged(self, register: int, start: int, stop: int) -> bool:
        """True if a register still holds at `stop` what it held at `start`, in one basic block."""
        if stop <= start or any(self.first + i in self.leaders for i in range(start + 1, stop + 1)):
            return False
        return all(register not in _written(s) for s in self.source[start:stop])

    def new(self, type_: str) -> Register:
        """A register that the text does not have."""
        registers = self.function.registers
        bits = _WORDS[type_][0]
        registers.append(RegisterInfo.of(f"%contracted{len(registers)}", f"b{bits}"))
        return Register(len(registers) - 1)


@dataclass(eq=False)
class _Code:
    """Statements that run in place of one, or before it."""

    rewriter: _Rewriter
    statement: Statement
    statements: list[Statement] = field(default_factory=list)

    @property
    def index(self) -> int:
        return self.statement.pc - self.rewriter.first

    def add(self, opcode: str, result: Bound, *sources: Bound, **selectors: str) -> None:
        """Appends a statement under the guard of the one that is replaced."""
        instruction = Instruction.parse(opcode)
        signature = instruction.signature(self.rewriter.target)
        operands = dict(zip(signature.names, (result, *sources), strict=True))
        self._append(instruction, signature, operands, selectors)

    def _append(
        self,
        instruction: Instruction,
        signature: Signature,
        operands: dict[str, Bound],
        selectors: dict[str, str],
    ) -> None:
        given = self.statement
        place = given.guard, given.at, given.location
        made = Statement(given.pc, instruction, signature, operands, *place, selectors=selectors)
        self.statements.append(made)

    def put(self, rewrite: Rewrite, type_: str, result: Bound, operands: list[Bound]) -> None:
        """Replaces a statement, or one half of it, by an opcode with the given operands."""
        assert not isinstance(rewrite, Elements)
        if isinstance(rewrite, Reciprocal):
            modifier = ".ftz" if ".ftz" in str(self.statement.instruction) else ""
            numerator = self.scaled(operands[0], rewrite.exponent)
            self.add(f"mul{modifier}.f32", result, numerator, Constant(rewrite.bits))
        elif isinstance(rewrite, Known):
            self.add("mov.b32", result, Constant(rewrite.bits))
        elif isinstance(rewrite, Saturation):
            modifier = ".ftz" if ".ftz" in str(self.statement.instruction) else ""
            source = self.rewriter.keep(rewrite.inner, self.index, "ab"[rewrite.operand])
            self.add(f"add{modifier}.sat.{type_}", result, source, Constant(_WORDS[type_][1]))
        elif isinstance(rewrite, Conversion):
            self.add(rewrite.opcode, result, self.rewriter.keep(rewrite.inner, self.index, "a"))
        elif isinstance(rewrite, Selection):
            self.select(rewrite, result, operands)
        elif isinstance(rewrite, Inverse):
            if self.statement.name == "rcp":
                self.inverse(rewrite.inner, result)
            else:
                self.add("mul.ftz.f32", result, operands[0], self.inverse(rewrite.inner))
        elif isinstance(rewrite, Identity):
            source = operands[rewrite.operand]
            opcode = f"neg.{type_}" if rewrite.negated else f"mov.b{_WORDS[type_][0]}"
            self.add(opcode, result, source)
        else:
            one, two = self.rewriter.factors(
                rewrite.multiplication, self.index, rewrite.element, self
            )
            if isinstance(rewrite, Scaling):
                opcode = str(self.statement.instruction).removesuffix("x2")
                self.add(opcode, result, one, two, exponent=str(rewrite.exponent))
                return
            addend = operands[1 - rewrite.operand]
            fused = rewrite.opcode.rpartition(".")[2]
            one = self.negated(one, fused) if rewrite.negated[0] else one
            addend = self.negated(addend, fused) if rewrite.negated[1] else addend
            self.add(rewrite.opcode, result, one, two, addend)

    def keep(self, source: Bound, type_: str) -> Register:
        kept = self.rewriter.new(type_)
        self.add(f"mov.b{_WORDS[type_][0]}", kept, source)
        return kept

    def select(self, rewrite: Selection, result: Bound, operands: list[Bound]) -> None:
        """The selection, whose operands have other signs."""
        sources = []
        for own, (inner, signs) in zip(operands, rewrite.operands, strict=True):
            source = own if inner is None else self.rewriter.keep(inner, self.index, "a")
            for opcode, mask in map(_SIGNS.__getitem__, signs):
                signed = self.rewriter.new("f32")
                self.add(opcode, signed, source, Constant(mask))
                source = signed
            sources.append(source)
        if self.statement.name in _SIGNS:
            self.add("mov.b32", result, *sources)
        else:
            opcode = str(self.statement.instruction)
            self.add(opcode, result, *sources, self.statement.operands["c"])

    def inverse(self, inner: int, result: Bound | None = None) -> Bound:
        """One over what the statement `inner` computes."""
        result = self.rewriter.new("f32") if result is None else result
        source = self.rewriter.keep(inner, self.index, "a")
        if self.rewriter.source[inner].name == "ex2":
            self.add("ex2.approx.ftz.f32", result, self.negated(source, "f32"))
        else:
            self.add("mov.b32", result, source)
        return result

    def half(self, source: Bound, element: int) -> Bound:
        """The low or the high half of an operand of f32x2."""
        if isinstance(source, Constant):
            return Constant(source.word >> 32 * element & 0xFFFFFFFF)
        half = self.rewriter.new("f32")
        self.add("mov.b64", Vector((None, half) if element else (half, None)), source)
        return half

    def negated(self, source: Bound, type_: str) -> Bound:
        """An operand with the other sign; a NaN keeps its own, as it does in sub."""
        if type_ == "f32x2":
            halves = [self.negated(self.half(source, element), "f32") for element in (0, 1)]
            whole = self.rewriter.new(type_)
            self.add("mov.b64", whole, Vector(tuple(halves)))
            return whole
        sign = _WORDS[type_][1]
        if isinstance(source, Constant) and type_ != "f64":
            return Constant(source.word ^ sign)
        negative = self.rewriter.new(type_)
        self.add(f"neg.{type_}", negative, source)
        return negative

    def scaled(self, source: Bound, exponent: int) -> Bound:
        """An f32 times a power of two, as the division that is replaced does it."""
        if not exponent:
            return source
        modifier = ".ftz" if ".ftz" in str(self.statement.instruction) else ""
        out = self.rewriter.new("f32")
        self.add(f"mul.rn{modifier}.f32", out, source, Constant(127 + exponent << 23))
        return out

    def quotient(self) -> tuple[Bound, Bound]:
        """The last two factors of the statement, which divides."""
        given = self.statement
        first, *others = given.signature.operands
        factors = (replace(first, name="first"), replace(first, name="second"))
        registers = (self.rewriter.new("f32"), self.rewriter.new("f32"))
        operands = {
            "first": registers[0],
            "second": registers[1],
            **{operand.name: given.operands[operand.name] for operand in others},
        }
        signature = Signature((*factors, *others))
        self._append(given.instruction, signature, operands, {"factors": "factors"})
        return registers
