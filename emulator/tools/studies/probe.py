"""``probe``: the precision of an accumulation, found by experiment with operands made for it.

The experiments are those of the papers that measured tensor cores (Fasi, Higham, Mikaitis and
Pranesh, PeerJ Computer Science 7:e330, 2021, and those after them): a tiny number is added between
a large one and its negative, and what is left of it says how the sum was made. They call nothing
but ``mma``, so they also measure a recipe of your own, or a GPU whose results replace ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dtypes import FORMATS, Array, Format, code_type, decode, decode_values, encode
from emulator.errors import UnsupportedError, runs
from emulator.isa.instruction import Instruction
from emulator.isa.matrix import MatrixInstruction
from emulator.isa.recipe import Recipe
from emulator.matrices.mma import mma
from emulator.matrices.operands import as_matrix_instruction
from emulator.report import Report
from emulator.targets import Target, find_target

if TYPE_CHECKING:
    from emulator.layout.instruction_descriptor import InstructionDescriptor

#: exponents of the large number and of the tiny one, as far as the formats reach
_BIG, _TINY = 15, -100
#: (position in k, sign, exponent) of a product that is a power of two
Power = tuple[int, int, int]

_ROUNDED = {
    "rz": "toward zero", "rn": "to nearest", "rp": "toward plus infinity",
    "rm": "toward minus infinity", "unseen": "not seen",
}  # fmt: skip
_ACCUMULATOR = {"first": "a term of the first sum", "last": "added after the products"}


@dataclass(repr=False)
class Probe(Report):
    """Results of the experiments: `data`, and in words as text."""

    title: str
    data: dict[str, Any]

    def lines(self) -> Iterator[str]:
        x = self.data
        yield self.title
        yield f"  significant bits of the result: {x['precision']}"
        yield f"  rounding of the result: {_ROUNDED[x['rounding']]}"
        yield f"  products: {self._together()}"
        yield f"  accumulator: {_ACCUMULATOR[x['accumulator']]}"
        bits = x["fraction_bits"]
        least = "" if x["fraction_bits_are"] == "exact" else "at least "
        cut = f"terms are cut {least}{bits} bits below the largest exponent"
        yield f"  alignment: {'none, no two products meet' if bits is None else cut}"

    def _together(self) -> str:
        """Finds the products that are added at once."""
        passes = self.data["passes"]
        if passes is None:
            return "not seen, their exponents are too near each other"
        if len(passes) == 1:
            return "all at once"
        if all(len(own) == 1 for own in passes):
            return "one after the other"
        return f"in {len(passes)} sums, k = {'; '.join(map(runs, passes))}"


def probe(
    instruction: Instruction | str,
    *,
    target: str | Target | Recipe,
    idesc: InstructionDescriptor | int | None = None,
) -> Probe:
    """Measures the accumulation of an instruction on `target`, or of a recipe, by experiments.

    `data`: precision (significant bits of the result), rounding ("rz", "rn", "rp", "rm", or
    "unseen"), passes (positions of k that are added at once, in order; None where not seen),
    accumulator ("first" or "last"), fraction_bits (how far below the largest exponent terms are
    cut; None where products are added one by one) and fraction_bits_are ("exact", or "at least"
    where the operands reach no further). Where the accumulator comes last, k = 0 is taken to be in
    the first sum of several products, if there is one.

    Of a sparse instruction, products are at the first positions of every chunk; block scales are
    1. A tcgen05.mma needs `idesc`, as for `mma`.

    Raises UnsupportedError for an instruction of integers, and where the target lacks it.
    """
    ins = as_matrix_instruction(instruction, idesc)
    if not FORMATS[ins.d_type].is_float:
        raise UnsupportedError(f"probe takes instructions of floating point; got {ins}")
    bench = _Bench(ins, target if isinstance(target, Recipe) else find_target(target))
    passes, accumulator = bench.passes_and_accumulator()
    bits, are = bench.fraction_bits(passes, accumulator)
    precision = bench.precision()
    data = {
        "opcode": str(ins), "target": bench.target.name, "precision": precision,
        "rounding": bench.rounding(precision, passes), "passes": bench.named(passes),
        "accumulator": accumulator, "fraction_bits": bits, "fraction_bits_are": are,
    }  # fmt: skip
    return Probe(f"{ins} on {bench.target.name}, by experiment", data)


def _powers(fmt: Format) -> tuple[int, int]:
    """The exponents of the least normal and of the largest power of two of a format.

    Subnormals are aligned by the exponent of the format, not by their own: no product is of them.
    """
    largest = decode(fmt, np.array([fmt.max_finite], code_type(fmt.bits)))
    return fmt.emin, int(largest.exponent[0])


def _positions(ins: MatrixInstruction) -> list[int]:
    """Positions along k that a sparse A may hold all of; of a dense one all."""
    if not ins.is_sparse:
        return list(range(ins.k))
    return [i for i in range(ins.k) if i % ins.chunk < ins.chunk // 2]


def _scales_of_one(ins: MatrixInstruction) -> dict[str, Array]:
    if not ins.is_block_scaled:
        return {}
    one = encode(FORMATS[ins.scale_type], np.ones(1))
    chunks = ins.scale_chunks
    shapes = {"scale_a": (ins.m, chunks), "scale_b": (chunks, ins.n)}
    return {name: np.broadcast_to(one, shape) for name, shape in shapes.items()}


class _Bench:
    """Computes dot products of powers of two with one instruction."""

    def __init__(self, ins: MatrixInstruction, target: Target | Recipe) -> None:
        self.ins, self.target = ins, target
        #: positions along k that may all have products at once
        self.positions = _positions(ins)
        self.k = len(self.positions)
        arithmetic = ins.arithmetic(target)
        self.a, self.b, self.c, self.d = (getattr(arithmetic, x) for x in "abcd")
        (a_low, a_high), (b_low, b_high) = _powers(self.a), _powers(self.b)
        low, high = _powers(self.d)
        self.big = min(_BIG, a_high + b_high, high)
        self.tiny = max(_TINY, a_low + b_low, low)

    def dots(self, products: Sequence[Sequence[Power]], c: Sequence[float] | None = None) -> Array:
        """D of every dot product, as float64; `c` holds the accumulators, zeros if None."""
        count = len(products)
        a, b = np.zeros((count, self.ins.k)), np.zeros((count, self.ins.k))
        for i, terms in enumerate(products):
            for position, sign, exponent in terms:
                at, (p, q) = self.positions[position], self._split(exponent)
                a[i, at], b[i, at] = sign * 2.0**p, 2.0**q
        start = encode(self.c, np.zeros(count) if c is None else np.array(c, np.float64))
        return self._run(encode(self.a, a), encode(self.b, b), start)

    def _split(self, exponent: int) -> tuple[int, int]:
        """Exponents of a and of b, whose product is 2**exponent."""
        (low, high), (other_low, other_high) = _powers(self.a), _powers(self.b)
        first = min(max(exponent // 2, low, exponent - other_high), high, exponent - other_low)
        return first, exponent - first

    def _run(self, a: Array, b: Array, c: Array) -> Array:
        """The dots lie on the diagonals of matrices: row i of A meets column i of B."""
        ins, count, out = self.ins, len(a), []
        size = min(ins.m, ins.n)
        i, scales = np.arange(size), _scales_of_one(ins)
        for start in range(0, count, size):
            x = np.zeros((ins.m, ins.k), a.dtype)
            y = np.zeros((ins.k, ins.n), b.dtype)
            z = np.zeros((ins.m, ins.n), c.dtype)
            used = len(a[start : start + size])
            x[:used], y.T[:used] = a[start : start + size], b[start : start + size]
            z[i[:used], i[:used]] = c[start : start + size]
            d = mma(ins, x, y, z, target=self.target, codes=True, **scales)
            out.append(decode_values(self.d, d[i[:used], i[:used]]))
        return np.concatenate(out)

    def named(self, passes: list[list[int]] | None) -> list[list[int]] | None:
        """Positions along k of what the experiments count."""
        if passes is None:
            return None
        return [[self.positions[i] for i in own] for own in passes]

    # --- experiments ---

    def precision(self) -> int:
        """Without products, of an accumulator 1 + 2**-j: the largest j that comes back."""
        given = [1 + 2.0**-j for j in range(1, self.c.mantissa_bits + 1)]
        kept = self.dots([[]] * len(given), given) == given
        return int(np.flatnonzero(kept).max(initial=-1)) + 2

    def rounding(self, precision: int, passes: list[list[int]] | None) -> str:
        """Of 4 and three quarters of its last bit, products of 1 and an accumulator, both signs."""
        last = 3 - precision
        together = passes[0] if passes and len(passes[0]) > 2 else [0, 1, 2]
        steps = []
        for sign in (1, -1):
            terms = [(i, sign, 0) for i in together[:3]]
            c = sign * (1 + 2.0 ** (last - 1) + 2.0 ** (last - 2))
            (d,) = self.dots([terms], [c])
            steps.append((abs(d) - 4) / 2.0**last)
        found = {(0, 0): "rz", (1, 1): "rn", (1, 0): "rp", (0, 1): "rm"}
        return found.get((steps[0], steps[1]), "unseen")

    def passes_and_accumulator(self) -> tuple[list[list[int]] | None, str]:
        """Which positions are added at once: 2**big at k = 0, its negative at i, a tiny number at j
        comes through where the sum of j is later than both."""
        pairs = [(i, j) for i in range(1, self.k) for j in range(1, self.k) if i != j]
        terms = [[(0, 1, self.big), (i, -1, self.big), (j, 1, self.tiny)] for i, j in pairs]
        through = self.dots(terms) == 2.0**self.tiny
        if through.all():
            return None, self._accumulator(1)  # nothing that tiny can be cut
        later = {
            i: sum(bool(x) for x, (own, _) in zip(through, pairs, strict=True) if own == i)
            for i in range(1, self.k)
        }
        # The later the sum of i is, the fewer come after it.
        groups = [
            [i for i, count in later.items() if count == size]
            for size in sorted(set(later.values()), reverse=True)
        ]
        accumulator = self._accumulator(groups[0][0])
        alone = all(len(group) == 1 for group in groups)
        if alone if accumulator == "last" else self._alone(groups[0][0]):
            return [[0], *groups], accumulator
        return [[0, *groups[0]], *groups[1:]], accumulator

    def _accumulator(self, partner: int) -> str:
        """A tiny accumulator is cut beside two products that cancel, or it is added last."""
        smallest = 2.0 ** (self.c.emin - self.c.mantissa_bits)
        (d,) = self.dots([[(0, 1, self.big), (partner, -1, self.big)]], [smallest])
        return "last" if d == smallest else "first"

    def _alone(self, partner: int) -> bool:
        """Whether k = 0 cancels an accumulator before the next position comes."""
        terms = [(0, -1, self.big), (partner, 1, self.tiny)]
        return bool(self.dots([terms], [2.0**self.big])[0] == 2.0**self.tiny)

    def fraction_bits(
        self, passes: list[list[int]] | None, accumulator: str
    ) -> tuple[int | None, str]:
        """Finds the least power of two that survives between a large product and its negative."""
        first = [0, 1, 2] if passes is None else passes[0]
        if len(first) < 2 or (accumulator == "last" and len(first) < 3):
            return None, "exact"
        pair = [(first[0], 1, self.big), (first[1], -1, self.big)]
        if accumulator == "first":
            lowest = max(x.emin - x.mantissa_bits for x in (self.c, self.d))
            sizes = list(range(self.big - 1, lowest - 1, -1))
            got = self.dots([pair] * len(sizes), [2.0**x for x in sizes])
        else:
            sizes = list(range(self.big - 1, self.tiny - 1, -1))
            got = self.dots([[*pair, (first[2], 1, x)] for x in sizes])
        lost = np.flatnonzero(got != 2.0 ** np.array(sizes, np.float64))
        if not lost.size:
            return len(sizes), "at least"
        return int(lost[0]), "exact"
