"""Exact integer dot products of whole matrices: by float32 matmul where its sums stay exact, and
by counting the bits of packed words.

A sum of products below 2**24 is exact in float32 in whatever order a BLAS adds it, fused or not.
"""

from __future__ import annotations

import numpy as np

from dtypes import Array, Format, decode_integers
from emulator.arith.fast.factors import Float32
from emulator.arith.recipes import Arithmetic

_EXACT = 1 << 24
#: results held at a time where bits are counted: their arrays fit a cache
_COUNTS = 1 << 16


def dot(arithmetic: Arithmetic, a: Array, b: Array, c: Array, k: int) -> Array:
    """``c + Σ a·b`` of codes ``(…, m, K)``, ``(…, n, K)``, ``(…, m, n)``, wrapped to 32 bits.

    With .satfinite the sum is clamped after every k positions, as K / k instructions do.
    """
    largest = _magnitude(arithmetic.a) * _magnitude(arithmetic.b)
    step = max(1, _EXACT // largest)
    x = c.view(np.int32)
    p, q = _values(arithmetic.a, a), np.swapaxes(_values(arithmetic.b, b), -1, -2)
    total = a.shape[-1]
    # A clamp that no sum can reach needs no look at every step.
    clamps = arithmetic.saturate and (
        int(np.abs(x.astype(np.int64)).max(initial=0)) + largest * total > arithmetic.d.max_finite
    )
    if clamps:
        low, high = -arithmetic.d.sign_mask, arithmetic.d.max_finite
        for start in range(0, total, k):
            exact, end = x.astype(np.int64), min(start + k, total)
            for first in range(start, end, step):
                part = slice(first, min(first + step, end))
                exact = exact + (p[..., part] @ q[..., part, :]).astype(np.int64)
            x = np.clip(exact, low, high).astype(np.int32)
    else:
        for start in range(0, total, step):
            part = slice(start, start + step)
            x = x + (p[..., part] @ q[..., part, :]).astype(np.int32)
    return x.view(np.uint32)


def popcount_dot(arithmetic: Arithmetic, a: Array, b: Array, c: Array, compiled: bool) -> Array:
    """c plus the number of positions where ``a op b`` is 1; bits ``(t, m, K)``, ``(t, n, K)``."""
    p, q = packed_bits(a), packed_bits(b)
    if compiled:
        from emulator.arith.fast import compiled as kernels

        return kernels.popcount_dot(p, q, c, arithmetic.bit_operation == "and")
    combine = np.bitwise_xor if arithmetic.bit_operation == "xor" else np.bitwise_and
    shape = np.broadcast_shapes(c.shape, (*p.shape[:-1], 1), (*q.shape[:-2], 1, q.shape[-2]))
    out = np.array(np.broadcast_to(c, shape))
    words = np.ascontiguousarray(np.moveaxis(q, -1, 0))
    rows = max(1, _COUNTS // max(1, out[..., 0, :].size))
    for start in range(0, out.shape[-2], rows):
        part = slice(start, start + rows)
        for word in range(len(words)):
            ones = combine(p[..., part, word, None], words[word][..., None, :])
            out[..., part, :] += np.bitwise_count(ones)
    return out


def packed_bits(bits: Array) -> Array:
    """One bit per element ``(…, k)`` to uint64 words ``(…, ⌈k / 64⌉)``."""
    packed = np.packbits(bits, axis=-1)
    missing = -packed.shape[-1] % 8
    words = np.pad(packed, [(0, 0)] * (packed.ndim - 1) + [(0, missing)])
    return np.ascontiguousarray(words).view(np.uint64)


def _magnitude(fmt: Format) -> int:
    return max(-fmt.lowest, fmt.max_finite)


def _values(fmt: Format, codes: Array) -> Float32:
    """The integers that codes mean, of up to 8 bits or of a sign and a magnitude."""
    if not fmt.sign_mask:
        return codes.astype(np.float32)
    if fmt.magnitude_bits is not None:
        return decode_integers(fmt, codes).astype(np.float32)
    sign = np.uint8(fmt.sign_mask)
    extended = ((codes.astype(np.uint8, copy=False) ^ sign) - sign).view(np.int8)
    return extended.astype(np.float32)
