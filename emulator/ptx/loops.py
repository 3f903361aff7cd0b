"""Values that ptxas moves out of loops: those that are the same in every iteration.

It computes them in front of the loop, those of branches inside and under guards as well. Read off
ptxas 13.0 and 13.5 for sm_90a: 60 loops, each with a product in front of it and an addition inside.
A loop whose number of iterations is known only when it starts is unrolled, with the values computed
in several blocks; one with a fixed number, or with none that ptxas can tell, keeps them in the
block in front. A loop that tests before its first iteration has that test between.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import NamedTuple

from emulator.isa.instruction import effects_of
from emulator.ptx.dataflow import Block, Dataflow, Statement, Value


class _Loop(NamedTuple):
    """A loop with one way in and one way back."""

    header: int
    #: the block that leads back to the header
    latch: int
    blocks: frozenset[int]
    #: the block in front, which leads to the header alone
    front: int


def moved_out(
    flow: Dataflow, statements: Sequence[Statement], is_fixed: Callable[[Value], bool]
) -> dict[Value, int]:
    """The values that ptxas computes in front of a loop, with the region that they are in then.

    `is_fixed` says which loads give the same value wherever they stand.
    """
    loops = _loops(flow.blocks, flow.order)
    if not loops:
        return {}
    starts = [block.start for block in flow.blocks]
    # A phi stands at the start of a block where ways meet, which begins a region.
    places = {
        value: bisect_right(starts, value.index) - 1 if value.index >= 0 else value.region
        for value in flow.values
    }
    moved: dict[Value, int] = {}
    for loop in loops:

        def varies(value: Value, loop: _Loop = loop) -> bool:
            return not is_fixed(value) and places.get(value) in loop.blocks

        if not _keeps_front(loop, flow, statements, varies):
            continue
        for value in flow.values:
            is_inside = places[value] in loop.blocks
            if is_inside and _may_move(value) and not any(map(varies, value.roots)):
                places[value] = loop.front
                moved[value] = flow.blocks[loop.front].region
    return moved


def _may_move(value: Value) -> bool:
    effects = effects_of(value.opcode) if value.index >= 0 else frozenset()
    return "pure" in effects and "splits" not in effects and "gathers" not in effects


def _loops(blocks: Sequence[Block], order: Sequence[int]) -> list[_Loop]:
    """The loops that ptxas can move values out of, inner ones first."""
    place = {number: i for i, number in enumerate(order)}
    latches: dict[int, list[int]] = {}
    for number in order:
        for following in blocks[number].successors:
            if place[following] <= place[number]:
                latches.setdefault(following, []).append(number)
    found = []
    for header, (latch, *others) in latches.items():
        inside = {header, latch}
        work = [] if latch == header else [latch]
        while work:
            new = set(blocks[work.pop()].predecessors) - inside
            inside |= new
            work += new
        fronts = [number for number in blocks[header].predecessors if number not in inside]
        entered = [n for n in inside - {header} if not set(blocks[n].predecessors) <= inside]
        if others or entered or len(fronts) != 1 or blocks[fronts[0]].successors != [header]:
            continue
        found.append(_Loop(header, latch, frozenset(inside), fronts[0]))
    return sorted(found, key=lambda loop: len(loop.blocks))


def _keeps_front(
    loop: _Loop, flow: Dataflow, statements: Sequence[Statement], varies: Callable[[Value], bool]
) -> bool:
    """True if the block in front stays one block with what is moved there."""
    last = flow.blocks[loop.latch].stop - 1
    guard = statements[last].guard
    if guard is None:
        return False
    exits = [n for n in loop.blocks if not set(flow.blocks[n].successors) <= loop.blocks]
    test = flow.guards[last].root
    if guard[1] or "uni" in statements[last].opcode or exits != [loop.latch]:
        return True
    if test.head != "setp":
        return True
    operands = test.roots[:2]
    for counter, bound in (operands, operands[::-1]):
        start = _start(counter, loop, varies)
        if start is not None and not varies(bound):
            return start.opcode == bound.opcode == "constant"
    return True


def _start(counter: Value, loop: _Loop, varies: Callable[[Value], bool]) -> Value | None:
    """The value of a counter in front of the loop; None for what is no counter of it."""
    if counter.head not in ("add", "sub") or not varies(counter):
        return None
    if not any(root.opcode == "constant" for root in counter.roots[:2]):
        return None
    for phi in counter.roots[:2]:
        if phi.opcode == "phi" and phi.region == loop.header and counter in phi.roots:
            return next((root for root in phi.roots if root is not counter), None)
    return None
