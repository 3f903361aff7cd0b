"""Where two ways to compute one dot product part, and which difference of theirs makes it so.

The cause is found by experiment: `reference` computes the first way with one thing of the second
put in, then with two, until it gives the second's bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, NamedTuple

from emulator.arith import reference
from emulator.arith.recipes import Arithmetic
from emulator.arith.steps import ROUNDED, Convert, FusedDotAdd, Step, brief
from emulator.arith.trace import Changed, Counted, Operated, Record, Summed, Tagged
from emulator.errors import runs
from emulator.tools.explanations.exact import number_text, power_of_two
from emulator.tools.explanations.steps import cut_text, tagged_text, term_value

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
            x = reference.dot_one(
                self.arithmetic, self.a[part] + pad, self.b[part] + pad,
                self.scale_a, self.scale_b, x, own.append,
            )  # fmt: skip
            records.append(own)
        return x, records


class Stage(NamedTuple):
    """The running value after one rounding, and which products have gone into it."""

    name: str
    x: Tagged
    record: Record
    #: products of this stage; empty where it adds none
    k: tuple[int, ...]


def stages(dot: Dot) -> list[Stage]:
    """The running values of a dot product, in order."""
    _, instructions = dot.run()
    out = []
    for number, records in enumerate(instructions):
        start, passes = number * dot.k, 0
        for record in records:
            match record:
                case Summed(step):
                    group = step.group
                    blocks = step.blocks(dot.k // group)
                    block = blocks[passes]
                    ks = tuple(start + i * group + j for i in block for j in range(group))
                    many = len(blocks) > 1 or len(instructions) > 1
                    name = f"after {dot.position} = {runs(ks)}" if many else "after all k"
                    out.append(Stage(name, record.after, record, ks))
                    passes += 1
                case Operated(_, name, fmt, k, _, result) if name == "add" or k is not None:
                    ks = () if k is None else (start + k,)
                    where = "+ c" if k is None else f"{name} of {dot.position} = {start + k}"
                    out.append(Stage(f"after {where}", Tagged(fmt, result), record, ks))
                case Changed(step, before, after) if isinstance(step, Convert) and before != after:
                    out.append(Stage(f"in {after.fmt.name}", after, record, ()))
                case Counted(_, addends, _, result):
                    ks = tuple(range(start, start + len(addends)))
                    out.append(Stage("after all k", result, record, ks))
    return out


# --- where they part ------------------------------------------------------------------------------


def parting(p: Dot, q: Dot) -> list[str]:
    """Up to where two dot products agree, and the first stage at which they do not."""
    for mine, other in zip(stages(p), stages(q), strict=False):
        if mine.k != other.k or type(mine.record) is not type(other.record):
            return [
                f"they round at different places: {p.name} first {mine.name}, "
                f"x = {tagged_text(mine.x)}",
                f"{q.name} first {other.name}, x = {tagged_text(other.x)}",
            ]
        if mine.x != other.x:
            return [
                f"{mine.name}: x = {tagged_text(mine.x)} in {p.name}",
                f"{other.name}: x = {tagged_text(other.x)} in {q.name}",
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
    for i, (term, u, v) in enumerate(zip(first.terms, first.cut, second.cut, strict=True)):
        same = u * power_of_two(first.unit) == v * power_of_two(second.unit)
        if not same:
            lost = [
                cut_text(term, x.unit, term_value(term) - cut * power_of_two(x.unit)) or "nothing"
                for x, cut in ((first, u), (second, v))
            ]
            where = (
                "x" if i == len(first.terms) - 1 else f"{p.position} {mine.k[i * first.step.group]}"
            )
            found.append(f"{where}: {p.name} cuts {lost[0]}; {q.name} cuts {lost[1]}")
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
    found = list(aspects(p, q))
    for count in range(1, len(found) + 1):
        for chosen in combinations(found, count):
            dot = p
            for aspect in chosen:
                dot = aspect.swap(dot)
            if dot.run()[0] == want:
                return list(chosen)
    return found


def aspects(p: Dot, q: Dot) -> Iterator[Aspect]:
    """All in which the two recipes and instructions differ."""
    if p.k != q.k:
        yield Aspect(
            "k of the instruction",
            f"{p.name} takes k {p.k} at a time, {q.name} {q.k}: x is rounded in between",
            lambda dot: replace(dot, k=q.k),
        )
    yield from _modifiers(p, q)
    mine, other = p.arithmetic.steps, q.arithmetic.steps
    u, v = _fused(mine), _fused(other)
    if u is None or v is None:
        if mine != other:
            words = f"{p.name}: {brief(mine)}; {q.name}: {brief(other)}"
            yield Aspect("steps", words, lambda dot: _with(dot, other))
        return
    around = _around(mine) != _around(other)
    if around or u.result != v.result:
        # What comes out of the sum and what is done with it only fit together.
        def swap_around(dot: Dot) -> Dot:
            fused = _fused(dot.arithmetic.steps)
            assert fused is not None and v is not None
            fused = replace(fused, result=v.result, rounding=v.rounding, precision=v.precision)
            return _with(dot, tuple(fused if x is v else x for x in other))

        words = f"{p.name}: {brief(mine)}; {q.name}: {brief(other)}"
        yield Aspect("steps", words, swap_around)
    else:
        yield from _field(p, q, u, v, "rounding of the result", ("rounding", "precision"), _output)
    yield from _field(p, q, u, v, "alignment bits", ("fraction_bits",), _alignment)
    yield from _field(p, q, u, v, "exponent floor", ("floor",), _floor)
    yield from _field(p, q, u, v, "order of k", ("run", "passes"), _order(p, q))
    yield from _field(p, q, u, v, "grouping", ("group",), _grouping)


def _modifiers(p: Dot, q: Dot) -> Iterator[Aspect]:
    """What an instruction says itself: .satfinite, .rz and the like, .xor or .and."""
    for name in ("saturate", "rounding", "bit_operation"):
        mine, other = (getattr(x.arithmetic, name) for x in (p, q))
        if mine == other:
            continue

        def swap(dot: Dot, name: str = name, value: object = other) -> Dot:
            changes: dict[str, Any] = {name: value}
            return replace(dot, arithmetic=replace(dot.arithmetic, **changes))

        said = [_SATURATES[x] if isinstance(x, bool) else f".{x}" for x in (mine, other)]
        yield Aspect("modifier", f"{p.name}: {said[0]}; {q.name}: {said[1]}", swap)


def _field(
    p: Dot,
    q: Dot,
    u: FusedDotAdd,
    v: FusedDotAdd,
    name: str,
    fields: tuple[str, ...],
    words: Callable[[FusedDotAdd], str],
) -> Iterator[Aspect]:
    changes = {field: getattr(v, field) for field in fields}
    if all(getattr(u, field) == value for field, value in changes.items()):
        return
    if name == "order of k" and words(u) == words(v):
        return

    def swap(dot: Dot) -> Dot:
        steps = tuple(
            replace(x, **changes) if isinstance(x, FusedDotAdd) else x for x in dot.arithmetic.steps
        )
        return _with(dot, steps)

    yield Aspect(name, f"{p.name}: {words(u)}; {q.name}: {words(v)}", swap)


def _with(dot: Dot, steps: tuple[Step, ...]) -> Dot:
    return replace(dot, arithmetic=replace(dot.arithmetic, steps=steps))


def _fused(steps: Sequence[Step]) -> FusedDotAdd | None:
    found = [x for x in steps if isinstance(x, FusedDotAdd)]
    return found[0] if len(found) == 1 else None


def _around(steps: Sequence[Step]) -> list[Step | None]:
    return [None if isinstance(x, FusedDotAdd) else x for x in steps]


# --- words ----------------------------------------------------------------------------------------


def _output(x: FusedDotAdd) -> str:
    bits = f", {x.precision} bits kept" if x.precision else ""
    return f"the sum is rounded {ROUNDED[x.rounding]}{bits}"


def _alignment(x: FusedDotAdd) -> str:
    return f"terms are cut {x.fraction_bits} bits below the largest exponent"


def _floor(x: FusedDotAdd) -> str:
    return "no least exponent" if x.floor is None else f"the exponent is at least {x.floor}"


def _grouping(x: FusedDotAdd) -> str:
    return f"{x.group} products make one term" if x.group > 1 else "each product is a term"


def _order(p: Dot, q: Dot) -> Callable[[FusedDotAdd], str]:
    k = min(p.k, q.k)

    def words(x: FusedDotAdd) -> str:
        blocks = x.blocks(k)
        if len(blocks) == 1:
            return "all k at once"
        return f"k in {len(blocks)} passes, {'; '.join(runs(block) for block in blocks[:2])}" + (
            "; …" if len(blocks) > 2 else ""
        )

    return words
