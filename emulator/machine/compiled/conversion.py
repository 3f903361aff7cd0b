"""Rules of conversions and moves as LLVM instructions.

Each function has the parameters of the rule of its name in `arith.scalar`; results are rounded to
nearest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from emulator.arith.scalar.types import TYPES, ScalarType
from emulator.machine.compiled import floating
from emulator.machine.compiled.emitter import Emitter, Value, integers, numbers
from emulator.machine.compiled.floating import finished, is_nan, nearest, values, with_nans

_F32, _F64 = TYPES["f32"], TYPES["f64"]
#: how .rni … round to an integer, in LLVM's words
_TO_INTEGER = {"rni": "rint", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}


def integers_(e: Emitter, to: ScalarType, t: ScalarType, a: Value, *, sat: bool = False) -> Value:
    if sat:
        low, high = max(to.smallest, t.smallest), min(to.largest, t.largest)
        sign = "s" if t.signed else "u"
        a = e.call(f"{sign}max", a, e.like(a, low)) if low > t.smallest else a
        a = e.call(f"{sign}min", a, e.like(a, high)) if high < t.largest else a
    return e.resize(a, to.bits, t.signed)


def integer_to_float(
    e: Emitter, to: ScalarType, t: ScalarType, a: Value, *, rounding: str = "rn", ftz: bool = False,
    sat: bool = False,
) -> Value:  # fmt: skip
    convert = e.builder.sitofp if t.signed else e.builder.uitofp
    floats = convert(a, numbers(to.bits))
    return finished(e, to, nearest(e, to, floats), is_nan(e, floats), sat)


def float_to_integer(
    e: Emitter, to: ScalarType, t: ScalarType, a: Value, *, integer_rounding: str = "rni",
    ftz: bool = False, sat: bool = False,
) -> Value:  # fmt: skip
    x = values(e, t, a, ftz)
    whole = e.call(_TO_INTEGER[integer_rounding], x)
    sign = "s" if to.signed else "u"
    type_ = integers(to.bits)
    name = f"llvm.fpto{sign}i.sat.v32i{to.bits}.v32f{whole.type.element.intrinsic_name[1:]}"
    out = e.function(name, type_, [whole])  # a NaN gives 0
    if t.bits == 64 or to.bits == 64:
        out = e.select(is_nan(e, x), e.word(to.bits, 1 << (to.bits - 1)), out)
    return out


def float_to_integral(
    e: Emitter, to: ScalarType, t: ScalarType, a: Value, *, integer_rounding: str = "rni",
    ftz: bool = False, sat: bool = False,
) -> Value:  # fmt: skip
    x = values(e, t, a, ftz)
    words = nearest(e, t, e.call(_TO_INTEGER[integer_rounding], x))
    if t is _F64 and not sat:
        return with_nans(e, t, words, is_nan(e, x), a)
    return finished(e, t, words, is_nan(e, x), sat)


def move(
    e: Emitter, to: ScalarType, t: ScalarType, a: Value, *, ftz: bool = False, sat: bool = False
) -> Value:
    words = floating.flushed(e, t, a) if ftz else a
    if not (ftz or sat or t.bits == 16):
        return words
    return finished(e, t, words, floating.is_nan_word(e, t, a), sat)


def floats(
    e: Emitter, to: ScalarType, t: ScalarType, a: Value, *, rounding: str = "rn", ftz: bool = False,
    sat: bool = False,
) -> Value:  # fmt: skip
    if (t.name, to.name) == ("bf16", "f32"):
        return e.shift("shl", e.resize(a, 32), 16)
    x = values(e, t, a, ftz and t.name == "f32")
    if t.bits == 64:
        out = e.as_words(e.builder.fptrunc(x, numbers(32)))
    elif to.bits == 64:
        out = e.as_words(e.builder.fpext(x, numbers(64)))
    else:
        out = nearest(e, to, x)
    return finished(e, to, out, is_nan(e, x), sat)


def elements(
    e: Emitter, to: ScalarType, t: ScalarType, *sources: Value, rounding: str = "rn",
    relu: bool = False,
) -> Value:  # fmt: skip
    element, out = to.element, None
    for source in sources:
        x = e.as_numbers(source)
        code = finished(e, element, nearest(e, element, x), is_nan(e, x), False, relu)
        if out is None:
            out = e.resize(code, to.size)
        else:
            out = e.builder.or_(e.shift("shl", out, element.bits), e.resize(code, to.size))
    return out


def mov(e: Emitter, t: ScalarType, *sources: Value, parts: str = "") -> Any:
    word = sources[0]
    if len(sources) > 1:
        word, width = e.word(t.size, 0), t.size // len(sources)
        for i, source in enumerate(sources):
            word = e.builder.or_(word, e.shift("shl", e.resize(source, t.size), i * width))
    if not parts:
        return word
    width = t.size // int(parts)
    return tuple(e.resize(e.shift("lshr", word, i * width), width) for i in range(int(parts)))


def movs(e: Emitter, t: ScalarType, *sources: Value) -> tuple[Value, ...]:
    return sources


RULES: dict[str, Callable[..., Any]] = {
    "conversion.integers": integers_, "conversion.integer_to_float": integer_to_float,
    "conversion.float_to_integer": float_to_integer,
    "conversion.float_to_integral": float_to_integral, "conversion.move": move,
    "conversion.floats": floats, "conversion.mov": mov, "conversion.movs": movs,
    "packing.elements": elements,
}  # fmt: skip
