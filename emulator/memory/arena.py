"""Global memory of a launch: allocations at addresses of their own, by name, with nothing between.

All allocations lie in one array of bytes, so that a load of many lanes is one ``take``; an address
is found by the allocation that holds it. What no allocation holds is out of bounds, also where it
lies within another tensor of the same process: every allocation is surrounded by a red zone.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtypes import Array
from emulator.errors import OperandError
from emulator.memory.untouched import copy_changed, zeros

Addresses = NDArray[np.uint64]
Indexes = NDArray[np.int64]

#: where allocations go that have no address of their own, and what is left free around each
FIRST_ADDRESS, RED_ZONE = 0x7F40_0000_0000, 4096
#: allocations start at multiples of this, as those of cudaMalloc do
ALIGNMENT = 512
#: addresses have so many bits
ADDRESS_BITS = 49
#: room that is made at once for allocations to come, at most
_MOST_MORE = 1 << 28


@dataclass(frozen=True)
class Fault:
    """The first access that memory refuses: which one of those given, its address, and why."""

    index: int
    address: int
    kind: str
    reason: str


class AccessError(Exception):
    """Raised by memory to whoever knows the thread and the statement, and turns it into words."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.reason)
        self.fault = fault


@dataclass(eq=False)
class Allocation:
    """`size` bytes at `address`; `start` is its first byte in the arena."""

    name: str
    address: int
    size: int
    start: int = 0
    writable: bool = True
    #: ended by free, or by the host; its bytes stay, for messages
    freed: bool = False
    #: how many elements it has along each axis, and the bytes of each, for messages
    shape: tuple[int, ...] = ()
    element_bytes: int = 1
    type: str = ""

    @property
    def end(self) -> int:
        return self.address + self.size

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


def extent_of(numbers: NDArray[Any]) -> tuple[int, int, int]:
    """The least and the greatest of some numbers, and the bits that any of them has."""
    if numbers.size == 1:
        number = int(numbers.item())
        return number, number, number
    return (
        int(np.minimum.reduce(numbers, axis=None)),
        int(np.maximum.reduce(numbers, axis=None)),
        int(np.bitwise_or.reduce(numbers, axis=None)),
    )


class Arena:
    """Allocations, and one array with the bytes of all of them."""

    def __init__(self) -> None:
        self._allocations: list[Allocation] = []
        self._addresses: list[int] = []
        self._bytes: Array = np.zeros(0, np.uint8)
        self._used = 0
        self._views: dict[int, Array] = {}
        self._next = FIRST_ADDRESS
        self._table: tuple[Addresses, Indexes, Indexes, Array] | None = None

    def __iter__(self) -> Iterator[Allocation]:
        return iter(self._allocations)

    # --- allocations ---

    def reserve(self, size: int) -> None:
        """Room for so many bytes more: what is known beforehand is allocated at once."""
        if self._used + size > len(self._bytes):
            before, room = self.contents, len(self._bytes)
            self._bytes = zeros(max(self._used + size, room + min(room, _MOST_MORE)))
            copy_changed(self._bytes[: self._used], before)
            self._views = {}

    def allocate(
        self,
        name: str,
        size: int,
        *,
        address: int | None = None,
        contents: Array | None = None,
        writable: bool = True,
        like: Array | None = None,
    ) -> Allocation:
        """A new allocation, at `address` or where there is room.

        `contents` are its bytes, else zeros; `like` an array whose shape and type messages use.
        Raises OperandError where the address overlaps another allocation or is none.
        """
        if address is None:
            address = self._room(size)
        elif not 0 < address <= address + size <= 1 << ADDRESS_BITS:
            raise OperandError(
                f"{name}: an address is 1 … 2**{ADDRESS_BITS} - 1; got {address:#x} with "
                f"{size} bytes"
            )
        at = bisect_right(self._addresses, address)
        for near in self._allocations[max(0, at - 1) : at + 1]:
            if address < near.end and near.address < address + size and not near.freed:
                raise OperandError(
                    f"{name}: bytes {address:#x} … {address + size - 1:#x} overlap {near.name}, "
                    f"{near.address:#x} … {near.end - 1:#x}"
                )
        # The place in the arena has the alignment of the address, so that views of it fit.
        start = self._used + (address - self._used) % ALIGNMENT
        self.reserve(start + size + ALIGNMENT - self._used)
        self._used = start + size
        made = Allocation(name, address, size, start, writable)
        if like is not None:
            made.shape, made.element_bytes = like.shape, like.dtype.itemsize
            made.type = str(like.dtype)
        self._allocations.insert(at, made)
        self._addresses.insert(at, address)
        self._table = None
        if contents is not None:
            copy_changed(self.bytes_of(made), contents)
        return made

    def _room(self, size: int) -> int:
        """A free address after all that were chosen here, and no allocation nearby."""
        address = self._next
        while True:
            at = bisect_right(self._addresses, address + size + RED_ZONE)
            if not at or self._allocations[at - 1].end + RED_ZONE <= address:
                break
            end = self._allocations[at - 1].end
            address = -(-(end + RED_ZONE) // ALIGNMENT) * ALIGNMENT
        self._next = -(-(address + size + RED_ZONE) // ALIGNMENT) * ALIGNMENT
        return address

    def free(self, allocation: Allocation) -> None:
        """Ends an allocation; its address is not used again."""
        allocation.freed = True
        self._table = None

    def remove(self, allocation: Allocation) -> None:
        """Ends an allocation that no message will ever name."""
        self.free(allocation)
        at = self._allocations.index(allocation)
        del self._allocations[at], self._addresses[at]

    def find(self, address: int) -> Allocation | None:
        """The allocation that holds an address, if one does."""
        at = bisect_right(self._addresses, address) - 1
        found = self._allocations[at] if at >= 0 else None
        return found if found is not None and address < found.end else None

    def nearest(self, address: int) -> Allocation | None:
        """The allocation that holds an address or lies next to it."""
        at = bisect_right(self._addresses, address)
        around = self._allocations[max(0, at - 1) : at + 1]
        return min(
            around, key=lambda x: max(x.address - address, address - x.end + 1, 0), default=None
        )

    def name_at(self, place: int) -> str:
        """Name of the place in the array of bytes, in the words of its owner."""
        for allocation in self._allocations:
            if allocation.start <= place < allocation.start + allocation.size:
                return allocation.place(allocation.address + place - allocation.start)
        return f"byte {place} of global memory"

    def bytes_of(self, allocation: Allocation) -> Array:
        """The bytes of an allocation, a view."""
        return self._bytes[allocation.start : allocation.start + allocation.size]

    # --- all of it ---

    @property
    def contents(self) -> Array:
        """The bytes of all allocations, and of what lies between them; a view."""
        return self._bytes[: self._used]

    def copy(self) -> Arena:
        """The same allocations with bytes of their own."""
        other = Arena()
        other.__dict__.update(self.__getstate__())
        other._allocations, other._addresses = self._allocations[:], self._addresses[:]
        return other

    def __getstate__(self) -> dict[str, Any]:
        """Without views of the bytes, and the room behind them."""
        return self.__dict__ | {"_bytes": self.contents.copy(), "_views": {}, "_table": None}

    # --- accesses ---

    def view(self, size: int) -> Array:
        """The arena as unsigned words of 1, 2, 4 or 8 bytes, or as ``(…, 2 or 4)`` of them."""
        made = self._views.get(size)
        if made is None:
            whole = self._bytes[: len(self._bytes) // size * size]
            made = (
                whole.view(f"<u{size}") if size <= 8 else whole.view("<u8").reshape(-1, size // 8)
            )
            self._views[size] = made
        return made

    def locate(self, addresses: Addresses, size: int, *, write: bool = False) -> Indexes:
        """Places in the arena of accesses of `size` bytes, each aligned to its size.

        Raises AccessError for the first that is misaligned, out of bounds, freed, or written where
        that is not allowed.
        """
        if not addresses.size:
            return addresses.astype(np.int64)
        low, high, bits = extent_of(addresses)
        found = self.find(low)
        if (
            found is None
            or high + size > found.end
            or found.freed
            or (write and not found.writable)
        ):
            return self._locate_each(addresses, size, write)
        if bits & size - 1:
            self._refuse_alignment(addresses, size)
        return (addresses - np.uint64(found.address - found.start)).view(np.int64)

    def locate_bytes(self, addresses: Addresses, size: int, *, write: bool = False) -> Indexes:
        """Places in the arena of accesses of `size` bytes each, wherever they start.

        Raises AccessError as `locate`.
        """
        return self._locate_each(addresses, size, write, aligned=False)

    def read_rows(self, addresses: Indexes, size: int) -> Array:
        """The bytes ``(n, size)`` at addresses; raises AccessError as `locate`."""
        held, places = self._rows(addresses, size)
        return held[places].reshape(len(places), size // held.itemsize).view(np.uint8)

    def write_rows(self, addresses: Indexes, rows: Array) -> None:
        """Writes bytes ``(n, size)`` at addresses; raises AccessError as `locate`."""
        held, places = self._rows(addresses, rows.shape[-1], write=True)
        words = np.ascontiguousarray(rows).view(held.dtype)
        held[places] = words.reshape(*places.shape, *held.shape[1:])

    def _rows(self, addresses: Indexes, size: int, *, write: bool = False) -> tuple[Array, Indexes]:
        """Memory as words that rows consist of, the largest of up to 16 bytes, and the numbers
        ``(n, words)`` of those: fewer are faster."""
        places = self.locate_bytes(addresses.astype(np.uint64), size, write=write)
        common = int(np.bitwise_or.reduce(places)) | size | 16
        word = common & -common
        return self.view(word), places[:, None] // word + np.arange(size // word)

    def _locate_each(
        self, addresses: Addresses, size: int, write: bool, *, aligned: bool = True
    ) -> Indexes:
        """As `locate`, for lanes that look into several allocations, or outside of all."""
        if aligned and size > 1 and (addresses & np.uint64(size - 1)).any():
            self._refuse_alignment(addresses, size)
        starts, ends, shift, usable = self._by_address()
        at = np.searchsorted(starts, addresses, "right") - 1
        signed = addresses.view(np.int64)
        wrong = (signed < 0) | (signed + size > ends[at]) | ~usable[int(write), at]
        if wrong.any():
            self._refuse(int(np.argmax(wrong)), int(addresses[int(np.argmax(wrong))]), size, write)
        return signed + shift[at]

    def _by_address(self) -> tuple[Addresses, Indexes, Indexes, Array]:
        """Where allocations start and end, how far their bytes are from their addresses, and
        whether they may be read, and written; the first stands for what is below all."""
        if self._table is None:
            every = self._allocations
            self._table = (
                np.array([0, *self._addresses], np.uint64),
                np.array([0, *(x.end for x in every)], np.int64),
                np.array([0, *(x.start - x.address for x in every)], np.int64),
                np.array(
                    [
                        [False, *(not x.freed for x in every)],
                        [False, *(not x.freed and x.writable for x in every)],
                    ]
                ),
            )
        return self._table

    def _refuse_alignment(self, addresses: Addresses, size: int) -> None:
        index = int(np.argmax((addresses & np.uint64(size - 1)) != 0))
        address = int(addresses[index])
        reason = f"address {address:#x} is no multiple of {size}, the bytes of the access"
        raise AccessError(Fault(index, address, "misaligned", reason))

    def _refuse(self, index: int, address: int, size: int, write: bool) -> None:
        found = self.find(address)
        verb = "written" if write else "read"
        if address == 0:
            reason, kind = f"the null pointer is {verb}", "out of bounds"
        elif found is not None and found.freed:
            reason, kind = f"{found.place(address)} is {verb} after it was freed", "use after free"
        elif found is not None and address + size <= found.end:
            reason, kind = f"{found.place(address)} is written, and it is read-only", "read-only"
        else:
            near = self.nearest(address) if found is None else found
            last = address + size - 1
            where = "no allocation is near"
            if near is not None and (found or abs(address - near.address) < 1 << 40):
                beyond = near.place(last if found else address)
                where = f"{beyond} ({near.size} bytes at {near.address:#x})"
            reason = f"{size} byte{'s' * (size > 1)} at {address:#x} are {verb}: {where}"
            kind = "out of bounds"
        raise AccessError(Fault(index, address, kind, reason))


def bytes_view(array: Any) -> Array:
    """The bytes of a C-contiguous array, a view."""
    return np.ndarray((array.nbytes,), np.uint8, array)
