"""Words that are NumPy's arrays: the operations of `words`, by NumPy's idioms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np

from dtypes import FORMATS, Array
from emulator.arith.fast.error_free import odd_sum
from emulator.arith.fast.wide import fused_multiply_add
from emulator.arith.scalar.words import Operand, Results, Words

_ROUND = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}
_REVERSED = np.array([int(f"{byte:08b}"[::-1], 2) for byte in range(256)], np.uint8)
_LANES = np.arange(32, dtype=np.uint32)
#: operations on integers
UFUNCS: dict[str, np.ufunc] = {
    "add": np.add, "min": np.minimum, "max": np.maximum,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip
_FLOAT32 = np.dtype(np.float32)
_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)


class ArrayWords:
    """Words that are arrays; NumPy must have been told to ignore floating-point errors."""

    select = staticmethod(np.where)
    sqrt = staticmethod(np.sqrt)

    @staticmethod
    def minimum(a: Array, b: Operand) -> Array:
        out = np.minimum(a, b)
        return out if out.dtype.kind != "f" else _in_order(out, np.bitwise_or, a, b)

    @staticmethod
    def maximum(a: Array, b: Operand) -> Array:
        out = np.maximum(a, b)
        return out if out.dtype.kind != "f" else _in_order(out, np.bitwise_and, a, b)

    @staticmethod
    def put(condition: Array, value: Operand | Callable[[], Operand], out: Array) -> Array:
        if not np.count_nonzero(condition):
            return out
        return np.where(condition, value() if callable(value) else value, out)

    @staticmethod
    def mend(condition: Array, out: Array, make: Callable[..., Array], *operands: Array) -> Array:
        if not np.count_nonzero(condition):
            return out
        if np.ndim(condition) == 0:
            return make(*operands)
        shape = np.shape(out)
        if condition.shape != shape:
            shape = np.broadcast_shapes(condition.shape, shape)
        where = _spread(condition, shape).nonzero()
        picked = (_spread(x, shape)[where] if np.ndim(x) else x for x in operands)
        out = np.array(_spread(out, shape))
        out[where] = make(*picked)
        return out

    @staticmethod
    def constant(word: Array) -> int | None:
        return int(word) if np.ndim(word) == 0 else None

    @staticmethod
    def count_ones(a: Array) -> Array:
        return np.bitwise_count(a).astype(np.uint32)

    @staticmethod
    def leading_zeros(a: Array) -> Array:
        bits = 8 * a.itemsize
        if bits == 64:
            a = a & ~(a >> 1)  # so that no rounding carries into the next power of two
        exponents = a.astype(np.float64).view(np.uint64) >> 52
        return np.minimum(1022 + bits - exponents, bits).astype(np.uint32)

    @staticmethod
    def reverse_bits(a: Array) -> Array:
        words = np.ascontiguousarray(a)
        return _REVERSED[words.view(np.uint8)].view(a.dtype).byteswap().reshape(np.shape(a))

    @staticmethod
    def high_product(a: Array, b: Array) -> Array:
        a1, a0, b1, b0 = a >> _HALF, a & _LOW, b >> _HALF, b & _LOW
        middle = a1 * b0 + (a0 * b0 >> _HALF)
        cross = a0 * b1 + (middle & _LOW)
        return a1 * b1 + (middle >> _HALF) + (cross >> _HALF)

    @staticmethod
    def look_up(table: Array, indexes: Array) -> Array:
        return table.take(indexes)

    @staticmethod
    def integral(x: Array, rounding: str) -> Array:
        return _ROUND[rounding](x)

    @staticmethod
    def to_integers(x: Array, dtype: np.dtype[Any]) -> Array:
        info = np.iinfo(dtype)
        if dtype == np.int32 and (np.abs(x) < 2.0**31).all():
            return x.astype(np.int32)
        x = x.astype(np.float64)
        # The largest 64-bit numbers are no float64: what reaches the power above them is clamped.
        too_large = x >= float(info.max + 1)
        inside = np.where(too_large | (x != x), 0, np.maximum(x, float(info.min)))
        return np.where(too_large, dtype.type(info.max), inside.astype(dtype))

    @staticmethod
    def fused(x: Array, y: Array, z: Array) -> Array:
        if x.dtype == _FLOAT32:
            return _fused_f32(x, y, z)
        a, b, c = (np.asarray(number).view(np.uint64) for number in (x, y, z))
        return fused_multiply_add(FORMATS["f64"], a, b, c).view(np.float64)

    @staticmethod
    def lanes() -> Array:
        return _LANES

    @staticmethod
    def of_lane(a: Array, lanes: Array) -> Array:
        lanes = lanes.astype(np.intp)
        if lanes.ndim == 1 and np.ndim(a):  # the same ones in every warp
            return np.broadcast_to(a, (*np.shape(a)[:-1], len(_LANES)))[..., lanes]
        a, lanes = np.broadcast_arrays(a, lanes)
        start = np.arange(0, a.size, len(_LANES)).reshape(*a.shape[:-1], 1)
        return np.ascontiguousarray(a).reshape(-1).take(lanes + start)

    @staticmethod
    def ballot(condition: Array) -> Array:
        return ballot(condition)

    @staticmethod
    def reduced(operation: str, a: Array) -> Array:
        return UFUNCS[operation].reduce(a, axis=-1, keepdims=True, dtype=a.dtype)

    @staticmethod
    def by_arrays(function: Callable[..., Results], *words: Any) -> Results:
        return function(*words)

    def outlined(self, name: str, function: Callable[..., Array], *words: Array) -> Array:
        return function(self, *words)


def _spread(x: Array, shape: tuple[int, ...]) -> Array:
    """`np.broadcast_to`, which takes longer than all else of few numbers."""
    return x if np.shape(x) == shape else np.broadcast_to(x, shape)


def ballot(where: Array) -> Array:
    """A mask of the lanes of each warp ``(…, 32)``, for all of them ``(…, 1)``."""
    shape = np.broadcast_shapes(np.shape(where), _LANES.shape)
    lanes = np.ascontiguousarray(np.broadcast_to(where, shape))
    return np.packbits(lanes, axis=-1, bitorder="little").view("<u4")


def _in_order(out: Array, of_zeros: np.ufunc, a: Array, b: Array) -> Array:
    """Extremes of numbers as `Words` has them. NumPy's do not order zeros, and are NaNs where any
    number is; its fmin and fmax of Arm lose a number against a signalling NaN."""
    lost = out != out
    if lost.any():
        out = np.where(a != a, b, np.where(b != b, a, out))
    zeros = (out == 0) & (a == b)
    if zeros.any():
        word = f"u{a.dtype.itemsize}"
        out = np.where(zeros, of_zeros(a.view(word), b.view(word)).view(a.dtype), out)
    return out


def _fused_f32(x: Array, y: Array, z: Array) -> Array:
    """x·y + z of float32, rounded once."""
    wide = np.float64
    return rounded_sum(x.astype(wide) * y.astype(wide) + z.astype(wide), x, y, z)


def rounded_sum(total: Array, x: Array, y: Array, z: Array) -> Array:
    """x·y + z of float32, rounded once, from the sum in float64. The product is exact there; the
    sum, rounded twice, may be wrong where the first one lies half way between two numbers of
    float32, as any below its normal range may but 0."""
    near = total.astype(np.float32)
    doubtful, small = total.view(np.uint64) & _CUT == _HALF_WAY, np.abs(near) <= _LEAST
    if np.count_nonzero(small):
        doubtful |= small & (total != 0)
    if np.count_nonzero(doubtful):
        near = ArrayWords.mend(doubtful, near, _fused_by_odd, x, y, z)
    return near


def _fused_by_odd(x: Array, y: Array, z: Array) -> Array:
    """The same by way of the sum rounded to odd, which rounds rightly once more."""
    return odd_sum(x.astype(np.float64) * y, z.astype(np.float64)).astype(np.float32)


#: the least normal number of f32, without an axis: that NumPy is fastest with
_LEAST = np.array(2.0**-126, np.float32)
#: bits of f64 that f32 lacks, and what they are half way between two numbers of f32
_CUT, _HALF_WAY = np.array((1 << 29) - 1, np.uint64), np.array(1 << 28, np.uint64)
#: the words that are arrays: to mypy they lack what their annotations in NumPy do not promise
ARRAYS = cast("Words", ArrayWords())
