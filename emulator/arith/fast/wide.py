"""Fused multiply-add over arrays, exactly.

NumPy has no fused multiply-add and no type wide enough for a 106-bit product. f64 of moderate size,
and f32 rounded to nearest, take error-free transformations. For all else the product and the addend
are laid into a 128-bit window, magnitudes as pairs of uint64 words, the smaller one shifted right
with a sticky last bit (Berkeley SoftFloat calls it "jamming"), and the sum is rounded once.
The window leaves 20 bits below an exact product and 73 below an addend, so a jammed operand is
always too small to cancel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtypes import Array, Format, NumberClass, Numbers, Rounding, code_type, decode, round_to_codes
from dtypes.arrays import Int64, bit_length
from emulator.arith.fast import error_free

UInt64 = NDArray[np.uint64]
_LOW = np.uint64(0xFFFFFFFF)
_32, _ONE = np.uint64(32), np.uint64(1)


class Wide(NamedTuple):
    """128-bit magnitudes ``high * 2**64 + low``."""

    high: UInt64
    low: UInt64


def _shift_left(x: Wide, amount: UInt64 | np.uint64) -> Wide:
    """0 <= amount < 128; bits that leave are lost."""
    big = amount >= 64
    n = amount & np.uint64(63)
    spill = x.low >> _ONE >> np.uint64(63) - n  # n may be 0: two shifts, never one of 64
    high = np.where(big, x.low << n, x.high << n | spill)
    return Wide(high, np.where(big, np.uint64(0), x.low << n))


def _shift_right_sticky(x: Wide, amount: UInt64) -> Wide:
    """0 <= amount; a non-zero part that leaves sets the last bit."""
    amount = np.minimum(amount, np.uint64(127))
    big = amount >= 64
    n = amount & np.uint64(63)
    lost = np.where(
        big, (x.high << _ONE << np.uint64(63) - n) | x.low, x.low << _ONE << np.uint64(63) - n
    )
    low = np.where(big, x.high >> n, x.low >> n | x.high << _ONE << np.uint64(63) - n)
    return Wide(np.where(big, np.uint64(0), x.high >> n), low | (lost != 0))


def _multiply(a: UInt64, b: UInt64) -> Wide:
    """The 128-bit product of 64-bit numbers, by 32-bit halves."""
    a1, a0, b1, b0 = a >> _32, a & _LOW, b >> _32, b & _LOW
    middle = a1 * b0 + (a0 * b0 >> _32)
    cross = a0 * b1 + (middle & _LOW)
    return Wide(a1 * b1 + (middle >> _32) + (cross >> _32), a * b)


def _add(a: Wide, b: Wide) -> Wide:
    low = a.low + b.low
    return Wide(a.high + b.high + (low < a.low), low)


def _subtract(a: Wide, b: Wide) -> Wide:
    return Wide(a.high - b.high - (a.low < b.low), a.low - b.low)


def _less(a: Wide, b: Wide) -> NDArray[np.bool_]:
    return (a.high < b.high) | ((a.high == b.high) & (a.low < b.low))


def _normalised(fmt: Format, x: Numbers) -> tuple[UInt64, Int64]:
    """Significands with the top bit at 52, and the exponents of their last bits."""
    up = np.maximum(53 - bit_length(x.significand), 0)
    return (x.significand << up).astype(np.uint64), x.exponent - fmt.mantissa_bits - up


def fused_multiply_add(
    fmt: Format,
    a: Array,
    b: Array,
    c: Array,
    rounding: Rounding = "rn",
    nan_order: Sequence[str] = (),
) -> Array:
    """``a·b + c`` of codes of one format with infinities, broadcast; `ieee.fma` for arrays."""
    if fmt.name == "f64" or (fmt.name == "f32" and rounding == "rn"):
        word = code_type(fmt.bits)
        x, y, z = (x.astype(word, copy=False).view(f"f{fmt.bits // 8}") for x in (a, b, c))
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            total, in_reach = (
                error_free.fused(x, y, z, rounding) if fmt.bits == 64 else _fused_f32(x, y, z)
            )
        words = total.view(word)
        if not in_reach.all():
            far = ~in_reach
            a, b, c = (x[far] for x in np.broadcast_arrays(a, b, c))
            words[far] = _fused_multiply_add(fmt, a, b, c, rounding, nan_order)
        return words
    return _fused_multiply_add(fmt, a, b, c, rounding, nan_order)


def _fused_f32(
    a: NDArray[np.float32], b: NDArray[np.float32], c: NDArray[np.float32]
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """a·b + c, and where it is no NaN: of a sum rounded to odd in float64, where the product is
    exact, the nearest float32 is that of the exact sum."""
    wide = error_free.odd_sum(a.astype(np.float64) * b, c.astype(np.float64))
    total = np.asarray(wide.astype(np.float32))
    return total, ~np.isnan(total)


def _fused_multiply_add(
    fmt: Format, a: Array, b: Array, c: Array, rounding: Rounding, nan_order: Sequence[str]
) -> Array:
    assert fmt.nan is not None and fmt.infinity is not None
    p, q, r = decode(fmt, a), decode(fmt, b), decode(fmt, c)
    p_bits, p_unit = _normalised(fmt, p)
    q_bits, q_unit = _normalised(fmt, q)
    r_bits, r_unit = _normalised(fmt, r)
    sign_pq = p.sign ^ q.sign

    product = _shift_left(_multiply(p_bits, q_bits), np.uint64(20))
    addend = Wide(r_bits << np.uint64(9), np.zeros_like(r_bits))
    no_product = (p.significand == 0) | (q.significand == 0)
    unit_pq, unit_r = p_unit + q_unit - 20, r_unit - 73
    far = np.int64(-1 << 20)  # a zero must not decide the common unit
    unit_pq, unit_r = np.where(no_product, far, unit_pq), np.where(r.significand == 0, far, unit_r)
    unit = np.maximum(unit_pq, unit_r)
    product = _shift_right_sticky(product, (unit - unit_pq).astype(np.uint64))
    addend = _shift_right_sticky(addend, (unit - unit_r).astype(np.uint64))

    less = _less(product, addend)
    larger = Wide(*(np.where(less, y, x) for x, y in zip(product, addend, strict=True)))
    smaller = Wide(*(np.where(less, x, y) for x, y in zip(product, addend, strict=True)))
    same = sign_pq == r.sign
    total = Wide(
        *(
            np.where(same, x, y)
            for x, y in zip(_add(larger, smaller), _subtract(larger, smaller), strict=True)
        )
    )
    sign = np.where(less, r.sign, sign_pq)
    zero = (total.high | total.low) == 0
    # Zeros of one sign keep it; an exact cancellation gives +0, and −0 only toward −∞.
    sign = np.where(zero, np.where(same, sign_pq, rounding == "rm"), sign)

    # The top 62 bits and a sticky bit are all that rounding to 53 needs.
    top = np.where(
        total.high > 0,
        64 + bit_length((total.high >> _ONE).astype(np.int64)) + 1,
        bit_length((total.low >> _ONE).astype(np.int64)) + 1,
    )
    up = np.where(zero, 0, 128 - top)
    total = _shift_left(total, up.astype(np.uint64))
    significand = (total.high >> np.uint64(2)).astype(np.int64)
    sticky = (total.high & np.uint64(3) | total.low) != 0
    out = round_to_codes(fmt, sign, significand, unit + 66 - up, rounding, sticky=sticky)
    out = out.astype(np.uint64)
    return _specials(fmt, out, (a, p), (b, q), (c, r), nan_order).astype(code_type(fmt.bits))


def _specials(
    fmt: Format,
    out: UInt64,
    a: tuple[Array, Numbers],
    b: tuple[Array, Numbers],
    x: tuple[Array, Numbers],
    nan_order: Sequence[str],
) -> UInt64:
    """`out` with the results that infinities and NaNs among the operands have instead."""
    p, q, r = a[1], b[1], x[1]
    if max(int(n.number_class.max(initial=0)) for n in (p, q, r)) < NumberClass.INFINITE:
        return out

    def is_(n: Numbers, number_class: NumberClass) -> NDArray[np.bool_]:
        return n.number_class == number_class

    infinite, zero, nan = NumberClass.INFINITE, NumberClass.ZERO, NumberClass.NAN
    sign = p.sign ^ q.sign
    big = is_(p, infinite) | is_(q, infinite)
    invalid = (is_(p, infinite) & is_(q, zero)) | (is_(p, zero) & is_(q, infinite))
    invalid = invalid | (big & is_(r, infinite) & (sign != r.sign))
    any_nan = is_(p, nan) | is_(q, nan) | is_(r, nan)
    bit = np.uint64(fmt.sign_mask)
    out = np.where(is_(r, infinite), x[0].astype(np.uint64), out)
    assert fmt.infinity is not None and fmt.nan is not None
    out = np.where(big, np.uint64(fmt.infinity) | np.where(sign, bit, np.uint64(0)), out)
    out = np.where(invalid | any_nan, np.uint64(fmt.nan), out)
    quiet = np.uint64(1 << (fmt.mantissa_bits - 1))
    for name in reversed(nan_order):
        codes, numbers = {"a": a, "b": b, "x": x}[name]
        out = np.where(is_(numbers, nan), codes.astype(np.uint64) | quiet, out)
    return out


def multiply(fmt: Format, a: Array, b: Array) -> Array:
    """a·b rounded to nearest; adding −0 changes nothing, not even the sign of a zero."""
    return fused_multiply_add(fmt, a, b, np.asarray(fmt.sign_mask, code_type(fmt.bits)))


def add(fmt: Format, a: Array, b: Array) -> Array:
    """a + b rounded to nearest."""
    one = np.asarray(fmt.bias << fmt.mantissa_bits, code_type(fmt.bits))
    return fused_multiply_add(fmt, one, a, b)
