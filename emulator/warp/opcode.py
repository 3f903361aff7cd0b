"""An instruction as callers name it: parsed, or by its opcode."""

from __future__ import annotations

from functools import lru_cache

from emulator.errors import OperandError
from emulator.isa.instruction import Instruction

# So that a loop of small calls does not pay for reading the same opcode again and again.
_parsed = lru_cache(maxsize=256)(Instruction.parse)


def as_instruction(given: object, what: str = "an Instruction") -> Instruction:
    """`given`, an Instruction or its opcode as text; raises OperandError for anything else.

    `what` says in that message what is needed.
    """
    if isinstance(given, Instruction):
        return given
    if isinstance(given, str):
        return _parsed(given)
    raise OperandError(f"{what}, or its opcode, is needed; got {type(given).__name__}")
