"""System around a kernel: the memory that malloc hands out to threads."""

from __future__ import annotations

from collections.abc import Mapping

from emulator.machine.shared.failure import Failure
from emulator.memory.allocation import Allocation
from emulator.memory.arena import Arena

#: bytes that malloc hands out at a time, as cudaLimitMallocHeapSize starts with, and in all
_HEAP, _HEAP_IN_ALL = 8 << 20, 1 << 30


class Heap:
    """Allocations of malloc, by address."""

    def __init__(self, arena: Arena) -> None:
        self.arena = arena
        self.live: dict[int, Allocation] = {}
        self.freed: set[int] = set()
        self.used = self.in_all = 0
        #: of what is live, the addresses that grids before this one have allocated
        self.earlier: set[int] = set()

    def adopt(self, before: Mapping[int, Allocation]) -> None:
        """Starts with the allocations of earlier launches."""
        self.live.update(before)
        self.used = self.in_all = sum(made.size for made in before.values())
        self.earlier = set(before)

    @property
    def own(self) -> list[Allocation]:
        """Allocations of the running grid that it has not freed."""
        return [made for address, made in self.live.items() if address not in self.earlier]

    def allocate(self, size: int) -> int:
        """The address of `size` bytes; 0 where there is no room."""
        if size == 0 or self.used + size > _HEAP:
            return 0
        if self.in_all + size > _HEAP_IN_ALL:
            raise Failure("heap", f"malloc has handed out more than {_HEAP_IN_ALL} bytes in all")
        number = len(self.live) + len(self.freed)
        made = self.arena.allocate(f"malloc {number} of {size} bytes", size)
        self.live[made.address] = made
        self.used += size
        self.in_all += size
        return made.address

    def free(self, address: int) -> None:
        made = self.live.pop(address, None)
        if made is None:
            reason = "was freed before" if address in self.freed else "is nothing that malloc gave"
            raise Failure("free", f"{address:#x} {reason}")
        self.arena.free(made)
        self.freed.add(address)
        self.used -= made.size
