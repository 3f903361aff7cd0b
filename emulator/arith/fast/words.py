"""``Word``: a scalar or a vector of LLVM with the operators of a NumPy array.

A word has the operators, `dtype`, `view` and `astype` of an array, with the meaning that NumPy
gives them; each appends an instruction where its emitter stands. No instruction carries fast-math
flags, so that LLVM changes no bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from llvmlite import ir
from numpy.typing import DTypeLike

#: a value or a type of LLVM; llvmlite has no annotations
Value = Any
Type = Any
Number = float | np.generic
#: the other operand of an operator: a word, or a number
Operand: TypeAlias = "Word | Number"

BIT, WORD, LONG, POINTER = ir.IntType(1), ir.IntType(32), ir.IntType(64), ir.PointerType()
_FLOATS: dict[np.dtype[Any], Type] = {
    np.dtype(np.float16): ir.HalfType(),
    np.dtype(np.float32): ir.FloatType(),
    np.dtype(np.float64): ir.DoubleType(),
}
#: NumPy's types by the names of LLVM's; integers are unsigned
_DTYPES = {str(type_): dtype for dtype, type_ in _FLOATS.items()} | {"i1": np.dtype(np.bool_)}


@lru_cache(maxsize=256)
def type_of(dtype: np.dtype[Any], lanes: int = 0) -> Type:
    """LLVM's type of so many lanes of a word, or of a scalar for 0."""
    element = _FLOATS.get(dtype) or ir.IntType(1 if dtype == np.bool_ else 8 * dtype.itemsize)
    return ir.VectorType(element, lanes) if lanes else element


def name_of(type_: Type) -> str:
    """A type as the names of LLVM's functions spell it: ``v32f32``."""
    if isinstance(type_, ir.VectorType):
        return f"v{type_.count}{name_of(type_.element)}"
    if isinstance(type_, ir.PointerType):
        return "p0"
    return {"float": "f32", "double": "f64"}.get(str(type_), str(type_))


def constant(lanes: int, dtype: np.dtype[Any], value: Number) -> Value:
    """A number in so many lanes, or a scalar for 0."""
    value = value.item() if isinstance(value, np.generic) else value
    type_ = type_of(dtype, lanes)
    if dtype.kind == "f":
        return _known_constant(type_, float(value).hex())
    bits = 1 if dtype == np.bool_ else 8 * dtype.itemsize
    return _known_constant(type_, int(value) & (1 << bits) - 1)


@lru_cache(maxsize=1024)
def _known_constant(type_: Type, value: int | str) -> Value:
    """The text of a vector is long, and made once; 0 and -0 are equal as numbers, not as text."""
    number = float.fromhex(value) if isinstance(value, str) else value
    if not isinstance(type_, ir.VectorType):
        return ir.Constant(type_, number)
    return ir.Constant(type_, [ir.Constant(type_.element, number)] * type_.count)


@lru_cache(maxsize=256)
def _lanes(lanes: tuple[int, ...]) -> Value:
    """Numbers of lanes, as shuffles take them."""
    return ir.Constant(ir.VectorType(WORD, len(lanes)), list(lanes))


class InstructionStream:
    """The stream to which words append their instructions: the place of `builder` in a module;
    vectors have `width` lanes unless something else is said."""

    def __init__(self, module: Value, builder: Value, width: int = 8) -> None:
        self.module, self.builder, self.width = module, builder, width

    def call(self, name: str, *arguments: Value, result: Type = None) -> Value:
        """LLVM's function ``llvm.NAME`` for the type of the first argument."""
        type_ = arguments[0].type
        return self.function(f"llvm.{name}.{name_of(type_)}", result or type_, arguments)

    def function(self, name: str, result: Type, arguments: Sequence[Value]) -> Value:
        """A call of a function by its name, declared when it is first called."""
        found = self.module.globals.get(name)
        if found is None:
            type_ = ir.FunctionType(result, [x.type for x in arguments])
            found = ir.Function(self.module, type_, name)
        return self.builder.call(found, arguments)

    def constant(self, value: float, dtype: DTypeLike, lanes: int | None = None) -> Word:
        """A number in all lanes of a vector, by default of the usual width; 0 lanes: a scalar."""
        dtype = np.dtype(dtype)
        lanes = self.width if lanes is None else lanes
        return Word(self, constant(lanes, dtype, value), dtype)

    @contextmanager
    def rarely(self, condition: Word, results: list[Word]) -> Iterator[None]:
        """A block of instructions that replace the items of `results` where a scalar condition
        holds, which is rare."""
        before, usual = self.builder.block, list(results)
        with self.builder.if_then(condition.value, likely=False):
            yield
            inside = self.builder.block
        results[:] = self.joined(before, usual, inside, results)

    def joined(
        self, one: Value, given: Sequence[Word], other: Value, found: Sequence[Word]
    ) -> list[Word]:
        """Words by the block that the code came from."""
        out = []
        for x, y in zip(given, found, strict=True):
            phi = self.builder.phi(x.value.type)
            phi.add_incoming(x.value, one)
            phi.add_incoming(y.value, other)
            out.append(Word(self, phi, x.dtype))
        return out


class Word:
    """A vector of LLVM, or one scalar; unsigned where nothing else is said."""

    __array_ufunc__ = None  # operators of NumPy's scalars leave the work to those here
    __hash__ = None  # type: ignore[assignment]
    __slots__ = ("dtype", "e", "value")

    def __init__(self, e: InstructionStream, value: Value, dtype: DTypeLike | None = None) -> None:
        self.e, self.value = e, value
        self.dtype: np.dtype[Any] = _dtype_of(value) if dtype is None else np.dtype(dtype)

    # --- types ---

    @property
    def lanes(self) -> int:
        """Number of lanes of a vector; 0 for a scalar."""
        return getattr(self.value.type, "count", 0)

    def of(self, other: Operand) -> Value:
        """The value of another operand: a word of the same type, or a constant."""
        if isinstance(other, Word):
            assert other.dtype == self.dtype, (other.dtype, self.dtype)
            return other.value
        assert not isinstance(other, np.generic) or other.dtype == self.dtype, other
        return constant(self.lanes, self.dtype, other)

    def view(self, dtype: DTypeLike) -> Word:
        """The same bits as words of another type; narrower ones are more lanes."""
        dtype = np.dtype(dtype)
        value, lanes = self.value, self.lanes * self.dtype.itemsize // dtype.itemsize
        if ("f" in self.dtype.kind + dtype.kind and dtype != self.dtype) or lanes != self.lanes:
            value = self.e.builder.bitcast(value, type_of(dtype, lanes))
        return Word(self.e, value, dtype)

    def astype(self, dtype: DTypeLike, copy: bool = True) -> Word:
        """The same numbers; those of integers modulo the size of the type."""
        dtype = np.dtype(dtype)
        if dtype == self.dtype:
            return self
        if dtype == np.bool_:
            return self != 0
        b, type_ = self.e.builder, type_of(dtype, self.lanes)
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
        return Word(self.e, convert(self.value, type_), dtype)

    # --- operators ---

    def _made(self, value: Value) -> Word:
        return Word(self.e, value, self.dtype)

    def _with(self, name: str, other: Operand) -> Word:
        return self._made(getattr(self.e.builder, name)(self.value, self.of(other)))

    def _arithmetic(self, name: str, other: Operand) -> Word:
        return self._with("f" + name if self.dtype.kind == "f" else name, other)

    def __add__(self, other: Operand) -> Word:
        return self._arithmetic("add", other)

    def __sub__(self, other: Operand) -> Word:
        return self._arithmetic("sub", other)

    def __rsub__(self, other: Operand) -> Word:
        return self._made(self.of(other)) - self

    def __mul__(self, other: Operand) -> Word:
        return self._arithmetic("mul", other)

    def __truediv__(self, other: Operand) -> Word:
        return self._with("fdiv", other)

    def __rtruediv__(self, other: Operand) -> Word:
        return self._made(self.of(other)) / self

    def __floordiv__(self, other: Operand) -> Word:
        """Of numbers that are not negative, as the remainder is."""
        return self._with("udiv", _unless_zero(other))

    def __mod__(self, other: Operand) -> Word:
        return self._with("urem", _unless_zero(other))

    def __and__(self, other: Operand) -> Word:
        return self._with("and_", other)

    def __or__(self, other: Operand) -> Word:
        return self._with("or_", other)

    def __xor__(self, other: Operand) -> Word:
        return self._with("xor", other)

    __radd__, __rmul__, __rand__, __ror__, __rxor__ = __add__, __mul__, __and__, __or__, __xor__

    def __invert__(self) -> Word:
        return self._made(self.e.builder.not_(self.value))

    def __neg__(self) -> Word:
        b = self.e.builder
        return self._made((b.fneg if self.dtype.kind == "f" else b.neg)(self.value))

    def __abs__(self) -> Word:
        if self.dtype.kind == "f":
            return self.call("fabs")
        return self.call("abs", BIT(0)) if self.dtype.kind == "i" else self

    def __lshift__(self, other: Operand) -> Word:
        return self._shifted("shl", other)

    def __rlshift__(self, other: Operand) -> Word:
        return self._made(self.of(other)) << self

    def __rshift__(self, other: Operand) -> Word:
        return self._shifted("ashr" if self.dtype.kind == "i" else "lshr", other)

    def _shifted(self, name: str, amount: Operand) -> Word:
        """Shifts by the width and more leave nothing, or the sign; to LLVM they are undefined."""
        if not isinstance(amount, Word):
            return self._with(name, amount) if amount else self
        b, bits = self.e.builder, 8 * self.dtype.itemsize
        amount = amount.view(f"u{self.dtype.itemsize}")
        if name == "ashr":
            return self._made(b.ashr(self.value, amount.minimum(bits - 1).value))
        out = getattr(b, name)(self.value, amount.value)
        return self._made(b.select((amount < bits).value, out, self.of(0)))

    def shifted_left(self, amount: Word) -> Word:
        """By amounts that are known to be below the width."""
        return self._with("shl", amount)

    def shifted_right(self, amount: Word) -> Word:
        """By amounts that are known to be below the width; zeros come in."""
        return self._with("lshr", amount)

    def _compared(self, verb: str, other: Operand) -> Word:
        b = self.e.builder
        if self.dtype.kind == "f":
            compare = b.fcmp_unordered if verb == "!=" else b.fcmp_ordered
        else:
            compare = b.icmp_signed if self.dtype.kind == "i" else b.icmp_unsigned
        return Word(self.e, compare(verb, self.value, self.of(other)), np.bool_)

    def __lt__(self, other: Operand) -> Word:
        return self._compared("<", other)

    def __le__(self, other: Operand) -> Word:
        return self._compared("<=", other)

    def __gt__(self, other: Operand) -> Word:
        return self._compared(">", other)

    def __ge__(self, other: Operand) -> Word:
        return self._compared(">=", other)

    def __eq__(self, other: Operand) -> Word:  # type: ignore[override]
        return self._compared("==", other)

    def __ne__(self, other: Operand) -> Word:  # type: ignore[override]
        return self._compared("!=", other)

    # --- functions ---

    def call(self, name: str, *more: Value) -> Word:
        """LLVM's function ``llvm.NAME`` of these words."""
        return self._made(self.e.call(name, self.value, *more))

    def maximum(self, other: Operand) -> Word:
        """The larger of integers."""
        return self.call("smax" if self.dtype.kind == "i" else "umax", self.of(other))

    def minimum(self, other: Operand) -> Word:
        """The smaller of integers."""
        return self.call("smin" if self.dtype.kind == "i" else "umin", self.of(other))

    def fma(self, x: Word, y: Word) -> Word:
        """This times x plus y, rounded once."""
        return self.call("fma", self.of(x), self.of(y))

    def ones(self) -> Word:
        """Number of set bits."""
        return self.call("ctpop")

    # --- lanes ---

    def splat(self, lanes: int) -> Word:
        """A scalar in all lanes of a vector."""
        type_ = type_of(self.dtype, lanes)
        one = self.e.builder.insert_element(ir.Constant(type_, ir.Undefined), self.value, WORD(0))
        return self._made(self.e.builder.shuffle_vector(one, one, _lanes((0,) * lanes)))

    def shuffled(self, other: Word, lanes: Sequence[int]) -> Word:
        """Lanes of two vectors by their numbers; those of `other` follow those of this one."""
        return self._made(
            self.e.builder.shuffle_vector(self.value, other.value, _lanes(tuple(lanes)))
        )

    def mask(self) -> Word:
        """Conditions as the bits of a scalar, that of the first lane as its lowest."""
        return Word(self.e, self.e.builder.bitcast(self.value, ir.IntType(self.lanes)))

    def any(self) -> Word:
        """True if a condition holds in any lane, a scalar."""
        if not self.lanes:
            return self
        word = self.e.builder.bitcast(self.value, ir.IntType(self.lanes))
        return Word(self.e, self.e.builder.icmp_unsigned("!=", word, word.type(0)), np.bool_)


def _dtype_of(value: Value) -> np.dtype[Any]:
    """dtype of a value, from its LLVM type."""
    element = str(getattr(value.type, "element", value.type))
    return _DTYPES.get(element) or np.dtype(f"uint{element[1:]}")


def _unless_zero(divisor: Operand) -> Operand:
    """By 0 LLVM must not divide, and the quotient may be any."""
    return divisor.call("umax", divisor.of(1)) if isinstance(divisor, Word) else divisor


def select(condition: Word, a: Operand, b: Operand) -> Word:
    """`a` where a condition holds, else `b`; one of them is a word or a number of NumPy."""
    words = [x for x in (a, b) if isinstance(x, Word)]
    dtype = words[0].dtype if words else np.result_type(a, b)
    like = Word(condition.e, constant(condition.lanes, dtype, 0), dtype)
    out = condition.e.builder.select(condition.value, like.of(a), like.of(b))
    return Word(condition.e, out, dtype)


def in_pairs(join: Callable[[Word, Word], Word], values: Sequence[Word]) -> Word:
    """All values joined, such as added, so that few have to wait for each other."""
    values = list(values)
    while len(values) > 1:
        pairs = [join(x, y) for x, y in zip(values[::2], values[1::2], strict=False)]
        values = pairs + values[len(pairs) * 2 :]
    return values[0]
