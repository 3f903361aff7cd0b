"""``Instruction``: what all instructions have in common, and the parser's front door."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

from emulator.arith.evidence import Fidelity
from emulator.errors import OperandError, ParseError, hint, listing, quoted

if TYPE_CHECKING:
    from emulator.layout.fragment import Fragment
    from emulator.targets import Target


#: First word of an opcode -> its parser. Each kind of instruction adds its own (`isa.catalogue`).
PARSERS: dict[str, Callable[[str], Instruction]] = {}

#: First words of PTX's other instructions (PTX ISA 9.7).
_OTHER_PTX = """abs activemask add addc alloca and applypriority atom bar barrier bfe bfi bfind bmsk
    bra brev brkpt brx call clusterlaunchcontrol clz cnot copysign cos cp createpolicy discard div
    dp2a dp4a elect ex2 exit fence fma fns getctarank griddepcontrol isspacep istypep ld ldu lg2
    lop3 mad mad24 madc mapa match max mbarrier membar min mov mul mul24 multimem nanosleep neg not
    or pmevent popc prefetch prefetchu prmt rcp red redux rem ret rsqrt sad selp set setmaxnreg setp
    shf shfl shl shr sin slct sqrt st stackrestore stacksave sub subc suld suq sured sust szext tanh
    tcgen05 tensormap testp tex tld4 trap txq vote xor"""

#: Parsers of other names for instructions; each gives None for a text that is none of its own.
ALIASES: list[Callable[[str], Instruction | None]] = []


class Instruction:
    """One legal instruction, all its modifiers settled.

    ``Instruction.parse(text)`` makes one; ``str()`` gives the canonical spelling, which parses to
    an equal instruction.
    """

    #: sizes of the matrices, of instructions that multiply: A is m × k, B is k × n
    m: int
    n: int
    k: int

    @staticmethod
    def parse(text: str) -> Instruction:
        """The instruction that an opcode such as ``mma.sync.aligned.m16n8k16…`` names.

        Modifiers may stand in any order that ptxas takes. CuTe's atoms, such as
        ``SM80_16x8x16_F32F16F16F32_TN``, and MMA-Sim's ``m16n8k16.f32.f16.f16.f32`` name
        instructions too. Raises ParseError where the text is no instruction that this package
        knows, UnsupportedError where PTX has no such form of it.
        """
        if not isinstance(text, str):
            raise ParseError(f"an opcode is a string; got {type(text).__name__}")
        name = text.strip().split(".")[0]
        parser = PARSERS.get(name)
        if parser is None:
            for alias in ALIASES:
                if ins := alias(text):
                    return ins
            if name in _OTHER_PTX.split():
                raise ParseError(
                    f"{quoted(text)} is not modelled: of PTX this package has {listing(PARSERS)}"
                )
            close = hint(name.lower(), PARSERS).replace("nearest", f"nearest to {quoted(name)}")
            raise ParseError(
                f"{quoted(text)} is no matrix instruction; they start with {listing(PARSERS)}"
                f"{close}"
            )
        return parser(text)

    def __str__(self) -> str:
        """The canonical spelling."""
        raise NotImplementedError

    def __repr__(self) -> str:
        """Python that gives the instruction again, and how sure its results are, as a comment."""
        levels: dict[str, list[str]] = {}
        for target in self.targets:
            levels.setdefault(self.fidelity(target).level, []).append(target)
        known = "; ".join(f"{level} on {listing(names, 4)}" for level, names in levels.items())
        return f"Instruction.parse({str(self)!r})  # {known}"

    @property
    def lanes(self) -> int:
        """Lanes that execute it together: a warp of 32 or a warpgroup of 128."""
        return 32

    @property
    def family(self) -> str:
        """The instruction's name, with .sp and ::ordered_metadata where it has them."""
        raise NotImplementedError

    @property
    def targets(self) -> tuple[str, ...]:
        """Every target whose assembler takes the instruction."""
        raise NotImplementedError

    @property
    def operands(self) -> tuple[str, ...]:
        """Names of the operands, in PTX order."""
        raise NotImplementedError

    def fragment(self, operand: str) -> Fragment:
        """How lanes hold an operand; raises OperandError where it is no matrix in registers."""
        raise OperandError(f"{self} has no fragment {operand!r}: its operands are plain registers")

    def fidelity(self, target: str | Target) -> Fidelity:
        """How sure the result on `target` is: exact, validated or modelled, and why.

        Raises UnsupportedError where the target lacks the instruction.
        """
        raise NotImplementedError


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
