"""What a launch is meant to compute: C as the product of two of its arrays, and how far a right
result may be from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import ml_dtypes
import numpy as np

from dtypes import Array
from emulator.arrays import as_array
from emulator.errors import OperandError, listing

#: cosine between two matrices from which on one is taken for the product that the other is, too
_ALIKE = 0.98
#: of the sum of absolute products: as much may lie between two right sums in floating point. The
#: coarsest accumulator, Hopper's for fp8, cuts 13 bits below the largest term: this is 16 cuts.
_OF_SUMS = 16 * 2.0**-13


@dataclass(frozen=True, eq=False)
class Meant:
    """The product that a launch should have computed, and the C that it stored."""

    a: Array
    b: Array
    expected: Array
    #: name of the argument that is C, and its contents
    name: str
    stored: Array

    @cached_property
    def wrong(self) -> Array:
        """Elements that differ from what is expected by more than rounding ``(M, N)``."""
        want = _numbers(self.expected)
        with np.errstate(all="ignore"):
            sums = np.abs(_numbers(self.a)) @ np.abs(_numbers(self.b))
            stored = _numbers(self.stored)
            rounded = (_unit(self.stored) + _unit(self.expected)) / 2
            allowed = rounded * np.maximum(np.abs(stored), np.abs(want))
            if _unit(self.stored):
                allowed += _OF_SUMS * sums
            wrong: Array = ~(np.abs(stored - want) <= allowed)
        return wrong


def _unit(array: Array) -> float:
    """The distance from 1 to the next number of the array's type; 0 for integers."""
    try:
        return float(ml_dtypes.finfo(array.dtype).eps)  # type: ignore[no-untyped-call]
    except ValueError:
        return 0.0


def _numbers(array: Array) -> Array:
    return array.astype(np.float64)


def find_meant(
    expected: object, a: object, b: object, arrays: Mapping[str, Array], before: Mapping[str, Array]
) -> Meant:
    """Finds A, B and C among the arrays of a launch. Raises OperandError where that is open."""
    want = as_array(expected, "expected=")
    if want.ndim != 2:
        raise OperandError(f"expected= is the matrix C (M, N); got {want.shape}")
    alike = [name for name, x in arrays.items() if x.shape == want.shape]
    changed = [name for name in alike if arrays[name].tobytes() != before[name].tobytes()]
    if len(changed or alike) != 1:
        raise OperandError(
            f"expected= is {want.shape}: the launch should write one array of this shape; it has "
            f"{listing(changed or alike) or 'none'}"
        )
    (name,) = changed or alike
    if (a is None) != (b is None):
        raise OperandError("a= (M, K) and b= (K, N) go together: one of them is missing")
    pair = _factors(want, before, name) if a is None else (as_array(a, "a="), as_array(b, "b="))
    shapes = [x.shape for x in pair]
    if any(len(x) != 2 for x in shapes) or (
        (shapes[0][0], shapes[1][1]) != want.shape or shapes[0][1] != shapes[1][0]
    ):
        raise OperandError(
            f"a= is (M, K), b= (K, N) and expected= (M, N); got {shapes[0]}, {shapes[1]} and "
            f"{want.shape}"
        )
    return Meant(*pair, want, name, arrays[name])


def _factors(want: Array, arrays: Mapping[str, Array], c: str) -> tuple[Array, Array]:
    """The two arrays whose product, maybe of one transposed, is `want` but for a factor."""
    ways = [
        x
        for name, array in arrays.items()
        if name != c and array.ndim == 2
        for x in (array, array.T)
    ]
    best, found, goal = _ALIKE, None, _numbers(want)
    for a in ways:
        for b in ways:
            if (a.shape[0], b.shape[1]) == want.shape and a.shape[1] == b.shape[0]:
                product = _numbers(a) @ _numbers(b)
                size = float(np.linalg.norm(product) * np.linalg.norm(goal))
                alike = abs(float((product * goal).sum())) / size if size else 0.0
                if alike > best:
                    best, found = alike, (a, b)
    if found is None:
        raise OperandError(
            "no two arrays among the arguments have expected= as their product: give the matrices "
            "that are meant, a= (M, K) and b= (K, N)"
        )
    return found
