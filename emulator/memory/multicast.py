"""Multimem addresses, which stand for the same place in the memory of several devices (PTX 5.1).

The devices of a group are simulated: the memory of each is a part of one global memory, at an
address of its own. Only multimem statements use a multimem address; it has no bytes itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Addresses = NDArray[np.uint64]


@dataclass(frozen=True)
class Multicast:
    """`size` bytes from `address` on that stand for those at an address of each device."""

    name: str
    address: int
    size: int
    devices: tuple[int, ...]

    @property
    def end(self) -> int:
        return self.address + self.size

    def place(self, address: int) -> str:
        """The address in words: ``group + 8 bytes``."""
        inside = address - self.address
        return f"{self.name} + {inside} byte{'s' * (inside > 1)}" if inside else self.name


class OfDevices(NamedTuple):
    """Accesses through one multicast group, to the memory of each of its devices."""

    #: which of the accesses; None: all
    which: NDArray[np.int64] | None
    #: for each device the addresses of these accesses
    addresses: list[Addresses]


class NoMulticast(Exception):
    """Raised for the first access that no group holds: its number, kind and reason."""

    def __init__(self, index: int, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.index, self.kind, self.reason = index, kind, reason


def find(groups: Sequence[Multicast], address: int) -> Multicast | None:
    """The group that holds an address, if one does."""
    return next((x for x in groups if x.address <= address < x.end), None)


def of_devices(groups: Sequence[Multicast], addresses: Addresses, size: int) -> Iterator[OfDevices]:
    """The memory that accesses of `size` bytes at multimem addresses reach, a part for each group.

    Raises NoMulticast for the first address that is none, or lies too near the end of a group.
    """
    left = np.ones(len(addresses), np.bool_)
    while left.any():
        index = int(np.argmax(left))
        address = int(addresses[index])
        group = find(groups, address)
        if group is None:
            reason = f"{address:#x} is no multimem address; Memory.multicast makes them"
            raise NoMulticast(index, "address space", reason)
        if address + size > group.end:
            reason = f"{size} bytes at {group.place(address)}, which has {group.size} bytes"
            raise NoMulticast(index, "out of bounds", reason)
        mine = left & (addresses >= group.address) & (addresses <= group.end - size)
        all_mine = bool(mine.all())
        inside = (addresses if all_mine else addresses[mine]) - np.uint64(group.address)
        which = None if all_mine else np.flatnonzero(mine)
        yield OfDevices(which, [inside + np.uint64(start) for start in group.devices])
        left &= ~mine
