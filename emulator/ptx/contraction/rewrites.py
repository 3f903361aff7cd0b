"""Contraction: what a statement becomes where ptxas rewrites it."""

from __future__ import annotations

from dataclasses import dataclass

from emulator.ptx.folding import Conversion


@dataclass(frozen=True, slots=True)
class Fusion:
    """An addition that becomes ``opcode d, a, b, c``: c is its own, a and b are multiplied.

    Of ``mul`` a and b are the sources. Of ``div`` and ``rcp`` they are the factors of the last
    multiplication of their approximation: the reciprocal, and the numerator as it was scaled.
    """

    #: index of the statement that multiplies
    multiplication: int
    #: which source of the addition is the product; the other one is c
    operand: int
    #: ``fma.rn`` with the modifiers and the type of the addition
    opcode: str
    #: whether the product and whether c change their sign
    negated: tuple[bool, bool]
    #: which half of a ``mul.f32x2`` is the product, where a part of it alone is taken
    element: int | None = None


@dataclass(frozen=True, slots=True)
class Scaling:
    """A multiplication of the product a x b by a power of two that becomes part of the product.

    FMUL.D4 to FMUL.M8 round a x b x 2^exponent once; how they round subnormals is not measured.
    The .ftz of the second multiplication alone counts: it may differ from the first one's.
    """

    multiplication: int
    exponent: int
    element: int | None = None


@dataclass(frozen=True, slots=True)
class Identity:
    """A multiplication by one or minus one, x*2 - x, or min or max of x and x: ``mov`` or ``neg``.

    So a signalling NaN, or one with a payload, goes through unchanged.
    """

    #: which source
    operand: int
    negated: bool


@dataclass(frozen=True, slots=True)
class Reciprocal:
    """An approximate division by a constant: ptxas computes the reciprocal, rounded to nearest.

    `bits` is the f32 that takes the place of what the chip's approximation would give; it is
    multiplied by the numerator times 2^`exponent`.
    """

    bits: int
    exponent: int = 0


@dataclass(frozen=True, slots=True)
class Known:
    """An approximate function of a constant: ptxas computes it, rounded to nearest.

    So it does of normal numbers, where the result is one (all of 90 random ones of each form);
    what it makes of others is what the chip gives, or was not measured: those stay as they are.
    """

    bits: int


@dataclass(frozen=True, slots=True)
class Saturation:
    """The outer one of ``max(min(x, 1), 0)`` or ``min(max(x, 0), 1)``, which becomes ``add.sat``.

    So where min comes first a NaN gives 0 and not 1, a zero is +0 whatever its constant, and the
    .ftz of the outer one alone counts. Seen of f32 and f16 (20 of 20 cases: any block, other uses
    of the inner one, constants in registers), with -fmad=false, too; not of f16x2, bf16, f64, .NaN.
    """

    #: the statement of the inner one, and which source of it is x
    inner: int
    operand: int


@dataclass(frozen=True, slots=True)
class Selection:
    """A selection of f32 that reads operands with their signs changed: a NaN keeps its payload.

    ``abs.f32`` and ``neg.f32`` under a guard are one, too. Where they come before it, under no
    guard, it changes the signs of what they read, in any block and whoever else takes them (FSEL of
    the machine code; 22 cases of each by ptxas 13.0 or 13.5 for sm_80 to sm_120a, with -O1 or
    -fmad=false, too). Not so .ftz, selp.b32, branches around them, and other types.
    """

    #: of each operand: the statement that reads it, None for the selection, and "abs" and "neg" in
    #: the order in which they apply
    operands: tuple[tuple[int | None, tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True)
class Inverse:
    """rcp.approx.ftz of ``rcp.approx.ftz(x)``, which becomes x, or of ``ex2.approx.ftz(x)``, which
    becomes ``ex2.approx.ftz(-x)`` if nothing else takes the power. So does the reciprocal that
    div.approx.ftz multiplies by.

    Both must be .ftz, and no change of sign may stand between them. Read off ptxas 13.0: the pairs
    of 15 functions for sm_90a, of which no other ones are changed, and of these two 12 cases with
    other uses, guards, branches and moves, and 12 of div; of five of them for sm_80, sm_100a and
    sm_120a, too. The values of rcp are those of an H200.
    """

    #: the statement of the inner one
    inner: int


@dataclass(frozen=True, slots=True)
class Elements:
    """A statement of f32x2 of which the halves, low then high, become different things."""

    halves: tuple[Fusion | Scaling | Identity | None, Fusion | Scaling | Identity | None]


Rewrite = (
    Fusion
    | Scaling
    | Identity
    | Reciprocal
    | Known
    | Saturation
    | Conversion
    | Selection
    | Inverse
    | Elements
)
