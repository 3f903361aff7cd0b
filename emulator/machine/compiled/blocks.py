"""Blocks of statements whose runs that have LLVM instructions are segments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from emulator.machine.compiled.atomics import come_apart
from emulator.machine.compiled.segment import Segment
from emulator.machine.compiled.translation import can_translate
from emulator.machine.shared.products import is_wgmma
from emulator.machine.vector.compute import Step
from emulator.machine.vector.wave import Block
from emulator.ptx.program import (
    Constant,
    Function,
    Program,
    Register,
    Statement,
    Vector,
    registers_of,
)
from emulator.targets import Target

#: fewer statements are faster as steps
_SHORTEST = 3


def with_segments(
    block: Block, program: Program, function: Function, target: Target, *, at_once: bool
) -> Block:
    """The same block; `at_once` compiles its segments before they first run."""
    steps: list[Step] = []
    counts: list[int] = []
    known = simplified(block.statements, program, function)
    at = 0
    while at < len(block.steps):
        end = at
        while end < len(block.steps) and can_translate(known[end], function, target):
            if come_apart(known[at:end], known[end]):
                break
            end += 1
        if end - at < _SHORTEST:
            end = at + 1
            steps.append(block.steps[at])
        else:
            statements = known[at:end]
            live = program.liveness.at(statements[-1].pc + 1) | always_live(program, function)
            steps.append(Segment(statements, block.steps[at:end], function, live, target, at_once))
        counts.append(end - at)
        at = end
    return Block(block.statements, tuple(steps), block.end, block.polls, tuple(counts))


@lru_cache(maxsize=4)
def always_live(program: Program, function: Function) -> int:
    """Registers, as bits, that somebody may read behind any statement."""
    live = 0
    if function.carry is not None:
        live |= 1 << function.carry  # no operand names it
    # A wgmma may read registers after the last statement that names them.
    for statement in program.statements[function.first : function.end]:
        if is_wgmma(statement):
            for bound in statement.operands.values():
                live |= sum(1 << i for i in set(registers_of(bound)))
    return live


def simplified(
    statements: Sequence[Statement], program: Program, function: Function
) -> list[Statement]:
    """Statements without results that nobody reads, with constants where registers hold them."""
    held = _constants(program, function)
    always = always_live(program, function)
    out = []
    for statement in statements:
        known, d = _with_constants(statement, held), statement.operands.get("d")
        live = program.liveness.at(statement.pc + 1) | always
        fetches = {"exchanges", "reads"} <= statement.effects
        if fetches and isinstance(d, Register) and not live >> d.index & 1:
            known = replace(known, operands={x: y for x, y in known.operands.items() if x != "d"})
        out.append(known)
    return out


# --- registers that hold constants ----------------------------------------------------------------


@lru_cache(maxsize=4)
def _constants(program: Program, function: Function) -> dict[int, Constant]:
    """Registers that one statement of a function writes, a mov of a constant."""
    statements = program.statements[function.first : function.end]
    writes: Counter[int] = Counter()
    out: dict[int, Constant] = {}
    for statement in statements:
        for part in statement.expansion or (statement,):
            for bound in part.bound("written"):
                # The base of an address is read; counted, it is only no constant.
                writes.update(registers_of(bound))
        if statement.call is not None:
            writes.update(statement.call.results)
        d, a = statement.operands.get("d"), statement.operands.get("a")
        plain = statement.instruction.is_move and statement.guard is None
        plain = plain and not statement.expansion
        if plain and isinstance(d, Register) and isinstance(a, Constant):
            out[d.index] = a
    return {index: word for index, word in out.items() if writes[index] == 1}


def _with_constants(statement: Statement, held: Mapping[int, Constant]) -> Statement:
    """A statement that names constants in place of registers which hold them."""
    operands = dict(statement.operands)
    for operand in statement.signature.operands if held else ():
        bound = operands.get(operand.name)
        if operand.use != "read" or bound is None:
            continue
        if isinstance(bound, Register) and bound.index in held:
            operands[operand.name] = held[bound.index]
        elif isinstance(bound, Vector) and any(x in held for x in registers_of(bound)):
            items = (held.get(x.index, x) if isinstance(x, Register) else x for x in bound.items)
            operands[operand.name] = Vector(tuple(items))
    expansion = tuple(_with_constants(part, held) for part in statement.expansion)
    if expansion == statement.expansion and operands == statement.operands:
        return statement
    return replace(statement, operands=operands, expansion=expansion)
