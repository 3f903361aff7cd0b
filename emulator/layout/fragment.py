"""``Fragment``: one operand of an instruction, between lane registers and a matrix."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from dtypes import Array, Format, Place, code_type, pack, unpack
from emulator.arrays import accepts_tensors, as_array
from emulator.errors import OperandError, as_integer, shown, whole
from emulator.layout.lanemap import Index, LaneMap

#: owners of the matrices of an operand that has several
_GROUPS = {"e": "selectors", "scale_a": "choices of ids", "scale_b": "choices of ids"}


class Location(NamedTuple):
    """The place of one element: bits ``[low_bit, low_bit + bits)`` of `register` of `lane`."""

    lane: int
    register: int
    low_bit: int
    bits: int

    @property
    def words(self) -> str:
        last = self.low_bit + self.bits - 1
        return f"lane {self.lane}, register {self.register}, bits {self.low_bit}…{last}"


@dataclass(frozen=True)
class Fragment:
    """The lane map of one matrix operand: which lane and register holds which element.

    Arrays of registers are ``(…, lanes, registers)`` words, matrices ``(…, rows, cols)`` codes.
    Where the lanes hold several matrices (`groups` > 1: the computations of m8n8k4.f16, the choices
    of a sparsity selector or of scale ids) matrices are ``(…, groups, rows, cols)``.
    """

    #: operand letter, as in ``d, a, b, c``
    operand: str
    fmt: Format
    place: Place
    lane_map: LaneMap
    #: 64 for `.f64` registers
    word_bits: int = 32

    @cached_property
    def groups(self) -> int:
        return self.lane_map.shape[0]

    @cached_property
    def shape(self) -> tuple[int, int]:
        """(rows, cols) of the matrix."""
        return self.lane_map.shape[1:]

    @cached_property
    def lanes(self) -> int:
        return self.lane_map.flat.shape[0]

    @cached_property
    def elements(self) -> int:
        """Elements that one lane holds."""
        return self.lane_map.flat.shape[1]

    @cached_property
    def registers(self) -> int:
        """Registers that one lane holds them in."""
        return self.elements * self.place.width // self.word_bits

    @property
    def coords(self) -> Index:
        """``(lanes, elements, 2)``: (row, col) of each element, lowest bits of register 0 first."""
        return self.lane_map.coordinates[..., 1:]

    @property
    def group(self) -> Index:
        """``(lanes, elements)``: which of the `groups` matrices each element belongs to."""
        return self.lane_map.coordinates[..., 0]

    @accepts_tensors(words=True)
    def gather(self, registers: Array) -> Array:
        """Registers ``(…, lanes, registers)`` to codes ``(…, [groups,] rows, cols)``.

        Raises OperandError for an array of another shape or of words of another size.
        """
        words = self.check_registers(registers)
        codes = unpack(words, self.place, self.word_bits)
        flat = codes.reshape(*codes.shape[:-2], self.lanes * self.elements)
        matrices = flat.take(self.lane_map.inverse, -1)
        return matrices if self.groups > 1 else matrices[..., 0, :, :]

    @accepts_tensors(words=True)
    def scatter(self, codes: Array) -> Array:
        """Codes ``(…, [groups,] rows, cols)`` to registers; the inverse of `gather`."""
        codes = as_array(codes, f"operand {self.operand}")
        want = self.lane_map.shape if self.groups > 1 else self.shape
        if codes.shape[-len(want) :] != want or codes.dtype.kind != "u":
            sizes = ", ".join(map(str, self.shape))
            if self.groups > 1:
                sizes = f"{self.groups} {_GROUPS.get(self.operand, 'matrices')}, {sizes}"
            bits = " (use .view to keep the bits)" if codes.dtype.kind != "u" else ""
            raise OperandError(
                f"operand {self.operand}: codes must be unsigned integers (…, {sizes}); "
                f"got {codes.dtype} {codes.shape}{bits}"
            )
        spare = codes.dtype.itemsize * 8 > self.place.code_bits
        if spare and codes.size and int(codes.max()) >> self.place.code_bits:
            raise OperandError(
                f"operand {self.operand}: code {int(codes.max()):#x} does not fit the "
                f"{self.place.code_bits} bits of {self.fmt.name}"
            )
        flat = codes.reshape(*codes.shape[: -len(want)], self.lanes * self.elements)
        return pack(flat.take(self.lane_map.flat, -1), self.place, self.word_bits)

    def check_registers(self, registers: Array) -> Array:
        """`registers` as unsigned words, or OperandError."""
        words = as_array(registers, f"operand {self.operand}")
        want = (self.lanes, self.registers)
        if words.dtype.kind != "u" or words.dtype.itemsize * 8 != self.word_bits:
            raise OperandError(
                f"operand {self.operand}: registers must be uint{self.word_bits} words; "
                f"got {words.dtype} (use .view to keep the bits)"
            )
        if words.shape[-2:] != want:
            raise OperandError(
                f"operand {self.operand}: registers must be (…, {want[0]} lanes, {want[1]} "
                f"registers) of {self.fmt.name}; got {words.shape}"
            )
        return words

    def lane(self, row: int, col: int, group: int = 0) -> Location:
        """The place of element (row, col).

        >>> from emulator import Instruction
        >>> a = Instruction.parse("mma.sync.aligned.m8n8k32.row.col.s32.s4.s4.s32").fragment("a")
        >>> a.lane(5, 10)
        Location(lane=21, register=0, low_bit=8, bits=4)
        """
        sizes = dict(zip(("group", "row", "column"), self.lane_map.shape, strict=True))
        for (what, size), index in zip(sizes.items(), (group, row, col), strict=True):
            self._check_index(what, index, size)
        lane, element = divmod(int(self.lane_map.inverse[group, row, col]), self.elements)
        register, low = divmod(element * self.place.width, self.word_bits)
        return Location(lane, register, low + self.place.shift, self.place.code_bits)

    def element(self, lane: int, register: int) -> list[tuple[int, int]]:
        """(row, col) of the elements in one register, lowest bits first."""
        for what, index, size in (
            ("lane", lane, self.lanes),
            ("register", register, self.registers),
        ):
            self._check_index(what, index, size)
        per_register = self.word_bits // self.place.width
        held = self.coords[lane, register * per_register : (register + 1) * per_register]
        return [(int(row), int(col)) for row, col in held]

    def _check_index(self, what: str, index: object, size: int) -> None:
        number = as_integer(index)
        if number is None or not 0 <= number < size:
            raise OperandError(
                f"operand {self.operand}: {what} {shown(index)} is out of range; it has {size} "
                f"{what}s, 0 … {size - 1}"
            )

    def zeros(self, *batch: int) -> Array:
        """Registers that are all zero; raises OperandError for sizes of a batch that are none."""
        sizes = tuple(whole("a size of a batch", size) for size in batch)
        try:
            return np.zeros((*sizes, self.lanes, self.registers), code_type(self.word_bits))
        except (ValueError, MemoryError, OverflowError):
            raise OperandError(f"a batch {shown(batch)} does not fit in memory") from None

    def _repr_svg_(self) -> str:
        """For notebooks: the matrix, its elements labelled by lane and register."""
        from emulator.layout.grids import fragment_svg

        return fragment_svg(self)

    def _repr_html_(self) -> str:
        """The same as a part of the notebook, where pointing at an element tells of it."""
        return self._repr_svg_()
