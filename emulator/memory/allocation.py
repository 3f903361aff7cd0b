"""Allocations: bytes of this process at an address that kernels know."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from dtypes import Array
from emulator.arrays import address_of
from emulator.memory.untouched import zeros

#: native code takes words of up to so many bytes to be aligned in this process, too
WORD = 16


@dataclass(eq=False)
class Room:
    """Bytes of this process in which one allocation lies, or several small ones."""

    held: Array
    #: of the address of the first byte the rest modulo `WORD`
    residue: int
    #: where the first byte is counted, among those of all rooms
    start: int = -1
    _words: dict[tuple[int, bool], tuple[Array, int]] = field(default_factory=dict, repr=False)

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_words": {}}

    def words(self, size: int, *, write: bool) -> tuple[Array, int]:
        """The words of 1, 2, 4 or 8 bytes, or ``(…, 2 or 4)`` of 8, that start at multiples of
        `size`; and the number of bytes before the first. They can be changed only with `write`."""
        found = self._words.get((size, write))
        if found is None:
            lead = -self.residue % size
            held = self.held[lead : lead + (len(self.held) - lead) // size * size]
            if not write:
                held = held[:]
                held.flags.writeable = False
            view = held.view(f"<u{size}") if size <= 8 else held.view("<u8").reshape(-1, size // 8)
            found = self._words[size, write] = view, lead
        return found


@dataclass(eq=False)
class Allocation:
    """`size` bytes at `address`, which lie in a room from byte `inside` on."""

    name: str
    address: int
    size: int
    room: Room
    inside: int = 0
    writable: bool = True
    #: ended by free, or by the host; its bytes stay, for messages
    freed: bool = False
    #: elements along each axis, and bytes of an element, for messages
    shape: tuple[int, ...] = ()
    element_bytes: int = 1
    type: str = ""
    #: its bytes, and their address in this process
    held: Array = field(init=False, repr=False)
    host: int = field(init=False)

    def __post_init__(self) -> None:
        self.held = self.room.held[self.inside : self.inside + self.size]
        self.host = address_of(self.room.held) + self.inside

    @property
    def end(self) -> int:
        return self.address + self.size

    @property
    def start(self) -> int:
        """Where its first byte is counted."""
        return self.room.start + self.inside

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"held": None}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self.__post_init__()

    def words(self, size: int, *, write: bool = False) -> tuple[Array, int]:
        """The words of its room, and the address of the first; see `Room.words`."""
        view, lead = self.room.words(size, write=write)
        return view, self.address - self.inside + lead

    def place(self, address: int) -> str:
        """``A[3][5]``, or ``A + 7 bytes``: what lies at an address, in the words of its owner."""
        element, byte = divmod(address - self.address, self.element_bytes)
        if not 0 <= address - self.address < self.size:
            far, side = (
                (address - self.end + 1, "after the end")
                if address >= self.end
                else (self.address - address, "before the start")
            )
            return f"{far} byte{'s' * (far > 1)} {side} of {self.name}"
        index = np.unravel_index(element, self.shape) if self.shape else (element,)
        inside = f" + {byte} bytes" if byte else ""
        return self.name + "".join(f"[{i}]" for i in index) + inside


def fits(held: Array, address: int) -> bool:
    """True if an array of bytes can be used at an address as it is: the alignments agree."""
    return not held.size or (address_of(held) - address) % WORD == 0


def zeros_at(address: int, size: int) -> Array:
    """Bytes of 0 that can stand at an address; they take memory where something is written."""
    room = zeros(size + WORD)
    first = (address - address_of(room)) % WORD
    return room[first : first + size]
