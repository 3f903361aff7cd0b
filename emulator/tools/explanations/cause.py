"""Finds where two ways to compute one dot product part, and which of their differences causes it.

The cause is found by experiment: `reference` computes the first way with one thing of the second
put in, then with two, until it gives the second's bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from typing import Any, NamedTuple

from emulator.arith import reference
from emulator.arith.recipes import Arithmetic
from emulator.arith.steps import ROUNDED, Convert, FusedDotAdd, Step, brief
from emulator.arith.trace import Changed, Counted, Operated, Record, Summed
from emulator.errors import runs
from emulator.tools.explanations.numbers import ShownCode, number_text, power_of_two
from emulator.tools.explanations.steps import cut_text, losses

_SATURATES = {True: "clamped to s32 (.satfinite)", False: "wrapped to 32 bits"}


@dataclass(frozen=True)
class Dot:
    """One dot product in codes; chained over k where there are more products than `k`."""

    name: str
    arithmetic: Arithmetic
    a: tuple[int, ...]
    b: tuple[int, ...]
    c: int
    #: products that one instruction takes
    k: int
    scale_a: tuple[int, ...] = ()
    scale_b: tuple[int, ...] = ()
    #: what its positions are called: those of a sparse A are not columns
    position: str = "k"

    def run(self) -> tuple[int, list[list[Record]]]:
        """The code of the result, and the records of each instruction."""
        x, records = self.c, []
        for start in range(0, len(self.a), self.k):
            own: list[Record] = []
            part = slice(start, start + self.k)
            pad = (0,) * (self.k - len(self.a[part]))
            given = self.a[part] + pad, self.b[part] + pad, self.scale_a, self.scale_b
            x = reference.dot_one(self.arithmetic, *given, x, own.append)
            records.append(own)
        return x, records

    def changed(self, **changes: Any) -> Dot:
        """With another arithmetic."""
        return replace(self, arithmetic=replace(self.arithmetic, **changes))


class Stage(NamedTuple):
    """The running value after one rounding, and which products have gone into it."""

    name: str
    x: ShownCode
    record: Record
    #: products of this stage; empty where it adds none
    k: tuple[int, ...]


def _stages(dot: Dot) -> list[Stage]:
    """The running values of a dot product, in order."""
    _, instructions = dot.run()
    out = []
    for number, records in enumerate(instructions):
        start, passes = number * dot.k, 0
        for record in records:
            match record:
                case Summed(step):
                    group, blocks = step.group, step.blocks(dot.k // step.group)
                    ks = tuple(start + i * group + j for i in blocks[passes] for j in range(group))
                    many = len(blocks) > 1 or len(instructions) > 1
                    name = f"after {dot.position} = {runs(ks)}" if many else "after all k"
                    out.append(Stage(name, ShownCode(*record.after), record, ks))
                    passes += 1
                case Operated(_, name, fmt, k, _, result) if name == "add" or k is not None:
                    ks = () if k is None else (start + k,)
                    where = "+ c" if k is None else f"{name} of {dot.position} = {start + k}"
                    out.append(Stage(f"after {where}", ShownCode(fmt, result), record, ks))
                case Changed(step, before, after) if isinstance(step, Convert) and before != after:
                    out.append(Stage(f"in {after.fmt.name}", ShownCode(*after), record, ()))
                case Counted(_, addends, _, result):
                    ks = tuple(range(start, start + len(addends)))
                    out.append(Stage("after all k", ShownCode(*result), record, ks))
    return out


# --- where they part ------------------------------------------------------------------------------


def parting(p: Dot, q: Dot) -> list[str]:
    """How far two dot products agree, and the first stage at which they differ."""
    for mine, other in zip(_stages(p), _stages(q), strict=False):
        if mine.k != other.k or type(mine.record) is not type(other.record):
            return [
                f"they round at different places: {p.name} first {mine.name}, x = {mine.x.typed()}",
                f"{q.name} first {other.name}, x = {other.x.typed()}",
            ]
        if mine.x != other.x:
            return [
                f"{mine.name}: x = {mine.x.typed()} in {p.name}",
                f"{other.name}: x = {other.x.typed()} in {q.name}",
                *_terms_apart(p, q, mine, other),
            ]
    return ["one goes on where the other has its result"]


def _terms_apart(p: Dot, q: Dot, mine: Stage, other: Stage) -> Iterator[str]:
    """The terms of which one way keeps more than the other."""
    first, second = mine.record, other.record
    if not isinstance(first, Summed) or not isinstance(second, Summed):
        return
    if first.top is None or second.top is None:
        return
    found = []
    for i, (term, u, v) in enumerate(zip(first.terms, losses(first), losses(second), strict=True)):
        if u != v:
            is_x = i == len(first.terms) - 1
            where = "x" if is_x else f"{p.position} {mine.k[i * first.step.group]}"
            cuts = [
                cut_text(term, record.unit, lost) or "nothing"
                for record, lost in ((first, u), (second, v))
            ]
            found.append(f"{where}: {p.name} cuts {cuts[0]}; {q.name} cuts {cuts[1]}")
    yield from found[:3]
    if len(found) > 3:
        yield f"and so of {len(found) - 3} terms more"
    sums = [sum(x.cut) * power_of_two(x.unit) for x in (first, second)]
    yield f"sums before rounding: {', '.join(number_text(x, True) for x in sums)}"


# --- why ------------------------------------------------------------------------------------------


class Aspect(NamedTuple):
    """One thing in which two ways differ."""

    name: str
    #: the difference in words
    words: str
    #: the first way with this of the second
    swap: Callable[[Dot], Dot]


def find_cause(p: Dot, q: Dot) -> list[Aspect]:
    """The fewest differences that turn the result of `p` into that of `q`; all where none do."""
    want, _ = q.run()
    found = list(_aspects(p, q))
    for count in range(1, len(found) + 1):
        for chosen in combinations(found, count):
            dot = p
            for aspect in chosen:
                dot = aspect.swap(dot)
            if dot.run()[0] == want:
                return list(chosen)
    return found


def _aspects(p: Dot, q: Dot) -> Iterator[Aspect]:
    """All in which the two recipes and instructions differ."""
    if p.k != q.k:
        words = f"{p.name} takes k {p.k} at a time, {q.name} {q.k}: x is rounded in between"
        yield Aspect("k of the instruction", words, lambda dot: replace(dot, k=q.k))
    for name in ("saturate", "rounding", "bit_operation"):  # what an instruction says itself
        mine, other = (getattr(x.arithmetic, name) for x in (p, q))
        if mine != other:
            said = [_SATURATES[x] if isinstance(x, bool) else f".{x}" for x in (mine, other)]
            words = f"{p.name}: {said[0]}; {q.name}: {said[1]}"
            yield Aspect("modifier", words, partial(Dot.changed, **{name: other}))
    steps, others = p.arithmetic.steps, q.arithmetic.steps
    u, v = _fused(steps), _fused(others)
    words = f"{p.name}: {brief(steps)}; {q.name}: {brief(others)}"
    if u is None or v is None:
        if steps != others:
            yield Aspect("steps", words, partial(Dot.changed, steps=others))
        return
    fields = _FIELDS
    if _around(steps) != _around(others) or u.result != v.result:
        # What comes out of the sum and what is done with it only fit together.
        yield Aspect("steps", words, partial(_with_steps_around, steps=others))
        fields = _FIELDS[1:]
    for name, changed, said_of in fields:
        changes = {field: getattr(v, field) for field in changed}
        texts = [said_of(x, min(p.k, q.k)) for x in (u, v)]
        same = all(getattr(u, field) == value for field, value in changes.items())
        if not same and (name != "order of k" or texts[0] != texts[1]):
            words = f"{p.name}: {texts[0]}; {q.name}: {texts[1]}"
            yield Aspect(name, words, partial(_with_fields, changes=changes))


def _fused(steps: Sequence[Step]) -> FusedDotAdd | None:
    found = [x for x in steps if isinstance(x, FusedDotAdd)]
    return found[0] if len(found) == 1 else None


def _around(steps: Sequence[Step]) -> list[Step | None]:
    return [None if isinstance(x, FusedDotAdd) else x for x in steps]


def _with_steps_around(dot: Dot, steps: tuple[Step, ...]) -> Dot:
    """With other steps, but its own alignment, order and grouping of the sum among them."""
    fused, other = _fused(dot.arithmetic.steps), _fused(steps)
    assert fused is not None and other is not None
    fused = replace(fused, result=other.result, rounding=other.rounding, precision=other.precision)
    return dot.changed(steps=tuple(fused if x is other else x for x in steps))


def _with_fields(dot: Dot, changes: dict[str, Any]) -> Dot:
    steps = dot.arithmetic.steps
    return dot.changed(
        steps=tuple(replace(x, **changes) if isinstance(x, FusedDotAdd) else x for x in steps)
    )


# --- words ----------------------------------------------------------------------------------------


def _output(x: FusedDotAdd, k: int) -> str:
    bits = f", {x.precision} bits kept" if x.precision else ""
    return f"the sum is rounded {ROUNDED[x.rounding]}{bits}"


def _alignment(x: FusedDotAdd, k: int) -> str:
    return f"terms are cut {x.fraction_bits} bits below the largest exponent"


def _floor(x: FusedDotAdd, k: int) -> str:
    return "no least exponent" if x.floor is None else f"the exponent is at least {x.floor}"


def _grouping(x: FusedDotAdd, k: int) -> str:
    return f"{x.group} products make one term" if x.group > 1 else "each product is a term"


def _order(x: FusedDotAdd, k: int) -> str:
    blocks = x.blocks(k)
    if len(blocks) == 1:
        return "all k at once"
    more = "; …" if len(blocks) > 2 else ""
    return f"k in {len(blocks)} passes, {'; '.join(runs(block) for block in blocks[:2])}{more}"


#: name of the difference, fields of the fused sum that make it, their description
_FIELDS: tuple[tuple[str, tuple[str, ...], Callable[[FusedDotAdd, int], str]], ...] = (
    ("rounding of the result", ("rounding", "precision"), _output),
    ("alignment bits", ("fraction_bits",), _alignment),
    ("exponent floor", ("floor",), _floor),
    ("order of k", ("run", "passes"), _order),
    ("grouping", ("group",), _grouping),
)
