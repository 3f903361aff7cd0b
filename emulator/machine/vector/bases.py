"""Vector engine: loads and stores of all lanes of a strand at a register and an offset.

Compilers unroll loops into accesses at one register with many offsets. The extent of the addresses
in the register and the places that they lead to are found once for all of them. Everything else,
including every error, goes the way of `memory.access`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtypes import Array
from emulator.machine.vector import memory
from emulator.machine.vector.memory import Places
from emulator.machine.vector.strand import Strand
from emulator.memory.arena import extent_of
from emulator.memory.windows import WINDOW_BITS
from emulator.ptx.program import Address, Bound, Register

#: registers of a strand whose addresses are remembered
_MOST = 8
#: loads at the same addresses before their places are looked at, and lanes in a row then
_OFTEN, _ROWS = 8, (32, 16, 8)


class Base:
    """The addresses of all lanes that a register holds."""

    __slots__ = ("bits", "each", "high", "key", "left", "low", "places", "rises", "rows", "words")

    def __init__(self, words: Array) -> None:
        self.words = words
        #: the least, the greatest, and the bits that any of them has
        self.low, self.high, self.bits = extent_of(words)
        #: the memory and the unit that `places` count
        self.key: tuple[object, ...] = ()
        self.keep((), np.zeros(0, np.int64))

    def keep(self, key: tuple[object, ...], places: Places, each: int = 1) -> None:
        """Remembers the places of all lanes, or of each of so many beside each other."""
        self.key, self.places = key, places
        #: lanes beside each other that share a place, as where a block reads one word
        self.each = each
        #: whether the places of lanes ascend, so that no two are the same; None: not yet known
        self.rises: bool | None = None
        #: lanes in a row, the first place modulo that, and the rows of memory that rows of lanes
        #: read as they are
        self.rows: tuple[int, int, Places] | None = None
        #: loads until the places are looked at
        self.left = _OFTEN

    def load(self, view: Array, places: Places) -> Array:
        """The words of all lanes; `places` are those of the base, or others in their order."""
        if self.rows is not None and places is self.places:
            count, shift, rows = self.rows
            whole = view[shift : shift + (len(view) - shift) // count * count]
            return whole.reshape(-1, count).take(rows, 0).reshape(-1)
        words = view.take(places)
        return words.repeat(self.each) if self.each > 1 else words

    def find_rows(self) -> None:
        """Looks after some loads whether lanes in a row share a place, or read words in a row: such
        loads are faster."""
        self.left -= 1
        if self.left or self.each > 1:
            return
        for count in _ROWS:
            if len(self.places) % count:
                continue
            places = self.places.reshape(-1, count)
            first = places[:, 0]
            if (places == first[:, None]).all():
                self.each, self.places = count, first.copy()
                return
            rows, shift = first // count, int(first[0]) % count
            if (places == (rows * count + shift)[:, None] + np.arange(count)).all():
                self.rows = count, shift, rows
                return


class Access(NamedTuple):
    """Accesses of a statement: of `items` neighbouring words of `unit` bytes."""

    space: str
    #: the register, and what is added to it
    register: int
    offset: int
    unit: int
    items: int

    @property
    def size(self) -> int:
        return self.unit * self.items


def access_of(bound: Bound, space: str, unit: int, count: int) -> Access | None:
    """The accesses of a statement at a memory operand; None where they are of another sort."""
    if not isinstance(bound, Address) or not isinstance(bound.base, Register):
        return None
    known = space in ("shared", "local", *_ARENA) and unit <= 8
    return Access(space, bound.base.index, bound.offset, unit, count) if known else None


def load(s: Strand, access: Access) -> list[Array] | None:
    """The words at the addresses of all lanes, neighbours one by one; None: not here."""
    if s.wave.watch is not None:
        return None
    found = _find(s, access, False)
    if found is None:
        return None
    views, places, base = found
    return [base.load(view, places) for view in views]


def store(s: Strand, access: Access, words: Sequence[Array]) -> bool:
    """Writes words of all lanes; False, and nothing has happened: not here. The lane that wins is
    that of `memory.store`."""
    wave = s.wave
    if wave.watch is not None or wave.grid.schedule is not None:
        return False
    found = _find(s, access, True)
    if found is None:
        return False
    views, places, base = found
    if len(places) < len(s):
        return False
    if base.rises is None:
        base.rises = not np.count_nonzero(places[1:] <= places[:-1])
    if not base.rises:
        order = memory.winning_order(s, s.lanes, access.size)
        places = places[order]
        words = [x if len(x) == 1 else x[order] for x in words]
    wave.grid.progress += 1
    for view, part in zip(views, words, strict=True):
        view[places] = part
    return True


def _base(s: Strand, index: int) -> Base:
    """The addresses that a register holds now."""
    words, known = s.read(index), s.bases
    found: Base | None = known.get(index)
    if found is None or found.words is not words:
        if found is None and len(known) == _MOST:
            del known[next(iter(known))]
        found = known[index] = Base(words)
    return found


def _find(s: Strand, access: Access, write: bool) -> tuple[list[Array], Places, Base] | None:
    """For each of the words beside each other memory, the places in it of all, and the register's
    addresses; None where an access may be refused, or lanes look into different memories."""
    space, register, offset, unit, items = access
    base = _base(s, register)
    if (base.bits | offset) & unit * items - 1:
        return None
    low, end = base.low + offset, base.high + offset + unit * items
    find = _ARENA.get(space, _in_rows)
    found = find(s, space, base, low, end, unit, write)
    if found is None:
        return None
    if not write:
        base.find_rows()
    view, origin = found
    lead, places = offset // unit, base.places
    if base.low < origin or lead < 0:
        lead, places = 0, places + lead
    return [view[lead + i :] if lead + i else view for i in range(items)], places, base


#: memory as words, and the address that its first place has; `Base.places` is set
_Found = tuple[Array, int] | None


def _in_window(
    s: Strand, space: str, base: Base, low: int, end: int, unit: int, write: bool
) -> _Found:
    """At generic addresses."""
    window = low >> WINDOW_BITS
    if window != end - 1 >> WINDOW_BITS:
        return None
    inside = memory.SPACES.get(window)
    if inside is None:
        return _in_arena(s, space, base, low, end, unit, write)
    if s.wave.cluster_size > 1 or s.wave.grid.only_shared:
        return None
    return _in_rows(s, inside, base, low, end, unit, write, window << WINDOW_BITS)


def _in_arena(
    s: Strand, space: str, base: Base, low: int, end: int, unit: int, write: bool
) -> _Found:
    if base.words.dtype != np.uint64 or s.wave.grid.only_shared:
        return None
    found = s.wave.grid.arena.around(low, end, write)
    if found is None:
        return None
    view, first = found.words(unit, write=write)
    key = "arena", unit, first
    if base.key != key:
        places = base.words.view(np.int64) - first
        places >>= unit.bit_length() - 1
        base.keep(key, places)
    return view, first


def _in_rows(
    s: Strand, space: str, base: Base, low: int, end: int, unit: int, write: bool, origin: int = 0
) -> _Found:
    """In local memory, or in shared memory of the lanes' own blocks."""
    wave = s.wave
    if space == "local":
        held, limit, rows = wave.local, wave.local_bytes, s.lanes
    elif write and wave.journal is not None:
        return None
    else:
        held, limit, rows = wave.shared, wave.shared_limit, wave.row(s)
    row_bytes = held.shape[1]
    if low < origin or end - origin > limit or row_bytes % unit:
        return None
    key = space, unit, row_bytes, origin
    if base.key != key:
        each = 1
        if len(base.words) == 1 and rows[0] == rows[-1]:
            rows = rows[:1]
        elif len(base.words) == 1 and space != "local" and len(s) == wave.lanes:
            rows, each = np.arange(len(wave.ctas)), wave.lanes_per_cta
        shift = unit.bit_length() - 1
        places = rows * (row_bytes >> shift)
        places = places + _numbers(base.words >> shift) - (origin >> shift)
        base.keep(key, places, each)
    return memory.words_of(held, unit), origin


def _numbers(words: Array) -> NDArray[np.int64]:
    return words.view(np.int64) if words.dtype == np.uint64 else words.astype(np.int64)


#: spaces of generic addresses -> what finds memory there
_ARENA: dict[str, Callable[[Strand, str, Base, int, int, int, bool], _Found]] = {
    "": _in_window, "global": _in_arena, "const": _in_arena,
}  # fmt: skip
