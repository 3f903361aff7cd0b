"""Every instruction there is, and the parser that knows them all."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from emulator.errors import ParseError, listing, nearest, quoted
from emulator.isa.conversion import conversions, parse_conversion
from emulator.isa.instruction import Instruction
from emulator.isa.movement import movements, parse_movement
from emulator.isa.search import matrix_instructions, parse_matrix

#: first word of an opcode -> its parser
_PARSERS: dict[str, Callable[[str], Instruction]] = {
    "mma": parse_matrix,
    "wgmma": parse_matrix,
    "ldmatrix": parse_movement,
    "stmatrix": parse_movement,
    "movmatrix": parse_movement,
    "cvt": parse_conversion,
}


def parse(text: str) -> Instruction:
    """See `Instruction.parse`."""
    if not isinstance(text, str):
        raise ParseError(f"an opcode is a string; got {type(text).__name__}")
    name = text.strip().split(".")[0]
    parser = _PARSERS.get(name)
    if parser is None:
        raise ParseError(
            f"{quoted(text)} is no matrix instruction; they start with {listing(_PARSERS)}; "
            f"nearest to {quoted(name)} is {nearest(name.lower()[:80], _PARSERS)[0]!r}"
        )
    return parser(text)


def instructions(family: str = "") -> Iterator[Instruction]:
    """Every instruction, with all its types, sizes and modifiers; `family` keeps one family."""
    for source in (matrix_instructions, movements, conversions):
        for instruction in source():
            if family in ("", instruction.family):
                yield instruction
