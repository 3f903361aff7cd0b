"""Debugger: ``Shown``, answers of the debugger as a table, and as data; numbers as people write
them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dtypes.arrays import decode_values
from emulator.arith.scalar.types import TYPES
from emulator.report import Report

#: numbers of untyped registers from here on are shown in hexadecimal: they are bits or addresses
LARGE = 1 << 24


@dataclass(repr=False)
class Shown(Report):
    """Rows under a title; `data` is the same for programs."""

    title: str
    header: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    data: Any = None
    notes: Sequence[str] = field(default_factory=tuple)

    def lines(self) -> Iterator[str]:
        if self.title:
            yield self.title
        cells = [tuple(self.header), *map(tuple, self.rows)] if self.header else [*self.rows]
        width = max(map(len, cells), default=0)
        widths = [max((len(x[i]) for x in cells if i < len(x)), default=0) for i in range(width)]
        for row in cells:
            padded = (cell.ljust(size) for cell, size in zip(row, widths, strict=False))
            yield f"  {'  '.join(padded)}".rstrip()
        yield from self.notes


def value_of(word: int, type_: str) -> Any:
    """A word as a number of a PTX type; untyped bits count as a signed integer, and a packed type
    is a tuple of its elements."""
    kind = TYPES[type_]
    if kind.kind == "predicate":
        return bool(word)
    if kind.count > 1:
        mask, size = kind.mask, kind.bits
        return tuple(
            value_of(word >> i * size & mask, kind.element.name) for i in range(kind.count)
        )
    if kind.is_float:
        return float(decode_values(kind.format, np.array([word], f"uint{kind.size}"))[0])
    word &= kind.mask
    signed = kind.signed or kind.kind == "bits"
    return word - (1 << kind.bits) if signed and word >> kind.bits - 1 else word


def text_of(word: int, type_: str, style: str = "") -> str:
    """A word for people; `style` is that of gdb's ``/x``, ``/d``, ``/u``, ``/t`` or ``/f``."""
    kind = TYPES[type_]
    if style == "x":
        return f"{word:#x}"
    if style == "t":
        return f"{word:#b}"
    if style == "u":
        return str(word)
    if style == "d":
        return str(word - (1 << kind.size) if word >> kind.size - 1 else word)
    if style == "f" and kind.size in (16, 32, 64):
        type_ = f"f{kind.size}"
    value = value_of(word, type_)
    if kind.kind == "bits" and type_ == kind.name and abs(value) >= LARGE:
        return f"{word:#x}"
    return number_text(value, type_)


def number_text(value: object, type_: str = "f64") -> str:
    if isinstance(value, tuple):
        return f"({', '.join(number_text(x, type_) for x in value)})"
    if isinstance(value, float):
        # The shortest digits that name the number among those of f32 and of narrower formats.
        narrow = TYPES[type_].bits <= 32 if type_ in TYPES else False
        return str(np.float32(value) if narrow else value)
    return str(value)
