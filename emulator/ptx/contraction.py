"""Contraction by ptxas: the additions that take the product of a multiplication unrounded.

ptxas with its default options (``-fmad=true``) turns ``mul`` and ``add`` or ``sub`` that name no
rounding into one fused multiply-add where its rules allow, so the bits of a kernel depend on those
rules. NVIDIA publishes none of them. The ones below were read off ptxas 13.0 and 13.5 for sm_80,
sm_90a, sm_100a and sm_120a: the machine code of random programs was compared with that of the same
programs with every fusion written out as ``fma.rn``, which a test repeats where the tools are
installed. What was measured stands beside each rule, as cases that agree.

Not covered, and rare in compiled code: ptxas contracts once more after it has unrolled a loop, or
repeated an expression behind two or more branches. A product that is added in another iteration or
behind such branches may be fused where this says that it is not. Functions are judged one by one,
though ptxas inlines device functions. ``x > c ? c : x`` becomes a min.NaN.
"""

from __future__ import annotations

import math
import struct
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from emulator.isa.instruction import effects_of
from emulator.ptx.dataflow import MOVES, Dataflow, Source, Statement, Value, find_users
from emulator.ptx.folding import Conversion, converted, find_conversions
from emulator.ptx.loops import moved_out
from emulator.targets import Target

__all__ = [
    "Conversion", "Elements", "Fusion", "Identity", "Inverse", "Known", "Reciprocal", "Rewrite",
    "Saturation", "Scaling", "Selection", "Source", "Statement", "contract", "exchanged",
]  # fmt: skip


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


class _Type(NamedTuple):
    """Facts of a type that the rules use."""

    #: codes of one, of two and of the sign; 0 where ptxas does not look for such factors
    one: int = 0
    two: int = 0
    sign: int = 0
    #: whether a product that an addition will not take is seen before another addition takes it
    foresees: bool = False
    #: whether ``neg`` is a modifier of operands
    neg: bool = True


_HALF = "f32half"
#: the types that ptxas contracts; the last is an element of f32x2 where the chip adds them singly
_TYPES = {
    "f32": _Type(0x3F800000, 0x40000000, 1 << 31, True),
    "f64": _Type(0x3FF << 52, 1 << 62, 1 << 63, True),
    "f16": _Type(0x3C00, 0x4000, 1 << 15, True),
    "bf16": _Type(0x3F80, 0x4000, 1 << 15, True),
    "f16x2": _Type(),
    "bf16x2": _Type(neg=False),
    "f32x2": _Type(),
    _HALF: _Type(0x3F800000, 0x40000000, 1 << 31),
}

#: takes an f32x2 apart for its arithmetic
_TAKE = "take.f32x2"

#: approximate functions that ptxas computes of constants; of tanh it does not
_FUNCTIONS: dict[str, Callable[[float], float]] = {
    "rcp": lambda x: 1 / x, "ex2": lambda x: 2.0**x, "lg2": math.log2, "sqrt": math.sqrt,
    "rsqrt": lambda x: 1 / math.sqrt(x), "sin": math.sin, "cos": math.cos,
}  # fmt: skip

#: of one operand twice this operand, whatever it is
_EXTREMES = frozenset(
    f"{head}.{type_}" for head in ("min", "max") for type_ in ("f16", "f32", "f64")
)
#: selections that read operands with another sign, and what changes it
_SELECTIONS = ("selp.f32", "slct.f32.s32", "slct.f32.f32", "slct.ftz.f32.f32")
_SIGNS = ("abs.f32", "neg.f32")

#: f32 factors that a multiplication takes as a modifier in machine code -> their exponent
_SCALES = {0x3E800000: -2, 0x3F000000: -1, 0x40000000: 1, 0x40800000: 2, 0x41000000: 3}


def contract(
    statements: Sequence[Statement], target: Target, *, entry: bool = True, fmad: bool = True
) -> dict[int, Rewrite]:
    """The contractions that ptxas makes in a function body, by the index of the statement.

    `entry` says whether the function is a kernel: then its parameters lie in constant memory.
    `fmad` is ptxas' option of this name; without it no product is fused, scaled or copied.
    """
    bodies, origins = _take_apart(statements, "f32x2" not in target.features)
    rules = _Rules(bodies, entry)
    rules.find_copies()
    rules.find_known()
    rules.find_inverses()
    rules.find_reciprocals()
    rules.find_saturations()
    rules.found |= find_conversions(rules.values)
    rules.find_selections()
    if fmad:
        rules.find_all()
    return _joined(rules.found, origins)


def exchanged(statements: Sequence[Statement]) -> frozenset[int]:
    """The statements of f64 of which ptxas exchanges the first two operands, which commute.

    It puts the operand first that came to be first (214 of 214 random blocks, fma with the
    factors; 130 of 130 with min and max), see `_Ages`; of two NaN the chip returns that of one
    place.
    `Fusion` keeps a and b as they are in the multiplication, so what holds for its statement holds
    for the factors.
    """
    if not any(statement.opcode.endswith(".f64") for statement in statements):
        return frozenset()
    flow = Dataflow(statements, _stands_alone)
    ages = _Ages(flow.values)
    found = set()
    for value in flow.values:
        if value.head in _COMMUTATIVE and _type(value) == "f64":
            first, second = map(ages.of, value.roots[:2])
            if first > second:
                found.add(value.index)
    return frozenset(found)


#: first words of statements with operands that ptxas exchanges
_COMMUTATIVE = ("add", "sub", "mul", "mad", "fma", "min", "max")
#: values that machine code computes in halves of 32 bits, which it joins at the first use
_IN_HALVES = frozenset(["select", "selp.f64", "selp.b64", "selp.s64", "selp.u64"]) | {
    f"{head}.{type_}"
    for head, types in {
        **dict.fromkeys(["and", "or", "xor", "not", "shl"], ("b64",)),
        **dict.fromkeys(["add", "sub", "shr"], ("s64", "u64")),
    }.items()
    for type_ in types
}
#: values that machine code computes in two ways that join
_WITH_SLOW_PATH = ("div.rn.f64", "rcp.rn.f64", "sqrt.rn.f64", "rsqrt.approx.f64")


class _Ages:
    """Ages of values, as ptxas 13.0 has them: the earlier the smaller.

    Read from the machine code of 250 small kernels for sm_90a; with it every NaN of 75 functions of
    libdevice is an H200's. Of two that branches define, ptxas may have another order where it makes
    predicates of the branches.

    Values that are defined once come in the order of their definitions, neg and abs where their
    operand does, since they are read with it. Behind them come those of registers that branches
    define anew, the youngest register first, and last what is joined from halves for one reader.
    """

    def __init__(self, values: Sequence[Value]) -> None:
        self._places = {value: place for place, value in enumerate(values)}
        self._readers = Counter(root for value in values for root in value.roots)
        self._firsts: dict[Value, int] = {}

    def of(self, value: Value) -> tuple[int, int]:
        while value.head in ("neg", "abs"):
            value = value.roots[0]
        if value.opcode == "phi" or value.opcode in _WITH_SLOW_PATH:
            return 1, -self._first(value)
        if value.opcode in _IN_HALVES and self._readers[value] == 1:
            return 2, 0
        return 0, self._place(value)

    def _place(self, value: Value) -> int:
        return self._places.get(value, len(self._places))

    def _first(self, value: Value) -> int:
        """The place of the first of the values that branches bring."""
        if value not in self._firsts:
            seen, work = {value}, [value]
            while work:
                phi = work.pop()
                new = set(phi.roots if phi.opcode == "phi" else ()) - seen
                work += new
                seen |= new
            self._firsts[value] = min(
                (self._place(x) for x in seen if x.opcode != "phi"), default=0
            )
        return self._firsts[value]


# --- f32x2 on chips that do not have it ---


def _take_apart(
    statements: Sequence[Statement], needed: bool
) -> tuple[Sequence[Statement], list[tuple[int, int | None]]]:
    """Makes two statements of each that multiplies or adds f32x2; where each comes from.

    Where it comes from is the index of a statement, and 0 or 1 for its low and its high half.
    """
    if not needed or not any(s.opcode.endswith(".f32x2") for s in statements):
        return statements, [(index, None) for index in range(len(statements))]
    result: list[Statement] = []
    origins: list[tuple[int, int | None]] = []
    for index, statement in enumerate(statements):
        taken = _halves(statement, index)
        result += [part for part, _ in taken]
        origins += [(index, element) for _, element in taken]
    return result, origins


def _halves(statement: Statement, index: int) -> list[tuple[Statement, int | None]]:
    if statement.head not in ("mul", "add", "sub") or not statement.opcode.endswith(".f32x2"):
        return [(statement, None)]
    parts: list[tuple[Statement, int | None]] = []
    sources: list[tuple[Source, Source]] = []
    for place, source in enumerate(statement.sources):
        if isinstance(source, int):
            sources.append((source & 0xFFFFFFFF, source >> 32))
        else:
            low, high = (f"{index} {place} {half}" for half in ("low", "high"))
            sources.append((low, high))
            parts.append((Statement(_TAKE, (low, high), (source,)), None))
    opcode = statement.opcode.removesuffix("f32x2") + _HALF
    results = tuple(f"{index} {half}" for half in ("low", "high"))
    for element, name in enumerate(results):
        halves = tuple(source[element] for source in sources)
        parts.append((Statement(opcode, (name,), halves), element))
    parts.append((Statement("mov.b64", statement.destinations, results, statement.guard), None))
    first = replace(parts[0][0], labels=statement.labels)
    return [(first, parts[0][1]), *parts[1:]]


def _joined(
    found: dict[int, Rewrite], origins: Sequence[tuple[int, int | None]]
) -> dict[int, Rewrite]:
    """Maps rewrites of parts back to the statements that they come from."""
    result: dict[int, Rewrite] = {}
    halves: dict[int, list[Fusion | Scaling | Identity | None]] = {}
    for part, rewrite in sorted(found.items()):
        index, element = origins[part]
        if isinstance(rewrite, (Fusion, Scaling)):
            source, half = origins[rewrite.multiplication]
            rewrite = replace(rewrite, multiplication=source, element=half)
        elif isinstance(rewrite, (Saturation, Conversion, Inverse)):
            rewrite = replace(rewrite, inner=origins[rewrite.inner][0])
        elif isinstance(rewrite, Selection):
            rewrite = Selection(
                tuple(
                    (None if inner is None else origins[inner][0], signs)
                    for inner, signs in rewrite.operands
                )
            )
        if element is None:
            result[index] = rewrite
        elif isinstance(rewrite, (Fusion, Scaling, Identity)):
            halves.setdefault(index, [None, None])[element] = rewrite
    for index, (low, high) in halves.items():
        result[index] = _whole(low, high) or Elements((low, high))
    return dict(sorted(result.items()))


def _whole(
    low: Fusion | Scaling | Identity | None, high: Fusion | Scaling | Identity | None
) -> Rewrite | None:
    """The rewrite of a whole f32x2 where both halves are rewritten alike, from halves alike."""
    if isinstance(low, Identity):
        return low if low == high else None
    if (
        low is None
        or high is None
        or isinstance(high, Identity)
        or (low.element, high.element) != (0, 1)
    ):
        return None
    whole = replace(low, element=None)
    if whole != replace(high, element=None):
        return None
    if isinstance(whole, Fusion):
        return replace(whole, opcode=whole.opcode.replace("f32", "f32x2"))
    return whole


# --- what values are ---


def _stands_alone(statement: Statement) -> bool:
    """True if ptxas gives a statement basic blocks of its own.

    Measured between a multiplication and an addition, over the 800 opcodes of 260 real PTX files
    and 200 more, each with a guard and without.
    """
    return _splits(statement.opcode, statement.guard is not None)


@lru_cache(maxsize=4096)
def _splits(opcode: str, guarded: bool) -> bool:
    effects = effects_of(opcode)
    if "ends" in effects:
        return False
    # Under a guard what only writes registers becomes a selection, and all else a branch around it.
    return "splits" in effects or (guarded and "pure" not in effects)


def _type(value: Value) -> str:
    return value.opcode.rpartition(".")[2]


def _scalar_type(value: Value) -> str:
    """The type, and f32 for half an f32x2."""
    return "f32" if _type(value) == _HALF else _type(value)


def _modifiers(value: Value) -> set[str]:
    return set(value.opcode.split(".")[1:-1])


def _is_flushed(value: Value) -> bool:
    """True if .ftz has flushed a value already."""
    return "ftz" in _modifiers(value)


def _is_product(value: Value) -> bool:
    if value.head == "mul":
        return _type(value) in _TYPES and _modifiers(value) <= {"ftz"}
    if value.head == "div":
        return _type(value) == "f32" and bool(_modifiers(value) & {"approx", "full"})
    return value.opcode == "rcp.approx.f32"


def _is_sum(value: Value) -> bool:
    return (
        value.head in ("add", "sub")
        and _type(value) in _TYPES
        and _modifiers(value) <= {"ftz", "sat"}
    )


class _Rules:
    """The rules, over the values of one function, and what they have found so far."""

    def __init__(self, statements: Sequence[Statement], entry: bool) -> None:
        self.statements = statements
        self.constant_spaces = ("ld.const", "ld.param") if entry else ("ld.const",)
        self.flow = Dataflow(statements, _stands_alone)
        self.values = self.flow.values
        self.found: dict[int, Rewrite] = {}
        #: statements that take a value, and copies of products by who takes them apart
        self.readers: defaultdict[Value, list[Value]] = defaultdict(list)
        for value in self.values:
            for argument in value.arguments:
                self.readers[argument].append(value)
        self.copies: dict[tuple[Value, Value], Value] = {}

    def find_all(self) -> None:
        for value in self.values:
            self._simplify(value)
        find_users(self.values, self._has_effect)
        for value in sorted(self.values, key=lambda value: value.index):
            if value.users and self._may_become_fma(value):
                self._fuse(value)
        self._fuse_moved()
        for value in self.values:
            if value.users and value.head == "mul" and value.index not in self.found:
                self._scale(value)

    def _fuse_moved(self) -> None:
        """Fuses additions that ptxas has moved out of loops, with products in front of these."""
        moved = moved_out(self.flow, self.statements, self._is_constant)
        for value, region in moved.items():
            value.region = region
        for value in sorted(moved, key=lambda value: value.index):
            if value.users and self._may_become_fma(value):
                self._fuse(value)

    def _has_effect(self, value: Value) -> bool:
        """True if a value's statement must run even where nothing uses the value."""
        if value.index < 0 or value.head in ("select", "part", "flush", "take"):
            return False
        if value.opcode.endswith(_HALF) or "pure" in effects_of(value.opcode):
            return _stands_alone(self.statements[value.index])
        return value.head not in ("ld", "ldu") or "volatile" in _modifiers(value)

    def _is_constant(self, value: Value) -> bool:
        """True if a value is an immediate, or lies in constant memory at a constant address."""
        if value.opcode == "constant":
            return True
        return value.opcode.startswith(self.constant_spaces) and not value.arguments

    # --- before anything is fused ---

    def find_copies(self) -> None:
        """Finds min and max of equal operands, which are no statements for what follows.

        Read off ptxas 13.0 and 13.5, also under guards, across blocks, and between a product and
        its sum; of bf16, of two elements, with .ftz or .NaN they stay.
        """
        for value in self.values:
            if value.opcode not in _EXTREMES or len(self.statements[value.index].sources) != 2:
                continue
            if _same(*value.arguments[:2]):
                self.found[value.index] = Identity(0, False)
                value.alias = value.arguments[0], False

    def find_known(self) -> None:
        """Computes the approximate functions of constants, and conversions of them."""
        for value in self.values:
            if value.head == "cvt" and value.index >= 0:
                self._convert(value)
            function = _FUNCTIONS.get(value.head) if value.index >= 0 else None
            if function and _type(value) == "f32" and "approx" in _modifiers(value):
                known = value.arguments[0].resolve()
                bits = _computed(function, *known)
                if bits is not None:
                    self.found[value.index] = Known(bits)
                    value.alias = Value("constant", -1, -1, bits=bits), False

    @staticmethod
    def _convert(value: Value) -> None:
        """Makes the value of a conversion of a constant the constant that it gives."""
        known, negated = value.arguments[0].resolve()
        if known.opcode == "constant" and known.bits is not None and not negated:
            code = converted(value.opcode, known.bits)
            if code is not None:
                value.alias = Value("constant", -1, -1, bits=code), False

    def find_inverses(self) -> None:
        """Finds reciprocals of reciprocals and of powers."""
        for value in self.values:
            place = {"rcp.approx.ftz.f32": 0, "div.approx.ftz.f32": 1}.get(value.opcode)
            if place is not None and value.index not in self.found:
                copy = value.arguments[place]
                inner, negated = copy.resolve()
                power = inner.opcode == "ex2.approx.ftz.f32" and self._is_only_reader(copy, inner)
                if not negated and (power or inner.opcode == "rcp.approx.ftz.f32"):
                    self.found[value.index] = Inverse(inner.index)

    def _is_only_reader(self, copy: Value, source: Value) -> bool:
        """True if a single operand uses a value, through copies that nothing else uses."""
        while copy is not source and copy.alias is not None and len(self.readers[copy]) == 1:
            copy = copy.alias[0]
        return copy is source and len(self.readers[source]) == 1

    def find_reciprocals(self) -> None:
        """Makes multiplications of the approximate divisions by a constant.

        Seen with 400 random constants and 30 at the edges of each opcode.
        """
        for value in self.values:
            if value.head == "div" and _is_product(value) and value.index >= 0:
                divisor, negated = value.arguments[1].resolve()
                if divisor.opcode == "constant" and divisor.bits is not None:
                    modifiers = _modifiers(value)
                    bits, scaled = _reciprocal(divisor.bits ^ (negated << 31), modifiers)
                    if bits is not None:
                        self.found[value.index] = Reciprocal(bits, scaled)
                        value.opcode = "mul.ftz.f32" if "ftz" in modifiers else "mul.f32"
                        numerator = value.arguments[0]
                        if scaled:
                            numerator = Value("scaled", -1, value.region, [numerator])
                        value.arguments[:2] = numerator, Value("constant", -1, -1, bits=bits)

    def find_saturations(self) -> None:
        """Finds the outer ones of min and max with 0 and 1."""
        for value in self.values:
            bound = self._bound(value)
            if bound is None:
                continue
            inner, negated = value.arguments[1 - bound].resolve()
            other = self._bound(inner)
            if other is None or negated or inner.head == value.head:
                continue
            known = self.found.get(inner.index)
            if isinstance(known, Saturation):
                # Nothing is left to do, but for a flush.
                flushes = _is_flushed(value) and not _is_flushed(inner)
                self.found[value.index] = known if flushes else Identity(1 - bound, False)
            elif _type(inner) == _type(value):
                self.found[value.index] = Saturation(inner.index, 1 - other)

    def find_selections(self) -> None:
        """Finds selections of what only has another sign."""
        for value in self.values:
            if value.opcode in _SELECTIONS and not _same(*value.arguments[:2]):
                operands = tuple(self._signs(x) for x in value.arguments[:2])
                if any(signs for _, signs in operands):
                    self.found[value.index] = Selection(operands)
            elif value.opcode in _SIGNS and self.statements[value.index].guard is not None:
                inner, signs = self._signs(value.arguments[0])
                self.found[value.index] = Selection(((inner, (*signs, value.head)),))

    def _signs(self, operand: Value) -> tuple[int | None, tuple[str, ...]]:
        """The changes of sign that an operand of a selection is read through."""
        value, inner, signs = operand.root, None, list[str]()
        while value.opcode in _SIGNS and self.statements[value.index].guard is None:
            inner = value.index
            signs.insert(0, value.head)
            value = value.arguments[0].root
        return inner, tuple(signs)

    def _bound(self, value: Value) -> int | None:
        """Index of the operand that is the 1 of a min or the 0 of a max; None if there is none."""
        if value.head not in ("min", "max") or _type(value) not in ("f32", "f16"):
            return None
        if not _modifiers(value) <= {"ftz"} or len(self.statements[value.index].sources) != 2:
            return None
        type_ = _TYPES[_type(value)]
        wanted = (type_.one,) if value.head == "min" else (0, type_.sign)
        for place in (1, 0):
            constant, negated = value.arguments[place].resolve()
            if constant.opcode == "constant" and not negated and constant.bits in wanted:
                return place
        return None

    def _simplify(self, value: Value) -> None:
        """Makes aliases of changes of sign, and of what ptxas takes out before it contracts."""
        type_ = _TYPES.get(_type(value))
        if value.head == "neg" and type_ is not None and type_.neg:
            flushed = value.arguments[0].root
            if not _is_flushed(value) or (_type(value) == "f32" and _is_flushed(flushed)):
                value.alias = value.arguments[0], True
        elif value.head == "abs" and _type(value) == "f32":
            # The square of an f32 has no sign to take away.
            square = value.arguments[0].root
            if square.head == "mul" and _is_product(square) and _type(square) == "f32":
                alike = square.arguments[0].resolve() == square.arguments[1].resolve()
                if alike and (_is_flushed(square) or not _is_flushed(value)):
                    value.alias = square, False
        elif value.head == "selp" and _same(*value.arguments[:2]):
            value.alias = value.arguments[0], False
        elif value.head == "part":
            self._unpack(value)
        elif _is_product(value) and all(map(_is_known, value.arguments)):
            # ptxas computes it, rounded: no addition takes it as a product.
            value.alias = Value("constant", -1, -1), False
        elif value.head == "mul" and _is_product(value):
            self._drop_multiplication_by_one(value)

    def _unpack(self, part: Value) -> None:
        """Lets what is packed into a register and taken apart again be what it was.

        A pack that is stored and taken apart, or taken apart twice, is made anew for each reader,
        together with a product that it alone takes.
        """
        source = part.arguments[0]
        if source.opcode not in (*MOVES, _TAKE) or len(source.arguments) != 1:
            return
        pack = source.arguments[0].root
        if pack.opcode not in MOVES or len(pack.arguments) != 2 or part.bits not in (0, 1):
            return
        element, negated = pack.arguments[part.bits].resolve()
        readers = self.readers[pack]
        copied = len(readers) > 1 and {reader.head for reader in readers} <= {"mov", "st"}
        if copied and element.head == "mul" and len(self.readers[element]) == 1:
            element = self.copies.setdefault((source, element), replace(element, users=[]))
        part.alias = element, negated

    def _drop_multiplication_by_one(self, value: Value) -> None:
        """x * 1 is x and x * -1 is -x, payloads of NaN included; with .ftz the flush remains."""
        type_ = _TYPES[_type(value)]
        for place in (0, 1):
            factor, negated = value.arguments[place].resolve()
            if not type_.one or factor.opcode != "constant" or factor.bits is None:
                continue
            bits = factor.bits ^ (type_.sign if negated else 0)
            if bits in (type_.one, type_.one | type_.sign):
                other = value.arguments[1 - place]
                if not _is_flushed(value) or _is_flushed(other.root):
                    value.alias = other, bits != type_.one
                    self.found[value.index] = Identity(1 - place, bits != type_.one)
                else:
                    value.opcode = "flush.ftz.f32"
                return

    # --- fusing ---

    def _may_become_fma(self, value: Value) -> bool:
        return _is_sum(value) and value.index not in self.found

    def _fits(self, product: Value, addition: Value) -> bool:
        """True if a value is a product that an addition could take, were there no other use.

        Both are in one block, or one factor needs no register: then ptxas multiplies where the
        addition is (factors measured: immediates, kernel parameters, ld.const at a constant
        address; not what is computed from them alone, nor a square).
        """
        if not _is_product(product) or _scalar_type(product) != _scalar_type(addition):
            return False
        if _is_flushed(product) != _is_flushed(addition):
            return False
        if product.region == addition.region:
            return True
        return product.head == "mul" and any(map(self._is_constant, product.roots[:2]))

    def _may_fuse(self, product: Value) -> bool:
        """True if every use of a value is an addition that could take it as its product.

        One that will rather take its other operand, a product with this one use, is no such
        addition; but of f16x2, bf16x2 and f32x2 ptxas does not look that far.
        """
        for user in product.users:
            if not self._may_become_fma(user) or not self._fits(product, user):
                return False
            left, right = user.roots[:2]
            if left is right:
                return False
            other = right if left is product else left
            foresees = _TYPES[_type(product)].foresees and product.uses > 1
            if foresees and other.uses == 1 and self._fits(other, user):
                return False
        return _is_product(product)

    def _fuse(self, addition: Value) -> None:
        """Fuses an addition with the operand that may be and has fewer uses, else the first.

        Additions are taken in the order of the text. 3,000 of 3,000 random blocks of mul, add and
        sub of f32 agree, and as many of 10,000 with everything else that `tests` generates.
        """
        if self._doubles_product(addition):
            return
        roots = addition.roots[:2]
        candidates = [place for place in (0, 1) if self._may_fuse(roots[place])]
        if not candidates:
            return
        operand = min(candidates, key=lambda place: roots[place].uses)
        roots[operand].users.remove(addition)
        product, negated = addition.arguments[operand].resolve()
        if self._cancels(addition, operand):
            return
        subtracts = addition.head == "sub"
        opcode = ".".join(["fma", "rn", *addition.opcode.split(".")[1:-1], _scalar_type(addition)])
        self.found[addition.index] = Fusion(
            multiplication=product.index,
            operand=operand,
            opcode=opcode,
            negated=(negated != (subtracts and operand == 1), subtracts and operand == 0),
        )

    def _doubles_product(self, addition: Value) -> bool:
        """True if an addition adds two equal products, of which one has no other use.

        Only here ptxas merges equal products before it contracts; it then adds one to itself.
        """
        left, right = addition.roots[:2]
        if left is right or addition.head != "add" or left.opcode != right.opcode:
            return False
        if not _is_product(left) or _is_flushed(left) or not _TYPES[_type(left)].foresees:
            return False
        if 1 not in (left.uses, right.uses) or left.head != "mul":
            return False
        if set(map(id, left.roots[:2])) != set(map(id, right.roots[:2])):
            return False
        kept, gone = (left, right) if left.uses > 1 else (right, left)
        gone.users.remove(addition)
        kept.users.append(addition)
        for place, argument in enumerate(addition.arguments[:2]):
            if argument.root is gone:
                addition.arguments[place] = kept
        return True

    def _cancels(self, addition: Value, operand: int) -> bool:
        """Makes x of x*2 - x, whatever x is: infinite, zero or NaN."""
        product, negated = addition.arguments[operand].resolve()
        addend, minus = addition.arguments[1 - operand].resolve()
        type_ = _TYPES[_type(addition)]
        if _modifiers(addition) or product.head != "mul":
            return False
        for place in (0, 1):
            factor, other_sign = product.arguments[place].resolve()
            other, sign = product.arguments[1 - place].resolve()
            if other is not addend or factor.opcode != "constant" or factor.bits is None:
                continue
            if factor.bits | type_.sign != type_.two | type_.sign or not type_.two:
                continue
            sign ^= other_sign ^ negated ^ bool(factor.bits & type_.sign)
            if addition.head == "sub" and operand == 0:
                minus = not minus
            elif addition.head == "sub":
                sign = not sign
            if sign != minus:
                self.found[addition.index] = Identity(
                    1 - operand, minus == (addition.head == "add")
                )
                addition.alias = addend, sign
                addend.users += addition.users
                return True
        return False

    # --- multiplying by powers of two ---

    def _scale(self, value: Value) -> None:
        """A product with no other use that is multiplied by 1/4, 1/2, 2, 4 or 8, of f32 only."""
        if _scalar_type(value) != "f32" or not _modifiers(value) <= {"ftz", "sat", "rn"}:
            return
        for place in (0, 1):
            factor, negated = value.arguments[place].resolve()
            product, minus = value.arguments[1 - place].resolve()
            if factor.opcode != "constant" or negated or minus or factor.bits not in _SCALES:
                continue
            if not _is_product(product) or isinstance(self.found.get(product.index), Scaling):
                continue
            if product.uses == 1:
                self.found[value.index] = Scaling(product.index, _SCALES[factor.bits])
                return


def _same(one: Value, other: Value) -> bool:
    return one.resolve() == other.resolve()


def _is_known(value: Value) -> bool:
    return value.root.opcode == "constant"


def _computed(function: Callable[[float], float], known: Value, negated: bool) -> int | None:
    """The code of a function of an f32, where it and its result are normal numbers."""
    if known.opcode != "constant" or known.bits is None:
        return None
    (x,) = struct.unpack("<f", struct.pack("<I", known.bits ^ (negated << 31)))
    try:
        (bits,) = struct.unpack("<I", struct.pack("<f", function(x)))
    except (ArithmeticError, ValueError):
        return None
    return bits if _is_normal(known.bits) and _is_normal(bits) else None


def _is_normal(bits: int) -> bool:
    return 0x00800000 <= bits & 0x7FFFFFFF < 0x7F800000


def _reciprocal(divisor: int, modifiers: set[str]) -> tuple[int | None, int]:
    """The f32 that multiplies instead of a division by `divisor`; the exponent that x is scaled by.

    None for NaN. Of what is scaled by a power of two as the division does it: by 2^-2 where a full
    division has a large divisor, by 2^24 where one without .ftz has a subnormal one.
    """
    sign, size = divisor & 1 << 31, divisor & ~(1 << 31)
    exponent = 0
    if size > 0x7F800000:
        return None, 0
    if "full" in modifiers and size > 0x7E800000:
        exponent = -2
    elif size < 0x00800000:
        if "ftz" in modifiers:
            return sign | 0x7F800000, 0
        exponent = 24
    value = float(struct.unpack("<f", struct.pack("<I", size))[0]) * 2.0**exponent
    if not value:
        return sign | 0x7F800000, exponent
    (bits,) = struct.unpack("<I", struct.pack("<f", 1 / value))
    return sign | (bits if bits >= 0x00800000 else 0), exponent
