"""Mistakes with matrix descriptors, tiles in shared memory and the immediates of wgmma.

Each function yields the ways of making one mistake with a kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from dtypes import Array
from emulator.errors import EmulatorError, OperandError
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
from emulator.tools.faults.kernel import RecordedKernel, Variant
from emulator.tools.faults.layouts import find_layout, places_of, row_bytes
from emulator.tools.operands import TileInMemory, tile_in_memory

#: bytes from one value of a field to the next one that is worth trying
_NEIGHBOURS = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
_START = "start_address"


def _descriptors(kernel: RecordedKernel) -> Iterator[tuple[str, Raw]]:
    """Operands in shared memory, and the raw fields of their descriptors ``(steps,)``."""
    for operand in "ab":
        words = kernel.words.get(f"descriptor_{operand}")
        if words is not None:
            yield operand, raw_fields(words)


def _with_fields(
    kernel: RecordedKernel, operand: str, raw: Raw, changed: Raw, text: str
) -> Variant:
    """Puts a value into a field; excess bits run over into the fields above, as with OR."""
    word = np.zeros(kernel.steps, np.uint64)
    for name, (low, _) in FIELDS.items():
        value: Any = np.asarray((raw | changed)[name]).astype(np.uint64)
        word = word | value << np.uint64(low)
    other = kernel.using(**{f"descriptor_{operand}": word})
    return Variant(operand, f"descriptor of {operand.upper()}: {text}", other)


def exchanged_offsets(kernel: RecordedKernel) -> Iterator[Variant]:
    """LBO and SBO in each other's place."""
    for operand, raw in _descriptors(kernel):
        yield _with_fields(kernel, operand, raw, exchanged(raw), EXCHANGED)


def wrong_swizzle(kernel: RecordedKernel) -> Iterator[Variant]:
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


def wrong_base_offset(kernel: RecordedKernel) -> Iterator[Variant]:
    """The base offset of a tile that does not start where its swizzle pattern does."""
    for operand, raw in _descriptors(kernel):
        now = int(raw["base_offset"][0])
        for base in range(8):
            if base != now:
                text = f"base offset {base} instead of {now}"
                yield _with_fields(kernel, operand, raw, {"base_offset": base}, text)


def wrong_units(kernel: RecordedKernel) -> Iterator[Variant]:
    """Addresses and offsets that are not bytes divided by 16."""
    for operand, raw in _descriptors(kernel):
        size = _tile(kernel, operand).shape().element_bytes
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


def wrong_offset(kernel: RecordedKernel) -> Iterator[Variant]:
    """An offset of the descriptor of another size."""
    for operand, raw in _descriptors(kernel):
        for name, short in zip(STRIDES, ("LBO", "SBO"), strict=True):
            now = int(raw[name][0]) * LINE_BYTES
            likely = {0, 16, now // 2, now * 2, *_NEIGHBOURS, now + 16, now - 16}
            for other in sorted(likely - {now}):
                if 0 <= other < WINDOW:
                    text = f"{name.replace('_', ' ')} ({short}) is {other} instead of {now}"
                    yield _with_fields(kernel, operand, raw, {name: other // LINE_BYTES}, text)


def wrong_step(kernel: RecordedKernel) -> Iterator[Variant]:
    """The start addresses of the steps along k are not as far apart as the steps lie."""
    for operand, raw in _descriptors(kernel) if kernel.steps > 1 else ():
        start, (tile, columns) = raw[_START], _whole_tile(kernel, operand)
        moved, count = start - start[0], np.arange(kernel.steps, dtype=start.dtype)
        step = columns * tile.element_bytes
        of_k_major = "the step of a K-major tile"
        ways = [
            *_right_steps(kernel, operand),
            (of_k_major, start[0] + count * (step // LINE_BYTES)),
            ("twice as far", start + moved),
            ("half as far", start[0] + moved // 2),
            ("elements instead of bytes", start[0] + moved // tile.element_bytes),
            ("16 bytes a step", start[0] + count),
        ]
        now, seen = _apart(start), {start.tobytes()}
        for text, other in ways:
            if other.tobytes() not in seen:
                seen.add(other.tobytes())
                if tile.major == "mn" and now == str(step):
                    text += f", {step} is {of_k_major}"
                text = f"steps along k {_apart(other)} bytes apart instead of {now}: {text}"
                yield _with_fields(kernel, operand, raw, {_START: other}, text)


def _right_steps(kernel: RecordedKernel, operand: str) -> Iterator[tuple[str, Array]]:
    """Raw start addresses of the steps along k, in tiles of all of k that begin as the first."""
    first, (tile, columns) = _first(kernel, operand), _whole_tile(kernel, operand)
    kind = "an MN-major" if tile.major == "mn" else "a K-major"
    for order, text in (
        ("", ""),
        ("rows", ", blocks of the next rows first"),
        ("columns", ", blocks of the next columns first"),
    ):
        whole = first.with_blocks(tile, order) if order else first
        start = _start_of(first, whole.addresses(tile)[0, ::columns])
        if len(start) == kernel.steps:
            yield f"as {kind} tile lies{text}", (start // LINE_BYTES).astype(np.uint64)


def _tile(kernel: RecordedKernel, operand: str) -> TileInMemory:
    """The tile of one step along k."""
    return tile_in_memory(kernel.ins, operand, kernel.options)


def _first(kernel: RecordedKernel, operand: str) -> Descriptor:
    return Descriptor.decode(kernel.words[f"descriptor_{operand}"][0])


def _whole_tile(kernel: RecordedKernel, operand: str) -> tuple[TileShape, int]:
    """The tile of all steps along k (of one, where memory holds no more), the columns of each."""
    tile = _tile(kernel, operand)
    one, whole = tile.shape(), tile.shape(kernel.steps)
    return whole if whole.size <= WINDOW else one, one.k


def _start_of(first: Descriptor, places: Any) -> Any:
    """Start addresses of descriptors whose first element lies at `places`: there, but for the
    swizzle."""
    units = (first.swizzle_bytes or LINE_BYTES) // LINE_BYTES
    return places ^ ((places >> 7) - first.base_offset & units - 1) << 4


def _apart(raw: Array) -> str:
    """The bytes between start addresses: one number where all are equal."""
    apart = (np.diff(raw.astype(np.int64)) * LINE_BYTES).tolist()
    several = [*dict.fromkeys(apart)]
    return str(several[0]) if len(several) == 1 else ", ".join(map(str, apart[:8]))


def wrong_start(kernel: RecordedKernel) -> Iterator[Variant]:
    """The start address is off in every step: by steps, by tiles, or from where the tile lies."""
    for operand, raw in _descriptors(kernel):
        start = raw[_START].astype(np.int64)
        tile, columns = _whole_tile(kernel, operand)
        sizes = {"tile": tile.size, "step of k": columns * tile.element_bytes}
        offsets = {*_NEIGHBOURS, tile.size // kernel.steps}
        offsets |= {n * size for size in sizes.values() for n in range(1, 8)}
        signed = [s * x for x in sorted(offsets) for s in (1, -1)]
        for offset in dict.fromkeys((*signed, *_lies_elsewhere(kernel, operand))):
            other = start + offset // LINE_BYTES
            if (other >= 0).all() and (other < WINDOW // LINE_BYTES).all():
                text = f"start address {offset:+} bytes off{_counted(offset, sizes)}"
                yield _with_fields(kernel, operand, raw, {_START: other}, text)


def _counted(offset: int, sizes: Mapping[str, int]) -> str:
    for name, size in sizes.items():
        if offset % size == 0:
            return f" ({abs(offset) // size} × the {size} bytes of a {name})"
    return ""


def _lies_elsewhere(kernel: RecordedKernel, operand: str) -> list[int]:
    """Bytes from the start address to where the matrix that is looked for begins in memory."""
    if operand not in kernel.aims:
        return []
    first, where = _first(kernel, operand), _tile(kernel, operand)
    lines = _lines(kernel, operand, kernel.aims[operand])
    unit = row_bytes(lines[:1, : 128 // where.place.width], where.place)
    found = (_start_of(first, at) for at in places_of(kernel.words["shared"], unit))
    apart = (at - first.start_address for at in found if at % LINE_BYTES == 0)
    return [x for x in apart if x]


def _lines(kernel: RecordedKernel, operand: str, codes: Array) -> Array:
    """A matrix as lines of what is contiguous in memory: rows (K-major) or columns of k."""
    by_rows = codes if operand == "a" else codes.T
    return by_rows if _tile(kernel, operand).major == "k" else by_rows.T


def wrong_major(kernel: RecordedKernel) -> Iterator[Variant]:
    """The transpose bit says K-major of an MN-major tile, or the reverse."""
    for operand, _ in _descriptors(kernel):
        name = f"imm_trans_{operand}"
        now = kernel.options.get(name, 0)
        text = f"imm-trans-{operand} is {1 - now} instead of {now}"
        yield Variant(operand, text, kernel.setting(**{name: 1 - now}))


def wrong_sign(kernel: RecordedKernel) -> Iterator[Variant]:
    """imm-scale-a or -b negates an operand, or does not."""
    for name in ("imm_scale_a", "imm_scale_b") if kernel.ins.is_wgmma else ():
        now = kernel.options.get(name, 1)
        text = f"{name.replace('_', '-')} is {-now} instead of {now}"
        yield Variant(name[-1], text, kernel.setting(**{name: -now}))


def wrong_tile(kernel: RecordedKernel) -> Iterator[Variant]:
    """The tile is stored in shared memory in another way than the descriptor says."""
    for operand, _ in _descriptors(kernel):
        _, _, where, major = _tile(kernel, operand)
        codes = kernel.matrix(operand) if operand == "a" else kernel.matrix(operand).T
        first = _first(kernel, operand)
        for text, other in _other_layouts(first, _tile(kernel, operand).shape(kernel.steps)):
            shared = kernel.words["shared"].copy()
            with suppress(EmulatorError):  # the tile does not fit there
                store_tile(shared, other, np.ascontiguousarray(codes), where, major)
                yield Variant(operand, f"{operand.upper()} {text}", kernel.using(shared=shared))
        for text, order in (("row by row", codes), ("column by column", codes.T)):
            shared, start = kernel.words["shared"].copy(), first.start_address
            bytes_ = row_bytes(order.reshape(1, -1), where)[0]
            shared[start : start + bytes_.size] = bytes_[: shared.size - start]
            text = f"{operand.upper()} stored as a plain matrix, {text} (no core matrices, no "
            yield Variant(operand, f"{text}swizzle)", kernel.using(shared=shared))
        if operand in kernel.aims:
            yield from _in_rows(kernel, operand, first)


def _in_rows(kernel: RecordedKernel, operand: str, first: Descriptor) -> Iterator[Variant]:
    """The matrix lies in rows of any stride, which no descriptor leads to."""
    codes, shared = kernel.aims[operand], kernel.words["shared"]
    where = _tile(kernel, operand)
    lines = _lines(kernel, operand, codes)
    for turned in (False, True):
        matrix = row_bytes(lines.T if turned else lines, where.place)
        layout = find_layout(shared, matrix)
        if layout and (layout.stride, layout.shift) != (LINE_BYTES << layout.bits, 3):
            padding = layout.stride - matrix.shape[1]
            also = f", {padding} of them padding," if 0 < padding < matrix.shape[1] else ""
            other = " the other way round (see imm-trans)" if turned else ""
            text = (
                f"{operand.upper()} stored{other} in rows of {layout.stride} bytes{also} with "
                f"{layout.how} from {layout.start:#x} on; the descriptor reads blocks of 8 lines "
                f"of {first.swizzle_bytes or LINE_BYTES} bytes"
            )
            with suppress(OperandError):  # strides that keep no two blocks apart
                yield Variant(operand, text, kernel.holding(operand, codes))
            return


def _other_layouts(first: Descriptor, tile: TileShape) -> Iterator[tuple[str, Descriptor]]:
    """Layouts in which a kernel may have stored a tile, other than its descriptor's."""
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


def _mode(bytes_: int) -> str:
    return f"{bytes_}B" if bytes_ else "none"
