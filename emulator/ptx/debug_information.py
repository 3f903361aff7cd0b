"""Debug information in PTX (DWARF 2, nvcc -G): its entries, and the names that the source gives to
parameters.

PTX carries the sections ``.debug_info`` and so on as lists of numbers and names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from emulator.errors import OperandError

_SECTION = re.compile(r"^\s*\.section\s+(\.debug_\w+)\s*\{(.*?)\}", re.M | re.S)
_DATA = re.compile(r"\.b(8|16|32|64)\s+([^\n]*)")
_NUMBER = re.compile(r"-?\d+|0[xX][0-9a-fA-F]+")
#: forms of attributes (DWARF 2, 7.5.4) -> bytes; the others are read by `Reader.form`
_FIXED = {1: 8, 5: 2, 6: 4, 7: 8, 11: 1, 12: 1, 14: 4, 17: 1, 18: 2, 19: 4, 20: 8}
_STRING, _BLOCK, _SIGNED, _UNSIGNED = 8, 10, 13, 15
#: tags and attributes
SUBPROGRAM, PARAMETER, NAME = 46, 5, 3
_LINKAGE_NAME = 0x2007
#: bytes in front of the entries of a unit, and of them those of its length
_HEADER, _LENGTH = 11, 4


class Entry(NamedTuple):
    """A debugging information entry."""

    #: from the start of its unit
    offset: int
    #: how many entries it is inside of
    depth: int
    tag: int
    attributes: dict[int, Any]


def sections(text: str, value: Callable[[str], int]) -> dict[str, bytes]:
    """The sections of a PTX file; `value` is the number of a name in them."""
    out = {}
    for name, body in _SECTION.findall(text):
        raw = bytearray()
        for bits, items in _DATA.findall(body):
            for item in map(str.strip, items.split(",")):
                number = int(item, 0) if _NUMBER.fullmatch(item) else value(item)
                raw += (number & (1 << int(bits)) - 1).to_bytes(int(bits) // 8, "little")
        out[name] = bytes(raw)
    return out


def entries(held: dict[str, bytes]) -> Iterator[Entry]:
    """The entries of ``.debug_info``, each before those inside of it. Raises OperandError or
    LookupError where numbers mean nothing, or the sections are not there."""
    kinds, reader = _kinds(Reader(held[".debug_abbrev"])), Reader(held[".debug_info"])
    while reader.at + _HEADER <= len(reader.raw):
        start = reader.at
        end = start + _LENGTH + reader.number(_LENGTH)
        reader.at, depth = start + _HEADER, 0
        while reader.at < end:
            offset, code = reader.at - start, reader.unsigned()
            if not code:
                depth -= 1
                continue
            tag, has_children, forms = kinds[code]
            yield Entry(offset, depth, tag, {name: reader.form(form) for name, form in forms})
            depth += has_children
        reader.at = end


def _kinds(reader: Reader) -> dict[int, tuple[int, bool, Sequence[tuple[int, int]]]]:
    """Abbreviations: code -> tag, whether entries have others in them, attributes and forms."""
    out: dict[int, tuple[int, bool, Sequence[tuple[int, int]]]] = {}
    while code := reader.unsigned():
        tag, has_children, forms = reader.unsigned(), reader.number(1) == 1, []
        while (pair := (reader.unsigned(), reader.unsigned())) != (0, 0):
            forms.append(pair)
        out[code] = tag, has_children, forms
    return out


@dataclass
class Reader:
    """Numbers and strings from bytes. Raises OperandError behind their end."""

    raw: bytes
    at: int = 0

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


def parameter_names(ptx: str) -> Iterator[tuple[str, str]]:
    """The parameters of functions as PTX names them, each with its name in the source; none without
    debug information, or where it is of an unknown form."""
    path, function, count = list[int](), "", 0
    with suppress(OperandError, LookupError):
        for entry in entries(sections(ptx, lambda name: 0)):
            given = {key: x for key, x in entry.attributes.items() if isinstance(x, str)}
            del path[entry.depth :]
            if entry.tag == SUBPROGRAM:
                function, count = given.get(_LINKAGE_NAME) or given.get(NAME, ""), 0
            elif entry.tag == PARAMETER and path[-1:] == [SUBPROGRAM]:
                yield f"{function}_param_{count}", given.get(NAME, "")
                count += 1
            path.append(entry.tag)
