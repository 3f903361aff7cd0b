"""Mistakes after the instruction: where a kernel stores D, and what it does to it before.

A wrong index writes some elements twice and others never. Of two elements of a warp's lanes the
later one stays; of equal ones, and of two warps, any may. What is never written holds what was
there before, one value or C; anything else there counts as wrong. Elements that leave the matrix
are lost, or continue in the next row; where all of them are lost, D alone does not show where they
went.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from math import sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtypes import FORMATS, Array, Format, convert, decode_values, encode
from emulator.layout.fragment import Fragment
from emulator.layout.lanemap import COL, ROW, digits
from emulator.tools.faults.kernel import RecordedKernel, Variant
from emulator.tools.faults.matrices import formulas

#: ``(lanes, elements)``, or flat
Places = NDArray[np.intp]

# --- where it is stored ---------------------------------------------------------------------------


def wrong_store(kernel: RecordedKernel) -> Iterator[Variant]:
    """A term of the row or column to which elements of D go is wrong, or the stride of its rows."""
    fragment, wrong = kernel.ins.fragment("d"), (kernel.suspects or {}).get("d")
    if "d" in kernel.aims and fragment.groups == 1 and (wrong is None or wrong.any()):
        stores = [(_writers(fragment, place), text) for text, place in wrong_places(fragment)]
        # Where it is open who stays, more can be explained: the likelier ones come first.
        stores.sort(key=lambda x: x[0].open)
        for writers, text in stores:
            yield _stored(kernel, writers, f"D: {text}")


def wrong_places(fragment: Fragment) -> Iterator[tuple[str, Places]]:
    """Wrong stores: which element of D each of a lane's is stored as, negative for none."""
    rows, cols = fragment.shape
    for text, lanes, elements in formulas(fragment):
        row, col = (digits(lanes, axis)[:, None] + digits(elements, axis) for axis in (ROW, COL))
        outside = (row >= rows) | (col >= cols)
        yield text, np.where(outside, -1, row * cols + col)
        if outside.any():
            yield f"{text} (what leaves a row goes on in the next)", row * cols + col
    for stride in sorted({rows, cols // 2, cols * 2, *(cols + x for x in (-1, 1, 4, 8, 16))}):
        if stride != cols:
            place = fragment.coords[..., 0] * stride + fragment.coords[..., 1]
            yield f"rows stored {stride} elements apart instead of {cols}", place


class _Writers(NamedTuple):
    """Elements that may have been stored last: flat indices in D, and where they were stored."""

    held: Places
    to: Places
    #: how many more there are than places
    open: int


def _writers(fragment: Fragment, place: Places) -> _Writers:
    size, kept = fragment.lane_map.flat.size, np.zeros(place.shape, bool)
    element = np.broadcast_to(np.arange(fragment.elements), place.shape)
    inside = (place >= 0) & (place < size)
    for first in range(0, fragment.lanes, 32):
        warp = slice(first, first + 32)
        at, there = place[warp], inside[warp]
        last = np.full(size, -1)
        np.maximum.at(last, at[there], element[warp][there])
        kept[warp] = there & (element[warp] == last[np.where(there, at, 0)])
    to = place[kept]
    return _Writers(fragment.lane_map.flat[kept], to, len(to) - len(np.unique(to)))


def _stored(kernel: RecordedKernel, writers: _Writers, text: str) -> Variant:
    fragment = kernel.ins.fragment("d")
    seen, c = kernel.aims["d"].reshape(-1), kernel.matrix("c").reshape(-1)
    held, to, _ = writers
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


def changed_result(kernel: RecordedKernel) -> Iterator[Variant]:
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


def _changed(kernel: RecordedKernel, text: str, change: Callable[[Array], Array]) -> Variant:
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
    near = {
        f"{factor:.9g}": float(factor)
        for factor in (above, below, middle, *simple[::-1])
        if abs(float(factor) / ratio - 1) < 1e-3
    }
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
