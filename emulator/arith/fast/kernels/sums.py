"""The steps of recipes in machine code for any operands: a vector of elements of D at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from dtypes import FORMATS, Format
from emulator.arith.arrangement import Arrangement
from emulator.arith.fast.kernels import elements, integers
from emulator.arith.fast.kernels.alignment import LazyProduct, aligned
from emulator.arith.fast.words import Word, in_pairs, select
from emulator.arith.steps import Arithmetic, FmaChain, FusedDotAdd, IntegerDot, PairSums


class DotOperands(NamedTuple):
    """The operands of a fused dot-add."""

    terms: Sequence[LazyProduct]
    #: the two scales of the chunk of k that each term is in; empty without scales
    scales: Sequence[LazyProduct]
    #: fraction bits of the product of A and B, and of the product of scales
    fraction_bits: int
    scale_fraction_bits: int
    #: whether any operand has an infinity or NaN, a bit that is known when the code runs
    any_special: Word


#: one fused dot-add of some positions of k: from codes of the accumulator, in a format, to codes of
#: the result
DotAdd = Callable[[Format, list[int], Word], Word]


def fused(arithmetic: Arithmetic, found: Arrangement, k: int, dot_add: DotAdd, c: Word) -> Word:
    """Codes of D from codes of C, by a recipe around a fused dot-add."""
    step = found.core
    assert isinstance(step, FusedDotAdd)
    result = FORMATS[step.result]
    x, fmt = c, arithmetic.c
    if found.before is not None:
        x, fmt = _converted(fmt, found.before, x), found.before
    if found.adds_c is not None:
        x, fmt = c.e.constant(0, c.dtype, c.lanes), arithmetic.d
    for block in step.blocks(k):
        x, fmt = dot_add(fmt, block, x), result
    if found.adds_c is not None:
        x = _added(result, x, c)
    if found.after is not None:
        x = _converted(fmt, found.after, x)
    return x


def dot_add(step: FusedDotAdd, fmt: Format, block: list[int], given: DotOperands, x: Word) -> Word:
    """One fused dot-add of any operands."""
    own, result = elements.decoded(fmt, x), FORMATS[step.result]
    special = _special(fmt, x, block, given)
    sums = _in_groups if step.group > 1 else _aligned
    total, top = sums(step, block, given, own)
    unit = elements.wide_power_of_two(top - step.fraction_bits)
    code = elements.rounded(result, total * unit, step.rounding, step.precision)
    return elements.with_specials(result, code, special)


def _special(fmt: Format, x: Word, block: list[int], given: DotOperands) -> Word:
    """An infinity or NaN where the sum is that, else a finite number."""
    results = [elements.classes(fmt, x)]
    with x.e.rarely(given.any_special, results):
        for k in block:
            term = given.terms[k].special()
            if given.scales:
                term = term * given.scales[k].special()
            results[0] = results[0] + term
    return results[0]


def _largest_exponent(step: FusedDotAdd, exponents: Sequence[Word]) -> Word:
    """The exponent to align to."""
    floor = elements.NOWHERE // 4 if step.floor is None else step.floor
    first, *others = exponents
    top = first.maximum(floor)
    for exponent in others:
        top = top.maximum(exponent)
    return top


def _aligned(
    step: FusedDotAdd, block: list[int], given: DotOperands, own: elements.Parts
) -> tuple[Word, Word]:
    """The exact sum in units of the alignment, float64, and the largest exponent."""
    exponents = {k: given.terms[k].exponent() for k in block}
    if given.scales:
        exponents = {k: x + given.scales[k].exponent() for k, x in exponents.items()}
    top = _largest_exponent(step, [own.exponent, *exponents.values()])

    def scale_of(exponent: Word, fraction: int) -> Word:
        return elements.power_of_two(exponent + (step.fraction_bits - fraction - top))

    # Terms in units are below 2**(fraction_bits + 2).
    addends = [aligned(own.value, scale_of(own.exponent, own.fraction_bits))]
    fraction = given.fraction_bits + given.scale_fraction_bits
    for k in block:
        addends.append(aligned(given.terms[k].value(), scale_of(exponents[k], fraction)))
    at_once = 1 << (29 - step.fraction_bits)
    total = None
    for first in range(0, len(addends), at_once):
        part = in_pairs(Word.__add__, addends[first : first + at_once]).astype(np.float64)
        total = part if total is None else total + part
    assert total is not None
    return total, top


def _in_groups(
    step: FusedDotAdd, block: list[int], given: DotOperands, own: elements.Parts
) -> tuple[Word, Word]:
    """`_aligned` of groups of products, which are first added exactly, and have the exponents of
    their scales alone; see `emulator.arith.steps.fused_dot_add.scaled`."""
    # The value is in units of the least products: their exponents are in it, not aside.
    fraction = given.fraction_bits + given.scale_fraction_bits
    terms = [(own.value, own.exponent, own.fraction_bits)]
    for first in range(0, len(block), step.group):
        members = [given.terms[k].value() for k in block[first : first + step.group]]
        scale = given.scales[block[first]]
        value = in_pairs(Word.__add__, members) * scale.value()
        # Products that cancel count in the largest exponent; zeros, but for their signs, do not.
        bits = in_pairs(Word.__or__, [x.view(np.uint32) for x in members])
        zero = (bits << 1 == 0) | (scale.value() == 0.0)
        terms.append((value, select(zero, elements.NOWHERE, scale.exponent()), fraction))
    top = _largest_exponent(step, [exponent for _, exponent, _ in terms])
    total = None
    for value, exponent, bits_of in terms:
        shift = exponent - top + (step.fraction_bits - bits_of)
        wide = value.astype(np.float64) * elements.wide_power_of_two(shift)
        wide = wide.call("trunc")
        total = wide if total is None else total + wide
    assert total is not None
    return total, top


# --- conversions and the accumulator --------------------------------------------------------------


def _converted(source: Format, target: Format, x: Word) -> Word:
    """Codes of f16 or f32 in the other format, rounded to nearest even."""
    if source is target:
        return x
    value = elements.number(source, x)
    if target is FORMATS["f32"]:
        return _canonical(target, value)
    code = elements.rounded(target, value.astype(np.float64), "rn", signed_zero=True)
    return elements.with_specials(target, code, value)


def _added(fmt: Format, x: Word, c: Word) -> Word:
    """x + c of codes, rounded to nearest even."""
    p, q = elements.number(fmt, x), elements.number(fmt, c)
    if fmt is FORMATS["f32"]:
        return _canonical(fmt, p + q)
    wide = p.astype(np.float64) + q.astype(np.float64)
    code = elements.rounded(fmt, wide, "rn", signed_zero=True)
    return elements.with_specials(fmt, code, wide)


def _canonical(fmt: Format, value: Word) -> Word:
    """Codes of floats, NaNs as the one that the hardware writes."""
    assert fmt.nan is not None
    return select(value != value, fmt.nan, value.view(f"u{value.dtype.itemsize}"))


# --- chains ---------------------------------------------------------------------------------------


def chain(
    arithmetic: Arithmetic, found: Arrangement, a: Sequence[Word], b: Sequence[Word], c: Word
) -> Word:
    """Codes of D by a chain of operations of IEEE 754 on numbers of A and B, which are floats."""
    step, fmt = found.core, FORMATS[found.core.fmt]  # type: ignore[attr-defined]
    start = c.view(np.float64) if fmt.bits == 64 else elements.number(arithmetic.c, c)
    x = start if found.adds_c is None else start.e.constant(0.0, start.dtype, start.lanes)
    if isinstance(step, PairSums):
        for k in range(0, len(a), 2):
            first = a[k] * b[k]
            x = x + a[k + 1].fma(b[k + 1], first)
    else:
        assert isinstance(step, FmaChain)
        x = _chained(fmt, step, a, b, x)
    if found.adds_c is not None:
        x = x + start
    if found.after is not None:
        return _converted(fmt, found.after, x.view(np.uint32))
    if isinstance(step, FmaChain) and step.nan_order:
        return x.view(np.uint64)
    return _canonical(fmt, x)


def _chained(fmt: Format, step: FmaChain, a: Sequence[Word], b: Sequence[Word], x: Word) -> Word:
    """A chain of fused multiply-adds; a NaN anywhere is one at the end."""
    total = x
    for p, q in zip(a, b, strict=True):
        total = p.fma(q, total)
    if not step.nan_order:
        return total
    results = [total]
    with x.e.rarely((total != total).any(), results):
        found = x
        for p, q in zip(a, b, strict=True):
            found = _surviving(fmt, step, {"a": p, "b": q, "x": found}, p.fma(q, found))
        results[0] = found
    return results[0]


def _surviving(fmt: Format, step: FmaChain, operands: dict[str, Word], out: Word) -> Word:
    """`out`, but where it is a NaN, the first NaN among the operands quieted, or the canonical."""
    assert fmt.nan is not None
    nan: Word | np.uint64 = np.uint64(fmt.nan)
    for name in reversed(step.nan_order):
        x = operands[name]
        nan = select(x != x, x.view(np.uint64) | 1 << (fmt.mantissa_bits - 1), nan)
    return select(out != out, nan.view(np.float64), out)


# --- integers -------------------------------------------------------------------------------------


def counted(
    arithmetic: Arithmetic, found: Arrangement, a: Sequence[Word], b: Sequence[Word], c: Word
) -> Word:
    """C plus an exact integer sum: of products of pairs, or of ones of words."""
    if isinstance(found.core, IntegerDot):
        total = integers.dot(a, b)
    else:
        combine = Word.__xor__ if arithmetic.bit_operation == "xor" else Word.__and__
        ones = [combine(p, q).ones() for p, q in zip(a, b, strict=True)]
        total = in_pairs(Word.__add__, ones)
    c, total = c.view(np.int32), total.view(np.int32)
    if not arithmetic.saturate:
        return (c + total).view(np.uint32)
    wide, fmt = c.astype(np.int64) + total.astype(np.int64), arithmetic.d
    return wide.maximum(-fmt.sign_mask).minimum(fmt.max_finite).astype(np.uint32)
