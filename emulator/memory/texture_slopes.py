"""The level of a texture that derivatives lead to: what ``tex.grad`` makes of them.

Nobody has published these rules. They were found in recordings of an H100, with which they agree
bit for bit (tests/golden/h100_texture_slopes.jsonl.gz).

The level is the binary logarithm of a length in texels. The texture unit does not compute a square
root: the length of a vector is its largest part, 11/32 of the next one and 8/32 of the least. Of
the derivatives along x and along y, their sum and their difference, the last two times 11/16, the
longest leads. All of it is computed in numbers of 10 bits, which are cut, and the logarithm is a
table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtypes import Array
from emulator.layout.texture_cubes import main_axis

Integers = NDArray[np.int64]

#: bits of a significand behind its leading one
_BITS = 9
_ONE = 1 << _BITS
#: the exponent of 0
_NOTHING = -(1 << 14)
#: coordinates from there on are moved to infinity by any derivative
_FAR = 2.0**97
#: bits of a product that are not computed when derivatives are multiplied by a size, and what is
#: added for them
_DROPPED, _FOR_DROPPED = 6, 7
#: how much more the logarithm of each of 256 numbers from 1 to 2 is than that of the one before,
#: in 1/256
_STEPS = (
    "02211212112121121121121121121121112111211121112111121111211111211111211111112111111111"
    "12111111111111111111111111211011111111111111111111111110111111111110111111110111111101"
    "111111011111011111011111011110111101111011110111011110111011101110111011101110110110"
)
_LOGARITHMS = np.cumsum([int(step) for step in _STEPS])


class _Number(NamedTuple):
    """Numbers as arrays: the significand is 0, or from 512 to 1023 and stands for 1 to 2."""

    negative: NDArray[np.bool_]
    exponent: Integers
    significand: Integers

    @property
    def size(self) -> Integers:
        """What is larger for larger magnitudes."""
        return self.exponent * 2 * _ONE + self.significand


class _Step(NamedTuple):
    """How far a direction moves on a cube, and whether it leaves its face."""

    vector: tuple[_Number, _Number]
    leaves: NDArray[np.bool_]


class _Factor(NamedTuple):
    """A fraction of 2**bits, and what is added to a product before it is cut."""

    number: int
    added: int
    bits: int


#: what the parts of a vector count, from the largest to the least
_PLAIN = _Factor(1, 0, 0), _Factor(11, 4, 5), _Factor(1, 0, 2)
_DIAGONAL = _Factor(11, 4, 4), _Factor(121, 32, 9), _Factor(11, 4, 6)


def level_of(slopes: Sequence[Array], sizes: Sequence[int]) -> Integers:
    """The level in 1/256 that derivatives lead to, before the bias of the texture; far below 0
    where all are 0.

    `slopes` are f32 words ``(lanes,)``: those along the x of the screen, one for each axis of the
    texture, then those along its y. `sizes` are the texels of the axes.
    """
    axes = len(sizes)
    scaled = [_scaled(_number(words), sizes[i % axes]) for i, words in enumerate(slopes)]
    return _logarithm(_longest(scaled[:axes], scaled[axes:], np.ones(len(slopes[0]), bool)))


def level_on_cube(
    directions: Sequence[Array], first: Sequence[Array], second: Sequence[Array], size: int
) -> Integers:
    """`level_of` for a cube of this width: of f32 directions, divided by their largest part, and of
    those that derivatives along x and y lead to."""
    s, t = _step(directions, first, size), _step(directions, second, size)
    # Sums and differences count where both steps stay on a face.
    return _logarithm(_longest(s.vector, t.vector, ~(s.leaves | t.leaves)))


def moved(coordinates: Sequence[Array], slopes: Sequence[Array]) -> list[Array]:
    """f32 words of the sums of coordinates and of as many derivatives."""
    with np.errstate(all="ignore"):
        sums = [_floats(x) + _floats(d) for x, d in zip(coordinates, slopes, strict=True)]
    return [x.view(np.uint32) for x in sums]


def differences(coordinates: Sequence[Array], slopes: Sequence[Array]) -> list[Array]:
    """f32 words of how far coordinates move when derivatives, those along x, then those along y,
    are added to them. A NaN is 0, and what is far away moves far."""
    count = len(coordinates)
    ends = [*moved(coordinates, slopes[:count]), *moved(coordinates, slopes[count:])]
    with np.errstate(all="ignore"):
        out = []
        for end, start in zip(ends, [*coordinates] * 2, strict=True):
            base = _numbers(start)
            change = np.where(np.abs(base) < _FAR, _difference(_numbers(end), base), np.inf)
            out.append(_words(change))
        return out


def _step(start: Sequence[Array], end: Sequence[Array], size: int) -> _Step:
    """From one direction to another. Beyond an edge the next face goes on where the first one ends;
    the opposite face is as far away as a face is wide."""
    (i, far, q), (j, other, r) = main_axis(start), main_axis(end)
    lanes = np.arange(len(i))
    along, turned, opposite = 3 - i - j, i != j, (i == j) & (far != other)

    def number(halves: Array) -> _Number:
        return _scaled(_number(_words(halves / 2)), size)

    to_edge, beyond = (
        _difference(np.ones(len(i)), place) for place in (other * q[j, lanes], far * r[i, lanes])
    )
    s, t = np.where(i == 0, 2, 0), np.where(i == 1, 2, 1)
    with np.errstate(invalid="ignore"):
        change = _difference(r, q)
    here = number(np.where(turned, to_edge, np.where(opposite, 2.0, change[s, lanes])))
    across = number(np.where(turned, change[np.where(turned, along, 0), lanes], change[t, lanes]))
    there = number(np.where(turned, beyond, 0.0))
    return _Step((_plus(here, there), across), turned | opposite)


def _difference(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    """f32 numbers subtracted: the smaller one is cut behind the larger one's bits and one more."""
    exponent = np.frexp(np.maximum(np.abs(x), np.abs(y)))[1]
    cut = [np.ldexp(np.trunc(np.ldexp(z, 25 - exponent)), exponent - 25) for z in (x, y)]
    return cut[0] - cut[1]


def _floats(words: Array) -> NDArray[np.float32]:
    return words.astype(np.uint32).view(np.float32)


def _numbers(words: Array) -> NDArray[np.float64]:
    values = _floats(words).astype(np.float64)
    return np.where(np.isnan(values), 0, values)


def _words(values: NDArray[np.floating[Any]]) -> Array:
    """Numbers as f32 words, cut."""
    words = values.astype(np.float32).view(np.uint32)
    larger = np.abs(_floats(words).astype(np.float64)) > np.abs(values)
    return words - larger.astype(np.uint32)


def _longest(
    first: Sequence[_Number], second: Sequence[_Number], diagonals: NDArray[np.bool_]
) -> _Number:
    """The longest of two vectors, and of their diagonals where those count."""
    longest = _larger(_length(first, _PLAIN), _length(second, _PLAIN))[0]
    for negated in (False, True):
        parts = [_sum(x, y, negated) for x, y in zip(first, second, strict=True)]
        along = _length(parts, _DIAGONAL)
        exponent = np.where(diagonals, along.exponent, _NOTHING)
        longest = _larger(longest, along._replace(exponent=exponent))[0]
    return longest


def _logarithm(number: _Number) -> Integers:
    steps = np.maximum(number.significand - _ONE, 0) >> 1
    return (number.exponent << 8) + _LOGARITHMS[steps]


def _number(words: Array) -> _Number:
    """f32 words, cut; 0 for NaN and for subnormal numbers."""
    held = words.astype(np.int64)
    exponent, fraction = held >> 23 & 0xFF, held & 0x7F_FFFF
    nothing = (exponent == 0) | ((exponent == 0xFF) & (fraction != 0))
    return _Number(
        held >> 31 == 1,
        np.where(nothing, _NOTHING, exponent - 127),
        np.where(nothing, 0, fraction >> 23 - _BITS | _ONE),
    )


def _cut(negative: NDArray[np.bool_], exponent: Integers, significand: Integers) -> _Number:
    """A number of any integer, in units of a significand's, with its low bits cut."""
    more = np.frexp(significand.astype(np.float64))[1].astype(np.int64) - (_BITS + 1)
    kept = significand << np.maximum(-more, 0) >> np.maximum(more, 0)
    return _Number(negative, np.where(kept == 0, _NOTHING, exponent + more), kept)


def _scaled(number: _Number, size: int) -> _Number:
    """A derivative in texels. The multiplier leaves out the low columns of its partial products."""
    more = size.bit_length() - (_BITS + 1)
    factor = size >> more if more > 0 else size << -more
    product = sum(
        number.significand << bit >> _DROPPED for bit in range(_BITS + 1) if factor >> bit & 1
    )
    rounded = np.where(number.significand == 0, 0, product + _FOR_DROPPED)
    return _cut(number.negative, number.exponent + more + _DROPPED, rounded)


def _larger(x: _Number, y: _Number) -> tuple[_Number, _Number]:
    """The larger magnitudes and the smaller ones."""
    swapped = y.size > x.size
    pairs = [(np.where(swapped, v, u), np.where(swapped, u, v)) for u, v in zip(x, y, strict=True)]
    first, second = zip(*pairs, strict=True)
    return _Number(*first), _Number(*second)


def _sum(x: _Number, y: _Number, negated: bool) -> _Number:
    """The sum or the difference, with one bit more while they are added."""
    large, small = _larger(x, y)
    apart = np.minimum(large.exponent - small.exponent, 63)
    shifted = small.significand << 1 >> apart
    opposite = (x.negative ^ y.negative) != negated
    total = (large.significand << 1) + np.where(opposite, -shifted, shifted)
    # The sign of the result never matters.
    return _cut(large.negative, large.exponent - 1, total)


def _plus(x: _Number, y: _Number) -> _Number:
    """The sum of magnitudes; of differences, where one is 0."""
    large, small = _larger(x, y)
    shifted = small.significand >> np.minimum(large.exponent - small.exponent, 63)
    return _cut(large.negative, large.exponent, large.significand + shifted)


def _length(parts: Sequence[_Number], factors: Sequence[_Factor]) -> _Number:
    """The length of a vector of one to three parts, the largest of which takes the first factor."""
    parts = [*parts, *[_number(np.zeros_like(parts[0].exponent))] * (3 - len(parts))]
    a, b = _larger(parts[0], parts[1])
    a, c = _larger(a, parts[2])
    b, c = _larger(b, c)
    x, y, z = (_times(n, factor) for n, factor in zip((a, b, c), factors, strict=True))
    return _plus(x, _plus(y, z))


def _times(x: _Number, factor: _Factor) -> _Number:
    product = factor.number * x.significand + factor.added
    kept = np.where(x.significand == 0, 0, product)
    return _cut(x.negative, x.exponent - factor.bits, kept)
