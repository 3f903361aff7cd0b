"""Values of texels: what a format's codes mean, and how the linear filter blends them.

Nobody has published these rules. They were found in recordings of an H200, with which they agree
bit for bit (tests/golden/h200_textures.jsonl.gz). Coordinates and weights have 8 bits of fraction,
and the weights of all texels that are blended sum up to 256, or 1.

* Floats are blended as a dot product: the significands, cut behind 4 bits more than the format has,
  are aligned to the largest exponent among texels of a weight that is not 0; the exact sum is
  rounded to nearest, ties away from zero, to the texture's format.
* What the layers of a texture of three axes and two levels contribute is added up one after the
  other, in an accumulator that is aligned to every fourth exponent and cuts what it shifts out.
* sRGB becomes f16 by a table, and is blended so, of 8 bits where texels are aligned.
* Normalised integers are blended as integers of 16 bits, rounded to nearest, ties up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dtypes import Array
from emulator.arith.scalar.arrays import ARRAYS
from emulator.arith.special_words import rcp
from emulator.arith.srgb_table import SRGB

Integers = NDArray[np.int64]
Words = NDArray[np.uint32]

#: bits of a weight's fraction
WEIGHT_BITS = 8
ONE = 1 << WEIGHT_BITS
#: bits kept behind a significand when texels are aligned
_GUARD_BITS = 4
#: of sRGB: the number of a code in 2**-14, and its exponent as one of f16, which eight codes share
_LIGHT = np.array(SRGB, np.int64)
_LIGHT_EXPONENT = np.array([SRGB[code | 7].bit_length() for code in range(256)])
#: bits of it that are kept when texels are aligned
_LIGHT_BITS = 8
#: the accumulator of layers and levels is aligned to exponents that are multiples of it
_EXPONENT_STEP = 4


@dataclass(frozen=True)
class TexelFormat:
    """What one channel of a texel is."""

    #: the NumPy type of an array of such channels
    dtype: str
    kind: Literal["float", "unsigned", "signed"]
    #: of a float: bits of its significand without the leading one, and of its exponent
    fraction: int = 0
    exponent: int = 0

    @property
    def size(self) -> int:
        """Bytes."""
        return np.dtype(self.dtype).itemsize

    @property
    def bits(self) -> int:
        return 8 * self.size


FORMATS = {
    x.dtype: x
    for x in (
        TexelFormat("float32", "float", 23, 8),
        TexelFormat("float16", "float", 10, 5),
        *(TexelFormat(f"uint{bits}", "unsigned") for bits in (8, 16, 32)),
        *(TexelFormat(f"int{bits}", "signed") for bits in (8, 16, 32)),
    )
}


def numbers(format_: TexelFormat, codes: Array) -> Integers:
    """The integers that codes stand for."""
    words: Integers = codes.astype(np.int64)
    if format_.kind == "signed":
        words = words - ((words >> format_.bits - 1) << format_.bits)
    return words


def element(format_: TexelFormat, codes: Array) -> Words:
    """Texels as a texture without normalised values reads them: floats as f32, integers extended
    to 32 bits."""
    if format_.kind != "float":
        return numbers(format_, codes).astype(np.uint32)
    if format_.size == 4:
        return codes.astype(np.uint32)
    return _widened(codes)


def _widened(codes: Array) -> Words:
    """f16 as f32; a NaN keeps its bits at the top."""
    words: Words = codes.astype(np.uint32)
    sign, kept = (words & 0x8000) << 16, words & 0x7FFF
    nans = sign | (kept << 13 | 0x7F80_0000)
    with np.errstate(invalid="ignore"):
        numbers_ = codes.astype(np.uint16).view(np.float16).astype(np.float32).view(np.uint32)
    return np.where(kept > 0x7C00, nans, numbers_)


def normalised(format_: TexelFormat, codes: Array) -> Words:
    """Integers of 8 or 16 bits as f32 from 0 or -1 to 1: the quotient by the largest, rounded."""
    largest = _largest(format_.kind, format_.bits)
    values = np.maximum(numbers(format_, codes), -largest)
    return _quotients(values, largest)


def halves(words: Words) -> Words:
    """f32 as f16, rounded to nearest, ties to even; every NaN becomes 0x7fff."""
    with np.errstate(over="ignore", invalid="ignore"):
        out = words.view(np.float32).astype(np.float16).view(np.uint16).astype(np.uint32)
    return np.where((words & 0x7FFF_FFFF) > 0x7F80_0000, 0x7FFF, out).astype(np.uint32)


def border_code(format_: TexelFormat, colour: float, unit: bool, light: bool = False) -> int:
    """The code of a border's colour in one channel.

    Of floats of 32 bits and of integers read as they are it has the low bits of the colour's f32.
    f16 is cut. Values up to 1 are cut to 4 bits more than the format has, and become the nearest
    code, ties towards zero. Linear `light` becomes the nearest code of sRGB.
    """
    if light:
        linear = min(max(colour, 0.0), 1.0)
        encoded = 12.92 * linear if linear <= 0.0031308 else 1.055 * linear**0.41666 - 0.055
        return int(255 * encoded + 0.5)
    with np.errstate(over="ignore"):
        given = np.float32(colour)
        half = np.float16(given)
    is_float = format_.kind == "float"
    if format_.size == 4 or not (is_float or unit):
        return int(given.view(np.uint32)) & (1 << format_.bits) - 1
    if is_float:
        larger = abs(float(half)) > abs(float(given))
        return int((np.nextafter(half, np.float16(0)) if larger else half).view(np.uint16))
    largest, least = _largest(format_.kind, format_.bits), -(format_.kind == "signed")
    value = min(max(float(given), least), 1.0)
    unit_ = 1 << format_.bits + _GUARD_BITS
    number = math.ceil(int(abs(value) * unit_) / unit_ * largest - 0.5)
    return (-number if value < 0 else number) & (1 << format_.bits) - 1


def _largest(kind: str, bits: int) -> int:
    return (1 << bits - (kind == "signed")) - 1


def _quotients(values: Integers, largest: int) -> Words:
    words: Words = (values / float(largest)).astype(np.float32).view(np.uint32)
    return words


def quotients(words: Sequence[Array]) -> list[Array]:
    """f32 coordinates divided by the largest magnitude among them, as ptxas does it for cubes."""
    with np.errstate(all="ignore"):
        x, y, z = (axis.astype(np.uint32).view(np.float32) for axis in words)
        largest = np.fmax(np.fmax(np.abs(x), np.abs(y)), np.abs(z))
        inverse = np.asarray(rcp(ARRAYS, largest.view(np.uint32))).view(np.float32)
        return [axis * inverse for axis in (x, y, z)]


def linear_light(codes: Array) -> Words:
    """Codes of sRGB as f32."""
    return (_LIGHT / float(_LIGHT[-1])).astype(np.float32).view(np.uint32)[codes]


# --- weights --------------------------------------------------------------------------------------


def weights(fractions: list[Integers], share: Integers | int = ONE) -> Integers:
    """The weights ``(lanes, 2**axes)`` of the texels around a place, x changing fastest, which sum
    up to the `share` of a level.

    A weight is divided along z first, then along x, then along y. Each time one part is rounded to
    nearest, ties up, and the other is the rest: along z the lower texel's part, along x the higher
    texel's, along y that of the higher texel beside the higher one of x, and of the lower texel
    beside the lower one.
    """
    x, *more = fractions
    whole = np.broadcast_to(np.asarray(share, np.int64), x.shape)
    lower = _part(whole, ONE - more[1]) if len(more) == 2 else whole
    layers = [lower, whole - lower] if len(more) == 2 else [whole]
    out: list[Integers] = []
    for layer in layers:
        right = _part(layer, x)
        row = [layer - right, right]
        if more:
            left_low, right_high = _part(row[0], ONE - more[0]), _part(right, more[0])
            row = [left_low, right - right_high, row[0] - left_low, right_high]
        out += row
    return np.stack(out, axis=-1)


def shared(given: Integers, missing: NDArray[np.bool_]) -> Integers:
    """Weights of the four texels around a place, where one at the corner of a cube is missing: the
    two beside it take a third of its weight each, rounded, and the one across the rest."""
    out = np.where(missing, 0, given)
    for corner in range(4):
        lost = np.where(missing[:, corner], given[:, corner], 0)
        third = (lost + 1) // 3
        for beside, part in ((1, third), (2, third), (3, lost - 2 * third)):
            out[:, corner ^ beside] += part
    return out


def _part(weight: Integers, fraction: Integers) -> Integers:
    return weight * fraction + ONE // 2 >> WEIGHT_BITS


# --- blending -------------------------------------------------------------------------------------


def blend(format_: TexelFormat, codes: Array, given: Integers, read: NDArray[np.bool_]) -> Words:
    """Weighted sums of texels around places: codes, weights, and whether each is `read` at all,
    ``(lanes, levels, layers, texels)``, to f32 ``(lanes,)``."""
    # NumPy adds up long rows much faster than the few texels of each lane.
    codes, given, read = map(np.asfortranarray, (codes, given, read))
    if format_.kind == "float":
        return element(format_, _blend_floats(format_, codes, given, read))
    values, texel_axes = numbers(format_, codes), (1, 2, 3)
    if format_.bits == 8 and format_.kind == "signed":
        # The sum of 7 bits and 8 of fraction becomes one of 15 bits.
        total = (values * given).sum(axis=texel_axes)
        blended = total + (total + (total >> 12 << 4) + 64 >> 7)
    else:
        wide = values * 257 if format_.bits == 8 else values
        blended = (wide * given).sum(axis=texel_axes) + ONE // 2 >> WEIGHT_BITS
    largest = _largest(format_.kind, 16)
    return _quotients(np.maximum(blended, -largest), largest)


def blend_integers(format_: TexelFormat, codes: Array, given: Integers) -> Words:
    """`blend` of integers that are read as they are: rounded to nearest, ties up, but of 32 bits
    cut."""
    total: Integers = (numbers(format_, codes) * given).sum(axis=(1, 2, 3))
    half = 0 if format_.size == 4 else ONE // 2
    return (total + half >> WEIGHT_BITS).astype(np.uint32)


def is_read(fractions: list[Integers]) -> NDArray[np.bool_]:
    """Whether each texel counts at all: on an axis without a fraction the higher one does not."""
    out = np.ones((len(fractions[0]), 1), bool)
    for fraction in fractions:
        out = np.concatenate([out, out & (fraction != 0)[:, None]], axis=-1)
    return out


def _blend_floats(
    format_: TexelFormat, codes: Array, given: Integers, read: NDArray[np.bool_]
) -> Array:
    """The codes of weighted sums of floats: of each layer by itself, then of all."""
    fraction, top = format_.fraction, (1 << format_.exponent) - 1
    words = codes.astype(np.int64)
    exponents, significands = words >> fraction & top, words & (1 << fraction) - 1
    negative = words >> format_.bits - 1 == 1
    # A layer of no weight is not read.
    read = read & given.any(axis=-1, keepdims=True)
    infinite = read & (exponents == top)
    undefined = (infinite & (significands != 0)).any(axis=(1, 2, 3))
    significands = significands | (exponents > 0).astype(np.int64) << fraction
    if format_.size == 4:  # subnormal numbers of f32 are zeros here
        significands = np.where(exponents == 0, 0, significands)
    scales = np.where(given != 0, np.maximum(exponents, 1), 1)
    largest = scales.max(axis=-1)
    aligned = significands << _GUARD_BITS >> np.minimum(largest[..., None] - scales, 63)
    products = np.where(negative, -aligned, aligned) * given
    total = _accumulated(products.sum(axis=-1), largest)
    minus = (negative & (given != 0)) | ~read
    sign = np.where(total == 0, minus.all(axis=(1, 2, 3)), total < 0)
    scale = largest.max(axis=(1, 2))
    rounded = _rounded(np.abs(total), scale, fraction, top, format_.size == 4)
    out = rounded | sign.astype(np.int64) << format_.bits - 1
    down, up = ((infinite & here).any(axis=(1, 2, 3)) for here in (negative, ~negative))
    out = np.where(up | down, top << fraction | down.astype(np.int64) << format_.bits - 1, out)
    return np.where(undefined | (up & down), (1 << format_.bits - 1) - 1, out)


def blend_light(codes: Array, given: Integers) -> Words:
    """`blend` of codes of sRGB."""
    format_ = FORMATS["float16"]
    exponents = np.where(given != 0, _LIGHT_EXPONENT[codes], 1)
    largest = exponents.max(axis=-1)
    cut = largest[..., None] - _LIGHT_BITS
    aligned = _LIGHT[codes] << np.maximum(-cut, 0) >> np.maximum(cut, 0)
    total = _accumulated((aligned * given).sum(axis=-1), largest)
    unit = total << format_.fraction + 1 + _GUARD_BITS - _LIGHT_BITS
    top = (1 << format_.exponent) - 1
    return element(format_, _rounded(unit, largest.max(axis=(1, 2)), format_.fraction, top, False))


def _accumulated(sums: Integers, exponents: Integers) -> Integers:
    """The sum of layers' sums of these exponents, ``(lanes, levels, layers)``: one level after the
    other. What lies below the end of the accumulator is cut whenever something is shifted."""
    total, top = np.zeros_like(sums[:, 0, 0]), exponents[:, 0].max(axis=-1)
    for level in range(sums.shape[1]):
        layers, scales = sums[:, level], exponents[:, level]
        larger = np.maximum(top, scales.max(axis=-1))
        more = larger % _EXPONENT_STEP
        down = (larger - more) - (top - top % _EXPONENT_STEP)
        apart = np.minimum(larger[:, None] - scales, 63)
        added = (layers << more[:, None] >> apart).sum(axis=-1)
        total = (total >> np.minimum(down, 63)) + added
        top = larger
    return total << _EXPONENT_STEP - top % _EXPONENT_STEP


def _rounded(total: Integers, scale: Integers, fraction: int, top: int, flush: bool) -> Integers:
    """Codes of magnitudes whose unit is as many bits behind a significand of exponent `scale` as
    sums have; ties away from zero."""
    behind = _GUARD_BITS + WEIGHT_BITS + _EXPONENT_STEP
    lead = np.frexp(total.astype(np.float64))[1].astype(np.int64)
    lead -= total >> np.maximum(lead - 1, 0) == 0  # rounding to f64 has reached a power of two
    # how many low bits a result has not: those behind its significand, or below the least one
    excess = np.maximum(lead - (fraction + 1), behind + 1 - scale)
    down, up = np.maximum(excess, 0), np.maximum(-excess, 0)
    kept = np.where(down > 0, total + (1 << np.maximum(down - 1, 0)) >> down, total << up)
    out = (scale + excess - behind - 1 << fraction) + kept
    if flush:
        out = np.where(kept < 1 << fraction, 0, out)
    return np.where(kept == 0, 0, np.minimum(out, top << fraction))
