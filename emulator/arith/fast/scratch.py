"""Memory from the start of a line of the cache on, and memory that is kept for the next call."""

from __future__ import annotations

from contextlib import suppress
from typing import ClassVar
from weakref import WeakSet

import numpy as np

from dtypes import Array
from emulator.arrays import address_of

#: bytes of a line of the cache: vectors of a line are slow where they lie in two, and so are
#: threads that write to one line
LINE = 64


def at_line(room: Array) -> Array:
    """Bytes of an array from the first start of a line on."""
    return room[-address_of(room) % LINE :]


class Scratch:
    """Memory that is kept for the next call, as new pages cost more than the work of many a call:
    a few arrays, the last that were given back, of at most so many bytes in all."""

    _every: ClassVar[WeakSet[Scratch]] = WeakSet()

    def __init__(self, arrays: int = 1, most: int = 1 << 26) -> None:
        self._arrays, self._most = arrays, most
        self._free: list[Array] = []
        self._every.add(self)

    @classmethod
    def let_go(cls) -> None:
        """Keeps nothing, as something is about to need much memory for a while."""
        for each in list(cls._every):
            each._free.clear()

    def take(self, size: int) -> Array:
        """So many bytes, of any contents, from the start of a line on."""
        room = None
        with suppress(IndexError):  # another thread may have taken it
            fits = [len(free) >= size + LINE for free in self._free]
            room = self._free.pop(fits.index(True) if any(fits) else 0)
        if room is None or len(room) < size + LINE:
            room = np.empty(size + LINE, np.uint8)
        return at_line(room)[:size]

    def give_back(self, room: Array) -> None:
        """The memory of a call that is over."""
        whole: Array = room
        while whole.base is not None:
            whole = whole.base
        free = self._free
        if whole.nbytes <= self._most:
            free.append(whole)
        while len(free) > self._arrays or sum(x.nbytes for x in free) > self._most:
            del free[:1]
