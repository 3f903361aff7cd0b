"""Many atomic operations on one location, one after the other, without a step for each.

`atomic.update` says what one of them does. Here is what it comes to where the same operation goes
on and on: a ufunc of NumPy, or what each of them finds there. `None` says that only one step after
the other tells. NumPy must have been told to ignore floating-point errors.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dtypes import Array
from emulator.arith.scalar.arrays import UFUNCS
from emulator.arith.scalar.types import TYPES, ScalarType

Places = NDArray[np.int64]

#: floating-point types whose sums NumPy rounds alike -> the least magnitude of words of which no
#: sum is subnormal, where a GPU may flush it: a multiple of 2**-126 in f32
_SUMS = {TYPES["f32"]: np.float32(2.0**-103), TYPES["f64"]: np.float64(0)}


@dataclass(frozen=True)
class Series:
    """Operations of one kind on words of a type."""

    type: ScalarType
    operation: str

    @property
    def ufunc(self) -> np.ufunc | None:
        """The NumPy function that computes the next word of those that `tells_of` accepts."""
        t = self.type
        if t.is_float and (t not in _SUMS or self.operation != "add"):
            return None
        return UFUNCS.get(self.operation) if t.count == 1 and t.size <= 64 else None

    def tells_of(self, *words: Array) -> bool:
        """True if `ufunc` is right for these words: for finite numbers that are not small. A sum
        that overflows shows afterwards that it was not right."""
        if not self.type.is_float:
            return True
        numbers = [np.abs(self.numbers(x)) for x in words]
        least = _SUMS[self.type]
        return all(bool(((x >= least) & (x < np.inf) | (x == 0)).all()) for x in numbers)

    def numbers(self, words: Array) -> Array:
        """Words as what the ufunc computes with."""
        return words.view(self.type.values)

    def found(
        self, old: Array, operands: tuple[Array, ...], starts: Places
    ) -> tuple[Array, Array] | None:
        """Returns the word that each operation finds, and the word after the last one.

        `operands` ``(n,)`` are those of the operations on the first location, in order, then those
        on the second one, …; `starts` says where each begins and `old` what it held.
        """
        counts = counts_of(starts, len(operands[0]))
        if self.operation == "exch":
            return _exchanged(old, operands[0], starts, counts)
        if self.operation in ("inc", "dec"):
            return _counted(self.operation == "inc", old, operands[0], starts, counts)
        if self.ufunc is None or not self.tells_of(old, *operands):
            return None
        if self.operation == "add" and not self.type.is_float:
            return _summed(old, operands[0], starts, counts)
        before, after = _accumulated(
            self.ufunc, self.numbers(old), self.numbers(operands[0]), starts, counts
        )
        if self.type.is_float and not np.isfinite(after).all():
            return None
        return before.view(old.dtype), after.view(old.dtype)


def _summed(old: Array, b: Array, starts: Places, counts: Places) -> tuple[Array, Array]:
    """Integers, whose sums wrap: one sum over all locations, less what is there at each start."""
    total = np.cumsum(b, dtype=b.dtype)
    before = total - b
    before += np.repeat(old - before[starts], counts)
    ends = starts + counts - 1
    return before, before[ends] + b[ends]


def _exchanged(old: Array, b: Array, starts: Places, counts: Places) -> tuple[Array, Array]:
    before = np.empty_like(b)
    before[1:] = b[:-1]
    before[starts] = old
    return before, b[starts + counts - 1]


def _counted(
    up: bool, old: Array, bound: Array, starts: Places, counts: Places
) -> tuple[Array, Array] | None:
    """inc and dec to one bound: after the first of them they go round from 0 to it."""
    group = np.repeat(np.arange(len(counts)), counts)
    if (bound != bound[starts][group]).any():
        return None
    last, held = bound[starts].astype(np.int64), old.astype(np.int64)
    if up:
        first = np.where(held >= last, 0, held + 1)
    else:
        first = np.where((held == 0) | (held > last), last, held - 1)
    done = np.arange(len(bound)) - starts[group] - 1
    step = 1 if up else -1
    before = (first[group] + step * done) % (last[group] + 1)
    before[starts] = held
    after = (first + step * (counts - 1)) % (last + 1)
    return before.astype(old.dtype), after.astype(old.dtype)


def _accumulated(
    ufunc: np.ufunc, old: Array, operands: Array, starts: Places, counts: Places
) -> tuple[Array, Array]:
    """Locations of about as many operations together: a row for each, filled up on the right."""
    before, after = np.empty_like(operands), np.empty_like(old)
    classes = np.frexp(counts)[1]
    for number in np.unique(classes).tolist():
        which = np.flatnonzero(classes == number)
        count = counts[which, None]
        columns = np.arange(int(count.max()))
        places, there = starts[which, None] + columns, columns < count
        rows = np.empty((len(which), len(columns) + 1), operands.dtype)
        rows[:, 0] = old[which]
        rows[:, 1:] = operands.take(places, mode="clip")
        ufunc.accumulate(rows, axis=1, out=rows)
        before[places[there]] = rows[:, :-1][there]
        after[which] = np.take_along_axis(rows, count, 1)[:, 0]
    return before, after


def starts_of(ordered: Places) -> Places:
    """Indices at which a new number starts; `numpy.diff` takes several times as long."""
    return np.concatenate((_FIRST, np.flatnonzero(ordered[1:] != ordered[:-1]) + 1))


def counts_of(starts: Places, count: int) -> Places:
    """Distances from each start to the next one, and from the last to `count`."""
    ends = np.empty_like(starts)
    ends[:-1], ends[-1] = starts[1:], count
    return ends - starts


_FIRST = np.zeros(1, np.int64)
