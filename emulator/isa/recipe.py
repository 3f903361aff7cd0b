"""``Recipe``: steps of your own in the place of a target, and those of a target as numbers.

``mma``, ``gemm``, ``explain`` and ``compare`` take one where they take a target: the instruction
says the shapes and types, the recipe what is computed. All engines give the same bits for it; a
fast one that its constants do not suit leaves the work to one that they do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from dtypes import FORMATS, Format, Rounding
from dtypes.codec import decode
from emulator.arith.evidence import Fidelity
from emulator.arith.recipes import Arithmetic
from emulator.arith.steps import (
    ROUNDED,
    AddC,
    Clear,
    Convert,
    FmaChain,
    FusedDotAdd,
    IntegerDot,
    PairSums,
    PopcountDot,
    Step,
    Widen,
    check_steps,
)
from emulator.errors import OperandError, hint, listing, one_of, shown, whole
from emulator.isa.instruction import Instruction, as_instruction

if TYPE_CHECKING:
    from emulator.layout.instruction_descriptor import InstructionDescriptor

#: what an own recipe says of itself where a target has evidence
OWN = Fidelity("your own", "a recipe that you made, not one of a GPU")

#: what means anything: up to the span of exponents of f64 products
_MOST_FRACTION_BITS, _FLOORS = 4400, (-2200, 1024)
#: characters of a name; products in a row
_LONGEST_NAME, _LONGEST = 120, 1 << 30


@dataclass(frozen=True)
class Recipe:
    """Steps of your own that an instruction computes in the place of a target's.

    ``Recipe.of`` reads the recipe of a target, ``changed`` makes one with other constants,
    ``Recipe.fused`` and ``Recipe.fma`` make one from nothing. Printed, it shows its constants;
    ``recipe.sum`` is the step that multiplies, its fields are numbers.

    Raises OperandError for constants out of range, when it is made, and for an instruction that it
    does not suit, when it is used.
    """

    #: one or more steps of `emulator.arith.steps`
    steps: tuple[Step, ...]
    #: its name in reports
    name: str = "your own recipe"
    #: `gemm` adds partial sums to an f32 total every so many elements of k; 0: one chain
    promote: int = 0
    #: element formats of `dtypes.FORMATS` that A and B have instead of the instruction's
    a: str = ""
    b: str = ""

    @property
    def fidelity(self) -> Fidelity:
        return OWN

    def __post_init__(self) -> None:
        try:
            check_steps(self.steps)
        except TypeError as error:
            raise OperandError(str(error)) from None
        if not isinstance(self.name, str) or not self.name:
            raise OperandError(f"the name of a recipe is text; got {shown(self.name)}")
        object.__setattr__(self, "name", self.name[:_LONGEST_NAME])
        object.__setattr__(self, "promote", whole("promote", self.promote, 0, _LONGEST))
        for name in "ab":
            own = getattr(self, name)
            if not isinstance(own, str) or own:
                fmt = _format(f"the format of {name.upper()}", own)
                if not fmt.is_float:
                    raise OperandError(
                        f"{name.upper()} of a recipe is of floating point; got {fmt.name}"
                    )
        object.__setattr__(self, "steps", tuple(map(_checked, self.steps)))

    # --- where recipes come from ---

    @classmethod
    def of(
        cls,
        instruction: Instruction | str,
        target: object,
        *,
        idesc: InstructionDescriptor | int | None = None,
    ) -> Recipe:
        """The recipe by which `target` computes an instruction, an Instruction or its opcode.

        A tcgen05.mma needs `idesc`, its InstructionDescriptor or the word of one.

        Raises OperandError for an instruction that does not multiply matrices, UnsupportedError
        where the target lacks it.
        """
        ins: Any
        if idesc is not None or (isinstance(instruction, str) and "tcgen05.mma" in instruction):
            from emulator.isa.tensor_matrix import settle

            ins = settle(instruction, idesc)
        else:
            ins = as_instruction(instruction, "an instruction that multiplies")
        arithmetic = getattr(ins, "arithmetic", None)
        if arithmetic is None:
            raise OperandError(f"only instructions that multiply have a recipe; got {ins}")
        if isinstance(target, Recipe):
            return target
        return cls(arithmetic(target).steps, f"recipe of {ins.check_target(target)}")

    @classmethod
    def fused(
        cls,
        fraction_bits: int,
        *,
        floor: int | None = None,
        result: str = "f32",
        rounding: Rounding = "rz",
        precision: int | None = None,
        run: int = 0,
        passes: int = 0,
        group: int = 1,
        widen: str = "",
        c_last: bool = False,
        **more: Any,
    ) -> Recipe:
        """A fused dot-add, as tensor cores do it: every term is cut `fraction_bits` below the
        largest exponent, the sum is rounded once.

        `floor` is the least exponent that the alignment uses (None: none), `result` the format of
        the sum, rounded by `rounding` ("rz", "rn", "rm", "rp") to `precision` significant bits
        (None: all of the format). `run` products are added at once (0: all k of the instruction),
        runs are dealt to `passes` sums in turn (0: a sum for each); `group` neighbours are one
        exact term (block-scaled instructions). `widen` converts A and B first; with `c_last` C is
        added to the finished sum, rounded to nearest. `more` are promote, name, a and b.
        """
        core = FusedDotAdd(
            fraction_bits,
            floor,
            result,
            rounding,  # type: ignore[arg-type]
            precision=precision,
            run=run,
            passes=passes,
            group=group,
        )
        before: tuple[Step, ...] = (Widen(widen),) if not isinstance(widen, str) or widen else ()
        steps = (Clear(), core, AddC(result)) if c_last else (core,)
        return cls(
            (*before, *steps), **{"name": f"fused sum, F = {shown(fraction_bits, 20)}"} | more
        )

    @classmethod
    def fma(cls, fmt: str = "f32", **more: Any) -> Recipe:
        """Fused multiply-adds in `fmt` one after the other along k, as a plain loop does it."""
        name = "multiply-adds in " + shown(fmt, 20).strip("'")
        return cls((Widen(fmt), FmaChain(fmt)), **{"name": name} | more)

    def changed(self, **constants: Any) -> Recipe:
        """With other constants: fields of the recipe, or of the step that multiplies.

        Raises OperandError for a name that is neither.
        """
        own = {x.name for x in fields(self)}
        inner = {x.name for x in fields(self.sum)}
        for name in constants:
            if name not in own | inner:
                legal = sorted(own | inner)
                raise OperandError(
                    f"this recipe has no {shown(name)}; it has {', '.join(legal)}"
                    f"{hint(name, legal)}"
                )
        said = ", ".join(f"{name}={shown(x, 20)}" for name, x in constants.items())
        changes = {name: x for name, x in constants.items() if name in own}
        if steps := {name: x for name, x in constants.items() if name not in own}:
            core = replace(self.sum, **steps)
            changes["steps"] = tuple(core if x is self.sum else x for x in self.steps)
        return replace(self, **{"name": f"{self.name}, {said}"} | changes)

    # --- what it says ---

    @property
    def sum(self) -> Any:
        """The step that multiplies, such as `FusedDotAdd`: its fields are the constants."""
        cores = (FusedDotAdd, FmaChain, PairSums, IntegerDot, PopcountDot)
        found = [x for x in self.steps if isinstance(x, cores)]
        if len(found) != 1:
            raise OperandError(f"a recipe has one step that multiplies; got {len(found)}")
        return found[0]

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield self.name
        for number, step in enumerate(self.steps, 1):
            yield f"  {number}. {step.short}"
            constants = {x.name: getattr(step, x.name) for x in fields(step)}
            if constants:
                yield f"     {', '.join(f'{name}={x!r}' for name, x in constants.items())}"
        if cut := self._cut_again:
            yield f"  {cut}"
        if self.promote:
            yield f"  gemm adds to an f32 total every {self.promote} of k"
        for name in "ab":
            if own := getattr(self, name):
                yield f"  {name.upper()} is {own}"

    @property
    def _cut_again(self) -> str:
        """The part of the recipe that keeps fewer bits than a fused sum aligns, in words, or ""."""
        cores = [i for i, x in enumerate(self.steps) if isinstance(x, FusedDotAdd)]
        if len(cores) != 1:
            return ""
        core = self.sum
        limits = [(FORMATS[core.result].precision, f"its result, {core.result},")]
        if core.precision is not None:
            limits.append((core.precision, f"precision={core.precision}"))
        for number, step in enumerate(self.steps[cores[0] + 1 :], cores[0] + 2):
            if isinstance(step, (AddC, Convert)):
                fmt = FORMATS[step.fmt if isinstance(step, AddC) else step.to]
                limits.append((fmt.precision, f"step {number}"))
        least, name = min(limits, key=lambda limit: limit[0])
        if core.fraction_bits < least:
            return ""
        return (
            f"fraction_bits={core.fraction_bits} aligns {core.fraction_bits + 1} bits of the "
            f"largest term; {name} keeps {least} of them"
        )

    # --- what it computes ---

    def applied(self, stated: Arithmetic, k: int, what: object) -> Arithmetic:
        """The arithmetic of an instruction with these steps; `stated` says its types and modifiers,
        `k` how many products it adds, `what` names it.

        Raises OperandError where they do not go together.
        """
        a, b = (FORMATS[x] if x else y for x, y in ((self.a, stated.a), (self.b, stated.b)))
        steps, d = self.steps, stated.d
        if d.is_float == isinstance(self.sum, (IntegerDot, PopcountDot)):
            kind = "floating point" if d.is_float else "integers"
            raise OperandError(f"{what} computes {kind}; the recipe {self.name!r} does not")
        if d.is_float and _last_format(steps, stated.c) is not d:
            steps = (*steps, Convert(d.name))
        out = replace(stated, a=a, b=b, steps=steps)
        _check_fits(out, k, what)
        return out


# --- checks ---------------------------------------------------------------------------------------


def _format(what: str, name: object) -> Format:
    return FORMATS[one_of(what, name, FORMATS)]


def _rounds(what: str, name: object) -> Format:
    """A format that sums are rounded to."""
    legal = [x.name for x in FORMATS.values() if x.specials == "ieee" and not x.ignored_bits]
    if not isinstance(name, str) or name not in legal:
        raise OperandError(
            f"{what} is one with infinities: {listing(legal)} (that of tf32 is f32 with "
            f"precision=11); got {shown(name)}"
        )
    return FORMATS[name]


def _checked(step: Step) -> Step:
    """`step`, its numbers as plain integers; OperandError for constants that mean nothing."""
    match step:
        case FusedDotAdd(floor=floor, precision=precision):
            fmt = _rounds("the format of the result", step.result)
            one_of("rounding", step.rounding, ROUNDED)
            if floor is not None:
                lowest, highest = _FLOORS
                floor = whole("floor, where it is not None,", floor, lowest, highest)
            if precision is not None:
                precision = whole("precision", precision, 1, fmt.precision)
            step = replace(
                step,
                fraction_bits=whole("fraction_bits", step.fraction_bits, 0, _MOST_FRACTION_BITS),
                floor=floor,
                precision=precision,
                run=whole("run", step.run, 0, _LONGEST),
                passes=whole("passes", step.passes, 0, _LONGEST),
                group=whole("group", step.group, 1, _LONGEST),
            )
            if step.passes and not step.run:
                raise OperandError("passes= deals runs of k to several sums: give run=, too")
        case FmaChain() | PairSums() | AddC():
            _rounds("the format of a step", step.fmt)
        case Widen() | Convert():
            _rounds("the format of a conversion", step.to)
    return step


def _last_format(steps: tuple[Step, ...], x: Format) -> Format:
    """The format of the running value after all steps, of which the accumulator is the first."""
    for step in steps:
        match step:
            case FusedDotAdd():
                x = FORMATS[step.result]
            case FmaChain() | PairSums() | AddC():
                x = FORMATS[step.fmt]
            case Convert():
                x = FORMATS[step.to]
    return x


def _check_fits(arithmetic: Arithmetic, k: int, what: object) -> None:
    """Raises OperandError for steps that cannot take what the instruction gives them."""
    factors = (arithmetic.a, arithmetic.b)
    for step in arithmetic.steps:
        match step:
            case Widen():
                for fmt in factors:
                    if not _holds(FORMATS[step.to], fmt):
                        raise OperandError(f"{step.to} does not hold every number of {fmt.name}")
                factors = (FORMATS[step.to],) * 2
            case FmaChain() | PairSums():
                if arithmetic.scale is not None:
                    raise OperandError(f"{what} has block scales, which only a fused sum takes")
                if wrong := [x.name for x in factors if x.name != step.fmt]:
                    raise OperandError(
                        f"multiply-adds in {step.fmt} take factors of {step.fmt}, not "
                        f"{' and '.join(wrong)}: Widen({step.fmt!r}) comes first"
                    )
            case FusedDotAdd():
                _check_order(step, arithmetic.scale is not None, k, what)


def _check_order(step: FusedDotAdd, scaled: bool, k: int, what: object) -> None:
    if step.group > 1 and (not scaled or step.run or k % step.group):
        raise OperandError(
            f"group={step.group} is of block-scaled instructions whose k is a multiple of it, "
            f"without run=; got {what}"
        )
    if not all(step.blocks(k // step.group)):
        raise OperandError(
            f"{step.passes} passes of runs of {step.run} need k = {step.passes * step.run} or "
            f"more; {what} has {k}"
        )


def _holds(wide: Format, fmt: Format) -> bool:
    """True if every number of a format is one of the wider format."""
    return (
        wide.precision >= fmt.precision
        and wide.emin - wide.mantissa_bits <= fmt.emin - fmt.mantissa_bits
        and decode(fmt, fmt.max_finite).exponent <= wide.bias
    )
