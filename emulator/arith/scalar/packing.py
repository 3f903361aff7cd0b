"""The cvts that pack elements of matrix operands (PTX ISA 9.7.9.21), word by word.

Rounding and special values as measured on an H200 (f16, bf16, tf32, e4m3, e5m2) and as the manual
says for the formats of later targets. `emulator.arith.conversions` converts arrays of codes; the
reference here states the same for one code.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache, partial
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from dtypes import Array, Format, NumberClass, Overflow, Place, Rounding, code_type, pack, unpack
from dtypes.codec import decode, decode_integer, overflow_code, round_to_code
from emulator.arith import conversions
from emulator.arith.scalar import rounded
from emulator.arith.scalar.rule import packed_rule
from emulator.arith.scalar.types import ScalarType
from emulator.arith.scalar.words import Operand, Word, Words, joined

_ZERO, _FINITE, _INFINITE, _NAN = NumberClass


class Narrowing(NamedTuple):
    """The modifiers of conversions to formats of few bits."""

    rounding: str = "rn"
    relu: bool = False
    satfinite: bool = False
    pzo: bool = False


NARROWING = Narrowing()


@packed_rule
def elements(
    to: ScalarType, t: ScalarType, *sources: int, how: Narrowing = NARROWING, scaled: str = ""
) -> int:
    """The packed result: of several f32 sources the first comes to the highest place, the elements
    of a packed source keep their places. For .rs the last source holds random bits, for .scaled
    block scales: one for all elements (n1), or the one of the lowest element in the lowest byte."""
    words = list(sources)
    random = _random_bits(to, words.pop()) if how.rounding == "rs" else None
    exponents = _exponents(to, t, scaled, words.pop()) if scaled else [0] * to.count
    if t.count > 1:
        codes = [words[0] >> i * t.bits & t.mask for i in range(t.count)]
    else:
        codes = words[::-1]
    out = 0
    for i, code in enumerate(codes):
        if how.relu:
            code = _rectified(t.format, code)
        if random is not None:
            bits, width = random
            element = _stochastic(t.format, to.format, code, bits[i], width, how.satfinite)
        elif scaled or t.format.fraction_bits or to.format.fraction_bits:
            exponent = exponents[i]
            flush = scaled == _ONE_SCALE
            element = _scaled(t.format, to.format, code, how, exponent, flush)
        else:
            element = _element(t.format, to.format, code, how)
        if how.pzo and element == to.format.sign_mask:
            element = 0
        out |= element << i * to.bits
    return out


@elements.words
def _(
    w: Words,
    to: ScalarType,
    t: ScalarType,
    *sources: Word,
    how: Narrowing = NARROWING,
    scaled: str = "",
) -> Word:
    if scaled or not _has_words(to, t, how.rounding):
        convert = partial(_converted, to, t, how, scaled)
        return w.by_arrays(convert, *sources)
    if t.count > 1:
        codes = [sources[0] >> i * t.bits & t.mask for i in range(t.count)]
    else:
        codes = list(reversed(sources))
    results = []
    for code in codes:
        if t.bits == 32:
            element = _of_f32(w, to, code, how)
        else:
            table = _table(t, to, how._replace(pzo=False))
            element = w.look_up(table, code & t.format.code_mask)
        if how.pzo:
            element = w.put(element == to.format.sign_mask, 0, element)
        results.append(element.astype(to.dtype))
    return joined(results, to.bits)


def _has_words(to: ScalarType, t: ScalarType, rounding: str) -> bool:
    """True if elements are looked up, or are those of f32 that `_of_f32` knows."""
    if rounding == "rs" or t.format.fraction_bits or to.format.fraction_bits:
        return False
    wide = to.bits > 8 or to.format.name == "ue8m0"
    return t.bits < 32 or wide or (to.format.signed and rounding == "rn")


@cache
def _table(t: ScalarType, to: ScalarType, how: Narrowing) -> NDArray[np.uint32]:
    """The elements of all codes of at most 16 bits."""
    codes = np.arange(t.format.code_mask + 1).astype(code_type(t.format.bits))
    out = conversions.convert(t.format, to.format, codes, **how._asdict())
    return out.astype(np.uint32)


def _of_f32(w: Words, to: ScalarType, code: Word, how: Narrowing) -> Word:
    """f32 words as elements of another type, as `_element` has them."""
    rounding, relu, satfinite, _ = how
    if to.name == "tf32":
        return _tf32(w, to, code, how)
    if to.name.startswith("ue8m0"):
        return _ue8m0_of(w, code, rounding, satfinite)
    fmt, element, x = to.format, to.element, code.view(np.float32)
    if fmt.infinity is not None and to.bits == 16:
        if rounding == "rn":
            out = rounded.nearest(w, element, x)
        else:
            out = rounded.narrowed(w, element, x.astype(np.float64), rounding)
        if satfinite:
            sign = rounded.signs(element, out)
            out = w.minimum(out ^ sign, fmt.max_finite) | sign
        return rounded.finished(w, element, out, x != x, False, relu)
    limit = fmt.max_finite if satfinite else overflow_code(fmt, 0, "rn", "ieee")
    out = rounded.nearest_small(w, fmt, x, limit)
    out = w.select(out & fmt.sign_mask != 0, 0, out) if relu else out
    return w.put(x != x, fmt.max_finite if fmt.nan is None else fmt.nan, out)


def _tf32(w: Words, to: ScalarType, code: Word, how: Narrowing) -> Word:
    """tf32: the bits of f32 that it lacks are rounded away; for .rna see `_tf32_nearest_away`."""
    fmt, infinity = to.format, to.infinity
    rounding, relu, satfinite, _ = how
    unit, magnitude = 1 << fmt.ignored_bits, code & fmt.sign_mask - 1
    kept = fmt.sign_mask - unit
    special = magnitude >= infinity
    if rounding == "rna":
        cut = magnitude & kept
        out = magnitude + unit // 2 & kept
        out = w.minimum(out, fmt.max_finite) if satfinite else out
        return (code ^ magnitude) | w.put(special, cut - unit if satfinite else cut, out)
    up = (magnitude >> fmt.ignored_bits & 1) + (unit // 2 - 1) if rounding == "rn" else 0
    out = magnitude + up & kept
    out = w.minimum(out, fmt.max_finite if satfinite else infinity)
    out = out | code ^ magnitude
    out = w.select(code >> 31 != 0, 0, out) if relu else out
    return w.put(magnitude > infinity, to.nan, out)


def _ue8m0_of(w: Words, code: Word, rounding: str, satfinite: bool) -> Word:
    """`_ue8m0` of f32 words: their exponent fields, of 2**-127 and less 0."""
    magnitude = code & 0x7FFFFFFF
    if rounding == "rp":
        out = w.put(magnitude <= 0x400000, 0, magnitude + 0x7FFFFF >> 23)
    else:
        out = magnitude >> 23
    out = w.minimum(out, 0xFE) if satfinite else out
    return w.put(magnitude > 0x7F800000, 0xFF, out)


def _converted(
    to: ScalarType, t: ScalarType, how: Narrowing, scaled: str, *sources: Array
) -> Array:
    """Elements rounded by random bits, scaled, or in fixed point."""
    words = list(np.broadcast_arrays(*sources))
    random = None
    if how.rounding == "rs":
        bits, width = _random_bits(to, words.pop())
        random = np.stack(bits, axis=-1), width
    exponents = None
    if scaled:
        exponents = np.stack(_exponents(to, t, scaled, words.pop()), axis=-1)
    if t.count > 1:
        codes = unpack(words[0][..., None], _place(t), t.size)
    else:
        codes = np.stack(words[::-1], axis=-1)
    out = conversions.convert(
        t.format,
        to.format,
        codes,
        **how._asdict(),
        random_bits=random,
        exponents=exponents,
        flush=scaled == _ONE_SCALE,
    )
    return pack(out, _place(to), to.size)[..., 0] if to.count > 1 else out[..., 0]


def _place(t: ScalarType) -> Place:
    return Place(t.bits, 0, t.format.bits)


# --- one code -------------------------------------------------------------------------------------


#: one block scale for all elements; subnormal sources are zeros then
_ONE_SCALE = "scaled::n1::ue8m0"


def _exponents(to: ScalarType, t: ScalarType, scaled: str, word: Operand) -> list[Operand]:
    """The power of two that each element is multiplied by, the lowest first: wider elements are
    multiplied by their scales, narrower ones divided. A scale of FF is a NaN."""
    places = [0] * to.count if scaled == _ONE_SCALE else range(to.count)
    scales = [np.asarray(word).astype(np.int64) >> 8 * place & 0xFF for place in places]
    up = 1 if to.bits > t.bits else -1
    none = conversions.NO_EXPONENT
    return [np.where(scale == 0xFF, none, up * (scale - 127)) for scale in scales]


def _rectified(fmt: Format, code: int) -> int:
    """.relu: everything with a sign but NaN becomes +0."""
    if fmt.fraction_bits:
        return 0 if code & fmt.sign_mask else code
    number = decode(fmt, code)
    return 0 if number.sign and number.number_class != _NAN else code


def _element(source: Format, target: Format, code: int, how: Narrowing) -> int:
    """One code, rounded once; a NaN becomes the target's, or its largest number."""
    rounding, satfinite = how.rounding, how.satfinite
    if rounding == "rna":
        return _tf32_nearest_away(source, target, code, satfinite)
    if target.name == "ue8m0":
        return _ue8m0(source, target, code, rounding, satfinite)
    overflow: Overflow = "saturate" if satfinite else "ieee"
    number = decode(source, code)
    # What has no sign takes magnitudes (UNVERIFIED).
    sign = target.sign_mask if number.sign else 0
    if number.number_class == _NAN:
        return target.max_finite if target.nan is None else target.nan
    if number.number_class == _INFINITE:
        limit = None if satfinite else target.infinity
        return sign | (overflow_code(target, 0, "rn", overflow) if limit is None else limit)
    unit = number.exponent - source.mantissa_bits
    return round_to_code(
        target,
        number.sign if target.signed else 0,
        number.significand,
        unit,
        cast("Rounding", rounding),
        overflow=overflow,
    )


def _scaled(
    source: Format, target: Format, code: int, how: Narrowing, exponent: int, flush: bool
) -> int:
    """One code times a power of two, rounded once, where it is scaled or in fixed point."""
    nan = target.max_finite if target.nan is None else target.nan
    if source.fraction_bits:
        value = decode_integer(source, code)
        sign, significand, unit = int(value < 0), abs(value), -source.fraction_bits
    else:
        number = decode(source, code)
        if number.number_class == _NAN:
            return nan
        if number.number_class == _INFINITE and exponent != conversions.NO_EXPONENT:
            if target.fraction_bits:
                return target.sign_mask if number.sign else target.max_finite
            return _element(source, target, code, how)
        sign, significand = number.sign, number.significand
        unit = number.exponent - source.mantissa_bits
        if flush and number.exponent == source.emin and significand < 1 << source.mantissa_bits:
            significand = 0
    if exponent == conversions.NO_EXPONENT:
        return nan
    unit += int(exponent)
    mode = cast("Rounding", how.rounding)
    if not target.fraction_bits:
        overflow: Overflow = "saturate" if how.satfinite else "ieee"
        sign = sign if target.signed else 0
        return round_to_code(target, sign, significand, unit, mode, overflow=overflow)
    scaled = Fraction(significand) * Fraction(2) ** (unit + target.fraction_bits)
    whole = round(scaled) if how.rounding == "rn" else int(scaled)
    whole = max(-target.sign_mask, min(-whole if sign else whole, target.max_finite))
    return whole & target.code_mask


def _tf32_nearest_away(source: Format, target: Format, code: int, satfinite: bool) -> int:
    """cvt.rna.tf32.f32 as the hardware has it, an integer operation: half a unit is added and the
    rest cut. Infinities and NaNs are only cut; with .satfinite they lose one unit more."""
    unit = 1 << target.ignored_bits
    sign, magnitude = code & source.sign_mask, code & source.sign_mask - 1
    assert source.infinity is not None
    if magnitude >= source.infinity:
        return sign | (magnitude & -unit) - (unit if satfinite else 0)
    rounded = magnitude + unit // 2 & -unit
    return sign | (min(rounded, target.max_finite) if satfinite else rounded)


def _ue8m0(source: Format, target: Format, code: int, rounding: str, satfinite: bool) -> int:
    """The power of two at or above (rp) or below (rz) the magnitude."""
    assert target.nan is not None
    number = decode(source, code)
    if number.number_class == _NAN:
        return target.nan
    if number.number_class == _INFINITE:
        return target.max_finite if satfinite else target.nan
    return round_to_code(
        target,
        0,
        number.significand,
        number.exponent - source.mantissa_bits,
        "rp" if rounding == "rp" else "rz",
        overflow="saturate" if satfinite else "infinity",
    )


def _stochastic(
    source: Format, target: Format, code: int, random: int, width: int, satfinite: bool
) -> int:
    """The magnitude is rounded up where the random bits carry out of the bits that are cut off:
    ``random / 2**width`` of a unit in the last place is added, and the sum is cut."""
    number = decode(source, code)
    if number.number_class > _FINITE or number.significand == 0:
        return _element(source, target, code, Narrowing("rz", satfinite=satfinite))
    unit = number.exponent - source.mantissa_bits
    top = max(number.significand.bit_length() - 1 + unit, target.emin)
    cut = max(top - (target.precision - 1) - unit, 0)
    return round_to_code(
        target,
        number.sign,
        (number.significand << width) + (random << cut),
        unit - width,
        "rz",
        overflow="saturate" if satfinite else "infinity",
    )


def _random_bits(to: ScalarType, word: Operand) -> tuple[list[Operand], int]:
    """The random bits of each element, lowest element first, and how many each has.

    f16x2: 13 bits of each half; bf16x2: its halves; four elements: the upper half for the upper
    pair and the lower half for the lower one; e2m1x4: the upper bytes of both halves for the upper
    pair, the lower bytes for the lower one (the manual only draws it: UNVERIFIED).
    """
    low, high = word & 0xFFFF, word >> 16
    if to.name == "f16x2":
        return [low & 0x1FFF, high & 0x1FFF], 13
    if to.name == "bf16x2":
        return [low, high], 16
    if to.name == "e2m1x4":
        return [low & 0xFF, high & 0xFF, low >> 8, high >> 8], 8
    return [low, low, high, high], 16
