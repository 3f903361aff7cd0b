"""``view`` of tcgen05: tensor memory as a still picture that names what is pointed at."""

from __future__ import annotations

from html import escape

from dtypes import FORMATS
from emulator.errors import OperandError, one_of
from emulator.isa.instruction import Instruction
from emulator.isa.tcgen05 import Tcgen05
from emulator.isa.tensor_matrix import TensorMatrixInstruction, settle
from emulator.layout.picture import Grid, document, side_by_side
from emulator.layout.tensor_grids import matrix_grids, transfer_grid
from emulator.layout.tensor_memory import TensorLayout

_LEGEND = (
    "Rows are lanes of tensor memory, columns its columns, from the address of the operand on. "
    "Colours tell the quarters of the warps apart; grey words hold nothing."
)


def tensor_document(opcode: str, operand: str, idesc: int | None, html: bool) -> str:
    """An SVG, or a page with it: of a tcgen05.mma with its instruction descriptor where D (or
    `operand`) lies, of tcgen05.ld and st which registers the words go to.

    Raises OperandError for what has no picture.
    """
    if opcode.startswith("tcgen05.mma"):
        ins = settle(opcode, idesc)
        title, grids = str(ins), _matrices(ins, operand or "d")
    else:
        title, grids = opcode, _transfer(opcode)
    picture = document(side_by_side(grids), title, _LEGEND)
    if not html:
        return picture + "\n"
    name = escape(title)
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{name}</title></head>'
        f"\n<body>{picture}\n<p>{escape(_LEGEND)}</p></body></html>\n"
    )


def _matrices(ins: TensorMatrixInstruction, operand: str) -> list[Grid]:
    bits = {"d": FORMATS[ins.d_type].bits, "a": FORMATS[ins.a_type].bits}
    if ins.is_sparse:
        bits["e"] = 4
    if ins.is_block_scaled:
        bits |= dict.fromkeys(("scale_a", "scale_b"), FORMATS[ins.scale_type].bits)
    one_of("an operand in tensor memory", operand, bits)
    layout: TensorLayout = ins.layout
    return matrix_grids(layout, operand, bits[operand])


def _transfer(opcode: str) -> list[Grid]:
    ins = Instruction.parse(opcode)
    if not isinstance(ins, Tcgen05) or ins.operation not in ("ld", "st"):
        raise OperandError(
            f"of tcgen05 there are pictures of mma (with --idesc), ld and st; got {opcode:.100}"
        )
    words = ins.modifiers
    num = int(words["num"].removeprefix("x"))
    split = num if words["shape"] == "16x32bx2" else 0
    return [transfer_grid(words["shape"], num, packed="pack::16b" in opcode, split=split)]
