"""spcompress and spdecompress: the sparse form of a vector of registers (PTX ISA 9.4).

Words are the registers of the vectors in order; elements lie in them from the low bits up, as do
the positions in the metadata (order UNVERIFIED).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dtypes import FORMATS, Array, NumberClass
from dtypes.arrays import decode as decode_array
from dtypes.codec import decode
from emulator.arith.scalar.rule import packed_rule
from emulator.arith.scalar.types import ScalarType

_WORD = 32
#: bits of an element -> what bits 4:2 of the descriptor say that it is; others are undefined, and
#: taken for the first
_ELEMENTS = {16: ("f16", "bf16"), 8: ("u8", "s8", "e5m2", "e4m3", "e3m2", "e2m3")}
#: larger than the key of every number
_FIRST = 1 << 20


@packed_rule
def compress(element: ScalarType, index: ScalarType, *words: int) -> tuple[int, ...]:
    """The two of every four elements that the descriptor prefers, in their order, after their
    positions. Bits 1:0 of the descriptor, the last word: 0 the largest, 1 the largest magnitudes,
    2 the smallest, 3 the smallest magnitudes. -0 is less than +0, NaNs come first, and of equal
    ones those of the lower position (ties are undefined)."""
    *data, descriptor = words
    codes = _split(data, element.bits)
    types = _ELEMENTS[element.bits]
    name = types[kind] if (kind := descriptor >> 2 & 7) < len(types) else types[0]
    kept, places = [], []
    for first in range(0, len(codes), 4):
        group = codes[first : first + 4]
        keys = [_key(name, code, descriptor & 3) for code in group]
        chosen = sorted(sorted(range(4), key=lambda i: -keys[i])[:2])
        places += chosen
        kept += [group[i] for i in chosen]
    return (*_joined(places, index.bits), *_joined(kept, element.bits))


def _key(name: str, code: int, mode: int) -> int:
    """Sort key that is larger for the preferred element."""
    fmt = FORMATS[name]
    code &= fmt.code_mask
    if fmt.is_float:
        if decode(fmt, code).number_class == NumberClass.NAN:
            return _FIRST
        size = code & ~fmt.sign_mask
        value = -1 - size if code & fmt.sign_mask else size
    else:
        value = code - (1 << fmt.bits) if code & fmt.sign_mask else code
        size = abs(value)
    return (size if mode & 1 else value) * (-1 if mode & 2 else 1)


@compress.arrays
def _(element: ScalarType, index: ScalarType, *words: Array) -> tuple[Array, ...]:
    *data, descriptor = np.broadcast_arrays(*words)
    codes = _split_arrays(data, element.bits)
    codes = codes.reshape(*codes.shape[:-1], -1, 4)
    kind, mode = descriptor >> 2 & 7, descriptor[..., None, None] & 3
    types = _ELEMENTS[element.bits]
    keys = np.zeros(codes.shape, np.int64)
    for number, name in enumerate(types):
        mine = kind == number
        if number == 0:
            mine |= kind >= len(types)
        if mine.any():
            keys = np.where(mine[..., None, None], _keys(name, codes, mode), keys)
    chosen = np.sort(np.argsort(-keys, axis=-1, kind="stable")[..., :2], axis=-1)
    kept = np.take_along_axis(codes, chosen, -1)
    return (*_joined_arrays(chosen, index.bits), *_joined_arrays(kept, element.bits))


def _keys(name: str, codes: Array, mode: Array) -> Array:
    fmt = FORMATS[name]
    codes = codes.astype(np.int64) & fmt.code_mask
    negative = (codes & fmt.sign_mask) != 0
    if fmt.is_float:
        size = codes & ~fmt.sign_mask
        value = np.where(negative, -1 - size, size)
    else:
        value = np.where(negative, codes - (1 << fmt.bits), codes)
        size = np.abs(value)
    keys = np.where(mode & 1, size, value) * np.where(mode & 2, -1, 1)
    if fmt.is_float:
        nan = decode_array(fmt, codes).number_class == NumberClass.NAN
        keys = np.where(nan, _FIRST, keys)
    return keys


@packed_rule
def decompress(
    element: ScalarType, index: ScalarType, *words: int, sp: str = "", count: str = ""
) -> tuple[int, ...]:
    """Every group of T elements has S of them at the positions that the metadata names, zeros
    elsewhere; of two at one position the later counts, and positions outside of a group are
    undefined: nothing is written."""
    kept, group, groups = _sizes(sp, count)
    positions = _register_count(kept * index.bits * groups)
    places = _split(words[:positions], index.bits)
    codes = _split(words[positions:], element.bits)
    data = [0] * (group * groups)
    for i in range(kept * groups):
        if places[i] < group:
            data[i // kept * group + places[i]] = codes[i]
    return tuple(_joined(data, element.bits))


@decompress.arrays
def _(
    element: ScalarType, index: ScalarType, *words: Array, sp: str = "", count: str = ""
) -> tuple[Array, ...]:
    kept, group, groups = _sizes(sp, count)
    words = tuple(np.broadcast_arrays(*words))
    positions = _register_count(kept * index.bits * groups)
    places = _split_arrays(words[:positions], index.bits).astype(np.int64)
    codes = _split_arrays(words[positions:], element.bits)
    shape = (*words[0].shape, groups, group)
    data = np.zeros(shape, np.uint32)
    at = np.arange(group)
    for i in range(kept):
        chosen = places[..., i : kept * groups : kept, None] == at
        data = np.where(chosen, codes[..., i : kept * groups : kept, None], data)
    return tuple(_joined_arrays(data, element.bits))


def _sizes(sp: str, count: str) -> tuple[int, int, int]:
    """Elements kept of a group, elements of a group, and groups."""
    kept, group = map(int, sp.removeprefix("sp::").split(":"))
    return kept, group, int(count[1:])


def _register_count(bits: int) -> int:
    return -(-bits // _WORD)


def _split(words: Sequence[int], bits: int) -> list[int]:
    return [word >> at & (1 << bits) - 1 for word in words for at in range(0, _WORD, bits)]


def _joined(codes: list[int], bits: int) -> list[int]:
    each = _WORD // bits
    parts = (codes[i : i + each] for i in range(0, len(codes), each))
    return [sum(code << bits * at for at, code in enumerate(part)) for part in parts]


def _split_arrays(words: Sequence[Array], bits: int) -> Array:
    shifts = np.arange(0, _WORD, bits, dtype=np.uint32)
    codes = np.stack(words, axis=-1)[..., None] >> shifts & np.uint32((1 << bits) - 1)
    return codes.reshape(*codes.shape[:-2], -1)


def _joined_arrays(codes: Array, bits: int) -> list[Array]:
    leading, each = codes.shape[:-2], _WORD // bits
    flat = codes.reshape(*leading, -1).astype(np.uint32)
    missing = -flat.shape[-1] % each
    flat = np.pad(flat, [(0, 0)] * len(leading) + [(0, missing)])
    parts = flat.reshape(*leading, -1, each) << np.arange(0, _WORD, bits, dtype=np.uint32)
    joined = parts.sum(-1, dtype=np.uint32)
    return [joined[..., i] for i in range(joined.shape[-1])]
