"""Words of every scalar type that meet the limits of its rules, and random ones."""

import numpy as np

from emulator.arith.scalar import TYPES


def _float_codes(fmt):
    """Zeros, subnormal and normal limits, ones, infinities, NaNs, and their neighbours.

    infinity + unit - 9 is 0x7FF7 of f16 and of bf16, which fma.oob takes for out of bounds.
    """
    unit, infinity = 1 << fmt.mantissa_bits, fmt.infinity or fmt.max_finite
    one = fmt.bias << fmt.mantissa_bits
    quiet = unit >> 1
    magnitudes = [
        0, 1, 2, unit // 2, unit - 1, unit, unit + 1, 2 * unit - 1, 2 * unit,
        one - unit, one - 1, one, one + 1, one + quiet, one + unit, one + 23 * unit,
        infinity - unit, infinity - 1, infinity,
        infinity + 1, infinity + quiet - 1, infinity + quiet, infinity + unit - 9,
        infinity + unit - 1,
    ]  # fmt: skip
    return [code & fmt.code_mask | sign for code in magnitudes for sign in (0, fmt.sign_mask)]


def _integer_words(bits):
    top = 1 << bits
    near = [0, 1, 2, 3, 7, 8, 31, 32, 33, 63, 64, 127, 128, 255, 256, 0x7FFF, 0x8000, 0xAAAA]
    ends = [top // 2 + x for x in (-2, -1, 0, 1)] + [top - x for x in (1, 2, 3, 32, 33)]
    return sorted({x % top for x in (*near, *ends, 0x5555555555555555, 0x123456789ABCDEF0)})


def boundary_words(name):
    """The words of a type that tests try with each other."""
    t = TYPES[name]
    if t.kind == "predicate":
        return [0, 1]
    codes = _float_codes(t.format) if t.is_float else _integer_words(t.bits)
    if t.count == 1:
        return codes
    # every element meets every other once
    turns = [codes[7 * i :] + codes[: 7 * i] for i in range(t.count)]
    return [
        sum(code << t.bits * i for i, code in enumerate(codes))
        for codes in zip(*turns, strict=True)
    ]


def random_words(name, count, rng):
    """Any bits, and of floating point as many with exponents near each other."""
    t = TYPES[name]
    if t.kind == "predicate":
        return rng.integers(0, 2, count).tolist()
    words = [int.from_bytes(rng.bytes(8), "little") & (1 << t.size) - 1 for _ in range(count)]
    if t.is_float:
        fmt = t.format
        for i in range(0, count, 2):
            word = 0
            for shift in range(0, t.size, t.bits):
                exponent = int(rng.integers(fmt.bias - 8, fmt.bias + 8)) << fmt.mantissa_bits
                fraction = int.from_bytes(rng.bytes(8), "little") & (1 << fmt.mantissa_bits) - 1
                sign = int(rng.integers(2)) * fmt.sign_mask
                word |= (sign | exponent & fmt.code_mask | fraction) << shift
            words[i] = word
    return words


def array_of(name, words):
    """Words as the vector rules take them."""
    t = TYPES[name]
    return np.array(words, dtype=t.dtype)
