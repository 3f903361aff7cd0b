"""Constants and constant expressions: PTX ISA 4.5.

Integers are .s64, or .u64 where they are written with U or do not fit .s64; decimal floating point
is .f64. The manual leaves out what the types of some results are, and what a shift by 64 or more
does: there the rules are those of ptxas 13.5, read off the data that it made of 120 expressions
(tests/ptx/test_ptx_module_constants.py).
"""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable
from typing import NamedTuple

from emulator.errors import quoted
from emulator.ptx.lexer import NESTING, Lexer
from emulator.ptx.tree import Float, Integer

_MASK = (1 << 64) - 1
#: digits beyond which an integer in this base cannot fit 64 bits
_DIGITS = {2: 64, 8: 22, 10: 20, 16: 16}
_SMALLEST_NORMAL = 2.0**-1022


class Constant(NamedTuple):
    """A value and its type, "s64", "u64" or "f64"; "0f" and "0d" take no operators."""

    type: str
    value: int | float

    @property
    def is_integer(self) -> bool:
        return self.type in ("s64", "u64")


def _wrapped(type_: str, value: int) -> Constant:
    """An integer of 64 bits, of which the rest is lost."""
    value &= _MASK
    return Constant(type_, value - (1 << 64) if type_ == "s64" and value >> 63 else value)


def _quotient(left: int, right: int) -> int:
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


_PRECEDENCE = {
    text: level
    for level, texts in enumerate(
        ("||", "&&", "|", "^", "&", "== !=", "< > <= >=", "<< >>", "+ -", "* / %"), start=1
    )
    for text in texts.split()
}
_ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": _quotient,
    "&": operator.and_, "|": operator.or_, "^": operator.xor,
}  # fmt: skip
_FLOATING: dict[str, Callable[[float, float], float]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv,
}  # fmt: skip
_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge,
    "==": operator.eq, "!=": operator.ne,
}  # fmt: skip


def constant(lexer: Lexer) -> Integer | Float:
    """A constant or a constant expression at the current token; raises ParseError."""
    at = lexer.at
    value = expression(lexer)
    if value.type == "f64":
        return Float(int.from_bytes(struct.pack("<d", value.value), "little"), 64, at)
    if value.is_integer:
        return Integer(int(value.value), at)
    return Float(int(value.value), 32 if value.type == "0f" else 64, at)


def integer(lexer: Lexer, expected: str = "an integer") -> int:
    """A constant expression of integers; raises ParseError."""
    at = lexer.at
    if lexer.kind == "word":
        lexer.fail(expected)
    value = expression(lexer)
    if not value.is_integer:
        raise lexer.error(at, f"expected {expected}, found a floating-point constant")
    return int(value.value)


def literal(lexer: Lexer, expected: str) -> int:
    """An integer that is no expression: only that is taken where a size of .align stands."""
    if lexer.kind != "integer":
        lexer.fail(expected)
    value = int(_integer_literal(lexer).value)
    lexer.advance()
    return value


def expression(lexer: Lexer, depth: int = 0) -> Constant:
    """A constant expression, evaluated as it is read; raises ParseError."""
    at = lexer.at
    chosen = _binary(lexer, 1, depth)
    if lexer.text != "?":
        return chosen
    lexer.advance()
    first = expression(lexer, depth + 1)
    lexer.expect(":")
    second = expression(lexer, depth + 1)
    for part in (chosen, first, second):
        if not part.is_integer:
            raise lexer.error(at, "'?:' takes integers")
    return first if chosen.value else second


def _binary(lexer: Lexer, least: int, depth: int) -> Constant:
    """A chain of operators whose precedence is `least` or more."""
    left = _unary(lexer, depth)
    while (level := _PRECEDENCE.get(lexer.text, 0)) >= least:
        text, at = lexer.text, lexer.at
        lexer.advance()
        right = _binary(lexer, level + 1, depth)
        if not left.is_integer and left.type != "f64":
            raise lexer.error(at, f"{text!r} takes no constant written as {left.type}…")
        if left.is_integer != right.is_integer or right.type in ("0f", "0d"):
            raise lexer.error(at, f"{text!r} takes two integers or two .f64 constants")
        if not left.is_integer and text not in _FLOATING and text not in _COMPARISONS:
            raise lexer.error(at, f"{text!r} takes integers")
        if text in ("/", "%") and not right.value:
            raise lexer.error(at, "a constant expression divides by zero")
        left = _combined(text, left, right)
    return left


def _combined(text: str, left: Constant, right: Constant) -> Constant:
    """The value of a binary operator on two constants of one kind."""
    x, y = left.value, right.value
    if not left.is_integer and text in _FLOATING:
        return Constant("f64", _FLOATING[text](x, y))
    if not left.is_integer:
        return Constant("s64", int(_COMPARISONS[text](x, y)))
    x, y = int(x), int(y)
    if text == "&&":
        return Constant("s64", int(x != 0 and y != 0))
    if text == "||":
        return Constant("s64", int(x != 0 or y != 0))
    if text == "<<":
        return _wrapped(left.type, x << (y & 63))
    if text == ">>":
        return _wrapped(left.type, x >> (y & 63))
    if text == "%":
        return _wrapped("u64", (x & _MASK) % (y & _MASK))
    type_ = "u64" if "u64" in (left.type, right.type) else "s64"
    if type_ == "u64":
        x, y = x & _MASK, y & _MASK
    if text in _COMPARISONS:
        return Constant("s64", int(_COMPARISONS[text](x, y)))
    return _wrapped(type_, _ARITHMETIC[text](x, y))


def _unary(lexer: Lexer, depth: int) -> Constant:
    text, at = lexer.text, lexer.at
    if depth > NESTING:
        raise lexer.error(at, f"a constant expression nests more than {NESTING} levels deep")
    if text not in ("+", "-", "!", "~"):
        return _primary(lexer, depth)
    lexer.advance()
    value = _unary(lexer, depth + 1)
    if not value.is_integer and (value.type != "f64" or text in ("!", "~")):
        raise lexer.error(at, f"{text!r} takes no constant of this kind")
    if text == "+":
        return value
    if value.type == "f64":
        return Constant("f64", -value.value)
    number = int(value.value)
    if text == "!":
        return Constant("s64", int(not number))
    return _wrapped("u64", ~number) if text == "~" else _wrapped(value.type, -number)


def _primary(lexer: Lexer, depth: int) -> Constant:
    """A number, WARP_SZ, an expression in parentheses, or what a cast makes of the next operand."""
    kind = lexer.kind
    if kind == "integer":
        value = _integer_literal(lexer)
    elif kind == "float":
        value = _float_literal(lexer)
    elif kind == "hexfloat":
        value = Constant(lexer.text[:2].lower(), int(lexer.text[2:], 16))
    elif lexer.accept("("):
        if lexer.kind == "directive":
            return _cast(lexer, depth)
        value = expression(lexer, depth + 1)
        if lexer.text != ")":
            lexer.fail("')' or an operator")
    else:
        lexer.fail("a constant")
    lexer.advance()
    return value


def _cast(lexer: Lexer, depth: int) -> Constant:
    type_, at = lexer.text, lexer.at
    if type_ not in (".s64", ".u64"):
        raise lexer.error(at, f"a cast is to .s64 or .u64, not to {quoted(type_, 40)}")
    lexer.advance()
    lexer.expect(")")
    value = _unary(lexer, depth + 1)
    if not value.is_integer:
        raise lexer.error(at, f"the cast to {type_} takes an integer")
    return _wrapped(type_[1:], int(value.value))


def _integer_literal(lexer: Lexer) -> Constant:
    """The current token, an integer or WARP_SZ."""
    text = lexer.text
    if text[0] != "0" and len(text) < 19 and text.isdigit():  # most are written so
        return Constant("s64", int(text))
    if text == "WARP_SZ":
        return Constant("s64", 32)
    digits = text.rstrip("U")
    base = 10
    if digits[0] == "0" and len(digits) > 1:
        base = {"x": 16, "b": 2}.get(digits[1].lower(), 8)  # as C: a leading zero is octal
        digits = digits[2:] if base != 8 else digits
        digits = digits.lstrip("0") or "0"
    if base == 8 and digits.strip("01234567"):
        raise lexer.error(
            lexer.at, f"{quoted(text, 40)} starts with 0, so it is octal, which has no 8 or 9"
        )
    # Python refuses to read thousands of digits, so their number comes first.
    value = int(digits, base) if len(digits) <= _DIGITS[base] else 1 << 64
    if value >> 64:
        raise lexer.error(lexer.at, f"{quoted(text, 40)} does not fit 64 bits")
    return Constant("u64" if text.endswith("U") or value >> 63 else "s64", value)


def _float_literal(lexer: Lexer) -> Constant:
    """The current token, a decimal constant: ptxas refuses what is no normal .f64, and so do we."""
    value = float(lexer.text)
    mantissa = lexer.text.lower().partition("e")[0]
    is_zero = not mantissa.strip("0.")
    if math.isinf(value) or (not is_zero and value < _SMALLEST_NORMAL):
        raise lexer.error(
            lexer.at,
            f"{quoted(lexer.text, 40)} lies outside of the normal numbers of .f64; "
            "write its bits as 0d and 16 hexadecimal digits",
        )
    return Constant("f64", value)
