"""The fused dot-add, which is what a tensor core does to floating-point numbers.

What it does with zeros, subnormals, infinities, NaNs and the floor was measured on an H200.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtypes import FORMATS, Array, Format, NumberClass, code_type, round_to_codes
from dtypes import decode as decode_codes
from dtypes.arrays import Int64
from dtypes.codec import decode, round_to_code
from emulator.arith.steps.step import ROUNDED, Arithmetic, Dot, Dots, Step
from emulator.arith.trace import Observer, Summed, Tagged, Term, unobserved
from emulator.errors import runs

NAN, INFINITE, ZERO = NumberClass.NAN, NumberClass.INFINITE, NumberClass.ZERO


@dataclass(frozen=True)
class FusedDotAdd(Step):
    """x = round(Σ a·b + x): every term is truncated at one common bit, then summed.

    The bit is `fraction_bits` below the largest exponent among the non-zero terms, that exponent
    taken as at least `floor`. What lies below it is dropped (toward zero on the magnitude). The
    sum is exact, and rounded once to `result`: toward zero for f32, to nearest even for f16. See
    `fused_dot_add` for specials and signs of zero.
    """

    fraction_bits: int
    #: least exponent that the alignment uses; None: no floor
    floor: int | None
    result: str
    rounding: Literal["rz", "rn", "rm", "rp"]
    #: significand bits kept of the result; None: all that the format has
    precision: int | None = None
    #: k positions go in runs of this many to the passes in turn; 0: one pass over all
    run: int = 0
    #: number of passes that runs are dealt to; 0: a pass of its own for every run
    passes: int = 0
    #: this many neighbouring products are first added exactly, as one term (fp4 with scales)
    group: int = 1

    def blocks(self, k: int) -> list[list[int]]:
        """The k positions of each pass, in the order in which the passes chain.

        >>> FusedDotAdd(25, -133, "f32", "rz", run=2, passes=2).blocks(8)
        [[0, 1, 4, 5], [2, 3, 6, 7]]
        """
        run = self.run or k
        passes = self.passes or max(1, -(-k // run))
        return [[i for i in range(k) if i // run % passes == p] for p in range(passes)]

    def sum_bits(self, a: Format, b: Format, scale: Format | None, k: int) -> int:
        """Most bits that the aligned sum of `k` products and x has, or a group before it."""
        bits = a.precision + b.precision + (2 * scale.precision if scale else 0)
        if self.group > 1:
            # Products of a group have one unit, that of the least of them.
            bits += a.bias - a.emin + b.bias - b.emin + 2 + self.group.bit_length()
        # Products are not normalised: each significand of two, or of four, is below 2.
        above = 4 if scale else 2
        return max(bits, self.fraction_bits + above) + (k + 1).bit_length()

    def reference(self, dot: Dot) -> None:
        terms = products(dot.a_format, dot.b_format, dot.a, dot.b)
        if dot.arithmetic.scale is not None:
            terms = scaled(terms, dot.arithmetic.scale, dot.scale_a, dot.scale_b, self.group)
        shift = dot.arithmetic.c_shift
        for block in self.blocks(len(terms)):
            dot.x = fused_dot_add(self, [terms[i] for i in block], dot.x, dot.observe, shift)
            shift = 0

    def vector(self, dots: Dots) -> None:
        k, scale, shift = dots.a.shape[-1], dots.arithmetic.scale, dots.arithmetic.c_shift
        for block in self.blocks(k):
            a, b = dots.a[..., block], dots.b[..., block]
            terms = products_of_arrays(dots.a_format, dots.b_format, a, b)
            if scale is not None:
                assert dots.scale_a is not None and dots.scale_b is not None
                chunk = [i * dots.scale_a.shape[-1] // k for i in block[:: self.group]]
                u, v = dots.scale_a[..., chunk], dots.scale_b[..., chunk]
                terms = scaled_arrays(terms, products_of_arrays(scale, scale, u, v), self.group)
            x = as_terms(dots.x_format, dots.x)
            x, shift = x._replace(exponent=x.exponent - shift), 0
            dots.x, dots.x_format = add_arrays(self, terms, x), FORMATS[self.result]

    @property
    def short(self) -> str:
        bits = f" of {self.precision} bits" if self.precision else ""
        return f"a fused sum, {ROUNDED[self.rounding]} to {self.result}{bits}"

    def sentence(self, arithmetic: Arithmetic, k: int) -> str:
        scales = " times their scales" if arithmetic.scale is not None else ""
        grouped = f", {self.group} neighbours first added exactly" if self.group > 1 else ""
        floor = "" if self.floor is None else f" (taken as at least {self.floor})"
        kept = f", {self.precision} significand bits kept" if self.precision else ""
        return (
            f"x = sum of a*b{scales} and x{grouped}, {self._order(k)}: every term is cut "
            f"{self.fraction_bits} bits below the largest exponent{floor}; the sum is rounded once "
            f"{ROUNDED[self.rounding]} to {self.result}{kept}"
        )

    def _order(self, k: int) -> str:
        which = [runs(block) for block in self.blocks(k)]
        if len(which) == 1:
            return "over all k at once"
        if max(map(len, which)) > 24:
            start = ", ".join(which[0].split(", ")[:3])
            return f"in {len(which)} passes, the first over k = {start}, ..."
        return f"in {len(which)} passes, k = {'; '.join(which)}"


# --- in integers ----------------------------------------------------------------------------------


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
    terms: Sequence[Term], scale: Format, scale_a: Sequence[int], scale_b: Sequence[int], group: int
) -> list[Term]:
    """Products times the scales of their chunk; `group` neighbours first become one exact term.

    A scale's significand multiplies, its exponent adds (MMA-Sim). A grouped term's exponent is that
    of the scales alone: fp4 products are fixed-point numbers. Where they cancel, the term counts in
    the common exponent all the same; it is a zero where all of them are, or a scale is.
    """
    out = []
    for first in range(0, len(terms), group):
        members = terms[first : first + group]
        chunk = first * len(scale_a) // len(terms)
        u, v = decode(scale, scale_a[chunk]), decode(scale, scale_b[chunk])
        kinds = {t.number_class for t in members} | {u.number_class, v.number_class}
        if group == 1:
            (_, sign, exponent, significand, fraction_bits) = members[0]
            zero = not significand
        else:
            # Fixed point: the smallest exponent that a product of the two formats can have.
            lowest = min(t.exponent for t in members)
            total = sum(
                (-t.significand if t.sign else t.significand) << t.exponent - lowest
                for t in members
            )
            sign, significand, exponent = int(total < 0), abs(total), 0
            fraction_bits = members[0].fraction_bits - lowest
            zero = not any(t.significand for t in members)
        significand *= u.significand * v.significand
        if NAN in kinds or (INFINITE in kinds and ZERO in {u.number_class, v.number_class}):
            kind = NAN
        elif INFINITE in kinds:
            kind = INFINITE
        else:
            kind = ZERO if zero or not u.significand * v.significand else NumberClass.FINITE
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
    step: FusedDotAdd,
    terms: Sequence[Term],
    x: Tagged,
    observe: Observer = unobserved,
    x_shift: int = 0,
) -> Tagged:
    """``x = round(Σ terms + x)`` as the tensor core does it; x counts ``2**-x_shift`` as much.

    1. A NaN among the terms, or infinities of both signs, give NaN; else an infinity wins.
    2. Zero terms vanish: they take no part in the common exponent.
    3. The common exponent is the largest of those left, and at least `floor`.
    4. Every magnitude is truncated at `fraction_bits` below it; the sum is exact.
    5. One rounding. Too large becomes infinity in every rounding; a zero result is always +0.
    """
    fmt = FORMATS[step.result]
    own = Term(*x.number, x.fmt.mantissa_bits)
    terms = [*terms, own._replace(exponent=own.exponent - x_shift)]
    code = special_sum(fmt, terms)
    exponents = [t.exponent for t in terms if t.number_class != ZERO]
    if code is not None or not exponents:
        result = Tagged(fmt, code or 0)
        observe(Summed(step, terms, None, (), x, result))
        return result

    top = max(exponents)
    if step.floor is not None:
        top = max(top, step.floor)
    unit = top - step.fraction_bits
    cut = [truncated(t, unit) for t in terms]
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
        # Every fused dot-add writes the canonical NaN of f32 or f16, which have all bits set.
        return fmt.nan
    if infinities:
        assert fmt.infinity is not None
        return fmt.infinity | (fmt.sign_mask if infinities == {1} else 0)
    return None


def truncated(term: Term, unit: int) -> int:
    """The signed significand in units of ``2**unit``, truncated toward zero."""
    if not term.significand:
        return 0
    shift = term.exponent - term.fraction_bits - unit
    magnitude = term.significand << shift if shift >= 0 else term.significand >> -shift
    return -magnitude if term.sign else magnitude


# --- over arrays ----------------------------------------------------------------------------------

Bool = NDArray[np.bool_]

#: The exponent of a zero: far below any other, so that it never decides an alignment.
NOWHERE = -(1 << 20)


class Terms(NamedTuple):
    """Addends ``significand * 2**(exponent - fraction_bits)``, significand signed, and specials."""

    exponent: Int64
    significand: Int64
    fraction_bits: int
    nan: Bool
    #: infinite terms of each sign
    positive: Bool
    negative: Bool


def as_terms(fmt: Format, codes: Array) -> Terms:
    """Numbers as terms of a sum."""
    number = decode_codes(fmt, codes)
    infinite = number.number_class == INFINITE
    return Terms(
        np.where(number.significand == 0, NOWHERE, number.exponent),
        np.where(number.sign, -number.significand, number.significand),
        fmt.mantissa_bits,
        number.number_class == NAN,
        infinite & ~number.sign,
        infinite & number.sign,
    )


def products_of_arrays(fmt_a: Format, fmt_b: Format, a: Array, b: Array) -> Terms:
    """`products` position by position, broadcast."""
    p, q = as_terms(fmt_a, a), as_terms(fmt_b, b)
    exponent, significand = p.exponent + q.exponent, p.significand * q.significand
    bits = p.fraction_bits + q.fraction_bits
    if not any(x.any() for t in (p, q) for x in t[3:]):
        none = np.zeros(exponent.shape, np.bool_)
        return Terms(exponent, significand, bits, none, none, none)

    p_number, q_number = decode_codes(fmt_a, a), decode_codes(fmt_b, b)
    p_infinite, q_infinite = p.positive | p.negative, q.positive | q.negative
    p_zero, q_zero = p_number.number_class == ZERO, q_number.number_class == ZERO
    nan = p.nan | q.nan | (p_infinite & q_zero) | (p_zero & q_infinite)
    infinite = (p_infinite | q_infinite) & ~nan
    sign = p_number.sign ^ q_number.sign
    return Terms(exponent, significand, bits, nan, infinite & ~sign, infinite & sign)


def scaled_arrays(terms: Terms, scales: Terms, group: int) -> Terms:
    """`scaled`: `scales` are the products of the two scales of each group."""
    zero = terms.significand == 0
    if group > 1:
        count = terms.significand.shape[-1] // group

        def split(x: Array) -> Array:
            return x.reshape(*x.shape[:-1], count, group)

        # fp4 products are fixed-point numbers: the sum keeps the unit of the smallest exponent.
        exponent, significand = split(terms.exponent), split(terms.significand)
        live = significand != 0
        lowest = int(np.min(exponent, where=live, initial=0))
        summed = np.where(live, significand << np.where(live, exponent - lowest, 0), 0).sum(-1)
        zero = ~live.any(-1)
        terms = Terms(
            np.zeros(summed.shape, np.int64),
            summed,
            terms.fraction_bits - lowest,
            *(np.any(split(flags), axis=-1) for flags in terms[3:]),
        )
    zero = zero | (scales.significand == 0)
    return Terms(
        np.where(zero, NOWHERE, terms.exponent + scales.exponent),
        terms.significand * scales.significand,
        terms.fraction_bits + scales.fraction_bits,
        # A scale has no infinity; zero times infinity is a NaN.
        terms.nan | scales.nan | ((terms.positive | terms.negative) & (scales.significand == 0)),
        terms.positive & ~scales.nan,
        terms.negative & ~scales.nan,
    )


def aligned(terms: Terms, top: Int64, fraction_bits: int) -> Int64:
    """`truncated` of all terms, in units of ``2**(top - fraction_bits)``."""
    shift = terms.exponent - top + (fraction_bits - terms.fraction_bits)
    magnitude = np.abs(terms.significand)
    cut = magnitude << np.clip(shift, 0, 63) >> np.clip(-shift, 0, 63)
    return np.where(terms.significand < 0, -cut, cut)


def add_arrays(step: FusedDotAdd, terms: Terms, x: Terms) -> Array:
    """`fused_dot_add` of terms ``(…, k)`` and x ``(…)``."""
    fmt = FORMATS[step.result]
    top = np.maximum(terms.exponent.max(-1), x.exponent)
    # All terms zero: any finite exponent gives the same +0.
    top = np.maximum(top, NOWHERE // 2 if step.floor is None else step.floor)
    total = aligned(terms, top[..., None], step.fraction_bits).sum(-1)
    total = total + aligned(x, top, step.fraction_bits)
    codes = round_to_codes(
        fmt,
        total < 0,
        np.abs(total),
        top - step.fraction_bits,
        step.rounding,
        overflow="infinity",
        precision=step.precision,
    )
    codes = np.where(codes == fmt.sign_mask, 0, codes).astype(codes.dtype)
    return _specials(fmt, codes, terms, x)


def _specials(fmt: Format, codes: Array, terms: Terms, x: Terms) -> Array:
    """`codes`, but where `special_sum` says otherwise."""
    if not any(flags.any() for t in (terms, x) for flags in t[3:]):
        return codes
    assert fmt.infinity is not None and fmt.nan is not None
    positive = terms.positive.any(-1) | x.positive
    negative = terms.negative.any(-1) | x.negative
    nan = terms.nan.any(-1) | x.nan | (positive & negative)
    codes = np.where(positive, fmt.infinity, codes)
    codes = np.where(negative, fmt.infinity | fmt.sign_mask, codes)
    return np.where(nan, fmt.nan, codes).astype(code_type(fmt.bits))
