"""The usual mistakes in the fields of a matrix descriptor, each played forward on the right ones.

`likely_mistakes` compares what they make with a given word; the fault finder runs kernels with
them. Fields are raw: addresses and offsets in units of 16 bytes, integers or arrays of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from emulator.layout.addressing import FIELDS, SWIZZLES
from emulator.layout.descriptor import Descriptor
from emulator.layout.tile import LINE_BYTES, STRIDES, TileShape

Raw = dict[str, Any]

#: swizzle in bytes -> its code elsewhere. PTX ISA 9.7.16.4.1 (three bits, 63:61);
#: CUtensorMapSwizzle of the CUDA driver API, which is also the B of CuTe's Swizzle<B, 4, 3>
_TCGEN05 = {0: 0, 128: 2, 64: 4, 32: 6}
_TENSOR_MAP = {0: 0, 32: 1, 64: 2, 128: 3}
_TCGEN05_LOW = 61
_SHORT = {"leading_byte_offset": "LBO", "stride_byte_offset": "SBO"}
EXCHANGED = "LBO and SBO are exchanged"

#: from the right value of a field and the bytes of an element
Make = Callable[[Any, int], Any]
_LEFT_OUT = "it was left at 0"


def scaling_mistakes(size: int) -> list[tuple[str, Make]]:
    """What may be done wrongly to a field in units of 16 bytes, of a tile with elements of `size`
    bytes; in words, and to the value."""
    out: list[tuple[str, Make]] = [
        ("it is in bytes, not divided by 16", lambda raw, size: raw * 16)
    ]
    if size > 1:
        elements = "it was counted in elements, not in bytes"
        out.append((elements, lambda raw, size: raw * 16 // size // 16))
        out.append((f"{elements}, and not divided by 16", lambda raw, size: raw * 16 // size))
    out.append(("it was divided by 16 twice", lambda raw, size: raw // 16))
    return [*out, (_LEFT_OUT, lambda raw, size: raw * 0)]


def raw_fields(words: Any) -> Raw:
    """The fields of a word, or of an array of words."""
    return {name: words >> low & (1 << width) - 1 for name, (low, width) in FIELDS.items()}


def exchanged(raw: Mapping[str, Any]) -> Raw:
    """LBO and SBO in each other's place."""
    leading, stride = STRIDES
    return {leading: raw[stride], stride: raw[leading]}


def swizzle_codes(width: int) -> Iterator[tuple[int, str]]:
    """Wrong codes for a swizzle of `width` bytes, and whose codes they are."""
    code, low = SWIZZLES[width], FIELDS["swizzle"][0]
    if (other := _TENSOR_MAP[width]) != code:
        yield (
            other,
            (
                f"it is {other}, the code of CUtensorMapSwizzle (and of CuTe's Swizzle<{other}, 4, "
                f"3>); a descriptor has {code} for {width} bytes"
            ),
        )
    if (other := _TCGEN05[width]) & 3 != code:
        lost = "" if other < 4 else ", the top bit of which is lost"
        yield (
            other & 3,
            (
                f"it is {other}, the code of tcgen05, at bit {low}{lost}; wgmma has {code} for "
                f"{width} bytes"
            ),
        )


# --- from a given word ----------------------------------------------------------------------------


class FieldMistake(NamedTuple):
    """Fields that are wrong together."""

    fields: tuple[str, ...]
    #: mistakes that make exactly these values, the most likely first; empty: none is known
    mistakes: tuple[str, ...]


def likely_mistakes(
    word: int,
    needed: Descriptor,
    tile: TileShape,
    others: Mapping[str, Descriptor],
    sizes: Iterable[str] = (),
    place: tuple[int, int] | None = None,
) -> tuple[FieldMistake, ...]:
    """Mistakes that make `word` of the needed descriptor; () where no field that counts differs.

    `others` are descriptors of tiles that are easily taken for this one, by what to say of their
    strides; `sizes` are those of stored tiles for which the word's strides are right; `place` is
    the (row, column) of the stored tile at the word's start address.
    """
    right = int(needed.encode())
    want, have = raw_fields(right), raw_fields(word)
    if (word >> 32 | word << 32) & (1 << 64) - 1 == right != word:
        return (FieldMistake(tuple(FIELDS), ("the upper and lower 32 bits are exchanged",)),)
    found = []
    if have["start_address"] != want["start_address"]:
        mistakes = list(_scaled(have["start_address"], want["start_address"], tile.element_bytes))
        if place:
            mistakes.append(
                f"it is the address of (row {place[0]}, column {place[1]}) of the stored tile"
            )
        found.append(FieldMistake(("start_address",), tuple(mistakes)))
    used = sorted(tile.used_strides(needed.swizzle_bytes).values())
    if wrong := [name for name in used if have[name] != want[name]]:
        found += _strides(have, want, used, wrong, tile.element_bytes, others, sizes)
    if (have["base_offset"] - want["base_offset"]) % (needed.swizzle_bytes // LINE_BYTES or 1):
        found.append(FieldMistake(("base_offset",), tuple(_base(have, want))))
    if have["swizzle"] != want["swizzle"]:
        found.append(FieldMistake(("swizzle",), tuple(_swizzle(word, needed.swizzle_bytes))))
    return tuple(found)


def _scaled(have: int, want: int, size: int) -> Iterator[str]:
    """Describes how a wrong field in units of 16 bytes may have come from the right value."""
    mask = (1 << FIELDS["start_address"][1]) - 1
    if not have:
        yield _LEFT_OUT
        return
    for text, make in scaling_mistakes(size):
        made = make(want, size)
        if made & mask == have:
            yield text + (f" (its bits above {mask:#x} are lost)" if made > mask else "")


def _strides(
    have: Raw,
    want: Raw,
    used: list[str],
    wrong: list[str],
    size: int,
    others: Mapping[str, Descriptor],
    sizes: Iterable[str],
) -> Iterator[FieldMistake]:
    swapped, together = exchanged(want), []
    # A stride that does not count is often left out.
    alone = len(used) == 1 and exchanged(have)[used[0]] == want[used[0]]
    if alone or all(have[name] == swapped[name] for name in STRIDES):
        together.append(EXCHANGED)
    for text, other in others.items():
        raw = raw_fields(int(other.encode()))
        if all(have[name] == raw[name] for name in used):
            together.append(text)
    last = [f"right if the stored tile were another: tile={size}" for size in sizes]
    single = {name: tuple(_scaled(have[name], want[name], size)) for name in wrong}
    if together or last:
        own = single[wrong[0]] if len(wrong) == 1 else ()
        yield FieldMistake(tuple(wrong), (*together, *own, *last))
        return
    if not all(single.values()):
        turned = {
            name: list(_scaled(have[name], swapped[name], size))
            for name in used
            if have[name] != swapped[name]
        }
        if all(turned.values()):
            texts = "; ".join(f"{_SHORT[name]}: {why[0]}" for name, why in turned.items())
            yield FieldMistake(tuple(wrong), (f"{EXCHANGED}, and {texts}",))
            return
    for name, mistakes in single.items():
        yield FieldMistake((name,), mistakes)


def _base(have: Raw, want: Raw) -> Iterator[str]:
    if not have["base_offset"]:
        yield (
            "it is missing: the tile does not start on a multiple of its swizzle pattern (right "
            "where the data was swizzled by absolute addresses)"
        )
    elif not want["base_offset"]:
        yield "it is there although the tile starts on a multiple of its swizzle pattern"


def _swizzle(word: int, needed: int) -> Iterator[str]:
    low, code = FIELDS["swizzle"][0], SWIZZLES[needed]
    if word >> _TCGEN05_LOW == 0:
        yield "it was left at 0"
    yield from (text for other, text in swizzle_codes(needed) if other == word >> low)
    if word >> _TCGEN05_LOW == code:
        yield f"its code {code} stands at bit {_TCGEN05_LOW}, as in tcgen05, instead of bit {low}"
