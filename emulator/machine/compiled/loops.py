"""Loops whose statements all have LLVM instructions, and none of which waits for anybody."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from emulator.machine.compiled.blocks import constants, with_constants
from emulator.machine.compiled.translation import can_translate
from emulator.machine.vector import control
from emulator.machine.vector.statements import POLLING
from emulator.ptx.program import Function, Program, Statement
from emulator.targets import Target


@dataclass(frozen=True)
class Part:
    """Statements of a loop that follow each other."""

    statements: tuple[Statement, ...]
    #: the branch that they end with; None: a label follows
    branch: Statement | None
    #: where lanes go that the branch takes, and the others
    target: int
    following: int

    @property
    def pc(self) -> int:
        return (*self.statements, self.branch)[0].pc  # type: ignore[union-attr]

    @property
    def count(self) -> int:
        return len(self.statements) + (self.branch is not None)

    @property
    def polls(self) -> bool:
        """Whether it looks at memory that others may change."""
        return any(x.name in POLLING for x in self.statements)

    @property
    def goes_back(self) -> bool:
        return min(self.target, self.following) <= self.pc


def loops_of(program: Program, function: Function, target: Target) -> list[tuple[Part, ...]]:
    """The loops of a function, the statements of each in ascending order. Loops within loops are
    one, and so are those that branches lead between."""
    parts = {part.pc: part for part in _parts(program, function, target)}
    edges = {
        pc: [x for x in {part.target, part.following} if x in parts] for pc, part in parts.items()
    }
    return [tuple(parts[pc] for pc in pcs) for pcs in _cycles(edges)]


def _parts(program: Program, function: Function, target: Target) -> list[Part]:
    statements = program.statements[function.first : function.end]
    held = constants(statements)
    out: list[Part] = []
    body: list[Statement] = []
    for statement in statements:
        following = statement.pc + 1
        if statement.name not in control.ENDS:
            body.append(statement)
            if following not in program.leaders:
                continue
            branch, goes = None, following
        elif statement.name == "bra":
            branch, goes = statement, statement.targets[0]
            following = goes if statement.guard is None else following
        else:
            body = []
            continue
        known = [with_constants(x, held) for x in body]
        if all(can_translate(x, function, target) for x in known):
            out.append(Part(tuple(known), branch, goes, following))
        body = []
    return out


def _cycles(edges: Mapping[int, Sequence[int]]) -> list[list[int]]:
    """The places from which a way leads back to them, those with ways to each other together."""
    number = {pc: i for i, pc in enumerate(edges)}
    following = [sum(1 << number[x] for x in edges[pc]) for pc in edges]
    reached, changed = list(following), True
    while changed:
        changed = False
        for i in reversed(range(len(following))):
            more = reached[i]
            for j in _bits(following[i]):
                more |= reached[j]
            changed |= more != reached[i]
            reached[i] = more
    found: dict[int, list[int]] = {}
    for pc, i in number.items():
        if reached[i] >> i & 1:
            together = sum(1 << j for j in _bits(reached[i]) if reached[j] >> i & 1)
            found.setdefault(together, []).append(pc)
    return list(found.values())


def _bits(word: int) -> list[int]:
    out = []
    while word:
        out.append((word & -word).bit_length() - 1)
        word &= word - 1
    return out
