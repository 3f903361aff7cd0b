"""Fused dot-adds of whole matrices as machine code.

A tile of accumulators stays in the cache while k runs, 64 neighbouring columns beside each other.

What differs from `fused.chain` is how much is computed here: largest exponents are found in lanes
of 8 bits (16 where those of the elements lie too far apart), 64 or 32 at a time; the truncated
terms are summed in int32, where the sum cannot leave it or is marked; an accumulator that overflows
stays infinite, and one that is a NaN stays one. So a mask is needed only for results too small to
align. Where the processor rounds single instructions as they say (AVX-512), an integer becomes a
number in one of them, and short sums are truncated by the multiply-add itself (`float_sums`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, reduce
from typing import Any, NamedTuple

import numpy as np

from dtypes import FORMATS
from emulator.arith.fast.emitter import Emitter, Index, native_function
from emulator.arith.fast.kernels import elements
from emulator.arith.fast.kernels.alignment import (
    Alignment,
    aligned,
    magnitude,
    overflow,
    toward_zero,
    truncated,
)
from emulator.arith.fast.kernels.elements import BIAS, EXPONENT, MANTISSA, SIGN
from emulator.arith.fast.words import LONG, POINTER, Value, Word, select

#: columns beside each other, and those of one vector of accumulators
COLUMNS, LANES = 64, 16
#: rows of a tile of accumulators at most: it fits the first cache with a pass of B
ROWS = 64
#: terms that are added before int32 is watched; a pass is padded to a multiple of it
RUN = 8


class Kind(NamedTuple):
    """Parameters of a generated function."""

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
    tiles: Index
    blocks: Index
    #: passes in all, and of one instruction
    passes: Index
    period: Index
    #: of a piece, and rows and columns of D, of which the last pieces may hold less
    rows: Index
    m: Index
    n: Index
    #: the number from which exponents of products count
    bias: Index
    #: 1, or 0 where the batch shares A or B
    a_step: Index
    b_step: Index
    #: elements from one product to the next in C and in D, from block to block, and from row to row
    c_step: Index
    d_step: Index
    block_step: Index
    row_step: Index


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
    types = [LONG] * 2 + [POINTER] * 7 + [LONG] * len(Shape._fields)

    def write(e: Emitter, *given: Word) -> None:
        _Writer(kind, e).tiles(*given)

    return native_function("fused_tiles", types, write, LANES)


class _Pass(NamedTuple):
    """One fused dot-add of a row with some vectors of columns."""

    #: addresses of the operands
    a: Value
    b: Value
    #: the largest of the products, by vectors: exponents as float32 has them; 0: no product
    tops: list[Word]
    row: Word
    #: the number of the pass in its instruction, and how many that has
    number: Word
    period: Index


class _Accumulators(NamedTuple):
    """Addresses of the accumulators of a tile or of a vector of them."""

    x: Value
    #: the sums of passes that are not yet added to `x`
    partial: Value
    #: marks of those that are to be computed otherwise
    bad: Value


#: of the accumulators, partial sums and marks
_DTYPES = np.float32, np.float32, np.uint8
#: emits the loads of accumulators
Load = Callable[[], list[Word]]


class _Writer:
    """Writes the code of a kind."""

    def __init__(self, kind: Kind, e: Emitter) -> None:
        self.kind, self.e = kind, e
        self.align = Alignment(kind.fraction_bits, kind.floor + BIAS)
        self.fmt = FORMATS[f"f{kind.bits}"]
        self.lane = np.dtype(f"i{kind.exponent_bits // 8}")
        #: positions of k that are written out
        self.run = RUN if kind.floats or kind.k % (2 * RUN) else 2 * RUN
        #: bits of a float that a result keeps, of f16 until it is rounded
        self.kept = -1 if kind.half else -(1 << (MANTISSA + 1 - kind.precision))
        #: numbers that B has for a column
        self.signs = 2 if kind.floats else 1
        #: the number that floats are added to is finite up to this exponent field
        self.largest = 254 - (MANTISSA - kind.fraction_bits if kind.floats else 0)
        size = ROWS * COLUMNS
        self.tile = _Accumulators(*(e.room(dtype, size) for dtype in _DTYPES))
        #: the largest exponents of one row
        self.tops = e.room(np.int32, COLUMNS)

    def tiles(self, first: Word, last: Word, *given: Word) -> None:
        a, a_exponent, b, b_exponent, c, d, bad = given[:7]
        e, size, k = self.e, Shape(*given[7:]), self.kind.k
        each = COLUMNS if self.kind.a_in_lanes else 1
        with e.loop(last, first) as index:
            t, block = index // (size.tiles * size.blocks), index % size.blocks
            row = index // size.blocks % size.tiles
            a_tile = (t * size.a_step * size.tiles + row) * size.passes * size.rows * k
            b_block = (t * size.b_step * size.blocks + block) * size.passes * k
            row = row * size.rows
            height = (size.m - row).minimum(size.rows)
            width = (size.n - block * COLUMNS).minimum(COLUMNS)
            here = block * size.block_step + row * size.row_step
            with e.loop(height, step=ROWS) as start:
                count, place = (height - start).minimum(ROWS), here + start * size.row_step
                self.read(c, t * size.c_step + place, count, width, size.row_step)
                with e.loop(size.passes) as p:
                    number = p % size.period
                    b_pass = (b_block + p * k) * COLUMNS
                    columns = (
                        e.at(b, b_pass * self.signs, np.float32),
                        e.at(b_exponent, b_pass, self.lane),
                    )
                    a_pass = a_tile + (p * size.rows + start) * k
                    with e.loop(count) as i:
                        a_row = (a_pass + i * k) * each
                        word = self.lane if self.kind.a_in_lanes else np.uint32
                        rows = e.at(a, a_row, np.float32), e.at(a_exponent, a_row, word)
                        tops = self.largest_products(rows[1], columns[1], size.bias)
                        one = _Pass(rows[0], columns[0], tops, i, number, size.period)
                        self.row_of_pass(one, width)
                self.write(d, bad, place + t * size.d_step, count, width, size.row_step)

    def row_of_pass(self, whole: _Pass, width: Word) -> None:
        """A row of a tile with the columns of a block."""
        e = self.e

        def vectors(v: Index, tops: list[Word]) -> None:
            a = e.at(whole.a, v, np.float32) if self.kind.a_in_lanes else whole.a
            one = whole._replace(a=a, b=e.at(whole.b, v, np.float32), tops=tops)
            places = [
                _Accumulators(
                    *(
                        e.at(place, one.row * COLUMNS + v + j * LANES, dtype)
                        for place, dtype in zip(self.tile, _DTYPES, strict=True)
                    )
                )
                for j in range(len(tops))
            ]
            self.accumulate(one, places)

        def one_by_one() -> None:
            for j, top in enumerate(whole.tops):
                e.store(top, self.tops, j * LANES)
            with e.loop(width, step=LANES) as v:
                vectors(v, [e.lanes(self.tops, v, np.int32)])

        if self.kind.together == 1:
            one_by_one()
            return
        with e.either(width > COLUMNS - LANES) as (all_of_them, some):
            with all_of_them:
                vectors(0, whole.tops)
            with some:
                one_by_one()

    def read(self, c: Value, start: Word, rows: Word, width: Word, step: Index) -> None:
        """Accumulators from `start` on in C to a tile, columns that it has not as zeros."""
        e, tile = self.e, self.tile
        with e.loop(rows) as i:
            for v in range(0, COLUMNS, LANES):
                e.store(e.constant(0.0, np.float32), tile.x, i * COLUMNS + v)
                e.store(e.constant(0, np.uint8), tile.bad, i * COLUMNS + v)
            for j, lanes in self.each_column(width):
                codes = e.load(c, start + i * step + j, self.code, lanes, align=1)
                number = elements.number(self.fmt, codes.astype(np.uint32))
                e.store(number, tile.x, i * COLUMNS + j)

    def write(
        self, d: Value, bad: Value, start: Word, rows: Word, width: Word, step: Index
    ) -> None:
        """A tile to its codes in D, and its marks."""
        e, tile = self.e, self.tile
        with e.loop(rows) as i:
            for j, lanes in self.each_column(width):
                there, here = start + i * step + j, i * COLUMNS + j
                number = e.load(tile.x, here, np.float32, lanes)
                e.store(elements.code(self.fmt, number).astype(self.code), d, there, align=1)
                e.store(e.load(tile.bad, here, np.uint8, lanes), bad, there)

    @property
    def code(self) -> np.dtype[Any]:
        """The type of codes of C and D."""
        return np.dtype(f"u{self.kind.bits // 8}")

    def each_column(self, width: Word) -> Iterator[tuple[Word, int]]:
        """Loops over all columns: over vectors of them, and over single ones in the end."""
        whole = width & -LANES
        with self.e.loop(whole, step=LANES) as j:
            yield j, LANES
        with self.e.loop(width, whole) as j:
            yield j, 0

    def largest_products(self, a: Value, b: Value, bias: Index) -> list[Word]:
        """The exponents of the largest products of a row with all columns, by vectors."""
        e, bits = self.e, self.kind.exponent_bits
        count, least, out = 512 // bits, -(1 << (bits - 1)), []
        bias = e.number(bias).astype(self.lane)
        for start in range(0, COLUMNS, count):
            largest = [e.constant(least, self.lane, count)]
            with self.over_k(largest) as i:
                for j in range(self.run):
                    q = e.load(b, (i + j) * COLUMNS + start, self.lane, count)
                    if self.kind.a_in_lanes:
                        p = e.load(a, (i + j) * COLUMNS + start, self.lane, count)
                    else:
                        p = e.load(a, i + j, np.uint32).splat(LANES).view(self.lane)
                    # What is added to the least number stays there, or is below zero.
                    largest[0] = largest[0].maximum(p.call("sadd.sat", q.value))
            (top,) = largest
            fields = select(top > least, top + bias.splat(count), 0).view(np.uint32)
            for bit in range(0, 32, bits):
                left = MANTISSA - bit
                field = fields << left if left > 0 else fields >> -left
                out.append((field & EXPONENT).view(np.int32))
        return out

    @contextmanager
    def over_k(self, carried: list[Word]) -> Iterator[Index]:
        """A loop over runs of positions; see `Emitter.loop`."""
        if self.run == self.kind.k:
            yield 0
            return
        with self.e.loop(self.kind.k, step=self.run, carried=carried) as i:
            yield i

    def numbers(self, places: Sequence[Value]) -> list[Word]:
        return [self.e.lanes(place, 0, np.float32) for place in places]

    def store(self, places: Sequence[Value], values: Sequence[Word]) -> None:
        for place, value in zip(places, values, strict=True):
            self.e.store(value, place, 0)

    def mark(self, place: _Accumulators, where: Word) -> None:
        marks = self.e.lanes(place.bad, 0, np.uint8)
        self.e.store(marks | where.astype(np.uint8), place.bad, 0)

    def accumulate(self, one: _Pass, places: list[_Accumulators]) -> None:
        """One pass of a row with some vectors of columns, from memory to memory."""
        x, partial = [place.x for place in places], [place.partial for place in places]
        if not self.kind.adds_c:
            self.store(x, self.dot_add(one, lambda: self.numbers(x), places))
            return

        def part() -> list[Word]:
            begins = (one.number == 0).splat(LANES)
            return [select(begins, 0.0, y) for y in self.numbers(partial)]

        new = self.dot_add(one, part, places)
        self.store(partial, new)
        with self.e.when(one.number == one.period - 1):
            totals = [y + z for y, z in zip(self.numbers(x), new, strict=True)]
            self.store(x, self.rounded(totals))

    def dot_add(self, one: _Pass, load: Load, places: list[_Accumulators]) -> list[Word]:
        """The accumulators after a pass. What is rare loads those before it anew, so that they need
        not stay in registers."""
        x = load()
        raw = [top.maximum(self.counted(y)) for top, y in zip(one.tops, x, strict=True)]
        is_odd = self.mark_outside(raw, load, places)
        tops = [self.align.raised(top) for top in raw]
        if self.kind.floats:
            results = self.float_sums(one, x, tops)
        else:
            results = self.integer_sums(one, x, tops, load, places)
        results = self.rounded(results)
        with self.e.rarely(is_odd, results):
            # An accumulator that is infinite or a NaN stays so: there are no such products. And
            # where there are no terms at all, none scales them.
            results[:] = [
                select(is_finite(y), select(is_something(top, y), result, 0.0), y)
                for y, top, result in zip(load(), raw, results, strict=True)
            ]
        return results

    def rounded(self, numbers: list[Word]) -> list[Word]:
        """Sums in the format of the result; those of f32 are."""
        if not self.kind.half:
            return numbers
        return [elements.to_half(x, self.kind.directed) for x in numbers]

    def counted(self, x: Word) -> Word:
        """The exponent that an accumulator counts with."""
        field = x.view(np.int32) & EXPONENT
        if not self.kind.half:
            return field  # of a subnormal 0, which is outside as its own is
        return select(x == 0.0, 0, field.maximum((self.kind.emin + BIAS) << MANTISSA))

    def mark_outside(self, tops: list[Word], load: Load, places: list[_Accumulators]) -> Word:
        """Marks what is too small to align, or too large; whether anything is so, or no number."""
        least = self.align.least
        last = (self.largest + 1 - least) << MANTISSA
        above = [top.view(np.uint32) - (least << MANTISSA) for top in tops]
        is_odd = (reduce(Word.maximum, above) >= last).any()
        with self.e.when(is_odd):
            for top, high, y, place in zip(tops, above, load(), places, strict=True):
                # No term at all is not too small, and infinities and NaNs stay.
                self.mark(place, (high >= last) & is_something(top, y) & is_finite(y))
        return is_odd

    def integer_sums(
        self, one: _Pass, x: list[Word], tops: list[Word], load: Load, places: list[_Accumulators]
    ) -> list[Word]:
        """The truncated terms, added in int32, as numbers; marks sums that it does not hold."""
        kind = self.kind
        totals, over = self.added(one, x, [self.align.scale(top).view(np.float32) for top in tops])
        if over:
            if not kind.directed:
                # What float32 rounds to 2**31 does not come back.
                near = [magnitude(total) + 128 for total in totals]
                over = [y | z for y, z in zip(over, near, strict=True)]
            with self.e.when((reduce(Word.__or__, over) < 0).any()):
                for y, lost, place in zip(load(), over, places, strict=True):
                    self.mark(place, (lost < 0) & is_finite(y))
        results = []
        for total, top in zip(totals, tops, strict=True):
            word = truncated(total, kind.exact, kind.half, kind.directed) & self.kept
            results.append(word.view(np.float32) * self.align.unit(top))
        return results

    def added(self, one: _Pass, x: list[Word], scales: list[Word]) -> tuple[list[Word], list[Word]]:
        """The truncated terms, added, and words whose sign says that int32 does not hold them."""
        kind, count = self.kind, len(x)
        state = [aligned(y, scale) for y, scale in zip(x, scales, strict=True)]
        if kind.k > kind.safe:
            state += [self.e.constant(0, np.int32)] * count
        with self.over_k(state) as i:
            for start in range(0, self.run, RUN):
                reached = kind.k if self.run < kind.k else start + RUN
                if reached <= kind.safe:
                    state[:count] = self.terms(one, i + start, scales, state[:count])
                    continue
                for v, part in enumerate(self.terms(one, i + start, scales, [])):
                    old, state[v] = state[v], state[v] + part
                    state[count + v] = state[count + v] | overflow(old, part, state[v])
        return state[:count], state[count:]

    def terms(self, one: _Pass, i: Index, scales: list[Word], sums: list[Word]) -> list[Word]:
        """The sums of eight truncated terms from position i on, and of `sums`."""
        for j in range(RUN):
            cut = []
            rows = self.row(one, i + j, len(scales))
            for v, (row, scale) in enumerate(zip(rows, scales, strict=True)):
                column = self.e.lanes(one.b, (i + j) * COLUMNS + v * LANES, np.float32)
                cut.append(aligned(row * column, scale))
            sums = [y + z for y, z in zip(sums, cut, strict=True)] if sums else cut
        return sums

    def row(self, one: _Pass, i: Index, count: int) -> list[Word]:
        """The elements of A that vectors meet at a position."""
        e = self.e
        if not self.kind.a_in_lanes:
            return [e.load(one.a, i, np.float32).splat(LANES)] * count
        return [e.lanes(one.a, i * COLUMNS + v * LANES, np.float32) for v in range(count)]

    def float_sums(self, one: _Pass, x: list[Word], tops: list[Word]) -> list[Word]:
        """The truncated terms, added in float32: to numbers so large that what is below the unit of
        the sum is cut off, positive terms to a positive one and negative to a negative one."""
        e, count = self.e, len(x)
        shift = (MANTISSA - self.kind.fraction_bits) << MANTISSA
        large = [(top + (shift | 1 << (MANTISSA - 1))).view(np.float32) for top in tops]
        pairs = list(zip(large, x, strict=True))
        sums = [toward_zero("add.ps.512", y, select(z > 0.0, z, 0.0)) for y, z in pairs]
        sums += [toward_zero("add.ps.512", -0.0 - y, select(z < 0.0, z, 0.0)) for y, z in pairs]
        with self.over_k(sums) as i:
            # Of a negative element, the positive products are those with negative columns.
            signs = (e.load(one.a, i, np.int32, self.run) < 0).mask()
            negative = signs.astype(np.int64) * COLUMNS
            for j in range(self.run):
                row = e.load(one.a, i + j, np.float32).splat(LANES)
                place, swapped = (i + j) * (2 * COLUMNS), (negative >> j) & COLUMNS
                for v in range(count):
                    first = swapped + (place + v * LANES)
                    second = place + (v * LANES + COLUMNS) - swapped
                    for side, index in ((v, first), (count + v, second)):
                        column = e.lanes(one.b, index, np.float32)
                        sums[side] = toward_zero("vfmadd.ps.512", row, column, sums[side])
        totals = [y + z for y, z in zip(sums[:count], sums[count:], strict=True)]
        return [(y.view(np.uint32) & self.kept).view(np.float32) for y in totals]


def is_something(top: Word, x: Word) -> Word:
    """There are terms that are not zero: products, of which this is the largest exponent, or x."""
    return (top | (x.view(np.int32) & SIGN - 1)) != 0


def is_finite(x: Word) -> Word:
    return (x.view(np.int32) & EXPONENT) != EXPONENT
