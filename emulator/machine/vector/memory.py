"""Loads, stores and atomics of many lanes at once: the state spaces, and generic addresses."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dtypes import Array
from emulator.memory.arena import AccessError, Fault
from emulator.memory.windows import LOCAL, RANK_BITS, SHARED, WINDOW_BITS

if TYPE_CHECKING:
    from emulator.machine.vector.strand import Strand
    from emulator.machine.vector.wave import Wave

Addresses = NDArray[np.uint64]
#: positions of lanes in their strand; None: all of them
Positions = NDArray[np.int64] | None


def positions_of(mask: Array | None) -> Positions:
    return None if mask is None else np.flatnonzero(mask)


def load(
    s: Strand, space: str, addresses: Addresses, size: int, positions: Positions = None
) -> Array:
    """The words at addresses: ``(n,)`` of `size` bytes, of 16 and 32 as ``(n, words)`` of 8.

    `addresses` are those of the lanes at `positions`, or one for all of them.
    """
    words: Array = _by_space(s, space, addresses, size, positions, False, _take)
    return words


def store(
    s: Strand,
    space: str,
    addresses: Addresses,
    words: Array,
    positions: Positions = None,
) -> None:
    """Writes words ``(n,)`` or ``(n, words of 8 bytes)``; of lanes with one address the last wins."""
    size = words.itemsize * (words.shape[1] if words.ndim > 1 else 1)

    def put(view: Array, places: NDArray[np.int64], chosen: Positions) -> None:
        mine = words if chosen is None or len(words) == 1 else words[chosen]
        view[places] = mine[-1:] if len(places) == 1 else mine

    s.wave.grid.writes += 1
    _by_space(s, space, addresses, size, positions, True, put)


def update(
    s: Strand,
    space: str,
    addresses: Addresses,
    words: tuple[Array, ...],
    rule: Callable[..., Any],
    positions: Positions = None,
) -> Array:
    """Atomic operations, lane by lane in ascending order: what was there before.

    ``rule(old, *operands)`` gives what is there afterwards.
    """
    lanes = len(s) if positions is None else len(positions)
    addresses = np.broadcast_to(addresses, (lanes,))
    words = tuple(np.broadcast_to(x, (lanes, *x.shape[1:])) for x in words)
    size = words[0].itemsize * (words[0].shape[1] if words[0].ndim > 1 else 1)
    old = np.empty(words[0].shape, words[0].dtype)

    def change(view: Array, places: NDArray[np.int64], chosen: Positions) -> None:
        every = np.arange(lanes) if chosen is None else chosen
        for turn in _turns(places):
            at, who = places[turn], every[turn]
            before = view[at]
            old[who] = before.view(old.dtype).reshape(old[who].shape)
            view[at] = rule(old[who], *(x[who] for x in words)).view(view.dtype).reshape(before.shape)

    s.wave.grid.writes += 1
    _by_space(s, space, addresses, size, positions, True, change)
    return old


def _turns(places: NDArray[np.int64]) -> list[Any]:
    """Indexes of accesses that may go together: those to one place take turns, in order."""
    if len(places) == 1:
        return [slice(None)]
    order = np.argsort(places, kind="stable")
    ordered = places[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=ordered[0] - 1))
    if len(starts) == len(places):
        return [slice(None)]
    counts = np.diff(starts, append=len(places))
    turn = np.arange(len(places)) - np.repeat(starts, counts)
    by_turn = np.argsort(turn, kind="stable")
    cuts = np.cumsum(np.bincount(turn))[:-1]
    return [order[part] for part in np.split(by_turn, cuts)]


def _take(view: Array, places: NDArray[np.int64], chosen: Positions) -> Array:
    return view.take(places, 0)


# --- spaces ---------------------------------------------------------------------------------------

Access = Callable[[Array, NDArray[np.int64], Positions], Any]


def _by_space(
    s: Strand,
    space: str,
    addresses: Addresses,
    size: int,
    positions: Positions,
    write: bool,
    access: Access,
) -> Any:
    """``access(view, places, chosen)`` on the memory that addresses of a space point into.

    `chosen` says which of the accesses it is, where lanes look into different spaces.
    """
    try:
        if space in _OF_ARENA:
            return _in_arena(s, addresses, size, write, access, None)
        if space == "":
            return _generic(s, addresses, size, positions, write, access)
        find = _in_local if space == "local" else _in_shared
        return find(s, addresses, size, positions, write, access, None)
    except AccessError as error:
        if positions is None or len(addresses) == 1:
            raise
        fault = error.fault
        raise AccessError(fault._replace(index=int(positions[fault.index]))) from None


#: spaces whose addresses are generic addresses
_OF_ARENA = ("global", "const", "param")


def _generic(
    s: Strand,
    addresses: Addresses,
    size: int,
    positions: Positions,
    write: bool,
    access: Access,
) -> Any:
    window = addresses >> np.uint64(WINDOW_BITS)
    first = int(window[0])
    inside = addresses & np.uint64((1 << WINDOW_BITS) - 1)
    if len(window) == 1 or (window == first).all():
        if first == SHARED >> WINDOW_BITS:
            return _in_shared(s, inside, size, positions, write, access, None)
        if first == LOCAL >> WINDOW_BITS:
            return _in_local(s, inside, size, positions, write, access, None)
        return _in_arena(s, addresses, size, write, access, None)
    # Lanes look into different spaces: one after the other.
    own = np.arange(len(s)) if positions is None else positions
    out: Array | None = None
    shared, local = window == SHARED >> WINDOW_BITS, window == LOCAL >> WINDOW_BITS
    for mask, find in ((shared, _in_shared), (local, _in_local), (~(shared | local), None)):
        if not mask.any():
            continue
        chosen = np.flatnonzero(mask)
        if find is None:
            got = _in_arena(s, addresses[mask], size, write, access, chosen)
        else:
            got = find(s, inside[mask], size, own[mask], write, access, chosen)
        if got is not None:
            if out is None:
                out = np.empty((len(addresses), *got.shape[1:]), got.dtype)
            out[mask] = got
    return out


def _in_arena(
    s: Strand, addresses: Addresses, size: int, write: bool, access: Access, chosen: Positions
) -> Any:
    arena = s.wave.grid.arena
    places = arena.locate(addresses, size, write=write)
    view = arena.view(size)
    return access(view, places >> (size.bit_length() - 1) if size > 1 else places, chosen)


def _in_shared(
    s: Strand,
    addresses: Addresses,
    size: int,
    positions: Positions,
    write: bool,
    access: Access,
    chosen: Positions,
) -> Any:
    wave: Wave = s.wave
    rows = wave.row(s) if positions is None else wave.row(s)[positions]
    if (addresses >> np.uint64(RANK_BITS)).any():
        rows, addresses = wave.rows_of_cluster(rows, addresses)
    inside = addresses.astype(np.int64)
    wrong = inside > wave.shared_bytes - size
    if wrong.any():
        index = int(np.argmax(wrong))
        raise AccessError(_outside(s.wave, "shared", int(addresses[index]), size, index, write))
    _check_alignment(inside, size)
    if len(inside) == 1 and len(rows) > 1 and rows[0] == rows[-1]:
        rows = rows[:1]
    places = rows * wave.shared_bytes + inside
    return access(_view(wave.shared, size), places // size, chosen)


def _in_local(
    s: Strand,
    addresses: Addresses,
    size: int,
    positions: Positions,
    write: bool,
    access: Access,
    chosen: Positions,
) -> Any:
    wave: Wave = s.wave
    lanes = s.lanes if positions is None else s.lanes[positions]
    inside = addresses.astype(np.int64)
    limit = wave.local.shape[1]
    wrong = inside > limit - size
    if wrong.any():
        index = int(np.argmax(wrong))
        raise AccessError(_outside(s.wave, "local", int(addresses[index]), size, index, write))
    _check_alignment(inside, size)
    return access(_view(wave.local, size), (lanes * limit + inside) // size, chosen)


def _view(memory: Array, size: int) -> Array:
    """Rows of bytes as one array of words."""
    flat = memory.reshape(-1)
    return flat.view(f"<u{size}") if size <= 8 else flat.view("<u8").reshape(-1, size // 8)


def _check_alignment(places: NDArray[np.int64], size: int) -> None:
    if size > 1 and (places & (size - 1)).any():
        index = int(np.argmax((places & (size - 1)) != 0))
        address = int(places[index])
        reason = f"address {address:#x} is no multiple of {size}, the bytes of the access"
        raise AccessError(Fault(index, address, "misaligned", reason))


def _outside(wave: Wave, space: str, address: int, size: int, index: int, write: bool) -> Fault:
    verb = "written" if write else "read"
    memory = wave.shared_bytes if space == "shared" else wave.local.shape[1]
    reason = (
        f"{size} byte{'s' * (size > 1)} at {address:#x} of {space} memory are {verb}, which has "
        f"{memory} bytes"
    )
    return Fault(index, address, "out of bounds", reason)


# --- bytes ----------------------------------------------------------------------------------------


def bytes_at(
    wave: Wave, space: str, rows: NDArray[np.int64], addresses: Addresses, size: int, *,
    alignment: int = 1, write: bool = False,
) -> tuple[Array, NDArray[np.int64]]:  # fmt: skip
    """Memory as one array of bytes, and the places in it of addresses seen by blocks of `rows`.

    All addresses must lead into one state space. Raises AccessError for an access of `size` bytes
    that is out of bounds or no multiple of `alignment`.
    """
    if space == "" and int(addresses[0] >> np.uint64(WINDOW_BITS)) == SHARED >> WINDOW_BITS:
        space, addresses = "shared", to_shared(addresses)
    if alignment > 1 and (addresses & np.uint64(alignment - 1)).any():
        index = int(np.argmax((addresses & np.uint64(alignment - 1)) != 0))
        address = int(addresses[index])
        reason = f"address {address:#x} is no multiple of {alignment}"
        raise AccessError(Fault(index, address, "misaligned", reason))
    if space != "shared":
        arena = wave.grid.arena
        places = arena.locate_bytes(addresses, size, write=write)
        return arena.view(1), places
    if (addresses >> np.uint64(RANK_BITS)).any():
        rows, addresses = wave.rows_of_cluster(rows, addresses)
    inside = addresses.astype(np.int64)
    wrong = inside > wave.shared_bytes - size
    if wrong.any():
        index = int(np.argmax(wrong))
        raise AccessError(_outside(wave, "shared", int(addresses[index]), size, index, write))
    return wave.shared.reshape(-1), rows * wave.shared_bytes + inside


def load_lines(s: Strand, space: str, starts: NDArray[np.int64], size: int) -> Array:
    """Bytes ``(warps, lines, size)`` at addresses ``(warps, lines)`` of each warp."""
    held, places = _lines(s, space, starts, size, False)
    return held[places[..., None] + np.arange(size)]


def store_lines(s: Strand, space: str, starts: NDArray[np.int64], lines: Array) -> None:
    held, places = _lines(s, space, starts, lines.shape[-1], True)
    s.wave.grid.writes += 1
    held[places[..., None] + np.arange(lines.shape[-1])] = lines


def _lines(
    s: Strand, space: str, starts: NDArray[np.int64], size: int, write: bool
) -> tuple[Array, NDArray[np.int64]]:
    rows = np.repeat(s.wave.row(s)[::32], starts.shape[1])
    flat = starts.reshape(-1).astype(np.uint64)
    try:
        held, places = bytes_at(s.wave, space, rows, flat, size, write=write)
    except AccessError as error:
        index = error.fault.index // starts.shape[1] * 32
        raise AccessError(error.fault._replace(index=index)) from None
    return held, places.reshape(starts.shape)


def to_shared(addresses: Addresses) -> Addresses:
    """Addresses in shared memory of generic addresses, which must lead there."""
    outside = addresses >> np.uint64(WINDOW_BITS) != SHARED >> WINDOW_BITS
    if outside.any():
        index = int(np.argmax(outside))
        address = int(addresses[index])
        reason = f"the generic address {address:#x} does not lead into shared memory"
        raise AccessError(Fault(index, address, "address space", reason))
    return addresses & np.uint64((1 << WINDOW_BITS) - 1)


def check_shared(
    s: Strand, places: NDArray[np.int64], size: int, lane: Callable[[int], int]
) -> None:
    """AccessError where an access leaves shared memory or is no multiple of its size; `lane` tells
    whose access one is."""
    wrong = (places > s.wave.shared_bytes - size) | (places < 0)
    if wrong.any():
        index = int(np.argmax(wrong))
        fault = _outside(s.wave, "shared", int(places[index]), size, index, False)
        raise AccessError(fault._replace(index=lane(index)))
    if (places & (size - 1)).any():
        index = int(np.argmax((places & (size - 1)) != 0))
        address = int(places[index])
        reason = f"address {address:#x} is no multiple of {size}, the bytes of a row"
        raise AccessError(Fault(lane(index), address, "misaligned", reason))
