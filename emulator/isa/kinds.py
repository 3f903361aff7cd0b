"""The kinds of instructions: what their opcodes start with, and where each kind is.

A kind is a module of this package with its table, its subclass of ``Instruction``, and two
functions: ``parse(opcode)`` gives the instruction of an opcode, ``expand()`` all that the table
has. It is named here as text, and imported when the first of its opcodes is read: an opcode costs
the tables of its own kind alone.
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any, NamedTuple


class Kind(NamedTuple):
    """One kind of instruction."""

    #: what its opcodes start with, up to a dot, with spaces between them
    names: str
    module: str
    #: its instructions are in the catalogue: those that `warp.execute` takes matrices for
    listed: bool = True

    def load(self) -> Any:
        """The module of the kind."""
        return import_module(self.module)


#: First words of ordinary instructions.
ORDINARY = """
    abs activemask add addc alloca and applypriority atom bar barrier bfe bfi bfind bmsk bra
    brev brkpt brx call clusterlaunchcontrol clz cnot copysign cos cp createpolicy cvt cvta
    discard div dp2a dp4a elect ex2 exit fence fma fns getctarank griddepcontrol isspacep ld ldu
    lg2 lop3 mad mad24 madc mapa match max mbarrier membar min mov mul mul24 multimem nanosleep
    neg not or pmevent popc prefetch prefetchu prmt rcp red redux rem ret rsqrt sad selp set
    setmaxnreg setp shf shfl shl shr sin slct spcompress spdecompress sqrt st stackrestore
    stacksave sub subc szext tanh tensormap testp trap vabsdiff vabsdiff2 vabsdiff4 vadd vadd2
    vadd4 vavrg2 vavrg4 vmad vmax vmax2 vmax4 vmin vmin2 vmin4 vote vset vset2 vset4 vshl vshr
    vsub vsub2 vsub4 wgmma.commit_group wgmma.fence wgmma.wait_group xor
"""

#: Where two kinds have a name, an opcode is of the first one that takes it.
KINDS = (
    Kind("mma wgmma.mma_async", "emulator.isa.matrix_opcodes"),
    Kind("ldmatrix stmatrix movmatrix", "emulator.isa.movement"),
    Kind("wmma.mma wmma.load.a wmma.load.b wmma.load.c wmma.store.d", "emulator.isa.wmma_opcodes"),
    Kind("cvt", "emulator.isa.conversion"),
    Kind(ORDINARY, "emulator.isa.ordinary.instruction", listed=False),
    Kind("tcgen05", "emulator.isa.tcgen05", listed=False),
)

#: Other people's names of instructions: how they start, and whose ``parse`` knows them.
ALIASES = (
    re.compile(r"cute::|SM\d|G?MMA_|m\d+n\d+k\d+\.", re.ASCII),
    Kind("", "emulator.isa.aliases"),
)

#: First words of PTX's other opcodes (PTX ISA 9.7): legal, and not modelled here.
OTHER_PTX = """istypep suld suq sured sust tex tld4 txq"""


def names() -> tuple[str, ...]:
    """First words of the opcodes of all kinds."""
    return tuple(dict.fromkeys(name for kind in KINDS for name in kind.names.split()))


def kinds_of(opcode: str) -> list[Kind]:
    """The kinds that an opcode may be of, by the name that it starts with."""
    return [kind for kind in KINDS if any(starts_with(opcode, name) for name in kind.names.split())]


def starts_with(opcode: str, name: str) -> bool:
    """Whether the first words of an opcode are those of a name."""
    return opcode == name or opcode.startswith(f"{name}.")
