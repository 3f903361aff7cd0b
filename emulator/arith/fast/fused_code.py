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

from dtypes import FORMATS
from emulator.arith.fast.kernels import machine_code
from emulator.arith.fast.vector_code import (
    F32,
    I8,
    I16,
    I32,
    I64,
    POINTER,
    Value,
    either,
    module,
    rarely,
    repeat,
    when,
)

#: columns beside each other, and those of one vector of accumulators
COLUMNS, LANES = 64, 16
#: rows of a tile of accumulators at most: it fits the first cache with a pass of B
ROWS = 64
#: terms that are added before int32 is watched; a pass is padded to a multiple of it
RUN = 8
_BIAS, _MANTISSA = 127, 23
_EXPONENT = 0xFF << _MANTISSA
_HALF = FORMATS["f16"]
#: between the exponent fields of a number in float32 and in f16
_APART = _BIAS - _HALF.bias


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
    #: bits of a code of C and D
    bits: int
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


class Shape(NamedTuple):
    """The sizes that the code is called with, in the order of its arguments: integers, and in the
    code the values that hold them."""

    #: pieces of the rows and of the columns of each product of the batch
    tiles: Any
    blocks: Any
    #: passes in all, and of one instruction
    passes: Any
    period: Any
    #: of a piece, and rows and columns of D, of which the last pieces may hold less
    rows: Any
    m: Any
    n: Any
    #: what the exponents of products count from
    bias: Any
    #: 1, or 0 where the batch shares A or B
    a_step: Any
    b_step: Any
    #: elements from one product to the next in C and in D, from block to block, and from row to row
    c_step: Any
    d_step: Any
    block_step: Any
    row_step: Any


@lru_cache(maxsize=64)
def tiles_function(kind: Kind) -> Run:
    """``f(first, last, a, a_exponent, b, b_exponent, c, d, bad, *shape)``: the tiles `first` …
    `last` of D, in a thread of its own.

    Operands as `fused_tiles` makes them, contiguous: a and its exponents
    ``(t, tiles, passes, rows, k)``, those repeated to fill 32 bits, or both with an axis of lanes
    more; b ``(t, blocks, passes, k, COLUMNS)``, of floats ``(…, k, 2, COLUMNS)``, and its exponents
    ``(t, blocks, passes, k, COLUMNS)``, of which words of 32 bits hold those of columns that are
    LANES apart. Exponents are what the bias makes those of products as float32 has them; the least
    of a lane stands for zero. C and D are codes, NaNs of D the canonical one; `bad` is as D, and is
    written where something is marked.
    """
    sizes, arrays = ctypes.c_int64, ctypes.c_void_p
    count = len(Shape._fields)
    types = [I64] * 2 + [POINTER] * 7 + [I64] * count
    name, arguments = "fused_tiles", [*[sizes] * 2, *[arrays] * 7, *[sizes] * count]
    call = machine_code.function(module(name, types, Writer(kind).tiles), name, None, *arguments)

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


class _Tile(NamedTuple):
    """Memory of the code: ROWS rows of COLUMNS accumulators, the sums of passes that are not yet
    added to them, and marks; and the largest exponents of one row."""

    x: Value
    partial: Value
    bad: Value
    tops: Value

    def of_results(self) -> tuple[tuple[Value, Any], tuple[Value, Any]]:
        return (self.x, F32), (self.bad, I8)


#: what emits the loads of accumulators
Load = Callable[[], list[Value]]


class Writer:
    """Writes the code of a kind."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.lane = I8 if kind.exponent_bits == 8 else I16
        #: positions of k that are written out
        self.run = RUN if kind.floats or kind.k % (2 * RUN) else 2 * RUN
        #: bits of a float that a result keeps, of f16 until it is rounded
        self.kept = -1 if kind.half else -(1 << (_MANTISSA + 1 - kind.precision))
        #: numbers that B has for a column
        self.signs = 2 if kind.floats else 1
        #: What scales terms, and the unit of the sum, are normal from here on.
        self.least = kind.fraction_bits + 1
        #: and the number that floats are added to is finite up to here
        self.largest = 254 - (_MANTISSA - kind.fraction_bits if kind.floats else 0)

    def tiles(
        self, first: Value, last: Value,
        a: Value, a_exponent: Value, b: Value, b_exponent: Value,
        c: Value, d: Value, bad: Value, *shape: Value,
    ) -> None:  # fmt: skip
        zero, size, k = first.constant(0), Shape(*shape), self.kind.k
        tile = _Tile(
            first.room(F32, ROWS * COLUMNS), first.room(F32, ROWS * COLUMNS),
            first.room(I8, ROWS * COLUMNS), first.room(I32, COLUMNS),
        )  # fmt: skip
        each = COLUMNS if self.kind.a_in_lanes else 1

        def task(index: Value) -> tuple[()]:
            t, block = index // (size.tiles * size.blocks), index % size.blocks
            row = index // size.blocks % size.tiles
            a_tile = (t * size.a_step * size.tiles + row) * size.passes * size.rows * k
            b_block = (t * size.b_step * size.blocks + block) * size.passes * k
            row *= size.rows
            height, width = (size.m - row).min(size.rows), (size.n - block * COLUMNS).min(COLUMNS)
            here = block * size.block_step + row * size.row_step

            def part(start: Value) -> tuple[()]:
                count, place = (height - start).min(ROWS), here + start * size.row_step
                self.read(tile, c, t * size.c_step + place, count, width, size.row_step)

                def one_pass(p: Value) -> tuple[()]:
                    b_pass = (b_block + p * k) * COLUMNS
                    columns = b.at(b_pass * self.signs, F32), b_exponent.at(b_pass, self.lane)
                    a_pass = a_tile + (p * size.rows + start) * k

                    def one_row(i: Value) -> tuple[()]:
                        a_row = (a_pass + i * k) * each
                        word = self.lane if self.kind.a_in_lanes else I32
                        rows = a.at(a_row, F32), a_exponent.at(a_row, word)
                        self.row_of_pass(tile, rows, columns, i, p, size, width)
                        return ()

                    repeat(zero, count, 1, one_row)
                    return ()

                repeat(zero, size.passes, 1, one_pass)
                place += t * size.d_step
                self.write(tile, d, bad, place, count, width, size.row_step)
                return ()

            repeat(zero, height, ROWS, part)
            return ()

        repeat(first, last, 1, task)

    def row_of_pass(
        self, tile: _Tile, row: tuple[Value, Value], columns: tuple[Value, Value],
        i: Value, p: Value, size: Shape, width: Value,
    ) -> None:  # fmt: skip
        """Row `i` of a tile with the columns of a block; values come before exponents."""
        zero = i.constant(0)
        found = self.largest_products(row[1], columns[1], size.bias.to(self.lane))

        def vectors(v: Value, tops: list[Value]) -> None:
            a = row[0].at(v, F32) if self.kind.a_in_lanes else row[0]
            one = Pass(a, columns[0].at(v, F32), tops)
            x, partial, bad = (
                [y.at(i * COLUMNS + v + j * LANES, type_, LANES) for j in range(len(tops))]
                for y, type_ in ((tile.x, F32), (tile.partial, F32), (tile.bad, I8))
            )
            self.accumulate(one, x, partial, bad, p, size.period)

        def vector(v: Value) -> tuple[()]:
            vectors(v, [tile.tops.at(v, I32, LANES).load(4)])
            return ()

        def one_by_one() -> None:
            for j, top in enumerate(found):
                tile.tops.at(zero + j * LANES, I32, LANES).store(top, 4)
            repeat(zero, width, LANES, vector)

        if self.kind.together == 1:
            one_by_one()
        else:
            whole = width.compare(">", COLUMNS - LANES)
            either(whole, lambda: vectors(zero, found), one_by_one)

    def read(
        self, tile: _Tile, c: Value, start: Value, rows: Value, width: Value, step: Value
    ) -> None:
        """Accumulators from `start` on in C to a tile, columns that it has not as zeros."""
        code = I16 if self.kind.bits == 16 else I32

        def row(i: Value) -> tuple[()]:
            for v in range(0, COLUMNS, LANES):
                x, marks = (y.at(i * COLUMNS + v, type_, LANES) for y, type_ in tile.of_results())
                x.store(x.of(F32, 0.0).splat(LANES), 4)
                marks.store(x.of(I8, 0).splat(LANES), 1)

            def some(j: Value, count: int) -> None:
                codes = c.at(start + i * step + j, code, count).load(1)
                tile.x.at(i * COLUMNS + j, F32, count).store(self.number(codes), 4)

            in_vectors(width, some)
            return ()

        repeat(start.constant(0), rows, 1, row)

    def write(
        self, tile: _Tile, d: Value, bad: Value, start: Value, rows: Value, width: Value,
        step: Value,
    ) -> None:  # fmt: skip
        """A tile to its codes in D, and its marks."""
        code = I16 if self.kind.bits == 16 else I32

        def row(i: Value) -> tuple[()]:
            def some(j: Value, count: int) -> None:
                x, marks = (y.at(i * COLUMNS + j, type_, count) for y, type_ in tile.of_results())
                d.at(start + i * step + j, code, count).store(self.code(x.load(4)).to(code), 1)
                bad.at(start + i * step + j, I8, count).store(marks.load(1), 1)

            in_vectors(width, some)
            return ()

        repeat(start.constant(0), rows, 1, row)

    def number(self, code: Value) -> Value:
        """Codes as numbers of float32, NaNs of any payload."""
        if self.kind.bits == 32:
            return code.bits(F32)
        word = code.to(I32)
        size = word & 0x7FFF
        normal = (size << (_MANTISSA - _HALF.mantissa_bits)) + (_APART << _MANTISSA)
        normal = size.compare(">=", _HALF.infinity).select(normal | _EXPONENT, normal)
        least = 2.0 ** (_HALF.emin - _HALF.mantissa_bits)
        small = (size.to(F32) * least).bits(I32)
        size = size.compare("<", 1 << _HALF.mantissa_bits).select(small, normal)
        return (size | (word & -(1 << 31))).bits(F32)

    def code(self, number: Value) -> Value:
        """Codes, in int32, of numbers that the format has."""
        fmt = FORMATS[f"f{self.kind.bits}"]
        assert fmt.infinity is not None and fmt.nan is not None
        word = number.bits(I32)
        size, sign = word & 0x7FFFFFFF, word & -(1 << 31)
        code, nan = word, size.compare(">", _EXPONENT)
        if self.kind.bits == 16:
            normal = (size - (_APART << _MANTISSA)) >> (_MANTISSA - fmt.mantissa_bits)
            is_small = size.compare("<", (fmt.emin + _BIAS) << _MANTISSA)
            units = size.bits(F32) * 2.0 ** (fmt.mantissa_bits - fmt.emin)
            small = is_small.select(units, 0.0).to(I32)
            code = is_small.select(small, normal.min(fmt.infinity)) | (sign >> 16)
        return nan.select(word.constant(fmt.nan), code)

    def largest_products(self, a: Value, b: Value, bias: Value) -> list[Value]:
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
            fields = top.compare(">", least).select(top + bias.splat(count), 0).bits(I32)
            for bit in range(0, 32, self.kind.exponent_bits):
                left = _MANTISSA - bit
                out.append((fields << left if left > 0 else fields >> -left) & _EXPONENT)
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

        def whole() -> list[Value]:
            return [y.load(4) for y in x]

        def part() -> list[Value]:
            begins = (p % period).compare("==", 0).splat(LANES)
            old = [y.load(4) for y in partial]
            return [begins.select(y.constant(0.0), y) for y in old]

        new = self.dot_add(one, part if self.kind.adds_c else whole, bad)
        if not self.kind.adds_c:
            store(x, new)
            return
        store(partial, new)

        def add() -> None:
            totals = [y.load(4) + z for y, z in zip(x, new, strict=True)]
            store(x, [self.to_half(y) for y in totals] if self.kind.half else totals)

        when(((p + 1) % period).compare("==", 0), add)

    def dot_add(self, one: Pass, load: Load, bad: list[Value]) -> list[Value]:
        """The accumulators after a pass. What is rare loads those before it anew, so that they need
        not stay in registers."""
        x = load()
        own = [self.counted(y) for y in x]
        raw = [top.max(y) for top, y in zip(one.tops, own, strict=True)]
        is_odd = self.mark_outside(raw, load, bad)
        floor = self.kind.floor + _BIAS
        tops = [top.max(floor << _MANTISSA) for top in raw] if floor >= self.least else raw
        compute = self.float_sums if self.kind.floats else self.integer_sums
        results = compute(one, x, tops, load, bad)
        if self.kind.half:
            results = [self.to_half(y) for y in results]

        def kept() -> list[Value]:
            return [
                is_finite(y).select(is_something(top, y).select(result, 0.0), y)
                for y, top, result in zip(load(), raw, results, strict=True)
            ]

        # An accumulator that is infinite or a NaN stays so: there are no such products. And where
        # there are no terms at all, none scales them.
        return rarely(is_odd, results, kept)

    def counted(self, x: Value) -> Value:
        """The exponent that an accumulator counts with."""
        field = x.bits(I32) & _EXPONENT
        if not self.kind.half:
            return field  # of a subnormal 0, which is outside as its own is
        least = field.max((self.kind.emin + _BIAS) << _MANTISSA)
        return x.compare("==", 0.0).select(field.constant(0), least)

    def mark_outside(self, tops: list[Value], load: Load, bad: list[Value]) -> Value:
        """Marks what is too small to align, or too large; whether anything is so, or no number."""
        least = 0 if self.kind.floor + _BIAS >= self.least else self.least
        last = (self.largest + 1 - least) << _MANTISSA
        above = [top - (least << _MANTISSA) for top in tops]
        is_odd = reduce(Value.larger, above).unsigned(">=", last).any()

        def mark_them() -> None:
            for top, y, marks in zip(above, load(), bad, strict=True):
                # No term at all is not too small, and infinities and NaNs stay.
                something = is_something(top + (least << _MANTISSA), y)
                mark(marks, top.unsigned(">=", last) & something & is_finite(y))

        when(is_odd, mark_them)
        return is_odd

    def integer_sums(
        self, one: Pass, x: list[Value], tops: list[Value], load: Load, bad: list[Value]
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
                for y, lost, marks in zip(load(), outside, bad, strict=True):
                    mark(marks, lost.compare("<", 0) & is_finite(y))

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
                reached = self.kind.k if self.run < self.kind.k else start + RUN
                if reached <= self.kind.safe:
                    totals = self.terms(one, i + start, scales, totals)
                    continue
                parts = self.terms(one, i + start, scales, [])
                before, totals = totals, [y + z for y, z in zip(totals, parts, strict=True)]
                for v, (old, part, total) in enumerate(zip(before, parts, totals, strict=True)):
                    over[v] = over[v] | ((old ^ total) & (part ^ total))
            return totals + over

        totals = [(y * scale).to(I32) for y, scale in zip(x, scales, strict=True)]
        over = [y.constant(0) for y in totals] if self.kind.k > self.kind.safe else []
        state = list(self.over_k(some, *totals, *over))
        return state[:count], state[count:] or None

    def terms(self, one: Pass, i: Value, scales: list[Value], sums: list[Value]) -> list[Value]:
        """The sums of eight truncated terms from position i on, and of `sums`."""
        for j in range(RUN):
            cut = []
            for v, (row, scale) in enumerate(
                zip(self.row(one, i + j, len(scales)), scales, strict=True)
            ):
                column = one.b.at((i + j) * COLUMNS + v * LANES, F32, LANES).load(4)
                cut.append((row * column * scale).to(I32))
            sums = [y + z for y, z in zip(sums, cut, strict=True)] if sums else cut
        return sums

    def row(self, one: Pass, i: Value, count: int) -> list[Value]:
        """The elements of A that vectors meet at a position."""
        if not self.kind.a_in_lanes:
            return [one.a.at(i, F32).load(4).splat(LANES)] * count
        return [one.a.at(i * COLUMNS + v * LANES, F32, LANES).load(4) for v in range(count)]

    def float_sums(
        self, one: Pass, x: list[Value], tops: list[Value], load: Load, bad: list[Value]
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
            # Of a negative element, the positive products are those with negative columns.
            negative = one.a.at(i, I32, self.run).load(4).compare("<", 0).mask(I64) * COLUMNS
            for j in range(self.run):
                row, place = one.a.at(i + j, F32).load(4).splat(LANES), (i + j) * (2 * COLUMNS)
                swapped = (negative >> j) & COLUMNS
                for v in range(count):
                    first = place + v * LANES
                    for side, index in ((0, first + swapped), (count, first - swapped + COLUMNS)):
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
        if self.kind.directed:
            return number.rounded_to_half() + 0.0  # what is rounded to a zero is +0
        word = number.bits(I32)
        size = (word & 0x7FFFFFFF).bits(F32)
        normal = ((word + 0xFFF + ((word >> 13) & 1)) & -(1 << 13)).bits(F32)
        # The last bit of an f16 below 2**-14 is 2**-24: that of a float32 near 0.75.
        subnormal = (number + 0.75) - 0.75
        rounded = size.compare("<", 2.0**-14).select(subnormal, normal)
        infinite = ((word & -(1 << 31)) | 0x7F800000).bits(F32)
        return size.compare(">=", 65520.0).select(infinite, rounded)


def in_vectors(width: Value, body: Callable[[Value, int], None]) -> None:
    """``body(j, count)`` for all columns: vectors of them, and single ones in the end."""
    zero, whole = width.constant(0), width & -LANES

    def some(count: int) -> Callable[[Value], tuple[()]]:
        def columns(j: Value) -> tuple[()]:
            body(j, count)
            return ()

        return columns

    repeat(zero, whole, LANES, some(LANES))
    repeat(whole, width, 1, some(1))


def is_something(top: Value, x: Value) -> Value:
    """There are terms that are not zero: products, of which this is the largest exponent, or x."""
    return (top | (x.bits(I32) & 0x7FFFFFFF)).compare("!=", 0)


def is_finite(x: Value) -> Value:
    return (x.bits(I32) & _EXPONENT).compare("!=", _EXPONENT)


def store(places: Sequence[Value], values: Sequence[Value]) -> None:
    for place, value in zip(places, values, strict=True):
        place.store(value, 4)


def joined(values: Sequence[Value]) -> Value:
    """The bits that any has."""
    return reduce(Value.__or__, values)


def mark(bad: Value, where: Value) -> None:
    bad.store(bad.load(1) | where.to(I8), 1)
