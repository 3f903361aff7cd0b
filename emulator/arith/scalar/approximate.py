"""Approximate functions: the special function unit and what ptxas puts around it (PTX ISA 9.7.3).

The sequences were read off the machine code of sm_75 to sm_121a, which is the same, and compared
with an H200 over every input. Their multiplications and additions are ordinary ones, which round
to nearest and return the canonical NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

from dtypes import Array
from emulator.arith import special, special_words
from emulator.arith.scalar import exact, floating, fused
from emulator.arith.scalar.arrays import ARRAYS
from emulator.arith.scalar.comparison import hold, holds
from emulator.arith.scalar.conversion import floats
from emulator.arith.scalar.rounded import Rounded
from emulator.arith.scalar.rule import rule
from emulator.arith.scalar.types import TYPES, ScalarType
from emulator.arith.scalar.words import Word, Words

_F32, _F64 = TYPES["f32"], TYPES["f64"]
_MAGNITUDE = 0x7FFFFFFF
#: f32 codes of powers of two
_TINY, _HUGE = 1 << 23, 253 << 23  # 2**-126, 2**126
_QUARTER, _HALF, _2_12, _2_16, _2_24 = ((127 + n) << 23 for n in (-2, -1, 12, 16, 24))
_2_MINUS_12, _MINUS_24, _MINUS_126 = (127 - 12) << 23, 0xC1C00000, 0xC2FC0000
#: 1 / 2π
_TURN = 0x3E22F983


def _mul(a: int, b: int, ftz: bool = False) -> int:
    return int(floating.mul(_F32, a, b, ftz=ftz))


def _muls(w: Words, a: Word, b: Word | int, ftz: bool = False) -> Word:
    return floating.mul.text(
        w, _F32, a, np.uint32(b) if isinstance(b, int) else b, how=Rounded(ftz=ftz)
    )


def _unit(w: Words, name: str, a: Word) -> Word:
    """A function of the special function unit."""
    return w.outlined(f"special.{name}", getattr(special_words, name), a)


def _less(a: int, limit: int) -> bool:
    """abs(a) < limit, for a positive code of a limit: false for a NaN."""
    return a & _MAGNITUDE < limit


# --- f32 ------------------------------------------------------------------------------------------


@rule
def ex2(t: ScalarType, a: int, *, ftz: bool = False) -> int:
    """ex2.approx.f32: without .ftz an argument below -126 is halved, and the result squared."""
    if ftz or not holds(t, a, _MINUS_126, "lt", False):
        return special.ex2(a)
    root = special.ex2(_mul(a, _HALF))
    return _mul(root, root)


@ex2.words
def _(w: Words, t: ScalarType, a: Word, *, ftz: bool = False) -> Word:
    if ftz:
        return _unit(w, "ex2", a)
    low = hold(w, t, a, np.uint32(_MINUS_126), "lt", False)
    root = _unit(w, "ex2", w.put(low, lambda: _muls(w, a, _HALF), a))
    return w.put(low, lambda: _muls(w, root, root), root)


def _scaled(unit: Callable[[int], int], last: Callable[[int], int], a: int, ftz: bool) -> int:
    """A unit without .ftz: a subnormal argument is scaled by 2**24, and the result corrected."""
    if ftz or not _less(a, _TINY):
        return unit(a)
    return last(unit(_mul(a, _2_24)))


def _all_scaled(w: Words, unit: str, last: Callable[[Word], Word], a: Word, ftz: bool) -> Word:
    if ftz:
        return _unit(w, unit, a)
    tiny = a & _MAGNITUDE < _TINY
    out = _unit(w, unit, w.put(tiny, lambda: _muls(w, a, _2_24), a))
    return w.put(tiny, lambda: last(out), out)


@rule
def lg2(t: ScalarType, a: int, *, ftz: bool = False) -> int:
    """lg2.approx.f32."""
    return _scaled(special.lg2, lambda y: floating.add(t, y, _MINUS_24), a, ftz)


@lg2.words
def _(w: Words, t: ScalarType, a: Word, *, ftz: bool = False) -> Word:
    def less_24(y: Word) -> Word:
        return floating.add.text(w, t, y, np.uint32(_MINUS_24))

    return _all_scaled(w, "lg2", less_24, a, ftz)


@rule
def rsqrt(t: ScalarType, a: int, *, ftz: bool = False) -> int:
    """rsqrt.approx.f32."""
    return _scaled(special.rsqrt, lambda y: _mul(y, _2_12), a, ftz)


@rsqrt.words
def _(w: Words, t: ScalarType, a: Word, *, ftz: bool = False) -> Word:
    return _all_scaled(w, "rsqrt", lambda y: _muls(w, y, _2_12), a, ftz)


@rule
def sqrt(t: ScalarType, a: int, *, ftz: bool = False) -> int:
    """sqrt.approx.f32."""
    return _scaled(special.sqrt, lambda y: _mul(y, _2_MINUS_12), a, ftz)


@sqrt.words
def _(w: Words, t: ScalarType, a: Word, *, ftz: bool = False) -> Word:
    return _all_scaled(w, "sqrt", lambda y: _muls(w, y, _2_MINUS_12), a, ftz)


@rule
def sin(t: ScalarType, a: int, *, ftz: bool = False, unit: str = "") -> int:
    """sin.approx.f32: the argument as revolutions, cut toward zero; with .2pi it is revolutions.
    .ftz changes nothing."""
    return special.sin(a if unit else floating.mul(t, a, _TURN, rounding="rz"))


@sin.words
def _(w: Words, t: ScalarType, a: Word, *, ftz: bool = False, unit: str = "") -> Word:
    return _unit(w, "sin", a if unit else _turns(w, t, a))


@rule
def cos(t: ScalarType, a: int, *, ftz: bool = False, unit: str = "") -> int:
    """cos.approx.f32; as `sin`."""
    return special.cos(a if unit else floating.mul(t, a, _TURN, rounding="rz"))


@cos.words
def _(w: Words, t: ScalarType, a: Word, *, ftz: bool = False, unit: str = "") -> Word:
    return _unit(w, "cos", a if unit else _turns(w, t, a))


def _turns(w: Words, t: ScalarType, a: Word) -> Word:
    return floating.mul.text(w, t, a, np.uint32(_TURN), how=Rounded("rz"))


@rule
def tanh(t: ScalarType, a: int) -> int:
    """tanh.approx.f32."""
    return special.tanh(a)


@tanh.words
def _(w: Words, t: ScalarType, a: Word) -> Word:
    return _unit(w, "tanh", a)


# --- quotients ------------------------------------------------------------------------------------
# ptxas fuses the last multiplication of rcp.approx.f32, div.approx.f32 and div.full.f32 with an
# addition that follows: `factors` gives the two factors instead of their product.


@rule
def rcp(
    t: ScalarType, a: int, *, ftz: bool = False, factors: bool = False
) -> int | tuple[int, int]:
    """rcp.approx.f32: without .ftz the argument is scaled by k into the reach of the unit, and its
    reciprocal by the same k."""
    if ftz:
        return special.rcp(a)
    k = _QUARTER if _above(a, _HUGE) else _2_24 if _less(a, _TINY) else special.ONE
    y = special.rcp(_mul(a, k))
    return (k, y) if factors else _mul(k, y)


@rcp.words
def _(
    w: Words, t: ScalarType, a: Word, *, ftz: bool = False, factors: bool = False
) -> Word | tuple[Word, Word]:
    if ftz:
        return _unit(w, "rcp", a)
    magnitude = a & _MAGNITUDE
    k = w.select(magnitude < _TINY, np.uint32(_2_24), np.uint32(special.ONE))
    k = w.put(_all_above(magnitude, _HUGE), _QUARTER, k)
    y = _unit(w, "rcp", _muls(w, a, k))
    return (k, y) if factors else _muls(w, k, y)


@rule
def div(
    t: ScalarType, a: int, b: int, *, full: bool = False, ftz: bool = False, factors: bool = False
) -> int | tuple[int, int]:
    """div.approx.f32, and div.full.f32, which scales both operands where b is very large; without
    .ftz they are scaled where b is subnormal."""
    if full and _above(b, _HUGE):
        a, b = _mul(a, _QUARTER, ftz), _mul(b, _QUARTER, ftz)
    elif not ftz and _less(b, _TINY):
        a, b = _mul(a, _2_24), _mul(b, _2_24)
    y = special.rcp(b)
    return (y, a) if factors else _mul(y, a, ftz)


@div.words
def _(
    w: Words,
    t: ScalarType,
    a: Word,
    b: Word,
    *,
    full: bool = False,
    ftz: bool = False,
    factors: bool = False,
) -> Word | tuple[Word, Word]:
    magnitude = b & _MAGNITUDE
    steps = [(_all_above(magnitude, _HUGE), _QUARTER)] if full else []
    steps += [] if ftz else [(magnitude < _TINY, _2_24)]
    for where, factor in steps:
        scaled = (partial(_muls, w, x, factor, ftz) for x in (a, b))
        a, b = (w.put(where, make, x) for make, x in zip(scaled, (a, b), strict=True))
    y = _unit(w, "rcp", b)
    return (y, a) if factors else _muls(w, y, a, ftz)


def _above(a: int, limit: int) -> bool:
    """abs(a) > limit: false for a NaN."""
    return limit < a & _MAGNITUDE <= special.INFINITY


def _all_above(magnitude: Word, limit: int) -> Word:
    return (magnitude > limit) & (magnitude <= special.INFINITY)


# --- f16, bf16 ------------------------------------------------------------------------------------


@rule
def ex2_half(t: ScalarType, a: int, *, ftz: bool = False) -> int:
    """ex2.approx of f16 and .ftz.bf16: the unit on the widened operand, its result cut."""
    return _narrow(t, special.ex2(floats(_F32, t, a)))


@ex2_half.words
def _(w: Words, t: ScalarType, a: Word, *, ftz: bool = False) -> Word:
    return w.look_up(_results(t, "ex2"), a).astype(t.dtype)


@rule
def tanh_half(t: ScalarType, a: int) -> int:
    """tanh.approx of f16 and bf16: the unit on the widened operand, its result cut."""
    return _narrow(t, special.tanh(floats(_F32, t, a)))


@tanh_half.words
def _(w: Words, t: ScalarType, a: Word) -> Word:
    return w.look_up(_results(t, "tanh"), a).astype(t.dtype)


def _narrow(t: ScalarType, code: int) -> int:
    """A result cut toward zero to a narrower type; f16 keeps subnormal ones, and 2**16 and more
    are infinite there."""
    if exact.is_nan(_F32.format, code):
        return exact.nan_of(t.format)
    if t.name == "bf16":
        return code >> 16
    return (
        exact.infinity(t.format, 0)
        if code >= _2_16 and not code >> 31
        else floats(t, _F32, code, rounding="rz")
    )


@cache
def _results(t: ScalarType, unit: str) -> NDArray[np.uint32]:
    """The results of all 65,536 operands."""
    with np.errstate(all="ignore"):
        wide = floats.text(ARRAYS, _F32, t, np.arange(1 << 16, dtype=np.uint16))
        out: Array = getattr(special_words, unit)(ARRAYS, wide)
        if t.name == "bf16":
            narrow = out >> 16
        else:
            narrow = floats.text(ARRAYS, t, _F32, out, how=Rounded("rz"))
            narrow = np.where(out.view(np.float32) >= 2.0**16, t.infinity, narrow)
    nan = out & _MAGNITUDE > special.INFINITY
    return np.where(nan, t.nan, narrow).astype(np.uint32)


# --- f64 ------------------------------------------------------------------------------------------


@rule
def rcp64(t: ScalarType, a: int, *, ftz: bool = False) -> int:
    """rcp.approx.ftz.f64: the upper word alone; the lower one is neither read nor computed."""
    return special.rcp64h(a >> 32) << 32


@rcp64.words
def _(w: Words, t: ScalarType, a: Word, *, ftz: bool = False) -> Word:
    return _upper(w, "rcp64h", a)


def _upper(w: Words, unit: str, a: Word) -> Word:
    return _unit(w, unit, (a >> 32).astype(np.uint32)).astype(np.uint64) << 32


@rule
def rsqrt64(t: ScalarType, a: int, *, ftz: bool = False) -> int:
    """rsqrt.approx.f64: with .ftz the upper word alone, else refined by one step of third order.

    Measured: what is no positive normal number goes its own way; a subnormal one is scaled.
    """
    if ftz:
        return special.rsq64h(a >> 32) << 32
    x = exact.read(t.format, a)
    if (a >> 32) - 0x100000 & 0xFFFFFFFF < 0x7FE00000:
        return _refined(a)
    if exact.is_nan(t.format, a):
        return exact.nan_of(t.format, a)
    if a & (1 << 63) - 1 == 0:
        return exact.infinity(t.format, x.sign)
    if x.sign:
        return exact.nan_of(t.format)
    if a == t.infinity:
        return 0
    return floating.mul(t, _refined(floating.mul(t, a, _power(54))), _power(27))


@rsqrt64.words
def _(w: Words, t: ScalarType, a: Word, *, ftz: bool = False) -> Word:
    if ftz:
        return _upper(w, "rsq64h", a)
    x, infinity = a.view(np.float64), t.infinity
    subnormal = (x > 0) & (x < 2.0**-1022)
    scaled = w.put(subnormal, lambda: x * 2.0**54, x)
    ordinary = (scaled > 0) & (scaled < float("inf"))
    out = _all_refined(w, w.select(ordinary, scaled, 1.0))
    words = w.put(subnormal, lambda: out * 2.0**27, out).view(np.uint64)
    words = w.put(a == infinity, 0, words)
    words = w.put(x < 0, t.nan, words)
    words = w.put(x == 0, lambda: a | infinity, words)
    return w.put(x != x, lambda: a | 1 << 51, words)


def _power(n: int) -> int:
    return 1023 + n << 52


_ONE64, _HALF64, _THREE_EIGHTHS = 0x3FF << 52, 0x3FE << 52, 0x3FD8 << 48
_SIGN64 = 1 << 63


def _refined(x: int) -> int:
    """y + y·e·(1/2 + 3/8 e), where y approximates 1/sqrt(x) and e = 1 - x·y·y."""
    y = special.rsq64h(x >> 32) << 32
    e = fused.fma(_F64, x, floating.mul(_F64, y, y) ^ _SIGN64, _ONE64)
    factor = fused.fma(_F64, e, _THREE_EIGHTHS, _HALF64)
    return fused.fma(_F64, factor, floating.mul(_F64, y, e), y)


def _all_refined(w: Words, x: Word) -> Word:
    y = _upper(w, "rsq64h", x.view(np.uint64)).view(np.float64)
    e = w.fused(x, -(y * y), np.float64(1.0))
    factor = w.fused(e, np.float64(0.375), np.float64(0.5))
    return w.fused(factor, y * e, y)
