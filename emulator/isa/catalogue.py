"""Every instruction on matrices in registers."""

from __future__ import annotations

from collections.abc import Iterator

from emulator.isa.instruction import Instruction
from emulator.isa.kinds import KINDS


def instructions(family: str = "") -> Iterator[Instruction]:
    """Every instruction, with all its types, sizes and modifiers; `family` keeps one
    family. Ordinary instructions and those on tensor memory are left out: see
    `emulator.isa.ordinary` and `emulator.isa.tcgen05`."""
    for kind in KINDS:
        for instruction in kind.load().expand() if kind.listed else ():
            if family in ("", instruction.family):
                yield instruction
