"""Approximate functions: the special function unit and what ptxas puts around it (PTX ISA 9.7.3).

The sequences were read off the machine code of sm_75 to sm_121a, which is the same, and compared
with an H200 over every input. Their multiplications and additions are ordinary ones, which round
to nearest and return the canonical NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dtypes import Array
from emulator.arith import special, special_arrays
from emulator.arith.scalar import exact, floating, fused
from emulator.arith.scalar.comparison import holds, holds_array
from emulator.arith.scalar.conversion import floats
from emulator.arith.scalar.rule import Rule, rule
from emulator.arith.scalar.types import TYPES, ScalarType

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


def _muls(a: Array, b: Any, ftz: bool = False) -> Array:
    return _on_arrays(floating.mul, _F32, a, np.uint32(b) if isinstance(b, int) else b, ftz=ftz)


def _on_arrays(found: Rule, *args: Any, **options: Any) -> Array:
    assert found.array is not None
    return found.array(*args, **options)


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


@ex2.vector
def _(t: ScalarType, a: Array, *, ftz: bool = False) -> Array:
    if ftz:
        return special_arrays.ex2(a)
    low = holds_array(t, a, np.uint32(_MINUS_126), "lt", False)
    if not low.any():
        return special_arrays.ex2(a)
    root = special_arrays.ex2(np.where(low, _muls(a, _HALF), a))
    return np.where(low, _muls(root, root), root)


def _scaled(unit: Callable[[int], int], last: Callable[[int], int], a: int, ftz: bool) -> int:
    """A unit without .ftz: a subnormal argument is scaled by 2**24, and the result corrected."""
    if ftz or not _less(a, _TINY):
        return unit(a)
    return last(unit(_mul(a, _2_24)))


def _scaled_all(
    unit: Callable[[Array], Array], last: Callable[[Array], Array], a: Array, ftz: bool
) -> Array:
    if ftz:
        return unit(a)
    tiny = a & np.uint32(_MAGNITUDE) < np.uint32(_TINY)
    if not tiny.any():
        return unit(a)
    out = unit(np.where(tiny, _muls(a, _2_24), a))
    return np.where(tiny, last(out), out)


@rule
def lg2(t: ScalarType, a: int, *, ftz: bool = False) -> int:
    """lg2.approx.f32."""
    return _scaled(special.lg2, lambda y: floating.add(t, y, _MINUS_24), a, ftz)


@lg2.vector
def _(t: ScalarType, a: Array, *, ftz: bool = False) -> Array:
    def less_24(y: Array) -> Array:
        return _on_arrays(floating.add, t, y, np.uint32(_MINUS_24))

    return _scaled_all(special_arrays.lg2, less_24, a, ftz)


@rule
def rsqrt(t: ScalarType, a: int, *, ftz: bool = False) -> int:
    """rsqrt.approx.f32."""
    return _scaled(special.rsqrt, lambda y: _mul(y, _2_12), a, ftz)


@rsqrt.vector
def _(t: ScalarType, a: Array, *, ftz: bool = False) -> Array:
    return _scaled_all(special_arrays.rsqrt, lambda y: _muls(y, _2_12), a, ftz)


@rule
def sqrt(t: ScalarType, a: int, *, ftz: bool = False) -> int:
    """sqrt.approx.f32."""
    return _scaled(special.sqrt, lambda y: _mul(y, _2_MINUS_12), a, ftz)


@sqrt.vector
def _(t: ScalarType, a: Array, *, ftz: bool = False) -> Array:
    return _scaled_all(special_arrays.sqrt, lambda y: _muls(y, _2_MINUS_12), a, ftz)


@rule
def sin(t: ScalarType, a: int, *, ftz: bool = False) -> int:
    """sin.approx.f32: the argument as revolutions, cut toward zero. .ftz changes nothing."""
    return special.sin(floating.mul(t, a, _TURN, rounding="rz"))


@sin.vector
def _(t: ScalarType, a: Array, *, ftz: bool = False) -> Array:
    return special_arrays.sin(_turns(t, a))


@rule
def cos(t: ScalarType, a: int, *, ftz: bool = False) -> int:
    """cos.approx.f32; as `sin`."""
    return special.cos(floating.mul(t, a, _TURN, rounding="rz"))


@cos.vector
def _(t: ScalarType, a: Array, *, ftz: bool = False) -> Array:
    return special_arrays.cos(_turns(t, a))


def _turns(t: ScalarType, a: Array) -> Array:
    return _on_arrays(floating.mul, t, a, np.uint32(_TURN), rounding="rz")


@rule
def tanh(t: ScalarType, a: int) -> int:
    """tanh.approx.f32."""
    return special.tanh(a)


@tanh.vector
def _(t: ScalarType, a: Array) -> Array:
    return special_arrays.tanh(a)


# --- quotients ------------------------------------------------------------------------------------
# ptxas fuses the last multiplication of rcp.approx.f32, div.approx.f32 and div.full.f32 with an
# addition that follows: `factors` gives the two factors instead of their product.


@rule
def rcp(t: ScalarType, a: int, *, ftz: bool = False, factors: bool = False) -> Any:
    """rcp.approx.f32: without .ftz the argument is scaled by k into the reach of the unit, and its
    reciprocal by the same k."""
    if ftz:
        return special.rcp(a)
    k = _QUARTER if _above(a, _HUGE) else _2_24 if _less(a, _TINY) else special.ONE
    y = special.rcp(_mul(a, k))
    return (k, y) if factors else _mul(k, y)


@rcp.vector
def _(t: ScalarType, a: Array, *, ftz: bool = False, factors: bool = False) -> Any:
    if ftz:
        return special_arrays.rcp(a)
    magnitude = a & np.uint32(_MAGNITUDE)
    k = np.full_like(magnitude, special.ONE)
    k = np.where(magnitude < np.uint32(_TINY), np.uint32(_2_24), k)
    k = np.where(_all_above(magnitude, _HUGE), np.uint32(_QUARTER), k)
    y = special_arrays.rcp(_muls(a, k))
    return (k, y) if factors else _muls(k, y)


@rule
def div(
    t: ScalarType, a: int, b: int, *, full: bool = False, ftz: bool = False, factors: bool = False
) -> Any:
    """div.approx.f32, and div.full.f32, which scales both operands where b is very large; without
    .ftz they are scaled where b is subnormal."""
    if full and _above(b, _HUGE):
        a, b = _mul(a, _QUARTER, ftz), _mul(b, _QUARTER, ftz)
    elif not ftz and _less(b, _TINY):
        a, b = _mul(a, _2_24), _mul(b, _2_24)
    y = special.rcp(b)
    return (y, a) if factors else _mul(y, a, ftz)


@div.vector
def _(
    t: ScalarType,
    a: Array,
    b: Array,
    *,
    full: bool = False,
    ftz: bool = False,
    factors: bool = False,
) -> Any:
    magnitude = b & np.uint32(_MAGNITUDE)
    steps = []
    if full:
        steps.append((_all_above(magnitude, _HUGE), _QUARTER))
    if not ftz:
        steps.append((magnitude < np.uint32(_TINY), _2_24))
    for where, factor in steps:
        if where.any():
            a = np.where(where, _muls(a, factor, ftz), a)
            b = np.where(where, _muls(b, factor, ftz), b)
    y = special_arrays.rcp(b)
    return (y, a) if factors else _muls(y, a, ftz)


def _above(a: int, limit: int) -> bool:
    """abs(a) > limit: false for a NaN."""
    return limit < a & _MAGNITUDE <= special.INFINITY


def _all_above(magnitude: Array, limit: int) -> Array:
    return (magnitude > np.uint32(limit)) & (magnitude <= np.uint32(special.INFINITY))


# --- f16, bf16 ------------------------------------------------------------------------------------


@rule
def ex2_half(t: ScalarType, a: int, *, ftz: bool = False) -> int:
    """ex2.approx of f16 and .ftz.bf16: the unit on the widened operand, its result cut."""
    return _narrow(t, special.ex2(floats(_F32, t, a)))


@ex2_half.vector
def _(t: ScalarType, a: Array, *, ftz: bool = False) -> Array:
    return _results(t, "ex2")[a]


@rule
def tanh_half(t: ScalarType, a: int) -> int:
    """tanh.approx of f16 and bf16: the unit on the widened operand, its result cut."""
    return _narrow(t, special.tanh(floats(_F32, t, a)))


@tanh_half.vector
def _(t: ScalarType, a: Array) -> Array:
    return _results(t, "tanh")[a]


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


_RESULTS: dict[tuple[str, str], Array] = {}


def _results(t: ScalarType, unit: str) -> Array:
    """The results of all 65,536 operands, made when they are first needed."""
    if (t.name, unit) not in _RESULTS:
        wide = _on_arrays(floats, _F32, t, np.arange(1 << 16, dtype=np.uint16))
        out = getattr(special_arrays, unit)(wide)
        if t.name == "bf16":
            narrow = (out >> np.uint32(16)).astype(np.uint16)
        else:
            narrow = _on_arrays(floats, t, _F32, out, rounding="rz")
            narrow = np.where(
                out.view(np.float32) >= 2.0**16, np.uint16(t.format.infinity or 0), narrow
            )
        nan = out & np.uint32(_MAGNITUDE) > np.uint32(special.INFINITY)
        _RESULTS[t.name, unit] = np.where(nan, np.uint16(t.format.nan or 0), narrow)
    return _RESULTS[t.name, unit]


# --- f64 ------------------------------------------------------------------------------------------


@rule
def rcp64(t: ScalarType, a: int, *, ftz: bool = False) -> int:
    """rcp.approx.ftz.f64: the upper word alone; the lower one is neither read nor computed."""
    return special.rcp64h(a >> 32) << 32


@rcp64.vector
def _(t: ScalarType, a: Array, *, ftz: bool = False) -> Array:
    return _upper(special_arrays.rcp64h, a)


def _upper(unit: Callable[[Array], Array], a: Array) -> Array:
    return unit(a >> np.uint64(32)).astype(np.uint64) << np.uint64(32)


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
    if a == t.format.infinity:
        return 0
    return floating.mul(t, _refined(floating.mul(t, a, _power(54))), _power(27))


@rsqrt64.vector
def _(t: ScalarType, a: Array, *, ftz: bool = False) -> Array:
    if ftz:
        return _upper(special_arrays.rsq64h, a)
    x = a.view(np.float64)
    subnormal = (x > 0) & (x < 2.0**-1022)
    scaled = np.where(subnormal, x * 2.0**54, x)
    ordinary = (scaled > 0) & np.isfinite(scaled)
    out = _all_refined(np.where(ordinary, scaled, 1.0).view(np.uint64)).view(np.float64)
    words = np.where(subnormal, out * 2.0**27, out).view(np.uint64)
    infinity, sign = np.uint64(t.format.infinity or 0), a & np.uint64(1 << 63)
    words = np.where(a == infinity, np.uint64(0), words)
    words = np.where(x < 0, np.uint64(t.format.nan or 0), words)
    words = np.where(x == 0, infinity | sign, words)
    return np.where(np.isnan(x), a | np.uint64(1 << 51), words)


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


def _all_refined(x: Array) -> Array:
    y = _upper(special_arrays.rsq64h, x)
    square = y.view(np.float64) * y.view(np.float64)
    e = _fma64(x, (-square).view(np.uint64), np.uint64(_ONE64))
    factor = _fma64(e, np.uint64(_THREE_EIGHTHS), np.uint64(_HALF64))
    correction = (y.view(np.float64) * e.view(np.float64)).view(np.uint64)
    return _fma64(factor, correction, y)


def _fma64(a: Array, b: Any, c: Any) -> Array:
    return _on_arrays(fused.fma, _F64, a, b, c)
