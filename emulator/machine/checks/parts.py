"""Shadows of parts: the halves of a word of 64 bits, the bytes of a parameter of a call.

A shadow of a word is minus an event where the whole word holds nothing that anybody wrote (see
`registers`). Where one half alone does, `LOW` or `HIGH` is subtracted from that. Such a word may be
copied; whoever computes with it is taken to mean the other half.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from dtypes import Array
from emulator.arith.scalar.types import TYPES
from emulator.isa.ordinary.instruction import OrdinaryInstruction
from emulator.machine.vector.strand import Strand
from emulator.ptx.program import Bound, ParameterPlace, Register, Statement, Vector, items_of

#: marks in the shadow of a word of which the low half, or the high half, holds nothing
LOW, HIGH = 1 << 29, 1 << 30
_EVENT = LOW - 1


def event_of(shadow: int) -> int:
    """The event that brought the word, or the half of it."""
    return -shadow & _EVENT


def half_of(shadow: int) -> str:
    """Name of a half of a word; empty for the whole word."""
    return "" if -shadow < LOW else f"the {'low' if -shadow < HIGH else 'high'} half of "


def wholes(shadow: Array) -> Array:
    """Shadows without those of words of which one half has a value."""
    out: Array = np.where(shadow <= -LOW, 0, shadow)
    return out


def joined(low: Array, high: Array) -> Array:
    """The shadow of a word of two halves."""
    low, high = wholes(low), wholes(high)
    one = np.where(low < 0, low - LOW, high - HIGH)
    both = np.minimum(low, high)
    out: Array = np.where((low < 0) & (high < 0), both, np.where(both < 0, one, 0))
    return out.astype(np.int32)


def halves(shadow: Array) -> tuple[Array, Array]:
    """The shadows of the halves of a word."""
    marks, event = -shadow & ~_EVENT, -(-shadow & _EVENT)
    return np.where(marks == HIGH, 0, event), np.where(marks == LOW, 0, event)


# --- parameters of calls --------------------------------------------------------------------------


def moved_operand(statement: Statement) -> Literal["d", "b", ""]:
    """The operand that a load or atomic fills, or that a store writes; "": it is neither."""
    effects = statement.effects
    if not isinstance(statement.instruction, OrdinaryInstruction):
        return ""
    if "reads" in effects:
        return "d"
    return "b" if "writes" in effects and "exchanges" not in effects else ""


@dataclass(frozen=True)
class ParameterMove:
    """A load or store of bytes of a parameter, which has a shadow for each byte: nobody reads the
    padding of a structure, and what was not written there does no harm."""

    #: the shadow of the parameter, and where its bytes start
    parameter: int
    offset: int
    #: bytes of an item, and the shadows of the items; None: an item is no register
    size: int
    items: tuple[int | None, ...]
    stores: bool

    @classmethod
    def of(cls, statement: Statement, place: Bound | None, count: int) -> ParameterMove | None:
        """The move of a statement, where it is one; shadows stand `count` behind registers."""
        name = moved_operand(statement)
        if not name or not isinstance(place, ParameterPlace):
            return None
        bound = statement.operands[name]
        items = items_of(bound) if isinstance(bound, Vector) else (bound,)
        size = TYPES[str(statement.instruction).rpartition(".")[2]].size // 8
        shadows = [x.index + count if isinstance(x, Register) else None for x in items]
        return cls(place.index + count, place.offset, size, tuple(shadows), name == "b")

    def run(self, s: Strand, mask: Array | None) -> None:
        for number, item in enumerate(self.items):
            first = self.offset + number * self.size
            if self.stores:
                self._store(s, item, slice(first, first + self.size), mask)
            elif item is not None:
                found = _of_bytes(s.read(self.parameter)[:, first : first + self.size])
                if mask is not None:
                    found = np.where(mask, found, s.read(item))
                s.write(item, found)

    def _store(self, s: Strand, item: int | None, place: slice, mask: Array | None) -> None:
        shadow = np.zeros(1, np.int32) if item is None else s.read(item)
        old = s.read(self.parameter)
        held = np.array(np.broadcast_to(old, (len(s), old.shape[1])))
        chosen = slice(None) if mask is None else mask
        raw = np.broadcast_to(_bytes(shadow, self.size), (len(s), self.size))
        held[chosen, place] = raw[chosen]
        s.write(self.parameter, held)


def _bytes(shadow: Array, size: int) -> Array:
    """The shadows of the bytes of a word; those of a half keep its mark."""
    out = np.repeat(shadow[:, None], size, axis=1)
    for half, part in zip(halves(shadow), np.split(np.arange(size), [size // 2]), strict=True):
        out[:, part] = np.where(half[:, None] < 0, out[:, part], 0)
    return out


def _of_bytes(held: Array) -> Array:
    """The shadow of a word of bytes: all its bytes hold nothing, or a half that was stored so."""
    least = held.min(1)
    every = (held < 0).all(1)
    half = np.where((least <= -LOW) & (held.shape[1] >= 8), least, 0)
    out: Array = np.where(every, -(-least & _EVENT), half)
    return out
