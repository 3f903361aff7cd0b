"""Words that atom, red and cp.reduce write to memory: PTX ISA 9.7.13.6, measured on an H200.

The machine sees to it that nothing comes between the load and the store; atom returns the old
value. Vectors of registers are one location each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dtypes import Array
from emulator.arith.scalar import comparison, exact, floating, rounded
from emulator.arith.scalar.rounded import Rounded
from emulator.arith.scalar.rule import rule
from emulator.arith.scalar.types import TYPES, ScalarType
from emulator.arith.scalar.words import Operand, Word, Words

_F32, _F64 = TYPES["f32"], TYPES["f64"]


class Update(NamedTuple):
    """What is done to a location, and where."""

    operation: str = ""
    #: where the address lies, also a generic one's
    space: str = "global"
    #: cp.reduce.async.bulk does it
    bulk: bool = False
    noftz: bool = False

    def flushes(self, t: ScalarType) -> bool:
        """Sums of f32 in global memory flush subnormal numbers, not those of a bulk reduction nor
        with .noftz, of which ptxas makes the instruction without FTZ."""
        return t is _F32 and self.space == "global" and not (self.bulk or self.noftz)


UPDATE = Update()


@rule
def update(t: ScalarType, old: int, b: int, c: int = 0, *, how: Update = UPDATE) -> int:
    """The new value of a location."""
    operation = how.operation
    if operation == "exch":
        return b
    if operation == "cas":
        return c if old == b else old
    if operation in ("and", "or", "xor"):
        return {"and": old & b, "or": old | b, "xor": old ^ b}[operation]
    if operation == "inc":
        return 0 if old >= b else old + 1
    if operation == "dec":
        return b if old == 0 or old > b else old - 1
    if t.is_float:
        return _float_update(t, old, b, how)
    x, y = t.number(old), t.number(b)
    return t.word({"add": x + y, "min": min(x, y), "max": max(x, y)}[operation])


@update.words
def _(w: Words, t: ScalarType, old: Word, b: Word, c: Operand = 0, *, how: Update = UPDATE) -> Word:
    operation = how.operation
    if operation == "exch":
        return old ^ old | b
    if operation == "cas":
        if t.size == 128:
            return w.by_arrays(_swapped, old, b, c)
        return w.select(old == b, c, old)
    if operation == "inc":
        return w.select(old >= b, 0, old + 1)
    if operation == "dec":
        return w.select((old == 0) | (old > b), b, old - 1)
    if t.is_float:
        return _float_updates(w, t, old, b, how)
    x, y = old.view(t.values), b.view(t.values)
    results: dict[str, Callable[[], Word]] = {
        "add": lambda: x + y, "and": lambda: x & y, "or": lambda: x | y, "xor": lambda: x ^ y,
        "min": lambda: w.minimum(x, y), "max": lambda: w.maximum(x, y),
    }  # fmt: skip
    return results[operation]().view(t.dtype)


def _swapped(old: Array, b: Array, c: Array) -> Array:
    """cas of words of 128 bits, pairs of 64."""
    return np.where((old == b).all(axis=-1, keepdims=True), c, old)


def _float_update(t: ScalarType, old: int, b: int, how: Update) -> int:
    if how.operation == "add":
        if t is _F64 and how.space == "global":
            # A NaN is passed on as it is, the operand's before the location's.
            for code in (b, old):
                if exact.is_nan(t.format, code):
                    return code
        return floating.add.reference(t, b, old, how=Rounded(ftz=how.flushes(t)))
    pick = comparison.minimum if how.operation == "min" else comparison.maximum
    return pick.reference(t, old, b)


def _float_updates(w: Words, t: ScalarType, old: Word, b: Word, how: Update) -> Word:
    if how.operation != "add":
        pick = comparison.minimum if how.operation == "min" else comparison.maximum
        return pick.text(w, t, old, b)
    out = floating.add.text(w, t, b, old, how=Rounded(ftz=how.flushes(t)))
    if t is _F64 and how.space == "global":
        for code in (old, b):
            out = w.put(rounded.are_nans(t, code), code, out)
    return out
