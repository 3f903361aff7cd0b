"""``assert_bits_equal``: two arrays bit for bit, and a message that says what kind of difference.

Arrays of numbers, of element codes, or of lane registers with the fragment that says which element
each holds. `find_differences` returns what the message is made of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, get_args

import numpy as np

from dtypes import (
    FORMATS,
    Array,
    Format,
    Place,
    array_from_codes,
    array_type,
    decode_values,
    unpack,
)
from emulator.arrays import as_array
from emulator.errors import EmulatorError, OperandError, needed, one_of, shown
from emulator.isa.instruction import Instruction, as_instruction
from emulator.layout.fragment import Fragment, Location
from emulator.report import Report
from emulator.tools.operands import as_codes
from emulator.tools.testing.difference_kinds import (
    KINDS,
    Kinds,
    Nan,
    SignedZero,
    find_format,
    forgive,
    kinds,
    ulps,
)

#: differing elements that a message shows one by one
SHOWN = 8
#: characters of a name that a message repeats
_LONGEST_NAME = 120


def assert_bits_equal(
    actual: object,
    expected: object,
    *,
    fmt: Format | str | None = None,
    fragment: Fragment | Instruction | str | None = None,
    nan: Nan = "payload",
    signed_zero: SignedZero = "differ",
    name: str = "",
) -> None:
    """Raises AssertionError unless both arrays are of one shape and type and have the same bits.

    Arrays are NumPy or ml_dtypes numbers, unsigned words, or with `fmt` element codes of that
    format. With `fragment` (or an Instruction: its d) words ``(…, lanes, registers)`` are lane
    registers and arrays ``(…, rows, cols)`` the matrix in them; the message then names lanes,
    registers and bits. ``nan="any"`` takes all NaNs for equal, ``signed_zero="equal"`` +0 and −0.

    The message has the number of differences, the first of them (index, both bit patterns, values,
    ulps), and how many there are of each kind; `name` is what it calls the arrays. Raises
    OperandError for arguments that make no sense, such as codes that do not fit the format.
    """
    __tracebackhide__ = True
    try:
        found = find_differences(
            actual,
            expected,
            fmt=fmt,
            fragment=fragment,
            nan=nan,
            signed_zero=signed_zero,
            name=name,
        )
    except EmulatorError as error:
        # Of a mistake in the call, the line of the test says more than ours.
        raise error.with_traceback(None) from None
    if found is not None:
        raise AssertionError(str(found))


@dataclass(frozen=True, repr=False, eq=False)
class Differences(Report):
    """Differences between two arrays of codes; `str` gives the message."""

    fmt: Format | None
    actual: Array
    expected: Array
    #: index into KINDS of every pair, 0 where they are equal
    kinds: Kinds
    #: words for the place of an index
    place: Callable[[tuple[int, ...]], str]
    #: one number for people, from a code
    show: Callable[[object], str]
    name: str = ""
    code: int = 1

    @property
    def count(self) -> int:
        return int(np.count_nonzero(self.kinds))

    @cached_property
    def indices(self) -> list[tuple[int, ...]]:
        """Indices of all that differ, in the order of the array."""
        return [tuple(int(i) for i in index) for index in np.argwhere(self.kinds)]

    @property
    def histogram(self) -> dict[str, int]:
        """Number of differences of each kind, the most frequent first."""
        numbers, counts = np.unique(self.kinds[self.kinds != 0], return_counts=True)
        pairs = zip(numbers, counts, strict=True)
        return {KINDS[kind]: int(n) for kind, n in sorted(pairs, key=lambda pair: -pair[1])}

    @property
    def title(self) -> str:
        what = f"{self.name}: " if self.name else ""
        of = f" of {self.fmt.name}" if self.fmt is not None else ""
        kinds = ", ".join(f"{kind}: {n}" for kind, n in self.histogram.items())
        return f"{what}{self.count} of {self.kinds.size} elements{of} differ ({kinds})"

    @property
    def data(self) -> dict[str, object]:
        """The numbers, and the first differences one by one."""
        shown = [
            {"index": list(index), "place": self.place(index), "kind": KINDS[self.kinds[index]],
             "actual": self._bits(self.actual[index]),
             "expected": self._bits(self.expected[index])}
            for index in self.indices[:SHOWN]
        ]  # fmt: skip
        return {
            "name": self.name, "format": None if self.fmt is None else self.fmt.name,
            "elements": int(self.kinds.size), "count": self.count, "kinds": self.histogram,
            "first": shown,
        }  # fmt: skip

    def lines(self) -> Iterator[str]:
        first, *more = self.indices[:SHOWN]
        yield self.title
        yield f"first at {self.place(first)}"
        yield from self._pair(first)
        if more:
            yield "then"
        yield from (f"  {self.place(index)}: {self._line(index)}" for index in more)
        if self.count > SHOWN:
            yield f"  … and {self.count - SHOWN} more"

    def _pair(self, index: tuple[int, ...]) -> list[str]:
        out = []
        for what, codes in (("actual", self.actual), ("expected", self.expected)):
            out.append(f"  {what:8} {self._bits(codes[index])} = {self.show(codes[index])}")
        return [*out, f"  {self._distance(index)}"]

    def _line(self, index: tuple[int, ...]) -> str:
        got, want = self.actual[index], self.expected[index]
        return (
            f"{self._bits(got)} = {self.show(got)}, expected {self._bits(want)} = "
            f"{self.show(want)}; {self._distance(index)}"
        )

    def _bits(self, code: Any) -> str:
        bits = self.actual.dtype.itemsize * 8 if self.fmt is None else self.fmt.bits
        return f"{int(code):#0{2 + -(-bits // 4)}x}"

    def _distance(self, index: tuple[int, ...]) -> str:
        """The kind, and how far apart two numbers are."""
        kind = KINDS[self.kinds[index]]
        plain = self.fmt is None or self.fmt.kind == "bits"
        if plain or any(word in kind for word in ("NaN", "bits", "zero", "1 ulp")):
            return kind
        assert self.fmt is not None
        here = tuple(slice(i, i + 1) for i in index)
        steps = int(ulps(self.fmt, self.actual[here], self.expected[here]).reshape(-1)[0])
        if not self.fmt.is_float:
            return f"{kind}, difference {steps}"
        return f"{kind}, {steps} {'ulp' if steps == 1 else 'ulps'} apart"


def find_differences(
    actual: object,
    expected: object,
    *,
    fmt: Format | str | None = None,
    fragment: Fragment | Instruction | str | None = None,
    nan: Nan = "payload",
    signed_zero: SignedZero = "differ",
    name: str = "",
) -> Differences | None:
    """Finds the differences that `assert_bits_equal` reports; None where the arrays are equal.

    Raises AssertionError for arrays of unlike shape or type, OperandError as there.
    """
    __tracebackhide__ = True
    for what, given, legal in (("nan", nan, Nan), ("signed_zero", signed_zero, SignedZero)):
        one_of(f"{what}=", given, get_args(legal))
    if len(needed(str, name)) > _LONGEST_NAME:
        name = f"{name[:_LONGEST_NAME]}…"
    if isinstance(fragment, Instruction | str):
        fragment = as_instruction(fragment).fragment("d")
    if not isinstance(fragment, Fragment | None):
        raise OperandError(
            f"fragment= is a Fragment, an Instruction or its opcode; got {shown(fragment)}"
        )
    known = None if fmt is None else find_format(fmt)
    if fragment is not None:
        if known not in (None, fragment.fmt):
            raise OperandError(
                f"fragment= holds {fragment.fmt.name}, not {known.name}: leave out fmt="
            )
        known = fragment.fmt
    actual, expected = as_array(actual, "actual"), as_array(expected, "expected")
    _check_alike(actual, expected, known, name)
    if fragment is not None and _are_registers(fragment, actual):
        got, want = fragment.check_registers(actual), fragment.check_registers(expected)
        return _registers(fragment, got, want, nan, signed_zero, name)

    meant = known or _format_of_type(actual.dtype)
    place = _index if fragment is None else _matrix_place(fragment, actual.shape)
    got, want = _codes(actual, meant, "actual"), _codes(expected, meant, "expected")
    found = forgive(kinds(meant, got, want), nan, signed_zero)
    if not found.any():
        return None
    return Differences(meant, got, want, found, place, _shower(meant, actual.dtype), name)


# --- the two arrays -------------------------------------------------------------------------------


def _check_alike(actual: Array, expected: Array, fmt: Format | None, name: str) -> None:
    __tracebackhide__ = True
    (m, n), hint, what = (actual.shape, expected.shape), "", "shapes"
    if m != n:
        if len(m) > 1 and m == (*n[:-2], *n[:-3:-1]):
            hint = "; one is the transpose of the other"
        elif np.prod(m) == np.prod(n):
            hint = "; both have the same number of elements"
    else:
        # Codes on one side and numbers on the other have the same bits in a known format.
        mixed = fmt is not None and "u" in (actual.dtype.kind, expected.dtype.kind)
        if actual.dtype == expected.dtype or mixed:
            return
        what = "types"
        if actual.dtype.itemsize == expected.dtype.itemsize:
            hint = "; .view gives bits of another type, .astype its numbers"
    raise AssertionError(
        f"{name}{': ' if name else ''}{what} differ: actual is {actual.dtype} {m}, expected is "
        f"{expected.dtype} {n}{hint}"
    )


def _format_of_type(dtype: np.dtype[Any]) -> Format | None:
    """The format whose numbers an array of this type holds; None for words and all others."""
    for fmt in FORMATS.values():
        if fmt.kind != "bits" and fmt.array_type in (dtype.name, f"ml_dtypes.{dtype.name}"):
            return fmt
    return None


def _codes(array: Array, fmt: Format | None, what: str) -> Array:
    """The bits of an array: codes of `fmt`, or words of its own size."""
    native = array.astype(array.dtype.newbyteorder("="), order="C", copy=False)
    if fmt is not None:
        if array.dtype.kind != "u" and native.dtype != array_type(fmt):
            raise OperandError(
                f"{what}: {array.dtype} is neither {array_type(fmt)}, the type of {fmt.name}, nor "
                "codes; codes are unsigned integers"
            )
        return as_codes(what, fmt, native)
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        raise OperandError(f"{what}: bits of {array.dtype} arrays are not compared")
    return np.ascontiguousarray(native).view(f"u{array.dtype.itemsize}")


def _shower(fmt: Format | None, dtype: np.dtype[Any]) -> Callable[[Any], str]:
    """The function that writes the number of a code: as its own type writes it, for it is the
    shortest."""

    def show(code: object) -> str:
        codes = np.array([code])
        if fmt is None:
            return str(codes.view(dtype)[0])
        if array_type(fmt) is None:
            return str(decode_values(fmt, codes)[0])
        return str(array_from_codes(fmt, codes)[0])

    return show


# --- places ---------------------------------------------------------------------------------------


def _index(index: tuple[int, ...]) -> str:
    return "the only element" if not index else str(list(index))


def _are_registers(fragment: Fragment, array: Array) -> bool:
    words = array.dtype.kind == "u" and array.dtype.itemsize * 8 == fragment.word_bits
    return words and array.shape[-2:] == (fragment.lanes, fragment.registers)


def _matrix_place(fragment: Fragment, shape: tuple[int, ...]) -> Callable[[tuple[int, ...]], str]:
    """The place of an element of a matrix ``(…, [groups,] rows, cols)``, and who holds it."""
    want = fragment.lane_map.shape if fragment.groups > 1 else fragment.shape
    if shape[-len(want) :] != want:
        raise OperandError(
            f"with this fragment arrays are registers (…, {fragment.lanes}, {fragment.registers}) "
            f"or matrices (…, {', '.join(map(str, want))}); got {shape}"
        )

    def place(index: tuple[int, ...]) -> str:
        *rest, row, col = index
        group = rest.pop() if fragment.groups > 1 else 0
        held = fragment.lane(row, col, group).words
        return f"{_element(fragment, group, row, col)}, {held}{_batch(rest)}"

    return place


def _registers(
    fragment: Fragment, actual: Array, expected: Array, nan: Nan, signed_zero: SignedZero, name: str
) -> Differences | None:
    """As `find_differences`, of lane registers, element by element."""
    where, word_bits = fragment.place, fragment.word_bits
    got, want = (unpack(x, where, word_bits) for x in (actual, expected))
    found = forgive(kinds(fragment.fmt, got, want), nan, signed_zero)
    # Elements that are alike may lie among bits of a register that no element uses.
    unlike = unpack(actual ^ expected, Place(where.width, 0, where.width), word_bits) != 0
    found[(got == want) & unlike] = KINDS.index("padding bits")
    if not found.any():
        return None

    def place(index: tuple[int, ...]) -> str:
        *rest, lane, element = index
        register, number = divmod(element, word_bits // where.width)
        row, col = (int(x) for x in fragment.coords[lane, element])
        group = int(fragment.group[lane, element])
        held = Location(lane, register, number * where.width + where.shift, where.code_bits)
        return f"{held.words}, {_element(fragment, group, row, col)}{_batch(rest)}"

    show = _shower(fragment.fmt, actual.dtype)
    return Differences(fragment.fmt, got, want, found, place, show, name)


def _element(fragment: Fragment, group: int, row: int, col: int) -> str:
    which = f" of matrix {group}" if fragment.groups > 1 else ""
    return f"{fragment.operand.upper()}[{row}][{col}]{which}"


def _batch(index: list[int]) -> str:
    return f" (batch {index})" if index else ""
