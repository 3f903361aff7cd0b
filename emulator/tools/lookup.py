"""``lane``, ``element``, ``table``: which lane and register holds an element, and the reverse."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Literal

from emulator.isa.instruction import Instruction
from emulator.isa.matrix import MatrixInstruction
from emulator.layout.fragment import Fragment, Location
from emulator.tools.answer import Answer, Style, render

#: (group, row, col) of one element
Element = tuple[int, int, int]


def lane(opcode: str, operand: str, row: int, col: int, group: int = 0) -> Answer:
    """Where element (row, col) lives: lane, register, bits.

    Raises an EmulatorError for what is no instruction, operand or element.
    """
    ins, fragment = _fragment(opcode, operand)
    where = fragment.lane(row, col, group)
    name = group_names(ins, fragment)
    prefix = f"{name(group)}, " if fragment.groups > 1 else ""
    lines = [
        f"{prefix}{operand}({row}, {col}): lane {where.lane}, register {where.register}, "
        f"bits {where.low_bit + where.bits - 1}:{where.low_bit}"
    ]
    data = {"opcode": str(ins), "operand": operand, "group": group, "row": row, "col": col}
    return Answer(lines, data | where._asdict())


def element(opcode: str, operand: str, lane: int, register: int) -> Answer:
    """Which elements one register of one lane holds, lowest bits first; raises as `lane` does."""
    ins, fragment = _fragment(opcode, operand)
    fragment.element(lane, register)  # checks the range
    held = _held(fragment)[lane][register]
    name = group_names(ins, fragment)
    lines, data = [], []
    for group, row, col in held:
        where = fragment.lane(row, col, group)
        bits = f"bits {where.low_bit + where.bits - 1}:{where.low_bit}"
        suffix = f"  {name(group)}" if fragment.groups > 1 else ""
        lines.append(f"{bits:11} ({row}, {col}){suffix}")
        data.append({"low_bit": where.low_bit, "bits": where.bits,
                     "group": group, "row": row, "col": col})  # fmt: skip
    facts = {"opcode": str(ins), "operand": operand, "lane": lane, "register": register}
    return Answer(lines, facts | {"elements": data})


def table(
    opcode: str, operand: str, style: Style = "text", by: Literal["lane", "element"] = "lane"
) -> Answer:
    """The whole fragment: elements by lane and register, or lane and register by element.

    Raises as `lane` does.
    """
    ins, fragment = _fragment(opcode, operand)
    if by == "element":
        return _by_element(ins, operand, fragment, style)
    return _by_lane(ins, operand, fragment, style)


def _fragment(opcode: str, operand: str) -> tuple[Instruction, Fragment]:
    ins = Instruction.parse(opcode)
    return ins, ins.fragment(operand)


def group_names(ins: Instruction, fragment: Fragment) -> Callable[[int], str]:
    """What the matrices of a fragment of several are told apart by, in words."""
    if not isinstance(ins, MatrixInstruction):
        return lambda group: f"tile {group}"
    if fragment.operand == "e":
        return lambda group: f"selector {group}"
    if fragment.operand.startswith("scale"):
        bytes_, threads = ins.legal_ids(fragment.operand)

        def ids(group: int) -> str:
            byte, thread = divmod(group, len(threads))
            return f"byte-id {bytes_[byte]}, thread-id {threads[thread]}"

        return ids
    return lambda group: f"computation {group}"


def _held(fragment: Fragment) -> list[list[list[Element]]]:
    """Elements of every lane and register, lowest bits first."""
    per_register = fragment.word_bits // fragment.place.width
    shape = (fragment.lanes, fragment.registers, per_register, 3)
    rows: list[list[list[list[int]]]] = fragment.lane_map.coordinates.reshape(shape).tolist()
    return [[[(g, r, c) for g, r, c in word] for word in words] for words in rows]


# --- by lane --------------------------------------------------------------------------------------


def _by_lane(ins: Instruction, operand: str, fragment: Fragment, style: Style) -> Answer:
    held = _held(fragment)
    several = fragment.groups > 1
    cell = _every_element if style == "csv" else _short
    header = ["lane", *(f"{operand}{i}" for i in range(fragment.registers))]
    rows = [
        [str(lane), *(cell(word, several) for word in words)] for lane, words in enumerate(held)
    ]
    lines = render(header, rows, style)
    if several and style != "csv":
        named = "; ".join(f"{g} = {group_names(ins, fragment)(g)}" for g in range(fragment.groups))
        lines = [f"group:(row,col), {named}", "", *lines]
    data = {
        **_facts(ins, operand, fragment),
        "elements": [[[list(x[1:]) for x in word] for word in words] for words in held],
        "groups": [[[x[0] for x in word] for word in words] for words in held],
    }
    return Answer(lines, data)


def _facts(ins: Instruction, operand: str, fragment: Fragment) -> dict[str, object]:
    return {
        "opcode": str(ins), "operand": operand, "type": fragment.fmt.name,
        "matrix": list(fragment.shape), "lanes": fragment.lanes, "registers": fragment.registers,
    }  # fmt: skip


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


# --- by element -----------------------------------------------------------------------------------


def _by_element(ins: Instruction, operand: str, fragment: Fragment, style: Style) -> Answer:
    rows, cols = fragment.shape
    where = [
        [[fragment.lane(row, col, group) for col in range(cols)] for row in range(rows)]
        for group in range(fragment.groups)
    ]
    data = {
        **_facts(ins, operand, fragment),
        "location": list(Location._fields),
        "matrices": [[[list(x) for x in row] for row in matrix] for matrix in where],
    }
    return Answer(_matrices(ins, fragment, where, style), data)


def _matrices(
    ins: Instruction, fragment: Fragment, where: list[list[list[Location]]], style: Style
) -> Iterator[str]:
    cols = [str(col) for col in range(fragment.shape[1])]
    cells = [
        [[str(row), *(_place(fragment, x) for x in line)] for row, line in enumerate(matrix)]
        for matrix in where
    ]
    if fragment.groups == 1:
        yield from render(["row", *cols], cells[0], style)
    elif style == "csv":
        rows = [[str(group), *line] for group, lines in enumerate(cells) for line in lines]
        yield from render(["group", "row", *cols], rows, style)
    else:
        for group, lines in enumerate(cells):
            yield from ([""] if group else [])
            yield group_names(ins, fragment)(group) + ":"
            yield from ([""] if style == "markdown" else [])
            yield from render(["row", *cols], lines, style)


def _place(fragment: Fragment, where: Location) -> str:
    """``5:0`` for a whole register, ``5:0.[31:16]`` for a part of one."""
    text = f"{where.lane}:{where.register}"
    if where.bits == fragment.word_bits:
        return text
    return f"{text}.[{where.low_bit + where.bits - 1}:{where.low_bit}]"
