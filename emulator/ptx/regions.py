"""Places where lanes of a warp part and meet again, as ptxas writes them into machine code.

ptxas gives every divergent branch a convergence barrier: a register of the warp that holds the
lanes that shall meet (BSSY sets it to the lanes that are there), and a place where they wait for
each other (BSYNC), the first that all ways from the branch lead to. A function that may call itself
saves the barriers of regions with calls in them when it starts (BMOV.32.CLEAR), each lane for
itself, and gives them back before it returns (BMOV.32). Branches that lead to one place have one
barrier. Measured: the machine code that ptxas 13.0 makes of recursive functions for sm_90a.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from emulator.ptx.program import Function, Program, Statement, successors


@dataclass(eq=False)
class Regions:
    """Actions on barriers at the pcs of a program; a barrier is a number."""

    program: Program
    #: pc of the last statements in front of a region -> the barriers that lanes are added to there
    begins: dict[int, list[int]] = field(default_factory=dict)
    #: pc behind a region -> the barrier whose lanes meet there
    meets: dict[int, int] = field(default_factory=dict)
    #: pc of the first statement of a function -> the barriers that it saves
    saves: dict[int, list[int]] = field(default_factory=dict)

    def last(self, pc: int) -> Statement:
        """The last statement that lanes at `pc` execute before they stop."""
        statements = self.program.statements
        while "jumps" not in statements[pc].effects and pc + 1 not in self.program.leaders:
            pc += 1
        return statements[pc]


def regions_of(program: Program, kernel: Function) -> Regions | None:
    """The regions of a kernel and all that it calls; None where nobody can tell who meets whom.

    Lanes meet at the first place that they all come to, unless barriers are saved and given back:
    only a function that may call itself does so. And only activemask shows it.
    """
    reached = program.reached({kernel.name})
    recursive = reached & program.recursive
    functions = [program.functions[name] for name in sorted(reached)]
    shown = any(
        "active" in statement.effects
        for function in functions
        for statement in program.statements[function.first : function.end]
    )
    if not recursive or not shown:
        return None
    return _Builder(program, recursive).build(functions)


@dataclass(frozen=True)
class _Region:
    """Blocks from the end of `first` on, up to the pc where their lanes meet."""

    first: int
    meets: int
    blocks: frozenset[int]


@dataclass(eq=False)
class _Builder:
    program: Program
    recursive: set[str]

    def build(self, functions: list[Function]) -> Regions:
        out, own = Regions(self.program), -1
        found = {function.name: list(_regions(self.program, function)) for function in functions}
        for function in functions:
            for region in found[function.name]:
                number = self._number(region, found[function.name], found)
                if number is None:
                    # No lane leaves such a region, or comes to it again, before all have met.
                    number, own = own, own - 1
                elif function.name in self.recursive:
                    held = out.saves.setdefault(function.first, [])
                    if number not in held:
                        held.append(number)
                out.begins.setdefault(self._begin(region), []).append(number)
                out.meets[region.meets] = number
        return out

    def _number(
        self, region: _Region, others: list[_Region], found: dict[str, list[_Region]]
    ) -> int | None:
        """The barrier of a region with calls of functions that save it: inner ones come first."""
        called = self._called(region)
        if _is_indirect(self.program.statements[self._last(region)]):
            return 0
        if not self.program.reached(called) & self.recursive:
            return None
        inner = [
            self._number(other, others, found)
            for other in others
            if other.meets in region.blocks and other.blocks < region.blocks
        ]
        for name in called - self.recursive:
            inner += [self._number(other, found[name], found) for other in found[name]]
        return 1 + max((n for n in inner if n is not None), default=-1)

    def _last(self, region: _Region) -> int:
        """The last statement in front of a region."""
        function = self.program.function_at(region.first)
        return _blocks(self.program, function)[region.first]

    def _begin(self, region: _Region) -> int:
        """The first statement in front of a region that no call can stand before."""
        pc, statements = self._last(region), self.program.statements
        while pc > region.first and statements[pc - 1].call is None:
            pc -= 1
        return pc

    def _called(self, region: _Region) -> set[str]:
        statements = self.program.statements
        ends = _blocks(self.program, self.program.function_at(region.first))
        return self.program.called(
            statement
            for block in region.blocks - {region.first}
            for statement in statements[block : ends[block] + 1]
        )


# --- blocks of a function -------------------------------------------------------------------------


def _is_indirect(statement: Statement) -> bool:
    """True if lanes may call different functions there."""
    return statement.call is not None and statement.call.register is not None


def _blocks(program: Program, function: Function) -> dict[int, int]:
    """The basic blocks of a function: pcs of the first statement and of the last."""
    blocks, first = {}, function.first
    for pc in range(function.first, function.end):
        statement = program.statements[pc]
        parts = "ends" in statement.effects or _is_indirect(statement)
        if parts or pc + 1 == function.end or pc + 1 in program.leaders:
            blocks[first] = pc
            first = pc + 1
    return blocks


def _regions(program: Program, function: Function) -> Iterator[_Region]:
    """The regions of a function, one for each place where lanes meet."""
    ends = _blocks(program, function)
    following = {
        first: sorted({pc for pc in successors(program.statements[last]) if pc in ends})
        for first, last in ends.items()
    }
    leading: dict[int, list[int]] = {first: [] for first in ends}
    for first, pcs in following.items():
        for pc in pcs:
            leading[pc].append(first)
    exits = [first for first, pcs in following.items() if not pcs]
    before = _dominators([function.first], following, leading)
    behind = _dominators(exits, leading, following)
    branches: dict[int, list[int]] = {}
    for first, pcs in following.items():
        statement = program.statements[ends[first]]
        if _is_indirect(statement) and pcs:
            yield _Region(first, pcs[-1], frozenset({first}))
        if len(pcs) < 2 or not statement.targets or first not in before:
            continue
        if "uni" in str(statement.instruction).split("."):
            continue
        meets = _nearest(behind, behind.get(first, frozenset()) - {first})
        if meets is not None:
            branches.setdefault(meets, []).append(first)
    for meets, divided in branches.items():
        start: int | None = _nearest(before, frozenset.intersection(*(before[b] for b in divided)))
        while start is not None and start in _from(following, following[start], meets):
            # Lanes that go round are still in the region: it begins outside of the loop.
            start = _nearest(before, before[start] - {start})
        if start is not None:
            inside = _from(following, following[start], meets)
            yield _Region(start, meets, frozenset({start} | inside))


def _dominators(
    roots: list[int], following: dict[int, list[int]], leading: dict[int, list[int]]
) -> dict[int, frozenset[int]]:
    """For each block that roots lead to, those that every way from a root to it goes through."""
    reached = _from(following, roots, None)
    found = {block: frozenset({block} if block in roots else reached) for block in reached}
    changed = True
    while changed:
        changed = False
        for block in reached - set(roots):
            ways = [found[other] for other in leading[block] if other in reached]
            now = frozenset.intersection(*ways) | {block}
            if now != found[block]:
                found[block], changed = now, True
    return found


def _nearest(dominators: dict[int, frozenset[int]], blocks: frozenset[int]) -> int | None:
    """Of blocks that dominate each other the one next to what they dominate."""
    return max(blocks, key=lambda block: len(dominators[block]), default=None)


def _from(following: dict[int, list[int]], start: Iterable[int], but: int | None) -> set[int]:
    """The blocks that one comes to from some, these too, without one of them."""
    found = {block for block in start if block != but}
    todo = list(found)
    while todo:
        for pc in following[todo.pop()]:
            if pc != but and pc not in found:
                found.add(pc)
                todo.append(pc)
    return found
