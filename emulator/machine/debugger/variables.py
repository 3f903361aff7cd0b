"""Debugger: source variables in registers, what the sections ``.debug_info`` of a PTX file say
(``nvcc -G``).

PTX carries DWARF 2 as lists of numbers and names. A register stands there as a number whose bytes
spell its name: 0x256631 is ``%f1``.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from emulator.errors import OperandError
from emulator.ptx.program import Program

_SECTION = re.compile(r"^\s*\.section\s+(\.debug_\w+)\s*\{(.*?)\}", re.M | re.S)
_DATA = re.compile(r"\.b(8|16|32|64)\s+([^\n]*)")
_LABEL = re.compile(r"^\s*([A-Za-z_$%][\w$]*):", re.M)
_FUNCTION = re.compile(r"^[^\n/]*\.(?:entry|func)\b", re.M)
#: values of names that are no labels: the number of the name is added
_NAMES = 1 << 40
#: forms of attributes (DWARF 2, 7.5.4) -> bytes; the others are read by `_Reader.form`
_FIXED = {1: 8, 5: 2, 6: 4, 7: 8, 11: 1, 12: 1, 14: 4, 17: 1, 18: 2, 19: 4, 20: 8}
_STRING, _BLOCK, _SIGNED, _UNSIGNED = 8, 10, 13, 15
#: attributes
_LOCATION, _NAME, _LOW, _HIGH, _SIZE, _ENCODING, _ORIGIN, _TYPE = 2, 3, 17, 18, 11, 62, 49, 73
#: tags
_PARAMETER, _POINTER, _VARIABLE = 5, 15, 52
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
    sections = dict(_SECTION.findall(text))
    if ".debug_info" not in sections or ".debug_abbrev" not in sections:
        return ()
    reader = _Sections(text, program, sections)
    try:
        return tuple(reader.variables())
    except (OperandError, LookupError, TypeError, ValueError):  # numbers that mean nothing
        return ()


@dataclass
class _Entry:
    """A debugging information entry."""

    tag: int
    attributes: dict[int, Any]
    #: statements of the scope around it
    first: int
    last: int


class _Sections:
    """The sections of one file as bytes, where names have become numbers."""

    def __init__(self, text: str, program: Program, sections: Mapping[str, str]) -> None:
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
        self._bytes = {name: self._assembled(body, sections) for name, body in sections.items()}

    def _assembled(self, body: str, sections: Mapping[str, str]) -> bytes:
        out = bytearray()
        for bits, items in _DATA.findall(body):
            for item in items.split(","):
                value = self._value(item.strip(), sections)
                out += (value & (1 << int(bits)) - 1).to_bytes(int(bits) // 8, "little")
        return bytes(out)

    def _value(self, item: str, sections: Mapping[str, str]) -> int:
        """A number, the pc of a label, an offset in a section, or the number of another name."""
        if re.fullmatch(r"-?\d+|0[xX][0-9a-fA-F]+", item):
            return int(item, 0)
        name, _, more = item.partition("+")
        if name.startswith(".debug"):
            return int(more or 0)
        if name in self._labels:
            return self._labels[name]
        self._names.append(name)
        return _NAMES + len(self._names) - 1

    # --- entries ---

    def variables(self) -> Iterator[Variable]:
        entries = self._entries()
        for entry in entries.values():
            if entry.tag not in (_PARAMETER, _VARIABLE) or _LOCATION not in entry.attributes:
                continue
            origin = entries.get(entry.attributes.get(_ORIGIN, -1))
            described = {**(origin.attributes if origin else {}), **entry.attributes}
            if _NAME not in described:
                continue
            type_ = self._type(described.get(_TYPE, -1), entries)
            for place, first, last in self._places(entry):
                yield Variable(described[_NAME], place, type_, first, last)

    def _entries(self) -> dict[int, _Entry]:
        """The entries by their offsets."""
        kinds, reader = self._kinds(), _Reader(self._bytes[".debug_info"])
        out: dict[int, _Entry] = {}
        while reader.at + 11 <= len(reader.raw):
            start = reader.at
            end = start + 4 + reader.number(4)
            reader.at += 7  # version, offset of the abbreviations, size of addresses
            scopes = [(0, self._end)]
            while reader.at < end:
                offset, code = reader.at - start, reader.unsigned()
                if not code:
                    scopes.pop()
                    continue
                tag, inner, forms = kinds[code]
                held = {name: reader.form(form) for name, form in forms}
                first, last = scopes[-1]
                if _LOW in held and _HIGH in held and held[_HIGH] >= held[_LOW]:
                    first, last = held[_LOW], held[_HIGH]
                out[offset] = _Entry(tag, held, first, last)
                if inner:
                    scopes.append((first, last))
            reader.at = end
        return out

    def _kinds(self) -> dict[int, tuple[int, bool, Sequence[tuple[int, int]]]]:
        """Abbreviations: code -> tag, whether entries have others in them, attributes and forms."""
        reader = _Reader(self._bytes[".debug_abbrev"])
        out: dict[int, tuple[int, bool, Sequence[tuple[int, int]]]] = {}
        while code := reader.unsigned():
            tag, inner, forms = reader.unsigned(), reader.number(1) == 1, []
            while (pair := (reader.unsigned(), reader.unsigned())) != (0, 0):
                forms.append(pair)
            out[code] = tag, inner, forms
        return out

    def _type(self, offset: int, entries: Mapping[int, _Entry], depth: int = 0) -> str:
        """The type of PTX that the words of a type have; "" for none."""
        entry = entries.get(offset)
        if entry is None or depth > 16:
            return ""
        if entry.tag == _POINTER:
            return "u64"
        if entry.tag in _ALIASES:
            return self._type(entry.attributes.get(_TYPE, -1), entries, depth + 1)
        letter = _LETTERS.get(entry.attributes.get(_ENCODING, -1), "")
        return f"{letter}{8 * entry.attributes.get(_SIZE, 0)}" if letter else ""

    # --- places ---

    def _places(self, entry: _Entry) -> Iterator[tuple[str, int, int]]:
        location = entry.attributes[_LOCATION]
        if isinstance(location, bytes):
            if place := self._place(location):
                yield place, entry.first, entry.last
            return
        reader = _Reader(self._bytes[".debug_loc"], location)
        while (span := (reader.number(8), reader.number(8))) != (0, 0):
            if place := self._place(reader.take(reader.number(2))):
                yield place, *span

    def _place(self, operations: bytes) -> str:
        """The register or the parameter that a location is; "" for anything else."""
        reader = _Reader(operations)
        operation = reader.number(1)
        if operation == _REGISTER:
            number = reader.unsigned()
            raw = number.to_bytes((number.bit_length() + 7) // 8, "big")
            return raw.decode("ascii", "replace")
        if operation == _ADDRESS:
            name = reader.number(8) - _NAMES
            return self._names[name] if 0 <= name < len(self._names) else ""
        return ""


@dataclass
class _Reader:
    """Numbers and strings from bytes. Raises OperandError behind their end."""

    raw: bytes
    at: int = field(default=0)

    def take(self, size: int) -> bytes:
        held = self.raw[self.at : self.at + size]
        if len(held) < size:
            raise OperandError("a debug section ends too early")
        self.at += size
        return held

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little")

    def unsigned(self) -> int:
        """LEB128."""
        out = shift = 0
        while True:
            byte = self.number(1)
            out |= (byte & 127) << shift
            shift += 7
            if not byte & 128:
                return out

    def form(self, form: int) -> Any:
        """The value of an attribute: a number, a string, or the bytes of a block."""
        if form in _FIXED:
            return self.number(_FIXED[form])
        if form in (_SIGNED, _UNSIGNED):
            return self.unsigned()
        if form == _BLOCK:
            return self.take(self.number(1))
        if form == _STRING:
            end = self.raw.find(b"\0", self.at)
            raw = self.take(end - self.at + 1 if end >= 0 else len(self.raw) + 1)
            return raw[:-1].decode("utf-8", "replace")
        raise OperandError(f"form {form} of an attribute is not known")
