"""``view``: an instruction's operands as a page that answers pointing, or as a still picture."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from emulator.errors import OperandError, quoted
from emulator.isa.instruction import Instruction
from emulator.isa.kinds import is_tensor
from emulator.isa.matrix import MatrixInstruction
from emulator.layout.picture import document
from emulator.tools.files import write_text
from emulator.tools.pictures.page import Page
from emulator.tools.pictures.panels import SharedMemory, arranged, in_a_row
from emulator.tools.report import Answer
from emulator.tools.words import instruction_word, sizes, swizzle_width, whole_number

_LEGEND = (
    "Cells of registers are labelled lane:register, then the bits of the register; cells of shared "
    "memory are labelled with their byte address."
)


#: arguments of `view` and what they mean
VIEW_HELP = {
    "opcode": "",
    "--operand": "only this one: a, b, c, d, e, scale_a, p, ...",
    "--idesc WORD": "instruction descriptor of a tcgen05.mma: where its matrices lie in tensor "
    "memory (d, a, e, scale_a, scale_b)",
    "--target": "tell what it does on this target only",
    "--format": "default: by the file name, or html",
    "-o --output FILE": "default: standard output",
    "--warps MxN": "so many warps side by side along m and n, such as 2x2",
    "--swizzle WIDTH": "of wgmma's tiles in shared memory: none, 32B, 64B or 128B (default)",
    "--major": "of these tiles: default k",
    "--start-address BYTE": "of these tiles: 0x400, 1024, ... (default 0)",
    "--major-a": "of A alone",
    "--descriptor-a WORD": "A as this descriptor reads it",
    "--major-b": "of B alone",
    "--descriptor-b WORD": "B as this descriptor reads it",
}


@dataclass
class TileWords:
    """What the command line says of tiles of wgmma in shared memory."""

    swizzle: str | None = None
    major: Literal["k", "mn"] | None = None
    start_address: str | None = None
    major_a: Literal["k", "mn"] | None = None
    descriptor_a: str | None = None
    major_b: Literal["k", "mn"] | None = None
    descriptor_b: str | None = None


VIEW_WORDS = TileWords


def view_command(
    opcode: str,
    operand: str | None = None,
    target: str | None = None,
    format: Literal["html", "svg"] | None = None,
    output: str | None = None,
    warps: str = "1x1",
    idesc: str | None = None,
    **tile: str | None,
) -> Answer:
    """The page or the SVG, printed or written to the file `output`, whose suffix may tell which.

    `tile` is of `TileWords`. Raises ParseError, UnsupportedError or OperandError for what is no
    instruction, target, operand or tile, and OperandError for a file that cannot be written.
    """
    if is_tensor(opcode):
        return _tensor(opcode, operand or "", idesc, format or _format_of(output), output)
    ins = Instruction.parse(opcode)
    m, n = sizes("--warps", warps, 2, 2)
    page = Page(ins, operand or "", target, _memory(ins, tile), (m, n))
    format = format or _format_of(output)
    if format == "html":
        text = page.html()
    else:
        placed = (in_a_row if operand else arranged)(page.sections())
        text = document(placed, page.title, _LEGEND) + "\n"
    return _answer(text, str(ins), operand, format, output)


def _answer(text: str, opcode: str, operand: str | None, format: str, output: str | None) -> Answer:
    data = {"opcode": opcode, "operand": operand, "format": format, "output": output}
    if output is None:
        return Answer(text.rstrip("\n").split("\n"), data | {"document": text})
    write_text(output, text)
    return Answer([f"wrote {output}: {opcode}, {-(-len(text) // 1024)} KiB of {format}"], data)


def _tensor(
    opcode: str, operand: str, idesc: str | None, format: str, output: str | None
) -> Answer:
    """The picture of tensor memory that an instruction of tcgen05 reads or writes."""
    from emulator.tools.pictures.tensor import tensor_document

    text = tensor_document(opcode, operand, instruction_word(idesc), format == "html")
    return _answer(text, opcode, operand or None, format, output)


def _format_of(output: str | None) -> Literal["html", "svg"]:
    suffix = Path(output).suffix.lower() if output else ".html"
    if suffix not in (".html", ".htm", ".svg"):
        raise OperandError(
            f"{quoted(output or '')} is neither .html nor .svg: name the file so, or give --format"
        )
    return "svg" if suffix == ".svg" else "html"


def _memory(ins: Instruction, tile: dict[str, str | None]) -> SharedMemory:
    given: dict[str, Any] = {name: value for name, value in tile.items() if value is not None}
    if given and not (isinstance(ins, MatrixInstruction) and ins.is_wgmma):
        options = ", ".join("--" + name.replace("_", "-") for name in given)
        raise OperandError(f"{options}: only wgmma reads tiles of shared memory; {ins} does not")
    if "swizzle" in given:
        given["swizzle_bytes"] = swizzle_width(given.pop("swizzle"), "--swizzle")
    if "start_address" in given:
        given["start_address"] = whole_number("--start-address", given["start_address"])
    for name in ("descriptor_a", "descriptor_b"):
        if name in given:
            given[name] = whole_number("--" + name.replace("_", "-"), given[name])
    return SharedMemory(**given)
