"""One kernel: the product of one warp or warpgroup, and the loop over a batch of them.

Every operand is a base address and a table. Of the factors `left` and `right` of a product, it is
the place of each unit, rows of the left one after the other and units of the right by k; of scales
the byte of each, in the same order; of C and D the place of each element, row by row. Where D is
transposed, of which left is B, two rows alternate. Tables may hold only the first of every so many
places, whose others lie one after the other.

Where it is known how registers lie when the code is written, few instructions permute whole vectors
of them. Then there is no table of A and B, and that of C and D says where each block of D starts.
Of metadata the bit of each nibble is always known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir

from dtypes import Format
from emulator.arith.fast.kernels import elements, integers, machine_code, ordinary, sums
from emulator.arith.fast.kernels.emitter import (
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    POINTER,
    Emitter,
    Held,
    Value,
    in_pairs,
)
from emulator.arith.fast.kernels.product import (
    METADATA,
    MIXED,
    OPERANDS,
    PADDING,
    Product,
    Units,
    arranged,
)
from emulator.arith.steps import FusedDotAdd, PopcountDot

_INTEGERS = {8: I8, 16: I16, 32: I32, 64: I64}

#: for each of `OPERANDS`, how many units lie one after the other from each place of its table on
Runs = tuple[int, ...]

#: products of a batch from one to that whose operands are asked of memory meanwhile: of one warp
#: and of a warpgroup, and the bytes of C and D from a block of wgmma to that asked for meanwhile
_AHEAD, _BYTES_AHEAD = {False: 4, True: 1}, 1 << 13
#: lanes of the longest vectors that kernels have
_LANES = 16


class _Side(NamedTuple):
    """A or B as arrays of its elements: numbers, exponents or powers of two, classes."""

    value: Value
    exponent: Value
    special: Value


class _Scales(NamedTuple):
    value: Value
    exponent: Value
    special: Value


class Kernel:
    """Writes the function ``tile`` of a product into a module."""

    def __init__(
        self, module: ir.Module, product: Product, runs: Runs,
        known: Mapping[str, Sequence[int]],
    ) -> None:  # fmt: skip
        """`known`: places of operands in registers, see `known_words`, and of metadata."""
        found = arranged(product.arithmetic)
        assert found is not None, "no kernel is made of this recipe"
        self.product, self.found, self.runs = product, found, dict(zip(OPERANDS, runs, strict=True))
        arguments = [POINTER] * (2 * len(OPERANDS)) + [I32, I32, I64]
        self.function = ir.Function(module, ir.FunctionType(I32, arguments), "tile")
        self.function.linkage = "internal"
        self.function.attributes.add("noinline")  # see `Emitter.rounding`
        self.is_f64 = product.arithmetic.d.bits == 64
        self.word = I64 if self.is_f64 else I32
        #: parts that the units of A and of B are decoded to, each of which is one of the positions
        #: along k: elements, or pairs of these
        self.parts = {name: product.units(name).per for name in "ab"}
        self.positions = product.k
        if product.is_integer:
            self.parts = {name: integers.pairs_of(product.units(name)) for name in "ab"}
            self.positions = self.parts["b"] * product.rows_of_b // product.b.per
        self.nibbles = known.get("e", ())
        words = {name: known_words(product, name, x) for name, x in known.items() if name != "e"}
        if words.get("c") is None or words.get("d") is None:
            words["c"] = words["d"] = None
        self.words = {name: x for name, x in words.items() if x is not None}
        m, n = product.block if "d" in self.words else (product.m, product.n)
        #: rows and columns of a block of D, transposed where D is
        self.block = (m, n) if product.left == "a" else (n, m)
        lanes = machine_code.vector_bytes() // (8 if self.is_f64 else 4)
        self.e = Emitter(self.function, math.gcd(lanes, self.block[1]))
        self.base = dict(zip(OPERANDS, self.function.args[0 : 2 * len(OPERANDS) : 2], strict=True))
        self.table = dict(zip(OPERANDS, self.function.args[1 : 2 * len(OPERANDS) : 2], strict=True))
        self.flips = dict(zip("ab", self.function.args[-3:-1], strict=True))
        self.keep = self.function.args[-1]

    def write(self) -> Any:
        e, p = self.e, self.product
        self.flags = e.array(I32, 1)
        odd = e.vector_of(I32)
        self.odd = e.array(odd, 1)
        e.store(ir.Constant(I32, 0), self.flags, 0)
        e.b.store(ir.Constant(odd, [0] * e.width), self.odd)
        units = {name: self._load(name) for name in "ab"}
        self.out = e.array(self.word, math.prod(self.block))
        self.rows = self._rows_of_b() if p.sparsity and not p.is_integer else None
        self._dots(units)
        e.b.ret(e.load(self.flags, 0, I32))
        return self.function

    # --- operands ---

    def _load(self, name: str) -> Value:
        """What lies at the places of a table, as words."""
        e, count = self.e, _table_sizes(self.product)[name]
        run, word = self.runs[name], self.word
        if name in self.words:
            return self._load_known(name)
        whole = count + -count % e.width
        out = e.array(word, whole)
        if whole > count:
            zero = e.constant(e.vector_of(word), 0)
            e.store_lanes(zero, out, whole - e.width)
        bits = ir.VectorType(_INTEGERS[self.product.unit_bits(name)], run)
        for i in e.unrolled(count // run):
            place = e.b.gep(self.base[name], [e.load(self.table[name], i, I64)], source_etype=I8)
            held = e.b.load(place, align=1, typ=bits)
            if bits.element is not word:
                held = e.converted(word, held, "zext")
            e.store_lanes(held, out, e.b.mul(i, ir.Constant(I64, run)))
        return out

    def _load_known(self, name: str) -> Value:
        e, wanted = self.e, self._vectors(self.words[name])
        out = e.array(self.word, len(wanted) * e.width)
        for i, vector in enumerate(e.rearranged(self._held(self.base[name], wanted), wanted)):
            e.store_lanes(vector, out, i * e.width)
        return out

    def _vectors(self, numbers: Sequence[int]) -> list[Sequence[int]]:
        return [numbers[i : i + self.e.width] for i in range(0, len(numbers), self.e.width)]

    def _held(self, base: Value, wanted: Sequence[Sequence[int]]) -> list[Held]:
        """All vectors of the words that are wanted, in the order of memory."""
        e, held = self.e, []
        for numbers in self._vectors(sorted(n for x in wanted for n in x)):
            parts = [
                e.b.load(e.at(base, n, self.word), align=4, typ=ir.VectorType(self.word, run))
                for n, run in _runs(numbers)
            ]
            held.append(Held(tuple(numbers), in_pairs(e.side_by_side, parts)))
        return held

    def _ask_for_later(self, block: Value) -> None:
        """Prefetches C and D of a later block of a warpgroup, whose registers are one after the
        other, as hardware that sees the steps between lanes does not."""
        e, p = self.e, self.product
        if p.is_wide and "d" in self.words:
            for name in "cd":
                size = math.prod(self.block) * p.unit_bits(name) // 8
                at = e.b.add(e.b.mul(block, ir.Constant(I64, size)), ir.Constant(I64, _BYTES_AHEAD))
                e.prefetch(e.at(self.base[name], at, I8), size, name == "d")

    def _load_c(self, block: Value) -> Value:
        """Codes of one block of C, row by row."""
        e, p = self.e, self.product
        if "c" not in self.words:
            held = self._load("c")
            return self._in_rows(held) if p.left == "b" else held
        out, wanted = e.array(self.word, math.prod(self.block)), self._vectors(self.words["c"])
        base = e.at(self.base["c"], e.load(self.table["c"], block, I64), I8)
        for i, words in enumerate(e.rearranged(self._held(base, wanted), wanted)):
            if p.arithmetic.c.bits == self.word.width:
                e.store_lanes(words, out, i * e.width)
                continue
            for half, at in enumerate(self._rows_of_pairs(i)):
                half = e.b.lshr(words, e.like(words, 16)) if half else words
                e.store_lanes(e.b.and_(half, e.like(words, 0xFFFF)), out, at)
        return out

    def _rows_of_pairs(self, vector: int) -> tuple[int, int]:
        """Where the halves of words belong that hold the elements of two rows."""
        row, column = divmod(vector * self.e.width, self.block[1])
        at = 2 * row * self.block[1] + column
        return at, at + self.block[1]

    def _store_d(self, block: Value) -> None:
        """A block of D to its places."""
        e, p = self.e, self.product
        if "d" not in self.words:
            self._store(self._in_pairs_of_rows(self.out) if p.left == "b" else self.out)
            return
        held = []
        for i, numbers in enumerate(self._vectors(self.words["d"])):
            if p.arithmetic.d.bits == self.word.width:
                words = e.lanes(self.out, i * e.width, self.word)
            else:
                low, high = (e.lanes(self.out, at, self.word) for at in self._rows_of_pairs(i))
                words = e.b.or_(low, e.b.shl(high, e.like(high, 16)))
            held.append(Held(tuple(numbers), words))
        base = e.at(self.base["d"], e.load(self.table["d"], block, I64), I8)
        places = self._vectors(sorted(self.words["d"]))
        for numbers, vector in zip(places, e.rearranged(held, places), strict=True):
            for i, (n, run) in enumerate(_runs(numbers)):
                part = e.shuffled(vector, vector, list(range(i * run, (i + 1) * run)))
                e.b.store(part, e.at(base, n, self.word), align=4)

    def _store(self, out: Value) -> None:
        """D to the places of its table."""
        e, p, run = self.e, self.product, self.runs["d"]
        bits = _INTEGERS[p.arithmetic.d.bits]
        for i in e.unrolled(p.m * p.n // run):
            first = e.at(out, e.b.mul(i, ir.Constant(I64, run)), self.word)
            codes = e.b.load(first, align=4, typ=ir.VectorType(self.word, run))
            codes = codes if bits is self.word else e.converted(bits, codes, "trunc")
            place = e.b.gep(self.base["d"], [e.load(self.table["d"], i, I64)], source_etype=I8)
            e.b.store(codes, place, align=1)

    def _in_rows(self, pairs: Value) -> Value:
        """Elements of which two rows alternate, row by row."""
        e, p = self.e, self.product
        out, lanes = e.array(self.word, p.m * p.n), list(range(2 * e.width))
        with self._pairs() as (place, row):
            x, y = (e.lanes(pairs, at, self.word) for at in place)
            for at, first in zip(row, (0, 1), strict=True):
                e.store_lanes(e.shuffled(x, y, lanes[first::2]), out, at)
        return out

    def _in_pairs_of_rows(self, rows: Value) -> Value:
        """What `_in_rows` undoes."""
        e, p, width = self.e, self.product, self.e.width
        out = e.array(self.word, p.m * p.n)
        lanes = [lane for i in range(width) for lane in (i, width + i)]
        with self._pairs() as (place, row):
            x, y = (e.lanes(rows, at, self.word) for at in row)
            for at, first in zip(place, (0, width), strict=True):
                e.store_lanes(e.shuffled(x, y, lanes[first : first + width]), out, at)
        return out

    @contextmanager
    def _pairs(self) -> Iterator[tuple[list[Value], list[Value]]]:
        """Two neighbouring vectors where two rows alternate, and the vectors of these rows."""
        b, p, width = self.e.b, self.product, self.e.width
        with self.e.loop(p.rows // 2) as i, self.e.loop(p.columns, step=width) as j:
            row = b.mul(i, ir.Constant(I64, 2 * p.columns))
            place = b.add(row, b.mul(j, ir.Constant(I64, 2)))
            row = b.add(row, j)
            yield (
                [place, b.add(place, ir.Constant(I64, width))],
                [row, b.add(row, ir.Constant(I64, p.columns))],
            )

    def _clear(self, c: Value) -> None:
        """Zeros in place of C that is not to be read (scale-d of wgmma)."""
        e = self.e
        with (
            e.b.if_then(e.b.icmp_unsigned("==", self.keep, ir.Constant(I64, 0)), likely=False),
            e.loop(math.prod(self.block), step=e.width) as i,
        ):
            e.store_lanes(e.constant(e.vector_of(self.word), 0), c, i)

    def _flag(self, bit: int) -> None:
        held = self.e.load(self.flags, 0, I32)
        self.e.store(self.e.b.or_(held, ir.Constant(I32, bit)), self.flags, 0)

    def _rows_of_b(self) -> Value:
        """For each stored element of A, where in the arrays of B the row is that it meets: those of
        all chunks, for one element of a chunk after the other."""
        e, b, p = self.e, self.e.b, self.product
        assert p.sparsity is not None
        chunk, granule, _ = p.sparsity
        stored, count = chunk // 2, len(self.nibbles)
        chunks = p.k // stored
        assert chunk % p.b.per == 0, "or chunks would share units"
        nibbles, out = self._metadata(), e.array(I32, p.m * p.k)
        with e.loop(count, step=e.width) as i:
            nibble = e.lanes(nibbles, i, I32)
            self._check(nibble, METADATA | (MIXED if chunk == 2 else 0))
            number = b.add(e.splat(b.trunc(i, I32)), e.numbers(range(e.width)))
            first = b.and_(number, e.like(number, chunks - 1))
            first = b.mul(first, e.like(first, chunk // p.b.per * p.n))
            for s in range(stored):
                # A nibble of tf32 names two halves of one word.
                shift, bits = (1, 1) if chunk == 2 else (s // granule * 2, 3)
                row = b.and_(b.lshr(nibble, e.like(nibble, shift)), e.like(nibble, bits))
                row = b.add(b.mul(row, e.like(row, granule)), e.like(row, s % granule))
                unit = b.lshr(row, e.like(row, p.b.per.bit_length() - 1))
                part = b.and_(row, e.like(row, p.b.per - 1))
                part = b.mul(part, e.like(part, p.rows_of_b // p.b.per))
                row = b.mul(b.add(part, unit), e.like(row, p.n))
                e.store_lanes(b.add(first, row), out, b.add(i, ir.Constant(I64, s * count)))
        return out

    def _check(self, nibble: Value, flags: int) -> None:
        """Flags nibbles that are not legal."""
        e, sparsity = self.e, self.product.sparsity
        assert sparsity is not None
        bit = e.b.and_(e.b.lshr(e.like(nibble, sparsity.legal), nibble), e.like(nibble, 1))
        self._flag_any(e.b.icmp_unsigned("==", bit, e.like(bit, 0)), flags)

    def _flag_any(self, where: Value, flags: int) -> None:
        with self.e.b.if_then(self.e.any(where), likely=False):
            self._flag(flags)

    def _metadata(self) -> Value:
        """All nibbles, in the order of their table."""
        e, width = self.e, self.e.width
        words, shifts = zip(*(divmod(place, 32) for place in self.nibbles), strict=True)
        whole = [n * width + i for n in {word // width for word in words} for i in range(width)]
        held, out = self._held(self.base["e"], [whole]), e.array(I32, len(words))
        for i, vector in enumerate(e.rearranged(held, self._vectors(words))):
            shift = e.numbers(shifts[i * width : (i + 1) * width])
            nibble = e.b.and_(e.b.lshr(vector, shift), e.like(vector, 15))
            e.store_lanes(nibble, out, i * width)
        return out

    # --- elements ---

    def _codes(self, units: Units, words: Value, part: int) -> Value:
        """The codes of the elements with this number in their units."""
        low = units.shift + part * units.width
        words = self.e.b.lshr(words, self.e.like(words, low)) if low else words
        if units.code_bits == 32:
            return words
        return self.e.b.and_(words, self.e.like(words, (1 << units.code_bits) - 1))

    @contextmanager
    def _each(self, name: str, held: Value) -> Iterator[Callable[..., Iterator[Any]]]:
        """A loop over units; what it gives walks their parts: codes, and where they belong.

        Says where bits are set that no element uses.
        """
        e, units = self.e, self.product.units(name)
        count = _table_sizes(self.product)[name]
        with e.loop(count, step=e.width) as i:
            words = e.lanes(held, i, I32)
            if units.padding:
                used = e.b.and_(words, e.like(words, units.padding))
                self._flag_any(e.b.icmp_unsigned("!=", used, e.like(used, 0)), PADDING)
            words = e.b.xor(words, e.splat(self.flips[name]))

            def parts() -> Iterator[tuple[Value, Value]]:
                for part in range(units.per):
                    place = e.b.add(i, ir.Constant(I64, part * count))
                    yield self._codes(units, words, part), place

            yield parts

    def _decode(self, name: str, held: Value, side: _Side, is_ordinary: bool, fixed: bool) -> int:
        """Writes elements as numbers of float32 and exponents; the fraction bits of the numbers.

        `is_ordinary`: numbers are whole, with powers of two beside them; `fixed`: without
        exponents, in units of the least one.
        """
        e, fmt, fraction = self.e, self._format(name), 0
        with self._each(name, held) as parts:
            for codes, place in parts():
                if is_ordinary:
                    number, power, odd = ordinary.factor(
                        e, fmt, codes, self.found.widen, ordinary.ELEMENTS
                    )
                else:
                    number, power, fraction, odd = elements.decoded(e, fmt, codes, self.found.widen)
                if fixed:
                    up = e.b.sub(power, e.like(power, fmt.emin))
                    number = e.b.fmul(number, elements.power_of_two(e, up))
                    fraction = fmt.mantissa_bits - fmt.emin
                e.store_lanes(number, side.value, place)
                e.store_lanes(power, side.exponent, place)
                self._note(odd)
        return fraction

    def _format(self, name: str) -> Format:
        """Of the elements of A or B."""
        return self.product.arithmetic.a if name == "a" else self.product.arithmetic.b

    def _count(self, name: str) -> int:
        """Elements of A or B."""
        return _table_sizes(self.product)[name] * self.product.units(name).per

    def _note(self, special: Value | None) -> None:
        """Remembers that an operand has an infinity or NaN."""
        if special is not None:
            held = self.e.b.load(self.odd, typ=self.e.vector_of(I32))
            mask = self.e.converted(I32, special, "sext")
            self.e.b.store(self.e.b.or_(held, mask), self.odd)

    def _classify(self, name: str, held: Value, side: _Side) -> None:
        with self._each(name, held) as parts:
            for codes, place in parts():
                classes = elements.classes(self.e, self._format(name), codes)
                self.e.store_lanes(classes, side.special, place)

    def _ordinary_scales(self, name: str) -> Value:
        e, held = self.e, self._load(f"scale_{name}")
        count = _table_sizes(self.product)[f"scale_{name}"]
        out = e.array(F32, count + -count % e.width)
        with e.loop(count, step=e.width) as i:
            number, odd = ordinary.scale(e, e.lanes(held, i, I32))
            e.store_lanes(number, out, i)
            # Above the last there may be lanes of zeros, which are no scales.
            lane = e.b.add(e.splat(e.b.trunc(i, I32)), e.numbers(range(e.width)))
            here = e.b.icmp_unsigned("<", lane, e.like(lane, count))
            self._note(e.b.and_(odd, here))
        return out

    def _scales(self, name: str) -> _Scales:
        """Numbers, exponents and classes of the scales of A or B."""
        e, fmt = self.e, self.product.arithmetic.scale
        assert fmt is not None
        count = _table_sizes(self.product)[f"scale_{name}"]
        held = self._load(f"scale_{name}")
        count += -count % e.width
        out = _Scales(e.array(F32, count), e.array(I32, count), e.array(F32, count))
        with e.loop(count, step=e.width) as i:
            codes = e.lanes(held, i, I32)
            found = elements.decoded(e, fmt, codes)
            e.store_lanes(found.value, out.value, i)
            e.store_lanes(found.exponent, out.exponent, i)
            e.store_lanes(elements.classes(e, fmt, codes), out.special, i)
            self._note(found.special)
        return out

    def _numbers(self, name: str, held: Value) -> Value:
        """Elements as numbers for chains: float32."""
        e, fmt = self.e, self._format(name)
        out = e.array(F32, self._count(name))
        with self._each(name, held) as parts:
            for codes, place in parts():
                e.store_lanes(elements.number(e, fmt, codes), out, place)
        return out

    def _integers(self, name: str, held: Value) -> Value:
        """Elements as pairs for sums of integers."""
        e, p, units, fmt = self.e, self.product, self.product.units(name), self._format(name)
        if name == "a" and p.sparsity:
            held = self._full(held)
        count = (p.m if name == "a" else p.n) * p.rows_of_b // units.per
        parts = self.parts[name]
        out = e.array(I32, parts * count)
        with e.loop(count, step=e.width) as i:
            words = e.lanes(held, i, I32)
            for part in range(parts):
                pairs = integers.paired(e, fmt, units, words, part)
                e.store_lanes(pairs, out, e.b.add(i, ir.Constant(I64, part * count)))
        return out

    def _full(self, held: Value) -> Value:
        """Units of a sparse A as those of a full one: each chunk is one of these."""
        e, b, p = self.e, self.e.b, self.product
        nibbles, stored = self._metadata(), _table_sizes(p)["a"] // p.m
        out = e.array(I32, 2 * stored * p.m)
        with e.loop(stored) as unit, e.loop(p.m, step=e.width) as j:
            words = e.lanes(held, b.add(b.mul(unit, ir.Constant(I64, p.m)), j), I32)
            for half in (0, 1):
                at = b.add(b.mul(unit, ir.Constant(I64, 2 * p.m)), j)
                at = b.add(at, ir.Constant(I64, half * p.m))
                nibble = e.lanes(nibbles, at, I32)
                self._check(nibble, METADATA)
                full, lost = integers.expanded(e, words, half, nibble)
                self._flag_any(b.icmp_unsigned("!=", lost, e.like(lost, 0)), METADATA | MIXED)
                e.store_lanes(full, out, at)
        return out

    # --- dot products ---

    def _dots(self, units: dict[str, Value]) -> None:
        core = self.found.core
        if isinstance(core, FusedDotAdd):
            self._fused(units, core)
            return
        p, type_ = self.product, F64 if self.is_f64 else I32
        make, positions = sums.chain, range(self.positions)
        if p.is_integer:
            make = sums.counted
            units = {name: self._integers(name, held) for name, held in units.items()}
        elif isinstance(core, PopcountDot):
            make = sums.counted
        elif not self.is_f64:
            type_ = F32
            units = {name: self._numbers(name, held) for name, held in units.items()}

        def dots(i: Value, j: Value, c: Value) -> Value:
            factors = {
                p.left: [self._of_left(units[p.left], i, k, type_) for k in positions],
                p.right: [self._of_right(units[p.right], i, j, k, type_) for k in positions],
            }
            return make(self.e, p.arithmetic, self.found, factors["a"], factors["b"], c)

        self._each_vector(dots)

    def _fused(self, units: dict[str, Value], core: FusedDotAdd) -> None:
        e = self.e
        sides = {
            name: _Side(*(e.array(type_, self._count(name)) for type_ in (F32, I32, F32)))
            for name in units
        }
        if not ordinary.suits(self.product, self.found):
            self._general(units, sides, core)
            return
        self._ordinary(units, sides, core)
        with e.b.if_then(self._is_odd(), likely=False):
            self._general(units, sides, core)

    def _is_odd(self) -> Value:
        odd = self.e.b.load(self.odd, typ=self.e.vector_of(I32))
        return self.e.any(self.e.b.icmp_unsigned("!=", odd, self.e.like(odd, 0)))

    def _ordinary(
        self, units: dict[str, Value], sides: dict[str, _Side], core: FusedDotAdd
    ) -> None:
        """All elements of D, unless something is noted."""
        e, p = self.e, self.product
        for name, side in sides.items():
            self._decode(name, units[name], side, is_ordinary=True, fixed=False)
        formats = p.arithmetic.a, p.arithmetic.b
        scales = {name: self._ordinary_scales(name) for name in "ab"} if p.scales else {}

        def dots(i: Value, j: Value, c: Value) -> Value:
            scaled: Value = None
            if scales:
                left = e.splat(e.load(scales[p.left], i, F32))
                scaled = e.b.fmul(left, e.lanes(scales[p.right], j, F32))

            def dot_add(fmt: Format, block: list[int], x: Value) -> Value:
                terms = [
                    ordinary.Term(
                        self._product(sides, "value", i, j, k, F32, e.b.fmul),
                        self._product(sides, "exponent", i, j, k, F32, e.b.fmul),
                    )
                    for k in block
                ]
                codes, odd = ordinary.dot_add(e, core, formats, fmt, terms, scaled, x)
                self._note(odd)
                return codes

            return sums.fused(e, p.arithmetic, self.found, p.k, dot_add, c)

        self._each_vector(dots)

    def _general(self, units: dict[str, Value], sides: dict[str, _Side], core: FusedDotAdd) -> None:
        """All elements of D, of any operands."""
        e, p = self.e, self.product
        fraction = sum(
            self._decode(name, units[name], side, is_ordinary=False, fixed=core.group > 1)
            for name, side in sides.items()
        )
        scales = {name: self._scales(name) for name in "ab"} if p.scales else {}
        special = self._is_odd()
        with e.b.if_then(special, likely=False):
            for name, side in sides.items():
                self._classify(name, units[name], side)

        def dots(i: Value, j: Value, c: Value) -> Value:
            terms = [
                sums.Term(
                    self._product(sides, "value", i, j, k, F32, e.b.fmul),
                    self._product(sides, "exponent", i, j, k, I32, e.b.add),
                    self._product(sides, "special", i, j, k, F32, e.b.fmul),
                )
                for k in range(p.k)
            ]
            chunks = [self._scale(scales, i, j, v) for v in range(p.scales)]
            by_k = [chunks[k * p.scales // p.k] for k in range(p.k)] if chunks else []
            by = 2 * p.arithmetic.scale.mantissa_bits if p.arithmetic.scale else 0
            given = sums.Terms(terms, by_k, fraction, by, special)

            def dot_add(fmt: Format, block: list[int], x: Value) -> Value:
                return sums.dot_add(e, core, fmt, block, given, x)

            return sums.fused(e, p.arithmetic, self.found, p.k, dot_add, c)

        self._each_vector(dots)

    def _each_vector(self, dots: Callable[[Value, Value, Value], Value]) -> None:
        """Computes all of D: `dots` gives the codes of a row's neighbouring elements from its
        number, that of the first column, and the codes of C there."""
        e, b, p = self.e, self.e.b, self.product
        rows, columns = self.block
        with e.loop(p.columns // columns) as y, e.loop(p.rows // rows) as x:
            block = b.add(b.mul(y, ir.Constant(I64, p.rows // rows)), x)
            self._ask_for_later(block)
            c = self._load_c(block)
            self._clear(c)
            with e.loop(columns, step=e.width) as j, e.loop(rows) as i:
                place = b.add(b.mul(i, ir.Constant(I64, columns)), j)
                row = b.add(b.mul(x, ir.Constant(I64, rows)), i)
                column = b.add(b.mul(y, ir.Constant(I64, columns)), j)
                codes = dots(row, column, e.lanes(c, place, self.word))
                e.store_lanes(codes, self.out, place)
            self._store_d(block)

    def _of_left(self, array: Value, i: Value, k: int, type_: Any) -> Value:
        """An element of a row in all lanes."""
        b, p = self.e.b, self.product
        per = self.parts[p.left]
        per_row = self.positions // per
        place = (k % per) * (p.rows * per_row) + k // per
        index = b.add(b.mul(i, ir.Constant(I64, per_row)), ir.Constant(I64, place))
        return self.e.splat(self.e.load(array, index, type_))

    def _of_right(self, array: Value, i: Value, j: Value, k: int, type_: Any) -> Value:
        """Elements of neighbouring columns, which row i meets with its stored element k."""
        b, p = self.e.b, self.product
        if self.rows is not None and p.sparsity is not None:
            chunk, s = divmod(k, p.sparsity.chunk // 2)
            chunks = p.k // (p.sparsity.chunk // 2)
            at = b.add(b.mul(i, ir.Constant(I64, chunks)), ir.Constant(I64, chunk))
            at = b.add(at, ir.Constant(I64, s * len(self.nibbles)))
            row = b.zext(self.e.load(self.rows, at, I32), I64)
        else:
            per = self.parts[p.right]
            by_part = p.columns * self.positions // per
            row = ir.Constant(I64, (k % per) * by_part + k // per * p.columns)
        return self.e.lanes(array, b.add(row, j), type_)

    def _product(
        self, sides: dict[str, _Side], array: str, i: Value, j: Value, k: int, type_: Any,
        join: Callable[[Value, Value], Value],
    ) -> Callable[[], Value]:  # fmt: skip
        """What emits the product (or the sum) of an element of the left side with elements of the
        right one, of one of their arrays."""
        left, right = (getattr(sides[x], array) for x in (self.product.left, self.product.right))
        return lambda: join(self._of_left(left, i, k, type_), self._of_right(right, i, j, k, type_))

    def _scale(self, scales: dict[str, _Scales], i: Value, j: Value, chunk: int) -> sums.Scale:
        e, p = self.e, self.product
        x, y = scales[p.left], scales[p.right]
        row = e.b.add(e.b.mul(i, ir.Constant(I64, p.scales)), ir.Constant(I64, chunk))
        column = e.b.add(j, ir.Constant(I64, chunk * p.columns))

        def both(left: Value, right: Value, type_: Any, join: Any) -> Value:
            return join(e.splat(e.load(left, row, type_)), e.lanes(right, column, type_))

        return sums.Scale(
            lambda: both(x.value, y.value, F32, e.b.fmul),
            lambda: both(x.exponent, y.exponent, I32, e.b.add),
            lambda: both(x.special, y.special, F32, e.b.fmul),
        )


# --- batches --------------------------------------------------------------------------------------

#: words of an operand among the arguments of a batch: see `module`
OPERAND_WORDS = 4


def known_words(product: Product, name: str, places: Sequence[int]) -> list[int] | None:
    """The words of an operand in registers that kernels permute, from its places in the order of a
    table, of C and D of those of one block; None where kernels need that table."""
    found = np.array(places)
    word = 64 if product.arithmetic.d.bits == 64 else 32
    if name in "cd" and product.left == "b":
        found = np.swapaxes(found.reshape(-1, product.block[0], 2), 1, 2)
        if product.unit_bits(name) == 16 and (found[:, 1] - found[:, 0] == 2).all():
            found = found[:, :1]
        elif product.unit_bits(name) != word:
            return None
    elif product.unit_bits(name) != word:
        return None
    numbers, odd = np.divmod(found.reshape(-1), word // 8)
    return None if odd.any() or len(numbers) % _LANES else numbers.tolist()


def module(product: Product, runs: Runs, known: Mapping[str, Sequence[int]]) -> str:
    """LLVM IR with ``int32 batch(const int64 *arguments, int64 first, int64 last)``.

    It computes the products `first` … `last` of a batch and returns what flags any of them has.
    The arguments are, for each operand of `OPERANDS`: its address; where it lies for each of the
    batch, in bytes from there; its tables, one after the other; and for each of the batch, where
    its table starts: the last three are addresses of int64. Then come the bits to flip in units of
    A and of B, and the address of one int64 for each of the batch, 0 where C is not read. `known`:
    places of operands in registers, see `known_words`, and of metadata.
    """
    out = ir.Module("kernel")
    tile = Kernel(out, product, runs, known).write()
    function = ir.Function(out, ir.FunctionType(I32, [POINTER, I64, I64]), "batch")
    e = Emitter(function)
    arguments, first, last = function.args
    words = [e.load(arguments, i, I64) for i in range(OPERAND_WORDS * len(OPERANDS) + 3)]
    flags = e.array(I32, 1)
    e.store(ir.Constant(I32, 0), flags, 0)
    pointers = [e.b.inttoptr(word, POINTER) for word in words]
    counts = _entries(product, runs)
    with e.rounding(product.arithmetic.rounding), e.loop(last, first) as t:
        ahead = e.b.add(t, ir.Constant(I64, _AHEAD[product.is_wide]))
        later = e.smaller(ahead, e.b.sub(last, ir.Constant(I64, 1)))
        for x, name in enumerate(OPERANDS):
            base, bases, tables, starts = pointers[OPERAND_WORDS * x :][:OPERAND_WORDS]
            if product.is_wide and name not in ("a", "b"):
                continue  # C and D of a warpgroup are too much at once
            if name in known and name != "e":
                at = e.at(base, e.load(bases, later, I64), I8)
                e.prefetch(at, len(known[name]) * product.unit_bits(name) // 8, name == "d")
            elif product.is_wide:
                at = e.at(base, e.load(bases, later, I64), I8)
                table = e.at(tables, e.load(starts, later, I64), I64)
                for i in e.unrolled(counts[name]):
                    e.prefetch(e.at(at, e.load(table, i, I64), I8), 1, False)
        for group in range(product.groups):
            given = []
            for x, name in enumerate(OPERANDS):
                base, bases, tables, starts = pointers[OPERAND_WORDS * x :][:OPERAND_WORDS]
                if name == "e" and product.sparsity:
                    given += [e.at(base, e.load(bases, t, I64), I8), tables]
                    continue
                if name not in counts:
                    given += [base, tables]
                    continue
                start = e.b.add(e.load(starts, t, I64), ir.Constant(I64, group * counts[name]))
                given += [e.at(base, e.load(bases, t, I64), I8), e.at(tables, start, I64)]
            flips = [e.b.trunc(word, I32) for word in words[-3:-1]]
            found = e.b.call(tile, [*given, *flips, e.load(pointers[-1], t, I64)])
            e.store(e.b.or_(e.load(flags, 0, I32), found), flags, 0)
    e.b.ret(e.load(flags, 0, I32))
    return str(out)


def warp_module(product: Product, tables: Mapping[str, Sequence[int]]) -> str:
    """LLVM IR with ``int32 warp(const void *registers, void *d)``: one product, with tables of its
    own, whose places are bytes (of metadata, bits) from `registers` on, or from `d`."""
    out, runs = ir.Module("kernel"), (1,) * len(OPERANDS)
    known = {name: x for name, x in tables.items() if product.groups == 1 and len(name) == 1}
    kernel = Kernel(out, product, runs, known)
    tile = kernel.write()
    function = ir.Function(out, ir.FunctionType(I32, [POINTER, POINTER]), "warp")
    e = Emitter(function)
    registers, d = function.args
    flags: Value = ir.Constant(I32, 0)
    counts = _entries(product, runs)
    for group in range(product.groups):
        given: list[Value] = []
        for name in OPERANDS:
            places = list(tables.get(name, ()))[group * counts.get(name, 0) :][: counts.get(name)]
            if name in kernel.words:
                places = [0]  # where the only block starts
            held = _constants(out, f"{name}{group}", places)
            given += [d if name == "d" else registers, held]
        no_flips = [ir.Constant(I32, 0)] * 2
        with e.rounding(product.arithmetic.rounding):
            found = e.b.call(tile, [*given, *no_flips, ir.Constant(I64, 1)])
        flags = e.b.or_(flags, found)
    e.b.ret(flags)
    return str(out)


def _runs(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Numbers that ascend, as the first of runs of one length and that length."""
    cuts = [0, *(i for i, (x, y) in enumerate(pairwise(numbers), 1) if y != x + 1), len(numbers)]
    run = math.gcd(*cuts)
    return [(n, run) for n in numbers[::run]]


def _constants(module: ir.Module, name: str, numbers: Sequence[int]) -> Value:
    """The address of numbers of int64."""
    type_ = ir.ArrayType(I64, len(numbers))
    held = ir.GlobalVariable(module, type_, name)
    held.initializer, held.global_constant = ir.Constant(type_, list(numbers)), True
    held.linkage, held.type = "internal", POINTER
    return held


def _entries(product: Product, runs: Runs) -> dict[str, int]:
    """Places in the table of each operand that a product has."""
    by_name = dict(zip(OPERANDS, runs, strict=True))
    return {name: size // by_name[name] for name, size in _table_sizes(product).items()}


def _table_sizes(p: Product) -> dict[str, int]:
    """Units or elements of each operand that a product has."""
    sizes = {
        "a": p.m * p.k // p.a.per, "b": p.n * p.rows_of_b // p.b.per,
        "c": p.m * p.n, "d": p.m * p.n,
    }  # fmt: skip
    if p.scales:
        sizes |= {"scale_a": p.m * p.scales, "scale_b": p.n * p.scales}
    return sizes
