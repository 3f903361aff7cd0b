"""Mistakes with matrices: transposes, index formulas, element types, and the instruction itself.

Each function yields the ways of making one mistake with a kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import fields, replace
from functools import cache

import numpy as np

from dtypes import FORMATS, Array, convert
from emulator.arith import conversions
from emulator.errors import OperandError
from emulator.isa.matrix import MatrixInstruction
from emulator.isa.matrix_opcodes import expand
from emulator.layout.fragment import Fragment
from emulator.layout.lanemap import COL, ROW, Mode, digits, lane_map
from emulator.targets import TARGETS
from emulator.tools.faults.kernel import Change, RecordedKernel, Variant, split_k

# --- transposes -----------------------------------------------------------------------------------


def transposed_operand(kernel: RecordedKernel) -> Iterator[Variant]:
    """A matrix that is stored row by row and read column by column, or the reverse."""
    for name in _matrices(kernel):
        for text, other in _transposes(kernel.matrix(name)):
            yield from _with_matrix(kernel, name, f"{name.upper()} {text}", other)
    ins = kernel.ins
    if ins.fragment("d").groups == 1:
        for text, order in _transposes(np.arange(ins.m * ins.n).reshape(ins.m, ins.n)):
            yield Variant("d", f"D {text}", kernel.changing("d", _reordered(kernel, order)))


def _matrices(kernel: RecordedKernel) -> list[str]:
    """Operands that one can write as a matrix; A of m8n8k4.f16 is several."""
    fragments = [kernel.ins.fragment(x) for x in kernel.registers]
    return [] if any(x.groups > 1 for x in fragments) else ["a", "b", "c"]


def _transposes(codes: Array) -> Iterator[tuple[str, Array]]:
    rows, cols = codes.shape
    if rows == cols:
        yield "transposed (row-major taken for column-major, or the reverse)", codes.T
        return
    read = np.ascontiguousarray(codes).reshape(cols, rows).T
    yield "is in memory row by row and read as if column by column", read
    stored = np.ascontiguousarray(codes.T).reshape(rows, cols)
    yield "is in memory column by column and read as if row by row", stored


def _with_matrix(kernel: RecordedKernel, name: str, text: str, codes: Array) -> Iterator[Variant]:
    with suppress(OperandError):  # a tile of which two elements share a byte: no such memory
        yield Variant(name, text, kernel.holding(name, np.ascontiguousarray(codes)))


def _reordered(kernel: RecordedKernel, order: Array) -> Change:
    """Reads the result as a matrix whose element i was element ``order[i]``."""
    fragment = kernel.ins.fragment("d")

    def change(words: Array) -> Array:
        codes = fragment.gather(words)
        flat = codes.reshape(*codes.shape[:-2], codes.shape[-2] * codes.shape[-1])
        return fragment.scatter(flat[..., order])

    return change


# --- index formulas -------------------------------------------------------------------------------

#: elements of a register -> a type with that many
_TYPES = {1: "tf32", 2: "f16", 4: "s8", 8: "s4", 32: "b1"}
#: the digits of the lane or of the element number, lowest first
_Modes = tuple[Mode, ...]


def other_lane_map(kernel: RecordedKernel) -> Iterator[Variant]:
    """The fragment of another element type, or elements dealt out to the lanes one by one."""
    for name in _in_registers(kernel):
        fragment = kernel.ins.fragment(name)
        rows, cols = fragment.shape
        maps = {
            "every lane holds consecutive elements, row by row":
                np.arange(rows * cols).reshape(fragment.lanes, fragment.elements),
            "consecutive elements, row by row, in consecutive lanes":
                np.arange(rows * cols).reshape(fragment.elements, fragment.lanes).T,
        }  # fmt: skip
        maps |= _maps_of_other_types(kernel, name, fragment) if name in "ab" else {}
        parts = split_k(name, kernel.matrix(name), 1 if name == "c" else kernel.steps)
        for text, flat in maps.items():
            yield _packed(kernel, name, parts.reshape(len(parts), rows * cols)[:, flat], text)


def _maps_of_other_types(kernel: RecordedKernel, name: str, fragment: Fragment) -> dict[str, Array]:
    family, own = "b8" if name == "b" else f"a{kernel.ins.m}", fragment.lane_map
    per_word = 32 // fragment.place.width if fragment.word_bits == 32 else 1
    out = {}
    for e, type_ in _TYPES.items():
        # At least two rows of registers of e elements, where the family has them.
        if e == per_word or fragment.elements % (e if family in ("b8", "a8") else 2 * e):
            continue
        other = lane_map(family, e, fragment.shape[0] * fragment.shape[1])
        if (other.shape, other.flat.shape) == (own.shape, own.flat.shape):
            out[f"in the lanes of a {type_} fragment"] = other.flat
    return out


def _in_registers(kernel: RecordedKernel) -> list[str]:
    return [x for x in _matrices(kernel) if x in kernel.words]


def _packed(kernel: RecordedKernel, name: str, codes: Array, text: str) -> Variant:
    """Codes ``(steps, lanes, elements)`` as registers."""
    fragment = kernel.ins.fragment(name)
    # In the order of the right map, so that scatter puts them where they stand here.
    flat = codes.reshape(len(codes), fragment.lanes * fragment.elements)
    words = fragment.scatter(flat[:, fragment.lane_map.inverse[0]])
    changed = kernel.using(**{name: words if name != "c" else words[0]})
    return Variant(name, f"{name.upper()}: {text}", changed)


def wrong_index(kernel: RecordedKernel) -> Iterator[Variant]:
    """One term of the formula for the row or column of an element is wrong."""
    for name in _in_registers(kernel):
        fragment, codes = kernel.ins.fragment(name), kernel.matrix(name)
        steps = np.arange(1 if name == "c" else kernel.steps)[:, None, None]
        rows, cols = codes.shape
        for text, lanes, elements in formulas(fragment):
            # Maybe outside of the matrix; where (steps, lanes, elements) lie in it.
            row, col = (
                digits(lanes, axis)[:, None] + digits(elements, axis) for axis in (ROW, COL)
            )
            row = row + steps * (fragment.shape[0] if name == "b" else 0)
            col = col + steps * (0 if name == "b" else fragment.shape[1])
            yield _read(kernel, name, codes, row * cols + col, text)
            if (row >= rows).any() or (col >= cols).any():
                # Only a formula that leaves the matrix tells the two orders apart.
                text += " (the matrix in column-major memory)"
                yield _read(kernel, name, codes.T, col * rows + row, text)


def _read(kernel: RecordedKernel, name: str, codes: Array, indices: Array, text: str) -> Variant:
    memory = np.ascontiguousarray(codes).reshape(-1)
    return _packed(kernel, name, memory[indices % memory.size], text)


def formulas(fragment: Fragment) -> Iterator[tuple[str, _Modes, _Modes]]:
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
        flipped, turned = (
            tuple((n, ROW + COL - axis, s) for n, axis, s in modes) for modes in (lanes, elements)
        )
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


# --- types, instruction, target -------------------------------------------------------------------

#: fields of an instruction in words
_SAID = {"a_type": "type of A", "b_type": "type of B", "satfinite": ".satfinite",
         "rounding": "rounding", "ordered_metadata": "::ordered_metadata",
         "scale_type": "scale type"}  # fmt: skip


def _shape(ins: MatrixInstruction) -> tuple[object, ...]:
    """The part of an instruction that a typing error in types and modifiers does not change."""
    return ins.m, ins.n, ins.k, ins.d_type, ins.c_type, ins.scale_vec, ins.form.kind, ins.operands


@cache
def _relatives(family: str) -> dict[tuple[object, ...], list[MatrixInstruction]]:
    out: dict[tuple[object, ...], list[MatrixInstruction]] = {}
    for ins in expand(family):
        out.setdefault(_shape(ins), []).append(ins)
    return out


def other_instruction(kernel: RecordedKernel) -> Iterator[Variant]:
    """Another type or modifier in the opcode, of an instruction with the same registers."""
    ins, names = kernel.ins, [f.name for f in fields(MatrixInstruction) if f.name != "form"]
    for other in _relatives(ins.form.family)[_shape(ins)]:
        if kernel.target.name not in other.targets or any(
            other.fragment(name).registers != x.registers for name, x in ins.fragments.items()
        ):
            continue
        texts = []
        for field in names:
            new, old = getattr(other, field), getattr(ins, field)
            said = _SAID.get(field, field)
            if isinstance(new, bool) and new != old:
                texts.append(f"{said} {'added' if new else 'missing'}")
            elif new != old:
                texts.append(f"{said} {new} instead of {old}")
        if (new := other.form.bit_operation) != (old := ins.form.bit_operation):
            texts.append(f".{new}.popc instead of .{old}.popc")
        if 1 <= len(texts) <= 2:
            yield Variant("", ", ".join(texts), replace(kernel, ins=other))


def other_target(kernel: RecordedKernel) -> Iterator[Variant]:
    """The bits are those of another generation."""
    seen = {kernel.ins.recipe(kernel.target).steps}
    for name in kernel.ins.targets:
        steps = kernel.ins.recipe(name).steps
        if steps not in seen:
            seen.add(steps)
            target = TARGETS[name]
            text = f"computed as {target.generation} ({name}) does, not {kernel.target}"
            yield Variant("", text, replace(kernel, target=target))


def converted_elements(kernel: RecordedKernel) -> Iterator[Variant]:
    """Elements whose bits are those of another type."""
    for name in "ab":
        fmt = FORMATS[getattr(kernel.ins, f"{name}_type")]
        if not fmt.is_float:
            continue
        codes, matrix = kernel.matrix(name), name.upper()
        for other in FORMATS.values():
            same_size = other.bits == fmt.bits and other.signed and other != fmt
            if other.is_float and same_size and not fmt.ignored_bits:
                text = f"the bits in {matrix} are {other.name}, the instruction takes {fmt.name}"
                yield from _with_matrix(kernel, name, text, convert(fmt, other, codes))
        if np.any(codes & codes.dtype.type((1 << fmt.ignored_bits) - 1)):
            text = f"{matrix} rounded to tf32 (cvt.rna.tf32.f32), not cut"
            whole = codes.astype(np.uint32)
            rounded = conversions.convert(FORMATS["f32"], FORMATS["tf32"], whole, "rna")
            yield from _with_matrix(kernel, name, text, rounded)
