"""Debugger: source variables in registers, what the sections ``.debug_info`` of a PTX file say
(``nvcc -G``).

A register stands there as a number whose bytes spell its name: 0x256631 is ``%f1``.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from emulator.errors import OperandError
from emulator.ptx.debug_information import NAME, PARAMETER, Entry, Reader, entries, sections
from emulator.ptx.program import Program

_LABEL = re.compile(r"^\s*([A-Za-z_$%][\w$]*):", re.M)
_FUNCTION = re.compile(r"^[^\n/]*\.(?:entry|func)\b", re.M)
#: values of names that are no labels: the number of the name is added
_NAMES = 1 << 40
#: attributes
_LOCATION, _LOW, _HIGH, _SIZE, _ENCODING, _ORIGIN, _TYPE = 2, 17, 18, 11, 62, 49, 73
#: tags
_POINTER, _VARIABLE = 15, 52
#: tags of types that are other types' names: typedef, const, volatile
_ALIASES = (22, 38, 53)
#: operations of locations
_ADDRESS, _REGISTER = 3, 144
#: encodings of base types -> the letter of PTX's type
_LETTERS = {2: "u", 4: "f", 5: "s", 6: "s", 7: "u", 8: "u"}


class Variable(NamedTuple):
    """A variable of the source where it is in a register, or a parameter."""

    name: str
    #: "%f1", or the name of a parameter of the kernel
    place: str
    #: "s32"; "" where the file does not say
    type: str
    first: int
    last: int


def variables_of(text: str, program: Program) -> tuple[Variable, ...]:
    """The variables that a PTX file describes, with the statements from `first` to before `last`
    where they are in their place; none where it describes them in a way that is not known here."""
    try:
        return tuple(_Sections(text, program).variables())
    except (OperandError, LookupError, TypeError, ValueError):  # numbers that mean nothing
        return ()


class _Sections:
    """The sections of one file as bytes, where names have become numbers."""

    def __init__(self, text: str, program: Program) -> None:
        placed = sorted((statement.at, statement.pc) for statement in program.statements)
        self._labels: dict[str, int] = {}
        for match in _LABEL.finditer(text):
            at = bisect_left(placed, (match.start(), 0))
            after = placed[at][0] if at < len(placed) else len(text)
            if at and _FUNCTION.search(text, match.end(), after):
                # The end of a function; the next statement is another's.
                self._labels[match[1]] = placed[at - 1][1] + 1
            elif at < len(placed):
                self._labels[match[1]] = placed[at][1]
            else:
                self._labels[match[1]] = placed[-1][1] + 1 if placed else 0
        self._end = len(program.statements)
        self._names: list[str] = []
        self._bytes = sections(text, self._value)

    def _value(self, item: str) -> int:
        """The pc of a label, an offset in a section, or the number of another name."""
        name, _, more = item.partition("+")
        if name.startswith(".debug"):
            return int(more or 0)
        if name in self._labels:
            return self._labels[name]
        self._names.append(name)
        return _NAMES + len(self._names) - 1

    # --- entries ---

    def variables(self) -> Iterator[Variable]:
        found = list(entries(self._bytes))
        known = {entry.offset: entry for entry in found}
        scopes = [(0, self._end)]
        for entry in found:
            held = entry.attributes
            first, last = scope = scopes[entry.depth]
            if _LOW in held and _HIGH in held and held[_HIGH] >= held[_LOW]:
                first, last = scope = held[_LOW], held[_HIGH]
            scopes[entry.depth + 1 :] = [scope]
            if entry.tag not in (PARAMETER, _VARIABLE) or _LOCATION not in held:
                continue
            origin = known.get(held.get(_ORIGIN, -1))
            described = {**(origin.attributes if origin else {}), **held}
            if NAME in described:
                type_ = self._type(described.get(_TYPE, -1), known)
                for place in self._places(held[_LOCATION], first, last):
                    yield Variable(described[NAME], place[0], type_, *place[1:])

    def _type(self, offset: int, known: Mapping[int, Entry], depth: int = 0) -> str:
        """The type of PTX that the words of a type have; "" for none."""
        entry = known.get(offset)
        if entry is None or depth > 16:
            return ""
        if entry.tag == _POINTER:
            return "u64"
        if entry.tag in _ALIASES:
            return self._type(entry.attributes.get(_TYPE, -1), known, depth + 1)
        letter = _LETTERS.get(entry.attributes.get(_ENCODING, -1), "")
        return f"{letter}{8 * entry.attributes.get(_SIZE, 0)}" if letter else ""

    # --- places ---

    def _places(self, location: Any, first: int, last: int) -> Iterator[tuple[str, int, int]]:
        if isinstance(location, bytes):
            if place := self._place(location):
                yield place, first, last
            return
        reader = Reader(self._bytes[".debug_loc"], location)
        while (span := (reader.number(8), reader.number(8))) != (0, 0):
            if place := self._place(reader.take(reader.number(2))):
                yield place, *span

    def _place(self, operations: bytes) -> str:
        """The register or the parameter that a location is; "" for anything else."""
        reader = Reader(operations)
        operation = reader.number(1)
        if operation == _REGISTER:
            number = reader.unsigned()
            raw = number.to_bytes((number.bit_length() + 7) // 8, "big")
            return raw.decode("ascii", "replace")
        if operation == _ADDRESS:
            name = reader.number(8) - _NAMES
            return self._names[name] if 0 <= name < len(self._names) else ""
        return ""
