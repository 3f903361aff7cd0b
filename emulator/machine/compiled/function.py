"""The native function of a segment: its arrays, its registers and its operands.

A register is a vector of 32 words that is read from the strand's array when a statement first needs
it, and written to a new array at the end where somebody may read it later; between, it is a value
of LLVM.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from llvmlite import ir

from dtypes import Array
from emulator.arith.fast.words import LONG, POINTER, WORD, Value
from emulator.arith.scalar.types import TYPES
from emulator.isa.register_types import REGISTER_BITS
from emulator.machine.compiled.memory import Memory
from emulator.machine.compiled.warp_emitter import WIDTH, WarpEmitter, integers
from emulator.machine.shared.special import is_of_thread
from emulator.machine.vector.memory import shared_rank
from emulator.machine.vector.special import ctas_along, special, words_of_block
from emulator.machine.vector.strand import Strand
from emulator.ptx.program import (
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
)
from emulator.targets import Target

NAME = "segment"
_AXES = "xyz"

#: a register that a segment writes, and what its array holds
Output = tuple[int, np.dtype[Any]]


@dataclass(frozen=True)
class Input:
    """Words that a segment takes: of a register, or what a strand knows of itself."""

    read: Callable[[Strand], Array]
    dtype: np.dtype[Any]
    #: where it is the same in every call
    fixed: Array | None = None
    #: keeps memory alive whose address the function holds
    owner: Any = None
    #: there is one word for each warp, not for each lane; or 32 for each warp of a block, the same
    #: in all blocks
    of_warps: bool = False
    of_block: bool = False

    @property
    def by_warp(self) -> bool:
        """Whether the first axis of the words counts warps."""
        return self.of_warps or self.of_block


class NativeFunction(ABC):
    """A function that is being written: ``i64 (first, end, arguments, context, ...)``.

    What follows the statements that it consists of, and where its registers are between them, is
    said by the classes below.
    """

    def __init__(self, function: Function, target: Target, *more: Any) -> None:
        self.function, self.target = function, target
        #: of the statement that is being translated
        self.number = 0
        self._inputs: dict[Any, tuple[int, Input]] = {}
        self._fixed: dict[Any, Value] = {}
        self._values: dict[Any, Value] = {}
        self._written: dict[int, None] = {}
        self._module = module = ir.Module(NAME)
        type_ = ir.FunctionType(LONG, [LONG, LONG, POINTER, POINTER, *more])
        self.native = ir.Function(module, type_, NAME)
        self._first, self._end, self.arguments, context, *self._more = self.native.args
        #: where the addresses of arrays stand
        self.places = self.arguments
        self._entry = entry = ir.IRBuilder(self.native.append_basic_block("entry"))
        self.e = WarpEmitter(module, ir.IRBuilder(entry.block), self._address_of, entry)
        self.b = self.e.builder
        self._stored = entry.alloca(LONG)
        entry.store(LONG(0), self._stored)
        self.memory = Memory(self.e, context, entry)
        #: the lanes that execute a statement without a guard
        self.present: Value = None
        #: registers that many loads of the statements under way add constants to
        self.bases: Collection[int] = ()

    def at(self, warp: Value) -> None:
        """Starts the code for one warp."""
        self.memory.warp = self.warp = warp
        self._values = {}

    def alive(self) -> Value:
        """The lanes of the warp that have not ended, as bits."""
        raise NotImplementedError

    def room_of(self, type_: Any) -> Value:
        """The address of a value that changes while the function runs."""
        return self._entry.alloca(type_)

    def _text(self) -> str:
        return str(self._module)

    # --- arguments: for each array its address and the bytes from warp to warp ---

    def _argument(self, number: int, of_block: bool = False) -> Value:
        key = ("place", number)
        if key not in self._values:
            warp = self.memory.of_warp("places") if of_block else self.warp
            given = self.places, LONG(2 * number), warp
            self._values[key] = self.e.fragment("argument", POINTER, _place, *given)
        return self._values[key]

    def input(self, key: Any, given: Input) -> Value:
        """Words that the strand has; outputs stand behind all inputs."""
        if key not in self._values:
            number = self._number(key, given)
            bits, size = given.dtype.itemsize * 8, given.dtype.itemsize
            if given.of_warps:
                word = self.b.load(self._argument(number), typ=ir.IntType(bits), align=size)
                self._values[key] = self.e.splat(word)
                return self._values[key]
            place = self._argument(number, given.of_block)
            words = self.b.load(place, typ=integers(bits), align=size)
            if given.dtype == np.bool_:
                words = self.b.icmp_unsigned("!=", words, self.e.word(8, 0))
            self._values[key] = words
        return self._values[key]

    def _number(self, key: Any, given: Input) -> int:
        return self._inputs.setdefault(key, (len(self._inputs), given))[0]

    def pointer(self, kind: str, owner: Any, address: int) -> Value:
        """An address of what `owner` keeps in memory, known when the function is called: what LLVM
        made is kept on disk."""
        key = (kind, id(owner))
        if ("pointer", key) not in self._fixed:
            entry, words = self._entry, np.full(WIDTH, address, np.uint64)
            number = self._number(key, Input(lambda s: words, words.dtype, words, owner))
            at = entry.gep(self.arguments, [LONG(2 * number)], source_etype=LONG)
            held = entry.inttoptr(entry.load(at, typ=LONG), POINTER)
            self._fixed["pointer", key] = entry.load(held, typ=LONG)
        return self._fixed["pointer", key]

    def _address_of(self, builder: Any, table: Array) -> Value:
        """The address of an array that does not change, by way of a variable of the module: other
        functions of it look there, too."""
        key = ("table", id(table))
        if key not in self._fixed:
            variable = ir.GlobalVariable(self._module, LONG, f"table{len(self._module.globals)}")
            variable.initializer, variable.linkage = LONG(0), "internal"
            self._entry.store(self.pointer("table", table, int(table.ctypes.data)), variable)
            self._fixed[key] = variable
        return builder.load(self._fixed[key], typ=LONG)

    # --- registers ---

    def register(self, index: int) -> Value:
        return self.input(index, self._held(index))

    def _held(self, index: int) -> Input:
        """A register, as the strand has it."""
        dtype = _dtype_of(self.function.registers[index].type)
        return Input(lambda s: s.read(index), dtype)

    def put(self, index: int, words: Value, guard: Value | None) -> None:
        if guard is not None:
            words = self.e.select(guard, words, self.register(index))
        self._values[index] = words
        self._written[index] = None

    def _keep(self, words: Value, place: Value) -> None:
        """Words of a register as its array holds them."""
        if words.type == integers(1):
            words = self.e.resize(words, 8)
        self.b.store(words, place, align=words.type.element.width // 8)

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
        base, _, axis = name.partition(".")
        if base == "%ctaid" and axis in _AXES:
            read = partial(_ctas_of_warps, _AXES.index(axis))
            return self.input(name, Input(read, np.dtype(np.uint32), of_warps=True))
        if is_of_thread(name):
            read = partial(_warps_of_block, name)
            return self.input(name, Input(read, np.dtype(np.uint32), of_block=True))
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
        if not isinstance(base, Register):
            return self.read(bound.place, "u64")
        words = self.register(base.index)
        if words.type.element.width < 64:
            words = e.resize(words, 32)
            return e.resize(self.b.add(words, e.word(32, offset)) if offset else words, 64)
        return self.b.add(words, e.word(64, offset)) if offset else words

    def many(self, bound: Bound, space: str) -> Value | None:
        """The register of a memory operand, where many loads add constants to it."""
        base = bound.base if isinstance(bound, Address) and space == "shared" else None
        known = isinstance(base, Register) and base.index in self.bases
        return self.register(base.index) if known else None  # type: ignore[union-attr]

    @abstractmethod
    def fail(self) -> None:
        """Gives up: a lane must not access memory as the statement says."""

    def tell(self, place: Bound, space: str, addresses: Value, size: int, active: Value) -> bool:
        """Says what active lanes load or store, to whoever wants to know; whether somebody does."""
        return False

    def has_stored(self, active: Value) -> None:
        self.e.fragment("stored", ir.VoidType(), _note_stored, self._stored, self.e.mask(active))


class SegmentFunction(NativeFunction):
    """Statements without a branch, for one warp after the other.

    The function returns 1 where it stored anything, 0 where not, and -1 less the number of the
    statement that a lane must not execute.
    """

    def __init__(self, function: Function, target: Target) -> None:
        super().__init__(function, target)
        self._loop, self._done = (self.native.append_basic_block(x) for x in ("loop", "done"))
        self.b.position_at_end(self._loop)
        warp = self.b.phi(LONG)
        warp.add_incoming(self._first, self._entry.block)
        self.at(warp)
        self.present = self.input("present", Input(_present, np.dtype(np.bool_)))

    def fail(self) -> None:
        self.b.ret(LONG(-1 - self.number))

    def finish(self, live: int) -> tuple[str, tuple[Input, ...], tuple[Output, ...]]:
        """The text for LLVM, what the function takes, and what it makes of the registers `live`."""
        b = self.b
        outputs = [i for i in self._written if live >> i & 1]
        for number, index in enumerate(outputs, len(self._inputs)):
            self._keep(self._values[index], self._argument(number))
        following = b.add(self.warp, LONG(1))
        self.warp.add_incoming(following, b.block)
        b.cbranch(b.icmp_unsigned("<", following, self._end), self._loop, self._done)
        self._entry.branch(self._loop)
        b.position_at_end(self._done)
        b.ret(b.load(self._stored, typ=LONG))
        made = tuple((i, _dtype_of(self.function.registers[i].type)) for i in outputs)
        return self._text(), tuple(given for _, given in self._inputs.values()), made


def _place(e: WarpEmitter, places: Value, first: Value, warp: Value) -> Value:
    """The part of a warp in an array, of which the arguments have the start and the step."""
    b = e.builder
    start, step = (
        b.load(b.gep(places, [at], source_etype=LONG), typ=LONG)
        for at in (first, b.add(first, LONG(1)))
    )
    return b.inttoptr(b.add(start, b.mul(warp, step)), POINTER)


def _note_stored(e: WarpEmitter, stored: Value, lanes: Value) -> None:
    b = e.builder
    some = b.zext(b.icmp_unsigned("!=", lanes, WORD(0)), LONG)
    b.store(b.or_(b.load(stored, typ=LONG), some), stored)


def _dtype_of(type_: str) -> np.dtype[Any]:
    return np.dtype(np.bool_ if type_ == "pred" else f"uint{REGISTER_BITS[type_]}")


def _ctas_of_warps(axis: int, s: Strand) -> Array:
    """The coordinate of its block along an axis, for each warp of a strand."""
    wave = s.wave
    coordinates, numbers = ctas_along(wave, axis), wave.warps_of(s).numbers
    if len(numbers) == len(coordinates) * wave.warps_per_cta:
        return np.repeat(coordinates, wave.warps_per_cta)
    return coordinates[numbers // wave.warps_per_cta]


def _warps_of_block(name: str, s: Strand) -> Array:
    """The words ``(warps, 32)`` of a special register, the same in all blocks."""
    return words_of_block(s.wave, name).reshape(-1, WIDTH)


def _present(s: Strand) -> Array:
    """All lanes; the caller puts in its place which ones are there."""
    return np.ones(1, np.bool_)
