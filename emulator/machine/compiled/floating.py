"""Rules of floating point as LLVM instructions: sums, products, fused ones, comparisons, extremes.

Each function has the parameters of the rule of its name in `arith.scalar`. f16 and bf16 are
computed in f32, as NumPy's rules do it; results are rounded to nearest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from emulator.arith.scalar.types import TYPES, ScalarType
from emulator.machine.compiled.emitter import Emitter, Value, numbers

_F64 = TYPES["f64"]

# --- words and numbers ----------------------------------------------------------------------------


def flushed(e: Emitter, t: ScalarType, words: Value) -> Value:
    """.ftz: subnormal numbers become zeros of their sign."""
    exponent = e.builder.and_(words, e.like(words, t.format.infinity or 0))
    zero = e.builder.icmp_unsigned("==", exponent, e.like(words, 0))
    return e.select(zero, signs(e, t, words), words)


def signs(e: Emitter, t: ScalarType, words: Value) -> Value:
    return e.builder.and_(words, e.like(words, t.format.sign_mask))


def magnitudes(e: Emitter, t: ScalarType, words: Value) -> Value:
    return e.builder.and_(words, e.like(words, t.format.sign_mask - 1))


def values(e: Emitter, t: ScalarType, words: Value, ftz: bool = False) -> Value:
    """The numbers of codes: floats for f32, f16 and bf16, doubles for f64."""
    if ftz:
        words = flushed(e, t, words)
    if t.bits > 16:
        return e.as_numbers(words)
    wide = e.resize(words, 32)
    if t.name == "bf16":
        return e.as_numbers(e.shift("shl", wide, 16))
    # The fraction and exponent of f16 are those of a float that is 2**112 times smaller.
    magnitude = magnitudes(e, t, wide)
    floats = e.builder.fmul(e.as_numbers(e.shift("shl", magnitude, 13)), e.number(32, 2.0**112))
    sign = e.shift("shl", e.builder.xor(wide, magnitude), 16)
    special = e.builder.icmp_unsigned(">=", magnitude, e.word(32, 0x7C00))
    infinite = e.select(special, e.word(32, 0x7F800000), e.word(32, 0))
    bits = e.builder.or_(e.as_words(floats), e.builder.or_(sign, infinite))
    return e.as_numbers(bits)


def nearest(e: Emitter, t: ScalarType, floats: Value) -> Value:
    """Codes of numbers rounded to nearest; of NaNs any code."""
    bits = e.as_words(floats)
    if t.bits > 16:
        return bits
    if t.name == "bf16":
        last = e.builder.and_(e.shift("lshr", bits, 16), e.word(32, 1))
        carried = e.builder.add(bits, e.builder.add(last, e.word(32, 0x7FFF)))
        return e.resize(e.shift("lshr", carried, 16), 16)
    magnitude = e.builder.and_(bits, e.word(32, 0x7FFFFFFF))
    last = e.builder.and_(e.shift("lshr", magnitude, 13), e.word(32, 1))
    rebased = e.builder.add(magnitude, e.builder.add(last, e.word(32, 0xFFF - (112 << 23))))
    codes = e.call("umin", e.shift("lshr", rebased, 13), e.word(32, 0x7C00))
    # Next to one half a float has the unit of subnormal f16 numbers, and is rounded to it.
    small = e.builder.icmp_unsigned("<", magnitude, e.word(32, 113 << 23))
    beside = e.as_words(e.builder.fadd(e.as_numbers(magnitude), e.number(32, 0.5)))
    subnormal = e.builder.sub(beside, e.word(32, 126 << 23))
    codes = e.select(small, subnormal, codes)
    sign = e.shift("lshr", e.builder.xor(bits, magnitude), 16)
    return e.resize(e.builder.or_(codes, sign), 16)


def is_nan(e: Emitter, floats: Value) -> Value:
    return e.builder.fcmp_unordered("uno", floats, floats)


def with_nans(e: Emitter, t: ScalarType, words: Value, nan: Value, *operands: Value) -> Value:
    """`words` with the NaN that the instruction returns where `nan` is set; f64 passes on the first
    NaN among its operands."""
    canonical = e.like(words, t.format.nan or 0)
    if t is not _F64 or not operands:
        return e.select(nan, canonical, words)

    def passed() -> Value:
        out = canonical
        for operand in reversed(operands):
            quiet = e.builder.or_(operand, e.like(operand, 1 << (t.format.mantissa_bits - 1)))
            out = e.select(is_nan(e, e.as_numbers(operand)), quiet, out)
        return e.select(nan, out, words)

    return e.rarely(nan, passed, words)


def finished(
    e: Emitter, t: ScalarType, words: Value, nan: Value, sat: bool, relu: bool = False
) -> Value:
    """`with_nans` for the formats with one NaN, and .sat or .relu."""
    negative = e.builder.icmp_signed("<", words, e.like(words, 0))
    zero = e.like(words, 0)
    if sat:
        one = e.like(words, t.format.bias << t.format.mantissa_bits)
        return e.select(e.builder.or_(negative, nan), zero, e.call("umin", words, one))
    if relu:
        words = e.select(negative, zero, words)
    return with_nans(e, t, words, nan)


# --- sums, products, fused ones -------------------------------------------------------------------


def add(
    e: Emitter, t: ScalarType, a: Value, b: Value, *, rounding: str = "rn", ftz: bool = False,
    sat: bool = False,
) -> Value:  # fmt: skip
    x, y = values(e, t, a, ftz), values(e, t, b, ftz)
    return _sum(e, t, x, y, ftz, sat, (b, a))


def sub(
    e: Emitter, t: ScalarType, a: Value, b: Value, *, rounding: str = "rn", ftz: bool = False,
    sat: bool = False,
) -> Value:  # fmt: skip
    x, y = values(e, t, a, ftz), values(e, t, b, ftz)
    return _sum(e, t, x, e.builder.fneg(y), ftz, sat, (b, a))


def _sum(
    e: Emitter, t: ScalarType, x: Value, y: Value, ftz: bool, sat: bool, nans: tuple[Value, ...]
) -> Value:
    total = e.builder.fadd(x, y)
    words = nearest(e, t, total)
    # A sum below the normal range is exact, so that its code tells whether it is tiny.
    words = flushed(e, t, words) if ftz else words
    if t is _F64:
        return with_nans(e, t, words, is_nan(e, total), *nans)
    return finished(e, t, words, is_nan(e, total), sat)


def mul(
    e: Emitter, t: ScalarType, a: Value, b: Value, *, rounding: str = "rn", ftz: bool = False,
    sat: bool = False,
) -> Value:  # fmt: skip
    x, y = values(e, t, a, ftz), values(e, t, b, ftz)
    product = e.builder.fmul(x, y)
    words = nearest(e, t, product)
    if ftz:
        words = _without_tiny(e, t, words, lambda: _wide_product(e, x, y))
    if t is _F64:
        return with_nans(e, t, words, is_nan(e, product), b, a)
    return finished(e, t, words, is_nan(e, product), sat)


def _wide_product(e: Emitter, x: Value, y: Value) -> Value:
    return e.builder.fmul(as_double(e, x), as_double(e, y))


def as_double(e: Emitter, x: Value) -> Value:
    return e.builder.fpext(x, numbers(64))


def _without_tiny(e: Emitter, t: ScalarType, words: Value, exact: Any) -> Value:
    """.ftz of f32 results, by `exact`, the number as a double, where the code alone cannot tell:
    the smallest normal number may have been rounded to."""
    words = flushed(e, t, words)
    least = t.format.infinity & -t.format.infinity if t.format.infinity else 0
    at_edge = e.builder.icmp_unsigned("==", magnitudes(e, t, words), e.like(words, least))
    smallest = 2.0**t.format.emin
    limit = smallest * (1 - 2.0 ** -(t.format.precision + 1))

    def decided() -> Value:
        magnitude = e.call("fabs", exact())
        tiny = e.builder.fcmp_ordered("<", magnitude, e.number(64, limit))
        return e.select(e.builder.and_(tiny, at_edge), signs(e, t, words), words)

    return e.rarely(at_edge, decided, words)


def fma(
    e: Emitter, t: ScalarType, a: Value, b: Value, c: Value, *, rounding: str = "rn",
    ftz: bool = False, sat: bool = False, relu: bool = False,
) -> Value:  # fmt: skip
    x, y, z = (values(e, t, words, ftz) for words in (a, b, c))
    if t.bits == 16:
        total = _odd_fused(e, t, x, y, z)
        return finished(e, t, nearest(e, t, total), is_nan(e, total), sat, relu)
    total = e.call("fma", x, y, z)
    words = nearest(e, t, total)
    if ftz:
        words = _without_tiny(
            e, t, words, lambda: odd_sum(e, 64, _wide_product(e, x, y), as_double(e, z))
        )
    if t is _F64:
        return with_nans(e, t, words, is_nan(e, total), b, c, a)
    return finished(e, t, words, is_nan(e, total), sat, relu)


def _odd_fused(e: Emitter, t: ScalarType, x: Value, y: Value, z: Value) -> Value:
    """x·y + z of f16 or bf16 numbers as a float that still rounds rightly to them.

    A product of f16 is exact in f32; of bf16 in f64, from where the odd sum is cut to f32 and made
    odd once more.
    """
    if t.name == "f16":
        return odd_sum(e, 32, e.builder.fmul(x, y), z)
    total = odd_sum(e, 64, _wide_product(e, x, y), as_double(e, z))
    near = e.builder.fptrunc(total, numbers(32))
    back = as_double(e, near)
    size, held = e.call("fabs", total), e.call("fabs", back)
    outward, inward = (e.builder.fcmp_ordered(verb, size, held) for verb in (">", "<"))
    return _made_odd(e, near, outward, inward)


def odd_sum(e: Emitter, bits: int, a: Value, b: Value) -> Value:
    """a + b rounded to odd; the error of the sum is Knuth's."""
    builder = e.builder
    total = builder.fadd(a, b)
    b_part = builder.fsub(total, a)
    a_rest = builder.fsub(a, builder.fsub(total, b_part))
    rest = builder.fadd(a_rest, builder.fsub(b, b_part))
    # An overflow has a rest that is no number or infinite, and stays.
    size = e.call("fabs", rest)
    some = builder.and_(
        builder.fcmp_ordered(">", size, e.number(bits, 0.0)),
        builder.fcmp_ordered("<", size, e.number(bits, float("inf"))),
    )
    up, positive = (builder.fcmp_ordered(">", x, e.number(bits, 0.0)) for x in (rest, total))
    away = builder.not_(builder.xor(up, positive))
    return _made_odd(e, total, builder.and_(some, away), builder.and_(some, builder.not_(away)))


def _made_odd(e: Emitter, near: Value, outward: Value, inward: Value) -> Value:
    """Numbers whose last bit is set where the exact one lies outward or inward of them."""
    words = e.as_words(near)
    one = e.like(words, 1)
    odd = e.builder.icmp_unsigned("!=", e.builder.and_(words, one), e.like(words, 0))
    moved = e.select(outward, e.builder.add(words, one), words)
    moved = e.select(inward, e.builder.sub(words, one), moved)
    return e.as_numbers(e.select(odd, words, moved))


def add_mixed(
    e: Emitter, t: ScalarType, narrow: ScalarType, a: Value, c: Value, *, rounding: str = "rn",
    sat: bool = False,
) -> Value:  # fmt: skip
    return _sum(e, t, values(e, narrow, a), values(e, t, c), False, sat, ())


def fma_mixed(
    e: Emitter, t: ScalarType, narrow: ScalarType, a: Value, b: Value, c: Value, *,
    rounding: str = "rn", sat: bool = False,
) -> Value:  # fmt: skip
    x, y, z = values(e, narrow, a), values(e, narrow, b), values(e, t, c)
    total = e.call("fma", x, y, z)
    return finished(e, t, nearest(e, t, total), is_nan(e, total), sat)


# --- comparisons ----------------------------------------------------------------------------------

_VERBS = {
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
    "lo": "<", "ls": "<=", "hi": ">", "hs": ">=",
    "equ": "==", "neu": "!=", "ltu": "<", "leu": "<=", "gtu": ">", "geu": ">=",
    "num": "ord", "nan": "uno",
}  # fmt: skip


def holds(e: Emitter, t: ScalarType, a: Value, b: Value, compare: str, ftz: bool) -> Value:
    verb = _VERBS[compare]
    if not t.is_float:
        return e.compare(verb, t, a, b)
    x, y = values(e, t, a, ftz), values(e, t, b, ftz)
    if compare in ("num", "nan"):
        verb_of = e.builder.fcmp_ordered if compare == "num" else e.builder.fcmp_unordered
        return verb_of(verb, x, y)
    return (e.builder.fcmp_unordered if compare.endswith("u") else e.builder.fcmp_ordered)(
        verb, x, y
    )


def _combined(e: Emitter, result: Value, c: Value | None, combine: str) -> Value:
    if c is None or not combine:
        return result
    return {"and": e.builder.and_, "or": e.builder.or_, "xor": e.builder.xor}[combine](result, c)


def setp(
    e: Emitter, t: ScalarType, a: Value, b: Value, c: Value | None = None, *, compare: str = "",
    combine: str = "", ftz: bool = False,
) -> tuple[Value, Value]:  # fmt: skip
    if t.count > 1:
        half = t.element
        parts = (
            [e.resize(e.shift("lshr", x, place), half.bits) for x in (a, b)]
            for place in (0, half.bits)
        )
        low, high = (holds(e, half, x, y, compare, ftz) for x, y in parts)
        return _combined(e, low, c, combine), _combined(e, high, c, combine)
    result = holds(e, t, a, b, compare, ftz)
    other = e.builder.not_(result)
    return _combined(e, result, c, combine), _combined(e, other, c, combine)


def set_(
    e: Emitter, d: ScalarType, t: ScalarType, a: Value, b: Value, c: Value | None = None, *,
    compare: str = "", combine: str = "", ftz: bool = False,
) -> Value:  # fmt: skip
    true = d.format.bias << d.format.mantissa_bits if d.is_float else d.mask
    result = _combined(e, holds(e, t, a, b, compare, ftz), c, combine)
    return e.select(result, e.word(d.size, true), e.word(d.size, 0))


def selp(e: Emitter, t: ScalarType, a: Value, b: Value, c: Value) -> Value:
    return e.select(c, a, b)


def slct(
    e: Emitter, t: ScalarType, condition: ScalarType, a: Value, b: Value, c: Value, *,
    ftz: bool = False,
) -> Value:  # fmt: skip
    return e.select(holds(e, condition, c, e.like(c, 0), "ge", ftz), a, b)


# --- signs, tests, minimum and maximum ------------------------------------------------------------


def testp(e: Emitter, t: ScalarType, a: Value, *, test: str = "") -> Value:
    magnitude = magnitudes(e, t, a)
    infinity, least = t.format.infinity or 0, 1 << t.format.mantissa_bits

    def compare(verb: str, limit: int) -> Value:
        return e.builder.icmp_unsigned(verb, magnitude, e.like(a, limit))

    subnormal = e.builder.and_(compare("<", least), compare("!=", 0))
    finite = compare("<", infinity)
    return {
        "finite": finite,
        "infinite": compare("==", infinity),
        "number": compare("<=", infinity),
        "notanumber": compare(">", infinity),
        "normal": e.builder.and_(finite, e.builder.not_(subnormal)),
        "subnormal": subnormal,
    }[test]


def copysign(e: Emitter, t: ScalarType, a: Value, b: Value) -> Value:
    return e.builder.or_(signs(e, t, a), magnitudes(e, t, b))


def absolute(e: Emitter, t: ScalarType, a: Value, *, ftz: bool = False) -> Value:
    a = flushed(e, t, a) if ftz else a
    return with_nans(e, t, magnitudes(e, t, a), is_nan_word(e, t, a), a)


def neg(e: Emitter, t: ScalarType, a: Value, *, ftz: bool = False) -> Value:
    a = flushed(e, t, a) if ftz else a
    out = e.builder.xor(a, e.like(a, t.format.sign_mask))
    return with_nans(e, t, out, is_nan_word(e, t, a), a)


def is_nan_word(e: Emitter, t: ScalarType, words: Value) -> Value:
    return e.builder.icmp_unsigned(
        ">", magnitudes(e, t, words), e.like(words, t.format.infinity or 0)
    )


def minimum(
    e: Emitter, t: ScalarType, a: Value, b: Value, c: Value | None = None, *, ftz: bool = False,
    nan: bool = False, xorsign: bool = False, abs: bool = False,
) -> Value:  # fmt: skip
    return _extreme(e, t, (a, b) if c is None else (a, b, c), False, ftz, nan, xorsign, abs)


def maximum(
    e: Emitter, t: ScalarType, a: Value, b: Value, c: Value | None = None, *, ftz: bool = False,
    nan: bool = False, xorsign: bool = False, abs: bool = False,
) -> Value:  # fmt: skip
    return _extreme(e, t, (a, b) if c is None else (a, b, c), True, ftz, nan, xorsign, abs)


def _extreme(
    e: Emitter, t: ScalarType, codes: tuple[Value, ...], largest: bool, ftz: bool, nan: bool,
    xorsign: bool, abs: bool,
) -> Value:  # fmt: skip
    """By integers that order codes as their numbers are ordered, NaNs at the far end."""
    sign = codes[0]
    for code in codes[1:]:
        sign = e.builder.xor(sign, code)
    codes = tuple(flushed(e, t, code) for code in codes) if ftz else codes
    pick = "smax" if largest else "smin"
    lost = 1 << (t.bits - 1) if largest else (1 << (t.bits - 1)) - 1
    bests, nans = [], []
    for code in codes:
        none = is_nan_word(e, t, code)
        ordinal = magnitudes(e, t, code) if abs else _ordinals(e, t, code)
        bests.append(e.select(none, e.like(code, lost), ordinal))
        nans.append(none)
    best, which = bests[0], nans[0]
    for ordinal, none in zip(bests[1:], nans[1:], strict=True):
        best = e.call(pick, best, ordinal)
        which = (e.builder.or_ if nan else e.builder.and_)(which, none)
    if abs:
        out = magnitudes(e, t, best)
        out = e.builder.or_(out, signs(e, t, sign)) if xorsign else out
    else:
        out = _ordinals(e, t, best)
    return with_nans(e, t, out, which, *reversed(codes))


def _ordinals(e: Emitter, t: ScalarType, codes: Value) -> Value:
    """The bits of negative codes but their sign flipped; and back."""
    spread = e.shift("ashr", codes, t.bits - 1)
    return e.builder.xor(codes, magnitudes(e, t, spread))


RULES: dict[str, Callable[..., Any]] = {
    "floating.add": add, "floating.sub": sub, "floating.mul": mul,
    "floating.add_mixed": add_mixed, "fused.fma": fma, "fused.fma_mixed": fma_mixed,
    "comparison.setp": setp, "comparison.set_": set_, "comparison.selp": selp,
    "comparison.slct": slct, "comparison.testp": testp, "comparison.copysign": copysign,
    "comparison.absolute": absolute, "comparison.neg": neg,
    "comparison.minimum": minimum, "comparison.maximum": maximum,
}  # fmt: skip
