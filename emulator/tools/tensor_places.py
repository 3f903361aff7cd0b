"""``lane`` and ``element`` of tcgen05: where tensor memory holds an element, and what a register of
tcgen05.ld or st holds of it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dtypes import FORMATS
from emulator.errors import OperandError, one_of, whole
from emulator.isa.instruction import Instruction
from emulator.isa.tcgen05 import Tcgen05
from emulator.isa.tensor_matrix import NAME, TensorMatrixInstruction, settle
from emulator.layout.tensor_grids import places_of
from emulator.layout.tensor_memory import QUARTER, Int64, transfer_places
from emulator.tools.report import Answer


def operand_bits(ins: TensorMatrixInstruction) -> dict[str, int]:
    """Bits of an element of each operand that may lie in tensor memory."""
    bits = {"d": FORMATS[ins.d_type].bits, "a": FORMATS[ins.a_type].bits}
    if ins.is_sparse:
        bits["e"] = 4
    if ins.is_block_scaled:
        bits |= dict.fromkeys(("scale_a", "scale_b"), FORMATS[ins.scale_type].bits)
    return bits


def transfer_of(opcode: str) -> tuple[Tcgen05, Int64, Int64]:
    """A tcgen05.ld or st, and the lanes and columns of register q of lane L, from its address on;
    the second half of 16x32bx2 lies behind the first. Raises OperandError for other opcodes."""
    ins = Instruction.parse(opcode)
    if not isinstance(ins, Tcgen05) or "num" not in ins.modifiers:
        raise OperandError(
            "of tcgen05 mma (with --idesc), ld and st say where tensor memory holds what; got "
            f"{opcode:.100}"
        )
    words = ins.modifiers
    num = int(words["num"].removeprefix("x"))
    packed = bool(words.get("pack::16b") or words.get("unpack::16b"))
    split = num * (2 if packed else 1) if words["shape"] == "16x32bx2" else 0
    return ins, *transfer_places(words["shape"], num, packed=packed, split=split)


def tensor_lane(opcode: str, operand: str, row: int, col: int, idesc: int | None) -> Answer:
    """Of a tcgen05.mma where element (row, col) lies; of tcgen05.ld and st which register takes
    the word of lane `row` and column `col`, from the address on.

    Raises OperandError where there is no such element, or no register that takes the word.
    """
    data = {"opcode": opcode, "operand": operand, "row": row, "col": col}
    if not opcode.startswith(NAME):
        lines, found = _register(opcode, row, col)
        return Answer(lines, data | found)
    ins = settle(opcode, idesc)
    bits = operand_bits(ins)
    places = places_of(ins.layout, one_of("an operand in tensor memory", operand, bits))
    rows, columns = places.lane.shape[-2:]
    index = (
        whole(f"the row of {operand}", row, 0, rows - 1),
        whole(f"the column of {operand}", col, 0, columns - 1),
    )
    held = np.stack(places, -1)[(..., *index, slice(None))].reshape(-1, 4)
    own = [x for x in dict.fromkeys(map(tuple, held.tolist())) if x[1] >= 0]
    lines = [
        f"{operand}({row}, {col}): lane {lane}, column {column}, bits "
        f"{low + bits[operand] - 1}:{low}, in the lanes of warp {lane // QUARTER} of a warpgroup"
        + (f", CTA {cta} of the pair" if ins.cta_group == 2 else "")
        for cta, lane, column, low in own
    ]
    data["places"] = [
        {"cta": cta, "lane": lane, "column": column, "low_bit": low, "bits": bits[operand],
         "warp": lane // QUARTER}
        for cta, lane, column, low in own
    ]  # fmt: skip
    return Answer(lines, data)


def _register(opcode: str, row: int, column: int) -> tuple[list[str], dict[str, object]]:
    _, lanes, columns = transfer_of(opcode)
    found = np.argwhere((lanes == row) & (columns == column))
    if not len(found):
        raise OperandError(
            f"{opcode:.100} moves no word of lane {row}, column {column} from its address on; it "
            f"moves lanes 0-{int(lanes.max())}, columns 0-{int(columns.max())}"
        )
    lane, register, *half = found[0].tolist()
    part = ("low half of ", "high half of ")[half[0]] if half else ""
    where = f"lane {row}, column {column} from the address: {part}register {register} of lane"
    return [f"{where} {lane}"], {"lane": lane, "register": register, "half": (half or [None])[0]}


def tensor_element(opcode: str, operand: str, lane: int, register: int) -> Answer:
    """The words of tensor memory that a register of tcgen05.ld or st holds, from the address on."""
    ins, lanes, columns = transfer_of(opcode)
    one_of("the vector of registers", operand, ("src",) if "src" in ins.operands else ("d",))
    whole("lane", lane, 0, lanes.shape[0] - 1)
    whole("register", register, 0, lanes.shape[1] - 1)
    words = zip(np.ravel(lanes[lane, register]), np.ravel(columns[lane, register]), strict=True)
    found = [{"lane": int(x), "column": int(y)} for x, y in words]
    data = {"opcode": opcode, "operand": operand, "lane": lane, "register": register}
    return Answer(list(_lines(found)), data | {"words": found})


def _lines(words: list[dict[str, int]]) -> Iterator[str]:
    for i, word in enumerate(words):
        bits = "" if len(words) == 1 else ("bits 15:0  ", "bits 31:16 ")[i]
        yield f"{bits}lane {word['lane']}, column {word['column']} from the address"
