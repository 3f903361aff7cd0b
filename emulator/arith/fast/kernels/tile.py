"""``Tile``: writes the function that multiplies the matrices of a warp or warpgroup."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from operator import add, mul
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numpy.typing import DTypeLike

from dtypes import Format
from emulator.arith.fast.kernels import elements, integers, ordinary, sums
from emulator.arith.fast.kernels.alignment import LazyProduct
from emulator.arith.fast.kernels.elements import BIAS, MANTISSA
from emulator.arith.fast.kernels.permutation import rearranged
from emulator.arith.fast.kernels.product import METADATA, MIXED, PADDING, Product, Units, arranged
from emulator.arith.fast.kernels.transfer import Known, Runs, Transfer, table_sizes
from emulator.arith.fast.words import Value, Word, select
from emulator.arith.steps import FusedDotAdd, PopcountDot


class _Arrays(NamedTuple):
    """Addresses of the elements of A or B, or of their scales: numbers, exponents or powers of two,
    and classes."""

    value: Value
    exponent: Value
    special: Value


class _Dots(NamedTuple):
    """Elements of one row of D."""

    codes: Word
    #: lanes to note, where an element means nothing
    odd: Sequence[Word] = ()


class Tile(Transfer):
    """Writes the function ``tile`` of a product into a module."""

    def __init__(self, module: ir.Module, product: Product, runs: Runs, known: Known) -> None:
        """`known`: places of operands in registers, see `known_words`, and of metadata."""
        found = arranged(product.arithmetic)
        assert found is not None, "no kernel is made of this recipe"
        super().__init__(module, product, runs, known)
        self.found = found
        #: parts that the units of A and of B are decoded to, each of which is one of the positions
        #: along k: elements, or pairs of these
        self.parts = {name: product.units(name).per for name in "ab"}
        self.positions = product.k
        if product.is_integer:
            self.parts = {name: integers.pairs_of(product.units(name)) for name in "ab"}
            self.positions = self.parts["b"] * product.rows_of_b // product.b.per

    def write(self) -> Value:
        e, p = self.e, self.product
        #: lanes are set where an operand is an infinity or NaN, or not ordinary
        self.odd = e.room(np.uint32, e.width)
        e.store(e.constant(0, np.uint32), self.odd, 0)
        units = {name: self.load(name) for name in "ab"}
        self.rows = self._rows_of_b() if p.sparsity and not p.is_integer else None
        #: the type of exponents of ordinary elements where vectors of many are compared
        self.short = self._short_type()
        self._dots(units)
        e.builder.ret(e.load(self.flags, 0, np.uint32).value)
        return self.function

    # --- metadata ---

    def _rows_of_b(self) -> Value:
        """For each stored element of A, where in the arrays of B the row is that it meets: those of
        all chunks, for one element of a chunk after the other."""
        e, p = self.e, self.product
        assert p.sparsity is not None
        chunk, granule, _ = p.sparsity
        stored, count = chunk // 2, len(self.nibbles)
        chunks = p.k // stored
        assert chunk % p.b.per == 0, "or chunks would share units"
        nibbles, out = self._metadata(), e.room(np.uint32, p.m * p.k)
        with e.loop(count, step=e.width) as i:
            nibble = e.lanes(nibbles, i, np.uint32)
            self._check(nibble, METADATA | (MIXED if chunk == 2 else 0))
            first = (self._numbers_from(i) & chunks - 1) * (chunk // p.b.per * p.n)
            for s in range(stored):
                # A nibble of tf32 names two halves of one word.
                shift, bits = (1, 1) if chunk == 2 else (s // granule * 2, 3)
                row = ((nibble >> shift) & bits) * granule + s % granule
                unit, part = row >> p.b.per.bit_length() - 1, row & p.b.per - 1
                row = (part * (p.rows_of_b // p.b.per) + unit) * p.n
                e.store(first + row, out, i + s * count)
        return out

    def _numbers_from(self, i: Word) -> Word:
        """The numbers of the elements that a vector from `i` on has."""
        return i.astype(np.uint32).splat(self.e.width) + self.e.numbers(
            range(self.e.width), np.uint32
        )

    def _check(self, nibble: Word, flags: int) -> None:
        """Flags nibbles that are not legal."""
        assert self.product.sparsity is not None
        legal = self.e.constant(self.product.sparsity.legal, np.uint32)
        self.flag((legal.shifted_right(nibble) & 1) == 0, flags)

    def _metadata(self) -> Value:
        """All nibbles, in the order of their table."""
        e, width = self.e, self.e.width
        words, shifts = zip(*(divmod(place, 32) for place in self.nibbles), strict=True)
        whole = [n * width + i for n in {word // width for word in words} for i in range(width)]
        held, out = self.held(self.base["e"], [whole]), e.room(np.uint32, len(words))
        for i, vector in enumerate(rearranged(held, self.vectors(words), width)):
            shift = e.numbers(shifts[i * width : (i + 1) * width], np.uint32)
            e.store(vector.shifted_right(shift) & 15, out, i * width)
        return out

    # --- elements ---

    @contextmanager
    def _each(self, name: str, held: Value) -> Iterator[Callable[[], Iterator[tuple[Word, Word]]]]:
        """A loop over units; what it gives walks their parts: codes, and where they belong.

        Says where bits are set that no element uses.
        """
        e, units = self.e, self.product.units(name)
        count = table_sizes(self.product)[name]
        with e.loop(count, step=e.width) as i:
            words = e.lanes(held, i, np.uint32)
            if units.padding:
                self.flag((words & units.padding) != 0, PADDING)
            words = words ^ self.flips[name].splat(e.width)

            def parts() -> Iterator[tuple[Word, Word]]:
                for part in range(units.per):
                    yield _codes(units, words, part), i + part * count

            yield parts

    def _decode(self, name: str, held: Value, side: _Arrays, is_ordinary: bool, fixed: bool) -> int:
        """Writes elements as numbers of float32 and exponents; the fraction bits of the numbers.

        `is_ordinary`: numbers are whole, with powers of two beside them; `fixed`: without
        exponents, in units of the least one.
        """
        e, fmt, widen, fraction = self.e, self._format(name), self.found.widen, 0
        with self._each(name, held) as parts:
            for codes, place in parts():
                if is_ordinary:
                    number, power, odd = ordinary.factor(fmt, codes, widen, ordinary.ELEMENTS)
                else:
                    number, power, fraction, odd = elements.decoded(fmt, codes, widen)
                if is_ordinary and self.short is not None:
                    power = self._short_exponent(fmt, power, self.short)
                if fixed:
                    number = number * elements.power_of_two(power - fmt.emin)
                    fraction = fmt.mantissa_bits - fmt.emin
                e.store(number, side.value, place)
                e.store(power, side.exponent, place)
                self._note(odd)
        return fraction

    def _short_exponent(self, fmt: Format, power: Word, type_: np.dtype[Any]) -> Word:
        """Exponents below the largest of a format, of powers of two; of 0 the least number: what is
        added to it by `sadd.sat` is the least number again."""
        _, largest = ordinary.exponents_of(fmt, self.found.widen)
        field = power.view(np.int32)
        below = (field >> MANTISSA) - (largest + BIAS)
        return select(field == 0, np.iinfo(type_).min, below).astype(type_)

    def _format(self, name: str) -> Format:
        """Of the elements of A or B."""
        return self.product.arithmetic.a if name == "a" else self.product.arithmetic.b

    def _short_type(self) -> np.dtype[Any] | None:
        """Of `_short_exponent`: of a warpgroup whose rows meet all columns."""
        p = self.product
        if not p.is_wide or self.rows is not None or not ordinary.suits(p, self.found):
            return None
        ends = (ordinary.exponents_of(self._format(name), self.found.widen) for name in "ab")
        below = sum(largest - least for least, largest in ends)
        return np.dtype(np.int8 if below <= np.iinfo(np.int8).max else np.int16)

    def _count(self, name: str) -> int:
        """Elements of A or B."""
        return table_sizes(self.product)[name] * self.product.units(name).per

    def _note(self, special: Word | None) -> None:
        """Remembers lanes of a condition."""
        if special is not None:
            held = self.e.lanes(self.odd, 0, np.uint32)
            self.e.store(select(special, 1, held), self.odd, 0)

    def _is_odd(self) -> Word:
        return (self.e.lanes(self.odd, 0, np.uint32) != 0).any()

    def _classify(self, name: str, held: Value, side: _Arrays) -> None:
        with self._each(name, held) as parts:
            for codes, place in parts():
                self.e.store(elements.classes(self._format(name), codes), side.special, place)

    def _ordinary_scales(self, name: str) -> Value:
        e, held = self.e, self.load(f"scale_{name}")
        count = table_sizes(self.product)[f"scale_{name}"]
        out = e.room(np.float32, count + -count % e.width)
        with e.loop(count, step=e.width) as i:
            number, odd = ordinary.scale(e.lanes(held, i, np.uint32))
            e.store(number, out, i)
            # Above the last there may be lanes of zeros, which are no scales.
            self._note(odd & (self._numbers_from(i) < count))
        return out

    def _scales(self, name: str) -> _Arrays:
        """Numbers, exponents and classes of the scales of A or B."""
        e, fmt = self.e, self.product.arithmetic.scale
        assert fmt is not None
        count = table_sizes(self.product)[f"scale_{name}"]
        held = self.load(f"scale_{name}")
        out = self._arrays(count + -count % e.width)
        with e.loop(count, step=e.width) as i:
            codes = e.lanes(held, i, np.uint32)
            found = elements.decoded(fmt, codes)
            e.store(found.value, out.value, i)
            e.store(found.exponent, out.exponent, i)
            e.store(elements.classes(fmt, codes), out.special, i)
            self._note(found.special)
        return out

    def _arrays(self, count: int) -> _Arrays:
        return _Arrays(*(self.e.room(dtype, count) for dtype in (np.float32, np.int32, np.float32)))

    def _numbers(self, name: str, held: Value) -> Value:
        """Elements as numbers for chains: float32."""
        out = self.e.room(np.float32, self._count(name))
        with self._each(name, held) as parts:
            for codes, place in parts():
                self.e.store(elements.number(self._format(name), codes), out, place)
        return out

    def _integers(self, name: str, held: Value) -> Value:
        """Elements as pairs for sums of integers."""
        e, p, units, fmt = self.e, self.product, self.product.units(name), self._format(name)
        if name == "a" and p.sparsity:
            held = self._full(held)
        count = (p.m if name == "a" else p.n) * p.rows_of_b // units.per
        parts = self.parts[name]
        out = e.room(np.uint32, parts * count)
        with e.loop(count, step=e.width) as i:
            words = e.lanes(held, i, np.uint32)
            for part in range(parts):
                e.store(integers.paired(fmt, units, words, part), out, i + part * count)
        return out

    def _full(self, held: Value) -> Value:
        """Units of a sparse A as those of a full one: each chunk is one of these."""
        e, p = self.e, self.product
        nibbles, stored = self._metadata(), table_sizes(p)["a"] // p.m
        out = e.room(np.uint32, 2 * stored * p.m)
        with e.loop(stored) as unit, e.loop(p.m, step=e.width) as j:
            words = e.lanes(held, unit * p.m + j, np.uint32)
            for half in (0, 1):
                at = unit * (2 * p.m) + j + half * p.m
                nibble = e.lanes(nibbles, at, np.uint32)
                self._check(nibble, METADATA)
                full, lost = integers.expanded(words, half, nibble)
                self.flag(lost != 0, METADATA | MIXED)
                e.store(full, out, at)
        return out

    # --- dot products ---

    def _dots(self, units: dict[str, Value]) -> None:
        core = self.found.core
        if isinstance(core, FusedDotAdd):
            self._fused(units, core)
            return
        p, make = self.product, sums.chain
        dtype: DTypeLike = np.float64 if self.is_f64 else np.uint32
        if p.is_integer:
            make = sums.counted
            units = {name: self._integers(name, held) for name, held in units.items()}
        elif isinstance(core, PopcountDot):
            make = sums.counted
        elif not self.is_f64:
            dtype = np.float32
            units = {name: self._numbers(name, held) for name, held in units.items()}

        def dots(i: Word, j: Word, c: Word) -> _Dots:
            positions = range(self.positions)
            factors = {
                p.left: [self._of_left(units[p.left], i, k, dtype) for k in positions],
                p.right: [self._of_right(units[p.right], i, j, k, dtype) for k in positions],
            }
            return _Dots(make(p.arithmetic, self.found, factors["a"], factors["b"], c))

        self._each_vector(dots)

    def _fused(self, units: dict[str, Value], core: FusedDotAdd) -> None:
        sides = {name: self._arrays(self._count(name)) for name in units}
        if not ordinary.suits(self.product, self.found):
            self._general(units, sides, core)
            return
        self._ordinary(units, sides, core)
        with self.e.when(self._is_odd(), likely=False):
            self._general(units, sides, core)

    def _ordinary(
        self, units: dict[str, Value], sides: dict[str, _Arrays], core: FusedDotAdd
    ) -> None:
        """All elements of D, unless something is noted."""
        e, p = self.e, self.product
        for name, side in sides.items():
            self._decode(name, units[name], side, is_ordinary=True, fixed=False)
        formats = p.arithmetic.a, p.arithmetic.b
        largest = self._largest_products(sides, core, self.short) if self.short is not None else {}
        scales = {name: self._ordinary_scales(name) for name in "ab"} if p.scales else {}

        def dots(i: Word, j: Word, c: Word) -> _Dots:
            scaled, found = None, []
            if scales:
                left = e.load(scales[p.left], i, np.float32).splat(e.width)
                scaled = left * e.lanes(scales[p.right], j, np.float32)

            def dot_add(fmt: Format, block: list[int], x: Word) -> Word:
                terms = [self._term(sides, i, j, k, are_powers=True) for k in block]
                top = self._power(largest[block[0]], i, j) if self.short is not None else None
                codes, odd = ordinary.dot_add(core, formats, fmt, terms, scaled, x, top)
                found.append(odd)
                return codes

            return _Dots(sums.fused(p.arithmetic, self.found, p.k, dot_add, c), found)

        # Rows that meet the same elements of the right side share the loads of these.
        self._each_vector(dots, together=2 if self.rows is None else 1)

    def _largest_products(
        self, sides: dict[str, _Arrays], core: FusedDotAdd, type_: np.dtype[Any]
    ) -> dict[int, Value]:
        """The exponents of the largest products of D's elements, row by row, for each block of
        positions by its first one: sums of `_short_exponent`."""
        e, p, found = self.e, self.product, {}
        left, right = (sides[name].exponent for name in (p.left, p.right))
        for block in core.blocks(p.k):
            out = found[block[0]] = e.room(type_, p.rows * p.columns)
            with e.loop(p.rows) as i:
                largest = e.constant(np.iinfo(type_).min, type_, p.columns)
                for k in block:
                    row = e.load(left, self._place_left(i, k), type_).splat(p.columns)
                    column = e.load(right, self._place_right(e.number(0), k), type_, p.columns)
                    largest = largest.maximum(row.call("sadd.sat", column.value))
                e.store(largest, out, i * p.columns)
        return found

    def _power(self, largest: Value, i: Word, j: Word) -> Word:
        """The bits of powers of two from exponents of `_largest_products`."""
        e, p, type_ = self.e, self.product, self.short
        assert type_ is not None
        exponent = e.lanes(largest, i * p.columns + j, type_).astype(np.int32)
        ends = (ordinary.exponents_of(self._format(name), self.found.widen) for name in "ab")
        power = (exponent + (BIAS + sum(last for _, last in ends))) << MANTISSA
        return select(exponent == np.iinfo(type_).min, 0, power)

    def _general(
        self, units: dict[str, Value], sides: dict[str, _Arrays], core: FusedDotAdd
    ) -> None:
        """All elements of D, of any operands."""
        e, p = self.e, self.product
        fraction = sum(
            self._decode(name, units[name], side, is_ordinary=False, fixed=core.group > 1)
            for name, side in sides.items()
        )
        scales = {name: self._scales(name) for name in "ab"} if p.scales else {}
        special = self._is_odd()
        with e.when(special, likely=False):
            for name, side in sides.items():
                self._classify(name, units[name], side)

        def dots(i: Word, j: Word, c: Word) -> _Dots:
            terms = [self._term(sides, i, j, k, are_powers=False) for k in range(p.k)]
            chunks = [self._scale(scales, i, j, v) for v in range(p.scales)]
            by_k = [chunks[k * p.scales // p.k] for k in range(p.k)] if chunks else []
            by = 2 * p.arithmetic.scale.mantissa_bits if p.arithmetic.scale else 0
            given = sums.DotOperands(terms, by_k, fraction, by, special)

            def dot_add(fmt: Format, block: list[int], x: Word) -> Word:
                return sums.dot_add(core, fmt, block, given, x)

            return _Dots(sums.fused(p.arithmetic, self.found, p.k, dot_add, c))

        self._each_vector(dots)

    def _each_vector(self, dots: Callable[[Word, Word, Word], _Dots], together: int = 1) -> None:
        """Computes all of D: `dots` gives a row's neighbouring elements from its number, that of
        the first column, and the codes of C there; so many rows are computed `together`."""
        e, p = self.e, self.product
        rows, columns = self.block
        with e.loop(p.columns // columns) as y, e.loop(p.rows // rows) as x:
            block = y * (p.rows // rows) + x
            self.prefetch_later(block)
            c = self.load_c(block)
            with e.loop(columns, step=e.width) as j, e.loop(rows, step=together) as i:
                places = [(i + row) * columns + j for row in range(together)]
                found = [
                    dots(x * rows + i + row, y * columns + j, e.lanes(c, place, self.word))
                    for row, place in enumerate(places)
                ]
                for elements_of_row, place in zip(found, places, strict=True):
                    for odd in elements_of_row.odd:
                        self._note(odd)
                    e.store(elements_of_row.codes, self.out, place)
            self.store_d(block)

    def _of_left(self, array: Value, i: Word, k: int, dtype: DTypeLike) -> Word:
        """An element of a row in all lanes."""
        return self.e.load(array, self._place_left(i, k), dtype).splat(self.e.width)

    def _place_left(self, i: Word, k: int) -> Word:
        p, per = self.product, self.parts[self.product.left]
        per_row = self.positions // per
        return i * per_row + ((k % per) * (p.rows * per_row) + k // per)

    def _of_right(self, array: Value, i: Word, j: Word, k: int, dtype: DTypeLike) -> Word:
        """Elements of neighbouring columns, which row i meets with its stored element k."""
        p = self.product
        if self.rows is not None and p.sparsity is not None:
            chunk, s = divmod(k, p.sparsity.chunk // 2)
            chunks = p.k // (p.sparsity.chunk // 2)
            at = i * chunks + chunk + s * len(self.nibbles)
            row = self.e.load(self.rows, at, np.uint32).astype(np.int64)
            return self.e.lanes(array, row + j, dtype)
        return self.e.lanes(array, self._place_right(j, k), dtype)

    def _place_right(self, j: Word, k: int) -> Word:
        p, per = self.product, self.parts[self.product.right]
        by_part = p.columns * self.positions // per
        return j + ((k % per) * by_part + k // per * p.columns)

    def _term(
        self, sides: dict[str, _Arrays], i: Word, j: Word, k: int, are_powers: bool
    ) -> LazyProduct:
        """Of an element of the left side with elements of the right one, of each array."""
        x, y = (sides[name] for name in (self.product.left, self.product.right))

        def both(left: Value, right: Value, dtype: DTypeLike) -> tuple[Word, Word]:
            return self._of_left(left, i, k, dtype), self._of_right(right, i, j, k, dtype)

        return _lazy_product(both, x, y, are_powers)

    def _scale(self, scales: dict[str, _Arrays], i: Word, j: Word, chunk: int) -> LazyProduct:
        e, p = self.e, self.product
        row, column = i * p.scales + chunk, j + chunk * p.columns

        def both(left: Value, right: Value, dtype: DTypeLike) -> tuple[Word, Word]:
            return e.load(left, row, dtype).splat(e.width), e.lanes(right, column, dtype)

        return _lazy_product(both, scales[p.left], scales[p.right], are_powers=False)


def _lazy_product(
    both: Callable[[Value, Value, DTypeLike], tuple[Word, Word]],
    x: _Arrays,
    y: _Arrays,
    are_powers: bool,
) -> LazyProduct:
    """`both` emits the loads of an element of each side, from two arrays."""

    def exponent() -> Word:
        if are_powers:
            return mul(*both(x.exponent, y.exponent, np.float32))
        return add(*both(x.exponent, y.exponent, np.int32))

    return LazyProduct(
        lambda: mul(*both(x.value, y.value, np.float32)),
        exponent,
        lambda: mul(*both(x.special, y.special, np.float32)),
    )


def _codes(units: Units, words: Word, part: int) -> Word:
    """The codes of the elements with this number in their units."""
    words = words >> units.shift + part * units.width
    return words if units.code_bits == 32 else words & (1 << units.code_bits) - 1
