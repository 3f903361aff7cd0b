"""Mistakes with sparse operands and with block scales.

Each function yields the ways of making one mistake with a kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial

import numpy as np

from dtypes import FORMATS, Array
from emulator.errors import OperandError
from emulator.tools.faults.kernel import Change, RecordedKernel, Variant, split_k
from emulator.tools.faults.registers import Ways, each_operand, of_lanes
from emulator.warp.sparse import spread_out

_SCALES = ("scale_a", "scale_b")

# --- sparsity -------------------------------------------------------------------------------------


def wrong_selector(kernel: RecordedKernel) -> Iterator[Variant]:
    """The sparsity selector names other lanes than those that have the metadata."""
    if "e" not in kernel.words:
        return
    chosen, groups = kernel.options.get("selector", 0), kernel.ins.fragment("e").groups
    for other in range(groups):
        if other == chosen:
            continue
        text = f"selector {other} instead of {chosen}"
        yield Variant("e", text, kernel.setting(selector=other))
        # Where all lanes hold metadata, those of the other selector have another row's.
        for shift in (other - chosen, chosen - other):
            lanes = (np.arange(kernel.ins.lanes) + shift) % kernel.ins.lanes
            text = (
                f"the metadata is in the lanes of selector {other}, selector is {chosen} "
                f"(lane L holds what belongs to lane L {shift:+d})"
            )
            yield Variant("e", text, kernel.using(e=kernel.words["e"][..., lanes]))


def _indices_of_nibbles_swapped(words: Array) -> Array:
    low = words & 0x33333333
    return low << 2 | (words ^ low) >> 2


def _indices_of_bytes_reversed(words: Array) -> Array:
    swapped = _indices_of_nibbles_swapped(words)
    low = swapped & 0x0F0F0F0F
    return low << 4 | (swapped ^ low) >> 4


_METADATA_BITS: tuple[tuple[str, Change], ...] = (
    ("the two indices of every nibble exchanged", _indices_of_nibbles_swapped),
    ("every index complemented (3 - index, counted from the other end)", np.invert),
    ("the four 2-bit indices of every byte reversed", _indices_of_bytes_reversed),
    ("all sixteen 2-bit indices reversed", lambda w: _indices_of_bytes_reversed(w).byteswap()),
    ("shifted by one nibble to the left", lambda w: w << 4 | w >> 28),
    ("shifted by one nibble to the right", lambda w: w >> 4 | w << 28),
    ("shifted by one byte to the left", lambda w: w << 8 | w >> 24),
    ("shifted by one byte to the right", lambda w: w >> 8 | w << 24),
    ("only the low half is there", lambda w: w & 0xFFFF),
    ("only the high half is there", lambda w: w & 0xFFFF0000),
    ("the low half twice", lambda w: (w & 0xFFFF) * 0x10001),
    ("the high half twice", lambda w: (w >> 16) * 0x10001),
)
_DEFAULTS = {
    0x44: "the first two", 0xEE: "the last two", 0x00: "nothing was set",
    0x88: "the first and third", 0xCC: "the first and last", 0x99: "the middle two",
    0xDD: "the second and fourth", 0xFF: "all ones",
}  # fmt: skip


@each_operand
def metadata_bits(kernel: RecordedKernel, name: str, count: int) -> Ways:
    """Index pairs or rows of the metadata word in another order."""
    for text, change in _METADATA_BITS if name == "e" else ():
        yield f"e: {text}", change


@each_operand
def default_metadata(kernel: RecordedKernel, name: str, count: int) -> Ways:
    """Metadata that says the same of every chunk."""
    for byte, what in _DEFAULTS.items() if name == "e" else ():
        word = byte * 0x01010101
        text = f"e is 0x{word:08x} in every lane ({what}): the default metadata"
        yield text, partial(np.full_like, fill_value=word)


def misplaced_metadata(kernel: RecordedKernel) -> Iterator[Variant]:
    """Metadata words dealt out to the lanes in a plainer order than the instruction's."""
    if "e" not in kernel.words:
        return
    nibbles = split_k("e", kernel.matrix("e"), kernel.steps).astype(np.uint32)
    steps, rows, chunks = nibbles.shape
    lanes = np.arange(kernel.ins.lanes)
    for text, order in (
        ("row by row", nibbles),
        ("column by column", np.swapaxes(nibbles, -1, -2)),
    ):
        flat = np.ascontiguousarray(order).reshape(steps, rows * chunks // 8, 8)
        words = np.bitwise_or.reduce(flat << np.arange(0, 32, 4, dtype=np.uint32), -1)
        text = f"e: word i of the metadata, {text}, in lane i"
        yield Variant("e", text, kernel.using(e=words[:, lanes % words.shape[1]]))
    halves = nibbles.reshape(steps, 2, rows // 2, chunks)[:, ::-1].reshape(nibbles.shape)
    pairs = nibbles.reshape(steps, rows // 2, 2, chunks)[:, :, ::-1].reshape(nibbles.shape)
    for text, other in (
        ("rows of the upper and lower half exchanged", halves),
        ("the metadata of row i - 8 at row i", np.roll(nibbles, 8, 1)),
        ("the metadata of row i - -8 at row i", np.roll(nibbles, -8, 1)),
        ("even and odd rows exchanged", pairs),
        ("the chunks of every row in reverse", nibbles[..., ::-1]),
    ):
        joined = np.concatenate(list(other), -1).astype(np.uint8)
        yield Variant("e", f"e: {text}", kernel.holding("e", joined))


def uncompressed(kernel: RecordedKernel) -> Iterator[Variant]:
    """The stored elements of A do not fit the metadata."""
    if "e" not in kernel.words:
        return
    stored, ins = kernel.matrix("a"), kernel.ins
    pairs = stored.reshape(len(stored), -1, 2)[..., ::-1].reshape(stored.shape)
    text = "A: the two stored elements of every chunk exchanged"
    yield Variant("a", text, kernel.holding("a", pairs))
    if ins.chunk != 4:
        return
    full = spread_out(ins, stored, kernel.matrix("e"))
    tiles = split_k("a", full, kernel.steps)
    for text, columns in (
        ("the first half of its columns", slice(0, ins.stored_k)),
        ("every second column", slice(0, None, 2)),
    ):
        parts = np.concatenate(list(tiles[..., columns]), -1)
        text = f"A is not compressed: {text} of the full matrix stored"
        yield Variant("a", text, kernel.holding("a", parts))


# --- block scales ---------------------------------------------------------------------------------


def wrong_scale_id(kernel: RecordedKernel) -> Iterator[Variant]:
    """byte-id or thread-id names other bytes or lanes than those that hold the scales."""
    for operand in _SCALES if kernel.ins.is_block_scaled else ():
        names = [f"{what}_id_{operand[-1]}" for what in ("byte", "thread")]
        now = [kernel.options.get(name, 0) for name in names]
        bytes_, threads = kernel.ins.legal_ids(operand)
        for ids in ([byte, thread] for byte in bytes_ for thread in threads):
            if ids != now:
                said = [f"{{{x[0]}, {x[1]}}}" for x in (ids, now)]
                text = f"ids of {operand} are {said[0]} instead of {said[1]} (byte-id, thread-id)"
                changed = kernel.setting(**dict(zip(names, ids, strict=True)))
                yield Variant(operand, text, changed)


def misplaced_scales(kernel: RecordedKernel) -> Iterator[Variant]:
    """Scales transposed, in another order along k, of other rows, or all one."""
    for operand in _SCALES if kernel.ins.is_block_scaled else ():
        for text, codes in _other_scales(kernel, operand):
            with suppress(OperandError):  # a code that the type lacks
                yield Variant(operand, f"{operand}: {text}", kernel.holding(operand, codes))
    if kernel.ins.is_block_scaled:
        yield from _scales_of_the_other(kernel)


def _other_scales(kernel: RecordedKernel, operand: str) -> Iterator[tuple[str, Array]]:
    scales, fmt = kernel.matrix(operand), FORMATS[kernel.ins.scale_type]
    along = -1 if operand == "scale_a" else -2
    rows = -3 - along
    size = scales.shape[rows]
    yield "in the opposite order along k", np.flip(scales, along)
    yield "those of the rows (columns) in reverse", np.flip(scales, rows)
    read = np.ascontiguousarray(scales).reshape(scales.shape[::-1]).T
    yield "read with rows and blocks exchanged", read
    stored = np.ascontiguousarray(scales.T).reshape(scales.shape)
    yield "stored with rows and blocks exchanged", stored
    for text, axis in (
        ("those of the first block along k for all", along),
        ("that of row (column) 0 for all", rows),
    ):
        yield text, np.repeat(np.take(scales, [0], axis), scales.shape[axis], axis)
    yield "all 1.0", np.full_like(scales, fmt.bias << fmt.mantissa_bits)
    yield "all code 0", np.zeros_like(scales)
    for shift in (size // 2, 1, -1):
        yield f"those of row (column) i + {shift} at i", np.roll(scales, -shift, rows)
    inner = np.moveaxis(scales, rows, 0)
    pairs = inner.reshape(size // 2, 2, -1)[:, ::-1].reshape(inner.shape)
    yield "even and odd rows (columns) exchanged", np.moveaxis(pairs, 0, rows)
    for step, side in ((1, "over"), (-1, "under")):
        near = np.clip(scales.astype(np.int64) + (step << fmt.mantissa_bits), 0, fmt.code_mask)
        yield f"exponents {side} by one (another bias)", near.astype(scales.dtype)


def _scales_of_the_other(kernel: RecordedKernel) -> Iterator[Variant]:
    """Scales of B for rows of A, n of m of them, and the reverse."""
    a, b = kernel.matrix("scale_a"), kernel.matrix("scale_b").T
    of_b, of_a = b[np.arange(len(a)) % len(b)], a[: len(b)].T
    with_a, with_b = kernel.holding("scale_a", of_b), kernel.holding("scale_b", of_a)
    text = "scale_a: those of B, of column i % 8 for row i"
    yield Variant("scale_a", text, with_a)
    yield Variant("scale_b", "scale_b: those of A", with_b)
    text = "scale_b: and scale_a exchanged, as matrices"
    yield Variant("scale_b", text, with_a.holding("scale_b", of_a))


@each_operand
def scale_lane_orders(kernel: RecordedKernel, name: str, count: int) -> Ways:
    """Scale words of the lanes as a plain list of rows."""
    for rows in (8, 16) if name in _SCALES else ():
        # The words of the first lane of every group, over and over.
        order = np.arange(32) % rows * (32 // rows)
        yield f"{name}: word i of the rows in lane i ({rows} rows, then again)", of_lanes(order)
