"""Debug information in PTX (DWARF 2, nvcc -G): the names that the source gives to parameters."""

from __future__ import annotations

import re
from collections.abc import Iterator

#: tags and attributes
_SUBPROGRAM, _PARAMETER, _NAME, _LINKAGE_NAME = 0x2E, 0x05, 0x03, 0x2007
#: form of an attribute -> its bytes
_SIZES = {0x01: 8, 0x05: 2, 0x06: 4, 0x07: 8, 0x0B: 1, 0x0C: 1, 0x0E: 4, 0x11: 1, 0x13: 4}
_STRING, _BLOCK = 0x08, 0x0A
#: bytes in front of the entries
_HEADER = 11


class _Bytes:
    """A section of debug information, read from its start; symbols of PTX count as zeros."""

    def __init__(self, ptx: str, name: str) -> None:
        found = re.search(rf"\.section\s+\{name}\s*\{{([^}}]*)\}}", ptx)
        self._bytes, self._at = bytearray(), 0
        for bits, items in re.findall(r"\.b(8|16|32|64)\s+([^\n]+)", found[1] if found else ""):
            for item in items.split(","):
                number = int(item) if item.strip().isdigit() else 0
                self._bytes += (number % (1 << int(bits))).to_bytes(int(bits) // 8, "little")

    def __bool__(self) -> bool:
        return self._at < len(self._bytes)

    def skip(self, count: int) -> bytes:
        self._at += count
        return bytes(self._bytes[self._at - count : self._at])

    def number(self) -> int:
        """A number of seven bits a byte (LEB128)."""
        value = shift = 0
        while self:
            (byte,) = self.skip(1)
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        return value

    def attribute(self, form: int) -> str:
        """The text of an attribute; "" of one that is none."""
        if form == _STRING:
            text = self.skip(max(0, self._bytes.find(b"\0", self._at) - self._at))
            self.skip(1)
            return text.decode("utf-8", "replace")
        size = int.from_bytes(self.skip(1), "little") if form == _BLOCK else _SIZES[form]
        self.skip(size)
        return ""


def parameter_names(ptx: str) -> Iterator[tuple[str, str]]:
    """The parameters of functions as PTX names them, each with its name in the source; none without
    debug information, or where it is of an unknown form."""
    kinds = dict(_kinds(_Bytes(ptx, ".debug_abbrev")))
    info, path, function, count = _Bytes(ptx, ".debug_info"), list[int](), "", 0
    info.skip(_HEADER)
    while info:
        kind = kinds.get(info.number())
        if kind is None:
            del path[-1:]
            continue
        tag, has_children, attributes = kind
        if any(form not in _SIZES and form not in (_STRING, _BLOCK) for _, form in attributes):
            return
        given = {attribute: info.attribute(form) for attribute, form in attributes}
        if tag == _SUBPROGRAM:
            function, count = given.get(_LINKAGE_NAME) or given.get(_NAME, ""), 0
        elif tag == _PARAMETER and path[-1:] == [_SUBPROGRAM]:
            yield f"{function}_param_{count}", given.get(_NAME, "")
            count += 1
        if has_children:
            path.append(tag)


def _kinds(data: _Bytes) -> Iterator[tuple[int, tuple[int, bool, list[tuple[int, int]]]]]:
    """The kinds of entries by number: tag, whether entries follow inside, attributes and forms."""
    while code := data.number():
        tag, has_children, attributes = data.number(), data.skip(1) == b"\1", []
        while (pair := (data.number(), data.number())) != (0, 0):
            attributes.append(pair)
        yield code, (tag, has_children, attributes)
