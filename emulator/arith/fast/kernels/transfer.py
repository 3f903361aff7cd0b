"""``Transfer``: writes how a kernel loads its operands from memory and stores its result.

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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise

import numpy as np
from llvmlite import ir

from emulator.arith.fast.emitter import Emitter
from emulator.arith.fast.kernels import machine_code
from emulator.arith.fast.kernels.permutation import Held, rearranged, side_by_side
from emulator.arith.fast.kernels.product import OPERANDS, Product
from emulator.arith.fast.words import LONG, POINTER, WORD, Value, Word, in_pairs

#: for each of `OPERANDS`, how many units lie one after the other from each place of its table on
Runs = tuple[int, ...]
#: places of operands in registers that are known when the code is written
Known = Mapping[str, Sequence[int]]

#: bytes of C and D from a block of wgmma to that asked for meanwhile
_BYTES_AHEAD = 1 << 14
#: lanes of the longest vectors that kernels have
_LANES = 16


class Transfer:
    """Writes how the function ``tile`` of a product loads its operands and stores D."""

    def __init__(self, module: ir.Module, product: Product, runs: Runs, known: Known) -> None:
        """`known`: places of operands in registers, see `known_words`, and of metadata."""
        self.product, self.runs = product, dict(zip(OPERANDS, runs, strict=True))
        pointers = 2 * len(OPERANDS)
        arguments = [POINTER] * pointers + [WORD, WORD, LONG]
        self.function = ir.Function(module, ir.FunctionType(WORD, arguments), "tile")
        self.function.linkage = "internal"
        self.function.attributes.add("noinline")  # see `Emitter.rounding`
        self.is_f64 = product.arithmetic.d.bits == 64
        self.word = np.dtype(np.uint64 if self.is_f64 else np.uint32)
        self.nibbles = known.get("e", ())
        words = {name: known_words(product, name, x) for name, x in known.items() if name != "e"}
        if words.get("c") is None or words.get("d") is None:
            words["c"] = words["d"] = None
        self.words = {name: x for name, x in words.items() if x is not None}
        m, n = product.block if "d" in self.words else (product.m, product.n)
        #: rows and columns of a block of D, transposed where D is
        self.block = (m, n) if product.left == "a" else (n, m)
        lanes = machine_code.vector_bytes() // self.word.itemsize
        b = ir.IRBuilder(self.function.append_basic_block("entry"))
        self.e = e = Emitter(module, b, math.gcd(lanes, self.block[1]))
        given = self.function.args
        self.base = dict(zip(OPERANDS, given[0:pointers:2], strict=True))
        self.table = dict(zip(OPERANDS, given[1:pointers:2], strict=True))
        self.flips = {name: Word(e, x) for name, x in zip("ab", given[-3:-1], strict=True)}
        self.keep = Word(e, given[-1])
        self.flags = e.room(np.uint32, 1)
        e.store(e.constant(0, np.uint32, 0), self.flags, 0)
        self.out = e.room(self.word, math.prod(self.block))

    # --- from memory ---

    def load(self, name: str) -> Value:
        """Loads the words at the places of a table."""
        e, count = self.e, table_sizes(self.product)[name]
        run, word = self.runs[name], self.word
        if name in self.words:
            return self._load_known(name)
        whole = count + -count % e.width
        out = e.room(word, whole)
        if whole > count:
            e.store(e.constant(0, word), out, whole - e.width)
        bits = f"u{self.product.unit_bits(name) // 8}"
        for i in e.unrolled(count // run):
            held = e.load(self._place(name, i), 0, bits, run, align=1)
            e.store(held.astype(word), out, i * run)
        return out

    def _place(self, name: str, i: Word) -> Value:
        """The address that a table says."""
        return self.e.at(self.base[name], self.e.load(self.table[name], i, np.int64), np.uint8)

    def _load_known(self, name: str) -> Value:
        e, wanted = self.e, self.vectors(self.words[name])
        out = e.room(self.word, len(wanted) * e.width)
        for i, vector in enumerate(rearranged(self.held(self.base[name], wanted), wanted, e.width)):
            e.store(vector, out, i * e.width)
        return out

    def vectors(self, numbers: Sequence[int]) -> list[Sequence[int]]:
        return [numbers[i : i + self.e.width] for i in range(0, len(numbers), self.e.width)]

    def held(self, base: Value, wanted: Sequence[Sequence[int]]) -> list[Held]:
        """All vectors of the words that are wanted, in the order of memory."""
        held = []
        for numbers in self.vectors(sorted(n for x in wanted for n in x)):
            parts = [self.e.load(base, n, self.word, run, align=4) for n, run in _runs(numbers)]
            held.append(Held(tuple(numbers), in_pairs(side_by_side, parts)))
        return held

    # --- C and D ---

    def prefetch_later(self, block: Word) -> None:
        """Prefetches C and D of a later block of a warpgroup, whose registers are one after the
        other, as hardware that sees the steps between lanes does not."""
        e, p = self.e, self.product
        if p.is_wide and "d" in self.words:
            for name in "cd":
                size = math.prod(self.block) * p.unit_bits(name) // 8
                place = e.at(self.base[name], block * size + _BYTES_AHEAD, np.uint8)
                e.prefetch(place, size, name == "d")

    def load_c(self, block: Word) -> Value:
        """Codes of one block of C, row by row; zeros where it is not to be read (scale-d of
        wgmma)."""
        out = self._codes_of_c(block)
        e = self.e
        with e.when(self.keep == 0, likely=False), e.loop(math.prod(self.block), step=e.width) as i:
            e.store(e.constant(0, self.word), out, i)
        return out

    def _codes_of_c(self, block: Word) -> Value:
        e, p = self.e, self.product
        if "c" not in self.words:
            held = self.load("c")
            return self._in_rows(held) if p.left == "b" else held
        out, wanted = e.room(self.word, math.prod(self.block)), self.vectors(self.words["c"])
        held = self.held(self._place("c", block), wanted)
        for i, words in enumerate(rearranged(held, wanted, e.width)):
            if p.arithmetic.c.bits == 8 * self.word.itemsize:
                e.store(words, out, i * e.width)
                continue
            for half, at in enumerate(self._rows_of_pairs(i)):
                e.store((words >> 16 * half) & 0xFFFF, out, at)
        return out

    def _rows_of_pairs(self, vector: int) -> tuple[int, int]:
        """Places of the halves of words that hold the elements of two rows."""
        row, column = divmod(vector * self.e.width, self.block[1])
        at = 2 * row * self.block[1] + column
        return at, at + self.block[1]

    def store_d(self, block: Word) -> None:
        """A block of D to its places."""
        e, p = self.e, self.product
        if "d" not in self.words:
            self._store(self._in_pairs_of_rows(self.out) if p.left == "b" else self.out)
            return
        held = []
        for i, numbers in enumerate(self.vectors(self.words["d"])):
            if p.arithmetic.d.bits == 8 * self.word.itemsize:
                words = e.lanes(self.out, i * e.width, self.word)
            else:
                low, high = (e.lanes(self.out, at, self.word) for at in self._rows_of_pairs(i))
                words = low | (high << 16)
            held.append(Held(tuple(numbers), words))
        base = self._place("d", block)
        places = self.vectors(sorted(self.words["d"]))
        for numbers, vector in zip(places, rearranged(held, places, e.width), strict=True):
            for i, (n, run) in enumerate(_runs(numbers)):
                part = vector.shuffled(vector, range(i * run, (i + 1) * run))
                e.store(part, base, n, align=4)

    def _store(self, out: Value) -> None:
        """D to the places of its table."""
        e, p, run = self.e, self.product, self.runs["d"]
        bits = f"u{p.arithmetic.d.bits // 8}"
        for i in e.unrolled(p.m * p.n // run):
            codes = e.load(out, i * run, self.word, run, align=4).astype(bits)
            e.store(codes, self._place("d", i), 0, align=1)

    def _in_rows(self, pairs: Value) -> Value:
        """Elements of which two rows alternate, row by row."""
        e, p = self.e, self.product
        out, lanes = e.room(self.word, p.m * p.n), range(2 * e.width)
        with self._pairs() as (place, row):
            x, y = (e.lanes(pairs, at, self.word) for at in place)
            for first, at in enumerate(row):
                e.store(x.shuffled(y, lanes[first::2]), out, at)
        return out

    def _in_pairs_of_rows(self, rows: Value) -> Value:
        """The inverse of `_in_rows`."""
        e, p, width = self.e, self.product, self.e.width
        out = e.room(self.word, p.m * p.n)
        lanes = [lane for i in range(width) for lane in (i, width + i)]
        with self._pairs() as (place, row):
            x, y = (e.lanes(rows, at, self.word) for at in row)
            for half, at in enumerate(place):
                e.store(x.shuffled(y, lanes[half * width : (half + 1) * width]), out, at)
        return out

    @contextmanager
    def _pairs(self) -> Iterator[tuple[list[Word], list[Word]]]:
        """Two neighbouring vectors where two rows alternate, and the vectors of these rows."""
        p, width = self.product, self.e.width
        with self.e.loop(p.rows // 2) as i, self.e.loop(p.columns, step=width) as j:
            row = i * (2 * p.columns)
            place, row = row + j * 2, row + j
            yield [place, place + width], [row, row + p.columns]

    # --- what is wrong with operands ---

    def flag(self, where: Word, bits: int) -> None:
        """Sets bits of what the kernel returns, if a condition holds in any lane."""
        e = self.e
        with e.when(where.any(), likely=False):
            e.store(e.load(self.flags, 0, np.uint32) | bits, self.flags, 0)


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


def table_sizes(p: Product) -> dict[str, int]:
    """Units or elements of each operand that a product has."""
    sizes = {
        "a": p.m * p.k // p.a.per, "b": p.n * p.rows_of_b // p.b.per,
        "c": p.m * p.n, "d": p.m * p.n,
    }  # fmt: skip
    if p.scales:
        sizes |= {"scale_a": p.m * p.scales, "scale_b": p.n * p.scales}
    return sizes


def _runs(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Numbers that ascend, as the first of runs of one length and that length."""
    cuts = [0, *(i for i, (x, y) in enumerate(pairwise(numbers), 1) if y != x + 1), len(numbers)]
    run = math.gcd(*cuts)
    return [(n, run) for n in numbers[::run]]
