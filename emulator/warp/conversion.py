"""Executes the cvts that pack matrix operands, on raw words."""

from __future__ import annotations

import numpy as np

from dtypes import FORMATS, Array, Place, code_type, pack, unpack
from emulator.arith import conversions
from emulator.arrays import as_array
from emulator.errors import OperandError
from emulator.isa.conversion import Conversion, split_type
from emulator.warp.call import Call


def run(call: Call) -> Array:
    """The packed result: words of one shape, uint32 (uint16, uint8 where it has fewer bits).

    Operands are unsigned words that broadcast, in PTX order: f32 words, of which the first comes to
    the highest place, or one packed word; for .rs a word of random bits last. Bits above a packed
    source are ignored. Raises OperandError for operands of another kind.
    """
    ins = call.instruction
    words = [_check(ins, name, x) for name, x in call.operands.items()]
    try:
        words = list(np.broadcast_arrays(*words))
    except ValueError:
        shapes = ", ".join(str(x.shape) for x in words)
        raise OperandError(f"the operands of {ins} do not broadcast: {shapes}") from None
    source_name, packed = split_type(ins.source)
    target_name, count = split_type(ins.to)
    source, target = FORMATS[source_name], FORMATS[target_name]
    random_words = words.pop() if ins.takes_random_bits else None
    if packed > 1:
        # Elements of a packed word, lowest first.
        codes = unpack(words[0][..., None], _place(source.bits), 32)[..., :count]
    else:
        codes = np.stack(words[::-1], axis=-1)
    random_bits = None if random_words is None else _random_bits(ins, random_words)
    out = conversions.convert(
        source, target, codes, ins.rounding, relu=ins.relu, satfinite=ins.satfinite,
        random_bits=random_bits,
    )  # fmt: skip
    width = _place(target.bits).width
    bits = max(8, width * count)
    return pack(out, _place(target.bits), bits)[..., 0] if count > 1 else out[..., 0]


def _place(bits: int) -> Place:
    """Packed elements lie in whole bytes, but for the two nibbles of e2m1x2."""
    return Place(bits if bits in (4, 8, 16, 32) else 8, 0, bits)


def _random_bits(ins: Conversion, words: Array) -> tuple[Array, int]:
    """Random bits of each element, lowest element first, and how many.

    f16x2: 13 bits of each half; bf16x2: its halves; four elements: the upper half for the upper
    pair and the lower half for the lower one; e2m1x4: the upper bytes of both halves for the upper
    pair, the lower bytes for the lower one (PTX ISA 9.7.9.21, where the placement is only drawn:
    UNVERIFIED).
    """
    low, high = words & np.uint32(0xFFFF), words >> np.uint32(16)
    if ins.to == "f16x2":
        return np.stack([low & 0x1FFF, high & 0x1FFF], axis=-1), 13
    if ins.to == "bf16x2":
        return np.stack([low, high], axis=-1), 16
    if ins.to == "e2m1x4":
        byte = np.uint32(0xFF)
        upper_bytes = [high >> np.uint32(8), low >> np.uint32(8)]  # of a, b
        return np.stack([low & byte, high & byte, *upper_bytes[::-1]], axis=-1), 8
    return np.stack([low, low, high, high], axis=-1), 16


def _check(ins: Conversion, name: str, operand: Array) -> Array:
    words = as_array(operand, f"operand {name}")
    if words.dtype.kind != "u" or words.dtype.itemsize > 4:
        raise OperandError(
            f"operands of {ins} are raw words, unsigned integers of at most 32 bits; "
            f"got {words.dtype} (use .view to keep the bits of a float)"
        )
    return words.astype(code_type(32))
