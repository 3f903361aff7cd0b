"""The steps of recipes in machine code, for a vector of neighbouring elements of D at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from dtypes import FORMATS, Format
from emulator.arith.arrangement import Arrangement
from emulator.arith.fast.kernels import elements, integers
from emulator.arith.fast.kernels.emitter import F64, I32, I64, Emitter, Value, in_pairs
from emulator.arith.steps import Arithmetic, FmaChain, FusedDotAdd, IntegerDot, PairSums


class Term(NamedTuple):
    """What one position of k brings, in all lanes."""

    #: the product of the numbers of A and B
    value: Callable[[], Value]
    #: the sum of their exponents
    exponent: Callable[[], Value]
    #: the product of the classes of A and B, see `elements.classes`
    special: Callable[[], Value]


class Scale(NamedTuple):
    """The product of the two scales of a chunk of k."""

    value: Callable[[], Value]
    exponent: Callable[[], Value]
    special: Callable[[], Value]


class Terms(NamedTuple):
    terms: Sequence[Term]
    #: of each term; empty without scales
    scales: Sequence[Scale]
    #: fraction bits of the product of A and B, and of the product of scales
    fraction_bits: int
    scale_fraction_bits: int
    #: whether any operand has an infinity or NaN, a bit that is known when the code runs
    any_special: Value


#: one fused dot-add of some positions of k: from codes of the accumulator, in a format, to codes of
#: the result
DotAdd = Callable[[Format, list[int], Value], Value]


def fused(
    e: Emitter, arithmetic: Arithmetic, found: Arrangement, k: int, dot_add: DotAdd, c: Value
) -> Value:
    """Codes of D from codes of C, by a recipe around a fused dot-add."""
    step = found.core
    assert isinstance(step, FusedDotAdd)
    result = FORMATS[step.result]
    x, fmt = c, arithmetic.c
    if found.before is not None:
        x, fmt = _converted(e, fmt, found.before, x), found.before
    if found.adds_c is not None:
        x, fmt = e.like(c, 0), arithmetic.d
    for block in step.blocks(k):
        x, fmt = dot_add(fmt, block, x), result
    if found.adds_c is not None:
        x = _added(e, result, x, c)
    if found.after is not None:
        x = _converted(e, fmt, found.after, x)
    return x


def dot_add(
    e: Emitter, step: FusedDotAdd, fmt: Format, block: list[int], given: Terms, x: Value
) -> Value:
    """One fused dot-add of any operands."""
    own, result = elements.decoded(e, fmt, x), FORMATS[step.result]
    special = _special(e, fmt, x, block, given)
    sums = _in_groups if step.group > 1 else _aligned
    total, top = sums(e, step, block, given, own)
    unit = elements.wide_power_of_two(e, e.b.sub(top, e.like(top, step.fraction_bits)))
    code = elements.rounded(e, result, e.b.fmul(total, unit), step.rounding, step.precision)
    return elements.with_specials(e, result, code, special)


def _special(e: Emitter, fmt: Format, x: Value, block: list[int], given: Terms) -> Value:
    """An infinity or NaN where the sum is that, else a finite number."""

    def of_terms() -> Value:
        total = own
        for k in block:
            term = given.terms[k].special()
            if given.scales:
                term = e.b.fmul(term, given.scales[k].special())
            total = e.b.fadd(total, term)
        return total

    own = elements.classes(e, fmt, x)
    return e.rarely(given.any_special, own, of_terms)


def _aligned(
    e: Emitter, step: FusedDotAdd, block: list[int], given: Terms, own: elements.Parts
) -> tuple[Value, Value]:
    """The exact sum in units of the alignment, float64, and the largest exponent."""
    b, scales = e.b, given.scales
    floor = elements.NOWHERE // 4 if step.floor is None else step.floor
    top = e.larger(own.exponent, e.like(own.exponent, floor))
    exponents = {}
    for k in block:
        exponents[k] = given.terms[k].exponent()
        if scales:
            exponents[k] = b.add(exponents[k], scales[k].exponent())
        top = e.larger(top, exponents[k])
    to_units = b.sub(e.like(top, step.fraction_bits), top)

    def cut(value: Value, scale: Value) -> Value:
        """In units, truncated: int32. Below 2**(fraction_bits + 2)."""
        return e.converted(I32, b.fmul(value, scale), "fptosi")

    def scale_of(exponent: Value, fraction: int) -> Value:
        less = b.sub(to_units, e.like(top, fraction))
        return elements.power_of_two(e, b.add(exponent, less))

    addends = [cut(own.value, scale_of(own.exponent, own.fraction_bits))]
    for k in block:
        scale = scale_of(exponents[k], given.fraction_bits + given.scale_fraction_bits)
        addends.append(cut(given.terms[k].value(), scale))
    at_once = 1 << (29 - step.fraction_bits)
    total = None
    for first in range(0, len(addends), at_once):
        part = in_pairs(b.add, addends[first : first + at_once])
        wide = e.converted(F64, part, "sitofp")
        total = wide if total is None else b.fadd(total, wide)
    return total, top


def _in_groups(
    e: Emitter, step: FusedDotAdd, block: list[int], given: Terms, own: elements.Parts
) -> tuple[Value, Value]:
    """`_aligned` of groups of products, which are first added exactly, and have the exponents of
    their scales alone; see `emulator.arith.steps.fused_dot_add.scaled`."""
    b = e.b
    floor = elements.NOWHERE // 4 if step.floor is None else step.floor
    top = e.larger(own.exponent, e.like(own.exponent, floor))
    groups = []
    for first in range(0, len(block), step.group):
        members = [given.terms[k].value() for k in block[first : first + step.group]]
        scale = given.scales[block[first]]
        value = b.fmul(in_pairs(b.fadd, members), scale.value())
        # Products that cancel count in the largest exponent; zeros, but for their signs, do not.
        bits = in_pairs(b.or_, [e.converted(I32, x, "bitcast") for x in members])
        zero = b.or_(
            b.icmp_unsigned("==", b.shl(bits, e.like(bits, 1)), e.like(bits, 0)),
            b.fcmp_ordered("==", scale.value(), e.like(value, 0.0)),
        )
        exponent = scale.exponent()
        exponent = e.select(zero, e.like(exponent, elements.NOWHERE), exponent)
        top = e.larger(top, exponent)
        groups.append((value, exponent))
    # The value is in units of the least products: their exponents are in it, not aside.
    fraction = given.fraction_bits + given.scale_fraction_bits
    terms = [(own.value, own.exponent, own.fraction_bits)]
    terms += [(value, exponent, fraction) for value, exponent in groups]
    total = None
    for value, exponent, bits in terms:
        shift = b.add(b.sub(exponent, top), e.like(top, step.fraction_bits - bits))
        wide = b.fmul(e.converted(F64, value, "fpext"), elements.wide_power_of_two(e, shift))
        wide = e.intrinsic("llvm.trunc", wide)
        total = wide if total is None else b.fadd(total, wide)
    return total, top


# --- conversions and the accumulator --------------------------------------------------------------


def _converted(e: Emitter, source: Format, target: Format, x: Value) -> Value:
    """Codes of f16 or f32 in the other format, rounded to nearest even."""
    if source is target:
        return x
    value = elements.number(e, source, x)
    if target is FORMATS["f32"]:
        return _canonical(e, target, value)
    wide = e.converted(F64, value, "fpext")
    code = elements.rounded(e, target, wide, "rn", signed_zero=True)
    return elements.with_specials(e, target, code, value)


def _added(e: Emitter, fmt: Format, x: Value, c: Value) -> Value:
    """x + c of codes, rounded to nearest even."""
    p, q = elements.number(e, fmt, x), elements.number(e, fmt, c)
    if fmt is FORMATS["f32"]:
        return _canonical(e, fmt, e.b.fadd(p, q))
    wide = e.b.fadd(e.converted(F64, p, "fpext"), e.converted(F64, q, "fpext"))
    code = elements.rounded(e, fmt, wide, "rn", signed_zero=True)
    return elements.with_specials(e, fmt, code, wide)


def _canonical(e: Emitter, fmt: Format, value: Value) -> Value:
    """Codes of floats, NaNs as the one that the hardware writes."""
    assert fmt.nan is not None
    code = e.converted(I64 if fmt.bits == 64 else I32, value, "bitcast")
    return e.select(e.b.fcmp_unordered("uno", value, value), e.like(code, fmt.nan), code)


# --- chains ---------------------------------------------------------------------------------------


def chain(
    e: Emitter, arithmetic: Arithmetic, found: Arrangement,
    a: Sequence[Value], b: Sequence[Value], c: Value,
) -> Value:  # fmt: skip
    """Codes of D by a chain of operations of IEEE 754 on numbers of A and B, which are floats."""
    step, fmt = found.core, FORMATS[found.core.fmt]  # type: ignore[attr-defined]
    if fmt.bits == 64:
        x = e.converted(F64, c, "bitcast")
    else:
        x = elements.number(e, arithmetic.c, c)
    start = x
    if found.adds_c is not None:
        x = e.like(x, 0.0)
    if isinstance(step, PairSums):
        for k in range(0, len(a), 2):
            pair = e.intrinsic("llvm.fma", a[k + 1], b[k + 1], e.b.fmul(a[k], b[k]))
            x = e.b.fadd(x, pair)
    else:
        assert isinstance(step, FmaChain)
        x = _chained(e, fmt, step, a, b, x)
    if found.adds_c is not None:
        x = e.b.fadd(x, start)
    if found.after is not None:
        return _converted(e, fmt, found.after, e.converted(I32, x, "bitcast"))
    if isinstance(step, FmaChain) and step.nan_order:
        return e.converted(I64, x, "bitcast")
    return _canonical(e, fmt, x)


def _chained(
    e: Emitter, fmt: Format, step: FmaChain, a: Sequence[Value], b: Sequence[Value], x: Value
) -> Value:
    """A chain of fused multiply-adds; a NaN anywhere is one at the end."""
    total = x
    for p, q in zip(a, b, strict=True):
        total = e.intrinsic("llvm.fma", p, q, total)
    if not step.nan_order:
        return total

    def with_nans() -> Value:
        found = x
        for p, q in zip(a, b, strict=True):
            out = e.intrinsic("llvm.fma", p, q, found)
            found = _surviving(e, fmt, step, {"a": p, "b": q, "x": found}, out)
        return found

    return e.rarely(e.any(e.b.fcmp_unordered("uno", total, total)), total, with_nans)


def _surviving(
    e: Emitter, fmt: Format, step: FmaChain, operands: dict[str, Value], out: Value
) -> Value:
    """`out`, but where it is a NaN, the first NaN among the operands quieted, or the canonical."""
    assert fmt.nan is not None
    nan = e.like(e.converted(I64, out, "bitcast"), fmt.nan)
    for name in reversed(step.nan_order):
        x = operands[name]
        quiet = e.b.or_(e.converted(I64, x, "bitcast"), e.like(nan, 1 << (fmt.mantissa_bits - 1)))
        nan = e.select(e.b.fcmp_unordered("uno", x, x), quiet, nan)
    chosen = e.converted(F64, nan, "bitcast")
    return e.select(e.b.fcmp_unordered("uno", out, out), chosen, out)


# --- integers -------------------------------------------------------------------------------------


def counted(
    e: Emitter, arithmetic: Arithmetic, found: Arrangement,
    a: Sequence[Value], b: Sequence[Value], c: Value,
) -> Value:  # fmt: skip
    """C plus an exact integer sum: of products of pairs, or of ones of words."""
    if isinstance(found.core, IntegerDot):
        total = integers.dot(e, a, b)
    else:
        combine = e.b.xor if arithmetic.bit_operation == "xor" else e.b.and_
        ones = [e.intrinsic("llvm.ctpop", combine(p, q)) for p, q in zip(a, b, strict=True)]
        total = in_pairs(e.b.add, ones)
    if not arithmetic.saturate:
        return e.b.add(c, total)
    wide = e.b.add(e.converted(I64, c, "sext"), e.converted(I64, total, "sext"))
    fmt = arithmetic.d
    wide = e.smaller(e.larger(wide, e.like(wide, -fmt.sign_mask)), e.like(wide, fmt.max_finite))
    return e.converted(I32, wide, "trunc")
