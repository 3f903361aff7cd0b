"""Words that are values of LLVM: what the texts of rules in `arith.scalar` emit machine code with.

A `Word` has the operators, `dtype`, `view` and `astype` of a NumPy array, with the meaning that
NumPy gives them. No instruction carries fast-math flags, so that LLVM changes no bit.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from llvmlite import ir

from dtypes import Array
from emulator.machine.compiled.emitter import WORD, Emitter, Value, name_of

_DTYPES = {"i1": np.dtype(np.bool_), "float": np.dtype(np.float32), "double": np.dtype(np.float64)}
_FLOATS = {np.dtype(np.float32): ir.FloatType(), np.dtype(np.float64): ir.DoubleType()}


class NoMachineCode(Exception):
    """An operation that only arrays have."""


@lru_cache(maxsize=256)
def _element(dtype: np.dtype[Any]) -> Any:
    """LLVM's type of one word."""
    return _FLOATS.get(dtype) or ir.IntType(1 if dtype == np.bool_ else 8 * dtype.itemsize)


def _constant(count: int, dtype: np.dtype[Any], value: Any) -> Value:
    """A number in so many lanes, or a scalar for 0."""
    if dtype.kind == "f":
        return _known_constant(count, _element(dtype), float(value).hex())
    element = _element(dtype)
    return _known_constant(count, element, int(value) & (1 << element.width) - 1)


@lru_cache(maxsize=1024)
def _known_constant(count: int, element: Any, value: int | str) -> Value:
    """The text of a vector is long, and made once; 0 and -0 are equal as numbers, not as text."""
    number = float.fromhex(value) if isinstance(value, str) else value
    if not count:
        return ir.Constant(element, number)
    return ir.Constant(ir.VectorType(element, count), [number] * count)


class Word:
    """Words of all lanes, a vector of LLVM, or one scalar; unsigned where nothing else is said."""

    __array_ufunc__ = None  # operators of NumPy's scalars leave the work to those here
    __hash__ = None  # type: ignore[assignment]
    __slots__ = ("_e", "dtype", "value")

    def __init__(self, e: Emitter, value: Value, dtype: np.dtype[Any] | None = None) -> None:
        self._e, self.value = e, value
        element = str(getattr(value.type, "element", value.type))
        self.dtype = dtype or _DTYPES.get(element) or np.dtype(f"uint{element[1:]}")

    # --- types ---

    def _type(self, dtype: np.dtype[Any]) -> Any:
        count = getattr(self.value.type, "count", 0)
        return ir.VectorType(_element(dtype), count) if count else _element(dtype)

    def of(self, other: Any) -> Value:
        """The value of another operand: a word of the same type, or a constant."""
        if isinstance(other, Word):
            assert other.dtype == self.dtype, (other.dtype, self.dtype)
            return other.value
        assert not isinstance(other, np.generic) or other.dtype == self.dtype, other
        return _constant(getattr(self.value.type, "count", 0), self.dtype, other)

    def view(self, dtype: Any) -> Word:
        """The same bits as words of another type."""
        dtype = np.dtype(dtype)
        value = self.value
        if "f" in self.dtype.kind + dtype.kind and dtype != self.dtype:
            value = self._e.builder.bitcast(value, self._type(dtype))
        return Word(self._e, value, dtype)

    def astype(self, dtype: Any, copy: bool = True) -> Word:
        """The same numbers; those of integers modulo the size of the type."""
        dtype = np.dtype(dtype)
        if dtype == self.dtype:
            return self
        if dtype == np.bool_:
            return self != 0
        b, type_ = self._e.builder, self._type(dtype)
        signed, float_ = self.dtype.kind == "i", self.dtype.kind == "f"
        if float_ and dtype.kind == "f":
            convert = b.fpext if dtype.itemsize > self.dtype.itemsize else b.fptrunc
        elif float_:
            convert = b.fptosi if dtype.kind == "i" else b.fptoui
        elif dtype.kind == "f":
            convert = b.sitofp if signed else b.uitofp
        elif self.dtype != np.bool_ and dtype.itemsize == self.dtype.itemsize:
            return self.view(dtype)
        elif dtype.itemsize < self.dtype.itemsize:
            convert = b.trunc
        else:
            convert = b.sext if signed else b.zext
        return Word(self._e, convert(self.value, type_), dtype)

    # --- operators ---

    def _made(self, value: Value) -> Word:
        return Word(self._e, value, self.dtype)

    def _with(self, name: str, other: Any) -> Word:
        return self._made(getattr(self._e.builder, name)(self.value, self.of(other)))

    def _arithmetic(self, name: str, other: Any) -> Word:
        return self._with("f" + name if self.dtype.kind == "f" else name, other)

    def __add__(self, other: Any) -> Word:
        return self._arithmetic("add", other)

    def __sub__(self, other: Any) -> Word:
        return self._arithmetic("sub", other)

    def __rsub__(self, other: Any) -> Word:
        return self._made(self.of(other)) - self

    def __mul__(self, other: Any) -> Word:
        return self._arithmetic("mul", other)

    def __truediv__(self, other: Any) -> Word:
        return self._with("fdiv", other)

    def __rtruediv__(self, other: Any) -> Word:
        return self._made(self.of(other)) / self

    def __floordiv__(self, other: Word) -> Word:
        return self._with("udiv", other._unless_zero())

    def __mod__(self, other: Word) -> Word:
        return self._with("urem", other._unless_zero())

    def _unless_zero(self) -> Word:
        """A divisor: by 0 LLVM must not divide, and the quotient may be any."""
        return self._call("umax", self.of(1))

    def __and__(self, other: Any) -> Word:
        return self._with("and_", other)

    def __or__(self, other: Any) -> Word:
        return self._with("or_", other)

    def __xor__(self, other: Any) -> Word:
        return self._with("xor", other)

    __radd__, __rmul__, __rand__, __ror__, __rxor__ = __add__, __mul__, __and__, __or__, __xor__

    def __invert__(self) -> Word:
        return self._made(self._e.builder.not_(self.value))

    def __neg__(self) -> Word:
        b = self._e.builder
        return self._made((b.fneg if self.dtype.kind == "f" else b.neg)(self.value))

    def __abs__(self) -> Word:
        if self.dtype.kind == "f":
            return self._call("fabs")
        return self._call("abs", ir.IntType(1)(0)) if self.dtype.kind == "i" else self

    def __lshift__(self, other: Any) -> Word:
        return self._shifted("shl", other)

    def __rlshift__(self, other: Any) -> Word:
        return self._made(self.of(other)) << self

    def __rshift__(self, other: Any) -> Word:
        return self._shifted("ashr" if self.dtype.kind == "i" else "lshr", other)

    def _shifted(self, name: str, amount: Any) -> Word:
        """Shifts by the width and more leave nothing, or the sign; to LLVM they are undefined."""
        if not isinstance(amount, Word):
            return self._with(name, amount) if amount else self
        b, bits = self._e.builder, 8 * self.dtype.itemsize
        amount = amount.view(f"u{self.dtype.itemsize}")
        if name == "ashr":
            amount = amount._call("umin", amount.of(bits - 1))
            return self._made(b.ashr(self.value, amount.value))
        out = getattr(b, name)(self.value, amount.value)
        return self._made(b.select((amount < bits).value, out, self.of(0)))

    def _compared(self, verb: str, other: Any) -> Word:
        b = self._e.builder
        if self.dtype.kind == "f":
            compare = b.fcmp_unordered if verb == "!=" else b.fcmp_ordered
        else:
            compare = b.icmp_signed if self.dtype.kind == "i" else b.icmp_unsigned
        return Word(self._e, compare(verb, self.value, self.of(other)))

    def __lt__(self, other: Any) -> Word:
        return self._compared("<", other)

    def __le__(self, other: Any) -> Word:
        return self._compared("<=", other)

    def __gt__(self, other: Any) -> Word:
        return self._compared(">", other)

    def __ge__(self, other: Any) -> Word:
        return self._compared(">=", other)

    def __eq__(self, other: Any) -> Word:  # type: ignore[override]
        return self._compared("==", other)

    def __ne__(self, other: Any) -> Word:  # type: ignore[override]
        return self._compared("!=", other)

    # --- functions ---

    def _call(self, name: str, *more: Value) -> Word:
        """LLVM's function ``llvm.NAME`` of these words."""
        return self._made(self._e.call(name, self.value, *more))


class NativeWords:
    """The operations of `arith.scalar.words` on values of LLVM."""

    def __init__(self, e: Emitter) -> None:
        self._e = e

    def word(self, value: Value) -> Word:
        return Word(self._e, value)

    def select(self, condition: Word, a: Any, b: Any) -> Word:
        if not isinstance(a, Word) and not isinstance(b, Word):
            dtype = next(x.dtype for x in (a, b) if isinstance(x, np.generic))
            count = getattr(condition.value.type, "count", 0)
            a = Word(self._e, _constant(count, dtype, a), dtype)
        like = a if isinstance(a, Word) else b
        out = self._e.builder.select(condition.value, like.of(a), like.of(b))
        return Word(self._e, out, like.dtype)

    def put(self, condition: Word, value: Any, out: Word) -> Word:
        if not isinstance(condition, Word):  # of constants
            chosen = value if condition else out
            return chosen() if callable(chosen) else chosen
        return self.select(condition, value() if callable(value) else value, out)

    def mend(self, condition: Word, out: Word, make: Callable[..., Word], *operands: Word) -> Word:
        def mended() -> Value:
            return self.select(condition, make(*operands), out).value

        return Word(self._e, self._e.rarely(condition.value, mended, out.value), out.dtype)

    def constant(self, word: Word) -> int | None:
        """LLVM computes with constants by itself."""
        return None

    def minimum(self, a: Word, b: Any) -> Word:
        if a.dtype.kind == "f":
            word = f"u{a.dtype.itemsize}"
            zeros = (a.view(word) | b.view(word)).view(a.dtype)
            return self.select(a == b, zeros, self.select((a < b) | (b != b), a, b))
        return a._call("smin" if a.dtype.kind == "i" else "umin", a.of(b))

    def maximum(self, a: Word, b: Any) -> Word:
        if a.dtype.kind == "f":
            word = f"u{a.dtype.itemsize}"
            zeros = (a.view(word) & b.view(word)).view(a.dtype)
            return self.select(a == b, zeros, self.select((a > b) | (b != b), a, b))
        return a._call("smax" if a.dtype.kind == "i" else "umax", a.of(b))

    def count_ones(self, a: Word) -> Word:
        return a._call("ctpop").astype(np.uint32)

    def leading_zeros(self, a: Word) -> Word:
        return a._call("ctlz", ir.IntType(1)(0)).astype(np.uint32)

    def reverse_bits(self, a: Word) -> Word:
        return a._call("bitreverse")

    def high_product(self, a: Word, b: Word) -> Word:
        builder, count = self._e.builder, getattr(a.value.type, "count", 0)
        wide = ir.VectorType(ir.IntType(128), count) if count else ir.IntType(128)
        product = builder.mul(builder.zext(a.value, wide), builder.zext(b.value, wide))
        half = ir.Constant(wide, [64] * count if count else 64)
        return Word(self._e, builder.trunc(builder.lshr(product, half), a.value.type))

    def look_up(self, table: Array, indexes: Word) -> Word:
        return Word(self._e, self._e.look_up(table, indexes.value)).view(table.dtype)

    def sqrt(self, x: Word) -> Word:
        return x._call("sqrt")

    def integral(self, x: Word, rounding: str) -> Word:
        names = {"rni": "rint", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}
        return x._call(names[rounding])

    def to_integers(self, x: Word, dtype: np.dtype[Any]) -> Word:
        sign, type_ = "s" if dtype.kind == "i" else "u", x._type(dtype)
        name = f"llvm.fpto{sign}i.sat.{name_of(type_)}.{name_of(x.value.type)}"
        return Word(self._e, self._e.function(name, type_, [x.value]), dtype)

    def fused(self, x: Word, y: Word, z: Word) -> Word:
        return x._call("fma", x.of(y), x.of(z))

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

        def make(e: Emitter, *values: Value) -> Value:
            inner = map(Word, [e] * len(values), values, dtypes)
            return function(NativeWords(e), *inner).value

        first = words[0]
        made = self._e.outlined(name, first.value.type, make, *(word.value for word in words))
        return Word(self._e, made)
