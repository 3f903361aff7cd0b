"""Every instruction that there is."""

from __future__ import annotations

from collections.abc import Iterator

from emulator.isa.instruction import Instruction
from emulator.isa.kinds import KINDS, ORDINARY


def instructions(family: str = "") -> Iterator[Instruction]:
    """Every instruction, with all its types, sizes and modifiers; `family` keeps one
    family. Ordinary instructions are left out: see `emulator.isa.ordinary`."""
    for kind in KINDS:
        for instruction in kind.load().expand() if kind.names != ORDINARY else ():
            if family in ("", instruction.family):
                yield instruction
