"""Rules of `arith.scalar.integer`, `bits`, `fields` and `carry` as LLVM instructions.

Each function has the parameters of the rule of its name: the types, the words, the modifiers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from emulator.arith.scalar.types import ScalarType
from emulator.machine.compiled.emitter import Emitter, Value

# --- sums, products -------------------------------------------------------------------------------


def add(e: Emitter, t: ScalarType, a: Value, b: Value, *, sat: bool = False) -> Value:
    if sat:
        return e.call("sadd.sat" if t.signed else "uadd.sat", a, b)
    return e.builder.add(a, b)


def sub(e: Emitter, t: ScalarType, a: Value, b: Value, *, sat: bool = False) -> Value:
    if sat:
        return e.call("ssub.sat" if t.signed else "usub.sat", a, b)
    return e.builder.sub(a, b)


def neg(e: Emitter, t: ScalarType, a: Value) -> Value:
    return e.builder.neg(a)


def absolute(e: Emitter, t: ScalarType, a: Value) -> Value:
    return e.select(e.compare("<", t, a, e.like(a, 0)), e.builder.neg(a), a)


def sad(e: Emitter, t: ScalarType, a: Value, b: Value, c: Value) -> Value:
    less = e.compare("<", t, a, b)
    return e.builder.add(c, e.select(less, e.builder.sub(b, a), e.builder.sub(a, b)))


def minimum(e: Emitter, t: ScalarType, a: Value, b: Value, *, relu: bool = False) -> Value:
    out = e.call("smin" if t.signed else "umin", a, b)
    return e.call("smax", out, e.like(out, 0)) if relu else out


def maximum(e: Emitter, t: ScalarType, a: Value, b: Value, *, relu: bool = False) -> Value:
    out = e.call("smax" if t.signed else "umax", a, b)
    return e.call("smax", out, e.like(out, 0)) if relu else out


def _product(e: Emitter, t: ScalarType, a: Value, b: Value, mode: str) -> Value:
    if mode == "lo":
        return e.builder.mul(a, b)
    wide = e.builder.mul(e.resize(a, 2 * t.bits, t.signed), e.resize(b, 2 * t.bits, t.signed))
    return wide if mode == "wide" else e.resize(e.shift("lshr", wide, t.bits), t.bits)


def mul(e: Emitter, t: ScalarType, a: Value, b: Value, *, mode: str = "lo") -> Value:
    return _product(e, t, a, b, mode)


def mad(
    e: Emitter, t: ScalarType, a: Value, b: Value, c: Value, *, mode: str = "lo", sat: bool = False
) -> Value:
    product = _product(e, t, a, b, mode)
    return e.call("sadd.sat", product, c) if sat else e.builder.add(product, c)


def _magnitude(e: Emitter, t: ScalarType, a: Value) -> Value:
    return absolute(e, t, a) if t.signed else a


def div(e: Emitter, t: ScalarType, a: Value, b: Value) -> Value:
    quotient = e.builder.udiv(_magnitude(e, t, a), _divisor(e, t, b))
    if t.signed:
        differ = e.compare("<", t, e.builder.xor(a, b), e.like(a, 0))
        quotient = e.select(differ, e.builder.neg(quotient), quotient)
    return _unless_zero(e, b, quotient)


def rem(e: Emitter, t: ScalarType, a: Value, b: Value) -> Value:
    remainder = e.builder.urem(_magnitude(e, t, a), _divisor(e, t, b))
    if t.signed:
        negative = e.compare("<", t, a, e.like(a, 0))
        remainder = e.select(negative, e.builder.neg(remainder), remainder)
    return _unless_zero(e, b, remainder)


def _divisor(e: Emitter, t: ScalarType, b: Value) -> Value:
    """The magnitude of a divisor; 1 for 0, by which LLVM must not divide."""
    return e.call("umax", _magnitude(e, t, b), e.like(b, 1))


def _unless_zero(e: Emitter, b: Value, out: Value) -> Value:
    return e.select(e.builder.icmp_unsigned("==", b, e.like(b, 0)), e.like(b, -1), out)


def dp4a(e: Emitter, ta: ScalarType, tb: ScalarType, a: Value, b: Value, c: Value) -> Value:
    return _dot(e, ta, tb, a, b, c, [(8 * i, 8, 8 * i) for i in range(4)])


def dp2a(
    e: Emitter, ta: ScalarType, tb: ScalarType, a: Value, b: Value, c: Value, *, mode: str = "lo"
) -> Value:
    first = 16 if mode == "hi" else 0
    return _dot(e, ta, tb, a, b, c, [(16 * i, 16, first + 8 * i) for i in range(2)])


def _dot(
    e: Emitter, ta: ScalarType, tb: ScalarType, a: Value, b: Value, c: Value,
    parts: list[tuple[int, int, int]],
) -> Value:  # fmt: skip
    """c plus products of parts of a, with a place and bits each, and bytes of b."""
    for place, bits, other in parts:
        x, y = _part(e, ta, a, place, bits), _part(e, tb, b, other, 8)
        c = e.builder.add(c, e.builder.mul(x, y))
    return c


def _part(e: Emitter, t: ScalarType, word: Value, place: int, bits: int) -> Value:
    at_top = e.shift("shl", word, 32 - bits - place)
    return e.shift("ashr" if t.signed else "lshr", at_top, 32 - bits)


# --- carries --------------------------------------------------------------------------------------


def add_cc(e: Emitter, t: ScalarType, a: Value, b: Value) -> Any:
    total = e.builder.add(a, b)
    return total, e.builder.icmp_unsigned("<", total, a)


def addc(e: Emitter, t: ScalarType, a: Value, b: Value, carry: Value, *, cc: bool = False) -> Any:
    first = e.builder.add(a, b)
    total = e.builder.add(first, e.resize(carry, t.bits))
    if not cc:
        return total
    out = e.builder.or_(
        e.builder.icmp_unsigned("<", first, a), e.builder.icmp_unsigned("<", total, first)
    )
    return total, out


# --- logic, shifts, bytes -------------------------------------------------------------------------


def and_(e: Emitter, t: ScalarType, a: Value, b: Value) -> Value:
    return e.builder.and_(a, b)


def or_(e: Emitter, t: ScalarType, a: Value, b: Value) -> Value:
    return e.builder.or_(a, b)


def xor(e: Emitter, t: ScalarType, a: Value, b: Value) -> Value:
    return e.builder.xor(a, b)


def not_(e: Emitter, t: ScalarType, a: Value) -> Value:
    return e.builder.not_(a)


def cnot(e: Emitter, t: ScalarType, a: Value) -> Value:
    return e.resize(e.builder.icmp_unsigned("==", a, e.like(a, 0)), t.bits)


def lop3(e: Emitter, t: ScalarType, a: Value, b: Value, c: Value, table: int) -> Value:
    return _function_of(e, table & 0xFF, [a, b, c])


def _function_of(e: Emitter, table: int, words: list[Value]) -> Value:
    """The bitwise function that a table of 2**n bits gives, by its two halves."""
    first, *rest = words
    if not rest:
        return [e.like(first, 0), e.builder.not_(first), first, e.like(first, -1)][table]
    size = 1 << len(rest)
    low, high = table & (1 << size) - 1, table >> size
    if low == high:
        return _function_of(e, low, rest)
    changes = e.builder.and_(first, _function_of(e, low ^ high, rest))
    return changes if low == 0 else e.builder.xor(_function_of(e, low, rest), changes)


def shl(e: Emitter, t: ScalarType, a: Value, amount: Value) -> Value:
    return _shifted(e, "shl", t, a, amount)


def shr(e: Emitter, t: ScalarType, a: Value, amount: Value) -> Value:
    return _shifted(e, "ashr" if t.signed else "lshr", t, a, amount)


def _shifted(e: Emitter, verb: str, t: ScalarType, a: Value, amount: Value) -> Value:
    """LLVM leaves shifts by the width and more undefined."""
    last = e.like(amount, t.bits - 1)
    inside = e.resize(e.call("umin", amount, last), t.bits)
    out = getattr(e.builder, verb)(a, inside)
    if verb == "ashr":
        return out
    return e.select(e.builder.icmp_unsigned(">", amount, last), e.like(a, 0), out)


def shf(
    e: Emitter, t: ScalarType, a: Value, b: Value, c: Value, *, direction: str = "l",
    mode: str = "wrap",
) -> Value:  # fmt: skip
    wraps = mode == "wrap"
    amount = e.builder.and_(c, e.like(c, 31)) if wraps else e.call("umin", c, e.like(c, 32))
    pair = e.builder.or_(e.shift("shl", e.resize(b, 64), 32), e.resize(a, 64))
    amount = e.resize(amount, 64)
    if direction == "r":
        return e.resize(e.builder.lshr(pair, amount), 32)
    return e.resize(e.shift("lshr", e.builder.shl(pair, amount), 32), 32)


def prmt(e: Emitter, t: ScalarType, a: Value, b: Value, c: Value) -> Value:
    pair = e.builder.or_(e.shift("shl", e.resize(b, 64), 32), e.resize(a, 64))
    out = e.like(a, 0)
    for i in range(4):
        selector = e.shift("lshr", c, 4 * i)
        place = e.shift("shl", e.builder.and_(selector, e.like(c, 7)), 3)
        byte = e.resize(e.builder.lshr(pair, e.resize(place, 64)), 8)
        signs = e.builder.icmp_unsigned("!=", e.builder.and_(selector, e.like(c, 8)), e.like(c, 0))
        byte = e.select(signs, e.shift("ashr", byte, 7), byte)
        out = e.builder.or_(out, e.shift("shl", e.resize(byte, 32), 8 * i))
    return out


# --- fields of bits -------------------------------------------------------------------------------


def bfe(e: Emitter, t: ScalarType, a: Value, position: Value, length: Value) -> Value:
    number = e.resize(a, 64, t.signed)
    verb = "ashr" if t.signed else "lshr"
    last = e.word(64, 63)
    # Bits past the word are copies of its sign; what a shift by 64 would leave is that, too.
    place = _place(e, t, position)
    moved = getattr(e.builder, verb)(number, e.call("umin", place, last))
    if not t.signed:
        moved = e.select(e.builder.icmp_unsigned(">", place, last), e.word(64, 0), moved)
    size = e.call("umin", _place(e, t, length), e.word(64, 64))
    none = e.builder.icmp_unsigned("==", size, e.word(64, 0))
    above = e.builder.and_(e.builder.sub(e.word(64, 64), size), last)
    out = getattr(e.builder, verb)(e.builder.shl(moved, above), above)
    return e.resize(e.select(none, e.word(64, 0), out), t.bits)


def bfi(e: Emitter, t: ScalarType, a: Value, b: Value, position: Value, length: Value) -> Value:
    place, size = _place(e, t, position), _place(e, t, length)
    last, zero, ones = e.word(64, 63), e.word(64, 0), e.word(64, -1)
    low = e.builder.not_(e.builder.shl(ones, e.call("umin", size, last)))
    low = e.select(e.builder.icmp_unsigned(">", size, last), ones, low)
    inside = e.call("umin", place, last)
    beyond = e.builder.icmp_unsigned(">", place, last)
    field = e.resize(e.select(beyond, zero, e.builder.shl(low, inside)), t.bits)
    bits = e.resize(e.builder.shl(e.resize(a, 64), inside), t.bits)
    kept = e.builder.and_(b, e.builder.not_(field))
    return e.builder.or_(kept, e.builder.and_(bits, field))


def _place(e: Emitter, t: ScalarType, number: Value) -> Value:
    """A position or length: its low 8 bits in a 32-bit form, all of it in a 64-bit form."""
    number = e.builder.and_(number, e.like(number, 0xFF)) if t.bits == 32 else number
    return e.resize(number, 64)


def popc(e: Emitter, t: ScalarType, a: Value) -> Value:
    return e.resize(e.call("ctpop", a), 32)


def clz(e: Emitter, t: ScalarType, a: Value) -> Value:
    return e.resize(e.leading_zeros(a), 32)


def brev(e: Emitter, t: ScalarType, a: Value) -> Value:
    return e.call("bitreverse", a)


def bfind(e: Emitter, t: ScalarType, a: Value, *, shiftamt: bool = False) -> Value:
    if t.signed:
        a = e.builder.xor(a, e.shift("ashr", a, t.bits - 1))
    zeros = e.resize(e.leading_zeros(a), 32)
    out = zeros if shiftamt else e.builder.sub(e.word(32, t.bits - 1), zeros)
    none = e.builder.icmp_unsigned("==", a, e.like(a, 0))
    return e.select(none, e.word(32, -1), out)


RULES: dict[str, Callable[..., Any]] = {
    "integer.add": add, "integer.sub": sub, "integer.neg": neg, "integer.absolute": absolute,
    "integer.sad": sad, "integer.minimum": minimum, "integer.maximum": maximum,
    "integer.mul": mul, "integer.mad": mad, "integer.div": div, "integer.rem": rem,
    "integer.dp4a": dp4a, "integer.dp2a": dp2a,
    "carry.add_cc": add_cc, "carry.addc": addc,
    "bits.and_": and_, "bits.or_": or_, "bits.xor": xor, "bits.not_": not_, "bits.cnot": cnot,
    "bits.lop3": lop3, "bits.shl": shl, "bits.shr": shr, "bits.shf": shf, "bits.prmt": prmt,
    "fields.bfe": bfe, "fields.bfi": bfi, "fields.popc": popc, "fields.clz": clz,
    "fields.brev": brev, "fields.bfind": bfind,
}  # fmt: skip
