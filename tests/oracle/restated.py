"""The constants of every recipe, restated by hand with their sources; for the tests of recipes.

`emulator.arith.recipes` says which row serves which instruction; these tables say, in the columns
that the sources use, what must come out for each datapath, generation and type.

FUSED, of fused dot-adds:

* only: the type of C, or the kind of a block-scaled instruction, that a line is restricted to
* F: fraction bits that the alignment keeps below the largest exponent
* floor: the least exponent that the alignment uses
* sum: format and rounding of a sum; f32/14 keeps 14 significant bits
* over k: all in one sum; by8: one sum after the other, of 8 products each; halves: two sums, over
  k mod 4 in {0, 1} and then over the rest
* C: in the (first) sum; as_f32: converted to f32 before; last: added to the result, to nearest
* D: what the result is converted to, to nearest

Sources. H: measured on an H200 (tests/golden). P: the recorded dot products of Khattak and
Mikaitis, arXiv:2512.07004. M: MMA-Sim 2.1.1, Xie et al., arXiv:2511.10909. L: the code that ptxas
makes, whose instructions are those of another line. P leaves some constants open, which are then
M's.
"""

from typing import NamedTuple

from emulator.arith.steps import (
    AddC,
    Clear,
    Convert,
    FmaChain,
    IntegerDot,
    PairSums,
    PopcountDot,
    Widen,
)

FUSED = """
path  generations   A              d   only     F  floor sum       over_k C      D   source
mma   turing        f16            f32 -        24 -132  f32_rz    all    in     -   M
mma   turing        f16            f16 -        24 -20   f16_rn    all    in     -   M
mma   ampere,ada    f16,bf16       f32 -        24 -132  f32_rz    by8    in     -   P,M
mma   ampere,ada    tf32           f32 -        24 -132  f32_rz    by4    in     -   P,M
mma   ampere,ada    f16            f16 -        24 -20   f16_rn    by8    in     -   P,M
mma   ada           e4m3,e5m2      f32 -        13 -132  f32/14_rz by16   in     -   P,M
mma   ada           e4m3,e5m2      f16 -        13 -20   f16_rn    by16   in     -   P,M
mma   hopper        f16,bf16,tf32  f32 -        25 -133  f32_rz    all    in     -   H
mma   hopper        f16            f16 -        25 -21   f16_rn    all    in     -   H
mma   hopper        e4m3,e5m2      f32 -        25 -133  f32_rz    halves last   -   H
mma   hopper        e4m3,e5m2      f16 -        25 -21   f16_rn    halves last   -   H
mma   blackwell     f16,bf16,tf32  f32 -        25 -133  f32_rz    all    in     -   P,M
mma   blackwell     f16            f16 -        25 -21   f16_rn    all    in     -   P,M
mma   blackwell     e4m3,e5m2      f32 -        25 -133  f32_rz    halves last   -   P,L
mma   blackwell     e4m3,e5m2      f16 -        25 -21   f16_rn    halves last   -   P,L
mma   rtx_blackwell f16,bf16,tf32  f32 -        25 -133  f32_rz    all    in     -   M
mma   rtx_blackwell f16            f16 -        25 -21   f16_rn    all    in     -   M
mma   rtx_blackwell e4m3,e5m2      f32 -        25 -133  f32_rz    all    in     -   M
mma   rtx_blackwell e4m3,e5m2      f16 -        25 -21   f16_rn    all    in     -   M
mma   rtx_blackwell e3m2,e2m3,e2m1 f32 -        25 -133  f32_rz    all    in     -   M
mma   rtx_blackwell e3m2,e2m3,e2m1 f16 -        25 -21   f16_rn    all    in     -   M
mma   rtx_blackwell e4m3,e5m2      f32 mxf8f6f4 25 -133  f32_rz    all    in     -   M
mma   rtx_blackwell e3m2,e2m3,e2m1 f32 mxf8f6f4 25 -133  f32_rz    all    in     -   M
mma   rtx_blackwell e2m1           f32 mxf4     35 -139  f32_rz    all    in     -   M
mma   rtx_blackwell e2m1           f32 mxf4nvf4 35 -139  f32_rz    all    in     -   M
wgmma hopper        f16,bf16,tf32  f32 -        25 -133  f32_rz    all    in     -   H
wgmma hopper        f16            f16 -        25 -21   f16_rn    all    in     -   H
wgmma hopper        e4m3,e5m2      f32 -        13 -133  f32/14_rz all    in     -   H
wgmma hopper        e4m3,e5m2      f16 -        13 -21   f16_rn    all    in     -   H
tcgen05 blackwell   f16,bf16,tf32  f32 -        25 -133  f32_rz    all    in     -   M
tcgen05 blackwell   f16            f16 -        25 -21   f16_rn    all    in     -   M
tcgen05 blackwell   e4m3,e5m2      f32 -        25 -133  f32_rz    all    in     -   M
tcgen05 blackwell   e4m3,e5m2      f16 -        25 -21   f16_rn    all    in     -   M
tcgen05 blackwell   e3m2,e2m3,e2m1 f32 -        25 -133  f32_rz    all    in     -   M
tcgen05 blackwell   e3m2,e2m3,e2m1 f16 -        25 -21   f16_rn    all    in     -   M
tcgen05 blackwell   e4m3,e5m2      f32 mxf8f6f4 25 -133  f32_rz    all    in     -   M
tcgen05 blackwell   e3m2,e2m3,e2m1 f32 mxf8f6f4 25 -133  f32_rz    all    in     -   M
tcgen05 blackwell   e2m1           f32 mxf4     35 -139  f32_rz    all    in     -   M
tcgen05 blackwell   e2m1           f32 mxf4nvf4 35 -139  f32_rz    all    in     -   M
quad  volta         f16            f32 -        23 none  f32_rz    all    in     -   P,M
quad  volta         f16            f16 -        23 -19   f16_rn    all    in     -   P,M
quad  turing        f16            f32 -        23 none  f32_rz    all    in     -   M
quad  turing        f16            f16 -        23 -19   f16_rn    all    in     -   M
wmma  volta         f16            f16 c=f32    23 none  f32_rz    by4    in     f16 P,M,L
wmma  volta         f16            f16 c=f16    23 -19   f16_rn    by4    in     -   P,M,L
wmma  volta         f16            f32 -        23 none  f32_rz    by4    in     -   P,M,L
wmma  turing        f16            f16 c=f32    24 -132  f32_rz    by8    in     f16 M,L
wmma  turing        f16            f16 c=f16    24 -20   f16_rn    by8    in     -   M,L
wmma  turing        f16            f32 -        24 -132  f32_rz    by8    as_f32 -   M,L
wmma  ampere,ada    f16            f16 c=f32    24 -132  f32_rz    by8    in     f16 P,M,L
wmma  ampere,ada    f16            f32 c=f16    24 -132  f32_rz    by8    as_f32 -   P,M,L
wmma  hopper        f16            f16 c=f32    25 -133  f32_rz    all    in     f16 H
wmma  hopper        f16            f32 c=f16    25 -133  f32_rz    all    as_f32 -   H
wmma  hopper        tf32           f32 -        25 -133  f32_rz    by4    in     -   H
wmma  blackwell     f16            f16 c=f32    25 -133  f32_rz    all    in     f16 P,M,L
wmma  rtx_blackwell f16            f16 c=f32    25 -133  f32_rz    all    in     f16 M,L
wmma  blackwell     f16            f32 c=f16    25 -133  f32_rz    all    as_f32 -   P,M,L
wmma  rtx_blackwell f16            f32 c=f16    25 -133  f32_rz    all    as_f32 -   M,L
wmma  blackwell     tf32           f32 -        25 -133  f32_rz    by4    in     -   P,M,L
wmma  rtx_blackwell tf32           f32 -        25 -133  f32_rz    by4    in     -   M,L
"""

#: what multiplies otherwise, on all generations named: (path, generations, types of A, of D)
OTHERS = {
    ("quad", "ampere ada hopper blackwell rtx_blackwell", "f16", "f32"):
        (Widen("f32"), Clear(), FmaChain("f32"), AddC("f32")),  # L, H
    ("quad", "ampere ada hopper blackwell rtx_blackwell", "f16", "f16"):
        (Widen("f32"), PairSums("f32"), Convert("f16")),  # L, H
    ("mma", "ampere ada hopper blackwell rtx_blackwell", "f64", "f64"):
        (FmaChain("f64", ("b", "x", "a")),),  # H, and M for the chain
    ("mma", "volta turing ampere ada hopper blackwell rtx_blackwell", "s8 u8 s4 u4", "s32"):
        (IntegerDot(),),
    ("mma", "volta turing ampere ada hopper blackwell rtx_blackwell", "b1", "s32"):
        (PopcountDot(),),
    ("wgmma", "hopper", "s8 u8", "s32"): (IntegerDot(),),
    ("wgmma", "hopper", "b1", "s32"): (PopcountDot(),),
    ("tcgen05", "blackwell", "s8 u8 s1z4m11", "s32"): (IntegerDot(),),
}  # fmt: skip


class Line(NamedTuple):
    """One line of FUSED for one generation and type of A."""

    path: str
    generation: str
    a: str
    d: str
    only: str
    fraction_bits: int
    floor: int | None
    #: of a sum: format, significant bits, rounding
    sum: str
    precision: int
    rounding: str
    over_k: str
    #: how C comes in
    c: str
    #: what the result is converted to, or the empty string
    after: str
    source: str

    def blocks(self, k):
        """The positions that each sum takes."""
        if self.over_k == "halves":
            return [[i for i in range(k) if i % 4 in half] for half in ((0, 1), (2, 3))]
        run = k if self.over_k == "all" else int(self.over_k.removeprefix("by"))
        return [list(range(i, min(i + run, k))) for i in range(0, k, run)]

    @property
    def c_type(self):
        return self.only.removeprefix("c=") if self.only.startswith("c=") else self.d

    @property
    def kind(self):
        return self.only if self.only.startswith("mx") else None


def _lines():
    for text in FUSED.strip().splitlines()[1:]:
        path, generations, types, d, only, bits, floor, total, over_k, c, after, source = (
            text.split()
        )
        fmt, rounding = total.split("_")
        fmt, _, precision = fmt.partition("/")
        for generation in generations.split(","):
            least = None if floor == "none" else int(floor)
            for a in types.split(","):
                yield Line(
                    path, generation, a, d, only, int(bits), least, fmt,
                    int(precision or {"f16": 11, "f32": 24}[fmt]), rounding, over_k, c,
                    after.strip("-"), source,
                )  # fmt: skip


LINES = tuple(_lines())


def find_line(path, generation, a, c, d):
    """The line for these types without block scales, None where it is not a fused dot-add; wmma is
    mma by default."""
    for line in LINES:
        found = (line.path, line.generation, line.a, line.d) == (path, generation, a, d)
        if found and line.kind is None and line.only in ("-", f"c={c}"):
            return line
    return find_line("mma", generation, a, c, d) if path == "wmma" else None
