"""Statements that follow each other as one LLVM function over the warps of a strand.

A register is a vector of 32 words that is read from the strand's array when a statement first needs
it, and written to a new array at the end where somebody may read it later; between, it is a value
of LLVM. A statement that is not here stays a step of the vector engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from llvmlite import ir

from dtypes import Array
from emulator.arith.scalar.types import TYPES
from emulator.isa.ordinary.instruction import OrdinaryInstruction
from emulator.isa.signature import Operand
from emulator.machine.compiled import rules
from emulator.machine.compiled.emitter import (
    LONG,
    POINTER,
    Emitter,
    Value,
    integers,
)
from emulator.machine.compiled.memory import Memory, define_locate
from emulator.machine.vector import access
from emulator.machine.vector.memory import load, shared_rank
from emulator.machine.vector.operands import word_type
from emulator.machine.vector.special import special
from emulator.machine.vector.statements import HINTS
from emulator.machine.vector.strand import Strand
from emulator.memory.windows import LOCAL, PARAMETERS, SHARED, WINDOW_BITS
from emulator.ptx.program import (
    REGISTER_BITS,
    Address,
    Bound,
    Constant,
    Function,
    Inverted,
    LocalAddress,
    Register,
    SharedAddress,
    SpecialRegister,
    Statement,
    Vector,
    items_of,
)

NAME = "segment"
_MASK = (1 << 64) - 1
#: special registers that change from statement to statement
_CLOCKS = ("%clock", "%globaltimer")


@dataclass(frozen=True)
class Input:
    """Words that a segment takes: of a register, or what a strand knows of itself."""

    read: Callable[[Strand], Array]
    dtype: np.dtype[Any]


@dataclass(frozen=True)
class Translated:
    """A segment as text for LLVM, and the arrays that it takes and makes."""

    text: str
    inputs: tuple[Input, ...]
    #: registers that it writes, and what their arrays hold
    outputs: tuple[tuple[int, np.dtype[Any]], ...]


# --- which statements -----------------------------------------------------------------------------


def can_translate(statement: Statement, function: Function) -> bool:
    """Whether a statement has LLVM instructions."""
    if statement.expansion:
        return all(can_translate(part, function) for part in statement.expansion)
    if statement.call is not None or not _plain(statement, function):
        return False
    ins = statement.instruction
    if isinstance(ins, OrdinaryInstruction) and statement.name in _STATEMENTS:
        return _STATEMENTS[statement.name].fits(statement)
    if getattr(ins, "scope", "thread") != "thread" or not hasattr(ins, "rule"):
        return str(ins).partition(".")[0] in HINTS
    return rules.find(ins, statement.selectors) is not None  # type: ignore[arg-type]


def _plain(statement: Statement, function: Function) -> bool:
    """Whether all operands are words of at most 64 bits."""
    return all(_is_plain(bound, function) for bound in statement.operands.values())


def _is_plain(bound: Bound | None, function: Function) -> bool:
    if isinstance(bound, Register):
        return REGISTER_BITS.get(function.registers[bound.index].type, 128) <= 64
    if isinstance(bound, SpecialRegister):
        return not bound.name.startswith(_CLOCKS)
    if isinstance(bound, Vector):
        return all(_is_plain(item, function) for item in bound.items)
    if isinstance(bound, Address):
        return not bound.coordinates and _is_plain(bound.base, function)
    return bound is None or isinstance(bound, (Constant, Inverted, LocalAddress, SharedAddress))


# --- the function ---------------------------------------------------------------------------------


class Translation:
    """Builds the function of some statements: ``i64 (arguments, first, end, context)``.

    It returns 1 where it stored anything, 0 where not, and -1 less the number of the statement that
    a lane must not execute.
    """

    def __init__(self, statements: Sequence[Statement], function: Function, live: int) -> None:
        self.function, self.live = function, live
        self.inputs: dict[Any, tuple[int, Input]] = {}
        self.values: dict[Any, Value] = {}
        self.written: dict[int, None] = {}
        module = ir.Module(NAME)
        type_ = ir.FunctionType(LONG, [POINTER, LONG, LONG, POINTER])
        native = ir.Function(module, type_, NAME)
        self.arguments, first, end, context = native.args
        entry = ir.IRBuilder(native.append_basic_block("entry"))
        loop, done = native.append_basic_block("loop"), native.append_basic_block("done")
        self.e = Emitter(module, ir.IRBuilder(loop))
        self.b = b = self.e.builder
        self.stored = entry.alloca(LONG)
        entry.store(LONG(0), self.stored)
        self.memory = Memory(self.e, context, entry)
        warp = b.phi(LONG)
        warp.add_incoming(first, entry.block)
        self.memory.warp = self.warp = warp
        self.present = self.input("present", Input(_present, np.dtype(np.bool_)))
        for self.number, statement in enumerate(statements):
            self._statement(statement)
        self._write_back()
        following = b.add(warp, LONG(1))
        warp.add_incoming(following, b.block)
        b.cbranch(b.icmp_unsigned("<", following, end), loop, done)
        entry.branch(loop)
        b.position_at_end(done)
        b.ret(b.load(self.stored, typ=LONG))
        define_locate(module)
        self.module = module

    def result(self) -> Translated:
        outputs = tuple((i, _dtype_of(self.function.registers[i].type)) for i in self._outputs())
        inputs = tuple(given for _, given in self.inputs.values())
        return Translated(str(self.module), inputs, outputs)

    def _outputs(self) -> list[int]:
        return [i for i in self.written if self.live >> i & 1]

    # --- arguments: for each array its address and the bytes from warp to warp ---

    def _argument(self, number: int) -> Value:
        b = self.b
        pair = [
            b.load(b.gep(self.arguments, [LONG(2 * number + i)], source_etype=LONG), typ=LONG)
            for i in range(2)
        ]
        return b.inttoptr(b.add(pair[0], b.mul(self.warp, pair[1])), POINTER)

    def input(self, key: Any, given: Input) -> Value:
        """Words that the strand has; outputs stand behind all inputs."""
        if key not in self.values:
            number = self.inputs.setdefault(key, (len(self.inputs), given))[0]
            bits, size = given.dtype.itemsize * 8, given.dtype.itemsize
            words = self.b.load(self._argument(number), typ=integers(bits), align=size)
            if given.dtype == np.bool_:
                words = self.b.icmp_unsigned("!=", words, self.e.word(8, 0))
            self.values[key] = words
        return self.values[key]

    def _write_back(self) -> None:
        first = len(self.inputs)
        for number, index in enumerate(self._outputs()):
            words = self.values[index]
            if words.type == integers(1):
                words = self.e.resize(words, 8)
            self.b.store(words, self._argument(first + number), align=words.type.element.width // 8)

    # --- registers ---

    def register(self, index: int) -> Value:
        dtype = _dtype_of(self.function.registers[index].type)
        return self.input(index, Input(lambda s: s.read(index), dtype))

    def put(self, index: int, words: Value, guard: Value | None) -> None:
        if guard is not None:
            words = self.e.select(guard, words, self.register(index))
        self.values[index] = words
        self.written[index] = None

    def guard(self, statement: Statement) -> Value | None:
        if statement.guard is None:
            return None
        held = self.register(statement.guard.index)
        return self.b.not_(held) if statement.guard.negated else held

    def active(self, guard: Value | None) -> Value:
        """The lanes that execute a statement."""
        return self.present if guard is None else self.b.and_(guard, self.present)

    # --- operands ---

    def read(self, bound: Bound | None, type_: str) -> Value:
        """Words of a source operand that the instruction takes for a type."""
        e, bits = self.e, TYPES[type_].size
        if isinstance(bound, Register):
            return e.resize(self.register(bound.index), bits)
        if isinstance(bound, Constant):
            return e.word(bits, bound.word)
        if isinstance(bound, Inverted):
            return self.b.not_(self.register(bound.index))
        if isinstance(bound, SpecialRegister):
            return e.resize(self._special(bound.name), bits)
        if isinstance(bound, LocalAddress):
            return e.resize(self._local(bound.offset), bits)
        if isinstance(bound, SharedAddress):
            return e.resize(self._shared(bound.offset), bits)
        assert isinstance(bound, Vector), bound
        width, out = bits // len(bound.items), e.word(bits, 0)
        for i, item in enumerate(bound.items):
            part = e.resize(self.read(item, f"b{width}"), bits)
            out = self.b.or_(out, e.shift("shl", part, i * width))
        return out

    def _special(self, name: str) -> Value:
        return self.input(name, Input(lambda s: special(s, name), np.dtype(np.uint32)))

    def _local(self, offset: int) -> Value:
        def frame(s: Strand) -> Array:
            return np.array([s.frames[-1].local], np.uint64)

        start = self.input("local", Input(frame, np.dtype(np.uint64)))
        return self.b.add(start, self.e.word(64, offset))

    def _shared(self, offset: int) -> Value:
        rank = self.input("rank", Input(shared_rank, np.dtype(np.uint64)))
        return self.b.add(rank, self.e.word(64, offset))

    def write(self, bound: Bound | None, type_: str, words: Value, guard: Value | None) -> None:
        """Puts words of a type into a register, or into those of a vector."""
        if bound is None:
            return
        kind = TYPES[type_]
        if isinstance(bound, Vector):
            width = kind.size // len(bound.items)
            for i, item in enumerate(bound.items):
                part = self.e.resize(self.e.shift("lshr", words, i * width), width)
                self.write(item, f"b{width}", part, guard)
            return
        assert isinstance(bound, Register), bound
        bits = REGISTER_BITS[self.function.registers[bound.index].type]
        self.put(bound.index, self.e.resize(words, bits, kind.signed), guard)

    def address(self, bound: Bound) -> Value:
        """The addresses of a memory operand, in 64 bits."""
        assert isinstance(bound, Address), bound
        e, base, offset = self.e, bound.base, bound.offset
        if isinstance(base, Constant):
            return e.word(64, base.word + offset)
        if isinstance(base, LocalAddress):
            return self._local(base.offset + offset)
        if isinstance(base, SharedAddress):
            return self._shared(base.offset + offset)
        words = self.register(base.index)
        if words.type.element.width < 64:
            words = e.resize(words, 32)
            return e.resize(self.b.add(words, e.word(32, offset)) if offset else words, 64)
        return self.b.add(words, e.word(64, offset)) if offset else words

    # --- statements ---

    def _statement(self, statement: Statement) -> None:
        for part in statement.expansion or (statement,):
            if part.expansion:
                self._statement(part)
            elif part.name in _STATEMENTS and isinstance(part.instruction, OrdinaryInstruction):
                _STATEMENTS[part.name].emit(self, part, part.instruction)
            elif part.name not in HINTS:
                self._compute(part)

    def _compute(self, statement: Statement) -> None:
        ins, carry = statement.instruction, self.function.carry
        emit = rules.find(ins, statement.selectors)  # type: ignore[arg-type]
        assert emit is not None
        words: list[Any] = []
        for operand in statement.signature.operands:
            bound = statement.operands.get(operand.name)
            if operand.use == "written" or bound is None:
                continue
            if operand.kind == "immediate":
                assert isinstance(bound, Constant)
                words.append(bound.word)
                continue
            words += [self.read(item, word_type(operand)) for item in _items(operand, bound)]
        if getattr(ins, "reads_carry", False):
            assert carry is not None
            words.append(self.register(carry))
        results = emit(self.e, *words)
        if not isinstance(results, tuple):
            results = (results,)
        guard, given = self.guard(statement), iter(results)
        for operand in statement.signature.operands:
            bound = statement.operands.get(operand.name)
            if operand.use == "read" or (bound is None and operand.paired):
                continue
            for item in _items(operand, bound):
                self.write(item, word_type(operand), next(given), guard)
        if getattr(ins, "writes_carry", False):
            assert carry is not None
            self.put(carry, next(given), guard)

    def fail(self) -> None:
        """Ends the function: a lane must not access memory as the statement says."""
        self.b.ret(LONG(-1 - self.number))

    def has_stored(self, active: Value) -> None:
        before = self.b.load(self.stored, typ=LONG)
        some = self.b.zext(self.e.any(active), LONG)
        self.b.store(self.b.or_(before, some), self.stored)


def _items(operand: Operand, bound: Bound | None) -> tuple[Bound | None, ...]:
    return items_of(bound) if operand.kind == "vector" else (bound,)


def _dtype_of(type_: str) -> np.dtype[Any]:
    return np.dtype(np.bool_ if type_ == "pred" else f"uint{REGISTER_BITS[type_]}")


def _present(s: Strand) -> Array:
    return np.ones(1, np.bool_)


# --- loads, stores, addresses ---------------------------------------------------------------------


def _is_uniform(place: Bound, space: str) -> bool:
    """Whether an operand is one address of memory that nobody writes."""
    return (
        isinstance(place, Address)
        and isinstance(place.base, Constant)
        and (space in ("param", "const"))
    )


def _of_words(statement: Statement) -> bool:
    """Whether a load or store is one of registers, from or to memory."""
    ins = statement.instruction
    assert isinstance(ins, OrdinaryInstruction)
    place = statement.operands["a"]
    count = len(items_of(statement.operands.get("d", statement.operands.get("b"))))
    kind = TYPES[ins.types[-1]]
    if not isinstance(place, Address) or kind.size > 64:
        return False
    size = kind.size // 8 * count
    return size & (size - 1) == 0 and size <= 32


def _load(t: Translation, statement: Statement, ins: OrdinaryInstruction) -> None:
    items = items_of(statement.operands.get("d"))
    place, type_ = statement.operands["a"], ins.types[-1]
    bits, space = TYPES[type_].size, access.space_of(statement, place)
    guard = t.guard(statement)
    if guard is None and _is_uniform(place, space):
        words = [_uniform(t, place, space, bits, i) for i in range(len(items))]
    else:
        active, size = t.active(guard), bits // 8 * len(items)
        places = t.memory.places(space, t.address(place), size, active, False, t.fail)
        words = t.memory.load(places, bits, len(items))
    for item, word in zip(items, words, strict=True):
        t.write(item, type_, word, guard)


def _uniform(t: Translation, place: Bound, space: str, bits: int, number: int) -> Value:
    """A word at a constant address, read once a call."""
    assert isinstance(place, Address)
    assert isinstance(place.base, Constant)
    size = bits // 8
    address = np.array([place.base.word + place.offset + number * size & _MASK], np.uint64)

    def read(s: Strand) -> Array:
        return load(s, space, address, size)

    return t.input((space, int(address[0]), size), Input(read, np.dtype(f"uint{bits}")))


def _store(t: Translation, statement: Statement, ins: OrdinaryInstruction) -> None:
    place, type_ = statement.operands["a"], ins.types[-1]
    words = [t.read(item, type_) for item in items_of(statement.operands["b"])]
    space, guard = access.space_of(statement, place), t.guard(statement)
    active, size = t.active(guard), TYPES[type_].size // 8 * len(words)
    places = t.memory.places(space, t.address(place), size, active, True, t.fail)
    t.memory.store(places, words)
    t.has_stored(active)


_WINDOWS = {"shared": SHARED, "local": LOCAL, "param": PARAMETERS}


def _convert_address(t: Translation, statement: Statement, ins: OrdinaryInstruction) -> None:
    window = _WINDOWS.get(ins.modifiers["space"].partition("::")[0], 0)
    words = t.read(statement.operands["a"], "u64")
    if window:
        words = t.b.and_(words, t.e.word(64, (1 << WINDOW_BITS) - 1))
        if not ins.modifiers["to"]:
            words = t.b.add(words, t.e.word(64, window))
    t.write(statement.operands["d"], "u64", words, t.guard(statement))


@dataclass(frozen=True)
class _Kind:
    """Statements with an effect of their own: which of them fit, and their instructions."""

    fits: Callable[[Statement], bool]
    emit: Callable[[Translation, Statement, OrdinaryInstruction], None]


#: first word of an opcode -> how it is translated, if it is no computation by a rule
_STATEMENTS = {
    "ld": _Kind(_of_words, _load),
    "ldu": _Kind(_of_words, _load),
    "st": _Kind(_of_words, _store),
    "cvta": _Kind(lambda statement: True, _convert_address),
}
