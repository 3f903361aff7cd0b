"""Draws tensor maps and coordinates for the launches of copy_record.py."""

from __future__ import annotations

from random import Random
from typing import Any

from copy_kernels import room, slice_bytes

from emulator import EmulatorError, TensorMap
from emulator.memory.tensor_map_bits import ELEMENT_TYPES, SWIZZLES

DTYPES = tuple(ELEMENT_TYPES)
#: a box of a case takes so many bytes of shared memory at most
LARGEST = 3072
Map = dict[str, Any]


def draw_map(
    rng: Random,
    mode: str,
    rank: int,
    swizzle: str = "",
    dtype: str = "",
    interleave: str = "none",
    thin: bool | None = None,
    inner: bool = False,
) -> Map:
    """Arguments of a map that the driver takes, with a small box; `inner`: im2col within."""
    while True:
        found = _draw_map(rng, mode, rank, swizzle, dtype, interleave, thin, inner)
        try:
            given = dict(found)
            make = TensorMap.im2col if given.pop("mode") == "im2col" else TensorMap.tiled
            make(1 << 32, **given)
        except EmulatorError:
            continue
        empty = any(max(low, 0) > high for _, low, high in walks(found))
        if room(found) <= LARGEST and not empty:
            return found


def _draw_map(rng: Random, mode: str, rank: int, swizzle: str, dtype: str, interleave: str,
              thin: bool | None, inner: bool) -> Map:  # fmt: skip
    dtype, swizzle = dtype or rng.choice(DTYPES), swizzle or rng.choice(SWIZZLES)
    size = ELEMENT_TYPES[dtype].bytes
    width = 128 if swizzle == "none" else int(swizzle[:-1])
    channels = rng.choice([n for n in (16, 32, 48, 64, 96, 128) if n <= width]) // size
    most = 12 if rank < 4 else 6
    dims = [rng.randint(1, 3 * channels), *(rng.randint(1, most) for _ in range(rank - 1))]
    unit = 32 if interleave == "32B" else 16
    first = size
    if interleave != "none":
        dims[0], first = rng.randint(1, most), unit
    strides, step = [], dims[0] * first
    for n in dims[1:]:
        step = -(-step // unit) * unit + unit * rng.randint(0, 2)
        strides.append(step)
        step *= n
    thin = rng.random() < 0.3 if thin is None else thin
    steps = [rng.randint(1, 8) if thin else 1 for _ in range(rank)]
    fill = "nan" if ELEMENT_TYPES[dtype].is_float and rng.random() < 0.5 else "zeros"
    out: Map = {
        "mode": mode, "dtype": dtype, "dims": dims, "strides": strides, "element_strides": steps,
        "interleave": interleave, "swizzle": swizzle, "fill": fill,
    }  # fmt: skip
    if mode == "tiled":
        box = [channels, *(rng.randint(1, most) for _ in range(rank - 1))]
        if interleave != "none":
            box[-2] = rng.choice((1, 3, 16, 100, 256))
        return out | {"box": box}
    corners = [(rng.randint(-2, 2), rng.randint(-2, 2)) for _ in range(rank - 2)]
    if inner:
        corners = [(abs(low), -abs(high)) for low, high in corners]
    return out | {
        "lower": [low for low, _ in corners], "upper": [high for _, high in corners],
        "channels": channels, "pixels": rng.randint(1, 40),
    }  # fmt: skip


def extent(given: Map) -> int:
    """Bytes of the tensor."""
    first = slice_bytes(given) or ELEMENT_TYPES[given["dtype"]].bytes
    steps = zip(given["dims"][1:], given["strides"], strict=True)
    most = given["dims"][0] * first + sum((n - 1) * step for n, step in steps)
    return -(-most // 16) * 16


def walks(given: Map) -> list[tuple[int, int, int]]:
    """The dimensions in which an im2col copy walks, with the first and the last place in each."""
    if given["mode"] == "tiled":
        return []
    corners = zip(given["lower"], given["upper"], strict=True)
    first, dims = (0 if slice_bytes(given) else 1), given["dims"]
    return [(i, low, dims[i] - 1 + high) for i, (low, high) in enumerate(corners, first)]


def unit_of(given: Map) -> int:
    """What a coordinate of dimension 0 is a multiple of."""
    return 1 if slice_bytes(given) else max(16 // ELEMENT_TYPES[given["dtype"]].bytes, 1)


def anywhere(rng: Random, given: Map) -> list[int]:
    """Coordinates within, across an edge, beside and far away from a tensor."""
    dims = given["dims"]
    box = given["box"] if given["mode"] == "tiled" else [given["channels"], *[3] * 8]
    kind = rng.random()
    out = []
    for n, b in zip(dims, box, strict=False):
        if kind < 0.25:
            out.append(rng.randint(0, max(n - b, 0)))
        elif kind < 0.75:
            out.append(rng.randint(max(-b, -40) + 1, n - 1))
        else:
            out.append(rng.randint(max(-b, -40) - 2, n + 2))
    if kind > 0.95:
        far = (-(1 << 31), (1 << 31) - 256, -(1 << 20), 1 << 24)
        out[rng.randrange(len(out))] = rng.choice(far)
    return _legal(rng, given, out, False)


def not_negative(rng: Random, given: Map) -> list[int]:
    """Coordinates at which a store may begin, some behind the tensor."""
    out = [rng.randint(0, n - 1 + (rng.random() < 0.1)) for n in given["dims"]]
    return _legal(rng, given, out, True)


def _legal(rng: Random, given: Map, out: list[int], positive: bool) -> list[int]:
    """Coordinates of whole 16 bytes that lie, where a copy walks, between the corners."""
    out[0] -= out[0] % unit_of(given)
    for i, low, high in walks(given):
        least = max(low, 0) if positive else low
        out[i] = rng.randint(least, max(high, least))
    return out
