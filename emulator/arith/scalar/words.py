"""The language of rules: words and the operations on them.

The text of a rule runs on NumPy's arrays (`arrays`), and emits machine code where words are values
of LLVM (`machine.compiled.words`). A *word* has the operators, `dtype`, `view` and `astype` of an
array, with the meaning that NumPy gives them; constants are Python's numbers, or NumPy's where
nothing else says of which type. Everything else is an operation of `Words`, which each side does
as it does it best.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from operator import or_
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import DTypeLike

from dtypes import Array

#: a word or a tuple of words
Results = TypeVar("Results")
#: a word, or one number for all lanes
Value: TypeAlias = "Word | float | np.generic"
#: a `Value`; NumPy's own annotations of operators fit no narrower type
Operand: TypeAlias = Any


class Word(Protocol):
    """Words of all lanes: integers, f32 or f64 numbers, or what conditions hold."""

    @property
    def dtype(self) -> np.dtype[Any]: ...

    def view(self, dtype: DTypeLike, /) -> Word: ...
    def astype(self, dtype: DTypeLike, /, *, copy: bool = True) -> Word: ...

    def __add__(self, other: Operand, /) -> Word: ...
    def __radd__(self, other: Operand, /) -> Word: ...
    def __sub__(self, other: Operand, /) -> Word: ...
    def __rsub__(self, other: Operand, /) -> Word: ...
    def __mul__(self, other: Operand, /) -> Word: ...
    def __truediv__(self, other: Operand, /) -> Word: ...
    def __floordiv__(self, other: Operand, /) -> Word: ...
    def __mod__(self, other: Operand, /) -> Word: ...
    def __and__(self, other: Operand, /) -> Word: ...
    def __or__(self, other: Operand, /) -> Word: ...
    def __xor__(self, other: Operand, /) -> Word: ...
    def __lshift__(self, other: Operand, /) -> Word: ...
    def __rlshift__(self, other: Operand, /) -> Word: ...
    def __rshift__(self, other: Operand, /) -> Word: ...
    def __invert__(self) -> Word: ...
    def __neg__(self) -> Word: ...
    def __abs__(self) -> Word: ...
    def __lt__(self, other: Operand, /) -> Word: ...
    def __le__(self, other: Operand, /) -> Word: ...
    def __gt__(self, other: Operand, /) -> Word: ...
    def __ge__(self, other: Operand, /) -> Word: ...
    def __eq__(self, other: Operand, /) -> Word: ...  # type: ignore[override]
    def __ne__(self, other: Operand, /) -> Word: ...  # type: ignore[override]


def joined(parts: Iterable[Word], bits: int) -> Word:
    """Parts of so many bits as one word, the first in its lowest bits."""
    return reduce(or_, (part << i * bits if i else part for i, part in enumerate(parts)))


class Words(Protocol):
    """The operations on words."""

    def select(self, condition: Word, a: Value, b: Value) -> Word:
        """`a` where the condition holds, else `b`."""

    def put(self, condition: Word, value: Value | Callable[[], Value], out: Word) -> Word:
        """`out`, or `value` where the condition holds, which is rare; what a function returns that
        is called only where it may be needed, if `value` is one."""

    def mend(self, condition: Word, out: Word, make: Callable[..., Word], *operands: Word) -> Word:
        """`out`, or ``make(*operands)`` where the condition holds, which is rare and expensive."""

    def constant(self, word: Word) -> int | None:
        """The number that the word is in all lanes; None where that is not known."""

    def minimum(self, a: Word, b: Value) -> Word:
        """The smaller integers, or numbers: -0 is less than +0, and a number wins against a NaN."""

    def maximum(self, a: Word, b: Value) -> Word:
        """The larger integers, or numbers; as `minimum`."""

    def count_ones(self, a: Word) -> Word:
        """Number of one bits, as u32."""

    def leading_zeros(self, a: Word) -> Word:
        """Number of zero bits above the highest one bit, as u32."""

    def reverse_bits(self, a: Word) -> Word:
        """The bits in reverse order."""

    def high_product(self, a: Word, b: Word) -> Word:
        """The upper 64 bits of products of u64."""

    def look_up(self, table: Array, indexes: Word) -> Word:
        """Elements of 32 or 64 bits of an array that does not change, by integers."""

    def sqrt(self, x: Word) -> Word:
        """Square roots rounded to nearest."""

    def integral(self, x: Word, rounding: str) -> Word:
        """Floating-point numbers rounded to integral ones, as .rni … say."""

    def to_integers(self, x: Word, dtype: np.dtype[Any]) -> Word:
        """Integral floating-point numbers as the nearest integers of a type; of a NaN 0."""

    def fused(self, x: Word, y: Value, z: Value) -> Word:
        """x·y + z of f32 or f64, rounded once to nearest; of a NaN any."""

    def lanes(self) -> Word:
        """The number of each lane in its warp, as u32."""

    def of_lane(self, a: Word, lanes: Word) -> Word:
        """For each lane the word of another lane of its warp."""

    def ballot(self, condition: Word) -> Word:
        """The lanes of the warp where a condition holds, as the bits of u32."""

    def reduced(self, operation: str, a: Word) -> Word:
        """The sum ("add"), extreme ("min", "max") or "and", "or", "xor" of a warp's integers."""

    def by_arrays(self, function: Callable[..., Results], *words: Any) -> Results:
        """``function(*words)``, which is written for arrays: there is no machine code for it."""

    def outlined(self, name: str, function: Callable[..., Word], *words: Word) -> Word:
        """``function(words, *words)``, whose machine code stands in one place."""
