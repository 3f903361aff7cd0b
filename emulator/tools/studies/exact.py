"""Matrix products without any rounding, in integers: what the errors of a study are measured by."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dtypes import Array, Format, NumberClass, decode
from emulator.errors import OperandError

#: bits of an int64 that a sum of products may fill
_ROOM = 62


class Whole(NamedTuple):
    """Numbers as ``integers * 2**unit``: Python integers in an array of objects."""

    integers: Array
    unit: int


def as_whole(name: str, fmt: Format, codes: Array) -> Whole:
    """Codes of finite numbers as integers of one unit; OperandError for infinities and NaNs."""
    number = decode(fmt, codes)
    if (number.number_class >= NumberClass.INFINITE).any():
        raise OperandError(f"{name} holds infinities or NaNs, which have no error")
    live = number.significand != 0
    exponents = number.exponent[live]
    lowest = int(exponents.min()) if exponents.size else 0
    shift = np.where(live, number.exponent - lowest, 0).astype(object)
    magnitude = number.significand.astype(object) << shift
    return Whole(np.where(number.sign, -magnitude, magnitude), lowest - fmt.mantissa_bits)


def product(a: Whole, b: Whole) -> Whole:
    """A·B of ``(m, k)`` and ``(k, n)``, exact."""
    bits = [max((int(x).bit_length() for x in y.integers.flat), default=0) for y in (a, b)]
    limb = (_ROOM - a.integers.shape[1].bit_length()) // 2
    total = np.zeros((a.integers.shape[0], b.integers.shape[1]), object)
    # Long integers go in pieces whose products fit int64.
    for i in range(0, max(bits[0], 1), limb):
        left = _limb(a.integers, i, limb)
        for j in range(0, max(bits[1], 1), limb):
            total += (left @ _limb(b.integers, j, limb)).astype(object) << (i + j)
    return Whole(total, a.unit + b.unit)


def _limb(x: Array, start: int, width: int) -> Array:
    """Bits `start` … of every magnitude, with the number's sign."""
    part: Array = np.right_shift(np.absolute(x), start) & ((1 << width) - 1)
    return np.where(x < 0, -part, part).astype(np.int64)


def magnitudes(x: Whole) -> Whole:
    return Whole(abs(x.integers), x.unit)


def summed(x: Whole) -> Whole:
    """The sum of all numbers, as an array of one."""
    return Whole(np.array([sum(x.integers.flat)], object), x.unit)


def difference(x: Whole, y: Whole) -> Whole:
    unit = min(x.unit, y.unit)
    return Whole((x.integers << (x.unit - unit)) - (y.integers << (y.unit - unit)), unit)


def ratios(x: Whole, y: Whole) -> Array:
    """x / y as float64, each rounded once; infinity where y is zero and x is not, 0 for 0 / 0."""
    shift = x.unit - y.unit
    up, down = max(shift, 0), max(-shift, 0)

    def ratio(p: int, q: int) -> float:
        if not q:
            return np.inf if p else 0.0
        return (p << up) / (q << down)

    found = [ratio(p, q) for p, q in zip(x.integers.flat, y.integers.flat, strict=True)]
    return np.array(found, np.float64).reshape(x.integers.shape)
