"""Blocks of statements whose runs that have LLVM instructions are segments."""

from __future__ import annotations

from emulator.machine.compiled.segment import Segment
from emulator.machine.compiled.translation import can_translate
from emulator.machine.vector.compute import Step
from emulator.machine.vector.wave import Block
from emulator.ptx.program import Function, Program, registers_of
from emulator.targets import Target

#: fewer statements are faster as steps
_SHORTEST = 3


def with_segments(
    block: Block, program: Program, function: Function, target: Target, *, at_once: bool
) -> Block:
    """The same block; `at_once` compiles its segments before they first run."""
    steps: list[Step] = []
    counts: list[int] = []
    at = 0
    while at < len(block.steps):
        end = at
        while end < len(block.steps) and can_translate(block.statements[end], function, target):
            end += 1
        if end - at < _SHORTEST:
            end = at + 1
            steps.append(block.steps[at])
        else:
            statements = block.statements[at:end]
            live = _live_after(statements[-1].pc, program, function)
            steps.append(Segment(statements, block.steps[at:end], function, live, target, at_once))
        counts.append(end - at)
        at = end
    return Block(block.statements, tuple(steps), block.end, block.polls, tuple(counts))


def _live_after(pc: int, program: Program, function: Function) -> int:
    """Registers, as bits, that somebody may read behind a statement."""
    live = program.liveness.at(pc + 1)
    if function.carry is not None:
        live |= 1 << function.carry  # no operand names it
    # A wgmma may read registers after the last statement that names them.
    for statement in program.statements[function.first : function.end]:
        if statement.name == "wgmma":
            for bound in statement.operands.values():
                live |= sum(1 << i for i in set(registers_of(bound)))
    return live
