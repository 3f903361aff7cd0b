"""Mistakes with matrix descriptors, tiles in shared memory and the immediates of wgmma.

Each function yields the ways of making one mistake with a kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from dtypes import Array, Place, pack
from emulator.errors import EmulatorError
from emulator.layout.addressing import FIELDS, SWIZZLE_UNITS
from emulator.layout.descriptor import Descriptor
from emulator.layout.tile import LINE_BYTES, TileShape
from emulator.memory.descriptors import store_tile
from emulator.tools.faults.kernel import Kernel
from emulator.tools.faults.registers import Variant

_SWIZZLES = (0, 32, 64, 128)
#: bytes from one value of a field to the next one that is worth trying
_NEIGHBOURS = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096)


def exchanged_offsets(kernel: Kernel) -> Iterator[Variant]:
    """LBO and SBO in each other's place."""
    for operand, fields in _descriptors(kernel):
        other = {"leading_byte_offset": fields["stride_byte_offset"],
                 "stride_byte_offset": fields["leading_byte_offset"]}  # fmt: skip
        text = "leading and stride byte offset (LBO, SBO) exchanged"
        yield _with_fields(kernel, operand, fields | other, text)


def wrong_swizzle(kernel: Kernel) -> Iterator[Variant]:
    """The swizzle mode of the descriptor is not that of the tile."""
    codes = {units * LINE_BYTES if units > 1 else 0: code for code, units in SWIZZLE_UNITS.items()}
    names = {code: bytes_ for bytes_, code in codes.items()}
    for operand, fields in _descriptors(kernel):
        now = names[int(fields["swizzle"][0])]
        for bytes_ in _SWIZZLES:
            if bytes_ != now:
                text = f"swizzle {_mode(bytes_)} instead of {_mode(now)}"
                other = {"swizzle": np.full_like(fields["swizzle"], codes[bytes_])}
                yield _with_fields(kernel, operand, fields | other, text)


def wrong_base_offset(kernel: Kernel) -> Iterator[Variant]:
    """The base offset of a tile that does not start where its swizzle pattern does."""
    for operand, fields in _descriptors(kernel):
        now = int(fields["base_offset"][0])
        for base in range(8):
            if base != now:
                other = {"base_offset": np.full_like(fields["base_offset"], base)}
                text = f"base offset {base} instead of {now}"
                yield _with_fields(kernel, operand, fields | other, text)


def wrong_units(kernel: Kernel) -> Iterator[Variant]:
    """Addresses and offsets in bytes where the descriptor takes units of 16."""
    for operand, fields in _descriptors(kernel):
        for text, names in (
            ("start address", ("start_address",)),
            ("leading byte offset (LBO)", ("leading_byte_offset",)),
            ("stride byte offset (SBO)", ("stride_byte_offset",)),
            ("offsets (LBO, SBO)", ("leading_byte_offset", "stride_byte_offset")),
            ("start address and offsets", (
                "start_address", "leading_byte_offset", "stride_byte_offset")),
        ):  # fmt: skip
            for what, shift in (("not shifted right by 4", 4), ("shifted right by 4 twice", -4)):
                other = {x: fields[x] << shift if shift > 0 else fields[x] >> -shift for x in names}
                yield _with_fields(kernel, operand, fields | other, f"{text} {what}")


def wrong_offset(kernel: Kernel) -> Iterator[Variant]:
    """An offset of the descriptor of another size."""
    for operand, fields in _descriptors(kernel):
        for name, short in (("leading_byte_offset", "LBO"), ("stride_byte_offset", "SBO")):
            now = int(fields[name][0]) * 16
            likely = {0, 16, now // 2, now * 2, *_NEIGHBOURS, *(now + x for x in (16, -16))}
            for other in sorted(likely - {now}):
                if 0 <= other < 1 << 18:
                    text = f"{name.replace('_', ' ')} ({short}) is {other} instead of {now}"
                    value = {name: np.full_like(fields[name], other // 16)}
                    yield _with_fields(kernel, operand, fields | value, text)


def wrong_start(kernel: Kernel) -> Iterator[Variant]:
    """The start address is off: not advanced along k, or advanced by another amount."""
    for operand, fields in _descriptors(kernel):
        start = fields["start_address"]
        rows, k, where, _ = kernel.tile(operand)
        step = k * where.width // 8
        if kernel.steps > 1:
            moved = start - start[0]
            count = np.arange(len(start), dtype=start.dtype)
            for text, other in (
                ("not advanced: every step along k reads the first", start - moved),
                ("advanced twice as far along k", start + moved),
                ("advanced half as far along k", start[0] + moved // 2),
                ("advanced by elements where bytes are meant",
                 start[0] + moved * 8 // max(8, where.width)),
                ("advanced by 16 bytes for every step along k", start[0] + count),
                (f"advanced by {step} bytes for every step along k",
                 start[0] + count * (step // 16)),
            ):  # fmt: skip
                yield _with_fields(kernel, operand, fields | {"start_address": other}, text)
        offsets = {*(x for n in range(1, 8) for x in (n * step, -n * step)),
                   *(s * x for s in (1, -1) for x in _NEIGHBOURS),
                   rows * step, -rows * step}  # fmt: skip
        for offset in sorted(offsets, key=abs):
            other = start.astype(np.int64) + offset // 16
            if offset and (other >= 0).all():
                hint = f" ({abs(offset) // step} steps of k)" if offset % step == 0 else ""
                text = f"start address {offset:+} bytes off{hint}"
                changed = fields | {"start_address": other.astype(np.uint64)}
                yield _with_fields(kernel, operand, changed, text)


def wrong_major(kernel: Kernel) -> Iterator[Variant]:
    """The transpose bit says K-major of an MN-major tile, or the reverse."""
    for operand, _ in _descriptors(kernel):
        name = f"imm_trans_{operand}"
        now = kernel.options.get(name, 0)
        text = f"imm-trans-{operand} is {1 - now} instead of {now}"
        yield Variant(operand, text, kernel.setting(**{name: 1 - now}))


def wrong_sign(kernel: Kernel) -> Iterator[Variant]:
    """imm-scale-a or -b negates an operand, or does not."""
    if kernel.ins.is_wgmma:
        for name in ("imm_scale_a", "imm_scale_b"):
            now = kernel.options.get(name, 1)
            text = f"{name.replace('_', '-')} is {-now} instead of {now}"
            yield Variant(name[-1], text, kernel.setting(**{name: -now}))


def wrong_tile(kernel: Kernel) -> Iterator[Variant]:
    """The tile is stored in shared memory in another way than the descriptor says."""
    for operand, _ in _descriptors(kernel):
        rows, _, where, major = kernel.tile(operand)
        codes = kernel.matrix(operand) if operand == "a" else kernel.matrix(operand).T
        first = Descriptor.decode(kernel.words[f"descriptor_{operand}"][0])
        for text, other in _other_layouts(first, rows, codes.shape[1], where.width, major):
            shared = kernel.words["shared"].copy()
            try:
                store_tile(shared, other, np.ascontiguousarray(codes), where, major)
            except EmulatorError:
                continue  # the tile does not fit there
            yield Variant(operand, f"{operand.upper()} {text}", kernel.using(shared=shared))
        for text, bytes_ in _plain(codes, where):
            shared = kernel.words["shared"].copy()
            start = first.start_address
            shared[start : start + bytes_.size] = bytes_[: shared.size - start]
            yield Variant(operand, f"{operand.upper()} {text}", kernel.using(shared=shared))


def _other_layouts(
    first: Descriptor, rows: int, k: int, bits: int, major: str
) -> Iterator[tuple[str, Descriptor]]:
    """Where a kernel may have put a tile, instead of where its descriptor says."""
    size = max(1, bits // 8)
    tile_k = k if bits >= 8 else k * bits // 8
    for bytes_ in _SWIZZLES:
        start, lines = first.start_address, bytes_ // LINE_BYTES
        if bytes_ == first.swizzle_bytes:
            continue
        kept = Descriptor(start, first.leading_byte_offset, first.stride_byte_offset,
                          start >> 7 & max(0, lines - 1), bytes_)  # fmt: skip
        what = f"stored {_swizzled(bytes_)}, the descriptor says {_mode(first.swizzle_bytes)}"
        yield (
            f"{what}, in the canonical layout",
            _canonical(rows, tile_k, size, major, bytes_, start),
        )
        yield what, kept
    for base in range(8 if first.swizzle_bytes else 0):
        if base != first.base_offset:
            moved = replace(first, base_offset=base)
            yield (
                f"swizzled as with base offset {base}, the descriptor says {first.base_offset}",
                moved,
            )


def _canonical(rows: int, k: int, size: int, major: str, swizzle: int, start: int) -> Descriptor:
    """As Descriptor.for_tile, for any start."""
    tile = TileShape(rows, k, size, major)
    line = swizzle or LINE_BYTES
    block, width = 8 * line, line // tile.element_bytes
    if major == "k":
        leading, stride = -(-rows // 8) * block, block
    else:
        leading, stride = block, -(-rows // width) * block
        if not swizzle:
            leading, stride = stride, leading
    return Descriptor(start, leading, stride, 0, swizzle)


def _plain(codes: Array, where: Place) -> Iterator[tuple[str, Array]]:
    """The bytes of a plain row-major or column-major matrix."""
    for text, order in (("row by row", codes), ("column by column", codes.T)):
        flat = np.ascontiguousarray(order).reshape(1, -1)
        if where.width < 8:
            bytes_ = pack(flat, Place(where.width, 0, where.width), 8)[0]
        else:
            bytes_ = flat[0].astype(f"<u{where.width // 8}").view(np.uint8)
        yield f"stored as a plain matrix, {text} (no core matrices, no swizzle)", bytes_


# --- descriptors as fields ------------------------------------------------------------------------


def _descriptors(kernel: Kernel) -> Iterator[tuple[str, dict[str, Array]]]:
    """Operands in shared memory, and the raw fields of their descriptors ``(steps,)``."""
    for operand in "ab":
        words = kernel.words.get(f"descriptor_{operand}")
        if words is not None:
            yield (
                operand,
                {
                    name: words >> np.uint64(low) & np.uint64((1 << width) - 1)
                    for name, (low, width) in FIELDS.items()
                },
            )


def _with_fields(kernel: Kernel, operand: str, fields: dict[str, Array], text: str) -> Variant:
    """What does not fit a field runs over into those above it, as in a kernel that ORs them."""
    word = np.zeros(kernel.steps, np.uint64)
    for name, (low, _) in FIELDS.items():
        word = word | fields[name].astype(np.uint64) << np.uint64(low)
    changed = kernel.using(**{f"descriptor_{operand}": word})
    return Variant(operand, f"descriptor of {operand.upper()}: {text}", changed)


def _mode(bytes_: int) -> str:
    return f"{bytes_}B" if bytes_ else "none"


def _swizzled(bytes_: int) -> str:
    return f"with the {bytes_}-byte swizzle" if bytes_ else "without swizzle"
