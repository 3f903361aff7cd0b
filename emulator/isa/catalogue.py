"""Every kind of instruction: how each is parsed, and the list of all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from emulator.errors import EmulatorError
from emulator.isa.conversion import FORMS, conversions, parse_conversion
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

#: First words of ordinary instructions, whose tables load when the first of them is parsed.
ORDINARY = """abs activemask add addc and bfe bfi bfind bmsk brev clz cnot copysign cos cvt div dp2a
    dp4a elect ex2 fma fns lg2 lop3 mad mad24 madc match max min mov mul mul24 neg not or popc prmt
    rcp redux rem rsqrt sad selp set setp shf shfl shl shr sin slct sqrt sub subc szext tanh testp
    vote xor"""


def _parse_ordinary(text: str) -> Instruction:
    from emulator.isa.ordinary.instruction import parse_ordinary

    return parse_ordinary(text)


def _parse_cvt(text: str) -> Instruction:
    """A cvt of either table; of none, the refusal of the one that has its types."""
    try:
        return _parse_ordinary(text)
    except EmulatorError as refused:
        try:
            return parse_conversion(text)
        except EmulatorError as other:
            packing = any(
                f".{to}.{source}" in text
                for form in FORMS
                for to in form.to.split()
                for source in form.source.split()
            )
            raise (other if packing else refused) from None


PARSERS.update({name: kind.parse for kind in KINDS for name in kind.names.split()})
PARSERS["cvt"] = _parse_cvt
for _name in ORDINARY.split():
    PARSERS.setdefault(_name, _parse_ordinary)


def instructions(family: str = "") -> Iterator[Instruction]:
    """Every instruction on matrices, with all its types, sizes and modifiers; `family` keeps one
    family. Ordinary instructions are too many to list: see `emulator.isa.ordinary`."""
    for kind in KINDS:
        for instruction in kind.instructions():
            if family in ("", instruction.family):
                yield instruction
