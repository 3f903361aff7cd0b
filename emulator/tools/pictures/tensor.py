"""``view`` of tcgen05: tensor memory as a still picture that names what is pointed at."""

from __future__ import annotations

from html import escape

from emulator.errors import one_of
from emulator.isa.kinds import is_tensor_product
from emulator.isa.tensor_matrix import TensorMatrixInstruction, settle
from emulator.layout.picture import Grid, document, side_by_side
from emulator.layout.tensor_grids import matrix_grids, transfer_grid
from emulator.layout.tensor_memory import TensorLayout
from emulator.tools.tensor_places import operand_bits, transfer_of

_LEGEND = (
    "Rows are lanes of tensor memory, columns its columns, from the address of the operand on. "
    "Colours tell the quarters of the warps apart; grey words hold nothing."
)


def tensor_document(opcode: str, operand: str, idesc: int | None, html: bool) -> str:
    """An SVG, or a page with it: of a tcgen05.mma with its instruction descriptor where D (or
    `operand`) lies, of tcgen05.ld and st which registers the words go to.

    Raises OperandError for what has no picture.
    """
    if is_tensor_product(opcode):
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
    bits = operand_bits(ins)
    one_of("an operand in tensor memory", operand, bits)
    layout: TensorLayout = ins.layout
    return matrix_grids(layout, operand, bits[operand])


def _transfer(opcode: str) -> list[Grid]:
    ins, lanes, columns = transfer_of(opcode)
    shape, num = ins.modifiers["shape"], ins.modifiers["num"]
    packed = " packed" if lanes.ndim == 3 else ""
    return [transfer_grid(lanes, columns, f"{shape}.{num}{packed}")]
