"""LLVM instructions on the 32 lanes of a warp: what operands and memory are written with.

A word of all lanes is a vector: ``<32 x i32>``, of a predicate ``<32 x i1>``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from llvmlite import ir

from dtypes import Array

#: lanes of a vector
WIDTH = 32
#: a value of LLVM; llvmlite has no annotations
Value = Any

BIT, WORD, LONG, POINTER = ir.IntType(1), ir.IntType(32), ir.IntType(64), ir.PointerType()


@lru_cache(maxsize=16)
def integers(bits: int) -> Any:
    """The type of words of so many bits."""
    return ir.VectorType(ir.IntType(bits), WIDTH)


def name_of(type_: Any) -> str:
    """A type as the names of LLVM's functions spell it: ``v32f32``."""
    if isinstance(type_, ir.VectorType):
        return f"v{type_.count}{name_of(type_.element)}"
    if isinstance(type_, ir.PointerType):
        return "p0"
    return {"float": "f32", "double": "f64"}.get(str(type_), str(type_))


@lru_cache(maxsize=1024)
def _word(bits: int, value: int) -> Value:
    """A constant in all lanes; its text is long, and made once."""
    return ir.Constant(integers(bits), [value] * WIDTH)


class Emitter:
    """Appends instructions to a function; arithmetic is that of `builder`, under LLVM's names."""

    def __init__(
        self, module: Any, builder: Any, table: Callable[[Any, Array], Value], entry: Any = None
    ) -> None:
        self.module, self.builder = module, builder
        #: builder of what the function does once
        self._entry = entry or builder
        #: gives a builder the address of an array that does not change
        self._table = table

    # --- constants ---

    def word(self, bits: int, value: int) -> Value:
        """One word in all lanes."""
        return _word(bits, value & (1 << bits) - 1)

    def like(self, x: Value, value: int) -> Value:
        """A word of the size of those in `x`."""
        return self.word(x.type.element.width, value)

    def splat(self, scalar: Value) -> Value:
        """A scalar in all lanes."""
        type_ = ir.VectorType(scalar.type, WIDTH)
        one = self.builder.insert_element(ir.Constant(type_, ir.Undefined), scalar, WORD(0))
        return self.builder.shuffle_vector(one, one, ir.Constant(integers(32), [0] * WIDTH))

    def iota(self, bits: int) -> Value:
        """The number of each lane in its warp."""
        return ir.Constant(integers(bits), list(range(WIDTH)))

    # --- values ---

    def call(self, name: str, *args: Value, result: Any = None) -> Value:
        """LLVM's function ``llvm.NAME`` for vectors of the type of the first argument."""
        type_ = result or args[0].type
        return self.function(f"llvm.{name}.{name_of(args[0].type)}", type_, args)

    def function(self, name: str, result: Any, args: tuple[Value, ...] | list[Value]) -> Value:
        """A call of a function by its name, declared when it is first called."""
        found = self.module.globals.get(name)
        if found is None:
            found = ir.Function(self.module, ir.FunctionType(result, [x.type for x in args]), name)
        return self.builder.call(found, args)

    def outlined(self, name: str, result: Any, make: Callable[..., Value], *words: Value) -> Value:
        """``make(emitter, *words)`` as a function of its own, written once for all of its name."""
        found = self.module.globals.get(name)
        if found is None:
            found = ir.Function(self.module, ir.FunctionType(result, [x.type for x in words]), name)
            found.linkage = "internal"
            found.attributes.add("noinline")
            inner = Emitter(self.module, ir.IRBuilder(found.append_basic_block()), self._table)
            made = make(inner, *found.args)
            _ = inner.builder.ret_void() if made is None else inner.builder.ret(made)
        return self.builder.call(found, words)

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
        room = self._entry.alloca(words.type)
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
        """Whether a condition holds in any lane, a scalar."""
        if condition.type == BIT:
            return condition
        return self.builder.icmp_unsigned("!=", self.mask(condition), WORD(0))

    def mask(self, condition: Value) -> Value:
        """The lanes where a condition holds, as the bits of a scalar."""
        return self.builder.bitcast(condition, WORD)

    def lanes_of(self, mask: Value) -> Value:
        """The bits of a scalar, each in its lane."""
        return self.builder.bitcast(mask, integers(1))

    def rarely(self, condition: Value, make: Callable[[], Value], otherwise: Value) -> Value:
        """What `make` emits, in all lanes, where the condition holds in any; else `otherwise`."""
        builder = self.builder
        before = builder.block
        with builder.if_then(self.any(condition), likely=False):
            made = make()
            last = builder.block
        out = builder.phi(otherwise.type)
        out.add_incoming(otherwise, before)
        out.add_incoming(made, last)
        return out
