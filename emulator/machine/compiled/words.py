"""The operations of rules' texts in `arith.scalar` on words of LLVM: machine code of 32 lanes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir

from dtypes import Array
from emulator.arith.fast.words import BIT, WORD, Value, Word, name_of, select, type_of
from emulator.machine.compiled.warp_emitter import WarpEmitter


class NoMachineCode(Exception):
    """An operation that only arrays have."""


class NativeWords:
    """The operations of `arith.scalar.words` on values of LLVM."""

    def __init__(self, e: WarpEmitter) -> None:
        self._e = e

    def word(self, value: Value) -> Word:
        return Word(self._e, value)

    def select(self, condition: Word, a: Any, b: Any) -> Word:
        return select(condition, a, b)

    def put(self, condition: Word, value: Any, out: Word) -> Word:
        if not isinstance(condition, Word):  # of constants
            chosen = value if condition else out
            return chosen() if callable(chosen) else chosen
        return self.select(condition, value() if callable(value) else value, out)

    def mend(self, condition: Word, out: Word, make: Callable[..., Word], *operands: Word) -> Word:
        results = [out]
        with self._e.rarely(condition.any(), results):
            results[0] = select(condition, make(*operands), out)
        return results[0]

    def constant(self, word: Word) -> int | None:
        """LLVM computes with constants by itself."""
        return None

    def minimum(self, a: Word, b: Any) -> Word:
        if a.dtype.kind == "f":
            word = f"u{a.dtype.itemsize}"
            zeros = (a.view(word) | b.view(word)).view(a.dtype)
            return self.select(a == b, zeros, self.select((a < b) | (b != b), a, b))
        return a.minimum(b)

    def maximum(self, a: Word, b: Any) -> Word:
        if a.dtype.kind == "f":
            word = f"u{a.dtype.itemsize}"
            zeros = (a.view(word) & b.view(word)).view(a.dtype)
            return self.select(a == b, zeros, self.select((a > b) | (b != b), a, b))
        return a.maximum(b)

    def count_ones(self, a: Word) -> Word:
        return a.ones().astype(np.uint32)

    def leading_zeros(self, a: Word) -> Word:
        return a.call("ctlz", BIT(0)).astype(np.uint32)

    def reverse_bits(self, a: Word) -> Word:
        return a.call("bitreverse")

    def high_product(self, a: Word, b: Word) -> Word:
        builder, lanes = self._e.builder, a.lanes
        wide = ir.VectorType(ir.IntType(128), lanes) if lanes else ir.IntType(128)
        product = builder.mul(builder.zext(a.value, wide), builder.zext(b.value, wide))
        half = ir.Constant(wide, [64] * lanes if lanes else 64)
        return Word(self._e, builder.trunc(builder.lshr(product, half), a.value.type))

    def look_up(self, table: Array, indexes: Word) -> Word:
        return Word(self._e, self._e.look_up(table, indexes.value)).view(table.dtype)

    def sqrt(self, x: Word) -> Word:
        return x.call("sqrt")

    def integral(self, x: Word, rounding: str) -> Word:
        names = {"rni": "rint", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}
        return x.call(names[rounding])

    def to_integers(self, x: Word, dtype: np.dtype[Any]) -> Word:
        sign, type_ = "s" if dtype.kind == "i" else "u", type_of(dtype, x.lanes)
        name = f"llvm.fpto{sign}i.sat.{name_of(type_)}.{name_of(x.value.type)}"
        return Word(self._e, self._e.function(name, type_, [x.value]), dtype)

    def fused(self, x: Word, y: Word, z: Word) -> Word:
        return x.fma(y, z)

    def lanes(self) -> Word:
        return Word(self._e, self._e.iota(32))

    def of_lane(self, a: Word, lanes: Word) -> Word:
        """By way of memory, unless LLVM finds a better one: of constant lanes it does."""
        return Word(self._e, self._e.permuted(a.value, lanes.value))

    def ballot(self, condition: Word) -> Word:
        return Word(self._e, self._e.splat(self._e.mask(condition.value)))

    def reduced(self, operation: str, a: Word) -> Word:
        sign = a.dtype.kind.replace("i", "s") if operation in ("min", "max") else ""
        total = self._e.call(f"vector.reduce.{sign}{operation}", a.value, result=WORD)
        return Word(self._e, self._e.splat(total), a.dtype)

    def by_arrays(self, function: Callable[..., Any], *words: Any) -> Any:
        raise NoMachineCode

    def outlined(self, name: str, function: Callable[..., Word], *words: Any) -> Word:
        dtypes = [word.dtype for word in words]

        def make(e: WarpEmitter, *values: Value) -> Value:
            inner = map(Word, [e] * len(values), values, dtypes)
            return function(NativeWords(e), *inner).value

        first = words[0]
        made = self._e.outlined(name, first.value.type, make, *(word.value for word in words))
        return Word(self._e, made)
