"""Every kind of instruction: how each is parsed, and the list of all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from emulator.errors import EmulatorError, ParseError, hint, quoted
from emulator.isa.conversion import FORMS, VOCABULARY, conversions, parse_conversion
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
ORDINARY = """abs activemask add addc alloca and applypriority atom bar barrier bfe bfi bfind
    bmsk bra brev brkpt brx call clusterlaunchcontrol clz cnot copysign cos cp createpolicy
    cvt cvta discard div dp2a dp4a elect ex2 exit fence fma fns getctarank griddepcontrol
    isspacep ld ldu lg2 lop3 mad mad24 madc mapa match max mbarrier membar min mov mul mul24
    multimem nanosleep neg not or pmevent popc prefetch prefetchu prmt rcp red redux rem ret
    rsqrt sad selp set setmaxnreg setp shf shfl shl shr sin slct sqrt st stackrestore
    stacksave sub subc szext tanh tensormap testp trap vabsdiff vabsdiff2 vabsdiff4 vadd vadd2
    vadd4 vavrg2 vavrg4 vmad vmax vmax2 vmax4 vmin vmin2 vmin4 vote vset vset2 vset4 vshl vshr
    vsub vsub2 vsub4 xor"""


def _parse_ordinary(text: str) -> Instruction:
    from emulator.isa.ordinary.instruction import parse_ordinary

    return parse_ordinary(text)


def _parse_wgmma(text: str) -> Instruction:
    """wgmma.mma_async, or one of the instructions that order it."""
    second = text.strip().split(".")[1:2]
    ordering = ["fence"], ["commit_group"], ["wait_group"]
    return _parse_ordinary(text) if second in ordering else parse_matrix(text)


def _parse_cvt(text: str) -> Instruction:
    """A cvt of either table; of none, the refusal of the one that has its types."""
    from emulator.isa.ordinary.instruction import vocabulary

    try:
        return _parse_ordinary(text)
    except EmulatorError as refused:
        try:
            return parse_conversion(text)
        except EmulatorError as other:
            words, ordinary = text.strip().split(".")[1:], vocabulary("cvt")
            if unknown := [word for word in words if word not in ordinary | set(VOCABULARY)]:
                legal = (*ordinary, *VOCABULARY)
                raise ParseError(
                    f"unknown modifier {quoted('.' + unknown[0])} in {quoted(text)}"
                    f"{hint(unknown[0], legal, '.')}"
                ) from None
            pairs = {
                (to, source)
                for form in FORMS
                for to in form.to.split()
                for source in form.source.split()
            }
            packing = not set(words) <= ordinary or tuple(words[-2:]) in pairs
            raise (other if packing else refused) from None


PARSERS.update({name: kind.parse for kind in KINDS for name in kind.names.split()})
PARSERS |= {"cvt": _parse_cvt, "wgmma": _parse_wgmma}
for _name in ORDINARY.split():
    PARSERS.setdefault(_name, _parse_ordinary)


def instructions(family: str = "") -> Iterator[Instruction]:
    """Every instruction on matrices, with all its types, sizes and modifiers; `family` keeps one
    family. Ordinary instructions are too many to list: see `emulator.isa.ordinary`."""
    for kind in KINDS:
        for instruction in kind.instructions():
            if family in ("", instruction.family):
                yield instruction
