"""Reorders the elements of vectors by shuffles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from emulator.arith.fast.words import Word


class Held(NamedTuple):
    """A vector, and by lane the number of the element that it holds."""

    numbers: tuple[int, ...]
    vector: Word


def rearranged(held: Sequence[Held], wanted: Sequence[Sequence[int]], width: int) -> list[Word]:
    """Vectors of elements by their numbers, out of vectors of at most `width` lanes.

    A shuffle takes lanes of two vectors. Where more are needed, those that half of the results
    take from are first brought into fewer.
    """
    held = _needed(held, wanted)
    if len(held) <= 2:
        lane = {n: i for i, n in enumerate(n for x in held for n in x.numbers)}
        x, y = held[0].vector, held[-1].vector
        return [x.shuffled(y, [lane[n] for n in numbers]) for numbers in wanted]
    out, middle = [], len(wanted) // 2
    for part in (wanted[:middle], wanted[middle:]) if middle else (wanted,):
        out += rearranged(_joined(_needed(held, part), part, width), part, width)
    return out


def _joined(held: list[Held], wanted: Sequence[Sequence[int]], width: int) -> list[Held]:
    """Two vectors at a time as one, where that holds all that is wanted of them."""
    needed, out = {n for numbers in wanted for n in numbers}, []
    for two in (held[i : i + 2] for i in range(0, len(held), 2)):
        lanes = [i for i, n in enumerate(n for x in two for n in x.numbers) if n in needed]
        if len(two) == 1 or len(lanes) > width:
            out += two
            continue
        numbers = [*two[0].numbers, *two[1].numbers]
        lanes += lanes[:1] * (width - len(lanes))
        vector = two[0].vector.shuffled(two[1].vector, lanes)
        out.append(Held(tuple(numbers[i] for i in lanes), vector))
    return out


def _needed(held: Sequence[Held], wanted: Sequence[Sequence[int]]) -> list[Held]:
    """The vectors that any of these elements is in."""
    needed = {n for numbers in wanted for n in numbers}
    return [x for x in held if not needed.isdisjoint(x.numbers)]


def side_by_side(x: Word, y: Word) -> Word:
    """The lanes of two vectors, one after the other."""
    return x.shuffled(y, range(x.lanes + y.lanes))
