"""``Memory``: global memory that lives from launch to launch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from dtypes import Array
from emulator.errors import OperandError, needed, shown, whole
from emulator.machine.arguments import Placed, array_of_argument
from emulator.machine.shared.failure import Failure
from emulator.machine.system.heap import Heap
from emulator.machine.turns import Turn, taken
from emulator.memory.allocation import Allocation, zeros_at
from emulator.memory.arena import ADDRESS_BITS, Arena, Made, bytes_view
from emulator.memory.surface import Texels
from emulator.memory.texture import Texture
from emulator.memory.untouched import copy_changed
from emulator.memory.windows import VARIABLES

_LAST = (1 << ADDRESS_BITS) - 1
#: the most bytes of an allocation
_MOST = 1 << 46


class Region(NamedTuple):
    """Name, address and bytes of what lies at an address."""

    name: str
    address: int
    size: int


class Memory:
    """Global memory that launches share: arrays at addresses of one's own choosing, memory of
    `allocate`, variables of the modules that were made with it, what kernels got from malloc, and
    groups of simulated devices for multimem statements.

    Launches work on all of it in place, one at a time, and one that raises leaves it as it was.
    `variables_at` is where the variables of the first module start.
    """

    def __init__(self, variables_at: int = VARIABLES) -> None:
        self._arena = Arena()
        self._heap: dict[int, Allocation] = {}
        #: allocations of `map` and `allocate`, by address
        self._arrays: dict[int, tuple[Array, Allocation]] = {}
        #: arrays that launches work on copies of
        self._placed = Placed()
        #: bytes that were ended since they were counted
        self._ended = 0
        self._turn = Turn()
        #: texture objects of programs: what makes the texture that a launch reads, by its handle
        self.textures: dict[int, Callable[[], Texture]] = {}
        #: surface objects of programs: texels at an address here, by their handle
        self.surfaces: dict[int, Texels] = {}
        #: where those of the next one may start
        self.variables_at = variables_at

    def __getstate__(self) -> dict[str, object]:
        heap = [(x.name, x.address, x.held) for x in self._heap.values()]
        groups = self._arena.multicasts
        return {
            "arrays": self.arrays,
            "heap": heap,
            "groups": groups,
            "variables_at": self.variables_at,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["variables_at"])  # type: ignore[misc]
        for address, array, name in state["arrays"]:
            self.map(address, array, name)
        for name, address, held in state["heap"]:
            made = self._arena.allocate(name, held.nbytes, address=address, contents=held)
            self._heap[address] = made
        for group in state["groups"]:
            self._arena.multicast(group.name, group.size, group.devices, group.address)

    @property
    def arrays(self) -> list[tuple[int, Array, str]]:
        """Address, array and name of what `map` and `allocate` have put here."""
        return [(at, array, made.name) for at, (array, made) in self._arrays.items()]

    # --- what lies here ---

    def map(self, address: int, array: object, name: str = "") -> None:
        """Puts an array at an address; launches read and write it there.

        Raises OperandError for an array that is not C-contiguous, and an address that is none or
        overlaps another array's.
        """
        place = whole("an address", address, 1, _LAST)
        held = array_of_argument(array, needed(str, name) or f"the array at {place:#x}")
        with self._alone():
            self._put(place, held, name or f"memory at {place:#x}", held.flags.writeable, held)

    def load(self, variables: Iterable[tuple[int, Array, str, bool]], end: int) -> None:
        """Puts the variables of a module here: address, bytes, name, whether kernels may write
        them. Those of the next one start at `end`."""
        with self._alone():
            for address, held, name, writable in variables:
                if len(held):
                    self._put(address, held, name, writable, None)
            self.variables_at = end

    def _put(
        self, address: int, held: Array, name: str, writable: bool, like: Array | None
    ) -> None:
        made = self._placed.place(self._arena, name, held, address, writable, like)
        self._arrays[address] = held, made

    def allocate(self, size: int, name: str = "") -> int:
        """The address of so many zeros, a multiple of 512; they take memory where something is
        written. Raises OperandError where the system has no room."""
        count = whole("a size", size, 1, _MOST)
        title = needed(str, name) or f"memory of {count} bytes"
        with self._alone():
            made = self._arena.allocate(title, count, held=zeros_at(0, count))
            self._arrays[made.address] = made.held, made
        return made.address

    def multicast(self, devices: Sequence[object], name: str = "") -> int:
        """The multimem address of a group of simulated devices, a multiple of 512.

        Each of `devices` is the memory of one: an address of `allocate` or `map`, or an array,
        which is put here as `map` puts it. multimem statements at the result reach all of them.
        Raises OperandError for fewer than one device, for memory of different sizes, and as `map`.
        """
        if not isinstance(devices, Sequence) or isinstance(devices, (str, bytes)):
            raise OperandError(f"a multicast group takes a list of devices; got {shown(devices)}")
        title = needed(str, name) or f"multicast group of {len(devices)} devices"
        with self._alone():
            given = [self._of_device(x, f"device {i}") for i, x in enumerate(devices)]
            sizes = sorted({x.size if isinstance(x, Allocation) else x.nbytes for x in given})
            if len(sizes) != 1 or not sizes[0]:
                found = " and ".join(map(str, sizes)) or "no device"
                raise OperandError(
                    f"the devices of a multicast group have as many bytes each; got {found}"
                )
            held = [
                x if isinstance(x, Allocation) else self._place_anywhere(x, f"device {i}")
                for i, x in enumerate(given)
            ]
            made = self._arena.multicast(title, sizes[0], tuple(x.address for x in held))
        return made.address

    def _of_device(self, given: object, name: str) -> Allocation | Array:
        """The memory of a device: the allocation at an address, or an array."""
        if not isinstance(given, (int, np.integer)):
            return array_of_argument(given, name)
        if (address := int(given)) not in self._arrays:
            raise OperandError(f"nothing starts at {_hexadecimal(address)} in this Memory")
        return self._arrays[address][1]

    def _place_anywhere(self, array: Array, name: str) -> Allocation:
        """The allocation of an array at an address that is free."""
        address = self._arena.vacant(array.nbytes)
        self._put(address, array, name, array.flags.writeable, array)
        return self._arrays[address][1]

    def free(self, address: int) -> None:
        """Ends what `map`, `allocate` or `multicast` has put at an address; OperandError where none
        has."""
        with self._alone():
            groups = self._arena.multicasts
            if group := next((x for x in groups if x.address == address), None):
                groups.remove(group)
                return
            if address not in self._arrays:
                raise OperandError(f"nothing starts at {_hexadecimal(address)} in this Memory")
            _, made = self._arrays.pop(address)
            self._placed.copied = [x for x in self._placed.copied if x.allocation is not made]
            self._arena.remove(made)
            self._ended += made.size
            if self._ended > self._arena.used // 2:
                self._arena.renumber()
                self._ended = 0

    def find(self, address: int) -> Region | None:
        """The allocation at an address; None where there is none."""
        made = self._arena.find(whole("an address", address, 0, _LAST))
        return None if made is None else Region(made.name, made.address, made.size)

    def read(self, address: int, size: int) -> bytes:
        """The bytes at an address. Raises OperandError outside of what lies there."""
        return self.view(address, size).tobytes()

    def write(self, address: int, data: Any) -> None:
        """Writes bytes, or those of an array, at an address. Raises OperandError outside of what
        lies there."""
        raw = memoryview(data).cast("B")
        self.view(address, len(raw))[:] = raw

    def view(self, address: int, size: int) -> Array:
        """The bytes at an address, which change as kernels write them."""
        at, count = whole("an address", address, 0, _LAST), whole("a size", size, 0, _MOST)
        made = self._arena.find(at)
        if made is None or at + count > made.end:
            end = "nothing lies there" if made is None else f"{made.name} ends at {made.end:#x}"
            raise OperandError(f"{count} bytes at {at:#x}: {end}")
        array, _ = self._arrays.get(made.address, (made.held, made))
        return bytes_view(array)[at - made.address :][:count]

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Nothing is put here or ended while a launch runs."""
        try:
            with taken({"the Memory": self._turn}):
                yield
        except Failure as failure:
            raise OperandError(failure.reason) from None

    # --- launches ---

    def lend(self, arena: Arena, heap: Heap, placed: Placed) -> None:
        """Gives all that lies here to the memory of one launch and to its heap."""
        self._placed.read_again()
        placed.copied += self._placed.copied
        arena.adopt(self._arena)
        arena.textures, arena.surfaces = Made(self.textures), dict(self.surfaces)
        heap.adopt(self._heap)

    def take_over(self, heap: Heap) -> None:
        """Keeps what a launch has allocated with malloc, and ends what it has freed."""
        for address, made in list(self._heap.items()):
            if address not in heap.live:
                del self._heap[address]
                self._arena.remove(made)
        for address, made in heap.live.items():
            if address not in self._heap:
                self._arena.add(made, heap.arena)
                self._heap[address] = made

    def apart(self) -> Memory:
        """A copy with bytes of its own."""
        arrays = []
        for address, array, name in self.arrays:
            twin = array.copy()
            twin.flags.writeable = array.flags.writeable
            arrays.append((address, twin, name))
        made = Memory.__new__(Memory)
        made.__setstate__(self.__getstate__() | {"arrays": arrays})
        return made

    def take_back(self, other: Memory) -> None:
        """Takes over what a launch has made of an `apart`: bytes, and memory of malloc."""
        for address, (array, _) in self._arrays.items():
            copy_changed(bytes_view(array), bytes_view(other._arrays[address][0]))
        for address, made in list(self._heap.items()):
            if address in other._heap:
                copy_changed(made.held, other._heap[address].held)
            else:
                del self._heap[address]
                self._arena.remove(made)
        for address, made in other._heap.items():
            if address not in self._heap:
                self._heap[address] = self._arena.allocate(
                    made.name, made.size, address=address, contents=made.held
                )


def _hexadecimal(address: object) -> str:
    return hex(address) if isinstance(address, int) else shown(address)
