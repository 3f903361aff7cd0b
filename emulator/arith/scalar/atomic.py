"""What atom, red and cp.reduce write to memory: PTX ISA 9.7.13.6, as measured on an H200.

The machine sees to it that nothing comes between the load and the store; atom returns the old
value. Vectors of registers are one location each.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dtypes import Array
from emulator.arith.scalar import comparison, exact, floating, rounded
from emulator.arith.scalar.rule import rule
from emulator.arith.scalar.types import TYPES, ScalarType

_F32, _F64 = TYPES["f32"], TYPES["f64"]


@rule
def update(
    t: ScalarType, old: int, b: int, c: int = 0, *, operation: str = "", space: str = "global",
    bulk: bool = False,
) -> int:  # fmt: skip
    """The new value of a location. `space` is where the address lies, also a generic one's; `bulk`
    says that cp.reduce.async.bulk does it."""
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
        return _float_update(t, old, b, operation, space, bulk)
    x, y = t.number(old), t.number(b)
    return t.word({"add": x + y, "min": min(x, y), "max": max(x, y)}[operation])


@update.vector
def _(
    t: ScalarType, old: Array, b: Array, c: Any = 0, *, operation: str = "", space: str = "global",
    bulk: bool = False,
) -> Array:  # fmt: skip
    if operation == "exch":
        return np.broadcast_to(b, np.shape(old))
    if operation == "cas":
        same = old == b
        return np.where(same.all(axis=-1, keepdims=True) if t.size == 128 else same, c, old)
    one = t.dtype.type(1)
    if operation == "inc":
        return np.where(old >= b, t.dtype.type(0), old + one)
    if operation == "dec":
        return np.where((old == 0) | (old > b), b, old - one)
    if t.is_float:
        return _float_updates(t, old, b, operation, space, bulk)
    out: Array = UFUNCS[operation](old.view(t.values), b.view(t.values))
    return out.view(t.dtype)


#: operations on integers
UFUNCS: dict[str, np.ufunc] = {
    "add": np.add, "min": np.minimum, "max": np.maximum,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip


def _flushes(t: ScalarType, space: str, bulk: bool) -> bool:
    """Sums of f32 in global memory flush subnormal numbers, but not those of a bulk reduction."""
    return t is _F32 and space == "global" and not bulk


def _float_update(t: ScalarType, old: int, b: int, operation: str, space: str, bulk: bool) -> int:
    if operation == "add":
        if t is _F64 and space == "global":
            # A NaN is passed on as it is, the operand's before the location's.
            for code in (b, old):
                if exact.is_nan(t.format, code):
                    return code
        return floating.add.reference(t, b, old, ftz=_flushes(t, space, bulk))
    pick = comparison.minimum if operation == "min" else comparison.maximum
    return pick.reference(t, old, b)


def _float_updates(
    t: ScalarType, old: Array, b: Array, operation: str, space: str, bulk: bool
) -> Array:
    if operation != "add":
        return comparison.extremes(t, (old, b), operation == "max", False, False, False, False)
    assert floating.add.array is not None
    out = floating.add.array(t, b, old, ftz=_flushes(t, space, bulk))
    if t is _F64 and space == "global":
        for code in (old, b):
            out = np.where(np.isnan(rounded.values(t, code)), code, out)
    return out
