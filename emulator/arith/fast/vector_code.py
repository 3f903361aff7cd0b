"""Vector instructions written as Python expressions, and compiled by LLVM (llvmlite).

A `Value` stands for what a register will hold when the code runs; operators on values emit
instructions. Vectors may be longer than the machine's: LLVM splits them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import llvmlite.ir as ir

from emulator.arith.fast.kernels.machine_code import vector_bytes

I1, I8, I16, I32, I64 = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64))
F32, F64 = ir.FloatType(), ir.DoubleType()
POINTER = I8.as_pointer()
#: the rounding that AVX-512 takes with an instruction, without exceptions
_TOWARD_ZERO = 3 | 8


def directed() -> bool:
    """Whether this processor rounds single instructions as they say (AVX-512)."""
    return vector_bytes() == 64


class Value:
    """A number or a vector of numbers at run time."""

    def __init__(self, builder: ir.IRBuilder, ir_value: Any) -> None:
        self.builder, self.ir = builder, ir_value

    @property
    def type(self) -> Any:
        return self.ir.type

    @property
    def element(self) -> Any:
        return self.type.element if isinstance(self.type, ir.VectorType) else self.type

    @property
    def _is_float(self) -> bool:
        return isinstance(self.element, (ir.FloatType, ir.DoubleType))

    def _made(self, ir_value: Any) -> Value:
        return Value(self.builder, ir_value)

    def constant(self, number: float) -> Value:
        """A number in the type of this value, in all lanes."""
        if not isinstance(self.type, ir.VectorType):
            return self._made(ir.Constant(self.type, number))
        return self._made(ir.Constant(self.type, [number] * self.type.count))

    def _two(self, other: Any) -> tuple[Any, Any]:
        return self.ir, (other if isinstance(other, Value) else self.constant(other)).ir

    def _arithmetic(self, name: str, other: Any) -> Value:
        emit = getattr(self.builder, f"f{name}" if self._is_float else name)
        return self._made(emit(*self._two(other)))

    def __add__(self, other: Any) -> Value:
        return self._arithmetic("add", other)

    def __sub__(self, other: Any) -> Value:
        return self._arithmetic("sub", other)

    def __mul__(self, other: Any) -> Value:
        return self._arithmetic("mul", other)

    def __floordiv__(self, other: Any) -> Value:
        return self._made(self.builder.sdiv(*self._two(other)))

    def __mod__(self, other: Any) -> Value:
        return self._made(self.builder.srem(*self._two(other)))

    def __and__(self, other: Any) -> Value:
        return self._made(self.builder.and_(*self._two(other)))

    def __or__(self, other: Any) -> Value:
        return self._made(self.builder.or_(*self._two(other)))

    def __xor__(self, other: Any) -> Value:
        return self._made(self.builder.xor(*self._two(other)))

    def __lshift__(self, other: Any) -> Value:
        return self._made(self.builder.shl(*self._two(other)))

    def __rshift__(self, other: Any) -> Value:
        """Zeros come in."""
        return self._made(self.builder.lshr(*self._two(other)))

    def compare(self, how: str, other: Any) -> Value:
        """Lanes of one bit; `how` is <, >, == and so on, of signed or ordered numbers."""
        emit = self.builder.fcmp_ordered if self._is_float else self.builder.icmp_signed
        return self._made(emit(how, *self._two(other)))

    def unsigned(self, how: str, other: Any) -> Value:
        """`compare` of integers without a sign."""
        return self._made(self.builder.icmp_unsigned(how, *self._two(other)))

    def select(self, one: Value, other: Any) -> Value:
        """`one` where this is true, else `other`."""
        other = other if isinstance(other, Value) else one.constant(other)
        return self._made(self.builder.select(self.ir, one.ir, other.ir))

    def max(self, other: Any) -> Value:
        """The larger of signed integers."""
        other = other if isinstance(other, Value) else self.constant(other)
        return self.compare(">", other).select(self, other)

    def min(self, other: Any) -> Value:
        """The smaller of signed integers."""
        other = other if isinstance(other, Value) else self.constant(other)
        return self.compare("<", other).select(self, other)

    def within(self, other: Any) -> Value:
        """The sum of signed integers, or the nearest that their type has."""
        return self.called("llvm.sadd.sat", self.type, other)

    def called(self, name: str, result: Any, *others: Value) -> Value:
        """An intrinsic of LLVM; a name without types gets that of this vector."""
        if not name.startswith("llvm.x86"):
            kind = {F32: "f32", F64: "f64"}.get(self.element) or f"i{self.element.width}"
            name += f".v{self.type.count}{kind}"
        module, given = self.builder.module, [self.ir, *(x.ir for x in others)]
        found = module.globals.get(name)
        if found is None:
            found = ir.Function(module, ir.FunctionType(result, [x.type for x in given]), name)
        return self._made(self.builder.call(found, given))

    def plus_product(self, a: Value, b: Value) -> Value:
        """This plus a·b, vectors of floats, rounded once."""
        return a.called("llvm.fma", self.type, b, self)

    def ones(self) -> Value:
        """How many bits are set, of a vector of integers."""
        return self.called("llvm.ctpop", self.type)

    def larger(self, other: Value) -> Value:
        """The larger of integers without a sign."""
        return self.unsigned(">", other).select(self, other)

    def bits(self, element: Any) -> Value:
        """The same bits as another type."""
        if not isinstance(self.type, ir.VectorType):
            return self._made(self.builder.bitcast(self.ir, element))
        width = {F32: 32}.get(self.element) or self.element.width
        count = self.type.count * width // ({F32: 32}.get(element) or element.width)
        return self._made(self.builder.bitcast(self.ir, ir.VectorType(element, count)))

    def to(self, element: Any) -> Value:
        """Converted: floats toward zero, integers with their sign, bits to 0 and 1."""
        wanted = element
        if isinstance(self.type, ir.VectorType):
            wanted = ir.VectorType(element, self.type.count)
        if self._is_float:
            emit = self.builder.fptosi
        elif isinstance(element, ir.FloatType):
            emit = self.builder.sitofp
        elif element.width < self.element.width:
            emit = self.builder.trunc
        else:
            emit = self.builder.zext if self.element.width == 1 else self.builder.sext
        return self._made(emit(self.ir, wanted))

    def of(self, type_: Any, number: float) -> Value:
        """A number of another type."""
        return self._made(ir.Constant(type_, number))

    def cut_float(self) -> Value:
        """16 integers in float32, toward zero: `directed` machines alone."""
        mode, wanted = self.of(I32, _TOWARD_ZERO), ir.VectorType(F32, 16)
        return self.called("llvm.x86.avx512.sitofp.round.v16f32.v16i32", wanted, mode)

    def cut_sum(self, other: Value) -> Value:
        """The sum of 16 numbers of float32, toward zero: `directed` machines alone."""
        mode = self.of(I32, _TOWARD_ZERO)
        return self.called("llvm.x86.avx512.add.ps.512", self.type, other, mode)

    def cut_fma(self, a: Value, b: Value) -> Value:
        """This plus a·b, 16 numbers of float32 rounded toward zero: `directed` machines alone."""
        mode = self.of(I32, _TOWARD_ZERO)
        return a.called("llvm.x86.avx512.vfmadd.ps.512", self.type, b, self, mode)

    def rounded_to_half(self) -> Value:
        """Numbers of float32, rounded to nearest even as f16 does: `directed` machines alone, as
        others may call a function for it that is not there."""
        half = ir.VectorType(ir.HalfType(), self.type.count)
        return self._made(self.builder.fpext(self.builder.fptrunc(self.ir, half), self.type))

    def magnitude(self) -> Value:
        """The absolute value of integers; the least one stays as it is."""
        return self.compare("<", 0).select(self.constant(0) - self, self)

    def any(self) -> Value:
        """Whether one of the lanes of one bit is set."""
        return self.mask(ir.IntType(self.type.count)).compare("!=", 0)

    def mask(self, type_: Any) -> Value:
        """Lanes of one bit as the bits of an integer, that of the first lane as its lowest."""
        word = self.builder.bitcast(self.ir, ir.IntType(self.type.count))
        return self._made(self.builder.zext(word, type_))

    def room(self, element: Any, count: int) -> Value:
        """The address of memory of the function's own, which begins with a line of the cache."""
        place = self.builder.alloca(element, count)
        place.align = 64
        return self._made(place)

    def splat(self, count: int) -> Value:
        """A vector with this number in all lanes."""
        vector = ir.VectorType(self.type, count)
        one = self.builder.insert_element(
            ir.Constant(vector, ir.Undefined), self.ir, ir.Constant(I32, 0)
        )
        mask = ir.Constant(ir.VectorType(I32, count), [0] * count)
        return self._made(self.builder.shuffle_vector(one, ir.Constant(vector, ir.Undefined), mask))

    def part(self, start: int, count: int) -> Value:
        """Neighbouring lanes."""
        mask = ir.Constant(ir.VectorType(I32, count), list(range(start, start + count)))
        return self._made(
            self.builder.shuffle_vector(self.ir, ir.Constant(self.type, ir.Undefined), mask)
        )

    # --- as an address ---

    def at(self, offset: Value, element: Any, count: int = 1) -> Value:
        """The address of element number `offset`, of a type or of vectors of it."""
        pointer = self.builder.bitcast(self.ir, element.as_pointer())
        pointer = self.builder.gep(pointer, [offset.ir])
        wanted = element if count == 1 else ir.VectorType(element, count)
        return self._made(self.builder.bitcast(pointer, wanted.as_pointer()))

    def load(self, align: int) -> Value:
        return self._made(self.builder.load(self.ir, align=align))

    def store(self, value: Value, align: int) -> None:
        self.builder.store(value.ir, self.ir, align=align)


Body = Callable[..., Sequence[Value]]


def repeat(
    start: Value, stop: Value, step: int | Value, body: Body, *carried: Value
) -> list[Value]:
    """Emits a loop: ``carried = body(i, *carried)`` for i from `start` while below `stop`."""
    builder = start.builder
    before = builder.block
    head, inside, after = (builder.append_basic_block() for _ in range(3))
    builder.branch(head)
    builder.position_at_end(head)
    index = builder.phi(start.type)
    phis = [builder.phi(x.type) for x in carried]
    builder.cbranch(builder.icmp_signed("<", index, stop.ir), inside, after)
    builder.position_at_end(inside)
    out = body(Value(builder, index), *(Value(builder, x) for x in phis))
    following = (Value(builder, index) + step).ir
    for phi, first, last in zip(
        (index, *phis), (start.ir, *(x.ir for x in carried)), (following, *(x.ir for x in out)),
        strict=True,
    ):  # fmt: skip
        phi.add_incoming(first, before)
        phi.add_incoming(last, builder.block)
    builder.branch(head)
    builder.position_at_end(after)
    return [Value(builder, x) for x in phis]


def when(condition: Value, body: Callable[[], None]) -> None:
    """Emits what `body` does for the case that one bit is set."""
    builder = condition.builder
    inside, after = (builder.append_basic_block() for _ in range(2))
    builder.cbranch(condition.ir, inside, after)
    builder.position_at_end(inside)
    body()
    builder.branch(after)
    builder.position_at_end(after)


def either(condition: Value, yes: Callable[[], None], no: Callable[[], None]) -> None:
    """Emits what `yes` does for the case that one bit is set, and what `no` does for the other."""
    builder = condition.builder
    first, second, after = (builder.append_basic_block() for _ in range(3))
    builder.cbranch(condition.ir, first, second)
    for block, body in ((first, yes), (second, no)):
        builder.position_at_end(block)
        body()
        builder.branch(after)
    builder.position_at_end(after)


def rarely(
    condition: Value, usual: Sequence[Value], compute: Callable[[], Sequence[Value]]
) -> list[Value]:
    """`usual`, but what `compute` emits where one bit is set."""
    builder = condition.builder
    before, (inside, after) = builder.block, (builder.append_basic_block() for _ in range(2))
    builder.cbranch(condition.ir, inside, after)
    builder.position_at_end(inside)
    others, inside = compute(), builder.block
    builder.branch(after)
    builder.position_at_end(after)
    out = []
    for x, other in zip(usual, others, strict=True):
        phi = builder.phi(x.type)
        phi.add_incoming(x.ir, before)
        phi.add_incoming(other.ir, inside)
        out.append(Value(builder, phi))
    return out


def module(name: str, parameters: Sequence[Any], write: Callable[..., None]) -> str:
    """The text of a function without result; ``write(*values)`` emits its code."""
    out = ir.Module(name)
    made = ir.Function(out, ir.FunctionType(ir.VoidType(), parameters), name)
    for argument in made.args:
        if isinstance(argument.type, ir.PointerType):
            argument.add_attribute("noalias")
    builder = ir.IRBuilder(made.append_basic_block())
    write(*(Value(builder, x) for x in made.args))
    builder.ret_void()
    return str(out)
