"""``lane``, ``element``, ``table``: which lane and register holds an element, and the reverse."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Literal

from emulator.isa.instruction import Instruction
from emulator.isa.kinds import is_tensor
from emulator.isa.matrix import MatrixInstruction
from emulator.layout.fragment import Fragment, Location
from emulator.tools.report import Answer, Style, render
from emulator.tools.words import IDESC, instruction_word

#: (group, row, col) of one element
Element = tuple[int, int, int]


def group_names(ins: Instruction, fragment: Fragment) -> Callable[[int], str]:
    """Names of the matrices of a fragment that holds several."""
    if isinstance(ins, MatrixInstruction) and fragment.operand.startswith("scale"):
        bytes_, threads = ins.legal_ids(fragment.operand)
        return lambda group: (
            f"byte-id {bytes_[group // len(threads)]}, thread-id {threads[group % len(threads)]}"
        )
    what = "selector" if fragment.operand == "e" else "computation"
    return lambda group: f"{what if isinstance(ins, MatrixInstruction) else 'tile'} {group}"


def _fragment(opcode: str, operand: str) -> tuple[Instruction, Fragment, dict[str, object]]:
    """The instruction, its operand, and what the JSON says of both."""
    ins = Instruction.parse(opcode)
    return ins, ins.fragment(operand), {"opcode": str(ins), "operand": operand}


def _held(fragment: Fragment) -> list[list[list[Element]]]:
    """Elements of every lane and register, lowest bits first."""
    per_register = fragment.word_bits // fragment.place.width
    shape = (fragment.lanes, fragment.registers, per_register, 3)
    rows: list[list[list[list[int]]]] = fragment.lane_map.coordinates.reshape(shape).tolist()
    return [[[(g, r, c) for g, r, c in word] for word in words] for words in rows]


def _bits(where: Location) -> str:
    return f"{where.low_bit + where.bits - 1}:{where.low_bit}"


# --- lane, element --------------------------------------------------------------------------------


#: help of what names a fragment
_FRAGMENT = {
    "opcode": "such as mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
    "operand": "a, b, c, d; e (metadata); scale_a, scale_b; r of stmatrix",
}


#: arguments of `lane` and what they mean
LANE_HELP = _FRAGMENT | {
    "row": "",
    "col": "",
    "--group": "where lanes hold several matrices: the computation of m8n8k4.f16, the selector "
    "of e, the choice of scale ids, the tile of ldmatrix (`table` names them)",
    "--idesc WORD": f"{IDESC}: where tensor memory holds it",
}


def lane_command(
    opcode: str, operand: str, row: int, col: int, group: int = 0, idesc: str | None = None
) -> Answer:
    """Where element (row, col) lives: lane, register, bits; of a tcgen05.mma lane, column, bits.

    Of tcgen05.ld and st: which register takes the word of a lane and column of tensor memory.
    Raises an EmulatorError for what is no instruction, operand or element.
    """
    if is_tensor(opcode):
        from emulator.tools.tensor_places import tensor_lane

        return tensor_lane(opcode, operand, row, col, instruction_word(idesc))
    ins, fragment, data = _fragment(opcode, operand)
    where = fragment.lane(row, col, group)
    which = f"{group_names(ins, fragment)(group)}, " if fragment.groups > 1 else ""
    line = f"{which}{operand}({row}, {col}): lane {where.lane}, register {where.register}, "
    data |= {"group": group, "row": row, "col": col, **where._asdict()}
    return Answer([f"{line}bits {_bits(where)}"], data)


#: arguments of `element` and what they mean
ELEMENT_HELP = _FRAGMENT | {"lane": "", "register": ""}


def element_command(opcode: str, operand: str, lane: int, register: int) -> Answer:
    """Which elements one register of one lane holds, lowest bits first; of tcgen05.ld and st which
    words of tensor memory. Raises as `lane` does."""
    if is_tensor(opcode):
        from emulator.tools.tensor_places import tensor_element

        return tensor_element(opcode, operand, lane, register)
    ins, fragment, data = _fragment(opcode, operand)
    fragment.element(lane, register)  # checks the range
    lines, elements = [], []
    for group, row, col in _held(fragment)[lane][register]:
        where = fragment.lane(row, col, group)
        suffix = f"  {group_names(ins, fragment)(group)}" if fragment.groups > 1 else ""
        lines.append(f"{f'bits {_bits(where)}':11} ({row}, {col}){suffix}")
        elements.append(
            {"low_bit": where.low_bit, "bits": where.bits, "group": group, "row": row, "col": col}
        )
    return Answer(lines, data | {"lane": lane, "register": register, "elements": elements})


# --- table ----------------------------------------------------------------------------------------

#: arguments of `table` and what they mean
TABLE_HELP = _FRAGMENT | {
    "--format": "",
    "--by": "element: the matrix, with lane:register.[bits] in each place",
}


def table_command(
    opcode: str,
    operand: str,
    format: Literal["text", "csv", "markdown"] = "text",
    by: Literal["lane", "element"] = "lane",
) -> Answer:
    """The whole fragment: elements by lane and register, or lane and register by element.

    Raises as `lane` does.
    """
    ins, fragment, data = _fragment(opcode, operand)
    data |= {
        "type": fragment.fmt.name, "matrix": list(fragment.shape), "lanes": fragment.lanes,
        "registers": fragment.registers,
    }  # fmt: skip
    names = [group_names(ins, fragment)(group) for group in range(fragment.groups)]
    if by == "element":
        rows, cols = fragment.shape
        where = [
            [[fragment.lane(row, col, group) for col in range(cols)] for row in range(rows)]
            for group in range(fragment.groups)
        ]
        data["location"] = list(Location._fields)
        data["matrices"] = [[[list(x) for x in row] for row in matrix] for matrix in where]
        return Answer(_matrices(fragment, names, where, format), data)
    held = _held(fragment)
    data["elements"] = [[[list(x[1:]) for x in word] for word in words] for words in held]
    data["groups"] = [[[x[0] for x in word] for word in words] for words in held]
    cell = _every_element if format == "csv" else _short
    header = ["lane", *(f"{operand}{i}" for i in range(fragment.registers))]
    cells = [
        [str(lane), *(cell(word, len(names) > 1) for word in words)]
        for lane, words in enumerate(held)
    ]
    lines = render(header, cells, format)
    if len(names) > 1 and format != "csv":
        named = "; ".join(f"{group} = {name}" for group, name in enumerate(names))
        lines = [f"group:(row,col), {named}", "", *lines]
    return Answer(lines, data)


def _every_element(word: Sequence[Element], several: bool) -> str:
    return " ".join((f"{g}:" if several else "") + f"({r},{c})" for g, r, c in word)


def _short(word: Sequence[Element], several: bool) -> str:
    """``(0,0) (0,1)``; three neighbours and more as one range: ``(0,0-3)``, ``(0-3,0)``."""
    parts = []
    for run in _runs(word):
        (g, r, c), (_, last_r, last_c) = run[0], run[-1]
        if len(run) < 3:
            parts.append(_every_element(run, several))
            continue
        rows = str(r) if r == last_r else f"{r}-{last_r}"
        cols = str(c) if c == last_c else f"{c}-{last_c}"
        parts.append((f"{g}:" if several else "") + f"({rows},{cols})")
    return " ".join(parts)


def _runs(word: Sequence[Element]) -> Iterator[list[Element]]:
    """Splits at every element that does not go on in the row or column of those before."""
    run, step = [word[0]], None
    for (group, row, col), now in pairwise(word):
        moved = (now[0] - group, now[1] - row, now[2] - col)
        if moved in ((0, 0, 1), (0, 1, 0)) and step in (None, moved):
            run.append(now)
            step = moved
        else:
            yield run
            run, step = [now], None
    yield run


def _matrices(
    fragment: Fragment, names: list[str], where: list[list[list[Location]]], style: Style
) -> Iterator[str]:
    """Every matrix, ``5:0`` for a whole register, ``5:0.[31:16]`` for a part of one."""

    def place(x: Location) -> str:
        part = "" if x.bits == fragment.word_bits else f".[{_bits(x)}]"
        return f"{x.lane}:{x.register}{part}"

    header = ["row", *map(str, range(fragment.shape[1]))]
    cells = [[[str(row), *map(place, line)] for row, line in enumerate(x)] for x in where]
    if len(names) == 1:
        yield from render(header, cells[0], style)
    elif style == "csv":
        rows = [[str(group), *line] for group, lines in enumerate(cells) for line in lines]
        yield from render(["group", *header], rows, style)
    else:
        for group, lines in enumerate(cells):
            yield from ([""] if group else [])
            yield names[group] + ":"
            yield from ([""] if style == "markdown" else [])
            yield from render(header, lines, style)
