"""``Emitter``: writes a function in LLVM IR: calls, memory, loops and branches.

Its values are words (see `words`). Vectors have any number of lanes: LLVM cuts them into registers
or joins them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
from llvmlite import ir
from numpy.typing import DTypeLike

from dtypes import Rounding
from emulator.arith.fast.kernels import machine_code
from emulator.arith.fast.scratch import LINE
from emulator.arith.fast.words import (
    LONG,
    POINTER,
    WORD,
    InstructionStream,
    Type,
    Value,
    Word,
    type_of,
)

#: arguments of llvm.set.rounding
_ROUNDINGS: dict[Rounding, int] = {"rz": 0, "rn": 1, "rp": 2, "rm": 3}
#: positions of a short loop body that are written out
_UNROLLED = 8

#: a number of elements: known now, or when the code runs
Index = int | Word


class Emitter(InstructionStream):
    """Writes into one function."""

    # --- functions ---

    @contextmanager
    def rounding(self, how: Rounding) -> Iterator[None]:
        """Rounding of f64 in functions that are called inside; afterwards to nearest again. Only
        calls are sure to stay inside: LLVM may move what computes beside them."""
        if how == "rn":
            yield
            return
        self.function("llvm.set.rounding", ir.VoidType(), [WORD(_ROUNDINGS[how])])
        yield
        self.function("llvm.set.rounding", ir.VoidType(), [WORD(_ROUNDINGS["rn"])])

    # --- numbers ---

    def number(self, value: Index) -> Word:
        """A scalar of int64."""
        return value if isinstance(value, Word) else Word(self, LONG(value), np.int64)

    def numbers(self, numbers: Sequence[int], dtype: DTypeLike = np.int32) -> Word:
        """A vector of different integers."""
        type_ = type_of(np.dtype(dtype), len(numbers))
        return Word(self, ir.Constant(type_, list(numbers)), dtype)

    # --- memory ---

    def room(self, dtype: DTypeLike, count: int) -> Value:
        """The address of memory of the function's own, which begins with a line of the cache."""
        b, entry = self.builder, self.builder.function.entry_basic_block
        with b.goto_block(entry):
            b.position_at_start(entry)
            place = b.alloca(ir.ArrayType(type_of(np.dtype(dtype)), max(count, 1)))
            place.align = LINE
            # llvmlite still gives it a type of its own, which LLVM has no more.
            place.type = POINTER
        return place

    def at(self, place: Value, index: Index, dtype: DTypeLike) -> Value:
        """The address of an element."""
        if isinstance(index, int) and not index:
            return place
        index = self.number(index)
        return self.builder.gep(place, [index.value], source_etype=type_of(np.dtype(dtype)))

    def load(
        self, place: Value, index: Index, dtype: DTypeLike, lanes: int = 0, align: int = 0
    ) -> Word:
        """The element with this number, or neighbours from it on; `align`: bytes, if other than
        those of an element."""
        dtype = np.dtype(dtype)
        held = self.builder.load(
            self.at(place, index, dtype), align=align or dtype.itemsize, typ=type_of(dtype, lanes)
        )
        return Word(self, held, dtype)

    def lanes(self, place: Value, index: Index, dtype: DTypeLike) -> Word:
        """Neighbouring elements from `index` on, as many as a vector has."""
        return self.load(place, index, dtype, self.width)

    def store(self, x: Word, place: Value, index: Index, align: int = 0) -> None:
        place = self.at(place, index, x.dtype)
        self.builder.store(x.value, place, align=align or x.dtype.itemsize)

    def prefetch(self, place: Value, size: int, to_write: bool) -> None:
        """Asks for bytes that are soon to be read or written."""
        how = [WORD(x) for x in (int(to_write), 3, 1)]  # into all caches; data
        for start in range(0, size, LINE):
            given = [self.at(place, start, np.uint8), *how]
            self.function("llvm.prefetch.p0", ir.VoidType(), given)

    # --- flow ---

    @contextmanager
    def loop(
        self, stop: Index, start: Index = 0, step: Index = 1, carried: list[Word] | None = None
    ) -> Iterator[Word]:
        """``for i in range(start, stop, step)``. The body replaces the items of `carried` by those
        of the next round; afterwards they are the last ones."""
        b, held = self.builder, carried if carried is not None else []
        known = isinstance(start, int) and isinstance(stop, int)
        assert not known or start < stop, "a loop that is known to be empty"
        first, end, given, before = self.number(start), self.number(stop), list(held), b.block
        body, after = b.append_basic_block("body"), b.append_basic_block("after")
        if known:
            b.branch(body)
        else:
            b.cbranch((first < end).value, body, after)
        b.position_at_end(body)
        phis = [b.phi(x.value.type) for x in (first, *held)]
        index, held[:] = (
            Word(self, phis[0], first.dtype),
            [Word(self, phi, x.dtype) for phi, x in zip(phis[1:], given, strict=True)],
        )
        yield index
        following = index + step
        for phi, x, y in zip(phis, (first, *given), (following, *held), strict=True):
            phi.add_incoming(x.value, before)
            phi.add_incoming(y.value, b.block)
        inside = b.block
        b.cbranch((following < end).value, body, after)
        b.position_at_end(after)
        if not known:
            held[:] = self.joined(before, given, inside, held)

    def unrolled(self, count: int) -> Iterator[Word]:
        """``range(count)`` for a short body, eight at a time."""
        if count < _UNROLLED:
            yield from (self.number(i) for i in range(count))
            return
        assert count % _UNROLLED == 0
        with self.loop(count, step=_UNROLLED) as first:
            for i in range(_UNROLLED):
                yield first + i if i else first

    def when(self, condition: Word, likely: bool | None = None) -> AbstractContextManager[Any]:
        """A block of instructions that run where a scalar condition holds."""
        found: AbstractContextManager[Any] = self.builder.if_then(condition.value, likely)
        return found

    def either(self, condition: Word) -> AbstractContextManager[Any]:
        """Two blocks: what happens where a scalar condition holds, and where not."""
        found: AbstractContextManager[Any] = self.builder.if_else(condition.value)
        return found


def native_function(
    name: str, parameters: Sequence[Type], write: Callable[..., None], width: int = 8
) -> Callable[..., None]:
    """A function of machine code without result, of integers and arrays that do not overlap;
    ``write(emitter, *parameters)`` emits what it does, with words of int64 and addresses."""
    module = ir.Module(name)
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), list(parameters)), name)
    for argument in function.args:
        if argument.type == POINTER:
            argument.add_attribute("noalias")
    e = Emitter(module, ir.IRBuilder(function.append_basic_block("entry")), width)
    write(e, *(x if x.type == POINTER else Word(e, x, np.int64) for x in function.args))
    e.builder.ret_void()
    kinds = [ctypes.c_void_p if x == POINTER else ctypes.c_int64 for x in parameters]
    compute = machine_code.function(str(module), name, None, *kinds)

    def run(*given: Any) -> None:
        compute(*(x.ctypes.data if isinstance(x, np.ndarray) else x for x in given))

    run.compute = compute  # type: ignore[attr-defined]
    return run
