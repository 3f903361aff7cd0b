"""``lane_unique``: operands that make every element of every lane distinguishable in D.

Each case of the batch shows one operand. The others pick it out: with a B that holds a single one
in each column, D[i][j] is an element of A, exactly, whatever the arithmetic. The element is a digit
of its own number 1, 2, 3 … in as large a base as its type has numbers, so a type with few numbers
takes several cases, one for each digit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtypes import Array, Format, code_type, decode_values, encode
from emulator.arrays import as_array
from emulator.errors import OperandError, one_of
from emulator.isa.instruction import Instruction
from emulator.isa.matrix import MatrixInstruction
from emulator.tools.operands import (
    Multiplication,
    as_multiplication,
    format_of,
    operand_shapes,
    traits,
)
from emulator.tools.testing.lane_inputs import Inputs
from emulator.warp.sparse import legal_nibbles, stored_columns

#: significand bits that every accumulator keeps (those of fp8 on Hopper's wgmma)
_KEPT_BITS = 14
#: powers of two that ue8m0 scales are taken from: 2**-48 … 2**48
_SCALE_REACH = 48
#: misplaced elements that are named one by one
_SHOWN = 8

Index = NDArray[np.intp]


class Case(NamedTuple):
    """Meaning of one entry of the batch: `digit` of the numbers of some elements of `operand`."""

    operand: str
    digit: int
    #: columns of A, rows of B, places along k: D shows k = first, first + 1, …
    first: int


@dataclass(frozen=True, repr=False)
class LaneUnique(Inputs):
    """`Inputs` with a batch of cases; `misplaced` reads from a D what lay where."""

    cases: tuple[Case, ...] = ()

    def found(self, d: object) -> dict[str, Index]:
        """By operand, the number of the element that D shows at each place, as a matrix.

        The element at flat index i has number i + 1; −1 is what no element would give. `d` are
        registers ``(cases, lanes, registers)`` or matrices of codes ``(cases, [4,] m, n)``.
        """
        codes = self._matrix(d)
        out: dict[str, Index] = {}
        for operand in dict.fromkeys(case.operand for case in self.cases):
            symbols = _alphabet(self.ins, operand)
            mine = [case for case in self.cases if case.operand == operand]
            number = np.zeros(operand_shapes(self.ins)[operand], np.intp)
            wrong = np.zeros(number.shape, np.bool_)
            for digit in range(1 + max(case.digit for case in mine)):
                shown = [
                    (c, codes[i]) for i, c in enumerate(self.cases) if c[:2] == (operand, digit)
                ]
                value = _read(self.ins, operand, shown)
                number += value * len(symbols) ** digit
                wrong |= value < 0
            out[operand] = np.where(wrong, -1, number)
        return out

    def misplaced(self, d: object) -> list[str]:
        """A line for each element that lies at another's place, [] where all lie at their own.

        Of a fault in A some of B seem misplaced too, and the other way round, since each picks out
        the other. Columns of A exchanged in all rows are the same to D as rows of B exchanged.
        """
        lines = []
        for operand, number in self.found(d).items():
            own = np.arange(1, number.size + 1).reshape(number.shape)
            for index in np.argwhere(number != own):
                place = tuple(int(i) for i in index)
                other = int(number[place]) - 1
                what = "is none of the elements"
                if 0 <= other < number.size:
                    home = tuple(int(i) for i in np.unravel_index(other, number.shape))
                    what = f"is what belongs to {self._place(operand, home)}"
                lines.append(f"the element at {self._place(operand, place)} {what}")
        return lines

    def check(self, d: object) -> None:
        """Raises AssertionError, naming elements, unless D shows all of them at their places."""
        __tracebackhide__ = True
        if lines := self.misplaced(d):
            more = [f"… and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
            raise AssertionError(
                "\n".join([f"{len(lines)} elements are misplaced", *lines[:_SHOWN], *more])
            )

    def _matrix(self, d: object) -> Array:
        fragment, given = self.ins.fragment("d"), as_array(d, "d")
        codes = given
        if codes.shape[-2:] == (fragment.lanes, fragment.registers):
            codes = fragment.gather(codes)
        want = fragment.lane_map.shape if fragment.groups > 1 else fragment.shape
        if codes.shape != (len(self.cases), *want) or codes.dtype.kind != "u":
            raise OperandError(
                f"D of all {len(self.cases)} cases is needed, unsigned registers or codes; "
                f"got {given.dtype} {given.shape}"
            )
        return codes

    def _place(self, operand: str, index: tuple[int, ...]) -> str:
        *group, row, col = index
        name = f"{operand.upper() if len(operand) == 1 else operand}[{row}][{col}]"
        which = f" of matrix {group[0]}" if group else ""
        if operand == "b" and traits(self.ins).wgmma:
            return name + which
        held = self.ins.fragment("e" if operand == "nibbles" else operand)
        number = group[0] if group else self.selector if operand == "nibbles" else 0
        where = held.lane(row, col, number if held.groups > 1 else 0)
        return f"{name}{which} ({where.words})"


def lane_unique(ins: Instruction | str, operand: str = "", *, selector: int = 0) -> LaneUnique:
    """Operands for tests of how a kernel fills registers: no two elements are alike in all cases.

    The batch has cases for a, b, c, nibbles (metadata) and scales, or for one `operand`; D is exact
    on every target, and ``.misplaced(d)`` reads it. Raises OperandError for an instruction that
    does not multiply and for an operand that it lacks. `ins` may be an opcode.
    """
    ins = as_multiplication(ins)
    shapes = operand_shapes(ins)
    asked: Iterable[str] = shapes
    if not isinstance(operand, str) or operand:
        asked = [one_of(f"an operand of {ins}", operand, shapes)]
    cases: list[Case] = []
    for name in asked:
        base, largest = len(_alphabet(ins, name)), int(np.prod(shapes[name]))
        digits = next(d for d in range(1, 64) if base**d > largest)
        cases += [Case(name, d, first) for d in range(digits) for first in _steps(ins, name)]
    matrices = {
        name: np.zeros((len(cases), *shape), code_type(format_of(ins, name).bits))
        for name, shape in shapes.items()
    }
    for i, case in enumerate(cases):
        for name, codes in _operands(ins, case):
            matrices[name][i] = codes
    return LaneUnique(ins, matrices, selector, tuple(cases))


# --- numbers of elements --------------------------------------------------------------------------


@cache
def _alphabet(ins: Multiplication, operand: str) -> Array:
    """Codes with unlike numbers that reach D exactly: the digits 0, 1, 2, …"""
    fmt = format_of(ins, operand)
    if operand == "nibbles":
        assert isinstance(ins, MatrixInstruction)
        # Descending indices would show the same columns.
        legal = [x for x in legal_nibbles(ins) if x & 3 < x >> 2]
        return np.array(legal, np.uint8)
    if fmt.name == "ue8m0":
        codes = np.arange(fmt.bias - _SCALE_REACH, fmt.bias + _SCALE_REACH)
    elif fmt.bits > 8:
        kept = min(_significand_bits(fmt), _significand_bits(ins.fragment("d").fmt), _KEPT_BITS)
        return encode(fmt, np.arange((1 << kept) + 1))
    else:
        codes = np.arange(operand.startswith("scale"), fmt.code_mask + 1)
        finite = np.isfinite(decode_values(fmt, codes))
        negative_zero = fmt.is_float & (codes == fmt.sign_mask) & (codes > 0)
        codes = codes[finite & ~negative_zero]
    return codes.astype(code_type(fmt.bits))


def _significand_bits(fmt: Format) -> int:
    return fmt.precision if fmt.is_float else fmt.bits - 1


def _digit(ins: Multiplication, case: Case) -> Array:
    """The matrix of one digit of all numbers."""
    symbols, shape = _alphabet(ins, case.operand), operand_shapes(ins)[case.operand]
    numbers = np.arange(1, int(np.prod(shape)) + 1, dtype=np.int64).reshape(shape)
    codes: Array = symbols[numbers // len(symbols) ** case.digit % len(symbols)]
    return codes


def _one(fmt: Format) -> int:
    return int(encode(fmt, np.array(1))) if fmt.kind != "bits" else 1


# --- the other operands, which pick one out -------------------------------------------------------


def _steps(ins: Multiplication, operand: str) -> range:
    """Values of `Case.first`."""
    if operand == "a":
        return range(0, operand_shapes(ins)["a"][-1], ins.n)
    if operand == "b":
        return range(0, ins.k, ins.m)
    if operand == "nibbles":
        return range(0, ins.k, ins.n)
    if operand.startswith("scale"):
        assert isinstance(ins, MatrixInstruction)
        return range(ins.scale_chunks)
    return range(1)


@cache
def _kept(ins: MatrixInstruction) -> Index:
    """``(nibbles, stored columns of a chunk)``: the columns of a chunk that each nibble keeps."""
    return stored_columns(ins, _alphabet(ins, "nibbles")[:, None])


def _columns(ins: Multiplication) -> Index:
    """The column of the full A that each stored column is, where all nibbles are the first."""
    if not traits(ins).sparse:
        return np.arange(ins.k)
    assert isinstance(ins, MatrixInstruction)
    chunks = np.arange(0, ins.k, ins.chunk)
    return (chunks[:, None] + _kept(ins)[0]).reshape(-1)


def _operands(ins: Multiplication, case: Case) -> Iterator[tuple[str, Array]]:
    """The operands of one case that are not all zero."""
    operand, columns, shapes = case.operand, _columns(ins), operand_shapes(ins)
    yield operand, _digit(ins, case)
    for name in ("scale_a", "scale_b"):
        if name in shapes and name != operand:
            yield name, np.full(shapes[name], _one(format_of(ins, name)))
    a, b = (np.zeros(shapes[name], code_type(format_of(ins, name).bits)) for name in "ab")
    a_one, b_one = _one(format_of(ins, "a")), _one(format_of(ins, "b"))
    nibbles = None
    if "nibbles" in shapes:
        nibbles = np.full(shapes["nibbles"], _alphabet(ins, "nibbles")[0])
    if operand == "a":
        some = columns[case.first : case.first + ins.n]
        b[..., some, np.arange(len(some))] = b_one
        yield "b", b
    elif operand == "b":
        for row, k in enumerate(range(case.first, min(case.first + ins.m, ins.k))):
            a[..., row, _store(ins, nibbles, row, k)] = a_one
        yield "a", a
    elif operand == "nibbles":
        some = np.arange(case.first, min(case.first + ins.n, ins.k))
        b[..., some, np.arange(len(some))] = b_one
        yield from (("a", a + a.dtype.type(a_one)), ("b", b))
    elif operand.startswith("scale"):
        place = case.first * len(columns) // shapes["scale_a"][-1]
        a[..., place], b[..., columns[place], :] = a_one, b_one
        yield from (("a", a), ("b", b))
    if nibbles is not None and operand != "nibbles":
        yield "nibbles", nibbles


def _store(ins: Multiplication, nibbles: Array | None, row: int, k: int) -> int:
    """The stored column of A that meets row `k` of B, for which a nibble of `row` may change."""
    if nibbles is None:
        return k
    assert isinstance(ins, MatrixInstruction)
    chunk, column = divmod(k, ins.chunk)
    kept = _kept(ins)
    nibble, place = (int(i) for i in np.argwhere(kept == column)[0])
    nibbles[row, chunk] = _alphabet(ins, "nibbles")[nibble]
    return chunk * kept.shape[1] + place


# --- reading D ------------------------------------------------------------------------------------


def _read(ins: Multiplication, operand: str, shown: list[tuple[Case, Array]]) -> Index:
    """The digits that D shows of one operand, as a matrix; −1 for what is none."""
    shape, fmt = operand_shapes(ins)[operand], ins.fragment("d").fmt
    if operand == "nibbles":
        return _read_nibbles(ins, [decode_values(fmt, codes) for _, codes in shown])
    values = np.zeros(shape)
    for case, codes in shown:
        d, first = decode_values(fmt, codes), case.first
        if operand == "a":
            width = min(ins.n, shape[-1] - first)
            values[..., first : first + width] = d[..., :width]
        elif operand == "b":
            height = min(ins.m, shape[-2] - first)
            values[..., first : first + height, :] = d[..., :height, :]
        elif operand == "c":
            values = d
        elif operand == "scale_a":
            values[:, first] = d[:, 0]
        else:
            values[first] = d[0]
    if ins.form.bit_operation == "xor" and operand in "ab":
        # D counts the ones of a row, and one more or less as this bit is 0 or 1.
        axis = -1 if operand == "a" else -2
        ones = (values.sum(axis, keepdims=True) - ins.k) / (ins.k - 2)
        values = (ones + 1 - values) / 2
    numbers = decode_values(format_of(ins, operand), _alphabet(ins, operand))
    order = np.argsort(numbers)
    place = order[np.minimum(np.searchsorted(numbers, values, sorter=order), len(order) - 1)]
    return np.where(numbers[place] == values, place, -1)


def _read_nibbles(ins: Multiplication, shown: list[Array]) -> Index:
    assert isinstance(ins, MatrixInstruction)
    kept = np.concatenate(shown, -1)[:, : ins.k].reshape(ins.m, -1, 1, ins.chunk)
    patterns = np.zeros((len(_kept(ins)), ins.chunk))
    np.put_along_axis(patterns, _kept(ins), 1, -1)
    same = (kept == patterns).all(-1)
    return np.where(same.any(-1), same.argmax(-1), -1)
