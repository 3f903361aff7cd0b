"""Statements that ptxas is known to compile to something else than PTX says.

Results here are those of PTX; `check=True` warns where such a statement is executed. The page
`miscompilations` of the guide shows the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from emulator.isa.conversion import Conversion
from emulator.isa.instruction import Instruction
from emulator.isa.matrix import MatrixInstruction
from emulator.isa.ordinary.instruction import OrdinaryInstruction
from emulator.ptx.program import Constant, Function, Program, Statement, Vector, registers_of
from emulator.targets import Generation

#: the ptxas whose code was looked at
PTXAS = "13.5"


class When(Enum):
    """Condition under which a statement of a row goes wrong."""

    GUARD = "the guard is false"
    SHARED = "D and C share a register at different positions"
    PARTED = "lanes come back from different depths of a recursion, and the membermask is constant"
    ALWAYS = "it is executed"
    OVERWRITES = "a guarded statement changes a source before the pair is packed"


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
    #: another way to write it
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
        When.GUARD,
        "overwrite d: it takes its old bits for an integer, of which it converts the magnitude to "
        ".f32",
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
    Miscompilation(
        "`cvt` to `.e4m3x2`, `.e5m2x2`", (), When.OVERWRITES,
        "convert again where the pair is packed, behind a guarded statement that has changed the "
        "source", "a register of its own for what the guarded statement computes",
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


def known_of(
    statement: Statement, function: Function, program: Program
) -> tuple[Miscompilation, ...]:
    """The rows that a statement of a program meets, whatever its guard turns out to be."""
    return tuple(
        row for row in _rows(statement.instruction) if _may(row, statement, function, program)
    )


def _may(row: Miscompilation, statement: Statement, function: Function, program: Program) -> bool:
    if row.when is When.PARTED:
        return bool(program.recursive) and isinstance(
            statement.operands.get("membermask"), Constant
        )
    if row.when is When.OVERWRITES:
        return _overwrites(statement, program.statements[function.first : function.end])
    if row.when is When.GUARD:
        return statement.guard is not None
    if row.when is When.SHARED:
        d, c = (list(registers_of(statement.operands[name])) for name in "dc")
        return any(x in c and c.index(x) != i for i, x in enumerate(d))
    return True


# --- conversions that are done again --------------------------------------------------------------

_PAIRS = ("e4m3x2", "e5m2x2")
#: statements that ptxas turns into a selection or a branch where they are guarded
_UNGUARDED = ("mov", "neg", "abs", "selp")


def _overwrites(statement: Statement, body: Sequence[Statement]) -> bool:
    """True if a guarded statement changes the source of a pair that is packed behind it."""
    if statement.guard is None or "pure" not in statement.effects or statement.name in _UNGUARDED:
        return False
    place, changed = body.index(statement), set(_registers(statement, "written"))
    for start in range(place - 1, -1, -1):
        earlier = body[start]
        of_pair = isinstance(earlier.instruction, Conversion) and earlier.instruction.to in _PAIRS
        if of_pair and changed & set(_registers(earlier, "read")):
            if _is_packed_behind(set(_registers(earlier, "written")), body[start + 1 :], statement):
                return True
        elif earlier.guard is None:
            changed -= set(_registers(earlier, "written"))
        if not changed:
            break
    return False


def _is_packed_behind(pair: set[int], body: Sequence[Statement], change: Statement) -> bool:
    """True if a pair comes first in a pack behind `change`, or packed arithmetic takes it there."""
    packs, behind = set[int](), False
    for statement in body:
        read = set(_registers(statement, "read"))
        if behind and (packs & read) and str(statement.instruction).endswith("f16x2"):
            return True
        stores = "writes" in statement.effects and "exchanges" not in statement.effects
        if (stores or statement.instruction.is_move) and pair & _firsts(statement):
            if behind:
                return True
            packs |= set(_registers(statement, "written"))
        elif statement.guard is None:
            packs -= set(_registers(statement, "written"))
            pair = pair - set(_registers(statement, "written"))
        behind = behind or statement is change
        if not pair | packs:
            break
    return False


def _registers(statement: Statement, use: str) -> list[int]:
    return [index for bound in statement.bound(use) for index in registers_of(bound)]


def _firsts(statement: Statement) -> set[int]:
    """The registers that come first of two in braces."""
    return {
        index
        for vector in statement.bound("read")
        if isinstance(vector, Vector)
        for bound in vector.items[::2]
        for index in registers_of(bound)
    }
