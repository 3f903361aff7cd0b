"""Decodes operands for `fused_code`: float32 numbers, and exponents in short lanes."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from dtypes import Format
from emulator.arith.fast.emitter import Emitter, native_function
from emulator.arith.fast.kernels.elements import NOWHERE, decoded, power_of_two
from emulator.arith.fast.words import LONG, POINTER, Value, Word, select

#: elements that are decoded together, and words of 32 bits in the longest vectors
LANES, _WORDS = 8, 16


class Layout(NamedTuple):
    """Parameters of a generated function."""

    fmt: Format
    #: the format whose exponents count
    widened: Format
    #: of the scales that are multiplied in, one for each element
    scale: Format | None
    #: bits of a lane for exponents; the least number stands for a zero
    exponent_bits: int
    #: exponents fill 32 bits, as often as there is room; else a word of 32 bits has those of
    #: elements that are a vector of such words apart
    repeated: bool
    #: this many neighbours are followed by as many zeros, and what is negative lies in the place of
    #: these; 0: all lie in their own places
    split: int


@lru_cache(maxsize=64)
def decoding_function(layout: Layout) -> Callable[..., None]:
    """``f(first, last, codes, scales, value, exponent, largest)``: groups of 8 elements, `first` …
    `last`, whole words of exponents; these count from `largest`, infinities and NaNs become
    zeros."""

    def write(e: Emitter, first: Word, last: Word, *given: Value) -> None:
        *arrays, largest = given
        with e.loop(last * LANES, first * LANES, LANES) as i:
            _write(e, layout, i, arrays, largest.astype(np.int32).splat(LANES))

    return native_function("decode", [LONG, LONG, *[POINTER] * 4, LONG], write, LANES)


def _write(e: Emitter, layout: Layout, i: Word, arrays: list[Value], largest: Word) -> None:
    """The elements from `i` on."""
    codes, scales, values, exponents = arrays
    x = decoded(layout.fmt, _codes(e, layout.fmt, codes, i), layout.widened)
    value, exponent, fraction = x.value, x.exponent, x.fraction_bits
    if layout.scale is not None:
        by = decoded(layout.scale, _codes(e, layout.scale, scales, i))
        value, exponent = value * by.value, exponent + by.exponent
        fraction += by.fraction_bits
    number = value * power_of_two(exponent - fraction)
    is_zero = exponent < NOWHERE // 2
    exponent = select(is_zero, -(1 << (layout.exponent_bits - 1)), exponent - largest)
    ones, mask = (0x01010101, 0xFF) if layout.exponent_bits == 8 else (0x00010001, 0xFFFF)
    exponent = exponent.view(np.uint32) & mask
    if layout.repeated:
        e.store(exponent * ones, exponents, i)
    else:
        _store_in_words(e, exponent, layout.exponent_bits, exponents, i)
    if not layout.split:
        e.store(number, values, i)
        return
    is_negative = number < 0.0
    place = i + (i & -layout.split)
    e.store(select(is_negative, 0.0, number), values, place)
    e.store(select(is_negative, number, 0.0), values, place + layout.split)


def _store_in_words(e: Emitter, exponent: Word, bits: int, exponents: Value, i: Word) -> None:
    """Into a part of words, whose lowest is written first."""
    parts = 32 // bits
    part = (i // _WORDS) & (parts - 1)
    place = i // (_WORDS * parts) * _WORDS + (i & _WORDS - 1)
    shift = (part.astype(np.uint32) * bits).splat(LANES)
    held = e.lanes(exponents, place, np.uint32)
    held = select(shift == 0, 0, held)
    e.store(held | exponent.shifted_left(shift), exponents, place)


def _codes(e: Emitter, fmt: Format, codes: Value, i: Word) -> Word:
    """Codes of memory in 32 bits."""
    return e.lanes(codes, i, f"u{max(fmt.bits, 8) // 8}").astype(np.uint32)
