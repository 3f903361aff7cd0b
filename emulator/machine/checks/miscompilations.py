"""Statements that ptxas is known to compile to something else than PTX says.

Results here are those of PTX; `check=True` warns where such a statement is executed. The page
`miscompilations` of the guide shows the table.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from emulator.isa.instruction import Instruction
from emulator.isa.matrix import MatrixInstruction
from emulator.isa.ordinary.instruction import OrdinaryInstruction
from emulator.ptx.program import Constant, Program, Statement, registers_of
from emulator.targets import Generation

#: the ptxas whose code was looked at
PTXAS = "13.5"


class When(Enum):
    """When a statement of a row goes wrong."""

    GUARD = "the guard is false"
    SHARED = "D and C share a register at different positions"
    PARTED = "lanes come back from different depths of a recursion, and the membermask is constant"
    ALWAYS = "it is executed"


@dataclass(frozen=True)
class Miscompilation:
    """One row: the statements by their facts, the generations, and the effect."""

    #: the statements, as the guide writes them
    form: str
    #: what `facts` gives for them: each name with the values that it may have
    facts: tuple[tuple[str, frozenset[str]], ...]
    when: When
    #: ptxas is known to …
    effect: str
    #: how else to write it
    instead: str
    #: where this was seen; empty: wherever it was looked for
    generations: frozenset[Generation] = frozenset()

    def line(self) -> str:
        """The row of the guide's table."""
        where = ", ".join(sorted(self.generations)) or "all"
        return f"| {self.form} | {where} | {self.when.value} | {self.effect} | {self.instead} |"


def _facts(**given: str) -> tuple[tuple[str, frozenset[str]], ...]:
    return tuple((name, frozenset(words.split())) for name, words in given.items())


_BRANCH = "a branch around it"
_SUBROUTINE = "call a subroutine that changes .b16 and .b32 registers that no statement names"

ROWS = (
    Miscompilation(
        "`vadd4`, `vsub4` with `.u32.u32.u32.add`",
        _facts(rule="video.lanes", family="vadd4 vsub4", operation="add", types="u32.u32.u32"),
        When.GUARD, "ignore the guard", _BRANCH,
    ),
    Miscompilation(
        "`testp`", _facts(rule="comparison.testp"), When.GUARD, "ignore the guard", _BRANCH
    ),
    Miscompilation(
        "`set` with a result of `.f32` from integers, `.f32` or `.f64`",
        _facts(
            rule="comparison.set_", result="f32",
            source="b16 b32 b64 u16 u32 u64 s16 s32 s64 f32 f64",
        ),
        When.GUARD, "overwrite d: it takes its old bits for an integer, which it converts to .f32",
        "a branch around it, or `setp` and `selp`",
    ),
    Miscompilation(
        "`mma` of `.e4m3`, `.e5m2`",
        _facts(family="mma", a_type="e4m3 e5m2", shape="m16n8k16 m16n8k32"),
        When.SHARED, "add C register by register, so that later registers of C are sums already",
        "registers of its own for D",
        frozenset({"hopper", "blackwell"}),
    ),
    Miscompilation(
        "`mma`, `mma.sp` of `.s4`, `.u4`",
        _facts(family="mma mma.sp mma.sp::ordered_metadata", a_type="s4 u4"),
        When.ALWAYS, _SUBROUTINE, "`.s8`, `.u8`", frozenset({"hopper"}),
    ),
    Miscompilation(
        "`mma` of `.b1` with `.xor`", _facts(family="mma", a_type="b1", operation="xor"),
        When.ALWAYS, _SUBROUTINE, "`.and` twice", frozenset({"hopper"}),
    ),
    Miscompilation(
        "`bar.warp.sync`, `shfl`, `vote`, `match`, `redux`, `elect`",
        _facts(family="bar shfl vote match redux elect"),
        When.PARTED, "leave the wait for the other lanes out",
        "a membermask in a register that ptxas cannot compute, or a loop",
    ),
)  # fmt: skip


def facts(instruction: Instruction) -> dict[str, str]:
    """The facts of an instruction that rows are about."""
    if isinstance(instruction, OrdinaryInstruction):
        types = instruction.types or ("",)
        return {
            **instruction.modifiers, "rule": instruction.rule, "family": instruction.family,
            "types": ".".join(types), "result": types[0], "source": types[-1],
        }  # fmt: skip
    if isinstance(instruction, MatrixInstruction):
        return {
            "family": instruction.family, "shape": instruction.shape,
            "a_type": instruction.a_type, "operation": instruction.form.bit_operation,
        }  # fmt: skip
    return {}


@lru_cache(maxsize=4096)
def _rows(instruction: Instruction) -> tuple[Miscompilation, ...]:
    known = facts(instruction)
    return tuple(row for row in ROWS if all(known.get(name) in words for name, words in row.facts))


def known_of(statement: Statement, program: Program) -> tuple[Miscompilation, ...]:
    """The rows that a statement of a program meets, whatever its guard turns out to be."""
    return tuple(row for row in _rows(statement.instruction) if _may(row, statement, program))


def _may(row: Miscompilation, statement: Statement, program: Program) -> bool:
    if row.when is When.PARTED:
        return bool(program.recursive) and isinstance(
            statement.operands.get("membermask"), Constant
        )
    if row.when is When.GUARD:
        return statement.guard is not None
    if row.when is When.SHARED:
        d, c = (list(registers_of(statement.operands[name])) for name in "dc")
        return any(x in c and c.index(x) != i for i, x in enumerate(d))
    return True
