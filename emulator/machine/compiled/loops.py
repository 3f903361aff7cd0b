"""Loops, and whole functions, whose statements all have LLVM instructions, and wait for nobody but
threads of the block at a barrier for all of them; what else has to wait is left to steps when it
comes to that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from emulator.machine.compiled import collective, mbarriers, warpgroups
from emulator.machine.compiled.atomics import come_apart
from emulator.machine.compiled.blocks import simplified
from emulator.machine.compiled.translation import can_translate, stay_apart
from emulator.machine.shared.products import is_wgmma
from emulator.machine.vector import control
from emulator.ptx.program import Constant, Function, Program, Statement
from emulator.targets import Target

#: statements of a function that is short, whatever its loops are
_SHORT = 1000
#: statements that write no memory of other blocks and are a part of their own, so that blocks
#: execute them at the same time
_APART = 32


@dataclass(frozen=True)
class Part:
    """Statements of a loop, or of a whole function, that follow each other."""

    #: a barrier of all threads of a block, which stands alone; None: it is none
    barrier: Statement | None
    statements: tuple[Statement, ...]
    #: the branch that they end with; None: a label follows
    branch: Statement | None
    #: where lanes go that the branch takes, and the others
    target: int
    following: int

    @property
    def pc(self) -> int:
        first = next(x for x in (self.barrier, *self.statements, self.branch) if x is not None)
        return first.pc

    @property
    def count(self) -> int:
        """Statements as they are counted: whoever waits at a barrier does not count it."""
        return len(self.statements) + (self.branch is not None)

    @property
    def polls(self) -> bool:
        """True if it looks at memory that others may change."""
        return any("polls" in x.effects for x in self.statements)

    @property
    def may_stay(self) -> bool:
        """True if its only statement may need a step, which is known when it is executed."""
        return len(self.statements) == 1 and stands_alone(self.statements[0])

    @property
    def goes_back(self) -> bool:
        return min(self.target, self.following) <= self.pc


def loops_of(program: Program, function: Function, target: Target) -> list[tuple[Part, ...]]:
    """The loops of a function, the statements of each in ascending order; or all of a function at
    once, where all of it fits and its loops are not much less. Loops within loops are one, and so
    are those that branches lead between."""
    parts = _parts(program, function)
    out = []
    # What is in no loop at all need not be translated to know that.
    for cycle in _in_cycles(parts):
        known = [_simplified(part, program, function) for part in cycle]
        fit = [x for x in known if _fits(x, function, target)]
        for loop in _in_cycles(fit):
            inner = _around_products(loop)
            apart = {part.pc for loop in inner for part in loop}
            out += [*inner, *_in_cycles([x for x in loop if x.pc not in apart])]
    if _count(parts) <= max(_SHORT, 2 * sum(map(_count, out))) or not out:
        whole = [_simplified(part, program, function) for part in parts]
        if whole and all(_fits(x, function, target, whole=True) for x in whole):
            return [tuple(whole)]
    return [loop for loop in out if not _only_waits(loop)]


def _count(parts: Sequence[Part]) -> int:
    return sum(len(part.statements) for part in parts)


def _simplified(part: Part, program: Program, function: Function) -> Part:
    return replace(part, statements=tuple(simplified(part.statements, program, function)))


def _fits(part: Part, function: Function, target: Target, *, whole: bool = False) -> bool:
    """True if all statements of a part have LLVM instructions. In a `whole` function they must not
    wait either: waits have loops of their own."""
    return all(
        not (whole and stands_alone(x) and not collective.gathers(x))
        and _has_code(x, function, target)
        for x in part.statements
    )


def _around_products(parts: Sequence[Part]) -> list[tuple[Part, ...]]:
    """The innermost loops of some that multiply for warpgroups: warpgroups go round those by
    themselves, where what is around them may have all warps take turns."""
    products = [x.pc for x in parts if any(map(is_wgmma, x.statements))]
    ways = [(min(x.target, x.following), x.pc) for x in parts if x.goes_back]
    ways = [(a, b) for a, b in ways if any(a <= pc <= b for pc in products)]
    out: list[tuple[Part, ...]] = []
    for first, last in sorted(ways, key=lambda way: way[1] - way[0]):
        if not any(first <= x.pc <= last for loop in out for x in loop):
            found = _in_cycles([x for x in parts if first <= x.pc <= last])
            out += [x for x in found if {part.pc for part in x} & set(products)]
    return out


def _only_waits(parts: Sequence[Part]) -> bool:
    """True if a loop is nothing but a wait, which is one step where it is over at once."""
    statements = [x for part in parts for x in part.statements]
    return bool(statements) and all(map(mbarriers.waits, statements))


def stands_alone(statement: Statement) -> bool:
    """True for a statement that belongs to a part of a loop, never to a run of statements."""
    return mbarriers.waits(statement) or is_wgmma(statement) or collective.gathers(statement)


def _has_code(statement: Statement, function: Function, target: Target) -> bool:
    if is_wgmma(statement):
        return warpgroups.fits(statement, function, target)
    if mbarriers.waits(statement) or collective.gathers(statement):
        return True
    return can_translate(statement, function, target)


def _parts(program: Program, function: Function) -> list[Part]:
    out: list[Part] = []
    body: list[Statement] = []

    def ends(branch: Statement | None, taken: int, following: int) -> None:
        out.append(Part(None, tuple(body), branch, taken, following))
        body.clear()

    cuts = _cuts(program, function)
    for statement in program.statements[function.first : function.end]:
        following = statement.pc + 1
        if body and statement.pc in cuts:
            ends(None, statement.pc, statement.pc)
        if "target" in statement.operands:
            goes = statement.targets[0]
            ends(statement, goes, goes if statement.guard is None else following)
        elif statement.name in control.ENDS:
            if body:
                ends(None, statement.pc, statement.pc)
        elif threads_of_barrier(statement) is not None:
            if body:
                ends(None, statement.pc, statement.pc)
            out.append(Part(statement, (), None, following, following))
        elif stands_alone(statement):
            if body:
                ends(None, statement.pc, statement.pc)
            body.append(statement)
            ends(None, following, following)
        else:
            if come_apart(body, statement):
                ends(None, statement.pc, statement.pc)
            body.append(statement)
            if following in program.leaders:
                ends(None, following, following)
    return out


def _cuts(program: Program, function: Function) -> set[int]:
    """Where many statements that write no memory of other blocks start or end."""
    out: set[int] = set()
    first = function.first
    for statement in program.statements[function.first : function.end]:
        if statement.pc in program.leaders:
            first = statement.pc
        if not stay_apart([statement]):
            first = statement.pc + 1
        elif statement.pc - first == _APART - 1:
            out.add(first)
        following = program.statements[statement.pc + 1 : function.end][:1]
        if statement.pc - first >= _APART - 1 and not stay_apart(following):
            out.add(statement.pc + 1)
    return out


def threads_of_barrier(statement: Statement) -> int | None:
    """For how many threads a barrier is, 0: for all of the block; None: it is none where threads
    only wait, or that is not known before it is executed."""
    if "barrier" not in statement.effects or statement.guard is not None:
        return None
    words, given = str(statement.instruction).split("."), statement.operands.get("b")
    if "sync" not in words or {"warp", "cluster"} & set(words):
        return None
    if not isinstance(statement.operands["a"], Constant):
        return None
    if given is None:
        return 0
    return given.word if isinstance(given, Constant) else None


def _in_cycles(parts: Sequence[Part]) -> list[tuple[Part, ...]]:
    """Those of some parts that lead back to themselves."""
    known = {part.pc: part for part in parts}
    edges = {
        pc: [x for x in {part.target, part.following} if x in known] for pc, part in known.items()
    }
    return [tuple(known[pc] for pc in pcs) for pcs in _cycles(edges)]


def _cycles(edges: Mapping[int, Sequence[int]]) -> list[list[int]]:
    """The places from which a way leads back to them, those with ways to each other together:
    Tarjan's strongly connected components, without the places that are alone."""
    number: dict[int, int] = {}
    lowest: dict[int, int] = {}
    group: dict[int, int] = {}
    open_: list[int] = []
    for start in edges:
        ways = [] if start in number else [(start, iter(edges[start]))]
        while ways:
            pc, left = ways[-1]
            if pc not in number:
                number[pc] = lowest[pc] = len(number)
                open_.append(pc)
            for other in left:
                if other not in number:
                    ways.append((other, iter(edges[other])))
                    break
                if other not in group:
                    lowest[pc] = min(lowest[pc], number[other])
            else:
                ways.pop()
                if ways:
                    before = ways[-1][0]
                    lowest[before] = min(lowest[before], lowest[pc])
                if lowest[pc] == number[pc]:
                    at = open_.index(pc)
                    group |= dict.fromkeys(open_[at:], pc)
                    del open_[at:]
    found: dict[int, list[int]] = {}
    for pc in edges:
        found.setdefault(group[pc], []).append(pc)
    return [pcs for pcs in found.values() if len(pcs) > 1 or pcs[0] in edges[pcs[0]]]
