"""Vector engine: special registers of all lanes of a strand (PTX ISA 10)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dtypes import Array
from emulator.machine.shared.special import CLOCKS, Readers, along, is_of_thread, value_of

if TYPE_CHECKING:
    from emulator.machine.vector.strand import Strand
    from emulator.machine.vector.wave import Wave


def special(strand: Strand, name: str) -> Array:
    """The words of a special register: ``(lanes,)``, or ``(1,)`` where all lanes hold the same."""
    if name in CLOCKS:
        bits, low = CLOCKS[name]
        return np.array([strand.wave.grid.now() >> low & (1 << bits) - 1], f"uint{bits}")
    found: Array | None = strand.marks.get(name)
    if found is None:
        wave: Wave = strand.wave
        if name not in wave.specials:
            wave.specials[name] = _words(wave, name)
        words = wave.specials[name]
        # Lanes are ascending: so many are all.
        found = words if len(words) in (1, len(strand)) else words[strand.lanes]
        if len(found) > 1 and found[0] == found[-1] and (found == found[0]).all():
            found = found[:1]
        strand.marks[name] = found
    return found


def _words(wave: Wave, name: str) -> Array:
    """The words of all lanes of a wave; waves of one size share what is the same in all blocks."""
    shared, key = wave.grid.specials, (name, wave.lanes)
    if key in shared:
        return shared[key]
    if is_of_thread(name):
        shared[key] = np.tile(words_of_block(wave, name), len(wave.ctas))
        return shared[key]
    words = _read(wave, name, np.zeros(1, np.int64), wave.ctas)
    return words if len(words) == 1 else np.repeat(words, wave.lanes_per_cta)


def words_of_block(wave: Wave, name: str) -> Array:
    """The words of all lanes of any block, of a register that depends on no more than the thread's
    place in it."""
    shared, key = wave.grid.specials, (name, wave.lanes_per_cta)
    if key not in shared:
        thread = np.arange(wave.lanes_per_cta)
        words = np.broadcast_to(_read(wave, name, thread, wave.ctas[:1]), len(thread))
        shared[key] = np.ascontiguousarray(words)
    return shared[key]


def _read(wave: Wave, name: str, thread: Array, block: Array) -> Array:
    grid = wave.grid
    readers = Readers(thread, block, grid.size, grid.block, grid.cluster, grid)
    return np.atleast_1d(value_of(name)(readers)).astype(np.uint32)


def ctas_along(wave: Wave, axis: int) -> Array:
    """The coordinate of each block of a wave along an axis."""
    return np.asarray(along(axis, wave.ctas, wave.grid.size)).astype(np.uint32)
