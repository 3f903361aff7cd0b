"""The specification: one dot product at a time, in plain Python integers. Slow and obvious.

Every function names what it follows: the H200 measurements (signs of zero, floor, order of special
values, NaN priority of f64) or IEEE 754 (fused multiply-add). `dot_one` tells an observer what it
does, in the records of `trace`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dtypes import FORMATS, Array, Format, Number, NumberClass, Rounding, code_type
from dtypes.codec import decode, decode_integer, round_to_code
from emulator.arith.recipes import Arithmetic
from emulator.arith.steps import (
    AddC,
    Clear,
    FmaChain,
    FusedDotAdd,
    IntegerDot,
    Narrow,
    PairSums,
    PopcountDot,
    Widen,
)
from emulator.arith.trace import (
    Changed,
    Counted,
    Observer,
    Operated,
    Summed,
    Widened,
    unobserved,
)

NAN, INFINITE, ZERO = NumberClass.NAN, NumberClass.INFINITE, NumberClass.ZERO


class Term(NamedTuple):
    """One addend of a fused dot-add: ``±significand * 2**(exponent - fraction_bits)``."""

    number_class: NumberClass
    sign: int
    exponent: int
    significand: int
    fraction_bits: int


class Tagged(NamedTuple):
    """A code together with its format."""

    fmt: Format
    code: int

    @property
    def number(self) -> Number:
        return decode(self.fmt, self.code)


def dot(
    arithmetic: Arithmetic,
    a: Array,
    b: Array,
    c: Array,
    scale_a: Array | None = None,
    scale_b: Array | None = None,
) -> Array:
    """``d = c + Σ a·b`` of codes; `a` and `b` are ``(…, k)``, `c` is ``(…)``, all broadcast.

    Scales are ``(…, v)`` codes, one for every k / v neighbouring positions.
    """
    operands = (x for x in (a, b, scale_a, scale_b) if x is not None)
    shape = np.broadcast_shapes(c.shape, *(x.shape[:-1] for x in operands))

    def rows(codes: Array | None) -> list[list[int]]:
        if codes is None:
            return [[]] * int(np.prod(shape))
        spread: list[list[int]] = (
            np.broadcast_to(codes, (*shape, codes.shape[-1])).reshape(-1, codes.shape[-1]).tolist()
        )
        return spread

    columns = zip(
        rows(a),
        rows(b),
        rows(scale_a),
        rows(scale_b),
        rows(np.broadcast_to(c, shape)[..., None]),
        strict=True,
    )
    results = [dot_one(arithmetic, p, q, u, v, start) for p, q, u, v, (start,) in columns]
    return np.array(results, code_type(arithmetic.d.bits)).reshape(shape)


def dot_one(
    arithmetic: Arithmetic,
    a: Sequence[int],
    b: Sequence[int],
    scale_a: Sequence[int],
    scale_b: Sequence[int],
    c: int,
    observe: Observer = unobserved,
) -> int:
    """One dot product: runs the steps of the recipe, and tells `observe` about each."""
    a_format, b_format = arithmetic.a, arithmetic.b
    x = Tagged(arithmetic.c, c)
    for step in arithmetic.steps:
        before = x
        if isinstance(step, Widen):
            wide, formats, given = FORMATS[step.to], (a_format, b_format), (a, b)
            a = [convert(a_format, wide, code) for code in a]
            b = [convert(b_format, wide, code) for code in b]
            a_format = b_format = wide
            observe(Widened(step, formats, given, wide, (a, b)))
        elif isinstance(step, Clear):
            x = Tagged(FORMATS[step.to], 0)
            observe(Changed(step, before, x))
        elif isinstance(step, FusedDotAdd):
            terms = products(a_format, b_format, a, b)
            if arithmetic.scale is not None:
                terms = scaled(terms, arithmetic.scale, scale_a, scale_b, step.group)
            for block in step.blocks(len(terms)):
                x = fused_dot_add(step, [terms[i] for i in block], x, observe)
        elif isinstance(step, FmaChain):
            fmt = FORMATS[step.fmt]
            x = in_format(x, fmt)
            observe(Changed(step, before, x))
            for k, (p, q) in enumerate(zip(a, b, strict=True)):
                code = fma(fmt, p, q, x.code, arithmetic.rounding, step.nan_order)
                observe(Operated(step, "fma", fmt, k, (p, q, x.code), code))
                x = Tagged(fmt, code)
        elif isinstance(step, PairSums):
            fmt = FORMATS[step.fmt]
            x = in_format(x, fmt)
            observe(Changed(step, before, x))
            for k in range(0, len(a), 2):
                first = multiply(fmt, a[k], b[k])
                observe(Operated(step, "multiply", fmt, k, (a[k], b[k]), first))
                pair = fma(fmt, a[k + 1], b[k + 1], first)
                observe(Operated(step, "fma", fmt, k + 1, (a[k + 1], b[k + 1], first), pair))
                code = add(fmt, x.code, pair)
                observe(Operated(step, "add", fmt, k, (x.code, pair), code))
                x = Tagged(fmt, code)
        elif isinstance(step, AddC):
            fmt = FORMATS[step.fmt]
            addend = in_format(Tagged(arithmetic.c, c), fmt).code
            x = Tagged(fmt, add(fmt, x.code, addend))
            observe(Operated(step, "add", fmt, None, (before.code, addend), x.code))
        elif isinstance(step, Narrow):
            x = in_format(x, FORMATS[step.to])
            observe(Changed(step, before, x))
        elif isinstance(step, (IntegerDot, PopcountDot)):
            addends = integer_products(arithmetic, a, b)
            x = Tagged(arithmetic.d, accumulate(arithmetic, c, sum(addends)))
            observe(Counted(step, addends, decode_integer(arithmetic.d, c), x))
        else:
            raise AssertionError(f"no meaning for {step}")
    return x.code


def integer_products(arithmetic: Arithmetic, a: Sequence[int], b: Sequence[int]) -> list[int]:
    """a[k]·b[k] of integers, (a[k] op b[k]) of bits."""
    pairs = zip(a, b, strict=True)
    if arithmetic.bit_operation:
        return [p ^ q if arithmetic.bit_operation == "xor" else p & q for p, q in pairs]
    return [decode_integer(arithmetic.a, p) * decode_integer(arithmetic.b, q) for p, q in pairs]


def accumulate(arithmetic: Arithmetic, c: int, total: int) -> int:
    """c + total in s32: wrapped, or clamped once from the exact sum (measured)."""
    fmt = arithmetic.d
    exact = decode_integer(fmt, c) + total
    if arithmetic.saturate:
        exact = min(max(exact, -fmt.sign_mask), fmt.max_finite)
    return exact & fmt.code_mask


# --- the fused dot-add ---


def products(fmt_a: Format, fmt_b: Format, a: Sequence[int], b: Sequence[int]) -> list[Term]:
    """a[k]·b[k], not normalised: the exponent is the sum of the operands' exponents."""
    terms = []
    for p, q in zip((decode(fmt_a, i) for i in a), (decode(fmt_b, i) for i in b), strict=True):
        classes = {p.number_class, q.number_class}
        if NAN in classes or {INFINITE, ZERO} <= classes:
            kind = NAN
        elif INFINITE in classes:
            kind = INFINITE
        else:
            kind = ZERO if ZERO in classes else NumberClass.FINITE
        terms.append(
            Term(
                kind,
                p.sign ^ q.sign,
                p.exponent + q.exponent,
                p.significand * q.significand,
                fmt_a.mantissa_bits + fmt_b.mantissa_bits,
            )
        )
    return terms


def scaled(
    terms: Sequence[Term],
    scale: Format,
    scale_a: Sequence[int],
    scale_b: Sequence[int],
    group: int,
) -> list[Term]:
    """Products times the scales of their chunk; `group` neighbours first become one exact term.

    A scale's significand multiplies, its exponent adds (MMA-Sim). A grouped term's exponent is that
    of the scales alone: fp4 products are fixed-point numbers.
    """
    out = []
    for first in range(0, len(terms), group):
        members = terms[first : first + group]
        chunk = first * len(scale_a) // len(terms)
        u, v = decode(scale, scale_a[chunk]), decode(scale, scale_b[chunk])
        kinds = {t.number_class for t in members} | {u.number_class, v.number_class}
        if group == 1:
            (_, sign, exponent, significand, fraction_bits) = members[0]
        else:
            # Fixed point: the smallest exponent that a product of the two formats can have.
            lowest = min(t.exponent for t in members)
            total = sum((-t.significand if t.sign else t.significand) << t.exponent - lowest
                        for t in members)  # fmt: skip
            sign, significand, exponent = int(total < 0), abs(total), 0
            fraction_bits = members[0].fraction_bits - lowest
        significand *= u.significand * v.significand
        if NAN in kinds or (INFINITE in kinds and ZERO in {u.number_class, v.number_class}):
            kind = NAN
        elif INFINITE in kinds:
            kind = INFINITE
        else:
            kind = NumberClass.FINITE if significand else ZERO
        out.append(
            Term(
                kind,
                sign ^ u.sign ^ v.sign,
                exponent + u.exponent + v.exponent,
                significand,
                fraction_bits + 2 * scale.mantissa_bits,
            )
        )
    return out


def fused_dot_add(
    step: FusedDotAdd, terms: Sequence[Term], x: Tagged, observe: Observer = unobserved
) -> Tagged:
    """``x = round(Σ terms + x)`` as the tensor core does it.

    1. A NaN among the terms, or infinities of both signs, give NaN; else an infinity wins.
    2. Zero terms vanish: they take no part in the common exponent.
    3. The common exponent is the largest of those left, and at least `floor`.
    4. Every magnitude is cut at `fraction_bits` below it; the sum is exact.
    5. One rounding. Too large becomes infinity in every rounding; a zero result is always +0.
    """
    fmt = FORMATS[step.result]
    own = x.number
    terms = [*terms, Term(*own, x.fmt.mantissa_bits)]
    code = special_sum(fmt, terms)
    exponents = [t.exponent for t in terms if t.significand]
    if code is not None or not exponents:
        result = Tagged(fmt, code or 0)
        observe(Summed(step, terms, None, (), x, result))
        return result

    top = max(exponents)
    if step.floor is not None:
        top = max(top, step.floor)
    unit = top - step.fraction_bits
    cut = [cut_at(t, unit) for t in terms]
    total = sum(cut)
    code = round_to_code(
        fmt,
        int(total < 0),
        abs(total),
        unit,
        step.rounding,
        overflow="infinity",
        precision=step.precision,
    )
    result = Tagged(fmt, 0 if code == fmt.sign_mask else code)
    observe(Summed(step, terms, top, cut, x, result))
    return result


def special_sum(fmt: Format, terms: Sequence[Term]) -> int | None:
    """The code that a NaN or infinities among the terms give; None where there are none."""
    infinities = {t.sign for t in terms if t.number_class == INFINITE}
    if any(t.number_class == NAN for t in terms) or len(infinities) == 2:
        # Every FusedDotAdd writes the canonical NaN of f32 or f16, which have all bits set.
        return fmt.nan
    if infinities:
        assert fmt.infinity is not None
        return fmt.infinity | (fmt.sign_mask if infinities == {1} else 0)
    return None


def cut_at(term: Term, unit: int) -> int:
    """The signed significand in units of ``2**unit``, cut toward zero."""
    if not term.significand:
        return 0
    shift = term.exponent - term.fraction_bits - unit
    magnitude = term.significand << shift if shift >= 0 else term.significand >> -shift
    return -magnitude if term.sign else magnitude


# --- IEEE 754 operations ---


def fma(
    fmt: Format,
    a: int,
    b: int,
    c: int,
    rounding: Rounding = "rn",
    nan_order: Sequence[str] = (),
) -> int:
    """The fused multiply-add ``a·b + c`` of codes of one format, rounded once.

    A NaN operand gives the canonical NaN, or with `nan_order` the first NaN in that order with its
    quiet bit set (measured for f64). Invalid operations give the format's canonical NaN.
    """
    p, q, r = decode(fmt, a), decode(fmt, b), decode(fmt, c)
    assert fmt.nan is not None and fmt.infinity is not None
    by_name = {"a": (a, p), "b": (b, q), "x": (c, r)}
    for name in nan_order:
        code, number = by_name[name]
        if number.number_class == NAN:
            return code | 1 << (fmt.mantissa_bits - 1)
    (product,) = products(fmt, fmt, [a], [b])
    if NAN in (product.number_class, r.number_class):
        return fmt.nan
    if product.number_class == INFINITE:
        if r.number_class == INFINITE and r.sign != product.sign:
            return fmt.nan
        return fmt.infinity | (fmt.sign_mask if product.sign else 0)
    if r.number_class == INFINITE:
        return c

    low = min(product.exponent - product.fraction_bits, r.exponent - fmt.mantissa_bits)
    total = 0
    for significand, sign, unit in (
        (product.significand, product.sign, product.exponent - product.fraction_bits),
        (r.significand, r.sign, r.exponent - fmt.mantissa_bits),
    ):
        magnitude = significand << (unit - low)
        total += -magnitude if sign else magnitude
    if total == 0:
        # Zeros of one sign keep it; an exact cancellation gives +0, and −0 only toward −∞.
        both = product.sign and r.sign
        mixed = product.sign != r.sign or bool(product.significand)
        negative = rounding == "rm" if mixed else both
        return fmt.sign_mask if negative else 0
    return round_to_code(fmt, int(total < 0), abs(total), low, rounding)


def multiply(fmt: Format, a: int, b: int) -> int:
    """a·b rounded to nearest: adding −0 changes nothing, not even the sign of a zero."""
    return fma(fmt, a, b, fmt.sign_mask)


def add(fmt: Format, a: int, b: int) -> int:
    """a + b rounded to nearest."""
    one = fmt.bias << fmt.mantissa_bits
    return fma(fmt, one, a, b)


def convert(source: Format, target: Format, code: int) -> int:
    """Rounds to nearest even in another format that has infinity and NaN."""
    number = decode(source, code)
    sign_bit = target.sign_mask if number.sign else 0
    assert target.nan is not None and target.infinity is not None
    if number.number_class == NAN:
        return target.nan
    if number.number_class == INFINITE:
        return target.infinity | sign_bit
    unit = number.exponent - source.mantissa_bits
    return round_to_code(target, number.sign, number.significand, unit)


def in_format(x: Tagged, fmt: Format) -> Tagged:
    return x if x.fmt is fmt else Tagged(fmt, convert(x.fmt, fmt, x.code))
