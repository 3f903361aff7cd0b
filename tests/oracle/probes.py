"""Dot products that show the constants of a recipe, with results that are derived by hand.

A probe is made of powers of two (and a few sums of two or three of them) around one bit that a
constant decides about, so that the result is plain to see: T - T + u is u where u is kept beside T,
and 0 where it is cut. The constants are those of `restated`. They are computed by the engines, and
recorded on hardware by tests/hardware/capture.py.
"""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from restated import find_line

from dtypes import FORMATS, code_type, decode_values, encode


class Probe(NamedTuple):
    """One dot product in exact numbers, of which integers are codes (of NaNs); `pairs` are
    k position -> (a, b), and all other positions are zero."""

    name: str
    c: float
    pairs: dict[int, tuple[float, float]]
    d: float


@lru_cache(maxsize=256)
def probes(path, generation, types, k):
    """The probes of types (a, b, c, d) with `k` products each; [] of integers.

    `path` and `generation` are those of `restated`.
    """
    if line := find_line(path, generation, types[0], types[2], types[3]):
        return list(_Prober(line, [FORMATS[name] for name in types], k).all())
    if types[0] == "f64":
        return list(_f64(k))
    return list(_quad(types[3])) if path == "quad" else []


def _f64(k):
    """A chain of multiply-adds: which of several NaNs stays, with its payload, made quiet."""
    a, b, c, one = 0xFFF0000000000001, 0x7FF0000000000002, 0xFFF4000000000003, 1.0
    for at in (0, k - 1):
        cases = (
            ((a, b), c, b), ((one, b), c, b), ((a, one), c, c), ((a, b), one, b),
            ((a, one), one, a),
        )  # fmt: skip
        for factors, start, left in cases:
            yield Probe(f"NaNs at {at}", start, {at: factors}, left | 1 << 51)


def _quad(d):
    """m8n8k4 on the FP32 pipe: every operation is rounded to nearest, and their order shows."""
    big, u = (2.0**15, 2.0**15), (2.0**-10, 2.0**-10)
    minus = (-big[0], big[1])
    zero = (-0.0, 1.0)
    if d == "f32":
        # From +0 on along k, then + c.
        yield Probe("c comes last", 2.0**-10, {0: big, 1: minus}, 2.0**-10)
        yield Probe("u is lost in T", 0.0, {0: big, 1: u, 2: minus}, 0.0)
        yield Probe("u comes after T - T", 0.0, {0: big, 1: minus, 2: u}, 2.0**-20)
        yield Probe("three quarters of a step", 1.0, {0: (1.5 * 2.0**-12, 2.0**-12)}, 1 + 2.0**-23)
        yield Probe("starts from +0", -0.0, dict.fromkeys(range(4), zero), 0.0)
    else:
        # c + (a[0]*b[0] + a[1]*b[1]), then + (a[2]*b[2] + a[3]*b[3]), at last to f16.
        yield Probe("T - T in a pair", 2.0**-10, {0: big, 1: minus}, 2.0**-10)
        yield Probe("T - T in the other pair", 2.0**-10, {2: big, 3: minus}, 2.0**-10)
        yield Probe("c is lost in T", 2.0**-10, {0: big, 2: minus}, 0.0)
        yield Probe("tie", 1.0, {0: (2.0**-6, 2.0**-5)}, 1.0)
        tail = {0: (2.0**-6, 2.0**-5), 1: (2.0**-12, 2.0**-11)}
        yield Probe("above the tie", 1.0, tail, 1 + 2.0**-10)
        yield Probe("starts from c", -0.0, dict.fromkeys(range(4), zero), -0.0)


def probe_codes(found, types, k):
    """Codes a ``(n, k)``, b ``(n, k)``, c ``(n,)`` and d ``(n,)`` of probes."""
    a, b = (
        [[probe.pairs.get(i, (0.0, 0.0))[side] for i in range(k)] for probe in found]
        for side in (0, 1)
    )
    values = (a, b, [probe.c for probe in found], [probe.d for probe in found])
    return tuple(_codes(FORMATS[name], x) for name, x in zip(types, values, strict=True))


def _codes(fmt, values):
    """Codes of numbers that `fmt` holds exactly; integers are codes already."""
    given = np.array(values, object)
    is_code = np.vectorize(lambda x: isinstance(x, int), otypes=[bool])(given)
    numbers = np.where(is_code, 0.0, given).astype(np.float64)
    out = encode(fmt, numbers).astype(code_type(fmt.bits))
    assert np.array_equal(decode_values(fmt, out), numbers), f"a probe does not fit {fmt}"
    return np.where(is_code, np.where(is_code, given, 0).astype(np.uint64), out).astype(out.dtype)


@lru_cache
def _powers(fmt):
    """Exponents of the least power of two, of the least normal one, and of the largest."""
    largest = float(decode_values(fmt, np.array([fmt.max_finite]))[0])
    return fmt.emin - fmt.mantissa_bits, fmt.emin, math.frexp(largest)[1] - 1


class _Prober:
    """Makes the probes of one line; those that the formats cannot hold are left out."""

    def __init__(self, line, formats, k):
        self.line, self.k, self.blocks = line, k, line.blocks(k)
        self.a, self.b, self.c, self.d = formats
        #: the least power of two that the result can show
        self.least = _powers(self.d)[0]
        self.adds_c_last = line.c == "last"

    def all(self):
        for make in (self._cut, self._floor, self._rounding, self._order, self._c, self._around):
            yield from make()

    # --- parts ---

    def product(self, exponent, normal=False):
        """Factors of 2**exponent, of like size, in normal numbers if asked for; None: there are
        none."""
        lowest = [(normal_least if normal else least) for least, normal_least, _ in
                  map(_powers, (self.a, self.b))]  # fmt: skip
        highest = [most for *_, most in map(_powers, (self.a, self.b))]
        first = range(max(lowest[0], exponent - highest[1]),
                      min(highest[0], exponent - lowest[1]) + 1)  # fmt: skip
        if not first:
            return None
        near = min(first, key=lambda x: (abs(2 * x - exponent), x))
        return 2.0**near, 2.0 ** (exponent - near)

    def holds_c(self, value):
        return float(decode_values(self.c, encode(self.c, [value]))[0]) == value

    def probe(self, name, c, places, d):
        """Products at positions of k, as exponents with signs: ``{0: (3, 1), 1: (3, -1)}``."""
        if not self.holds_c(c) or (abs(d) and abs(d) < 2.0**self.least):
            return
        pairs = {}
        for position, (exponent, sign) in places.items():
            found = self.product(exponent, normal=exponent > -20)
            if (found := found or self.product(exponent)) is None or position >= self.k:
                return
            pairs[position] = (sign * found[0], found[1])
        yield Probe(name, c, pairs, d)

    def tops(self):
        """Exponents T for which T, the last bit kept beside it and the next one can be had."""
        least, _, most = zip(*map(_powers, (self.a, self.b)), strict=True)
        bits, floor = self.line.fraction_bits, self.line.floor or -10000
        return [
            top for top in range(-30, sum(most) + 1)
            if top >= floor and top - bits - 1 >= max(sum(least), self.least)
            and self.product(top, normal=True)
        ]  # fmt: skip

    # --- probes ---

    def _cut(self):
        """T - T + u, all in one sum: u is 2**-F of T, and kept, or half of that, and cut."""
        bits = self.line.fraction_bits
        for number, block in enumerate(self.blocks):
            for top in self.tops()[:1]:
                if len(block) < 3:
                    continue
                i, j, at = block[0], block[1], block[-1]
                for sign in (1, -1):
                    for exponent, kept in ((top - bits, 1), (top - bits - 1, 0)):
                        yield from self.probe(
                            f"cut of sum {number}", 0.0,
                            {i: (top, 1), j: (top, -1), at: (exponent, sign)},
                            sign * kept * 2.0**exponent,
                        )  # fmt: skip
        if self.adds_c_last:
            return
        # With c as the small term, and as the large one.
        i, j = self.blocks[0][:2]
        for top in range(max(self.least + bits, -10), 16):
            if self.product(top, normal=True) and self.holds_c(2.0 ** (top - bits - 1)):
                for exponent, kept in ((top - bits, 1), (top - bits - 1, 0)):
                    yield from self.probe(
                        "cut of c", 2.0**exponent, {i: (top, 1), j: (top, -1)}, kept * 2.0**exponent
                    )
                break
        for top in self.tops()[:1]:
            for exponent, kept in ((top - bits, 1), (top - bits - 1, 0)):
                yield from self.probe(
                    "cut beside c", 2.0**top, {i: (top, -1), j: (exponent, 1)}, kept * 2.0**exponent
                )

    def _floor(self):
        """Where every term is tiny, what lies F bits below the floor is kept, and half is cut."""
        line = self.line
        if line.floor is None:
            return
        least, bits = _powers(FORMATS[line.sum])[0], line.floor - line.fraction_bits
        for exponent, kept in ((bits, True), (bits - 1, False)):
            if line.rounding == "rz":
                # Two least steps of the result less a little: that takes one away, if it is kept.
                places, d = {0: (least + 1, 1), 1: (exponent, -1)}, 2.0 ** (least + (not kept))
            else:
                # Half of a step and a little: above the tie, if it is kept.
                places, d = {0: (least - 1, 1), 1: (exponent, 1)}, kept * 2.0**least
            yield from self.probe("floor", 0.0, places, d)

    def _rounding(self):
        """Sums with one bit more than the result has, and with its last bit."""
        line, p = self.line, self.line.precision
        if line.after:
            return
        i, j = self.blocks[0][:2]
        up = line.rounding == "rn"
        # 2 + 3/2 of a step, which nearest-even rounds up; and 2 + 1 step.
        odd, one = 3 * 2.0 ** (1 - p), 2.0 ** (2 - p)
        for name, c, d in (("half step", odd, 2.0 ** (3 - p) if up else one), ("step", one, one)):
            if not self.adds_c_last:
                yield from self.probe(f"{name} in c", c, {i: (0, 1), j: (0, 1)}, 2 + d)
            for scale in (0, 8):
                places = {self.blocks[0][0]: (scale, 1), self.blocks[0][1]: (scale, 1)}
                spare = [x for x in self.blocks[0] if x not in places]
                low = [2 - p, 1 - p] if name == "half step" else [2 - p]
                if len(spare) < len(low):
                    continue
                places |= {x: (scale + e, 1) for x, e in zip(spare, low, strict=False)}
                if (2 + d) * 2.0**scale < 60000:
                    yield from self.probe(name, 0.0, places, (2 + d) * 2.0**scale)

    def _order(self):
        """Which positions meet in one sum, and which sum comes first.

        T - T and then u, which is cut where it meets T, or comes before it. And, where no product
        is so small: two half steps beside c, which count only where they meet.
        """
        bits, p = self.line.fraction_bits, self.line.precision
        number = {x: n for n, block in enumerate(self.blocks) for x in block}
        near = self._borders()
        for top in self.tops()[:1]:
            u = top - bits - 1
            for i, j in near:
                if self.adds_c_last:
                    for other in (i ^ 1, i ^ 2):
                        if len({i, j, other}) == 3 and other < self.k:
                            kept = number[j] > max(number[i], number[other])
                            yield from self.probe(
                                f"order of {i}, {other}, {j}", 0.0,
                                {i: (top, 1), other: (top, -1), j: (u, 1)}, kept * 2.0**u,
                            )  # fmt: skip
                else:
                    kept = number[j] > number[i]
                    yield from self.probe(
                        f"order of {i}, {j}", 2.0**top, {i: (top, -1), j: (u, 1)}, kept * 2.0**u
                    )
        if self.adds_c_last or bits < p or self.line.after:
            return
        for i, j in near:
            for step in range(12 - p if self.d.bits == 16 else 1 - p, 3):
                half = step - 1
                if self.product(half) and self.holds_c(2.0 ** (step + p - 1)):
                    c = 2.0 ** (step + p - 1)
                    d = c + 2.0**step if number[i] == number[j] else c
                    yield from self.probe(f"halves at {i}, {j}", c, {i: (half, 1), j: (half, 1)}, d)
                    break

    def _borders(self):
        """Pairs of positions beside the borders of sums, both ways round."""
        edges = {0, self.k // 2 - 1, self.k - 2}
        for block in self.blocks:
            edges |= {block[0] - 1, block[0], block[-1] - 1, block[-1]}
        pairs = [(i, i + 1) for i in sorted(edges) if 0 <= i < self.k - 1]
        pairs += [(0, self.k - 1), (0, 2), (1, 3)]
        found = [pair for i, j in pairs if j < self.k for pair in ((i, j), (j, i))]
        return list(dict.fromkeys(found))

    def _c(self):
        """Whether C meets the products, or is added to their sum."""
        bits, p = self.line.fraction_bits, self.line.precision
        if not self.adds_c_last:
            return  # "cut of c" shows it
        i, j = self.blocks[0][:2]
        for top in self.tops()[:1]:
            c = 2.0 ** (top - bits - 1)
            yield from self.probe("c beside T - T", c, {i: (top, 1), j: (top, -1)}, c)
        # One and a half steps of c: to nearest even they are two.
        for step in (-7, 0):
            c = 2.0 ** (step + p - 1)
            places = {i: (step, 1), j: (step - 1, 1)}
            if c < 60000:
                yield from self.probe("half steps to c", c, places, c + 2.0 ** (step + 1))
        if self.d.bits == 16:
            # The first sum is too large for f16, which the second cannot mend.
            yield from self.probe("overflow between", 0.0, {0: (16, 1), 2: (16, -1)}, math.inf)
        if self.a.name == self.b.name == "e5m2":
            # 2^-16 has the exponent -14 in f16, so that 2^-16 * 2^15 has 1, and 2^-24 is the last
            # bit kept. In f32 it would have -1, and the two tails, kept, would round to 2^-24.
            pairs = {i: (2.0**-16, 2.0**15), j: (-1.0, 0.5)}
            for tails, d in (((-24,), 2.0**-24), ((-25, -26), 0.0)):
                spare = zip(self.blocks[0][2:], map(self.product, tails), strict=False)
                yield Probe("subnormal factor", 0.0, pairs | dict(spare), d)

    def _around(self):
        """C converted before the sum, and the result after it."""
        line, bits = self.line, self.line.fraction_bits
        if line.c == "as_f32":
            # A subnormal f16 that is normal in f32: beside it 24 more bits are kept.
            yield from self.probe(
                "subnormal c", 2.0**-24, {0: (-24, -1), 1: (-24 - 24, 1)}, 2.0 ** (-24 - 24)
            )
        if line.after != "f16":
            return
        # 1 + 2^-11 is a tie of f16; what f32 cuts cannot break it, what it keeps can.
        if bits >= 24:
            yield from self.probe("tail of a tie", 1.0, {0: (-11, 1), 1: (-bits, 1)}, 1.0)
        yield from self.probe("odd tie", 1 + 2.0**-10, {0: (-11, 1)}, 1 + 2.0**-9)
        yield from self.probe(
            "last bit above a tie", 1 + 2.0**-10 + 2.0**-22, {0: (0, 1)}, 2 + 2.0**-9
        )
        # In f32 half a step below the tie 2 + 3 * 2^-10: nearest-even would make it the tie.
        c = 1 + 3 * 2.0**-10 - 2.0**-23
        yield from self.probe("half a step below a tie", c, {0: (0, 1)}, 2 + 2.0**-9)
