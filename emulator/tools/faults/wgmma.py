"""Mistakes with matrix descriptors, tiles in shared memory and the immediates of wgmma.

Each function yields the ways of making one mistake with a kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from dtypes import Array, Place, pack
from emulator.errors import EmulatorError
from emulator.layout.addressing import FIELDS, SWIZZLES
from emulator.layout.descriptor import Descriptor
from emulator.layout.tile import LINE_BYTES, STRIDES, WINDOW, TileShape
from emulator.memory.descriptors import store_tile
from emulator.tools.descriptors.mistakes import (
    EXCHANGED,
    Raw,
    exchanged,
    raw_fields,
    scaling_mistakes,
    swizzle_codes,
)
from emulator.tools.faults.kernel import Kernel, Variant
from emulator.tools.operands import tile_in_memory

#: bytes from one value of a field to the next one that is worth trying
_NEIGHBOURS = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
_START = "start_address"


def _descriptors(kernel: Kernel) -> Iterator[tuple[str, Raw]]:
    """Operands in shared memory, and the raw fields of their descriptors ``(steps,)``."""
    for operand in "ab":
        words = kernel.words.get(f"descriptor_{operand}")
        if words is not None:
            yield operand, raw_fields(words)


def _with_fields(kernel: Kernel, operand: str, raw: Raw, changed: Raw, text: str) -> Variant:
    """What does not fit a field runs over into those above it, as in a kernel that ORs them."""
    word = np.zeros(kernel.steps, np.uint64)
    for name, (low, _) in FIELDS.items():
        value: Any = np.asarray((raw | changed)[name]).astype(np.uint64)
        word = word | value << np.uint64(low)
    other = kernel.using(**{f"descriptor_{operand}": word})
    return Variant(operand, f"descriptor of {operand.upper()}: {text}", other)


def exchanged_offsets(kernel: Kernel) -> Iterator[Variant]:
    """LBO and SBO in each other's place."""
    for operand, raw in _descriptors(kernel):
        yield _with_fields(kernel, operand, raw, exchanged(raw), EXCHANGED)


def wrong_swizzle(kernel: Kernel) -> Iterator[Variant]:
    """The swizzle mode of the descriptor is not that of the tile."""
    names = {code: bytes_ for bytes_, code in SWIZZLES.items()}
    for operand, raw in _descriptors(kernel):
        now = names[int(raw["swizzle"][0])]
        whose = dict(swizzle_codes(now))
        for other in sorted(set(SWIZZLES) - {now}):
            code = SWIZZLES[other]
            reason = f": {whose[code]}" if code in whose else ""
            text = f"swizzle {_mode(other)} instead of {_mode(now)}{reason}"
            yield _with_fields(kernel, operand, raw, {"swizzle": code}, text)


def wrong_base_offset(kernel: Kernel) -> Iterator[Variant]:
    """The base offset of a tile that does not start where its swizzle pattern does."""
    for operand, raw in _descriptors(kernel):
        now = int(raw["base_offset"][0])
        for base in range(8):
            if base != now:
                text = f"base offset {base} instead of {now}"
                yield _with_fields(kernel, operand, raw, {"base_offset": base}, text)


def wrong_units(kernel: Kernel) -> Iterator[Variant]:
    """Addresses and offsets that are not bytes divided by 16."""
    for operand, raw in _descriptors(kernel):
        size = max(1, tile_in_memory(kernel.ins, operand, kernel.options).place.width // 8)
        for what, names in (
            ("start address", (_START,)),
            ("leading byte offset (LBO)", STRIDES[:1]),
            ("stride byte offset (SBO)", STRIDES[1:]),
            ("offsets (LBO, SBO)", STRIDES),
            ("start address and offsets", (_START, *STRIDES)),
        ):
            for text, make in scaling_mistakes(size):
                changed = {name: make(raw[name], size) for name in names}
                yield _with_fields(kernel, operand, raw, changed, f"{what}: {text}")


def wrong_offset(kernel: Kernel) -> Iterator[Variant]:
    """An offset of the descriptor of another size."""
    for operand, raw in _descriptors(kernel):
        for name, short in zip(STRIDES, ("LBO", "SBO"), strict=True):
            now = int(raw[name][0]) * LINE_BYTES
            likely = {0, 16, now // 2, now * 2, *_NEIGHBOURS, now + 16, now - 16}
            for other in sorted(likely - {now}):
                if 0 <= other < WINDOW:
                    text = f"{name.replace('_', ' ')} ({short}) is {other} instead of {now}"
                    yield _with_fields(kernel, operand, raw, {name: other // LINE_BYTES}, text)


def wrong_start(kernel: Kernel) -> Iterator[Variant]:
    """The start address is off: not advanced along k, or advanced by another amount."""
    for operand, raw in _descriptors(kernel):
        start = raw[_START]
        rows, k, where, _ = tile_in_memory(kernel.ins, operand, kernel.options)
        step = k * where.width // 8
        if kernel.steps > 1:
            moved, count = start - start[0], np.arange(len(start), dtype=start.dtype)
            for text, other in (
                ("not advanced: every step along k reads the first", start - moved),
                ("advanced twice as far along k", start + moved),
                ("advanced half as far along k", start[0] + moved // 2),
                ("advanced by elements where bytes are meant",
                 start[0] + moved * 8 // max(8, where.width)),
                ("advanced by 16 bytes for every step along k", start[0] + count),
                (f"advanced by {step} bytes for every step along k",
                 start[0] + count * (step // LINE_BYTES)),
            ):  # fmt: skip
                yield _with_fields(kernel, operand, raw, {_START: other}, text)
        offsets = {*(n * step for n in range(1, 8)), *_NEIGHBOURS, rows * step}
        for offset in (s * x for x in sorted(offsets) for s in (1, -1)):
            other = start.astype(np.int64) + offset // LINE_BYTES
            if (other >= 0).all():
                steps = f" ({abs(offset) // step} steps of k)" if offset % step == 0 else ""
                text = f"start address {offset:+} bytes off{steps}"
                yield _with_fields(kernel, operand, raw, {_START: other}, text)


def wrong_major(kernel: Kernel) -> Iterator[Variant]:
    """The transpose bit says K-major of an MN-major tile, or the reverse."""
    for operand, _ in _descriptors(kernel):
        name = f"imm_trans_{operand}"
        now = kernel.options.get(name, 0)
        text = f"imm-trans-{operand} is {1 - now} instead of {now}"
        yield Variant(operand, text, kernel.setting(**{name: 1 - now}))


def wrong_sign(kernel: Kernel) -> Iterator[Variant]:
    """imm-scale-a or -b negates an operand, or does not."""
    for name in ("imm_scale_a", "imm_scale_b") if kernel.ins.is_wgmma else ():
        now = kernel.options.get(name, 1)
        text = f"{name.replace('_', '-')} is {-now} instead of {now}"
        yield Variant(name[-1], text, kernel.setting(**{name: -now}))


def wrong_tile(kernel: Kernel) -> Iterator[Variant]:
    """The tile is stored in shared memory in another way than the descriptor says."""
    for operand, _ in _descriptors(kernel):
        rows, _, where, major = tile_in_memory(kernel.ins, operand, kernel.options)
        codes = kernel.matrix(operand) if operand == "a" else kernel.matrix(operand).T
        first = Descriptor.decode(kernel.words[f"descriptor_{operand}"][0])
        k = codes.shape[1] * min(8, where.width) // 8
        tile = TileShape(rows, k, max(1, where.width // 8), major)
        for text, other in _other_layouts(first, tile):
            shared = kernel.words["shared"].copy()
            with suppress(EmulatorError):  # the tile does not fit there
                store_tile(shared, other, np.ascontiguousarray(codes), where, major)
                yield Variant(operand, f"{operand.upper()} {text}", kernel.using(shared=shared))
        for text, order in (("row by row", codes), ("column by column", codes.T)):
            shared, start = kernel.words["shared"].copy(), first.start_address
            bytes_ = _bytes(order, where)
            shared[start : start + bytes_.size] = bytes_[: shared.size - start]
            text = f"{operand.upper()} stored as a plain matrix, {text} (no core matrices, no "
            yield Variant(operand, f"{text}swizzle)", kernel.using(shared=shared))


def _other_layouts(first: Descriptor, tile: TileShape) -> Iterator[tuple[str, Descriptor]]:
    """Where a kernel may have put a tile, instead of where its descriptor says."""
    start, now = first.start_address, first.swizzle_bytes
    for width in sorted(set(SWIZZLES) - {now}):
        how = f"with the {width}-byte swizzle" if width else "without swizzle"
        what = f"stored {how}, the descriptor says {_mode(now)}"
        canonical = Descriptor(start, swizzle_bytes=width).with_blocks(tile)
        yield f"{what}, in the canonical layout", canonical
        base = start >> 7 & max(0, width // LINE_BYTES - 1)
        yield what, replace(first, base_offset=base, swizzle_bytes=width)
    for base in range(8 if now else 0):
        if base != first.base_offset:
            text = f"swizzled as with base offset {base}, the descriptor says {first.base_offset}"
            yield text, replace(first, base_offset=base)


def _bytes(codes: Array, where: Place) -> Array:
    """The bytes of a plain row-major matrix."""
    flat = np.ascontiguousarray(codes).reshape(1, -1)
    if where.width < 8:
        return pack(flat, Place(where.width, 0, where.width), 8)[0]
    return flat[0].astype(f"<u{where.width // 8}").view(np.uint8)


def _mode(bytes_: int) -> str:
    return f"{bytes_}B" if bytes_ else "none"
