"""Vector engine: resolution of many lanes' addresses, the state spaces, and generic addresses.

Spaces are "global", "shared" (of the own thread block), "cluster" (shared memory of any block of
the cluster), "local", and "" for generic addresses. An access finds its memory as one array of
words or bytes and a place in it for each lane; `emulator.memory` holds the global one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from dtypes import Array
from emulator.machine.shared.served import storing_order
from emulator.memory.arena import AccessError, Words, extent_of
from emulator.memory.windows import LOCAL, PARAMETERS, RANK_BITS, SHARED, WINDOW_BITS

if TYPE_CHECKING:
    from emulator.machine.vector.strand import Strand
    from emulator.machine.vector.wave import Wave

Addresses = NDArray[np.uint64]
Places = NDArray[np.int64]
#: positions of lanes in their strand; None: all of them
Positions = NDArray[np.int64] | None

_WINDOW = np.uint64(WINDOW_BITS)
_INSIDE = np.uint64((1 << WINDOW_BITS) - 1)
_RANK = np.uint64(RANK_BITS)
#: spaces whose addresses are generic addresses
_OF_ARENA = ("global", "const", "param")
_PARAMETERS = np.uint64(PARAMETERS)


class Who(NamedTuple):
    """The lanes that access memory: their numbers in the wave, and the rows of their blocks."""

    wave: Wave
    lanes: Places
    rows: Places

    def part(self, mask: Array) -> Who:
        return Who(self.wave, self.lanes[mask], self.rows[mask])


def who(s: Strand, positions: Positions = None) -> Who:
    rows = s.wave.row(s)
    if positions is None:
        return Who(s.wave, s.lanes, rows)
    return Who(s.wave, s.lanes[positions], rows[positions])


def positions_of(mask: Array | None) -> Positions:
    return None if mask is None else np.flatnonzero(mask)


# --- accesses -------------------------------------------------------------------------------------


def load(
    s: Strand, space: str, addresses: Addresses, size: int, positions: Positions = None
) -> Array:
    """The words at addresses: ``(n,)`` of `size` bytes, of 16 and 32 as ``(n, words)`` of 8.

    `addresses` are those of the lanes at `positions`, or one for all of them.
    """

    watch = s.wave.watch

    def take(view: Array, places: Places, chosen: Positions) -> Array:
        if watch is not None:
            watch.loaded(s, view, places, size, among(positions, chosen))
        return view.take(places, 0)

    words = access(s, space, addresses, size, take, positions)
    assert words is not None
    return words


def store(
    s: Strand,
    space: str,
    addresses: Addresses,
    words: Array,
    positions: Positions = None,
    served: int = 0,
) -> None:
    """Writes words ``(n,)`` or ``(n, words of 8 bytes)``; of lanes at one address that one wins
    which wins on the chip, or which the schedule picks. `served`: the bytes of a lane's access, if
    the words are a part of it."""
    size = words.itemsize * (words.shape[1] if words.ndim > 1 else 1)
    watch = s.wave.watch

    def put(view: Array, places: Places, chosen: Positions) -> None:
        mine = words if chosen is None or len(words) == 1 else words[chosen]
        which = among(positions, chosen)
        lanes = s.lanes if which is None else s.lanes[which]
        if len(lanes) > 1 and max(len(mine), len(places)) > 1:
            order = winning_order(s, lanes, served or size)
            mine = mine[order] if len(mine) > 1 else mine
            places = places[order] if len(places) > 1 else places
            lanes = lanes[order]
        if watch is not None:
            watch.store(lanes, view, places, mine)
            return
        view[places] = mine[-1:] if len(places) == 1 else mine

    s.wave.grid.progress += 1
    access(s, space, addresses, size, put, positions, write=True)


def winning_order(s: Strand, lanes: Places, size: int) -> Places:
    """The order in which lanes store `size` bytes each if the last one at a place stays."""
    schedule = s.wave.grid.schedule
    return schedule.order(len(lanes)) if schedule else storing_order(lanes, size)


def among(positions: Positions, chosen: Positions) -> Positions:
    """The positions in the strand of some of the accesses."""
    if chosen is None or positions is None:
        return chosen if positions is None else positions
    return positions[chosen]


Access = Callable[[Array, Places, Positions], Array | None]


def access(
    s: Strand,
    space: str,
    addresses: Addresses,
    size: int,
    run: Access,
    positions: Positions = None,
    *,
    write: bool = False,
) -> Array | None:
    """``run(view, places, chosen)`` on the memory that addresses of a space lead to.

    The view has words of `size` bytes. Where lanes look into different spaces there are several
    calls; `chosen` says which of the accesses each has. Raises AccessError, its index a position in
    the strand.
    """
    try:
        if space in _OF_ARENA:
            addresses = generic_in(space, addresses)
            return _in_arena(s.wave, addresses, size, run, None, write)
        if space == "":
            return _generic(who(s, positions), addresses, size, run, write)
        return _in_wave(who(s, positions), space, addresses, size, run, None, write)
    except AccessError as error:
        raise at_positions(error, positions) from None


def at_positions(error: AccessError, positions: Positions) -> AccessError:
    """The error of an access, one of those of the lanes at some positions of a strand."""
    if positions is None:
        return error
    return AccessError(replace(error.fault, index=int(positions[error.fault.index])))


def generic_in(space: str, addresses: Addresses) -> Addresses:
    """Generic addresses of addresses in a space of the arena."""
    return (addresses & _INSIDE) + _PARAMETERS if space == "param" else addresses


def _generic(lanes: Who, addresses: Addresses, size: int, run: Access, write: bool) -> Array | None:
    window = addresses >> _WINDOW
    first = int(window[0])
    if len(window) == 1 or (window == first).all():
        space = SPACES.get(first)
        if space is None:
            return _in_no_window(lanes, addresses, size, run, None, write)
        return _in_wave(lanes, space, addresses & _INSIDE, size, run, None, write)
    # Lanes look into different spaces: one after the other.
    out: Array | None = None
    left = np.ones(len(addresses), np.bool_)
    for number, space in (*SPACES.items(), (None, "")):
        mask = left if number is None else window == number
        left = left & ~mask
        if not mask.any():
            continue
        chosen = np.flatnonzero(mask)
        try:
            if number is None:
                rest = lanes.part(mask)
                got = _in_no_window(rest, addresses[mask], size, run, chosen, write)
            else:
                inside = addresses[mask] & _INSIDE
                got = _in_wave(lanes.part(mask), space, inside, size, run, chosen, write)
        except AccessError as error:
            index = int(chosen[error.fault.index])
            raise AccessError(replace(error.fault, index=index)) from None
        if got is not None:
            if out is None:
                out = np.empty((len(addresses), *got.shape[1:]), got.dtype)
            out[mask] = got
    return out


#: windows of generic addresses -> the state spaces that they are
SPACES = {SHARED >> WINDOW_BITS: "cluster", LOCAL >> WINDOW_BITS: "local"}


def _in_no_window(
    lanes: Who, addresses: Addresses, size: int, run: Access, chosen: Positions, write: bool
) -> Array | None:
    """Global memory; of a machine without it shared memory, whose addresses are offsets then."""
    if lanes.wave.grid.only_shared:
        return _in_wave(lanes, "", addresses, size, run, chosen, write)
    return _in_arena(lanes.wave, addresses, size, run, chosen, write)


def _in_arena(
    wave: Wave, addresses: Addresses, size: int, run: Access, chosen: Positions, write: bool
) -> Array | None:
    arena, out = wave.grid.arena, None
    for part in arena.words(addresses, size, write):
        arena.origin = part.origin
        if part.which is None:
            return run(part.view, part.places, chosen)
        got = run(part.view, part.places, part.which if chosen is None else chosen[part.which])
        if got is not None:
            if out is None:
                out = np.empty((len(addresses), *got.shape[1:]), got.dtype)
            out[part.which] = got
    return out


def _in_wave(
    lanes: Who,
    space: str,
    addresses: Addresses,
    size: int,
    run: Access,
    chosen: Positions,
    write: bool,
) -> Array | None:
    """Local memory, or shared memory of blocks of the wave."""
    held, places = _placed(lanes, space, addresses, size, size, write)
    return run(words_of(held, size), places // size, chosen)


def _placed(
    lanes: Who, space: str, addresses: Addresses, size: int, alignment: int, write: bool
) -> tuple[Array, Places]:
    """Local memory of the wave, or shared memory, and where accesses start in it, in bytes; in the
    space "" addresses in shared memory are offsets."""
    wave = lanes.wave
    if space == "local":
        inside = addresses.astype(np.int64)
        _check(inside, wave.local_bytes, space, size, alignment, write)
        return wave.local, lanes.lanes * wave.local.shape[1] + inside
    rows = rows_of_ranks(lanes, addresses) if space == "cluster" else lanes.rows
    inside = (addresses & wave.offset_bits if space else addresses).astype(np.int64)
    _check(inside, wave.shared_limit, "shared", size, alignment, write)
    if len(inside) == 1 and len(rows) > 1 and rows[0] == rows[-1]:
        rows = rows[:1]
    places = rows * wave.shared_bytes + inside
    if write and wave.journal is not None:
        wave.journal.keep(places, size)
    return wave.shared, places


def _check(places: Places, limit: int, space: str, size: int, alignment: int, write: bool) -> None:
    """AccessError for the first access past the end, or no multiple of `alignment`."""
    if not places.size:
        return
    # Addresses of the upper half have come here as negative numbers.
    low, high, bits = extent_of(places)
    if low < 0 or high > limit - size:
        index = int(np.argmax((places > limit - size) | (places < 0)))
        address = int(places[index]) & (1 << 64) - 1
        raise AccessError.leaves(index, address, size, space, limit, write)
    if bits & alignment - 1:
        index = int(np.argmax((places & (alignment - 1)) != 0))
        raise AccessError.misaligned(index, int(places[index]), alignment, size)


def words_of(memory: Array, size: int) -> Array:
    """Rows of bytes as one array of words."""
    flat = memory.reshape(-1)
    return flat.view(f"<u{size}") if size <= 8 else flat.view("<u8").reshape(-1, size // 8)


# --- clusters -------------------------------------------------------------------------------------


def rows_of_ranks(lanes: Who, addresses: Addresses) -> Places:
    """The rows of the blocks whose shared memory addresses lead to, by the rank in them."""
    wave = lanes.wave
    ranks = (addresses >> _RANK).astype(np.int64)
    size = wave.cluster_size
    if size == 1 and not ranks.any():
        return lanes.rows
    if (ranks >= size).any():
        index = int(np.argmax(ranks >= size))
        raise AccessError.of_no_block(index, int(addresses[index]), size)
    return lanes.rows // size * size + ranks


def shared_rank(s: Strand) -> Array:
    """For each lane, or for all, the field of its block's rank in addresses of shared memory."""
    wave = s.wave
    if wave.cluster_size == 1:
        return np.zeros(1, np.uint64)
    found: Array | None = s.marks.get("rank")
    if found is None:
        ranks = (wave.row(s) % wave.cluster_size).astype(np.uint64) << _RANK
        found = s.marks["rank"] = ranks[:1] if (ranks == ranks[0]).all() else ranks
    return found


# --- generic addresses ----------------------------------------------------------------------------


def space_at(space: str, addresses: Addresses) -> str:
    """The memory that an atomic operation works on, "global" or "shared"."""
    if space:
        return "shared" if space in ("shared", "cluster") else "global"
    return "shared" if int(addresses[0] >> _WINDOW) == SHARED >> WINDOW_BITS else "global"


def to_shared(wave: Wave, addresses: Addresses) -> Addresses:
    """Addresses in shared memory of generic addresses, which must lead there."""
    outside = addresses >> _WINDOW != SHARED >> WINDOW_BITS
    if wave.grid.only_shared:
        return np.where(outside, addresses, addresses & _INSIDE)
    if outside.any():
        index = int(np.argmax(outside))
        raise AccessError.not_shared(index, int(addresses[index]))
    return addresses & _INSIDE


# --- bytes ----------------------------------------------------------------------------------------


def bytes_at(
    lanes: Who,
    space: str,
    addresses: Addresses,
    size: int,
    *,
    alignment: int = 1,
    write: bool = False,
) -> tuple[Array, Places]:
    """Memory as one array of bytes, and the places in it of accesses of `size` bytes.

    All addresses must lead into one state space. Raises AccessError for an access that is out of
    bounds or no multiple of `alignment`.
    """
    if space == "":
        elsewhere = "shared" if lanes.wave.grid.only_shared else "global"
        space = SPACES.get(int(addresses[0] >> _WINDOW), elsewhere)
        if space != elsewhere:
            addresses = addresses & _INSIDE
    if space in _OF_ARENA:
        addresses = generic_in(space, addresses)
        if alignment > 1 and (addresses & np.uint64(alignment - 1)).any():
            index = int(np.argmax((addresses & np.uint64(alignment - 1)) != 0))
            raise AccessError.misaligned(index, int(addresses[index]), alignment, size)
        held, places = lanes.wave.grid.arena.bytes(addresses, size, write)
        return _told(lanes, held, places, size, write)
    memory, places = _placed(lanes, space, addresses, size, alignment, write)
    return _told(lanes, memory.reshape(-1), places, size, write)


def _told(
    lanes: Who, held: Array | Words, places: Places, size: int, write: bool
) -> tuple[Array, Places]:
    """Memory and places in it, of which the checks are told."""
    held = cast(Array, held)  # a `Words` is read and written as one
    if lanes.wave.watch is not None:
        lanes.wave.watch.touched(lanes.lanes, held, places, size, write)
    return held, places


def shared_places(
    s: Strand, space: str, addresses: Addresses, size: int, positions: Positions = None
) -> Places:
    """Numbers of the words in shared memory of the wave that addresses lead to."""
    try:
        return _placed(who(s, positions), space, addresses, size, size, True)[1] // size
    except AccessError as error:
        raise at_positions(error, positions) from None


def gather(held: Array, places: Places, size: int) -> Array:
    """The bytes ``(…, size)`` at places of an array of bytes."""
    return held[places[..., None] + np.arange(size)]
