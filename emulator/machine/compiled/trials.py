"""Trials: thread blocks run whole in several threads at the same time, stores and all, and say what
they touched. Where each had memory of its own, their order has changed nothing; else what they
stored is taken back, and they run once more in phases.

What warps that take turns touch of an array lies between two addresses, the hull. Mostly those of
all warps follow each other, as their numbers do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from llvmlite import ir

from dtypes import Array
from emulator.arith.fast.words import BIT, LONG, WORD, Value
from emulator.machine.compiled.claims import OTHERS, is_harmless, stores
from emulator.machine.compiled.warp_emitter import WarpEmitter
from emulator.machine.shared.operands import space_of
from emulator.memory.arena import Arena
from emulator.ptx.program import Address, Bound, Statement

#: trials that were for nothing before there are no more
_MOST_VAIN = 2


def bases_of(statements: Sequence[Statement]) -> dict[object, int] | None:
    """The bases of addresses at which statements store to memory that other blocks see, numbered;
    None where a trial is not possible, as they do more than load, store and compute."""
    if not all(is_harmless(x, loads=OTHERS) for x in statements):
        return None
    known = (x.operands["a"] for x in statements if stores(x) and _is_seen(x))
    bases = dict.fromkeys(x.base for x in known if isinstance(x, Address))
    return {base: number for number, base in enumerate(bases)} or None


def may_store_to_shared(statements: Sequence[Statement]) -> bool:
    """Whether statements may store to shared memory, where no hull is: warps of a block that do not
    meet at barriers go on further in a trial than in a phase before others look there."""
    known = (space_of(x, x.operands["a"]) for x in statements if stores(x))
    return any(space in ("shared", "") for space in known)


def _is_seen(statement: Statement) -> bool:
    return space_of(statement, statement.operands["a"]) in OTHERS


class Hulls:
    """The hulls of a native function, for each base: of warps that take turns, and of all of them
    so far."""

    def __init__(self, e: WarpEmitter, entry: Any, bases: Mapping[object, int]) -> None:
        self._e, self._bases = e, bases
        #: the least address and the one behind the last, of those who take turns; the same of all
        self._own, self._every = ([self._pair(entry) for _ in bases] for _ in range(2))
        for pair in self._every:
            self._put(entry, pair, LONG(-1), LONG(0))

    @staticmethod
    def _pair(entry: Any) -> tuple[Value, Value]:
        return entry.alloca(LONG), entry.alloca(LONG)

    @staticmethod
    def _put(b: Any, pair: tuple[Value, Value], least: Value, end: Value) -> None:
        b.store(least, pair[0])
        b.store(end, pair[1])

    def _umin(self, a: Value, b: Value) -> Value:
        return self._e.function("llvm.umin.i64", LONG, [a, b])

    def _umax(self, a: Value, b: Value) -> Value:
        return self._e.function("llvm.umax.i64", LONG, [a, b])

    def _extend(self, pair: tuple[Value, Value], least: Value, end: Value) -> None:
        b = self._e.builder
        first, last = (b.load(x, typ=LONG) for x in pair)
        self._put(b, pair, self._umin(first, least), self._umax(last, end))

    def tell(self, place: Bound, space: str, addresses: Value, size: int, active: Value) -> bool:
        """What active lanes access becomes part of a hull, if it has one."""
        number = self._bases.get(place.base) if isinstance(place, Address) else None
        if number is None or space not in OTHERS:
            return False
        e = self._e
        given = [addresses, e.mask(active), LONG(size), *self._own[number]]
        e.fragment("hull", ir.VoidType(), _extended, *given)
        return True

    def begin(self) -> None:
        """Other warps take turns."""
        for pair in self._own:
            self._put(self._e.builder, pair, LONG(-1), LONG(0))

    def end(self) -> Value:
        """Those who took turns are done: whether any of their hulls is not behind those of the
        others before."""
        b, wrong = self._e.builder, BIT(0)
        for own, every in zip(self._own, self._every, strict=True):
            least, end = (b.load(x, typ=LONG) for x in own)
            before = b.load(every[1], typ=LONG)
            wrong = b.or_(wrong, b.icmp_unsigned("<", least, before))
            self._extend(every, least, end)
        return wrong

    def write(self, rows: Value, number: Value) -> None:
        """The hulls of all so far, as a row."""
        b = self._e.builder
        first = b.mul(number, LONG(2 * len(self._every)))
        for i, pair in enumerate(self._every):
            for j, place in enumerate(pair):
                at = b.gep(rows, [b.add(first, LONG(2 * i + j))], source_etype=LONG)
                b.store(b.load(place, typ=LONG), at)


def _extended(
    e: WarpEmitter, addresses: Value, lanes: Value, size: Value, least: Value, end: Value
) -> None:
    """What lanes access becomes part of the hull from `least` to `end`."""
    b = e.builder
    ends = [
        e.call(
            f"vector.reduce.{pick}",
            e.select(e.lanes_of(lanes), addresses, e.word(64, other)),
            result=LONG,
        )
        for pick, other in (("umin", -1), ("umax", 0))
    ]
    some = b.icmp_unsigned("!=", lanes, WORD(0))
    ends[1] = b.select(some, b.add(ends[1], size), LONG(0))
    for place, how, found in zip((least, end), ("umin", "umax"), ends, strict=True):
        now = e.function(f"llvm.{how}.i64", LONG, [b.load(place, typ=LONG), found])
        b.store(now, place)


def touched(hulls: Array) -> list[tuple[int, int]] | None:
    """What all touched by each base, of hulls ``(part, base, 2)`` of one part after the other; None
    where some touched the same."""
    out = []
    for least, end in np.moveaxis(hulls, 0, 2):
        some = least < end
        least, end = least[some], end[some]
        if (least[1:] < end[:-1]).any():
            return None
        out += [(int(least[0]), int(end[-1]))] if len(least) else []
    return None if any(b[0] < a[1] for a, b in pairwise(sorted(out))) else out


class Trials:
    """The trials of one native function: how they went."""

    def __init__(self) -> None:
        self._vain = 0
        #: what the first wave of a launch touched, and the last wave
        self._first: list[tuple[int, int]] = []
        self._last: list[tuple[int, int]] = []
        self._is_first = True

    @property
    def are_worth_it(self) -> bool:
        return self._vain < _MOST_VAIN

    def begin(self, arena: Arena, *, is_first: bool) -> None:
        """What is stored from here on can be taken back. The journal keeps what will be stored,
        as far as the last trial tells: a launch mostly repeats it, a later wave goes on behind it.
        """
        arena.begin_trial()
        self._is_first = is_first
        for least, end in self._first if is_first else self._last:
            step = 0 if is_first else end - least
            arena.expect(least + step, end + step)

    def end(
        self, arena: Arena, hulls: Array, *, crossed: bool, went_well: bool, cut_off: bool
    ) -> bool:
        """Whether what was stored stays: all went to its end, or ended before anybody touched a
        thing; each had memory of its own, and nobody read elsewhere what was stored. `cut_off`: it
        ended for want of room, of which the next has more."""
        own = None if crossed else touched(hulls)
        stays = own is not None and (went_well or not own)
        stays = stays and not any(arena.was_read(*x) for x in own or ())
        arena.end_trial(stays=stays)
        if stays:
            self._last = own or []
            if self._is_first:
                self._first = self._last
        self._vain = max(0, self._vain + (-1 if stays else not cut_off))
        return stays
