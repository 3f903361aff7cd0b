"""``Emitter``: LLVM IR on vectors, with the few operations that kernels are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from llvmlite import ir

from dtypes import Rounding

I1, I8, I16, I32, I64 = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64))
F32, F64, POINTER = ir.FloatType(), ir.DoubleType(), ir.PointerType()
Value = Any
Type = Any

#: what llvm.set.rounding takes
_ROUNDINGS: dict[Rounding, int] = {"rz": 0, "rn": 1, "rp": 2, "rm": 3}

#: loads and stores of single words beside each other in a loop
_UNROLLED = 8


class Held(NamedTuple):
    """A vector, and by lane the number of the element that it holds."""

    numbers: tuple[int, ...]
    vector: Value


class Emitter:
    """Writes into one function; `b` is the builder of what is not named here.

    Vectors have any number of lanes: LLVM cuts them into registers or joins them.
    """

    def __init__(self, function: Any, lanes: int = 8) -> None:
        self.function, self.width = function, lanes
        self.entry = function.append_basic_block("entry")
        self.b = ir.IRBuilder(self.entry)

    # --- constants and vectors ---

    def vector_of(self, type_: Type) -> Type:
        return ir.VectorType(type_, self.width)

    def constant(self, type_: Type, number: float | str) -> Value:
        """The same number in all lanes, where `type_` is a vector."""
        if isinstance(type_, ir.VectorType):
            return ir.Constant(type_, [ir.Constant(type_.element, number)] * type_.count)
        return ir.Constant(type_, number)

    def like(self, x: Value, number: float | str) -> Value:
        """A constant of the type of `x`."""
        return self.constant(x.type, number)

    def numbers(self, numbers: Sequence[int]) -> Value:
        """A vector of int32."""
        return ir.Constant(ir.VectorType(I32, len(numbers)), list(numbers))

    def splat(self, x: Value) -> Value:
        """A number in all lanes."""
        vector, lanes = self.vector_of(x.type), self.vector_of(I32)
        none = ir.Constant(vector, ir.Undefined)
        one = self.b.insert_element(none, x, ir.Constant(I32, 0))
        return self.b.shuffle_vector(one, none, ir.Constant(lanes, [0] * self.width))

    def shuffled(self, x: Value, y: Value, lanes: list[int]) -> Value:
        """Lanes of two vectors by their numbers; those of `y` follow those of `x`."""
        return self.b.shuffle_vector(x, y, ir.Constant(ir.VectorType(I32, len(lanes)), lanes))

    def side_by_side(self, x: Value, y: Value) -> Value:
        """The lanes of two vectors, one after the other."""
        return self.shuffled(x, y, list(range(x.type.count + y.type.count)))

    def rearranged(self, held: Sequence[Held], wanted: Sequence[Sequence[int]]) -> list[Value]:
        """Vectors of elements by their numbers, out of vectors that hold them.

        A shuffle takes lanes of two vectors. Where more are needed, those that half of the results
        take from are first brought into fewer.
        """
        held = _needed(held, wanted)
        if len(held) <= 2:
            lane = {n: i for i, n in enumerate(n for x in held for n in x.numbers)}
            x, y = held[0].vector, held[-1].vector
            return [self.shuffled(x, y, [lane[n] for n in numbers]) for numbers in wanted]
        out, middle = [], len(wanted) // 2
        for part in (wanted[:middle], wanted[middle:]) if middle else (wanted,):
            out += self.rearranged(self._joined(_needed(held, part), part), part)
        return out

    def _joined(self, held: list[Held], wanted: Sequence[Sequence[int]]) -> list[Held]:
        """Two vectors at a time as one, where that holds all that is wanted of them."""
        needed, out = {n for numbers in wanted for n in numbers}, []
        for two in (held[i : i + 2] for i in range(0, len(held), 2)):
            lanes = [i for i, n in enumerate(n for x in two for n in x.numbers) if n in needed]
            if len(two) == 1 or len(lanes) > self.width:
                out += two
                continue
            numbers = [*two[0].numbers, *two[1].numbers]
            lanes += lanes[:1] * (self.width - len(lanes))
            vector = self.shuffled(two[0].vector, two[1].vector, lanes)
            out.append(Held(tuple(numbers[i] for i in lanes), vector))
        return out

    def select(self, where: Value, yes: Value, no: Value) -> Value:
        return self.b.select(where, yes, no)

    def larger(self, x: Value, y: Value) -> Value:
        """The larger of two signed integers."""
        return self.intrinsic("llvm.smax", x, y)

    def smaller(self, x: Value, y: Value) -> Value:
        return self.intrinsic("llvm.smin", x, y)

    def converted(self, type_: Type, x: Value, how: str) -> Value:
        """`x` by a conversion of LLVM (`sitofp`, `zext`, `bitcast` …), lane for lane."""
        if isinstance(x.type, ir.VectorType):
            type_ = ir.VectorType(type_, x.type.count)
        return getattr(self.b, how)(x, type_)

    def intrinsic(self, name: str, *arguments: Value) -> Value:
        """An intrinsic on one type, such as ``llvm.fma``."""
        type_ = arguments[0].type
        suffix = {I32: "i32", I64: "i64", F32: "f32", F64: "f64"}
        is_vector = isinstance(type_, ir.VectorType)
        scalar = suffix[type_.element if is_vector else type_]
        full = f"{name}.v{type_.count}{scalar}" if is_vector else f"{name}.{scalar}"
        return self.b.call(self._declared(full, type_, [x.type for x in arguments]), arguments)

    @contextmanager
    def rounding(self, how: Rounding) -> Iterator[None]:
        """How functions that are called inside round f64; afterwards to nearest again. Only calls
        are sure to stay inside: LLVM may move what computes beside them."""
        if how == "rn":
            yield
            return
        set_mode = self._declared("llvm.set.rounding", ir.VoidType(), [I32])
        self.b.call(set_mode, [ir.Constant(I32, _ROUNDINGS[how])])
        yield
        self.b.call(set_mode, [ir.Constant(I32, _ROUNDINGS["rn"])])

    def any(self, where: Value) -> Value:
        """Whether a mask is set in any lane."""
        word = self.b.bitcast(where, ir.IntType(where.type.count))
        return self.b.icmp_unsigned("!=", word, ir.Constant(word.type, 0))

    def _declared(self, name: str, result: Type, arguments: list[Type]) -> Value:
        module = self.function.module
        if name in module.globals:
            return module.globals[name]
        return ir.Function(module, ir.FunctionType(result, arguments), name)

    # --- memory ---

    def array(self, type_: Type, count: int) -> Value:
        """Memory of the function for `count` numbers."""
        with self.b.goto_block(self.entry):
            self.b.position_at_start(self.entry)
            place = self.b.alloca(ir.ArrayType(type_, max(count, 1)))
            place.align = 64
            # llvmlite still gives it a type of its own, which LLVM has no more.
            place.type = POINTER
        return place

    def at(self, array: Value, index: Value | int, type_: Type) -> Value:
        """The address of an element."""
        if isinstance(index, int):
            index = ir.Constant(I64, index)
        return self.b.gep(array, [index], source_etype=type_)

    def load(
        self, array: Value, index: Value | int, type_: Type, align: int | None = None
    ) -> Value:
        return self.b.load(self.at(array, index, type_), align=align or _bytes(type_), typ=type_)

    def store(self, x: Value, array: Value, index: Value | int) -> None:
        self.b.store(x, self.at(array, index, x.type), align=_bytes(x.type))

    def lanes(self, array: Value, index: Value | int, type_: Type) -> Value:
        """Neighbouring elements from `index` on, as many as a vector has."""
        place = self.at(array, index, type_)
        return self.b.load(place, align=_bytes(type_), typ=self.vector_of(type_))

    def store_lanes(self, x: Value, array: Value, index: Value | int) -> None:
        type_ = x.type.element
        self.b.store(x, self.at(array, index, type_), align=_bytes(type_))

    def prefetch(self, place: Value, size: int, to_write: bool) -> None:
        """Asks for bytes that are soon to be read or written."""
        f = self._declared("llvm.prefetch.p0", ir.VoidType(), [POINTER, I32, I32, I32])
        how = [ir.Constant(I32, x) for x in (int(to_write), 3, 1)]  # into all caches; data
        for line in range(0, size, 64):
            self.b.call(f, [self.at(place, line, I8), *how])

    # --- flow ---

    @contextmanager
    def loop(self, end: int | Value, start: int | Value = 0, step: int = 1) -> Iterator[Value]:
        """``for i in range(start, end, step)``; the loop runs at least once."""
        start, end = (ir.Constant(I64, x) if isinstance(x, int) else x for x in (start, end))
        before, body = self.b.block, self.b.append_basic_block("body")
        self.b.branch(body)
        self.b.position_at_end(body)
        index = self.b.phi(I64)
        index.add_incoming(start, before)
        yield index
        following = self.b.add(index, ir.Constant(I64, step))
        index.add_incoming(following, self.b.block)
        after = self.b.append_basic_block("after")
        self.b.cbranch(self.b.icmp_signed("<", following, end), body, after)
        self.b.position_at_end(after)

    def rarely(self, condition: Value, usual: Value, compute: Callable[[], Value]) -> Value:
        """`usual`, but what `compute` emits where a bit is set, which is rare."""
        before = self.b.block
        with self.b.if_then(condition, likely=False):
            other = compute()
            inside = self.b.block
        out = self.b.phi(usual.type)
        out.add_incoming(usual, before)
        out.add_incoming(other, inside)
        return out

    def unrolled(self, count: int) -> Iterator[Value]:
        """``range(count)`` for a short body, eight at a time."""
        if count < _UNROLLED:
            yield from (ir.Constant(I64, i) for i in range(count))
            return
        assert count % _UNROLLED == 0
        with self.loop(count, step=_UNROLLED) as first:
            for i in range(_UNROLLED):
                yield self.b.add(first, ir.Constant(I64, i)) if i else first


def _needed(held: Sequence[Held], wanted: Sequence[Sequence[int]]) -> list[Held]:
    """The vectors that any of these elements is in."""
    needed = {n for numbers in wanted for n in numbers}
    return [x for x in held if not needed.isdisjoint(x.numbers)]


def in_pairs(join: Callable[[Value, Value], Value], values: list[Value]) -> Value:
    """All values joined, such as added, so that few have to wait for each other."""
    while len(values) > 1:
        pairs = [join(x, y) for x, y in zip(values[::2], values[1::2], strict=False)]
        values = pairs + values[len(pairs) * 2 :]
    return values[0]


def _bytes(type_: Type) -> int:
    return {I8: 1, I16: 2, I32: 4, I64: 8, F32: 4, F64: 8, POINTER: 8}[type_]
