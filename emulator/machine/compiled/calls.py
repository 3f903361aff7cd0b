"""The arrays that a native function is called with, and how the lanes of a strand lie in them."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import numpy as np

from dtypes import Array
from emulator.arith.fast.scratch import LINE, Scratch
from emulator.arrays import address_of
from emulator.machine.compiled.memory import CONTEXT
from emulator.machine.vector.lanes import present, slots
from emulator.machine.vector.strand import WARP, Strand
from emulator.memory.arena import Arena

#: words that a strand keeps in the form that stands for all lanes
_MOST_KNOWN = 512
#: where the words of a context stand
_PLACES = {name: i for i, name in enumerate(CONTEXT)}
#: the words of a context that point to a word of each warp, see `_tables`
_TABLES = ("rows", "cluster_rows", "warps", "places")


class Layout(NamedTuple):
    """Layout of a strand's lanes in vectors of warps."""

    warps: int
    #: the first warp of each thread block, and the end
    starts: Array
    #: where each lane stands among all lanes of its warps; None: all are there
    slots: Array | None
    #: which lanes are there; one warp of ones where all are
    present: Array
    #: the context of memory
    context: Array
    #: what the context points to: of the lanes, and memory when it was last looked at
    held: tuple[Any, ...]
    seen: list[Any]


def spread(
    s: Strand,
    words: Array,
    dtype: np.dtype[Any],
    layout: Layout,
    held: list[Any],
    by_warp: bool = False,
) -> tuple[int, int]:
    """Address of words as those of whole warps, and the bytes from warp to warp: 0 where the words
    of one warp stand for all; `by_warp`: the first axis counts warps. `held` keeps alive what was
    made."""
    if by_warp:
        words = np.ascontiguousarray(words, dtype)
        held.append(words)
        return address_of(words), words.strides[0]
    if words.dtype != dtype:
        words = words.astype(dtype)
    if len(words) == 1:
        return _everywhere(s, words, held), 0
    if layout.slots is not None:
        whole = np.zeros(layout.warps * WARP, dtype)
        whole[layout.slots] = words
        words = whole
    words = np.ascontiguousarray(words)
    held.append(words)
    return address_of(words), WARP * words.itemsize


def _everywhere(s: Strand, words: Array, held: list[Any]) -> int:
    """Address of a word repeated for each lane of a warp; strands keep these copies."""
    known: dict[int, tuple[Array, Array, int]] = s.marks.setdefault("everywhere", {})
    found = known.get(id(words))
    if found is None or found[0] is not words:
        if len(known) >= _MOST_KNOWN:
            known.clear()
        made = np.full(WARP, words[0], words.dtype)
        found = known[id(words)] = words, made, address_of(made)
    held.append(found)
    return found[2]


def layout_of(s: Strand) -> Layout:
    found: Layout | None = s.marks.get("layout")
    if found is None:
        wave = s.wave
        numbers = wave.warps_of(s).numbers
        whole = len(numbers) * WARP == len(s)
        sizes = wave.warps_per_cta, wave.shared_bytes, wave.cluster_size
        every = len(numbers) == len(wave.ctas) * wave.warps_per_cta
        starts, tables = _every_warp(len(numbers), *sizes) if every else _tables(numbers, *sizes)
        context = np.zeros(len(CONTEXT), np.int64)
        for name, table in zip(_TABLES, tables, strict=True):
            context[_PLACES[name]] = address_of(table)
        there = np.ones(WARP, np.bool_) if whole else np.ascontiguousarray(present(s)).reshape(-1)
        at = None if whole else slots(s)
        found = Layout(len(numbers), starts, at, there, context, tables, [])
        s.marks["layout"] = found
    return found


def _tables(
    numbers: Array, warps_of_block: int, shared_bytes: int, cluster_size: int
) -> tuple[Array, tuple[Array, ...]]:
    """The first of some warps in each block, and the end; and for each warp where the shared memory
    of its block and of its cluster starts, its number, and its place in the block."""
    rows, places = np.divmod(numbers, warps_of_block)
    starts = np.append(np.flatnonzero(np.diff(rows, prepend=-1)), len(numbers))
    clusters = rows // cluster_size * cluster_size * shared_bytes
    tables = rows * shared_bytes, clusters, numbers, places
    return starts, tuple(np.ascontiguousarray(x, np.int64) for x in tables)


@lru_cache(maxsize=2)
def _every_warp(warps: int, *sizes: int) -> tuple[Array, tuple[Array, ...]]:
    """The same of all warps of a wave."""
    return _tables(np.arange(warps), *sizes)


def by_warp(words: Array, layout: Layout) -> Array:
    """Words of a strand as ``(warps, 32)``, or one for all; lanes that are not there hold zeros."""
    if layout.slots is not None and len(words) > 1:
        whole = np.zeros(layout.warps * WARP, words.dtype)
        whole[layout.slots] = words
        words = whole
    return words.reshape(-1, WARP) if len(words) > 1 else words


class Registers:
    """Where a native function keeps registers. Those of all warps lie side by side, far from it,
    and so do those of one warp near it; registers that are never alive at the same time share a
    place."""

    _kept: ClassVar[Scratch] = Scratch(most=1 << 28)

    def __init__(self, dtypes: dict[Any, np.dtype[Any]], alive: Iterable[int]) -> None:
        """`alive`: for each place where registers lie in memory, as bits, those that somebody may
        read from there on."""
        self._places: dict[Any, tuple[int, np.dtype[Any]]] = {}
        self.bytes_of_warp = 0
        keys = sorted(dtypes, key=lambda key: (-dtypes[key].itemsize, key))
        apart = _neighbours(keys, alive)
        slots: list[tuple[int, np.dtype[Any], int]] = []
        for key in keys:
            dtype = dtypes[key]
            for number, (first, held, users) in enumerate(slots):
                if held == dtype and not users & apart[key]:
                    slots[number] = first, held, users | 1 << key
                    break
            else:
                first = self.bytes_of_warp
                slots.append((first, dtype, 1 << key))
                self.bytes_of_warp += WARP * dtype.itemsize
            self._places[key] = first, dtype
        self.bytes_of_warp += -self.bytes_of_warp % LINE

    def __contains__(self, key: object) -> bool:
        return key in self._places

    def take(self, warps: int) -> Array:
        """Memory for so many warps."""
        return self._kept.take(warps * self.bytes_of_warp)

    def words(self, room: Array, warps: int, key: Any) -> Array:
        """The words ``(warps, 32)`` of a register in the memory of so many warps."""
        first, dtype = self._places[key]
        size = WARP * dtype.itemsize
        held = room[first * warps : (first + size) * warps]
        return held.view(dtype).reshape(warps, WARP)

    def entry(self, key: Any) -> tuple[int, int]:
        """Where a register lies in the row of a warp, and its bytes there."""
        first, dtype = self._places[key]
        return first, WARP * dtype.itemsize

    def give_back(self, room: Array) -> None:
        """The memory of a call that is over."""
        self._kept.give_back(room)


def _neighbours(keys: Sequence[int], alive: Iterable[int]) -> dict[int, int]:
    """For each register, as bits, those that are alive anywhere where it is."""
    known = sum(1 << key for key in keys)
    out = dict.fromkeys(keys, 0)
    for bits in {x & known for x in alive}:
        left = bits
        while left:
            key = (left & -left).bit_length() - 1
            left &= left - 1
            out[key] |= bits
    return out


_keep = ctypes.CFUNCTYPE(None, ctypes.py_object, *[ctypes.c_int64] * 3)(Arena.keep_row)
_KEEP_ADDRESS = ctypes.cast(_keep, ctypes.c_void_p).value


def refreshed(s: Strand, layout: Layout) -> Array:
    """The context with the memory that is there now: it may have grown."""
    wave, arena = s.wave, s.wave.grid.arena
    table = arena.table()
    now = (table, wave.shared, wave.local, wave.local_bytes)
    if layout.seen and all(x is y for x, y in zip(layout.seen, now, strict=True)):
        return layout.context
    layout.seen[:] = now
    words = {
        "arena": id(arena),  # the address of the object, which the launch keeps alive
        "keep": _KEEP_ADDRESS,
        "stopped": address_of(arena.stopped),
        "allocations": len(table.starts),
        **{name: address_of(x) for name, x in table._asdict().items() if name in _PLACES},
        "shared": address_of(wave.shared),
        "shared_bytes": wave.shared_bytes,
        "shared_limit": wave.shared_limit,
        "cluster_size": wave.cluster_size,
        "local": address_of(wave.local),
        "local_bytes": wave.local.shape[1],
        "local_limit": wave.local_bytes,
    }
    if "mbarrier" in wave.grid.program.effects:  # from a word of shared memory to its entry
        words["ledger"] = address_of(wave.ledger) - address_of(wave.shared)
    for name, word in words.items():
        layout.context[_PLACES[name]] = word
    return layout.context
