"""The fused dot-add of `fused.chain` as machine code: a tile of accumulators stays in the cache
while k runs, 64 neighbouring columns beside each other.

What differs from `fused.chain` is how much is computed here: largest exponents are found in lanes
of 8 bits (16 where those of the elements lie too far apart), 64 or 32 at a time; the truncated
terms are summed in int32, where the sum cannot leave it or is marked; an accumulator that overflows
stays infinite, and one that is a NaN stays one. So a mask is needed only for results too small to
align. Where the processor rounds single instructions as they say (AVX-512), an integer becomes a
number in one of them, and short sums are truncated by the multiply-add itself (`float_sums`).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import lru_cache, reduce
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
    either,
    function,
    repeat,
    when,
)

#: columns beside each other, and those of one vector of accumulators
COLUMNS, LANES = 64, 16
#: terms that are added before int32 is watched; a pass is padded to a multiple of it
RUN = 8
_BIAS, _MANTISSA = 127, 23
_EXPONENT = 0xFF << _MANTISSA


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
    #: positions of k in a pass, a multiple of RUN
    k: int
    #: bits of a lane for exponents
    exponent_bits: int
    #: positions whose truncated terms int32 always holds the sum of, with the accumulator
    safe: int
    #: every sum of truncated terms is an exact float32
    exact: bool
    #: every lane has an A of its own; else all have one, whose exponents fill words of 32 bits
    a_in_lanes: bool
    #: the processor rounds single instructions as they say
    directed: bool
    #: terms are added in float32; B comes as its positive and its negative elements
    floats: bool

    @property
    def together(self) -> int:
        """Vectors of accumulators that are computed beside each other, as registers allow."""
        return COLUMNS // LANES if self.directed else 1


Run = Callable[..., None]


@lru_cache(maxsize=64)
def tiles_function(kind: Kind) -> Run:
    """``f(first, last, a, a_exponent, b, b_exponent, x, partial, bad, tiles, blocks, passes,
    period, rows, n, bias, a_step, b_step)``: the tiles `first` … `last` of x, in a thread of its
    own.

    Arrays as `fused_tiles` makes them, contiguous: a and its exponents
    ``(t, tiles, passes, rows, k)``, those repeated to fill 32 bits, or both with an axis of lanes
    more; b ``(t, blocks, passes, k, COLUMNS)``, of floats ``(…, k, 2, COLUMNS)``, and its exponents
    ``(t, blocks, passes, k, COLUMNS)``; x, partial and bad ``(t, tiles, blocks, rows, COLUMNS)``.
    Exponents are what `bias` makes those of products as float32 has them; the least of a lane
    stands for zero. A step is 1, or 0 where the batch shares the operand.
    """
    sizes, arrays = [ctypes.c_int64], [ctypes.c_void_p]
    address = function("fused_tiles", [I64] * 2 + [POINTER] * 7 + [I64] * 9, Writer(kind).tiles)
    call = ctypes.CFUNCTYPE(None, *sizes * 2, *arrays * 7, *sizes * 9)(address)

    def run(first: int, last: int, *given: Any) -> None:
        call(first, last, *(x.ctypes.data if isinstance(x, np.ndarray) else x for x in given))

    return run


class Pass(NamedTuple):
    """One fused dot-add of a row with some vectors of columns: where it finds its operands, and the
    largest of its products, by vectors."""

    a: Value
    b: Value
    #: exponents as the bits of float32 have them; 0: no product
    tops: list[Value]


class Writer:
    """Writes the code of a kind."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.lane = I8 if kind.exponent_bits == 8 else I16
        #: positions of k that are written out
        self.run = next(run for run in (32, 16, RUN) if kind.k % run == 0)
        #: bits of a float that a result keeps, of f16 until it is rounded
        self.kept = -1 if kind.half else -(1 << (_MANTISSA + 1 - kind.precision))
        #: numbers that B has for a column
        self.signs = 2 if kind.floats else 1
        #: What scales terms, and the unit of the sum, are normal from here on.
        self.least = kind.fraction_bits + 1
        #: and the number that floats are added to is finite up to here
        self.largest = 254 - (_MANTISSA - kind.fraction_bits) if kind.floats else 255

    def tiles(
        self, first: Value, last: Value,
        a: Value, a_exponent: Value, b: Value, b_exponent: Value,
        x: Value, partial: Value, bad: Value,
        tiles: Value, blocks: Value, passes: Value, period: Value, rows: Value, n: Value,
        bias: Value, a_step: Value, b_step: Value,
    ) -> None:  # fmt: skip
        zero, k, together = first.constant(0), self.kind.k, self.kind.together
        tops, to_field = first.room(I32, COLUMNS), bias.to(I32).splat(LANES)

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
                    found = self.largest_products(
                        a_exponent.at(a_row, word), b_exponent.at(b_pass, self.lane), to_field
                    )

                    def vectors(v: Value, tops: list[Value]) -> None:
                        a_here = a.at(a_row + v if self.kind.a_in_lanes else a_row, F32)
                        one = Pass(a_here, b.at(b_pass * self.signs + v, F32), tops)
                        totals, partials, marks = (
                            [y.at(here + v + j * LANES, type_, LANES) for j in range(len(tops))]
                            for y, type_ in ((x, F32), (partial, F32), (bad, I8))
                        )
                        self.accumulate(one, totals, partials, marks, p, period)

                    def vector(v: Value) -> tuple[()]:
                        vectors(v, [tops.at(v, I32, LANES).load(4)])
                        return ()

                    def one_by_one() -> None:
                        for j, top in enumerate(found):
                            tops.at(zero + j * LANES, I32, LANES).store(top, 4)
                        repeat(zero, width, LANES, vector)

                    if together == 1:
                        one_by_one()
                    else:
                        whole = width.compare(">", COLUMNS - LANES)
                        either(whole, lambda: vectors(zero, found), one_by_one)
                    return ()

                repeat(zero, rows, 1, row)
                return ()

            repeat(zero, passes, 1, one_pass)
            return ()

        repeat(first, last, 1, task)

    def largest_products(self, a: Value, b: Value, to_field: Value) -> list[Value]:
        """The exponents of the largest products of a row with all columns, by vectors."""
        count = 512 // self.kind.exponent_bits
        zero, least = a.of(I64, 0), -(1 << (self.kind.exponent_bits - 1))
        out = []
        for start in range(0, COLUMNS, count):

            def some(i: Value, *top: Value, start: int = start) -> tuple[Value]:
                (largest,) = top
                for j in range(self.run):
                    q = b.at((i + j) * COLUMNS + start, self.lane, count).load(2)
                    if self.kind.a_in_lanes:
                        p = a.at((i + j) * COLUMNS + start, self.lane, count).load(2)
                    else:
                        p = a.at(i + j, I32).load(4).splat(16).bits(self.lane)
                    # What is added to the least number stays there, or is below zero.
                    largest = largest.max(p.within(q))
                return (largest,)

            (top,) = self.over_k(some, zero.of(self.lane, least).splat(count))
            for lanes in range(0, count, LANES):
                found = top.part(lanes, LANES).to(I32)
                field = (found + to_field) << _MANTISSA
                out.append(found.compare(">", least).select(field, 0))
        return out

    def over_k(self, some: Callable[..., Sequence[Value]], *state: Value) -> Sequence[Value]:
        """``state = some(i, *state)`` for every run of positions from i on."""
        zero = state[0].of(I64, 0)
        if self.run == self.kind.k:
            return some(zero, *state)
        return repeat(zero, zero.constant(self.kind.k), self.run, some, *state)

    def accumulate(
        self, one: Pass, x: list[Value], partial: list[Value], bad: list[Value],
        p: Value, period: Value,
    ) -> None:  # fmt: skip
        """One pass of a row with some vectors of columns, from memory to memory."""
        if not self.kind.adds_c:
            store(x, self.dot_add(one, [y.load(4) for y in x], bad))
            return
        begins = (p % period).compare("==", 0).splat(LANES)
        old = [y.load(4) for y in partial]
        new = self.dot_add(one, [begins.select(y.constant(0.0), y) for y in old], bad)
        store(partial, new)

        def add() -> None:
            totals = [y.load(4) + z for y, z in zip(x, new, strict=True)]
            store(x, [self.to_half(y) for y in totals] if self.kind.half else totals)

        when(((p + 1) % period).compare("==", 0), add)

    def dot_add(self, one: Pass, x: list[Value], bad: list[Value]) -> list[Value]:
        """The accumulators after a pass."""
        fields = [y.bits(I32) & _EXPONENT for y in x]
        own = [self.counted(y, field) for y, field in zip(x, fields, strict=True)]
        raw = [top.max(y) for top, y in zip(one.tops, own, strict=True)]
        self.mark_outside(raw, x, bad)
        least = max(self.kind.floor + _BIAS, self.least) << _MANTISSA
        tops = [top.max(least) for top in raw]
        compute = self.float_sums if self.kind.floats else self.integer_sums
        results = compute(one, x, tops, bad)
        if self.kind.half:
            results = [self.to_half(y) for y in results]
        # An accumulator that is infinite or a NaN stays so: there are no such products.
        return [
            field.compare("==", _EXPONENT).select(y, result)
            for y, field, result in zip(x, fields, results, strict=True)
        ]

    def counted(self, x: Value, field: Value) -> Value:
        """The exponent that an accumulator counts with."""
        if not self.kind.half:
            return field  # of a subnormal 0, which is outside as its own is
        least = field.max((self.kind.emin + _BIAS) << _MANTISSA)
        return x.compare("==", 0.0).select(field.constant(0), least)

    def mark_outside(self, tops: list[Value], x: list[Value], bad: list[Value]) -> None:
        """Marks what is too small to align, or too large."""
        least = 0 if self.kind.floor + _BIAS >= self.least else self.least
        if not least and self.largest == 255:
            return
        last = (self.largest + 1 - least) << _MANTISSA
        outside = [(top - (least << _MANTISSA)).unsigned(">=", last) for top in tops]

        def mark_them() -> None:
            for top, y, where, marks in zip(tops, x, outside, bad, strict=True):
                # No term at all is not too small, and infinities and NaNs stay.
                word = y.bits(I32) & 0x7FFFFFFF
                something = (word | top).compare("!=", 0) & word.compare("<", _EXPONENT)
                mark(marks, where & something)

        when(joined(outside).any(), mark_them)

    def integer_sums(
        self, one: Pass, x: list[Value], tops: list[Value], bad: list[Value]
    ) -> list[Value]:
        """The truncated terms, added in int32, as numbers; marks sums that it does not hold."""
        fraction = self.kind.fraction_bits
        scales = [
            (top.constant((2 * _BIAS + fraction) << _MANTISSA) - top).bits(F32) for top in tops
        ]
        totals, over = self.added(one, x, scales)
        if over is not None:
            outside = over
            if not self.kind.directed:
                # What float32 rounds to 2**31 does not come back.
                near = [total.magnitude() + 128 for total in totals]
                outside = [y | z for y, z in zip(over, near, strict=True)]

            def mark_finite() -> None:
                for y, lost, marks in zip(x, outside, bad, strict=True):
                    finite = (y.bits(I32) & _EXPONENT).compare("!=", _EXPONENT)
                    mark(marks, lost.compare("<", 0) & finite)

            when(joined(outside).compare("<", 0).any(), mark_finite)
        return [
            self.to_float(total) * (top - (fraction << _MANTISSA)).bits(F32)
            for total, top in zip(totals, tops, strict=True)
        ]

    def added(
        self, one: Pass, x: list[Value], scales: list[Value]
    ) -> tuple[list[Value], list[Value] | None]:
        """The truncated terms, added, and words whose sign says that int32 does not hold them."""
        count = len(x)

        def some(i: Value, *state: Value) -> list[Value]:
            totals, over = list(state[:count]), list(state[count:])
            for start in range(0, self.run, RUN):
                parts = self.terms(one, i + start, scales)
                for v, part in enumerate(parts):
                    total = totals[v] + part
                    reached = self.kind.k if self.run < self.kind.k else start + RUN
                    if reached > self.kind.safe:
                        over[v] = over[v] | ((totals[v] ^ total) & (part ^ total))
                    totals[v] = total
            return totals + over

        totals = [(y * scale).to(I32) for y, scale in zip(x, scales, strict=True)]
        over = [y.constant(0) for y in totals] if self.kind.k > self.kind.safe else []
        state = list(self.over_k(some, *totals, *over))
        return state[:count], state[count:] or None

    def terms(self, one: Pass, i: Value, scales: list[Value]) -> list[Value]:
        """The sums of eight truncated terms from position i on."""
        sums: list[Value] = []
        for j in range(RUN):
            rows = self.row(one, i + j, len(scales))
            cut = [
                (rows[v] * one.b.at((i + j) * COLUMNS + v * LANES, F32, LANES).load(4) * scale).to(
                    I32
                )
                for v, scale in enumerate(scales)
            ]
            sums = [y + z for y, z in zip(sums, cut, strict=True)] if sums else cut
        return sums

    def row(self, one: Pass, i: Value, count: int) -> list[Value]:
        """The elements of A that vectors meet at a position."""
        if not self.kind.a_in_lanes:
            return [one.a.at(i, F32).load(4).splat(LANES)] * count
        return [one.a.at(i * COLUMNS + v * LANES, F32, LANES).load(4) for v in range(count)]

    def float_sums(
        self, one: Pass, x: list[Value], tops: list[Value], bad: list[Value]
    ) -> list[Value]:
        """The truncated terms, added in float32: to numbers so large that what is below the unit of
        the sum is cut off, positive terms to a positive one and negative to a negative one."""
        count, shift = len(x), (_MANTISSA - self.kind.fraction_bits) << _MANTISSA
        large = [(top + (shift | 1 << (_MANTISSA - 1))).bits(F32) for top in tops]
        above = [
            y.cut_sum(z.compare(">", 0.0).select(z, 0.0)) for y, z in zip(large, x, strict=True)
        ]
        below = [
            (y.constant(-0.0) - y).cut_sum(z.compare("<", 0.0).select(z, 0.0))
            for y, z in zip(large, x, strict=True)
        ]

        def some(i: Value, *state: Value) -> list[Value]:
            sums = list(state)
            for j in range(self.run):
                row, place = one.a.at(i + j, F32).load(4).splat(LANES), (i + j) * (2 * COLUMNS)
                # Of a negative element, the positive products are those with negative columns.
                swapped = (one.a.at(i + j, I32).load(4).to(I64) >> 57) & COLUMNS
                for v in range(count):
                    first = place + v * LANES
                    for side, index in ((0, first + swapped), (count, first + (swapped ^ COLUMNS))):
                        column = one.b.at(index, F32, LANES).load(4)
                        sums[side + v] = sums[side + v].cut_fma(row, column)
            return sums

        sums = self.over_k(some, *above, *below)
        totals = [sums[v] + sums[count + v] for v in range(count)]
        return [(y.bits(I32) & self.kept).bits(F32) for y in totals]

    def to_float(self, total: Value) -> Value:
        """An integer as a float of the precision, toward zero; of f16 results a last bit that is
        set where something was cut, so that they can be rounded later."""
        if self.kind.exact:
            return (total.to(F32).bits(I32) & self.kept).bits(F32)
        if self.kind.directed:
            near = total.cut_float()
            if not self.kind.half:
                return (near.bits(I32) & self.kept).bits(F32)
            return (near.bits(I32) | near.to(I32).compare("!=", total).to(I32)).bits(F32)
        size = total.magnitude()
        near = size.to(F32)
        back = near.to(I32)
        word = near.bits(I32) - back.compare(">", size).to(I32)
        if self.kind.half:
            word = word | back.compare("!=", size).to(I32)
        return ((word & self.kept) | (total & -(1 << 31))).bits(F32)

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


def store(places: Sequence[Value], values: Sequence[Value]) -> None:
    for place, value in zip(places, values, strict=True):
        place.store(value, 4)


def joined(values: Sequence[Value]) -> Value:
    """The bits that any has."""
    return reduce(Value.__or__, values)


def mark(bad: Value, where: Value) -> None:
    bad.store(bad.load(1) | where.to(I8), 1)
