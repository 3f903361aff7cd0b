"""Every kind of instruction: how each is parsed, and the list of all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from emulator.isa.conversion import conversions, parse_conversion
from emulator.isa.instruction import PARSERS, Instruction
from emulator.isa.movement import movements, parse_movement
from emulator.isa.search import matrix_instructions, parse_matrix
from emulator.isa.wmma_search import parse_wmma, wmma_instructions


class Kind(NamedTuple):
    """One kind: the first words of its opcodes, its parser, and all its instructions."""

    names: str
    parse: Callable[[str], Instruction]
    instructions: Callable[[], Iterable[Instruction]]


KINDS = (
    Kind("mma wgmma", parse_matrix, matrix_instructions),
    Kind("ldmatrix stmatrix movmatrix", parse_movement, movements),
    Kind("wmma", parse_wmma, wmma_instructions),
    Kind("cvt", parse_conversion, conversions),
)

PARSERS.update({name: kind.parse for kind in KINDS for name in kind.names.split()})


def instructions(family: str = "") -> Iterator[Instruction]:
    """Every instruction, with all its types, sizes and modifiers; `family` keeps one family."""
    for kind in KINDS:
        for instruction in kind.instructions():
            if family in ("", instruction.family):
                yield instruction
