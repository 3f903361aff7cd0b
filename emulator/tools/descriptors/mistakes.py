"""The usual mistakes in building a wgmma matrix descriptor: which of them turn one into another.

Each is played forward on the descriptor that is needed and compared with the given word, group of
fields by group of fields, so that several mistakes at once are named, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from emulator.layout.addressing import FIELDS
from emulator.layout.descriptor import Descriptor
from emulator.layout.validation import STRIDES, used_strides
from emulator.tools.descriptors.checks import ReadTile

#: swizzle in bytes -> its code elsewhere. PTX ISA 9.7.16.4.1 (three bits, 63:61);
#: CUtensorMapSwizzle of the CUDA driver API, which is also the B of CuTe's Swizzle<B, 4, 3>
_TCGEN05 = {0: 0, 128: 2, 64: 4, 32: 6}
_TENSOR_MAP = {0: 0, 32: 1, 64: 2, 128: 3}
_TCGEN05_LOW = 61
_SHORT = {"leading_byte_offset": "LBO", "stride_byte_offset": "SBO"}


class Fault(NamedTuple):
    """Fields that are wrong together."""

    fields: tuple[str, ...]
    #: mistakes that make exactly these values, the most likely first; empty: none is known
    mistakes: tuple[str, ...]


def likely_faults(
    word: int,
    needed: Descriptor,
    tile: ReadTile,
    others: dict[str, Descriptor],
    sizes: Iterable[str] = (),
    place: tuple[int, int] | None = None,
) -> tuple[Fault, ...]:
    """Mistakes that make `word` of the needed descriptor; () where no field that counts differs.

    `others` are descriptors of tiles that are easily taken for this one, by what to say of their
    strides; `sizes` are those of stored tiles for which the word's strides are right; `place` is
    the (row, column) of the stored tile at the word's start address.
    """
    want, have = _raw(int(needed.encode())), _raw(word)
    if (word >> 32 | word << 32) & (1 << 64) - 1 == int(needed.encode()) != word:
        return (Fault(tuple(FIELDS), ("the upper and lower 32 bits are exchanged",)),)
    size = tile.shape.element_bytes
    found = []
    if have["start_address"] != want["start_address"]:
        mistakes = [*_scaled(have["start_address"], want["start_address"], size)]
        if place:
            mistakes.append(
                f"it is the address of (row {place[0]}, column {place[1]}) of the stored tile"
            )
        found.append(Fault(("start_address",), tuple(mistakes)))
    found += _strides(have, want, tile, needed.swizzle_bytes, others, sizes)
    lines = needed.swizzle_bytes // 16 or 1
    if (have["base_offset"] - want["base_offset"]) % lines:
        found.append(Fault(("base_offset",), tuple(_base(have, want))))
    if have["swizzle"] != want["swizzle"]:
        found.append(Fault(("swizzle",), tuple(_swizzle(word, needed.swizzle_bytes))))
    return tuple(found)


def _raw(word: int) -> dict[str, int]:
    return {name: word >> low & (1 << width) - 1 for name, (low, width) in FIELDS.items()}


def _scaled(have: int, want: int, size: int) -> Iterator[str]:
    """How a field in units of 16 bytes comes out of the right bytes wrongly."""
    mask = (1 << FIELDS["start_address"][1]) - 1
    value = want * 16
    ways = (
        (value, "it is in bytes, not divided by 16"),
        (value // size // 16 if size > 1 else -1, "it was counted in elements, not in bytes"),
        (value // size if size > 1 else -1,
         "it was counted in elements, not in bytes, and not divided by 16"),
        (want // 16, "it was divided by 16 twice"),
    )  # fmt: skip
    if have == 0:
        yield "it was left at 0"
        return
    for result, text in ways:
        if result & mask == have and result >= 0:
            cut = f" (its bits above {mask:#x} are lost)" if result > mask else ""
            yield text + cut


def _strides(
    have: dict[str, int],
    want: dict[str, int],
    tile: ReadTile,
    swizzle_bytes: int,
    others: dict[str, Descriptor],
    sizes: Iterable[str],
) -> Iterator[Fault]:
    used = sorted(used_strides(tile.shape, swizzle_bytes).values())
    wrong = [name for name in used if have[name] != want[name]]
    if not wrong:
        return
    lbo, sbo = STRIDES
    together = []
    exchanged = {lbo: want[sbo], sbo: want[lbo]}
    if all(have[name] == exchanged[name] for name in STRIDES) or (
        # A stride that does not count is often left out.
        len(used) == 1 and have[_other(used[0])] == want[used[0]]
    ):
        together.append("LBO and SBO are exchanged")
    for text, other in others.items():
        raw = _raw(int(other.encode()))
        if all(have[name] == raw[name] for name in used):
            together.append(text)
    last = [f"right if the stored tile were another: tile={size}" for size in sizes]
    if together or last:
        alone = _scaled(have[wrong[0]], want[wrong[0]], tile.shape.element_bytes)
        yield Fault(tuple(wrong), (*together, *(alone if len(wrong) == 1 else ()), *last))
        return
    single = {
        name: tuple(_scaled(have[name], want[name], tile.shape.element_bytes)) for name in wrong
    }
    if not all(single.values()):
        turned = {
            name: tuple(_scaled(have[name], exchanged[name], tile.shape.element_bytes))
            if have[name] != exchanged[name]
            else ("",)
            for name in used
        }
        if all(turned.values()):
            texts = [f"{_SHORT[name]}: {why[0]}" for name, why in turned.items() if why[0]]
            yield Fault(tuple(wrong), (f"LBO and SBO are exchanged, and {'; '.join(texts)}",))
            return
    for name, mistakes in single.items():
        yield Fault((name,), mistakes)


def _other(name: str) -> str:
    return STRIDES[1 - STRIDES.index(name)]


def _base(have: dict[str, int], want: dict[str, int]) -> Iterator[str]:
    if not have["base_offset"]:
        yield (
            "it is missing: the tile does not start on a multiple of its swizzle pattern (right "
            "where the data was swizzled by absolute addresses)"
        )
    elif not want["base_offset"]:
        yield "it is there although the tile starts on a multiple of its swizzle pattern"


def _swizzle(word: int, needed: int) -> Iterator[str]:
    low = FIELDS["swizzle"][0]
    have = word >> low
    code = next(c for c in range(4) if Descriptor.decode(c << low).swizzle_bytes == needed)
    if have == 0 and word >> _TCGEN05_LOW == 0:
        yield "it was left at 0"
    if _TENSOR_MAP[needed] == have:
        yield (
            f"it is {have}, the code of CUtensorMapSwizzle (and of CuTe's Swizzle<{have}, 4, 3>); "
            f"a descriptor has {code} for {needed} bytes"
        )
    if _TCGEN05[needed] & 3 == have:
        lost = "" if _TCGEN05[needed] < 4 else ", the top bit of which is lost"
        yield (
            f"it is {_TCGEN05[needed]}, the code of tcgen05, at bit {low}{lost}; wgmma has {code} "
            f"for {needed} bytes"
        )
    if word >> _TCGEN05_LOW == code:
        yield f"its code {code} stands at bit {_TCGEN05_LOW}, as in tcgen05, instead of bit {low}"
