"""Matrices whose dot products lie at the edges of the quick engines; for the tests of `matmul`.

Exponents have the form row + column + position, so that all m × n dot products of a matrix meet the
alignment cut, the carry or the limit that a regime aims at, not only a few of them.
"""

import importlib

import numpy as np
from designed import any_bits, boundary, limits, of_exponent, window

from dtypes import code_type
from emulator.arith import vector

#: "limits", "low" and "high" are those of the float engines; see `matrices`
REGIMES = ("near", "cut", "carry", "tie", "cancel", "floor", "overflow", "limits", "low", "high",
           "zeros", "specials", "boundary", "any")  # fmt: skip
#: of these no element may need the exact engine, for operands with 11 bits and f32 results
ORDINARY = ("near", "cut", "carry", "tie")


def matrices(rng, case, regime, shape, k):
    """Codes a ``(t, m, K)``, b ``(t, n, K)``, c ``(t, m, n)`` and scales, if the case has any.

    `shape` is (t, m, n, K); K is a multiple of `k`, the instruction's.
    """
    t, m, n, total = shape
    fmt_a, fmt_b, fmt_c = case.arithmetic.a, case.arithmetic.b, case.arithmetic.c
    if not fmt_a.is_float or regime in ("any", "boundary"):
        a, b, c = (
            any_bits(rng, fmt, size)
            if regime != "boundary"
            else rng.choice(boundary(fmt), size) * rng.integers(0, 2, size, code_type(fmt.bits))
            for fmt, size in ((fmt_a, (t, m, total)), (fmt_b, (t, n, total)), (fmt_c, (t, m, n)))
        )
        return a, b, c, *_scales(rng, case, regime, shape)

    fraction_bits, floor, bits = window(case)
    least, top = _product_limits(case)
    base = rng.integers(max(least, -20), min(top, 20), (t, 1, 1), endpoint=True)
    position = np.arange(total) % k

    def steps(low, high):
        return rng.integers(low, high, (t, 1, total), endpoint=True)

    mantissa, jitter = "any", 1
    c_exponent = base + rng.choice([-3, -1, 0, 1, 3, fraction_bits, -fraction_bits], (t, m, n))
    c_exponent += rng.integers(-1, 2, (t, m, n))
    target = base + steps(-3, 3)
    if regime == "cut":
        # One large product (or c), the others at and about the last bit that is kept.
        target = base - fraction_bits + steps(-2, 1)
        target[..., position == rng.integers(0, k)] = base
    elif regime == "carry":
        target, mantissa = base + steps(-1, 1), "ones"
    elif regime == "tie":
        # Half of the last bit of c in position 0; what breaks the tie, or is cut, in the others.
        target = base - bits - steps(1, max(fraction_bits - bits, 0) + 2)
        target[..., position == 0] = base - bits
        mantissa, jitter = np.where(position == 0, "zero", "any"), 0
        c_exponent = np.broadcast_to(base, (t, m, n))
    elif regime == "floor":
        least = rng.choice([floor, case.arithmetic.d.emin], (t, 1, 1))
        target = least - fraction_bits + steps(-2, 1)
        # A few least steps of the result, and tails about the last bit that is kept of them.
        target[..., position == 0] = case.arithmetic.d.emin - bits + rng.integers(0, 2, (t, 1, 1))
        c_exponent = np.where(
            rng.integers(0, 2, (t, m, n)), -5000, fmt_c.emin + rng.integers(-12, 2, (t, m, n))
        )
        mantissa, jitter = np.where(position == 0, "zero", "any"), 0
    elif regime == "overflow":
        highest = case.arithmetic.d.bias
        target = highest + steps(-2, 1) - rng.integers(0, 13, (t, 1, 1))
        c_exponent = highest - rng.integers(0, 4, (t, m, n))
    elif regime in ("low", "high"):
        # 2**-80 and 2**100: what float32 can align.
        target = {"low": -80, "high": 100}[regime] + steps(-3, 1) + rng.integers(-2, 3, (t, 1, 1))
        c_exponent = target[..., :1] + rng.choice([-60, -3, -1, 0, 1, 2], (t, m, n))
    a_exponent, b_exponent = _halves(rng, case, target)
    if regime == "limits":
        # 2**-63 and 2**63: elements whose products float32 is sure to hold.
        side = np.where(rng.integers(0, 2, (t, 1, total)), 1, -1)
        a_exponent = side * 63 + steps(-2, 2)
        b_exponent = np.where(rng.integers(0, 4, (t, 1, total)), -side, side) * 63 + steps(-2, 2)
        c_exponent = rng.integers(-30, 30, (t, m, n))
    a_exponent = a_exponent + rng.integers(-jitter, jitter + 1, (t, m, 1))
    b_exponent = b_exponent + rng.integers(-jitter, jitter + 1, (t, n, 1))
    a = of_exponent(rng, fmt_a, a_exponent, mantissa)
    b = of_exponent(rng, fmt_b, b_exponent, mantissa)
    c = of_exponent(rng, fmt_c, c_exponent)
    if regime == "cancel":
        _cancel(rng, a, b, k, fmt_a)
        c = np.where(rng.integers(0, 3, c.shape), rng.choice(_zeros(fmt_c), c.shape), c)
    # Some dots have few products: a sum of many tails says little about the fate of one.
    used = np.where(rng.integers(0, 2, (t, m, 1)), k, rng.integers(1, 4, (t, m, 1)))
    if regime not in ("cancel", "cut", "carry"):
        a = np.where(position < used, a, a & fmt_a.sign_mask)
    c = np.where(rng.integers(0, 6, c.shape), c, rng.choice(_zeros(fmt_c), c.shape))
    if regime == "zeros":
        a[:, ::2], b[:, ::3] = a[:, ::2] & fmt_a.sign_mask, b[:, ::3] & fmt_b.sign_mask
        c = np.where(rng.integers(0, 2, c.shape), rng.choice(_zeros(fmt_c), c.shape), c)
    a, b, c = (x.astype(code_type(f.bits)) for x, f in ((a, fmt_a), (b, fmt_b), (c, fmt_c)))
    if regime == "specials":
        for x, fmt in ((a, fmt_a), (b, fmt_b), (c, fmt_c)):
            x[rng.integers(0, t), rng.integers(0, x.shape[1]), rng.integers(0, x.shape[2])] = (
                rng.choice(_specials(fmt))
            )
    return a, b, c, *_scales(rng, case, regime, shape)


def chain(case, k, a, b, c, *scales, dot=vector.dot):
    """What `matmul` must give: one `dot` after the other, each element by itself."""
    if scales:
        scales = scales[0][..., :, None, :], scales[1][..., None, :, :]
    for start in range(0, a.shape[-1], k):
        part = slice(start, start + k)
        c = dot(case.arithmetic, a[..., :, None, part], b[..., None, :, part], c, *scales)
    return c


def for_each_instruction(operands, k):
    """The operands of `matmul`, whose scales are those of all k, where `chain` repeats them."""
    a, b, c, *scales = operands
    return a, b, c, *(np.tile(x, a.shape[-1] // k) for x in scales)


def _product_limits(case):
    (a_low, a_high), (b_low, b_high) = limits(case.arithmetic.a), limits(case.arithmetic.b)
    return a_low + b_low, a_high + b_high


def _halves(rng, case, target):
    """Exponents of a and b that add up to `target` where the formats can, about half of it each."""
    (a_low, a_high), (b_low, b_high) = limits(case.arithmetic.a), limits(case.arithmetic.b)
    low = np.clip(target - b_high, a_low, a_high)
    high = np.maximum(np.clip(target - b_low, a_low, a_high), low)
    first = np.clip(target // 2 + rng.integers(-4, 5, target.shape), low, high)
    return first, target - first


def _cancel(rng, a, b, k, fmt_a):
    """In place: the products of each instruction come in pairs of opposite sign, shuffled."""
    half = k // 2
    for start in range(0, a.shape[-1], k):
        order = start + rng.permutation(k)
        first, second = order[:half], order[half : 2 * half]
        a[..., second] = a[..., first] ^ a.dtype.type(fmt_a.sign_mask)
        b[..., second] = b[..., first]


def _zeros(fmt):
    """Zeros of both signs and the least and largest subnormals."""
    codes = [0, 1 << fmt.ignored_bits, (1 << fmt.mantissa_bits) - 1 << fmt.ignored_bits]
    return np.array([0, 0, *codes, *(c | fmt.sign_mask for c in (0, 0, *codes))], np.uint64)


def _specials(fmt):
    """Infinities and NaNs, or the largest numbers of a format that has none."""
    codes = [fmt.code_mask >> 1, fmt.code_mask]
    if fmt.infinity is not None:
        codes += [
            fmt.infinity,
            fmt.infinity | fmt.sign_mask,
            fmt.infinity + (1 << fmt.ignored_bits),
        ]
    return np.array(codes, np.uint64)


def _scales(rng, case, regime, shape):
    """Scale codes ``(t, m, v)`` and ``(t, n, v)``."""
    if not case.v:
        return ()
    fmt, (t, m, n, _) = case.arithmetic.scale, shape
    sizes = (t, m, case.v), (t, n, case.v)
    if regime in ("any", "boundary"):
        return tuple(rng.choice(boundary(fmt), size) for size in sizes)
    middle = fmt.bias << fmt.mantissa_bits
    far = {"limits": (60, 61, 62, 63, 64, 65, -60, -61, -62, -63, -64, -65),
           "low": range(-48, -34), "high": range(43, 57)}  # fmt: skip
    steps = far.get(regime, range(-3, 4)) if fmt.name == "ue8m0" else range(-20, 21)
    if regime == "zeros" and fmt.has_zero:
        steps = range(-middle, 3 - middle + 2 * (1 << fmt.mantissa_bits))  # subnormals too
    if regime in ("cut", "tie") and case.v > 1:
        # Groups whose scales lie as far apart as the alignment reaches; half of it on each side.
        apart = window(case)[0] // 2 + rng.integers(-1, 3, (t, 1, case.v))
        down = (apart * rng.integers(0, 2, (t, 1, case.v))) << fmt.mantissa_bits
        up = min(7 << fmt.mantissa_bits, fmt.max_finite - middle)
        return tuple(
            np.maximum(middle + up - down + rng.integers(0, 2, size), 0).astype(np.uint8)
            for size in sizes
        )
    if regime == "specials" and fmt.nan is not None:
        return tuple(
            np.where(rng.integers(0, 30, size), middle, fmt.nan).astype(code_type(fmt.bits))
            for size in sizes
        )
    return tuple((middle + rng.choice(steps, size)).astype(code_type(fmt.bits)) for size in sizes)


def masks_of_recomputed(monkeypatch):
    """From now on: the masks of what was computed by single dots. All of it must not be."""
    quick = importlib.import_module("emulator.arith.matmul")
    masks, one_by_one = [], quick._recompute

    def spy(*given):
        masks.append(given[-1].copy())
        one_by_one(*given)

    def refuse(*_):
        raise AssertionError("all of it went to single dots")

    monkeypatch.setattr(quick, "_recompute", spy)
    monkeypatch.setattr(quick, "_by_dots", refuse)
    return masks
