"""Contraction: approximate functions of constants, which ptxas computes, divisions by constants,
and reciprocals of reciprocals."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable

from emulator.ptx.contraction.rewrites import Inverse, Known, Reciprocal
from emulator.ptx.contraction.values import Body, is_product, modifiers_of, type_of
from emulator.ptx.dataflow import Value
from emulator.ptx.folding import converted

#: approximate functions that ptxas computes of constants; of tanh it does not
_FUNCTIONS: dict[str, Callable[[float], float]] = {
    "rcp": lambda x: 1 / x, "ex2": lambda x: 2.0**x, "lg2": math.log2, "sqrt": math.sqrt,
    "rsqrt": lambda x: 1 / math.sqrt(x), "sin": math.sin, "cos": math.cos,
}  # fmt: skip


def find_known(body: Body) -> None:
    """Computes the approximate functions of constants, and conversions of them."""
    for value in body.values:
        if value.head == "cvt" and value.index >= 0:
            _convert(value)
        function = _FUNCTIONS.get(value.head) if value.index >= 0 else None
        if function and type_of(value) == "f32" and "approx" in modifiers_of(value):
            known = value.arguments[0].resolve()
            bits = _computed(function, *known)
            if bits is not None:
                body.found[value.index] = Known(bits)
                value.alias = Value("constant", -1, -1, bits=bits), False


def _convert(value: Value) -> None:
    """Makes the value of a conversion of a constant the constant that it gives."""
    known, negated = value.arguments[0].resolve()
    if known.opcode == "constant" and known.bits is not None and not negated:
        code = converted(value.opcode, known.bits)
        if code is not None:
            value.alias = Value("constant", -1, -1, bits=code), False


def _computed(function: Callable[[float], float], known: Value, negated: bool) -> int | None:
    """The code of a function of an f32, where it and its result are normal numbers."""
    if known.opcode != "constant" or known.bits is None:
        return None
    (x,) = struct.unpack("<f", struct.pack("<I", known.bits ^ (negated << 31)))
    try:
        (bits,) = struct.unpack("<I", struct.pack("<f", function(x)))
    except (ArithmeticError, ValueError):
        return None
    return bits if _is_normal(known.bits) and _is_normal(bits) else None


def _is_normal(bits: int) -> bool:
    return 0x00800000 <= bits & 0x7FFFFFFF < 0x7F800000


def find_inverses(body: Body) -> None:
    """Finds reciprocals of reciprocals and of powers."""
    for value in body.values:
        place = {"rcp.approx.ftz.f32": 0, "div.approx.ftz.f32": 1}.get(value.opcode)
        if place is not None and value.index not in body.found:
            copy = value.arguments[place]
            inner, negated = copy.resolve()
            power = inner.opcode == "ex2.approx.ftz.f32" and _is_only_reader(body, copy, inner)
            if not negated and (power or inner.opcode == "rcp.approx.ftz.f32"):
                body.found[value.index] = Inverse(inner.index)


def _is_only_reader(body: Body, copy: Value, source: Value) -> bool:
    """True if a single operand uses a value, through copies that nothing else uses."""
    while copy is not source and copy.alias is not None and len(body.readers[copy]) == 1:
        copy = copy.alias[0]
    return copy is source and len(body.readers[source]) == 1


def find_reciprocals(body: Body) -> None:
    """Makes multiplications of the approximate divisions by a constant.

    Seen with 400 random constants and 30 at the edges of each opcode.
    """
    for value in body.values:
        if value.head == "div" and is_product(value) and value.index >= 0:
            divisor, negated = value.arguments[1].resolve()
            if divisor.opcode == "constant" and divisor.bits is not None:
                modifiers = modifiers_of(value)
                bits, scaled = _reciprocal(divisor.bits ^ (negated << 31), modifiers)
                if bits is not None:
                    body.found[value.index] = Reciprocal(bits, scaled)
                    value.opcode = "mul.ftz.f32" if "ftz" in modifiers else "mul.f32"
                    numerator = value.arguments[0]
                    if scaled:
                        numerator = Value("scaled", -1, value.region, [numerator])
                    value.arguments[:2] = numerator, Value("constant", -1, -1, bits=bits)


def _reciprocal(divisor: int, modifiers: set[str]) -> tuple[int | None, int]:
    """The f32 that multiplies instead of a division by `divisor`; the exponent that x is scaled by.

    None for NaN. Of what is scaled by a power of two as the division does it: by 2^-2 where a full
    division has a large divisor, by 2^24 where one without .ftz has a subnormal one.
    """
    sign, size = divisor & 1 << 31, divisor & ~(1 << 31)
    exponent = 0
    if size > 0x7F800000:
        return None, 0
    if "full" in modifiers and size > 0x7E800000:
        exponent = -2
    elif size < 0x00800000:
        if "ftz" in modifiers:
            return sign | 0x7F800000, 0
        exponent = 24
    value = float(struct.unpack("<f", struct.pack("<I", size))[0]) * 2.0**exponent
    if not value:
        return sign | 0x7F800000, exponent
    (bits,) = struct.unpack("<I", struct.pack("<f", 1 / value))
    return sign | (bits if bits >= 0x00800000 else 0), exponent
