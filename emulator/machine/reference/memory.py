"""Reference engine: memory of a thread's accesses, the state spaces, and generic addresses (PTX ISA
5.1).

Spaces are "global" and "const", whose addresses are generic ones, "param", "shared" (of the own
thread block), "cluster" (shared memory of any block of the cluster), "local", and "" for generic
addresses. Every access ends at `find`, which gives the bytes that it goes to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dtypes import Array
from emulator.machine.reference.thread import Block, Thread
from emulator.memory.arena import AccessError
from emulator.memory.windows import LOCAL, PARAMETERS, RANK_BITS, SHARED, WINDOW_BITS

_INSIDE = (1 << WINDOW_BITS) - 1
_OFFSET = (1 << RANK_BITS) - 1
_OF_ARENA = ("global", "const")
_WINDOWS = {SHARED >> WINDOW_BITS: "cluster", LOCAL >> WINDOW_BITS: "local"}


# --- accesses -------------------------------------------------------------------------------------


def load(thread: Thread, space: str, address: int, size: int) -> int:
    """The integer of `size` bytes."""
    return int.from_bytes(find(thread, space, address, size, size), "little")


def store(thread: Thread, space: str, address: int, size: int, word: int) -> None:
    """Writes an integer as `size` bytes."""
    put(thread, find(thread, space, address, size, size, write=True), word.to_bytes(size, "little"))


def put(thread: Thread, place: memoryview, data: bytes) -> None:
    """Writes bytes to where `find` has led."""
    place[:] = data
    thread.run.progress += 1
    thread.run.changes += 1


def update(
    thread: Thread, space: str, address: int, size: int, change: Callable[[int], int]
) -> int:
    """An atomic operation: nothing comes between its load and its store. What was there before."""
    place = find(thread, space, address, size, size, write=True, update=True)
    old = int.from_bytes(place, "little")
    put(thread, place, change(old).to_bytes(size, "little"))
    return old


def by_elements(
    rule: Callable[..., int], size: int, operands: Sequence[Sequence[int]]
) -> Callable[[int], int]:
    """The change that a rule makes to each element of `size` bits; `operands` has the elements of
    each operand."""

    def change(old: int) -> int:
        parts = [old >> i * size & (1 << size) - 1 for i in range(len(operands[0]))]
        new = [rule(part, *given) for part, *given in zip(parts, *operands, strict=True)]
        return sum(word << i * size for i, word in enumerate(new))

    return change


def find(
    thread: Thread,
    space: str,
    address: int,
    size: int,
    alignment: int,
    *,
    write: bool = False,
    update: bool = False,
) -> memoryview:
    """The bytes of an access; `update`: what it writes, it reads first.

    Raises AccessError for one that is out of bounds, no multiple of `alignment`, or written where
    that is not allowed.
    """
    held, start = _held(thread, space, address, size, alignment, write, update)
    return held[start : start + size]


def locate(
    thread: Thread, space: str, address: int, size: int, alignment: int, *, write: bool = False
) -> tuple[Callable[[], Array], int]:
    """The function that gives the bytes of an access's memory, and the place of the access in them.

    Raises AccessError as `find`.
    """
    held, start = _held(thread, space, address, size, alignment, write)
    found = np.frombuffer(held, np.uint8)
    return lambda: found, start


#: (write, update) of an access -> its uses, as whoever watches is told
_USES = {(False, False): ("read",), (True, False): ("written",), (True, True): ("read", "written")}


def _held(
    thread: Thread,
    space: str,
    address: int,
    size: int,
    alignment: int,
    write: bool,
    update: bool = False,
) -> tuple[memoryview, int]:
    """The memory that an access leads to, and where it starts there."""
    held, start = _led(thread, space, address, size, alignment, write)
    for tell in thread.run.touched.values():
        tell(thread, held, start, size, _USES[write, update])
    return held, start


def _led(
    thread: Thread, space: str, address: int, size: int, alignment: int, write: bool
) -> tuple[memoryview, int]:
    """As `_held`; nobody is told."""
    space, address = resolve(space, address)
    if space in _OF_ARENA:
        return _in_arena(thread, address, size, alignment, write)
    what = "local" if space == "local" else "shared"
    if space == "local":
        held, inside = memoryview(thread.local), address
    else:
        block = block_of(thread, address) if space == "cluster" else thread.block
        held, inside = block.shared.data, address & _OFFSET
    if inside > len(held) - size:
        raise AccessError.leaves(0, inside, size, what, len(held), write)
    if inside % alignment:
        raise AccessError.misaligned(0, inside, alignment, size)
    return held, inside


def _in_arena(
    thread: Thread, address: int, size: int, alignment: int, write: bool
) -> tuple[memoryview, int]:
    """The allocation that an access of global memory leads to, and where it starts there."""
    arena = thread.run.arena
    found = arena.find(address)
    if alignment > 1 and address % alignment:
        raise AccessError.misaligned(0, address, alignment, size)
    if found is None or address + size > found.end or found.freed or (write and not found.writable):
        arena.bytes(np.array([address], np.uint64), size, write)
        raise AssertionError("the arena refuses what it does not hold")
    start = address - found.address
    if write:
        arena.keep(found, start, start + size)
    held, first = found.words(1, write=write)
    return held.data, address - first


def block_of(thread: Thread, address: int) -> Block:
    """The block of the cluster whose shared memory an address leads to, by the rank in it."""
    cluster, rank = thread.cluster, address >> RANK_BITS
    if len(cluster.blocks) == 1 and not rank:
        return thread.block
    if rank >= len(cluster.blocks):
        raise AccessError.of_no_block(0, address, len(cluster.blocks))
    return cluster.blocks[rank]


# --- generic addresses ----------------------------------------------------------------------------


def resolve(space: str, address: int) -> tuple[str, int]:
    """The space that an address leads into, and the address in it."""
    if space == "param":
        return "global", PARAMETERS + (address & _INSIDE)
    if space:
        return space, address
    found = _WINDOWS.get(address >> WINDOW_BITS)
    return (found, address & _INSIDE) if found else ("global", address)
