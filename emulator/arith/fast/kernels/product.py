"""``Product``: what a kernel computes, and how its operands lie in memory."""

from __future__ import annotations

import math
import platform
from functools import lru_cache
from typing import NamedTuple

from dtypes import FORMATS
from emulator.arith.arrangement import Arrangement, arrangement
from emulator.arith.steps import (
    Arithmetic,
    FmaChain,
    FusedDotAdd,
    IntegerDot,
    PairSums,
    PopcountDot,
)

#: the operands of a kernel, in the order of its arguments
OPERANDS = ("a", "b", "c", "d", "e", "scale_a", "scale_b")

#: bits of what a kernel returns: bits are set that no element uses; metadata that is not legal;
#: metadata that mixes two words of B, for which the results are not computed
PADDING, METADATA, MIXED = 1, 2, 4

#: machines whose rounding LLVM can set, and whose library, where they lack fma, heeds it
_SETS_ROUNDING = ("x86_64", "aarch64", "arm64")


class Units(NamedTuple):
    """Elements of A or B that are loaded at once: `per` neighbours along k, in the lowest bits
    first."""

    bits: int
    per: int
    #: bits of the place of an element, the lowest one of its code, and bits of the code
    width: int
    shift: int
    code_bits: int

    @property
    def padding(self) -> int:
        """The bits that no element uses."""
        code = (1 << self.code_bits) - 1
        used = sum(code << (self.shift + i * self.width) for i in range(self.per))
        return ((1 << self.bits) - 1) & ~used


class Sparsity(NamedTuple):
    """Selection from B by a metadata nibble: see `emulator.warp.sparse`."""

    #: columns of a full A for each nibble, and neighbours that are picked together
    chunk: int
    granule: int
    #: legal nibbles, as a set of bits
    legal: int


class Product(NamedTuple):
    """An instruction's product: A is m × k as it is stored, B has k rows, or twice as many."""

    arithmetic: Arithmetic
    m: int
    n: int
    k: int
    a: Units
    b: Units
    #: matrices that the registers of one warp hold of each operand
    groups: int = 1
    sparsity: Sparsity | None = None
    #: scales of a row of A and of a column of B
    scales: int = 0

    @property
    def rows_of_b(self) -> int:
        return self.k if self.sparsity is None else 2 * self.k

    @property
    def left(self) -> str:
        """The factor that meets vectors of the other one: a kernel multiplies `left` by `right`.

        D is transposed where that is B by A: A has at least as many rows as a vector has lanes of
        32 bits, where B has few columns. But each row of a sparse A picks rows of B of its own,
        unless it is made full.
        """
        picks = self.sparsity is not None and not self.is_integer
        return "a" if picks or self.arithmetic.d.bits == 64 else "b"

    @property
    def is_wide(self) -> bool:
        """True for the product of a warpgroup."""
        return self.m > 32

    @property
    def is_integer(self) -> bool:
        """True for a sum of integers, for which a sparse A is written out first."""
        return isinstance(self.arithmetic.steps[0], IntegerDot)

    @property
    def right(self) -> str:
        return "b" if self.left == "a" else "a"

    @property
    def rows(self) -> int:
        """Of D, or of the transposed one."""
        return self.m if self.left == "a" else self.n

    @property
    def columns(self) -> int:
        return self.n if self.left == "a" else self.m

    @property
    def block(self) -> tuple[int, int]:
        """Rows and columns of the parts of D that are computed one after the other: all of them,
        but of wgmma some columns of what one warp holds."""
        if not self.is_wide:
            return self.m, self.n
        return 16, 8 if self.left == "b" else math.gcd(16, self.n)

    def units(self, name: str) -> Units:
        return self.a if name == "a" else self.b

    def unit_bits(self, name: str) -> int:
        """Bits of what the table of an operand has places of."""
        if name in ("a", "b"):
            return self.units(name).bits
        if name in ("c", "d"):
            return self.arithmetic.c.bits if name == "c" else self.arithmetic.d.bits
        return 8


@lru_cache(maxsize=1024)
def arranged(arithmetic: Arithmetic) -> Arrangement | None:
    """The arrangement of a recipe that kernels can be made of; None for others."""
    found = arrangement(arithmetic.steps)
    if found is None:
        return None
    core, f16, f32 = found.core, FORMATS["f16"], FORMATS["f32"]
    simple = found[1:] == (None, None, None, None)
    if isinstance(core, (IntegerDot, PopcountDot)):
        return found if simple else None
    if isinstance(core, FmaChain) and core.fmt == "f64":
        rounds = arithmetic.rounding == "rn" or platform.machine() in _SETS_ROUNDING
        return found if simple and rounds else None
    if arithmetic.rounding != "rn":
        return None
    if isinstance(core, (FmaChain, PairSums)):
        on_f32 = core.fmt == "f32" and found.widen is f32 and found.adds_c in (None, f32)
        formats = {arithmetic.a, arithmetic.b} <= {f16} and {arithmetic.c, arithmetic.d} <= {
            f16,
            f32,
        }
        plain = not (isinstance(core, FmaChain) and core.nan_order)
        return found if on_f32 and formats and plain and found.before is None else None
    if isinstance(core, FusedDotAdd):
        return found if _fused(arithmetic, core, found) else None
    return None


def _fused(arithmetic: Arithmetic, step: FusedDotAdd, found: Arrangement) -> bool:
    result = FORMATS[step.result]
    ways = {("f32", "rz"), ("f16", "rn")}
    narrow = max(arithmetic.a.precision, arithmetic.b.precision) <= 12
    start = found.before or arithmetic.c
    formats = {arithmetic.c, arithmetic.d, start} <= {FORMATS["f16"], FORMATS["f32"]}
    after = (found.after or result) is arithmetic.d and found.adds_c in (None, result)
    if not ((step.result, step.rounding) in ways and narrow and formats and after):
        return False
    if step.precision is not None and step.rounding != "rz":
        return False  # no recipe rounds so
    if found.adds_c is not None and arithmetic.c is not result:
        return False
    scale = arithmetic.scale
    if step.group == 1:
        # Scales that are powers of two only add to exponents.
        return step.fraction_bits <= 25 and (scale is None or scale.mantissa_bits == 0)
    # Terms and their sum have to be integers that float64 holds; see `emulator.arith.fast.grouped`.
    finite = arithmetic.a.specials == arithmetic.b.specials == "none"
    return scale is not None and finite and step.fraction_bits <= 40 and found.widen is None
