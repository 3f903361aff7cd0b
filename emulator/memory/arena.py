"""Global memory of a launch: allocations at addresses of their own, by name, with nothing between.

Every allocation is an array of bytes, often one of the caller's, on which kernels work in place. An
access of many lanes is checked first, and then is one ``take`` from the array of the allocation
that it leads to, which NumPy checks again. What no allocation holds is out of bounds, also where it
lies within another tensor of the same process: every allocation is surrounded by a red zone.

Bytes are kept before the first write to them, for `Arena.roll_back`: see `journal`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from dtypes import Array
from emulator.errors import OperandError
from emulator.memory import multicast
from emulator.memory.allocation import WORD, Allocation, Room, zeros_at
from emulator.memory.journal import Journal
from emulator.memory.multicast import Multicast, NoMulticast, OfDevices
from emulator.memory.surface import Texels
from emulator.memory.texture import Texture
from emulator.memory.untouched import copy_changed, zeros
from emulator.memory.windows import RANK_BITS

T = TypeVar("T")
Addresses = NDArray[np.uint64]
Indexes = NDArray[np.int64]

#: where allocations go that have no address of their own, and what is left free around each
FIRST_ADDRESS, RED_ZONE = 0x7F40_0000_0000, 4096
#: allocations start at multiples of this, as those of cudaMalloc do
ALIGNMENT = 512
#: addresses have so many bits
ADDRESS_BITS = 49
#: small allocations lie together, in rooms of at least so many bytes: lanes with one each, as of
#: malloc, then look into one array
_ROOM = 1 << 16


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

    @classmethod
    def misaligned(cls, index: int, address: int, alignment: int, size: int) -> AccessError:
        """An access of `size` bytes at no multiple of `alignment`."""
        reason = f"address {address:#x} is no multiple of {alignment}"
        reason += ", the bytes of the access" if alignment == size else ""
        return cls(Fault(index, address, "misaligned", reason))

    @classmethod
    def leaves(
        cls, index: int, address: int, size: int, space: str, limit: int, write: bool
    ) -> AccessError:
        """An access past the end of shared or local memory, which has `limit` bytes."""
        what = _bytes_are(size, f"{address:#x} of {space} memory", write)
        reason = f"{what}, which has {limit} bytes"
        return cls(Fault(index, address, "out of bounds", reason))

    @classmethod
    def of_no_block(cls, index: int, address: int, blocks: int) -> AccessError:
        """An address in shared memory of a rank that a cluster of so many blocks has not."""
        rank = address >> RANK_BITS
        reason = f"address {address:#x} is that of block {rank} of a cluster of {blocks}"
        return cls(Fault(index, address, "out of bounds", reason))

    @classmethod
    def not_shared(cls, index: int, address: int) -> AccessError:
        """A generic address that had to lead into shared memory."""
        reason = f"the generic address {address:#x} does not lead into shared memory"
        return cls(Fault(index, address, "address space", reason))


def _bytes_are(size: int, where: str, write: bool) -> str:
    """``4 bytes at 0x10 are read``."""
    some, are = (f"{size} bytes", "are") if size > 1 else ("1 byte", "is")
    return f"{some} at {where} {are} {'written' if write else 'read'}"


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


#: the allocation of accesses that lead nowhere
_EMPTY = Allocation("", 0, 0, Room(np.zeros(0, np.uint8), 0))


class Table(NamedTuple):
    """The allocations in ascending order, behind an entry for what lies below all of them."""

    #: first address, and the one behind the last
    starts: Addresses
    ends: Indexes
    #: offset from addresses to bytes: in this process, and in their room
    shifts: Indexes
    inside: Indexes
    #: where the rooms are counted
    rooms: Indexes
    #: whether they may be read, and written
    readable: NDArray[np.bool_]
    writable: NDArray[np.bool_]
    #: whether native code has read there what it told nobody, see `was_read`
    looked: NDArray[np.bool_]
    #: the addresses of the bytes that the journal keeps, or need not keep; none: from the end to
    #: the start. Native code may see one of both change before the other: that is never more
    kept: Indexes
    kept_ends: Indexes


class Part(NamedTuple):
    """Accesses that lead to one room: its words, and their places in them."""

    view: Array
    places: Indexes
    #: which of the accesses; None: all
    which: Indexes | None
    #: where the first word is counted
    origin: int


class Words:
    """All allocations as one array of words, for accesses to several of them: an index counts the
    words of all."""

    def __init__(self, arena: Arena, size: int, write: bool) -> None:
        self._arena, self.size, self._write = arena, size, write
        empty = _EMPTY.words(size)[0]
        self.itemsize, self.dtype, self.shape = empty.itemsize, empty.dtype, empty.shape
        self.base = None

    def __getitem__(self, index: Indexes) -> Array:
        out = np.empty((*index.shape, *self.shape[1:]), self.dtype)
        for view, mask, places in self._parts(index):
            out[mask] = view[places]
        return out

    def __setitem__(self, index: Indexes, words: Array) -> None:
        words = np.broadcast_to(words, (*index.shape, *self.shape[1:]))
        for view, mask, places in self._parts(index):
            view[places] = words[mask]

    def _parts(self, index: Indexes) -> Iterator[tuple[Array, NDArray[np.bool_], Indexes]]:
        """For each room that an index leads to its words, who looks at them, and where."""
        rooms = self._arena.rooms()
        starts = np.array(list(rooms), np.int64)
        at = starts[np.searchsorted(starts, index * self.size, "right") - 1]
        for start in np.unique(at).tolist():
            mask = at == start
            view, lead = rooms[start].words(self.size, write=self._write)
            yield view, mask, index[mask] - (start + lead) // self.size


class Made(dict[int, T]):
    """Objects by their handles, those of `makers` made when they are first asked for."""

    def __init__(self, makers: Mapping[int, Callable[[], T]] | None = None) -> None:
        super().__init__()
        self.makers = {} if makers is None else makers

    def __contains__(self, handle: object) -> bool:
        return super().__contains__(handle) or handle in self.makers

    def __missing__(self, handle: int) -> T:
        made = self[handle] = self.makers[handle]()
        return made


class Arena:
    """Allocations by address, and what is written to them."""

    def __init__(self) -> None:
        self._allocations: list[Allocation] = []
        self._addresses: list[int] = []
        #: bytes that all allocations take, counted one after the other
        self.used = 0
        #: where the bytes are counted that the access under way looks at; for checks
        self.origin = 0
        self._next = FIRST_ADDRESS
        self._table: Table | None = None
        #: where rooms are counted, in that order
        self._rooms: dict[int, Room] | None = None
        #: the last room of small allocations, and how much of it they take
        self._last: tuple[Room, int] = (_EMPTY.room, 0)
        self.multicasts: list[Multicast] = []
        self.journal = Journal()
        #: what the table said of the journal when a trial began
        self._columns: Indexes = np.zeros((2, 0), np.int64)
        self._freed: list[Allocation] = []
        #: the textures that kernels may read, by their handles
        self.textures: Made[Texture] = Made()
        #: the surfaces that they may use, by theirs
        self.surfaces: dict[int, Texels] = {}
        #: set by native code that could not have bytes kept, and why: Python drops errors of
        #: functions that native code calls
        self.stopped: Indexes = np.zeros(1, np.int64)
        self._error: BaseException = KeyboardInterrupt()

    def __iter__(self) -> Iterator[Allocation]:
        return iter(self._allocations)

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_table": None, "_rooms": None}

    # --- allocations ---

    def allocate(
        self,
        name: str,
        size: int,
        *,
        address: int | None = None,
        held: Array | None = None,
        contents: Array | None = None,
        writable: bool = True,
        like: Array | None = None,
    ) -> Allocation:
        """A new allocation, at `address` or where there is room.

        `held` is the array of bytes that it works on, else it has its own: a copy of `contents`, or
        zeros. `like` is an array whose shape and type messages use. Raises OperandError where the
        address overlaps another allocation or is none.
        """
        if address is None:
            address = self.vacant(size)
        elif not 0 < address <= address + size <= 1 << ADDRESS_BITS:
            raise OperandError(
                f"{name}: an address is 1 … 2**{ADDRESS_BITS} - 1; got {address:#x} with "
                f"{size} bytes"
            )
        at = bisect_right(self._addresses, address)
        around: list[Allocation | Multicast] = [*self.multicasts]
        around += [x for x in self._allocations[max(0, at - 1) : at + 1] if not x.freed]
        for near in around:
            if address < near.end and near.address < address + size:
                raise OperandError(
                    f"{name}: bytes {address:#x} … {address + size - 1:#x} overlap {near.name}, "
                    f"{near.address:#x} … {near.end - 1:#x}"
                )
        if held is None:
            made = Allocation(name, address, size, *self._own(address, size), writable)
            self.journal.needs_none_of(made)
            if contents is not None:
                copy_changed(made.held, contents)
        else:
            made = Allocation(name, address, size, Room(held, address % WORD), 0, writable)
        if like is not None:
            made.shape, made.element_bytes = like.shape, like.dtype.itemsize
            made.type = str(like.dtype)
        if made.room.start < 0:
            self._count(made.room)
        self._insert(at, made)
        return made

    def multicast(
        self, name: str, size: int, devices: tuple[int, ...], address: int | None = None
    ) -> Multicast:
        """A multicast group of devices whose memory starts at these addresses."""
        made = Multicast(name, self.vacant(size) if address is None else address, size, devices)
        self.multicasts.append(made)
        return made

    def _own(self, address: int, size: int) -> tuple[Room, int]:
        """A room of zeros for an allocation, and where in it."""
        if size > _ROOM:
            return Room(zeros_at(address, size), address % WORD), 0
        room, used = self._last
        inside = used + address % WORD
        if inside + size >= len(room.held):
            room, inside = Room(zeros_at(0, 2 * len(room.held) or 2 * _ROOM), 0), address % WORD
        self._last = room, -(-(inside + size) // WORD) * WORD
        return room, inside

    def add(self, made: Allocation, before: Arena) -> None:
        """Takes an allocation of the branch of a launch, which has counted its room."""
        self.used = max(self.used, before.used)
        self._insert(bisect_right(self._addresses, made.address), made)

    def _insert(self, at: int, made: Allocation) -> None:
        self._allocations.insert(at, made)
        self._addresses.insert(at, made.address)
        self._table = self._rooms = None

    def _count(self, room: Room) -> None:
        """Counts a room behind all others, with the alignment of its address."""
        room.start = -(-self.used // WORD) * WORD + room.residue
        self.used = room.start + len(room.held)

    def vacant(self, size: int) -> int:
        """A free address after all that were chosen here, and no allocation nearby."""
        address = self._next
        while True:
            last = address + size + RED_ZONE
            at = bisect_right(self._addresses, last)
            around: list[Allocation | Multicast] = [*self._allocations[max(0, at - 1) : at]]
            around += (x for x in self.multicasts if x.address <= last)
            end = max((x.end for x in around), default=0)
            if end + RED_ZONE <= address:
                break
            address = -(-(end + RED_ZONE) // ALIGNMENT) * ALIGNMENT
        self._next = -(-(address + size + RED_ZONE) // ALIGNMENT) * ALIGNMENT
        return address

    def free(self, allocation: Allocation) -> None:
        """Ends an allocation; its address is not used again."""
        allocation.freed = True
        self._freed.append(allocation)
        self._table = None

    def remove(self, allocation: Allocation) -> None:
        """Ends an allocation that no message will ever name."""
        at = self._index(allocation)
        del self._allocations[at], self._addresses[at]
        self.journal.drop(allocation)
        self._table = self._rooms = None

    def _index(self, allocation: Allocation) -> int:
        """The position of an allocation; several that were freed may share an address."""
        at = bisect_left(self._addresses, allocation.address)
        while self._allocations[at] is not allocation:
            at += 1
        return at

    def find(self, address: int) -> Allocation | None:
        """The allocation that holds an address, if one does."""
        at = bisect_right(self._addresses, address) - 1
        found = self._allocations[at] if at >= 0 else None
        return found if found is not None and address < found.end else None

    def held_at(self, address: int, size: int) -> Array | None:
        """The bytes at an address; None where a read of a word of this size is refused."""
        found = self.find(address)
        if found is None or found.freed or address + size > found.end or address % size:
            return None
        first = address - found.address
        return found.held[first : first + size]

    def nearest(self, address: int) -> Allocation | None:
        """The allocation that holds an address or lies next to it."""
        at = bisect_right(self._addresses, address)
        around = self._allocations[max(0, at - 1) : at + 1]
        return min(
            around, key=lambda x: max(x.address - address, address - x.end + 1, 0), default=None
        )

    # --- all of it ---

    def adopt(self, other: Arena) -> None:
        """Starts with the allocations of another arena, for one launch: what is allocated here, and
        the journal, are its own."""
        self._allocations, self._addresses = other._allocations[:], other._addresses[:]
        self.used, self._next, self.multicasts = other.used, other._next, other.multicasts[:]

    def copy(self) -> Arena:
        """The same allocations with bytes of their own."""
        out = Arena()
        out.adopt(self)
        out.textures, out.surfaces = self.textures, self.surfaces
        out._allocations = []
        for given in self._allocations:
            room = Room(zeros_at(given.address, given.size), given.address % WORD, given.start)
            copy_changed(room.held, given.held)
            made = replace(given, room=room, inside=0)
            out._allocations.append(made)
            out.journal.needs_none_of(made)
        return out

    def renumber(self) -> None:
        """Counts the rooms anew: those of what was removed take no bytes any more."""
        self.used, self._table, self._rooms = 0, None, None
        for room in dict.fromkeys(made.room for made in self._allocations):
            self._count(room)

    def rooms(self) -> dict[int, Room]:
        """The rooms of all allocations, by where they are counted, in that order."""
        if self._rooms is None:
            found = {x.room.start: x.room for x in self._allocations if x.size}
            self._rooms = dict(sorted(found.items()))
        return self._rooms

    def name_at(self, place: int) -> str:
        """Name of a byte, by its place among all bytes, in the words of its owner."""
        for allocation in self._allocations:
            if allocation.start <= place < allocation.start + allocation.size:
                return allocation.place(allocation.address + place - allocation.start)
        return f"byte {place} of global memory"

    def contents(self) -> Array:
        """The bytes of all allocations, counted one after the other; a copy."""
        out = zeros(self.used)
        for made in self._allocations:
            copy_changed(out[made.start : made.start + made.size], made.held)
        return out

    def write(self, places: Indexes, values: Array) -> None:
        """Writes bytes at places among all bytes, which rise."""
        for made in self._allocations:
            first, last = np.searchsorted(places, (made.start, made.start + made.size)).tolist()
            if first < last:
                at = places[first:last] - made.start
                self.keep(made, int(at[0]), int(at[-1]) + 1)
                made.held[at] = values[first:last]

    # --- what is written ---

    def keep(self, made: Allocation, first: int, last: int) -> None:
        """Somebody is about to write bytes `first` … `last` of an allocation."""
        self.journal.keep(made, first, last, self._is_kept)

    def _is_kept(self, made: Allocation, start: int, end: int) -> None:
        """Native code looks into the table for what need not be kept, as soon as `keep` is over."""
        if self._table is not None:
            row = self._index(made) + 1
            self._table.kept[row] = made.address + start
            self._table.kept_ends[row] = made.address + end

    def keep_row(self, row: int, address: int, size: int) -> None:
        """`keep` for native code, by the entry in the table; see `stopped`."""
        made = self._allocations[row - 1]
        try:
            self.keep(made, address - made.address, address - made.address + size)
        except BaseException as error:
            self.stopped[0], self._error = 1, error

    def check(self) -> None:
        """Raises what came in between while native code had bytes kept."""
        if self.stopped[0]:
            raise self._error

    def roll_back(self) -> None:
        """Gives back all bytes, and ends of allocations, as they were."""
        self.journal.undo()
        while self._freed:
            self._freed[-1].freed = False
            self._freed.pop()

    # --- trials ---

    def begin_trial(self) -> None:
        """What is written from here on can be taken back; nobody has read anything."""
        table = self.table()
        self._columns = np.array([table.kept, table.kept_ends])
        self.journal.begin_trial()
        table.kept[:], table.kept_ends[:] = table.ends, table.starts.view(np.int64)
        table.looked[:] = False

    def end_trial(self, *, stays: bool) -> None:
        """What was written since it began stays, or is taken back."""
        if self._table is not None:
            self._table.kept[:], self._table.kept_ends[:] = self._columns
        if stays:
            self.journal.end_trial(self._is_kept)
        else:
            self.journal.take_back()

    def shares_bytes(self) -> bool:
        """Whether allocations at different addresses lie on the same bytes, as a `Memory` may have
        an array twice."""
        table = self.table()
        there = table.readable
        first = (table.starts.view(np.int64) + table.shifts)[there]
        order, end = np.argsort(first), (table.ends + table.shifts)[there]
        return bool((first[order[1:]] < end[order[:-1]]).any())

    def expect(self, low: int, high: int) -> None:
        """Bytes between two addresses are about to be written: the journal keeps them at once."""
        made = self.find(low)
        if made is not None and made.writable and not made.freed:
            self.journal.expect(made, low - made.address, high - made.address, self._is_kept)

    def was_read(self, low: int, high: int) -> bool:
        """Whether allocations between two addresses were read by whoever does not tell where."""
        table = self.table()
        ends = np.array([low, high - 1], np.uint64)
        first, last = np.searchsorted(table.starts, ends, "right") - 1
        return bool(table.looked[first : last + 1].any())

    # --- accesses ---

    def of_devices(self, addresses: Addresses, size: int) -> Iterator[OfDevices]:
        """Where accesses at multimem addresses lead to, see `multicast.of_devices`; raises
        AccessError."""
        try:
            yield from multicast.of_devices(self.multicasts, addresses, size)
        except NoMulticast as wrong:
            fault = Fault(wrong.index, int(addresses[wrong.index]), wrong.kind, wrong.reason)
            raise AccessError(fault) from None

    def words(self, addresses: Addresses, size: int, write: bool) -> list[Part]:
        """Where accesses of `size` bytes, each aligned to its size, lead to: one part for each
        room.

        Raises AccessError for the first that is misaligned, out of bounds, freed, or written where
        that is not allowed.
        """
        found = self._one(addresses, size, write)
        if found is not None:
            made, bits = found
            if bits & size - 1:
                self._refuse_alignment(addresses, size)
            view, first = made.words(size, write=write)
            places = (addresses.view(np.int64) - first) >> size.bit_length() - 1
            return [Part(view, places, None, made.start + first - made.address)]
        at, counted = self._rows(addresses, size, write)
        rooms, parts = self.table().rooms[at], []
        first = int(rooms[0])
        same = bool((rooms == first).all())
        for start in (first,) if same else np.unique(rooms).tolist():
            which = None if same else np.flatnonzero(rooms == start)
            view, lead = self.rooms()[start].words(size, write=write)
            places = (counted if which is None else counted[which]) - (start + lead)
            parts.append(Part(view, places >> size.bit_length() - 1, which, start + lead))
        return parts

    def bytes(self, addresses: Addresses, size: int, write: bool) -> tuple[Array | Words, Indexes]:
        """Bytes, and the places in them of accesses of `size` bytes, wherever they start; `origin`
        is where the bytes are counted. Raises AccessError as `words`."""
        found = self._one(addresses, size, write)
        if found is not None:
            view, first = found[0].words(1, write=write)
            self.origin = found[0].start + first - found[0].address
            return view, addresses.view(np.int64) - first
        _, places = self._rows(addresses, size, write, aligned=False)
        self.origin = 0
        return Words(self, 1, write), places

    def read_rows(self, addresses: Indexes, size: int) -> Array:
        """The bytes ``(n, size)`` at addresses; raises AccessError as `words`."""
        held, places = self._words_of_rows(addresses, size, write=False)
        return held[places].reshape(len(places), size // held.itemsize).view(np.uint8)

    def write_rows(self, addresses: Indexes, rows: Array) -> None:
        """Writes bytes ``(n, size)`` at addresses; raises AccessError as `words`."""
        held, places = self._words_of_rows(addresses, rows.shape[-1], write=True)
        words = np.ascontiguousarray(rows).view(held.dtype)
        held[places] = words.reshape(*places.shape, *held.shape[1:])

    def _words_of_rows(
        self, addresses: Indexes, size: int, *, write: bool
    ) -> tuple[Array | Words, Indexes]:
        """Memory as words that rows consist of, the largest of up to 16 bytes, and the numbers
        ``(n, words)`` of those: fewer are faster."""
        given = addresses.astype(np.uint64)
        found = self._one(given, size, write)
        common = int(np.bitwise_or.reduce(addresses)) | size | 16
        word = common & -common
        if found is not None:
            view, first = found[0].words(word, write=write)
            return view, (addresses - first)[:, None] // word + np.arange(size // word)
        _, places = self._rows(given, size, write, aligned=False)
        return Words(self, word, write), places[:, None] // word + np.arange(size // word)

    def _one(self, addresses: Addresses, size: int, write: bool) -> tuple[Allocation, int] | None:
        """The allocation that holds all accesses, and the bits that any address has; None where
        there are several, or an access is refused."""
        if not addresses.size:
            return _EMPTY, 0
        low, high, bits = extent_of(addresses)
        found = self.around(low, high + size, write)
        return None if found is None else (found, bits)

    def around(self, low: int, end: int, write: bool) -> Allocation | None:
        """The allocation that holds the bytes from one address to another, which are kept if they
        are about to be written; None where there is none, or an access is refused."""
        found = self.find(low)
        if found is None or end > found.end or found.freed:
            return None
        if write:
            if not found.writable:
                return None
            self.keep(found, low - found.address, end - found.address)
        return found

    def _rows(
        self, addresses: Addresses, size: int, write: bool, *, aligned: bool = True
    ) -> tuple[Indexes, Indexes]:
        """For accesses that lead to several allocations the entries in the table, and the places
        among all bytes."""
        if aligned and size > 1 and (addresses & np.uint64(size - 1)).any():
            self._refuse_alignment(addresses, size)
        table = self.table()
        at = np.searchsorted(table.starts, addresses, "right") - 1
        signed = addresses.view(np.int64)
        usable = table.writable if write else table.readable
        wrong = (signed < 0) | (signed + size > table.ends[at]) | ~usable[at]
        if wrong.any():
            first = int(np.argmax(wrong))
            self._refuse(first, int(addresses[first]), size, write)
        if write:
            outside = (signed < table.kept[at]) | (signed + size > table.kept_ends[at])
            for row in np.unique(at[outside]).tolist():
                made, mine = self._allocations[row - 1], signed[at == row]
                first, last = int(mine.min()), int(mine.max()) + size
                self.keep(made, first - made.address, last - made.address)
        return at, signed + table.inside[at] + table.rooms[at]

    def table(self) -> Table:
        """The allocations as arrays, until there are others."""
        if self._table is None:
            every = self._allocations
            rows = [
                (
                    x.address,
                    x.end,
                    x.host - x.address,
                    x.inside - x.address,
                    x.room.start,
                    not x.freed,
                    not x.freed and x.writable,
                    False,
                    *self.journal.interval(x),
                )
                for x in every
            ]
            columns = np.array([(0,) * 10, *rows], np.int64).T.copy()
            columns[8:] += columns[0]
            self._table = Table(
                columns[0].view(np.uint64),
                *columns[1:5],
                *columns[5:8].astype(np.bool_),
                *columns[8:],
            )
        return self._table

    def _refuse_alignment(self, addresses: Addresses, size: int) -> None:
        index = int(np.argmax((addresses & np.uint64(size - 1)) != 0))
        raise AccessError.misaligned(index, int(addresses[index]), size, size)

    def _refuse(self, index: int, address: int, size: int, write: bool) -> None:
        found, group = self.find(address), multicast.find(self.multicasts, address)
        verb = "written" if write else "read"
        if group is not None:
            reason = f"{group.place(address)} is {verb}: a multimem address is for multimem alone"
            kind = "address space"
        elif address == 0:
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
            reason = f"{_bytes_are(size, f'{address:#x}', write)}: {where}"
            kind = "out of bounds"
        raise AccessError(Fault(index, address, kind, reason))


def bytes_view(array: Array) -> Array:
    """The bytes of a C-contiguous array, a view."""
    return np.ndarray((array.nbytes,), np.uint8, array)
