"""``WarpEmitter``: LLVM instructions on the 32 lanes of a warp, whose values have no dtype.

A word of all lanes is a vector: ``<32 x i32>``, of a predicate ``<32 x i1>``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

import numpy as np
from llvmlite import ir

from dtypes import Array
from emulator.arith.fast.emitter import Emitter
from emulator.arith.fast.kernels import machine_code
from emulator.arith.fast.words import LONG, POINTER, WORD, Value, Word, constant
from emulator.layout.lanemap import WARP

#: lanes of a vector
WIDTH = WARP


@lru_cache(maxsize=16)
def integers(bits: int) -> Any:
    """The type of words of so many bits."""
    return ir.VectorType(ir.IntType(bits), WIDTH)


@lru_cache(maxsize=16)
def _dtype(bits: int) -> np.dtype[Any]:
    return np.dtype(np.bool_ if bits == 1 else f"uint{bits}")


class _NeedsTable(Exception):
    """A function looks at a table, whose address only the caller knows."""


def _no_table(builder: Any, table: Array) -> Value:
    raise _NeedsTable


def _type_of_function(result: Any, words: Sequence[Value]) -> Any:
    given = ir.LiteralStructType(result) if isinstance(result, tuple) else result
    return ir.FunctionType(given, [x.type for x in words])


def _write(module: Any, name: str, type_: Any, make: Callable[..., Any], table: Any) -> Any:
    """``make(emitter, *words)`` as a function of a module."""
    function = ir.Function(module, type_, name)
    e = WarpEmitter(module, ir.IRBuilder(function.append_basic_block()), table)
    made = make(e, *function.args)
    if isinstance(made, tuple):
        parts, made = made, ir.Constant(type_.return_type, ir.Undefined)
        for number, word in enumerate(parts):
            made = e.builder.insert_value(made, word, number)
    _ = e.builder.ret_void() if made is None else e.builder.ret(made)
    return function


class WarpEmitter(Emitter):
    """Appends instructions to a function; arithmetic is that of `builder`, under LLVM's names."""

    def __init__(
        self, module: Any, builder: Any, table: Callable[[Any, Array], Value], entry: Any = None
    ) -> None:
        super().__init__(module, builder, WIDTH)
        #: builder of what the function does once; None: it has none of its own
        self._entry = entry
        #: gives a builder the address of an array that does not change
        self._table = table

    # --- constants ---

    def word(self, bits: int, value: int) -> Value:
        """One word in all lanes."""
        return constant(WIDTH, _dtype(bits), value)

    def like(self, x: Value, value: int) -> Value:
        """A word of the size of those in `x`."""
        return self.word(x.type.element.width, value)

    def splat(self, scalar: Value) -> Value:
        """A scalar in all lanes."""
        return Word(self, scalar).splat(WIDTH).value

    def iota(self, bits: int) -> Value:
        """The number of each lane in its warp."""
        return self.numbers(range(WIDTH), _dtype(bits)).value

    # --- values ---

    def outlined(self, name: str, result: Any, make: Callable[..., Any], *words: Value) -> Any:
        """``make(emitter, *words)`` as a function of its own, which all modules share: of one name
        there is one. Of several results `make` returns a tuple, and `result` is one of their
        types."""
        type_ = _type_of_function(result, words)

        def text() -> str:
            module = ir.Module(name)
            with suppress(_NeedsTable):
                _write(module, name, type_, make, _no_table)
                return str(module)
            return ""

        if symbol := machine_code.symbol_of(name, text):
            found = self.module.globals.get(symbol) or ir.Function(self.module, type_, symbol)
            return self._call(found, result, words)
        return self._call(self._own(name, type_, make, "noinline"), result, words)

    def fragment(self, name: str, result: Any, make: Callable[..., Any], *words: Value) -> Any:
        """As `outlined`, but as a function of this module, which is part of its callers where code
        is compiled with all optimisations: only quickly compiled code calls it."""
        type_ = _type_of_function(result, words)
        return self._call(self._own(name, type_, make, "alwaysinline"), result, words)

    def _own(self, name: str, type_: Any, make: Callable[..., Any], attribute: str) -> Value:
        found = self.module.globals.get(name)
        if found is None:
            found = _write(self.module, name, type_, make, self._table)
            found.linkage = "internal"
            found.attributes.add(attribute)
        return found

    def _call(self, function: Value, result: Any, words: Sequence[Value]) -> Any:
        called = self.builder.call(function, words)
        if not isinstance(result, tuple):
            return called
        return tuple(self.builder.extract_value(called, i) for i in range(len(result)))

    def select(self, condition: Value, a: Value, b: Value) -> Value:
        return self.builder.select(condition, a, b)

    def resize(self, x: Value, bits: int, signed: bool = False) -> Value:
        """Words cut or extended to a size."""
        have = x.type.element.width
        if have == bits:
            return x
        if have > bits:
            return self.builder.trunc(x, integers(bits))
        return (self.builder.sext if signed else self.builder.zext)(x, integers(bits))

    def shift(self, verb: str, x: Value, amount: int) -> Value:
        """`x` shifted by a constant: "shl", "lshr", "ashr"."""
        return getattr(self.builder, verb)(x, self.like(x, amount)) if amount else x

    def gather(self, places: Value, bits: int) -> Value:
        """Words at addresses in this process."""
        pointers = self.builder.inttoptr(places, ir.VectorType(POINTER, WIDTH))
        type_ = integers(bits)
        given = [pointers, WORD(bits // 8), self.word(1, 1), ir.Constant(type_, ir.Undefined)]
        return self.function(f"llvm.masked.gather.v32i{bits}.v32p0", type_, given)

    def permuted(self, words: Value, lanes: Value) -> Value:
        """Words of 32 bits of other lanes."""
        b = self.builder
        entry = self._entry
        room = self.room(np.uint32, WIDTH) if entry is None else entry.alloca(words.type)
        b.store(words, room)
        offsets = self.shift("shl", self.resize(lanes, 64), 2)
        return self.gather(b.add(self.splat(b.ptrtoint(room, LONG)), offsets), 32)

    def look_up(self, table: Array, indexes: Value) -> Value:
        """Words of an array of 32 or 64 bits, by numbers of 32."""
        size = table.itemsize
        offsets = self.shift("shl", self.resize(indexes, 64), size.bit_length() - 1)
        places = self.builder.add(self.splat(self._table(self.builder, table)), offsets)
        return self.gather(places, 8 * size)

    def any(self, condition: Value) -> Value:
        """True if a condition holds in any lane, a scalar."""
        return Word(self, condition, np.bool_).any().value

    def mask(self, condition: Value) -> Value:
        """The lanes where a condition holds, as the bits of a scalar."""
        return self.builder.bitcast(condition, WORD)

    def lanes_of(self, mask: Value) -> Value:
        """The bits of a scalar, each in its lane."""
        return self.builder.bitcast(mask, integers(1))
