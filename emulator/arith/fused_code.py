"""The fused dot-add of `fused.chain` as machine code: a tile of accumulators stays in the cache
while k runs, 64 neighbouring columns beside each other.

What differs from `fused.chain` is how much is computed here: largest exponents are found in lanes
of 8 bits (16 where the format has more exponents), 64 or 32 at a time; the truncated terms are
summed in int32, where the sum cannot leave it or is marked; an accumulator that overflows stays
infinite, and one that is a NaN stays one. So a mask is needed only for results too small to align.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from emulator.arith.vector_code import (
    F32,
    I8,
    I16,
    I32,
    I64,
    POINTER,
    Value,
    function,
    repeat,
    when,
)

#: columns beside each other, and those of one vector of accumulators
COLUMNS, LANES = 64, 16
#: positions of k that are written out; a pass is padded to a multiple of it
RUN = 8
_BIAS = 127


class Kind(NamedTuple):
    """What code is generated for."""

    fraction_bits: int
    #: least exponent that the alignment uses
    floor: int
    #: exponent of the subnormals of the accumulator's format
    emin: int
    #: significand bits of the result
    precision: int
    #: the result is f16, rounded to nearest even; else f32, toward zero
    half: bool
    #: the passes of an instruction start from +0, and the accumulator is added to their result
    adds_c: bool
    #: bits of a lane for exponents
    exponent_bits: int
    #: largest exponent that stands for a product with a zero
    zero: int
    #: a sum of truncated terms may leave int32
    guarded: bool
    #: every sum of truncated terms is an exact float32
    exact: bool
    #: every lane has an A of its own; else all have one, whose exponents fill words of 32 bits
    a_in_lanes: bool


Run = Callable[..., None]


@lru_cache(maxsize=64)
def tiles_function(kind: Kind) -> Run:
    """``f(first, last, a, a_exponent, b, b_exponent, x, partial, bad, tiles, blocks, passes, k,
    period, rows, n, a_step, b_step)``: the tiles `first` … `last` of x, in a thread of its own.

    Arrays as `fused_tiles` makes them, contiguous: a and its exponents
    ``(t, tiles, passes, rows, k)``, those repeated to fill 32 bits, or both with an axis of lanes
    more; b and its exponents ``(t, blocks, passes, k, COLUMNS)``; x, partial and bad
    ``(t, tiles, blocks, rows, COLUMNS)``.
    A step is 1, or 0 where the batch shares the operand.
    """
    sizes, arrays = [ctypes.c_int64], [ctypes.c_void_p]
    address = function("fused_tiles", [I64] * 2 + [POINTER] * 7 + [I64] * 9, Writer(kind).tiles)
    call = ctypes.CFUNCTYPE(None, *sizes * 2, *arrays * 7, *sizes * 9)(address)

    def run(first: int, last: int, *given: Any) -> None:
        call(first, last, *(x.ctypes.data if isinstance(x, np.ndarray) else x for x in given))

    return run


class Pass(NamedTuple):
    """Where one fused dot-add of a row with 16 columns finds its operands, and their number."""

    a: Value
    b: Value
    k: Value
    #: exponents of the largest products, as float32 has them; negative: no product
    top: Value


class Writer:
    """Writes the code of a kind."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.lane = I8 if kind.exponent_bits == 8 else I16

    def tiles(
        self, first: Value, last: Value,
        a: Value, a_exponent: Value, b: Value, b_exponent: Value,
        x: Value, partial: Value, bad: Value,
        tiles: Value, blocks: Value, passes: Value, k: Value, period: Value, rows: Value, n: Value,
        a_step: Value, b_step: Value,
    ) -> None:  # fmt: skip
        zero = first.constant(0)
        tops = first.room(I32, COLUMNS)

        def task(index: Value) -> tuple[()]:
            t, block, tile = index // (tiles * blocks), index % blocks, index // blocks % tiles
            a_tile = (t * a_step * tiles + tile) * passes * rows * k
            each, word = (COLUMNS, self.lane) if self.kind.a_in_lanes else (1, I32)
            b_block = (t * b_step * blocks + block) * passes * k
            left = n - block * COLUMNS
            width = left.compare("<", COLUMNS).select(left, COLUMNS)

            def one_pass(p: Value) -> tuple[()]:
                b_pass = (b_block + p * k) * COLUMNS

                def row(i: Value) -> tuple[()]:
                    here = (index * rows + i) * COLUMNS
                    a_row = (a_tile + (p * rows + i) * k) * each
                    b_here = b_exponent.at(b_pass, self.lane)
                    self.largest(a_exponent.at(a_row, word), b_here, k, tops)

                    def vector(v: Value) -> tuple[()]:
                        top = tops.at(v, I32, LANES).load(4)
                        a_here = a.at(a_row + v if self.kind.a_in_lanes else a_row, F32)
                        one = Pass(a_here, b.at(b_pass + v, F32), k, top)
                        totals, partials = (y.at(here + v, F32, LANES) for y in (x, partial))
                        marks = bad.at(here + v, I8, LANES)
                        self.accumulate(one, totals, partials, marks, p, period)
                        return ()

                    repeat(zero, width, LANES, vector)
                    return ()

                repeat(zero, rows, 1, row)
                return ()

            repeat(zero, passes, 1, one_pass)
            return ()

        repeat(first, last, 1, task)

    def largest(self, a: Value, b: Value, k: Value, tops: Value) -> None:
        """The exponents of the largest products of a row with 64 columns."""
        count = 512 // self.kind.exponent_bits
        zero = k.constant(0)
        least = -(1 << (self.kind.exponent_bits - 1))
        for start in range(0, COLUMNS, count):
            lowest = zero.of(self.lane, least).splat(count)

            def some(i: Value, *top: Value, start: int = start) -> tuple[Value]:
                (largest,) = top
                for j in range(RUN):
                    q = b.at((i + j) * COLUMNS + start, self.lane, count).load(2)
                    if self.kind.a_in_lanes:
                        p = a.at((i + j) * COLUMNS + start, self.lane, count).load(2)
                    else:
                        p = a.at(i + j, I32).load(4).splat(16).bits(self.lane)
                    largest = largest.max(p + q)
                return (largest,)

            (top,) = repeat(zero, k, RUN, some, lowest)
            top = top.compare(">", self.kind.zero).select(top, least)
            for lanes in range(0, count, LANES):
                field = top.part(lanes, LANES).to(I32) + _BIAS
                tops.at(zero + start + lanes, I32, LANES).store(field, 4)

    def accumulate(
        self, one: Pass, x: Value, partial: Value, bad: Value, p: Value, period: Value
    ) -> None:
        """One pass of a row with 16 columns, from memory to memory."""
        if not self.kind.adds_c:
            x.store(self.dot_add(one, x.load(4), bad), 4)
            return
        begins = (p % period).compare("==", 0).splat(LANES)
        old = partial.load(4)
        new = self.dot_add(one, begins.select(old.constant(0.0), old), bad)
        partial.store(new, 4)

        def add() -> None:
            total = x.load(4) + new
            x.store(self.to_half(total) if self.kind.half else total, 4)

        when(((p + 1) % period).compare("==", 0), add)

    def dot_add(self, one: Pass, x: Value, bad: Value) -> Value:
        """The accumulators after a pass."""
        fraction_bits = self.kind.fraction_bits
        field = (x.bits(I32) >> 23) & 0xFF
        own = x.compare("==", 0.0).select(field.constant(0), field.max(self.kind.emin + _BIAS))
        top = one.top.max(own).max(max(self.kind.floor + _BIAS, 0))
        something = one.top.max(own)
        # What scales terms, and the unit of the sum, are normal from here on.
        least = fraction_bits + 1
        small = top.compare("<", least)

        def mark_small() -> None:
            # No term at all is not too small.
            mark(bad, small & something.compare(">", 0))

        when(small.any(), mark_small)
        top = top.max(least)
        scale = ((top.constant(254 + fraction_bits) - top) << 23).bits(F32)
        total = self.sum(one, x, scale, bad)
        number = self.to_float(total)
        result = number * ((top - fraction_bits) << 23).bits(F32)
        if self.kind.half:
            result = self.to_half(result)
        # An accumulator that is infinite or a NaN stays so: there are no such products.
        return field.compare("==", 0xFF).select(x, result)

    def sum(self, one: Pass, x: Value, scale: Value, bad: Value) -> Value:
        """The truncated terms, added; marks sums that int32 does not hold."""
        guarded = self.kind.guarded

        def run(i: Value, *state: Value) -> list[Value]:
            cut = []
            for j in range(RUN):
                column = one.b.at((i + j) * COLUMNS, F32, LANES).load(4)
                if self.kind.a_in_lanes:
                    row = one.a.at((i + j) * COLUMNS, F32, LANES).load(4)
                else:
                    row = one.a.at(i + j, F32).load(4).splat(LANES)
                cut.append((row * column * scale).to(I32))
            added = cut[0]
            for term in cut[1:]:
                added = added + term
            total = state[0] + added
            if not guarded:
                return [total]
            return [total, state[1] | ((state[0] ^ total) & (added ^ total))]

        total = (x * scale).to(I32)
        state = [total, total.constant(0)] if guarded else [total]
        total, *over = repeat(one.k.constant(0), one.k, RUN, run, *state)
        if guarded:
            outside = (over[0] | (total.magnitude() + 128)).compare("<", 0)
            finite = ((x.bits(I32) >> 23) & 0xFF).compare("!=", 0xFF)
            when(outside.any(), lambda: mark(bad, outside & finite))
        return total

    def to_float(self, total: Value) -> Value:
        """An integer as a float of the precision, toward zero; of f16 results a last bit that is
        set where something was cut, so that they can be rounded later."""
        kept = -1 if self.kind.half else -(1 << (24 - self.kind.precision))
        if self.kind.exact:
            return (total.to(F32).bits(I32) & kept).bits(F32)
        size = total.magnitude()
        near = size.to(F32)
        back = near.to(I32)
        word = near.bits(I32) - back.compare(">", size).to(I32)
        if self.kind.half:
            word = word | back.compare("!=", size).to(I32)
        return ((word & kept) | (total & -(1 << 31))).bits(F32)

    def to_half(self, number: Value) -> Value:
        """Rounded to nearest even as f16 does: `fused.round_to_half`, with overflow."""
        word = number.bits(I32)
        size = (word & 0x7FFFFFFF).bits(F32)
        normal = ((word + 0xFFF + ((word >> 13) & 1)) & -(1 << 13)).bits(F32)
        # The last bit of an f16 below 2**-14 is 2**-24: that of a float32 near 0.75.
        subnormal = (number + 0.75) - 0.75
        rounded = size.compare("<", 2.0**-14).select(subnormal, normal)
        infinite = ((word & -(1 << 31)) | 0x7F800000).bits(F32)
        return size.compare(">=", 65520.0).select(infinite, rounded)


def mark(bad: Value, where: Value) -> None:
    bad.store(bad.load(1) | where.to(I8), 1)
