"""Mistakes with matrices: transposes, index formulas, element types, and the instruction itself.

Each function yields the ways of making one mistake with a kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from itertools import product
from typing import Literal

import numpy as np

from dtypes import FORMATS, Array, convert
from emulator.arith.conversions import convert as cvt
from emulator.errors import OperandError
from emulator.isa.matrix import MatrixInstruction
from emulator.isa.matrix_forms import FORMS
from emulator.layout.fragment import Fragment
from emulator.layout.lanemap import COL, ROW, Mode, lane_map
from emulator.targets import TARGETS
from emulator.tools.faults.kernel import Change, Kernel
from emulator.tools.faults.registers import Variant

# --- transposes -----------------------------------------------------------------------------------


def transposed_operand(kernel: Kernel) -> Iterator[Variant]:
    """A matrix that is stored row by row and read column by column, or the reverse."""
    for name in _matrices(kernel):
        codes = kernel.matrix(name)
        for text, other in _transposes(codes):
            if changed := _holding(kernel, name, other):
                yield Variant(name, f"{name.upper()} {text}", changed)
    for text, order in _transposes(np.arange(kernel.ins.m * kernel.ins.n).reshape(_shape(kernel))):
        if kernel.ins.fragment("d").groups == 1:
            yield Variant("d", f"D {text}", kernel.changing("d", _as_matrix(kernel, order)))


def _matrices(kernel: Kernel) -> list[str]:
    """Operands that one can write as a matrix; A of m8n8k4.f16 is several."""
    fragments = [kernel.ins.fragment(x) for x in kernel.registers]
    return [] if any(x.groups > 1 for x in fragments) else ["a", "b", "c"]


def _shape(kernel: Kernel) -> tuple[int, int]:
    return kernel.ins.m, kernel.ins.n


def _transposes(codes: Array) -> Iterator[tuple[str, Array]]:
    rows, cols = codes.shape
    if rows == cols:
        yield "transposed (row-major taken for column-major, or the reverse)", codes.T
        return
    read = np.ascontiguousarray(codes).reshape(cols, rows).T
    yield "is in memory row by row and read as if column by column", read
    stored = np.ascontiguousarray(codes.T).reshape(rows, cols)
    yield "is in memory column by column and read as if row by row", stored


def _holding(kernel: Kernel, name: str, codes: Array) -> Kernel | None:
    try:
        return kernel.holding(name, np.ascontiguousarray(codes))
    except OperandError:
        return None  # a tile of which two elements share a byte: there is no such memory


def _as_matrix(kernel: Kernel, order: Array) -> Change:
    """Reads the result as a matrix whose element i was element ``order[i]``."""
    fragment = kernel.ins.fragment("d")

    def change(words: Array) -> Array:
        codes = fragment.gather(words)
        flat = codes.reshape(*codes.shape[:-2], codes.shape[-2] * codes.shape[-1])
        return fragment.scatter(flat[..., order])

    return change


# --- index formulas -------------------------------------------------------------------------------


def other_lane_map(kernel: Kernel) -> Iterator[Variant]:
    """The fragment of another element type, or elements dealt out to the lanes one by one."""
    for name in _in_registers(kernel):
        fragment = kernel.ins.fragment(name)
        rows, cols = fragment.shape
        flat = np.arange(rows * cols).reshape(fragment.lanes, fragment.elements)
        yield _dealt(kernel, name, flat, "every lane holds consecutive elements, row by row")
        spread = np.arange(rows * cols).reshape(fragment.elements, fragment.lanes).T
        yield _dealt(kernel, name, spread, "consecutive elements, row by row, in consecutive lanes")
        if name in "ab":
            yield from _maps_of_other_types(kernel, name, fragment)


#: elements of a register -> a type with that many
_TYPES = {1: "tf32", 2: "f16", 4: "s8", 8: "s4", 32: "b1"}


def _maps_of_other_types(kernel: Kernel, name: str, fragment: Fragment) -> Iterator[Variant]:
    family = "b8" if name == "b" else f"a{kernel.ins.m}"
    own = 32 // fragment.place.width if fragment.word_bits == 32 else 1
    size = fragment.shape[0] * fragment.shape[1]
    for e, type_ in _TYPES.items():
        # At least two rows of registers of e elements, where the family has them.
        if e == own or fragment.elements % (e if family in ("b8", "a8") else 2 * e):
            continue
        other = lane_map(family, e, size)
        if (
            other.shape == fragment.lane_map.shape
            and other.flat.shape == fragment.lane_map.flat.shape
        ):
            yield _dealt(kernel, name, other.flat, f"in the lanes of a {type_} fragment")


def _in_registers(kernel: Kernel) -> list[str]:
    return [x for x in _matrices(kernel) if x in kernel.words]


def _dealt(kernel: Kernel, name: str, flat: Array, text: str) -> Variant:
    """Every step's tile, with element ``flat[lane, i]`` of it as element i of a lane."""
    fragment = kernel.ins.fragment(name)
    rows, cols = fragment.shape
    codes = kernel.matrix(name)
    steps = 1 if name == "c" else kernel.steps
    tiles = np.stack(np.split(codes, steps, -2 if name == "b" else -1)).reshape(steps, rows * cols)
    return _packed(kernel, name, tiles[:, flat], text)


def _packed(kernel: Kernel, name: str, codes: Array, text: str) -> Variant:
    """Codes ``(steps, lanes, elements)`` as registers."""
    fragment = kernel.ins.fragment(name)
    # In the order of the right map, so that scatter puts them where they stand here.
    flat = codes.reshape(len(codes), fragment.lanes * fragment.elements)
    words = fragment.scatter(flat[:, fragment.lane_map.inverse[0]])
    return Variant(
        name, f"{name.upper()}: {text}", kernel.using(**{name: words if name != "c" else words[0]})
    )


def wrong_index(kernel: Kernel) -> Iterator[Variant]:
    """One term of the formula for the row or column of an element is wrong."""
    for name in _in_registers(kernel):
        fragment = kernel.ins.fragment(name)
        codes = kernel.matrix(name)
        for text, lanes, elements in _formulas(fragment):
            coords = _coordinates(fragment, lanes, elements)
            for order, indices in _addresses(kernel, name, coords, codes.shape).items():
                memory = codes.reshape(-1) if order == "row" else codes.T.reshape(-1)
                picked = memory[indices % memory.size]
                where = "" if order == "row" else " (the matrix in column-major memory)"
                yield _packed(kernel, name, picked, text + where)


#: (extent, axis, stride) of the digits of the lane and of the element number, lowest first
_Modes = tuple[Mode, ...]


def _formulas(fragment: Fragment) -> Iterator[tuple[str, _Modes, _Modes]]:
    """Wrong terms, in words, and the modes that they make of the right ones."""
    lanes, elements = fragment.lane_map.lane_modes, fragment.lane_map.element_modes
    for part, modes in (("lane", lanes), ("element", elements)):
        for i, (extent, axis, stride) in enumerate(modes):
            digit = _digit(part, modes, i)
            others = {(axis, s) for s in (0, 1, 2, 4, 8, 16)} | {
                (ROW + COL - axis, s) for s in (1, 2, 8, stride)
            }
            for new_axis, new in sorted(others - {(axis, stride)}):
                changed = (*modes[:i], (extent, new_axis, new), *modes[i + 1 :])
                text = f"{_term(digit, new_axis, new)} where {_term(digit, axis, stride)} belongs"
                yield (text, changed, elements) if part == "lane" else (text, lanes, changed)
    if len(lanes) >= 2:
        (_, t_axis, t), (_, g_axis, g) = lanes[:2]
        swapped = ((4, g_axis, g), (8, t_axis, t), *lanes[2:])
        text = "lane % 4 and lane / 4 (threadID_in_group, groupID) exchanged in the formula"
        yield text, swapped, elements
        flipped = tuple((n, ROW + COL - axis, s) for n, axis, s in lanes)
        turned = tuple((n, ROW + COL - axis, s) for n, axis, s in elements)
        yield "row and column exchanged", flipped, turned
        yield "row and column of the lane exchanged, not those of the register", flipped, elements
        yield "row and column of the register exchanged, not those of the lane", lanes, turned


def _digit(part: str, modes: _Modes, i: int) -> str:
    low = int(np.prod([n for n, _, _ in modes[:i]], initial=1))
    digit = part if low == 1 else f"({part} / {low})"
    return digit if i == len(modes) - 1 else f"{digit} % {modes[i][0]}"


def _term(digit: str, axis: int, stride: int) -> str:
    where = "row" if axis == ROW else "column"
    if not stride:
        return f"{where} without {digit}"
    return f"{where} + {digit}" + (f" * {stride}" if stride > 1 else "")


def _coordinates(fragment: Fragment, lanes: _Modes, elements: _Modes) -> Array:
    """``(lanes, elements, 2)``: rows and columns, maybe outside of the matrix."""

    def added(modes: _Modes, axis: int) -> Array:
        out = np.zeros(1, np.int64)
        for extent, its_axis, stride in modes:
            step = stride if its_axis == axis else 0
            out = (np.arange(extent)[:, None] * step + out).reshape(-1)
        return out

    both = [added(lanes, axis)[:, None] + added(elements, axis) for axis in (ROW, COL)]
    return np.stack(both, -1)


def _addresses(
    kernel: Kernel, name: str, coords: Array, shape: tuple[int, ...]
) -> dict[str, Array]:
    """Where ``(steps, lanes, elements)`` lie in a row-major matrix and in a column-major one."""
    rows, cols = shape
    row, col = coords[None, ..., 0], coords[None, ..., 1]
    step = np.arange(1 if name == "c" else kernel.steps)[:, None, None]
    tile = kernel.ins.fragment(name).shape
    row, col = (row + step * tile[0], col) if name == "b" else (row, col + step * tile[1])
    by_row = row * cols + col
    outside = (row >= rows).any() or (col >= cols).any()
    # Only a formula that leaves the matrix tells the two apart.
    return {"row": by_row, "col": col * rows + row} if outside else {"row": by_row}


# --- types, instruction, target -------------------------------------------------------------------


def other_instruction(kernel: Kernel) -> Iterator[Variant]:
    """Another type or modifier in the opcode, of an instruction with the same registers."""
    ins = kernel.ins
    count = {name: x.registers for name, x in ins.fragments.items()}
    names = [f.name for f in fields(MatrixInstruction) if f.name != "form"]
    relatives = {str(x): x for x in _relatives(ins)}
    for other in relatives.values():
        if kernel.target.name not in other.targets or other.operands != ins.operands:
            continue
        if {name: x.registers for name, x in other.fragments.items()} != count:
            continue
        differ = [x for x in names if getattr(other, x) != getattr(ins, x)]
        texts = [_difference(_SAID.get(x, x), getattr(other, x), getattr(ins, x)) for x in differ]
        if other.form.bit_operation != ins.form.bit_operation:
            texts.append(
                f".{other.form.bit_operation}.popc instead of .{ins.form.bit_operation}.popc"
            )
        if 1 <= len(texts) <= 2:
            yield Variant("", ", ".join(texts), replace(kernel, ins=other))


_SAID = {"a_type": "type of A", "b_type": "type of B", "satfinite": ".satfinite",
         "rounding": "rounding", "ordered_metadata": "::ordered_metadata",
         "scale_type": "scale type"}  # fmt: skip


_ROUNDINGS: tuple[Literal["rn", "rz", "rm", "rp"], ...] = ("rn", "rz", "rm", "rp")


def _difference(name: str, new: object, old: object) -> str:
    if isinstance(new, bool):
        return f"{name} {'added' if new else 'missing'}"
    return f"{name} {new} instead of {old}"


def _relatives(ins: MatrixInstruction) -> Iterator[MatrixInstruction]:
    """Instructions of the same family, shape, accumulators and layouts."""
    for form in FORMS:
        same = (form.family, form.shape) == (ins.form.family, ins.form.shape)
        if not same or (form.n and ins.n not in form.n) or form.kind != ins.form.kind:
            continue
        if f"{ins.d_type}.{ins.c_type}" not in form.dc.split():
            continue
        scales = [x.split(".") for x in form.scales.split() or ["."]]
        pairs = [(a, b) for a in form.a.split() for b in form.b.split() or [a]]
        layouts = [(x.split(".")[0], x.split(".")[1]) for x in form.layouts.split()]
        for (a, b), (vec, scale), layout, satfinite, rounding, ordered in product(
            pairs, scales, layouts, {False, form.satfinite}, _ROUNDINGS, (False, True)
        ):
            if (rounding != "rn" and not form.rounding) or vec != ins.scale_vec:
                continue
            if ordered != form.ordered_only and form.family != "mma.sp":
                continue
            if form.ordered_only and not ordered:
                continue
            yield replace(
                ins, form=form, a_type=a, b_type=b, layouts=layout, satfinite=satfinite,
                rounding=rounding, scale_type=scale, ordered_metadata=ordered,
            )  # fmt: skip


def other_target(kernel: Kernel) -> Iterator[Variant]:
    """The bits are those of another generation."""
    seen = {kernel.ins.recipe(kernel.target).steps}
    for name in kernel.ins.targets:
        steps = kernel.ins.recipe(name).steps
        if steps not in seen:
            seen.add(steps)
            target = TARGETS[name]
            text = f"computed as {target.generation} ({name}) does, not {kernel.target}"
            yield Variant("", text, replace(kernel, target=target))


def converted_elements(kernel: Kernel) -> Iterator[Variant]:
    """Elements whose bits are those of another type."""
    for name in "ab":
        fmt = FORMATS[getattr(kernel.ins, f"{name}_type")]
        codes = kernel.matrix(name)
        if not fmt.is_float:
            continue
        for other in FORMATS.values():
            same_size = other.bits == fmt.bits and other.signed and other != fmt
            if other.is_float and same_size and not fmt.ignored_bits:
                text = (
                    f"the bits in {name.upper()} are {other.name}, the instruction takes {fmt.name}"
                )
                if changed := _holding(kernel, name, convert(fmt, other, codes)):
                    yield Variant(name, text, changed)
        if fmt.ignored_bits:
            yield from _unrounded(kernel, name)


def _unrounded(kernel: Kernel, name: str) -> Iterator[Variant]:
    codes = kernel.matrix(name)
    if not np.any(codes & np.uint32((1 << FORMATS["tf32"].ignored_bits) - 1)):
        return
    rounded = cvt(FORMATS["f32"], FORMATS["tf32"], codes.astype(np.uint32), "rna")
    if changed := _holding(kernel, name, rounded):
        yield Variant(name, f"{name.upper()} rounded to tf32 (cvt.rna.tf32.f32), not cut", changed)
