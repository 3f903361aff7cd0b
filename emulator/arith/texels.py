"""Values of texels: what a format's codes mean, and how the linear filter blends them.

Nobody has published these rules. They were found in recordings of an H200, with which they agree
bit for bit (tests/golden/h200_textures.jsonl.gz). Coordinates and weights have 8 bits of fraction,
and the weights of all texels that are blended sum up to 256, or 1.

* Floats are blended as a dot product: the significands, cut behind 4 bits more than the format has,
  are aligned to the largest exponent among texels of a weight that is not 0; the exact sum is
  rounded to nearest, ties away from zero, to the texture's format.
* Normalised integers are blended as integers of 16 bits, rounded to nearest, ties up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dtypes import Array

Integers = NDArray[np.int64]
Words = NDArray[np.uint32]

#: bits of a weight's fraction
WEIGHT_BITS = 8
ONE = 1 << WEIGHT_BITS
#: bits kept behind a significand when texels are aligned
_GUARD_BITS = 4
#: and behind the sum of a layer of a texture of three axes, when two are added
_LAYER_BITS = 12


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


def _largest(kind: str, bits: int) -> int:
    return (1 << bits - (kind == "signed")) - 1


def _quotients(values: Integers, largest: int) -> Words:
    words: Words = (values / float(largest)).astype(np.float32).view(np.uint32)
    return words


# --- weights --------------------------------------------------------------------------------------


def weights(fractions: list[Integers]) -> Integers:
    """The weights ``(lanes, 2**axes)`` of the texels around a place, x changing fastest.

    A weight is divided along z first, then along x, then along y. Each time one part is rounded to
    nearest, ties up, and the other is the rest: along x the higher texel's part, along y that of
    the higher texel beside the higher one of x, and of the lower texel beside the lower one.
    """
    x, *more = fractions
    layers = [ONE - more[1], more[1]] if len(more) == 2 else [np.full_like(x, ONE)]
    out: list[Integers] = []
    for layer in layers:
        right = _part(layer, x)
        row = [layer - right, right]
        if more:
            left_low, right_high = _part(row[0], ONE - more[0]), _part(right, more[0])
            row = [left_low, right - right_high, row[0] - left_low, right_high]
        out += row
    return np.stack(out, axis=-1)


def _part(weight: Integers, fraction: Integers) -> Integers:
    return weight * fraction + ONE // 2 >> WEIGHT_BITS


# --- blending -------------------------------------------------------------------------------------


def blend(format_: TexelFormat, codes: Array, fractions: list[Integers]) -> Words:
    """Weighted sums of the texels around places: codes ``(lanes, 2**axes)`` and the places'
    fractions along each axis ``(lanes,)`` to f32 ``(lanes,)``."""
    given = weights(fractions)
    if format_.kind == "float":
        return element(format_, _blend_floats(format_, codes, given, _is_read(fractions)))
    values = numbers(format_, codes)
    if format_.bits == 8 and format_.kind == "signed":
        # The sum of 7 bits and 8 of fraction becomes one of 15 bits.
        total = (values * given).sum(axis=-1)
        blended = total + (total + (total >> 12 << 4) + 64 >> 7)
    else:
        wide = values * 257 if format_.bits == 8 else values
        blended = (wide * given).sum(axis=-1) + ONE // 2 >> WEIGHT_BITS
    largest = _largest(format_.kind, 16)
    return _quotients(np.maximum(blended, -largest), largest)


def _is_read(fractions: list[Integers]) -> NDArray[np.bool_]:
    """Whether each texel counts at all: on an axis without a fraction the higher one does not."""
    out = np.ones((len(fractions[0]), 1), bool)
    for fraction in fractions:
        out = np.concatenate([out, out & (fraction != 0)[:, None]], axis=-1)
    return out


def _blend_floats(
    format_: TexelFormat, codes: Array, given: Integers, read: NDArray[np.bool_]
) -> Array:
    """The codes of weighted sums of floats: of each layer along z by itself, then of both."""
    fraction, top = format_.fraction, (1 << format_.exponent) - 1
    words = codes.astype(np.int64)
    exponents, significands = words >> fraction & top, words & (1 << fraction) - 1
    negative = words >> format_.bits - 1 == 1
    infinite = read & (exponents == top)
    undefined = (infinite & (significands != 0)).any(axis=-1)
    significands = significands | (exponents > 0).astype(np.int64) << fraction
    if format_.size == 4:  # subnormal numbers of f32 are zeros here
        significands = np.where(exponents == 0, 0, significands)
    scales = np.where(given != 0, np.maximum(exponents, 1), 1)
    layers = (len(words), -1, min(4, words.shape[1]))
    by_layer = scales.reshape(layers)
    largest = by_layer.max(axis=-1)
    apart = np.minimum(largest[..., None] - by_layer, 63)
    aligned = significands.reshape(layers) << _GUARD_BITS >> apart
    products = np.where(negative.reshape(layers), -aligned, aligned) * given.reshape(layers)
    scale = largest.max(axis=-1)
    total = _aligned_sum(products.sum(axis=-1), scale[:, None] - largest)
    minus = (negative & (given != 0)) | ~read
    sign = np.where(total == 0, minus.all(axis=-1), total < 0)
    rounded = _rounded(np.abs(total), scale, fraction, top, format_.size == 4)
    out = rounded | sign.astype(np.int64) << format_.bits - 1
    down, up = (infinite & negative).any(axis=-1), (infinite & ~negative).any(axis=-1)
    out = np.where(up | down, top << fraction | down.astype(np.int64) << format_.bits - 1, out)
    return np.where(undefined | (up & down), (1 << format_.bits - 1) - 1, out)


def _aligned_sum(sums: Integers, apart: Integers) -> Integers:
    """The sum of layers' sums, each so many bits below the largest, with more bits behind."""
    total: Integers = (sums << _LAYER_BITS >> np.minimum(apart, 63)).sum(axis=-1)
    return total


def _rounded(total: Integers, scale: Integers, fraction: int, top: int, flush: bool) -> Integers:
    """Codes of magnitudes whose unit is as many bits behind a significand of exponent `scale` as
    sums have; ties away from zero."""
    behind = _GUARD_BITS + WEIGHT_BITS + _LAYER_BITS
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
