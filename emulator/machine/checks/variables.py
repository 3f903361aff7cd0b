"""The variable of shared memory that an access means: an access that leaves it for its neighbour is
wrong, though nothing traps.

An address belongs to a variable if all that was ever put into its register was computed from the
address of that variable alone; where several meet, nothing is said.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from emulator.ptx.program import (
    Address,
    Bound,
    Function,
    Program,
    Register,
    SharedAddress,
    Statement,
    items_of,
    registers_of,
)

#: more than one variable, or none that is known
_UNKNOWN = -1


class Extent(NamedTuple):
    """Bytes ``first … last - 1`` of shared memory, those of a variable and what pads them."""

    first: int
    last: int


def extents(program: Program, starts: Iterable[int], end: int) -> dict[int, Extent]:
    """For each access to shared memory, by its pc, the variable that it means, where that is known.

    `starts` are where variables start, `end` is where shared memory ends.
    """
    known = sorted(set(starts))
    if len(known) < 2:
        return {}
    out: dict[int, Extent] = {}
    for function in program.functions.values():
        held = _sources(program, function, known)
        for pc in range(function.first, function.end):
            for bound in program.statements[pc].operands.values():
                if isinstance(bound, Address):
                    start = _of(bound.base, held, known)
                    if start is not None and start >= 0:
                        at = known.index(start)
                        last = known[at + 1] if at + 1 < len(known) else end
                        out[pc] = Extent(start, last)
    return out


def _of(bound: Bound | None, held: dict[int, int], known: Sequence[int]) -> int | None:
    """Start of the variable that an operand points into; None for other operands."""
    if isinstance(bound, SharedAddress):
        at = bisect_right(known, bound.offset) - 1
        return known[at] if at >= 0 else _UNKNOWN
    if isinstance(bound, Register):
        return held.get(bound.index)
    return None


def _sources(program: Program, function: Function, known: Sequence[int]) -> dict[int, int]:
    """For each register the variable that its values point into."""
    held: dict[int, int] = {}
    changed = True
    while changed:
        changed = False
        for pc in range(function.first, function.end):
            statement = program.statements[pc]
            found = _result(statement, held, known)
            if found is None:
                continue
            for bound in statement.bound("written"):
                for index in registers_of(bound):
                    if function.registers[index].type == "pred":
                        continue
                    before = held.get(index)
                    after = found if before in (None, found) else _UNKNOWN
                    if after != before:
                        held[index], changed = after, True
    return held


def _result(statement: Statement, held: dict[int, int], known: Sequence[int]) -> int | None:
    if "reads" in statement.effects:
        return None
    found = {
        start
        for bound in statement.bound("read")
        for item in items_of(bound)
        if (start := _of(item, held, known)) is not None
    }
    if not found:
        return None
    return found.pop() if len(found) == 1 and "points" in statement.effects else _UNKNOWN
