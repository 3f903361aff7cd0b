"""Machine code of f32 arithmetic on rows; without llvmlite the same text runs on NumPy's arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from dtypes import Array
from emulator.arith.engines import by_kernels
from emulator.arith.fast.threads import in_parts

if TYPE_CHECKING:
    from emulator.arith.fast.words import Value

#: lanes of a vector
_LANES = 16
#: elements that are worth another thread
_WORTH_A_THREAD = 1 << 16
_F32 = np.dtype(np.float32)

State = tuple[Array, ...]
#: a function of arrays, or of words of LLVM
Expression = Callable[..., Any]


class Steps(Protocol):
    """What a reduction computes; a state is one array, or word, for each number that it keeps."""

    def start(self, shape: tuple[int, ...]) -> State:
        """The state before the first element."""

    def take(self, state: State, values: Array) -> State:
        """The state after one more element."""

    def join(self, left: State, right: State) -> State:
        """The state of two threads."""


def take_turns(steps: Steps, state: State, values: Array, vector: int = 1) -> None:
    """Takes the rows of `values` into a state of ``(rows, n)`` numbers. The n accumulators of a row
    take its vectors in turn, element by element, until there are no more."""
    rows, threads = state[0].shape
    # Callers take the elements of an incomplete vector themselves.
    assert values.shape[1] % vector == 0
    native = None
    if threads % _LANES == 0 and values.strides[1] == values.itemsize and find_spec("llvmlite"):
        native = by_kernels("auto", lambda: _turns(type(steps), vector))
    if native is None:
        vectors = values.reshape(rows, -1, vector)
        for first in range(0, vectors.shape[1], threads):
            part = vectors[:, first : first + threads]
            here = np.s_[:, : part.shape[1]]
            for place in range(vector):
                made = steps.take(tuple(x[here] for x in state), part[:, :, place])
                for held, new in zip(state, made, strict=True):
                    held[here] = new
        return
    addresses = np.array([x.ctypes.data for x in state], np.int64)
    words = values.ctypes.data, values.strides[0], values.shape[1], threads, addresses.ctypes.data
    _over(native, words, rows, values.size)


def on_rows(expression: Expression, *operands: Any) -> Array:
    """``expression(*operands)`` of arrays of f32 that broadcast to two axes."""
    given = [np.asarray(x, np.float32) for x in operands]
    shape = np.broadcast_shapes((1, 1), *(x.shape for x in given))
    given = [x.reshape((1,) * (2 - x.ndim) + x.shape) for x in given]
    native = None
    whole = all(x.shape[1] == 1 or x.strides[1] == x.itemsize for x in given)
    if whole and find_spec("llvmlite"):
        wide = tuple(x.shape[1] > 1 for x in given)
        native = by_kernels("auto", lambda: _rows(expression, wide))
    if native is None:
        return np.asarray(expression(*given))
    out = np.empty(shape, np.float32)
    steps = [x.strides[0] if x.shape[0] > 1 else 0 for x in (*given, out)]
    table = np.array([[x.ctypes.data for x in (*given, out)], steps], np.int64)
    _over(native, (table.ctypes.data, shape[1], 0, 0, 0), shape[0], out.size)
    return out


def _over(native: Callable[..., int], words: Sequence[int], rows: int, work: int) -> None:
    """Calls a function for all rows, in threads where that is faster."""

    def piece(first: int, last: int) -> int:
        return int(native(*words, first, last))

    in_parts(piece, rows, 1 + work // _WORTH_A_THREAD)


# --- machine code ---------------------------------------------------------------------------------

_NAME = "rows"


class _Writer:
    """A function ``i64 (five words, first row, last row)`` that is being written."""

    def __init__(self) -> None:
        from llvmlite import ir

        from emulator.arith.fast.words import LONG, InstructionStream

        self.module = ir.Module(_NAME)
        self.native = ir.Function(self.module, ir.FunctionType(LONG, [LONG] * 7), _NAME)
        self.b = ir.IRBuilder(self.native.append_basic_block())
        self.e = InstructionStream(self.module, self.b, _LANES)
        self.long = LONG

    def compiled(self) -> Callable[..., int]:
        from emulator.arith.fast.kernels import machine_code

        self.b.ret(self.long(0))
        arguments = [ctypes.c_int64] * 7
        return machine_code.function(str(self.module), _NAME, ctypes.c_int64, *arguments)

    def loop(
        self,
        first: Value,
        last: Value,
        step: int,
        carried: Sequence[Value],
        body: Callable[[Value, Sequence[Value]], Sequence[Value]],
    ) -> Sequence[Value]:
        """`body` with a number and the values that it returned last; those at the end."""
        b, before = self.b, self.b.block
        head, inside, after = (self.native.append_basic_block() for _ in range(3))
        b.branch(head)
        b.position_at_end(head)
        number = b.phi(self.long)
        held = [b.phi(x.type) for x in carried]
        for phi, value in zip([number, *held], [first, *carried], strict=True):
            phi.add_incoming(value, before)
        b.cbranch(b.icmp_signed("<", number, last), inside, after)
        b.position_at_end(inside)
        made = body(number, held)
        following = b.add(number, self.long(step))
        for phi, value in zip([number, *held], [following, *made], strict=True):
            phi.add_incoming(value, b.block)
        b.branch(head)
        b.position_at_end(after)
        return held

    def entry(self, table: Value, number: Value) -> Value:
        from emulator.arith.fast.words import POINTER

        place = self.b.gep(self.b.inttoptr(table, POINTER), [number], source_etype=self.long)
        return self.b.load(place, typ=self.long)

    def place(self, address: Value, index: Value) -> Value:
        """Where the f32 of a number is, from an address on."""
        from emulator.arith.fast.words import POINTER

        return self.b.inttoptr(self.b.add(address, self.b.shl(index, self.long(2))), POINTER)

    def vector(self, place: Value, lanes: int, mask: Value | None = None) -> Value:
        """So many f32, or those of a mask."""
        from llvmlite import ir

        from emulator.arith.fast.words import WORD, type_of

        type_ = type_of(_F32, lanes)
        if mask is None:
            return self.b.load(place, typ=type_, align=4)
        given = [place, WORD(4), mask, ir.Constant(type_, None)]
        return self.e.function(f"llvm.masked.load.v{lanes}f32.p0", type_, given)

    def scalar(self, address: Value) -> Value:
        """The f32 at an address, in a word."""
        from emulator.arith.fast.words import Word, type_of

        place = self.place(address, self.long(0))
        return Word(self.e, self.b.load(place, typ=type_of(_F32), align=4), _F32)

    def below(self, limit: Value, lanes: int) -> Value:
        """The lanes whose number is below a limit."""
        from llvmlite import ir

        from emulator.arith.fast.words import Word

        numbers = ir.Constant(ir.VectorType(self.long, lanes), list(range(lanes)))
        return self.b.icmp_signed("<", numbers, Word(self.e, limit, np.int64).splat(lanes).value)


@cache
def _turns(steps: Callable[[], Any], vector: int) -> Callable[..., int]:
    """``(values, bytes of a row, its elements, threads, table of addresses of states)``."""
    from emulator.arith.fast.words import Word, select

    w = _Writer()
    values, stride, length, threads, table, first, last = w.native.args
    count = len(steps().start((1, 1)))
    b, long, wide = w.b, w.long, _LANES * vector
    whole = b.sdiv(length, b.mul(threads, long(vector)))

    def take(held: Sequence[Value], loaded: Value) -> list[Value]:
        state = tuple(Word(w.e, x, _F32) for x in held)
        words = Word(w.e, loaded, _F32)
        for place in range(vector):
            part = words.shuffled(words, range(place, wide, vector)) if vector > 1 else words
            state = steps().take(state, part)
        return [x.value for x in state]

    def row(number: Value, _: Sequence[Value]) -> Sequence[Value]:
        elements = b.add(values, b.mul(number, stride))

        def lanes(lane: Value, _: Sequence[Value]) -> Sequence[Value]:
            index = b.add(b.mul(number, threads), lane)
            places = [w.place(w.entry(table, long(i)), index) for i in range(count)]
            state = [w.vector(place, _LANES) for place in places]
            start = b.mul(lane, long(vector))

            def turn(at: Value, held: Sequence[Value]) -> Sequence[Value]:
                here = b.add(b.mul(b.mul(at, threads), long(vector)), start)
                return take(held, w.vector(w.place(elements, here), wide))

            full = [Word(w.e, x, _F32) for x in w.loop(long(0), whole, 1, state, turn)]
            behind = b.add(b.mul(b.mul(whole, threads), long(vector)), start)
            left, results = b.sub(length, behind), [*full]
            with w.e.rarely(Word(w.e, b.icmp_signed(">", left, long(0)), np.bool_), results):
                rest = w.vector(w.place(elements, behind), wide, w.below(left, wide))
                made = take([x.value for x in full], rest)
                mask = Word(w.e, w.below(b.sdiv(left, long(vector)), _LANES), np.bool_)
                results[:] = [
                    select(mask, Word(w.e, x, _F32), y) for x, y in zip(made, full, strict=True)
                ]
            for place, word in zip(places, results, strict=True):
                b.store(word.value, place, align=4)
            return []

        w.loop(long(0), threads, _LANES, [], lanes)
        return []

    w.loop(first, last, 1, [], row)
    return w.compiled()


@cache
def _rows(expression: Expression, wide: tuple[bool, ...]) -> Callable[..., int]:
    """``(table of addresses and of bytes of a row, columns)``; `wide`: which operands have more
    than one column."""
    from emulator.arith.fast.words import Word

    w = _Writer()
    table, columns, _, _, _, first, last = w.native.args
    b, long, count = w.b, w.long, len(wide) + 1

    def row(number: Value, _: Sequence[Value]) -> Sequence[Value]:
        starts = []
        for i in range(count):
            step = w.entry(table, long(count + i))
            starts.append(b.add(w.entry(table, long(i)), b.mul(number, step)))
        single = [
            None if is_wide else w.scalar(start).splat(_LANES)
            for start, is_wide in zip(starts, wide, strict=False)
        ]

        def compute(at: Value, mask: Value | None) -> None:
            words = [
                Word(w.e, w.vector(w.place(start, at), _LANES, mask), _F32)
                if held is None
                else held
                for start, held in zip(starts, single, strict=False)
            ]
            made, place = expression(*words).value, w.place(starts[-1], at)
            if mask is None:
                b.store(made, place, align=4)
            else:
                _masked_store(w, made, place, mask)

        def lanes(at: Value, _: Sequence[Value]) -> Sequence[Value]:
            compute(at, None)
            return []

        whole = b.and_(columns, long(-_LANES))
        w.loop(long(0), whole, _LANES, [], lanes)
        with b.if_then(b.icmp_signed("<", whole, columns), likely=False):
            compute(whole, w.below(b.sub(columns, whole), _LANES))
        return []

    w.loop(first, last, 1, [], row)
    return w.compiled()


def _masked_store(w: _Writer, words: Value, place: Value, mask: Value) -> None:
    from llvmlite import ir

    from emulator.arith.fast.words import WORD

    name = f"llvm.masked.store.v{_LANES}f32.p0"
    w.e.function(name, ir.VoidType(), [words, place, WORD(4), mask])
