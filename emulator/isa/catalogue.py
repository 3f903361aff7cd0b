"""Every instruction on matrices in registers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from emulator.isa.instruction import Instruction
from emulator.isa.kinds import KINDS

if TYPE_CHECKING:
    from emulator.isa.tcgen05 import Tcgen05


def instructions(family: str = "") -> Iterator[Instruction]:
    """Every instruction, with all its types, sizes and modifiers; `family` keeps one
    family. Ordinary instructions and those on tensor memory are left out: see
    `emulator.isa.ordinary` and `tensor_instructions`."""
    for kind in KINDS:
        for instruction in kind.load().expand() if kind.listed else ():
            if family in ("", instruction.family):
                yield instruction


def tensor_instructions() -> Iterator[Tcgen05]:
    """Every tcgen05, without the collectors, which change no values."""
    from emulator.isa.tcgen05 import expand

    for instruction in expand():
        if not any(word.startswith("collector") for word in instruction.words):
            yield instruction
