"""Mistakes after the instruction: where a kernel stores D, and what it does to it before.

A wrong index writes some elements twice and others never. Of two elements of a lane the later one
stays, of two lanes either may. What is never written holds what was there before, one value or C;
anything else there counts as wrong. Elements that leave the matrix are lost, or go on in the next
row; where all of them are lost, D alone does not tell where they went.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from dtypes import FORMATS, Array, Format, convert, decode_values, encode
from emulator.layout.fragment import Fragment
from emulator.layout.lanemap import COL, ROW, digits
from emulator.tools.faults.kernel import Kernel, Variant
from emulator.tools.faults.matrices import formulas

# --- where it is stored ---------------------------------------------------------------------------


def wrong_store(kernel: Kernel) -> Iterator[Variant]:
    """A term of the row or column to which elements of D go is wrong, or the stride of its rows."""
    fragment, wrong = kernel.ins.fragment("d"), (kernel.suspects or {}).get("d")
    if "d" not in kernel.aims or fragment.groups > 1 or (wrong is not None and not wrong.any()):
        return
    rows, cols = fragment.shape
    for text, lanes, elements in formulas(fragment):
        row, col = (digits(lanes, axis)[:, None] + digits(elements, axis) for axis in (ROW, COL))
        outside = (row >= rows) | (col >= cols)
        place = row * cols + col
        yield _stored(kernel, fragment, np.where(outside, -1, place), f"D: {text}")
        if outside.any():
            text = f"D: {text} (what leaves a row goes on in the next)"
            yield _stored(kernel, fragment, place, text)
    for stride in sorted({rows, cols // 2, cols * 2, *(cols + x for x in (-1, 1, 4, 8, 16))}):
        if stride != cols:
            place = fragment.coords[..., 0] * stride + fragment.coords[..., 1]
            text = f"D: rows stored {stride} elements apart instead of {cols}"
            yield _stored(kernel, fragment, place, text)


def _stored(kernel: Kernel, fragment: Fragment, place: NDArray[np.intp], text: str) -> Variant:
    """With element i of a lane stored as element ``place[lane, i]`` of D, if it is one."""
    seen, c = kernel.aims["d"].reshape(-1), kernel.matrix("c").reshape(-1)
    kept = (place >= 0) & (place < seen.size)
    for i in range(1, fragment.elements):
        kept[:, :i] &= place[:, :i] != place[:, i : i + 1]
    to, held = place[kept], fragment.lane_map.flat[kept]
    never = np.bincount(to, minlength=seen.size) == 0

    def change(words: Array) -> Array:
        codes = fragment.gather(words).reshape(-1)[held]
        out = np.zeros_like(seen)
        before = seen[never]
        if (before == before[:1]).all() or np.array_equal(before, c[never]):
            out[never] = before
        out[to] = codes
        same = codes == seen[to]
        out[to[same]] = codes[same]
        return fragment.scatter(out.reshape(fragment.shape))

    return Variant("d", text, kernel.changing("d", change))


# --- what is done to it ---------------------------------------------------------------------------


def changed_result(kernel: Kernel) -> Iterator[Variant]:
    """D negated, scaled, cut off at zero, or rounded to a smaller type before it is stored."""
    fragment = kernel.ins.fragment("d")
    fmt = fragment.fmt
    yield _changed(kernel, "D with the other sign", partial(_negated, fmt))
    yield _changed(kernel, "negative elements of D are 0 (ReLU)", partial(_relu, fmt))
    for other in (FORMATS[x] for x in ("f16", "bf16", "tf32")):
        if fmt.is_float and other.mantissa_bits < fmt.mantissa_bits:
            through = partial(_through, fmt, other)
            yield _changed(kernel, f"D rounded to {other.name} on the way", through)
    seen, right = kernel.aims.get("d"), kernel.result()
    if seen is None or right is None or fmt.bits > 32:
        return
    for factor in _factors(decode_values(fmt, right), decode_values(fmt, seen)):
        yield _changed(kernel, f"D times {factor:.9g}", partial(_scaled, fmt, factor))


def _changed(kernel: Kernel, text: str, change: Callable[[Array], Array]) -> Variant:
    fragment = kernel.ins.fragment("d")
    reads = kernel.changing("d", lambda words: fragment.scatter(change(fragment.gather(words))))
    return Variant("d", text, reads)


def _negated(fmt: Format, codes: Array) -> Array:
    if fmt.is_float:
        return codes ^ codes.dtype.type(fmt.sign_mask)
    return np.negative(codes) & codes.dtype.type(fmt.code_mask)


def _relu(fmt: Format, codes: Array) -> Array:
    """As max(D, 0): that of a NaN is 0, too."""
    with np.errstate(invalid="ignore"):
        return np.where(decode_values(fmt, codes) > 0, codes, codes.dtype.type(0))


def _through(fmt: Format, other: Format, codes: Array) -> Array:
    return convert(other, fmt, convert(fmt, other, codes))


def _factors(right: NDArray[np.float64], seen: NDArray[np.float64]) -> Iterator[float]:
    """Numbers that the largest element may have been multiplied by, f32 or simple ones."""
    size = np.where(np.isfinite(right) & np.isfinite(seen) & (seen != 0), np.abs(right), 0)
    at = np.unravel_index(int(np.argmax(size)), size.shape)
    if not size[at]:
        return
    ratio = float(seen[at]) / float(right[at])
    middle = np.float32(ratio)
    below, above = (np.nextafter(middle, np.float32(x)) for x in (-np.inf, np.inf))
    whole, part = round(ratio), round(1 / ratio)
    simple = [float(whole), *([1 / part, np.float32(1 / part)] if part else [])]
    if (square := round(1 / ratio**2)) > 0:
        simple += [np.float32(1 / sqrt(square)).item() * (1 if ratio > 0 else -1)]
    near = {f"{factor:.9g}": float(factor) for factor in (above, below, middle, *simple[::-1])
            if abs(float(factor) / ratio - 1) < 1e-3}  # fmt: skip
    yield from (x for x in reversed(near.values()) if abs(x) != 1)


def _scaled(fmt: Format, factor: float, codes: Array) -> Array:
    """Rounded once, as one multiplication in f32 does."""
    values = decode_values(fmt, codes)
    if fmt.is_float:
        with np.errstate(invalid="ignore", over="ignore"):
            return encode(fmt, values * factor)
    if factor != round(factor):
        return codes
    return (values.astype(np.int64) * round(factor) & fmt.code_mask).astype(codes.dtype)
