"""Mistakes with sparse operands and with block scales.

Each function yields the ways of making one mistake with a kernel.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dtypes import FORMATS, Array
from emulator.errors import OperandError
from emulator.tools.faults.kernel import Change, Kernel
from emulator.tools.faults.registers import Variant

# --- sparsity -------------------------------------------------------------------------------------


def wrong_selector(kernel: Kernel) -> Iterator[Variant]:
    """The sparsity selector names other lanes than those that have the metadata."""
    if "e" not in kernel.words:
        return
    chosen, groups = kernel.options.get("selector", 0), kernel.ins.fragment("e").groups
    for other in range(groups):
        if other != chosen:
            text = f"selector {other} instead of {chosen}"
            yield Variant("e", text, kernel.setting(selector=other))
            # Where all lanes hold metadata, those of the other selector have another row's.
            for shift in (other - chosen, chosen - other):
                lanes = (np.arange(kernel.ins.lanes) + shift) % kernel.ins.lanes
                words = kernel.words["e"][..., lanes]
                text = (
                    f"the metadata is in the lanes of selector {other}, selector is {chosen} "
                    f"(lane L holds what belongs to lane L {shift:+d})"
                )
                yield Variant("e", text, kernel.using(e=words))


def metadata_bits(kernel: Kernel) -> Iterator[Variant]:
    """Index pairs or rows of the metadata word in another order."""
    if "e" not in kernel.words:
        return
    for text, change in (
        ("the two indices of every nibble exchanged", _pairs_swapped),
        ("every index complemented (3 - index, counted from the other end)", np.invert),
        ("the four 2-bit indices of every byte reversed", _bytes_of_indices_reversed),
        ("all sixteen 2-bit indices reversed", _indices_reversed),
        ("shifted by one nibble to the left", lambda w: w << np.uint32(4) | w >> np.uint32(28)),
        ("shifted by one nibble to the right", lambda w: w >> np.uint32(4) | w << np.uint32(28)),
        ("shifted by one byte to the left", lambda w: w << np.uint32(8) | w >> np.uint32(24)),
        ("shifted by one byte to the right", lambda w: w >> np.uint32(8) | w << np.uint32(24)),
        ("only the low half is there", lambda w: w & np.uint32(0xFFFF)),
        ("only the high half is there", lambda w: w & np.uint32(0xFFFF0000)),
        ("the low half twice", lambda w: (w & np.uint32(0xFFFF)) * np.uint32(0x10001)),
        ("the high half twice", lambda w: (w >> np.uint32(16)) * np.uint32(0x10001)),
    ):
        yield Variant("e", f"e: {text}", kernel.changing("e", change))


def default_metadata(kernel: Kernel) -> Iterator[Variant]:
    """Metadata that says the same of every chunk."""
    if "e" not in kernel.words:
        return
    for byte, what in ((0x44, "the first two"), (0xEE, "the last two"), (0x00, "nothing was set"),
                       (0x88, "the first and third"), (0xCC, "the first and last"),
                       (0x99, "the middle two"), (0xDD, "the second and fourth"),
                       (0xFF, "all ones")):  # fmt: skip
        words = np.full_like(kernel.words["e"], byte * 0x01010101)
        text = f"e is 0x{byte * 0x01010101:08x} in every lane ({what}): the default metadata"
        yield Variant("e", text, kernel.using(e=words))


def misplaced_metadata(kernel: Kernel) -> Iterator[Variant]:
    """Metadata words dealt out to the lanes in a plainer order than the instruction's."""
    if "e" not in kernel.words:
        return
    nibbles = np.stack(np.split(kernel.matrix("e"), kernel.steps, -1)).astype(np.uint32)
    steps, rows, chunks = nibbles.shape
    shifts = np.arange(0, 32, 4, dtype=np.uint32)
    lanes = np.arange(kernel.ins.lanes)
    for text, order in (
        ("row by row", nibbles),
        ("column by column", np.swapaxes(nibbles, -1, -2)),
    ):
        flat = np.ascontiguousarray(order).reshape(steps, rows * chunks // 8, 8)
        words = np.bitwise_or.reduce(flat << shifts, -1)
        yield Variant(
            "e", f"e: word i of the metadata, {text}, in lane i",
            kernel.using(e=words[:, lanes % words.shape[1]]),
        )  # fmt: skip
    halves = nibbles.reshape(steps, 2, rows // 2, chunks)[:, ::-1].reshape(nibbles.shape)
    yield from _with_nibbles(kernel, halves, "rows of the upper and lower half exchanged")
    for shift in (8, -8):
        moved = np.roll(nibbles, shift, 1)
        yield from _with_nibbles(kernel, moved, f"the metadata of row i - {shift} at row i")
    pairs = nibbles.reshape(steps, rows // 2, 2, chunks)[:, :, ::-1].reshape(nibbles.shape)
    yield from _with_nibbles(kernel, pairs, "even and odd rows exchanged")
    yield from _with_nibbles(kernel, nibbles[..., ::-1], "the chunks of every row in reverse")


def _with_nibbles(kernel: Kernel, nibbles: Array, text: str) -> Iterator[Variant]:
    joined = np.concatenate(list(nibbles), -1).astype(np.uint8)
    yield Variant("e", f"e: {text}", kernel.holding("e", joined))


def uncompressed(kernel: Kernel) -> Iterator[Variant]:
    """The stored elements of A do not fit the metadata."""
    if "e" not in kernel.words:
        return
    stored = kernel.matrix("a")
    pairs = stored.reshape(len(stored), -1, 2)[..., ::-1].reshape(stored.shape)
    yield Variant("a", "A: the two stored elements of every chunk exchanged",
                  kernel.holding("a", pairs))  # fmt: skip
    ins, full = kernel.ins, _full(kernel)
    if full is None:
        return
    tiles = np.split(full, kernel.steps, -1)
    for text, columns in (
        ("the first half of its columns", slice(0, ins.stored_k)),
        ("every second column", slice(0, None, 2)),
    ):
        parts = np.concatenate([tile[:, columns] for tile in tiles], -1)
        yield Variant("a", f"A is not compressed: {text} of the full matrix stored",
                      kernel.holding("a", parts))  # fmt: skip


def _full(kernel: Kernel) -> Array | None:
    """A with its zeros, ``(m, K)``; None where the metadata is not plain 2:4."""
    ins, nibbles, stored = kernel.ins, kernel.matrix("e"), kernel.matrix("a")
    if ins.chunk != 4:
        return None
    pair = np.stack([nibbles & 3, nibbles >> 2], -1).astype(np.intp)
    out = np.zeros((*nibbles.shape, 4), stored.dtype)
    np.put_along_axis(out, pair, stored.reshape(*nibbles.shape, 2), -1)
    return out.reshape(len(stored), -1)


def _pairs_swapped(words: Array) -> Array:
    low = words & np.uint32(0x33333333)
    return low << np.uint32(2) | (words ^ low) >> np.uint32(2)


def _bytes_of_indices_reversed(words: Array) -> Array:
    swapped = _pairs_swapped(words)
    low = swapped & np.uint32(0x0F0F0F0F)
    return low << np.uint32(4) | (swapped ^ low) >> np.uint32(4)


def _indices_reversed(words: Array) -> Array:
    return _bytes_of_indices_reversed(words).byteswap()


# --- block scales ---------------------------------------------------------------------------------


def wrong_scale_id(kernel: Kernel) -> Iterator[Variant]:
    """byte-id or thread-id names other bytes or lanes than those that hold the scales."""
    for operand in ("scale_a", "scale_b"):
        if operand not in kernel.words:
            continue
        x = operand[-1]
        now = [kernel.options.get(f"{what}_id_{x}", 0) for what in ("byte", "thread")]
        bytes_, threads = kernel.ins.legal_ids(operand)
        for byte in bytes_:
            for thread in threads:
                if [byte, thread] == now:
                    continue
                changed = kernel.setting(**{f"byte_id_{x}": byte, f"thread_id_{x}": thread})
                text = (
                    f"ids of {operand} are {{{byte}, {thread}}} instead of {{{now[0]}, {now[1]}}}"
                )
                yield Variant(operand, f"{text} (byte-id, thread-id)", changed)


def misplaced_scales(kernel: Kernel) -> Iterator[Variant]:
    """Scales transposed, in another order along k, of other rows, or all one."""
    for operand in ("scale_a", "scale_b"):
        if operand not in kernel.words:
            continue
        scales = kernel.matrix(operand)
        along = -1 if operand == "scale_a" else -2
        rows = -3 - along
        texts: list[tuple[str, Array]] = [
            ("in the opposite order along k", np.flip(scales, along)),
            ("those of the rows (columns) in reverse", np.flip(scales, rows)),
            ("read with rows and blocks exchanged",
             np.ascontiguousarray(scales).reshape(scales.shape[::-1]).T),
            ("stored with rows and blocks exchanged",
             np.ascontiguousarray(scales.T).reshape(scales.shape)),
            ("those of the first block along k for all",
             np.repeat(np.take(scales, [0], along), scales.shape[along], along)),
            ("that of row (column) 0 for all",
             np.repeat(np.take(scales, [0], rows), scales.shape[rows], rows)),
            ("all 1.0", np.full_like(scales, _one(kernel))),
            ("all code 0", np.zeros_like(scales)),
        ]  # fmt: skip
        size = scales.shape[rows]
        for shift in (size // 2, 1, -1):
            texts.append((f"those of row (column) i + {shift} at i", np.roll(scales, -shift, rows)))
        inner = np.moveaxis(scales, rows, 0)
        pairs = inner.reshape(size // 2, 2, -1)[:, ::-1].reshape(inner.shape)
        texts.append(("even and odd rows (columns) exchanged", np.moveaxis(pairs, 0, rows)))
        fmt = FORMATS[kernel.ins.scale_type]
        for step in (1, -1):
            near = np.clip(scales.astype(np.int64) + (step << fmt.mantissa_bits), 0, fmt.code_mask)
            text = f"exponents {'over' if step > 0 else 'under'} by one (another bias)"
            texts.append((text, near.astype(scales.dtype)))
        for text, codes in texts:
            yield from _with_scales(kernel, operand, codes, text)
    if all(x in kernel.words for x in ("scale_a", "scale_b")):
        yield from _scales_of_the_other(kernel)


def _one(kernel: Kernel) -> int:
    fmt = FORMATS[kernel.ins.scale_type]
    return fmt.bias << fmt.mantissa_bits


def _scales_of_the_other(kernel: Kernel) -> Iterator[Variant]:
    """Scales of B for rows of A, n of m of them, and the reverse."""
    a, b = kernel.matrix("scale_a"), kernel.matrix("scale_b").T
    rows = np.arange(len(a)) % len(b)
    yield from _with_scales(kernel, "scale_a", b[rows], "those of B, of column i % 8 for row i")
    yield from _with_scales(kernel, "scale_b", a[: len(b)].T, "those of A")
    for variant in _with_scales(kernel, "scale_a", b[rows], "and scale_b exchanged"):
        yield from _with_scales(variant.kernel, "scale_b", a[: len(b)].T,
                                "and scale_a exchanged, as matrices")  # fmt: skip


def _with_scales(kernel: Kernel, operand: str, codes: Array, text: str) -> Iterator[Variant]:
    try:
        changed = kernel.holding(operand, codes)
    except OperandError:
        return  # a code that the type lacks
    yield Variant(operand, f"{operand}: {text}", changed)


def scale_lane_orders(kernel: Kernel) -> Iterator[Variant]:
    """Scale words of the lanes as a plain list of rows."""
    for operand in ("scale_a", "scale_b"):
        if operand in kernel.words:
            for text, change in _LANE_LISTS:
                yield Variant(operand, f"{operand}: {text}", kernel.changing(operand, change))


def _listed(count: int) -> Change:
    """The words of the first lane of every group, in lanes 0 … count - 1, over and over."""
    order = np.arange(32) % count * (32 // count)
    return lambda words: words[..., order, :]


_LANE_LISTS = (
    ("word i of the rows in lane i (8 rows, then again)", _listed(8)),
    ("word i of the rows in lane i (16 rows, then again)", _listed(16)),
)
